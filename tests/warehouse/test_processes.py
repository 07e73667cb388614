"""Worker processes that start, end while they start, or are always killed."""

from __future__ import annotations

import contextlib
from concurrent.futures import BrokenExecutor, Executor, Future
from types import SimpleNamespace
from typing import Any

import pytest

import xlamem
from xlamem.warehouse.processes import MAX_STARTS, _Processes, local


class StartedWorkers(Executor):
    """Workers that end with these exit codes, None for those that run, before all of them are ready."""

    def __init__(self, codes: list[int | None], is_broken: bool) -> None:
        self._processes = {i: SimpleNamespace(exitcode=code) for i, code in enumerate(codes)}
        self.is_broken = is_broken
        self.ended: list[dict[str, bool]] = []

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.ended.append({"wait": wait, "cancel_futures": cancel_futures})

    def ready(self) -> Future[int]:
        future: Future[int] = Future()
        future.set_exception(BrokenExecutor()) if self.is_broken else future.set_result(1)
        return future


def started(codes: list[int | None], is_broken: bool, have_started: bool = False) -> tuple[Any, StartedWorkers]:
    found: Any = _Processes(2)
    found.executor = found.pool.executor = executor = StartedWorkers(codes, is_broken)
    found.starting, found.have_started = [executor.ready()], have_started
    return found, executor


@pytest.mark.parametrize(
    ("codes", "have_started", "is_wrong"),
    [
        ([-9, None], False, False), ([-9, -9], False, False), ([0, None], False, True), ([-9, 1], False, True),
        ([1, 1], False, True), ([1, 1], True, False),
    ],
)  # fmt: skip
def test_workers_that_end_while_they_start(codes: list[int | None], have_started: bool, is_wrong: bool) -> None:
    """One that ends by itself cannot be started, unless it could before; one that is killed can be started again."""
    found, executor = started(codes, is_broken=True, have_started=have_started)
    if is_wrong:
        with pytest.raises(xlamem.UsageError, match="worker processes cannot be started"):
            found._are_ready()
    else:
        assert found._are_ready() is False
        assert found.have_started is have_started
    assert executor.ended == [{"wait": True, "cancel_futures": True}]


def test_workers_that_start(monkeypatch: pytest.MonkeyPatch) -> None:
    found, executor = started([None, None], is_broken=False)
    assert found._are_ready() is True
    assert found.have_started
    assert executor.ended == []
    starts: list[int] = []
    monkeypatch.setattr(_Processes, "_start", lambda self: starts.append(1))
    found.restart()  # does not wait for a worker that may hang
    assert starts == [1]
    assert executor.ended == [{"wait": False, "cancel_futures": True}]


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_that_wait_do_not_run_at_the_end(fails: bool) -> None:
    """Those that run end before."""
    executor = StartedWorkers([], is_broken=False)
    with contextlib.suppress(KeyError), local(2) as pool:
        pool.executor = executor
        assert executor.ended == []
        if fails:
            raise KeyError
    assert executor.ended == [{"wait": True, "cancel_futures": True}]


def test_workers_that_are_always_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the end, this process runs the tasks."""
    found, _ = started([-9], is_broken=True)
    starts: list[int] = []
    monkeypatch.setattr(_Processes, "_start", lambda self: starts.append(1))
    found._wait_until_ready()
    assert len(starts) == MAX_STARTS - 1
    assert found.executor is None
    assert (found.pool.executor, found.pool.size, found.pool.cores) == (found.here, 1, found.here.cores)
