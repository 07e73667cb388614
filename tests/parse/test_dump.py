"""A Dump as its users hold it."""

from __future__ import annotations

import io
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import schema


@pytest.fixture
def path() -> str:
    return str(DUMPS / "cpu-jaxlib-0.12.0-scan_while")


def test_tables_are_read_on_first_use(path: str) -> None:
    dump = xlamem.read(path)
    assert not dump._tables.reader.tables
    assert dump.schedule.num_rows == 51
    # The schedule alone brought the live ranges and, for their ids, the values; not the used values.
    assert "positions" not in dump._tables.reader.tables
    assert dump["schedule"] is dump.schedule


def test_only_requested_tables_are_read(path: str) -> None:
    dump = xlamem.read(path, tables=["allocations", "modules"])
    assert dump.tables == ("modules", "allocations")
    module = dump.modules.to_pylist()[0]
    assert module["n_allocations"] == dump.allocations.num_rows == 26
    assert module["n_uses"] is None
    assert "positions" not in dump._tables.reader.tables
    with pytest.raises(xlamem.UsageError, match="left out"):
        dump.uses  # noqa: B018
    with pytest.raises(xlamem.UsageError, match="no table 'nonsense'"):
        dump["nonsense"]
    with pytest.raises(xlamem.UsageError, match="nonsense"):
        xlamem.read(path, tables=["nonsense"])
    assert dump.verify().num_rows == 0
    assert xlamem.read(path, tables="values").tables == ("values",)
    assert xlamem.read(path, tables="values")["values"].num_rows == 63


def test_everything_is_verified_whatever_is_requested() -> None:
    text = b"BufferAssignment:\nallocation 0: size 8, constant:\nnonsense\n"
    for tables in (["values"], ["diagnostics"], ["diagnostics", "modules", "live_ranges"]):
        dump = xlamem.read(text, tables=tables)
        assert dump.verify()["code"].to_pylist() == ["unknown_line"]
        with pytest.raises(xlamem.DumpError, match="nonsense"):
            xlamem.read(text, tables=tables, strict=True)
    assert xlamem.read(text, tables=["diagnostics"]).diagnostics.num_rows == 0  # of the tables that were requested


@pytest.mark.parametrize(
    ("tables", "is_named"), [(["modules"], False), (["modules", "frames"], True), (["modules", "aliases"], True)]
)
def test_a_name_that_only_the_hlo_text_contains(tables: list[str], is_named: bool) -> None:
    (name,) = xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-long_name", tables=tables).modules["module_name"].to_pylist()
    assert (name is not None) == is_named


@pytest.mark.parametrize(
    ("value", "color"),
    [
        (" value: <1 a @-1> (size=4,offset=0): f32[1]{0}", -1),
        (" value: <1 a> (size=4,offset=0): f32[1]{0}", None),
        ("  a[](#1 @-1) [0,4]: f32[1]{0}", -1),
        ("  1 a @-1, positions:\n  a\n uses:\n  b, operand 0\n [0,4]: f32[1]{0}", None),
    ],
)
def test_the_color_of_a_value(value: str, color: int | None) -> None:
    text = f"BufferAssignment:\nallocation 0: size 4, preallocated-temp:\n{value}\n"
    assert xlamem.read(text.encode()).values["color"].to_pylist() == [color]


def test_a_dump_is_immutable(path: str) -> None:
    dump = xlamem.read(path)
    with pytest.raises(AttributeError, match="cannot be changed"):
        dump.source = None  # type: ignore[assignment]
    with pytest.raises(AttributeError):
        del dump.source
    with pytest.raises(AttributeError, match="no attribute"):
        dump.nothing  # noqa: B018


def test_facts_of_a_dump() -> None:
    text = "HloLiveRange (max 7):\n  InstructionSequence:\n    0:a\n  BufferLiveRange:\n    a{}:0-1\n"
    dump = xlamem.read(text.encode())
    assert (dump.name, dump.platform, dump.schedule_length, dump.complete) == ("<bytes>", None, 7, False)
    assert dump.source.name == "<bytes>"
    text = "BufferAssignment:\nallocation 0: size 8, constant:\n value: <0 a @0> (size=8,offset=0): f32[2]{0:T(128)}\n"
    dump = xlamem.read(text.encode())
    assert (dump.platform, dump.schedule_length, dump.complete) == ("tpu", None, True)


def test_pickle(path: str) -> None:
    dump = xlamem.read(path, tables=["values", "modules"], text=True)
    again = pickle.loads(pickle.dumps(dump))
    assert again == dump
    assert hash(again) == hash(dump)
    assert again.tables == dump.tables
    assert again.values.equals(dump.values)
    member = dump.source.members[0]
    with open(member.uri, "rb") as f:
        from_bytes = xlamem.read(f.read())
    with pytest.raises(TypeError, match="bytes or standard input cannot be pickled"):
        pickle.dumps(from_bytes)


def test_a_pickled_dump_is_read_in_the_same_way(path: str) -> None:
    for options in ({"hashes": True}, {"threads": 3}, {"text": True}, {"tables": ["modules"], "hashes": True}):
        dump = xlamem.read(path, **options)  # type: ignore[arg-type]
        again = pickle.loads(pickle.dumps(dump))
        assert again == dump
        assert again != xlamem.read(path)
        assert again.modules.equals(dump.modules)


