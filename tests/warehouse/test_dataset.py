"""Reading a dataset: by pyarrow, DuckDB, Polars, and one dump again."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import old_dataset
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS, every

import xlamem
from xlamem import schema, warehouse
from xlamem.compute import buffer_names, origins
from xlamem.input.find import Source

LABELS = {"commit": "abc", "night": "2025-01-31"}
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
SMALL = DUMPS / "cpu-jaxlib-0.5.3-tuple3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All dumps; one that cannot be read; two labels, one of them in the path."""
    folder = tmp_path_factory.mktemp("dataset")
    bad = folder / "in" / "module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz"
    bad.parent.mkdir()
    bad.write_bytes(b"\x1f\x8b\x08 this is not gzip")
    made = xlamem.convert(DUMPS, bad.parent, to=folder / "out", labels=LABELS, partition_by=["night"], engine="here")
    assert len(made.failed) == 1
    return str(folder / "out")


@pytest.fixture
def dataset(folder: str) -> xlamem.Dataset:
    return xlamem.Dataset(folder)


@pytest.fixture(scope="module")
def stored(folder: str) -> dict[str, str]:
    """Content hash -> a content_id with that content."""
    modules = xlamem.Dataset(folder)["modules"].to_table()
    return dict(zip(modules["content_hash"].to_pylist(), modules["content_id"].to_pylist(), strict=True))


def same(one: xlamem.Dump, other: xlamem.Dump) -> None:
    for name in schema.TABLES:
        assert one[name].schema == other[name].schema == schema.TABLES[name].arrow, name
        assert one[name].to_pylist() == other[name].to_pylist(), name


# ---- tables


def test_it_is_what_the_ledger_says(dataset: xlamem.Dataset) -> None:
    assert dataset.tables == tuple(schema.WAREHOUSE)
    dumps = dataset.dumps()
    assert dumps["content_id"].to_pylist() == list(dataset.ids) == sorted(dataset.ids)  # each was found once
    assert len(dataset.ids) == len(xlamem.find(DUMPS))
    assert dumps["module_name"].to_pylist().count("jit_m_scan_while") == 3
    assert set(dumps["label_commit"].to_pylist()) == {"abc"}
    assert set(dumps["label_night"].to_pylist()) == {"2025-01-31"}
    modules = [n for n in schema.WAREHOUSE["modules"].names if n not in schema.OCCURRENCES.names]
    assert dumps.column_names == [*schema.OCCURRENCES.names, "label_commit", "label_night", *modules]
    in_sql = dataset.sql("FROM dumps ORDER BY content_id")
    assert in_sql.schema == dumps.schema
    assert in_sql.to_pylist() == dumps.to_pylist()
    assert dataset["quarantine"].count_rows() == 1
    assert f"dumps   {len(dataset.ids)} in {len(dataset.ids)} occurrences, 1 in quarantine" in repr(dataset)
    assert pickle.loads(pickle.dumps(dataset)).ids == dataset.ids


def test_every_table_is_there_in_its_types(dataset: xlamem.Dataset) -> None:
    modules = dataset["modules"].to_table()
    for name, table in schema.WAREHOUSE.items():
        assert dataset.dataset(name).schema == table.warehouse
        assert dataset[name].to_table().schema == table.warehouse
    for table in schema.SECTION_TABLES:
        assert dataset[table.name].count_rows() == sum(modules[f"n_{table.name}"].to_pylist()), table.name
    with pytest.raises(xlamem.UsageError, match="no table 'nonsense'"):
        dataset["nonsense"]
    with pytest.raises(xlamem.UsageError, match="no table 0; there are"):
        list(dataset)


