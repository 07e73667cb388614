"""Folding many buffers into few rows: nothing is lost, and what is summed up is small."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, label, sources

import xlamem
from xlamem import compute
from xlamem.compute import FoldedScope, ScopeNode, folding, op_names, tree
from xlamem.input.find import Source

Row = dict[str, Any]

TIMED = [s for s in sources() if str(DUMPS) in s.location and xlamem.read(s).live_ranges.num_rows]


def random_rows(seed: int, n: int) -> list[Row]:
    """Rows by category, scope and opcode: deep, flat, named by numbers, or without names."""
    draw = random.Random(seed)
    flat = draw.random() < 0.3

    def scope() -> str | None:
        kind = draw.random()
        if kind < 0.1:
            return None
        if kind < 0.3:
            return f"params['layer_{draw.randrange(9)}'].w[{draw.randrange(3)}]"
        depth = 1 if flat else draw.randrange(1, 6)
        return "/".join(draw.choice(["a", "b", "mlp", f"x{draw.randrange(300)}"]) for _ in range(depth))

    return [
        {
            "category": draw.choice(["temp", "parameter", "live_out"]),
            "scope": scope(),
            "opcode": draw.choice(["fusion", "copy", "dot", None]),
            "bytes": draw.choice([1, 10, 1000, draw.randrange(10**6)]),
            "n": draw.randrange(1, 5),
        }
        for _ in range(n)
    ]


def check(scope: FoldedScope, total: int) -> int:
    """Check the lines beneath a scope, and return the number of lines including its own."""
    beneath = sum(inner.bytes for inner in scope.children)
    assert beneath <= scope.bytes
    if scope.children:
        assert beneath >= scope.bytes - tree.HIDDEN_SHARE * total
        assert scope.bytes >= tree.EXPANDED_SHARE * total
    for inner in scope.children:
        if inner.name == "others":
            assert sum(line.node.n for line in scope.children) == scope.node.n
            assert inner.bytes <= (tree.SMALL_SHARE + tree.HIDDEN_SHARE) * total
    return 1 + sum(check(inner, total) for inner in scope.children)



def test_depth_does_not_cut_keys_of_arguments() -> None:
    """A slash in a quoted key, as Haiku's modules have them, does not begin a component."""
    argument = "params['mlp/~/linear_0']['w']"
    names = pa.array(["jit(f)/a/b/c/add", argument, f"a/{argument}"])
    for depth, wanted in (
        (1, ["a", argument, "a"]),
        (2, ["a/b", argument, f"a/{argument}"]),
        (9, ["a/b/c", argument, f"a/{argument}"]),
    ):
        assert op_names.scopes(names, depth=depth).to_pylist() == wanted
    assert op_names.scopes(pa.array(['p["a/b"]']), depth=1).to_pylist() == ['p["a/b"]']

@pytest.mark.parametrize("by_category", [True, False])
@pytest.mark.parametrize("seed", range(25))
def test_lines_of_a_folded_tree_add_up(seed: int, by_category: bool) -> None:
    rows = random_rows(seed, 10 ** (seed % 4))
    if not by_category:
        rows = [{k: v for k, v in row.items() if k != "category"} for row in rows]
    total = sum(row["bytes"] for row in rows)
    for n in (6, 10, 14, 40):
        root = compute.scope_tree(rows)
        lines = compute.fold_scopes(root, n)
        assert (root.bytes, root.n) == (total, sum(row["n"] for row in rows))
        assert sum(check(line, total) for line in lines) <= n
        assert total >= sum(line.bytes for line in lines) >= (1 - tree.HIDDEN_SHARE) * total


def test_arguments_are_split_into_their_parts() -> None:
    names = ["params['a/b'][0].w", "params['a/b'][1].w", "params['c']", "jit/layer_0/mlp"]
    root = compute.scope_tree([{"scope": name, "bytes": 100, "n": 1} for name in names])
    shown = {scope.name: [inner.name for inner in scope.children] for scope in compute.fold_scopes(root, 20)}
    assert shown == {"params": ["['a/b']", "['c']"], "jit/layer_0/mlp": []}


def test_classes_are_no_parts_of_arguments() -> None:
    """Equinox has scopes such as `eqx.nn.MLP`. Whether another one is inside makes no difference."""
    names = ["eqx.nn.LayerNorm", "eqx.nn.Conv*d", "eqx.nn.MLP/eqx.nn.Linear", "state.mu", "state.nu"]
    root = compute.scope_tree([{"scope": name, "bytes": 100, "n": 1} for name in names])
    assert [*root.children] == ["eqx.nn.LayerNorm", "eqx.nn.Conv*d", "eqx.nn.MLP", "state"]


@pytest.mark.parametrize(("inner", "name"), [(95, "a/b"), (94, "a")])
def test_a_scope_inside_takes_the_line_of_the_one_around_it(inner: int, name: str) -> None:
    """If it has at least 95 % of its bytes."""
    sizes = {"a": 100 - inner, "a/b": inner, "c": 900}
    rows = [{"scope": scope, "bytes": size, "n": 1} for scope, size in sizes.items()]
    (_, folded) = sorted(compute.fold_scopes(compute.scope_tree(rows), 2), key=lambda scope: -scope.bytes)
    assert folded.name == name


