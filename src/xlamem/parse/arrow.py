"""Native columns to Arrow arrays, without copying what is already laid out as Arrow wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _record as _record_
from .. import schema
from .._column import Names, distinct, first_rows, rows_of

NULL = np.iinfo(np.int64).min
"""What native integer columns hold for null; codes hold -1."""

CHUNK = 1 << 30
"""Most bytes of text in one chunk of a column."""

STEP = 1 << 20
"""Rows that are looked at together where a copy of all would take much memory."""

INT, BOOL, TEXT, NAME = (schema.ARROW[kind] for kind in ("int", "bool", "text", "name"))

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.uint8]
Scalar = TypeVar("Scalar", bound=np.generic)
TextParts = tuple[Any, Codes, Bools]
"""Bytes; 0 and the end of each item, modulo 2^32; whether each item is valid."""


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

    def __init__(self, keys: npt.NDArray[np.signedinteger[Any]]) -> None:
        self.n = len(keys)
        self.low, rows = first_rows(np.ascontiguousarray(keys, np.int64))
        self.rows = None if rows is None else codes(rows)  # ids are nearly dense
        if self.rows is None:
            order = np.argsort(keys, kind="stable")
            self.keys = keys[order]
            self.order = order.astype(np.int32) if self.n < 1 << 31 else order

    def __call__(self, wanted: Ints) -> Ints:
        if not self.n or not len(wanted):
            return np.full(len(wanted), -1, np.int64)
        if self.rows is not None:
            return ints(rows_of(self.rows, self.low, np.ascontiguousarray(wanted, np.int64)))
        at = np.minimum(np.searchsorted(self.keys, wanted), self.n - 1)
        return np.where(self.keys[at] == wanted, self.order[at], -1).astype(np.int64)


def row_of(keys: Ints, wanted: Ints) -> Ints:
    """Row of each wanted key in `keys` (the first one), -1 where there is none."""
    return Rows(keys)(wanted)


def ascending(keys: Ints) -> npt.NDArray[np.signedinteger[Any]]:
    """The rows in ascending order of nearly dense keys; of equal keys the first one alone."""
    if not len(keys):
        return np.empty(0, np.int64)
    low, high = int(np.minimum.reduce(keys)), int(np.maximum.reduce(keys))
    if high - low > 8 * len(keys) + 1024 or len(keys) >= 1 << 31:
        return np.unique(keys, return_index=True)[1]
    place = np.full(high - low + 1, -1, np.int32)
    for end in range(len(keys), 0, -STEP):  # the first row of a key is written last
        begin = max(0, end - STEP)
        place[keys[begin:end][::-1] - low] = np.arange(end - 1, begin - 1, -1, dtype=np.int32)
    return place[place >= 0]


def numbers_of(column: pa.ChunkedArray) -> Ints:
    """A column of integers, null the least."""
    values = column.fill_null(NULL) if column.null_count else column
    return np.ascontiguousarray(values.to_numpy(), np.int64)


def distinct_of(values: Ints) -> list[int]:
    """The distinct values, ascending. Mostly there are few."""
    few = distinct(values)
    return np.unique(values).tolist() if few is None else few


def texts(parts: tuple[Any, Any, Any]) -> TextParts:
    return parts[0], codes(parts[1]), flags(parts[2])


def ends_of(parts: TextParts) -> Ints:
    """The end of each text, however many bytes they have together."""
    ends: Ints = np.cumsum(np.diff(parts[1].view(np.uint32)), dtype=np.int64)
    return ends


def _bitmap(valid: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def int_array(values: Ints, *, nullable: bool = True) -> pa.Array:
    """int64, with nulls where the value is NULL."""
    valid = _bitmap(values != NULL) if nullable and len(values) and np.minimum.reduce(values) == NULL else None
    return pa.Array.from_buffers(INT, len(values), [valid, pa.py_buffer(values)])


def bool_array(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(BOOL, len(values), [None, _bitmap(values)])


def text_arrays(parts: TextParts) -> list[pa.Array]:
    """UTF-8 text, in chunks of at most CHUNK bytes (one item may be larger)."""
    data, offsets, valid = parts
    if len(data) <= CHUNK:
        return [_text_array(pa.py_buffer(data), offsets, valid)]
    return _text_chunks(pa.py_buffer(data), ends_of(parts), valid)


def _text_chunks(data: pa.Buffer, ends: Ints, valid: Bools | None) -> list[pa.Array]:
    n, row, begin = len(ends), 0, 0
    if not n or ends[-1] <= CHUNK:
        return [_text_array(data, _offsets(ends, 0), valid)]
    chunks = []
    while row < n:
        stop = n
        if ends[-1] - begin > CHUNK:
            stop = max(row + 1, int(np.searchsorted(ends, begin + CHUNK, "right")))
        end = int(ends[stop - 1])
        part = data.slice(begin, end - begin)
        chunks.append(_text_array(part, _offsets(ends[row:stop], begin), None if valid is None else valid[row:stop]))
        row, begin = stop, end
    return chunks


def _offsets(ends: Ints, begin: int) -> Codes:
    offsets = np.empty(len(ends) + 1, np.int32)
    offsets[0] = 0
    np.subtract(ends, begin, out=offsets[1:], casting="unsafe")
    return offsets


def _text_array(data: pa.Buffer, offsets: Codes, valid: Bools | None) -> pa.Array:
    n = len(offsets) - 1
    mask = None if valid is None or not n or np.minimum.reduce(valid) else _bitmap(valid)
    return pa.Array.from_buffers(TEXT, n, [mask, pa.py_buffer(offsets), data])


Dictionary = tuple[Any, Codes, int]
"""Texts as Arrow wants them: bytes, where each begins and the last one ends, how many."""


class Pool:
    """Interned text of one meaning, shared by all columns that hold it: joins are on its codes."""

    def __init__(self) -> None:
        self.names = Names()
        self._exported: tuple[int, list[pa.Array]] | None = None
        self._flat: Dictionary | None = None

    def dictionary(self) -> Dictionary | None:
        """All texts; None if they are more than CHUNK bytes."""
        if self._flat is None or self._flat[2] != len(self.names):
            data, ends = self.export()
            if len(data) > CHUNK:
                return None
            self._flat = data, _offsets(ends, 0), len(ends)
        return self._flat

    def export(self) -> tuple[Any, Ints]:
        """All texts, as bytes, and the end of each."""
        data, ends = self.names.export()
        return data, ints(ends)

    def _dictionary(self) -> list[pa.Array]:
        """All texts as Arrow arrays: one, unless they are more than CHUNK bytes."""
        n = len(self.names)
        if self._exported is None or self._exported[0] != n:
            data, ends = self.export()
            self._exported = n, _text_chunks(pa.py_buffer(data), ends, None)
        return self._exported[1]

    def arrays(self, values: Codes, *, nullable: bool = True) -> list[pa.Array]:
        """The column of these codes; several chunks if its texts exceed CHUNK together."""
        chunks = self._dictionary()
        if len(chunks) == 1:
            return [coded(values, chunks[0], nullable=nullable)]
        return list(_split(values, pa.chunked_array(chunks), np.diff(self.export()[1], prepend=0)))

    def codes(self, parts: TextParts) -> Codes:
        """The code of each of a few texts, which are added."""
        data = bytes(parts[0])
        found = [self.names.code(data[begin:end]) for begin, end in pairwise(parts[1].tolist())]
        return np.array(found, np.int32)

    def find(self, texts: pa.StringArray, *, add: bool = False) -> Codes:
        """The code of each text; of one that is not here -1, or `add` it."""
        found = np.empty(len(texts), np.int32)
        if len(texts):
            _, ends, data = texts.buffers()
            offsets = codes(ends)[texts.offset : texts.offset + len(texts) + 1]
            self.names.codes(memoryview(data or b"").cast("B"), offsets, found, add)
        return found

    def absorb(self, other: Pool | Labels) -> Codes:
        """The code here of each text of the other one; those that are new are added."""
        if isinstance(other, Labels):
            data, offsets, n = other.flat
            found = np.empty(n, np.int32)
            self.names.codes(memoryview(data), offsets, found, True)
        else:
            n = len(other.names)
            found = np.empty(n, np.int32)
            self.names.look_up(other.names, found, 0, n)
            self.names.add(other.names, found)
        return found

    def code(self, text: str) -> int:
        return int(self.names.code(text.encode()))


POOL_OF = {
    "operand_shape_index": "shape_index",
    "parameter_shape_index": "shape_index",
    "parameter_shape": "shape",
    "output_shape": "shape",
    "output_index": "shape_index",
    "parameter_index": "shape_index",
    "space_label": "label",
}
"""The pool of a column of names, where it is not of the column's own name."""


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
    mask = _bitmap(values >= 0) if nullable and len(values) and np.minimum.reduce(values) < 0 else None
    return pa.DictionaryArray.from_buffers(NAME, len(values), [mask, pa.py_buffer(values)], dictionary)


