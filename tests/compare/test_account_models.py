"""The steps that account for a difference, on random buffers, against plain loops over them."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.compare import account, contributors, interface
from xlamem.compare.account import Account, Buffers
from xlamem.compute.bills import ROWS
from xlamem.compute.layout import CONSTANT, DONATED, LIVE_OUT, TEMP, TEMP_IN_OUTPUT, THREAD_LOCAL

CHANCE = random.Random()


@pytest.fixture(autouse=True)
def same_inputs() -> None:
    CHANCE.seed(5)


def array(values: Iterable[int]) -> Any:
    return np.array([*values], np.int64)


def some(n: int, least: int, most: int) -> Any:
    return array(CHANCE.randint(least, most) for _ in range(n))


def flags(n: int) -> Any:
    return some(n, 0, 1).astype(bool)


# -- buffers at a step ---------------------------------------------------------------------------


def a_program(steps: int | None) -> Any:
    """Up to four allocations in two memory spaces, and values with random places and live ranges."""
    n, n_values = CHANCE.randint(1, 4), CHANCE.randint(0, 9)
    category = array(CHANCE.choice((TEMP, LIVE_OUT, CONSTANT, THREAD_LOCAL)) for _ in range(n))
    owner, extent, data = some(n_values, 0, n - 1), some(n_values, 0, 5), some(n_values, 0, 4)
    of_value = np.where((category[owner] == LIVE_OUT) & flags(n_values), TEMP_IN_OUTPUT, category[owner])
    start = some(n_values, -1, 4)
    representative = [max((v for v in range(n_values) if owner[v] == i), default=-1) for i in range(n)]
    return SimpleNamespace(
        steps=steps, allocation_ids=np.arange(n), space_of_allocation=some(n, 0, 1), category=category, owner=owner,
        is_fixed=(category != TEMP) & (category != THREAD_LOCAL), allocation_size=some(n, 4, 12), extent=extent,
        data_extent=lambda rows: np.minimum(data, extent)[rows], offset=some(n_values, 0, 6),
        categories_of=lambda rows: of_value[rows], value_category=category[owner], in_temp=category[owner] == TEMP,
        occupied_ranges=lambda: (start, start + 1), representative=array(representative),
        is_output=lambda rows: of_value[rows] == LIVE_OUT,
    )  # fmt: skip


def groups_of_ranges(p: Any, live: list[int]) -> list[list[int]]:
    """Return the values whose addresses overlap, directly or through others, by allocation and address."""
    found: list[list[int]] = []
    end, owner = 0, -1
    for v in sorted(live, key=lambda v: (p.owner[v], p.offset[v], v)):
        if p.owner[v] != owner or p.offset[v] >= end:
            found.append([])
            end, owner = 0, p.owner[v]
        found[-1].append(v)
        end = max(end, p.offset[v] + p.extent[v])
    return found


def union(p: Any, values: list[int], sizes: Any) -> int:
    return len({p.offset[v] + k for v in values for k in range(sizes[v])})


@pytest.mark.parametrize("steps", [None, 5])
def test_buffers_at_a_step(steps: int | None) -> None:
    """Allocations that are always there, and address ranges of temporaries; without steps, all allocations."""
    for _ in range(150):
        p, step, spaces = a_program(steps), CHANCE.randrange(5), flags(2)
        n_values = len(p.owner)
        start, end = p.occupied_ranges()
        in_account = [bool(spaces[s]) and c != THREAD_LOCAL for s, c in zip(p.space_of_allocation, p.category,
            strict=True)]  # fmt: skip
        whole = [i for i in range(len(in_account)) if in_account[i] and (steps is None or p.is_fixed[i])]
        main = p.representative.tolist()
        for v in range(n_values if steps else 0):
            if p.value_category[v] == LIVE_OUT and p.is_output(v):
                main[p.owner[v]] = v
        wanted = [(i, main[i], p.allocation_size[i]) for i in whole]
        data = [min(p.data_extent(main[i]), p.allocation_size[i]) if main[i] >= 0 else p.allocation_size[i] for i in
            whole]  # fmt: skip
        of_value = [whole.index(i) if i in whole else -1 for i in p.owner.tolist()]
        if steps is not None:
            for v in range(n_values):
                if p.categories_of(v) == TEMP_IN_OUTPUT and not start[v] <= step <= end[v] and v not in main:
                    of_value[v] = -1
            live = [v for v in range(n_values) if in_account[p.owner[v]] and p.in_temp[v] and p.extent[v]
                    and 0 <= start[v] <= step <= end[v]]  # fmt: skip
            for own in groups_of_ranges(p, live):
                top = max(enumerate(own), key=lambda pair: (p.extent[pair[1]], pair[0]))[1]
                for v in own:
                    of_value[v] = len(wanted)
                wanted.append((p.owner[own[0]], top, union(p, own, p.extent)))
                data.append(union(p, own, p.data_extent(np.arange(n_values))))
        found = account.buffers_at(p, spaces, step)
        assert [*zip(*(x.tolist() for x in found[:3]), strict=True)] == wanted
        assert found.data.tolist() == data
        assert found.of_value.tolist() == of_value


# -- partners ------------------------------------------------------------------------------------


def buffers(n: int, values: int) -> Buffers:
    of_value = some(values, -1, n - 1) if n else np.full(values, -1)
    main = [CHANCE.choice([v for v in range(values) if of_value[v] == i] or [-1]) for i in range(n)]
    return Buffers(some(n, 0, 2), array(main), some(n, 1, 9), some(n, 1, 9), of_value)


def two_sides() -> tuple[Any, Buffers, Buffers]:
    """Two programs of which some values match, and buffers of both."""
    sides = []
    n = CHANCE.randrange(6), CHANCE.randrange(6)
    for k in n:
        categories = array(CHANCE.choice((TEMP, TEMP, TEMP_IN_OUTPUT, THREAD_LOCAL)) for _ in range(k))
        sides.append(SimpleNamespace(
            extent=some(k, 0, 6), size=some(k, 0, 6), space=some(k, 0, 1), value_category=categories,
            categories_of=lambda rows, categories=categories: categories[rows],
        ))  # fmt: skip
    value, value_of_b = np.full(n[0], -1), np.full(n[1], -1)
    pairs = [*zip(CHANCE.sample(range(n[0]), n[0]), CHANCE.sample(range(n[1]), n[1]), strict=False)]
    for i, j in pairs[: CHANCE.randrange(6)]:
        value[i], value_of_b[j] = j, i
    m = SimpleNamespace(a=sides[0], b=sides[1], value=value, value_of_b=value_of_b)
    return m, buffers(CHANCE.randrange(4), n[0]), buffers(CHANCE.randrange(4), n[1])


def weights(m: Any, in_a: Buffers, in_b: Buffers) -> Counter[tuple[int, int]]:
    """Return the bytes that pairs of buffers have in common; those of their main values count four times."""
    found: Counter[tuple[int, int]] = Counter()
    for i, j in enumerate(m.value.tolist()):
        if j >= 0 and min(a := in_a.of_value[i], b := in_b.of_value[j]) >= 0:
            borrowed = (m.a.categories_of(i) == TEMP_IN_OUTPUT, m.b.categories_of(j) == TEMP_IN_OUTPUT)
            if borrowed[0] == borrowed[1]:
                n = min(m.a.extent[i], m.b.extent[j])
                found[int(a), int(b)] += 4 * n + 2 if (in_a.main[a], in_b.main[b]) == (i, j) else n
    return found


def test_bytes_in_common() -> None:
    for _ in range(200):
        m, in_a, in_b = two_sides()
        left, right, weight = (x.tolist() for x in account._candidates(m, in_a, in_b))
        assert dict(zip(zip(left, right, strict=True), weight, strict=True)) == weights(m, in_a, in_b)
        assert [*zip(left, right, strict=True)] == sorted(zip(left, right, strict=True))


def test_partners_of_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with most bytes in common first; of equal pairs, the first. Those without values by what they are."""
    keys: list[Any] = []
    monkeypatch.setattr(account, "_without_values", lambda m, a, b, rows: [k[r] for k, r in zip(keys, rows,
        strict=True)])  # fmt: skip
    for _ in range(200):
        m, in_a, in_b = two_sides()
        keys[:] = some(len(in_a.bytes), 0, 1), some(len(in_b.bytes), 0, 1)
        wanted = [-1] * len(in_a.bytes)
        for (i, j), _ in sorted(weights(m, in_a, in_b).items(), key=lambda pair: (-pair[1], pair[0])):
            if wanted[i] < 0 and j not in wanted:
                wanted[i] = j
        of_key: list[dict[int, list[int]]] = [defaultdict(list), defaultdict(list)]
        for side, own, key in zip(of_key, (in_a, in_b), keys, strict=True):
            for i in np.flatnonzero(own.main < 0).tolist():
                side[int(key[i])].append(i)
        for key, rows in of_key[0].items():
            for i, j in zip(rows, of_key[1][key], strict=False):
                wanted[i] = j
        assert account._partners(m, in_a, in_b).tolist() == wanted


