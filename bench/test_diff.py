"""The difference of two large dumps, beside reading both. In a new process each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import inputs
import pytest
from measure import cpu_seconds, in_fresh_process
from tabular import Row

import xlamem


def read(a: str, b: str) -> dict[str, Any]:
    """Read the tables that a difference needs."""
    tables = ("allocations", "values", "positions", "uses", "instructions", "schedule", "live_ranges")
    start, dumps = time.perf_counter(), [xlamem.read(side) for side in (a, b)]
    rows = sum(dump[name].num_rows for dump in dumps for name in tables)
    return {"wall_s": time.perf_counter() - start, "rows": rows}


def diff(a: str, b: str) -> dict[str, Any]:
    start, found = time.perf_counter(), xlamem.diff(a, b)
    return {"wall_s": time.perf_counter() - start, "rows": found.buffers.num_rows}


WORKS: dict[str, Callable[[str, str], dict[str, Any]]] = {"read": read, "diff": diff}
PAIRS = {"the same program": ("dense", "dense"), "two programs": ("dense", "changed")}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_diff(pair: str, size: float, benchmark: Any, rows: list[Row]) -> None:
    shapes = [inputs.shape(name, size) for name in PAIRS[pair]]
    folders = [shape.folders[0] for shape in shapes]
    beside = in_fresh_process("test_diff", "read", *folders)
    found: list[dict[str, Any]] = []
    benchmark.pedantic(lambda: found.append(in_fresh_process("test_diff", "diff", *folders)), rounds=3)
    best = min(found, key=lambda f: f["cpu_s"])
    cells = {
        "MB": f"{sum(shape.bytes for shape in shapes) / 1e6:,.0f}",
        "CPU s": f"{best['cpu_s']:.2f}",
        "wall s": f"{best['wall_s']:.2f}",
        "x reading": f"{best['cpu_s'] / beside['cpu_s']:.1f}",
        "MB memory": f"{max(f['peak_bytes'] for f in found) / 1e6:,.0f}",
    }
    benchmark.extra_info.update({name: best[name] for name in ("cpu_s", "wall_s", "peak_bytes")})
    rows.append(Row("difference of two dumps, a new process each", pair, cells))
