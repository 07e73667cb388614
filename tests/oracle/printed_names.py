"""Live sets with the names that datasets have: those of the defining instructions, as printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from xlamem import Dump, schema
from xlamem.compute.op_names import scopes
from xlamem.compute.program import program


def with_printed_names(dump: Dump, rows: pa.Table) -> pa.Table:
    """Return rows of `live_set` with the names of their defining instructions, as datasets have them."""
    p = program(dump)
    row_of = {int(v): i for i, v in enumerate(p.value_ids)}
    owner = {int(a): int(v) for a, v in zip(p.allocation_ids, p.representative, strict=True)}
    pairs = zip(rows["value_id"].to_pylist(), rows["allocation"].to_pylist(), strict=True)
    values = np.array([owner[a] if v is None else row_of[v] for v, a in pairs], np.int64)
    for name, column in p.source_columns(values).items():
        rows = rows.set_column(rows.schema.get_field_index(name), name, column)
    return rows.select([c for c in schema.WAREHOUSE["peak_members"].names if c in rows.column_names])


def scopes_of(rows: list[dict[str, Any]]) -> dict[tuple[str, str | None], tuple[int, int]]:
    """Return bytes and number of rows by memory space and scope."""
    names = scopes(pa.array([r["op_name"] for r in rows], pa.string())).to_pylist()
    sums: dict[tuple[str, str | None], tuple[int, int]] = {}
    for row, scope in zip(rows, names, strict=True):
        size, n = sums.get((row["memory_space"], scope), (0, 0))
        sums[row["memory_space"], scope] = size + row["bytes"], n + 1
    return sums
