"""The progress and the result of `convert`, and the progress of `migrate`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .task import Failure


@dataclass(frozen=True)
class Status:
    """The progress of a run."""

    phase: str
    """One of "find", "identify", "convert" and "migrate"."""
    dumps: int
    """Number of dumps that were identified or, in the last phase, committed."""
    of_dumps: int
    """Number of dumps in this phase."""
    bytes: int
    """Size of the text that was converted: of the committed dumps, and of large dumps the part that was read."""
    of_bytes: int
    """Size of the text of all dumps to be converted; 0 while unknown."""
    failed: int
    seconds: float
    """Since the phase began."""


Progress = Callable[[Status], None]


@dataclass(frozen=True)
class Converted:
    """The result of `convert`."""

    run_id: str
    found: int
    """Dumps found, including duplicates, without those in `recent`."""
    dumps: int
    """Dumps written by this run, including truncated ones."""
    already_stored: int
    """Dumps that were already stored by this version."""
    duplicates: int
    """Dumps that have the same content as another one."""
    occurrences: int
    """Rows added to `occurrences`: dumps that were not found before at their place with these labels."""
    files: int
    """Parquet files written."""
    bytes: int
    """Total size of these files."""
    rows: int
    """Rows in these files."""
    text_bytes: int
    """Size of the text of the dumps written."""
    failed: list[Failure] = field(default_factory=list)
    """Dumps that could not be read, as in the table `quarantine`."""
    known: int = 0
    """Dumps that this version had already quarantined because of their content, and did not retry."""
    changed: list[str] = field(default_factory=list)
    """Names of dumps that were modified during the run. The next run converts them."""
    cut: list[str] = field(default_factory=list)
    """Names of truncated dumps, which were converted up to their end."""
    empty: list[str] = field(default_factory=list)
    """Paths without a dump."""
    recent: int = 0
    """Dumps that are left to the next run, because a file was modified less than `min_age` seconds before."""
    stopped: bool = False
    """Whether the run ended early because more than `max_failures` dumps could not be read."""
    seconds: float = 0.0

    @property
    def unreadable(self) -> int:
        """Dumps of the input that could not be read, by this run or an earlier one."""
        return len(self.failed) + self.known + len(self.changed)


class Interrupted(KeyboardInterrupt):
    """Raised by `convert` after Ctrl-C, with the `result` so far."""

    def __init__(self, result: Converted) -> None:
        super().__init__()
        self.result = result
