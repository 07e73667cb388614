"""Find out by the HLO text what instructions read slice by slice: in loops, fusions read most slices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.hlo_body import HloBody
from .columns import Ints, Mask, encoded, ints, take
from .lazy import cached_property
from .origins import has_opcode, uses_of
from .program import Program

_SLICING = ("dynamic-slice", "dynamic-slice-start")
_CALLING = ("fusion", "call", "async-start")
_PASSING = ("bitcast", "copy", "reshape")
_FORWARDING = ("tuple", "while", "get-tuple-element", "bitcast", "opt-barrier")
"""Opcodes that pass a value on as it is, to what is among its uses, too."""
MAX_NESTING = 8
"""Maximum number of instructions from a read to the slice."""


def are_read(p: Program) -> Mask:
    """Return which values something reads that does not just pass them on to a loop, as initial values are."""
    value, user, _, _ = uses_of(p)
    found = np.zeros(len(p.owner), bool)
    found[value[(value >= 0) & ~has_opcode(p, user, "^(?:tuple|while)$")]] = True
    return found


class SliceReads:
    """What instructions read of their operands."""

    def __init__(self, p: Program, body: HloBody) -> None:
        self._p, self._body = p, body
        codes, names = encoded(body.text("opcode"))
        self._opcode, self._opcodes = codes, names.to_pylist()
        self._operand = np.asarray(body.operand_row, np.int64)

    def are_only_slices(self, value: int) -> bool:
        """Return whether a value is read, and only slice by slice, by what does not just pass it on."""
        values, users, numbers = self.uses
        reads = slice(*np.searchsorted(values, [value, value + 1]))
        found = False
        for row, number in zip(users[reads].tolist(), numbers[reads].tolist(), strict=True):
            if row < 0:
                return False
            if self._name(row) in _FORWARDING:
                continue
            if not self._is_slice(row, number, -1, MAX_NESTING):
                return False
            found = True
        return found

    @cached_property
    def uses(self) -> tuple[Ints, Ints, Ints]:
        """All uses, by value: the value, the row of the user in the HLO text, -1 if unknown, and the operand."""
        p, uses = self._p, self._p.optional("uses")
        value, number = p.row_of_value(ints(uses, "value_id")), ints(uses, "operand")
        codes, names = encoded(uses["instruction"])
        row = take(np.asarray(self._body.rows_of(pc.cast(names, pa.string())), np.int64), codes)
        order = np.argsort(value, kind="stable")
        return value[order], row[order], number[order]

    def are_passed_on(self, rows: Ints) -> Mask:
        """Return which of these rows of the HLO text (-1 for none) only pass on what they read, but not to a loop."""
        codes = [i for i, name in enumerate(self._opcodes) if name in _FORWARDING and name != "while"]
        return np.isin(take(self._opcode, rows), codes)

    def _name(self, row: int) -> str | None:
        code = int(self._opcode[row])
        return self._opcodes[code] if code >= 0 else None

    def _is_slice(self, row: int, number: int, call: int, depth: int) -> bool:
        """Return whether an instruction only reads a slice of this operand, or passes it on to what does.

        Its computation is called by another instruction, -1 for none.
        """
        opcode, body = self._name(row), self._body
        if opcode in _SLICING:
            return number == 0
        if depth == 0:
            return False
        if opcode in _PASSING:
            return self._readers_slice(row, call, depth)
        called = int(body.called[row])
        if opcode not in _CALLING or called < 0:
            return False
        begin, end = body.computation_begin[called : called + 2].tolist()
        parameters = begin + np.flatnonzero(body.parameter_number[begin:end] == number)
        return len(parameters) == 1 and self._readers_slice(int(parameters[0]), row, depth)

    def _readers_slice(self, row: int, call: int, depth: int) -> bool:
        """Return whether all that read a result only read a slice of it: in its computation, or after its call."""
        body = self._body
        computation = int(body.computation[row])
        begin, end = body.computation_begin[computation : computation + 2].tolist()
        first, last = body.operand_begin[begin], body.operand_begin[end]
        items = first + np.flatnonzero(self._operand[first:last] == row)
        users = np.searchsorted(body.operand_begin, items, "right") - 1
        numbers = items - body.operand_begin[users]
        is_root = int(body.root[computation]) == row
        if is_root and (call < 0 or not self._readers_slice(call, -1, depth - 1)):
            return False
        pairs = zip(users.tolist(), numbers.tolist(), strict=True)
        return (is_root or len(users) > 0) and all(
            self._is_slice(user, number, call, depth - 1) for user, number in pairs
        )
