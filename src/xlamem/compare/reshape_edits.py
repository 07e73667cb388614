"""Find arguments that have another shape as a whole, such as a cache that is divided into pages."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from .context import Context, Edit, largest
from .rows import replaced_dimensions, shape_text
from .shape_edits import reshaped


def reshaped_arguments(c: Context) -> Iterator[Edit]:
    """Find arguments of which one dimension grew a lot and another shrank: neither of them says what happened."""
    left, right = reshaped(c)
    if not len(right):
        return
    i = c.interface
    sizes = c.m.b.allocation_size[i.b.allocation[right]]
    shapes = [*i.shape_pairs(left, right).changed()]
    first = int(sizes.argmax())
    a, b = next(iter(i.shape_pairs(left[[first]], right[[first]]).changed()))
    each = " on each device" if max(c.devices) > 1 else ""
    more = ", …" if len(shapes) > 1 else ""
    have = "1 argument has another shape" if len(right) == 1 else f"{len(right):,} arguments have other shapes"
    text = f"{have}{each}: {largest(i.b.names, right, sizes)} ({shape_text(a)} -> {shape_text(b)}{more})"
    ratios = {Fraction(*pair) for x, y in shapes for pair in replaced_dimensions(x, y)}
    yield Edit("dimensions", text, c.rows.shapes.with_ratios(ratios), "interface")
