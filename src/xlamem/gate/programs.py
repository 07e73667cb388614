"""The numbers of a program that lists of programs show."""

from __future__ import annotations

from typing import Any

from ..compute import main_first, peak
from ..dump import Dump


def program_name(dump: Dump) -> str:
    """Return the name of the module, or of the dump if that is not known."""
    return dump.source.module_name or dump.name


def main_peak(dump: Dump) -> dict[str, Any]:
    """Return `peak` (bytes) and `memory_space` of the main memory; None without allocations."""
    spaces = sorted(peak(dump).spaces.to_pylist(), key=lambda s: main_first(s["memory_space"]))
    main = spaces[0] if spaces else {}
    return {name: main.get(name) for name in ("peak", "memory_space")}
