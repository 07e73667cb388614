"""Compute padding: the bytes that layouts add to values, counted once per slot (allocation, offset and size)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..dump import DumpLike
from .buffer_names import source_columns
from .charges import Charges, charge
from .columns import Ints, Mask, arrow_array, computed_table, decoded, ints, nullable
from .layout import CATEGORIES, THREAD_LOCAL
from .peaks import selected_steps
from .program import Program, program


def padding(dump: DumpLike) -> pa.Table:
    """Return the bytes that layouts add to each value: its size minus the bytes of its elements, never below 0.

    Parameters and outputs are included; thread-local allocations are not. A tuple of pointers counts like any other
    value. The rows add up, because the padding of a slot (allocation, offset and size) is assigned to one value, and
    all other values in the slot have 0. A fixed allocation is a single slot. The padding is assigned to the value that
    is live at the peak (if there are several, the one that `live_set` charges). Without such a value, it is assigned to
    the parameter or output, or else the largest value, of a fixed allocation, and to the value with the lowest id
    elsewhere.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``padding`` in bytes: one row per value, sorted by padding in descending order. The padding of the rows
        with ``at_peak`` adds up to `space_padding`.
    """
    p = program(dump)
    padding_by_value, is_known = _padding_by_value(p)
    at_peak, counted = np.zeros(len(p.owner), bool), np.zeros(len(p.owner), np.int64)
    if p.steps is None:
        value = p.representative[p.is_fixed]
        value = value[value >= 0]
        counted[value] = padding_by_value[value]
    else:
        charges = charge(p, selected_steps(p))
        at_peak[charges.value[: charges.n_live]] = True
        has_value = charges.value >= 0
        np.add.at(counted, charges.value[has_value], _charged_padding(charges, padding_by_value)[has_value])
    slots = _first_in_slot(p, is_known, at_peak)
    counted[slots] = padding_by_value[slots]
    rows = np.flatnonzero(p.value_category != THREAD_LOCAL)
    columns = p.space_columns(p.space[rows].astype(np.int64))
    columns["value_id"] = p.value_ids[rows]
    for name in ("instruction", "shape_index", "shape"):
        columns[name] = p.value_text(name, rows)
    columns["allocation"] = p.allocation_ids[p.owner[rows]]
    columns["category"] = decoded(p.categories_of(rows), pa.array(CATEGORIES, pa.string()))
    columns["size"] = p.size[rows]
    columns["unpadded_size"] = nullable(ints(p.tables["values"], "unpadded_size")[rows])
    columns["padding"] = arrow_array(counted[rows], ~is_known[rows])
    columns["at_peak"] = (at_peak | p.is_fixed[p.owner])[rows]
    columns.update(source_columns(p, rows))
    return pc.take(computed_table("padding", columns), arrow_array(np.argsort(-counted[rows], kind="stable")))


def space_padding(dump: DumpLike) -> pa.Table:
    """Return how many of the bytes in use at the peak of each memory space are padding.

    Parameters and outputs are included. The padding of a value is its size minus its unpadded size, but at most the
    bytes that `live_set` charges to it, so that shared bytes count only once.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``space_padding`` in bytes: one row per space that has a peak.

    Raises
    ------
    UsageError
        The dump has no live ranges.
    """
    p = program(dump)
    charges = charge(p, selected_steps(p))
    padding_by_value, is_known = _padding_by_value(p)
    unknown = charges.value < 0
    unknown[~unknown] = ~is_known[charges.value[~unknown]]
    space = p.space_of_allocation[charges.owner]
    columns = p.space_columns(np.unique(space))
    bytes_by_column = {"peak": charges.bytes, "padding": _charged_padding(charges, padding_by_value)}
    bytes_by_column["unknown"] = np.where(unknown, charges.bytes, 0)
    for name, values in bytes_by_column.items():
        total = np.zeros(len(p.spaces), np.int64)
        np.add.at(total, space, values)
        columns[name] = total[np.unique(space)]
    return computed_table("space_padding", columns)


def _padding_by_value(p: Program) -> tuple[Ints, Mask]:
    """Return the padding of each value by itself (0 if unknown), and whether it is known."""
    unpadded = ints(p.tables["values"], "unpadded_size")
    is_known: Mask = unpadded >= 0
    return np.where(is_known, np.maximum(p.size - unpadded, 0), 0), is_known


def _charged_padding(charges: Charges, padding: Ints) -> Ints:
    """Return the padding of each row of the charges: that of its value, but at most the bytes charged to it.

    The rest of a fixed allocation has the padding of its representative, unless that is live itself.
    """
    n = charges.n_live
    counts = charges.value >= 0
    counts[n:] &= ~np.isin(charges.value[n:], charges.value[:n])
    charged = np.zeros(len(counts), np.int64)
    charged[counts] = np.minimum(padding[charges.value[counts]], charges.bytes[counts])
    return charged


def _first_in_slot(p: Program, is_known: Mask, at_peak: Mask) -> Ints:
    """Return the value to which padding is assigned, for each temp slot without a value that is live at the peak."""
    temp = np.flatnonzero(p.in_temp)
    keys = (p.value_ids[temp], ~is_known[temp], ~at_peak[temp], p.size[temp], p.offset[temp], p.owner[temp])
    order = temp[np.lexsort(keys)]
    first = np.ones(len(order), bool)
    first[1:] = np.any([c[order[1:]] != c[order[:-1]] for c in (p.owner, p.offset, p.size)], axis=0)
    return order[first & ~at_peak[order]]
