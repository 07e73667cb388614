"""Every compile is accounted for: where a content was found, with which labels, by which run."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS
from test_convert import CUT, SMALL, broken, convert, on_disk, state, stored

import xlamem
from xlamem import schema, warehouse
from xlamem.cli import main
from xlamem.input import names
from xlamem.input.find import Source
from xlamem.input.member import Member
from xlamem.warehouse import driver, record, run, worker
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.identity import content_id
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.occurrences import occurrence_table, read_occurrences, with_occurrences
from xlamem.warehouse.storage import Storage
from xlamem.warehouse.task import DumpInput, Options

STREAM = DUMPS / "tpu-libtpu-0.0.50.1-v5e-stdout"


def occurrences(dest: Path) -> list[dict[str, Any]]:
    return list(stored(dest, "occurrences").to_pylist())


def runs(dest: Path) -> dict[str, dict[str, Any]]:
    return {r["run_id"]: r for r in stored(dest, "runs").to_pylist()}


def renumbered(folder: Path, number: int, stamp: str = "") -> Path:
    """The small dump with another number and timestamp in its names."""
    folder.mkdir(parents=True)
    for path in SMALL.glob("module_0001.*"):
        shutil.copy(path, folder / path.name.replace("module_0001", f"{stamp}module_{number:04}"))
    return folder


# ---- contents


@pytest.mark.parametrize(
    ("stem", "same"),
    [
        ("module_0001.jit_f.cpu_after_optimizations", True),
        ("module_0417.jit_f.cpu_after_optimizations", True),
        ("1738000000000000.module_0001.jit_f.cpu_after_optimizations", True),
        ("module_0001.jit_g.cpu_after_optimizations", False),
        ("module_0001.jit_f.sm_9.0a_gpu_after_optimizations", False),
        ("module_0001.jit_f.sm_8.0_gpu_after_optimizations", False),
        ("module_0001.jit_f.cl_1.after_optimizations", False),
        ("module_0001.jit_f.cl_2.after_optimizations", False),
    ],
)
def test_what_a_name_says_of_a_content(stem: str, same: bool) -> None:
    first = names.describe("module_0000.jit_f.cpu_after_optimizations", "hlo")
    other = names.describe(stem, "hlo")
    assert (content_id("x", first) == content_id("x", other)) is same
    assert content_id("x", other) != content_id("y", other)
    assert content_id("x", other) != content_id("x", None)


def test_every_place_has_a_row(tmp_path: Path) -> None:
    """In another folder, with another number, compressed into an archive, twice in one stream: stored once."""
    places = tmp_path / "in"
    renumbered(places / "a", 1)
    renumbered(places / "b", 17, "1738000000000000.")
    shutil.make_archive(str(places / "c"), "zip", places / "a")
    (stream,) = STREAM.glob("stdout.txt")
    (places / "d").mkdir()
    (places / "d" / "stdout.txt").write_bytes(stream.read_bytes() * 2)
    out = tmp_path / "out"
    made = convert(places, to=out, labels={"night": "1"})
    assert (made.found, made.dumps, made.duplicates, made.occurrences) == (5, 2, 3, 5)
    rows = sorted(occurrences(out), key=lambda r: (r["uri"], r["offset"]))
    small, streamed = rows[:3], rows[3:]
    assert len({r["content_id"] for r in small}) == len({r["content_id"] for r in streamed}) == 1
    assert [r["module_id"] for r in small] == [1, 17, 1]
    assert [r["timestamp_us"] for r in small] == [None, 1738000000000000, None]
    assert [os.path.relpath(r["uri"], places).split(".zip::")[0] for r in small] == [
        "a/module_0001.jit_m_tuple3.cpu_after_optimizations-buffer-assignment.txt",
        "b/1738000000000000.module_0017.jit_m_tuple3.cpu_after_optimizations-buffer-assignment.txt",
        "c",
    ]
    assert small[1]["stem"] == "1738000000000000.module_0017.jit_m_tuple3.cpu_after_optimizations"
    assert small[1]["members"].split(",") == sorted(p.name for p in (places / "b").glob("*.txt"))
    assert streamed[0]["uri"] == streamed[1]["uri"]
    assert streamed[0]["offset"] < streamed[1]["offset"]
    assert {(r["run_id"], r["seen_at"]) for r in rows} == {(made.run_id, runs(out)[made.run_id]["started_at"])}
    # What is stored is what is at the first place.
    (module,) = (r for r in stored(out, "modules").to_pylist() if r["module_name"] == "jit_m_tuple3")
    assert (module["module_id"], module["timestamp_us"]) == (1, None)
    assert xlamem.Dataset(out).dumps().num_rows == 5


def test_other_labels_are_another_occurrence(tmp_path: Path) -> None:
    for labels, new in (({}, 1), ({"night": "1"}, 1), ({"night": "2"}, 1), ({"night": "1", "a": "b"}, 1),
                        ({"night": "1"}, 0), ({}, 0)):  # fmt: skip
        assert convert(SMALL, to=tmp_path, labels=labels).occurrences == new
    assert len(occurrences(tmp_path)) == 4
    dumps = xlamem.Dataset(tmp_path).dumps().to_pylist()
    found = {(r["label_night"], r["label_a"]) for r in dumps}
    assert found == {(None, None), ("1", None), ("2", None), ("1", "b")}
    assert len(state(tmp_path).files("modules")) == 1


def test_labels_of_runs_in_one_file(tmp_path: Path) -> None:
    """Merged occurrences are known by the labels of their own run."""
    for night, source in (("1", SMALL), ("2", STREAM)):
        convert(source, to=tmp_path, labels={"night": night})
    warehouse.compact(tmp_path)
    assert len(state(tmp_path).files("occurrences")) == 1
    for night, new in (("1", 0), ("2", 1), ("2", 0)):
        assert convert(SMALL, to=tmp_path, labels={"night": night}).occurrences == new


def test_more_labels_of_runs_in_one_file(tmp_path: Path) -> None:
    """Not by those of a run that has others too."""
    for labels, source in (({"night": "1"}, STREAM), ({"night": "1", "a": "b"}, SMALL)):
        convert(source, to=tmp_path, labels=labels)
    warehouse.compact(tmp_path)
    assert len(state(tmp_path).files("occurrences")) == 1
    for labels, new in (({"night": "1", "a": "b"}, 0), ({"night": "1"}, 1), ({}, 1)):
        assert convert(SMALL, to=tmp_path, labels=labels).occurrences == new


def test_another_host_is_another_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of a file is that of a host. A URI is the same everywhere."""
    fsspec = pytest.importorskip("fsspec")
    memory, folder = fsspec.filesystem("memory"), f"/{tmp_path.name}/in"
    memory.put(str(SMALL), folder, recursive=True)
    for source, places in ((SMALL, 2), (f"memory:/{folder}", 1)):
        dest = tmp_path / str(places)
        for host in ("one", "two", "one"):
            monkeypatch.setattr(driver, "host_name", lambda host=host: host)
            convert(source, to=dest)
        rows = occurrences(dest)
        assert len(rows) == places
        found = xlamem.Dataset(dest).sql("SELECT count(DISTINCT host) AS hosts, min(seen_at) AS since FROM dumps")
        assert found.to_pylist() == [{"hosts": places, "since": min(r["seen_at"] for r in rows)}]


