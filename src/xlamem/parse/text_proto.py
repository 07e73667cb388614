"""Protobuf text with one field a line, as XLA prints flags."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .arrays import Ints

MAX_DEPTH = 100
"""Maximum number of messages around a field, as in protobuf's own parsers."""

WANTED = "NAME: VALUE, NAME {, } or a comment"
"""The lines of the text."""

_LINE = r"^ *(?:(?P<name>[\w.\[\]/-]+)(?:: (?P<value>.*)|(?P<opens> \{))|(?P<closes>\})|(?P<comment>#.*))$"


class Fields(NamedTuple):
    """The fields of a text, and what is wrong in it."""

    names: pa.Array
    """With the names of the messages around them and dots."""
    values: pa.Array
    """As printed; {} for an empty message."""
    comments: pa.Array
    """The comment on the line above; null if there is none."""
    unknown: Ints
    """Offsets of the lines that were not understood."""
    not_utf8: Ints
    """Offsets of the other lines with bytes that are not UTF-8."""
    unclosed: bool
    """Whether a message has no end."""


class _Lines(NamedTuple):
    """The lines of a file: what each is, and the number of messages that are open after it."""

    fields: Any
    """name, value, opens, closes and comment by line; null for a line that is none of them."""
    opens: Any
    depth: Ints
    unknown: Any
    """Lines that are none of them, close no message, or are in too many messages."""


def fields_of(data: bytes) -> Fields:
    """Return the fields of complete lines; bytes that are not UTF-8 are escaped."""
    texts = data.decode("utf-8", "backslashreplace").split("\n")[:-1]
    lines = _lines_of(pa.array(texts, pa.string()))
    begins = np.append(0, np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1)[:-1].astype(np.int64)
    not_utf8 = begins[_not_utf8(data, len(begins)) & ~lines.unknown]
    return Fields(*_rows(lines), begins[lines.unknown], not_utf8, bool(len(texts) and lines.depth[-1] > 0))


def _not_utf8(data: bytes, n_lines: int) -> Any:
    """Return which lines have bytes that are not UTF-8."""
    characters = np.frombuffer(data.decode("utf-8", "surrogateescape").encode("utf-32-le", "surrogatepass"), np.uint32)
    is_byte = (characters >= 0xDC80) & (characters <= 0xDCFF)
    line = np.cumsum(characters == ord("\n"))
    found = np.zeros(n_lines, np.bool_)
    found[line[is_byte]] = True
    return found


def _lines_of(lines: Any) -> _Lines:
    fields = pc.extract_regex(lines, _LINE)
    known = fields.is_valid().to_numpy(zero_copy_only=False)
    opens, closes = (_filled(column) for column in fields.flatten()[2:4])
    balance = np.cumsum(opens.astype(np.int64) - closes)
    lowest = np.minimum(np.minimum.accumulate(balance), 0) if len(balance) else balance
    superfluous = np.diff(lowest, prepend=0) < 0  # closes no message
    depth = balance - lowest
    too_deep = known & ~closes & (depth > MAX_DEPTH)
    return _Lines(fields, opens, depth, ~known | superfluous | too_deep)


def _rows(lines: _Lines) -> tuple[Any, Any, Any]:
    """Return names, with those of the messages around them, values and comments; an empty message is a value."""
    names, values, _, closes, comments = lines.fields.flatten()
    is_empty = lines.opens & np.append(_filled(closes), False)[1:]
    is_field = _filled(names) & ~lines.opens
    rows = np.flatnonzero((is_field | is_empty) & ~lines.unknown)
    level = lines.depth[rows] - lines.opens[rows]
    paths = names.take(pa.array(rows))
    for around in range(int(level.max(initial=0)) - 1, -1, -1):
        inside = np.flatnonzero(level > around)
        message = _last(lines.opens & (lines.depth == around + 1))[rows[inside]]
        longer = pc.binary_join_element_wise(names.take(pa.array(message)), paths.take(pa.array(inside)), ".")
        paths = pc.replace_with_mask(paths, pa.array(level > around), longer)
    above = pa.array(rows - 1, mask=~np.append(False, _filled(comments))[rows])
    return paths, pc.if_else(pa.array(is_empty[rows]), "{}", values.take(pa.array(rows))), comments.take(above)


def _filled(texts: Any) -> Any:
    """Return which texts are neither null nor empty."""
    return pc.not_equal(texts, "").fill_null(False).to_numpy(zero_copy_only=False)


def _last(marked: Any) -> Ints:
    """Return the last marked row at or before each row, or -1."""
    last: Ints = np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))
    return last
