"""Pack the values of temp allocations anew, to compare the compiler's packing with the best one found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import _packing, _sweep
from ..dump import DumpLike
from ..errors import UsageError
from ..parse.arrays import ints as column_ints
from .arena_cells import free_cells, granules
from .columns import Ints
from .layout import TEMP, Layout
from .program import program

MAX_SWEPT_PAIRS = 1 << 33
"""Allocations with more pairs of values than this are not packed anew: one attempt would take tens of seconds."""
MAX_CELLS = 1 << 60
"""Positions and sizes of the values of an allocation must add up to less than this number of cells."""


@dataclass(frozen=True)
class Packing:
    """The best packing found for the values of a temp allocation. Sizes are bytes in whole granules."""

    memory_space: str
    color: int
    page: int
    allocation: int
    size: int
    """Size of the allocation: the compiler's packing."""
    found: int
    """Size with the best packing found; the compiler's, if none is better."""
    lower_bound: int
    """No packing needs less, if values that are live together share memory only where they share it now."""
    n_buffers: int
    attempts: int
    """Number of packings tried."""
    value_ids: Ints
    offsets: Ints
    """Offsets of these values in the packing found."""

    @property
    def is_optimal(self) -> bool:
        """Whether no packing is better than the one found."""
        return self.found <= self.lower_bound


def repack(dump: DumpLike, seconds: float = 10, *, space: str | int | None = None) -> list[Packing]:
    """Search for better packings of the temp allocations.

    Live ranges and sizes stay as they are. Values that are live together share memory only where they share it now:
    values that share memory at some step move together. Bytes that no value ever touches stay reserved. Values are
    placed one after another, in the first or the smallest gap, in several orders, and the best order is then varied at
    random. The result is checked with the sweep that computes the bill.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    seconds
        Time to search; at least the initial orders are tried.
    space
        Name or color of one memory space; all by default.

    Returns
    -------
    list of Packing
        One per temp allocation with live values, except those with too many of them; largest first.

    Raises
    ------
    UsageError
        The dump has no live ranges, or the space is unknown.
    """
    p = program(dump)
    spaces = p.select_spaces(space)
    if p.steps is None:
        raise UsageError(f"{p.name} has no live ranges: its temporaries cannot be packed anew")
    arenas = [_Arena(p, int(a)) for a in np.flatnonzero(p.category == TEMP) if p.space_of_allocation[a] in spaces]
    arenas = [a for a in arenas if a.can_be_packed]
    packings = [_packing_of(p, a, limit) for a, limit in _with_time_limits(arenas, seconds)]
    return sorted(packings, key=lambda packing: -packing.size)


def _with_time_limits(arenas: list[_Arena], seconds: float) -> Iterator[tuple[_Arena, float]]:
    """Yield each allocation with the time to search, in proportion to what can be saved; what is left goes on."""
    end, left = time.monotonic() + seconds, sum(a.slack for a in arenas)
    for arena in sorted(arenas, key=lambda a: -a.slack):
        share = arena.slack / left if left else 0
        left -= arena.slack
        yield arena, max(0.0, end - time.monotonic()) * share


def _packing_of(p: Layout, arena: _Arena, seconds: float) -> Packing:
    search = _Search(arena)
    if arena.slack:
        search.run(seconds)
    space, improved = p.spaces[arena.space], search.height < arena.height
    position = search.position if improved else arena.position
    arena.check(position)
    return Packing(
        space.name,
        space.color,
        space.page,
        int(p.allocation_ids[arena.row]),
        arena.size,
        arena.bytes(search.height) if improved else arena.size,
        arena.bytes(arena.least),
        len(arena.rows),
        search.attempts,
        p.value_ids[arena.rows],
        position * arena.granule,
    )


