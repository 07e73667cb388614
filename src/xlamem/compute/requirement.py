"""Compute what must fit into the device's memory."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import DumpLike, as_tables
from ..parse.arrays import distinct_of
from .columns import Ints, Mask, bools, ints


def device_total(dump: DumpLike) -> int | None:
    """Return the bytes that must fit into the device's main memory; None for a dump without allocations.

    This is the sum of `reserved` (all allocations except thread-local ones) over the spaces in that memory: ``hbm`` and
    colors 7 and 9 on TPU; ``device``, ``collective`` and ``temp`` on GPU; ``memory`` on CPU; all colors except 5 if the
    platform is unknown. It excludes program code, which is not in the dump.
    """
    tables = as_tables(dump)
    allocations = tables["allocations"]
    return sum_of_sizes(allocations, must_fit(allocations, tables.platform)) if allocations.num_rows else None


def must_fit(allocations: pa.Table, platform: str | None) -> Mask:
    """Return which allocations are part of `device_total`."""
    color = ints(allocations, "color")
    in_device_memory = [c for c in distinct_of(color) if schema.in_device_memory(platform, c)]
    return np.isin(color, in_device_memory) & ~bools(allocations, "is_thread_local")


def sum_of_sizes(allocations: pa.Table, mask: Mask) -> int:
    """Add up the sizes of these allocations as Python integers, because int64 could overflow."""
    sizes: Ints = ints(allocations, "size")[mask]
    return sum(sizes.tolist())


def sums_by_color(allocations: pa.Table, mask: Mask) -> dict[int, int]:
    """Return the sum of the sizes of these allocations by color."""
    color = ints(allocations, "color")
    return {c: sum_of_sizes(allocations, mask & (color == c)) for c in distinct_of(color)}
