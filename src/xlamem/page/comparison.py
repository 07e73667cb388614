"""The model of what changed from one program to another: `Difference` in script/data/model.ts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from ..compare.difference import Diff
from ..compare.groups import numbered_groups, of_account
from ..compare.matching import Matching
from ..compare.verdict import LINES, ranked_edits, signed
from ..compare.view import BY, moved
from ..compare.wording import label, mark, shapes, sources
from ..compute.bill_wording import LABELS
from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import Ints, ints, take
from ..compute.program import Program
from ..formatting import count, shorten
from ..parse.arrays import Rows
from .alignment import aligned_steps

Row = dict[str, Any]

MAX_GROUPS = 20
"""Maximum number of groups of buffers in a waterfall. Smaller ones are one row."""
MIN_SHARE = 0.005
"""Groups with less than this share of the largest one's change are smaller ones too."""
MAX_TEXT = 2000
"""Maximum length of a sentence: one about shardings can be of any length."""


@dataclass(frozen=True)
class Pairs:
    """What corresponds in A and B."""

    a: Ints
    b: Ints


@dataclass(frozen=True)
class Members:
    """The buffers of the rows of a waterfall."""

    row: Ints
    """Row of the waterfall."""
    a: Ints
    """Row of the buffers of A, -1 for none."""
    b: Ints


@dataclass(frozen=True)
class Waterfall:
    """The changes from a number of A to that of B, in bytes: a + the changes = b."""

    a: int
    b: int
    rows: list[Row]
    """label, detail, mark, change, n and source."""


@dataclass(frozen=True)
class AccountDifference:
    """What changed in a memory space, or in device_total."""

    account: str
    reserved: Waterfall
    peak: Waterfall
    members: Members
    """The buffers of the rows of `peak`."""
    step_a: int
    """The steps that are compared."""
    step_b: int


@dataclass(frozen=True)
class Difference:
    """What changed from A to B."""

    verdict: str
    same: bool
    doubt: str
    accounts: list[AccountDifference]
    edits: list[Row]
    """text, kind, evidence, change and n."""
    steps: Pairs
    """Matched steps, both ascending."""
    buffers: Pairs
    """Rows of the buffers that match, ascending in A; -1 for one that its model leaves out."""


def difference(d: Diff, a: Ints, b: Ints) -> Difference:
    """Return the model of a difference, given the value ids of the buffers in the models of A and B."""
    m = d._matching
    rows = Pairs(Rows(a)(m.a.value_ids), Rows(b)(m.b.value_ids))
    return Difference(
        verdict=shorten(d.verdict, MAX_TEXT),
        same=d.is_same,
        doubt=d.doubt,
        accounts=[_account(d, row, rows) for row in changed_accounts(d)],
        edits=[_edit(row) for row in ranked_edits(d)],
        steps=Pairs(*aligned_steps(m)),
        buffers=_matched_buffers(m, rows),
    )


def _edit(row: Row) -> Row:
    text = {"text": shorten(row["text"], MAX_TEXT)}
    return text | {name: row[name] for name in ("kind", "evidence", "change", "n")}


def changed_accounts(d: Diff) -> list[Row]:
    """Return the rows of device_total and of the memory spaces that changed, unless a space is all of device_total."""
    first, *spaces = d.accounts.to_pylist()
    changed = {name for table in (d.bills, d.buffers) for name in table["account"].unique().to_pylist()}
    changed |= {s["account"] for s in spaces if (s["reserved_a"], s["peak_a"]) != (s["reserved_b"], s["peak_b"])}
    return [first, *(s for s in spaces if s["account"] in changed and {**s, "account": DEVICE_TOTAL} != first)]


def _matched_buffers(m: Matching, rows: Pairs) -> Pairs:
    """Return the pairs of matched values that a model has. `rows` are the rows of all values, -1 for none."""
    values = np.flatnonzero(m.value >= 0)
    a, b = rows.a[values], rows.b[m.value[values]]
    shown = np.flatnonzero((a >= 0) | (b >= 0))
    order = shown[np.lexsort((b[shown], a[shown]))]
    return Pairs(a[order], b[order])


# -- accounts ------------------------------------------------------------------------------------


def _account(d: Diff, account: Row, rows: Pairs) -> AccountDifference:
    name = account["account"]
    groups, number = numbered_groups(d, BY, account=name)
    n = _n_listed(ints(groups, "change"))
    return AccountDifference(
        account=name,
        reserved=Waterfall(account["reserved_a"], account["reserved_b"], list(_lines(d, name))),
        peak=Waterfall(account["peak_a"], account["peak_b"], _peak_rows(groups.to_pylist(), n, account)),
        members=_members(d, name, np.minimum(number, n), rows),
        step_a=account["step_a"],
        step_b=account["step_b"],
    )


def _lines(d: Diff, account: str) -> Iterator[Row]:
    """Yield a row for each line of the bill that changed, largest first."""
    parts = of_account(d.bills, account).to_pylist()
    lines = [(line, list(group)) for line, group in groupby(parts, key=lambda row: row["line"])]
    for line, group in sorted(lines, key=lambda pair: -abs(_sum(pair[1]))):
        several = [f"{LABELS.get(r['part'], r['part'])} {signed(r['change'])}" for r in group if r["part"] is not None]
        detail = ", ".join(several) if len(group) > 1 else ""
        yield _row(LINES[line], _sum(group), detail=detail)


def _n_listed(change: Ints) -> int:
    """Return how many groups, largest first, have a row of their own. There is no row for a single smaller group."""
    size = np.abs(change)
    n = min(MAX_GROUPS, int((size >= MIN_SHARE * size.max(initial=0)).sum()))
    return n if len(size) > n + 1 else len(size)


def _peak_rows(groups: list[Row], n: int, account: Row) -> list[Row]:
    """Return a row for each of the n largest groups; one for the smaller groups; and one if the peak moved."""
    rows = [
        _row(label(g, BY), g["change"], detail=shapes(g), mark=mark(g), n=g["n"], source=sources(g)) for g in groups[:n]
    ]
    if rest := groups[n:]:
        rows.append(_row(f"others in {count(len(rest), 'smaller group')}", _sum(rest), n=sum(g["n"] for g in rest)))
    if account["moved"]:
        title, _, detail = moved(account).partition(": ")
        rows.append(_row(title, account["moved"], detail=detail))
    return rows


def _row(label: str, change: int, *, detail: str = "", mark: str = "", n: int = 0, source: str = "") -> Row:
    return {"label": label, "detail": detail, "mark": mark, "change": change, "n": n, "source": source}


def _sum(rows: list[Row]) -> int:
    return sum(row["change"] for row in rows)


def _members(d: Diff, account: str, number: Ints, rows: Pairs) -> Members:
    """Return the buffers of each row of the waterfall, given the row of each buffer of the account."""
    buffers, m = of_account(d.buffers, account), d._matching
    a = _buffer_rows(m.a, ints(buffers, "value_id_a"), rows.a)
    b = _buffer_rows(m.b, ints(buffers, "value_id_b"), rows.b)
    return Members(number, a, b)


def _buffer_rows(p: Program, value_ids: Ints, rows: Ints) -> Ints:
    return take(rows, np.where(value_ids >= 0, p.row_of_value(value_ids), -1))
