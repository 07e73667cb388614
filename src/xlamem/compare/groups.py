"""Group the buffers that contribute to a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import (
    Ints,
    arrow_array,
    decoded,
    encoded,
    flags_of,
    groups_of,
    ints,
    is_in,
    nullable,
    sums_of,
    table_of_columns,
    take,
)
from ..compute.grouping import key_column
from ..compute.op_names import matching, plain_names, shortened_paths
from ..compute.wording import move_of
from ..errors import UsageError
from ..formatting import similar
from .rows import UNNAMED_PARAMETER
from .tables import DiffTables

BUFFER = "buffer"
"""Key for like buffers: the same folded op_name, or the same instruction without its number, and source line."""
KEYS = (
    BUFFER, "cause", "edit", "scope", "layer", "phase", "kind", "category", "memory_space", "source", "element_type",
)  # fmt: skip
SIDES = ("category", "instruction", "shape", "element_type", "source_file", "source_line")


def difference_groups(
    d: DiffTables, by: Sequence[str] | str = (BUFFER, "cause"), *, account: str = DEVICE_TOTAL, fold: bool = True
) -> pa.Table:
    """Return the buffers that contribute to the difference of a peak, grouped by one or more keys.

    Parameters
    ----------
    d
        The result of `diff`.
    by
        One or more of buffer (like buffers), cause, edit, scope, layer, phase, kind, category, memory_space, source and
        element_type. B decides where both sides have one.
    account
        Memory space, or device_total.
    fold
        Group layers together: ``layers_17`` -> ``layers_*``.

    Returns
    -------
    pyarrow.Table
        Table ``difference_groups`` in bytes, largest absolute change first.
    """
    return numbered_groups(d, by, account=account, fold=fold)[0]


def numbered_groups(
    d: DiffTables, by: Sequence[str] | str = (BUFFER, "cause"), *, account: str = DEVICE_TOTAL, fold: bool = True
) -> tuple[pa.Table, Ints]:
    """Return the groups as `difference_groups` does, and the row of the group of each of the account's buffers."""
    by = (by,) if isinstance(by, str) else tuple(by)
    if not by or any(key not in KEYS for key in by):
        unknown = [key for key in by if key not in KEYS]
        raise UsageError(f"cannot group by {', '.join(unknown) or 'nothing'}: {similar(unknown, KEYS, 'the keys are')}")
    names = d.accounts["account"].to_pylist()
    if account not in names:
        raise UsageError(f"no account {account!r}; {similar(account, names)}")
    rows = _with_common_columns(of_account(d.buffers, account))
    keys = [_key(rows, d, key, fold=fold) for key in by]
    first, group = groups_of(*(codes for codes, _ in keys))
    ranked = _ranked(rows, first, group)
    place = np.empty(len(ranked), np.int64)
    place[ranked] = np.arange(len(ranked))
    return _table(rows, by, keys, first, group, ranked), place[group]


def _ranked(rows: pa.Table, first: Ints, group: Ints) -> Ints:
    """Return the groups in the order of their changes, the largest first."""
    return np.lexsort((first, -np.abs(sums_of(ints(rows, "change"), group, len(first)))))


def _with_common_columns(rows: pa.Table) -> pa.Table:
    """Add columns as `live_set` has them: those of B, or of A where a buffer is gone."""
    in_b = arrow_array(ints(rows, "bytes_b") > 0)
    for name in SIDES:
        a, b = (rows[f"{name}_{side}"] for side in "ab")
        if pa.types.is_dictionary(a.type):
            a, b = pc.cast(a, pa.string()), pc.cast(b, pa.string())
        rows = rows.append_column(name, pc.if_else(in_b, b, a))
    return rows


def _key(rows: pa.Table, d: DiffTables, key: str, *, fold: bool) -> tuple[Ints, pa.Array]:
    if key == BUFFER:
        return _buffer_names(rows, fold=fold)
    if key == "edit":
        return ints(rows, "edit"), d.edits["text"].combine_chunks()
    return encoded(key_column(rows, key, None, fold))


