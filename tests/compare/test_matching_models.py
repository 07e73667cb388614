"""The rules that match instructions and values, on small random graphs, against plain loops over them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import instructions
from xlamem.compare import matching as module
from xlamem.compare.graph import Edges, Labels, Neighbours
from xlamem.compare.instructions import (
    NEAR,
    NEIGHBOR,
    OPERATION,
    RADIUS,
    RESIZED,
    SCHEDULE,
    STRUCTURE,
    InstructionMatching,
)
from xlamem.compare.matching import Matching
from xlamem.parse.fingerprints import row_hash

CHANCE = random.Random()
RULE, BEFORE = 5, 9
"""The rule that is tried, and the one that matched nodes before."""


@pytest.fixture(autouse=True)
def same_inputs() -> None:
    CHANCE.seed(7)


def array(values: Iterable[int]) -> Any:
    return np.array([*values], np.int64)


def some(n: int, least: int = 0, most: int = 2) -> Any:
    return array(CHANCE.randint(least, most) for _ in range(n))


def graph(n: int, edges: Sequence[tuple[int, int, int]] | None = None) -> Any:
    if edges is None:
        edges = [(CHANCE.randrange(n), CHANCE.randrange(n), CHANCE.randrange(2)) for _ in range(n + n // 2)]
    columns = (array(column) for column in (zip(*edges, strict=True) if edges else ((), (), ())))
    return SimpleNamespace(
        n=n, position=array(CHANCE.sample(range(n), n)), edges=Edges(*columns), step=some(n, -1, 4),
        unpadded=some(n, 1, 2),
    )  # fmt: skip


def matching(a: Any, b: Any, matched: int = 0) -> Any:
    """Two graphs, of which as many random nodes are matched, or the first ones."""
    m: Any = InstructionMatching.__new__(InstructionMatching)
    m.graphs = a, b
    m.node, m.node_of_b, m.rule = np.full(a.n, -1), np.full(b.n, -1), np.full(a.n, -1)
    left, right = (CHANCE.sample(range(g.n), min(matched, a.n, b.n)) for g in (a, b))
    m.node[left], m.node_of_b[right], m.rule[left] = right, left, BEFORE
    m.__dict__.update(_neighbours=(Neighbours(a), Neighbours(b)))
    for name in ("_opcode", "_op_name", "_shape", "_moved"):
        m.__dict__[name] = some(a.n, 0, 1), some(b.n, 0, 1)
    return m


def random_matchings(n: int = 60, least: int = 0) -> Iterable[Any]:
    for _ in range(n):
        a, b = graph(CHANCE.randint(least, least + 6)), graph(CHANCE.randint(least, least + 6))
        yield matching(a, b, CHANCE.randrange(4))


def state(m: Any) -> tuple[Any, Any, Any]:
    return m.node.tolist(), m.node_of_b.tolist(), m.rule.tolist()


def with_pairs(m: Any, pairs: Iterable[tuple[int, int]], rule: int) -> tuple[Any, Any, Any]:
    """Return the state after these pairs are matched."""
    node, node_of_b, rules = state(m)
    for i, j in pairs:
        node[i], node_of_b[j], rules[i] = j, i, rule
    return node, node_of_b, rules


def by_label(m: Any, labels: Sequence[Any]) -> tuple[dict[Any, list[int]], ...]:
    """Return the unmatched nodes of both sides by label, in the order of the schedule."""
    sides: tuple[dict[Any, list[int]], ...] = defaultdict(list), defaultdict(list)
    for side, g, match, own in zip(sides, m.graphs, (m.node, m.node_of_b), labels, strict=True):
        for i in np.argsort(g.position).tolist():
            if match[i] < 0:
                side[own[i]].append(i)
    return sides


# -- instructions --------------------------------------------------------------------------------


def test_labels_that_are_equally_frequent() -> None:
    for m in random_matchings():
        labels = Labels(some(m.graphs[0].n), some(m.graphs[1].n))
        of_a, of_b = by_label(m, [x.tolist() for x in labels])
        pairs = [p for k in of_a if len(of_a[k]) == len(of_b[k]) for p in zip(of_a[k], of_b[k], strict=True)]
        wanted = with_pairs(m, pairs, RULE)
        m._match_equal(labels, RULE)
        assert state(m) == wanted


def test_labels_in_the_order_of_the_schedule() -> None:
    for m in random_matchings():
        labels = Labels(some(m.graphs[0].n), some(m.graphs[1].n))
        of_a, of_b = by_label(m, [x.tolist() for x in labels])
        wanted = with_pairs(m, [p for k in of_a for p in zip(of_a[k], of_b[k], strict=False)], RULE)
        m._match_in_order(labels, RULE)
        assert state(m) == wanted


def test_labels_between_the_same_matched_nodes() -> None:
    """The last matched node at or before each node counts, known by its number in A."""
    for m in random_matchings(100):
        labels, keys, anchors = Labels(some(m.graphs[0].n), some(m.graphs[1].n)), [], []
        for g, own, number in zip(m.graphs, labels, (range(len(m.node)), m.node_of_b), strict=True):
            matched = [i for i in range(g.n) if (m.node[i] >= 0 if g is m.graphs[0] else m.node_of_b[i] >= 0)]
            last = [max((k for k in matched if g.position[k] <= g.position[i]), default=None,
                        key=lambda k, g=g: g.position[k]) for i in range(g.n)]  # fmt: skip
            anchors.append([-1 if k is None else int(number[k]) for k in last])
            keys.append([*zip(own.tolist(), anchors[-1], strict=True)])
        assert [x.tolist() for x in m._anchors] == anchors
        of_a, of_b = by_label(m, keys)
        wanted = with_pairs(m, [p for k in of_a for p in zip(of_a[k], of_b[k], strict=False)], SCHEDULE)
        m._match_along_schedule(labels)
        assert state(m) == wanted


def choices(m: Any, side: int, *, to_operands: bool) -> dict[int, int]:
    """Return the only node to which a matched one leads by an operand, an opcode and a moved name."""
    e = m.graphs[side].edges
    found: dict[int, set[int]] = defaultdict(set)
    for source, target, operand in zip(e.source.tolist(), e.target.tolist(), e.operand.tolist(), strict=True):
        known, other = (target, source) if to_operands else (source, target)
        match = (m.node, m.node_of_b)[side]
        if match[known] >= 0 and match[other] < 0:
            number = known if side == 0 else match[known]
            described = m._opcode[side][other], m._moved[side][other]
            found[int(row_hash(*(array([x]) for x in (number, operand, *described)))[0])].add(other)
    return {key: min(nodes) for key, nodes in found.items() if len(nodes) == 1}


@pytest.mark.parametrize("to_operands", [True, False])
def test_neighbours_of_matched_nodes(to_operands: bool) -> None:
    n = 0
    for m in random_matchings(150, least=4):
        of_a, of_b = (choices(m, side, to_operands=to_operands) for side in (0, 1))
        pairs, tried = list[tuple[int, int]](), set[int]()
        for key in sorted(of_a.keys() & of_b.keys()):
            if of_a[key] not in tried and of_b[key] not in [j for _, j in pairs]:
                pairs.append((of_a[key], of_b[key]))
            tried.add(of_a[key])
        n += len(pairs)
        wanted = with_pairs(m, pairs, NEIGHBOR)
        m._match_adjacent(to_operands=to_operands)
        assert state(m) == wanted
    assert n > 9


@pytest.mark.parametrize(("rounds", "found"), [(0, 1), (2, 3), (8, 6)])
@pytest.mark.parametrize("backwards", [False, True])
def test_neighbours_of_neighbours(
    rounds: int, found: int, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round leads one step further, in both directions."""
    monkeypatch.setattr(instructions, "MAX_ROUNDS", rounds)
    sides = [graph(6, [(i + 1, i, 0) if backwards else (i, i + 1, 0) for i in range(5)]) for _ in "ab"]
    m = matching(*sides)
    m._opcode = m._moved = array([0] * 6), array([0] * 6)
    m._pair(array([0]), array([0]), BEFORE)
    m._match_neighbours()
    assert m.node.tolist() == [*range(found), *[-1] * (6 - found)]


