"""Rules that find edits, at their thresholds, on stand-ins for two programs."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from stored import check

from xlamem.compare import context as context_module
from xlamem.compare import gather_edits, program_edits, rest_edits, shape_edits
from xlamem.compare.context import Context, Edit, Names
from xlamem.compare.gathers import Gather
from xlamem.compare.program_edits import (
    compiler,
    constants,
    flags,
    host_memory,
    instructions,
    memory_spaces,
    operations,
)
from xlamem.compare.rest_edits import dimensions_of_rest, element_types_of_rest
from xlamem.compare.rows import Differences, Shape, ShapePairs, shape_text
from xlamem.compare.shape_edits import Collectives, conversions, dimensions, element_types, loops, retyped
from xlamem.compare.update_edits import updates_in_place
from xlamem.compute.layout import CONSTANT, DONATED, TEMP


class Rows:
    """Contributions of which a rule asks: each answer is a mask with the words of the question."""

    def __init__(self, n: int = 3) -> None:
        self.n = n
        self.shapes = self
        self.asked: list[Any] = []
        self.single, self.temporary = np.array([1, 1, 0], bool), np.array([1, 0, 0], bool)
        self.only_in_a, self.only_in_b = np.array([1, 0, 0], bool), np.array([0, 1, 0], bool)

    def is_in(self, column: str, texts: Any) -> Any:
        self.asked.append((column, tuple(texts)))
        return np.array([column.endswith("_a"), column.endswith("_b"), False], bool)

    def with_ratios(self, ratios: Any) -> Any:
        self.asked.append(sorted(ratios))
        return np.array([0, 0, 1], bool)

    def where(self, holds: Any) -> Any:
        return np.array([0, 0, 1], bool)

    def bytes_of_paths(self) -> dict[str, int]:
        return {"a/new": 5, "a/other": 9}

    def in_scopes(self, chosen: Any) -> Any:
        self.asked.append(set(chosen))
        return np.zeros(self.n, bool)


def context(**about: Any) -> Any:
    rows, names = Rows(), SimpleNamespace(texts=pa.array([], pa.string()))
    return SimpleNamespace(**{"rows": rows, "op_names": (names, names), "none": np.zeros(rows.n, bool),
                              "platforms_differ": False, "platforms": {None}, "other_chip": None, "devices": (1, 1),
                              "has_chips": False, "has_hlo": True, "has_names": True, **about})  # fmt: skip


def texts(found: Any) -> list[str]:
    return [edit.text for edit in found]


@pytest.mark.parametrize(("a", "b", "n"), [(0, 1 << 16, 1), (1 << 16, 0, 1), (0, (1 << 16) - 1, 0), (5, 5, 0)])
def test_constants(a: int, b: int, n: int) -> None:
    """Those of one side explain buffers of either."""
    sides = [SimpleNamespace(allocation_size=np.array([size, 99]), category=np.array([CONSTANT, CONSTANT + 1]))
             for size in (a, b)]  # fmt: skip
    c = context(m=SimpleNamespace(a=sides[0], b=sides[1]))
    found = [*constants(c)]
    assert len(found) == n
    if n:
        assert found[0].claims.tolist() == [True, True, False]
        assert found[0].text == f"constants take {'64.00 KiB' if b else '0 B'} instead of {'64.00 KiB' if a else '0 B'}"


def checkpointed(file: str, *functions: str) -> Any:
    """Return a program whose lines 7, 8, … in these functions call one with `jax.checkpoint`, and its names."""
    n = len(functions)
    frames = pa.table({
        "id": range(1, n + 1), "parent": [0] * n, "line": range(7, n + 7), "function": functions,
        "file": [file] * n,
    })  # fmt: skip
    names = SimpleNamespace(frames=np.arange(1, n + 1), instructions=lambda pattern: np.ones(n, bool))
    return SimpleNamespace(tables={"frames": frames}), names


def test_calls_of_checkpoint_in_a_library() -> None:
    """The line of the model that calls the library counts, if there is one."""
    frames = pa.table({
        "id": [1, 2, 3], "parent": [0, 1, 0], "line": [7, 153, 9], "function": ["block", "wrapped", "run"],
        "file": ["/m/model.py", "/x/site-packages/flax/lib.py", "/x/site-packages/a.py"],
    })  # fmt: skip
    calls = np.array([True, True, False])
    names: Any = SimpleNamespace(frames=np.array([2, 3, 1]), instructions=lambda pattern: calls)
    p: Any = SimpleNamespace(tables={"frames": frames})
    assert program_edits._checkpointed_calls(p, names) == {("model.py", "block"): "model.py:7"}


@pytest.mark.parametrize(
    ("file", "n"),
    [
        ("/pip/target/flax/nnx/transforms/general.py", 0), ("/lib/equinox/_ad.py", 0), ("/lib/jax/_src/api.py", 0),
        ("/me/flax/train.py", 1), ("/me/jax/src/flax.py", 1), ("model.py", 1),
    ],
)  # fmt: skip
def test_libraries_that_are_installed_elsewhere(file: str, n: int) -> None:
    assert len(program_edits._checkpointed_calls(*checkpointed(file, "block"))) == n


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (("/a/f.py", "loss"), ("/b/v/f.py", "loss"), ([], [])),
        (("/a/f.py", "loss"), ("/b/f.py", "block", "loss"), ([], ["f.py:7"])),
        (("/a/f.py", "loss", "block"), ("/a/f.py", "loss"), (["f.py:8"], [])),
        (("/a/f.py", "loss"), ("/a/f.py", "loss_fn"), ([], [])), (("/a/f.py",), ("/a/f.py", "loss"), ([], ["f.py:7"])),
    ],
)
def test_calls_of_checkpoint_on_one_side(a: Any, b: Any, wanted: Any) -> None:
    """A line that moved, in another folder or in a function that was renamed, is not new."""
    (p, names_p), (q, names_q) = checkpointed(*a), checkpointed(*b)
    c = context(m=SimpleNamespace(a=p, b=q), op_names=(names_p, names_q))
    assert program_edits._calls_of_one_side(c) == wanted


@pytest.mark.parametrize(
    ("functions", "lines", "wanted"),
    [
        (("block", "block"), (8, 9), "block of model.py"), (("block", "block"), (8, 8), "model.py:8"),
        (("block", "head"), (8, 9), "model.py:8"), (("f.<locals>.<lambda>",) * 2, (8, 9), "model.py:8"),
        (("", ""), (8, 9), "model.py:8"),
    ],
)  # fmt: skip
def test_a_function_with_checkpoint_that_several_lines_call(functions: Any, lines: Any, wanted: str) -> None:
    """HLO keeps one of the calls. What changed may be a decorator of the function, through a library."""
    library = "/x/site-packages/flax/nnx/transforms/lib.py"
    frames = pa.table({
        "id": range(1, 8), "parent": [0, 1, 1, 2, 3, 4, 5], "line": [99, *lines, 153, 153, 20, 21],
        "function": ["loss", "forward", "forward", "wrapped", "wrapped", *functions],
        "file": ["/m/model.py", "/m/model.py", "/m/model.py", library, library, "/m/model.py", "/m/model.py"],
    })  # fmt: skip
    called = {program_edits.CHECKPOINTED_CALL: [True, False, False], program_edits.RECOMPUTED: [False, True, True]}
    names: Any = SimpleNamespace(frames=np.array([4, 6, 7]), instructions=lambda pattern: np.array(called[pattern]))
    none: Any = SimpleNamespace(frames=np.array([], int), instructions=lambda pattern: np.array([], bool))
    p: Any = SimpleNamespace(tables={"frames": frames})
    c = context(m=SimpleNamespace(a=p, b=p), op_names=(none, names))
    assert program_edits._calls_of_one_side(c) == ([], [wanted])


# -- loops ---------------------------------------------------------------------------------------


def looped(monkeypatch: pytest.MonkeyPatch, a: list[int], b: list[int], *, in_scopes: bool = False,
    **about: Any) -> Any:
    monkeypatch.setattr(shape_edits, "_trip_counts_in_model", lambda p: p)
    unnamed = about.pop("unnamed", ([], []))
    monkeypatch.setattr(shape_edits, "_unnamed_trip_counts", lambda p: unnamed[0 if p is a else 1])
    monkeypatch.setattr(shape_edits, "_in_single_scopes", lambda c, gone: in_scopes)
    shapes, names = about.pop("shapes", {}), about.pop("names", {"a": {None}, "b": {None}})
    monkeypatch.setattr(shape_edits, "_loop_names", lambda p: names["a" if p is a else "b"])
    c = context(m=SimpleNamespace(a=a, b=b), interface=SimpleNamespace(shapes=shapes), **about)
    found = [*loops(c)]
    return [(e.text, e.claims.tolist()) for e in found], c.rows.asked


@pytest.mark.parametrize(
    ("a", "b", "text", "ratios"),
    [
        ([], [5], "1 loop of 5 iterations is new", [5]), ([5], [], "1 loop of 5 iterations is gone", [Fraction(1, 5)]),
        ([7], [7, 5], "1 loop of 5 iterations is new", [5]), ([], [5, 5], "2 loops of 5 iterations are new", [5]),
        ([], [-1], "1 loop is new", []), ([1], [], "1 loop is gone", []), ([], [0], "1 loop is new", []),
        ([5, 6], [6, 7, 8], "1 loop is new", [7, 8]),
        ([2000], [], "1 loop of 2,000 iterations is gone", [Fraction(1, 2000)]),
    ],
)  # fmt: skip
def test_loops_of_one_side(
    a: list[int], b: list[int], text: str, ratios: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looped(monkeypatch, a, b) == ([(text, [True, False, True])], [ratios])
    assert looped(monkeypatch, a, b, in_scopes=True)[0] == []


@pytest.mark.parametrize(("other", "claims"), [("f/while", [False] * 3), ("g/while", [True, False, True])])
def test_loops_that_follow_from_a_dimension(other: str, claims: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same lines loop more often, as in each level of an associative scan: an argument is longer."""
    names = {"a": {"f/while"}, "b": {"f/while", other}}
    found, _ = looped(monkeypatch, [5], [5, 5], shapes=SHAPES, names=names)
    assert found == [("1 loop of 5 iterations is new", claims)]


