"""Find out when values are read, and which ones are idle for a long time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import DumpLike
from ..errors import UsageError
from ..parse.arrays import row_of
from .buffer_names import source_columns
from .columns import Ints, Mask, computed_table, encoded, ints, match_dictionaries, take
from .layout import THREAD_LOCAL
from .origins import uses_of
from .peaks import selected_steps
from .program import Program, program

MAX_READERS, MAX_ROUNDS, MAX_FOLLOWED = 8, 64, 1 << 12
"""Maximum number of readers of a value that are followed, of rounds, and of instructions that are reached."""


def use_steps(p: Program) -> tuple[Ints, Ints]:
    """Return the value and the step of every use by an instruction of the schedule."""
    uses, schedule = p.tables["uses"], p.tables["schedule"]
    codes, names = encoded(uses["instruction"])
    scheduled, scheduled_names = encoded(schedule["instruction"])
    if not len(codes) or not len(scheduled):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    step_of_name = np.full(len(scheduled_names), -1, np.int64)
    step_of_name[scheduled] = ints(schedule, "time")
    step = take(step_of_name, match_dictionaries(names, scheduled_names))[codes]
    value = row_of(p.value_ids, ints(uses, "value_id"))
    keep = (value >= 0) & (step >= 0)
    return value[keep], step[keep]


def has_independent_reader(p: Program, value: int, writer: int) -> bool:
    """Return whether an instruction reads a value although `writer`, a row of `instructions`, does not depend on it.

    The compiler may then run it after the writer. It is one of the program itself, not of a loop, and the program
    returns what follows from it. False if that is too much to follow.
    """
    values, users, _, _ = uses_of(p)
    schedule = p.tables["schedule"]
    if not schedule.num_rows:
        return False
    last = int(np.argmax(ints(schedule, "time")))
    root = int(p.row_of_instruction(schedule["instruction"].slice(last, 1))[0])
    readers = np.unique(users[(values == value) & (users >= 0) & (users != writer)])
    source, user = _users(p)
    return any(_is_independent(source, user, r, writer, root) for r in readers[:MAX_READERS].tolist())


def depend_on_each_other(p: Program, readers: Ints) -> bool:
    """Return whether one of these rows of `instructions` reads what follows from another one of them.

    True if that is too much to follow.
    """
    source, user = _users(p)
    begins = np.full(p.tables["instructions"].num_rows, -1, np.int64)
    np.maximum.at(begins, p.instruction_row[p.instruction_row >= 0], p.ranges[0][p.instruction_row >= 0])
    last, reached, new = begins[readers].max(initial=-1), readers, readers
    for _ in range(MAX_ROUNDS):
        users = np.unique(_readers(source, user, new))
        users = users[begins[users] <= last]
        if np.isin(users, readers).any():
            return True
        new = np.setdiff1d(users, reached)
        if not len(new):
            return False
        reached = np.concatenate([reached, new])
        if len(reached) > MAX_FOLLOWED:
            break
    return True


def leads_to(p: Program, rows: Ints, targets: Mask, through: Mask) -> bool:
    """Return whether one of these rows of `instructions` is a target, or a target reads what follows from it.

    All of what is computed in between must be in `through`. False if that is too much to follow.
    """
    source, user = _users(p)
    reached = new = np.unique(rows)
    for _ in range(MAX_ROUNDS):
        if targets[new].any():
            return True
        new = np.setdiff1d(_readers(source, user, new[through[new]]), reached)
        if not len(new) or len(reached) > MAX_FOLLOWED:
            break
        reached = np.concatenate([reached, new])
    return False


def _users(p: Program) -> tuple[Ints, Ints]:
    """Return which instruction (ascending) is read by which, as rows of `instructions`."""

    def edges() -> tuple[Ints, Ints]:
        value, user, _, _ = uses_of(p)
        source = take(p.instruction_row, value)
        known = (source >= 0) & (user >= 0)
        order = np.argsort(source[known], kind="stable")
        return source[known][order], user[known][order]

    return p.once("users", edges)


def _readers(source: Ints, user: Ints, rows: Ints) -> Ints:
    """Return what reads these instructions, given the pairs of `_users`."""
    begin, end = (np.searchsorted(source, rows, side) for side in ("left", "right"))
    n = end - begin
    found: Ints = user[np.repeat(begin - np.cumsum(n) + n, n) + np.arange(n.sum())]
    return found


def _is_independent(source: Ints, user: Ints, reader: int, writer: int, root: int) -> bool:
    """Return whether what an instruction computes reaches the root of the program, but not the writer."""
    reached = new = np.array([reader], np.int64)
    for _ in range(MAX_ROUNDS):
        readers = _readers(source, user, new)
        if len(readers) > MAX_FOLLOWED:
            return False
        new = np.setdiff1d(readers, reached)
        if (new == writer).any() or len(reached) > MAX_FOLLOWED:
            return False
        if not len(new):
            return bool((reached == root).any())
        reached = np.concatenate([reached, new])
    return False


def idle(dump: DumpLike, *, min_bytes: int = 0, limit: int | None = None) -> pa.Table:
    """Return the values that stay in memory for a long time without being read.

    They are candidates for rematerialisation or offloading.

    For each value, the longest gap between its definition and its uses counts. The end of a live range is not a use.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    min_bytes
        Omit smaller values.
    limit
        Maximum number of rows, which are sorted by size times gap.

    Returns
    -------
    pyarrow.Table
        Table ``idle`` in bytes and steps; empty without live ranges or used values.
    """
    if limit is not None and limit < 0:
        raise UsageError(f"limit must be 0 or more, not {limit}")
    p = program(dump)
    start, _ = p.ranges
    is_candidate = (start >= 0) & (p.value_category != THREAD_LOCAL) & (p.size >= max(min_bytes, 1))
    if p.steps is None or not is_candidate.any():
        return schema.COMPUTED["idle"].empty
    value, from_step, gap = _longest_gaps(p, is_candidate)
    order = np.argsort(-(p.size[value].astype(np.float64) * gap), kind="stable")
    order = order[gap[order] > 1][:limit]
    value, from_step, to_step = value[order], from_step[order], (from_step + gap)[order]
    peak_step = selected_steps(p)[p.space[value]]
    columns = p.space_columns(p.space[value].astype(np.int64))
    columns |= {"value_id": p.value_ids[value], "allocation": p.allocation_ids[p.owner[value]], "size": p.size[value]}
    for name in ("instruction", "shape_index"):
        columns[name] = p.value_text(name, value)
    columns |= {"from_step": from_step, "to_step": to_step, "gap": gap[order]}
    columns["over_peak"] = (from_step < peak_step) & (peak_step < to_step)
    columns.update(source_columns(p, value))
    return computed_table("idle", columns)


def _longest_gaps(p: Program, candidates: Mask) -> tuple[Ints, Ints, Ints]:
    """Return these values, with the first step and the length of the longest gap of each (the first of several)."""
    start, end = p.ranges
    value, step = use_steps(p)
    keep = candidates[value] & (step <= end[value]) & (step >= start[value])
    value = np.concatenate([np.flatnonzero(candidates), value[keep]])
    step = np.concatenate([start[candidates], step[keep]])
    order = np.lexsort((step, value))
    value, step = value[order], step[order]
    gap = np.append(np.diff(step), 0)
    gap[np.append(value[1:] != value[:-1], True)] = -1
    first = np.flatnonzero(np.append(True, value[1:] != value[:-1]))
    longest = np.maximum.reduceat(gap, first)
    at_longest = np.flatnonzero(gap == np.repeat(longest, np.diff(np.append(first, len(value)))))
    at_first = at_longest[np.append(True, value[at_longest][1:] != value[at_longest][:-1])]
    return value[first], step[at_first], longest
