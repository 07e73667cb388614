"""Iceberg and Delta tables follow the ledger: the same rows, once, whatever is repeated or killed."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import json_schemas
import jsonschema
import pyarrow as pa
import pytest
from conftest import DUMPS, HERE
from kills import killed
from test_convert import broken, convert, on_disk, state, stored

import xlamem
from xlamem import schema, warehouse
from xlamem.cli import main
from xlamem.warehouse import followers, plan
from xlamem.warehouse.batch import File
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.storage import Storage

NAMES = sorted(path.name for path in DUMPS.glob("cpu-*"))
NIGHTS = {"1": NAMES[:2], "2/ ü%": NAMES[1:4]}
FEW = ("values", "modules", "occurrences")
FORMATS = [
    pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(library), reason=f"no {library}"))
    for name, library in (("iceberg", "pyiceberg"), ("delta", "deltalake"))
]
ICEBERG_SLOW = [pytest.param("iceberg", marks=[FORMATS[0].marks[0], pytest.mark.slow]), FORMATS[1]]
"""For tests of what both formats have in common, and that commit often: pyiceberg takes ten times as long."""
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


@pytest.fixture
def few_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "TABLES", FEW)
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)


@pytest.fixture
def nights(tmp_path: Path, few_tables: None) -> Path:
    """A dataset that is not registered."""
    for night, names in NIGHTS.items():
        for name in names:
            convert(DUMPS / name, to=tmp_path / "out", labels={"night": night}, partition_by=["night"])
    return tmp_path / "out"


def iceberg_table(dest: Path, name: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    folder = dest / "_iceberg"
    with closing(SqlCatalog("xlamem", uri=f"sqlite:///{folder}/catalog.db", warehouse=str(folder))) as catalog:
        return catalog.load_table(("xlamem", name))


def read(dest: Path, form: str, name: str) -> pa.Table:
    """The rows of a table as a reader of the format sees them."""
    if form == "iceberg":
        return iceberg_table(dest, name).scan().to_arrow()
    from deltalake import DeltaTable

    return DeltaTable(dest / name).to_pyarrow_table()


def rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def agree(dest: Path, form: str, tables: tuple[str, ...] = FEW) -> None:
    """The rows of the format are those of the ledger and of a glob."""
    for name in tables:
        assert rows(read(dest, form, name)) == rows(stored(dest, name)), name
    found = {path for path in on_disk(dest) if path.endswith(".parquet") and "_delta_log" not in path}
    assert found == {file.path for file in state(dest).files()}


# -- what is registered --------------------------------------------------------------------------


@pytest.mark.parametrize("form", ICEBERG_SLOW)
def test_all_tables_follow(tmp_path: Path, form: str) -> None:
    """Also those without rows; from the first run on, without repeating the option."""
    dest = tmp_path / "out"
    broken(tmp_path / "in")
    convert(*(DUMPS / name for name in NAMES[:3]), to=dest, labels={"night": "1"}, register=form)
    agree(dest, form, tuple(schema.WAREHOUSE))
    convert(*(DUMPS / name for name in NAMES[1:5]), tmp_path / "in", to=dest, labels={"night": "2"})
    agree(dest, form, tuple(schema.WAREHOUSE))
    for name, spec in schema.WAREHOUSE.items():
        assert read(dest, form, name).schema.names == spec.warehouse.names


@pytest.mark.parametrize("form", FORMATS)
def test_columns_are_described(nights: Path, form: str) -> None:
    warehouse.register(nights, form)
    wanted = schema.WAREHOUSE["values"]["size"].doc
    if form == "iceberg":
        assert iceberg_table(nights, "values").schema().find_field("size").doc == f"{wanted} (bytes)"
        return
    from deltalake import DeltaTable

    table = DeltaTable(nights / "values")
    fields = {field["name"]: field for field in json.loads(table.schema().to_json())["fields"]}
    assert fields["size"]["metadata"] == {"comment": f"{wanted} (bytes)"}
    assert table.metadata().description == f"one row per {schema.WAREHOUSE['values'].row}"


@pytest.mark.parametrize("form", FORMATS)
def test_an_existing_dataset(nights: Path, form: str) -> None:
    """It is registered once, however often that is repeated; then it is merged, dropped and converted again."""
    pytest.importorskip("duckdb")
    found = warehouse.register(nights, form)
    assert found.added == found.files == sum(len(state(nights).files(name)) for name in FEW)
    agree(nights, form)
    assert (warehouse.register(nights, form).added, warehouse.register(nights, form).removed) == (0, 0)
    for night, names in NIGHTS.items():  # found again: nothing new but the runs
        sources = (DUMPS / name for name in names)
        convert(*sources, to=nights, labels={"night": night}, partition_by=["night"])
    agree(nights, form)
    assert warehouse.compact(nights).merged
    agree(nights, form)
    convert(DUMPS / NAMES[0], to=nights, labels={"night": "1"}, partition_by=["night"], reprocess=True)
    agree(nights, form)
    assert warehouse.drop(nights, "label.night = '1'").contents
    agree(nights, form)
    assert (warehouse.register(nights, form).added, warehouse.register(nights, form).removed) == (0, 0)


def test_iceberg_snapshots_whose_files_are_deleted_expire(nights: Path) -> None:
    """With their metadata."""
    pytest.importorskip("pyiceberg")
    pytest.importorskip("duckdb")
    warehouse.register(nights, "iceberg")
    convert(DUMPS / NAMES[5], to=nights)
    assert len(iceberg_table(nights, "occurrences").metadata.snapshots) == 2
    warehouse.drop(nights, "label.night = '1'")
    table = iceberg_table(nights, "occurrences")
    (snapshot,) = table.metadata.snapshots
    named = {snapshot.manifest_list, *(manifest.manifest_path for manifest in snapshot.manifests(table.io))}
    assert {str(path) for path in (nights / "_iceberg/xlamem/occurrences").rglob("*.avro")} == named
    assert snapshot.summary is not None
    assert int(snapshot.summary["total-records"] or 0) == stored(nights, "occurrences").num_rows


@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_a_later_version_adds(nights: Path, form: str) -> None:
    described = schema.Table.described
    with pytest.MonkeyPatch.context() as older:
        older.setattr(schema.Table, "described", lambda t, key: described(t, key).remove(len(t.columns) - 1))
        with followers.Target(form).opened(Storage(nights)) as open_table:
            assert open_table("values").files() == {}
    warehouse.register(nights, form)
    columns = ["content_id", *sorted(schema.WAREHOUSE["values"].names[1:])]
    found, wanted = read(nights, form, "values"), stored(nights, "values")
    assert sorted(found.column_names[1:]) == columns[1:]
    assert rows(found.select(columns)) == rows(wanted.select(columns))


@pytest.mark.parametrize("form", ICEBERG_SLOW)
def test_a_file_of_the_same_name_with_other_content(nights: Path, form: str) -> None:
    """If a dataset was no longer registered for a while."""
    warehouse.register(nights, form)
    file = state(nights).files("modules")[0]
    with followers.Target(form).opened(Storage(nights)) as open_table:
        table = open_table("modules")
        assert table.files()[file.path] == file.bytes
        assert table.replace([], [file.path])
        path = nights / file.path
        data = path.read_bytes()
        other = next(nights / f.path for f in state(nights).files("modules") if f.path != file.path)
        path.write_bytes(other.read_bytes())
        assert open_table("modules").replace([File("modules", file.path, 1, path.stat().st_size)], [])
        path.write_bytes(data)
    warehouse.register(nights, form)
    agree(nights, form)


# -- readers -------------------------------------------------------------------------------------


def test_readers_of_iceberg(nights: Path) -> None:
    pytest.importorskip("pyiceberg")
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    warehouse.register(nights, "iceberg")
    table = iceberg_table(nights, "values")
    with duckdb.connect() as connection:
        table.scan().to_duckdb("found", connection=connection)
        ((count, size),) = connection.sql("SELECT count(*), sum(size) FROM found").fetchall()
    wanted = stored(nights, "values")
    assert (count, size) == (wanted.num_rows, sum(wanted["size"].to_pylist()))
    for reader in ("native", "pyiceberg"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
            frame = polars.scan_iceberg(table, reader_override=reader).collect()
        assert (frame.height, frame["size"].sum()) == (count, size)


def test_readers_of_delta(nights: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    before = time.time()
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    warehouse.register(nights, "delta")
    wanted = stored(nights, "values")
    frame = polars.scan_delta(str(nights / "values")).collect()
    assert (frame.height, frame["size"].sum()) == (wanted.num_rows, sum(wanted["size"].to_pylist()))
    table = deltalake.DeltaTable(nights / "values")
    added = pa.table(table.get_add_actions())["modification_time"].cast(pa.timestamp("ms", "UTC"))
    assert all(before - 1 <= moment.timestamp() <= time.time() for moment in added.to_pylist())
    found = table.to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("found", found)
        sums = connection.sql("SELECT count(*), sum(size) FROM found").fetchall()
    assert sums == [(frame.height, frame["size"].sum())]


# -- kills, races, catalogs that fail ------------------------------------------------------------


def commits(form: str) -> tuple[tuple[Any, str], ...]:
    """The methods that commit to a table of a format."""
    if form == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        return ((SqlCatalog, "commit_table"),)
    from deltalake import DeltaTable

    return ((DeltaTable, "create_write_transaction"),)


CALLS = {
    "merge": lambda dest: warehouse.compact(dest),
    "convert": lambda dest: convert(DUMPS / NAMES[0], DUMPS / NAMES[5], to=dest, labels={"night": "3"}, reprocess=True),
    "drop": lambda dest: warehouse.drop(dest, "label.night = '1'"),
}


@pytest.mark.parametrize(
    ("call", "when"),
    [(call, when) if (call, when) == ("merge", "after") else pytest.param(call, when, marks=pytest.mark.slow)
     for call in CALLS for when in ("before", "after")],
)  # fmt: skip
@pytest.mark.parametrize("form", ICEBERG_SLOW)
def test_killed_at_every_commit(nights: Path, tmp_path: Path, form: str, call: str, when: str) -> None:
    """Of the ledger and of the tables: at any time, each row is there once; and the next run completes it."""
    if call == "drop":
        pytest.importorskip("duckdb")
    warehouse.register(nights, form)
    shutil.copytree(nights, tmp_path / "start")
    commit, last = 0, "?"
    while last:
        shutil.rmtree(nights)
        shutil.copytree(tmp_path / "start", nights)
        last = killed(
            lambda: CALLS[call](nights), commit, when, [(Ledger, "_append"), *commits(form)]
        )
        for name in FEW:
            found = rows(read(nights, form, name))
            assert len(set(found)) == len(found)
        CALLS[call](nights)
        agree(nights, form)
        commit += 1
    assert commit > 4


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_killed_at_random_instants(nights: Path, form: str) -> None:
    code = "import sys; from xlamem.cli import main; sys.exit(main(sys.argv[1:]))"
    commands = [
        ["convert", *(str(DUMPS / name) for name in NAMES), "--to", str(nights), "--engine", "here", "--quiet"],
        ["dataset", "compact", str(nights)],
        ["dataset", "register", str(nights), "--to", form],
        ["dataset", "drop", str(nights), "--where", "label.night = '1'", "--yes"],
    ]
    warehouse.register(nights, form)
    for command in commands:
        for seconds in (1.0, 1.5, 2.2, 3.0, 4.0):
            with subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL) as run:
                try:
                    run.wait(seconds)
                except subprocess.TimeoutExpired:
                    run.kill()
        assert subprocess.run([sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL).returncode == 0
        agree(nights, form)


@pytest.mark.parametrize("form", ICEBERG_SLOW)
def test_several_at_once(nights: Path, form: str) -> None:
    warehouse.register(nights, form)
    errors: list[BaseException] = []

    def attempt(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    works = [
        lambda: convert(*(DUMPS / name for name in NAMES[3:8]), to=nights, labels={"night": "7"}),
        lambda: convert(*(DUMPS / name for name in NAMES[4:9]), to=nights, labels={"night": "8"}),
        lambda: warehouse.compact(nights),
        lambda: warehouse.register(nights, form),
    ]
    threads = [threading.Thread(target=attempt, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    warehouse.register(nights, form)
    agree(nights, form)


@pytest.mark.parametrize("form", FORMATS)
def test_a_catalog_that_does_not_answer(nights: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The dataset is complete, nothing that a table names is deleted, and the next run makes up for it."""
    warehouse.register(nights, form)
    before = {name: rows(read(nights, form, name)) for name in FEW}
    command = ["convert", str(DUMPS / NAMES[0]), "--to", str(nights), "--engine", "here", "--reprocess", "--quiet"]

    def down(*args: Any, **options: Any) -> Any:
        raise ConnectionError("no route to host")

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in commits(form):
            patch.setattr(owner, name, down)
        assert main(command) == 4
    error = capsys.readouterr().err
    assert f"cannot register {nights} as {form} (ConnectionError: no route to host)" in error
    assert "the next run registers it" in error
    assert {name: rows(read(nights, form, name)) for name in FEW} == before
    assert main(command) == 0
    agree(nights, form)


