"""What the formats for people have in common: names, changes and notes."""

from __future__ import annotations

import os

from ...compare.verdict import signed
from ...formatting import count
from ..result import FAILED, NOT_KNOWN, NOTE, WARNING, CheckResult, Row

BAD = (FAILED, NOT_KNOWN, WARNING)
"""Statuses that need attention, the worst first."""
IN_TABLE = ("new", "gone")
"""Rules whose findings are stated for all programs together."""
N_NAMES = 3


def name_of(row: Row) -> str:
    """Return the name of the module of a program or a finding, or else of its first file."""
    return row["module_name"] or (row["uri"] or "?").rpartition("/")[2]


def change(before: int | None, after: int | None) -> str:
    """Return a change in bytes with its sign; empty if it is not known."""
    return "" if before is None or after is None else signed(after - before)


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
