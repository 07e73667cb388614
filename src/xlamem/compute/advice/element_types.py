"""Interventions on the element types of activations, with bounds of what each saves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..columns import Ints, Mask, encoded
from ..program import distinct_rows
from .activations import BACKWARD, FORWARD, NO_PHASE
from .bounds import moved_at_worst, of_values, with_vmem
from .intervention import MIN_SHARE, NARROWER, Intervention, joined_by_and, rescheduled_at_worst
from .layers import LayerActivations
from .promotions import Promotion, has_type, promotions
from .what_if import Change

DTYPE_UPPER = 1.47
"""Multiple of the estimate that is the upper bound; docs/advice.md has the measurements."""
PROMOTED_LOWER, PROMOTED_UPPER = 0.75, 1.3
"""Such multiples where single operations make arrays f32."""
MOSTLY = 0.75
"""If the named operations save this share of what all f32 temporaries would, the others have no row."""


def narrower_types(a: LayerActivations) -> Iterator[Intervention]:
    """Compute in an element type of half the size. CPUs compute in float32 anyway."""
    w, is_cpu = a.w, a.p.tables.platform == "cpu"
    codes, names = encoded(a.p.tables["values"]["element_type"])
    candidates = w.in_arena & ((a.phase != NO_PHASE) | (not (a.phase == FORWARD).any()))
    for code, name in enumerate(names.to_pylist()):
        members = candidates & (codes == code) & ~(a.is_fft & (name == "f32"))
        if name not in NARROWER or not members[w.at_peak].any() or (is_cpu and name == "f32"):
            continue
        promoted = list(_promoted(a, members)) if name == "f32" else []
        yield from promoted
        if sum(w.saved(i.change) for i in promoted) < MOSTLY * w.saved(_halved(a, members)):
            yield _narrower(a, name, members)


def _halved(a: LayerActivations, members: Mask) -> Change:
    return Change(0, -(a.w.only(a.with_slot_mates(members)) // 2))


def _promoted(a: LayerActivations, f32: Mask) -> Iterator[Intervention]:
    """Keep bfloat16 where an operation turns it into f32: what is computed from it is f32, and its gradient."""
    w = a.w
    if not has_type(a, "bf16").any() or a.p.extent[f32 & w.at_peak].sum() < MIN_SHARE * w.total:
        return
    dimensions = distinct_rows(*np.sort(a.dimensions, axis=1).T)
    for promotion in promotions(a):
        members = promotion.values & f32
        if w.saved(_halved(a, members)) >= MIN_SHARE * w.total:
            alike = np.isin(dimensions, dimensions[members & ~a.is_like_state])
            yield _in_bfloat16(a, promotion, members, f32, alike)


def _in_bfloat16(a: LayerActivations, promotion: Promotion, members: Mask, f32: Mask, alike: Mask) -> Intervention:
    """Convert what an operation turns into f32. The compiler may convert back what a loss or a norm computes.

    At best, its gradients are smaller, or all arrays that are f32 if all that follows is.
    """
    w, change = a.w, _halved(a, members)
    values, is_model = np.flatnonzero(members & w.at_peak), promotion.graph.is_model(promotion.group)
    best = _halved(a, f32 if is_model else members | (f32 & alike & (a.phase >= BACKWARD)))
    # XLA may keep the halves of what it rematerializes now, since they fit.
    kept = min(w.saved(change), w.saved(change._replace(levels=change.levels + a.kept_otherwise // 2)))
    lower = int(PROMOTED_LOWER * (kept - moved_at_worst(w, has_type(a, "f32"))))
    lower -= rescheduled_at_worst(w, lower)
    if not is_model or lower <= 0 or a.p.tables.platform != "tpu":
        lower = _lower_if_converted_back(a, values)
    upper = int(PROMOTED_UPPER * with_vmem(w, w.saved(best), values)) + w.lost_by(-best.levels)
    places, others = promotion.graph.described(promotion.group)
    text = (
        f"{joined_by_and(places)} {'turns' if len(places) == 1 else 'turn'} bfloat16 into f32, and these buffers are "
        "computed from it. If bfloat16 is precise enough, leave out a conversion to f32 there, or convert the other "
        "operand, as in x + y.astype(x.dtype), or the result."
    )
    if not is_model or a.p.tables.platform != "tpu":
        text += " The compiler may convert them back."
    if others:
        text += f" Other f32 operands may do so again: {joined_by_and(others)}."
    bounds = lower, _with_rematerialized(a, min(upper, w.arena_bytes), members)
    return of_values(a, "dtype", values, change, bounds, text)


def _lower_if_converted_back(a: LayerActivations, values: Ints) -> int:
    """Return a lower bound if the compiler keeps the largest of these values in both types."""
    return -max(a.w.peak // 20, int(a.p.extent[values].max(initial=0)))


def _narrower(a: LayerActivations, name: str, members: Mask) -> Intervention:
    change = _halved(a, members)
    estimate = a.w.saved(change)
    values = np.flatnonzero(members & a.w.at_peak)
    upper = _with_rematerialized(a, int(DTYPE_UPPER * with_vmem(a.w, estimate, values)), members)
    bounds = _lower_if_converted_back(a, values), upper if estimate >= MIN_SHARE * a.w.total else 0
    text = f"Compute in {NARROWER[name]}: these buffers are {name}. The compiler may convert them back."
    gradients, extent = (a.phase[values] == BACKWARD) & a.is_like_state[values], a.p.extent[values]
    if 2 * int(extent[gradients].sum()) > int(extent.sum()):
        text += " Most are gradients of arguments, and have their type: convert these before jax.grad differentiates."
    return of_values(a, "dtype", values, change, bounds, text)


def _with_rematerialized(a: LayerActivations, upper: int, members: Mask) -> int:
    """Return an upper bound: where XLA rematerializes, it may choose another buffer of those at the peak."""
    w, extent = a.w, a.p.extent
    if int(extent[a.rematerialized].sum()) < MIN_SHARE * w.total:
        return upper
    return min(upper + int(extent[w.at_peak & ~members].max(initial=0)), w.arena_bytes)
