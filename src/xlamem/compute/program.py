"""Join the tables of a dump into a `Program`, from which every computation starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..dump import DumpLike, Tables, as_tables
from ..errors import UsageError
from ..parse.arrays import NULL, Rows, order_by, row_of
from .columns import (
    Ints,
    Mask,
    arrow_array,
    bools,
    decoded,
    encoded,
    ints,
    match_dictionaries,
    nullable,
    take,
    texts_of,
)
from .layout import DONATED, LIVE_OUT, PARAMETER, Layout, schedule_lengths
from .lazy import cached_property
from .op_names import first_numbers, without_placeholders

CLONE = r"\.remat[0-9]*(?:\.[0-9]+)*$"
"""The end of the name of an instruction that XLA's rematerialization pass has cloned."""


def program(dump: DumpLike) -> Program:
    """Return the program of a dump, which is cached. Every computation calls this first."""
    tables = as_tables(dump)
    if "program" not in tables.cache:
        tables.cache.setdefault("program", Program(tables))
    cached: Program = tables.cache["program"]
    return cached


class Program(Layout):
    """A layout together with the names, instructions and source lines of its values."""

    def __init__(self, tables: Tables, *, timed: bool = True) -> None:
        """Place the values of a dump. Unless `timed`, its live ranges are left out."""
        super().__init__(tables.name)
        self._timed = timed
        self.tables = tables
        self._set_allocations(tables["allocations"])
        columns = ("value_id", "allocation", "offset", "size")
        self._value_ids, owner, offset, size = tables.integers("values", *columns)
        if len(self._value_ids) and not len(self.allocation_ids):
            raise UsageError(f"{self.name} has no allocations: the sizes and offsets of its values are not known")
        offset, size = (np.where(a == NULL, 0, a) if len(a) and a.min() == NULL else a for a in (offset, size))
        self._set_values(row_of(self.allocation_ids, owner).astype(np.int32), offset, size)
        self._check_limits()

    @property
    def value_ids(self) -> Ints:
        return self._value_ids

    @cached_property
    def unpadded(self) -> Ints:
        return ints(self.tables["values"], "unpadded_size")

    @property
    def _live_ranges(self) -> pa.Table:
        return self.tables["live_ranges"] if self._timed else schema.TABLES["live_ranges"].empty

    @cached_property
    def steps(self) -> int | None:
        ranges = self._live_ranges.num_rows
        if not ranges:
            return None
        printed = self.tables.schedule_length  # not from `modules`, which would tokenise every section
        counts = (-1 if printed is None else printed, self.tables.count_rows("schedule"), ranges)
        return int(schedule_lengths(*(np.array([n]) for n in counts))[0]) + 1

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        live = self._live_ranges
        rows = Rows(ints(live, "value_id"))
        start, end = ints(live, "start"), ints(live, "end")
        if not len(start):
            return np.full(len(self.owner), -1, np.int64), np.full(len(self.owner), -1, np.int64)
        row, top = rows(self.value_ids), self.steps or 1
        start, end = np.clip(start[row], 0, top), np.clip(end[row], -1, top)
        start[row < 0] = end[row < 0] = -1
        return start, end

    def optional(self, name: str) -> pa.Table:
        """Return a table, or an empty one if it was left out of the dump."""
        return self.tables[name] if name in self.tables.tables else schema.TABLES[name].empty

    # -- names and source lines ------------------------------------------------------------------

    def texts(self, table: str, column: str) -> tuple[Ints, pa.Array]:
        """Return the codes (-1 for null) and the dictionary of a text column, which are cached."""
        return self.once(("texts", table, column), lambda: _read_only(*encoded(self.tables[table][column])))

    @cached_property
    def element(self) -> Ints:
        """First number of the shape index of each value, -1 for none."""
        return first_numbers(self.tables["values"]["shape_index"])

    @property
    def names(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the instruction names of the values."""
        return self.texts("values", "instruction")

    @cached_property
    def instruction_row(self) -> Ints:
        """Row of the defining instruction of each value in `instructions`, -1 if its text is not printed."""
        return self.row_of_instruction(self.tables["values"]["instruction"])

    @cached_property
    def _source_lines(self) -> tuple[Ints, pa.Array, Ints]:
        """File codes, files and lines of the rows of `instructions`, as printed or from their stack frames."""
        table = self.tables["instructions"]
        return _with_frames(
            table["source_file"], ints(table, "source_line"), ints(table, "stack_frame_id"), self.optional("frames")
        )

    def source_columns(self, values: Ints) -> dict[str, pa.Array]:
        """Return the columns op_name, source_file and source_line of these values (null for -1), as printed.

        In the allocation of a parameter, values without an op_name (copies, updates in place) get the parameter's.
        """
        codes, op_names, row = self.op_names(values)
        return {"op_name": decoded(codes, op_names), **self.source_lines(row)}

    def source_lines(self, rows: Ints) -> dict[str, pa.Array]:
        """Return the columns source_file and source_line of these rows of `instructions` (null for -1)."""
        codes, files, lines = self._source_lines
        return {"source_file": decoded(take(codes, rows), files), "source_line": nullable(take(lines, rows))}

    def op_names(self, values: Ints) -> tuple[Ints, pa.Array, Ints]:
        """Return codes (-1 for null) and dictionary of the op_names of these values, and rows in `instructions`."""
        codes, op_names = self.printed_op_names
        if not len(codes) or not len(self.owner):
            return np.full(len(values), -1), op_names, np.full(len(values), -1)
        row = np.where(values >= 0, self.instruction_row[values], -1)
        unnamed = (row < 0) | (codes[row] < 0)
        category = self.value_category[values]
        parameter = self.representative[self.owner[values]]
        borrows = unnamed & (values >= 0) & ((category == PARAMETER) | (category == DONATED)) & (parameter >= 0)
        row = np.where(borrows, self.instruction_row[parameter], row)
        return take(codes, row), op_names, row

    @cached_property
    def printed_op_names(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the op_names of `instructions`; -1 for null and for names that name nothing."""
        return without_placeholders(*self.texts("instructions", "op_name"))

    def value_text(self, column: str, values: Ints) -> pa.Array:
        """Return these rows of a text column of `values` (null for -1)."""
        return texts_of(self.texts("values", column), values)

    def row_of_value(self, value_ids: Ints) -> Ints:
        """Return the row in `values` of each value id, or -1."""
        return self._rows_of_ids(value_ids)

    @cached_property
    def _rows_of_ids(self) -> Rows:
        return Rows(self.value_ids)

    def row_of_instruction(self, names: pa.ChunkedArray) -> Ints:
        """Return the row in `instructions` of each name, or -1."""
        codes, dictionary = encoded(names)
        _, printed_names = self.texts("instructions", "instruction")
        return take(take(self._row_of_name, match_dictionaries(dictionary, printed_names)), codes)

    @cached_property
    def _row_of_name(self) -> Ints:
        """First row in `instructions` of each name of its dictionary."""
        printed, printed_names = self.texts("instructions", "instruction")
        return row_of(printed, np.arange(len(printed_names)))

    @cached_property
    def slots(self) -> Ints:
        """Number of the slot of each value; values in one slot have the same bytes and element type."""
        element_type = self.texts("values", "element_type")[0]
        return distinct_rows(self.owner, self.offset, self.size, self.unpadded, element_type)

    @cached_property
    def chains(self) -> Ints:
        """Number of the chain of each value: values in one slot of which each begins when one before it is still live.

        What is written in place over and over is one chain. After a gap, a slot of temporaries belongs to something
        else, whereas that of an argument is updated.
        """
        start, end = self.ranges
        after = int(max(start.max(initial=0), end.max(initial=0))) + 1
        end = np.where((start < 0) | ~self.in_temp, after, end)
        order = np.lexsort((start, self.slots))
        slot, start = self.slots[order], start[order]
        reach = np.maximum.accumulate(slot * (after + 1) + end[order]) - slot * (after + 1)
        begins = np.append(True, (slot[1:] != slot[:-1]) | (start[1:] > reach[:-1]))[: len(order)]
        chains = np.empty(len(order), np.int64)
        chains[order] = np.cumsum(begins)
        return chains

    # -- what represents an allocation -----------------------------------------------------------

    @cached_property
    def representative(self) -> Ints:
        """Value that names each allocation: its parameter or output, or else its largest value; -1 without values.

        The highest id decides between values of the same size.
        """
        values = np.full(len(self.allocation_ids), -1, np.int64)
        order = np.arange(len(self.owner))
        is_output = (self.value_category == LIVE_OUT) & self.is_output(order)
        order = order_by(is_output.astype(np.int64), self.size, self.value_ids)
        values[self.owner[order]] = order
        parameters = order[self._is_parameter(order)]
        values[self.owner[parameters]] = parameters
        return values

    @cached_property
    def entry_parameters(self) -> Ints:
        """Rows in `values` of the entry parameters, or of their elements."""
        return np.flatnonzero(self._is_parameter(np.arange(len(self.owner))))

    def _is_parameter(self, values: Ints) -> Mask:
        """Return whether each of these values is the entry parameter (and index) that its allocation holds.

        Dumps without instructions show it by the live ranges: only a parameter is live in its allocation at step 0.
        """
        instructions, table = self.tables["instructions"], self.tables["values"]
        category, row = self.value_category[values], self.instruction_row[values]
        is_parameter: Mask = (category == PARAMETER) | (category == DONATED)
        is_parameter &= ~bools(table, "is_phi")[values]
        if instructions.num_rows:
            codes, opcodes = self.texts("instructions", "opcode")
            opcode = pc.index(opcodes, "parameter").as_py()
            is_parameter &= (opcode >= 0) & (take(codes, row) == opcode)
        else:
            is_parameter &= self.ranges[0][values] == 0
        candidates = np.flatnonzero(is_parameter)
        owner = arrow_array(self.owner[values[candidates]])
        index = _shape_index(pc.take(table["shape_index"], arrow_array(values[candidates])))
        same = pc.equal(index, _shape_index(pc.take(self.allocations["parameter_shape_index"], owner)))
        if instructions.num_rows:
            number = pc.take(pc.cast(self.allocations["parameter_number"], pa.string()), owner)
            same = pc.and_(same, pc.equal(pc.take(instructions["operands"], arrow_array(row[candidates])), number))
        is_parameter[candidates] = pc.fill_null(same, False).to_numpy()
        return is_parameter


def source_lines(files: pa.ChunkedArray, line: Ints, stack_frame: Ints, frames: pa.Table) -> dict[str, pa.Array]:
    """Return the columns source_file and source_line of instructions: as printed, or from their stack frames."""
    codes, names, lines = _with_frames(files, np.maximum(line, -1), np.maximum(stack_frame, -1), frames)
    return {"source_file": decoded(codes, names), "source_line": nullable(lines)}


def _read_only(codes: Ints, dictionary: pa.Array) -> tuple[Ints, pa.Array]:
    codes.setflags(write=False)
    return codes, dictionary


def _with_frames(
    source_file: pa.ChunkedArray, line: Ints, stack_frame: Ints, frames: pa.Table
) -> tuple[Ints, pa.Array, Ints]:
    """Return file codes, files and lines; where no file is printed, those of the stack frame."""
    codes, files = encoded(source_file)
    if frames.num_rows:
        frame_codes, frame_files = encoded(frames["file"])
        frame = row_of(ints(frames, "id"), stack_frame)
        from_frame = (codes < 0) & (frame >= 0)
        file_code = np.where(frame_codes[frame] >= 0, frame_codes[frame] + len(files), -1)
        codes = np.where(from_frame, file_code, codes)
        line = np.where(from_frame, ints(frames, "line")[frame], line)
        files = pa.concat_arrays([files, frame_files])
    return codes, files, line


def _shape_index(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(column, pa.string()), "{}")


def distinct_rows(*columns: npt.NDArray[np.integer[Any]]) -> Ints:
    """Number the distinct rows of these columns."""
    order = order_by(*columns)
    changed = np.zeros(len(order), bool)
    for column in columns:
        changed[1:] |= np.diff(column[order]) != 0
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(changed)
    return number
