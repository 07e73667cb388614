"""The converter: what is written equals what is read, once, whatever the workers."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from conftest import DUMPS, every
from printed_names import scopes_of, with_printed_names

import xlamem
from xlamem import schema, warehouse
from xlamem.cli import main
from xlamem.input import files as input_files
from xlamem.parse import pieces as streaming
from xlamem.warehouse import activity, driver, identity, parquet, plan, run, spill, worker
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage

SMALL = DUMPS / "cpu-jaxlib-0.5.3-tuple3"
CUT = DUMPS / "cpu-killed-at-buffer-assignment"
TWO = ("cpu-jaxlib-0.5.3-tuple3", "cpu-tf-2.3.4-loop")
LINEAGE = ["tool_version", "schema_version", "run_id", "host", "converted_at"]
SEEN = ["run_id", "host", "seen_at"]
PER_RUN = ("labels", "runs")
"""Tables to which every run adds rows, whatever it finds."""


def convert(*sources: Any, to: Path, **options: Any) -> warehouse.Converted:
    """In this process: what the engines add is tested elsewhere."""
    return xlamem.convert(*sources, to=to, **{"engine": "here", **options})


def state(dest: Path) -> State:
    return Ledger(Storage(dest)).state


def stored(dest: Path, table: str, ledger: State | None = None) -> pa.Table:
    """What a reader sees, by the ledger, which need not be read for each table."""
    files = (ledger or state(dest)).files(table)
    spec = schema.WAREHOUSE[table]
    tables = [spec.parquet.empty_table(), *(pq.read_table(dest / f.path, partitioning=None) for f in files)]
    return pa.concat_tables(tables).cast(spec.warehouse)


def on_disk(dest: Path) -> set[str]:
    return {str(p.relative_to(dest)) for p in dest.rglob("*") if p.is_file() and "_ledger" not in p.parts}


def of(table: pa.Table, content_id: str) -> list[dict[str, Any]]:
    rows = table.filter(pc.equal(table["content_id"], content_id)).drop_columns("content_id")
    return list(rows.to_pylist())


def broken(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "module_0001.jit_g.cpu_after_optimizations-buffer-assignment.txt.gz"
    path.write_bytes(b"\x1f\x8b\x08 this is not gzip")
    return path


def unreadable(folder: Path) -> Path:
    """A dump whose bytes can be had, but which is two."""
    folder.mkdir(parents=True)
    (one,) = DUMPS.glob("cpu-jaxlib-0.5.3-tuple3/*-buffer-assignment.txt")
    path = folder / "module_0002.jit_h.cpu_after_optimizations-live-range.txt"
    path.write_bytes(one.read_bytes() * 2)
    return path


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dest = tmp_path_factory.mktemp("everything")
    made = convert(DUMPS, to=dest, labels={"night": "monday", "model": "all"})
    assert not made.failed
    return dest


# -- what is written -----------------------------------------------------------------------------


def test_every_table_is_that_of_the_dump(everything: Path) -> None:
    ledger = state(everything)
    tables = {name: stored(everything, name, ledger) for name in schema.WAREHOUSE}
    for name, table in tables.items():
        assert table.schema == schema.WAREHOUSE[name].warehouse, name
    assert tables["occurrences"].num_rows == len(xlamem.find(DUMPS))
    identity = {(r["uri"]): r["content_id"] for r in tables["files"].to_pylist()}
    seen = set()
    for source in xlamem.find(DUMPS):
        dump = xlamem.read(source, hashes=True)
        i = identity.get(source.members[0].location) or identity[source.members[0].uri]
        if i in seen:
            continue
        seen.add(i)
        for name in schema.TABLES:
            found = of(tables[name], i)
            wanted = dump[name].to_pylist()
            if name == "modules":
                found = [{k: v for k, v in row.items() if k not in LINEAGE} for row in found]
            assert found == wanted, (name, source)
    assert seen == set(tables["modules"]["content_id"].to_pylist())


def bill_by_line(dump: xlamem.Dump) -> list[dict[str, Any]]:
    """The bill without the kinds of buffers, spaces in the order of their colors."""
    names = schema.DERIVED["bills"].names[:-2]
    found: dict[Any, Any] = {}
    for row in xlamem.bill(dump).to_pylist():
        line = found.setdefault(tuple(row[k] for k in names), {k: row[k] for k in names} | {"n": 0, "bytes": 0})
        line["n"] = None if row["n"] is None else line["n"] + row["n"]
        line["bytes"] += row["bytes"]
    first = "device_total"
    return sorted(found.values(), key=lambda r: (r["account"] != first, r["color"] or 0, r["page"] or 0))


def test_derived_tables_are_those_of_the_dump(everything: Path) -> None:
    dumps = 0
    ledger = state(everything)
    names = ("files", "peaks", "explain_causes", "bills", "peak_members", "scopes")
    tables = {name: stored(everything, name, ledger) for name in names}
    for source in xlamem.find(DUMPS):
        dump = xlamem.read(source)
        (i,) = {
            r["content_id"]
            for r in tables["files"].to_pylist()
            if r["uri"] in {m.location for m in source.members}
        } or {None}
        if i is None or not dump.allocations.num_rows:
            continue
        dumps += 1
        peaks = {(r["memory_space"], r["page"], r["definition"]): r for r in of(tables["peaks"], i)}
        spaces = xlamem.peak(dump).spaces.to_pylist()
        assert len({k[:2] for k in peaks if k[0] is not None}) == len(spaces)
        for s in spaces:
            for definition, column, time in (
                ("allocated", "allocated", None), ("reserved", "reserved", None), ("peak", "peak", "first_step"),
                ("half_open", "half_open_peak", None), ("live", "live_peak", "live_step"), ("slack", "slack", None),
            ):  # fmt: skip
                row = peaks.get((s["memory_space"], s["page"], definition))
                if s[column] is None:
                    assert row is None
                    continue
                assert row is not None
                assert (row["bytes"], row["time"]) == (s[column], s[time] if time else None)
            for row in xlamem.explain(dump).to_pylist():
                mine = [r for k, r in peaks.items() if k[0] == row["memory_space"] and k[2] == row["name"]]
                stored_too = ("fixed", "half_open", "live", "peak_together", "reserved", "xla_total", "xla_printed")
                if row["name"] in stored_too and mine:
                    assert row["bytes"] in [r["bytes"] for r in mine], row["name"]
            keys = ("memory_space", "color", "page", "cause", "bytes")
            wanted = [
                (r["name"], *(r[k] for k in keys))
                for r in xlamem.explain_causes(dump).to_pylist()
                if r["name"] not in ("xprof", "xla_rule", "device_total")
            ]
            causes = [(r["definition"], *(r[k] for k in keys)) for r in of(tables["explain_causes"], i)]
            assert sorted(causes, key=str) == sorted(wanted, key=str)
        assert of(tables["bills"], i) == bill_by_line(dump)
        in_use = ("parameters", "donated", "outputs", "constants", "temporaries")
        bill = [r for r in xlamem.bill(dump).to_pylist() if r["account"] == "device_total"]
        device_peak = peaks.get((None, None, "device_peak"))
        if device_peak is not None:
            assert device_peak["bytes"] == sum(r["bytes"] for r in bill if r["line"] in in_use)
        module = dump.modules.to_pylist()[0]
        total = peaks.get((None, None, "xla_total"))
        assert (total and total["bytes"]) == module["total_bytes"]
        printed = peaks.get((None, None, "xla_printed"))
        if printed:
            assert (printed["bytes"], printed["time"]) == (module["printed_peak_bytes"], module["printed_peak_time"])
        if dump.live_ranges.num_rows:
            held = with_printed_names(dump, xlamem.live_set(dump)).to_pylist()
            members = of(tables["peak_members"], i)
            for s in spaces:
                mine = [r for r in held if (r["color"], r["page"]) == (s["color"], s["page"])][:20]
                theirs = [r for r in members if (r["color"], r["page"]) == (s["color"], s["page"])]
                assert [r.pop("rank") for r in theirs] == list(range(len(mine)))
                assert theirs == mine
            scopes = of(tables["scopes"], i)
            assert {(r["memory_space"], r["scope"]): (r["bytes"], r["n"]) for r in scopes} == scopes_of(held)
    assert dumps > 20


def test_labels_and_partitions(tmp_path: Path) -> None:
    labels = {"night": "2025-01-31", "commit": "a/b c", "model": "x"}
    first = convert(SMALL, to=tmp_path, labels=labels, partition_by=["night", "commit"])
    (modules,) = state(tmp_path).files("modules")
    assert modules.path.startswith("modules/v2/night=2025-01-31/commit=a%2Fb%20c/")
    rows = stored(tmp_path, "labels").to_pylist()
    assert {r["key"]: r["value"] for r in rows} == labels
    assert {r["run_id"] for r in rows} == {first.run_id}
    # The same content is stored once. Under the same labels, it is the same occurrence, whatever the path.
    for partition in (["night", "commit"], ["night"], []):
        again = convert(SMALL, to=tmp_path, labels=labels, partition_by=partition)
        assert (again.dumps, again.already_stored, again.occurrences) == (0, 1, 0)
    # Under other labels, it is another occurrence, in tonight's partition.
    other = convert(SMALL, to=tmp_path, labels={**labels, "night": "2025-02-01"}, partition_by=["night"])
    assert (other.dumps, other.already_stored, other.occurrences) == (0, 1, 1)
    assert len(stored(tmp_path, "modules")) == 1
    seen = stored(tmp_path, "occurrences").to_pylist()
    assert len({r["content_id"] for r in seen}) == 1
    assert {r["run_id"] for r in seen} == {first.run_id, other.run_id}
    paths = {f.path.partition("/v2/")[2].rpartition("/")[0] for f in state(tmp_path).files("occurrences")}
    assert paths == {"night=2025-01-31/commit=a%2Fb%20c", "night=2025-02-01"}


def test_chosen_tables(tmp_path: Path) -> None:
    made = convert(SMALL, to=tmp_path, tables=["values", "modules"])
    assert made.files == 2
    assert {p.name for p in tmp_path.iterdir()} == {"_ledger", "modules", "values", "occurrences", "runs"}
    # All was read, so the counts and checks are those of the whole dump.
    (module,) = stored(tmp_path, "modules").to_pylist()
    assert None not in [v for k, v in module.items() if k.startswith("n_")]


def test_types_of_the_warehouse(everything: Path) -> None:
    for name in schema.WAREHOUSE:
        for file in state(everything).files(name):
            with pq.ParquetFile(everything / file.path) as data:
                assert data.schema_arrow.equals(schema.WAREHOUSE[name].parquet, check_metadata=True), name
                assert data.schema_arrow.metadata == schema.WAREHOUSE[name].parquet.metadata
                assert data.metadata.num_rows == file.rows
                column = data.metadata.row_group(0).column(0)
                assert column.compression == "ZSTD"
                assert column.is_stats_set
                assert column.has_offset_index
                assert column.has_column_index
            assert (everything / file.path).stat().st_size == file.bytes
        kinds = {str(t) for t in schema.WAREHOUSE[name].warehouse.types}
        assert kinds <= {"int64", "double", "bool", "string", "timestamp[us, tz=UTC]"}


def test_small_dumps_share_files(everything: Path) -> None:
    assert all(len(state(everything).files(name)) <= 1 for name in schema.WAREHOUSE)
    assert len(state(everything).batches) == 3  # the dumps, their occurrences, and the run


def test_rows_are_sorted_by_dump(everything: Path) -> None:
    for name in schema.WAREHOUSE:
        if name not in PER_RUN:
            ids = stored(everything, name)["content_id"].to_pylist()
            assert ids == sorted(ids), name


# -- identity ------------------------------------------------------------------------------------


def test_the_same_dump_is_stored_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(SMALL, tmp_path / "in" / name)
    made = convert(tmp_path / "in", tmp_path / "in" / "one", to=tmp_path / "out")
    assert (made.found, made.dumps, made.duplicates) == (2, 1, 1)
    uris = stored(tmp_path / "out", "files")["uri"].to_pylist()
    assert all(f"{os.sep}one{os.sep}" in uri for uri in uris)  # always the first place in order
    again = convert(tmp_path / "in" / "two", to=tmp_path / "out")
    assert (again.dumps, again.already_stored) == (0, 1)


def test_different_dumps_in_memory_of_one_size(tmp_path: Path) -> None:
    text = b"BufferAssignment:\nallocation 0: size 4, thread-local:\n value: <0 p @0> (size=4,offset=0): f32[]\n"
    sources = [xlamem.read(data).source for data in (text, text.replace(b"4", b"8"))]
    result = convert(*sources, to=tmp_path / "out")
    assert (result.found, result.dumps) == (2, 2)
    assert sorted(stored(tmp_path / "out", "allocations")["size"].to_pylist()) == [4, 8]


def test_a_timestamp_in_the_name_does_not_matter(tmp_path: Path) -> None:
    (source,) = SMALL.glob("*-buffer-assignment.txt")
    for stamp in ("1700000000000001", "1700000000000002"):
        folder = tmp_path / stamp
        folder.mkdir()
        shutil.copy(source, folder / f"{stamp}.{source.name}")
    made = convert(tmp_path, to=tmp_path / "out")
    assert (made.dumps, made.duplicates) == (1, 1)


def test_compressed_and_plain_are_the_same_dump(tmp_path: Path) -> None:
    shutil.copytree(SMALL, tmp_path / "plain")
    (tmp_path / "packed").mkdir()
    for path in SMALL.iterdir():
        (tmp_path / "packed" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    made = convert(tmp_path, to=tmp_path / "out")
    assert (made.dumps, made.duplicates) == (1, 1)


def test_a_tar_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys
    import tarfile

    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        tar.add(SMALL, "dumps/a")
    assert convert(tmp_path / "x.tar.gz", to=tmp_path / "out").dumps == 1
    assert convert(SMALL, to=tmp_path / "out").already_stored == 1
    (path,) = SMALL.glob("*-buffer-assignment.txt")
    stdin = type("Stdin", (), {"buffer": io.BytesIO(path.read_bytes())})
    monkeypatch.setattr(sys, "stdin", stdin)
    assert convert("-", to=tmp_path / "out").dumps == 1


def test_dumps_put_together_in_one_file(tmp_path: Path) -> None:
    """Under the name of one of them, in a directory, as `cat` leaves it."""
    one, two = (next((DUMPS / d).glob("*-buffer-assignment.txt")) for d in TWO)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / one.name).write_bytes(one.read_bytes() + two.read_bytes())
    made = convert(tmp_path / "in", to=tmp_path / "out")
    assert (made.dumps, made.unreadable) == (2, 0)
    assert convert(tmp_path / "in", to=tmp_path / "out").already_stored == 2
    wanted = sum(xlamem.read(p, tables=["values"]).values.num_rows for p in (one, two))
    assert stored(tmp_path / "out", "values").num_rows == wanted


# -- the same bytes ------------------------------------------------------------------------------


def contents(dest: Path) -> dict[str, bytes]:
    lineage = ("modules/", *(f"{name}/" for name in schema.RUN_TABLES))
    return {n: (dest / n).read_bytes() for n in on_disk(dest) if not n.startswith(lineage)}


def test_identical_bytes_whatever_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)
    convert(DUMPS, to=tmp_path / "a")
    convert(*sorted(DUMPS.iterdir(), reverse=True), to=tmp_path / "b")
    assert len(state(tmp_path / "a").batches) > 3
    convert(DUMPS, to=tmp_path / "c", engine="local", workers=3)
    assert contents(tmp_path / "a") == contents(tmp_path / "b") == contents(tmp_path / "c")
    for table, lineage in (("modules", LINEAGE), ("occurrences", SEEN)):
        a, c = (stored(tmp_path / x, table).drop_columns(lineage) for x in "ac")
        assert a == c


# -- again, and in place of ----------------------------------------------------------------------


def test_running_again_does_nothing(tmp_path: Path) -> None:
    """It only adds itself to `runs`."""
    convert(DUMPS, to=tmp_path)
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    made = convert(DUMPS, to=tmp_path)
    assert made.dumps == made.files == made.occurrences == 0
    assert made.already_stored == len(set(stored(tmp_path, "modules")["content_id"].to_pylist()))
    after = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*") if p.is_file()}
    assert {p: t for p, t in after.items() if p in before} == before
    assert {p.relative_to(tmp_path).parts[0] for p in after.keys() - before} == {"runs", "_ledger"}
    (row,) = (r for r in stored(tmp_path, "runs").to_pylist() if r["run_id"] == made.run_id)
    assert row["already_stored"] == made.already_stored


def test_new_dumps_are_appended(tmp_path: Path) -> None:
    convert(SMALL, to=tmp_path)
    made = convert(SMALL, CUT, to=tmp_path)
    assert (made.dumps, made.already_stored, len(made.cut)) == (1, 1, 1)
    assert sorted(stored(tmp_path, "modules")["complete"].to_pylist()) == [False, True]


def counts(dest: Path) -> dict[str, int]:
    """Rows by table, without those that every run adds."""
    ledger = state(dest)
    return {name: stored(dest, name, ledger).num_rows for name in schema.WAREHOUSE if name not in PER_RUN}


def test_reprocess_replaces(tmp_path: Path) -> None:
    convert(DUMPS, to=tmp_path)
    before, ids = counts(tmp_path), set(state(tmp_path).stored)
    runs = set(stored(tmp_path, "modules")["run_id"].to_pylist())
    made = convert(DUMPS, to=tmp_path, reprocess=True)
    assert made.dumps == len(ids)
    assert counts(tmp_path) == before
    assert set(state(tmp_path).stored) == ids
    assert runs.isdisjoint(stored(tmp_path, "modules")["run_id"].to_pylist())
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}


@pytest.mark.parametrize("meanwhile", ["merged", "its share", "the same", "another version"])
def test_a_batch_that_is_replaced_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str) -> None:
    """Dumps whose batch is gone are converted, unless another run has done it: but --reprocess does it again."""
    if meanwhile == "merged":
        for source in (SMALL, CUT):
            convert(source, to=tmp_path)
    else:
        convert(SMALL, CUT, to=tmp_path)
    again = {"reprocess": True}
    if meanwhile == "another version":
        monkeypatch.setattr(xlamem, "__version__", "99")
        again = {}
    others: list[str] = []

    def change(status: warehouse.Status) -> None:
        if status.phase == "convert" and not others:
            others.append("")
            if meanwhile == "merged":
                assert warehouse.compact(tmp_path).merged
            else:
                sources = (SMALL, CUT) if meanwhile == "the same" else (SMALL,)
                others[:] = [convert(*sources, to=tmp_path, **again).run_id]

    made = convert(*([CUT] if meanwhile == "its share" else [SMALL, CUT]), to=tmp_path, progress=change, **again)
    n_stored = int(meanwhile == "another version")
    assert (made.dumps, made.already_stored) == (1 if meanwhile == "its share" else 2 - n_stored, n_stored)
    runs = sorted(stored(tmp_path, "modules")["run_id"].to_pylist())
    assert runs == sorted([*others * (2 - made.dumps), *[made.run_id] * made.dumps])
    assert on_disk(tmp_path) == {file.path for file in state(tmp_path).files()}


def test_another_version_replaces_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other dumps of the same files are taken over as they are."""
    monkeypatch.setattr(xlamem, "__version__", "0.0.9")
    convert(DUMPS, to=tmp_path)
    before, rows = counts(tmp_path), stored(tmp_path, "values").to_pylist()
    monkeypatch.undo()
    made = convert(SMALL, to=tmp_path)
    assert made.dumps == 1
    assert counts(tmp_path) == before
    modules = stored(tmp_path, "modules")
    versions = modules["tool_version"].to_pylist()
    assert sorted(set(versions)) == ["0.0.9", xlamem.__version__]
    assert versions.count(xlamem.__version__) == 1
    key = lambda r: (r["content_id"], r["value_id"])  # noqa: E731
    assert sorted(stored(tmp_path, "values").to_pylist(), key=key) == sorted(rows, key=key)
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}
    assert convert(SMALL, to=tmp_path).already_stored == 1
    # The others are still those of the older version, and are replaced when they come again.
    assert convert(DUMPS, to=tmp_path).dumps == len(versions) - 1
    assert counts(tmp_path) == before


