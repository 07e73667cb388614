"""What the formats for people have in common: names, changes and notes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from ...compare.verdict import signed
from ...formatting import count, size
from ..result import FAILED, NOT_KNOWN, NOTE, WARNING, CheckResult, Row

BAD = (FAILED, NOT_KNOWN, WARNING)
"""Statuses that need attention, the worst first."""
IN_TABLE = ("new", "gone")
"""Rules whose findings are stated for all programs together."""
N_NAMES = 3


def change(before: int | None, after: int | None) -> str:
    """Return a change in bytes with its sign; empty if it is not known."""
    return "" if before is None or after is None else signed(after - before)


def number_cells(row: Mapping[str, Any], *, is_new: bool) -> list[str]:
    """Return `device_total` and `peak` of a program, each followed by its change since the baseline."""
    return [
        cell
        for number in ("device_total", "peak")
        for cell in (size(row[number]), "new" if is_new else change(row[f"{number}_baseline"], row[number]))
    ]


def is_new(findings: Iterable[Row]) -> bool:
    """Return whether the program with these findings is not in the baseline."""
    return any(row["rule"] == "new" for row in findings)


def of_budget(row: Row) -> str:
    """Return which budget a finding is about, to be appended to its rule; empty if it is about none."""
    return f" (budget {row['budget']})" if row["budget"] is not None else ""


def findings_by_program(result: CheckResult) -> dict[int | None, list[Row]]:
    """Return the findings of each program, the worst first; those of programs that are gone under None."""
    found: dict[int | None, list[Row]] = {}
    for row in result.rows():
        found.setdefault(row["program"], []).append(row)
    return found


def notes(result: CheckResult) -> list[str]:
    """Return sentences about new and gone programs, and about the baseline file."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in result.rows(NOTE):
        if row["rule"] in IN_TABLE:
            names.setdefault((row["rule"], row["message"]), []).append(row["module_name"] or "?")
    texts = []
    for (rule, message), modules in names.items():
        distinct = list(dict.fromkeys(modules))
        more = ", …" if len(distinct) > N_NAMES else ""
        texts.append(f"{rule}: {count(len(modules), 'program')} ({', '.join(distinct[:N_NAMES])}{more}): {message}")
    return [*texts, f"wrote {from_here(result.written)}"] if result.written else texts


def from_here(path: str) -> str:
    """Return the path of a file relative to the current directory, if it is in it."""
    here = os.getcwd()
    full = os.path.abspath(path)
    return os.path.relpath(full, here) if os.path.commonpath([full, here]) == here else path
