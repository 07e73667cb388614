"""What is computed of many dumps at once: peaks, what makes them, and their scopes.

The dumps of a chunk are laid side by side as if they were one program whose memory spaces are those of all
of them (a page is numbered within its dump), so that `compute` runs once for hundreds of small dumps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..assemble import Pool, Rows, joined, numbers_of, row_of
from ..compute.fits import must_fit
from ..compute.occupancy import Held, held_at, live_at, moments, rows_of, runs, whole
from ..compute.occupancy import tables as peak_tables
from ..compute.program import TEMP, THREAD_LOCAL, Ints, Program, coded, ints, nullable, translated
from ..compute.scopes import scopes
from ..stream import Compact
from .parquet import release
from .spill import Spill

ROOM = 1 << 22
"""Most cells (memory spaces times schedule steps) of dumps that are laid side by side, unless one alone has more."""

NAMES = 1 << 16
"""Names that are made scopes of together."""

NEEDED = {
    "modules": schema.TABLES["modules"].arrow.names,
    "allocations": schema.TABLES["allocations"].arrow.names,
    "values": [c for c in schema.TABLES["values"].arrow.names if c not in ("color", "uses_known")],
    "live_ranges": ["value_id", "start", "end"],
    "instructions": ["instruction", "opcode", "operands", "op_name", "source_file", "source_line", "stack_frame_id"],
    "frames": schema.TABLES["frames"].arrow.names,
}
"""The columns that are looked at here."""


class Chunk:
    """Tables of several dumps, one after another; `which` tells the dump of each row."""

    def __init__(
        self,
        ids: list[str],
        tables: dict[str, pa.Table],
        counts: dict[str, Ints],
        known: InUse | None = None,
    ) -> None:
        """`known` is what has been found out about the one dump already."""
        self.ids, self.tables, self.known = ids, tables, known
        self.which = {name: _repeated(n) for name, n in counts.items()}

    @classmethod
    def of_one(cls, dump_id: str, tables: dict[str, pa.Table], known: InUse | None = None) -> Chunk:
        return cls([dump_id], tables, {name: np.array([t.num_rows]) for name, t in tables.items()}, known)

    def part(self, dumps: Ints) -> Chunk:
        """Some of the dumps, with the tables that are needed here."""
        if len(dumps) == len(self.ids):
            return self
        tables, counts = {}, {}
        place = np.full(len(self.ids), -1)
        place[dumps] = np.arange(len(dumps))
        for name in NEEDED:
            at = place[self.which[name]]
            rows = np.flatnonzero(at >= 0)
            rows = rows[np.argsort(at[rows], kind="stable")]
            tables[name] = self.tables[name].take(pa.array(rows)).combine_chunks()
            counts[name] = np.bincount(at[rows], minlength=len(dumps))
        return Chunk([self.ids[i] for i in dumps.tolist()], tables, counts)


def _repeated(counts: Ints) -> Ints:
    """Each number, from 0 on, as often as it is said; of one number alone there is but one."""
    if len(counts) == 1:
        return np.broadcast_to(np.int64(0), int(counts[0]))
    return np.repeat(np.arange(len(counts)), counts)


class Fleet:
    """Several dumps as one, for the functions of `compute`: ids and pages count through."""

    name = "several dumps"
    tables = tuple(NEEDED)

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self._cache: dict[Any, Any] = {}
        if chunk.known and chunk.known.moments is not None:
            self._cache["moments"] = chunk.known.moments
        tables, which = chunk.tables, chunk.which
        lengths = ints(tables["modules"], "schedule_length")
        a, v, live = tables["allocations"], tables["values"], tables["live_ranges"]
        page = np.maximum(ints(a, "page", 0), 0)
        self.width = width = {
            "page": int(page.max(initial=0)) + 1,
            "allocation": _width(ints(a, "allocation"), ints(v, "allocation")),
            "value_id": _width(ints(v, "value_id"), ints(live, "value_id")),
            "id": _width(ints(tables["frames"], "id"), ints(tables["instructions"], "stack_frame_id")),
        }

        def through(table: str, column: str, key: str) -> pa.Array:
            if len(chunk.ids) == 1:
                return tables[table][column]
            own = ints(tables[table], column)
            return nullable(np.where(own >= 0, own + which[table] * width[key], -1))

        self.allocations = _with(
            a,
            page=pa.array(page + which["allocations"] * width["page"]),
            allocation=through("allocations", "allocation", "allocation"),
        )
        self.values = _with(
            v,
            value_id=through("values", "value_id", "value_id"),
            allocation=through("values", "allocation", "allocation"),
        )
        own = lengths if len(chunk.ids) == 1 else lengths[which["live_ranges"]]
        start, end = ints(live, "start"), ints(live, "end")
        never = start > own  # nothing happens beyond the schedule of its own dump
        top = int(lengths.max(initial=0)) + 1
        self.live_ranges = _with(
            live,
            value_id=through("live_ranges", "value_id", "value_id"),
            start=pa.array(np.where(never, top, start)),
            end=pa.array(np.where(never, top, np.minimum(end, own + 1))),
        )
        self.instructions = _with(
            tables["instructions"], stack_frame_id=through("instructions", "stack_frame_id", "id")
        )
        self.frames = _with(tables["frames"], id=through("frames", "id", "id"))
        longest = int(lengths.max(initial=-1))
        self.schedule_length = longest if longest >= 0 else None
        self.program = self._cache["program"] = _Together(self)

    def __getitem__(self, name: str) -> pa.Table:
        return getattr(self, name)

    def _numbers(self, name: str, *columns: str) -> list[Ints]:
        return [numbers_of(self[name][c]) for c in columns]


class _Together(Program):
    """The joined columns of several dumps: an instruction's name means that of its own dump."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)  # type: ignore[arg-type]  # it has what a Program asks of a Dump
        self.fleet = fleet

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        codes, texts = coded(self.dump.values["instruction"])
        at = self.fleet.chunk.which["values"] * len(texts)
        return np.where(codes >= 0, codes + at, -1), texts

    @cached_property
    def instruction_row(self) -> Ints:
        found = self.fleet.chunk.known
        if found and found.instruction_row is not None:
            return found.instruction_row
        codes, texts = coded(self.dump.values["instruction"])
        mine, known = coded(self.dump.instructions["instruction"])
        if not len(mine) or not len(codes):
            return np.full(len(codes), -1, np.int64)
        place = np.where(codes >= 0, translated(texts, known)[codes], -1)
        which = self.fleet.chunk.which
        row = row_of(mine + which["instructions"] * len(known), place + which["values"] * len(known))
        return np.where(place >= 0, row, -1)

    def of_value(self, column: str, values: Ints) -> pa.Array:
        texts = self.dump.values[column]
        return _few(texts, values) if self.fleet.chunk.known else super().of_value(column, values)