def test_what_is_kept_keeps_all_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlamem, "__version__", "0.0.9")
    bad = broken(tmp_path / "in")
    convert(SMALL, CUT, bad, to=tmp_path / "out")
    monkeypatch.undo()
    before = counts(tmp_path / "out")
    one = of(stored(tmp_path / "out", "modules"), convert_id(CUT))
    convert(SMALL, to=tmp_path / "out", tables="modules")
    after = counts(tmp_path / "out")
    assert (after["modules"], after["quarantine"]) == (before["modules"], 1)
    assert of(stored(tmp_path / "out", "modules"), convert_id(CUT)) == one
    kept = {b.tool_version: b for b in state(tmp_path / "out").batches.values() if b.dumps}
    assert kept["0.0.9"].tables == tuple(schema.WAREHOUSE)
    assert set(kept[xlamem.__version__].tables) == {"modules", *schema.RUN_TABLES}
    cut = xlamem.read(CUT)
    assert after["allocations"] == cut.allocations.num_rows


def convert_id(folder: Path) -> str:
    ((item,),) = identity.identify(xlamem.find(folder))
    return item.content_id


def test_a_dump_that_fails_when_it_is_read_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(SMALL, CUT, to=tmp_path)
    before = counts(tmp_path)

    def fail(source: Any, **options: Any) -> xlamem.Dump:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(worker, "ReadDump", fail)
    made = convert(SMALL, to=tmp_path, reprocess=True)
    assert len(made.failed) == 1
    assert counts(tmp_path) == {**before, "quarantine": 1}


