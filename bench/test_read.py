"""How fast dumps are read, against `wc -l` and what one could use instead.

CPU seconds (user and system) of this process and of its children, page cache warm; nothing here asserts
a time. Memory, and the first reading of a process, are measured in a fresh one.
"""

from __future__ import annotations

import json
import os
import resource
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
import rivals

import xlamem
from xlamem import schema

TYPE_CHECKING = False
if TYPE_CHECKING:
    from conftest import Shape

REPEAT_WC = 5
"""`wc -l` gets each file so often in one call: its start would weigh on so short a run."""
TABLES = [t.name for t in schema.SECTION_TABLES]


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def native(folders: list[Path], tables: list[str], threads: int) -> tuple[int, Any]:
    rows, kept = 0, []
    for folder in folders:
        dump = xlamem.read(folder, threads=threads)
        kept = [dump[t] for t in tables]
        rows += sum(t.num_rows for t in kept)
    return rows, kept


def read_all(folders: list[Path]) -> tuple[int, Any]:
    return native(folders, list(schema.TABLES), 1)


def read_two_threads(folders: list[Path]) -> tuple[int, Any]:
    return native(folders, list(schema.TABLES), 2)


def read_some(folders: list[Path]) -> tuple[int, Any]:
    return native(folders, ["allocations", "values", "live_ranges"], 1)


def rival(folders: list[Path], finish: Callable[[Any], Any] = lambda tables: tables) -> tuple[int, Any]:
    rows, kept = 0, None
    for folder in folders:
        tables = rivals.read(rivals.memory_files(folder))
        rows += sum(len(next(iter(columns.values()))) for columns in tables.values())
        kept = finish(tables)
    return rows, kept


def rival_lists(folders: list[Path]) -> tuple[int, Any]:
    return rival(folders)


def rival_arrow(folders: list[Path]) -> tuple[int, Any]:
    return rival(folders, rivals.to_arrow)


def csv_lines(folders: list[Path]) -> tuple[int, Any]:
    """Each line as one cell: no field is looked at."""
    rows, kept = 0, None
    for folder in folders:
        for path in rivals.memory_files(folder):
            kept = pyarrow.csv.read_csv(
                path,
                pyarrow.csv.ReadOptions(use_threads=False, column_names=["line"], block_size=4 << 20),
                pyarrow.csv.ParseOptions(delimiter="\x01", quote_char=False, ignore_empty_lines=False),
                pyarrow.csv.ConvertOptions(column_types={"line": pa.string()}),
            )
            rows += kept.num_rows
    return rows, kept


def wc(folders: list[Path]) -> tuple[int, Any]:
    files = [os.fspath(path) for folder in folders for path in rivals.memory_files(folder)]
    command = ["wc", "-l", *files * REPEAT_WC]
    # Neither flag is needed here; with them the child starts by vfork, which costs next to nothing.
    subprocess.run(command, env={"LC_ALL": "C"} | os.environ, stdout=subprocess.DEVNULL, check=True, close_fds=False)
    return 0, None


def copy(folders: list[Path]) -> Callable[[], tuple[int, Any]]:
    """The bytes from one piece of memory to another, both touched before."""
    data = b"".join(path.read_bytes() for folder in folders for path in rivals.memory_files(folder))
    source, target = np.frombuffer(data, np.uint8), np.ones(len(data), np.uint8)

    def work() -> tuple[int, Any]:
        np.copyto(target, source)
        return 0, None

    return work


def yardstick(folders: list[Path]) -> list[float]:
    """CPU seconds of `wc -l`, a few times over: taken beside each measurement, for the machine's pace drifts."""
    found = []
    for _ in range(3):
        start = cpu_seconds()
        wc(folders)
        found.append((cpu_seconds() - start) / REPEAT_WC)
    return found


@dataclass(frozen=True)
class Work:
    label: str
    run: Callable[[list[Path]], tuple[int, Any]]
    rounds: int = 7
    fresh: bool = True
    times: int = 1
    prepare: bool = False  # `run` makes the work


