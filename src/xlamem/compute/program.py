"""The columns of a dump as NumPy arrays, joined: what every computation starts from."""

from __future__ import annotations

import html
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..dump import Dump
from ..errors import DumpError, UsageError
from ..parse.arrays import NULL, Codes, Rows, row_of

Ints = npt.NDArray[np.int64]
Kinds = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

CATEGORIES = ("thread_local", "constant", "donated", "parameter", "live_out", "temp", "temp_in_output")
"""Of an allocation, the first that holds (DESIGN: section 4); the last is of values only (`Program.category_of`)."""
THREAD_LOCAL, CONSTANT, DONATED, PARAMETER, LIVE_OUT, TEMP, TEMP_IN_OUTPUT = range(7)


def ints(table: pa.Table, column: str, missing: int = -1) -> Ints:
    """An integer column, nulls replaced."""
    values = table[column]
    if values.null_count:
        values = values.fill_null(missing)
    return np.ascontiguousarray(values.to_numpy(), np.int64)


def bools(table: pa.Table, column: str) -> Mask:
    return np.asarray(table[column].to_numpy(), bool)


def coded(column: pa.ChunkedArray) -> tuple[Ints, pa.Array]:
    """(codes, texts) of a dictionary column; -1 for null."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], column.type)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices = array.indices.fill_null(-1) if array.null_count else array.indices
    return np.ascontiguousarray(indices.to_numpy(zero_copy_only=False), np.int64), array.dictionary


def decoded(codes: Ints, texts: pa.Array) -> pa.Array:
    """The dictionary column of these codes; null where the code is negative."""
    mask = pa.array(codes < 0)
    indices = pa.array(np.where(codes < 0, 0, codes).astype(np.int32), mask=mask.to_numpy(zero_copy_only=False))
    if not len(texts):
        return pa.nulls(len(codes), pa.dictionary(pa.int32(), pa.string()))
    return pa.DictionaryArray.from_arrays(indices, texts)


def translated(mine: pa.Array, theirs: pa.Array) -> Ints:
    """For each text of `mine` its place in `theirs`, -1 if it is not there.

    Dictionaries of one dump are beginnings of each other: then nothing needs to be looked up.
    """
    if len(mine) <= len(theirs) and theirs.slice(0, len(mine)).equals(mine):
        return np.arange(len(mine))
    if len(theirs) < len(mine) and mine.slice(0, len(theirs)).equals(theirs):
        return np.where(np.arange(len(mine)) < len(theirs), np.arange(len(mine)), -1)
    return np.asarray(pc.index_in(mine, theirs).fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


@dataclass(frozen=True)
class Space:
    """A memory space: allocations of one (color, page)."""

    name: str
    color: int
    page: int


MOST = 1 << 62
"""Bytes up to which sizes are added up: no sum of two numbers below it overflows."""


def length_of(printed: Ints, scheduled: Ints, ranges: Ints) -> Ints:
    """Schedule lengths, -1 where one is not known.

    As printed, unless that is not a number of 64 bits (-1), or more than there are steps and live ranges in the text
    together: then the number of steps in the text.
    """
    impossible = (printed < 0) | (printed > scheduled + ranges)
    return np.where(impossible & (scheduled >= 0), scheduled, printed)


class Program:
    """Joined columns of one dump. Times are schedule steps, sizes bytes; -1 stands for null."""

    ids: Ints
    """value_id of each value."""

    def __init__(self, dump: Dump) -> None:
        self.dump = dump
        self._take_allocations(dump.allocations)
        self.ids, owner, offset, size = dump._numbers("values", "value_id", "allocation", "offset", "size")
        if len(self.ids) and not len(self.index):
            raise UsageError(f"{dump.name} has no allocations: nothing is known of sizes and places")
        offset, size = (np.where(a == NULL, 0, a) if len(a) and a.min() == NULL else a for a in (offset, size))
        self._take_values(row_of(self.index, owner).astype(np.int32), offset, size)
        self._check()

    def _check(self) -> None:
        """Sums of sizes must not overflow."""
        if not adds_up(self.allocation_size, self.offset, self.size):
            wanted = "sizes and offsets from 0 on that add up to less than 2^62 bytes"
            raise DumpError(self.dump.name, wanted, "allocations")

    def _take_allocations(self, a: pa.Table) -> None:
        self.allocations = a
        self.index = ints(a, "allocation")
        self.allocation_size = ints(a, "size")
        color, page = ints(a, "color"), np.maximum(ints(a, "page", 0), 0)
        # Colors and pages can be any numbers: their ranks are below the number of allocations.
        pages, rank = np.unique(page, return_inverse=True)
        key = np.unique(color, return_inverse=True)[1].reshape(-1) * len(pages) + rank.reshape(-1)
        _, first, space = np.unique(key, return_index=True, return_inverse=True)
        self.space_of_allocation: Ints = space.reshape(-1).astype(np.int64)
        names = a["memory_space"].take(pa.array(first)).to_pylist()
        self.spaces = [Space(n, int(color[i]), int(page[i])) for n, i in zip(names, first, strict=True)]
        parameter, live_out = bools(a, "is_parameter"), bools(a, "is_live_out")
        self.category: Ints = np.select(
            [bools(a, "is_thread_local"), bools(a, "is_constant"), parameter & live_out, parameter, live_out],
            [THREAD_LOCAL, CONSTANT, DONATED, PARAMETER, LIVE_OUT],
            TEMP,
        ).astype(np.int64)

    def _take_values(self, owner: Codes, offset: Ints, size: Ints) -> None:
        self.owner, self.offset, self.size = owner, offset, size
        """Row in `allocations` of each value, and where it lies there."""
        room = self.allocation_size[owner] if len(owner) else size
        room = np.maximum(room, 0) - np.clip(offset, 0, MOST)
        self.extent = size if (size <= room).all() else np.clip(room, 0, size)
        """Bytes of each value that its allocation has: all, unless the text contradicts itself."""
        self.space: Codes = self.space_of_allocation.astype(np.int32)[self.owner]
        self.value_category: Kinds = self.category.astype(np.int8)[self.owner]

    @cached_property
    def steps(self) -> int | None:
        """Number of instants: schedule length + 1 (see `length_of`); None for a dump without live ranges."""
        ranges = self.dump.live_ranges.num_rows
        if not ranges:
            return None
        length = self.dump.schedule_length  # not from `modules`, for which everything would be read
        known = (np.array([n]) for n in (-1 if length is None else length, self.dump._rows("schedule"), ranges))
        return int(length_of(*known)[0]) + 1

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        """(start, end) of each value, closed; -1 where it has no live range.

        What lies outside of the schedule is cut off, so that a range of which nothing is left, or that ends before it
        starts, has a start above its end or the last instant: it holds no step.
        """
        live = self.dump.live_ranges
        found = Rows(ints(live, "value_id"))
        start, end = ints(live, "start"), ints(live, "end")
        if not len(start):
            return np.full(len(self.ids), -1, np.int64), np.full(len(self.ids), -1, np.int64)
        row, top = found(self.ids), self.steps or 1
        start, end = np.clip(start[row], 0, top), np.clip(end[row], -1, top)
        start[row < 0] = end[row < 0] = -1
        return start, end

    @cached_property
    def unpadded(self) -> Ints:
        """Bytes of each value without padding; 0 where that is not known."""
        return np.maximum(ints(self.dump.values, "unpadded_size"), 0)

    def held(self, interval: str = "closed") -> tuple[Ints, Ints]:
        """(start, end) that count for occupancy: a temp value without a range is there always, others never."""
        if interval not in ("closed", "half-open"):
            raise UsageError(f"interval must be 'closed' or 'half-open', not {interval!r}")
        start, end = (a.copy() for a in self.ranges)
        steps, lacking = self.steps or 1, start < 0
        start[(start >= steps) | (start > end)] = -1  # nothing happens beyond the schedule
        if interval == "half-open":
            np.maximum(end - 1, start, out=end)
            end[start < 0] = -1
        np.minimum(end, steps - 1, out=end)
        always = lacking & (self.value_category == TEMP)
        start[always], end[always] = 0, steps - 1
        return start, end

    @cached_property
    def ending(self) -> Ints:
        """The step after the last instruction, for each value."""
        return np.broadcast_to(np.int64((self.steps or 0) - 1), len(self.ids))

    def is_output(self, values: Ints) -> Mask:
        """Whether these values are live after the last instruction: in an allocation that is live-out, the output."""
        found: Mask = self.ranges[1][values] >= self.ending[values]
        return found

    def category_of(self, values: Ints) -> Ints:
        """Category of these rows of `values`: that of the allocation, or `temp_in_output`.

        In the allocation of an output the output is live after the last instruction, and a donated parameter is
        live from step 0 on. Any other value there only borrows the bytes. Without live ranges this is not known.
        """
        kind = self.value_category[values].astype(np.int64)
        if self.steps is None:
            return kind
        start = self.ranges[0][values]
        own = self.is_output(values) | (start < 0) | ((kind == DONATED) & (start == 0))
        return np.where(((kind == LIVE_OUT) | (kind == DONATED)) & ~own, TEMP_IN_OUTPUT, kind)

    def chosen(self, space: str | int | None) -> list[int]:
        """Numbers of the spaces that `space` (a name or a color) selects; all for None."""
        found = [i for i, s in enumerate(self.spaces) if space is None or space in (s.name, s.color)]
        if not found and space is not None:
            there = ", ".join(f"{s.name} (color {s.color})" for s in self.spaces) or "none"
            raise UsageError(f"no memory space {space!r}; this dump has {there}")
        return found

    # -- where values come from ------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[Ints, pa.Array]:
        return coded(self.dump.values["instruction"])

    @cached_property
    def instruction_row(self) -> Ints:
        """Row in `instructions` of each value's defining instruction, -1 where its text is not printed."""
        codes, texts = self.names
        mine, known = coded(self.dump.instructions["instruction"])
        if not len(mine) or not len(codes):
            return np.full(len(codes), -1, np.int64)
        place = translated(texts, known)
        first = row_of(mine, np.arange(len(known)))
        by_code = np.where(place >= 0, first[place], -1)
        return np.where(codes >= 0, by_code[codes], -1)

    def of_instruction(self, column: str, values: Ints) -> pa.Array:
        """A text column of `instructions` for these rows of `values`."""
        codes, texts = coded(self.dump.instructions[column])
        row = self.instruction_row[values]
        return decoded(np.where(row >= 0, codes[row], -1) if len(codes) else np.full(len(row), -1), texts)

    @cached_property
    def lines(self) -> tuple[Ints, pa.Array, Ints]:
        """(file codes, files, line) of each row of `instructions`: inline, or through its stack frame."""
        table, frames = self.dump.instructions, self.dump.frames
        codes, files = coded(table["source_file"])
        line = ints(table, "source_line")
        if frames.num_rows:
            frame_codes, frame_files = coded(frames["file"])
            row = row_of(ints(frames, "id"), ints(table, "stack_frame_id"))
            use = (codes < 0) & (row >= 0)
            codes = np.where(use, np.where(frame_codes[row] >= 0, frame_codes[row] + len(files), -1), codes)
            line = np.where(use, ints(frames, "line")[row], line)
            files = pa.concat_arrays([files, frame_files])
        return codes, files, line

    def place(self, values: Ints) -> dict[str, pa.Array]:
        """op_name, source_file and source_line of these rows of `values` (-1: null).

        What has no op_name of its own but lies in a parameter's allocation (a copy, an update in place) has the
        parameter's.
        """
        names, texts, row = self.named(values)
        codes, files, line = self.lines
        if len(codes):
            file, at = np.where(row >= 0, codes[row], -1), np.where(row >= 0, line[row], -1)
        else:
            file = at = row
        return {
            "op_name": decoded(names, texts),
            "source_file": decoded(file, files),
            "source_line": pa.array(at, mask=at < 0),
        }

    def named(self, values: Ints) -> tuple[Ints, pa.Array, Ints]:
        """(codes, op_names) of these rows of `values` (-1: null), and the rows of `instructions` that say so."""
        names, texts = coded(self.dump.instructions["op_name"])
        if not len(names) or not len(self.ids):
            return np.full(len(values), -1), texts, np.full(len(values), -1)
        row = np.where(values >= 0, self.instruction_row[values], -1)
        nameless = (row < 0) | (names[row] < 0)
        kind = self.value_category[values]
        parameter = self.representative[self.owner[values]]
        use = nameless & (values >= 0) & ((kind == PARAMETER) | (kind == DONATED)) & (parameter >= 0)
        row = np.where(use, self.instruction_row[parameter], row)
        return np.where(row >= 0, names[row], -1), texts, row

    def of_value(self, column: str, values: Ints) -> pa.Array:
        """A text column of `values` for these rows (-1: null)."""
        codes, texts = coded(self.dump.values[column])
        if not len(codes):
            return decoded(np.full(len(values), -1), texts)
        return decoded(np.where(values >= 0, codes[values], -1), texts)

    def space_columns(self, spaces: Ints) -> dict[str, Any]:
        """The columns that name a space, for these numbers of spaces."""
        name = pa.DictionaryArray.from_arrays(
            pa.array(spaces.astype(np.int32)), pa.array([s.name for s in self.spaces], pa.string())
        ) if self.spaces else pa.nulls(0, schema.ARROW["name"])  # fmt: skip
        color = np.array([s.color for s in self.spaces], np.int64)
        page = np.array([s.page for s in self.spaces], np.int64)
        return {
            "memory_space": name,
            "color": pa.array(color[spaces] if len(color) else color),
            "page": pa.array(page[spaces] if len(page) else page),
        }

    def _is_parameter(self, values: Ints) -> Mask:
        """Whether these values are the entry parameter that their allocation holds, at its index."""
        instructions, a = self.dump.instructions, self.allocations
        kind = self.value_category[values]
        row = self.instruction_row[values]
        codes, opcodes = coded(instructions["opcode"])
        opcode = pc.index(opcodes, "parameter").as_py()
        found: Mask = (row >= 0) & (opcode >= 0) & (codes[row] == opcode) & ((kind == PARAMETER) | (kind == DONATED))
        found &= ~bools(self.dump.values, "is_phi")[values]
        at = np.flatnonzero(found)
        owner = pa.array(self.owner[values[at]])
        number = a["parameter_number"].cast(pa.string()).take(owner)
        same = pc.equal(instructions["operands"].take(pa.array(row[at])), number)
        index = self.dump.values["shape_index"].take(pa.array(values[at])).cast(pa.string()).fill_null("{}")
        wanted = a["parameter_shape_index"].take(owner).cast(pa.string()).fill_null("{}")
        found[at] = pc.and_(same, pc.equal(index, wanted)).fill_null(False).to_numpy()
        return found

    @cached_property
    def representative(self) -> Ints:
        """Row in `values` that stands for each allocation: its parameter, else its value with the highest id."""
        found = np.full(len(self.index), -1, np.int64)
        order = np.argsort(self.ids, kind="stable")
        found[self.owner[order]] = order
        if len(self.ids) and self.dump.instructions.num_rows:
            at = order[self._is_parameter(order)]
            found[self.owner[at]] = at
        return found


