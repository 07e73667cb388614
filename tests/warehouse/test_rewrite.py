"""Batches that are copied without some of their dumps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS

import xlamem
from xlamem.input.find import Source
from xlamem.warehouse import parquet, worker
from xlamem.warehouse.batch import Batch
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.rewrite import rewrite, sort_order
from xlamem.warehouse.storage import Storage

READ = ("cpu-jaxlib-0.5.3-tuple3", "cpu-tf-2.3.4-loop")
FAILING = ("cpu-tf-1.15.0-loop", "cpu-tf-2.18.1-loop")


@pytest.fixture
def batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, Batch]:
    """A batch as older versions wrote it: two dumps, and two that failed."""
    read = worker.ReadDump

    def fail(source: Source, **options: Any) -> worker.ReadDump:
        if Path(source.members[0].uri).parent.name in FAILING:
            raise ZeroDivisionError("oh")
        return read(source, **options)

    monkeypatch.setattr(worker, "ReadDump", fail)
    made = xlamem.convert(*(DUMPS / name for name in (*READ, *FAILING)), to=tmp_path / "out", engine="here")
    assert len(made.failed) == 2
    storage = Storage(tmp_path / "out")
    batches = Ledger(storage).state.batches.values()
    (good,) = (b for b in batches if b.dumps)
    bad = [b for b in batches if b.quarantined]
    found = replace(
        good,
        quarantined=tuple(i for b in bad for i in b.quarantined),
        files=(*good.files, *(f for b in bad for f in b.table_files("quarantine"))),
        attempts={i: n for b in bad for i, n in b.attempts.items()},
        system=tuple(i for b in bad for i in b.quarantined),
        places={i: "/in" for b in bad for i in b.quarantined},
        hosts={i: "a" for b in bad for i in b.quarantined},
    )
    assert len(found.dumps) == len(found.quarantined) == 2
    return storage, found


def ids(storage: Storage, batch: Batch, table: str) -> list[str]:
    """The contents with rows in a table."""
    tables = [pq.read_table(storage.path(f.path), filesystem=storage.system) for f in batch.table_files(table)]
    return sorted({i for t in tables for i in t["content_id"].cast(pa.string()).to_pylist()})


@pytest.mark.parametrize("table", ["modules", "allocations", "peaks"])
def test_dumps_that_were_removed_are_not_copied(batch: tuple[Storage, Batch], table: str) -> None:
    storage, old = batch
    new = rewrite(storage, old, {old.dumps[0]}, frozenset(), "run")
    assert new is not None
    assert new.dumps == old.dumps[1:]
    assert ids(storage, new, table) == [old.dumps[1]]
    assert new.name != old.name


def test_failures_leave_quarantine_with_their_rows(batch: tuple[Storage, Batch]) -> None:
    """Whether the dump was read now, or failed again and has a row in the new batch."""
    storage, old = batch
    a, b = old.quarantined
    for removed, failed in (({a}, frozenset()), (frozenset(), {a})):
        new = rewrite(storage, old, removed, failed, "run")
        assert new is not None
        assert new.quarantined == (b,)
        assert ids(storage, new, "quarantine") == [b]
        assert set(new.attempts) == set(new.system) == set(new.places) == set(new.hosts) == {b}
        assert ids(storage, new, "modules") == sorted(new.dumps) == sorted(old.dumps)


def test_a_dump_that_is_stored_and_failed_now_stays(batch: tuple[Storage, Batch]) -> None:
    storage, old = batch
    new = rewrite(storage, old, frozenset(), {old.dumps[0]}, "run")
    assert new is not None
    assert new.dumps == old.dumps


def test_quarantine_alone_is_worth_a_batch(batch: tuple[Storage, Batch]) -> None:
    storage, old = batch
    new = rewrite(storage, old, set(old.dumps), frozenset(), "run")
    assert new is not None
    assert (new.dumps, new.quarantined) == ((), old.quarantined)
    assert {f.table for f in new.files} == {"quarantine"}
    assert rewrite(storage, old, {*old.dumps, *old.quarantined}, frozenset(), "run") is None


def test_files_of_a_store_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy replaces neither another file of its table nor that of a run that makes the same copy."""
    pytest.importorskip("fsspec")
    for name, value in {"ROW_GROUP_BYTES": 2000, "MIN_ROW_GROUP_BYTES": 500, "MAX_ROW_GROUPS": 1}.items():
        monkeypatch.setattr(parquet, name, value)
    storage = Storage(f"memory://{tmp_path.name}")
    xlamem.convert(*(DUMPS / name for name in READ), to=storage.uri, engine="here")
    (old,) = (batch for batch in Ledger(storage).state.batches.values() if batch.dumps)
    assert len(old.table_files("values")) > 2
    made = [rewrite(storage, old, {old.dumps[0]}, frozenset(), f"20261124T010203-{letter * 8}") for letter in "ab"]
    assert None not in made
    paths = [file.path for new in made if new for file in new.files]
    assert len({*paths}) == len(paths)

    def values(batch: Batch | None) -> list[dict[str, Any]]:
        assert batch is not None
        tables = [pq.read_table(storage.path(f.path), filesystem=storage.system) for f in batch.table_files("values")]
        return [row for t in tables for row in t.to_pylist() if row["content_id"] != old.dumps[0]]

    assert values(made[0]) == values(made[1]) == values(old) != []


def test_a_damaged_file_is_named_and_no_copy_is_left(batch: tuple[Storage, Batch], tmp_path: Path) -> None:
    storage, old = batch
    damaged = Path(storage.path(old.table_files("values")[0].path))
    data = bytearray(damaged.read_bytes())
    data[4:100] = bytes(96)  # the data, but not the footer
    damaged.write_bytes(data)
    with pytest.raises(xlamem.DumpError, match=f"{damaged.name}: expected a Parquet file"):
        rewrite(storage, old, {old.dumps[0]}, frozenset(), "run")
    assert not [p for p in (tmp_path / "out/values").rglob(".*") if p.is_file()]


def test_the_columns_by_which_a_file_is_sorted(tmp_path: Path) -> None:
    """They need not be the first ones of the file."""
    table = pa.table({"a": [1], "b": [2], "c": [3]})
    for columns in ((), ("c",), ("c", "a")):
        order = [pq.SortingColumn(table.column_names.index(name)) for name in columns]
        pq.write_table(table, tmp_path / "x", sorting_columns=order or None)
        assert sort_order(pq.read_metadata(tmp_path / "x")) == columns
    pq.write_table(table.slice(0, 0), tmp_path / "x")
    assert sort_order(pq.read_metadata(tmp_path / "x")) == ()
