"""Fingerprints of programs: `program_fp` and `interface_fp` of `modules`. docs/numbers.md defines them.

A fingerprint is a sum modulo 2^64 of hashes of rows, so it depends neither on the order of the rows nor on how they are
split into batches. Rows are connected by ids and by hashes of names, which do not enter the sum themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _column, schema
from .. import kernels as pc
from .arrays import Ints, Rows, codes, numbers_of
from .batch import ASSIGNMENT, HLO, LIVE, USED
from .reader import Reader
from .sections.assignment import FLAGS
from .stores import CompactStore, Empty

_FACTORS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93,
     0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3],
    np.uint64,
).view(np.int64)  # fmt: skip
"""Odd factors without structure, one for each column of a row."""

_DUMP_FACTOR = np.int64(0x1D8E4E27C47D124F)
"""Distance between the keys of two dumps."""

_NOTHING = -0x5851F42D4C957F2D
"""Stands for a null number; odd, so that two of them do not cancel each other."""

PART_ROWS = 1 << 18
"""Number of rows whose hashes are computed together."""

_KEYS = {"allocation", "value_id", "name"}
"""Columns that connect rows of one dump."""

_NUMBER = re.compile(r"\.[0-9]+\Z")
_TENSORFLOW, _ATTRIBUTES = "a_inference_", "__XlaMustCompile_"
"""What the name of a module begins with that TensorFlow makes of a function, and what follows the number."""


class Fingerprints:
    """The fingerprints of the dumps whose rows are added, one for each dump, as 64-bit hashes.

    `n` is the number of dumps. `empty` allocates the columns that are kept until the fingerprints are computed.
    """

    TABLES = ("allocations", "values", "instructions", "live_ranges", "schedule")
    """The tables from which they are computed."""

    def __init__(self, n: int = 1, empty: Empty | None = None) -> None:
        self.n = n
        self._store = CompactStore(empty) if empty else None
        self._columns: dict[str, dict[str, Ints]] = {}
        self._dumps: dict[str, Ints | None] = {}
        self._program: Ints | None = None

    def add(self, table: str, rows: pa.Table, dumps: Ints | None = None) -> None:
        """Add rows of one of the TABLES. `dumps` has the number of the dump of each row, None for dump 0.

        Without `empty`, all rows of a table are added at once.
        """
        columns = _REDUCED[table](rows)
        if self._store is not None:
            self._store.keep(table, columns, columns)
        else:
            self._columns[table], self._dumps[table] = columns, dumps

    def columns(
        self, modules: Sequence[tuple[str | None, str | None]], known: Sequence[tuple[bool, bool]]
    ) -> dict[str, list[str | None]]:
        """Return the columns of `modules`.

        `modules` has the module name and the platform of each dump; `known` whether its program and its interface are
        known (see `are_known`).
        """
        program = [k for k, _ in known]
        return {
            "program_fp": _hexadecimal(self.program(), program) if any(program) else [None] * self.n,
            "interface_fp": _hexadecimal(self.interface(modules), [k for _, k in known]),
        }

    def find_program(self) -> None:
        """Compute what `program` returns."""
        instruction = _Lookup(self._take("instructions"), "name", "hash")
        ranges = _Lookup(self._take("live_ranges"), "value_id", "start", "end")
        allocations = self._take("allocations", "allocation", "hash")
        owners = Rows(allocations["allocation"])
        in_allocation = np.zeros(owners.n + 1, np.int64)
        """Sums of the hashes of values by allocation, at last of those without one."""
        for rows in self._parts("values"):
            values = self._take("values", rows=rows)
            hashes = row_hash(values["hash"], *instruction(values["name"]), *ranges(values["value_id"]))
            owner = owners(values["allocation"])
            owner = np.where(owner < 0, owners.n, owner)
            first, last = int(owner.min()), int(owner.max())
            in_allocation[first : last + 1] += _sums(owner - first, hashes, last - first + 1)
        total = self._sums("allocations", row_hash(allocations["hash"], in_allocation[:-1]))
        for rows in self._parts("schedule"):
            schedule = self._take("schedule", rows=rows)
            total = total + self._sums("schedule", row_hash(schedule["time"], *instruction(schedule["name"])), rows)
        self._program = total

    def program(self) -> Ints:
        """Return the hash of each program."""
        if self._program is None:
            self.find_program()
        assert self._program is not None
        return self._program

    def interface(self, modules: Sequence[tuple[str | None, str | None]]) -> Ints:
        """Return the hash of each interface. `modules`: name and platform of each dump's module."""
        heads = [f"{without_number(name or '')}\n{platform or ''}" for name, platform in modules]
        head = row_hash(hash_texts(pa.array(heads, pa.string())))
        return head + self._sums("allocations", self._take("allocations", "interface")["interface"])

    def _columns_of(self, table: str) -> dict[str, Ints]:
        return self._columns.get(table) or _REDUCED[table](schema.TABLES[table].empty)

    def _parts(self, table: str) -> Iterator[slice]:
        """Yield slices of the rows of a table."""
        if self._store is not None:
            n = sum(len(next(iter(chunk.values())).items) for chunk in self._store.of(table))
        else:
            n = len(next(iter(self._columns_of(table).values())))
        return (slice(begin, begin + PART_ROWS) for begin in range(0, n, PART_ROWS))

    def _take(self, table: str, *names: str, rows: slice = slice(None)) -> dict[str, Ints]:
        """Return columns of a table (by default, all), with keys that differ from dump to dump."""
        if self._store is not None and (chunks := self._store.of(table)):
            begin, end, _ = rows.indices(1 << 62)
            return {name: self._store.ints(table, name, begin, end) for name in names or chunks[0]}
        columns, dumps = self._columns_of(table), self._dumps.get(table)
        columns = {name: columns[name][rows] for name in names or columns}
        if dumps is None or self.n == 1:
            return columns
        base = dumps[rows] * _DUMP_FACTOR
        return {name: items + base if name in _KEYS else items for name, items in columns.items()}

    def _sums(self, table: str, hashes: Ints, rows: slice = slice(None)) -> Ints:
        """Return the sum of the hashes of rows of a table for each dump."""
        dumps = self._dumps.get(table)
        if dumps is None or self.n == 1:
            return np.asarray(hashes.sum(keepdims=True))
        return _sums(dumps[rows], hashes, self.n)


