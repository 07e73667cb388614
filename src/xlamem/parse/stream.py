"""One dump, piece by piece: the tables of `reader`, in memory that does not grow with the text.

The text is read span by span, on one thread. A span has pools of its own for its names; what must be known
across spans is kept as narrow integers and as places in the (mapped) files, see `_lookup`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _allocations, _lines, _liveness, _lookup, _usage, _values, schema
from ..errors import UsageError
from ..input.files import STEP, give_back
from ..input.find import Source
from . import checks
from .arrow import (
    NULL,
    POOL_OF,
    Bools,
    Codes,
    Ints,
    Pool,
    Rows,
    Scalar,
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
from .reader import ALLOCATION_FLAGS, PART_OF, SECTIONS, Chunk, Raw, Reading, _arrays, _read_hlo
from .repeats import SAME_TEXT, line_of, take, without
from .section import File, Section
from .summary import summaries

SPAN = 16 << 20
"""Bytes of text that are scanned as one piece (more where one record has more)."""

BLOCK = 4 << 20
"""Bytes of an array in which the columns of many spans are kept."""

Pieces = Iterator[tuple[str, pa.Table]]


def pieces(
    source: Source,
    tables: Iterable[str] | None = None,
    *,
    hashes: bool = False,
    text: bool = False,
    checks: bool = True,
    matched: Compact | None = None,
    empty: Callable[..., Any] = np.empty,
) -> Pieces:
    """The tables of one dump, as (name, piece): the pieces of a table, joined, are what `xlamem.read` gives.

    Pieces come in the order of the text, have the schema's Arrow types and at least one row; each piece of a
    dictionary-encoded column has a dictionary of its own. `files`, `diagnostics` and `modules` come last.
    `tables`, `hashes` and `text` are those of `xlamem.read`; sections that fill no table asked for are not tokenised.
    Without `checks` nothing is kept for them: `files`, `diagnostics` and `modules` say then what the text says, but not
    whether it agrees with itself. `matched` are the columns of `live_ranges` as an earlier reading found them, of which
    `value_id` (negative for none) is taken over. `empty` allocates the columns kept across spans, as `np.empty` does.

    Raises UsageError for an unknown table at once, and what `xlamem.read` raises with the first piece.
    """
    names = frozenset(schema.TABLES if tables is None else tables)
    if unknown := sorted(names - schema.TABLES.keys()):
        raise UsageError(f"no table {', '.join(unknown)}; there are {', '.join(schema.TABLES)}")
    return _pieces(Streaming(source, names, text=text, checks=checks, matched=matched, empty=empty), hashes=hashes)


def _pieces(self: Streaming, *, hashes: bool) -> Pieces:
    for part in self.parts:
        for name, piece in PARTS[part](self):
            self.counts[name] = self.counts.get(name, 0) + piece.num_rows
            if name in self.wanted and piece.num_rows:
                yield name, piece
    if own := self.wanted - PART_OF.keys():
        content = [_content_hash(f) if hashes else None for f in self.files]
        made = summaries(self, set(self.parts), self.wanted, content)
        for name in ("files", "diagnostics", "modules", "unknown_text"):
            if name in own and made[name].num_rows:
                yield name, made[name]


def _content_hash(file: File) -> str:
    import xxhash  # not needed by most readers

    data, done = file.text.raw, xxhash.xxh3_128()
    for at in range(0, len(data), STEP):
        done.update(memoryview(data)[at : at + STEP])
        give_back(data, at, at + STEP)
    return str(done.hexdigest())


# -- what is kept --------------------------------------------------------------------------------


class Narrow(NamedTuple):
    """A column of int64 in as few bytes as its range allows: base + item, -1 for null."""

    base: int
    items: npt.NDArray[np.signedinteger[Any]]

    def moved(self, by: int) -> Narrow:
        """The column with a number added to each item (none is null)."""
        return Narrow(NULL, self.items + by) if self.base == NULL else Narrow(self.base + by, self.items)


def narrow(column: Ints) -> Narrow:
    null = column == NULL
    real = column[~null] if null.any() else column
    if not len(real):
        return Narrow(0, np.full(len(column), -1, np.int8))
    low = int(real.min())
    room = int(real.max()) - low
    width = next((t for t in (np.int8, np.int16, np.int32) if room <= np.iinfo(t).max), None)
    if width is None:
        return Narrow(NULL, column)
    return Narrow(low, np.where(null, -1, column - low).astype(width))


def widen(kept: Narrow, out: Ints) -> None:
    if kept.base == NULL:
        out[:] = kept.items
    else:
        np.add(kept.items, np.int64(kept.base), out=out)
        out[kept.items < 0] = NULL


class _Shelf:
    """Many short arrays side by side in few long ones, which may be in files."""

    def __init__(self, empty: Callable[..., Any]) -> None:
        self.empty = empty
        self.block, self.at = np.empty(0, np.uint8), 0

    def put(self, array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
        """The array, there."""
        if self.at + array.nbytes > len(self.block):
            self.block, self.at = self.empty(max(BLOCK, array.nbytes), np.uint8), 0
        kept = self.block[self.at : self.at + array.nbytes].view(array.dtype)
        kept[:] = array
        self.at += -(-array.nbytes // 8) * 8
        return kept


class Compact(Raw):
    """The columns that the checks need, narrow, a chunk per span."""

    def __init__(self, empty: Callable[..., Any] = np.empty) -> None:
        super().__init__({}, [])
        self.empty = empty
        self.shelves: dict[tuple[str, str], _Shelf] = {}

    def keep(self, name: str, chunk: Chunk, columns: Iterable[str]) -> None:
        """Add some columns of a chunk; int64 columns are narrowed, flags kept as they are."""
        kept: Chunk = {}
        for column in columns:
            put = self.shelves.setdefault((name, column), _Shelf(self.empty)).put
            values = chunk[column]
            if values.dtype == np.int64:
                base, items = narrow(values)
                kept[column] = Narrow(base, put(items))
            else:
                kept[column] = put(values)
        self.chunks.setdefault(name, []).append(kept)

    def ints(self, name: str, column: str, begin: int = 0, end: int = 1 << 62) -> Ints:
        """All items, or those of some rows."""
        kept, at = [], 0
        for chunk in self.chunks.get(name, ()):
            base, items = chunk[column]
            kept.append(Narrow(base, items[max(begin - at, 0) : max(end - at, 0)]))
            at += len(items)
        whole = np.empty(sum(len(k.items) for k in kept), np.int64)
        at = 0
        for k in kept:
            widen(k, whole[at : at + len(k.items)])
            at += len(k.items)
        return whole

    def packed(self, name: str, column: str, base: int = 0) -> npt.NDArray[np.signedinteger[Any]]:
        """All items less the base; null stays the least of 64 bits."""
        kept = [c[column] for c in self.chunks.get(name, ()) if len(c[column].items)]
        if any(k.base == NULL or k.items.min() < 0 for k in kept):
            whole = self.ints(name, column)
            return np.where(whole == NULL, NULL, whole - base) if base else whole
        low = min((k.base - base for k in kept), default=0)
        high = max((k.base - base + int(k.items.max()) for k in kept), default=0)
        kind = next((t for t in (np.int8, np.int32) if low >= 0 and high <= np.iinfo(t).max), np.int64)
        return joined([k.items.astype(kind) + kind(k.base - base) for k in kept], kind)

    def drop(self, name: str, column: str) -> None:
        self.shelves.pop((name, column), None)
        for chunk in self.chunks.get(name, ()):
            del chunk[column]

    def flags(self, name: str, column: str) -> Bools:
        return joined([c[column] for c in self.chunks.get(name, ())], np.uint8)

    def parts(self, name: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        first = 0
        for chunk in self.chunks.get(name, ()):
            out = [np.empty(len(chunk[c].items), np.int64) for c in columns]
            for column, whole in zip(columns, out, strict=True):
                widen(chunk[column], whole)
            yield first, *out
            first += len(out[0])


class _Beyond:
    """The values that may end beyond their allocation, which is nearly always the one printed above them."""

    def __init__(self) -> None:
        self.last = np.empty(0, np.int64), np.empty(0, np.int64)
        """Number and size of the allocation printed last."""
        self.ascending = True
        self.n = 0
        self.found: list[tuple[Ints, ...]] = []

    def look(self, allocations: Chunk, values: Chunk) -> None:
        columns = allocations["allocation"], allocations["size"]
        index, size = (np.concatenate(both) for both in zip(self.last, columns, strict=True))
        owner, offset, bytes_ = (values[c] for c in ("allocation", "offset", "size"))
        self.ascending &= bool((index[1:] > index[:-1]).all())
        rows = np.arange(len(owner))
        if self.ascending and len(index):  # an allocation that is printed twice is not looked for here
            place = Rows(index)(owner)
            room = size[place]  # a sum of two numbers may not fit into 64 bits, this difference always does
            odd = (place < 0) | (offset < 0) | (bytes_ < 0) | (room < 0)
            rows = np.flatnonzero(odd | (bytes_ > np.maximum(room, 0) - np.maximum(offset, 0)))
        if len(rows):
            self.found.append((rows + self.n, owner[rows], offset[rows], bytes_[rows]))
        self.n += len(owner)
        self.last = index[-1:], size[-1:]

    def rows(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        for rows, *columns in self.found:
            for i, row in enumerate(rows.tolist()):
                owner, offset, size = (c[i : i + 1] for c in columns)
                yield row, owner, offset, size


class Streaming(Reading):
    """The state of reading one dump piece by piece."""

    def __init__(
        self,
        source: Source,
        wanted: frozenset[str],
        *,
        text: bool,
        checks: bool = True,
        matched: Compact | None = None,
        empty: Callable[..., Any] = np.empty,
    ) -> None:
        super().__init__(source, text=text, threads=1)
        self.wanted = wanted
        self.counts: dict[str, int] = {}
        self.checks = checks and bool(wanted - PART_OF.keys())
        """Whether the checks of checks.py are to be made."""
        self.kept = {part: Compact(empty) for part in SECTIONS}
        self.raw = dict(self.kept)
        self.labels: dict[int, tuple[str, str]] = {}
        self.matched = matched
        self.beyond = _Beyond()
        self._places: _lookup.Files | None = None
        self._parts: list[str] | None = None
        self._platform: list[str | None] = []

    # -- what is read ----------------------------------------------------------------------------

    @property
    def parts(self) -> list[str]:
        """The parts to be read, in their order: those of the tables asked for, and those that they lean on."""
        if self._parts is None:
            needed = {PART_OF[t] for t in self.wanted if t in PART_OF}
            if any(s.begin < s.end for s in self.sections("live ranges")) and "live ranges" in needed:
                needed.add("allocations")
            if "used values" in needed and not self.sections("used values") and self.sections("allocations"):
                needed.add("allocations")
            if "allocations" in needed and (not self.sections("allocations") or self.unknown_uses):
                needed.add("used values")
            self._parts = [p for p in SECTIONS if p in needed]
            if self.checks:
                self.facts["parts"] = dict.fromkeys(self._parts, True)
        return self._parts

    def part(self, name: str) -> None:
        """Parts are read in their order, by `pieces`."""

    def scan_ahead(self, names: Collection[str]) -> None:
        """Nothing is."""

    def wants(self, *tables: str) -> bool:
        return not self.wanted.isdisjoint(tables)

    @property
    def unknown_uses(self) -> bool:
        """Whether the used values may say that the uses of some value are not known, and nobody knows better."""
        if "unknown_uses" not in self.facts:
            self.facts["unknown_uses"] = not self.older and any(
                _lines.uses_unknown(s.file.text.data, max(0, begin - 64), end)
                for s in self.sections("used values")
                for begin, end in steps(s)
            )
        return bool(self.facts["unknown_uses"])

    @property
    def older(self) -> bool:
        """Whether the allocations print the uses of their values (E1)."""
        if "older" not in self.facts:
            self.facts["older"] = any(
                "e1_values" in s.file.features or self._has_e1(s) for s in self.sections("allocations")
            )
        return bool(self.facts["older"])

    def _has_e1(self, section: Section) -> bool:
        """Tokenises only spans that hold what the head of such a value ends in."""
        sign, features = b", positions:\n", {v: k for k, v in _allocations.FEATURES.items()}
        if not holds(section, sign):
            return False
        self.fresh()
        return any(result[2] & features["e1_values"] for result, _, _ in _allocation_spans(self, section))

    @property
    def platform(self) -> str | None:
        if not self._platform:
            self._platform.append(self.source.platform or ("tpu" if self._has_tiles() else None))
        return self._platform[0]

    def _has_tiles(self) -> bool:
        """Whether a shape of the allocations (or, without them, of the used values) has tiles."""
        kind, walk = "allocations", _allocation_spans
        if not self.sections(kind):
            if kind in self.parts:
                return False
            kind, walk = "used values", _used_spans
        for section in self.sections(kind):
            if holds(section, b"T("):
                for _ in walk(self, section):
                    if re.search(rb"T\(", memoryview(self.pools["shape"].export()[0])):
                        return True
        return False

    @property
    def places(self) -> _lookup.Files:
        """The texts of all files; a place is `(file.ordinal << 48) + offset`."""
        if self._places is None:
            self._places = _lookup.Files([f.text.data for f in self.files])
        return self._places

    def let_go(self) -> None:
        """Give back the pages of all files: what is looked at again comes back from the page cache."""
        for file in self.files:
            give_back(file.text.data, 0, len(file.text.data))

    def fresh(self) -> None:
        """New pools for a span."""
        self.pools |= {name: Pool() for name in (*_values.POOLS, "element_type")}

    def piece(self, name: str, chunk: Chunk, **made: list[pa.Array]) -> pa.Table:
        """The table of one chunk; the columns in `made` are there already."""
        for spec in schema.TABLES[name].columns:
            if spec.name in made:
                continue
            value = chunk.get(spec.name)
            if value is None:
                made[spec.name] = [pa.nulls(len(next(iter(chunk.values()))), spec.arrow.type)]
            elif spec.kind == "int":
                made[spec.name] = [int_array(value, nullable=spec.nullable)]
            elif spec.kind == "bool":
                made[spec.name] = [bool_array(value)]
            elif spec.kind == "text":
                made[spec.name] = text_arrays(value)
            else:
                pool = self.pools[POOL_OF.get(spec.name, spec.name)]
                made[spec.name] = pool.arrays(value, nullable=spec.nullable)
        return table(name, made)

    # -- what the checks ask for -----------------------------------------------------------------

    def count(self, name: str) -> int | None:
        return self.counts.get(name, 0) if PART_OF[name] in self.parts else None

    def value_places(self) -> Ints:
        """Places of the names of all values."""
        if self.sections("allocations"):
            return self.raw["allocations"].ints("values", "place")
        return ints(self.places.names(self.raw["used values"].ints("records", "place")))

    def value_ids(self) -> Ints:
        if self.sections("allocations"):
            return self.raw["allocations"].ints("values", "value_id")
        return self.raw["used values"].ints("records", "value_id")

    def array_values(self) -> Bools:
        """Which values are arrays, with a last item for no value."""
        name, table = ("allocations", "values") if self.sections("allocations") else ("used values", "records")
        return np.append(self.raw[name].flags(table, "is_array"), np.uint8(0))

    def placed(self) -> Iterator[tuple[int, Ints, Ints, Ints]]:
        return self.beyond.rows()

    def same_names(self, place: Codes) -> Any:
        file = next(s.file for s in self.sections("allocations")).ordinal << 48
        values = self.kept["allocations"].packed("values", "place", file)
        same = np.empty(len(place), bool)
        for first, records in self.raw["used values"].parts("records", "place"):
            rows = slice(first, first + len(records))
            names = ints(self.places.names(records))
            same[rows] = flags(self.places.same_names(values[place[rows]] + np.int64(file), names))
            self.let_go()
        return same

    def forget_checked(self) -> None:
        """All is gone with the reading itself."""

    def records_agree(self) -> bool:
        return False

    def range_owner(self) -> Codes | None:
        if not self.sections("allocations"):
            return None
        rows = Rows(self.raw["allocations"].packed("values", "value_id"))
        parts = [rows(ids).astype(np.int32) for _, ids in self.raw["live ranges"].parts("live_ranges", "value_id")]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def has_bytes(self) -> Bools:
        return self.raw["allocations"].flags("values", "has_bytes")

    def label(self, name: str, row: int) -> tuple[str, str]:
        if name == "live_ranges":
            return self.labels[row]
        place = int(self.value_places()[row])
        file, at = self.files[place >> 48], place & ((1 << 48) - 1)
        found = re.compile(rb"([\w.-]+)(?:[{[]([\d,-]*)[]}])?").match(file.text.data, at)
        assert found is not None
        return found[1].decode(), f"{{{(found[2] or b'').decode()}}}"


def steps(section: Section) -> Iterator[tuple[int, int]]:
    """The section in pieces of SPAN bytes; their pages are given back."""
    for begin in range(section.begin, section.end, SPAN):
        end = min(begin + SPAN, section.end)
        yield begin, end
        give_back(section.file.text.data, begin, end)


def holds(section: Section, text: bytes) -> bool:
    """Whether a text (shorter than 64 bytes) stands in a section."""
    data = section.file.text.data
    return any(_lookup.find(data, max(section.begin, b - 64), e, text) >= 0 for b, e in steps(section))


Scan = Callable[[int, int, Any], Any]
"""(begin, end, result of the span before) -> result, whose item 1 are the faults."""
Scanned = Iterator[tuple[Any, Ints, int]]
"""(result, faults, offset of what the end of the section broke off or -1) of each span."""


def spans(
    self: Streaming, section: Section, scan: Scan, cut: Callable[[Any, int, int], int], opened: int | None
) -> Scanned:
    """Scan a section span by span.

    `cut(data, at, end)` is where a span may end; result[opened] is the offset of what its end broke off, or -1:
    unless the section ends there, the next span begins with it.
    """
    data, begin, size, before = section.file.text.data, section.begin, SPAN, None
    while begin < section.end:
        end = cut(data, begin + size, section.end) if begin + size < section.end else section.end
        self.fresh()
        result = scan(begin, end, before)
        faults, open_at = ints(result[1]), -1 if opened is None else result[opened]
        if open_at >= 0 and end < section.end:
            if open_at == begin:
                size *= 2
                continue
            rows = faults.reshape(-1, 3)
            # What is broken off is scanned again.
            end, faults, open_at = open_at, np.ascontiguousarray(rows[rows[:, 1] < open_at]).reshape(-1), -1
        yield result, faults, open_at
        self.let_go()
        begin, size, before = end, SPAN, result


def any_line(data: Any, at: int, end: int) -> int:
    return _lines.next_line(data, at - 1, end, b"")


# -- allocations and values ----------------------------------------------------------------------


def _allocation_spans(self: Streaming, section: Section) -> Scanned:
    def scan(begin: int, end: int, before: Any) -> Any:
        pools = (self.pools[p].names for p in ("instruction", "shape_index", "shape"))
        return _allocations.scan(section.file.text.data, begin, end, *pools, state=before[4] if before else ())

    return spans(self, section, scan, any_line, 3)


def _allocations_part(self: Streaming) -> Pieces:
    older = not self.sections("used values")
    for section in self.sections("allocations"):
        known, _ = _uses_known(self), self.platform  # which may look ahead, through pools of their own
        for result, faults, open_at in _allocation_spans(self, section):
            chunks = {name: _arrays(columns) for name, columns in result[0].items()}
            self._gaps(section, chunks, chunks["gaps"]["gap"], _allocations.GAP_TABLES)
            yield from _allocation_pieces(self, section, chunks, known)
            for name in ("positions", "uses") if older else ():
                if self.wants(name):
                    yield name, self.piece(name, chunks[name])
            _note(self, section, faults, open_at, _allocations.FEATURES, result[2])


def _note(
    self: Streaming, section: Section, faults: Ints, open_at: int, features: Mapping[int, str], bits: int
) -> None:
    self._faults(section, faults, open_at)
    section.file.features |= {feature for bit, feature in features.items() if bits & bit}


def _uses_known(self: Streaming) -> Callable[[Ints], pa.Array]:
    """The column uses_known for given value ids."""
    if self.older:
        return lambda ids: bool_array(np.ones(len(ids), np.uint8))
    if not self.sections("used values"):
        return lambda ids: pa.nulls(len(ids), pa.bool_())
    if not self.unknown_uses:
        return lambda ids: bool_array(np.ones(len(ids), np.uint8))
    parts = [np.empty(0, np.int64)]
    for section in self.sections("used values"):
        for result, _, _ in _used_spans(self, section):
            records = _arrays(result[0]["records"])
            parts.append(records["value_id"][records["uses_known"] == 0])
    unknown = np.unique(np.concatenate(parts))
    return lambda ids: bool_array(~np.isin(ids, unknown))


def _allocation_pieces(
    self: Streaming, section: Section, chunks: dict[str, Chunk], known: Callable[[Ints], pa.Array]
) -> Pieces:
    allocations, values, raw = chunks["allocations"], chunks["values"], self.kept["allocations"]
    kinds, sizes = self.shape_sizes()
    shape = values["shape"]
    unpadded, kind = (sizes[shape], kinds[shape]) if len(sizes) else (np.empty(0, np.int64), np.empty(0, np.int32))
    if self.checks:
        raw.keep("allocations", allocations, ("allocation", "size", "color", "fields", "flags"))
        self.beyond.look(allocations, values)
    if self.checks or self.wants("live_ranges", "printed_peak"):
        values["place"] = values["place"] + (section.file.ordinal << 48)
        values["has_bytes"] = (unpadded > 0).astype(np.uint8)
        values["is_array"] = (values["shape_index"] < 0).astype(np.uint8)
        more = ("allocation", "color", "is_phi", "has_bytes") if self.checks else ()
        raw.keep("values", values, ("value_id", "place", "is_array", *more))
    if self.wants("allocations"):
        yield "allocations", self.piece("allocations", allocations, **_from_flags(self, allocations))
    if self.wants("values"):
        made = {
            "element_type": self.pools["element_type"].arrays(kind),
            "unpadded_size": [int_array(unpadded)],
            "uses_known": [known(values["value_id"])],
        }
        yield "values", self.piece("values", values, **made)
    if self.wants("cross_color"):
        yield "cross_color", self.piece("cross_color", chunks["cross_color"])


def _from_flags(self: Streaming, chunk: Chunk) -> dict[str, list[pa.Array]]:
    """The columns that are made of an allocation's flags and color."""
    distinct, place = np.unique(chunk["color"], return_inverse=True)
    spaces = [schema.memory_space(self.platform, int(c)) for c in distinct]
    made = {name: [bool_array((chunk["flags"] >> i) & 1)] for i, name in enumerate(ALLOCATION_FLAGS)}
    return made | {"memory_space": [labelled(place, spaces)]}


