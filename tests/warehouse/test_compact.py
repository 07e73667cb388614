"""Small batches are merged: the same rows, in few files, whatever happens meanwhile."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from conftest import DUMPS, every
from kills import killed
from test_convert import broken, convert, on_disk, state, stored

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse import checkpoints, compaction, parquet, plan
from xlamem.warehouse import ledger as ledgers
from xlamem.warehouse.storage import Storage

NAMES = sorted(path.name for path in DUMPS.iterdir())
NIGHTS = {"1": NAMES[::3], "2": NAMES[1::3], "3": NAMES[::2]}


def rows(dest: Path) -> dict[str, list[str]]:
    """All rows of all tables; those of a dump in their order."""
    found, ledger = {}, state(dest)
    for name in schema.WAREHOUSE:
        table = stored(dest, name, ledger)
        lines = table.to_pylist()
        if "content_id" in table.column_names:
            lines = sorted(lines, key=lambda row: row["content_id"])  # stable
        found[name] = [str(row) for row in lines]
        if name in schema.RUN_TABLES:
            found[name].sort()
    return found


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    broken(folder / "in")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_BATCH_BYTES", 100_000)
        for night, names in NIGHTS.items():
            convert(*(DUMPS / name for name in names), folder / "in", to=folder / "out", labels={"night": night})
    return folder / "out"


@pytest.fixture
def dest(nights: Path, tmp_path: Path) -> Path:
    shutil.copytree(nights, tmp_path / "out")
    return tmp_path / "out"


def test_few_files_with_the_same_rows(dest: Path) -> None:
    before, ids = rows(dest), dict(state(dest).stored)
    dumps = {i: xlamem.Dataset(dest).read(i)["values"] for i in ids}
    labels = xlamem.Dataset(dest).dumps()
    old = {file.path: file for file in state(dest).files()}
    found = warehouse.compact(dest)
    new = {file.path: file for file in state(dest).files()}
    gone, made = ([a[path] for path in a.keys() - b.keys()] for a, b in ((old, new), (new, old)))
    assert found.batches > 10
    assert (found.files, found.bytes) == (len(gone), sum(file.bytes for file in gone))
    assert (found.new_files, found.new_bytes) == (len(made), sum(file.bytes for file in made))
    assert found.new_files < found.files
    assert found.new_bytes < found.bytes
    assert all(len(state(dest).files(name)) <= 1 for name in schema.WAREHOUSE)
    assert rows(dest) == before
    assert dict(state(dest).stored).keys() == ids.keys()
    assert len(state(dest).stored) == len(ids)
    assert on_disk(dest) == {file.path for file in state(dest).files()}
    dataset = xlamem.Dataset(dest)
    assert all(dataset.read(i)["values"].equals(values) for i, values in dumps.items())
    assert dataset.dumps().equals(labels)
    again = {p: p.stat().st_mtime_ns for p in dest.rglob("*.parquet")}
    assert warehouse.compact(dest).batches == 0
    assert {p: p.stat().st_mtime_ns for p in dest.rglob("*.parquet")} == again


def test_what_the_ledger_says_of_merged_batches(dest: Path) -> None:
    """What it says of the quarantined dumps, labels and runs of any of them; their dumps are those of their entries."""
    batches = [batch for batch in state(dest).batches.values() if batch.files]
    with_places = [batch for batch in batches if batch.table_files("occurrences")]
    made = [*(batch for batch in batches if batch not in with_places), *with_places][-6:]
    assert 1 < len(with_places) < len(made)
    odd = [
        replace(
            batch, quarantined=(f"{i}q",), system=(f"{i}s",), attempts={f"{i}q": i}, places={f"{i}q": f"/{i}"},
            runs=(f"{i}r",),
        )
        for i, batch in enumerate(made)
    ]  # fmt: skip
    merged = compaction._merged(Storage(dest), odd, "new")
    n = range(len(made))
    assert (merged.quarantined, merged.system) == (tuple(f"{i}q" for i in n), tuple(f"{i}s" for i in n))
    assert (merged.attempts, merged.places) == ({f"{i}q": i for i in n}, {f"{i}q": f"/{i}" for i in n})
    assert (merged.runs, merged.run_id, merged.dumps) == (tuple(f"{i}r" for i in n), "new", ())
    assert merged.merges == tuple(sorted(batch.name for batch in made))
    assert merged.merged_bytes == sum(file.bytes for batch in made for file in batch.files)
    assert compaction._merged(Storage(dest), [merged, made[0]], "new").merged_bytes == merged.merged_bytes + sum(
        file.bytes for file in made[0].files
    )
    wanted: dict[str, dict[str, str]] = {}
    for batch in with_places:
        wanted |= batch.run_labels or {batch.run_id: batch.labels}
    assert (merged.labels, merged.run_labels) == ({}, wanted)


def test_dumps_are_sorted_by_program(dest: Path) -> None:
    warehouse.compact(dest)
    modules = stored(dest, "modules").to_pylist()
    order = [(r["platform"] or "~", r["module_name"] or "~", r["program_fp"] or "~", r["content_id"]) for r in modules]
    assert order == sorted(order)
    for table in ("values", "uses", "instructions", "peaks"):
        ids = list(dict.fromkeys(stored(dest, table)["content_id"].to_pylist()))
        assert ids == [i for _, _, _, i in order if i in set(ids)], table


def test_slices_and_small_row_groups(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little is sorted in memory at once, the rows are in the same order, and dumps are found."""
    shutil.copytree(dest, dest.parent / "whole")
    warehouse.compact(dest.parent / "whole")
    monkeypatch.setattr(compaction, "SLICE_BYTES", 10_000)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 20_000)
    monkeypatch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 5_000)
    warehouse.compact(dest)
    for table in schema.WAREHOUSE:
        assert stored(dest, table) == stored(dest.parent / "whole", table)
    (file,) = (f for f in state(dest).files("values") if f.path.endswith("-00000.parquet"))
    assert pq.ParquetFile(dest / file.path).num_row_groups > 5
    whole = xlamem.Dataset(dest.parent / "whole")
    for i in whole.ids:
        assert xlamem.Dataset(dest).read(i)["values"].to_pylist() == whole.read(i)["values"].to_pylist()


