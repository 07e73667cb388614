"""Columns of batches that are kept for cross-checks and lookups, either as scanned or narrowed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .arrays import NULL, Bools, Codes, Ints, Scalar, joined
from .batch import Batch, Columns

BLOCK_BYTES = 4 << 20
"""Size of the blocks that hold the narrow columns of many spans."""

Empty = Callable[[int, type[Any]], npt.NDArray[Any]]
"""(size, dtype) -> an array, like `np.empty`."""


class Store(ABC):
    """Columns by table, in one chunk per batch."""

    @abstractmethod
    def of(self, table: str) -> Sequence[Columns]:
        """Return the chunks of a table."""

    def codes(self, table: str, column: str) -> Codes:
        return joined([c[column] for c in self.of(table)], np.int32)

    def flags(self, table: str, column: str) -> Bools:
        return joined([c[column] for c in self.of(table)], np.uint8)

    @abstractmethod
    def ints(self, table: str, column: str) -> Ints:
        """Return a column as int64."""

    @abstractmethod
    def packed(self, table: str, column: str, base: int = 0) -> npt.NDArray[np.signedinteger[Any]]:
        """Return an integer column minus `base`, narrow if it is stored so; nulls are `NULL`."""

    @abstractmethod
    def batches(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yield (first row, column, ...) for each chunk, with columns as int64."""


class FullStore(Store):
    """All columns of batches, as they were scanned."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._batches = batches

    def of(self, table: str) -> Sequence[Columns]:
        return [b.tables[table] for b in self._batches if table in b.tables]

    def ints(self, table: str, column: str) -> Ints:
        return joined([b.tables[table][column] for b in self._batches if table in b.tables], np.int64)

    def packed(self, table: str, column: str, base: int = 0) -> npt.NDArray[np.signedinteger[Any]]:
        values = self.ints(table, column)
        return np.where(values == NULL, NULL, values - base) if base else values

    def batches(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        first = 0
        for chunk in self.of(table):
            yield first, *(chunk[c] for c in columns)
            first += len(chunk[columns[0]])


class Narrow(NamedTuple):
    """An int64 column in as few bytes as its range allows: values are base + item; an item of -1 is null."""

    base: int
    items: npt.NDArray[np.signedinteger[Any]]

    def plus(self, number: int) -> Narrow:
        """Add a number to each value; the column must not have nulls."""
        return Narrow(NULL, self.items + number) if self.base == NULL else Narrow(self.base + number, self.items)


def narrow(column: Ints) -> Narrow:
    """Narrow a column. If its range needs 64 bits, the values are kept and the base is `NULL`."""
    null = column == NULL
    values = column[~null] if null.any() else column
    if not len(values):
        return Narrow(0, np.full(len(column), -1, np.int8))
    low = int(values.min())
    extent = int(values.max()) - low
    width = next((t for t in (np.int8, np.int16, np.int32) if extent <= np.iinfo(t).max), None)
    if width is None:
        return Narrow(NULL, column)
    return Narrow(low, np.where(null, -1, column - low).astype(width))


def widen(column: Narrow, out: Ints) -> None:
    """Write a narrow column to an int64 array."""
    if column.base == NULL:
        out[:] = column.items
    else:
        np.add(column.items, np.int64(column.base), out=out)
        out[column.items < 0] = NULL


class CompactStore(Store):
    """Selected columns, with int64 ones narrowed; for dumps that do not fit in memory."""

    def __init__(self, empty: Empty = np.empty) -> None:
        """`empty` allocates arrays like `np.empty`."""
        self._empty = empty
        self.chunks: dict[str, list[Columns]] = {}
        self._blocks: dict[tuple[str, str], _Blocks] = {}

    def of(self, table: str) -> Sequence[Columns]:
        return self.chunks.get(table, ())

    def keep(self, table: str, columns: Columns, names: Iterable[str]) -> None:
        """Add a chunk with these columns; int64 ones are narrowed."""
        chunk: Columns = {}
        for name in names:
            blocks = self._blocks.setdefault((table, name), _Blocks(self._empty))
            values = columns[name]
            if values.dtype == np.int64:
                base, items = narrow(values)
                chunk[name] = Narrow(base, blocks.copy(items))
            else:
                chunk[name] = blocks.copy(values)
        self.chunks.setdefault(table, []).append(chunk)

    def drop(self, table: str, column: str) -> None:
        """Release a column."""
        self._blocks.pop((table, column), None)
        for chunk in self.of(table):
            del chunk[column]

    def ints(self, table: str, column: str, begin: int = 0, end: int = 1 << 62) -> Ints:
        """Return a column or the rows [begin, end) of it."""
        kept, first = [], 0
        for chunk in self.of(table):
            base, items = chunk[column]
            kept.append(Narrow(base, items[max(begin - first, 0) : max(end - first, 0)]))
            first += len(items)
        values = np.empty(sum(len(k.items) for k in kept), np.int64)
        first = 0
        for k in kept:
            widen(k, values[first : first + len(k.items)])
            first += len(k.items)
        return values

    def packed(self, table: str, column: str, base: int = 0) -> npt.NDArray[np.signedinteger[Any]]:
        kept = [c[column] for c in self.of(table) if len(c[column].items)]
        if any(k.base == NULL or k.items.min() < 0 for k in kept):
            values = self.ints(table, column)
            return np.where(values == NULL, NULL, values - base) if base else values
        low = min((k.base - base for k in kept), default=0)
        high = max((k.base - base + int(k.items.max()) for k in kept), default=0)
        dtype = next((t for t in (np.int8, np.int32) if low >= 0 and high <= np.iinfo(t).max), np.int64)
        return joined([k.items.astype(dtype) + dtype(k.base - base) for k in kept], dtype)

    def batches(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        first = 0
        for chunk in self.of(table):
            out = [np.empty(len(chunk[c].items), np.int64) for c in columns]
            for column, values in zip(columns, out, strict=True):
                widen(chunk[column], values)
            yield first, *out
            first += len(out[0])


class _Blocks:
    """Copies many short arrays into a few large blocks."""

    def __init__(self, empty: Empty) -> None:
        self._empty = empty
        self._block, self._used = np.empty(0, np.uint8), 0

    def copy(self, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        if self._used + array.nbytes > len(self._block):
            self._block, self._used = self._empty(max(BLOCK_BYTES, array.nbytes), np.uint8), 0
        out = self._block[self._used : self._used + array.nbytes].view(array.dtype)
        out[:] = array
        self._used += -(-array.nbytes // 8) * 8
        return out
