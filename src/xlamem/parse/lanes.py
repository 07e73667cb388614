"""Lanes of jobs on several threads: the jobs of one lane run in turn, those of different lanes at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from threading import Condition, Thread, get_ident
from types import TracebackType
from typing import Any, Protocol, TypeVar

MAX_JOBS = 12
"""Maximum number of jobs that are queued or running, which limits the memory of the rows that they refer to."""
AHEAD, KEEP = "ahead", "keep"
QUICK = (AHEAD, KEEP)
"""Lanes for whose jobs the caller soon waits."""
ITEMS_AHEAD = 2
"""Number of items that are computed before they are needed, so that the thread that needs them does not wait."""
WAIT_SECONDS = 0.05
"""How long a thread waits before it looks for an idle core again."""

T = TypeVar("T")
_END: Any = object()


class IdleCores(Protocol):
    """The cores that other work leaves idle."""

    def take(self) -> bool:
        """Take a core if one is idle."""

    def give_back(self) -> None: ...


class Job:
    """A call and its result."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call: Callable[[], Any] | None = call
        self.done = False
        self.result: Any = None

    def run(self) -> None:
        assert self.call is not None
        self.result, self.call = self.call(), None  # what the call refers to is released


class Lanes:
    """Runs jobs on `threads` threads, the caller included, which takes part while it waits.

    The caller prefers the lanes in QUICK, the other threads, which work only while they can take one of `cores`, prefer
    the others. With one thread, each job runs when it is submitted. The first exception of a job is raised by the next
    call, and no further jobs are run.
    """

    def __init__(self, threads: int = 1, cores: IdleCores | None = None) -> None:
        self.threads = threads
        self._owner, self._cores = get_ident(), cores
        self._changed = Condition()
        self._queues: dict[str, deque[Job]] = {}
        """The jobs of each lane that has some, the one that is running first."""
        self._ready: deque[str] = deque()
        """The lanes of which no job is running."""
        self._jobs = 0
        self._error: BaseException | None = None
        self._closed = False
        self._helpers = [Thread(target=self._help, name="xlamem", daemon=True) for _ in range(threads - 1)]
        for helper in self._helpers:
            helper.start()

    def submit(self, lane: str, call: Callable[[], Any]) -> Job:
        """Queue a call. Take part in the work while there are more jobs than MAX_JOBS."""
        job = Job(call)
        with self._changed:
            self._raise_error()
            self._jobs += 1
            if lane in self._queues:
                self._queues[lane].append(job)
            else:
                self._queues[lane] = deque([job])
                self._add_ready(lane)
                self._changed.notify()
        if not self._helpers:
            self._work_while(lambda: bool(self._ready))
        elif get_ident() == self._owner:  # a job may submit others without waiting for them
            self._work_while(lambda: self._jobs > MAX_JOBS)
        return job

    def result(self, job: Job) -> Any:
        """Wait for a job and return its result."""
        self._work_while(lambda: not job.done)
        return job.result

    def wait(self, lane: str) -> None:
        """Wait for the jobs of a lane."""
        self._work_while(lambda: lane in self._queues)

    def join(self) -> None:
        """Wait for all jobs."""
        self._work_while(lambda: self._jobs > 0)

    def ahead(self, items: Iterator[T]) -> Iterator[T]:
        """Yield the items of an iterator. The next ones are computed while the caller works with one."""
        if not self._helpers:
            yield from items
            return
        jobs = deque(self.submit(AHEAD, lambda: next(items, _END)) for _ in range(ITEMS_AHEAD))
        while (item := self.result(jobs.popleft())) is not _END:
            jobs.append(self.submit(AHEAD, lambda: next(items, _END)))
            yield item

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for all jobs, or after an exception only for those that are running, and end the threads."""
        try:
            if error is None:
                self.join()
        finally:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
            for helper in self._helpers:
                helper.join()

    # -- working

    def _work_while(self, condition: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                self._raise_error()
                if not condition():
                    return
                if not self._ready:
                    self._changed.wait()
                    continue
            self._run_next()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _help(self) -> None:
        while self._wait_for_job():
            if self._cores is None:
                self._run_next()
            elif self._cores.take():
                try:
                    self._run_next()
                finally:
                    self._cores.give_back()
            else:
                self._pause()

    def _wait_for_job(self) -> bool:
        """Wait until a lane is ready; return False if there will be none."""
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._closed or self._error)
            return not (self._closed or self._error)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._error, WAIT_SECONDS)

    def _run_next(self) -> None:
        """Run the first job of a lane that is ready, if any."""
        with self._changed:
            if not self._ready or self._closed:
                return
            lane = self._ready.pop() if get_ident() == self._owner else self._ready.popleft()
            job = self._queues[lane][0]
        try:
            job.run()
        except BaseException as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
            return
        with self._changed:
            job.done = True
            self._jobs -= 1
            queue = self._queues[lane]
            queue.popleft()
            if queue:
                self._add_ready(lane)
            else:
                del self._queues[lane]
            self._changed.notify_all()

    def _add_ready(self, lane: str) -> None:
        if lane in QUICK:
            self._ready.append(lane)
        else:
            self._ready.appendleft(lane)
