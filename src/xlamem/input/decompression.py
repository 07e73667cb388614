"""Chunk-wise decompression, imported for the first compressed file."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import pyarrow as pa

from ..errors import DumpError
from .access import system_errors
from .compression import Codec

READ_SIZE = 64 * 1024
"""Number of bytes of compressed data to read at once."""


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


_DECOMPRESSORS: dict[Codec, Callable[[], _Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(31),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
}


def decompress(file: BinaryIO, codec: Codec, name: str) -> Iterator[bytes]:
    """Yield the decompressed bytes of a file. Raises DumpError if its content is corrupt."""
    size = 0
    source = file if isinstance(file, pa.BufferReader) else _SystemErrorFile(file, name)
    chunks = _zstd_chunks(source) if codec == "zstd" else _chunks(source, _DECOMPRESSORS[codec])
    try:
        for chunk in chunks:
            size += len(chunk)
            yield chunk
    except EOFError:
        raise DumpError(name, f"the end of the {codec} data", offset=size) from None
    except (OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
        raise DumpError(name, f"{codec} data ({error})", offset=size) from error


class _SystemErrorFile(io.RawIOBase):
    """A file wrapper that raises DumpError for read errors, to distinguish them from a decompressor's OSError."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        with system_errors(self._name):
            return self._file.read(size)


def _zstd_chunks(file: BinaryIO | io.RawIOBase) -> Iterator[bytes]:
    source = file if isinstance(file, pa.BufferReader) else pa.PythonFile(file, "r")
    stream = pa.CompressedInputStream(source, "zstd")
    while chunk := stream.read(16 * READ_SIZE):
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
            yield decompressor.decompress(data)
            data = decompressor.unused_data
    if not decompressor.eof:
        raise EOFError
