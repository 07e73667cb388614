"""Compute the peaks of a dump that does not fit into memory, from its integer columns alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.arena_cells import free_cells
from ..compute.charges import live_values
from ..compute.columns import Ints, ints
from ..compute.in_use import windows
from ..compute.layout import MAX_DUMP_SPACES, Layout, can_be_added, module_lengths
from ..compute.peaks import half_open_peaks, selected_steps
from ..parse.arrays import Rows
from ..parse.lanes import Lanes
from ..parse.stores import CompactStore, Empty
from .bill_sums import bill_sums
from .memory import release_memory
from .offsets import Offsets
from .peak_numbers import PeakNumbers, device_peaks, peak_numbers
from .spill import Spill

Result = TypeVar("Result")

FLAGS = ("is_thread_local", "is_constant", "is_parameter", "is_live_out")

INTEGER_COLUMNS = {
    "allocations": ["allocation", "size", "color", "page", "memory_space", *FLAGS],
    "values": ["value_id", "allocation", "offset", "size", "unpadded_size"],
    "live_ranges": ["value_id", "start", "end"],
    "modules": ["platform", "schedule_length", "n_schedule", "n_live_ranges", "printed_peak_time"],
}
"""Columns that determine what is in use at each step."""


class IntegerColumns:
    """The INTEGER_COLUMNS of one dump, collected batch by batch."""

    def __init__(self, empty: Empty) -> None:
        self.empty = empty
        self.compact = CompactStore(empty)
        specs = {name: schema.TABLES[name].empty.select(INTEGER_COLUMNS[name]) for name in ("allocations", "modules")}
        self.spilled = Spill({name: table.schema for name, table in specs.items()})
        """The caller must close it."""

    def add(self, name: str, rows: pa.Table) -> None:
        columns = INTEGER_COLUMNS[name]
        if name in self.spilled.files:
            self.spilled.add(name, rows.select(columns))
        else:
            self.compact.keep(name, {c: ints(rows, c) for c in columns}, columns)


class LargeLayout(Layout):
    """The layout of one large dump. It takes ownership of the columns and releases each one after use.

    Threads may share it: a result that one of them is computing is awaited by the others.
    """

    def __init__(self, name: str, tables: dict[str, pa.Table], columns: IntegerColumns, lanes: Lanes) -> None:
        super().__init__(name)
        self.compact, self.empty, self.lanes = columns.compact, columns.empty, lanes
        self._locks: dict[Hashable, Lock] = defaultdict(Lock)
        (self.schedule_length,) = module_lengths(tables["modules"]).tolist()
        self._set_allocations(tables["allocations"])
        names = ("unpadded_size", "offset", "size")
        jobs = [lanes.submit(f"column {name}", partial(self._take, "values", name)) for name in names]
        owner = self._take("values", "allocation", np.int32, Rows(self.allocation_ids))
        unpadded, offset, size = (lanes.result(job) for job in jobs)
        self._unpadded: Ints = unpadded
        self._set_values(owner, offset, size)

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        with self._locks[key]:
            return super().once(key, compute)

    def _take(
        self, name: str, column: str, dtype: type[Any] = np.int64, change: Callable[[Ints], Ints] = np.asarray
    ) -> Any:
        """Return a column, changed chunk by chunk, and release the original."""
        ends = np.cumsum([0, *(len(chunk[column].items) for chunk in self.compact.of(name))])
        values = self.empty(int(ends[-1]), dtype)
        for first, chunk in self.compact.batches(name, column):
            values[first : first + len(chunk)] = change(chunk)
        self.compact.drop(name, column)
        return values

    @property
    def value_ids(self) -> Ints:
        return self.compact.ints("values", "value_id")

    @property
    def unpadded(self) -> Ints:
        return self._unpadded

    @cached_property
    def steps(self) -> int | None:
        has_ranges = self.schedule_length >= 0 and "live_ranges" in self.compact.chunks
        return self.schedule_length + 1 if has_ranges else None

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        """Start and end of each value, as int32 if the number of steps allows it."""
        top = (self.steps or 0) + 1
        dtype = np.int32 if top < 1 << 31 else np.int64

        def take(name: str, low: int) -> Any:
            return self._take("live_ranges", name, dtype, lambda step: np.clip(step, low, top))

        bounds = (("start", 0), ("end", -1))
        jobs = [self.lanes.submit(f"column {name}", partial(take, name, low)) for name, low in bounds]
        rows = Rows(self.compact.packed("live_ranges", "value_id"))
        columns = [self.lanes.result(job) for job in jobs]
        start, end = (self.empty(len(self.owner), dtype) for _ in columns)
        for first, ids in self.compact.batches("values", "value_id"):
            row, span = rows(ids), slice(first, first + len(ids))
            for out, column in zip((start, end), columns, strict=True):
                out[span] = np.where(row >= 0, column[row], -1)
        return start, end


@dataclass(frozen=True)
class LargePeaks:
    """The peaks of a large dump."""

    numbers: PeakNumbers
    bills: pa.Table
    """Rows of `bills`."""
    peak_steps: Ints | None
    """Step of the peak of each space; None without live ranges."""
    instruction_row: Ints | None = None
    """Row of each value in `instructions`, or -1; None until they are read."""


def large_peaks(name: str, columns: IntegerColumns, lanes: Lanes) -> tuple[LargePeaks | None, Ints]:
    """Return the peaks, and the ids of the values of which the derived tables need the rows. Takes the columns.

    The peaks are None if the dump has no allocations, or if it exceeds the limits of a `Layout`. Values whose sizes
    cannot be added are all needed: they are why the dump has no numbers. Otherwise, the values are those that are live
    at the peaks or in a fixed allocation.
    """
    release_memory()
    tables = columns.spilled.tables()
    if not tables["allocations"].num_rows:
        return None, np.empty(0, np.int64)
    p = LargeLayout(name, tables, columns, lanes)
    if not can_be_added(p.allocation_size, p.offset, p.size):
        return None, p.value_ids
    if len(p.spaces) > MAX_DUMP_SPACES:
        return None, np.empty(0, np.int64)
    if p.steps is not None and len(p.ranges):  # what takes longest, while this thread computes the rest
        release_memory()
        lanes.submit("peaks", partial(free_cells, p))
        lanes.submit("peaks", partial(device_peaks, p, np.zeros(len(p.spaces), np.int64), tables["modules"]))
        for window in windows(p):
            lanes.submit("peaks", partial(half_open_peaks, p, window))
    sums = lanes.submit("bills", partial(bill_sums, p, Offsets(), tables["modules"]))
    numbers = peak_numbers(p, Offsets(), tables["modules"])
    bills = lanes.result(sums)
    needed, steps = p.in_fixed, None
    if p.steps is not None:
        steps = selected_steps(p)
        needed[live_values(p, steps)] = True
    return LargePeaks(numbers, bills, steps), p.value_ids[needed]