def test_the_dataset_grows_and_shrinks_afterwards(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpoints, "FOLD_SECONDS", -1)
    before = rows(dest)
    for attempt in range(3):
        warehouse.compact(dest)
        made = convert(*(DUMPS / name for name in NIGHTS["1"]), to=dest, labels={"night": "1"})
        assert (made.dumps, made.occurrences) == (0, 0)
        assert len(xlamem.Dataset(dest)["runs"].to_table()) == 4 + attempt
    assert {t: r for t, r in rows(dest).items() if t not in ("runs", "labels")} == {
        t: r for t, r in before.items() if t not in ("runs", "labels")
    }
    convert(*(DUMPS / name for name in NIGHTS["1"]), to=dest, labels={"night": "4"})
    warehouse.compact(dest)
    ids = {*state(dest).stored}
    made = convert(*(DUMPS / name for name in NIGHTS["3"][:2]), to=dest, labels={"night": "3"}, reprocess=True)
    assert made.dumps == 2
    assert {*state(dest).stored} == ids
    assert len(stored(dest, "modules")) == len(ids)
    warehouse.compact(dest)
    pytest.importorskip("duckdb")
    warehouse.drop(dest, "label.night IN ('2', '3')")
    kept = {row["content_id"] for row in stored(dest, "occurrences").to_pylist()}
    assert {*state(dest).stored} == kept == {*stored(dest, "modules")["content_id"].to_pylist()}
    nights = xlamem.Dataset(dest).sql("SELECT DISTINCT label_night AS n FROM dumps ORDER BY 1").to_pylist()
    assert [row["n"] for row in nights] == ["1", "4"]


def test_a_batch_that_is_merged_twice_keeps_the_labels_of_its_runs(tmp_path: Path) -> None:
    """What was seen with them is not recorded again."""
    nights = [{"night": str(night)} for night in range(5)]
    for i, labels in enumerate(nights):
        assert convert(DUMPS / NAMES[0], to=tmp_path, labels=labels).occurrences == 1
        if i % 2:
            warehouse.compact(tmp_path)
    assert len(state(tmp_path).files("occurrences")) == 2
    for labels in nights:
        assert convert(DUMPS / NAMES[0], to=tmp_path, labels=labels).occurrences == 0


