"""Connects rows by the offsets of their names in the files: for dumps whose batches are released one by one.

A position is ``(file ordinal << 48) + offset``. Names are compared by reading the text at their positions again.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _lookup
from ..input.files import evict_pages
from .arrays import NULL, Bools, Codes, Ints, Rows, codes, flags, ints, stable_order
from .batch import Batch, Columns, Section
from .lanes import Job, Lanes
from .matcher import SAME_TEXT, Matcher
from .reader import Reader
from .repeats import FILE_SHIFT, drop_repeats
from .report_checks import differing_rows
from .sections import ASSIGNMENT, LIVE, REPORT, USED
from .stores import CompactStore

Mask = npt.NDArray[np.bool_]

LIVE_COLUMNS = {
    "schedule": ("time",),
    "printed_peak": ("ordinal", "bytes"),
    "printed_stack": ("total", "depth", "remaining"),
    "live_ranges": ("value_id", "start", "end"),
}
"""Columns of the live ranges that the cross-checks need."""

REPORT_COLUMNS = ("part", "color", "space_label", "total_bytes", "allocation", "n_values")
"""Columns of a report that the cross-checks need."""


class OffsetMatcher(Matcher):
    """Connects rows by offset. Keeps the columns of each batch that cross-checks and later batches need, narrowed."""

    def __init__(
        self,
        reader: Reader,
        stores: Mapping[str, CompactStore],
        wanted: Collection[str],
        *,
        checks: bool,
        lanes: Lanes,
    ) -> None:
        self._reader: Reader = weakref.proxy(reader)  # a cycle would be freed only by the garbage collector
        self._stores, self._wanted, self._checks, self._lanes = stores, wanted, checks, lanes
        self._needs_matching = not {"live_ranges", "printed_peak"}.isdisjoint(wanted)
        self._overflow = _Overflow()
        self._differing: dict[Section, list[tuple[int, bool]]] = {}
        self._labels: dict[int, tuple[str, str]] = {}
        """Instruction and index of the live ranges without a value, by row."""
        self._n_ranges = 0
        self._texts: _lookup.Files | None = None
        self._instructions: _lookup.Texts | None = None
        self._indexed: Job | None = None
        """The job that makes `_values`."""
        self._values: _lookup.Values | None = None
        self._ids: npt.NDArray[np.signedinteger[Any]] = np.empty(0, np.int64)
        """Ids of `_values`, ascending."""
        self._is_array = np.zeros(1, bool)
        """Whether each of `_values` is an array, and False."""
        self._arrays: tuple[Rows, Mask] | None = None
        """An index of the values by id; and whether each value is an array, and False."""

    @property
    def files(self) -> _lookup.Files:
        """The texts of all files, by ordinal."""
        if self._texts is None:
            self._texts = _lookup.Files([f.text.data for f in self._reader.files])
        return self._texts

    def evict(self) -> None:
        """Evict the mapped pages of all files; the operating system still caches them."""
        for file in self._reader.files:
            evict_pages(file.text.data, 0, len(file.text.data))

    def finish(self, kind: str) -> None:
        """Release what only sections of this kind need, and prepare for the live ranges after the allocations."""
        if kind == USED:
            self._instructions = None
        elif kind == LIVE:
            self._values, self._indexed, self._arrays, self._ids = None, None, None, np.empty(0, np.int64)
            self._is_array = np.zeros(1, bool)
        elif kind == ASSIGNMENT and self._reader.assignment is not None and self._matches_ranges:
            self._indexed = self._lanes.submit("index of values", self._make_values)

    @property
    def _matches_ranges(self) -> bool:
        return (self._checks or self._needs_matching) and self._reader.was_read(LIVE)

    # -- kept columns ----------------------------------------------------------------------------

    def keep(self, batch: Batch) -> None:
        """Keep those columns of a completed batch that are needed later."""
        kind = batch.span.section.kind
        if kind == ASSIGNMENT:
            self._keep_values(batch)
        elif kind == USED:
            self._keep_records(batch)
        elif kind == LIVE and self._checks:
            for table, columns in LIVE_COLUMNS.items():
                self._stores[LIVE].keep(table, batch.tables[table], columns)
        elif kind == REPORT and self._checks:
            self._keep_report(batch)

    def _keep_values(self, batch: Batch) -> None:
        store, allocations, values = self._stores[ASSIGNMENT], batch.tables["allocations"], batch.tables["values"]
        if self._checks:
            store.keep("allocations", allocations, ("allocation", "size", "color", "fields", "flags"))
            self._overflow.add(allocations, values)
        if self._checks or self._needs_matching:
            sizes, shape = batch.interners.shape_sizes()[1], values["shape"]
            has_bytes = (sizes[shape] > 0).view(np.uint8) if len(sizes) else np.empty(0, np.uint8)
            columns = values | {
                "position": values["place"] + (batch.span.section.file.ordinal << FILE_SHIFT),
                "has_bytes": has_bytes,
                "is_array": (values["shape_index"] < 0).astype(np.uint8),
            }
            more = ("allocation", "color", "is_phi", "has_bytes") if self._checks else ()
            store.keep("values", columns, ("value_id", "position", "is_array", *more))

    def _keep_records(self, batch: Batch) -> None:
        has_no_values = self._reader.assignment is None
        if self._checks or (has_no_values and self._needs_matching):
            store, records = self._stores[USED], batch.tables["records"]
            columns = records | {"is_array": (records["shape_index"] < 0).astype(np.uint8)}
            store.keep("records", columns, ("value_id", "offset", "color", "is_phi", "is_array"))
            kept = store.chunks["records"][-1]
            kept["position"] = kept["offset"].plus(batch.span.section.file.ordinal << FILE_SHIFT)

    def _keep_report(self, batch: Batch) -> None:
        section, columns = batch.span.section, batch.tables["printed_report"]
        wide = {c: columns[c].astype(np.int64) for c in ("part", "space_label")}
        self._stores[REPORT].keep(_report_name(section), columns | wide, REPORT_COLUMNS)
        if self._reader.was_read(ASSIGNMENT):
            rows = self._differing.setdefault(section, [])
            rows += differing_rows(self._reader, section, columns)

    # -- instructions ----------------------------------------------------------------------------

    def drop_repeats(self, batches: Sequence[Batch]) -> None:
        if not self._checks and "instructions" not in self._wanted:
            return
        if self._instructions is None:
            self._instructions = _lookup.Texts(self.files)
        for batch in batches:
            section, differing = batch.span.section, drop_repeats(self._instructions, batch)
            for line in differing.tolist() if self._checks else ():
                self._reader.diagnostics.add(section.file, line, section.kind, "instruction_differs", SAME_TEXT)

    # -- live ranges -----------------------------------------------------------------------------

    def match_ranges(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            ranges, peak = batch.tables["live_ranges"], batch.tables["printed_peak"]
            if self._checks or "live_ranges" in self._wanted:
                ranges["value_id"] = self._match(batch)
            if "live_ranges" in self._wanted:
                self._null_indices(batch, ranges, ranges["value_id"])
            if "printed_peak" in self._wanted and len(peak["ordinal"]):
                self._null_indices(batch, peak, None)

    def _match(self, batch: Batch) -> Ints:
        """Return the `value_id` of each live range."""
        name, index = (batch.tables["live_ranges"][c] for c in ("instruction", "shape_index"))
        n = len(name)
        if not n:
            return np.empty(0, np.int64)
        ids = self._find(batch, name, index)
        if self._checks:
            unmatched = np.flatnonzero(ids == NULL)
            names, indices = (
                batch.interners[meaning].arrays(column[unmatched])[0].to_pylist()
                for meaning, column in (("instruction", name), ("shape_index", index))
            )
            rows = (unmatched + self._n_ranges).tolist()
            self._labels.update(zip(rows, zip(names, indices, strict=True), strict=True))
        self._n_ranges += n
        return ids

    def _null_indices(self, batch: Batch, columns: Columns, ids: Ints | None) -> None:
        """Set the index of arrays to null: live ranges and peak lists print {} for them."""
        index = columns["shape_index"]
        rows = np.flatnonzero(index == batch.interners["shape_index"].code("{}"))
        if ids is None:
            row = self._find_rows(batch, columns["instruction"][rows], index[rows])
            is_array: Mask = self._is_array[row]
        else:
            is_array = self._is_array_id(ids[rows])
        index = index.copy()
        index[rows[is_array]] = -1
        columns["shape_index"] = index

    def _is_array_id(self, ids: Ints) -> Mask:
        """Return whether the values with these ids are arrays."""
        if self._arrays is None:
            store, table = self._value_store()
            self._arrays = Rows(self._value_ids()), np.append(store.flags(table, "is_array"), np.uint8(0)).view(bool)
        found: Mask = self._arrays[1][self._arrays[0](ids)]
        return found

    def _find_rows(self, batch: Batch, name: Codes, index: Codes) -> Codes:
        """Return the rows, in ascending order of ids, of the values with these names and indices, -1 for none."""
        if self._values is None:
            self._values = self._lanes.result(self._indexed) if self._indexed else self._make_values()
        interners = batch.interners["instruction"].names, batch.interners["shape_index"].names
        return codes(self._values.match(*interners, name, index))

    def _find(self, batch: Batch, name: Codes, index: Codes) -> Ints:
        """Return the ids of the values with these names and indices, NULL for none."""
        row = self._find_rows(batch, name, index)
        ids = np.full(len(row), NULL)
        matched = np.flatnonzero(row >= 0)
        ids[matched] = self._ids[row[matched]]
        return ids

    def _make_values(self) -> _lookup.Values:
        ids = self._value_ids()
        order = stable_order(ids)  # ids repeat only in corrupt text; both values are kept then
        ids = ids[order]
        self._ids = ids.astype(np.int32) if len(ids) and ids[0] >= 0 and ids[-1] < 1 << 31 else ids
        del ids
        store, table = self._value_store()
        self._is_array = np.append(store.flags(table, "is_array")[order].view(bool), False)
        return _lookup.Values(self.files, self._value_positions()[order])

    def _value_store(self) -> tuple[CompactStore, str]:
        if self._reader.assignment is not None:
            return self._stores[ASSIGNMENT], "values"
        return self._stores[USED], "records"

    def _value_ids(self) -> Ints:
        store, table = self._value_store()
        return store.ints(table, "value_id")

    def _value_positions(self) -> Ints:
        """Return the positions of the names of all values."""
        store, table = self._value_store()
        positions = store.ints(table, "position")
        return positions if table == "values" else ints(self.files.names(positions))

    # -- for the cross-checks --------------------------------------------------------------------

    def overflowing(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        return self._overflow.rows()

    def records_agree(self) -> bool:
        return False

    def same_names(self, rows: Codes) -> Any:
        assert self._reader.assignment is not None
        base = self._reader.assignment.file.ordinal << FILE_SHIFT
        values = self._stores[ASSIGNMENT].packed("values", "position", base)
        same = np.empty(len(rows), bool)

        def compare(chunk: slice, records: Ints) -> None:
            names = ints(self.files.names(records))
            same[chunk] = flags(self.files.same_names(values[rows[chunk]] + np.int64(base), names))
            self.evict()

        for i, (first, records) in enumerate(self._stores[USED].batches("records", "position")):
            chunk = slice(first, first + len(records))
            self._lanes.submit(f"names {i % self._lanes.threads}", partial(compare, chunk, records))
        for i in range(self._lanes.threads):
            self._lanes.wait(f"names {i}")
        return same

    def range_rows(self) -> Codes | None:
        if self._reader.assignment is None:
            return None
        rows = Rows(self._stores[ASSIGNMENT].packed("values", "value_id"))
        ranges = self._stores[LIVE].batches("live_ranges", "value_id")
        return np.concatenate([np.empty(0, np.int32), *(rows(ids).astype(np.int32) for _, ids in ranges)])

    def has_bytes(self) -> Bools:
        return self._stores[ASSIGNMENT].flags("values", "has_bytes")

    def label(self, table: str, row: int) -> tuple[str, str]:
        if table == "live_ranges":
            return self._labels[row]
        position = int(self._value_positions()[row])
        file, offset = self._reader.files[position >> FILE_SHIFT], position & ((1 << FILE_SHIFT) - 1)
        match = re.compile(rb"([\w.-]+)(?:[{[]([\d,-]*)[]}])?").match(file.text.data, offset)
        assert match is not None
        return match[1].decode(), f"{{{(match[2] or b'').decode()}}}"

    def report_columns(self, section: Section) -> Mapping[str, Any]:
        return _ReportColumns(self._stores[REPORT], _report_name(section))

    def differing_rows(self, section: Section) -> list[tuple[int, bool]]:
        return self._differing.get(section, [])


def _report_name(section: Section) -> str:
    """Return the name under which the columns of a report are stored."""
    return f"report {section.file.ordinal} {section.begin}"


class _ReportColumns(Mapping[str, Ints]):
    """Columns of one report, widened on access."""

    def __init__(self, store: CompactStore, name: str) -> None:
        self._store, self._name = store, name

    def __getitem__(self, column: str) -> Ints:
        return self._store.ints(self._name, column)

    def __iter__(self) -> Iterator[str]:
        return iter(REPORT_COLUMNS)

    def __len__(self) -> int:
        return len(REPORT_COLUMNS)


class _Overflow:
    """Collects the values that may end beyond their allocation, nearly always the allocation printed above them."""

    def __init__(self) -> None:
        self._last = np.empty(0, np.int64), np.empty(0, np.int64)
        """Number and size of the allocation printed last."""
        self._ascending = True
        self._n = 0
        self._rows: list[tuple[Ints, ...]] = []

    def add(self, allocations: Columns, values: Columns) -> None:
        columns = allocations["allocation"], allocations["size"]
        index, size = (np.concatenate(both) for both in zip(self._last, columns, strict=True))
        owner, offset, extent = (values[c] for c in ("allocation", "offset", "size"))
        self._ascending &= bool((index[1:] > index[:-1]).all())
        rows = np.arange(len(owner))
        if self._ascending and len(index):  # otherwise an allocation may be printed twice: all values are candidates
            row = Rows(index)(owner)
            room = size[row]  # offset + extent may overflow 64 bits, this difference cannot
            is_invalid = (row < 0) | (offset < 0) | (extent < 0) | (room < 0)
            rows = np.flatnonzero(is_invalid | (extent > np.maximum(room, 0) - np.maximum(offset, 0)))
        if len(rows):
            self._rows.append((rows + self._n, owner[rows], offset[rows], extent[rows]))
        self._n += len(owner)
        self._last = index[-1:], size[-1:]

    def rows(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        for rows, *columns in self._rows:
            for i, row in enumerate(rows.tolist()):
                owner, offset, size = (c[i : i + 1] for c in columns)
                yield row, owner, offset, size
