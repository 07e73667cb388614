"""What a run records of the dumps that it finds: which occurrences are new, and which are removed again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from xlamem import schema
from xlamem.warehouse import record
from xlamem.warehouse.batch import Batch
from xlamem.warehouse.occurrences import recorded_occurrences
from xlamem.warehouse.record import RunRecord, write_table
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage
from xlamem.warehouse.task import Options

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def occurrences(*rows: tuple[str, str]) -> pa.Table:
    """Occurrences of these contents, found by these runs."""
    spec = schema.OCCURRENCES.warehouse
    values: list[dict[str, Any]] = [
        {"content_id": content_id, "uri": f"/in/{content_id}", "run_id": run_id, "host": "h", "seen_at": NOW}
        for content_id, run_id in rows
    ]
    return pa.Table.from_pylist(values, spec)


def batch(storage: Storage, name: str, *rows: tuple[str, str], **fields: Any) -> Batch:
    files = tuple(write_table(storage, "v2", name * 32, "occurrences", occurrences(*rows)))
    published = storage.publish([file.path for file in files])
    files = tuple(replace(file, path=published[file.path]) for file in files)
    return Batch(name, (), (), files, "1", schema.VERSION, "r", tuple(schema.RUN_TABLES), **fields)


def state(*batches: Batch) -> State:
    found = State()
    for ordinal, one in enumerate(batches):
        found.add(one, ordinal)
    return found


def test_only_occurrences_with_the_same_labels_are_recorded(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    mine, other = {"night": "1"}, {"night": "2"}
    there = state(
        batch(storage, "a", ("x", "r1"), labels=mine),
        batch(storage, "b", ("y", "r2"), labels=other),
        batch(storage, "c", ("x", "r3"), ("z", "r4"), run_labels={"r3": other, "r4": mine}),
    )
    for labels, found in ((mine, ["x", "z"]), (other, ["x", "y"]), ({}, [])):
        tables = recorded_occurrences(storage, there, labels)
        assert sorted(i for table in tables for i in table["content_id"].to_pylist()) == found


@pytest.mark.parametrize(("stored", "quarantined"), [((), ()), (("x",), ()), ((), ("x",))])
@pytest.mark.parametrize("conflicts", [0, 1])
def test_occurrences_of_what_has_changed_are_removed(
    tmp_path: Path, stored: tuple[str, ...], quarantined: tuple[str, ...], conflicts: int
) -> None:
    """Unless the content is in the dataset. If another run commits meanwhile, it is done again."""
    storage = Storage(tmp_path)
    there = state(
        batch(storage, "a", ("x", "mine"), ("y", "mine")),
        batch(storage, "b", ("x", "other")),
        batch(storage, "c", ("y", "mine"), ("z", "mine")),
        Batch("d", stored, quarantined, (), "1", schema.VERSION, "r"),
    )
    commits: list[tuple[list[list[str]], tuple[str, ...]]] = []
    read: list[str] = []

    def commit(new: list[Batch], removed: tuple[str, ...]) -> bool:
        rows = [record.read_occurrences(storage, one.table_files("occurrences")) for one in new]
        commits.append(([table["content_id"].to_pylist() for table in rows], removed))
        return len(commits) > conflicts

    ledger: Any = SimpleNamespace(refresh=lambda: (read.append(""), there)[1], commit_if_current=commit)
    run = RunRecord(storage, ledger, Options("out", ("modules",), run_id="mine", host="h", started=NOW), {})
    run.found = occurrences(("x", "mine"), ("y", "mine"), ("z", "mine"))
    run.occurrences = 5
    run.forget({"x"})
    if stored or quarantined:
        assert (commits, run.occurrences, len(read)) == ([], 5, 1)
    else:
        assert commits == [([["y"]], ("a", "b"))] * (conflicts + 1)  # all of "b" is gone, and "c" is left alone
        assert (run.occurrences, len(read)) == (4, conflicts + 1)


@pytest.mark.parametrize("conflicts", [0, 1, 2])
def test_occurrences_that_another_run_records_meanwhile(tmp_path: Path, conflicts: int) -> None:
    """Those are left out when it is tried again: each is recorded once."""
    storage = Storage(tmp_path)
    commits: list[tuple[list[str], set[str]]] = []
    there = [batch(storage, "b", ("z", "other"))]

    def commit(*batches: Batch, labels: dict[str, str], known: set[str]) -> bool:
        files = [file for one in batches for file in one.table_files("occurrences")]
        rows = record.read_occurrences(storage, files)["uri"].to_pylist() if files else []
        commits.append((rows, known))
        if len(commits) <= conflicts:
            there.append(batch(storage, "cd"[len(commits) - 1], ("xy"[len(commits) - 1], "other")))
            return False
        return True

    ledger: Any = SimpleNamespace(refresh=lambda: state(*there), commit_occurrences=commit)
    options = Options("out", ("modules",), run_id="mine", host="h", started=NOW)
    run = RunRecord(storage, ledger, options, {})
    found = occurrences(("x", "mine"), ("y", "mine"), ("z", "mine"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record, "occurrence_table", lambda dumps, options: found)
        run.begin([])
    assert [known for _, known in commits] == [{*"bcd"[: n + 1]} for n in range(conflicts + 1)]
    assert [rows for rows, _ in commits] == [[f"/in/{i}" for i in "xy"[n:]] for n in range(conflicts + 1)]
    assert run.occurrences == 2 - conflicts