# -- what cannot be read -------------------------------------------------------------------------


def test_one_failure_does_not_stop_the_rest(tmp_path: Path) -> None:
    bad = broken(tmp_path / "in" / "a")
    seen: list[warehouse.Status] = []
    made = convert(tmp_path / "in", CUT, SMALL, to=tmp_path / "out", progress=seen.append)
    assert (made.dumps, len(made.failed), len(made.cut), made.unreadable) == (2, 1, 1, 1)
    assert str(bad) in made.failed[0].uri
    assert seen[0].phase == "find"
    assert (seen[-1].dumps, seen[-1].failed) == (2, 1)
    (row,) = stored(tmp_path / "out", "quarantine").to_pylist()
    assert str(bad) in row["uri"]
    assert row["error"]
    assert row["run_id"] == made.run_id
    # Again: it is tried again (it may be mended), and told again, but stored once.
    again = convert(tmp_path / "in", CUT, SMALL, to=tmp_path / "out")
    assert (again.dumps, again.known, again.unreadable) == (0, 1, 1)
    assert stored(tmp_path / "out", "quarantine").num_rows == 1
    for path in SMALL.iterdir():
        shutil.copy(path, bad.parent)
    bad.unlink()
    assert convert(tmp_path / "in", to=tmp_path / "out").unreadable == 0


