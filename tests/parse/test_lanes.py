"""Jobs on threads: in turn within a lane, at the same time in different lanes, and no thread left behind."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from xlamem.parse import lanes
from xlamem.parse.lanes import Lanes

WAIT = 60.0
"""Seconds after which a test that should not wait fails."""


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "xlamem"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert threads() == []


@pytest.fixture
def often_interrupted() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_lane_runs_in_turn(n: int, often_interrupted: None) -> None:
    chance, seen = random.Random(n), {str(i): [] for i in range(5)}  # type: dict[str, list[int]]
    submitted: dict[str, list[int]] = {lane: [] for lane in seen}
    with Lanes(n) as jobs:
        for i in range(500):
            lane = str(chance.randrange(5))
            submitted[lane].append(i)
            jobs.submit(lane, lambda lane=lane, i=i: seen[lane].append(i))
            if n == 1:
                assert seen == submitted
        jobs.wait("3")
        assert seen["3"] == submitted["3"]
        jobs.join()
        assert seen == submitted


def test_lanes_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=WAIT)
    with Lanes(2) as jobs:
        first, second = jobs.submit("a", both.wait), jobs.submit("b", both.wait)
        assert {jobs.result(first), jobs.result(second)} == {0, 1}


@pytest.mark.parametrize("how", ["wait", "join", "result"])
def test_a_job_that_is_running_is_waited_for(how: str) -> None:
    """Although no lane is ready."""
    started, go = threading.Event(), threading.Event()
    with Lanes(2) as jobs:
        job = jobs.submit("a", lambda: started.set() or go.wait(WAIT))
        assert started.wait(WAIT)  # on the other thread
        timer = threading.Timer(0.02, go.set)
        timer.start()
        {"wait": lambda: jobs.wait("a"), "join": jobs.join, "result": lambda: jobs.result(job)}[how]()
        assert job.done
        assert job.result is True
        timer.join()


@pytest.mark.parametrize("n", [1, 3])
def test_items_ahead(n: int) -> None:
    with Lanes(n) as jobs:
        assert list(jobs.ahead(iter(range(20)))) == list(range(20))
        assert list(jobs.ahead(iter(()))) == []


def test_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever submits too many takes part in the work."""
    monkeypatch.setattr(lanes, "MAX_JOBS", 3)
    started, go, done = threading.Event(), threading.Event(), []  # type: tuple[threading.Event, threading.Event, list[int]]
    with Lanes(2) as jobs:
        jobs.submit("slow", lambda: started.set() or go.wait(WAIT))
        assert started.wait(WAIT)  # on the other thread
        for i in range(2):  # with the first, as many as may wait
            jobs.submit(str(i), lambda i=i: done.append(i))
        assert done == []
        for i in range(2, 10):
            jobs.submit(str(i), lambda i=i: done.append(i))
        assert len(done) >= 10 - 3
        go.set()
    assert sorted(done) == list(range(10))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_first_error_is_raised(n: int) -> None:
    done: list[int] = []
    with pytest.raises(ZeroDivisionError), Lanes(n) as jobs:  # noqa: PT012
        for i in range(100):
            jobs.submit("lane", lambda i=i: done.append(i) if i < 7 else 1 // 0)
    assert done == list(range(7))


@pytest.mark.parametrize("lane", ["slow", lanes.KEEP])
def test_the_caller_prefers_quick_lanes(lane: str) -> None:
    """The other threads prefer slow jobs, so that a quick job does not wait for them."""
    started, go, ran = threading.Event(), threading.Event(), []  # type: tuple[threading.Event, threading.Event, list[str]]
    with Lanes(2) as jobs:
        jobs.submit("first", lambda: started.set() or go.wait(WAIT))
        assert started.wait(WAIT)
        for i in range(3):
            jobs.submit(f"slow {i}", lambda i=i: ran.append(f"slow {i}"))
        job = jobs.submit(lane, lambda: ran.append(lane))
        jobs.result(job)
        assert (ran[0] == lane) is (lane in lanes.QUICK)
        go.set()


def test_of_two_errors_the_first_is_raised() -> None:
    both = threading.Barrier(2, timeout=WAIT)
    second = threading.Event()

    def fail(error: type[Exception], *, late: bool) -> None:
        both.wait()
        if late:
            second.wait(WAIT)
        raise error

    jobs = Lanes(3)
    with pytest.raises(KeyError), jobs:  # noqa: PT012
        jobs.submit("a", lambda: fail(KeyError, late=False))
        jobs.submit("b", lambda: fail(IndexError, late=True))
        while jobs._error is None:
            threading.Event().wait(0.001)
        second.set()
        for helper in jobs._helpers:
            helper.join(WAIT)
        jobs.join()


def test_what_is_queued_is_dropped_after_an_error() -> None:
    go, done = threading.Event(), []  # type: tuple[threading.Event, list[int]]
    with pytest.raises(KeyError), Lanes(2) as jobs:  # noqa: PT012
        jobs.submit("lane", lambda: go.wait(WAIT))
        for i in range(5):
            jobs.submit("lane", lambda i=i: done.append(i))
        threading.Timer(0.05, go.set).start()
        raise KeyError
    assert len(done) < 5


@pytest.mark.parametrize("n", [1, 2])
def test_jobs_submit_jobs(n: int) -> None:
    parts: list[Any] = []
    with Lanes(n) as jobs:
        jobs.submit("all", lambda: parts.extend(jobs.submit(str(i), lambda i=i: i * i) for i in range(40)))
        jobs.join()
        assert [part.result for part in parts] == [i * i for i in range(40)]


class Busy:
    """Cores of which none is idle."""

    def take(self) -> bool:
        return False

    def give_back(self) -> None:
        raise AssertionError("no core was taken")


def test_without_an_idle_core_the_caller_works_alone() -> None:
    cores, ran = Busy(), set()  # type: tuple[Busy, set[int]]
    with Lanes(3, cores) as jobs:
        for i in range(50):
            jobs.submit(str(i % 4), lambda: ran.add(threading.get_ident()))
    assert ran == {threading.get_ident()}


def test_whoever_waits_learns_of_an_error() -> None:
    """Also if no lane is ready any more."""
    started, go, raised = threading.Event(), threading.Event(), []  # type: tuple[threading.Event, threading.Event, list[int]]

    def fail() -> None:
        started.set()
        go.wait(WAIT)
        raise KeyError

    def wait() -> None:
        with pytest.raises(KeyError), Lanes(2) as jobs:  # noqa: PT012
            jobs.submit("a", fail)
            started.wait(WAIT)  # on the other thread
            threading.Timer(0.02, go.set).start()
            jobs.wait("a")
        raised.append(1)

    caller = threading.Thread(target=wait, daemon=True)
    caller.start()
    caller.join(WAIT)
    assert raised == [1]


def test_no_job_begins_after_an_error() -> None:
    """Not even on a thread that has just found an idle core."""
    looking, go, ran = threading.Event(), threading.Event(), []  # type: tuple[threading.Event, threading.Event, list[int]]

    class Late(Busy):
        def take(self) -> bool:
            looking.set()
            return go.wait(WAIT)

        def give_back(self) -> None:
            pass

    with pytest.raises(KeyError), Lanes(2, Late()) as jobs:  # noqa: PT012
        jobs.submit("a", lambda: ran.append(1))
        assert looking.wait(WAIT)
        threading.Timer(0.02, go.set).start()
        raise KeyError
    assert ran == []
