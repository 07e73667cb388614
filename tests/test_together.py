"""Dumps read together: the same tables as each one's, one after the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import xlamem
from xlamem import schema
from xlamem.source import Source
from xlamem.together import Whole, tables_of

DUMPS = Path(__file__).parent / "dumps"


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    found = xlamem.find(DUMPS)
    assert len(found) > 10
    return found


@pytest.mark.parametrize("name", schema.TABLES)
def test_tables_are_those_of_each_dump(sources: list[Source], name: str) -> None:
    several = [*sources, sources[0], *sources[::-1]]
    tables, counts = tables_of([Whole(s) for s in several])
    alone = [xlamem.read(s, hashes=True)[name] for s in several]
    assert tables[name].schema.equals(schema.TABLES[name].arrow)
    assert counts[name].tolist() == [t.num_rows for t in alone]
    assert tables[name].to_pylist() == pa.concat_tables(alone).to_pylist()


def test_one_dump_and_none(sources: list[Source]) -> None:
    tables, _ = tables_of([Whole(sources[0])])
    dump = xlamem.read(sources[0], hashes=True)
    assert all(tables[name].equals(dump[name]) for name in schema.TABLES)
    tables, counts = tables_of([])
    assert all(tables[name].num_rows == 0 and counts[name].size == 0 for name in schema.TABLES)


def test_facts_are_those_of_modules(sources: list[Source]) -> None:
    for source in sources:
        module = xlamem.read(source, hashes=True)["modules"].to_pylist()[0]
        whole = Whole(source)
        assert {c: whole.fact(c) for c in module} == module
