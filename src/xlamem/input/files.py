"""Bytes by path or URI: files, spans of them, and compression undone. Nothing here knows what they mean."""

from __future__ import annotations

import bz2
import io
import lzma
import mmap
import os
import re
import tempfile
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import fs as arrow_fs

from ..errors import DumpError, UsageError, XlaMemError

Buffer = bytes | memoryview | mmap.mmap

SMALL = 128 * 1024
"""Local files from this size on are mapped, smaller ones are read at once."""

HELD = 64 * 1024 * 1024
"""What has more bytes, and is not a local file as it is, goes to an unlinked temporary file and is mapped: a stream
undone, a remote file. Where it lies is up to `tempfile` (TMPDIR)."""

ROOM = 256 * 1024 * 1024
"""Bytes of undone streams kept in memory."""

KEPT = 8
"""Undone streams kept at most."""

CHUNK = 64 * 1024
STEP = 16 * 1024 * 1024

URI = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")


@contextmanager
def reading(name: str, wanted: str = "a readable file") -> Iterator[None]:
    """Errors of the system and of pyarrow, and whatever goes wrong with a URI, become a DumpError about this file."""
    try:
        yield
    except (XlaMemError, MemoryError):
        raise
    except Exception as error:  # the libraries behind URIs have exceptions of their own
        if not isinstance(error, (OSError, pa.ArrowException)) and not URI.match(name):
            raise
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise DumpError(name, f"{wanted} ({reason})", system=True) from error


@dataclass(frozen=True)
class Stream:
    """The bytes [lo, hi) of something; offsets count from lo."""

    name: str
    fetch: Callable[[int, int], Buffer]
    """Bytes by offsets in the whole."""
    lo: int
    hi: int
    key: tuple[Any, ...] | None = None
    """Equal as long as the bytes are; None: what comes out of them is not kept."""
    remote: Callable[[], BinaryIO] | None = None
    """Opens the whole, where reading all of it at once would be dear."""

    @property
    def size(self) -> int:
        return self.hi - self.lo

    def span(self, begin: int = 0, end: int | None = None) -> Buffer:
        """The part of [begin, end) that there is."""
        hi = self.hi if end is None else min(self.lo + end, self.hi)
        return self.fetch(min(self.lo + begin, hi), hi)

    def open(self) -> BinaryIO:
        """A seekable file over it."""
        return self.remote() if self.remote else pa.BufferReader(pa.py_buffer(self.span()))

    def within(self, name: str, begin: int, end: int) -> Stream:
        """An entry of this tar."""
        lo, hi = min(self.lo + begin, self.hi), min(self.lo + end, self.hi)
        return Stream(f"{self.name}::{name}", self.fetch, lo, hi, self.key and (*self.key, lo, hi))

    def undone(self) -> Stream:
        """With its compression undone; itself if it has none."""
        kind = _compression(bytes(self.span(0, 16)), self.name)
        return _kept(self, kind) if kind else self

    def head(self, size: int) -> bytes:
        """The first bytes, undone no further than needed."""
        with self.open() as file:
            head = file.read(size)
            kind = _compression(head[:16], self.name)
            if kind is None:
                return head
            file.seek(0)
            out = bytearray()
            for chunk in _chunks(file, kind, self.name):
                out += chunk
                if len(out) >= size:
                    break
            return bytes(out[:size])

    def newlines(self, end: int) -> int:
        """How many there are before this offset."""
        return sum(bytes(self.span(at, min(at + STEP, end))).count(b"\n") for at in range(0, end, STEP))


def held(name: str, data: Buffer, key: tuple[Any, ...] | None = None) -> Stream:
    """Bytes that are there already."""
    whole = len(data)
    return Stream(name, lambda lo, hi: data if hi - lo == whole else memoryview(data)[lo:hi], 0, whole, key)


def raw(uri: str) -> Stream:
    """A file as it is."""
    if not URI.match(uri):
        status = os.stat(uri)
        key = uri, status.st_size, status.st_mtime_ns
        return Stream(uri, lambda lo, hi: _local(uri, lo, hi), 0, status.st_size, key)
    system, path = filesystem(uri)
    info = system.get_file_info(path)
    if info.type == arrow_fs.FileType.NotFound:
        raise FileNotFoundError("no such file")
    if info.size is None:  # a server that does not say
        with system.open_input_stream(path, compression=None) as file:
            return held(uri, _spooled(uri, iter(lambda: file.read(STEP), b"")))

    def fetch(lo: int, hi: int) -> Buffer:
        with system.open_input_file(path) as file:
            if hi - lo <= HELD:
                return bytes(file.read_at(hi - lo, lo))
            return _spooled(uri, (file.read_at(min(STEP, hi - at), at) for at in range(lo, hi, STEP)))

    key = uri, info.size, info.mtime_ns
    return Stream(uri, fetch, 0, info.size, key, lambda: system.open_input_file(path))


def undone(uri: str) -> Stream:
    """A file with its compression undone."""
    if not URI.match(uri):
        # Most files are small and plain: one open, one read.
        with open(uri, "rb", buffering=0) as file:
            if (size := os.fstat(file.fileno()).st_size) < SMALL:
                data = file.read(size) or b""
                if not size or len(data) < size:  # no plain file, or a read cut short
                    data += file.read()
                if not _compression(data[:16], uri):
                    return held(uri, data)
    return raw(uri).undone()


def _local(path: str, lo: int, hi: int) -> Buffer:
    with open(path, "rb") as file:
        if hi - lo < SMALL:
            file.seek(lo)
            return file.read(hi - lo)
        skip = lo % mmap.ALLOCATIONGRANULARITY
        return memoryview(_map(file.fileno(), hi - lo + skip, lo - skip))[skip:]


