"""The bytes in use over the schedule, in few numbers that a line of text can show."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import schema
from ..compute.in_use import occupied_in, windows
from ..compute.program import Program

N_COLUMNS = 40
"""Number of parts of a schedule that a curve has."""

Curve = tuple[int, ...]
"""The most bytes in use in each part of the schedule, in the memory spaces of device_total together: the largest is
the peak. Empty without live ranges."""


class Curves(NamedTuple):
    """The curve of a program, and that of its partner in the baseline if its dump is there."""

    now: Curve = ()
    baseline: Curve = ()


def usage_curve(p: Program) -> Curve:
    """Return the most bytes in use in each of `N_COLUMNS` parts of the schedule of a program."""
    if not p.steps:
        return ()
    in_device = np.array([schema.in_device_memory(p.tables.platform, s.color) for s in p.spaces], bool)
    usage = np.zeros(p.steps, np.int64)
    for window in windows(p):
        rows = in_device[window.spaces]
        if rows.any():
            usage += window.expand(occupied_in(p, window)[rows]).sum(0)
    starts = np.arange(N_COLUMNS) * p.steps // N_COLUMNS
    return tuple(np.maximum.reduceat(usage, starts).tolist())
