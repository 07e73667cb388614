"""Account for the difference of two programs: what must fit, and what is in use at the peak, buffer by buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import schema
from ..compute.bills import DEVICE_TOTAL, ROWS, account_items
from ..compute.columns import Ints, Mask, sums_of, take
from ..compute.in_use import occupied_in, windows
from ..compute.layout import LIVE_OUT, TEMP_IN_OUTPUT, THREAD_LOCAL
from ..compute.origins import has_opcode, operands_of
from ..compute.program import Program
from ..parse.arrays import order_by, stable_order
from ..parse.fingerprints import row_hash
from .graph import MOVE, both_sides
from .matching import Matching
from .ordering import in_order

NEW, GONE, MOVED, LONGER, SHORTER, SHARING, LARGER, SMALLER, PADDING = range(len(schema.CAUSES))

MAX_MOVED = 2
"""Maximum ratio of the sizes of a buffer in two memory spaces. If it is greater, one replaces the other."""
MAX_SPACES = 64
"""Maximum number of memory spaces with an account of their own."""
OTHER_SPACES = "other spaces"
MAX_ROUNDS = 16
"""Maximum number of rounds in which buffers choose partners."""
MAX_CHOICES = 32
"""Maximum number of steps at which the peak is reached that are looked at."""
MAX_COPIES = 4
"""Maximum number of copies in a row that are followed to what they copy."""
WINDOW = 64
"""Number of matched instructions before a step of which the longest common order decides what corresponds to it."""


@dataclass(frozen=True)
class Account:
    """Memory spaces whose bytes are added up, as masks over the spaces of both programs."""

    name: str
    spaces_a: Mask
    spaces_b: Mask

    @property
    def key(self) -> tuple[bytes, bytes]:
        """The spaces, to compare accounts."""
        return self.spaces_a.tobytes(), self.spaces_b.tobytes()


def accounts(a: Program, b: Program) -> list[Account]:
    """Return the account of the device's main memory, then one of each memory space."""
    in_device = [
        np.array([schema.in_device_memory(p.tables.platform, s.color) for s in p.spaces], bool) for p in (a, b)
    ]
    keys = [[(s.name, s.page) for s in p.spaces] for p in (a, b)]
    both = list(dict.fromkeys(sorted([*keys[0], *keys[1]], key=partial(_space_order, a, b))))

    def account(name: str, chosen: set[tuple[str, int]]) -> Account:
        return Account(name, *(np.array([k in chosen for k in side], bool) for side in keys))

    single = [account(name if not page else f"{name} page {page}", {(name, page)}) for name, page in both[:MAX_SPACES]]
    rest = [account(OTHER_SPACES, set(both[MAX_SPACES:]))] if len(both) > MAX_SPACES else []
    return [Account(DEVICE_TOTAL, *in_device), *single, *rest]


def _space_order(a: Program, b: Program, key: tuple[str, int]) -> tuple[int, int, str]:
    colors = [s.color for p in (a, b) for s in p.spaces if (s.name, s.page) == key]
    return min(colors), key[1], key[0]


# -- steps ---------------------------------------------------------------------------------------


def levels(p: Program, spaces: Mask) -> Ints:
    """Return the bytes in use in these spaces at every step."""
    total = np.zeros(p.steps or 1, np.int64)
    if p.steps is None:
        return total + int(_reserved(p)[spaces].sum())
    for window in windows(p):
        rows = spaces[window.spaces]
        if rows.any():
            total += window.expand(occupied_in(p, window)[rows].sum(0, keepdims=True))[0]
    return total


class Interval(NamedTuple):
    """Steps, both inclusive."""

    first: int
    last: int


def corresponding(m: Matching, step: int, side: int) -> Interval:
    """Return the steps of the other program that correspond to a step of A (side 0) or B (side 1).

    They begin with the last matched instruction at or before the step, and end before the next one. Of the matched
    instructions around the step, only those count that most others agree with about the order.
    """
    here, there = m.steps_in_order[side]
    at, last = int(np.searchsorted(here, step, "right")), ((m.a, m.b)[1 - side].steps or 1) - 1
    near = slice(max(0, at - WINDOW), at + WINDOW)
    anchors = near.start + _increasing(there[near])
    before, after = anchors[anchors < at], anchors[anchors >= at]
    first = int(there[before[-1]]) if len(before) else 0
    end = int(there[after[0]]) - 1 if len(after) else last
    if len(before) and here[before[-1]] == step:
        end = first
    return Interval(min(first, last), min(max(first, end), last))


