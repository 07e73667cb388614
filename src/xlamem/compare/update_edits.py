"""A rule that finds donated arguments that only one program updates in place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import Ints, Mask, take
from ..compute.layout import TEMP
from ..parse.arrays import row_of
from .context import Context, Edit, are, largest

MIN_SHARE = 1 / 3
"""Minimum share of the bytes that differ which the arguments must have: XLA reuses the memory of any of them."""


def updates_in_place(c: Context) -> Iterator[Edit]:
    """Find arguments that both programs donate, but of which only one computes the new value in their memory.

    A loop that stacks a cache, which it had carried, computes the new one beside it and copies it in the end.
    """
    i = c.interface
    left, right = i.matched
    both = i.a.donated[left] & i.b.donated[right]
    left, right = left[both], right[both]
    change = np.abs(c.rows.change) * c.rows.is_in("account", (DEVICE_TOTAL,))
    (in_a, beside_a), (in_b, beside_b) = _places(c, 0, left), _places(c, 1, right)
    for inside, beside, how in (
        (in_a, beside_b, "no longer updated in place"), (in_b, beside_a, "updated in place now")
    ):  # fmt: skip
        # What replaces an argument has its size; copies of arguments are new or gone.
        claims = (inside >= 0) & beside & ~c.rows.is_in("cause", ("new", "gone"))
        size = take(c.m.a.unpadded, take(i.a.value[left], inside))
        for p, value in zip((c.m.a, c.m.b), c.rows.value, strict=True):
            claims &= take(p.unpadded, value) == size
        if not claims.any() or change[claims].sum() < MIN_SHARE * change.sum():
            continue
        rows = right[np.unique(inside[claims])]
        names = largest(i.b.names, rows, c.m.b.allocation_size[i.b.allocation[rows]])
        yield Edit("donation", f"{are(len(rows), 'donated argument')} {how}: {names}", claims, "interface")


def _places(c: Context, side: int, arguments: Ints) -> tuple[Ints, Mask]:
    """Return which of these arguments has the memory of each buffer of a side (-1: none), and which are temporaries."""
    p, own = ((c.m.a, c.interface.a), (c.m.b, c.interface.b))[side]
    owner = take(p.owner, c.rows.value[side])
    return np.where(owner >= 0, row_of(own.allocation[arguments], owner), -1), take(p.category, owner) == TEMP
