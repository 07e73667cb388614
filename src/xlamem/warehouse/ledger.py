"""The ledger of a dataset: a log that states which files hold which contents, occurrences and runs.

Each entry, ``_ledger/entries/<number>.json``, adds and removes batches, and is created atomically. Numbers are
consecutive, so that only one of two concurrent converters can write the next entry. Files that no entry names are not
part of the dataset; they are deleted when no run is active.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .. import schema
from .storage import TEMPORARY, Storage

ENTRIES = "_ledger/entries"
CHECKPOINTS = "_ledger/checkpoints"
RUNS = "_ledger/runs"
LOCK = "_ledger/lock"
CHECKPOINT_INTERVAL = 64
"""Number of entries between checkpoints. A checkpoint replaces all entries before it."""
HEARTBEAT_SECONDS = 30
"""Interval at which a run renews its heartbeat on storage without file locks."""
HEARTBEAT_TIMEOUT = 10 * HEARTBEAT_SECONDS
"""Age of a heartbeat after which its run is considered dead."""

_GENERATED_NAME = re.compile(r"[0-9a-f]{32}-\d+(-[0-9a-f]{8})?\.parquet|\..*" + re.escape(TEMPORARY))


@dataclass(frozen=True)
class File:
    """A Parquet file of a batch."""

    table: str
    path: str
    """Relative to the dataset."""
    rows: int
    bytes: int
    columns: int = 0
    """Number of columns; 0 if written by a version that did not record it."""


@dataclass(frozen=True)
class Batch:
    """Dumps that were committed together, and their files."""

    name: str
    dumps: tuple[str, ...]
    """The content_ids whose rows are in the files."""
    quarantined: tuple[str, ...]
    """The content_ids that have a row in `quarantine`."""
    files: tuple[File, ...]
    tool_version: str
    schema_version: int
    run_id: str
    tables: tuple[str, ...] = ()
    """The tables that were written."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Number of failed runs of each quarantined content_id; empty if written by a version that did not count them."""
    system: tuple[str, ...] = ()
    """The quarantined content_ids with a system failure, which the next run retries."""
    places: dict[str, str] = field(default_factory=dict)
    """Paths of quarantined dumps with content that could not be loaded, by content_id (a hash of the path)."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the occurrences in its files."""
    runs: tuple[str, ...] = ()
    """The run_ids that have a row in `runs`."""

    @property
    def is_old(self) -> bool:
        """Whether version 1 wrote it: its ids are dump_ids, which depend on name and labels."""
        return self.schema_version < 2

    def table_files(self, table: str) -> list[File]:
        """Return the files of one table."""
        return [file for file in self.files if file.table == table]

    def renamed(self, names: Mapping[str, str]) -> Batch:
        """Return the batch with new names of some of its files."""
        return replace(self, files=tuple(replace(file, path=names.get(file.path, file.path)) for file in self.files))

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Batch:
        """Return the batch, ignoring fields that a later version added."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in data.items()
            if key in cls.__dataclass_fields__
        }
        names = File.__dataclass_fields__
        fields["files"] = tuple(File(**{k: v for k, v in file.items() if k in names}) for file in data["files"])
        return cls(**fields)


@dataclass
class State:
    """The contents of the dataset after entry `number`."""

    number: int = 0
    batches: dict[str, Batch] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    """The batch of each stored content_id."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """The batch of each quarantined content_id."""
    runs: dict[str, str] = field(default_factory=dict)
    """The batch with the row of each run."""
    hidden: set[str] = field(default_factory=set)
    """The dump_ids of version 1 that are stored or quarantined again by their content_id, or no longer fail."""

    def add(self, batch: Batch) -> None:
        self.batches[batch.name] = batch
        if batch.is_old:
            return
        self.runs.update(dict.fromkeys(batch.runs, batch.name))
        self.stored.update(dict.fromkeys(batch.dumps, batch.name))
        self.quarantined.update(dict.fromkeys(batch.quarantined, batch.name))

    def attempts(self, content_id: str) -> int:
        """Return how many runs failed to read a dump; 0 if it is not quarantined."""
        batch = self.quarantine_batch(content_id)
        return batch.attempts.get(content_id, 1) if batch else 0

    def quarantine_batch(self, content_id: str) -> Batch | None:
        """Return the batch that a quarantined dump belongs to, or None."""
        name = self.quarantined.get(content_id)
        return None if name is None else self.batches[name]

    def remove(self, name: str) -> None:
        batch = self.batches.pop(name)
        indexes = (batch.dumps, self.stored), (batch.quarantined, self.quarantined), (batch.runs, self.runs)
        for ids, batch_of in indexes:
            for key in ids:
                if batch_of.get(key) == name:
                    del batch_of[key]
        if batch.is_old and not self.old_batches:
            self.hidden.clear()

    @property
    def old_batches(self) -> list[Batch]:
        """The batches that version 1 wrote."""
        return [batch for batch in self.batches.values() if batch.is_old]

    @property
    def old_ids(self) -> set[str]:
        """The dump_ids that version 1 stored or quarantined."""
        return {i for batch in self.old_batches for i in (*batch.dumps, *batch.quarantined)}

    def occurrences(self, labels: Mapping[str, str]) -> list[Batch]:
        """Return the batches with occurrences that have exactly these labels."""
        return [b for b in self.batches.values() if b.labels == labels and b.table_files("occurrences")]

    def files(self, table: str | None = None) -> list[File]:
        """Return the committed files of one table, or of all tables, sorted by path."""
        files = [f for b in self.batches.values() for f in b.files if table is None or f.table == table]
        return sorted(files, key=lambda f: f.path)


class Ledger:
    """The ledger of a dataset, and the state as of the last read."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.state = State()
        self._read_checkpoint()
        self.refresh()

    def refresh(self) -> State:
        """Read the entries that were added since the last call."""
        while (data := self.storage.read(_entry_name(self.state.number + 1))) is not None:
            self._apply(json.loads(data))
        return self.state

    def commit(
        self,
        *batches: Batch,
        remove: tuple[str, ...] = (),
        clear: Set[str] = frozenset(),
        rewrite: Callable[[Batch, Set[str]], Batch | None] = lambda batch, dumps: None,
        may_fail: Set[str] = frozenset(),
    ) -> set[str]:
        """Add batches and remove others in one entry, unless another run has claimed one of their dumps.

        Parameters
        ----------
        batches, remove
            The new batches, and the names of the batches that they replace.
        clear
            Dumps to be removed from quarantine. Each batch that contains one of them is replaced by the result of
            ``rewrite(batch, clear)``, or removed if that is None. Batches of version 1 stay; their rows are hidden.
        may_fail
            Stored dumps that may also be quarantined, because reading them again failed.

        Returns
        -------
        The ids that another run has claimed. If there are any, nothing is committed.
        """
        new, removed = batches, remove
        while True:
            state = self.refresh()
            stale = sorted({state.quarantined[i] for i in clear if i in state.quarantined}.difference(remove))
            rewritten = [rewrite(state.batches[name], clear) for name in stale]
            new, removed = (*batches, *(b for b in rewritten if b)), (*remove, *stale)
            hidden = (clear & state.old_ids) - state.hidden
            if not new and not removed and not hidden:
                return set()
            if claimed := self._claimed(new, removed, may_fail):
                return claimed
            if self._append(new, removed, hidden):
                return set()

    def commit_occurrences(self, *batches: Batch, labels: Mapping[str, str], known: Set[str]) -> bool:
        """Add batches, unless another run has recorded occurrences with the same labels meanwhile.

        `known` names the batches with these labels whose occurrences the new batches do not repeat.
        """
        while True:
            if {batch.name for batch in self.refresh().occurrences(labels)} - known:
                return False
            if self._append(batches):
                return True

    def _append(self, new: tuple[Batch, ...], removed: tuple[str, ...] = (), hidden: Set[str] = frozenset()) -> bool:
        """Publish the files and create the next entry; return whether no other run was faster."""
        published = self.storage.publish(file.path for batch in new for file in batch.files)
        entry = {
            "format": 2, "number": self.state.number + 1, "at": time.time(), "drop": list(removed),
            "hide": sorted(hidden), "add": [asdict(batch.renamed(published)) for batch in new],
        }  # fmt: skip
        if not self.storage.create(_entry_name(self.state.number + 1), json.dumps(entry, indent=1).encode()):
            self.storage.delete(published.values())
            return False
        self.storage.delete(published.keys())
        self._apply(entry)
        return True

    def _claimed(self, new: tuple[Batch, ...], removed: tuple[str, ...], may_fail: Set[str]) -> set[str]:
        """Return the dumps and runs of new batches that others contain; all dumps if a batch to remove is gone."""
        state = self.state
        # A dump can be stored by an older version and quarantined by a later one.
        failed = {i for batch in new for i in batch.quarantined if i not in may_fail}
        dumps = failed.union(*(batch.dumps for batch in new))
        runs = {run for batch in new for run in batch.runs}
        if gone := set(removed) - state.batches.keys():
            return dumps or gone
        return {
            key
            for keys, batch_of in ((dumps, state.stored), (failed, state.quarantined), (runs, state.runs))
            for key in keys & batch_of.keys()
            if batch_of[key] not in removed
        }

    def _apply(self, entry: dict[str, Any]) -> None:
        for name in entry["drop"]:
            self.state.remove(name)
        for data in entry["add"]:
            if data["name"] in self.state.batches:
                self.state.remove(data["name"])
            self.state.add(Batch.from_json(data))
        self.state.hidden.update(entry.get("hide", ()))
        self.state.number = entry["number"]

    # -- checkpoints

    def _read_checkpoint(self) -> None:
        """Load the newest checkpoint that can be read, if any."""
        for name, _ in reversed(self.storage.files(CHECKPOINTS, recursive=False)):
            with suppress(zlib.error, ValueError, KeyError, TypeError):
                data = json.loads(zlib.decompress(self.storage.read(name) or b""))
                for batch in data["batches"]:
                    self.state.add(Batch.from_json(batch))
                self.state.hidden.update(data.get("hidden", ()))
                self.state.number = data["number"]
                return
            self.state = State()

    def checkpoint(self) -> None:
        """Write a checkpoint if CHECKPOINT_INTERVAL entries were added since the last one."""
        names = [name for name, _ in self.storage.files(CHECKPOINTS, recursive=False)]
        last = int(re.findall(r"\d+", names[-1])[-1]) if names else 0
        if self.state.number - last < CHECKPOINT_INTERVAL:
            return
        data = {
            "number": self.state.number, "hidden": sorted(self.state.hidden),
            "batches": [asdict(b) for b in self.state.batches.values()],
        }  # fmt: skip
        name = f"{CHECKPOINTS}/{self.state.number:012}.json.z"
        self.storage.create(name, zlib.compress(json.dumps(data).encode()))
        self.storage.delete(names[:-1])

    # -- runs

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """Mark a run as active. Delete uncommitted files of dead runs before and after it."""
        with ExitStack() as stack:
            use_lock = self.storage.local and _fcntl is not None
            marker = _LockFile(self.storage) if use_lock else _Heartbeat(self.storage, run_id)
            stack.callback(marker.leave)
            self.delete_uncommitted(marker.is_only)
            marker.enter()
            try:
                yield
            finally:
                self.delete_uncommitted(marker.is_only)

    def delete_uncommitted(self, is_only: Callable[[], bool]) -> list[str]:
        """Delete files that no entry names, unless another run is active; return their names.

        The order matters: files are listed before `is_only` is called, so they belong to runs that it detects or that
        have ended. The entries of runs that have ended are read afterwards.
        """
        names = [name for table in schema.WAREHOUSE for name, _ in self.storage.files(table)]
        names += [name for name, _ in self.storage.files("_ledger") if name.endswith(TEMPORARY)]
        if not is_only():
            return []
        committed = {file.path for file in self.refresh().files()}
        stray = [n for n in names if n not in committed and _GENERATED_NAME.fullmatch(n.rpartition("/")[2])]
        self.storage.delete(stray)
        return stray


