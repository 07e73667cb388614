"""Diagnostics of a dump, and the text that was not parsed into any column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _lines, _unknown, _values, errors, schema
from .._column import Names
from .arrays import Ints, TextParts, codes, distinct_of, flags, ints, texts
from .arrow import text_arrays
from .batch import File, Section
from .interners import fixed_dictionary
from .tables import Row

MAX_ROWS = 1000
"""Maximum number of rows for diagnostics of one code in one file; an additional row counts the rest."""

UNKNOWN_LINE = _lines.CODES.index("unknown_line")


class Diagnostic(NamedTuple):
    """A diagnostic whose line number has not been computed yet."""

    file: File
    offset: int | None
    section: str
    code: str
    wanted: str
    severity: str = "warning"


@dataclass(eq=False, repr=False)
class _UnknownField:
    """One kind of unknown field in a file."""

    word: str
    section: str
    first_offset: int
    count: int = 0


class _UnknownText(NamedTuple):
    """Text of one section that was not parsed."""

    ordinal: int
    section: str
    tables: tuple[str, ...]
    rows: Ints
    """(index in `tables` or -1, row, begin, end); for whole lines, of which there may be many, only their begins."""

    def spans(self, file: File) -> Ints:
        """Return the rows in full."""
        if self.rows.ndim == 2:
            return self.rows
        ends = ints(_unknown.line_ends(file.text.data, self.rows))
        return np.column_stack([np.full_like(ends, -1), np.zeros_like(ends), self.rows, ends])


class Diagnostics:
    """Collects diagnostics and unknown text while a dump is read."""

    def __init__(self) -> None:
        self._items: dict[tuple[int, str, str], dict[Diagnostic, None]] = {}
        """By file, section and code; at most MAX_ROWS of each."""
        self._overflow: dict[tuple[int, str, str], int] = {}
        self._files: dict[int, File] = {}
        self._unknown_fields: dict[tuple[int, str, str], _UnknownField] = {}
        self._unknown_text: list[_UnknownText] = []

    def clear(self) -> None:
        for collection in (self._items, self._overflow, self._files, self._unknown_fields, self._unknown_text):
            collection.clear()

    def save(self, files: Sequence[File]) -> Callable[[], None]:
        """Return a function that undoes what is added to the diagnostics of these files from now on."""
        items = {key: dict(rows) for key, rows in self._items.items()}
        fields = {key: replace(field) for key, field in self._unknown_fields.items()}
        overflow, text = dict(self._overflow), list(self._unknown_text)
        truncated = [file.truncated for file in files]

        def restore() -> None:
            self._items, self._unknown_fields, self._overflow, self._unknown_text = items, fields, overflow, text
            for file, was_truncated in zip(files, truncated, strict=True):
                file.truncated = was_truncated

        return restore

    # -- collecting ------------------------------------------------------------------------------

    def add(
        self, file: File, offset: int | None, section: str, code: str, wanted: str, severity: str = "warning"
    ) -> None:
        """Add a diagnostic, or only count it if there are already MAX_ROWS of its kind."""
        items = self._items.setdefault((file.ordinal, section, code), {})
        self._files[file.ordinal] = file
        if len(items) < MAX_ROWS:
            items[Diagnostic(file, offset, section, code, wanted, severity)] = None
        else:
            self.count(file, section, code, 1)

    def is_full(self, file: File, section: str, code: str) -> bool:
        """Return whether further diagnostics of this kind are only counted."""
        return len(self._items.get((file.ordinal, section, code), ())) >= MAX_ROWS

    def count(self, file: File, section: str, code: str, n: int) -> None:
        """Count diagnostics without adding rows for them."""
        key = file.ordinal, section, code
        self._overflow[key] = self._overflow.get(key, 0) + n

    def truncated(self, file: File, offset: int, section: str, wanted: str) -> None:
        """Mark a file as truncated, and add a diagnostic unless it was marked before."""
        if not file.truncated:
            self.add(file, offset, section, "truncated", wanted, "error")
        file.truncated = True

    def faults(self, section: Section, faults: Ints, unfinished: int = -1) -> None:
        """Add the faults of a scan. An unfinished record at the end of the file means that it is truncated."""
        if not len(faults):
            return
        file, unknown = section.file, faults[:, 0] == UNKNOWN_LINE
        if unfinished >= 0 and section.last and len(rows := np.flatnonzero(unknown & (faults[:, 1] == unfinished))):
            self.truncated(file, unfinished, section.kind, _lines.WANTED[faults[rows[0], 2]])
            faults, unknown = np.delete(faults, rows, 0), np.delete(unknown, rows)
        self.unknown_lines(file, section.kind, np.ascontiguousarray(faults[unknown, 1]))
        for code in distinct_of(np.ascontiguousarray(faults[:, 0])):
            self._faults_of_code(section, code, faults, np.flatnonzero(faults[:, 0] == code))

    def _faults_of_code(self, section: Section, code: int, faults: Ints, rows: Ints) -> None:
        file, name = section.file, _lines.CODES[code]
        if name == "not_utf8":
            file.features.add("not_utf8")
        # Sorted by offset, independent of the order of the scans. A line can have the same fault twice.
        offsets = faults[rows, 1]
        if not (offsets[1:] > offsets[:-1]).all():
            rows = rows[np.unique(faults[rows, 1:], axis=0, return_index=True)[1]]
        for offset, wanted in faults[rows[:MAX_ROWS], 1:].tolist():
            self.add(file, offset, section.kind, name, _lines.WANTED[wanted])
        if len(rows) > MAX_ROWS:
            self.count(file, section.kind, name, len(rows) - MAX_ROWS)

    def unknown_lines(self, file: File, section: str, offsets: Ints) -> None:
        """Keep whole lines that no rule explains."""
        if len(offsets):
            self._unknown_text.append(_UnknownText(file.ordinal, section, (), offsets))

    def unknown_fields(
        self, file: File, section: str, gaps: Ints, tables: tuple[str, ...], first_rows: Iterable[int]
    ) -> None:
        """Add unknown fields as (table, row, begin, end); rows count from the table's entry in `first_rows`."""
        self._files[file.ordinal] = file
        self._count_unknown_fields(file, section, gaps)
        shift = np.append(np.fromiter(first_rows, np.int64, len(tables)), 0)  # the last: text outside of tables
        rows = gaps.copy()
        rows[:, 1] += shift[gaps[:, 0]]
        self._unknown_text.append(_UnknownText(file.ordinal, section, tables, rows))

    def _count_unknown_fields(self, file: File, section: str, gaps: Ints) -> None:
        words = Names()
        kind = codes(_unknown.kinds(file.text.data, gaps, words))
        data, ends = words.export()
        names = np.split(flags(data), ints(ends)[:-1])
        distinct, first, counts = np.unique(kind, return_index=True, return_counts=True)
        for code, row, n in zip(distinct.tolist(), first.tolist(), counts.tolist(), strict=True):
            word, offset = bytes(names[code]).decode("utf-8", "backslashreplace"), int(gaps[row, 2])
            field = self._unknown_fields.setdefault(
                (file.ordinal, section, word), _UnknownField(word, section, offset)
            )
            field.first_offset, field.count = min(field.first_offset, offset), field.count + n

    # -- queries ---------------------------------------------------------------------------------

    @property
    def codes(self) -> set[str]:
        """The codes of all diagnostics."""
        return {code for _, _, code in self._items} | ({"unknown_field"} if self._unknown_fields else set())

    def has_unknown_lines(self, file: File, section: str) -> bool:
        """Return whether the section has lines that were not understood, which may contain what seems to be missing."""
        return (file.ordinal, section, "unknown_line") in self._items

    def rows(self) -> list[Row]:
        """Return the rows of the table `diagnostics` file by file, with line numbers."""
        diagnostics = [d for items in self._items.values() for d in items]
        diagnostics += [
            Diagnostic(self._files[ordinal], field.first_offset, section, "unknown_field", _wanted(field))
            for (ordinal, section, _), field in self._unknown_fields.items()
        ]
        rows: list[Row] = []
        for ordinal in sorted({d.file.ordinal for d in diagnostics}):
            rows += self._rows_of_file(ordinal, [d for d in diagnostics if d.file.ordinal == ordinal])
        return rows

    def _rows_of_file(self, ordinal: int, diagnostics: list[Diagnostic]) -> list[Row]:
        """Return the first MAX_ROWS diagnostics of each code, then rows that count the rest."""
        # A deterministic order, independent of the order of detection.
        diagnostics.sort(key=lambda d: (d.offset is None, d.offset or 0, d.section, d.code, d.wanted))
        shown: list[Diagnostic] = []
        counts: dict[str, int] = {}
        overflow = {(section, code): n for (o, section, code), n in self._overflow.items() if o == ordinal}
        for d in diagnostics:
            counts[d.code] = counts.get(d.code, 0) + 1
            if counts[d.code] <= MAX_ROWS:
                shown.append(d)
            else:
                overflow[d.section, d.code] = overflow.get((d.section, d.code), 0) + 1
        uri = diagnostics[0].file.text.uri
        rows = _with_positions(shown)
        for (section, code), n in sorted(overflow.items()):
            rows.append((uri, None, None, section, "more_diagnostics", "warning", f"{n:,} more of {code}", ""))
        return rows

    def unknown_table(self, files: Sequence[File]) -> pa.Table:
        """Return the table `unknown_text`."""
        of_files = [(file, [u for u in self._unknown_text if u.ordinal == file.ordinal]) for file in files]
        tables = [_unknown_of_file(file, unknown) for file, unknown in of_files if unknown]
        return pa.concat_tables(tables).unify_dictionaries() if tables else schema.UNKNOWN.empty


