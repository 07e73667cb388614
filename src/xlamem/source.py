"""From paths to texts: which dumps are there, and the bytes of each file with every container undone."""

from __future__ import annotations

import bz2
import glob
import io
import lzma
import mmap
import os
import re
import stat
import sys
import tarfile
import tempfile
import threading
import zlib
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, BinaryIO, Literal, NamedTuple
from urllib.parse import quote, unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
from pyarrow import fs as arrow_fs

from . import names
from .errors import DumpError, UsageError
from .schema import ROLES

Buffer = bytes | memoryview | mmap.mmap
Form = Literal["plain", "log"]

SMALL = 128 * 1024
"""Local files from this size on are mapped, smaller ones are read at once."""

SNIFF = 64 * 1024
"""So much of a file of unknown name is looked at when a directory is searched."""

ROOM = 256 * 1024 * 1024
"""Bytes of undone streams kept in memory; a longer stream goes to a temporary file."""

KEPT = 8
"""Undone streams kept at most."""

CHUNK = 64 * 1024
LISTED = 40

LOG_PREFIX = re.compile(
    rb"[IWEF][0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}\s+[0-9]+ \S+:[0-9]+\] "
    rb"|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]+: [IWEF]\s+(?:[0-9]+ )?\S+:[0-9]+\] "
)
"""What XLA's and TensorFlow's loggers put before a line."""

SOUGHT = (
    "files named "
    + ", ".join("*" + names.EXTENSIONS[r] for r in names.EXTENSIONS if r != "hlo")
    + " (also "
    + " ".join(names.COMPRESSED)
    + "), tars of them, and other texts with a line 'BufferAssignment:' or '*** Begin NAME ***'"
)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")
_WILD = re.compile(r"[*?[]")
_TAR = re.compile(r"\.(?:tar(?:\.(?:gz|zst|xz|bz2))?|tgz|tzst|txz|tbz2?)\Z", re.IGNORECASE)
_MODULE_MARK = b"BufferAssignment:"
_FRAME_MARK = b"*** Begin "
_ORDER = {role: i for i, role in enumerate(ROLES)}


# ------------------------------------------------------------------------------------------------
# What find returns


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
    held: bytes | mmap.mmap | None = field(default=None, compare=False, repr=False)

    @property
    def file_name(self) -> str:
        """The name that XLA gave to this text (or the user to the file), for `names.parse`."""
        return re.split(r"[/\\]", self.inner or self.uri.partition("?")[0])[-1]

    @property
    def place(self) -> str:
        """The file that lines and offsets are counted in: what errors name."""
        return f"{self.uri}::{self.entry[0]}" if self.entry else self.uri

    def load(self) -> Text:
        """Its bytes, mapped where that is possible."""
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        with _reading(self.place):
            stream = self._stream()
            begin = min(self.begin, stream.size)
            data = stream.span(begin, self.end)
            mapped = stream.maps and isinstance(data, memoryview)
            return Text(data, self.place, base=begin, before=lambda: _newlines(stream, begin), mapped=mapped)

    def bytes_on_disk(self) -> int | None:
        """Its size without undoing anything; None where that is not known."""
        if self.end is not None:
            return self.end - self.begin
        if self.size is not None:
            return self.size
        with suppress(OSError):
            return os.stat(self.uri).st_size
        return None

    def _stream(self) -> _Stream:
        stream = _Held(self.uri, self.held) if self.held is not None else _open(self.uri)
        return _undone(stream.within(*self.entry)) if self.entry else stream

    def __reduce__(self) -> tuple[type[Member], tuple[Any, ...]]:
        if self.held is not None:
            raise TypeError("a dump from bytes or standard input cannot be pickled")
        return type(self), tuple(getattr(self, f.name) for f in fields(self))


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """One dump: its members in the order of `schema.ROLES`, and what their name says."""

    name: str
    members: tuple[Member, ...]
    module_id: int | None = None
    module_name: str | None = None
    platform: names.Platform | None = None
    target: str | None = None
    changelist: int | None = None
    timestamp_us: int | None = None

    def member(self, role: str) -> Member | None:
        return next((m for m in self.members if m.role == role), None)

    @property
    def place(self) -> str:
        """The directory, tar or file in which it lies."""
        first = self.members[0]
        inside = first.entry[0] if first.entry else first.inner
        if not inside:
            return os.path.dirname(first.uri) or "."
        folder = os.path.dirname(inside)
        return f"{first.uri}::{folder}" if folder else first.uri

    def bytes_on_disk(self) -> int | None:
        sizes = [m.bytes_on_disk() for m in self.members]
        return None if None in sizes else sum(s for s in sizes if s is not None)

    def __repr__(self) -> str:
        roles = ", ".join(m.role for m in self.members)
        return f"<Source {self.name} in {self.place}: {roles}>"