def test_allocations_without_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are alike if the name of their memory space, their category and their size are."""
    monkeypatch.setattr(account, "_space_names", lambda a, b: [np.array(["hbm", "vmem"]), np.array(["vmem", "hbm"])])
    sides = [SimpleNamespace(space_of_allocation=array(space), category=array(category)) for space, category in
             (([0, 1, 0], [TEMP, TEMP, CONSTANT]), ([1, 0, 1], [TEMP, TEMP, CONSTANT]))]  # fmt: skip
    m: Any = SimpleNamespace(a=sides[0], b=sides[1])
    rows: Any = SimpleNamespace(owner=array([9, 0, 1, 2, 0]), bytes=array([9, 8, 8, 8, 7]))
    chosen = array([1, 2, 3, 4])
    a, b = (x.tolist() for x in account._without_values(m, rows, rows, (chosen, chosen)))
    assert a == b
    assert len({*a}) == 4


@pytest.mark.parametrize("gone", [True, False])
def test_causes_of_buffers_without_a_partner(gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that applies; a copy whose source matches is in use on one side only."""
    monkeypatch.setattr(account, "_space_names", lambda a, b: [np.array(["x", "y"]), np.array(["x", "z"])])
    seen = set()
    for _ in range(200):
        m, in_a, in_b = two_sides()
        here, there, match, other = (m.a, in_b, m.value, m.b) if gone else (m.b, in_a, m.value_of_b, m.a)
        main = some(CHANCE.randrange(4), -1, len(match) - 1)
        value = array(CHANCE.choice([-1, *range(len(other.size))]) if v >= 0 else -1 for v in main.tolist())
        monkeypatch.setattr(account, "_matching", lambda p, rows, of, value=value: value)
        wanted = []
        for v, w in zip(main.tolist(), value.tolist(), strict=True):
            single = account.GONE if gone else account.NEW
            moved = w >= 0 and (here.space[v] == 1 or other.space[w] == 1)
            sizes = (here.size[v], other.size[w]) if w >= 0 else (0, 0)
            if w < 0 or (not moved and (v < 0 or match[v] < 0)) or other.value_category[w] == THREAD_LOCAL:
                wanted.append(single)
            elif moved:
                wanted.append(single if max(sizes) > 2 * min(sizes) else account.MOVED)
            elif there.of_value[w] >= 0:
                wanted.append(account.SHARING)
            else:
                wanted.append(account.SHORTER if gone else account.LONGER)
        cause, found = account._single_causes(m, main, there, gone=gone)
        assert (cause.tolist(), found.tolist()) == (wanted, value.tolist())
        seen.update(wanted)
    assert len(seen) == 4


