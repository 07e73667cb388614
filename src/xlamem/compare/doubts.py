"""Say why the numbers of a program are not known to be right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from .. import kernels as pc
from ..compute.capacity import reason_for_doubt
from ..compute.columns import is_in
from ..compute.program import Program
from ..dump import Tables

PROVEN_BY = ("n_diagnostics", "total_bytes")
"""Columns of `modules`: nothing casts doubt on a complete dump without diagnostics that prints a total."""

CONTRADICTIONS = ["range_outside", "live_range_missing", "live_range_unmatched"]
"""Diagnostics of live ranges that belong to another compile, or to another part of the text."""


def doubt_of_numbers(tables: Tables) -> str:
    """Return why no number of a program can be trusted, as a predicate; empty if they can."""
    if reason := reason_for_doubt(tables):
        return f"is not known: {reason}"
    module = tables["modules"].slice(0, 1).to_pylist()[0]
    if not module["complete"]:
        return "is truncated"
    if not module["understood"] and tables.count_rows("live_ranges") and _misses_values(tables):
        return "has lines about values that were not understood"
    if is_in(tables["diagnostics"]["code"], CONTRADICTIONS).any():
        return "has live ranges that contradict its allocations"
    return ""


def are_proven(modules: Mapping[str, Any]) -> pa.ChunkedArray:
    """Return which dumps `doubt_of_numbers` need not look at, from their columns PROVEN_BY: nearly all."""
    is_clean = pc.equal(modules["n_diagnostics"], 0)
    return pc.fill_null(pc.and_kleene(is_clean, pc.is_valid(modules["total_bytes"])), False)


def doubt_of_peak(p: Program) -> str:
    """Return why the peak is not known although other numbers are; empty if it is."""
    return "has no live ranges, so its peak is not known" if p.steps is None else ""


def _misses_values(tables: Tables) -> bool:
    """Return whether a line about values or live ranges was not understood."""
    diagnostics = tables["diagnostics"]
    unknown = is_in(diagnostics["code"], ["unknown_line"])
    return bool((unknown & is_in(diagnostics["section"], ["allocations", "live ranges"])).any())
