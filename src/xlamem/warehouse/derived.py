"""What is computed of many dumps at once: peaks, what makes them, and their scopes.

The dumps of a chunk are laid side by side as if they were one program whose memory spaces are those of all
of them (a page is numbered within its dump), so that `compute` runs once for hundreds of small dumps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..compute.fits import must_fit
from ..compute.occupancy import Held, held_at, live_at, moments, rows_of, runs, whole
from ..compute.occupancy import tables as peak_tables
from ..compute.program import (
    MOST,
    TEMP,
    THREAD_LOCAL,
    Ints,
    Mask,
    Program,
    coded,
    ints,
    length_of,
    nullable,
    translated,
)
from ..compute.published import DISAGREE, POINTERS, group_peaks, space_causes, total_causes, xla_causes
from ..compute.scopes import scopes
from ..parse.arrow import Pool, Rows, joined, numbers_of, row_of
from ..parse.stream import Compact
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


def _lengths(modules: pa.Table) -> Ints:
    """The schedule length of each dump, -1 without live ranges."""
    printed, scheduled, ranges = (ints(modules, c) for c in ("schedule_length", "n_schedule", "n_live_ranges"))
    return np.where(ranges > 0, length_of(printed, scheduled, ranges), -1)


class Fleet:
    """Several dumps as one, for the functions of `compute`: ids and pages count through."""

    name = "several dumps"
    tables = tuple(NEEDED)

    def __init__(self, chunk: Chunk) -> None:
        self.chunk, self.modules = chunk, chunk.tables["modules"]
        self._cache: dict[Any, Any] = {}
        if chunk.known and chunk.known.moments is not None:
            self._cache["moments"] = chunk.known.moments
        tables, which = chunk.tables, chunk.which
        lengths = _lengths(tables["modules"])
        a, v, live = tables["allocations"], tables["values"], tables["live_ranges"]
        page = np.maximum(ints(a, "page", 0), 0)
        self.width = width = {
            "page": _width(page),
            "allocation": _width(ints(a, "allocation"), ints(v, "allocation")),
            "value_id": _width(ints(v, "value_id"), ints(live, "value_id")),
            "id": _width(ints(tables["frames"], "id"), ints(tables["instructions"], "stack_frame_id")),
        } if len(chunk.ids) > 1 else {}  # fmt: skip
        """Of the numbers of one dump; those of one dump alone stay as they are."""

        def through(table: str, column: str, key: str) -> pa.Array:
            if not width:
                return tables[table][column]
            own = ints(tables[table], column)
            return nullable(np.where(own >= 0, own + which[table] * width[key], -1))

        self.allocations = _with(
            a,
            page=pa.array(page + which["allocations"] * width.get("page", 0)),
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

    def _check(self) -> None:
        """`_groups` has looked at each dump."""

    @cached_property
    def steps(self) -> int | None:
        length = self.fleet.schedule_length
        return length + 1 if length is not None and self.fleet.live_ranges.num_rows else None

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        codes, texts = coded(self.dump.values["instruction"])
        at = self.fleet.chunk.which["values"] * len(texts)
        return np.where(codes >= 0, codes + at, -1), texts

    @cached_property
    def ending(self) -> Ints:
        chunk = self.fleet.chunk
        return ints(chunk.tables["modules"], "schedule_length")[chunk.which["values"]]

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
    "values": ["value_id", "allocation", "offset", "size", "unpadded_size"],
    "live_ranges": ["value_id", "start", "end"],
    "modules": ["schedule_length", "n_schedule", "n_live_ranges", "printed_peak_time"],
}
"""The columns from which it is known what is in use when."""

COUNTED = "schedule"
"""Of this table the number of rows is needed too."""


class Numbers:
    """These columns of one dump, taken from it piece by piece."""

    def __init__(self, empty: Callable[..., Any]) -> None:
        self.narrow = Compact(empty)
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
        length = _lengths(tables["modules"])
        self.length = int(length[0]) if len(length) else -1
        self._take_allocations(tables["allocations"])
        self.modules = tables["modules"]
        self.width: dict[str, int] = {}
        self.unpadded = np.maximum(self._taken("values", "unpadded_size"), 0)
        rows = Rows(self.index)
        owner = [rows(allocation).astype(np.int32) for _, allocation in self.narrow.parts("values", "allocation")]
        self._take_values(joined(owner, np.int32), self._taken("values", "offset"), self._taken("values", "size"))
        self._check()
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
        for out, name, low in zip(found, ("start", "end"), (0, -1), strict=True):
            parts = self.narrow.parts("live_ranges", name)
            column = np.concatenate([np.clip(c, low, top).astype(kind) for _, c in parts])
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
    causes: Causes
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
    peaks, causes = _peaks(p)
    kind = p.value_category
    wanted = (kind != TEMP) & (kind != THREAD_LOCAL)
    when = None
    if p.steps is not None:
        when = moments(p, None, None)
        wanted[live_at(p, when)] = True
    values = p.ids[wanted]
    p.narrow.chunks.pop("values", None)
    return InUse(peaks, causes, when, values, p.narrow if p.steps is not None else None)


# -- the tables ----------------------------------------------------------------------------------


def derive(chunk: Chunk, top: int) -> dict[str, pa.Table]:
    """`peaks`, their `explain_causes`, `peak_members` (the `top` largest of each space) and `scopes`, by dump."""
    found: dict[str, list[pa.Table]] = {name: [] for name in ("peaks", "explain_causes", "peak_members", "scopes")}
    found["peaks"].append(_modules(chunk))
    for dumps in _groups(chunk):
        fleet = Fleet(chunk.part(dumps))
        for name, table in _fleet(fleet, top):
            which = table["dump"].to_numpy()
            found[name].append(table.set_column(0, "dump", pa.array(dumps[which])))
    return {name: _stored(name, tables, chunk.ids) for name, tables in found.items() if tables}


def _groups(chunk: Chunk) -> Iterator[Ints]:
    """Dumps that are looked at together: of similar length, and not too many."""
    n = len(chunk.ids)
    lengths = _lengths(chunk.tables["modules"])
    which = chunk.which["allocations"]
    allocations = np.bincount(which, minlength=n)
    a = chunk.tables["allocations"]
    colors, color = np.unique(ints(a, "color"), return_inverse=True)
    pages, page = np.unique(np.maximum(ints(a, "page", 0), 0), return_inverse=True)
    dump, _ = np.divmod(np.unique((which * len(colors) + color) * len(pages) + page), max(len(colors) * len(pages), 1))
    spaces = np.bincount(dump, minlength=n)
    # Without allocations nothing is known of sizes and places.
    able = (allocations > 0) & _adds_up(chunk)
    alone = _far(chunk)
    for i in np.flatnonzero(able & alone).tolist():
        yield np.array([i])
    near = np.flatnonzero(able & ~alone)
    for timed in (False, True):
        rest = near[(lengths[near] >= 0) == timed]
        rest = rest[np.argsort(lengths[rest], kind="stable")]
        while len(rest):
            cells = np.cumsum(spaces[rest]) * (lengths[rest] + 1)
            stop = max(1, int(np.searchsorted(cells, ROOM, "right")))
            yield np.sort(rest[:stop])
            rest = rest[stop:]


def _adds_up(chunk: Chunk) -> Mask:
    """Of which dumps the sizes and offsets are possible (see `Program`): others have no peaks."""
    total = np.zeros(len(chunk.ids))
    for table, column in (("allocations", "size"), ("values", "size"), ("values", "offset")):
        size = ints(chunk.tables[table], column, 0).astype(np.float64)
        total += np.bincount(chunk.which[table], np.where(size < 0, np.inf, size), minlength=len(total))
    found: Mask = total < MOST
    return found


def _far(chunk: Chunk) -> Mask:
    """Which dumps have numbers that cannot count through several dumps."""
    found = np.zeros(len(chunk.ids), bool)
    for table, columns in (
        ("allocations", ("allocation", "page")), ("values", ("value_id", "allocation")), ("live_ranges", ("value_id",)),
        ("frames", ("id",)), ("instructions", ("stack_frame_id",)),
    ):  # fmt: skip
        for column in columns:
            number = ints(chunk.tables[table], column, 0)
            found[chunk.which[table][(number < 0) | (number >= 1 << 31)]] = True
    return found


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
    return nullable(np.where(_adds_up(chunk), found, -1))


def _fleet(fleet: Fleet, top: int) -> Iterator[tuple[str, pa.Table]]:
    known = fleet.chunk.known
    peaks, causes = (known.peaks, known.causes) if known else _peaks(fleet)
    yield "peaks", peaks
    yield "explain_causes", causes.table(fleet.modules)
    p = fleet.program
    if p.steps is not None:
        held = held_at(p, moments(p, None, None))
        yield "peak_members", _largest(fleet, held, top)
        if known:
            release()
        yield "scopes", _scopes(fleet, held)


def _peaks(fleet: Fleet | _Alone) -> tuple[pa.Table, Causes]:
    """The numbers of each space and of each dump, and what separates them from its peak."""
    p = fleet.program
    found, _ = peak_tables(p, 0)
    spaces = _apart(fleet, found.append_column("fixed", pa.array(whole(p))))
    rows = []
    for definition, column, time in (
        ("allocated", "allocated", None),
        ("reserved", "reserved", None),
        ("peak", "peak", "first_step"),
        ("half_open", "half_open_peak", None),
        ("live", "live_peak", "live_step"),
        ("fixed", "fixed", None),
        ("slack", "slack", None),
    ):
        if p.steps is None and column in ("peak", "half_open_peak", "live_peak", "slack"):
            continue
        names = {"definition": pa.array([definition] * spaces.num_rows, pa.string())}
        when = spaces[time] if time else pa.nulls(spaces.num_rows, pa.int64())
        rows.append(pa.table(_of_spaces(spaces) | names | {"bytes": spaces[column], "time": when}))
    if p.steps is None:
        return pa.concat_tables(rows), Causes()
    which = _own_page(fleet, ints(found, "page"))[0]
    at = ints(fleet.modules, "printed_peak_time")
    step, ours = group_peaks(p, which, len(at))
    named = {"definition": pa.array(["peak_together"] * len(at), pa.string()), "bytes": ours, "time": step}
    rows.append(pa.table(_of_dumps(np.arange(len(at))) | named))
    spaces = []
    for definition, cause, by in space_causes(p, found):
        some = _apart(fleet, found.select(["memory_space", "color", "page"]).append_column("bytes", pa.array(by)))
        spaces.append(_cause(definition, cause, _of_spaces(some), ints(some, "bytes")))
    total, printed = total_causes(found, which, ours), xla_causes(p, which, ours, at)
    return pa.concat_tables(rows), Causes(ours, spaces, {"xla_total": list(total), "xla_printed": list(printed)})


@dataclass(frozen=True)
class Causes:
    """What separates the numbers of dumps from their peaks, before it is known what XLA printed."""

    ours: Ints | None = None
    """The peak of all spaces together, by dump; None without live ranges."""
    spaces: list[pa.Table] = field(default_factory=list)
    totals: dict[str, list[tuple[str, Ints]]] = field(default_factory=dict)

    def table(self, modules: pa.Table) -> pa.Table:
        none = schema.DERIVED["explain_causes"].warehouse.empty_table()
        rows = [none.add_column(0, "dump", pa.array([], pa.int64())), *self.spaces]
        if self.ours is None:
            return rows[0]
        where = _of_dumps(np.arange(len(self.ours)))
        whole_shapes = pc.match_substring_regex(modules["features"], r"\bpeak_a\b").fill_null(False).to_numpy()
        for definition, column in (("xla_total", "total_bytes"), ("xla_printed", "printed_peak_bytes")):
            size, causes = ints(modules, column), self.totals[definition]
            rest = size - self.ours - np.sum([by for _, by in causes], axis=0)
            pointers = whole_shapes & (definition == "xla_printed")
            rests = (POINTERS, np.where(pointers, rest, 0)), (DISAGREE, np.where(pointers, 0, rest))
            for cause, by in (*causes, *rests):
                rows.append(_cause(definition, cause, where, np.where(size >= 0, by, 0)))
        return pa.concat_tables(rows)


def _of_spaces(spaces: pa.Table) -> dict[str, Any]:
    columns = {c: spaces[c] for c in ("dump", "memory_space", "color", "page")}
    return columns | {"memory_space": spaces["memory_space"].cast(pa.string())}


def _of_dumps(dumps: Ints) -> dict[str, Any]:
    nulls = {"memory_space": pa.string(), "color": pa.int64(), "page": pa.int64()}
    return {"dump": pa.array(dumps)} | {name: pa.nulls(len(dumps), kind) for name, kind in nulls.items()}


def _cause(definition: str, cause: str, where: dict[str, Any], by: Ints) -> pa.Table:
    """Rows of `explain_causes`: a cause of one number, but where it is 0."""
    n = len(by)
    columns = {"dump": where["dump"], "definition": pa.array([definition] * n, pa.string())} | where
    columns |= {"cause": pa.array([cause] * n, pa.string()), "bytes": by}
    return pa.table(columns).filter(pa.array(by != 0))


def _own_page(fleet: Fleet | _Alone, page: Ints) -> tuple[Ints, Ints]:
    """The dump of each page, and its number there."""
    return np.divmod(page, fleet.width["page"]) if fleet.width else (np.zeros(len(page), np.int64), page)


def _apart(fleet: Fleet | _Alone, table: pa.Table) -> pa.Table:
    """The dump of each row as its first column, page and ids within that dump; rows ordered so."""
    dump, page = _own_page(fleet, ints(table, "page"))
    own = {"page": pa.array(page)}
    for name in {"value_id", "allocation"} & set(table.column_names) & fleet.width.keys():
        through = ints(table, name)
        own[name] = nullable(np.where(through >= 0, through % fleet.width[name], -1))
    order = np.lexsort((np.arange(len(page)), page, ints(table, "color"), dump))
    return _with(table, **own).add_column(0, "dump", pa.array(dump)).take(pa.array(order))


def _largest(fleet: Fleet, held: Held, top: int) -> pa.Table:
    """The largest rows of each space, with their rank."""
    p = fleet.program
    page, color = (np.array(column, np.int64) for column in ([s.page for s in p.spaces], [s.color for s in p.spaces]))
    dump, page = _own_page(fleet, page)
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
