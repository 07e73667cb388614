"""Write SVG: elements in the colors of the page, texts that fit, and axes."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import lru_cache
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import numpy.typing as npt

from ...compute.columns import Ints
from ...formatting import UNITS, one_line, shorten
from .colors import CLASS, COLORS, class_name, style

Floats = npt.NDArray[np.float64]

WIDTH = 880
"""Width of a picture. It is drawn larger or smaller to fit where it is shown."""
LEFT, RIGHT = 24, WIDTH - 24
"""Edges of its content."""
PLOT_LEFT, PLOT_RIGHT = LEFT + 68, RIGHT
"""Edges of what has a horizontal axis of steps."""
FONT = 13
SMALL = 11.5
FAMILY = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,'Liberation Sans','DejaVu Sans',sans-serif"
MONO = "ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace"

_NARROW, _WIDE = set("ijlt.,:;'|!()[]/ fIr-"), set("mwMW@%…—")
_WIDTHS = {"narrow": 0.36, "normal": 0.6, "wide": 0.92, "full": 1.05}
"""Widths of characters in units of the font size. They are those of a wide font, so that texts fit in any."""
_MONO_WIDTH = 0.61
MIN_FITTED = 6
"""Minimum number of characters of a text that is shortened."""
BOLD = 1.12
"""Widths of bold texts, relative to others."""


class Drawing:
    """Elements of a picture from the top to the bottom. Coordinates are in units of `WIDTH`."""

    def __init__(self) -> None:
        self._elements: list[str] = []
        self._used: set[tuple[str, str]] = set()

    def document(self, height: float, label: str) -> str:
        """Return the picture as an SVG element with everything that it needs."""
        self._used.add(("fill", "bg"))
        label = shorten(label, 400)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{CLASS}" role="img" aria-label={_attribute(label)} '
            f'width="{WIDTH}" height="{_n(height)}" viewBox="0 0 {WIDTH} {_n(height)}" '
            f'font-family="{FAMILY}" font-size="{FONT}">'
            f"<title>{_text(label)}</title>{style(self._used)}"
            f'<rect width="{WIDTH}" height="{_n(height)}"{self._color("fill", "bg")}/>'
            f"{''.join(self._elements)}</svg>\n"
        )

    def rect(self, x: float, y: float, width: float, height: float, fill: str, *, title: str = "") -> None:
        """Draw a rectangle, with a title that browsers show under the pointer."""
        box = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}"{self._color("fill", fill)}'
        self._elements.append(f"{box}><title>{_text(title)}</title></rect>" if title else f"{box}/>")

    def path(
        self, d: str, *, fill: str = "", stroke: str = "", width: float = 1, dash: str = "", opacity: float = 1
    ) -> None:
        """Draw a path, filled or as a line."""
        parts = [self._color("fill", fill) if fill else ' fill="none"']
        if stroke:
            parts += [self._color("stroke", stroke), f' stroke-width="{_n(width)}"' if width != 1 else ""]
        parts += [f' stroke-dasharray="{dash}"' if dash else "", f' opacity="{_n(opacity)}"' if opacity < 1 else ""]
        self._elements.append(f'<path d="{d}"{"".join(parts)}/>')

    def line(self, x0: float, y0: float, x1: float, y1: float, stroke: str, *, dash: str = "") -> None:
        """Draw a horizontal or vertical line."""
        to = f"V{_n(y1)}" if x0 == x1 else f"H{_n(x1)}"
        self.path(f"M{_n(x0)} {_n(y0)}{to}", stroke=stroke, dash=dash)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        fill: str = "ink",
        size: float = FONT,
        anchor: str = "start",
        weight: int = 400,
        mono: bool = False,
        halo: bool = False,
    ) -> None:
        """Write a line of text. A halo in the color of the background keeps it legible on other elements."""
        attributes = [
            f' font-size="{_n(size)}"' if size != FONT else "",
            f' text-anchor="{anchor}"' if anchor != "start" else "",
            f' font-weight="{weight}"' if weight != 400 else "",
            f' font-family="{MONO}"' if mono else "",
            f'{self._color("fill", fill)}',
        ]
        place = f'x="{_n(x)}" y="{_n(y)}"'
        if halo:
            under = f'{"".join(attributes[:4])} fill="none" stroke-width="3" stroke-linejoin="round"'
            color = self._color("stroke", "bg")
            self._elements.append(f'<text {place}{under}{color} aria-hidden="true">{_text(text)}</text>')
        self._elements.append(f'<text {place}{"".join(attributes)}>{_text(text)}</text>')

    def _color(self, prop: str, name: str) -> str:
        self._used.add((prop, name))
        return f' class="{class_name(prop, name)}" {prop}="{COLORS[name][0]}"'


def _n(x: float) -> str:
    """Return a coordinate with at most one decimal."""
    return f"{x:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    """Return a text without characters that XML forbids or that reorder it."""
    return escape(one_line(text))


def _attribute(text: str) -> str:
    return quoteattr(one_line(text))


# -- texts that fit ------------------------------------------------------------------------------


def text_width(text: str, size: float = FONT, *, mono: bool = False) -> float:
    """Return about the greatest width that a text has in common fonts."""
    return size * (sum(map(_width, text)) if not mono else _MONO_WIDTH * len(text))


@lru_cache(maxsize=1024)
def _width(character: str) -> float:
    if unicodedata.east_asian_width(character) in "WF":
        return _WIDTHS["full"]
    return _WIDTHS["narrow" if character in _NARROW else "wide" if character in _WIDE else "normal"]


def fitted(
    text: str, room: float, shorten: Callable[[str, int], str], size: float = FONT, *, mono: bool = False
) -> str:
    """Return a text, shortened if it is wider than `room`; empty if not even a few characters fit."""
    text = one_line(text if len(text) < 4096 else shorten(text, 1024))
    if text_width(text, size, mono=mono) <= room:
        return text
    least = _MONO_WIDTH if mono else _WIDTHS["narrow"]
    for n in range(min(len(text), int(room / (size * least))), MIN_FITTED - 1, -1):
        short = shorten(text, n)
        if text_width(short, size, mono=mono) <= room:
            return short
    return ""


def cut_off(text: str, n: int) -> str:
    """Replace the end of a text that is too long with an ellipsis."""
    return text if len(text) <= n else f"{text[: n - 1].rstrip()}…"


def wrapped(text: str, room: float, size: float = FONT) -> list[str]:
    """Return the lines of a sentence."""
    lines = [""]
    for word in one_line(text).split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


# -- axes ----------------------------------------------------------------------------------------


def byte_ticks(top: int, n: int) -> list[int]:
    """Return 0 and at most n multiples of a power of two up to `top`."""
    step = 1
    while step * n < top:
        step *= 2
    return list(range(0, top + 1, step))


def tick_size(n: int) -> str:
    """Return a size with few digits: ``1.5 GiB``."""
    amount, unit = float(n), -1
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    digits = f"{amount:.3g}" if amount < 999.5 else f"{amount:.0f}"
    return f"{digits} {UNITS[unit] if unit >= 0 else 'B'}" if n else "0"


def step_ticks(steps: int, n: int) -> list[int]:
    """Return 0 and at most n steps that are multiples of 1, 2 or 5 times a power of ten."""
    interval, factors = 1, (2, 2.5, 2)
    i = 0
    while interval * n < steps - 1:
        interval, i = int(interval * factors[i % 3]), i + 1
    return list(range(0, steps, interval))


class StepAxis:
    """The horizontal axis: each step is as wide as any other."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def x(self, step: float) -> float:
        """Return where a step begins."""
        return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * step / self.steps

    def xs(self, steps: Ints) -> Floats:
        return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * steps.astype(np.float64) / self.steps

    def middle(self, step: int) -> float:
        return self.x(step + 0.5)

    def draw(self, d: Drawing, y: float) -> float:
        """Draw the axis below y, and return where it ends."""
        d.line(PLOT_LEFT, y, PLOT_RIGHT, y, "line")
        d.text(PLOT_LEFT - 8, y + 17, "step", fill="muted", size=SMALL, anchor="end")
        for step in step_ticks(self.steps, 8):
            x, text = self.middle(step), f"{step:,}"
            d.line(x, y, x, y + 4, "muted")
            x = min(x, PLOT_RIGHT - text_width(text, SMALL) / 2)
            d.text(x, y + 17, text, fill="muted", size=SMALL, anchor="middle")
        return y + 24


# -- parts that all pictures share ---------------------------------------------------------------


def heading(d: Drawing, y: float, title: str, note: str = "") -> float:
    """Write the heading of a part and a note beside it, and return where they end."""
    d.text(LEFT, y + 14, title, weight=600)
    left = LEFT + BOLD * text_width(title) + 10
    d.text(left, y + 14, fitted(note, RIGHT - left, cut_off, SMALL), fill="muted", size=SMALL)
    return y + 28


def legend(d: Drawing, y: float, items: list[tuple[str, str]], left: float = LEFT) -> float:
    """Draw names of colors and what they stand for, and return where they end."""
    x = left
    for color, label in items:
        width = 18 + text_width(label, SMALL)
        if x > left and x + width > RIGHT:
            x, y = left, y + 18
        d.rect(x, y + 3, 11, 11, color)
        d.text(x + 16, y + 13, label, fill="muted", size=SMALL)
        x += width + 16
    return y + 22
