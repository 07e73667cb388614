"""Rules of a comparison on the smallest inputs that tell them apart."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import Members, record, value
from conftest import DUMPS

import xlamem
from xlamem.compare import edits
from xlamem.compare.compiler import formats_exclude_each_other
from xlamem.compare.context import Context, Edit
from xlamem.compare.groups import difference_groups
from xlamem.compare.interface import Interface
from xlamem.compare.rows import Differences
from xlamem.compare.series import Series, _Rows, grew
from xlamem.compare.verdict import ranked_edits, source


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (set(), set(), False),
        ({"live_split", "report_a"}, {"report_a"}, False),
        ({"report_a"}, {"report_a", "live_split"}, False),
        ({"report_a", "live_split"}, {"report_a", "live_split"}, False),
        ({"report_a"}, {"report_b"}, True),
        ({"peak_a", "values_split"}, {"peak_a", "values_inline"}, True),
        ({"other"}, {"another"}, False),
    ],
)
def test_formats_of_different_compilers(a: set[str], b: set[str], wanted: bool) -> None:
    """A section that only one dump has says nothing about the compilers."""
    assert formats_exclude_each_other(a, b) is wanted


def test_a_scope_is_not_the_beginning_of_another() -> None:
    names = pa.array(["jit(f)/mlp/dot", "jit(f)/mlp_norm/mul", "jit(f)/mlp/w/add", "jit(f)/x/mlp/add", "jit(f)/mlp"])
    rows: Any = SimpleNamespace(text=lambda _: (pa.array([0, 1, 2, 3, 4, -1]).to_numpy(), names))
    assert Differences.in_scopes(rows, ["mlp"]).tolist() == [True, False, True, False, True, False]
    assert Differences.in_scopes(rows, []).tolist() == [False] * 6


def test_an_edit_within_another_is_stated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan over more layers names its dimension, which is an edit of its own only if it explains other buffers."""
    loops, dimension = "a dimension of 6 is 8 now; loops run 8 iterations instead of 6", "a dimension of 6 is 8 now"

    def found(*claims: list[bool]) -> list[str]:
        texts = zip((loops, dimension), claims, strict=True)
        made = [Edit("loops", text, np.array(claimed), "names") for text, claimed in texts]
        monkeypatch.setattr(edits, "RULES", (lambda _: iter(made),))
        monkeypatch.setattr(edits, "RULES_OF_REST", ())
        monkeypatch.setattr(edits, "Context", lambda *_: SimpleNamespace(has_names=True))
        matching: Any = None
        rows: Any = SimpleNamespace(n=2)
        return [edit.text for edit in edits.find_edits(matching, rows)[0]]

    assert found([True, False], [True, False]) == [loops]
    assert found([True, False], [True, True]) == [loops, dimension]


def test_programs_that_grew() -> None:
    """An unknown peak does not hide that more must fit."""
    columns = {
        "device_total_first": [1, 1, 2, None, None, 1], "device_total_last": [2, 1, 1, 2, None, None],
        "peak_first": [None, None, 1, 1, None, 1], "peak_last": [None, 7, 2, 2, None, 1],
    }  # fmt: skip
    assert grew(pa.table(columns)).to_pylist() == [True, False, True, True, False, False]


@pytest.mark.parametrize(
    ("numbers", "changes", "known"),
    [([5, 6, 9], [0, 1, 3], "-++"), ([5, -1, 9], [0, 0, 0], "---"), ([5, 6, -1], [0, 1, 0], "-+-"),
     ([0, 6, 0], [0, 6, -6], "-++")],
)
def test_changes_between_known_numbers(numbers: list[int], changes: list[int], known: str) -> None:
    """The peak may be unknown at a point at which it is known what must fit."""
    rows: Any = SimpleNamespace(before=np.array([-1, 0, 1]))
    found, is_known = _Rows.change(rows, np.array(numbers))
    assert found.tolist() == changes
    assert is_known.tolist() == [mark == "+" for mark in known]


@pytest.mark.parametrize(("unknown", "is_known"), [([], True), ([1], True), ([0], False), ([2], False)])
@pytest.mark.parametrize("number", ["device_total", "peak"])
def test_the_first_and_the_last_point_must_be_known(number: str, unknown: list[int], is_known: bool) -> None:
    numbers: dict[str, Any] = {"program": [0] * 3, "ordinal": [0, 1, 2], "device_total": [8] * 3, "peak": [4] * 3}
    numbers[number] = [None if i in unknown else 8 for i in range(3)]
    none: Any = None
    assert Series("commit", ("a", "b", "c"), none, pa.table(numbers), none, none).is_known is is_known


def test_the_largest_buffer_stands_for_a_group(make: Callable[..., Path]) -> None:
    """Also if its buffers shrank or are gone."""
    shapes = {1: ("f32[16]", 64), 2: ("f32[64]", 256), 3: ("f32[32]", 128)}
    dumps = []
    for ids in ((1, 2, 3), ()):
        values = [value(9, "z", 8, 2000, "f32[2]")]
        records = [record(9, "z", "f32[2] add(%p)")]
        for i in ids:
            text, size = shapes[i]
            values.append(value(i, f"v{i}", size, 300 * i, text))
            op_name = f'metadata={{op_name="jit(f)/layer/op{i}"}}'
            records.append(record(i, f"v{i}", f"{text} add(%p, %p), {op_name}"))
        ranges = ["z{}:0-9", *(f"v{i}{{}}:2-4" for i in ids)]
        members = attacks.dump(values, records=records, ranges=ranges, size=2048, steps=10)
        dumps.append(xlamem.read(make(members)))
    for a, b in (dumps, dumps[::-1]):
        groups = difference_groups(xlamem.diff(a, b), "scope").to_pylist()
        (layer,) = [g for g in groups if g["scope"] == "layer"]
        assert (layer["n"], layer["shape_a"] or layer["shape_b"]) == (3, "f32[64]")


def add(path: str, shape: str = "f32[16]") -> str:
    return f'{shape} add(%p, %p), metadata={{op_name="jit(f)/{path}"}}'


def with_op_names(paths: list[str]) -> dict[str, bytes]:
    """A program with an instruction for each op_name."""
    values = [value(i, f"v{i}", 64, 64 * i, "f32[16]") for i in range(len(paths))]
    records = [record(i, f"v{i}", add(path)) for i, path in enumerate(paths)]
    return attacks.dump(values, records=records, ranges=[f"v{i}{{}}:0-3" for i in range(len(paths))])


def texts(a: xlamem.Dump, b: xlamem.Dump, kind: str) -> list[str]:
    return [r["text"] for r in xlamem.diff(a, b).edits.to_pylist() if r["kind"] == kind]


def recomputations(a: xlamem.Dump, b: xlamem.Dump) -> list[str]:
    return texts(a, b, "rematerialization")


def test_another_set_of_recomputed_operations(make: Callable[..., Path]) -> None:
    """A policy of `jax.checkpoint` may change few instructions. An operation that is new in the model is none."""
    forward = ["mul", "tanh", "dot_general", "exp", *(f"layer_{i}/sin" for i in range(9))]
    always = [f"layer_{i}/sin" for i in range(9)]

    def program(recomputed: list[str], *others: str) -> xlamem.Dump:
        paths = [f"jvp()/{path}" for path in (*forward, *others)]
        paths += [f"transpose(jvp())/checkpoint/rematted_computation/{path}" for path in (*always, *recomputed)]
        return xlamem.read(make(with_op_names(paths)))

    edits = recomputations
    few, more, moves = program(["mul"]), program(["mul", "dot_general"]), program(["mul", "convert_element_type"])
    assert edits(few, more) == ["the backward pass recomputes more instructions, now also dot_general"]
    assert edits(more, few) == ["the backward pass recomputes fewer instructions, no longer dot_general"]
    assert edits(few, moves) == []
    assert edits(few, program(["mul", "cos"], "cos")) == []


