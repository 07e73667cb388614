"""Lines that run more or fewer operations, such as those in a loop of Python."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import repeat_edits
from xlamem.compare.context import Names
from xlamem.compare.repeat_edits import repeats
from xlamem.compare.rows import Shape


def context(a: dict[str, int], b: dict[str, int], lines: Any = None, **about: Any) -> Any:
    single, temporary = np.array([1, 1, 0], bool), np.array([1, 0, 1], bool)
    none = Counter[str]()
    return SimpleNamespace(**{
        "op_names": (a, b), "opcodes": (0, 0), "instruction_names": (0, 0), "lines": lines or (none, none),
        "rows": SimpleNamespace(single=single, temporary=temporary), "platforms_differ": False, "has_hlo": True,
        "other_chip": None, "none": np.zeros(3, bool), "interface": SimpleNamespace(shapes={}), **about,
    })  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in ("layers_changed", "loops", "rematerialization"):
        monkeypatch.setattr(repeat_edits, rule, lambda c: iter(()))
    monkeypatch.setattr(repeat_edits, "_products", lambda counts, *_: Counter(counts))


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ({"x": 20}, {"x": 25}, "the same lines run more operations: x 20 -> 25"), ({"x": 20}, {"x": 24}, None),
        ({"x": 25}, {"x": 20}, "the same lines run fewer operations: x 25 -> 20"), ({"x": 1}, {"x": 4}, None),
        ({"x": 1}, {"x": 5}, "the same lines run more operations: x 1 -> 5"), ({}, {"x": 9}, None),
        ({"x": 8, "y": 9, "z": 9}, {"x": 16, "y": 36, "z": 4},
            "the same lines run more operations: y 9 -> 36, x 8 -> 16"),
        ({"jvp()/x": 8, "transpose(jvp())/while/body/x": 9}, {"jvp()/x": 16, "transpose(jvp())/while/body/x": 36},
            "the same lines run more operations: backward x 9 -> 36, x 8 -> 16"),
        ({"x": 8, "y": 16}, {"x": 16, "y": 8}, None), ({"x": 8}, {"x": 8}, None),
    ],
)  # fmt: skip
def test_operations_of_the_same_lines(a: dict[str, int], b: dict[str, int], text: str | None) -> None:
    """XLA splits and merges few of them: what changes by four and a fifth is another program."""
    found = [(e.text, e.claims.tolist(), e.evidence) for e in repeats(context(a, b))]
    assert found == ([(text, [True, False, False], "names")] if text else [])


def test_other_lines_or_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of operations follow from new lines, layers, loops, recomputation and another platform."""
    a, b = {"x": 8}, {"x": 16}
    assert len([*repeats(context(a, b, (Counter(x=1), Counter(x=1))))]) == 1
    assert not [*repeats(context(a, b, (Counter(x=1), Counter(x=2))))]
    assert not [*repeats(context(a, b, platforms_differ=True))]
    assert not [*repeats(context(a, b, has_hlo=False))]
    for rule in ("layers_changed", "loops", "rematerialization"):
        with monkeypatch.context() as patch:
            patch.setattr(repeat_edits, rule, lambda c: iter(["edit"]))
            assert not [*repeats(context(a, b))]


@pytest.mark.parametrize(("after", "claims"), [(8, [True, False, False]), (16, [False, False, False])])
def test_operations_of_larger_arguments(after: int, claims: list[bool]) -> None:
    """They are computed in more parts: their dimension is the cause."""
    shapes = {(Shape("f32", (8, 4)), Shape("f32", (after, 4))): "x"}
    (edit,) = repeats(context({"x": 8}, {"x": 16}, interface=SimpleNamespace(shapes=shapes)))
    assert edit.claims.tolist() == claims


def names(*texts: str | None) -> Names:
    encoded = pa.array(texts, pa.string()).dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1).to_numpy(), np.int64)
    return Names(codes, encoded.dictionary, np.ones(len(codes), np.int64))


def test_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fusions contain copies of what is cheap to compute, and XLA computes some products a second time."""
    monkeypatch.undo()
    rows = [
        ("jit(f)/dot_general", "dot", "dot.1"), ("jit(f)/dot_general", "dot", "dot.2"),
        ("jit(f)/dot_general", "dot", "dot.2.remat"), ("jit(f)/dot_general", "custom-call", "cublas.1"),
        ("jit(f)/mul", "custom-call", "call.1"), ("jit(f)/mul", "multiply", "multiply.1"), (None, "dot", "dot.3"),
        ("jit(f)/jvp(jit(fft))", "convolution", "convolution.1"), ("convolution.7", "convolution", "convolution.7"),
        ("(jit(f)/dot_general;jit(f)/mul)", "dot", "dot.4"),
    ]  # fmt: skip
    op_names, opcodes, instructions = (names(*column) for column in zip(*rows, strict=True))
    found = repeat_edits._products(op_names, opcodes, instructions)
    assert found == {"dot_general": 3, "jvp(jit(fft))": 1}
    assert not repeat_edits._products(names(None), names("dot"), names("dot.1"))
