"""Dumps read together: the same tables as each one's, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import xlamem
from xlamem import schema
from xlamem.input.find import Source
from xlamem.parse.interners import Interners
from xlamem.parse.join import ReadDump, tables_of

DUMPS = Path(__file__).parents[1] / "dumps"


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    found = xlamem.find(DUMPS)
    assert len(found) > 10
    return found


@pytest.fixture(scope="module")
def several(sources: list[Source]) -> list[xlamem.Dump]:
    return [xlamem.read(s, hashes=True) for s in (*sources, sources[0], *sources[::-1])]


@pytest.fixture(scope="module", params=["shared", "own"])
def joined(several: list[xlamem.Dump], request: pytest.FixtureRequest) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """The tables of dumps that share interners, as the converter reads them, and of dumps that do not."""
    interners = Interners() if request.param == "shared" else None
    return tables_of([ReadDump(dump.source, interners=interners) for dump in several])


@pytest.mark.parametrize("name", schema.TABLES)
def test_tables_are_those_of_each_dump(several: list[xlamem.Dump], joined: Any, name: str) -> None:
    tables, counts = joined
    alone = [dump[name] for dump in several]
    assert tables[name].schema.equals(schema.TABLES[name].arrow)
    assert counts[name].tolist() == [t.num_rows for t in alone]
    assert tables[name].to_pylist() == pa.concat_tables(alone).to_pylist()


def test_one_dump_and_none(sources: list[Source]) -> None:
    tables, _ = tables_of([ReadDump(sources[0])])
    dump = xlamem.read(sources[0], hashes=True)
    assert all(tables[name].to_pylist() == dump[name].to_pylist() for name in schema.TABLES)
    tables, counts = tables_of([])
    assert all(tables[name].num_rows == 0 and counts[name].size == 0 for name in schema.TABLES)


def test_facts_are_those_of_modules(sources: list[Source]) -> None:
    for source in sources:
        module = xlamem.read(source, hashes=True)["modules"].to_pylist()[0]
        whole = ReadDump(source)
        fingerprints = dict.fromkeys(("program_fp", "interface_fp"))  # computed for the joined tables
        assert {c: whole.module(c) for c in module} == module | fingerprints


def test_a_repeat_in_a_second_section(tmp_path: Path) -> None:
    """Rows at the end of a dump that are dropped take their texts with them."""
    used = "Total bytes used: 64 (64B)\n\nUsed values:\n"
    records = [
        f"<{i} v.{i} @0>\n positions:\n  v.{i}\n uses:\n from instruction: %v.{i} = f32[4]{{0}} add(%a.{i}, %b.{i})\n"
        for i in range(4)
    ]
    first = "BufferAssignment:\nallocation 0: size 64, preallocated-temp:\n" + "".join(
        f" value: <{i} v.{i} @0> (size=16,offset={16 * i}): f32[4]{{0}}\n" for i in range(4)
    )
    for k, again in enumerate(([used, records[3].replace("<3", "<9"), records[1].replace("<1", "<10")], [])):
        (place := tmp_path / str(k)).mkdir()
        text = "".join([first, "\n", used, *records, "\n", *again])
        (place / f"module_000{k}.jit_m.cpu_after_optimizations-buffer-assignment.txt").write_text(text)
    found = xlamem.find(tmp_path)
    tables, _ = tables_of([ReadDump(s) for s in found])
    operands = [f"%a.{i}, %b.{i}" for i in range(4)]
    assert tables["instructions"]["operands"].to_pylist() == operands * 2
    assert xlamem.read(found[0], threads=3).instructions["operands"].to_pylist() == operands