def test_what_cannot_be_read_was_seen_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Any, **options: Any) -> Any:
        raise xlamem.DumpError("f.txt", "a line")

    bad = broken(tmp_path / "in")
    monkeypatch.setattr(worker, "ReadDump", fail)
    made = convert(SMALL, bad, to=tmp_path / "out")
    assert (made.dumps, made.occurrences, len(made.failed)) == (0, 1, 2)
    (row,) = xlamem.Dataset(tmp_path / "out").dumps().to_pylist()
    assert row["tool_version"] is row["module_name"] is None
    assert row["content_id"] in {f.content_id for f in made.failed}
    assert xlamem.Dataset(tmp_path / "out").sql("SELECT count(*) AS n FROM dumps").to_pylist() == [{"n": 1}]
    monkeypatch.undo()
    again = convert(SMALL, to=tmp_path / "out", retry_quarantine=True)
    assert (again.dumps, again.occurrences) == (1, 0)
    (row,) = xlamem.Dataset(tmp_path / "out").dumps().to_pylist()
    assert (row["module_name"], row["run_id"]) == ("jit_m_tuple3", made.run_id)


# ---- runs


def test_a_run_is_described(tmp_path: Path) -> None:
    bad = broken(tmp_path / "in")
    labels = {"night": "1", "commit": "a"}
    made = convert(SMALL, CUT, bad, to=tmp_path / "out", labels=labels, partition_by="night", tables=["values"], top=3)
    (row,) = runs(tmp_path / "out").values()
    assert row["outcome"] == "finished"
    assert row["started_at"] < row["finished_at"]
    assert (row["tool_version"], row["schema_version"]) == (xlamem.__version__, schema.VERSION)
    for column in ("run_id", "found", "dumps", "already_stored", "duplicates", "occurrences", "known", "files",
                   "rows", "bytes", "text_bytes"):  # fmt: skip
        assert row[column] == getattr(made, column), column
    assert (row["failed"], row["changed"], row["truncated"]) == (1, 0, 1)
    assert 0 < row["seconds"] <= made.seconds
    options = json.loads(row["options"])
    assert options["sources"] == [str(SMALL), str(CUT), str(bad)]
    assert (options["partition_by"], options["top"], options["engine"]) == (["night"], 3, "here")
    assert {"values", "occurrences"} < {*options["tables"]}
    found = {r["key"]: r["value"] for r in stored(tmp_path / "out", "labels").to_pylist() if r["run_id"] == made.run_id}
    assert found == labels


