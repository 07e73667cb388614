"""The outline of a dump: its files and the boundaries of their sections."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import _lines
from ..input import names
from ..input.files import BLOCK_SIZE, evict_pages
from ..input.find import Member
from .arrays import Ints
from .batch import ASSIGNMENT, FLAGS, HLO, LIVE, REPORT, USED, File, Section
from .diagnostics import MAX_ROWS, Diagnostics
from .threads import ThreadPool

MIN_PIECE_BYTES, MAX_PIECE_BYTES = 2 << 20, 256 << 20
"""Limits of what one thread searches for heads at once. If there is more text, its pages are evicted from memory."""

MAX_HEAD_BYTES = 200
"""Maximum length of a section's head line; longer lines are reported as unknown."""

_HUMAN = rb" \((?P<human>-?\d+B|-?\d+\.\dKiB|-?\d+\.\d\d[MGTPE]iB)"
_TOTAL = re.compile(
    rb"Total bytes used:(?: (?P<n>-?\d+)(?![\w.-])(?P<a>.*?)|(?P<b>.*?) (?P<m>-?\d+)(?![\w.-])(?P<c>.*?))"
    rb"(?:" + _HUMAN + rb"(?P<d>.*?)\)(?P<e>.*))?"
)
_STEPS = re.compile(
    rb"HloLiveRange \((?:(?P<a>)max (?P<n>\d+)|(?P<b>.*?[ ,])max (?P<m>\d+))(?P<c>.*?)\)(?P<d>.*?):(?P<e>.*)"
)
_HEADS = {
    _lines.ASSIGNMENT: re.compile(rb"BufferAssignment(.*?):(.*)"),
    _lines.TOTAL: _TOTAL,
    _lines.USED: re.compile(rb"Used values(.*?):(.*)"),
    _lines.LIVE: _STEPS,
}
"""Lines that open a section. Groups named n and m are numbers, human is a rounded one, all others are unknown text."""
_WHOLE_FILE: dict[str, str] = {"hlo": HLO, **dict.fromkeys(names.FLAG_EXTENSIONS, FLAGS)}
"""The section of files that are a single section without a head line."""
_PLAIN_HEADS = (b"BufferAssignment:\n", b"Used values:\n")


def outline(member: Member, ordinal: int, diagnostics: Diagnostics, pool: ThreadPool) -> File:
    """Load a member and find its sections; lines outside of them become diagnostics."""
    text = member.load()
    data, size = text.data, len(text.data)
    ends_in_newline = bytes(data[max(0, size - 1) :]) == b"\n"
    file = File(ordinal, member.role, text, size, size if ends_in_newline else _end_of_lines(data))
    file.features |= text.features
    if text.crlf:
        file.features.add("crlf")
    if text.first_bare_lf is not None:
        diagnostics.add(file, text.first_bare_lf, "file", "mixed_newlines", "CR LF at the end of every line")
    if size == 0:
        diagnostics.truncated(file, 0, "file", "text")
    elif kind := _WHOLE_FILE.get(member.role):
        file.sections.append(Section(kind, weakref.ref(file), 0, file.end, 0))
    else:
        _Outliner(file, diagnostics, pool).add_sections(member.file_name)
    if not ends_in_newline and size:
        _check_last_line(file, diagnostics)
    return file


def _check_last_line(file: File, diagnostics: Diagnostics) -> None:
    """Report a file as truncated if its last line has no newline, unless the text may end there."""
    unavailable = bool(file.sections) and file.sections[-1].unavailable
    if unavailable and bytes(file.text.data[file.end : file.end + 26]) == b"HloLiveRange not available":
        return
    kind = next((s.kind for s in reversed(file.sections) if s.begin <= file.end), "file")
    diagnostics.truncated(file, file.end, _WHOLE_FILE.get(file.role, kind), "a newline")


class _Head(NamedTuple):
    """A line that opens a section, up to the next one."""

    kind: int
    offset: int
    line: bytes
    stop: int
    """Offset of the next head, or the end of the last complete line."""
    next_kind: int | None

    @property
    def body(self) -> int:
        """Offset of the end of the line."""
        return min(self.offset + len(self.line), self.stop)


