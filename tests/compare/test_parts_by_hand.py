"""Parts of a comparison with stand-ins for programs."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import (
    account,
    context,
    contributors,
    difference,
    following,
    graph,
    groups,
    interface,
    matching,
    points,
    program_edits,
    programs,
    stack_edits,
)
from xlamem.compare.context import Names, _types
from xlamem.compare.following import Following
from xlamem.compare.matching import Matching
from xlamem.compare.pairing import Pairing
from xlamem.compare.programs import DESCRIBED_BY, ProgramEntry
from xlamem.compare.rows import Differences, ShapePairs
from xlamem.compute.layout import CATEGORIES, DONATED, LIVE_OUT, PARAMETER, TEMP, TEMP_IN_OUTPUT
from xlamem.errors import UsageError


def array(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize("steps", [None, 5])
def test_values_that_represent_allocations(steps: int | None) -> None:
    """The output in that of an output; the parameter stays if the value is no output."""
    p: Any = SimpleNamespace(
        steps=steps, representative=array(7, 8, 9), owner=array(0, 1, 1, 2), value_category=array(LIVE_OUT, LIVE_OUT,
            0, LIVE_OUT), is_output=lambda rows: np.isin(rows, [0, 1]),
    )  # fmt: skip
    assert account._main_of_allocations(p).tolist() == ([7, 8, 9] if steps is None else [0, 1, 9])
    assert p.representative.tolist() == [7, 8, 9]


def test_buffers_that_may_match() -> None:
    """By the bytes of the values that match; those of their main values count four times, and a little more."""
    category = {"a": array(TEMP, TEMP, TEMP, TEMP), "b": array(TEMP, TEMP, TEMP, TEMP)}
    a = SimpleNamespace(extent=array(10, 5, 1, 9), categories_of=lambda rows: category["a"][rows])
    b = SimpleNamespace(extent=array(8, 7, 3, 2), categories_of=lambda rows: category["b"][rows])
    m: Any = SimpleNamespace(a=a, b=b, value=array(0, 1, 3, -1))
    in_a: Any = SimpleNamespace(of_value=array(0, 0, 1, 1), main=array(0, 2))
    in_b: Any = SimpleNamespace(of_value=array(1, 1, 0, 0), main=array(2, 1), bytes=array(3, 8))
    found = [x.tolist() for x in account._candidates(m, in_a, in_b)]
    assert found == [[0, 1], [1, 0], [8 + 5, 1]]
    in_b.main = array(3, 0)
    assert [x.tolist() for x in account._candidates(m, in_a, in_b)][2] == [4 * 8 + 2 + 5, 4 * 1 + 2]
    in_b.of_value = array(-1, 1, 0, 0)
    assert [x.tolist() for x in account._candidates(m, in_a, in_b)] == [[0, 1], [1, 0], [5, 6]]
    # The second value lies in an output of A, whose place it leaves in B.
    category["a"] = array(TEMP, TEMP_IN_OUTPUT, TEMP, TEMP)
    assert [x.tolist() for x in account._candidates(m, in_a, in_b)] == [[1], [0], [6]]
    category["b"] = category["a"]
    assert [x.tolist() for x in account._candidates(m, in_a, in_b)] == [[0, 1], [1, 0], [5, 6]]


@pytest.mark.parametrize(
    ("match", "shapes", "gone", "new"),
    [
        ([3, 4], "xy xyz", [], [5]), ([5, 4], "xy xyz", [], [5]), ([4, 3], "xy xyz", [], [5]),
        ([4, 5], "xy xyy", [], [4]), ([3, -1], "xy xzz", [1], [4, 5]), ([5, -1], "xy wzz", [1], [3, 4]),
        ([0, 9], "xx xyx", [], [4]), ([3, 4], "xy xy", [], []), ([3, 4], "xy zw", [], []),
    ],
)  # fmt: skip
def test_outputs_of_one_side(
    match: list[int], shapes: str, gone: list[int], new: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a shape are the same ones; of the rest, matches have another shape, unless they are no outputs."""
    of_a, of_b = shapes.split()
    a, b = np.arange(2), np.arange(3, 3 + len(of_b))
    monkeypatch.setattr(interface, "outputs_of", lambda p: SimpleNamespace(value=p))
    monkeypatch.setattr(interface, "_array_outputs", lambda p: p)
    monkeypatch.setattr(interface, "_plain_shapes", lambda p, rows: array(*map(ord, f"{of_a}.{of_b}"))[rows])
    i: Any = interface.Interface.__new__(interface.Interface)
    i.m = SimpleNamespace(a=a, b=b, value=array(*match))
    assert (i.gone_outputs.tolist(), i.new_outputs.tolist()) == (gone, new)


def test_output_tuples_are_no_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    p: Any = SimpleNamespace(value_text=lambda _, rows: pa.array(["f32", "tuple"]).take(rows).dictionary_encode())
    monkeypatch.setattr(interface, "outputs", lambda p: array(1, 0))
    monkeypatch.setattr(interface, "is_in", lambda texts, of: np.isin(texts.to_pylist(), of))
    assert interface._array_outputs(p).tolist() == [0]


def test_outputs_of_a_program() -> None:
    """Those that are live out, or donated."""
    p: Any = SimpleNamespace(
        steps=5, value_category=array(LIVE_OUT, DONATED, 99, LIVE_OUT), is_output=lambda rows: rows < 3
    )
    assert interface.outputs(p).tolist() == [0, 1]
    p.steps = None
    assert interface.outputs(p).tolist() == []


def names(codes: list[int], texts: list[str], frames: list[int]) -> Names:
    return Names(array(*codes), pa.array(texts, pa.string()), array(*frames))


@pytest.mark.parametrize(
    ("codes", "frames", "found"),
    [
        ([0, 1, 2], [5, 0, -1], [True, False, False]), ([0, 1, 1], [0, 0, 0], [True, True, False]),
        ([0, -1, 2], [1, 9, 1], [True, False, True]), ([-1, -1], [1, 1], [False] * 3),
        ([0, 1, -1], [-1, -1, 4], [True, True, False]),
    ],
)  # fmt: skip
def test_operations_of_the_model(codes: list[int], frames: list[int], found: list[bool]) -> None:
    """Those with a stack frame; all if no operation has one."""
    assert names(codes, ["a", "b", "c"], frames).in_model.tolist() == found


def test_operations_of_old_versions() -> None:
    """They have no stack frames. Parameters of primitives do not count, and arguments are no operations."""
    texts = ["jit(f)/jit(main)/jvp()/sum[axes=(0,)]", "jit(f)/jit(main)/jvp()/sum[axes=(1, 2)]", "s.w['x']", "y", ""]
    is_parameter = np.array([False, False, True, True, False])
    own = replace(names([0, 1, 2, 3, -1], texts, [-1] * 5), is_parameter=is_parameter)
    assert own.in_model.tolist() == [True, True, False, False, False]
    assert dict(own.lines()) == {"jvp()/sum": 2}
    assert replace(own, is_parameter=None).in_model.tolist() == [True, True, True, True, False]


