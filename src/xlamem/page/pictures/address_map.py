"""The address map: temporaries as rectangles of steps and offsets, the small ones summed up in cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ... import kernels as pc
from ...compute.columns import Ints, Mask, nullable, take
from ...compute.op_names import plain_names
from ...formatting import shorten, shorten_path, size
from ..model import Program
from .bill import hatch
from .cells import Boxes, summed
from .svg import (
    FONT,
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
from .timeline import CATEGORIES

HEIGHT = 320
"""Height of the arenas."""
FIXED_HEIGHT = 18
"""Height of what is in use at every step, which is not to scale."""
N_BOXES = 900
"""Maximum number of rectangles that are drawn one by one."""
MIN_BOX = 2.0
"""Minimum width and height of these if there are more rectangles."""
MIN_DRAWN = 0.8
"""Width and height with which smaller ones are drawn."""
GAP = 0.5
"""Space between rectangles."""
N_TITLES, N_LABELS = 200, 40
"""Maximum numbers of rectangles with a title, and with a name in them."""
MIN_KNOWN = 0.2
"""Minimum share of the area of the rectangles whose phase or kind is known, for these to be their colors."""


def draw_map(d: Drawing, program: Program, y: float) -> float:
    """Draw the address map of the first memory space below y, and return where it ends."""
    if not program.spaces or program.steps is None:
        return y  # the timeline says so
    space, axis = program.spaces[0], StepAxis(program.steps)
    arenas = _arenas(program)
    note = f"{space.memory_space}: one rectangle for each temporary; hatched: not in use"
    y = heading(d, y, "Address map", note if arenas.total else f"{space.memory_space} has no temporaries")
    if arenas.total:
        boxes = _boxes(program, arenas, axis, y)
        coding = _coding(program, boxes)
        _draw_ground(d, arenas, y)
        single = _largest(boxes)
        _draw_cells(d, boxes.of(~single), coding.code[~single], coding, y)
        chosen = np.flatnonzero(single)
        chosen = chosen[np.argsort(-boxes.area[chosen], kind="stable")]
        names = _names(program, boxes.rows[chosen[:N_TITLES]])
        _draw_single(d, program, boxes, coding, chosen, names)
        if space.first_step is not None:
            x = axis.middle(space.first_step)
            d.line(x, y, x, y + HEIGHT, "ink", dash="2 3")
        _draw_labels(d, boxes, chosen, names)
        y += HEIGHT
    y = _draw_fixed(d, program, y + 1)
    y = axis.draw(d, y + 4)
    return legend(d, y + 2, coding.items, PLOT_LEFT) if arenas.total else y


# -- arenas --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arenas:
    """The temp allocations of a memory space above each other, the largest one at the bottom."""

    rows: Ints
    """Rows of allocations."""
    size: Ints
    base: Ints
    """Where each begins."""
    of: Ints
    """Place in `rows` of each allocation of the program, or -1."""

    @property
    def total(self) -> int:
        return int(self.size.sum())


def _arenas(program: Program) -> _Arenas:
    a = program.allocations
    is_arena = (a.space == 0) & (a.category == a.category_names.index("temp")) & (a.size > 0)
    rows = np.flatnonzero(is_arena)
    rows = rows[np.argsort(-a.size[rows], kind="stable")]
    of = np.full(len(a.size), -1, np.int64)
    of[rows] = np.arange(len(rows))
    return _Arenas(rows, a.size[rows], a.size[rows].cumsum() - a.size[rows], of)


def _draw_ground(d: Drawing, arenas: _Arenas, y: float) -> None:
    """Draw what is free, and the axis of offsets."""
    d.rect(PLOT_LEFT, y, PLOT_RIGHT - PLOT_LEFT, HEIGHT, "map-hole")
    d.path(hatch(PLOT_LEFT, y, PLOT_RIGHT - PLOT_LEFT, HEIGHT, 1), stroke="map-texture")
    for tick in byte_ticks(arenas.total, 6):
        at = y + HEIGHT * (1 - tick / arenas.total)
        d.line(PLOT_LEFT - 4, at, PLOT_LEFT, at, "muted")
        d.text(PLOT_LEFT - 8, at + 4, tick_size(tick), fill="muted", size=SMALL, anchor="end")


def _draw_fixed(d: Drawing, program: Program, y: float) -> float:
    """Draw parameters, outputs and constants as one band, and return where it ends."""
    sizes = program.spaces[0].categories
    kept = [(*CATEGORIES[name], n) for name, n in sizes.items() if name in CATEGORIES and name != "temp" and n]
    if not kept:
        return y
    d.rect(PLOT_LEFT, y, PLOT_RIGHT - PLOT_LEFT, FIXED_HEIGHT, "map-fixed")
    text = f"in use at every step (not to scale): {', '.join(f'{label} {size(n)}' for _, label, n in kept)}"
    d.text(PLOT_LEFT + 8, y + 13, fitted(text, PLOT_RIGHT - PLOT_LEFT - 16, shorten, SMALL), fill="muted", size=SMALL)
    return y + FIXED_HEIGHT


# -- rectangles ----------------------------------------------------------------------------------


def _boxes(program: Program, arenas: _Arenas, axis: StepAxis, y: float) -> Boxes:
    """Return the temporaries as rectangles in the picture."""
    b = program.buffers
    arena = take(arenas.of, b.allocation)
    rows = np.flatnonzero((arena >= 0) & (b.start >= 0) & (b.end >= b.start) & (b.size > 0))
    arena = arena[rows]
    offset = np.clip(b.offset[rows], 0, arenas.size[arena])
    top = np.minimum(offset + b.size[rows], arenas.size[arena])
    scale = HEIGHT / arenas.total
    left, right = axis.xs(b.start[rows]), axis.xs(np.minimum(b.end[rows] + 1, axis.steps))
    upper, lower = (y + HEIGHT - scale * (arenas.base[arena] + n).astype(np.float64) for n in (top, offset))
    return Boxes(rows, left, right, upper, lower)


def _largest(boxes: Boxes) -> Mask:
    """Return which rectangles are drawn one by one: all if there are few, else the large ones."""
    if len(boxes.rows) <= N_BOXES:
        return np.ones(len(boxes.rows), bool)
    large = np.flatnonzero((boxes.width >= MIN_BOX) & (boxes.height >= MIN_BOX))
    kept = large[np.argsort(-boxes.area[large], kind="stable")[:N_BOXES]]
    single = np.zeros(len(boxes.rows), bool)
    single[kept] = True
    return single


def _draw_cells(d: Drawing, boxes: Boxes, code: Ints, coding: _Coding, y: float) -> None:
    """Draw the sums of rectangles: one path for each color and density."""
    cells = summed(boxes, code, len(coding.items), (PLOT_LEFT, y, PLOT_RIGHT, y + HEIGHT))
    for item, density, path in cells.paths():
        d.path(path, fill=coding.items[item][0], opacity=density)


def _draw_single(
    d: Drawing, program: Program, boxes: Boxes, coding: _Coding, chosen: Ints, names: list[str]
) -> None:
    """Draw rectangles: those with a name as elements, the others as one path for each color."""
    for i, name in zip(chosen.tolist(), names, strict=False):
        color, title = coding.items[coding.code[i]][0], _title(program, int(boxes.rows[i]), name)
        x, y, width, height = _drawn(boxes, i)
        d.rect(x, y, width, height, color, title=title)
    rest = chosen[len(names) :]
    for item in np.unique(coding.code[rest]).tolist():
        places = [_drawn(boxes, i) for i in rest[coding.code[rest] == item].tolist()]
        path = "".join(f"M{x:.1f} {y:.1f}h{w:.1f}v{h:.1f}h{-w:.1f}z" for x, y, w, h in places)
        d.path(path, fill=coding.items[item][0])


def _drawn(boxes: Boxes, i: int) -> tuple[float, float, float, float]:
    """Return x, y, width and height of a rectangle as it is drawn."""
    x, y, width, height = boxes.place(i)
    return x, y, max(width - GAP, MIN_DRAWN), max(height - GAP, MIN_DRAWN)


def _draw_labels(d: Drawing, boxes: Boxes, chosen: Ints, names: list[str]) -> None:
    """Write names into the rectangles with room for them, the largest first and none over another."""
    taken: list[tuple[float, float, float, float]] = []
    for i, name in zip(chosen.tolist(), names, strict=False):
        x, y, width, height = boxes.place(i)
        if len(taken) == N_LABELS or width < 60 or height < FONT:
            continue
        text = fitted(name, width - 8, shorten_path, 10, mono=True)
        place = (x, y + height / 2 - 7, x + 8 + text_width(text, 10, mono=True), y + height / 2 + 7)
        if text and not any(_overlap(place, other) for other in taken):
            taken.append(place)
            d.text(x + 4, y + height / 2 + 3.5, text, size=10, mono=True)


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _names(program: Program, rows: Ints) -> list[str]:
    """Return the op_names of buffers without JAX's wrappers, or else their instructions."""
    b = program.buffers
    op_names = plain_names(b.op_name_names.take(nullable(b.op_name[rows])).cast(pa.string()))
    names: list[str] = pc.coalesce(op_names, program.instructions.name.take(pa.array(b.instruction[rows]))).to_pylist()
    return names


