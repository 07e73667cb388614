"""How many edits of a kind are listed, whatever the dumps say."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from xlamem.compare import shape_edits
from xlamem.compare.context import MAX_SCOPES, Context, with_scopes
from xlamem.compare.program_edits import _heaviest, _lines_of
from xlamem.compare.rows import _Scopes, parsed
from xlamem.compare.shape_edits import MAX_EDITS


def context(pairs: list[tuple[int, int]]) -> Context:
    """A comparison of which each pair of buffers has another dimension, without arguments."""
    resized = [(parsed(f"f32[{a},8]"), parsed(f"f32[{b},8]"), 64) for a, b in pairs]
    none = np.zeros(0, bool)
    rows = SimpleNamespace(shapes=SimpleNamespace(with_ratios=lambda ratios: none), is_in=lambda *_: none)
    made = SimpleNamespace(resized=resized, interface=SimpleNamespace(shapes={}), matched_bytes=1, rows=rows,
                           devices=(1, 1))  # fmt: skip
    return cast(Context, made)


@pytest.fixture(autouse=True)
def _one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: [SimpleNamespace(devices=1)] * 2)
    monkeypatch.setattr(shape_edits, "_ratios_of_sharding", lambda c: set())
    monkeypatch.setattr(shape_edits, "_shapes_of_reshaped", lambda c: set())


@pytest.mark.parametrize(
    ("a", "b", "is_other"),
    [
        ((16, 16, 4096, 2), (16, 8192, 16, 2), True),
        ((8, 64), (64, 8), True), ((512, 2048), (2048, 512), True),  # transposed
        ((16, 64), (32, 32), False),  # twice as many heads, of half the size
        ((8, 1024), (16, 512), False),
        ((2, 1, 64), (2, 8, 8), True), ((2, 1, 64), (2, 7, 8), False), ((2, 1, 64), (2, 8, 9), False),
        ((64, 512), (8, 4096), False),  # fewer samples, of more tokens
        ((16, 16), (16, 4096), False), ((16, 16), (16, 16), False),
        ((16, 4096), (16, 4096, 2), False), ((16, 0), (0, 16), False),
    ],
)
def test_arrays_that_are_others(a: tuple[int, ...], b: tuple[int, ...], is_other: bool) -> None:
    one, other = (parsed(f"f32[{','.join(map(str, n))}]") for n in (a, b))
    assert one is not None
    assert other is not None
    assert shape_edits._is_other_array(one, other) is is_other
    assert shape_edits._is_other_array(other, one) is is_other


def texts(pairs: list[tuple[int, int]]) -> list[str]:
    return [edit.text for edit in shape_edits.dimensions(context(pairs))]


def test_dimensions_of_many_ratios() -> None:
    found = texts([(n, n + 1) for n in range(100, 400)])
    assert len(found) == MAX_EDITS
    assert found[0] == "a dimension of 100 is 101 now"


def test_multiples_are_one_dimension() -> None:
    assert texts([(6, 12), (12, 24), (18, 36), (7, 14)]) == ["a dimension of 6 is 12 now", "a dimension of 7 is 14 now"]


def test_many_arguments_that_are_sharded_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporaries are looked at once, not once for each argument."""
    monkeypatch.setattr(shape_edits, "_trip_counts_in_model", lambda p: p)
    n = 20_000
    temporaries = [(shape, shape, 64) for k in range(n) if (shape := parsed(f"f32[{k}]"))]
    opcodes = [SimpleNamespace(count=lambda _, k=k: k) for k in (0, 1)]
    c: Any = SimpleNamespace(temporaries=temporaries, m=SimpleNamespace(a=[], b=[]), opcodes=opcodes)
    exchange = shape_edits.Collectives(Counter(["all-reduce"]), 4, frozenset())
    replaced = {(k, 4 * k) for k in range(1, n)}
    assert shape_edits._sliced(c, replaced, exchange, exchange) == replaced


def test_results_that_several_rules_need_are_computed_once() -> None:
    c: Any = Context(cast(Any, None), cast(Any, None))
    results = iter("ab")
    assert [c.once(key, lambda: next(results)) for key in "xyx"] == ["a", "b", "a"]


def test_the_most_frequent_are_listed() -> None:
    tally: Any = Counter({(n, n + 1): n for n in range(10, 200)})
    assert shape_edits._frequent(tally, 0, ()) == [(n, n + 1) for n in range(199, 199 - MAX_EDITS, -1)]


def test_scopes_of_deep_paths() -> None:
    path = "s/" * 1000 + "add"
    assert with_scopes([path]) == {path, *("s" + "/s" * k for k in range(MAX_SCOPES))}


def test_what_scopes_contain() -> None:
    names = [f"{a}{b}" for a in ("a", "a/b", "a/b-x", "a-", "ab", "b/c") for b in ("", "/c", "/b", "-", "/c/d", "!/c")]
    rng = random.Random(0)
    for _ in range(200):
        chosen = rng.sample(names, rng.randint(0, 5))
        slow = [any(name == c or name.startswith(f"{c}/") for c in chosen) for name in names]
        assert [_Scopes(chosen).contain(name) for name in names] == slow
        weights = {name: rng.randint(0, 99) for name in rng.sample(names, 9)}
        sums = {c: sum(n for p, n in weights.items() if p == c or p.startswith(f"{c}/")) for c in chosen}
        assert _heaviest({*chosen}, weights) == sorted({*chosen}, key=lambda c: (-sums[c], c))
    assert not _Scopes(names).contain(None)


def test_lines_around_checkpoints() -> None:
    rng = random.Random(0)
    for _ in range(200):
        paths = ["/".join(rng.choices("abc", k=rng.randint(1, 4))) + rng.choice(("", "", "/")) for _ in range(12)]
        lines = Counter({path: rng.randint(1, 9) for path in paths})
        around = {path: {*rng.choices(["", "a", "b", "c"], k=2)} for path in rng.sample(paths, 4)} | {"": {"a"}}
        for inner, scopes in around.items():
            slow = sum(
                n for p, n in lines.items()
                if f"/{p}".endswith(f"/{inner}") and any(not s or f"/{s}/" in f"/{p}" for s in scopes)
            )  # fmt: skip
            assert _lines_of(around, lines)[inner] == slow
