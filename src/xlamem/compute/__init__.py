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
from .bills import bill
from .buffer import Buffer, buffer
from .capacity import Available, Fits, available, device_total, fits
from .charges import live_set
from .explanation import explain, explain_causes
from .folding import folded_rest, like_buffers, n_until_small, named
from .grouping import KEYS, attribution, folded_scopes, scopes_in_use
from .in_use import occupancy
from .inspection import CROSS_CHECKS, Inspection, duplicates, inspect
from .memory_stats import MemoryAnalysis, memory_analysis
from .op_names import scopes
from .out_of_memory import OomCauses, excess_bytes, is_padded, oom_causes
from .overview import OCCUPYING, Overview, spaces_in_use, summarize
from .packing import Packing, repack
from .peaks import Peak, peak
from .removal import savings
from .scope_peaks import rematerialized, scope_peaks
from .selection import largest_program, main_first, select_space
from .slots import padding, space_padding
from .tree import FoldedScope, ScopeNode, fold_scopes, scope_tree
from .uses import idle
from .xla_peak import xla_rule

REGISTRY: dict[str, Callable[[DumpLike], pa.Table]] = {
    "peaks": lambda dump: peak(dump).spaces,
    "plateaus": lambda dump: peak(dump).plateaus,
    "occupancy": occupancy,
    "live_set": live_set,
    "scopes": scopes_in_use,
    "bills": bill,
    "scope_peaks": scope_peaks,
    "rematerialized": rematerialized,
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
    "Buffer",
    "Fits",
    "FoldedScope",
    "Inspection",
    "MemoryAnalysis",
    "OomCauses",
    "Overview",
    "Packing",
    "Peak",
    "Plan",
    "ScopeNode",
    "advise",
    "attribution",
    "available",
    "bill",
    "buffer",
    "device_total",
    "donation",
    "duplicates",
    "excess_bytes",
    "explain",
    "explain_causes",
    "fits",
    "fold_scopes",
    "folded_rest",
    "folded_scopes",
    "fragmentation",
    "idle",
    "inspect",
    "is_padded",
    "largest_program",
    "like_buffers",
    "live_set",
    "main_first",
    "memory_analysis",
    "n_until_small",
    "named",
    "occupancy",
    "oom_causes",
    "padding",
    "peak",
    "plan_advice",
    "rematerialized",
    "repack",
    "savings",
    "scope_peaks",
    "scope_tree",
    "scopes",
    "scopes_in_use",
    "select_space",
    "space_padding",
    "spaces_in_use",
    "summarize",
    "xla_rule",
]