class Text:
    """The bytes of one member as the sections see them: lines end in LF, containers are undone.

    ``base`` is the offset of ``data[0]`` in the file (after decompression), ``size`` its bytes there.
    ``crlf`` says that CR LF was undone; ``mixed_at`` is then the offset in ``data`` of the first line
    that had no CR.
    """

    __slots__ = ("_before", "_first_line", "_mapped", "_raw", "base", "crlf", "data", "mixed_at", "size", "uri")

    def __init__(
        self,
        data: Buffer,
        uri: str = "<bytes>",
        *,
        base: int = 0,
        before: Callable[[], int] | None = None,
        mapped: bool = False,
    ) -> None:
        self.data = self._raw = data
        self.uri, self.base, self.size = uri, base, len(data)
        self._before, self._mapped = before, mapped  # mapped: a view of a mapping of its own
        self._first_line: int | None = None
        self.mixed_at: int | None = None
        newline = re.search(rb"\n", data)
        end = newline.start() if newline else 0
        self.crlf = end > 0 and data[end - 1] == 13
        if self.crlf:
            self._undo_crlf()

    def _undo_crlf(self) -> None:
        raw = bytes(self._raw)
        self.data = data = raw.replace(b"\r\n", b"\n")
        if data.count(b"\n") > len(raw) - len(data):
            bare = re.search(rb"(?<!\r)\n", raw)
            assert bare is not None
            line = raw.rfind(b"\n", 0, bare.start()) + 1
            self.mixed_at = line - raw.count(b"\n", 0, line)

    @property
    def raw(self) -> Buffer:
        """The bytes with their CR LF: what a content hash is about."""
        return self._raw

    @property
    def mixed(self) -> bool:
        """Some lines end in CR LF and some in LF."""
        return self.mixed_at is not None

    @property
    def first_line(self) -> int:
        """Number of the line on which the data begin; counted when first asked for."""
        if self._first_line is None:
            self._first_line = 1 + (self._before() if self._before else 0)
        return self._first_line

    def position(self, offset: int) -> tuple[int, int]:
        """Line (from 1) and byte offset in the file of an offset in ``data``."""
        at = offset
        if self.crlf:
            # The smallest `at` that is `offset` plus the CR LFs that end at or before it.
            raw = bytes(self._raw)
            while (further := offset + raw.count(b"\r\n", 0, at + 1)) != at:
                at = further
        step = 256 * CHUNK
        lines = sum(bytes(self.data[i : min(i + step, offset)]).count(b"\n") for i in range(0, offset, step))
        return self.first_line + lines, self.base + at

    def close(self) -> None:
        """Give the mapping back; later if somebody still looks at the bytes."""
        if self._mapped and isinstance(self._raw, memoryview):
            with suppress(BufferError):
                mapping = self._raw.obj
                self._raw.release()
                self._mapped = False
                mapping.close()  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.data)

    def __enter__(self) -> Text:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ------------------------------------------------------------------------------------------------
# Streams: spans of bytes that lie in memory, in a file, or far away


class _Stream:
    """The bytes [lo, hi) of something; offsets count from lo."""

    maps = False
    """A span can be a mapping of its own."""

    def __init__(self, name: str, lo: int, hi: int, key: tuple[Any, ...] | None) -> None:
        self.name, self.lo, self.hi = name, lo, hi
        self.key = key  # equal as long as the bytes are; None: do not keep what comes out of them
        self.size = hi - lo

    def span(self, begin: int = 0, end: int | None = None) -> Buffer:
        """The part of [begin, end) that there is."""
        hi = self.hi if end is None else min(self.lo + end, self.hi)
        return self.fetch(min(self.lo + begin, hi), hi)

    def fetch(self, lo: int, hi: int) -> Buffer:
        """The same by offsets in the whole."""
        raise NotImplementedError

    def reader(self) -> BinaryIO:
        """A seekable file over it."""
        return io.BufferedReader(_View(self.span()))

    def scan(self) -> tuple[bytes | mmap.mmap, int, int]:
        """Something with a fast find(), and where in it the stream lies."""
        data = bytes(self.span())
        return data, 0, len(data)

    def within(self, name: str, begin: int, end: int) -> _Stream:
        """An entry of this tar."""
        raise NotImplementedError

    def _inside(self, begin: int, end: int) -> tuple[int, int, tuple[Any, ...] | None]:
        lo, hi = min(self.lo + begin, self.hi), min(self.lo + end, self.hi)
        return lo, hi, self.key and (*self.key, lo, hi)


