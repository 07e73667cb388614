"""SQL reads the tables that a query uses, and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.compute import REGISTRY
from xlamem.warehouse import query

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
SMALL = DUMPS / "cpu-jaxlib-0.5.3-tuple3"

QUERIES = {
    'SELECT count(*) FROM "values"': ["values"],
    "FROM MODULES": ["modules"],
    'FROM "Modules"': ["modules"],
    "SELECT * FROM main.modules": ["modules"],
    "FROM modules JOIN files USING (content_id) JOIN labels USING (run_id)": ["modules", "files", "labels"],
    "SELECT m.module_name FROM modules AS m, modules AS n": ["modules"],
    "WITH peaks AS (SELECT 1 AS a) SELECT * FROM peaks": [],
    "WITH peaks AS (FROM labels) SELECT * FROM peaks": ["labels"],
    "WITH a AS (SELECT content_id FROM uses) SELECT (SELECT count(*) FROM frames) AS n FROM a": ["uses", "frames"],
    "SELECT 1 AS labels -- FROM modules": [],
    "/* FROM modules; */ SELECT 'FROM files' AS x": [],
    "SELECT values.a FROM (SELECT 1 AS a) AS values": [],
    "FROM dumps": ["dumps"],
    "SELECT label_commit FROM dumps JOIN peaks USING (content_id)": ["dumps", "peaks"],
    "FROM range(3)": [],
    "SHOW TABLES": [],
    "SELECT table_name, column_name FROM information_schema.columns": [],
    "SHOW labels": ["labels"],
    "DESCRIBE scopes": ["scopes"],
    "DESCRIBE SELECT platform FROM modules": ["modules"],
    "SUMMARIZE aliases": ["aliases"],
    "PIVOT labels ON key USING first(value)": ["labels"],
    "UNPIVOT modules ON n_values, n_uses": ["modules"],
    "FROM query_table('labels')": ["labels"],
    "EXPLAIN FROM files": ["files"],
    "SELECT 1; FROM labels; FROM files": ["labels", "files"],
    "CREATE TABLE copy AS FROM labels; FROM copy": ["labels"],
    "CREATE MACRO m() AS TABLE FROM labels; FROM m()": ["labels"],
    "PREPARE q AS FROM labels; EXECUTE q": ["labels"],
    "": [],
    "-- only a comment": [],
}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were loaded, in order."""
    names: list[str] = []
    load = query._Session._load

    def record(self: Any, name: str) -> None:
        names.append(name)
        load(self, name)

    monkeypatch.setattr(query._Session, "_load", record)
    return names


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> xlamem.Dataset:
    folder = tmp_path_factory.mktemp("query")
    xlamem.convert(SMALL, TPU, to=folder, labels={"commit": "abc", "night": "monday"}, engine="here")
    return xlamem.Dataset(folder)


@pytest.mark.parametrize("text", QUERIES)
def test_only_tables_in_use_are_loaded(dataset: xlamem.Dataset, loads: list[str], text: str) -> None:
    dataset.sql(text)
    described = text in ("SHOW labels", "DESCRIBE scopes")  # some versions of DuckDB know the columns of a view
    assert sorted(loads) == sorted(QUERIES[text]) or (described and not loads)


def test_files_of_other_tables_are_not_opened(tmp_path: Path) -> None:
    xlamem.convert(SMALL, to=tmp_path, engine="here")
    dataset = xlamem.Dataset(tmp_path)
    for row in dataset.files().to_pylist():
        if row["table"] not in ("modules", "files"):
            Path(row["path"]).unlink()
    result = dataset.sql("SELECT count(*) AS n FROM modules JOIN files USING (content_id) -- values, peaks")
    assert result.to_pylist() == [{"n": dataset["files"].count_rows()}]
    assert set(dataset.sql("SHOW TABLES")["name"].to_pylist()) == {*schema.WAREHOUSE, "dumps"}
    with pytest.raises(xlamem.DumpError, match="is gone"):
        dataset.sql('FROM "values"')


def test_tables_and_columns_are_listed(dataset: xlamem.Dataset) -> None:
    columns = dataset.sql("SELECT table_name, column_name FROM information_schema.columns").to_pylist()
    assert {(r["table_name"], r["column_name"]) for r in columns} == {
        (name, column) for name, table in schema.WAREHOUSE.items() for column in table.arrow.names
    } | {("dumps", column) for column in dataset.dumps().column_names}
    dump = xlamem.read(TPU)
    names = set(xlamem.sql(dump, "SHOW TABLES")["name"].to_pylist())
    assert names == {*schema.TABLES, *REGISTRY}


