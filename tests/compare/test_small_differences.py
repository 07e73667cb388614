"""Rules of a comparison on the smallest inputs that tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import pyarrow as pa
import pytest
from attacks import record, value

import xlamem
from xlamem.compare.compiler import formats_exclude_each_other
from xlamem.compare.groups import difference_groups
from xlamem.compare.rows import Differences
from xlamem.compare.series import grew


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


def test_programs_that_grew() -> None:
    """An unknown peak does not hide that more must fit."""
    columns = {
        "device_total_first": [1, 1, 2, None, None, 1], "device_total_last": [2, 1, 1, 2, None, None],
        "peak_first": [None, None, 1, 1, None, 1], "peak_last": [None, 7, 2, 2, None, 1],
    }  # fmt: skip
    assert grew(pa.table(columns)).to_pylist() == [True, False, True, True, False, False]


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


def test_another_set_of_recomputed_operations(make: Callable[..., Path]) -> None:
    """A policy of `jax.checkpoint` may change few instructions. An operation that is new in the model is none."""
    forward = ["mul", "tanh", "dot_general", "exp", *(f"layer_{i}/sin" for i in range(9))]
    always = [f"layer_{i}/sin" for i in range(9)]

    def program(recomputed: list[str], *others: str) -> xlamem.Dump:
        paths = [f"jvp()/{path}" for path in (*forward, *others)]
        paths += [f"transpose(jvp())/checkpoint/rematted_computation/{path}" for path in (*always, *recomputed)]
        values = [value(i, f"v{i}", 64, 64 * i, "f32[16]") for i in range(len(paths))]
        records = [record(i, f"v{i}", add(path)) for i, path in enumerate(paths)]
        ranges = [f"v{i}{{}}:0-3" for i in range(len(paths))]
        return xlamem.read(make(attacks.dump(values, records=records, ranges=ranges)))

    def edits(a: xlamem.Dump, b: xlamem.Dump) -> list[str]:
        return [r["text"] for r in xlamem.diff(a, b).edits.to_pylist() if r["kind"] == "rematerialization"]

    few, more, moves = program(["mul"]), program(["mul", "dot_general"]), program(["mul", "convert_element_type"])
    assert edits(few, more) == ["the backward pass recomputes 11 instead of 10 instructions, now also dot_general"]
    assert edits(more, few) == ["the backward pass recomputes 10 instead of 11 instructions, no longer dot_general"]
    assert edits(few, moves) == []
    assert edits(few, program(["mul", "cos"], "cos")) == []


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