class _Held(_Stream):
    """Bytes in memory, or a temporary file that is mapped."""

    def __init__(
        self,
        name: str,
        data: bytes | mmap.mmap,
        lo: int = 0,
        hi: int | None = None,
        key: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__(name, lo, len(data) if hi is None else hi, key)
        self.data = data

    def fetch(self, lo: int, hi: int) -> Buffer:
        if lo == 0 and hi == len(self.data):
            return self.data
        return memoryview(self.data)[lo:hi]

    def scan(self) -> tuple[bytes | mmap.mmap, int, int]:
        return self.data, self.lo, self.hi

    def within(self, name: str, begin: int, end: int) -> _Stream:
        lo, hi, key = self._inside(begin, end)
        return _Held(f"{self.name}::{name}", self.data, lo, hi, key)


class _Local(_Stream):
    """A local file."""

    maps = True

    def __init__(self, name: str, path: str, lo: int, hi: int, key: tuple[Any, ...] | None) -> None:
        super().__init__(name, lo, hi, key)
        self.path = path

    def fetch(self, lo: int, hi: int) -> Buffer:
        with open(self.path, "rb") as file:
            if hi - lo < SMALL:
                file.seek(lo)
                return file.read(hi - lo)
            skip = lo % mmap.ALLOCATIONGRANULARITY
            mapped = _map(file.fileno(), hi - lo + skip, lo - skip)
        return memoryview(mapped)[skip:]

    def reader(self) -> BinaryIO:
        return super().reader() if self.lo else open(self.path, "rb")

    def scan(self) -> tuple[bytes | mmap.mmap, int, int]:
        if self.size < SMALL:
            return super().scan()
        with open(self.path, "rb") as file:
            return _map(file.fileno(), self.hi, 0), self.lo, self.hi

    def within(self, name: str, begin: int, end: int) -> _Stream:
        lo, hi, key = self._inside(begin, end)
        return _Local(f"{self.name}::{name}", self.path, lo, hi, key)


class _Remote(_Stream):
    """A file behind a URI."""

    def __init__(self, name: str, uri: str, lo: int, hi: int, key: tuple[Any, ...] | None) -> None:
        super().__init__(name, lo, hi, key)
        self.uri = uri

    def _file(self) -> pa.NativeFile:
        system, path = _filesystem(self.uri)
        return system.open_input_file(path)

    def fetch(self, lo: int, hi: int) -> Buffer:
        with self._file() as file:
            file.seek(lo)
            return bytes(file.read(hi - lo))

    def reader(self) -> BinaryIO:
        return super().reader() if self.lo else self._file()

    def within(self, name: str, begin: int, end: int) -> _Stream:
        lo, hi, key = self._inside(begin, end)
        return _Remote(f"{self.name}::{name}", self.uri, lo, hi, key)


class _View(io.RawIOBase):
    """A buffer as a seekable file, without a copy (and, unlike a mapping, with a place of its own)."""

    def __init__(self, data: Buffer) -> None:
        self.view, self.at = memoryview(data), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = max(0, offset + (0, self.at, len(self.view))[whence])
        return self.at

    def readinto(self, buffer: Any) -> int:
        part = self.view[self.at : self.at + len(buffer)]
        buffer[: len(part)] = part
        self.at += len(part)
        return len(part)


def _map(fileno: int, length: int, offset: int) -> mmap.mmap:
    try:
        mapped = mmap.mmap(fileno, length, access=mmap.ACCESS_READ, offset=offset)
    except ValueError as error:  # the file has become shorter
        raise OSError(str(error)) from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    return mapped


def _raw(uri: str) -> _Stream:
    """A file as it is."""
    if _URI.match(uri):
        system, path = _filesystem(uri)
        info = system.get_file_info(path)
        if info.type == arrow_fs.FileType.NotFound:
            raise FileNotFoundError("no such file")
        if info.size is None:  # a server that does not say
            with system.open_input_stream(path, compression=None) as file:
                return _Held(uri, file.read())
        return _Remote(uri, uri, 0, info.size, (uri, info.size, info.mtime_ns))
    status = os.stat(uri)
    return _Local(uri, uri, 0, status.st_size, (uri, status.st_size, status.st_mtime_ns))


def _open(uri: str) -> _Stream:
    """A file, undone."""
    if not _URI.match(uri):
        # Most files are small and plain: one open, one read.
        with open(uri, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < SMALL:
                data = file.read()
                if not _compression(data[:16], uri):
                    return _Held(uri, data)
    return _undone(_raw(uri))


def _newlines(stream: _Stream, end: int) -> int:
    step = 256 * CHUNK
    return sum(bytes(stream.span(at, min(at + step, end))).count(b"\n") for at in range(0, end, step))


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise DumpError(name, f"a readable file ({reason})") from error


# ------------------------------------------------------------------------------------------------
# Compression

Kind = Literal["gzip", "zstd", "xz", "bzip2"]
_NAMED: dict[str, Kind] = {
    "gz": "gzip", "tgz": "gzip", "zst": "zstd", "tzst": "zstd", "xz": "xz", "txz": "xz",
    "bz2": "bzip2", "tbz2": "bzip2", "tbz": "bzip2",
}  # fmt: skip
_MAGIC: tuple[tuple[re.Pattern[bytes], Kind], ...] = (
    (re.compile(rb"\x1f\x8b"), "gzip"),
    (re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), "zstd"),
    (re.compile(rb"\xfd7zXZ\0"), "xz"),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), "bzip2"),
)
_ENGINES: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
}


def _compression(head: bytes, name: str) -> Kind | None:
    """By the first bytes; the name counts only where those are no text (servers undo gzip unasked)."""
    for magic, kind in _MAGIC:
        if magic.match(head):
            return kind
    kind_named = _NAMED.get(name.rpartition(".")[2].lower())
    return kind_named if kind_named and re.search(rb"[\0-\x08\x0e-\x1f]", head) else None


def _undone(stream: _Stream) -> _Stream:
    """The stream with its compression undone; it itself if it has none."""
    kind = _compression(bytes(stream.span(0, 16)), stream.name)
    return _CACHE.get(stream, kind) if kind else stream


