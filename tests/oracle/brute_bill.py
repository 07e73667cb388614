"""The bill of docs/numbers.md, computed the slow and obvious way: every cell at every step.

An allocation is cut into pieces wherever anything begins or ends: values, their data, and the cells that they touch. A
set of pieces is a Python set, and a line of the bill is the bytes of such sets. Nothing of the package is used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import gcd

from brute import Arena, Brute, Row, Space

MAX_GRANULE = 1 << 16
DEVICE_MEMORY = {"tpu": {0, 7, 9}, "gpu": {0, 1, 2}, "cpu": {0}}
LINE = {"parameter": "parameters", "donated": "donated", "live_out": "outputs", "constant": "constants"}

Pieces = set[tuple[int, int]]
Amounts = dict[tuple[str, str | None], tuple[int, int | None]]
"""(line, part) -> bytes and number of buffers."""


def granule(values: list[Row]) -> int:
    """The largest power of two that divides every offset, at most 64 KiB; 1 without two distinct offsets."""
    if len({v["offset"] for v in values}) < 2:
        return 1
    divisor = gcd(*(v["offset"] for v in values), MAX_GRANULE)
    return divisor & -divisor


class Cells:
    """The pieces of one allocation."""

    def __init__(self, arena: Arena):
        self.arena = arena
        self.granule = granule(arena.values)
        ranges = [r for v in arena.values for r in (self.whole(v), self.data(v), self.cells(v))]
        cuts = sorted({0, arena.size, *(end for r in ranges for end in r)})
        self.pieces = list(pairwise(cuts))

    def whole(self, v: Row) -> tuple[int, int]:
        return v["offset"], v["offset"] + v["size"]

    def data(self, v: Row) -> tuple[int, int]:
        known = v["size"] if v["unpadded_size"] is None else min(v["size"], v["unpadded_size"])
        return v["offset"], v["offset"] + known

    def cells(self, v: Row) -> tuple[int, int]:
        if not v["size"]:
            return v["offset"], v["offset"]
        end = v["offset"] + v["size"]
        while end % self.granule and end < self.arena.size:
            end = min(self.arena.size, (end // self.granule + 1) * self.granule)
        return v["offset"] // self.granule * self.granule, end

    def covered(self, ranges: Iterable[tuple[int, int]]) -> Pieces:
        ranges = list(ranges)
        return {(a, b) for a, b in self.pieces if any(begin <= a and b <= end for begin, end in ranges)}

    def used_cells(self, step: int) -> Pieces:
        return self.covered(map(self.cells, self.arena.live(step)))


def size(pieces: Pieces) -> int:
    return sum(b - a for a, b in pieces)


def first_covering(values: list[Row], ranges: list[tuple[int, int]], pieces: Pieces) -> int:
    """How many values are charged: each piece is charged to the first that covers it."""
    charged = {next(i for i, (begin, end) in enumerate(ranges) if begin <= a and b <= end) for a, b in pieces}
    assert len(values) == len(ranges)
    return len(charged)


def fixed(arena: Arena) -> Iterator[tuple[str, str, int]]:
    """The parts of a parameter, constant or output."""
    cells = Cells(arena)
    data = cells.covered(map(cells.data, arena.values))
    whole = cells.covered(map(cells.whole, arena.values))
    line = LINE[arena.category]
    yield line, "data", size(data)
    yield line, "padding", size(whole - data)
    yield line, "never_covered", arena.size - size(whole)


Part = tuple[str, str | None, int, int | None]


def temporary(arena: Arena, times: Iterable[int], step: int | None) -> Iterator[Part]:
    """The parts of a temp allocation in an account at a step."""
    cells = Cells(arena)
    live = [] if step is None else arena.live(step)
    data, whole, used = (cells.covered(map(f, live)) for f in (cells.data, cells.whole, cells.cells))
    for line, part, pieces, ranges in (
        ("temporaries", "data", data, cells.data),
        ("temporaries", "padding", whole - data, cells.whole),
        ("alignment", None, used - whole, cells.cells),
    ):
        yield line, part, size(pieces), first_covering(live, [ranges(v) for v in live], pieces)
    by_step = {t: cells.used_cells(t) for t in times}
    most = max(map(size, by_step.values()))
    yield "another_step", None, most - size(used), None
    first = min(t for t, pieces in by_step.items() if size(pieces) == most)
    free = set(cells.pieces) - by_step[first]
    slots = {piece: cells_touching(cells, piece) for piece in free}
    single = {piece for piece in free if len(slots[piece]) == 1 and size({piece})}
    yield "packing", "never_touched", size({p for p in free if not slots[p]}), None
    yield "packing", "one_value", size(single), len({slot for p in single for slot in slots[p]})
    yield "packing", "shared", size({p for p in free if len(slots[p]) > 1}), None


def cells_touching(cells: Cells, piece: tuple[int, int]) -> set[tuple[int, int]]:
    """The slots (offset and size) of the values whose cells hold a piece."""
    found = set()
    for v in cells.arena.values:
        begin, end = cells.cells(v)
        if begin <= piece[0] and piece[1] <= end:
            found.add((v["offset"], v["size"]))
    return found


def account(brute: Brute, spaces: list[Space], step: int | None) -> Amounts:
    total: Counter[tuple[str, str | None]] = Counter()
    buffers: Counter[tuple[str, str | None]] = Counter()
    for space in spaces:
        for arena in space.held:
            if arena.category != "temp":
                parts = [(line, part, n, int(n > 0)) for line, part, n in fixed(arena)]
            elif brute.times is None:
                parts = [("temporaries", None, arena.size, int(arena.size > 0))]
            else:
                parts = list(temporary(arena, brute.times, step))
            for line, part, n, count in parts:
                total[line, part] += n
                buffers[line, part] += count or 0
    uncounted = {("another_step", None), ("packing", "never_touched"), ("packing", "shared")}
    return {key: (n, None if key in uncounted else buffers[key]) for key, n in total.items() if n}


def bills(brute: Brute, platform: str | None) -> dict[tuple[str, int | None, int | None], tuple[int | None, Amounts]]:
    """(account, color, page) -> step and amounts."""
    found = {}
    main = [
        s for s in brute.spaces
        if (s.color in DEVICE_MEMORY[platform] if platform in DEVICE_MEMORY else s.color != 5)
    ]  # fmt: skip
    step = None
    if brute.times is not None:
        in_use = Counter[int]()
        for row in brute.occupancy():
            if any((s.color, s.page) == (row["color"], row["page"]) for s in main):
                in_use[row["time"]] += row["occupied"]
        top = max(in_use.values(), default=0)
        step = min(t for t, n in in_use.items() if n == top) if top else None
    found["device_total", None, None] = (step, account(brute, main, step))
    for space, peak in zip(brute.spaces, brute.peaks, strict=True):
        own = peak["first_step"]
        found[space.memory_space, space.color, space.page] = (own, account(brute, [space], own))
    return {key: (own if amounts else None, amounts) for key, (own, amounts) in found.items() if amounts}