def test_only_committed_files_count(folder: str, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    dataset = xlamem.Dataset(tmp_path / "copy")
    n = dataset["values"].count_rows()
    (path,) = dataset.files("values")["path"].to_pylist()
    shutil.copy(path, Path(path).with_name("0" * 32 + "-0.parquet"))  # nobody has committed that
    dataset = xlamem.Dataset(tmp_path / "copy")
    assert dataset["values"].count_rows() == n
    assert dataset.sql('SELECT count(*) FROM "values"')[0].to_pylist() == [n]
    assert len(dataset.files("values")) == 1


def test_files(dataset: xlamem.Dataset, folder: str) -> None:
    files = dataset.files()
    assert list(dict.fromkeys(files["table"].to_pylist())) == [t for t in schema.WAREHOUSE if dataset[t].count_rows()]
    for row in files.to_pylist():
        assert os.path.getsize(row["path"]) == row["bytes"]
        assert pq.read_metadata(row["path"]).num_rows == row["rows"]
        assert row["path"].startswith(f"{folder}/{row['table']}/v2/")
        assert row["tool_version"] == xlamem.__version__
        assert row["schema_version"] == schema.VERSION
    assert dataset.files("values").to_pylist() == [r for r in files.to_pylist() if r["table"] == "values"]
    assert dataset.files("cross_color").num_rows == 0
    assert dataset.files("cross_color").schema == files.schema
    for name in ("nonsense", "", "Values"):
        for call in (dataset.files, dataset.__getitem__):
            with pytest.raises(xlamem.UsageError, match=f"no table '{name}'"):
                call(name)


@pytest.mark.parametrize("name", ["nowhere", "folder", "file"])
def test_what_has_no_ledger_is_no_dataset(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(xlamem.UsageError, match="is not a dataset of `xlamem convert`: it has no ledger"):
        xlamem.Dataset(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["nowhere", "folder"])
@pytest.mark.parametrize(
    "change",
    [
        warehouse.compact,
        warehouse.migrate,
        partial(warehouse.drop, where="total_bytes < 0"),
        partial(warehouse.register, to="delta"),
    ],
)
def test_no_command_makes_a_dataset(change: Callable[[Path], Any], name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(xlamem.UsageError, match="is not a dataset of `xlamem convert`: it has no ledger"):
        change(tmp_path / name)
    assert [*tmp_path.rglob("*")] == [tmp_path / "folder"]


# ---- the same by every reader


def test_pyarrow_duckdb_and_polars_agree(dataset: xlamem.Dataset) -> None:
    plain = {pa.string(): polars.String, pa.int64(): polars.Int64, pa.bool_(): polars.Boolean}
    plain |= {pa.timestamp("us", "UTC"): polars.Datetime("us", "UTC"), pa.float64(): polars.Float64}
    words = {pa.string(): "VARCHAR", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}
    words |= {pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE", pa.float64(): "DOUBLE"}
    for name, spec in schema.WAREHOUSE.items():
        paths = dataset.files(name)["path"].to_pylist()
        if not paths:
            continue
        table = dataset[name].to_table()
        frame = polars.read_parquet(paths, hive_partitioning=False)
        assert dict(frame.schema) == {f.name: plain[f.type] for f in spec.warehouse}, name
        relation = duckdb.read_parquet(paths, hive_partitioning=False)
        assert dict(zip(relation.columns, map(str, relation.types), strict=True)) == {
            f.name: words[f.type] for f in spec.warehouse
        }
        counts = table.num_rows, frame.height, relation.shape[0], dataset[name].count_rows()
        assert len(set(counts)) == 1, name
        numbers = [column.name for column in spec.columns if column.kind == "int"]
        if numbers:
            totals = {column: sum(v for v in table[column].to_pylist() if v is not None) for column in numbers}
            assert {column: frame[column].sum() for column in numbers} == totals, name
            sums = ", ".join(f'coalesce(sum("{column}"), 0) AS "{column}"' for column in numbers)
            assert dataset.sql(f'SELECT {sums} FROM "{name}"').to_pylist() == [totals], name


def test_numbers_of_columns_are_recorded(dataset: xlamem.Dataset) -> None:
    """DuckDB need not open all files to compare their columns."""
    for name in schema.WAREHOUSE:
        for file in dataset.files_of(name):
            assert file.columns == pq.read_metadata(dataset.storage.path(file.path)).num_columns
    views = dataset.duckdb_views()
    assert "union_by_name = False" in views
    assert "union_by_name = True" not in views


# ---- SQL


def test_sql(dataset: xlamem.Dataset) -> None:
    for name in schema.WAREHOUSE:
        found = dataset.sql(f'FROM "{name}"')
        assert found.schema == schema.WAREHOUSE[name].warehouse, name
        assert found.num_rows == dataset[name].count_rows(), name
    assert set(dataset.sql("SHOW TABLES")[0].to_pylist()) == {*schema.WAREHOUSE, "dumps"}
    assert dataset.sql("SELECT count(*) FROM MODULES")[0].to_pylist() == [len(dataset.ids)]
    joined = dataset.sql("SELECT value, count(*) AS n FROM modules JOIN labels USING (run_id) GROUP BY 1 ORDER BY 1")
    assert joined.to_pylist() == [{"value": v, "n": len(dataset.ids)} for v in ("2025-01-31", "abc")]


def test_sums_are_whole_numbers(dataset: xlamem.Dataset) -> None:
    found = dataset.sql("SELECT sum(bytes) AS total, sum(bytes) * 1000000000000000 AS huge, avg(bytes) AS a FROM files")
    assert found.schema.types == [pa.int64(), pa.decimal128(38, 0), pa.float64()]
    assert found["huge"][0].as_py() == Decimal(found["total"][0].as_py()) * 10**15
    assert xlamem.sql(SMALL, "SELECT sum(bytes) AS s FROM files").schema.types == [pa.int64()]


def test_times_are_utc(dataset: xlamem.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    (found,) = dataset.sql("SELECT max(converted_at) AS t FROM modules").schema.types
    assert found == pa.timestamp("us", "UTC")


def test_a_statement_without_result(dataset: xlamem.Dataset, tmp_path: Path) -> None:
    dataset.sql(f"COPY (FROM labels) TO '{tmp_path}/labels.csv'")
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 1 + 2
    assert dataset.sql("CREATE TABLE x (a INTEGER)").num_columns in (0, 1)


def test_a_query_that_makes_no_sense(dataset: xlamem.Dataset) -> None:
    for query in ("SELEC", "FROM nonsense", "SELECT nonsense FROM peaks"):
        with pytest.raises(xlamem.UsageError, match="cannot run the query"):
            dataset.sql(query)


def test_sql_needs_duckdb(dataset: xlamem.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(xlamem.UsageError, match=r"xlamem\[duckdb\]"):
        dataset.sql("SELECT 1")


def test_odd_names(tmp_path: Path) -> None:
    to = tmp_path / "it's [a] {dataset} *"
    xlamem.convert(SMALL, to=to, labels={"o'clock": "5 o'clock/ü"}, partition_by=["o'clock"], engine="here")
    dataset = xlamem.Dataset(to)
    assert dataset.sql('SELECT count(*) AS n FROM "values"').to_pylist() == [{"n": dataset["values"].count_rows()}]
    assert dataset.dumps()["label_o'clock"].to_pylist() == ["5 o'clock/ü"]
    same(dataset.read(dataset.ids[0]), xlamem.read(SMALL, hashes=True))


@pytest.mark.parametrize(("name", "sibling"), [("ds*x", "dsZx"), ("ds?", "ds1"), ("ds[1]", "ds1"), ("a\\b*", "a\\bc")])
def test_a_folder_whose_name_is_a_pattern(name: str, sibling: str, tmp_path: Path) -> None:
    """The dataset beside it has files of the same names, because those of batches are hashes."""
    duckdb = pytest.importorskip("duckdb")
    for folder, night in ((sibling, "1"), (name, "2")):
        xlamem.convert(SMALL, to=tmp_path / folder, labels={"night": night}, engine="here")
    dataset = xlamem.Dataset(tmp_path / name)
    query, rows = 'SELECT count(*) AS n FROM "values"', [{"n": dataset["values"].count_rows()}]
    run_ids = [{"run_id": run_id} for run_id in dataset["runs"].to_table()["run_id"].to_pylist()]
    with duckdb.connect() as views:
        views.execute(dataset.duckdb_views())
        assert dataset.sql(query).to_pylist() == views.sql(query).to_arrow_table().to_pylist() == rows
        query = "SELECT run_id FROM modules"
        assert dataset.sql(query).to_pylist() == views.sql(query).to_arrow_table().to_pylist() == run_ids


def test_label_keys_that_differ_only_in_case(tmp_path: Path) -> None:
    """Those of two machines. In SQL, they share a column; `dumps()` has both."""
    pytest.importorskip("duckdb")
    other = DUMPS / "cpu-tf-2.3.4-loop"
    xlamem.convert(SMALL, to=tmp_path, labels={"Commit": "1", "ä": "x"}, engine="here")
    xlamem.convert(other, to=tmp_path, labels={"commit": "2", "Ä": "y"}, engine="here")
    dataset = xlamem.Dataset(tmp_path)
    assert dataset.label_keys == ("Commit", "commit", "Ä", "ä")
    query = 'SELECT label_commit AS commit, "label_Ä" AS a, "label_ä" AS b FROM dumps ORDER BY 1'
    rows = dataset.sql(query).to_pylist()
    assert rows == [{"commit": "1", "a": None, "b": "x"}, {"commit": "2", "a": "y", "b": None}]
    assert {row["label_Commit"] for row in dataset.dumps().to_pylist()} == {"1", None}
    assert warehouse.drop(tmp_path, "label.commit = '1'").occurrences == 1
    assert xlamem.Dataset(tmp_path).sql("SELECT count(*) AS n FROM dumps").to_pylist() == [{"n": 1}]


# ---- one dump


@pytest.mark.parametrize("source", every(2, xlamem.find(DUMPS)), ids=lambda s: f"{Path(s.location).name}-{s.name[:12]}")
def test_a_dump_out_of_the_dataset(
    source: Source, dataset: xlamem.Dataset, stored: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origins, "MAX_SHARE", 1.0)  # a dataset has no HLO texts
    monkeypatch.setattr(buffer_names, "MIN_READ", 2.0)  # the same
    original = xlamem.read(source, hashes=True)
    dump = dataset.read(stored[original.modules["content_hash"][0].as_py()])
    assert isinstance(dump, xlamem.Dump)
    assert dump.tables == original.tables
    same(dump, original)
    assert dump.complete == original.complete
    assert dump.schedule_length == original.schedule_length
    for name in dump.tables:
        batches = dump.batches(name)
        assert batches.schema == schema.TABLES[name].arrow
        assert batches.read_all().to_pylist() == original[name].to_pylist(), name
    assert dump.verify().to_pylist() == original.verify().to_pylist()
    assert repr(dump).splitlines()[1:] == repr(original).splitlines()[1:]
    for function in (xlamem.peak, xlamem.live_set, xlamem.explain, xlamem.savings, xlamem.donation, xlamem.attribution):
        assert _outcome(function, dump) == _outcome(function, original), function


def _outcome(function: Any, dump: xlamem.Dump) -> Any:
    try:
        found = function(dump)
    except xlamem.UsageError as error:
        return str(error).replace(dump.name, "")
    tables = [found] if isinstance(found, pa.Table) else [t for t in vars(found).values() if isinstance(t, pa.Table)]
    assert tables
    return [t.to_pylist() for t in tables]


def test_a_dump_out_of_the_dataset_in_python(dataset: xlamem.Dataset, stored: dict[str, str]) -> None:
    original = xlamem.read(TPU, hashes=True)
    identity = stored[original.modules["content_hash"][0].as_py()]
    dump = dataset.read(identity[:10])
    assert dump.name == original.name
    assert dump.source.location == original.source.location
    assert dump.source.platform == "tpu"
    assert dump["values"] is dump.values
    assert dump == dataset.read(identity)
    assert hash(dump) == hash(dataset.read(identity))
    assert dump != original
    assert dump != dataset.read(identity, tables=["values"])
    again = pickle.loads(pickle.dumps(dump))
    assert again == dump
    same(again, original)
    assert xlamem.sql(dump, "SELECT sum(peak) AS p FROM peaks").to_pylist() == [{"p": 4262912 + 1441792 + 4}]
    assert "<th" in dump._repr_html_()
    with pytest.raises(AttributeError, match="cannot be changed"):
        dump.source = None  # type: ignore[assignment]
    some = dataset.read(identity, tables="values")
    assert some.tables == ("values",)
    with pytest.raises(xlamem.UsageError, match="left out"):
        some.uses  # noqa: B018


def test_which_dump(dataset: xlamem.Dataset) -> None:
    with pytest.raises(xlamem.UsageError, match="no dump 'zzz'"):
        dataset.read("zzz")
    with pytest.raises(xlamem.UsageError, match="no dump ''"):
        dataset.read("")
    common = next(i[0] for i in dataset.ids if sum(j[0] == i[0] for j in dataset.ids) > 1)
    with pytest.raises(xlamem.UsageError, match=f"content_ids begin with {common}: "):
        dataset.read(common)
    (bad,) = dataset["quarantine"].to_table()["content_id"].to_pylist()
    with pytest.raises(xlamem.UsageError, match="see the table quarantine"):
        dataset.read(bad)
    with pytest.raises(xlamem.UsageError, match="no table nonsense"):
        dataset.read(dataset.ids[0], tables=["nonsense"])


def test_a_dump_of_which_not_all_is_stored(tmp_path: Path) -> None:
    xlamem.convert(SMALL, to=tmp_path, tables=["values", "allocations"], engine="here")
    dataset = xlamem.Dataset(tmp_path)
    assert dataset.dumps().to_pylist()[0]["module_name"] is None
    dump = dataset.read(dataset.ids[0])
    assert dump.tables == ("allocations", "values")
    assert dump.values.to_pylist() == xlamem.read(SMALL)["values"].to_pylist()
    assert "not stored" in repr(dump)
    with pytest.raises(xlamem.UsageError, match="'uses' of this dump is not stored"):
        dump.uses  # noqa: B018
    with pytest.raises(xlamem.UsageError, match="'diagnostics' of this dump is not stored"):
        dump.verify()
    with pytest.raises(xlamem.UsageError, match="no table uses of this dump is stored"):
        dataset.read(dataset.ids[0], tables=["uses"])


def test_a_dump_in_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows come in their order, however many row groups and files they lie in."""
    from xlamem.warehouse import parquet

    for name, value in {"ROW_GROUP_BYTES": 2000, "MIN_ROW_GROUP_BYTES": 500, "MAX_ROW_GROUPS": 2}.items():
        monkeypatch.setattr(parquet, name, value)
    source = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
    xlamem.convert(source, to=tmp_path, engine="here")
    dataset = xlamem.Dataset(tmp_path)
    assert len(dataset.files("values")) > 10
    dump, original = dataset.read(dataset.ids[0]), xlamem.read(source, hashes=True)
    same(dump, original)
    assert dump.batches("values").read_all().to_pylist() == original["values"].to_pylist()


# ---- damage


@pytest.fixture
def damaged(folder: str, tmp_path: Path) -> tuple[xlamem.Dataset, Path]:
    shutil.copytree(folder, tmp_path / "copy")
    dataset = xlamem.Dataset(tmp_path / "copy")
    return dataset, Path(dataset.files("values")["path"][0].as_py())


def test_a_missing_file_is_named(damaged: tuple[xlamem.Dataset, Path]) -> None:
    dataset, path = damaged
    path.unlink()
    with pytest.raises(xlamem.DumpError, match="is gone") as caught:
        dataset.sql('SELECT count(*) FROM "values"')
    assert caught.value.path == str(path)
    dump = dataset.read(dataset.ids[0])
    with pytest.raises(xlamem.DumpError, match="is gone") as caught:
        dump.values  # noqa: B018
    assert caught.value.path == str(path)
    with pytest.raises(FileNotFoundError, match=path.name):
        dataset["values"].to_table()
    assert dataset.sql("SELECT count(*) AS n FROM modules").to_pylist() == [{"n": len(dataset.ids)}]


def test_a_cut_file_is_named(damaged: tuple[xlamem.Dataset, Path]) -> None:
    dataset, path = damaged
    path.write_bytes(path.read_bytes()[:-100])
    for read in (lambda: dataset.sql('FROM "values"'), lambda: dataset.read(dataset.ids[0]).values):
        with pytest.raises(xlamem.DumpError, match="bytes, as committed, not") as caught:
            read()
        assert caught.value.path == str(path)


def test_rows_that_are_not_there_are_missed(damaged: tuple[xlamem.Dataset, Path]) -> None:
    dataset, path = damaged
    identity = next(r["content_id"] for r in dataset["modules"].to_table().to_pylist() if r["n_values"] > 1)
    table = pq.read_table(path, partitioning=None)
    first = table["content_id"].to_pylist().index(identity)
    pq.write_table(pa.concat_tables([table.slice(0, first), table.slice(first + 1)]), path)
    with pytest.raises(xlamem.DumpError, match=f"rows of values of the dump {identity}"):
        dataset.read(identity).values  # noqa: B018


# ---- elsewhere than on the disk


def test_in_memory() -> None:
    fsspec = pytest.importorskip("fsspec")
    uri = "memory://datasets/one"
    try:
        xlamem.convert(SMALL, TPU, to=uri, labels=LABELS)
        dataset = xlamem.Dataset(uri)
        assert len(dataset.ids) == 2
        assert all(p.startswith(uri) for p in dataset.files()["path"].to_pylist())
        assert counts_in_sql(dataset) == {name: dataset[name].count_rows() for name in schema.WAREHOUSE}
        assert dataset.dumps()["label_commit"].to_pylist() == ["abc", "abc"]
        (identity,) = dataset.sql("SELECT content_id FROM modules WHERE platform = 'tpu'")[0].to_pylist()
        same(dataset.read(identity), xlamem.read(TPU, hashes=True))
        (path,) = (f["path"] for f in dataset.files("values").to_pylist())
        fsspec.filesystem("memory").rm(path.removeprefix("memory:/"))
        for read in (lambda: dataset.sql('FROM "values"'), lambda: dataset.read(identity).values):
            with pytest.raises(xlamem.DumpError) as caught:
                read()
            assert caught.value.path == path
        with pytest.raises(xlamem.UsageError, match="no ledger"):
            xlamem.Dataset("memory://datasets/none")
    finally:
        fsspec.filesystem("memory").rm("/datasets", recursive=True)


def test_thousands_of_files(tmp_path: Path) -> None:
    """Many batches: each file is one of the ledger's, and none is opened before it is needed."""
    xlamem.convert(SMALL, to=tmp_path, tables=["modules"], engine="here")
    entry = tmp_path / "_ledger" / "entries" / f"{2:012}.json"
    data = json.loads(entry.read_text())
    (batch,) = data["add"]
    (file,) = batch["files"]
    n = 2000
    data["add"] = []
    for i in range(n):
        path = f"modules/v2/{i:032x}-0.parquet"
        os.link(tmp_path / file["path"], tmp_path / path)
        data["add"].append({**batch, "name": f"{i:032x}", "dumps": [f"{i:032x}"], "files": [{**file, "path": path}]})
    entry.write_text(json.dumps(data))
    dataset = xlamem.Dataset(tmp_path)
    assert len(dataset.ids) == dataset.files("modules").num_rows == n
    assert dataset.sql("SELECT count(*) AS n FROM modules").to_pylist() == [{"n": n}]
    assert dataset["modules"].count_rows() == n


# ---- a dataset of an older version


@pytest.fixture
def old(tmp_path: Path) -> Path:
    shutil.copytree(old_dataset.OLD, tmp_path / "old")
    return tmp_path / "old"


def counts_in_sql(dataset: xlamem.Dataset) -> dict[str, int]:
    """Rows by table, in one query, because each opens a database."""
    tables = (f"SELECT '{name}' AS name, count(*) AS n FROM \"{name}\"" for name in schema.WAREHOUSE)
    return {row["name"]: row["n"] for row in dataset.sql(" UNION ALL ".join(tables)).to_pylist()}


def counts(dataset: xlamem.Dataset) -> dict[str, int]:
    """Rows by table, in which three readers agree; a glob finds no other files than the ledger names."""
    found, in_sql = {}, counts_in_sql(dataset)
    is_old = 1 in dataset.files()["schema_version"].to_pylist()
    for name in schema.WAREHOUSE:
        found[name] = dataset[name].count_rows()
        assert in_sql[name] == found[name], name
        paths = dataset.files(name)["path"].to_pylist()
        assert sorted(paths) == sorted(str(p) for p in Path(dataset.storage.uri, name).rglob("*.parquet"))
        if paths and not is_old:  # a file of version 1 may have rows that are not shown
            frames = [polars.scan_parquet(p, hive_partitioning=False) for p in paths]
            frame = polars.concat(frames, how="diagonal")
            assert frame.collect().height == found[name]
    return found


def expected(*sources: Path) -> dict[str, int]:
    dumps = [xlamem.read(s) for s in sources]
    return {name: sum(d[name].num_rows for d in dumps) for name in schema.TABLES}


def test_an_old_dataset_is_read(old: Path) -> None:
    dataset = xlamem.Dataset(old)
    found = counts(dataset)
    wanted = expected(*old_dataset.DUMPS)
    assert {n: found[n] for n in old_dataset.TABLES if n in wanted} == {
        n: wanted[n] for n in old_dataset.TABLES if n in wanted
    }
    assert found["uses"] == found["scopes"] == 0
    for name, columns in old_dataset.MISSING.items():
        for table in (dataset[name].to_table(), dataset.sql(f'FROM "{name}"')):
            assert table.schema == schema.WAREHOUSE[name].warehouse
            assert all(table[c].null_count == table.num_rows for c in columns), name
    versions = dataset.sql("SELECT DISTINCT tool_version FROM modules").to_pylist()
    assert versions == [{"tool_version": old_dataset.VERSION}]
    original = xlamem.read(old_dataset.DUMPS[1])
    (identity,) = dataset.sql("SELECT content_id FROM modules WHERE module_name = 'jit_m_tuple3'")[0].to_pylist()
    dump = dataset.read(identity)
    assert dump.allocations.to_pylist() == original.allocations.to_pylist()
    assert dump.values.to_pylist() == [{**row, "uses_known": None} for row in original["values"].to_pylist()]
    assert dump.name == "old"  # the files were not stored: it is known by its place
    with pytest.raises(xlamem.UsageError, match="'uses' of this dump is not stored"):
        dump.uses  # noqa: B018
    assert dump.aliases.num_rows == original.aliases.num_rows == 0


def test_an_old_dataset_grows(old: Path) -> None:
    before = counts(xlamem.Dataset(old))
    made = xlamem.convert(TPU, to=old, labels=old_dataset.LABELS, engine="here")
    assert (made.dumps, made.already_stored) == (1, 0)
    dataset = xlamem.Dataset(old)
    found, more = counts(dataset), expected(TPU)
    assert {n: found[n] for n in more} == {n: before[n] + more[n] for n in more}
    asked = dataset.sql('SELECT uses_known IS NULL AS old, count(*) AS n FROM "values" GROUP BY 1 ORDER BY 1')
    assert asked.to_pylist() == [{"old": False, "n": more["values"]}, {"old": True, "n": before["values"]}]
    assert xlamem.convert(TPU, to=old, labels=old_dataset.LABELS, engine="here").already_stored == 1
    again = counts(xlamem.Dataset(old))
    assert again == {**found, "runs": found["runs"] + 1, "labels": found["labels"] + 1}


def test_what_an_older_version_stored_is_replaced(old: Path) -> None:
    """Without the hash of its content, a dump is known by its labels and names; its files stay until a migration."""
    ids = xlamem.Dataset(old).ids
    made = xlamem.convert(*old_dataset.DUMPS, to=old, labels=old_dataset.LABELS, engine="here")
    assert (made.dumps, made.already_stored, made.occurrences) == (len(ids), 0, len(ids))
    wanted = expected(*old_dataset.DUMPS)
    for migrated in (False, True):
        if migrated:
            assert warehouse.migrate(old).contents == 0
        dataset = xlamem.Dataset(old)
        assert len(dataset.ids) == len(ids)
        assert set(dataset.ids).isdisjoint(ids)
        found = counts(dataset)
        assert {n: found[n] for n in wanted} == wanted
        assert found["occurrences"] == len(ids)
        assert set(dataset.dumps()["label_commit"].to_pylist()) == {old_dataset.LABELS["commit"]}
        assert dataset["values"].to_table()["uses_known"].null_count == sum(
            xlamem.read(d)["values"]["uses_known"].null_count for d in old_dataset.DUMPS
        )
    files = dataset.files()
    assert {v for t, v in zip(files["table"].to_pylist(), files["tool_version"].to_pylist(), strict=True)
            if t not in ("runs", "labels")} == {xlamem.__version__}  # fmt: skip


def test_one_dump_of_an_old_batch_is_replaced(old: Path) -> None:
    ids = xlamem.Dataset(old).ids
    one, other = old_dataset.DUMPS
    made = xlamem.convert(other, to=old, labels=old_dataset.LABELS, engine="here")
    assert made.dumps == 1
    dataset = xlamem.Dataset(old)
    assert len(dataset.ids) == len(ids)
    assert len(set(dataset.ids) & set(ids)) == 1
    found, wanted = counts(dataset), expected(one, other)
    for name in ("modules", "allocations", "values"):
        assert found[name] == wanted[name]
    asked = dataset.sql("SELECT tool_version, module_name FROM modules ORDER BY 1").to_pylist()
    assert [r["tool_version"] for r in asked] == [old_dataset.VERSION, xlamem.__version__]
    (kept,) = set(dataset.ids) & set(ids)
    assert dataset.read(kept).allocations.num_rows == xlamem.read(one).allocations.num_rows
    with pytest.raises(xlamem.UsageError, match="'uses' of this dump is not stored"):
        dataset.read(kept).uses  # noqa: B018


# ---- Spark, where it is installed


@pytest.mark.filterwarnings("ignore")
def test_spark_agrees(dataset: xlamem.Dataset, old: Path) -> None:
    sql = pytest.importorskip("pyspark.sql")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    builder = sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    words = {pa.string(): "string", pa.int64(): "bigint", pa.bool_(): "boolean"}
    words |= {pa.timestamp("us", "UTC"): "timestamp", pa.float64(): "double"}
    try:
        for name, spec in schema.WAREHOUSE.items():
            if paths := dataset.files(name)["path"].to_pylist():
                frame = spark.read.parquet(*paths)
                assert dict(frame.dtypes) == {f.name: words[f.type] for f in spec.warehouse}, name
                assert frame.count() == dataset[name].count_rows(), name
        xlamem.convert(TPU, to=old, engine="here")
        grown = xlamem.Dataset(old)
        frame = spark.read.option("mergeSchema", True).parquet(*grown.files("values")["path"].to_pylist())
        assert frame.count() == grown["values"].count_rows()
        assert "uses_known" in frame.columns
    finally:
        spark.stop()
