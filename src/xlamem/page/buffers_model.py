"""The buffers of a program as columns: allocations, instructions, values, uses, aliases and scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.buffer_names import KINDS, buffer_names, functions
from ..compute.charges import FUNCTION, live_set_of
from ..compute.columns import Ints, encoded, ints, nullable, take, take_text
from ..compute.grouping import have_functions_only
from ..compute.layout import CATEGORIES, CONSTANT, LIVE_OUT, TEMP, TEMP_IN_OUTPUT, THREAD_LOCAL
from ..compute.op_names import PHASES
from ..compute.origins import ORIGINS
from ..compute.program import Program
from ..compute.removal import saved_by_chain
from ..compute.selection import MAIN_SPACES
from ..parse.arrays import order_by, stable_order
from .model import Aliases, Allocations, Buffers, Instructions, Scopes, Uses
from .scopes_model import scope_tree
from .texts import Encoded, compacted, joined, numbered

COMPUTED = TEMP, TEMP_IN_OUTPUT, LIVE_OUT
"""Categories of buffers that may be arranged by function."""


@dataclass(frozen=True)
class BufferModel:
    """The parts of the model about buffers."""

    allocations: Allocations
    instructions: Instructions
    buffers: Buffers
    uses: Uses
    aliases: Aliases
    scopes: Scopes
    schedule: Ints


def buffer_model(p: Program, space_rows: Ints) -> BufferModel:
    """Return the buffers of a program. `space_rows` is the row in the model of each memory space of the program."""
    owners = np.flatnonzero(p.category != THREAD_LOCAL)
    start, end = _ranges(p)
    values = np.flatnonzero(p.value_category != THREAD_LOCAL)
    first = np.where(start < 0, p.steps or 1, start)[values]
    values = values[order_by(first, p.value_ids[values])]
    named = buffer_names(p, values)
    uses, positions = _places(p, values, "uses"), _places(p, values, "positions")
    columns = [_schedule(p), _texts(p.names, values), encoded(named["origin_instruction"]), uses.name, positions.name]
    printed = p.texts("instructions", "instruction")
    (schedule, defines, origin, reads, aliases, rows), names = joined(columns, (printed,))
    opcode = _opcodes(p, rows, len(names))
    op_name = compacted(named["op_name"])
    tree = scope_tree(op_name, (take(opcode[0], defines), opcode[1]), _functions(p, values))
    columns_of_values = _value_columns(p, values, np.searchsorted(owners, p.owner[values]))
    buffers = Buffers(
        instruction=defines,
        start=start[values],
        end=end[values],
        op_name=op_name[0],
        op_name_names=op_name[1],
        scope=tree.row,
        origin_instruction=origin,
        **_name_columns(named),
        **columns_of_values,
    )
    step = _step_of_instruction(schedule, len(names))
    return BufferModel(
        allocations=_allocations(p, owners, space_rows),
        instructions=Instructions(names, *opcode),
        buffers=buffers,
        uses=_distinct_uses(uses.buffer, reads, step),
        aliases=_other_positions(p, positions, aliases, buffers),
        scopes=tree.scopes,
        schedule=schedule,
    )


def _ranges(p: Program) -> tuple[Ints, Ints]:
    """Return the first and last step at which each value occupies its bytes; -1 for never, and without live ranges."""
    if p.steps is None:
        return np.full(len(p.owner), -1), np.full(len(p.owner), -1)
    start, end = p.occupied_ranges()
    return start, np.where(start < 0, -1, end)


def _functions(p: Program, values: Ints) -> Encoded | None:
    """Return the functions of temporaries and outputs if they tell more than scopes at the peak of the main memory."""
    main = next((s.name for s in p.spaces if s.name in MAIN_SPACES), None)
    if p.steps is None or main is None:
        return None
    if not have_functions_only(live_set_of(p, None, main, ["category", "op_name", "bytes", FUNCTION])):
        return None
    codes, texts = compacted(functions(p, values))
    return np.where(np.isin(p.categories_of(values), COMPUTED), codes, -1), texts


def _texts(column: Encoded, rows: Ints) -> Encoded:
    return take(column[0], rows), column[1]


# -- allocations ---------------------------------------------------------------------------------


def _allocations(p: Program, owners: Ints, space_rows: Ints) -> Allocations:
    return Allocations(
        allocation=p.allocation_ids[owners],
        space=space_rows[p.space_of_allocation[owners]],
        size=p.allocation_size[owners],
        category=p.category[owners],
        category_names=list(CATEGORIES),
        label=_labels(p, owners),
    )


def _labels(p: Program, owners: Ints) -> pa.Array:
    """Return what people call these allocations: the argument, the output, or the number of the arena."""
    value, category = p.representative[owners], p.category[owners]
    number = pa.array(p.allocation_ids[owners]).cast(pa.string())
    instruction = p.value_text("instruction", value).cast(pa.string())
    op_name = p.source_columns(value)["op_name"].cast(pa.string())
    argument = nullable(take(ints(p.allocations, "parameter_number"), owners)).cast(pa.string())
    index = take_text(p.allocations["parameter_shape_index"], owners).cast(pa.string())
    index = pc.if_else(pc.equal(index, "{}"), "", index).fill_null("")
    numbered = pc.binary_join_element_wise("argument ", argument, index, "")
    texts = {
        TEMP: pc.binary_join_element_wise("arena", number, " "),
        LIVE_OUT: pc.binary_join_element_wise("output", instruction, " "),
        CONSTANT: pc.binary_join_element_wise("constant", instruction, " "),
    }
    labels = pc.coalesce(op_name, numbered)
    for code, text in texts.items():
        labels = pc.if_else(pa.array(category == code), text, labels)
    return pc.coalesce(labels, pc.binary_join_element_wise("allocation", number, " "))


# -- columns of buffers --------------------------------------------------------------------------


def _value_columns(p: Program, values: Ints, allocation: Ints) -> dict[str, Any]:
    """Return the columns of these values that are not names."""
    shape, shape_names = compacted(p.value_text("shape", values))
    index, index_names = _indices(_texts(p.texts("values", "shape_index"), values))
    return {
        "value_id": p.value_ids[values],
        "shape_index": index,
        "shape_index_names": index_names,
        "allocation": allocation,
        "offset": p.offset[values],
        "size": p.size[values],
        "unpadded": p.unpadded[values],
        "shape": shape,
        "shape_names": shape_names,
        "category": p.categories_of(values),
        "category_names": list(CATEGORIES),
        "saving": _savings(p, values),
    }


def _indices(column: Encoded) -> Encoded:
    """Return shape indices, of which `{}` says no more than none."""
    codes, names = column
    empty = pc.index(names.cast(pa.string()), "{}").as_py()
    return compacted(pa.DictionaryArray.from_arrays(nullable(np.where(codes == empty, -1, codes)), names))


def _savings(p: Program, values: Ints) -> Ints:
    """Return by how much the peak of its space would be lower without the chain of each of these values, at most.

    For the parameter, the constant or the output that stands for an allocation, all of it; 0 if that is a temporary in
    an output's memory, which is needed as before. It is not known (-1) for other values in those allocations, nor
    without live ranges for temporaries.
    """
    entire = np.full(len(p.owner), -1, np.int64)
    fixed = np.flatnonzero(p.is_fixed & (p.representative >= 0))
    entire[p.representative[fixed]] = p.allocation_size[fixed]
    if p.steps is None:
        return entire[values]
    saving = np.where(p.in_temp, saved_by_chain(p), entire)[values]
    borrows = (saving > 0) & (p.categories_of(values) == TEMP_IN_OUTPUT)
    return np.where(borrows, 0, saving)


def _name_columns(named: dict[str, pa.Array]) -> dict[str, Any]:
    """Return the columns that name buffers, except op_name and origin_instruction."""
    source, source_names = compacted(_file_lines(named))
    layer, layer_names = compacted(named["layer"])
    columns: dict[str, Any] = {"source": source, "source_names": source_names}
    columns |= {"layer": layer, "layer_names": layer_names.to_pylist()}
    for name in ("layer_index", "iterations"):
        columns[name] = np.asarray(named[name].fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    for name, texts in (("origin", ORIGINS), ("phase", PHASES), ("kind", KINDS)):
        codes, names = encoded(named[name])
        columns[name] = take(np.array([texts.index(text) for text in names.to_pylist()], np.int64), codes)
        columns[f"{name}_names"] = list(texts)
    return columns


def _file_lines(named: dict[str, pa.Array]) -> pa.Array:
    """Return `file:line` of each buffer, each distinct one built once."""
    codes, files = encoded(named["source_file"])
    line = np.asarray(named["source_line"].fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    width = int(line.max(initial=0)) + 2
    keys, row = numbered((codes + 1) * width + line + 1)
    file = take_text(files, keys // width - 1).cast(pa.string())
    number = nullable(keys % width - 1).cast(pa.string())
    texts = pc.coalesce(pc.binary_join_element_wise(file, number, ":"), file)
    return pa.DictionaryArray.from_arrays(nullable(np.where(codes < 0, -1, row)), texts)


# -- instructions --------------------------------------------------------------------------------


def _schedule(p: Program) -> Encoded:
    """Return the instruction of each step; the state after the last one, and steps that are not printed, have none."""
    schedule = p.optional("schedule")
    codes, names = encoded(schedule["instruction"])
    step = ints(schedule, "time")
    by_step = np.full(p.steps or 0, -1, np.int64)
    valid = (step >= 0) & (step < len(by_step))
    by_step[step[valid]] = codes[valid]
    return by_step, names


def _step_of_instruction(schedule: Ints, n: int) -> Ints:
    step = np.full(n, -1, np.int64)
    scheduled = np.flatnonzero(schedule >= 0)[::-1]
    step[schedule[scheduled]] = scheduled
    return step


def _opcodes(p: Program, rows: Ints, n: int) -> tuple[Ints, list[str]]:
    """Return the opcodes of n instructions, of which `rows` numbers those of the table, and their names."""
    codes, texts = compacted(p.tables["instructions"]["opcode"])
    opcode = np.full(n + 1, -1, np.int64)
    opcode[rows[::-1]] = codes[::-1]
    return opcode[:-1], texts.to_pylist()


# -- uses and aliases ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Places:
    """Instructions where the bytes of buffers are read or appear, by buffer."""

    rows: Ints
    """Rows of the table that has them."""
    buffer: Ints
    name: Encoded


def _places(p: Program, values: Ints, table: str) -> _Places:
    """Return the rows of a table that belong to these values."""
    rows = p.optional(table)
    row_of_value = np.full(len(p.owner) + 1, -1, np.int64)
    row_of_value[values] = np.arange(len(values))
    buffer = row_of_value[p.row_of_value(ints(rows, "value_id"))]
    order = stable_order(buffer)
    order = order[np.searchsorted(buffer[order], 0) :]
    return _Places(order, buffer[order], _texts(encoded(rows["instruction"]), order))


def _distinct_uses(buffer: Ints, instruction: Ints, step: Ints) -> Uses:
    """Return each instruction that reads a buffer once, given the step of each instruction.

    Those in the schedule are numbered in its order.
    """
    n = len(step)
    place = np.where(step >= 0, n, 0) + np.arange(n)
    bits = (2 * n).bit_length()
    key = np.sort((buffer << bits) + place[instruction])
    key = key[np.diff(key, prepend=-1) != 0]
    place = key & ((1 << bits) - 1)
    instruction = np.where(place < n, place, place - n)
    return Uses(key >> bits, instruction, take(step, instruction))


def _other_positions(p: Program, places: _Places, instruction: Ints, buffers: Buffers) -> Aliases:
    """Return the positions of buffers other than those that define them."""
    printed = _indices(_texts(encoded(p.optional("positions")["shape_index"]), places.rows))
    (index, own), names = joined([printed, (buffers.shape_index, buffers.shape_index_names)])
    is_other = (instruction != buffers.instruction[places.buffer]) | (index != own[places.buffer])
    others, texts = compacted(pa.DictionaryArray.from_arrays(nullable(index[is_other]), names))
    return Aliases(places.buffer[is_other], instruction[is_other], others, texts)
