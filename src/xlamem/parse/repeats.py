"""Repeated instruction texts: only the first of equal texts becomes a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _lines, _lookup, _values
from . import arrow
from .arrays import Bools, Codes, Ints, TextParts, flags, ints, text_ends, texts
from .batch import Batch, Columns, Section

MAX_LINKS = 8
"""Texts of one name that are compared one by one. A valid dump has one text of each."""

FILE_SHIFT = 48
"""Number of bits of a position that hold the offset."""

_INSTRUCTION_DIFFERS = _lines.CODES.index("instruction_differs")
_NOT_UTF8 = _lines.CODES.index("not_utf8")


def keep_instructions(batch: Batch, repeats: Ints, rows: Ints) -> None:
    """Keep these rows of `instructions`, and drop the faults of texts that begin at one of `repeats`."""
    if len(faults := batch.faults):
        dropped = faults[:, 0] == _INSTRUCTION_DIFFERS  # from within the span; compared with earlier spans below
        lines = ints(_values.line_starts(batch.span.section.data, repeats))
        dropped |= (faults[:, 0] == _NOT_UTF8) & np.isin(faults[:, 1], lines)
        batch.faults = np.ascontiguousarray(faults[~dropped])
    _take(batch.tables["instructions"], rows)


def _take(columns: Columns, keep: Ints) -> None:
    """Keep these rows, which must be in ascending order."""
    if len(keep) == len(columns["instruction"]):
        return
    first, stop = (int(keep[0]), int(keep[-1]) + 1) if len(keep) else (0, 0)
    # Adjacent rows are not copied. A repeat is nearly always the first row: an instruction that defines several values.
    rows = slice(first, stop) if stop - first == len(keep) else keep
    for name, column in columns.items():
        columns[name] = _take_text(column, rows) if isinstance(column, tuple) else column[rows]


def _take_text(parts: TextParts, rows: slice | Ints) -> TextParts:
    data, offsets, valid = parts
    if isinstance(rows, slice) and len(data) <= arrow.CHUNK_BYTES:
        offsets = offsets[rows.start : rows.stop + 1]
        return memoryview(data)[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0], valid[rows]
    ends = text_ends(parts)
    data, offsets, _ = texts(_values.texts(data, np.append(0, ends)[:-1][rows], ends[rows]))
    return data, offsets, valid[rows]


def drop_repeats(seen: _lookup.Texts, batch: Batch) -> Ints:
    """Drop rows whose text was seen, and add the others; return the lines of new texts of names that were seen."""
    section, columns = batch.span.section, batch.tables["instructions"]
    shift, begin = section.file.ordinal << FILE_SHIFT, columns["text_begin"]
    kinds = flags(seen.add(begin + shift, columns["text_end"] + shift))
    differing = ints(_values.line_starts(section.data, begin[kinds == _lookup.OTHER]))
    keep_instructions(batch, begin[kinds == _lookup.REPEAT], np.flatnonzero(kinds != _lookup.REPEAT))
    return differing


class SeenInstructions:
    """The instructions of earlier batches and their texts, by code."""

    def __init__(self, names: int, files: Sequence[Any]) -> None:
        """`names` is the number of codes, `files` are the texts of all files by ordinal."""
        self._files = files
        self._last = np.full(names, -1, np.int32)
        """The last row of each code so far, counted over all batches."""
        self._previous: list[Codes | Ints] = []
        """For each batch, the previous row with the same code as each row, or -1."""
        self._texts: list[tuple[Section, Ints, Ints]] = []
        """For each batch, its section and the begin and end of each row's text."""
        self._starts = [0]
        self._distinct: _lookup.Texts | None = None
        """All texts so far, as soon as a name has many; then there are no links."""

    def drop_repeats(self, batch: Batch) -> Ints:
        """Drop rows whose text occurs in an earlier batch; return the lines of those with a new text."""
        if self._distinct is not None:
            return drop_repeats(self._distinct, batch)
        columns, section = batch.tables["instructions"], batch.span.section
        name, begin, end, previous = (columns[c] for c in ("instruction", "text_begin", "text_end", "before"))
        earlier = self._last[name]
        if np.maximum.reduce(earlier, initial=-1) < 0 and np.maximum.reduce(previous, initial=-1) < 0:
            keep_instructions(batch, begin[:0], np.arange(len(name)))  # usually all names are new
            self._append(name, section, begin, end, previous)
            return np.empty(0, np.int64)
        repeat = self._repeats(section, begin, end, earlier)
        if repeat is None:
            self._distinct = self._index()
            return drop_repeats(self._distinct, batch)
        keep = np.flatnonzero(~repeat)
        link = self._links(name, keep, previous.astype(np.int64))
        repeats, begin, end, name = begin[repeat], begin[keep], end[keep], name[keep]
        keep_instructions(batch, repeats, keep)
        self._append(name, section, begin, end, link)
        return ints(_values.line_starts(section.data, begin[link >= 0]))

    def _append(self, name: Codes, section: Section, begin: Ints, end: Ints, previous: Codes | Ints) -> None:
        start = self._starts[-1]
        self._previous.append(previous)
        self._texts.append((section, begin, end))
        self._last[name] = np.arange(start, start + len(name), dtype=np.int32)
        self._starts.append(start + len(name))

    def _repeats(self, section: Section, begin: Ints, end: Ints, earlier: Codes) -> Bools | None:
        """Return which rows have the text of an earlier row with the same code; follows the links from `earlier`.

        None if a name has more than MAX_LINKS texts.
        """
        repeat, links = np.zeros(len(begin), bool), 0
        while len(todo := np.flatnonzero((earlier >= 0) & ~repeat)):
            if links == MAX_LINKS:
                return None
            links += 1
            batch = np.searchsorted(self._starts, earlier[todo], "right") - 1
            for k in np.flatnonzero(np.bincount(batch)).tolist():  # np.unique would import numpy.ma
                rows = todo[batch == k]
                previous = earlier[rows] - self._starts[k]
                other, begins, ends = self._texts[k]
                both = section.data, begin[rows], end[rows], other.data, begins[previous], ends[previous]
                equal = flags(_values.same(*both))
                repeat[rows] = equal.astype(bool)
                earlier[rows] = self._previous[k][previous]
        return repeat

    def _index(self) -> _lookup.Texts:
        """Return the texts of all batches so far."""
        found = _lookup.Texts(_lookup.Files(self._files))
        for section, begin, end in self._texts:
            shift = section.file.ordinal << FILE_SHIFT
            found.add(begin + shift, end + shift)
        return found

    def _links(self, name: Codes, keep: Ints, previous: Ints) -> Ints:
        """Return the previous kept row with the same code, in this batch or an earlier one, for each kept row."""
        row = np.full(len(name) + 1, -1, np.int64)
        row[keep] = self._starts[-1] + np.arange(len(keep))
        nearest = previous[keep]
        while (dropped := (nearest >= 0) & (row[nearest] < 0)).any():
            nearest[dropped] = previous[nearest[dropped]]
        return np.where(nearest >= 0, row[nearest], self._last[name[keep]])
