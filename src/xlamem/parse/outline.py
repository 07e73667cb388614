"""The outline of a dump: its files, and where in each a section begins and ends."""

from __future__ import annotations

import re
import weakref
from typing import Any

import numpy as np

from .. import _lines
from ..input import names
from ..input.files import evict_pages
from ..input.find import Member
from .batch import File, Section
from .diagnostics import Diagnostics

PAGES = 256 << 20
"""Bytes of a file that are looked at before their pages are given back."""


LONGEST = 200
"""Bytes of a line that opens a section; a longer one is not understood."""

_HUMAN = rb" \((?:-?\d+B|-?\d+\.\d+[KMGTPE]iB)"
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
"""Lines that open a section; the groups are what is not known there."""
_PLAIN = (b"BufferAssignment:\n", b"Used values:\n")


def outline(member: Member, ordinal: int, diagnostics: Diagnostics) -> File:
    """Load a member and find its sections; what belongs to none is a finding."""
    text = member.load()
    data = text.data
    size = len(data)
    tail = bytes(data[max(0, size - 1) :])
    whole = size if tail == b"\n" else _last_newline(data)
    file = File(ordinal, member.role, text, size, whole)
    file.features |= text.features
    if text.crlf:
        file.features.add("crlf")
    if text.first_bare_lf is not None:
        diagnostics.add(file, text.first_bare_lf, "file", "mixed_newlines", "CR LF at the end of every line")
    if size == 0:
        diagnostics.truncated(file, 0, "file", "text")
    elif member.role == "hlo":
        file.sections.append(Section("hlo", weakref.ref(file), 0, whole, 0))
    else:
        _locate(file, member.file_name, diagnostics)
    if whole < size:
        head = bytes(data[whole : whole + 26])
        if not (head == b"HloLiveRange not available" and file.sections and file.sections[-1].unavailable):
            section = next((s.kind for s in reversed(file.sections) if s.begin <= whole), "file")
            diagnostics.truncated(file, whole, "hlo" if file.role == "hlo" else section, "a newline")
    return file


def _locate(file: File, file_name: str, diagnostics: Diagnostics) -> None:
    """Fill file.sections from the lines that open one."""
    data, whole = file.text.data, file.whole
    name = names.split(file_name)
    alone = name is not None and name[1] not in ("buffer-assignment", "hlo")
    found = _heads(data, alone)
    if alone and found and found[0][0] == _lines.TOTAL:
        # The head of the used values has a second line; what stands between is looked at below.
        found += [(_lines.USED, at) for at in [_after(data, found[0][1], b"Used values")] if at]
        found += [(_lines.REPORT_LIST, at) for at in [_after(data, found[0][1], b"Allocations sorted")] if at]
        if len(found) == 1:
            found = _heads(data, False)
    heads = [(k, at) for k, at in found if at < whole or k == _lines.LIVE_UNAVAILABLE]
    first = heads[0][1] if heads else whole
    _unknown_lines(file, 0, first, diagnostics)
    total: tuple[int, int | None] | None = None
    follower: tuple[int | None, int] = None, whole
    owner = weakref.ref(file)
    for i, (kind, at) in enumerate(heads):
        stop = heads[i + 1][1] if i + 1 < len(heads) else whole
        line = _line(data, at)
        begin = min(at + len(line), stop)
        section: Section | None = None
        if kind == _lines.ASSIGNMENT:
            section = Section("allocations", owner, begin, stop, at)
        elif kind == _lines.TOTAL:
            total = at, _number(file, at, line, _TOTAL, diagnostics)
            follower = heads[i + 1] if i + 1 < len(heads) else (None, stop)
            if b"(" in line and follower[0] != _lines.REPORT_LIST:
                file.features.add("human_total")
            if follower[0] == _lines.USED:
                _unknown_lines(file, begin, stop, diagnostics)
            if follower[0] not in (_lines.USED, _lines.REPORT_LIST):
                section = Section("used values", owner, at, at, at, total[1])
                _unknown_lines(file, begin, stop, diagnostics)
                if stop == whole:
                    diagnostics.truncated(file, whole, "used values", "'Used values:' below the total")
        elif kind == _lines.USED:
            section = Section("used values", owner, begin, stop, total[0] if total else at, total and total[1])
        elif kind == _lines.REPORT_LIST:
            head = total[0] if total else at
            section = Section("report", owner, head, stop, head, total and total[1])
        elif kind == _lines.SPACE:
            if file.sections and file.sections[-1].kind == "report":
                file.sections[-1].end = stop
            else:
                section = Section("report", owner, at, stop, at)
        elif kind == _lines.LIVE:
            steps = _number(file, at, line, _STEPS, diagnostics)
            section = Section("live ranges", owner, begin, stop, at, steps=steps)
        else:
            file.features.add("live_unavailable")
            section = Section("live ranges", owner, begin, stop, at, unavailable=True)
        if line not in _PLAIN and (kind != _lines.TOTAL or follower[0] != _lines.REPORT_LIST):
            _gaps(file, kind, line, at, diagnostics)
        if section is not None:
            if section.kind != "report":
                section.end = max(section.begin, _trimmed(data, section.begin, section.end))
            file.sections.append(section)
            total = None
    kinds = {s.kind for s in file.sections if s.begin > s.head}
    inline = "allocations" in kinds
    if "used values" in kinds:
        file.features.add("values_inline" if inline else "values_split")
    if "live ranges" in kinds and "live_unavailable" not in file.features:
        file.features.add("live_inline" if inline or "used values" in kinds else "live_split")


