"""Estimate how what must fit changes if buffers shrink, disappear, or move to another allocation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ... import _sweep
from ...parse.arrays import Codes
from ..columns import Ints, Mask
from ..layout import LIVE_OUT, MAX_TOTAL_BYTES, TEMP, TEMP_IN_OUTPUT
from ..program import Program
from ..requirement import must_fit

MAX_GROUPS = 256
"""Maximum number of arguments, loops or families of layers for which an intervention is estimated.

Each estimate takes time for the whole program. Each of the others has less than 1/256 of the bytes.
"""


def largest_groups(codes: Ints, sizes: Ints) -> Ints:
    """Return the groups (-1 is none) of most bytes, at most MAX_GROUPS of them, in ascending order."""
    codes, sizes = codes[codes >= 0], sizes[codes >= 0]
    groups, total = np.unique(codes), np.bincount(codes, sizes)
    if len(groups) > MAX_GROUPS:
        groups = np.sort(groups[np.argsort(-total[groups], kind="stable")[:MAX_GROUPS]])
    return groups


class Change(NamedTuple):
    """What an intervention changes, in bytes."""

    fixed: int
    """Change of the parameters, constants and outputs, which are in use at every step."""
    levels: Ints
    """Change of the bytes in use in the temp allocations, by step."""


def sum_of(changes: Iterable[Change]) -> Change:
    """Return the change of several interventions on other buffers, at least one."""
    fixed, levels = zip(*changes, strict=True)
    limit = MAX_TOTAL_BYTES // len(levels)  # the sum has to fit into an int64
    return Change(sum(fixed), np.sum(np.clip(levels, -limit, limit), axis=0))


class WhatIf:
    """The temp allocations in the device's main memory, as they are and as they would be.

    `levels` is the union of the values live at each step, summed over these allocations. The packing of the compiler is
    assumed to lose as many bytes after a change as before.
    """

    def __init__(self, p: Program) -> None:
        self.p = p
        self.in_memory: Mask = must_fit(p.allocations, p.tables.platform)
        self.total = int(p.allocation_size[self.in_memory].sum())
        self.arena_bytes = int(p.allocation_size[self.in_memory & (p.category == TEMP)].sum())
        self.start, self.end = p.occupied_ranges()
        self.in_arena: Mask = (self.in_memory & (p.category == TEMP))[p.owner] & (self.start >= 0) & (p.extent > 0)
        self.rows = self._by_owner(np.flatnonzero(self.in_arena))
        self.levels = self.covered(self.rows)
        self.peak = int(self.levels.max(initial=0))
        self.peak_step = int(self.levels.argmax())
        self.at_peak: Mask = self.in_arena & (self.start <= self.peak_step) & (self.end >= self.peak_step)

    @property
    def lost(self) -> int:
        """Bytes of the temp allocations that no value covers at the peak: packing large values loses most."""
        return max(0, self.arena_bytes - self.peak)

    def lost_by(self, only: Ints) -> int:
        """Return how many of these bytes values may lose that cover `only` at each step: no more than that."""
        return min(self.lost, int(only[self.peak_step]))

    @property
    def none(self) -> Ints:
        """No change at any step."""
        return np.zeros(len(self.levels), np.int64)

    def _by_owner(self, rows: Ints) -> Ints:
        return rows[np.argsort(self.p.owner[rows], kind="stable")]

    def covered(self, rows: Ints, extent: Ints | None = None) -> Ints:
        """Return the bytes that these values cover at each step, with other extents if given."""
        p, changes = self.p, np.zeros((1, max(self.p.steps or 1, 1)), np.int64)
        row_of_allocation = np.zeros(len(p.allocation_ids), np.int64)
        extent = p.extent if extent is None else extent
        codes: Codes = self._by_owner(rows).astype(np.int32)
        _sweep.covered(codes, p.owner, self.start, self.end, p.offset, extent, row_of_allocation, changes)
        levels: Ints = np.cumsum(changes[0])
        return levels

    def only(self, values: Mask) -> Ints:
        """Return the bytes that none but these values cover, at each step."""
        return self.levels - self.covered(self.rows[~values[self.rows]])

    def shrunk(self, extent: Ints) -> Ints:
        """Return by how many bytes each step falls with these extents of the values."""
        return self.levels - self.covered(self.rows, extent)

    def moved_out_of(self, allocations: Mask, except_for: Mask | None = None) -> Ints:
        """Return the bytes of the temporaries in these outputs, which need another place if the outputs have none."""
        p = self.p
        rows = np.flatnonzero(allocations[p.owner] & (self.start >= 0) & (p.extent > 0))
        if except_for is not None:
            rows = rows[~except_for[rows]]
        return self.covered(rows[p.categories_of(rows) == TEMP_IN_OUTPUT])

    def room_in_outputs(self, size: int) -> int:
        """Return the bytes of outputs of at least this size that are free at the peak of the temp allocations.

        It is 0 if the compiler puts no temporaries into these outputs.
        """
        p = self.p
        large = self.in_memory & (p.category == LIVE_OUT) & (p.allocation_size >= size)
        used = int(self.moved_out_of(large)[self.peak_step])
        return int(p.allocation_size[large].sum()) - used if used else 0

    def saved(self, change: Change) -> int:
        """Return by how many bytes what must fit falls (negative if it grows)."""
        return self.peak - int((self.levels + change.levels).max(initial=0)) - change.fixed