def test_surroundings() -> None:
    """Nodes have equal hashes if what is within as many edges is equal; matched ones are known by their match."""
    for m in random_matchings():
        labels = Labels(*(row_hash(some(g.n, 101, 102)) for g in m.graphs))
        radius = RADIUS if (m.node < 0).all() else NEAR
        hashes, known = list[list[Any]](), list[list[Any]]()
        for side, (g, match) in enumerate(zip(m.graphs, (m.node, m.node_of_b), strict=True)):
            h = m._surroundings((side, labels[side]))
            assert len(h) == (RADIUS if (match < 0).all() else NEAR)
            number = [i if side == 0 else int(match[i]) for i in range(g.n)]
            own: list[Any] = [("match", number[i]) if match[i] >= 0 else int(labels[side][i]) for i in range(g.n)]
            edges = [*zip(*(x.tolist() for x in g.edges), strict=True)]
            for _ in range(len(h)):
                own = [(
                    own[i], sorted(repr((own[s], k)) for s, t, k in edges if t == i),
                    sorted(repr((own[t], k)) for s, t, k in edges if s == i),
                ) for i in range(g.n)]  # fmt: skip
            hashes.append(h[-1].tolist())
            known.append([*map(repr, own)])
        if radius == (RADIUS if (m.node_of_b < 0).all() else NEAR):
            pairs = Counter(zip([*hashes[0], *hashes[1]], [*known[0], *known[1]], strict=True))
            assert len(pairs) == len({h for h, _ in pairs}) == len({k for _, k in pairs})


