"""Convert a dump that does not fit into memory, in two passes over its text.

The first pass collects the integer columns from which the peaks are computed. The second pass writes all tables, and
keeps the rows that the derived tables need, which are those of the values in use at the peaks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.columns import Ints, ints
from ..input.find import Source
from ..parse.arrays import Codes, joined, row_of
from ..parse.interners import Interner
from ..parse.pieces import pieces
from ..parse.sections import SECTION_OF
from .large import COUNTED_TABLE, INTEGER_COLUMNS, IntegerColumns, LargePeaks, large_peaks
from .memory import release_memory
from .merged import DERIVED_FROM, DumpSet
from .parquet import copied
from .spill import Scratch, Spill

MAX_INT64 = np.iinfo(np.int64).max


class StreamedDump:
    """One large dump, and the rows of it that are kept for the derived tables."""

    def __init__(self, source: Source, content_id: str) -> None:
        self.source, self.content_id = source, content_id
        self.scratch = Scratch()
        self.peaks: LargePeaks | None = None
        self.kept: dict[str, pa.Table] = {}

    def convert(
        self, write: Callable[[str, pa.Table, pa.Array], None], flush: Callable[[str], None], *, with_peaks: bool
    ) -> dict[str, Any]:
        """Pass the rows of every table to ``write(table, rows, content_ids)``, and return the row of `modules`.

        ``flush(table)`` is called when a table is complete. `with_peaks` is required for `dump_set`.
        """
        if with_peaks:
            self.peaks = self._find_peaks()
        release_memory()
        self._write_tables(write, flush)
        release_memory()
        row: dict[str, Any] = self.kept["modules"].slice(0, 1).to_pylist()[0]
        return row

    def dump_set(self) -> DumpSet:
        """Return the rows from which the derived tables are computed."""
        return DumpSet.of_one(self.content_id, self.kept, self.peaks)

    def _find_peaks(self) -> LargePeaks | None:
        columns = IntegerColumns(self.scratch.empty)
        tables = {*INTEGER_COLUMNS, COUNTED_TABLE}
        with columns.spilled:
            for name, rows in pieces(self.source, tables, checks=False, empty=self.scratch.empty):
                if name != COUNTED_TABLE:
                    columns.add(name, rows)
            release_memory()
            return large_peaks(self.content_id, columns)

    def _write_tables(self, write: Callable[[str, pa.Table, pa.Array], None], flush: Callable[[str], None]) -> None:
        needed = NeededRows(self.peaks.values if self.peaks else np.empty(0, np.int64))
        matched = self.peaks.matched if self.peaks else None
        specs = {name: schema.TABLES[name].empty.select(columns).schema for name, columns in DERIVED_FROM.items()}
        section = None
        with Spill(specs) as spill:
            for name, shared in pieces(self.source, hashes=True, matched=matched, empty=self.scratch.empty):
                if SECTION_OF.get(name) != section:
                    _flush_section(section, flush)
                    section = SECTION_OF.get(name)
                rows = copied(shared)
                write(name, rows, _repeat(self.content_id, rows.num_rows))
                if name in DERIVED_FROM:
                    spill.add(name, needed.select(name, rows))
            self.kept = spill.tables()
        if self.peaks:
            self.peaks = replace(self.peaks, instruction_row=needed.instruction_rows())


def _flush_section(section: str | None, flush: Callable[[str], None]) -> None:
    for table in schema.TABLES:
        if SECTION_OF.get(table) == section:
            flush(table)


def _repeat(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))


class NeededRows:
    """Selects the rows from which the derived tables are computed.

    These are some of the values, with their live ranges and instructions, and all rows of the smaller tables.
    """

    def __init__(self, values: Ints) -> None:
        self.values = np.append(np.unique(values), MAX_INT64)
        self.names = Interner()
        self.codes: dict[str, list[Codes]] = {"values": [], "instructions": []}
        self.has_live_ranges = False

    def instruction_rows(self) -> Ints:
        """Return the row of each selected value among the selected instructions, or -1."""
        values, instructions = (joined(codes, np.int32).astype(np.int64) for codes in self.codes.values())
        return row_of(instructions, values)

    def select(self, name: str, rows: pa.Table) -> pa.Table:
        """Return the needed rows and columns of the next rows of a table."""
        rows = rows.select(DERIVED_FROM[name])
        if name == "live_ranges":
            self.names = Interner()  # the instructions are complete
            rows = self._select_live_ranges(rows)
        elif name == "values":
            rows = rows.take(pa.array(self._rows_of_values(rows)))
        elif name == "instructions":
            rows = self._select_instructions(rows)
        rows = pa.table([_without_unused_names(c) for c in rows.columns], schema=rows.schema)
        if name == "values":
            for chunk in rows["instruction"].chunks:
                codes = self.names.find(chunk.dictionary, add=True)
                self.codes[name].append(codes[chunk.indices.to_numpy()])
        return rows

    def _rows_of_values(self, rows: pa.Table) -> Ints:
        ids = ints(rows, "value_id")  # -1 for a live range without a value
        selected: Ints = np.flatnonzero(self.values[np.searchsorted(self.values, ids)] == ids)
        return selected

    def _select_live_ranges(self, rows: pa.Table) -> pa.Table:
        """Select the live ranges of the values, and the first one, so that the table is not empty."""
        selected = self._rows_of_values(rows)
        if not self.has_live_ranges:
            selected, self.has_live_ranges = np.union1d(selected, [0]), True
        return rows.take(pa.array(selected))

    def _select_instructions(self, rows: pa.Table) -> pa.Table:
        names = rows["instruction"].combine_chunks()
        codes = self.names.find(names.dictionary)[names.indices.to_numpy()]
        self.codes["instructions"].append(codes[codes >= 0])
        return rows.filter(pa.array(codes >= 0))


def _without_unused_names(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(column.type) else column
