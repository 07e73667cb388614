"""Fuzz the reader, the checks, the computations and the converter: `python tests/fuzz/run.py --minutes 10`.

Execution i of seed s is always the same. Workers are processes of bounded memory, and of bounded processor time for
one execution; what fails is kept with a file WHY.txt, once for each kind of failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("", "forge", "oracle"))

import forge
from conftest import DUMPS, texts
from fuzz.mutate import Members, mutate

from xlamem.input.names import variants

SIZE = 60_000
"""Bytes of the largest dump that is changed."""

FLAGS = b"""\
xla_dump_to: "/home/u"
xla_flag: A
xla_flag: B
options {
  key: "a"
  value {
  }
}
# Default flag value: -1
b: 65536
"""


def seeds(more: list[Path]) -> list[Members]:
    """Small real dumps, and forged ones of every era."""
    import xlamem

    found = [texts(s) for s in xlamem.find(DUMPS, *more)]
    made = [forge.forge(i, era=era, values=12 + 3 * (i % 5)).files for i, era in enumerate(forge.ERAS)]
    for i, members in enumerate(made):
        members |= {"debug-options": FLAGS} if i % 2 else {}
    return [m for m in found + made if sum(map(len, m.values())) <= SIZE]


def execution(base: int, i: int, inputs: list[Members]) -> tuple[random.Random, Members, Members]:
    """The generator, the changed dump and a clean one of an execution."""
    rng = random.Random(f"{base}/{i}")
    return rng, mutate(rng, rng.choice(inputs), inputs), rng.choice(inputs)


def keep(folder: Path, kind: str, members: Members, why: str) -> None:
    place = folder / kind
    if not place.exists():
        place.mkdir(parents=True)
        for role, data in members.items():
            (place / variants("m.cpu_after_optimizations", role)[0]).write_bytes(data)
        (place / "WHY.txt").write_text(why)


def kind_of(error: BaseException) -> str:
    """A name for this failure, the same for the same place in the program."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "xlamem" in f.filename]
    where = f"{Path(frames[-1].filename).stem}-{frames[-1].name}" if frames else "check"
    said = str(error).split(",")[0].split(" of ")[0][:40] if type(error).__name__ == "CheckError" else ""
    name = "-".join(x for x in (type(error).__name__, where, said) if x)
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:120]


def work(a: argparse.Namespace) -> None:
    """Executions from `first` on, `step` apart, until `until`; the number of the present one goes to stdout."""
    from fuzz.check import check

    if a.memory:  # the address sanitizer reserves more than any
        resource.setrlimit(resource.RLIMIT_AS, (a.memory << 30, a.memory << 30))
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)
    inputs = seeds(a.seeds)
    folder = Path(a.keep)
    i = a.first
    while time.time() < a.until:
        print(i, flush=True)
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + a.limit) + 1, resource.RLIM_INFINITY))
        rng, members, clean = execution(a.seed, i, inputs)
        place = Path(tempfile.mkdtemp()) if i // a.step % a.convert_every == 0 else None
        try:
            check(rng, members, clean, place)
        except BaseException as e:
            if isinstance(e, KeyboardInterrupt):
                raise
            why = "".join(traceback.format_exception(e))
            keep(folder, kind_of(e), members, f"seed {a.seed} execution {i}\n{why[-8000:]}")
            print(f"! {kind_of(e)}", flush=True)
        finally:
            if place is not None:
                shutil.rmtree(place, ignore_errors=True)
        i += a.step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", default="build/fuzz", help="where inputs that fail are kept")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], help="more dumps to begin with")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time of one execution")
    parser.add_argument("--memory", type=int, default=6, help="GiB of address space of a worker; 0: no limit")
    parser.add_argument("--convert-every", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the execution to begin with")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.until = a.until or time.time() + 60 * a.minutes
    if a.worker:
        work(a)
        return 0
    return drive(a)


def drive(a: argparse.Namespace) -> int:
    """Workers, begun again behind an execution that ended one."""
    folder = Path(a.keep)
    folder.mkdir(parents=True, exist_ok=True)
    inputs: list[Members] = []
    running: dict[int, tuple[subprocess.Popen[bytes], Path, int]] = {}
    first = {w: a.first + w for w in range(a.workers)}
    done, failures = 0, 0
    while first or running:
        for w, at in list(first.items()):
            log = folder / f"worker-{w}.log"
            command = [sys.executable, *sys.argv, "--worker", f"--first={at}", f"--step={a.workers}"]
            command += [f"--until={a.until}"]
            with open(log, "wb") as out:
                running[w] = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT), log, at
            del first[w]
        time.sleep(1)
        for w, (process, log, _) in list(running.items()):
            if process.poll() is None:
                continue
            del running[w]
            said = log.read_bytes().decode("utf-8", "replace")
            numbers = [int(line) for line in said.splitlines() if line.isdigit()]
            done += len(numbers)
            failures += said.count("\n! ")
            if process.returncode:
                failures += 1
                inputs = inputs or seeds(a.seeds)
                at = numbers[-1] if numbers else a.first + w
                _, members, _ = execution(a.seed, at, inputs)
                kind = f"ended-{process.returncode}-{at}"
                keep(folder, kind, members, f"seed {a.seed} execution {at}\n{said[-8000:]}")
                print(kind, flush=True)
                if time.time() < a.until:
                    first[w] = at + a.workers
    kinds = sorted(p.name for p in folder.iterdir() if p.is_dir())
    print(f"{done} executions, {failures} failures of {len(kinds)} kinds in {folder}: {', '.join(kinds) or 'none'}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
