"""What is in a dataset: a log of entries, each made by one atomic create, that says which files hold which dumps.

``_ledger/entries/<number>.json`` adds a batch and drops others; numbers leave no gap, so that two converters
cannot both make the next one. Files that no entry names do not count, and are swept when no run is alive.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import schema
from .storage import TEMPORARY, Place

ENTRIES = "_ledger/entries"
CHECKPOINTS = "_ledger/checkpoints"
RUNS = "_ledger/runs"
LOCK = "_ledger/lock"
EVERY = 64
"""After so many entries a checkpoint is written: what all of them together say."""
BEAT = 30
"""Seconds after which a run on a filesystem without locks says again that it is alive."""
DEAD = 10 * BEAT
"""Seconds without a word after which such a run counts as dead."""

_OURS = re.compile(r"[0-9a-f]{32}-\d+(-[0-9a-f]{8})?\.parquet|\..*" + re.escape(TEMPORARY))


@dataclass(frozen=True)
class File:
    """A Parquet file of a batch."""

    table: str
    path: str
    """Relative to the dataset."""
    rows: int
    bytes: int
    columns: int = 0
    """How many it has; 0 where an older version did not say."""


@dataclass(frozen=True)
class Batch:
    """Dumps that were committed together, and their files."""

    name: str
    dumps: tuple[str, ...]
    """dump_ids whose rows are in the files."""
    quarantined: tuple[str, ...]
    """dump_ids that have a row in `quarantine`."""
    files: tuple[File, ...]
    tool_version: str
    schema_version: int
    run_id: str
    tables: tuple[str, ...] = ()
    """Tables that were written."""
    attempts: dict[str, int] = field(default_factory=dict)
    """Runs that failed, of each dump_id in quarantine (an older version did not count)."""
    system: tuple[str, ...] = ()
    """Those of them that failed by the system: the next run tries them again."""
    places: dict[str, str] = field(default_factory=dict)
    """The place of those whose content could not be had: their dump_id is a hash of it."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Batch:
        known: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in cls.__dataclass_fields__
        }
        names = File.__dataclass_fields__  # a later version may say more
        known["files"] = tuple(File(**{k: v for k, v in f.items() if k in names}) for f in data["files"])
        return cls(**known)


@dataclass
class State:
    """What the entries up to `number` say together."""

    number: int = 0
    batches: dict[str, Batch] = field(default_factory=dict)
    stored: dict[str, str] = field(default_factory=dict)
    """Batch of each dump_id stored."""
    quarantined: dict[str, str] = field(default_factory=dict)
    """Batch of each dump_id in quarantine."""

    def add(self, batch: Batch) -> None:
        self.batches[batch.name] = batch
        self.stored.update(dict.fromkeys(batch.dumps, batch.name))
        self.quarantined.update(dict.fromkeys(batch.quarantined, batch.name))

    def failure(self, dump_id: str) -> tuple[Batch | None, int, bool]:
        """Of a dump in quarantine: its batch, how often it failed, whether by the system."""
        if dump_id not in self.quarantined:
            return None, 0, False
        batch = self.batches[self.quarantined[dump_id]]
        return batch, batch.attempts.get(dump_id, 1), dump_id in batch.system

    def drop(self, name: str) -> None:
        batch = self.batches.pop(name)
        for ids, of in ((batch.dumps, self.stored), (batch.quarantined, self.quarantined)):
            for i in ids:
                if of.get(i) == name:
                    del of[i]

    def files(self, table: str | None = None) -> list[File]:
        """The files that count, in order of their paths."""
        found = [f for b in self.batches.values() for f in b.files if table is None or f.table == table]
        return sorted(found, key=lambda f: f.path)


