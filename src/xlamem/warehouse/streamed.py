"""Convert a dump that does not fit into memory, in one pass over its text.

The calling thread reads the text; others scan the next spans and write the tables. The peaks are computed after the
live ranges, from integer columns alone. From then on it is known which rows the derived tables need: those of the
values in use at the peaks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.columns import Ints, ints
from ..input.find import Source
from ..parse.arrays import Codes, Rows, joined, row_of
from ..parse.interners import Interner
from ..parse.lanes import Job, Lanes
from ..parse.pieces import PieceReader
from ..parse.sections import ASSIGNMENT, LIVE, USED
from .cores import Cores
from .large import INTEGER_COLUMNS, IntegerColumns, LargePeaks, large_peaks
from .memory import release_memory
from .merged import DERIVED_FROM, DumpSet
from .parquet import copied
from .spill import Scratch, Spill

Write = Callable[[str, pa.Table, pa.Array], None]
Flush = Callable[[str], None]
Derive = Callable[[DumpSet], dict[str, pa.Table]]


class StreamedDump:
    """One large dump, and the rows of it that are kept for the derived tables."""

    def __init__(self, source: Source, content_id: str, cores: Cores) -> None:
        self.source, self.content_id, self.cores = source, content_id, cores

    def convert(
        self, write: Write, flush: Flush, derive: Derive | None
    ) -> tuple[dict[str, Any], dict[str, pa.Table]]:
        """Pass the rows of every table to ``write(table, rows, content_ids)``.

        Return the row of `modules`, and the tables that `derive` returns. ``flush(table)`` is called when a table is
        complete. Other threads may call these functions, but not for two pieces of a table at once.
        """
        tables, empty = frozenset(schema.TABLES), Scratch().empty
        with ExitStack() as stack:
            rows = stack.enter_context(DerivedRows(self.content_id, derive)) if derive else None
            lanes = stack.enter_context(Lanes(self.cores.threads, self.cores))
            reader = PieceReader(self.source, tables, hashes=True, empty=empty, lanes=lanes)
            module = _Pass(self, reader, lanes, write, flush, rows).run()
        release_memory()
        return module, rows.tables if rows else {}


class _Pass:
    """The pass over the text of a dump."""

    def __init__(
        self,
        dump: StreamedDump,
        reader: PieceReader,
        lanes: Lanes,
        write: Write,
        flush: Flush,
        rows: DerivedRows | None,
    ) -> None:
        self.dump, self.reader, self.lanes, self.rows = dump, reader, lanes, rows
        self.write, self.flush = write, flush
        self.peaks: Job | None = None
        self.module: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Read all tables, and return the row of `modules`."""
        for kind in self.reader.kinds:
            if kind not in (ASSIGNMENT, LIVE):
                self.find_peaks()
            if kind == USED and self.peaks is not None:
                self.lanes.result(self.peaks)  # they need much memory
                release_memory()
            names = {self.submit(name, rows) for name, rows in self.reader.tables(kind)}
            for name in sorted(names):
                self.lanes.submit(name, partial(self.flush, name))
            release_memory()
        self.find_peaks()
        if self.rows is not None:
            self.lanes.wait("derived")
            # After the fingerprints, because both need much memory.
            self.lanes.submit("fingerprints", partial(self.rows.compute, self.reader.module_so_far()))
        for name, rows in self.reader.summaries():
            self.submit(name, rows)
            if name == "modules":
                self.module = rows.slice(0, 1).to_pylist()[0]
        return self.module

    def submit(self, name: str, rows: pa.Table) -> str:
        """Submit what must be done with a piece of a table, and return the name of the table."""
        self.lanes.submit(name, partial(self.write_copy, name, rows))
        if self.rows is not None and name in DERIVED_FROM and name != "modules":
            self.lanes.submit("derived", partial(self.rows.add, name, rows))
        self.dump.cores.set_read(self.reader.scanned_bytes)
        return name

    def write_copy(self, name: str, rows: pa.Table) -> None:
        self.write(name, copied(rows), _repeat(self.dump.content_id, rows.num_rows))

    def find_peaks(self) -> None:
        """Submit the computation of the peaks once. The allocations, values and live ranges have been submitted."""
        if self.rows is not None and self.peaks is None:
            module = self.reader.module_so_far()
            self.peaks = self.lanes.submit("derived", partial(self.rows.find_peaks, module, self.lanes))
            self.lanes.submit("derived", self.rows.select_candidates)


