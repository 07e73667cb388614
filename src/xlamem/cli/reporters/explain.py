"""The screen of `xlamem explain`: the numbers of each memory space, then those of all together and JAX's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ...compute import main_first
from ...compute.overview import space_name
from ...compute.wording import describe_problems
from ...dump import Dump
from ...formatting import size, visible, wrap
from .header import header

Row = dict[str, Any]
Causes = dict[tuple[str, int | None, int | None], list[Row]]

HEIGHT = 40
"""Maximum number of lines, if the width is limited and nothing is shown in full."""
NAME_WIDTH = 15
"""Width of the names of numbers."""
SIZE_WIDTH = 10
CAUSE_INDENT = 6
JAX = "jax."
"""Prefix of the fields of JAX's memory_analysis()."""
EXACT_TITLE = "JAX's memory_analysis(), as far as it follows from the dump"
INFERRED_TITLE = "JAX's memory_analysis(); inferred: by a formula right on N of M real dumps"
TOGETHER = "all memory spaces together"
MIN_SHARE = 0.001
"""Minimum share of the largest number for a memory space to have its own lines."""

MEANINGS = {
    "reserved": "must fit",
    "peak": "in use at once",
    "device_total": "must fit",
    "peak_together": "in use at once",
}
SHORT_CAUSES = {
    "temp bytes not in use at the peak": "not in use at the peak",
    "bytes in use that no live value covers": "in use but not live",
}
"""Shorter texts of causes, for the column beside the numbers."""


@dataclass(frozen=True)
class Line:
    """Numbers of one memory space that are equal for the same causes."""

    names: list[str]
    number: Row
    causes: list[Row]


@dataclass(frozen=True)
class Block:
    """The numbers of a memory space."""

    title: str
    lines: list[Line]

    @property
    def largest(self) -> int:
        return max((line.number["bytes"] or 0 for line in self.lines), default=0)


def screen(dump: Dump, numbers: list[Row], causes: list[Row], width: int | None, *, verbose: bool) -> list[Text]:
    """Return the lines of the screen; `verbose` shows every memory space, with the definitions."""
    (module,) = dump.modules.to_pylist()
    lines = header(dump.source, module, describe_problems(dump), width)
    blocks = _blocks(numbers, causes, each=verbose)
    fields = [n for n in numbers if n["name"].startswith(JAX)]
    limited = width is not None and not verbose
    for full, n_causes in _extents(blocks) if limited else [(len(blocks), None)]:
        columns = _Columns(numbers, width, n_causes, verbose=verbose)
        contents = _spaces(blocks, full, columns) + _memory_analysis(fields, columns)
        if len(lines) + len(contents) <= HEIGHT:
            break
    return lines + contents


def _extents(blocks: list[Block]) -> Iterator[tuple[int, int | None]]:
    """Yield numbers of memory spaces shown in full and of causes per number, from the longest screen to the shortest.

    Small memory spaces are never shown in full.
    """
    least = _least(blocks)
    n_large = sum(b.title != TOGETHER and b.largest >= least for b in blocks)
    yield from ((full, None) for full in range(max(n_large, 1), 0, -1))
    yield from ((1, n_causes) for n_causes in (3, 2, 1))


def _least(blocks: list[Block]) -> float:
    """Return the largest number below which a memory space is small."""
    return MIN_SHARE * max((b.largest for b in blocks), default=0)


# -- blocks --------------------------------------------------------------------------------------


def _blocks(numbers: list[Row], causes: list[Row], *, each: bool) -> list[Block]:
    """Group numbers by memory space, main memory first, without empty spaces; the last block is for all together.

    If only one space is used, its numbers and those of all spaces are in one block.
    """
    by_number: Causes = defaultdict(list)
    for cause in causes:
        by_number[_key(cause)].append(cause)
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    together: list[Row] = []
    for n in numbers:
        if not n["name"].startswith(JAX):
            group = together if n["memory_space"] is None else groups[n["memory_space"], n["page"]]
            group.append(n)
    used = [s for s in sorted(groups, key=lambda s: main_first(s[0])) if any(n["bytes"] for n in groups[s])]
    titles = {s: space_name(groups[s][0]) for s in used}
    if len(used) == 1:
        return [Block(titles[used[0]], _lines([*groups[used[0]], *together], by_number, each=each))]
    every = [Block(titles[s], _lines(groups[s], by_number, each=each)) for s in used]
    return every + ([Block(TOGETHER, _lines(together, by_number, each=each))] if together else [])


