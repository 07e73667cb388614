"""The engine `ray`, with a library that plays Ray: to which cluster it connects, and how its tasks end."""

from __future__ import annotations

import sys
from concurrent.futures import BrokenExecutor, Future
from types import SimpleNamespace
from typing import Any

import pytest

import xlamem
from xlamem.warehouse import clusters
from xlamem.warehouse.clusters import RAY_TIMEOUT_SECONDS, ray


class CrashedError(Exception):
    """A worker that crashed, as Ray reports it."""


class OtherError(Exception):
    """One of the other exceptions of Ray."""


class FailedError(Exception):
    """A task that raised an exception."""

    def __init__(self, cause: Exception) -> None:
        super().__init__("RayTaskError")
        self.cause = cause


class Library:
    """A cluster that runs a task when its result is asked for, and the calls of its functions."""

    exceptions = SimpleNamespace(
        WorkerCrashedError=CrashedError,
        OutOfMemoryError=OtherError,
        NodeDiedError=OtherError,
        ObjectLostError=OtherError,
    )

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.connected = False
        self.cpus: list[float] = [3.0]
        self.fails: Exception | None = None
        self.waits = False

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, address: str, **options: Any) -> None:
        if address == "nowhere":
            raise ConnectionError("refused")
        self.connected = True
        self.calls.append((address, options.get("num_cpus")))

    def shutdown(self) -> None:
        self.connected = False
        self.calls.append("shutdown")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": self.cpus.pop(0) if len(self.cpus) > 1 else self.cpus[0]} if self.cpus else {}

    def remote(self, **options: Any) -> Any:
        return lambda function: SimpleNamespace(remote=self._sent(function, options))

    def _sent(self, function: Any, options: dict[str, Any]) -> Any:
        self.calls.append(("sent", function.__name__, options))

        def call(*args: Any, **named: Any) -> Any:
            future: Future[Any] = Future()
            if not self.waits:
                try:
                    if self.fails:
                        raise self.fails
                    future.set_result(function(*args, **named))
                except Exception as error:
                    future.set_exception(error)
            return SimpleNamespace(future=lambda: future)

        return call

    def cancel(self, reference: Any, force: bool) -> None:
        self.calls.append(("cancelled", force))
        reference.future().set_exception(CrashedError())


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setitem(sys.modules, "ray", found)  # type: ignore[arg-type]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(clusters, "default_workers", lambda: 5)
    return found


@pytest.mark.parametrize(
    ("workers", "scheduler", "variable", "call"),
    [
        (None, None, None, ("local", 5)), (2, None, None, ("local", 2)), (2, "a", "b", ("a", None)),
        (None, None, "b", ("b", None)), (2, "auto", None, ("auto", None)), (None, "", "", ("local", 5)),
    ],
)  # fmt: skip
def test_which_cluster(
    library: Library, monkeypatch: pytest.MonkeyPatch, workers: int | None, scheduler: str | None,
    variable: str | None, call: tuple[str, int | None],
) -> None:  # fmt: skip
    """That of the option, that of the variable, or one of its own with as many cores as there are workers."""
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with ray(workers, scheduler) as pool:
        assert (pool.size, pool.count_workers()) == (workers or 3, 3)
        assert library.connected
    assert (library.calls[0], library.calls[-1]) == (call, "shutdown")


def test_a_process_that_is_connected_stays_so(library: Library) -> None:
    library.connected = True
    with ray() as pool:
        assert pool.submit(max, 3, 4).result() == 4
    assert library.connected
    assert [call[0] for call in library.calls] == ["sent", "sent"]


def test_a_cluster_that_grows(library: Library) -> None:
    """It is as large as when its first worker has started, and never without one."""
    library.cpus = [0.0, 7.0]
    with ray() as pool:
        assert pool.size == 7
    library.cpus = []
    with ray() as pool:
        assert (pool.size, pool.count_workers()) == (1, 0)


def test_how_tasks_end(library: Library) -> None:
    """With the exception that they raise themselves; what Ray says of workers that die is their death."""
    with ray() as pool:
        assert [pool.submit(divmod, 7, n).result() for n in (2, 3)] == [(3, 1), (2, 1)]
        assert library.calls.count(("sent", "divmod", {"max_retries": 0})) == 1
        assert isinstance(pool.submit(divmod, 1, 0).exception(), ZeroDivisionError)
        library.fails = FailedError(KeyError("x"))
        assert isinstance(pool.submit(divmod, 7, 2).exception(), KeyError)
        for library.fails in (CrashedError(), OtherError(), MemoryError(), BrokenExecutor()):
            assert isinstance(pool.submit(divmod, 7, 2).exception(), pool.death_errors)
        assert not issubclass(ValueError, pool.death_errors)


def test_only_tasks_that_run_are_killed(library: Library) -> None:
    with ray() as pool:
        pool.submit(divmod, 7, 2)
        library.waits = True
        running = [pool.submit(divmod, 7, 2) for _ in range(2)]
        assert not running[0].cancel()  # as one that a worker has begun
        library.calls.clear()
        pool.kill()
        assert library.calls == [("cancelled", True)] * 2
        assert all(isinstance(future.exception(), CrashedError) for future in running)
        pool.submit(divmod, 7, 2)
        library.calls.clear()
    assert library.calls == [("cancelled", True), "shutdown"]


def test_workers_that_cannot_start(library: Library) -> None:
    library.fails = LookupError("no such environment")
    with pytest.raises(xlamem.UsageError, match="the Ray cluster cannot start workers: LookupError: "), ray():
        pass
    assert library.calls[-1] == "shutdown"


@pytest.mark.parametrize(
    ("address", "asked"),
    [
        ("head:6379", ("head", 6379)), ("[::1]:10001", ("::1", 10001)), ("10.0.0.7:1", ("10.0.0.7", 1)),
        ("ray://head:1", None), ("auto", None), ("head", None),
    ],
)  # fmt: skip
def test_a_head_that_does_not_answer(
    library: Library, monkeypatch: pytest.MonkeyPatch, address: str, asked: tuple[str, int] | None
) -> None:
    """It is asked before Ray is, which would wait for minutes."""
    found: list[Any] = []

    def connect(place: tuple[str, int], timeout: float) -> Any:
        found.append((place, timeout))
        raise TimeoutError("timed out")

    monkeypatch.setattr(clusters.socket, "create_connection", connect)
    if asked:
        with pytest.raises(xlamem.UsageError, match=r"no Ray cluster answers at .*: timed out"), ray(None, address):
            pass
        assert found == [(asked, RAY_TIMEOUT_SECONDS)]
        assert library.calls == []
    else:
        with ray(None, address):
            assert library.calls[0] == (address, None)
        assert found == []


def test_no_cluster_there(library: Library) -> None:
    with pytest.raises(xlamem.UsageError, match="no Ray cluster answers at nowhere: refused"), ray(None, "nowhere"):
        pass
    assert library.calls == []
