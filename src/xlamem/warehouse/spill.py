"""What a huge dump needs later, on the disk until then: rows, and NumPy's large arrays."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pyarrow as pa

from .. import _mapped
from ..errors import OutputError

LARGE = 4 << 20
"""Bytes of an array that may go to a file."""
MOST = 128 << 20
"""Bytes of such arrays in memory; what comes then goes to files."""


@contextmanager
def mapped() -> Iterator[None]:
    """Within it NumPy's large arrays go to temporary files without a name once there are many of them.

    Their pages are the system's to keep or to drop. Arrays stay where they are as long as anybody holds them.
    """
    core = np._core if hasattr(np, "_core") else np.core  # of NumPy 1
    pattern = os.path.join(tempfile.gettempdir(), "xlamem-XXXXXX")
    api = core._multiarray_umath._ARRAY_API
    before = _mapped.use(api, _mapped.handler(os.fsencode(pattern), LARGE, MOST))
    try:
        yield
    finally:
        _mapped.use(api, before)


class Spill(ExitStack):
    """Tables that grow piece by piece in temporary files without a name, mapped when they are looked at.

    Their pages are the system's to keep or to drop. Where the files lie is up to `tempfile` (TMPDIR).
    """

    def __init__(self, schemas: dict[str, pa.Schema]) -> None:
        super().__init__()
        with _room():
            self.files = {name: self.enter_context(tempfile.TemporaryFile()) for name in schemas}  # noqa: SIM115
            self.writers = {name: pa.ipc.new_stream(self.files[name], spec) for name, spec in schemas.items()}

    def add(self, name: str, table: pa.Table) -> None:
        with _room():
            self.writers[name].write_table(table)

    def tables(self) -> dict[str, pa.Table]:
        """All rows, which outlive this; nothing can be added any more."""
        return {name: self._table(name) for name in self.files}

    def _table(self, name: str) -> pa.Table:
        with _room():
            self.writers[name].close()
            self.files[name].flush()
            mapped = mmap.mmap(self.files[name].fileno(), 0, access=mmap.ACCESS_READ)
        return pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"no room in {tempfile.gettempdir()} ({error.strerror or error})") from error
