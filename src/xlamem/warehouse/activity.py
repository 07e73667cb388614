"""Mark runs as active, so that nothing is deleted that belongs to another run."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from .storage import Storage

RUNS = "_ledger/runs"
LOCK = "_ledger/lock"
HEARTBEAT_SECONDS = 30
"""Interval at which a run renews its heartbeat on storage without file locks."""
HEARTBEAT_TIMEOUT = 10 * HEARTBEAT_SECONDS
"""Age of a heartbeat after which its run is considered dead."""


class Marker(Protocol):
    """Marks a run as active."""

    def is_only(self) -> bool: ...
    def exists(self) -> bool: ...
    def enter(self) -> None: ...
    def leave(self) -> None: ...


def marker(storage: Storage, run_id: str) -> Marker:
    """Return what marks a run as active: a lock on a local file, or a heartbeat."""
    return _LockFile(storage) if storage.local and _fcntl is not None else _Heartbeat(storage, run_id)


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

    def exists(self) -> bool:
        """Return whether the mark still exists. A lock always does."""
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

    def exists(self) -> bool:
        """Return whether the heartbeat still exists. Other runs delete it if this one seems to be dead."""
        return self.storage.exist([self.name])

    def enter(self) -> None:
        self._write()
        self.thread.start()

    def leave(self) -> None:
        self.ended.set()
        if self.thread.is_alive():
            self.thread.join()
        self.storage.delete([self.name])

    def _write(self) -> None:
        heartbeat = {"host": host_name(), "processes": _processes(), "pid": os.getpid(), "at": time.time()}
        self.storage.write(self.name, json.dumps(heartbeat).encode())

    def _renew(self) -> None:
        while not self.ended.wait(HEARTBEAT_SECONDS):
            with suppress(Exception):  # libraries raise exceptions of their own
                self._write()


def _is_active(heartbeat: dict[str, Any]) -> bool:
    if time.time() - heartbeat["at"] > HEARTBEAT_TIMEOUT:
        return False
    if (heartbeat["host"], heartbeat.get("processes")) != (host_name(), _processes()) or os.name != "posix":
        return True
    try:
        os.kill(heartbeat["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _processes() -> str | None:
    """Return what process ids refer to: the PID namespace of a running kernel, None where this is not known.

    Containers on different machines may have the same host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def host_name() -> str:
    return socket.gethostname()
