"""Convert a fleet on several nights with kills at random instants, and compare the dataset with an independent count.

    python tests/warehouse/seven_nights.py --dumps 25000 --to FOLDER

Every night, 5 % of the dumps have a new content, and the label changes. Each command (convert, compact, drop, and what
registers the dataset elsewhere) is killed several times and then repeated to its end. Then, the ledger, a glob over the
files and other tables must have exactly the contents, occurrences, allocations and values that are counted in the text.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("", "forge", "oracle"))

import duckdb
import forge_fleet

import xlamem

CHANGED = 0.05
XLAMEM = [sys.executable, "-c", "import sys; from xlamem.cli import main; sys.exit(main(sys.argv[1:]))"]
COUNTED = {"allocations": re.compile(rb"^allocation \d+: size", re.M), "values": re.compile(rb"^ value: <", re.M)}
"""Tables, and the lines of a buffer assignment that are their rows."""

Counts = dict[str, int]


@dataclass
class Nights:
    """A fleet of dumps, the dataset that it is converted to, and what the dataset must have."""

    root: Path
    dest: Path
    rng: random.Random
    kills: int
    others: dict[str, Callable[[], Counts]] = field(default_factory=dict)
    """Counts of other readers, by name."""
    registered: tuple[str, ...] = ()
    """Options of `convert` that register the dataset elsewhere."""
    fleet: list[list[Path]] = field(default_factory=list)
    contents: dict[str, Counts] = field(default_factory=dict)
    """Rows of each content that the dataset must have, by a hash of name and text."""
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of places in which a content was found in a night."""
    n_killed: int = 0

    def forge(self, dumps: int) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.fleet = forge_fleet.forge_fleet(self.root, dumps, seed=7)

    def change(self) -> None:
        """Replace the text of some dumps."""
        for i in self.rng.sample(range(len(self.fleet)), max(1, round(CHANGED * len(self.fleet)))):
            seed = self.rng.randrange(10**9, 10**10)
            self.fleet[i] = forge_fleet.forge_dump(self.fleet[i][0].parent, i % forge_fleet.MODULES, seed)

    def night(self, name: str) -> None:
        for paths in self.fleet:
            key, rows = counted(paths)
            self.contents.setdefault(key, rows)
            self.found[name, key] += 1
        self.run("convert", str(self.root), "--to", str(self.dest), "--label", f"night={name}", *self.registered)
        self.check(f"night {name}")

    def compact(self) -> None:
        self.run("dataset", "compact", str(self.dest))
        self.check("compact")

    def drop(self, *names: str) -> None:
        """Drop the occurrences of some nights."""
        condition = " or ".join(f"label.night = '{name}'" for name in names)
        self.run("dataset", "drop", str(self.dest), "--where", condition, "--yes")
        self.found = Counter({(night, key): n for (night, key), n in self.found.items() if night not in names})
        left = {key for _, key in self.found}
        self.contents = {key: rows for key, rows in self.contents.items() if key in left}
        self.check(f"drop {names}")

    def run(self, *args: str) -> None:
        """Run a command, killed at random instants and then to its end."""
        seconds = 2.0
        for _ in range(self.kills):
            started = time.monotonic()
            with subprocess.Popen([*XLAMEM, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  start_new_session=True) as process:  # fmt: skip
                try:
                    process.wait(self.rng.uniform(0.3, seconds))
                except subprocess.TimeoutExpired:
                    # Without its workers, which then end on their own, or with them.
                    kill = self.rng.choice((os.kill, os.killpg))
                    kill(process.pid, signal.SIGKILL)
                    self.n_killed += 1
            seconds = max(2.0, 2 * (time.monotonic() - started))
        done = subprocess.run([*XLAMEM, *args], check=False, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{args}: exit code {done.returncode}\n{done.stderr[-2000:]}")

    def expected(self) -> Counts:
        rows = {table: sum(counts[table] for counts in self.contents.values()) for table in COUNTED}
        return {"contents": len(self.contents), "occurrences": self.found.total(), **rows}

    def check(self, after: str) -> None:
        expected = self.expected()
        for name, count in {"ledger": self.in_ledger, "glob": self.in_glob, **self.others}.items():
            if (found := count()) != expected:
                raise AssertionError(f"after {after}, {name} has {found} instead of {expected}")

    def in_ledger(self) -> Counts:
        dataset = xlamem.Dataset(self.dest)
        rows = {table: dataset[table].count_rows() for table in COUNTED}
        return {"contents": len(dataset.ids), "occurrences": dataset["occurrences"].count_rows(), **rows}

    def in_glob(self) -> Counts:
        def one(query: str, table: str) -> int:
            ((found,),) = duckdb.sql(f"SELECT {query} FROM '{self.dest}/{table}/**/*.parquet'").fetchall()
            return int(found)

        rows = {table: one("count(*)", table) for table in COUNTED}
        contents = one("count(DISTINCT content_id)", "modules")
        assert contents == one("count(*)", "modules"), "a content is stored twice"
        return {"contents": contents, "occurrences": one("count(*)", "occurrences"), **rows}


def counted(paths: list[Path]) -> tuple[str, Counts]:
    """Return a hash of name and text of a dump, and its rows."""
    texts = {path.name.partition(".")[2]: path.read_bytes() for path in sorted(paths)}
    digest = hashlib.sha256(repr(sorted(texts)).encode())
    for _, text in sorted(texts.items()):
        digest.update(len(text).to_bytes(8) + text)
    (assignment,) = (text for name, text in texts.items() if name.endswith("-buffer-assignment.txt"))
    return digest.hexdigest(), {table: len(lines.findall(assignment)) for table, lines in COUNTED.items()}


def several_nights(nights: Nights, count: int = 7) -> None:
    """Convert on each night, compact twice, and drop the first nights."""
    for i in range(count):
        if i:
            nights.change()
        nights.night(f"{i + 1}")
        print(f"night {i + 1}: {nights.expected()}, {nights.n_killed} kills", flush=True)
        if i in (2, count - 1):
            nights.compact()
        if i == count - 2:
            nights.drop("1", "2")
    nights.drop("3")
    print(f"in the end: {nights.expected()}, {nights.n_killed} kills", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=int, default=25_000)
    parser.add_argument("--nights", type=int, default=7)
    parser.add_argument("--kills", type=int, default=3, help="kills of each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, required=True, help="an empty folder")
    args = parser.parse_args()
    nights = Nights(args.to / "in", args.to / "out", random.Random(args.seed), args.kills)
    nights.forge(args.dumps)
    several_nights(nights, args.nights)


if __name__ == "__main__":
    main()
