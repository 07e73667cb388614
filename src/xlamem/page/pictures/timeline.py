"""The timeline: bytes in use at every step of each memory space, and the phases."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...compute.columns import Ints, runs
from ...formatting import shorten, size
from ..model import Device, Phases, Program, Space
from .svg import (
    BOLD,
    LEFT,
    PLOT_LEFT,
    PLOT_RIGHT,
    SMALL,
    Drawing,
    StepAxis,
    byte_ticks,
    fitted,
    heading,
    legend,
    text_width,
    tick_size,
)

HEIGHT, SMALL_HEIGHT = 170, 44
"""Heights of the curve of the first memory space, and of the others."""
N_SMALL = 3
"""Maximum number of other memory spaces."""
MIN_SHARE = 1 / 1000
"""Minimum peak of another memory space, as a share of the first one's."""
COLUMNS = PLOT_RIGHT - PLOT_LEFT
"""A curve with more steps is drawn from the least and the greatest value of each column."""
MAX_HEADROOM = 1.6
"""A line is drawn up to this multiple of the greatest value below it."""
CATEGORIES = {
    "parameter": ("c-parameter", "parameters"),
    "donated": ("c-donated", "donated"),
    "constant": ("c-constant", "constants"),
    "live_out": ("c-live-out", "outputs"),
    "temp": ("c-temp", "temporaries"),
}
"""Colors and labels of what is in use, from the bottom."""

NO_LIVE_RANGES = "The dump has no live ranges: sizes are known, but not what is in use at a step."


def draw_timeline(d: Drawing, program: Program, y: float) -> float:
    """Draw the timeline below y, and return where it ends."""
    if not program.spaces:
        return _nothing(d, y, "The dump lists no allocations.")
    main, others = program.spaces[0], program.spaces[1:]
    if main.peak is None or program.steps is None:
        return _nothing(d, y, NO_LIVE_RANGES)
    axis = StepAxis(program.steps)
    y = heading(d, y, "In use over time", f"memory space {_name(main)}, by step of the schedule")
    y = _phase_band(d, program.phases, axis, y)
    y = _curve(d, main, program.verdict.device, axis, y)
    least = max(1, main.peak * MIN_SHARE)
    for space in [s for s in others if len(s.usage) and (s.peak or 0) >= least][:N_SMALL]:
        y = _small_curve(d, space, axis, y + 12)
    y = axis.draw(d, y)
    shown = [CATEGORIES[name] for name, n in main.categories.items() if n and name in CATEGORIES]
    return legend(d, y + 2, shown, PLOT_LEFT)


def _nothing(d: Drawing, y: float, reason: str) -> float:
    y = heading(d, y, "In use over time")
    d.text(LEFT, y + 14, reason, fill="muted")
    return y + 28


def _name(space: Space) -> str:
    return f"{space.memory_space} page {space.page}" if space.page else space.memory_space


# -- curves --------------------------------------------------------------------------------------


def _curve(d: Drawing, space: Space, device: Device | None, axis: StepAxis, y: float) -> float:
    """Draw the first memory space: what is in use by category, the peak, and lines for what must fit."""
    peak = space.peak or 0
    lines = _lines(space, device)
    top = max([peak, *(n for n, _, _ in lines), 1])
    upper, lower = y + 34, y + 34 + HEIGHT

    def y_of(n: float) -> float:
        return lower - HEIGHT * n / top

    for tick in byte_ticks(top, 5):
        d.line(PLOT_LEFT, y_of(tick), PLOT_RIGHT, y_of(tick), "line")
        d.text(PLOT_LEFT - 8, y_of(tick) + (4 if tick else 0), tick_size(tick), fill="muted", size=SMALL, anchor="end")
    below = _fixed(d, space, lower, HEIGHT / top)
    _area(d, space.usage, axis, lower, HEIGHT / top, below)
    for n, color, label in lines:
        d.line(PLOT_LEFT, y_of(n), PLOT_RIGHT, y_of(n), color, dash="5 4")
        anchor = ("end", PLOT_RIGHT - 4) if color == "bad" else ("start", PLOT_LEFT + 4)
        d.text(anchor[1], y_of(n) - 4, label, fill=color, size=SMALL, anchor=anchor[0], halo=True)
    if space.first_step is not None:
        _mark(d, axis.middle(space.first_step), y + 12, y_of(peak), f"peak {size(peak)} at step {space.first_step:,}")
    return max(lower, upper)


def _lines(space: Space, device: Device | None) -> list[tuple[int, str, str]]:
    """Return the lines above the peak that are close enough to draw: bytes, color and label."""
    peak, reserved, lines = space.peak or 0, space.reserved, []
    if peak * 1.04 < reserved <= peak * MAX_HEADROOM:
        lines.append((reserved, "muted", f"reserved {size(reserved)}"))
    available = device.available if device is not None and space.in_device_memory else 0
    if 0 < available <= MAX_HEADROOM * max(peak, reserved):
        lines.append((available, "bad", f"available {size(available)}"))
    return lines


