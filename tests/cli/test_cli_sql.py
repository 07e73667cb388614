"""`xlamem sql`, `show` and `dataset files`, and what `xlamem schema` prints about a dataset."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, HERE

import xlamem
from xlamem import cli, compute, schema
from xlamem.cli import console
from xlamem.cli.reporters import tables

SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*args: str | Path) -> Result:
        code = cli.main([str(a) for a in args])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="module")
def dest(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("sql") / "out"
    xlamem.convert(SMALL, TPU, to=path, labels={"commit": "abc"}, engine="here")
    return str(path)


# ---- sql


def test_a_table_for_people(run: Any, dest: str) -> None:
    r = run("sql", dest, "SELECT module_name, n_values, complete, target FROM modules ORDER BY n_values")
    assert (r.code, r.err) == (0, "")
    assert r.out.splitlines() == [
        "module_name       n_values  complete  target",
        "jit_m_mlp_grad          21  true      -",
        "jit_m_scan_while        63  true      -",
    ]


def test_it_fits_the_terminal(run: Any, dest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT module_name, features, n_values FROM modules ORDER BY n_values"
    wide = run("sql", dest, query).out
    assert max(map(len, wide.splitlines())) > 80
    monkeypatch.setenv("COLUMNS", "80")
    narrow = run("sql", dest, query).out
    assert max(map(len, narrow.splitlines())) <= 80
    assert "jit_m_scan_while" in narrow
    assert "…" in narrow
    # More columns than fit beside each other: each row is a list.
    lists = run("sql", dest, "FROM modules ORDER BY module_name").out
    assert max(map(len, lists.splitlines())) <= 80
    assert "module_name         jit_m_mlp_grad" in lists
    assert lists.count("\n\n") == 1


def test_limit(run: Any, dest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT range AS i FROM range(250)"
    assert len(run("sql", dest, query).out.splitlines()) == 251
    assert json.loads(run("sql", dest, query, "--json").out)["n_rows"] == 250
    assert len(json.loads(run("sql", dest, query, "--json", "--limit", "7").out)["rows"]) == 7
    assert run("sql", dest, query, "--limit", "3").out.splitlines() == [
        "i", "0", "1", "2", "and 247 more rows: --limit shows more",
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "80")
    assert "and 150 more rows" in run("sql", dest, query).out
    assert run("sql", dest, "FROM labels WHERE false").out.splitlines()[-1] == "no rows"


def test_json_and_csv(run: Any, dest: str) -> None:
    query = """SELECT sum(n_values) AS total, 1.5 AS x, 0.25::DOUBLE AS y, true AS b, NULL AS nothing, 'a,"b' AS t,
        [1, 2] AS l, {'k': DATE '2025-01-31'} AS s,
        ['NaN'::DOUBLE, '-inf'::DOUBLE, 'inf'::DOUBLE] AS inf, max(converted_at) AS at FROM modules"""
    (row,) = json.loads(run("sql", dest, query, "--json").out)["rows"]
    assert row.pop("at").endswith("+00:00")
    assert row == {
        "total": 84, "x": 1.5, "y": 0.25, "b": True, "nothing": None, "t": 'a,"b', "l": [1, 2],
        "s": {"k": "2025-01-31"}, "inf": [None, None, None],
    }  # fmt: skip
    head, cells = csv.reader(io.StringIO(run("sql", dest, query, "--csv").out))
    assert head[:6] == ["total", "x", "y", "b", "nothing", "t"]
    assert cells[:6] == ["84", "1.5", "0.25", "true", "", 'a,"b']
    assert run("sql", dest, query, "--csv", "--json").code == 2
    assert json.loads(run("sql", dest, "FROM labels WHERE false", "--json").out)["rows"] == []


def test_csv_that_is_written_in_parts(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is shorter than the one before it contains nothing of that."""
    monkeypatch.setattr(console, "CSV_BUFFER", 10)
    query = "SELECT repeat('x', n::INT) AS x FROM range(40, 0, -1) t(n)"
    lines = run("sql", TPU, query, "--csv").out.splitlines()
    assert lines == ["x", *("x" * n for n in range(40, 0, -1))]