def test_contributions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs, then buffers of A alone, then those of B; what a side lacks is -1, and has no bytes."""
    in_a = Buffers(array([10, 11, 12]), array([20, 0, 22]), array([5, 6, 7]), array([4, 5, 6]), array([]))
    in_b = Buffers(array([30, 0]), array([40, 41]), array([5, 9]), array([8, 8]), array([]))
    asked: list[Any] = []

    def causes(m: Any, main: Any, there: Any, *, gone: bool) -> Any:
        asked.append((main.tolist(), there is in_b, gone))
        return (array([7, 8]), array([1, -1])) if gone else (array([3]), array([0]))

    monkeypatch.setattr(account, "_partners", lambda *_: array([-1, 0, -1]))
    monkeypatch.setattr(account, "_single_causes", causes)
    monkeypatch.setattr(account, "_paired_causes", lambda *columns: array([sum(c.tolist()[0] for c in columns)]))
    none: Any = None
    found = account.contributions(none, in_a, in_b)._asdict()
    assert asked == [([20, 22], True, True), ([41], False, False)]
    assert {name: column.tolist() for name, column in found.items()} == {
        "value_a": [0, 20, 22, -1], "value_b": [40, -1, -1, 41], "owner_a": [11, 10, 12, -1],
        "owner_b": [30, -1, -1, 0], "bytes_a": [6, 5, 7, 0], "bytes_b": [5, 0, 0, 9], "data_a": [5, 4, 6, 0],
        "data_b": [8, 0, 0, 8], "cause": [6 + 5 + 5 + 8, 7, 8, 3], "other": [-1, 1, -1, 0],
    }  # fmt: skip
    assert account._of_rows(array([]), array([-1, -1])).tolist() == [0, 0]


# -- one account ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "steps", "compared", "peak_step"),
    [
        (([1, 9, 2], [3, 4, 5]), (3, 3), (7, 8), (1, 2)), (([0, 0], [0, 4]), (2, 2), (7, 8), (-1, 1)),
        (([0, 0], [0, 0]), (2, 2), (0, 0), (-1, -1)), (([9], [4]), (None, 1), (0, 0), (-1, 0)),
        (([9], [1]), (1, None), (0, 0), (0, -1)),
    ],
)  # fmt: skip
def test_the_difference_of_an_account(
    usage: Any, steps: Any, compared: tuple[int, int], peak_step: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other steps than those of the peaks are compared only if both sides have steps, and something is in use."""
    sides = [SimpleNamespace(steps=n, usage=array(own), reserved=array([3 + k, 50])) for k, (n, own) in
             enumerate(zip(steps, usage, strict=True))]  # fmt: skip
    masks = np.array([True, False]), np.array([True, True])
    at: list[int] = []
    monkeypatch.setattr(account, "levels", lambda p, spaces: p.usage)
    monkeypatch.setattr(account, "_compared_steps", lambda m, usage, peaks: [7, 8])
    monkeypatch.setattr(account, "buffers_at", lambda p, spaces, step: at.append(step) or SimpleNamespace(
        bytes=array([step, 1000])))  # fmt: skip
    monkeypatch.setattr(account, "_reserved", lambda p: p.reserved)
    monkeypatch.setattr(account, "_bill_rows", lambda p, spaces, step: (p is sides[0], spaces.tolist(), step))
    monkeypatch.setattr(account, "contributions", lambda m, a, b: "contributions")
    m: Any = SimpleNamespace(a=sides[0], b=sides[1])
    found = account.account_difference(m, Account("x", *masks))
    peaks = [int(u.usage.argmax()) for u in sides]
    top = tuple(max(own) for own in usage)
    assert found[1:] == (
        (3, 54), top, peak_step, compared, (1000 + compared[0], 1000 + compared[1]), "contributions",
        ((True, [True, False], peaks[0]), (False, [True, True], peaks[1])),
    )  # fmt: skip
    assert at == [*compared]
    assert (found.peak_change, found.moved) == (top[1] - top[0], top[1] - top[0] - (compared[1] - compared[0]))


