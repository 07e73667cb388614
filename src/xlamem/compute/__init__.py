"""Peaks that state their definition: pure functions from a dump's tables to tables.

`REGISTRY` lists the computations that give one table for a dump; the command line, the page and the
converter walk it. Definitions stand in docs/numbers.md and, column by column, in `xlamem schema`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..dump import Dump
from .arenas import fragmentation, padding, savings, space_padding
from .fits import Fits, device_total, fits
from .lifetime import donation, idle
from .occupancy import Peak, live_set, occupancy, peak
from .published import MemoryAnalysis, explain, explain_causes, memory_analysis, xla_rule
from .scopes import attribution, scopes

REGISTRY: dict[str, Callable[[Dump], pa.Table]] = {
    "peaks": lambda dump: peak(dump).spaces,
    "plateaus": lambda dump: peak(dump).plateaus,
    "occupancy": occupancy,
    "live_set": live_set,
    "fragmentation": fragmentation,
    "savings": savings,
    "padding": padding,
    "space_padding": space_padding,
    "donation": donation,
    "idle": idle,
    "explain": explain,
    "explain_causes": explain_causes,
}

__all__ = [
    "REGISTRY",
    "Fits",
    "MemoryAnalysis",
    "Peak",
    "attribution",
    "device_total",
    "donation",
    "explain",
    "explain_causes",
    "fits",
    "fragmentation",
    "idle",
    "live_set",
    "memory_analysis",
    "occupancy",
    "padding",
    "peak",
    "savings",
    "scopes",
    "space_padding",
    "xla_rule",
]
