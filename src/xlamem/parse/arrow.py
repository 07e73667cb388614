"""Arrow arrays over native memory, without copying; chunks have at most `CHUNK_BYTES` of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import schema
from .arrays import NULL, Bools, Codes, Ints, TextParts, text_ends

CHUNK_BYTES = 1 << 30
"""Maximum number of bytes of text in one chunk of a column, unless a single item is larger."""

INT, BOOL, TEXT, NAME = (schema.ARROW[kind] for kind in ("int", "bool", "text", "name"))

Dictionary = tuple[Any, Codes, int]
"""Texts in Arrow's layout: bytes, offsets, number of texts."""


def int_array(values: Ints, *, nullable: bool = True) -> pa.Array:
    """Make an int64 array, with nulls where the value is `NULL`."""
    valid = _bitmap(values != NULL) if nullable and len(values) and np.minimum.reduce(values) == NULL else None
    return pa.Array.from_buffers(INT, len(values), [valid, pa.py_buffer(values)])


def bool_array(values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(BOOL, len(values), [None, _bitmap(values)])


def text_arrays(parts: TextParts) -> list[pa.Array]:
    """Make string arrays of at most `CHUNK_BYTES` each."""
    data, offsets, valid = parts
    if len(data) <= CHUNK_BYTES:
        return [_text_array(pa.py_buffer(data), offsets, valid)]
    return text_chunks(pa.py_buffer(data), text_ends(parts), valid)


def text_chunks(data: pa.Buffer, ends: Ints, valid: Bools | None) -> list[pa.Array]:
    """Make string arrays of at most `CHUNK_BYTES` each; item i ends at ends[i]."""
    n, row, begin = len(ends), 0, 0
    if not n or ends[-1] <= CHUNK_BYTES:
        return [_text_array(data, offsets_of(ends, 0), valid)]
    chunks = []
    while row < n:
        stop = n
        if ends[-1] - begin > CHUNK_BYTES:
            stop = max(row + 1, int(np.searchsorted(ends, begin + CHUNK_BYTES, "right")))
        end = int(ends[stop - 1])
        mask = None if valid is None else valid[row:stop]
        chunks.append(_text_array(data.slice(begin, end - begin), offsets_of(ends[row:stop], begin), mask))
        row, begin = stop, end
    return chunks


def offsets_of(ends: Ints, begin: int) -> Codes:
    """Return Arrow's 32-bit offsets of contiguous texts, of which the first begins at `begin`."""
    offsets = np.empty(len(ends) + 1, np.int32)
    offsets[0] = 0
    np.subtract(ends, begin, out=offsets[1:], casting="unsafe")
    return offsets


def dictionary_array(values: Codes, dictionary: pa.Array, *, nullable: bool = True) -> pa.Array:
    """Make a dictionary array, with nulls where the code is negative."""
    mask = _bitmap(values >= 0) if nullable and len(values) and np.minimum.reduce(values) < 0 else None
    return pa.DictionaryArray.from_buffers(NAME, len(values), [mask, pa.py_buffer(values)], dictionary)


def split_by_bytes(values: Codes, dictionary: pa.ChunkedArray, lengths: Ints) -> Iterator[pa.Array]:
    """Split a column into chunks whose own dictionaries have at most `CHUNK_BYTES`."""
    used, local = np.unique(values, return_inverse=True)
    if used.size and used[0] < 0:
        used, local = used[1:], local - 1
    if len(values) > 1 and lengths[used].sum() > CHUNK_BYTES:
        half = len(values) // 2
        yield from split_by_bytes(values[:half], dictionary, lengths)
        yield from split_by_bytes(values[half:], dictionary, lengths)
    else:
        yield dictionary_array(local.astype(np.int32), pa.concat_arrays(dictionary.take(pa.array(used)).chunks))


def _bitmap(valid: npt.NDArray[Any]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _text_array(data: pa.Buffer, offsets: Codes, valid: Bools | None) -> pa.Array:
    n = len(offsets) - 1
    mask = None if valid is None or not n or np.minimum.reduce(valid) else _bitmap(valid)
    return pa.Array.from_buffers(TEXT, n, [mask, pa.py_buffer(offsets), data])