def test_batches_have_what_was_asked_for(path: str) -> None:
    for options in ({}, {"text": True}, {"hashes": True}):
        dump = xlamem.read(path, **options)  # type: ignore[arg-type]
        for name in ("instructions", "files", "modules"):
            assert dump.batches(name).read_all().to_pylist() == dump[name].to_pylist()


def test_inputs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = xlamem.read(path)
    member = next(m for m in dump.source.members if m.role == "live-range")
    for source in (member.uri, dump.source, member.uri.removesuffix("-live-range.txt")):
        assert xlamem.read(source).allocations.equals(dump.allocations)
    with open(member.uri, "rb") as f:
        data = f.read()
    for source in (data, io.BytesIO(data)):
        assert xlamem.read(source).schedule.to_pylist() == dump.schedule.to_pylist()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert xlamem.read("-").schedule.to_pylist() == dump.schedule.to_pylist()
    with pytest.raises(xlamem.UsageError, match="binary"):
        xlamem.read(io.StringIO("x"))  # type: ignore[arg-type]
    with pytest.raises(xlamem.UsageError, match="threads"):
        xlamem.read(path, threads=0)


def test_repr(path: str) -> None:
    dump = xlamem.read(path)
    text = repr(dump)
    assert "jit_m_scan_while" in text
    assert "483,680 bytes" in text
    assert "complete, understood, consistent; 0 diagnostics" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "<table>" in dump._repr_html_()
    broken = xlamem.read(b"BufferAssignment:\nallocation 0: si")
    assert "truncated, understood, consistent; 1 diagnostic" in repr(broken)
    text = b"BufferAssignment:\nallocation 0: size 0, constant:\n\nTotal bytes used: 0 (0B)\n\nUsed values:\n"
    nothing = xlamem.read(text)
    assert "0 bytes" in next(line for line in repr(nothing).splitlines() if "total" in line)
    counts = next(line for line in repr(nothing).splitlines() if "rows" in line).split()
    assert counts[1:3] == ["allocations", "1,"]
    assert "0" not in [n.strip(",") for n in counts[2::2]]  # tables without rows are left out


def test_hashes(path: str) -> None:
    plain, hashed = xlamem.read(path), xlamem.read(path, hashes=True)
    assert plain.files["content_hash"].null_count == plain.files.num_rows
    assert plain.modules["content_hash"].to_pylist() == [None]
    assert all(len(h) == 32 for h in hashed.files["content_hash"].to_pylist())
    assert len(hashed.modules["content_hash"][0].as_py()) == 32


def test_sql(path: str) -> None:
    pytest.importorskip("duckdb")
    dump = xlamem.read(path)
    rows = xlamem.sql(dump, 'select count(*) as n, sum(size) as bytes from "values"').to_pylist()
    assert rows == [{"n": 63, "bytes": sum(dump.values["size"].to_pylist())}]
    peaks = xlamem.sql(dump, "select memory_space, peak from peaks").to_pylist()
    assert peaks == [{k: r[k] for k in ("memory_space", "peak")} for r in xlamem.peak(dump).spaces.to_pylist()]
    with pytest.raises(xlamem.UsageError, match="DuckDB"):
        xlamem.sql(dump, "select nothing from nowhere")


def test_strict(path: str) -> None:
    assert xlamem.read(path, strict=True).complete
    with pytest.raises(xlamem.DumpError) as caught:
        xlamem.read(b"BufferAssignment:\nallocation 0: size 8, constant:\nnonsense\n", strict=True)
    error = caught.value
    assert (error.line, error.offset, error.section) == (3, 50, "allocations")
    assert "nonsense" in str(error)
    assert pickle.loads(pickle.dumps(error)).args == error.args
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_the_schema_is_plain_data() -> None:
    import json

    data = json.loads(json.dumps(schema.as_json()))
    assert [t["name"] for t in data["tables"]][:2] == ["modules", "files"]
    assert {c["type"] for t in data["tables"] for c in t["columns"]} <= {
        "int64", "double", "bool", "string", "dictionary<values=string, indices=int32, ordered=0>",
    }  # fmt: skip


def test_an_error_is_raised_again(tmp_path: Path) -> None:
    one = next(DUMPS.glob("*/*-buffer-assignment.txt")).read_bytes()
    path = tmp_path / "module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt"
    path.write_bytes(one + one)
    dump = xlamem.read(xlamem.find(tmp_path)[0])
    for name in ("values", "values", "modules", "live_ranges"):
        with pytest.raises(xlamem.UsageError, match="several modules"):
            dump[name]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda dump, path: dump[(1, 2)], r"no table \(1, 2\)"), (lambda dump, path: dump[None], "no table None"),
        (lambda dump, path: xlamem.read(path, module=1.5), "no module 1.5"),
        (lambda dump, path: xlamem.read(path, module=True), "no module True"),
        (lambda dump, path: xlamem.fits(dump, device=0), "no device 0"),
    ],
)  # fmt: skip
def test_arguments_of_another_type(call: Any, message: str) -> None:
    """They are named, as wrong names are."""
    path = DUMPS / "cpu-jaxlib-0.5.3-tuple3"
    with pytest.raises(xlamem.UsageError, match=message):
        call(xlamem.read(path), path)
