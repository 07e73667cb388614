"""What a terminal and a notebook show of the difference of two programs."""

from __future__ import annotations

from ..compute.bills import DEVICE_TOTAL
from ..display import Grid, View, fields
from ..formatting import count, size
from .groups import difference_groups, of_account
from .tables import DiffTables
from .verdict import signed, verdict
from .wording import Row, label, mark, relative, shapes, share, sources

N_ROWS = 10
"""Maximum number of groups of buffers that are shown."""
BY = ("buffer", "cause")


def view(d: DiffTables) -> View:
    """Return the verdict, the accounts that changed, and the largest groups of buffers."""
    title = f"xlamem.Diff: {verdict(d)}"
    return View(title) if d.is_same else View(title, (fields([("A", d.a), ("B", d.b)]), _accounts(d), _groups(d)))


def numbers(d: DiffTables) -> list[Row]:
    """Return a row for what must fit and one for the peak, of device_total and of each memory space that changed.

    A memory space that is all of device_total is left out.
    """
    first, *spaces = d.accounts.to_pylist()
    spaces = [s for s in spaces if {**s, "account": DEVICE_TOTAL} != first]
    rows = []
    for account in (first, *spaces):
        numbers = [("reserved", "must fit" if account is first else "reserved"), ("peak", "peak")]
        for name, text in numbers if d.has_peaks else numbers[:1]:
            a, b = account[f"{name}_a"], account[f"{name}_b"]
            if a != b or account is first:
                rows.append({"account": account["account"], "number": text, "a": a, "b": b, "change": b - a})
    return rows


def moved(account: Row) -> str:
    """Say which peak is at another step than the one that is compared."""
    # The step that is compared may be a later one with the same peak.
    side = "a" if account["in_use_a"] != account["peak_a"] else "b"
    peak, step = account[f"peak_step_{side}"], account[f"step_{side}"]
    return f"peak moved: that of {side.upper()} is at step {peak:,}, not {step:,}"


def _accounts(d: DiffTables) -> Grid:
    rows = [
        [r["account"], r["number"], size(r["a"]), size(r["b"]), signed(r["change"]), relative(r["a"], r["b"])]
        for r in numbers(d)
    ]
    return Grid(["account", "", "A", "B", "change", ""], rows, frozenset((2, 3, 4, 5)))


def _groups(d: DiffTables) -> Grid:
    total = of_account(d.accounts, DEVICE_TOTAL).to_pylist()[0]
    groups = difference_groups(d, BY).to_pylist()
    rows = [
        [signed(g["change"]), share(g["change"], d.peak_change), mark(g), f"{g['n']:,}", label(g, BY), shapes(g),
         sources(g)]
        for g in groups[:N_ROWS]
    ]  # fmt: skip
    if total["moved"]:
        rows.append([signed(total["moved"]), share(total["moved"], d.peak_change), "", "", moved(total), "", ""])
    more = len(groups) - N_ROWS
    note = f"and {count(more, 'smaller group')}: the attribute buffers has all buffers" if more > 0 else ""
    return Grid(["change", "", "cause", "n", "buffers", "shape", "source"], rows, frozenset((0, 1, 3)), note)