def test_operations_on_arrays_of_other_sizes() -> None:
    """If they run as often on both sides, more than once, no two nodes of them have one label."""
    for m in random_matchings(150):
        labels = Labels(some(m.graphs[0].n, 100, 102), some(m.graphs[1].n, 100, 102))
        sizes: list[dict[Any, list[int]]] = [defaultdict(list), defaultdict(list)]
        kinds = [[*zip(m._opcode[k].tolist(), m._op_name[k].tolist(), strict=True)] for k in (0, 1)]
        for k, g in enumerate(m.graphs):
            for kind, size in zip(kinds[k], g.unpadded.tolist(), strict=True):
                sizes[k][kind].append(size)
        found = m._unless_resized(labels)
        new = list[int]()
        for k in (0, 1):
            for i, kind in enumerate(kinds[k]):
                a, b = (s.get(kind, []) for s in sizes)
                if len(a) == len(b) > 1 and sum(a) != sum(b):
                    new.append(int(found[k][i]))
                else:
                    assert found[k][i] == labels[k][i]
        assert len({*new}) == len(new)
        assert {*new}.isdisjoint({100, 101, 102})


def test_labels_of_what_is_moved() -> None:
    """Copies have one label only if they move values of one name; others keep theirs."""
    m = matching(graph(4), graph(1))
    m._moved = array([0, 1, 2, 1]), array([1])
    a, b = m._with_moved(Labels(array([5, 5, 5, 5]), array([5])))
    assert a[0] == 5
    assert a[1] == a[3] == b[0] != a[2]
    assert 5 not in (*a[1:], b[0])


def test_arguments_with_another_variable() -> None:
    """By what follows the variable, and the shape; others match nothing."""
    suffixes, shapes = ([0, 3, 0, 4, 3], [3, 0, 3, 4, 0, 0]), ([1, 1, 1, 1, 2], [2, 1, 1, 2, 1, 1])
    m = matching(graph(5), graph(6))
    for g, own in zip(m.graphs, suffixes, strict=True):
        g.position = np.arange(g.n)
        g.argument_suffixes = SimpleNamespace(hashes=lambda own=own: array(own))
    m._match_renamed_arguments((array(shapes[0]), array(shapes[1])))
    assert (m.node.tolist(), m.rule.tolist()) == ([-1, 2, -1, -1, 0], [-1, STRUCTURE, -1, -1, STRUCTURE])


def test_steps_of_matched_instructions() -> None:
    """Those that both schedules list, by the step of either side."""
    for m in random_matchings():
        pairs = [(int(m.graphs[0].step[i]), int(m.graphs[1].step[j])) for i, j in enumerate(m.node) if j >= 0]
        pairs = [pair for pair in pairs if min(pair) >= 0]
        (here, there), (of_b, of_a) = m.steps_in_order
        assert [*zip(here.tolist(), there.tolist(), strict=True)] == sorted(pairs)
        assert [*zip(of_b.tolist(), of_a.tolist(), strict=True)] == sorted((b, a) for a, b in pairs)
        assert m.is_done == (all(j >= 0 for j in m.node) or all(i >= 0 for i in m.node_of_b))


