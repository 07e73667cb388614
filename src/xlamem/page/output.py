"""Write files so that a process that is killed leaves no half file."""

from __future__ import annotations

import contextlib
from pathlib import Path
from uuid import uuid4

from ..errors import output_error


def write_file(path: Path, data: bytes | str) -> None:
    """Write a file and the folders that contain it, or leave it as it was. Raises OutputError."""
    temporary = path.with_name(f".xlamem-{uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data.encode("utf-8") if isinstance(data, str) else data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise output_error(path, error) from error