def test_a_scope_with_buffers_of_its_own() -> None:
    sizes = {"a": (60, 3), "a/b": (40, 1), "c": (9, 1)}
    rows = [{"scope": scope, "bytes": size, "n": n} for scope, (size, n) in sizes.items()]
    (a, c) = compute.fold_scopes(compute.scope_tree(rows), 10)
    assert [(inner.name, inner.bytes, inner.node.n) for inner in a.children] == [(tree.ITSELF, 60, 3), ("b", 40, 1)]
    assert (c.name, c.children) == ("c", [])


def test_opcodes_of_what_is_in_no_inner_scope() -> None:
    names = [("a", "dot", 60, 3), ("a/b", "dot", 40, 1), ("a/c", "copy", 9, 2)]
    rows = [{"scope": scope, "opcode": opcode, "bytes": size, "n": n} for scope, opcode, size, n in names]
    rest = compute.scope_tree(rows).children["a"].without_children()
    assert (rest.bytes, rest.n, rest.opcodes, rest.counts) == (60, 3, {"dot": 60}, {"dot": 3})


def test_many_small_scopes_are_summed_up_by_opcode() -> None:
    rows = [{"scope": f"s/x{i}", "opcode": "fusion" if i % 3 else "copy", "bytes": 10, "n": 1} for i in range(300)]
    rows.append({"scope": "s/large", "opcode": "dot", "bytes": 2000, "n": 1})
    rows.append({"scope": "t", "opcode": "dot", "bytes": 4000, "n": 1})
    t, s = sorted(compute.fold_scopes(compute.scope_tree(rows), 8), key=lambda scope: scope.name, reverse=True)
    assert (t.name, s.name) == ("t", "s")
    assert [(i.name, i.bytes, i.node.n) for i in s.children] == [
        ("large", 2000, 1), ("other: fusion", 2000, 200), ("other: copy", 1000, 100),
    ]  # fmt: skip
    assert isinstance(s.node, ScopeNode)


def test_a_tree_without_buffers_has_no_lines() -> None:
    assert compute.fold_scopes(compute.scope_tree([]), 5) == []


# ---- like buffers


@pytest.mark.parametrize("source", TIMED, ids=label)
def test_like_buffers_are_the_groups_of_the_live_set(source: Source) -> None:
    members = compute.live_set(xlamem.read(source))
    wanted: dict[Any, list[Row]] = defaultdict(list)
    for row in members.to_pylist():
        name = row["op_name"] and op_names.plain_names(pa.array([row["op_name"]]))
        key = name and op_names.shortened_paths(name, None, fold=True)[0].as_py()
        nameless = None if row["op_name"] else (row["opcode"], row["shape"])
        rest = ("source_file", "source_line", "category", "kind", "phase")
        wanted[key, nameless, *(row[column] for column in rest)].append(row)
    found = compute.like_buffers(members, len(wanted) + 1)
    assert sorted((g["bytes"], g["n"], g["n_shapes"]) for g in found) == sorted(
        (sum(r["bytes"] for r in rows), len(rows), len({r["shape"] for r in rows} - {None})) for rows in wanted.values()
    )
    assert [g["bytes"] for g in found] == sorted((g["bytes"] for g in found), reverse=True)
    assert compute.like_buffers(members, 3) == found[:3]
    for group in found:
        assert group["op_name"] is not None or group["name"] in (None, "argument *")
        assert group["op_name"] is None or group["name"]


# ---- the rest of a list


@pytest.mark.parametrize("seed", range(12))
def test_the_rest_is_folded_until_it_is_small(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"layer_{draw.randrange(30)}/{draw.choice(['attn', 'mlp'])}/op{i}" for i in range(400)]
    sizes = sorted((draw.randrange(1, 1000) for _ in names), reverse=True)
    rows = pa.table({"name": names, "bytes": sizes})
    for shown in (0, 5, 20):
        folded, n = compute.folded_rest(rows, ["name"], shown)
        assert sum(folded["bytes"].to_pylist()) == sum(sizes[shown:])
        assert sum(folded["n"].to_pylist()) == len(names) - shown
        left = sum(folded["bytes"].to_pylist()[n:])
        assert left == 0 or (left < folded["bytes"][n - 1].as_py() and left <= folding.SMALL_SHARE * sum(sizes))
        assert n <= folding.N_FOLDED[0]


def test_nothing_is_folded_to_nothing() -> None:
    rows = pa.table({"name": pa.array([], pa.string()), "bytes": pa.array([], pa.int64())})
    folded, n = compute.folded_rest(rows, ["name"], 0)
    assert (folded.to_pylist(), n) == ([], 0)


def test_names_that_no_folding_makes_few() -> None:
    """They have no numbers; so many of them are shown as are folded at most."""
    names = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=3)]
    folded, n = compute.folded_rest(pa.table({"instruction": names, "bytes": [7] * len(names)}), ["instruction"], 0)
    assert (folded.num_rows, n) == (len(names), max(folding.N_FOLDED))


