"""Fuzz everything that is done with a dump: `python tests/fuzz/run.py --minutes 10`.

Execution i of a seed is always the same: `--only i` repeats it, and with `--shrink` finds a smaller input. Workers are
processes of bounded memory, and of bounded processor time for one execution; what fails is kept with a file WHY.txt,
once for each kind of failure.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("", "forge", "oracle"))

import forge
from conftest import DUMPS, texts
from fuzz.edits import KINDS, edits, has_section
from fuzz.mutate import Members, mutate

from xlamem.input.names import variants

SIZE = 60_000
"""Bytes of the largest dump that is changed: larger ones are cut off."""
EDITED = 1 / 4
"""Part of the executions that change one line."""
WRITTEN = 1 / 20
"""Part of the executions that write files."""

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
    """Real dumps, of large ones the beginning of each file, and forged ones of every era."""
    import xlamem

    made = [forge.forge(i, era=era, values=12 + 3 * (i % 5)).files for i, era in enumerate(forge.ERAS)]
    for i, members in enumerate(made):
        members |= {"debug-options": FLAGS} if i % 2 else {}
    sources = xlamem.find(DUMPS) + (xlamem.find(*more) if more else [])
    found = [beginning(texts(s)) for s in sources if s.fault is None]
    return [members for members in found if has_section(members)] + made


def beginning(members: Members) -> Members:
    """The dump without what exceeds a share of the size for each file."""
    if sum(map(len, members.values())) <= SIZE:
        return members
    share = SIZE // len(members)
    return {role: text[: text.rfind(b"\n", 0, share) + 1] for role, text in members.items()}


class Execution(NamedTuple):
    """One input, and the random choices of what is checked with it."""

    members: Members
    clean: Members
    """Another dump, to read and to compare it with."""
    choices: random.Random
    is_edit: bool
    """Whether one line is changed: then the slow reader must agree."""
    is_written: bool
    """Whether it is also written to files, for conversion and commands."""


def execution(seed: str, i: int, inputs: list[Members]) -> Execution:
    """Return an execution of a seed."""
    rng = random.Random(f"{seed}/{i}")
    members, clean = rng.choice(inputs), rng.choice(inputs)
    edited = [m for _, m in edits(rng, members, len(KINDS))] if rng.random() < EDITED else []
    changed = rng.choice(edited) if edited else mutate(rng, members, inputs)
    choices = random.Random(f"{seed}/{i}/check")
    return Execution(changed, clean, choices, is_edit=bool(edited), is_written=rng.random() < WRITTEN)


def run(e: Execution) -> None:
    """Check an execution; raises what fails."""
    from fuzz.check import check

    with tempfile.TemporaryDirectory() as place:
        check(e.choices, e.members, e.clean, Path(place) if e.is_written else None, slowly=e.is_edit)


def keep(folder: Path, kind: str, members: Members, why: str) -> None:
    place = folder / kind
    if not place.exists():
        place.mkdir(parents=True)
        for role, data in members.items():
            (place / variants("m.cpu_after_optimizations", role)[0]).write_bytes(data)
        (place / "WHY.txt").write_text(why)


def kind_of(error: BaseException) -> str:
    """A name for this failure, the same for the same place in the program."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, AssertionError):
        frames = [f for f in frames if "xlamem" in Path(f.filename).parts] or frames
    said = str(error).split(",")[0].split(" of ")[0][:40] if type(error).__name__ == "CheckError" else ""
    name = "-".join(x for x in (type(error).__name__, Path(frames[-1].filename).stem, frames[-1].name, said) if x)
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:120]


def work(a: argparse.Namespace) -> None:
    """Executions from `first` on, `step` apart, until `until`; the number of the present one goes to stdout."""
    if a.memory:  # the address sanitizer reserves more than any
        resource.setrlimit(resource.RLIMIT_AS, (a.memory << 30, a.memory << 30))
    faulthandler.enable()
    faulthandler.register(signal.SIGXCPU, chain=True)
    inputs = seeds(a.seeds)
    i = a.first
    while time.time() < a.until:
        print(i, flush=True)
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + a.limit) + 1, resource.RLIM_INFINITY))
        e = execution(a.seed, i, inputs)
        try:
            run(e)
        except Exception as error:
            why = "".join(traceback.format_exception(error))
            keep(Path(a.keep), kind_of(error), e.members, f"{command(a, i)}\n\n{why[-8000:]}")
            print(f"! {kind_of(error)}", flush=True)
        i += a.step


