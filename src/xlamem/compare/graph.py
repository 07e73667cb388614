"""The instruction graph of a program, with labels that can be compared with those of another program."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compute.columns import Ints, Mask, decoded, encoded, ints, take
from ..compute.op_names import plain_names
from ..compute.origins import uses_of
from ..compute.program import Program
from ..parse.arrays import Rows, row_of
from ..parse.fingerprints import hash_texts, row_hash

Side = TypeVar("Side")
Result = TypeVar("Result")

NUMBER = r"(?:\.(?:clone|remat\d*|\d+))+$"
"""What XLA appends to the name of an instruction to make it unique."""

PARAMETERS = r"\[[a-z_]+=.*$"
"""What old versions of JAX append to an op_name: `dot_general[dimension_numbers=…]`."""


class Edges(NamedTuple):
    """Operands: the node that defines a value and the node that reads it."""

    source: Ints
    target: Ints
    operand: Ints
    """Number of the operand."""


class Graph:
    """The instructions that define values. Arrays without another description have one row per node."""

    def __init__(self, p: Program) -> None:
        self.p = p
        codes, self._names = p.names
        first = row_of(codes, np.arange(len(self._names)))
        self.code = np.flatnonzero(first >= 0)
        self.first_value = first[self.code]
        self.n = len(self.code)
        number = np.full(len(first), -1)
        number[self.code] = np.arange(self.n)
        self.node_of_value: Ints = number[codes]
        """Node of each value of the program."""
        self.row = p.instruction_row[self.first_value]
        """Row in `instructions`, -1 if the text is not printed."""

    def text(self, column: str) -> pa.Array:
        """Return a text column of `instructions`; null for nodes whose text is not printed."""
        codes, texts = encoded(self.p.tables["instructions"][column])
        codes = take(codes, self.row)
        return decoded(codes, texts)

    @cached_property
    def opcodes(self) -> pa.Array:
        """The opcode, or the name without its number where no text is printed."""
        codes, opcodes = encoded(self.text("opcode"))
        missing = np.flatnonzero(codes < 0)
        names = self._names.take(pa.array(self.code[missing])).cast(pa.string())
        stem_codes, stems = encoded(pc.replace_substring_regex(names, NUMBER, ""))
        codes[missing] = stem_codes + len(opcodes)
        return decoded(codes, pa.concat_arrays([opcodes.cast(pa.string()), stems.cast(pa.string())]))

    @cached_property
    def plain_names(self) -> pa.Array:
        """The op_name without the wrappers of transformations: `jit(f)/jvp(layer_0)/dot` becomes `layer_0/dot`."""
        codes, names = encoded(self.text("op_name"))
        plain = plain_names(pc.replace_substring_regex(names.cast(pa.string()), PARAMETERS, ""))
        return decoded(codes, plain)

    @cached_property
    def is_parameter(self) -> Mask:
        codes, opcodes = encoded(self.opcodes)
        is_parameter: Mask = codes == pc.index(opcodes, "parameter").as_py()
        return is_parameter

    @cached_property
    def argument_suffixes(self) -> pa.Array:
        """The name of an argument without the variable and its indices; null for other nodes."""
        codes, names = encoded(self.text("op_name"))
        return decoded(np.where(self.is_parameter, codes, -1), argument_suffixes(names.cast(pa.string())))

    @cached_property
    def numbers(self) -> pa.Array:
        """The number of a parameter; null for other nodes."""
        operands, texts = encoded(self.text("operands"))
        is_parameter = self.is_parameter & (operands >= 0)
        used, number = np.unique(operands[is_parameter], return_inverse=True)
        numbers = np.full(self.n, -1)
        numbers[is_parameter] = number.reshape(-1)
        return decoded(numbers, texts.take(pa.array(used)))

    @cached_property
    def edges(self) -> Edges:
        value, user, operand, _ = uses_of(self.p)
        of_row = Rows(self.row)(user)
        known = (value >= 0) & (user >= 0) & (of_row >= 0)
        return Edges(self.node_of_value[value[known]], of_row[known], operand[known])

    @cached_property
    def step(self) -> Ints:
        """The step at which a node is scheduled; where the schedule does not list it, the first step of its values."""
        schedule = self.p.optional("schedule")
        row = row_of(self.p.row_of_instruction(schedule["instruction"]), self.row)
        scheduled = np.where(self.row >= 0, take(ints(schedule, "time"), row), -1)
        start = np.maximum(self.p.ranges[0], -1)
        return np.where(scheduled >= 0, scheduled, start[self.first_value] if self.n else scheduled)

    @cached_property
    def position(self) -> Ints:
        """Position of each node in the schedule, all different."""
        return positions(self.step)


class Labels(NamedTuple):
    """A hash of what describes each node, for two programs."""

    a: Ints
    b: Ints


def argument_suffixes(names: pa.Array) -> pa.Array:
    """Return names of arguments without the variable and its indices: `.mu['w']` of `opt_state[1][0].mu['w']`."""
    return pc.replace_substring_regex(names, r"^\w+(?:\[\d+\])*", "")


def positions(step: Ints) -> Ints:
    """Return the position of each row when rows are sorted by step."""
    position = np.empty(len(step), np.int64)
    position[np.argsort(step, kind="stable")] = np.arange(len(step))
    return position


def text_hashes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return a hash of the text of each row, 0 for null."""
    codes, texts = encoded(column)
    hashes = np.append(hash_texts(texts.cast(pa.string())), 0)
    return hashes[codes]


def both_sides(compute: Callable[[Side], Result], a: Side, b: Side) -> tuple[Result, Result]:
    """Compute something for both programs, in two threads."""
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(compute, (a, b))
    return first, second


class Neighbours:
    """The edges of a graph in two orders, to hash what surrounds each node."""

    def __init__(self, graph: Graph) -> None:
        e = graph.edges
        self._edges = e
        self._operands, self._users = _Groups(e.target, graph.n), _Groups(e.source, graph.n)

    def surrounded(self, h: Ints) -> Ints:
        """Return a hash of each node together with its operands and users, given a hash of each node."""
        e = self._edges
        operands = self._operands.sums(row_hash(h[e.source], e.operand))
        users = self._users.sums(row_hash(h[e.target], e.operand + (1 << 32)))
        return row_hash(h, operands, users)


class _Groups:
    """Rows grouped by node."""

    def __init__(self, key: Ints, n: int) -> None:
        self._order = np.argsort(key, kind="stable")
        self._bounds = np.searchsorted(key[self._order], np.arange(n + 1))

    def sums(self, h: Ints) -> Ints:
        """Add up hashes (modulo 2^64) by node."""
        total = np.zeros(len(h) + 1, np.int64)
        np.cumsum(h[self._order], out=total[1:])
        ends = total[self._bounds]
        sums: Ints = ends[1:] - ends[:-1]
        return sums
