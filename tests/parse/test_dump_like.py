"""Every computation takes a dump, other tables, or anything that `read` takes."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, every

import xlamem
from xlamem import compute, schema
from xlamem.dump import Dump, Tables, as_tables
from xlamem.parse.arrays import numbers_of

FOLDER = DUMPS / "cpu-jaxlib-0.4.26-scan_while"
FILE = next(FOLDER.glob("*-buffer-assignment.txt"))
"""All sections of this old dump are in one file."""

COMPUTATIONS: dict[str, Callable[..., Any]] = {
    **compute.REGISTRY,
    "advise": compute.advise,
    "attribution": compute.attribution,
    "bill": compute.bill,
    "buffer": lambda dump: compute.buffer(dump, 1),
    "device_total": compute.device_total,
    "fits": lambda dump: compute.fits(dump, capacity="16GiB"),
    "memory_analysis": compute.memory_analysis,
    "peak": lambda dump: compute.peak(dump).spaces,
    "repack": lambda dump: [(p.allocation, p.found, p.lower_bound) for p in compute.repack(dump, 0)],
    "xla_rule": compute.xla_rule,
}


class ArrowTables:
    """The smallest implementation of `Tables`."""

    def __init__(self, tables: dict[str, pa.Table], platform: str | None, schedule_length: int | None) -> None:
        self.name = "arrow"
        self.tables = tuple(tables)
        self.platform = platform
        self.schedule_length = schedule_length
        self.cache: dict[str, Any] = {}
        self._tables = tables

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables[name]

    def integers(self, name: str, *columns: str) -> list[Any]:
        return [numbers_of(self[name][column]) for column in columns]

    def count_rows(self, name: str) -> int:
        return int(self[name].num_rows)


def without_hlo() -> xlamem.Dump:
    """The dump without the HLO text, whose instructions are in no table."""
    (source,) = xlamem.find(FOLDER)
    return xlamem.read(replace(source, members=tuple(m for m in source.members if m.role != "hlo")))


def arrow_tables() -> ArrowTables:
    dump = without_hlo()
    return ArrowTables({name: dump[name] for name in schema.TABLES}, dump.platform, dump.schedule_length)


INPUTS: dict[str, Callable[[], Any]] = {
    "text path": lambda: str(FOLDER),
    "path": lambda: FOLDER,
    "member file": lambda: FILE,
    "bytes": FILE.read_bytes,
    "file object": lambda: io.BytesIO(FILE.read_bytes()),
    "source": lambda: xlamem.find(FOLDER)[0],
    "dump": lambda: xlamem.read(FOLDER),
    "tables": arrow_tables,
}


def plain(result: Any) -> Any:
    return result.to_pydict() if isinstance(result, pa.Table) else result


@pytest.fixture(scope="module")
def dumps() -> dict[str, xlamem.Dump]:
    """The dump as a folder; without its file name, which determines the platform; and without the HLO text."""
    unnamed = xlamem.read(FILE.read_bytes())
    return {"bytes": unnamed, "file object": unnamed, "tables": without_hlo(), "folder": xlamem.read(FOLDER)}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", every(2, COMPUTATIONS))
def test_inputs(name: str, kind: str, dumps: dict[str, xlamem.Dump]) -> None:
    computation, wanted = COMPUTATIONS[name], dumps.get(kind, dumps["folder"])
    assert plain(computation(INPUTS[kind]())) == plain(computation(wanted))


@pytest.mark.parametrize("name", COMPUTATIONS)
@pytest.mark.parametrize("wrong", [42, None, ["path"], object()], ids=lambda value: type(value).__name__)
def test_a_wrong_type(name: str, wrong: Any) -> None:
    with pytest.raises(xlamem.UsageError, match=f"^cannot read a dump from {type(wrong).__name__}$"):
        COMPUTATIONS[name](wrong)


@pytest.mark.parametrize("name", COMPUTATIONS)
def test_errors_are_those_of_read(name: str, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    errors = []
    for call in (xlamem.read, COMPUTATIONS[name]):
        with pytest.raises(xlamem.XlaMemError) as caught:
            call(missing)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
    with pytest.raises(xlamem.UsageError, match="binary mode"):
        COMPUTATIONS[name](io.StringIO("BufferAssignment:"))


def test_public_computations_are_all_tested() -> None:
    public = {name for name in xlamem.__all__ if hasattr(compute, name)}
    assert public <= COMPUTATIONS.keys()
    assert compute.REGISTRY.keys() == schema.COMPUTED.keys()


def test_results_are_kept_with_the_dump() -> None:
    """Once per dump, not once per face: a pickled dump starts afresh."""
    dump = xlamem.read(FOLDER)
    tables = as_tables(dump)
    assert tables.cache == {}
    first = compute.program.program(dump)
    assert compute.program.program(tables) is compute.program.program(dump) is first
    assert as_tables(pickle.loads(pickle.dumps(dump))).cache == {}


def test_a_dump_of_other_tables() -> None:
    """A dump from Parquet and one from text are the same class; equality and hash follow what they stand on."""
    one, two = (xlamem.read(FOLDER) for _ in range(2))
    assert type(one) is Dump
    assert one == two
    assert hash(one) == hash(two)
    assert one != xlamem.read(FOLDER, tables=["values"])
    assert one != "a dump"


def test_sql_takes_tables() -> None:
    pytest.importorskip("duckdb")
    query = "select sum(size) as bytes from allocations"
    results = [xlamem.sql(make(), query).to_pylist() for make in INPUTS.values()]
    assert all(result == results[0] for result in results)


def test_the_protocol_is_implemented() -> None:
    """Type checkers accept each implementation as `Tables`."""
    implementations: list[Tables] = [arrow_tables(), as_tables(FOLDER)]
    assert all(t["allocations"].num_rows for t in implementations)
