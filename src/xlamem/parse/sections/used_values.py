"""Used values: positions, uses and instructions; the values themselves where there are no allocations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ... import _lines, _values
from ..._column import Names
from ..arrays import texts
from ..batch import Batch, Columns, Section, Span
from ..tables import Column
from .base import ASSIGNMENT, USED, Context, SectionReader, even_spans, feature_names

SEARCH_BYTES = 16 << 20
"""Text that is searched for the next record at a time."""

_GLUED = re.compile(rb"<-?[0-9]+ [A-Za-z_][\w.-]*(?:\{[0-9,-]*\})?(?: \(phi\))?(?: @-?[0-9]+)?>\n\Z")
"""The header of the next record at the end of a line (E4)."""


def _text(context: Context, batch: Batch, columns: Columns) -> Column:
    """The instructions verbatim."""
    if not context.with_text:
        return Column(None)
    data = batch.span.section.data
    return Column(texts(_values.texts(data, columns["text_begin"], columns["text_end"])))


class UsedValuesReader(SectionReader):
    kind = USED
    tables = ("positions", "uses", "instructions")
    interners = _values.POOLS
    derived = {"instructions": {"text": _text}}  # noqa: RUF012

    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        section, features = span.section, span.section.file.features
        last = span.ends_section and section.last
        tables, faults, bits, unfinished = _values.scan(
            section.data, span.begin, span.end, tuple(names), "human_total" in features, last
        )
        gaps = tables.pop("gaps")["gap"]
        features = feature_names(bits, _values.FEATURES)
        expects_tree = bool(bits & _values.TREE_BITS)
        return Batch(span, tables, faults, features, gaps, _values.GAP_TABLES, unfinished, summary=expects_tree)

    def next_split(self, section: Section, offset: int) -> int:
        """Where the next record begins; behind the line that its header is glued to (E4)."""
        data, end = section.data, section.end
        while offset < end:
            stop = min(offset + SEARCH_BYTES, end)
            record = _lines.next_line(data, offset - 1, stop, b"<")
            if record < stop:
                return record
            if (behind := _behind_glued(data, offset, stop, end)) is not None:
                return behind
            offset = stop
        return end

    def spans(self, section: Section, size: int) -> Iterator[Span]:
        return even_spans(section, section.begin, section.end, size, b"<")

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        if not context.sections(ASSIGNMENT):
            for batch in batches:
                batch.tables["values"] = _without_offset(batch.tables["records"])
        context.expects_tree |= any(batch.summary for batch in batches)
        context.matcher.drop_repeats(batches)


def _without_offset(records: Columns) -> Columns:
    """The columns of records that `values` has too; their `offset` is one of the text."""
    return {name: column for name, column in records.items() if name != "offset"}


def _behind_glued(data: Any, offset: int, stop: int, end: int) -> int | None:
    """The end of the first line from `offset` on to which a record's header is glued."""
    line = _lines.next_line(data, offset - 1, stop, b" from instruction:")
    while line < stop:
        behind = _lines.next_line(data, line, end, b"")
        if _GLUED.search(bytes(data[max(line, behind - 4096) : behind])):
            return behind
        line = _lines.next_line(data, behind - 1, stop, b" from instruction:")
    return None
