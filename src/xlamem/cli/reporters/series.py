"""`xlamem diff --over`: how each program changed over many points, as a screen, JSON, CSV and Markdown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.text import Text

from ... import kernels as pc
from ...compare.series import Series
from ...compare.verdict import signed
from ...compare.wording import ARROW, MARKS
from ...display.markdown import code, escaped, table
from ...errors import XlaMemError
from ...formatting import align, count, one_line, shorten_distinct, size, visible, wrap
from .. import console
from ..options import Output
from .chart import LEVELS, Ints, blocks, is_unicode
from .pairs import NOT_STORED

if TYPE_CHECKING:
    from .. import documents

Row = dict[str, Any]

HEADINGS = ["first", "last", "", "largest jump", "program"]
N_ROWS = 20
"""Number of programs that are listed without --limit."""
N_VERDICTS, MAX_VERDICTS = 2, 10
"""Number of programs for whose largest jump the dumps are compared: without --limit, and at most."""
N_POINTS = 12
"""Maximum number of points in a Markdown table."""
MIN_NAME_WIDTH = 16
MIN_CHART_WIDTH, MAX_CHART_WIDTH = 5, 40
POINT_WIDTH = 10
"""Maximum width of the name of a point."""
ABSENT, UNKNOWN = -2, -1


@dataclass(frozen=True)
class Over:
    """A series as it is shown."""

    series: Series

    @cached_property
    def listed(self) -> list[Row]:
        """The programs that changed, and those that are new or gone, in the order of the table."""
        rows: list[Row] = self.series.programs.slice(0, self.series.counts["listed"]).to_pylist()
        return rows

    @cached_property
    def points(self) -> list[str]:
        """Short names of the points."""
        return shorten_distinct(map(one_line, self.series.short_points), POINT_WIDTH)

    @property
    def problems(self) -> list[str]:
        """Why numbers are not known, each with the number of dumps."""
        counts = Counter(problem or NOT_STORED for problem in self.series.unknown["problem"].to_pylist())
        return [f"{problem} ({count(n, 'dump')})" for problem, n in counts.most_common()]

    def jump(self, row: Row) -> Row | None:
        """Return the largest jump of a program."""
        if row["jump"] is None:
            return None
        (jump,) = self.series.jumps.slice(row["jump"], 1).to_pylist()
        return dict(jump)

    def event(self, row: Row) -> str:
        """Say where a program jumped most, or where it is new or gone."""
        if jump := self.jump(row):
            change = signed(jump["change"]) if jump["change"] else f"peak {signed(jump['peak_change'])}"
            return f"{self.points[jump['ordinal_a']]}{ARROW}{self.points[jump['ordinal_b']]}: {change}"
        first, last = row["ordinal_first"], row["ordinal_last"]
        parts = [f"{MARKS['new']} at {self.points[first]}"] if first else []
        parts += [f"{MARKS['gone']} after {self.points[last]}"] if last < len(self.points) - 1 else []
        return ", ".join(parts)

    def verdicts(self, rows: list[Row], limit: int | None) -> list[tuple[Row, str]]:
        """Return the first programs that jumped, each with what changed there."""
        n = N_VERDICTS if limit is None else min(limit, MAX_VERDICTS)
        return [(row, self._verdict(row["jump"])) for row in rows[:n] if row["jump"] is not None]

    def _verdict(self, jump: int) -> str:
        try:
            return self.series.diff(jump).verdict
        except XlaMemError as error:
            return f"Not known: {error}"

    def levels(self, row: Row) -> Ints:
        """Return device_total of a program at each point, or UNKNOWN or ABSENT."""
        rows = self.series.rows(row["program"])
        levels = np.full(len(self.points), ABSENT, np.int64)
        levels[rows["ordinal"].to_numpy()] = pc.fill_null(rows["device_total"], UNKNOWN).to_numpy()
        return levels


def program_name(row: Row) -> str:
    """Return the number and the name of a program at its last point."""
    name = one_line(row["module_name"] or "unnamed")
    return name if row["module_id"] is None else f"{row['module_id']:04d}.{name}"


def sparkline(levels: Ints, width: int) -> str:
    """Draw levels from the least to the greatest in at most `width` characters: gaps where there is none.

    A character that stands for several points shows the greatest.
    """
    if len(levels) > width:
        levels = np.maximum.reduceat(levels, np.arange(width) * len(levels) // width)
    known = levels[levels >= 0]
    low, high = int(known.min(initial=np.iinfo(np.int64).max)), int(known.max(initial=0))
    heights = 1 + (levels - low) * (LEVELS - 1) // (high - low) if high > low else np.full(len(levels), LEVELS // 2)
    marks, unknown = blocks(), "·" if is_unicode() else "?"
    cells = zip(levels.tolist(), heights.tolist(), strict=True)
    return "".join(marks[height] if level >= 0 else unknown if level == UNKNOWN else " " for level, height in cells)


def write(series: Series, output: Output, *, gate: bool) -> int:
    """Write a series, and return the exit code."""
    over = Over(series)
    if output.json:
        console.write_document("series", as_json(over, output))
    elif output.csv:
        rows = series.series if output.limit is None else series.first(output.limit)
        output.write_csv(rows.column_names, zip(*(column.to_pylist() for column in rows.columns), strict=True))
    elif output.markdown:
        console.write(comment(over, output.limit))
    else:
        console.write_lines(screen(over, output), output.width)
    if gate and not series.is_known:
        return console.UNREADABLE
    return console.CHECK_FAILED if gate and series.has_grown else console.FINE


# -- screen --------------------------------------------------------------------------------------


def screen(over: Over, output: Output) -> list[Text]:
    """Return the lines of the screen."""
    width = output.width
    lines = [Text(line, "bold") for line in wrap(visible(over.series.summary), 0, width)]
    shown = output.head(over.listed, N_ROWS)
    if shown:
        lines += [Text(), *_rows(over, shown, width)]
    if more := len(over.listed) - len(shown):
        lines.append(Text(f"and {more:,} more: --limit shows more", "dim"))
    for problem in over.problems:
        lines += [Text(line, "dim") for line in wrap(visible(f"Not known: {problem}"), 2, width)]
    for row, verdict in over.verdicts(shown, output.limit):
        title = f"{over.event(row).partition(': ')[0]}  {program_name(row)}"
        lines += [Text(), Text(title, "bold")]
        lines += [Text(f"  {line}") for line in wrap(visible(verdict), 2, width)]
    return lines


def _rows(over: Over, rows: list[Row], width: int | None) -> list[Text]:
    sizes = [[size(row[f"device_total_{end}"]) for end in ("first", "last")] for row in rows]
    left = align([HEADINGS[:2], *sizes], set())
    events = [HEADINGS[3], *map(over.event, rows)]
    names = list(map(program_name, rows))
    taken = len(left[0]) + max(map(len, events)) + 3 * 2
    room = (width or MAX_CHART_WIDTH + taken) - taken
    chart_width = max(MIN_CHART_WIDTH, min(MAX_CHART_WIDTH, room - MIN_NAME_WIDTH, len(over.points)))
    charts = [sparkline(over.levels(row), min(chart_width, len(over.points))) for row in rows]
    names = shorten_distinct(names, width and max(MIN_NAME_WIDTH, room - max(map(len, charts))))
    columns = left, [HEADINGS[2], *charts], events, [HEADINGS[4], *names]
    lines = align([list(cells) for cells in zip(*columns, strict=True)], {1, 2, 3})
    return [Text(line, style) for line, style in zip(lines, ["bold", *map(_style, rows)], strict=True)]


def _style(row: Row) -> str:
    ends = [(row[f"{number}_first"], row[f"{number}_last"]) for number in ("device_total", "peak")]
    return "red" if any(first is not None and last > first for first, last in ends) else ""


# -- JSON and Markdown ---------------------------------------------------------------------------


def as_json(over: Over, output: Output) -> documents.Series:
    """Return each program with its points and jumps, and the verdict on the largest jumps."""
    series, programs = over.series, output.head(over.series.programs).to_pylist()
    verdicts = {row["program"]: verdict for row, verdict in over.verdicts(programs, output.limit)}
    jumps: dict[int, list[Row]] = {}
    for jump in series.jumps.to_pylist():
        jumps.setdefault(jump.pop("program"), []).append(jump)
    for row in programs:
        row["points"] = [_point_json(point) for point in series.rows(row["program"]).to_pylist()]
        row["jumps"] = jumps.get(row["program"], [])
        row["verdict"] = verdicts.get(row["program"])
    n = series.counts
    return {
        "over": series.over,
        "points": list(series.points),
        "summary": series.summary,
        "n_programs": n["programs"],
        "n_changed": n["changed"],
        "n_grown": n["grown"],
        "n_new": n["new"],
        "n_gone": n["gone"],
        "n_unknown": n["unknown"],
        "n_same": n["same"],
        "is_known": series.is_known,
        "grown": series.has_grown,
        "programs": programs,
    }


def _point_json(row: Row) -> Row:
    del row["program"]
    return {**row, "is_known": row["device_total"] is not None}


def comment(over: Over, limit: int | None) -> str:
    """Return the summary, a table of programs and points, and the verdict on the largest jumps."""
    lines = [f"**{escaped(over.series.summary)}**"]
    rows = over.listed[: N_ROWS if limit is None else limit]
    if rows:
        chosen = _chosen_points(over, rows)
        body = [
            [code(program_name(row)), *_cells(over, row, chosen), code(sparkline(over.levels(row), MAX_CHART_WIDTH))]
            for row in rows
        ]
        headings = ["program", *(f"{escaped(over.points[i])}:" for i in chosen), f"{len(over.points):,} points"]
        lines += ["", *table(headings, body)]
    if more := len(over.listed) - len(rows):
        lines += ["", f"and {more:,} more"]
    lines += [f"\nNot known: {escaped(problem)}" for problem in over.problems]
    for row, verdict in over.verdicts(rows, limit):
        lines += ["", f"{code(program_name(row))}, {escaped(over.event(row).partition(': ')[0])}: {escaped(verdict)}"]
    return "\n".join(lines)


def _chosen_points(over: Over, rows: list[Row]) -> list[int]:
    """Return the points of the table: all, or else both ends and those around the largest jumps."""
    last = len(over.points) - 1
    if last < N_POINTS:
        return list(range(last + 1))
    jumps = [jump for row in rows if (jump := over.jump(row))]
    wanted = [0, last, *(jump[f"ordinal_{side}"] for jump in jumps for side in "ba")]
    return sorted(list(dict.fromkeys(wanted))[:N_POINTS])


def _cells(over: Over, row: Row, chosen: list[int]) -> list[str]:
    """Return device_total at these points, with its change since the chosen point before; "?" if it is not known."""
    levels, cells, before = over.levels(row), [], -1
    for total in levels[chosen].tolist():
        change = f" **{signed(total - before)}**" if min(total, before) >= 0 and total != before else ""
        cells.append("" if total == ABSENT else "?" if total == UNKNOWN else f"{size(total)}{change}")
        before = max(total, before) if total < 0 else total
    return cells
