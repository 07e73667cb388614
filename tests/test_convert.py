"""Dumps to Parquet: what is written, under which names, and what happens when something fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.warehouse import OutputError, parquet

SMALL = DUMPS / "cpu-jaxlib-0.5.3-tuple3"
CUT = DUMPS / "cpu-killed-at-buffer-assignment"


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def broken(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz"
    path.write_bytes(b"\x1f\x8b\x08 this is not gzip")
    return path


def test_each_table_is_that_of_the_dump(tmp_path: Path) -> None:
    made = xlamem.convert(SMALL, to=tmp_path)
    dump = xlamem.read(SMALL, hashes=True)
    assert made == xlamem.Converted(1, len(schema.TABLES), made.bytes, made.rows, [], [])
    assert {p.name for p in tmp_path.iterdir()} == set(schema.TABLES)
    identities, rows = set(), 0
    for name, spec in schema.TABLES.items():
        (path,) = (tmp_path / name).iterdir()
        table = pq.read_table(path)
        assert table.schema == pa.schema([pa.field("dump_id", pa.string()), *spec.warehouse]), name
        assert table.drop_columns("dump_id").to_pylist() == dump[name].to_pylist(), name
        identities |= set(table["dump_id"].to_pylist())
        rows += table.num_rows
    assert rows == made.rows
    assert made.bytes == sum(len(data) for data in files(tmp_path).values())
    (identity,) = identities
    assert path.name == f"{dump.name}-{identity}.parquet"
    assert pq.read_table(tmp_path / "modules")["content_hash"][0].as_py()


def test_all_real_dumps(tmp_path: Path) -> None:
    found = xlamem.find(DUMPS)
    made = xlamem.convert(DUMPS, to=tmp_path)
    assert not made.failed
    assert made.dumps == len(found)
    for name in schema.TABLES:
        assert len(list((tmp_path / name).iterdir())) == len(found), name
    modules = pq.read_table(tmp_path / "modules")
    assert len(set(modules["dump_id"].to_pylist())) == len(found)
    values = pq.read_table(tmp_path / "values")
    assert values.num_rows == sum(modules["n_values"].to_pylist())


def test_the_same_input_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xlamem.convert(DUMPS / "seeds", to=tmp_path / "a")
    monkeypatch.chdir(DUMPS)
    xlamem.convert("seeds", *xlamem.find("seeds"), "seeds", to=tmp_path / "b")
    once = files(tmp_path / "a")
    again = files(tmp_path / "b")
    uris = {k for k in once if k.startswith(("files", "diagnostics"))}  # they say where the file was read
    assert once.keys() == again.keys()
    assert {k: v for k, v in once.items() if k not in uris} == {k: v for k, v in again.items() if k not in uris}
    xlamem.convert(DUMPS / "seeds", to=tmp_path / "a")
    assert files(tmp_path / "a") == once


def test_equal_stems_from_different_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(SMALL, tmp_path / "in" / name)
    xlamem.convert(tmp_path / "in", to=tmp_path / "out")
    assert len(list((tmp_path / "out" / "values").iterdir())) == 2


def test_names_are_safe(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (source,) = SMALL.glob("*-buffer-assignment.txt")
    stems = ["a b\tc", "ünï", "x" * 220, "-rf", "..."]
    for stem in stems:
        shutil.copy(source, folder / f"{stem}-buffer-assignment.txt")
    assert xlamem.convert(folder, to=tmp_path / "out", tables="files").files == len(stems)
    for path in (tmp_path / "out" / "files").iterdir():
        assert path.name.isascii()
        assert path.name[0] not in ".-" or path.name[1:].removesuffix(".parquet").isalnum()
        assert not set(path.name) & set(" \t/")
        assert len(path.name) < 200


def test_chosen_tables(tmp_path: Path) -> None:
    made = xlamem.convert(SMALL, to=tmp_path, tables=["values", "modules"])
    assert made.files == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["modules", "values"]
    # All was read, so the counts and checks are those of the whole dump.
    assert None not in pq.read_table(tmp_path / "modules").to_pydict()["n_uses"]


def test_one_failure_does_not_stop_the_rest(tmp_path: Path) -> None:
    bad = broken(tmp_path / "in")
    seen: list[tuple[int, int, str]] = []
    made = xlamem.convert(tmp_path / "in", CUT, SMALL, to=tmp_path / "out", progress=lambda *a: seen.append(a))
    assert (made.dumps, len(made.failed), len(made.cut)) == (2, 1, 1)
    name, error = made.failed[0]
    assert "jit_g" in name
    assert str(bad) in str(error)
    assert [(done, total) for done, total, _ in seen] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert len(list((tmp_path / "out" / "values").iterdir())) == 2
    complete = pq.read_table(tmp_path / "out" / "modules")["complete"].to_pylist()
    assert sorted(complete) == [False, True]


@pytest.mark.parametrize(
    ("sources", "tables"), [([], None), ([SMALL], ["nope"]), ([SMALL], []), (["/nowhere/at/all"], None)]
)
def test_wrong_usage_makes_nothing(tmp_path: Path, sources: list[Path], tables: list[str] | None) -> None:
    with pytest.raises(xlamem.UsageError):
        xlamem.convert(*sources, to=tmp_path / "out", tables=tables)
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write to"):
        xlamem.convert(SMALL, to=tmp_path / "file")


def test_nothing_is_left_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = parquet._table

    def fail(dump: xlamem.Dump, name: str, identity: str, path: str) -> int:
        write(dump, name, identity, path)
        if name == "uses":
            raise OSError(28, "No space left on device", path)
        return 0

    monkeypatch.setattr(parquet, "_table", fail)
    with pytest.raises(OutputError, match="No space left on device"):
        xlamem.convert(SMALL, to=tmp_path)
    assert files(tmp_path) == {}


def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-odd_tree", hashes=True)
    monkeypatch.setattr(parquet, "ROW_GROUP", 2000)
    path = os.fspath(tmp_path / "x.parquet")
    for name in ("instructions", "values", "aliases"):
        assert parquet._table(dump, name, "id", path) == dump[name].num_rows
        ranges = list(parquet._row_groups(dump[name]))
        assert [begin for begin, _ in ranges[1:]] == [end for _, end in ranges[:-1]]
        size = parquet._row_bytes(dump[name])
        for begin, end in ranges:
            assert end - begin <= 1 or size[begin:end].sum() <= 2000
        assert pq.read_table(path).drop_columns("dump_id").to_pylist() == dump[name].to_pylist()
    assert len(list(parquet._row_groups(dump["values"]))) > 2
    assert np.all(parquet._row_bytes(dump["values"]) > 0)
