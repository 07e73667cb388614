"""Cost against size, which should be linear. Opt-in: `--sizes 100,500,2000,10000`.

Tables are read up to 2 GB of text, batches at every size, each in a new process.
"""

from __future__ import annotations

import shutil
import statistics
from typing import Any

import inputs
import pytest
from measure import in_fresh_process, wc
from tabular import Row

import xlamem

TABLES_UP_TO = 2000
"""MB."""
TITLE = "cost against size (dense, one thread, a new process each)"
FIRST: dict[str, float] = {}
"""CPU nanoseconds per byte at the smallest size."""


@pytest.mark.parametrize("work", ["all", "batches"])
@pytest.mark.benchmark(warmup=False)
def test_size(work: str, megabytes: int, benchmark: Any, rows: list[Row]) -> None:
    if work == "all" and megabytes > TABLES_UP_TO:
        pytest.skip("tables of this size are read by batches")
    if work == "batches" and not hasattr(xlamem.Dump, "batches"):
        pytest.skip("this version has no Dump.batches")
    shape = inputs.shape("dense", megabytes)
    found: list[dict[str, Any]] = []
    beside: list[float] = []

    def once() -> None:
        beside.append(wc(shape.files))
        found.append(in_fresh_process("readers", work, shape.folders))

    benchmark.pedantic(once, rounds=1 if megabytes > TABLES_UP_TO else 3)
    cpu = statistics.median(f["cpu_s"] for f in found)
    memory = max(f["peak_bytes"] for f in found)
    each = 1e9 * cpu / shape.bytes
    FIRST.setdefault(work, each)
    cells = {
        "MB": f"{shape.bytes / 1e6:,.0f}",
        "CPU s": f"{cpu:.2f}",
        "ns/byte": f"{each:.3f}",
        "x the first": f"{each / FIRST[work]:.2f}",
        "x wc -l": f"{cpu / statistics.median(beside):.2f}",
        "MB memory": f"{memory / 1e6:,.0f}",
        "MB tables": f"{found[0]['tables_bytes'] / 1e6:,.0f}" if work == "all" else "",
    }
    benchmark.extra_info.update({"bytes": shape.bytes, "cpu_s": cpu, "ns_per_byte": each, "peak_bytes": memory})
    rows.append(Row(TITLE, {"all": "all tables", "batches": "batches, one table per section"}[work], cells))
    if megabytes > TABLES_UP_TO:
        shutil.rmtree(shape.folders[0])  # forged again within a minute
