"""A thread pool in which the waiting thread runs queued jobs too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")


class Task(Generic[T]):
    """A job that is run by a worker, or by the caller if it needs the result first."""

    def __init__(self, workers: Executor, job: Callable[[], T]) -> None:
        self._job = job
        self._future: Future[T] = workers.submit(job)
        self._results: list[T] = []

    def run(self) -> None:
        """Run the job in the current thread unless a worker has started it."""
        if not self._results and self._future.cancel():
            self._results.append(self._job())

    def result(self) -> T:
        self.run()
        return self._results[0] if self._results else self._future.result()


class ThreadPool:
    """A pool of `threads` threads, the caller included."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # slow to import, and only needed for large texts

        self.threads = threads
        self._workers = ThreadPoolExecutor(max(1, threads - 1))

    def submit(self, job: Callable[[], T]) -> Task[T]:
        """Queue a job; jobs start in the order of submission."""
        return Task(self._workers, job)

    def results(self, tasks: Sequence[Task[T]]) -> list[T]:
        """Run the tasks to completion and return their results in order."""
        for task in tasks:
            task.run()
        return [task.result() for task in tasks]

    def shutdown(self) -> None:
        """Let the workers exit once the queue is empty."""
        self._workers.shutdown(wait=False)
