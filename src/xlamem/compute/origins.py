"""Find out which operation or argument the bytes of each buffer belong to: its origin.

The name of a buffer is the op_name of the instruction that defines it. Copies, loop carries and other buffers have
none, or one that names only control flow. `Origins` gives them the name of the buffer that their bytes come from or go
to, and states how that name was found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..dump import hlo_body
from ..parse.arrays import Rows, order_by
from ..parse.hlo_body import HloBody
from .callers import lines_of_model
from .columns import (
    Ints,
    Mask,
    arrow_array,
    decoded,
    encoded,
    flags_of,
    ints,
    match_dictionaries,
    nullable,
    take,
    take_text,
    texts_of,
)
from .hlo_trace import HloTrace
from .layout import DONATED, LIVE_OUT
from .lazy import cached_property
from .op_names import (
    COLLECTIVE,
    FORWARDING,
    MOVING,
    MOVING_TARGETS,
    PHASES,
    STARTING,
    is_control_flow,
    is_move,
    is_parameter_name,
    is_tensorflow,
    matching,
    patterns_of,
    phases,
    second_numbers,
    without_placeholders,
)
from .program import Program, source_lines

ORIGINS = ("own", "argument", "operand", "slot", "user", "hlo", "none")
OWN, ARGUMENT, OPERAND, SLOT, USER, HLO, NONE = range(7)

_GATHERING = r"^(?:tuple|while|call|conditional|async-start|async-done|async-update|custom-call|opt-barrier)$"
"""Opcodes with operands that have nothing to do with each other."""
_WRAPPED_MOVE = r"^wrapped_(?:copy|transpose|slice|reshape|convert)(?:\.\d+)?$"
"""Names of fusions of a single instruction, on CPU and GPU."""
MAX_ROUNDS = 12
"""Maximum number of buffers in a chain from a buffer to its name."""
SCALAR_BYTES = 16
"""Maximum size of an operand that is an index or a flag."""
MAX_SHARE = 0.05
"""The HLO text is read if more than this share of bytes (see `Origins.share_without_definer`) has no clear name."""
MAX_MATES = 1 << 24
"""Maximum number of pairs of buffers in the same slot to compare; buffers with the most neighbors are skipped."""


def origins(p: Program) -> Origins:
    """Return the origins of the values of a program, which are cached."""
    return p.once("origins", partial(_find, p))


def _find(p: Program) -> Origins:
    names = NamedInstructions(p, None)
    found = Origins(p, names)
    if found.share_without_definer() <= MAX_SHARE:
        return found
    if (body := hlo_body(p.tables)) is not None:
        trace = HloTrace(body, *(_rows_in(body, p, found) for found in (_moves_without_name(p), _reserves_only(p))))
        return Origins(p, NamedInstructions(p, trace), trace)
    return Origins(p, names, by_update=True)


def _rows_in(body: HloBody, p: Program, selected: Mask) -> Ints:
    """Return the rows of the HLO text of selected instructions."""
    names = pc.filter(p.tables["instructions"]["instruction"], arrow_array(selected))
    rows = np.asarray(body.rows_of(pc.cast(names, pa.string()).combine_chunks()), np.int64)
    return rows[rows >= 0]


class NamedInstructions:
    """The instructions that can name a buffer: the rows of `instructions`, then those of the HLO text if it is read."""

    def __init__(self, p: Program, trace: HloTrace | None) -> None:
        table = p.tables["instructions"]
        own = p.source_lines(np.arange(table.num_rows))
        self._moves = has_opcode(p, np.arange(table.num_rows), f"{FORWARDING}|{MOVING}")
        self._reserves = _reserves_only(p)
        op_names = p.printed_op_names
        self._parameter_names = pc.cast(texts_of(op_names, p.instruction_row[p.entry_parameters]), pa.string())
        own = _lines(p, own, ints(table, "stack_frame_id"))
        own |= {"instruction": table["instruction"], "op_name": decoded(*op_names)}
        self._parts = [pa.table({**own, "stack_frame": table["stack_frame_id"]})]
        if trace is not None:
            self._parts.append(_body_table(p, trace.body))

    @cached_property
    def table(self) -> pa.Table:
        """The columns instruction, op_name, source_file, source_line, innermost_file and stack_frame."""
        if len(self._parts) == 1:
            return self._parts[0]
        numbers = ("source_line", "stack_frame")
        plain = {c: pa.int64() if c in numbers else pa.string() for c in self._parts[0].column_names}
        return pa.concat_tables([pa.table({c: pc.cast(part[c], t) for c, t in plain.items()}) for part in self._parts])

    def columns(self, rows: Ints) -> dict[str, pa.Array]:
        """Return the columns op_name, source_file and source_line of these rows (null for -1)."""
        line = nullable(take(ints(self.table, "source_line"), rows))
        return {c: texts_of(texts, rows) for c, texts in self._texts.items()} | {"source_line": line}

    @cached_property
    def _texts(self) -> dict[str, tuple[Ints, pa.Array]]:
        """Codes and dictionaries of op_name and source_file."""
        return {c: encoded(self.table[c]) for c in ("op_name", "source_file")}

    @cached_property
    def innermost_file(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the files of the instructions themselves, which may be those of a library."""
        return encoded(self.table["innermost_file"])

    def instructions(self, rows: Ints) -> pa.Array:
        return take_text(self.table["instruction"], rows)

    @cached_property
    def op_name(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the op_names."""
        codes, names = self._texts["op_name"]
        return codes, pc.cast(names, pa.string())

    @cached_property
    def _patterns(self) -> tuple[Ints, pa.Array]:
        return patterns_of(self.op_name[1])

    def has_name(self, test: Callable[[pa.Array], Mask]) -> Mask:
        """Return whether the op_name of each row passes a test that treats all digits alike."""
        codes, patterns = self._patterns
        return flags_of(test(patterns)[codes], self.op_name[0])

    @cached_property
    def phase(self) -> Ints:
        """Index in PHASES of the phase of each op_name of the dictionary, or -1."""
        names = self.op_name[1]
        # The digits matter where TensorFlow calls layers again, which it does not do often enough to be slow.
        codes, patterns = (np.arange(len(names)), names) if is_tensorflow(names) else self._patterns
        phase = pc.fill_null(pc.index_in(phases(patterns), pa.array(PHASES, pa.string())), -1)
        return np.asarray(phase.to_numpy(zero_copy_only=False), np.int64)[codes]

    @cached_property
    def is_control_flow(self) -> Mask:
        """Whether the op_name of each row names only control flow."""
        return self.has_name(is_control_flow)

    @cached_property
    def is_named(self) -> Mask:
        """Whether each row has an op_name that names more than control flow and moves of bytes."""
        return (self.op_name[0] >= 0) & ~self.is_control_flow & ~self.is_weak

    @cached_property
    def is_weak(self) -> Mask:
        """Whether each row is a move of bytes whose op_name says no more, is that of a parameter, or writes nothing."""
        codes, names = self.op_name
        weak = self.has_name(is_move)
        weak |= flags_of(is_parameter_name(names, self._parameter_names), codes)
        weak[: len(self._moves)] &= self._moves
        weak[: len(self._reserves)] |= self._reserves & (codes[: len(self._reserves)] >= 0)
        return weak


def _body_table(p: Program, body: HloBody) -> pa.Table:
    names = {c: body.text(c) for c in ("instruction", "op_name", "source_file")}
    lines = source_lines(names["source_file"], body.source_line, body.stack_frame_id, p.optional("frames"))
    lines = _lines(p, lines, body.stack_frame_id)
    named = decoded(*without_placeholders(*encoded(names["op_name"])))
    frames = nullable(body.stack_frame_id)
    return pa.table({"instruction": names["instruction"], "op_name": named, **lines, "stack_frame": frames})


def lines_of_body(p: Program, body: HloBody, rows: Ints) -> dict[str, pa.Array]:
    """Return the columns source_file and source_line that people read of these rows of the HLO text."""
    frame, line = (np.asarray(column, np.int64)[rows] for column in (body.stack_frame_id, body.source_line))
    files = pa.chunked_array([pc.take(body.text("source_file"), arrow_array(rows)).combine_chunks()])
    return lines_of_model(source_lines(files, line, frame, p.optional("frames")), frame, p.optional("frames"))


def _lines(p: Program, lines: dict[str, pa.Array], stack_frame: Ints) -> dict[str, pa.Array]:
    """Return the columns source_file and source_line that people read, and the file of the instruction itself."""
    return {**lines_of_model(lines, stack_frame, p.optional("frames")), "innermost_file": lines["source_file"]}


class Origins:
    """The named instruction and the entry argument that each value of a program belongs to; -1 if there is none."""

    def __init__(
        self, p: Program, names: NamedInstructions, trace: HloTrace | None = None, *, by_update: bool = False
    ) -> None:
        """Name the values of a program: by the HLO text if `trace` is given, and by `_name_after_updates` if asked."""
        self._p, self._by_update = p, by_update
        n = len(p.value_ids)
        self.names = names
        self.source = np.full(n, -1, np.int64)
        """Row of `names` whose op_name names the value."""
        self.argument = np.full(n, -1, np.int64)
        """Row in `allocations` of the entry parameter that the bytes come from."""
        self.origin = np.full(n, NONE, np.int8)
        self.is_stacked = np.zeros(n, bool)
        """Whether the HLO text shows that the value is written slice by slice."""
        self._use_own_names()
        if trace is not None:
            self._follow_hlo(trace)
        self._follow()
        self._use_weak_names()
        while self._name_after_operands():
            pass
        self._name_after_slots()

    @property
    def _pending(self) -> Ints:
        return np.flatnonzero(self.origin == NONE)

    def share_without_definer(self) -> float:
        """Return the share of bytes that have no name of a definer, or one that may be another's.

        It is that of temp values, or of temp values and outputs together, without or with those in the memory of
        donated arguments: the largest of the three.
        """
        p = self._p
        weak = (take(self.names.is_weak, self.source) > 0) & (self.argument < 0)
        # The op_name of a fusion may be that of another of its elements.
        is_element = (p.element >= 0) & (self.origin == OWN)
        is_element &= has_opcode(p, p.instruction_row, "^fusion$")
        unknown = (self.origin == NONE) | (self.origin == USER) | weak | is_element
        category = p.value_category
        parts = (p.in_temp | np.isin(category, outputs) for outputs in ((), (LIVE_OUT,), (LIVE_OUT, DONATED)))
        return max(float(p.size[part & unknown].sum() / max(p.size[part].sum(), 1)) for part in parts)

    # -- own names -------------------------------------------------------------------------------

    def _use_own_names(self) -> None:
        p = self._p
        rows = p.instruction_row
        named = take(self.names.is_named, rows) > 0
        self.source[named], self.origin[named] = rows[named], OWN
        parameters = p.entry_parameters
        has_name = take(self.names.op_name[0], rows[parameters]) >= 0
        self.source[parameters] = np.where(has_name, rows[parameters], -1)
        self.argument[parameters] = p.owner[parameters]
        self.origin[parameters] = np.where(has_name, OWN, ARGUMENT)

    def _use_weak_names(self) -> None:
        """Let buffers that move bytes from an unknown origin keep the names of these moves."""
        pending = self._pending
        rows = self._p.instruction_row[pending]
        weak = take(self.names.is_weak, rows) > 0
        self.source[pending[weak]], self.origin[pending[weak]] = rows[weak], OWN

    @cached_property
    def _element(self) -> Ints:
        """Element of the result of an instruction that each value is, -1 for all of it."""
        p = self._p
        starts = has_opcode(p, p.instruction_row, STARTING)
        return np.where(starts, second_numbers(p.tables["values"]["shape_index"]), p.element)

    # -- the HLO text ----------------------------------------------------------------------------

    def _follow_hlo(self, trace: HloTrace) -> None:
        """Name buffers after instructions inside fusions and loop bodies: also elements of fusions with a name."""
        p, element = self._p, self._element
        self._name_after_done(trace)
        codes, names = p.names
        row = take(np.asarray(trace.body.rows_of(pc.cast(names, pa.string())), np.int64), codes)
        self._name_by_trace(trace, row, element, (self.origin == OWN) & (element >= 0) & (self.argument < 0))
        while self._name_after_operands():
            pass
        writes = take(_reserves_only(p), p.instruction_row) <= 0
        self._name_by_trace(trace, row, element, writes & (self.origin == NONE))

    def _name_after_done(self, trace: HloTrace) -> None:
        """Give results of asynchronous calls of a computation the name of the instruction at which they are done.

        Several calls may share a computation, whose instructions have the name of one of them.
        """
        p = self._p
        positions = p.optional("positions")
        value = p.row_of_value(ints(positions, "value_id"))
        selected = (value >= 0) & (take(_calls_computation(p), take(p.instruction_row, value)) > 0)
        selected &= take(self.origin, value) == NONE
        value, at = value[selected], pc.filter(positions["instruction"], arrow_array(selected))
        row = np.asarray(trace.body.rows_of(pc.cast(at, pa.string()).combine_chunks()), np.int64)
        is_done = trace.is_done(row)
        self.source[value[is_done]], self.origin[value[is_done]] = row[is_done] + p.tables["instructions"].num_rows, OWN

    def _name_by_trace(self, trace: HloTrace, row: Ints, element: Ints, selected: Mask) -> None:
        p = self._p
        values = np.flatnonzero((row >= 0) & selected)
        ends = trace.follow(row[values], element[values])
        self.is_stacked[values] = ends.update >= 0
        is_parameter = trace.is_entry_parameter(ends.rows)
        parameters, width = p.entry_parameters, int(max(element.max(initial=0), ends.elements.max(initial=0))) + 2
        by_position = Rows(row[parameters] * width + element[parameters] + 1)
        ends_at = np.where(is_parameter, by_position(ends.rows * width + ends.elements + 1), -1)
        self._name(values, take(parameters, ends_at), ARGUMENT)
        named = (ends.rows >= 0) & ~is_parameter
        values, rows = values[named], ends.rows[named]
        self.origin[values] = np.where(rows == row[values], OWN, HLO)
        self.source[values] = rows + p.tables["instructions"].num_rows

    # -- names of other buffers ------------------------------------------------------------------

    def _follow(self) -> None:
        """Name buffers after their operands, slots and users until nothing changes."""
        for _ in range(MAX_ROUNDS):
            before = len(self._pending)
            while self._name_after_operands() or self._name_after_updates() or self._name_after_slots():
                pass
            self._name_after_users()
            if len(self._pending) in (0, before):
                break

    def _name(self, values: Ints, others: Ints, origin: int) -> int:
        """Name values after other values, -1 for none; return how many were named."""
        good = others >= 0
        good[good] = self.origin[others[good]] != NONE
        values, others = values[good], others[good]
        from_user = (self.origin[others] == USER) | (origin == USER)
        good = ~from_user | (self.source[others] >= 0)
        values, others, from_user = values[good], others[good], from_user[good]
        self.source[values] = self.source[others]
        self.argument[values] = np.where(from_user, -1, self.argument[others])
        self.origin[values] = np.where(from_user, USER, np.where(self.argument[values] >= 0, ARGUMENT, origin))
        return len(values)

    def _name_after_operands(self) -> int:
        """Name copies and other forwarding instructions after their operands, and stacked slices after the update."""
        values, operands = self._forwarded
        left = self.origin[values] == NONE
        return self._name(values[left], operands[left], OPERAND)

    @cached_property
    def _forwarded(self) -> tuple[Ints, Ints]:
        """Values without a name of their own that forward an operand, and the value of that operand, or -1."""
        p, pending = self._p, self._pending
        rows = p.instruction_row[pending]
        updates = has_opcode(p, rows, "^dynamic-update-slice$")
        moves = _moves_without_name(p) & ~_calls_computation(p)
        selected = updates | has_opcode(p, rows, FORWARDING) | (take(moves, rows) > 0)
        # Operands after the first are not looked up.
        element = self._element[pending]
        selected &= (element <= 0) | ~has_opcode(p, rows, COLLECTIVE)
        return pending[selected], operands_of(p, pending[selected], updates[selected].astype(np.int64))

    def _name_after_updates(self) -> int:
        """Name fusions that write a slice into a larger buffer after the only other operand with a name.

        The HLO text tells which operand is written; this is for dumps without one.
        """
        if not self._by_update:
            return 0
        values, others = self._updates
        left = (self.origin[values] == NONE) & (self.origin[others] != NONE) & (self.origin[others] != USER)
        values, others = values[left], others[left]
        distinct, row = np.unique(values, return_inverse=True)
        return self._name(distinct, self._only_name(row.ravel(), others, len(distinct)), OPERAND)

    @cached_property
    def _updates(self) -> tuple[Ints, Ints]:
        """Pairs of a value that such a fusion defines and a value that it reads: no scalar, and in another slot."""
        p, pending = self._p, self._pending
        names, rows = self.names, p.instruction_row[pending]
        writes = names.has_name(partial(matching, pattern="dynamic_update_slice$"))
        codes, texts = p.texts("instructions", "instruction")
        writes |= flags_of(matching(texts, "dynamic-update-slice"), codes)
        pending = pending[(take(writes, rows) > 0) & has_opcode(p, rows, "^fusion$")]
        used, user, _, _ = uses_of(p)
        fusion = Rows(p.instruction_row[pending])(user)
        selected = (used >= 0) & (user >= 0) & (fusion >= 0)
        values, others = take(pending, fusion[selected]), used[selected]
        selected = (p.slots[values] != p.slots[others]) & (p.unpadded[others] > SCALAR_BYTES)
        return values[selected], others[selected]

    def _only_name(self, group: Ints, others: Ints, n: int) -> Ints:
        """Return a value with the name of each of n groups of values, or -1 if its names differ or it is empty."""
        key = self._name_keys(others)
        low, high, value = np.full(n, np.iinfo(np.int64).max), np.full(n, -1), np.full(n, -1)
        np.minimum.at(low, group, key)
        np.maximum.at(high, group, key)
        value[group[::-1]] = others[::-1]
        return np.where(low == high, value, -1)

    # -- slots -----------------------------------------------------------------------------------

    def _name_after_slots(self) -> int:
        """Name loop carries after the buffers of the same slot and element type whose live ranges touch theirs.

        This is the writer in the body. If the names differ, none is used.
        """
        values, first, last, order = self._mates
        left = self.origin[values] == NONE
        values, first, last = values[left], first[left], last[left]
        count = last - first
        if not len(values) or not count.any():
            return 0
        owner = np.repeat(np.arange(len(values)), count)
        mates = order[np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)]
        start, end = self._p.ranges
        good = (end[mates] >= start[values][owner]) & (self.origin[mates] != NONE)
        owner, mates = owner[good], mates[good]
        return self._name(values, self._only_name(owner, mates, len(values)), SLOT)

    def _name_keys(self, values: Ints) -> Ints:
        """Return numbers that are equal for values with the same name."""
        codes, dictionary = self.names.op_name
        names, name = len(dictionary), take(codes, self.source[values])
        return np.where(self.argument[values] >= 0, names + self.argument[values], name)

    @cached_property
    def _mates(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Pending values with a live range; the neighbors of the i-th are order[first[i]:last[i]] (see `order`)."""
        p = self._p
        start, end = p.ranges
        empty = np.empty(0, np.int64)
        pending = np.zeros(len(start), bool)
        pending[self._pending] = True
        pending &= (start >= 0) & self._is_carried()
        if not pending.any():
            return empty, empty, empty, empty
        slot = p.slots
        in_use = np.zeros(int(slot.max()) + 1, bool)
        in_use[slot[pending]] = True
        order = np.flatnonzero(in_use[slot] & (start >= 0))
        order = order[order_by(slot[order], start[order])]
        width = np.int64((p.steps or 0) + 2)
        starts = slot[order] * width + start[order]
        # The latest end so far in each slot, which ascends within it.
        latest = np.maximum.accumulate(slot[order] * width + np.minimum(end[order], width - 1))
        values = np.flatnonzero(pending)
        first = np.searchsorted(latest, slot[values] * width + start[values], "left")
        last = np.searchsorted(starts, slot[values] * width + end[values], "right")
        count = np.maximum(last - first, 0)
        by_count = np.argsort(count, kind="stable")
        kept = by_count[np.cumsum(count[by_count]) <= MAX_MATES]
        return values[kept], first[kept], np.maximum(last, first)[kept], order

    def _is_carried(self) -> Mask:
        """Return which values a loop or branch may write in place: its tuple, its parameters, its initial values."""
        p = self._p
        value, user, _, _ = uses_of(p)
        is_carried = has_opcode(p, p.instruction_row, r"^(?:parameter|while|conditional|call)$")
        is_carried[value[(value >= 0) & has_opcode(p, user, "^while$")]] = True
        return is_carried

    # -- users -----------------------------------------------------------------------------------

    def _name_after_users(self) -> int:
        """Name buffers after the first instruction that reads them and has a name, or that defines a named buffer."""
        value, user, _, _ = uses_of(self._p)
        pending = np.zeros(len(self.origin), bool)
        pending[self._pending] = True
        selected = (value >= 0) & (user >= 0)
        selected[selected] = pending[value[selected]]
        value, user = value[selected], user[selected]
        named = take(self.names.is_named, user) > 0
        first = Rows(value[named])(np.flatnonzero(pending))
        values, users = np.flatnonzero(pending), take(user[named], first)
        direct = users >= 0
        self.source[values[direct]], self.origin[values[direct]] = users[direct], USER
        return int(direct.sum()) or self._name_after_defined(value, user, values)

    def _name_after_defined(self, value: Ints, user: Ints, values: Ints) -> int:
        """Name buffers after the named buffers that their nameless users define."""
        selected = ~has_opcode(self._p, user, _GATHERING)
        value, user = value[selected], user[selected]
        resolved = np.flatnonzero(self.origin != NONE)
        defined = take(resolved, Rows(self._p.instruction_row[resolved])(user))
        good = defined >= 0
        first = Rows(value[good])(values)
        return self._name(values, take(defined[good], first), USER)


def operands_of(p: Program, values: Ints, operand: Ints) -> Ints:
    """Return the value that is operand 0 or 1 of the instruction that defines each value, or -1.

    For an operand that is a tuple, it is the element with the same index.
    """
    used, user, number, index = p.once("first operands", partial(_first_operands, p))
    if not len(user):
        return np.full(len(values), -1, np.int64)
    wanted = p.instruction_row[values] * 2 + operand
    exact = index_codes(p, p.tables["values"]["shape_index"])
    width = max(int(index.max()), int(exact.max(initial=0))) + 2
    first = Rows((user * 2 + number) * width + index + 1)(wanted * width + exact[values] + 1)
    return take(used, np.where(first >= 0, first, Rows(user * 2 + number)(wanted)))


def _first_operands(p: Program) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the uses as operand 0 or 1 of a printed instruction, as `uses_of` does."""
    value, user, number, index = uses_of(p)
    selected = (number <= 1) & (user >= 0) & (value >= 0)
    return value[selected], user[selected], number[selected], index[selected]


def uses_of(p: Program) -> tuple[Ints, Ints, Ints, Ints]:
    """Return all uses: row of the value, row in `instructions` of the user, operand, and code of its index."""
    return p.once("uses", partial(_uses_of, p))


def _uses_of(p: Program) -> tuple[Ints, Ints, Ints, Ints]:
    uses = p.optional("uses")
    value, user = p.row_of_value(ints(uses, "value_id")), p.row_of_instruction(uses["instruction"])
    return value, user, ints(uses, "operand"), index_codes(p, uses["operand_shape_index"])


def index_codes(p: Program, column: pa.ChunkedArray) -> Ints:
    """Return codes of shape indices that can be compared between tables; -1 for null and {}."""
    codes, names = encoded(column)
    common = p.texts("values", "shape_index")[1]
    matched = match_dictionaries(names, common)
    empty = pc.index(names, "{}").as_py()
    if empty >= 0:
        matched[empty] = -1
    return take(matched, codes)


def has_opcode(p: Program, rows: Ints, pattern: str) -> Mask:
    """Return whether the opcode of each row of `instructions` matches; False for -1."""
    codes, opcodes = p.texts("instructions", "opcode")
    return flags_of(matching(opcodes, pattern), take(codes, rows))


def _reserves_only(p: Program) -> Mask:
    """Return which instructions reserve bytes that others write: the initial value of what a loop fills."""
    codes, targets = encoded(p.tables["instructions"]["custom_call_target"])
    return flags_of(matching(targets, "^AllocateBuffer$"), codes)


def _moves_without_name(p: Program) -> Mask:
    """Return which instructions without metadata move bytes: custom calls, and fusions that wrap one move."""
    table = p.tables["instructions"]
    nameless = np.asarray(pc.is_null(table["op_name"]).to_numpy(), bool)
    codes, targets = encoded(table["custom_call_target"])
    moves = flags_of(matching(targets, MOVING_TARGETS), codes)
    codes, names = p.texts("instructions", "instruction")
    wraps = flags_of(matching(names, _WRAPPED_MOVE), codes) & has_opcode(p, np.arange(len(codes)), "^fusion$")
    return nameless & (moves | wraps)


def _calls_computation(p: Program) -> Mask:
    """Return which instructions are custom calls of a computation, such as a gather on a SparseCore."""
    called = np.asarray(pc.is_valid(p.tables["instructions"]["called_computations"]).to_numpy(), bool)
    return called & has_opcode(p, np.arange(len(called)), "^custom-call")
