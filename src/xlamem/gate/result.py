"""The result of `xlamem.check`: findings, programs, and what contributes to their changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..formatting import count
from .config import Config
from .curves import Curves
from .program_names import distinct_names, renamed
from .stacks import Line, Stack

if TYPE_CHECKING:
    from ..display import View

Status = Literal["passed", "note", "warning", "not known", "failed"]
STATUSES = tuple(schema.STATUSES)
PASSED, NOTE, WARNING, NOT_KNOWN, FAILED = STATUSES

EXIT_CODES = {PASSED: 0, FAILED: 1, NOT_KNOWN: 3}
"""Exit codes of `xlamem check` by the status of the result. A failure counts more than a verdict that is not known."""

Row = dict[str, Any]


def worst(statuses: Any) -> str:
    """Return the worst of some statuses."""
    return max(statuses, key=STATUSES.index, default=PASSED)


@dataclass(frozen=True, repr=False)
class CheckResult:
    """What `xlamem.check` found. Sizes are in bytes."""

    findings: pa.Table
    """Table ``findings`` of `xlamem.schema.CHECKED`, in the order of the programs, the worst of a program first."""
    programs: pa.Table
    """Table ``checked_programs``, in order of compilation."""
    contributors: pa.Table
    """Table ``contributors``: what changed since the baseline, in programs that changed beyond the floor."""
    config: Config = field(default=Config(), compare=False)
    baseline: str | None = None
    """Where the baseline is; None if there was nothing to compare with."""
    written: str | None = None
    """The baseline file that was written; None if none was."""
    curves: Mapping[int, Curves] = field(default_factory=dict, compare=False)
    """Bytes in use over the schedule by program, for those that did not pass."""
    stacks: Mapping[int, Mapping[Line, Stack]] = field(default_factory=dict, compare=False)
    """The callers of the source lines of findings that did not pass, by program."""

    @cached_property
    def status(self) -> Literal["passed", "not known", "failed"]:
        """``failed`` if a check failed, otherwise ``not known`` if a verdict is not known, otherwise ``passed``."""
        found = worst(pc.cast(self.findings["status"], pa.string()).to_pylist())
        return found if found in (NOT_KNOWN, FAILED) else PASSED  # type: ignore[return-value]

    @property
    def passed(self) -> bool:
        """Whether every check passed; false if a verdict is not known."""
        return self.status == PASSED

    @property
    def exit_code(self) -> int:
        """Exit code of `xlamem check`: 0 passed, 1 failed, 3 not known."""
        return EXIT_CODES[self.status]

    def rows(self, *statuses: str) -> list[Row]:
        """Return the findings with one of these statuses; all without arguments."""
        rows: list[Row] = self.findings.to_pylist()
        return [row for row in rows if not statuses or row["status"] in statuses]

    def of_program(self, program: int) -> list[Row]:
        """Return the findings of a program."""
        return [row for row in self.rows() if row["program"] == program]

    def with_distinct_names(self) -> CheckResult:
        """Return the result with longer names of programs that share a name."""
        names = distinct_names(self.programs.to_pylist())
        if not names:
            return self
        return replace(self, programs=renamed(self.programs, names), findings=renamed(self.findings, names))

    @property
    def summary(self) -> str:
        """The result in a sentence."""
        statuses = pc.cast(self.programs["status"], pa.string()).to_pylist()
        n = {status: statuses.count(status) for status in (FAILED, NOT_KNOWN, WARNING)}
        parts = [f"{n[status]:,} {status}" for status in (FAILED, NOT_KNOWN) if n[status]]
        parts.append(f"{len(statuses) - n[FAILED] - n[NOT_KNOWN]:,} passed")
        warned = f" ({n[WARNING]:,} with warnings)" if n[WARNING] else ""
        return f"{self.status}: {count(len(statuses), 'program')} checked, {', '.join(parts)}{warned}"

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import Grid, View  # not needed to check

        rows = [
            [row["module_name"] or "", row["rule"], row["status"], row["message"]]
            for row in self.with_distinct_names().rows(FAILED, NOT_KNOWN, WARNING)
        ]
        title = f"xlamem.CheckResult: {self.summary}"
        return View(title, (Grid(["program", "rule", "status", "message"], rows, frozenset()),) if rows else ())
