"""Simulate the ledger of a year of nights, and measure what it costs to open the dataset.

    nice python bench/ledger.py [--nights 365] [--dumps 13900] [--batch 695] [--tables 26] [--to FOLDER]

Every night, all dumps are new: the worst case, since a content that is found again adds no id. No table is written; the
ledger names files that do not exist. With `--runs 250000 500000 1000000`, it measures single runs of so many new dumps
instead: planning their batches, committing them, and planning the same dumps again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import xxhash

from xlamem import schema
from xlamem.warehouse import checkpoints
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.storage import Storage

ROLES = ("buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report")
OPENED = {
    "open": "import xlamem; d = xlamem.Dataset({dest!r})",
    "open, list the files of a table": "import xlamem; d = xlamem.Dataset({dest!r}); d.files_of('values')",
    "open, list all files": "import xlamem; d = xlamem.Dataset({dest!r}); d.files()",
    "open, find one dump": "import xlamem; d = xlamem.Dataset({dest!r}); d.locate(d._resolve_id({one!r}))",
    "open, plan a night": (
        "from xlamem.warehouse.ledger import Ledger; from xlamem.warehouse.storage import Storage;"
        "import json; s = Ledger(Storage({dest!r})).state; found = s.stored.find(json.load(open({night!r})));"
        "assert len(found) == {known}, len(found)"
    ),
    "import only": "import xlamem; xlamem.Dataset",
}
"""What a process does with the dataset."""


def content_id(night: int, dump: int) -> str:
    return xxhash.xxh3_128_hexdigest(f"{night} {dump}".encode())


def batches(night: int, dumps: int, size: int, tables: list[str]) -> Iterator[Batch]:
    """The batches of a night: its occurrences and its run, and the dumps."""
    run_id = f"20260101T000000-{night:08x}"
    folder = f"v{schema.VERSION}/night={night:05}"
    for first in range(0, dumps, size):
        ids = sorted(content_id(night, dump) for dump in range(first, min(first + size, dumps)))
        name = xxhash.xxh3_128_hexdigest("".join(ids).encode())
        files = tuple(File(t, f"{t}/{folder}/{name}-00000.parquet", 1000 + first, 31_000 + first) for t in tables)
        yield Batch(name, tuple(ids), (), files, "1.0", schema.VERSION, run_id, tuple(tables))
    name = xxhash.xxh3_128_hexdigest(run_id.encode())
    files = tuple(File(t, f"{t}/{folder}/{name}-00000.parquet", 1, 9_000) for t in ("occurrences", "labels", "runs"))
    labels = {"night": f"{night:05}", "commit": name[:12]}
    yield Batch(name, (), (), files, "1.0", schema.VERSION, run_id, tuple(schema.RUN_TABLES), labels=labels,
                runs=(run_id,))  # fmt: skip


def simulate(dest: str, args: argparse.Namespace) -> None:
    tables = [*schema.WAREHOUSE][: args.tables]
    checkpoints.FOLD_SECONDS = -1  # the nights follow each other at once
    begin, slowest = time.process_time(), 0.0
    for night in range(args.nights):
        ledger = Ledger(Storage(dest))
        with ledger.run(f"run-{night}"):
            added = [*batches(night, args.dumps, args.batch, tables)]
            ledger.state.stored.find([i for batch in added for i in batch.dumps])  # as the plan of a run does
            for batch in added:
                ledger.commit(batch)
            start = time.process_time()
            ledger.checkpoint()
            slowest = max(slowest, time.process_time() - start)
    print(f"wrote {args.nights} nights in {time.process_time() - begin:.1f} s of CPU, a checkpoint in {slowest:.2f} s")


def plan_and_commit(dest: str, dumps: int) -> None:
    """Plan a run of new dumps, commit its batches, and plan the same dumps again."""
    from xlamem.input.find import Member, Source
    from xlamem.warehouse.plan import plan
    from xlamem.warehouse.task import DumpInput, Options

    def found(i: int) -> DumpInput:
        stem = f"/dumps/run-{i // 193:05}/module_{i % 193:04}.jit_step_{i % 193}.cl_1.after_optimizations"
        members = tuple(Member(role, f"{stem}-{role}.txt", size=4000) for role in ROLES)
        return DumpInput(content_id(0, i), Source(stem, members), 15_000)

    options = Options(dest, tuple(schema.WAREHOUSE), tool_version="1.0", run_id="run")
    identified = [found(i) for i in range(dumps)]
    ids = [dump.content_id for dump in identified]
    ledger = Ledger(Storage(dest))
    ledger.state.stored.find(ids)  # all at once, as a run does
    tasks = plan(identified, ledger.state, options).tasks
    with ledger.run("run"):
        for task in tasks:
            files = tuple(File(t, f"{t}/v2/{task.batch}-00000.parquet", 1000, 31_000) for t in schema.WAREHOUSE)
            new = tuple(dump.content_id for dump in task.inputs)
            ledger.commit(Batch(task.batch, new, (), files, "1.0", schema.VERSION, "run", options.tables))
        ledger.checkpoint()
    state = Ledger(Storage(dest)).state
    state.stored.find(ids)
    again = plan(identified, state, options)
    assert (again.stored, again.tasks) == (dumps, [])


def measured(code: str) -> tuple[float, float]:
    """Run Python code in a new process; return its CPU time in seconds and its peak memory in MB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"  # ru_maxrss has the parent's
    script = f"{code}\n{peak}"
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, int(out) / 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("nights", 365), ("dumps", 13_900), ("batch", 695), ("tables", 26)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--to")
    parser.add_argument("--runs", type=int, nargs="*")
    args = parser.parse_args()
    for dumps in args.runs or ():
        with tempfile.TemporaryDirectory() as dest:
            sys_path = f"import sys; sys.path.append({os.path.dirname(__file__)!r})"
            cpu, mb = measured(f"{sys_path}; import ledger; ledger.plan_and_commit({dest!r}, {dumps})")
            print(f"a run of {dumps:9,} dumps {cpu:6.2f} s of CPU {mb:8.0f} MB")
    if args.runs:
        return
    with tempfile.TemporaryDirectory() as folder:
        dest = args.to or folder
        if not os.path.exists(f"{dest}/_ledger"):
            simulate(dest, args)
        paths = [path for path in Path(dest, "_ledger").rglob("*") if path.is_file()]
        print(f"ledger: {len(paths)} files, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB")
        night = f"{folder}/night.json"
        known = args.dumps // 2
        ids = [content_id(args.nights - (i < known), i) for i in range(args.dumps)]
        Path(night).write_text(json.dumps(ids))
        for name, code in OPENED.items():
            text = code.format(dest=dest, one=content_id(args.nights // 2, 7)[:12], night=night, known=known)
            runs = [measured(text) for _ in range(5)]
            print(f"{name:32} {min(cpu for cpu, _ in runs):6.2f} s of CPU {min(mb for _, mb in runs):8.0f} MB")


if __name__ == "__main__":
    main()
