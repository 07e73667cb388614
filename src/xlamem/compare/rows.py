"""The contributions to a difference as arrays, for the rules that find out what was edited."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, Mask, encoded, ints, is_in, sums_of, take
from ..compute.lazy import cached_property
from ..compute.op_names import folded_paths, matching, scopes
from .matching import Matching

MAX_DIGITS = 18
"""Maximum number of digits of a dimension; more are damaged text."""

_SEPARATOR = "\0"
_ARRAY = re.compile(r"^(\w+)\[([\d,<= ]*)\]")


UNNAMED_PARAMETER = r"^(?:arg|Arg_|p|param|param_|parameter)[_.\d]*$"
"""The names of parameters that say nothing about an argument."""


class Shape(NamedTuple):
    """An array shape."""

    element_type: str
    dimensions: tuple[int, ...]


def shape_text(shape: Shape) -> str:
    """Return a shape as XLA prints it, without its layout."""
    return f"{shape.element_type}[{','.join(map(str, shape.dimensions))}]"


def parsed(text: str | None) -> Shape | None:
    """Return the element type and the dimensions of an array shape, or None for tuples and damaged text."""
    found = _ARRAY.match(text or "")
    sizes = re.findall(r"\d+", found[2]) if found else []
    if not found or any(len(n) > MAX_DIGITS for n in sizes):
        return None
    return Shape(found[1], tuple(map(int, sizes)))


class Differences:
    """The table `differences`, column by column."""

    def __init__(self, m: Matching, table: pa.Table) -> None:
        self.m, self.table, self.n = m, table, table.num_rows
        self.change = ints(table, "change")

    def text(self, column: str) -> tuple[Ints, pa.Array]:
        """Return codes (-1 for null) and texts of a column."""
        codes, texts = encoded(self.table[column])
        return codes, pc.cast(texts, pa.string())

    def is_in(self, column: str, texts: Iterable[str]) -> Mask:
        return is_in(self.table[column], texts)

    @cached_property
    def only_in_a(self) -> Mask:
        mask: Mask = ints(self.table, "bytes_b") == 0
        return mask

    @cached_property
    def only_in_b(self) -> Mask:
        mask: Mask = ints(self.table, "bytes_a") == 0
        return mask

    @property
    def single(self) -> Mask:
        """Buffers that are in use on one side only."""
        mask: Mask = self.only_in_a | self.only_in_b
        return mask

    @cached_property
    def temporary(self) -> Mask:
        names = ("temp", "temp_in_output")
        return np.where(self.only_in_a, self.is_in("category_a", names), self.is_in("category_b", names))

    @cached_property
    def value(self) -> tuple[Ints, Ints]:
        """Rows in `values` of A and B, -1 for none."""
        ids = [ints(self.table, f"value_id_{side}") for side in "ab"]
        a, b = (np.where(i >= 0, p.row_of_value(i), -1) for p, i in zip((self.m.a, self.m.b), ids, strict=True))
        return a, b

    def of_arguments(self, side: str, allocations: Ints) -> Mask:
        """Return which contributions are those of arguments in these rows of `allocations`."""
        ids = getattr(self.m, side).allocation_ids[allocations]
        found: Mask = np.isin(ints(self.table, f"allocation_{side}"), ids)
        return found & self.is_in(f"category_{side}", ("parameter", "donated"))

    def in_scopes(self, chosen: Iterable[str]) -> Mask:
        """Return which buffers belong to one of these scopes, in which layers are folded, or to one inside."""
        codes, names = self.text("op_name")
        is_inside = _Scopes(chosen).contain
        found = np.fromiter((is_inside(scope) for scope in scopes(names, fold=True).to_pylist()), bool, len(names))
        result: Mask = take(found, codes) > 0
        return result

    def bytes_of_paths(self) -> dict[str, int]:
        """Return the bytes that differ by op_name, without wrappers and with folded layers."""
        codes, names = self.text("op_name")
        named = codes >= 0
        path_codes, paths = folded_paths(names)
        totals = sums_of(np.abs(self.change[named]), path_codes[codes[named]], len(paths)).tolist()
        weights: dict[str, int] = {}
        for path, n in zip(paths.to_pylist(), totals, strict=True):
            weights[path] = weights.get(path, 0) + n
        return weights

    @cached_property
    def shapes(self) -> ShapePairs:
        return ShapePairs(self.table["shape_a"], self.table["shape_b"], np.abs(self.change))


class _Scopes:
    """Scopes that are looked up by what they contain."""

    def __init__(self, chosen: Iterable[str]) -> None:
        # With a separator that sorts before all other characters, what a scope contains follows it.
        self._outermost: list[str] = []
        for scope in sorted(f"{scope.replace('/', _SEPARATOR)}{_SEPARATOR}" for scope in chosen):
            if not self._outermost or not scope.startswith(self._outermost[-1]):
                self._outermost.append(scope)

    def contain(self, path: str | None) -> bool:
        """Return whether a path is one of the scopes, or inside of one."""
        if path is None:
            return False
        path = f"{path.replace('/', _SEPARATOR)}{_SEPARATOR}"
        i = bisect_right(self._outermost, path)
        return i > 0 and path.startswith(self._outermost[i - 1])


def text_matches(texts: pa.Array, codes: Ints, pattern: str) -> Mask:
    """Return whether the text of each code matches; False for -1."""
    result: Mask = take(matching(texts, pattern), codes) > 0
    return result


class ShapePairs:
    """The distinct pairs of two columns of shapes, of which both are arrays."""

    def __init__(self, a: pa.ChunkedArray | pa.Array, b: pa.ChunkedArray | pa.Array, weight: Ints) -> None:
        (codes_a, texts_a), (codes_b, texts_b) = encoded(a), encoded(b)
        width = len(texts_b) + 1
        keys = np.where((codes_a >= 0) & (codes_b >= 0), codes_a * width + codes_b, -1)
        distinct, first, number = np.unique(keys, return_index=True, return_inverse=True)
        self._first: Ints = first
        self._number: Ints = number.ravel()
        shapes_a, shapes_b = ([parsed(text) for text in texts.to_pylist()] for texts in (texts_a, texts_b))
        self._pairs = [
            (None, None) if k < 0 else (shapes_a[k // width], shapes_b[k % width]) for k in distinct.tolist()
        ]
        self._weights = sums_of(weight, self._number, len(self._pairs)).tolist()

    def where(self, holds: Callable[[Shape, Shape], bool]) -> Mask:
        """Return the rows for whose shapes a condition holds."""
        flags = np.array([a is not None and b is not None and holds(a, b) for a, b in self._pairs], bool)
        result: Mask = flags[self._number] if len(flags) else np.zeros(0, bool)
        return result

    def weighed(self) -> Iterable[tuple[Shape, Shape, int]]:
        """Return the pairs of shapes and their total weights."""
        for (a, b), weight in zip(self._pairs, self._weights, strict=True):
            if a is not None and b is not None:
                yield a, b, weight

    def changed(self) -> dict[tuple[Shape, Shape], int]:
        """Return the pairs of shapes that differ, and the first row with each, in the order of these rows."""
        rows = sorted(zip(self._first.tolist(), self._pairs, strict=True))
        return {(a, b): row for row, (a, b) in rows if a is not None and b is not None and a != b}

    def with_ratios(self, ratios: Iterable[Fraction]) -> Mask:
        """Return the rows of which a dimension has changed by one of these ratios (A divided by B)."""
        chosen = frozenset(ratios)
        return self.where(lambda a, b: any(Fraction(*pair) in chosen for pair in replaced_dimensions(a, b)))


def replaced_dimensions(a: Shape, b: Shape) -> set[tuple[int, int]]:
    """Return the pairs of dimensions that differ between two shapes of the same rank, or with one dimension more."""
    x, y = a.dimensions, b.dimensions
    if len(x) == len(y):
        return {pair for pair in zip(x, y, strict=True) if pair[0] != pair[1] and all(pair)}
    x, y = (tuple(n for n in side if n != 1) for side in (x, y))
    if len(x) + 1 == len(y):
        return {(1, y[k]) for k in range(len(y)) if y[k] and y[:k] + y[k + 1 :] == x}
    return {(n, m) for m, n in replaced_dimensions(b, a)} if len(x) == len(y) + 1 else set()
