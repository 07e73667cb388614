"""The cores of a machine that the workers of a run share, and how far each worker is in a large dump.

NumPy must not be imported here: worker processes are configured before they import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any

MAX_THREADS = 8
"""Maximum number of threads for one dump. Further ones would wait for the one that assembles the tables."""
STARTED, WORKING, READ = 0, 1, 2
"""Items of `Cores.numbers`: workers that have started, threads that work, and bytes read by each worker."""


class CallerError(BaseException):
    """Carries an exception of the caller's `progress` through a task, which would take it for an error of the dump."""


class Cores:
    """Counts the threads that work. That of a task always may; further ones only on cores that are idle."""

    def __init__(self, size: int = 1, numbers: MutableSequence[int] | None = None, lock: Any = None) -> None:
        """Share `size` cores. If the workers are processes, `numbers` (see `new_numbers`) and `lock` are shared."""
        self.size = size
        self.numbers = new_numbers(size) if numbers is None else numbers
        self.lock = lock or Lock()
        self.worker = 0
        self.report: Callable[[], None] | None = None
        """Called when a worker in this process has read more."""

    @property
    def threads(self) -> int:
        """The number of threads for a dump if no other one is being converted."""
        return min(self.size, MAX_THREADS)

    def start_worker(self) -> None:
        """Give this process a number among the workers."""
        with self.lock:
            self.worker = self.numbers[STARTED] % self.size
            self.numbers[STARTED] += 1
        _CURRENT.set(self)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use these cores for the tasks of this thread."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    # -- threads

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the thread of a task while it runs."""
        with self.lock:
            self.numbers[WORKING] += 1
        try:
            yield
        finally:
            self.give_back()
            self.numbers[READ + self.worker] = 0

    def take(self) -> bool:
        """Take a core if one is idle."""
        with self.lock:
            is_idle = self.numbers[WORKING] < self.size
            self.numbers[WORKING] += is_idle
        return is_idle

    def give_back(self) -> None:
        """Return a core that was taken."""
        with self.lock:
            self.numbers[WORKING] -= 1

    # -- progress

    def set_read(self, size: int) -> None:
        """Record how many bytes this worker has read of the dump that it is converting."""
        self.numbers[READ + self.worker] = size
        if self.report:
            try:
                self.report()
            except Exception as error:
                raise CallerError from error

    @property
    def read(self) -> int:
        """Bytes read of the dumps that are being converted."""
        return sum(self.numbers[READ:])


def new_numbers(size: int) -> list[int]:
    """Return the initial `numbers` of `size` cores."""
    return [0] * (READ + size)


_CURRENT: ContextVar[Cores] = ContextVar("cores")


def current() -> Cores:
    """Return the cores for the tasks of this thread: by default, one."""
    return _CURRENT.get(None) or Cores()
