"""Used values: positions, uses and instructions, and also values if there are no allocations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ... import _lines, _values
from ..._column import Names
from ..arrays import texts
from ..batch import ASSIGNMENT, USED, Batch, Columns, Section, Span
from ..tables import Column
from .base import Context, SectionReader, SizeOf, feature_names, split

SEARCH_BYTES = 16 << 20
"""Bytes of text that are searched for the next record at a time."""

_GLUED = re.compile(rb"<-?[0-9]+ [A-Za-z_][\w.-]*(?:\{[0-9,-]*\})?(?: \(phi\))?(?: @-?[0-9]+)?>\n\Z")
"""The header of the next record at the end of a line (E4)."""


def _text(context: Context, batch: Batch, columns: Columns) -> Column:
    """Return the verbatim text of the instructions."""
    if not context.with_text:
        return None, None
    data = batch.span.section.data
    return texts(_values.texts(data, columns["text_begin"], columns["text_end"])), None


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
        """Return the offset of the next record, or the end of the line that its header is appended to (E4)."""
        data, end = section.data, section.end
        while offset < end:
            stop = min(offset + SEARCH_BYTES, end)
            record = _lines.next_line(data, offset - 1, stop, b"<")
            if record < stop:
                return record
            if (line_end := _end_of_glued_line(data, offset, stop, end)) is not None:
                return line_end
            offset = stop
        return end

    def spans(self, section: Section, size_of: SizeOf) -> Iterator[Span]:
        return split(section, section.begin, section.end, size_of, b"<")

    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        if not context.sections(ASSIGNMENT):
            for batch in batches:
                batch.tables["values"] = _without_offset(batch.tables["records"])
        context.expects_tree |= any(batch.summary for batch in batches)
        context.matcher.drop_repeats(batches)


def _without_offset(records: Columns) -> Columns:
    """Return the columns of records that `values` has too. Their `offset` is a text offset, so it is dropped."""
    return {name: column for name, column in records.items() if name != "offset"}


def _end_of_glued_line(data: Any, offset: int, stop: int, end: int) -> int | None:
    """Return the end of the first line, not before `offset`, that ends with the header of a record."""
    line = _lines.next_line(data, offset - 1, stop, b" from instruction:")
    while line < stop:
        line_end = _lines.next_line(data, line, end, b"")
        if _GLUED.search(bytes(data[max(line, line_end - 4096) : line_end])):
            return line_end
        line = _lines.next_line(data, line_end - 1, stop, b" from instruction:")
    return None
