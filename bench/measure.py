"""CPU seconds, `wc -l`, and the memory of a new process.

CPU seconds are user and system time of this process and of its terminated children.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPEAT_WC = 5
"""How often `wc -l` counts each file per call, so that its start does not dominate."""


def cpu_seconds(*whose: int) -> float:
    """Return the CPU seconds so far of this process and of its terminated children, or of one of the two."""
    used = [resource.getrusage(who) for who in whose or (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def wc(files: Iterable[Path]) -> float:
    """Return the CPU seconds of counting the lines of these files once."""
    command = ["wc", "-l", *map(os.fspath, files)]
    repeat = REPEAT_WC if len(command) < 2000 else 1
    start = cpu_seconds()
    # Without close_fds, the child starts by vfork, which is cheap.
    arguments = command[:2] + command[2:] * repeat
    subprocess.run(arguments, env=os.environ | {"LC_ALL": "C"}, stdout=subprocess.DEVNULL, check=True, close_fds=False)
    return (cpu_seconds() - start) / repeat


def tables_bytes(tables: Iterable[Any]) -> int:
    """Return the bytes of the buffers of Arrow tables, counting shared dictionaries once."""
    seen: dict[int, int] = {}
    for table in tables:
        for column in table.columns:
            for chunk in column.chunks:
                parts = [chunk, chunk.dictionary] if hasattr(chunk, "dictionary") else [chunk]
                for buffer in (b for part in parts for b in part.buffers() if b is not None):
                    seen[buffer.address] = max(buffer.size, seen.get(buffer.address, 0))
    return sum(seen.values())


def machine() -> str:
    """Return the machine and the versions on which results depend."""
    import duckdb
    import numpy
    import polars
    import pyarrow

    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), model)
    packages = ", ".join(f"{m.__name__} {m.__version__}" for m in (numpy, pyarrow, polars, duckdb))
    return (
        f"{os.cpu_count()} cores of {model}; {platform.system()} {platform.release().split('-')[0]}, "
        f"{' '.join(platform.libc_ver())}, Python {platform.python_version()}, {packages}"
    )


# ------------------------------------------------------------------------------- in a new process


def memory_bytes(pid: int, what: bytes = b"RssAnon:") -> int:
    """Return a process's anonymous resident memory; with `VmHWM:` its maximum resident set, files included."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(what)), 0)
    except OSError:  # ended
        return 0


def run_command(command: Iterable[Any]) -> dict[str, float]:
    """Run a command; return its `cpu_s`, `wall_s` and `peak_bytes`, the anonymous memory of all its processes."""
    cpu, wall = cpu_seconds(resource.RUSAGE_CHILDREN), time.perf_counter()
    with subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL) as process:
        ended = os.pidfd_open(process.pid)
        peak = 0
        while not select.select([ended], [], [], 0.02)[0]:
            peak = max(peak, sum(map(memory_bytes, _family(process.pid))))
        os.close(ended)
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    cpu = cpu_seconds(resource.RUSAGE_CHILDREN) - cpu
    return {"cpu_s": cpu, "wall_s": time.perf_counter() - wall, "peak_bytes": peak}


def _family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        children = [int(child) for text in lists for child in text.split()]
    except OSError:  # ended
        children = []
    return [pid, *(member for child in children for member in _family(child))]


def in_fresh_process(
    module: str, name: str, *arguments: Any, python: str = sys.executable, memory: bool = True
) -> dict[str, Any]:
    """Run `module.WORKS[name](*arguments)` in a new process after its imports and `module.prepare(name)`, if any.

    Returns `cpu_s`, `wall_s`, the maximum growth of anonymous memory (`peak_bytes`) and the growth at the end
    (`held_bytes`), and the items of the result if it is a dict. The child waits after its imports and at its end. In
    between, this process reads the child's memory every millisecond, which does not slow down a child with one thread;
    with `memory=False` it only waits. Linux only.
    """
    if not os.path.exists("/proc/self/status"):
        return {}
    command = [python, "-c", f"import measure, {module}; measure.child({module})", name]
    here = [os.path.dirname(__file__), *([p for p in sys.path if p] if python == sys.executable else [])]
    # OpenBLAS, which NumPy loads, would spin on the other cores for a tenth of a second.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(here), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        if child.stdout.readline() != "ready\n":
            raise RuntimeError(f"{module} cannot be imported by {python}")
        before = peak = memory_bytes(child.pid)
        child.stdin.write(json.dumps(arguments, default=os.fspath) + "\n")
        child.stdin.flush()
        while not select.select([child.stdout], [], [], 0.001 if memory else None)[0]:
            peak = max(peak, memory_bytes(child.pid))
        held, most = memory_bytes(child.pid), memory_bytes(child.pid, b"VmHWM:")
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"{module}.{name} failed in its own process")
        found: dict[str, Any] = json.loads(line)
        child.stdin.close()
    return found | {"peak_bytes": max(peak, held) - before, "held_bytes": held - before, "rss_bytes": most}


def child(module: Any) -> None:
    """Run a task for `in_fresh_process`, in the child."""
    name = sys.argv[1]
    if hasattr(module, "prepare"):
        module.prepare(name)
    print("ready", flush=True)
    arguments = json.loads(sys.stdin.readline())
    work = module.WORKS[name]
    start, wall = cpu_seconds(), time.perf_counter()
    kept = work(*arguments)
    used = {"cpu_s": cpu_seconds() - start, "wall_s": time.perf_counter() - wall}
    print(json.dumps(used | (kept if isinstance(kept, dict) else {})), flush=True)
    sys.stdin.readline()  # the result is still alive
    del kept
