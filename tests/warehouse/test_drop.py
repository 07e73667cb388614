"""What is dropped by a condition, and what remains."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, HERE, every
from kills import killed
from test_convert import broken, convert, on_disk, state, stored

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse import checkpoints, ledger, plan, retention

pytest.importorskip("duckdb")

NIGHTS = {
    "1": ("cpu-jaxlib-0.5.3-tuple3", "cpu-jaxlib-0.4.26-scan_while"),
    "2": ("cpu-jaxlib-0.5.3-tuple3", "cpu-killed-at-buffer-assignment"),
    "3": ("cpu-jaxlib-0.4.35-cond_switch",),
}
OLD = "label.night < '3'"


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    broken(folder / "in")
    for night, names in NIGHTS.items():
        sources = [DUMPS / name for name in names] + ([folder / "in"] if night == "2" else [])
        convert(*sources, to=folder / "out", labels={"night": night, 'a"b': "x"}, partition_by=["night"])
    return folder / "out"


@pytest.fixture
def dest(nights: Path, tmp_path: Path) -> Path:
    shutil.copytree(nights, tmp_path / "out")
    return tmp_path / "out"


def whole(dest: Path) -> None:
    """Nothing points nowhere: every content has an occurrence and the other way around, and every run is known."""
    dataset = xlamem.Dataset(dest)
    ids = {*dataset["occurrences"].to_table()["content_id"].to_pylist()}
    assert ids == {*dataset.ids}
    runs = {row["run_id"] for row in dataset["runs"].to_table().to_pylist()}
    for table in schema.WAREHOUSE:
        rows = dataset[table].to_table()
        if "content_id" in rows.column_names and table != "quarantine":
            assert {*rows["content_id"].to_pylist()} <= ids, table
        if "run_id" in rows.column_names:
            assert {*rows["run_id"].to_pylist()} <= runs, table
    assert on_disk(dest) == {file.path for file in state(dest).files()}


def by_night(dest: Path) -> dict[str, int]:
    query = "SELECT label_night AS night, count(*) AS n FROM dumps GROUP BY 1 ORDER BY 1"
    return {row["night"]: row["n"] for row in xlamem.Dataset(dest).sql(query).to_pylist()}


def test_a_dry_run_changes_nothing(dest: Path) -> None:
    before = {p: p.read_bytes() for p in dest.rglob("*") if p.is_file()}
    found = warehouse.drop(dest, OLD, dry_run=True)
    assert (found.occurrences, found.contents, found.dry_run) == (4, 3, True)
    assert {p: p.read_bytes() for p in dest.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("where", "occurrences"),
    [
        (f"{OLD} -- the last month", 4),
        ("label.night = '1' OR label.night = '3'", 3),
        ("label.night = '1' AND module_name IS NULL", 0),
        ("label.night = NULL", 0),
    ],
)
def test_conditions(where: str, occurrences: int, dest: Path) -> None:
    assert warehouse.drop(dest, where, dry_run=True).occurrences == occurrences


def test_a_condition_that_nothing_meets_changes_nothing(dest: Path) -> None:
    before = state(dest).number, on_disk(dest)
    found = warehouse.drop(dest, "false")
    assert (found.occurrences, found.contents, found.dry_run) == (0, 0, False)
    assert (state(dest).number, on_disk(dest)) == before


def test_old_nights_are_dropped(dest: Path) -> None:
    kept = xlamem.Dataset(dest).sql("FROM \"values\" JOIN dumps USING (content_id) WHERE label_night = '3'")
    assert by_night(dest) == {"1": 2, "2": 2, "3": 1}
    before = {*state(dest).batches}
    found = warehouse.drop(dest, OLD)
    assert (found.occurrences, found.contents, found.quarantined, found.dry_run) == (4, 3, 0, False)
    assert found.batches == len(before - {*state(dest).batches})
    assert by_night(dest) == {"3": 1}
    assert xlamem.Dataset(dest).sql('FROM "values" JOIN dumps USING (content_id)').num_rows == kept.num_rows
    whole(dest)
    assert warehouse.drop(dest, OLD).batches == 0
    convert(*(DUMPS / name for name in NIGHTS["1"]), to=dest, labels={"night": "1"})
    assert by_night(dest) == {"1": 2, "3": 1}
    whole(dest)


def test_contents_that_are_found_elsewhere_remain(dest: Path) -> None:
    values = len(stored(dest, "values"))
    found = warehouse.drop(dest, "label_night = '1' AND uri LIKE '%tuple3%'")
    assert (found.occurrences, found.contents) == (1, 0)
    assert len(stored(dest, "values")) == values
    found = warehouse.drop(dest, "label.night = '2' AND module_name IS NOT NULL AND \"label_a\"\"b\" = 'x'")
    assert by_night(dest) == {"1": 1, "3": 1}
    assert found.contents == 2
    whole(dest)


def test_what_could_not_be_read(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump in quarantine goes with its last occurrence; text that could not be loaded has none, and stays."""
    from xlamem.warehouse import worker

    def trip(source: Any, **options: Any) -> Any:
        raise xlamem.DumpError("f.txt", "a line")

    monkeypatch.setattr(worker, "ReadDump", trip)
    convert(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", to=dest, labels={"night": "4"})
    assert len(stored(dest, "quarantine")) == 2
    found = warehouse.drop(dest, "label.night = '4'")
    assert (found.occurrences, found.contents, found.quarantined) == (1, 0, 1)
    (row,) = stored(dest, "quarantine").to_pylist()
    assert "not gzip" not in row["name"]
    whole(dest)


def test_wrong_usage(dest: Path, tmp_path: Path) -> None:
    for where, message in (("nonsense = 1", "nonsense"), ("true AND", "DuckDB cannot run"), (" ", "is empty")):
        with pytest.raises(xlamem.UsageError, match=message):
            warehouse.drop(dest, where)
    warehouse.drop(dest, "true")
    assert warehouse.drop(dest, OLD).occurrences == 0  # the labels are known although nothing has them
    warehouse.compact(dest)
    assert warehouse.drop(dest, OLD).occurrences == 0
    assert by_night(dest) == {}
    with pytest.raises(xlamem.UsageError, match="no ledger"):
        warehouse.drop(tmp_path / "none", "true")
    with pytest.raises(xlamem.UsageError, match="dataset migrate"):
        warehouse.drop(HERE / "data" / "v1-dataset", "true", dry_run=True)


@pytest.mark.parametrize("when", every(2, ["before", "after"]))
def test_killed_at_every_write(nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """Readers see all or nothing of it, and repeating it gives the same files."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 2)
    monkeypatch.setattr(checkpoints, "FOLD_SECONDS", -1)
    dest, write, seen = tmp_path / "out", 0, set()
    while True:
        shutil.rmtree(dest, ignore_errors=True)
        shutil.copytree(nights, dest)
        last = killed(lambda: warehouse.drop(dest, OLD), write, when)
        seen.add(tuple(by_night(dest)))
        assert {row["content_id"] for row in stored(dest, "occurrences").to_pylist()} == {*xlamem.Dataset(dest).ids}
        assert all((dest / file.path).exists() for file in state(dest).files())
        if not last:
            break
        warehouse.drop(dest, OLD)
        convert(DUMPS / NIGHTS["3"][0], to=dest, labels={"night": "3", 'a"b': "x"})
        assert by_night(dest) == {"3": 1}
        whole(dest)
        write += 2
    assert write > 5
    assert seen == {("1", "2", "3"), ("3",)}


def test_dropped_while_a_converter_runs(dest: Path) -> None:
    """Whatever the order: what is converted has occurrences, and what is dropped has none."""
    errors: list[BaseException] = []

    def attempt(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    names = {name for night in NIGHTS.values() for name in night}
    works = [
        lambda: warehouse.drop(dest, "label.night = '1'"),
        lambda: convert(*(DUMPS / name for name in names), to=dest, labels={"night": "1", 'a"b': "x"}),
        lambda: warehouse.drop(dest, "label.night = '2'"),
        lambda: convert(*(DUMPS / name for name in names), to=dest, labels={"night": "5"}),
    ]
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    whole(dest)
    assert by_night(dest)["5"] == len(names)


@pytest.mark.parametrize("when", ["before the first", "before the second", "and merged"])
@pytest.mark.parametrize("where", every(2, ["label.night = '1'", "true"]))
def test_dropped_before_it_is_converted(dest: Path, monkeypatch: pytest.MonkeyPatch, where: str, when: str) -> None:
    """What a run still has to convert keeps its occurrences, and can be dropped later."""
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 1)
    monkeypatch.setattr(plan, "TARGET_BATCHES", 1 << 20)
    at, dropped = int(when == "before the second"), []

    def drop(status: warehouse.Status) -> None:
        if status.phase == "convert" and status.dumps == at and not dropped:
            dropped.append(warehouse.drop(dest, where))
            if when == "and merged":
                warehouse.compact(dest)

    new = ("cpu-jaxlib-0.12.0-no_output", "cpu-jaxlib-0.12.0-scan_while", "cpu-jaxlib-0.9.1-mlp_grad")
    sources = [DUMPS / name for name in (*NIGHTS["1"], *new)]
    made = convert(*sources, to=dest, labels={"night": "1", 'a"b': "x"}, progress=drop)
    assert made.dumps == 3
    assert by_night(dest) == {"1": 3 - at, **({} if where == "true" else {"2": 2, "3": 1})}
    whole(dest)
    warehouse.drop(dest, "true")
    assert xlamem.Dataset(dest).ids == ()
    whole(dest)


def test_dropped_while_the_dataset_changes(dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows are looked for in the state that is changed. Some attempts later it is an error."""
    original, stale, attempts = retention._open, [True, True, False], []

    def opened(dest: Path) -> Any:
        found = original(dest)
        attempts.append(found)
        if stale[min(len(attempts), len(stale)) - 1]:  # what another process committed is not seen yet
            monkeypatch.setattr(found.state, "number", found.state.number - 1)
        return found

    monkeypatch.setattr(retention, "_open", opened)
    assert warehouse.drop(dest, OLD).occurrences == 4
    assert len(attempts) == len(stale)
    whole(dest)
    before = on_disk(dest)
    stale[:], attempts[:] = [True], []
    with pytest.raises(warehouse.OutputError, match="is being written to: repeat the command"):
        warehouse.drop(dest, "true")
    assert (len(attempts), on_disk(dest)) == (retention.MAX_ATTEMPTS, before)


def test_on_the_command_line(dest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from xlamem.cli import main

    assert main(["dataset", "drop", str(dest), "--where", OLD]) == 0
    out = capsys.readouterr().out
    assert out == f"{dest}: 4 occurrences, 3 contents found nowhere else would be dropped; --yes drops them\n"
    assert main(["dataset", "drop", str(dest), "--where", OLD, "--yes"]) == 0
    assert capsys.readouterr().out.endswith("3 contents found nowhere else dropped\n")
    assert main(["dataset", "drop", str(dest), "--where", OLD, "--json"]) == 0
    assert '"occurrences": 0' in capsys.readouterr().out
    assert main(["dataset", "drop", str(dest)]) == 2


def test_a_content_that_is_stored_and_in_quarantine_is_dropped_from_both() -> None:
    """An older version has stored it, and a later one failed to read it again."""
    state: Any = SimpleNamespace(
        batches={}, stored=SimpleNamespace(find=lambda ids: dict.fromkeys(ids, "d")), quarantined={"x": "q"}
    )
    matching = pa.table({name: pa.array([value], kind) for name, value, kind in (
        ("content_id", "x", pa.string()), ("uri", "/x", pa.string()), ("offset", None, pa.int64()),
        ("host", "h", pa.string()), ("run_id", "r", pa.string()),
    )})  # fmt: skip
    storage: Any = None
    plan = retention._Plan(storage, state, matching)
    assert plan.removed == ("d", "q")
    assert plan.result(dry_run=True) == retention.Dropped(1, 1, 1, 2, dry_run=True)