# -- used values ---------------------------------------------------------------------------------


def _used_spans(self: Streaming, section: Section) -> Scanned:
    demand = "human_total" in section.file.features

    def scan(begin: int, end: int, _: Any) -> Any:
        pools, last = tuple(self.pools[p].names for p in _values.POOLS), end == section.end and section.last
        return _values.scan(section.file.text.data, begin, end, pools, demand, last)

    return spans(self, section, scan, _record, 3)


GLUED = re.compile(rb"<-?[0-9]+ [A-Za-z_][\w.-]*(?:\{[0-9,-]*\})?(?: \(phi\))?(?: @-?[0-9]+)?>\n\Z")


def _record(data: Any, at: int, end: int) -> int:
    """Where the next record begins; where headers are glued to the line before (E4), behind that line."""
    while at < end:
        stop = min(at + SPAN, end)
        begin = _lines.next_line(data, at - 1, stop, b"<")
        if begin < stop:
            return begin
        line = _lines.next_line(data, at - 1, stop, b" from instruction:")
        while line < stop:
            behind = any_line(data, line + 1, end)
            if GLUED.search(bytes(data[max(line, behind - 4096) : behind])):
                return behind
            line = _lines.next_line(data, behind - 1, stop, b" from instruction:")
        at = stop
    return end


