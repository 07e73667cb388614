"""What a text holds: its lines and their positions; frames of a captured output, modules, logged lines."""

from __future__ import annotations

import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from ..errors import DumpError, utf8
from . import names
from .files import STEP, URI, Buffer, Stream, held, reading, undone

Form = Literal["plain", "log"]

MODULE = b"BufferAssignment:"

# Text that a later release adds behind the word does not hide the line.
_MODULE = re.compile(rb"BufferAssignment(?: \([^\n]*\))?:[^\n]*")
_TOTAL = re.compile(rb"\nTotal bytes used: ")
_LIVE = re.compile(rb"HloLiveRange \((?:[^\n]*[ ,])?max ")
_BEGIN = re.compile(rb"\*\*\* Begin ([^\n]*) \*\*\*(\r?)\n")
_END = re.compile(rb"\n\*\*\* (?:Begin |End ([^\n]*) \*\*\*)")

# What XLA's and TensorFlow's loggers put before a line: time, thread, file and line.
_TIME = (
    rb"(?:[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6} "
    rb"|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+: [IWEF] )[ \t]*"
)
_PLACE = rb"(?P<file>\S+):(?P<line>[0-9]+)\] ?"
_PREFIX = re.compile(_TIME + rb"(?:(?P<thread>[0-9]+) )?" + _PLACE)
# A live range is one message of many lines, of which only the first has a prefix; elsewhere every line has one.
_MESSAGE = rb"(?P<message>" + _LIVE.pattern + rb".*(?:\n(?!" + _TIME + rb"|\Z).*)*|.*)"
_STATISTICS = (
    rb"BufferAssignment stats:"
    rb"| *(?:parameter|constant|maybe_live_out|preallocated temp|total) (?:allocation|fragmentation): "
)


