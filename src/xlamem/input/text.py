"""The text of one member: its bytes with LF newlines, and conversion of offsets to lines and file offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .files import BLOCK_SIZE, Buffer

_NEWLINE = re.compile(rb"\n")


class Text:
    """The text of one member with LF newlines, extracted from its container.

    ``base`` is the offset of the first byte in the decompressed file. ``crlf`` is True if CR LF was replaced by LF;
    ``first_bare_lf`` is then the offset in ``data`` of the first line without a CR, if any. ``raw`` contains the
    original bytes, from which the content hash is computed, and ``size`` is their number.
    """

    features: frozenset[str] = frozenset()
    """Keys of `schema.FEATURES` that describe how the text is stored."""

    def __init__(
        self, data: Buffer, uri: str = "<bytes>", *, base: int = 0, count_lines_before: Callable[[], int] = lambda: 0
    ) -> None:
        self.data = self.raw = data
        self.uri, self.base, self.size = uri, base, len(data)
        self._count_lines_before = count_lines_before
        self.first_bare_lf: int | None = None
        newline = _NEWLINE.search(data)
        end = newline.start() if newline else 0
        self.crlf = end > 0 and data[end - 1] == 13
        if self.crlf:
            self._replace_crlf()

    def _replace_crlf(self) -> None:
        raw = bytes(self.raw)
        self.data = raw.replace(b"\r\n", b"\n")
        if bare := re.search(rb"(?<!\r)\n", raw):
            line = raw.rfind(b"\n", 0, bare.start()) + 1
            self.first_bare_lf = line - raw.count(b"\n", 0, line)

    @cached_property
    def first_line(self) -> int:
        """Line number of the first line of the data, computed on first use."""
        return 1 + self._count_lines_before()

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line number (from 1) and the file offset of an offset in ``data``."""
        return self.positions([offset])[0]

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, int]]:
        """Return the positions of several offsets in ascending order, in one pass over the text."""
        positions, line, begin = [], self.first_line, 0
        file_offsets = self.file_offsets(np.array(offsets, np.int64)).tolist()
        for offset, file_offset in zip(offsets, file_offsets, strict=True):
            while begin < offset:
                end = min(begin + BLOCK_SIZE, offset)
                line += bytes(self.data[begin:end]).count(b"\n")
                begin = end
            positions.append((line, file_offset))
        return positions

    def file_offsets(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Convert offsets in ``data`` to offsets in the file."""
        if self.crlf:
            raw = np.frombuffer(self.raw, np.uint8)
            returns = np.flatnonzero((raw[:-1] == 13) & (raw[1:] == 10))
            offsets = offsets + np.searchsorted(returns - np.arange(len(returns)), offsets)
        return offsets + self.base

    def close(self) -> None:
        """Release the bytes. A mapping is unmapped when it is no longer referenced."""
        self.data = self.raw = b""

    def __len__(self) -> int:
        return len(self.data)

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
