"""Divide temp allocations (arenas) into cells of one granule, and find which cells are in use at which step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..parse.arrays import order_by
from .columns import Ints, Mask
from .in_use import covered, windows
from .layout import TEMP, Layout

MAX_GRANULE = 1 << 16
"""Maximum granule in bytes."""

MAX_TOGETHER = 1 << 18
"""Maximum number of values whose free cells are found together."""


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
    return p.once("free cells", lambda: _free_cells(p))


def _free_cells(p: Layout) -> FreeCells:
    is_live = _is_live_at_peak(p)
    return _joined(p, [_free_in(p, part, is_live) for part in _parts(p)])


class _Part(NamedTuple):
    """Address ranges of allocations that are swept together."""

    arenas: Ints
    low: int
    """First address."""
    high: Ints
    """End of the addresses, by allocation."""
    values: Ints
    """Values with cells in these ranges."""


def _parts(p: Layout) -> Iterator[_Part]:
    """Split the temp allocations: those with more than MAX_TOGETHER values are split into address ranges."""
    arenas, values = np.flatnonzero(p.category == TEMP), np.flatnonzero(cell_extents(p))
    n_values = np.bincount(p.owner[values], minlength=len(p.allocation_ids))
    is_crowded = n_values > MAX_TOGETHER
    part = np.where(is_crowded, -1, np.cumsum(np.where(is_crowded, 0, n_values)) // MAX_TOGETHER).astype(np.int32)
    part_of_value = part[p.owner[values]]
    for number in range(int(part.max(initial=0)) + 1):  # at least one, which may be empty
        yield _Part(arenas[part[arenas] == number], 0, p.allocation_size, values[part_of_value == number])
    for arena in np.flatnonzero(is_crowded):
        members = values[p.owner[values] == arena]
        begin, end = p.offset[members], p.offset[members] + cell_extents(p)[members]
        bounds = np.unique(np.sort(begin)[::MAX_TOGETHER])[1:].tolist()
        for low, high in pairwise([0, *bounds, int(p.allocation_size[arena])]):
            yield _Part(np.array([arena]), low, np.full(len(is_crowded), high), members[(begin < high) & (end > low)])


def _free_in(p: Layout, part: _Part, is_live_at_peak: Mask) -> FreeCells:
    """Return what is not in use in a part of the allocations."""
    slots, live = _first_in_slot(p, part.values), part.values[is_live_at_peak[part.values]]
    rows = np.append(slots, live)
    owner: Ints = np.append(p.owner[rows], part.arenas).astype(np.int64)
    begin = np.append(p.offset[rows], np.full(len(part.arenas), part.low))
    end = np.append((p.offset[rows] + cell_extents(p)[rows]), p.allocation_size[part.arenas])
    stretches = _Stretches.of(owner, np.maximum(begin, part.low), np.minimum(end, part.high[owner]))
    number = np.append(np.arange(1, len(slots) + 1), np.zeros(len(owner) - len(slots), np.int64))
    is_live = np.repeat([0, 1, 0], [len(slots), len(live), len(part.arenas)])
    free = (stretches.width > 0) & (stretches.level(is_live) == 0)
    touching, number = stretches.level(np.sign(number)), stretches.level(number)
    single, n = free & (touching == 1), len(p.allocation_ids)
    slot_bytes = np.zeros(len(slots), np.int64)
    np.add.at(slot_bytes, number[single] - 1, stretches.width[single])
    never, shared = (stretches.sum(free & which, n) for which in (touching == 0, touching > 1))
    return FreeCells(never, shared, slots[slot_bytes > 0], slot_bytes[slot_bytes > 0])


def _joined(p: Layout, parts: list[FreeCells]) -> FreeCells:
    """Add up the parts. A slot may be in several of them."""
    never, shared = np.zeros((2, len(p.allocation_ids)), np.int64)
    for part in parts:
        never += part.never_touched
        shared += part.shared
    empty = np.empty(0, np.int64)
    slot, index = np.unique(np.concatenate([empty, *(part.slot for part in parts)]), return_inverse=True)
    slot_bytes = np.zeros(len(slot), np.int64)
    np.add.at(slot_bytes, index, np.concatenate([empty, *(part.slot_bytes for part in parts)]))
    return FreeCells(never, shared, slot, slot_bytes)


def _is_live_at_peak(p: Layout) -> Mask:
    """Return which values are live at the step of their allocation in `cell_peaks`."""
    step = cell_peaks(p).step[p.owner]
    start, end = p.occupied_ranges()
    live: Mask = (start >= 0) & (start <= step) & (step <= end)
    return live


def _first_in_slot(p: Layout, rows: Ints) -> Ints:
    """Return the value with the lowest id of each slot (allocation, offset and size)."""
    order = rows[order_by(p.owner[rows], p.offset[rows], p.size[rows], p.value_ids[rows])]
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
        boundary = order_by(both, position)
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
