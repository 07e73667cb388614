"""The verdict of the page: what must fit, when and why it is so much, and what to do first, in sentences."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from .. import schema
from ..compute.advice import TRY, Plan
from ..compute.bill_wording import KINDS, MIN_LINE_SHARE, largest_unused, reason_of
from ..compute.buffer_names import source_columns
from ..compute.capacity import Fits
from ..compute.charges import live_set
from ..compute.columns import ints
from ..compute.devices import device
from ..compute.folding import like_buffers
from ..compute.layout import THREAD_LOCAL
from ..compute.op_names import PHASES, layers
from ..compute.origins import origins
from ..compute.program import Program
from ..compute.wording import (
    NO_ADVICE,
    NO_ADVICE_WITHOUT_STEPS,
    PROGRAM_CODE,
    available_text,
    memory_note,
    without_live_ranges,
)
from ..formatting import file_line, one_line, percent, shorten, size
from .model import Account, Device, Phases

Row = dict[str, Any]

IN_PHASE = dict(
    zip(
        PHASES,
        ("in the forward pass", "in the backward pass", "where the backward pass recomputes activations",
         "in the optimizer"),
        strict=True,
    )
)  # fmt: skip
MAX_NAME = 80
"""Names in a sentence are shortened to this many characters."""
NOUNS = {"donated": "donated parameters"}
"""Lines of a bill whose names are no nouns."""
WHERE_ALLOCATIONS_ARE = "XLA writes them to *-buffer-assignment.txt."
UNUSED = {
    "alignment": "of alignment: what is left behind the ends of buffers",
    "another_step": "another step needs more memory",
}
"""Why lines of a bill that are not in use must fit."""
MIN_SHARE = 0.1
"""Minimum share of what is in use for a line of the bill to be mentioned."""
N_LINES = 3
"""Maximum number of lines of the bill that are mentioned."""


# -- what must fit -------------------------------------------------------------------------------


def device_of(fits: Fits | None, platform: str | None) -> Device | None:
    """Return the device, or the capacity, that a program is compared with."""
    if fits is None:
        return None
    notes = [] if fits.device is None else [memory_note(device(fits.device))]
    notes += [PROGRAM_CODE] if platform == "tpu" else []
    name = fits.device or "capacity"
    return Device(name, fits.capacity, fits.resident, fits.fraction, fits.available, "; ".join(notes))


def headline(total: int | None, fits: Fits | None, *, trusted: bool) -> str:
    """Say what must fit, and whether it does. A total that is not `trusted` is what a faulty dump says."""
    if total is None:
        return "What must fit is not known: the dump has no allocations."
    must_fit = f"{size(total)} must fit" + ("" if trusted else ", as far as the dump says")
    if fits is None:
        return f"{must_fit} into the device's memory." if trusted else f"{must_fit}."
    room = f"{fits.device or 'the device'} has {_room(fits)}"
    if fits.fits is None:
        return f"{must_fit}; {room}: whether it fits is not known."
    spare = fits.available - total
    outcome = f"fits, {size(spare)} to spare" if fits.fits else f"does not fit, {size(-spare)} over"
    return f"{must_fit}; {room}: {outcome}."


def _room(fits: Fits) -> str:
    amount, _, computed = available_text(fits).partition(" = ")
    return f"{amount} ({computed})" if computed else amount


# -- what decides it -----------------------------------------------------------------------------


def decided_by(p: Program, account: Account | None, rows: list[Row], phases: Phases) -> list[str]:
    """Say when and where the peak of an account is, what is in use then, and why more must fit than that.

    `rows` are those of the table ``bills``.
    """
    if account is None:
        return []
    of_device = [r for r in rows if r["memory_space"] is None]
    if account.step is None:
        known = "Nothing is ever in use." if p.steps is not None else _without_live_ranges(p)
        return [known, *_composition(account, account.total, "Of what must fit")]
    sentences = [_peak(p, account, phases), *_composition(account, account.in_use, "Of these")]
    return sentences + _largest(p, account) + _unused(account, of_device)


def _without_live_ranges(p: Program) -> str:
    text = without_live_ranges(p.tables["modules"].to_pylist()[0])
    return f"{text[0].upper()}{text[1:]}."


def _peak(p: Program, account: Account, phases: Phases) -> str:
    """Say when the peak is: at which step, in which phase and layer, at which source line."""
    step = account.step or 0
    names = {s.name for i, s in enumerate(p.spaces) if _in_account(p, i)}
    name = names.pop() if len(names) == 1 else "device"
    subject = f"The peak of {'device memory' if name == 'device' else name}"
    phrases = [f"{subject}, {size(account.in_use)} in use", f"is at step {step:,} of {(p.steps or 1) - 1:,}"]
    return f"{', '.join(phrases)}{_where(p, step, phases)}."


def _largest(p: Program, account: Account) -> list[str]:
    """Name the buffers of a scope that have most of the bytes in use, with their number and source line."""
    members = live_set(p.tables, account.step)
    spaces = np.array([_in_account(p, i) for i in range(len(p.spaces))])
    in_account = np.isin(ints(members, "color"), [s.color for s, known in zip(p.spaces, spaces, strict=True) if known])
    groups = like_buffers(members.filter(pa.array(in_account)), 1)
    name = groups[0]["name"] or groups[0]["instruction"] if groups else None
    if name is None:
        return []
    (group,) = groups
    source = file_line(group["source_file"], group["source_line"], folder=False)
    buffers = f"{_short(name)}{f' ({_short(source)})' if source else ''}, {size(group['bytes'])}"
    subject = f"buffers are {group['n']:,}×" if group["n"] > 1 else "buffer is"
    return [f"The largest {subject} {buffers}."]


def _in_account(p: Program, space: int) -> bool:
    reserved = p.sum_by_space(p.allocation_size, p.category != THREAD_LOCAL)
    return bool(reserved[space]) and schema.in_device_memory(p.tables.platform, p.spaces[space].color)


def _where(p: Program, step: int, phases: Phases) -> str:
    """Say what runs at a step: its phase, layer and source line."""
    band = np.flatnonzero((phases.first_step <= step) & (step <= phases.last_step))
    named = _named_at(p, step)
    source = file_line(named["source_file"], named["source_line"], folder=False)
    layer, index = (column[0].as_py() for column in layers(pa.array([named["op_name"]], pa.string())))
    texts = [f", {IN_PHASE[phases.names[phases.phase[band[0]]]]}"] if len(band) else []
    texts += [f", in {_short(layer.replace('*', str(index), 1))}"] if layer else []
    return "".join([*texts, *([f" ({_short(source)})"] if source else [])])


def _short(name: str) -> str:
    """Return a name of the program as part of a sentence."""
    return one_line(shorten(name, MAX_NAME))


def _named_at(p: Program, step: int) -> Row:
    """Return op_name and source line of the instruction at a step, or else of the largest value that starts there."""
    schedule = p.optional("schedule")
    row = p.row_of_instruction(schedule["instruction"])[ints(schedule, "time") == step]
    found = _first_row(origins(p).names.columns(row[:1]))
    if found["op_name"] is None:
        values = np.flatnonzero((p.ranges[0] == step) & (p.value_category != THREAD_LOCAL))
        found = _first_row(source_columns(p, values[np.argsort(-p.size[values], kind="stable")][:1]))
    return found


def _first_row(columns: dict[str, pa.Array]) -> Row:
    return {name: column[0].as_py() if len(column) else None for name, column in columns.items()}


def _composition(account: Account, whole: int, start: str) -> list[str]:
    """Say which lines of the bill are most of the bytes, and which buffers are most of the temporaries."""
    lines = sorted((line for line in account.lines if line.in_use), key=lambda line: -line.bytes)
    shown = [line for line in lines if whole and line.bytes >= MIN_SHARE * whole][:N_LINES]
    texts = [f"{percent(n.bytes, whole)} are {NOUNS.get(n.line, n.line)}{_mostly(n.parts)}" for n in shown]
    return [f"{start}, {_listed(texts)}."] if texts else []


def _listed(texts: list[str]) -> str:
    return f"{', '.join(texts[:-1])}, and {texts[-1]}" if len(texts) > 1 else texts[0]


def _mostly(parts: list[Row]) -> str:
    """Name the kind of buffers that has most of the bytes of a line."""
    sizes: Counter[str | None] = Counter()
    for part in parts:
        sizes[part["kind"]] += part["bytes"]
    kind, n = sizes.most_common(1)[0]
    return f", mostly {KINDS[kind][1]} ({size(n)})" if kind is not None and 2 * n > sizes.total() else ""


def _unused(account: Account, rows: list[Row]) -> list[str]:
    """Say why more must fit than is in use, unless that is little."""
    unused = account.total - account.in_use
    if unused <= MIN_LINE_SHARE * account.total:
        return []
    name, lines = largest_unused(rows)
    share = "mostly" if 2 * sum(r["bytes"] for r in lines) > unused else "first of all"
    reason = UNUSED.get(name) or f"of {name}: {reason_of(name, lines)}"
    return [f"{size(unused)} more must fit than is in use then, {share} because {reason}."]


# -- what to do ----------------------------------------------------------------------------------


def first_step(p: Program, rows: list[Row], fits: Fits | None, plan: Plan | None) -> str:
    """Say what to do first, given the rows of ``advice``."""
    if not len(p.allocation_ids):
        return WHERE_ALLOCATIONS_ARE
    if p.steps is None:
        return NO_ADVICE_WITHOUT_STEPS
    if not rows:
        return NO_ADVICE
    row = next((row for row in rows if row["in_plan"]), rows[0])
    action = row["action"].removesuffix(TRY).rstrip()
    return f"{_purpose(fits, plan)}: {action} It saves {_bounds(row)}."


def _purpose(fits: Fits | None, plan: Plan | None) -> str:
    if fits is None or fits.fits is not False or plan is None:
        return "To need less memory"
    if not plan.n:
        return "Nothing is known to save memory for certain, but this may help"
    if not plan.is_reached:
        return "Nothing that is known makes it fit for certain. Begin with this"
    return "To make it fit" if plan.n == 1 else f"To make it fit, do {plan.n} things. First"


def _bounds(row: Row) -> str:
    if row["lower"] == row["upper"]:
        return size(row["upper"])
    if row["lower"] <= 0:
        return f"at most {size(row['upper'])}; the compiler decides"
    return f"{size(row['lower'])} to {size(row['upper'])}"
