"""File contents by path or URI: read, memory-mapped, or decompressed into memory or a temporary file."""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa

from .. import _guard
from ..errors import DumpError
from .access import URI
from .compression import Codec, detect_codec

Buffer: TypeAlias = bytes | memoryview | mmap.mmap
Key: TypeAlias = tuple[Hashable, ...]

MIN_MAPPED = 128 * 1024
"""Minimum size of local files to be mapped; smaller ones are read."""

TAIL_BYTES = 64
"""Number of bytes at the end of a mapped file that show whether a file that has grown was only appended to."""

MAX_IN_MEMORY = 64 * 1024 * 1024
"""Larger decompressed or remote content is written to an unlinked temporary file (in TMPDIR) and mapped."""

MAX_CACHED_BYTES = 256 * 1024 * 1024
MAX_CACHED_FILES = 8
"""Limits of the cache of decompressed content. Content in temporary files does not count towards the bytes."""

BLOCK_SIZE = 16 * 1024 * 1024
"""Number of bytes of a large file to read or scan at once."""


@dataclass(frozen=True)
class FileView:
    """The bytes [begin, end) of a file, read on demand."""

    name: str
    fetch: Callable[[int, int], Buffer]
    """Read a span of the file."""
    begin: int
    end: int
    key: Key | None = None
    """Cache key for content derived from these bytes. Equal keys imply equal bytes; None disables caching."""
    opener: Callable[[], BinaryIO] | None = None
    """Opens the view as a file, if reading it entirely is expensive."""

    @classmethod
    def from_bytes(cls, name: str, data: Buffer, key: Key | None = None) -> FileView:
        """Create a view of bytes in memory."""
        size = len(data)
        return cls(name, lambda begin, end: data if end - begin == size else memoryview(data)[begin:end], 0, size, key)

    @classmethod
    def from_stream(cls, name: str, size: int, key: Key | None, opener: Callable[[], BinaryIO]) -> FileView:
        """Create a view of a stream, which is read entirely by the first `read`."""

        @cache
        def content() -> Buffer:
            return _CACHE.get(key, read_all)

        def read_all() -> Buffer:
            with opener() as file:
                return spool(name, iter(lambda: file.read(1 << 20), b""))

        return cls(name, lambda begin, end: memoryview(content())[begin:end], 0, size, key, opener)

    @property
    def size(self) -> int:
        return self.end - self.begin

    def read(self, begin: int = 0, end: int | None = None) -> Buffer:
        """Read the bytes [begin, end) of the view, limited to its size."""
        last = self.end if end is None else min(self.begin + end, self.end)
        return self.fetch(min(self.begin + begin, last), last)

    def open(self) -> BinaryIO:
        """Open the view as a seekable file."""
        file: BinaryIO = self.opener() if self.opener else pa.BufferReader(pa.py_buffer(self.read()))
        return file

    def slice(self, name: str, begin: int, end: int) -> FileView:
        """Return a view of the entry `name` at the bytes [begin, end)."""
        first, last = min(self.begin + begin, self.end), min(self.begin + end, self.end)
        return FileView(f"{self.name}::{name}", self.fetch, first, last, self.key and (*self.key, first, last))

    def decompressed(self) -> FileView:
        """Return a view of the decompressed bytes, or this view if they are not compressed."""
        codec = detect_codec(bytes(self.read(0, 16)), self.name)
        if codec is None:
            return self

        def read_all() -> Buffer:
            with self.open() as file:
                return spool(self.name, _decompress(file, codec, self.name))

        key = self.key and (*self.key, codec)
        return FileView.from_bytes(self.name, _CACHE.get(key, read_all), key)

    def head(self, size: int) -> bytes:
        """Read the first `size` decompressed bytes without decompressing more than needed."""
        with self.open() as file:
            head = file.read(size)
            codec = detect_codec(head[:16], self.name)
            if codec is None:
                return head
            file.seek(0)
            return _first_bytes(_decompress(file, codec, self.name), size)

    def count_newlines(self, end: int) -> int:
        """Count the newlines before an offset."""
        first, count = _COUNTED.get(self.key, (0, 0))
        if self.key is None or first > end:
            first, count = 0, 0
        for begin in range(first, end, BLOCK_SIZE):
            count += bytes(self.read(begin, min(begin + BLOCK_SIZE, end))).count(b"\n")
        if self.key is not None:
            _COUNTED.clear()
            _COUNTED[self.key] = end, count
        return count