def _key(row: Row) -> tuple[str, int | None, int | None]:
    return row["name"], row["color"], row["page"]


def _lines(numbers: list[Row], causes: Causes, *, each: bool) -> list[Line]:
    """Return lines for the numbers: one for `each`, or one for those that are equal for the same causes."""
    lines: dict[Any, Line] = {}
    for n in numbers:
        because = causes[_key(n)]
        equal = n["bytes"], n["difference"], tuple(sorted((c["cause"], c["bytes"]) for c in because))
        key = n["name"] if each or n["bytes"] is None else equal
        lines.setdefault(key, Line([], n, because)).names.append(n["name"])
    return list(lines.values())


def _spaces(blocks: list[Block], full: int, columns: _Columns) -> list[Text]:
    """Return all lines of the first spaces, one line for each other one, and the lines of all together."""
    spaces, together = [b for b in blocks if b.title != TOGETHER], [b for b in blocks if b.title == TOGETHER]
    lines = [line for block in spaces[:full] for line in columns.block(block)]
    if others := spaces[full:]:
        least = _least(blocks)
        lines += [Text(), *columns.others([b for b in others if b.largest >= least])]
        if small := ", ".join(columns.short(b) for b in others if b.largest < least):
            lines += [Text(line, "dim") for line in wrap(f"also: {small}", 0, columns.width)]
    return lines + [line for block in together for line in columns.block(block)]


# -- lines ---------------------------------------------------------------------------------------


