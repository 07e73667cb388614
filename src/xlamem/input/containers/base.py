"""What a container is: a file that holds files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ..files import FileView


class Entry(Protocol):
    """A file in a container. Entries are small, hashable and picklable: a member of a dump keeps its entry."""

    @property
    def name(self) -> str:
        """The path in the container, with "/" between folders."""

    @property
    def size(self) -> int:
        """Bytes of the entry, without the container's own compression."""

    @property
    def expected(self) -> str:
        """What the entry would need to be readable ("an entry without encryption"); empty if it is readable."""

    def open(self, container: FileView) -> FileView:
        """Return a view of the entry. It may be compressed once more."""


@dataclass(frozen=True)
class Container:
    """A kind of container: how it is recognised, and how its entries are listed."""

    extensions: tuple[str, ...]
    """In lower case. Each may be followed by the extension of a compression."""
    matches: Callable[[FileView], bool]
    """Whether the first bytes are those of such a container."""
    entries: Callable[[FileView], Iterator[Entry]]
    """List the regular files without decompressing them. Raises DumpError, perhaps after some entries."""
