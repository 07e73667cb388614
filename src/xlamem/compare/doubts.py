"""Say why the numbers of a program are not known to be right."""

from __future__ import annotations

from ..compute.capacity import reason_for_doubt
from ..compute.columns import is_in
from ..compute.program import Program


def doubt_of_numbers(p: Program) -> str:
    """Return why no number of a program can be trusted, as a predicate; empty if they can."""
    if reason := reason_for_doubt(p.tables):
        return f"is not known: {reason}"
    module = p.tables["modules"].slice(0, 1).to_pylist()[0]
    if not module["complete"]:
        return "is truncated"
    if not module["understood"] and p.steps is not None and _misses_values(p):
        return "has lines about values that were not understood"
    return ""


def doubt_of_peak(p: Program) -> str:
    """Return why the peak is not known although other numbers are; empty if it is."""
    return "has no live ranges, so its peak is not known" if p.steps is None else ""


def _misses_values(p: Program) -> bool:
    """Return whether a line about values or live ranges was not understood."""
    diagnostics = p.tables["diagnostics"]
    unknown = is_in(diagnostics["code"], ["unknown_line"])
    return bool((unknown & is_in(diagnostics["section"], ["allocations", "live ranges"])).any())
