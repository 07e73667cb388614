"""Follow the bytes of an instruction's result through the HLO text to the instruction that names them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.hlo_body import HloBody
from .columns import Ints, Mask, arrow_array, take
from .hlo_flow import first_callers, operand_items
from .lazy import cached_property
from .op_names import (
    COLLECTIVE,
    FORWARDING,
    MOVING,
    first_numbers,
    is_control_flow,
    is_move,
    is_parameter_name,
    matching,
)

Position = tuple[Ints, Ints]
"""Rows of the HLO text, and elements of their results (-1: all of a result)."""
MAX_STEPS = 64
"""Maximum number of instructions from a result to its name."""


class _Way(NamedTuple):
    """Which way a trace takes where there are two."""

    into_updates: bool
    """Follow the slice that is written into a buffer, not the buffer."""
    from_body: bool
    """Follow what the body of a loop writes, not the initial value."""


class End(NamedTuple):
    """Where traces end."""

    rows: Ints
    """Rows of the HLO text; -1 if nothing is named there."""
    elements: Ints
    update: Ints
    """Row of the last `dynamic-update-slice` of which a trace took the slice, -1 for none."""
    is_circular: Mask
    """Whether a trace does not end."""


class HloTrace:
    """Follows results of instructions back to a named instruction or an entry parameter.

    A position is a row of the HLO text and an element of its result (-1 for all of it). The trace goes into fusions,
    to the element of their root; into loop bodies, to what they write; and through copies, tuples and other
    instructions that move bytes. A slice that is written into a larger buffer stands for the buffer, unless the buffer
    is an argument or part of one: a loop may stack what it has written into slices of a cache.
    """

    def __init__(self, body: HloBody, moving_calls: Ints, reserving_calls: Ints) -> None:
        """Prepare a trace. The rows are those of custom calls that only move bytes, or write nothing."""
        self.body = body
        is_moving = np.zeros(len(body), bool)
        is_moving[moving_calls] = True
        self._reserving_calls = reserving_calls
        opcodes, codes = body.text("opcode"), np.asarray(body.opcode, np.int64)
        names = opcodes.combine_chunks().dictionary if len(opcodes) else None

        def has(pattern: str) -> Mask:
            flags = matching(names, pattern) if names is not None else np.empty(0, bool)
            return take(flags, codes) > 0

        self._get_element = has("^get-tuple-element$")
        self._tuple = has("^tuple$")
        self._is_fusion = has("^fusion$")
        self._is_loop = has("^while$")
        self._is_branching = has("^conditional$")
        self._calls_root = has("^(?:fusion|call|async-start|while)$") | (is_moving & (body.called >= 0))
        self._update = has("^dynamic-update-slice$")
        self._select, self._is_filled = has("^select$"), has("^(?:broadcast|constant)$")
        self._copy_done = has("^(?:copy-done|async-done|async-update)$")
        self._copy_start = has("^copy-start$")
        self._async_done = has("^async-done$")
        self._keeps_element = has(COLLECTIVE)
        self._forwards = has(FORWARDING) | is_moving
        self._moves = self._forwards | has(MOVING)

    @cached_property
    def is_named(self) -> Mask:
        """Whether each instruction has an op_name that names more than control flow and moves of bytes.

        A get-tuple-element has the name of any element, or of a user.
        """
        codes = np.asarray(self.body.op_name, np.int64)
        names = self.body.text("op_name").combine_chunks().dictionary
        weak = take(is_move(names), codes) > 0
        clear = take(~is_control_flow(names) & ~is_parameter_name(names, self._parameter_names), codes) > 0
        clear[self._reserving_calls] = False
        return clear & ~(weak & self._moves) & ~self._get_element

    @cached_property
    def _parameter_names(self) -> pa.Array:
        body = self.body
        rows = np.flatnonzero(self.is_entry_parameter(np.arange(len(body))))
        return pc.cast(pc.take(body.text("op_name"), arrow_array(rows)), pa.string()).combine_chunks()

    @cached_property
    def _caller(self) -> Ints:
        """Row of the first instruction that calls each computation; -1 for the entry computation."""
        return first_callers(self.body)

    def is_entry_parameter(self, rows: Ints) -> Mask:
        body = self.body
        is_entry: Mask = take(body.computation, rows) == body.entry
        return is_entry & (rows >= 0) & (take(body.parameter_number, rows) >= 0)

    def is_done(self, rows: Ints) -> Mask:
        """Return which rows are the ends of asynchronous operations with an op_name of their own."""
        codes = np.asarray(self.body.op_name, np.int64)
        clear = ~is_control_flow(self.body.text("op_name").combine_chunks().dictionary)
        return (take(self._async_done, rows) > 0) & (take(clear, take(codes, rows)) > 0)

    def follow(self, rows: Ints, elements: Ints) -> End:
        """Return where the trace from each position ends: at a named instruction or an entry parameter."""
        end = self._follow(rows, elements, _Way(into_updates=True, from_body=True))
        # Elements that a loop passes on through other instructions lead in circles: follow their initial values.
        lost = np.flatnonzero(end.is_circular)
        end = _replace(end, lost, self._follow(rows[lost], elements[lost], _Way(into_updates=True, from_body=False)))
        stacked = np.flatnonzero(end.update >= 0)
        self._name_buffers(end, stacked, rows[stacked], elements[stacked])
        self._name_buffers(end, stacked, end.update[stacked], np.full(len(stacked), -1))
        return end

    def _name_buffers(self, end: End, traces: Ints, rows: Ints, elements: Ints) -> None:
        """End these traces at the buffers into which slices are written at these positions, if these are arguments."""
        buffer = self._follow(rows, elements, _Way(into_updates=False, from_body=False))
        found = np.flatnonzero(self.is_entry_parameter(buffer.rows))
        at = End(buffer.rows[found], buffer.elements[found], buffer.update[found], buffer.is_circular[found])
        _replace(end, traces[found], at)

    def _follow(self, rows: Ints, elements: Ints, way: _Way) -> End:
        rows, elements, update = rows.copy(), elements.copy(), np.full(len(rows), -1)
        fallback, active = np.full(len(rows), -1), np.flatnonzero(rows >= 0)
        is_circular = np.zeros(len(rows), bool)
        for _ in range(MAX_STEPS):
            at, element = rows[active], elements[active]
            named = self.is_named[at]
            if not way.into_updates:  # only arguments are of interest
                named = np.zeros(len(at), bool)
            inner = take(self.body.root, take(self.body.called, at))
            of_fusion = np.where(self._is_fusion[at] & (take(self._update, inner) > 0), inner, -1)
            update[active] = np.where(of_fusion >= 0, of_fusion, update[active])
            refinable = named & self._is_fusion[at] & (element >= 0) & self._has_tuple_root(at)
            fallback[active[refinable]] = at[refinable]
            going = ~((named & ~refinable) | self.is_entry_parameter(at))
            active, at, element = active[going], at[going], element[going]
            if not len(active):
                break
            update[active] = np.where(self._update[at], at, update[active])
            rows[active], elements[active] = self._step(at, element, way)
            active = active[rows[active] >= 0]
        rows[active] = -1
        rows, elements = self._with_fallback(rows, elements, fallback)
        is_circular[active] = rows[active] < 0
        return End(rows, elements, update, is_circular)

    def _with_fallback(self, rows: Ints, elements: Ints, fallback: Ints) -> Position:
        lost = (rows < 0) & (fallback >= 0)
        return np.where(lost, fallback, rows), np.where(lost, -1, elements)

    def _has_tuple_root(self, rows: Ints) -> Mask:
        root = take(self.body.root, take(self.body.called, rows))
        return take(self._tuple, root) > 0

    def _operand(self, rows: Ints, number: Ints, elements: Ints) -> Position:
        """Return this element of an operand, or the element that the operand names itself; row -1 if there is none."""
        body = self.body
        item = operand_items(body, rows, number)
        named = take(self._operand_element, item)
        return take(body.operand_row, item), np.where(named >= 0, named, elements)

    def _selected(self, rows: Ints, elements: Ints) -> Position:
        """Return the operand of selections that is no broadcast: XLA puts the initial zeros of a loop into its body."""
        first = np.zeros(len(rows), np.int64)
        if_true, _ = self._operand(rows, first + 1, elements)
        return self._operand(rows, first + 1 + (take(self._is_filled, if_true) > 0), elements)

    @cached_property
    def _operand_element(self) -> Ints:
        return first_numbers(self.body.text("operand_index"))

    def _argument(self, rows: Ints, elements: Ints, way: _Way) -> Position:
        """Return what gives these parameters (or their elements) of called computations their value.

        For an element of the tuple of a loop, it is the root of the body, unless the body does not change the element.
        """
        body, first = self.body, np.zeros(len(rows), np.int64)
        caller = take(self._caller, np.asarray(body.computation[rows], np.int64))
        calls_loop = take(self._is_loop, caller) > 0
        number = np.where(calls_loop, 0, body.parameter_number[rows])
        number = np.where(take(self._is_branching, caller) > 0, -1, number)  # it has an operand for each branch
        row, element = self._operand(caller, number, elements)
        root = np.where(calls_loop, take(body.root, np.asarray(take(body.called, caller), np.int64)), -1)
        written, of_written = self._operand(root, elements, first - 1)
        is_element = take(self._get_element, written) > 0
        source, _ = self._operand(np.where(is_element, written, -1), first, first)
        source = np.where(of_written >= 0, written, source)  # an element without a get-tuple-element
        kept = np.where(of_written >= 0, of_written, take(body.tuple_index, written))
        is_kept = (take(body.parameter_number, source) >= 0) & (kept == elements)
        changes = calls_loop & (written >= 0) & ~is_kept & way.from_body
        return np.where(changes, root, np.where(caller >= 0, row, -1)), np.where(changes, elements, element)

    def _step(self, rows: Ints, elements: Ints, way: _Way) -> Position:
        """Return the position that the bytes at each position come from; row -1 if it is not known."""
        body, first, none = self.body, np.zeros(len(rows), np.int64), np.full(len(rows), -1)
        root = take(body.root, np.asarray(body.called[rows], np.int64))
        keeps = self._keeps_element[rows] & (np.diff(body.operand_begin)[rows] > 1)
        done = np.where(elements < 0, 0, elements)
        choices: list[tuple[Mask, Position]] = [
            (body.parameter_number[rows] >= 0, self._argument(rows, elements, way)),
            (self._get_element[rows], self._operand(rows, first, body.tuple_index[rows])),
            (self._tuple[rows], self._operand(rows, elements, none)),
            (self._is_loop[rows] & (not way.from_body), self._operand(rows, first, elements)),
            (self._calls_root[rows], (root, elements)),
            (self._update[rows], self._operand(rows, first + way.into_updates, none)),
            (self._copy_start[rows], self._operand(rows, first, none)),
            (self._copy_done[rows], self._operand(rows, first, done)),
            (keeps, self._operand(rows, done, none)),
            (self._forwards[rows], self._operand(rows, first, elements)),
            (self._select[rows], self._selected(rows, elements)),
        ]
        conditions = [condition for condition, _ in choices]
        return (
            np.select(conditions, [row for _, (row, _) in choices], -1),
            np.select(conditions, [element for _, (_, element) in choices], -1),
        )


def _replace(end: End, rows: Ints, other: End) -> End:
    """Return the ends with these rows replaced."""
    for column, values in zip(end, other, strict=True):
        column[rows] = values
    return end
