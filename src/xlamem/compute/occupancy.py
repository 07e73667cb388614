"""Bytes in use over time, their peak, and what holds an instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _sweep, schema
from ..dump import Dump
from ..errors import UsageError
from ..parse.arrays import Codes
from ..parse.arrays import ints as column_ints
from .fits import device_total
from .program import (
    CATEGORIES,
    CONSTANT,
    DONATED,
    LIVE_OUT,
    PARAMETER,
    TEMP,
    THREAD_LOCAL,
    Ints,
    Mask,
    Program,
    coded,
    decoded,
    html_of,
    ints,
    nullable,
    program,
    table,
)

Interval = Literal["closed", "half-open"]


PART = 1 << 22
"""Cells (spaces times steps) of what is not kept are computed together, of one space at least."""


MANY_SPACES = 64
"""Of more spaces at once `occupancy` has no more than PART rows: a row per space and step would be out of proportion
to the text."""


MANY = 1 << 19
"""Values of one allocation that are swept at once; of more, those of one stretch of time after the other."""


class Part(NamedTuple):
    """Memory spaces that are looked at together."""

    spaces: Ints
    """Their numbers."""
    times: Ints | None
    """The steps at which anything changes there, and 0; None: every step is looked at."""
    steps: int

    def column(self, step: Ints) -> Ints:
        """The column of these steps."""
        return step if self.times is None else np.searchsorted(self.times, step, "right") - 1

    def first(self, column: Ints) -> Ints:
        """The first step of these columns."""
        return column if self.times is None else self.times[column]

    def last(self, column: Ints) -> Ints:
        """The last step of these columns."""
        return column if self.times is None else np.append(self.times[1:], self.steps)[column] - 1

    def every_step(self, levels: Ints) -> Ints:
        """Levels (spaces, columns) as (spaces, steps)."""
        return levels if self.times is None else np.repeat(levels, np.diff(np.append(self.times, self.steps)), axis=1)


def parts(p: Program) -> list[Part]:
    """All spaces, so many at a time that there are about PART cells at most.

    Where a schedule is long and few values live in a space, only the steps count at which something changes there.
    """
    found: list[Part] | None = p.dump._cache.get("parts")
    if found is None:
        found = p.dump._cache.setdefault("parts", list(_parts(p)))
    return found


def _parts(p: Program) -> Iterator[Part]:
    steps, n = p.steps or 1, len(p.spaces)
    if n * steps <= PART:
        yield Part(np.arange(n), None, steps)
        return
    order = np.argsort(p.space, kind="stable")
    begin = np.searchsorted(p.space[order], np.arange(n + 1)).tolist()
    (start, end), first = p.held(), 0
    for i in range(n):
        if i + 1 < n and (i + 2 - first) * min(steps, 3 * (begin[i + 2] - begin[first]) + 1) <= PART:
            continue
        rows = order[begin[first] : begin[i + 1]]
        rows = rows[start[rows] >= 0]
        times = None
        if 3 * len(rows) < steps:
            behind = np.maximum(end[rows] - 1, start[rows]) + 1, end[rows] + 1  # half-open and closed
            times = np.unique(np.concatenate([np.zeros(1, np.int64), start[rows], *behind]))
            times = times[times < steps]
        yield Part(np.arange(first, i + 1), times, steps)
        first = i + 1


def covered(p: Program, mask: Mask, interval: str = "closed", part: Part | None = None) -> tuple[Ints, Ints]:
    """Bytes in the union of the live ones of these values, (spaces, steps); the most of each allocation.

    `part`: the spaces and steps that count; all by default.
    """
    part = part or Part(np.arange(len(p.spaces)), None, p.steps or 1)
    start, end = p.held(interval)
    mask = mask & (start >= 0)
    place = np.arange(len(p.spaces))
    if len(part.spaces) < len(p.spaces):
        place = np.zeros(len(p.spaces), np.int64)
        place[part.spaces] = np.arange(len(part.spaces))
        mask &= np.isin(np.arange(len(p.spaces)), part.spaces)[p.space]
    rows = np.flatnonzero(mask).astype(np.int32)
    owner = p.owner[rows]
    if (owner[1:] < owner[:-1]).any():
        rows = rows[np.argsort(owner, kind="stable")]
    if part.times is not None:
        start[rows], end[rows] = part.column(start[rows]), part.column(end[rows])
    found = np.zeros((len(part.spaces), part.steps if part.times is None else len(part.times)), np.int64)
    crowds = np.flatnonzero(np.bincount(p.owner[rows]) > MANY) if len(rows) > MANY else np.empty(0, np.int64)
    apart = {int(a): rows[p.owner[rows] == a] for a in crowds}
    if apart:
        rows = rows[~np.isin(p.owner[rows], crowds)]
    place = place[p.space_of_allocation]
    most = column_ints(_sweep.covered(rows, p.owner, start, end, p.offset, p.extent, place, found))
    for allocation, mine in apart.items():
        most = most.copy()
        most[allocation] = _crowd(p, mine, start, end, found[place[allocation] :][:1])
    return np.cumsum(found, axis=1, out=found), most


def _crowd(p: Program, rows: Codes, start: Ints, end: Ints, changes: Ints) -> int:
    """`covered` of many values of one allocation, one stretch of time after the other; the most at any step."""
    begins, most = np.unique(np.sort(start[rows])[::MANY]).tolist(), 0
    for begin, behind in pairwise([*begins, changes.shape[1]]):
        some = rows[(start[rows] < behind) & (end[rows] >= begin)]
        first, last = np.maximum(start[some], begin), np.minimum(end[some], behind - 1)
        own, one = np.zeros(len(some), np.int32), np.zeros(1, np.int64)
        every = np.arange(len(some), dtype=np.int32)
        found = _sweep.covered(every, own, first, last, p.offset[some], p.extent[some], one, changes)
        most = max(most, int(column_ints(found)[0]))
    return most


def sums(p: Program, values: Ints, mask: Mask) -> Ints:
    """Sum per space over the allocations in the mask."""
    found = np.zeros(len(p.spaces), np.int64)
    np.add.at(found, p.space_of_allocation[mask], values[mask])
    return found


def whole(p: Program) -> Ints:
    """Per space: bytes of parameters, constants and outputs, which are in use at every step."""
    return sums(p, p.allocation_size, (p.category != TEMP) & (p.category != THREAD_LOCAL))


def occupied(p: Program, interval: str = "closed") -> Ints:
    """occupied(t) of each space, (spaces, steps): bytes in use."""
    found: Ints | None = p.dump._cache.get(("occupied", interval))
    if found is None:
        found, most = covered(p, p.value_category == TEMP, interval)
        found += whole(p)[:, None]
        p.dump._cache.setdefault(("occupied", interval), found)
        p.dump._cache.setdefault(("most", interval), most)
    return found


def live(p: Program, interval: str = "closed") -> Ints:
    """live(t) of each space, (spaces, steps): bytes that live values cover in all allocations but thread-local."""
    found: Ints | None = p.dump._cache.get(("live", interval))
    if found is None:
        found, _ = covered(p, _fixed(p), interval)
        found -= whole(p)[:, None]
        found += occupied(p, interval)
        p.dump._cache.setdefault(("live", interval), found)
    return found


def _is_whole(p: Program, part: Part) -> bool:
    return len(part.spaces) == len(p.spaces) and part.times is None


def in_use(p: Program, part: Part) -> Ints:
    """occupied(t) of some spaces, (spaces, columns)."""
    if _is_whole(p, part):
        return occupied(p)
    return covered(p, p.value_category == TEMP, "closed", part)[0] + whole(p)[part.spaces][:, None]


def most_covered(p: Program) -> Ints:
    """Per allocation: the most bytes that live values cover at any step, of temp allocations."""
    found: Ints | None = p.dump._cache.get(("most", "closed"))
    if found is None:
        found = np.zeros(len(p.index), np.int64)
        for part in parts(p):
            most = covered(p, p.value_category == TEMP, "closed", part)[1]
            np.maximum(found, most, out=found)
        found = p.dump._cache.setdefault(("most", "closed"), found)
    return found


def together(p: Program) -> tuple[Ints, Ints]:
    """occupied(t) and live(t) of all spaces together, by step."""
    found: tuple[Ints, Ints] | None = p.dump._cache.get("together")
    if found is None:
        fixed, total, lives = int(whole(p).sum()), np.zeros(p.steps or 1, np.int64), np.zeros(p.steps or 1, np.int64)
        for part in parts(p):
            temp = covered(p, p.value_category == TEMP, "closed", part)[0]
            held = covered(p, _fixed(p), "closed", part)[0]
            for out, each in ((total, temp), (lives, temp), (lives, held)):
                out += part.every_step(each.sum(0, keepdims=True))[0]
        found = p.dump._cache.setdefault("together", (total + fixed, lives))
    return found


def _fixed(p: Program) -> Mask:
    """Which values lie in allocations that are in use at every step."""
    fixed: Mask = (p.value_category != TEMP) & (p.value_category != THREAD_LOCAL)
    return fixed


def occupancy(dump: Dump, *, space: str | int | None = None, interval: Interval = "closed") -> pa.Table:
    """Bytes in use at every step of the schedule, by memory space and category.

    Thread-local allocations are left out. Parameters, constants and outputs count whole at every step; of
    each temp allocation the union of the address ranges of the values live at that step, so that values
    that share bytes count once and padding counts.

    Parameters
    ----------
    space
        Name (``"hbm"``) or color of one memory space; all by default.
    interval
        ``"closed"``: a live range start-end holds t when start <= t <= end, as XLA prints it;
        ``"half-open"``: when start <= t < max(end, start + 1).

    Returns
    -------
    pyarrow.Table
        Table ``occupancy`` of the schema: one row per space and step, 0 to the schedule length inclusive. A length
        that is impossible, because the text has fewer steps and live ranges together, counts as the number of steps
        in the text; what lies outside of a live range's schedule is cut off.
        Empty for a dump without live ranges.

    Raises
    ------
    UsageError
        More than 64 spaces whose steps would be more than 4 million rows: choose one with `space`.
    """
    p = program(dump)
    chosen = p.chosen(space)
    steps = p.steps
    if steps is None:
        chosen, steps = [], 0
    if len(chosen) > MANY_SPACES and len(chosen) * steps > PART:
        raise UsageError(f"{dump.name} has {len(chosen)} memory spaces of {steps} steps: choose one with space=…")
    total, lives = _levels(p, chosen, interval) if chosen else (np.empty((0, 0), np.int64),) * 2
    kinds = {"parameter": PARAMETER, "donated": DONATED, "constant": CONSTANT, "live_out": LIVE_OUT}
    fixed = {name: sums(p, p.allocation_size, p.category == kind) for name, kind in kinds.items()}
    columns = p.space_columns(np.repeat(np.array(chosen, np.int64), steps))
    columns["time"] = np.tile(np.arange(steps), len(chosen))
    for name, per_space in fixed.items():
        columns[name] = np.repeat(per_space[chosen], steps)
    columns["occupied"] = total.reshape(-1)
    columns["temp"] = columns["occupied"] - sum(columns[n] for n in fixed)
    columns["live"] = lives.reshape(-1)
    return table("occupancy", columns)


def _levels(p: Program, chosen: list[int], interval: str) -> tuple[Ints, Ints]:
    """occupied(t) and live(t) of some spaces, (spaces, steps)."""
    if len(chosen) == len(p.spaces):
        return occupied(p, interval), live(p, interval)
    part = Part(np.array(chosen, np.int64), None, p.steps or 1)
    total = covered(p, p.value_category == TEMP, interval, part)[0]
    lives = covered(p, _fixed(p), interval, part)[0] + total
    return total + whole(p)[part.spaces][:, None], lives


@dataclass(frozen=True)
class Peak:
    """Peaks of a program: ``spaces`` (table ``peaks``) and ``plateaus`` (table ``plateaus``)."""

    spaces: pa.Table
    plateaus: pa.Table
    device_total: int | None = None
    """Bytes that must fit into the device's main memory, all its spaces together; None without allocations."""

    def to_pandas(self) -> object:
        """The table of spaces as a pandas DataFrame."""
        return self.spaces.to_pandas()

    def _repr_html_(self) -> str:
        return html_of(self.spaces) + html_of(self.plateaus)


