"""Measure the memory of the machine, and release unused memory."""

from __future__ import annotations

import gc
import os

import pyarrow as pa


def release_memory() -> None:
    """Return unused memory to the system. Garbage is collected first, because layouts are in reference cycles."""
    gc.collect()
    pa.default_memory_pool().release_unused()


def total_memory() -> int:
    """Return the size of the memory in bytes: that of the machine, or the limit of the container if lower."""
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