def without_number(module_name: str) -> str:
    """Return the name of a module without the number that XLA appends to make it unique (`.123`)."""
    return _NUMBER.sub("", module_name)


def without_counters(module_name: str) -> str:
    """Return the name of a module without that number, and without the one that TensorFlow gives to each function.

    `a_inference_train_step_4410__XlaMustCompile_true_….89` becomes `a_inference_train_step`: the number changes with
    any edit of the program around it.
    """
    name = without_number(module_name)
    head, is_compiled, _ = name.partition(_ATTRIBUTES)
    numbered = head if is_compiled else name.removesuffix("__")
    function = numbered.rstrip("0123456789")
    is_function = function != numbered != name and function.endswith("_") and len(function) > len(_TENSORFLOW) + 1
    return function[:-1] if is_function and name.startswith(_TENSORFLOW) else name


# -- rows of the tables as a few integer columns


def _allocations(rows: pa.Table) -> dict[str, Ints]:
    bits = [_bits(rows[name]) << i for i, name in enumerate(FLAGS)]
    flags: Ints = reduce(np.bitwise_or, bits)
    size, color, page, number = (_numbers(rows[c]) for c in ("size", "color", "page", "parameter_number"))
    index, shape, output = (
        _text_hashes(rows[c]) for c in ("parameter_shape_index", "parameter_shape", "output_shape")
    )
    is_parameter, has_output = _bits(rows["is_parameter"]), (output != 0).astype(np.int64)
    return {
        "allocation": numbers_of(rows["allocation"]),
        "hash": row_hash(size, color, page, flags, number, index),
        "interface": is_parameter * row_hash(number, index, shape, np.where(shape == 0, size, 0))
        + has_output * row_hash(output),
    }


def _values(rows: pa.Table) -> dict[str, Ints]:
    offset, size = _numbers(rows["offset"]), _numbers(rows["size"])
    return {
        "allocation": numbers_of(rows["allocation"]),
        "value_id": numbers_of(rows["value_id"]),
        "name": _text_hashes(rows["instruction"]),
        "hash": row_hash(offset, size, _text_hashes(rows["shape"]), _text_hashes(rows["shape_index"])),
    }


