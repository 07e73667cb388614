"""Dumps to Parquet on two processes: `xlamem convert` compared with `re` and pyarrow's writer."""

from __future__ import annotations

import inspect
import multiprocessing
import shutil
import statistics
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import inputs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rivals
from measure import cpu_seconds
from tabular import Row

import xlamem

PROCESSES = 2
JOB = 8_000_000
"""Bytes of text per job of the rival, which writes one file per table and job."""


def ours(folders: list[Path], to: Path) -> None:
    known = inspect.signature(xlamem.convert).parameters
    options: dict[str, Any] = {"workers": PROCESSES} if "workers" in known else {}
    xlamem.convert(*folders, to=to, **options)


def rival(folders: list[Path], to: Path) -> None:
    jobs: list[list[Path]] = [[]]
    size = 0
    for folder in folders:
        size += sum(path.stat().st_size for path in rivals.memory_files(folder))
        jobs[-1].append(folder)
        if size > JOB and folder != folders[-1]:
            jobs.append([])
            size = 0
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as pool:
        for _ in pool.map(write, jobs, [to] * len(jobs), range(len(jobs))):
            pass


def write(folders: list[Path], to: Path, number: int) -> None:
    """Write the tables of these dumps, one file per table."""
    made: dict[str, list[pa.Table]] = defaultdict(list)
    for folder in folders:
        for name, table in rivals.to_arrow(rivals.read(rivals.memory_files(folder))).items():
            made[name].append(table.append_column("dump", pa.repeat(pa.scalar(folder.name), table.num_rows)))
    for name, tables in made.items():
        (to / name).mkdir(parents=True, exist_ok=True)
        path = to / name / f"{number:06}.parquet"
        pq.write_table(pa.concat_tables(tables), path, compression="zstd", compression_level=3)


@pytest.mark.benchmark(timer=time.perf_counter, warmup=False)
def test_convert_large(size: float, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    """Convert a dump that is too large to be read at once, with one worker and with two."""
    shape = inputs.shape("dense", max(size, 350.0))
    used: dict[int, tuple[float, float]] = {}

    def convert(workers: int) -> None:
        cpu, wall = cpu_seconds(), time.perf_counter()
        xlamem.convert(*shape.folders, to=tmp_path / str(workers), workers=workers)
        used[workers] = cpu_seconds() - cpu, time.perf_counter() - wall

    convert(1)
    benchmark.pedantic(convert, (2,), rounds=1)
    for workers, (cpu, wall) in used.items():
        cells = {"CPU s": f"{cpu:.2f}", "wall s": f"{wall:.2f}", "MB/s wall": f"{shape.bytes / wall / 1e6:.0f}"}
        cells["x wall"] = f"{wall / used[2][1]:.2f}"
        rows.append(Row(f"one large dump to Parquet, {shape.title}", f"xlamem convert --workers {workers}", cells))
        benchmark.extra_info.update({f"workers_{workers}_cpu_s": cpu, f"workers_{workers}_wall_s": wall})


@pytest.mark.parametrize("kind", ["several", "small"])
@pytest.mark.benchmark(timer=time.perf_counter, warmup=False)
def test_convert(kind: str, size: float, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    shape = inputs.shape(kind, size)
    used: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def convert(name: str, work: Any) -> None:
        shutil.rmtree(to := tmp_path / "out", ignore_errors=True)
        to.mkdir()
        cpu, wall = cpu_seconds(), time.perf_counter()
        work(shape.folders, to)
        used[name].append((cpu_seconds() - cpu, time.perf_counter() - wall))
        if name == "ours":
            assert any(to.rglob("*.parquet"))

    convert("rival", rival)
    benchmark.pedantic(convert, ("ours", ours), rounds=1)
    median = {name: [statistics.median(v) for v in zip(*pairs, strict=True)] for name, pairs in used.items()}
    for name, label in (("ours", "xlamem convert"), ("rival", "Python re and pyarrow's writer")):
        cpu, wall = median[name]
        cells = {
            "CPU s": f"{cpu:.2f}",
            "wall s": f"{wall:.2f}",
            "MB/s wall": f"{shape.bytes / wall / 1e6:.0f}",
            "dumps/s": f"{len(shape.folders) / wall:,.1f}",
            "x CPU": f"{cpu / median['ours'][0]:.1f}",
            "x wall": f"{wall / median['ours'][1]:.1f}",
        }
        rows.append(Row(f"to Parquet, {PROCESSES} processes, {shape.title}", label, cells))
        benchmark.extra_info.update({f"{name}_cpu_s": cpu, f"{name}_wall_s": wall})
