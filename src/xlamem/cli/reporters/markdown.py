"""`xlamem diff` as Markdown: a comment for a pull request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...compare.verdict import signed
from ...compare.view import moved, numbers
from ...compare.wording import OTHER_EDITS, label, mark, relative, shapes, share, sources
from ...display.markdown import code, escaped, table
from ...formatting import count, size
from . import pairs

if TYPE_CHECKING:
    from .diff import Comparison

N_ROWS = 10
"""Number of rows of a table without --limit."""


def comment(c: Comparison, limit: int | None) -> str:
    """Return the verdict, a table of accounts, a table of contributors, and what else changed."""
    lines = [f"**{escaped(c.diff.verdict)}**"]
    lines += ["", *(f"> {escaped(text)}" for text in c.problems())] if c.problems() else []
    if not c.diff.is_same:
        lines += ["", *_accounts(c), "", *_contributors(c, N_ROWS if limit is None else limit)]
    if edits := c.other_edits():
        lines += ["", f"{OTHER_EDITS[c.diff.is_same].capitalize()}:", ""]
        lines += [f"- {escaped(e['text'])}" + (f" ({signed(e['change'])})" if e["change"] else "") for e in edits]
    return "\n".join(lines)


def _accounts(c: Comparison) -> list[str]:
    rows = [
        [escaped(r["account"]), r["number"], size(r["a"]), size(r["b"]), signed(r["change"]), relative(r["a"], r["b"])]
        for r in numbers(c.diff)
    ]
    return table(["account", "", "A:", "B:", "change:", ":"], rows)


def _contributors(c: Comparison, limit: int) -> list[str]:
    """Return a table whose first column adds up to the change of the peak."""
    groups, row = c.groups(), c.row
    rows = [
        [signed(g["change"]), share(g["change"], c.peak_change), escaped(mark(g)), f"{g['n']:,}", code(label(g, c.by)),
         code(shapes(g)), code(sources(g))]
        for g in groups[:limit]
    ]  # fmt: skip
    if rest := groups[limit:]:
        total = sum(g["change"] for g in rest)
        names = count(len(rest), "other group")
        rows.append([signed(total), share(total, c.peak_change), "", f"{sum(g['n'] for g in rest):,}", names, "", ""])
    if row["moved"]:
        rows.append([signed(row["moved"]), share(row["moved"], c.peak_change), "", "", moved(row), "", ""])
    number = "peak" if c.diff.has_peaks else "reserved"
    total_row = [f"**{signed(c.peak_change)}**", "", "", "", f"**{number} of {escaped(c.account)}**", "", ""]
    return table(["change:", "share:", "cause", "n:", "buffers", "shape", "source"], [*rows, total_row])


def pairs_comment(changes: pairs.Changes, limit: int | None) -> str:
    """Return how many programs changed, a table of them, and the verdict on the largest change."""
    lines = [f"**{escaped(changes.summary)}**"]
    rows = changes.listed
    shown = rows[: pairs.N_ROWS if limit is None else limit]
    if shown:
        body = [[*map(escaped, pairs.cells(row)), code(changes.name(row))] for row in shown]
        lines += ["", *table([*(f"{name}:" for name in pairs.HEADINGS[:-1]), pairs.HEADINGS[-1]], body)]
    if more := len(rows) - len(shown):
        lines += ["", f"and {more:,} more"]
    lines += [f"\nNot known: {escaped(problem)}" for problem in changes.problems]
    if changes.verdict:
        lines += ["", f"{code(changes.name(changes.changed[0]))}: {escaped(changes.verdict)}"]
    return "\n".join(lines)
