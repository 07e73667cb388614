"""Group the bytes in use by scope, source line, opcode, shape and other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..dump import DumpLike
from ..errors import UsageError
from .charges import live_set
from .columns import computed_table, decoded, encoded, groups_of, ints, sums_of

Key = Literal[
    "memory_space", "category", "role", "op_name", "scope", "source", "opcode", "element_type", "shape", "instruction"
]
KEYS: tuple[str, ...] = get_args(Key)

_WRAPPERS = (
    r"\b(?:p?jit|transpose|jvp|vmap|pmap|remat|rematted_computation|checkpoint|custom_jvp|custom_vjp|shard_map|named)"
    r"\(([^()]*)\)"
)
_WRAPPER_DEPTH = 4
"""Maximum depth of nested wrappers that are removed, as in transpose(jvp(jit(f)))."""


def scopes(names: pa.Array, *, depth: int | None = None, fold: bool = False) -> pa.Array:
    """Return the scope of each op_name: its path without the last component (the primitive) and JAX's wrappers.

    `jit(f)/jit(main)/transpose(jvp(Model))/layers_17/dot_general` becomes `Model/layers_17`, or `Model/layers_*` with
    `fold`, or `Model` with `depth=1`. An op_name with a single component (the name of a parameter) is kept.
    """
    # The name of a parameter (params['a/b'].c) is not a path.
    text = pc.replace_substring_regex(plain_names(names), r"^([^'\"\[]*)/[^/'\"\[]*$", r"\1")
    return shortened_paths(text, depth, fold)


def plain_names(names: pa.Array) -> pa.Array:
    """Return op_names without JAX's wrappers: `jit(f)/transpose(jvp(Model))/dot` becomes `Model/dot`."""
    text = pc.replace_substring_regex(names, r"^(?:p?jit\([^()]*\)/)+", "")
    for _ in range(_WRAPPER_DEPTH):
        text = pc.replace_substring_regex(text, _WRAPPERS, r"\1")
    text = pc.replace_substring_regex(text, r"/{2,}", "/")
    return pc.replace_substring_regex(text, r"^/", "")


def shortened_paths(paths: pa.Array, depth: int | None, fold: bool) -> pa.Array:
    """Fold layers (`layers_17` -> `layers_*`, `block.3` -> `block.*`, `h[12]` -> `h[*]`), keep `depth` components."""
    if fold:
        paths = pc.replace_substring_regex(paths, r"([_.\[/])\d+\b", r"\1*")
        paths = pc.replace_substring_regex(paths, r"^\d+\b", "*")
    if depth is not None:
        paths = pc.replace_substring_regex(paths, rf"^((?:[^/]*/){{{depth - 1}}}[^/]*)/.*$", r"\1")
    return paths


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
        One or more of memory_space, category, role, op_name, scope (see `scopes`), source (file:line), opcode,
        element_type, shape and instruction.
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
    sums = sums_by({key: key_column(rows, key, depth, fold) for key in by}, rows["bytes"])
    return sums.sort_by([("bytes", "descending"), *((k, "ascending") for k in by)])


def folded_scopes(members: pa.Table) -> list[dict[str, Any]]:
    """Return the sums of rows of `live_set` by category, scope (with layers folded) and opcode, for `scope_tree`."""
    keys = [encoded(key_column(members, key, None, fold=True)) for key in ("category", "scope", "opcode")]
    first, group = groups_of(*(codes for codes, _ in keys))
    sizes = sums_of(ints(members, "bytes"), group, len(first)).tolist()
    numbers = np.bincount(group, minlength=len(first)).tolist()
    texts = [decoded(codes[first], names).to_pylist() for codes, names in keys]
    rows = zip(*texts, sizes, numbers, strict=True)
    return [{"category": c, "scope": s, "opcode": o, "bytes": size, "n": n} for c, s, o, size, n in rows]


def scopes_in_use(dump: DumpLike) -> pa.Table:
    """Return the bytes in use at the peak of each memory space, by scope: the table ``scopes``.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    """
    rows = live_set(dump)
    space = {key: rows[key] for key in ("memory_space", "color", "page")}
    sums = sums_by({**space, "scope": key_column(rows, "scope", None, False)}, rows["bytes"])
    order = [("color", "ascending"), ("page", "ascending"), ("bytes", "descending"), ("scope", "ascending")]
    table = sums.sort_by(order)
    return computed_table("scopes", {name: table[name] for name in table.column_names})


def sums_by(keys: dict[str, pa.ChunkedArray], sizes: pa.ChunkedArray) -> pa.Table:
    """Return the columns of `keys`, and the sum ``bytes`` and number ``n`` of the sizes with each combination."""
    grouped = pa.table({**keys, "bytes": sizes}).group_by(list(keys), use_threads=False)
    sums = grouped.aggregate([("bytes", "sum"), ("bytes", "count")])
    names = {"bytes_sum": "bytes", "bytes_count": "n"}
    return sums.rename_columns([names.get(c, c) for c in sums.column_names]).select([*keys, "bytes", "n"])


def key_column(rows: pa.Table, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Return the value of a key for each row of `live_set`."""
    if key in ("scope", "op_name"):
        return _path_column(rows["op_name"], key, depth, fold)
    if key != "source":
        return rows[key].cast(pa.string())
    file, line = (rows[name].cast(pa.string()) for name in ("source_file", "source_line"))
    return pc.coalesce(pc.binary_join_element_wise(file, line, ":"), file)


def _path_column(column: pa.ChunkedArray, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Return scopes or shortened op_names, processing each distinct op_name only once."""
    array = column.cast(pa.string()).combine_chunks().dictionary_encode()
    names = array.dictionary
    paths = scopes(names, depth=depth, fold=fold) if key == "scope" else shortened_paths(names, depth, fold)
    return pa.chunked_array([paths.take(array.indices)])
