"""The engines `dask` and `ray`: workers of a cluster, which need access to the dumps and to the dataset."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ..errors import UsageError, XlaMemError
from .pool import Pool, default_workers

DASK_TIMEOUT_SECONDS = 30
"""How long to wait for a Dask scheduler."""
RAY_TIMEOUT_SECONDS = 30
"""How long to wait for the head of a Ray cluster; Ray itself would wait for minutes."""


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
        address = client.scheduler.address

        lost = UsageError(
            f"the Dask scheduler at {address} does not answer any more; what was committed is kept: repeat the command"
        )

        def threads() -> int:
            if client.status in ("closing", "closed"):
                raise lost
            # All workers can be gone: Dask does not restart one that dies before its nanny knows that it has started.
            return sum(w["nthreads"] for w in client.scheduler_info(n_workers=-1).get("workers", {}).values())

        def kill() -> None:
            if client.status == "running":  # otherwise nothing can be cancelled
                executor.shutdown(wait=False)

        errors = (BrokenExecutor, MemoryError, KilledWorker, CancelledError)
        executor = client.get_executor(pure=False)
        try:
            yield Pool(executor, workers or max(1, threads()), errors, kill=kill, count_workers=threads)
        except Exception as error:
            if client.status == "closed" and not isinstance(error, XlaMemError):  # a task cannot be submitted any more
                raise lost from error
            raise


@contextmanager
def ray(workers: int | None = None, scheduler: str | None = None) -> Iterator[Pool]:
    """Run tasks on the Ray cluster at an address, or that of RAY_ADDRESS, or by default on a local cluster.

    A process that is connected to a cluster already uses it, and stays connected.
    """
    try:
        import ray as library
    except ImportError as error:
        raise UsageError("the engine ray needs Ray: pip install 'xlamem[ray]'") from error

    with ExitStack() as stack:
        if not library.is_initialized():
            _connect(library, scheduler or os.environ.get("RAY_ADDRESS") or "local", workers)
            stack.callback(library.shutdown)
        executor = stack.enter_context(_RayExecutor(library))

        def cores() -> int:
            return int(library.cluster_resources().get("CPU", 0))

        kinds = library.exceptions
        deaths = kinds.WorkerCrashedError, kinds.OutOfMemoryError, kinds.NodeDiedError, kinds.ObjectLostError
        errors = BrokenExecutor, MemoryError, *deaths
        pool = Pool(executor, workers or max(1, cores()), errors, kill=executor.kill, count_workers=cores)
        first = pool.ended(pool.submit(default_workers))
        if failure := first.exception():  # without workers, or xlamem there, each dump would seem to kill its worker
            raise UsageError(f"the Ray cluster cannot start workers: {type(failure).__name__}: {failure}") from failure
        pool.size = workers or max(1, cores())
        yield pool


def _connect(library: Any, address: str, workers: int | None) -> None:
    options = {"num_cpus": workers or default_workers(), "include_dashboard": False} if address == "local" else {}
    try:
        if head := re.fullmatch(r"\[?([^/]+?)\]?:(\d+)", address):
            socket.create_connection((head[1], int(head[2])), RAY_TIMEOUT_SECONDS).close()
        library.init(address, log_to_driver=False, logging_level="error", **options)
    except (OSError, ValueError, RuntimeError) as error:  # ConnectionError is an OSError
        raise UsageError(f"no Ray cluster answers at {address}: {error}") from error


class _RayExecutor(Executor):
    """Submits calls as Ray tasks, which are not repeated when a worker dies."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.functions: dict[Callable[..., Any], Any] = {}
        """Remote functions, each of which Ray sends to its workers once."""
        self.running: dict[Future[Any], Any] = {}
        """The references of tasks that have not ended."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if function not in self.functions:
            self.functions[function] = self.library.remote(max_retries=0)(function)
        reference = self.functions[function].remote(*args, **kwargs)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self.running[future] = reference
        reference.future().add_done_callback(partial(self._end, future))
        return future

    def _end(self, future: Future[Any], ended: Future[Any]) -> None:
        del self.running[future]
        if (error := ended.exception()) is None:
            future.set_result(ended.result())
        else:
            future.set_exception(getattr(error, "cause", None) or error)  # the task's own exception, if it raised one

    def kill(self) -> None:
        """Kill the workers of all tasks that are running."""
        for reference in [*self.running.values()]:
            self.library.cancel(reference, force=True)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.kill()
