"""Rules that find edits in what no other edit explains: the shapes of the buffers that changed most bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import Mask, flags_of, is_in, sums_of, take
from ..compute.op_names import folded_paths
from ..compute.origins import has_opcode
from ..formatting import count
from .context import COLLECTIVES, Context, Edit, Evidence
from .rows import Shape, ShapePairs, parsed, replaced_dimensions, shape_text
from .shape_edits import MIN_EXCESS, alike, conversions

MIN_SHARE = 1 / 3
"""Minimum share of the bytes that differ which a change of shapes must explain."""
MIN_MULTIPLE = 32
"""Minimum size of a dimension of which others may be multiples because they follow from it."""

Replacements = Callable[[Shape, Shape], set[tuple[Any, Any]]]
"""What one shape has instead of something that another one has."""


class Replaced(NamedTuple):
    """What most of the buffers have instead of something else."""

    before: Any
    after: Any
    sample: tuple[Shape, Shape]
    """The shapes with most bytes."""
    claims: Mask
    """The contributions of such shapes."""


def dimensions_of_rest(c: Context, rest: Mask) -> Iterator[Edit]:
    """Find the dimension that explains most of the bytes that no other edit explains.

    Other operations compute with it than before, so that few values match. What devices exchange, and copies of
    arguments that have the same shape in both programs, may be whole in one of them and a part in the other.
    """
    found = _most_frequent(c, rest & ~_is_exchanged_or_copied(c), _ratios)
    if found:
        a, b = found.sample
        ratio = Fraction(found.before, found.after)
        x, y = max(pair for pair in replaced_dimensions(a, b) if Fraction(*pair) == ratio)
        text = f"a dimension of {x:,} is {y:,} now, as in {shape_text(a)} -> {shape_text(b)}"
        yield Edit("dimensions", text, found.claims, "buffers")


def _is_exchanged_or_copied(c: Context) -> Mask:
    """Return which contributions a collective makes, or are copies of arguments whose shape is the same."""
    codes, names = c.rows.text("op_name")
    found: Mask = c.rows.temporary & flags_of(is_in(names, c.interface.unchanged), codes)
    for p, value in zip((c.m.a, c.m.b), c.rows.value, strict=True):
        found |= has_opcode(p, take(p.instruction_row, value), COLLECTIVES)
    return found


def element_types_of_rest(c: Context, rest: Mask) -> Iterator[Edit]:
    """Find the element type that explains most of the bytes that no other edit explains."""
    found = _most_frequent(c, rest, _types)
    if found:
        n = int((found.claims & _of_device(c)).sum())
        evidence: Evidence = "names" if any(conversions(c)) else "buffers"
        verb = "is" if n == 1 else "are"
        text = f"{count(n, 'buffer')} {verb} {found.after} instead of {found.before}"
        yield Edit("element type", text, found.claims, evidence)


def _most_frequent(c: Context, rest: Mask, replaced: Replacements) -> Replaced | None:
    """Return the replacement in the shapes of most bytes, if these are enough."""
    in_device = _of_device(c)
    size = abs(c.rows.change)
    pairs = ShapePairs(c.rows.table["shape_a"], c.rows.table["shape_b"], size * (in_device & rest))
    tally: Counter[tuple[Any, Any]] = Counter()
    sample: dict[tuple[Any, Any], tuple[Shape, Shape]] = {}
    for a, b, n in sorted(pairs.weighed(), key=lambda pair: -pair[2]):
        for key in replaced(a, b):
            tally[key] += n
            sample.setdefault(key, (a, b))
    if not tally:
        return None
    before, after = max(tally, key=lambda key: tally[key])
    n = tally[before, after]
    if not n or n < MIN_SHARE * size[in_device].sum() or n < MIN_EXCESS * tally[after, before]:
        return None
    claims = rest & pairs.where(lambda a, b: (before, after) in replaced(a, b))
    return Replaced(before, after, sample[before, after], claims)


def _of_device(c: Context) -> Mask:
    return c.rows.is_in("account", (DEVICE_TOTAL,))


def _ratios(a: Shape, b: Shape) -> set[tuple[int, int]]:
    """Return the ratios of dimensions, which multiples have in common. A dimension of 1 is that of another array."""
    pairs = replaced_dimensions(a, b)
    return {Fraction(*pair).as_integer_ratio() for pair in pairs if 1 not in pair}


def _types(a: Shape, b: Shape) -> set[tuple[str, str]]:
    x, y = a.element_type, b.element_type
    return {(x, y)} if x != y and a.dimensions == b.dimensions and alike(x, y) else set()


def _has_any(shape: Shape, sizes: list[int]) -> bool:
    """Return whether an array has one of these sizes, or multiples of one that are hardly so by chance."""
    return any(n == size or (size >= MIN_MULTIPLE and n % size == 0) for n in shape.dimensions for size in sizes)


def arrays_of_rest(c: Context, rest: Mask) -> Iterator[Edit]:
    """Find the array that takes most of these bytes, if an operation of both programs makes it in one of them only.

    So it is if a model computes the logits of fewer positions: XLA fuses the product with what reads it then.
    """
    if c.platforms_differ:
        return
    resized = {k for shapes in c.interface.shapes for k in replaced_dimensions(*shapes)}
    size = np.abs(c.rows.change) * _of_device(c)
    codes, names = c.rows.text("op_name")
    path_codes, paths = folded_paths(names)
    path = take(path_codes, codes)
    for side, (cause, verb) in enumerate((("gone", "no longer makes {}"), ("new", "makes {} now"))):
        shape_codes, shapes = c.rows.text(f"shape_{'ab'[side]}")
        chosen = rest & c.rows.temporary & c.rows.is_in("cause", (cause,)) & (path >= 0) & (shape_codes >= 0)
        if not chosen.any():
            continue
        key = np.where(chosen, path * len(shapes) + shape_codes, -1)
        found, number = np.unique(key, return_inverse=True)
        total = sums_of(size * chosen, number.ravel(), len(found))
        largest = int(total.argmax())
        p, s = divmod(int(found[largest]), len(shapes))
        operation, shape = paths[p].as_py(), parsed(shapes[s].as_py())
        is_main = found[largest] >= 0 and total[largest] >= MIN_SHARE * size.sum()
        is_main &= shape is not None and not _has_any(shape, [pair[side] for pair in resized])
        if is_main and shape and shape.dimensions not in c.dimensions[1 - side] and operation in c.operations[1 - side]:
            yield Edit("operations", f"{operation} {verb.format(shape_text(shape))}", key == found[largest], "buffers")
