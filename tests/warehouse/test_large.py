"""A dump that is converted on several threads: the same files, its progress, and what is left after a failure."""

from __future__ import annotations

import gc
import hashlib
import itertools
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attacks
import pytest
from conftest import every
from forge_bulk import forge_files

import xlamem
from xlamem import OutputError, schema, warehouse
from xlamem.compute.layout import MAX_DUMP_SPACES
from xlamem.parse import pieces
from xlamem.warehouse import parquet, plan, processes, spill, streamed, worker
from xlamem.warehouse.cores import Cores, current
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.storage import Storage

PER_RUN = {"modules", "occurrences", "runs", "labels", "quarantine"}
"""Tables with columns that differ from run to run."""


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    forge_files(folder := tmp_path_factory.mktemp("dump"), seed=3, megabytes=0.4)
    return folder


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """A large dump is converted with many collections of garbage: they need not look at all that is there already."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every dump is large; threads change places often, and none is left."""
    for module in (worker, plan):
        monkeypatch.setattr(module, "STREAMED_BYTES", 0)
    monkeypatch.setattr(pieces, "SPAN_BYTES", 10_000)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 100_000)
    monkeypatch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(spill, "REGION_BYTES", 1 << 15)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
    assert "xlamem" not in [thread.name for thread in threading.enumerate()]


def convert(*sources: Path, to: Path, **options: Any) -> warehouse.Converted:
    return xlamem.convert(*sources, to=to, **{"engine": "here", **options})


def digests(dest: Path) -> dict[str, str]:
    """Hashes of the files that a run with other lineage would write too."""
    files = {f.relative_to(dest): f for f in dest.rglob("*.parquet")}
    return {str(n): hashlib.sha256(f.read_bytes()).hexdigest() for n, f in files.items() if n.parts[0] not in PER_RUN}


def on_disk(dest: Path) -> set[str]:
    return {str(p.relative_to(dest)) for p in dest.rglob("*") if p.is_file() and "_ledger" not in p.parts}


def test_the_same_bytes_for_any_number_of_workers(dump: Path, tmp_path: Path) -> None:
    found = []
    for i, workers in enumerate((1, 2, 4, 2)):
        made = convert(dump, to=tmp_path / str(i), workers=workers)
        assert (made.dumps, made.failed) == (1, [])
        found.append(digests(tmp_path / str(i)))
    assert {Path(name).parts[0] for name in found[0]} >= {*schema.DERIVED} - PER_RUN
    assert found[1:] == found[:1] * 3
    rows = xlamem.Dataset(tmp_path / "0")["instructions"]
    assert rows.count_rows() == xlamem.read(dump)["instructions"].num_rows


MANY_SPACES = "".join(
    f"allocation {i}: size 64, color {i}, maybe-live-out:\n{attacks.value(i, f'x.{i}', size=64)}"
    for i in range(MAX_DUMP_SPACES + 1)
)