def test_lines_of_operations() -> None:
    """Different frames count, not copies of an instruction."""
    own = names([0, 0, 0, 1, -1, 1], ["f/add", "f/mul"], [3, 3, 4, 5, 9, 5])
    assert own.places().tolist() == [2, 1]
    assert dict(own.lines()) == {"f/add": 2, "f/mul": 1}
    assert dict(names([0], ["f/add", "f/mul"], [3]).lines()) == {"f/add": 1}
    assert (own.count("add"), own.count("mul"), own.count("x")) == (3, 2, 0)
    assert own.instructions("mul").tolist() == [False, False, False, True, False, True]
    assert own.scopes_of("add|mul") == {"f"}
    assert names([], [], []).match("x").tolist() == []


def test_element_types_of_lines() -> None:
    """Of floating-point results; parameters and constants compute nothing."""
    columns = {
        "element_type": ["f32", "f32", "bf16", "s32", "f32", "f32", "f8e4m3", "f32"],
        "opcode": ["add", "add", "add", "add", "constant", "parameter", "add", "add"],
    }
    body: Any = SimpleNamespace(text=lambda name: pa.array(columns[name]).dictionary_encode())
    own = names([0, 0, 0, 0, 0, 0, 1, -1], ["f/add", "f/dot"], [3, 4, 3, 5, 6, 7, 3, 8])
    assert _types((body, own)) == {"f/add": Counter({"f32": 2, "bf16": 1}), "f/dot": Counter({"f8e4m3": 1})}


def test_problems_of_stored_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump that is not understood is described by the first place where it was found."""
    table = pa.table({
        "id": ["a", "b", "c", "d"], "module_name": ["f", None, "h", "i"], "complete": [True, None, False, True],
        "program_fp": ["1", None, "3", "4"], "doubt": [None, None, None, "odd"],
        **{name: [True] * 4 for name in DESCRIBED_BY if name != "complete"},
    })  # fmt: skip
    occurrences = pa.table({"uri": ["u0", "u1", "u2", "u3", "u4"]})
    asked: list[Any] = []

    def without_module(i: int, key: str, uri: str, dataset: Any, errors: Any) -> Any:
        asked.append((i, key, uri, errors))
        return SimpleNamespace(problem="unreadable", module_name="g", readable=False)

    monkeypatch.setattr(points, "stored_errors", lambda _: {"b": "e"})
    monkeypatch.setattr(points, "without_module", without_module)
    monkeypatch.setattr(points, "with_problem", lambda row, _: {"problem": f"problem of {row['id']}"})
    dataset: Any = None
    found = points._with_problems(dataset, table, occurrences, array(0, 1, 1, 2, 3)).to_pydict()
    assert asked == [(1, "b", "u1", {"b": "e"})]
    assert found["problem"] == [None, "unreadable", "problem of c", "problem of d"]
    assert found["module_name"] == ["f", "g", "h", "i"]
    assert found["readable"] == [True, False, True, True]


def test_what_rules_look_at() -> None:
    """Values that match, with the larger of their sizes."""
    a = SimpleNamespace(size=array(5, 9, 7), tables=SimpleNamespace(platform="tpu"))
    b = SimpleNamespace(size=array(6, 8), tables=SimpleNamespace(platform="gpu"))
    rows: Any = SimpleNamespace(n=3)
    found: Any = SimpleNamespace(a=a, b=b, value=array(1, -1, 0))
    c = context.Context(found, rows)
    assert [x.tolist() for x in c._matched] == [[0, 2], [1, 0], [8, 7]]
    assert (c.matched_bytes, c.platforms_differ, c.none.tolist()) == (15, True, [False] * 3)
    b.tables.platform = "tpu"
    assert not c.platforms_differ


def test_shapes_of_matched_temporaries() -> None:
    """Also of those that are alike, but not if a partner is no temporary."""

    def side(shapes: list[str], categories: list[int]) -> Any:
        texts, category = pa.array(shapes), np.array(categories)
        return SimpleNamespace(
            size=array(*(8 * len(shape) for shape in shapes)),
            value_text=lambda column, rows: texts.take(pa.array(rows)) if column == "shape" else None,
            categories_of=lambda rows: category[rows],
        )

    a = side(["f32[2]", "f32[3]", "f32[5]", "f32[8]", "s32[1]"], [TEMP, TEMP, PARAMETER, TEMP, TEMP])
    b = side(["f32[7]", "f32[4,1]", "f32[8]", "f32[9]"], [TEMP, TEMP, TEMP, PARAMETER])
    rows: Any = SimpleNamespace(n=0)
    c = context.Context(SimpleNamespace(a=a, b=b, value=array(1, 3, 0, 2, -1)), rows)  # type: ignore[arg-type]
    pairs = {(x.dimensions, y.dimensions): n for x, y, n in c.temporaries}
    assert pairs == {((2,), (4, 1)): 64, ((8,), (8,)): 48}


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (["f32[4,4]{1,0}"], ["f32[4,4]", "s1", "s2"]), (["(f32[4,4], bf16[2])"], ["s0", "f32[4,4]", "bf16[2]"]),
        (["(f32[4,4]{1,0})"], ["s0", "f32[4,4]", "s2"]), (["((f32[4]), f32[2])"], ["s0", "s1", "s2"]),
        ([], ["s0", "s1", "s2"]), (["f32[1]", "f32[2]"], ["s0", "s1", "s2"]), ([None, "f32[]"], ["f32[]", "s1", "s2"]),
    ],
)  # fmt: skip
def test_shapes_of_outputs(printed: list[str], found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the caller, by index; the shapes of other values are their own."""
    indices = SimpleNamespace(value=array(0, 1, 2), index=pa.array(["{}", "{0}", "{1}"]))
    monkeypatch.setattr(interface, "outputs_of", lambda _: indices)
    p: Any = SimpleNamespace(
        value_text=lambda _, rows: pa.array([f"s{r}" for r in rows.tolist()], pa.string()).dictionary_encode(),
        allocations={"output_shape": pa.chunked_array([pa.array(printed, pa.string())])},
    )  # fmt: skip
    assert interface.caller_shapes(p, array(0, 1, 2)).to_pylist() == found
    assert interface.caller_shapes(p, array(4, 1)).to_pylist() == ["s4", found[1]]


