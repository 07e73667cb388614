"""Bytes in use over the steps of a schedule, as SVG that follows the colors of the page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np
import numpy.typing as npt

from ..formatting import size

Ints = npt.NDArray[np.int64]

WIDTH = 640
"""Width of the area of the curve, in pixels; also the maximum number of columns."""
LEFT, TOP, BOTTOM = 90, 6, 20
"""Room for the labels, in pixels."""
FIXED, TEMPORARY = "#4c78a8", "#f58518"
"""Colors of what is in use at every step, and of temporaries."""


@dataclass(frozen=True)
class Curve:
    """A curve that stands on what is in use at every step."""

    label: str
    usage: Ints
    """Bytes in use at each step."""
    fixed: int
    """Bytes in use at every step."""
    step: int
    """The step that is marked: the peak."""
    height: int = 120

    def text(self) -> str:
        return ""

    def html(self) -> str:
        """Return the curve as an SVG element."""
        n = len(self.usage)
        starts = np.arange(min(n, WIDTH)) * n // min(n, WIDTH)
        tops = np.maximum.reduceat(self.usage, starts)
        scale = max(int(tops.max()), 1)
        mark = LEFT + (self.step + 0.5) * WIDTH / n
        base, floor = TOP + self.height, self._y(self.fixed, scale)
        title = f"{self.label}: {size(int(self.usage[self.step]))} at step {self.step:,} of {n - 1:,}"
        return "".join([
            f"<div>{escape(title)} &nbsp; {_legend(FIXED, 'parameters, outputs, constants')} "
            f"{_legend(TEMPORARY, 'temporaries')}</div>",
            f"<svg role='img' width='{LEFT + WIDTH + 10}' height='{base + BOTTOM}' style='max-width:100%' "
            f"viewBox='0 0 {LEFT + WIDTH + 10} {base + BOTTOM}' font-family='sans-serif' font-size='11'>",
            f"<title>{escape(title)}</title>",
            f"<path d='{self._area(starts, tops, scale)}' fill='{TEMPORARY}'/>",
            f"<rect x='{LEFT}' y='{floor:.1f}' width='{WIDTH}' height='{base - floor:.1f}' fill='{FIXED}'/>",
            f"<path d='M{mark:.1f} {TOP}V{base}' stroke='currentColor' stroke-dasharray='3 3'/>",
            _label(LEFT - 6, TOP + 8, size(scale), "end"),
            _label(LEFT - 6, base, "0", "end"),
            _label(LEFT - 6, base + 14, "step", "end"),
            _label(LEFT, base + 14, "0", "start"),
            _label(LEFT + WIDTH, base + 14, f"{n - 1:,}", "end"),
            *([] if mark - LEFT < WIDTH / 8 or mark - LEFT > WIDTH * 7 / 8
              else [_label(mark, base + 14, f"{self.step:,}", "middle")]),
            "</svg>",
        ])  # fmt: skip

    def _y(self, n: float, scale: int) -> float:
        return TOP + self.height * (1 - n / scale)

    def _area(self, starts: Ints, tops: Ints, scale: int) -> str:
        """Return the outline of the columns, one path command per change of height."""
        changes = np.flatnonzero(np.diff(tops, prepend=-1))
        x = LEFT + starts[changes] * WIDTH / len(self.usage)
        corners = "".join(f"H{a:.1f}V{self._y(b, scale):.1f}" for a, b in zip(x, tops[changes].tolist(), strict=True))
        base = TOP + self.height
        return f"M{LEFT} {base}{corners}H{LEFT + WIDTH}V{base}Z"


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y}' text-anchor='{anchor}' fill='currentColor'>{escape(text)}</text>"


def _legend(color: str, text: str) -> str:
    return f"<span style='color:{color}'>\N{BLACK SQUARE}</span> <small>{escape(text)}</small>"