class Ledger:
    """The ledger of a dataset: its state as of the last look, and how to change it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.state = State()
        self._from_checkpoint()
        self.refresh()

    def refresh(self) -> State:
        """Take in the entries that came since the last look."""
        while (data := self.place.read(_entry(self.state.number + 1))) is not None:
            self._apply(json.loads(data))
        return self.state

    def commit(
        self,
        *batches: Batch,
        drop: tuple[str, ...] = (),
        clear: Set[str] = frozenset(),
        without: Callable[[Batch, Set[str]], Batch | None] = lambda batch, gone: None,
        stays: Set[str] = frozenset(),
    ) -> set[str]:
        """Claim the dumps of these batches and drop those that they replace, all at once.

        What is in quarantine of the dumps to `clear` goes with the same entry: each batch that holds it is replaced
        by what it is `without` them. Of what is in `stays`, a failure may be added to what is stored. Returns the
        dump_ids that another run has claimed meanwhile: then nothing was committed.
        """
        given, asked = batches, drop
        while True:
            state = self.refresh()
            stale = {state.quarantined[i] for i in clear if i in state.quarantined}.difference(asked)
            kept = [without(state.batches[name], clear) for name in sorted(stale)]
            batches, drop = (*given, *(b for b in kept if b)), (*asked, *sorted(stale))
            if not batches and not drop:
                return set()
            failed = {i for batch in batches for i in batch.quarantined if i not in stays}
            mine = failed.union(*(batch.dumps for batch in batches))
            # A dump may be both: stored as an older version read it, and in quarantine because it failed since.
            taken = {
                i
                for ids, of in ((mine, state.stored), (failed, state.quarantined))
                for i in ids & of.keys()
                if of[i] not in drop
            }
            lost = {i for name in drop if name not in state.batches for i in mine}
            if taken or lost:
                return taken | lost
            entry = {
                "format": 1, "number": state.number + 1, "at": time.time(), "drop": list(drop),
                "add": [asdict(batch) for batch in batches],
            }  # fmt: skip
            if self.place.create(_entry(state.number + 1), json.dumps(entry, indent=1).encode()):
                self._apply(entry)
                return set()

    def _apply(self, entry: dict[str, Any]) -> None:
        for name in entry["drop"]:
            self.state.drop(name)
        for data in entry["add"]:
            if data["name"] in self.state.batches:
                self.state.drop(data["name"])
            self.state.add(Batch.of(data))
        self.state.number = entry["number"]

    # -- checkpoints

    def _from_checkpoint(self) -> None:
        for name, _ in reversed(self.place.files(CHECKPOINTS, below=False)):
            with suppress(zlib.error, ValueError, KeyError, TypeError):  # one that cannot be read is passed over
                data = json.loads(zlib.decompress(self.place.read(name) or b""))
                for batch in data["batches"]:
                    self.state.add(Batch.of(batch))
                self.state.number = data["number"]
                return
            self.state = State()

    def checkpoint(self) -> None:
        """Write one, if there are many entries since the last."""
        there = [name for name, _ in self.place.files(CHECKPOINTS, below=False)]
        last = int(re.findall(r"\d+", there[-1])[-1]) if there else 0
        if self.state.number - last < EVERY:
            return
        data = {"number": self.state.number, "batches": [asdict(b) for b in self.state.batches.values()]}
        self.place.create(f"{CHECKPOINTS}/{self.state.number:012}.json.z", zlib.compress(json.dumps(data).encode()))
        self.place.delete(there[:-1])

    # -- runs and what dead ones leave behind

    @contextmanager
    def run(self, run_id: str) -> Iterator[None]:
        """While it lasts, nobody sweeps. Before and after, this run does, if no other one is alive."""
        with ExitStack() as stack:
            presence = _Locked(self.place) if self.place.local and _flock else _Announced(self.place, run_id)
            stack.callback(presence.leave)
            self.sweep(presence.alone)
            presence.enter()
            try:
                yield
            finally:
                self.sweep(presence.alone)

    def sweep(self, alone: Callable[[], bool]) -> list[str]:
        """Delete the files that no entry names, unless another run is alive; gives their names.

        In this order: what is listed belongs to runs that began before they are looked for, and what those that
        have ended had to say is in the ledger when it is read.
        """
        found = [name for table in schema.WAREHOUSE for name, _ in self.place.files(table)]
        found += [name for name, _ in self.place.files("_ledger") if name.endswith(TEMPORARY)]
        if not alone():
            return []
        committed = {f.path for f in self.refresh().files()}
        stray = [n for n in found if n not in committed and _OURS.fullmatch(n.rpartition("/")[2])]
        self.place.delete(stray)
        return stray


def _entry(number: int) -> str:
    return f"{ENTRIES}/{number:012}.json"


try:
    import fcntl as _flock
except ImportError:  # Windows
    _flock = None  # type: ignore[assignment]


class _Locked:
    """Runs on a local disk share a lock; who gets it alone is alone. The lock of a dead process is gone."""

    def __init__(self, place: Place) -> None:
        os.makedirs(place.path("_ledger"), exist_ok=True)
        self.number = os.open(place.path(LOCK), os.O_RDWR | os.O_CREAT, 0o666)

    def alone(self) -> bool:
        try:
            _flock.flock(self.number, _flock.LOCK_EX | _flock.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def enter(self) -> None:
        _flock.flock(self.number, _flock.LOCK_SH)

    def leave(self) -> None:
        os.close(self.number)


class _Announced:
    """Elsewhere each run keeps a file that says when it was last alive."""

    def __init__(self, place: Place, run_id: str) -> None:
        self.place, self.name = place, f"{RUNS}/{run_id}.json"
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)

    def alone(self) -> bool:
        """Whether no other run is alive; the words of dead ones are taken away."""
        for name, _ in self.place.files(RUNS, below=False):
            if name == self.name or (data := self.place.read(name)) is None:
                continue
            run = json.loads(data)
            if _alive(run):
                return False
            self.place.delete([name])
        return True

    def enter(self) -> None:
        self._say()
        self.thread.start()

    def leave(self) -> None:
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()
        self.place.delete([self.name])

    def _say(self) -> None:
        self.place.put(self.name, json.dumps({"host": host(), "pid": os.getpid(), "at": time.time()}).encode())

    def _beat(self) -> None:
        while not self.done.wait(BEAT):
            with suppress(OSError):
                self._say()


def _alive(run: dict[str, Any]) -> bool:
    if time.time() - run["at"] > DEAD:
        return False
    if run["host"] != host() or os.name != "posix":
        return True
    try:
        os.kill(run["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def host() -> str:
    return socket.gethostname()
