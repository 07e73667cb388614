"""A fast search for the modules of a text."""

from __future__ import annotations

from .. import _lines
from ..input import spans
from ..input.files import Buffer

_HEAD_BYTES = 256
"""More than the length of the head of a module."""


def is_one_module(data: Buffer) -> bool:
    """Return the result of `input.spans.is_one_module`, which searches only where the native code has found words."""
    first, second = _lines.two_modules(data)
    if second == len(data):  # the words are there once at most
        data = data[max(0, first - 1) : first + _HEAD_BYTES]
    return spans.is_one_module(data)