@pytest.mark.parametrize(
    ("a", "b", "unnamed", "n"),
    [
        ([384], [384, 384], ([384], [384, 384]), 0), ([384], [], ([384], []), 0), ([], [384], ([], []), 1),
        ([12, 12], [12, 12], ([], [12, 12]), 0), ([12, 12], [12, 12, 9], ([], [12, 12, 9]), 0),
        ([12], [12, 9, 9], ([], [9]), 1), ([12], [12, 9], ([], [12]), 1),
    ],
)  # fmt: skip
def test_loops_that_xla_makes(
    a: list[int], b: list[int], unnamed: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no op_name, and neither have those of models that lost it: then the other side has the loop."""
    found, _ = looped(monkeypatch, a, b, unnamed=unnamed)
    assert len(found) == n


def test_loops_without_names() -> None:
    """They tell nothing if the program has no op_names at all."""
    rows = [("while", None), ("add", "f/add"), ("while", "f/while")]
    opcodes, names = zip(*rows, strict=True)
    for texts, found in ((names, [5]), ((None, None, None), [])):
        p: Any = SimpleNamespace(
            tables={"instructions": pa.table({"op_name": pa.array(texts, pa.string())})},
            texts=lambda *_: (np.arange(len(rows)), pa.array(opcodes)),
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shape_edits, "trip_counts", lambda p: np.array([5, 1, 6]))
            assert shape_edits._unnamed_trip_counts(p) == found


def test_loops_that_follow_are_not_loops_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backward pass with `jax.checkpoint` repeats them, and XLA makes them of a scatter."""
    rows = [
        ("while", "f/while", 5), ("add", "f/add", 1), ("while", "t()/checkpoint/rematted_computation/while", 6),
        ("while", None, 7), ("while", "vmap()/scatter-add", 8), ("while", "gather", 9), ("while", "scatter/while", 4),
    ]  # fmt: skip
    opcodes, names, counts = zip(*rows, strict=True)
    p: Any = SimpleNamespace(
        tables={"instructions": pa.table({"op_name": pa.array(names, pa.string())})},
        texts=lambda *_: (np.arange(len(rows)), pa.array(opcodes)),
    )
    monkeypatch.setattr(shape_edits, "trip_counts", lambda p: np.array(counts))
    assert shape_edits._trip_counts_in_model(p) == [5, 7, 4]


SHAPES = {(Shape("f32", (6, 2)), Shape("f32", (8, 2))): "w", (Shape("f32", (6,)), Shape("f32", (8,))): "v"}


@pytest.mark.parametrize(
    ("a", "b", "shapes", "text", "claims"),
    [
        ([6], [8], {}, "loops run 8 iterations instead of 6", [True, False, True]),
        ([6], [8], SHAPES, "a dimension of 6 is 8 now, as in argument w; loops run 8 iterations instead of 6",
            [False, False, True]),
        ([6, 3], [8, 3], {}, "loops run 8 iterations instead of 6", [True, False, True]),
        ([6, -1], [8, 8], {}, "loops run 8 iterations instead of 6", [True, False, True]),
        ([12], [16], SHAPES, None, None),
        ([6, 7], [8, 9], {}, None, None), ([6], [6], {}, None, None), ([6], [-1], {}, None, None),
        ([6], [0], SHAPES, None, None),
    ],
)  # fmt: skip
def test_loops_with_another_trip_count(
    a: list[int], b: list[int], shapes: Any, text: str | None, claims: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = looped(monkeypatch, a, b, shapes=shapes)
    assert found == ([(text, claims)] if text else [])


@pytest.mark.parametrize(
    ("mine", "theirs", "names", "inside"),
    [
        ({"a/b"}, set(), ["jit(f)/a/c/x"], True), ({"a/b"}, set(), ["jit(f)/a/b/x"], False), ({"a"}, set(), [], False),
        ({"a/b"}, {"a/b"}, [], False), ({"a/b", "c"}, set(), [], False), ({"a/b", "a/d"}, {"a/d"}, [], True),
        ({"a/b", "a/d"}, set(), ["jit(f)/a/d/x"], False), ({"a/b"}, set(), ["jit(f)/x", "x", ""], True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gone", [False, True])
def test_loops_inside_of_a_library(
    mine: set[str], theirs: set[str], names: list[str], inside: bool, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_edits, "_loop_scopes", lambda p: p)
    own, other = SimpleNamespace(texts=pa.array(["jit(f)/q/x"])), SimpleNamespace(texts=pa.array(names, pa.string()))
    sides = (mine, theirs) if gone else (theirs, mine)
    c = context(m=SimpleNamespace(a=sides[0], b=sides[1]), op_names=(own, other) if gone else (other, own))
    assert shape_edits._in_single_scopes(c, gone=gone) is inside


# -- element types -------------------------------------------------------------------------------


def lines(**counts: int) -> Counter[str]:
    return Counter({name.replace("__", "/"): n for name, n in counts.items()})


@pytest.mark.parametrize(
    ("a", "b", "mostly"),
    [
        (lines(convert_element_type=1), lines(), True), (lines(), lines(), False),
        (lines(), lines(a__reduce_precision=1), False),
        (lines(convert_element_type=2), lines(mul=1), False), (lines(convert_element_type=3), lines(mul=1), True),
        (lines(Cast_1=3), lines(Reshape=9, mul=1), True), (lines(Cast=2), lines(AddN_2=1), False),
        (lines(convert_element_type=1), lines(reshape=9), True), (lines(a__convert_element_types=9), lines(), False),
    ],
)  # fmt: skip
def test_whether_most_changes_are_conversions(a: Counter[str], b: Counter[str], mostly: bool) -> None:
    c: Any = SimpleNamespace(lines=(a, b))
    assert shape_edits._mostly_converts(c) is mostly


def typed(
    monkeypatch: pytest.MonkeyPatch, resized: list[Any], *, clause: str = "", mostly: bool = False, shapes: Any = None,
    matched: int = 100, numbers: tuple[str, ...] = (),
) -> list[tuple[str, str]]:  # fmt: skip
    monkeypatch.setattr(shape_edits, "_conversions", lambda c: clause)
    monkeypatch.setattr(shape_edits, "_numbers_of_conversions", lambda c: list(numbers))
    monkeypatch.setattr(shape_edits, "_mostly_converts", lambda c: mostly)
    converts = clause or numbers
    c = context(resized=[] if converts else resized, reshaped=resized if converts else [], matched_bytes=matched,
                interface=SimpleNamespace(shapes=shapes or {}))  # fmt: skip
    return [(e.text, e.evidence) for e in element_types(c)]


def test_element_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 15 % of the bytes, or 2 % with conversions; of an argument in any case, also integers for floats."""
    def change(n: int, before: str = "f32", after: str = "bf16") -> Any:
        return Shape(before, (2,)), Shape(after, (2,)), n

    assert typed(monkeypatch, [change(15)]) == [("bf16 instead of f32", "buffers")]
    assert typed(monkeypatch, [change(14)]) == typed(monkeypatch, [change(50, "f32", "s32")]) == []
    assert typed(monkeypatch, [change(50, "s8", "u8")]) == [("u8 instead of s8", "buffers")]
    assert typed(monkeypatch, [change(2)], clause="; c") == [("bf16 instead of f32; c", "buffers")]
    assert typed(monkeypatch, [change(1)], clause="; c") == []
    assert typed(monkeypatch, [change(50)], clause="; c") == [("bf16 instead of f32; c", "buffers")]
    assert typed(monkeypatch, [change(51)], clause="; c") == [("bf16 instead of f32; c", "names")]
    assert typed(monkeypatch, [change(5)], clause="; c", mostly=True) == [("bf16 instead of f32; c", "names")]
    assert typed(monkeypatch, [change(20), change(6, "bf16", "f32")]) == []
    numbers: Any = {"numbers": ("4 -> 0 conversions to bf16",), "mostly": True}
    assert typed(monkeypatch, [change(2)], **numbers) == [
        ("bf16 instead of f32; 4 -> 0 conversions to bf16", "names")
    ]
    assert typed(monkeypatch, [change(2)], shapes={change(0)[:2]: "w"}, **numbers) == [
        ("bf16 instead of f32, as in argument w", "interface")
    ]
    shapes = {change(0)[:2]: "w", (Shape("f32", (3,)), Shape("bf16", (3,))): "x"}
    assert typed(monkeypatch, [change(1)], shapes=shapes) == [("bf16 instead of f32, as in argument w", "interface")]
    image = {change(0, "f32", "u8")[:2]: "image"}
    assert typed(monkeypatch, [change(50, "f32", "u8")]) == []
    assert typed(monkeypatch, [change(1, "f32", "u8")], shapes=image) == [
        ("u8 instead of f32, as in argument image", "interface")
    ]


def test_floats_that_are_booleans_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a loop stacks what it has not yet converted to floats. A mask of another shape is another array."""
    stacks, mask = Shape("bf16", (4, 8)), Shape("pred", (4, 8))
    assert typed(monkeypatch, [(stacks, mask, 15)], clause="; c") == [("pred instead of bf16; c", "buffers")]
    assert typed(monkeypatch, [(stacks, mask, 51)], clause="; c") == [("pred instead of bf16; c", "names")]
    assert typed(monkeypatch, [(stacks, mask, 14)], clause="; c") == []
    assert typed(monkeypatch, [(stacks, Shape("pred", (8, 4)), 51)], clause="; c") == []


@pytest.mark.parametrize(("platform", "differ", "n"), [("cpu", False, 2), ("tpu", False, 0), ("gpu", True, 0)])
def test_operations_with_another_type(platform: str, differ: bool, n: int) -> None:
    types = (
        {"a/dot": Counter(f32=2), "b/mul": Counter(f32=1, bf16=1), "c/convert_element_type": Counter(f32=1),
            "d": Counter(f32=1)},
        {"a/dot": Counter(bf16=2), "b/mul": Counter(f32=1), "c/convert_element_type": Counter(bf16=1),
            "e": Counter(bf16=1)},
    )  # fmt: skip
    c: Any = SimpleNamespace(
        platforms_differ=differ, m=SimpleNamespace(a=SimpleNamespace(tables=SimpleNamespace(platform=platform))),
            types=types
    )
    assert retyped(c) == ({("f32", "bf16"): ["a/dot"], ("bf16", ""): ["b/mul"]} if n else {})


@pytest.mark.parametrize(
    ("moved", "text"),
    [
        ({("f32", "bf16"): ["a/dot"]}, "a/dot uses bf16 instead of f32"),
        ({("f32", "bf16"): ["a/dot", "b/dot"], ("", "f64"): ["c"]}, "a/dot, b/dot use bf16 instead of f32"),
        ({("", "f64"): ["c"]}, "c uses f64"), ({("f16", ""): ["c", "d"]}, "c, d no longer use f16"),
    ],
)  # fmt: skip
def test_types_of_operations_in_words(moved: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_edits, "retyped", lambda c: moved)
    (found,) = shape_edits.types_of_operations(context())
    assert found.text == text or found.text == text.replace("c no longer uses", "c no longer use")


def test_conversions_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_edits, "_mostly_converts", lambda c: True)
    monkeypatch.setattr(shape_edits, "element_types", lambda c: [])
    path = "jit(f)/a/convert_element_type"
    before = {path: Counter(f32=2), "jit(f)/b/convert_element_type": Counter(f32=1)}
    after = {path: Counter(f32=5, bf16=1), "jit(f)/b/convert_element_type": Counter(f32=1)}
    assert texts(conversions(context(types=(before, after)))) == [
        "0 -> 1 conversions to bf16 in a; 3 -> 6 conversions to f32 in a"
    ]
    assert texts(conversions(context(types=(before, before)))) == []
    dots = "jit(f)/a/dot", "jit(f)/b/dot", "jit(f)/dot"
    narrow, wide = ({**side, **{dot: Counter([t]) for dot in dots}}
                    for side, t in ((before, "bf16"), (after, "f32")))  # fmt: skip
    assert texts(conversions(context(types=(narrow, wide)))) == [
        "a/dot uses f32 instead of bf16; 0 -> 1 conversions to bf16 in a; 3 -> 6 conversions to f32 in a"
    ]
    monkeypatch.setattr(shape_edits, "element_types", lambda c: [SimpleNamespace(evidence="names")])
    assert texts(conversions(context(types=(before, after)))) == []
    monkeypatch.setattr(shape_edits, "element_types", lambda c: [SimpleNamespace(evidence="buffers")])
    assert len(texts(conversions(context(types=(before, after))))) == 1
    monkeypatch.setattr(shape_edits, "_mostly_converts", lambda c: False)
    assert texts(conversions(context(types=(before, after)))) == []


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ([], ["f/convert_element_type"], "; conversions are new"),
        (["f/jvp()/convert_element_type"], ["f/a/convert_element_type"],
         "; conversions are new in a; conversions are gone"),
        ([], ["f/convert_element_type", "f/a/reduce_precision"],
         "; conversions are new in a, the outermost scope"),
    ],
)  # fmt: skip
def test_scopes_of_conversions(a: list[str], b: list[str], text: str) -> None:
    """Without a scope, the name of the operation is not one."""
    names = [Names(np.arange(len(side)), pa.array([f"jit(f)/{name[2:]}" for name in side], pa.string()),
                   np.ones(len(side), np.int64)) for side in (a, b)]  # fmt: skip
    assert shape_edits._conversions(context(has_hlo=True, op_names=names)) == text


# -- dimensions and sharding ---------------------------------------------------------------------


def resized(*pairs: tuple[tuple[int, ...], tuple[int, ...], int]) -> list[Any]:
    return [(Shape("f32", a), Shape("f32", b), n) for a, b, n in pairs]


@pytest.mark.parametrize(
    ("found", "arguments", "devices", "texts"),
    [
        ([((4, 3), (8, 3), 15)], {}, 1, ["a dimension of 4 is 8 now"]),
        ([((4, 3), (8, 3), 14)], {}, 1, []),
        ([((4, n), (8, n), 1) for n in range(11, 19)], {}, 1, ["a dimension of 4 is 8 now"]),
        ([((4, n), (8, n), 1) for n in range(11, 18)], {}, 1, []),
        ([((4, n), (8, n), 1) for n in range(11, 19)] + [((3,), (9,), 1)], {}, 1, []),
        ([((4, 3), (8, 3), 15)], {}, 2, ["a dimension of 4 is 8 now on each device"]),
        ([((4,), (8,), 9), ((12,), (24,), 9)], {}, 1, ["a dimension of 4 is 8 now"]),
        ([((4,), (8,), 9), ((6,), (12,), 9)], {}, 1, []),
        ([((4,), (8,), 9), ((6,), (12,), 9)], {((6,),
        (12,)): "w"}, 1, ["a dimension of 6 is 12 now, as in argument w"]),
        ([((4,), (8,), 9), ((6,), (12,), 20)], {((6,), (12,)): "edges", ((4,), (8,)): "nodes"}, 1,
         ["a dimension of 6 is 12 now, as in argument edges"]),
        ([((16,), (64,), 20)], {((4,), (8,)): "w"}, 1, ["a dimension of 4 is 8 now, as in argument w"]),
        ([], {((4,), (8,)): "argument 3"}, 1, []),
        ([((4,), (8,), 1)], {((4,), (8,)): "argument 3"}, 1, ["a dimension of 4 is 8 now, as in argument 3"]),
        ([((4, 3), (8, 5), 20)], {}, 1, ["a dimension of 3 is 5 now", "a dimension of 4 is 8 now"]),
        ([((4, 3), (8, 12), 20)], {((4,), (8,)): "x", ((3,), (12,)): "sharded"}, 4,
         ["a dimension of 4 is 8 now on each device, as in argument x"]),
        ([((1, 9), (64, 9), 20)], {}, 1, []), ([((64, 9), (1, 9), 20)], {}, 1, []),
        ([((1, 9), (64, 9), 20)], {((1,), (64,)): "x"}, 1, ["a dimension of 1 is 64 now, as in argument x"]),
        ([((2, 9), (4, 9), 20), ((32, 1, 9), (64, 1, 9), 20), ((32, 2), (64, 2), 20), ((32, 3), (64, 3), 20)], {}, 1,
         ["a dimension of 2 is 4 now", "a dimension of 32 is 64 now"]),
        ([((2, 9), (4, 9), 20), ((2, 8), (4, 8), 9), ((32, 1, 9), (64, 1, 9), 20), ((32, 2), (64, 2), 20),
          ((32, 3), (64, 3), 20)], {}, 1, ["a dimension of 2 is 4 now"]),
    ],
)  # fmt: skip
def test_dimensions(
    found: Any, arguments: Any, devices: int, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Multiples count as one dimension: that of an argument, the one with most bytes, or else the first."""
    none = Collectives(Counter(), devices, frozenset())
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: (none, none))
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: {Fraction(3, 12)})
    monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: set())
    shapes = {(Shape("f32", a), Shape("f32", b)): name for (a, b), name in arguments.items()}
    c = context(resized=resized(*found), matched_bytes=100, interface=SimpleNamespace(shapes=shapes))
    edits = [*dimensions(c)]
    assert sorted(edit.text for edit in edits) == texts
    assert {edit.evidence for edit in edits} <= ({"interface"} if arguments else {"buffers"})
    for edit, ratios, causes in zip(edits, c.rows.asked[::2], c.rows.asked[1::2], strict=True):
        before, after = map(int, re.findall(r"\d+", edit.text)[:2])
        ratio = Fraction(before, after)
        assert ratios == (sorted([ratio, ratio * ratio]) if arguments else [ratio])
        assert causes == ("cause", ("smaller",))


@pytest.mark.parametrize(("pair", "n"), [(((4, 6), (8, 6)), 0), (((4, 3), (8, 5)), 0), (((4, 7), (8, 9)), 2)])
def test_dimensions_that_follow_from_an_array_of_another_shape(
    pair: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, or else the buffer has dimensions of its own."""
    none = Collectives(Counter(), 1, frozenset())
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: (none, none))
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: set())
    whole = {(Shape("f32", (4, 3)), Shape("f32", (8, 5)))}
    monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: whole)
    c = context(resized=resized((*pair, 20)), matched_bytes=100, interface=SimpleNamespace(shapes={}))
    assert len([*dimensions(c)]) == n


