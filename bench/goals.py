"""Performance goals, compared with the rows of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

import real
from tabular import Row

TITLE = "goals"
_FLAT = "six instructions a byte, in no part of the scan more than a fifth of them"
_TWICE = "repeated text is compared with the text before, which reads it twice"
_SERIAL = "outline, names, cross-checks and tables are made by one thread, a quarter of the time"
_APART = "two threads look up the names of their own spans, and share one address space"
_IMPORTS = "numpy, pyarrow and click take 0.15 s to import"
_FIELDS = "the CSV has the fields only, without the text between them"
_START = "start-up is most of XProf's time; the goal was set with 56 MB of text"
REASONS: dict[str, str] = {
    "dense, all tables: CPU / wc -l": _FLAT,
    "wide, all tables: CPU / wc -l": _TWICE,
    "dense: Python re / xlamem": _FLAT,
    "record-dense dumps: xlamem / best typed CSV read, GB/s": _FIELDS,
    "record-dense dumps: best typed CSV read / xlamem, CPU": _FIELDS,
    "XProf / xlamem: CPU": _START,
    "XProf / xlamem: memory": _START,
    "CPU per byte: small dumps / one large dump": "3,000 calls of Python per dump, spread thin",
    "record-dense TPU dumps: CPU / wc -l": _FLAT,
    "record-dense TPU dumps: CPU / wc -l, first read": "page faults of new memory, in dumps of 10 MB",
    "wide dumps: CPU / wc -l": _TWICE,
    "wide dumps: CPU / wc -l, first read": _TWICE,
    "two threads, 20 MB and more: speedup": _SERIAL,
    "two threads, 20 MB and more: speedup of the first read": _SERIAL,
    "two threads, 20 MB and more: CPU / one thread": _APART,
    "two threads, 20 MB and more: CPU / one thread, first read": _APART,
    "xlamem peak, a small dump: CPU ms": _IMPORTS,
    "xprof-rs / xlamem peak --json: CPU": _IMPORTS,
    "fleet: CPU ms a stored dump": "start of the command, and Python calls per dump, spread thin",
    "fleet: re and pyarrow / xlamem, CPU": "the script makes no cross-checks and no derived tables",
    "fleet, nothing new: CPU ms a dump": "0.25 s to start; the rest are names and states of 100,000 files",
    "to Parquet, dense: re and pyarrow / xlamem, wall": "start of the workers; the script makes no cross-checks",
    "one huge dump: speedup with two workers": "start and identification (2 of 20 s); threads share one address space",
}
"""Why a goal is missed, by goal; printed beside it."""


@dataclass(frozen=True)
class Goal:
    """A limit for one column of the rows that match these patterns. The worst row counts."""

    what: str
    sign: str
    limit: float
    titles: tuple[str, ...]
    label: str
    head: str
    least_mb: float = 0
    """Rows of smaller inputs do not count."""

    def cells(self, rows: Iterable[Row]) -> dict[str, str]:
        """The cells of this goal; empty if no row was measured."""
        found = {_number(row.cells[self.head]): row for row in rows if self._counts(row)}
        if not found:
            return {}
        value = max(found) if self.sign == "<=" else min(found)
        met = value <= self.limit if self.sign == "<=" else value >= self.limit
        worst = found[value]
        return {
            "goal": f"{self.sign} {self.limit:g}",
            "found": worst.cells[self.head],
            "": "met" if met else "missed",
            "worst of": f"{worst.title.partition(':')[0]}; {worst.label}" if len(found) > 1 else "",
            "reason": "" if met else REASONS.get(self.what, ""),
        }

    def _counts(self, row: Row) -> bool:
        return (
            bool(row.cells.get(self.head))
            and any(fnmatchcase(row.title, title) for title in self.titles)
            and fnmatchcase(row.label, self.label)
            and _number(row.cells.get("MB", "inf")) >= self.least_mb
        )


def _number(text: str) -> float:
    return float(text.replace(",", ""))


DENSE = ("dense", "sharded", *(name for name in real.PROGRAMS if name not in real.WIDE))
TPU = tuple(name for name in DENSE if not name.startswith("cpu"))
WIDE = ("wide", *real.WIDE)
FORGED_DENSE, FORGED_WIDE, FORGED_SMALL = ("dense: *",), ("wide: *",), ("small: *",)


def _each(start: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{start}{name}: *" for name in names)


def _touched() -> Iterable[Goal]:
    """Goals for every order in which tables are touched."""
    for kind, names, warm, first in (("record-dense TPU", TPU, 8, 12), ("wide", WIDE, 1.5, 1.5)):
        titles = _each("tables touched, ", names)
        yield Goal(f"{kind} dumps: CPU / wc -l", "<=", warm, titles, "*", "x wc -l")
        yield Goal(f"{kind} dumps: CPU / wc -l, first read", "<=", first, titles, "*", "first x wc")
    titles = _each("tables touched, ", (*DENSE, *WIDE))
    two = "two threads, 20 MB and more"
    yield Goal(f"{two}: speedup", ">=", 1.7, titles, "*", "2 threads, x faster", 20)
    yield Goal(f"{two}: speedup of the first read", ">=", 1.7, titles, "*", "first, x faster", 20)
    yield Goal(f"{two}: CPU / one thread", "<=", 1.1, titles, "*", "x CPU", 20)
    yield Goal(f"{two}: CPU / one thread, first read", "<=", 1.1, titles, "*", "first, x CPU", 20)


EVERY, PEAK = "xlamem, all tables", "xlamem, peak tables"
XPROF, WRITER = "XProf, from proto", "Python re and pyarrow's writer"
SEVERAL, FLEET = ("to Parquet, * several: *",), ("to Parquet, * fleet: *",)
HUGE, COMMANDS, PROFILER = ("one huge dump *",), ("commands: *",), ("XProf, *",)
TYPED = _each("typed reads of the same tables, ", DENSE)
GOALS = [
    *_touched(),
    Goal("dense, all tables: CPU / wc -l", "<=", 6, FORGED_DENSE, EVERY, "x wc -l"),
    Goal("wide, all tables: CPU / wc -l", "<=", 1.3, FORGED_WIDE, EVERY, "x wc -l"),
    Goal("dense: peak tables / all tables", "<=", 0.5, FORGED_DENSE, PEAK, "x xlamem"),
    Goal("wide: peak tables / all tables", "<=", 0.5, FORGED_WIDE, PEAK, "x xlamem"),
    Goal("small: peak tables / all tables", "<=", 0.5, FORGED_SMALL, PEAK, "x xlamem"),
    Goal("dense: MB of memory above 1.1 x tables", "<=", 50, FORGED_DENSE, EVERY, "MB excess"),
    Goal("record-dense dumps: xlamem / best typed CSV read, GB/s", ">=", 2, TYPED, "csv, *", "GB/s, xlamem / it"),
    Goal("record-dense dumps: best typed CSV read / xlamem, CPU", ">=", 2, TYPED, "csv, *", "x xlamem"),
    Goal("dense: Python re / xlamem", ">=", 25, FORGED_DENSE, "Python re, into Arrow", "x xlamem"),
    Goal("XProf / xlamem: CPU", ">=", 50, PROFILER, XPROF, "x CPU"),
    Goal("XProf / xlamem: memory", ">=", 10, PROFILER, XPROF, "x memory"),
    Goal("xlamem --version, --help: CPU ms", "<=", 60, COMMANDS, "xlamem --*", "CPU ms"),
    Goal("xlamem peak, a small dump: CPU ms", "<=", 200, COMMANDS, "xlamem peak, *", "CPU ms"),
    Goal("xprof-rs / xlamem peak --json: CPU", ">=", 1, COMMANDS, "xprof-rs *", "x xlamem"),
    Goal("to Parquet, dense: re and pyarrow / xlamem, wall", ">=", 12, SEVERAL, WRITER, "x wall"),
    Goal("fleet: CPU ms a stored dump", "<=", 1, FLEET, "xlamem convert", "CPU ms a stored dump"),
    Goal("fleet: re and pyarrow / xlamem, CPU", ">=", 4, FLEET, WRITER, "x CPU"),
    Goal("fleet, nothing new: CPU ms a dump", "<=", 0.06, ("nothing new: *",), "*", "CPU ms a dump"),
    Goal("one huge dump: speedup with two workers", ">=", 1.7, HUGE, "2 workers", "x faster"),
    Goal("one huge dump: MB of memory", "<=", 1074, HUGE, "2 workers", "MB memory"),
    Goal("CPU per byte: small dumps / one large dump", "<=", 5, ("many small dumps",), f"{EVERY}: *", "x"),
]


def judged(rows: Iterable[Row]) -> list[Row]:
    """Return a row for each goal that this run measured."""
    rows = list(rows)
    return [Row(TITLE, goal.what, cells) for goal in GOALS if (cells := goal.cells(rows))]
