"""Rules about arrays that only one side stacks: all layers in one array, as `jax.lax.scan` reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, arrow_array, encoded, flags_of
from .context import Context, Edit, are, listed
from .interface import caller_shapes
from .rows import Shape, parsed, shape_text

MIN_RESTACKED = 0.25
"""Minimum share of the bytes of all arguments that are those of layers."""


class Restacked(NamedTuple):
    """Rows that only A and only B has, those of one side as stacks of those of the other."""

    a: Ints
    b: Ints
    parts: dict[Shape, Shape]
    """The shape of what each stack consists of. Those with the most elements in all come first."""


def stacked_arguments(c: Context) -> Iterator[Edit]:
    """Find arguments that are stacks on one side, and on the other as many arrays as these are long."""
    i = c.interface
    for is_new, found in zip((False, True), restacked_arguments(c), strict=True):
        if found.parts:
            claims = c.rows.of_arguments("a", i.a.allocation[found.a])
            claims |= c.rows.of_arguments("b", i.b.allocation[found.b])
            yield Edit("arguments", _text("argument", found, found.parts, is_new=is_new), claims, "interface")


def stacked_outputs(c: Context) -> Iterator[Edit]:
    """Find outputs that are stacks on one side only, unless arguments are, which they update."""
    both = zip((False, True), restacked_arguments(c), restacked_outputs(c), strict=True)
    for is_new, arguments, found in both:
        parts = {stack: part for stack, part in found.parts.items() if stack not in arguments.parts}
        if parts:
            claims = np.isin(c.rows.value[0], found.a) | np.isin(c.rows.value[1], found.b)
            yield Edit("outputs", _text("output", found, parts, is_new=is_new), claims, "interface")


def _text(noun: str, found: Restacked, parts: dict[Shape, Shape], *, is_new: bool) -> str:
    texts = []
    for stack, part in parts.items():
        pair = shape_text(stack), f"{stack.dimensions[0]:,} × {shape_text(part)}"
        texts.append(" -> ".join(pair[::-1] if is_new else pair))
    return f"{are(len(found.a), noun)} {'stacked now' if is_new else 'no longer stacked'}: {listed(texts)}"


def are_layers_restacked(c: Context) -> bool:
    """Return whether the arguments differ mostly in how they are stacked, and these are a large part of all."""
    i, (gone, new) = c.interface, arguments_of_one_side(c)
    bytes_a, bytes_b = (p.allocation_size[own.allocation] for p, own in ((c.m.a, i.a), (c.m.b, i.b)))
    restacked = sum(int(bytes_a[found.a].sum()) for found in restacked_arguments(c))
    others = max(int(bytes_a[gone].sum()), int(bytes_b[new].sum()))
    return restacked > others and restacked >= MIN_RESTACKED * int(bytes_a.sum())


def arguments_of_one_side(c: Context) -> tuple[Ints, Ints]:
    """Return the arguments that only A and that only B has, without those that are only stacked differently."""
    restacked = restacked_arguments(c)
    gone = np.setdiff1d(c.interface.gone, np.concatenate([found.a for found in restacked]))
    return gone, np.setdiff1d(c.interface.new, np.concatenate([found.b for found in restacked]))


def restacked_arguments(c: Context) -> tuple[Restacked, Restacked]:
    """Return the arguments that are stacks in A only, and those that are in B only."""
    i = c.interface
    shapes = (pc.take(own.shapes, arrow_array(rows)) for own, rows in ((i.a, i.gone), (i.b, i.new)))
    return c.once("restacked arguments", lambda: _restacked(i.gone, i.new, *shapes))


def restacked_outputs(c: Context) -> tuple[Restacked, Restacked]:
    """Return the outputs that are stacks in A only, and those that are in B only."""
    gone, new = c.interface.gone_outputs, c.interface.new_outputs
    shapes = caller_shapes(c.m.a, gone), caller_shapes(c.m.b, new)
    return c.once("restacked outputs", lambda: _restacked(gone, new, *shapes))


def _restacked(gone: Ints, new: Ints, shapes_a: pa.Array, shapes_b: pa.Array) -> tuple[Restacked, Restacked]:
    (codes_a, known_a), (codes_b, known_b) = map(_distinct, (shapes_a, shapes_b))
    counts_a, counts_b = _counts(codes_a, known_a), _counts(codes_b, known_b)
    of_a = _parts(counts_a, counts_b)
    for stack, part in of_a.items():  # each array counts once
        counts_a[stack] = counts_b[part] = 0
    of_b = _parts(counts_b, counts_a)

    def found(parts: dict[Shape, Shape], chosen_a: set[Shape], chosen_b: set[Shape]) -> Restacked:
        a = flags_of(np.array([shape in chosen_a for shape in known_a], bool), codes_a)
        b = flags_of(np.array([shape in chosen_b for shape in known_b], bool), codes_b)
        return Restacked(gone[a], new[b], parts)

    return found(of_a, {*of_a}, {*of_a.values()}), found(of_b, {*of_b.values()}, {*of_b})


def _distinct(texts: pa.Array) -> tuple[Ints, list[Shape | None]]:
    codes, distinct = encoded(texts)
    return codes, [parsed(text) for text in distinct.to_pylist()]


def _counts(codes: Ints, shapes: list[Shape | None]) -> Counter[Shape]:
    counts: Counter[Shape] = Counter()
    for shape, n in zip(shapes, np.bincount(codes[codes >= 0], minlength=len(shapes)).tolist(), strict=True):
        if shape and n:  # the dictionary may have more
            counts[shape] += n
    return counts


def _parts(stacks: Counter[Shape], arrays: Counter[Shape]) -> dict[Shape, Shape]:
    """Return what each of these shapes is a stack of, where the other side has as many arrays as they have parts."""
    parts = {s: Shape(s.element_type, s.dimensions[1:]) for s in stacks
             if stacks[s] and len(s.dimensions) > 1 and s.dimensions[0] > 1}  # fmt: skip
    n_parts: Counter[Shape] = Counter()
    for stack, part in parts.items():
        n_parts[part] += stacks[stack] * stack.dimensions[0]
    found = [stack for stack, part in parts.items() if n_parts[part] == arrays[part]]
    found.sort(key=lambda stack: (-stacks[stack] * math.prod(stack.dimensions), stack))
    return {stack: parts[stack] for stack in found}
