"""From the sections of a dump to its tables: scan them, assemble the columns."""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _allocations, _gaps, _hlo, _lines, _liveness, _rules, _shapes, _usage, _values, schema
from .._column import Names, in_order, take
from ..errors import DumpError, UsageError
from ..input.files import give_back
from ..input.find import Source
from .arrow import (
    NULL,
    POOL_OF,
    Bools,
    Codes,
    Ints,
    Made,
    Pool,
    Rows,
    Value,
    assembled,
    codes,
    distinct_of,
    ints,
    joined,
    labels,
    numbers_of,
    texts,
)
from .findings import MOST, Findings
from .merge import Found, merged
from .outline import outline
from .repeats import drop_repeats, without
from .section import File, Section
from .threads import Crew, Task

UNKNOWN_LINE = _lines.CODES.index("unknown_line")

SPAN = 8 << 20
"""Fewest bytes that are scanned as one piece; a section is cut only where a record begins."""


Chunk = dict[str, Any]
"""Columns of one table from one span: int64 and int32 arrays, bytes, or TextParts."""

Job = Callable[[Sequence[Names]], Any]
"""The scan of one span, given the pools for its names: first of what it returns are the Columns by table."""


class Span(NamedTuple):
    """A piece of a section that is scanned as one."""

    section: Section
    begin: int
    end: int
    scan: Job


Scans = list[Task[Found]]
"""What scanning each of several spans gives, with the pools of its own names."""


