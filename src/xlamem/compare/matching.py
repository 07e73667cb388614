"""Match the values of two programs, whatever the numbers in their names."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.aliasing import outputs_of
from ..compute.buffer_names import source_columns
from ..compute.columns import Ints, Mask, decoded, encoded, take
from ..compute.lazy import cached_property
from ..compute.op_names import scopes
from ..compute.program import Program
from ..parse.fingerprints import row_hash
from .graph import Labels, both_sides, positions, text_hashes
from .instructions import OUTPUT, SCOPE, InstructionMatching
from .ordering import in_order, labels_in_order


class Matching:
    """Pairs of values of two programs: instructions are matched first, then the values that they define."""

    def __init__(self, a: Program, b: Program) -> None:
        self.a, self.b = a, b
        self._instructions = InstructionMatching(a, b)
        if not self._instructions.is_done:
            self._instructions.match_others()
        self.value = np.full(len(a.owner), -1, np.int64)
        """Value of B that matches each value of A, or -1."""
        self.value_of_b = np.full(len(b.owner), -1, np.int64)
        self.rule = np.full(len(a.owner), -1, np.int64)
        """Index in `instructions.RULES` of the rule that matched each value of A, or -1."""
        self._match_values()

    @property
    def steps_in_order(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """Steps of the matched instructions: in A and B in the order of A, and in B and A in the order of B."""
        return self._instructions.steps_in_order

    # -- values ----------------------------------------------------------------------------------

    def _match_values(self) -> None:
        a, b = self.a, self.b
        index, shape, phi, rank = zip(*both_sides(_described, a, b), strict=True)
        self._match_outputs(shape, rank)
        graphs = self._instructions.graphs
        node = graphs[0].node_of_value, take(self._instructions.node_of_b, graphs[1].node_of_value)
        size = a.unpadded, b.unpadded
        for columns in ((node, index, phi, shape), (node, shape), (node, index, phi, size)):
            self._pair_values(_labels(*columns), None, node)
        # A loop that carries more values may have another one, of another operation, at the same index.
        number = both_sides(lambda g: np.bincount(g.node_of_value)[g.node_of_value], *graphs)
        for same in (self._operations(), number):
            self._pair_values(_labels(node, index, phi, rank, same), None, node)
        self._match_by_scope(shape)

    def _operations(self) -> tuple[Ints, Ints]:
        """Return a hash of op_name and source line of each value that is not matched yet, 0 for others."""
        free = self.value < 0, self.value_of_b < 0
        hashes = np.zeros(len(free[0]), np.int64), np.zeros(len(free[1]), np.int64)
        if free[0].any() and free[1].any():
            for p, rows, result in zip((self.a, self.b), map(np.flatnonzero, free), hashes, strict=True):
                columns = source_columns(p, rows)
                line = pc.fill_null(columns["source_line"], -1).to_numpy().astype(np.int64)
                result[rows] = row_hash(text_hashes(columns["op_name"]), line)
        return hashes

    @cached_property
    def _value_order(self) -> tuple[Ints, Ints]:
        """Position of each value, by the first step of its live range."""
        return both_sides(lambda p: positions(p.ranges[0]), self.a, self.b)

    def _match_outputs(self, shape: tuple[Ints, Ints], rank: tuple[Ints, Ints]) -> None:
        """Match outputs with the same shape and index, if both programs have as many and compute them.

        So are those of another size, if the other program has none of their shape.
        """
        a, b = outputs_of(self.a), outputs_of(self.b)
        if len(a.value) != len(b.value) or a.index.null_count or b.index.null_count:
            return
        of_a, of_b = shape[0][a.value], shape[1][b.value]
        hashes = []
        sides = (self.a, a, of_a, of_b, rank[0]), (self.b, b, of_b, of_a, rank[1])
        for p, outputs, same, other, ranks in sides:
            kind = row_hash(_types(p, outputs.value), ranks[outputs.value])
            resized = ~np.isin(same, other)
            hashes.append(row_hash(text_hashes(outputs.index), np.where(resized, kind, same), resized.astype(np.int64)))
        at_a, at_b = in_order(*hashes)
        left, right = a.value[at_a], b.value[at_b]
        # An argument that is returned as it is matches an argument.
        own = ~np.isin(left, self.a.entry_parameters) & ~np.isin(right, self.b.entry_parameters)
        left, right = left[own], right[own]
        self.value[left], self.value_of_b[right], self.rule[left] = right, left, OUTPUT

    def _match_by_scope(self, shape: tuple[Ints, Ints]) -> None:
        """Match values of unmatched instructions that belong to the same operation, or else to the same scope."""
        left, right = np.flatnonzero(self.value < 0), np.flatnonzero(self.value_of_b < 0)
        if not len(left) or not len(right):
            return
        op_name, scope, element, rank = zip(*both_sides(_named, (self.a, left), (self.b, right)), strict=True)
        shape = shape[0][left], shape[1][right]
        category = self.a.value_category[left].astype(np.int64), self.b.value_category[right].astype(np.int64)
        unpadded = self.a.unpadded[left], self.b.unpadded[right]
        for columns, name in (
            ((op_name, shape, category), op_name),
            ((op_name, unpadded, category), op_name),
            ((op_name, element, rank, category), op_name),
            ((scope, shape, category), scope),
        ):
            keys = [np.zeros(len(self.value), np.int64), np.zeros(len(self.value_of_b), np.int64)]
            allowed = [np.zeros(len(k), bool) for k in keys]
            for side, values in enumerate((left, right)):
                keys[side][values] = row_hash(*(c[side] for c in columns))
                allowed[side][values] = name[side] != 0
            self._pair_values(Labels(*keys), SCOPE, None, (allowed[0], allowed[1]))

    def _pair_values(
        self, labels: Labels, rule: int | None, node: tuple[Ints, Ints] | None = None,
        allowed: tuple[Mask, Mask] | None = None,
    ) -> None:
        free = [self.value < 0, self.value_of_b < 0]
        if node is not None:
            free[0] &= self._instructions.node[node[0]] >= 0
            free[1] &= node[1] >= 0
        if allowed is not None:
            free = [f & a for f, a in zip(free, allowed, strict=True)]
        left, right = labels_in_order(np.flatnonzero(free[0]), np.flatnonzero(free[1]), labels, *self._value_order)
        self.value[left], self.value_of_b[right] = right, left
        own = self._instructions.rule[self._instructions.graphs[0].node_of_value[left]]
        self.rule[left] = own if rule is None else rule


def _labels(*columns: tuple[Ints, Ints]) -> Labels:
    return Labels(*(row_hash(*(c[side] for c in columns)) for side in (0, 1)))


def _described(p: Program) -> tuple[Ints, Ints, Ints, Ints]:
    """Return hashes of shape index and shape, whether it is a phi, and the number of dimensions of each value."""
    values = p.tables["values"]
    is_phi = np.asarray(values["is_phi"].to_numpy(), np.int64)
    return text_hashes(values["shape_index"]), text_hashes(values["shape"]), is_phi, _n_dimensions(values["shape"])


def _named(side: tuple[Program, Ints]) -> tuple[Ints, Ints, Ints, Ints]:
    """Return hashes of op_name, scope and element type, and the number of dimensions of these values."""
    p, values = side
    names = source_columns(p, values)["op_name"]
    rank = _n_dimensions(p.value_text("shape", values))
    return text_hashes(names), text_hashes(_scopes(names)), _types(p, values), rank


def _types(p: Program, values: Ints) -> Ints:
    """Return a hash of the element type of each of these values."""
    return text_hashes(p.value_text("element_type", values))


def _n_dimensions(shapes: pa.ChunkedArray | pa.Array) -> Ints:
    """Return the number of dimensions of each shape; -1 for tuples."""
    codes, texts = encoded(shapes)
    inside = pc.struct_field(pc.extract_regex(pc.cast(texts, pa.string()), r"^\w+\[(?P<n>[^\]]*)\]"), "n")
    commas = pc.add(pc.count_substring(inside, ","), pc.cast(pc.not_equal(inside, ""), pa.int32()))
    numbers = pc.fill_null(pc.cast(commas, pa.int64()), -1)
    return take(np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64), codes)


def _scopes(names: pa.Array) -> pa.Array:
    codes, texts = encoded(names)
    used, row = np.unique(codes, return_inverse=True)
    return decoded(row.ravel(), scopes(pc.cast(decoded(used, texts), pa.string())))
