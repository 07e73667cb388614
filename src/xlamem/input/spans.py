"""Splitting of a text into members: frames of captured output, and modules, logged or not."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Literal, NamedTuple

from . import names
from .files import Buffer
from .logs import LIVE_RANGE, MODULE, find_prefix

Form = Literal["plain", "log"]

_MODULE = re.compile(MODULE + rb"[^\n]*")
_TOTAL = re.compile(rb"\nTotal bytes used: ")
_LIVE_RANGE = re.compile(LIVE_RANGE)
_BEGIN = re.compile(rb"^\*\*\* Begin ([^\n]*) \*\*\*(\r?)\n", re.M)
_END = re.compile(rb"\n\*\*\* (?:Begin |End ([^\n]*) \*\*\*)")


class MemberSpan(NamedTuple):
    """The span of one member: a named frame or a module."""

    begin: int
    end: int | None
    form: Form = "plain"
    frame: str = ""


class _Frame(NamedTuple):
    """A frame, including its begin and end lines."""

    begin: int
    end: int
    content: MemberSpan


class _LogHead(NamedTuple):
    """A head line in a log: the beginning of the line and the logger's prefix."""

    begin: int
    prefix: re.Match[bytes]


def is_one_module(data: Buffer) -> bool:
    """Return whether there is exactly one module, without a log prefix. Faster than `member_spans`."""
    heads = [head.start() for head in islice(_MODULE.finditer(data), 2)]
    return len(heads) == 1 and (heads[0] == 0 or data[heads[0] - 1] == 10)


def member_spans(data: Buffer) -> list[MemberSpan]:
    """List all frames and all modules outside of frames, in the order of the text."""
    frames = list(_frames(data))
    plain, logged = _module_heads(data, frames)
    if len(plain) > 1:
        _include_values(data, plain)
    in_log = _logged_modules(data, logged)
    # A logged module may begin before its head, with a live range.
    bounds = sorted({*plain, *(f.begin for f in frames), *(h.begin for h in logged), *(m.begin for m in in_log)})
    if plain and plain[0] == bounds[0] and not frames:
        # Text before the first module is included, so that the reader reports it.
        plain[0] = bounds[0] = 0
    ends: list[int | None] = [*bounds[1:], None]
    modules = [MemberSpan(begin, ends[bisect_right(bounds, begin) - 1]) for begin in plain]
    return sorted([frame.content for frame in frames] + modules + in_log)


def contains_dump(head: bytes) -> bool:
    """Return whether the beginning of a text contains a frame or a module."""
    return (b"BufferAssignment" in head or b"*** Begin " in head) and bool(member_spans(head))


def detect_role(head: bytes) -> names.Role | None:
    """Detect the role of a text without allocations by its first section."""
    text = head.replace(b"\r\n", b"\n").lstrip(b"\n")
    if text.startswith(b"HloLiveRange "):
        return "live-range"
    if text.startswith(b"Memory Space: "):
        return "memory-usage-report"
    if text.startswith(b"Total bytes used: "):
        return "memory-usage-report" if b"\nAllocations sorted by size" in text[:1024] else "buffer-assignment-values"
    return None


# -- frames --------------------------------------------------------------------------------------


def _frames(data: Buffer) -> Iterator[_Frame]:
    """Yield the frames of captured standard output. None begins in another: its first line would end that one."""
    for head in _BEGIN.finditer(data):
        end, after = _frame_end(data, head)
        name = head[1].decode("utf-8", "surrogateescape")
        yield _Frame(head.start(), after, MemberSpan(head.end(), end, "plain", name))


def _frame_end(data: Buffer, head: re.Match[bytes]) -> tuple[int, int]:
    """Return the end of a frame's content and the end of the frame."""
    begin = head.end()
    for mark in _END.finditer(data, begin - 1):
        if mark[1] == head[1]:
            end = max(begin, mark.start())
            is_cr = head[2] and data[end - 1] == 13  # without content, this is the newline of the head
            return end - 1 if is_cr else end, mark.end()
        if mark[1] is None:  # no end line because the writer was killed: the next frame ends this one
            return mark.start() + 1, mark.start() + 1
    return len(data), len(data)


# -- modules -------------------------------------------------------------------------------------


def _module_heads(data: Buffer, frames: list[_Frame]) -> tuple[list[int], list[_LogHead]]:
    """Return the head lines of modules outside of the frames: offsets of plain ones, and logged ones."""
    begins = [frame.begin for frame in frames]
    plain: list[int] = []
    logged: list[_LogHead] = []
    for head in _MODULE.finditer(data):
        i = bisect_right(begins, head.start()) - 1
        if i >= 0 and head.start() < frames[i].end:
            continue
        begin, prefix = find_prefix(data, head.start())
        if begin == head.start():
            plain.append(begin)
        elif prefix:
            logged.append(_LogHead(begin, prefix))
    return plain, logged


def _include_values(data: Buffer, heads: list[int]) -> None:
    """Move each module's begin to its used values if they precede the allocations, as after `cat *`."""
    totals = [m.start() for m in _TOTAL.finditer(data)]
    if totals and totals[0] < heads[0] and b"\nUsed values:" in bytes(data[totals[0] : totals[0] + 256]):
        for i in range(len(heads) - 1, 0, -1):
            total = totals[bisect_right(totals, heads[i]) - 1]
            if total > heads[i - 1]:
                heads[i] = total - (data[total - 1] == 13)


def _logged_modules(data: Buffer, heads: list[_LogHead]) -> list[MemberSpan]:
    """Return the modules in a log, each up to the next one of the same thread.

    The heap simulation may print several live ranges before the allocations; only the last one belongs to them.
    """
    lives: dict[bytes, _LogHead] = {}
    latest: dict[bytes, int] = {}
    modules: list[MemberSpan] = []
    allocations = {head.begin for head in heads}
    for head in sorted(heads + _live_ranges(data) if heads else [], key=lambda head: head.begin):
        thread = head.prefix["thread"]
        if head.begin not in allocations:
            lives[thread] = head
            continue
        if thread in latest:
            modules[latest[thread]] = modules[latest[thread]]._replace(end=head.begin)
        live = lives.pop(thread, head)
        first = live if live.prefix["file"] != head.prefix["file"] else head
        latest[thread] = len(modules)
        modules.append(MemberSpan(first.begin, None, "log"))
    return modules


def _live_ranges(data: Buffer) -> list[_LogHead]:
    prefixes = (find_prefix(data, match.start()) for match in _LIVE_RANGE.finditer(data))
    return [_LogHead(begin, prefix) for begin, prefix in prefixes if prefix]
