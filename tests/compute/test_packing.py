"""New packings against exhaustive search on small allocations, and the kernels against plain Python."""

from __future__ import annotations

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
from brute import hostile
from conftest import DUMPS
from render import render

import xlamem
from xlamem import _packing
from xlamem.compute import bills
from xlamem.compute.packing import Packing, _Arena
from xlamem.compute.program import program
from xlamem.parse.arrays import ints

Item = tuple[int, int, int, int]
"""Start, end, position and size of a value."""


def columns(items: list[Item]) -> list[np.ndarray[Any, Any]]:
    return [np.array(c, np.int64) for c in zip(*items, strict=True)] if items else [np.empty(0, np.int64)] * 4


def live_together(a: Item, b: Item) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def overlap(a: int, n: int, b: int, m: int) -> bool:
    return max(a, b) < min(a + n, b + m)


def blocks_of(items: list[Item]) -> list[int]:
    """Connected values, numbered by their first one."""
    block = list(range(len(items)))
    for _ in items:
        for i, j in product(range(len(items)), repeat=2):
            if live_together(items[i], items[j]) and overlap(*items[i][2:], *items[j][2:]):
                block[i] = block[j] = min(block[i], block[j])
    numbers = {b: n for n, b in enumerate(dict.fromkeys(block))}
    return [numbers[b] for b in block]


def random_items(seed: int, n: int, steps: int = 6, cells: int = 8) -> list[Item]:
    rng = random.Random(seed)
    items = []
    for _ in range(n):
        start, end = sorted(rng.randrange(steps) for _ in range(2))
        items.append((start, end, rng.randrange(cells), rng.randint(1, 4)))
    return sorted(items)


@pytest.mark.parametrize("seed", range(60))
def test_blocks(seed: int) -> None:
    items = random_items(seed, n=seed % 9, cells=12 + seed % 30)
    assert ints(_packing.blocks(*columns(items))).tolist() == blocks_of(items)


def placed(items: list[Item], blocks: list[int], order: list[int], *, best_fit: bool) -> list[int]:
    """Positions of the blocks, from every position that is free."""
    position: dict[int, int] = {}
    low = [min(items[i][2] for i in members(blocks, b)) for b in range(len(order))]
    top = sum(size for *_, size in items) + max(p + n for *_, p, n in items)

    def free(b: int, at: int) -> bool:
        return not any(
            live_together(items[i], items[j])
            and overlap(at + items[i][2] - low[b], items[i][3], position[c] + items[j][2] - low[c], items[j][3])
            for c in position
            for i, j in product(members(blocks, b), members(blocks, c))
        )

    for b in order:
        candidates = [at for at in range(top + 1) if free(b, at)]
        runs = [[at] for at in candidates[:1]]
        for at in candidates[1:]:
            if at == runs[-1][-1] + 1:
                runs[-1].append(at)
            else:
                runs.append([at])
        chosen = min(runs[:-1] or runs, key=len) if best_fit else runs[0]
        position[b] = chosen[0]
    return [position[b] for b in range(len(order))]


def members(blocks: list[int], b: int) -> list[int]:
    return [i for i, block in enumerate(blocks) if block == b]


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


# ---------------------------------------------------------------- dumps


def assert_valid(dump: xlamem.Dump, packing: Packing) -> None:
    """Values that are live together share bytes if and only if they share them now, and then keep their distance."""
    p = program(dump)
    row_of = {value_id: row for row, value_id in enumerate(p.value_ids.tolist())}
    rows = [row_of[v] for v in packing.value_ids.tolist()]
    start, end = (column[rows] for column in p.occupied_ranges())
    old, new, size = p.offset[rows], packing.offsets, p.extent[rows]
    for i in range(len(rows)):
        together = (start <= end[i]) & (start[i] <= end)
        shares, will_share = ((at < at[i] + size[i]) & (at[i] < at + size) for at in (old, new))
        assert (shares == will_share)[together].all()
        assert (new - new[i] == old - old[i])[together & shares].all()
    assert (new >= 0).all()
    assert packing.found <= packing.size
    assert (new + size).max() <= packing.found


def least(items: list[Item]) -> int:
    """The smallest height of all packings of these values: every position of every block is tried."""
    blocks = blocks_of(items)
    n = max(blocks) + 1
    low = [min(items[i][2] for i in members(blocks, b)) for b in range(n)]
    height = [max(items[i][2] + items[i][3] for i in members(blocks, b)) - low[b] for b in range(n)]

    def fits(top: int, position: list[int]) -> bool:
        b = len(position)
        if b == n:
            return True
        for at in range(top - height[b] + 1):
            clash = any(
                live_together(items[i], items[j])
                and overlap(at + items[i][2] - low[b], items[i][3], position[c] + items[j][2] - low[c], items[j][3])
                for c in range(b)
                for i, j in product(members(blocks, b), members(blocks, c))
            )
            if not clash and fits(top, [*position, at]):
                return True
        return False

    return next(top for top in range(sum(height) + 1) if fits(top, []))


@pytest.mark.parametrize("seed", range(200))
def test_hostile(seed: int) -> None:
    """Nothing is better than the lower bound, or than the best of all packings."""
    dump = xlamem.read(render(hostile(seed, arenas=4, values=6, steps=8, size=12))["buffer-assignment"])
    if not dump.live_ranges.num_rows:
        with pytest.raises(xlamem.UsageError, match="no live ranges"):
            xlamem.repack(dump, 0)
        return
    p = program(dump)
    for packing in xlamem.repack(dump, 0):
        assert_valid(dump, packing)
        arena = _Arena(p, p.allocation_ids.tolist().index(packing.allocation))
        unit = math.gcd(*arena.position.tolist(), *arena.count.tolist())
        numbers = (arena.start, arena.end, arena.position // unit, arena.count // unit)
        best = least(list(zip(*(column.tolist() for column in numbers), strict=True)))
        assert packing.lower_bound <= arena.bytes(best * unit) <= packing.found


@pytest.mark.parametrize("name", ["cpu-jaxlib-0.12.0-multiheap", "tpu-libtpu-0.0.50.1-v5e-mlp_grad"])
def test_real(name: str) -> None:
    (source,) = xlamem.find(DUMPS / name)
    dump = xlamem.read(source)
    free = {r["account"]: r for r in xlamem.bill(dump).to_pylist() if r["line"] == "packing"}
    for packing in xlamem.repack(dump, 0):
        assert_valid(dump, packing)
        assert packing.is_optimal or packing.memory_space in free


def test_slots_of_tuple_tables_are_shared() -> None:
    """Each of 9 tables has 16 KiB to itself, although they are not live together."""
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam")
    (packing,) = xlamem.repack(dump, 0, space="hbm")
    assert packing.is_optimal
    assert packing.found < packing.size
    with pytest.raises(xlamem.UsageError, match="no memory space"):
        xlamem.repack(dump, 0, space="nowhere")


def test_rows_of_the_bill_are_documented() -> None:
    from xlamem import schema

    assert {line for line, _ in bills.ROWS} == schema.BILL_LINES.keys()
    assert {part for _, part in bills.ROWS} - {None} == schema.BILL_PARTS.keys()