def test_outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(tmp_path / "in" / "a")
    broken(tmp_path / "in" / "b")
    stopped = convert(tmp_path / "in", to=tmp_path / "out", max_failures=1)

    def interrupt(self: Any, *args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run.Run, "commit", interrupt)
    with pytest.raises(warehouse.Interrupted) as caught:
        convert(SMALL, to=tmp_path / "out")
    result = caught.value.result
    assert (result.found, result.empty, result.recent) == (1, [], 0)

    def fail(self: Any, *args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run.Run, "commit", fail)
    with pytest.raises(OSError, match="No space"):
        convert(SMALL, to=tmp_path / "out")
    monkeypatch.undo()
    found = runs(tmp_path / "out")
    assert {r["outcome"] for r in found.values()} == {"stopped", "interrupted", None}
    assert found[stopped.run_id]["outcome"] == "stopped"
    assert found[caught.value.result.run_id]["outcome"] == "interrupted"
    (killed,) = (r for r in found.values() if r["outcome"] is None)
    assert killed["finished_at"] is killed["dumps"] is None
    # Seen by the first of them, and converted by none.
    assert [r["run_id"] for r in occurrences(tmp_path / "out")] == [caught.value.result.run_id]
    assert convert(SMALL, to=tmp_path / "out").occurrences == 0
    assert on_disk(tmp_path / "out") == {f.path for f in state(tmp_path / "out").files()}


