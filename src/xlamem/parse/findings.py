"""What reading a dump found out about its text: diagnostics, and the text that no field of a table holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _gaps, _values, errors, schema
from .._column import Names
from .arrow import Ints, Row, TextParts, codes, flags, ints, text_arrays, texts
from .section import File

MOST = 1000
"""Diagnostics of one code and file that are rows; one more row says how many there are besides."""


class Finding(NamedTuple):
    """A diagnostic before its line is counted."""

    file: File
    offset: int | None
    section: str
    code: str
    wanted: str
    severity: str = "warning"


@dataclass
class _Kind:
    """A kind of unknown field in a file."""

    word: str
    section: str
    first: int
    count: int = 0


class Findings:
    """Diagnostics and unknown text of a dump, in the order in which they were found."""

    def __init__(self) -> None:
        self.items: dict[tuple[int, str, str], dict[Finding, None]] = {}
        """By file, section and code, at most MOST of each."""
        self.more: dict[tuple[int, str, str], int] = {}
        """How many there were besides."""
        self.files: dict[int, File] = {}
        self.kinds: dict[tuple[int, str, str], _Kind] = {}
        self.unknown: list[tuple[int, str, tuple[str, ...], npt.NDArray[np.int64]]] = []
        """Ordinal of the file, section, names of tables, and rows (table, row, begin, end) of unknown text."""

    def clear(self) -> None:
        for held in (self.items, self.more, self.files, self.kinds, self.unknown):
            held.clear()

    def find(
        self, file: File, offset: int | None, section: str, code: str, wanted: str, severity: str = "warning"
    ) -> None:
        """Note a diagnostic."""
        key = file.ordinal, section, code
        found = self.items.setdefault(key, {})
        self.files[file.ordinal] = file
        if len(found) < MOST:
            found[Finding(file, offset, section, code, wanted, severity)] = None
        else:
            self.more[key] = self.more.get(key, 0) + 1

    def full(self, file: File, section: str, code: str) -> bool:
        """Whether a further diagnostic of this kind would only be counted."""
        return len(self.items.get((file.ordinal, section, code), ())) >= MOST

    def count(self, file: File, section: str, code: str, n: int) -> None:
        """Count diagnostics that `full` says are no rows."""
        key = file.ordinal, section, code
        self.more[key] = self.more.get(key, 0) + n

    def cut(self, file: File, offset: int, section: str, wanted: str) -> None:
        """The file is truncated; the first rule that tells says where."""
        if not file.cut:
            self.find(file, offset, section, "truncated", wanted, "error")
        file.cut = True

    def lines(self, file: File, section: str, offsets: Ints) -> None:
        """Keep whole lines that no rule explains."""
        if len(offsets):
            ends = ints(_gaps.line_ends(file.text.data, offsets))
            rows = np.column_stack([np.full_like(offsets, -1), np.zeros_like(offsets), offsets, ends])
            self.unknown.append((file.ordinal, section, (), rows))

    def gaps(self, file: File, section: str, gaps: Ints, tables: tuple[str, ...], first: Iterable[int]) -> None:
        """Keep unknown fields of lines that were read: rows (table, row, begin, end); `first`: first row per table."""
        data, words = file.text.data, Names()
        self.files[file.ordinal] = file
        kind = codes(_gaps.kinds(data, gaps, words))
        texts_, ends = words.export()
        names = np.split(flags(texts_), ints(ends)[:-1])
        distinct, at, counts = np.unique(kind, return_index=True, return_counts=True)
        for code, i, n in zip(distinct.tolist(), at.tolist(), counts.tolist(), strict=True):
            word = bytes(names[code]).decode("utf-8", "backslashreplace")
            key, begin = (file.ordinal, section, word), int(gaps[i, 2])
            known = self.kinds.setdefault(key, _Kind(word, section, begin))
            known.first, known.count = min(known.first, begin), known.count + n
        shift = np.append(np.fromiter(first, np.int64, len(tables)), 0)  # the last one: of no table
        rows = gaps.copy()
        rows[:, 1] += shift[gaps[:, 0]]
        self.unknown.append((file.ordinal, section, tables, rows))

    # -- tables ----------------------------------------------------------------------------------

    @property
    def codes(self) -> set[str]:
        """The codes of all diagnostics."""
        return {code for _, _, code in self.items} | ({"unknown_field"} if self.kinds else set())

    def diagnostics(self) -> list[Row]:
        """Rows of the table, in the order of the files, with their lines counted now."""
        every = [finding for found in self.items.values() for finding in found]
        every += [
            Finding(self.files[ordinal], kind.first, section, "unknown_field", _wanted(kind))
            for (ordinal, section, _), kind in self.kinds.items()
        ]
        rows: list[Row] = []
        for ordinal in sorted({f.file.ordinal for f in every}):
            rows += self._of_file(ordinal, [f for f in every if f.file.ordinal == ordinal])
        return rows

    def _of_file(self, ordinal: int, found: list[Finding]) -> list[Row]:
        """The first MOST of each code, and how many more there are."""
        # Of one place in an order that does not depend on which was found first.
        found.sort(key=lambda f: (f.offset is None, f.offset or 0, f.section, f.code, f.wanted))
        shown: list[Finding] = []
        counts: dict[str, int] = {}
        more = {(section, code): n for (o, section, code), n in self.more.items() if o == ordinal}
        for f in found:
            counts[f.code] = counts.get(f.code, 0) + 1
            if counts[f.code] <= MOST:
                shown.append(f)
            else:
                more[f.section, f.code] = more.get((f.section, f.code), 0) + 1
        text = found[0].file.text
        places = iter(text.positions([f.offset for f in shown if f.offset is not None]))
        rows: list[Row] = []
        for f in shown:
            line, offset, excerpt = None, None, ""
            if f.offset is not None:
                line, offset = next(places)
                excerpt = errors.excerpt(bytes(text.data[f.offset : f.offset + errors.EXCERPT + 4]))
            rows.append((text.uri, line, offset, f.section, f.code, f.severity, f.wanted, excerpt))
        for (section, code), n in sorted(more.items()):
            rows.append((text.uri, None, None, section, "more_diagnostics", "warning", f"{n:,} more of {code}", ""))
        return rows

    def unknown_table(self, files: Sequence[File]) -> pa.Table:
        """The table `unknown_text`."""
        spec = schema.UNKNOWN
        if not self.unknown:
            return spec.empty
        pieces = []
        for file in files:
            parts = [(s, t, r) for o, s, t, r in self.unknown if o == file.ordinal]
            if not parts:
                continue
            rows = np.concatenate([r for *_, r in parts])
            section = np.concatenate([np.full(len(r), s) for s, _, r in parts])
            names = np.concatenate([np.array([*t, None], object)[r[:, 0]] for _, t, r in parts])
            order = np.argsort(rows[:, 2], kind="stable")
            rows, section, names = rows[order], section[order], names[order]
            begins, ends = (np.ascontiguousarray(rows[:, i]) for i in (2, 3))
            text: TextParts = texts(_values.texts(file.text.data, begins, ends))
            columns: dict[str, Any] = {
                "file": pa.array([file.text.uri] * len(rows), pa.string()),
                "offset": pa.array(file.text.in_file(begins)),
                "section": pa.array(section.tolist(), pa.string()),
                "table": pa.array(names.tolist(), pa.string()),
                "row": pa.array(rows[:, 1], mask=rows[:, 0] < 0),
                "text": pa.chunked_array(text_arrays(text), pa.string()),
            }
            pieces.append(pa.table(columns).cast(spec.arrow))
        return pa.concat_tables(pieces).unify_dictionaries()


def _wanted(kind: _Kind) -> str:
    times = "once" if kind.count == 1 else f"{kind.count:,} times"
    return f"the fields that this version knows, not {kind.word!r} ({times})"