WORKS = {
    "wc": Work("LC_ALL=C wc -l", wc, fresh=False, times=REPEAT_WC),
    "copy": Work("memory copy", copy, fresh=False, prepare=True),
    "csv": Work("pyarrow.csv, lines only", csv_lines),
    "some": Work("xlamem, three tables", read_some),
    "all": Work("xlamem, every table", read_all),
    "all2": Work("xlamem, every table, 2 threads", read_two_threads),
    "rival": Work("Python re, lists", rival_lists, rounds=1),
    "rival_arrow": Work("Python re, Arrow tables", rival_arrow, rounds=1),
}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.benchmark(timer=cpu_seconds, warmup=False)
def test_read(name: str, shape: Shape, benchmark: Any, results: list[dict[str, Any]]) -> None:
    work = WORKS[name]
    run = work.run(shape.folders) if work.prepare else lambda: work.run(shape.folders)
    walls: list[float] = []
    rows = 0

    def once() -> None:
        nonlocal rows
        start = time.perf_counter()
        rows = run()[0]
        walls.append(time.perf_counter() - start)

    benchmark.group = shape.name
    beside = yardstick(shape.folders) if benchmark.enabled else []
    benchmark.pedantic(once, rounds=work.rounds, warmup_rounds=int(work.rounds > 1))
    if benchmark.stats is None:  # --benchmark-disable
        return
    cpu = benchmark.stats.stats.median / work.times
    wall = statistics.median(walls[-work.rounds :]) / work.times
    fresh = in_fresh_process(name, shape.folders) if work.fresh else {}
    wc_s = statistics.median(beside + yardstick(shape.folders))
    info = {
        "bytes": shape.bytes,
        "dumps": len(shape.folders),
        "rows": rows,
        "cpu_s": cpu,
        "wall_s": wall,
        "wc_s": wc_s,
        "times_wc": cpu / wc_s,
        "cpu_gb_s": shape.bytes / cpu / 1e9,
        "wall_gb_s": shape.bytes / wall / 1e9,
        "rows_s": rows / cpu,
        "dumps_s": len(shape.folders) / cpu,
        "first_cpu_s": fresh.get("cpu_s"),
        "first_times_wc": fresh["cpu_s"] / wc_s if fresh else None,
        "memory_bytes": fresh.get("peak_bytes"),
        "held_bytes": fresh.get("held_bytes"),
    }
    benchmark.extra_info.update(info)
    results.append({"shape": shape.name, "work": name, "label": work.label, **info})


# ------------------------------------------------------------------------------- in a fresh process


def anonymous_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith(b"RssAnon:")), 0)


def in_fresh_process(name: str, folders: list[Path]) -> dict[str, float]:
    """CPU seconds of the first reading, and by how much anonymous memory grew meanwhile and at its end.

    The child waits after its imports and at its end; in between its memory is looked at from here, every
    millisecond, which costs it nothing.
    """
    if not os.path.exists("/proc/self/status"):
        return {}
    command = [sys.executable, "-c", "import test_read; test_read.child()"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        before = peak = anonymous_bytes(child.pid)
        child.stdin.write(json.dumps([name, [os.fspath(f) for f in folders]]) + "\n")
        child.stdin.flush()
        while not select.select([child.stdout], [], [], 0.001)[0]:
            peak = max(peak, anonymous_bytes(child.pid))
        held = anonymous_bytes(child.pid)
        cpu = float(child.stdout.readline())
        child.stdin.close()
    return {"cpu_s": cpu, "peak_bytes": max(peak, held) - before, "held_bytes": held - before}


def child() -> None:
    print("ready", flush=True)
    name, folders = json.loads(sys.stdin.readline())
    paths = [Path(f) for f in folders]
    start = cpu_seconds()
    kept = WORKS[name].run(paths)
    used = cpu_seconds() - start
    print(used, flush=True)
    sys.stdin.readline()  # what was read is still held
    del kept
