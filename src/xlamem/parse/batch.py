"""Spans of text and batches of columns: the input and the output of section readers."""

from __future__ import annotations

import weakref
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..input.text import Text
from .arrays import INT64, dtype_of, ints, texts
from .interners import Interners

Columns = dict[str, Any]
"""Columns of one table from one span: int64, int32 or uint8 arrays, or `TextParts`."""


ASSIGNMENT, USED, LIVE, REPORT, HLO, FLAGS = "allocations", "used values", "live ranges", "report", "hlo", "flags"
"""Kinds of sections."""


@dataclass(eq=False)
class Section:
    """One section of one file: data[begin:end] are the complete lines below its head line."""

    kind: str
    owner: weakref.ref[File]
    """The file, which refers to its sections: a strong reference would be a cycle and delay freeing the text."""
    begin: int
    end: int
    head: int
    """Offset of the head line."""
    total: int | None = None
    """Printed total (used values, report)."""
    steps: int | None = None
    """The printed length of the schedule, `max` in the head of HloLiveRange."""
    unavailable: bool = False

    @property
    def file(self) -> File:
        file = self.owner()
        assert file is not None, "a section outlived its file"
        return file

    @property
    def data(self) -> Any:
        """The text of the file that contains the section."""
        return self.file.text.data

    @property
    def last(self) -> bool:
        """Whether this is the last section of its file."""
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
    """The columns of one span by table, and the faults and features that the scan reported."""

    span: Span
    tables: dict[str, Columns]
    """Native columns before `load`, arrays after it."""
    faults: Any = b""
    """int64 triples: code, offset, and index of the expected text."""
    features: Set[str] = frozenset()
    gaps: Any = b""
    """int64 quadruples: index in `gap_tables` or -1, row, begin and end of unknown text."""
    gap_tables: tuple[str, ...] = ()
    unfinished: int = -1
    """Offset of the record that is incomplete at the end of the span, or -1."""
    state: Any = None
    """The state of the scan at the end of the span."""
    summary: Any = None
    """Results about the section, such as which of its lists were read."""
    interners: Interners = field(init=False)
    """The interners that the codes refer to; set by `load`."""

    def load(self, interners: Interners) -> Batch:
        """Convert native columns to arrays; their codes must refer to `interners`."""
        self.interners = interners
        for columns in self.tables.values():
            for name, column in columns.items():  # inlined: a call per column costs 3 % on small dumps
                is_text = column.__class__ is tuple
                columns[name] = texts(column) if is_text else np.frombuffer(column, dtype_of(name, INT64))
        self.faults = ints(self.faults).reshape(-1, 3)
        self.gaps = ints(self.gaps).reshape(-1, 4)
        return self

    def rows(self, table: str) -> int:
        """Return the number of rows of a table."""
        for first in self.tables.get(table, _NO_COLUMNS).values():
            return len(first[1]) - 1 if first.__class__ is tuple else len(first)
        return 0


_NO_COLUMNS: Columns = {}

