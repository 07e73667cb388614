"""Dumps to Parquet on two processes: the command `xlamem convert`, the same with nothing new, and a plain script."""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import inputs
import pyarrow.dataset as ds
import pytest
from measure import run_command
from tabular import Row

PROCESSES = 2
ROUNDS = 3
XLAMEM = Path(sys.executable).with_name("xlamem")
SCRIPT = Path(__file__).with_name("plain_convert.py")
LABELS = {"ours": "xlamem convert", "again": "the same, nothing new", "script": "Python re and pyarrow's writer"}
TIMES = 10
"""Copies of the fleet in "nothing new", so that the start of the command counts little."""
Used = dict[str, list[dict[str, float]]]
"""What each run of a command used."""


def ours(source: Path, to: Path, workers: int = PROCESSES) -> dict[str, float]:
    return run_command([XLAMEM, "convert", source, "--to", to, "--workers", workers, "--quiet"])


def script(source: Path, to: Path) -> dict[str, float]:
    return run_command([sys.executable, SCRIPT, source, to, PROCESSES])


def median(used: Used) -> dict[str, dict[str, float]]:
    return {name: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for name, runs in used.items()}


@pytest.mark.parametrize("kind", ["several", "fleet"])
@pytest.mark.benchmark(timer=time.perf_counter, warmup=False)
def test_convert(
    kind: str, size: float, request: pytest.FixtureRequest, tmp_path: Path, benchmark: Any, rows: list[Row]
) -> None:
    shape = inputs.shape(kind, request.config.getoption("fleet") if kind == "fleet" else size)
    used: Used = defaultdict(list)

    def once() -> None:
        for folder in (mine := tmp_path / "ours", theirs := tmp_path / "script"):
            shutil.rmtree(folder, ignore_errors=True)
        used["script"].append(script(shape.root, theirs))
        used["ours"].append(ours(shape.root, mine))
        used["again"].append(ours(shape.root, mine))

    benchmark.pedantic(once, rounds=ROUNDS)
    stored = ds.dataset(tmp_path / "ours" / "modules").count_rows()
    found = median(used)
    for name, label in LABELS.items():
        cpu, wall = found[name]["cpu_s"], found[name]["wall_s"]
        cells = {
            "CPU s": f"{cpu:.2f}",
            "wall s": f"{wall:.2f}",
            "MB/s wall": f"{shape.bytes / wall / 1e6:.0f}",
            "CPU ms a dump": f"{1e3 * cpu / shape.dumps:.3f}",
            "stored": f"{stored:,}" if name != "again" else "",
            "CPU ms a stored dump": f"{1e3 * cpu / stored:.2f}" if name != "again" else "",
            "x CPU": f"{cpu / found['ours']['cpu_s']:.2f}",
            "x wall": f"{wall / found['ours']['wall_s']:.2f}",
        }
        rows.append(Row(f"to Parquet, {PROCESSES} processes, {shape.title}", label, cells))
    benchmark.extra_info.update(found)


@pytest.mark.benchmark(timer=time.perf_counter, warmup=False)
def test_nothing_new(request: pytest.FixtureRequest, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    """Convert many dumps again that were all converted before."""
    shape = inputs.shape("fleet", request.config.getoption("fleet"))
    root, n = inputs.repeated(shape, TIMES), TIMES * shape.dumps
    ours(root, tmp_path / "out")
    used: Used = defaultdict(list)
    benchmark.pedantic(lambda: used["again"].append(ours(root, tmp_path / "out")), rounds=ROUNDS)
    found = median(used)["again"]
    cells = {
        "CPU s": f"{found['cpu_s']:.2f}",
        "wall s": f"{found['wall_s']:.2f}",
        "CPU ms a dump": f"{1e3 * found['cpu_s'] / n:.3f}",
    }
    rows.append(Row(f"nothing new: {n:,} dumps", "xlamem convert", cells))
    benchmark.extra_info.update(found)


@pytest.mark.benchmark(timer=time.perf_counter, warmup=False)
def test_huge(request: pytest.FixtureRequest, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    """Convert one dump with one worker and with two."""
    shape = inputs.shape("dense", request.config.getoption("huge"))
    used: Used = defaultdict(list)

    def once() -> None:
        for workers in (1, 2):
            shutil.rmtree(to := tmp_path / "out", ignore_errors=True)
            used[f"{workers} workers"].append(ours(shape.root, to, workers))

    benchmark.pedantic(once, rounds=ROUNDS)
    found = median(used)
    for name, run in found.items():
        cells = {
            "CPU s": f"{run['cpu_s']:.2f}",
            "wall s": f"{run['wall_s']:.2f}",
            "MB/s wall": f"{shape.bytes / run['wall_s'] / 1e6:.0f}",
            "MB memory": f"{run['peak_bytes'] / 1e6:,.0f}",
            "x faster": f"{found['1 workers']['wall_s'] / run['wall_s']:.2f}",
        }
        rows.append(Row(f"one huge dump to Parquet, {shape.title}", name, cells))
    benchmark.extra_info.update(found)
