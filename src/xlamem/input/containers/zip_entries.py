"""Entries of zip archives, imported for the first archive.

Only the directory is read to list entries; an entry is decompressed when it is read.
"""

from __future__ import annotations

import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

from ...errors import DumpError
from ..files import FileView

_LOCAL_HEADER = struct.Struct("<4s22xHH")
"""The header before an entry: the magic number and the lengths of the name and extra field that follow."""

_HEADER_MAGIC = b"PK\3\4"

_MAX_DEFLATE_RATIO = 1032
"""Maximum number of bytes that one deflated byte can expand to."""

_ENCRYPTED = 1
_CORRUPT = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


class ZipEntry(NamedTuple):
    """A file in a zip archive."""

    name: str
    size: int
    header_offset: int
    stored_size: int
    method: int
    crc: int
    expected: str = ""

    def open(self, container: FileView) -> FileView:
        stored = self._stored(container)
        if self.method == zipfile.ZIP_STORED:
            return stored
        key = stored.key and (*stored.key, "zip")
        return FileView.from_stream(stored.name, self.size, key, lambda: cast(BinaryIO, _EntryFile(stored, self)))

    def _stored(self, container: FileView) -> FileView:
        """Return a view of the stored bytes, which follow the local header of the entry."""
        header = bytes(container.read(self.header_offset, self.header_offset + _LOCAL_HEADER.size))
        if len(header) < _LOCAL_HEADER.size or not header.startswith(_HEADER_MAGIC):
            name = f"{container.name}::{self.name}"
            raise DumpError(name, f"the header of a zip entry at byte {self.header_offset:,} of the archive")
        _, name_size, extra_size = _LOCAL_HEADER.unpack(header)
        begin = self.header_offset + _LOCAL_HEADER.size + name_size + extra_size
        return container.slice(self.name, begin, begin + self.stored_size)


class _EntryFile(zipfile.ZipExtFile):
    """A deflated entry as a file. It yields at most `entry.size` bytes, and raises DumpError if they are corrupt."""

    def __init__(self, stored: FileView, entry: ZipEntry) -> None:
        info = zipfile.ZipInfo(entry.name)
        info.compress_type, info.CRC = entry.method, entry.crc
        info.compress_size, info.file_size = entry.stored_size, entry.size
        super().__init__(stored.open(), "r", info, None, True)
        self._path, self._size = stored.name, entry.size

    def read(self, n: int | None = -1) -> bytes:
        offset = self.tell()
        try:
            data = super().read(n)
            if not data and n and self.tell() < self._size:
                raise EOFError
        except _CORRUPT as error:
            reason = str(error) or "it ends early"
            raise DumpError(self._path, f"{self._size:,} bytes of zip data ({reason})", offset=offset) from error
        return data


def entries(file: FileView) -> Iterator[ZipEntry]:
    """List the regular files of an archive. May raise DumpError after some entries."""
    infos = _directory(file)
    limits = _limits(infos, file.size)
    for info in infos:
        if _is_regular(info):
            # Some Windows tools write backslashes.
            yield ZipEntry(
                info.filename.replace("\\", "/"),
                info.file_size,
                info.header_offset,
                info.compress_size,
                info.compress_type,
                info.CRC,
                _expected(info, limits[info.header_offset]),
            )


def _directory(file: FileView) -> list[zipfile.ZipInfo]:
    try:
        with file.open() as opened, zipfile.ZipFile(opened) as archive:
            return archive.infolist()
    # The last four are caused by absurd numbers, versions and names.
    except (*_CORRUPT, OSError, struct.error, ValueError, OverflowError, MemoryError, NotImplementedError) as error:
        reason = str(error) or type(error).__name__
        raise DumpError(file.name, f"a complete zip archive ({reason})", system=isinstance(error, OSError)) from error


def _limits(infos: list[zipfile.ZipInfo], size: int) -> dict[int, int]:
    """Return the maximum end of each entry by header offset. Entries with the same offset cannot be valid."""
    offsets = sorted(info.header_offset for info in infos)
    limits: dict[int, int] = {}
    for offset, following in zip(offsets, [*offsets[1:], size], strict=False):
        limits.setdefault(offset, following)
    return limits


def _is_regular(info: zipfile.ZipInfo) -> bool:
    return not info.is_dir() and stat.S_IFMT(info.external_attr >> 16) in (0, stat.S_IFREG)


def _expected(info: zipfile.ZipInfo, limit: int) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "an entry without encryption"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"an entry that is stored or deflated, not compressed by method {info.compress_type}"
    if info.header_offset < 0 or info.header_offset + _LOCAL_HEADER.size + info.compress_size > limit:
        return "an entry that ends before the next one begins"  # entries of zip bombs overlap
    ratio = 1 if info.compress_type == zipfile.ZIP_STORED else _MAX_DEFLATE_RATIO
    if info.file_size > ratio * info.compress_size:
        return f"an entry of at most {ratio * info.compress_size:,} bytes, not {info.file_size:,}"
    return ""
