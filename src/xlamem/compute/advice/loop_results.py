"""Find what loops stack for the program itself, such as `ys` of `jax.lax.scan`, and what could be reduced before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..buffer_names import trip_counts
from ..columns import Ints, Mask
from ..layout import DONATED, LIVE_OUT, PARAMETER
from ..origins import MAX_ROUNDS, has_opcode, uses_of
from ..program import distinct_rows
from ..uses import depend_on_each_other
from .activations import BACKWARD
from .bounds import of_values, with_vmem
from .intervention import MARGIN, MIN_SHARE, Intervention, largest_first, rescheduled_at_worst
from .stacks import LoopActivations
from .what_if import Change

REDUCE_LOWER, REDUCE_UPPER = 0.75, 1.1
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
REPACKED = 1 / 6
"""Share of the temporaries by which what is left may be packed worse."""
HISTORY_LOWER = 0.5
"""Multiple of the bytes of returned stacks that is saved at least: temporaries can take their place now."""
MIN_HISTORY = 0.1
"""Minimum share of what must fit that they take."""
MAX_REDUCED = 1 / 4
"""Maximum size of what a program computes from a stack, as a share of the stack."""
MAX_STACKS = 16
"""Maximum number of stacks that are followed, the largest first."""

_COMPUTING = "^(?:fusion|reduce|dot|convert|copy|transpose|reshape|slice|dynamic-slice|bitcast|convolution)$"


class _Reduced(NamedTuple):
    """A stack from which a program only computes something smaller."""

    stack: int
    """The result of a loop."""
    copies: Ints
    """The stack, and copies of it."""
    results: Ints
    """What is computed from it."""


def reductions(a: LoopActivations) -> Iterator[Intervention]:
    """Reduce in the body of a loop what it stacks, if the program computes something much smaller from all of it."""
    by_loop: dict[int, list[_Reduced]] = {}
    for stack in _stacks(a).tolist():
        reduced = _Reduced(stack, *_computed_from(a, stack))
        if 0 < a.p.extent[reduced.results].sum() <= MAX_REDUCED * a.p.extent[stack]:
            by_loop.setdefault(int(a.p.instruction_row[stack]), []).append(reduced)
    yield from (_reduction(a, stacks) for stacks in by_loop.values())


def histories(a: LoopActivations) -> Iterator[Intervention]:
    """Return less of what a loop stacks for the results of a training, such as the parameters after each step."""
    p, trips = a.p, trip_counts(a.p)
    values = np.flatnonzero(a.has_opcode("while") & (p.category[p.owner] == LIVE_OUT))
    loop = p.instruction_row[values]
    is_stack = (a.dimensions[values, 0] > 1) & (a.dimensions[values, 0] == trips[loop])
    # An argument of a loop over layers may be replaced by such a stack.
    is_stack &= ~_are_shaped_like_arguments(a)[values]
    values, loop = values[is_stack], loop[is_stack]
    for row in np.unique(loop).tolist() if a.is_training else ():
        yield from _history(a, largest_first(a.w, values[loop == row]))


def _history(a: LoopActivations, stacks: Ints) -> Iterator[Intervention]:
    p, w = a.p, a.w
    allocations, n = np.unique(p.owner[stacks]), int(a.dimensions[stacks[0], 0])
    size = int(p.allocation_size[allocations].sum())
    if size < MIN_HISTORY * w.total:
        return
    change = Change(-(size - size // n), w.none)
    estimate = w.saved(change)
    text = (
        f"A loop stacks {described(a, stacks)} over its {n:,} iterations, which the program returns. If not all of "
        "that is needed, return it for every n-th iteration or for the last one, or reduce it in the body of the loop."
    )
    bounds = int(HISTORY_LOWER * estimate), int(REDUCE_UPPER * size)
    yield of_values(a, "reduce", stacks, change, bounds, text)


def _stacks(a: LoopActivations) -> Ints:
    """Return the largest results of loops with one element per iteration."""
    trips = trip_counts(a.p)
    values = np.flatnonzero(a.has_opcode("while") & a.w.in_arena & (a.p.extent >= MIN_SHARE * a.w.total))
    values = values[(a.dimensions[values, 0] > 1) & (a.dimensions[values, 0] == trips[a.p.instruction_row[values]])]
    return largest_first(a.w, values)[:MAX_STACKS]


def _computed_from(a: LoopActivations, stack: int) -> tuple[Ints, Ints]:
    """Return copies of a stack, and what is computed from it; nothing if the loops or the backward pass read it."""
    reached = new = np.array([stack])
    results, readers, none = [np.empty(0, np.int64)], [], (reached, np.empty(0, np.int64))
    value, user, _, _ = uses_of(a.p)
    for _ in range(MAX_ROUNDS):
        users = np.unique(user[np.isin(value, new) & (user >= 0)])
        if not has_opcode(a.p, users, _COMPUTING).all() or a.is_later[users].any():
            return none
        written = np.flatnonzero(np.isin(a.p.instruction_row, users))
        is_copy = 2 * a.elements[written] > a.elements[stack]
        results.append(written[~is_copy])
        readers.append(np.setdiff1d(users, a.p.instruction_row[written[is_copy]]))
        new = np.setdiff1d(written[is_copy], reached)
        if not len(new):
            # A mean with weights that depend on all iterations, for example, needs a second pass.
            is_one_pass = not depend_on_each_other(a.p, np.unique(np.concatenate(readers)))
            return (reached, np.unique(np.concatenate(results))) if is_one_pass else none
        reached = np.concatenate([reached, new])
    return none


def _reduction(a: LoopActivations, stacks: list[_Reduced]) -> Intervention:
    """Return the intervention on stacks of one loop, the largest first."""
    p, w, largest = a.p, a.w, stacks[0]
    members = np.zeros(len(p.owner), bool)
    members[np.concatenate([s.copies for s in stacks])] = True
    members |= a.gradients_of(members)
    results = np.unique(np.concatenate([s.results for s in stacks]))
    only = w.only(a.with_slot_mates(members & w.in_arena))
    change = Change(0, -only + np.where(only > 0, int(p.extent[results].sum()), 0))
    estimate, best = w.saved(change), w.saved(Change(0, -only))
    # What is left may be packed worse.
    lower = max(-int(MARGIN * w.peak), int(REDUCE_LOWER * estimate) - int(REPACKED * w.peak))
    if p.tables.platform == "tpu":
        lower -= rescheduled_at_worst(w, lower)
    bounds = lower, with_vmem(w, int(REDUCE_UPPER * best) + w.lost_by(only))
    own = np.array([s.stack for s in stacks])
    result = _shape(a, int(largest.results[p.extent[largest.results].argmax()]))
    text = (
        f"A loop stacks {described(a, own)} over its {a.dimensions[largest.stack, 0]:,} iterations, from which the "
        f"program only computes {result}. "
    )
    # The backward pass stacks gradients.
    if (a.phase[own] == BACKWARD).all() and _are_shaped_like_arguments(a)[own].all():
        text += (
            "These arrays look like gradients of arguments that are not updated: apply jax.lax.stop_gradient to these "
            "arguments."
        )
    else:
        text += (
            "Compute that in the body of the loop: return what is left of each iteration, or add it up in the carry."
        )
    of_loop = np.isin(a.slot, a.slot[own])
    values = np.flatnonzero((members | of_loop) & w.at_peak)
    return of_values(a, "reduce", values, change, bounds, text)


def _are_shaped_like_arguments(a: LoopActivations) -> Mask:
    """Return which values have the dimensions of an argument."""
    code = distinct_rows(*a.dimensions.T)
    found: Mask = np.isin(code, code[np.isin(a.p.category, (PARAMETER, DONATED))[a.p.owner]])
    return found


def described(a: LoopActivations, stacks: Ints) -> str:
    """Return the shape of the first of these stacks, and their number if there are several."""
    shape = _shape(a, int(stacks[0]))
    return shape if len(stacks) == 1 else f"{len(stacks):,} arrays, such as {shape},"


def _shape(a: LoopActivations, value: int) -> str:
    text: str = a.p.value_text("shape", np.array([value]))[0].as_py()
    return text.partition("{")[0]
