"""The installation of xlamem as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import __version__
from ...formatting import align, count, shorten, wrap_items
from ..console import bold, width, write, write_field

if TYPE_CHECKING:
    from ..documents import Self

LABEL_WIDTH = 16
INDENT = LABEL_WIDTH + 2


def write_installation(found: Self) -> None:
    """Describe the installation."""
    columns = width()
    write(bold(f"xlamem {__version__}"))
    required = [f"{package} {version or 'missing'}" for package, version in found["dependencies"].items()]
    extras = [[e["extra"], e["package"], e["version"] or "not installed"] for e in found["extras"]]
    fields = {
        "path": [shorten(found["path"], columns and columns - INDENT)],
        "python": [f"{found['python']}, {found['platform']}"],
        "build": [", ".join(found["build"]) or "release"],
        "instructions": [", ".join(found["simd"]) or "plain C"],
        "threads": [f"{found['threads']} for a large dump, of {count(found['cores'], 'core')}"],
        "tables": [f"schema version {found['schema_version']}"],
        "requires": wrap_items(required, INDENT, columns),
        "extras": align(extras, {0, 1, 2}) if extras else [],
    }
    for label, lines in fields.items():
        write_field(label, lines, LABEL_WIDTH)
