"""Rows of advice on activations, and what may move to the VMEM of a TPU if they shrink."""

from __future__ import annotations

import numpy as np

from ..columns import Ints, Mask
from ..layout import LIVE_OUT, TEMP, TEMP_IN_OUTPUT
from .activations import Activations
from .intervention import Confidence, Intervention, Kind, common_scope, largest_first
from .what_if import Change, WhatIf

VMEM, VMEM_SHARE = 64 << 20, 0.4
"""Bytes, and the share of an estimate, that may move from a TPU's main memory to its VMEM.

Where half of what is in VMEM, or of the buffers that shrink, is more than this share, that may move.
"""
VMEM_COLOR = 1


def with_vmem(w: WhatIf, estimate: int, halved: Ints | None = None) -> int:
    """Return an upper bound for activations that shrink: on a TPU, some of the others may then move to VMEM.

    So may what is left of the values that become half as large.
    """
    if w.p.tables.platform != "tpu":
        return min(estimate, w.arena_bytes)
    is_vmem = np.array([space.color == VMEM_COLOR for space in w.p.spaces], bool)[w.p.space_of_allocation]
    room = int(w.p.allocation_size[is_vmem & (w.p.category == TEMP)].sum()) // 2
    halves = (w.p.extent[[] if halved is None else halved] + 1) // 2
    room = max(room, int(halves[halves <= VMEM].sum()))
    return min(estimate + min(VMEM, max(room, int(VMEM_SHARE * estimate))), w.arena_bytes)


def moved_at_worst(w: WhatIf, halved: Mask) -> int:
    """Return the bytes of temporaries that are in outputs at the peak, with half of those that shrink by half.

    The compiler may find another place for them if it packs smaller buffers.
    """
    p = w.p
    moved = int(w.moved_out_of(w.in_memory & (p.category == LIVE_OUT))[w.peak_step])
    is_live = halved & (w.start <= w.peak_step) & (w.end >= w.peak_step)
    in_outputs = np.flatnonzero(is_live & (p.categories_of(np.arange(len(p.owner))) == TEMP_IN_OUTPUT))
    return max(moved - int(p.extent[in_outputs].sum()) // 2, moved // 2)


def of_values(
    a: Activations,
    kind: Kind,
    values: Ints,
    change: Change,
    bounds: tuple[int, int],
    text: str,
    *,
    scope: str | None = None,
    names: tuple[str, ...] = (),
) -> Intervention:
    lower, upper = bounds
    order = largest_first(a.w, values)
    if scope is None:
        # The row has the shape and the source line of the first buffer, which must be one of the scope.
        scope, members = common_scope(a.p, order)
        order = np.concatenate([order[members], order[~members]])
    confidence: Confidence = "likely" if lower > 0 else "try"
    return Intervention(kind, order, change, lower, upper, confidence, text, scope=scope, names=names)


def largest_divisor(size: int, most: int) -> int:
    """Return the largest number up to `most` that divides a size."""
    return max(n for n in range(1, most + 1) if size % n == 0)