def _repeat(text: str, n: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))


class DerivedRows(ExitStack):
    """Collects the rows from which the derived tables are computed, and computes them."""

    def __init__(self, content_id: str, derive: Derive) -> None:
        super().__init__()
        self.content_id, self.derive = content_id, derive
        self.tables: dict[str, pa.Table] = {}
        self.columns: IntegerColumns | None = IntegerColumns(Scratch().empty)
        self.enter_context(self.columns.spilled)
        specs = {name: schema.TABLES[name].empty.select(columns).schema for name, columns in DERIVED_FROM.items()}
        self.candidates = self.enter_context(Spill({name: specs[name] for name in ("values", "live_ranges")}))
        """Rows that are selected when the peaks are known."""
        self.kept = self.enter_context(Spill(specs))
        self.peaks: LargePeaks | None = None
        self.needed: NeededRows | None = None

    def add(self, name: str, rows: pa.Table) -> None:
        """Add the next rows of a table."""
        if self.columns is not None and name in INTEGER_COLUMNS:
            self.columns.add(name, rows)
        rows = rows.select(DERIVED_FROM[name])
        if self.needed is not None:
            self.kept.add(name, self.needed.select(name, rows))
        elif name in self.candidates.files:
            self.candidates.add(name, rows)
        else:
            self.kept.add(name, without_unused_names(rows))

    def find_peaks(self, module: pa.Table, lanes: Lanes) -> None:
        """Compute the peaks. All values and live ranges have been added; `module` has what is known so far."""
        assert self.columns is not None
        columns, self.columns = self.columns, None
        columns.add("modules", module)
        self.peaks, values = large_peaks(self.content_id, columns, lanes)
        self.needed = NeededRows(values)

    def select_candidates(self) -> None:
        """Select the needed rows of the tables that were read before the peaks were known."""
        assert self.needed is not None
        for name, table in self.candidates.tables().items():
            for batch in table.to_batches():
                self.kept.add(name, self.needed.select(name, pa.Table.from_batches([batch])))
        self.candidates.close()

    def compute(self, module: pa.Table) -> None:
        """Compute the derived tables. All rows have been added; the cross-checks change nothing that matters here."""
        assert self.needed is not None
        self.kept.add("modules", module)
        if self.peaks is not None:
            self.peaks = replace(self.peaks, instruction_row=self.needed.instruction_rows())
        self.tables = self.derive(DumpSet.of_one(self.content_id, self.kept.tables(), self.peaks))


class NeededRows:
    """Selects the rows from which the derived tables are computed.

    These are some of the values, with their live ranges and instructions, and all rows of the smaller tables.
    """

    def __init__(self, values: Ints) -> None:
        self.row_of_value = Rows(values)
        self.names = Interner()
        self.codes: dict[str, list[Codes]] = {"values": [], "instructions": []}
        self.has_live_ranges = False

    def instruction_rows(self) -> Ints:
        """Return the row of each selected value among the selected instructions, or -1."""
        values, instructions = (joined(codes, np.int32).astype(np.int64) for codes in self.codes.values())
        return row_of(instructions, values)

    def select(self, name: str, rows: pa.Table) -> pa.Table:
        """Return the needed rows of the next rows of a table, with the columns in DERIVED_FROM."""
        if name == "live_ranges":
            rows = self._select_live_ranges(rows)
        elif name == "values":
            rows = rows.take(pa.array(self._rows_of_values(rows)))
        elif name == "instructions":
            rows = self._select_instructions(rows)
        rows = without_unused_names(rows)
        if name == "values":
            for chunk in rows["instruction"].chunks:
                codes = self.names.find(chunk.dictionary, add=True)
                self.codes[name].append(codes[chunk.indices.to_numpy()])
        return rows

    def _rows_of_values(self, rows: pa.Table) -> Ints:
        ids = ints(rows, "value_id")  # -1 for a live range without a value
        return np.flatnonzero(self.row_of_value(ids) >= 0)

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


def without_unused_names(rows: pa.Table) -> pa.Table:
    """Return the rows with dictionaries that have only the names in them."""
    columns = [c.cast(pa.string()).dictionary_encode() if pa.types.is_dictionary(c.type) else c for c in rows.columns]
    return pa.table(columns, schema=rows.schema)
