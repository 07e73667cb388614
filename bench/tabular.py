"""The one printer of tables: of what `make bench` measured, and of what `compare.py` found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- begin of the tables that `make bench` wrote -->\n", "<!-- end of the tables -->\n"


@dataclass(frozen=True)
class Row:
    """A line of the table `title`; its cells stand under their heads, in the order in which these first come."""

    title: str
    label: str
    cells: dict[str, str] = field(default_factory=dict)


def render(rows: Iterable[Row]) -> list[str]:
    """The tables as lines of text, one below the other."""
    rows = list(rows)
    lines: list[str] = []
    for title in dict.fromkeys(row.title for row in rows):
        mine = [row for row in rows if row.title == title]
        heads = list(dict.fromkeys(head for row in mine for head in row.cells))
        width = {head: max(len(head), *(len(row.cells.get(head, "")) for row in mine)) for head in heads}
        first = max(len(row.label) for row in mine)
        lines += ["", title, " " * first + "".join(f"  {head:>{width[head]}}" for head in heads)]
        for row in mine:
            cells = "".join(f"  {row.cells.get(head, ''):>{width[head]}}" for head in heads)
            lines.append(f"{row.label:{first}}{cells}".rstrip())
    return lines[1:]


def keep(lines: Iterable[str], path: Path) -> None:
    """Put the tables between the two marks of a Markdown file."""
    text = path.read_text("utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines that say where the tables stand")
    block = "".join(f"    {line}".rstrip() + "\n" for line in lines)
    path.write_text(f"{head}{begin}\n{block}\n{end}{tail}", "utf-8")
