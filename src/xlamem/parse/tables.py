"""Builds Arrow tables of the schema from native columns or Python rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _record, schema
from . import arrow
from .arrays import NULL
from .arrow import Dictionary, bool_array, int_array, text_arrays
from .interners import FixedDictionary, Interner, fixed_dictionary

Column = tuple[Any, Interner | FixedDictionary | None]
"""The items of a column, and the dictionary that its codes index.

Items are int64, uint8 (or uint8 and the bit to test), `TextParts`, or codes; None if all are null. A plain tuple,
because a named one for each column costs 3 % on small dumps.
"""


class Chunk(NamedTuple):
    """Some rows of a table: their number, and the columns in the schema's order."""

    rows: int
    columns: Sequence[Column]


Row = Sequence[Any]
"""Python values in the schema's order."""

NO_TEXTS: Dictionary = b"", np.zeros(1, np.int32), 0
_KINDS = {"int": _record.INT, "bool": _record.BOOL, "name": _record.NAME, "text": _record.TEXT}


def table_of(name: str, chunks: Sequence[Chunk]) -> pa.Table:
    """Return a table of the schema with the rows of these chunks."""
    spec = schema.TABLES[name]
    if not chunks:
        return spec.empty
    records = [_record_batch(name, chunk) for chunk in chunks if chunk.rows]
    if None in records:  # a column has more text than one chunk may hold
        columns = zip(spec.columns, zip(*(c.columns for c in chunks), strict=True), strict=True)
        lengths = [c.rows for c in chunks]
        arrays = {spec_.name: _arrays(spec_, items, lengths) for spec_, items in columns}
        chunked = [pa.chunked_array(arrays[c.name], c.arrow.type) for c in spec.columns]
        return pa.table(chunked, schema=spec.arrow)
    return pa.Table.from_batches(records, spec.arrow)


def table_of_rows(name: str, items: Sequence[Row]) -> pa.Table:
    """Return a small table from rows of Python values."""
    spec = schema.TABLES[name]
    if not items:
        return spec.empty
    columns = zip(spec.columns, zip(*items, strict=True), strict=True)
    return table_of(name, [Chunk(len(items), [_from_python(c.kind, values) for c, values in columns])])


def _record_batch(name: str, chunk: Chunk) -> pa.RecordBatch | None:
    """Return the chunk as a record batch; None if a column has too much text."""
    columns = []
    for (kind, nullable), (items, texts) in zip(_kinds(name), chunk.columns, strict=True):
        dictionary = None
        if kind == _record.TEXT and items is not None and len(items[0]) > arrow.CHUNK_BYTES:
            return None
        if kind == _record.NAME:
            dictionary = texts.dictionary() if texts is not None else NO_TEXTS
            if dictionary is None:
                return None
        columns.append((kind, nullable, items, dictionary))
    return pa.RecordBatch._import_from_c(_record.record(chunk.rows, columns), schema.TABLES[name].arrow)


@cache
def _kinds(name: str) -> list[tuple[int, bool]]:
    return [(_KINDS[c.kind], c.nullable) for c in schema.TABLES[name].columns]


def _arrays(spec: schema.Column, columns: Sequence[Column], lengths: Sequence[int]) -> list[pa.Array]:
    """Return the arrays of one column, none with more text than `CHUNK_BYTES`."""
    return [array for column, n in zip(columns, lengths, strict=True) for array in _array(spec, column, n)]


def _array(spec: schema.Column, column: Column, n: int) -> list[pa.Array]:
    items, dictionary = column
    if items is None:
        return [pa.nulls(n, spec.arrow.type)]
    if dictionary is not None:
        return dictionary.arrays(items, nullable=spec.nullable)
    if spec.kind == "text":
        return text_arrays(items)
    if spec.kind == "int":
        return [int_array(items, nullable=spec.nullable)]
    return [bool_array(items[0] >> items[1] & 1 if isinstance(items, tuple) else items)]


def _from_python(kind: schema.Kind, values: Sequence[Any]) -> Column:
    if kind == "int":
        return np.array([NULL if v is None else v for v in values], np.int64), None
    if kind == "bool":
        return np.array(values, np.uint8), None
    if kind == "name":
        distinct = dict.fromkeys(values)
        dictionary = fixed_dictionary(*distinct) if len(distinct) < 8 else FixedDictionary(*distinct)
        return dictionary.codes_of(values), dictionary
    data = [b"" if v is None else v.encode() for v in values]
    offsets = np.array([0, *accumulate(map(len, data))], np.int32)
    return (b"".join(data), offsets, np.array([v is not None for v in values], np.uint8)), None
