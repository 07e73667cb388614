"""Performance goals, compared with the rows of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tabular import Row

TITLE = "goals"


@dataclass(frozen=True)
class Goal:
    """The cell to look up (beginning of the title, label, column), and the condition that it must meet."""

    what: str
    goal: str
    title: str
    label: str
    head: str
    met: Callable[[float], bool]


def _most(limit: float) -> Callable[[float], bool]:
    return lambda found: found <= limit


def _least(limit: float) -> Callable[[float], bool]:
    return lambda found: found >= limit


EVERY, THREE = "xlamem, all tables", "xlamem, peak tables"
CSV, RE, XPROF = "lines: pyarrow.csv", "Python re, into Arrow", "XProf, from proto"
TOUCHED, ONE_BY_ONE, FASTER = "tables touched,", "in schema order", "2 threads, x faster"
WRITER = "Python re and pyarrow's writer"
SEVERAL, FLEET = "to Parquet, 2 processes, several", "to Parquet, 2 processes, fleet"
SMALL = f"{EVERY}: CPU per byte, small dumps / one large dump"
GOALS = [
    Goal("dense, all tables: CPU / wc -l", "<= 6", "dense:", EVERY, "x wc -l", _most(6)),
    Goal("real dump, all tables: first read / wc -l", "<= 12", "real:", EVERY, "first x wc", _most(12)),
    Goal("wide, all tables: CPU / wc -l", "<= 1.3", "wide:", EVERY, "x wc -l", _most(1.3)),
    Goal("dense: peak tables / all tables", "<= 0.5", "dense:", THREE, "x xlamem", _most(0.5)),
    Goal("wide: peak tables / all tables", "<= 0.5", "wide:", THREE, "x xlamem", _most(0.5)),
    Goal("small: peak tables / all tables", "<= 0.5", "small:", THREE, "x xlamem", _most(0.5)),
    Goal("dense: pyarrow.csv / xlamem", ">= 5", "dense:", CSV, "x xlamem", _least(5)),
    Goal("dense: pyarrow.csv / xlamem, first read", ">= 5", "dense:", CSV, "first x xlamem", _least(5)),
    Goal("dense: pyarrow.csv tuned / xlamem", ">= 5", "dense:", CSV + ", tuned", "x xlamem", _least(5)),
    Goal("dense: Python re / xlamem", ">= 25", "dense:", RE, "x xlamem", _least(25)),
    Goal("XProf / xlamem: CPU", ">= 50", "XProf", XPROF, "x CPU", _least(50)),
    Goal("XProf / xlamem: memory", ">= 10", "XProf", XPROF, "x memory", _least(10)),
    Goal("dense: speedup with two threads", ">= 1.7", f"{TOUCHED} dense:", ONE_BY_ONE, FASTER, _least(1.7)),
    Goal("wide: speedup with two threads", ">= 1.7", f"{TOUCHED} wide:", ONE_BY_ONE, FASTER, _least(1.7)),
    Goal("dense: MB of memory above 1.1 x tables", "<= 50", "dense:", EVERY, "MB excess", _most(50)),
    Goal("to Parquet, dense: re and pyarrow / xlamem, wall", ">= 12", SEVERAL, WRITER, "x wall", _least(12)),
    Goal("fleet: CPU ms a stored dump", "<= 1", FLEET, "xlamem convert", "CPU ms a stored dump", _most(1)),
    Goal("fleet: re and pyarrow / xlamem, CPU", ">= 4", FLEET, WRITER, "x CPU", _least(4)),
    Goal("fleet, nothing new: CPU ms a dump", "<= 0.06", FLEET, "the same, nothing new", "CPU ms a dump", _most(0.06)),
    Goal("one huge dump: speedup with two workers", ">= 1.7", "one huge", "2 workers", "x faster", _least(1.7)),
    Goal("one huge dump: MB of memory", "<= 1,074", "one huge", "2 workers", "MB memory", _most(1074)),
    Goal("CPU per byte: small dumps / one large dump", "<= 5", "many small", SMALL, "x", _most(5)),
]


def judged(rows: Iterable[Row]) -> list[Row]:
    """Return a row for each goal that this run measured."""
    rows = list(rows)
    found = []
    for goal in GOALS:
        for row in rows:
            if row.title.startswith(goal.title) and _named(row.label, goal.label) and row.cells.get(goal.head):
                value = row.cells[goal.head]
                verdict = "met" if goal.met(float(value.replace(",", ""))) else "missed"
                found.append(Row(TITLE, goal.what, {"goal": goal.goal, "found": value, "": verdict}))
                break
    return found


def _named(label: str, wanted: str) -> bool:
    return label == wanted or label.startswith(f"{wanted}:")
