"""The life of a dataset, compared with what it contained before: nights, failures, versions, compaction, drops.

Each step stores what the call returned, a digest of every table, and what the ledger says. Run ids are numbered, and
times, sizes of files and places of the tests do not count.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, HERE, every
from forge import ERAS, forge
from stored import TESTS, check, outcome, text_of
from test_convert import broken, convert, state, unreadable

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse import compaction, derived, driver, identity, parquet, plan, worker
from xlamem.warehouse.dataset import Dataset

PLATFORMS: Any = ("cpu", "gpu", "tpu")
UNSTABLE = {"run_id", "seconds", "bytes", "new_bytes"}
"""Fields of results that differ from run to run."""

Results = Iterator[tuple[str, Any]]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Small programs of several releases and platforms."""
    folder = tmp_path_factory.mktemp("dumps")
    places = []
    for i, era in enumerate(("E0", "E2b", "E3", "E4", "E5a", "E5e", "E6", "E7", "E7")):
        assert era in ERAS
        places.append(folder / str(i))
        places[-1].mkdir()
        forge(i, era=era, platform=PLATFORMS[i % 3], values=40).write(places[-1])
    old(folder)
    return places


def old(folder: Path) -> None:
    """Let files seem old: the next run does not look at the content again if they are as they were."""
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small limits, so that there are several batches, chunks, groups and files; and ids that depend on no place."""
    hashed = identity._hash
    without_place = lambda *fields: hashed(*(field.replace(str(tmp_path), "") for field in fields))  # noqa: E731
    monkeypatch.setattr(identity, "_hash", without_place)
    monkeypatch.setattr(xlamem, "__version__", "1")
    monkeypatch.setattr(driver, "host_name", lambda: "host")
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 60_000)
    monkeypatch.setattr(worker, "CHUNK_BYTES", 30_000)
    monkeypatch.setattr(derived, "MAX_CELLS", 200)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 6000)
    monkeypatch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 1500)
    monkeypatch.setattr(compaction, "SLICE_BYTES", 3000)


class Life:
    """What is compared of a dataset, step by step."""

    def __init__(self, dest: Path, *folders: Path) -> None:
        self.dest, self.folders = dest, (dest.parent, *folders, TESTS)
        self.found: list[tuple[str, Any]] = []
        self.runs: dict[str, str] = {}

    def did(self, step: str, result: Any) -> None:
        if run_id := getattr(result, "run_id", ""):
            self.runs[run_id] = f"run {len(self.runs)}"
        values = {f.name: getattr(result, f.name) for f in fields(result) if f.name not in UNSTABLE}
        values = {name: sorted(map(str, v)) if isinstance(v, list) else v for name, v in values.items()}
        self.found += [(f"{step}: {name}", value) for name, value in values.items() if name != "failed"]
        self.found += [(f"{step}: {key}", value) for key, value in self.contents()]

    def contents(self) -> Results:
        dataset = Dataset(self.dest)
        for name in dataset.tables:
            yield name, self.plain(dataset[name].to_table(), ordered=name not in schema.RUN_TABLES)
        yield "dumps", self.plain(dataset.dumps(), ordered=False)
        yield "ids", dataset.ids
        found = state(self.dest)
        yield "batches", sorted(self.batch(batch) for batch in found.batches.values())
        yield "hidden", sorted(found.hidden)
        for content_id in dataset.ids[::4]:
            yield f"dump {content_id[:4]}", outcome(lambda i=content_id: xlamem.live_set(dataset.read(i)))

    def plain(self, table: pa.Table, *, ordered: bool) -> pa.Table | str:
        """Return a table without times; one that is not ordered as its sorted rows."""
        unstable = [f.name for f in table.schema if pa.types.is_timestamp(f.type) or f.name in ("seconds", "bytes")]
        table = table.drop_columns([name for name in unstable if name != "bytes" or not ordered])
        columns = {
            name: pa.array([self.runs.get(i, i) for i in column.to_pylist()]) if name == "run_id" else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
        return pa.table(columns) if ordered else "\n".join(sorted(map(self.row, pa.table(columns).to_pylist())))

    def row(self, row: dict[str, Any]) -> str:
        """Return a row as text without the places of the tests, which would determine the order."""
        return text_of(str(row), *self.folders)

    def batch(self, batch: Any) -> str:
        files = sorted((f.table, f.path.rpartition("/")[0], f.rows) for f in batch.files)
        run_labels = sorted((self.runs.get(run, run), labels) for run, labels in batch.run_labels.items())
        return str([
            sorted(batch.dumps), sorted(batch.quarantined), files, batch.tool_version, batch.schema_version,
            self.runs.get(batch.run_id, ""), batch.tables, batch.attempts, sorted(batch.system), batch.places,
            batch.labels, run_labels, len(batch.runs), batch.merged_bytes > 0,
        ])  # fmt: skip


def test_nights(dumps: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(dest := tmp_path / "out", dumps[0].parent)
    bad = [broken(tmp_path / "bad").parent, unreadable(tmp_path / "two").parent]
    old(tmp_path)

    def night(number: int, *sources: Path, **options: Any) -> None:
        labels = {"night": str(number), "odd": "y" if number % 2 else "n"}
        step = f"night {number} {' '.join(options)}".strip()
        seen: dict[str, Any] = {}  # the last status of each phase: tasks end in any order
        options["progress"] = lambda status: seen.update({status.phase: replace(status, seconds=0)})
        life.did(step, convert(*sources, to=dest, labels=labels, partition_by="night", top=4, **options))
        life.found.append((f"{step}: progress", seen))

    night(1, *dumps[:6])
    night(2, *dumps[3:8], *bad)
    night(2, *dumps[3:8], *bad)
    night(3, dumps[0], *bad, retry_quarantine=True)
    with monkeypatch.context() as patch:
        load = identity._load

        def fail(source: Any) -> Any:
            if Path(source.location).name == "two":
                raise OSError("no answer")
            return load(source)

        patch.setattr(identity, "_load", fail)
        night(4, *dumps, *bad, check_content=True)
    night(5, *dumps)
    monkeypatch.setattr(xlamem, "__version__", "2")
    night(6, *dumps[1:4], DUMPS / "cpu-killed-at-buffer-assignment")
    night(7, dumps[2], reprocess=True)
    life.did("compacted", warehouse.compact(dest))
    night(8, *dumps[5:])
    night(5, dumps[0], dumps[8])  # with labels of a batch that was merged with others
    night(3, dumps[0], dumps[8])
    pytest.importorskip("duckdb")
    life.did("to be dropped", warehouse.drop(dest, "label.night < '3'", dry_run=True))
    life.did("dropped", warehouse.drop(dest, "label.night < '3' OR uri LIKE '%/4/%'"))
    night(9, *dumps[3:6])
    life.did("compacted again", warehouse.compact(dest))
    check("warehouse/nights", life.found, tmp_path, dumps[0].parent)


def test_chosen_tables(dumps: list[Path], tmp_path: Path) -> None:
    life = Life(tmp_path / "out", dumps[0].parent)
    for tables in (["values", "peaks"], ["modules", "scopes", "bills"]):
        life.did(" ".join(tables), convert(*dumps[:5], to=life.dest, tables=tables, reprocess=True))
    check("warehouse/chosen-tables", life.found, tmp_path, dumps[0].parent)


@pytest.mark.parametrize("name", every(2, ["v1-dataset", "old-dataset"]))
def test_version_1(name: str, tmp_path: Path, dumps: list[Path]) -> None:
    life = Life(tmp_path / "out", dumps[0].parent)
    shutil.copytree(HERE / "data" / name, life.dest)
    life.found += life.contents()
    life.did("grown", convert(*dumps[:2], *sorted(DUMPS.glob("cpu-jaxlib-0.[45]*")), to=life.dest))
    seen: list[Any] = []
    life.did("migrated", warehouse.migrate(life.dest, progress=lambda status: seen.append(replace(status, seconds=0))))
    life.found.append(("progress", seen))
    life.did("compacted", warehouse.compact(life.dest))
    check(f"warehouse/{name}", life.found, tmp_path, dumps[0].parent)
