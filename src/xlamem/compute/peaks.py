"""Compute the peak of each memory space: its size, its steps and its plateaus."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import DumpLike, Tables
from ..errors import UsageError
from ..formatting import exact_size, size
from .columns import Ints, computed_table, ints, nullable, runs
from .in_use import MAX_CELLS, Window, covered, levels, occupied, occupied_in, windows
from .layout import TEMP, THREAD_LOCAL, Layout
from .program import program
from .requirement import device_total

if TYPE_CHECKING:
    import pandas as pd

    from ..display import Curve, Grid, View

MIN_CURVE = 0.001
"""Minimum share of the largest peak for a notebook to show the curve of a memory space."""


@dataclass(frozen=True, repr=False)
class Peak:
    """The peaks of a program, as the tables ``peaks`` (in ``spaces``) and ``plateaus``."""

    spaces: pa.Table
    plateaus: pa.Table
    device_total: int | None = None
    """Bytes that must fit into the device's main memory; None without allocations."""
    _tables: Tables | None = field(default=None, compare=False)
    """The tables of the dump, from which a notebook draws curves."""

    def to_pandas(self) -> pd.DataFrame:
        """Return the table of spaces as a pandas DataFrame."""
        return self.spaces.to_pandas()

    def __repr__(self) -> str:
        return repr(self._view(curves=False))

    def _repr_html_(self) -> str:
        return self._view(curves=True)._repr_html_()

    def _view(self, *, curves: bool) -> View:
        from ..display import View, fields  # not needed to compute

        name = f" of {self._tables.name}" if self._tables else ""
        total = [] if self.device_total is None else [fields([("must fit", exact_size(self.device_total))])]
        drawn = _curves(program(self._tables), self.spaces) if curves and self._tables else []
        return View(f"xlamem.Peak{name}", (*total, _spaces_grid(self.spaces), *drawn))


def _spaces_grid(spaces: pa.Table) -> Grid:
    """Return a line for each memory space."""
    from ..display import Grid

    names = ("reserved", "peak", "first_step", "last_step", "plateaus")
    rows = []
    for s in spaces.to_pylist():
        page = f" page {s['page']}" if s["page"] else ""
        steps = ["" if s[name] is None else f"{s[name]:,}" for name in names[2:]]
        peak = "" if s["peak"] is None else size(s["peak"])
        rows.append([f"{s['memory_space']}{page}", size(s["reserved"]), peak, *steps])
    headings = ["memory space", "reserved", "peak", "first step", "last step", "plateaus"]
    return Grid(headings, rows, frozenset(range(1, len(headings))))


def _curves(p: Layout, spaces: pa.Table) -> list[Curve]:
    """Return the curves of the memory spaces in which much is in use, unless there are too many steps to keep."""
    from ..display import Curve

    if p.steps is None or len(p.spaces) * p.steps > MAX_CELLS:
        return []
    tops, usage, fixed = ints(spaces, "peak"), occupied(p), p.fixed_bytes().tolist()
    large = np.flatnonzero(tops >= max(1, MIN_CURVE * tops.max(initial=0))).tolist()
    return [Curve(p.spaces[i].name, usage[i], fixed[i], int(peak_steps(p)[i])) for i in large]


def peak(dump: DumpLike, *, k: int = 5) -> Peak:
    """Return the maximum bytes in use at any step, for each memory space.

    ``xlamem schema peaks`` and docs/numbers.md define the columns: allocated (all allocations), reserved (all except
    thread-local ones, which is what must fit into the space), and peak (the maximum of occupied(t), see `occupancy`)
    with its first plateau. `device_total` is what must fit into the device: the sum of reserved over the spaces in its
    main memory (see `fits`).

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    k
        Number of plateaus to list per space.

    Returns
    -------
    Peak
        Bytes and schedule steps. Without live ranges, all columns that depend on time are null.
    """
    if k < 0:
        raise UsageError(f"k must be 0 or more, not {k}")
    p = program(dump)
    return Peak(*peak_tables(p, k), device_total(p.tables), p.tables)


def peak_tables(p: Layout, k: int) -> tuple[pa.Table, pa.Table]:
    """Return the tables ``peaks`` and ``plateaus``."""
    columns = p.space_columns(np.arange(len(p.spaces)))
    columns["allocated"] = p.sum_by_space(p.allocation_size, p.category >= 0)
    columns["reserved"] = p.sum_by_space(p.allocation_size, p.category != THREAD_LOCAL)
    if p.steps is None:
        for column in schema.COMPUTED["peaks"].columns:
            columns.setdefault(column.name, pa.nulls(len(p.spaces), pa.int64()))
        return computed_table("peaks", columns), _plateau_table(p, [_NO_STEPS] * len(p.spaces))
    parts: list[dict[str, Ints]] = []
    highest: list[Ints] = []
    for window in windows(p):
        total, live_bytes = levels(p, window)
        parts.append(_numbers(p, window, total, live_bytes))
        highest += [_highest_plateaus(window, row, k) for row in total] if k else [_NO_STEPS] * len(total)
    numbers = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    p.results.setdefault("peak steps", numbers["first_step"])
    columns |= numbers | {name: nullable(numbers[name]) for name in ("live_step", "first_step", "last_step")}
    temp = p.sum_by_space(p.allocation_size, p.category == TEMP)
    columns["slack"] = temp - (columns["peak"] - p.fixed_bytes())
    return computed_table("peaks", columns), _plateau_table(p, highest)


