"""Describe the buffers that contribute to a difference: the table `differences`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.buffer_names import buffer_names, source_columns
from ..compute.columns import Ints, Mask, arrow_array, decoded, encoded, nullable, table_of_columns, take
from ..compute.layout import CATEGORIES
from ..compute.program import Program
from .account import AccountDifference, Contributions
from .graph import both_sides
from .instructions import RULES
from .matching import Matching

NAMES = ("op_name", "argument", "argument_index", "layer", "layer_index", "phase", "kind")


def contributors(m: Matching, differences: list[AccountDifference]) -> pa.Table:
    """Return the buffers whose bytes differ, by account, largest difference first: `differences` without `edit`."""
    tables: dict[tuple[bytes, bytes], pa.Table] = {}
    for d in differences:
        if d.account.key not in tables:
            tables[d.account.key] = _contributors(m, d)
    named = [_named(tables[d.account.key], d.account.name) for d in differences]
    return pa.concat_tables(named).unify_dictionaries().combine_chunks()


def _named(table: pa.Table, account: str) -> pa.Table:
    """Set the account of a table."""
    codes = arrow_array(np.zeros(table.num_rows, np.int32))
    column = pa.DictionaryArray.from_arrays(codes, pa.array([account], pa.string()))
    return table.set_column(0, table.schema.field(0), column)


def _contributors(m: Matching, d: AccountDifference) -> pa.Table:
    c = d.contributions
    change = c.bytes_b - c.bytes_a
    rows = np.flatnonzero(change)
    if not len(rows):
        return schema.COMPARED["differences"].empty
    rows = rows[np.lexsort((rows, -np.abs(change[rows])))]
    value_a, value_b = _values(c, rows)
    columns: dict[str, Any] = {
        "account": pa.array([d.account.name] * len(rows), pa.string()),
        "memory_space": _spaces(m, c, rows),
        "cause": decoded(c.cause[rows], pa.array(list(schema.CAUSES), pa.string())),
        "bytes_a": c.bytes_a[rows],
        "bytes_b": c.bytes_b[rows],
        "change": change[rows],
        "data_change": c.data_b[rows] - c.data_a[rows],
        "match": decoded(_rules(m, value_a, value_b), pa.array(RULES, pa.string())),
    }
    sides = both_sides(_side, (m.a, value_a, c.owner_a[rows]), (m.b, value_b, c.owner_b[rows]))
    for side, names in zip("ab", sides, strict=True):
        columns |= {f"{name}_{side}": column for name, column in names.items()}
    columns |= _common_names(m, value_a, value_b, c.bytes_b[rows] > 0)
    columns["edit"] = pa.nulls(len(rows), pa.int64())
    return table_of_columns(schema.COMPARED["differences"].columns, columns)


def _values(c: Contributions, rows: Ints) -> tuple[Ints, Ints]:
    """Return the values of both sides, also those that match but are not in use."""
    value_a, value_b, other = c.value_a[rows], c.value_b[rows], c.other[rows]
    return (
        np.where((c.owner_a[rows] < 0) & (other >= 0), other, value_a),
        np.where((c.owner_b[rows] < 0) & (other >= 0), other, value_b),
    )


def _rules(m: Matching, value_a: Ints, value_b: Ints) -> Ints:
    """Return how these values were matched: a copy that only one side has by the rule of what it copies."""
    of_a, of_b = take(m.rule, value_a), take(m.rule, take(m.value_of_b, value_b))
    return np.where((value_a >= 0) & (value_b >= 0), np.maximum(of_a, of_b), -1)


def _spaces(m: Matching, c: Contributions, rows: Ints) -> pa.Array:
    names = [s.name for p in (m.a, m.b) for s in p.spaces]
    in_b = take(m.b.space_of_allocation, c.owner_b[rows]) + len(m.a.spaces)
    space = np.where(c.owner_b[rows] >= 0, in_b, take(m.a.space_of_allocation, c.owner_a[rows]))
    return decoded(space, pa.array(names, pa.string()))


def _side(buffers: tuple[Program, Ints, Ints]) -> dict[str, Any]:
    """Return the columns about one side, given values and rows in `allocations`."""
    p, value, owner = buffers
    columns: dict[str, Any] = {
        "value_id": nullable(take(p.value_ids, value)),
        "allocation": nullable(take(p.allocation_ids, owner)),
        "memory_space": decoded(take(p.space, value), pa.array([s.name for s in p.spaces], pa.string())),
        "category": _categories(p, value, owner),
        "start": nullable(take(p.ranges[0], value)),
        "end": nullable(take(p.ranges[1], value)),
    }
    columns |= {name: p.value_text(name, value) for name in ("instruction", "shape_index", "shape", "element_type")}
    return columns | {k: v for k, v in source_columns(p, value).items() if k != "op_name"}


def _categories(p: Program, value: Ints, owner: Ints) -> pa.Array:
    category = take(p.category, owner)
    known = np.flatnonzero(value >= 0)
    category[known] = p.categories_of(value[known])
    return decoded(category, pa.array(CATEGORIES, pa.string()))


def _common_names(m: Matching, value_a: Ints, value_b: Ints, in_b: Mask) -> dict[str, pa.Array]:
    """Return the names of the buffers of B, and of those of A where there is none in B."""
    use_b = in_b & (value_b >= 0) | (value_a < 0)
    a, b = (m.a, np.where(use_b, -1, value_a)), (m.b, np.where(use_b, value_b, -1))
    sides = both_sides(lambda side: buffer_names(*side), a, b)
    return {name: _either(use_b, sides[1][name], sides[0][name]) for name in NAMES}


def _either(first: Mask, a: pa.Array, b: pa.Array) -> pa.Array:
    """Return a where `first` holds, otherwise b."""
    if not pa.types.is_dictionary(a.type):
        return pc.if_else(arrow_array(first), a, b)
    (codes_a, texts_a), (codes_b, texts_b) = encoded(a), encoded(b)
    texts = pa.concat_arrays([pc.cast(texts_a, pa.string()), pc.cast(texts_b, pa.string())])
    return decoded(np.where(first, codes_a, np.where(codes_b < 0, -1, codes_b + len(texts_a))), texts)
