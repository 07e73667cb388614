"""Compute what each scope uses over time, and what the compiler computes twice to save memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import _sweep, schema
from .. import kernels as pc
from ..dump import DumpLike
from ..parse.arrays import ints as column_ints
from .buffer_names import source_columns
from .clones import are_clones, originals
from .columns import Ints, arrow_array, computed_table, decoded, encoded, nullable, runs, take
from .op_names import scopes
from .peaks import selected_steps
from .program import Program, program


def scope_peaks(dump: DumpLike) -> pa.Table:
    """Return the most bytes that the values of each scope cover in a temp allocation at any step, and that step.

    The maxima of different scopes need not be at the same step, and values of two scopes may share bytes.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``scope_peaks`` in bytes and steps, by allocation and in descending order; empty without live ranges.
    """
    p = program(dump)
    start, end = p.occupied_ranges()
    rows = np.flatnonzero(p.in_temp & (start >= 0) & (p.extent > 0))
    if p.steps is None or not len(rows):
        return schema.COMPUTED["scope_peaks"].empty
    scope, names = _scopes_of(p, rows)
    order = np.lexsort((scope, p.owner[rows]))
    rows, scope = rows[order], scope[order]
    first, last = runs(p.owner[rows].astype(np.int64) * (len(names) + 1) + scope + 1)
    group = np.zeros(len(p.owner), np.int32)
    group[rows] = np.repeat(np.arange(len(first), dtype=np.int32), last - first + 1)
    ignored = np.zeros((1, p.steps), np.int64)
    space = np.zeros(len(first), np.int64)
    swept = _sweep.covered(rows.astype(np.int32), group, start, end, p.offset, p.extent, space, ignored)
    most, step = map(column_ints, swept)
    owner = p.owner[rows[first]].astype(np.int64)
    columns = p.space_columns(p.space_of_allocation[owner])
    columns |= {
        "allocation": p.allocation_ids[owner],
        "scope": pc.cast(decoded(scope[first], names), pa.string()),
        "peak": most,
        "step": step,
        "n": last - first + 1,
        "first_step": np.minimum.reduceat(start[rows], first),
        "last_step": np.maximum.reduceat(end[rows], first),
    }
    return pc.take(computed_table("scope_peaks", columns), arrow_array(np.lexsort((scope[first], -most, owner))))


def _scopes_of(p: Program, values: Ints) -> tuple[Ints, pa.Array]:
    """Return the codes and the texts of the scopes of these values, -1 for values without a name."""
    codes, op_names = encoded(source_columns(p, values)["op_name"])
    scope_codes, names = encoded(scopes(pc.cast(op_names, pa.string())))
    return take(scope_codes, codes), names


def rematerialized(dump: DumpLike) -> pa.Table:
    """Return the values that the compiler rematerializes instead of keeping them: clones named ``.remat``.

    It computes them a second time, or only later if all that read the original read clones: then it is gone.
    Such a clone saves the bytes of its original from the last use of the original to its own start. ``saved`` is its
    size if the peak of its memory space lies between them, else 0; it may be live at the peak itself, which costs
    memory.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``rematerialized`` in bytes and steps, largest first; empty without live ranges.
    """
    p = program(dump)
    values = np.flatnonzero(are_clones(p))
    if p.steps is None or not len(values):
        return schema.COMPUTED["rematerialized"].empty
    original, _ = originals(p, values)
    start, end = p.ranges
    peak = selected_steps(p)[p.space[values]]
    original_end = take(end, original)
    is_live = (start[values] >= 0) & (start[values] <= peak) & (peak <= end[values])
    between = (original_end >= 0) & (original_end < peak) & (peak < start[values])
    between &= ~np.isin(original, original[is_live])
    # Of several clones, the first one after the peak counts.
    order = np.lexsort((start[values], ~between))
    between[np.delete(order, np.unique(original[order], return_index=True)[1])] = False
    columns = p.space_columns(p.space[values].astype(np.int64))
    columns |= {name: p.value_text(name, values) for name in ("instruction", "shape_index")}
    columns |= {
        "value_id": p.value_ids[values],
        "original_id": nullable(take(p.value_ids, original)),
        "size": p.size[values],
        "original_end": nullable(original_end),
        "start": nullable(start[values]),
        "saved": np.where(between, p.size[values], 0),
        "at_peak": is_live,
        **source_columns(p, values),
    }
    return pc.take(computed_table("rematerialized", columns), arrow_array(np.lexsort((values, -p.size[values]))))
