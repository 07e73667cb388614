"""Bytes by scope of the model, source line, opcode, shape, …"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from ..dump import Dump
from ..errors import UsageError
from .occupancy import live_set

Key = Literal[
    "memory_space", "category", "role", "op_name", "scope", "source", "opcode", "element_type", "shape", "instruction"
]
KEYS: tuple[str, ...] = get_args(Key)

_WRAPPERS = (
    r"\b(?:p?jit|transpose|jvp|vmap|pmap|remat|rematted_computation|checkpoint|custom_jvp|custom_vjp|shard_map|named)"
    r"\(([^()]*)\)"
)


def scopes(names: pa.Array, *, depth: int | None = None, fold: bool = False) -> pa.Array:
    """Scopes of op_names: the path without its last part (the primitive) and without what JAX wraps around it.

    `jit(f)/jit(main)/transpose(jvp(Model))/layers_17/dot_general` becomes `Model/layers_17`, with `fold`
    `Model/layers_*`, with `depth=1` `Model`. An op_name of one part (a parameter's name) stays as it is.
    """
    text = pc.replace_substring_regex(names, r"^(?:p?jit\([^()]*\)/)+", "")
    for _ in range(4):  # transpose(jvp(jit(f))): wrappers nest
        text = pc.replace_substring_regex(text, _WRAPPERS, r"\1")
    text = pc.replace_substring_regex(text, r"/{2,}", "/")
    text = pc.replace_substring_regex(text, r"^/", "")
    # A parameter's name (params['a/b'].c) is no path.
    text = pc.replace_substring_regex(text, r"^([^'\"\[]*)/[^/'\"\[]*$", r"\1")
    if fold:
        text = _folded(text)
    if depth is not None:
        text = pc.replace_substring_regex(text, rf"^((?:[^/]*/){{{depth - 1}}}[^/]*)/.*$", r"\1")
    return text


def _folded(text: pa.Array) -> pa.Array:
    """`layers_17` -> `layers_*`, `block.3` -> `block.*`, `h[12]` -> `h[*]`."""
    text = pc.replace_substring_regex(text, r"([_.\[/])\d+\b", r"\1*")
    return pc.replace_substring_regex(text, r"^\d+\b", "*")


def attribution(
    dump: Dump,
    by: Sequence[Key] | Key = ("scope",),
    *,
    time: int | None = None,
    space: str | int | None = None,
    depth: int | None = None,
    fold: bool = False,
) -> pa.Table:
    """What the bytes in use at an instant belong to.

    Parameters
    ----------
    by
        One or more of: memory_space, category, role, op_name, scope (see `scopes`), source (file:line),
        opcode, element_type, shape, instruction.
    time, space
        As in `live_set`: by default the peak of each space.
    depth
        Keep only the first parts of a scope or op_name.
    fold
        Take layers together: ``layers_17`` -> ``layers_*``.

    Returns
    -------
    pyarrow.Table
        The columns of `by`, ``bytes`` and ``n`` (rows of the live set), largest first. Bytes of a space add up
        to occupied(time) exactly; what has no such name is the row with null.
    """
    by = (by,) if isinstance(by, str) else tuple(by)
    if unknown := [k for k in by if k not in KEYS]:
        raise UsageError(f"cannot attribute by {', '.join(unknown)}: there are {', '.join(KEYS)}")
    if depth is not None and depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    rows = live_set(dump, time, space=space)
    columns: dict[str, pa.ChunkedArray] = {}
    for key in by:
        if key == "source":
            line = rows["source_line"].cast(pa.string())
            both = pc.binary_join_element_wise(rows["source_file"].cast(pa.string()), line, ":")
            columns[key] = pc.coalesce(both, rows["source_file"].cast(pa.string()))
        elif key in ("scope", "op_name"):
            columns[key] = by_text(rows["op_name"], key, depth, fold)
        else:
            columns[key] = rows[key].cast(pa.string())
    grouped = pa.table({**columns, "bytes": rows["bytes"]}).group_by(list(by), use_threads=False)
    found = grouped.aggregate([("bytes", "sum"), ("bytes", "count")])
    found = found.rename_columns([{"bytes_sum": "bytes", "bytes_count": "n"}.get(c, c) for c in found.column_names])
    order = [("bytes", "descending"), *((k, "ascending") for k in by)]
    return found.select([*by, "bytes", "n"]).sort_by(order)


def by_text(column: pa.ChunkedArray, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Scopes are made once per distinct op_name of the column."""
    array = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = array.dictionary
    if key == "scope":
        names = scopes(names, depth=depth, fold=fold)
    else:
        names = _folded(names) if fold else names
        if depth is not None:
            names = pc.replace_substring_regex(names, rf"^((?:[^/]*/){{{depth - 1}}}[^/]*)/.*$", r"\1")
    return pa.chunked_array([names.take(array.indices)])