def runs(values: Ints) -> tuple[Ints, Ints]:
    """First and last index of each longest run of equal values."""
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first = np.flatnonzero(np.diff(values, prepend=values[0] - 1))
    return first, np.append(first[1:] - 1, len(values) - 1)


def plateaus_of(values: Ints) -> tuple[Ints, Ints]:
    """First and last step of each run with lower neighbours, highest first, earlier first among equals."""
    first, last = runs(values)
    level = values[first]
    higher_left = np.append(True, level[1:] > level[:-1])
    higher_right = np.append(level[:-1] > level[1:], True)
    keep = np.flatnonzero(higher_left & higher_right)
    keep = keep[np.argsort(-level[keep], kind="stable")]
    return first[keep], last[keep]


def peak(dump: Dump, *, k: int = 5) -> Peak:
    """The most bytes in use at any step, per memory space.

    Definitions stand in the columns' documentation (``xlamem schema peaks``) and in docs/numbers.md:
    allocated (all allocations), reserved (without thread-local: what must fit into the space), peak
    (max over t of occupied(t), see `occupancy`) with its first plateau. `device_total` is what must fit into
    the device: reserved of all spaces in its main memory (see `fits`).

    Parameters
    ----------
    k
        How many plateaus to list per space.

    Returns
    -------
    Peak
        Bytes and schedule steps. Without live ranges everything that depends on time is null.
    """
    if k < 0:
        raise UsageError(f"k must be 0 or more, not {k}")
    return Peak(*tables(program(dump), k), device_total(dump))


