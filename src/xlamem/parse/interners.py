"""Interned text: integer codes for names, and the dictionaries that the codes index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _shapes, _values
from .._column import Names
from . import arrow
from .arrays import Codes, Ints, TextParts, codes, ints
from .arrow import TEXT, Dictionary, dictionary_array, offsets_of, split_by_bytes, text_chunks


class Interner:
    """Distinct texts of one meaning and their codes. Columns that share an interner can be compared by code."""

    def __init__(self) -> None:
        self.names = Names()
        self._arrays: tuple[int, list[pa.Array]] | None = None
        self._dictionary: Dictionary | None = None

    def dictionary(self) -> Dictionary | None:
        """Return all texts in Arrow's layout; None if they exceed `CHUNK_BYTES`."""
        if self._dictionary is None or self._dictionary[2] != len(self.names):
            data, ends = self.export()
            if len(data) > arrow.CHUNK_BYTES:
                return None
            self._dictionary = data, offsets_of(ends, 0), len(ends)
        return self._dictionary

    def export(self) -> tuple[Any, Ints]:
        """Return the bytes of all texts, and the end of each."""
        data, ends = self.names.export()
        return data, ints(ends)

    def texts_from(self, code: int) -> tuple[memoryview, Ints] | None:
        """Return the bytes of the texts from a code on, and the end of each; None if there are no such texts."""
        if code == len(self.names):
            return None
        data, ends = self.export()
        begin = int(ends[code - 1]) if code else 0
        return memoryview(data)[begin:], ends[code:] - begin

    def text(self, code: int) -> str | None:
        """Return the text of a code; None for -1."""
        if code < 0:
            return None
        data, ends = self.export()
        return bytes(memoryview(data)[int(ends[code - 1]) if code else 0 : int(ends[code])]).decode()

    def arrays(self, values: Codes, *, nullable: bool = True) -> list[pa.Array]:
        """Return a dictionary column of these codes, in several chunks if the texts exceed `CHUNK_BYTES`."""
        chunks = self._text_arrays()
        if len(chunks) == 1:
            return [dictionary_array(values, chunks[0], nullable=nullable)]
        return list(split_by_bytes(values, pa.chunked_array(chunks), np.diff(self.export()[1], prepend=0)))

    def _text_arrays(self) -> list[pa.Array]:
        n = len(self.names)
        if self._arrays is None or self._arrays[0] != n:
            data, ends = self.export()
            self._arrays = n, text_chunks(pa.py_buffer(data), ends, None)
        return self._arrays[1]

    def add(self, parts: TextParts) -> Codes:
        """Add a few texts and return their codes."""
        out = np.empty(len(parts[1]) - 1, np.int32)
        self.names.codes(memoryview(parts[0]), parts[1], out, True)
        return out

    def find(self, texts: pa.StringArray, *, add: bool = False) -> Codes:
        """Return the code of each text. New texts are added if `add` is True; otherwise their code is -1."""
        out = np.empty(len(texts), np.int32)
        if len(texts):
            _, ends, data = texts.buffers()
            offsets = codes(ends)[texts.offset : texts.offset + len(texts) + 1]
            self.names.codes(memoryview(data or b"").cast("B"), offsets, out, add)
        return out

    def absorb(self, other: Interner | FixedDictionary) -> Codes:
        """Add the texts of another dictionary and return their codes in this one."""
        if isinstance(other, FixedDictionary):
            data, offsets, n = other.texts
            out = np.empty(n, np.int32)
            self.names.codes(memoryview(data), offsets, out, True)
        else:
            n = len(other.names)
            out = np.empty(n, np.int32)
            self.names.look_up(other.names, out, 0, n)
            self.names.add(other.names, out)
        return out

    def code(self, text: str) -> int:
        """Return the code of a text, adding it if it is new."""
        return int(self.names.code(text.encode()))


class FixedDictionary:
    """A dictionary with a fixed list of texts; None is null."""

    def __init__(self, *texts: str | None) -> None:
        distinct = list(dict.fromkeys(t for t in texts if t is not None))
        code: dict[str | None, int] = {t: i for i, t in enumerate(distinct)} | {None: -1}
        self._code = code
        self._codes = np.array([code[t] for t in texts], np.int32)
        data = [t.encode() for t in distinct]
        ends = np.cumsum([len(t) for t in data], dtype=np.int64)
        self.texts: Dictionary = b"".join(data), offsets_of(ends, 0), len(data)

    def dictionary(self) -> Dictionary | None:
        return self.texts

    @cached_property
    def _array(self) -> pa.StringArray:
        # Not in advance: the first array from Python objects makes Arrow search for pandas, which takes 0.4 to 6 ms.
        return pa.array([text for text in self._code if text is not None], TEXT)

    def arrays(self, values: Codes, *, nullable: bool = True) -> list[pa.Array]:
        return [dictionary_array(values, self._array, nullable=nullable)]

    def codes(self, items: npt.NDArray[Any]) -> Codes:
        """Return the code of texts[i] for each item i."""
        return self._codes[items] if len(self._codes) else np.empty(0, np.int32)

    def codes_of(self, texts: Sequence[str | None]) -> Codes:
        """Return the code of each text."""
        return np.array([self._code[t] for t in texts], np.int32)


fixed_dictionary = lru_cache(maxsize=64)(FixedDictionary)


SHARED = ("label", "kind")
"""Interners of the report and of the HLO header, whose scans carry codes over to the next span."""


class Interners(dict[str, Interner]):
    """The interners of a dump, by the meaning of their texts."""

    def __init__(self, shared: Interners | None = None) -> None:
        """Make interners; those in SHARED are taken from `shared`."""
        super().__init__({name: Interner() for name in (*_values.POOLS, "element_type", "file", "function")})
        for name in SHARED:
            self[name] = Interner() if shared is None else shared[name]
        self._sizes: tuple[Codes, Ints] = np.empty(0, np.int32), np.empty(0, np.int64)
        self._tiled = np.empty(0, bool)

    def names(self, meanings: Sequence[str]) -> list[Names]:
        """Return the native interners of these meanings."""
        return [self[m].names for m in meanings]

    def shape_sizes(self) -> tuple[Codes, Ints]:
        """Return the element type (as a code) and the unpadded size of each shape, indexed by the shape's code."""
        if new := self["shape"].texts_from(len(self._sizes[1])):
            parts = _shapes.sizes(*new, self["element_type"].names)
            types, sizes = codes(parts[0]), ints(parts[1])
            is_first = not len(self._sizes[1])
            self._sizes = (types, sizes) if is_first else (
                np.concatenate([self._sizes[0], types]), np.concatenate([self._sizes[1], sizes])
            )  # fmt: skip
        return self._sizes

    def tiled_shapes(self) -> npt.NDArray[np.bool_]:
        """Return whether each shape has a tiled layout, indexed by the shape's code."""
        if new := self["shape"].texts_from(len(self._tiled)):
            data, ends = new
            is_tiled = np.zeros(len(ends), bool)
            offsets = [match.start() for match in re.finditer(rb"T\(", data)]
            is_tiled[np.searchsorted(ends, offsets, "right")] = True
            self._tiled = np.append(self._tiled, is_tiled)
        return self._tiled