class _Arena:
    """A temp allocation, and its live values in the order of their starts. Positions are cells."""

    def __init__(self, p: Layout, row: int) -> None:
        self.row, self.size = row, int(p.allocation_size[row])
        self.space = int(p.space_of_allocation[row])
        self.granule = int(granules(p)[row])
        self.never_touched = int(free_cells(p).never_touched[row])
        start, end = p.occupied_ranges()
        rows = np.flatnonzero((p.owner == row) & (start >= 0) & (p.extent > 0))
        self.rows = rows[np.argsort(start[rows], kind="stable")]
        self.start, self.end = start[self.rows].astype(np.int64), end[self.rows].astype(np.int64)
        self.position, self.count = p.offset[self.rows] // self.granule, -(-p.extent[self.rows] // self.granule)
        self.steps = p.steps or 1

    @property
    def can_be_packed(self) -> bool:
        n = len(self.rows)
        cells = float(self.position.sum(dtype=np.float64) + self.count.sum(dtype=np.float64))
        return n > 0 and n * n <= MAX_SWEPT_PAIRS and cells < MAX_CELLS / 2

    @cached_property
    def levels(self) -> Ints:
        """Cells in use at each step."""
        return self.levels_at(self.position)

    def levels_at(self, position: Ints) -> Ints:
        """Return the cells in use at each step if the values were at these positions."""
        rows, group = np.arange(len(self.rows), dtype=np.int32), np.zeros(len(self.rows), np.int32)
        changes = np.zeros((1, self.steps), np.int64)
        _sweep.covered(rows, group, self.start, self.end, position, self.count, np.zeros(1, np.int64), changes)
        levels: Ints = np.cumsum(changes[0])
        return levels

    @property
    def least(self) -> int:
        """Number of cells that every packing needs."""
        return int(self.levels.max())

    @property
    def height(self) -> int:
        """Number of cells of the allocation that are ever touched."""
        return -(-(self.size - self.never_touched) // self.granule)

    @property
    def slack(self) -> int:
        """Number of cells that a better packing could save at most."""
        return max(0, self.height - self.least)

    def bytes(self, cells: int) -> int:
        """Return the size of a packing with this number of cells, but at most that of the compiler's."""
        return min(cells * self.granule + self.never_touched, self.size)

    def check(self, position: Ints) -> None:
        """Raise an error if values share cells that they do not share now.

        Values that share cells at some step keep their distance. All others must not meet, or fewer cells would be in
        use at that step.
        """
        if not np.array_equal(self.levels_at(position), self.levels):
            raise AssertionError("a packing puts values in the same cells while both are live")


class _Blocks:
    """Values that share cells at some step, which move together."""

    def __init__(self, arena: _Arena) -> None:
        block = column_ints(_packing.blocks(arena.start, arena.end, arena.position, arena.count))
        self.items = np.argsort(block, kind="stable")
        """The values, ordered by block."""
        self.first = np.searchsorted(block[self.items], np.arange(int(block.max()) + 2))
        self.start, self.end = arena.start[self.items], arena.end[self.items]
        self.count, position = arena.count[self.items], arena.position[self.items]
        self.block, begins = block[self.items], self.first[:-1]
        self.offset = position - np.minimum.reduceat(position, begins)[self.block]
        self.height: Ints = np.maximum.reduceat(self.offset + self.count, begins)
        self.duration: Ints = np.maximum.reduceat(self.end, begins) - np.minimum.reduceat(self.start, begins) + 1
        self.begin: Ints = np.minimum.reduceat(self.start, begins)

    def __len__(self) -> int:
        return len(self.height)

    def place(self, order: Ints, best_fit: bool) -> Ints:
        """Return the position of each block."""
        columns = self.start, self.end, self.offset, self.count
        return column_ints(_packing.place(order.astype(np.int32), self.first, *columns, best_fit))

    def orders(self) -> list[Ints]:
        """Return the orders in which blocks are placed first."""
        area = self.height.astype(np.float64) * self.duration
        keys: list[Any] = [-self.height, -self.duration, -area, self.begin, -(self.begin + self.duration)]
        return [np.lexsort((-area, key)) for key in keys]


class _Search:
    """A search for the best packing of an allocation."""

    def __init__(self, arena: _Arena) -> None:
        self.arena, self.attempts = arena, 0
        self.height = np.iinfo(np.int64).max
        self.position = arena.position

    @cached_property
    def blocks(self) -> _Blocks:
        return _Blocks(self.arena)

    def run(self, seconds: float) -> None:
        """Try the initial orders, and vary the best one until the time is over or the packing is optimal."""
        end, random = time.monotonic() + seconds, np.random.default_rng(0)
        for order in self.blocks.orders():
            for best_fit in (True, False):
                self._try(order, best_fit)
                if self.is_optimal:
                    return
        while time.monotonic() < end and not self.is_optimal:
            self._try(self._varied(random), self.best_fit)

    @property
    def is_optimal(self) -> bool:
        return self.height <= self.arena.least

    def _try(self, order: Ints, best_fit: bool) -> None:
        at = self.blocks.place(order, best_fit)
        top = at + self.blocks.height
        self.attempts += 1
        height = int(top.max())
        if height <= self.height:
            self.height, self.order, self.best_fit, self.top = height, order, best_fit, top
            self.position = np.empty_like(self.arena.position)
            self.position[self.blocks.items] = at[self.blocks.block] + self.blocks.offset

    def _varied(self, random: np.random.Generator) -> Ints:
        """Return the best order with one block moved forward: one that ends at the top, or sometimes any."""
        highest = np.flatnonzero(self.top == self.height)
        place_of = np.argsort(self.order)
        block = random.choice(highest) if random.random() < 0.7 else random.integers(len(self.blocks))
        before = int(place_of[block])
        order = np.delete(self.order, before)
        return np.insert(order, random.integers(before + 1), block)
