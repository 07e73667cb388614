"""Which arrays of the HLO text are computed from which: through fusions, elements of tuples, and loops."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.hlo_body import HloBody
from .columns import Ints, Mask, flags_of, take
from .lazy import cached_property
from .op_names import matching

MAX_ROUNDS = 64
"""Maximum number of rounds in which groups are joined. Each joins all that touch."""


def operand_items(body: HloBody, rows: Ints, number: Ints | int) -> Ints:
    """Return the index of an operand of each of these rows in the list of all operands, -1 if it has none such."""
    begin = take(body.operand_begin[:-1], rows)
    n = take(body.operand_begin[1:], rows) - begin
    is_known = (rows >= 0) & (number >= 0) & (number < n)  # numbers in a damaged text may be as large as 2^63 - 1
    return np.where(is_known, begin + number, -1)


def first_callers(body: HloBody) -> Ints:
    """Return the row of the first instruction that calls each computation, -1 for the entry computation."""
    caller = np.full(len(body.computation_name), -1)
    row = np.repeat(np.arange(len(body)), np.diff(body.call_begin))
    known = body.call >= 0
    caller[body.call[known][::-1]] = row[known][::-1]
    return caller


class HloFlow:
    """Pairs of instructions, as rows of the HLO text, of which the second one's result is computed from the first's.

    A parameter of a fusion is computed from an operand, and the result of the fusion from its root. An element of a
    tuple is what was put into it: by the root of a fusion, before a loop, or by an iteration of it.
    """

    def __init__(self, body: HloBody) -> None:
        self.body = body
        self._row = np.arange(len(body))

    def has_opcode(self, pattern: str) -> Mask:
        codes, names = self._opcodes
        return flags_of(matching(names, pattern), codes)

    @cached_property
    def _opcodes(self) -> tuple[Ints, pa.Array]:
        return self.texts("opcode")

    def texts(self, column: str) -> tuple[Ints, pa.Array]:
        """Return the codes (-1 for none) and the dictionary of a column of names."""
        text = self.body.text(column)
        names = text.chunk(0).dictionary if text.num_chunks else pa.array([], pa.string())
        return np.asarray(getattr(self.body, column), np.int64), pc.cast(names, pa.string())

    def operand(self, rows: Ints, number: Ints | int) -> Ints:
        """Return the row of an operand of each of these rows, -1 for none."""
        return take(np.asarray(self.body.operand_row, np.int64), operand_items(self.body, rows, number))

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """The rows of sources and of users."""
        body, element = self.body, np.flatnonzero(self._is_element)
        user = np.repeat(self._row, np.diff(body.operand_begin))
        source, is_plain = np.asarray(body.operand_row, np.int64), ~(self._is_element | self._joins)[user]
        parameter = np.flatnonzero(self.parameter_number >= 0)
        caller = self._caller_of(parameter, self._is_fusion)
        fusion = np.flatnonzero(self._is_fusion)
        found = [
            (source[is_plain], user[is_plain]),
            (self.operand(caller, self.parameter_number[parameter]), parameter),
            (self._root_of(fusion), fusion),
            *((self._element_of(row), element) for row in self._tuples(element)),
        ]
        sources, users = (np.concatenate(part) for part in zip(*found, strict=True))
        known = sources >= 0
        return sources[known], users[known]

    def _tuples(self, elements: Ints) -> list[Ints]:
        """Return the rows of the tuples that each of these elements may be taken from, -1 for none."""
        row = self.operand(elements, 0)
        is_loop, is_parameter = take(self._is_loop, row) > 0, take(self.parameter_number, row) >= 0
        loop = np.where(is_loop, row, self._caller_of(np.where(is_parameter, row, -1), self._is_loop))
        of_fusion = np.where(take(self._is_fusion, row) > 0, row, -1)
        return [row, self._root_of(of_fusion), self._root_of(loop), self.operand(loop, 0)]

    def _element_of(self, tuples: Ints) -> Ints:
        index = np.asarray(self.body.tuple_index, np.int64)[self._is_element]
        return self.operand(np.where(take(self._is_tuple, tuples) > 0, tuples, -1), index)

    def _root_of(self, rows: Ints) -> Ints:
        return take(np.asarray(self.body.root, np.int64), take(np.asarray(self.body.called, np.int64), rows))

    def _caller_of(self, rows: Ints, callers: Mask) -> Ints:
        """Return the first instruction that calls the computation of each row, if it is one of these, or -1."""
        found = take(self._callers, take(np.asarray(self.body.computation, np.int64), rows))
        return np.where(take(callers, found) > 0, found, -1)

    @cached_property
    def _callers(self) -> Ints:
        return first_callers(self.body)

    @cached_property
    def parameter_number(self) -> Ints:
        """The number of each instruction that is a parameter, -1 for others."""
        return np.asarray(self.body.parameter_number, np.int64)

    @cached_property
    def _is_fusion(self) -> Mask:
        return self.has_opcode("^(?:fusion|call)$")

    @cached_property
    def _is_loop(self) -> Mask:
        return self.has_opcode("^while$")

    @cached_property
    def _is_tuple(self) -> Mask:
        return self.has_opcode("^tuple$")

    @cached_property
    def _is_element(self) -> Mask:
        return self.has_opcode("^get-tuple-element$")

    @cached_property
    def _joins(self) -> Mask:
        """Whether each instruction only passes its operands on, as parameters or elements."""
        return self._is_fusion | self._is_loop | self._is_tuple


def groups(n: int, one: Ints, other: Ints) -> Ints:
    """Return for each of n things the lowest one in its group, where pairs are in the same group."""
    group = np.arange(n)
    for _ in range(MAX_ROUNDS):
        joined = group.copy()
        np.minimum.at(joined, group[one], group[other])
        np.minimum.at(joined, group[other], group[one])
        while not np.array_equal(lower := joined[joined], joined):
            joined = lower
        joined = joined[group]
        if np.array_equal(joined, group):
            break
        group = joined
    return group