def _chunks(file: BinaryIO, kind: Kind, name: str) -> Iterator[bytes]:
    """What comes out of a compressed file; several streams, one after the other, are one."""
    done = 0
    if kind == "zstd":
        undoing = pa.CompressedInputStream(file if isinstance(file, pa.NativeFile) else pa.PythonFile(file), "zstd")
        while True:
            try:
                out = undoing.read(16 * CHUNK)
            except (OSError, pa.ArrowException) as error:
                raise DumpError(name, f"zstd data ({error})", offset=done) from error
            if not out:
                return
            done += len(out)
            yield out
    engine = _ENGINES[kind]()
    rest = file.read(CHUNK)
    while rest:
        try:
            out = engine.decompress(rest)
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise DumpError(name, f"{kind} data ({error})", offset=done) from error
        done += len(out)
        yield out
        rest = engine.unused_data if engine.eof else b""
        while engine.eof:  # zeros may follow, and further streams
            rest = rest.lstrip(b"\0")
            if rest:
                engine = _ENGINES[kind]()
            else:
                rest = file.read(CHUNK)
                if not rest:
                    return
        rest = rest or file.read(CHUNK)
    raise DumpError(name, f"the end of the {kind} data", offset=done)


class _Cache:
    """The streams undone last: reading a thousand members of one tar undoes it once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kept: OrderedDict[tuple[Any, ...], _Held] = OrderedDict()

    def get(self, stream: _Stream, kind: Kind) -> _Held:
        if stream.key is None:
            return self.undo(stream, kind)
        # Undoing under the lock: threads that want the same stream wait for the first of them.
        with self.lock:
            held = self.kept.pop(stream.key, None)
            self.kept[stream.key] = held = held or self.undo(stream, kind)
            while len(self.kept) > 1 and (len(self.kept) > KEPT or self.in_memory() > ROOM):
                self.kept.popitem(last=False)
            return held

    def in_memory(self) -> int:
        return sum(h.size for h in self.kept.values() if isinstance(h.data, bytes))

    def undo(self, stream: _Stream, kind: Kind) -> _Held:
        data: bytes | mmap.mmap
        with stream.reader() as file, tempfile.SpooledTemporaryFile(max_size=ROOM) as spool:
            for chunk in _chunks(file, kind, stream.name):
                try:
                    spool.write(chunk)
                except OSError as error:
                    raise DumpError(stream.name, f"room in {tempfile.gettempdir()} ({error.strerror})") from error
            size = spool.tell()
            if size > ROOM:
                spool.flush()
                data = _map(spool.fileno(), size, 0)
            else:
                spool.seek(0)
                data = spool.read()
        return _Held(stream.name, data, key=stream.key and (*stream.key, kind))


_CACHE = _Cache()


def _head(stream: _Stream) -> bytes:
    """The first bytes of a stream, undone no further than needed."""
    with stream.reader() as file:
        head = file.read(SNIFF)
        kind = _compression(head[:16], stream.name)
        if kind is None:
            return head
        file.seek(0)
        out = bytearray()
        for chunk in _chunks(file, kind, stream.name):
            out += chunk
            if len(out) >= SNIFF:
                break
        return bytes(out[:SNIFF])


# ------------------------------------------------------------------------------------------------
# What a text of unknown name holds


class _Piece(NamedTuple):
    """A span that belongs to one member: a frame (it has a name) or one module."""

    begin: int
    end: int | None
    form: Form = "plain"
    frame: str = ""


def _frames(data: bytes | mmap.mmap, lo: int, hi: int) -> Iterator[tuple[_Piece, int, int]]:
    """Frames of a captured standard output, each with the span that it takes with its two lines."""
    at = lo
    while (at := data.find(_FRAME_MARK, at, hi)) >= 0:
        stop = data.find(b"\n", at, hi)
        line = data[at : hi if stop < 0 else stop]
        head = line.removesuffix(b"\r")
        if stop < 0 or not head.endswith(b" ***") or (at > lo and data[at - 1] != 10):
            at += len(_FRAME_MARK)
            continue
        name = head[len(_FRAME_MARK) : -4]
        # A frame whose End is missing (the writer was killed) must not swallow the next one.
        following = data.find(b"\n" + _FRAME_MARK, stop, hi)
        limit = hi if following < 0 else following + 1
        mark = b"\n*** End " + name + b" ***"
        end = data.find(mark, stop, limit)
        if end < 0:
            begin, end, after = stop + 1, limit, limit
        else:
            begin, after = stop + 1, end + len(mark)
            end = max(begin, end)
            if len(head) < len(line) and end > begin and data[end - 1] == 13:
                end -= 1
        yield _Piece(begin - lo, end - lo, "plain", name.decode("utf-8", "surrogateescape")), at, after
        at = after


def _modules(data: bytes | mmap.mmap, lo: int, hi: int) -> Iterator[tuple[int, Form]]:
    """Where the lines `BufferAssignment:` begin, and whether a logger's prefix stands before them."""
    at = lo
    while (at := data.find(_MODULE_MARK, at, hi)) >= 0:
        after = at + len(_MODULE_MARK)
        if re.match(rb"\r?(?:\n|\Z)", data[after : min(after + 2, hi)]):
            line = max(data.rfind(b"\n", lo, at) + 1, lo)
            if line == at:
                yield line, "plain"
            elif LOG_PREFIX.fullmatch(data[line:at]):
                yield line, "log"
        at = after


