"""Values that the driver and its workers exchange: small and picklable, never tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from .. import schema
from ..input.find import Source
from .batch import Batch, File

STREAMED_BYTES = 256 << 20
"""A dump with more text than this is converted on its own, span by span."""

PROGRESS = "_ledger/careful"
"""Folder of the files in which workers record which dump they are reading."""


@dataclass(frozen=True)
class Options:
    """Settings of a run that apply to every dump."""

    dest: str
    tables: tuple[str, ...]
    labels: tuple[tuple[str, str], ...] = ()
    partition: tuple[str, ...] = ()
    """Labels that are part of the path."""
    top: int = 20
    tool_version: str = ""
    run_id: str = ""
    host: str = ""
    started: datetime | None = None

    @property
    def folder(self) -> str:
        """Path between the folder of a table and its files."""
        values = dict(self.labels)
        partitions = (f"{quote(key, safe='')}={quote(values[key], safe='')}" for key in self.partition)
        return "/".join([f"v{schema.VERSION}", *partitions])


@dataclass(frozen=True)
class Failure:
    """A dump that could not be read: a row of `quarantine`."""

    content_id: str
    name: str
    uri: str
    error: str
    line: int | None = None
    offset: int | None = None
    excerpt: str = ""
    kind: str = "content"
    """Either "content" or "system", as in `quarantine`."""
    attempts: int = 1
    """Failed runs, including this one."""
    identified: bool = True
    """Whether content_id is a hash of the content. If the content could not be loaded, it is a hash of the path."""


@dataclass(frozen=True)
class DumpInput:
    """A dump to be converted."""

    content_id: str
    source: Source
    bytes: int
    """Size of its text."""
    content_hash: str = ""
    """As in `modules`."""
    attempts: int = 0
    """Failed runs before this one."""


@dataclass(frozen=True)
class Task:
    """A batch to be written by one worker."""

    batch: str
    inputs: tuple[DumpInput, ...]
    options: Options
    failures: tuple[Failure, ...] = ()
    """Dumps that could not be identified."""
    replaces: Batch | None = None
    """Committed batch that contains these dumps. Its other dumps are copied to a new batch."""
    write_progress: bool = False
    """Write a progress marker before each dump, so that the driver can tell which dump killed a worker."""

    @property
    def bytes(self) -> int:
        return sum(dump.bytes for dump in self.inputs)


@dataclass(frozen=True)
class TaskResult:
    """The result of a task. It takes effect when the driver commits it."""

    batch: str
    files: tuple[File, ...]
    dumps: tuple[str, ...]
    failures: tuple[Failure, ...]
    changed: tuple[str, ...] = ()
    """Names of dumps whose content changed since the run began; they were skipped."""
    truncated: tuple[str, ...] = ()
    """Names of truncated dumps, which were converted up to their end."""
    bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows by table."""
    remainder: Batch | None = None
    """Copy of the remaining dumps of the batch that this one replaces."""