# -- usage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["parquet", "delta:x.y", "iceberg:", "iceberg:x", "iceberg:.x", ""])
def test_unknown_formats(tmp_path: Path, text: str) -> None:
    with pytest.raises(xlamem.UsageError, match=r"iceberg, iceberg:CATALOG\.NAMESPACE or delta"):
        convert(DUMPS / NAMES[0], to=tmp_path / "out", register=[text])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("form", "library"), [("iceberg", "pyiceberg.catalog"), ("delta", "deltalake")])
def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, library: str) -> None:
    """Also by a command on another machine, before it changes anything."""
    convert(DUMPS / NAMES[0], to=tmp_path)
    (tmp_path / followers.FOLDER).mkdir()
    monkeypatch.setitem(sys.modules, library, None)
    for _ in range(2):
        with pytest.raises(xlamem.UsageError, match=rf"pip install 'xlamem\[{form}\]'"):
            convert(DUMPS / NAMES[1], to=tmp_path, register=form)
        (tmp_path / followers.FOLDER / f"{form}.json").write_text(json.dumps({"format": form, "place": ""}))
    assert len(state(tmp_path).stored) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_what_cannot_be_registered(nights: Path, tmp_path: Path, form: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(xlamem.UsageError, match="there is a # in its path"):
        convert(DUMPS / NAMES[0], to=f"memory://{tmp_path.name}#1", register=form)
    with pytest.raises(xlamem.UsageError, match="seen by this process only"):
        convert(DUMPS / NAMES[0], to=f"memory://{tmp_path.name}/out", register=form)  # type: ignore[arg-type]
    shutil.copytree(HERE / "data" / "v1-dataset", tmp_path / "old")
    with pytest.raises(xlamem.UsageError, match="dataset migrate"):
        warehouse.register(tmp_path / "old", form)
    with pytest.raises(xlamem.UsageError, match="no ledger"):
        warehouse.register(tmp_path / "none", form)


def test_another_catalog(nights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of pyiceberg's configuration; a dataset is in one catalog only."""
    pytest.importorskip("pyiceberg")
    import pyiceberg.catalog as catalogs
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{tmp_path}/lake.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "lake"))
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    assert main(["dataset", "register", str(nights), "--to", "iceberg:lake.xla"]) == 0
    with closing(load_catalog("lake")) as catalog:
        assert rows(catalog.load_table("xla.values").scan().to_arrow()) == rows(stored(nights, "values"))
    assert not (nights / "_iceberg").exists()
    with pytest.raises(warehouse.OutputError, match=r"cannot register .* as iceberg:nowhere\.x"):
        convert(DUMPS / NAMES[0], to=tmp_path / "other", register="iceberg:nowhere.x")
    with pytest.raises(xlamem.UsageError, match=r"is registered as iceberg:lake\.xla: delete .*iceberg\.json"):
        warehouse.register(nights, "iceberg")