def test_programs_of_one_value(make: Callable[..., Path]) -> None:
    """It may be gone, new, or the same."""
    members = with_op_names(["x"]), with_op_names(["y"]), with_arguments(("p", "f32[32]", 128))
    x, y, argument = (xlamem.read(make(own)) for own in members)
    for a, b, causes in ((x, x, []), (x, y, []), (x, argument, ["gone", "new"]), (argument, x, ["gone", "new"])):
        rows = [r for r in xlamem.diff(a, b).buffers.to_pylist() if r["account"] == "device_total"]
        assert sorted(r["cause"] for r in rows) == causes
        assert not any(r["match"] for r in rows)


def test_what_does_not_change_recomputation(make: Callable[..., Path]) -> None:
    """An unrolled loop repeats both passes, conversions are no operations, and other operations have equal names."""

    def program(body: list[str], *others: str) -> xlamem.Dump:
        paths = [f"jvp()/while/body/closed_call/{path}" for path in body]
        paths += [f"transpose(jvp())/while/body/closed_call/checkpoint/rematted_computation/{path}" for path in body]
        return xlamem.read(make(with_op_names([*paths, *others])))

    body = ["dot_general", "tanh", "sub"]
    a = program(body, "jvp()/sub")
    for b in (program(body * 2, "jvp()/sub"), program([*body, *["convert_element_type"] * 3], "jvp()/sub")):
        assert recomputations(a, b) == recomputations(b, a) == []
    relu = program(["dot_general", "relu", "relu"], "jvp()/sub")
    assert recomputations(a, relu) == recomputations(relu, a) == []
    inference = xlamem.read(make(with_op_names(["dot_general", "tanh", "sub", "sub"])))
    assert recomputations(a, inference) == recomputations(inference, a) == []
    assert "recomputes nothing" in recomputations(a, program([], "transpose(jvp())/mul"))[0]


def test_a_policy_that_saves_more(make: Callable[..., Path]) -> None:
    """JAX rounds what a policy of `jax.checkpoint` saves."""
    paths = ["jvp()/tanh", "transpose(jvp())/checkpoint/rematted_computation/tanh"]
    rounded = "jvp()/reduce_precision"
    backward, saved = ["jvp()/tanh", "transpose(jvp())/tanh"], "transpose(jvp())/checkpoint/mul"
    sides = paths, [*paths, rounded], backward, [*backward, rounded], [*backward, saved, rounded]
    a, b, without, user, everything = (xlamem.read(make(with_op_names(side))) for side in sides)
    assert recomputations(a, b) == ["jax.checkpoint saves 1 instead of 0 operations of the forward pass"]
    assert recomputations(b, a) == ["jax.checkpoint saves 0 instead of 1 operation of the forward pass"]
    gone = "jax.checkpoint is gone: the backward pass recomputes nothing"
    assert recomputations(a, user) == [gone]
    assert recomputations(without, user) == []
    saves = "jax.checkpoint is new: it saves 1 instead of 0 operations of the forward pass"
    assert recomputations(without, everything) == [saves]
    assert recomputations(everything, without) == ["jax.checkpoint is gone: it saved 1 operation of the forward pass"]


def with_hlo(op_names: list[str], *, hlo: bool) -> Members:
    """A program with these operations, of which the HLO text has one more in each fusion."""
    members = with_op_names(op_names)
    lines = [f'  v{i} = f32[16]{{0}} fusion(p), kind=kLoop, calls=c, metadata={{op_name="jit(f)/{path}"}}'
             for i, path in enumerate(op_names)]  # fmt: skip
    inside = [f'  i{i} = f32[16]{{0}} add(q, q), metadata={{op_name="jit(f)/{path}"}}'
              for i, path in enumerate(op_names)]  # fmt: skip
    fused = "c {\n  q = f32[16]{0} parameter(0)\n" + "\n".join(inside) + "\n}\n"
    text = attacks.hlo(fused, "ENTRY e {\n  p = f32[16]{0} parameter(0)\n" + "\n".join(lines) + "\n}\n")
    return {**members, "hlo": text.encode()} if hlo else members


@pytest.mark.parametrize("hlo", [True, False])
def test_operations_inside_of_fusions(make: Callable[..., Path], hlo: bool) -> None:
    """Without the HLO text, neither the number of operations is known nor that one is new."""
    recomputed = "transpose(jvp())/checkpoint/rematted_computation/tanh"
    always = ["jvp()/tanh", "jvp()/mul", "transpose(jvp())/checkpoint/mul"]
    sides = [*always, recomputed], [*always, "jvp()/exp", "jvp()/exp"]
    more, none = (xlamem.read(make(with_hlo(side, hlo=hlo))) for side in sides)
    assert texts(more, none, "operations") == ["new: exp"] * hlo
    unknown = "operations may differ, but are unknown without the HLO texts"
    number = "recomputes 0 instead of 2 instructions" if hlo else "recomputes nothing"
    assert number in recomputations(more, none)[0]
    d = xlamem.diff(*(xlamem.read(make(with_hlo(side, hlo=hlo))) for side in (["mul"], ["mul", "mul", "exp"])))
    assert [r["text"] for r in d.edits.to_pylist() if r["kind"] in ("operations", "instructions")] == (
        ["new: exp"] if hlo else [unknown]
    )


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        (["jit(relu)/max", "jit(relu)/max"], []), (["jit(silu)/mul", "jit(silu)/logistic", "jit(silu)/exp"], []),
        (["jit(_take)/jit(_where)/select_n"], []), (["qk,kd->qd/dot_general"], ["new: qk,kd->qd"]),
        (["head/conv_general_dilated", "head/jit(relu)/max"], ["new: head"]), (["dot_general"], ["new: dot_general"]),
        ([f"norm/{name}" for name in ("mul", "sub", "rsqrt", "add")], ["new: norm"]),
        ([f"block/{name}" for name in ("a/mul", "a/sub", "b/tanh", "b/exp")], ["new: block"]),
    ],
)  # fmt: skip
def test_scopes_without_hlo_texts(paths: list[str], text: list[str], make: Callable[..., Path]) -> None:
    """All operations of a scope may be inside of fusions that have other names: a product never is, nor are many."""
    always = ["mul", "tanh", "cos", "sin", *(f"layer_{i}/exp" for i in range(9))]
    few, more = (xlamem.read(make(with_op_names([*always, *others]))) for others in ([], paths))
    assert texts(few, more, "operations") == text
    assert texts(more, few, "operations") == [part.replace("new", "gone") for part in text]
    assert texts(few, more, "instructions") == ["operations may differ, but are unknown without the HLO texts"]


@pytest.mark.parametrize("hlo", [True, False])
def test_numbers_of_recomputed_instructions(make: Callable[..., Path], hlo: bool) -> None:
    """Without the HLO text, another number of names, of any operation but products, may be due to other fusions."""
    again = "transpose(jvp())/checkpoint/rematted_computation"
    forward = [f"jvp()/{name}" for name in ("dot_general", "tanh", "mul", "sin", "cos")]

    def program(*names: str, checkpoint: str = "checkpoint/mul") -> xlamem.Dump:
        backward = [f"transpose(jvp())/{checkpoint}", *(f"{again}/{name}" for name in names)]
        return xlamem.read(make(with_hlo([*forward, *backward], hlo=hlo)))

    def edits(a: xlamem.Dump, b: xlamem.Dump) -> list[str]:
        return [text.removeprefix("the backward pass recomputes ") for text in recomputations(a, b)]

    none, few, many = program(checkpoint="mul"), program("tanh"), program("tanh", "mul", "sin", "cos")
    product, fewer = program("dot_general"), program("tanh", "mul", "dot_general")
    assert bool(edits(few, many)) == bool(edits(many, few)) == hlo
    if not hlo:
        gone, new = "jax.checkpoint is gone: ", "jax.checkpoint is new: "
        assert edits(few, none) == [f"{gone}the backward pass recomputes nothing"]
        assert edits(none, few) == [f"{new}the backward pass recomputes more instructions"]
        assert edits(few, product) == ["other instructions, now also dot_general"]
        assert edits(product, few) == ["other instructions, no longer dot_general"]
        assert edits(many, fewer) == ["other instructions, now also dot_general"]
        assert edits(fewer, many) == ["other instructions, no longer dot_general"]
        assert edits(few, fewer) == ["more instructions, now also dot_general"]