def test_largest_outputs_are_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shape once, on the side that has them."""
    for module in (program_edits, stack_edits):
        monkeypatch.setattr(module, "caller_shapes", lambda p, rows: pa.array([p.shapes[i] for i in rows.tolist()]))
    a = SimpleNamespace(size=array(9, 1), shapes=["f32[9]", "f32[1]"])
    b = SimpleNamespace(size=array(5, 90, 50, 70), shapes=["f32[5]", "f32[2]{0}", "f32[3]", "f32[2]{0:T(8)}"])
    i = SimpleNamespace(new_outputs=array(0, 1, 2, 3), gone_outputs=array(0))
    rows = SimpleNamespace(value=(array(0, 1, -1), array(-1, 1, 3)))
    c: Any = SimpleNamespace(m=SimpleNamespace(a=a, b=b), interface=i, rows=rows, once=lambda key, compute: compute())
    new, gone = program_edits.single_outputs(c)
    assert (new.text, gone.text) == ("4 outputs are new: f32[2], f32[3], f32[5]", "1 output is gone: f32[9]")
    assert [e.claims.tolist() for e in (new, gone)] == [[False, True, True], [True, False, False]]


class _Outputs:
    """A program of which only the outputs matter."""

    def __init__(self, first: int, index: list[str], element_type: str = "f32", own: Any = ()) -> None:
        self.index, self.entry_parameters, self._type = index, array(*own), element_type
        self.value = np.arange(first, first + len(index))

    def value_text(self, column: str, values: Any) -> pa.Array:
        return pa.array([self._type] * len(values))


def match_outputs(
    a: _Outputs, b: _Outputs, shape: tuple[Any, Any], rank: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> Any:
    m: Any = Matching.__new__(Matching)
    m.__dict__.update(a=a, b=b, value=np.full(9, -1), value_of_b=np.full(9, -1), rule=np.full(9, -1))
    monkeypatch.setattr(matching, "outputs_of", lambda p: SimpleNamespace(
        value=p.value, index=pa.array(p.index, pa.string())))  # fmt: skip
    m._match_outputs(shape, rank)
    return m


@pytest.mark.parametrize(
    ("a", "b", "matched"),
    [
        (["{0}", "{1}"], ["{1}", "{0}"], {5: 8, 6: 7}), (["{0}", None], ["{0}", "{1}"], {}),
        (["{0}", "{1}"], ["{0}", None], {}), (["{0}", "{1}"], ["{0}"], {}), (["{0}"], ["{0}"], {5: 7}),
        (["{2}"], ["{0}"], {}),
    ],
)  # fmt: skip
def test_outputs_that_match(
    a: list[str], b: list[str], matched: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By index and shape, if both sides have as many and all of their indices are known. Arguments are no outputs."""
    for own, own_b in (((), ()), ((6,), ()), ((), (7,))):
        same = np.ones(9, np.int64)
        m = match_outputs(_Outputs(5, a, own=own), _Outputs(7, b, own=own_b), (same, same), (same, same), monkeypatch)
        wanted = {k: v for k, v in matched.items() if k not in own and v not in own_b}
        assert {i: v for i, v in enumerate(m.value.tolist()) if v >= 0} == wanted
        assert {v: i for i, v in enumerate(m.value_of_b.tolist()) if v >= 0} == wanted
        assert {i for i, v in enumerate(m.rule.tolist()) if v >= 0} == {*wanted}