@dataclass
class Raw:
    """What the scans of one kind of section gave: a chunk per span, codes already those of the dump."""

    chunks: dict[str, list[Chunk]]
    section: list[Section]
    """The section of each span."""

    def ints(self, name: str, column: str) -> Ints:
        return joined([c[column] for c in self.chunks[name]], np.int64)

    def codes(self, name: str, column: str) -> Codes:
        return joined([c[column] for c in self.chunks[name]], np.int32)

    def packed(self, name: str, column: str) -> npt.NDArray[np.signedinteger[Any]]:
        """Integers in as few bytes as they are kept in."""
        return self.ints(name, column)

    def flags(self, name: str, column: str) -> Bools:
        return joined([c[column] for c in self.chunks[name]], np.uint8)

    def parts(self, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of integers chunk by chunk, each time with the number of the first row."""
        first = 0
        for chunk in self.chunks[name]:
            yield first, *(chunk[c] for c in columns)
            first += len(chunk[columns[0]])


class Maker(NamedTuple):
    """A table that was scanned: how many rows it has, and what it is to be assembled of when it is asked for.

    What it holds must not refer to the Reading: large buffers in a cycle would wait for the garbage collector.
    """

    rows: int
    made: Callable[[Reading], Sequence[Made]]

    def table(self, reading: Reading, name: str) -> pa.Table:
        return assembled(name, self.made(reading)) if self.rows else schema.TABLES[name].empty


class Part(NamedTuple):
    """A section of the dump: which tables it fills, and how."""

    tables: tuple[str, ...]
    pools: tuple[str, ...]
    """Whose codes the columns hold, in the order in which the scan wants them."""
    spans: Callable[[Reading], list[Span]]
    nothing: Job
    """The scan of no text at all, for the columns that it gives."""
    read: Callable[[Reading, list[Span], list[Any]], dict[str, Maker]]
    bytes_per_name: int = 1 << 62
    """Of the first pool, to make room for its names; the others see to it themselves."""


class Reading:
    """The state of reading one dump: files, sections, pools of names, tables read so far."""

    def __init__(self, source: Source, *, text: bool, threads: int | None) -> None:
        self.source = source
        self.want_text = text
        self.threads = max(1, min(os.cpu_count() or 1, 4) if threads is None else threads)
        self.lock = threading.RLock()
        self.pools = {name: Pool() for name in (*_values.POOLS, "element_type", "label", "kind")}
        self.findings = Findings()
        self.find, self.cut = self.findings.find, self.findings.cut
        self.tables: dict[str, pa.Table] = {}
        self.makers: dict[str, Maker] = {}
        self.ahead: dict[str, tuple[list[Span], Scans]] = {}
        """Parts that are being scanned, but were not read yet."""
        self.crew: Crew | None = None
        """The threads at work, if there are any."""
        self.scanned: dict[str, tuple[list[Span], list[Any]]] = {}
        """Parts that were scanned, but were not read yet."""
        self.planned: set[str] = set()
        """Parts that are sure to be read."""
        self._piece = 0
        self.raw: dict[str, Raw] = {}
        self.facts: dict[str, Any] = {}
        """What the checks of verify.py need besides the tables."""
        self.rows_before: dict[str, int] = {}
        """By table: rows of the spans that were read so far."""
        self._files: list[File] | None = None
        self._sizes: tuple[Pool, Codes, Ints] | None = None

    # -- files and sections ----------------------------------------------------------------------

    @property
    def files(self) -> list[File]:
        if self._files is not None:  # asked for again and again
            return self._files
        with self.lock:
            if self._files is None:
                self.findings.clear()
                files = [outline(m, i, self.findings) for i, m in enumerate(self.source.members)]
                if sum(s.kind == "allocations" for f in files for s in f.sections) > 1:
                    raise UsageError(f"{files[0].text.uri} holds several modules: choose one with module=…")
                if not any(f.sections or (f.role == "hlo" and bytes(f.text.data[:9]) == b"HloModule") for f in files):
                    raise DumpError(files[0].text.uri, "a section of a memory dump, or HLO text; there is none")
                self._files = files
            return self._files

    def sections(self, kind: str) -> list[Section]:
        return [s for f in self.files for s in f.sections if s.kind == kind]

    # -- diagnostics -----------------------------------------------------------------------------

    def _faults(self, section: Section, column: Any, open_at: int = -1) -> None:
        """Native faults to findings; an unfinished record at the very end of the file is a truncation."""
        if not len(column):
            return
        faults, file = ints(column).reshape(-1, 3), section.file
        lines = faults[:, 0] == UNKNOWN_LINE
        if open_at >= 0 and section.last and len(at := np.flatnonzero(lines & (faults[:, 1] == open_at))):
            self.cut(file, open_at, section.kind, _lines.WANTED[faults[at[0], 2]])
            faults, lines = np.delete(faults, at, 0), np.delete(lines, at)
        self.findings.lines(file, section.kind, np.ascontiguousarray(faults[lines, 1]))
        for code in distinct_of(np.ascontiguousarray(faults[:, 0])):
            name = _lines.CODES[code]
            if name == "not_utf8":
                file.features.add("not_utf8")
            # By offset, whatever the pass that found it: the first are kept. A line can be at fault twice.
            own = np.unique(faults[faults[:, 0] == code, 1:], axis=0)
            for offset, wanted in own[:MOST].tolist():
                self.find(file, offset, section.kind, name, _lines.WANTED[wanted])
            if len(own) > MOST:
                self.findings.count(file, section.kind, name, len(own) - MOST)

    def _gaps(self, section: Section, chunks: Mapping[str, Chunk], gaps: Ints, tables: tuple[str, ...]) -> None:
        """Unknown fields of the lines of a span: to findings, and to the column `attributes` of its tables."""
        rows = {t: len(next(iter(chunks[t].values()))) for t in tables}
        if len(gaps):
            fields = gaps.reshape(-1, 4)
            first = [self.rows_before.get(t, 0) for t in tables]
            self.findings.gaps(section.file, section.kind, fields, tables, first)
            for k, table in enumerate(tables):
                own = fields[fields[:, 0] == k]
                if len(own) and "attributes" in schema.TABLES[table].names:
                    chunks[table]["attributes"] = texts(_gaps.attributes(section.file.text.data, own, rows[table]))
        for table, n in rows.items():
            self.rows_before[table] = self.rows_before.get(table, 0) + n

    def _all_gaps(self, spans: Sequence[Span], raw: Raw, tables: tuple[str, ...]) -> None:
        gaps = [chunk["gap"] for chunk in raw.chunks.get("gaps", raw.chunks[tables[0]])]
        if any(map(len, gaps)):
            for i, span in enumerate(spans):
                self._gaps(span.section, {t: raw.chunks[t][i] for t in tables}, gaps[i], tables)

    # -- scanning --------------------------------------------------------------------------------

    def _spans(
        self, section: Section, prefix: bytes, begin: int | None = None, end: int | None = None
    ) -> list[tuple[int, int]]:
        """The section in pieces of SPAN bytes or more, each beginning with a line that starts with prefix.

        One thread takes it whole: pieces know each other's repeats only afterwards.
        """
        begin = section.begin if begin is None else begin
        end = section.end if end is None else end
        if self.threads == 1 and begin < end:
            return [(begin, end)]
        size = max(SPAN, self._piece or (end - begin) // (2 * self.threads) + 1)
        size = (end - begin) // max(1, round((end - begin) / size)) + 1  # of even length
        spans = []
        while begin < end:
            stop = _lines.next_line(section.file.text.data, min(begin + size, end) - 1, end, prefix)
            spans.append((begin, stop))
            begin = stop
        return spans or [(section.begin, section.begin)]

    def scan_ahead(self, names: Collection[str]) -> None:
        """Begin to scan these parts, all of which will be read, if there is text enough for several threads.

        The used values come last: they take longest, and know nearly all of their names from the other parts.
        """
        with self.lock:
            # Live ranges are matched with the values of the allocations.
            wanted = {*names, "allocations"} if "live ranges" in names else {*names}
            self.planned.update(wanted)
            begun = {*self.facts.get("parts", {}), *self.ahead, *self.scanned}
            names = [n for n in IN_TURN if n in wanted - begun]
            if self.threads == 1 or sum(s.end - s.begin for n in names for s in self.sections(n)) <= SPAN:
                return
            self.crew, shared = self.crew or Crew(self.threads), set(SECTIONS[USED].pools)
            first = [n for n in names if n != USED]
            self._piece = sum(s.end - s.begin for n in first for s in self.sections(n)) // self.threads + 1
            try:
                for name in first:
                    self._begin(self.crew, name)
            finally:
                self._piece = 0
            naming = [n for n in first if n in self.ahead and not shared.isdisjoint(SECTIONS[n].pools)]
            self.crew.results([scan for name in naming for scan in self.ahead[name][1]])
            for name in naming:
                self.scanned[name] = self._scanned(name)
            if USED in names:
                self._begin(self.crew, USED)

    def _begin(self, crew: Crew, name: str) -> None:
        """Begin to scan the spans of a part, if it has any, each on pools of its own, based on the dump's."""
        part = SECTIONS[name]
        spans = part.spans(self)
        known = [self.pools[p].names.snapshot() for p in part.pools]

        def scan(span: Span) -> Found:
            own = [Names(base) for base in known]
            if not own[0].n_base:
                own[0].expect((span.end - span.begin) // part.bytes_per_name)
            found = span.scan(own)
            if not self.want_text:  # unmapping takes a while: let each thread do its part of it
                give_back(span.section.file.text.data, span.begin, span.end)
            return found, own

        if spans:
            self.ahead[name] = spans, [crew.begin(partial(scan, span)) for span in spans]

    def _scanned(self, name: str) -> tuple[list[Span], list[Any]]:
        """The spans of a part, and what scanning each gave, with the codes of the dump's pools."""
        if name in self.scanned:
            return self.scanned.pop(name)
        part = SECTIONS[name]
        if name not in self.ahead:
            spans = part.spans(self)
            if self.threads == 1 or len(spans) < 2:
                shared = [self.pools[p].names for p in part.pools]
                if shared:
                    shared[0].expect(sum(s.end - s.begin for s in spans) // part.bytes_per_name)
                return spans, [scan(shared) for scan in [s.scan for s in spans] or [part.nothing]]
            self.crew = self.crew or Crew(self.threads)
            self._begin(self.crew, name)
        assert self.crew is not None
        spans, scans = self.ahead.pop(name)
        return spans, merged(self.crew, [self.pools[p] for p in part.pools], part.pools, self.crew.results(scans))

    def part(self, name: str) -> None:
        """Read one part of SECTIONS, unless that was done."""
        with self.lock:
            done = self.facts.setdefault("parts", {})
            if name in done:
                return
            done[name] = True  # beforehand: one part may ask for another, which asks for this one
            try:
                self.makers.update(SECTIONS[name].read(self, *self._scanned(name)))
            except BaseException:
                del done[name]
                raise
            finally:
                if self.crew is not None and not self.ahead:
                    self.crew.leave()
                    self.crew = None

    def table(self, name: str) -> pa.Table:
        """A table of the sections; tokenises its section if that has not been done."""
        with self.lock:
            if name not in self.tables:
                self.part(PART_OF[name])
                self.tables[name] = self.makers[name].table(self, name)
            return self.tables[name]

    def numbers(self, name: str, *columns: str) -> list[Ints]:
        """Columns of a table that are printed as numbers, null the least; the table itself need not be made."""
        with self.lock:
            self.part(PART_OF[name])
            chunks = self.raw[PART_OF[name]].chunks[name]
            if sum(len(c[columns[0]]) for c in chunks) != self.makers[name].rows:  # it is made of something else
                return [numbers_of(self.table(name)[c]) for c in columns]
            return [joined([chunk[c] for chunk in chunks], np.int64) for c in columns]

    @property
    def platform(self) -> str | None:
        """From the file name, else tpu if the allocations' shapes have tiles."""
        if self.source.platform:
            return self.source.platform
        with self.lock:
            if "tiles" not in self.facts:
                self.part("allocations" if self.sections("allocations") else "used values")
            if "tiles" not in self.facts:
                data, _ = self.pools["shape"].export()
                self.facts["tiles"] = re.search(rb"T\(", memoryview(data)) is not None
            return "tpu" if self.facts["tiles"] else None

    def shape_sizes(self) -> tuple[Codes, Ints]:
        """Element type (code) and unpadded bytes of every shape seen so far, by the shape's code."""
        pool = self.pools["shape"]
        if self._sizes is None or self._sizes[0] is not pool or len(self._sizes[1]) != len(pool.names):
            kinds, sizes = _shapes.sizes(*pool.export(), self.pools["element_type"].names)
            self._sizes = pool, codes(kinds), ints(sizes)
        return self._sizes[1:]

    # -- what the checks ask for -----------------------------------------------------------------

    def count(self, name: str) -> int | None:
        """Rows of a table; None if it has not been read."""
        return self.makers[name].rows if name in self.makers else None

    def placed(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        """Allocation, offset and size of the values that may end beyond their allocation, with the row of the first."""
        return self.raw["allocations"].parts("values", "allocation", "offset", "size")

    def same_names(self, place: Codes) -> Any:
        """For each used value whether row place[i] of `values` has its instruction and index."""
        a, b = self.raw["allocations"], self.raw["used values"]
        same = np.ones(len(place), bool)
        for column in ("instruction", "shape_index"):
            same &= a.codes("values", column)[place] == b.codes("records", column)
        return same

    def records_agree(self) -> bool:
        """Whether the used values are sure to be the values, one for one; False if that was not looked at."""
        a, b = self.raw["allocations"], self.raw["used values"].chunks["records"]
        rows = Rows(a.ints("values", "value_id"))
        if rows.rows is None or rows.n != sum(len(chunk["value_id"]) for chunk in b):
            return False
        values = (
            a.codes("values", "instruction"), a.codes("values", "shape_index"), a.flags("values", "is_phi"),
            a.ints("values", "color"),
        )  # fmt: skip
        before = NULL
        for c in b:
            records = c["instruction"], c["shape_index"], c["is_phi"], c["color"], c["value_id"]
            if not _rules.agree(rows.rows, rows.low, values, records, before):
                return False
            before = int(c["value_id"][-1]) if len(c["value_id"]) else before
        return True

    def range_owner(self) -> Codes | None:
        """Row in `values` of each live range, -1 for none; None if the allocations are missing."""
        return self.facts.get("owner") if self.sections("allocations") else None

    def has_bytes(self) -> Bools:
        """For each row of `values` whether its unpadded_size is more than 0."""
        shape = self.raw["allocations"].codes("values", "shape")
        full = self.shape_sizes()[1] > 0
        return full.view(np.uint8)[shape] if len(shape) else np.empty(0, np.uint8)

    def label(self, name: str, row: int) -> tuple[str, str]:
        """Instruction and index ({} if there is none) of a row of `values` or `live_ranges`."""
        rows = self.table(name)
        return rows["instruction"][row].as_py(), rows["shape_index"][row].as_py() or "{}"

    def forget_checked(self) -> None:
        """Let go of what only the checks have asked for."""
        self.facts.pop("owner", None)
        if "used values" in self.raw and self.sections("allocations"):
            chunks = self.raw["used values"].chunks
            chunks.pop("records", None)
            for chunk in chunks["instructions"]:
                for column in ("before",) if self.want_text else ("before", "text_begin", "text_end"):
                    chunk.pop(column, None)

    # -- columns ---------------------------------------------------------------------------------

    def made(self, name: str, chunks: Sequence[Chunk], extra: Mapping[str, Extra]) -> list[Made]:
        """What the table of these chunks is made of, but for the columns in `extra`."""
        return [(rows_of(name, c, extra), self._values(name, c, extra)) for c in chunks]

    def _values(self, name: str, chunk: Chunk, extra: Mapping[str, Extra]) -> list[Value]:
        return [
            extra[column](self, chunk) if column in extra else (chunk.get(column), self.pools[pool] if pool else None)
            for column, pool in _columns(name)
        ]


@cache
def _columns(name: str) -> list[tuple[str, str | None]]:
    """The columns of a table, and of names the pool that they are in."""
    return [(c.name, POOL_OF.get(c.name, c.name) if c.kind == "name" else None) for c in schema.TABLES[name].columns]


Extra = Callable[[Reading, Chunk], Value]
"""What a column is made of that is not simply one of the chunk's."""


def rows_of(name: str, chunk: Chunk, extra: Iterable[str] = ()) -> int:
    """How many rows a chunk holds."""
    return len(next(chunk[c.name] for c in schema.TABLES[name].columns if c.name not in extra))


def _maker(name: str, chunks: Sequence[Chunk], **extra: Extra) -> Maker:
    """The table of these chunks, but for the columns in `extra`."""
    rows = sum(rows_of(name, chunk, extra) for chunk in chunks)
    return Maker(rows, lambda r: r.made(name, chunks, extra))


def _nulls(_: Reading, __: Chunk) -> Value:
    return None, None


PARTS = labels(*_usage.PARTS)

ALLOCATION_FLAGS = ("is_parameter", "is_entry_root", "is_constant", "is_thread_local", "is_live_out", "is_temp")
_TYPES: dict[str, type[np.generic]] = {
    **dict.fromkeys((*_values.POOLS, "label", "kind", *POOL_OF, "before", "part"), np.int32),
    **dict.fromkeys(("flags", "is_phi", "uses_known"), np.uint8),
}
"""What native Columns hold that are neither text nor int64."""


def _arrays(columns: Mapping[str, Any]) -> Chunk:
    """Native Columns as NumPy arrays."""
    return {
        name: texts(column) if isinstance(column, tuple) else np.frombuffer(column, _TYPES.get(name, np.int64))
        for name, column in columns.items()
    }


def _gather(spans: Sequence[Span], results: Sequence[Any]) -> Raw:
    chunks: dict[str, list[Chunk]] = {}
    for result in results:
        for name, columns in result[0].items():
            chunks.setdefault(name, []).append(_arrays(columns))
    return Raw(chunks, [s.section for s in spans])


# -- allocations and values ----------------------------------------------------------------------


def _allocation_spans(self: Reading) -> list[Span]:
    def job(section: Section, begin: int, end: int) -> Job:
        return lambda pools: _allocations.scan(section.file.text.data, begin, end, *pools)

    found = self.sections("allocations")
    return [Span(s, b, e, job(s, b, e)) for s in found for b, e in self._spans(s, b"allocation ")]


def _read_allocations(self: Reading, spans: list[Span], results: list[Any]) -> dict[str, Maker]:
    raw = _gather(spans, results)
    for (section, _, end, _), result in zip(spans, results, strict=False):
        open_at = result[3] if end == section.end else -1
        self._faults(section, result[1], open_at)
        for bit, feature in _allocations.FEATURES.items():
            if result[2] & bit:
                section.file.features.add(feature)
    self.raw["allocations"] = raw
    self._all_gaps(spans, raw, _allocations.GAP_TABLES)
    if not self.source.platform:
        data, _ = self.pools["shape"].export()
        self.facts["tiles"] = re.search(rb"T\(", memoryview(data)) is not None
    extra: dict[str, Extra] = {name: partial(_flag, i) for i, name in enumerate(ALLOCATION_FLAGS)}
    extra["memory_space"] = _memory_space
    return {
        "allocations": _maker("allocations", raw.chunks["allocations"], **extra),
        "cross_color": _maker("cross_color", raw.chunks["cross_color"]),
        "values": _values_maker(raw) if spans else _values_from_records(self),
    }


def _flag(i: int, _: Reading, chunk: Chunk) -> Value:
    return (chunk["flags"], i), None


def _memory_space(r: Reading, chunk: Chunk) -> Value:
    platform, distinct = r.platform, distinct_of(r.raw["allocations"].ints("allocations", "color"))
    spaces = labels(*(schema.memory_space(platform, c) for c in distinct))
    return spaces.codes(np.asarray(np.searchsorted(distinct, chunk["color"]))), spaces


def _values_maker(raw: Raw) -> Maker:
    def kind(r: Reading, chunk: Chunk) -> Value:
        return codes(take(r.shape_sizes()[0], chunk["shape"])), r.pools["element_type"]

    def size(r: Reading, chunk: Chunk) -> Value:
        return ints(take(r.shape_sizes()[1], chunk["shape"])), None

    return _maker("values", raw.chunks["values"], element_type=kind, unpadded_size=size, uses_known=_uses_known)


def _uses_known(r: Reading, chunk: Chunk) -> Value:
    """Whether the uses of each value are printed; looks for the rare line that says no before it tokenises."""
    used = r.sections(USED)
    older = any("e1_values" in s.file.features for s in r.raw["allocations"].section)
    if not used and not older:
        return None, None
    if not older and "uses_unknown" not in r.facts:
        if USED in r.planned or any(_lines.uses_unknown(s.file.text.data, max(0, s.begin - 1), s.end) for s in used):
            r.part(USED)
        else:
            r.facts["uses_unknown"] = np.empty(0, np.int64)
    unknown = r.facts["uses_unknown"] if not older else ()
    if not len(unknown):
        return np.ones(len(chunk["value_id"]), np.uint8), None
    return np.isin(chunk["value_id"], unknown, invert=True).view(np.uint8), None


def _values_from_records(self: Reading) -> Maker:
    """Where the allocations are missing, the used values still name the values."""
    self.part("used values")
    records = self.raw["used values"].chunks["records"]
    absent = ("allocation", "offset", "size", "shape", "element_type", "unpadded_size")
    return _maker("values", records, **dict.fromkeys(absent, _nulls))


# -- used values ---------------------------------------------------------------------------------


def _used_spans(self: Reading) -> list[Span]:
    def job(section: Section, begin: int, end: int) -> Job:
        demand, last = "human_total" in section.file.features, end == section.end and section.last
        return lambda pools: _values.scan(section.file.text.data, begin, end, tuple(pools), demand, last)

    found = self.sections("used values")
    return [Span(s, b, e, job(s, b, e)) for s in found for b, e in self._spans(s, b"<")]


def _read_used(self: Reading, spans: list[Span], results: list[Any]) -> dict[str, Maker]:
    raw = _gather(spans, results)
    self.raw["used values"] = raw
    self.facts["uses_unknown"] = np.concatenate(
        [chunk["value_id"][chunk["uses_known"] == 0] for chunk in raw.chunks["records"]]
    )
    sections, n = [x.section for x in spans], len(self.pools["instruction"].names)
    dropped = drop_repeats(sections, raw.chunks["instructions"], n, self.find) if len(spans) > 1 else []
    for i, ((section, _, end, _), result) in enumerate(zip(spans, results, strict=False)):
        column = result[1]
        if len(spans) > 1:
            column = without(ints(column), dropped[i])
        self._faults(section, column, result[3] if end == section.end else -1)
        for bit, feature in _values.FEATURES.items():
            if result[2] & bit:
                section.file.features.add(feature)
        if result[2] & _values.TREE_BITS:
            self.facts["tree_demanded"] = True
    self._all_gaps(spans, raw, _values.GAP_TABLES)
    if not spans and self.sections("allocations"):
        self.part("allocations")
        older = self.raw["allocations"].chunks
        raw.chunks["positions"], raw.chunks["uses"] = older["positions"], older["uses"]
    text: Extra = _nulls
    if self.want_text and spans:
        for section, chunk in zip(raw.section, raw.chunks["instructions"], strict=True):
            chunk["data"] = section.file.text.data
        text = _text
    return {
        "positions": _maker("positions", raw.chunks["positions"]),
        "uses": _maker("uses", raw.chunks["uses"]),
        "instructions": _maker("instructions", raw.chunks["instructions"], text=text),
    }


def _text(_: Reading, chunk: Chunk) -> Value:
    """The instructions verbatim."""
    return texts(_values.texts(chunk["data"], chunk["text_begin"], chunk["text_end"])), None


# -- live ranges ---------------------------------------------------------------------------------


def _live_spans(self: Reading) -> list[Span]:
    found = [s for s in self.sections("live ranges") if not s.unavailable]
    return [_live_span(s, b, e, kind) for s in found for b, e, kind in _live_lists(self, s)]


def _live_span(section: Section, begin: int, end: int, kind: int) -> Span:
    def scan(pools: Sequence[Names]) -> Any:
        return *_liveness.scan(section.file.text.data, begin, end, kind, *pools), kind

    return Span(section, begin, end, scan)


def _joins(before: Any, behind: Any) -> bool:
    """Whether one span of live ranges ended in the state in which the next one began."""
    *_, open_at, state, _ = before
    # What follows an unfinished tree is its own.
    return open_at < 0 and state[0] != _liveness.TREE and behind[-1] in (_liveness.NONE, state[0])


def _read_live(self: Reading, spans: list[Span], results: list[Any]) -> dict[str, Maker]:
    borders = pairwise(zip(spans, results, strict=False))
    if any(a.section is b.section and not _joins(before, behind) for (a, before), (b, behind) in borders):
        # In a broken text the lists are not where they were looked for: scanned again, all in one.
        spans = [_live_span(s, s.begin, s.end, _liveness.NONE) for s in dict.fromkeys(span.section for span in spans)]
        results = [s.scan([self.pools[p].names for p in SECTIONS["live ranges"].pools]) for s in spans]
    raw = _gather(spans, results)
    self.raw["live ranges"] = raw
    seen = self.facts["live"] = {
        "section": spans[-1].section if spans else None, "heads": 0, "peak_time": None, "tree_total": None,
    }  # fmt: skip
    for (section, _, end, _), result in zip(spans, results, strict=False):
        _, faults, bits, heads, peak_time, tree_total, open_at, *_ = result
        self._faults(section, faults, open_at if end == section.end else -1)
        for bit, feature in _liveness.FEATURES.items():
            if bits & bit:
                section.file.features.add(feature)
        seen["heads"] |= heads
        seen["peak_time"] = peak_time if peak_time != NULL else seen["peak_time"]
        seen["tree_total"] = tree_total if tree_total != NULL else seen["tree_total"]
    self._all_gaps(spans, raw, _liveness.GAP_TABLES)
    ids = _match(self, raw)
    for chunk in raw.chunks["live_ranges"]:
        n = len(chunk["instruction"])
        chunk["value_id"], ids = ids[:n], ids[n:]
    return {name: _maker(name, raw.chunks[name]) for name in SECTIONS["live ranges"].tables}


def _live_lists(self: Reading, section: Section) -> list[tuple[int, int, int]]:
    """(begin, end, list in which it begins). The peak list and the tree stay in one span."""
    data = section.file.text.data
    if self.threads == 1 or section.end - section.begin <= max(SPAN, self._piece):
        return [(section.begin, section.end, _liveness.NONE)]
    ranges = _lines.next_line(data, max(section.begin - 1, 0), section.end, b"  BufferLiveRange:\n")
    peak = _lines.next_line(data, ranges, section.end, b"  Live ranges at ")
    spans = []
    for begin, end, kind in (
        (section.begin, ranges, _liveness.SCHEDULE),
        (ranges, peak, _liveness.RANGES),
    ):
        head = begin
        for b, e in self._spans(section, b"", begin, end) if begin < end else []:
            spans.append((b, e, _liveness.NONE if b == head else kind))
    if peak < section.end:
        spans.append((peak, section.end, _liveness.RANGES))  # what looks like a head may be none
    return spans


def _match(self: Reading, raw: Raw) -> Ints:
    """value_id of each live range, by (instruction, shape_index)."""
    name, index = raw.codes("live_ranges", "instruction"), raw.codes("live_ranges", "shape_index")
    self.facts["owner"] = np.empty(0, np.int32)
    if not len(name) and not len(raw.codes("printed_peak", "instruction")):
        return np.empty(0, np.int64)
    self.part("allocations")
    if self.sections("allocations"):
        values, kind = self.raw["allocations"], "values"
    else:
        values, kind = self.raw["used values"], "records"
    ids = values.ints(kind, "value_id")
    known = in_order(ids)
    # An id twice stands only in a broken text, but both values are there.
    order = np.argsort(ids, kind="stable").astype(np.int32) if known is None else codes(known)
    found, rows = _liveness.match(
        values.codes(kind, "instruction"),
        values.codes(kind, "shape_index"),
        ids,
        order,
        name,
        index,
        self.pools["shape_index"].code("{}"),
    )
    # The first row of an id, as everywhere, where one is printed twice.
    owner = self.facts["owner"] = Rows(ids)(ints(found)).astype(np.int32) if known is None else codes(rows)
    _unindex(self, raw, values, kind, owner)
    return ints(found)


def _unindex(self: Reading, raw: Raw, values: Raw, kind: str, owner: Codes) -> None:
    """An array has no index in any table, although live ranges and peak lists print {} for it."""
    is_array = np.append(values.codes(kind, "shape_index") < 0, False)
    plain = np.zeros(len(self.pools["instruction"].names), bool)
    plain[values.codes(kind, "instruction")[is_array[:-1]]] = True
    top, first = self.pools["shape_index"].code("{}"), 0
    for chunk in raw.chunks["live_ranges"]:
        index = chunk["shape_index"]
        arrays = is_array[owner[first : first + len(index)]]
        chunk["shape_index"], first = np.where((index == top) & arrays, np.int32(-1), index), first + len(index)
    for chunk in raw.chunks["printed_peak"]:
        index = chunk["shape_index"]
        chunk["shape_index"] = np.where((index == top) & plain[chunk["instruction"]], np.int32(-1), index)


# -- report and HLO head -------------------------------------------------------------------------


def _scan_report(data: Any, begin: int, end: int, pools: Sequence[Names]) -> Any:
    columns, faults, seen = _usage.scan(data, begin, end, pools[0])
    columns["label"] = columns.pop("space_label")
    return {"printed_report": columns}, faults, seen


def _report_spans(self: Reading) -> list[Span]:
    def job(s: Section) -> Job:
        return lambda pools: _scan_report(s.file.text.data, s.begin, s.end, pools)

    return [Span(s, s.begin, s.end, job(s)) for s in self.sections("report")]


def _read_report(self: Reading, spans: list[Span], results: list[Any]) -> dict[str, Maker]:
    raw = self.raw["report"] = _gather(spans, results)
    chunks = raw.chunks["printed_report"]
    self._all_gaps(spans, raw, _usage.GAP_TABLES)
    ends = self.facts["report"] = []
    for (section, *_), (_, faults, end) in zip(spans, results, strict=False):
        self._faults(section, faults)
        section.file.features |= {f for f, k in (("report_a", "layout_a"), ("report_b", "layout_b")) if end[k]}
        ends.append((section, end))
    n = 0
    for chunk in chunks:
        rows = len(chunk["part"])
        chunk["ordinal"] = np.arange(n, n + rows)
        n += rows
    return {
        "printed_report": _maker(
            "printed_report",
            chunks,
            part=lambda _, chunk: (PARTS.codes(chunk["part"]), PARTS),
            space_label=lambda r, chunk: (chunk["label"], r.pools["label"]),
        )
    }


def _read_hlo(self: Reading, _: list[Span], __: list[Any]) -> dict[str, Maker]:
    file = next((f for f in self.files if f.role == "hlo"), None)
    data, end = (file.text.data, file.whole) if file else (b"", 0)
    head = _hlo.scan(data, end, self.pools["shape_index"].names, self.pools["kind"].names)
    if file is not None:
        section = Section("hlo", weakref.ref(file), 0, end, 0)
        file.sections.append(section)
        self._faults(section, head["faults"])
        if len(head["gap"]):
            self.findings.gaps(file, "hlo", ints(head["gap"]).reshape(-1, 4), _hlo.GAP_TABLES, (0,))
        if head["tables"]:
            file.features.add("frames")
        if not head["complete"] and not file.cut:
            self.cut(file, file.whole, "hlo", "the first computation")
        self.facts["module_name"] = head["name"]
    return {
        "aliases": _maker("aliases", [_arrays(head["aliases"])]),
        "frames": Maker(len(ints(head["frames"])) // 3, lambda _: _frames(head)),
    }


def _frames(head: Mapping[str, Any]) -> list[Made]:
    """Stack frames with their locations looked up. The printed parent is one too high; 1 means none."""
    frames = ints(head["frames"]).reshape(-1, 3)
    locations = ints(head["locations"]).reshape(-1, 7)
    at, here = _look_up(locations[:, 0], frames[:, 1])
    place = np.where(here[:, None], locations[at] if len(locations) else np.full((len(frames), 7), NULL), NULL)
    parent = np.where(frames[:, 2] > 1, frames[:, 2] - 1, NULL)
    values: dict[str, Value] = {"id": (np.ascontiguousarray(frames[:, 0]), None), "parent": (parent, None)}
    for name, key, i in (("file", "files", 1), ("function", "functions", 2)):
        ids, parts = head[key]
        pool = Pool()
        local = pool.codes(texts(parts))
        row, known = _look_up(ints(ids), place[:, i])
        values[name] = np.where(known, np.append(local, np.int32(0))[row], np.int32(-1)), pool
    for name, i in (("line", 3), ("column", 4), ("end_line", 5), ("end_column", 6)):
        values[name] = np.ascontiguousarray(place[:, i]), None
    return [(len(frames), [values[c.name] for c in schema.TABLES["frames"].columns])]


def _look_up(keys: Ints, wanted: Ints) -> tuple[Ints, Any]:
    """Row of each wanted key, and whether it is there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return order[at], keys[order][at] == wanted


SECTIONS: dict[str, Part] = {
    "allocations": Part(
        ("allocations", "values", "cross_color"),
        ("instruction", "shape_index", "shape"),
        _allocation_spans,
        lambda pools: _allocations.scan(b"", 0, 0, *pools),
        _read_allocations,
    ),
    "used values": Part(
        ("positions", "uses", "instructions"),
        _values.POOLS,
        _used_spans,
        lambda pools: _values.scan(b"", 0, 0, tuple(pools), False, False),
        _read_used,
    ),
    "live ranges": Part(
        ("schedule", "live_ranges", "printed_peak", "printed_stack"),
        ("instruction", "shape_index"),
        _live_spans,
        lambda pools: (*_liveness.scan(b"", 0, 0, _liveness.NONE, *pools), _liveness.NONE),
        _read_live,
        100,
    ),
    "report": Part(
        ("printed_report",), ("label",), _report_spans, lambda pools: _scan_report(b"", 0, 0, pools), _read_report
    ),
    "hlo": Part(("frames", "aliases"), (), lambda _: [], lambda _: None, _read_hlo),
}
PART_OF = {table: name for name, part in SECTIONS.items() for table in part.tables}
USED = "used values"
IN_TURN = sorted(SECTIONS, key=USED.__eq__)
"""The parts in the order in which they are read together: the longest last, which is still scanned meanwhile."""
