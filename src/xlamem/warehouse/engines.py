"""Engines, which run tasks on executors with the interface of `concurrent.futures.Executor`.

An engine is a context manager that yields a `Pool`. To add another one (Ray, Slurm, a batch service), register it in
`ENGINES`. Tasks and their results are small and picklable; workers only need access to the files of the dumps and of
the dataset.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .cores import CallerError, Cores, new_numbers
from .memory import total_memory
from .worker_setup import start_worker

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

WORKER_MEMORY = 1 << 30
"""Memory assumed per worker when the number of workers is chosen."""
WORKER_BYTES = 64 << 20
"""Text that a worker reads in about a second, twice the time in which it starts."""
MAX_STARTS = 3
"""Number of times that workers are started, if they are killed while they start."""
WATCH_SECONDS = 1.0
"""Longest time between two looks at which workers there are."""
DASK_TIMEOUT_SECONDS = 30
"""How long to wait for a Dask scheduler."""


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

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Submit a call. If the executor is already broken, return a future with the exception."""
        try:
            return self.executor.submit(function, *args)
        except self.death_errors as error:
            future: Future[Any] = Future()
            future.set_exception(error)
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
        self.starting = [self.pool.submit(os.getpid) for _ in range(self.pool.size)]
        threading.Thread(target=_watch, args=(self.executor,), daemon=True).start()

    def restart(self) -> None:
        self.pool.executor.shutdown(wait=False, cancel_futures=True)
        self._start()

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
        """Wait until all workers have started or one has ended. Raise UsageError if it ended by itself."""
        assert self.executor is not None
        processes = _workers(self.executor)
        try:
            for future in self.starting:
                future.result()
        except BrokenExecutor:
            self.executor.shutdown(wait=True, cancel_futures=True)  # after it, all exit codes are known
            if any(process.exitcode is not None and process.exitcode >= 0 for process in processes):
                raise UsageError(
                    "worker processes cannot be started; in a script, call convert under "
                    "if __name__ == '__main__': (or with engine='here', which needs no other process)"
                ) from None
            return False
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


def default_workers() -> int:
    """Return the number of available cores, limited by the available memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, total_memory() // WORKER_MEMORY))


@contextmanager
def dask(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """Run tasks on the Dask cluster of a scheduler, or by default on a local cluster."""
    try:
        from distributed import Client, LocalCluster
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise UsageError("the engine dask needs Dask: pip install 'xlamem[dask]'") from error

    with ExitStack() as stack:
        if scheduler is None:
            cluster = LocalCluster(n_workers=workers or default_workers(), threads_per_worker=1, dashboard_address=None)
            stack.enter_context(cluster)
        try:
            client = stack.enter_context(
                Client(scheduler or cluster, set_as_default=False, timeout=DASK_TIMEOUT_SECONDS)
            )
        except OSError as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        threads = sum(w["nthreads"] for w in client.scheduler_info(n_workers=-1)["workers"].values())
        errors = (BrokenExecutor, MemoryError, KilledWorker, CancelledError)
        executor = client.get_executor(pure=False)
        yield Pool(executor, workers or max(1, threads), errors, kill=lambda: executor.shutdown(wait=False))


ENGINES: dict[str, Engine] = {"local": local, "dask": dask, "here": in_process}
