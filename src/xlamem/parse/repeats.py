"""Instructions that several spans of the used values hold: of equal texts the first alone is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _lines, _values
from .arrow import CHUNK, Codes, Ints, TextParts, ends_of, flags, texts
from .section import Section

SAME_TEXT = "the text printed for that instruction before"
INSTRUCTION_DIFFERS = _lines.CODES.index("instruction_differs")
NOT_UTF8 = _lines.CODES.index("not_utf8")


def line_of(data: Any, begin: Ints) -> Ints:
    """Offset of the lines ' from instruction:[ ]%…' whose texts begin there."""
    raw = flags(data)
    line: Ints = begin - 18 - (raw[begin - 1] == 32)
    return line


def without(faults: Ints, lines: Ints) -> Ints:
    """Native faults but those of texts that turned out to be repeats."""
    rows = faults.reshape(-1, 3)
    gone = (rows[:, 0] == INSTRUCTION_DIFFERS) | ((rows[:, 0] == NOT_UTF8) & np.isin(rows[:, 1], lines))
    return np.ascontiguousarray(rows[~gone]).reshape(-1)


def drop_repeats(
    sections: Sequence[Section], chunks: Sequence[dict[str, Any]], names: int, find: Callable[..., None]
) -> list[Ints]:
    """Drop instructions that an earlier span holds with the same text; name those that differ.

    Each span knows only its own texts; `names`: how many names there are. Returns, per span, the lines of the
    instructions dropped.
    """
    lines: list[Ints] = []
    last = np.full(names, -1, np.int32)  # by name: its last row so far, counted over all spans
    before: list[Codes | Ints] = []
    place: list[tuple[Any, Ints, Ints]] = []  # data, begins, ends of the rows kept, per span
    starts = [0]
    for section, chunk in zip(sections, chunks, strict=True):
        data = section.file.text.data
        name, begin, end = chunk["instruction"], chunk["text_begin"], chunk["text_end"]
        candidate = last[name]
        if np.maximum.reduce(candidate, initial=-1) < 0 and np.maximum.reduce(chunk["before"], initial=-1) < 0:
            before.append(chunk["before"])  # each name is new, as nearly always
            place.append((data, begin, end))
            lines.append(begin[:0])
            last[name] = np.arange(starts[-1], starts[-1] + len(name), dtype=np.int32)
            starts.append(starts[-1] + len(name))
            continue
        inside = chunk["before"].astype(np.int64)
        repeat = np.zeros(len(name), bool)
        while True:
            todo = np.flatnonzero((candidate >= 0) & ~repeat)
            if not todo.size:
                break
            owner = np.searchsorted(starts, candidate[todo], "right") - 1
            for k in np.unique(owner).tolist():
                mine = todo[owner == k]
                row = candidate[mine] - starts[k]
                other, begins, ends = place[k]
                equal = flags(_values.same(data, begin[mine], end[mine], other, begins[row], ends[row]))
                repeat[mine] = equal.astype(bool)
                candidate[mine] = before[k][row]
        lines.append(line_of(data, begin[repeat]))
        keep = np.flatnonzero(~repeat)
        position = np.full(len(name) + 1, -1, np.int64)
        position[keep] = starts[-1] + np.arange(len(keep))
        # The row before of a row kept: the nearest one kept in this span, else the last of an earlier one.
        prior = inside[keep]
        while (lost := (prior >= 0) & (position[prior] < 0)).any():
            prior[lost] = inside[prior[lost]]
        link = np.where(prior >= 0, position[prior], last[name[keep]])
        for at in line_of(data, begin[keep[link >= 0]]).tolist():
            find(section.file, at, section.kind, "instruction_differs", SAME_TEXT)
        before.append(link)
        place.append((data, begin[keep], end[keep]))
        last[name[keep]] = position[keep]
        starts.append(starts[-1] + len(keep))
        take(chunk, keep)
    return lines


def take(chunk: dict[str, Any], keep: Ints) -> None:
    """Keep these rows of a chunk, ascending."""
    if len(keep) == len(chunk["instruction"]):
        return
    first, stop = (int(keep[0]), int(keep[-1]) + 1) if len(keep) else (0, 0)
    # Rows in a row are not copied: a repeat is nearly always the first, of an instruction that defines several values.
    rows = slice(first, stop) if stop - first == len(keep) else keep
    for column, value in chunk.items():
        chunk[column] = _take_text(value, rows) if isinstance(value, tuple) else value[rows]


def _take_text(parts: TextParts, rows: slice | Ints) -> TextParts:
    data, offsets, valid = parts
    if isinstance(rows, slice) and len(data) <= CHUNK:
        offsets = offsets[rows.start : rows.stop + 1]
        return memoryview(data)[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0], valid[rows]
    ends = ends_of(parts)
    data, offsets, _ = texts(_values.texts(data, np.append(0, ends)[:-1][rows], ends[rows]))
    return data, offsets, valid[rows]
