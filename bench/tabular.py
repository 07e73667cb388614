"""Print tables, for `make bench` and `compare.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BEGIN, END = "<!-- tables written by `make bench`: begin -->\n", "<!-- tables written by `make bench`: end -->\n"


@dataclass(frozen=True)
class Row:
    """A row of the table `title`. Columns are in the order in which they first occur."""

    title: str
    label: str
    cells: dict[str, str] = field(default_factory=dict)


def render(rows: Iterable[Row]) -> list[str]:
    """Return the tables as lines of text."""
    rows = list(rows)
    lines: list[str] = []
    for title in dict.fromkeys(row.title for row in rows):
        table = [row for row in rows if row.title == title]
        heads = list(dict.fromkeys(head for row in table for head in row.cells))
        width = {head: max(len(head), *(len(row.cells.get(head, "")) for row in table)) for head in heads}
        first = max(len(row.label) for row in table)
        lines += ["", title, " " * first + "".join(f"  {head:>{width[head]}}" for head in heads)]
        for row in table:
            cells = "".join(f"  {row.cells.get(head, ''):>{width[head]}}" for head in heads)
            lines.append(f"{row.label:{first}}{cells}".rstrip())
    return lines[1:]


def keep(lines: Iterable[str], path: Path) -> None:
    """Replace the tables between the two marks of a Markdown file."""
    text = path.read_text("utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines {BEGIN.strip()} and {END.strip()}")
    block = "".join(f"    {line}".rstrip() + "\n" for line in lines)
    path.write_text(f"{head}{begin}\n{block}\n{end}{tail}", "utf-8")
