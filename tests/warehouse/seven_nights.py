"""Convert a fleet on several nights with kills at random instants, and compare the dataset with an independent count.

    nice python tests/warehouse/seven_nights.py --dumps 25000 --to FOLDER

Every night, 5 % of the dumps have a new content, and the label changes. Each command (convert, compact, drop, register)
is killed several times, at any instant or soon after it writes to a folder of the dataset, and then repeated to its
end. After that, the ledger, a glob over the files, and Iceberg and Delta tables must have exactly the contents,
occurrences, allocations and values that are counted in the text.
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
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).parents[1] / name) for name in ("", "forge", "oracle"))

import forge_fleet
import pyarrow as pa
import pyarrow.compute as pc

import xlamem

CHANGED = 0.05
XLAMEM = [sys.executable, "-c", "import sys; from xlamem.cli import main; sys.exit(main(sys.argv[1:]))"]
COUNTED = {"allocations": re.compile(rb"^allocation \d+: size", re.M), "values": re.compile(rb"^ value: <", re.M)}
"""Tables, and the lines of a buffer assignment that are their rows."""
WRITTEN = {
    "batch": "modules/v2", "ledger": "_ledger/entries", "iceberg": "_iceberg/xlamem/values/metadata",
    "delta": "values/_delta_log",
}  # fmt: skip
"""What a command writes, and a folder of the dataset that changes then."""
LONGEST_PAUSE = 3.0
"""Seconds between a write and a kill, at most. Short pauses are as likely as long ones."""

Counts = dict[str, int]


@dataclass
class Nights:
    """A fleet of dumps, the dataset that it is converted to, and what the dataset must have."""

    root: Path
    dest: Path
    rng: random.Random
    kills: int
    registered: tuple[str, ...] = ()
    """Formats in which the dataset is registered after the first night."""
    readers: dict[str, Callable[[Path, str], Any]] = field(
        default_factory=lambda: {name: READERS[name] for name in ("ledger", "glob")}
    )
    fleet: list[list[Path]] = field(default_factory=list)
    contents: dict[str, Counts] = field(default_factory=dict)
    """Rows of each content that the dataset must have, by a hash of name and text."""
    found: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of places in which a content was found in a night."""
    killed: Counter[str] = field(default_factory=Counter)
    """Number of kills of each command, with what it had written last."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The time that a command takes, as far as it is known."""

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
        self.run("convert", str(self.root), "--to", str(self.dest), "--label", f"night={name}")
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

    def register(self, form: str) -> None:
        self.readers[form] = READERS[form]
        self.run("dataset", "register", str(self.dest), "--to", form)
        self.check(f"register {form}")

    # -- killing

    def run(self, *args: str) -> None:
        """Run a command, killed several times and then to its end."""
        verb = args[args[0] == "dataset"]
        for _ in range(self.kills):
            start = time.monotonic()
            killed = self.run_and_kill(verb, args)
            seconds = time.monotonic() - start
            self.seconds[verb] = max(2 * seconds, self.seconds.get(verb, 0.0)) if killed else seconds
            if not killed:  # it has done everything
                break
        done = subprocess.run([*XLAMEM, *args], check=False, capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{args}: exit code {done.returncode}\n{done.stderr[-2000:]}")

    def run_and_kill(self, verb: str, args: tuple[str, ...]) -> bool:
        """Run a command; return whether it was killed before its end."""
        with subprocess.Popen([*XLAMEM, *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              start_new_session=True) as process:  # fmt: skip
            forms = [form for form in self.registered if form in self.readers]
            what = self.rng.choice(["any", *(() if verb == "register" else ("batch", "ledger")), *forms])
            if self.wait(process, verb, what):
                # Without its workers, which then end on their own, or with them.
                self.rng.choice((os.kill, os.killpg))(process.pid, signal.SIGKILL)
                self.killed[f"{verb}: {what}"] += 1
                return True
        assert process.returncode == 0, f"{args}: exit code {process.returncode}"
        return False

    def wait(self, process: subprocess.Popen[bytes], verb: str, what: str) -> bool:
        """Wait for any instant of a command, or one soon after it writes; return whether it still runs."""
        deadline = time.monotonic() + self.rng.uniform(0.3, self.seconds.get(verb, 5.0))
        pause = LONGEST_PAUSE * 10 ** self.rng.uniform(-4, 0)
        before = self.changed(what)
        while process.poll() is None:
            if what == "any" and time.monotonic() > deadline:
                return True
            if self.changed(what) != before:
                time.sleep(pause)
                return process.poll() is None
            time.sleep(0.001)
        return False

    def changed(self, what: str) -> int:
        """Return when a folder was changed, in nanoseconds."""
        folder = self.dest / WRITTEN.get(what, "-")
        return folder.stat().st_mtime_ns if folder.exists() else 0

    # -- counting

    def expected(self) -> Counts:
        rows = {table: sum(counts[table] for counts in self.contents.values()) for table in COUNTED}
        return {"contents": len(self.contents), "occurrences": self.found.total(), **rows}

    def check(self, after: str) -> None:
        expected = self.expected()
        for name, read in self.readers.items():
            if (found := rows_found(self.dest, read)) != expected:
                raise AssertionError(f"after {after}, {name} has {found} instead of {expected}")
        assert len(xlamem.Dataset(self.dest).ids) == expected["contents"]


# -- readers, which return the content_id of each row of a table


def in_ledger(dest: Path, table: str) -> Any:
    return xlamem.Dataset(dest)[table].to_table(columns=["content_id"])["content_id"]


def in_glob(dest: Path, table: str) -> Any:
    files = [str(path) for path in (dest / table / "v2").glob("**/*.parquet")]
    return pa.dataset.dataset(files).to_table(columns=["content_id"])["content_id"]


def in_iceberg(dest: Path, table: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    with closing(SqlCatalog("xlamem", uri=f"sqlite:///{dest}/_iceberg/catalog.db")) as catalog:
        return catalog.load_table(("xlamem", table)).scan(selected_fields=("content_id",)).to_arrow()["content_id"]


def in_delta(dest: Path, table: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(dest / table).to_pyarrow_table(columns=["content_id"])["content_id"]


READERS: dict[str, Callable[[Path, str], Any]] = {
    "ledger": in_ledger, "glob": in_glob, "iceberg": in_iceberg, "delta": in_delta,
}  # fmt: skip


def rows_found(dest: Path, read: Callable[[Path, str], Any]) -> Counts:
    ids = read(dest, "modules")
    contents = pc.count_distinct(ids).as_py()
    assert contents == len(ids), "a content is stored twice"
    return {"contents": contents, **{table: len(read(dest, table)) for table in ("occurrences", *COUNTED)}}


# -- nights


def counted(paths: list[Path]) -> tuple[str, Counts]:
    """Return a hash of name and text of a dump, and its rows."""
    texts = {path.name.partition(".")[2]: path.read_bytes() for path in sorted(paths)}
    digest = hashlib.sha256(repr(sorted(texts)).encode())
    for _, text in sorted(texts.items()):
        digest.update(len(text).to_bytes(8) + text)
    (assignment,) = (text for name, text in texts.items() if name.endswith("-buffer-assignment.txt"))
    return digest.hexdigest(), {table: len(lines.findall(assignment)) for table, lines in COUNTED.items()}


def several_nights(nights: Nights, count: int = 7) -> None:
    """Convert on each night, register after the first one, compact twice, and drop the first nights."""
    for i in range(count):
        if i:
            nights.change()
        nights.night(f"{i + 1}")
        print(f"night {i + 1}: {nights.expected()}, {nights.killed.total()} kills", flush=True)
        for form in () if i else nights.registered:
            nights.register(form)
        if i in (2, count - 1):
            nights.compact()
        if i == count - 2:
            nights.drop("1", "2")
    nights.drop("3")
    print(f"in the end: {nights.expected()}, {nights.killed.total()} kills", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dumps", type=int, default=25_000)
    parser.add_argument("--nights", type=int, default=7)
    parser.add_argument("--kills", type=int, default=5, help="kills of each command")
    parser.add_argument("--register", nargs="*", choices=("iceberg", "delta"), default=["iceberg", "delta"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--to", type=Path, required=True, help="an empty folder")
    args = parser.parse_args()
    to = args.to.resolve()
    nights = Nights(to / "in", to / "out", random.Random(args.seed), args.kills, tuple(args.register))
    nights.forge(args.dumps)
    several_nights(nights, args.nights)
    for what, n in sorted(nights.killed.items()):
        print(f"{n:5} kills of {what}")


if __name__ == "__main__":
    main()
