"""Compressed files: codec detection and chunk-wise decompression."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, Protocol, cast

import pyarrow as pa

from ..errors import DumpError
from .filesystems import system_errors

Codec = Literal["gzip", "zstd", "xz", "bzip2"]

READ_SIZE = 64 * 1024
"""Number of bytes of compressed data to read at once."""

EXTENSIONS: dict[str, Codec] = {
    "gz": "gzip", "tgz": "gzip", "zst": "zstd", "tzst": "zstd", "xz": "xz", "txz": "xz",
    "bz2": "bzip2", "tbz2": "bzip2", "tbz": "bzip2",
}  # fmt: skip

_MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)"
    rb"|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<xz>\xfd7zXZ\0)"
    rb"|(?P<bzip2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
)
_NOT_TEXT = re.compile(rb"[\0-\x08\x0e-\x1f]")


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


def detect_codec(head: bytes, name: str) -> Codec | None:
    """Detect the codec of a file by its first bytes, or by its name if they are not text.

    Some servers decompress gzip on their own, so a file named `.gz` may contain plain text.
    """
    if magic := _MAGIC.match(head):
        return cast(Codec, magic.lastgroup)
    return EXTENSIONS.get(name.rpartition(".")[2].lower()) if _NOT_TEXT.search(head) else None


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
