"""Divide temp allocations (arenas) into cells of one granule, and find which cells are in use at which step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .columns import Ints
from .in_use import covered, windows
from .layout import TEMP, Layout

MAX_GRANULE = 1 << 16
"""Maximum granule in bytes."""


def granules(p: Layout) -> Ints:
    """Return the granule of each allocation: the largest power of two that divides all its offsets, at most 64 KiB.

    It is 1 byte in an allocation with fewer than two distinct offsets.
    """
    return p.once("granules", lambda: _granules(p))


def _granules(p: Layout) -> Ints:
    low = np.full(len(p.allocation_ids), np.iinfo(np.int64).max)
    high, bits = np.zeros((2, len(low)), np.int64)
    np.minimum.at(low, p.owner, p.offset)
    np.maximum.at(high, p.owner, p.offset)
    np.bitwise_or.at(bits, p.owner, p.offset)
    return np.where(low < high, np.minimum(bits & -bits, MAX_GRANULE), 1)


def cell_extents(p: Layout) -> Ints:
    """Return the bytes of the cells that each value in a temp allocation touches, 0 for all other values."""
    return p.once("cell extents", lambda: _cell_extents(p))


def _cell_extents(p: Layout) -> Ints:
    end = p.offset + p.extent
    granule = granules(p)[p.owner]
    end += -end % granule
    np.minimum(end, p.allocation_size[p.owner], out=end)
    return np.where(p.in_temp & (p.extent > 0), end - p.offset, 0)


class CellPeaks(NamedTuple):
    """The cells of each allocation at the step at which most of their bytes are in use."""

    bytes: Ints
    """Bytes of the cells in use. No packing on this granule needs less, unless it shares more memory."""
    step: Ints
    """First such step; 0 if no byte is ever in use."""


def cell_peaks(p: Layout) -> CellPeaks:
    """Return the peak of the cells of each temp allocation."""
    return p.once("cell peaks", lambda: _cell_peaks(p))


def _cell_peaks(p: Layout) -> CellPeaks:
    most, step = np.zeros((2, len(p.allocation_ids)), np.int64)
    for window in windows(p):
        _, window_most, column = covered(p, p.in_temp, "closed", window, cell_extents(p))
        used = np.flatnonzero(window_most)
        most[used], step[used] = window_most[used], window.first_step(column[used])
    return CellPeaks(most, step)


class FreeCells(NamedTuple):
    """Bytes of the cells that are not in use at the steps of `cell_peaks`."""

    never_touched: Ints
    """By allocation: bytes of cells that no value ever touches."""
    shared: Ints
    """By allocation: bytes of cells that values in slots of different offset or size touch."""
    slot: Ints
    """A value of each slot with cells that no other slot touches: the one with the lowest id."""
    slot_bytes: Ints
    """Bytes of these cells, by slot."""


def free_cells(p: Layout) -> FreeCells:
    """Return what is not in use at the steps of `cell_peaks`."""
    extent, step = cell_extents(p), cell_peaks(p).step
    rows = np.flatnonzero(extent)
    slots = _first_in_slot(p, rows)
    start, end = p.occupied_ranges()
    at = step[p.owner[rows]]
    live = rows[(start[rows] >= 0) & (start[rows] <= at) & (at <= end[rows])]
    arenas = np.flatnonzero(p.category == TEMP)
    begin = np.concatenate([p.offset[slots], p.offset[live], np.zeros(len(arenas), np.int64)])
    stop = np.concatenate([(p.offset + extent)[slots], (p.offset + extent)[live], p.allocation_size[arenas]])
    owner = np.concatenate([p.owner[slots], p.owner[live], arenas])
    number = np.append(np.arange(1, len(slots) + 1), np.zeros(len(live) + len(arenas), np.int64))
    is_live = np.repeat([0, 1, 0], [len(slots), len(live), len(arenas)])
    stretches = _Stretches.of(owner, begin, stop)
    free = (stretches.width > 0) & (stretches.level(is_live) == 0)
    touching, number = stretches.level(np.sign(number)), stretches.level(number)
    single = free & (touching == 1)
    slot_bytes = np.zeros(len(slots), np.int64)
    np.add.at(slot_bytes, number[single] - 1, stretches.width[single])
    never, shared = (stretches.sum(free & which, len(p.allocation_ids)) for which in (touching == 0, touching > 1))
    used = np.flatnonzero(slot_bytes)
    return FreeCells(never, shared, slots[used], slot_bytes[used])


def _first_in_slot(p: Layout, rows: Ints) -> Ints:
    """Return the value with the lowest id of each slot (allocation, offset and size)."""
    order = rows[np.lexsort((p.value_ids[rows], p.size[rows], p.offset[rows], p.owner[rows]))]
    first = np.ones(len(order), bool)
    first[1:] = np.any([c[order[1:]] != c[order[:-1]] for c in (p.owner, p.offset, p.size)], axis=0)
    return order[first]


class _Stretches(NamedTuple):
    """The stretches between neighbouring boundaries of address ranges, by allocation."""

    owner: Ints
    width: Ints
    """Bytes; 0 at the end of an allocation."""
    boundary: Ints
    """Row in the ranges of the boundary at which each stretch begins; ends follow all begins."""

    @classmethod
    def of(cls, owner: Ints, begin: Ints, end: Ints) -> _Stretches:
        """Return the stretches of these ranges."""
        both, position = np.tile(owner, 2), np.concatenate([begin, end])
        boundary = np.lexsort((position, both))
        both, position = both[boundary], position[boundary]
        width = np.zeros(len(both), np.int64)
        width[:-1] = np.where(both[1:] == both[:-1], np.diff(position), 0)
        return cls(both, width, boundary)

    def level(self, weight: Ints) -> Ints:
        """Return the total weight of the ranges that cover each stretch."""
        level: Ints = np.cumsum(np.concatenate([weight, -weight])[self.boundary])
        return level

    def sum(self, which: Ints, n: int) -> Ints:
        """Add up the widths of these stretches, for each of n allocations."""
        total = np.zeros(n, np.int64)
        np.add.at(total, self.owner[which], self.width[which])
        return total