def _increasing(values: Ints) -> Ints:
    """Return the indices of a longest increasing subsequence of a few values."""
    length, previous = np.ones(len(values), np.int64), np.full(len(values), -1)
    for i in range(1, len(values)):
        candidates = np.where(values[:i] < values[i], length[:i], 0)
        if candidates.any():
            previous[i] = candidates.argmax()
            length[i] = candidates.max() + 1
    chain = [int(length.argmax())] if len(values) else []
    while chain and previous[chain[-1]] >= 0:
        chain.append(int(previous[chain[-1]]))
    return np.array(chain[::-1], np.int64)


# -- buffers at a step ---------------------------------------------------------------------------


class Buffers(NamedTuple):
    """What is in use at a step: fixed allocations, and connected address ranges of temp allocations."""

    owner: Ints
    """Row in `allocations`."""
    main: Ints
    """Row in `values` of the value that represents the buffer: the largest; -1 for none."""
    bytes: Ints
    data: Ints
    """Bytes without padding."""
    of_value: Ints
    """Buffer of each value of the program, -1 for values that are not in use."""


def buffers_at(p: Program, spaces: Mask, step: int) -> Buffers:
    """Return the buffers in use in these spaces at a step; their bytes add up to what is in use."""
    of_value = np.full(len(p.owner), -1, np.int64)
    in_account = spaces[p.space_of_allocation] & (p.category != THREAD_LOCAL)
    whole = np.flatnonzero(in_account & (p.is_fixed | (p.steps is None)))
    main = _main_of_allocations(p)[whole]
    number = np.full(len(p.allocation_ids), -1, np.int64)
    number[whole] = np.arange(len(whole))
    of_value[:] = number[p.owner]
    size = p.allocation_size[whole]
    data = np.where(main >= 0, np.minimum(p.data_extent(np.maximum(main, 0)), size), size) if len(p.owner) else size
    if p.steps is None:
        return Buffers(whole, main, size, data, of_value)
    start, end = p.occupied_ranges()
    is_borrower = p.categories_of(np.arange(len(p.owner))) == TEMP_IN_OUTPUT
    of_value[is_borrower & ((step < start) | (end < step))] = -1
    of_value[main[main >= 0]] = np.flatnonzero(main >= 0)
    live = _live_temps(p, in_account, step)
    group, owner, top, total, net = _connected(p, live)
    of_value[live] = group + len(whole)
    join = np.concatenate
    return Buffers(join((whole, owner)), join((main, top)), join((size, total)), join((data, net)), of_value)


def _live_temps(p: Program, in_account: Mask, step: int) -> Ints:
    start, end = p.occupied_ranges()
    live = (start >= 0) & (start <= step) & (step <= end) & p.in_temp & (p.extent > 0)
    rows = np.flatnonzero(live)
    return rows[in_account[p.owner[rows]]]


def _main_of_allocations(p: Program) -> Ints:
    """Return the value that represents each allocation: the output in that of an output, otherwise the parameter."""
    main = p.representative.copy()
    if p.steps is not None:
        outputs = np.flatnonzero(p.value_category == LIVE_OUT)
        outputs = outputs[p.is_output(outputs)]
        main[p.owner[outputs]] = outputs
    return main


