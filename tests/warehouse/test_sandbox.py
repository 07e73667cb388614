"""Queries of others: what they may read and use, and what a dataset says of itself."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS
from test_convert import broken, convert

import xlamem
from xlamem import schema
from xlamem.compute import REGISTRY
from xlamem.warehouse.dataset import SANDBOX_MEMORY, SANDBOX_SECONDS, Dataset, limits_of
from xlamem.warehouse.query import Limits, _Session, _with_int64_sums

pytest.importorskip("duckdb")

ENDLESS = "SELECT count(*) AS n FROM range(10000000000) AS a(x), range(1000000) AS b(y) WHERE x * y = 7"


@pytest.fixture(scope="module")
def dest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sandbox")
    sources = [DUMPS / "cpu-jaxlib-0.5.3-tuple3", DUMPS / "cpu-tf-2.3.4-loop", broken(folder / "in")]
    convert(*sources, to=folder / "out", labels={"night": "1"})
    return folder / "out"


@pytest.fixture(params=["dataset", "dump"])
def source(request: pytest.FixtureRequest, dest: Path) -> Any:
    return dest if request.param == "dataset" else DUMPS / "cpu-jaxlib-0.5.3-tuple3"


def test_a_sandbox_gives_the_same_answers(dest: Path) -> None:
    dataset = Dataset(dest)
    for query in ('FROM "values" ORDER BY ALL', "FROM dumps ORDER BY ALL", "SELECT sum(size) AS s FROM allocations",
                  "SELECT definition, count(*) AS n FROM peaks GROUP BY 1 ORDER BY 1"):  # fmt: skip
        assert dataset.sql(query, sandbox=True).to_pylist() == dataset.sql(query).to_pylist() != []


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{0}/x.csv'", "ATTACH '{0}/x.db'", "CREATE TABLE t AS SELECT 1", "SET threads = 1",
        "INSTALL httpfs", "LOAD httpfs", "SELECT 1; DROP VIEW modules", "PRAGMA database_list", "CALL pragma_version()",
        "SELECT * FROM read_text('{0}/secret')", "FROM '{0}/secret.csv'", "SELECT * FROM glob('{0}/*')",
        "SELECT * FROM read_csv('/etc/passwd')",
    ],
)  # fmt: skip
def test_what_a_sandbox_refuses(source: Any, query: str, tmp_path: Path) -> None:
    for name in ("secret", "secret.csv"):
        (tmp_path / name).write_text("a\n1\n")
    with pytest.raises(xlamem.UsageError):
        xlamem.sql(source, query.format(tmp_path), sandbox=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "secret.csv"]


def test_without_a_sandbox_files_can_be_read(source: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a\n1\n")
    assert xlamem.sql(source, f"FROM '{tmp_path}/a.csv'").to_pylist() == [{"a": 1}]
    xlamem.sql(source, f"COPY (SELECT 1 AS b) TO '{tmp_path}/b.csv'")
    assert (tmp_path / "b.csv").read_text() == "b\n1\n"


def test_nothing_is_printed(source: Any) -> None:
    assert xlamem.sql(source, "SELECT current_setting('enable_progress_bar') AS a").to_pylist() == [{"a": False}]


@pytest.mark.parametrize("query", [None, b"SELECT 1"])
def test_a_query_that_is_no_text(query: Any, source: Any) -> None:
    with pytest.raises(xlamem.UsageError, match=f"a query must be text, not {type(query).__name__}"):
        xlamem.sql(source, query)


def test_limits() -> None:
    assert limits_of(sandbox=False, memory_limit=None, timeout=None) == Limits(False, None, None)
    assert limits_of(sandbox=True, memory_limit=None, timeout=None) == Limits(True, SANDBOX_MEMORY, SANDBOX_SECONDS)
    assert limits_of(sandbox=True, memory_limit="2GiB", timeout=0.5) == Limits(True, 2 << 30, 0.5)
    assert limits_of(sandbox=False, memory_limit=5, timeout=3) == Limits(False, 5, 3)
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(xlamem.UsageError, match="timeout must be a finite number of seconds, more than 0"):
            limits_of(sandbox=False, memory_limit=None, timeout=timeout)
    with pytest.raises(xlamem.UsageError, match="memory_limit must be 0 or more"):
        limits_of(sandbox=False, memory_limit=-3, timeout=None)


def test_a_query_that_does_not_end(source: Any) -> None:
    with pytest.raises(xlamem.UsageError, match=r"the query did not end within 0\.2 seconds"):
        xlamem.sql(source, ENDLESS, timeout=0.2)
    with pytest.raises(xlamem.UsageError, match="cannot run the query"):
        xlamem.sql(source, "SELECT nothing", timeout=100)


def test_one_second() -> None:
    with pytest.raises(xlamem.UsageError, match=r"the query did not end within 1 second$"):
        xlamem.sql(DUMPS / "cpu-jaxlib-0.5.3-tuple3", ENDLESS, timeout=1)


@pytest.mark.parametrize("query", [f"FROM savings, ({ENDLESS})", f"SELECT count(*) FROM peaks; {ENDLESS}"])
def test_the_time_is_over_while_a_table_is_computed(monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    """When no statement is running that could be interrupted."""

    def slow(dump: Any) -> pa.Table:
        time.sleep(0.3)
        return pa.table({"a": [1]})

    for name in ("savings", "peaks"):
        monkeypatch.setitem(REGISTRY, name, slow)
    begin = time.monotonic()
    with pytest.raises(xlamem.UsageError, match=r"did not end within 0\.1 seconds"):
        xlamem.sql(DUMPS / "cpu-jaxlib-0.5.3-tuple3", query, timeout=0.1)
    assert time.monotonic() - begin < 10


def test_an_interrupt_between_two_statements(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB forgets it: it is repeated."""
    run = _Session.run

    def late(self: _Session, query: str, check_time: Any) -> pa.Table:
        time.sleep(0.2)
        return run(self, query, lambda: None)

    monkeypatch.setattr(_Session, "run", late)
    with pytest.raises(xlamem.UsageError, match=r"did not end within 0\.1 seconds"):
        xlamem.sql(source, ENDLESS, timeout=0.1)
    assert xlamem.sql(source, "SELECT 1 AS a", timeout=1e300).to_pylist() == [{"a": 1}]