def _pieces(data: bytes | mmap.mmap, lo: int, hi: int) -> list[_Piece]:
    """All frames, and all modules outside of them, in the order in which they stand."""
    frames = list(_frames(data, lo, hi))
    pieces = [piece for piece, _, _ in frames]
    starts = [start for _, start, _ in frames]

    def framed(at: int) -> bool:
        i = bisect_right(starts, at) - 1
        return i >= 0 and at < frames[i][2]

    modules = [(at, form) for at, form in _modules(data, lo, hi) if not framed(at)]
    bounds = sorted(starts + [at for at, _ in modules])
    for i, (at, form) in enumerate(modules):
        following = bisect_right(bounds, at)
        end = bounds[following] - lo if form == "plain" and following < len(bounds) else None
        # What stands before the first module is its own: text in front of a section is reported.
        first = i == 0 and form == "plain" and not frames
        pieces.append(_Piece(0 if first else at - lo, end, form))
    return sorted(pieces)


def _role(head: bytes) -> names.Role | None:
    """The role of a text without allocations, by its first section."""
    text = head.replace(b"\r\n", b"\n").lstrip(b"\n")
    if text.startswith(b"HloLiveRange "):
        return "live-range"
    if text.startswith(b"Memory Space: "):
        return "memory-usage-report"
    if text.startswith(b"Total bytes used: "):
        return "memory-usage-report" if b"\nAllocations sorted by size" in text[:1024] else "buffer-assignment-values"
    return None


def _may_hold(name: str) -> bool:
    """A file of unknown name in a directory is looked into if it is called like a text."""
    if names.is_dumped(name) or name.startswith("."):
        return False
    base, extension = os.path.splitext(name)
    if extension in names.COMPRESSED:
        extension = os.path.splitext(base)[1]
    return extension in ("", ".txt", ".log")


# ------------------------------------------------------------------------------------------------
# Finding


@dataclass(slots=True)
class _Group:
    """Members of one dump while they are being found, each with its rank: the smallest one stays."""

    place: str
    name: str
    stem: bool = True
    keep: bool = False
    members: dict[str, tuple[int, Member]] = field(default_factory=dict)