def tables(p: Program, k: int) -> tuple[pa.Table, pa.Table]:
    """The tables ``peaks`` and ``plateaus``."""
    every = np.ones(len(p.category), bool)
    n = len(p.spaces)
    columns = p.space_columns(np.arange(n))
    columns["allocated"] = sums(p, p.allocation_size, every)
    columns["reserved"] = sums(p, p.allocation_size, p.category != THREAD_LOCAL)
    if p.steps is None:
        for column in schema.COMPUTED["peaks"].columns:
            columns.setdefault(column.name, pa.nulls(n, pa.int64()))
        return table("peaks", columns), table("plateaus", _no_plateaus(p))
    each = [found for part in parts(p) for found in _peaks_of(p, part, k)]
    found = {name: np.array([e[name] for e in each], np.int64) for name in TOPS}
    columns |= found | {name: nullable(found[name]) for name in ("live_step", "first_step", "last_step")}
    temp = sums(p, p.allocation_size, p.category == TEMP)
    columns["slack"] = temp - (columns["peak"] - whole(p))
    p.dump._cache.setdefault("moments", found["first_step"])
    lists = [e["list"] for e in each]
    rows = p.space_columns(np.repeat(np.arange(n), [len(first) for first, _, _ in lists]))
    rows["rank"] = np.concatenate([np.empty(0, np.int64), *(np.arange(len(first)) for first, _, _ in lists)])
    for i, name in enumerate(("first_step", "last_step", "bytes")):
        rows[name] = np.concatenate([np.empty(0, np.int64), *(one[i] for one in lists)])
    return table("peaks", columns), table("plateaus", rows)


