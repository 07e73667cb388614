"""Group the bytes in use by scope, source line, opcode, shape and other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..dump import DumpLike
from ..errors import UsageError
from ..formatting import similar
from .charges import FUNCTION, live_set_of
from .columns import Ints, Mask, arrow_array, computed_table, decoded, encoded, flags_of, groups_of, ints, sums_of
from .op_names import first_components, plain_names, scopes, shortened_paths
from .program import program

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
    "function",
    "opcode",
    "element_type",
    "shape",
    "instruction",
]
KEYS: tuple[str, ...] = get_args(Key)
SINGLE_SHARE = 0.9
"""Share of the temporaries from which one function tells less than primitives do."""
_LIBRARY_SCOPE = r"\bjit\([^()/]*\)/?|[^/]*->[^/]*/"
"""Components of op_names that name a function of a library, such as `jit(relu)`, or an einsum."""
_COLUMNS = {"scope": ("op_name",), "source": ("source_file", "source_line"), "layer": ("layer", "layer_index")}
"""The columns of `live_set` behind keys that are not columns themselves."""


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
        table `live_set`), source (file:line), function (those that call each other where the buffer is named, the
        outermost first, without libraries: ``train_step/loss_fn/Block.__call__``), opcode, element_type, shape and
        instruction.
    time, space
        As for `live_set`; the peak of each space by default.
    depth
        Keep only the first components of a scope, op_name or function.
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
        raise UsageError(f"cannot attribute by {', '.join(unknown)}: {similar(unknown, KEYS)}")
    if depth is not None and depth < 1:
        raise UsageError(f"depth must be 1 or more, not {depth}")
    rows = live_set_of(program(dump), time, space, {"bytes", *(c for key in by for c in _COLUMNS.get(key, (key,)))})
    sums = sums_by({key: key_column(rows, key, depth, fold) for key in by}, ints(rows, "bytes"))
    return pc.sort_by(sums, [("bytes", "descending"), *((k, "ascending") for k in by)])


def folded_scopes(members: pa.Table, *, functions: bool = False) -> list[dict[str, Any]]:
    """Return the sums of rows of `live_set` by category, scope (with layers folded) and opcode, for `scope_tree`.

    With `functions`, temporaries and outputs have these instead of scopes.
    """
    columns = {key: key_column(members, key, None, fold=True) for key in ("category", "scope", "opcode")}
    if functions:
        computed = _is_category(members, "^temp|^live_out$")
        columns["scope"] = pc.coalesce(pc.if_else(computed, _function_column(members), None), columns["scope"])
    keys = [encoded(column) for column in columns.values()]
    first, group = groups_of(*(codes for codes, _ in keys))
    sizes = sums_of(ints(members, "bytes"), group, len(first)).tolist()
    numbers = np.bincount(group, minlength=len(first)).tolist()
    texts = [decoded(codes[first], names).to_pylist() for codes, names in keys]
    rows = zip(*texts, sizes, numbers, strict=True)
    return [{"category": c, "scope": s, "opcode": o, "bytes": size, "n": n} for c, s, o, size, n in rows]


def have_functions_only(members: pa.Table) -> bool:
    """Return whether functions tell more about most temporaries than their scopes, which are primitives such as `add`.

    So it is without modules and named scopes, as in plain functions and Flax NNX. A single function tells less than
    primitives do. `members` has `FUNCTION`.
    """
    sizes = np.where(_flags(_is_category(members, "^temp")), ints(members, "bytes"), 0)
    is_scope = _are_in_scopes(members)
    is_called = _flags(pc.match_substring_regex(_function_column(members), "/"))
    codes = encoded(members[FUNCTION])[0]
    largest = int(np.bincount(codes[is_called], sizes[is_called]).max(initial=0))
    total, called = int(sizes.sum()), int(sizes[is_called].sum())
    return 4 * int(sizes[is_scope].sum()) < total < 2 * called and largest < SINGLE_SHARE * total


def _are_in_scopes(members: pa.Table) -> Mask:
    """Return which rows are in a module or a named scope; the functions of a library and einsums are none."""
    codes, op_names = encoded(members["op_name"])
    plain = pc.replace_substring_regex(pc.cast(op_names, pa.string()), _LIBRARY_SCOPE, "")
    differ = pc.not_equal(scopes(plain, fold=True), shortened_paths(plain_names(plain), None, fold=True))
    return flags_of(_flags(differ), codes)


def _is_category(members: pa.Table, pattern: str) -> pa.ChunkedArray:
    return pc.match_substring_regex(pc.cast(members["category"], pa.string()), pattern)


def _function_column(members: pa.Table) -> pa.ChunkedArray:
    return pc.cast(members[FUNCTION], pa.string())


def _flags(column: pa.ChunkedArray | pa.Array) -> Mask:
    flags: Mask = np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), bool)
    return flags


def scopes_in_use(dump: DumpLike) -> pa.Table:
    """Return the bytes in use at the peak of each memory space, by scope: the table ``scopes``.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    """
    rows = live_set_of(program(dump), None, None, ("memory_space", "color", "page", "op_name", "bytes"))
    space = {key: rows[key] for key in ("memory_space", "color", "page")}
    sums = sums_by({**space, "scope": key_column(rows, "scope", None, False)}, ints(rows, "bytes"))
    order = [("color", "ascending"), ("page", "ascending"), ("bytes", "descending"), ("scope", "ascending")]
    table = pc.sort_by(sums, order)
    return computed_table("scopes", {name: table[name] for name in table.column_names})


def sums_by(keys: dict[str, pa.ChunkedArray], sizes: Ints, numbers: Ints | None = None) -> pa.Table:
    """Return the columns of `keys`, and for each combination the sums ``bytes`` of sizes and ``n`` of numbers.

    Each number is 1 by default.
    """
    numbers = np.ones(len(sizes), np.int64) if numbers is None else numbers
    first, group = groups_of(np.zeros(len(sizes), np.int64), *(encoded(column)[0] for column in keys.values()))
    columns = {name: pc.take(column, arrow_array(first)) for name, column in keys.items()}
    sums = {name: sums_of(values, group, len(first)) for name, values in (("bytes", sizes), ("n", numbers))}
    return pa.table({**columns, **{name: arrow_array(values) for name, values in sums.items()}})


def key_column(rows: pa.Table, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Return the value of a key for each row of `live_set`."""
    if key in ("scope", "op_name"):
        return _path_column(rows["op_name"], key, depth, fold)
    if key == "layer" and not fold:
        return _layer_column(rows)
    if key == FUNCTION and depth is not None:
        return _first_functions(rows[key], depth)
    if key != "source":
        return pc.cast(rows[key], pa.string())
    file, line = (pc.cast(rows[name], pa.string()) for name in ("source_file", "source_line"))
    return pc.coalesce(pc.binary_join_element_wise(file, line, ":"), file)


def _first_functions(column: pa.ChunkedArray, depth: int) -> pa.ChunkedArray:
    codes, paths = encoded(column)
    first = first_components(pc.cast(paths, pa.string()), depth)
    return pc.cast(pa.chunked_array([decoded(codes, first)]), pa.string())


def _layer_column(rows: pa.Table) -> pa.ChunkedArray:
    """Return each layer with its number in place of the `*`."""
    layer, index = pc.cast(rows["layer"], pa.string()), pc.cast(rows["layer_index"], pa.string())
    parts = pc.split_pattern(layer, "*", max_splits=1)
    head, tail = pc.list_element(parts, 0), pc.list_element(parts, 1)
    return pc.coalesce(pc.binary_join_element_wise(head, index, tail, ""), layer)


def _path_column(column: pa.ChunkedArray, key: str, depth: int | None, fold: bool) -> pa.ChunkedArray:
    """Return scopes or shortened op_names, processing each distinct op_name only once."""
    array = pc.dictionary_encode(pc.cast(column, pa.string()).combine_chunks())
    names = array.dictionary
    paths = scopes(names, depth=depth, fold=fold) if key == "scope" else shortened_paths(names, depth, fold)
    return pa.chunked_array([pc.take(paths, array.indices)])
