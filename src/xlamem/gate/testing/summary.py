"""The end of a run: the baselines are written, and the table is shown. With pytest-xdist, the controller does so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ...compare.verdict import signed
from ...errors import XlaMemError
from ...formatting import align, count, shorten, shorten_distinct, size
from .. import baseline as baselines
from ..baseline import Baseline
from ..entry import Entry
from ..formats.as_text import WORDS
from ..result import FAILED, NOT_KNOWN, WARNING
from .records import Record, Row

NOTES = pytest.StashKey[list[tuple[str, bool]]]()
"""Lines about the baselines, and whether each is an error."""
HEADINGS = ["test", "program", "must fit", "change", "peak", "change", ""]
BAD = (FAILED, NOT_KNOWN, WARNING)
COLORS = {FAILED: "red", NOT_KNOWN: "red", WARNING: "yellow"}
MAX_TEST, MAX_PROGRAM = 44, 24


# -- baselines -----------------------------------------------------------------------------------


def finish(records: Sequence[Record], session: pytest.Session) -> None:
    """Write the baselines that change. A file that cannot be written fails the run."""
    prune = session.config.getoption("xlamem_prune")
    notes = session.config.stash.setdefault(NOTES, [])
    if prune and session.exitstatus != pytest.ExitCode.OK:
        prune = False
        notes.append(("not every test passed: nothing was removed from the baselines", False))
    for file in sorted({record["file"] for record in records}):
        try:
            text = _write(session.config.rootpath / file, [r for r in records if r["file"] == file], prune)
            notes += [(f"wrote {file}: {text}", False)] if text else []
        except XlaMemError as e:
            notes.append((str(e), True))
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _write(path: Path, records: Sequence[Record], prune: bool) -> str:
    """Write the baseline of a file of tests if it changes; return what changed."""
    changed = {r["test"]: baselines.loads(r["baseline"], path).entries for r in records if r["baseline"] is not None}
    old = baselines.load(path).entries if path.exists() else ()
    gone = {e.test for e in old} - {r["test"] for r in records} if prune else set()
    if not (changed or gone):
        return ""
    kept = [e for e in old if e.test not in changed and e.test not in gone]
    baselines.write(path, Baseline.of([*kept, *_all(changed.values())]))
    removed = [f"{count(len(gone), 'test')} removed"] if gone else []
    return ", ".join([count(len(changed), "test"), *removed])


def _all(groups: Iterable[Sequence[Entry]]) -> list[Entry]:
    return [entry for group in groups for entry in group]


# -- the table -----------------------------------------------------------------------------------


def summarize(records: Sequence[Record], reporter: Any, config: pytest.Config) -> None:
    """Show the programs, and what was written."""
    shown = config.getoption("xlamem_table") or ("all" if reporter.verbosity >= 0 else "failed")
    rows = [(r["nodeid"], row) for r in _last(records) for row in r["rows"] if shown == "all" or row["status"] in BAD]
    notes = config.stash.get(NOTES, [])
    if shown == "none":
        rows = []
    if rows or notes:
        reporter.section("device memory (xlamem)")
    if rows:
        _table(rows, reporter)
        for record in _last(records):
            for text in record["warnings"]:
                reporter.write_line(f"warning: {record['nodeid']}: {text}", yellow=True)
    for text, is_error in notes:
        reporter.write_line(text, red=is_error)


def _last(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each test, which may have run again, sorted."""
    return sorted({record["nodeid"]: record for record in records}.values(), key=lambda record: record["nodeid"])


def _table(rows: Sequence[tuple[str, Row]], reporter: Any) -> None:
    names = shorten_distinct([nodeid for nodeid, _ in rows], MAX_TEST)
    cells = [_cells(name, row) for name, (_, row) in zip(names, rows, strict=True)]
    first, *lines = align([HEADINGS, *cells], {0, 1, len(HEADINGS) - 1})
    reporter.write_line(first)
    for line, (_, row) in zip(lines, rows, strict=True):
        color = COLORS.get(row["status"])
        reporter.write_line(line, **({color: True} if color else {}))


def _cells(name: str, row: Row) -> list[str]:
    numbers = [
        cell
        for n, base in (
            (row["device_total"], row["device_total_baseline"]),
            (row["peak"], row["peak_baseline"]),
        )
        for cell in ("?" if n is None else size(n), "new" if row["is_new"] else _change(base, n))
    ]
    return [name, shorten(row["program"], MAX_PROGRAM), *numbers, WORDS.get(row["status"], "")]


def _change(before: int | None, after: int | None) -> str:
    return "" if before is None or after is None else signed(after - before)
