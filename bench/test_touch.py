"""Tables touched one by one, as people do, in several orders: warm and in a new process, with one and two threads."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import touching
from inputs import Shape
from measure import cpu_seconds, in_fresh_process, wc
from tabular import Row

ROUNDS = 7
Runs = dict[str, list[float]]
"""CPU and wall seconds of each round by what was measured. A first read is in a new process, the others are warm."""


def warm(shape: Shape, order: str, threads: int) -> tuple[float, float]:
    cpu, wall = cpu_seconds(), time.perf_counter()
    touching.READERS[f"{order}, {threads}"](shape.folders)
    return cpu_seconds() - cpu, time.perf_counter() - wall


def first(shape: Shape, order: str, threads: int) -> tuple[float, float]:
    found = in_fresh_process("touching", f"{order}, {threads}", shape.folders, memory=False)
    return found["cpu_s"], found["wall_s"]


def one_round(runs: Runs, shape: Shape, order: str, read: Callable[[Shape, str, int], tuple[float, float]]) -> None:
    runs[f"{read.__name__} wc"].append(wc(shape.files))
    for threads in (1, 2):
        cpu, wall = read(shape, order, threads)
        runs[f"{read.__name__} cpu {threads}"].append(cpu)
        runs[f"{read.__name__} wall {threads}"].append(wall)


@pytest.mark.parametrize("order", touching.ORDERS)
@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_touch(order: str, shape: Shape, benchmark: Any, rows: list[Row]) -> None:
    runs: Runs = defaultdict(list)
    warm(shape, order, 1)

    def both() -> None:
        one_round(runs, shape, order, warm)
        one_round(runs, shape, order, first)

    benchmark.pedantic(both, rounds=ROUNDS)
    median = {name: statistics.median(times) for name, times in runs.items()}
    cells = {
        "MB": f"{shape.bytes / 1e6:.1f}",
        "CPU s": f"{median['warm cpu 1']:.4f}",
        "x wc -l": f"{median['warm cpu 1'] / median['warm wc']:.2f}",
        "first x wc": f"{median['first cpu 1'] / median['first wc']:.2f}",
        "2 threads, x faster": f"{median['warm wall 1'] / median['warm wall 2']:.2f}",
        "x CPU": f"{median['warm cpu 2'] / median['warm cpu 1']:.2f}",
        "first, x faster": f"{median['first wall 1'] / median['first wall 2']:.2f}",
        "first, x CPU": f"{median['first cpu 2'] / median['first cpu 1']:.2f}",
    }
    benchmark.extra_info.update(median)
    rows.append(Row(f"tables touched, {shape.title}", order, cells))
