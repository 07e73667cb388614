"""Parses cells from printed text: rounded sizes and metadata of instructions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, TypeAlias

Row: TypeAlias = dict[str, Any]

SIZE = r"-?\d+(?:\.\d+)?(?:[KMGTPE]i?B?|B)"
"""Regex for a printed size."""

METADATA = re.compile(r"metadata=\{((?:[^\"{}]|\"(?:[^\"\\]|\\.)*\"?)*)\}?")

_SIZE_RE = re.compile(SIZE)
_UNITS = "BKMGTPE"
_NO_INTEGER = 1 << 63
_ATTRIBUTE = re.compile(r'(?<!\w)(\w+)=(?:"((?:[^"\\]|\\.)*)"|(-?\d+))')
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def integer(digits: str) -> int | None:
    """Parse an integer; None if it is not below 2^63."""
    number = int(digits) if len(digits) < 21 else _NO_INTEGER
    return number if -_NO_INTEGER < number < _NO_INTEGER else None


@lru_cache(4096)
def size_of(text: str | None) -> int | None:
    """Parse a printed size (7.32G, 528.00M, 384.0KiB, 0B) into bytes; None if it is not a size below 2^63."""
    if text is None or not _SIZE_RE.fullmatch(text):
        return None
    number = text.rstrip("iBKMGTPE")
    unit = text[len(number)]
    size = float(number) * (1 << 10 * _UNITS.index(unit))
    return round(size) if abs(size) < _NO_INTEGER else None


def metadata_cells(text: str) -> Row:
    """Parse the metadata of an instruction into cells of its buffer."""
    attributes = {m[1]: m for m in _ATTRIBUTE.finditer(text)}
    row: Row = {"operator": text}
    for name in ("op_type", "op_name", "source_file"):
        if name in attributes and attributes[name][2] is not None:
            row[name] = _unescape(attributes[name][2])
    for name in ("source_line", "stack_frame_id"):
        if name in attributes and attributes[name][3] is not None:
            row[name] = integer(attributes[name][3])
    return row


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPE.sub(_unescape_one, text.encode()).decode("utf-8", "backslashreplace")


def _unescape_one(m: re.Match[bytes]) -> bytes:
    if m[3] is not None:
        return _ESCAPED.get(m[3], m[3])
    return bytes([int(m[1], 8) & 255 if m[1] else int(m[2], 16)])
