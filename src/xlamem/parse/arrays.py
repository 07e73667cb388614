"""Native columns as NumPy arrays, and lookups over integer keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _values
from .. import kernels as pc
from .._column import distinct, first_rows, positions, rows_of

NULL = np.iinfo(np.int64).min
"""Null in native integer columns; null codes are -1."""

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.uint8]
Scalar = TypeVar("Scalar", bound=np.generic)
TextParts = tuple[Any, Codes, Bools]
"""Text in Arrow's layout: bytes, offsets modulo 2^32, validity."""

INTERNER_OF = {
    "operand_shape_index": "shape_index",
    "parameter_shape_index": "shape_index",
    "parameter_shape": "shape",
    "output_shape": "shape",
    "output_index": "shape_index",
    "parameter_index": "shape_index",
    "space_label": "label",
}
"""Interners of dictionary columns, if not named like the column."""

# Instances: NumPy takes half as long again to find the type of a class.
INT64, INT32, UINT8 = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.uint8)
_DTYPES: dict[str, np.dtype[Any]] = {
    **dict.fromkeys((*_values.POOLS, "label", "kind", *INTERNER_OF, "before", "part"), INT32),
    **dict.fromkeys(("flags", "is_phi", "uses_known"), UINT8),
}
"""Types of native columns other than text and int64."""
dtype_of = _DTYPES.get


def ints(column: Any) -> Ints:
    return np.frombuffer(column, INT64)


def codes(column: Any) -> Codes:
    return np.frombuffer(column, INT32)


def flags(column: Any) -> Bools:
    return np.frombuffer(column, UINT8)


def texts(parts: tuple[Any, Any, Any]) -> TextParts:
    return parts[0], codes(parts[1]), flags(parts[2])


def text_ends(parts: TextParts) -> Ints:
    """Return the end of each text as a 64-bit offset."""
    ends: Ints = np.cumsum(np.diff(parts[1].view(np.uint32)), dtype=np.int64)
    return ends


def joined(arrays: Sequence[npt.NDArray[Scalar]], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Concatenate arrays. A single array is returned without a copy."""
    return arrays[0] if len(arrays) == 1 else np.concatenate([*arrays, np.empty(0, dtype)])


def numbers_of(column: pa.ChunkedArray) -> Ints:
    """Convert an Arrow integer column to int64, with nulls as `NULL`."""
    values = pc.fill_null(column, NULL) if column.null_count else column
    return np.ascontiguousarray(values.to_numpy(), np.int64)


def distinct_of(values: Ints) -> list[int]:
    """Return the distinct values in ascending order. Fast if there are few."""
    few = distinct(values)
    return np.unique(values).tolist() if few is None else few


def stable_order(keys: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return the order of rows by key, then by row.

    If keys and rows fit into 63 bits together, their sums are sorted: several times as fast as a stable argsort.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    low, bits = int(keys.min()), len(keys).bit_length()
    if (int(keys.max()) - low) >> (63 - bits):
        return np.argsort(keys, kind="stable")
    packed = (keys.astype(np.int64) - low) << bits
    packed += np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def order_by(*keys: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return the order of rows by the first key, then by the next ones, then by row."""
    order = stable_order(keys[-1])
    for key in keys[-2::-1]:
        order = order[stable_order(key[order])]
    return order


class Rows:
    """An index over `keys`: calling it with other keys returns the first row of each, or -1."""

    def __init__(self, keys: Ints | Codes) -> None:
        self.n = len(keys)
        self.low, rows = first_rows(np.ascontiguousarray(keys, np.int64))
        self.rows = None if rows is None else codes(rows)
        """Rows indexed by key - low; None if the keys are too sparse."""
        if self.rows is None:
            order = stable_order(keys)
            self.keys = keys[order]
            self.order = order.astype(np.int32) if self.n < 1 << 31 else order

    def __call__(self, wanted: Ints) -> Ints:
        if not self.n or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        if self.rows is not None:
            return ints(rows_of(self.rows, self.low, np.ascontiguousarray(wanted, np.int64)))
        position = np.minimum(_positions(self.keys, wanted), self.n - 1)
        return np.where(self.keys[position] == wanted, self.order[position], -1).astype(np.int64)


def _positions(keys: Ints | Codes, wanted: Ints) -> Ints:
    """Return where each wanted key is in `keys`, which ascend. In their order, the search is several times as fast."""
    if (wanted[1:] >= wanted[:-1]).all():
        return ints(positions(keys, np.ascontiguousarray(wanted, np.int64)))
    order, found = np.argsort(wanted), np.empty(len(wanted), np.int64)
    found[order] = _positions(keys, wanted[order])
    return found


def row_of(keys: Ints, wanted: Ints) -> Ints:
    """Return the first row of each wanted key in `keys`, or -1."""
    return Rows(keys)(wanted)
