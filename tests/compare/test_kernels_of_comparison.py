"""The steps of a comparison on small random inputs, against slow searches."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import pairing, sketches
from xlamem.compare.account import _covered, _increasing, _paired_causes, corresponding
from xlamem.compare.compiler import (
    _commented,
    _joined,
    _with_parents,
    changed_flags,
    flags_by_role,
    flags_not_default,
    other_changelist,
)
from xlamem.compare.context import are, largest, listed, with_scopes
from xlamem.compare.contributors import _either
from xlamem.compare.following import _around, _extent
from xlamem.compare.graph import Labels, argument_suffixes, positions
from xlamem.compare.instructions import _unique_choices
from xlamem.compare.matching import _n_dimensions
from xlamem.compare.ordering import by_group, groups, in_order, labels_in_order, ranks
from xlamem.compare.points import _ordered, _places, _relative
from xlamem.compare.programs import FilePrograms, ProgramEntry, Programs, no_such_value, relative_folders
from xlamem.compare.rows import Shape, ShapePairs, parsed, replaced_dimensions
from xlamem.compare.shape_edits import Collectives, _as_in, _collective_counts, _frequent
from xlamem.formatting import natural_order

CHANCE = random.Random()


@pytest.fixture(autouse=True)
def same_inputs() -> None:
    """A test has the same inputs whatever ran before."""
    CHANCE.seed(11)


def array(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


# -- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1, 1 << 40, -(1 << 61)])
def test_pairs_of_equal_keys(scale: int) -> None:
    """The k-th of each key on both sides; keys may differ in their lowest bits only."""
    for _ in range(150):
        a, b = ([CHANCE.randrange(4) + scale * CHANCE.randrange(2) for _ in range(CHANCE.randrange(9))] for _ in "ab")
        order_a, order_b = (CHANCE.sample(range(20), len(side)) for side in (a, b))
        for orders in ((None, None), (order_a, order_b)):
            rows = []
            for side, order in zip((a, b), orders, strict=True):
                of_key = defaultdict(list)
                for i in sorted(range(len(side)), key=(lambda i: i) if order is None else order.__getitem__):
                    of_key[side[i]].append(i)
                rows.append(of_key)
            wanted = {(i, j) for key in rows[0] for i, j in zip(rows[0][key], rows[1].get(key, []), strict=False)}
            arrays = [None if order is None else array(order) for order in orders]
            at_a, at_b = in_order(array(a), array(b), *arrays)
            assert sorted(zip(at_a.tolist(), at_b.tolist(), strict=True)) == sorted(wanted)
        group_a, group_b, n = groups(array(a), array(b))
        numbers = [*group_a.tolist(), *group_b.tolist()]
        assert len({*zip(numbers, [*a, *b], strict=True)}) == len({*numbers}) == len({*a, *b}) == n
        assert not numbers or {*numbers} == set(range(n))


def test_keys_with_equal_high_bits() -> None:
    """They are told apart by all of their bits, whatever the number of rows is."""
    keys = array([(7 << 20) + n for n in (3, 1, 2, 1, 3, 2, 0, 5)])
    assert [(i, j) for i, j in zip(*(x.tolist() for x in in_order(keys, keys[::-1])), strict=True)] == [
        (6, 1), (1, 4), (3, 6), (2, 2), (5, 5), (0, 3), (4, 7), (7, 0),
    ]  # fmt: skip


def test_labels_of_some_rows() -> None:
    labels = Labels(array([1, 1, 2, 1]), array([2, 1, 1, 1]))
    left, right = labels_in_order(array([0, 1, 3]), array([1, 3]), labels, array([5, 3, 0, 4]), array([0, 9, 1, 2]))
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(1, 3), (3, 1)]


def test_order_within_groups() -> None:
    for _ in range(100):
        group = [CHANCE.randrange(3) for _ in range(CHANCE.randrange(8))]
        place = CHANCE.sample(range(9), len(group))
        wanted = sorted(range(len(group)), key=lambda i: (group[i], place[i]))
        assert by_group(array(group), array(place)).tolist() == wanted
        pairs = [*zip(group, place, strict=True)]
        rank = [sum(g == group[i] and p < place[i] for g, p in pairs) for i in range(len(group))]
        assert ranks(array(group), array(place)).tolist() == rank
        step = [CHANCE.randrange(-1, 3) for _ in group]
        by_step = sorted(range(len(step)), key=lambda i: (step[i], i))
        assert positions(array(step)).tolist() == [by_step.index(i) for i in range(len(step))]


def test_longest_increasing_order() -> None:
    for _ in range(150):
        values = [CHANCE.randrange(6) for _ in range(CHANCE.randrange(8))]
        found = _increasing(array(values)).tolist()
        assert all(values[i] < values[j] and i < j for i, j in pairwise(found))
        longest = next(
            n for n in range(len(values), -1, -1)
            if any(all(x < y for x, y in pairwise(c)) for c in combinations(values, n))
        )  # fmt: skip
        assert len(found) == longest


@pytest.mark.parametrize(
    ("step", "side", "interval"),
    [
        (0, 0, (0, 1)), (2, 0, (2, 2)), (3, 0, (2, 4)), (4, 0, (5, 5)), (6, 0, (5, 6)), (7, 0, (7, 7)), (9, 0, (7, 9)),
        (0, 1, (0, 1)), (2, 1, (2, 2)), (3, 1, (2, 3)), (4, 1, (2, 3)), (5, 1, (4, 4)), (9, 1, (7, 8)),
    ],
)  # fmt: skip
def test_corresponding_steps(step: int, side: int, interval: tuple[int, int]) -> None:
    """From the last matched instruction to the next one; an instruction in another order does not count."""
    a, b = array([2, 4, 5, 7]), array([2, 5, 1, 7])
    by_b = np.argsort(b)
    m: Any = SimpleNamespace(
        steps_in_order=((a, b), (b[by_b], a[by_b])), a=SimpleNamespace(steps=9), b=SimpleNamespace(steps=10)
    )
    assert corresponding(m, step, side) == interval


def test_corresponding_steps_without_matches() -> None:
    none = array([])
    a, b = SimpleNamespace(steps=3), SimpleNamespace(steps=None)
    m: Any = SimpleNamespace(steps_in_order=((none, none),) * 2, a=a, b=b)
    assert corresponding(m, 1, 0) == (0, 0)
    assert corresponding(m, 0, 1) == (0, 2)


def test_far_instructions_do_not_decide_what_corresponds() -> None:
    """Hundreds of instructions before and after a step are in another order than those around it."""
    n = 400
    there = array([*range(600, 600 + n - 90), *range(180), *range(2000, 2000 + n - 90)])
    here = np.arange(len(there))
    side = SimpleNamespace(steps=9999)
    m: Any = SimpleNamespace(steps_in_order=((here, there),) * 2, a=side, b=side)
    assert corresponding(m, 400, 0) == (90, 90)


# -- buffers -------------------------------------------------------------------------------------


def test_bytes_that_ranges_add() -> None:
    for _ in range(150):
        ranges = sorted((CHANCE.randrange(8), CHANCE.randrange(1, 5)) for _ in range(CHANCE.randrange(1, 6)))
        begin, extent = (array(column) for column in zip(*ranges, strict=True))
        added, starts = _covered(begin, extent)
        seen: set[int] = set()
        for (first, n), more, is_new in zip(ranges, added.tolist(), starts.tolist(), strict=True):
            own = set(range(first, first + n))
            assert more == len(own - seen)
            assert is_new == (not seen or first >= max(seen) + 1)
            seen |= own


def test_causes_of_pairs() -> None:
    rows = [(5, 5, 1, 9), (5, 6, 3, 4), (5, 6, 4, 3), (6, 5, 3, 4), (5, 6, 3, 3), (6, 5, 3, 3)]
    columns = (array(column) for column in zip(*rows, strict=True))
    assert _paired_causes(*columns).tolist() == [-1, 6, 7, 6, 8, 8]


def test_either_of_two_columns() -> None:
    first = np.array([True, False, True, False])
    a, b = pa.array(["x", "y", None, "x"]), pa.array(["z", "y", "x", None])
    for encode in (lambda c: c, lambda c: c.dictionary_encode()):
        found = _either(first, encode(a), encode(b))
        assert found.to_pylist() == ["x", "y", None, None]
        assert _either(~first, encode(a), encode(b)).to_pylist() == ["z", "y", "x", "x"]
    assert _either(first, pa.array([1, 2, None, 4]), pa.array([5, 6, 7, None])).to_pylist() == [1, 6, None, None]


def test_keys_with_one_choice() -> None:
    for _ in range(100):
        n = CHANCE.randrange(8)
        keys, nodes = ([CHANCE.randrange(4) for _ in range(n)] for _ in "ab")
        of_key: dict[int, set[int]] = defaultdict(set)
        for key, node in zip(keys, nodes, strict=True):
            of_key[key].add(node)
        found = zip(*(x.tolist() for x in _unique_choices(array(keys), array(nodes))), strict=True)
        assert sorted(found) == sorted((min(ns), k) for k, ns in of_key.items() if len(ns) == 1)


def test_numbers_of_dimensions() -> None:
    texts = ["f32[]", "f32[3]", "bf16[3,4]{1,0:T(8,128)}", "(f32[2], s32[])", None, "pred[1,2,3]"]
    assert _n_dimensions(pa.array(texts)).tolist() == [0, 1, 2, -1, -1, 3]


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("x", ""), ("x[0]", ""), ("opt[1][0].mu['w']", ".mu['w']"), ("params['a'][0]", "['a'][0]"), ("a.b", ".b"),
        ("", ""),
    ],
)  # fmt: skip
def test_names_of_arguments_without_their_variable(name: str, suffix: str) -> None:
    assert argument_suffixes(pa.array([name])).to_pylist() == [suffix]


# -- shapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f32[2,3]{1,0}", Shape("f32", (2, 3))), ("f32[]", Shape("f32", ())), ("s32[<=8,2]", Shape("s32", (8, 2))),
        ("(f32[2])", None), (None, None), ("", None), ("token", None),
    ],
)  # fmt: skip
def test_parsed_shapes(text: str | None, shape: Shape | None) -> None:
    assert parsed(text) == shape


def test_dimensions_that_are_replaced() -> None:
    """Of shapes of the same rank, those that differ; of a rank more or less, the one that is inserted."""
    for _ in range(300):
        a, b = (Shape("f32", tuple(CHANCE.randrange(4) for _ in range(CHANCE.randrange(4)))) for _ in "ab")
        x, y = a.dimensions, b.dimensions
        if len(x) == len(y):
            wanted = {(m, n) for m, n in zip(x, y, strict=True) if m != n and m and n}
        else:
            x, y = (tuple(n for n in side if n != 1) for side in (x, y))
            long, short = (y, x) if len(y) == len(x) + 1 else (x, y)
            inserted = {long[k] for k in range(len(long)) if long[:k] + long[k + 1 :] == short and long[k]}
            wanted = {(1, n) for n in inserted} if long is y else {(n, 1) for n in inserted}
            if abs(len(x) - len(y)) != 1:
                wanted = set()
        assert replaced_dimensions(a, b) == wanted, (a, b)


def test_pairs_of_shapes() -> None:
    a = pa.array(["f32[2]", "f32[2]", "(f32[2])", "f32[4]", None, "f32[2]", "f32[4]"])
    b = pa.array(["f32[4]", "f32[2]", "f32[4]", "f32[8]", "f32[4]", "f32[4]", "s32[4]"])
    pairs = ShapePairs(a, b, array([1, 2, 4, 8, 16, 32, 64]))
    f2, f4, f8, s4 = Shape("f32", (2,)), Shape("f32", (4,)), Shape("f32", (8,)), Shape("s32", (4,))
    assert {(x, y): n for x, y, n in pairs.weighed()} == {(f2, f4): 33, (f2, f2): 2, (f4, f8): 8, (f4, s4): 64}
    assert list(pairs.changed().items()) == [((f2, f4), 0), ((f4, f8), 3), ((f4, s4), 6)]
    assert pairs.where(lambda x, y: x == y).tolist() == [False, True, False, False, False, False, False]
    half = [True, False, False, True, False, True, False]
    assert pairs.with_ratios([Fraction(1, 2)]).tolist() == half
    assert not pairs.with_ratios([Fraction(2), Fraction(1)]).any()
    assert ShapePairs(a[:0], b[:0], array([])).where(lambda *_: True).tolist() == []


def test_collectives_that_are_counted() -> None:
    """Once each, by opcode; moves on one device are none."""
    texts = [
        "all-reduce", "all-gather-start", "all-gather-done", "add", "collective-permute", "reduce-scatter",
        "all-to-all",
    ]  # fmt: skip
    codes = array([0, 0, 1, 2, 3, 4, 5, 5, -1])
    names: Any = SimpleNamespace(codes=codes, texts=pa.array(texts))
    assert _collective_counts(names) == {
        "all-reduce": 2, "all-gather": 1, "collective-permute": 1, "reduce-scatter": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("a", "b", "differ"),
    [({}, {}, False), ({"x": 1}, {}, True), ({}, {"x": 1}, True), ({"x": 10}, {"x": 9}, False),
     ({"x": 10}, {"x": 11}, False), ({"x": 9}, {"x": 10}, False),
     ({"x": 10}, {"x": 8}, True), ({"x": 5, "y": 5}, {"x": 5, "z": 5}, True)],
)  # fmt: skip
def test_whether_collectives_differ(a: dict[str, int], b: dict[str, int], differ: bool) -> None:
    sides = [Collectives(Counter(side), 1, frozenset()) for side in (a, b)]
    assert sides[0].differ(sides[1]) is sides[1].differ(sides[0]) is differ


def test_frequent_replacements() -> None:
    tally: Any = Counter({(1, 2): 40, (2, 1): 10, (3, 4): 39, (4, 3): 10, (5, 6): 20, (7, 8): 19, (9, 9): 1})
    assert _frequent(tally, 20, ()) == [(1, 2), (5, 6)]
    assert _frequent(tally, 20, {(9, 9), (4, 3)}) == [(1, 2), (5, 6), (4, 3), (9, 9)]
    assert [_as_in(name) for name in (None, "", "w", "argument 3{1}", "arguments")] == [
        "", "", ", as in argument w", ", as in argument 3{1}", ", as in argument arguments",
    ]  # fmt: skip


# -- words of edits ------------------------------------------------------------------------------


def test_lists_of_names() -> None:
    assert [listed(list("abcd"[:n])) for n in range(5)] == ["", "a", "a, b", "a, b, c", "a, b, c, …"]
    assert [are(n, "layer") for n in (0, 1, 2, 1234)] == [
        "0 layers are", "1 layer is", "2 layers are", "1,234 layers are",
    ]  # fmt: skip
    names = pa.array(list("abcdef"))
    assert largest(names, array([1, 3, 5]), array([5, 9, 5])) == "d, b, f"
    assert largest(names, array([0, 1, 2, 3]), array([1, 2, 3, 4])) == "d, c, b, …"
    assert with_scopes(["a/b/c", "a/d"]) == {"a", "a/b", "a/b/c", "a/d"}


# -- the compiler --------------------------------------------------------------------------------


def flag(role: str, name: str, value: str, comment: str | None = None) -> dict[str, Any]:
    return {"role": role, "name": name, "value": value, "comment": comment}


def with_flags(*rows: dict[str, Any]) -> Any:
    table = pa.Table.from_pylist(list(rows)) if rows else pa.table({"role": pa.array([], pa.string())})
    return SimpleNamespace(optional=lambda name: table)


def test_flags() -> None:
    rows = [
        flag("debug-options", "xla_a", "1"), flag("debug-options", "xla_dump_to", "/x"),
        flag("debug-options", "xla_a", "2"), flag("tpu-env", "b", "3"),
        flag("tpu-env", "c.d", "4", " # c in the current x"), flag("tpu-env", "e", "5", "odd"),
        flag("tpu-env", "f.g", "6"), flag("tpu-env", "h", "7", "x\n # f in the current y\n # h in the current y"),
        flag("tpu-env", "xla_x_dir", "8", "changed"),
    ]  # fmt: skip
    p = with_flags(*rows)
    assert flags_by_role(p) == {
        "debug-options": {"xla_a": "1,2", "xla_dump_to": "/x"},
        "tpu-env": {"b": "3", "c.d": "4", "e": "5", "f.g": "6", "h": "7", "xla_x_dir": "8"},
    }
    assert flags_not_default(p) == {"xla_a": "1,2", "c.d": "4", "e": "5", "f.g": "6", "h": "7"}
    assert flags_not_default(with_flags()) is None
    assert flags_not_default(with_flags(rows[3])) == {}
    assert _commented(rows[7]) == ["f", "h"]
    assert _with_parents("a.b.c") == ["a", "a.b", "a.b.c"]
    assert _joined([rows[0], rows[3], rows[2]]) == {"xla_a": "1,2", "b": "3"}


def test_flags_that_changed() -> None:
    a, b = {"x": "1", "y": "2", "z": "3", "xla_dump_to": "a"}, {"x": "1", "y": "3", "w": "4", "my_path": "b"}
    assert changed_flags(a, b) == [
        "w is 4 instead of not set", "y is 3 instead of 2", "z is not set instead of 3",
    ]  # fmt: skip
    of_platforms = [changed_flags({}, {f"xla_{p}_x": "1" for p in ("cpu", "gpu", "tpu", "llvm")}, {p, "tpu"})
                    for p in ("tpu", "cpu", None)]  # fmt: skip
    assert [[text[4:7] for text in found] for found in of_platforms] == [
        ["llv", "tpu"], ["cpu", "llv", "tpu"], ["cpu", "gpu", "llv", "tpu"],
    ]  # fmt: skip
    assert [other_changelist(*pair) for pair in ((None, 1), (1, None), (1, 1), (1, 2), (0, 5))] == [
        None, None, None, "the compiler is of changelist 2 instead of 1",
        "the compiler is of changelist 5 instead of 0",
    ]  # fmt: skip


# -- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folders", "relative"),
    [
        ([], []), (["/a/b"], [""]), (["/a/b", "/a/b"], ["", ""]), (["/a/b", "/a/c"], ["b", "c"]),
        (["/a/b/c", "/a/b"], ["c", ""]), (["/a", "/b/c"], ["a", "b/c"]), (["", "a"], ["", "a"]),
        (["a/b", "a/b/c/d"], ["", "c/d"]),
    ],
)  # fmt: skip
def test_relative_folders(folders: list[str], relative: list[str]) -> None:
    assert relative_folders(folders) == relative


@pytest.mark.parametrize(
    ("about", "key"),
    [
        ({"program_fp": "p", "interface_fp": "i", "content_hash": "c"}, ("p", "i")),
        ({"program_fp": "p", "content_hash": "c"}, ("content", "c")),
        ({"interface_fp": "i", "content_hash": "c"}, ("content", "c")),
        ({"program_fp": "p"}, ("id", "x")),
        ({"id": None}, ("row", 7)),
    ],
)
def test_keys_of_programs(about: dict[str, Any], key: tuple[Any, ...]) -> None:
    assert ProgramEntry(**{"row": 7, "id": "x", "uri": None, **about}).key == key


class Listed(Programs):
    def sketches(self, numbers: Sequence[int]) -> Any:
        return sketches.no_sketches(len(numbers))

    def read(self, number: int) -> Any:
        raise NotImplementedError


def entry(row: int, key: str | None = "k", folder: str = "", module: int | None = None, **more: Any) -> ProgramEntry:
    fingerprints = {"program_fp": key, "interface_fp": key and f"i{key}"}
    return ProgramEntry(**{"row": row, "id": None, "uri": f"{folder}/m", "module_id": module, **fingerprints, **more})


def test_programs_count_once_in_each_folder() -> None:
    """In order of their numbers, those without a number last; the first dump describes a program."""
    dumps = [
        entry(0, "a", "/x"), entry(1, "b", "/x", 5), entry(2, "a", "/y", 3), entry(3, "a", "/x", 0),
        entry(4, "b", "/y", 5), entry(5, "a", "/y", 9), entry(6, "c", "/y"),
    ]  # fmt: skip
    found = Listed(dumps)
    assert [(p.row, p.occurrences) for p in found.programs] == [(3, 2), (1, 2), (5, 2), (6, 1)]
    assert (len(found), found[2].row, found.folders()) == (4, 5, ["x", "x", "y", "y"])


def test_dumps_that_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the sizes are, each is read once."""
    from xlamem.compare import programs

    monkeypatch.setattr(programs, "CHUNK_BYTES", 10)
    sources = [SimpleNamespace(bytes_on_disk=lambda n=n: n) for n in (4, 6, 1, 11, None, 3, 8, 2)]
    chunks = [*programs._chunks(sources)]  # type: ignore[arg-type]
    assert [len(chunk) for chunk in chunks] == [3, 1, 3, 1]
    assert [s for chunk in chunks for s in chunk] == sources
    assert [*programs._chunks([])] == []
    assert len(FilePrograms([])) == 0