class _Finder:
    """Collects dumps; what is reached twice, by whatever way, is there once."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, int], _Group] = {}
        self.walked: set[str] = set()
        self.looked: dict[str, int] = {}
        self.real: dict[str, str] = {}
        self.hits = 0
        self.protos = False
        self.unreadable: list[str] = []

    # ---- one path

    def add(self, path: str) -> None:
        """Everything under a path; UsageError if there is nothing."""
        if path == "-":
            if "-" not in self.looked:  # can be read only once
                self.looked["-"] = 1
                self.add_held(sys.stdin.buffer.read(), "<stdin>")
            return
        if path[:7].lower() == "file://":
            path = url2pathname(urlsplit(path).path)
        before, self.protos = self.hits, False
        if _URI.match(path):
            self.add_uri(path)
        else:
            self.add_local(path)
        if self.unreadable:
            raise UsageError("cannot list " + ", ".join(self.unreadable))
        if self.hits == before:
            if not os.path.isdir(path) and names.is_dumped(os.path.basename(path)):
                return  # XLA's, but no memory text: `dir/*` is made of such
            hint = "; there are only protos: add xla_dump_hlo_as_text to the flags" if self.protos else ""
            raise UsageError(f"no dump in {path}: looked for {SOUGHT}{hint}")

    def add_local(self, path: str) -> None:
        try:
            mode = os.stat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            return self.add_missing(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot look at {path!r}: {getattr(error, 'strerror', None) or error}") from error
        if stat.S_ISDIR(mode):
            self.walk(path)
        elif not stat.S_ISREG(mode):  # a pipe, as in <(zcat …): can be read only once
            with _reading(path), open(path, "rb") as file:
                self.add_held(file.read(), path)
        else:
            directory, name = os.path.split(path)
            real, name_there = os.path.split(os.path.realpath(path))
            found = names.split(name)
            if found:
                self.siblings(directory, real if name_there == name else self.real_path(directory), found[0], name)
            else:
                self.look_at(path, os.path.join(real, name_there), name)

    def add_missing(self, path: str) -> None:
        """No such file: a pattern, or a stem."""
        if _WILD.search(path):
            for match in sorted(glob.glob(path, recursive=True)):
                directory, name = os.path.split(match)
                if os.path.isdir(match):
                    self.walk(match)
                else:
                    real, name_there = os.path.split(os.path.realpath(match))
                    self.listed(match, directory, real, name, os.path.join(real, name_there))
        else:
            directory, stem = os.path.split(path)
            if not (stem and self.siblings(directory, self.real_path(directory), stem, "")):
                raise UsageError(f"{path} does not exist: neither a file, a directory nor the stem of a dump")

    def siblings(self, directory: str, real: str, stem: str, given: str) -> bool:
        """The members with this stem, by asking for each name (the directory may be huge); any there?"""
        before = self.hits
        for role, extension in names.EXTENSIONS.items():
            choice = [stem + extension + packed for packed in ("", *names.COMPRESSED)]
            for name in [given] if given in choice else choice:
                path = os.path.join(directory, name)
                if os.path.isfile(path):
                    self.member(real, directory, stem, _rank(name), Member(role, path), keep=True)
                    break
        return self.hits > before

    # ---- directories

    def walk(self, top: str) -> None:
        """A directory and all below it; hidden directories are passed over."""
        stack = [(top, os.path.realpath(top))]
        while stack:
            directory, real = stack.pop()
            if real in self.walked:
                self.hits += bool(self.groups)  # reached before: what is there counts for this path too
                continue
            self.walked.add(real)
            try:
                with os.scandir(directory) as entries:
                    found = sorted(entries, key=lambda e: e.name)
            except OSError as error:
                self.unreadable.append(f"{directory} ({error.strerror})")
                continue
            for entry in reversed(found):
                path = os.path.join(directory, entry.name)
                there, real_there = os.path.join(real, entry.name), real
                if entry.is_symlink():
                    there = os.path.realpath(path)
                    if os.path.basename(there) == entry.name:
                        real_there = os.path.dirname(there)
                if entry.is_dir():
                    if not entry.name.startswith("."):
                        stack.append((path, there))
                elif entry.is_file():
                    self.listed(path, directory, real_there, entry.name, there)

    def listed(self, path: str, directory: str, real: str, name: str, there: str) -> None:
        """A file from a listing."""
        found = names.split(name)
        if found:
            self.member(real, directory, found[0], _rank(name), Member(found[1], path))
        elif _TAR.search(name):
            self.look_at(path, there, name)
        elif _may_hold(name):
            self.sniff(Member("", path), lambda: _raw(path), there, directory, name)
        elif name.endswith((".hlo.pb", ".hlo.pb.gz")):
            self.protos = True

    def real_path(self, directory: str) -> str:
        if directory not in self.real:
            self.real[directory] = os.path.realpath(directory or ".")
        return self.real[directory]

    # ---- URIs

    def add_uri(self, uri: str) -> None:
        base, pattern = uri, None
        bare, mark, query = uri.partition("?")  # here '?' begins a query
        wild = _WILD.search(bare)
        if wild:
            base, pattern = bare[: bare.rfind("/", 0, wild.start()) + 1] + mark + query, _pattern(uri)
        system, root = _filesystem(base)
        with _remote(base):
            info = system.get_file_info(root)
            if info.type == arrow_fs.FileType.Directory:
                selector = arrow_fs.FileSelector(root, recursive=True)
                for found in sorted(system.get_file_info(selector), key=lambda i: i.path):
                    if found.type == arrow_fs.FileType.File:
                        path = _child(base, root, found.path)
                        if pattern is None or pattern.match(path):
                            directory, _, name = path.partition("?")[0].rpartition("/")
                            self.listed(path, directory, directory, unquote(name), path)
                return
            directory, _, name = base.partition("?")[0].rpartition("/")
            name = unquote(name)
            split = names.split(name)
            if info.type == arrow_fs.FileType.File and split is None:
                return self.look_at(base, base, name)
            if self.remote_siblings(system, root, base, directory, split[0] if split else name):
                return
        raise UsageError(f"{uri} does not exist: neither a file, a directory nor the stem of a dump")

    def remote_siblings(self, system: Any, root: str, uri: str, directory: str, stem: str) -> bool:
        folder = root.rpartition("/")[0]
        asked = [
            (rank, role, f"{stem}{extension}{packed}")
            for role, extension in names.EXTENSIONS.items()
            for rank, packed in enumerate(("", *names.COMPRESSED))
        ]
        infos = system.get_file_info([f"{folder}/{name}" if folder else name for _, _, name in asked])
        query = uri.partition("?")[1] + uri.partition("?")[2]
        found = False
        for (rank, role, name), info in zip(asked, infos, strict=True):
            if info.type == arrow_fs.FileType.File:
                member = Member(role, f"{directory}/{name}{query}", size=None if rank else info.size)
                self.member(directory, directory, stem, rank, member, keep=True)
                found = True
        return found

    # ---- contents

    def add_held(self, data: bytes, name: str) -> None:
        before = self.hits
        with _reading(name):
            stream = _undone(_Held(name, data))
        held = stream.scan()[0]
        self.look_into(Member("", name, held=held), stream, f"{name}#{id(held)}", "", name)
        if self.hits == before:
            raise UsageError(f"no dump in {name}: looked for {SOUGHT}")

    def look_at(self, uri: str, there: str, name: str) -> None:
        """Look through a whole file."""
        if there in self.looked:
            self.hits += self.looked[there]
            return
        before = self.hits
        origin = Member("", uri)
        try:
            with _reading(uri):
                self.look_into(origin, _open(uri), there, _directory(uri), name)
        except DumpError as fault:
            self.broken(origin, there, _directory(uri), name, fault)
        self.looked[there] = self.hits - before

    def look_into(self, origin: Member, stream: _Stream, there: str, directory: str, name: str) -> None:
        if origin.entry is None and (_TAR.search(name) or bytes(stream.span(257, 262)) == b"ustar"):
            return self.tar(origin, stream, there)
        data, lo, hi = stream.scan()
        pieces = _pieces(data, lo, hi)
        seen: dict[str, tuple[int, set[str]]] = {}
        place = f"{directory}/{name}" if directory else name
        module = 0
        for piece in pieces:
            size = (stream.size if piece.end is None else piece.end) - piece.begin
            span = replace(origin, form=piece.form, begin=piece.begin, end=piece.end, size=size)
            if piece.frame:
                found = names.split(piece.frame)
                if found:
                    stem, role = found
                    number, roles = seen.get(stem, (0, set()))
                    if role in roles:  # another process wrote to the same stream
                        number, roles = number + 1, set()
                    seen[stem] = number, roles | {role}
                    self.member(there, place, stem, 0, replace(span, role=role, inner=piece.frame), number)
            else:
                self.alone(replace(span, role="buffer-assignment"), there, directory, name, module)
                module += 1
        if not pieces:
            content = _role(bytes(data[lo : min(lo + SNIFF, hi)]))
            if content:
                self.alone(replace(origin, role=content, size=stream.size), there, directory, name, 0)

    def tar(self, origin: Member, stream: _Stream, there: str) -> None:
        try:
            with stream.reader() as file, tarfile.open(fileobj=file, mode="r:") as tar:
                for number, info in enumerate(tar):
                    if info.isreg() and not info.issparse():
                        self.tar_entry(origin, stream, there, info, number)
        except tarfile.TarError as error:
            fault = DumpError(origin.uri, f"a whole tar ({error})")
            self.broken(origin, there, _directory(origin.uri), os.path.basename(origin.uri), fault)

    def tar_entry(self, origin: Member, stream: _Stream, there: str, info: tarfile.TarInfo, number: int) -> None:
        folder, _, name = info.name.rpartition("/")
        span = (info.name, info.offset_data, info.offset_data + info.size)
        member = replace(origin, entry=span, inner=info.name)
        place, real = f"{origin.uri}/{folder}", f"{there}::{folder}"
        found = names.split(name)
        if found:
            rank = _rank(name)
            member = replace(member, role=found[1], size=None if rank else info.size)
            # Of two entries with one name the later one is what unpacking would leave.
            self.member(real, place, found[0], (rank << 32) - number, member)
        elif _may_hold(name):
            self.sniff(member, lambda: stream.within(*span), f"{there}::{info.name}", place, name)

    def sniff(self, origin: Member, stream: Callable[[], _Stream], there: str, directory: str, name: str) -> None:
        """Look into a file of unknown name if its first bytes are promising."""
        if there in self.looked:
            self.hits += self.looked[there]
            return
        before = self.hits
        try:
            with _reading(origin.place):
                head = _head(stream())
                if (_MODULE_MARK in head or _FRAME_MARK in head) and _pieces(head, 0, len(head)):
                    self.look_into(origin, _undone(stream()), there, directory, name)
        except DumpError as fault:
            self.broken(origin, there, directory, name, fault)
        self.looked[there] = self.hits - before

    # ---- results

    def member(
        self,
        real: str,
        place: str,
        stem: str,
        rank: int,
        member: Member,
        number: int = 0,
        *,
        keep: bool = False,
    ) -> None:
        """A member whose name is known."""
        key = real, stem, number
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = _Group(place, stem)
        group.keep |= keep
        self.hits += keep or member.role != "hlo"
        old = group.members.get(member.role)
        if old is None or rank < old[0]:
            group.members[member.role] = rank, member

    def alone(self, member: Member, there: str, directory: str, name: str, number: int) -> None:
        """A member whose role comes from its content: a dump of its own."""
        self.hits += 1
        self.groups[there, "", number] = _Group(directory, name, False, True, {member.role: (0, member)})

    def broken(self, origin: Member, there: str, directory: str, name: str, fault: DumpError) -> None:
        """What cannot be looked into is a dump that fails when it is read: one bad file of many stops nothing."""
        self.alone(replace(origin, role="buffer-assignment", fault=fault), there, directory, name, -1)

    def sources(self) -> list[Source]:
        # HLO text alone says nothing about memory; it counts only where the user named it.
        groups = [g for g in self.groups.values() if g.keep or g.members.keys() != {"hlo"}]
        folders = {g.place: [_natural(part) for part in g.place.replace(os.sep, "/").split("/")] for g in groups}
        built = [(g, sorted((m for _, m in g.members.values()), key=lambda m: _ORDER[m.role])) for g in groups]
        built.sort(key=lambda b: (folders[b[0].place], _natural(b[0].name), b[1][0].begin))
        return [_source(group, tuple(members)) for group, members in built]


def _source(group: _Group, members: tuple[Member, ...]) -> Source:
    if not group.stem:
        return Source(group.name, members)
    name = names.describe(group.name, "hlo")
    return Source(
        group.name,
        members,
        module_id=name.module_id,
        module_name=name.module_name,
        platform=name.platform,
        target=name.target,
        changelist=name.changelist,
        timestamp_us=name.timestamp_us,
    )


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort key under which 2 comes before 10, and numbers before letters."""
    parts = re.split("([0-9]+)", text)
    key = [(sys.maxsize, part) for part in parts]
    for i in range(1, len(parts), 2):
        digits = parts[i].lstrip("0")
        key[i] = len(digits), digits
    return [k for k, part in zip(key, parts, strict=True) if part]


