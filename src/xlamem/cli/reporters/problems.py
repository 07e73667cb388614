"""Describe the problems of a dump: truncated, not understood, not consistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from os.path import basename
from typing import Any

from ... import schema
from ...dump import Dump
from ...formatting import count, visible
from ...input.find import Source
from ...schema import PROBLEMS

Row = dict[str, Any]

CAUSES: dict[str, set[str]] = {
    "complete": {"truncated"},
    "understood": schema.NOT_UNDERSTOOD,
    "consistent": set(schema.NOT_CONSISTENT),
}
"""Diagnostic codes that make each of these columns false."""


def problems(module: Row) -> list[str]:
    """Return the problems of a dump."""
    return [problem for column, problem in PROBLEMS.items() if not module[column]]


def count_problems(modules: Iterable[Row]) -> list[str]:
    """Return how many dumps have each problem."""
    counts = Counter(problem for module in modules for problem in problems(module))
    return [f"{counts[problem]:,} {problem}" for problem in PROBLEMS.values() if counts[problem]]


def describe_problems(dump: Dump) -> list[str]:
    """Return a sentence for each problem of a dump, with the location of its first diagnostic."""
    (module,) = dump.modules.to_pylist()
    return describe(dump.source, module, dump.diagnostics.to_pylist() if problems(module) else [])


def describe(source: Source, module: Row, diagnostics: list[Row]) -> list[str]:
    """Return the same sentences, given rows that were already read."""
    return [_describe(column, diagnostics, source) for column in PROBLEMS if not module[column]]


def _describe(column: str, diagnostics: list[Row], source: Source) -> str:
    causes = [d for d in diagnostics if d["code"] in CAUSES[column]]
    causes = causes or [d for d in diagnostics if d["severity"] == "error"]
    first = causes[0]
    more = f" and {count(len(causes) - 1, 'more', 'more')}" if len(causes) > 1 else ""
    offset = "" if first["offset"] is None else f" (byte {first['offset']:,})"
    return visible(f"{PROBLEMS[column]}: {location(first, source)}{offset}{more}: {_explain(column, first)}")


def _explain(column: str, diagnostic: Row) -> str:
    if column == "complete":
        return f"expected {diagnostic['wanted']}; the numbers cover only what is present"
    if column == "understood":
        return str(diagnostic["excerpt"] or diagnostic["wanted"])
    return schema.CODES[diagnostic["code"]]


def location(diagnostic: Row, source: Source) -> str:
    """Return file and line of a diagnostic, without the part of the file name that all files of the dump share."""
    name = basename(diagnostic["file"] or "") or "dump"
    suffix = name.removeprefix(source.name)
    line = f":{diagnostic['line']}" if diagnostic["line"] is not None else ""
    return f"…{suffix}{line}" if suffix.startswith("-") else f"{name}{line}"
