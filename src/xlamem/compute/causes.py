"""Explain why other numbers of a program differ from its peak: bytes by cause, for several spaces or dumps at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .bills import space_steps, unused_bytes
from .charges import charge_values, live_values
from .columns import Ints, ints
from .layout import THREAD_LOCAL, Layout

UNUSED = "temp bytes not in use at the peak"
THREAD_LOCAL_CAUSE = "thread-local"
POINTERS = "pointers of tuples instead of their elements"
DISAGREE = "the text and its tables disagree"


class Cause(NamedTuple):
    """One cause of a difference."""

    cause: str
    bytes: Ints
    """Bytes of each group."""


class SpaceCause(NamedTuple):
    """One cause of the difference between a number of the spaces and their peaks."""

    name: str
    """A key of schema.DEFINITIONS."""
    cause: str
    bytes: Ints
    """Bytes of each space."""


def space_causes(p: Layout, spaces: pa.Table) -> Iterator[SpaceCause]:
    """Yield the causes of the differences between the numbers of each space and its peak, from the table ``peaks``."""
    peak, reserved = ints(spaces, "peak"), ints(spaces, "reserved")
    yield SpaceCause("live", "bytes in use that no live value covers", ints(spaces, "live_peak") - peak)
    yield SpaceCause("half_open", "ranges that only touch", ints(spaces, "half_open_peak") - peak)
    yield SpaceCause("fixed", "temporaries at the peak", p.fixed_bytes() - peak)
    for cause, size in unused_bytes(p, np.arange(len(peak)), space_steps(p)).items():
        yield SpaceCause("reserved", cause, size)
    yield SpaceCause("allocated", UNUSED, reserved - peak)
    yield SpaceCause("allocated", THREAD_LOCAL_CAUSE, ints(spaces, "allocated") - reserved)


def total_causes(spaces: pa.Table, group: Ints, peaks: Ints) -> Iterator[Cause]:
    """Yield the causes of the differences between XLA's printed totals and the combined peaks of their groups.

    The remainder is DISAGREE.
    """
    reserved, allocated = np.zeros((2, len(peaks)), np.int64)
    np.add.at(reserved, group, ints(spaces, "reserved"))
    np.add.at(allocated, group, ints(spaces, "allocated"))
    yield Cause(UNUSED, reserved - peaks)
    yield Cause(THREAD_LOCAL_CAUSE, allocated - reserved)


def xla_causes(p: Layout, group: Ints, peaks: Ints, steps: Ints) -> Iterator[Cause]:
    """Yield the causes of the differences between XLA's peaks at these steps (-1: none) and those of their groups.

    The remainder is POINTERS if the peak list has no shape indices, so that each value is weighed with the shape of its
    entire instruction, and DISAGREE otherwise.
    """
    step = np.minimum(steps, (p.steps or 1) - 1)
    rows = live_values(p, step[group])
    charged, _ = charge_values(p, rows)

    def add_up(weights: Ints, groups: Ints) -> Ints:
        totals = np.zeros(len(steps), np.int64)
        np.add.at(totals, groups, weights)
        return totals

    row_group = group[p.space[rows]]
    live_bytes = add_up(charged, row_group)
    in_use = add_up(np.where(p.in_temp[rows], charged, 0), row_group) + add_up(p.fixed_bytes(), group)
    assigned, unpadded = add_up(p.size[rows], row_group), add_up(np.maximum(p.unpadded[rows], 0), row_group)
    local = _live_thread_local(p, group, step)
    yield Cause("another step (late removal, weights of whole tuples)", in_use - peaks)
    yield Cause("parameters, constants and outputs only while live", live_bytes - in_use)
    yield Cause("aliases counted each", assigned - live_bytes)
    yield Cause("padding left out", unpadded - assigned)
    yield Cause(THREAD_LOCAL_CAUSE, add_up(np.maximum(p.unpadded[local], 0), group[p.space[local]]))


def _live_thread_local(p: Layout, group: Ints, step: Ints) -> Ints:
    """Return the thread-local values that are live at the step of their group."""
    start, end = p.ranges
    group_step = step[group[p.space]] if len(p.space) else np.empty(0, np.int64)
    is_live = (start >= 0) & (start <= group_step) & (group_step <= end)
    return np.flatnonzero((p.value_category == THREAD_LOCAL) & is_live)
