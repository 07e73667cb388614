"""Find arguments that are sharded less than others with the same names, such as optimizer state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .aliasing import is_partitioned, matched
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
_SHAPE = re.compile(r"(\w+)\[([\d,]+)\]")


class _Array(NamedTuple):
    """An array of an argument."""

    row: int
    """Row of the parameters."""
    root: str
    path: tuple[str, ...]
    element_type: str
    dimensions: tuple[int, ...]


def unsharded_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Shard each argument as the arrays of another one that have the same paths, but a part of the dimensions."""
    if not is_partitioned(w.p):
        return
    arrays = _arrays(w)
    by_path, by_end = (_smallest(arrays, ends=ends) for ends in (False, True))
    found: dict[str, list[tuple[_Array, _Array]]] = {}
    for a in arrays:
        like = [by_path.get((a.path[i:], a.element_type)) for i in range(len(a.path))]
        like.append(by_end.get((a.path, a.element_type)))
        sharded = next((b for b in like if b and b.root != a.root and _is_part(b.dimensions, a.dimensions)), None)
        if sharded:
            found.setdefault(a.root, []).append((a, sharded))
    yield from (_sharded_like(w, root, pairs) for root, pairs in found.items())


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
        path = tuple(_PART.findall((name or "")[len(root) :]))
        if (match := _SHAPE.match(shape or "")) and path and len(path) <= MAX_PARTS:
            arrays.append(_Array(row, root, path, match[1], tuple(map(int, match[2].split(",")))))
    return arrays


def _size(array: _Array) -> float:
    return float(np.prod(array.dimensions, dtype=float))


def _is_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Return whether each dimension divides that of a larger array."""
    is_divisor = len(part) == len(whole) and all(n and m % n == 0 for n, m in zip(part, whole, strict=True))
    return is_divisor and part != whole


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
    return Intervention("shard", order, change, max(lower, 0), upper, confidence, text, root, number)
