"""CPU of whole commands: start, imports and work. Beside xprof-rs and XProf, which read the proto of the program."""

from __future__ import annotations

import shutil
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import real
import touching
from measure import cpu_seconds, run_command
from tabular import Row
from test_convert import XLAMEM

ROUNDS = 7
PROGRAM = "tpu7x-unrolled"
"""A dump of 10 MB."""
TITLE = "commands: CPU of the whole process"
Commands = dict[str, Sequence[Any]]


def measured(commands: Commands, benchmark: Any, rows: list[Row]) -> None:
    used: dict[str, list[float]] = defaultdict(list)

    def once() -> None:
        for label, command in commands.items():
            used[label].append(run_command(command)["cpu_s"])

    benchmark.pedantic(once, rounds=ROUNDS, warmup_rounds=1)
    median = {label: statistics.median(times) for label, times in used.items()}
    ours = next(iter(median.values()))
    for label, cpu in median.items():
        rows.append(Row(TITLE, label, {"CPU ms": f"{1e3 * cpu:.0f}", "x xlamem": f"{cpu / ours:.2f}"}))
    benchmark.extra_info.update(median)


@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_start(benchmark: Any, rows: list[Row]) -> None:
    commands: Commands = {
        "xlamem peak, a small dump": [XLAMEM, "peak", touching.TINY],
        "xlamem --version": [XLAMEM, "--version"],
        "xlamem --help": [XLAMEM, "--help"],
    }
    measured(commands, benchmark, rows)


@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_peak(others: str, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    if PROGRAM not in real.names(others):
        pytest.skip("the real dumps are missing")
    folder = real.folder(PROGRAM, others)
    shutil.copyfile(real.proto(folder), tmp_path / "program.hlo_proto.pb")
    (tmp_path / "host.xplane.pb").touch()
    commands: Commands = {f"xlamem peak --json, {PROGRAM}": [XLAMEM, "peak", "--json", folder]}
    for name in ("xprof-rs", "xprof"):
        if (program := Path(others).with_name(name)).exists():
            commands[f"{name} get_peak_allocations"] = [program, "get_peak_allocations", tmp_path]
    measured(commands, benchmark, rows)