PLACED = ("allocation", "offset", "size", "shape", "element_type", "unpadded_size")
"""What only the allocations say of a value."""


def _used_part(self: Streaming) -> Pieces:
    alone, raw = not self.sections("allocations"), self.kept["used values"]
    seen = _lookup.Texts(self.places)
    for section in self.sections("used values"):
        for result, faults, open_at in _used_spans(self, section):
            chunks = {name: _arrays(columns) for name, columns in result[0].items()}
            self._gaps(section, chunks, chunks["gaps"]["gap"], _values.GAP_TABLES)
            records = chunks["records"]
            if self.checks or (alone and self.wants("live_ranges", "printed_peak")):
                records["is_array"] = (records["shape_index"] < 0).astype(np.uint8)
                raw.keep("records", records, ("value_id", "offset", "color", "is_phi", "is_array"))
                kept = raw.chunks["records"][-1]
                kept["place"] = kept["offset"].moved(section.file.ordinal << 48)
            if alone and self.wants("values"):
                n, types = len(records["value_id"]), schema.TABLES["values"].arrow
                nulls = {name: [pa.nulls(n, types.field(name).type)] for name in PLACED}
                yield "values", self.piece("values", records, **nulls)
            for name in ("positions", "uses"):
                if self.wants(name):
                    yield name, self.piece(name, chunks[name])
            if self.checks or self.wants("instructions"):
                faults, other = _drop_repeats(section, chunks["instructions"], faults, seen)
            if self.wants("instructions"):
                yield "instructions", _instructions(self, section, chunks["instructions"])
            _note(self, section, faults, open_at, _values.FEATURES, result[2])
            for at in other.tolist() if self.checks else ():
                self.find(section.file, at, section.kind, "instruction_differs", SAME_TEXT)
            if result[2] & _values.TREE_BITS:
                self.facts["tree_demanded"] = True


