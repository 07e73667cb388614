"""What the formats for people have in common: names, changes and notes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ...compare.programs import relative_folders
from ...compare.verdict import signed
from ...formatting import count, size
from ..result import FAILED, NOT_KNOWN, NOTE, WARNING, CheckResult, Row

BAD = (FAILED, NOT_KNOWN, WARNING)
"""Statuses that need attention, the worst first."""
IN_TABLE = ("new", "gone")
"""Rules whose findings are stated for all programs together."""
N_NAMES = 3


def name_of(row: Row) -> str:
    """Return the name of the module of a program or a finding, or else of its first file."""
    return row["module_name"] or (row["uri"] or "?").rpartition("/")[2]


def with_distinct_names(result: CheckResult) -> CheckResult:
    """Return the result with the folder, and where needed the number, in the names of programs that share a name."""
    rows = result.programs.to_pylist()
    names = [name_of(row) for row in rows]
    folders = relative_folders([(row["uri"] or "").rpartition("/")[0] for row in rows])
    folders = [f"{folder}/" if folder else "" for folder in folders]
    numbers = ["" if row["module_id"] is None else f"{row['module_id']:04d}." for row in rows]
    for prefixes in (folders, map("".join, zip(folders, numbers, strict=True))):
        n = Counter(names)
        longer = [prefix + name_of(row) for prefix, row in zip(prefixes, rows, strict=True)]
        names = [name if n[name] == 1 else long for name, long in zip(names, longer, strict=True)]
    of_program = {row["program"]: name for row, name in zip(rows, names, strict=True) if name != name_of(row)}
    programs, findings = (_renamed(table, of_program) for table in (result.programs, result.findings))
    return replace(result, programs=programs, findings=findings) if of_program else result


def _renamed(table: pa.Table, names: Mapping[int | None, str]) -> pa.Table:
    at = table.column_names.index("module_name")
    rows = table.select(("program", "module_name")).to_pylist()
    texts = [names.get(row["program"], row["module_name"]) for row in rows]
    return table.set_column(at, table.field(at), pa.array(texts, pa.string()).cast(table.field(at).type))


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