@pytest.mark.parametrize(
    ("shapes", "ranks", "element_type", "matched"),
    [
        ([10, 11], [2, 1], "f32", {5: 7, 6: 8}),
        ([10, 11], [2, 2], "f32", {5: 7}),
        ([10, 11], [2, 1], "bf16", {}),
        ([21, 20], [2, 1], "f32", {}),
        ([10, 20], [2, 1], "f32", {}),
    ],
)
def test_outputs_of_another_size(
    shapes: list[int], ranks: list[int], element_type: str, matched: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shapes 20 and 21 of A, with two dimensions and one, and those of B, where others may be in another order."""
    shape, rank = np.zeros((2, 9), np.int64), np.zeros((2, 9), np.int64)
    shape[0, 5:7], rank[0, 5:7] = (20, 21), (2, 1)
    shape[1, 7:9], rank[1, 7:9] = shapes, ranks
    a, b = _Outputs(5, ["{0}", "{1}"]), _Outputs(7, ["{0}", "{1}"], element_type)
    m = match_outputs(a, b, (shape[0], shape[1]), (rank[0], rank[1]), monkeypatch)
    assert {i: v for i, v in enumerate(m.value.tolist()) if v >= 0} == matched


def test_doubts_of_stored_dumps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each content is read once, if nothing proves its numbers."""
    modules = {
        "id": pa.chunked_array([["a", "b", "a", "c", "d"]]), "complete": pa.chunked_array([[True, True, True, True,
            False]]), "n_diagnostics": pa.chunked_array([[1, 0, 1, 2, 3]]), "total_bytes": pa.chunked_array([[5] * 5]),
    }  # fmt: skip
    read: list[str] = []
    dataset: Any = SimpleNamespace(read=lambda key: read.append(key) or key)
    monkeypatch.setattr(programs, "as_tables", lambda dump: dump)
    monkeypatch.setattr(programs, "doubt_of_numbers", {"a": "is not known: x", "c": "is odd"}.__getitem__)
    assert programs.stored_doubts(dataset, modules).to_pylist() == ["x", None, "x", "it is odd", None]
    assert read == ["a", "c"]


def test_programs_of_a_dataset_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each place; of unknown places, each counts."""
    rows = [("k1", "u2", 0), ("k1", "u1", 0), ("k1", "u2", 0), ("k1", "u2", 7), ("k2", "u2", 0), ("k1", None, 0),
            ("k1", None, 0)]  # fmt: skip
    columns: dict[str, Any] = {"content_id": [k for k, _, _ in rows], "uri": [u for _, u, _ in rows],
                               "offset": [o for _, _, o in rows]}  # fmt: skip
    columns |= {name: [True] * len(rows) for name in DESCRIBED_BY}
    columns |= {name: ["x"] * len(rows) for name in programs._MODULE}
    columns["program_fp"] = columns["content_id"]
    columns["module_id"] = [1] * len(rows)
    lost = pa.table({"content_id": ["z", "z"], "uri": ["u9", "u9"]})
    none = pa.nulls(len(rows), pa.int64())
    monkeypatch.setattr(programs, "stored_numbers", lambda *_: {"device_total": none, "peak": none})
    monkeypatch.setattr(programs, "stored_doubts", lambda *_: pa.nulls(len(rows), pa.string()))
    monkeypatch.setattr(programs, "stored_errors", lambda _: {"z": ("u9", "bad")})
    asked: list[Any] = []
    monkeypatch.setattr(programs, "unloaded", lambda dataset, runs: asked.append(runs) or lost)
    monkeypatch.setattr(programs, "runs_with", lambda dataset, labels: labels)
    monkeypatch.setattr(programs, "without_module", lambda i, key, uri, dataset, errors: SimpleNamespace(
        key=key, uri=uri, id=key))  # fmt: skip
    stored: Any = programs.StoredPrograms.__new__(programs.StoredPrograms)
    stored.dataset = None
    found = [*stored._occurrences(pa.table(columns), {"a": "b"})]
    assert [(p.id, p.uri) for p in found] == [
        ("k1", "u1"), ("k1", "u2"), ("k1", "u2"), ("k2", "u2"), ("k1", None), ("k1", None), ("z", "u9"),
    ]  # fmt: skip
    assert [*stored._occurrences(pa.table(columns), {})]
    assert asked == [{"a": "b"}, None]


@pytest.mark.parametrize(("steps_a", "steps_b"), [(None, 5), (5, 5), (5, None), (None, None)])
def test_arguments_that_can_be_donated(
    steps_a: int | None, steps_b: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B needs an output of this shape that shares no argument; all can without its live ranges."""
    category = array(LIVE_OUT, DONATED, LIVE_OUT, 99, 99, 99)
    b = SimpleNamespace(steps=steps_b, category=category, owner=np.arange(6), shapes=array(10, 11, 12, 11, 12, 10))
    monkeypatch.setattr(interface, "outputs_of", lambda p: SimpleNamespace(value=array(0, 1) if p is b else array()))
    monkeypatch.setattr(interface, "_plain_shapes", lambda p, rows: p.shapes[rows])
    i: Any = interface.Interface.__new__(interface.Interface)
    i.m = SimpleNamespace(a=SimpleNamespace(steps=steps_a, category=category, owner=np.arange(6)), b=b)
    i.b = SimpleNamespace(value=array(3, 4, 5))
    assert i.can_be_donated(array(0, 1, 2)).tolist() == ([True] * 3 if steps_b is None else [False, False, True])


def test_programs_that_are_similar_enough() -> None:
    """Above a score, with as many common operations; none is needed for a name that is alone, or without a score."""
    score = np.array([0.6, 0.5, 0.6, 0.6, np.nan, 0.1])
    shared = array(3, 3, 2, 4, 0, 0)
    found: list[Any] = []
    pairing: Any = Pairing.__new__(Pairing)
    pairing._similarity = lambda i, j: SimpleNamespace(score=score, shared=shared)
    pairing._elsewhere = lambda i, j: None
    pairing._best = lambda i, j, score, _: zip(i.tolist(), j.tolist(), score.tolist(), strict=True)
    pairing._add = lambda x, y, s, *words: found.append((x, y, words))
    groups = {k: ([k], [k + 10]) for k in range(6)}
    pairing._pair_groups(groups, {5}, 0.5, 3, lambda s, n: ("how", f"{n}"))
    assert [x for x, _, _ in found] == [0, 3, 4, 5]
    assert found[0] == (0, 10, ("how", "1"))


def spaces_of(platform: str, *spaces: tuple[str, int, int]) -> Any:
    found = [SimpleNamespace(name=name, page=page, color=color) for name, page, color in spaces]
    return SimpleNamespace(tables=SimpleNamespace(platform=platform), spaces=found)


def test_memory_spaces_that_are_equal() -> None:
    """By name and page; on two platforms, all of the main memory."""
    a, b = spaces_of("tpu", ("hbm", 0, 0), ("hbm", 1, 0), ("vmem", 0, 1)), spaces_of("tpu", ("vmem", 0, 1))
    x, y = account._space_names(a, b)
    assert len({*x.tolist()}) == 3
    assert y.tolist() == x.tolist()[2:]
    cpu = spaces_of("cpu", ("memory", 0, 0))
    x, y = account._space_names(a, cpu)
    assert (x.tolist(), y.tolist()) == ([True, True, False], [True])
    assert [len(n) for n in account._space_names(spaces_of("tpu"), b)] == [1, 1]


def test_allocations_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """They match by space, category and size."""
    monkeypatch.setattr(account, "_space_names", lambda a, b: [np.array(["hbm", "vmem"]), np.array(["vmem", "hbm"])])
    a = SimpleNamespace(space_of_allocation=array(0, 0, 1, 0), category=array(3, 3, 3, 4))
    b = SimpleNamespace(space_of_allocation=array(1, 1, 0, 1), category=array(3, 3, 3, 4))
    buffers: Any = SimpleNamespace(owner=array(0, 1, 2, 3), bytes=array(5, 6, 5, 5))
    rows = np.arange(4)
    m: Any = SimpleNamespace(a=a, b=b)
    x, y = (h.tolist() for h in account._without_values(m, buffers, buffers, (rows, rows)))
    assert x == y
    assert len({*x}) == 4
    (z, _) = (h.tolist() for h in account._without_values(m, buffers, buffers, (rows[2:], rows)))
    assert z == x[2:]


def test_partners_have_most_bytes_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a partner is not asked again; those without values are paired at last, and only with each other."""
    candidates = array(0, 0, 1, 1), array(0, 1, 0, 1), array(9, 8, 7, 1)
    monkeypatch.setattr(account, "_candidates", lambda *_: candidates)
    monkeypatch.setattr(account, "_without_values", lambda m, a, b, rows: (a.key[rows[0]], b.key[rows[1]]))
    a: Any = SimpleNamespace(bytes=np.zeros(4), main=array(0, 3, -1, -1), key=array(5, 9, 5, 8))
    b: Any = SimpleNamespace(bytes=np.zeros(5), main=array(0, 2, -1, -1, 4), key=array(8, 7, 6, 5, 8))
    m: Any = None
    assert account._partners(m, a, b).tolist() == [0, 1, 3, -1]
    candidates = array(1, 0), array(0, 0), array(5, 6)
    assert account._partners(m, a, b).tolist() == [0, -1, 3, -1]


def test_data_of_allocations_is_at_most_their_size() -> None:
    """That of the value which represents them; all, if none does."""
    p: Any = SimpleNamespace(
        steps=None, owner=array(0, 1), allocation_ids=array(0, 1, 2), space_of_allocation=array(0, 0, 0),
        category=array(1, 1, 1), is_fixed=np.zeros(3, bool), representative=array(0, 1, -1),
        allocation_size=array(8, 8, 9), data_extent=lambda rows: array(5, 80)[rows],
    )  # fmt: skip
    found = account.buffers_at(p, np.array([True]), 0)
    assert (found.bytes.tolist(), found.data.tolist()) == ([8, 8, 9], [5, 8, 9])
    assert found.main.tolist() == [0, 1, -1]
    assert found.of_value.tolist() == [0, 1]


def test_steps_of_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scheduled, or else the first step of their first value."""
    schedule = {"instruction": None, "time": pa.chunked_array([[7, 3]])}
    p = SimpleNamespace(
        optional=lambda _: schedule, row_of_instruction=lambda _: array(10, 12),
        ranges=(array(1, 2, -5), array(8, 9, 9)),
    )  # fmt: skip
    g: Any = graph.Graph.__new__(graph.Graph)
    g.__dict__.update(p=p, row=array(12, 11, -1, 10), first_value=array(0, 1, 2, 2), n=4)
    assert g.step.tolist() == [3, 2, -1, 7]
    assert g.position.tolist() == [2, 1, 0, 3]
    schedule["time"], p.row_of_instruction = pa.chunked_array([[0, 3]]), lambda _: array(0, 12)
    first: Any = graph.Graph.__new__(graph.Graph)
    first.__dict__.update(p=p, row=array(12, 0, -1, 10), first_value=array(0, 1, 2, 2), n=4)
    assert first.step.tolist() == [3, 0, -1, -1]


def test_texts_of_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of HLO texts only if both sides have one that is complete."""

    def side(name: str, *, body: bool | None) -> Any:
        table = {"op_name": pa.chunked_array([[f"table {name}"]]), "stack_frame_id": pa.chunked_array([[3]])}
        table["opcode"] = pa.chunked_array([["add"]])
        texts = {"op_name": pa.array([f"body {name}"]), "opcode": pa.array(["parameter"])}
        own = SimpleNamespace(text=texts.__getitem__, stack_frame_id=[4], complete=body) if body is not None else None
        tables = type("Tables", (dict,), {})(instructions=table)
        tables.body = own
        return SimpleNamespace(tables=tables)

    monkeypatch.setattr(context, "hlo_body", lambda tables: tables.body)
    for bodies in product((True, False, None), repeat=2):
        m: Any = SimpleNamespace(a=side("a", body=bodies[0]), b=side("b", body=bodies[1]))
        rows: Any = None
        found = context.Context(m, rows).op_names
        kind, frame = ("body", 4) if all(bodies) else ("table", 3)
        assert [n.texts.to_pylist() for n in found] == [[f"{kind} a"], [f"{kind} b"]]
        assert [n.frames.tolist() for n in found] == [[frame]] * 2
        assert [n.is_parameter.tolist() for n in found if n.is_parameter is not None] == [[all(bodies)]] * 2


def test_programs_that_are_left() -> None:
    """Those equal to one with a partner can be left out."""
    made: Any = Pairing.__new__(Pairing)
    made.a = [SimpleNamespace(key=k) for k in "xyxz"]
    made.b = [SimpleNamespace(key=k) for k in "pxpyz"]
    made.pairs, made.taken = {0: None}, {0}
    assert made._left() == ([1, 2, 3], [1, 2, 3, 4])
    assert made._left(spare=False) == ([1, 3], [1, 3, 4])
    groups = made._groups_left(lambda p: p.key, spare=True)
    assert groups == {"x": ([2], [1]), "y": ([1], [3]), "z": ([3], [4])}
    assert "x" not in made._groups_left(lambda p: p.key, spare=False)


def test_dumps_of_copies_count_for_the_first() -> None:
    own: Any = Following.__new__(Following)
    own.points = SimpleNamespace(occurrences=array(1, 2, 4, 8, 16, 32))
    own.kept = np.array([1, 0, 1, 1, 0, 1], bool)
    assert own._occurrences(array(0, 0, 0, 1, 1, 0)).tolist()[0] == 3
    assert [n for n, k in zip(own._occurrences(array(0, 0, 0, 1, 1, 0)).tolist(), own.kept, strict=True) if k] == [
        3, 4, 24, 32,
    ]  # fmt: skip
    assert following.RETURNS == ("same", "interface")


@pytest.mark.parametrize("found", [0, 1])
def test_programs_that_return_are_not_paired_twice(found: int) -> None:
    """Those at the point before come first, then those that were missing, then new ones."""
    own: Any = Following.__new__(Following)
    asked: list[Any] = []
    known = SimpleNamespace(has_fingerprints=np.ones(9, bool))
    point = array(0, 1, 1, 0, 2, 2, 2)
    own.points = SimpleNamespace(at=lambda _: array(4, 5, 6), point=point, contents=known, content=np.arange(7))
    own.program, own._last, own._known = array(0, 1, 2, 3, -1, -1, -1), array(0, 2, 1, 3), array(0, 2, 1, 3)

    def consecutive(programs: Any, here: Any) -> None:
        asked.append((programs.tolist(), here.tolist()))
        own.program[5] = found

    def returning(programs: Any, here: Any) -> None:
        asked.append((programs.tolist(), here.tolist()))
        own.program[6] = 3

    own._pair_consecutive, own._pair_returning = consecutive, returning
    own._follow(2)
    assert asked == [([2, 1], [4, 5, 6]), ([0, 3], [4, 6])]
    assert own.program.tolist() == [0, 1, 2, 3, 4, found, 3]


def test_values_match_by_scope_only_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations first, by shape, by bytes and by rank; then scopes."""
    asked: list[Any] = []
    side = SimpleNamespace(value_category=array(1, 1, 1), unpadded=array(7, 8, 9))
    m: Any = Matching.__new__(Matching)
    m.__dict__.update(a=side, b=side, value=array(-1, 0, -1), value_of_b=array(1, -1, -1))
    m._pair_values = lambda labels, rule, node, allowed: asked.append((labels, [x.tolist() for x in allowed]))
    columns = {0: (5, 6, 2, 1), 1: (0, 6, 2, 1), 2: (5, 0, 3, 1)}

    def named(side: Any) -> Any:
        return tuple(array(*(columns[i][k] for i in side[1].tolist())) for k in range(4))

    monkeypatch.setattr(matching, "_named", named)
    m._match_by_scope((array(1, 1, 1), array(1, 1, 1)))
    by_name, by_scope = [[True, False, True], [False, False, True]], [[True, False, False], [False, True, False]]
    assert [allowed for _, allowed in asked] == [by_name] * 3 + [by_scope]
    equal = [(labels.a[:, None] == labels.b[None, :]).tolist() for labels, _ in asked]
    assert [rows[2][2] for rows in equal] == [True] * 4
    assert [rows[0][2] for rows in equal] == [True, False, False, False]
    assert [rows[0][1] for rows in equal] == [False, False, False, True]


def test_dumps_of_later_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program is read from its own dump, whatever chunk that was in; so are its sketches."""
    sources: Any = [SimpleNamespace(bytes_on_disk=lambda: 1, members=[SimpleNamespace(location=f"u{i}")], i=i)
                    for i in range(5)]  # fmt: skip
    plain = dict.fromkeys((*programs._MODULE, *programs._NUMBERS))
    rows = programs.no_sketches(5)
    rows[:] = np.arange(5).reshape(-1, *[1] * (rows.ndim - 1))

    def described(source: Any) -> Any:
        names = {"module_name": f"m{source.i}", "module_id": source.i, "platform": "tpu", "program_fp": str(source.i),
                 "interface_fp": "i", "content_hash": str(source.i), "id": str(source.i)}  # fmt: skip
        fields = ProgramEntry.__dataclass_fields__
        return {k: v for k, v in {**plain, **names}.items() if k in fields}, rows[source.i]

    monkeypatch.setattr(programs, "CHUNK_BYTES", 1)
    monkeypatch.setattr(programs, "_read", lambda s: iter([(s, ValueError("bad") if s.i == 1 else described(s))]))
    monkeypatch.setattr(programs, "unreadable", lambda row, key, uri, problem: ProgramEntry(
        row=row, id=key, uri=uri, problem=problem, readable=False))  # fmt: skip
    monkeypatch.setattr(programs, "loaded_id", lambda origin: f"id{origin.i}")
    monkeypatch.setattr(programs, "read", lambda source: source.i)
    found = programs.FilePrograms(sources)
    own = [p.row for p in found.programs]
    assert sorted(own) == [*range(5)]
    assert [p.uri for p in found.programs] == [f"u{row}" for row in own]
    assert [found.read(n) for n in range(5)] == own
    numbers = [n for n in (3, 1, 4, 0, 2) if own[n] != 1]
    assert [int(s.ravel()[0]) for s in found.sketches(numbers)] == [own[n] for n in numbers]


def test_as_many_equal_programs_are_paired_in_order() -> None:
    """Before uneven ones, whose best pairs are searched for."""
    made: Any = Pairing.__new__(Pairing)
    made.a = [SimpleNamespace(key=("fp", k)) for k in "xyxz"]
    made.b = [SimpleNamespace(key=(k, "q")) for k in "abcde"]
    for j, k in enumerate("yxxzz"):
        made.b[j].key = ("fp", k)
    asked: list[Any] = []
    made.pairs, made._add_same = {}, lambda i, j: asked.append((i, j))
    made._best = lambda i, j, score: asked.append("best") or zip(i.tolist(), j.tolist(), score, strict=True)
    made._pair_same()
    at = asked.index("best")
    assert sorted(asked[:at]) == [(0, 1), (1, 0), (2, 2)]
    assert asked[at + 1 :] == [(3, 3), (3, 4)]


def test_values_that_are_thread_local_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer whose value is thread-local on the other side is gone or new; one in another space has moved."""
    monkeypatch.setattr(account, "_space_names", lambda a, b: [np.array(["x", "y"])] * 2)
    monkeypatch.setattr(account, "_matching", lambda p, main, match: match[main])
    here = SimpleNamespace(space=array(0, 0, 0, 0, 0), size=array(8, 8, 8, 8, 8))
    categories = array(1, account.THREAD_LOCAL, 1, 1)
    there = SimpleNamespace(space=array(0, 0, 0, 1), size=array(8, 8, 8, 8), value_category=categories)
    m: Any = SimpleNamespace(a=here, b=there, value=array(0, 1, 2, 3, -1), value_of_b=None)
    buffers: Any = SimpleNamespace(of_value=array(-1, -1, 5, 6))
    causes, value = account._single_causes(m, np.arange(5), buffers, gone=True)
    names = ("SHORTER", "GONE", "SHARING", "MOVED", "GONE")
    assert causes.tolist() == [getattr(account, name) for name in names]
    assert value.tolist() == [0, 1, 2, 3, -1]
    here.space = array(1, 0, 0, 1, 1)
    assert account._single_causes(m, np.arange(5), buffers, gone=True)[0].tolist() == [
        getattr(account, name) for name in ("MOVED", "GONE", "SHARING", "SHARING", "GONE")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("size_a", "size_b", "cause"),
    [(8, 4, "MOVED"), (8, 3, "GONE"), (4, 8, "MOVED"), (3, 8, "GONE"), (0, 0, "MOVED"), (8, 0, "GONE")],
)
def test_a_much_smaller_value_in_another_space_is_another_one(
    size_a: int, size_b: int, cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of 4 GiB that is computed in chunks has not moved to a VMEM of 112 MiB."""
    monkeypatch.setattr(account, "_space_names", lambda a, b: [np.array(["hbm"]), np.array(["vmem"])])
    monkeypatch.setattr(account, "_matching", lambda p, main, match: match[main])
    a, b = (SimpleNamespace(space=array(0), size=array(n), value_category=array(1)) for n in (size_a, size_b))
    m: Any = SimpleNamespace(a=a, b=b, value=array(0), value_of_b=array(0))
    buffers: Any = SimpleNamespace(of_value=array(-1))
    assert account._single_causes(m, np.arange(1), buffers, gone=True)[0].tolist() == [getattr(account, cause)]
    assert account._single_causes(m, np.arange(1), buffers, gone=False)[0].tolist() == [
        getattr(account, cause if cause == "MOVED" else "NEW")
    ]  # fmt: skip


def test_names_of_what_copies_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy with a name of its own, even the first one, keeps that."""
    asked: list[Any] = []
    columns = {"op_name": pa.array(["jit(f)/x", None]).dictionary_encode()}
    monkeypatch.setattr(graph, "has_opcode", lambda p, rows, _: rows != 2)
    monkeypatch.setattr(graph, "source_columns", lambda p, values: asked.append(values.tolist()) or columns)
    g: Any = graph.Graph.__new__(graph.Graph)
    g.__dict__.update(p=None, row=array(0, 1, 2, 3), n=4, first_value=array(5, 6, 7, 8))
    g.text = lambda _: graph.Texts(array(0, -1, -1, -1), pa.array(["own"]))
    codes, texts = g.moved_names
    assert asked == [[6, 8]]
    assert codes.tolist() == [-1, 0, -1, -1]
    assert texts.to_pylist() == graph.plain_names(pa.array(["jit(f)/x"])).to_pylist()


def test_opcodes_of_nodes_without_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name without its number; never the opcode of another node."""
    g: Any = graph.Graph.__new__(graph.Graph)
    g.__dict__.update(_names=pa.array(["add.1", "fusion.7", "dot.2", "copy"]), code=array(0, 1, 2, 3))
    g.text = lambda _: graph.Texts(array(0, -1, 1, -1), pa.array(["add", "dot"]))
    codes, texts = g.opcodes
    assert [texts[c].as_py() for c in codes.tolist()] == ["add", "fusion", "dot", "copy"]


@pytest.mark.parametrize(
    ("name", "is_date"),
    [("2026-01-12", True), ("2026-01-12T10:00", True), ("2026-01-123", False), ("20260112", True), ("202601123", False),
     ("2026-1-12", False), ("x2026-01-12", False)],
)  # fmt: skip
def test_names_that_are_dates(name: str, is_date: bool) -> None:
    assert bool(points._DATE.fullmatch(name)) is is_date


def test_accounts_without_a_step() -> None:
    """The step of a peak is null on each side that has none."""

    def one(name: str, *steps: int) -> Any:
        return SimpleNamespace(account=SimpleNamespace(name=name), reserved=(1, 2), peak=(3, 4), peak_step=steps,
                               step=(5, 6), in_use=(7, 8), moved=9)  # fmt: skip

    found = difference._account_table([one("a", -1, 0), one("b", 0, -1), one("c", 3, 4)]).to_pylist()
    assert [(r["account"], r["peak_step_a"], r["peak_step_b"]) for r in found] == [
        ("a", None, 0), ("b", 0, None), ("c", 3, 4),
    ]  # fmt: skip
    names = ("reserved", "peak", "step", "in_use")
    assert [found[0][f"{name}_{side}"] for name in names for side in "ab"] == [*range(1, 9)]
    assert found[0]["moved"] == 9


@pytest.mark.parametrize(("steps_a", "steps_b", "timed"), [(5, 5, True), (None, 5, False), (5, None, False)])
def test_programs_without_steps(
    steps_a: int | None, steps_b: int | None, timed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If one side has none, neither side's count."""
    sides = [SimpleNamespace(steps=s, tables=i, name=i) for i, s in enumerate((steps_a, steps_b))]
    monkeypatch.setattr(difference, "_read", lambda side: side)
    monkeypatch.setattr(difference, "_doubt", lambda a, b: "")
    monkeypatch.setattr(difference, "Program", lambda tables, timed: (tables, timed))

    def stop(a: Any, b: Any) -> None:
        raise StopIteration([a, b])

    monkeypatch.setattr(difference, "Matching", stop)
    run: Any = difference.diff
    with pytest.raises(StopIteration) as e:
        run(*sides)
    assert e.value.value == (sides if timed else [(0, False), (1, False)])


def test_pairs_of_shapes_in_order() -> None:
    """That of the first row with each pair."""
    chance = random.Random(3)
    for _ in range(40):
        a, b = ([chance.choice(["f32[9]", "f32[1]", "f32[5]", None]) for _ in range(8)] for _ in "ab")
        found = ShapePairs(pa.array(a, pa.string()), pa.array(b, pa.string()), np.ones(8, np.int64)).changed()
        rows = {}
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if x and y and x != y:
                rows.setdefault((x, y), i)
        numbers = [((x.dimensions[0], y.dimensions[0]), i) for (x, y), i in found.items()]
        assert numbers == [((int(x[4]), int(y[4])), i) for (x, y), i in rows.items()]


def test_bytes_of_folded_paths() -> None:
    """Whatever the sign is, of all layers together."""
    rows: Any = Differences.__new__(Differences)
    names = pa.array(["jit(f)/layers_0/dot", "jit(f)/layers_1/dot", "jit(g)/layers_1/dot", "jit(f)/x"])
    rows.__dict__.update(change=array(5, -7, 9, 1, 2, 50), text=lambda _: (array(0, 1, 2, 3, 0, -1), names))
    assert rows.bytes_of_paths() == {"layers_*/dot": 23, "x": 1}


@pytest.mark.parametrize("side", [0, 1])
def test_buffers_of_donated_arguments(side: int) -> None:
    """Of the buffers that only one side has, those in the argument are explained."""
    p = SimpleNamespace(owner=array(4, 5, 6), allocation_size=array(0, 0, 0, 0, 1, 2, 3))
    own = SimpleNamespace(allocation=array(4, 5), names=pa.array(["x", "y"]))
    rows = SimpleNamespace(value=(array(0, 1, 2, 0), array(0, 1, 2, 0)), only_in_a=np.array([1, 1, 1, 0], bool),
                           only_in_b=np.array([1, 1, 1, 0], bool))  # fmt: skip
    c: Any = SimpleNamespace(m=SimpleNamespace(a=p, b=p), interface=SimpleNamespace(a=own, b=own), rows=rows)
    (found,) = program_edits._donation(c, side, array(0), array(0), "donated", "interface")
    assert (found.text, found.claims.tolist()) == ("1 argument is donated: x", [True, False, False, False])
    assert [*program_edits._donation(c, side, array(), array(), "donated", "interface")] == []


def test_contents_without_fingerprints_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are equal if both fingerprints are."""
    ids = ["a", "b", "c", "d", "e", "f", "a"]
    stored = {"content_id": ["f", "e", "d", "c", "b", "a"], "program_fp": ["1", None, None, "1", "1", "1"],
              "interface_fp": ["i", None, "i", "j", "i", "i"]}  # fmt: skip
    columns = {name: stored.get(name, [None] * 6) for name in ("content_id", *points._MODULE)}
    modules = SimpleNamespace(to_table=lambda **_: pa.table({k: pa.array(v, pa.string()) for k, v in columns.items()}))
    numbers = {name: pa.array([1] * 6, pa.int64()) for name in ("device_total", "peak")}
    monkeypatch.setattr(points, "stored_numbers", lambda dataset, ids: numbers)
    monkeypatch.setattr(points, "stored_doubts", lambda dataset, columns: pa.nulls(6, pa.string()))
    monkeypatch.setattr(points, "known_numbers", lambda columns, numbers, doubts: dict(numbers))
    monkeypatch.setattr(points, "_with_problems", lambda dataset, table, occurrences, content: table)
    dataset: Any = {"modules": modules}
    found, content = points._contents(dataset, pa.table({"content_id": ids}))
    assert content.tolist() == [0, 1, 2, 3, 4, 5, 0]
    assert found.has_fingerprints.tolist() == [True, True, True, False, False, True]
    key = found.key.tolist()
    assert [key[i] == key[0] for i in range(6)] == [True, True, False, False, False, True]
    assert len({*key}) == 4


@pytest.mark.parametrize(
    ("a", "b", "pairs", "alone"),
    [("x", "y", {}, {"i"}), ("xz", "yw", {0: None}, {"i"}), ("xx", "yw", {0: None}, set()), ("xy", "yy", {0: None},
        {"i"}), ("xz", "yx", {0: None}, set()), ("xzz", "ywv", {0: None}, set())],
)  # fmt: skip
def test_interfaces_that_are_alone(a: str, b: str, pairs: Any, alone: set[str]) -> None:
    """Of one program on each side, if no program that is equal to one of them has a partner."""
    made: Any = Pairing.__new__(Pairing)
    made.a, made.b = ([SimpleNamespace(key=k, interface_fp="i", platform="tpu") for k in side] for side in (a, b))
    made.pairs, made.taken = pairs, {*pairs}
    asked: list[Any] = []
    made._groups_left = lambda key, spare: {
        "i": ([i for i in range(len(a)) if i not in pairs], [j for j in range(len(b)) if j not in pairs])
    }
    made._pair_groups = lambda left, alone, *_: asked.append(alone)
    made._pair_interfaces()
    assert asked == [alone]


def test_groups_need_a_key() -> None:
    none: Any = None
    for by in ((), [], ("nothing",), ("buffer", "nothing")):
        with pytest.raises(UsageError, match=r"^cannot group by nothing"):
            groups.numbered_groups(none, by)


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ([("f32[4]", "f32[8]")], "shape"), ([("f32[4]", "bf16[4]")], "element type"),
        ([("f32[4]", "bf16[4]"), ("f32[2]", "f32[3]")], "shape"), ([("f32[4]", "bf16[8]")], "shape"),
    ],
)  # fmt: skip
def test_outputs_with_another_shape(pairs: list[tuple[str, str]], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = zip(*pairs, strict=True)
    n = np.arange(len(pairs))
    monkeypatch.setattr(program_edits, "caller_shapes", lambda p, rows: pa.array(p.shapes, pa.string()))
    sides = [SimpleNamespace(shapes=list(shapes), size=np.ones(len(n), np.int64)) for shapes in (a, b)]
    rows = SimpleNamespace(value=(None, np.append(n, -1)))
    c: Any = SimpleNamespace(m=SimpleNamespace(a=sides[0], b=sides[1]), rows=rows,
                             interface=SimpleNamespace(resized_outputs=(n, n)))  # fmt: skip
    (found,) = program_edits.resized_outputs(c)
    assert text in found.text
    assert ("element type" in found.text) is (text == "element type")
    assert found.claims.tolist() == [True] * len(n) + [False]


@pytest.mark.parametrize("step", [0, 2, 4])
def test_values_that_borrow_an_output(step: int) -> None:
    """They belong to its buffer while they are live; the value that represents it always does."""
    p: Any = SimpleNamespace(
        steps=5, owner=array(0, 0, 0, 1), allocation_ids=array(0, 1), space_of_allocation=array(0, 0),
        category=array(1, 1), is_fixed=np.ones(2, bool), representative=array(1, 3), allocation_size=array(8, 8),
        data_extent=lambda rows: np.full(len(rows), 5), in_temp=np.zeros(4, bool), extent=np.full(4, 8),
        occupied_ranges=lambda: (array(2, 3, 0, 0), array(3, 3, 4, 4)), value_category=np.full(4, 99),
        categories_of=lambda rows: array(account.TEMP_IN_OUTPUT, account.TEMP_IN_OUTPUT, 99, 99)[rows],
        is_output=lambda rows: rows < 0, offset=np.zeros(4, np.int64),
    )  # fmt: skip
    found = account.buffers_at(p, np.array([True]), step)
    assert found.of_value.tolist() == [0 if step == 2 else -1, 0, 0, 1]
    assert (found.main.tolist(), found.owner.tolist()) == ([1, 3], [0, 1])


@pytest.mark.parametrize(
    ("before", "now", "known"), [(True, True, 3), (True, False, 1), (False, False, 3), (False, True, 3)]
)
def test_the_last_row_with_fingerprints(before: bool, now: bool, known: int) -> None:
    own: Any = Following.__new__(Following)
    contents = SimpleNamespace(has_fingerprints=np.array([before, now]))
    own.points = SimpleNamespace(content=array(9, 0, 9, 1), contents=contents)
    own.program, own._last, own._known = array(9, 0, 9, 0), array(1), array(1)
    own._advance(array(3))
    assert (own._last.tolist(), own._known.tolist()) == ([3], [known])


def test_values_of_copies_that_one_side_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of what they copy, through a few copies; a value in use on both sides is not looked for."""
    operand = array(1, 2, -1, -1, 2, 2, 7, 8, 9, 10, 11, -1)
    monkeypatch.setattr(account, "has_opcode", lambda p, rows, _: np.isin(rows, [0, 1, 5, 6, 7, 8, 9, 10]))
    monkeypatch.setattr(account, "operands_of", lambda p, values, k: np.where(k == 0, operand[values], -1))
    p: Any = SimpleNamespace(instruction_row=np.arange(12))
    match = array(-1, -1, 3, -1, -1, 0, -1, -1, -1, -1, -1, 20)
    # 0 copies 1, which copies 2; 3 and 4 are no copies; 5 has a match; from 7, there are four copies, and from 6, five.
    main = array(0, 3, 4, -1, 5, 6, 7, 2)
    assert account._matching(p, main, match).tolist() == [3, -1, -1, -1, 0, -1, 20, 3]
    assert account._matching(p, array(), match).tolist() == []


def test_names_of_buffers_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the value of B, if it has the buffer; only what is used is asked for."""
    asked: dict[str, list[int]] = {}

    def names_of(p: str, values: Any) -> dict[str, pa.Array]:
        asked[p] = values.tolist()
        return {n: pa.array([f"{n} {p}{v}" if v >= 0 else None for v in asked[p]]) for n in contributors.NAMES}

    monkeypatch.setattr(contributors, "buffer_names", names_of)
    m: Any = SimpleNamespace(a="a", b="b")
    in_b = np.array([True, False, True, False, True, False])
    found = contributors._common_names(m, array(0, 0, 0, -1, -1, 5), array(0, 0, -1, 0, -1, -1), in_b)
    assert found["layer"].to_pylist() == ["layer b0", "layer a0", "layer a0", "layer b0", None, "layer a5"]
    assert asked == {"a": [-1, 0, 0, -1, -1, 5], "b": [0, -1, -1, 0, -1, -1]}
    assert [*found] == [*contributors.NAMES]


def test_sides_of_buffers_that_differ() -> None:
    """A value that is not in use matches one that is; the space is that of B, if it has the buffer."""
    c: Any = SimpleNamespace(
        value_a=array(0, -1, -1, 4, -1), owner_a=array(0, -1, -1, 1, -1), value_b=array(-1, 0, 7, 5, -1),
        owner_b=array(-1, 0, 1, 0, -1), other=array(6, 0, -1, 9, 0),
    )  # fmt: skip
    rows = array(0, 1, 2, 3, 4)
    assert [x.tolist() for x in contributors._values(c, rows)] == [[0, 0, -1, 4, 0], [6, 0, 7, 5, 0]]
    assert [x.tolist() for x in contributors._values(c, rows[2:4])] == [[-1, 4], [7, 5]]
    a, b = spaces_of("tpu", ("hbm", 0, 0), ("vmem", 0, 1)), spaces_of("gpu", ("gpu", 0, 0), ("host", 0, 5))
    a.space_of_allocation, b.space_of_allocation = array(1, 0), array(1, 0)
    m: Any = SimpleNamespace(a=a, b=b)
    assert contributors._spaces(m, c, rows).to_pylist() == ["vmem", "host", "gpu", "host", None]
    assert contributors._spaces(m, c, array(2, 0)).to_pylist() == ["gpu", "vmem"]


def test_categories_of_buffers_that_differ() -> None:
    """That of the value, or else of the allocation."""
    p: Any = SimpleNamespace(category=array(DONATED, TEMP), categories_of=lambda rows: array(LIVE_OUT, 5)[rows])
    found = contributors._categories(p, array(0, -1, -1, 1, -1), array(1, 0, 1, 0, -1)).to_pylist()
    assert found == ["live_out", "donated", "temp", CATEGORIES[5], None]


def test_values_of_rows_that_differ() -> None:
    """Null is none, 0 is a value."""
    sides = [SimpleNamespace(row_of_value=lambda ids, k=k: ids + k) for k in (10, 20)]
    own: Any = Differences.__new__(Differences)
    own.m = SimpleNamespace(a=sides[0], b=sides[1])
    own.table = pa.table({"value_id_a": [0, None, 3], "value_id_b": [None, 0, 4]})
    assert [x.tolist() for x in own.value] == [[10, -1, 13], [-1, 20, 24]]


class _Arguments(SimpleNamespace):
    """Entry arguments with names and shapes, written as `x:1 y:2`; the value of the k-th one is k."""

    def __init__(self, text: str, *without_value: int) -> None:
        names, shapes = zip(*(word.split(":") for word in text.split()), strict=True)
        n = np.arange(len(names))
        value = np.where(np.isin(n, without_value), -1, n)
        super().__init__(allocation=n, value=value, names=pa.array(names), shapes=pa.array(shapes))


@pytest.mark.parametrize(
    ("a", "b", "value", "partner"),
    [
        ("x:1 y:1", "y:1 x:1", [-1, -1], [1, 0]),  # by name
        ("x:1 y:1", "y:1 x:1", [0, 1], [0, 1]),  # because the values match
        ("p.x:1", "p.u:2", [0], [0]),
        ("x:1 y:1", "u:1 v:1 w:1", [-1, -1], [0, 1]),  # by what follows the variable: nothing
        ("p.mu:1 p.nu:1", "q.nu:1 q.mu:1", [-1, -1], [1, 0]),
        ("p.x:1 p.y:2", "p.u:2 p.v:1", [-1, -1], [1, 0]),  # as many of each shape, under another name
        ("p.x:1 p.y:2", "p.u:2 p.v:1", [0, 1], [1, 0]),  # although values match that have other shapes
        ("p.x:1 p.y:1", "p.u:1 p.v:1", [-1, -1], [0, 1]),
        ("p.x:1 p.y:1", "p.u:1 p.v:1 p.w:1", [-1, -1], [-1, -1]),
        ("p.x:1 p.y:1 p.z:2", "p.u:1 p.v:2", [-1, -1, -1], [-1, -1, 1]),
        ("p.x:1 p.y:2", "p.x:2 p.y:2", [-1, -1], [-1, 1]),
        ("x:1", "u:2", [-1], [-1]),
    ],
)
def test_arguments_with_a_partner(
    a: str, b: str, value: list[int], partner: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By value, then by name, then by shape if both sides have as many of it."""
    sides = {"a": _Arguments(a), "b": _Arguments(b)}
    monkeypatch.setattr(interface, "arguments", lambda p: sides[p.name])
    m: Any = SimpleNamespace(
        a=SimpleNamespace(name="a"), b=SimpleNamespace(name="b", owner=np.arange(3)), value=array(*value)
    )
    assert interface.Interface(m).partner.tolist() == partner


def test_arguments_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no partner by value."""
    sides = {"a": _Arguments("p.x:1 p.y:2", 1), "b": _Arguments("p.u:3 p.v:4", 0)}
    monkeypatch.setattr(interface, "arguments", lambda p: sides[p.name])
    m: Any = SimpleNamespace(
        a=SimpleNamespace(name="a"), b=SimpleNamespace(name="b", owner=np.arange(3)), value=array(1, 1, 1)
    )
    assert interface.Interface(m).partner.tolist() == [1, -1]
    m.value = array(2, 2, 2)
    assert interface.Interface(m).partner.tolist() == [-1, -1]