def _heads(data: Any, first_only: bool) -> list[tuple[int, int]]:
    """(kind, offset) of the lines that open a section; the pages of a large file are given back as it goes."""
    if first_only or len(data) <= PAGES:
        return _lines.locate(data, first_only)
    found, begin = [], 0
    while begin < len(data):
        end = _lines.next_line(data, min(begin + PAGES, len(data)) - 1, len(data), b"")
        found += [(kind, begin + at) for kind, at in _lines.locate(memoryview(data)[begin:end], False)]
        evict_pages(data, begin, end)
        begin = end
    return found


def _gaps(file: File, kind: int, line: bytes, at: int, diagnostics: Diagnostics) -> None:
    """Keep what the line that opens a section says beyond what is known."""
    found = _HEADS[kind].fullmatch(line.rstrip(b"\n")) if kind in _HEADS and len(line) <= LONGEST else None
    # Numbers are named n and m; every other group is a gap.
    numbers = {found.re.groupindex[name] for name in "nm" if name in found.re.groupindex} if found else set()
    spans = [found.span(i) for i in range(1, found.re.groups + 1) if i not in numbers] if found else []
    rows = [(-1, 0, at + begin, at + end) for begin, end in spans if begin < end]
    if rows:
        diagnostics.unknown_fields(file, "total" if kind == _lines.TOTAL else "file", np.array(rows, np.int64), (), ())


def _unknown_lines(file: File, begin: int, end: int, diagnostics: Diagnostics) -> None:
    """One diagnostic for each line there that is not empty."""
    at, lines = begin, []
    for line in bytes(file.text.data[begin:end]).split(b"\n"):
        if line:
            diagnostics.add(file, at, "file", "unknown_line", "the head of a section")
            lines.append(at)
        at += len(line) + 1
    diagnostics.unknown_lines(file, "file", np.array(lines, np.int64))


def _last_newline(data: Any) -> int:
    """Where the last whole line ends; 0 if there is none."""
    end = len(data)
    while end > 0:
        begin = max(0, end - (1 << 16))
        at = bytes(data[begin:end]).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _line(data: Any, at: int) -> bytes:
    """The line at `at`, its newline included."""
    return bytes(data[at : _lines.next_line(data, at, len(data), b"")])


def _number(file: File, at: int, line: bytes, pattern: re.Pattern[bytes], diagnostics: Diagnostics) -> int | None:
    """The number in the head line at `at`; None, with a finding, if there is none of at most 64 bits."""
    match = pattern.fullmatch(line.rstrip(b"\n")) if len(line) <= LONGEST else None
    digits = match and (match["n"] or match["m"])
    if digits and len(digits) <= 20 and abs(int(digits)) < 1 << 63:
        return int(digits)
    diagnostics.add(file, at, "file", "unknown_line", "a number of at most 64 bits")
    return None


def _after(data: Any, at: int, prefix: bytes) -> int | None:
    """Offset of the line behind the next empty one, if it starts with prefix."""
    below = at + len(_line(data, at))
    if bytes(data[below : below + 1]) == b"\n" and bytes(data[below + 1 : below + 1 + len(prefix)]) == prefix:
        return below + 1
    return None


def _trimmed(data: Any, begin: int, end: int) -> int:
    """`end` without the empty lines before it."""
    while end - begin >= 2 and bytes(data[end - 2 : end]) == b"\n\n":
        end -= 1
    return begin if end - begin == 1 and bytes(data[begin:end]) == b"\n" else end
