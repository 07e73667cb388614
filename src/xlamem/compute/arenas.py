"""Measure how well temp allocations (arenas) are used: bytes never assigned, lost between values, and in holes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ..dump import DumpLike
from .charges import live_values
from .columns import Ints, arrow_array, computed_table
from .in_use import most_covered
from .layout import MAX_TOTAL_BYTES, TEMP, Layout
from .peaks import selected_steps
from .program import Program, program


class Coverage(NamedTuple):
    """The bytes of each allocation that some values cover together, and the holes between the values."""

    union: Ints
    """Bytes covered in each allocation."""
    hole_owner: Ints
    """Row in `allocations` of each hole."""
    hole_bytes: Ints


def coverage(p: Layout, rows: Ints) -> Coverage:
    """Return the coverage of these values. An allocation without any of them has no holes."""
    rows = rows[np.lexsort((p.offset[rows], p.owner[rows]))]
    owner, begin = p.owner[rows].astype(np.int64), p.offset[rows]
    end = begin + p.extent[rows]
    union = np.zeros(len(p.allocation_ids), np.int64)
    if not len(rows):
        return Coverage(union, rows, rows)
    reach = _reach(owner, end, len(union))
    first = np.append(True, owner[1:] != owner[:-1])
    before = np.where(first, 0, np.append(0, reach[:-1]))
    np.add.at(union, owner, np.maximum(end - np.maximum(begin, before), 0))
    gap = np.maximum(begin - before, 0)
    last = np.flatnonzero(np.append(owner[1:] != owner[:-1], True))
    tail = p.allocation_size[owner[last]] - reach[last]
    hole_owner = np.concatenate([owner[gap > 0], owner[last][tail > 0]])
    return Coverage(union, hole_owner, np.concatenate([gap[gap > 0], tail[tail > 0]]))


def _reach(owner: Ints, end: Ints, n: int) -> Ints:
    """Return the running maximum of the ends within each of n owners; rows are ordered by owner."""
    # A stride greater than every end keeps the owners distinct. If it would overflow, ends are replaced by their ranks.
    stride = int(end.max()) + 1
    if stride <= MAX_TOTAL_BYTES // n:
        return np.maximum.accumulate(end + owner * stride) - owner * stride
    ends, rank = np.unique(end, return_inverse=True)
    reach: Ints = ends[np.maximum.accumulate(rank + owner * len(ends)) - owner * len(ends)]
    return reach


def fragmentation(dump: DumpLike, *, time: int | None = None) -> pa.Table:
    """Return how each temp allocation is used: bytes never assigned, bytes lost between values, and holes at a step.

    ``unassigned`` is the size minus the union of all values. ``fragmentation`` is the size minus ``unassigned`` and the
    maximum bytes that live values cover at any step. ``reuse`` is the total size of the values divided by the size.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    time
        Step at which holes are counted; the peak of each space by default.

    Returns
    -------
    pyarrow.Table
        Table ``fragmentation`` in bytes, with one row per temp allocation.
    """
    p = program(dump)
    arenas = np.flatnonzero(p.category == TEMP)
    size = p.allocation_size[arenas]
    value_bytes = np.zeros(len(p.allocation_ids), np.int64)
    np.add.at(value_bytes, p.owner[p.in_temp], p.size[p.in_temp])
    unassigned = (p.allocation_size - coverage(p, np.flatnonzero(p.in_temp)).union)[arenas]
    columns = p.space_columns(p.space_of_allocation[arenas])
    columns |= {"allocation": p.allocation_ids[arenas], "size": size, "unassigned": unassigned}
    columns["value_bytes"] = value_bytes[arenas]
    columns["reuse"] = arrow_array(columns["value_bytes"] / np.maximum(size, 1), size == 0)
    if p.steps is None:
        unknown = ("peak", "fragmentation", "n_holes", "hole_bytes", "largest_hole")
        return computed_table("fragmentation", columns | dict.fromkeys(unknown, pa.nulls(len(arenas), pa.int64())))
    columns["peak"] = most_covered(p)[arenas]
    columns["fragmentation"] = size - unassigned - columns["peak"]
    return computed_table("fragmentation", columns | _holes(p, arenas, selected_steps(p, time)))


def _holes(p: Program, arenas: Ints, steps: Ints) -> dict[str, pa.Array]:
    """Return the columns that count the holes at the step of each space; null in a space without a step."""
    rows = live_values(p, steps)
    live = coverage(p, rows[p.in_temp[rows] & (p.extent[rows] > 0)])
    count, total, largest = (np.zeros(len(p.allocation_ids), np.int64) for _ in range(3))
    np.add.at(count, live.hole_owner, 1)
    np.add.at(total, live.hole_owner, live.hole_bytes)
    np.maximum.at(largest, live.hole_owner, live.hole_bytes)
    # An arena without live values is a single hole.
    empty = (live.union == 0) & (count == 0) & (p.allocation_size > 0)
    columns = {
        "n_holes": np.where(empty, 1, count),
        "hole_bytes": np.where(empty, p.allocation_size, total),
        "largest_hole": np.where(empty, p.allocation_size, largest),
    }
    unknown = steps[p.space_of_allocation[arenas]] < 0
    return {name: arrow_array(column[arenas], unknown) for name, column in columns.items()}
