"""Numbers with a stated definition: pure functions from the tables of a dump to tables.

Every function takes a `Dump`, other `Tables`, or anything that `read` takes. `REGISTRY` lists the computations that
return one table per dump; `sql` and the tests walk it. docs/numbers.md defines the numbers, `xlamem schema` the
columns.

`columns` and `layout` hold arrays, `program` joins them with names, `in_use` and `peaks` sweep over the schedule,
`charges` lists what is in use at a step. The other modules have one subject each and build on these.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..dump import DumpLike
from .aliasing import donation
from .arenas import fragmentation
from .capacity import Available, Fits, available, device_total, fits
from .charges import live_set
from .explanation import explain, explain_causes
from .grouping import KEYS, attribution, scopes
from .in_use import occupancy
from .memory_stats import MemoryAnalysis, memory_analysis
from .peaks import Peak, peak
from .removal import savings
from .slots import padding, space_padding
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
    "explain": explain,
    "explain_causes": explain_causes,
}

__all__ = [
    "KEYS",
    "REGISTRY",
    "Available",
    "Fits",
    "MemoryAnalysis",
    "Peak",
    "attribution",
    "available",
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
