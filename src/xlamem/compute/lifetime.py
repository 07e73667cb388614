"""Donation of parameters, and buffers that lie idle."""

from __future__ import annotations

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..dump import Dump
from ..errors import UsageError
from ..parse.arrays import row_of
from .occupancy import moments, runs
from .program import (
    DONATED,
    LIVE_OUT,
    MOST,
    PARAMETER,
    THREAD_LOCAL,
    Ints,
    Mask,
    Program,
    coded,
    decoded,
    ints,
    nullable,
    program,
    table,
    translated,
)

PARTITIONED = {"sharding": r"devices=|'=(?:[2-9]|\d\d)", "opcode": "^(?:all-|collective-|reduce-scatter|partition-id)"}
"""What only programs for several devices have: ``{devices=[4,1]<=[4]}``, ``{mesh['x'=4], …}``, and collectives."""


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
    head of the HLO text lists it as an alias or donor, but it holds no output.

    Of the others, ``candidate`` says that XLA would alias it with an output if it were donated: JAX wants as many
    elements, XLA as many bytes on the device and the same memory space; shape and element type may differ
    (``exact``: they do not). As in JAX, one output goes with one parameter, in the order of their numbers, exact
    ones first. Donated, the output needs no allocation of its own: that saves at most its size, and nothing where
    XLA has to copy, because the parameter is still read when the output is written. How the other temporaries
    change is not in these bounds. ``free_in_schedule``: as scheduled now the parameter is last read before the
    output's allocation is written, or at the same step.

    Returns
    -------
    pyarrow.Table
        Table ``donation``, by number of the parameter: bytes and steps; ``last_use`` is null without uses.
    """
    p = program(dump)
    outputs, output_index = _outputs(p)
    rows = np.flatnonzero((p.category == PARAMETER) | (p.category == DONATED))
    number = ints(dump.allocations, "parameter_number")[rows]
    index = _indices(dump.allocations["parameter_shape_index"].take(pa.array(rows)))
    order = np.lexsort((_ranks(index), number))
    rows, number, index = rows[order], number[order], index.take(pa.array(order))

    aliases = dump.aliases
    listed = pc.index_in(
        _keys(number, index), _keys(ints(aliases, "parameter"), _indices(aliases["parameter_index"]))
    )
    taken = p.category[rows] == DONATED
    state = np.where(taken, 0, np.where(listed.is_valid().to_numpy(zero_copy_only=False), 1, 2))
    printed = pc.replace_substring(aliases["output_index"].cast(pa.string()).combine_chunks(), " ", "").take(listed)

    parameter = p.representative[rows]
    free = np.flatnonzero(p.value_category[outputs] == LIVE_OUT)
    free = free[np.argsort(_ranks(output_index.take(pa.array(free))), kind="stable")]
    could = np.flatnonzero(~taken & (parameter >= 0))
    partner, exact = np.full(len(rows), -1, np.int64), np.zeros(len(rows), bool)
    at, exact[could] = _matched(p, parameter[could], outputs[free])
    partner[could[at >= 0]] = free[at[at >= 0]]
    candidate = partner >= 0
    output = np.full(len(rows), -1, np.int64)
    output[candidate] = outputs[partner[candidate]]

    last = np.full(len(p.ids), -1, np.int64)
    value, time = _use_times(p)
    np.maximum.at(last, value, time)
    last_use = np.full(len(rows), -1, np.int64)
    last_use[parameter >= 0] = last[parameter[parameter >= 0]]
    timed = candidate & (p.steps is not None) & bool(dump.uses.num_rows)
    begin = np.full(len(rows), -1, np.int64)
    begin[timed] = _begins(p)[p.owner[output[timed]]]
    saving = p.allocation_size[rows]

    columns = {"parameter": number, "parameter_index": index}
    columns.update(p.space_columns(p.space_of_allocation[rows]))
    columns["allocation"], columns["size"] = p.index[rows], saving
    columns["shape"] = p.of_value("shape", parameter)
    columns["state"] = decoded(state, pa.array(["taken", "refused", "no"]))
    own = row_of(p.owner[outputs].astype(np.int64), np.where(taken, rows, -1))
    columns["output_index"] = pc.coalesce(printed, _taken(output_index, own))
    columns["last_use"] = nullable(last_use)
    columns["candidate"], columns["exact"] = candidate, exact
    columns["candidate_output"] = _taken(output_index, partner)
    columns["candidate_instruction"] = p.of_value("instruction", output)
    columns["candidate_shape_index"] = p.of_value("shape_index", output)
    columns["saving_lower"] = pa.array(np.zeros_like(saving), mask=~candidate)
    columns["saving_upper"] = pa.array(saving, mask=~candidate)
    columns["free_in_schedule"] = pa.array(begin >= last_use, mask=~timed)
    return table("donation", columns)


def _indices(column: pa.ChunkedArray) -> pa.Array:
    """Indices into shapes as texts without blanks; ``{}`` where none is printed."""
    texts = column.cast(pa.string()).combine_chunks().fill_null("{}")
    return pc.replace_substring(texts, " ", "")


def _ranks(indices: pa.Array) -> Ints:
    """The place of each index in the order of their numbers: {2} comes before {10}."""
    codes = indices.dictionary_encode()
    known = [[int(n) for n in re.findall(r"\d+", text or "")] for text in codes.dictionary.to_pylist()]
    rank = np.empty(len(known), np.int64)
    rank[sorted(range(len(known)), key=known.__getitem__)] = np.arange(len(known))
    found = np.asarray(codes.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return np.where(found >= 0, rank[found], -1) if len(known) else found


def _keys(number: Ints, index: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pa.array(number).cast(pa.string()), index, "")


def _taken(texts: pa.Array, rows: Ints) -> pa.Array:
    """The texts of these rows (-1: null)."""
    return texts.take(nullable(rows))


def _outputs(p: Program) -> tuple[Ints, pa.Array]:
    """The value of each output, by allocation, and its index into the program's output (null: not known).

    Without live ranges an output is known only where nothing else lies in its allocation.
    """
    values = np.flatnonzero((p.value_category == LIVE_OUT) | (p.value_category == DONATED))
    if p.steps is not None:
        values = values[p.is_output(values)]
    else:
        values = values[np.bincount(p.owner, minlength=1)[p.owner[values]] == 1]
    values = values[np.unique(p.owner[values], return_index=True)[1]]
    positions, schedule = p.dump.positions, p.dump.schedule
    index = pa.nulls(len(values), pa.string())
    if schedule.num_rows and positions.num_rows:
        # The root of the program is its last instruction.
        root = schedule["instruction"][int(ints(schedule, "time").argmax())].as_py()
        codes, names = coded(positions["instruction"])
        at = np.flatnonzero(codes == pc.index(names, root).as_py())
        found = row_of(ints(positions, "value_id")[at], p.ids[values])
        index = _indices(positions["shape_index"].take(pa.array(at))).take(nullable(found))
    return values, index


def _begins(p: Program) -> Ints:
    """The first step at which a value of each allocation is live."""
    begin = np.full(len(p.index), p.steps or 0, np.int64)
    start, _ = p.ranges
    has = start >= 0
    np.minimum.at(begin, p.owner[has], start[has])
    return begin


def _matched(p: Program, parameters: Ints, outputs: Ints) -> tuple[Ints, Mask]:
    """For each of these values the place of the output that it would be aliased with (-1: none), and if it is exact.

    JAX matches equal shapes and element types first, then numbers of elements. What it matches by number it
    leaves to XLA, which goes by bytes. Always the order counts. In a program for several devices it leaves all to
    XLA (unless `out_shardings` says of each output where it goes).
    """
    both = np.concatenate([parameters, outputs])
    form, elements = _forms(p.of_value("shape", both))
    texts = {column: p.dump.instructions[column].cast(pa.string()) for column in PARTITIONED}
    if any(pc.any(pc.match_substring_regex(texts[c], r)).as_py() for c, r in PARTITIONED.items()):
        elements = np.zeros_like(elements)
    where = np.stack([p.space_of_allocation[p.owner[both]], p.allocation_size[p.owner[both]]], axis=1)
    here, there = slice(len(parameters)), slice(len(parameters), None)
    found = np.full(len(parameters), -1, np.int64)

    def pairs(mine: Ints, theirs: Ints, *more: Ints) -> Ints:
        keys = np.column_stack([where, *more])
        return _paired(keys[here][mine], keys[there][theirs])

    mine, theirs = np.flatnonzero(form[here] >= 0), np.flatnonzero(form[there] >= 0)
    at = pairs(mine, theirs, form)
    exact = np.zeros(len(parameters), bool)
    exact[mine[at >= 0]] = True
    found[mine[at >= 0]] = theirs[at[at >= 0]]
    mine, theirs = mine[at < 0], np.delete(theirs, at[at >= 0])
    mine = mine[pairs(mine, theirs, elements) >= 0]
    found[mine] = theirs[pairs(mine, theirs)]
    return found, exact


def _forms(shapes: pa.DictionaryArray) -> tuple[Ints, Ints]:
    """A code of each array's element type and dimensions, and its number of elements; -1 for what is no array."""
    texts = [re.match(r"(\w+)\[([\d,<= ]*)\]", text or "") for text in shapes.dictionary.to_pylist()]
    plain = pa.array([m and m[0] for m in texts], pa.string()).dictionary_encode()
    form = plain.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    counts = [math.prod(map(int, re.findall(r"\d+", m[2]))) if m else -1 for m in texts]
    elements = [n if n < MOST else -1 for n in counts]
    code = shapes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return tuple(np.append(np.array(c, np.int64), -1)[code] for c in (form, elements))


def _paired(mine: Ints, theirs: Ints) -> Ints:
    """For each row of keys its partner's row: the k-th of a key goes with the k-th of that key; -1 for none."""
    n = len(mine)
    _, code = np.unique(np.concatenate([mine, theirs]), axis=0, return_inverse=True)
    turn = np.empty(len(code), np.int64)
    for part in (slice(n), slice(n, None)):
        order = np.argsort(code[part], kind="stable")
        first, last = runs(code[part][order])
        turn[part][order] = np.arange(len(order)) - np.repeat(first, last - first + 1)
    keys = code.reshape(-1) * len(code) + turn
    return row_of(keys[n:], keys[:n])


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
