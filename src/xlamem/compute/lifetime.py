"""Donation of parameters, and buffers that lie idle."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import schema
from ..assemble import row_of
from ..dump import Dump
from ..errors import UsageError
from .occupancy import moments
from .program import (
    DONATED,
    LIVE_OUT,
    PARAMETER,
    THREAD_LOCAL,
    Ints,
    Program,
    coded,
    decoded,
    ints,
    nullable,
    program,
    table,
    translated,
)


def _use_times(p: Program) -> tuple[Ints, Ints]:
    """(row of the value, step) of every use that stands in the schedule."""
    uses, schedule = p.dump.uses, p.dump.schedule
    codes, names = coded(uses["instruction"])
    scheduled, known = coded(schedule["instruction"])
    if not len(codes) or not len(scheduled):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    step = np.full(len(known), -1, np.int64)
    step[scheduled] = ints(schedule, "time")
    place = translated(names, known)
    by_name = np.where(place >= 0, step[place], -1)
    value = row_of(p.ids, ints(uses, "value_id"))
    time = by_name[codes]
    keep = (value >= 0) & (time >= 0)
    return value[keep], time[keep]


def donation(dump: Dump) -> pa.Table:
    """Per allocation of an entry parameter: whether it was donated, whether that was taken, and what could be.

    ``taken``: the allocation holds a parameter and is live-out (XLA reuses it for an output). ``refused``: the
    head of the HLO text lists it as an alias or donor, but it holds no output. ``could_be_donated``: some
    output of the same shape and space, not yet sharing a parameter's allocation, begins at or after the
    parameter's last use.

    Returns
    -------
    pyarrow.Table
        Table ``donation``: bytes and steps; ``last_use`` is null without live ranges or uses.
    """
    p = program(dump)
    a, aliases = dump.allocations, dump.aliases
    rows = np.flatnonzero((p.category == PARAMETER) | (p.category == DONATED))
    number = ints(a, "parameter_number")[rows]
    index_codes, index_texts = coded(a["parameter_shape_index"])
    index = decoded(index_codes[rows], index_texts).cast(pa.string())
    keys = [f"{n}{i or '{}'}" for n, i in zip(number.tolist(), index.to_pylist(), strict=True)]
    wanted = {
        f"{n}{i.replace(' ', '')}": o.replace(" ", "") if o else None
        for n, i, o in zip(
            aliases["parameter"].to_pylist(),
            aliases["parameter_index"].to_pylist(),
            aliases["output_index"].to_pylist(),
            strict=True,
        )
    }
    taken = p.category[rows] == DONATED
    asked = np.array([k in wanted for k in keys], bool)
    state = np.where(taken, 0, np.where(asked, 1, 2))
    last = np.full(len(p.ids), -1, np.int64)
    value, time = _use_times(p)
    np.maximum.at(last, value, time)
    first_value = p.representative[rows]
    last_use = np.where(first_value >= 0, last[first_value] if len(last) else -1, -1)
    could, output = _could_share(p, rows[~taken], last_use[~taken])
    could_all, output_all = np.zeros(len(rows), bool), np.full(len(rows), -1, np.int64)
    could_all[~taken], output_all[~taken] = could, output
    columns = {"parameter": number, "parameter_index": index.fill_null("{}")}
    columns.update(p.space_columns(p.space_of_allocation[rows]))
    columns["allocation"], columns["size"] = p.index[rows], p.allocation_size[rows]
    columns["shape"] = p.of_value("shape", first_value)
    columns["state"] = decoded(state, pa.array(["taken", "refused", "no"]))
    columns["output_index"] = pa.array([wanted.get(k) for k in keys], pa.string())
    columns["last_use"] = nullable(last_use)
    columns["could_be_donated"] = could_all
    columns["could_output"] = p.of_value("instruction", output_all)
    return table("donation", columns)


def _could_share(p: Program, rows: Ints, last_use: Ints) -> tuple[np.ndarray, Ints]:
    """For parameters' allocations: whether an output could take their place, and its value. Each output once."""
    none = np.zeros(len(rows), bool), np.full(len(rows), -1, np.int64)
    outputs = np.flatnonzero((p.category == LIVE_OUT) & ~np.asarray(p.allocations["is_entry_root"].to_numpy(), bool))
    if p.steps is None or not len(outputs) or not len(rows):
        return none
    start, _ = p.ranges
    begin = np.full(len(p.index), p.steps, np.int64)
    has = start >= 0
    np.minimum.at(begin, p.owner[has], start[has])
    shapes, _ = coded(p.dump.values["shape"])

    def key(allocation: Ints) -> Ints:
        value = p.representative[allocation]
        shape = np.where(value >= 0, shapes[value], -1)
        return (shape + 1) * len(p.spaces) + p.space_of_allocation[allocation]

    wish, there = key(rows), key(outputs)
    good, found = none
    known = (last_use >= 0) & (wish >= len(p.spaces))
    for shape in np.intersect1d(wish[known], there):
        # Both in the order of time: each parameter takes the first free output that begins late enough.
        mine = np.flatnonzero(known & (wish == shape))
        mine = mine[np.argsort(last_use[mine], kind="stable")]
        theirs = outputs[there == shape]
        theirs = theirs[np.argsort(begin[theirs], kind="stable")]
        turn = np.arange(len(mine))
        at = turn + np.maximum.accumulate(np.searchsorted(begin[theirs], last_use[mine]) - turn)
        fits = at < len(theirs)
        good[mine[fits]] = True
        found[mine[fits]] = p.representative[theirs[at[fits]]]
    return good, found