TOPS = ("peak", "half_open_peak", "live_peak", "live_step", "first_step", "last_step", "plateaus")


def _peaks_of(p: Program, part: Part, k: int) -> Iterator[dict[str, Any]]:
    """The numbers of some spaces that depend on time (-1: none), and ``list``: steps and bytes of their plateaus."""
    fixed = whole(p)[part.spaces]
    half = covered(p, p.value_category == TEMP, "half-open", part)[0].max(1) + fixed
    if _is_whole(p, part):
        totals, lives = occupied(p), live(p)
    else:
        totals = covered(p, p.value_category == TEMP, "closed", part)[0]
        lives = covered(p, _fixed(p), "closed", part)[0]
        lives += totals
        totals += fixed[:, None]
    for i, (total, life) in enumerate(zip(totals, lives, strict=True)):
        top = int(total.max())
        at = np.flatnonzero(total == top) if top > 0 else np.empty(0, np.int64)
        ends = np.flatnonzero(np.diff(at, append=-1) != 1)
        first, last = (a[:k] for a in plateaus_of(total)) if k and top > 0 else (at[:0], at[:0])
        yield {
            "peak": top,
            "half_open_peak": half[i],
            "live_peak": life.max(),
            "live_step": part.first(life.argmax()) if life.max() > 0 else -1,
            "first_step": part.first(at[0]) if len(at) else -1,
            "last_step": part.last(at[ends[0]]) if len(at) else -1,
            "plateaus": len(ends),
            "list": (part.first(first), part.last(last), total[first]),
        }


def _no_plateaus(p: Program) -> dict[str, object]:
    empty = np.empty(0, np.int64)
    return {**p.space_columns(empty), "rank": empty, "first_step": empty, "last_step": empty, "bytes": empty}


def moments(p: Program, time: int | None, space: str | int | None) -> Ints:
    """The instant looked at in each space: `time`, or the first step of its own peak.

    -1 for spaces left out, and for those that have no peak because nothing is ever in use there.
    """
    found = np.full(len(p.spaces), -1, np.int64)
    chosen = p.chosen(space)
    if p.steps is None:
        raise UsageError(f"{p.dump.name} has no live ranges: only sizes are known, not what is live when")
    if time is not None and not 0 <= time < p.steps:
        raise UsageError(f"time must be a step from 0 to {p.steps - 1}, not {time}")
    known: Ints | None = p.dump._cache.get("moments")
    if known is not None and time is None:
        found[chosen] = known[chosen]
        return found
    if time is not None:
        found[chosen] = time
        return found
    for part in parts(p):
        total = in_use(p, part)
        found[part.spaces] = np.where(total.any(1), part.first(total.argmax(1)), -1)
    return np.where(np.isin(np.arange(len(found)), chosen), found, -1)


