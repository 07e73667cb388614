"""Occupancy, peak, savings and attribution of a program with a million values, or as many as `--values` says."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from columns import Columns
from measure import cpu_seconds
from tabular import Row

import xlamem

WORKS: dict[str, Callable[[Any], Any]] = {
    "occupancy": xlamem.occupancy,
    "peak": xlamem.peak,
    "savings": xlamem.savings,
    "attribution": xlamem.attribution,
    "all four": lambda dump: [work(dump) for name, work in WORKS.items() if name != "all four"],
}


@cache
def columns(values: int) -> Columns:
    return Columns(values)


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_compute(name: str, values: int, benchmark: Any, rows: list[Row]) -> None:
    dump = columns(values)
    benchmark.pedantic(WORKS[name], (dump,), setup=dump.forget, rounds=3 if values <= 1_000_000 else 1)
    if benchmark.stats is None:
        return
    cpu = benchmark.stats.stats.median
    info = {"values": values, "cpu_s": cpu, "values_s": values / cpu}
    benchmark.extra_info.update(info)
    cells = {
        "CPU s": f"{cpu:.3f}",
        "values/s": f"{values / cpu:,.0f}",
        "ns/value": f"{1e9 * cpu / values:.0f}",
        "max RSS MB": f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f}",
    }
    rows.append(Row(f"computations on columns, {values:,} values", name, cells))
