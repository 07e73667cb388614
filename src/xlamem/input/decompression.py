"""Chunk-wise decompression, imported for the first compressed file."""

from __future__ import annotations

import bz2
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import pyarrow as pa

from ..errors import DumpError
from .access import system_errors
from .compression import Codec

READ_SIZE = 64 * 1024
"""Number of bytes of compressed data to read at once."""

CHUNK_SIZE = 16 * READ_SIZE
"""Maximum number of decompressed bytes to yield at once, however much the data expand."""

MAX_RATIO = 10_000
"""Decompressed bytes per compressed byte; real dumps reach 900. XLAMEM_MAX_RATIO sets another limit."""

MIN_LIMITED = 256 << 20
"""Size from which the ratio is limited."""

MAX_SIZE = 64 << 30
"""Decompressed bytes of one file. XLAMEM_MAX_DECOMPRESSED sets another limit."""

MAX_DICTIONARY = 256 << 20
"""Memory of an xz decompressor; `xz -9` needs 65 MiB. Those of zstd use at most 128 MiB, all others little."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def needs_input(self) -> bool: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Gzip:
    """A gzip decompressor that keeps its input, like those of bz2 and xz."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


_DECOMPRESSORS: dict[Codec, Callable[[], _Decompressor]] = {
    "gzip": _Gzip,
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_DICTIONARY),
}


def decompress(file: BinaryIO, codec: Codec, name: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file. Raises DumpError if its content is corrupt, or expands too much."""
    size, limits = 0, (_limit("XLAMEM_MAX_RATIO", MAX_RATIO), _limit("XLAMEM_MAX_DECOMPRESSED", MAX_SIZE))
    source = file if isinstance(file, pa.BufferReader) else _SystemErrorFile(file, name)
    chunks = _zstd_chunks(source) if codec == "zstd" else _chunks(source, _DECOMPRESSORS[codec])
    try:
        for chunk in chunks:
            size += len(chunk)
            if size > MIN_LIMITED:
                _check_size(name, size, source.tell(), *limits)
            yield chunk
    except EOFError:
        raise DumpError(name, f"the end of the {codec} data", offset=size) from None
    except (OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DumpError(name, f"{codec} data ({error})", offset=size) from error


def _limit(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default


def _check_size(name: str, size: int, compressed: int, max_ratio: int, max_size: int) -> None:
    if size > max_ratio * max(compressed, 1):
        wanted = f"at most {max_ratio} bytes per compressed byte (XLAMEM_MAX_RATIO sets another limit)"
        raise DumpError(name, wanted, offset=size)
    if size > max_size:
        wanted = f"at most {max_size:,} bytes after decompression (XLAMEM_MAX_DECOMPRESSED sets another limit)"
        raise DumpError(name, wanted, offset=size)


class _SystemErrorFile(io.RawIOBase):
    """A file wrapper that raises DumpError for read errors, to distinguish them from a decompressor's OSError."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name, self._read = file, name, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with system_errors(self._name):
            data = self._file.read(size)
        self._read += len(data)
        return data

    def tell(self) -> int:
        return self._read


def _zstd_chunks(file: BinaryIO | io.RawIOBase) -> Iterator[bytes]:
    source = file if isinstance(file, pa.BufferReader) else pa.PythonFile(file, "r")
    stream = pa.CompressedInputStream(source, "zstd")
    while chunk := stream.read(CHUNK_SIZE):
        yield chunk


def _chunks(file: BinaryIO | io.RawIOBase, new_decompressor: Callable[[], _Decompressor]) -> Iterator[bytes]:
    """Decompress one or more concatenated streams, each of which may be padded with zeros."""
    decompressor = new_decompressor()
    while data := file.read(READ_SIZE):
        while data:
            if decompressor.eof:
                data = data.lstrip(b"\0")
                if not data:
                    break
                decompressor = new_decompressor()
            yield decompressor.decompress(data, CHUNK_SIZE)
            while not decompressor.eof and not decompressor.needs_input:
                yield decompressor.decompress(b"", CHUNK_SIZE)
            data = decompressor.unused_data
    if not decompressor.eof:
        raise EOFError
