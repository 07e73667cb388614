"""How well temp allocations are used, and what the peak would be without a buffer."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import _sweep
from ..dump import Dump
from ..parse.arrays import ints as column_ints
from .occupancy import Held, held_at, in_use, live_at, moments, most_covered, parts
from .program import CATEGORIES, MOST, TEMP, THREAD_LOCAL, Ints, Mask, Program, decoded, ints, nullable, program, table


def _union(p: Program, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Per allocation: bytes that these values cover together; and the gaps between them (owner, offset, bytes)."""
    rows = rows[np.lexsort((p.offset[rows], p.owner[rows]))]
    owner, begin = p.owner[rows].astype(np.int64), p.offset[rows]
    end = begin + p.extent[rows]
    n = len(p.index)
    union = np.zeros(n, np.int64)
    if not len(rows):
        return union, rows, rows, rows
    # The farthest end so far within each owner: owners are kept apart by a step larger than any end. (Ends so large
    # that there is no room for that are replaced by their ranks.)
    step, ends = int(end.max()) + 1, None
    if step > MOST // n:
        ends, end = np.unique(end, return_inverse=True)
        step = len(ends)
    reach = np.maximum.accumulate(end + owner * step) - owner * step
    if ends is not None:
        reach, end = ends[reach], ends[end]
    first = np.append(True, owner[1:] != owner[:-1])
    before = np.where(first, 0, np.append(0, reach[:-1]))
    np.add.at(union, owner, np.maximum(end - np.maximum(begin, before), 0))
    gap = np.maximum(begin - before, 0)
    at = np.flatnonzero(gap)
    last = np.flatnonzero(np.append(owner[1:] != owner[:-1], True))
    tail = p.allocation_size[owner[last]] - reach[last]
    holes_owner = np.concatenate([owner[at], owner[last][tail > 0]])
    holes_begin = np.concatenate([before[at], reach[last][tail > 0]])
    return union, holes_owner, holes_begin, np.concatenate([gap[at], tail[tail > 0]])


def fragmentation(dump: Dump, *, time: int | None = None) -> pa.Table:
    """How each temp allocation is used: bytes never used, lost between values, and holes at an instant.

    ``unassigned`` = size - union over all values and times; ``fragmentation`` = size - unassigned - most
    bytes that live values cover at any step; ``reuse`` = bytes of values over size.

    Parameters
    ----------
    time
        Step at which holes are counted; by default the peak of each space.

    Returns
    -------
    pyarrow.Table
        Table ``fragmentation`` of the schema, a row per temp allocation: bytes.
    """
    p = program(dump)
    arenas = np.flatnonzero(p.category == TEMP)
    rows = np.flatnonzero(p.value_category == TEMP)
    union, *_ = _union(p, rows)
    unassigned = p.allocation_size - union
    bytes_ = np.zeros(len(p.index), np.int64)
    np.add.at(bytes_, p.owner[rows], p.size[rows])
    columns = p.space_columns(p.space_of_allocation[arenas])
    columns["allocation"], columns["size"] = p.index[arenas], p.allocation_size[arenas]
    columns["unassigned"] = unassigned[arenas]
    columns["value_bytes"] = bytes_[arenas]
    size = p.allocation_size[arenas]
    columns["reuse"] = pa.array(bytes_[arenas] / np.maximum(size, 1), mask=size == 0)
    if p.steps is None:
        for name in ("peak", "fragmentation", "n_holes", "hole_bytes", "largest_hole"):
            columns[name] = pa.nulls(len(arenas), pa.int64())
        return table("fragmentation", columns)
    most = most_covered(p)
    columns["peak"] = most[arenas]
    columns["fragmentation"] = (p.allocation_size - unassigned - most)[arenas]
    held = live_at(p, moments(p, time, None))
    held = held[(p.value_category[held] == TEMP) & (p.extent[held] > 0)]
    covered, owner, _, hole = _union(p, held)
    count, total, largest = (np.zeros(len(p.index), np.int64) for _ in range(3))
    np.add.at(count, owner, 1)
    np.add.at(total, owner, hole)
    np.maximum.at(largest, owner, hole)
    # An arena in which nothing is live is one hole.
    empty = (covered == 0) & (count == 0) & (p.allocation_size > 0)
    count = np.where(empty, 1, count)
    total, largest = np.where(empty, p.allocation_size, total), np.where(empty, p.allocation_size, largest)
    idle = moments(p, time, None)[p.space_of_allocation[arenas]] < 0
    for name, found in (("n_holes", count), ("hole_bytes", total), ("largest_hole", largest)):
        columns[name] = pa.array(found[arenas], mask=idle)
    return table("fragmentation", columns)


