"""The kernels that place blocks, against plain Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from packings import Item, blocks_of, members, placed, random_items

from xlamem import _packing
from xlamem.parse.arrays import ints


def columns(items: list[Item]) -> list[np.ndarray[Any, Any]]:
    return [np.array(c, np.int64) for c in zip(*items, strict=True)] if items else [np.empty(0, np.int64)] * 4


@pytest.mark.parametrize("seed", range(60))
def test_blocks(seed: int) -> None:
    items = random_items(seed, n=seed % 9, cells=12 + seed % 30)
    assert ints(_packing.blocks(*columns(items))).tolist() == blocks_of(items)


@pytest.mark.parametrize("best_fit", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_place(seed: int, best_fit: bool) -> None:
    items = random_items(seed, n=1 + seed % 7, cells=16)
    blocks = blocks_of(items)
    by_block = sorted(range(len(items)), key=lambda i: blocks[i])
    n = max(blocks) + 1
    order = random.Random(seed).sample(range(n), n)
    low = [min(items[i][2] for i in members(blocks, b)) for b in range(n)]
    start, end, position, size = columns([items[i] for i in by_block])
    first = np.searchsorted([blocks[i] for i in by_block], np.arange(n + 1))
    offset = position - np.array(low)[[blocks[i] for i in by_block]]
    at = _packing.place(np.array(order, np.int32), first, start, end, offset, size, best_fit)
    assert ints(at).tolist() == placed(items, blocks, order, best_fit=best_fit)


@pytest.mark.parametrize("best_fit", [False, True])
def test_of_equal_gaps_the_lowest_is_taken(best_fit: bool) -> None:
    """Every second of five blocks is no longer live when the sixth begins."""
    start, end = np.array([0, 0, 0, 0, 0, 5]), np.array([9, 0, 9, 0, 9, 5])
    order, first = np.arange(6, dtype=np.int32), np.arange(7)
    at = _packing.place(order, first, start, end, np.zeros(6, np.int64), np.ones(6, np.int64), best_fit)
    assert ints(at).tolist() == [0, 1, 2, 3, 4, 1]


def test_long_schedules() -> None:
    """Values in many stretches of the schedule: each is met once, wherever it begins."""
    rng = np.random.default_rng(0)
    start = np.sort(rng.integers(0, 100_000, 400))
    end = start + rng.integers(0, 30_000, 400)
    size, zero = rng.integers(1, 9, 400), np.zeros(400, np.int64)
    order, first = rng.permutation(400).astype(np.int32), np.arange(401)
    at = ints(_packing.place(order, first, start, end, zero, size, False))
    together = (start[:, None] <= end) & (start <= end[:, None])
    apart = (at[:, None] >= at + size) | (at[:, None] + size[:, None] <= at)
    assert (apart | ~together | np.eye(400, dtype=bool)).all()
    levels = [size[(start <= t) & (t <= end)].sum() for t in start]
    assert (at + size).max() < 1.2 * max(levels)


def test_columns_of_other_lengths() -> None:
    two, zeros, order = np.ones(2, np.int64), np.zeros(2, np.int64), np.arange(2, dtype=np.int32)
    good = [zeros, two, zeros, two]
    assert ints(_packing.blocks(*good)).tolist() == [0, 0]
    assert ints(_packing.place(order, np.arange(3), *good, False)).tolist() == [0, 1]
    for k in range(4):
        for other in (good[k][:1], np.ones(3, np.int64)):
            bad = [*good[:k], other, *good[k + 1 :]]
            with pytest.raises(ValueError, match="one length"):
                _packing.blocks(*bad)
            with pytest.raises(ValueError, match="one length"):
                _packing.place(order, np.arange(3), *bad, False)
    for first in ([0, 1], [0, 1, 1, 2], [1, 1, 2], [0, 1, 1], [0, 1, 3]):
        with pytest.raises(ValueError, match="one block"):
            _packing.place(order, np.array(first), *good, False)
    for blocks_, first in (([0, -1], [0, 1, 2]), ([0, 2], [0, 1, 2]), ([0, 1], [0, 3, 2])):
        with pytest.raises(ValueError, match="consist of blocks"):
            _packing.place(np.array(blocks_, np.int32), np.array(first), *good, False)


def test_numbers_add_up_to_less_than_2_60() -> None:
    one, zero, order = np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int32)
    most = np.array([(1 << 60) - 2])
    for offset, size in ((most, one), (one, most), (zero, most + 1)):
        assert ints(_packing.blocks(zero, one, offset, size)).tolist() == [0]
        assert ints(_packing.place(order, np.array([0, 1]), zero, one, offset, size, True)).tolist() == [0]
        for more in ((offset + 1, size), (offset, size + 1)):
            with pytest.raises(ValueError, match=r"add up to less|must have"):
                _packing.blocks(zero, one, *more)


def test_the_kernels_refuse_wrong_items() -> None:
    one, zero, far = np.ones(1, np.int64), np.zeros(1, np.int64), np.array([1 << 60])
    order, first = np.zeros(1, np.int32), np.array([0, 1])
    for start, end, offset, size in (
        (one, zero, zero, one), (-one, one, zero, one), (zero, one, -one, one), (zero, one, zero, zero),
        (zero, one, far, one), (zero, one, zero, far),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"value must have|add up to less"):
            _packing.place(order, first, start, end, offset, size, False)
        with pytest.raises(ValueError, match=r"value must have|add up to less"):
            _packing.blocks(start, end, offset, size)
    with pytest.raises(ValueError, match="one block"):
        _packing.place(order, np.array([0, 2]), zero, one, zero, one, False)
    with pytest.raises(ValueError, match="consist of blocks"):
        _packing.place(order + 1, first, zero, one, zero, one, False)
    with pytest.raises(ValueError, match="ordered by start"):
        _packing.blocks(np.array([1, 0]), np.array([1, 1]), np.zeros(2, np.int64), np.ones(2, np.int64))