def _few(column: pa.ChunkedArray, rows: Ints) -> pa.Array:
    """These few rows (-1: null) of names; all dictionaries of a large dump together would take much memory."""
    begins = np.cumsum([0, *(len(chunk) for chunk in column.chunks)])
    which = np.searchsorted(begins, rows, "right") - 1
    there = zip(which.tolist(), (rows - begins[which]).tolist(), rows >= 0, strict=True)
    found = [column.chunk(i)[row].as_py() if known else None for i, row, known in there]
    return pa.array(found, pa.string()).dictionary_encode()


def _width(*columns: Ints) -> int:
    return max(int(c.max(initial=0)) for c in columns) + 1


def _with(table: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return table


# -- a dump that does not fit into memory --------------------------------------------------------

FLAGS = ("is_thread_local", "is_constant", "is_parameter", "is_live_out")

NUMBERS = {
    "allocations": ["allocation", "size", "color", "page", "memory_space", *FLAGS],
    "values": ["value_id", "allocation", "offset", "size"],
    "live_ranges": ["value_id", "start", "end"],
    "modules": ["schedule_length"],
}
"""The columns from which it is known what is in use when."""


class Numbers:
    """These columns of one dump, taken from it piece by piece."""

    def __init__(self) -> None:
        self.narrow = Compact()
        empty = {name: schema.TABLES[name].empty.select(NUMBERS[name]) for name in ("allocations", "modules")}
        self.whole = Spill({name: table.schema for name, table in empty.items()})
        """To be closed by who made this."""

    def add(self, name: str, piece: pa.Table) -> None:
        if name in self.whole.files:
            self.whole.add(name, piece.select(NUMBERS[name]))
        else:
            missing = {"offset": 0, "size": 0}
            self.narrow.keep(name, {c: ints(piece, c, missing.get(c, -1)) for c in NUMBERS[name]}, NUMBERS[name])


class _Alone(Program):
    """The program of one large dump, of its numbers alone, which it takes over."""

    def __init__(self, name: str, tables: dict[str, pa.Table], narrow: Compact) -> None:
        self.name, self.narrow = name, narrow
        self.dump = self  # type: ignore[assignment]  # what is asked of it is known here
        self.program = self
        self._cache: dict[Any, Any] = {"program": self}
        length = ints(tables["modules"], "schedule_length")
        self.length = int(length[0]) if len(length) else -1
        self._take_allocations(tables["allocations"])
        self.width = {"page": int(np.maximum(ints(self.allocations, "page", 0), 0).max(initial=0)) + 1}
        rows = Rows(self.index)
        owner = [rows(allocation).astype(np.int32) for _, allocation in self.narrow.parts("values", "allocation")]
        self._take_values(joined(owner, np.int32), self._taken("values", "offset"), self._taken("values", "size"))
        release()

    def _taken(self, name: str, column: str) -> Ints:
        found = self.narrow.ints(name, column)
        self.narrow.drop(name, column)
        return found

    @property
    def ids(self) -> Ints:  # type: ignore[override]  # each time anew
        return self.narrow.ints("values", "value_id")

    @cached_property
    def steps(self) -> int | None:
        return self.length + 1 if self.length >= 0 and "live_ranges" in self.narrow.chunks else None

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        """In as few bytes as the steps allow."""
        rows = Rows(self.narrow.packed("live_ranges", "value_id"))
        top = (self.steps or 0) + 1
        kind = np.int32 if top < 1 << 31 else np.int64
        found = np.empty((2, len(self.owner)), kind)
        for out, name in zip(found, ("start", "end"), strict=True):
            parts = self.narrow.parts("live_ranges", name)
            column = np.concatenate([np.minimum(c, top).astype(kind) for _, c in parts])
            self.narrow.drop("live_ranges", name)
            for first, ids in self.narrow.parts("values", "value_id"):
                row = rows(ids)
                out[first : first + len(ids)] = np.where(row >= 0, column[row], -1)
        del rows, column
        release()
        return found[0], found[1]


@dataclass(frozen=True)
class InUse:
    """What the numbers of a dump say: more is not needed to find out what its peaks are made of."""

    peaks: pa.Table
    moments: Ints | None
    """The step of the peak of each space; None without live ranges."""
    values: Ints
    """Ids of the values that are live then, or in an allocation that is held whole."""
    matched: Compact | None = None
    """The column `value_id` of `live_ranges`."""
    instruction_row: Ints | None = None
    """The row in `instructions` of each of the values, or -1, once they were read."""


def in_use(name: str, numbers: Numbers) -> InUse | None:
    """Takes the numbers over; None if no allocations say where the values are."""
    tables = numbers.whole.tables()
    if not tables["allocations"].num_rows:
        return None
    p = _Alone(name, tables, numbers.narrow)
    peaks = _peaks(p)
    kind = p.value_category
    wanted = (kind != TEMP) & (kind != THREAD_LOCAL)
    when = None
    if p.steps is not None:
        when = moments(p, None, None)
        wanted[live_at(p, when)] = True
    values = p.ids[wanted]
    p.narrow.chunks.pop("values", None)
    return InUse(peaks, when, values, p.narrow if p.steps is not None else None)


# -- the tables ----------------------------------------------------------------------------------


def derive(chunk: Chunk, top: int) -> dict[str, pa.Table]:
    """`peaks`, `peak_members` (the `top` largest of each space) and `scopes` of these dumps, sorted by dump."""
    found: dict[str, list[pa.Table]] = {"peaks": [_modules(chunk)], "peak_members": [], "scopes": []}
    for dumps in _groups(chunk):
        fleet = Fleet(chunk.part(dumps))
        for name, table in _fleet(fleet, top):
            which = table["dump"].to_numpy()
            found[name].append(table.set_column(0, "dump", pa.array(dumps[which])))
    return {name: _stored(name, tables, chunk.ids) for name, tables in found.items() if tables}


def _groups(chunk: Chunk) -> Iterator[Ints]:
    """Dumps that are looked at together: of similar length, and not too many."""
    n = len(chunk.ids)
    lengths = ints(chunk.tables["modules"], "schedule_length")
    live = np.bincount(chunk.which["live_ranges"], minlength=n)
    allocations = np.bincount(chunk.which["allocations"], minlength=n)
    lengths = np.where(live > 0, lengths, -1)
    a = chunk.tables["allocations"]
    space = np.maximum(ints(a, "color"), 0) << 16 | np.maximum(ints(a, "page", 0), 0)
    spaces = np.bincount(np.unique(chunk.which["allocations"] << 32 | space) >> 32, minlength=n)
    able = np.flatnonzero(allocations > 0)  # without allocations nothing is known of sizes and places
    for timed in (False, True):
        rest = able[(lengths[able] >= 0) == timed]
        rest = rest[np.argsort(lengths[rest], kind="stable")]
        while len(rest):
            cells = np.cumsum(spaces[rest]) * (lengths[rest] + 1)
            stop = max(1, int(np.searchsorted(cells, ROOM, "right")))
            yield np.sort(rest[:stop])
            rest = rest[stop:]


def _modules(chunk: Chunk) -> pa.Table:
    """The numbers that are about several spaces together."""
    modules = chunk.tables["modules"]
    n = len(chunk.ids)
    tables = []
    for definition, size, time in (
        ("device_total", _device_totals(chunk), None),
        ("xla_total", modules["total_bytes"].combine_chunks(), None),
        ("xla_printed", modules["printed_peak_bytes"].combine_chunks(), "printed_peak_time"),
    ):
        columns = {
            "dump": pa.array(np.arange(n)),
            "memory_space": pa.nulls(n, pa.string()),
            "color": pa.nulls(n, pa.int64()),
            "page": pa.nulls(n, pa.int64()),
            "definition": pa.array([definition] * n, pa.string()),
            "bytes": size,
            "time": modules[time].combine_chunks() if time else pa.nulls(n, pa.int64()),
        }
        there = pa.table(columns)
        tables.append(there.filter(there["bytes"].is_valid()))
    return pa.concat_tables(tables)


def _device_totals(chunk: Chunk) -> pa.Array:
    """`device_total` of each dump; null where there are no allocations."""
    allocations, which = chunk.tables["allocations"], chunk.which["allocations"]
    found = np.full(len(chunk.ids), -1)
    found[which] = 0
    names = np.array(chunk.tables["modules"]["platform"].to_pylist(), object)
    for platform in {*names}:
        mine = np.flatnonzero(names[which] == platform)
        rows = allocations.select(["color", "size", "is_thread_local"]).take(pa.array(mine))
        counted = must_fit(rows, platform)
        np.add.at(found, which[mine[counted]], ints(rows, "size")[counted])
    return nullable(found)


def _fleet(fleet: Fleet, top: int) -> Iterator[tuple[str, pa.Table]]:
    known = fleet.chunk.known
    yield "peaks", known.peaks if known else _peaks(fleet)
    p = fleet.program
    if p.steps is not None:
        held = held_at(p, moments(p, None, None))
        yield "peak_members", _largest(fleet, held, top)
        if known:
            release()
        yield "scopes", _scopes(fleet, held)


def _peaks(fleet: Fleet | _Alone) -> pa.Table:
    """The numbers of each space."""
    spaces, _ = peak_tables(fleet.program, 0)
    spaces = _apart(fleet, spaces.append_column("indefinite", pa.array(whole(fleet.program))))
    rows = []
    for definition, column, time in (
        ("allocated", "allocated", None),
        ("reserved", "reserved", None),
        ("peak", "peak", "first_step"),
        ("half_open", "half_open_peak", None),
        ("live", "live_peak", "live_step"),
        ("indefinite", "indefinite", None),
        ("slack", "slack", None),
    ):
        if fleet.program.steps is None and column in ("peak", "half_open_peak", "live_peak", "slack"):
            continue
        n = spaces.num_rows
        columns = {c: spaces[c] for c in ("dump", "memory_space", "color", "page")}
        columns["memory_space"] = columns["memory_space"].cast(pa.string())
        columns["definition"] = pa.array([definition] * n, pa.string())
        columns["bytes"] = spaces[column]
        columns["time"] = spaces[time] if time else pa.nulls(n, pa.int64())
        rows.append(pa.table(columns))
    return pa.concat_tables(rows)


def _apart(fleet: Fleet | _Alone, table: pa.Table) -> pa.Table:
    """The dump of each row as its first column, page and ids within that dump; rows ordered so."""
    dump, page = np.divmod(ints(table, "page"), fleet.width["page"])
    own = {"page": pa.array(page)}
    for name in {"value_id", "allocation"} & set(table.column_names):
        through = ints(table, name)
        own[name] = nullable(np.where(through >= 0, through % fleet.width[name], -1))
    order = np.lexsort((np.arange(len(page)), page, ints(table, "color"), dump))
    return _with(table, **own).add_column(0, "dump", pa.array(dump)).take(pa.array(order))


def _largest(fleet: Fleet, held: Held, top: int) -> pa.Table:
    """The largest rows of each space, with their rank."""
    p = fleet.program
    page, color = (np.array(column, np.int64) for column in ([s.page for s in p.spaces], [s.color for s in p.spaces]))
    dump, page = np.divmod(page, fleet.width["page"])
    place = np.argsort(np.lexsort((page, color, dump)))
    space = place[p.space_of_allocation[held.owner]]
    order = np.lexsort((p.index[held.owner], -held.bytes, space))
    first, last = runs(space[order])
    rank = np.arange(len(order)) - np.repeat(first, last - first + 1)
    shown = rank < top
    table = _apart(fleet, rows_of(p, held, order[shown]))
    return table.add_column(1, "rank", pa.array(rank[shown]))


def _scopes(fleet: Fleet, held: Held) -> pa.Table:
    p = fleet.program
    names, texts, _ = p.named(held.value)
    there, used = Pool(), np.unique(names[names >= 0])
    scope = np.full(len(texts) + 1, -1)  # of each op_name; the last: of none
    for at in range(0, len(used), NAMES):
        some = used[at : at + NAMES]
        scope[some] = there.find(scopes(texts.take(pa.array(some))), add=True)
    width = len(there.names) + 1
    key = p.space_of_allocation[held.owner] * width + scope[names] + 1
    grouped = pa.table({"key": key, "bytes": held.bytes}).group_by("key", use_threads=False)
    sums = grouped.aggregate([("bytes", "sum"), ("bytes", "count")])
    space, which = np.divmod(ints(sums, "key"), width)
    columns = p.space_columns(space)
    columns["scope"] = pa.chunked_array(there.arrays((which - 1).astype(np.int32))).cast(pa.string())
    columns |= {"bytes": sums["bytes_sum"], "n": sums["bytes_count"]}
    order = [("dump", "ascending"), ("color", "ascending"), ("page", "ascending"), ("bytes", "descending")]
    return _apart(fleet, pa.table(columns)).sort_by([*order, ("scope", "ascending")])


def _stored(name: str, tables: list[pa.Table], ids: list[str]) -> pa.Table:
    """One table in the types of the warehouse, sorted by dump."""
    spec = schema.WAREHOUSE[name]
    plain = [t.cast(pa.schema([pa.field("dump", pa.int64()), *list(spec.warehouse)[1:]])) for t in tables]
    table = pa.concat_tables(plain)
    order = pa.array(np.argsort(ints(table, "dump"), kind="stable"))
    table = table.take(order).combine_chunks()
    texts = pa.array(ids, pa.string()).take(table["dump"].combine_chunks())
    return table.set_column(0, spec.warehouse.field(0), texts)