def _fixed(d: Drawing, space: Space, lower: float, scale: float) -> int:
    """Draw what is in use at every step, and return its bytes."""
    below = 0
    for category, (color, _) in CATEGORIES.items():
        n = space.categories.get(category, 0)
        if category != "temp" and n:
            d.rect(PLOT_LEFT, lower - scale * (below + n), PLOT_RIGHT - PLOT_LEFT, scale * n, color)
            below += n
    return below


def _area(d: Drawing, usage: Ints, axis: StepAxis, lower: float, scale: float, below: int = 0) -> None:
    """Draw bytes in use above those that always are: up to the least of each column, and paler up to the greatest."""
    n = min(len(usage), COLUMNS)
    starts = np.arange(n) * len(usage) // n
    least, most = np.minimum.reduceat(usage, starts), np.maximum.reduceat(usage, starts)
    base = lower - scale * below
    if (most > least).any():
        d.path(_outline(starts, most, axis, lower, scale, base), fill="c-temp", opacity=0.5)
    d.path(_outline(starts, least, axis, lower, scale, base), fill="c-temp")


def _outline(starts: Ints, heights: Ints, axis: StepAxis, lower: float, scale: float, base: float) -> str:
    """Return the outline of columns, with one command per change of height."""
    y = np.minimum(lower - scale * heights, base).round(1)
    changes = np.flatnonzero(np.diff(y, prepend=np.inf))
    corners = (f"H{axis.x(s):.1f}V{h:.1f}" for s, h in zip(starts[changes].tolist(), y[changes].tolist(), strict=True))
    return f"M{PLOT_LEFT} {base:.1f}{''.join(corners)}H{PLOT_RIGHT}V{base:.1f}Z"


def _mark(d: Drawing, x: float, y: float, to: float, label: str) -> None:
    """Mark the peak, with a label above it that stays inside of the picture."""
    half = BOLD * text_width(label) / 2
    d.text(min(max(x, PLOT_LEFT + half), PLOT_RIGHT - half), y, label, weight=600, anchor="middle")
    d.line(x, y + 4, x, to, "ink")
    d.path(f"M{x - 3:.1f} {to:.1f}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0Z", fill="ink")


def _small_curve(d: Drawing, space: Space, axis: StepAxis, y: float) -> float:
    """Draw another memory space, with a scale of its own."""
    lower = y + SMALL_HEIGHT
    # From the edge of the picture: `vmem page 1` has room, and the shortest form of longer names.
    d.text(PLOT_LEFT - 8, y + 11, fitted(_name(space), PLOT_LEFT - 12, shorten, SMALL), size=SMALL, anchor="end")
    d.text(PLOT_LEFT - 8, y + 26, tick_size(space.peak or 0), fill="muted", size=SMALL, anchor="end")
    _area(d, space.usage, axis, lower, SMALL_HEIGHT / max(space.peak or 0, 1))
    d.line(PLOT_LEFT, lower, PLOT_RIGHT, lower, "line")
    return lower


# -- phases --------------------------------------------------------------------------------------


def _phase_band(d: Drawing, phases: Phases, axis: StepAxis, y: float) -> float:
    """Draw the phases as a band, each with its name in its longest run, or else in a legend."""
    if not len(phases.phase):
        return y
    column, codes = _phase_columns(phases, axis.steps)
    first, last = runs(codes)
    edges = np.append(column, axis.steps)
    named: set[int] = set()
    names: list[tuple[float, str]] = []
    boxes: dict[int, list[str]] = {}
    for i in np.argsort(first - last, kind="stable").tolist():
        code = int(codes[first[i]])
        if code < 0:
            continue
        left, right = axis.x(int(edges[first[i]])), axis.x(int(edges[last[i] + 1]))
        name = phases.names[code]
        boxes.setdefault(code, []).append(f"M{left:.1f} {y:.1f}H{right:.1f}v16H{left:.1f}z")
        if code not in named and right - left > text_width(name, SMALL) + 12:
            named.add(code)
            names.append(((left + right) / 2, name))
    for code, parts in boxes.items():
        d.path("".join(parts), fill=f"p-{phases.names[code]}")
    for x, name in names:
        d.text(x, y + 12, name, size=SMALL, anchor="middle")
    rest = [(f"p-{phases.names[i]}", phases.names[i]) for i in np.unique(codes).tolist() if i >= 0 and i not in named]
    return legend(d, y + 18, rest, PLOT_LEFT) - 6 if rest else y + 18


def _phase_columns(phases: Phases, steps: int) -> tuple[Ints, npt.NDArray[np.int64]]:
    """Return the first step of each column, and the phase with most of its steps, -1 if none has any."""
    n = min(steps, COLUMNS)
    edges = np.arange(n + 1) * steps // n
    most, phase = np.zeros(n, np.int64), np.full(n, -1)
    for code in range(len(phases.names)):
        runs_of = phases.phase == code
        change = np.zeros(steps + 1, np.int64)
        np.add.at(change, phases.first_step[runs_of], 1)
        np.add.at(change, phases.last_step[runs_of] + 1, -1)
        until = np.append(0, change[:-1].cumsum().cumsum())
        count = np.diff(until[edges])
        phase[count > most] = code
        most = np.maximum(most, count)
    return edges[:-1], phase
