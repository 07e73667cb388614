"""Memory spaces of a program, and the phases of its schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import schema
from ..compute.buffer_names import phases_of_rows, phases_of_values
from ..compute.columns import Ints, Mask, encoded, flags_of, ints, runs, take
from ..compute.in_use import MAX_CELLS, MAX_SPACES, fixed_by_category, occupied_in, windows
from ..compute.layout import TEMP
from ..compute.op_names import FORWARDING, MOVING_TARGETS, PHASES, matching
from ..compute.origins import has_opcode
from ..compute.overview import main_memory_first
from ..compute.peaks import Peak
from ..compute.program import Program
from .model import Phases, Space

N_PLATEAUS = 20
"""Plateaus listed per memory space."""


def space_models(p: Program, peaks: Peak) -> tuple[list[Space], Ints]:
    """Return the memory spaces, main memory first, and the row in that list of each space of the program."""
    rows = peaks.spaces.to_pylist()
    for i, row in enumerate(rows):
        row["number"] = i
    ordered = main_memory_first(rows)
    place = np.empty(len(rows), np.int64)
    place[[row["number"] for row in ordered]] = np.arange(len(rows))
    usage = _usage(p, ordered)
    plateaus = peaks.plateaus.to_pylist()
    fixed = {name: size.tolist() for name, size in fixed_by_category(p).items()}
    temp = p.sum_by_space(p.allocation_size, p.category == TEMP).tolist()
    return [_space(p, row, usage.get(row["number"]), plateaus, fixed, temp) for row in ordered], place


def _space(
    p: Program,
    row: dict[str, Any],
    usage: Ints | None,
    plateaus: list[dict[str, Any]],
    fixed: dict[str, list[int]],
    temp: list[int],
) -> Space:
    i = row["number"]
    categories = {name: size[i] for name, size in fixed.items()}
    in_fixed = sum(categories.values())
    categories["temp"] = temp[i] if row["peak"] is None else row["peak"] - in_fixed
    key = row["color"], row["page"]
    names = ("first_step", "last_step", "bytes")
    return Space(
        **{name: row[name] for name in ("memory_space", "color", "page", "allocated", "reserved", "peak")},
        first_step=row["first_step"],
        last_step=row["last_step"],
        in_device_memory=schema.in_device_memory(p.tables.platform, row["color"]),
        n_plateaus=row["plateaus"],
        plateaus=[{name: r[name] for name in names} for r in plateaus if (r["color"], r["page"]) == key],
        categories=categories,
        usage=np.empty(0, np.int64) if usage is None else usage,
    )


def _usage(p: Program, ordered: list[dict[str, Any]]) -> dict[int, Ints]:
    """Return the bytes in use at every step of the first memory spaces, by number."""
    if p.steps is None:
        return {}
    n = len(ordered) if len(ordered) <= MAX_SPACES else max(1, min(MAX_SPACES, MAX_CELLS // p.steps))
    shown = {row["number"] for row in ordered[:n]}
    usage = {}
    for window in windows(p):
        levels = occupied_in(p, window)
        for i, space in enumerate(window.spaces.tolist()):
            if space in shown:
                usage[space] = window.expand(levels[i : i + 1])[0]
    return usage


# -- phases --------------------------------------------------------------------------------------


def phase_bands(p: Program) -> Phases:
    """Return the phases of the schedule: runs of steps, of which those without a phase join equal neighbours.

    Copies of forward values run all through the backward pass, so instructions that only move bytes join their
    neighbours too. Where these differ, their own phase counts.
    """
    phase = step_phases(p)
    computed = _bridged(np.where(_moving_steps(p), -1, phase))
    phase = _bridged(np.where(computed >= 0, computed, phase))
    first, last = runs(phase)
    known = phase[first] >= 0
    return Phases(list(PHASES), phase[first[known]], first[known], last[known])


def step_phases(p: Program) -> Ints:
    """Return the phase at each step as an index in PHASES, or -1: that of the instruction, or of a value it defines."""
    steps = p.steps or 0
    schedule = p.optional("schedule")
    step, row = ints(schedule, "time"), p.row_of_instruction(schedule["instruction"])
    valid = (step >= 0) & (step < steps)
    phase = np.full(steps, -1, np.int64)
    if steps:
        values = np.flatnonzero(p.instruction_row >= 0)
        of_values = phases_of_values(p, values)
        of_rows = np.full(p.tables["instructions"].num_rows, -1, np.int64)
        known = of_values >= 0
        of_rows[p.instruction_row[values[known]]] = of_values[known]
        own = phases_of_rows(p, np.arange(len(of_rows)))
        phase[step[valid]] = take(np.where(own >= 0, own, of_rows), row[valid])
    return phase


def _moving_steps(p: Program) -> Mask:
    """Return whether the instruction at each step only moves bytes."""
    rows = np.full(p.steps or 0, -1, np.int64)
    schedule = p.optional("schedule")
    step = ints(schedule, "time")
    valid = (step >= 0) & (step < len(rows))
    rows[step[valid]] = p.row_of_instruction(schedule["instruction"])[valid]
    codes, targets = encoded(p.tables["instructions"]["custom_call_target"])
    moving_calls = flags_of(matching(targets, MOVING_TARGETS), take(codes, rows))
    return has_opcode(p, rows, FORWARDING) | has_opcode(p, rows, "^tuple$") | moving_calls


def _bridged(phase: Ints) -> Ints:
    """Replace -1 between equal phases by that phase."""
    index = np.arange(len(phase))
    known = phase >= 0
    before = np.maximum.accumulate(np.where(known, index, -1))
    after = np.minimum.accumulate(np.where(known, index, len(phase))[::-1])[::-1]
    previous, following = take(phase, before), take(phase, np.where(after < len(phase), after, -1))
    return np.where(previous == following, previous, phase)
