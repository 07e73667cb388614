"""Write files so that a process that is killed leaves no half file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from ..errors import OutputError


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file and the folders that contain it, or leave it as it was. Raises OutputError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".xlamem-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data.encode("utf-8") if isinstance(data, str) else data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror or error}") from error


def _umask() -> int:
    """Return the process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
