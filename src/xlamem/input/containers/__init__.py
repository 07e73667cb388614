"""Files that contain files. Each kind has its own module and a line in CONTAINERS."""

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
    """Return the kind of container that a file name implies, or None."""
    name = names.without_compression(file_name.lower())
    return next((container for container in CONTAINERS if name.endswith(container.extensions)), None)


def recognize(file_name: str, file: FileView) -> Container | None:
    """Detect the kind of container by the first bytes of a decompressed file, or else by its name; may be None."""
    return next((container for container in CONTAINERS if container.matches(file)), None) or by_name(file_name)
