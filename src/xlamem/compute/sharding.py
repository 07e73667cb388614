"""Find arguments, or parts of them, that are sharded less than others with the same names, such as optimizer state."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .aliasing import is_partitioned, matched
from .columns import take_text
from .interventions import Confidence, Intervention, argument_names, largest_first, rescheduled_at_worst
from .origins import origins
from .what_if import Change, WhatIf

SHARD_LOWER = 0.8
"""Multiple of the estimate that is its lower bound."""
MAX_PARTS = 16
"""Maximum number of parts of a path in an argument."""
MAX_ARRAYS = 1 << 14
"""Maximum number of arrays of arguments that are compared."""

_PART = re.compile(r"\.\w+|\[[^\]]*\]")
_SHAPE = re.compile(r"(\w+)\[((?:\d{1,17},)*\d{1,17})\]")
_NAMED = re.compile(r"[A-Za-z_]")
_PARAMETERS = re.compile(r"\W*(?:params?|parameters|weights|variables|model)\W*")
_STATE = re.compile(r"\W*(?:mu|nu|trace|momentum|opt|opt_state|optimizer)\W*")


class _Array(NamedTuple):
    """An array of an argument."""

    row: int
    """Row of the parameters."""
    argument: str
    root: str
    """The argument, or the part of it, such as `state.params`, that is compared with others."""
    path: tuple[str, ...]
    element_type: str
    dimensions: tuple[int, ...]


def unsharded_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Shard each argument, or field of one that has parameters and their state, as the arrays of another one.

    They have the same paths and element types, but a part of the dimensions.
    """
    if not is_partitioned(w.p):
        return
    arrays = _with_fields(_arrays(w))
    by_path, by_end = (_smallest(arrays, ends=ends) for ends in (False, True))
    found: dict[str, list[tuple[_Array, _Array]]] = {}
    for a in arrays:
        like = [by_path.get((a.path[i:], a.element_type)) for i in range(len(a.path)) if _is_named(a.path[i:])]
        like.append(by_end.get((a.path, a.element_type)) if _is_named(a.path) else None)
        sharded = next((b for b in like if b and b.root != a.root and _is_part(b.dimensions, a.dimensions)), None)
        if sharded:
            found.setdefault(a.root, []).append((a, sharded))
    for root, pairs in found.items():
        ratios = {_size(a) // max(1, _size(b)) for a, b in pairs}
        if 1 in ratios or len(ratios) == 1:  # otherwise, it may be of a larger model
            pairs = [(a, b) for a, b in pairs if a.dimensions != b.dimensions]
            if pairs and not _is_sharded(w, pairs):
                yield _sharded_like(w, root, pairs)


def _is_named(path: tuple[str, ...]) -> bool:
    """Return whether a path has more than the numbers of elements, which any two lists have."""
    return any(_NAMED.search(part) for part in path)


def _is_sharded(w: WhatIf, pairs: list[tuple[_Array, _Array]]) -> bool:
    """Return whether the printed shardings say the opposite: the first of these arrays are sharded, the others not."""
    parameters = matched(w.p)[0]
    rows = w.p.instruction_row[parameters.value[[array.row for pair in pairs for array in pair]]]
    texts = take_text(w.p.tables["instructions"]["sharding"], rows).to_pylist()
    both = zip(texts[::2], texts[1::2], strict=True)
    return any("devices=" in (a or "") and "replicated" in (b or "") for a, b in both)


def _smallest(arrays: list[_Array], *, ends: bool) -> dict[tuple[tuple[str, ...], str], _Array]:
    """Return the smallest array with each path and element type, or with each path at the end of its own."""
    found: dict[tuple[tuple[str, ...], str], _Array] = {}
    for a in arrays:
        for i in range(len(a.path) if ends else 1):
            key = a.path[i:], a.element_type
            found[key] = min(a, found.get(key, a), key=_size)
    return found


def _arrays(w: WhatIf) -> list[_Array]:
    p, (parameters, _, _) = w.p, matched(w.p)
    rows = np.flatnonzero(w.in_memory[parameters.allocation] & (parameters.value >= 0))[:MAX_ARRAYS]
    value = parameters.value[rows]
    roots = argument_names(w, value, parameters.number[rows]).to_pylist()
    names = origins(p).names.columns(p.instruction_row[value])["op_name"].to_pylist()
    shapes = p.value_text("shape", value).to_pylist()
    arrays = []
    for row, root, name, shape in zip(rows.tolist(), roots, names, shapes, strict=True):
        # An argument without a name has the path of another one, or none.
        path = tuple(_PART.findall(name[len(root) :])) if name and name.startswith(root) else ()
        if (match := _SHAPE.match(shape or "")) and path and len(path) <= MAX_PARTS:
            arrays.append(_Array(row, root, root, path, match[1], tuple(map(int, match[2].split(",")))))
    return arrays


def _with_fields(arrays: list[_Array]) -> list[_Array]:
    """Return the arrays with fields as roots, of arguments such as `TrainState`, or `(params, opt_state)`.

    Other fields, such as layers, can have the same names and other dimensions.
    """
    has_state: dict[str, dict[str, bool]] = {}
    for a in arrays:
        field = has_state.setdefault(a.root, {}).setdefault(a.path[0], False)
        has_state[a.root][a.path[0]] = field or any(map(_STATE.fullmatch, a.path))
    both = {
        root
        for root, fields in has_state.items()
        if any(map(_PARAMETERS.fullmatch, fields)) or {*fields.values()} == {True, False}
    }
    return [a._replace(root=a.root + a.path[0], path=a.path[1:]) if a.root in both else a for a in arrays]


def _size(array: _Array) -> int:
    return math.prod(array.dimensions)


def _is_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether each dimension divides that of an array."""
    return len(part) == len(whole) and all(n and m % n == 0 for n, m in zip(part, whole, strict=True))


def _sharded_like(w: WhatIf, root: str, pairs: list[tuple[_Array, _Array]]) -> Intervention:
    p, (parameters, _, match) = w.p, matched(w.p)
    rows, like = ([pair[i].row for pair in pairs] for i in (0, 1))
    values, sharded = parameters.value[rows], p.extent[parameters.value[like]]
    less = p.extent[values] - sharded
    # So are the outputs that replace them, if they have memory of their own.
    is_output = match.output[rows] >= 0
    change = Change(-int(less.sum() + less[is_output].sum()), w.none)
    estimate = w.saved(change)
    lower = int(SHARD_LOWER * estimate)
    lower -= rescheduled_at_worst(w, lower)
    # Outputs that are sharded can take the place of arguments that are. Temporaries may be sharded, too.
    upper = estimate + int(sharded[~is_output].sum()) + w.peak
    whole, part = max(pairs, key=lambda pair: _size(pair[0]))
    before, after = (f"{a.element_type}[{','.join(map(str, a.dimensions))}]" for a in (whole, part))
    text = (
        f"Shard `{root}` like `{part.root}`: on each device, it has arrays such as {before} where `{part.root}` has "
        f"{after}. Create it with jax.jit(init, out_shardings=...), or move it with jax.device_put."
    )
    confidence: Confidence = "likely" if lower > 0 else "try"
    number, order = int(parameters.number[rows].min()), largest_first(w, values)
    return Intervention("shard", order, change, max(lower, 0), upper, confidence, text, whole.argument, number)
