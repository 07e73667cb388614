"""The layout of a program: where its values are placed in allocations, and when they are live."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..errors import DumpError, UsageError
from ..formatting import closest
from ..parse.arrays import Codes
from .columns import Ints, Mask, arrow_array, bools, ints
from .lazy import cached_property

Kinds = npt.NDArray[np.int8]
Result = TypeVar("Result")

CATEGORIES = ("thread_local", "constant", "donated", "parameter", "live_out", "temp", "temp_in_output")
"""Categories of allocations, of which the first match applies. The last one is for values only (`categories_of`)."""
THREAD_LOCAL, CONSTANT, DONATED, PARAMETER, LIVE_OUT, TEMP, TEMP_IN_OUTPUT = range(7)

MAX_TOTAL_BYTES = 1 << 62
"""Sizes that add up to less than this cannot overflow int64, even if two sums are added."""

MAX_DUMP_SPACES = 256
"""Maximum number of memory spaces of a dump that is computed; real ones have up to ten. Each is swept and shown."""


class Space(NamedTuple):
    """A memory space: the allocations of one color and page."""

    name: str
    color: int
    page: int


def no_such_space(space: str | int, spaces: Iterable[tuple[str, int]]) -> UsageError:
    """Return the error about a memory space that a dump does not have, from the names and colors of those it has."""
    colors = dict(spaces)
    if match := closest(str(space), colors):
        return UsageError(f"no memory space {space!r}; did you mean {match!r}?")
    names = [f"{name} (color {color})" for name, color in colors.items()]
    return UsageError(f"no memory space {space!r}; this dump has {', '.join(names) or 'none'}")


class Layout(ABC):
    """The allocations of a program and their values. Times are schedule steps, sizes are bytes, and -1 means null."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Name of the dump, for messages."""
        self.results: dict[Hashable, Any] = {}
        """Results cached for the program (see `once`)."""

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """Return the result cached under `key`, computed on first use. If threads race, the first result is kept."""
        if key not in self.results:
            self.results.setdefault(key, compute())
        result: Result = self.results[key]
        return result

    # -- allocations and values ------------------------------------------------------------------

    def _set_allocations(self, allocations: pa.Table) -> None:
        self.allocations = allocations
        self.allocation_ids = ints(allocations, "allocation")
        self.allocation_size = ints(allocations, "size")
        color, page = ints(allocations, "color"), np.maximum(ints(allocations, "page", 0), 0)
        # Colors and pages can be any integers. Their ranks are less than the number of allocations.
        pages, rank = np.unique(page, return_inverse=True)
        key = np.unique(color, return_inverse=True)[1].ravel() * len(pages) + rank.ravel()
        _, first, space = np.unique(key, return_index=True, return_inverse=True)
        self.space_of_allocation: Ints = space.ravel().astype(np.int64)
        names = pc.take(allocations["memory_space"], arrow_array(first)).to_pylist()
        self.spaces = [Space(n, int(color[i]), int(page[i])) for n, i in zip(names, first, strict=True)]
        self.category = _categories(allocations)

    def _set_values(self, owner: Codes, offset: Ints, size: Ints) -> None:
        self.owner, self.offset, self.size = owner, offset, size
        """Row in `allocations` of each value, and its offset and size in that allocation."""
        available = self.allocation_size[owner] if len(owner) else size
        available = np.maximum(available, 0) - np.clip(offset, 0, MAX_TOTAL_BYTES)
        self.extent = size if (size <= available).all() else np.clip(available, 0, size)
        """Bytes of each value that lie within its allocation: all of them, unless the text is inconsistent."""
        self.space: Codes = self.space_of_allocation.astype(np.int32)[self.owner]
        self.value_category: Kinds = self.category.astype(np.int8)[self.owner]

    def _check_limits(self) -> None:
        """Raise DumpError if sums of sizes could overflow, or if there are too many memory spaces."""
        if len(self.spaces) > MAX_DUMP_SPACES:
            expected = f"at most {MAX_DUMP_SPACES} memory spaces, not {len(self.spaces):,}"
            raise DumpError(self.name, expected, "allocations")
        if not can_be_added(self.allocation_size, self.offset, self.size):
            expected = "sizes and offsets from 0 on that add up to less than 2^62 bytes"
            raise DumpError(self.name, expected, "allocations")

    @property
    @abstractmethod
    def value_ids(self) -> Ints:
        """The value_id of each value."""

    @property
    @abstractmethod
    def unpadded(self) -> Ints:
        """Unpadded size of each value, -1 if unknown."""

    def data_extent(self, values: Ints) -> Ints:
        """Return the bytes of these values without padding; all of their bytes if the unpadded size is unknown."""
        extent, unpadded = self.extent[values], self.unpadded[values]
        return np.where(unpadded < 0, extent, np.minimum(unpadded, extent))

    @cached_property
    def is_fixed(self) -> Mask:
        """Whether each allocation is fully in use at every step: parameters, constants and outputs."""
        fixed: Mask = (self.category != TEMP) & (self.category != THREAD_LOCAL)
        return fixed

    @property
    def in_temp(self) -> Mask:
        """Whether each value is in a temp allocation."""
        temp: Mask = self.value_category == TEMP
        return temp

    @property
    def in_fixed(self) -> Mask:
        """Whether each value is in a fixed allocation (`is_fixed`)."""
        fixed: Mask = (self.value_category != TEMP) & (self.value_category != THREAD_LOCAL)
        return fixed

    # -- live ranges -----------------------------------------------------------------------------

    @property
    @abstractmethod
    def steps(self) -> int | None:
        """Schedule length + 1; None for a dump without live ranges."""

    @property
    @abstractmethod
    def ranges(self) -> tuple[Ints, Ints]:
        """First and last step of the live range of each value, clipped to the schedule; -1 without a live range.

        If a range lies outside the schedule, or ends before it starts, its start is after its end or equal to `steps`.
        """

    @property
    def last_step(self) -> Ints:
        """The step after the last instruction, for each value."""
        return np.broadcast_to(np.int64((self.steps or 0) - 1), len(self.owner))

    def occupied_ranges(self, interval: str = "closed") -> tuple[Ints, Ints]:
        """Return the first and last step at which each value occupies its bytes, -1 for never.

        Without a live range, values in temp allocations occupy them at every step, and other values never.
        """
        if interval not in ("closed", "half-open"):
            raise UsageError(f"interval must be 'closed' or 'half-open', not {interval!r}")
        start, end = (a.copy() for a in self.ranges)
        steps, has_no_range = self.steps or 1, start < 0
        start[(start >= steps) | (start > end)] = -1
        if interval == "half-open":
            np.maximum(end - 1, start, out=end)
            end[start < 0] = -1
        np.minimum(end, steps - 1, out=end)
        always = has_no_range & self.in_temp
        start[always], end[always] = 0, steps - 1
        return start, end

    def is_output(self, values: Ints) -> Mask:
        """Return whether these values are live after the last instruction, as outputs in live-out allocations are."""
        live: Mask = self.ranges[1][values] >= self.last_step[values]
        return live

    def categories_of(self, values: Ints) -> Ints:
        """Return the category of each of these values: that of its allocation, or TEMP_IN_OUTPUT.

        In the allocation of an output, the output is live after the last instruction, and a donated parameter is live
        from step 0. All other values there are temporaries. Without live ranges, they cannot be distinguished.
        """
        category = self.value_category[values].astype(np.int64)
        if self.steps is None:
            return category
        start = self.ranges[0][values]
        has_category = self.is_output(values) | (start < 0) | ((category == DONATED) & (start == 0))
        return np.where(((category == LIVE_OUT) | (category == DONATED)) & ~has_category, TEMP_IN_OUTPUT, category)

    # -- memory spaces ---------------------------------------------------------------------------

    def select_spaces(self, space: str | int | None) -> list[int]:
        """Return the indices of the spaces with this name or color, or of all spaces for None."""
        selected = [i for i, s in enumerate(self.spaces) if space is None or space in (s.name, s.color)]
        if not selected and space is not None:
            raise no_such_space(space, ((s.name, s.color) for s in self.spaces))
        return selected

    def sum_by_space(self, values: Ints, allocations: Mask) -> Ints:
        """Add up values (one per allocation) over the allocations in the mask, by memory space."""
        totals = np.zeros(len(self.spaces), np.int64)
        np.add.at(totals, self.space_of_allocation[allocations], values[allocations])
        return totals

    def fixed_bytes(self) -> Ints:
        """Return the bytes of the fixed allocations of each space, which are in use at every step."""
        return self.sum_by_space(self.allocation_size, self.is_fixed)

    def space_columns(self, spaces: Ints) -> dict[str, Any]:
        """Return the columns memory_space, color and page of these spaces."""
        color = np.array([s.color for s in self.spaces], np.int64)
        page = np.array([s.page for s in self.spaces], np.int64)
        name = pa.nulls(0, schema.ARROW["name"])
        if self.spaces:
            names = pa.array([s.name for s in self.spaces], pa.string())
            name = pa.DictionaryArray.from_arrays(arrow_array(spaces.astype(np.int32)), names)
        return {
            "memory_space": name,
            "color": arrow_array(color[spaces] if len(color) else color),
            "page": arrow_array(page[spaces] if len(page) else page),
        }


