"""Temporary storage on disk for tables and long-lived arrays of a dump that does not fit into memory."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import output_error

REGION_BYTES = 64 << 20
"""Minimum size of the files from which arrays are allocated."""


class Scratch:
    """Allocates NumPy arrays in unlinked, memory-mapped temporary files (in TMPDIR).

    Under memory pressure, the kernel writes their pages to disk. A file is freed together with its last array. Threads
    may share an object.
    """

    def __init__(self) -> None:
        self._region, self._used = np.empty(0, np.uint8), 0
        self._lock = threading.Lock()

    def empty(self, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialized array, as `np.empty` does."""
        size = n * np.dtype(dtype).itemsize
        with self._lock:
            if self._used + size > len(self._region):
                self._region, self._used = _map_region(max(REGION_BYTES, size)), 0
            array = self._region[self._used : self._used + size]
            self._used += -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        return array.view(dtype)


def _map_region(size: int) -> npt.NDArray[np.uint8]:
    """Map `size` bytes of a temporary file, or allocate them in memory if that fails."""
    try:
        with tempfile.TemporaryFile() as file:
            _reserve(file, size)
            return np.memmap(file, np.uint8, "r+", shape=(size,)).view(np.ndarray)
    except OSError:
        return np.empty(size, np.uint8)


def _reserve(file: Any, size: int) -> None:
    """Allocate the blocks of a file, because writing to a mapped page without a block would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    for begin in range(0, size, mmap.PAGESIZE):
        file.write(bytes(min(mmap.PAGESIZE, size - begin)))
    file.flush()


class Spill(ExitStack):
    """Tables that are written to unlinked temporary files (in TMPDIR) and read by memory-mapping them."""

    def __init__(self, schemas: dict[str, pa.Schema]) -> None:
        super().__init__()
        with _output_errors():
            self.files = {name: self.enter_context(tempfile.TemporaryFile()) for name in schemas}  # noqa: SIM115
            self.writers = {name: pa.ipc.new_stream(self.files[name], spec) for name, spec in schemas.items()}

    def add(self, name: str, table: pa.Table) -> None:
        """Append rows to a table."""
        with _output_errors():
            self.writers[name].write_table(table)

    def tables(self) -> dict[str, pa.Table]:
        """Finish writing and return all tables. They remain valid after the spill is closed."""
        return {name: self._table(name) for name in self.files}

    def _table(self, name: str) -> pa.Table:
        with _output_errors():
            self.writers[name].close()
            self.files[name].flush()
            mapped = mmap.mmap(self.files[name].fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise output_error(tempfile.gettempdir(), error) from error
