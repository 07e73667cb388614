"""The dimensions of an array that a tile of its layout spans, and rounds up."""

from __future__ import annotations

import re
from typing import NamedTuple

_TILED = re.compile(
    r"\w+\[(?P<sizes>\d{1,17}(?:,\d{1,17})*)\]\{(?P<order>\d{1,3}(?:,\d{1,3})*):T\((?P<tile>\d{1,17}(?:,\d{1,17})*)\)"
)


class Tiled(NamedTuple):
    """A dimension of an array that the first tile of its layout spans."""

    dimension: int
    size: int
    tile: int

    @property
    def padded(self) -> int:
        return -(-self.size // self.tile) * self.tile

    @property
    def is_padded(self) -> bool:
        return self.padded > self.size


def tiled_dimensions(shape: str) -> list[Tiled]:
    """Return the dimensions that the tile spans, in the order of the shape: `f32[9,5,64]{2,0,1:T(8,128)}` has 0 and 2.

    `{2,0,1` are the dimensions from minor to major. Empty if no tile is printed.
    """
    match = _TILED.match(shape)
    if not match:
        return []
    sizes, order, tile = ([int(n) for n in match[name].split(",")] for name in ("sizes", "order", "tile"))
    if sorted(order) != list(range(len(sizes))) or 0 in tile:
        return []
    spanned = zip(order, reversed(tile), strict=False)
    return sorted(Tiled(dimension, sizes[dimension], rows) for dimension, rows in spanned)
