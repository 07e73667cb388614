"""A table of texts, for a terminal and as HTML."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from ..formatting import align, visible

CELL = "padding:0.1em 0.6em;white-space:nowrap;text-align:"


@dataclass(frozen=True)
class Grid:
    """Rows of texts under headings."""

    headings: list[str]
    """Empty if there are none."""
    rows: list[list[str]]
    right: frozenset[int] = frozenset()
    """Columns with numbers, which are aligned to the right."""
    note: str = ""
    """A line below, about what is not shown."""

    def text(self) -> str:
        rows = [self.headings, *self.rows] if self.headings else self.rows
        left = [i for i in range(len(rows[0]) if rows else 0) if i not in self.right]
        lines = align([[visible(cell).replace("\n", "\\n") for cell in row] for row in rows], left) if rows else []
        return "\n".join([*(f"  {line}" for line in lines), *([f"  {self.note}"] if self.note else [])])

    def html(self) -> str:
        head = f"<tr>{self._cells(self.headings, 'th')}</tr>" if self.headings else ""
        body = "".join(f"<tr>{self._cells(row, 'td')}</tr>" for row in self.rows)
        note = f"<div>{escape(self.note)}</div>" if self.note else ""
        return f"<div style='overflow-x:auto'><table>{head}{body}</table></div>{note}"

    def _cells(self, cells: Iterable[str], tag: str) -> str:
        return "".join(
            f"<{tag} style='{CELL}{'right' if i in self.right else 'left'}'>{escape(visible(cell))}</{tag}>"
            for i, cell in enumerate(cells)
        )


def fields(pairs: Iterable[tuple[str, str]]) -> Grid:
    """Return a grid of labels and texts."""
    return Grid([], [[label, text] for label, text in pairs])
