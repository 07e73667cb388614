"""The kernels for unions of address ranges over time, against sets of bytes and loops over steps."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from xlamem import _sweep
from xlamem.parse.arrays import ints

SEEDS = range(40)

Value = tuple[int, int, int, int]
"""Start, end, offset and size."""


def values(rng: random.Random, n: int, steps: int, room: int) -> list[Value]:
    found = []
    for _ in range(n):
        start, end = sorted(rng.choices(range(steps), k=2))
        found.append((start, end, rng.randrange(room), rng.choice((0, 1, 1, 2, 3, room))))
    return found


def cells(value: Value) -> set[int]:
    return set(range(value[2], value[2] + value[3]))


def covered_bytes(group: list[Value], step: int) -> int:
    return len(set().union(*(cells(v) for v in group if v[0] <= step <= v[1])))


def columns(items: list[Value]) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(np.array([v[k] for v in items], np.int64) for k in range(4))


def arguments(seed: int) -> tuple[random.Random, int, int, int]:
    """Few values with many conflicts, and more of them, which other parts of the kernels sort."""
    rng = random.Random(seed)
    n = rng.choice((1, 2, 3, 7, 15, 40, 70))
    return rng, n, rng.choice((1, 2, 5, 30)), rng.choice((3, 9, 40))


@pytest.mark.parametrize("seed", SEEDS)
def test_covered(seed: int) -> None:
    rng, n, steps, room = arguments(seed)
    groups = [values(rng, rng.randrange(n + 1), steps, room) for _ in range(3)]
    space = [rng.randrange(2) for _ in groups]
    # The rows of the groups lie anywhere in the table, among others that are not asked for.
    table = [(g, v) for g, group in enumerate(groups) for v in [*group, *values(rng, 1, steps, room)]]
    wanted = [i for i, (g, v) in enumerate(table) if any(v is w for w in groups[g])]
    order = rng.sample(range(len(table)), len(table))
    place = {row: k for k, row in enumerate(order)}
    start, end, offset, size = columns([table[i][1] for i in order])
    group = np.array([table[i][0] for i in order], np.int32)
    rows = np.array([place[i] for i in wanted], np.int32)
    changes = np.zeros((2, steps), np.int64)
    maxima, first = _sweep.covered(rows, group, start, end, offset, size, np.array(space), changes)
    levels = [[covered_bytes(g, t) for t in range(steps)] for g in groups]
    assert ints(maxima).tolist() == [max(level) for level in levels]
    assert ints(first).tolist() == [level.index(max(level)) for level in levels]
    for s in range(2):
        total = [sum(level[t] for level, of in zip(levels, space, strict=True) if of == s) for t in range(steps)]
        assert np.cumsum(changes[s]).tolist() == total


@pytest.mark.parametrize(("size", "step"), [(0, 0), (1, 2)])
def test_a_value_without_bytes_has_no_step(size: int, step: int) -> None:
    numbers = (np.array([n], np.int64) for n in (2, 3, 0, size, 0))
    zero, changes = np.zeros(1, np.int32), np.zeros((1, 5), np.int64)
    maxima, first = _sweep.covered(zero, zero, *numbers, changes)
    assert (ints(maxima).tolist(), ints(first).tolist()) == ([size], [step])


@pytest.mark.parametrize("seed", SEEDS)
def test_charge(seed: int) -> None:
    """Shared bytes belong to the lowest id; exclusive ones are in no other value of the group. Ids may repeat."""
    rng, n, steps, room = arguments(seed)
    items = sorted((rng.randrange(3), i // 2, v) for i, v in enumerate(values(rng, n, steps, room)))
    group, ids = (np.array([item[k] for item in items], np.int64) for k in range(2))
    _, _, offset, size = columns([v for _, _, v in items])
    charged, single = _sweep.charge(group, ids, offset, size)
    for k, (g, _, value) in enumerate(items):
        before = set().union(*(cells(v) for h, _, v in items[:k] if h == g))
        others = before.union(*(cells(v) for h, _, v in items[k + 1 :] if h == g))
        assert ints(charged)[k] == len(cells(value) - before)
        assert ints(single)[k] == len(cells(value) - others)


@pytest.mark.parametrize("seed", SEEDS)
def test_inside(seed: int) -> None:
    """What is in use beside a candidate while it is live, at most."""
    rng, n, steps, room = arguments(seed)
    group = values(rng, n, steps, room)
    candidate = np.array([rng.random() < 0.7 for _ in group], np.uint8)
    occupied = np.array([covered_bytes(group, t) + rng.randrange(5) for t in range(steps)], np.int64)
    found = ints(_sweep.inside(*columns(group), candidate, occupied))
    for k, value in enumerate(group):
        rest = -1
        for t in range(value[0], value[1] + 1):
            others = set().union(*(cells(v) for i, v in enumerate(group) if i != k and v[0] <= t <= v[1]))
            rest = max(rest, int(occupied[t]) - len(cells(value) - others))
        assert found[k] == (rest if candidate[k] else -1)


@pytest.mark.parametrize("n", [100, 7400])
def test_too_many_changes(n: int) -> None:
    """Beyond 2^25 changes of exclusive bytes, all bytes of a candidate are taken for exclusive."""
    start, offset, size = np.arange(n) % 4, np.zeros(n, np.int64), np.full(n, 8)
    candidate = (np.arange(n) % 3 > 0).astype(np.uint8)
    occupied = np.array([9] * 5 + [20] + [10] * 4 + [90])
    found = ints(_sweep.inside(start, start + 6, offset, size, candidate, occupied))
    assert found.tolist() == [(20 if n == 100 else 12) if c else -1 for c in candidate]


def test_wrong_columns() -> None:
    one, zero, row = np.ones(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int32)
    flag, changes = np.ones(1, np.uint8), np.zeros((1, 2), np.int64)
    two = np.zeros(2, np.int64)
    good: dict[str, Any] = {
        "rows": row, "group": row, "start": zero, "end": one, "offset": zero, "size": one, "space": zero,
        "changes": changes,
    }  # fmt: skip
    _sweep.covered(*good.values())
    assert changes.tolist() == [[1, 0]]
    for name, bad in (
        ("rows", row + 1), ("rows", row - 1), ("group", row + 1), ("group", row - 1), ("start", one + 1),
        ("start", -one), ("end", one + 1), ("offset", -one), ("size", -one), ("space", one), ("space", -one),
        ("start", two), ("end", two + 1), ("offset", two), ("size", two), ("group", np.zeros(2, np.int32)),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must (be|have|lie)"):
            _sweep.covered(*(good | {name: bad}).values())
    both = np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="ordered by group"):
        _sweep.covered(np.array([1, 0], np.int32), np.array([0, 1], np.int32), two, two, two, two, two, changes)
    _sweep.covered(np.array([1, 0], np.int32), both, two, two, two, two, two, changes)
    for group, ids in (([1, 0], [0, 1]), ([0, 0], [1, 0])):
        with pytest.raises(ValueError, match="ordered by group and id"):
            _sweep.charge(np.array(group), np.array(ids), two, two)
    for bad in ((two, zero, zero), (zero, two, zero), (zero, zero, two)):
        with pytest.raises(ValueError, match="one length"):
            _sweep.charge(zero, *bad)
    for start, end in ((one, zero), (zero, one + 1), (-one, zero)):
        with pytest.raises(ValueError, match="lie in the schedule"):
            _sweep.inside(start, end, zero, zero, flag, two)
    for k in range(1, 5):
        bad_columns: list[Any] = [zero, zero, zero, zero, flag]
        bad_columns[k] = two if k < 4 else np.ones(2, np.uint8)
        with pytest.raises(ValueError, match="one length"):
            _sweep.inside(*bad_columns, two)
    assert ints(_sweep.inside(zero[:0], zero[:0], zero[:0], zero[:0], flag[:0], zero)).tolist() == []