def test_another_version_replaces_dumps_of_a_merged_batch(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In workers, which get the batch with all its dumps; also if these are in a checkpoint."""
    monkeypatch.setattr(ledgers, "CHECKPOINT_INTERVAL", 1)
    warehouse.compact(dest)
    before, ids = stored(dest, "values").num_rows, {*state(dest).stored}
    monkeypatch.setattr(xlamem, "__version__", "99")
    made = convert(*(DUMPS / name for name in NIGHTS["1"]), to=dest, engine="local", workers=2)
    assert made.dumps > 5
    assert ({*state(dest).stored}, stored(dest, "values").num_rows) == (ids, before)
    assert len(set(stored(dest, "modules")["content_id"].to_pylist())) == len(ids) == len(stored(dest, "modules"))
    assert on_disk(dest) == {file.path for file in state(dest).files()}


def test_on_an_object_store(nights: Path, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("duckdb")
    memory, dest = fsspec.filesystem("memory"), f"memory://{tmp_path.name}/out"
    memory.put(str(nights), f"/{tmp_path.name}/out", recursive=True)
    found = warehouse.compact(dest)
    assert found.merged > 0
    assert warehouse.compact(dest).batches == 0
    dataset, local = xlamem.Dataset(dest), xlamem.Dataset(nights)
    assert dataset.ids == local.ids
    i = dataset.ids[0]
    assert dataset.read(i)["values"].to_pylist() == local.read(i)["values"].to_pylist()
    assert warehouse.drop(dest, "label.night <> '1'").occurrences > 5
    paths = {path for path in memory.find(f"/{tmp_path.name}/out") if path.endswith(".parquet")}
    assert {f"memory:/{path}" for path in paths} == {*xlamem.Dataset(dest).files()["path"].to_pylist()}


def test_partitions_and_versions_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for i, version in enumerate(("0.0.8", "0.0.8", "0.0.9", "0.0.9")):
        monkeypatch.setattr(xlamem, "__version__", version)
        for night in ("1", "2"):
            source = DUMPS / NAMES[2 * i + int(night) - 1]
            convert(source, to=tmp_path, labels={"night": night}, partition_by=["night"])
    warehouse.compact(tmp_path)
    found = {file.path.split("/")[2] for file in state(tmp_path).files("modules")}
    assert found == {"night=1", "night=2"}
    assert len(state(tmp_path).files("modules")) == 4
    versions = {row["tool_version"] for row in xlamem.Dataset(tmp_path).files("modules").to_pylist()}
    assert versions == {"0.0.8", "0.0.9"}


@pytest.mark.parametrize(("limit", "value"), [("MAX_BYTES", 300_000), ("MAX_DUMPS", 7)])
def test_large_batches_are_left_alone(dest: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(compaction, limit, value)
    assert warehouse.compact(dest).merged > 2
    assert warehouse.compact(dest).batches == 0


@pytest.mark.parametrize("when", every(2, ["before", "after"]))
def test_killed_at_every_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(ledgers, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpoints, "FOLD_SECONDS", -1)
    start, dest = tmp_path / "start", tmp_path / "out"
    for night in range(3):
        convert(DUMPS / NAMES[night], to=start, labels={"night": str(night)}, tables=["modules", "values"])
    wanted, ids = rows(start), {*state(start).stored}
    write = 0
    while True:
        shutil.rmtree(dest, ignore_errors=True)
        shutil.copytree(start, dest)
        last = killed(lambda: warehouse.compact(dest), write, when)
        assert rows(dest) == wanted
        assert {*state(dest).stored} == ids
        if not last:
            break
        warehouse.compact(dest)
        assert rows(dest) == wanted
        assert all(len(state(dest).files(name)) <= 1 for name in schema.WAREHOUSE)
        assert on_disk(dest) == {file.path for file in state(dest).files()}
        write += 2
    assert write > 8


@pytest.mark.slow
def test_killed_at_random_instants(dest: Path) -> None:
    chance = random.Random(9)
    wanted = rows(dest)
    code = "import sys; from xlamem.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "dataset", "compact", str(dest)]
    for _ in range(8):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            until = time.monotonic() + chance.uniform(0.3, 2.0)
            while run.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
            run.kill()
        assert rows(dest) == wanted
    assert subprocess.run(command, check=False).returncode == 0
    assert rows(dest) == wanted
    assert on_disk(dest) == {file.path for file in state(dest).files()}


def test_two_at_once_and_a_converter(dest: Path) -> None:
    errors: list[BaseException] = []

    def attempt(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    works = [
        lambda: warehouse.compact(dest),
        lambda: warehouse.compact(dest),
        lambda: convert(*(DUMPS / name for name in NAMES[:9]), to=dest, labels={"night": "1"}),
        lambda: convert(*(DUMPS / name for name in NAMES[:9]), to=dest, labels={"night": "5"}),
    ]
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    runs = stored(dest, "runs").to_pylist()
    assert len(runs) == 5
    assert all(row["outcome"] == "finished" for row in runs)
    warehouse.compact(dest)
    ids = stored(dest, "modules")["content_id"].to_pylist()
    assert sorted(ids) == sorted(state(dest).stored)
    assert set(ids) == set(stored(dest, "occurrences")["content_id"].to_pylist())
    assert on_disk(dest) == {file.path for file in state(dest).files()}


@pytest.mark.slow
def test_converted_and_merged(tmp_path: Path, nights: Path) -> None:
    for night, names in NIGHTS.items():
        options: Any = {"labels": {"night": night}, "compact": True}
        convert(*(DUMPS / name for name in names), nights.parent / "in", to=tmp_path, **options)
        assert all(len(state(tmp_path).files(table)) <= 1 for table in schema.WAREHOUSE)
    for table in schema.WAREHOUSE.keys() - {"modules", *schema.RUN_TABLES}:
        assert rows(tmp_path)[table] == rows(nights)[table], table
    assert len(stored(tmp_path, "runs")) == 3


def test_on_the_command_line(dest: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from xlamem.cli import main

    assert main(["dataset", "compact", str(dest)]) == 0
    assert " files, " in capsys.readouterr().out
    assert main(["dataset", "compact", str(dest), "--json"]) == 0
    assert '"batches": 0' in capsys.readouterr().out
    assert main(["dataset", "compact", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100])
def test_a_damaged_file_is_named(content: bytes, dest: Path) -> None:
    damaged = dest / next(file.path for file in state(dest).files() if file.table == "printed_peak")
    damaged.write_bytes(content)
    with pytest.raises(xlamem.OutputError, match=f"{damaged.name}: expected a Parquet file"):
        warehouse.compact(dest)
    assert damaged.relative_to(dest).as_posix() in {file.path for file in state(dest).files()}