def test_bills_of_no_memory_space() -> None:
    none: Any = None
    assert account._bill_rows(none, np.zeros(3, bool), 0).tolist() == [0] * len(ROWS)


def test_names_of_memory_spaces() -> None:
    """On two platforms, only whether they are the main memory counts; a program may have none."""
    def side(platform: str, *spaces: tuple[str, int, int]) -> Any:
        made = [SimpleNamespace(name=name, page=page, color=color) for name, page, color in spaces]
        return SimpleNamespace(spaces=made, tables=SimpleNamespace(platform=platform))

    tpu, other = side("tpu", ("hbm", 0, 0), ("hbm", 1, 0), ("vmem", 0, 1)), side("gpu", ("default", 0, 0))
    assert [x.tolist() for x in account._space_names(tpu, tpu)] == [["hbm 0", "hbm 1", "vmem 0"]] * 2
    assert [x.tolist() for x in account._space_names(tpu, side("tpu"))][1] == [""]
    assert [x.tolist() for x in account._space_names(tpu, other)] == [[True, True, False], [True]]
    assert [x.tolist() for x in account._space_names(side("tpu"), other)] == [[True], [True]]


# -- the interface -------------------------------------------------------------------------------


def interface_of(a: Any, b: Any) -> Any:
    made: Any = interface.Interface.__new__(interface.Interface)
    made.m = SimpleNamespace(a=a, b=b)
    return made


def with_outputs(n: int, most: int = 3) -> Any:
    """A program with as many outputs in any order; tuples have the shape 0."""
    index = pa.array([f"{{{i}}}" for i in CHANCE.sample(range(most + 1), n)], pa.string())
    return SimpleNamespace(outputs=SimpleNamespace(value=np.arange(n), index=index), shapes=some(n, 0, 2), steps=5)