class _Columns:
    """The width of the columns of a screen, and its lines."""

    def __init__(self, numbers: list[Row], width: int | None, n_causes: int | None, *, verbose: bool) -> None:
        self.width, self.n_causes, self.verbose = width, n_causes, verbose
        self.digits = max((len(f"{n['bytes']:,}") for n in numbers if n["bytes"] is not None), default=1)

    def block(self, block: Block) -> list[Text]:
        lines = [Text(), Text(block.title, "bold")]
        for line in block.lines:
            lines += self._line(line)
        return lines

    def others(self, blocks: Iterable[Block]) -> list[Text]:
        """Return the peak and the reserved bytes of memory spaces, one per line."""
        lines = []
        for block in blocks:
            peak = _named(block, "peak") or block.lines[0].number
            line = self._amounts(block.title, peak, "bold", indent=0)
            line.rstrip()
            reserved = _named(block, "reserved")
            text = f"  peak, {size(reserved['bytes'])} reserved" if reserved else "  peak"
            lines.append(line.append(text if self.fits(len(line) + len(text)) else "  peak", "dim"))
        return lines

    def amount(self, n: int | None) -> str:
        """Return bytes in a unit for people, and exactly."""
        return f"{size(n).rjust(SIZE_WIDTH)}  {'' if n is None else f'{n:,}':>{self.digits}}"

    def short(self, block: Block) -> str:
        return f"{block.title} {size((_named(block, 'peak') or block.lines[0].number)['bytes'])}"

    def _amounts(self, name: str, n: Row, style: str = "", *, indent: int = 2) -> Text:
        """Return name, size, exact bytes, and the difference from the peak."""
        difference = f"{'+' if n['difference'] > 0 else ''}{size(n['difference'])}" if n["difference"] else ""
        line = Text(" " * indent).append(name.ljust(NAME_WIDTH + 2 - indent), style)
        line.append(f" {self.amount(n['bytes'])}")
        return line.append(f"  {difference.rjust(SIZE_WIDTH + 2)}", "yellow")

    def fits(self, length: int) -> bool:
        """Return whether a line of this length need not be shortened."""
        return self.width is None or length <= self.width

    def _line(self, line: Line) -> list[Text]:
        names = sorted(line.names, key=lambda name: name == "xla_rule")  # xla_printed is better known
        joined = ", ".join(names)
        name, equal = (joined, []) if len(joined) <= NAME_WIDTH else (names[0], names[1:])
        amounts = self._amounts(name, line.number, "bold" if line.names[0] in ("reserved", "device_total") else "")
        text, more = self._beside(line, len(amounts) + 2)
        same = f"= {', '.join(equal)}" if equal else ""
        with_same = f"{text} ({same})" if text and same else text or same
        if self.fits(len(amounts) + 2 + len(with_same)):
            text, same = with_same, ""
        elif text and not self.fits(len(amounts) + 2 + len(text)):
            text, more = "", [text, *more]
        amounts.append(f"  {text}" if text else "", "dim").rstrip()
        below = [f"  {same}"] if same else []
        return [amounts, *(Text(t, "dim") for t in [*below, *self._indented(more), *self._definitions(line)])]

    def _beside(self, line: Line, indent: int) -> tuple[str, list[str]]:
        """Return as much text as fits beside the numbers, and lines for the causes that do not."""
        n = line.number
        step = "" if n["time"] is None else f"step {n['time']:,}"
        if len(line.causes) > 1:
            largest = sorted(line.causes, key=lambda c: -abs(c["bytes"]))
            if self.n_causes is not None:
                least = MIN_SHARE * (n["bytes"] or 0)
                largest = [c for i, c in enumerate(largest) if i == 0 or abs(c["bytes"]) >= least]
            causes = [f"{_signed(c['bytes'])}  {c['cause']}" for c in largest]
            more = len(causes) - len(causes[: self.n_causes])
            return step, [*causes[: self.n_causes], *([f"and {more:,} more: see -v"] if more else [])]
        cause = line.causes[0]["cause"] if line.causes else ""
        short = SHORT_CAUSES.get(cause, cause)
        for text in (", ".join(filter(None, [short or MEANINGS.get(n["name"], ""), step])), short or step):
            if self.fits(indent + len(text)):
                return text, []
        return step, [cause] if cause else []

    def _indented(self, texts: Iterable[str]) -> list[str]:
        return [" " * CAUSE_INDENT + part for text in texts for part in wrap(text, CAUSE_INDENT, self.width)]

    def _definitions(self, line: Line) -> list[str]:
        if not self.verbose:
            return []
        text = "; ".join(filter(None, [visible(line.number["definition"]), _basis(line.number)]))
        return self._indented([text])


def _named(block: Block, name: str) -> Row | None:
    return next((line.number for line in block.lines if name in line.names), None)


def _signed(n: int) -> str:
    return f"{'+' if n > 0 else ''}{size(n)}".rjust(SIZE_WIDTH + 1)


def _basis(n: Row) -> str:
    return f"inferred, matches {n['n_equal']} of {n['n_compared']} dumps" if n["basis"] == "inferred" else ""


def _memory_analysis(fields: list[Row], columns: _Columns) -> list[Text]:
    """Return JAX's fields, without those about the host that are 0 in every release."""
    used = {n["name"].split(",")[0] for n in fields if n["bytes"]}
    shown = [n for n in fields if n["name"].split(",")[0] in used or not n["name"].startswith(f"{JAX}host_")]
    names = [n["name"].removeprefix(JAX) if n["releases"] is None else f"  {n['releases']}" for n in shown]
    length = max(map(len, names), default=0)
    lines = [_field(name.ljust(length), n, columns) for name, n in zip(names, shown, strict=True)]
    title = EXACT_TITLE
    if any(map(_basis, shown)) and columns.fits(len(INFERRED_TITLE)):
        title = INFERRED_TITLE
    return [Text(), Text(title, "bold"), *lines] if fields else []


def _field(name: str, n: Row, columns: _Columns) -> Text:
    if n["bytes"] is None:
        return Text(f"  {name}  not in the dump")
    basis = f"  inferred, {n['n_equal']} of {n['n_compared']}" if _basis(n) else ""
    return Text.assemble(f"  {name}  {columns.amount(n['bytes'])}", (basis, "dim"))
