"""Compare two programs: what must fit, what is in use at the peak, and why it changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.bills import DEVICE_TOTAL, row_names
from ..compute.columns import Ints, arrow_array, ints, is_in, nullable, sums_of, table_of_columns
from ..compute.peaks import require_allocations
from ..compute.program import Program, program
from ..dump import DumpLike, as_tables
from .account import AccountDifference, account_differences, accounts
from .context import Edit
from .contributors import contributors
from .doubts import doubt_of_numbers, doubt_of_peak
from .edits import find_edits
from .graph import both_sides
from .instructions import RULES
from .matching import Matching
from .rows import Differences
from .tables import DiffTables
from .verdict import verdict

if TYPE_CHECKING:
    from ..display import View


@dataclass(frozen=True, repr=False)
class Diff(DiffTables):
    """The difference of two programs A and B. Sizes are in bytes; a change is that of B minus that of A."""

    _matching: Matching = field(compare=False)

    @cached_property
    def matches(self) -> pa.Table:
        """The pairs of matching values: value_id_a, value_id_b, and how they were matched."""
        m = self._matching
        rows = np.flatnonzero(m.value >= 0)
        rules = pa.DictionaryArray.from_arrays(arrow_array(m.rule[rows].astype(np.int32)), pa.array(RULES, pa.string()))
        columns = {"value_id_a": m.a.value_ids[rows], "value_id_b": m.b.value_ids[m.value[rows]], "match": rules}
        return table_of_columns(schema.COMPARED["matches"].columns, columns)

    @property
    def verdict(self) -> str:
        """What changed, in a sentence."""
        return verdict(self)

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from .view import view  # not needed to compute

        return view(self)


def diff(a: DumpLike, b: DumpLike) -> Diff:
    """Compare two programs, of which B is the newer one.

    Values are matched whatever the numbers in their names. The difference of each bill is given line by line, and that
    of each peak buffer by buffer, at the step of the larger peak and the step of the other program that corresponds
    to it; every byte has one cause. docs/numbers.md defines the rules.

    Parameters
    ----------
    a, b
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    Diff
        Tables in bytes and steps, and a verdict.

    Raises
    ------
    UsageError
        One of them has no allocations, so that its memory use is unknown.
    """
    first, second = both_sides(_read, a, b)
    doubt = _doubt(first, second)
    if first.steps is None or second.steps is None:  # all allocations of one side are compared with all of the other
        first, second = (Program(p.tables, timed=False) for p in (first, second))
    m = Matching(first, second)
    differences = account_differences(m, accounts(first, second))
    buffers = contributors(m, differences)
    edits, explained = find_edits(m, Differences(m, buffers))
    edit_table, number = _edit_table(edits, explained, buffers)
    at = buffers.column_names.index("edit")
    buffers = buffers.set_column(at, buffers.schema.field("edit"), nullable(number))
    bills = pa.concat_tables([_bill_table(d) for d in differences]).unify_dictionaries().combine_chunks()
    return Diff(first.name, second.name, _account_table(differences), bills, buffers, edit_table, doubt, m)


def _read(dump: DumpLike) -> Program:
    """Return a program after reading every section: at once is faster than one by one, and all of them are needed."""
    tables = as_tables(dump)
    tables["modules"]
    p = program(tables)
    require_allocations(p)
    return p


def _doubt(a: Program, b: Program) -> str:
    for side, p in (("A", a), ("B", b)):
        if doubt := doubt_of_numbers(p.tables) or doubt_of_peak(p):
            return f"{side} {doubt}"
    return ""


def _account_table(differences: list[AccountDifference]) -> pa.Table:
    rows = [
        {
            "account": d.account.name,
            "reserved_a": d.reserved[0], "reserved_b": d.reserved[1],
            "peak_a": d.peak[0], "peak_b": d.peak[1],
            "peak_step_a": d.peak_step[0], "peak_step_b": d.peak_step[1],
            "step_a": d.step[0], "step_b": d.step[1],
            "in_use_a": d.in_use[0], "in_use_b": d.in_use[1],
            "moved": d.moved,
        }
        for d in differences
    ]  # fmt: skip
    columns = {name: np.array([row[name] for row in rows], np.int64) for name in rows[0] if name != "account"}
    steps = {name: nullable(columns[name]) for name in ("peak_step_a", "peak_step_b")}
    names = pa.array([row["account"] for row in rows], pa.string())
    return table_of_columns(schema.COMPARED["account_differences"].columns, {"account": names, **columns, **steps})


def _bill_table(d: AccountDifference) -> pa.Table:
    row = np.flatnonzero(d.rows[0] != d.rows[1])
    a, b = (rows[row] for rows in d.rows)
    columns = {
        "account": pa.array([d.account.name] * len(row), pa.string()),
        **row_names(row),
        "bytes_a": a, "bytes_b": b, "change": b - a,
    }  # fmt: skip
    return table_of_columns(schema.COMPARED["bill_differences"].columns, columns)


def _edit_table(edits: list[Edit], explained: Ints, buffers: pa.Table) -> tuple[pa.Table, Ints]:
    """Return the table `edits`, and the number of the edit of each buffer."""
    counted = is_in(buffers["account"], [DEVICE_TOTAL]) & (explained >= 0)
    change = sums_of(ints(buffers, "change")[counted], explained[counted], len(edits))
    n = np.bincount(explained[counted], minlength=len(edits))
    order = np.argsort(-np.abs(change), kind="stable")
    number = np.full(len(edits) + 1, -1)
    number[order] = np.arange(len(edits))
    columns = {
        "edit": np.arange(len(edits)),
        "kind": pa.array([edits[i].kind for i in order], pa.string()),
        "text": pa.array([edits[i].text for i in order], pa.string()),
        "evidence": pa.array([edits[i].evidence for i in order], pa.string()),
        "change": change[order],
        "n": n[order],
    }
    return table_of_columns(schema.COMPARED["edits"].columns, columns), number[explained]
