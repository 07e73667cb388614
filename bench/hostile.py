"""CPU time and memory of dumps that are made to take much of both (tests/forge/attacks.py).

    python bench/hostile.py                          # every attack and every task, 4 n of each
    python bench/hostile.py -k one_address --task savings --n 50000

    python bench/hostile.py -k many: --n 5000 --task find,convert,"diff A B"     # many dumps

Every task runs in a process of its own, with limits. One that takes more than a second is measured at n and 2 n too:
`growth` is how often the time doubles while n does, 1 for linear time. Exit with 1 if a task fails, or if its time
grows faster than n.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests"), str(HERE.parent / "tests" / "forge")]

N = 25_000
SLOW = 1.0
"""CPU seconds from which a task is measured at n and 2 n too."""
CPU_LIMIT = int(os.environ.get("LIMIT", 60))
MEMORY_LIMIT = 6 << 30
MAX_GROWTH = 1.35

Task = Callable[[Path, Path], object]
"""Takes the folder of a dump, and that of another one."""


@dataclass(frozen=True)
class Cost:
    seconds: float
    megabytes: float
    failure: str = ""


def tasks() -> dict[str, Task]:
    """What is done with a dump: read, streamed, computed, and given to every command."""
    import xlamem
    from xlamem.cli import VERBS
    from xlamem.compute import REGISTRY

    for verb in VERBS:  # once, in the parent process
        import_module(f"xlamem.cli.verbs.{verb}")
    made: dict[str, Task] = {
        "find": lambda a, b: xlamem.find(a),
        "read": lambda a, b: [xlamem.read(a, threads=1).verify()],
        "stream": lambda a, b: _stream(a),
        "convert": lambda a, b: xlamem.convert(a, to=_scratch() / "out", engine="here"),
        **{f"compute {name}": lambda a, b, f=f: f(xlamem.read(a)) for name, f in REGISTRY.items()},  # type: ignore[misc]
    }
    for line in COMMANDS:
        made[line.split(" -o")[0]] = lambda a, b, line=line: _command(line, a, b)  # type: ignore[misc]
    return made


COMMANDS = (
    "info A", "peak A", "top A", "top --tree A", "top --fold --by scope,phase,layer,kind,origin,source A",
    "top --by op_name,shape,instruction A", "bill A", "buffer A NAME", "advise A", "advise --budget 1KB A", "explain A",
    "report A -o OUT/r.html", "report A -o OUT/r.svg", "report A -o OUT/r.pb.gz", "report A B -o OUT/r.html",
    "diff A B", "diff B A", "check A --max-device-total 1GB",
)  # fmt: skip


def _scratch() -> Path:
    return Path(tempfile.mkdtemp(dir=os.environ["XLAMEM_HOSTILE"]))


def _stream(folder: Path) -> None:
    import xlamem
    from xlamem.parse.pieces import pieces

    for _ in pieces(xlamem.find(folder)[0], text=False, hashes=True):
        pass


def _command(line: str, a: Path, b: Path) -> None:
    from xlamem.cli import main

    words = {"A": str(a), "B": str(b), "NAME": "a.0"}
    code = main([words.get(w, w.replace("OUT", str(_scratch()))) for w in line.split()])
    if code not in (0, 1, 2, 3):
        raise SystemExit(f"exit code {code}")


def measure(task: Task, a: Path, b: Path, scratch: Path) -> Cost:
    """Run a task in a child process."""
    child = os.fork()
    if not child:
        _run(task, a, b, scratch)
    _, status, used = os.wait4(child, 0)
    failure = "" if status == 0 else (scratch / "why").read_text()[-300:] if (scratch / "why").exists() else ""
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        failure = f"more than {CPU_LIMIT} s" if name in ("SIGXCPU", "SIGKILL") else name
    elif status and not failure:
        failure = f"exit code {os.WEXITSTATUS(status)}"
    (scratch / "why").unlink(missing_ok=True)
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, failure)


def _run(task: Task, a: Path, b: Path, scratch: Path) -> None:
    """Run the task in this process, and end it."""
    import traceback

    os.environ["XLAMEM_HOSTILE"] = str(scratch)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT, CPU_LIMIT + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    import xlamem

    code = 0
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        try:
            task(a, b)
        except xlamem.XlaMemError:
            pass
        except BaseException:
            (scratch / "why").write_text(traceback.format_exc())
            code = 99
    os._exit(code)


def growth(costs: list[Cost]) -> float:
    """How often the time doubles while n does, by the last doubling."""
    return math.log2(costs[-1].seconds / costs[-2].seconds)


@contextlib.contextmanager
def dumps(name: str, sizes: list[int]) -> Iterator[list[tuple[Path, Path]]]:
    """Write the dumps of an attack: for each size, one of n and one of n - 1."""
    root = Path(tempfile.mkdtemp(prefix="xlamem-hostile-"))
    try:
        for n in sizes:
            for label, size in (("a", n), ("b", n - 1)):
                (folder := root / f"{n}-{label}").mkdir()
                write(name, folder, size)
        yield [(root / f"{n}-a", root / f"{n}-b") for n in sizes]
    finally:
        shutil.rmtree(root)


def write(name: str, folder: Path, n: int) -> None:
    import attacks_many
    from attacks import ATTACKS

    from xlamem.input.names import variants

    if name.startswith("many: "):
        return getattr(attacks_many, name.removeprefix("many: "))(folder, n)  # type: ignore[no-any-return]
    for role, data in ATTACKS[name](n).items():
        stem = "module_0001.jit_m" + ".cpu_after_optimizations" * (role != "debug-options")
        (folder / variants(stem, role)[0]).write_bytes(data)  # type: ignore[arg-type]
    return None


def report(name: str, label: str, costs: list[Cost]) -> bool:
    """Print the costs at n, 2 n and 4 n, or at 4 n alone; return whether they are too much."""
    grown = growth(costs) if len(costs) > 1 else 0.0
    bad = bool(costs[-1].failure) or (grown > MAX_GROWTH and costs[-1].seconds > SLOW)
    seconds, mb = (" ".join(f"{n:6.{d}f}" for n in numbers) for numbers, d in (
        ([c.seconds for c in costs], 2), ([c.megabytes for c in costs], 0),
    ))  # fmt: skip
    why = costs[-1].failure.strip().splitlines()[-1:]
    print(f"{'BAD' if bad else '   '} {name:30} {label:32} {seconds} s {mb} MB  growth {grown:3.1f} ", *why, flush=True)
    return bad


def run(name: str, chosen: dict[str, Task], folders: list[tuple[Path, Path]], scratch: Path, verbose: bool) -> int:
    """Measure tasks with the dumps of one attack; return how many cost too much."""
    bad, slowest = 0, 0.0
    for label, task in chosen.items():
        costs = [measure(task, *folders[-1], scratch)]
        slowest = max(slowest, costs[0].seconds)
        if costs[0].seconds > SLOW or costs[0].failure:
            costs = [*(measure(task, *both, scratch) for both in folders[:-1]), *costs]
        if verbose or len(costs) > 1:
            bad += report(name, label, costs)
    size = sum(p.stat().st_size for p in folders[-1][0].iterdir()) / 1e6
    print(f"--- {name}: {size:.1f} MB, at most {slowest:.2f} s", flush=True)
    return bad


def main() -> int:
    import attacks_hlo  # noqa: F401  # adds its attacks
    import attacks_many
    from attacks import ATTACKS

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", help="only attacks with one of these texts in their name (A,B)")
    parser.add_argument("--task", default="", help="only tasks whose name begins with one of these texts (A,B)")
    parser.add_argument("--n", type=int, default=N)
    parser.add_argument("--all", action="store_true", help="print every task, not only those that take long")
    options = parser.parse_args()
    chosen, names = tasks(), [*ATTACKS, *(f"many: {make.__name__}" for make in attacks_many.COLLECTIONS)]
    chosen = {name: task for name, task in chosen.items() if name.startswith(tuple(options.task.split(",")))}
    gc.freeze()
    bad = 0
    for name in names:
        if any(k in name for k in options.k.split(",")):
            sizes = [options.n, 2 * options.n, 4 * options.n]
            with dumps(name, sizes) as folders, tempfile.TemporaryDirectory() as scratch:
                bad += run(name, chosen, folders, Path(scratch), options.all)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
