"""The end of a run: the baselines are written, and the table is shown. With pytest-xdist, the controller does so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ...errors import XlaMemError
from ...formatting import GAP, align, count, shorten, shorten_distinct, wrap
from .. import baseline as baselines
from ..baseline import Baseline
from ..entry import Entry
from ..formats.as_text import INDENT, WORDS
from ..formats.wording import BAD, number_cells
from ..result import FAILED, NOT_KNOWN, WARNING
from .records import Record, Row

NOTES = pytest.StashKey[list[tuple[str, bool]]]()
"""Lines about the baselines, and whether each is an error."""
HEADINGS = ["test", "program", "must fit", "change", "peak", "change", ""]
COLORS = {FAILED: "red", NOT_KNOWN: "red", WARNING: "yellow"}
MIN_PROGRAM, MAX_PROGRAM = 9, 24
"""Characters of the name of a program that are shown at least, and at most."""


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
        reporter.write_sep("=", "device memory (xlamem)")
    if rows:
        width = config.get_terminal_writer().fullwidth
        _table(rows, reporter, width)
        for record in _last(records):
            for text in record["warnings"]:
                _warn(f"warning: {record['nodeid']}: {text}", reporter, width)
    for text, is_error in notes:
        reporter.write_line(text, red=is_error)


def _last(records: Sequence[Record]) -> list[Record]:
    """Return the last record of each test, which may have run again, sorted."""
    return sorted({record["nodeid"]: record for record in records}.values(), key=lambda record: record["nodeid"])


def _warn(text: str, reporter: Any, width: int) -> None:
    first, *more = wrap(text, INDENT, width)
    for line in (first, *(" " * INDENT + line for line in more)):
        reporter.write_line(line, yellow=True)


def _table(rows: Sequence[tuple[str, Row]], reporter: Any, width: int) -> None:
    numbers = align([HEADINGS[2:], *(_cells(row) for _, row in rows)], {len(HEADINGS) - 3})
    names = _names(rows, width - max(map(len, numbers)) - len(GAP))
    first, *lines = (f"{name}{GAP}{cells}".rstrip() for name, cells in zip(names, numbers, strict=True))
    reporter.write_line(first)
    for line, (_, row) in zip(lines, rows, strict=True):
        color = COLORS.get(row["status"])
        reporter.write_line(line, **({color: True} if color else {}))


def _names(rows: Sequence[tuple[str, Row]], width: int) -> list[str]:
    """Return the tests and the programs in columns with their headings, shortened to a width."""
    programs = [shorten(row["program"], min(MAX_PROGRAM, max(MIN_PROGRAM, width // 2))) for _, row in rows]
    room = width - len(GAP) - max(map(len, (HEADINGS[1], *programs)))
    tests = _shortened([nodeid for nodeid, _ in rows], room)
    lines = align([HEADINGS[:2], *map(list, zip(tests, programs, strict=True))], {0, 1})
    return [line.ljust(max(map(len, lines))) for line in lines]


def _shortened(nodeids: list[str], room: int) -> list[str]:
    """Shorten names of tests that are too long: their files first, if the tests stay different."""
    short = [n if len(n) <= room else f"…::{n.partition('::')[2]}" for n in nodeids]
    return shorten_distinct(short if len(set(short)) == len(set(nodeids)) else nodeids, room)


def _cells(row: Row) -> list[str]:
    return [*number_cells(row, is_new=row["is_new"]), WORDS.get(row["status"], "")]