def test_nothing_is_matched_twice() -> None:
    """Labels of subgraphs are asked from the largest to the smallest, and only while nodes are left."""
    m = matching(graph(3, [(0, 1, 0), (1, 2, 0)]), graph(3, [(0, 1, 0), (1, 2, 0)]))
    asked: list[Any] = []
    m._match_equal = lambda labels, rule: asked.append((labels.a.tolist(), rule))
    labels = Labels(array([1, 2, 3]), array([1, 2, 3]))
    m._match_subgraphs(labels, 1, None)
    assert [h for h, _ in asked] == [h.tolist() for h in reversed(m._surroundings((0, labels.a)))]
    assert {rule for _, rule in asked} == {1}
    m._match_subgraphs(labels, 1, 2)
    assert asked[-1] == ([1, 2, 3], 2)
    n = len(asked)
    m.node = array([0, 1, 2])
    m._match_subgraphs(labels, 1, 2)
    assert len(asked) == n


def test_order_of_the_rules() -> None:
    """What has more in common is matched before the rest."""
    m: Any = InstructionMatching.__new__(InstructionMatching)
    m.graphs = (SimpleNamespace(plain_names=SimpleNamespace(hashes=lambda: "plain")),) * 2
    m.__dict__.update(_opcode="opcode", _op_name="name", _shape="shape", _number="number", _labels=lambda *names: [
        name if isinstance(name, str) else name[0] for name in names], _unless_resized=lambda names: [*names, "!"],
        _with_moved=lambda names: [*names, "moved"])  # fmt: skip
    asked: list[Any] = []
    others = "subgraphs", "equal", "neighbours", "in_order", "along_schedule"
    for rule in ("renamed_arguments", "nested_arguments", *others):
        m.__dict__[f"_match_{rule}"] = lambda *arguments, rule=rule: asked.append((rule, *arguments))
    m.match_others()
    assert asked == [
        ("renamed_arguments", "shape"), ("nested_arguments",), ("subgraphs", ["opcode", "name"], RESIZED, RESIZED),
        ("subgraphs", ["opcode", "plain", "shape"], OPERATION, None), ("equal", ["opcode", "plain", "shape", "!"],
        OPERATION), ("subgraphs", ["opcode", "shape", "number"], STRUCTURE, None), ("neighbours",),
        ("in_order", ["opcode", "name", "shape", "!"], OPERATION), ("in_order", ["opcode", "name", "moved"], RESIZED),
        ("in_order", ["opcode", "plain", "moved"], RESIZED), ("neighbours",), ("along_schedule", ["opcode", "shape"]),
    ]  # fmt: skip


# -- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [None, 6])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("limited", [False, True])
def test_values_of_matched_nodes(rule: int | None, known: bool, limited: bool) -> None:
    """In the order of their live ranges; if nodes are given, only those of matched ones."""
    for _ in range(30):
        n, n_nodes = (CHANCE.randrange(1, 6), CHANCE.randrange(1, 6)), 4
        m: Any = Matching.__new__(Matching)
        of_value = tuple(some(k, 0, n_nodes - 1) for k in n)
        match = array(CHANCE.choice((-1, k)) for k in range(n_nodes))
        node = of_value[0], array(CHANCE.choice((-1, i)) for i in of_value[1])
        graphs = (SimpleNamespace(node_of_value=of_value[0]),)
        m._instructions = SimpleNamespace(node=match, rule=array(10 + i for i in range(n_nodes)), graphs=graphs)
        order = tuple(array(CHANCE.sample(range(9), k)) for k in n)
        m.__dict__["_value_order"] = order
        m.value, m.value_of_b, m.rule = np.full(n[0], -1), np.full(n[1], -1), np.full(n[0], -1)
        i, j = CHANCE.randrange(n[0]), CHANCE.randrange(n[1])
        m.value[i], m.value_of_b[j], m.rule[i] = j, i, BEFORE
        labels = Labels(*(some(k, 0, 1) for k in n))
        allowed = [some(k, 0, 1).astype(bool) for k in n]
        sides: list[dict[int, list[int]]] = [defaultdict(list), defaultdict(list)]
        for k, own in enumerate((m.value, m.value_of_b)):
            for i in np.argsort(order[k]).tolist():
                has_match = (match[of_value[0][i]] if k == 0 else node[1][i]) >= 0
                if own[i] < 0 and (has_match or not known) and (allowed[k][i] or not limited):
                    sides[k][int(labels[k][i])].append(i)
        wanted = m.value.tolist(), m.value_of_b.tolist(), m.rule.tolist()
        for key, left in sides[0].items():
            for i, j in zip(left, sides[1][key], strict=False):
                wanted[0][i], wanted[1][j] = j, i
                wanted[2][i] = 10 + int(of_value[0][i]) if rule is None else rule
        m._pair_values(labels, rule, node if known else None, (allowed[0], allowed[1]) if limited else None)
        assert (m.value.tolist(), m.value_of_b.tolist(), m.rule.tolist()) == wanted


