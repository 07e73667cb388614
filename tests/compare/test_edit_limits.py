"""How many edits of a kind are listed, whatever the dumps say."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from xlamem.compare import shape_edits
from xlamem.compare.context import Context
from xlamem.compare.rows import parsed
from xlamem.compare.shape_edits import MAX_EDITS


def context(pairs: list[tuple[int, int]]) -> Context:
    """A comparison of which each pair of buffers has another dimension, without arguments."""
    resized = [(parsed(f"f32[{a},8]"), parsed(f"f32[{b},8]"), 64) for a, b in pairs]
    shapes = SimpleNamespace(with_ratios=lambda ratios: np.zeros(0, bool))
    made = SimpleNamespace(
        resized=resized, interface=SimpleNamespace(shapes={}), matched_bytes=1, rows=SimpleNamespace(shapes=shapes)
    )
    return cast(Context, made)


@pytest.fixture(autouse=True)
def _one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_edits, "_collectives", lambda c: [SimpleNamespace(devices=1)] * 2)


def texts(pairs: list[tuple[int, int]]) -> list[str]:
    return [edit.text for edit in shape_edits.dimensions(context(pairs))]


def test_dimensions_of_many_ratios() -> None:
    found = texts([(n, n + 1) for n in range(100, 400)])
    assert len(found) == MAX_EDITS
    assert found[0] == "a dimension of 100 is 101 now"


def test_multiples_are_one_dimension() -> None:
    assert texts([(6, 12), (12, 24), (18, 36), (7, 14)]) == ["a dimension of 6 is 12 now", "a dimension of 7 is 14 now"]


def test_the_most_frequent_are_listed() -> None:
    tally: Any = Counter({(n, n + 1): n for n in range(10, 200)})
    assert shape_edits._frequent(tally, 0, ()) == [(n, n + 1) for n in range(199, 199 - MAX_EDITS, -1)]