@pytest.mark.parametrize("committed", [False, True])
def test_interrupted_while_the_occurrences_are_committed(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Storage.create

    def interrupted(self: Storage, name: str, data: bytes) -> bool:
        if committed:
            create(self, name, data)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(Storage, "create", interrupted)
    with pytest.raises(warehouse.Interrupted) as caught:
        convert(SMALL, to=tmp_path / "out")
    if committed:
        assert runs(tmp_path / "out")[caught.value.result.run_id]["outcome"] == "interrupted"
    assert convert(SMALL, to=tmp_path / "out").dumps == 1
    assert on_disk(tmp_path / "out") == {f.path for f in state(tmp_path / "out").files()}


# ---- races


def test_both_of_two_converters_have_seen_it(tmp_path: Path) -> None:
    """Contents once, an occurrence for each place and night, however the two meet."""
    sources = [renumbered(tmp_path / "in" / str(i), i) for i in range(4)]
    made: list[warehouse.Converted] = []

    def work(night: str, *places: Path) -> None:
        made.append(convert(*places, CUT, to=tmp_path / "out", labels={"night": night}))

    works = [("1", *sources[:3]), ("1", *sources[1:]), ("2", *sources), ("2", sources[0])]
    threads = [threading.Thread(target=work, args=args) for args in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(m.dumps for m in made) == len(stored(tmp_path / "out", "modules")) == 2
    rows = occurrences(tmp_path / "out")
    labels = {r["run_id"]: r["value"] for r in stored(tmp_path / "out", "labels").to_pylist()}
    seen = [(labels[r["run_id"]], Path(r["uri"]).parent.name) for r in rows]
    assert sorted(seen) == sorted((n, f) for n in "12" for f in ("0", "1", "2", "3", CUT.name))
    assert len(runs(tmp_path / "out")) == 4
    assert sum(m.occurrences for m in made) == len(rows)
    assert on_disk(tmp_path / "out") == {f.path for f in state(tmp_path / "out").files()}


def test_another_run_records_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look at what is recorded and the commit: what the other one has recorded is left out."""
    one, two, three = (renumbered(tmp_path / "in" / str(i), i) for i in range(3))
    commit, others = Ledger.commit_occurrences, [(one, "same"), (three, "other"), (two, "same")]

    def slow(self: Ledger, *batches: Any, **options: Any) -> bool:
        if others:
            source, night = others.pop(0)
            convert(source, to=tmp_path / "out", labels={"night": night})
        return commit(self, *batches, **options)

    monkeypatch.setattr(record.Ledger, "commit_occurrences", slow)
    made = convert(one, two, to=tmp_path / "out", labels={"night": "same"})
    assert others == []
    rows = occurrences(tmp_path / "out")
    assert len(rows) == 3
    assert made.occurrences == sum(r["run_id"] == made.run_id for r in rows) == 0
    assert on_disk(tmp_path / "out") == {f.path for f in state(tmp_path / "out").files()}


# ---- passwords


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("s3://KEY:SECRET@bucket/d@1?region=x", "s3://bucket/d@1?region=x"), ("S3A://KEY@bucket/d", "S3A://bucket/d"),
        ("sftp://user:p@ss@host/d", "sftp://user@host/d"), ("sftp://user@host/d", "sftp://user@host/d"),
        ("abfs://container@account.dfs.core.windows.net/x", "abfs://container@account.dfs.core.windows.net/x"),
        ("zip://a::s3://KEY:SECRET@bucket/x.zip", "zip://a::s3://bucket/x.zip"),
        ("/a:b@c/d", "/a:b@c/d"), ("s3://bucket/a:b@c", "s3://bucket/a:b@c"),
    ],
)  # fmt: skip
def test_places_without_passwords(uri: str, place: str) -> None:
    error = xlamem.DumpError(uri, f"a server that answers ({uri})")
    assert (error.path, Member("", uri).location) == (place, place)
    assert str(error) == f"{place}: expected a server that answers ({place})"
    assert str(xlamem.UsageError(f"{uri} does not exist")) == f"{place} does not exist"


def test_no_password_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    secret = f"memory://user:SECRET@{tmp_path.name}"
    for path in [*SMALL.iterdir(), broken(tmp_path / "in")]:
        memory.pipe_file(f"{secret}/in/{path.name}", path.read_bytes())
    out = tmp_path / "out"
    assert main(["convert", f"{secret}/in", "--to", str(out)]) == 3
    assert len(stored(out, "quarantine")) == 1
    assert main(["convert", f"{secret}/none", "--to", str(out)]) == 2
    assert main(["convert", str(SMALL), "--to", f"{secret}/out"]) == 0
    printed = "".join(capsys.readouterr())
    assert f"memory://user@{tmp_path.name}/none does not exist" in printed
    assert f"to memory://user@{tmp_path.name}/out" in printed
    assert "SECRET" not in printed + repr(xlamem.Dataset(f"{secret}/out"))
    assert "SECRET" not in str([stored(out, table).to_pylist() for table in schema.WAREHOUSE])
    assert not any(b"SECRET" in path.read_bytes() for path in out.rglob("*") if path.is_file())
    # A path that failed is found again under its place.
    memory.rm(f"{secret}/in", recursive=True)
    for path in SMALL.iterdir():
        memory.pipe_file(f"{secret}/in/{path.name}", path.read_bytes())
    assert main(["convert", f"{secret}/in", "--to", str(out)]) == 0


def test_the_row_of_a_dump_with_several_members() -> None:
    """Its place is that of its first member; all have a name there. The same place is recorded once."""
    members = (
        Member("buffer-assignment", "/d/log", "a-buffer-assignment.txt", "plain", 70, 80),
        Member("live-range", "/d/log", "a-live-range.txt", "plain", 9, 50),
        Member("hlo", "/d/log", "a.txt", "plain", 90, None),
    )
    source = Source("a", members, module_id=3, module_name="m", timestamp_us=11, changelist=5)
    when = datetime(2026, 1, 2, tzinfo=UTC)
    options = Options("out", (), run_id="r", host="h", started=when, tool_version="v")
    dumps = [DumpInput("id", source, 1, "hash"), DumpInput("id", replace(source, name="b"), 1)]
    dumps.append(DumpInput("id", replace(source, members=members[1:2]), 1))
    expected = {
        "content_id": "id", "uri": "/d/log", "stem": "a", "members": "a-buffer-assignment.txt,a-live-range.txt,a.txt",
        "offset": 70, "module_id": 3, "timestamp_us": 11, "run_id": "r", "host": "h", "seen_at": when,
    }  # fmt: skip
    found = occurrence_table(dumps, options).to_pylist()
    assert found == [expected | {"offset": 9, "members": "a-live-range.txt"}, expected]
    assert occurrence_table([], options).to_pylist() == []


def test_a_batch_with_fewer_occurrences_is_another_one(tmp_path: Path) -> None:
    """Whoever replaces the first one meanwhile sees that it is gone. The other files are the same."""
    storage = Storage(tmp_path)
    members = (Member("hlo", "/d/a.txt"), Member("hlo", "/d/b.txt"))
    options = Options("out", (), run_id="r", host="h", started=datetime(2026, 1, 2, tzinfo=UTC))
    rows = occurrence_table([DumpInput("id", Source(m.uri, (m,)), 1) for m in members], options)
    others = (File("values", "values/v2/night=1/old-00000.parquet", 5, 50), File("runs", "runs/v2/r.parquet", 1, 9))
    first = (File("occurrences", "occurrences/v2/night=1/old-00000.parquet", 2, 70),)
    old = Batch("old", ("id",), (), (*first, *others), "v", 2, "r", labels={"night": "1"}, runs=("r",))
    found = [with_occurrences(storage, old, part, "s") for part in (rows, rows[:1], rows[1:], rows[:1])]
    names = [batch.name for batch in found]
    assert len({*names, "old"}) == 4
    assert names[1] == names[3]
    for batch, part in zip(found, (rows, rows[:1], rows[1:]), strict=False):
        assert replace(batch, name="old", files=old.files) == old
        (new,) = batch.table_files("occurrences")
        assert new.rows == len(part)
        assert [file for file in batch.files if file is not new] == [*others]
        assert os.path.basename(new.path).startswith((batch.name, f".{batch.name}"))
        assert os.path.dirname(new.path) == "occurrences/v2/night=1"
        assert read_occurrences(storage, [new]).to_pylist() == part.to_pylist()
