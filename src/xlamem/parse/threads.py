"""A thread pool in which the waiting thread runs queued jobs too."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")


def default_threads() -> int:
    """Return how many threads read a dump, unless the caller says otherwise."""
    return min(os.cpu_count() or 1, 4)


class Task(Generic[T]):
    """A job that is run by a worker, or by the caller if it needs the result first."""

    def __init__(self, workers: Executor, job: Callable[[], T]) -> None:
        self._job = job
        self._process = os.getpid()
        self._future: Future[T] = workers.submit(job)
        self._results: list[T] = []

    def __del__(self) -> None:
        self._future.cancel()  # the result is no longer needed

    def run(self) -> None:
        """Run the job in the current thread unless a worker has started it."""
        if not self._results and (self._is_forked or self._future.cancel()):
            self._results.append(self._job())

    def result(self) -> T:
        self.run()
        return self._results[0] if self._results else self._future.result()

    @property
    def _is_forked(self) -> bool:
        """Whether this process is a child of the one with the workers, in which there are none."""
        return self._process != os.getpid()


class ThreadPool:
    """A pool of `threads` threads, the caller included. The workers exit when they are released and have no jobs."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._workers: Executor | None = None

    def submit(self, job: Callable[[], T]) -> Task[T]:
        """Queue a job; jobs start in the order of submission."""
        if self._workers is None:
            from concurrent.futures import ThreadPoolExecutor  # slow to import, and only needed for large texts

            self._workers = ThreadPoolExecutor(max(1, self.threads - 1))
        return Task(self._workers, job)

    def run(self, tasks: Sequence[Task[T]]) -> None:
        """Run the tasks to completion."""
        for _ in self.results(tasks):
            pass

    def results(self, tasks: Sequence[Task[T]]) -> Iterator[T]:
        """Run the tasks, and yield their results in order, each as soon as it is there."""
        for task in tasks:
            task.run()
        for task in tasks:
            yield task.result()

    def release(self) -> None:
        """Let the workers exit once the queue is empty. The next job starts new ones."""
        if self._workers is not None:
            self._workers.shutdown(wait=False)
            self._workers = None
