"""Everything about one buffer: what defines and reads it, what keeps it alive, and what shares its bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..dump import DumpLike
from ..errors import UsageError, utf8
from ..formatting import closest
from .buffer_names import buffer_names, source_columns, stack_frames
from .callers import calls_outside
from .charges import Charges, live_set_columns
from .columns import Ints, Mask, arrow_array, encoded, flags_of, ints, table_of_columns
from .layout import TEMP, TEMP_IN_OUTPUT, THREAD_LOCAL
from .op_names import matching, plain_names
from .origins import ARGUMENT, OPERAND, USER, has_opcode, origins
from .peaks import peak_tables, require_allocations, selected_steps
from .program import Program, program
from .removal import peak_step_without, saving_of
from .wording import MOVES

Row = dict[str, Any]

MAX_COMPARED = 20_000
"""Number of names up to which the most similar one is searched for; takes at most a second."""
N_SUGGESTED = 3
"""Number of buffers that a message about another name suggests."""

LISTED = "`xlamem top --by buffer` lists those in use"
_LABEL = re.compile(r"^(?:[\d,]+× )?(?:(?P<relation>read by|[a-z-]+ of) )?(?P<name>.*)", re.DOTALL)
"""A label of a screen: how many buffers have it, how they are related to what the name says, and the name."""
_KEY = r"\\\.((?:\w|\\d\+|\\-)+)"
"""A key of a nested dictionary in an escaped label, which has dots instead of brackets and quotes."""
_ASYNC = "(?:-start|-done)?"
_NAME = re.compile(r"(?P<instruction>.+?)(?P<index>\{[\d,]*\})?\Z")


@dataclass(frozen=True)
class Buffer:
    """One value of a program, with its relations to others. Sizes are in bytes, times are schedule steps."""

    value: Row
    """The value with the columns of `live_set`; ``bytes``, ``exclusive`` and ``shared`` are None."""
    start: int | None
    """First step of the live range; None without live ranges."""
    end: int | None
    peak_step: int | None
    """First step of the peak of its memory space."""
    definer: Row | None
    """The row of the defining instruction in `instructions`; None if it is not printed."""
    calls: list[Row]
    """File, line and function of its source line and of the calls that lead to it, the innermost first, without those
    of installed libraries; empty if the dump has no stack frame for it."""
    users: list[Row]
    """Instruction, operand, step (None if it is not in the schedule), op_name and line of each use, in the order of
    steps."""
    positions: list[Row]
    """Instruction and shape_index of every position of the value: its aliases."""
    mates: list[Row]
    """Other values of the same allocation whose bytes and live ranges overlap or touch its own, with their names."""
    saving: int | None
    """By how much the peak of its space would be lower without it and the values that are updated in its place, at
    most; None without live ranges."""
    peak_without: int | None
    """The peak of its space without these, at least; None without live ranges."""
    peak_step_without: int | None
    """First step of the peak of its space without these; None without live ranges, or if it is no temporary."""
    namesakes: int = 0
    """Number of other buffers with the label by which it was selected."""

    @property
    def last_user(self) -> Row | None:
        """The use at the last step, which keeps the value alive; None if no step of a use is known."""
        timed = [user for user in self.users if user["step"] is not None]
        return timed[-1] if timed else None


def buffer(dump: DumpLike, name: str | int) -> Buffer:
    """Return everything about one buffer.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    name
        A value_id, or the name of an instruction that defines the value or is another of its positions. A shape index
        (`while.10{24}`) selects one of several values; without it, the largest is meant. Or a label that screens print,
        such as ``params['w']``, a scope, or a name with an ellipsis: it selects the largest of the buffers with this
        label that occupy memory at the peak of their space, or else the largest.

    Raises
    ------
    UsageError
        There is no such value, or the dump has no allocations.
    """
    p = program(dump)
    require_allocations(p)
    value, namesakes = _find(p, name)
    start, end = (int(column[value]) for column in p.ranges)
    steps = selected_steps(p) if p.steps is not None else None
    peak_step = -1 if steps is None else int(steps[p.space[value]])
    row = int(p.instruction_row[value])
    saving = saving_of(p, value) if p.steps is not None else None
    peak = 0 if saving is None else int(ints(peak_tables(p, 0)[0], "peak")[p.space[value]])
    return Buffer(
        value=_rows(p, np.array([value]))[0],
        start=start if start >= 0 else None,
        end=end if start >= 0 else None,
        peak_step=peak_step if peak_step >= 0 else None,
        definer=p.tables["instructions"].slice(row, 1).to_pylist()[0] if row >= 0 else None,
        calls=_calls(p, value),
        users=_users(p, value),
        positions=_of_value(p, "positions", value, ["instruction", "shape_index"]),
        mates=_mates(p, value),
        saving=saving,
        peak_without=None if saving is None else peak - saving,
        peak_step_without=peak_step_without(p, value) if p.steps is not None and p.in_temp[value] else None,
        namesakes=namesakes,
    )


def calls_to(dump: DumpLike, value_id: int) -> list[Row]:
    """Return file, line and function of the source line of a value and of the calls to it, the innermost first."""
    p = program(dump)
    return _calls(p, int(p.row_of_value(np.array([value_id]))[0]))


def _calls(p: Program, value: int) -> list[Row]:
    return calls_outside(p.optional("frames"), int(stack_frames(p, np.array([value]))[0]))


def _find(p: Program, name: str | int) -> tuple[int, int]:
    """Return the row of a value in `values`, and the number of others with the same label if the name is one."""
    if not isinstance(name, str) or name.isdecimal():
        number = int(name) if not isinstance(name, str) or len(name) < 20 else -1
        row = int(p.row_of_value(np.array([number]))[0]) if 0 <= number < 1 << 63 else -1
        if row < 0:
            raise UsageError(f"no value {name} in {p.name}")
        return row, 0
    name = utf8(name)
    match = _NAME.match(name.removeprefix("%"))
    instruction, index = (match["instruction"], match["index"]) if match else (name, None)
    codes, names = p.names
    code = pc.index(pc.cast(names, pa.string()), instruction).as_py()
    rows = np.flatnonzero(codes == code) if code >= 0 else np.empty(0, np.int64)
    if index is not None and len(rows):
        indices = pc.cast(pc.take(p.tables["values"]["shape_index"], arrow_array(rows)), pa.string())
        rows = rows[pc.equal(pc.fill_null(indices, "{}"), index).to_numpy()]
    if not len(rows):
        rows = _of_position(p, instruction, index)
    if len(rows):
        return int(rows[np.argmax(p.size[rows])]), 0
    rows = _labeled(p, name)
    if not len(rows):
        raise UsageError(f"no buffer {name!r} in {p.name}; {_suggestion(names, instruction)}")
    return int(rows[0]), len(rows) - 1


def _of_position(p: Program, instruction: str, index: str | None) -> Ints:
    """Return the rows in `values` of the values at a position."""
    positions = p.optional("positions")
    positions = pc.filter(positions, pc.equal(pc.cast(positions["instruction"], pa.string()), instruction))
    if index is not None:
        indices = pc.fill_null(pc.cast(positions["shape_index"], pa.string()), "{}")
        positions = pc.filter(positions, pc.equal(indices, index))
    rows = p.row_of_value(ints(positions, "value_id"))
    return rows[rows >= 0]


def _suggestion(names: pa.Array, text: str) -> str:
    """Return which names contain a text, or else the most similar one, for a message; or where buffers are listed."""
    texts, similar = pc.cast(names, pa.string()), []
    if text:
        similar = pc.filter(texts, pc.match_substring(texts, text, ignore_case=True)).slice(0, N_SUGGESTED).to_pylist()
    if text and not similar and len(texts) <= MAX_COMPARED and (match := closest(text, texts.to_pylist())):
        similar = [match]
    return f"did you mean {', '.join(similar)}?" if similar else LISTED


def _labeled(p: Program, label: str) -> Ints:
    """Return the rows in `values` of the buffers that screens call so.

    Their op_name, without JAX's wrappers, is the name or ends with it after a slash, or else is in a scope that does.
    An ellipsis stands for what a screen leaves out, and `.w` for `['w']`, with or without `.value` at the end. Those
    that occupy memory at the peak of their space are first, then the largest.
    """
    match = _LABEL.match(label)
    parts = [re.escape(part).replace(r"\*", r"\d+") for part in (match["name"] if match else label).split("…")]
    if not any(parts):
        return np.empty(0, np.int64)
    parts = [re.sub(_KEY, r"(?:\.\1|\['\1'\])", part) for part in parts]
    codes, op_names = encoded(source_columns(p, np.arange(len(p.size)))["op_name"])
    texts, pattern = plain_names(pc.cast(op_names, pa.string())), f"(?:^|/){'.*'.join(parts)}"
    called = matching(texts, rf"{pattern}(?:\.value)?$")
    if not called.any():
        called = matching(texts, f"{pattern}/")
    rows = np.flatnonzero(flags_of(called, codes))
    called_so = _are_related(p, rows, match["relation"] if match else None)
    rows = rows[called_so] if called_so.any() else rows
    first, last = (column[rows] for column in p.ranges)
    peak = -1 if p.steps is None else selected_steps(p)[p.space[rows]]
    is_reserved = p.is_fixed[p.owner[rows]] & (rows == p.representative[p.owner[rows]])
    return rows[np.lexsort((-p.size[rows], ((peak < first) | (last < peak)) & ~is_reserved))]


def _are_related(p: Program, values: Ints, relation: str | None) -> Mask:
    """Return which values screens relate so to what they are named after: None for those that have the name."""
    origin, row = origins(p).origin[values], p.instruction_row[values]
    is_read: Mask = origin == USER
    moves = np.isin(origin, (OPERAND, ARGUMENT)) & has_opcode(p, row, f"^(?:{'|'.join(MOVES)}){_ASYNC}$")
    # A fusion or a loop that moves an argument has memory of its own, and is called a copy.
    copies = (origin == ARGUMENT) & np.isin(p.categories_of(values), (TEMP, TEMP_IN_OUTPUT)) & ~moves
    found: Mask = ~(is_read | moves | copies)
    if relation == "read by":
        found = is_read
    elif relation is not None:
        verb = relation.removesuffix(" of")
        found = moves & has_opcode(p, row, f"^{re.escape(verb)}{_ASYNC}$") | (copies & (verb == "copy"))
    return found


def _rows(p: Program, values: Ints) -> list[Row]:
    """Return these values as rows with the columns of `live_set`, except what is charged to them."""
    columns = live_set_columns(p, _uncharged(p, values), np.arange(len(values))) | buffer_names(p, values)
    names = [c for c in schema.COMPUTED["live_set"].columns if c.name in columns]
    rows: list[Row] = table_of_columns(names, columns).to_pylist()
    return [row | {"bytes": None, "exclusive": None, "shared": None} for row in rows]


def _uncharged(p: Program, values: Ints) -> Charges:
    zero = np.zeros(len(values), np.int64)
    return Charges(values, p.owner[values].astype(np.int64), zero, zero, len(values))


def _of_value(p: Program, table: str, value: int, columns: list[str]) -> list[Row]:
    """Return the rows of a table that belong to a value."""
    rows = p.optional(table)
    selected = pc.filter(rows, pc.equal(rows["value_id"], int(p.value_ids[value])))
    return selected.select(columns).to_pylist()  # type: ignore[no-any-return]


def _users(p: Program, value: int) -> list[Row]:
    uses = _of_value(p, "uses", value, ["instruction", "operand", "operand_shape_index"])
    schedule = p.optional("schedule")
    names = pa.array([use["instruction"] for use in uses], pa.string())
    scheduled = pc.filter(schedule, pc.is_in(pc.cast(schedule["instruction"], pa.string()), names))
    step = dict(zip(scheduled["instruction"].to_pylist(), scheduled["time"].to_pylist(), strict=True))
    codes, op_names = encoded(p.tables["instructions"]["op_name"])
    rows = p.row_of_instruction(pa.chunked_array([pc.dictionary_encode(names)])).tolist()
    named = [op_names[codes[row]].as_py() if row >= 0 and codes[row] >= 0 else None for row in rows]
    lines = origins(p).names.columns(np.array(rows, np.int64))
    columns = {"op_name": named} | {c: lines[c].to_pylist() for c in ("source_file", "source_line")}
    users = [
        use | {"step": step.get(use["instruction"])} | {c: column[i] for c, column in columns.items()}
        for i, use in enumerate(uses)
    ]
    return sorted(users, key=lambda use: (use["step"] is None, use["step"]))


def _mates(p: Program, value: int) -> list[Row]:
    """Return the values that overlap a value in bytes, and overlap or touch it in time, by start."""
    start, end = p.ranges
    begin, stop = p.offset[value], p.offset[value] + p.extent[value]
    shares = (p.owner == p.owner[value]) & (p.offset < stop) & (p.offset + p.extent > begin) & (p.extent > 0)
    shares &= stop > begin
    shares &= (start >= 0) & (start <= end[value]) & (end >= start[value]) & (p.value_category != THREAD_LOCAL)
    shares[value] = False
    mates = np.flatnonzero(shares)
    mates = mates[np.lexsort((p.value_ids[mates], start[mates]))]
    rows = _rows(p, mates)
    for row, mate in zip(rows, mates.tolist(), strict=True):
        row |= {"start": int(start[mate]), "end": int(end[mate])}
    return rows
