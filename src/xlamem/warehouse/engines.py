"""Where jobs run: anything with the interface of `concurrent.futures.Executor`.

An engine is a function that gives a context manager over a `Pool`. Another one (Ray, Slurm, a batch service) is
one more such function in `ENGINES`: jobs and manifest rows are small and can be pickled, workers need only the
paths of the dumps and of the destination. Exceptions that say that a worker died belong in `Pool.deadly`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError

MEMORY = 1 << 30
"""Bytes that a worker may need; there are no more workers than fit into the memory."""


CONNECT = 30
"""Seconds after which a Dask scheduler that does not answer is not there."""


@dataclass
class Pool:
    """An executor, how many jobs it does at a time, and how the death of a worker shows."""

    executor: Executor
    width: int
    deadly: tuple[type[BaseException], ...] = field(default=(BrokenExecutor, MemoryError))
    renew: Callable[[], None] = lambda: None
    """Make the executor usable again after a worker died."""
    kill: Callable[[], None] = lambda: None
    """Stop what runs, at once."""
    ready: Callable[[], None] = lambda: None
    """Wait until the workers are there; they come while something else is done."""

    def submit(self, fn: Callable[..., Any], *args: Any) -> Future[Any]:
        """As the executor's, but a pool that is found broken shows in the future."""
        try:
            return self.executor.submit(fn, *args)
        except self.deadly as error:
            future: Future[Any] = Future()
            future.set_exception(error)
            return future


Engine = Callable[[int | None, str | None], AbstractContextManager[Pool]]


class _Here(Executor):
    """Runs each job at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def here(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """This process: for a few dumps, and where no other process sees the files."""
    yield Pool(_Here(), 1)


@contextmanager
def local(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """Processes of this machine, started afresh (not forked), which end when this one does."""
    import multiprocessing

    width = workers or default_workers()
    beginning: list[Future[int]] = []

    def start() -> list[Future[int]]:
        context = multiprocessing.get_context("spawn")
        pool.executor = ProcessPoolExecutor(width, mp_context=context, initializer=_begin)
        with _one_thread():
            return [pool.executor.submit(os.getpid) for _ in range(width)]

    def renew() -> None:
        pool.executor.shutdown(wait=False, cancel_futures=True)
        start()

    def kill() -> None:
        processes = getattr(pool.executor, "_processes", None) or {}
        for process in list(processes.values()):
            process.kill()

    def ready() -> None:
        nonlocal beginning
        for last in (False, True):
            try:
                for began in beginning:
                    began.result()
                return
            except BrokenExecutor:
                if last:
                    raise UsageError(
                        "no worker process can be started; in a script, convert must be called under "
                        "if __name__ == '__main__': (or with engine='here', which needs no other process)"
                    ) from None
                beginning = start()  # one may have been killed by something else

    pool = Pool(_Here(), width, renew=renew, kill=kill, ready=ready)
    beginning = start()
    try:
        yield pool
    finally:
        pool.executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that are started here get no threads for linear algebra, which turn on the spot for a tenth of a
    second before they find that there is none."""
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _begin() -> None:
    """In each worker: Ctrl-C is for the one who leads, and without that one there is nothing to do."""
    import multiprocessing

    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401  # while the leader still looks for dumps

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def default_workers() -> int:
    """As many as cores that this process may use, and as fit into the memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, memory() // MEMORY))


def memory() -> int:
    """Bytes of memory: of the machine, or of the container if that has less."""
    found = [1 << 62]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                found.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(found)


@contextmanager
def dask(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """A Dask cluster: the scheduler's address, or without one a cluster of this machine."""
    try:
        from distributed import Client, LocalCluster
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise UsageError("the engine dask needs Dask: pip install 'xlamem[dask]'") from error
    from contextlib import ExitStack

    with ExitStack() as stack:
        if scheduler is None:
            cluster = LocalCluster(
                n_workers=workers or default_workers(), threads_per_worker=1, dashboard_address=None
            )
            stack.enter_context(cluster)
        try:
            client = stack.enter_context(Client(scheduler or cluster, set_as_default=False, timeout=CONNECT))
        except OSError as error:
            raise UsageError(f"no Dask scheduler answers at {scheduler}: {error}") from error
        threads = sum(w["nthreads"] for w in client.scheduler_info(n_workers=-1)["workers"].values())
        deadly = (BrokenExecutor, MemoryError, KilledWorker, CancelledError)
        executor = client.get_executor(pure=False)
        yield Pool(executor, workers or max(1, threads), deadly, kill=lambda: executor.shutdown(wait=False))


ENGINES: dict[str, Engine] = {"local": local, "dask": dask, "here": here}
