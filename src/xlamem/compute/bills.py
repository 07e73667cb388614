"""Account for every byte that a memory space, or the device, must have: the bill."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _sweep, schema
from .. import kernels as pc
from ..dump import DumpLike
from ..parse.arrays import Codes
from ..parse.arrays import ints as column_ints
from .arena_cells import cell_extents, cell_peaks, free_cells, granules
from .buffer_kinds import KINDS, buffer_kinds
from .charges import live_values
from .columns import Ints, Mask, arrow_array, computed_table, decoded, nullable, take
from .layout import CONSTANT, DONATED, LIVE_OUT, PARAMETER, TEMP, Layout
from .peaks import group_peaks, peak_steps
from .program import Program, program

DEVICE_TOTAL = "device_total"

ROWS = (
    *((line, part) for line in ("parameters", "donated", "outputs", "constants") for part in
      ("data", "padding", "never_covered")),
    ("temporaries", None),
    ("temporaries", "data"),
    ("temporaries", "padding"),
    ("alignment", None),
    ("another_step", None),
    ("packing", "never_touched"),
    ("packing", "one_value"),
    ("packing", "shared"),
)  # fmt: skip
"""Lines of a bill and their parts, in order."""
ROW = {row: i for i, row in enumerate(ROWS)}

LINE_OF_CATEGORY = {PARAMETER: "parameters", DONATED: "donated", LIVE_OUT: "outputs", CONSTANT: "constants"}

UNUSED = {"alignment": "alignment", "another_step": "another step", "packing": "packing"}
"""Lines that are not in use at the step of an account, and their names as causes."""

UNCOUNTED = [ROW["another_step", None], ROW["packing", "never_touched"], ROW["packing", "shared"]]
"""Rows that do not consist of buffers."""

def bill(dump: DumpLike) -> pa.Table:
    """Return why so much memory must fit: accounts that add up to the byte.

    There is one account of each memory space, at the first step of its peak, and one of `device_total`, at the first
    step of the combined peak of its spaces. The rows of a space add up to its `reserved`. docs/numbers.md defines the
    lines. Without live ranges, temporaries are not divided.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``bills`` in bytes and steps, with one row per account, line, part and kind of buffers. Rows of 0 bytes
        are left out.
    """
    p = program(dump)
    return p.once("bill", lambda: _bill(p))


def _bill(p: Program) -> pa.Table:
    in_device = np.array([schema.in_device_memory(p.tables.platform, s.color) for s in p.spaces], bool)
    total, spaces = np.where(in_device, 0, -1), np.arange(1, len(p.spaces) + 1)
    steps = np.append(combined_steps(p, total, 1), space_steps(p))
    tables = [_table(p, *account_items(p, account, steps), steps) for account in (total, spaces)]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


# -- steps ---------------------------------------------------------------------------------------


def space_steps(p: Layout) -> Ints:
    """Return the first step of the peak of each space; -1 if nothing is ever in use, or without live ranges."""
    return np.full(len(p.spaces), -1) if p.steps is None else peak_steps(p)


def combined_steps(p: Layout, account: Ints, n: int) -> Ints:
    """Return the first step of the combined peak of the spaces of each of n accounts, -1 as for `space_steps`.

    `account` is the account of each space, -1 for none.
    """
    if p.steps is None or not len(account):
        return np.full(n, -1)
    step, size = group_peaks(p, np.where(account < 0, n, account), n + 1)
    return np.where(size > 0, step, -1)[:n]


# -- items ---------------------------------------------------------------------------------------


class Items(NamedTuple):
    """The bytes of single allocations, values or slots, of which the rows of a bill are sums."""

    row: Ints
    """Index in ROWS."""
    owner: Ints
    """Row in `allocations`."""
    value: Ints
    """Row in `values` of the buffer, -1 for none."""
    bytes: Ints

    def of(self, which: Mask) -> Items:
        """Return these items."""
        return Items(*(column[which] for column in self))

    @classmethod
    def joined(cls, items: list[Items]) -> Items:
        """Concatenate items, without those of 0 bytes."""
        joined = cls(*(np.concatenate(columns) for columns in zip(*items, strict=True)))
        return joined.of(joined.bytes != 0)


def account_items(p: Layout, account: Ints, steps: Ints) -> tuple[Items, Ints]:
    """Return the items of accounts, and the account of each item.

    `account` is that of each space (-1 for none), and `steps` the step of each account (-1 if nothing is in use).
    """
    always = p.once("bill items", lambda: [*_fixed_items(p), *_packing_items(p)])
    items = Items.joined([*always, *_items_at(p, np.where(account < 0, -1, take(steps, account)))])
    number = account[p.space_of_allocation[items.owner]]
    return items.of(number >= 0), number[number >= 0]


def _items(row: tuple[str, str | None], owner: Ints | Codes, size: Ints, value: Ints | None = None) -> Items:
    n = len(owner)
    return Items(np.full(n, ROW[row]), owner.astype(np.int64), np.full(n, -1) if value is None else value, size)


def _fixed_items(p: Layout) -> list[Items]:
    """Return data, padding and uncovered bytes of parameters, constants and outputs."""
    values = np.flatnonzero(p.in_fixed)
    values = values[np.argsort(p.owner[values], kind="stable")]
    charged = _charge_in_turn(p, values, [p.data_extent(values), p.extent[values]])
    data, padding = (_by_allocation(p, values, column) for column in charged)
    items = []
    for category, line in LINE_OF_CATEGORY.items():
        rows = np.flatnonzero(p.category == category)
        for part, column in (
            ("data", data), ("padding", padding), ("never_covered", p.allocation_size - data - padding),
        ):  # fmt: skip
            items.append(_items((line, part), rows, column[rows]))
    return items


def _by_allocation(p: Layout, values: Ints, size: Ints) -> Ints:
    """Add up bytes of values by allocation."""
    total = np.zeros(len(p.allocation_ids), np.int64)
    np.add.at(total, p.owner[values], size)
    return total


def _charge_in_turn(p: Layout, values: Ints, extents: list[Ints]) -> list[Ints]:
    """Return the bytes charged to each value for its first extent, then the additional bytes for each further one.

    Bytes of a later extent count only if no earlier extent of any of the values in the allocation covers them. Of
    several values, the first is charged. Values are ordered by allocation.
    """
    n, turns = len(values), len(extents)
    owner = np.tile(p.owner[values].astype(np.int64), turns)
    order = np.argsort(owner, kind="stable")
    offset, extent = np.tile(p.offset[values], turns)[order], np.concatenate(extents)[order]
    charged = np.empty(n * turns, np.int64)
    charged[order] = column_ints(_sweep.charge(owner[order], order, offset, extent)[0])
    return list(charged.reshape(turns, n))


def _packing_items(p: Layout) -> list[Items]:
    """Return the bytes of temp allocations that are not in use when most of their cells are."""
    arenas = np.flatnonzero(p.category == TEMP)
    if p.steps is None:
        return [_items(("temporaries", None), arenas, p.allocation_size[arenas])]
    free = free_cells(p)
    return [
        _items(("packing", "never_touched"), arenas, free.never_touched[arenas]),
        _items(("packing", "shared"), arenas, free.shared[arenas]),
        _items(("packing", "one_value"), p.owner[free.slot], free.slot_bytes, free.slot),
    ]


def _items_at(p: Layout, steps: Ints) -> list[Items]:
    """Return the items that depend on the step: temporaries, alignment, and what other steps need in addition."""
    if p.steps is None:
        return []
    values = live_values(p, steps)
    values = values[p.in_temp[values]]
    charged = _charge_in_turn(p, values, [p.data_extent(values), p.extent[values], cell_extents(p)[values]])
    arenas = np.flatnonzero(p.category == TEMP)
    another = cell_peaks(p).bytes - sum(_by_allocation(p, values, column) for column in charged)
    rows = (("temporaries", "data"), ("temporaries", "padding"), ("alignment", None))
    items = [_items(row, p.owner[values], size, values) for row, size in zip(rows, charged, strict=True)]
    return [*items, _items(("another_step", None), arenas, another[arenas])]


def unused_bytes(p: Layout, account: Ints, steps: Ints) -> dict[str, Ints]:
    """Return, by line, the bytes of accounts that are not in use at their steps; arguments as for `account_items`."""
    items, number = account_items(p, account, steps)
    line = np.array([list(UNUSED).index(line) if line in UNUSED else -1 for line, _ in ROWS])[items.row]
    totals = np.zeros((len(UNUSED) + 1, len(steps)), np.int64)
    np.add.at(totals, (line, number), items.bytes)
    return dict(zip(UNUSED.values(), totals, strict=False))


# -- the table -----------------------------------------------------------------------------------


def _table(p: Program, items: Items, account: Ints, steps: Ints) -> pa.Table:
    """Add up items by account, row and kind. Account 0 is `device_total`, and i + 1 that of space i."""
    sums = Sums((len(steps), len(ROWS), len(KINDS) + 1), (account, items.row, buffer_kinds(p, items.value)))
    account, row, kind = sums.keys
    size = np.where(items.value >= 0, take(p.size, items.value), p.allocation_size[items.owner])
    granule = np.where(p.is_fixed, -1, granules(p))[items.owner]
    n, buffer_bytes, buffer_size = (
        np.where(np.isin(row, UNCOUNTED), -1, column) for column in (sums.n, sums.add(size), sums.common(size))
    )
    return computed_table(
        "bills",
        {
            **_account_columns(p, account),
            "step": nullable(steps[account]),
            **row_names(row),
            "kind": decoded(np.where(kind < len(KINDS), kind, -1), pa.array(KINDS, pa.string())),
            "n": nullable(n),
            "buffer_bytes": nullable(buffer_bytes),
            "buffer_size": nullable(buffer_size),
            "granule": nullable(sums.common(granule)),
            "bytes": sums.add(items.bytes),
        },
    )


def row_names(row: Ints) -> dict[str, pa.Array]:
    """Return the columns line and part."""
    line, part = (pa.array(names, pa.string()) for names in zip(*ROWS, strict=True))
    return {"line": pc.take(line, arrow_array(row)), "part": pc.take(part, arrow_array(row))}


class Sums:
    """Aggregates of items that are grouped by several small numbers, of which negative ones count from the end."""

    def __init__(self, shape: tuple[int, ...], keys: tuple[Ints, ...]) -> None:
        key = np.ravel_multi_index(tuple(k % n for k, n in zip(keys, shape, strict=True)), shape)
        count = np.bincount(key, minlength=int(np.prod(shape)))
        groups = np.flatnonzero(count)
        self.keys: tuple[Ints, ...] = np.unravel_index(groups, shape)
        """The numbers of each group."""
        self.n: Ints = count[groups]
        """Number of items of each group."""
        self.group = (np.cumsum(count > 0) - 1)[key]

    def add(self, column: Ints) -> Ints:
        """Return the sum of a column by group."""
        total = np.zeros(len(self.n), np.int64)
        np.add.at(total, self.group, column)
        return total

    def common(self, column: Ints) -> Ints:
        """Return the value that a column has in all items of a group, or -1."""
        value = np.empty(len(self.n), np.int64)
        value[self.group] = column
        value[self.group[value[self.group] != column]] = -1
        return value


def _account_columns(p: Program, account: Ints) -> dict[str, Any]:
    names = [s.name for s in p.spaces]
    color = np.array([0, *(s.color for s in p.spaces)], np.int64)
    page = np.array([0, *(s.page for s in p.spaces)], np.int64)
    return {
        "account": pc.take(pa.array([DEVICE_TOTAL, *names], pa.string()), arrow_array(account)),
        "memory_space": pc.take(pa.array([None, *names], pa.string()), arrow_array(account)),
        "color": arrow_array(color[account], account == 0),
        "page": arrow_array(page[account], account == 0),
    }
