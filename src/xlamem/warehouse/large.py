"""Compute the peaks of a dump that does not fit into memory, from its integer columns alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.charges import live_values
from ..compute.columns import Ints, ints
from ..compute.layout import Layout, module_lengths
from ..compute.peaks import selected_steps
from ..parse.arrays import Rows, joined
from ..parse.stores import CompactStore
from .bill_sums import bill_sums
from .memory import release_memory
from .offsets import Offsets
from .peak_numbers import PeakNumbers, peak_numbers
from .spill import Spill

FLAGS = ("is_thread_local", "is_constant", "is_parameter", "is_live_out")

INTEGER_COLUMNS = {
    "allocations": ["allocation", "size", "color", "page", "memory_space", *FLAGS],
    "values": ["value_id", "allocation", "offset", "size", "unpadded_size"],
    "live_ranges": ["value_id", "start", "end"],
    "modules": ["platform", "schedule_length", "n_schedule", "n_live_ranges", "printed_peak_time"],
}
"""Columns that determine what is in use at each step."""

COUNTED_TABLE = "schedule"
"""A table that is needed only for its number of rows."""


class IntegerColumns:
    """The INTEGER_COLUMNS of one dump, collected batch by batch."""

    def __init__(self, empty: Callable[..., Any]) -> None:
        self.compact = CompactStore(empty)
        specs = {name: schema.TABLES[name].empty.select(INTEGER_COLUMNS[name]) for name in ("allocations", "modules")}
        self.spilled = Spill({name: table.schema for name, table in specs.items()})
        """The caller must close it."""

    def add(self, name: str, rows: pa.Table) -> None:
        columns = INTEGER_COLUMNS[name]
        if name in self.spilled.files:
            self.spilled.add(name, rows.select(columns))
        else:
            nulls = {"offset": 0, "size": 0}
            self.compact.keep(name, {c: ints(rows, c, nulls.get(c, -1)) for c in columns}, columns)


class LargeLayout(Layout):
    """The layout of one large dump. It takes ownership of the columns and releases each one after use."""

    def __init__(self, name: str, tables: dict[str, pa.Table], compact: CompactStore) -> None:
        super().__init__(name)
        self.compact = compact
        lengths = module_lengths(tables["modules"])
        self.schedule_length = int(lengths[0]) if len(lengths) else -1
        self._set_allocations(tables["allocations"])
        self._unpadded = self._take("values", "unpadded_size")
        rows = Rows(self.allocation_ids)
        owner = [rows(allocation).astype(np.int32) for _, allocation in compact.batches("values", "allocation")]
        self._set_values(joined(owner, np.int32), self._take("values", "offset"), self._take("values", "size"))
        self._check_sizes()
        release_memory()

    def _take(self, name: str, column: str) -> Ints:
        values = self.compact.ints(name, column)
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
        rows, top = Rows(self.compact.packed("live_ranges", "value_id")), (self.steps or 0) + 1
        ranges = np.empty((2, len(self.owner)), np.int32 if top < 1 << 31 else np.int64)
        for out, name, low in zip(ranges, ("start", "end"), (0, -1), strict=True):
            chunks = self.compact.batches("live_ranges", name)
            column = np.concatenate([np.clip(chunk, low, top).astype(out.dtype) for _, chunk in chunks])
            self.compact.drop("live_ranges", name)
            for first, ids in self.compact.batches("values", "value_id"):
                row = rows(ids)
                out[first : first + len(ids)] = np.where(row >= 0, column[row], -1)
        del rows, column
        release_memory()
        return ranges[0], ranges[1]


@dataclass(frozen=True)
class LargePeaks:
    """The peaks of a large dump, and the values that are in use at them."""

    numbers: PeakNumbers
    bills: pa.Table
    """Rows of `bills`."""
    peak_steps: Ints | None
    """Step of the peak of each space; None without live ranges."""
    values: Ints
    """Ids of the values that are live at the peaks or in a fixed allocation."""
    matched: CompactStore | None = None
    """The column `value_id` of `live_ranges`."""
    instruction_row: Ints | None = None
    """Row of each value in `instructions`, or -1; None until they are read."""


def large_peaks(name: str, columns: IntegerColumns) -> LargePeaks | None:
    """Return the peaks, or None if the dump has no allocations. Takes ownership of the columns."""
    tables = columns.spilled.tables()
    if not tables["allocations"].num_rows:
        return None
    p = LargeLayout(name, tables, columns.compact)
    numbers = peak_numbers(p, Offsets(), tables["modules"])
    bills = bill_sums(p, Offsets(), tables["modules"])
    needed, steps = p.in_fixed, None
    if p.steps is not None:
        steps = selected_steps(p)
        needed[live_values(p, steps)] = True
    values = p.value_ids[needed]
    p.compact.chunks.pop("values", None)
    return LargePeaks(numbers, bills, steps, values, p.compact if p.steps is not None else None)
