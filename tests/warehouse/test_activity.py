"""Which runs count as active: locks on the local disk, heartbeats elsewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from xlamem.warehouse import activity
from xlamem.warehouse.activity import HEARTBEAT_TIMEOUT, RUNS, _Heartbeat, _is_active, marker
from xlamem.warehouse.storage import Storage

NOW = 1_000_000.0


@pytest.fixture
def memory(tmp_path: Path) -> Storage:
    pytest.importorskip("fsspec")
    return Storage(f"memory:/{tmp_path}")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity.time, "time", lambda: NOW)


def here() -> dict[str, Any]:
    return {"host": activity.host_name(), "processes": activity._processes(), "pid": os.getpid(), "at": NOW}


def beat(storage: Storage, name: str, age: float = 0, **fields: Any) -> None:
    data = here() | {"at": NOW - age} | fields
    storage.write(f"{RUNS}/{name}.json", json.dumps(data).encode())


def beats(storage: Storage) -> list[str]:
    return [name.removeprefix(f"{RUNS}/").removesuffix(".json") for name, _ in storage.files(RUNS)]


def test_a_run_in_another_place_is_dead_when_its_heart_stops() -> None:
    for age, is_active in ((0, True), (HEARTBEAT_TIMEOUT, True), (HEARTBEAT_TIMEOUT + 1, False), (-50, True)):
        assert _is_active({"host": "elsewhere", "pid": 1, "at": NOW - age}) is is_active


def test_a_run_on_this_host_is_dead_without_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = here() | {"pid": 77}
    asked = []
    for error, is_active in ((None, True), (ProcessLookupError, False), (PermissionError, True)):

        def kill(pid: int, signal: int, error: Any = error) -> None:
            asked.append((pid, signal))
            if error:
                raise error

        monkeypatch.setattr(os, "kill", kill)
        assert _is_active(mine) is is_active
        assert _is_active(mine | {"host": "elsewhere"}) is True
        assert _is_active(mine | {"processes": "of a container with the same host name"}) is True
        assert _is_active({"host": mine["host"], "pid": 77, "at": NOW}) is True  # of an earlier version
        assert _is_active(mine | {"at": NOW - HEARTBEAT_TIMEOUT - 1}) is False
    assert asked == [(77, 0)] * 3  # only a process of this host, which no signal may reach


def test_where_proc_is_missing_the_host_name_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(os, "readlink", fail)
    assert activity._processes() is None
    assert _is_active({"host": activity.host_name(), "pid": os.getpid(), "at": NOW})
    assert not _is_active({"host": activity.host_name(), "pid": 2**22 + 1, "at": NOW})


def test_heartbeats(memory: Storage) -> None:
    first, second = marker(memory, "first"), marker(memory, "second")
    assert isinstance(first, _Heartbeat)
    assert first.is_only()
    first.enter()
    assert beats(memory) == ["first"]
    assert first.is_only()
    assert not second.is_only()
    second.enter()
    assert not first.is_only()
    second.leave()
    assert beats(memory) == ["first"]
    assert first.is_only()
    first.leave()
    assert beats(memory) == []


def test_heartbeats_of_the_dead_are_deleted(memory: Storage) -> None:
    beat(memory, "a", HEARTBEAT_TIMEOUT + 1)
    beat(memory, "b", pid=2**22 + 1)
    beat(memory, "mine", HEARTBEAT_TIMEOUT + 1)
    assert _Heartbeat(memory, "mine").is_only()
    assert beats(memory) == ["mine"]
    beat(memory, "c", HEARTBEAT_TIMEOUT + 1)
    beat(memory, "d", 1)
    beat(memory, "e", HEARTBEAT_TIMEOUT + 1)
    assert not _Heartbeat(memory, "mine").is_only()
    assert beats(memory) == ["d", "e", "mine"]


def test_a_heartbeat_is_renewed(memory: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = _Heartbeat(memory, "mine")
    waits = []

    def wait(seconds: float) -> bool:
        waits.append((seconds, json.loads(memory.read(mine.name) or b"{}").get("at")))
        monkeypatch.setattr(activity.time, "time", lambda: NOW + len(waits))
        return len(waits) == 3

    monkeypatch.setattr(mine.ended, "wait", wait)
    mine._write()
    mine._renew()
    assert waits == [(activity.HEARTBEAT_SECONDS, at) for at in (NOW, NOW + 1, NOW + 2)]

    def fail() -> None:
        raise RuntimeError  # of a library

    waits.clear()
    monkeypatch.setattr(mine, "_write", fail)
    mine._renew()  # a storage that does not answer for once does not end the thread
    assert len(waits) == 3


@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_locks(tmp_path: Path) -> None:
    found = Storage(tmp_path)
    one, two, three = (marker(found, name) for name in "abc")
    assert one.is_only()
    one.enter()
    assert not two.is_only()
    assert one.exists()
    two.enter()
    assert not one.is_only()
    assert not three.is_only()
    two.leave()
    three.leave()
    assert one.is_only()
    one.leave()


def test_a_system_without_file_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs there have heartbeats."""
    monkeypatch.setitem(sys.modules, "fcntl", None)  # cannot be imported
    spec = importlib.util.spec_from_file_location(f"{activity.__name__}_elsewhere", str(activity.__file__))
    assert spec is not None
    assert spec.loader is not None
    elsewhere = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(elsewhere)
    assert isinstance(elsewhere.marker(Storage(tmp_path), "run"), elsewhere._Heartbeat)
