"""Blocks of values and their places, the slow way."""

from __future__ import annotations

import random
from itertools import product

Item = tuple[int, int, int, int]
"""Start, end, position and size of a value."""


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
