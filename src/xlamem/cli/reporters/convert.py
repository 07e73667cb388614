"""Report the progress and the result of `xlamem convert`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...formatting import count, exact_size, size
from ...warehouse import Converted, Status
from .. import console

Progress = Callable[[Status], None]

MAX_FAILURES, MAX_NAMES = 10, 5
"""Maximum number of unreadable dumps, and of names of other dumps, that are listed."""
LOG_INTERVAL = 60.0
"""Seconds between lines of progress if stderr is not a terminal."""
BAR_WIDTH = 20


# -- results -------------------------------------------------------------------------------------


def report_failures(result: Converted) -> None:
    """Write the first unreadable dumps to stderr."""
    for fault in result.failed[:MAX_FAILURES]:
        console.error(_describe(fault), console.UNREADABLE)
    if (more := len(result.failed) - MAX_FAILURES) > 0:
        console.note(f"{count(more, 'more', 'more')} unreadable: see the table quarantine")


def _describe(fault: Any) -> str:
    location = fault.uri
    if fault.line is not None:
        location += f":{fault.line}"
    if fault.offset is not None:
        location += f" (byte {fault.offset:,})"
    excerpt = f", found {fault.excerpt!r}" if fault.excerpt else ""
    text = fault.error if fault.uri in fault.error else f"{location}: {fault.error}{excerpt}"
    retried = f" (failed {count(fault.attempts, 'time')}; the next run retries it)" if fault.kind == "system" else ""
    return f"{text}{retried}"


def report_incomplete(result: Converted) -> None:
    """Write notes about what fails a run with --strict to stderr."""
    if result.empty:
        console.note(f"no dump in {_first(result.empty)}")
    if result.cut:
        console.note(f"truncated, converted up to the point of truncation: {_first(result.cut)}")


def report_notes(result: Converted) -> None:
    """Write other notes that are not in the summary to stderr."""
    if result.recent:
        console.note(f"{count(result.recent, 'dump')} modified less than --min-age ago, left for the next run")
    if result.changed:
        changed = count(len(result.changed), "dump")
        console.note(f"{changed} changed while being read, left for the next run: {_first(result.changed)}")
    if result.known:
        known = f"{count(result.known, 'dump')} in quarantine since an earlier run"
        console.note(f"{known}: --retry-quarantine retries {'it' if result.known == 1 else 'them'}")
    if result.stopped:
        console.note("stopped after more failures than --max-failures: repeat the command to resume")


def _first(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES:,} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


def summary(result: Converted, to: str) -> str:
    """Return one line about what was written."""
    written = f"{count(result.dumps, 'dump')} to {to}: {count(result.rows, 'row')} in {count(result.files, 'file')}"
    parts = [f"{written}, {exact_size(result.bytes)}"]
    if result.already_stored:
        parts.append(f"{result.already_stored:,} already stored")
    if result.occurrences > result.dumps:
        parts.append(count(result.occurrences, "occurrence"))
    if result.duplicates:
        parts.append(count(result.duplicates, "duplicate"))
    if result.unreadable:
        parts.append(f"{result.unreadable:,} unreadable")
    if result.dumps and result.seconds:
        rate = size(round(result.text_bytes / result.seconds))
        parts.append(f"{result.seconds:.1f} s ({result.dumps / result.seconds:,.0f} dumps/s, {rate}/s)")
    return "; ".join(parts)


# -- progress ------------------------------------------------------------------------------------


@contextmanager
def progress(*, hidden: bool) -> Iterator[Progress | None]:
    """Show a progress bar if stderr is a terminal, or else write one line per minute."""
    if hidden:
        yield None
    elif sys.stderr.isatty():
        with _bar() as update:
            yield update
    else:
        yield _Log()


class _Log:
    """Writes a line of progress at regular intervals."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, status: Status) -> None:
        if time.monotonic() - self.last >= LOG_INTERVAL:
            self.last = time.monotonic()
            console.note(_line(status))


def _line(s: Status) -> str:
    parts = [f"{s.phase}: {s.dumps:,} of {s.of_dumps:,} dumps"]
    if s.of_bytes:
        parts.append(f"{size(s.bytes)} of {size(s.of_bytes)}")
    if s.seconds and s.bytes:
        rate = s.bytes / s.seconds
        parts += [f"{size(round(rate))}/s", f"{(s.of_bytes - s.bytes) / rate / 60:.0f} min left"]
    if s.failed:
        parts.append(f"{s.failed:,} unreadable")
    return ", ".join(parts)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}"), BarColumn(BAR_WIDTH), TextColumn("{task.fields[counts]}")
    with Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("find", total=None, counts="")

        def update(s: Status) -> None:
            done, total = (s.bytes, s.of_bytes) if s.of_bytes else (s.dumps, s.of_dumps)
            bar.update(task, description=s.phase, completed=done, total=total or None, counts=_counts(s))

        yield update


def _counts(s: Status) -> str:
    parts = [f"{s.dumps:,}/{s.of_dumps:,}"]
    if s.of_bytes:
        parts.append(f"{size(s.bytes)} of {size(s.of_bytes)}")
    if s.bytes and s.seconds:
        parts.append(f"{size(round(s.bytes / s.seconds))}/s")
    if s.failed:
        parts.append(f"{s.failed:,} failed")
    return " ".join(parts)