def _instructions(rows: pa.Table) -> dict[str, Ints]:
    return {
        "name": _text_hashes(rows["instruction"]),
        "hash": row_hash(_text_hashes(rows["opcode"]), _text_hashes(rows["shape"])),
    }


def _live_ranges(rows: pa.Table) -> dict[str, Ints]:
    return {name: numbers_of(rows[name]) for name in ("value_id", "start", "end")}


def _schedule(rows: pa.Table) -> dict[str, Ints]:
    return {"time": numbers_of(rows["time"]), "name": _text_hashes(rows["instruction"])}


_REDUCED = {
    "allocations": _allocations,
    "values": _values,
    "instructions": _instructions,
    "live_ranges": _live_ranges,
    "schedule": _schedule,
}


def _numbers(column: pa.ChunkedArray) -> Ints:
    return numbers_of(pc.fill_null(column, _NOTHING) if column.null_count else column)


def _bits(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), np.int64)


# -- hashes


def hash_texts(texts: pa.StringArray) -> Ints:
    """Return a hash of each text, which is the same in every version and on every platform."""
    out = np.empty(len(texts), np.int64)
    if len(texts):
        _, ends, data = texts.buffers()
        offsets = codes(ends)[texts.offset : texts.offset + len(texts) + 1]
        _column.hashes(memoryview(data or b"").cast("B"), offsets, out)
    return out


def _text_hashes(column: pa.ChunkedArray) -> Ints:
    """Return the hash of each row of a dictionary column, 0 for null."""
    parts = [np.empty(0, np.int64)]
    for chunk in column.chunks:
        hashes = np.append(hash_texts(chunk.dictionary), 0)
        parts.append(hashes[pc.fill_null(chunk.indices, -1).to_numpy()])
    return np.concatenate(parts)


def row_hash(*columns: Ints) -> Ints:
    """Return a hash of each row: a linear combination of its columns, mixed (the finalizer of SplitMix64)."""
    total = columns[0] * _FACTORS[0]
    for column, factor in zip(columns[1:], _FACTORS[1:], strict=False):
        total += column * factor
    h: npt.NDArray[np.uint64] = total.view(np.uint64)
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    return h.view(np.int64)


class _Lookup:
    """Looks up columns of a table at the rows with given keys; `_NOTHING` where there is no such row."""

    def __init__(self, table: Mapping[str, Ints], key: str, *columns: str) -> None:
        self.row = Rows(table[key])
        self.columns = [np.append(table[column], _NOTHING) for column in columns]

    def __call__(self, keys: Ints) -> list[Ints]:
        row = self.row(keys)
        return [column[row] for column in self.columns]


def _sums(groups: Ints, hashes: Ints, n: int) -> Ints:
    """Return the sums modulo 2^64 of the hashes of each of n groups."""
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        groups, hashes = groups[order], hashes[order]
    sums = np.append(np.int64(0), np.cumsum(hashes))
    ends = np.cumsum(np.bincount(groups, minlength=n))
    return np.diff(sums[ends], prepend=np.int64(0))


def _hexadecimal(hashes: Ints, known: Iterable[bool]) -> list[str | None]:
    """Return 16 digits for each hash that is known, None for the others."""
    return [f"{h:016x}" if k else None for h, k in zip(hashes.view(np.uint64).tolist(), known, strict=True)]


# -- which dumps have them


def are_known(reader: Reader, tables: Iterable[str]) -> tuple[bool, bool]:
    """Return whether program and interface of a dump can be told from these tables, after reading them.

    The text of their sections must be there to its end.
    """
    names, sections = set(tables), [s for kind in (ASSIGNMENT, USED, LIVE) for s in reader.sections(kind)]
    kinds = {s.kind for s in sections if not s.unavailable}
    truncated = [s for s in sections if s.file.truncated]
    program = len(kinds) == 3 and names.issuperset(Fingerprints.TABLES) and not truncated
    interface = (
        ASSIGNMENT in kinds
        and "allocations" in names
        and not any(s.kind == ASSIGNMENT and s.last for s in truncated)
        and (reader.source.module_name is not None or reader.was_read(HLO) or not reader.sections(HLO))
    )
    return program, interface