@pytest.mark.parametrize("form", FORMATS)
def test_on_the_command_line(nights: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    files = sum(len(state(nights).files(name)) for name in FEW)
    assert main(["dataset", "register", str(nights), "--to", form]) == 0
    assert capsys.readouterr().out == f"{nights}: 3 {form} tables of {files} files; {files} added, 0 removed\n"
    assert main(["dataset", "register", str(nights), "--to", form, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(json_schemas.closed(json_schemas.document("dataset-register"))).validate(document)
    sums = {"to": form, "tables": 3, "files": files, "added": 0, "removed": 0}
    assert {name: document[name] for name in sums} == sums


@pytest.mark.parametrize(("form", "library"), [("iceberg", "pyiceberg"), ("delta", "deltalake")])
@pytest.mark.parametrize("name", ["a?b", "a%20b"])
def test_paths_that_look_like_uris(tmp_path: Path, few_tables: None, form: str, library: str, name: str) -> None:
    pytest.importorskip(library)
    dest = tmp_path / "to" / name
    if (form, name) == ("delta", "a%20b"):
        with pytest.raises(xlamem.UsageError, match="cannot be registered: deltalake replaces the %"):
            convert(DUMPS / NAMES[0], to=dest, register=form)
        assert followers.registered(Storage(dest)) == []
        return
    for source in NAMES[:2]:
        convert(DUMPS / source, to=dest, register=form)
    assert [path.name for path in (tmp_path / "to").iterdir()] == [name]
    assert (dest / "_iceberg" / "catalog.db").exists() == (form == "iceberg")
    if form == "delta":
        agree(dest, form)
