"""Base class of section readers: the tables of a section, its split points, and scanning of spans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from ... import _lines
from ..._column import Names
from ...input.files import check_unchanged
from ...input.find import Source
from ..arrays import Ints
from ..batch import Batch, Columns, Section, Span
from ..diagnostics import Diagnostics
from ..interners import SHARED
from ..matcher import Matcher
from ..tables import Column


@dataclass(eq=False, repr=False)
class LiveSummary:
    """Totals and lists of the live-range sections."""

    section: Section | None = None
    """The last live-range section."""
    heads: int = 0
    """Bit set of the lists whose head lines were read."""
    peak_time: int | None = None
    tree_total: int | None = None


class Context(Protocol):
    """The state of a dump that section readers use and update."""

    source: Source
    with_text: bool
    diagnostics: Diagnostics
    counts: dict[tuple[str, str], int]
    """Rows read so far, by kind of section and table."""
    colors: set[int]
    """Colors of all allocations."""
    live: LiveSummary
    reports: dict[Section, dict[str, Any]]
    """Layout and counts of each memory-usage report."""
    expects_tree: bool
    """Whether the release that printed the used values also prints the stack tree."""
    module_name: bytes | None
    """Module name in the HLO header."""

    @property
    def platform(self) -> str | None: ...
    @property
    def matcher(self) -> Matcher: ...
    def sections(self, kind: str) -> Sequence[Section]: ...
    def unknown_uses(self) -> Ints | None:
        """Return the ids of the values whose uses the dump does not print; None if it prints no uses at all."""


SizeOf = Callable[[int], int]
"""Takes the bytes that are left of a section, and returns about how many of them form the next span."""

Derived = Callable[[Context, Batch, Columns], Column]
"""Computes a derived column: (context, batch, columns of its table) -> column."""


class SectionReader(ABC):
    """Reader of one kind of section."""

    kind: ClassVar[str]
    tables: ClassVar[tuple[str, ...]]
    interners: ClassVar[tuple[str, ...]] = ()
    """Interners that its columns refer to, in the order of the native scan's arguments."""
    derived: ClassVar[Mapping[str, Mapping[str, Derived]]] = {}
    """Derived columns by table and column name."""
    bytes_per_name: ClassVar[int] = 1 << 62
    """Bytes of text per name of the first interner, to reserve memory. The native scans reserve for the others."""
    first_state: ClassVar[Any] = None
    """The state of the scan at the first span, for scans that carry state from span to span."""

    @property
    def shares_interners(self) -> bool:
        """Whether the spans of a dump share interners, so that they must be scanned one after another."""
        return not set(SHARED).isdisjoint(self.interners)

    def scan_unchanged(self, span: Span, names: Sequence[Names]) -> Batch:
        """Scan a span. Raises DumpError if the file has changed, so that the span has no end."""
        try:
            return self.scan(span, names)
        except ValueError:
            check_unchanged(span.section.data, span.section.file.text.uri)
            raise

    @abstractmethod
    def scan(self, span: Span, names: Sequence[Names]) -> Batch:
        """Tokenise a span; codes refer to `names`, the native interners of the caller."""

    def sections(self, context: Context) -> Sequence[Section]:
        return context.sections(self.kind)

    @abstractmethod
    def next_split(self, section: Section, offset: int) -> int:
        """Return the first offset, not before `offset`, at which a span may begin."""

    def spans(self, section: Section, size_of: SizeOf) -> Iterator[Span]:
        """Split a section into independently scannable spans; by default, into a single span."""
        yield Span(section, section.begin, section.end)

    def continues(self, before: Batch, batch: Batch) -> bool:
        """Return whether an independently scanned span began in the state in which the previous span ended."""
        return True

    @abstractmethod
    def complete(self, context: Context, batches: Sequence[Batch]) -> None:
        """Fill in columns that depend on other spans; the batches of earlier spans have been completed."""


def split(
    section: Section, begin: int, end: int, size_of: SizeOf, prefix: bytes, state: Any = None
) -> Iterator[Span]:
    """Yield spans, each of which begins with a line that starts with `prefix`."""
    while begin < end:
        stop = _lines.next_line(section.data, begin + size_of(end - begin) - 1, end, prefix)
        yield Span(section, begin, stop, state)
        begin = stop


def next_line(section: Section, offset: int) -> int:
    """Return the first offset, not before `offset`, at which a line begins."""
    return _lines.next_line(section.data, offset - 1, section.end, b"")


def feature_names(bits: int, names: Mapping[int, str]) -> set[str]:
    """Return the features whose bits are set."""
    return {name for bit, name in names.items() if bits & bit}