def test_operations_of_values_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash of op_name and line; 0 for values that are matched, and for all if none is left on one side."""
    asked: list[Any] = []

    def columns(p: Any, rows: Any) -> Any:
        asked.append(rows.tolist())
        names = pa.array([p.names[i] for i in rows.tolist()], pa.string())
        lines = pa.array([p.lines[i] for i in rows.tolist()], pa.int64())
        return {"op_name": names, "source_line": lines}

    monkeypatch.setattr(module, "source_columns", columns)
    m: Any = Matching.__new__(Matching)
    m.a = SimpleNamespace(names=["f", "f", None, "g", "f"], lines=[1, 0, None, 1, None])
    m.b = SimpleNamespace(names=["f", "f", None], lines=[None, 1, None])
    m.value, m.value_of_b = array([-1, -1, -1, 0, -1]), array([3, -1, -1])
    a, b = m._operations()
    assert asked == [[0, 1, 2, 4], [1, 2]]
    assert (a[3], b[0]) == (0, 0)
    assert (a[0], a[2]) == (b[1], b[2])
    assert len({*a.tolist()}) == 5
    nothing: Any = None
    for value, of_b in (([0, 1, 2, 3, 4], [-1, -1, -1]), ([-1] * 5, [0, 1, 2])):
        m.value, m.value_of_b = array(value), array(of_b)
        assert [x.tolist() for x in m._operations()] == [[0] * 5, [0] * 3]
        m._match_by_scope(nothing)
    assert len(asked) == 2




def test_order_in_which_values_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs first, then those of matched nodes that have more in common, then those of one operation or scope."""
    asked: list[Any] = []
    monkeypatch.setattr(module, "_described", lambda p: ("index", "shape", "phi", "rank"))
    monkeypatch.setattr(module, "_labels", lambda *names: [n[0] if isinstance(n[0], str) else [*n[0]] for n in names])
    m: Any = Matching.__new__(Matching)
    m.a = m.b = SimpleNamespace(unpadded="size")
    graphs = SimpleNamespace(node_of_value=array([0, 0, 1])), SimpleNamespace(node_of_value=array([0, 1, 1]))
    m._instructions = SimpleNamespace(graphs=graphs, node_of_b=array([1, -1]))
    m._operations = lambda: ("operation", "operation")
    m._match_outputs = lambda shape, rank: asked.append(("outputs", *shape, *rank))
    m._match_by_scope = lambda shape: asked.append(("scope", *shape))
    m._pair_values = lambda labels, rule, node: asked.append((labels, rule, [x.tolist() for x in node]))
    m._match_values()
    nodes, number, of_b = [0, 0, 1], [2, 2, 1], [1, -1, -1]
    assert asked == [("outputs", "shape", "shape", "rank", "rank")] + [
        (labels, None, [nodes, of_b]) for labels in (
            [nodes, "index", "phi", "shape"], [nodes, "shape"], [nodes, "index", "phi", "size"],
            [nodes, "index", "phi", "rank", "operation"], [nodes, "index", "phi", "rank", number],
        )
    ] + [("scope", "shape", "shape")]  # fmt: skip


def test_steps_in_the_order_of_a_side_are_then_in_that_of_the_other() -> None:
    """Instructions that no schedule lists may share a step."""
    m: Any = InstructionMatching.__new__(InstructionMatching)
    m.steps = np.array([3, 1, 2, 3]), np.array([5, 5, 4, 2])
    (here, there), (of_b, of_a) = m.steps_in_order
    assert list(zip(here.tolist(), there.tolist(), strict=True)) == [(1, 5), (2, 4), (3, 2), (3, 5)]
    assert list(zip(of_b.tolist(), of_a.tolist(), strict=True)) == [(2, 3), (4, 2), (5, 1), (5, 3)]
