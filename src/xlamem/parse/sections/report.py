"""The memory-usage report, in both of its layouts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ... import _lines, _usage
from ..._column import Names
from ..batch import REPORT, Batch, Columns, Section, Span
from ..interners import fixed_dictionary
from ..tables import Column
from .base import Context, SectionReader, next_line

_PARTS = fixed_dictionary(*_usage.PARTS)


def _part(_: Context, __: Batch, columns: Columns) -> Column:
    return _PARTS.codes(columns["part"]), _PARTS


class ReportReader(SectionReader):
    kind = REPORT
    tables = ("printed_report",)
    interners = ("label",)
    derived = {"printed_report": {"part": _part}}  # noqa: RUF012

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        columns, faults, summary = _usage.scan(
            span.section.data, span.begin, span.end, names[0], state=span.state, last=span.ends_section
        )
        tables, gaps = {"printed_report": columns}, columns.pop("gap")
        features = {f for f, k in (("report_a", "layout_a"), ("report_b", "layout_b")) if summary[k]}
        return Batch(span, tables, faults, features, gaps, _usage.GAP_TABLES, state=summary, summary=summary)

    def next_split(self, section: Section, offset: int) -> int:
        if bytes(section.data[section.begin : section.begin + 13]) == b"Memory Space:":
            return _next_full_line(section, offset)
        # In layout A, an allocation and its table must be in the same span.
        return _lines.next_line(section.data, offset - 1, section.end, b"allocation ")

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        first = context.counts.get((REPORT, "printed_report"), 0)
        for batch in batches:
            columns = batch.tables["printed_report"]
            columns["ordinal"] = np.arange(first, first + len(columns["part"]))
            first += len(columns["part"])
            if batch.span.ends_section:
                context.reports[batch.span.section] = batch.summary


def _next_full_line(section: Section, offset: int) -> int:
    """Return the offset of the next line that is not empty."""
    offset = next_line(section, offset)
    while offset < section.end and section.data[offset] == 10:
        offset += 1
    return offset