def test_shapes_are_folded_to_element_types_and_numbers_of_dimensions() -> None:
    shapes = [f"f32[{i},{i % 50}]{{1,0}}" for i in range(100)]
    shapes += ["bf16[8,4,<=2]{2,1,0:T(8,128)(2,1)}", "bf16[4,4,4]", "s32[]{:T(128)S(6)}", "pred[7]", "token[]"]
    shapes += ["(f32[2,2]{1,0}, u32[])", "(s8[])", "f8e4m3fn[]", "opaque", None]
    folded, _ = compute.folded_rest(pa.table({"shape": shapes, "bytes": [100] * len(shapes)}), ["shape"], 1)
    assert {row["shape"]: row["n"] for row in folded.to_pylist()} == {
        "f32, 2 dimensions": 99, "bf16, 3 dimensions": 2, "s32, scalar": 1, "pred, 1 dimension": 1, "token, scalar": 1,
        "tuple": 2, "f8e4m3fn, scalar": 1, "opaque": 1, None: 1,
    }  # fmt: skip


def test_numbers_of_instructions_are_folded() -> None:
    rows = pa.table({"instruction": [f"fusion.{i}" for i in range(100)] + [None], "bytes": [100] * 101})
    folded, n = compute.folded_rest(rows, ["instruction"], 0)
    assert folded.to_pylist()[:2] == [
        {"instruction": "fusion.*", "bytes": 10000, "n": 100}, {"instruction": None, "bytes": 100, "n": 1},
    ]  # fmt: skip
    assert n == 1


def test_numbers_in_words_are_kept_as_long_as_few_rows_remain() -> None:
    names = [f"{word}-{i}" for word in ("AV2", "AV3", "conv2d", "conv3d", "F8") for i in range(20)]
    folded, n = compute.folded_rest(pa.table({"instruction": names, "bytes": [100] * len(names)}), ["instruction"], 0)
    assert folded["instruction"].to_pylist() == ["AV2-*", "AV3-*", "F8-*", "conv2d-*", "conv3d-*"]
    assert n == 5


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [([], 0), ([7], 1), ([50, 50], 2), ([980, 10, 10], 1), ([900, 50, 40, 10], 3), ([5] * 100, 100),
     ([97, 3], 1), ([969, 31], 2), ([96, 2, 2], 3), ([94, 3, 3], 3), ([5, 0, 0], 1), ([0, 0], 1)],
)  # fmt: skip
def test_when_the_others_are_small(sizes: list[int], wanted: int) -> None:
    assert compute.n_until_small(pa.table({"bytes": pa.array(sizes, pa.int64())}), sum(sizes)) == wanted


def test_only_paths_are_cut() -> None:
    """A slash in another text does not separate scopes."""
    draw = random.Random(1)
    rows = [
        {"op_name": f"jit(f)/a/{chr(97 + i % 26)}/{chr(97 + i % 25)}", "opcode": f"call/{chr(97 + i % 4)}/b"}
        for i in range(600)
    ]
    table = pa.Table.from_pylist(rows).append_column("bytes", pa.array([draw.randrange(100, 200) for _ in rows]))
    folded, _ = compute.folded_rest(table, ["op_name", "opcode"], 0)
    assert {row["opcode"] for row in folded.to_pylist()} == {f"call/{x}/b" for x in "abcd"}
    assert {row["op_name"].count("/") for row in folded.to_pylist()} < {0, 1, 2}


def test_outer_scopes_of_the_same_size_are_expanded_first() -> None:
    """The bytes of a scope are halved for each level above it."""

    def node(n_bytes: int, *children: ScopeNode) -> ScopeNode:
        return ScopeNode(n_bytes, 1, {f"s{i}": child for i, child in enumerate(children)})

    parts = [node(50, node(25), node(25)) for _ in range(2)]
    root = node(140, node(100, *parts), node(40, node(20), node(20)))
    for n, wanted in ((2, [[], []]), (4, [[[], []], []]), (6, [[[], []], [[], []]]), (8, [[[[], []], []], [[], []]])):
        assert [shape_of(line) for line in compute.fold_scopes(root, n)] == wanted, n


def shape_of(line: FoldedScope) -> list[object]:
    return [shape_of(child) for child in line.children]


# ---- single functions


def test_what_merging_lost_is_part_of_the_remainder() -> None:
    """The line for it is smaller than those above it."""
    scopes = [FoldedScope(name, ScopeNode(size, 1)) for name, size in (("a", 50), ("b", 20))]
    lines = tree._with_remainder(scopes, ScopeNode(100, 5), 1000)
    assert [(line.name, line.bytes, line.node.n) for line in lines] == [("a", 50, 1), ("b", 20, 1), ("others", 30, 3)]


def test_a_scope_without_a_name_is_a_path() -> None:
    assert [tree.path_of(scope) for scope in ("", "a", "a/", "p['w']")] == [("",), ("a",), ("a", ""), ("p", "['w']")]