def _match(head: _Head, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
    return pattern.fullmatch(head.line.rstrip(b"\n")) if len(head.line) <= MAX_HEAD_BYTES else None


class _Outliner:
    """Turns the heads of one file into sections."""

    def __init__(self, file: File, diagnostics: Diagnostics, pool: ThreadPool) -> None:
        self._file, self._diagnostics, self._pool = file, diagnostics, pool
        self._owner = weakref.ref(file)
        self._total: tuple[int, int | None] | None = None
        """Offset and number of the last "Total bytes used" that does not belong to a section yet."""

    def add_sections(self, file_name: str) -> None:
        file = self._file
        heads = self._heads(file_name)
        self._add_unknown_lines(0, heads[0].offset if heads else file.end)
        for head in heads:
            self._add_section(head)
        kinds = {s.kind for s in file.sections if s.begin > s.head}
        inline = ASSIGNMENT in kinds
        if USED in kinds:
            file.features.add("values_inline" if inline else "values_split")
        if LIVE in kinds and "live_unavailable" not in file.features:
            file.features.add("live_inline" if inline or USED in kinds else "live_split")

    def _heads(self, file_name: str) -> list[_Head]:
        data, end = self._file.text.data, self._file.end
        lines = [(k, o) for k, o in _head_lines(data, file_name, self._pool) if o < end or k == _lines.LIVE_UNAVAILABLE]
        following = [*lines, (None, end)][1:]
        return [
            _Head(kind, offset, _line(data, offset), stop, next_kind)
            for (kind, offset), (next_kind, stop) in zip(lines, following, strict=True)
        ]

    def _add_section(self, head: _Head) -> None:
        section = self._section(head)
        if head.line not in _PLAIN_HEADS and (head.kind, head.next_kind) != (_lines.TOTAL, _lines.REPORT_LIST):
            self._keep_unknown_text(head)
        if section is not None:
            if section.kind != REPORT:
                section.end = _without_empty_lines(section.data, section.begin, section.end)
            self._file.sections.append(section)
            self._total = None

    def _section(self, head: _Head) -> Section | None:
        """Return the section that a head opens; None if the head continues another section."""
        file, owner, (kind, offset, _, stop, _) = self._file, self._owner, head
        if kind == _lines.ASSIGNMENT:
            return Section(ASSIGNMENT, owner, head.body, stop, offset)
        if kind == _lines.TOTAL:
            return self._total_line(head)
        if kind in (_lines.USED, _lines.REPORT_LIST):
            first, total = self._total or (offset, None)
            if kind == _lines.USED:
                return Section(USED, owner, head.body, stop, first, total)
            return Section(REPORT, owner, first, stop, first, total)
        if kind == _lines.SPACE:
            if not file.sections or file.sections[-1].kind != REPORT:
                return Section(REPORT, owner, offset, stop, offset)
            file.sections[-1].end = stop
            return None
        if kind == _lines.LIVE:
            return Section(LIVE, owner, head.body, stop, offset, steps=self._number(head, _STEPS))
        file.features.add("live_unavailable")
        self._add_unknown_lines(head.body, head.stop)
        return Section(LIVE, owner, head.body, stop, offset, unavailable=True)

    def _total_line(self, head: _Head) -> Section | None:
        """Handle a total, which belongs to the used values or report below it, or else is a section without records."""
        file, follower = self._file, head.next_kind
        self._total = head.offset, self._number(head, _TOTAL)
        match = _match(head, _TOTAL)
        if match and match["human"] and follower != _lines.REPORT_LIST:
            file.features.add("human_total")
        if follower == _lines.REPORT_LIST:
            return None
        self._add_unknown_lines(head.body, head.stop)
        if follower == _lines.USED:
            return None
        if head.stop == file.end:
            wanted = "'Used values:' below the total"
            self._diagnostics.truncated(file, file.end, USED, wanted)
        return Section(USED, self._owner, head.offset, head.offset, head.offset, self._total[1])

    def _number(self, head: _Head, pattern: re.Pattern[bytes]) -> int | None:
        """Return the number in a head; add a diagnostic and return None if there is none of at most 64 bits."""
        match = _match(head, pattern)
        digits = match and (match["n"] or match["m"])
        if digits and len(digits) <= 20 and abs(int(digits)) < 1 << 63:
            return int(digits)
        wanted = "a number of at most 64 bits"
        self._diagnostics.add(self._file, head.offset, "file", "unknown_line", wanted)
        return None

    def _keep_unknown_text(self, head: _Head) -> None:
        """Keep the unknown text of a head."""
        match = _match(head, _HEADS[head.kind]) if head.kind in _HEADS else None
        if match is None:
            return
        numbers = {match.re.groupindex.get(name) for name in ("n", "m", "human")}
        spans = [match.span(i) for i in range(1, match.re.groups + 1) if i not in numbers]
        rows = [(-1, 0, head.offset + begin, head.offset + end) for begin, end in spans if begin < end]
        if rows:
            section = "total" if head.kind == _lines.TOTAL else "file"
            self._diagnostics.unknown_fields(self._file, section, np.array(rows, np.int64), (), ())

    def _add_unknown_lines(self, begin: int, end: int) -> None:
        """Add a diagnostic for each line that is not empty."""
        if end - begin < MAX_HEAD_BYTES and not bytes(self._file.text.data[begin:end]).strip(b"\n"):
            return  # nearly always
        unknown = np.concatenate([np.empty(0, np.int64), *_lines_with_text(self._file.text.data, begin, end)])
        for offset in unknown[:MAX_ROWS].tolist():
            self._diagnostics.add(self._file, offset, "file", "unknown_line", "the head of a section")
        if len(unknown) > MAX_ROWS:
            self._diagnostics.count(self._file, "file", "unknown_line", len(unknown) - MAX_ROWS)
        self._diagnostics.unknown_lines(self._file, "file", unknown)


def _lines_with_text(data: Any, begin: int, end: int) -> Iterator[Ints]:
    """Yield the offsets of the lines of data[begin:end] that are not empty."""
    before = 10  # the byte before the block
    for first in range(begin, end, BLOCK_SIZE):
        block = np.frombuffer(bytes(data[first : min(first + BLOCK_SIZE, end)]), np.uint8)
        begins = np.append(before, block[:-1]) == 10
        yield first + np.flatnonzero(begins & (block != 10))
        before = block[-1]


def _head_lines(data: Any, file_name: str, pool: ThreadPool) -> list[tuple[int, int]]:
    """Return the (kind, offset) of each line that opens a section.

    If the file name implies a single section, the search ends at its head.
    """
    name = names.split(file_name)
    single = name is not None and name[1] not in ("buffer-assignment", "hlo")
    heads = _locate(data, single, pool)
    if single and heads and heads[0][0] == _lines.TOTAL:
        # The head of the used values has a second line.
        for kind, prefix in ((_lines.USED, b"Used values"), (_lines.REPORT_LIST, b"Allocations sorted")):
            if offset := _offset_after_empty_line(data, heads[0][1], prefix):
                heads.append((kind, offset))
        if len(heads) == 1:
            heads = _locate(data, False, pool)
    return heads


def _locate(data: Any, first_only: bool, pool: ThreadPool) -> list[tuple[int, int]]:
    """Return the heads in the text, or only the first one. Threads search pieces of the text, which end with lines."""
    size = len(data)
    step = min(max(size // pool.threads + 1, MIN_PIECE_BYTES), MAX_PIECE_BYTES)
    if first_only or size <= step:
        return _lines.locate(data, first_only)
    bounds = [0]
    while bounds[-1] < size:
        bounds.append(_lines.next_line(data, min(bounds[-1] + step, size) - 1, size, b""))

    def search(begin: int, end: int) -> list[tuple[int, int]]:
        heads = _lines.locate(memoryview(data)[begin:end], False)
        if size > MAX_PIECE_BYTES:
            evict_pages(data, begin, end)
        return [(kind, begin + offset) for kind, offset in heads]

    pieces = [partial(search, begin, end) for begin, end in pairwise(bounds)]
    if pool.threads == 1:
        return [head for piece in pieces for head in piece()]
    return [head for heads in pool.results([pool.submit(piece) for piece in pieces]) for head in heads]


def _end_of_lines(data: Any) -> int:
    """Return the end of the last complete line; 0 if there is none."""
    end = len(data)
    while end > 0:
        begin = max(0, end - (1 << 16))
        newline = bytes(data[begin:end]).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


def _line(data: Any, offset: int) -> bytes:
    """Return the line at an offset, with its newline."""
    return bytes(data[offset : _lines.next_line(data, offset, len(data), b"")])


def _offset_after_empty_line(data: Any, offset: int, prefix: bytes) -> int | None:
    """Return the offset of the second line after `offset` if it starts with `prefix` and the line between is empty."""
    below = offset + len(_line(data, offset))
    if bytes(data[below : below + 1]) == b"\n" and bytes(data[below + 1 : below + 1 + len(prefix)]) == prefix:
        return below + 1
    return None


def _without_empty_lines(data: Any, begin: int, end: int) -> int:
    """Return `end` moved back over the empty lines before it."""
    last, size = end, 64
    while last > begin:
        first = max(begin, last - size)
        if text := bytes(data[first:last]).rstrip(b"\n"):
            return min(first + len(text) + 1, end)
        last, size = first, min(2 * size, BLOCK_SIZE)
    return begin
