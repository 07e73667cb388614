"""Bars, and the chart of bytes in use over the schedule.

`rich.bar` has no form for outputs without Unicode, and rich has no chart.
"""

from __future__ import annotations

import sys
from itertools import groupby

import numpy as np
import numpy.typing as npt
from rich.text import Text

from ...formatting import size

Ints = npt.NDArray[np.int64]

MAX_WIDTH, MAX_WIDTH_WIDE = 60, 100
"""Maximum width of the chart, for outputs below and above 100 columns."""
MAX_REPEAT = 4
"""Maximum number of columns per step."""
LEVELS = 8
"""Number of heights that a character cell can show."""


def is_unicode() -> bool:
    return (sys.stdout.encoding or "").lower().startswith("utf")


def blocks() -> str:
    """Return the marks of a character cell, from empty to full."""
    return " ▁▂▃▄▅▆▇█" if is_unicode() else " ..::=++#"


def bar(part: int, whole: int, width: int) -> str:
    """Return a bar with a length proportional to the share, and at least one cell for a share above 0."""
    cells = max(1, round(width * part / whole)) if part and whole else 0
    return blocks()[-1] * cells


def column_starts(steps: int, width: int) -> Ints:
    """Return the first step in each column of a chart of at most `width` columns."""
    if steps <= width:
        return np.repeat(np.arange(steps), max(1, min(MAX_REPEAT, width // steps)))
    return np.arange(width) * steps // width


def column_of(starts: Ints, step: int) -> int:
    """Return the first column of the chart that shows a step."""
    return int(starts.searchsorted(starts[starts.searchsorted(step, "right") - 1]))


def chart_rows(heights: Ints, top: int, rows: int) -> list[str]:
    """Draw heights from 0 to `top` in rows of character cells, the highest row first."""
    marks = blocks()
    level = np.ceil(heights / max(top, 1) * LEVELS * rows).astype(np.int64)
    cells = [np.clip(level - LEVELS * row, 0, LEVELS) for row in range(rows - 1, -1, -1)]
    return ["".join(marks[c] for c in line.tolist()) for line in cells]


def sparkline(usage: Ints, width: int) -> str:
    """Draw the bytes in use over the schedule in one row."""
    starts = column_starts(len(usage), width)
    return chart_rows(np.maximum.reduceat(usage, starts), int(usage.max()), 1)[0].ljust(width)


def usage_chart(
    usage: Ints, peak_step: int, *, floor: int, capacity: int | None, rows: int, width: int
) -> list[Text]:
    """Draw the bytes in use at each step: `rows` lines, and one that marks the step of the peak.

    The chart begins at `floor`. A capacity is drawn as a line, and steps above it are highlighted.
    """
    starts = column_starts(len(usage), min(MAX_WIDTH if width < 100 else MAX_WIDTH_WIDE, width - 11))
    heights = np.maximum.reduceat(usage, starts)
    peak = int(usage[peak_step])
    scale = max(peak, capacity or 0) - floor
    column = column_of(starts, peak_step)
    limit_row = None if capacity is None else rows - 1 - min(rows - 1, int(capacity / scale * rows))
    highlighted = heights > capacity if capacity is not None else np.zeros(len(heights), bool)
    highlighted[column] = True
    labels = _labels(floor, scale, rows)
    lines = []
    for i, cells in enumerate(chart_rows(heights - floor, scale, rows)):
        label = size(capacity) if i == limit_row else labels[i]
        lines.append(Text.assemble(_drawn(cells, highlighted, crossed=i == limit_row), (f" {label}", "dim")))
    return [*lines, _marker(column, peak_step, len(heights), floor if rows == 1 else 0)]


def _labels(floor: int, scale: int, rows: int) -> list[str]:
    """Label the top row and the bottom row."""
    top, bottom = size(floor + scale), size(floor)
    if top == bottom:
        top = f"+ {size(scale)}"
    return [top, *[""] * (rows - 2), bottom] if rows > 1 else [top]


def _drawn(cells: str, highlighted: npt.NDArray[np.bool_], *, crossed: bool) -> Text:
    """Style the cells of a row. Empty cells of `crossed` rows show the line of the capacity."""
    rule = "┄" if is_unicode() else "-"
    styled = [
        (rule, "red") if crossed and c == " " else (c, "bold red" if highlighted[i] else "cyan")
        for i, c in enumerate(cells)
    ]
    runs = groupby(styled, lambda cell: cell[1])
    return Text.assemble(*(("".join(c for c, _ in run), style) for style, run in runs))


def _marker(column: int, step: int, columns: int, floor: int) -> Text:
    """Mark the column of the peak; a chart of one row also names its floor here."""
    label, mark = f"step {step:,}", "▲" if is_unicode() else "^"
    right = f"{' ' * column}{mark} {label}"
    text = right if column + len(label) + 2 <= columns else f"{label} {mark}".rjust(column + 1)
    return Text(f"{text.ljust(columns)} from {size(floor)}" if floor else text, "dim")
