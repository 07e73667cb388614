"""Columns that are kept narrow, chunk by chunk."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from xlamem.parse.arrays import NULL, Ints, order_by, stable_order
from xlamem.parse.stores import CompactStore, widen

CHUNKS = [[5, NULL, 7], [], [1 << 40, (1 << 40) + 1], [-3, 300, 70_000, NULL], [-(1 << 62), 1 << 62], [NULL]]
VALUES = [v for chunk in CHUNKS for v in chunk]


@pytest.fixture
def store() -> CompactStore:
    store = CompactStore()
    for i, chunk in enumerate(CHUNKS):
        values = np.array(chunk, np.int64)
        store.keep("t", {"a": values, "b": np.arange(len(chunk)) + 10 * i, "code": values.astype(np.int32)}, ["a", "b"])
    return store


def test_rows_of_a_column(store: CompactStore) -> None:
    assert store.ints("t", "a").tolist() == VALUES
    for begin, end in itertools.combinations_with_replacement(range(len(VALUES) + 2), 2):
        assert store.ints("t", "a", begin, end).tolist() == VALUES[begin:end]
    assert store.ints("missing", "a").tolist() == []


def test_chunks(store: CompactStore) -> None:
    def lists(*columns: str) -> list[tuple[int | list[int], ...]]:
        return [(first, *(c.tolist() for c in chunk)) for first, *chunk in store.batches("t", *columns)]

    starts = [0, 3, 3, 5, 9, 11]
    numbers = [[10 * i + j for j in range(len(chunk))] for i, chunk in enumerate(CHUNKS)]
    assert lists("a", "b") == list(zip(starts, CHUNKS, numbers, strict=True))
    store.drop("t", "a")
    assert lists("b") == list(zip(starts, numbers, strict=True))
    assert all(list(chunk) == ["b"] for chunk in store.of("t"))


@pytest.mark.parametrize("base", [0, 3])
def test_packed(store: CompactStore, base: int) -> None:
    assert store.packed("t", "a", base).tolist() == [v if v == NULL else v - base for v in VALUES]
    small = CompactStore()
    for chunk in ([3, 9], [120, 4]):
        small.keep("t", {"a": np.array(chunk, np.int64)}, ["a"])
    found = small.packed("t", "a", base)
    assert (found.dtype, found.tolist()) == (np.int8, [3 - base, 9 - base, 120 - base, 4 - base])


def test_widened(store: CompactStore) -> None:
    out: Ints = np.empty(3, np.int64)
    widen(store.of("t")[0]["a"], out)
    assert out.tolist() == CHUNKS[0]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("low", [0, -5, -(1 << 62)])
def test_the_order_of_keys_of_any_range(low: int, n: int) -> None:
    """Keys whose sums with their rows would not fit into 63 bits are ordered otherwise."""
    for extent in (0, 1, *((1 << power) + by for power in range(56, 63) for by in (-1, 0, 1))):
        keys = np.array([low + extent * (i % 2) for i in range(n)], np.int64)
        assert stable_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()
        assert order_by(keys % 3, keys).tolist() == np.lexsort((keys, keys % 3)).tolist()
