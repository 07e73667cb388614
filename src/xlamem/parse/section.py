"""A file of a dump and its sections: where they lie, and what was seen in them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

from ..input.text import Text


@dataclass(eq=False)
class Section:
    """One section of one file: data[begin:end] holds whole lines below its head."""

    kind: str
    owner: weakref.ref[File]
    """The file holds its sections; that they hold it too would keep its text until a garbage collection."""
    begin: int
    end: int
    head: int
    """Offset of the head line."""
    total: int | None = None
    """Printed total (used values, report)."""
    steps: int | None = None
    """max of HloLiveRange."""
    unavailable: bool = False

    @property
    def file(self) -> File:
        file = self.owner()
        assert file is not None, "a section outlived its file"
        return file

    @property
    def last(self) -> bool:
        """Whether it reaches the end of its file."""
        return self is self.file.sections[-1]


@dataclass(eq=False)
class File:
    """One member: its text, its sections, and what was seen in it."""

    ordinal: int
    role: str
    text: Text
    size: int
    whole: int
    """Where its last whole line ends."""
    sections: list[Section] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    cut: bool = False