def _drop_repeats(section: Section, chunk: Chunk, faults: Ints, seen: _lookup.Texts) -> tuple[Ints, Ints]:
    """Drop the instructions that an earlier span holds with the same text.

    Returns the faults of those left, and the lines of those that differ from an earlier text of their name.
    """
    data, shift = section.file.text.data, section.file.ordinal << 48
    said = flags(seen.add(chunk["text_begin"] + shift, chunk["text_end"] + shift))
    other = line_of(data, chunk["text_begin"][said == _lookup.OTHER])
    faults = without(faults, line_of(data, chunk["text_begin"][said == _lookup.REPEAT]))
    keep = np.flatnonzero(said != _lookup.REPEAT)
    take(chunk, keep)
    return faults, other


def _instructions(self: Streaming, section: Section, chunk: Chunk) -> pa.Table:
    if self.want_text:
        text = text_arrays(texts(_values.texts(section.file.text.data, chunk["text_begin"], chunk["text_end"])))
    else:
        text = [pa.nulls(len(chunk["instruction"]), pa.string())]
    return self.piece("instructions", chunk, text=text)


# -- live ranges ---------------------------------------------------------------------------------


def _live_part(self: Streaming) -> Pieces:
    found = [s for s in self.sections("live ranges") if not s.unavailable]
    seen = self.facts["live"] = {
        "section": found[-1] if found else None, "heads": 0, "peak_time": None, "tree_total": None,
    }  # fmt: skip
    match = _Match(self)
    for section in found:
        for result, faults, open_at in _live_spans(self, section):
            columns, _, bits, heads, peak_time, tree_total, _, _ = result
            chunks = {name: _arrays(c) for name, c in columns.items()}
            self._gaps(section, chunks, chunks["gaps"]["gap"], _liveness.GAP_TABLES)
            ranges = chunks["live_ranges"]
            if self.checks or self.wants("live_ranges"):
                ranges["value_id"] = match(ranges)
            if self.wants("live_ranges"):
                match.unindex(ranges, ranges["value_id"])
            if self.wants("printed_peak") and len(chunks["printed_peak"]["ordinal"]):
                match.unindex(chunks["printed_peak"])
            if self.checks:
                for name, kept in LIVE_KEPT.items():
                    self.kept["live ranges"].keep(name, chunks[name], kept)
            for name in LIVE_KEPT:
                if self.wants(name):
                    yield name, self.piece(name, chunks[name])
            _note(self, section, faults, open_at, _liveness.FEATURES, bits)
            seen["heads"] |= heads
            seen["peak_time"] = peak_time if peak_time != NULL else seen["peak_time"]
            seen["tree_total"] = tree_total if tree_total != NULL else seen["tree_total"]
    if self.matched is not None:
        self.matched.chunks.clear()