def _buffer_names(rows: pa.Table, *, fold: bool) -> tuple[Ints, pa.Array]:
    """Return the plain op_name, or else the instruction without its number; arguments may have been moved.

    The name of a temporary that holds a moved argument begins with `all-gather of`, for example, if its instruction is
    named after that opcode, otherwise with `copy of`.

    Arguments whose instruction has no name either, as those of TensorFlow, are `argument`.
    """
    codes, names = encoded(rows["op_name"])
    plain = shortened_paths(plain_names(pc.cast(names, pa.string())), None, fold)
    other_codes, others = encoded(rows["instruction"])
    stems = pc.replace_substring_regex(pc.cast(others, pa.string()), r"[.\d]+$", "")
    plain = pc.cast(plain, pa.string())
    unnamed = is_in(rows["category"], ["parameter", "donated"]) & (codes < 0)
    unnamed &= flags_of(matching(stems, UNNAMED_PARAMETER), other_codes)
    moved = np.flatnonzero(is_in(rows["category"], ["temp"]) & (ints(rows, "argument") >= 0) & (codes >= 0))
    stem_codes, opcodes = encoded(stems)
    moves = pa.array([move_of(opcode) or "copy of " for opcode in [*opcodes.to_pylist(), None]], pa.string())
    of_moved = take(stem_codes, other_codes[moved]) % len(moves)
    copies = pc.binary_join_element_wise(
        pc.take(moves, arrow_array(of_moved)), pc.take(plain, arrow_array(codes[moved])), ""
    )
    distinct, dictionary = encoded(pa.concat_arrays([plain, stems, copies, pa.array(["argument"])]))
    own = codes.copy()
    own[moved] = np.arange(len(moved)) + len(plain) + len(stems)
    both = np.where(codes >= 0, own, np.where(other_codes >= 0, other_codes + len(plain), -1))
    return take(distinct, np.where(unnamed, len(distinct) - 1, both)), dictionary


def _table(
    rows: pa.Table, by: Sequence[str], keys: list[tuple[Ints, pa.Array]], first: Ints, group: Ints, ranked: Ints
) -> pa.Table:
    n = len(first)
    change = ints(rows, "change")
    total = sums_of(change, group, n)
    # The largest buffer of each group stands for it.
    order = np.argsort(np.abs(change), kind="stable")
    largest = np.zeros(n, np.int64)
    largest[group[order]] = order
    sample = pc.take(rows, arrow_array(largest[ranked]))
    columns: dict[str, Any] = {key: pa.nulls(n, pa.string()) for key in KEYS}
    columns |= {key: decoded(codes[first[ranked]], texts) for key, (codes, texts) in zip(by, keys, strict=True)}
    for name in ("bytes_a", "bytes_b"):
        columns[name] = sums_of(ints(rows, name), group, n)[ranked]
    columns["change"] = total[ranked]
    columns["n"] = np.bincount(group, minlength=n)[ranked]
    columns["n_shapes"] = _n_distinct(rows["shape"], group, n)[ranked]
    for name in ("instruction", "shape", "source_file", "memory_space"):
        columns |= {f"{name}_{side}": sample[f"{name}_{side}"] for side in "ab"}
    for name in ("source_line_a", "source_line_b"):
        columns[name] = nullable(ints(sample, name))
    return table_of_columns(schema.COMPARED["difference_groups"].columns, columns)


def _n_distinct(column: pa.ChunkedArray, group: Ints, n: int) -> Ints:
    codes, _ = encoded(column)
    first, _ = groups_of(group, codes)
    counts: Ints = np.bincount(group[first], minlength=n)
    return counts


def of_account(table: pa.Table, account: str) -> pa.Table:
    """Return the rows of an account."""
    return pc.filter(table, arrow_array(is_in(table["account"], [account])))