def _title(program: Program, row: int, name: str) -> str:
    b = program.buffers
    return f"{shorten(name, 100)}: {size(int(b.size[row]))}, steps {int(b.start[row]):,} to {int(b.end[row]):,}"


# -- colors --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Coding:
    items: list[tuple[str, str]]
    """Colors and labels."""
    code: Ints
    """Index of `items` of each rectangle."""


def _coding(program: Program, boxes: Boxes) -> _Coding:
    """Color rectangles by phase, or by kind where few phases are known, or not at all."""
    b = program.buffers
    phase, kind = b.phase[boxes.rows], b.kind[boxes.rows]
    with_phase, with_kind = _known(phase, boxes.area), _known(kind, boxes.area)
    if with_phase >= max(MIN_KNOWN, with_kind / 2):
        return _compact([(f"p-{name}", name) for name in b.phase_names], phase, "phase not known")
    if with_kind >= MIN_KNOWN:
        return _compact([(f"k-{i + 1}", name) for i, name in enumerate(b.kind_names)], kind, "kind not known")
    return _Coding([CATEGORIES["temp"]], np.zeros(len(boxes.rows), np.int64))


def _known(codes: Ints, area: npt.NDArray[np.float64]) -> float:
    """Return the share of the area with a code."""
    return float(area[codes >= 0].sum() / max(area.sum(), 1e-9))


def _compact(items: list[tuple[str, str]], codes: Ints, unknown: str) -> _Coding:
    """Leave out items that no rectangle has."""
    items = [*items, ("p-unknown", unknown)]
    used, code = np.unique(np.where(codes < 0, len(items) - 1, codes), return_inverse=True)
    return _Coding([items[i] for i in used.tolist()], code.ravel())
