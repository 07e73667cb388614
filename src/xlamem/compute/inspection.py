"""Summarize the contents of a dump and the results of its cross-checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..dump import Dump
from ..input.find import Source

Row = dict[str, Any]
Result = Literal["passed", "failed", "skipped"]

CROSS_CHECKS = (
    "total_differs",
    "records_differ",
    "value_outside",
    "ids_descend",
    "schedule_gap",
    "steps_differ",
    "range_outside",
    "live_range_missing",
    "live_range_unmatched",
    "tree_differs",
    "report_differs",
)
"""Diagnostic codes of the cross-checks. `schema.CODES` describes them."""


@dataclass(frozen=True)
class Inspection:
    """The contents of a dump as plain data."""

    source: Source
    module: Row
    files: list[Row]
    diagnostics: list[Row]
    allocated: int | None
    """Printed total, or else the sum of the allocations."""
    checks: dict[str, Result]
    """Result of each cross-check, by code. A check is skipped if the dump lacks the data that it compares."""

    @property
    def failed_checks(self) -> list[str]:
        return [code for code, result in self.checks.items() if result == "failed"]

    @property
    def fully_read(self) -> bool:
        """Whether the dump is complete and has no diagnostics other than failed cross-checks."""
        return bool(self.module["complete"]) and all(d["code"] in CROSS_CHECKS for d in self.diagnostics)

    @property
    def text_bytes(self) -> int:
        """Total size of the members after decompression."""
        return sum(f["bytes"] for f in self.files)


def inspect(dump: Dump) -> Inspection:
    """Read an entire dump, run its cross-checks and return its contents."""
    diagnostics = dump.verify().to_pylist()
    (module,) = dump.modules.to_pylist()
    allocated = module["total_bytes"]
    if allocated is None and module["n_allocations"]:
        allocated = sum(dump.allocations["size"].to_pylist())
    checks = _results(module, {d["code"] for d in diagnostics})
    return Inspection(dump.source, module, dump.files.to_pylist(), diagnostics, allocated, checks)


def _results(module: Row, codes: set[str]) -> dict[str, Result]:
    possible = _possible_checks(module)
    return {c: "failed" if c in codes else "passed" if c in possible else "skipped" for c in CROSS_CHECKS}


def _possible_checks(module: Row) -> set[str]:
    """Return the cross-checks for which the dump contains both sides of the comparison."""
    features = set(module["features"].split(","))
    allocations, values = bool(module["n_allocations"]), bool(module["n_values"])
    live = module["schedule_length"] is not None
    conditions = {
        "total_differs": allocations and module["total_bytes"] is not None,
        "records_differ": values and bool(features & {"values_inline", "values_split"}),
        "value_outside": values,
        "ids_descend": values,
        "schedule_gap": live,
        "steps_differ": live,
        "range_outside": live,
        "live_range_missing": live and values,
        "live_range_unmatched": live and values,
        "tree_differs": "tree" in features,
        "report_differs": allocations and bool(features & {"report_a", "report_b"}),
    }
    return {code for code, condition in conditions.items() if condition}


def duplicates(inspections: Iterable[Inspection]) -> list[list[Inspection]]:
    """Return groups of dumps with identical content; those that were read without ``hashes=True`` are left out."""
    groups: dict[str, list[Inspection]] = {}
    for inspection in inspections:
        if (content := inspection.module["content_hash"]) is not None:
            groups.setdefault(content, []).append(inspection)
    return [group for group in groups.values() if len(group) > 1]
