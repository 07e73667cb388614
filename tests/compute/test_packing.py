"""New packings against exhaustive search on small allocations."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pytest
from brute import hostile
from conftest import DUMPS
from packings import Item, blocks_of, live_together, members, overlap
from render import render

import xlamem
from xlamem.compute import bills
from xlamem.compute.packing import Packing, _Arena, _Blocks, _Search
from xlamem.compute.program import program


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


def test_a_cell_that_is_not_full_counts() -> None:
    """The second value begins a cell of 8 bytes, and has 4: both can have the first cell in turn."""
    values = [attacks.value(1, "a", 8, 0), attacks.value(2, "b", 4, 8, "f32[1]{0}")]
    members = attacks.dump(values, size=12, ranges=["a{}:0-1", "b{}:2-3"])
    (packing,) = xlamem.repack(b"".join(members.values()), 0)
    assert (packing.size, packing.found, packing.lower_bound) == (12, 8, 8)


def test_orders_of_blocks() -> None:
    """By height, duration, area, first and last step; of equal ones, the largest area first."""
    height, duration, begin = np.array([2, 3, 1, 3]), np.array([5, 1, 9, 2]), np.array([7, 0, 2, 0])
    blocks: Any = SimpleNamespace(height=height, duration=duration, begin=begin)
    orders = [order.tolist() for order in _Blocks.orders(blocks)]
    assert orders == [[3, 1, 0, 2], [2, 0, 3, 1], [0, 2, 3, 1], [3, 1, 2, 0], [0, 2, 3, 1]]


def test_the_search_goes_on_from_the_last_order_that_is_as_good() -> None:
    """A higher packing is no step, a lower one is."""
    tops = {0: 5, 1: 5, 2: 6, 3: 4, 4: 5}
    blocks: Any = SimpleNamespace(height=1, offset=0, items=np.array([0]), block=np.array([0]))
    blocks.place = lambda order, best_fit: np.array([tops[order[0]] - 1])
    search = _Search(SimpleNamespace(position=np.array([9]), least=4))  # type: ignore[arg-type]
    search.__dict__["blocks"] = blocks
    found = []
    for n in tops:
        search._try([n], best_fit=bool(n % 2))  # type: ignore[arg-type]
        found.append((search.order[0], search.best_fit, search.height, search.position[0], search.is_optimal))
    assert found == [
        (0, False, 5, 4, False), (1, True, 5, 4, False), (1, True, 5, 4, False), (3, True, 4, 3, True),
        (3, True, 4, 3, True),
    ]  # fmt: skip
    assert search.attempts == 5


@pytest.mark.parametrize(("height", "seconds"), [(4, 10), (5, 0)])
def test_the_search_ends_with_an_optimal_packing_or_without_time(height: int, seconds: int) -> None:
    """It tries one order in any case."""
    blocks: Any = SimpleNamespace(height=1, offset=0, items=np.array([0]), block=np.array([0]))
    blocks.orders, blocks.place = lambda: [[0], [1]], lambda order, best_fit: np.array([height - 1])
    search = _Search(SimpleNamespace(position=np.array([9]), least=4))  # type: ignore[arg-type]
    search.__dict__["blocks"] = blocks
    search.run(seconds)
    assert search.attempts == 1


@pytest.mark.parametrize(("chance", "chosen"), [(0.69, 2), (0.7, 3)])
@pytest.mark.parametrize("to", [0, 1, 2])
def test_a_varied_order_has_one_block_further_ahead(chance: float, chosen: int, to: int) -> None:
    """Mostly one that ends at the top of the packing, as block 2 does here; otherwise any, here block 3."""
    limits, draws = [], [to] if chance < 0.7 else [chosen, to]

    def integers(n: int) -> int:
        limits.append(n)
        return draws.pop(0)

    random: Any = SimpleNamespace(random=lambda: chance, integers=integers, choice=lambda blocks: blocks[0])
    search: Any = SimpleNamespace(order=np.array([1, 0, 2, 3]), top=np.array([1, 5, 7, 7]), height=7, blocks=range(4))
    order = _Search._varied(search, random).tolist()
    others = [block for block in (1, 0, 2, 3) if block != chosen]
    assert order == [*others[:to], chosen, *others[to:]]
    assert limits == ([3] if chosen == 2 else [4, 4])  # blocks, and places up to its own


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