def idle(dump: Dump, *, min_bytes: int = 0, limit: int | None = None) -> pa.Table:
    """Values that are kept for long without being read: candidates for rematerialisation or offload.

    Between its definition and its uses each value has a longest gap; the end of a live range is no use.

    Parameters
    ----------
    min_bytes
        Leave out smaller values.
    limit
        Give only the first rows; the order is by size times gap.

    Returns
    -------
    pyarrow.Table
        Table ``idle``: bytes and steps. Empty without live ranges or used values.
    """
    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}")
    p = program(dump)
    start, end = p.ranges
    rows = np.flatnonzero((start >= 0) & (p.value_category != THREAD_LOCAL) & (p.size >= max(min_bytes, 1)))
    if p.steps is None or not len(rows):
        return schema.COMPUTED["idle"].arrow.empty_table()
    value, time = _use_times(p)
    wanted = np.zeros(len(p.ids), bool)
    wanted[rows] = True
    keep = wanted[value] & (time <= end[value]) & (time >= start[value])
    of = np.concatenate([rows, value[keep]])
    at = np.concatenate([start[rows], time[keep]])
    order = np.lexsort((at, of))
    of, at = of[order], at[order]
    gap = np.append(np.diff(at), 0)
    gap[np.append(of[1:] != of[:-1], True)] = -1
    first = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    best = np.maximum.reduceat(gap, first)
    owner = of[first]
    is_best = gap == np.repeat(best, np.diff(np.append(first, len(of))))
    place = np.flatnonzero(is_best)
    place = place[np.append(True, of[place][1:] != of[place][:-1])]
    from_step = at[place]
    order = np.argsort(-(p.size[owner].astype(np.float64) * best), kind="stable")
    order = order[best[order] > 1][:limit]
    owner, from_step, best = owner[order], from_step[order], best[order]
    peak_at = moments(p, None, None)[p.space[owner]]
    columns = p.space_columns(p.space[owner])
    columns["value_id"] = p.ids[owner]
    columns["instruction"], columns["shape_index"] = p.of_value("instruction", owner), p.of_value("shape_index", owner)
    columns["allocation"], columns["size"] = p.index[p.owner[owner]], p.size[owner]
    columns["from_step"], columns["to_step"], columns["gap"] = from_step, from_step + best, best
    columns["over_peak"] = (from_step < peak_at) & (peak_at < from_step + best)
    columns.update(p.place(owner))
    return table("idle", columns)