def test_what_a_reader_trips_over_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = worker.ReadDump

    def trip(source: Any, **options: Any) -> xlamem.Dump:
        if "tuple3" in source.members[0].uri:
            raise ZeroDivisionError("oh")
        if "seeds" in source.members[0].uri:
            raise xlamem.DumpError("f.txt", "a line", "values", 7, None, 99, "found this")
        return read(source, **options)

    monkeypatch.setattr(worker, "ReadDump", trip)
    made = convert(DUMPS, to=tmp_path)
    assert made.dumps > 10
    rows = stored(tmp_path, "quarantine").to_pylist()
    assert len(rows) == len(made.failed) > 1
    assert any("a bug of xlamem" in r["error"] and "ZeroDivisionError" in r["error"] for r in rows)
    (one, *_) = (r for r in rows if r["uri"] == "f.txt")
    assert (one["line"], one["offset"], one["excerpt"]) == (7, 99, "found this")
    assert one["error"] == "expected a line [values]"
    ids = [*stored(tmp_path, "modules")["content_id"].to_pylist(), *(r["content_id"] for r in rows)]
    assert len(ids) == len(set(ids))
    monkeypatch.undo()
    again = convert(DUMPS, to=tmp_path)
    assert (again.dumps, again.known) == (0, len(rows))
    healed = convert(DUMPS, to=tmp_path, reprocess=True)
    assert healed.unreadable == 0
    assert stored(tmp_path, "quarantine").num_rows == 0
    assert stored(tmp_path, "modules").num_rows == len(ids)


def test_max_failures(tmp_path: Path) -> None:
    for i in range(3):
        broken(tmp_path / "in" / str(i))
    made = convert(tmp_path / "in", SMALL, to=tmp_path / "out", max_failures=2)
    assert made.stopped
    assert made.unreadable == 3
    assert not convert(tmp_path / "in", SMALL, to=tmp_path / "out2", max_failures=3).stopped


