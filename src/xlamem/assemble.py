"""Native columns to Arrow arrays, without copying what is already laid out as Arrow wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import schema
from ._column import Names

NULL = np.iinfo(np.int64).min
"""What native integer columns hold for null; codes hold -1."""

CHUNK = 1 << 30
"""Most bytes of text in one chunk of a column."""

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.uint8]
Scalar = TypeVar("Scalar", bound=np.generic)
TextParts = tuple[Any, Ints, Bools]
"""Bytes, end of each item, whether each item is valid."""


def ints(column: Any) -> Ints:
    return np.frombuffer(column, np.int64)


def codes(column: Any) -> Codes:
    return np.frombuffer(column, np.int32)


def flags(column: Any) -> Bools:
    return np.frombuffer(column, np.uint8)


def joined(parts: Sequence[npt.NDArray[Scalar]], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """One array of several; the array itself if there is one."""
    return parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, dtype)])


class Rows:
    """The rows of `keys`, by key: rows(wanted) is the (first) row of each wanted key, -1 where there is none."""

    def __init__(self, keys: Ints) -> None:
        self.n = len(keys)
        if not self.n:
            return
        self.low, self.high = int(keys.min()), int(keys.max())
        # Ids are nearly dense.
        self.place: Codes | None = None
        if self.high - self.low <= 8 * self.n + 1024 and self.n < 1 << 31:
            self.place = np.full(self.high - self.low + 2, -1, np.int32)
            self.place[keys[::-1] - self.low] = np.arange(self.n - 1, -1, -1, dtype=np.int32)
        else:
            self.order = np.argsort(keys, kind="stable")
            self.keys = keys[self.order]

    def __call__(self, wanted: Ints) -> Ints:
        if not self.n or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        if self.place is None:
            at = np.minimum(np.searchsorted(self.keys, wanted), self.n - 1)
            return np.where(self.keys[at] == wanted, self.order[at], -1)
        at = wanted - self.low
        at[(wanted < self.low) | (wanted > self.high)] = self.high - self.low + 1
        return self.place[at].astype(np.int64)


def row_of(keys: Ints, wanted: Ints) -> Ints:
    """Row of each wanted key in `keys` (the first one), -1 where there is none."""
    return Rows(keys)(wanted)


def ascending(keys: Ints) -> Ints:
    """The rows in ascending order of nearly dense keys; of equal keys the first one alone."""
    if not len(keys):
        return np.empty(0, np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low > 8 * len(keys) + 1024:
        return np.unique(keys, return_index=True)[1]
    place = np.full(high - low + 1, -1, np.int64)
    place[keys[::-1] - low] = np.arange(len(keys) - 1, -1, -1)
    return place[place >= 0]


def texts(parts: tuple[Any, Any, Any]) -> TextParts:
    return parts[0], ints(parts[1]), flags(parts[2])


def _bitmap(valid: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def int_array(values: Ints, *, nullable: bool = True) -> pa.Array:
    """int64, with nulls where the value is NULL."""
    valid = _bitmap(values != NULL) if nullable and len(values) and values.min() == NULL else None
    return pa.Array.from_buffers(pa.int64(), len(values), [valid, pa.py_buffer(values)])


def bool_array(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bitmap(values)])


def text_arrays(parts: TextParts) -> list[pa.Array]:
    """UTF-8 text, in chunks of at most CHUNK bytes (one item may be larger)."""
    data, ends, valid = parts
    return list(_text_chunks(pa.py_buffer(data), ends, valid))


def _text_chunks(data: pa.Buffer, ends: Ints, valid: Bools | None) -> Iterator[pa.Array]:
    n, row, begin = len(ends), 0, 0
    while row < n or row == 0:
        stop = n if not n or ends[-1] - begin <= CHUNK else max(
            row + 1, int(np.searchsorted(ends, begin + CHUNK, "right"))
        )  # fmt: skip
        offsets = np.empty(stop - row + 1, np.int32)
        offsets[0] = 0
        np.subtract(ends[row:stop], begin, out=offsets[1:], casting="unsafe")
        mask = None
        if valid is not None and not valid[row:stop].all():
            mask = _bitmap(valid[row:stop])
        size = int(offsets[-1])
        yield pa.Array.from_buffers(
            pa.string(), stop - row, [mask, pa.py_buffer(offsets), data.slice(begin, size)]
        )
        if stop >= n:
            return
        row, begin = stop, int(ends[stop - 1])


class Pool:
    """Interned text of one meaning, shared by all columns that hold it: joins are on its codes."""

    def __init__(self) -> None:
        self.names = Names()
        self._exported: tuple[int, list[pa.Array]] | None = None

    def export(self) -> tuple[Any, Ints]:
        """All texts, as bytes, and the end of each."""
        data, ends = self.names.export()
        return data, ints(ends)

    def _dictionary(self) -> list[pa.Array]:
        """All texts as Arrow arrays: one, unless they are more than CHUNK bytes."""
        n = len(self.names)
        if self._exported is None or self._exported[0] != n:
            data, ends = self.export()
            self._exported = n, list(_text_chunks(pa.py_buffer(data), ends, None))
        return self._exported[1]

    def arrays(self, values: Codes, *, nullable: bool = True) -> list[pa.Array]:
        """The column of these codes; several chunks if its texts exceed CHUNK together."""
        chunks = self._dictionary()
        if len(chunks) == 1:
            return [coded(values, chunks[0], nullable=nullable)]
        return list(_split(values, pa.chunked_array(chunks), np.diff(self.export()[1], prepend=0)))

    def code(self, text: str) -> int:
        return int(self.names.code(text.encode()))


def _split(values: Codes, dictionary: pa.ChunkedArray, lengths: Ints) -> Iterator[pa.Array]:
    """Chunks of a column whose own dictionaries hold at most CHUNK bytes (one item may be larger)."""
    used, local = np.unique(values, return_inverse=True)
    if used.size and used[0] < 0:
        used, local = used[1:], local - 1
    if len(values) > 1 and lengths[used].sum() > CHUNK:
        half = len(values) // 2
        yield from _split(values[:half], dictionary, lengths)
        yield from _split(values[half:], dictionary, lengths)
    else:
        yield coded(local.astype(np.int32), pa.concat_arrays(dictionary.take(pa.array(used)).chunks))


def coded(values: Codes, dictionary: pa.Array, *, nullable: bool = True) -> pa.Array:
    """dictionary<int32, string>, with nulls where the code is negative."""
    mask = _bitmap(values >= 0) if nullable and len(values) and values.min() < 0 else None
    return pa.DictionaryArray.from_buffers(schema.ARROW["name"], len(values), [mask, pa.py_buffer(values)], dictionary)


def labelled(values: npt.NDArray[Any], labels: Sequence[str | None]) -> pa.Array:
    """A column whose item i is labels[values[i]]."""
    known = [t for t in labels if t is not None]
    place = np.array([-1 if t is None else known.index(t) for t in labels], np.int32)
    return coded(place[values] if len(place) else np.empty(0, np.int32), pa.array(known, pa.string()))


def table(name: str, columns: dict[str, list[pa.Array]]) -> pa.Table:
    """The table of the schema, its columns in the schema's order."""
    spec = schema.TABLES[name]
    arrays = [columns[c.name] for c in spec.columns]
    if all(len(a) == 1 for a in arrays):
        return pa.Table.from_arrays([a[0] for a in arrays], schema=spec.arrow)
    return pa.table([pa.chunked_array(columns[c.name], c.arrow.type) for c in spec.columns], schema=spec.arrow)


def rows(name: str, items: Sequence[Sequence[Any]]) -> pa.Table:
    """A small table from rows of Python values in the schema's order."""
    spec = schema.TABLES[name]
    if not items:
        return spec.empty
    columns = zip(spec.columns, zip(*items, strict=True), strict=True)
    return pa.Table.from_arrays([pa.array(v, c.arrow.type) for c, v in columns], schema=spec.arrow)