def command(a: argparse.Namespace, i: int) -> str:
    """The command that repeats an execution."""
    more = "".join(f" {p}" for p in ("--seeds", *a.seeds)) if a.seeds else ""
    return f"python tests/fuzz/run.py --seed {a.seed} --only {i}{more}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--keep", default="build/fuzz", help="where inputs that fail are kept")
    parser.add_argument("--seed", default="0", help="any text; other executions for each")
    parser.add_argument("--only", type=int, metavar="I", help="repeat this execution, with its traceback")
    parser.add_argument("--shrink", action="store_true", help="with --only: keep a smaller input that fails alike")
    parser.add_argument("--seeds", type=Path, nargs="*", default=[], help="more dumps to begin with")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time of one execution")
    parser.add_argument("--memory", type=int, default=6, help="GiB of address space of a worker; 0: no limit")
    parser.add_argument("--first", type=int, default=0, help="the execution to begin with")
    parser.add_argument("--until", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = parser.parse_args()
    a.until = a.until or time.time() + 60 * a.minutes
    if a.only is not None:
        return repeat(a)
    if a.worker:
        work(a)
        return 0
    return drive(a)


def repeat(a: argparse.Namespace) -> int:
    """Run one execution again, and keep a smaller input that fails alike."""
    e = execution(a.seed, a.only, seeds(a.seeds))
    if not a.shrink:
        run(e)
        return 0
    kind = failure(a, e, e.members)
    if kind is None:
        print("this execution does not fail")
        return 0
    from fuzz.shrink import shrunk

    small = shrunk(e.members, lambda members: failure(a, e, members) == kind)
    keep(Path(a.keep), f"small-{kind}", small, command(a, a.only))
    print(Path(a.keep) / f"small-{kind}")
    return 1


def failure(a: argparse.Namespace, e: Execution, members: Members) -> str | None:
    """The kind of failure of these members, checked as those of the execution."""
    try:
        run(e._replace(members=members, choices=random.Random(f"{a.seed}/{a.only}/check")))
    except Exception as error:
        return kind_of(error)
    return None


class Worker:
    """A process that runs executions, and its log."""

    def __init__(self, a: argparse.Namespace, number: int, first: int) -> None:
        self.number, self.first, self._log = number, first, Path(a.keep) / f"worker-{number}.log"
        options = ["--worker", f"--first={first}", f"--step={a.workers}", f"--until={a.until}"]
        with open(self._log, "wb") as out:
            self.process = subprocess.Popen([sys.executable, *sys.argv, *options], stdout=out, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return self._log.read_bytes().decode("utf-8", "replace")

    def executions(self) -> list[int]:
        return [int(line) for line in self.said().splitlines() if line.isdigit()]


def drive(a: argparse.Namespace) -> int:
    """Run workers, and replace one that dies by one that begins behind its last execution."""
    folder = Path(a.keep)
    folder.mkdir(parents=True, exist_ok=True)
    before = {p.name for p in folder.iterdir()}
    running = [Worker(a, number, a.first + number) for number in range(a.workers)]
    done = failures = 0
    while running:
        time.sleep(0.2)
        for worker in [w for w in running if w.process.poll() is not None]:
            running.remove(worker)
            numbers = worker.executions()
            done += len(numbers)
            failures += worker.said().count("\n! ")
            if worker.process.returncode:
                if not numbers:
                    raise SystemExit(f"a worker does not start:\n{worker.said()}")
                failures += 1
                _keep_death(a, worker, numbers[-1])
                if time.time() < a.until:
                    running.append(Worker(a, worker.number, numbers[-1] + a.workers))
    _report(a, done, failures, [p for p in sorted(folder.iterdir()) if p.is_dir() and p.name not in before])
    return int(bool(failures))


def _keep_death(a: argparse.Namespace, worker: Worker, i: int) -> None:
    """Keep the input that ended a worker."""
    kind = f"ended-{worker.process.returncode}-{i}"
    members = execution(a.seed, i, seeds(a.seeds)).members
    keep(Path(a.keep), kind, members, f"{command(a, i)}\n\n{worker.said()[-8000:]}")


def _report(a: argparse.Namespace, done: int, failures: int, kinds: list[Path]) -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    hours = (used.ru_utime + used.ru_stime) / 3600
    print(f"seed {a.seed}: {done:,} executions in {hours:.2f} hours of processor time, {failures} failures")
    for kind in kinds:
        print(f"\n{kind}")
        print((kind / "WHY.txt").read_text().split("\n", 1)[0])


if __name__ == "__main__":
    sys.exit(main())