@pytest.mark.parametrize(
    ("devices", "replaced", "shared"),
    [
        ((4, 1), (2, 8), True), ((4, 1), (2, 4), True), ((4, 1), (2, 6), False), ((4, 1), (8, 2), False),
        ((1, 4), (8, 2), True), ((1, 4), (2, 8), False), ((4, 2), (2, 8), False), ((6, 4), (4, 6), True),
        ((1, 1), (2, 4), False), ((1, 1), (4, 2), False),
        ((0, 0), (2, 4), False), ((0, 4), (4, 2), False), ((4, 0), (2, 4), False), ((8, 8), (1, 8), False),
    ],
)  # fmt: skip
def test_dimensions_that_devices_share(devices: tuple[int, int], replaced: tuple[int, int], shared: bool) -> None:
    """All of them, or those of one axis of the mesh."""
    assert shape_edits._is_shared(context(devices=devices), *replaced) is shared


@pytest.mark.parametrize(
    ("pair", "n_gathers", "differ", "wanted"),
    [
        ((8, 32), (1, 2), True, ", no longer sharded over 4 devices"), ((8, 32), (1, 2), False, ""),
        ((8, 32), (2, 2), True, ""), ((8, 32), (2, 1), True, ""), ((8, 16), (1, 2), True, ""),
        ((32, 8), (2, 1), True, ", sharded now over 4 devices"), ((32, 8), (1, 2), True, ""),
    ],
)  # fmt: skip
def test_a_dimension_that_is_no_longer_sharded(
    monkeypatch: pytest.MonkeyPatch, pair: Any, n_gathers: Any, differ: bool, wanted: str
) -> None:
    """That side gathers it more often, and devices exchange other data. That an argument has it says the cause."""
    a, b = ({Gather(f"op{i}", Shape("f32", (8, 5)), Shape("f32", (32, 5)), 4, 4) for i in range(n)} for n in n_gathers)
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: set())
    monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: set())
    monkeypatch.setattr(shape_edits, "gathers", lambda c: (a, b))
    sides = [collectives(4, [], all_reduce=n) for n in (5, 9 if differ else 5)]
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: sides)
    for arguments in ({}, {(Shape("f32", pair[:1]), Shape("f32", pair[1:])): "x"}):
        c = context(resized=[(Shape("f32", pair[:1]), Shape("f32", pair[1:]), 90)], matched_bytes=100,
                    interface=SimpleNamespace(shapes=arguments))  # fmt: skip
        end = ", as in argument x" if arguments else wanted
        assert texts(dimensions(c)) == [f"a dimension of {pair[0]} is {pair[1]} now on each device{end}"]


def test_a_dimension_does_not_explain_what_changes_in_the_other_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller batch of an array that is sharded less."""
    none = Collectives(Counter(), 1, frozenset())
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: (none, none))
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: set())
    monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: set())
    table = pa.table({
        "change": [64, -64, 64], "shape_a": ["f32[32,2]", "f32[32,2]", "f32[24]"],
        "shape_b": ["f32[24,8]", "f32[24,2]", "f32[32]"], "cause": ["larger", "smaller", "larger"],
    })  # fmt: skip
    matching: Any = None
    for pairs, claims in (((32, 24), [False, True, False]), ((24, 32), [False, False, True])):
        c = context(rows=Differences(matching, table), resized=resized(((pairs[0],), (pairs[1],), 50)),
                    matched_bytes=100, interface=SimpleNamespace(shapes={}))  # fmt: skip
        (edit,) = dimensions(c)
        assert edit.claims.tolist() == claims


def collectives(devices: int = 4, shapes: Any = (), **counts: int) -> Collectives:
    return Collectives(Counter({k.replace("_", "-"): n for k, n in counts.items()}), devices, frozenset(shapes))


@pytest.mark.parametrize(
    ("replaced", "before", "after", "exchanged"),
    [
        ((2, 8), [], [(4, 8)], True), ((8, 2), [(8, 4)], [], True), ((2, 8), [(4, 8)], [], False),
        ((2, 8), [], [(4, 2)], False), ((2, 8), [(2,)], [(8,)], False), ((2, 8), [(8, 3)], [(8, 4)], False),
    ],
)  # fmt: skip
def test_whole_dimensions_that_one_side_exchanges(
    replaced: tuple[int, int], before: Any, after: Any, exchanged: bool
) -> None:
    """With a larger model, the other side exchanges its own dimension; with a larger batch, both have it."""
    sides = collectives(shapes=before), collectives(shapes=after)
    assert shape_edits._is_exchanged(replaced, *sides) is exchanged


@pytest.mark.parametrize(
    ("pairs", "loops", "slices", "sliced"),
    [
        ([((2, 5), (2, 5))], ([], []), (0, 1), True), ([((2, 5), (2, 6))], ([2], [3]), (4, 5), True),
        ([], ([], []), (0, 1), False), ([((8, 5), (8, 5))], ([], []), (0, 1), False),
        ([((5, 3), (5, 3))], ([], []), (0, 1), True), ([((5, 3), (5, 8))], ([], []), (0, 1), False),
        ([((5, 3), (5, 3))], ([], []), (1, 1), False), ([((5, 3), (5, 12))], ([], []), (0, 1), False),
        ([((2, 5), (2, 5)), ((2,), (8,))], ([], []), (0, 1), False), ([((2, 3), (2, 12))], ([], []), (0, 1), False),
        ([((2, 5), (2, 5))], ([1, 2], [8]), (0, 1), False), ([((2, 5), (2, 5))], ([], []), (1, 1), False),
        ([((2, 5), (2, 5))], ([], []), (1, 0), False),
    ],
)  # fmt: skip
def test_slices_of_arguments_that_are_sharded_less(
    pairs: Any, loops: Any, slices: tuple[int, int], sliced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No temporary has another dimension of the ratio, no loop runs over that of an argument, and slices are new."""
    monkeypatch.setattr(shape_edits, "_trip_counts_in_model", lambda p: p)
    opcodes = [SimpleNamespace(count=lambda _, n=n: n) for n in slices]
    chance = [((2, 5), (2, 5), 9 * 200), ((3,), (12,), 9)] if sliced and 2 in pairs[0][0] else []
    c = context(temporaries=resized(*((a, b, 9) for a, b in pairs), *chance), m=SimpleNamespace(a=loops[0], b=loops[1]),
                opcodes=opcodes)  # fmt: skip
    exchange, none = collectives(all_reduce=2), collectives()
    assert shape_edits._sliced(c, {(2, 8)}, exchange, exchange) == ({(2, 8)} if sliced else set())
    assert not shape_edits._sliced(c, {(2, 8), (8, 2)}, exchange, none)
    c.opcodes.reverse()
    c.m = SimpleNamespace(a=loops[1], b=loops[0])
    c.temporaries = [(b, a, n) for a, b, n in c.temporaries]
    assert shape_edits._sliced(c, {(8, 2)}, exchange, exchange) == ({(8, 2)} if sliced else set())


