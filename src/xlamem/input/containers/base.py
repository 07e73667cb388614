"""Containers: files that contain files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from ..files import FileView


class Entry(Protocol):
    """A file in a container. Entries are small, hashable and picklable: a member of a dump keeps its entry."""

    @property
    def name(self) -> str:
        """The path in the container, with "/" between folders."""

    @property
    def size(self) -> int:
        """Size of the entry in bytes after undoing the container's compression."""

    @property
    def expected(self) -> str:
        """What was expected of an unreadable entry ("an entry without encryption"); empty if it is readable."""

    def open(self, container: FileView) -> FileView:
        """Return a view of the entry, which may be a compressed file itself."""


class Container(NamedTuple):
    """A kind of container: how it is recognised, and how its entries are listed."""

    extensions: tuple[str, ...]
    """File name extensions in lower case; each may be followed by the extension of a compression."""
    matches: Callable[[FileView], bool]
    """Whether the first bytes identify this kind of container."""
    entries: Callable[[FileView], Iterator[Entry]]
    """List the regular files without decompressing them. May raise DumpError after some entries."""
