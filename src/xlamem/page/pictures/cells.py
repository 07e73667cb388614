"""Sum many small rectangles up in the cells of a grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...compute.columns import Ints, Mask, runs

Floats = npt.NDArray[np.float64]

CELL = 3.0
"""Width and height of the smallest cells. They are doubled until there are few enough runs."""
MAX_RUNS = 1200
"""Maximum number of runs of equal cells in a row."""
DENSITIES = (0.25, 0.5, 1.0)
"""Opacities of cells that are covered by less than a third, by less than two thirds, and by more."""
LEAST = 0.04
"""Minimum covered share of a cell that is drawn."""


@dataclass(frozen=True)
class Boxes:
    """Rectangles in a picture."""

    rows: Ints
    """Row of buffers of each."""
    left: Floats
    right: Floats
    upper: Floats
    lower: Floats

    @property
    def width(self) -> Floats:
        return self.right - self.left

    @property
    def height(self) -> Floats:
        return self.lower - self.upper

    @property
    def area(self) -> Floats:
        return self.width * self.height

    def of(self, mask: Mask) -> Boxes:
        return Boxes(self.rows[mask], self.left[mask], self.right[mask], self.upper[mask], self.lower[mask])

    def place(self, i: int) -> tuple[float, float, float, float]:
        """Return x, y, width and height of one."""
        x, y = float(self.left[i]), float(self.upper[i])
        return x, y, float(self.right[i]) - x, float(self.lower[i]) - y


@dataclass(frozen=True)
class Cells:
    """Runs of cells with the same color and density."""

    item: Ints
    density: Ints
    """Index of DENSITIES."""
    left: Floats
    right: Floats
    upper: Floats
    height: float

    def paths(self) -> Iterator[tuple[int, float, str]]:
        """Yield a path for each color and density."""
        kind = self.item * len(DENSITIES) + self.density
        for k in np.unique(kind).tolist():
            rows = np.flatnonzero(kind == k)
            corners = zip(self.left[rows].tolist(), self.right[rows].tolist(), self.upper[rows].tolist(), strict=True)
            h = f"v{self.height:.1f}"
            path = "".join(f"M{x:.1f} {y:.1f}h{r - x:.1f}{h}h{x - r:.1f}z" for x, r, y in corners)
            yield k // len(DENSITIES), DENSITIES[k % len(DENSITIES)], path


def summed(boxes: Boxes, code: Ints, n_codes: int, area: tuple[float, float, float, float]) -> Cells:
    """Return the cells of an area (left, upper, right, lower) with the color that covers most of each.

    `code` is the number of the color of each rectangle.
    """
    left, upper, right, lower = area
    shape = n_codes, int(np.ceil((lower - upper) / CELL)), int(np.ceil((right - left) / CELL))
    covered = _covered(boxes, code, shape, left, upper)
    covered /= np.maximum(covered.sum(0), 1)  # where they overlap
    cell = CELL
    while len((found := _runs(covered, left, upper, right, cell)).item) > MAX_RUNS:
        covered, cell = _halved(covered), 2 * cell
    return found


def _halved(covered: Floats) -> Floats:
    """Return the shares of cells that are twice as wide and high."""
    n, rows, columns = covered.shape
    even = np.pad(covered, ((0, 0), (0, rows % 2), (0, columns % 2)))
    halved: Floats = even.reshape(n, (rows + 1) // 2, 2, (columns + 1) // 2, 2).mean((2, 4))
    return halved


def _runs(covered: Floats, left: float, upper: float, right: float, cell: float) -> Cells:
    """Return the runs of cells, given the shares of each color."""
    n_columns = covered.shape[2]
    total = covered.sum(0)
    density = np.digitize(total, (1 / 3, 2 / 3))
    kind = np.where(total < LEAST, -1, covered.argmax(0) * len(DENSITIES) + density)
    kind = np.pad(kind, ((0, 0), (0, 1)), constant_values=-1).ravel()  # runs end with their row
    first, last = runs(kind)
    first, last = first[kind[first] >= 0], last[kind[first] >= 0]
    item, density = np.divmod(kind[first], len(DENSITIES))
    row, column = np.divmod(first, n_columns + 1)
    return Cells(
        item,
        density,
        left=left + cell * column,
        right=np.minimum(left + cell * (column + last - first + 1), right),
        upper=upper + cell * row,
        height=cell,
    )


def _covered(boxes: Boxes, code: Ints, shape: tuple[int, int, int], left: float, upper: float) -> Floats:
    """Return the share of each of the smallest cells that rectangles cover, in this shape: colors, rows, columns.

    The edges of rectangles are rounded to those of cells; rectangles smaller than a cell count in proportion.
    """
    n_codes, n_rows, n_columns = shape
    x0, x1, part_x = _rounded((boxes.left - left) / CELL, (boxes.right - left) / CELL, n_columns)
    y0, y1, part_y = _rounded((boxes.upper - upper) / CELL, (boxes.lower - upper) / CELL, n_rows)
    changes = np.zeros(n_codes * (n_rows + 1) * (n_columns + 1))
    weight = part_x * part_y
    for y, x, sign in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
        place = (code * (n_rows + 1) + y) * (n_columns + 1) + x
        changes += np.bincount(place, sign * weight, len(changes))
    sums: Floats = changes.reshape(n_codes, n_rows + 1, n_columns + 1).cumsum(1).cumsum(2)
    return sums[:, :-1, :-1].clip(0)


def _rounded(low: Floats, high: Floats, n: int) -> tuple[Ints, Ints, Floats]:
    """Return the first cell and the one after the last of each interval, and by how much it fills them."""
    wide = high - low >= 1
    first = np.where(wide, np.rint(low), np.floor((low + high) / 2)).astype(np.int64).clip(0, n - 1)
    last = np.where(wide, np.rint(high), first + 1).astype(np.int64).clip(first + 1, n)
    return first, last, np.where(wide, 1.0, high - low)