def test_known_failures_do_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 1)
    monkeypatch.setattr(plan, "TARGET_BATCHES", 1 << 20)
    for i in range(3):
        broken(tmp_path / "in" / str(i))
    assert convert(tmp_path / "in", to=tmp_path / "out", max_failures=3).unreadable == 3
    made = convert(tmp_path / "in", SMALL, CUT, to=tmp_path / "out", max_failures=2)
    assert (made.known, made.dumps, made.stopped) == (3, 2, False)
    assert convert(tmp_path / "in", to=tmp_path / "out", max_failures=2, retry_quarantine=True).stopped


def test_a_dump_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for dump in (SMALL, CUT):
        shutil.copytree(dump, tmp_path / "in" / dump.name)
    read = worker.ReadDump

    def touch(source: Any, **options: Any) -> xlamem.Dump:
        with open(source.members[0].uri, "ab") as file:
            file.write(b"\n")
        return read(source, **options)

    monkeypatch.setattr(worker, "ReadDump", touch)
    made = convert(tmp_path / "in", to=tmp_path / "out")
    assert (made.dumps, len(made.changed)) == (0, 2)
    assert stored(tmp_path / "out", "modules").num_rows == made.dumps


@pytest.mark.parametrize("merged", [False, True])
def test_what_has_changed_leaves_no_occurrence(tmp_path: Path, merged: bool) -> None:
    """Unless its former content is in the dataset."""
    out, labels, folder = tmp_path / "out", {"night": "1"}, tmp_path / "in"
    for dump in (SMALL, CUT):
        shutil.copytree(dump, folder / dump.name)
    (path,) = (folder / SMALL.name).glob("*-buffer-assignment.txt")
    original, touched = path.read_bytes(), []

    def touch(status: warehouse.Status) -> None:
        if status.phase == "convert" and not touched:
            touched.append(path.write_bytes(path.read_bytes() + b"\n"))
            assert not merged or warehouse.compact(out).merged

    def places() -> list[tuple[str, bool]]:
        rows = xlamem.Dataset(out).dumps().to_pylist()
        return sorted((Path(row["uri"]).parent.name, row["module_name"] is not None) for row in rows)

    convert(folder / CUT.name, to=out, labels=labels)
    made = convert(folder, to=out, labels=labels, progress=touch)
    assert (len(made.changed), made.dumps, made.occurrences) == (1, 0, 0)
    assert sorted(row["occurrences"] for row in stored(out, "runs").to_pylist()) == [0, 1]
    assert places() == [(CUT.name, True)]
    made = convert(folder, to=out, labels=labels)
    assert (made.changed, made.dumps, made.occurrences) == ([], 1, 1)
    path.write_bytes(original)
    convert(folder / SMALL.name, to=out, labels={"night": "2"})
    assert places() == [*[(SMALL.name, True)] * 2, (CUT.name, True)]
    touched.clear()
    made = convert(folder / SMALL.name, to=out, labels={"night": "3"}, progress=touch, reprocess=True)
    assert (len(made.changed), made.occurrences) == (1, 1)
    assert places() == [*[(SMALL.name, True)] * 3, (CUT.name, True)]
    assert on_disk(out) == {file.path for file in state(out).files()}


def test_what_is_in_quarantine_keeps_its_occurrence_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, folder, read = tmp_path / "out", tmp_path / "in", worker.ReadDump
    shutil.copytree(SMALL, folder)
    (path,) = folder.glob("*-buffer-assignment.txt")

    def trip(source: Any, **options: Any) -> xlamem.Dump:
        raise ZeroDivisionError("oh")

    def touch(status: warehouse.Status) -> None:
        if status.phase == "convert":
            path.write_bytes(path.read_bytes() + b"\n")

    monkeypatch.setattr(worker, "ReadDump", trip)
    assert len(convert(folder, to=out).failed) == 1
    monkeypatch.setattr(worker, "ReadDump", read)
    made = convert(folder, to=out, labels={"night": "2"}, retry_quarantine=True, progress=touch)
    assert (len(made.changed), made.occurrences) == (1, 1)
    assert stored(out, "occurrences")["content_id"].to_pylist() == [*state(out).quarantined] * 2


# -- wrong usage, and disks that fail ------------------------------------------------------------


@pytest.mark.parametrize(
    ("sources", "options"),
    [
        ([], {}),
        ([SMALL], {"tables": ["nope"]}),
        ([SMALL], {"tables": []}),
        (["/nowhere/at/all"], {}),
        ([SMALL], {"engine": "abacus"}),
        ([SMALL], {"workers": 0}),
        ([SMALL], {"top": -1}),
        ([SMALL], {"min_age": -1}),
        ([SMALL], {"partition_by": "night"}),
        ([SMALL], {"partition_by": "size", "labels": {"size": "1"}}),
        ([SMALL], {"labels": {"": "1"}}),
    ],
)
def test_wrong_usage_makes_nothing(tmp_path: Path, sources: list[Any], options: dict[str, Any]) -> None:
    with pytest.raises(xlamem.UsageError):
        convert(*sources, to=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_recent_dumps_are_left_to_the_next_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Until the newest file of a dump is old enough: XLA may still be writing it."""
    sources = tmp_path / "in"
    for name in TWO:
        shutil.copytree(DUMPS / name, sources / name)
    hour = 3600
    for path in sources.rglob("*.txt"):
        os.utime(path, (0, path.stat().st_mtime - 2 * hour))
    (file, *_) = (sources / TWO[0]).glob("*-buffer-assignment.txt")
    os.utime(file)
    dest = tmp_path / "out"
    arguments = ["convert", str(sources), "--to", str(dest), "--engine", "here", "--min-age"]
    assert main([*arguments, str(hour)]) == 0
    assert "1 dump modified less than --min-age ago, left for the next run" in capsys.readouterr().err
    assert len(state(dest).stored) == len(stored(dest, "occurrences")) == 1
    made = convert(sources, to=dest, min_age=hour)
    assert (made.found, made.recent, made.already_stored) == (1, 1, 1)
    os.utime(file, (0, file.stat().st_mtime - 2 * hour))
    made = convert(sources, to=dest, min_age=hour)
    assert (made.found, made.recent, made.dumps) == (2, 0, 1)
    os.utime(file)
    assert convert(sources, to=dest, min_age=0).already_stored == 2


def test_a_path_without_a_dump_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    made = convert(tmp_path / "none", SMALL, tmp_path / "*.nothing", to=tmp_path / "out")
    assert (made.dumps, made.empty) == (1, [str(tmp_path / "none"), str(tmp_path / "*.nothing")])
    (source,) = xlamem.find(SMALL)
    assert convert(source, tmp_path / "none", to=tmp_path / "out").empty == [str(tmp_path / "none")]
    for sources, message in (
        ([tmp_path / "none"], "no dump in .*/none: the directory is empty; .*; searched"),
        ([tmp_path / "none", tmp_path / "none"], "no dump in .*/none, .*/none: searched"),
        ([SMALL, tmp_path / "missing"], "missing"),
    ):
        with pytest.raises(xlamem.UsageError, match=message):
            convert(*sources, to=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(xlamem.OutputError, match="cannot write to"):
        convert(SMALL, to=tmp_path / "file")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was committed stays, nothing half-written does, and the next run completes."""
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)
    convert(DUMPS, to=tmp_path / "whole")
    put = worker._Worker.put
    calls = 0

    def full(self: Any, name: str, table: pa.Table) -> None:
        nonlocal calls
        calls += 1
        if calls == 60:
            raise OSError(28, "No space left on device", "x.parquet")
        put(self, name, table)

    monkeypatch.setattr(worker._Worker, "put", full)
    with pytest.raises(xlamem.OutputError, match="No space left on device"):
        convert(DUMPS, to=tmp_path / "out")
    monkeypatch.setattr(worker._Worker, "put", put)
    assert 0 < len(state(tmp_path / "out").stored) < len(state(tmp_path / "whole").stored)
    assert on_disk(tmp_path / "out") == {f.path for f in state(tmp_path / "out").files()}
    convert(DUMPS, to=tmp_path / "out")
    assert counts(tmp_path / "out") == counts(tmp_path / "whole")


