"""Pictures of a program as SVG: the bill, the timeline and the address map, for files and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ...formatting import count, shorten, size
from ..model import Program
from .address_map import draw_map
from .bill import draw_bill
from .svg import BOLD, LEFT, RIGHT, SMALL, Drawing, fitted, text_width, wrapped
from .timeline import draw_timeline

Part = Literal["bill", "timeline", "map"]

PARTS: dict[Part, Callable[[Drawing, Program, float], float]] = {
    "bill": draw_bill,
    "timeline": draw_timeline,
    "map": draw_map,
}
"""The parts of a picture, from the top."""
TITLE, NUMBER = 15, 34
"""Sizes of the name of a program, and of the number that must fit."""


def picture(programs: Sequence[Program], *, parts: Sequence[Part] = tuple(PARTS), summary: str = "") -> str:
    """Return programs below each other as one SVG element: for each, its name, what must fit, and these parts.

    Colors are light, or dark where the system or the notebook is. It has no identifiers and no external references.
    `summary` is a sentence about all programs, such as what differs between two.
    """
    d = Drawing()
    y = 16.0
    if summary:
        for line in wrapped(summary, (RIGHT - LEFT) / BOLD):
            d.text(LEFT, y + 14, line, weight=600)
            y += 18
        y += 10
    names = ["A: ", "B: "] if len(programs) == 2 else [""] * len(programs)
    for name, program in zip(names, programs, strict=True):
        y = _title(d, program, name, y)
        for part in parts:
            y = PARTS[part](d, program, y + 12)
        if "map" in parts:
            y = _folded(d, program, y)
        y += 16
    labels = (f"{program.name}: {program.verdict.headline}" for program in programs)
    return d.document(y, summary or " ".join(labels))


def _title(d: Drawing, program: Program, name: str, y: float) -> float:
    """Write the name of the program, what must fit, and what is wrong with the dump; return where they end."""
    about = " · ".join(filter(None, [program.platform, program.target, _steps(program)]))
    d.text(RIGHT, y + 18, about, fill="muted", size=SMALL, anchor="end")
    room = RIGHT - LEFT - text_width(about, SMALL) - 24
    d.text(LEFT, y + 18, fitted(name + program.name, room / BOLD, shorten, TITLE), size=TITLE, weight=600)
    must_fit, y = program.verdict.must_fit, y + 40
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


def _folded(d: Drawing, program: Program, y: float) -> float:
    """Write what the model leaves out, and return where that ends."""
    for line in (line for sentence in program.folded for line in wrapped(sentence, RIGHT - LEFT, SMALL)):
        d.text(LEFT, y + 14, line, fill="muted", size=SMALL)
        y += 16
    return y


def _steps(program: Program) -> str:
    return "" if program.steps is None else count(program.steps - 1, "step")
