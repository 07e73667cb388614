"""Draw a tree of scopes next to its sizes. `rich.tree` cannot draw columns before its branches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from ...compute import FoldedScope
from ...formatting import one_line, percent, size
from .buffers import SIZE_WIDTH, category_name
from .chart import is_unicode
from .labels import shorten_labels

PERCENT_WIDTH = 7


def amount(n: int, total: int) -> str:
    """Return the beginning of a line: bytes and their share."""
    return f"  {size(n).rjust(SIZE_WIDTH)}  {percent(n, total).rjust(PERCENT_WIDTH)}  "


Line = tuple[str, str, FoldedScope]
"""Branch, name and scope."""


def tree_lines(scopes: Sequence[FoldedScope], total: int, width: int | None) -> list[Text]:
    """Return a line for each scope with its bytes, share, name and number of buffers."""
    lines: list[Line] = []
    for scope in scopes:
        name = category_name(scope.name, plural=True) + (f": {scope.inside}" if scope.inside else "")
        lines.append(("", one_line(name), scope))
        lines += _beneath(scope, "")
    starts = [f"{amount(scope.bytes, total)}{branch}" for branch, _, scope in lines]
    counts = [f"  {scope.node.n:,}×" if scope.node.n > 1 else "" for *_, scope in lines]
    room = width and width - max((len(a) + len(b) for a, b in zip(starts, counts, strict=True)), default=0)
    names = shorten_labels([name for _, name, _ in lines], room)
    return [
        Text.assemble(amount(scope.bytes, total), (branch, "dim"), (name, "" if branch else "bold"), (n, "dim"))
        for (branch, _, scope), name, n in zip(lines, names, counts, strict=True)
    ]


def _beneath(scope: FoldedScope, indent: str) -> Iterator[Line]:
    """Yield the lines beneath a scope."""
    down, end, middle = ("│  ", "└─ ", "├─ ") if is_unicode() else ("|  ", "`- ", "|- ")
    for i, inner in enumerate(scope.children):
        last = i == len(scope.children) - 1
        yield indent + (end if last else middle), one_line(inner.name), inner
        yield from _beneath(inner, indent + ("   " if last else down))
