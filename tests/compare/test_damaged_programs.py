"""Rules of `diff` on texts that are damaged, or that other front ends print."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import argument_edits, edits, gather_edits, gathers, program_edits, shape_edits
from xlamem.compare.context import Context, Edit
from xlamem.compare.rows import Shape, parsed

GROUPS = "dimensions={0}, replica_groups={{0,1,2,3}}"


@pytest.mark.parametrize(
    ("opcode", "shape", "attributes", "whole"),
    [
        ("all-gather", "f32[8,5]{1,0}", GROUPS, (8, 5)),
        ("all-gather-start", "(f32[2,5]{1,0}, f32[8,5]{1,0})", GROUPS, (8, 5)),
        # Several arrays that the compiler has combined have one op_name.
        ("all-gather", "(f32[8,5]{1,0}, f32[8,6]{1,0})", GROUPS, None),
        ("all-gather-start", "((f32[2,5], f32[2,6]), (f32[8,5], f32[8,6]))", GROUPS, None),
        ("all-gather-start", "((f32[2,5]), (f32[8,5]))", GROUPS, None),
        ("all-gather", "f32[8,5]{1,0}", GROUPS.replace("{0}", "{2}"), None),
        ("all-gather", "f32[8,5]{1,0}", GROUPS.replace("{0}", f"{{{'9' * 5000}}}"), None),
        ("all-gather", f"f32[{'8' * 5000},5]", GROUPS, None),
    ],
)  # fmt: skip
def test_what_an_all_gather_makes_whole(opcode: str, shape: str, attributes: str, whole: Any) -> None:
    found = gathers._gather("GPT/head", opcode, shape, attributes)
    assert (found and found.whole.dimensions) == whole
    assert found is None or (found.part.dimensions, found.devices, found.path) == ((2, 5), 4, "GPT/head")


def test_dimensions_that_no_array_has() -> None:
    assert parsed(f"f32[{'9' * 18},2]") == Shape("f32", (10**18 - 1, 2))
    assert parsed(f"f32[2,{'9' * 19}]") is None
    assert parsed(f"f32[{'9' * 5000}]") is None


def test_numbers_of_elements_that_exceed_64_bits() -> None:
    shapes = ["f32[3037000500,3037000500]", "f32[3,4]", "f32[9223372036854775807]", "(f32[2])", None]
    rows: Any = SimpleNamespace(text=lambda column: (np.arange(5), pa.array(shapes, pa.string())))
    found = gather_edits._elements(SimpleNamespace(rows=rows), 0, {(7,)})  # type: ignore[arg-type]
    assert found.tolist() == [-1, 12, -1, -1, -1]
    assert gather_edits._number((1 << 62, 2)) == -1
    assert gather_edits._number((1 << 62, 1)) == 1 << 62


@pytest.mark.parametrize(
    ("name", "known", "wanted"),
    [
        ("params['x[0]']['w']", ["params['y']"], "params['x[0]']"),
        ("params['a.b'].c", ["params['b']"], "params['a.b']"),
        ("state.ema['w']", ["state.params['w']"], "state.ema"), ("state['w']", ["x"], "state"),
        ("['']['w']", ["['x']"], "['']"), ("", ["x"], ""), ("a['b", ["x"], "a"), ("a['b", ["a.c"], "a['b"),
        ("a" + "[0]" * 40, ["a" + "[0]" * 39 + "[1]"], "a" + "[0]" * 40),
        ("opt.mu", ["optimizer.nu"], "opt"), ("opt.mu", ["opt"], "opt.mu"),
    ],
)  # fmt: skip
def test_what_names_of_arguments_begin_with(name: str, known: list[str], wanted: str) -> None:
    assert argument_edits._shortest(name, sorted(known)) == wanted


def test_arguments_are_in_no_group_with_any_other() -> None:
    """Names of one component have nothing around them in common."""
    names = pa.array(["x", "opt.mu", "y", "opt.nu", "opt.step"])
    found = argument_edits._in_groups(names, np.array([2, 3]), np.array([0, 1]), pa.array(["opt.step"]))
    assert found.tolist() == [False, True]


def test_a_call_of_an_unknown_function() -> None:
    """Its line is what is known then."""
    frames = pa.table({"id": [1, 2], "parent": [0, 1], "line": [8, 9], "function": pa.nulls(2, pa.string()),
                       "file": ["/m/model.py"] * 2})  # fmt: skip
    names: Any = SimpleNamespace(frames=np.array([2, 2]), instructions=lambda pattern: np.array([0, 1]))
    p: Any = SimpleNamespace(tables={"frames": frames})
    assert program_edits._call(p, names, ("model.py", None), "model.py:8") == "model.py:8"


def test_only_calls_that_are_listed_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(program_edits, "_call", lambda p, names, caller, line: asked.append(caller) or f"! {line}")
    callers: list[Any] = [("m.py", f"f{i}") for i in range(9)]
    found = program_edits._calls(None, None, callers, {c: c[1] for c in callers})  # type: ignore[arg-type]
    assert found == ["! f0", "! f1", "! f2", *(f"f{i}" for i in range(3, 9))]
    assert len(asked) == 3


def test_loops_of_a_dump_without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not known, not gone."""
    empty: Any = SimpleNamespace(tables={"instructions": pa.table({"op_name": pa.array([], pa.string())})})
    assert shape_edits._trip_counts_in_model(empty) is None
    for counts in ((None, [4]), ([4], None), (None, None)):
        monkeypatch.setattr(shape_edits, "_trip_counts_in_model", lambda p, counts=counts: counts[p])
        c: Any = SimpleNamespace(m=SimpleNamespace(a=0, b=1))
        assert not [*shape_edits.loops(c)]


