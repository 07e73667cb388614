"""Merge several dumps into one program that has the memory spaces of all of them.

`compute` then runs once for hundreds of small dumps. Ids and pages are offset by dump (see `Offsets`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.columns import Ints, encoded, ints, match_dictionaries, nullable, take
from ..compute.layout import module_lengths
from ..compute.program import Program
from ..parse.arrays import numbers_of, row_of
from .large import LargePeaks
from .offsets import Offsets, with_columns

DERIVED_FROM = {
    "modules": schema.TABLES["modules"].arrow.names,
    "allocations": schema.TABLES["allocations"].arrow.names,
    "values": [c for c in schema.TABLES["values"].arrow.names if c not in ("color", "uses_known")],
    "live_ranges": ["value_id", "start", "end"],
    "instructions": ["instruction", "opcode", "operands", "op_name", "source_file", "source_line", "stack_frame_id"],
    "frames": schema.TABLES["frames"].arrow.names,
}
"""The columns from which the derived tables are computed."""


class DumpSet:
    """The tables of several dumps, concatenated."""

    def __init__(
        self, ids: list[str], tables: dict[str, pa.Table], counts: dict[str, Ints], large: LargePeaks | None = None
    ) -> None:
        """Describe dumps. `counts`: rows of each dump, by table. `large`: the peaks, if this is one streamed dump."""
        self.ids, self.tables, self.large = ids, tables, large
        self.dump_of_row = {name: _repeat(n) for name, n in counts.items()}
        """Index of the dump of each row, by table."""

    @classmethod
    def of_one(cls, content_id: str, tables: dict[str, pa.Table], large: LargePeaks | None = None) -> DumpSet:
        return cls([content_id], tables, {name: np.array([t.num_rows]) for name, t in tables.items()}, large)

    def select(self, dumps: Ints) -> DumpSet:
        """Return these dumps, in this order, with the tables in DERIVED_FROM."""
        if len(dumps) == len(self.ids):
            return self
        tables, counts = {}, {}
        new = np.full(len(self.ids), -1)
        new[dumps] = np.arange(len(dumps))
        for name in DERIVED_FROM:
            dump = new[self.dump_of_row[name]]
            rows = np.flatnonzero(dump >= 0)
            rows = rows[np.argsort(dump[rows], kind="stable")]
            tables[name] = pc.take(self.tables[name], pa.array(rows)).combine_chunks()
            counts[name] = np.bincount(dump[rows], minlength=len(dumps))
        return DumpSet([self.ids[i] for i in dumps.tolist()], tables, counts)


def _repeat(counts: Ints) -> Ints:
    """Repeat the index of each count that many times. For a single count, this allocates no memory."""
    if len(counts) == 1:
        return np.broadcast_to(np.int64(0), int(counts[0]))
    return np.repeat(np.arange(len(counts)), counts)


class MergedTables:
    """The tables of a `DumpSet`, presented as those of a single dump (`dump.Tables`)."""

    name = "several dumps"
    platform = None
    tables = tuple(DERIVED_FROM)

    def __init__(self, dumps: DumpSet) -> None:
        self.dumps = dumps
        self.cache: dict[str, Any] = {}
        self.offsets = _offsets(dumps)
        self.lengths = lengths = module_lengths(dumps.tables["modules"])
        """Schedule length of each dump, -1 without live ranges."""
        longest = int(lengths.max())
        self.schedule_length = longest if longest >= 0 else None
        self._tables = dict(dumps.tables)
        page = np.maximum(ints(dumps.tables["allocations"], "page", 0), 0)
        merged_page = self.offsets.add("page", page, dumps.dump_of_row["allocations"])
        self._replace("allocations", page=pa.array(merged_page))
        self._replace("live_ranges", **self._clipped_ranges(lengths))
        for table, column, key in (
            ("allocations", "allocation", "allocation"), ("values", "allocation", "allocation"),
            ("values", "value_id", "value_id"), ("live_ranges", "value_id", "value_id"),
            ("frames", "id", "id"), ("instructions", "stack_frame_id", "id"),
        ):  # fmt: skip
            if self.offsets.stride:
                ids = ints(self._tables[table], column)
                self._replace(table, **{column: nullable(self.offsets.add(key, ids, dumps.dump_of_row[table]))})

    def _replace(self, table: str, **columns: pa.Array) -> None:
        self._tables[table] = with_columns(self._tables[table], **columns)

    def _clipped_ranges(self, lengths: Ints) -> dict[str, pa.Array]:
        """Return start and end, clipped to the schedule of the dump that each live range belongs to."""
        live, dump = self._tables["live_ranges"], self.dumps.dump_of_row["live_ranges"]
        length = lengths if len(lengths) == 1 else lengths[dump]
        start, end = ints(live, "start"), ints(live, "end")
        is_outside, after_end = start > length, int(lengths.max()) + 1
        return {
            "start": pa.array(np.where(is_outside, after_end, start)),
            "end": pa.array(np.where(is_outside, after_end, np.minimum(end, length + 1))),
        }

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables[name]

    def integers(self, name: str, *columns: str) -> list[Ints]:
        return [numbers_of(self[name][column]) for column in columns]

    def count_rows(self, name: str) -> int:
        return int(self[name].num_rows)


def _offsets(dumps: DumpSet) -> Offsets:
    if len(dumps.ids) == 1:
        return Offsets()
    columns = {
        "page": [("allocations", "page")],
        "allocation": [("allocations", "allocation"), ("values", "allocation")],
        "value_id": [("values", "value_id"), ("live_ranges", "value_id")],
        "id": [("frames", "id"), ("instructions", "stack_frame_id")],
    }
    highest = {
        key: max(int(ints(dumps.tables[table], column, 0).max(initial=0)) for table, column in pairs)
        for key, pairs in columns.items()
    }
    return Offsets({key: top + 1 for key, top in highest.items()})


class MergedProgram(Program):
    """The program of merged tables. Instruction names are resolved within each dump."""

    tables: MergedTables

    def __init__(self, tables: MergedTables) -> None:
        super().__init__(tables)
        self.dumps = tables.dumps
        if self.dumps.large and self.dumps.large.peak_steps is not None:
            self.results["peak steps"] = self.dumps.large.peak_steps

    def _check_limits(self) -> None:
        """Skip the check: only dumps with valid sizes are merged."""

    @cached_property
    def steps(self) -> int | None:
        length = self.tables.schedule_length
        return length + 1 if length is not None and self.tables["live_ranges"].num_rows else None

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        codes, names = encoded(self.tables["values"]["instruction"])
        return np.where(codes >= 0, codes + self.dumps.dump_of_row["values"] * len(names), -1), names

    @cached_property
    def last_step(self) -> Ints:
        return self.tables.lengths[self.dumps.dump_of_row["values"]]

    @cached_property
    def instruction_row(self) -> Ints:
        if self.dumps.large and self.dumps.large.instruction_row is not None:
            return self.dumps.large.instruction_row
        codes, names = encoded(self.tables["values"]["instruction"])
        printed, printed_names = encoded(self.tables["instructions"]["instruction"])
        code, n = take(match_dictionaries(names, printed_names), codes), len(printed_names)
        dump = self.dumps.dump_of_row
        row = row_of(printed + dump["instructions"] * n, code + dump["values"] * n)
        return np.where(code >= 0, row, -1)

    def value_text(self, column: str, values: Ints) -> pa.Array:
        if self.dumps.large:
            return _take_few(self.tables["values"][column], values)
        return super().value_text(column, values)


def _take_few(column: pa.ChunkedArray, rows: Ints) -> pa.Array:
    """Return the texts of a few rows (-1: null) without unifying the dictionaries, which would take much memory."""
    begins = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
    chunk = np.searchsorted(begins, rows, "right") - 1
    positions = zip(chunk.tolist(), (rows - begins[chunk]).tolist(), rows >= 0, strict=True)
    texts = [column.chunk(i)[row].as_py() if valid else None for i, row, valid in positions]
    return pc.dictionary_encode(pa.array(texts, pa.string()))
