"""Describe one dump, or list several. Does not use rich, because importing it would take most of the time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ... import schema
from ...compute import Inspection, duplicates
from ...compute.wording import count_problems, describe, location, problems
from ...formatting import align, count, exact_size, number, shorten, shorten_distinct, size, visible, wrap, wrap_items
from ...input.find import Source
from ...schema import PROBLEMS
from ..console import bold, dim, red, width, write, write_field
from ..inputs import path_of
from .names import short_names

Row = dict[str, Any]

MAX_DIAGNOSTICS = 10
"""Maximum number of diagnostics that are shown."""

LABEL_WIDTH = 16
INDENT = LABEL_WIDTH + 2


def full_name(dump: Inspection) -> str:
    return visible(path_of(dump.source))


# -- one dump ------------------------------------------------------------------------------------


def write_one(dump: Inspection) -> None:
    """Describe the contents of a dump."""
    columns = width()
    for problem in _problem_lines(dump, columns):
        write(red(problem))
    write(bold(shorten(visible(dump.source.name), columns)))
    for label, lines in _fields(dump, columns).items():
        write_field(label, lines, LABEL_WIDTH)
    _write_diagnostics(dump, columns)


def _fields(dump: Inspection, columns: int | None) -> dict[str, list[str]]:
    """Return label and lines of each field. Fields without lines are omitted."""
    module = dump.module
    features = [schema.FEATURES.get(code, code) for code in filter(None, module["features"].split(","))]
    counts = [f"{t} {module[f'n_{t}']:,}" for t in schema.TABLES if module.get(f"n_{t}") and t != "diagnostics"]
    return {
        "path": [shorten(visible(dump.source.location), columns and columns - INDENT)],
        "module": [_module(module)],
        "platform": [" ".join(filter(None, [module["platform"] or "unknown", module["target"]]))],
        "changelist": [] if module["changelist"] is None else [str(module["changelist"])],
        "written": [] if module["timestamp_us"] is None else [_date(module["timestamp_us"])],
        "files": _files(dump),
        "features": [line for feature in features for line in wrap(feature, INDENT, columns)] or ["none"],
        "rows": wrap_items(counts, INDENT, columns) or ["none"],
        "allocated": _allocated(dump),
        "XLA's peak": _printed_peak(module),
        "cross-checks": _checks(dump),
        "state": [_state(dump)],
    }


def _module(module: Row) -> str:
    number = "" if module["module_id"] is None else f"number {module['module_id']}"
    return ", ".join(filter(None, [visible(module["module_name"] or ""), number])) or "unknown"


def _date(microseconds: int) -> str:
    try:
        date = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    except OverflowError:  # after the year 9999: file names have any number
        return f"{microseconds:,} microseconds after 1970"
    return f"{date:%Y-%m-%d %H:%M:%S} UTC"


def _files(dump: Inspection) -> list[str]:
    rows = [
        [f["role"], size(f["bytes"]), f"{f['bytes']:,}", "" if f["complete"] else "truncated"] for f in dump.files
    ]
    return [f"{count(len(rows), 'file')}, {exact_size(dump.text_bytes)}", *(align(rows, {0, 3}) if rows else [])]


def _allocated(dump: Inspection) -> list[str]:
    if dump.allocated is None:
        return []
    origin = "as printed by XLA" if dump.module["total_bytes"] is not None else "the sum of the allocations"
    return [f"{exact_size(dump.allocated)}, {origin},", "all memory spaces together"]


def _printed_peak(module: Row) -> list[str]:
    if module["printed_peak_bytes"] is None:
        return []
    step = f"at step {module['printed_peak_time']:,} of {number(module['schedule_length'])}"
    return [f"{exact_size(module['printed_peak_bytes'])}, as printed,", step]


def _checks(dump: Inspection) -> list[str]:
    """Return how many cross-checks passed, failed or were skipped, and describe the failures."""
    results = list(dump.checks.values())
    counts = [(n, result) for result in ("passed", "failed", "skipped") if (n := results.count(result))]
    summary = ", ".join(red(f"{n} failed") if result == "failed" else f"{n} {result}" for n, result in counts)
    return [summary, *(red(f"{code}: {schema.CODES[code]}") for code in dump.failed_checks)]


def _state(dump: Inspection) -> str:
    states = [column if dump.module[column] else red(problem) for column, problem in PROBLEMS.items()]
    n = len(dump.diagnostics)
    return f"{', '.join(states)}; {count(n, 'diagnostic') if n else 'no diagnostics'}"


# -- diagnostics ---------------------------------------------------------------------------------


def _problem_lines(dump: Inspection, columns: int | None) -> list[str]:
    return [line for text in describe(dump.source, dump.module, dump.diagnostics) for line in wrap(text, 0, columns)]


def _write_diagnostics(dump: Inspection, columns: int | None) -> None:
    for d in dump.diagnostics[:MAX_DIAGNOSTICS]:
        _write_diagnostic(d, dump.source, columns)
    if (more := len(dump.diagnostics) - MAX_DIAGNOSTICS) > 0:
        write(f"  … and {count(more, 'more', 'more')}: --json lists all")


def _write_diagnostic(d: Row, source: Source, columns: int | None) -> None:
    write(f"  {shorten(visible(location(d, source)), columns and columns - 2)}")
    write(f"    {red(d['code']) if d['severity'] == 'error' else d['code']} in {d['section']}")
    for line in wrap(f"expected {d['wanted']}", 4, columns):
        write(f"    {line}")
    if d["excerpt"]:
        write(f"    {dim(shorten('found    ' + visible(d['excerpt']), columns and columns - 4))}")


# -- several dumps -------------------------------------------------------------------------------


def write_list(dumps: list[Inspection], n_failed: int) -> None:
    """Write a line for each dump, largest first, a summary, and which dumps have the same content."""
    columns = width()
    dumps = sorted(dumps, key=lambda d: -(d.allocated or 0))
    states = [_short_state(d) for d in dumps]
    with_states = any(state != "ok" for state in states)
    head, *rows = align([_headings(with_states), *(_cells(d, with_states) for d in dumps)], {2, 3, 4})
    indent = head.rindex("dump")
    write(bold(head))
    names = shorten_distinct(short_names([d.source for d in dumps]), columns and columns - indent)
    for row, name, state in zip(rows, names, states, strict=True):
        line = row.ljust(indent) + name
        write(line if state == "ok" else red(line))
    write()
    for line in wrap(", ".join(_summary(dumps, n_failed)), 0, columns):
        write(line)
    for group in duplicates(dumps):
        write("same content:")
        for dump in group:
            write(f"  {full_name(dump)}")


def _headings(with_states: bool) -> list[str]:
    return ["allocated", "XLA's peak", "platform", *(["state"] if with_states else []), "dump"]


def _cells(dump: Inspection, with_states: bool) -> list[str]:
    sizes = [size(n) if n is not None else "-" for n in (dump.allocated, dump.module["printed_peak_bytes"])]
    return [*sizes, dump.module["platform"] or "?", *([_short_state(dump)] if with_states else []), ""]


def _short_state(dump: Inspection) -> str:
    """Return the first problem of a dump, else the number of its diagnostics, else "ok"."""
    n = len(dump.diagnostics)
    return next(iter(problems(dump.module)), count(n, "diagnostic") if n else "ok")


def _summary(dumps: list[Inspection], n_failed: int) -> list[str]:
    text = f"{exact_size(sum(d.text_bytes for d in dumps))} of text"
    parts = [count(len(dumps), "dump"), text, *count_problems(d.module for d in dumps)]
    return [*parts, f"{n_failed} unreadable"] if n_failed else parts