_COUNTED: dict[Key | None, tuple[int, int]] = {}
"""An offset in the file whose newlines were counted last, and their number: a file can have thousands of modules."""


def open_file(uri: str) -> FileView:
    """Open a file by path or URI, without decompression."""
    if URI.match(uri):
        return _open_remote(uri)
    status = os.stat(uri)
    key = _local_key(uri, status)
    return FileView(uri, lambda begin, end: _read_local(uri, begin, end), 0, status.st_size, key)


def open_decompressed(uri: str) -> FileView:
    """Open a file by path or URI and decompress it if needed."""
    return open_file(uri).decompressed()


def read_small(uri: str) -> bytes | None:
    """Read a small local file in one call; None if it is remote, large or compressed."""
    data = None if "://" in uri and URI.match(uri) else _read_small(uri)
    return None if data is None or detect_codec(data[:16], uri) else data


# -- local files ---------------------------------------------------------------------------------


def _read_small(path: str) -> bytes | None:
    """Return the bytes of a small file; None if it is large."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))  # cheaper than a file object
    try:
        size = os.fstat(descriptor).st_size
        if size >= MIN_MAPPED:
            return None
        data = os.read(descriptor, size)
        if not size or len(data) < size:  # not a regular file, or a short read
            with open(descriptor, "rb", closefd=False) as file:
                data += file.read()
        return data
    finally:
        os.close(descriptor)


def _local_key(path: str, status: os.stat_result) -> Key:
    return path, status.st_size, status.st_mtime_ns


def _read_local(path: str, begin: int, end: int) -> Buffer:
    with open(path, "rb") as file:
        if end - begin < MIN_MAPPED:
            file.seek(begin)
            return file.read(end - begin)
        skip = begin % mmap.ALLOCATIONGRANULARITY
        return memoryview(_map(file.fileno(), end - begin + skip, begin - skip, path))[skip:]


class _Mapped(mmap.mmap):
    """A mapped file, with the path, the status and the last bytes that it had when it was mapped."""

    path: str | None
    status: os.stat_result
    tail: bytes


def _map(fileno: int, length: int, offset: int = 0, path: str | None = None) -> _Mapped:
    try:
        mapped = _Mapped(fileno, length, access=mmap.ACCESS_READ, offset=offset)
    except ValueError as error:  # the file has become shorter
        raise OSError(str(error)) from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    number = _guard.add(mapped)
    _GUARDS[number] = weakref.ref(mapped, lambda _: _guard.remove(number))
    mapped.path, mapped.status, mapped.tail = path, os.fstat(fileno), mapped[-TAIL_BYTES:]
    return mapped


_GUARDS: dict[int, weakref.ref[mmap.mmap]] = {}
"""The guards of mapped files (`_native/guard.h`), each of which ends with its mapping."""


def check_unchanged(data: Buffer, name: str) -> None:
    """Raise DumpError if the file behind the data has changed while it was read. It may have grown, as logs do."""
    mapped = _mapped(data)
    if mapped and (_guard.is_cut(data) or _is_changed(mapped)):
        raise DumpError(name, "a file that does not change while it is read", system=True)


def _is_changed(mapped: _Mapped) -> bool:
    before = mapped.status
    try:
        now = os.stat(mapped.path) if mapped.path else before
    except OSError:
        return False  # deleted: the mapping keeps its content
    if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
        return False  # replaced by another file
    if now.st_size > before.st_size:
        return mapped[-TAIL_BYTES:] != mapped.tail
    return (now.st_size, now.st_mtime_ns) != (before.st_size, before.st_mtime_ns)


def _mapped(data: Buffer) -> _Mapped | None:
    mapped = data.obj if isinstance(data, memoryview) else data
    return mapped if isinstance(mapped, _Mapped) else None


def evict_pages(data: Buffer, begin: int, end: int) -> None:
    """Release the pages of data[begin:end] if it is a mapped file. They are reloaded on access."""
    mapped = _mapped(data)
    if mapped and hasattr(mmap, "MADV_DONTNEED") and end > begin and not _guard.is_cut(mapped):
        skip = _address(data) - _address(mapped)
        first = (begin + skip) // mmap.PAGESIZE * mmap.PAGESIZE
        mapped.madvise(mmap.MADV_DONTNEED, first, min(end + skip, len(mapped)) - first)


def _address(data: Buffer) -> int:
    return int(np.frombuffer(data, np.uint8).ctypes.data)


# -- remote files --------------------------------------------------------------------------------


def _open_remote(uri: str) -> FileView:
    from pyarrow import fs as arrow_fs

    from .filesystems import filesystem

    system, path = filesystem(uri)
    info = system.get_file_info(path)
    if info.type == arrow_fs.FileType.NotFound:
        raise FileNotFoundError("no such file")
    if info.size is None:  # the server does not report sizes
        with system.open_input_stream(path, compression=None) as file:
            return FileView.from_bytes(uri, spool(uri, iter(lambda: file.read(BLOCK_SIZE), b"")))

    def fetch(begin: int, end: int) -> Buffer:
        with system.open_input_file(path) as file:
            if end - begin <= MAX_IN_MEMORY:
                return bytes(file.read_at(end - begin, begin))
            return spool(uri, (file.read_at(min(BLOCK_SIZE, end - o), o) for o in range(begin, end, BLOCK_SIZE)))

    key = uri, info.size, info.mtime_ns
    return FileView(uri, fetch, 0, info.size, key, lambda: system.open_input_file(path))


# -- decompressed content ------------------------------------------------------------------------


def _decompress(file: BinaryIO, codec: Codec, name: str) -> Iterator[bytes]:
    from .decompression import decompress  # imports the codecs

    return decompress(file, codec, name)


def spool(name: str, chunks: Iterable[bytes]) -> Buffer:
    """Join chunks in memory, or in a mapped temporary file if they are large."""
    import tempfile  # most dumps are plain files

    with tempfile.SpooledTemporaryFile(max_size=MAX_IN_MEMORY) as file:
        for chunk in chunks:
            try:
                file.write(chunk)
            except OSError as error:
                space = f"free space in {tempfile.gettempdir()} ({error.strerror})"
                raise DumpError(name, space, system=True) from error
        size = file.tell()
        if size <= MAX_IN_MEMORY:
            file.seek(0)
            return file.read()
        file.flush()
        return _map(file.fileno(), size)


def _first_bytes(chunks: Iterator[bytes], size: int) -> bytes:
    head = bytearray()
    for chunk in chunks:
        head += chunk
        if len(head) >= size:
            break
    return bytes(head[:size])


class _ContentCache:
    """Cache of decompressed content, so that an archive with many members is decompressed only once."""

    def __init__(self) -> None:
        self._contents: OrderedDict[Key, Buffer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Key | None, read: Callable[[], Buffer]) -> Buffer:
        """Return the cached content of a key, calling `read` if there is none. Content without a key is not cached."""
        if key is None:
            return read()
        with self._lock:  # held while reading: threads that need the same content wait for the first
            content = self._contents.pop(key, None)
            self._contents[key] = content = read() if content is None else content
            while len(self._contents) > 1 and self._is_full():
                self._contents.popitem(last=False)
            return content

    def _is_full(self) -> bool:
        size = sum(len(content) for content in self._contents.values() if len(content) <= MAX_IN_MEMORY)
        return len(self._contents) > MAX_CACHED_FILES or size > MAX_CACHED_BYTES

    def clear(self) -> None:
        self._contents.clear()


_CACHE = _ContentCache()
"""Shared by all threads of the process."""