@pytest.mark.parametrize("known", [True, False])
def test_names_of_a_dump_without_instructions(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found in names may be there: the dump lacks the used values."""
    found = [Edit("operations", f"found in {e}", np.array([e == "names", True]), e) for e in ("names", "buffers")]
    monkeypatch.setattr(edits, "RULES", (lambda c: iter(found),))
    monkeypatch.setattr(edits, "RULES_OF_REST", ())
    monkeypatch.setattr(edits, "Context", lambda m, rows: SimpleNamespace(has_names=known, other_chip=None))
    rows: Any = SimpleNamespace(n=2)
    made, explained = edits.find_edits(None, rows)  # type: ignore[arg-type]
    assert [e.evidence for e in made] == (["names"] if known else []) + ["buffers"]
    assert explained.tolist() == ([0, 0] if known else [-1, 0])


@pytest.mark.parametrize(
    ("rows", "has_hlo", "known"),
    [((5, 5), False, True), ((5, 0), False, False), ((0, 5), False, False), ((5, 0), True, True)],
)
def test_whether_names_are_known(rows: Any, has_hlo: bool, known: bool) -> None:
    a, b = (SimpleNamespace(tables={"instructions": SimpleNamespace(num_rows=n)}) for n in rows)
    c: Any = SimpleNamespace(has_hlo=has_hlo, m=SimpleNamespace(a=a, b=b))
    assert Context.has_names.func(c) is known  # type: ignore[attr-defined]


def test_collectives_of_a_dump_without_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = SimpleNamespace(differ=lambda other: True, counts={"all-gather": 5}), SimpleNamespace(counts={})
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: sides)
    c: Any = SimpleNamespace(has_names=False)
    assert not [*shape_edits._resharded_buffers(c)]


N = 100_000


def test_a_long_name_takes_no_quadratic_time() -> None:
    """Each of these took minutes."""
    assert program_edits._by_pass(Counter(["a" * N])) == ({}, Counter(["a" * N]))
    assert argument_edits._around("[" * 2 * N) == ""
    assert gathers._gather("GPT/head", "all-gather", "f" * N, GROUPS) is None


@pytest.mark.parametrize(
    ("path", "inner", "around"),
    [
        ("jit(f)/transpose(jvp(Block_1))/checkpoint/rematted_computation/mlp/dot_general", "mlp/dot_general",
         "jvp(Block_1)"),
        ("jit(f)/jvp(rematted_computation)/sin", "sin", ""), ("rematted_computation/sin", "sin", ""),
        ("a/rematted_computation/b/checkpoint/rematted_computation/sin", "sin", "b"),
        ("a//rematted_computation/sin", "sin", ""),
    ],
)  # fmt: skip
def test_what_is_around_a_checkpoint(path: str, inner: str, around: str) -> None:
    assert program_edits._by_pass(Counter([path])) == ({inner: {around}}, Counter())
