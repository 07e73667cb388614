"""Compute the bytes in use at every step of the schedule, by memory space."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _sweep
from ..dump import DumpLike
from ..errors import UsageError
from ..parse.arrays import Codes
from ..parse.arrays import ints as column_ints
from .columns import Ints, Mask, computed_table
from .layout import CONSTANT, DONATED, LIVE_OUT, PARAMETER, Layout
from .program import Program, program

Interval = Literal["closed", "half-open"]

MAX_CELLS = 1 << 22
"""Maximum number of cells (spaces times steps) per window. A window has at least one space."""

MAX_SPACES = 64
"""With more spaces than this, `occupancy` returns at most MAX_CELLS rows, to keep its size proportional to the text."""

MAX_SWEPT_VALUES = 1 << 19
"""Maximum number of values of one allocation that are swept together. More are swept one time interval at a time."""


class Window(NamedTuple):
    """Memory spaces that are swept together, and the steps that matter to them."""

    spaces: Ints
    changes: Ints | None
    """Steps with a column: 0, and those at which anything changes in these spaces. None if all steps have a column."""
    steps: int

    def column(self, step: Ints) -> Ints:
        """Return the column of each step."""
        return step if self.changes is None else np.searchsorted(self.changes, step, "right") - 1

    def first_step(self, column: Ints) -> Ints:
        return column if self.changes is None else self.changes[column]

    def last_step(self, column: Ints) -> Ints:
        return column if self.changes is None else np.append(self.changes[1:], self.steps)[column] - 1

    def expand(self, levels: Ints) -> Ints:
        """Return levels (spaces, columns) as (spaces, steps)."""
        if self.changes is None:
            return levels
        return np.repeat(levels, np.diff(np.append(self.changes, self.steps)), axis=1)


def windows(p: Layout) -> list[Window]:
    """Split all spaces into windows of about MAX_CELLS cells.

    Spaces with few values and a long schedule keep only the steps at which something changes.
    """
    return p.once("windows", lambda: list(_windows(p)))


def _windows(p: Layout) -> Iterator[Window]:
    steps, n = p.steps or 1, len(p.spaces)
    if n * steps <= MAX_CELLS:
        yield _full_window(p, np.arange(n))
        return
    order = np.argsort(p.space, kind="stable")
    begin = np.searchsorted(p.space[order], np.arange(n + 1)).tolist()
    (start, end), first = p.occupied_ranges(), 0
    for i in range(n):
        if i + 1 < n and (i + 2 - first) * min(steps, 3 * (begin[i + 2] - begin[first]) + 1) <= MAX_CELLS:
            continue
        rows = order[begin[first] : begin[i + 1]]
        rows = rows[start[rows] >= 0]
        changes = _changes(start[rows], end[rows], steps) if 3 * len(rows) < steps else None
        yield Window(np.arange(first, i + 1), changes, steps)
        first = i + 1


def _full_window(p: Layout, spaces: Ints) -> Window:
    return Window(spaces, None, p.steps or 1)


def _changes(start: Ints, end: Ints, steps: int) -> Ints:
    """Return 0, and the steps at which a range starts or has just ended, as a closed or half-open range."""
    changed = np.zeros(steps + 2, bool)  # `np.unique` takes a hundred times as long
    changed[0] = True
    for step in (start, end, end + 1):
        changed[step] = True
    return np.flatnonzero(changed[:steps])


# -- the sweep -----------------------------------------------------------------------------------


class Covered(NamedTuple):
    """The bytes that live values cover."""

    levels: Ints
    """Bytes by space and column of the window."""
    most: Ints
    """Maximum over all columns, by allocation."""
    column_of_most: Ints
    """First column with that maximum; 0 if it is 0."""


def covered(
    p: Layout, values: Mask, interval: str = "closed", window: Window | None = None, extent: Ints | None = None
) -> Covered:
    """Sweep the live ranges of these values over the schedule, in a window (by default, all spaces and steps).

    `extent` is the number of bytes that each value covers; by default, its own.
    """
    extent = p.extent if extent is None else extent
    window = window or _full_window(p, np.arange(len(p.spaces)))
    start, end = p.occupied_ranges(interval)
    values, row_of_space = values & (start >= 0), np.arange(len(p.spaces))
    if len(window.spaces) < len(p.spaces):
        row_of_space = np.zeros(len(p.spaces), np.int64)
        row_of_space[window.spaces] = np.arange(len(window.spaces))
        values &= np.isin(np.arange(len(p.spaces)), window.spaces)[p.space]
    rows = _by_owner(p, np.flatnonzero(values).astype(np.int32))
    if window.changes is not None:
        start[rows], end[rows] = window.column(start[rows]), window.column(end[rows])
    columns = window.steps if window.changes is None else len(window.changes)
    changes = np.zeros((len(window.spaces), columns), np.int64)
    rows, crowded = _without_crowded(p, rows)
    row_of_allocation = row_of_space[p.space_of_allocation]
    swept = _sweep.covered(rows, p.owner, start, end, p.offset, extent, row_of_allocation, changes)
    most, when = map(column_ints, swept)
    if crowded:
        most, when = most.copy(), when.copy()
    for allocation, members in crowded.items():
        row = changes[row_of_allocation[allocation] :][:1]
        most[allocation], when[allocation] = _covered_in_turn(p, members, start, end, extent, row)
    return Covered(np.cumsum(changes, axis=1, out=changes), most, when)


def _by_owner(p: Layout, rows: Codes) -> Codes:
    owner = p.owner[rows]
    return rows[np.argsort(owner, kind="stable")] if (owner[1:] < owner[:-1]).any() else rows


def _without_crowded(p: Layout, rows: Codes) -> tuple[Codes, dict[int, Codes]]:
    """Separate the values of allocations that have more than MAX_SWEPT_VALUES of them."""
    if len(rows) <= MAX_SWEPT_VALUES:
        return rows, {}
    allocations = np.flatnonzero(np.bincount(p.owner[rows]) > MAX_SWEPT_VALUES)
    crowded = {int(a): rows[p.owner[rows] == a] for a in allocations}
    return (rows[~np.isin(p.owner[rows], allocations)] if crowded else rows), crowded


def _covered_in_turn(
    p: Layout, rows: Codes, start: Ints, end: Ints, extent: Ints, changes: Ints
) -> tuple[int, int]:
    """Sweep the values of one allocation, one time interval at a time; return the maximum and its first column."""
    begins, top = np.unique(np.sort(start[rows])[::MAX_SWEPT_VALUES]).tolist(), (0, 0)
    for begin, stop in pairwise([*begins, changes.shape[1]]):
        chunk = rows[(start[rows] < stop) & (end[rows] >= begin)]
        first, last = np.maximum(start[chunk], begin), np.minimum(end[chunk], stop - 1)
        owner, row_of_allocation = np.zeros(len(chunk), np.int32), np.zeros(1, np.int64)
        chunk_rows = np.arange(len(chunk), dtype=np.int32)
        offset, size = p.offset[chunk], extent[chunk]
        swept = _sweep.covered(chunk_rows, owner, first, last, offset, size, row_of_allocation, changes)
        most, when = (int(column_ints(column)[0]) for column in swept)
        top = (most, when) if most > top[0] else top
    return top


# -- levels by step ------------------------------------------------------------------------------


def occupied(p: Layout, interval: str = "closed") -> Ints:
    """Return occupied(t), the bytes in use, by space and step."""
    return p.once(("occupied", interval), lambda: _occupied(p, interval))


def _occupied(p: Layout, interval: str) -> Ints:
    levels, most, _ = covered(p, p.in_temp, interval)
    levels += p.fixed_bytes()[:, None]
    p.results.setdefault(("most covered", interval), most)
    return levels


def live(p: Layout, interval: str = "closed") -> Ints:
    """Return live(t), the bytes covered by live values other than thread-local ones, by space and step."""
    return p.once(("live", interval), lambda: _live(p, interval))


def _live(p: Layout, interval: str) -> Ints:
    levels = covered(p, p.in_fixed, interval).levels
    levels -= p.fixed_bytes()[:, None]
    levels += occupied(p, interval)
    return levels


def levels(p: Layout, window: Window, interval: str = "closed") -> tuple[Ints, Ints]:
    """Return occupied(t) and live(t), by space and column of a window."""
    if len(window.spaces) == len(p.spaces) and window.changes is None:
        return occupied(p, interval), live(p, interval)
    total = covered(p, p.in_temp, interval, window).levels
    live_bytes = covered(p, p.in_fixed, interval, window).levels
    live_bytes += total
    total += p.fixed_bytes()[window.spaces][:, None]
    return total, live_bytes


def occupied_in(p: Layout, window: Window) -> Ints:
    """Return occupied(t), by space and column of a window."""
    if len(window.spaces) == len(p.spaces) and window.changes is None:
        return occupied(p)
    return covered(p, p.in_temp, "closed", window).levels + p.fixed_bytes()[window.spaces][:, None]


def most_covered(p: Layout) -> Ints:
    """Return the maximum bytes that live values cover in each temp allocation, 0 for other allocations."""
    return p.once(("most covered", "closed"), lambda: _most_covered(p))


def _most_covered(p: Layout) -> Ints:
    most = np.zeros(len(p.allocation_ids), np.int64)
    for window in windows(p):
        np.maximum(most, covered(p, p.in_temp, "closed", window).most, out=most)
    return most


# -- the table -----------------------------------------------------------------------------------


def occupancy(dump: DumpLike, *, space: str | int | None = None, interval: Interval = "closed") -> pa.Table:
    """Return the bytes in use at every step of the schedule, by memory space and category.

    Thread-local allocations are excluded. Parameters, constants and outputs count in full at every step. For each
    temp allocation, the union of the address ranges of the values live at that step counts. Bytes that several values
    share count only once; padding is included.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    space
        Name (``"hbm"``) or color of one memory space; all by default.
    interval
        ``"closed"``: a live range start-end includes t when start <= t <= end, as XLA prints it;
        ``"half-open"``: when start <= t < max(end, start + 1).

    Returns
    -------
    pyarrow.Table
        Table ``occupancy``: one row per space and step, from 0 to the schedule length inclusive. A schedule length
        that exceeds the number of steps and live ranges in the text is replaced by the number of steps in the text.
        Live ranges are clipped to the schedule. The table is empty if the dump has no live ranges.

    Raises
    ------
    UsageError
        There are more than 64 spaces and more than 4 million rows; select one space with `space`.
    """
    p = program(dump)
    selected, steps = np.array(p.select_spaces(space), np.int64), p.steps or 0
    selected = selected if steps else selected[:0]
    if len(selected) > MAX_SPACES and len(selected) * steps > MAX_CELLS:
        raise UsageError(f"{p.name} has {len(selected)} memory spaces of {steps} steps: choose one with space=…")
    columns = p.space_columns(np.repeat(selected, steps))
    columns["time"] = np.tile(np.arange(steps), len(selected))
    fixed = fixed_by_category(p)
    columns |= {category: np.repeat(size[selected], steps) for category, size in fixed.items()}
    columns |= {"occupied": np.empty(0, np.int64), "live": np.empty(0, np.int64)}
    if len(selected):
        total, live_bytes = levels(p, _full_window(p, selected), interval)
        columns["occupied"], columns["live"] = total.ravel(), live_bytes.ravel()
    columns["temp"] = columns["occupied"] - sum(columns[category] for category in fixed)
    return computed_table("occupancy", columns)


def fixed_by_category(p: Program) -> dict[str, Ints]:
    """Return the bytes of the fixed allocations of each space, by category."""
    categories = {"parameter": PARAMETER, "donated": DONATED, "constant": CONSTANT, "live_out": LIVE_OUT}
    return {name: p.sum_by_space(p.allocation_size, p.category == c) for name, c in categories.items()}