class Text:
    """The bytes of one member as the sections see them: lines end in LF, containers are undone.

    ``base`` is the offset of the first byte in the file (after decompression). ``crlf`` says that CR LF was
    undone; ``mixed_at`` is then the offset in ``data`` of the first line that had no CR. ``raw`` are the
    bytes with their CR LF, which a content hash is about, and ``size`` is their number.
    """

    features: frozenset[str] = frozenset()
    """Keys of `schema.FEATURES` that are about the container."""

    def __init__(
        self, data: Buffer, uri: str = "<bytes>", *, base: int = 0, before: Callable[[], int] = lambda: 0
    ) -> None:
        self.data = self.raw = data
        self.uri, self.base, self.size = uri, base, len(data)
        self._before = before
        self.mixed_at: int | None = None
        newline = re.search(rb"\n", data)
        end = newline.start() if newline else 0
        self.crlf = end > 0 and data[end - 1] == 13
        if self.crlf:
            raw = bytes(data)
            self.data = raw.replace(b"\r\n", b"\n")
            if bare := re.search(rb"(?<!\r)\n", raw):
                line = raw.rfind(b"\n", 0, bare.start()) + 1
                self.mixed_at = line - raw.count(b"\n", 0, line)

    @cached_property
    def first_line(self) -> int:
        """Number of the line on which the data begin; counted when first asked for."""
        return 1 + self._before()

    def position(self, offset: int) -> tuple[int, int]:
        """Line (from 1) and byte offset in the file of an offset in ``data``."""
        return self.positions([offset])[0]

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, int]]:
        """The same of several offsets in ascending order, in one pass over the text."""
        found, line, at = [], self.first_line, 0
        in_file = self.in_file(np.array(offsets, np.int64)).tolist()
        for offset, place in zip(offsets, in_file, strict=True):
            while at < offset:
                stop = min(at + STEP, offset)
                line += bytes(self.data[at:stop]).count(b"\n")
                at = stop
            found.append((line, place))
        return found

    def in_file(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Byte offsets in the file of offsets in ``data``."""
        if self.crlf:
            raw = np.frombuffer(self.raw, np.uint8)
            returns = np.flatnonzero((raw[:-1] == 13) & (raw[1:] == 10))
            offsets = offsets + np.searchsorted(returns - np.arange(len(returns)), offsets)
        return offsets + self.base

    def close(self) -> None:
        """Let go of the bytes; a mapping is given back as soon as nobody looks at it."""
        self.data = self.raw = b""

    def __len__(self) -> int:
        return len(self.data)

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LoggedText(Text):
    """One module out of a log: what one statement printed in one thread, without the prefixes.

    The log begins with the head of the allocations, or with the live range that belongs to them.
    """

    features = frozenset({"log"})

    def __init__(self, log: Text) -> None:
        changed = DumpError(log.uri, "the logged allocations that were found there", offset=log.base)
        opening = re.compile(_PREFIX.pattern + _MESSAGE).match(log.data)
        if opening is None:
            raise changed
        thread = rb"\n" + _TIME + (opening["thread"] + b" " if opening["thread"] else b"")
        head, begin = opening, opening.end()
        if opening["message"] != MODULE:
            following = re.compile(thread + _PLACE + MODULE).search(log.data, begin)
            if following is None:
                raise changed
            head, begin = following, following.start()
        here = rb":(?:%s\] ?(?!%s)|[0-9]+\] ?(?=%s))" % (head["line"], _STATISTICS, _LIVE.pattern)
        messages, places = [opening["message"]], array("q", [opening.start("message")])
        for found in re.compile(thread + re.escape(head["file"]) + here + _MESSAGE).finditer(log.data, begin):
            messages.append(found["message"])
            places.append(found.start("message"))
            begin = found.end()
        if begin < len(log.data):
            messages.append(b"")
        super().__init__(b"\n".join(messages), log.uri, base=log.base, before=lambda: log.first_line - 1)
        self.crlf = log.crlf
        self._log, self._places = log, places
        self._starts = array("q", accumulate((len(m) + 1 for m in messages), initial=0))

    def positions(self, offsets: Sequence[int]) -> list[tuple[int, int]]:
        return self._log.positions(self._in_log(np.array(offsets, np.int64)).tolist())

    def in_file(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return self._log.in_file(self._in_log(offsets))

    def _in_log(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Offsets in the data of the log."""
        starts, places = np.array(self._starts, np.int64), np.array(self._places, np.int64)
        message = np.searchsorted(starts[: len(places)], offsets, "right") - 1
        found: npt.NDArray[np.int64] = places[message] + offsets - starts[message]
        return found

    def close(self) -> None:
        super().close()
        self._log.close()


@dataclass(frozen=True, slots=True)
class Member:
    """One text of a dump, and how to get at it.

    ``begin`` and ``end`` are a span of the undone file ``uri``; or, for a file in a tar, of the undone
    ``entry`` (its name, and its span in the undone tar).
    """

    role: str
    uri: str
    inner: str = ""
    form: Form = "plain"
    begin: int = 0
    end: int | None = None
    size: int | None = None
    entry: tuple[str, int, int] | None = None
    fault: DumpError | None = field(default=None, compare=False)
    held: Buffer | None = field(default=None, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """The name that XLA gave to this text (or the user to the file), for `names.parse`."""
        path = self.inner or self.uri
        if URI.match(path):
            path = unquote(path.partition("?")[0])
        return re.split(r"[/\\]", path)[-1]

    @property
    def place(self) -> str:
        """The file that lines and offsets are counted in: what errors and tables name."""
        return utf8(f"{self.uri}::{self.entry[0]}" if self.entry else self.uri)

    def stream(self) -> Stream:
        """The undone file of which it is a span."""
        stream = undone(self.uri) if self.held is None else held(self.uri, self.held)
        return stream.within(*self.entry).undone() if self.entry else stream

    def load(self) -> Text:
        """Its bytes, mapped where that is possible."""
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        with reading(self.place):
            stream = self.stream()
            begin = min(self.begin, stream.size)
            text = Text(stream.span(begin, self.end), self.place, base=begin, before=lambda: stream.newlines(begin))
            return LoggedText(text) if self.form == "log" else text

    def bytes_on_disk(self) -> int | None:
        """Its size without undoing anything; None where that is not known."""
        if self.end is not None:
            return self.end - self.begin
        if self.size is not None:
            return self.size
        with suppress(OSError):
            return os.stat(self.uri).st_size
        return None

    def __reduce__(self) -> tuple[type[Member], tuple[Any, ...]]:
        if self.held is not None:
            raise TypeError("a dump from bytes or standard input cannot be pickled")
        # Written out: by the ten thousand, a loop over the fields takes as long as opening the files.
        return Member, (
            self.role, self.uri, self.inner, self.form, self.begin, self.end, self.size, self.entry, self.fault,
        )  # fmt: skip


# -- frames and modules --------------------------------------------------------------------------


class Piece(NamedTuple):
    """A span that belongs to one member: a frame (it has a name) or one module."""

    begin: int
    end: int | None
    form: Form = "plain"
    frame: str = ""


def is_one_module(data: Buffer) -> bool:
    """Whether there is but one module, without a prefix: found out faster than by `pieces`."""
    heads = [head.start() for head in islice(_MODULE.finditer(data), 2)]
    return len(heads) == 1 and (heads[0] == 0 or data[heads[0] - 1] == 10)


def pieces(data: Buffer) -> list[Piece]:
    """All frames, and all modules outside of them, in the order in which they stand."""
    frames = list(_frames(data))
    starts = [start for start, _, _ in frames]
    plain: list[int] = []
    logged: list[tuple[int, re.Match[bytes]]] = []
    for head in _MODULE.finditer(data):
        i = bisect_right(starts, head.start()) - 1
        if i >= 0 and head.start() < frames[i][1]:
            continue
        at, prefix = _prefix(data, head.start())
        if at == head.start():
            plain.append(at)
        elif prefix:
            logged.append((at, prefix))
    if len(plain) > 1:
        _join_values(data, plain)
    bounds = sorted([*starts, *plain, *(at for at, _ in logged)])
    if plain and plain[0] == bounds[0] and not frames:
        # What stands before the first module is its own: text in front of a section is reported.
        plain[0] = bounds[0] = 0
    ends: list[int | None] = [*bounds[1:], None]
    return sorted(
        [piece for _, _, piece in frames]
        + [Piece(at, ends[bisect_right(bounds, at) - 1]) for at in plain]
        + _logged(data, logged)
    )


def _frames(data: Buffer) -> Iterator[tuple[int, int, Piece]]:
    """Frames of a captured standard output, each with the span that it takes with its two lines."""
    after = 0
    for head in _BEGIN.finditer(data):
        at, begin = head.span()
        if at < after or (at and data[at - 1] != 10):
            continue
        end = after = len(data)
        for mark in _END.finditer(data, begin - 1):
            if mark[1] == head[1]:
                end, after = max(begin, mark.start()), mark.end()
                if head[2] and end > begin and data[end - 1] == 13:
                    end -= 1
                break
            if mark[1] is None:  # without its End (the writer was killed) it must not swallow the next one
                end = after = mark.start() + 1
                break
        yield at, after, Piece(begin, end, "plain", head[1].decode("utf-8", "surrogateescape"))


def _prefix(data: Buffer, at: int) -> tuple[int, re.Match[bytes] | None]:
    """Where the line at `at` begins, and what a logger put before it."""
    before = bytes(data[max(0, at - 1024) : at])
    before = before[before.rfind(b"\n") + 1 :]
    return at - len(before), _PREFIX.fullmatch(before)


def _join_values(data: Buffer, heads: list[int]) -> None:
    """Where the used values stand before the allocations, as in `cat *`, each module begins with them."""
    totals = [m.start() for m in _TOTAL.finditer(data)]
    if totals and totals[0] < heads[0] and b"\nUsed values:" in bytes(data[totals[0] : totals[0] + 256]):
        for i in range(len(heads) - 1, 0, -1):
            at = totals[bisect_right(totals, heads[i]) - 1]
            if at > heads[i - 1]:
                heads[i] = at - (data[at - 1] == 13)


def _logged(data: Buffer, heads: list[tuple[int, re.Match[bytes]]]) -> list[Piece]:
    """The modules in a log, each up to the next one of its thread.

    The simulation of the heap prints the live range before the allocations are printed, perhaps many times;
    the last of these belongs to them.
    """
    allocations = {at for at, _ in heads}
    lives = [_prefix(data, live.start()) for live in _LIVE.finditer(data)] if heads else []
    events = heads + [(at, prefix) for at, prefix in lives if prefix]
    live: dict[bytes, tuple[int, bytes]] = {}
    latest: dict[bytes, int] = {}
    found: list[Piece] = []
    for at, prefix in sorted(events, key=lambda e: e[0]):
        thread, file = prefix["thread"], prefix["file"]
        if at not in allocations:
            live[thread] = at, file
            continue
        if thread in latest:
            found[latest[thread]] = found[latest[thread]]._replace(end=at)
        begin, printer = live.pop(thread, (at, file))
        latest[thread] = len(found)
        found.append(Piece(begin if printer != file else at, None, "log"))
    return found


def role_of(head: bytes) -> names.Role | None:
    """The role of a text without allocations, by its first section."""
    text = head.replace(b"\r\n", b"\n").lstrip(b"\n")
    if text.startswith(b"HloLiveRange "):
        return "live-range"
    if text.startswith(b"Memory Space: "):
        return "memory-usage-report"
    if text.startswith(b"Total bytes used: "):
        return "memory-usage-report" if b"\nAllocations sorted by size" in text[:1024] else "buffer-assignment-values"
    return None


def may_hold(name: str) -> bool:
    """A file of unknown name in a directory is looked into if it is called like a text."""
    if names.is_dumped(name) or name.startswith("."):
        return False
    base, extension = os.path.splitext(name)
    if extension in names.COMPRESSED:
        extension = os.path.splitext(base)[1]
    return extension in ("", ".txt", ".log")


def promising(head: bytes) -> bool:
    """Whether the beginning of a file of unknown name says that it is worth looking through."""
    return (b"BufferAssignment" in head or b"*** Begin " in head) and bool(pieces(head))