# -- row groups ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_row_groups_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 4000)
    monkeypatch.setattr(parquet, "MIN_ROW_GROUP_BYTES", 1000)
    monkeypatch.setattr(parquet, "MAX_ROW_GROUPS", 3)
    monkeypatch.setattr(worker, "CHUNK_BYTES", 30_000)
    sources = sorted(DUMPS.glob("*-jaxlib-0.1*"))
    convert(*sources, to=tmp_path / "many")
    monkeypatch.undo()
    convert(*sources, to=tmp_path / "few")
    for name in ("values", "instructions", "positions"):
        assert stored(tmp_path / "many", name) == stored(tmp_path / "few", name)
        files = state(tmp_path / "many").files(name)
        assert len(files) > 1
        for file in files:
            with pq.ParquetFile(tmp_path / "many" / file.path) as data:
                assert data.num_row_groups <= 3
                sizes = [data.read_row_group(i).nbytes for i in range(data.num_row_groups)]
                rows = [data.metadata.row_group(i).num_rows for i in range(data.num_row_groups)]
                assert all(s <= 5000 or r == 1 for s, r in zip(sizes, rows, strict=True))


@pytest.mark.parametrize("name", every(4, ["tpu", "gpu", "cpu", "seeds"]))
def test_a_dump_that_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """However large a dump is, and whichever files are there: the rows are the same."""
    sources = sorted(p for p in DUMPS.iterdir() if p.name.startswith(name))[::6]
    alone = tmp_path / "alone"
    for i, path in enumerate(sorted(DUMPS.rglob(f"{name}*/**/*-values.txt"))):
        (alone / str(i)).mkdir(parents=True)
        shutil.copy(path, alone / str(i))
    sources += [alone] if alone.exists() else []
    convert(*sources, to=tmp_path / "whole")
    monkeypatch.setattr(worker, "STREAMED_BYTES", 0)
    monkeypatch.setattr(plan, "STREAMED_BYTES", 0)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 3000)
    monkeypatch.setattr(spill, "REGION_BYTES", 4096)
    made = convert(*sources, to=tmp_path / "pieces")
    assert not made.failed
    assert sum(bool(b.dumps) for b in state(tmp_path / "pieces").batches.values()) == made.dumps
    for table in schema.WAREHOUSE.keys() - {"runs"}:
        lineage = {"modules": LINEAGE, "occurrences": SEEN}.get(table, [])
        whole, pieces = (stored(tmp_path / x, table).drop_columns(lineage) for x in ("whole", "pieces"))
        assert sorted(map(repr, whole.to_pylist())) == sorted(map(repr, pieces.to_pylist())), table


def test_what_fails_midway_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STREAMED_BYTES", 0)
    monkeypatch.setattr(plan, "STREAMED_BYTES", 0)

    def fail(reader: Any, kind: str) -> Any:
        for piece in tables(reader, kind):
            if kind == "used values":
                raise xlamem.DumpError("x", "more")
            yield piece

    tables = streaming.PieceReader.tables
    monkeypatch.setattr(streaming.PieceReader, "tables", fail)
    made = convert(SMALL, to=tmp_path)
    assert [f.error for f in made.failed] == ["expected more"]
    assert {f.table for f in state(tmp_path).files()} == {"quarantine", "occurrences", "runs"}
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}


# -- other filesystems ---------------------------------------------------------------------------


def test_a_filesystem_of_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    dest = f"memory://{tmp_path.name}/out"
    made = xlamem.convert(DUMPS, to=dest)
    assert made.dumps
    assert xlamem.convert(DUMPS, to=dest).already_stored == made.dumps
    memory = fsspec.filesystem("memory")
    storage = Storage(dest)
    committed = {f.path for f in Ledger(storage).state.files()}
    there = {n for t in schema.WAREHOUSE for n, _ in storage.files(t)}
    assert there == committed
    with memory.open(storage.path(next(f.path for f in Ledger(storage).state.files("modules")))) as file:
        assert pq.read_table(file).num_rows == made.dumps
    # What a dead run left is swept by the next one.
    storage.write(f"values/schema=v1/{'0' * 32}-0.parquet", b"half")
    storage.write("values/schema=v1/mine.parquet", b"not ours")
    xlamem.convert(DUMPS, to=dest)
    assert {n for n, _ in storage.files("values")} - committed == {"values/schema=v1/mine.parquet"}
    assert not storage.files(activity.RUNS)


def test_uris_of_files(tmp_path: Path) -> None:
    made = xlamem.convert(SMALL.as_uri(), to=(tmp_path / "out").as_uri(), engine="here")
    assert made.dumps == 1
    assert state(tmp_path / "out").files("modules")


