"""The instruction graph of a program, with labels that can be compared with those of another program."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.buffer_names import source_columns
from ..compute.columns import Ints, Mask, arrow_array, encoded, flags_of, ints, sums_of, take, texts_of
from ..compute.lazy import cached_property
from ..compute.op_names import PARAMETERS, plain_names
from ..compute.origins import has_opcode, uses_of
from ..compute.program import Program
from ..parse.arrays import Rows, row_of, stable_order
from ..parse.fingerprints import hash_texts, row_hash

Side = TypeVar("Side")
Result = TypeVar("Result")

NUMBER = r"(?:\.(?:clone|remat\d*|\d+))+$"
"""What XLA appends to the name of an instruction to make it unique."""


MOVE = r"^(?:copy|copy-start|copy-done|async-start|async-done|bitcast)$"
"""Opcodes of what only moves bytes."""


class Texts(NamedTuple):
    """A text for each node."""

    codes: Ints
    """Row in `texts`; -1 for none."""
    texts: pa.Array

    def hashes(self) -> Ints:
        """Return a hash of each text, 0 for none."""
        return np.append(hash_texts(pc.cast(self.texts, pa.string())), 0)[self.codes]


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
        # In the order of their values: that of the codes depends on what of the dump was read first.
        self.first_value = np.sort(first[first >= 0])
        self.code = codes[self.first_value]
        self.n = len(self.code)
        number = np.full(len(first), -1)
        number[self.code] = np.arange(self.n)
        self.node_of_value: Ints = number[codes]
        """Node of each value of the program."""
        self.row = p.instruction_row[self.first_value]
        """Row in `instructions`, -1 if the text is not printed."""

    def text(self, column: str) -> Texts:
        """Return a text column of `instructions`; -1 for nodes whose text is not printed."""
        codes, texts = self.p.texts("instructions", column)
        return Texts(take(codes, self.row), pc.cast(texts, pa.string()))

    @cached_property
    def opcodes(self) -> Texts:
        """The opcode, or the name without its number where no text is printed."""
        codes, opcodes = self.text("opcode")
        missing = np.flatnonzero(codes < 0)
        names = pc.cast(pc.take(self._names, arrow_array(self.code[missing])), pa.string())
        stem_codes, stems = encoded(pc.replace_substring_regex(names, NUMBER, ""))
        codes[missing] = stem_codes + len(opcodes)
        return Texts(codes, pa.concat_arrays([opcodes, pc.cast(stems, pa.string())]))

    @property
    def plain_names(self) -> Texts:
        """The op_name without the wrappers of transformations: `jit(f)/jvp(layer_0)/dot` becomes `layer_0/dot`."""
        codes, names = self.text("op_name")
        return Texts(codes, plain_names(pc.replace_substring_regex(names, PARAMETERS, "")))

    @property
    def unpadded(self) -> Ints:
        """Bytes of the first value of each node without padding."""
        return self.p.unpadded[self.first_value]

    @cached_property
    def is_parameter(self) -> Mask:
        codes, opcodes = self.opcodes
        parameter = np.asarray(pc.equal(opcodes, "parameter").to_numpy(zero_copy_only=False), bool)
        return flags_of(parameter, codes)

    @property
    def moved_names(self) -> Texts:
        """The plain op_name of what copies without a name copy; -1 for other nodes."""
        nodes = np.flatnonzero(has_opcode(self.p, self.row, MOVE) & (self.text("op_name").codes < 0))
        codes, names = encoded(source_columns(self.p, self.first_value[nodes])["op_name"])
        return self._of_nodes(nodes, codes, plain_names(pc.cast(names, pa.string())))

    @property
    def argument_names(self) -> Texts:
        """The name of an argument; -1 for other nodes."""
        nodes = np.flatnonzero(self.is_parameter)
        codes, names = encoded(texts_of(self.p.texts("instructions", "op_name"), self.row[nodes]))
        return self._of_nodes(nodes, codes, pc.cast(names, pa.string()))

    @property
    def argument_suffixes(self) -> Texts:
        """The name of an argument without the variable and its indices; -1 for other nodes."""
        codes, names = self.argument_names
        return Texts(codes, argument_suffixes(names))

    @property
    def dimensions(self) -> Texts:
        """The dimensions of an array, `[4,128]`, without its element type and layout; -1 for tuples."""
        codes, shapes = self.text("shape")
        found = pc.struct_field(pc.extract_regex(shapes, r"^\w+(?P<d>\[[^\]]*\])"), "d")
        known = np.asarray(pc.is_valid(found).to_numpy(zero_copy_only=False), bool)
        return Texts(np.where(flags_of(known, codes), codes, -1), found)

    @property
    def numbers(self) -> Texts:
        """The number of a parameter; -1 for other nodes."""
        nodes = np.flatnonzero(self.is_parameter & (self.row >= 0))
        operands = pc.take(self.p.tables["instructions"]["operands"], arrow_array(self.row[nodes]))
        return self._of_nodes(nodes, *encoded(operands))

    def _of_nodes(self, nodes: Ints, codes: Ints, texts: pa.Array) -> Texts:
        """Return the texts of these nodes; -1 for others."""
        all_codes = np.full(self.n, -1)
        all_codes[nodes] = codes
        return Texts(all_codes, texts)

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


def nested_names(names: pa.Array, theirs: pa.Array) -> pa.Array:
    """Return names of arguments, without their last component if the other program has the shorter name only.

    A leaf may have become several, as quantization does: `w` becomes `w['q']` and `w['scale']`.
    """
    around = pc.replace_substring_regex(names, r"(?:\['?[^'\[\]]*'?\]|\.\w+)$", "")
    return pc.if_else(pc.and_(pc.invert(pc.is_in(names, theirs)), pc.is_in(around, theirs)), around, names)


def positions(step: Ints) -> Ints:
    """Return the position of each row when rows are sorted by step."""
    rows = np.arange(len(step))
    position = np.empty(len(step), np.int64)
    position[stable_order(step)] = rows
    return position


def text_hashes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return a hash of the text of each row, 0 for null."""
    return Texts(*encoded(column)).hashes()


def both_sides(compute: Callable[[Side], Result], a: Side, b: Side) -> tuple[Result, Result]:
    """Compute something for both programs. Two threads would wait for each other more than they gain."""
    return compute(a), compute(b)


class Neighbours:
    """The edges of a graph, to hash what surrounds each node."""

    def __init__(self, graph: Graph) -> None:
        self._edges, self._n = graph.edges, graph.n

    def surrounded(self, h: Ints) -> Ints:
        """Return a hash of each node together with its operands and users, given a hash of each node."""
        e = self._edges
        operands = sums_of(row_hash(h[e.source], e.operand), e.target, self._n)
        users = sums_of(row_hash(h[e.target], e.operand + (1 << 32)), e.source, self._n)
        return row_hash(h, operands, users)
