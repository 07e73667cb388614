"""Reads a dump into memory one kind of section at a time; large sections are scanned on several threads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from .. import _lines, schema
from .._column import Names
from ..input.files import evict_pages
from ..input.find import Source
from .arrays import Ints, joined, numbers_of
from .batch import Batch, Span
from .by_code import CodeMatcher
from .checks import check
from .interners import Interners
from .reader import Reader, any_tiled
from .recode import Scanned, merge
from .sections import (
    ASSIGNMENT,
    HLO,
    LIVE,
    SECTION_OF,
    SECTIONS,
    USED,
    SectionReader,
    make_chunks,
    make_table,
    needed_sections,
    source_section,
)
from .stores import FullStore, Store
from .tables import Chunk
from .threads import Task, default_threads

SPAN_BYTES = 4 << 20
"""Minimum number of bytes that one thread scans."""

MAX_SPAN_BYTES = 16 << 20
"""Maximum number of these bytes. Spans of one length can take 1 to 4 times as long, so there must be several."""

EVICT_BYTES = 256 << 20
"""Sections with more bytes are evicted from memory while they are scanned. That takes a tenth of the time of a scan."""

LAST_SPANS = 3
"""Number of spans at the end of a section that the workers scan first."""

AHEAD_BYTES = 512 << 20
"""Maximum number of bytes that are scanned before a table of their section is requested."""

READING_ORDER = sorted(SECTIONS, key=USED.__eq__)
"""Order in which sections are read. Used values are last: they take longest, and other sections share their names."""

NAMING = (LIVE, ASSIGNMENT)
"""The sections that share most of their names with the used values, and are scanned before them: first the one with
more names, because adding names to others takes longer than taking them all."""


class WholeReader(Reader):
    """Keeps all batches; tables are assembled on first use."""

    def __init__(
        self,
        source: Source,
        *,
        text: bool,
        threads: int | None,
        tables: Collection[str] = frozenset(schema.TABLES),
        interners: Interners | None = None,
    ) -> None:
        """`tables` are those that may be requested. Dumps that are read one after the other may share interners."""
        self.threads = max(1, default_threads() if threads is None else threads)
        super().__init__(source, text=text, threads=self.threads)
        self._kinds = {SECTION_OF[t] for t in tables if t in SECTION_OF}
        self.interners = Interners() if interners is None else interners
        self.tables: dict[str, pa.Table] = {}
        self.batches: dict[str, list[Batch]] = {}
        """Batches by kind of section, for the sections that were read."""
        self._stores: dict[str, Store] = {kind: FullStore(()) for kind in SECTIONS}
        self._matcher = CodeMatcher(self, self.interners)
        self._reading: set[str] = set()
        self._is_ahead = False
        """Whether sections are queued before their tables are requested."""
        self._queued: dict[str, tuple[list[Span], list[Task[Scanned]]]] = {}
        """Sections that are being scanned."""
        self._scanned: dict[str, list[Batch]] = {}
        """Sections that were scanned before they are read."""
        self._span_bytes = 0
        self._unknown_uses: Ints | None = None
        self._tiled: bool | None = None
        self._checked = False

    # -- tables ----------------------------------------------------------------------------------

    def table(self, name: str) -> pa.Table:
        """Return a table; its section is tokenised on first use."""
        with self.lock:
            if name not in self.tables:
                self.tables[name] = make_table(self, name, self._batches_of(name))
            return self.tables[name]

    def chunks(self, name: str) -> Sequence[Chunk]:
        """Return the columns of a table, batch by batch."""
        return make_chunks(self, name, self._batches_of(name))

    def numbers(self, name: str, *columns: str) -> list[Ints]:
        """Return integer columns of a table, null as `NULL`, without assembling the table."""
        with self.lock:
            batches = [b for b in self._batches_of(name) if b.rows(name)]
            if any(column not in b.tables[name] for b in batches for column in columns):
                return [numbers_of(self.table(name)[c]) for c in columns]
            return [joined([b.tables[name][c] for b in batches], np.int64) for c in columns]

    def rows(self, name: str) -> int:
        """Return the number of rows of a table after reading its section."""
        return sum(b.rows(name) for b in self._batches_of(name))

    def _batches_of(self, table: str) -> list[Batch]:
        with self.lock:  # another thread may be completing these batches
            kind = source_section(self, table)
            if kind not in self.batches:
                self.read(kind)
            return self.batches[kind]

    # -- reading ---------------------------------------------------------------------------------

    def read_and_check(self, tables: Iterable[str]) -> None:
        """Read the sections of these tables and run the cross-checks."""
        kinds = {SECTION_OF[t] for t in tables if t in SECTION_OF}
        self._scan_ahead(kinds)
        for kind in READING_ORDER:
            if kind in kinds:
                self.read(kind)
        if not self._checked:  # already True if an earlier call was interrupted after the checks
            undo = self.diagnostics.save(self.files)
            try:
                check(self)
            except BaseException:
                undo()
                raise
            self._checked = True
            self.release_checked()

    def read(self, kind: str) -> None:
        """Read the sections of one kind, and the sections that they depend on."""
        with self.lock:
            if kind in self.batches or kind in self._reading:
                return
            self._reading.add(kind)
            try:
                for needed in needed_sections(self, [kind]):
                    if needed != kind:
                        self.read(needed)
                self._complete(kind, self._scan(kind))
            finally:
                self._reading.discard(kind)

    def _complete(self, kind: str, batches: list[Batch]) -> None:
        reader = SECTIONS[kind]
        if any(a.span.section is b.span.section and not reader.continues(a, b) for a, b in pairwise(batches)):
            # In corrupt text, spans may begin in the wrong list: scan each section as a single span.
            sections = dict.fromkeys(b.span.section for b in batches)
            batches = self._scan_here(reader, [Span(s, s.begin, s.end) for s in sections])
        self.reset_counts(kind)  # counts from an interrupted attempt
        self.batches[kind], self._stores[kind] = batches, FullStore(batches)
        undo = self.diagnostics.save(self.files)
        try:
            reader.complete(self, batches)
            for batch in batches:
                self.note(batch)
        except BaseException:  # interrupted: it will be read again
            del self.batches[kind]
            undo()
            raise
        if kind == USED:
            ids = [b.tables["records"] for b in batches]
            self._unknown_uses = joined([r["value_id"][r["uses_known"] == 0] for r in ids], np.int64)

    def _scan(self, kind: str) -> list[Batch]:
        """Scan a kind of section; the codes of the batches refer to the dump's interners."""
        if kind in self._scanned:
            return self._scanned.pop(kind)
        reader = SECTIONS[kind]
        if kind not in self._queued:
            spans = self._spans(reader)
            if self.threads == 1 or len(spans) < 2:
                return self._scan_here(reader, spans)
            self._queue(kind, spans)
        _, tasks = self._queued.pop(kind)
        batches = merge(self._pool, self.interners, reader.interners, self._pool.results(tasks))
        return [batch.load(self.interners) for batch in batches]

    def _scan_here(self, reader: SectionReader, spans: Sequence[Span]) -> list[Batch]:
        names = self.interners.names(reader.interners)
        if names:
            names[0].expect(sum(s.end - s.begin for s in spans) // reader.bytes_per_name)
        return [reader.scan_unchanged(span, names).load(self.interners) for span in spans]

    def _spans(self, reader: SectionReader) -> list[Span]:
        """Split sections into spans; with one thread, each section is one span, which makes repeats cheap to detect."""
        spans: list[Span] = []
        for section in reader.sections(self):
            begin, end = section.begin, section.end
            several = list(reader.spans(section, self._span_size)) if self.threads > 1 and begin < end else []
            spans += several or [Span(section, begin, end)]
        return spans

    def _span_size(self, left: int) -> int:
        """Return the size of the next span, given how much of the section is left."""
        if self._span_bytes:
            size = min(max(SPAN_BYTES, self._span_bytes), MAX_SPAN_BYTES)
            return min(left // max(1, round(left / size)) + 1, left)
        # The last spans are small, so that the threads end at the same time, however long each of them takes.
        size = min(max(SPAN_BYTES, left // (2 * self.threads)), MAX_SPAN_BYTES)
        return left if left < size + SPAN_BYTES // 2 else size

    # -- threads ---------------------------------------------------------------------------------

    def read_ahead(self, table: str) -> None:
        """Queue the other sections when a table of a large one is requested, because most users request several.

        What is read immediately does not depend on the number of threads, so that codes do not.
        """
        if self._is_ahead or source_section(self, table) not in (*NAMING, USED):
            return
        with self.lock:
            if not self._is_ahead and self._bytes(self._kinds - {HLO}) <= AHEAD_BYTES:
                self._is_ahead = True
                self._scan_ahead(self._kinds)
                for kind in NAMING:
                    if kind in self._kinds:
                        self.read(kind)

    def _scan_ahead(self, kinds: Collection[str]) -> None:
        """Scan the sections that share names, and queue the others if there is enough text for several threads."""
        with self.lock:
            wanted = {*needed_sections(self, kinds)} & {*kinds, ASSIGNMENT}
            todo = [k for k in READING_ORDER if k in wanted - {HLO, *self.batches, *self._queued, *self._scanned}]
            is_large = self.threads > 1 and self._bytes(todo) > 2 * SPAN_BYTES
            if is_large:
                self._queue_sections([k for k in todo if k != USED])
            self._intern([k for k in NAMING if k in todo])
            if is_large and USED in todo:
                self._queue(USED, self._spans(SECTIONS[USED]))

    def _queue_sections(self, kinds: Sequence[str]) -> None:
        """Queue sections in spans of similar length."""
        self._span_bytes = self._bytes(kinds) // self.threads + 1
        try:
            for kind in kinds:
                self._queue(kind, self._spans(SECTIONS[kind]))
        finally:
            self._span_bytes = 0

    def _intern(self, kinds: Sequence[str]) -> None:
        """Scan these sections and intern their names, in this order whatever the number of threads."""
        self._pool.run([task for kind in kinds if kind in self._queued for task in self._queued[kind][1]])
        for kind in kinds:
            self._scanned[kind] = self._scan(kind)

    def _bytes(self, kinds: Collection[str]) -> int:
        return sum(s.end - s.begin for kind in kinds for s in self.sections(kind))

    def _queue(self, kind: str, spans: list[Span]) -> None:
        """Queue the scans of spans; each scan has its own native interners on top of a snapshot of the dump's."""
        reader = SECTIONS[kind]
        evicts = not self.with_text and self._bytes([kind]) > EVICT_BYTES  # the job must not refer to `self`
        snapshots = [names.snapshot() for names in self.interners.names(reader.interners)]

        def scan(span: Span) -> Scanned:
            span_names = [Names(snapshot) for snapshot in snapshots]
            if span_names and not span_names[0].n_base:
                span_names[0].expect((span.end - span.begin) // reader.bytes_per_name)
            batch = reader.scan_unchanged(span, span_names)
            if evicts:
                evict_pages(span.section.data, span.begin, span.end)
            return batch, span_names

        if spans:
            # Workers take the last spans first, the caller the first ones. Those at the end often take longest; the
            # spans before them, which are then left, are small, so that the threads end at the same time.
            last = [self._pool.submit(partial(scan, span)) for span in spans[-LAST_SPANS:]]
            first = [self._pool.submit(partial(scan, span)) for span in spans[:-LAST_SPANS]]
            self._queued[kind] = spans, first + last

    # -- for sections and checks ---------------------------------------------------------

    @property
    def stores(self) -> Mapping[str, Store]:
        return self._stores

    @property
    def matcher(self) -> CodeMatcher:
        return self._matcher

    @property
    def labels(self) -> Interners:
        return self.interners

    def was_read(self, kind: str) -> bool:
        return kind in self.batches

    @property
    def has_tiles(self) -> bool:
        if self._tiled is None:
            with self.lock:
                kind, table = (ASSIGNMENT, "values") if self.sections(ASSIGNMENT) else (USED, "instructions")
                self.read(kind)
                self._tiled = any_tiled(self.batches[kind], table)
        return self._tiled

    def unknown_uses(self) -> Ints | None:
        used = self.sections(USED)
        if any("e1_values" in s.file.features for s in self.sections(ASSIGNMENT)):
            return np.empty(0, np.int64)
        if not used:
            return None
        # Search for the rare line if no table of the section may be requested.
        if USED in self._kinds or any(
            _lines.uses_unknown(s.data, max(0, s.begin - 1), s.end) for s in used
        ):
            self.read(USED)
            return self._unknown_uses
        return np.empty(0, np.int64)

    def release_checked(self) -> None:
        """Release columns that only the cross-checks need."""
        self._matcher.release()
        for batch in self.batches.get(USED, ()) if self.assignment is not None else ():
            batch.tables.pop("records", None)
            for column in ("before",) if self.with_text else ("before", "text_begin", "text_end"):
                batch.tables["instructions"].pop(column, None)

