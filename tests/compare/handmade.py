"""Small differences, for the tests of their wording."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from xlamem import schema
from xlamem.compare.tables import DiffTables

MIB = 1 << 20
Row = dict[str, Any]


def table(name: str, rows: list[Row]) -> pa.Table:
    """Return a table of comparisons; columns that a row does not give are null."""
    arrow = schema.COMPARED[name].arrow
    columns = []
    for field in arrow:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, arrow)


def account(name: str, a: int, b: int, *, peaks: tuple[int, int] | None = None, **more: Any) -> Row:
    """Return an account that reserves `a` and `b` bytes."""
    peak_a, peak_b = peaks or (a, b)
    plain = {
        "account": name, "reserved_a": a, "reserved_b": b, "peak_a": peak_a, "peak_b": peak_b, "peak_step_a": 3,
        "peak_step_b": 4, "step_a": 3, "step_b": 4, "in_use_a": peak_a, "in_use_b": peak_b, "moved": 0,
    }  # fmt: skip
    return {**plain, **more}


def buffer(change: int, **more: Any) -> Row:
    """Return a buffer of device_total that has MIB bytes on the side where it is smaller."""
    plain: Row = {
        "account": "device_total", "memory_space": "hbm", "memory_space_a": "hbm", "memory_space_b": "hbm",
        "cause": "larger" if change > 0 else "smaller", "bytes_a": MIB - min(change, 0), "data_change": change,
        "bytes_b": MIB + max(change, 0), "change": change, "instruction_a": "add.1", "instruction_b": "add.2",
        "shape_a": "f32[8]", "shape_b": "f32[8]", "category_a": "temp", "category_b": "temp", "edit": None,
    }  # fmt: skip
    return {**plain, **more}


def edit(kind: str, change: int, **more: Any) -> Row:
    return {"kind": kind, "text": f"{kind} differ", "evidence": "interface", "change": change, "n": 1, **more}


def difference(
    accounts: list[Row], bills: list[Row] | None = None, buffers: list[Row] | None = None,
    edits: list[Row] | None = None, doubt: str = "",
) -> DiffTables:
    lines = [{"account": "device_total", "part": None, "bytes_a": 0, "bytes_b": b["change"], **b} for b in bills or []]
    numbered = [{**e, "edit": i} for i, e in enumerate(edits or [])]
    return DiffTables(
        "a", "b", table("account_differences", accounts), table("bill_differences", lines),
        table("differences", buffers or []), table("edits", numbered), doubt,
    )  # fmt: skip