class Labels:
    """Texts that are known beforehand, as the pool of a column; a label that is None is a null."""

    def __init__(self, *labels: str | None) -> None:
        known = list(dict.fromkeys(t for t in labels if t is not None))
        code: dict[str | None, int] = {t: i for i, t in enumerate(known)} | {None: -1}
        self._code = code
        self.place = np.array([code[t] for t in labels], np.int32)
        data = [t.encode() for t in known]
        self.flat: Dictionary = (
            b"".join(data), _offsets(np.cumsum([len(t) for t in data], dtype=np.int64), 0), len(data),
        )  # fmt: skip
        self._array = pa.array(known, TEXT)

    def dictionary(self) -> Dictionary | None:
        return self.flat

    def arrays(self, values: Codes, *, nullable: bool = True) -> list[pa.Array]:
        return [coded(values, self._array, nullable=nullable)]

    def codes(self, values: npt.NDArray[Any]) -> Codes:
        """The code of label values[i] for each item."""
        return self.place[values] if len(self.place) else np.empty(0, np.int32)

    def codes_of(self, texts: Sequence[str | None]) -> Codes:
        """The code of each text."""
        return np.array([self._code[t] for t in texts], np.int32)


labels = lru_cache(maxsize=64)(Labels)


def labelled(values: npt.NDArray[Any], texts: Sequence[str | None]) -> pa.Array:
    """A column whose item i is texts[values[i]]."""
    known = labels(*texts)
    return known.arrays(known.codes(values))[0]


