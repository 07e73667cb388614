"""Speed of reading, compared with `wc -l` and alternative readers."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import pytest
import readers
from inputs import Shape
from measure import cpu_seconds, in_fresh_process, wc
from tabular import Row


@dataclass(frozen=True)
class Work:
    label: str
    rounds: int = 7
    fresh: bool = True


WORKS = {
    "all": Work("xlamem, all tables"),
    "peak": Work("xlamem, peak tables"),
    "wc": Work("LC_ALL=C wc -l", fresh=False),
    "copy": Work("memory copy", fresh=False),
    "arrow": Work("lines: pyarrow.csv", 3),
    "arrow_lean": Work("lines: pyarrow.csv, tuned", 3),
    "polars": Work("lines: Polars", 3),
    "polars_lean": Work("lines: Polars, tuned", 3),
    "duckdb": Work("lines: DuckDB", 3),
    "duckdb_lean": Work("lines: DuckDB, count only", 3),
    "re": Work("Python re, into lists", 1),
    "re_arrow": Work("Python re, into Arrow", 1),
}
CPU: dict[tuple[str, str], float] = {}
"""CPU seconds per byte of each (shape, reader), for ratios between rows."""
FIRST: dict[tuple[str, str], float] = {}
"""CPU seconds of the first read of a new process."""


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_read(name: str, shape: Shape, benchmark: Any, rows: list[Row]) -> None:
    """Measure CPU seconds on one thread. `wc -l` runs before each round, because the speed of a machine drifts."""
    work = WORKS[name]
    read = {"wc": lambda _: (wc(shape.files), []), "copy": readers.Copy(shape.folders) if name == "copy" else None}.get(
        name
    ) or readers.READERS[name]
    beside: list[float] = []
    walls: list[float] = []
    made = 0

    def once() -> None:
        nonlocal made
        start = time.perf_counter()
        made = read(shape.folders)[0]
        walls.append(time.perf_counter() - start)

    benchmark.group = shape.title
    benchmark.pedantic(
        once, setup=lambda: beside.append(wc(shape.files)), rounds=work.rounds, warmup_rounds=int(work.rounds > 1)
    )
    if benchmark.stats is None:  # --benchmark-disable
        return
    cpu, wall, wc_s = benchmark.stats.stats.median, statistics.median(walls[-work.rounds :]), statistics.median(beside)
    if name == "wc":  # counts each file several times per call
        wall *= made / cpu
        cpu, made = made, 0
    fresh = in_fresh_process("readers", name, shape.folders) if work.fresh else {}
    CPU[shape.name, name] = cpu / shape.bytes
    info = {
        "bytes": shape.bytes,
        "dumps": len(shape.folders),
        "rows": made,
        "cpu_s": cpu,
        "wall_s": wall,
        "wc_s": wc_s,
        "times_wc": cpu / wc_s,
        "cpu_gb_s": shape.bytes / cpu / 1e9,
        "wall_gb_s": shape.bytes / wall / 1e9,
        "rows_s": made / cpu,
        "dumps_s": len(shape.folders) / cpu,
        **{f"first_{key}": value for key, value in fresh.items()},
    }
    cells = {
        "CPU s": f"{cpu:.4f}",
        "x wc -l": f"{cpu / wc_s:.2f}",
        "x xlamem": f"{cpu / shape.bytes / CPU[shape.name, 'all']:.2f}" if (shape.name, "all") in CPU else "",
        "GB/s CPU": f"{info['cpu_gb_s']:.3f}",
        "GB/s wall": f"{info['wall_gb_s']:.3f}",
        "rows/s": f"{info['rows_s']:,.0f}" if made else "",
        "dumps/s": f"{info['dumps_s']:,.1f}",
    }
    if fresh:
        FIRST[shape.name, name] = fresh["cpu_s"]
        cells["first x wc"] = f"{fresh['cpu_s'] / wc_s:.2f}"
        if first := FIRST.get((shape.name, "all")):
            cells["first x xlamem"] = f"{fresh['cpu_s'] / first:.2f}"
        cells["MB memory"] = f"{fresh['peak_bytes'] / 1e6:.1f}"
        if len(shape.folders) == 1 and name in ("all", "peak"):
            cells["MB tables"] = f"{fresh['tables_bytes'] / 1e6:.1f}"
            cells["MB excess"] = f"{(fresh['peak_bytes'] - 1.1 * fresh['tables_bytes']) / 1e6:.1f}"
        cells["MB RSS"] = f"{fresh['rss_bytes'] / 1e6:.0f}"
    benchmark.extra_info.update(info)
    rows.append(Row(shape.title, work.label, cells))
    if shape.name == "small" and ("dense", name) in CPU and name in ("all", "re"):
        ratio = CPU["small", name] / CPU["dense", name]
        label = f"{work.label}: CPU per byte, small dumps / one large dump"
        rows.append(Row("many small dumps", label, {"x": f"{ratio:.2f}", "ms a dump": f"{1e3 / info['dumps_s']:.2f}"}))