def test_one_dump(run: Any) -> None:
    spaces = xlamem.peak(xlamem.read(TPU)).spaces.to_pylist()
    found = json.loads(run("sql", TPU, "SELECT memory_space, peak FROM peaks", "--json").out)["rows"]
    assert found == [{"memory_space": s["memory_space"], "peak": s["peak"]} for s in spaces]
    several = DUMPS / "cpu-jaxlib-0.12.0-several_modules"
    r = run("sql", several, "SELECT module_name FROM modules", "--module", "jit_beta", "--json")
    assert json.loads(r.out)["rows"] == [{"module_name": "jit_beta"}]
    note = "note: 0006.jit_alpha is the largest of 4 modules; --module selects another\n"
    assert run("sql", several, "SELECT module_name FROM modules").err == note


def test_columns_of_the_same_name(run: Any) -> None:
    query = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS a"
    data = json.loads(run("sql", SMALL, query, "--json").out)
    assert data["columns"] == ["a", "a_2", "a_1", "a_3"]
    assert data["rows"] == [{"a": 1, "a_2": 2, "a_1": 3, "a_3": 4}]
    assert run("sql", SMALL, query, "--csv").out == "a,a_2,a_1,a_3\n1,2,3,4\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("DATE '20000-01-01'", "20000-01-01"),
        ("TIMESTAMP_NS '2020-01-01 00:00:00.000000001'", "2020-01-01 00:00:00.000000001"),
        ("TIMESTAMP 'infinity'", f"<value out of range: {2**63 - 1}>"),
        ("TIMESTAMPTZ '200000-01-01 00:00:00+00'", "<value out of range: 6249223180800000000>"),
        ("[DATE '20000-01-01', DATE '2020-01-01']", ["20000-01-01", "2020-01-01"]),
        ("{'a': DATE '20000-01-01'}", {"a": "20000-01-01"}),
    ],
)
def test_times_that_python_lacks(value: str, text: Any, run: Any) -> None:
    query = f"SELECT {value} AS a, DATE '2020-01-01' AS b"
    r = run("sql", SMALL, query, "--json")
    assert r.code == 0, r.err
    (row,) = json.loads(r.out)["rows"]
    if value.startswith("TIMESTAMP_NS"):
        row["a"] = row["a"].replace("T", " ")  # with pandas
    assert row == {"a": text, "b": "2020-01-01"}
    assert run("sql", SMALL, query).code == 0
    assert "a" in repr(xlamem.show(xlamem.sql(SMALL, query)))


def test_errors_are_reported(run: Any, dest: str, tmp_path: Path) -> None:
    for query in ("SELEC", "FROM nonsense"):
        r = run("sql", dest, query)
        assert (r.code, r.out) == (2, "")
        assert "DuckDB cannot run the query" in r.err
    r = run("sql", dest, "FROM '\udcff'")
    assert (r.code, r.err) == (2, "error: the query is not UTF-8: FROM '\\xff'\n")
    r = run("sql", tmp_path / "nowhere", "SELECT 1")
    assert r.code == 2
    assert "does not exist" in r.err
    assert run("sql", dest).code == 2


def test_damage_is_3(run: Any, tmp_path: Path) -> None:
    xlamem.convert(SMALL, to=tmp_path, engine="here")
    (path,) = xlamem.Dataset(tmp_path).files("values")["path"].to_pylist()
    os.unlink(path)
    r = run("sql", tmp_path, 'SELECT count(*) FROM "values"')
    assert (r.code, r.out) == (3, "")
    assert path in r.err
    assert run("sql", tmp_path, "SELECT count(*) FROM uses").code == 0


