"""Match the instructions of two programs, whatever the numbers in their names."""

from __future__ import annotations

import numpy as np

from .. import schema
from ..compute.columns import Ints, sums_of, take
from ..compute.lazy import cached_property
from ..compute.program import Program
from ..parse.arrays import order_by
from ..parse.fingerprints import row_hash
from .graph import Graph, Labels, Neighbours, both_sides, nested_names
from .ordering import by_group, groups, labels_in_order

RULES = tuple(schema.MATCHES)
OUTPUT, SUBGRAPH, OPERATION, STRUCTURE, RESIZED, NEIGHBOR, SCOPE, SCHEDULE = range(8)

RADIUS = 3
"""Number of operands and users in a row that an exact subgraph consists of."""
NEAR = 1
"""That number once some nodes are matched."""
MAX_ROUNDS = 8
"""Maximum number of steps from a matched node to one that is matched through its neighbours."""


class InstructionMatching:
    """Pairs of instructions that define values: the nodes of two graphs.

    Those with the most in common are matched before others: exact subgraphs first, the rest by `match_others`.
    """

    def __init__(self, a: Program, b: Program) -> None:
        self.graphs = both_sides(Graph, a, b)
        self.node = np.full(self.graphs[0].n, -1, np.int64)
        """Node of B that matches each node of A, or -1."""
        self.node_of_b = np.full(self.graphs[1].n, -1, np.int64)
        self.rule = np.full(self.graphs[0].n, -1, np.int64)
        """Index in RULES of the rule that matched each node of A, or -1."""
        labels = self._labels(self._opcode, self._op_name, self._shape, self._number)
        self._match_subgraphs(labels, SUBGRAPH, None)
        self._match_equal(self._unless_resized(labels), OPERATION)

    # -- labels ----------------------------------------------------------------------------------

    @cached_property
    def _opcode(self) -> tuple[Ints, Ints]:
        return both_sides(lambda g: g.opcodes.hashes(), *self.graphs)

    @cached_property
    def _op_name(self) -> tuple[Ints, Ints]:
        return both_sides(lambda g: g.text("op_name").hashes(), *self.graphs)

    @cached_property
    def _shape(self) -> tuple[Ints, Ints]:
        return both_sides(lambda g: g.text("shape").hashes(), *self.graphs)

    @cached_property
    def _number(self) -> tuple[Ints, Ints]:
        return both_sides(lambda g: g.numbers.hashes(), *self.graphs)

    def _labels(self, *columns: tuple[Ints, Ints]) -> Labels:
        return Labels(row_hash(*(c[0] for c in columns)), row_hash(*(c[1] for c in columns)))

    # -- rules -----------------------------------------------------------------------------------

    def match_others(self) -> None:
        """Match nodes that have less in common."""
        opcode, op_name, shape, number = self._opcode, self._op_name, self._shape, self._number
        self._match_renamed_arguments(shape)
        self._match_nested_arguments()
        plain = both_sides(lambda g: g.plain_names.hashes(), *self.graphs)
        self._match_subgraphs(self._labels(opcode, op_name), RESIZED, RESIZED)
        labels = self._labels(opcode, plain, shape)
        self._match_subgraphs(labels, OPERATION, None)
        self._match_equal(self._unless_resized(labels), OPERATION)
        self._match_subgraphs(self._labels(opcode, shape, number), STRUCTURE, None)
        self._match_neighbours()
        self._match_in_order(self._unless_resized(self._labels(opcode, op_name, shape)), OPERATION)
        self._match_in_order(self._with_moved(self._labels(opcode, op_name)), RESIZED)
        self._match_in_order(self._with_moved(self._labels(opcode, plain)), RESIZED)
        self._match_neighbours()
        self._match_along_schedule(self._labels(opcode, shape))

    @cached_property
    def _moved(self) -> tuple[Ints, Ints]:
        """A hash of the name of what copies without a name copy, 0 for other nodes."""
        return both_sides(lambda g: g.moved_names.hashes(), *self.graphs)

    def _with_moved(self, labels: Labels) -> Labels:
        """Return labels that copies share only if what they copy has one name: the opcode alone says nothing."""
        return Labels(*(np.where(m != 0, row_hash(h, m), h) for h, m in zip(labels, self._moved, strict=True)))

    def _unless_resized(self, labels: Labels) -> Labels:
        """Return labels that no two nodes share of an operation that runs as often, but on arrays of other sizes.

        A layer that is as large now as another one was is not that one: what surrounds them tells them apart.
        """
        operation = self._labels(self._opcode, self._op_name)
        group_a, group_b, n = groups(operation.a, operation.b)
        times = np.bincount(group_a, minlength=n)
        sizes = (sums_of(g.unpadded, group, n) for g, group in zip(self.graphs, (group_a, group_b), strict=True))
        resized = (times > 1) & (times == np.bincount(group_b, minlength=n)) & np.not_equal(*sizes)
        a, b = (
            np.where(resized[group], np.arange(k, 2 * len(group) + k, 2), h)
            for k, (group, h) in enumerate(zip((group_a, group_b), labels, strict=True))
        )
        return Labels(a, b)

    @cached_property
    def _neighbours(self) -> tuple[Neighbours, Neighbours]:
        return both_sides(Neighbours, *self.graphs)

    def _match_subgraphs(self, labels: Labels, rule: int, alone: int | None) -> None:
        """Match nodes with equal labels and surroundings, then those with less and less of these in common."""
        if self.is_done:
            return
        a, b = both_sides(self._surroundings, (0, labels.a), (1, labels.b))
        for h in zip(reversed(a), reversed(b), strict=True):
            self._match_equal(Labels(*h), rule)
        if alone is not None:
            self._match_equal(self._with_moved(labels) if alone == RESIZED else labels, alone)

    def _surroundings(self, side: tuple[int, Ints]) -> list[Ints]:
        """Return hashes of the nodes of a program with what is within 1, 2, … edges.

        Nodes that are matched are known by their match, whatever their labels.
        """
        number, labels = side
        match = self._matches[number]
        h = np.where(match >= 0, row_hash(match + 1), labels)  # of 0, it is the hash of nothing
        radius = RADIUS if (match < 0).all() else NEAR
        graph = self._neighbours[number]
        return [h := graph.surrounded(h) for _ in range(radius)]

    @property
    def _matches(self) -> tuple[Ints, Ints]:
        """Number of the match of each node: that of its node of A; -1 for none."""
        return np.where(self.node >= 0, np.arange(len(self.node)), -1), self.node_of_b

    def _match_renamed_arguments(self, shape: tuple[Ints, Ints]) -> None:
        """Match arguments whose names differ in the variable or its indices only."""
        suffix = both_sides(lambda g: g.argument_suffixes.hashes(), *self.graphs)
        # Others get labels that the other side does not have.
        a, b = (
            np.where(suffix[k] != 0, row_hash(suffix[k], shape[k]), np.arange(k, 2 * g.n, 2)[: g.n])
            for k, g in enumerate(self.graphs)
        )
        self._match_equal(Labels(a, b), STRUCTURE)

    def _match_nested_arguments(self) -> None:
        """Match arguments with equal dimensions whose names have one component more on one side."""
        a, b = both_sides(lambda g: g.argument_names, *self.graphs)
        nested = a._replace(texts=nested_names(a.texts, b.texts)), b._replace(texts=nested_names(b.texts, a.texts))
        sides = zip(nested, both_sides(lambda g: g.dimensions.hashes(), *self.graphs), self.graphs, strict=True)
        # Others get labels that the other side does not have.
        labels = (
            np.where((n.codes >= 0) & (d != 0), row_hash(n.hashes(), d), np.arange(k, 2 * g.n, 2)[: g.n])
            for k, (n, d, g) in enumerate(sides)
        )
        self._match_equal(Labels(*labels), STRUCTURE)

    @property
    def is_done(self) -> bool:
        """Whether all nodes of one side are matched."""
        return bool((self.node >= 0).all() or (self.node_of_b >= 0).all())

    def _match_equal(self, labels: Labels, rule: int) -> None:
        """Match unmatched nodes whose label is equally frequent on both sides, in the order of the schedule."""
        left, right = np.flatnonzero(self.node < 0), np.flatnonzero(self.node_of_b < 0)
        group_a, group_b, n = groups(labels.a[left], labels.b[right])
        equal = np.bincount(group_a, minlength=n) == np.bincount(group_b, minlength=n)
        chosen_a, chosen_b = equal[group_a], equal[group_b]
        left, right = left[chosen_a], right[chosen_b]
        left = left[by_group(group_a[chosen_a], self._order(0)[left])]
        right = right[by_group(group_b[chosen_b], self._order(1)[right])]
        self._pair(left, right, rule)

    def _match_in_order(self, labels: Labels, rule: int) -> None:
        """Match unmatched nodes with equal labels in the order of the schedule; some are left over."""
        left, right = np.flatnonzero(self.node < 0), np.flatnonzero(self.node_of_b < 0)
        self._pair(*labels_in_order(left, right, labels, self._order(0), self._order(1)), rule)

    def _match_neighbours(self) -> None:
        """Match operands and users of matched nodes, if opcode and operand leave one choice on each side."""
        for _ in range(MAX_ROUNDS):
            before = int((self.node < 0).sum())
            self._match_adjacent(to_operands=True)
            self._match_adjacent(to_operands=False)
            if int((self.node < 0).sum()) in (0, before):
                return

    def _match_adjacent(self, *, to_operands: bool) -> None:
        def choices(side: int) -> tuple[Ints, Ints]:
            e, match = self.graphs[side].edges, self._matches[side]
            known, other = (e.target, e.source) if to_operands else (e.source, e.target)
            matched = match >= 0
            rows = np.flatnonzero(matched[known] & ~matched[other])
            nodes = other[rows]
            described = self._opcode[side][nodes], self._moved[side][nodes]
            return _unique_choices(row_hash(match[known[rows]], e.operand[rows], *described), nodes)

        (left, key_a), (right, key_b) = choices(0), choices(1)
        group_a, group_b, n = groups(key_a, key_b)
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
        keys = Labels(row_hash(labels.a, before_a), row_hash(labels.b, before_b))
        self._pair(*labels_in_order(left, right, keys, self._order(0), self._order(1)), SCHEDULE)

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
        self.node[left], self.node_of_b[right], self.rule[left] = right, left, rule

    @cached_property
    def steps(self) -> tuple[Ints, Ints]:
        """Steps in A and B of the matched instructions that both schedules list."""
        nodes = np.flatnonzero(self.node >= 0)
        a, b = self.graphs[0].step[nodes], self.graphs[1].step[self.node[nodes]]
        scheduled = (a >= 0) & (b >= 0)
        return a[scheduled], b[scheduled]

    @cached_property
    def steps_in_order(self) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
        """These steps in the order of A, and those of B and A in the order of B."""
        a, b = self.steps
        by_a, by_b = order_by(a, b), order_by(b, a)
        return (a[by_a], b[by_a]), (b[by_b], a[by_b])


def _unique_choices(keys: Ints, nodes: Ints) -> tuple[Ints, Ints]:
    """Return the nodes of keys that have only one distinct node, and these keys."""
    if not len(keys):
        return nodes, keys
    order = np.argsort(keys)
    keys, nodes = keys[order], nodes[order]
    first = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    low, high = np.minimum.reduceat(nodes, first), np.maximum.reduceat(nodes, first)
    single = low == high
    return low[single], keys[first[single]]
