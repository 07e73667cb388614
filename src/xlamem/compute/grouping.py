"""Group the bytes in use by scope, source line, opcode, shape and other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from ..dump import DumpLike
from ..errors import UsageError
from .charges import live_set
from .op_names import scopes, shortened

Key = Literal[
    "memory_space",
    "category",
    "role",
    "op_name",
    "scope",
    "layer",
    "phase",
    "kind",
    "origin",
    "source",
    "opcode",
    "element_type",
    "shape",
    "instruction",
]
KEYS: tuple[str, ...] = get_args(Key)


def attribution(
    dump: DumpLike,
    by: Sequence[Key] | Key = ("scope",),
    *,
    time: int | None = None,
    space: str | int | None = None,
    depth: int | None = None,
    fold: bool = False,
) -> pa.Table:
    """Return the bytes in use at a step, grouped by one or more keys.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    by
        One or more of memory_space, category, role, op_name, scope (see `scopes`), layer, phase, kind, origin (see the
        table `live_set`), source (file:line), opcode, element_type, shape and instruction.
    time, space
        As for `live_set`; the peak of each space by default.
    depth
        Keep only the first components of a scope or op_name.
    fold
        Group layers together: ``layers_17`` -> ``layers_*``.

    Returns
    -------
    pyarrow.Table
        The columns of `by`, ``bytes`` and ``n`` (rows of the live set), largest first. The bytes of a space add up
        to occupied(time) exactly; buffers without a key are in a row in which it is null.
    """
    by = (by,) if isinstance(by, str) else tuple(by)
    if unknown := [k for k in by if k not in KEYS]:
        raise UsageError(f"cannot attribute by {', '.join(unknown)}: there are {', '.join(KEYS)}")
    if depth is not None and depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    rows = live_set(dump, time, space=space)
    columns: dict[str, pa.ChunkedArray] = {key: _key_column(rows, key, depth, fold) for key in by}
    grouped = pa.table(columns | {"bytes": rows["bytes"]}).group_by(list(by), use_threads=False)
    sums = grouped.aggregate([("bytes", "sum"), ("bytes", "count")])
    names = {"bytes_sum": "bytes", "bytes_count": "n"}
    sums = sums.rename_columns([names.get(c, c) for c in sums.column_names])
    return sums.select([*by, "bytes", "n"]).sort_by([("bytes", "descending"), *((k, "ascending") for k in by)])


def _key_column(rows: pa.Table, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    if key in ("scope", "op_name"):
        return _path_column(rows["op_name"], key, depth, fold)
    if key == "layer" and not fold:
        return _layer_column(rows)
    if key != "source":
        return rows[key].cast(pa.string())
    file, line = (rows[name].cast(pa.string()) for name in ("source_file", "source_line"))
    return pc.coalesce(pc.binary_join_element_wise(file, line, ":"), file)


def _layer_column(rows: pa.Table) -> pa.ChunkedArray:
    """Return each layer with its number in place of the `*`."""
    layer, index = rows["layer"].cast(pa.string()), rows["layer_index"].cast(pa.string())
    parts = pc.split_pattern(layer, "*", max_splits=1)
    head, tail = pc.list_element(parts, 0), pc.list_element(parts, 1)
    return pc.coalesce(pc.binary_join_element_wise(head, index, tail, ""), layer)


def _path_column(column: pa.ChunkedArray, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Return scopes or shortened op_names, processing each distinct op_name only once."""
    array = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = array.dictionary
    paths = scopes(names, depth=depth, fold=fold) if key == "scope" else shortened(names, depth, fold)
    return pa.chunked_array([paths.take(array.indices)])
