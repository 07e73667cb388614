"""A rule that finds what loops stack over their iterations, such as `ys` of `jax.lax.scan`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..compute.bills import DEVICE_TOTAL
from ..compute.buffer_names import stacked_over, trip_counts
from ..compute.columns import Ints, Mask, flags_of
from ..compute.op_names import matching
from ..compute.origins import has_opcode
from ..compute.program import Program
from ..formatting import plain_shape
from .context import Context, Edit
from .shape_edits import FOLLOWING_LOOP, MIN_EXCESS

NOT_OWN = rf"\b(?:jvp|transpose)\(|{FOLLOWING_LOOP}"
"""The op_names of loops whose stacks follow from something else: they are those of gradients, or made by XLA."""
MIN_SHARE = 1 / 3
"""Minimum share of the bytes that differ which the arrays must have."""


def stacks(c: Context) -> Iterator[Edit]:
    """Find arrays with a slice for each iteration of a loop that only one side has, although both have the loop."""
    loops = [_own_loops(p) for p in (c.m.a, c.m.b)]
    counts_a, counts_b = (trip_counts(p)[own] for p, own in zip((c.m.a, c.m.b), loops, strict=True))
    size = np.abs(c.rows.change) * c.rows.is_in("account", (DEVICE_TOTAL,))
    gone, new = _stacked(c, 0, "gone", loops[0]), _stacked(c, 1, "new", loops[1])
    for n in np.intersect1d(counts_a[counts_a > 1], counts_b).tolist():
        of_a, of_b = gone == n, new == n
        left, entered = (int(size[claims].sum()) for claims in (of_a, of_b))
        if max(left, entered) < MIN_SHARE * size.sum() or max(left, entered) < MIN_EXCESS * min(left, entered):
            continue
        if left > entered:
            yield Edit("loops", f"a loop no longer stacks {_arrays(c, of_a, size, 'a', n)}", of_a, "buffers")
        elif entered:
            yield Edit("loops", f"a loop now also stacks {_arrays(c, of_b, size, 'b', n)}", of_b, "buffers")


def _own_loops(p: Program) -> Mask:
    """Return the loops that have an op_name and belong to no gradient and no operation."""
    codes, names = p.texts("instructions", "op_name")
    own: Mask = has_opcode(p, np.arange(len(codes)), "^while$") & flags_of(~matching(names, NOT_OWN), codes)
    return own


def _stacked(c: Context, side: int, cause: str, loops: Mask) -> Ints:
    """Return over how many iterations of these loops each contribution is stacked that only this side has, else -1."""
    single = c.rows.is_in("cause", (cause,)) & c.rows.temporary
    return np.where(single, stacked_over((c.m.a, c.m.b)[side], c.rows.value[side], loops), -1)


def _arrays(c: Context, claims: Mask, size: Ints, side: str, n: int) -> str:
    """Return the number of these arrays on the device, and the shape of the largest one."""
    rows = np.flatnonzero(claims & (size > 0))
    shape = plain_shape(c.rows.table[f"shape_{side}"][int(rows[size[rows].argmax()])].as_py())
    over = f"over its {n:,} iterations"
    return f"{len(rows):,} arrays {over}, such as {shape}" if len(rows) > 1 else f"{shape} {over}"