@pytest.mark.parametrize("hlo", [True, False])
def test_a_checkpoint_around_more_without_hlo_texts(make: Callable[..., Path], hlo: bool) -> None:
    """Other names of fusions may be inside of it."""
    names = ("mul", "sin", "cos")
    always = ["jvp()/tanh", "transpose(jvp())/checkpoint/tanh", "transpose(jvp())/checkpoint/rematted_computation/tanh"]
    sides = ([f"transpose(jvp()){where}/{name}" for name in names] for where in ("", "/checkpoint"))
    a, b = (xlamem.read(make(with_hlo([*always, *side], hlo=hlo))) for side in sides)
    assert recomputations(a, b) == ["jax.checkpoint is around more of the model"] * hlo
    assert recomputations(b, a) == ["jax.checkpoint is around less of the model"] * hlo


def test_calls_are_no_operations(make: Callable[..., Path]) -> None:
    """XLA gives what it makes for a whole function the name of the call."""
    names = ["tanh", "mul"], ["tanh", "mul", "closed_call", "while/body/jit(relu)"]
    a, b = (xlamem.read(make(with_op_names(list(paths)))) for paths in names)
    assert texts(a, b, "operations") == texts(a, b, "instructions") == []


def test_moves_and_conversions_of_tensorflow_are_no_operations(make: Callable[..., Path]) -> None:
    """They depend on the element types of a policy of Keras, not on what a model computes."""
    product, moves = ["up/dense/MatMul"], ["up/dense/Cast_1", "up/Cast", "up/dense/Reshape_2", "up/transpose"]
    sides = product, [*product, *moves], [*product, *moves, "up/dense/Relu"]
    a, b, c = (xlamem.read(make(with_hlo(side, hlo=True))) for side in sides)
    assert texts(a, b, "operations") == []
    assert texts(a, c, "operations") == ["new: up/dense/Relu"]


def test_order_of_edits() -> None:
    """Few bytes of an output, or an argument less where the program grew, are no cause; the type decides the output."""

    def edit(kind: str, change: int) -> dict[str, Any]:
        return {"edit": 0, "kind": kind, "text": "", "evidence": "interface", "change": change, "n": 1}

    def order(*edits: dict[str, Any]) -> list[str]:
        d: Any = SimpleNamespace(
            peak_change=100, device_total_change=100, host_change=0, edits=pa.Table.from_pylist([*edits])
        )
        return [row["kind"] for row in ranked_edits(d)]

    assert order(edit("arguments", -1), edit("instructions", 0)) == ["instructions", "arguments"]
    assert order(edit("arguments", 1), edit("instructions", 0)) == ["arguments", "instructions"]
    assert order(edit("outputs", 2), edit("operations", -1)) == ["operations", "outputs"]
    assert order(edit("outputs", 2), edit("element type", 0)) == ["element type", "outputs"]
    assert order(edit("outputs", 20), edit("element type", 0)) == ["outputs", "element type"]
    # Outputs without bytes of their own are in donated arguments.
    assert order(edit("outputs", 0), edit("arguments", 1)) == ["arguments", "outputs"]
    assert order(edit("outputs", 1), edit("instructions", 0), edit("arguments", -1))[0] == "outputs"
    # Temporaries with another dimension on each device follow from arguments that are sharded differently.
    split, sharding = {**edit("dimensions", 90), "evidence": "buffers"}, edit("sharding", -1)
    assert order(split, sharding) == ["sharding", "dimensions"]
    assert order(split, {**sharding, "evidence": "buffers"}) == ["dimensions", "sharding"]
    small = {**split, "change": 1}
    assert order(edit("operations", 80), edit("sharding", -85), small)[0] == "operations"
    assert order(edit("layers", 9), sharding, small)[0] == "layers"
    # Operations explain whatever else differs around them, also what has another type.
    assert order(edit("operations", 38), edit("rematerialization", 20)) == ["operations", "rematerialization"]
    assert order(edit("operations", 38), edit("element type", 20)) == ["element type", "operations"]
    assert order(edit("operations", 42), edit("element type", 20)) == ["operations", "element type"]


@pytest.mark.parametrize(("name", "where"), [("", "argument 0"), ("x", "argument x")])
def test_a_loop_over_the_elements_of_an_argument(name: str, where: str, make: Callable[..., Path]) -> None:
    """It runs more often because the argument is larger."""

    def program(batch: int) -> xlamem.Dump:
        shape, size = f"f32[{batch},8]", 32 * batch
        config = f'backend_config={{"known_trip_count":{{"n":"{8 * batch}"}}}}'
        metadata = f', metadata={{op_name="{name}"}}' if name else ""
        members = attacks.dump(
            [value(1, "h", size, 0, shape), value(2, "w", 4, size, "s32[]")],
            allocations=f"allocation 0: size {size}, parameter 0, shape |{shape}| at ShapeIndex {{}}:\n"
            + value(0, "p", size, 0, shape)
            + f"allocation 1: size {size + 4}, preallocated-temp:\n",
            records=[
                record(0, "p", f"{shape} parameter(0){metadata}"),
                record(1, "h", add("h", shape)),
                record(2, "w", f"s32[] while(%h), condition=%c, body=%b, {config}"),
            ],
            ranges=["p{}:0-4", "h{}:1-3", "w{}:2-3"],
        )
        return xlamem.read(make(members))

    edits = [row["text"] for row in xlamem.diff(program(4), program(8)).edits.to_pylist()]
    assert edits == [f"a dimension of 4 is 8 now, as in {where}"]


def test_a_carry_of_a_longer_loop_is_another_one(make: Callable[..., Path]) -> None:
    """Values at the same index show that a dimension changed only if they are of the same operation."""

    def program(*carries: tuple[str, str, str, int]) -> xlamem.Dump:
        tuple_shape = f"({', '.join(shape for _, _, shape, _ in carries)})"
        values, records, ranges = [], [], []
        for k, (name, path, shape, size) in enumerate(carries):
            element, offset = f"w{{{k}}}", k << 16
            values += [value(2 * k, name, size, offset, shape), value(2 * k + 1, element, size, offset, shape)]
            loop = f'{tuple_shape} while(%t), metadata={{op_name="jit(f)/while"}}'
            records += [record(2 * k, name, add(path, shape)), record(2 * k + 1, element, loop, f"  w {{{k}}}")]
            ranges += [f"{name}{{}}:0-3", f"{element}:3-9"]
        return xlamem.read(make(attacks.dump(values, records=records, ranges=ranges, steps=10)))

    saved, carried = ("s", "while/body/mul", "f32[64,64]", 16384), ("c", "while/body/add", "f32[64,16]", 4096)
    moved, longer = (*carried[:2], "f32[64,16]{1,0:S(1)}", 4096), (*carried[:2], "f32[64,32]", 8192)
    for b, wanted in (([moved], []), ([longer, saved], ["a dimension of 16 is 32 now"])):
        a = [saved, carried] if b == [moved] else [carried]
        rows = xlamem.diff(program(*a), program(*b)).edits.to_pylist()
        assert [r["text"] for r in rows if r["kind"] == "dimensions"] == wanted


