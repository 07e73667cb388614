"""Files that hold files. Each kind is one module and one line of CONTAINERS."""

from __future__ import annotations

from .. import names
from ..files import FileView
from .base import Container, Entry
from .tar import TAR
from .zip import ZIP

__all__ = ["CONTAINERS", "Container", "Entry", "by_name", "recognize"]

CONTAINERS: tuple[Container, ...] = (
    TAR,
    ZIP,
)


def by_name(file_name: str) -> Container | None:
    """Return the kind of container by a file name, or None."""
    name = names.without_compression(file_name.lower())
    return next((container for container in CONTAINERS if name.endswith(container.extensions)), None)


def recognize(file_name: str, file: FileView) -> Container | None:
    """Return the kind of container by the first bytes of a decompressed file, else by its name; or None."""
    return next((container for container in CONTAINERS if container.matches(file)), None) or by_name(file_name)