def _connected(p: Program, values: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Group values whose addresses overlap; return group, owner, largest value, bytes and data bytes of the groups."""
    if not len(values):
        return tuple(np.empty(0, np.int64) for _ in range(5))  # type: ignore[return-value]
    order = order_by(p.owner[values], p.offset[values])
    rows = values[order]
    base = np.concatenate([np.zeros(1, np.int64), np.cumsum(p.allocation_size)])[p.owner[rows]]
    begin = base + p.offset[rows]
    added, starts = _covered(begin, p.extent[rows])
    number = np.cumsum(starts) - 1
    n = int(number[-1]) + 1
    data = sums_of(_covered(begin, p.data_extent(rows))[0], number, n)
    by_size = stable_order(p.extent[rows])
    top = np.empty(n, np.int64)
    top[number[by_size]] = rows[by_size]
    group = np.empty(len(values), np.int64)
    group[order] = number
    return group, p.owner[rows[starts]].astype(np.int64), top, sums_of(added, number, n), data


def _covered(begin: Ints, extent: Ints) -> tuple[Ints, Mask]:
    """Return the bytes that each range adds to the union of those before it, and whether it overlaps none of them."""
    end = begin + extent
    before = np.concatenate([np.full(1, -1), np.maximum.accumulate(end)[:-1]])
    return np.maximum(end - np.maximum(begin, before), 0), begin >= before


# -- contributions -------------------------------------------------------------------------------


class Contributions(NamedTuple):
    """Buffers that contribute to the difference of an account."""

    value_a: Ints
    """Row in `values` of A, -1 if the buffer is not in use there."""
    value_b: Ints
    owner_a: Ints
    """Row in `allocations` of A, -1 if the buffer is not in use there."""
    owner_b: Ints
    bytes_a: Ints
    bytes_b: Ints
    data_a: Ints
    data_b: Ints
    cause: Ints
    """Index in `schema.CAUSES`; -1 for a buffer whose bytes are the same."""
    other: Ints
    """Row in `values` of the matching value on the side where the buffer is not in use, -1 for none."""


class AccountDifference(NamedTuple):
    """The difference of one account."""

    account: Account
    reserved: tuple[int, int]
    """What A and B must have."""
    peak: tuple[int, int]
    peak_step: tuple[int, int]
    """First step of the peaks, -1 without live ranges or if nothing is in use."""
    step: tuple[int, int]
    """Steps that are compared: that of the larger peak, and the corresponding step of the other program."""
    in_use: tuple[int, int]
    """Bytes in use at these steps."""
    contributions: Contributions
    rows: tuple[Ints, Ints]
    """Bytes of each row of the bills of A and B (see `bills.ROWS`), at their own peaks."""

    @property
    def peak_change(self) -> int:
        return self.peak[1] - self.peak[0]

    @property
    def moved(self) -> int:
        """Change of the peak because the program with the smaller peak has it at another step."""
        return self.peak_change - (self.in_use[1] - self.in_use[0])


def account_differences(m: Matching, accounts: list[Account]) -> list[AccountDifference]:
    """Account for the difference of B and A in each account; those with the same spaces share the result."""
    first = {account.key: account for account in reversed(accounts)}
    found = {key: account_difference(m, account) for key, account in first.items()}
    return [found[account.key]._replace(account=account) for account in accounts]


def account_difference(m: Matching, account: Account) -> AccountDifference:
    """Account for the difference of B and A in the spaces of an account. Every byte has one cause."""
    programs, spaces = (m.a, m.b), (account.spaces_a, account.spaces_b)
    usage = both_sides(lambda side: levels(*side), *zip(programs, spaces, strict=True))
    peaks = [int(u.argmax()) for u in usage]
    peak = [int(u[step]) for u, step in zip(usage, peaks, strict=True)]
    timed = m.a.steps is not None and m.b.steps is not None
    steps = _compared_steps(m, usage, peaks) if timed and max(peak) else peaks
    in_a, in_b = both_sides(lambda side: buffers_at(*side), *zip(programs, spaces, steps, strict=True))
    reserved = [int(_reserved(p)[s].sum()) for p, s in zip(programs, spaces, strict=True)]
    has_step = [p.steps is not None and size > 0 for p, size in zip(programs, peak, strict=True)]
    rows = both_sides(lambda side: _bill_rows(*side), *zip(programs, spaces, peaks, strict=True))
    return AccountDifference(
        account,
        (reserved[0], reserved[1]),
        (peak[0], peak[1]),
        (peaks[0] if has_step[0] else -1, peaks[1] if has_step[1] else -1),
        (steps[0], steps[1]),
        (int(in_a.bytes.sum()), int(in_b.bytes.sum())),
        contributions(m, in_a, in_b),
        rows,
    )


def _reserved(p: Program) -> Ints:
    return p.sum_by_space(p.allocation_size, p.category != THREAD_LOCAL)


def _compared_steps(m: Matching, usage: tuple[Ints, Ints], peaks: list[int]) -> list[int]:
    """Return the step of the larger peak, and the step with most bytes among those that correspond to it."""
    side = int(usage[1][peaks[1]] >= usage[0][peaks[0]])
    at_peak = np.flatnonzero(usage[side] == usage[side][peaks[side]])
    best: tuple[int, list[int]] = -1, list(peaks)
    # Where the peak is reached several times, the step counts at which the other program has most in use.
    choices = dict.fromkeys(np.linspace(0, len(at_peak) - 1, MAX_CHOICES).astype(int).tolist())
    for step in at_peak[[*choices]].tolist():
        first, last = corresponding(m, step, side)
        other = first + int(usage[1 - side][first : last + 1].argmax())
        if usage[1 - side][other] > best[0]:
            best = int(usage[1 - side][other]), [step, other] if side == 0 else [other, step]
    return best[1]


def _bill_rows(p: Program, spaces: Mask, step: int) -> Ints:
    if not spaces.any():
        return np.zeros(len(ROWS), np.int64)
    items, _ = account_items(p, np.where(spaces, 0, -1), np.array([step]))  # without steps, it is not asked for
    return sums_of(items.bytes, items.row, len(ROWS))


def contributions(m: Matching, in_a: Buffers, in_b: Buffers) -> Contributions:
    """Pair the buffers of both sides, and state the cause of the difference of each pair or single buffer."""
    partner = _partners(m, in_a, in_b)
    single_b = np.flatnonzero(np.bincount(partner[partner >= 0], minlength=len(in_b.bytes))[: len(in_b.bytes)] == 0)
    paired, single_a = np.flatnonzero(partner >= 0), np.flatnonzero(partner < 0)
    none_a, none_b = np.full(len(single_b), -1), np.full(len(single_a), -1)
    rows_a = np.concatenate([paired, single_a, none_a])
    rows_b = np.concatenate([partner[paired], none_b, single_b])
    cause_a, other_a = _single_causes(m, in_a.main[single_a], in_b, gone=True)
    cause_b, other_b = _single_causes(m, in_b.main[single_b], in_a, gone=False)
    a, b = ([_of_rows(column, rows) for column in side[:4]] for side, rows in ((in_a, rows_a), (in_b, rows_b)))
    causes = _paired_causes(*(column[: len(paired)] for column in (a[2], b[2], a[3], b[3])))
    return Contributions(
        value_a=np.where(rows_a >= 0, a[1], -1),
        value_b=np.where(rows_b >= 0, b[1], -1),
        owner_a=np.where(rows_a >= 0, a[0], -1),
        owner_b=np.where(rows_b >= 0, b[0], -1),
        bytes_a=a[2],
        bytes_b=b[2],
        data_a=a[3],
        data_b=b[3],
        cause=np.concatenate([causes, cause_a, cause_b]),
        other=np.concatenate([np.full(len(paired), -1), other_a, other_b]),
    )


def _of_rows(column: Ints, rows: Ints) -> Ints:
    """Return the numbers of these buffers, 0 for -1."""
    return np.where(rows >= 0, column[rows], 0) if len(column) else np.zeros(len(rows), np.int64)


def _partners(m: Matching, in_a: Buffers, in_b: Buffers) -> Ints:
    """Return the buffer of B that each buffer of A is paired with, or -1: the one with the most bytes in common."""
    left, right, weight = _candidates(m, in_a, in_b)
    partner, taken = np.full(len(in_a.bytes), -1), np.zeros(len(in_b.bytes), bool)
    order = np.lexsort((right, left, -weight))
    left, right = left[order], right[order]
    for _ in range(MAX_ROUNDS):
        first_of_left, first_of_right = (np.unique(side, return_index=True)[1] for side in (left, right))
        mutual = np.intersect1d(first_of_left, first_of_right, assume_unique=True)
        if not len(mutual):
            break
        partner[left[mutual]], taken[right[mutual]] = right[mutual], True
        free = (partner[left] < 0) & ~taken[right]
        left, right = left[free], right[free]
    rows = np.flatnonzero(in_a.main < 0), np.flatnonzero(in_b.main < 0)
    at_a, at_b = in_order(*_without_values(m, in_a, in_b, rows))
    partner[rows[0][at_a]] = rows[1][at_b]
    return partner


def _without_values(m: Matching, in_a: Buffers, in_b: Buffers, rows: tuple[Ints, Ints]) -> Iterator[Ints]:
    """Return a hash of each allocation of which no value is known: those of equal space, category and size match."""
    names = _space_names(m.a, m.b)
    space = np.unique(np.concatenate(names), return_inverse=True)[1].ravel()
    spaces = np.split(space, [len(names[0])])
    for p, buffers, number, chosen in zip((m.a, m.b), (in_a, in_b), spaces, rows, strict=True):
        owner = buffers.owner[chosen]
        yield row_hash(take(number, p.space_of_allocation[owner]), p.category[owner], buffers.bytes[chosen])


def _candidates(m: Matching, in_a: Buffers, in_b: Buffers) -> tuple[Ints, Ints, Ints]:
    """Return pairs of buffers with matching values, and the bytes of these values.

    An output is no temporary of the other side, even if that is in the memory of the output on this side.
    """
    left, right = in_a.of_value, take(in_b.of_value, m.value)
    values = np.flatnonzero((left >= 0) & (right >= 0))
    borrows = [p.categories_of(rows) == TEMP_IN_OUTPUT for p, rows in ((m.a, values), (m.b, m.value[values]))]
    values = values[borrows[0] == borrows[1]]
    weight = np.minimum(m.a.extent[values], m.b.extent[m.value[values]])
    is_main = (in_a.main[left[values]] == values) & (in_b.main[right[values]] == m.value[values])
    weight = np.where(is_main, 4 * weight + 2, weight)
    width = len(in_b.bytes) + 1
    pairs, number = np.unique(left[values] * width + right[values], return_inverse=True)
    return pairs // width, pairs % width, sums_of(weight, number.ravel(), len(pairs))


def _single_causes(m: Matching, main: Ints, there: Buffers, *, gone: bool) -> tuple[Ints, Ints]:
    """Return the causes of buffers without a partner, and the matching values of the other side."""
    here, other, match = (m.a, m.b, m.value) if gone else (m.b, m.a, m.value_of_b)
    value = _matching(here, main, match)
    moved = np.zeros(len(main), bool)
    known = np.flatnonzero(value >= 0)
    names = _space_names(here, other)
    moved[known] = names[0][here.space[main[known]]] != names[1][other.space[value[known]]]
    sizes = here.size[main[known]], other.size[value[known]]
    replaced = np.zeros(len(main), bool)
    replaced[known] = moved[known] & (np.maximum(*sizes) > MAX_MOVED * np.minimum(*sizes))
    in_use = take(there.of_value, value) >= 0
    copied = (take(match, main) < 0) & ~moved
    thread_local = take(other.value_category, value) == THREAD_LOCAL
    rules = [(value < 0) | copied | thread_local | replaced, moved, in_use]
    codes = [GONE if gone else NEW, MOVED, SHARING]
    return np.select(rules, codes, SHORTER if gone else LONGER), value


def _space_names(a: Program, b: Program) -> list[npt.NDArray[Any]]:
    """Return a name of each memory space, equal for equal spaces: on two platforms, for all of the main memory."""
    both = a, b
    if a.tables.platform == b.tables.platform:
        return [np.array([f"{s.name} {s.page}" for s in p.spaces] or [""]) for p in both]
    return [np.array([schema.in_device_memory(p.tables.platform, s.color) for s in p.spaces] or [True]) for p in both]


def _matching(p: Program, main: Ints, match: Ints) -> Ints:
    """Return the matching values; for copies that only one side has, those of what they copy."""
    value, source = take(match, main), main
    for _ in range(MAX_COPIES):
        copies = np.flatnonzero((value < 0) & (source >= 0) & has_opcode(p, take(p.instruction_row, source), MOVE))
        if not len(copies):
            break
        source = np.where(np.isin(np.arange(len(main)), copies), source, -1)
        source[copies] = operands_of(p, source[copies], np.zeros(len(copies), np.int64))
        value[copies] = take(match, source[copies])
    return value


def _paired_causes(bytes_a: Ints, bytes_b: Ints, data_a: Ints, data_b: Ints) -> Ints:
    """Return the causes of buffers that are in use on both sides."""
    return np.select(
        [bytes_a == bytes_b, data_b > data_a, data_b < data_a], [-1, LARGER, SMALLER], PADDING
    ).astype(np.int64)
