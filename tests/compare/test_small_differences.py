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