LIVE_KEPT = {
    "schedule": ("time",),
    "printed_peak": ("ordinal", "bytes"),
    "printed_stack": ("total", "depth", "remaining"),
    "live_ranges": ("value_id", "start", "end"),
}
"""What the checks need of the live ranges."""


def _live_spans(self: Streaming, section: Section) -> Scanned:
    def scan(begin: int, end: int, before: Any) -> Any:
        inside, ordinal, node = before[7] if before else (_liveness.NONE, 0, 0)
        names, indices = self.pools["instruction"].names, self.pools["shape_index"].names
        return _liveness.scan(
            section.file.text.data, begin, end, inside, names, indices, ordinal=ordinal, node=node
        )

    return spans(self, section, scan, any_line, 6)


class _Match:
    """value_id of each live range, by (instruction, shape_index)."""

    def __init__(self, reading: Streaming) -> None:
        self.reading = reading
        self.values: _lookup.Values | None = None
        self.ids: npt.NDArray[np.signedinteger[Any]] = np.empty(0, np.int64)
        """Of the values, ascending."""
        self.rows = 0
        self.arrays: tuple[Rows, Bools] | None = None
        """The values by id, and which of them are arrays."""

    def __call__(self, ranges: Chunk) -> Ints:
        reading, (name, index) = self.reading, (ranges["instruction"], ranges["shape_index"])
        if not len(name):
            return np.empty(0, np.int64)
        found = self._found(name, index) if reading.matched is None else self._again(reading.matched, len(name))
        if reading.checks:
            lost = np.flatnonzero(found == NULL)
            pools = reading.pools["instruction"], reading.pools["shape_index"]
            words, marks = pools[0].arrays(name[lost])[0].to_pylist(), pools[1].arrays(index[lost])[0].to_pylist()
            reading.labels.update(zip((lost + self.rows).tolist(), zip(words, marks, strict=True), strict=True))
        self.rows += len(name)
        return found

    def _again(self, matched: Compact, n: int) -> Ints:
        """What was found before; nothing if there were fewer then, as of a file that is written to meanwhile."""
        found = np.full(n, NULL)
        known = matched.ints("live_ranges", "value_id", self.rows, self.rows + n)
        found[: len(known)] = np.where(known < 0, NULL, known)
        return found

    def unindex(self, chunk: Chunk, ids: Ints | None = None) -> None:
        """An array has no index in any table, although live ranges and peak lists print {} for it."""
        index = chunk["shape_index"]
        at = np.flatnonzero(index == self.reading.pools["shape_index"].code("{}"))
        found = self._found(chunk["instruction"][at], index[at]) if ids is None else ids[at]
        if self.arrays is None:
            self.arrays = Rows(self.reading.value_ids()), self.reading.array_values()
        row = self.arrays[0](found)
        index = index.copy()
        index[at[(row >= 0) & self.arrays[1][row].astype(bool)]] = -1
        chunk["shape_index"] = index

    def _found(self, name: Codes, index: Codes) -> Ints:
        if self.values is None:
            self.values = self._values()
        pools = self.reading.pools["instruction"], self.reading.pools["shape_index"]
        row = codes(self.values.match(pools[0].names, pools[1].names, name, index))
        found = np.full(len(row), NULL)
        there = np.flatnonzero(row >= 0)
        found[there] = self.ids[row[there]]
        return found

    def _values(self) -> _lookup.Values:
        ids = self.reading.value_ids()
        order: Any = ascending(ids)
        if len(order) < len(ids):  # an id twice: only in a broken text, but both values are there
            order = np.argsort(ids, kind="stable")
        ids = ids[order]
        self.ids = ids.astype(np.int32) if len(ids) and ids[0] >= 0 and ids[-1] < 1 << 31 else ids
        del ids
        return _lookup.Values(self.reading.places, self.reading.value_places()[order])