def _categories(allocations: pa.Table) -> Ints:
    parameter, live_out = bools(allocations, "is_parameter"), bools(allocations, "is_live_out")
    thread_local, constant = bools(allocations, "is_thread_local"), bools(allocations, "is_constant")
    return np.select(
        [thread_local, constant, parameter & live_out, parameter, live_out],
        [THREAD_LOCAL, CONSTANT, DONATED, PARAMETER, LIVE_OUT],
        TEMP,
    ).astype(np.int64)


def can_be_added(allocated: Ints, offset: Ints, size: Ints) -> bool:
    """Return whether no number is negative and the numbers add up to less than MAX_TOTAL_BYTES."""
    if any(len(a) and a.min() < 0 for a in (allocated, offset, size)):
        return False
    total = allocated.sum(dtype=np.float64) + size.sum(dtype=np.float64) + float(offset.max(initial=0))
    return bool(total < MAX_TOTAL_BYTES)


def schedule_lengths(printed: Ints, scheduled: Ints, ranges: Ints) -> Ints:
    """Return the schedule length of each dump, -1 if unknown.

    It is the printed length, unless that is not a 64-bit integer (-1) or exceeds the number of steps and live ranges in
    the text; in that case, it is the number of steps in the text.
    """
    impossible = (printed < 0) | (printed > scheduled + ranges)
    return np.where(impossible & (scheduled >= 0), scheduled, printed)


def module_lengths(modules: pa.Table) -> Ints:
    """Return the schedule length of each row of `modules`, -1 without live ranges."""
    printed, scheduled, ranges = (ints(modules, c) for c in ("schedule_length", "n_schedule", "n_live_ranges"))
    return np.where(ranges > 0, schedule_lengths(printed, scheduled, ranges), -1)
