"""Convert Arrow columns to NumPy arrays, and arrays to the computed tables of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from .. import schema

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def arrow_array(values: npt.NDArray[Any], mask: Mask | None = None) -> pa.Array:
    """Return an array of numbers or flags, without copying numbers; null where the mask is true.

    `pa.array` would import numpy.ma to see whether these are masked, which is about 5 % of a quick command.
    """
    data = np.packbits(values, bitorder="little") if values.dtype == bool else np.ascontiguousarray(values)
    valid = None if mask is None or not mask.any() else pa.py_buffer(np.packbits(~mask, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(data)])


def ints(table: pa.Table, column: str, missing: int = -1) -> Ints:
    """Return an integer column with nulls replaced by `missing`."""
    values = table[column]
    if values.null_count:
        values = pc.fill_null(values, missing)
    return np.ascontiguousarray(values.to_numpy(), np.int64)


def bools(table: pa.Table, column: str) -> Mask:
    """Return a boolean column without nulls."""
    return np.asarray(table[column].to_numpy(), bool)


def encoded(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, pa.Array]:
    """Return the codes (-1 for null) and the dictionary of a text column."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(array.type):
        array = pc.dictionary_encode(array)
    indices = pc.fill_null(array.indices, -1) if array.null_count else array.indices
    return np.ascontiguousarray(indices.to_numpy(zero_copy_only=False), np.int64), array.dictionary


def decoded(codes: Ints, dictionary: pa.Array) -> pa.Array:
    """Return a dictionary-encoded column with these codes (negative for null)."""
    if not len(dictionary):
        return pa.nulls(len(codes), pa.dictionary(pa.int32(), pa.string()))
    indices = arrow_array(np.where(codes < 0, 0, codes).astype(np.int32), codes < 0)
    return pa.DictionaryArray.from_arrays(indices, dictionary)


def match_dictionaries(dictionary: pa.Array, other: pa.Array) -> Ints:
    """Return the code in `other` of each text in `dictionary`, -1 if it is missing.

    One dictionary of a dump is often a prefix of another. In that case, no text is looked up.
    """
    codes = np.arange(len(dictionary))
    if len(dictionary) <= len(other) and other.slice(0, len(dictionary)).equals(dictionary):
        return codes
    if len(other) < len(dictionary) and dictionary.slice(0, len(other)).equals(other):
        return np.where(codes < len(other), codes, -1)
    return np.asarray(pc.fill_null(pc.index_in(dictionary, other), -1).to_numpy(zero_copy_only=False), np.int64)


def take(values: npt.NDArray[Any], rows: Ints) -> Ints:
    """Return the values of these rows, or -1 for negative rows."""
    if not len(values):
        return np.full(len(rows), -1, np.int64)
    taken = values[rows].astype(np.int64) if values.dtype == bool else values[rows]
    np.putmask(taken, rows < 0, -1)
    return taken


def flags_of(flags: Mask, codes: Ints) -> Mask:
    """Return the flag of each code; False for -1."""
    return (codes >= 0) & flags[codes] if len(flags) else np.zeros(len(codes), bool)


def take_text(column: pa.ChunkedArray, rows: Ints) -> pa.Array:
    """Return the texts of these rows, or null for negative rows."""
    return texts_of(encoded(column), rows)


def texts_of(encoded: tuple[Ints, pa.Array], rows: Ints) -> pa.Array:
    """Return the texts of these rows of an encoded column, or null for negative rows.

    For few rows, the dictionary has only the texts of these rows: others would be searched and merged for nothing.
    """
    codes, dictionary = encoded
    codes = take(codes, rows)
    return decoded(codes, dictionary) if len(codes) >= len(dictionary) else decoded(*_used(codes, dictionary))


def _used(codes: Ints, dictionary: pa.Array) -> tuple[Ints, pa.Array]:
    """Return codes (negative for null) and a dictionary without unused texts."""
    is_used = np.zeros(len(dictionary) + 1, bool)
    is_used[codes] = True
    used = np.flatnonzero(is_used[:-1])
    return take(np.cumsum(is_used) - 1, codes), pc.take(dictionary, arrow_array(used))


def is_in(column: pa.ChunkedArray | pa.Array, texts: Iterable[str]) -> Mask:
    """Return whether the text of each row is one of these; False for null."""
    codes, dictionary = encoded(column)
    found = pc.is_in(pc.cast(dictionary, pa.string()), pa.array(list(texts), pa.string()))
    result: Mask = take(np.asarray(found.to_numpy(zero_copy_only=False), bool), codes) > 0
    return result


def nullable(values: Ints) -> pa.Array:
    """Return an int64 array in which negative values are null."""
    return arrow_array(values, values < 0)


def runs(values: Ints) -> tuple[Ints, Ints]:
    """Return the first and last index of each maximal run of equal values."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return first, np.append(first[1:] - 1, len(values) - 1)


def groups_of(*keys: Ints) -> tuple[Ints, Ints]:
    """Return the first row of each combination of keys (codes from -1), and the group of each row.

    `pyarrow.Table.group_by` would import Acero and the dataset modules, which takes longer than a screen.
    """
    group = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        group = _renumbered(group * (key.max(initial=-1) + 2) + key + 1)
    first = np.empty(group.max(initial=-1) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]
    return first, group


def _renumbered(numbers: Ints) -> Ints:
    """Return numbers without gaps, from 0, in the same order."""
    size = int(numbers.max(initial=-1)) + 1
    if size > 4 * len(numbers):
        return np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    is_used = np.zeros(size, bool)
    is_used[numbers] = True
    return (np.cumsum(is_used) - 1)[numbers]


def sums_of(values: Ints, group: Ints, n: int) -> Ints:
    """Return the sum of the values of each of n groups."""
    totals = np.zeros(n, np.int64)
    np.add.at(totals, group, values)
    return totals


def computed_table(name: str, columns: dict[str, Any]) -> pa.Table:
    """Build a table of `schema.COMPUTED` from these arrays, casting them to the types of the schema."""
    return table_of_columns(schema.COMPUTED[name].columns, columns)


def table_of_columns(specs: Sequence[schema.Column], columns: dict[str, Any]) -> pa.Table:
    """Build a table with these columns from arrays, casting them to the types of the schema."""
    arrays = []
    for column in specs:
        value = columns[column.name]
        array = arrow_array(value) if isinstance(value, np.ndarray) else value
        if column.kind == "name" and not pa.types.is_dictionary(array.type):
            array = pc.dictionary_encode(pc.cast(array, pa.string()))
        arrays.append(array if array.type == column.arrow.type else pc.cast(array, column.arrow.type))
    return pa.table(arrays, schema=pa.schema([c.arrow for c in specs]))
