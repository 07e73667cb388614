"""Fold many buffers into few rows: like buffers of all layers together, and the rest of a list by shortened names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..formatting import count
from .columns import Ints, arrow_array, decoded, encoded, groups_of, ints, sums_of, take
from .grouping import sums_by
from .op_names import plain_names, shortened_paths

Row = dict[str, Any]

SMALL_SHARE = 0.03
"""Maximum share of the bytes of a list of a row that sums up the rows that are not listed."""
LAYERS, NUMBERS, DIGITS = range(3)
FOLDINGS = ((LAYERS, None), (NUMBERS, None), (DIGITS, None), (DIGITS, 3), (DIGITS, 2), (DIGITS, 1))
"""What becomes * in a name (layers_17, f32[4,128], arg12), and how many components of a path are kept."""
N_FOLDED = (8, 16, 24)
"""Maximum numbers of rows for what is not listed. The finest folding that needs at most the first is best."""
PATHS = ("scope", "op_name", "name")
"""Keys whose values are paths from the outer scope to the inner."""

_ARRAY = re.compile(r"(?P<type>[a-z]\w*)\[(?P<sizes>[^\]]*)\]")

_ALIKE = ("source_file", "source_line", "category", "kind", "phase")
"""Columns of `live_set` in which like buffers agree, as far as it has them."""


def like_buffers(members: pa.Table, n: int) -> list[Row]:
    """Return the n largest groups of like buffers among rows of `live_set`, largest first.

    Buffers are alike if they have the same op_name (with layers folded), source line and category; without an op_name,
    the same opcode and shape. A group is the row of its largest buffer with the ``bytes`` of all, their number ``n``,
    the number ``n_shapes`` of their shapes, and the ``name``: the op_name without JAX's wrappers, folded if n > 1, or
    ``argument *`` for several arguments without one.
    """
    codes, op_names = encoded(members["op_name"])
    plain = plain_names(pc.cast(op_names, pa.string()))
    first, group = groups_of(*_likeness(members, codes, plain))
    sizes, numbers = sums_of(ints(members, "bytes"), group, len(first)), np.bincount(group, minlength=len(first))
    shape_rows, _ = groups_of(group, _codes(members["shape"]))
    n_shapes = np.bincount(group[shape_rows], minlength=len(first))
    argument = members["argument"] if "argument" in members.column_names else pa.nulls(members.num_rows, pa.int64())
    argument_rows, _ = groups_of(group, _codes(argument))
    n_arguments = np.bincount(group[argument_rows], minlength=len(first))
    largest = np.lexsort((first, -sizes))[:n]
    rows = pc.take(members, arrow_array(first[largest])).to_pylist()
    for row, g in zip(rows, largest.tolist(), strict=True):
        row |= {"bytes": int(sizes[g]), "n": int(numbers[g]), "n_shapes": int(n_shapes[g])}
        row["name"] = _name(plain, int(codes[first[g]]), fold=row["n"] > 1)
        if row["name"] is None and row.get("argument") is not None and n_arguments[g] > 1:
            row["name"] = "argument *"
    return rows  # type: ignore[no-any-return]


def _likeness(members: pa.Table, codes: Ints, plain: pa.Array) -> list[Ints]:
    """Return columns that are equal for like buffers, given the codes and texts of their names."""
    folded = _codes(shortened_paths(plain, None, fold=True))
    keys = [take(folded, codes)] + [_codes(members[name]) for name in _ALIKE if name in members.column_names]
    return keys + [np.where(codes < 0, _codes(members[name]), -1) for name in ("opcode", "shape")]


def _name(plain: pa.Array, code: int, *, fold: bool) -> str | None:
    if code < 0:
        return None
    name: str = shortened_paths(plain.slice(code, 1), None, fold=fold)[0].as_py()
    return name


def _codes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return equal integers from 0 for equal values, -1 for null."""
    return encoded(column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column]))[0]


# -- the rest of a list --------------------------------------------------------------------------


def named(members: pa.Table) -> pa.Table:
    """Return rows of `live_set` with a column ``name``: the op_name without JAX's wrappers, else the instruction."""
    codes, op_names = encoded(members["op_name"])
    plain = pc.cast(decoded(codes, plain_names(pc.cast(op_names, pa.string()))), pa.string())
    return members.append_column("name", pc.coalesce(plain, pc.cast(members["instruction"], pa.string())))


def folded_rest(rows: pa.Table, keys: list[str], n_shown: int) -> tuple[pa.Table, int]:
    """Fold the rows after the first `n_shown` by shortened names, so that few rows have nearly all of the bytes.

    Parameters
    ----------
    rows
        Text columns `keys`, ``bytes`` and, if a row stands for several buffers, ``n``.

    Returns
    -------
    pyarrow.Table, int
        Columns `keys`, ``bytes`` and ``n``, largest first; and the number of rows to show. The rows after these are
        small (see `n_until_small`), unless no folding achieves that.
    """
    rest, total = rows.slice(n_shown), pc.sum(rows["bytes"], min_count=0).as_py()
    tables: dict[tuple[int, int | None], tuple[pa.Table, int]] = {}
    for most in N_FOLDED:
        for folding in FOLDINGS:
            if folding not in tables:
                table = _folded(rest, keys, *folding)
                tables[folding] = table, n_until_small(table, total)
            if tables[folding][1] <= most:
                return tables[folding]
    return tables[FOLDINGS[-1]][0], N_FOLDED[-1]


def n_until_small(rows: pa.Table, total: int) -> int:
    """Return the least number of rows after which the others, together, are smaller than each of these and SMALL_SHARE.

    The rows are sorted by bytes; the number is that of all rows if the others are never small.
    """
    size = ints(rows, "bytes")
    left = size[::-1].cumsum()[::-1] - size
    is_small = (left < size) & (left <= SMALL_SHARE * total)
    return int(is_small.argmax()) + 1 if len(size) else 0


def _folded(rows: pa.Table, keys: list[str], what: int, depth: int | None) -> pa.Table:
    """Sum rows up by their folded names."""
    names = {}
    for key in keys:
        codes, texts = encoded(pc.cast(rows[key], pa.string()))
        kept = depth if key in PATHS else None
        folded = _folded_shapes(texts) if key == "shape" else _folded_names(texts, what, kept)
        names[key] = pc.cast(decoded(codes, folded), pa.string())
    table = sums_by(names, ints(rows, "bytes"), ints(rows, "n") if "n" in rows.column_names else None)
    return pc.sort_by(table, [("bytes", "descending"), *((key, "ascending") for key in keys)])


def _folded_names(texts: pa.Array, what: int, depth: int | None) -> pa.Array:
    texts = shortened_paths(texts, depth, fold=True)
    if what >= NUMBERS:
        texts = pc.replace_substring_regex(texts, r"(^|[^0-9A-Za-z])\d+", r"\1*")
    return pc.replace_substring_regex(texts, r"\d+", "*") if what >= DIGITS else texts


def _folded_shapes(texts: pa.Array) -> pa.Array:
    """Return the element type and the number of dimensions of each shape: ``bf16, 4 dimensions``."""
    return pa.array([_folded_shape(text) for text in texts.to_pylist()], pa.string())


def _folded_shape(text: str | None) -> str | None:
    if text is None:
        return None
    if (match := _ARRAY.match(text)) is None:
        return "tuple" if text.startswith("(") else text
    n = match["sizes"].count(",") + 1 if match["sizes"] else 0
    return f"{match['type']}, {count(n, 'dimension')}" if n else f"{match['type']}, scalar"
