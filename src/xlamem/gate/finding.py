"""A finding, and the program that it is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..compare.programs import ProgramEntry
from ..formatting import NO_BREAK, size
from .config import Budget
from .curves import Curves
from .entry import Entry
from .stacks import Line, Stack


class Finding(NamedTuple):
    """A row of `findings` without what follows from its program."""

    rule: str
    status: str
    message: str
    number: str | None = None
    value: int | None = None
    limit: int | None = None
    baseline: int | None = None
    limit_text: str | None = None
    budget: int | None = None
    source_file: str | None = None
    source_line: int | None = None


class Change(NamedTuple):
    """A row of `contributors`. Sizes are in bytes."""

    cause: str
    name: str
    category: str | None
    n_baseline: int | None
    n: int
    bytes_baseline: int | None
    bytes: int
    change: int
    shape: str | None
    source_file: str | None
    source_line: int | None


@dataclass
class Checked:
    """A program, and what was found about it."""

    number: int
    described: ProgramEntry
    entry: Entry | None = None
    """None if the dump cannot be read."""
    problem: str = ""
    """Why none of its numbers is known, as a predicate; empty if they are."""
    known_total: int | None = None
    """What must fit, in bytes, if every allocation is known; also if the dump is incomplete otherwise."""
    findings: list[Finding] = field(default_factory=list)
    base: Entry | None = None
    """The program in the baseline that it is compared with."""
    how: str | None = None
    """How that was found: a key of `schema.PAIRED`."""
    why: str = ""
    """What changed since the baseline, or what takes most at the peak."""
    changes: Sequence[Change] = ()
    source: tuple[str | None, int | None] = (None, None)
    """File and line of what contributes most."""
    curves: Curves = field(default_factory=Curves)
    """Empty if everything passed."""
    stacks: dict[Line, Stack] = field(default_factory=dict)
    """The callers of the source lines of what did not pass."""

    @property
    def doubt(self) -> str:
        """Why a number is not known, as a predicate."""
        if self.problem or self.entry is None:
            return self.problem
        return "has no live ranges, so its peak is not known" if self.entry.peak is None else ""


def of_budget(budget: Budget, finding: Finding) -> Finding:
    """Return the finding as that of a budget."""
    return finding._replace(budget=budget.number)


def amount(n: int) -> str:
    """Return a size whose number and unit stay on one line."""
    return size(n).replace(" ", NO_BREAK)
