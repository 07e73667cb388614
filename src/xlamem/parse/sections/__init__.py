"""The sections of a dump, one file each; `SECTIONS` lists them in the order in which they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import pyarrow as pa

from ... import schema
from ..arrays import INTERNER_OF
from ..batch import Batch
from ..tables import Chunk, Column, table_of
from .assignment import AssignmentReader
from .base import ASSIGNMENT, HLO, LIVE, REPORT, USED, Context, Derived, SectionReader
from .hlo_header import HloHeaderReader
from .live_ranges import LiveRangesReader
from .report import ReportReader
from .used_values import UsedValuesReader

SECTIONS: dict[str, SectionReader] = {
    reader.kind: reader
    for reader in (AssignmentReader(), UsedValuesReader(), LiveRangesReader(), ReportReader(), HloHeaderReader())
}
SECTION_OF = {table: kind for kind, reader in SECTIONS.items() for table in reader.tables}
"""The section that usually fills a table (see `source_section`)."""

_INSTEAD = {"values": USED, "positions": ASSIGNMENT, "uses": ASSIGNMENT}
"""The section that fills a table where the usual one is missing."""

_DERIVED: dict[str, dict[str, Derived]] = {
    table: dict(columns) for reader in SECTIONS.values() for table, columns in reader.derived.items()
}


def source_section(context: Context, table: str) -> str:
    """The kind of section that fills a table of this dump.

    Without allocations the used values still name the values; without used values old allocations have their uses.
    """
    kind, instead = SECTION_OF[table], _INSTEAD.get(table)
    if instead is None or context.sections(kind):
        return kind
    return instead if context.sections(instead) or table == "values" else kind


def needed_sections(context: Context, tables: Iterable[str]) -> list[str]:
    """The kinds of sections to be read for these tables, in the order of `SECTIONS`."""
    kinds = {kind for t in tables if t in SECTION_OF for kind in (SECTION_OF[t], source_section(context, t))}
    if LIVE in kinds and any(s.begin < s.end for s in context.sections(LIVE)):
        kinds.add(ASSIGNMENT)  # live ranges are matched with values
    if ASSIGNMENT in kinds and not context.sections(ASSIGNMENT):
        kinds.add(USED)
    return [kind for kind in SECTIONS if kind in kinds]


def make_table(context: Context, name: str, batches: Iterable[Batch]) -> pa.Table:
    """The table with the rows of these batches, derived columns included."""
    return table_of(name, make_chunks(context, name, batches))


def make_chunks(context: Context, name: str, batches: Iterable[Batch]) -> Sequence[Chunk]:
    """The columns of a table, batch by batch."""
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
        else Column(columns.get(column), interners[meaning] if meaning else None)
        for column, meaning in _columns(name)
    ]


@cache
def _columns(name: str) -> list[tuple[str, str | None]]:
    """The columns of a table; of dictionary columns also the interner's meaning."""
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
