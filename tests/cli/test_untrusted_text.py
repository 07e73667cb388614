"""Names and labels with escape sequences and formulas: what terminals and spreadsheets get of them."""

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, texts

import xlamem
from xlamem import compute
from xlamem.cli import main
from xlamem.errors import UsageError

HOSTILE = "\x1b]0;x\x07\x9b31m=1+1\r\u202e"
SOURCE = next(s for s in xlamem.find(DUMPS) if "jaxlib-0.12.0-scan_while" in s.location)
VERBS = [
    ["peak"], ["peak", "--csv"], ["top"], ["top", "--csv"], ["bill"], ["bill", "--csv"], ["explain"],
    ["explain", "--csv"], ["advise"], ["advise", "--csv"], ["info"], ["buffer"], ["show", "live_set"],
    ["show", "instructions", "--csv"], ["show", "modules", "--json"], ["show", "printed_stack", "--csv"],
    ["show", "unknown_text", "--csv"],
]  # fmt: skip


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A dump with such text in file names, metadata, labels, and lines that are not understood."""
    folder = tmp_path / f"dir{HOSTILE}"
    folder.mkdir()
    for role, data in texts(SOURCE).items():
        name = f"module_0001.a{HOSTILE}.cpu_after_optimizations" + (".txt" if role == "hlo" else f"-{role}.txt")
        changed = data.replace(b'op_name="jit', f'op_name="={HOSTILE}'.encode()).replace(b"jit(", HOSTILE.encode())
        (folder / name).write_bytes(changed + (f"{HOSTILE}\n".encode() if role == "live-range" else b""))
    return folder


CONTROLS = "\x1bc\x9b\u202e"
"""What may be part of a shape or the name of an instruction."""


@pytest.fixture
def hostile_names(tmp_path: Path) -> Path:
    """A dump with such text in every shape, name of an instruction, and opcode."""
    word = re.compile(rb"(?<=f32\[)(?=\d)|(?<=[%:< ][a-z])(?=[a-z_]+\.\d)|(?<= whil)(?=e)|(?<= fusio)(?=n\()")
    for role, data in texts(SOURCE).items():
        name = "module_0001.a.cpu_after_optimizations" + (".txt" if role == "hlo" else f"-{role}.txt")
        (tmp_path / name).write_bytes(word.sub(CONTROLS.encode(), data))
    return tmp_path


def harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("color", ["", "1"])
def test_screens_and_csv(
    verb: list[str], color: str, hostile: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", color)
    monkeypatch.delenv("NO_COLOR", raising=False)
    n = 2 if verb[0] == "show" else 1
    arguments = [*verb[:n], str(hostile), *verb[n:]]
    if verb[0] == "buffer":
        arguments.append(str(compute.live_set(xlamem.read(hostile))["value_id"][0]))
    main(arguments)
    out, err = (re.sub(r"\x1b\[[0-9;]*m", "", text) if color else text for text in capsys.readouterr())
    assert harmless(out), out
    assert harmless(err), err
    assert out


@pytest.mark.parametrize("verb", [*VERBS, ["peak", "-v"], ["top", "--by", "shape"], ["top", "--wide"]], ids=" ".join)
def test_screens_of_names(verb: list[str], hostile_names: Path, capsys: pytest.CaptureFixture[str]) -> None:
    n = 2 if verb[0] == "show" else 1
    arguments = [*verb[:n], str(hostile_names), *verb[n:]]
    if verb[0] == "buffer":
        arguments.append(str(compute.live_set(xlamem.read(hostile_names))["value_id"][0]))
    main(arguments)
    assert all(harmless(text) for text in capsys.readouterr())


@pytest.mark.parametrize("folder", ["hostile", "hostile_names"])
def test_reprs(folder: str, request: pytest.FixtureRequest) -> None:
    dump = xlamem.read(request.getfixturevalue(folder))
    results: list[Any] = [
        dump, dump.source, xlamem.peak(dump), xlamem.fits(dump, capacity="1GiB"), xlamem.memory_analysis(dump),
        xlamem.show(dump.instructions), xlamem.show(compute.live_set(dump)), xlamem.diff(dump, dump),
        xlamem.diff(dump, xlamem.read(SOURCE)), xlamem.explain(dump),
        compute.buffer(dump, dump.values["value_id"][0].as_py()),
    ]  # fmt: skip
    for result in results:
        assert harmless(repr(result)), type(result)
        if html := getattr(result, "_repr_html_", None):
            assert harmless(html()), type(result)


def cells(out: str) -> list[str]:
    return [row[0] for row in csv.reader(StringIO(out, newline=""))][1:]


def test_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    text = ["=1+1", "@SUM(1)", "+cmd", "-x", "-1.5KiB", "-12", "+3.5", "a=b", "\x1b[31m", "two\nlines"]
    query = "SELECT unnest(?) AS t".replace("?", "[" + ", ".join(f"'{t}'" for t in text) + "]")
    path = SOURCE.members[0].uri
    assert main(["sql", path, query, "--csv"]) == 0
    safe = ["'=1+1", "'@SUM(1)", "'+cmd", "'-x", "'-1.5KiB", "-12", "+3.5", "a=b", r"\x1b[31m", "two\nlines"]
    assert cells(capsys.readouterr().out) == safe
    assert main(["sql", path, query, "--csv", "--raw"]) == 0
    assert cells(capsys.readouterr().out) == text
    assert main(["sql", path, query, "--raw"]) == 2
    assert main(["sql", path, "SELECT -5 AS n, true AS b, NULL AS e, 1.5::DOUBLE AS d", "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "-5,true,,1.5"


ATTACKS = [
    "SELECT * FROM read_text('/etc/hostname')", "FROM glob('/*')", "COPY (SELECT 1) TO '{place}/out.csv'",
    "ATTACH '{place}/out.db'", "INSTALL httpfs", "LOAD json", "SET memory_limit = '1TB'", "CREATE TABLE t AS SELECT 1",
    "PRAGMA version", "EXPLAIN ANALYZE COPY (SELECT 1) TO '{place}/out.csv'", "EXPORT DATABASE '{place}/out'",
    "SELECT 1; COPY (SELECT 1) TO '{place}/out.csv'", "FROM sniff_csv('/etc/hostname')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{place}/out.csv''')",
]  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("sandbox") / "out"
    xlamem.convert(SOURCE.location, to=to, engine="here")
    return to


@pytest.mark.parametrize("attack", ATTACKS)
def test_sandbox(attack: str, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    for source in (SOURCE, dataset):
        with pytest.raises(UsageError):
            xlamem.sql(source, attack.format(place=tmp_path), sandbox=True)
    files = list(dataset.rglob("*"))
    with pytest.raises(UsageError):
        xlamem.sql(dataset, f"COPY (SELECT 1) TO '{dataset}/x.csv'", sandbox=True)
    assert list(dataset.rglob("*")) == files
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("query", ['SELECT count(*) AS n FROM "values"', "SELECT min(color) FROM peaks", "SHOW TABLES"])
def test_a_sandbox_has_the_tables(query: str, dataset: Path) -> None:
    pytest.importorskip("duckdb")
    for source in (SOURCE, dataset):
        assert xlamem.sql(source, query, sandbox=True).equals(xlamem.sql(source, query))


def test_limits_of_a_query(dataset: Path) -> None:
    pytest.importorskip("duckdb")
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range % 7 = 3"
    with pytest.raises(UsageError, match=r"did not end within 0\.2 seconds"):
        xlamem.sql(dataset, endless, timeout=0.2)
    with pytest.raises(UsageError, match="result of the query has more than"):
        xlamem.sql(dataset, "FROM range(100_000_000)", memory_limit="64MiB")
    with pytest.raises(UsageError, match="Out of Memory"):
        xlamem.sql(dataset, "SELECT list(range) FROM range(100_000_000)", memory_limit="64MiB")
    with pytest.raises(UsageError, match="timeout must be"):
        xlamem.sql(dataset, "SELECT 1", timeout=0)