def test_a_bad_entry_that_is_gone_from_a_uri(tmp_path: Path) -> None:
    """Its place is a path, and what is searched is a URI."""
    link = tmp_path / "a b" / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"
    shutil.copytree(SMALL, link.parent)
    link.symlink_to(tmp_path / "nothing")
    assert len(convert(link.parent.as_uri(), to=tmp_path / "out").failed) == 1
    link.unlink()
    assert convert(link.parent.as_uri(), to=tmp_path / "out").failed == []
    assert xlamem.Dataset(tmp_path / "out")["quarantine"].count_rows() == 0


@pytest.mark.parametrize(("source", "dest"), [(SMALL, ""), ("", "out")])
def test_an_empty_path(source: Path | str, dest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(SMALL, tmp_path / "dump")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(xlamem.UsageError, match="a path must not be empty"):
        xlamem.convert(source, to=dest, engine="here")
    assert os.listdir() == ["dump"]


@pytest.mark.parametrize("name", ["a#b", "a%23b"])
def test_a_number_sign_in_the_uri_of_a_directory(name: str, tmp_path: Path) -> None:
    assert Storage(f"file://{tmp_path}/{name}").root == f"{tmp_path}/a#b"


@pytest.mark.parametrize("dest", ["file:///tmp/a b", "file://relative/a", "file:///tmp/a?b"])
def test_a_wrong_uri_of_a_directory(dest: str) -> None:
    with pytest.raises(xlamem.UsageError, match=f"{re.escape(dest)} is not the URI of a directory"):
        xlamem.convert(SMALL, to=dest, engine="here")


def test_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BATCH_BYTES", 100_000)
    commit = run.Run.commit

    def stop(self: Any, *args: Any) -> None:
        commit(self, *args)
        raise KeyboardInterrupt

    monkeypatch.setattr(run.Run, "commit", stop)
    with pytest.raises(warehouse.Interrupted) as caught:
        convert(DUMPS, to=tmp_path)
    assert caught.value.result.dumps == len(state(tmp_path).stored) > 0
    monkeypatch.undo()
    convert(DUMPS, to=tmp_path)
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}


def test_json_of_the_ledger_is_readable(everything: Path) -> None:
    begin, dumps, end = (json.loads(p.read_text()) for p in sorted((everything / "_ledger" / "entries").iterdir()))
    assert [begin["number"], dumps["number"], end["number"]] == [1, 2, 3]
    occurrences, run = begin["add"]
    assert occurrences["labels"] == {"night": "monday", "model": "all"}
    assert end["drop"] == [run["name"]]
    assert run["runs"] == end["add"][0]["runs"] == [occurrences["run_id"]]
    (batch,) = dumps["add"]
    assert set(batch["dumps"]) == set(stored(everything, "modules")["content_id"].to_pylist())


# -- errors of the system ------------------------------------------------------------------------


READ_SMALL = input_files._read_small


def failing(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception, calls: range = range(1000)) -> None:
    """From now on, reading a file fails with an error of the system at these calls."""
    seen = 0

    def fail(path: str) -> bytes | None:
        nonlocal seen
        if name in path:
            seen += 1
            if seen - 1 in calls:
                raise error
        return READ_SMALL(path)

    monkeypatch.setattr(input_files, "_read_small", fail)


EIO = OSError(5, "Input/output error")


@pytest.mark.parametrize("calls", [range(1000), range(1, 1000)], ids=["when it is identified", "when it is read"])
def test_an_error_of_the_system_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: range
) -> None:
    out = tmp_path / "out"
    for attempt in (1, 2):
        failing(monkeypatch, "tuple3.cpu_after_optimizations-buffer-assignment.txt", EIO, calls)
        made = convert(SMALL, CUT, to=out, check_content=True)
        assert (made.dumps, made.known, [f.kind for f in made.failed]) == (2 - attempt, 0, ["system"])
        (row,) = stored(out, "quarantine").to_pylist()
        assert (row["kind"], row["attempts"], row["run_id"]) == ("system", attempt, made.run_id)
        assert "Input/output error" in row["error"]
        assert xlamem.Dataset(out)._find_damage(["quarantine"]) is None
    failing(monkeypatch, "tuple3.cpu_after_optimizations-buffer-assignment.txt", PermissionError(13, "refused"), calls)
    convert(SMALL, CUT, to=out, check_content=True)
    (row,) = stored(out, "quarantine").to_pylist()
    assert (row["attempts"], "refused" in row["error"]) == (3, True)  # the last reason
    monkeypatch.undo()
    made = convert(SMALL, CUT, to=out)
    assert (made.dumps, made.already_stored, made.unreadable) == (1, 1, 0)
    assert stored(out, "quarantine").num_rows == 0
    assert not state(out).quarantined
    assert on_disk(out) == {f.path for f in state(out).files()}
    assert convert(SMALL, CUT, to=out).already_stored == 2


def test_a_stored_dump_that_cannot_be_read_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(SMALL, to=tmp_path)
    before = counts(tmp_path)
    failing(monkeypatch, "tuple3.cpu_after_optimizations-buffer-assignment.txt", EIO)
    assert len(convert(SMALL, to=tmp_path, check_content=True).failed) == 1
    assert counts(tmp_path) == {**before, "quarantine": 1}
    monkeypatch.undo()
    assert convert(SMALL, to=tmp_path).already_stored == 1
    assert counts(tmp_path) == before