def test_control_characters_are_escaped(run: Any, dest: str) -> None:
    r = run("sql", dest, "SELECT 'a' || chr(27) || '[31m' || chr(10) || 'b' AS t")
    assert r.out.splitlines() == ["t", r"a\x1b[31m\nb"]


def test_a_statement_that_writes(run: Any, dest: str, tmp_path: Path) -> None:
    r = run("sql", dest, f"COPY (FROM labels) TO '{tmp_path}/labels.csv'")
    assert r.code == 0
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 2


def test_a_closed_pipe_is_quiet(dest: str) -> None:
    code = "import sys; from xlamem.cli import main; sys.exit(main())"
    shown = subprocess.run(
        f"'{sys.executable}' -c '{code}' sql '{dest}' 'SELECT range FROM range(300000)' --csv | head -n 1",
        shell=True, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (shown.stdout, shown.stderr) == ("range\n", "")


# ---- show


@pytest.mark.parametrize("table", ["values", "donation", "peaks", "diagnostics", "savings"])
def test_show_a_table_of_a_dump(run: Any, table: str) -> None:
    dump = xlamem.read(TPU)
    rows = (dump[table] if table in schema.TABLES else compute.REGISTRY[table](dump)).to_pylist()
    assert json.loads(run("show", table, TPU, "--json").out)["rows"] == rows
    shown = list(csv.DictReader(io.StringIO(run("show", table, TPU, "--csv").out)))
    assert len(shown) == len(rows)
    text = run("show", table, TPU).out.splitlines()
    assert text[0].split() == [c.name for c in (schema.TABLES | schema.COMPUTED)[table].columns]
    assert len(text) == 1 + (len(rows) or 1)
    assert text[1:] != ["no rows"] or not rows
    assert len(json.loads(run("show", table, TPU, "--json", "--limit", "1").out)["rows"]) == min(len(rows), 1)


def test_every_computed_table_can_be_shown(run: Any) -> None:
    for table in compute.REGISTRY:
        assert run("show", table, TPU).code == 0


@pytest.mark.parametrize("table", [*schema.WAREHOUSE, "dumps"])
def test_show_a_table_of_a_dataset(run: Any, dest: str, table: str) -> None:
    rows = xlamem.Dataset(dest).dumps() if table == "dumps" else xlamem.Dataset(dest)[table].to_table()
    r = run("show", table, dest, "--json")
    assert len(json.loads(r.out)["rows"]) == rows.num_rows
    short = json.loads(run("show", table, dest, "--json", "--limit", "2").out)
    assert (len(short["rows"]), short["n_rows"]) == (min(2, rows.num_rows), rows.num_rows)
    if rows.num_rows > 2:
        last = run("show", table, dest, "--limit", "2").out.splitlines()[-1]
        more = rows.num_rows - 2
        assert last == f"and {more:,} more row{'s' if more > 1 else ''}: --limit shows more"


def test_show_fits_the_terminal(run: Any, dest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path in (dest, TPU):
        for table in ("modules", "values", "live_ranges", "instructions"):
            r = run("show", table, path)
            assert r.code == 0
            assert max(map(len, r.out.splitlines())) <= 80
            assert not any(line.endswith(" ") for line in r.out.splitlines())


def test_show_leaves_columns_out_on_a_narrow_terminal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others fit, in the order of the table, and none of them is empty. A single row is a list of all."""
    monkeypatch.setenv("COLUMNS", "80")
    names = [c.name for c in schema.COMPUTED["donation"].columns]
    head, *rows, last = run("show", "donation", TPU).out.splitlines()
    shown = head.split()
    assert {"op_name", "state", "size", "shape"} < set(shown) < set(names)
    assert shown == [name for name in names if name in shown]
    assert not any(" - " in f"{row} " for row in rows)
    assert last == f"and {len(names) - len(shown)} more columns: --columns selects, --wide shows all"
    assert [line.split()[0] for line in run("show", "donation", TPU, "--limit", "1").out.splitlines()[:-1]] == names
    monkeypatch.setenv("COLUMNS", "400")
    assert run("show", "donation", TPU).out.splitlines()[0].split() == names


def test_important_columns_are_readable_before_others_are_shown() -> None:
    names, rows = ["page", "op_name", "shape", "order"], [["1234", "o" * 40, "s" * 30, "1"]] * 2
    numeric = [True, False, False, True]
    some = [(62, [1, 2]), (50, [1, 2]), (49, [0, 1]), (45, [1]), (24, [1]), (23, [0, 3]), (3, [0])]
    for width, kept in [(63, [0, 1, 2, 3]), *some]:
        assert tables._important(names, rows, numeric, width) == kept, width
    wide = [*names, *(f"n{i}" for i in range(9))], [[*row, *"123456789"] for row in rows], [*numeric, *[True] * 9]
    assert tables._important(*wide, 85) == [0, 1, 2, 3]
    assert tables._important(*wide, 81) == [0, 1, 2]
    assert tables._important(names, [["-", "-", "s" * 80, "1"]] * 2, numeric, 24) == [2]


@pytest.mark.parametrize("is_dataset", [False, True])
def test_show_selected_columns(is_dataset: bool, run: Any, dest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order. None of them is left out on a narrow terminal."""
    path = dest if is_dataset else TPU
    columns = ["--columns", "size, allocation"]
    rows = json.loads(run("show", "allocations", path, "--json").out)["rows"]
    shown = json.loads(run("show", "allocations", path, *columns, "--json").out)["rows"]
    assert [list(row.items()) for row in shown] == [[(n, row[n]) for n in ("size", "allocation")] for row in rows]
    assert run("show", "allocations", path, *columns, "--csv", "-n", "1").out.startswith("size,allocation\n")
    monkeypatch.setenv("COLUMNS", "40")
    many = ["--columns", "size,memory_space,allocation,color,page,is_parameter"]
    assert run("show", "allocations", path, *many, "-n", "2").out.count("memory_space") == 2


def test_show_selected_columns_of_dumps(run: Any, dest: str) -> None:
    assert run("show", "dumps", dest, "--columns", "n_frames", "--csv").out.startswith("n_frames\n")


def test_show_an_unknown_column(run: Any, dest: str) -> None:
    for table, path in (("values", TPU), ("values", dest), ("dumps", dest)):
        r = run("show", table, path, "--columns", f"{'size' if table == 'values' else 'n_frames'},nmae")
        assert (r.code, r.out) == (2, "")
        assert f"no column 'nmae' in {table}" in r.err
    assert "did you mean 'size'?" in run("show", "values", TPU, "--columns", "siez").err


def test_show_an_unknown_table(run: Any, dest: str, tmp_path: Path) -> None:
    for path in (TPU, dest):
        r = run("show", "nonsense", path)
        assert (r.code, r.out) == (2, "")
        assert "no table 'nonsense'" in r.err
    assert run("show", "labels", TPU).code == 2  # a table of datasets only
    assert run("show", "values", dest, "--module", "x").code == 2
    assert run("show", "values", TPU, "--csv", "--json").code == 2


def test_show_a_damaged_dataset_is_3(run: Any, tmp_path: Path) -> None:
    xlamem.convert(SMALL, to=tmp_path, engine="here")
    (path,) = xlamem.Dataset(tmp_path).files("values")["path"].to_pylist()
    os.unlink(path)
    r = run("show", "values", tmp_path)
    assert (r.code, r.out) == (3, "")
    assert path in r.err


# ---- dataset files


def test_files(run: Any, dest: str) -> None:
    files = xlamem.Dataset(dest).files()
    r = run("dataset", "files", dest)
    assert (r.code, r.err) == (0, "")
    assert r.out.splitlines() == files["path"].to_pylist()
    some = run("dataset", "files", dest, "values", "uses").out.splitlines()
    assert some == [f["path"] for f in files.to_pylist() if f["table"] in ("values", "uses")]
    assert all(os.path.isfile(p) for p in some)
    assert json.loads(run("dataset", "files", dest, "--json").out)["files"] == files.to_pylist()
    long = run("dataset", "files", dest, "values", "--long").out.splitlines()
    assert long[0].split() == ["table", "rows", "bytes", "version", "path"]
    assert long[1].split()[:2] == ["values", "84"]
    assert long[-1].startswith("1 file, 84 rows, ")
    assert run("dataset", "files", dest, "quarantine").out == ""


def test_files_in_other_formats(run: Any, dest: str, tmp_path: Path) -> None:
    assert run("dataset", "files", dest, "--format", "list").out == run("dataset", "files", dest).out
    assert run("dataset", "files", dest, "--format", "json").out == run("dataset", "files", dest, "--json").out
    for options in (("--format", "duckdb", "--long"), ("--format", "list", "--json"), ("--long", "--json")):
        r = run("dataset", "files", dest, *options)
        assert (r.code, "exclude each other" in r.err) == (2, True)
    assert run("dataset", "files", dest, "nonsense", "--format", "duckdb").code == 2
    some = run("dataset", "files", dest, "values", "--format", "duckdb").out
    assert some.count("CREATE OR REPLACE VIEW") == 1


def test_views_of_many_files_with_odd_names(run: Any, tmp_path: Path) -> None:
    """DuckDB shows what `xlamem sql` shows."""
    duckdb = pytest.importorskip("duckdb")
    dest = tmp_path / "it's a dataset"
    for night in ("1", "2"):
        xlamem.convert(SMALL, TPU, to=dest, labels={"night it's": night}, engine="here", tables=["values", "modules"])
    dataset = xlamem.Dataset(dest)
    views = run("dataset", "files", dest, "--format", "duckdb").out
    assert max(map(len, views.splitlines())) < 20_000
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(views)
        for name in (*schema.WAREHOUSE, "dumps"):
            found = connection.sql(f'FROM "{name}" ORDER BY ALL').to_arrow_table()
            assert found.to_pylist() == dataset.sql(f'FROM "{name}" ORDER BY ALL').to_pylist(), name


def test_views_of_version_1_are_refused(run: Any) -> None:
    r = run("dataset", "files", HERE / "data" / "v1-dataset", "--format", "duckdb")
    assert (r.code, "xlamem dataset migrate" in r.err) == (2, True)


def test_files_of_a_directory_without_ledger(run: Any, dest: str, tmp_path: Path) -> None:
    r = run("dataset", "files", tmp_path)
    assert (r.code, r.out) == (2, "")
    assert "is not a dataset of `xlamem convert`: it has no ledger" in r.err
    assert run("dataset", "files", dest, "nonsense").code == 2


# ---- schema


def test_schema_describes_stored_and_computed_tables(run: Any) -> None:
    out = run("schema", "peaks").out
    assert out.index("peaks  one row per memory space;") < out.index("peaks  in a dataset: one row per number")
    for word in schema.DEFINITIONS:
        assert f"  {word} " in out
    both = json.loads(run("schema", "peaks", "--json").out)
    assert [t["name"] for t in both["computed"]] == [t["name"] for t in both["warehouse"]] == ["peaks"]
    assert both["tables"] == []
    everything = run("schema").out
    for table in (*schema.DERIVED.values(), schema.QUARANTINE):
        assert f"{table.name}  in a dataset: one row per" in everything
    for column in ("content_id", "tool_version", "converted_at"):
        assert f"  {column} " in everything
    assert max(map(len, everything.splitlines())) <= 80
    assert run("schema", "labels").code == 0
    assert "one row per dump that could not be read" in run("schema", "quarantine").out
