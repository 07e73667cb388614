"""The thread pool: whoever runs a job, once, and what becomes of its exception."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from xlamem.parse import threads
from xlamem.parse.threads import ThreadPool


def joined(before: set[threading.Thread]) -> bool:
    """Wait for the workers; return whether they ended."""
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    return set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_job_runs_once(threads: int) -> None:
    before, pool = set(threading.enumerate()), ThreadPool(threads)
    for _ in range(20):  # workers end between the rounds, or do not
        ran: list[int] = []

        def job(i: int) -> Callable[[], int]:
            return lambda: ran.append(i) or i * i  # noqa: B023

        tasks = [pool.submit(job(i)) for i in range(50)]
        assert list(pool.results(tasks)) == [i * i for i in range(50)]
        assert [task.result() for task in tasks] == [i * i for i in range(50)]
        assert sorted(ran) == list(range(50))
    assert joined(before)


def test_jobs_start_in_order() -> None:
    before, pool, go = set(threading.enumerate()), ThreadPool(2), threading.Event()
    ran: list[int] = []
    tasks = [pool.submit(lambda: go.wait(60)), *(pool.submit(lambda i=i: ran.append(i)) for i in range(9))]  # type: ignore[misc]
    go.set()
    assert joined(before)
    assert ran == list(range(9))
    assert len(tasks) == 10


def test_at_most_so_many_threads_run_jobs() -> None:
    pool, barrier = ThreadPool(3), threading.Barrier(3)
    before = threading.active_count()
    tasks = [pool.submit(barrier.wait) for _ in range(3)]
    pool.run(tasks)  # the caller and two workers; fewer would wait for ever
    tasks = [pool.submit(threading.active_count) for _ in range(50)]
    assert max(pool.results(tasks)) <= before + 2


def test_an_exception_of_a_worker_is_raised_by_each_call() -> None:
    pool, started, runs = ThreadPool(2), threading.Event(), []

    def fail() -> None:
        runs.append(threading.current_thread())
        started.set()
        raise KeyError("x")

    task = pool.submit(fail)
    assert started.wait(60)
    for _ in range(2):
        with pytest.raises(KeyError):
            task.result()
    assert len(runs) == 1
    assert runs[0] is not threading.main_thread()


def test_what_the_caller_interrupts_can_be_run_again() -> None:
    pool, go, runs = ThreadPool(2), threading.Event(), []

    def interrupted() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise KeyboardInterrupt
        return 7

    first, task = pool.submit(lambda: go.wait(60)), pool.submit(interrupted)
    with pytest.raises(KeyboardInterrupt):
        task.run()
    go.set()
    assert (first.result(), task.result()) == (True, 7)


def test_without_threads_the_caller_runs_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pool = ThreadPool(4)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", full)
        tasks = [pool.submit(threading.current_thread) for _ in range(5)]
        assert set(pool.results(tasks)) == {threading.main_thread()}
    go = threading.Event()
    later = pool.submit(go.set)  # there are threads again
    assert go.wait(60)
    later.result()


def test_a_process_ends_with_jobs_in_the_queue() -> None:
    code = """
import time
from xlamem.parse.threads import ThreadPool
pool = ThreadPool(2)
tasks = [pool.submit(lambda: time.sleep(0.01)) for _ in range(20)]
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_no_slow_import_before_two_threads_read() -> None:
    code = "import sys, xlamem; from xlamem.parse import whole; print('concurrent.futures' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_forked_child_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may hold the lock while a process forks; in the child, nobody would release it."""
    pool = ThreadPool(2)
    pool.submit(lambda: 1).result()
    pool._lock = pool._queue = None  # type: ignore[assignment]
    monkeypatch.setattr(threads.os, "getpid", lambda: -1)
    task = pool.submit(lambda: 2)
    assert task.result() == 2