def _map(fileno: int, length: int, offset: int = 0) -> mmap.mmap:
    try:
        mapped = mmap.mmap(fileno, length, access=mmap.ACCESS_READ, offset=offset)
    except ValueError as error:  # the file has become shorter
        raise OSError(str(error)) from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    return mapped


def give_back(data: Buffer, begin: int, end: int) -> None:
    """Let go of the pages of data[begin:end] if it is a mapped file; they come back when looked at again."""
    mapped = data.obj if isinstance(data, memoryview) else data
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED") and end > begin:
        skip = _address(data) - _address(mapped)
        first = (begin + skip) // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, min(end + skip, len(mapped)) - first)


def _address(data: Buffer) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


# -- compression ---------------------------------------------------------------------------------

_NAMED = {
    "gz": "gzip", "tgz": "gzip", "zst": "zstd", "tzst": "zstd", "xz": "xz", "txz": "xz",
    "bz2": "bzip2", "tbz2": "bzip2", "tbz": "bzip2",
}  # fmt: skip
_MAGIC = (
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


def _compression(head: bytes, name: str) -> str | None:
    """By the first bytes; the name counts only where those are no text (servers undo gzip unasked)."""
    for magic, kind in _MAGIC:
        if magic.match(head):
            return kind
    return _NAMED.get(name.rpartition(".")[2].lower()) if re.search(rb"[\0-\x08\x0e-\x1f]", head) else None


def _chunks(file: BinaryIO, kind: str, name: str) -> Iterator[bytes]:
    """What comes out of a compressed file."""
    done = 0
    told: Any = file if isinstance(file, pa.BufferReader) else _Told(file, name)
    try:
        for out in _zstd(told) if kind == "zstd" else _inflated(told, _ENGINES[kind]):
            done += len(out)
            yield out
    except EOFError:
        raise DumpError(name, f"the end of the {kind} data", offset=done) from None
    except (OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DumpError(name, f"{kind} data ({error})", offset=done) from error


class _Told(io.RawIOBase):
    """A remote file whose own errors are told from those of the decompression: they are no OSError any more."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name = file, name

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with reading(self.name):
            return self.file.read(size)


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    opened = pa.CompressedInputStream(file if isinstance(file, pa.BufferReader) else pa.PythonFile(file, "r"), "zstd")
    while out := opened.read(16 * CHUNK):
        yield out


def _inflated(file: BinaryIO, new: Callable[[], Any]) -> Iterator[bytes]:
    """Several streams, one after the other, are one; zeros may follow each."""
    engine = new()
    while rest := file.read(CHUNK):
        while rest:
            if engine.eof:
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                engine = new()
            yield engine.decompress(rest)
            rest = engine.unused_data
    if not engine.eof:
        raise EOFError


_KEPT: OrderedDict[tuple[Any, ...], Stream] = OrderedDict()
_LOCK = threading.Lock()


def _kept(stream: Stream, kind: str) -> Stream:
    """The streams undone last are kept: reading a thousand members of one tar undoes it once."""
    if stream.key is None:
        return _decompressed(stream, kind)
    # Undoing under the lock: threads that want the same stream wait for the first of them.
    with _LOCK:
        found = _KEPT.pop(stream.key, None) or _decompressed(stream, kind)
        _KEPT[stream.key] = found
        while len(_KEPT) > 1 and (len(_KEPT) > KEPT or sum(s.size for s in _KEPT.values() if s.size <= HELD) > ROOM):
            _KEPT.popitem(last=False)
        return found


def _decompressed(stream: Stream, kind: str) -> Stream:
    with stream.open() as file:
        data = _spooled(stream.name, _chunks(file, kind, stream.name))
    return held(stream.name, data, stream.key and (*stream.key, kind))


def _spooled(name: str, chunks: Iterable[bytes]) -> Buffer:
    """All of these bytes: in memory, or if they are many in a mapped temporary file."""
    with tempfile.SpooledTemporaryFile(max_size=HELD) as spool:
        for chunk in chunks:
            try:
                spool.write(chunk)
            except OSError as error:
                room = f"room in {tempfile.gettempdir()} ({error.strerror})"
                raise DumpError(name, room, system=True) from error
        size = spool.tell()
        if size <= HELD:
            spool.seek(0)
            return spool.read()
        spool.flush()
        return _map(spool.fileno(), size)


# -- URIs ----------------------------------------------------------------------------------------


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
    with reading(uri, "a place that answers"):
        return _arrow_filesystem(f"{parts.scheme}://{parts.netloc}{query}")


def filesystem(uri: str) -> tuple[arrow_fs.FileSystem, str]:
    """The filesystem of a URI and the path there: pyarrow's, else fsspec's."""
    parts = urlsplit(uri)
    if found := _arrow_root(uri):
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


def files_below(base: str, system: arrow_fs.FileSystem, root: str) -> Iterable[str]:
    """The URI of each file below `base`, whose own path is `root`."""
    uri, mark, query = base.partition("?")
    slash = "" if uri.endswith("/") else "/"
    quoted = _arrow_root(base) is not None
    for info in sorted(system.get_file_info(arrow_fs.FileSelector(root, recursive=True)), key=lambda i: i.path):
        if info.type == arrow_fs.FileType.File:
            inside = info.path.lstrip("/").removeprefix(root.strip("/")).lstrip("/")
            yield f"{uri}{slash}{quote(inside) if quoted else inside}{mark}{query}"


def pattern(uri: str) -> re.Pattern[str]:
    """A glob over URIs: * stops at '/', ** does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\[!?[^]]+\])", uri)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    out = (known.get(p) or (p.replace("[!", "[^") if p.startswith("[") else re.escape(p)) for p in parts)
    return re.compile("".join(out) + r"\Z")
