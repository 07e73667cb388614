"""Threads that work on one dump together; whoever waits for them is one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

T = TypeVar("T")


class Task(Generic[T]):
    """A job that a thread of the crew does, or whoever wants its result first."""

    def __init__(self, workers: Executor, job: Callable[[], T]) -> None:
        self._job = job
        self._future: Future[T] = workers.submit(job)
        self._own: list[T] = []

    def help(self) -> None:
        """Do it here and now unless somebody has begun."""
        if not self._own and self._future.cancel():
            self._own.append(self._job())

    def result(self) -> T:
        self.help()
        return self._own[0] if self._own else self._future.result()


class Crew:
    """As many threads as are allowed, the caller's included."""

    def __init__(self, threads: int) -> None:
        from concurrent.futures import ThreadPoolExecutor  # seldom needed: only large texts have several spans

        self.threads = threads
        self._workers = ThreadPoolExecutor(max(1, threads - 1))

    def begin(self, job: Callable[[], T]) -> Task[T]:
        """What is begun first is done first."""
        return Task(self._workers, job)

    def results(self, tasks: Sequence[Task[T]]) -> list[T]:
        """What the tasks give, in their order."""
        for task in tasks:
            task.help()
        return [task.result() for task in tasks]

    def leave(self) -> None:
        """Let the threads go when they have done what was begun."""
        self._workers.shutdown(wait=False)