def _saved(p: Program) -> tuple[Ints, Ints]:
    """Bytes by which the peak of its space falls without each value of a temp allocation; without each allocation."""
    start, end = p.held()
    saved = np.zeros(len(p.ids), np.int64)
    temp = np.flatnonzero((p.value_category == TEMP) & (start >= 0) & (p.extent > 0))
    temp = temp[np.argsort(p.owner[temp], kind="stable")]
    arenas, begin = np.unique(p.owner[temp], return_index=True)
    groups: dict[int, list[Ints]] = {}
    for space, rows in zip(p.space_of_allocation[arenas].tolist(), np.split(temp, begin[1:]), strict=False):
        groups.setdefault(space, []).append(rows)
    for part in parts(p) if groups else ():
        total = in_use(p, part)
        for i, row in zip(part.spaces.tolist(), total, strict=True):
            if i not in groups:
                continue
            top = int(row.max(initial=0))
            at = np.flatnonzero(row == top)
            before = np.maximum.accumulate(np.append(-1, row[:-1]))
            after = np.append(np.maximum.accumulate(row[::-1])[::-1][1:], -1)
            for rows in groups[i]:
                first, last = part.column(start[rows]), part.column(end[rows])
                # Only a value that is live at every step of the peak can lower it.
                candidate = (first <= at[0]) & (last >= at[-1])
                if not candidate.any():
                    continue
                inside = column_ints(
                    _sweep.inside(first, last, p.offset[rows], p.extent[rows], candidate.astype(np.uint8), row)
                )
                outside = np.maximum(before[first], after[last])
                saved[rows[candidate]] = (top - np.maximum(outside, inside))[candidate]
    fixed = (p.category != TEMP) & (p.category != THREAD_LOCAL)
    return saved, np.where(fixed, p.allocation_size, 0)


def savings(dump: Dump, *, space: str | int | None = None) -> pa.Table:
    """How far the peak of its space would fall without each buffer: an upper bound.

    For a value in a temp allocation: peak - max(most outside its live range, most inside of occupied(t) minus
    the bytes that only it covers at t). For a whole parameter, constant or output: its size. Packing may not
    follow, and where the peak has several plateaus most values save nothing alone.

    Returns
    -------
    pyarrow.Table
        Table ``savings``: rows with a saving above 0, per space the largest first. Bytes. Whole
        allocations only, if the dump has no live ranges.
    """
    p = program(dump)
    chosen = np.isin(np.arange(len(p.spaces)), p.chosen(space))
    if p.steps is None:
        saved, whole = np.zeros(len(p.ids), np.int64), np.where(
            (p.category != TEMP) & (p.category != THREAD_LOCAL), p.allocation_size, 0
        )  # fmt: skip
    else:
        saved, whole = _saved(p)
    values = np.flatnonzero((saved > 0) & chosen[p.space]) if len(saved) else np.empty(0, np.int64)
    arenas = np.flatnonzero((whole > 0) & chosen[p.space_of_allocation]) if len(whole) else np.empty(0, np.int64)
    value = np.concatenate([values, p.representative[arenas]]) if len(arenas) else values
    owner = np.concatenate([p.owner[values], arenas]) if len(p.ids) else arenas
    is_value = np.arange(len(owner)) < len(values)
    columns = p.space_columns(p.space_of_allocation[owner])
    columns["role"] = decoded(np.where(is_value, 0, 1), pa.array(["value", "allocation"]))
    columns["value_id"] = nullable(np.where(is_value, p.ids[value] if len(p.ids) else -1, -1))
    columns["instruction"], columns["shape_index"] = p.of_value("instruction", value), p.of_value("shape_index", value)
    columns["allocation"] = p.index[owner]
    columns["size"] = np.concatenate([p.size[values], p.allocation_size[arenas]])
    columns["saving"] = np.concatenate([saved[values], whole[arenas]])
    columns.update(p.place(value))
    order = np.lexsort((p.index[owner], -columns["saving"], p.space_of_allocation[owner]))
    return table("savings", columns).take(pa.array(order))


