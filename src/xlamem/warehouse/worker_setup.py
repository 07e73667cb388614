"""Configure worker processes. They run nothing but tasks, so process-wide settings are safe."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .cores import Cores


def start_worker(cores: Cores) -> None:
    """Configure a new worker process, which shares `cores` with the others."""
    cores.start_worker()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy starts a thread per core
    import pyarrow.parquet  # noqa: F401  # imported while the driver is still looking for dumps

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    _exit_with_parent()
    # Searching thousands of tables for garbage takes 8 % of the CPU time for small dumps. `worker` collects explicitly.
    gc.disable()
    if sys.platform == "linux":
        gc.callbacks.append(_trim_heap)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Start processes in this block, so that Ctrl-C does not end them before `start_worker` ignores it.

    A new process inherits the signals that are blocked. The calling process handles Ctrl-C after the block.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _exit_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _trim_heap(phase: str, info: dict[str, Any]) -> None:
    """Return free pages of the heap to the system after each full collection."""
    if phase == "stop" and info["generation"] == 2:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only in glibc
        if trim is not None:
            trim(0)
