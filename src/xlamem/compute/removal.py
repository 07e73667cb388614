"""Compute how much lower the peak would be without a buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import _sweep
from .. import kernels as pc
from ..dump import DumpLike
from ..parse.arrays import ints as column_ints
from .buffer_names import source_columns
from .columns import Ints, Mask, arrow_array, computed_table, decoded, nullable, take
from .in_use import covered, occupied_in, windows
from .layout import TEMP_IN_OUTPUT, Layout
from .program import Program, program


def savings(dump: DumpLike, *, space: str | int | None = None) -> pa.Table:
    """Return an upper bound of how much lower the peak of a space would be without each of its buffers.

    For a value in a temp allocation, this is the peak minus the greater of two maxima: that of occupied(t) outside its
    live range, and that of occupied(t) minus the bytes that only this value covers at t inside its live range. For an
    entire parameter, constant or output, it is its size. The allocator may not be able to use these bytes, and most
    single values save nothing if the peak has several plateaus.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    space
        Name or color of one memory space; all by default.

    Returns
    -------
    pyarrow.Table
        Table ``savings``: buffers that save more than 0 bytes, sorted by space and by saving in descending order.
        Without live ranges, it contains entire allocations only.
    """
    p = program(dump)
    saved = saved_by_value(p) if p.steps is not None else np.zeros(len(p.owner), np.int64)
    saved_by_allocation = np.where(p.is_fixed, p.allocation_size, 0)
    selected = np.isin(np.arange(len(p.spaces)), p.select_spaces(space))
    values = np.flatnonzero((saved > 0) & selected[p.space]) if len(saved) else np.empty(0, np.int64)
    entire = saved_by_allocation > 0
    allocations = np.flatnonzero(entire & selected[p.space_of_allocation]) if len(entire) else np.empty(0, np.int64)
    value = np.concatenate([values, p.representative[allocations]])
    owner = np.concatenate([p.owner[values], allocations])
    is_value = np.arange(len(owner)) < len(values)
    columns = p.space_columns(p.space_of_allocation[owner])
    columns["role"] = decoded(np.where(is_value, 0, 1), pa.array(["value", "allocation"]))
    columns["value_id"] = nullable(take(p.value_ids, np.where(is_value, value, -1)))
    for name in ("instruction", "shape_index"):
        columns[name] = p.value_text(name, value)
    columns["allocation"] = p.allocation_ids[owner]
    columns["size"] = np.concatenate([p.size[values], p.allocation_size[allocations]])
    columns["saving"] = np.concatenate([saved[values], saved_by_allocation[allocations]])
    columns.update(source_columns(p, value))
    order = np.lexsort((columns["allocation"], -columns["saving"], p.space_of_allocation[owner]))
    return pc.take(computed_table("savings", columns), arrow_array(order))


def saving_of(p: Program, value: int) -> int:
    """Return by how much the peak of its space would be lower without the chain of a value, or its fixed allocation.

    A loop updates a buffer in place, so that several values follow each other in its bytes. Without a temporary in an
    output's memory, that memory is needed as before.
    """
    owner = int(p.owner[value])
    if p.categories_of(np.array([value]))[0] == TEMP_IN_OUTPUT:
        return 0
    if p.is_fixed[owner]:
        return int(p.allocation_size[owner])
    return int(saved_by_chain(p)[value])


def peak_step_without(p: Program, value: int) -> int:
    """Return the first step of the peak of a space without the chain of one of its temporaries."""
    rest = p.in_temp & (p.chains != p.chains[value])
    (window,) = (w for w in windows(p) if p.space[value] in w.spaces)
    levels = covered(p, rest, window=window).levels[np.flatnonzero(window.spaces == p.space[value])[0]]
    return int(window.first_step(levels.argmax()))


def saved_by_value(p: Layout) -> Ints:
    """Return by how many bytes the peak of a space falls without each value of its temp allocations."""
    return p.once("savings", lambda: _saved(p, *p.occupied_ranges()))


def saved_by_chain(p: Program) -> Ints:
    """Return by how many bytes the peak of a space falls without the chain of each value of its temp allocations."""
    return p.once("savings of chains", lambda: _saved_by_chain(p))


def _saved_by_chain(p: Program) -> Ints:
    start, end = p.occupied_ranges()
    chained = np.flatnonzero(start >= 0)
    chained = chained[np.argsort(p.chains[chained], kind="stable")]
    if not len(chained):
        return np.zeros(len(p.owner), np.int64)
    _, begin, n = np.unique(p.chains[chained], return_index=True, return_counts=True)
    # The first value stands for its chain.
    first, last = np.full_like(start, -1), np.full_like(end, -1)
    first[chained[begin]] = np.minimum.reduceat(start[chained], begin)
    last[chained[begin]] = np.maximum.reduceat(end[chained], begin)
    saved = _saved(p, first, last)
    saved[chained] = np.repeat(saved[chained[begin]], n)
    return saved


def _saved(p: Layout, start: Ints, end: Ints) -> Ints:
    """Return by how many bytes the peak of a space falls without each value of its temp allocations.

    Values that start at -1 occupy no bytes.
    """
    saved = np.zeros(len(p.owner), np.int64)
    arenas = _values_by_arena(p, start)
    for window in windows(p) if arenas else ():
        for space, levels in zip(window.spaces.tolist(), occupied_in(p, window), strict=True):
            curve = _Curve(levels)
            for rows in arenas.get(space, ()):
                candidates, savings = curve.savings(p, rows, window.column(start[rows]), window.column(end[rows]))
                saved[rows[candidates]] = savings
    return saved


def _values_by_arena(p: Layout, start: Ints) -> dict[int, list[Ints]]:
    """Return the values of each temp allocation that occupy bytes at some step, by space."""
    values = np.flatnonzero(p.in_temp & (start >= 0) & (p.extent > 0))
    values = values[np.argsort(p.owner[values], kind="stable")]
    arenas, begin = np.unique(p.owner[values], return_index=True)
    by_space: dict[int, list[Ints]] = {}
    for space, rows in zip(p.space_of_allocation[arenas].tolist(), np.split(values, begin[1:]), strict=False):
        by_space.setdefault(space, []).append(rows)
    return by_space


class _Curve:
    """The bytes in use in one space by column of a window, with the maxima before and after each column."""

    def __init__(self, levels: Ints) -> None:
        self.levels = levels
        self.top = int(levels.max(initial=0))
        self.at_top = np.flatnonzero(levels == self.top)
        self.before = np.maximum.accumulate(np.append(-1, levels[:-1]))
        self.after = np.append(np.maximum.accumulate(levels[::-1])[::-1][1:], -1)

    def savings(self, p: Layout, rows: Ints, first: Ints, last: Ints) -> tuple[Mask, Ints]:
        """Return which values of an arena can lower the peak, and by how many bytes they do."""
        # Only a value that is live at every step of the peak can lower it.
        candidates = (first <= self.at_top[0]) & (last >= self.at_top[-1])
        if not candidates.any():
            return candidates, rows[candidates]
        flags = candidates.astype(np.uint8)
        inside = column_ints(_sweep.inside(first, last, p.offset[rows], p.extent[rows], flags, self.levels))
        outside = np.maximum(self.before[first], self.after[last])
        return candidates, (self.top - np.maximum(outside, inside))[candidates]