def test_bad_entries_go_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to itself, a broken tar: told in every run, in quarantine once, and no longer when they are gone."""
    folder, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(SMALL, folder / "good")
    (folder / "loop").symlink_to("loop")
    (folder / "x.tar").write_bytes(b"no tar")
    for attempt in (1, 2):
        made = convert(folder, to=out)
        assert made.unreadable == 2
        assert (made.dumps, made.known) == (2 - attempt, attempt - 1)
        rows = {r["name"]: r for r in stored(out, "quarantine").to_pylist()}
        assert rows.keys() == {str(folder / "loop"), str(folder / "x.tar")}
        assert [rows[str(folder / n)]["attempts"] for n in ("loop", "x.tar")] == [attempt, 1]
    assert convert(folder, to=out, retry_quarantine=True).known == 0
    assert {r["attempts"] for r in stored(out, "quarantine").to_pylist()} == {3, 2}
    (folder / "x.tar").write_bytes(b"another")  # its content changed: so did what is wrong with it, or not
    (folder / "loop").unlink()
    convert(folder, to=out)
    assert [r["name"] for r in stored(out, "quarantine").to_pylist()] == [str(folder / "x.tar")]
    (folder / "x.tar").unlink()
    assert convert(tmp_path / "in", to=out).unreadable == 0
    assert stored(out, "quarantine").num_rows == 0
    assert on_disk(out) == {f.path for f in state(out).files()}


def test_paths_that_are_not_looked_at_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were modified just now, and those of another host."""
    folder, out = tmp_path / "in", tmp_path / "out"
    shutil.copytree(SMALL, folder / "good")
    path = broken(folder / "bad")
    (folder / "bad" / "loop").symlink_to("loop")
    for file in folder.rglob("*.*"):
        os.utime(file, (1e9, 1e9))

    def rows() -> list[tuple[str, str, int]]:
        found = stored(out, "quarantine").to_pylist()
        return sorted((row["host"], Path(row["name"]).name[:4], row["attempts"]) for row in found)

    monkeypatch.setattr(driver, "host_name", lambda: "a")
    convert(folder, to=out)
    os.utime(path)
    assert convert(folder, to=out, min_age=300).recent == 1
    assert rows() == [("a", "loop", 2), ("a", "modu", 1)]
    monkeypatch.setattr(driver, "host_name", lambda: "b")
    convert(folder, to=out)
    assert rows() == [("a", "loop", 2), ("a", "modu", 1), ("b", "loop", 1), ("b", "modu", 1)]
    assert warehouse.compact(out).merged
    shutil.rmtree(folder / "bad")
    convert(f"{tmp_path}/i*", to=out)
    assert rows() == [("a", "loop", 2), ("a", "modu", 1)]
    monkeypatch.setattr(driver, "host_name", lambda: "a")
    convert(folder, to=out)
    assert rows() == []


def test_what_the_content_is_at_fault_for_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = worker.ReadDump

    def trip(source: Any, **options: Any) -> Any:
        raise xlamem.DumpError("f.txt", "a line")

    monkeypatch.setattr(worker, "ReadDump", trip)
    assert [f.kind for f in convert(SMALL, to=tmp_path).failed] == ["content"]
    monkeypatch.setattr(worker, "ReadDump", read)
    assert convert(SMALL, to=tmp_path).known == 1
    monkeypatch.setattr(xlamem, "__version__", "99")  # another version may know better
    assert convert(SMALL, to=tmp_path).dumps == 1
    assert stored(tmp_path, "quarantine").num_rows == 0
    monkeypatch.setattr(worker, "ReadDump", trip)
    convert(CUT, to=tmp_path)
    monkeypatch.setattr(worker, "ReadDump", read)
    assert convert(CUT, to=tmp_path).known == 1
    assert convert(CUT, to=tmp_path, retry_quarantine=True).dumps == 1
    assert stored(tmp_path, "quarantine").num_rows == 0


def test_a_batch_that_is_replaced_is_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the dumps that are written again together, only the one at fault is blamed."""
    convert(DUMPS, to=tmp_path)
    before, ids = counts(tmp_path), set(state(tmp_path).stored)
    derive = worker.derive
    poison = convert_id(SMALL)

    def trip(chunk: Any, top: int) -> Any:
        if poison in chunk.ids:
            raise ZeroDivisionError("oh")
        return derive(chunk, top)

    monkeypatch.setattr(worker, "derive", trip)
    made = convert(DUMPS, to=tmp_path, reprocess=True)
    assert [f.content_id for f in made.failed] == [poison]
    assert made.dumps == len(ids) - 1
    assert counts(tmp_path) == {**before, "quarantine": 1}
    monkeypatch.undo()
    assert convert(DUMPS, to=tmp_path, reprocess=True).dumps == len(ids)
    assert counts(tmp_path) == before
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}


def test_an_old_ledger_with_a_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts nothing, and its batch holds dumps and failures together."""
    read = worker.ReadDump

    def trip(source: Any, **options: Any) -> Any:
        if "tuple3" in source.members[0].uri:
            raise xlamem.DumpError("f.txt", "a line")
        return read(source, **options)

    monkeypatch.setattr(worker, "ReadDump", trip)
    convert(SMALL, CUT, to=tmp_path)
    monkeypatch.undo()
    path = tmp_path / "_ledger" / "entries" / f"{2:012}.json"
    entry = json.loads(path.read_text())
    good, bad = entry["add"]
    for later in ("attempts", "system", "places", "labels", "runs"):
        del good[later]
    (file,) = bad["files"]
    spec = [f.name for f in schema.QUARANTINE.warehouse if f.name not in ("kind", "attempts")]
    table = pq.read_table(tmp_path / file["path"], partitioning=None).select(spec)
    pq.write_table(table, tmp_path / file["path"], compression="zstd")
    file |= {"bytes": (tmp_path / file["path"]).stat().st_size, "columns": 0}
    entry["add"] = [{**good, "quarantined": bad["quarantined"], "files": [*good["files"], file]}]
    path.write_text(json.dumps(entry))
    assert xlamem.Dataset(tmp_path)["quarantine"].to_table()["kind"].to_pylist() == [None]
    made = convert(SMALL, CUT, to=tmp_path)
    assert (made.known, made.already_stored) == (1, 1)
    made = convert(SMALL, CUT, to=tmp_path, retry_quarantine=True)
    assert (made.dumps, made.already_stored, made.unreadable) == (1, 1, 0)
    assert stored(tmp_path, "quarantine").num_rows == 0
    assert set(stored(tmp_path, "modules")["content_id"].to_pylist()) == {convert_id(SMALL), convert_id(CUT)}
    assert on_disk(tmp_path) == {f.path for f in state(tmp_path).files()}


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    shutil.copytree(SMALL, folder)
    broken(Path(folder) / "bad")
    made = convert(tmp_path, to=tmp_path / "out")
    assert (made.dumps, made.unreadable) == (1, 1)
    json.dumps(made.failed[0].uri, ensure_ascii=False).encode()
    assert all(r"/caf\xe9/" in uri for uri in stored(tmp_path / "out", "files")["uri"].to_pylist())
    assert [r"/caf\xe9/bad/" in uri for uri in stored(tmp_path / "out", "quarantine")["uri"].to_pylist()] == [True]
    with pytest.raises(xlamem.UsageError, match=r"a label must be UTF-8: \\xff"):
        convert(SMALL, to=tmp_path / "out", labels={"a": os.fsdecode(b"\xff")})