def stacking(*shapes: str, path: str = "while", trips: int = 24, update: str = "dynamic_update_slice") -> Members:
    """A program with a loop that stacks arrays of these shapes, after what it adds up."""
    carries = ["f32[8]", *shapes]
    config = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}, metadata={{op_name="jit(f)/{path}"}}'
    values, records, ranges = [], [], []
    for k, shape in enumerate(carries):
        size = 4 * math.prod(map(int, re.findall(r"\d+", shape[3:])))
        element, name = f"w{{{k}}}", f"x.{k}"
        values += [value(2 * k, element, size, k << 16, shape), value(2 * k + 1, name, size, k << 16, shape)]
        loop = f"({', '.join(carries)}) while(%t), {config}"
        records.append(record(2 * k, element, loop, f"  w {{{k}}}"))
        records.append(record(2 * k + 1, name, add(f"{path}/body/{update if k else 'add'}", shape)))
        ranges += [f"{element}:0-9", f"{name}{{}}:1-3"]
    return attacks.dump(values, records=records, ranges=ranges, steps=10)


STACK, SMALLER, OVER = "f32[24,12,16]", "f32[24,16]", "over its 24 iterations"


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (stacking(STACK), stacking(), f"a loop no longer stacks {STACK} {OVER}"),
        (stacking(), stacking(STACK), f"a loop now also stacks {STACK} {OVER}"),
        (stacking(SMALLER, STACK), stacking(), f"a loop no longer stacks 2 arrays {OVER}, such as {STACK}"),
        (stacking(SMALLER), stacking(SMALLER, STACK), f"a loop now also stacks {STACK} {OVER}"),
        (stacking(STACK), stacking("f32[7,900]"), f"a loop no longer stacks {STACK} {OVER}"),
        (stacking(STACK), stacking("f32[7,1900]"), None),  # other arrays are larger
        (stacking(STACK), stacking("f32[24,40]"), f"a loop no longer stacks {STACK} {OVER}"),
        (stacking("f32[24,40]"), stacking(STACK), f"a loop now also stacks {STACK} {OVER}"),
        (stacking(STACK), stacking("bf16[24,90]", "f32[24,100]", update="dynamic-update-slice"), None),  # are others
        (stacking("f32[5000]", update="add", trips=-1), stacking(trips=-1), None),  # of an unknown number
        (stacking("f32[12,24,16]"), stacking(), None),  # no slice for each iteration
        (stacking(STACK, update="dynamic_slice"), stacking(), None),  # is only read
        (stacking(STACK, path="jvp()/while"), stacking(path="jvp()/while"), None),  # is what a backward pass reads
        (stacking(STACK, path="transpose(jvp())/while"), stacking(path="transpose(jvp())/while"), None),
        (stacking(STACK, path="scatter"), stacking(path="scatter"), None),
        (stacking(STACK), stacking(trips=12), "loops run 12 iterations instead of 24"),
        (stacking(STACK), stacking(path="jvp()/while"), None),
        (stacking("f32[1,9999]", trips=1), stacking(trips=1), None),
    ],
)  # fmt: skip
def test_what_a_loop_stacks(a: Members, b: Members, text: str | None, make: Callable[..., Path]) -> None:
    """Micro-batches whose gradients are stacked take more than those whose gradients are added up."""
    found = texts(xlamem.read(make(a)), xlamem.read(make(b)), "loops")
    assert found == ([text] if text else [])


def test_copies_of_different_values(make: Callable[..., Path]) -> None:
    """Copies without a name have nothing in common; one of the same value may have become smaller."""

    def program(path: str, size: int) -> xlamem.Dump:
        shape = f"f32[{size // 4}]"
        values = [value(0, "v", size, 0, shape), value(1, "copy.1", size, 4096, shape)]
        users = "  copy.1, operand 0"
        records = [record(0, "v", add(path, shape), uses=users), record(1, "copy.1", f"{shape} copy(%v)")]
        return xlamem.read(make(attacks.dump(values, records=records, ranges=["v{}:0-1", "copy.1{}:1-3"])))

    for path, wanted in (("up", ["smaller"]), ("down", ["gone", "new"])):
        rows = xlamem.diff(program("up", 2048), program(path, 1024)).buffers.to_pylist()
        causes = {r["cause"] for r in rows if "copy.1" in (r["instruction_a"], r["instruction_b"])}
        assert sorted(causes) == wanted


def test_layers_of_a_shorter_input(make: Callable[..., Path]) -> None:
    """The first of two convolutions is as large now as the second one was, which is smaller as well."""

    def program(*sizes: int) -> xlamem.Dump:
        shapes = [f"f32[{size}]" for size in sizes]
        values = [value(i, f"v{i}", 4 * sizes[i], i << 16, shape) for i, shape in enumerate(shapes)]
        uses = "  v1, operand 0", ""
        records = [record(i, f"v{i}", add("conv", shape), uses=uses[i]) for i, shape in enumerate(shapes)]
        return xlamem.read(make(attacks.dump(values, records=records, ranges=["v0{}:0-3", "v1{}:1-3"])))

    rows = xlamem.diff(program(4096, 2048), program(2048, 1024)).buffers.to_pylist()
    pairs = {(r["cause"], r["shape_a"], r["shape_b"]) for r in rows if r["account"] == "device_total"}
    assert pairs == {("smaller", "f32[4096]", "f32[2048]"), ("smaller", "f32[2048]", "f32[1024]")}


def with_arguments(*arguments: tuple[str, str, int], hlo: str = "") -> dict[str, bytes]:
    """A program with these arguments: name, shape and size."""
    allocations, records = "", []
    for i, (name, shape, size) in enumerate(arguments):
        allocations += f"allocation {i}: size {size}, parameter {i}, shape |{shape}| at ShapeIndex {{}}:\n"
        allocations += value(i, f"p{i}", size, 0, shape)
        records.append(record(i, f"p{i}", f'{shape} parameter({i}), {hlo}metadata={{op_name="{name}"}}'))
    ranges = [f"p{i}{{}}:0-4" for i in range(len(arguments))]
    return attacks.dump([], allocations=allocations, records=records, ranges=ranges)


def test_arguments_in_another_order(make: Callable[..., Path]) -> None:
    """Arguments of the same names. A new one moves those after it, but keeps their order."""
    x, y, z = ("x", "f32[16]", 64), ("y", "f32[4,4]", 64), ("z", "f32[32]", 128)
    sides = [x, y], [y, x], [z, x, y], [("u", *x[1:]), ("v", *y[1:])]
    a, swapped, longer, renamed = (xlamem.read(make(with_arguments(*side))) for side in sides)
    assert texts(a, swapped, "arguments") == ["2 arguments are in another order"]
    assert texts(a, longer, "arguments") == ["1 argument is new: z"]
    assert texts(a, renamed, "arguments") == []


STATE = ("['w']", "f32[16]", 64), ("['b']", "f32[4]", 16)


