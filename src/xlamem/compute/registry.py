"""The computations that return one table per dump."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from ..dump import DumpLike
from .advice import advise
from .aliasing import donation
from .arenas import fragmentation
from .bills import bill
from .charges import live_set
from .explanation import explain, explain_causes
from .grouping import scopes_in_use
from .in_use import occupancy
from .peaks import peak
from .peaks_by_scope import rematerialized, scope_peaks
from .removal import savings
from .slots import padding, space_padding
from .uses import idle

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
"""Functions by the name of their table in `schema.COMPUTED`. `show`, `sql` and the tests iterate over them."""
