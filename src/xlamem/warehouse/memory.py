"""How much memory there is, and returning unused memory to the system."""

from __future__ import annotations

import gc
import os

import pyarrow as pa


def release_memory() -> None:
    """Return unused memory to the system. Layouts are part of reference cycles, so these are collected first."""
    gc.collect()
    pa.default_memory_pool().release_unused()


def total_memory() -> int:
    """Return the memory of the machine in bytes, or the limit of the container if that is lower."""
    limits = [1 << 62]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(limits)
