"""Reads a dump span by span in bounded memory.

Each span has its own interners. `OffsetMatcher` keeps the columns that later spans and the cross-checks need. With
several threads, the next span is scanned, and fingerprints and hashes are computed, while the caller works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import _lines, _lookup, schema
from ..errors import UsageError
from ..formatting import similar
from ..input.files import evict_pages
from ..input.find import Source
from .arrays import Ints
from .batch import Batch, Section, Span
from .by_offset import OffsetMatcher
from .checks import check
from .fingerprints import Fingerprints, are_known
from .hashes import evicting_hash
from .interners import Interners
from .lanes import KEEP, Job, Lanes
from .reader import Reader, any_tiled
from .sections import (
    ASSIGNMENT,
    SECTION_OF,
    SECTIONS,
    USED,
    SectionReader,
    make_table,
    needed_sections,
    source_section,
)
from .stores import CompactStore, Empty
from .summary import summaries, summary_rows
from .tables import table_of_rows

SPAN_BYTES = 8 << 20
"""Bytes of text that are scanned at a time (more if a single record is larger)."""

Pieces = Iterator[tuple[str, pa.Table]]

_E1_HEADER = b", positions"
"""The end of a value's header where the allocations print uses (E1); a colon follows, maybe after unknown text."""


def pieces(
    source: Source,
    tables: Iterable[str] | None = None,
    *,
    hashes: bool = False,
    text: bool = False,
) -> Pieces:
    """Yield the tables of one dump as (name, rows) in bounded memory.

    Concatenated, the tables of one name equal the result of `xlamem.read`. The rows of each table are in the order of
    the text and have the schema's Arrow types; each piece has its own dictionaries. `files`, `diagnostics`, `modules`
    and `unknown_text` are last.

    Parameters
    ----------
    tables, hashes, text
        As in `xlamem.read`. Sections that fill none of the tables are not tokenised.

    Raises
    ------
    UsageError
        A table is unknown; raised immediately. The errors of `xlamem.read` are raised with the first rows.
    """
    names = frozenset(schema.TABLES if tables is None else tables)
    if unknown := sorted(names - schema.TABLES.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; {similar(unknown, schema.TABLES)}")
    return PieceReader(source, names, hashes=hashes, text=text).pieces()


class PieceReader(Reader):
    """Keeps no batches; reads the sections of one kind after another.

    `empty` allocates the arrays of columns that are kept across spans, like `np.empty`. With several threads, `lanes`
    runs what need not be finished before the next piece is returned.
    """

    def __init__(
        self,
        source: Source,
        wanted: frozenset[str],
        *,
        hashes: bool = False,
        text: bool = False,
        empty: Empty = np.empty,
        lanes: Lanes | None = None,
    ) -> None:
        super().__init__(source, text=text)
        self.wanted = wanted
        self.checks = bool(wanted - SECTION_OF.keys())
        self.scanned_bytes = 0
        """Bytes of the spans whose tables were returned."""
        self._hashes = hashes
        self._fingerprints = Fingerprints(empty=empty) if hashes and "modules" in wanted else None
        self._lanes = lanes or Lanes()
        self._stores = {kind: CompactStore(empty) for kind in SECTIONS}
        self._matcher = OffsetMatcher(self, self._stores, wanted, checks=self.checks, lanes=self._lanes)
        self._labels = Interners()

    # -- tables ----------------------------------------------------------------------------------

    def pieces(self) -> Pieces:
        """Yield the pieces of all requested tables."""
        for kind in self.kinds:
            yield from self.tables(kind)
        yield from self.summaries()

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of sections to be read, in the order in which they must be read."""
        kinds = needed_sections(self, {SECTION_OF[t] for t in self.wanted if t in SECTION_OF})
        if ASSIGNMENT in kinds and self._prints_unknown_uses:
            kinds = [k for k in SECTIONS if k in {*kinds, USED}]
        # The used values are the largest section. If they are read last, peaks can be computed before.
        return sorted(kinds, key=USED.__eq__) if self.sections(ASSIGNMENT) else kinds

    def tables(self, kind: str) -> Pieces:
        """Yield the requested tables of one kind of section, span by span."""
        reader = SECTIONS[kind]
        names = [t for t in schema.TABLES if t in self.wanted and t in SECTION_OF and source_section(self, t) == kind]
        for section in reader.sections(self):
            for batch in self._batches_ahead(reader, section):
                reader.complete(self, [batch])
                self.note(batch)
                self.scanned_bytes += batch.span.end - batch.span.begin
                tables = [(name, make_table(self, name, [batch])) for name in names if batch.rows(name)]
                kept = self._lanes.submit(KEEP, partial(self._matcher.keep, batch))
                if reader.shares_interners:
                    self._lanes.result(kept)
                for name, rows in tables:
                    self._add_to_fingerprints(name, rows)
                    yield name, rows
                self._matcher.evict()
        self._lanes.wait(KEEP)
        self._matcher.finish(kind)
        if kind == self.kinds[-1] and self._fingerprints and are_known(self, self.wanted)[0]:
            self._lanes.submit("fingerprints", self._fingerprints.find_program)

    def _add_to_fingerprints(self, name: str, rows: pa.Table) -> None:
        if self._fingerprints and name in Fingerprints.TABLES:
            self._lanes.submit("fingerprints", partial(self._fingerprints.add, name, rows))

    def summaries(self) -> Pieces:
        """Check the dump, and yield the requested tables about it."""
        wanted = self.wanted - SECTION_OF.keys()
        hashes = self._submit_hashes()
        if self.checks:
            check(self)
        self._lanes.join()
        if wanted:
            content = [job.result for job in hashes] or [None] * len(self.files)
            tables = summaries(self, self.wanted, content, self._fingerprints)
            for name in ("files", "diagnostics", "modules", "unknown_text"):
                if name in wanted and tables[name].num_rows:
                    yield name, tables[name]

    def _submit_hashes(self) -> list[Job]:
        return [self._lanes.submit("hashes", partial(evicting_hash, f.text.raw)) for f in self.files if self._hashes]

    def module_so_far(self) -> pa.Table:
        """Return the row of `modules` with what the sections that were read say, before the cross-checks."""
        rows = summary_rows(self, self.wanted, [None] * len(self.files))
        return table_of_rows("modules", rows["modules"])

    def _batches_ahead(self, reader: SectionReader, section: Section) -> Iterator[Batch]:
        """Scan each span while the caller works with the previous one, unless they share interners."""
        batches = self._batches(reader, section)
        return batches if reader.shares_interners else self._lanes.ahead(batches)

    def _batches(self, reader: SectionReader, section: Section) -> Iterator[Batch]:
        """Scan a section span by span; each span starts in the state in which the previous one ended."""
        begin, size, state = section.begin, SPAN_BYTES, reader.first_state
        while True:
            end = reader.next_split(section, begin + size) if begin + size < section.end else section.end
            interners = Interners(self._labels)
            span = Span(section, begin, end, state)
            batch = reader.scan_unchanged(span, interners.names(reader.interners)).load(interners)
            if batch.unfinished >= 0 and not span.ends_section:
                if batch.unfinished == begin:
                    size *= 2
                    continue
                # The next span begins with the unfinished record.
                end = batch.unfinished
                batch.faults = np.ascontiguousarray(batch.faults[batch.faults[:, 1] < end])
                batch.gaps = np.ascontiguousarray(batch.gaps[batch.gaps[:, 2] < end])
                batch.span = span._replace(end=end)
            yield batch
            begin, size, state = end, SPAN_BYTES, batch.state
            if begin >= section.end:
                return

    # -- for sections and checks ---------------------------------------------------------

    @property
    def stores(self) -> Mapping[str, CompactStore]:
        return self._stores

    @property
    def matcher(self) -> OffsetMatcher:
        return self._matcher

    @property
    def labels(self) -> Interners:
        return self._labels

    def was_read(self, kind: str) -> bool:
        return kind in self.kinds

    @cached_property
    def has_tiles(self) -> bool:
        kind, table = (ASSIGNMENT, "values") if self.sections(ASSIGNMENT) else (USED, "instructions")
        return self._any_batch(kind, b"T(", lambda batch: any_tiled([batch], table))

    @cached_property
    def _uses_in_allocations(self) -> bool:
        """Whether the allocations print the uses of their values (E1)."""
        has_feature = any("e1_values" in s.file.features for s in self.sections(ASSIGNMENT))
        return has_feature or self._any_batch(ASSIGNMENT, _E1_HEADER, lambda batch: "e1_values" in batch.features)

    def _any_batch(self, kind: str, text: bytes, test: Callable[[Batch], bool]) -> bool:
        """Return whether a batch passes the test; only sections that contain the text are scanned."""
        sections = [s for s in self.sections(kind) if self._contains_text(s, text)]
        for section in sections:
            for batch in self._batches(SECTIONS[kind], section):
                if test(batch):
                    return True
                self._matcher.evict()
        return False

    def _contains_text(self, section: Section, text: bytes) -> bool:
        """Return whether a section contains a text of fewer than 64 bytes."""
        return self._search(section, lambda data, begin, end: _lookup.find(data, begin, end, text) >= 0)

    def _search(self, section: Section, found: Callable[[Any, int, int], bool]) -> bool:
        """Return whether something is found in the text of a section, between two offsets. The threads share it."""
        n = self._lanes.threads
        ranges = range(section.begin, section.end, SPAN_BYTES)

        def search(begins: range) -> bool:
            for begin in begins:
                end = min(begin + SPAN_BYTES, section.end)
                if found(section.data, max(section.begin, begin - 64), end):
                    return True
                evict_pages(section.data, begin, end)
            return False

        jobs = [self._lanes.submit(f"search {i}", partial(search, ranges[i::n])) for i in range(n)]
        results: list[bool] = [self._lanes.result(job) for job in jobs]
        return any(results)

    @cached_property
    def _prints_unknown_uses(self) -> bool:
        """Whether the used values may mark the uses of a value as unknown."""
        return not self._uses_in_allocations and any(
            self._search(section, _lines.uses_unknown) for section in self.sections(USED)
        )

    @cached_property
    def _unknown_uses(self) -> Ints | None:
        if not self.sections(USED):
            return np.empty(0, np.int64) if self._uses_in_allocations else None
        ids = [np.empty(0, np.int64)]
        for section in self.sections(USED) if self._prints_unknown_uses else ():
            for batch in self._batches(SECTIONS[USED], section):
                records = batch.tables["records"]
                ids.append(records["value_id"][records["uses_known"] == 0])
        return np.unique(np.concatenate(ids))

    def unknown_uses(self) -> Ints | None:
        return self._unknown_uses