@pytest.mark.parametrize(
    "allocations",
    [
        MANY_SPACES,
        MANY_SPACES + f"allocation 999: size 8, preallocated-temp:\n{attacks.value(999, 'y', size=1 << 62)}",
        "".join(f"allocation {i}: size {1 << 61}, maybe-live-out:\n" for i in range(3)),
        f"allocation 0: size 64, preallocated-temp:\n{attacks.value(1, 'a', size=1 << 62)}{attacks.value(2, 'b')}",
    ],
    ids=["spaces", "spaces and sizes", "allocations", "values"],
)
def test_a_dump_beyond_the_limits(allocations: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the same tables as a small one: all but the computed numbers."""
    (tmp_path / "dump").mkdir()
    for role, text in attacks.dump([], allocations=allocations, ranges=["a{}:0-1"]).items():
        (tmp_path / "dump" / f"module_0001.jit_f.cpu_after_optimizations-{role}.txt").write_bytes(text)
    made = convert(tmp_path / "dump", to=tmp_path / "large")
    assert (made.dumps, made.failed) == (1, [])
    for module in (worker, plan):
        monkeypatch.setattr(module, "STREAMED_BYTES", 1 << 28)
    convert(tmp_path / "dump", to=tmp_path / "small")
    large, small = (xlamem.Dataset(tmp_path / name) for name in ("large", "small"))
    for table in sorted(schema.WAREHOUSE.keys() - PER_RUN):
        assert large[table].to_table().to_pylist() == small[table].to_table().to_pylist(), table
    assert {row["definition"] for row in large["peaks"].to_table().to_pylist()} <= {"device_total", "xla_printed"}


def test_a_dump_that_fails_at_last_has_no_rows(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_all = streamed.StreamedDump.convert

    def fail(*args: Any) -> None:
        convert_all(*args)
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(streamed.StreamedDump, "convert", fail)
    made = convert(dump, to=tmp_path)
    assert (made.dumps, len(made.failed), made.files, made.rows) == (0, 1, 1, 1)  # that of its failure


def test_a_dump_that_changed_has_no_rows(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the end of its text was read is discarded, and the next run converts it."""
    with monkeypatch.context() as patch:
        patch.setattr(worker, "content_id", lambda content, source: "0" * 32)
        made = convert(dump, to=tmp_path)
    assert (made.dumps, len(made.changed), made.failed, made.files, made.rows) == (0, 1, [], 0, 0)
    dataset = xlamem.Dataset(tmp_path)
    assert {name for name in schema.WAREHOUSE if dataset[name].to_table().num_rows} <= {"runs", "labels"}
    assert on_disk(tmp_path) == {file["path"].removeprefix(f"{tmp_path}/") for file in dataset.files().to_pylist()}
    assert convert(dump, to=tmp_path).dumps == 1


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_within_a_dump(dump: Path, tmp_path: Path, workers: int) -> None:
    seen: list[warehouse.Status] = []
    made = convert(dump, to=tmp_path, workers=workers, progress=seen.append)
    steps = [status for status in seen if status.phase == "convert"]
    read = [status.bytes for status in steps]
    assert read == sorted(read)
    assert (read[0], read[-1]) == (0, made.text_bytes)
    assert {status.of_bytes for status in steps} == {made.text_bytes}
    assert len({status.bytes for status in steps if not status.dumps}) > 20


def test_odd_ranges(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges that end before they begin, or outside of the schedule, mean the same however the dump is read."""
    shutil.copytree(dump, tmp_path / "in")
    (path,) = (tmp_path / "in").glob("*-live-range.txt")
    odd = itertools.cycle(["0--1", "5-3", "0-99999999", "99999999-99999999", "2-2"])
    number = itertools.count()
    pattern = re.compile(r"(?<=}:)\d+-\d+$", re.MULTILINE)
    path.write_text(pattern.sub(lambda m: next(odd) if next(number) % 3 else m[0], path.read_text()))
    convert(tmp_path / "in", to=tmp_path / "large")
    monkeypatch.setattr(worker, "STREAMED_BYTES", 1 << 30)
    convert(tmp_path / "in", to=tmp_path / "small")
    for name in ("live_ranges", "peaks", "bills"):
        large, small = (xlamem.Dataset(tmp_path / folder)[name].to_table().to_pylist() for folder in ("large", "small"))
        assert len(large) > 1
        assert large == small, name


def test_progress_of_worker_processes() -> None:
    with processes.local(2) as pool:
        pool.start(1)
        assert pool.cores.read == 0
        assert pool.submit(read_some).result() == 2
        assert pool.cores.read == 7
        pool.restart()
        assert pool.cores.read == 0


def read_some() -> int:
    """In a worker."""
    current().set_read(7)
    return current().size


def test_only_idle_cores_are_taken() -> None:
    shared = Cores(3).numbers
    first, second = Cores(3, shared), Cores(3, shared)
    with first.working():
        assert first.take()
        with second.working():  # a task need not wait
            assert not first.take()
            assert not second.take()
            first.give_back()
            assert second.take()
            second.give_back()
        assert first.take()
        first.give_back()
    assert not any(shared)


# -- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_disk_that_is_full(dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    write = parquet._OpenFile.write

    def fail(file: Any, table: Any) -> None:
        if file.table == "uses":  # long after the first tables
            raise OSError(28, "No space left on device", str(tmp_path))
        write(file, table)

    monkeypatch.setattr(parquet._OpenFile, "write", fail)
    with pytest.raises(OutputError, match="No space left"):
        convert(dump, to=tmp_path, workers=workers)
    committed = {f.path for f in Ledger(Storage(tmp_path)).state.files()}
    assert on_disk(tmp_path) == committed
    assert not any(path.startswith("values") for path in committed)
    monkeypatch.undo()
    assert convert(dump, to=tmp_path).dumps == 1


@pytest.mark.parametrize("workers", every(3, [2, 1, 4]))
@pytest.mark.parametrize("error", [xlamem.DumpError("x", "more"), ZeroDivisionError("oh")], ids=type)
def test_a_bug_in_a_thread(
    dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, error: Exception
) -> None:
    def fail(rows: Any, module: Any) -> None:
        raise error

    monkeypatch.setattr(streamed.DerivedRows, "compute", fail)
    made = convert(dump, to=tmp_path, workers=workers)
    (failure,) = made.failed
    assert ("expected more" if isinstance(error, xlamem.DumpError) else "oh") in failure.error
    assert on_disk(tmp_path) == {f.path for f in Ledger(Storage(tmp_path)).state.files()}


@pytest.mark.parametrize("workers", every(2, [2, 1]))
@pytest.mark.parametrize("error", [KeyboardInterrupt, LookupError])
def test_interrupted_within_a_dump(dump: Path, tmp_path: Path, workers: int, error: type[BaseException]) -> None:
    """By Ctrl-C, or by an exception of the caller's `progress`."""

    def stop(status: warehouse.Status) -> None:
        if 2 * status.bytes > status.of_bytes > 0:
            raise error

    expected = warehouse.Interrupted if error is KeyboardInterrupt else error
    with pytest.raises(expected):
        convert(dump, to=tmp_path, workers=workers, progress=stop)
    assert on_disk(tmp_path) == {f.path for f in Ledger(Storage(tmp_path)).state.files()}
    assert convert(dump, to=tmp_path).dumps == 1
