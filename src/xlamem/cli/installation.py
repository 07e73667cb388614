"""What this installation of xlamem is: version, build, and the packages that it finds."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata

from .. import schema
from ..parse.build import BUILD, SIMD
from ..parse.threads import default_threads
from . import documents

_REQUIREMENT = re.compile(r"(?P<package>[\w.-]+)(?:.*\bextra == ['\"](?P<extra>[\w.-]+)['\"])?")

DEVELOPMENT = ("test", "bench", "lint")
"""Beginnings of the names of extras that only the development of xlamem needs."""


def describe() -> documents.Self:
    """Describe the installation."""
    required, extras = _packages()
    return {
        "path": os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "build": list(BUILD),
        "simd": list(SIMD),
        "cores": _cores(),
        "threads": default_threads(),
        "schema_version": schema.VERSION,
        "dependencies": {package: _version(package) for package in required},
        "extras": extras,
    }


def _packages() -> tuple[list[str], list[documents.Extra]]:
    """Return the packages that xlamem requires, and those of its extras, from the metadata of the installation."""
    required: list[str] = []
    extras: list[documents.Extra] = []
    for text in _requirements():
        if not (match := _REQUIREMENT.match(text)):
            continue
        package, extra = match["package"], match["extra"]
        if extra is None:
            required.append(package)
        elif not extra.startswith(DEVELOPMENT):
            extras.append({"extra": extra, "package": package, "version": _version(package)})
    return required, extras


def _requirements() -> list[str]:
    try:
        return metadata.requires("xlamem") or []
    except metadata.PackageNotFoundError:  # imported from a folder
        return []


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