# -- report and HLO head -------------------------------------------------------------------------


class _Wide(Mapping[str, Ints]):
    """Columns of one report, widened when looked at."""

    def __init__(self, raw: Compact, name: str) -> None:
        self.raw, self.name = raw, name

    def __getitem__(self, column: str) -> Ints:
        return self.raw.ints(self.name, column)

    def __iter__(self) -> Iterator[str]:
        return iter(REPORT_KEPT)

    def __len__(self) -> int:
        return len(REPORT_KEPT)


REPORT_KEPT = ("part", "color", "label", "total_bytes", "allocation", "n_values")


def _report_part(self: Streaming) -> Pieces:
    raw, rows = self.kept["report"], 0
    ends: list[tuple[Section, dict[str, Any]]] = []
    wrong: list[list[tuple[int, bool]]] = []
    self.facts["report"], self.facts["report_rows"] = ends, wrong
    raw.chunks["printed_report"] = []
    for i, section in enumerate(self.sections("report")):
        key = f"report {i}"
        found: list[tuple[int, bool]] = []
        result: Any = _usage.scan(b"", 0, 0, self.pools["label"].names)
        for result, faults, _ in _report_spans(self, section):
            chunk = _arrays({"label" if k == "space_label" else k: v for k, v in result[0].items()})
            n = len(chunk["part"])
            self._gaps(section, {"printed_report": chunk}, chunk["gap"], _usage.GAP_TABLES)
            if self.checks:
                raw.keep(key, chunk | {c: chunk[c].astype(np.int64) for c in ("part", "label")}, REPORT_KEPT)
                if "allocations" in self.parts:
                    size = pa.chunked_array(text_arrays(chunk["size"]), pa.string()).combine_chunks()
                    found += checks.wrong_rows(self, section, chunk, size)
            if self.wants("printed_report"):
                extra = {
                    "ordinal": [pa.array(np.arange(rows, rows + n))],
                    "part": [labelled(chunk["part"], _usage.PARTS)],
                    "space_label": self.pools["label"].arrays(chunk["label"]),
                }
                yield "printed_report", self.piece("printed_report", chunk, **extra)
            rows += n
            self._faults(section, faults)
        section.file.features |= {f for f, k in (("report_a", "layout_a"), ("report_b", "layout_b")) if result[2][k]}
        ends.append((section, result[2]))
        wrong.append(found)
        raw.chunks["printed_report"].append(_Wide(raw, key))  # type: ignore[arg-type]


def _report_spans(self: Streaming, section: Section) -> Scanned:
    def scan(begin: int, end: int, before: Any) -> Any:
        state = before[2] if before else None
        data, last = section.file.text.data, end == section.end
        return _usage.scan(data, begin, end, self.pools["label"].names, state=state, last=last)

    # In the first layout an allocation and its table stay together.
    layout_b = bytes(section.file.text.data[section.begin : section.begin + 13]) == b"Memory Space:"
    return spans(self, section, scan, _full_line if layout_b else _allocation_line, None)


def _allocation_line(data: Any, at: int, end: int) -> int:
    return _lines.next_line(data, at - 1, end, b"allocation ")


def _full_line(data: Any, at: int, end: int) -> int:
    """The next line that is not empty."""
    at = any_line(data, at, end)
    while at < end and data[at] == 10:
        at += 1
    return at


def _hlo_part(self: Streaming) -> Pieces:
    self.fresh()
    for name, maker in _read_hlo(self, [], []).items():
        yield name, maker.table(self, name)


PARTS: dict[str, Callable[[Streaming], Pieces]] = {
    "allocations": _allocations_part,
    "used values": _used_part,
    "live ranges": _live_part,
    "report": _report_part,
    "hlo": _hlo_part,
}