def _entry_name(number: int) -> str:
    return f"{ENTRIES}/{number:012}.json"


try:
    import fcntl as _fcntl
except ImportError:  # Windows
    _fcntl = None  # type: ignore[assignment]


class _LockFile:
    """Marks a run as active with a shared lock on a local file. The lock ends with the process."""

    def __init__(self, storage: Storage) -> None:
        os.makedirs(storage.path("_ledger"), exist_ok=True)
        self.descriptor = os.open(storage.path(LOCK), os.O_RDWR | os.O_CREAT, 0o666)

    def is_only(self) -> bool:
        """Return whether no other run is active, which is when the exclusive lock can be acquired."""
        try:
            _fcntl.flock(self.descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def enter(self) -> None:
        _fcntl.flock(self.descriptor, _fcntl.LOCK_SH)

    def leave(self) -> None:
        os.close(self.descriptor)


class _Heartbeat:
    """Marks a run as active with a timestamp that is renewed regularly, on storage without file locks."""

    def __init__(self, storage: Storage, run_id: str) -> None:
        self.storage, self.name = storage, f"{RUNS}/{run_id}.json"
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._renew, daemon=True)

    def is_only(self) -> bool:
        """Return whether no other run is active. Delete the heartbeats of dead runs."""
        for name, _ in self.storage.files(RUNS, recursive=False):
            if name == self.name or (data := self.storage.read(name)) is None:
                continue
            if _is_active(json.loads(data)):
                return False
            self.storage.delete([name])
        return True

    def enter(self) -> None:
        self._write()
        self.thread.start()

    def leave(self) -> None:
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        self.storage.delete([self.name])

    def _write(self) -> None:
        heartbeat = {"host": host_name(), "pid": os.getpid(), "at": time.time()}
        self.storage.write(self.name, json.dumps(heartbeat).encode())

    def _renew(self) -> None:
        while not self.ended.wait(HEARTBEAT_SECONDS):
            with suppress(OSError):
                self._write()


def _is_active(heartbeat: dict[str, Any]) -> bool:
    if time.time() - heartbeat["at"] > HEARTBEAT_TIMEOUT:
        return False
    if heartbeat["host"] != host_name() or os.name != "posix":
        return True
    try:
        os.kill(heartbeat["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def host_name() -> str:
    return socket.gethostname()