def test_a_query_that_needs_much_memory(source: Any) -> None:
    query = "SELECT count(*) FROM (SELECT x, count(*) FROM range(20000000) AS a(x) GROUP BY x)"
    with pytest.raises(xlamem.UsageError, match=r"(?i)memory"):
        xlamem.sql(source, query, memory_limit="20MiB")


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT repeat('x', range::INT) FROM range(1000000)", {"memory_limit": "50MiB"}, "(?i)memory"),
        (
            "SELECT CASE WHEN range = 900000 THEN error('boom')::BIGINT ELSE range END FROM range(1000000)",
            {"sandbox": True}, "cannot run the query: .*boom",
        ),
        (
            f"SELECT range FROM range(300000) UNION ALL ({ENDLESS})", {"sandbox": True, "timeout": 0.3},
            r"did not end within 0\.3 seconds",
        ),
    ],
)  # fmt: skip
def test_errors_after_the_first_rows(source: Any, query: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(xlamem.UsageError, match=message):
        xlamem.sql(source, query, **options)


def test_a_file_that_is_damaged_is_named(dest: Path, tmp_path: Path) -> None:
    shutil.copytree(dest, tmp_path / "out")
    dataset = Dataset(tmp_path / "out")
    query = "SELECT range FROM range(300000) UNION ALL SELECT size FROM allocations"
    assert dataset.sql(query, memory_limit="1GiB").num_rows > 300000
    (path,) = dataset.files("allocations")["path"].to_pylist()
    data = Path(path).read_bytes()
    Path(path).write_bytes(data[:4] + bytes(len(data) // 2) + data[4 + len(data) // 2 :] + b"PAR1")
    with pytest.raises(xlamem.DumpError, match=f"{path}: expected .* bytes, as committed"):
        dataset.sql(query, memory_limit="1GiB")


@pytest.mark.parametrize(("limit", "fits"), [(160, True), (159, False), (80, False), (None, True)])
def test_the_result_counts(limit: int | None, fits: bool) -> None:
    batches = [pa.record_batch({"a": pa.array(range(10), pa.int64())})] * 2
    relation = SimpleNamespace(
        to_arrow_table=lambda: pa.Table.from_batches(batches),
        to_arrow_reader=lambda n: pa.RecordBatchReader.from_batches(batches[0].schema, batches),
    )
    session: Any = SimpleNamespace(limits=Limits(memory=limit))
    if fits:
        assert _Session._result(session, relation).num_rows == 20
    else:
        with pytest.raises(xlamem.UsageError, match=f"has more than {limit} bytes"):
            _Session._result(session, relation)


def test_sums_that_fit_are_integers() -> None:
    large = 2**63
    table = pa.table({name: pa.array([n], pa.decimal128(38, 0)) for name, n in (("a", large - 1), ("b", large))})
    table = table.append_column("c", pa.array([1], pa.decimal128(38, 2)))
    found = _with_int64_sums(table)
    assert found.schema.types == [pa.int64(), pa.decimal128(38, 0), pa.decimal128(38, 2)]
    assert found.to_pylist() == table.to_pylist()


# ---- what a dataset says of itself


def test_views_for_duckdb(dest: Path) -> None:
    import duckdb

    dataset = Dataset(dest)
    with duckdb.connect() as connection:
        connection.execute(dataset.duckdb_views())
        for name in ("values", "dumps", "labels", "peak_members"):
            rows = connection.sql(f'SELECT count(*) FROM "{name}"').fetchall()
            wanted = dataset.dumps() if name == "dumps" else dataset[name].to_table()
            assert rows == [(wanted.num_rows,)]
    assert dataset.duckdb_views("values").count("CREATE OR REPLACE VIEW") == 1
    with duckdb.connect() as connection:
        connection.execute(dataset.duckdb_views("dumps"))
        assert connection.sql("SELECT count(*) FROM dumps").fetchall() == [(dataset.dumps().num_rows,)]
    with pytest.raises(xlamem.UsageError, match="no table"):
        dataset.duckdb_views("valeus")


def test_a_dataset_describes_itself(dest: Path) -> None:
    dataset = Dataset(dest)
    files = dataset.files()
    rows, size = (sum(files[name].to_pylist()) for name in ("rows", "bytes"))
    assert repr(dataset) == (
        f"<xlamem.Dataset {dest}>\n"
        "  dumps   2 in 2 occurrences, 1 in quarantine\n"
        f"  files   {files.num_rows:,} in {len({*files['batch'].to_pylist()}):,} batches, {rows:,} rows, {size:,} bytes"
    )
    assert [*dict.fromkeys(files["table"].to_pylist())] == [
        name for name in schema.WAREHOUSE if name in {*files["table"].to_pylist()}
    ]
    assert dataset.files("values").num_rows == files["table"].to_pylist().count("values")
    (failed,) = dataset["quarantine"].to_table()["content_id"].to_pylist()
    for text, message in ((failed[:6], "could not be read: see the table quarantine"), ("", "no dump ''"),
                          ("x", "no dump 'x'")):  # fmt: skip
        with pytest.raises(xlamem.UsageError, match=message):
            dataset.read(text)
    for content_id in dataset.ids:
        assert content_id in dataset
        assert dataset.read(content_id[:12]).modules.num_rows == 1
    assert failed not in dataset
