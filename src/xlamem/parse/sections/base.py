"""What a section of a dump is: its tables, where its text may be split, how a span becomes a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ... import _lines
from ..._column import Names
from ...input.find import Source
from ..arrays import Ints
from ..batch import Batch, Columns, Section, Span
from ..diagnostics import Diagnostics
from ..matcher import Matcher
from ..tables import Column

ASSIGNMENT, USED, LIVE, REPORT, HLO = "allocations", "used values", "live ranges", "report", "hlo"
"""Kinds of sections."""


@dataclass
class LiveSummary:
    """What the live-range sections say of themselves."""

    section: Section | None = None
    """The last one."""
    heads: int = 0
    """Bits of the lists whose heads were read."""
    peak_time: int | None = None
    tree_total: int | None = None


class Context(Protocol):
    """What a section may ask of the dump that it is part of."""

    source: Source
    with_text: bool
    diagnostics: Diagnostics
    counts: dict[tuple[str, str], int]
    """Rows read so far, by kind of section and table."""
    colors: set[int]
    """Of all allocations."""
    live: LiveSummary
    reports: dict[Section, dict[str, Any]]
    """Layout and counts of each memory-usage report."""
    expects_tree: bool
    """Whether the used values are of a release that prints the stack tree."""
    module_name: bytes | None
    """From the HLO header."""

    @property
    def platform(self) -> str | None: ...
    @property
    def matcher(self) -> Matcher: ...
    def sections(self, kind: str) -> Sequence[Section]: ...
    def unknown_uses(self) -> Ints | None:
        """Ids of the values whose uses the dump does not print; None if it prints no uses at all."""


Derived = Callable[[Context, Batch, Columns], Column]
"""A column that is not simply one of the batch's: (context, batch, columns of its table) -> column."""


class SectionReader(ABC):
    """One kind of section."""

    kind: ClassVar[str]
    tables: ClassVar[tuple[str, ...]]
    interners: ClassVar[tuple[str, ...]] = ()
    """Whose codes its columns hold, in the order of the arguments of the native scan."""
    derived: ClassVar[Mapping[str, Mapping[str, Derived]]] = {}
    """By table and column."""
    bytes_per_name: ClassVar[int] = 1 << 62
    """Of the first interner, to reserve memory; the scans reserve for the others."""
    first_state: ClassVar[Any] = None
    """The state of a scan that goes on from span to span, at the first one."""

    @abstractmethod
    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        """Tokenise a span; codes refer to `names`, which the caller's interners hold."""

    def sections(self, context: Context) -> Sequence[Section]:
        return context.sections(self.kind)

    @abstractmethod
    def next_split(self, section: Section, offset: int) -> int:
        """The first offset from `offset` on at which a span may begin, given the state of the span before."""

    def spans(self, section: Section, size: int) -> Iterator[Span]:
        """Split a section into spans of about `size` bytes that can be scanned independently; by default into one."""
        yield Span(section, section.begin, section.end)

    def continues(self, before: Batch, batch: Batch) -> bool:
        """Whether an independently scanned span began in the state in which the one before it ended."""
        return True

    @abstractmethod
    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        """Fill in what is not known from one span alone; batches of earlier spans have been completed."""


def even_spans(section: Section, begin: int, end: int, size: int, prefix: bytes, state: Any = None) -> Iterator[Span]:
    """Spans of even length, `size` bytes or more, that begin with a line that starts with `prefix`."""
    size = (end - begin) // max(1, round((end - begin) / size)) + 1
    while begin < end:
        stop = _lines.next_line(section.data, min(begin + size, end) - 1, end, prefix)
        yield Span(section, begin, stop, state)
        begin = stop


def next_line(section: Section, offset: int) -> int:
    """The first offset from `offset` on at which a line begins."""
    return _lines.next_line(section.data, offset - 1, section.end, b"")


def feature_names(bits: int, names: Mapping[int, str]) -> set[str]:
    """The features whose bits are set."""
    return {name for bit, name in names.items() if bits & bit}
