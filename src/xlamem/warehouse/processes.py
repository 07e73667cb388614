"""The engine `local`: worker processes on this machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import UsageError
from .cores import Cores, new_numbers
from .pool import InProcessExecutor, Pool, default_workers
from .worker_setup import interrupts_blocked, start_worker

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

WORKER_BYTES = 64 << 20
"""Text that a worker reads in about a second, twice the time in which it starts."""
MAX_STARTS = 3
"""Number of times that workers are started, if they are killed while they start."""
WATCH_SECONDS = 1.0
"""Longest time between two looks at which workers there are."""


@contextmanager
def local(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """Run tasks in spawned processes on this machine, which exit together with this one.

    Without a number of `workers`, there are as many as the cores, the memory and the amount of text suggest. Instead of
    a single one, this process runs the tasks.
    """
    processes = _Processes(workers)
    try:
        yield processes.pool
    finally:
        processes.pool.executor.shutdown(wait=True, cancel_futures=True)


class _Processes:
    """A pool of worker processes; until they are started, this process runs the tasks."""

    def __init__(self, workers: int | None) -> None:
        self.workers = workers
        self.here = InProcessExecutor()
        self.pool = Pool(
            self.here, 1, restart=self.restart, kill=self.kill, start=self.start, cores=self.here.cores
        )
        self.executor: ProcessPoolExecutor | None = None
        self.starting: list[Future[int]] = []
        self.have_started = False
        """Whether workers were ready once."""

    def start(self, text_bytes: int) -> None:
        size = self.workers or min(default_workers(), text_bytes // WORKER_BYTES)
        if self.executor is None and text_bytes and size > (self.workers is None):
            self.pool.size = size
            self._start()
            self._wait_until_ready()

    def _start(self) -> None:
        import multiprocessing

        context, size = multiprocessing.get_context("spawn"), self.pool.size
        shared = size, context.RawArray("q", new_numbers(size)), context.Lock()
        self.pool.cores, cores = Cores(*shared), Cores(*shared)
        self.executor = ProcessPoolExecutor(size, mp_context=context, initializer=start_worker, initargs=(cores,))
        self.pool.executor = self.executor
        with interrupts_blocked():
            self.starting = [self.pool.submit(os.getpid) for _ in range(self.pool.size)]
        threading.Thread(target=_watch, args=(self.executor,), daemon=True).start()

    def restart(self) -> None:
        self.pool.executor.shutdown(wait=False, cancel_futures=True)
        self._start()
        self._wait_until_ready()

    def kill(self) -> None:
        if self.executor is not None:
            with self.executor._shutdown_lock:
                _kill(self.executor)

    def _wait_until_ready(self) -> None:
        """Wait for the workers. Start them again if they are killed; in the end, do without them."""
        starts = 1
        while not self._are_ready():
            if starts == MAX_STARTS:
                return self._run_here()
            starts += 1
            self._start()

    def _are_ready(self) -> bool:
        """Wait until all workers have started or one has ended.

        Raise UsageError if it ended by itself, unless workers could be started before.
        """
        assert self.executor is not None
        processes = _workers(self.executor)
        try:
            for future in self.starting:
                future.result()
        except BrokenExecutor:
            self.executor.shutdown(wait=True, cancel_futures=True)  # after it, all exit codes are known
            ended = any(process.exitcode is not None and process.exitcode >= 0 for process in processes)
            if ended and not self.have_started:
                raise UsageError(
                    "worker processes cannot be started; in a script, call convert under "
                    "if __name__ == '__main__': (or with engine='here', which needs no other process)"
                ) from None
            return False
        self.have_started = True
        return True

    def _run_here(self) -> None:
        """Run the tasks in this process: a system without memory for a worker kills each one that starts."""
        self.executor = None
        self.pool.executor, self.pool.size, self.pool.cores = self.here, 1, self.here.cores


def _watch(executor: ProcessPoolExecutor) -> None:
    """Kill the workers of an executor when one of them dies.

    The executor notices a death by itself, unless it is reading a result: it then waits for the rest of it forever.
    """
    from multiprocessing import connection

    while not executor._shutdown_thread:
        sentinels = [process.sentinel for process in _workers(executor)]
        if connection.wait(sentinels, WATCH_SECONDS):
            with executor._shutdown_lock:
                if not executor._shutdown_thread:
                    _kill(executor)
            return


def _kill(executor: ProcessPoolExecutor) -> None:
    """Kill all workers. This process closes its end of their pipe too, so that the executor reads no further.

    The caller holds the lock with which the executor starts workers and shuts down.
    """
    executor._broken = "a worker died"  # type: ignore[assignment]  # it starts no further workers
    for process in _workers(executor):
        process.kill()
    if (results := executor._result_queue) is not None:
        results._writer.close()  # type: ignore[attr-defined]


def _workers(executor: ProcessPoolExecutor) -> list[BaseProcess]:
    return list((executor._processes or {}).values())  # None after a shutdown
