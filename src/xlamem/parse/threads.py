"""A thread pool in which the waiting thread runs queued jobs too.

Importing `concurrent.futures` takes as long as reading 10 MB of text.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from threading import Lock, Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def default_threads() -> int:
    """Return how many threads read a dump, unless the caller says otherwise."""
    return min(os.cpu_count() or 1, 4)


class Task(Generic[T]):
    """A job that is run by a worker, or by the caller if it needs the result first."""

    def __init__(self, job: Callable[[], T]) -> None:
        self._job = job
        self._process = os.getpid()
        self._running = Lock()
        """Held by the thread that runs the job."""
        self._results: list[T] = []
        self._error: BaseException | None = None
        """The exception of a worker. One in the thread of the caller is raised there, and the job can be run again."""

    def run(self) -> None:
        """Run the job in the current thread unless a worker has started it."""
        if self._is_forked:
            self._run()
        elif self._running.acquire(blocking=False):
            try:
                self._run()
            finally:
                self._running.release()

    def run_by_worker(self) -> None:
        """Run the job unless another thread has started it; keep its exception for the caller."""
        if self._running.acquire(blocking=False):
            try:
                self._run()
            except BaseException as error:
                self._error = error
            finally:
                self._running.release()

    def result(self) -> T:
        """Return the result, after running the job or waiting for the worker that runs it."""
        if self._is_forked:
            self._run()
        else:
            with self._running:
                self._run()
        if self._error is not None:
            raise self._error
        return self._results[0]

    @property
    def is_done(self) -> bool:
        return bool(self._results) or self._error is not None

    def _run(self) -> None:
        if not self.is_done:
            self._results.append(self._job())

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a child of the one with the workers, in which there are none."""
        return self._process != os.getpid()


class ThreadPool:
    """A pool of `threads` threads, the caller included. Workers start when there are jobs, and end when there are none.

    A job is dropped from the queue if its task is.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._queue: deque[weakref.ref[Task[Any]]] = deque()
        self._workers = 0

    def submit(self, job: Callable[[], T]) -> Task[T]:
        """Queue a job; jobs start in the order of submission."""
        if self._process != os.getpid():  # a forked child has no workers
            self._reset()
        task = Task(job)
        with self._lock:
            self._queue.append(weakref.ref(task))
            starts = self._workers < max(1, self.threads - 1)
            self._workers += starts
        if starts:
            self._start_worker()
        return task

    def _start_worker(self) -> None:
        try:
            Thread(target=self._work, name="xlamem").start()
        except RuntimeError:  # the system starts no more threads: the caller runs the jobs
            with self._lock:
                self._workers -= 1

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._workers -= 1
                    return
                task = self._queue.popleft()()
            if task is not None:
                task.run_by_worker()
            del task  # and its result

    def run(self, tasks: Sequence[Task[T]]) -> None:
        """Run the tasks to completion."""
        for _ in self.results(tasks):
            pass

    def results(self, tasks: Sequence[Task[T]]) -> Iterator[T]:
        """Run the tasks, and yield their results in order, each as soon as it is there."""
        rest = iter(tasks)
        for task in tasks:
            while not task.is_done and (other := next(rest, None)) is not None:
                other.run()
            yield task.result()
