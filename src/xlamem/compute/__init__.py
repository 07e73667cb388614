"""Peaks that state their definition: pure functions from a dump's tables to tables.

`REGISTRY` lists the computations that give one table for a dump; the command line, the page and the
converter walk it. Definitions stand in docs/numbers.md and, column by column, in `xlamem schema`.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..dump import Dump
from .arenas import fragmentation, padding, savings, space_padding
from .fits import Available, Fits, available, device_total, fits
from .inspection import CROSS_CHECKS, Inspection, duplicates, inspect
from .lifetime import donation, idle
from .occupancy import Peak, live_set, occupancy, peak
from .origin import add_origins
from .out_of_memory import OomCauses, excess_bytes, is_padded, oom_causes
from .overview import OCCUPYING, Overview, spaces_in_use, summarize
from .published import MemoryAnalysis, explain, explain_causes, memory_analysis, xla_rule
from .scopes import KEYS, attribution, scopes
from .selection import largest_program, main_first, select_space
from .tree import ScopeNode, scope_tree

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
    "CROSS_CHECKS",
    "KEYS",
    "OCCUPYING",
    "REGISTRY",
    "Available",
    "Fits",
    "Inspection",
    "MemoryAnalysis",
    "OomCauses",
    "Overview",
    "Peak",
    "ScopeNode",
    "add_origins",
    "attribution",
    "available",
    "device_total",
    "donation",
    "duplicates",
    "excess_bytes",
    "explain",
    "explain_causes",
    "fits",
    "fragmentation",
    "idle",
    "inspect",
    "is_padded",
    "largest_program",
    "live_set",
    "main_first",
    "memory_analysis",
    "occupancy",
    "oom_causes",
    "padding",
    "peak",
    "savings",
    "scope_tree",
    "scopes",
    "select_space",
    "space_padding",
    "spaces_in_use",
    "summarize",
    "xla_rule",
]