def adds_up(allocated: Ints, offset: Ints, size: Ints) -> bool:
    """Whether there is nothing below 0, and all of it together is less than MOST."""
    if any(len(a) and a.min() < 0 for a in (allocated, offset, size)):
        return False
    total = allocated.sum(dtype=np.float64) + size.sum(dtype=np.float64) + float(offset.max(initial=0))
    return bool(total < MOST)


def table(name: str, columns: dict[str, Any]) -> pa.Table:
    """The computed table of the schema, from arrays by column."""
    spec = schema.COMPUTED[name]
    arrays = []
    for column in spec.columns:
        value = columns[column.name]
        array = value if isinstance(value, (pa.Array, pa.ChunkedArray)) else pa.array(value)
        if column.kind == "name" and not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        arrays.append(array if array.type == column.arrow.type else array.cast(column.arrow.type))
    return pa.table(arrays, schema=spec.arrow)


def html_of(rows: pa.Table) -> str:
    """A small table for a notebook."""
    head = "".join(f"<th>{html.escape(n)}</th>" for n in rows.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{'' if v is None else html.escape(str(v))}</td>" for v in row.values()) + "</tr>"
        for row in rows.slice(0, 50).to_pylist()
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def nullable(values: Ints) -> pa.Array:
    """int64 with null for -1."""
    return pa.array(values, mask=values < 0)


def program(dump: Dump) -> Program:
    """The joined columns of a dump, made once."""
    found: Program | None = dump._cache.get("program")
    if found is None:
        found = Program(dump)
        dump._cache.setdefault("program", found)
    return found
