"""Every real dump: read, written again, compared with the slow reader and with the compiler's own proto."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import proto
import pytest
from compare import SECTION_TABLES, differences
from conftest import label, sources, texts
from render import render

import xlamem
from xlamem import schema
from xlamem.input.find import Source

LARGE = 32 << 20
"""Dumps above this are left to the bench: the slow readers need minutes for them."""


@pytest.fixture(params=sources(), ids=label)
def source(request: pytest.FixtureRequest) -> Source:
    found: Source = request.param
    return found


@pytest.fixture
def dump(source: Source) -> xlamem.Dump:
    if sum(m.size or 0 for m in source.members) > LARGE or "tuple_args_2500.tar" in source.location:
        pytest.skip("too large for the slow reader")
    return xlamem.read(source, text=True)


def is_cut(source: Source) -> bool:
    """Whether the dump lies in a folder of dumps whose writer was killed."""
    return "truncated" in source.location or "killed-at" in source.location


def test_no_diagnostics(source: Source, dump: xlamem.Dump) -> None:
    found = dump.diagnostics.to_pylist()
    if is_cut(source):
        assert not dump.complete
        assert "truncated" in {d["code"] for d in found}
    else:
        assert found == []
        assert dump.complete


def test_round_trip(source: Source, dump: xlamem.Dump) -> None:
    """From the tables alone every memory file is written again, byte for byte."""
    if is_cut(source):
        pytest.skip("the round trip is not claimed for cut files")
    tables = {name: dump[name].to_pylist() for name in dump.tables}
    original = {role: data for role, data in texts(source).items() if role != "hlo"}
    assert original
    for role, data in render(tables).items():
        assert data == original.pop(role), role
    assert not original


def test_slow_reader(source: Source, dump: xlamem.Dump) -> None:
    assert differences(dump, texts(source)) == []


def _proto_of(source: Source) -> bytes | None:
    for suffix, opened in ((".hlo.pb", open), (".hlo.pb.gz", gzip.open)):
        path = Path(source.location.split("::")[0]) / (source.name + suffix)
        if path.is_file():
            with opened(path, "rb") as f:
                return bytes(f.read())
    return None


def test_proto(source: Source, dump: xlamem.Dump) -> None:
    """Allocations, flags, colors and every (value, offset, size) equal the BufferAssignmentProto."""
    data = _proto_of(source)
    expected = proto.assignment(data) if data else None
    if expected is None or is_cut(source):
        pytest.skip("no proto beside this dump")
    flags = ("is_parameter", "is_thread_local", "is_live_out", "is_constant")
    ours = [
        (a["allocation"], a["size"], a["color"], a["parameter_number"] or 0, *(a[f] for f in flags))
        for a in dump.allocations.to_pylist()
    ]
    theirs = [
        (
            a.index, a.size, a.color, a.parameter_number,
            a.is_entry_computation_parameter, a.is_thread_local, a.maybe_live_out, a.is_constant,
        )
        for a in expected.buffer_allocations
    ]  # fmt: skip
    assert ours == theirs
    values = dump.values.to_pylist()
    assigned = [
        (a.index, v.logical_buffer_id, v.offset, v.size) for a in expected.buffer_allocations for v in a.assigned
    ]
    assert Counter((v["allocation"], v["value_id"], v["offset"], v["size"]) for v in values) == Counter(assigned)
    colors = {b.id: b.color for b in expected.logical_buffers}
    assert all(v["color"] is None or v["color"] == colors[v["value_id"]] for v in values)
    indices = {
        a.index: "{" + ",".join(map(str, a.parameter_shape_index)) + "}" for a in expected.buffer_allocations
    }
    parameters = [a for a in dump.allocations.to_pylist() if a["is_parameter"]]
    assert all(a["parameter_shape_index"] == indices[a["allocation"]] for a in parameters)


def test_tables_have_the_schema(dump: xlamem.Dump) -> None:
    for name in dump.tables:
        table = dump[name]
        table.validate(full=True)
        assert table.schema.equals(schema.TABLES[name].arrow)
        for column in schema.TABLES[name].columns:
            if not column.nullable:
                assert table[column.name].null_count == 0, f"{name}.{column.name}"
    counts = dump.modules.to_pylist()[0]
    assert {t: counts[f"n_{t}"] for t in SECTION_TABLES} == {t: dump[t].num_rows for t in SECTION_TABLES}


def test_the_dumps_are_there() -> None:
    """The repository ships dumps of every era: an empty folder must not pass as a success."""
    from conftest import DUMPS

    eras = {f.name.split("-", 1)[0] for f in DUMPS.iterdir() if f.is_dir()}
    assert {"cpu", "gpu", "tpu"} <= eras
    assert len([f for f in DUMPS.iterdir() if f.is_dir()]) >= 20
    if corpus := os.environ.get("XLAMEM_CORPUS"):
        assert Path(corpus).is_dir()
