"""Compute memory statistics: pure functions from the tables of a dump to tables.

Every function accepts a `Dump`, other `Tables`, or anything that `read` accepts. `REGISTRY` lists the computations that
return one table per dump; `sql` and the tests iterate over it. docs/numbers.md defines the numbers, and `xlamem schema`
describes the columns.

`columns` and `layout` hold arrays, `program` joins them with names, `in_use` and `peaks` sweep over the schedule, and
`charges` lists what is in use at a step. Each of the other modules covers one subject and builds on these.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..dump import DumpLike
from .advice import ADVICE_KINDS, Plan, advise, plan_advice
from .aliasing import donation
from .arenas import fragmentation
from .capacity import Available, Fits, available, device_total, fits
from .charges import live_set
from .explanation import explain, explain_causes
from .grouping import KEYS, attribution, scopes
from .in_use import occupancy
from .inspection import CROSS_CHECKS, Inspection, duplicates, inspect
from .memory_stats import MemoryAnalysis, memory_analysis
from .origin import add_origins
from .out_of_memory import OomCauses, excess_bytes, is_padded, oom_causes
from .overview import OCCUPYING, Overview, spaces_in_use, summarize
from .peaks import Peak, peak
from .removal import savings
from .selection import largest_program, main_first, select_space
from .slots import padding, space_padding
from .tree import ScopeNode, scope_tree
from .uses import idle
from .xla_peak import xla_rule

REGISTRY: dict[str, Callable[[DumpLike], pa.Table]] = {
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
    "advice": advise,
    "explain": explain,
    "explain_causes": explain_causes,
}

__all__ = [
    "ADVICE_KINDS",
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
    "Plan",
    "ScopeNode",
    "add_origins",
    "advise",
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
    "plan_advice",
    "savings",
    "scope_tree",
    "scopes",
    "select_space",
    "space_padding",
    "spaces_in_use",
    "summarize",
    "xla_rule",
]
