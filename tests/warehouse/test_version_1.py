"""A dataset of version 1 (`schema=v1`): read as it is, grown, and migrated at any pace."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import v1_dataset
from conftest import DUMPS, every
from kills import killed
from test_convert import LINEAGE, SMALL, on_disk, state
from test_warehouse_docs import QUERIES

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse.activity import host_name
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.offsets import with_columns
from xlamem.warehouse.old import OldDumps, device_peaks_of
from xlamem.warehouse.stored_fingerprints import with_fingerprints

DATED = ("seen_at", "started_at", "run_id", "host")
FRAME = ("offset", "stem", "members")
"""Columns that version 1 did not store for a dump in a captured stream."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(v1_dataset.V1, tmp_path / "old")
    return tmp_path / "old"


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return v1_dataset.nights(tmp_path_factory.mktemp("dumps") / "nights")


@pytest.fixture(scope="module")
def fresh(nights: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same dumps, converted by this version."""
    to = tmp_path_factory.mktemp("fresh")
    v1_dataset.convert(nights, to)
    return to


def rows(dest: Path, table: str, *without: str) -> list[str]:
    """The rows of a table, sorted, with paths from the folder of the nights on. pyarrow and DuckDB agree on them."""
    dataset = xlamem.Dataset(dest)
    found = sorted(map(repr, dataset[table].to_table().to_pylist()))
    assert sorted(map(repr, dataset.sql(f'FROM "{table}"').to_pylist())) == found
    lists = dataset[table].to_table().drop_columns([c for c in without if c in schema.WAREHOUSE[table].names])
    return sorted(re.sub(r"'[^']*/nights/", "'", repr(row)) for row in lists.to_pylist())


@cache
def fresh_rows(fresh: Path, table: str, *without: str) -> list[str]:
    """Those of the fresh dataset, which no test changes."""
    return rows(fresh, table, *without)


def whole(dest: Path, fresh: Path) -> None:
    """Every content is there once with all of its rows, and every occurrence of version 1."""
    assert xlamem.Dataset(dest).ids == xlamem.Dataset(fresh).ids
    later = ["n_flags"]
    if any(batch.is_old for batch in state(dest).batches.values()):
        later += ["program_fp", "interface_fp"]
    for table in schema.WAREHOUSE.keys() - schema.RUN_TABLES.keys():
        assert rows(dest, table, *LINEAGE, *later) == fresh_rows(fresh, table, *LINEAGE, *later), table
    found, wanted = rows(dest, "occurrences", *DATED, *FRAME), fresh_rows(fresh, "occurrences", *DATED, *FRAME)
    duplicates = [row for row in wanted if "again.tar" in row or "'b/four'" in row or "/four/" in row]
    assert len(duplicates) == 3  # the copies in archives, of which version 1 kept no trace, and what it could not read
    assert found == sorted(set(wanted) - set(duplicates))
    labels = {"night": "2025-01-30", "commit": "a1"}, {"night": "2025-01-31", "commit": "b2"}
    dumps = xlamem.Dataset(dest).dumps().to_pylist()
    assert {(r["label_night"], r["label_commit"]) for r in dumps} == {(x["night"], x["commit"]) for x in labels}
    assert all(f"/nights/{r['label_night']}/" in r["uri"] for r in dumps)
    assert len(rows(dest, "quarantine")) == 2


# ---- as it is


def test_it_is_read_as_this_version_would_have_stored_it(old: Path, fresh: Path) -> None:
    whole(old, fresh)
    dataset = xlamem.Dataset(old)
    assert {r["schema_version"] for r in dataset.files().to_pylist()} == {1}
    assert [r["tool_version"] for r in dataset["runs"].to_table().to_pylist()] == [v1_dataset.VERSION] * 2
    assert len(list(old.rglob("*.parquet"))) == dataset.files().num_rows
    named = [re.sub(", 'offset': [^,]*", "", row) for row in rows(old, "occurrences", *DATED) if "stdout" not in row]
    assert {*named} < {re.sub(", 'offset': [^,]*", "", row) for row in rows(fresh, "occurrences", *DATED)}
    assert "f" * 32 not in dataset
    for i in dataset.ids[::2]:
        assert i in dataset
        mine, other = dataset.read(i), xlamem.Dataset(fresh).read(i)
        for name in schema.TABLES.keys() - {"files", "diagnostics", "modules", "flags"}:
            assert mine[name].to_pylist() == other[name].to_pylist(), name
        assert mine.name == other.name
    (failed,) = (r["content_id"] for r in dataset["quarantine"].to_table().to_pylist() if "found this" in r["excerpt"])
    with pytest.raises(xlamem.UsageError, match="see the table quarantine"):
        dataset.read(failed)


@pytest.mark.parametrize("number", every(2, QUERIES))
def test_queries_have_the_same_answers(old: Path, fresh: Path, number: int) -> None:
    """As after a new conversion, before the migration, in the middle of it, and afterwards."""
    answers = [_answer(old, number)]
    first, *_ = sorted(state(old).batches)
    migrate_only(old, first)
    if number not in (1, 4):  # fingerprints are computed by the migration
        answers.append(_answer(old, number))
    warehouse.migrate(old)
    answers.append(_answer(old, number))
    assert answers == [_answer(fresh, number)] * len(answers)


def _answer(dest: Path, number: int) -> list[Any]:
    counted = ("dumps", "example", "allocated", "occurrences", "since")  # of occurrences, or places
    query = QUERIES[number].replace("LIMIT 10", "")
    query = query.replace("FROM dumps\n", "FROM (FROM dumps WHERE tool_version IS NOT NULL)\n")  # not those unread
    found = xlamem.Dataset(dest).sql(query).to_pylist()
    ignored = counted if number in (8, 9, 10) else ()
    return sorted(({k: v for k, v in row.items() if k not in ignored} for row in found), key=str)


def migrate_only(dest: Path, *names: str) -> None:
    """Migrate some of the batches, and stop."""
    commit = Ledger.commit

    def stop(self: Ledger, *batches: Any, remove: tuple[str, ...] = (), **options: Any) -> set[str]:
        if not {*remove} <= {*names}:
            raise ZeroDivisionError
        return commit(self, *batches, remove=remove, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "commit", stop)
        with pytest.raises(ZeroDivisionError):
            warehouse.migrate(dest)


@pytest.mark.slow
def test_on_an_object_store() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory, dest = fsspec.filesystem("memory"), "memory://version1/old"
    memory.put(str(v1_dataset.V1), "/version1/old", recursive=True)
    try:
        for migrated in (False, True):
            dataset, local = xlamem.Dataset(dest), xlamem.Dataset(v1_dataset.V1)
            assert dataset.ids == local.ids
            for table in (*schema.WAREHOUSE, "dumps"):
                count = f'SELECT count(*) AS n FROM "{table}"'
                assert dataset.sql(count).to_pylist() == local.sql(count).to_pylist(), table
            assert dataset.read(dataset.ids[0])["values"].equals(local.read(local.ids[0])["values"])
            assert warehouse.migrate(dest).batches == (0 if migrated else 4)
        found = {f"memory:/{path}" for path in memory.find("/version1/old") if path.endswith(".parquet")}
        assert found == set(xlamem.Dataset(dest).files()["path"].to_pylist())
    finally:
        memory.rm("/version1", recursive=True)


def test_a_missing_file_is_named(old: Path) -> None:
    path = next((old / "modules").rglob("*.parquet"))
    path.unlink()
    dataset = xlamem.Dataset(old)
    for read in (lambda: dataset.ids, lambda: dataset["values"], dataset.dumps, lambda: dataset.sql("FROM dumps")):
        with pytest.raises(xlamem.DumpError, match="is gone") as caught:
            read()
        assert caught.value.path == str(path)


# ---- both versions in one dataset


def test_it_grows_without_a_migration(old: Path, fresh: Path, nights: dict[str, Path], tmp_path: Path) -> None:
    before = {p: p.read_bytes() for p in old.rglob("*.parquet")}
    made = xlamem.convert(SMALL, to=old, labels={"night": "2025-02-01", "commit": "c3"}, engine="here")
    assert (made.dumps, made.occurrences) == (1, 1)
    assert made.already_stored == 0  # stored again, with all columns of this version
    assert {p: p.read_bytes() for p in before} == before
    dataset = xlamem.Dataset(old)
    assert dataset.ids == xlamem.Dataset(fresh).ids
    for table in schema.WAREHOUSE.keys() - {*schema.RUN_TABLES, "modules", "files"}:
        assert rows(old, table) == fresh_rows(fresh, table) or table == "diagnostics", table
    seen = dataset.sql("SELECT label_night AS night, count(*) AS n FROM dumps GROUP BY 1 ORDER BY 1").to_pylist()
    assert seen == [{"night": "2025-01-30", "n": 4}, {"night": "2025-01-31", "n": 6}, {"night": "2025-02-01", "n": 1}]
    again = xlamem.convert(SMALL, to=old, labels={"night": "2025-02-01", "commit": "c3"}, engine="here")
    assert again.already_stored == 1
    warehouse.migrate(old)
    assert xlamem.Dataset(old).dumps().num_rows == 11


def relocated(to: Path, nights: dict[str, Path]) -> Path:
    """The stored dataset, as if it had been made on this host from the dumps of these nights."""
    shutil.copytree(v1_dataset.V1, to)
    folder = str(nights["2025-01-30"].parent)
    sizes = {}
    for path in to.rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        for name in {"uri", "file", "name", "host"} & set(table.column_names):
            column = pc.replace_substring(table[name].cast(pa.string()), "/tmp/nights", folder)
            column = pa.array([host_name()] * len(table)) if name == "host" else column
            table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, path, compression="zstd")
        sizes[str(path.relative_to(to))] = path.stat().st_size
    for path in to.glob("_ledger/entries/*.json"):
        entry = json.loads(path.read_text().replace("/tmp/nights", folder))
        for file in (file for batch in entry["add"] for file in batch["files"]):
            file["bytes"] = sizes[file["path"]]
        path.write_text(json.dumps(entry))
    return to


@pytest.mark.parametrize("first", every(2, ["convert", "migrate"]))
def test_the_same_nights_again(tmp_path: Path, nights: dict[str, Path], fresh: Path, first: str) -> None:
    """What version 1 found at a place with the same labels is no new occurrence; failures are not doubled."""
    old = relocated(tmp_path / "old", nights)
    assert xlamem.Dataset(old).dumps().num_rows == 10
    if first == "migrate":
        warehouse.migrate(old)
    v1_dataset.convert(nights, old)
    assert xlamem.Dataset(old).dumps().num_rows == xlamem.Dataset(fresh).dumps().num_rows == 13
    assert rows(old, "occurrences", *DATED, *FRAME) == rows(fresh, "occurrences", *DATED, *FRAME)
    assert xlamem.Dataset(old)["quarantine"].count_rows() == 2
    assert len({r["run_id"] for r in xlamem.Dataset(old)["runs"].to_table().to_pylist()}) == 4
    # The dump that could not be read is read, and the unreadable file is gone.
    night, labels = nights["2025-01-31"], {"night": "2025-01-31", "commit": "b2"}
    shutil.copytree(night, tmp_path / "2025-01-31", ignore=shutil.ignore_patterns("c"))
    for source, left in ((tmp_path / "2025-01-31", 1), (night, 1)):
        options: Any = {"labels": labels, "partition_by": ["night"], "retry_quarantine": True, "engine": "here"}
        made = xlamem.convert(source, to=old, **options)
        assert made.dumps == (source != night)
        assert xlamem.Dataset(old)["quarantine"].count_rows() == left
    warehouse.migrate(old)
    assert xlamem.Dataset(old)["quarantine"].count_rows() == 1
    assert len(xlamem.Dataset(old).ids) == len(xlamem.Dataset(fresh).ids) + 1


# ---- the migration


def test_migrated(old: Path, fresh: Path) -> None:
    ids = len(xlamem.Dataset(fresh).ids)
    made = warehouse.migrate(old)
    assert (made.batches, made.dumps, made.contents) == (4, 10, ids)
    whole(old, fresh)
    assert on_disk(old) == {f.path for f in state(old).files()}
    assert all("/v2/" in f.path for f in state(old).files())
    assert {"night=2025-01-30", "night=2025-01-31"} == {f.path.split("/")[2] for f in state(old).files()}
    for table in schema.WAREHOUSE.keys() - {"labels", "runs"}:
        for file in state(old).files(table):
            ids_of_file = xlamem.Dataset(old).scan_files(table, [file]).to_table()["content_id"].to_pylist()
            assert ids_of_file == sorted(ids_of_file), file
    before = {p: p.read_bytes() for p in old.rglob("*") if p.is_file()}
    assert warehouse.migrate(old).batches == 0
    assert {p: p.read_bytes() for p in old.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("table", ["labels", "modules", "values"])
def test_a_damaged_file_is_named(old: Path, table: str) -> None:
    damaged = old / next(file.path for file in state(old).files() if file.table == table)
    damaged.write_bytes(b"PAR1")
    with pytest.raises(xlamem.OutputError, match=f"{damaged.name}: expected a Parquet file"):
        warehouse.migrate(old)
    assert damaged.relative_to(old).as_posix() in {file.path for file in state(old).files()}
    assert not [p for p in old.rglob("*") if p.name.startswith(".") and p.is_file()]


def files_of(dest: Path) -> dict[str, bytes]:
    return {name: (dest / name).read_bytes() for name in on_disk(dest)}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_every_write(old: Path, fresh: Path, tmp_path: Path, when: str) -> None:
    """Readers see the same dumps at any time, and the next migration gives the same files."""
    shutil.copytree(old, tmp_path / "clean")
    warehouse.migrate(tmp_path / "clean")
    clean = files_of(tmp_path / "clean")
    # The state after a write is that before the next one, but for what the writer does in between.
    dest, kills, step = tmp_path / "out", 0, 2 if when == "before" else 5
    while True:
        shutil.rmtree(dest, ignore_errors=True)
        shutil.copytree(old, dest)
        if not killed(lambda: warehouse.migrate(dest), kills, when):
            break
        dataset = xlamem.Dataset(dest)
        assert dataset.ids == xlamem.Dataset(fresh).ids
        assert dataset.dumps().num_rows == 10
        assert dataset["values"].count_rows() == xlamem.Dataset(fresh)["values"].count_rows()
        if kills % 5 == 2:
            whole(dest, fresh)
        warehouse.migrate(dest)
        assert files_of(dest) == clean
        assert on_disk(dest) == {f.path for f in state(dest).files()}
        kills += step
    assert kills > 10
    assert files_of(dest) == clean


def command(*args: object) -> list[str]:
    code = "import sys; from xlamem.cli import main; sys.exit(main(sys.argv[1:]))"
    return [sys.executable, "-c", code, *map(str, args)]


@pytest.mark.slow
def test_killed_at_random_instants(old: Path, fresh: Path) -> None:
    chance = random.Random(5)
    for _ in range(8):
        with subprocess.Popen(command("dataset", "migrate", old, "--quiet")) as run:
            until = time.monotonic() + chance.uniform(0.2, 0.9)
            while run.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            run.kill()
        assert xlamem.Dataset(old).ids == xlamem.Dataset(fresh).ids
    assert subprocess.run(command("dataset", "migrate", old, "--quiet"), check=False).returncode == 0
    whole(old, fresh)
    assert on_disk(old) == {f.path for f in state(old).files()}


def test_two_migrations_and_a_converter_at_once(old: Path, fresh: Path, nights: dict[str, Path]) -> None:
    def convert() -> None:
        xlamem.convert(SMALL, to=old, labels={"night": "2025-02-01"}, engine="here")

    errors: list[BaseException] = []

    def attempt(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    works = [lambda: warehouse.migrate(old), lambda: warehouse.migrate(old), convert]
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert xlamem.Dataset(old).ids == xlamem.Dataset(fresh).ids
    assert xlamem.Dataset(old).dumps().num_rows == 11
    runs = xlamem.Dataset(old)["runs"].to_table()["run_id"].to_pylist()
    assert len(runs) == len(set(runs)) == 3
    assert on_disk(old) == {f.path for f in state(old).files()}


@pytest.mark.parametrize("alone", [False, True])
def test_fingerprints_of_stored_tables(tmp_path: Path, alone: bool) -> None:
    """They are those that the converter computes from the text."""
    xlamem.convert(DUMPS, to=tmp_path, engine="here")
    dataset = xlamem.Dataset(tmp_path)
    modules = dataset["modules"].to_table()
    assert modules["program_fp"].null_count < modules.num_rows - 20
    for part in [modules.slice(i, 1) for i in range(modules.num_rows)] if alone else [modules]:
        ids = part["content_id"].to_pylist()

        def rows(name: str, ids: list[str] = ids) -> list[pa.Table]:
            table = dataset[name].to_table()
            return [table.filter(pc.is_in(table["content_id"], pa.array(ids)))]

        nulls = pa.nulls(part.num_rows, pa.string())
        assert with_fingerprints(with_columns(part, program_fp=nulls, interface_fp=nulls), rows).equals(part)


def test_device_peaks_of_stored_bills(tmp_path: Path) -> None:
    """They are those that the converter computes, also of dumps that use no memory of the device."""
    none = "allocation 0: size 8, color 5, thread-local:\n value: <0 a @0> (size=8,offset=0): f32[2]{0}\n"
    (tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt").write_text(
        f"BufferAssignment:\n{none}\n\nHloLiveRange (max 1):\n  InstructionSequence:\n    0:a\n"
        "  BufferLiveRange:\n    a{}:0-1\n  Live ranges at 0 (peak):\n    a: 8 bytes\n"
    )
    xlamem.convert(DUMPS, tmp_path, to=tmp_path / "to", engine="here")
    tables = [xlamem.Dataset(tmp_path / "to")[name].to_table() for name in ("peaks", "bills")]
    peaks, bills = (t.rename_columns(["dump_id", *t.column_names[1:]]) for t in tables)
    stored = peaks.filter(pc.equal(peaks["definition"], "device_peak"))
    assert 0 in stored["bytes"].to_pylist()
    assert sorted(map(repr, device_peaks_of(peaks, bills).to_pylist())) == sorted(map(repr, stored.to_pylist()))


def test_without_stored_bills(old: Path) -> None:
    """No number is made up, and a file that is gone is named."""
    before = xlamem.Dataset(old)["peaks"].count_rows()
    path = next((old / "bills").rglob("*.parquet"))
    path.unlink()
    with pytest.raises(xlamem.DumpError, match="is gone") as caught:
        xlamem.Dataset(old)["peaks"]
    assert caught.value.path == str(path)
    for entry in old.glob("_ledger/entries/*.json"):
        state = json.loads(entry.read_text())
        for batch in state["add"]:
            batch["files"] = [file for file in batch["files"] if file["table"] != "bills"]
            batch["tables"].remove("bills")
        entry.write_text(json.dumps(state))
    peaks = xlamem.Dataset(old)["peaks"].to_table()
    assert len(peaks) == before - 5
    assert "device_peak" not in peaks["definition"].to_pylist()


def test_on_the_command_line(old: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from xlamem.cli import main

    assert main(["dataset", "migrate", str(old)]) == 0
    assert re.match(r".*/old: 4 batches, 10 dumps to 6 contents, [0-9.]+ s\n$", capsys.readouterr().out)
    assert main(["dataset", "migrate", str(old), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == 0
    assert main(["dataset", "migrate", str(tmp_path / "none")]) == 2
    assert "it has no ledger" in capsys.readouterr().err


def test_runs_of_version_1_and_their_labels() -> None:
    """A run has the labels of all of its batches, also empty ones. One that has a row of its own has no other."""
    found = object.__new__(OldDumps)
    batches = [
        SimpleNamespace(name=name, run_id=run, tool_version=f"v{name}", schema_version=1)
        for name, run in (("a", "r2"), ("b", "r1"), ("c", "r2"), ("d", "r3"), ("e", "r1"), ("f", "r4"))
    ]
    labels = {"a": {"night": "1"}, "b": {"x": ""}, "c": {"at": "z", "night": "1"}, "d": {"night": "9"}}
    labels |= {"e": {}, "f": {}}
    when = datetime(2025, 1, 2, tzinfo=UTC)
    occurrence = {"content_id": "i", "uri": "u", "run_id": "r2", "host": "h", "seen_at": when}
    by_batch: Any = {batch.name: [] for batch in batches} | {"c": [SimpleNamespace(occurrence=occurrence)]}
    state = SimpleNamespace(runs={"r3": {}})
    vars(found).update(batches=batches, labels=labels, by_batch=by_batch, state=state)
    assert found.run_table("labels").to_pylist() == [
        {"run_id": run, "key": key, "value": value}
        for run, key, value in (("r1", "x", ""), ("r2", "at", "z"), ("r2", "night", "1"))
    ]
    rows = found.run_table("runs").select(["run_id", "tool_version", "schema_version", "host", "started_at"])
    assert [(*row.values(),) for row in rows.to_pylist()] == [
        ("r1", "vb", 1, None, None), ("r2", "va", 1, "h", when), ("r4", "vf", 1, None, None)
    ]  # fmt: skip
    assert [row["uri"] for row in found.run_table("occurrences").to_pylist()] == ["u"]
    for wanted, uris in (({"night": "1"}, []), ({"night": "1", "at": "z"}, ["u"]), ({}, [])):
        assert found.occurrences_with(wanted)["uri"].to_pylist() == uris
