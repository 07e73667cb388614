"""From the sections of a dump to its tables: scan them, assemble the columns."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from . import _allocations, _hlo, _liveness, _sections, _shapes, _usage, _values, schema
from ._column import Names
from .assemble import (
    NULL,
    Bools,
    Codes,
    Ints,
    Pool,
    TextParts,
    ascending,
    bool_array,
    codes,
    flags,
    int_array,
    ints,
    joined,
    labelled,
    table,
    text_arrays,
    texts,
)
from .errors import UsageError
from .outline import File, Findings, Section, outline
from .source import Source

SPAN = 8 << 20
"""Fewest bytes that are scanned as one piece; a section is cut only where a record begins."""


Chunk = dict[str, Any]
"""Columns of one table from one span: int64 and int32 arrays, bytes, or TextParts."""

Job = Callable[[list[Names]], Any]
"""The scan of one span, given the pools for its names."""


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

    def flags(self, name: str, column: str) -> Bools:
        return joined([c[column] for c in self.chunks[name]], np.uint8)

    def parts(self, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Columns of integers chunk by chunk, each time with the number of the first row."""
        first = 0
        for chunk in self.chunks[name]:
            yield first, *(chunk[c] for c in columns)
            first += len(chunk[columns[0]])


class Part(NamedTuple):
    """A section of the dump: which tables it fills, and how."""

    tables: tuple[str, ...]
    read: Callable[[Reading], dict[str, pa.Table]]


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
        self.raw: dict[str, Raw] = {}
        self.facts: dict[str, Any] = {}
        """What the checks of verify.py need besides the tables."""
        self.wanted: frozenset[str] = frozenset()
        """Parts that are going to be read anyway."""
        self._files: list[File] | None = None

    # -- files and sections ----------------------------------------------------------------------

    @property
    def files(self) -> list[File]:
        with self.lock:
            if self._files is None:
                self._files = [outline(m, i, self.findings) for i, m in enumerate(self.source.members)]
                if sum(s.kind == "allocations" for f in self._files for s in f.sections) > 1:
                    raise UsageError(
                        f"{self.source.members[0].uri} holds several modules: choose one with module=…"
                    )
            return self._files

    def sections(self, kind: str) -> list[Section]:
        return [s for f in self.files for s in f.sections if s.kind == kind]

    # -- diagnostics -----------------------------------------------------------------------------

    def _faults(self, section: Section, column: Any, open_at: int = -1) -> None:
        """Native faults to findings; an unfinished record at the very end of the file is a cut."""
        for code, offset, wanted in ints(column).reshape(-1, 3).tolist():
            name = _sections.CODES[code]
            if name == "not_utf8":
                section.file.features.add("not_utf8")
            if offset == open_at and name == "unknown_line" and section is section.file.sections[-1]:
                self.cut(section.file, offset, section.kind, _sections.WANTED[wanted])
            else:
                self.find(section.file, offset, section.kind, name, _sections.WANTED[wanted])

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
        size = max(SPAN, (end - begin) // (3 * self.threads) + 1)
        spans = []
        while begin < end:
            stop = _sections.next_line(section.file.text.data, min(begin + size, end) - 1, end, prefix)
            spans.append((begin, stop))
            begin = stop
        return spans or [(section.begin, section.begin)]

    def _run(self, jobs: Sequence[Job], pools: Sequence[str]) -> list[Any]:
        """Each job on pools of its own, in parallel; or one after another on the dump's pools.

        Returns the results with a list of maps from the job's codes to the dump's (None: the same).
        """
        shared = [self.pools[p].names for p in pools]
        if self.threads == 1 or len(jobs) == 1:
            return [(job(shared), None) for job in jobs]

        from concurrent.futures import ThreadPoolExecutor  # seldom needed: only large texts have several spans

        def alone(job: Job) -> tuple[Any, list[Names]]:
            own = [Names() for _ in pools]
            return job(own), own

        with ThreadPoolExecutor(self.threads) as pool:
            done = list(pool.map(alone, jobs))
        merged = []
        for result, own in done:
            maps = {}
            for pool_name, mine, local in zip(pools, shared, own, strict=True):
                maps[pool_name] = np.append(codes(mine.merge(local)), np.int32(-1))
            merged.append((result, maps))
        return merged

    def part(self, name: str) -> None:
        """Read one part of SECTIONS, unless that was done."""
        with self.lock:
            if name not in self.facts.setdefault("parts", {}):
                self.facts["parts"][name] = True
                self.tables.update(SECTIONS[name].read(self))

    def table(self, name: str) -> pa.Table:
        """A table of the sections; tokenises its section if that has not been done."""
        with self.lock:
            self.part(PART_OF[name])
            return self.tables[name]

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
        data, ends = self.pools["shape"].export()
        kinds, sizes = _shapes.sizes(data, ends, self.pools["element_type"].names)
        return codes(kinds), ints(sizes)

    # -- what the checks ask for -----------------------------------------------------------------

    def count(self, name: str) -> int | None:
        """Rows of a table; None if it has not been read."""
        return self.tables[name].num_rows if name in self.tables else None

    def same_names(self, place: Ints) -> Any:
        """For each used value whether row place[i] of `values` has its instruction and index."""
        a, b = self.raw["allocations"], self.raw["used values"]
        same = np.ones(len(place), bool)
        for column in ("instruction", "shape_index"):
            same &= a.codes("values", column)[place] == b.codes("records", column)
        return same

    def has_bytes(self) -> Any:
        """For each row of `values` whether its unpadded_size is more than 0."""
        shape = self.raw["allocations"].codes("values", "shape")
        return self.shape_sizes()[1][shape] > 0 if len(shape) else np.empty(0, bool)

    def range_values(self) -> Ints:
        """value_id of each live range, NULL for none."""
        owners: Ints = self.facts["range_values"]
        return owners

    def label(self, name: str, row: int) -> tuple[str, str]:
        """Instruction and index ({} if there is none) of a row of `values` or `live_ranges`."""
        rows = self.tables[name]
        return rows["instruction"][row].as_py(), rows["shape_index"][row].as_py() or "{}"

    # -- columns ---------------------------------------------------------------------------------

    def _columns(self, name: str, chunks: Iterable[Chunk], **extra: list[pa.Array]) -> pa.Table:
        """The table of these chunks. Columns in `extra` are there already."""
        chunks = list(chunks)
        columns = dict(extra)
        first = schema.TABLES[name].columns[0].name
        if not extra and not any(len(chunk[first]) for chunk in chunks):
            return schema.TABLES[name].empty
        for spec in schema.TABLES[name].columns:
            if spec.name in columns:
                continue
            arrays: list[pa.Array] = []
            for chunk in chunks:
                value = chunk[spec.name]
                if spec.kind == "int":
                    arrays.append(int_array(value, nullable=spec.nullable))
                elif spec.kind == "bool":
                    arrays.append(bool_array(value))
                elif spec.kind == "text":
                    arrays.extend(text_arrays(value))
                else:
                    pool = self.pools[POOL_OF.get(spec.name, spec.name)]
                    arrays.extend(pool.arrays(value, nullable=spec.nullable))
            columns[spec.name] = arrays
        return table(name, columns)


POOL_OF = {
    "operand_shape_index": "shape_index",
    "parameter_shape_index": "shape_index",
    "parameter_shape": "shape",
    "output_shape": "shape",
    "output_index": "shape_index",
    "parameter_index": "shape_index",
    "space_label": "label",
}

ALLOCATION_FLAGS = ("is_parameter", "is_entry_root", "is_constant", "is_thread_local", "is_live_out", "is_temp")
FLAG_COLUMNS = {"flags", "is_phi", "uses_known"}


def _arrays(columns: dict[str, Any], maps: dict[str, Codes] | None) -> Chunk:
    """Native Columns as NumPy arrays, codes mapped to the dump's pools."""
    chunk: Chunk = {}
    for name, column in columns.items():
        pool = POOL_OF.get(name, name)
        if isinstance(column, tuple):
            chunk[name] = texts(column)
        elif name in FLAG_COLUMNS:
            chunk[name] = flags(column)
        elif pool in CODE_POOLS:
            local = codes(column)
            chunk[name] = local if maps is None else maps[pool][local]
        elif name in ("before", "part"):
            chunk[name] = codes(column)
        else:
            chunk[name] = ints(column)
    return chunk


CODE_POOLS = {*_values.POOLS, "label", "kind"}


def _gather(results: Sequence[tuple[Any, Any]], sections: list[Section], skip: Iterable[str] = ()) -> Raw:
    chunks: dict[str, list[Chunk]] = {}
    for result, maps in results:
        for name, columns in result[0].items():
            if name not in skip:
                chunks.setdefault(name, []).append(_arrays(columns, maps))
    return Raw(chunks, sections)


# -- allocations and values ----------------------------------------------------------------------


def _read_allocations(self: Reading) -> dict[str, pa.Table]:
    found = self.sections("allocations")
    self.pools["instruction"].names.expect(sum(s.end - s.begin for s in found) // 100)
    spans = [(s, b, e) for s in found for b, e in self._spans(s, b"allocation ")]

    def job(section: Section, begin: int, end: int) -> Job:
        return lambda pools: _allocations.scan(section.file.text.data, begin, end, *pools)

    jobs = [job(*span) for span in spans] or [lambda pools: _allocations.scan(b"", 0, 0, *pools)]
    results = self._run(jobs, ("instruction", "shape_index", "shape"))
    raw = _gather(results, [s for s, _, _ in spans])
    for (section, _, end), (result, _) in zip(spans, results, strict=False):
        open_at = result[3] if end == section.end else -1
        self._faults(section, result[1], open_at)
        for bit, feature in _allocations.FEATURES.items():
            if result[2] & bit:
                section.file.features.add(feature)
    self.raw["allocations"] = raw
    tables: dict[str, pa.Table] = {}
    data, _ = self.pools["shape"].export()
    self.facts["tiles"] = re.search(rb"T\(", data) is not None
    platform = self.platform
    colors = raw.ints("allocations", "color")
    distinct, place = np.unique(colors, return_inverse=True)
    spaces = [schema.memory_space(platform, int(c)) for c in distinct]
    bits = raw.flags("allocations", "flags")
    extra = {name: [bool_array((bits >> i) & 1)] for i, name in enumerate(ALLOCATION_FLAGS)}
    extra["memory_space"] = [labelled(place, spaces)]
    tables["allocations"] = self._columns("allocations", raw.chunks["allocations"], **extra)
    tables["cross_color"] = self._columns("cross_color", raw.chunks["cross_color"])
    if found:
        tables["values"] = _values_table(self, raw)
    else:
        self.part("used values")
        tables["values"] = _values_from_records(self)
    return tables


def _values_table(self: Reading, raw: Raw) -> pa.Table:
    chunks = raw.chunks["values"]
    kinds, sizes = self.shape_sizes()
    extra: dict[str, list[pa.Array]] = {"element_type": [], "unpadded_size": []}
    for chunk in chunks:
        shape = chunk["shape"]
        extra["element_type"] += self.pools["element_type"].arrays(kinds[shape])
        extra["unpadded_size"].append(int_array(sizes[shape]))
    n = sum(len(c["value_id"]) for c in chunks)
    extra["uses_known"] = [_uses_known(self, raw, n)]
    return self._columns("values", chunks, **extra)


def _uses_known(self: Reading, raw: Raw, n: int) -> pa.Array:
    """Whether the uses of each value are printed; looks for the rare line that says no before it tokenises."""
    used = self.sections("used values")
    if any("e1_values" in s.file.features for s in raw.section):
        return bool_array(np.ones(n, np.uint8))
    if not used:
        return pa.nulls(n, pa.bool_())
    if "used values" in self.wanted:
        self.part("used values")
        if not any("uses_unknown" in s.file.features for s in used):
            return bool_array(np.ones(n, np.uint8))
    elif not any(_sections.uses_unknown(s.file.text.data, max(0, s.begin - 1), s.end) for s in used):
        return bool_array(np.ones(n, np.uint8))
    self.part("used values")
    records = self.raw["used values"]
    unknown = records.ints("records", "value_id")[records.flags("records", "uses_known") == 0]
    return bool_array(~np.isin(raw.ints("values", "value_id"), unknown))


def _values_from_records(self: Reading) -> pa.Table:
    """Where the allocations are missing, the used values still name the values."""
    records = self.raw["used values"].chunks["records"]
    n = sum(len(c["value_id"]) for c in records)
    nothing = pa.nulls(n)
    empty = {
        c.name: [nothing.cast(c.arrow.type)]
        for c in schema.TABLES["values"].columns
        if c.name in ("allocation", "offset", "size", "shape", "element_type", "unpadded_size")
    }
    return self._columns("values", records, **empty)


# -- used values ---------------------------------------------------------------------------------


def _read_used(self: Reading) -> dict[str, pa.Table]:
    found = self.sections("used values")
    self.pools["instruction"].names.expect(sum(s.end - s.begin for s in found) // 400)
    spans = [(s, b, e) for s in found for b, e in self._spans(s, b"<")]

    def job(section: Section, begin: int, end: int) -> Job:
        demand, last = "human_total" in section.file.features, end == section.end and section.last
        return lambda pools: _values.scan(section.file.text.data, begin, end, tuple(pools), demand, last)

    jobs = [job(*span) for span in spans] or [lambda pools: _values.scan(b"", 0, 0, tuple(pools), False, False)]
    results = self._run(jobs, _values.POOLS)
    raw = _gather(results, [s for s, _, _ in spans])
    self.raw["used values"] = raw
    dropped = _drop_repeats(self, raw)
    for i, ((section, _, end), (result, _)) in enumerate(zip(spans, results, strict=False)):
        column = result[1]
        if len(spans) > 1:
            column = _without(ints(column), dropped[i])
        self._faults(section, column, result[3] if end == section.end else -1)
        for bit, feature in _values.FEATURES.items():
            if result[2] & bit:
                section.file.features.add(feature)
        if result[2] & _values.TREE_BITS:
            self.facts["tree_demanded"] = True
    tables = {}
    if not found and self.sections("allocations"):
        self.part("allocations")
        older = self.raw["allocations"].chunks
        raw.chunks["positions"], raw.chunks["uses"] = older["positions"], older["uses"]
    tables["positions"] = self._columns("positions", raw.chunks["positions"])
    tables["uses"] = self._columns("uses", raw.chunks["uses"])
    chunks = raw.chunks["instructions"]
    if self.want_text and found:
        text = [
            texts(_values.texts(s.file.text.data, c["text_begin"], c["text_end"]))
            for s, c in zip(raw.section, chunks, strict=True)
        ]
        extra = {"text": [a for t in text for a in text_arrays(t)]}
    else:
        extra = {"text": [pa.nulls(sum(len(c["instruction"]) for c in chunks), pa.string())]}
    tables["instructions"] = self._columns("instructions", chunks, **extra)
    return tables


INSTRUCTION_DIFFERS = _sections.CODES.index("instruction_differs")
NOT_UTF8 = _sections.CODES.index("not_utf8")


def _line_of(data: Any, begin: Ints) -> Ints:
    """Offset of the lines ' from instruction:[ ]%…' whose texts begin there."""
    raw = flags(data)
    line: Ints = begin - 18 - (raw[begin - 1] == 32)
    return line


def _without(faults: Ints, lines: Ints) -> Ints:
    """Native faults but those of texts that turned out to be repeats."""
    rows = faults.reshape(-1, 3)
    gone = (rows[:, 0] == INSTRUCTION_DIFFERS) | ((rows[:, 0] == NOT_UTF8) & np.isin(rows[:, 1], lines))
    return np.ascontiguousarray(rows[~gone]).reshape(-1)


def _drop_repeats(self: Reading, raw: Raw) -> list[Ints]:
    """Drop instructions that an earlier span holds with the same text; name those that differ.

    Each span knows only its own texts. Returns, per span, the lines of the instructions dropped.
    """
    chunks = raw.chunks["instructions"]
    lines: list[Ints] = []
    if len(raw.section) < 2:
        return lines
    n = len(self.pools["instruction"].names)
    last = np.full(n, -1, np.int64)  # by name: its last row so far, counted over all spans
    before: list[Ints] = []
    place: list[tuple[Any, Ints, Ints]] = []  # data, begins, ends of the rows kept, per span
    starts = [0]
    for section, chunk in zip(raw.section, chunks, strict=True):
        data = section.file.text.data
        name, begin, end = chunk["instruction"], chunk["text_begin"], chunk["text_end"]
        inside = chunk["before"].astype(np.int64)
        repeat = np.zeros(len(name), bool)
        candidate = last[name]
        while True:
            todo = np.flatnonzero((candidate >= 0) & ~repeat)
            if not todo.size:
                break
            owner = np.searchsorted(starts, candidate[todo], "right") - 1
            for k in np.unique(owner).tolist():
                mine = todo[owner == k]
                row = candidate[mine] - starts[k]
                other, begins, ends = place[k]
                equal = flags(_values.same(data, begin[mine], end[mine], other, begins[row], ends[row]))
                repeat[mine] = equal.astype(bool)
                candidate[mine] = before[k][row]
        lines.append(_line_of(data, begin[repeat]))
        keep = np.flatnonzero(~repeat)
        position = np.full(len(name) + 1, -1, np.int64)
        position[keep] = starts[-1] + np.arange(len(keep))
        # The row before of a row kept: the nearest one kept in this span, else the last of an earlier one.
        prior = inside[keep]
        while (lost := (prior >= 0) & (position[prior] < 0)).any():
            prior[lost] = inside[prior[lost]]
        link = np.where(prior >= 0, position[prior], last[name[keep]])
        for at in _line_of(data, begin[keep[link >= 0]]).tolist():
            wanted = "the text printed for that instruction before"
            self.find(section.file, at, section.kind, "instruction_differs", wanted)
        before.append(link)
        place.append((data, begin[keep], end[keep]))
        last[name[keep]] = position[keep]
        starts.append(starts[-1] + len(keep))
        if len(keep) < len(name):
            for column, value in chunk.items():
                chunk[column] = _take_text(value, keep) if isinstance(value, tuple) else value[keep]
    return lines


def _take_text(parts: TextParts, keep: Ints) -> TextParts:
    data, ends, valid = parts
    begins = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    picked = texts(_values.texts(data, begins[keep], ends[keep]))
    return picked[0], picked[1], valid[keep]


# -- live ranges ---------------------------------------------------------------------------------


def _read_live(self: Reading) -> dict[str, pa.Table]:
    found = [s for s in self.sections("live ranges") if not s.unavailable]
    spans = [(s, *span) for s in found for span in _live_spans(self, s)]

    def job(section: Section, begin: int, end: int, kind: int) -> Job:
        return lambda pools: _liveness.scan(section.file.text.data, begin, end, kind, *pools)

    jobs = [job(*span) for span in spans] or [lambda pools: _liveness.scan(b"", 0, 0, _liveness.NONE, *pools)]
    results = self._run(jobs, ("instruction", "shape_index"))
    raw = _gather(results, [s for s, *_ in spans])
    self.raw["live ranges"] = raw
    seen = self.facts["live"] = {
        "section": found[-1] if found else None, "heads": 0, "peak_time": None, "tree_total": None,
    }  # fmt: skip
    for (section, _, end, _), (result, _) in zip(spans, results, strict=False):
        _, faults, bits, heads, peak_time, tree_total, open_at, _ = result
        self._faults(section, faults, open_at if end == section.end else -1)
        for bit, feature in _liveness.FEATURES.items():
            if bits & bit:
                section.file.features.add(feature)
        seen["heads"] |= heads
        seen["peak_time"] = peak_time if peak_time != NULL else seen["peak_time"]
        seen["tree_total"] = tree_total if tree_total != NULL else seen["tree_total"]
    tables = {name: self._columns(name, raw.chunks[name]) for name in ("schedule", "printed_peak", "printed_stack")}
    owners = self.facts["range_values"] = _match(self, raw)
    tables["live_ranges"] = self._columns("live_ranges", raw.chunks["live_ranges"], value_id=[int_array(owners)])
    return tables


def _live_spans(self: Reading, section: Section) -> list[tuple[int, int, int]]:
    """(begin, end, list in which it begins). The peak list and the tree stay in one span."""
    data = section.file.text.data
    if self.threads == 1 or section.end - section.begin <= SPAN:
        return [(section.begin, section.end, _liveness.NONE)]
    ranges = _sections.next_line(data, max(section.begin - 1, 0), section.end, b"  BufferLiveRange:\n")
    peak = _sections.next_line(data, ranges, section.end, b"  Live ranges at ")
    spans = []
    for begin, end, kind in (
        (section.begin, ranges, _liveness.SCHEDULE),
        (ranges, peak, _liveness.RANGES),
    ):
        head = begin
        for b, e in self._spans(section, b"", begin, end) if begin < end else []:
            spans.append((b, e, _liveness.NONE if b == head else kind))
    if peak < section.end:
        spans.append((peak, section.end, _liveness.NONE))
    return spans


def _match(self: Reading, raw: Raw) -> Ints:
    """value_id of each live range, by (instruction, shape_index)."""
    name, index = raw.codes("live_ranges", "instruction"), raw.codes("live_ranges", "shape_index")
    if not len(name):
        return np.empty(0, np.int64)
    self.part("allocations")
    if self.sections("allocations"):
        values, kind = self.raw["allocations"], "values"
    else:
        values, kind = self.raw["used values"], "records"
    ids = values.ints(kind, "value_id")
    order = ascending(ids)
    if len(order) < len(ids):  # an id twice: only in a broken text, but both values are there
        order = np.argsort(ids, kind="stable")
    return ints(
        _liveness.match(
            values.codes(kind, "instruction")[order],
            values.codes(kind, "shape_index")[order],
            ids[order],
            name,
            index,
            self.pools["shape_index"].code("{}"),
        )
    )


# -- report and HLO head -------------------------------------------------------------------------


def _read_report(self: Reading) -> dict[str, pa.Table]:
    found = self.sections("report")
    chunks = []
    ends = self.facts["report"] = []
    for section in found:
        columns, faults, end = _usage.scan(
            section.file.text.data, section.begin, section.end, self.pools["label"].names
        )
        chunks.append(_arrays({"label" if k == "space_label" else k: v for k, v in columns.items()}, None))
        self._faults(section, faults)
        section.file.features |= {f for f, k in (("report_a", "layout_a"), ("report_b", "layout_b")) if end[k]}
        ends.append((section, end))
    if not chunks:
        columns, _, _ = _usage.scan(b"", 0, 0, self.pools["label"].names)
        chunks.append(_arrays({"label" if k == "space_label" else k: v for k, v in columns.items()}, None))
    self.raw["report"] = Raw({"printed_report": chunks}, found)
    n = sum(len(c["part"]) for c in chunks)
    part = joined([c["part"] for c in chunks], np.int32)
    extra = {
        "ordinal": [int_array(np.arange(n))],
        "part": [labelled(part, _usage.PARTS)],
        "space_label": [a for c in chunks for a in self.pools["label"].arrays(c["label"])],
    }
    return {"printed_report": self._columns("printed_report", chunks, **extra)}


def _read_hlo(self: Reading) -> dict[str, pa.Table]:
    file = next((f for f in self.files if f.role == "hlo"), None)
    data, end = (file.text.data, file.whole) if file else (b"", 0)
    head = _hlo.scan(data, end, self.pools["shape_index"].names, self.pools["kind"].names)
    tables = {"aliases": self._columns("aliases", [_arrays(head["aliases"], None)]), "frames": _frames(head)}
    if file is not None:
        section = Section("hlo", file, 0, end, 0)
        file.sections.append(section)
        self._faults(section, head["faults"])
        if head["tables"]:
            file.features.add("frames")
        if not head["complete"] and not file.cut:
            self.cut(file, file.whole, "hlo", "the first computation")
        self.facts["module_name"] = head["name"]
    return tables


def _frames(head: Mapping[str, Any]) -> pa.Table:
    """Stack frames with their locations looked up. The printed parent is one too high; 1 means none."""
    frames = ints(head["frames"]).reshape(-1, 3)
    if not len(frames):
        return schema.TABLES["frames"].empty
    locations = ints(head["locations"]).reshape(-1, 7)
    at, here = _look_up(locations[:, 0], frames[:, 1])
    place = np.where(here[:, None], locations[at] if len(locations) else np.full((len(frames), 7), NULL), NULL)
    columns: dict[str, list[pa.Array]] = {"id": [int_array(np.ascontiguousarray(frames[:, 0]))]}
    parent = np.where(frames[:, 2] > 1, frames[:, 2] - 1, NULL)
    columns["parent"] = [int_array(parent)]
    for name, key, i in (("file", "files", 1), ("function", "functions", 2)):
        ids, parts = head[key]
        texts_ = pa.chunked_array(text_arrays(texts(parts)), pa.string()).combine_chunks()
        row, known = _look_up(ints(ids), place[:, i])
        place_of = pa.array(np.where(known, row, 0), mask=~known)
        picked = texts_.take(place_of) if len(texts_) else pa.nulls(len(row), pa.string())
        columns[name] = [picked.dictionary_encode().cast(schema.ARROW["name"])]
    for name, i in (("line", 3), ("column", 4), ("end_line", 5), ("end_column", 6)):
        columns[name] = [int_array(np.ascontiguousarray(place[:, i]))]
    return table("frames", columns)


def _look_up(keys: Ints, wanted: Ints) -> tuple[Ints, Any]:
    """Row of each wanted key, and whether it is there."""
    if not len(keys):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), bool)
    order = np.argsort(keys, kind="stable")
    at = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    return order[at], keys[order][at] == wanted


SECTIONS: dict[str, Part] = {
    "allocations": Part(("allocations", "values", "cross_color"), _read_allocations),
    "used values": Part(("positions", "uses", "instructions"), _read_used),
    "live ranges": Part(("schedule", "live_ranges", "printed_peak", "printed_stack"), _read_live),
    "report": Part(("printed_report",), _read_report),
    "hlo": Part(("frames", "aliases"), _read_hlo),
}
PART_OF = {table: name for name, part in SECTIONS.items() for table in part.tables}
