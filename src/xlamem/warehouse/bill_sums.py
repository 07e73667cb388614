"""Compute the table `bills` of a dataset, for one or several dumps."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.bills import DEVICE_TOTAL, ROWS, UNCOUNTED, Sums, account_items, row_names, space_steps
from ..compute.columns import Ints, nullable
from ..compute.layout import Layout
from .offsets import Offsets
from .peak_numbers import device_peaks, in_device_memory

_NULLS = {"memory_space": pa.string(), "color": pa.int64(), "page": pa.int64()}
"""Columns that are null in the account of `device_total`."""


def bill_sums(p: Layout, offsets: Offsets, modules: pa.Table) -> pa.Table:
    """Return the rows of `bills`. Their first column is the index of the dump."""
    dump = offsets.local_page(np.array([s.page for s in p.spaces], np.int64)).dump
    total = np.where(in_device_memory(p, dump, modules), dump, -1)
    spaces, columns = _sums(p, np.arange(len(p.spaces)), space_steps(p))
    by_space = pa.table({"account": pa.nulls(len(spaces), pa.string()), **p.space_columns(spaces), **columns})
    by_space = offsets.split(by_space)
    names = pc.cast(by_space["memory_space"], pa.string())
    by_space = by_space.set_column(1, "account", names).set_column(2, "memory_space", names)
    dumps, columns = _sums(p, total, _device_steps(p, dump, modules))
    names = pa.array([DEVICE_TOTAL] * len(dumps), pa.string())
    nulls = {name: pa.nulls(len(dumps), kind) for name, kind in _NULLS.items()}
    return pa.concat_tables([pa.table({"dump": dumps, "account": names, **nulls, **columns}), by_space])


def _device_steps(p: Layout, dump: Ints, modules: pa.Table) -> Ints:
    """Return the first step of the combined peak of the spaces in `device_total`, as `bills.combined_steps` does."""
    if p.steps is None:
        return np.full(modules.num_rows, -1)
    step, size = device_peaks(p, dump, modules)
    return np.where(size > 0, step, -1)


def _sums(p: Layout, account: Ints, steps: Ints) -> tuple[Ints, dict[str, pa.Array]]:
    """Return the account of each row, and the columns from step to bytes."""
    items, number = account_items(p, account, steps)
    sums = Sums((len(steps), len(ROWS)), (number, items.row))
    number, row = sums.keys
    n = nullable(np.where(np.isin(row, UNCOUNTED), -1, sums.n))
    return number, {"step": nullable(steps[number]), **row_names(row), "n": n, "bytes": pa.array(sums.add(items.bytes))}
