"""The sections of a dump, one module each. `SECTIONS` lists them in reading order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pyarrow as pa

from ... import schema
from ..arrays import INTERNER_OF
from ..batch import ASSIGNMENT, HLO, LIVE, REPORT, USED, Batch
from ..tables import Chunk, Column, table_of
from .assignment import AssignmentReader
from .base import Context, Derived, SectionReader
from .flags import FlagsReader
from .hlo_header import HloHeaderReader
from .live_ranges import LiveRangesReader
from .report import ReportReader
from .used_values import UsedValuesReader

SECTIONS: dict[str, SectionReader] = {
    reader.kind: reader
    for reader in (
        AssignmentReader(), UsedValuesReader(), LiveRangesReader(), ReportReader(), HloHeaderReader(), FlagsReader()
    )
}
SECTION_OF = {table: kind for kind, reader in SECTIONS.items() for table in reader.tables}
"""The kind of section that usually fills each table (see `source_section`)."""

_FALLBACKS = {"values": USED, "positions": ASSIGNMENT, "uses": ASSIGNMENT}
"""The kind of section that fills a table if the usual one is missing."""

_DERIVED: dict[str, dict[str, Derived]] = {
    table: dict(columns) for reader in SECTIONS.values() for table, columns in reader.derived.items()
}


def source_section(context: Context, table: str) -> str:
    """Return the kind of section that fills a table of this dump.

    Without allocations, `values` comes from the used values; without used values, uses come from old allocations.
    """
    kind, fallback = SECTION_OF[table], _FALLBACKS.get(table)
    if fallback is None or context.sections(kind):
        return kind
    return fallback if context.sections(fallback) else kind


def needed_sections(context: Context, kinds: Iterable[str]) -> list[str]:
    """Return the kinds of sections that must be read for those of `kinds`, in the order of `SECTIONS`."""
    needed = {*kinds}
    needed |= {source_section(context, table) for kind in needed for table in SECTIONS[kind].tables}
    if LIVE in needed and any(s.begin < s.end for s in context.sections(LIVE)):
        needed.add(ASSIGNMENT)  # live ranges are matched with values
    if ASSIGNMENT in needed and not context.sections(ASSIGNMENT):
        needed.add(USED)
    return [kind for kind in SECTIONS if kind in needed]


def make_table(context: Context, name: str, batches: Iterable[Batch]) -> pa.Table:
    """Return a table with the rows of these batches, including derived columns."""
    return table_of(name, make_chunks(context, name, batches))


def make_chunks(context: Context, name: str, batches: Iterable[Batch]) -> Sequence[Chunk]:
    """Return the columns of a table, batch by batch."""
    chunks = []
    for batch in batches:
        if rows := batch.rows(name):
            chunks.append(Chunk(rows, _batch_columns(context, name, batch)))
    return chunks


def _batch_columns(context: Context, name: str, batch: Batch) -> list[Column]:
    columns, derived, interners = batch.tables[name], _DERIVED.get(name, {}), batch.interners
    return [
        derived[column](context, batch, columns)
        if column in derived
        else (columns.get(column), interners[meaning] if meaning else None)
        for column, meaning in _columns(name)
    ]


@cache
def _columns(name: str) -> list[tuple[str, str | None]]:
    """Return the names of a table's columns, with the interner of each dictionary column."""
    columns = schema.TABLES[name].columns
    return [(c.name, INTERNER_OF.get(c.name, c.name) if c.kind == "name" else None) for c in columns]


__all__ = [
    "ASSIGNMENT",
    "HLO",
    "LIVE",
    "REPORT",
    "SECTIONS",
    "SECTION_OF",
    "USED",
    "Context",
    "SectionReader",
    "make_chunks",
    "make_table",
    "needed_sections",
    "source_section",
]