Value = tuple[Any, Pool | Labels | None]
"""What a column is made of: by its kind int64 items, bytes (or bytes and which bit), TextParts, or codes with their
pool; None for nulls alone."""


Made = tuple[int, Sequence[Value]]
"""What some rows of a table are made of: how many they are, and each column."""


def assembled(name: str, chunks: Sequence[Made]) -> pa.Table:
    """The table of these chunks: rows, and what each column is made of."""
    spec = schema.TABLES[name]
    records = [_record(name, *chunk) for chunk in chunks if chunk[0]]
    if None in records:  # more text than one chunk of a column may hold
        columns = zip(spec.columns, zip(*(values for _, values in chunks), strict=True), strict=True)
        lengths = [n for n, _ in chunks]
        return table(name, {c.name: _pieces(c, values, lengths) for c, values in columns})
    return pa.Table.from_batches(records, spec.arrow)


def _record(name: str, n: int, values: Sequence[Value]) -> pa.RecordBatch | None:
    columns = []
    for (kind, nullable), (value, pool) in zip(_kinds(name), values, strict=True):
        dictionary = None
        if kind == _record_.TEXT and value is not None and len(value[0]) > CHUNK:
            return None
        if kind == _record_.NAME:
            dictionary = pool.dictionary() if pool is not None else NOTHING
            if dictionary is None:
                return None
        columns.append((kind, nullable, value, dictionary))
    return pa.RecordBatch._import_from_c(_record_.record(n, columns), schema.TABLES[name].arrow)


NOTHING: Dictionary = b"", np.zeros(1, np.int32), 0
_KINDS = {"int": _record_.INT, "bool": _record_.BOOL, "name": _record_.NAME, "text": _record_.TEXT}


@cache
def _kinds(name: str) -> list[tuple[int, bool]]:
    return [(_KINDS[c.kind], c.nullable) for c in schema.TABLES[name].columns]


def _pieces(column: schema.Column, values: Sequence[Value], lengths: Sequence[int]) -> list[pa.Array]:
    """The arrays of one column, none with more text than CHUNK."""
    found: list[pa.Array] = []
    for (value, pool), n in zip(values, lengths, strict=True):
        if value is None:
            found.append(pa.nulls(n, column.arrow.type))
        elif pool is not None:
            found += pool.arrays(value, nullable=column.nullable)
        elif column.kind == "text":
            found += text_arrays(value)
        elif column.kind == "int":
            found.append(int_array(value, nullable=column.nullable))
        else:
            found.append(bool_array(value[0] >> value[1] & 1 if isinstance(value, tuple) else value))
    return found


def table(name: str, columns: dict[str, list[pa.Array]]) -> pa.Table:
    """The table of the schema, its columns in the schema's order."""
    spec = schema.TABLES[name]
    arrays = [columns[c.name] for c in spec.columns]
    if all(len(a) == 1 for a in arrays):
        return pa.Table.from_arrays([a[0] for a in arrays], schema=spec.arrow)
    return pa.table([pa.chunked_array(columns[c.name], c.arrow.type) for c in spec.columns], schema=spec.arrow)


Row = Sequence[Any]
"""Python values in the schema's order."""


def rows(name: str, items: Sequence[Row]) -> pa.Table:
    """A small table from rows of Python values."""
    spec = schema.TABLES[name]
    if not items:
        return spec.empty
    columns = zip(spec.columns, zip(*items, strict=True), strict=True)
    return assembled(name, [(len(items), [_value(c.kind, column) for c, column in columns])])


def _value(kind: schema.Kind, column: Sequence[Any]) -> Value:
    """What a column of these Python values is made of."""
    if kind == "int":
        return np.array([NULL if v is None else v for v in column], np.int64), None
    if kind == "bool":
        return np.array(column, np.uint8), None
    if kind == "name":
        found = dict.fromkeys(column)
        known = labels(*found) if len(found) < 8 else Labels(*found)
        return known.codes_of(column), known
    data = [b"" if v is None else v.encode() for v in column]
    offsets = np.array([0, *accumulate(map(len, data))], np.int32)
    return (b"".join(data), offsets, np.array([v is not None for v in column], np.uint8)), None
