"""Charge the bytes in use at a step to buffers: the live set."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _sweep, schema
from ..dump import DumpLike
from ..parse.arrays import ints as column_ints
from ..parse.arrays import order_by
from .buffer_names import buffer_names, functions
from .columns import Ints, decoded, ints, nullable, table_of_columns, take, take_text
from .layout import CATEGORIES, THREAD_LOCAL, Layout
from .peaks import require_allocations, selected_steps
from .program import Program, program

_LIVE_SET = schema.COMPUTED["live_set"]
FUNCTION = "function"
"""A column that `live_set` does not have: the functions that call each other where a buffer is named."""


def live_set(dump: DumpLike, time: int | None = None, *, space: str | int | None = None) -> pa.Table:
    """Return the buffers in use at a step: the live values, and reserved bytes that no live value covers.

    The column ``bytes`` of a space adds up to occupied(time). Bytes that several live values share are charged to
    the one with the lowest id; ``exclusive`` and ``shared`` split the bytes of each value.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    time
        The step; by default, the first step of the peak of each space.
    space
        Name or color of one memory space.

    Returns
    -------
    pyarrow.Table
        Table ``live_set`` in bytes and steps, sorted by space and by size in descending order.

    Raises
    ------
    UsageError
        The step is outside the schedule, the space is unknown, or the dump has no allocations or no live ranges.
    """
    return live_set_of(program(dump), time, space, _LIVE_SET.names)


def live_set_of(p: Program, time: int | None, space: str | int | None, names: Collection[str]) -> pa.Table:
    """Return these columns of the live set, and `FUNCTION` if it is one of them.

    Those that name buffers take most of the time.
    """
    require_allocations(p)
    charges = charge(p, selected_steps(p, time, space))
    order = (p.allocation_ids[charges.owner], -charges.bytes, p.space_of_allocation[charges.owner])
    rows = np.lexsort(order)
    columns = live_set_columns(p, charges, rows) | buffer_names(p, charges.value[rows], names)
    table = table_of_columns([column for column in _LIVE_SET.columns if column.name in names], columns)
    return table.append_column(FUNCTION, functions(p, charges.value[rows])) if FUNCTION in names else table


class Charges(NamedTuple):
    """The bytes in use at a step, charged to values and to the rest of fixed allocations.

    The first `n_live` rows are the live values, by allocation and id. The other rows are allocations with bytes that no
    live value covers.
    """

    value: Ints
    """Row in `values`: the live value, or the representative of the allocation (-1 if it has none)."""
    owner: Ints
    """Row in `allocations`."""
    bytes: Ints
    exclusive: Ints
    n_live: int


def live_values(p: Layout, steps: Ints) -> Ints:
    """Return the values that are live at the step of their space, by allocation and id."""
    start, end = p.occupied_ranges()
    step = steps[p.space] if len(p.space) else np.empty(0, np.int64)
    is_live = (start >= 0) & (step >= 0) & (start <= step) & (step <= end) & (p.value_category != THREAD_LOCAL)
    rows = np.flatnonzero(is_live)
    return rows[order_by(p.owner[rows], p.value_ids[rows])]


def charge_values(p: Layout, rows: Ints) -> tuple[Ints, Ints]:
    """Return the bytes charged to each of these live values, and the bytes that no other value covers."""
    owner = p.owner[rows].astype(np.int64)
    charged, exclusive = _sweep.charge(owner, p.value_ids[rows], p.offset[rows], p.extent[rows])
    return column_ints(charged), column_ints(exclusive)


def charge(p: Program, steps: Ints) -> Charges:
    """Charge the bytes in use at the step of each space."""
    rows = live_values(p, steps)
    charged, exclusive = charge_values(p, rows)
    union = np.zeros(len(p.allocation_ids), np.int64)
    np.add.at(union, p.owner[rows], charged)
    in_use = p.is_fixed & (steps[p.space_of_allocation] >= 0)
    reserved = np.flatnonzero(in_use & (p.allocation_size > union))
    rest = p.allocation_size[reserved] - union[reserved]
    return Charges(
        np.concatenate([rows, p.representative[reserved]]),
        np.concatenate([p.owner[rows], reserved]),
        np.concatenate([charged, rest]),
        np.concatenate([exclusive, rest]),
        len(rows),
    )


def live_set_columns(p: Program, charges: Charges, rows: Ints) -> dict[str, Any]:
    """Return the columns of `live_set` for these rows of the charges, except those that name buffers."""
    value, owner = charges.value[rows], charges.owner[rows]
    is_live = rows < charges.n_live
    live_value = np.where(is_live, value, -1)
    columns = p.space_columns(p.space_of_allocation[owner])
    columns["role"] = decoded(np.where(is_live, 0, 1), pa.array(["value", "reserved"], pa.string()))
    columns["value_id"] = nullable(take(p.value_ids, live_value))
    for name in ("instruction", "shape_index", "shape", "element_type"):
        columns[name] = p.value_text(name, value)
    columns["allocation"] = p.allocation_ids[owner]
    category = p.category[owner]
    category[is_live] = p.categories_of(value[is_live])
    columns["category"] = decoded(category, pa.array(CATEGORIES, pa.string()))
    columns["offset"] = nullable(take(p.offset, live_value))
    columns["size"] = np.where(is_live, take(p.size, live_value), p.allocation_size[owner])
    columns["bytes"], columns["exclusive"] = charges.bytes[rows], charges.exclusive[rows]
    columns["shared"] = np.where(is_live, take(p.extent, live_value) - columns["exclusive"], 0)
    columns["unpadded_size"] = nullable(take(ints(p.tables["values"], "unpadded_size"), value))
    columns["opcode"] = take_text(p.tables["instructions"]["opcode"], take(p.instruction_row, value))
    return columns