def test_a_dump_computes_only_what_is_used(monkeypatch: pytest.MonkeyPatch, loads: list[str]) -> None:
    computed: list[str] = []

    def record(name: str, function: Callable[[Any], pa.Table]) -> Callable[[Any], pa.Table]:
        def compute(dump: Any) -> pa.Table:
            computed.append(name)
            return function(dump)

        return compute

    for name, function in REGISTRY.items():
        monkeypatch.setitem(REGISTRY, name, record(name, function))
    spaces = "(SELECT DISTINCT memory_space FROM allocations)"
    text = f"SELECT 'savings' AS idle, peak FROM peaks JOIN {spaces} USING (memory_space)"
    assert xlamem.sql(TPU, text).num_rows
    assert computed == ["peaks"]
    assert sorted(loads) == ["allocations", "peaks"]


def test_every_table_of_a_dump(loads: list[str]) -> None:
    dump = xlamem.read(TPU)
    for name in dump.tables:
        assert xlamem.sql(dump, f'FROM "{name}"').num_rows == dump[name].num_rows, name
    for name, function in REGISTRY.items():
        table = xlamem.sql(dump, f'FROM "{name}"')
        assert table.num_rows == function(dump).num_rows, name
        assert table.column_names == schema.COMPUTED[name].arrow.names, name
    assert loads == [*dump.tables, *REGISTRY]


def test_what_a_dump_cannot_compute(loads: list[str]) -> None:
    dump = xlamem.read(DUMPS / "cpu-killed-at-buffer-assignment")
    with pytest.raises(xlamem.UsageError, match="no allocations"):
        xlamem.sql(dump, "FROM live_set")
    assert loads == ["live_set"]
    assert xlamem.sql(dump, "SELECT 'live_set' AS a").num_rows == 1


def test_no_statement_runs_twice(dataset: xlamem.Dataset, tmp_path: Path) -> None:
    result = dataset.sql(
        "CREATE SEQUENCE s; CREATE TABLE t (i BIGINT, n BIGINT);"
        "INSERT INTO t SELECT nextval('s'), count(*) FROM labels;"
        "INSERT INTO t SELECT nextval('s'), count(*) FROM modules;"
        f"COPY (FROM labels) TO '{tmp_path}/labels.csv';"
        "SELECT nextval('s') AS i; FROM t ORDER BY i"
    )
    assert result.to_pylist() == [{"i": 1, "n": 2}, {"i": 2, "n": 2}]
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 1 + 2


def test_statements_run_until_one_fails(dataset: xlamem.Dataset, tmp_path: Path) -> None:
    with pytest.raises(xlamem.UsageError, match="nonsense"):
        dataset.sql(f"COPY labels TO '{tmp_path}/a.csv'; FROM nonsense; COPY labels TO '{tmp_path}/b.csv'")
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


@pytest.mark.parametrize("source", ["dump", "dataset"])
def test_transactions(dataset: xlamem.Dataset, source: str) -> None:
    """The error of a missing table may abort a transaction, so that all tables are loaded before it."""
    create = "CREATE TABLE t AS SELECT count(*) AS n FROM modules"
    text = f"BEGIN; {create}; INSERT INTO t SELECT 5; COMMIT; FROM t ORDER BY n"
    result = dataset.sql(text) if source == "dataset" else xlamem.sql(SMALL, text)
    assert result["n"].to_pylist() == [2 if source == "dataset" else 1, 5]


def test_pivot(dataset: xlamem.Dataset) -> None:
    result = dataset.sql("PIVOT labels ON key USING first(value) GROUP BY run_id ORDER BY run_id")
    (run,) = dataset["runs"].to_table()["run_id"].to_pylist()
    assert result.to_pylist() == [{"run_id": run, "commit": "abc", "night": "monday"}]


def test_python_variables_are_no_tables(dataset: xlamem.Dataset) -> None:
    local = pa.table({"a": [1]})
    assert local.num_rows
    for name in ("local", "statement", "connection", "nonsense"):
        with pytest.raises(xlamem.UsageError, match=f"DuckDB cannot run the query: .*{name}"):
            dataset.sql(f"FROM {name}")