def _rank(name: str) -> int:
    if name.endswith(".txt"):
        return 0
    return next((i for i, extension in enumerate(names.COMPRESSED, 1) if name.endswith(extension)), 0)


def _directory(uri: str) -> str:
    return uri.partition("?")[0].rpartition("/")[0] if _URI.match(uri) else os.path.dirname(uri)


# ------------------------------------------------------------------------------------------------
# URIs


@contextmanager
def _remote(uri: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise DumpError(uri, f"a place that answers ({str(error).partition(chr(10))[0]})") from error


@lru_cache(maxsize=64)
def _arrow_filesystem(root: str) -> tuple[arrow_fs.FileSystem, str] | None:
    """pyarrow's filesystem at the root of a URI; None if it has none (kept: some ask the network)."""
    try:
        system, path = arrow_fs.FileSystem.from_uri(root)
        return system, path
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _arrow_root(uri: str) -> tuple[Any, str] | None:
    if "::" in uri:  # chained, which is fsspec's
        return None
    parts = urlsplit(uri)
    query = f"?{parts.query}" if parts.query else ""
    with _remote(uri):
        return _arrow_filesystem(f"{parts.scheme}://{parts.netloc}{query}")


def _filesystem(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """The filesystem of a URI and the path there: pyarrow's, else fsspec's."""
    parts = urlsplit(uri)
    found = _arrow_root(uri)
    if found:
        system, root = found
        return system, (root.rstrip("/") + unquote(parts.path)).rstrip("/") or "/"
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{parts.scheme}:// is unknown to pyarrow and needs fsspec: pip install fsspec") from None
    try:
        system, path = fsspec.core.url_to_fs(uri)
    except (ImportError, ValueError) as error:
        raise UsageError(f"cannot open {uri}: {error}") from error
    return arrow_fs.PyFileSystem(arrow_fs.FSSpecHandler(system)), path.rstrip("/")


def _child(base: str, root: str, path: str) -> str:
    """The URI of a file found under `base`, whose own path is `root`."""
    uri, mark, query = base.partition("?")
    inside = path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
    slash = "" if uri.endswith("/") else "/"
    return f"{uri}{slash}{quote(inside) if _arrow_root(base) else inside}{mark}{query}"


def _pattern(uri: str) -> re.Pattern[str]:
    """A glob over URIs: * stops at '/', ** does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\[!?[^]]+\])", uri)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    out = (known.get(p) or (p.replace("[!", "[^") if p.startswith("[") else re.escape(p)) for p in parts)
    return re.compile("".join(out) + r"\Z")


# ------------------------------------------------------------------------------------------------
# The two verbs


def find(*paths: str | os.PathLike[str]) -> list[Source]:
    """The dumps under files, directories, patterns, tars and URIs; '-' is standard input.

    Members are put together by name, without being opened. In directories, texts of other names are
    taken if their first 64 KiB hold allocations or frames; a file that is named is looked through
    wholly, and the other members of its dump are joined. Hidden directories are passed over.
    """
    if not paths:
        raise UsageError("no path given")
    finder = _Finder()
    for path in paths:
        finder.add(_path(path))
    found = finder.sources()
    if not found:
        raise UsageError(f"no dump in {', '.join(map(_path, paths))}: looked for {SOUGHT}")
    return found


def resolve(source: Any, *, module: int | str | None = None) -> Source:
    """The one dump that is meant: by a Source, a path (any member, a stem, a directory, '-'), bytes or a file.

    Where there are several, ``module`` chooses one: its number in the order of `find`, or its name.
    """
    if isinstance(source, Source):
        return _choose([source], module, source.name)
    if isinstance(source, (str, os.PathLike)):
        path = _path(source)
        return _choose(find(path), module, path)
    name = "<bytes>"
    if hasattr(source, "read"):
        name = str(getattr(source, "name", "<file>"))
        source = source.read()
    try:
        data = source if isinstance(source, bytes) else bytes(memoryview(source))
    except TypeError:
        what = "a file opened as text: open it in binary mode" if isinstance(source, str) else type(source).__name__
        raise UsageError(f"cannot read a dump from {what}") from None
    finder = _Finder()
    finder.add_held(data, name)
    return _choose(finder.sources(), module, name)


def _path(path: str | os.PathLike[str]) -> str:
    try:
        return os.fsdecode(os.fspath(path))
    except TypeError:
        raise UsageError(f"not a path: {path!r}") from None


def _choose(found: list[Source], module: int | str | None, name: str) -> Source:
    numbered = list(enumerate(found))
    if isinstance(module, str):
        numbered = [(i, s) for i, s in numbered if module in (s.module_name, s.name)]
    elif module is not None:
        numbered = numbered[module : module + 1] if module >= 0 else []
    if len(numbered) == 1:
        return numbered[0][1]
    if not numbered:
        raise UsageError(f"no module {module!r} in {name}, which holds:\n{_listing(enumerate(found))}")
    raise UsageError(f"{name} holds {len(numbered)} modules; choose one with module=:\n{_listing(numbered)}")


def _listing(numbered: Iterable[tuple[int, Source]]) -> str:
    rows = list(numbered)
    lines = []
    for number, source in rows[:LISTED]:
        size = source.bytes_on_disk()
        lines.append(f"  {number}  {source.name}  {'size unknown' if size is None else f'{size:,} bytes'}")
    if len(rows) > LISTED:
        lines.append(f"  … and {len(rows) - LISTED:,} more")
    return "\n".join(lines)