def test_outputs_with_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those of the same shape, at the same index or elsewhere; those with the same index are one output."""
    monkeypatch.setattr(interface, "outputs_of", lambda p: p.outputs)
    monkeypatch.setattr(interface, "_plain_shapes", lambda p, values: p.shapes[values])
    n_found = 0
    for _ in range(300):
        n = CHANCE.randint(0, 3)
        a, b = with_outputs(n), with_outputs(n)
        left, right = (dict(enumerate(p.outputs.index.to_pylist())) for p in (a, b))
        for by_index in (True, False):
            for i in [*left]:
                alike = [j for j in right if a.shapes[i] == b.shapes[j] and (not by_index or left[i] == right[j])]
                if alike:
                    del left[i], right[alike[0]]
        wanted = {(i, j) for i in left for j in right if left[i] == right[j]}
        others = ([k for k in side if k not in {pair[s] for pair in wanted}] for s, side in enumerate((left, right)))
        wanted |= {*zip(*others, strict=True)}
        found = interface_of(a, b).resized_outputs
        pairs = {*zip(*(side.tolist() for side in found), strict=True)}
        assert pairs == {(i, j) for i, j in wanted if a.shapes[i] and b.shapes[j]}
        n_found += len(pairs)
    assert n_found > 50
    for sides in ((1, 2), (2, 1)):
        assert [len(x) for x in interface_of(*map(with_outputs, sides)).resized_outputs] == [0, 0]


def test_arguments_that_can_be_donated(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many of each shape as there are outputs whose memory is not that of an argument."""
    monkeypatch.setattr(interface, "outputs_of", lambda p: p.outputs)
    monkeypatch.setattr(interface, "_plain_shapes", lambda p, values: p.shapes[values])
    for _ in range(100):
        n = CHANCE.randint(0, 3)
        b = with_outputs(n)
        b.shapes, b.owner = some(n + 4, 0, 2), array([*CHANCE.sample(range(n + 1), n), 0, 0, 0, 0])
        b.category = array(CHANCE.choice((DONATED, LIVE_OUT)) for _ in range(n + 1))
        i = interface_of(None, b)
        i.b = SimpleNamespace(value=n + np.arange(4))
        right = array(sorted(CHANCE.sample(range(4), CHANCE.randint(0, 4))))
        free = Counter(int(b.shapes[v]) for v in range(n) if b.category[b.owner[v]] != DONATED)
        wanted = []
        for k in right.tolist():
            shape = int(b.shapes[n + k])
            wanted.append(free[shape] > 0)
            free[shape] -= 1
        assert i.can_be_donated(right).tolist() == wanted
        b.steps = None
        assert i.can_be_donated(right).all()


@pytest.mark.parametrize(
    ("match", "new", "gone"),
    [
        ([1, 2], [0], []),  # the second one has another shape
        ([1, -1], [0, 2], [1]),
        ([-1, -1], [1, 2], [1]),  # of equal shapes, the first ones
        ([2, -1], [1, 2], [1]),  # shapes decide before matches
        ([-1, 0], [1, 2], [1]),  # what an output of its shape has is no match
    ],
)
def test_outputs_of_one_side_only(
    match: list[int], new: list[int], gone: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interface, "outputs_of", lambda p: p.outputs)
    monkeypatch.setattr(interface, "_array_outputs", lambda p: np.arange(len(p.plain)))
    monkeypatch.setattr(interface, "_plain_shapes", lambda p, values: p.plain[values])
    a, b = (with_outputs(k) for k in (2, 3))
    a.plain, b.plain = array([5, 7]), array([5, 5, 6])
    i = interface_of(a, b)
    i.m.value = array(match)
    assert (i.new_outputs.tolist(), i.gone_outputs.tolist()) == (new, gone)
    a.outputs = b.outputs  # as many
    i = interface_of(a, b)
    assert (i.new_outputs.tolist(), i.gone_outputs.tolist()) == ([], [])


def test_how_values_were_matched() -> None:
    """A copy that only one side has counts as what it copies, whichever side that is; of two rules, the later one."""
    m: Any = SimpleNamespace(rule=array([5, -1, 2]), value_of_b=array([0, 2, -1]))
    found = contributors._rules(m, array([0, 1, 0, -1, 2, 1]), array([0, 0, 2, 0, 0, 2]))
    assert found.tolist() == [5, 5, 5, -1, 5, -1]
    assert contributors._rules(m, array([2, 2]), array([1, -1])).tolist() == [2, -1]