def state(*slots: str) -> list[tuple[str, str, int]]:
    """Arguments of an optimizer that keeps an array of each parameter in each of these."""
    return [(f"opt[0]{slot}{name}", shape, n) for slot in ("", *slots) for name, shape, n in STATE]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (state(".trace"), state(".mu", ".nu"), "4 arguments are new, 160 B: opt[0].mu, opt[0].nu; "
         "2 arguments are gone, 80 B: opt[0].trace"),
        (state(".mu", ".nu"), state(".trace"), "4 arguments are gone, 160 B: opt[0].mu, opt[0].nu; "
         "2 arguments are new, 80 B: opt[0].trace"),
        (state(".mu"), state(".mu", ".nu"), "2 arguments are new: opt[0].nu"),
        (state(), [*state(), ("ema['w']", "f32[16]", 64)], "1 argument is new: ema['w']"),
        (state(), [*state(), ("ema['w']", "f32[16]", 64), ("ema['b']", "f32[4]", 16)], "2 arguments are new: ema"),
        (state(), [*state(), *((f"{name}.x", "f32[16]", n) for n, name in enumerate("abcd"))],
         "4 arguments are new: d.x, c.x, b.x, …"),
        (state(".trace"), state(".mu"),
         "2 arguments have other names: opt[0].trace['w'] -> opt[0].mu['w'], opt[0].trace['b'] -> opt[0].mu['b']"),
        (state(".trace"), [*state(".mu"), ("key", "u32[2]", 8)], "1 argument is new: key"),
        (state("[0]"), [*(("state" + name[3:], *more) for name, *more in state("[0]")), ("state[0][1]", "f32[9]", 36)],
         "1 argument is new: state[0][1]"),
    ],
)  # fmt: skip
def test_state_of_another_optimizer(make: Callable[..., Path], a: Any, b: Any, wanted: str) -> None:
    """It is stated by what its names begin with; of as many arguments of the same shapes, only the names changed."""
    sides = (xlamem.read(make(with_arguments(*side))) for side in (a, b))
    assert "; ".join(texts(*sides, "arguments")) == wanted


def test_arguments_of_renamed_modules(make: Callable[..., Path]) -> None:
    """Weights that another module uses in the same way have other shapes: they are no partners."""
    shapes = {"key": ("f32[8,2]", 64), "query": ("f32[8,2]", 64), "out": ("f32[2,8]", 64), "up": ("f32[4]", 16)}
    flat = [(f"p['{layer}_{n}']", *shapes[layer]) for n in range(2) for layer in ("key", "query", "out", "up")]
    modules = ("out", "query", "key", "up")
    nested = [(f"p['layer_{n}']['{layer}']", *shapes[layer]) for n in range(2) for layer in modules]
    a, b = (xlamem.read(make(with_arguments(*side))) for side in (flat, nested))
    (text,) = texts(a, b, "arguments")
    assert text.startswith("8 arguments have other names: ")
    assert "p['out_0'] -> p['layer_0']['out']" in text
    assert texts(a, b, "dimensions") == []


def test_a_name_that_several_arguments_have_is_not_new(make: Callable[..., Path]) -> None:
    a = with_arguments(("p.x", "f32[4]", 16), ("p.y", "f32[8]", 32))
    b = with_arguments(("p.y", "f32[4]", 16), ("p.y", "f32[8]", 32))
    assert texts(xlamem.read(make(a)), xlamem.read(make(b)), "arguments") == []


def test_arguments_without_a_name(make: Callable[..., Path]) -> None:
    """They are stated by their shapes, as outputs are. TensorFlow names all of them alike."""
    weights = [("XLA_Args", f"f32[{n}]", 4 * n) for n in (16, 8)]
    a, b = (xlamem.read(make(with_arguments(*side))) for side in ([*weights, *weights], weights))
    assert texts(a, b, "arguments") == ["2 arguments are gone: f32[16], f32[8]"]
    assert difference_groups(xlamem.diff(a, b), ("buffer",))["buffer"].to_pylist() == ["argument"]
    some = xlamem.read(make(with_arguments(*weights, ("bias", "f32[4]", 16))))
    assert texts(some, xlamem.read(make(with_arguments(weights[1]))), "arguments") == [
        "2 arguments are gone: argument 0, bias"
    ]


@pytest.mark.parametrize(("of", "component"), [("['a']", "['q']"), (".w", ".values"), ("[0]", "[1]")])
def test_arguments_whose_leaves_become_several(make: Callable[..., Path], of: str, component: str) -> None:
    """Quantized weights have the dimensions of the others, and a scale: they are not matched with other weights."""
    plain = [(f"params{of}{x}", f"bf16[{n}]", 2 * n) for x, n in (("['q']", 64), ("['o']", 32), ("['k']", 16))]
    split = [(f"{name}{component}", f"s8[{size // 2}]", size // 2) for name, _, size in plain]
    scales = [(f"{name}.scale", "bf16[2]", 4) for name, *_ in plain]
    a, b = (xlamem.read(make(with_arguments(*side))) for side in (plain, [*reversed(split), *scales]))
    rows = xlamem.diff(a, b).buffers.to_pylist()
    pairs = {r["shape_a"]: r["shape_b"] for r in rows if r["cause"] == "smaller"}
    assert pairs == {f"bf16[{n}]": f"s8[{n}]" for n in (64, 32, 16)}
    (arguments,) = texts(a, b, "arguments")
    assert arguments.startswith("3 arguments are new: ")


@pytest.mark.parametrize(
    ("a", "b", "partner"),
    [("xyx", "xxy", [0, 2, 1]), ("x", "xx", [-1]), ("xx", "x", [-1, -1]), ("xxy", "yx", [-1, -1, 0]), ("", "x", [])],
)
def test_renamed_arguments_of_a_shape(a: str, b: str, partner: list[int]) -> None:
    """They are the same in their order, unless one side has more of them: then it is not known which."""
    own, other = (SimpleNamespace(shapes=pa.array(list(shapes), pa.string())) for shapes in (a, b))
    partner_of = np.full(len(a), -1)
    i: Any = SimpleNamespace(gone=np.arange(len(a)), new=np.arange(len(b)), partner=partner_of, a=own, b=other)
    Interface._pair_renamed(i)
    assert partner_of.tolist() == partner


@pytest.mark.parametrize("donated", [True, False])
@pytest.mark.parametrize(("large", "wanted"), [(4096, True), (64, True), (16, False)])
def test_arguments_updated_in_place(make: Callable[..., Path], donated: bool, large: int, wanted: bool) -> None:
    """Both programs donate it, and its new value is a temporary of one of them, which makes most of the difference."""

    def program(in_place: bool, donated: bool = donated) -> xlamem.Dump:
        shape, other = f"f32[{large // 4}]", 0 if in_place else 96
        end = ", maybe-live-out:" if donated else ":"
        argument = value(0, "p0", large, 0, shape)
        update, more = value(1, "u", large, 0, shape), value(2, "m", other + 8, large, f"f32[{other // 4 + 2}]")
        allocations = f"allocation 0: size {large}, parameter 0, shape |{shape}| at ShapeIndex {{}}{end}\n{argument}"
        allocations += f"{update if in_place else ''}allocation 1: size {2 * large + 256}, preallocated-temp:\n"
        allocations += more if in_place else update + more
        cache = 'metadata={op_name="cache"}'
        records = [record(0, "p0", f"{shape} parameter(0), {cache}"),
                   record(1, "u", f'{shape} scatter(%p0), metadata={{op_name="jit(f)/scatter"}}'),
                   record(2, "m", f'f32[{other // 4 + 2}] add(%q), metadata={{op_name="jit(f)/add"}}')]  # fmt: skip
        ranges = ["p0{}:0-2", "u{}:2-4", "m{}:2-4"]
        return xlamem.read(make(attacks.dump([], allocations=allocations, records=records, ranges=ranges)))

    a, b = program(in_place=True), program(in_place=False)
    found = donated and wanted
    assert texts(a, b, "donation") == ["1 donated argument is no longer updated in place: cache"] * found
    assert texts(b, a, "donation") == ["1 donated argument is updated in place now: cache"] * found
    if donated and large == 4096:  # by both
        other = program(in_place=False, donated=False)
        assert not any("in place" in text for pair in ((a, other), (other, a)) for text in texts(*pair, "donation"))


def of_values(make: Callable[..., Path], *values: tuple[str, str, str, str]) -> xlamem.Dump:
    """A program with these temporaries, one after the other: name, shape, operation and op_name."""
    texts, records, offset = [], [], 0
    for i, (name, shape, operation, path) in enumerate(values):
        size = 4 * math.prod(int(n) for n in re.findall(r"\d+", shape.partition("[")[2]))
        texts.append(value(i, name, size, offset, shape))
        records.append(record(i, name, f'{shape} {operation}, metadata={{op_name="jit(f)/{path}"}}'))
        offset += size
    return xlamem.read(make(attacks.dump(texts, records=records, ranges=[f"{v[0]}{{}}:0-4" for v in values])))


PART = ("p", "f32[8,64]", "dot(%x)", "head/dot_general")
OTHER = ("q", "f32[8,8]", "all-gather(%y), replica_groups={{0,1,2,3}}, dimensions={0}", "mlp/add")


@pytest.mark.parametrize(
    ("groups", "over"), [("{{0,1,2,3}}", ""), ("{{0,1,2,3},{4,5,6,7}}", " over 4 of 8 devices"), ("{{0},{1}}", None)]
)
@pytest.mark.parametrize(
    ("replaced", "found"),
    [
        ({}, True), ({"f32[8,64]": "f32[4,64]"}, False), ({"f32[8,8]": "f32[32,64]"}, False),
        ({"gather": "reduce"}, False),
    ],
)  # fmt: skip
def test_an_array_that_is_no_longer_sharded(
    make: Callable[..., Path], groups: str, over: str | None, replaced: dict[str, str], found: bool
) -> None:
    """The other program has the part, and nothing of the size of the whole array."""
    whole = ("w", "f32[32,64]", f"all-gather(%p), replica_groups={groups}, dimensions={{0}}", "head/dot_general")
    if "gather" in replaced:
        whole = tuple(text.replace("all-gather", "all-reduce") for text in whole)  # type: ignore[assignment]
    rows = [tuple(replaced.get(text, text) for text in row) for row in (PART, OTHER)]
    a, b = of_values(make, *rows), of_values(make, *rows, whole)  # type: ignore[arg-type]
    parts = "f32[8,64] -> f32[32,64]", "f32[32,64] -> f32[8,64]"
    wanted = [f"head/dot_general is no longer sharded{over}: {parts[0]} on each device",
              f"head/dot_general is sharded{over} now: {parts[1]} on each device"]  # fmt: skip
    said = [text for d in ((a, b), (b, a)) for text in texts(*d, "sharding") if "other collectives" not in text]
    assert said == wanted * (found and over is not None)


def test_what_is_computed_from_a_whole_array(make: Callable[..., Path]) -> None:
    """It has as many elements, of another type or in another shape."""
    part, other = ("p", "bf16[8,64]", "dot(%x)", "head/dot_general"), ("q", "f32[8,8]", "add(%y)", "loss/exp")
    whole = ("w", "bf16[32,64]", "all-gather(%p), replica_groups={{0,1,2,3}}, dimensions={0}", "head/dot_general")
    exponential = ("e", "f32[4,8,64]", "exponential(%w)", "loss/exp")
    large = ("z", "f32[3000]", "iota()", "loss/iota")
    a, b = of_values(make, part, other), of_values(make, part, other, whole, exponential, large)
    edits = [row for row in xlamem.diff(a, b).edits.to_pylist() if row["kind"] == "sharding"]
    assert [(row["n"], row["text"]) for row in edits if "other collectives" not in row["text"]] == [
        (2, "head/dot_general is no longer sharded: bf16[8,64] -> bf16[32,64] on each device")
    ]


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ("f32[8,3072]", "f32[8]", True), ("f32[8,3072]", "f32[8,3072]", False),
        ("f32[8,3072]", "bf16[8,3072]", False), ("f32[8,4]", "f32[8]", False),
    ],
)  # fmt: skip
def test_an_array_that_an_operation_no_longer_makes(make: Callable[..., Path], a: str, b: str, wanted: bool) -> None:
    """Both programs have the operation, which XLA fuses with others in one of them."""
    rest = ("q", "f32[16,16]", "add(%x)", "mlp/add")
    first = of_values(make, ("p", a, "fusion(%x)", "jvp(head)/dot_general"), rest)
    second = of_values(make, rest, ("s", b, "reduce(%x)", "mlp/add"),
                       ("r", "(f32[8], s32[8])", "fusion(%y)", "jvp(head)/dot_general"))  # fmt: skip
    found = [text for d in ((first, second), (second, first)) for text in texts(*d, "operations") if "make" in text]
    assert found == ["head/dot_general no longer makes f32[8,3072]", "head/dot_general makes f32[8,3072] now"] * wanted


