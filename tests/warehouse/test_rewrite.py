"""Batches that are copied without some of their dumps."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS

import xlamem
from xlamem.warehouse.batch import Batch
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.rewrite import rewrite
from xlamem.warehouse.storage import Storage

DUMP_NAMES = ("cpu-jaxlib-0.5.3-tuple3", "cpu-tf-2.3.4-loop")


def unreadable(folder: Path, name: str) -> Path:
    """A member that contains two dumps."""
    folder.mkdir(exist_ok=True)
    (one,) = DUMPS.glob("cpu-jaxlib-0.5.3-tuple3/*-buffer-assignment.txt")
    (folder / f"{name}.cpu_after_optimizations-live-range.txt").write_bytes(one.read_bytes() * 2 + name.encode())
    return folder


@pytest.fixture
def batch(tmp_path: Path) -> tuple[Storage, Batch]:
    """Two dumps, and two that failed."""
    bad = unreadable(unreadable(tmp_path / "in", "module_1.f"), "module_2.g")
    made = xlamem.convert(*(DUMPS / name for name in DUMP_NAMES), bad, to=tmp_path / "out", engine="here")
    assert len(made.failed) == 2
    storage = Storage(tmp_path / "out")
    (found,) = (b for b in Ledger(storage).state.batches.values() if b.dumps)
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
        assert (set(new.attempts), set(new.system) - {b}, set(new.places) - {b}) == ({b}, set(), set())
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
