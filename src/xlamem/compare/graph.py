"""The instruction graph of a program, with labels that can be compared with those of another program."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..compute.columns import Ints, encoded, ints, take
from ..compute.op_names import plain_names
from ..compute.origins import uses_of
from ..compute.program import Program
from ..parse.arrays import Rows, row_of

Hashes = npt.NDArray[np.uint64]

NUMBER = r"(?:\.(?:clone|remat\d*|\d+))+$"
"""What XLA appends to the name of an instruction to make it unique."""


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
        self.code, first, node = np.unique(codes, return_index=True, return_inverse=True)
        self.node_of_value: Ints = node.reshape(-1).astype(np.int64)
        """Node of each value of the program."""
        self.row = p.instruction_row[first]
        """Row in `instructions`, -1 if the text is not printed."""
        self.first_value = first.astype(np.int64)
        self.n = len(first)

    @cached_property
    def names(self) -> pa.Array:
        return self._names.take(pa.array(self.code)).cast(pa.string())

    def text(self, column: str) -> pa.Array:
        """Return a text column of `instructions`; null for nodes whose text is not printed."""
        codes, texts = encoded(self.p.tables["instructions"][column])
        codes = take(codes, self.row)
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0), texts)

    @cached_property
    def opcodes(self) -> pa.Array:
        """The opcode, or the name without its number where no text is printed."""
        names = pc.replace_substring_regex(self.names, NUMBER, "")
        return pc.coalesce(self.text("opcode").cast(pa.string()), names)

    @cached_property
    def plain_names(self) -> pa.Array:
        """The op_name without the wrappers of transformations: `jit(f)/jvp(layer_0)/dot` becomes `layer_0/dot`."""
        codes, names = encoded(self.text("op_name"))
        plain = plain_names(names.cast(pa.string()))
        return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0), plain)

    @cached_property
    def numbers(self) -> pa.Array:
        """The number of a parameter; null for other nodes."""
        is_parameter = pc.equal(self.opcodes, "parameter")
        return pc.if_else(is_parameter, self.text("operands").cast(pa.string()), None)

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


class Labels(NamedTuple):
    """A hash of what describes each node, for two programs."""

    a: Hashes
    b: Hashes


def common_codes(a: pa.Array, b: pa.Array) -> tuple[Ints, Ints]:
    """Return codes of two text columns that are equal where the texts are; -1 for null."""
    (codes_a, texts_a), (codes_b, texts_b) = encoded(a), encoded(b)
    both = pa.concat_arrays([texts_a.cast(pa.string()), texts_b.cast(pa.string())])
    code, _ = encoded(both)
    return take(code[: len(texts_a)], codes_a), take(code[len(texts_a) :], codes_b)


def mixed(*columns: Ints | Hashes) -> Hashes:
    """Hash the rows of these columns (the finalizer of SplitMix64, once per column)."""
    h = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        h = _finalized(h * np.uint64(0x9E3779B97F4A7C15) + column.astype(np.uint64) + np.uint64(1))
    return h


def _finalized(h: Hashes) -> Hashes:
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed_hash: Hashes = h ^ (h >> np.uint64(31))
    return mixed_hash


class Neighbours:
    """The edges of a graph in two orders, to hash what surrounds each node."""

    def __init__(self, graph: Graph) -> None:
        self._n = graph.n
        self._edges = graph.edges
        self._by_target = np.argsort(graph.edges.target, kind="stable")
        self._by_source = np.argsort(graph.edges.source, kind="stable")

    def surrounded(self, h: Hashes) -> Hashes:
        """Return a hash of each node together with its operands and users, given a hash of each node."""
        e = self._edges
        operands = self._sums(mixed(h[e.source], e.operand), e.target, self._by_target)
        users = self._sums(mixed(h[e.target], e.operand + (1 << 32)), e.source, self._by_source)
        return mixed(h, operands, users)

    def _sums(self, h: Hashes, key: Ints, order: Ints) -> Hashes:
        """Add up hashes (modulo 2^64) by node."""
        total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(h[order], dtype=np.uint64)])
        bounds = np.searchsorted(key[order], np.arange(self._n + 1))
        sums: Hashes = total[bounds[1:]] - total[bounds[:-1]]
        return sums
