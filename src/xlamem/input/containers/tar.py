"""Tar archives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...errors import DumpError
from ..files import FileView
from .base import Container


class TarEntry(NamedTuple):
    """A file in a tar archive, which occupies its bytes [begin, end)."""

    name: str
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def expected(self) -> str:
        return ""

    def open(self, container: FileView) -> FileView:
        return container.slice(self.name, self.begin, self.end)


def _matches(file: FileView) -> bool:
    return bytes(file.read(257, 262)) == b"ustar"


def _entries(file: FileView) -> Iterator[TarEntry]:
    import tarfile  # here, since few dumps are in archives

    try:
        with file.open() as opened, tarfile.open(fileobj=opened, mode="r:") as tar:
            for info in tar:
                if info.size < 0:  # the next header would be an earlier one
                    raise tarfile.TarError(f"{info.name!r} has {info.size} bytes")
                tar.members.clear()  # type: ignore[attr-defined]  # tarfile keeps them all
                if info.isreg() and not info.issparse():
                    yield TarEntry(info.name, info.offset_data, info.offset_data + info.size)
    # The last three are caused by headers with absurd numbers.
    except (tarfile.TarError, OSError, ValueError, OverflowError, MemoryError) as error:
        reason = str(error) or type(error).__name__
        raise DumpError(file.name, f"a complete tar archive ({reason})", system=isinstance(error, OSError)) from error


TAR = Container((".tar", ".tgz", ".tzst", ".txz", ".tbz", ".tbz2"), _matches, _entries)