@pytest.mark.parametrize(
    ("devices", "n", "resized"),
    [((1, 4), 1, True), ((4, 1), 1, True), ((0, 0), 4, True), ((0, 0), 1, False), ((1, 2), 2, False)],
)
def test_arguments_that_each_device_has_a_part_of(
    devices: tuple[int, int], n: int, resized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header tells the number of devices, or else the collectives do."""
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: (collectives(1), collectives(n, all_reduce=2)))
    row, a, b = np.zeros(1, np.int64), pa.array(["f32[8,3]"]), pa.array(["f32[2,3]"])
    i = SimpleNamespace(matched=(row, row), sharded_alike=lambda *_: row > 0,
                        shape_pairs=lambda *_: ShapePairs(a, b, row))  # fmt: skip
    left, right = shape_edits._resized_per_device(context(devices=devices, interface=i))
    assert (len(left), len(right)) == (resized, resized)


def test_the_sharding_of_the_largest_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each side has its own rows of arguments, and may print none."""
    left, right = np.array([0, 2]), np.array([1, 0])
    monkeypatch.setattr(shape_edits, "resharded", lambda c: (left, right))
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: {Fraction(4)})
    allocation = np.arange(3)
    b = SimpleNamespace(allocation_size=np.array([30, 10, 99]), allocation_ids=np.array([7, 8, 9]))
    names = pa.array(["x", "y", "z"])
    for before, after, end in (
        ("{a}", "{b}", " ({a} -> {b})"), (None, "{b}", ", 1/4 as large on each device"),
        ("{a}", None, ", 1/4 as large on each device"),
    ):  # fmt: skip
        sides = [pa.array(["{u}", "{v}", before], pa.string()), pa.array([after, "{w}", "{t}"], pa.string())]
        i = SimpleNamespace(a=SimpleNamespace(sharding=sides[0]), m=SimpleNamespace(b=b),
                            b=SimpleNamespace(names=names, sharding=sides[1], allocation=allocation))  # fmt: skip
        monkeypatch.setattr(shape_edits, "_may_be_batch", lambda c, left, right: False)
        c = context(interface=i)
        c.rows.table = pa.table({"allocation_b": [7, 9, 8]})
        (edit,) = shape_edits.sharding(c)
        where = end if " -> " not in end else ""
        how = end if " -> " in end else ""
        assert edit.text == f"2 arguments are sharded differently{where}: x, y{how}"
        assert edit.claims.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("shapes", "donated", "devices", "found"),
    [
        (["f32[8,3]->f32[2,3]", "s32[8]->s32[2]"], (), (4, 4), True),
        (["f32[8,3]->f32[2,3]", "f32[16,3]->f32[4,3]"], (), (4, 4), False),
        (["f32[8,3]->f32[2,3]"], ("a",), (4, 4), False),
        (["f32[8,3]->f32[2,3]"], ("b",), (4, 4), False),
        (["f32[8,3]->f32[2,3]"], (), (4, 16), False),
    ],
)
def test_arguments_that_may_be_another_batch(
    shapes: list[str], donated: tuple[str, ...], devices: tuple[int, int], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same dimension of all of them differs, on as many devices, and none is a state."""
    n = len(shapes)
    rows = np.arange(n)
    a, b = (pa.array([text.split("->")[k] for text in shapes]) for k in range(2))
    sides = {side: SimpleNamespace(donated=np.full(n, side in donated), sharding=pa.nulls(n, pa.string()),
                                   names=pa.array(["x", "y"][:n]), allocation=rows) for side in "ab"}  # fmt: skip
    own = SimpleNamespace(allocation_size=np.arange(n, 0, -1), allocation_ids=rows)
    i = SimpleNamespace(**sides, shape_pairs=lambda *_: ShapePairs(a, b, rows), m=SimpleNamespace(b=own))
    monkeypatch.setattr(shape_edits, "resharded", lambda c: (rows, rows))
    c = context(devices=devices, interface=i)
    c.rows.table = pa.table({"allocation_b": [7, 9, 8]})
    (edit,) = shape_edits.sharding(c)
    assert ("(a smaller batch, or sharded differently)" in edit.text) is found
    assert ("1/4 as large on each device" in edit.text) is True
    assert found or "sharded differently, 1/4" in edit.text


def test_layers_that_only_one_side_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a kind that the other side does not have at all are no layers that are new."""
    monkeypatch.setattr(program_edits, "are_layers_restacked", lambda c: False)
    sides = [SimpleNamespace(texts=pa.array([f"jit(f)/{name}/mul" for name in names])) for names in (
        ["layer_0", "layer_1", "other_7"], ["layer_0", "layer_1", "layer_2", "block_0", "block_1"]
    )]  # fmt: skip
    c = context(op_names=sides)
    c.rows.table = pa.table({"layer": ["layer_*", "layer_*", "block_*"], "layer_index": [2, 1, 1]})
    found = [(e.text, e.claims.tolist()) for e in program_edits.layers_changed(c)]
    assert found == [("1 layer is new: layer_2", [True, False, False])]


@pytest.mark.parametrize(
    ("before", "after", "found", "text"),
    [
        (collectives(1), collectives(all_reduce=2), [((8,), (2,), 50)],
         "buffers are 1/4 as large on each device, with other collectives: all-reduce 0 -> 2"),
        (collectives(all_reduce=2), collectives(1), [((2,), (8,), 50)],
         "buffers are 4 times as large on each device, with other collectives: all-reduce 2 -> 0"),
        (collectives(1), collectives(all_reduce=2), [((8,), (2,), 50), ((9, 8), (9, 4), 60)],
         "buffers are 1/2 as large on each device, with other collectives: all-reduce 0 -> 2"),
        (collectives(1), collectives(all_reduce=2), [((9,), (3,), 50)], "other collectives: all-reduce 0 -> 2"),
        (collectives(1), collectives(all_reduce=2), [((8,), (2,), 14)], "other collectives: all-reduce 0 -> 2"),
        (collectives(1), collectives(all_reduce=2), [((4,), (6,), 50)], "other collectives: all-reduce 0 -> 2"),
        (collectives(all_gather=10), collectives(all_gather=11), [((8,), (2,), 50)], None),
        (collectives(all_gather=5, all_reduce=1), collectives(all_gather=5, send=7), [],
         "other collectives: all-reduce 1 -> 0, send 0 -> 7"),
    ],
)  # fmt: skip
def test_buffers_that_are_sharded_differently(
    before: Collectives, after: Collectives, found: Any, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: (before, after))
    c = context(resized=resized(*found), matched_bytes=100)
    assert texts(shape_edits._resharded_buffers(c)) == ([text] if text else [])


def test_what_devices_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most devices of a collective, and the dimensions of all results; no other instruction counts."""
    groups = ("{{0,1},{2,3}}", None, "{{0,1,2,3}}", "{{0,1,2,3,4}}")
    table = pa.table({
        "attributes": [text and f"replica_groups={text}" for text in groups],
        "shape": ["f32[8,2]{1,0}", None, "(bf16[4], s32[])", "f32[9]"],
    })  # fmt: skip
    monkeypatch.setattr(shape_edits, "has_opcode", lambda p, rows, pattern: rows < p.n)
    p: Any = SimpleNamespace(tables={"instructions": table}, n=3)
    assert shape_edits._exchanges(p) == (4, {(8, 2), (4,), ()})
    p.n = 0
    assert shape_edits._exchanges(p) == (1, frozenset())


# -- names and files -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (lines(mul=2, add=3), lines(mul=5, add=3), "other numbers of operations: mul 2 -> 5"),
        (lines(mul=2, add=3), lines(mul=2, add=3), None),
        (lines(mul=2, add=5), lines(mul=3, add=3), "other numbers of operations: add 5 -> 3, mul 2 -> 3"),
        (lines(mul=1), lines(add=1), None), (lines(mul=2), lines(mul=1, add=1), None),
        (lines(x=9, transpose_=1), lines(x=9, transpose_=3), "other numbers of operations: transpose_ 1 -> 3"),
    ],
)  # fmt: skip
def test_numbers_of_operations(
    a: Counter[str], b: Counter[str], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("rematerialization", "conversions"):
        monkeypatch.setattr(program_edits, rule, lambda c: iter(()))
    monkeypatch.setattr(program_edits, "retyped", lambda c: {})
    assert texts(instructions(context(lines=(a, b)))) == ([text] if text else [])
    monkeypatch.setattr(program_edits, "retyped", lambda c: {("f32", ""): ["x"] * 9})
    assert texts(instructions(context(lines=(a, b)))) == []
    monkeypatch.setattr(program_edits, "conversions", lambda c: iter(["edit"]))
    monkeypatch.setattr(program_edits, "retyped", lambda c: {})
    assert texts(instructions(context(lines=(a, b)))) == []


def test_the_backward_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for rule in ("rematerialization", "conversions"):
        monkeypatch.setattr(program_edits, rule, lambda c: iter(()))
    monkeypatch.setattr(program_edits, "retyped", lambda c: {})
    same = {"x": 9}
    backward = {"transpose(jvp())/mul": 2}
    for b, text in (
        (backward, " in the backward pass: mul 0 -> 2"),
        ({**backward, "mul": 1}, ": backward mul 0 -> 2, mul 0 -> 1"),
        ({"while/body/jvp()/mul": 1, "jvp()/mul": 1, "x": 9}, ": mul 0 -> 2"),
    ):
        (found,) = texts(instructions(context(lines=(Counter(same), Counter({**same, **b})))))
        assert found == f"other numbers of operations{text}"


def test_operations_in_another_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their paths are equal without the loops, which are all that differs."""
    for rule in ("rematerialization", "conversions"):
        monkeypatch.setattr(program_edits, rule, lambda c: iter(()))
    monkeypatch.setattr(program_edits, "retyped", lambda c: {})
    a, b = Counter({"x": 9, "while/body/mul": 1}), Counter({"x": 9, "mul": 1})
    assert texts(instructions(context(lines=(a, b)))) == [
        "other numbers of operations: mul 0 -> 1, while/body/mul 1 -> 0"
    ]


@pytest.mark.parametrize(
    ("a", "b", "text", "scopes"),
    [
        ({"a/x", "a/y"}, {"a/x", "a/y", "a/new"}, "new: a/new", {"a/new", "a"}),
        ({"a/x", "a/old"}, {"a/x"}, "gone: a/old", {"a/old", "a"}),
        ({"a/x"}, {"a/x", "b/c/d", "b/e"}, "new: b", {"b"}),
        ({"a/x", "old"}, {"a/x", "a/new", "a/other"}, "new: a/other, a/new; gone: old", {"a/new", "a/other", "old",
            "a"}),
        ({"a/x"}, {"a/x"}, None, set()),
        ({"a/x", "a/y", "c"}, {"b/x", "b/y", "c"}, None, set()),
        ({"a/x", "a/y", "c"}, {"b/x", "b/z", "c"}, "new: b; gone: a", {"a", "b"}),
        ({"a/x", *map(str, range(9))}, {"b/x", *map(str, range(9))}, "new: b; gone: a", {"a", "b"}),
        ({"a/x", "a/y", "a/z", *"0123456"}, {"b/x", "b/y", "b/z", *"0123456"}, "new: b; gone: a", {"a", "b"}),
        ({"a/x", "a/y", "a/z", *"012345"}, {"b/x", "b/y", "b/z", *"012345"}, None, set()),
    ],
)  # fmt: skip
def test_operations_of_one_side(
    a: set[str], b: set[str], text: str | None, scopes: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless scopes were renamed."""
    monkeypatch.setattr(program_edits, "_paths", set)
    monkeypatch.setattr(program_edits, "_folded", lambda names: set())
    none = SimpleNamespace(names=None)
    c = context(op_names=(a, b), interface=SimpleNamespace(a=none, b=none))
    assert texts(operations(c)) == ([text] if text else [])
    assert c.rows.asked == ([scopes] if text else [])


def test_operations_are_named_as_they_are() -> None:
    """Names that differ in numbers only are folded together, but no number becomes another one."""
    names = pa.array(["jit(f)/GPT/head/dot", "jit(f)/GPT/head2/dot", "jit(f)/layers_3/dot"])
    assert program_edits._folded(names) == {"GPT/head/dot", "GPT/head2/dot", "layers_*/dot"}
    assert program_edits._folded(pa.array([None, "jit(f)/a"])) == {"a"}


@pytest.mark.parametrize(("devices", "n"), [((1, 1), 0), ((2, 2), 1), ((0, 0), 1), ((1, 4), 1)])
def test_a_single_device_shares_nothing(devices: tuple[int, int], n: int) -> None:
    """There, {maximal device=0} is the same sharding as {replicated}."""
    i = SimpleNamespace(resharded=(np.array([3]), np.array([4])))
    assert [len(side) for side in shape_edits.resharded(context(devices=devices, interface=i))] == [n, n]


def test_flags_of_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_edits, "flags_by_role", lambda p: p)
    a = {"debug": {"x": "1", "y": "2"}, "env": {"z": "3"}, "only": {"q": "1"}}
    b = {"debug": {"x": "1", "y": "3"}, "env": {"z": "4"}}
    assert texts(flags(context(m=SimpleNamespace(a=a, b=b)))) == ["flags y is 3 instead of 2, z is 4 instead of 3"]
    assert texts(flags(context(m=SimpleNamespace(a={"env": {"z": "3"}}, b=b)))) == ["flag z is 4 instead of 3"]
    assert texts(flags(context(m=SimpleNamespace(a={}, b=b)))) == []
    a, b = ({"env": {"z": "3"}, "target-arguments": {"chip": chip}} for chip in ("5", "6"))
    assert texts(flags(context(m=SimpleNamespace(a=a, b=b)))) == []  # the rule about the compiler states that


def side(platform: str | None = "cpu", changelist: int | None = None, features: str = "", *, complete: bool = True,
         roles: str = "x") -> Any:  # fmt: skip
    modules = pa.table({"platform": [platform], "changelist": pa.array([changelist], pa.int64()),
        "features": [features],
                        "complete": [complete]})  # fmt: skip
    return SimpleNamespace(tables={"modules": modules, "files": pa.table({"role": list(roles)})})


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (side(), side(), None),
        (side("cpu"), side("tpu"), "compiled for tpu instead of cpu"),
        (side(None), side("tpu"), "compiled for tpu instead of an unknown one"),
        (side("cpu"), side(None), "compiled for an unknown platform instead of cpu"),
        (side(changelist=1), side(changelist=2), "the compiler is of changelist 2 instead of 1"),
        (side(features="peak_a"), side(features="peak_b"), "the dumps have different formats"),
        (side(features="peak_a"), side(features="peak_a,other"), "the dumps have different formats"),
        (side(features="peak_a"), side(features="peak_a,other", complete=False), None),
        (side(features="peak_a", complete=False), side(features="peak_a,other"), None),
        (side(features="peak_a"), side(features="peak_a,other", roles="xy"), None),
        (side(features="peak_a"), side(features="peak_a,crlf"), None),
        (side(features="peak_a", complete=False), side(features="peak_b"), "the dumps have different formats"),
    ],
)
def test_other_compilers(a: Any, b: Any, text: str | None) -> None:
    differ = a.tables["modules"]["platform"] != b.tables["modules"]["platform"]
    names = SimpleNamespace(count=lambda pattern: 1)
    c = context(m=SimpleNamespace(a=a, b=b), platforms_differ=differ, op_names=(names, names))
    found = texts(compiler(c))
    assert len(found) == (text is not None)
    assert not found or found[0].startswith(str(text))
    other = SimpleNamespace(count=lambda pattern: 0)
    if text is None:
        c.op_names = (names, other)
        assert texts(compiler(c)) == ["op_names follow different conventions, so the versions of JAX differ"]


def test_memory_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments by their spaces, then all buffers that moved. Arguments of contributions have the numbers of B."""
    def program(spaces: list[int], first: int = 0) -> Any:
        numbers = pa.table({"parameter_number": [first + i for i in range(len(spaces))]})
        return SimpleNamespace(
            spaces=[SimpleNamespace(name=name) for name in ("hbm", "vmem", "host")],
                space_of_allocation=np.array(spaces),
            allocation_size=np.array([10, 30, 20, 40]), allocations=numbers,
        )  # fmt: skip

    names = SimpleNamespace(names=pa.array(list("wxyz")), allocation=np.arange(4))
    everything = np.arange(4), np.arange(4)
    c = context(m=SimpleNamespace(a=program([0, 0, 0, 1], first=9), b=program([1, 1, 0, 2])),
                interface=SimpleNamespace(matched=everything, a=names, b=names))  # fmt: skip
    c.rows.table = pa.table({"argument": [0, 3, None]})
    c.rows.is_in = lambda column, texts: np.array([1, 1, 0], bool) & (column[:12] != "memory_space")
    assert [(e.text, e.claims.tolist()) for e in memory_spaces(c)] == [
        ("2 arguments are in vmem instead of hbm: x, w", [True, False, False]),
        ("1 argument is in host instead of vmem: z", [False, True, False]),
        ("2 buffers are in another memory space", [True, True, False]),
    ]
    to_host = Edit("memory space", "1 buffer is in host memory now", np.array([0, 1, 0], bool), "names")
    monkeypatch.setattr(program_edits, "_moved_to_host", lambda c, moved: iter([to_host]))
    assert texts(memory_spaces(c))[2:] == [to_host.text, "1 buffer is in another memory space"]
    c.platforms_differ = True
    assert texts(memory_spaces(c)) == []


def test_matched_bytes() -> None:
    """The larger of both sizes of each pair counts."""
    c: Any = Context.__new__(Context)
    c.m = SimpleNamespace(value=np.array([1, -1, 0]), a=SimpleNamespace(size=np.array([5, 99, 7])),
                          b=SimpleNamespace(size=np.array([9, 3])))  # fmt: skip
    assert c.matched_bytes == 9 + 5


# -- rematerialization ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "other"),
    [
        ((10, 10), (10, 10), False), ((10, 10), (20, 20), False), ((10, 10), (10, 20), False),
        ((10, 10), (20, 10), True), ((0, 10), (5, 10), True), ((0, 10), (0, 99), False), ((10, 10), (8, 10), False),
        ((10, 10), (7, 10), True), ((7, 10), (10, 10), True), ((100, 10), (125, 10), False),
        ((100, 10), (126, 10), True), ((100, 100), (127, 101), True), ((100, 100), (126, 101), False),
    ],
)  # fmt: skip
def test_another_share_of_the_forward_pass(
    a: tuple[int, int], b: tuple[int, int], other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a fifth fewer or more of both the number and the share."""
    monkeypatch.setattr(program_edits, "_by_pass_of_instructions", lambda names: names)
    c: Any = SimpleNamespace(op_names=(a, b), has_hlo=True)
    monkeypatch.setattr(program_edits, "resharded", lambda c: ([], []))
    assert program_edits._is_other_share(c) is other
    monkeypatch.setattr(program_edits, "resharded", lambda c: ([1], [1]))  # for which XLA splits other instructions
    assert program_edits._is_other_share(c) is (other and not (a[0] and b[0]))


def test_programs_of_tensorflow_and_jax_recompute_in_their_own_ways() -> None:
    """Only where both are of TensorFlow, its function is new or gone."""

    def program(*op_names: str) -> Any:
        return SimpleNamespace(texts=pa.array(op_names), codes=np.arange(len(op_names)))

    model = ("model/dense/MatMul", "gradient_tape/model/dense/MatMul", "model/out/MatMul")
    plain, again = program(*model), program(*model, "dense/MatMul", "gradient_tape/dense/MatMul")
    of_jax = program("jit(f)/jvp(model)/dot_general", "jit(f)/transpose(jvp(model))/dot_general")
    pairs = (plain, again), (again, plain), (again, again), (again, of_jax), (of_jax, again)
    found = [texts(program_edits.recomputed_gradients(context(op_names=pair))) for pair in pairs]
    words = "is {}: the backward pass recomputes {}"
    assert found == [
        [f"tf.recompute_grad {words.format('new', '1 instead of 0 instructions')}"],
        [f"tf.recompute_grad {words.format('gone', '0 instead of 1 instruction')}"], [], [], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "also", "longer", "text"),
    [
        (0, 3, [], [], "more instructions"), (3, 0, [], [], "nothing"), (1, 2, ["x"], [], "more instructions"),
        (2, 1, [], ["y"], "fewer instructions"), (1, 2, ["x"], ["y"], "other instructions"),
        (2, 1, ["x"], ["y"], "other instructions"), (2, 1, ["x"], [], "other instructions"),
        (1, 2, [], ["y"], "other instructions"), (2, 2, ["x"], [], "other instructions"),
    ],
)  # fmt: skip
def test_whether_more_is_recomputed_without_hlo_texts(
    before: int, after: int, also: list[str], longer: list[str], text: str
) -> None:
    """Operations of one side only, and both numbers, must agree."""
    operations = {program_edits.NOW_ALSO: also, program_edits.NO_LONGER: longer}
    assert program_edits._recomputed(context(has_hlo=False), before, after, operations) == text


class Counts:
    """The names of a program: how many match a pattern."""

    def __init__(self, **counts: int) -> None:
        self.counts = {getattr(program_edits, name): n for name, n in counts.items()}

    def count(self, pattern: str) -> int:
        return self.counts.get(pattern, 0)


@pytest.mark.parametrize(
    ("points", "calls", "other", "saved", "text"),
    [
        ((1, 1), ({}, {}), False, (3, 3), None), ((1, 1), ({}, {}), False, (3, 1),
            "jax.checkpoint saves 1 instead of 3 operations of the forward pass"),
        ((1, 1), ({}, {}), True, (0, 0), "the backward pass recomputes 2,000 instead of 5 instructions"),
        ((1, 1), ({}, {}), True, (1, 2), "jax.checkpoint saves 2 instead of 1 operation of the forward pass; the"
            " backward pass recomputes 2,000 instead of 5 instructions"),
        ((1, 0), ({}, {}), True, (1, 2), "jax.checkpoint is gone: the backward pass recomputes 2,000 instead of 5"
            " instructions"),
        ((1, 0), ({}, {}), False, (1, 0), "jax.checkpoint is gone: it saved 1 operation of the forward pass"),
        ((0, 1), ({}, {"k": "f.py:3"}), False, (0, 2), "jax.checkpoint is new in f.py:3: it saves 2 instead of 0"
            " operations of the forward pass"),
        ((1, 1), ({"k": "f.py:3"}, {}), True, (0, 0), "the backward pass recomputes 2,000 instead of 5 instructions"),
        ((1, 1), ({"k": "f.py:3"}, {"k": "f.py:3", "l": "f.py:4"}), True, (0, 0), "jax.checkpoint is new in f.py:4: the"
            " backward pass recomputes 2,000 instead of 5 instructions"),
    ],
)  # fmt: skip
def test_recomputation_in_words(
    points: tuple[int, int], calls: Any, other: bool, saved: tuple[int, int], text: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    names = [Counts(BACKWARD=9, RECOMPUTED=n, CHECKPOINT=k) for n, k in zip((5, 2000), points, strict=True)]
    monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c: {})
    monkeypatch.setattr(program_edits, "_saved_operations", lambda c: saved)
    monkeypatch.setattr(program_edits, "_entered_checkpoints", lambda c: 0)
    monkeypatch.setattr(program_edits, "_is_other_share", lambda c: other)
    monkeypatch.setattr(program_edits, "_checkpointed_calls", lambda p, _: calls[p])
    monkeypatch.setattr(program_edits, "_call", lambda p, names, caller, line: line)
    found = context(op_names=names, m=SimpleNamespace(a=0, b=1))
    edits = [*program_edits.rematerialization(found)]
    assert texts(edits) == ([text] if text else [])
    if text:
        assert found.rows.asked == [("phase", ("optimizer",))]
        assert edits[0].claims.tolist() == [True, False, False]
        monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c: {"also": ["x", "y"], "not": []})
        (more,) = texts(program_edits.rematerialization(found))
        assert more.endswith("recomputes 2,000 instead of 5 instructions, also x, y")
    for missing in (0, 1):
        names[missing].counts[program_edits.BACKWARD] = 0
        assert [*program_edits.rematerialization(found)] == []
        names[missing].counts[program_edits.BACKWARD] = 9


def test_operations_by_pass() -> None:
    """Recomputed ones by their path inside of the checkpoint, with what is around it; those of forward passes."""
    again = "checkpoint/rematted_computation"
    paths = Counter({
        f"transpose(jvp(mlp))/{again}/dot": 1, f"transpose(jvp(attn))/{again}/dot": 2, f"x/{again}/sub/tanh": 1,
        f"x/rematted_computation/{again}/exp": 1, "jvp(mlp)/dot": 3, "mul": 2, "transpose(jvp())/mul": 5,
    })  # fmt: skip
    recomputed, forward = program_edits._by_pass(paths)
    assert recomputed == {"dot": {"jvp(mlp)", "jvp(attn)"}, "sub/tanh": {"x"}, "exp": {"checkpoint"}}
    assert forward == {"jvp(mlp)/dot": 3, "mul": 2}


@pytest.mark.parametrize(
    ("paths", "checkpoints", "n"),
    [
        ({"jvp()/reduce_precision": 2, "reduce_precision": 1}, 1, 3), ({"jvp()/reduce_precision": 2}, 0, 0),
        ({"transpose(jvp())/reduce_precision": 2}, 1, 0),
        ({"jvp()/reduce_precisions": 2, "jvp()/mul": 1}, 1, 0), ({}, 1, 0),
    ],
)  # fmt: skip
def test_operations_that_a_policy_saves(paths: dict[str, int], checkpoints: int, n: int) -> None:
    """Those of the forward pass, if there is a checkpoint."""
    for sides in ((paths, {}), ({}, paths)):
        found = context(lines=tuple(map(Counter, sides)), op_names=[Counts(CHECKPOINT=checkpoints)] * 2)
        assert program_edits._saved_operations(found) == tuple(n if side else 0 for side in sides)


@pytest.mark.parametrize(
    ("nested", "text"),
    [
        ((0, 3), "jax.checkpoint is new inside of another one"),
        ((3, 0), "jax.checkpoint is gone from the inside of another one"), ((3, 4), None),
    ],
)  # fmt: skip
def test_a_checkpoint_inside_of_another(
    nested: tuple[int, int], text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it computes again is inside of fusions, so that the numbers of instructions are alike."""
    monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c: {})
    monkeypatch.setattr(program_edits, "_saved_operations", lambda c: (0, 0))
    monkeypatch.setattr(program_edits, "_entered_checkpoints", lambda c: 0)
    monkeypatch.setattr(program_edits, "_is_other_share", lambda c: False)
    monkeypatch.setattr(program_edits, "_checkpointed_calls", lambda p, _: {})
    names = [Counts(BACKWARD=9, RECOMPUTED=5, CHECKPOINT=5, NESTED=n) for n in nested]
    found = context(op_names=names, m=SimpleNamespace(a=0, b=1))
    assert texts(program_edits.rematerialization(found)) == ([text] if text else [])


@pytest.mark.parametrize(
    ("op_name", "nested"),
    [
        ("transpose(jvp())/while/body/checkpoint/f/checkpoint/mul", True), ("transpose(jvp())/checkpoint/mul", False),
        ("transpose(jvp())/while/body/checkpoint/reshape;checkpoint/reshape", False),
        ("transpose(jvp())/checkpoint/f/checkpoint/mul;checkpoint/mul", True),
    ],
)  # fmt: skip
def test_op_names_of_nested_checkpoints(op_name: str, nested: bool) -> None:
    """XLA merges instructions of the same checkpoint, and joins their op_names."""
    names = Names(np.zeros(1, np.int64), pa.array([f"jit(f)/{op_name}"]), np.ones(1, np.int64))
    assert names.count(program_edits.NESTED) == nested


def test_a_checkpoint_that_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many instructions are recomputed: it is neither gone nor new."""
    names = [Counts(BACKWARD=9, RECOMPUTED=5, CHECKPOINT=1)] * 2
    monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c: {"also": ["x"]})
    monkeypatch.setattr(program_edits, "_saved_operations", lambda c: (0, 0))
    monkeypatch.setattr(program_edits, "_entered_checkpoints", lambda c: 0)
    monkeypatch.setattr(program_edits, "_is_other_share", lambda c: False)
    monkeypatch.setattr(program_edits, "_checkpointed_calls", lambda p, _: {p: f"f.py:{p}"})
    monkeypatch.setattr(program_edits, "_call", lambda p, names, caller, line: line)
    found = context(op_names=names, m=SimpleNamespace(a=3, b=4))
    assert texts(program_edits.rematerialization(found)) == [
        "the backward pass recomputes 5 instead of 5 instructions, also x"
    ]


BODY = "transpose(jvp())/while/body/closed_call"
OUTSIDE = {f"{BODY}/mul": 2, f"{BODY}/add_any": 1}
INSIDE = {f"{BODY}/checkpoint/mul": 2, f"{BODY}/checkpoint/add_any": 1}
AGAIN = {f"{BODY}/checkpoint/rematted_computation/{name}": 1 for name in ("mul", "exp", "add_any")}
OLD = {"transpose(jvp(remat(f)))/mul": 2, "transpose(jvp(remat(f)))/add_any": 1}


@pytest.mark.parametrize(
    ("a", "b", "entered"),
    [
        (OUTSIDE, INSIDE, 3), (OUTSIDE, OLD, 3), (OUTSIDE, {**OUTSIDE, **INSIDE}, 0), (OUTSIDE, {}, 0),
        (OUTSIDE, {**INSIDE, f"{BODY}/add_any": 1}, 0), ({**OUTSIDE, **AGAIN}, AGAIN, 0), (OUTSIDE, AGAIN, 0),
        (dict.fromkeys(["jvp()/mul", "jvp()/exp", "jvp()/add"], 1), dict.fromkeys(["jvp()/checkpoint/mul"], 3), 0),
        ({**OUTSIDE, f"{BODY}/checkpoint/exp": 9}, {**INSIDE, f"{BODY}/exp": 9}, 0),
    ],
)  # fmt: skip
def test_lines_of_the_backward_pass_that_are_in_a_checkpoint_on_one_side(a: Any, b: Any, entered: int) -> None:
    sides = Counter(a), Counter(b)
    assert program_edits._entered_checkpoints(context(lines=sides)) == entered
    assert program_edits._entered_checkpoints(context(lines=sides[::-1])) == -entered


@pytest.mark.parametrize("known", [False, True])
def test_a_checkpoint_around_more_of_a_loop(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was checkpointed before is a part of its body: a fifth more is recomputed."""
    monkeypatch.setattr(program_edits, "_recomputed_on_one_side", lambda c: {})
    monkeypatch.setattr(program_edits, "_saved_operations", lambda c: (0, 0))
    monkeypatch.setattr(program_edits, "_is_other_share", lambda c: False)
    monkeypatch.setattr(program_edits, "_checkpointed_calls", lambda p, _: {"k": "f.py:5"} if p and known else {})
    monkeypatch.setattr(program_edits, "_call", lambda p, names, caller, line: line)
    names = [Counts(BACKWARD=9, RECOMPUTED=n, CHECKPOINT=5, NESTED=5) for n in (368, 448)]
    sides = Counter(OUTSIDE), Counter(INSIDE)
    more = context(op_names=names, lines=sides, m=SimpleNamespace(a=0, b=1))
    less = context(op_names=names[::-1], lines=sides[::-1], m=SimpleNamespace(a=1, b=0))
    around = "around more of the model", "around less of the model"
    wanted = ("new in f.py:5", "gone from f.py:5") if known else around
    assert texts(program_edits.rematerialization(more)) == [
        f"jax.checkpoint is {wanted[0]}: the backward pass recomputes 448 instead of 368 instructions"
    ]
    assert texts(program_edits.rematerialization(less)) == [
        f"jax.checkpoint is {wanted[1]}: the backward pass recomputes 368 instead of 448 instructions"
    ]
    same = context(op_names=names[:1] * 2, lines=sides[::-1], m=SimpleNamespace(a=0, b=0))
    assert texts(program_edits.rematerialization(same)) == ["jax.checkpoint is around less of the model"]


# -- what no other edit explains -----------------------------------------------------------------


def in_host(*rows: tuple[str, str | None, int], account: str = "host") -> Any:
    """Return a context with contributions by their cause, op_name and change."""
    cause, op_name, change = zip(*rows, strict=True)
    table = pa.table({
        "account": [account] * len(rows), "cause": cause, "op_name": pa.array(op_name, pa.string()), "change": change,
    })  # fmt: skip
    matching: Any = None
    return context(rows=Differences(matching, table))


@pytest.mark.parametrize(
    ("rows", "text", "claims"),
    [
        ([("new", "jit(f)/a", 5), ("new", "jit(f)/b", 6), ("larger", "c", 1)],
            "2 buffers are in host memory now: b, a", [True, True, False]),
        ([("gone", "jit(f)/l_1/a", -5), ("gone", "jit(f)/l_2/a", -5), ("new", "c", 1)],
            "2 buffers are no longer in host memory: l_*/a", [True, True, False]),
        ([("new", None, 5)], "1 buffer is in host memory now", [True]),
        ([("new", "a", 5), ("moved to another space", "b", 6)], None, None),
        ([("new", "a", 5), ("gone", "b", -5)], None, None),
    ],
)  # fmt: skip
def test_buffers_that_only_the_host_has(rows: Any, text: str | None, claims: Any) -> None:
    """What moved there from the device is another edit."""
    found = [*host_memory(in_host(*rows))]
    assert [(e.text, e.claims.tolist(), e.evidence) for e in found] == ([(text, claims, "names")] if text else [])
    assert [*host_memory(in_host(*rows, account="vmem"))] == []


@pytest.mark.parametrize(
    ("rows", "text", "claims"),
    [
        ([("hbm", "host", -9), ("hbm", "vmem", -8), ("hbm", "host", -1)], "2 buffers are in host memory now: b, a",
            [True, False, True]),
        ([("host", "hbm", 9)], "1 buffer is no longer in host memory: b", [True]),
        ([("hbm", "host", -9), ("hbm", "vmem", -10)], None, None), ([("hbm", "vmem", -8)], None, None),
    ],
)  # fmt: skip
def test_buffers_that_moved_to_the_host(rows: Any, text: str | None, claims: Any) -> None:
    """If these are most bytes that moved."""
    a, b, change = zip(*rows, strict=True)
    table = pa.table({
        "account": ["device_total"] * len(rows), "op_name": ["jit(f)/b", "jit(f)/c", "jit(f)/a"][: len(rows)],
        "memory_space_a": a, "memory_space_b": b, "change": change,
    })  # fmt: skip
    matching: Any = None
    c = context(rows=Differences(matching, table))
    found = [*program_edits._moved_to_host(c, np.ones(len(rows), bool))]
    assert [(e.text, e.claims.tolist(), e.evidence) for e in found] == ([(text, claims, "names")] if text else [])


def rest(*pairs: tuple[str | None, str | None, int], account: str = "device_total") -> Any:
    """Return a context with contributions by their shapes and change."""
    a, b, change = zip(*pairs, strict=True)
    n = len(pairs)
    table = pa.table({
        "account": [account] * n, "shape_a": pa.array(a, pa.string()), "shape_b": pa.array(b, pa.string()),
        "change": change, "op_name": pa.nulls(n, pa.string()), "bytes_b": [1] * n, "bytes_a": [1] * n,
        "category_a": ["temp"] * n, "category_b": ["temp"] * n,
    })  # fmt: skip
    matching: Any = None
    c = context(rows=Differences(matching, table), m=SimpleNamespace(a=opcodes(), b=opcodes()))
    c.rows.value = np.full(n, -1), np.full(n, -1)
    c.interface = SimpleNamespace(unchanged={})
    return c


def opcodes(*texts: str) -> Any:
    """Return a program with a value of an instruction of each of these opcodes."""
    codes = np.arange(len(texts))
    table = pa.table({"opcode": pa.array(texts, pa.string())})
    return SimpleNamespace(instruction_row=codes, tables={"instructions": table},
                           texts=lambda *_: (codes, pa.array(texts, pa.string())))  # fmt: skip


def test_of_all_gathers_of_as_many_elements_the_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of too many elements are none of them."""
    part, shapes = Shape("f32", (8, 5)), [(32, 5), (32, 5), (1 << 62, 4)]
    made = {Gather(name, part, Shape("f32", shape), 4, 4) for name, shape in zip("bac", shapes, strict=True)}
    monkeypatch.setattr(gather_edits, "resharded", lambda c: (np.empty(0), np.empty(0)))
    monkeypatch.setattr(gather_edits, "gathers", lambda c: (set(), made))
    c = rest((None, "f32[5,32]", 90), (None, "f32[8,5]", 30))
    more = {"cause": ["new"] * 2, "category_a": [None] * 2, "category_b": ["temp"] * 2, "bytes_a": [0, 0],
            "bytes_b": [90, 30]}  # fmt: skip
    matching: Any = None
    c.rows = Differences(matching, pa.table({**{k: c.rows.table[k] for k in c.rows.table.column_names}, **more}))
    c.devices, c.dimensions = (4, 4), ({(8, 5)}, set())
    (edit,) = gather_edits.gathered(c)
    assert edit.text == "a is no longer sharded: f32[8,5] -> f32[32,5] on each device"
    assert edit.claims.tolist() == [True, False]


@pytest.mark.parametrize(("cause", "n"), [("larger", 1), ("new", 0), ("gone", 0)])
def test_a_copy_of_an_argument_is_no_update_of_it(cause: str, n: int) -> None:
    """It is new or gone."""
    size = np.array([64, 64])
    p = SimpleNamespace(owner=np.arange(2), category=np.array([DONATED, TEMP]), unpadded=size, allocation_size=size)
    first = np.zeros(1, np.int64)
    own = SimpleNamespace(donated=first == 0, value=first, allocation=first, names=pa.array(["cache"]))
    matching: Any = SimpleNamespace(a=p, b=p)
    c = rest(("f32[16]", "f32[16]", 64))
    c.m, c.interface = matching, SimpleNamespace(matched=(first, first), a=own, b=own)
    c.rows = Differences(matching, c.rows.table.append_column("cause", pa.array([cause])))
    c.rows.value = first, first + 1
    assert texts(updates_in_place(c)) == ["1 donated argument is no longer updated in place: cache"] * n


LARGE, SMALL = "f32[10,512,512,64]{3,2,1,0}", "f32[10,512,32,64]{3,2,1,0}"
NARROW = "bf16[10,512,512,64]{3,2,1,0}"
ALL = np.ones(3, bool)


@pytest.mark.parametrize(
    ("pairs", "claims"),
    [
        ([(LARGE, SMALL, -90), ("f32[1024]", "f32[64]", -10), ("f32[3]", None, -100)], [True, True, False]),
        ([(LARGE, SMALL, -90), (None, "f32[4]", 100), ("f32[3]", None, -100)], None),
        ([(LARGE, SMALL, -90), (SMALL, LARGE, 30), ("f32[3]", None, -1)], None),
        ([("f32[32,1]", "f32[32,64]", 90), ("f32[3]", None, -1), (LARGE, NARROW, -1)], None),
        ([(None, SMALL, 90), (LARGE, None, -1), ("(f32[2])", "(f32[4])", 5)], None),
    ],
)
def test_the_dimension_of_what_changed_most(pairs: Any, claims: list[bool] | None) -> None:
    """Multiples of a dimension count as one; those of a third of the bytes are needed, and few that grew instead."""
    found = [*dimensions_of_rest(rest(*pairs), ALL)]
    text = "a dimension of 512 is 32 now, as in f32[10,512,512,64] -> f32[10,512,32,64]"
    assert [(e.text, e.claims.tolist(), e.evidence) for e in found] == ([(text, claims, "buffers")] if claims else [])


@pytest.mark.parametrize(
    ("of_a", "of_b", "name", "category", "n"),
    [
        ("fusion", "fusion", "w", "temp", 0), ("fusion", "fusion", "x", "temp", 1),
        ("fusion", "fusion", "w", "live_out", 1),
        ("all-gather", "fusion", "x", "temp", 0), ("fusion", "reduce-scatter", "x", "temp", 0),
        ("fusion", "all-gather-done", None, "temp", 0), ("fusion", "fusion", None, "temp", 1),
    ],
)  # fmt: skip
def test_parts_of_arrays_are_no_other_dimension(
    of_a: str, of_b: str, name: str | None, category: str, n: int
) -> None:
    """What devices exchange, or copy from an argument that has not changed, may be whole in one program."""
    c = rest((LARGE, SMALL, -90))
    c.m, c.rows.value = SimpleNamespace(a=opcodes(of_a), b=opcodes(of_b)), (np.zeros(1, np.int64),) * 2
    c.interface = SimpleNamespace(unchanged={"w": Shape("f32", (10, 512))})
    table = c.rows.table
    for key, text in (("op_name", name), ("category_b", category)):
        table = table.set_column(table.column_names.index(key), key, pa.array([text], pa.string()))
    value, c.rows = c.rows.value, Differences(c.rows.m, table)
    c.rows.value = value
    assert len([*dimensions_of_rest(c, ALL[:1])]) == n


@pytest.mark.parametrize(
    ("side", "rows", "text"),
    [
        (0, [("w", "f32[4,8]", "all-gather", 90), ("v", "f32[2,16]", "all-gather-done", 95)],
         "2 arguments are no longer gathered as a whole on each device: v, w"),
        (1, [("w", "f32[4,8]", "all-gather", 90), ("v", "f32[2,6]", "all-gather", 95)],
         "1 argument is gathered as a whole on each device now: w"),
        (0, [("w", "f32[4,8]", "fusion", 90)], None),  # a copy
        (0, [("w", "f32[4,32]", "all-gather", 90)], None),  # the other program has this array, too
        (0, [("w", "f32[1,8]", "all-gather", 90)], None),  # a layer
        (0, [("w", "f32[4,3]", "all-gather", 90)], None),
        (0, [("w", "f32[8,8]", "all-gather", 90)], None),
        (0, [("w", "f32[8]", "all-gather", 90)], None),
        (0, [("other", "f32[4,8]", "all-gather", 90)], None),
        (0, [("w", "f32[4,8]", "all-gather", 90), ("other", "f32[4,8]", "all-gather", 190)], None),
        (0, [(None, "f32[4,8]", "all-gather", 90), ("w", None, "all-gather", 90)], None),
    ],
)  # fmt: skip
def test_arguments_that_are_gathered_as_a_whole(
    side: int, rows: Any, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    resharded = np.empty(0)
    monkeypatch.setattr(gather_edits, "resharded", lambda c: (resharded, resharded))
    names, shapes, codes, sizes = zip(*rows, strict=True)
    n, here = len(rows), "ab"[side]
    table = pa.table({
        "account": ["device_total"] * n, "op_name": pa.array(names, pa.string()),
        f"shape_{here}": pa.array(shapes, pa.string()), f"shape_{'ba'[side]}": ["f32[1,2]"] * n,
        "change": [size if side else -size for size in sizes], "bytes_a": [0 if side else size for size in sizes],
        "bytes_b": [size if side else 0 for size in sizes], "category_a": ["temp"] * n, "category_b": ["temp"] * n,
    })  # fmt: skip
    c, matching = context(devices=(4, 4), dimensions=({(4, 32)},) * 2), cast(Any, None)
    c.rows = Differences(matching, table)
    programs = [opcodes(*codes), opcodes(*["all-gather"] * n)]
    c.m = SimpleNamespace(a=programs[side], b=programs[1 - side])
    c.rows.value = np.arange(n), np.arange(n)
    c.interface = SimpleNamespace(unchanged={"w": Shape("f32", (4, 2)), "v": Shape("f32", (2, 4))})
    found = [*gather_edits.gathered_arguments(c)]
    assert texts(found) == ([text] if text else [])
    for edit in found:
        assert edit.claims.sum() == int(edit.text.split()[0])
    c.devices = (4, 8)
    assert not [*gather_edits.gathered_arguments(c)]
    c.devices, resharded = (4, 4), np.empty(1)
    assert not [*gather_edits.gathered_arguments(c)]


@pytest.mark.parametrize(("size", "found"), [(160, True), (640, True), (40, True), (20, False), (8, True), (96, False)])
def test_arrays_with_multiples_of_a_dimension(size: int, found: bool) -> None:
    """They follow from that of an argument, unless it is so small that any number may be a multiple of it."""
    assert rest_edits._has_any(Shape("bf16", (1280, 8, 640, 256)), [7, size]) is found


@pytest.mark.parametrize(
    ("pair", "side", "n"), [((40, 9), "a", 0), ((9, 40), "a", 1), ((9, 40), "b", 0), ((40, 9), "b", 1), ((), "a", 1)]
)
def test_an_array_with_a_dimension_of_an_argument_follows_from_it(pair: Any, side: str, n: int) -> None:
    """From that of its own side."""
    of_a = side == "a"
    path, shape, cause = "jit(f)/head/dot_general", "f32[40,7]", "gone" if of_a else "new"
    c = rest((shape, None, -90) if of_a else (None, shape, 90))
    more = {"op_name": [path], "cause": [cause], "category_a": ["temp"], "category_b": ["temp"],
            "bytes_a": [90 * of_a], "bytes_b": [90 * (not of_a)]}  # fmt: skip
    matching: Any = None
    c.rows = Differences(matching, pa.table({**{k: c.rows.table[k] for k in c.rows.table.column_names}, **more}))
    shapes = {(Shape("f32", pair[:1]), Shape("f32", pair[1:])): "x"} if pair else {}
    c.interface, c.dimensions = SimpleNamespace(shapes=shapes), (set(), set())
    c.operations = ({"head/dot_general"},) * 2
    assert len(texts(rest_edits.arrays_of_rest(c, np.ones(1, bool)))) == n


def test_what_is_explained_already_has_no_other_cause() -> None:
    c = rest((LARGE, SMALL, -90), ("f32[3]", None, -100), (LARGE, SMALL, -20))
    assert [*dimensions_of_rest(c, np.array([False, True, True]))] == []
    (edit,) = dimensions_of_rest(c, np.array([True, True, False]))
    assert edit.claims.tolist() == [True, False, False]
    assert [*dimensions_of_rest(rest((LARGE, SMALL, -9), account="vmem"), ALL[:1])] == []


@pytest.mark.parametrize(("converts", "evidence"), [([1], "names"), ([], "buffers")])
def test_the_element_type_of_what_changed_most(
    converts: list[int], evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another array, or integers instead of numbers with a fraction, is no other type."""
    monkeypatch.setattr(rest_edits, "conversions", lambda c: iter(converts))
    c = rest((LARGE, NARROW, -90), (LARGE, NARROW, -50), ("f32[4]", "bf16[8]", -60))
    (edit,) = element_types_of_rest(c, ALL)
    assert (edit.text, edit.evidence) == ("2 buffers are bf16 instead of f32", evidence)
    (edit,) = element_types_of_rest(c, np.array([True, False, False]))
    assert (edit.text, edit.claims.tolist()) == ("1 buffer is bf16 instead of f32", [True, False, False])
    for pair in ((LARGE, SMALL.replace("f32", "bf16")), (LARGE, NARROW.replace("bf16", "s32")), (LARGE, LARGE)):
        assert [*element_types_of_rest(rest((*pair, -90)), ALL[:1])] == []


# -- random differences ---------------------------------------------------------------------------


def a_shape(chance: random.Random) -> Shape:
    dims = tuple(chance.choice((1, 2, 4, 8, 12, 24, 64)) for _ in range(chance.randint(0, 3)))
    return Shape(chance.choice(("f32", "f32", "bf16", "s32")), dims)


def changed(shape: Shape, chance: random.Random) -> Shape:
    """Return a shape of which dimensions or the element type may differ."""
    factor = chance.choice((1, 2, 2, 3))
    dims = tuple(n * factor if chance.random() < 0.5 else n for n in shape.dimensions)
    if chance.random() < 0.2:
        dims = (*dims, 4)
    return Shape(chance.choice((shape.element_type, "f32", "bf16")), dims)


def test_random_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dimensions, element types and shardings that differ are those of before."""
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(12)
        for n in range(80):
            shapes = [a_shape(chance) for _ in range(chance.randint(1, 5))]
            pairs = [(a, changed(a, chance)) for a in shapes]
            found = [(a, b, chance.choice((1, 14, 15, 40, 90))) for a, b in pairs if a != b]
            arguments = {(a, b): f"w{i}" for i, (a, b) in enumerate(pairs) if a != b and chance.random() < 0.3}
            sides = [collectives(chance.choice((1, 2, 4)), [(4, 8)], all_reduce=chance.choice((0, 2, 10, 11)),
                                 send=chance.choice((0, 1))) for _ in "ab"]  # fmt: skip
            monkeypatch.setattr(shape_edits, "_collectives", lambda c, sides=sides: sides)
            monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: set())
            monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: set())
            monkeypatch.setattr(shape_edits, "gathers", lambda c: (set(), set()))
            monkeypatch.setattr(shape_edits, "_conversions", lambda c, n=n: ("", "; converted")[n % 2])
            monkeypatch.setattr(shape_edits, "_mostly_converts", lambda c, n=n: n % 3 == 0)
            c = context(resized=found, reshaped=found, matched_bytes=100, types=({}, {}),
                        interface=SimpleNamespace(shapes=arguments))  # fmt: skip
            for rule in (dimensions, element_types, shape_edits._resharded_buffers):
                c.rows.asked.clear()
                yield f"{n} {rule.__name__}", [[(e.text, e.evidence) for e in rule(c)], [*map(str, c.rows.asked)]]
            monkeypatch.setattr(rest_edits, "conversions", lambda c, n=n: iter([n] * (n % 2)))
            rows = [(shape_text(a), shape_text(b), size * chance.choice((-1, 1))) for a, b, size in found]
            left = rest(*rows, (None, None, 30))
            for rule_of_rest in (dimensions_of_rest, element_types_of_rest):
                edits = [*rule_of_rest(left, np.array([chance.random() < 0.8 for _ in range(left.rows.n)], bool))]
                yield f"{n} {rule_of_rest.__name__}", [(e.text, e.evidence, e.claims.tolist()) for e in edits]

    check("compare/shapes", results())


def test_random_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of operations, loops and types that differ are those of before."""
    backward = ("transpose(jvp(a))/mul", "transpose(jvp(a))/dot")
    names = ("mul", "a/mul", *backward, "a/convert_element_type", "reshape", "f()")

    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(13)
        for n in range(80):
            sides = [Counter({k: chance.choice((0, 0, 1, 3, 9)) for k in names}) for _ in "ab"]
            sides = [+side for side in sides]
            monkeypatch.setattr(program_edits, "rematerialization", lambda c: iter(()))
            monkeypatch.setattr(program_edits, "conversions", lambda c: iter(()))
            monkeypatch.setattr(program_edits, "retyped", lambda c, n=n: {("f32", "bf16"): ["x"] * (n % 5)})
            c = context(lines=tuple(sides))
            yield f"{n} numbers", [shape_edits._mostly_converts(c), texts(instructions(c))]
            trips = [[chance.choice((-1, 0, 1, 4, 8, 24)) for _ in range(chance.randint(0, 3))] for _ in "ab"]
            shapes = {(Shape("f32", (x, 3)), Shape("f32", (y, 3))): "w" for x, y in ((4, 8), (8, 24)) if n % 3}
            monkeypatch.setattr(shape_edits, "_trip_counts_in_model", lambda p: p)
            monkeypatch.setattr(shape_edits, "_unnamed_trip_counts", lambda p: [])
            monkeypatch.setattr(shape_edits, "_in_single_scopes", lambda c, gone, n=n: n % 7 == 0)
            monkeypatch.setattr(shape_edits, "_repeats_more", lambda c, n=n: n % 4 == 0)
            c = context(m=SimpleNamespace(a=trips[0], b=trips[1]), interface=SimpleNamespace(shapes=shapes))
            edits = [*loops(c)]
            yield f"{n} loops", [trips, [(e.text, e.claims.tolist()) for e in edits], [*map(str, c.rows.asked)]]

    check("compare/operations", results())


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ({("x", 8)}, {("x", 16)}, "16 rows for bf16 instead of 8"),
        ({("x", 16)}, {("x", 8), ("y", 4)}, "8 rows for bf16 instead of 16"),
        ({("x", 4)}, {("x", 16)}, None),  # an array of few rows has smaller tiles on any TPU
        ({("y", 8)}, {("x", 16)}, None),
        ({("x", 8), ("y", 16)}, {("x", 16)}, None),
        ({("x", 8)}, {("x", 8)}, None),
    ],
)
def test_chips_by_their_tiles(a: Any, b: Any, wanted: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same array is in tiles of 16 rows on one side, and of 8 on the other."""
    monkeypatch.setattr(context_module, "_rows_of_tiles", lambda p: p.tiles)
    sides = {name: SimpleNamespace(spaces=[], tiles=tiles) for name, tiles in (("a", a), ("b", b))}
    text = context_module.Context._chip_of_other_layouts(SimpleNamespace(m=SimpleNamespace(**sides)))  # type: ignore[arg-type]
    assert text == (wanted and f"compiled for another TPU, with tiles of {wanted}")


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        ("hbm cmem", "hbm vmem smem", "vmem instead of cmem"), ("vmem", "cmem", "cmem instead of vmem"),
        ("hbm vmem", "vmem", None), ("hbm", "vmem", None), ("cmem vmem", "vmem", None),
    ],
)  # fmt: skip
def test_chips_by_their_caches(a: str, b: str, wanted: str | None) -> None:
    """Each has one of them, and not the other."""
    sides = {name: SimpleNamespace(spaces=[SimpleNamespace(name=space) for space in spaces.split()],
                                   tables=SimpleNamespace(platform="cpu"))
             for name, spaces in (("a", a), ("b", b))}  # fmt: skip
    c: Any = SimpleNamespace(m=SimpleNamespace(**sides))
    text = context_module.Context._chip_of_other_layouts(c)
    assert text == (wanted and f"compiled for another TPU, with {wanted}")
