"""Summarize one program: what must fit, what is in use at the peak, and which buffers use it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..dump import Dump
from ..input.find import Source
from .bills import bill
from .buffer_names import buffer_names
from .charges import FUNCTION, Charges, live_set_columns, live_set_of
from .columns import Ints, ints, table_of_columns
from .grouping import sums_by
from .in_use import occupancy
from .layout import CATEGORIES, THREAD_LOCAL
from .peaks import peak
from .program import Program, program
from .selection import main_first, select_space

Row = dict[str, Any]

OCCUPYING = ("parameter", "donated", "live_out", "constant", "temp")
"""Categories that add up to the bytes in use: all except thread-local."""


@dataclass(frozen=True)
class Overview:
    """The numbers of one program as plain data."""

    source: Source
    module: Row
    spaces: list[Row]
    """Rows of ``peaks``, main memory first. With details, they also have ``categories``, ``plateau_list``, ``buffers``
    (a table) and ``n_buffers``."""
    device_total: int | None = None
    """Bytes that must fit into the device's memory, regardless of which spaces are selected."""
    reserved: dict[str, int] = field(default_factory=dict)
    """Bytes of `device_total`, by `space_name`."""
    usage: dict[tuple[str, int], Ints] = field(default_factory=dict)
    """Bytes in use at each step, by memory space and page."""
    members: dict[tuple[str, int], pa.Table] = field(default_factory=dict)
    """Rows of ``live_set`` at the peak, with their functions, by memory space and page."""
    bill: list[Row] = field(default_factory=list)
    """Rows of ``bills``; empty without details."""

    @property
    def has_live_ranges(self) -> bool:
        return any(s["peak"] is not None for s in self.spaces)

    def in_use(self, step: int) -> int | None:
        """Return the bytes in use at a step in all memory spaces together, or None if unknown."""
        levels = [int(series[step]) for series in self.usage.values() if step < len(series)]
        return sum(levels) if levels else None

    @property
    def peak_together(self) -> tuple[int, int] | None:
        """Maximum bytes in use in all memory spaces together, and the first step with them; None if unknown."""
        if not self.usage:
            return None
        total = np.sum(list(self.usage.values()), axis=0)
        step = int(total.argmax())
        return int(total[step]), step


def summarize(
    dump: Dump,
    *,
    space: str | int | None = None,
    limit: int | None = None,
    details: bool = True,
    required: bool = True,
) -> Overview:
    """Summarize a program: its peaks, and the categories and buffers that make them up.

    Parameters
    ----------
    space
        Name or color of one memory space; all by default.
    limit
        Maximum number of buffers per memory space; all by default.
    details
        False leaves out categories, plateaus, buffers and usage over time.
    required
        False returns no spaces if the program does not have `space`, instead of raising UsageError.
    """
    (module,) = dump.modules.to_pylist()
    if not dump.allocations.num_rows:
        return Overview(dump.source, module, select_space([], space, required=required))
    peaks = peak(dump)
    rows = peaks.spaces.to_pylist()
    for row in rows:
        row["in_device_memory"] = schema.in_device_memory(dump.platform, row["color"])
    spaces = main_memory_first(select_space(rows, space, required=required))
    result = Overview(dump.source, module, spaces, peaks.device_total, _reserved(rows))
    if details:
        result.bill.extend(bill(dump).to_pylist())
        _add_plateaus(spaces, peaks.plateaus.to_pylist())
        if result.has_live_ranges:
            _add_usage(dump, result, limit)
        else:
            _add_sizes(dump, spaces, limit)
    return result


def main_memory_first(spaces: list[Row]) -> list[Row]:
    """Return rows of ``peaks`` in the order of reports: the main memory, then the others by their peaks."""
    return sorted(spaces, key=lambda s: (main_first(s["memory_space"]), -(s["peak"] or 0), -s["reserved"]))


def space_name(space: Row) -> str:
    """Return the name of a memory space, which consists of a color and a page."""
    return f"{space['memory_space']} page {space['page']}" if space["page"] else str(space["memory_space"])


def _reserved(spaces: list[Row]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for s in spaces:
        sizes[space_name(s)] += s["reserved"] * s["in_device_memory"]
    return +sizes


def _add_plateaus(spaces: list[Row], plateaus: list[Row]) -> None:
    for s in spaces:
        s["plateau_list"] = [p for p in plateaus if (p["color"], p["page"]) == (s["color"], s["page"])]


def _add_usage(dump: Dump, result: Overview, limit: int | None) -> None:
    """Add categories and buffers at the peak, and usage over time."""
    names = schema.COMPUTED["live_set"].names
    levels, members = occupancy(dump), live_set_of(program(dump), None, None, [*names, FUNCTION])
    for s in result.spaces:
        rows = _rows_of_space(levels, s)
        result.usage[s["memory_space"], s["page"]] = rows["occupied"].to_numpy()
        s["categories"] = {c: rows[c][s["first_step"] or 0].as_py() for c in OCCUPYING}
        buffers = result.members[s["memory_space"], s["page"]] = _rows_of_space(members, s)
        s["n_buffers"] = buffers.num_rows
        s["buffers"] = buffers.slice(0, limit).select(names)


def _rows_of_space(table: pa.Table, space: Row) -> pa.Table:
    return pc.filter(table, pc.and_(pc.equal(table["color"], space["color"]), pc.equal(table["page"], space["page"])))


def _add_sizes(dump: Dump, spaces: list[Row], limit: int | None) -> None:
    """Add allocation sizes by category and the largest values, for a dump without live ranges."""
    p = program(dump)
    numbers = {(s.color, s.page): i for i, s in enumerate(p.spaces)}
    for s in spaces:
        in_space = p.space_of_allocation == numbers[s["color"], s["page"]]
        s["categories"] = {
            c: int(p.allocation_size[in_space & (p.category == CATEGORIES.index(c))].sum()) for c in OCCUPYING
        }
        values = np.flatnonzero(in_space[p.owner] & (p.value_category != THREAD_LOCAL))
        values = values[np.argsort(-p.size[values], kind="stable")]
        s["n_buffers"] = len(values)
        s["buffers"] = _buffers(p, values[:limit])


def _buffers(p: Program, values: Ints) -> pa.Table:
    """Return these values as rows of `live_set`; which bytes they share is not known."""
    sizes = p.size[values]
    charges = Charges(values, p.owner[values].astype(np.int64), sizes, sizes, len(values))
    columns = live_set_columns(p, charges, np.arange(len(values))) | buffer_names(p, values)
    columns["exclusive"] = columns["shared"] = pa.nulls(len(values), pa.int64())
    return table_of_columns(schema.COMPUTED["live_set"].columns, columns)


def spaces_in_use(dump: Dump, rows: pa.Table, time: int | None) -> list[Row]:
    """Return the bytes in use at a step by memory space: the sums of rows of `live_set` or `attribution`.

    Each row has ``memory_space`` (for rows of `live_set` also ``color`` and ``page``), the step ``time``, ``bytes``
    and the ``peak`` of the space.
    """
    keys = [c for c in ("memory_space", "color", "page") if c in rows.column_names]
    sums = sums_by({key: rows[key] for key in keys}, ints(rows, "bytes")).to_pylist()
    result = []
    for s in peak(dump, k=0).spaces.to_pylist():
        step = s["first_step"] if time is None else time
        result += [
            {**{k: s[k] for k in keys}, "time": step, "bytes": r["bytes"], "peak": s["peak"]}
            for r in sums
            if all(r[k] == s[k] for k in keys)
        ]
    return list({tuple(r[k] for k in keys): r for r in result}.values())
