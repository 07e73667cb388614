"""The screen of `xlamem diff` for two sides with several programs: which changed, which are new or gone."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat, takewhile
from typing import Any

import pyarrow as pa
from rich.text import Text

from ...compare.verdict import signed
from ...compare.wording import ARROW, MARKS
from ...formatting import align, count, one_line, shorten_distinct, size, visible, wrap
from ..options import Output
from . import diff

Row = dict[str, Any]

NUMBERS = ("device_total", "peak")
HEADINGS = ["must fit: A", "B", "change", "peak", "program"]
N_ROWS = 20
"""Number of programs that are listed without --limit."""
MIN_NAME_WIDTH = 16
UNKNOWN = "unknown"
NOT_STORED = "its numbers are not stored"
ALONE = ("new", "gone")
"""How programs without a partner are marked in `pairs`."""


@dataclass(frozen=True)
class Changes:
    """The programs of two sides, as the table `pairs`."""

    table: pa.Table
    verdict: str = ""
    """What changed in the pair with the largest change; empty without one."""
    largest: diff.Comparison | None = None
    """That pair, if it could be compared."""
    are_dumps: bool = False
    """Whether both sides are dumps, of which ``--module`` selects one."""

    @cached_property
    def rows(self) -> list[Row]:
        rows: list[Row] = self.table.to_pylist()
        return rows

    @cached_property
    def changed(self) -> list[Row]:
        """Pairs with other numbers: by absolute change of what must fit, then of the peak."""
        rows = [r for r in self.rows if not is_alone(r) and any(change(r, number) for number in NUMBERS)]
        return sorted(rows, key=lambda r: tuple(-abs(change(r, number) or 0) for number in NUMBERS))

    @cached_property
    def unknown(self) -> list[Row]:
        """Pairs of readable dumps of which it is not known whether the numbers changed."""
        changed = {id(row) for row in self.changed}
        rows = (r for r in self.rows if not is_alone(r) and not _unreadable(r) and not _is_known(r))
        return [row for row in rows if id(row) not in changed]

    @property
    def listed(self) -> list[Row]:
        """The pairs that changed, or may have changed, and programs without a partner."""
        return self.changed + self.unknown + self.alone

    @property
    def ordered(self) -> list[Row]:
        """All pairs: those that are listed first."""
        listed = {id(row) for row in self.listed}
        return self.listed + [row for row in self.rows if id(row) not in listed]

    @property
    def problems(self) -> list[str]:
        """Why numbers are not known, each with the number of dumps."""
        sides = [(r, side) for r in self.rows if not _unreadable(r) for side in _sides(r) if not _is_known(r, side)]
        counts = Counter(r[f"problem_{side}"] or NOT_STORED for r, side in sides)
        return [f"{problem} ({count(n, 'dump')})" for problem, n in counts.most_common()]

    @cached_property
    def alone(self) -> list[Row]:
        """New and gone programs, largest first."""
        rows = [r for r in self.rows if is_alone(r) and not _unreadable(r)]
        return sorted(rows, key=lambda r: -max(_total(r, side) or 0 for side in "ab"))

    def name(self, row: Row) -> str:
        """Return the number and name of a program, below the directory that all of its side share.

        That of B is enough, unless names or directories differ.
        """
        sides = [side for side in "ab" if row[f"program_{side}"] is not None]
        places = {(row[f"module_name_{side}"], *self._place(row, side)) for side in sides}
        names = ["/".join([*self._place(row, side), _name(row, side)]) for side in sides]
        return one_line(names[-1] if len(places) == 1 else ARROW.join(names))

    def _place(self, row: Row, side: str) -> list[str]:
        return _directory(row, side)[self._n_shared[side] :]

    @cached_property
    def _n_shared(self) -> dict[str, int]:
        """The number of directories that the paths of all programs of a side have in common."""
        rows = {side: [r for r in self.rows if r[f"program_{side}"] is not None] for side in "ab"}
        levels = {side: zip(*(_directory(r, side) for r in rows[side]), strict=False) for side in rows}
        return {side: sum(1 for _ in takewhile(lambda names: len({*names}) == 1, levels[side])) for side in levels}

    @property
    def unreadable(self) -> list[str]:
        """The dumps without numbers, and why they have none."""
        return [
            f"{side.upper()}: {r[f'uri_{side}']}: {r[f'problem_{side}']}" for r in self.rows for side in _unreadable(r)
        ]

    @property
    def is_known(self) -> bool:
        """Whether the numbers of all programs are known."""
        return all(map(_is_known, self.rows))

    @property
    def has_grown(self) -> bool:
        """Whether more must fit, or is in use at the peak of the device, in a program of both sides."""
        return any(map(_grew, self.changed))

    @property
    def summary(self) -> str:
        """How many programs changed, in a sentence."""
        readable = [r for r in self.rows if not _unreadable(r)]
        counts = Counter(r["how"] for r in readable)
        n_same = counts["same"] - sum(r["how"] == "same" for r in self.changed + self.unknown)
        n_other = len(readable) - len(self.changed + self.unknown) - counts["new"] - counts["gone"] - n_same
        if n_same == len(self.rows):
            return f"Nothing changed: {count(n_same, 'program')}."
        grown = f" ({n_grown:,} grew)" if (n_grown := sum(map(_grew, self.changed))) else ""
        parts = [f"{len(self.changed):,} changed{grown}"]
        parts += [f"{n_other:,} compiled differently with the same numbers"] if n_other else []
        parts += [f"{n:,} unknown"] if (n := len(self.unknown)) else []
        parts += [f"{counts[how]:,} {how}" for how in ALONE if counts[how]]
        parts += [f"{n:,} unreadable"] if (n := len(self.rows) - len(readable)) else []
        return f"{count(len(self.rows), 'program')}: {', '.join(parts)}, {n_same:,} the same."


def is_alone(row: Row) -> bool:
    return row["how"] in ALONE


def change(row: Row, number: str) -> int | None:
    """Return the change of a number of a pair, or None if one side is not known."""
    a, b = row[f"{number}_a"], row[f"{number}_b"]
    return None if a is None or b is None else b - a


def _sides(row: Row) -> list[str]:
    return [side for side in "ab" if row[f"program_{side}"] is not None]


def _unreadable(row: Row) -> list[str]:
    """Return the sides on which the dump of a program could not be read."""
    return [side for side in _sides(row) if not row[f"readable_{side}"]]


def _is_known(row: Row, sides: str | None = None) -> bool:
    """Return whether the numbers are known."""
    return all(row[f"{number}_{side}"] is not None for number in NUMBERS for side in sides or _sides(row))


def _grew(row: Row) -> bool:
    return any((change(row, number) or 0) > 0 for number in NUMBERS)


def _name(row: Row, side: str) -> str:
    """Return the number and the name of a program."""
    number = row[f"module_id_{side}"]
    text = row[f"module_name_{side}"] or str(row[f"uri_{side}"]).rpartition("/")[2]
    return text if number is None else f"{number:04d}.{text}"


def _directory(row: Row, side: str) -> list[str]:
    """Return the directory of a program, as its names."""
    return str(row[f"uri_{side}"]).split("/")[:-1]


def _total(row: Row, side: str) -> int | None:
    total: int | None = row[f"device_total_{side}"]
    return total


def cells(row: Row) -> list[str]:
    """Return what must fit on both sides, and the changes."""
    totals = ["" if row[f"program_{side}"] is None else size(_total(row, side)) for side in "ab"]
    changes = [UNKNOWN if (n := change(row, number)) is None else signed(n) for number in NUMBERS]
    return [*totals, *([MARKS[row["how"]], ""] if is_alone(row) else changes)]


def screen(changes: Changes, output: Output) -> list[Text]:
    """Return the lines of the screen: all of the comparison if only one program changed."""
    width = output.width
    lines = [Text(line, "bold") for line in wrap(changes.summary, 0, width)]
    single = changes.largest if len(changes.changed) == 1 else None
    rows = changes.listed
    shown = output.head(rows, N_ROWS)
    if shown and not (single and len(rows) == 1):
        lines += [Text(), *_table(shown, [changes.name(row) for row in shown], width)]
    if more := len(rows) - len(shown):
        lines.append(Text(f"and {more:,} more: --limit shows more", "dim"))
    for problem in changes.problems:
        lines += [Text(line, "dim") for line in wrap(visible(f"Not known: {problem}"), 2, width)]
    if single:
        return [*lines, Text(), *_named("changed", changes, width), Text(), *diff.screen(single, output)]
    return lines + _largest(changes, width)


def _largest(changes: Changes, width: int | None) -> list[Text]:
    """Return the verdict on the largest change, and how to see more of it."""
    if not changes.verdict:
        return []
    lines = [Text(), *_named("largest change", changes, width)]
    lines += [Text(f"  {line}") for line in wrap(visible(changes.verdict), 2, width)]
    if name := _selectable(changes, changes.changed[0]):
        lines += [Text(f"  {line}", "dim") for line in wrap(f"--module {name} shows all of it", 2, width)]
    return lines


def _named(label: str, changes: Changes, width: int | None) -> list[Text]:
    """Return the name of the program with the largest change, after a label."""
    indent = len(label) + 2
    labels = chain([label], repeat(""))
    names = zip(labels, wrap(changes.name(changes.changed[0]), indent, width), strict=False)
    return [Text.assemble((f"{label:{indent}}", "bold"), name) for label, name in names]


def _selectable(changes: Changes, row: Row) -> str:
    """Return the name that selects a program on both sides; empty if there is none."""
    name = row["module_name_a"]
    if not changes.largest or not changes.are_dumps or not name or name != row["module_name_b"]:
        return ""
    unique = all(sum(r[f"module_name_{side}"] == name for r in changes.rows) == 1 for side in "ab")
    return shlex.quote(one_line(name)) if unique else ""


def _table(rows: list[Row], names: list[str], width: int | None) -> list[Text]:
    numbers = align([HEADINGS[:-1], *map(cells, rows)], set())
    indent = max(map(len, numbers)) + 2
    names = shorten_distinct(names, width and max(MIN_NAME_WIDTH, width - indent))
    texts = [f"{left:{indent}}{right}" for left, right in zip(numbers, [HEADINGS[-1], *names], strict=True)]
    styles = ["bold", *("red" if not is_alone(r) and _grew(r) else "" for r in rows)]
    return [Text(text, style) for text, style in zip(texts, styles, strict=True)]
