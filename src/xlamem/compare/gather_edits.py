"""A rule about arrays that an all-gather makes whole on each device, as after `jax.lax.with_sharding_constraint`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import Mask, flags_of
from .context import Context, Edit
from .gathers import Gather, gathers
from .rows import Shape, parsed, shape_text
from .shape_edits import resharded

MIN_SHARE = 1 / 3
"""Minimum share of the bytes that differ which the gathered arrays must have."""


def gathered(c: Context) -> Iterator[Edit]:
    """Find arrays that an all-gather makes whole on each device on one side only; the other one has only the parts."""
    if len(resharded(c)[0]) or c.devices[0] != c.devices[1]:
        return  # it follows from that
    size = np.abs(c.rows.change) * c.rows.is_in("account", (DEVICE_TOTAL,))
    sides = gathers(c)
    for side, cause in enumerate(("gone", "new")):
        theirs = c.dimensions[1 - side]
        single = [g for g in sides[side] if g.whole.dimensions not in theirs and g.part.dimensions in theirs]
        claims = c.rows.temporary & c.rows.is_in("cause", (cause,)) & _has_shape(c, side, {g.whole for g in single})
        if not claims.any() or size[claims].sum() < MIN_SHARE * size.sum():
            continue
        shape = parsed(c.rows.table[f"shape_{'ab'[side]}"][int((size * claims).argmax())].as_py())
        largest = min(gather for gather in single if gather.whole == shape)
        yield Edit("sharding", _text(largest, is_new=cause == "new"), claims, "names")


def _text(gather: Gather, *, is_new: bool) -> str:
    over = "" if gather.devices == gather.all_devices else f" over {gather.devices:,} of {gather.all_devices:,} devices"
    part, whole = shape_text(gather.part), shape_text(gather.whole)
    if is_new:
        return f"{gather.path} is no longer sharded{over}: {part} -> {whole} on each device"
    return f"{gather.path} is sharded{over} now: {whole} -> {part} on each device"


def _has_shape(c: Context, side: int, shapes: set[Shape]) -> Mask:
    codes, texts = c.rows.text(f"shape_{'ab'[side]}")
    return flags_of(np.fromiter((parsed(text) in shapes for text in texts.to_pylist()), bool, len(texts)), codes)