def _with_positions(diagnostics: list[Diagnostic]) -> list[Row]:
    """Return the rows of the diagnostics of one file, which must be sorted by offset."""
    text = diagnostics[0].file.text
    positions = iter(text.positions([d.offset for d in diagnostics if d.offset is not None]))
    rows: list[Row] = []
    for d in diagnostics:
        line, offset, excerpt = None, None, ""
        if d.offset is not None:
            line, offset = next(positions)
            excerpt = errors.excerpt(bytes(text.data[d.offset : d.offset + errors.EXCERPT + 4]))
        rows.append((text.uri, line, offset, d.section, d.code, d.severity, d.wanted, excerpt))
    return rows


def _unknown_of_file(file: File, unknown: list[_UnknownText]) -> pa.Table:
    unknown = [u._replace(rows=u.spans(file)) for u in unknown]
    rows = np.concatenate([u.rows for u in unknown])
    sections = fixed_dictionary(*(u.section for u in unknown))
    section = sections.codes(np.repeat(np.arange(len(unknown)), [len(u.rows) for u in unknown]))
    tables = fixed_dictionary(*(name for u in unknown for name in (*u.tables, None)))
    ends = np.cumsum([len(u.tables) + 1 for u in unknown])  # the last of each is for lines outside of tables
    begins = ends - [len(u.tables) + 1 for u in unknown]
    table = tables.codes(np.concatenate([
        np.where(u.rows[:, 0] < 0, end - 1, begin + u.rows[:, 0])
        for u, begin, end in zip(unknown, begins.tolist(), ends.tolist(), strict=True)
    ]))  # fmt: skip
    order = np.argsort(rows[:, 2], kind="stable")
    rows, section, table = rows[order], section[order], table[order]
    begin, end = (np.ascontiguousarray(rows[:, i]) for i in (2, 3))
    text: TextParts = texts(_values.texts(file.text.data, begin, end))
    columns: dict[str, Any] = {
        "file": fixed_dictionary(file.text.uri).arrays(np.zeros(len(rows), np.int32))[0],
        "offset": pa.array(file.text.file_offsets(begin)),
        "section": sections.arrays(section)[0],
        "table": tables.arrays(table)[0],
        "row": pa.array(rows[:, 1], mask=rows[:, 0] < 0),
        "text": pa.chunked_array(text_arrays(text), pa.string()),
    }
    return pa.table(columns).cast(schema.UNKNOWN.arrow)


def _wanted(field: _UnknownField) -> str:
    times = "once" if field.count == 1 else f"{field.count:,} times"
    return f"the fields that this version knows, not {field.word!r} ({times})"
