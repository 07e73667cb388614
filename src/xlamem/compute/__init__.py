"""Compute memory statistics: pure functions from the tables of a dump to tables.

Every function accepts a `Dump`, other `Tables`, or anything that `read` accepts. `REGISTRY` lists the computations that
return one table per dump; `sql` and the tests iterate over it. docs/numbers.md defines the numbers, and `xlamem schema`
describes the columns.

`columns` and `layout` hold arrays, `program` joins them with names, `in_use` and `peaks` sweep over the schedule, and
`charges` lists what is in use at a step. Each of the other modules covers one subject and builds on these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    "enough_alone",
    "excess_bytes",
    "explain",
    "explain_causes",
    "fits",
    "fold_scopes",
    "folded_rest",
    "folded_scopes",
    "fragmentation",
    "have_functions_only",
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
    "program_size",
    "rematerialized",
    "repack",
    "rows_of_space",
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

if TYPE_CHECKING:
    from .advice import ADVICE_KINDS, Plan, advise, enough_alone, plan_advice
    from .aliasing import donation
    from .arenas import fragmentation
    from .bills import bill
    from .capacity import Available, Fits, available, fits
    from .charges import live_set
    from .explanation import explain, explain_causes
    from .folding import folded_rest, like_buffers, n_until_small, named
    from .grouping import KEYS, attribution, folded_scopes, have_functions_only, scopes_in_use
    from .in_use import occupancy
    from .inspection import CROSS_CHECKS, Inspection, duplicates, inspect
    from .memory_stats import MemoryAnalysis, memory_analysis
    from .one_buffer import Buffer, buffer
    from .op_names import scopes
    from .out_of_memory import OomCauses, excess_bytes, is_padded, oom_causes
    from .overview import OCCUPYING, Overview, spaces_in_use, summarize
    from .packing import Packing, repack
    from .peaks import Peak, peak
    from .peaks_by_scope import rematerialized, scope_peaks
    from .registry import REGISTRY
    from .removal import savings
    from .requirement import device_total
    from .selection import largest_program, main_first, program_size, rows_of_space, select_space
    from .slots import padding, space_padding
    from .tree import FoldedScope, ScopeNode, fold_scopes, scope_tree
    from .uses import idle
    from .xla_peak import xla_rule
else:
    # Names are imported on first use: a command needs few of these modules, and some of them are slow to import.
    _NAMES = {
        "advice": "ADVICE_KINDS Plan advise enough_alone plan_advice",
        "aliasing": "donation",
        "arenas": "fragmentation",
        "bills": "bill",
        "capacity": "Available Fits available fits",
        "charges": "live_set",
        "explanation": "explain explain_causes",
        "folding": "folded_rest like_buffers n_until_small named",
        "grouping": "KEYS attribution folded_scopes have_functions_only scopes_in_use",
        "in_use": "occupancy",
        "inspection": "CROSS_CHECKS Inspection duplicates inspect",
        "memory_stats": "MemoryAnalysis memory_analysis",
        "one_buffer": "Buffer buffer",
        "op_names": "scopes",
        "out_of_memory": "OomCauses excess_bytes is_padded oom_causes",
        "overview": "OCCUPYING Overview spaces_in_use summarize",
        "packing": "Packing repack",
        "peaks": "Peak peak",
        "peaks_by_scope": "rematerialized scope_peaks",
        "registry": "REGISTRY",
        "removal": "savings",
        "requirement": "device_total",
        "selection": "largest_program main_first program_size rows_of_space select_space",
        "slots": "padding space_padding",
        "tree": "FoldedScope ScopeNode fold_scopes scope_tree",
        "uses": "idle",
        "xla_peak": "xla_rule",
    }
    _MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