@pytest.mark.parametrize(("n", "wanted"), [(30_000, True), (50_000, False)])
def test_an_array_that_takes_a_third_of_the_difference(
    make: Callable[..., Path], n: int, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More may be in a buffer of which no operation is known. Compilers for other platforms fuse others."""
    rest, fused = ("q", "f32[16,16]", "add(%x)", "mlp/add"), ("r", "f32[8]", "fusion(%y)", "head/dot_general")
    a = of_values(make, ("p", "f32[8,3072]", "fusion(%x)", "head/dot_general"), rest)
    b = of_values(make, rest, ("s", f"f32[{n}]", "reduce(%x)", ""), fused)
    assert texts(a, b, "operations") == ["head/dot_general no longer makes f32[8,3072]"] * wanted
    monkeypatch.setattr(Context, "platforms_differ", True)
    assert not texts(a, b, "operations")


def test_a_larger_batch_is_no_other_sharding(make: Callable[..., Path]) -> None:
    """If the same sharding is printed, the whole argument is larger, whatever the devices exchange."""
    gather = "f32[16] all-gather(%p), replica_groups={{0,1}}, dimensions={0}"
    exchange = value(9, "g", 64, 0, "f32[16]"), record(9, "g", gather)

    def program(n: int, sharding: str, *exchanged: str) -> xlamem.Dump:
        members = with_arguments(("x", f"f32[{n}]", 4 * n), hlo=f"sharding={sharding}, " if sharding else "")
        if exchanged:
            members["buffer-assignment"] += f"allocation 1: size 64, preallocated-temp:\n{exchanged[0]}".encode()
            members["buffer-assignment-values"] += exchanged[1].encode()
        return xlamem.read(make(members))

    for sharding, wanted in (("{devices=[2]<=[2]}", "dimensions"), ("", "sharding")):
        edits = xlamem.diff(program(16, sharding), program(32, sharding, *exchange)).edits.to_pylist()
        assert next(row["kind"] for row in edits if row["evidence"] == "interface") == wanted


@pytest.mark.parametrize(
    ("returned", "wanted"), [("f32[4,4]", []), ("f32[8,2]", ["1 output is of another shape: f32[4,4] -> f32[8,2]"])]
)
def test_an_output_computed_in_another_shape(returned: str, wanted: list[str], make: Callable[..., Path]) -> None:
    """The caller sees the printed shape: XLA makes it by a bitcast, which is no buffer."""

    def program(computed: str, returned: str) -> xlamem.Dump:
        allocations = f"allocation 0: size 64, maybe-live-out:\n{value(1, 'o', 64, 0, computed)}"
        allocations += f"allocation 1: size 8, output shape is |({returned}, s32[])|, maybe-live-out:\n"
        allocations += value(2, "s.3{}", 8, 0, f"({returned}, s32[])")
        records = [record(1, "o", add("f", computed), "  o\n  s.3 {0}"), record(2, "s.3{}", f"({returned}) tuple(%o)")]
        members = attacks.dump([], allocations=allocations, records=records, ranges=["o{}:0-4", "s.3{}:3-4"])
        return xlamem.read(make(members))

    edits = xlamem.diff(program("f32[4,4]", "f32[4,4]"), program("f32[2,2,4]", returned)).edits.to_pylist()
    assert [r["text"] for r in edits if r["kind"] == "outputs"] == wanted


def test_outputs_whose_allocations_are_in_another_order(make: Callable[..., Path]) -> None:
    """An output is the one with its index."""

    def program(element_type: str, order: str, size: int) -> xlamem.Dump:
        shapes = {"a": f"{element_type}[4,2]", "b": f"{element_type}[2,4]"}
        allocations, records, ranges = "", [], []
        for i, name in enumerate(order):
            allocations += f"allocation {i}: size {size}, maybe-live-out:\n{value(i, name, size, 0, shapes[name])}"
            position = f"  {name}\n  s.3 {{{'ab'.index(name)}}}"
            records.append(record(i, name, add("f", shapes[name]), position))
            ranges.append(f"{name}{{}}:0-4")
        of_tuple = f"({shapes['a']}, {shapes['b']})"
        allocations += f"allocation 2: size 16, output shape is |{of_tuple}|, maybe-live-out:\n"
        allocations += value(2, "s.3{}", 16, 0, of_tuple)
        records.append(record(2, "s.3{}", f"{of_tuple} tuple(%a, %b)"))
        members = attacks.dump([], allocations=allocations, records=records, ranges=[*ranges, "s.3{}:3-4"])
        return xlamem.read(make(members))

    edits = xlamem.diff(program("f32", "ab", 32), program("bf16", "ba", 16)).edits.to_pylist()
    (text,) = [r["text"] for r in edits if r["kind"] == "outputs"]
    assert text == "2 outputs are of another element type: f32[2,4] -> bf16[2,4], f32[4,2] -> bf16[4,2]"


ENTRY = "ENTRY %main (p: f32[8]) -> f32[8] {\n  ROOT %p = f32[8] parameter(0)\n}\n"


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (", num_partitions=4", ", num_partitions=2", "compiled for 2 devices instead of 4"),
        (", replica_count=2", "", "compiled for 1 device instead of 2"), ("", "", None),
        ("", ", num_partitions=0", None), (", num_partitions=4", "", "compiled for 1 device instead of 4"),
    ],
)  # fmt: skip
def test_another_number_of_devices(a: str, b: str, text: str | None, make: Callable[..., Path]) -> None:
    """Each device has a larger part of the arrays, which is no other dimension of the model."""

    def program(header: str, n: int) -> xlamem.Dump:
        members = with_arguments(("x", f"f32[{n}]", 4 * n))
        return xlamem.read(make({**members, "hlo": f"HloModule m, is_scheduled=true{header}\n\n{ENTRY}".encode()}))

    edits = xlamem.diff(program(a, 8), program(b, 16)).edits.to_pylist()
    dimension = "a dimension of 8 is 16 now, as in argument x"
    assert [(row["text"], row["change"]) for row in edits] == [(text or dimension, 32)]


@pytest.mark.parametrize(
    ("sharding", "line"),
    [
        ("{devices=[1,4]0,1,2,3}", ""), ("{devices=[10]<=[10]}", ""), ("", "%i = u32[] partition-id()"),
        ("", "%r = f32[8] all-reduce(%p), replica_groups={{0}}"), ("", "%i = u32[] replica-id()"),
    ],
)  # fmt: skip
def test_a_number_of_devices_that_is_not_printed(sharding: str, line: str, make: Callable[..., Path]) -> None:
    """Old compilers print none, but the program shows that there are several."""

    def program(header: str, n: int, line: str = "") -> xlamem.Dump:
        members = with_arguments(("x", f"f32[{n}]", 4 * n), hlo=f"sharding={sharding}, " if sharding else "")
        entry = ENTRY.replace("  ROOT", f"  {line}\n  ROOT")
        return xlamem.read(make({**members, "hlo": f"HloModule m, is_scheduled=true{header}\n\n{entry}".encode()}))

    old, new = program("", 8, line), program(", num_partitions=4", 16)
    for sides in ((old, new), (new, old)):
        assert not [row for row in xlamem.diff(*sides).edits.to_pylist() if "compiled for" in row["text"]]


@pytest.mark.parametrize("name", ["cpu-jaxlib-0.12.0-scan_while", "tpu-libtpu-0.0.50.1-v5e-host_offload"])
def test_a_dump_with_and_without_its_live_ranges(name: str, tmp_path: Path) -> None:
    """Both are compared as if they had none: the same program has not changed, and the compiler is the same."""
    whole, part = DUMPS / name, tmp_path / name
    shutil.copytree(whole, part, ignore=shutil.ignore_patterns("*-live-range.txt"))
    for a, b, side in ((whole, part, "B"), (part, whole, "A")):
        d = xlamem.diff(a, b)
        assert (d.is_same, d.has_peaks, d.edits.num_rows) == (True, False, 0)
        assert d.verdict.startswith(f"Not known ({side} has no live ranges, so its peak is not known)")
        assert d.verdict.endswith(" must fit.")


@pytest.mark.parametrize(
    ("old", "new"), [("copy.16{}:4-9", "copy.16{}:4-900"), ("    wrapped_compare{}:12-13\n", ""), ("{}:4-9", "{}:9-4")]
)
def test_live_ranges_that_contradict_the_allocations(old: str, new: str, tmp_path: Path) -> None:
    """Such as those of another compile in the same directory."""
    whole, mixed = DUMPS / "cpu-jaxlib-0.12.0-scan_while", tmp_path / "mixed"
    shutil.copytree(whole, mixed)
    (path,) = mixed.glob("*-live-range.txt")
    path.write_text(path.read_text().replace(old, new, 1))
    assert not xlamem.diff(whole, whole).doubt
    for a, b, side in ((whole, mixed, "B"), (mixed, whole, "A")):
        assert xlamem.diff(a, b).doubt == f"{side} has live ranges that contradict its allocations"


def test_lines_about_values_that_were_not_understood(tmp_path: Path) -> None:
    """Without live ranges, only allocations are compared, of which every line was understood."""
    whole, other, part = DUMPS / "cpu-jaxlib-0.12.0-scan_while", tmp_path / "other", tmp_path / "part"
    shutil.copytree(whole, other)
    (path,) = other.glob("*-buffer-assignment.txt")
    path.write_text(path.read_text().replace(" value: <", " value of another kind\n value: <", 1))
    shutil.copytree(other, part, ignore=shutil.ignore_patterns("*-live-range.txt"))
    assert xlamem.diff(whole, other).doubt == "B has lines about values that were not understood"
    assert xlamem.diff(whole, part).doubt == "B has no live ranges, so its peak is not known"


def test_what_is_compared_without_live_ranges(tmp_path: Path) -> None:
    a, b = DUMPS / "cpu-jaxlib-0.12.0-scan_while", DUMPS / "cpu-jaxlib-0.12.0-multiheap"
    part = tmp_path / a.name
    shutil.copytree(a, part, ignore=shutil.ignore_patterns("*-live-range.txt"))
    d = xlamem.diff(part, b)
    total = d.accounts.to_pylist()[0]
    assert (total["peak_a"], total["peak_b"]) == (total["reserved_a"], total["reserved_b"])
    assert "in use" not in d.verdict
    changes = [row["change"] for row in d.buffers.to_pylist() if row["account"] == total["account"]]
    assert sum(changes) == d.peak_change == d.device_total_change
    assert total["moved"] == 0


@pytest.mark.parametrize(
    ("a", "b", "bytes_b", "wanted"),
    [
        ("x/a.py", "x/b.py", 8, "b.py:2"), ("x/a.py", None, 8, "a.py:1"), (None, None, 8, ""),
        ("x/a.py", "x/b.py", 0, "a.py:1"), (None, "x/b.py", 0, "b.py:2"),
    ],
)  # fmt: skip
def test_the_line_of_the_newer_side(a: str | None, b: str | None, bytes_b: int, wanted: str) -> None:
    """What has no bytes in B is named after A, and so is its line."""
    lines = {"source_file_a": a, "source_line_a": 1, "source_file_b": b, "source_line_b": 2}
    assert source({**lines, "bytes_b": bytes_b}) == wanted


W, STACK_OF_W, V = "f32[16,8]", "f32[3,16,8]", "f32[8]"


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ([W] * 3, [STACK_OF_W], ["3 arguments are stacked now: 3 × f32[16,8] -> f32[3,16,8]"]),
        ([STACK_OF_W], [W] * 3, ["1 argument is no longer stacked: f32[3,16,8] -> 3 × f32[16,8]"]),
        (
            [W, V] * 4, ["f32[2,8]", "f32[2,8]", "f32[2,16,8]", "f32[2,16,8]"],
            ["8 arguments are stacked now: 2 × f32[16,8] -> f32[2,16,8], 2 × f32[8] -> f32[2,8]"],
        ),
        # Each array counts once, and scalars are no layers.
        (["f32[2,4,8]", *[V] * 8], ["f32[4,8]"] * 2, [
            "1 argument is no longer stacked: f32[2,4,8] -> 2 × f32[4,8]",
            "8 arguments are gone: argument 1, argument 2, argument 3, …",
        ]),
        (["f32[2]"], ["f32[]"] * 2, ["1 argument is gone: argument 0", "2 arguments are new: argument 0, argument 1"]),
        # More or fewer than the stack is long, or of another type, are other arguments.
        ([W] * 2, [STACK_OF_W], ["1 argument is new: argument 0", "2 arguments are gone: argument 0, argument 1"]),
        (
            ["bf16[16,8]"] * 3, [STACK_OF_W],
            ["1 argument is new: argument 0", "3 arguments are gone: argument 0, argument 1, argument 2"],
        ),
        (
            [W, W, W, V], [STACK_OF_W, "f32[]"],
            ["1 argument is gone: argument 3", "1 argument is new: argument 1",
             "3 arguments are stacked now: 3 × f32[16,8] -> f32[3,16,8]"],
        ),
    ],
)  # fmt: skip
def test_stacked_arguments(a: list[str], b: list[str], wanted: list[str], make: Callable[..., Path]) -> None:
    """Layers that are scanned have one array for all, which takes as many bytes as before."""

    def program(side: str, shapes: list[str]) -> xlamem.Dump:
        sizes = [512 * math.prod(map(int, re.findall(r"\d+", shape[4:]))) for shape in shapes]
        allocations = "".join(
            f"allocation {i}: size {size}, parameter {i}, shape |{shape}| at ShapeIndex {{}}:\n"
            + value(i, f"{side}{i}", size, 0, shape)
            for i, (shape, size) in enumerate(zip(shapes, sizes, strict=True))
        )
        temporary = f"allocation {len(shapes)}: size 64, preallocated-temp:\n" + value(99, "t", 64, 0, "f32[16]")
        ranges = [f"{side}{i}{{}}:0-4" for i in range(len(shapes))]
        return xlamem.read(make(attacks.dump([], allocations=allocations + temporary, ranges=[*ranges, "t{}:1-2"])))

    edits = xlamem.diff(program("a", a), program("b", b)).edits.to_pylist()
    assert sorted(row["text"] for row in edits if row["kind"] == "arguments") == wanted
    assert all(row["change"] == 0 for row in edits if "stacked" in row["text"])


def test_layers_beside_arguments_that_are_stacked(make: Callable[..., Path]) -> None:
    """Layers are named unless the arguments, most of which are theirs, differ in how they are stacked only."""

    def program(side: str, layers: int, shapes: list[str]) -> xlamem.Dump:
        arguments = "".join(
            f"allocation {i + 1}: size {64 * math.prod(map(int, re.findall(r'[0-9]+', shape[3:])))}, parameter {i}, "
            f"shape |{shape}| at ShapeIndex {{}}:\n" + value(50 + i, f"{side}{i}", 64, 0, shape)
            for i, shape in enumerate(shapes)
        )
        values = [value(i, f"v{i}", 64, 64 * i, "f32[16]") for i in range(layers)]
        records = [record(i, f"v{i}", add(f"layer_{i}/mul")) for i in range(layers)]
        records += [record(50 + i, f"{side}{i}", f"{shape} parameter({i})") for i, shape in enumerate(shapes)]
        ranges = [f"v{i}{{}}:0-3" for i in range(layers)] + [f"{side}{i}{{}}:0-4" for i in range(len(shapes))]
        temporary = "allocation 0: size 1024, preallocated-temp:\n" + "".join(values)
        return xlamem.read(make(attacks.dump([], allocations=temporary + arguments, records=records, ranges=ranges)))

    gone = "2 layers are gone: layer_2, layer_3"
    stacked, single = program("a", 2, ["f32[2,8]"]), program("b", 4, ["f32[8]"] * 2)
    assert texts(single, stacked, "layers") == texts(stacked, single, "layers") == []
    large = "f32[512,512]"
    assert texts(program("b", 4, [V, V, large]), program("a", 2, ["f32[2,8]", large]), "layers") == [gone]
    # An argument that only one side has is as large as what is stacked, or larger.
    for other in ("f32[16]", "f32[32]"):
        assert texts(program("b", 4, [V, V, other]), program("a", 2, ["f32[2,8]"]), "layers") == [gone]
        assert texts(program("b", 4, [V, V]), program("a", 2, ["f32[2,8]", other]), "layers") == [gone]
    assert texts(program("b", 4, [V, V, W]), program("a", 2, ["f32[2,8]"]), "layers") == [gone]


def test_outputs_that_are_stacked(make: Callable[..., Path]) -> None:
    """They are stated if no argument is stacked in the same way, which they would update."""

    def program(arguments: list[str], outputs: list[str]) -> xlamem.Dump:
        kinds = [f"parameter {i}, shape |{shape}| at ShapeIndex {{}}" for i, shape in enumerate(arguments)]
        kinds += ["output shape is |f32[1]|, maybe-live-out"] * len(outputs)
        shapes = [*arguments, *outputs]
        name = "pq"[len(outputs) > 2]
        sizes = [4 * math.prod(map(int, re.findall("[0-9]+", shape[3:]))) for shape in shapes]
        allocations = "".join(
            f"allocation {i}: size {size}, {kind}:\n" + value(i, f"{name}{i}", size, 0, shape)
            for i, (kind, shape, size) in enumerate(zip(kinds, shapes, sizes, strict=True))
        )
        ranges = [f"{name}{i}{{}}:0-4" for i in range(len(shapes))]
        return xlamem.read(make(attacks.dump([], allocations=allocations, ranges=ranges)))

    many, one = program([], [W] * 3), program([], [STACK_OF_W])
    assert texts(many, one, "outputs") == ["3 outputs are stacked now: 3 × f32[16,8] -> f32[3,16,8]"]
    assert texts(one, many, "outputs") == ["1 output is no longer stacked: f32[3,16,8] -> 3 × f32[16,8]"]
    assert texts(program([W] * 3, [W] * 3), program([STACK_OF_W], [STACK_OF_W]), "outputs") == []


@pytest.mark.parametrize(
    ("name", "stated", "shown"), [("layers_2_up", "argument 0", "layers_2_up"), ("Arg_0.1", "f32[16]", "argument")]
)
def test_names_of_arguments_that_only_instructions_have(
    name: str, stated: str, shown: str, make: Callable[..., Path]
) -> None:
    """Without op_names, the instruction of an argument may still say what it is."""
    members = {role: text.replace(b"p0", name.encode()) for role, text in with_arguments(("w", "f32[16]", 64)).items()}
    members.pop("buffer-assignment-values")
    empty = attacks.dump([], allocations="allocation 0: size 8, preallocated-temp:\n" + value(0, "t", 8, 0, "f32[2]"))
    a, b = (xlamem.read(make(dump)) for dump in (empty, members))
    assert texts(a, b, "arguments") == [f"1 argument is new: {stated}"]
    assert shown in difference_groups(xlamem.diff(a, b), ("buffer",))["buffer"].to_pylist()
