"""Spans of text and batches of columns: what a section reader takes, and what it gives."""

from __future__ import annotations

import weakref
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..input.text import Text
from .arrays import dtype_of, texts
from .interners import Interners

Columns = dict[str, Any]
"""Columns of one table from one span: int64, int32 and uint8 arrays, and `TextParts`."""


@dataclass(eq=False)
class Section:
    """One section of one file: data[begin:end] are whole lines below its head line."""

    kind: str
    owner: weakref.ref[File]
    """The file, which holds its sections: a strong reference would keep its text until a garbage collection."""
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
    def data(self) -> Any:
        """The text of its file."""
        return self.file.text.data

    @property
    def last(self) -> bool:
        """Whether it reaches the end of its file."""
        return self is self.file.sections[-1]


@dataclass(eq=False)
class File:
    """One member of a dump: its text, its sections and its features."""

    ordinal: int
    role: str
    text: Text
    size: int
    end: int
    """End of its last complete line."""
    sections: list[Section] = field(default_factory=list)
    features: set[str] = field(default_factory=set)
    truncated: bool = False


class Span(NamedTuple):
    """A range of a section that is scanned in one call."""

    section: Section
    begin: int
    end: int
    state: Any = None
    """The state of the scan at its first line; None at the first line of a section."""

    @property
    def ends_section(self) -> bool:
        return self.end == self.section.end


@dataclass(eq=False)
class Batch:
    """The rows of one span, by table, and what the scan reports about its text."""

    span: Span
    tables: dict[str, Columns]
    """Native columns until `load`, arrays from then on."""
    faults: Any = b""
    """int64 triples: code, offset, what was expected."""
    features: Set[str] = frozenset()
    gaps: Any = b""
    """int64 quadruples: index in `gap_tables` or -1, row, begin and end of text that no field explains."""
    gap_tables: tuple[str, ...] = ()
    unfinished: int = -1
    """Offset of the record that the end of the span broke off, or -1."""
    state: Any = None
    """The state with which the next span continues."""
    summary: Any = None
    """Facts about the section, such as which of its lists were read."""
    interners: Interners = field(init=False)
    """Whose codes the columns hold; set by `load`."""

    def load(self, interners: Interners) -> Batch:
        """Turn native columns into arrays; their codes must be those of `interners`."""
        self.interners = interners
        for columns in self.tables.values():
            for name, column in columns.items():  # a call per column would cost small dumps 3 %
                is_text = column.__class__ is tuple
                columns[name] = texts(column) if is_text else np.frombuffer(column, dtype_of(name, np.int64))
        self.faults = np.frombuffer(self.faults, np.int64).reshape(-1, 3)
        self.gaps = np.frombuffer(self.gaps, np.int64).reshape(-1, 4)
        return self

    def rows(self, table: str) -> int:
        """Rows of a table."""
        for first in self.tables.get(table, _NO_COLUMNS).values():
            return len(first[1]) - 1 if first.__class__ is tuple else len(first)
        return 0


_NO_COLUMNS: Columns = {}

