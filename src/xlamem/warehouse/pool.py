"""Pools of workers: executors with the interface of `concurrent.futures.Executor`, and how their workers die."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import UsageError
from .cores import CallerError, Cores
from .memory import total_memory

WORKER_MEMORY = 1 << 30
"""Memory assumed per worker when the number of workers is chosen."""
WAIT_SECONDS = 1.0
"""Longest time to wait for a task before anything else is done."""
NO_WORKER_SECONDS = 600.0
"""How long to wait for a worker when a cluster has none: more may be starting."""

T = TypeVar("T")


@dataclass
class Pool:
    """An executor, and how to detect and handle the death of its workers."""

    executor: Executor
    size: int
    """Number of tasks that run at the same time."""
    death_errors: tuple[type[BaseException], ...] = (BrokenExecutor, MemoryError)
    """Exceptions that indicate that a worker died."""
    restart: Callable[[], None] = lambda: None
    """Make the executor usable again after a worker died."""
    kill: Callable[[], None] = lambda: None
    """Stop all workers at once."""
    start: Callable[[int], None] = lambda text_bytes: None
    """Start the workers, unless there is so little text that this process reads it sooner. May be called again."""
    cores: Cores = field(default_factory=Cores)
    """The cores that the workers share, if they are on this machine."""
    count_workers: Callable[[], int] = lambda: 1
    """Return the number of workers, of an executor that waits for others if it has none."""
    last_sign: float = field(default_factory=time.monotonic)
    """When a task ended, or there was a worker."""

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Submit a call. If the executor is already broken, return a future with the exception."""
        try:
            return self.executor.submit(function, *args)
        except self.death_errors as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def completed(self, futures: Iterable[Future[T]]) -> set[Future[T]]:
        """Wait a moment for one of these calls to end; return those that have. Raises UsageError if none ever will."""
        done, _ = wait(futures, timeout=WAIT_SECONDS, return_when=FIRST_COMPLETED)
        if done or self.count_workers():
            self.last_sign = time.monotonic()
        elif time.monotonic() - self.last_sign > NO_WORKER_SECONDS:
            raise UsageError(
                f"the cluster has had no worker for {NO_WORKER_SECONDS:.0f} seconds; what was committed is kept: start "
                "workers, and repeat the command"
            )
        return done

    def ended(self, future: Future[T]) -> Future[T]:
        """Wait for a call to end."""
        while not self.completed([future]):
            pass
        return future


Engine = Callable[[int | None, str | None], AbstractContextManager[Pool]]


class InProcessExecutor(Executor):
    """Runs each call immediately in this process, on `cores` if it has several threads."""

    def __init__(self, cores: Cores | None = None) -> None:
        self.cores = cores or Cores()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            with self.cores.used():
                future.set_result(function(*args, **kwargs))
        except CallerError as error:
            raise error.__cause__ or error from None
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def in_process(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """Run tasks in this process: for a few dumps, or for storage that other processes cannot access."""
    cores = Cores(workers or default_workers())
    yield Pool(InProcessExecutor(cores), 1, cores=cores)


def default_workers() -> int:
    """Return the number of available cores, limited by the available memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, total_memory() // WORKER_MEMORY))
