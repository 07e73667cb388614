"""Match the values of two programs, whatever the numbers in their names."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..compute.aliasing import outputs_of
from ..compute.buffer_names import source_columns
from ..compute.columns import Ints, Mask, decoded, encoded, take
from ..compute.op_names import scopes
from ..compute.program import Program
from .graph import Graph, Hashes, Labels, Neighbours, both_sides, common_codes, mixed, positions

RULES = tuple(schema.MATCHES)
OUTPUT, SUBGRAPH, OPERATION, STRUCTURE, RESIZED, NEIGHBOR, SCOPE, SCHEDULE = range(8)

RADIUS = 3
"""Number of operands and users in a row that an exact subgraph consists of."""
NEAR = 1
"""That number once some nodes are matched."""
MAX_ROUNDS = 8
"""Maximum number of steps from a matched node to one that is matched through its neighbours."""

TYPE = r"\b(?:pred|token|opaque|[suf]\d+|bf16|c64|c128|f8\w+)\["
DIMENSIONS = r"\[[\d,<= ]*\]"
LAYOUT = r"\{[^{}]*\}"


class Matching:
    """Pairs of values of two programs.

    Instructions are matched first, those with the most in common before others, in the order of `RULES`; then the
    values that they define, by shape index.
    """

    def __init__(self, a: Program, b: Program) -> None:
        self.a, self.b = a, b
        self.graphs = both_sides(Graph, a, b)
        self.node = np.full(self.graphs[0].n, -1, np.int64)
        """Node of B that matches each node of A, or -1."""
        self.node_of_b = np.full(self.graphs[1].n, -1, np.int64)
        self.node_rule = np.full(self.graphs[0].n, -1, np.int64)
        self._match_nodes()
        self.value = np.full(len(a.owner), -1, np.int64)
        """Value of B that matches each value of A, or -1."""
        self.value_of_b = np.full(len(b.owner), -1, np.int64)
        self.rule = np.full(len(a.owner), -1, np.int64)
        """Index in RULES of the rule that matched each value of A, or -1."""
        self._match_values()

    # -- labels ----------------------------------------------------------------------------------

    @cached_property
    def _opcode(self) -> tuple[Ints, Ints]:
        return common_codes(*both_sides(lambda g: g.opcodes, *self.graphs))

    def _text(self, column: str) -> tuple[Ints, Ints]:
        return common_codes(*(g.text(column) for g in self.graphs))

    def _labels(self, *columns: tuple[Ints, Ints]) -> Labels:
        return Labels(mixed(*(c[0] for c in columns)), mixed(*(c[1] for c in columns)))

    # -- nodes -----------------------------------------------------------------------------------

    def _match_nodes(self) -> None:
        opcode, op_name, shape = self._opcode, self._text("op_name"), self._text("shape")
        number = common_codes(*(g.numbers for g in self.graphs))
        self._match_subgraphs(self._labels(opcode, op_name, shape, number), SUBGRAPH, OPERATION)
        if self._is_done:
            return
        plain = common_codes(*both_sides(lambda g: g.plain_names, *self.graphs))
        self._match_subgraphs(self._labels(opcode, op_name), RESIZED, RESIZED)
        self._match_subgraphs(self._labels(opcode, plain, shape), OPERATION, OPERATION)
        self._match_subgraphs(self._labels(opcode, shape, number), STRUCTURE, None)
        self._match_neighbours()
        self._match_in_order(self._labels(opcode, op_name, shape), OPERATION)
        self._match_in_order(self._labels(opcode, op_name), RESIZED)
        self._match_in_order(self._labels(opcode, plain), RESIZED)
        self._match_neighbours()
        self._match_along_schedule(self._labels(opcode, shape))

    @cached_property
    def _neighbours(self) -> tuple[Neighbours, Neighbours]:
        return both_sides(Neighbours, *self.graphs)

    def _match_subgraphs(self, labels: Labels, rule: int, alone: int | None) -> None:
        """Match nodes with equal labels and surroundings, then those with less and less of these in common."""
        if self._is_done:
            return
        a, b = both_sides(self._surroundings, (0, labels.a), (1, labels.b))
        for h in zip(reversed(a), reversed(b), strict=True):
            self._match_equal(Labels(*h), rule)
        if alone is not None:
            self._match_equal(labels, alone)

    def _surroundings(self, side: tuple[int, Hashes]) -> list[Hashes]:
        """Return hashes of the nodes of a program with what is within 1, 2, … edges.

        Nodes that are matched are known by their match, whatever their labels.
        """
        number, labels = side
        match = self._matches[number]
        h = np.where(match >= 0, mixed(match), labels)
        radius = RADIUS if (match < 0).all() else NEAR
        graph = self._neighbours[number]
        return [h := graph.surrounded(h) for _ in range(radius)]

    @property
    def _matches(self) -> tuple[Ints, Ints]:
        """Number of the match of each node: that of its node of A; -1 for none."""
        return np.where(self.node >= 0, np.arange(len(self.node)), -1), self.node_of_b

    @property
    def _is_done(self) -> bool:
        """Whether all nodes of one side are matched."""
        return bool((self.node >= 0).all() or (self.node_of_b >= 0).all())

    def _match_equal(self, labels: Labels, rule: int) -> None:
        """Match unmatched nodes whose label is equally frequent on both sides, in the order of the schedule."""
        left, right = np.flatnonzero(self.node < 0), np.flatnonzero(self.node_of_b < 0)
        group_a, group_b, n = _groups(labels.a[left], labels.b[right])
        equal = np.bincount(group_a, minlength=n) == np.bincount(group_b, minlength=n)
        chosen_a, chosen_b = equal[group_a], equal[group_b]
        left, right = left[chosen_a], right[chosen_b]
        left = left[_by_group(group_a[chosen_a], self._order(0)[left])]
        right = right[_by_group(group_b[chosen_b], self._order(1)[right])]
        self._pair(left, right, rule)

    def _match_in_order(self, labels: Labels, rule: int) -> None:
        """Match unmatched nodes with equal labels in the order of the schedule; some are left over."""
        left, right = np.flatnonzero(self.node < 0), np.flatnonzero(self.node_of_b < 0)
        self._pair(*_in_order(left, right, labels, self._order(0), self._order(1)), rule)

    def _match_neighbours(self) -> None:
        """Match operands and users of matched nodes, if opcode and operand leave one choice on each side."""
        for _ in range(MAX_ROUNDS):
            before = int((self.node < 0).sum())
            self._match_adjacent(to_operands=True)
            self._match_adjacent(to_operands=False)
            if int((self.node < 0).sum()) in (0, before):
                return

    def _match_adjacent(self, *, to_operands: bool) -> None:
        keys, nodes = [], []
        for side, pair in enumerate(self._matches):
            e = self.graphs[side].edges
            known, other = (e.target, e.source) if to_operands else (e.source, e.target)
            unmatched = (self.node if side == 0 else self.node_of_b)[other] < 0
            chosen = (pair[known] >= 0) & unmatched
            keys.append(mixed(pair[known[chosen]], e.operand[chosen], self._opcode[side][other[chosen]]))
            nodes.append(other[chosen])
        (left, key_a), (right, key_b) = (_unique_choices(k, n) for k, n in zip(keys, nodes, strict=True))
        group_a, group_b, n = _groups(key_a, key_b)
        partner = np.full(n, -1)
        partner[group_b] = right
        partner = partner[group_a]
        left, partner = left[partner >= 0], partner[partner >= 0]
        first = np.sort(np.unique(left, return_index=True)[1])  # a node with several choices takes the first
        left, partner = left[first], partner[first]
        first = np.sort(np.unique(partner, return_index=True)[1])
        self._pair(left[first], partner[first], NEIGHBOR)

    def _match_along_schedule(self, labels: Labels) -> None:
        """Match nodes with equal labels between the same matched nodes of the schedule."""
        left, right = np.flatnonzero(self.node < 0), np.flatnonzero(self.node_of_b < 0)
        before_a, before_b = self._anchors
        keys = Labels(mixed(labels.a, before_a), mixed(labels.b, before_b))
        self._pair(*_in_order(left, right, keys, self._order(0), self._order(1)), SCHEDULE)

    @property
    def _anchors(self) -> tuple[Ints, Ints]:
        """The last matched node (of A) that is scheduled at or before each node."""
        anchors = []
        for side, number in enumerate(self._matches):
            order = np.argsort(self._order(side))
            last = np.maximum.accumulate(np.where(number[order] >= 0, np.arange(len(order)), -1))
            anchor = np.empty(len(order), np.int64)
            anchor[order] = take(number[order], last)
            anchors.append(anchor)
        return anchors[0], anchors[1]

    def _order(self, side: int) -> Ints:
        return self.graphs[side].position

    def _pair(self, left: Ints, right: Ints, rule: int) -> None:
        self.node[left], self.node_of_b[right], self.node_rule[left] = right, left, rule

    @cached_property
    def steps(self) -> tuple[Ints, Ints]:
        """Steps in A and B of the matched instructions that both schedules list."""
        nodes = np.flatnonzero(self.node >= 0)
        a, b = self.graphs[0].step[nodes], self.graphs[1].step[self.node[nodes]]
        scheduled = (a >= 0) & (b >= 0)
        return a[scheduled], b[scheduled]

    # -- values ----------------------------------------------------------------------------------

    def _match_values(self) -> None:
        a, b = self.a, self.b
        index = common_codes(*(p.tables["values"]["shape_index"] for p in (a, b)))
        shape = common_codes(*(p.tables["values"]["shape"] for p in (a, b)))
        phi = tuple(np.asarray(p.tables["values"]["is_phi"].to_numpy(), np.int64) for p in (a, b))
        self._match_outputs(shape)
        node = self.graphs[0].node_of_value, take(self.node_of_b, self.graphs[1].node_of_value)
        rank = tuple(_n_dimensions(p.tables["values"]["shape"]) for p in (a, b))
        size = a.unpadded, b.unpadded
        for columns in ((node, index, phi, shape), (node, shape), (node, index, phi, size), (node, index, phi, rank)):
            self._pair_values(Labels(*(mixed(*(c[side] for c in columns)) for side in (0, 1))), None, node)
        self._match_by_scope(shape)

    @cached_property
    def _value_order(self) -> tuple[Ints, Ints]:
        """Position of each value, by the first step of its live range."""
        return both_sides(lambda p: positions(p.ranges[0]), self.a, self.b)

    def _match_outputs(self, shape: tuple[Ints, Ints]) -> None:
        """Match outputs with the same shape and index, if both programs have as many and compute them."""
        a, b = outputs_of(self.a), outputs_of(self.b)
        if len(a.value) != len(b.value) or a.index.null_count or b.index.null_count:
            return
        index = common_codes(a.index, b.index)
        at_a, at_b = in_order(mixed(index[0], shape[0][a.value]), mixed(index[1], shape[1][b.value]))
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
        a, b = both_sides(lambda side: source_columns(*side)["op_name"], (self.a, left), (self.b, right))
        element = common_codes(*(p.value_text("element_type", v) for p, v in ((self.a, left), (self.b, right))))
        rank = tuple(_n_dimensions(p.value_text("shape", v)) for p, v in ((self.a, left), (self.b, right)))
        shape = shape[0][left], shape[1][right]
        category = self.a.value_category[left].astype(np.int64), self.b.value_category[right].astype(np.int64)
        unpadded = self.a.unpadded[left], self.b.unpadded[right]
        op_name, scope = common_codes(a, b), common_codes(_scopes(a), _scopes(b))
        for columns, name in (
            ((op_name, shape, category), op_name),
            ((op_name, unpadded, category), op_name),
            ((op_name, element, rank, category), op_name),
            ((scope, shape, category), scope),
        ):
            keys = [np.zeros(len(self.value), np.uint64), np.zeros(len(self.value_of_b), np.uint64)]
            allowed = [np.zeros(len(k), bool) for k in keys]
            for side, values in enumerate((left, right)):
                keys[side][values] = mixed(*(c[side] for c in columns))
                allowed[side][values] = name[side] >= 0
            self._pair_values(Labels(*keys), SCOPE, None, (allowed[0], allowed[1]))

    def _pair_values(
        self, labels: Labels, rule: int | None, node: tuple[Ints, Ints] | None = None,
        allowed: tuple[Mask, Mask] | None = None,
    ) -> None:
        free = [self.value < 0, self.value_of_b < 0]
        if node is not None:
            free[0] &= self.node[node[0]] >= 0
            free[1] &= node[1] >= 0
        if allowed is not None:
            free = [f & a for f, a in zip(free, allowed, strict=True)]
        left, right = _in_order(np.flatnonzero(free[0]), np.flatnonzero(free[1]), labels, *self._value_order)
        self.value[left], self.value_of_b[right] = right, left
        self.rule[left] = self.node_rule[self.graphs[0].node_of_value[left]] if rule is None else rule


def _n_dimensions(shapes: pa.ChunkedArray | pa.Array) -> Ints:
    """Return the number of dimensions of each shape; -1 for tuples."""
    codes, texts = encoded(shapes)
    inside = pc.struct_field(pc.extract_regex(texts.cast(pa.string()), r"^\w+\[(?P<n>[^\]]*)\]"), "n")
    commas = pc.add(pc.count_substring(inside, ","), pc.cast(pc.not_equal(inside, ""), pa.int32()))
    return take(np.asarray(commas.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False), np.int64), codes)


def _scopes(names: pa.Array) -> pa.Array:
    codes, texts = encoded(names)
    used, row = np.unique(codes, return_inverse=True)
    return decoded(row.reshape(-1), scopes(decoded(used, texts).cast(pa.string())))


def _groups(a: Ints | Hashes, b: Ints | Hashes) -> tuple[Ints, Ints, int]:
    """Number the distinct keys of two sides."""
    distinct, group = np.unique(np.concatenate([a, b]), return_inverse=True)
    group = group.reshape(-1)
    return group[: len(a)], group[len(a) :], len(distinct)


def _in_order(left: Ints, right: Ints, labels: Labels, order_a: Ints, order_b: Ints) -> tuple[Ints, Ints]:
    """Pair the k-th row of each label on the left with its k-th row on the right."""
    at_a, at_b = in_order(labels.a[left], labels.b[right], order_a[left], order_b[right])
    return left[at_a], right[at_b]


def in_order(
    a: Ints | Hashes, b: Ints | Hashes, order_a: Ints | None = None, order_b: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return the indices of pairs of equal keys: the k-th of each key on both sides, by default in the given order."""
    group_a, group_b, _ = _groups(a, b)
    rank_a = ranks(group_a, np.arange(len(a)) if order_a is None else order_a)
    rank_b = ranks(group_b, np.arange(len(b)) if order_b is None else order_b)
    width = max(len(a), len(b), 1)
    keys_a, keys_b = group_a * width + rank_a, group_b * width + rank_b
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    return at_a, at_b


def ranks(group: Ints, position: Ints) -> Ints:
    """Return the rank of each row within its group."""
    by_group = _by_group(group, position)
    ordered = group[by_group]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.empty(len(group), np.int64)
    rank[by_group] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    return rank


def _by_group(group: Ints, position: Ints) -> Ints:
    """Return the order of rows by group, then by position (from 0). All pairs of these differ."""
    return np.argsort(group * (int(position.max(initial=0)) + 1) + position)


def _unique_choices(keys: Hashes, nodes: Ints) -> tuple[Ints, Hashes]:
    """Return the nodes of keys that have only one distinct node, and these keys."""
    if not len(keys):
        return nodes, keys
    order = np.argsort(keys)
    keys, nodes = keys[order], nodes[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    low, high = np.minimum.reduceat(nodes, first), np.maximum.reduceat(nodes, first)
    single = low == high
    return low[single], keys[first[single]]