def test_values_of_a_label() -> None:
    many = [f"v{i:02}" for i in range(12)]
    assert str(no_such_value("k", "zzz", [None, *many])) == f"no dump has k=zzz; there are {', '.join(many[:10])}, …"
    assert str(no_such_value("k", "zzz", many[:10])) == f"no dump has k=zzz; there are {', '.join(many[:10])}"
    assert str(no_such_value("k", "main2", ["main", "dev"])) == "no dump has k=main2; did you mean 'main'?"


# -- sketches ------------------------------------------------------------------------------------


def test_similarity_of_sketches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against one pair after another, also if not all are compared at once."""
    chance = np.random.default_rng(5)
    rows = [chance.integers(0, 3, (4, 3 * 64)).astype(np.uint32) for _ in "ab"]
    for side in rows:
        side[chance.random(side.shape) < 0.5] = sketches.EMPTY
        side[3] = sketches.EMPTY
    pairs = [(i, j) for i in range(4) for j in range(4)]
    i, j = (array(column) for column in zip(*pairs, strict=True))
    whole = sketches.similarity(*rows, i, j)
    monkeypatch.setattr(sketches, "ROWS_PER_CALL", 5)
    for found in (whole, sketches.similarity(*rows, i, j)):
        for k, (x, y) in enumerate(pairs):
            indices, shared = [], 0
            for kind in range(3):
                a, b = (side[n][64 * kind : 64 * kind + 64] for side, n in zip(rows, (x, y), strict=True))
                both = sum(int(p) == int(q) != int(sketches.EMPTY) for p, q in zip(a, b, strict=True))
                some = sum(int(sketches.EMPTY) != min(int(p), int(q)) for p, q in zip(a, b, strict=True))
                indices.append(both / max(some, 1))
                shared += both
            assert found.shared[k] == shared
            if 3 in (x, y):
                assert np.isnan(found.score[k])
            else:
                assert found.score[k] == pytest.approx((indices[0] + indices[1]) / 2)
                assert found.unscoped[k] == pytest.approx(indices[2])


def test_rows_that_share_a_hash() -> None:
    empty = int(sketches.EMPTY)
    for _ in range(60):
        x, y = ([CHANCE.choice((1, 2, 3, empty)) for _ in range(CHANCE.randrange(6))] for _ in "ab")
        found = zip(*(r.tolist() for r in pairing._equal(np.array(x, np.uint32), np.array(y, np.uint32))), strict=True)
        wanted = [(i, j) for i, p in enumerate(x) for j, q in enumerate(y) if p == q != empty]
        assert sorted(found) == wanted


def test_a_hash_that_too_many_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "MAX_SHARED", 4)
    two, three = np.array([7, 7], np.uint32), np.array([7, 7, 7], np.uint32)
    assert len(pairing._equal(two, two)[0]) == 4
    assert len(pairing._equal(two, three)[0]) == 0
    a, b = np.array([[1, 2], [3, 2]], np.uint32), np.array([[1, 2], [1, 9]], np.uint32)
    assert [x.tolist() for x in pairing._sharing(a, b)] == [[0, 0, 1], [0, 1, 0]]
    monkeypatch.setattr(pairing, "MAX_SHARING", 1)
    assert [x.tolist() for x in pairing._sharing(a, b)] == [[0, 0], [0, 1]]
    assert [x.tolist() for x in pairing._sharing(a, b[:0])] == [[], []]


# -- pairs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("anchors", "n", "places"),
    [([], 3, [0.25, 0.5, 0.75]), ([1], 4, [0.5, 0, 1 / 3, 2 / 3]), ([0, 2], 3, [0, 0.5, 0]), ([], 0, [])],
)
def test_places_between_anchors(anchors: list[int], n: int, places: list[float]) -> None:
    fraction, gap = pairing._between(array(anchors), n)
    assert fraction.tolist() == pytest.approx(places)
    assert gap.tolist() == [sum(a <= i for a in anchors) for i in range(n)]


def test_best_pairs() -> None:
    """Those of another folder last, then by score to two digits, distance and order; unknown scores last."""
    same = {0: pairing.Pair(0, "same", 1.0, ""), 4: pairing.Pair(4, "same", 1.0, "")}
    p: Any = SimpleNamespace(_order=pairing._Order(same, 5, 5))
    for _ in range(100):
        n = CHANCE.randrange(1, 9)
        pairs = list({(CHANCE.randrange(1, 4), CHANCE.randrange(1, 4)) for _ in range(n)})
        score = [CHANCE.choice((0.5, 0.501, 0.6, float("nan"))) for _ in pairs]
        last = [CHANCE.random() < 0.3 for _ in pairs]
        distance = p._order.distance(*(array(c) for c in zip(*pairs, strict=True))).tolist()
        order = sorted(range(len(pairs)), key=lambda k: (
            last[k], -(-1 if score[k] != score[k] else round(score[k], 2)), distance[k], *pairs[k]))  # fmt: skip
        wanted, taken = [], (set[int](), set[int]())
        for k in order:
            i, j = pairs[k]
            if i not in taken[0] and j not in taken[1]:
                wanted.append((i, j))
                taken[0].add(i)
                taken[1].add(j)
        i, j = (array(c) for c in zip(*pairs, strict=True))
        found = [*pairing.Pairing._best(p, i, j, np.array(score), np.array(last))]
        assert sorted((x, y) for x, y, _ in found) == sorted(wanted)
        greedy = pairing._greedy(i[order], j[order], np.array(score)[order])
        assert [(x, y) for x, y, _ in greedy] == wanted


@pytest.mark.parametrize(
    ("score", "n", "interface", "name"),
    [
        (0.5, 1, ("interface", "the only program left with this interface"),
         ("similar", "the only program left with this name; the interface differs")),
        (0.5, 3, ("interface", "the most similar of 3 programs with this interface"),
         ("similar", "the most similar of 3 programs with this name; the interface differs")),
        (float("nan"), 2, ("interface", "one, by order, of 2 programs with this interface"),
         ("name", "one, by order, of 2 programs with this name; the instructions of one of them are not known")),
    ],
)  # fmt: skip
def test_reasons_of_pairs(score: float, n: int, interface: tuple[str, str], name: tuple[str, str]) -> None:
    assert (pairing._by_interface(score, n), pairing._by_name(score, n)) == (interface, name)


def test_problems_of_both_sides_are_named() -> None:
    a = Listed([entry(0, "k", problem="it is odd"), entry(1, "x", problem="gone bad", occurrences=2)])
    b = Listed([entry(0, "k", problem="it is cut"), entry(1, "y", occurrences=3)])
    found = pairing.Pairing(a, b)
    found._add_same(0, 0)
    assert found.pairs[0].reason == "same interface and memory behaviour; A: it is odd; B: it is cut"
    rows = found.table().to_pylist()
    assert [(r["how"], r["reason"]) for r in rows[1:]] == [
        ("gone", "no such program on the other side; gone bad"), ("new", "no such program on the other side"),
    ]  # fmt: skip
    assert [(r["occurrences_a"], r["occurrences_b"]) for r in rows] == [(1, 1), (2, None), (None, 3)]
    for key in ("content", "id"):
        alone = Listed([ProgramEntry(0, "x", "/m", content_hash="c" if key == "content" else None)])
        found = pairing.Pairing(alone, alone)
        found._add_same(0, 0)
        assert found.pairs[0].reason == "same content"


def test_rows_of_programs_that_cannot_be_told_apart() -> None:
    a = Listed([entry(i, key, occurrences=i + 1) for i, key in enumerate("kkk")])
    b = Listed([entry(i, key, occurrences=10) for i, key in enumerate("kzk")])
    found = pairing.Pairing(a, b)
    found._add_same(0, 0)
    found._add(1, 1, 0.12345, "interface", "why")
    found._add_same(2, 2)
    assert [(r["how"], r["program_a"], r["program_b"], r["score"], r["occurrences_a"], r["occurrences_b"])
            for r in found.table().to_pylist()] == [
        ("same", 0, 0, 1.0, 4, 20), ("interface", 1, 1, 0.123, 2, 10),
    ]  # fmt: skip


# -- points --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "order", "names"),
    [
        (["b", "a", "c"], None, ["b", "c", "a"]),
        (["b", "a", "c"], "name", ["a", "b", "c"]),
        (["n-10", "n-9", "n-9a"], "name", ["n-9", "n-9a", "n-10"]),
        (["2025-01-31", "2024-12-01", "20250102"], None, ["2024-12-01", "20250102", "2025-01-31"]),
        (["2025-01-31", "2024-12-01", "20250102"], "seen", ["2025-01-31", "20250102", "2024-12-01"]),
        (["2025-01-311", "2024-12-01", "20250102"], None, ["2025-01-311", "20250102", "2024-12-01"]),
        (["2025-01-31T05", "2024-12-01", "2024-12-01 x"], None, ["2024-12-01", "2024-12-01 x", "2025-01-31T05"]),
    ],
)
def test_order_of_points(values: list[str], order: Any, names: list[str]) -> None:
    """As seen first, unless all are dates."""
    value, seen = array([0, 1, 1, 2, 2, 0]), array([5, 9, 8, 9, 7, 6])
    place, found = _ordered(value, values, seen, order)
    if order == "name" or names == sorted(names, key=natural_order):
        assert list(found) == sorted(values, key=natural_order)
    assert [values[i] for i in np.argsort(place)] == list(found)
    if order != "name":
        assert set(found) == set(names)
    _, at_once = _ordered(value, values, array([1] * 6), "seen")
    assert list(at_once) == sorted(values, key=natural_order)


def test_folders_of_points() -> None:
    uris = pa.chunked_array([["/d/a/x", "/d/b/x", None, "/d/a/y", "z"]])
    rank, folders, texts = _places(uris)
    assert rank.tolist() == [0, 2, 4, 1, 3]
    assert [None if f < 0 else texts[f].as_py() for f in folders] == ["/d/a", "/d/b", None, "/d/a", ""]
    names = pa.array(["/d/a", "/d/b", "/e/f/g"])
    found = _relative(array([0, 0, 1, 2, 2]), array([0, 1, 0, 2, -1]), names)
    assert found.to_pylist() == ["a", "b", "", "/e/f/g", ""]


def test_first_and_last_points() -> None:
    begin, end = _extent(array([1, 0, -1, 1, 0]), array([0, 2, 5, 3, 1]))
    assert (begin.tolist(), end.tolist()) == ([1, 0], [2, 3])
    assert [x.tolist() for x in _extent(array([]), array([]))] == [[], []]


def test_unchanged_places_around_changed_ones() -> None:
    for _ in range(100):
        fixed = CHANCE.sample(range(12), CHANCE.randrange(5))
        changed = sorted(set(range(12)) - {*fixed})[: CHANCE.randrange(4)]
        around = {max((f for f in fixed if f < c), default=None) for c in changed}
        around |= {min((f for f in fixed if f >= c), default=None) for c in changed}
        assert _around(array(fixed), array(changed)).tolist() == [f in around for f in fixed]


def compared(score: float, unscoped: float = 0.0, shared: int = 99) -> Any:
    """A pairing of one program on each side, which are so similar."""
    p: Any = pairing.Pairing.__new__(pairing.Pairing)
    found = sketches.Similarity(np.array([score]), np.array([unscoped]), array([shared]))
    p.__dict__.update(
        pairs={}, taken=set(), _similarity=lambda i, j: found, _order=pairing._Order({}, 1, 1),
        a=Listed([entry(0, "a")]), b=Listed([entry(0, "b")]), _folders=(np.array([""]), np.array([""])),
        _sketches=[SimpleNamespace(of=lambda numbers: np.zeros((1, 1), np.uint32))] * 2,
    )  # fmt: skip
    return p


@pytest.mark.parametrize(
    ("score", "shared", "alone", "paired"),
    [
        (0.5, 8, False, False), (0.51, 8, False, True), (0.51, 7, False, False), (0.0, 0, True, True),
        (float("nan"), 0, False, True), (0.1, 99, False, False),
    ],
)  # fmt: skip
def test_programs_of_a_group_that_are_similar_enough(score: float, shared: int, alone: bool, paired: bool) -> None:
    """More than the least, and with enough hashes; those that are alone, or of unknown similarity, need none."""
    p = compared(score, shared=shared)
    p._pair_groups({"k": ([0], [0])}, {"k"} if alone else set(), 0.5, 8, lambda s, n: ("similar", f"of {n}"))
    assert [(pair.b, pair.reason) for pair in p.pairs.values()] == ([(0, "of 1")] if paired else [])
    assert p.taken == ({0} if paired else set())


@pytest.mark.parametrize(
    ("score", "unscoped", "shared", "paired"),
    [
        (0.6, 0.0, 8, 0.6), (0.59, 0.0, 8, None), (0.6, 0.0, 7, None), (0.0, 0.8, 8, 0.8), (0.0, 0.79, 8, None),
        (0.0, 0.8, 7, None), (0.7, 0.9, 8, 0.9), (0.9, 0.7, 8, 0.9),
    ],
)  # fmt: skip
def test_programs_with_other_names_that_are_similar_enough(
    score: float, unscoped: float, shared: int, paired: float | None
) -> None:
    """With their scopes or, if these were renamed, without them."""
    p = compared(score, unscoped, shared)
    p._pair_others()
    assert [(pair.how, pair.score) for pair in p.pairs.values()] == ([] if paired is None else [("similar", paired)])


def test_dumps_of_unknown_content_are_not_the_same() -> None:
    """Not even those that have the same number on both sides."""
    sides = [Listed([ProgramEntry(row, None, None) for row in (0, 7)]) for _ in "ab"]
    found = pairing.Pairing(*sides)
    found.run()
    assert [(r["how"], r["program_a"], r["program_b"]) for r in found.table().to_pylist()] == [
        ("gone", 0, None), ("gone", 1, None), ("new", None, 0), ("new", None, 1),
    ]  # fmt: skip


def test_a_spare_copy_is_not_renamed() -> None:
    """A program that is compiled twice on one side, of which the other side has one, is not another one there."""
    copies = [entry(i, "k", module_name="jit_f") for i in range(2)]
    renamed = replace(entry(1, "k", module_name="jit_g"), interface_fp="other")

    def hows(a: list[ProgramEntry], b: list[ProgramEntry]) -> list[str]:
        found = pairing.Pairing(Listed(a), Listed(b))
        found.run()
        return sorted(found.table()["how"].to_pylist())

    assert hows(copies, [copies[0], renamed]) == ["new", "same"]
    assert hows([copies[0], renamed], copies) == ["gone", "same"]
    assert hows(copies[:1], [renamed]) == ["similar"]
    changed = entry(1, "z", module_name="jit_f")
    assert hows(copies, [copies[0], changed]) == ["new", "same"]
    assert hows(copies[:1], [changed]) == ["name"]
    same_interface = replace(changed, interface_fp="ik")
    assert hows(copies, [copies[0], same_interface]) == ["interface", "same"]
