"""What `convert` reports: its progress and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .task import Failure


@dataclass(frozen=True)
class Status:
    """The progress of a run."""

    phase: str
    """find, identify, convert."""
    dumps: int
    """Dumps identified or, in the last phase, committed."""
    of_dumps: int
    """All dumps of the phase."""
    bytes: int
    """Text of the dumps that were committed."""
    of_bytes: int
    """Text of all dumps to be converted; 0 while unknown."""
    failed: int
    seconds: float
    """Since the phase began."""


Progress = Callable[[Status], None]


@dataclass(frozen=True)
class Converted:
    """The result of `convert`."""

    run_id: str
    found: int
    """Dumps found, including duplicates."""
    dumps: int
    """Dumps written by this run, including truncated ones."""
    stored: int
    """Dumps that this version had already stored."""
    duplicates: int
    """Dumps that have the same content and name as another one."""
    files: int
    """Parquet files written."""
    bytes: int
    """Size of these files."""
    rows: int
    """Rows in these files."""
    text_bytes: int
    """Text of the dumps written."""
    failed: list[Failure] = field(default_factory=list)
    """Dumps that could not be read, as in the table `quarantine`."""
    known: int = 0
    """Dumps that were not retried because this version had already quarantined them for their content."""
    changed: list[str] = field(default_factory=list)
    """Names of dumps that were modified during the run. The next run converts them."""
    cut: list[str] = field(default_factory=list)
    """Names of truncated dumps, which were converted as far as they go."""
    stopped: bool = False
    """Whether the run ended early because more than `max_failures` dumps could not be read."""
    seconds: float = 0.0

    @property
    def unreadable(self) -> int:
        """Dumps of the input that could not be read, by this run or an earlier one."""
        return len(self.failed) + self.known + len(self.changed)


class Interrupted(KeyboardInterrupt):
    """Raised by `convert` after Ctrl-C. `result` describes what was committed."""

    def __init__(self, result: Converted) -> None:
        super().__init__()
        self.result = result
