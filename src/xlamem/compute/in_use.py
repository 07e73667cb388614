"""Bytes in use at every step of the schedule, by memory space."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _sweep
from ..dump import DumpLike
from ..errors import UsageError
from ..parse.arrow import Codes
from ..parse.arrow import ints as column_ints
from .columns import Ints, Mask, computed_table
from .layout import CONSTANT, DONATED, LIVE_OUT, PARAMETER, Layout
from .program import Program, program

Interval = Literal["closed", "half-open"]

MAX_CELLS = 1 << 22
"""Cells (spaces times steps) that are computed together where the result is not kept; at least one space."""

MAX_SPACES = 64
"""Above this number of spaces `occupancy` returns at most MAX_CELLS rows, so that its size stays in proportion to the
text."""

MAX_SWEPT_VALUES = 1 << 19
"""Values of one allocation that are swept together; more are swept one interval of time after the other."""


class Window(NamedTuple):
    """Memory spaces that are swept together, and the steps that matter to them."""

    spaces: Ints
    changes: Ints | None
    """The steps at which anything changes in these spaces, and 0: one column each. None: a column for every step."""
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

    Spaces in which few values live during a long schedule keep only the steps at which something changes.
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
    """Return the steps at which a range starts, or has just ended as a closed or a half-open one; and 0."""
    after_end = np.maximum(end - 1, start) + 1, end + 1
    times = np.unique(np.concatenate([np.zeros(1, np.int64), start, *after_end]))
    return times[times < steps]


# -- the sweep -----------------------------------------------------------------------------------


def covered(p: Layout, values: Mask, interval: str = "closed", window: Window | None = None) -> tuple[Ints, Ints]:
    """Sweep the live ranges of these values over the schedule.

    Returns the bytes that the live ones cover at each step, (spaces, columns) of the window, by default all spaces
    and steps; and per allocation the maximum over the steps.
    """
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
    swept = _sweep.covered(rows, p.owner, start, end, p.offset, p.extent, row_of_allocation, changes)
    most = column_ints(swept)
    for allocation, own in crowded.items():
        most = most.copy()
        most[allocation] = _covered_in_turn(p, own, start, end, changes[row_of_allocation[allocation] :][:1])
    return np.cumsum(changes, axis=1, out=changes), most


def _by_owner(p: Layout, rows: Codes) -> Codes:
    owner = p.owner[rows]
    return rows[np.argsort(owner, kind="stable")] if (owner[1:] < owner[:-1]).any() else rows


def _without_crowded(p: Layout, rows: Codes) -> tuple[Codes, dict[int, Codes]]:
    """Split off the values of each allocation that has more than MAX_SWEPT_VALUES of them."""
    if len(rows) <= MAX_SWEPT_VALUES:
        return rows, {}
    allocations = np.flatnonzero(np.bincount(p.owner[rows]) > MAX_SWEPT_VALUES)
    crowded = {int(a): rows[p.owner[rows] == a] for a in allocations}
    return (rows[~np.isin(p.owner[rows], allocations)] if crowded else rows), crowded


def _covered_in_turn(p: Layout, rows: Codes, start: Ints, end: Ints, changes: Ints) -> int:
    """Sweep the values of one allocation, one interval of time after the other; return the maximum."""
    begins, most = np.unique(np.sort(start[rows])[::MAX_SWEPT_VALUES]).tolist(), 0
    for begin, stop in pairwise([*begins, changes.shape[1]]):
        some = rows[(start[rows] < stop) & (end[rows] >= begin)]
        first, last = np.maximum(start[some], begin), np.minimum(end[some], stop - 1)
        owner, row_of_allocation = np.zeros(len(some), np.int32), np.zeros(1, np.int64)
        every = np.arange(len(some), dtype=np.int32)
        swept = _sweep.covered(every, owner, first, last, p.offset[some], p.extent[some], row_of_allocation, changes)
        most = max(most, int(column_ints(swept)[0]))
    return most


# -- levels by step ------------------------------------------------------------------------------


def occupied(p: Layout, interval: str = "closed") -> Ints:
    """Return occupied(t) of each space, (spaces, steps): bytes in use."""
    return p.once(("occupied", interval), lambda: _occupied(p, interval))


def _occupied(p: Layout, interval: str) -> Ints:
    levels, most = covered(p, p.in_temp, interval)
    levels += p.fixed_bytes()[:, None]
    p.results.setdefault(("most covered", interval), most)
    return levels


def live(p: Layout, interval: str = "closed") -> Ints:
    """Return live(t) of each space, (spaces, steps): bytes covered by live values, thread-local ones excluded."""
    return p.once(("live", interval), lambda: _live(p, interval))


def _live(p: Layout, interval: str) -> Ints:
    levels, _ = covered(p, p.in_fixed, interval)
    levels -= p.fixed_bytes()[:, None]
    levels += occupied(p, interval)
    return levels


def levels(p: Layout, window: Window, interval: str = "closed") -> tuple[Ints, Ints]:
    """Return occupied(t) and live(t) of a window, (spaces, columns)."""
    if len(window.spaces) == len(p.spaces) and window.changes is None:
        return occupied(p, interval), live(p, interval)
    total = covered(p, p.in_temp, interval, window)[0]
    lives = covered(p, p.in_fixed, interval, window)[0]
    lives += total
    total += p.fixed_bytes()[window.spaces][:, None]
    return total, lives


def occupied_in(p: Layout, window: Window) -> Ints:
    """Return occupied(t) of a window, (spaces, columns)."""
    if len(window.spaces) == len(p.spaces) and window.changes is None:
        return occupied(p)
    return covered(p, p.in_temp, "closed", window)[0] + p.fixed_bytes()[window.spaces][:, None]


def most_covered(p: Layout) -> Ints:
    """Return the maximum bytes that live values cover in each temp allocation, 0 for other allocations."""
    return p.once(("most covered", "closed"), lambda: _most_covered(p))


def _most_covered(p: Layout) -> Ints:
    most = np.zeros(len(p.allocation_ids), np.int64)
    for window in windows(p):
        np.maximum(most, covered(p, p.in_temp, "closed", window)[1], out=most)
    return most


# -- the table -----------------------------------------------------------------------------------


def occupancy(dump: DumpLike, *, space: str | int | None = None, interval: Interval = "closed") -> pa.Table:
    """Return the bytes in use at every step of the schedule, by memory space and category.

    Thread-local allocations are excluded. Parameters, constants and outputs count in full at every step. Of each
    temp allocation, the union of the address ranges of the values live at the step counts: bytes that several values
    share count once, and padding counts.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` takes.
    space
        Name (``"hbm"``) or color of one memory space; all by default.
    interval
        ``"closed"``: a live range start-end includes t when start <= t <= end, as XLA prints it;
        ``"half-open"``: when start <= t < max(end, start + 1).

    Returns
    -------
    pyarrow.Table
        Table ``occupancy`` of the schema: one row per space and step, 0 to the schedule length inclusive. An
        impossible length, greater than the steps and live ranges in the text together, is replaced by the number of
        steps in the text; live ranges are clipped to the schedule. Empty for a dump without live ranges.

    Raises
    ------
    UsageError
        There are more than 64 spaces and their steps make more than 4 million rows: select one with `space`.
    """
    p = program(dump)
    selected, steps = np.array(p.select_spaces(space), np.int64), p.steps or 0
    selected = selected if steps else selected[:0]
    if len(selected) > MAX_SPACES and len(selected) * steps > MAX_CELLS:
        raise UsageError(f"{p.name} has {len(selected)} memory spaces of {steps} steps: choose one with space=…")
    columns = p.space_columns(np.repeat(selected, steps))
    columns["time"] = np.tile(np.arange(steps), len(selected))
    fixed = _fixed_by_category(p)
    columns |= {category: np.repeat(size[selected], steps) for category, size in fixed.items()}
    columns |= {"occupied": np.empty(0, np.int64), "live": np.empty(0, np.int64)}
    if len(selected):
        total, lives = levels(p, _full_window(p, selected), interval)
        columns["occupied"], columns["live"] = total.reshape(-1), lives.reshape(-1)
    columns["temp"] = columns["occupied"] - sum(columns[category] for category in fixed)
    return computed_table("occupancy", columns)


def _fixed_by_category(p: Program) -> dict[str, Ints]:
    """Bytes of the fixed allocations of each space, by category."""
    categories = {"parameter": PARAMETER, "donated": DONATED, "constant": CONSTANT, "live_out": LIVE_OUT}
    return {name: p.sum_by_space(p.allocation_size, p.category == c) for name, c in categories.items()}
