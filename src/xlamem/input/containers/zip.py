"""Zip archives."""

from __future__ import annotations

from collections.abc import Iterator

from ..files import FileView
from .base import Container, Entry

_MAGIC = (b"PK\3\4", b"PK\5\6")
"""The first bytes of an archive: the header of an entry, or the end of an empty directory."""


def _matches(file: FileView) -> bool:
    return bytes(file.read(0, 4)) in _MAGIC


def _entries(file: FileView) -> Iterator[Entry]:
    from .zip_entries import entries  # imports zipfile

    return entries(file)


ZIP = Container((".zip",), _matches, _entries)
