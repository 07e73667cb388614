"""Pictures of a program as SVG: the bill, the timeline and the address map, for files and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...formatting import shorten, size
from ..model import Program
from .address_map import draw_map
from .bill import draw_bill
from .svg import LEFT, RIGHT, SMALL, Drawing, fitted, text_width, wrapped
from .timeline import draw_timeline

Part = Literal["bill", "timeline", "map"]

PARTS: dict[Part, Callable[[Drawing, Program, float], float]] = {
    "bill": draw_bill,
    "timeline": draw_timeline,
    "map": draw_map,
}
"""The parts of a picture, from the top."""
NUMBER = 34
"""Size of the number that must fit."""


def picture(program: Program, parts: Sequence[Part] = tuple(PARTS)) -> str:
    """Return a program as one SVG element: its name, what must fit, and these parts below each other.

    Colors are light, or dark where the system or the notebook is. It has no identifiers and no external references.
    """
    d = Drawing()
    y = _title(d, program)
    for part in parts:
        y = PARTS[part](d, program, y + 12)
    return d.document(y + 12, f"{program.name}: {program.verdict.headline}")


def _title(d: Drawing, program: Program) -> float:
    """Write the name of the program, what must fit, and what is wrong with the dump; return where they end."""
    about = " · ".join(filter(None, [program.platform, program.target, _steps(program)]))
    d.text(RIGHT, 34, about, fill="muted", size=SMALL, anchor="end")
    room = RIGHT - LEFT - text_width(about, SMALL) - 24
    d.text(LEFT, 34, fitted(program.name, room, shorten, 15), size=15, weight=600)
    must_fit, y = program.verdict.must_fit, 58.0
    left = float(LEFT)
    if must_fit is not None:
        d.text(LEFT, y + 30, size(must_fit), size=NUMBER, weight=300)
        left += text_width(size(must_fit), NUMBER) + 20
    lines = wrapped(program.verdict.headline, RIGHT - left)
    for sentence in (*program.verdict.decided_by, program.verdict.first_step, *program.problems):
        lines += wrapped(sentence, RIGHT - left) if sentence else []
    for i, line in enumerate(lines):
        d.text(left, y + 14 + 18 * i, line, fill="ink" if i == 0 else "muted")
    return max(y + 40, y + 18 * len(lines) + 4)


def _steps(program: Program) -> str:
    return "" if program.steps is None else f"{program.steps:,} steps"