_NO_STEPS = np.empty((3, 0), np.int64)


def _plateau_table(p: Layout, plateaus: list[Ints]) -> pa.Table:
    """Return the table ``plateaus``, given the first steps, last steps and bytes of the plateaus of each space."""
    counts = [plateau.shape[1] for plateau in plateaus]
    rows = p.space_columns(np.repeat(np.arange(len(counts)), counts))
    rows["rank"] = np.concatenate([np.empty(0, np.int64), *map(np.arange, counts)])
    rows["first_step"], rows["last_step"], rows["bytes"] = np.concatenate([_NO_STEPS, *plateaus], axis=1)
    return computed_table("plateaus", rows)


def _numbers(p: Layout, window: Window, total: Ints, live_bytes: Ints) -> dict[str, Ints]:
    """Return the columns of ``peaks`` that depend on time, by space of a window; -1 for null."""
    peak, live_peak = total.max(1), live_bytes.max(1)
    at_peak = (total == peak[:, None]) & (peak > 0)[:, None]
    begins, ends = at_peak.copy(), at_peak.copy()
    begins[:, 1:] &= ~at_peak[:, :-1]
    ends[:, :-1] &= ~at_peak[:, 1:]
    return {
        "peak": peak,
        "half_open_peak": half_open_peaks(p, window),
        "live_peak": live_peak,
        "live_step": np.where(live_peak > 0, window.first_step(live_bytes.argmax(1)), -1),
        "first_step": np.where(peak > 0, window.first_step(begins.argmax(1)), -1),
        "last_step": np.where(peak > 0, window.last_step(ends.argmax(1)), -1),
        "plateaus": begins.sum(1),
    }


def _highest_plateaus(window: Window, total: Ints, k: int) -> Ints:
    """Return the first steps, last steps and bytes of the k highest plateaus of a space."""
    if total.max() <= 0:
        return _NO_STEPS
    first, last = (columns[:k] for columns in plateaus_of(total))
    return np.stack([window.first_step(first), window.last_step(last), total[first]])


def half_open_peaks(p: Layout, window: Window) -> Ints:
    """Return the peak of each space of a window, with half-open live ranges."""

    def compute() -> Ints:
        most: Ints = covered(p, p.in_temp, "half-open", window).levels.max(1)
        return most + p.fixed_bytes()[window.spaces]

    return p.once(("half-open peaks", *window.spaces[:1].tolist()), compute)


def plateaus_of(values: Ints) -> tuple[Ints, Ints]:
    """Return the first and last index of each run with lower neighbours, sorted by height, then by index."""
    first, last = runs(values)
    level = values[first]
    above_previous = np.append(True, level[1:] > level[:-1])
    above_next = np.append(level[:-1] > level[1:], True)
    keep = np.flatnonzero(above_previous & above_next)
    keep = keep[np.argsort(-level[keep], kind="stable")]
    return first[keep], last[keep]


def peak_steps(p: Layout) -> Ints:
    """Return the first step of the peak of each space, or -1 if nothing is ever in use."""
    return p.once("peak steps", lambda: _peak_steps(p))


def _peak_steps(p: Layout) -> Ints:
    steps = np.full(len(p.spaces), -1, np.int64)
    for window in windows(p):
        total = occupied_in(p, window)
        steps[window.spaces] = np.where(total.any(1), window.first_step(total.argmax(1)), -1)
    return steps


class GroupPeaks(NamedTuple):
    """The combined peak of the spaces of each group: its first step and its bytes."""

    step: Ints
    bytes: Ints


def group_peaks(p: Layout, group: Ints, n: int) -> GroupPeaks:
    """Return the combined peaks of n groups of spaces. `group` is the group of each space."""
    levels = np.zeros((n, p.steps or 1), np.int64)
    for window in windows(p):
        np.add.at(levels, group[window.spaces], window.expand(occupied_in(p, window)))
    return GroupPeaks(levels.argmax(1), levels.max(1))


def require_allocations(p: Layout) -> None:
    """Raise UsageError without allocations, such as for a *-live-range.txt alone."""
    if not len(p.allocation_ids):
        raise UsageError(f"{p.name} has no allocations: its memory use is unknown")


def selected_steps(p: Layout, time: int | None = None, space: str | int | None = None) -> Ints:
    """Return the selected step of each space: `time`, or by default the first step of its peak.

    It is -1 for spaces that `space` does not select, and for spaces without a peak. Raises UsageError without live
    ranges.
    """
    selected = p.select_spaces(space)
    if p.steps is None:
        raise UsageError(f"{p.name} has no live ranges: sizes are known, but not what is live at a step")
    if time is not None and not 0 <= time < p.steps:
        raise UsageError(f"there is no step {time}: the steps of {p.name} are 0 to {p.steps - 1}")
    steps = np.full(len(p.spaces), -1, np.int64)
    steps[selected] = peak_steps(p)[selected] if time is None else time
    return steps