def live_at(p: Program, when: Ints) -> Ints:
    """Rows of the values that hold the instant of their space, ordered by allocation and id."""
    start, end = p.held()
    at = when[p.space] if len(p.space) else np.empty(0, np.int64)
    rows = np.flatnonzero((start >= 0) & (at >= 0) & (start <= at) & (at <= end) & (p.value_category != THREAD_LOCAL))
    return rows[np.lexsort((p.ids[rows], p.owner[rows]))]


def live_set(dump: Dump, time: int | None = None, *, space: str | int | None = None) -> pa.Table:
    """What holds an instant: the live values, and the bytes reserved that no live value covers.

    Per space the column ``bytes`` adds up to occupied(time). Bytes that several live values share are
    charged to the one with the lowest id; ``exclusive`` and ``shared`` say how much of a value is its own.

    Parameters
    ----------
    time
        The step; by default each space's own peak (the first step of its first plateau).
    space
        Name or color of one memory space.

    Returns
    -------
    pyarrow.Table
        Table ``live_set``: bytes and steps; per space the largest first.

    Raises
    ------
    UsageError
        A step outside the schedule, an unknown space, or a dump without live ranges.
    """
    p = program(dump)
    held = held_at(p, moments(p, time, space))
    return rows_of(p, held, np.lexsort((p.index[held.owner], -held.bytes, p.space_of_allocation[held.owner])))


@dataclass(frozen=True)
class Held:
    """What holds an instant, in numbers: the live values, by allocation and id; then what is left of allocations.

    `value` and `owner` are rows of the tables (what is left has the value that stands for its allocation, or -1),
    `lives` is the number of values.
    """

    value: Ints
    owner: Ints
    bytes: Ints
    exclusive: Ints
    lives: int


def held_at(p: Program, when: Ints) -> Held:
    """What holds the instant of each space."""
    rows = live_at(p, when)
    charged_column, alone_column = _sweep.charge(
        p.owner[rows].astype(np.int64), p.ids[rows], p.offset[rows], p.extent[rows]
    )
    charged, alone = column_ints(charged_column), column_ints(alone_column)
    union = np.zeros(len(p.index), np.int64)
    np.add.at(union, p.owner[rows], charged)
    fixed = (p.category != TEMP) & (p.category != THREAD_LOCAL) & (when[p.space_of_allocation] >= 0)
    rest = np.flatnonzero(fixed & (p.allocation_size > union))
    left = p.allocation_size[rest] - union[rest]
    return Held(
        np.concatenate([rows, p.representative[rest]]),
        np.concatenate([p.owner[rows], rest]),
        np.concatenate([charged, left]),
        np.concatenate([alone, left]),
        len(rows),
    )


def rows_of(p: Program, held: Held, which: Ints) -> pa.Table:
    """The table ``live_set`` of some of what is held."""
    dump, value, owner = p.dump, held.value[which], held.owner[which]
    is_value = which < held.lives
    columns = p.space_columns(p.space_of_allocation[owner])
    columns["role"] = decoded(np.where(is_value, 0, 1), pa.array(["value", "reserved"]))
    columns["value_id"] = nullable(np.where(is_value, p.ids[value] if len(p.ids) else -1, -1))
    columns["instruction"] = p.of_value("instruction", value)
    columns["shape_index"] = p.of_value("shape_index", value)
    columns["allocation"] = p.index[owner]
    category = p.category[owner]
    category[is_value] = p.category_of(value[is_value])
    columns["category"] = decoded(category, pa.array(CATEGORIES))
    columns["offset"] = nullable(np.where(is_value, p.offset[value] if len(p.ids) else -1, -1))
    size = np.where(is_value, p.size[value] if len(p.ids) else -1, p.allocation_size[owner])
    columns["size"] = size
    columns["bytes"] = held.bytes[which]
    columns["exclusive"] = held.exclusive[which]
    extent = np.where(is_value, p.extent[value] if len(p.ids) else -1, 0)
    columns["shared"] = np.where(is_value, extent - columns["exclusive"], 0)
    columns["shape"] = p.of_value("shape", value)
    columns["element_type"] = p.of_value("element_type", value)
    unpadded = ints(dump.values, "unpadded_size")
    columns["unpadded_size"] = nullable(np.where(value >= 0, unpadded[value] if len(unpadded) else -1, -1))
    row = np.where(value >= 0, p.instruction_row[value] if len(p.ids) else -1, -1)
    codes, opcodes = coded(dump.instructions["opcode"])
    columns["opcode"] = decoded(np.where(row >= 0, codes[row], -1) if len(codes) else np.full(len(row), -1), opcodes)
    columns.update(p.place(value))
    return table("live_set", columns)
