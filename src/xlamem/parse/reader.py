"""State that all drivers share: files, sections, diagnostics, and the results of the batches read so far."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import _unknown, schema
from ..errors import DumpError, UsageError
from ..input import names
from ..input.files import check_unchanged
from ..input.find import Source
from .arrays import Codes, Ints, texts
from .batch import Batch, File, Section
from .diagnostics import Diagnostics
from .interners import Interners
from .matcher import Matcher
from .outline import outline
from .sections import ASSIGNMENT, LIVE, source_section
from .sections.base import LiveSummary
from .stores import Store
from .threads import ThreadPool


class Reader(ABC):
    """A dump that is being read; implements `sections.Context`."""

    def __init__(self, source: Source, *, text: bool, threads: int = 1) -> None:
        self.source = source
        self.with_text = text
        self.lock = threading.RLock()
        self._pool = ThreadPool(threads)
        self.diagnostics = Diagnostics()
        self.counts: dict[tuple[str, str], int] = {}
        self.colors: set[int] = set()
        self.live = LiveSummary()
        self.reports: dict[Section, dict[str, Any]] = {}
        self.expects_tree = False
        self.module_name: bytes | None = None
        self._files: list[File] | None = None
        self._sections: dict[str, list[Section]] = {}

    # -- files and sections ----------------------------------------------------------------------

    @property
    def files(self) -> list[File]:
        """The members, outlined on first use."""
        if self._files is None:
            with self.lock:
                if self._files is None:
                    self._files = self._outline_files()
        return self._files

    def _outline_files(self) -> list[File]:
        self.diagnostics.clear()
        files = [outline(m, i, self.diagnostics, self._pool) for i, m in enumerate(self.source.members)]
        if sum(s.kind == ASSIGNMENT for f in files for s in f.sections) > 1:
            raise UsageError(f"{files[0].text.uri} holds several modules: choose one with module=…")
        if not any(_is_readable(f) for f in files):
            raise DumpError(files[0].text.uri, "a section of a memory dump, or HLO text; there is none")
        return files

    def sections(self, kind: str) -> Sequence[Section]:
        """Return the sections of one kind, in the order of the files."""
        if kind not in self._sections:
            self._sections[kind] = [s for f in self.files for s in f.sections if s.kind == kind]
        return self._sections[kind]

    @property
    def assignment(self) -> Section | None:
        """The section of the allocations."""
        return next(iter(self.sections(ASSIGNMENT)), None)

    @property
    def schedule_length(self) -> int | None:
        """Steps of the schedule as printed; None without live ranges."""
        return next((s.steps for s in self.sections(LIVE) if not s.unavailable), None)

    # -- batches ---------------------------------------------------------------------------------

    def note(self, batch: Batch) -> None:
        """Record the unknown fields, rows per table, features and faults of a batch."""
        section = batch.span.section
        check_unchanged(section.data, section.file.text.uri)
        if len(batch.gaps):
            self._add_unknown_fields(batch)
        for table in batch.tables:
            key = section.kind, table
            self.counts[key] = self.counts.get(key, 0) + batch.rows(table)
        section.file.features |= batch.features
        self.diagnostics.faults(section, batch.faults, batch.unfinished if batch.span.ends_section else -1)

    def _add_unknown_fields(self, batch: Batch) -> None:
        """Report unknown fields and store them in the column `attributes` of their tables."""
        section = batch.span.section
        first_rows = [self.counts.get((section.kind, t), 0) for t in batch.gap_tables]
        self.diagnostics.unknown_fields(section.file, section.kind, batch.gaps, batch.gap_tables, first_rows)
        for i, table in enumerate(batch.gap_tables):
            gaps = batch.gaps[batch.gaps[:, 0] == i]
            if len(gaps) and "attributes" in schema.TABLES[table].names:
                batch.tables[table]["attributes"] = texts(_unknown.attributes(section.data, gaps, batch.rows(table)))

    def reset_counts(self, kind: str) -> None:
        """Reset the row counts of a kind of section."""
        for key in [key for key in self.counts if key[0] == kind]:
            del self.counts[key]

    def count(self, table: str) -> int | None:
        """Return the number of rows of a table; None if its section was not read."""
        kind = source_section(self, table)
        return self.counts.get((kind, table), 0) if self.was_read(kind) else None

    # -- implemented by the drivers -----------------------------------------------------------------

    @property
    def platform(self) -> str | None:
        """The platform in the file name, or else tpu if the shapes have tiled layouts."""
        return self.source.platform or ("tpu" if self.has_tiles else None)

    @property
    @abstractmethod
    def has_tiles(self) -> bool:
        """Whether a shape in the allocations, or else in the used values, has a tiled layout."""

    @property
    @abstractmethod
    def stores(self) -> Mapping[str, Store]:
        """The columns of the batches, by kind of section."""

    @property
    @abstractmethod
    def matcher(self) -> Matcher:
        """Connects rows of different spans."""

    @property
    @abstractmethod
    def labels(self) -> Interners:
        """The interners of the memory-usage report."""

    @abstractmethod
    def unknown_uses(self) -> Ints | None:
        """Return the ids of the values whose uses the dump does not print; None if it prints no uses at all."""

    @abstractmethod
    def was_read(self, kind: str) -> bool:
        """Return whether the sections of this kind were read."""


def any_tiled(batches: Iterable[Batch], table: str) -> bool:
    """Return whether a shape in these rows of `values` or `instructions` has a tiled layout."""
    return any(_is_tiled(batch.interners, batch.tables[table]["shape"]) for batch in batches)


def _is_tiled(interners: Interners, shapes: Codes) -> bool:
    return bool(interners.tiled_shapes()[shapes[shapes >= 0]].any())


def _is_readable(file: File) -> bool:
    if file.role == "hlo":
        return bytes(file.text.data[:9]) == b"HloModule"
    return bool(file.sections) and file.role not in names.FLAG_EXTENSIONS