def padding(dump: Dump) -> pa.Table:
    """Bytes that layouts add to each value: its size in its allocation minus its elements' bytes, never below 0.

    Parameters and outputs are included, thread-local allocations are not. A tuple of pointers is a value like
    any other. The rows add up: values that share a slot (allocation, offset and size) have its padding once, and a
    whole allocation is one slot. The row that has it is one that is live at the peak, if there is one, and of
    those the one to which `live_set` charges the bytes; in a whole allocation without a live value the parameter or
    the value with the highest id; else the value with the lowest id. The others have 0.

    Returns
    -------
    pyarrow.Table
        Table ``padding``: one row per value, most padding first. Bytes; ``at_peak`` marks those that count
        at the peak of their space: their padding adds up to that of `space_padding`.
    """
    p = program(dump)
    waste, known = _padding_of(p)
    fixed = (p.category != TEMP) & (p.category != THREAD_LOCAL)
    at_peak = np.zeros(len(p.ids), bool)
    found = np.zeros(len(p.ids), np.int64)
    if p.steps is None:
        value = p.representative[fixed]
        value = value[value >= 0]
        found[value] = waste[value]
    else:
        held = held_at(p, moments(p, None, None))
        at_peak[held.value[: held.lives]] = True
        there = held.value >= 0
        np.add.at(found, held.value[there], _wasted(held, waste)[there])
    temp = np.flatnonzero(p.value_category == TEMP)
    # Slot by slot, in each the value that has its padding first.
    order = temp[np.lexsort((p.ids[temp], ~known[temp], ~at_peak[temp], p.size[temp], p.offset[temp], p.owner[temp]))]
    first = np.ones(len(order), bool)
    first[1:] = np.any([c[order[1:]] != c[order[:-1]] for c in (p.owner, p.offset, p.size)], axis=0)
    first &= ~at_peak[order]
    found[order[first]] = waste[order[first]]
    at_peak |= fixed[p.owner]
    rows = np.flatnonzero(p.value_category != THREAD_LOCAL)
    columns = p.space_columns(p.space[rows].astype(np.int64))
    columns["value_id"] = p.ids[rows]
    for name in ("instruction", "shape_index", "shape"):
        columns[name] = p.of_value(name, rows)
    columns["allocation"] = p.index[p.owner[rows]]
    columns["category"] = decoded(p.category_of(rows), pa.array(CATEGORIES))
    columns["size"] = p.size[rows]
    columns["unpadded_size"] = nullable(ints(dump.values, "unpadded_size")[rows])
    columns["padding"] = pa.array(found[rows], mask=~known[rows])
    columns["at_peak"] = at_peak[rows]
    columns.update(p.place(rows))
    return table("padding", columns).take(pa.array(np.argsort(-found[rows], kind="stable")))


def _padding_of(p: Program) -> tuple[Ints, Mask]:
    """The padding of each value on its own, and whether it is known (else 0)."""
    unpadded = ints(p.dump.values, "unpadded_size")
    known: Mask = unpadded >= 0
    return np.where(known, np.maximum(p.size - unpadded, 0), 0), known


def _wasted(held: Held, padding: Ints) -> Ints:
    """The padding of each row of what is held: its value's, but at most the bytes charged to it.

    What is left of an allocation has the padding of the value that stands for it, if that is not live itself.
    """
    n = held.lives
    counts = held.value >= 0
    counts[n:] &= ~np.isin(held.value[n:], held.value[:n])
    found = np.zeros(len(counts), np.int64)
    found[counts] = np.minimum(padding[held.value[counts]], held.bytes[counts])
    return found


def space_padding(dump: Dump) -> pa.Table:
    """How many of the bytes in use at the peak of each memory space are padding, parameters and outputs included.

    Of each value its size minus its unpadded size, but at most the bytes that `live_set` charges to it: bytes
    that values share are padding once.

    Returns
    -------
    pyarrow.Table
        Table ``space_padding``: bytes, one row per space that has a peak.

    Raises
    ------
    UsageError
        A dump without live ranges.
    """
    p = program(dump)
    held = held_at(p, moments(p, None, None))
    waste, known = _padding_of(p)
    unknown = held.value < 0
    unknown[~unknown] = ~known[held.value[~unknown]]
    of = p.space_of_allocation[held.owner]
    found = np.unique(of)
    columns = p.space_columns(found)
    parts = {"peak": held.bytes, "padding": _wasted(held, waste), "unknown": np.where(unknown, held.bytes, 0)}
    for name, values in parts.items():
        total = np.zeros(len(p.spaces), np.int64)
        np.add.at(total, of, values)
        columns[name] = total[found]
    return table("space_padding", columns)
