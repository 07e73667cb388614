"""The ledger: claims, files that get their names, checkpoints, entries that are folded."""

from __future__ import annotations

import json
import random
import shutil
import threading
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import v1_dataset
from conftest import DUMPS, HERE
from kills import killed
from test_convert import convert, counts, on_disk, state, stored

import xlamem
from xlamem import schema, warehouse
from xlamem.warehouse import checkpoints, ledger, segments
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.state import State
from xlamem.warehouse.storage import Storage


def batch(name: str, *ids: str) -> Batch:
    """A batch with dumps, whose content_ids end in the given digits."""
    return Batch(name * 32, tuple(map(dump, ids)), (), (), "1", schema.VERSION, "run")


def dump(digits: str) -> str:
    return f"{digits:0>32}"


def test_a_claim_is_exclusive(tmp_path: Path) -> None:
    first, second = Ledger(Storage(tmp_path)), Ledger(Storage(tmp_path))
    assert first.commit(batch("a", "1", "2")) == set()
    assert second.commit(batch("b", "2", "3")) == {dump("2")}
    assert second.commit(batch("b", "3")) == set()
    assert first.commit(batch("c", "1", "2"), remove=("a" * 32,)) == set()
    gone = second.commit(batch("d", "1", "2"), remove=("a" * 32,))
    assert gone == {dump("1"), dump("2")}  # what it would replace is gone
    assert second.commit(batch("d"), remove=("a" * 32,)) == {"a" * 32}
    assert first.commit(replace(batch("e"), runs=("r", "s"))) == set()
    assert second.commit(replace(batch("f"), runs=("s", "t"))) == {"s"}
    assert second.commit(replace(batch("f"), runs=("s", "t")), remove=("e" * 32,)) == set()
    assert Ledger(Storage(tmp_path)).state.stored == {dump("1"): "c" * 32, dump("2"): "c" * 32, dump("3"): "b" * 32}


def test_what_two_batches_have_is_that_of_the_later_one() -> None:
    state = State()
    for ordinal, name in enumerate("ab", 1):
        state.add(replace(batch(name), quarantined=(dump("1"),), runs=("r",)), ordinal)
    state.remove("a" * 32)
    assert state.quarantined == {dump("1"): "b" * 32}
    assert state.runs == {"r": "b" * 32}
    state.remove("b" * 32)
    assert (state.quarantined, state.runs) == ({}, {})


def test_what_hides_files_of_version_1_goes_with_the_last_of_them() -> None:
    state = State(hidden={"x"})
    for ordinal, name in enumerate("abc", 1):
        state.add(replace(batch(name), schema_version=schema.VERSION if name == "c" else 1), ordinal)
    hidden = []
    for name in "acb":
        state.remove(name * 32)
        hidden.append({*state.hidden})
    assert hidden == [{"x"}, {"x"}, set()]


def test_what_an_entry_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions read it, except a merge: they would take its dumps for missing ones."""
    monkeypatch.setattr(ledger.time, "time", lambda: 12.5)
    log = Ledger(Storage(tmp_path))
    a, b = batch("a", "1"), batch("b", "2")
    log.commit(a, b)
    log.commit(remove=(a.name,))
    merged = replace(batch("c"), merges=(b.name,))
    assert log.commit_merged(merged, {b.name: log.state.ordinal(b.name)})
    found = [json.loads((tmp_path / checkpoints.entry_name(n)).read_text()) for n in (1, 2, 3)]
    same: Any = {"at": 12.5, "hide": []}
    wanted = [
        {"format": 2, "number": 1, "drop": [], "add": [a.to_json(), b.to_json()], **same},
        {"format": 2, "number": 2, "drop": [a.name], "add": [], **same},
        {"format": 3, "number": 3, "drop": [], "merge": [merged.to_json()], **same},
    ]
    assert found == json.loads(json.dumps(wanted))


def test_a_batch_replaces_one_of_the_same_name(tmp_path: Path) -> None:
    """Nothing of the other one remains, although the entry does not remove it."""
    found = Ledger(Storage(tmp_path))
    for kept in "12":
        again = replace(batch("a", kept), quarantined=(dump(f"a{kept}"),), runs=(f"r{kept}",))
        assert found.commit(again) == set()
        for read in (found.state, Ledger(Storage(tmp_path)).state):
            assert read.stored == {dump(kept): "a" * 32}
            assert {*read.stored} == {dump(kept)}
            assert read.quarantined == {dump(f"a{kept}"): "a" * 32}
            assert read.runs == {f"r{kept}": "a" * 32}
            assert len(read.names) == len(read.batches) == 1


def test_a_lost_race_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a batch that another run has claimed meanwhile are not found by a glob; theirs are not touched."""
    storage = Storage(tmp_path)
    mine, theirs = Ledger(storage), Ledger(storage)
    files = []
    for data in (b"mine", b"theirs"):
        name = storage.staged("values/v2/x-00000.parquet")
        with storage.open_staged(name) as stream:
            stream.write(data)
        files.append((File("values", name, 1, len(data)),))
    create = Storage.create

    def slow(self: Storage, name: str, data: bytes) -> bool:
        monkeypatch.setattr(Storage, "create", create)
        assert theirs.commit(replace(batch("a", "1"), files=files[1])) == set()
        return create(self, name, data)

    monkeypatch.setattr(Storage, "create", slow)
    assert mine.commit(replace(batch("a", "1"), files=files[0])) == {dump("1")}
    (file,) = Ledger(storage).state.files()
    assert (tmp_path / file.path).read_bytes() == b"theirs"
    assert [str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.parquet")] == [file.path]


def test_claims_of_many_threads(tmp_path: Path) -> None:
    won: list[str] = []

    def claim(who: int) -> None:
        own = Ledger(Storage(tmp_path))
        won.extend(str(i) for i in range(30) if not own.commit(Batch(f"{who}-{i}", (str(i),), (), (), "1", 2, "r")))

    threads = [threading.Thread(target=claim, args=(w,)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won, key=int) == [str(i) for i in range(30)]
    assert Ledger(Storage(tmp_path)).state.number == 30


def test_files_that_another_run_commits_at_the_end_are_kept(tmp_path: Path) -> None:
    """It may commit and end between the last time that the ledger is read and the deletion of stray files."""
    paths = [f"values/v2/{digit * 32}-00000.parquet" for digit in "ab"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")
    own, other = Ledger(Storage(tmp_path)), Ledger(Storage(tmp_path))

    def is_only() -> bool:
        assert other.commit(replace(batch("a", "1"), files=(File("values", paths[0], 1, 1),))) == set()
        return True

    assert own.delete_uncommitted(is_only) == paths[1:]
    assert [(tmp_path / path).exists() for path in paths] == [True, False]


def test_which_files_are_left_by_dead_runs(tmp_path: Path) -> None:
    """Those with names that a run generates, unless an entry names them; what users put there stays."""
    name = "0123456789abcdef" * 2
    strays = [
        f"values/v2/{name}-00000.parquet", f"values/v2/night=1/{name}-00012-89abcdef.parquet",
        f"modules/v2/.{name}-00000.parquet.89abcdef.tmp", "_ledger/entries/.000000000001.json.89abcdef.tmp",
        f"_ledger/careful/{name}",
    ]  # fmt: skip
    kept = [
        f"values/v2/{name}-00001.parquet", "values/v2/mine.parquet", f"values/v2/{name}.txt",
        f"values/v2/{name}-00000-89abcdef0.parquet", f"values/v2/{name[1:]}-00000.parquet",
        f"mine/{name}-00000.parquet", "_ledger/registered/delta.json", "_ledger/mine.tmp", f"_ledger/{name}",
        "values/v2/.hidden",
    ]  # fmt: skip
    storage = Storage(tmp_path)
    for path in (*strays, *kept):
        storage.write(path, b"x")
    own = Ledger(storage)
    assert own.commit(replace(batch("a", "1"), files=(File("values", kept[0], 1, 1),))) == set()
    assert own.delete_uncommitted(lambda: False) == []
    assert sorted(own.delete_uncommitted(lambda: True)) == sorted(strays)
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert there == {*kept, "_ledger/entries/000000000001.json"}


# -- checkpoints


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints after every third entry, and entries are deleted at once."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 3)
    monkeypatch.setattr(checkpoints, "FOLD_SECONDS", -1)
    monkeypatch.setattr(segments, "ROW_GROUP_ROWS", 4)


def names(dest: Path) -> list[str]:
    """The checkpoints, oldest first."""
    return sorted(p.name for p in (dest / checkpoints.FOLDER).glob("*.json.z"))


def entries(dest: Path) -> list[str]:
    return sorted(p.name for p in (dest / checkpoints.ENTRIES).iterdir())


def same(a: State, b: State) -> bool:
    return a == b and dict(a.stored) == dict(b.stored) and a.files() == b.files()


def test_checkpoints(tmp_path: Path, often: None) -> None:
    log = Ledger(Storage(tmp_path))
    for i in range(8):
        log.commit(batch("abcdefgh"[i], str(i)))
        log.checkpoint()
    log.commit(batch("z", "0", "9"), remove=("a" * 32,))
    assert same(Ledger(Storage(tmp_path)).state, log.state)
    assert names(tmp_path) == [f"{n:012}.json.z" for n in (3, 6)]
    (tmp_path / checkpoints.FOLDER / names(tmp_path)[-1]).write_bytes(b"half")
    assert same(Ledger(Storage(tmp_path)).state, log.state)


def run(dest: Path, *batches: Batch, **options: Any) -> State:
    """Commit some batches in a run of its own, as a converter does."""
    log = Ledger(Storage(dest))
    with log.run("run"):
        for added in batches:
            assert log.commit(added, **options) == set()
        log.checkpoint()
    return log.state


def test_old_entries_are_folded(tmp_path: Path, often: None) -> None:
    """Every claim and every batch remains, and the entries before the last checkpoint but one are deleted."""
    before = State()
    for i in range(20):
        name, files = f"{i:032x}", (File("values", f"values/{i}.parquet", i, i),)
        found = run(tmp_path, replace(batch("a", f"{i:x}", f"{i + 100:x}"), name=name, files=files))
        assert same(state(tmp_path), found)
        assert len(found.batches) == len(before.batches) + 1
        before = found
    assert len(entries(tmp_path)) < 10
    assert len(names(tmp_path)) == 2
    assert len([*(tmp_path / checkpoints.FOLDER).iterdir()]) < 15
    assert dict(before.stored) == {dump(f"{i + j:x}"): f"{i:032x}" for i in range(20) for j in (0, 100)}
    assert before.stored.starting_with("0" * 30 + "7") == [dump(f"{i:x}") for i in range(112, 120)]
    late = Ledger(Storage(tmp_path))
    assert late.commit(batch("b", "3", "fff")) == {dump("3")}
    assert late.commit(batch("b", "fff")) == set()


@pytest.mark.parametrize(("seen", "is_read"), [([False, True], True), ([False, False, True], False)])
def test_a_checkpoint_that_is_replaced_while_it_is_read(seen: list[bool], is_read: bool, tmp_path: Path) -> None:
    """It is looked for once more. Entries were deleted, so there must be one."""
    log: Any = checkpoints.Checkpoints(Storage(tmp_path))
    there = iter(seen)
    log._is_folded = lambda: True
    log._state = lambda checkpoint: checkpoint
    log._readable = lambda: iter(["newer"] if next(there) else [])
    if is_read:
        assert log.read() == "newer"
    else:
        with pytest.raises(xlamem.DumpError, match="a readable checkpoint of the ledger"):
            log.read()


def test_files_of_checkpoints_are_looked_at_after_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in each run, since listing the files of an object store costs time and money."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 3)
    looks: list[int] = []
    monkeypatch.setattr(checkpoints.Checkpoints, "delete_unused", lambda self: looks.append(len(entries(tmp_path))))
    for i in range(7):
        run(tmp_path, batch("abcdefg"[i], str(i)))
    assert looks == [3, 6]


def test_entries_are_kept_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the checkpoint before the last one on: a converter may be suspended, and others read meanwhile."""
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 3)
    now = 5_000_000.0
    monkeypatch.setattr(checkpoints.time, "time", lambda: now)
    for i in range(6):
        run(tmp_path, batch("abcdef"[i], str(i)))
        now += 1000 * (i == 2)  # the last checkpoint is younger than the one before
    assert len(entries(tmp_path)) == 6
    for seconds, left in ((checkpoints.FOLD_SECONDS, 6), (checkpoints.FOLD_SECONDS + 1, 5)):
        log = Ledger(Storage(tmp_path))
        now = 5_000_000.0 + seconds
        log.checkpoints.delete_unused()
        assert len(entries(tmp_path)) == left - (seconds > checkpoints.FOLD_SECONDS)
    assert entries(tmp_path) == [checkpoints.entry_name(n).split("/")[-1] for n in (1, 4, 5, 6)]
    assert json.loads((tmp_path / checkpoints.entry_name(1)).read_text()) == {"format": 3, "number": 1, "folded": True}
    assert len(state(tmp_path).stored) == 6
    now -= 10_000_000  # a clock that went back
    log.checkpoints.delete_unused()
    assert len(entries(tmp_path)) == 4


def test_batches_of_a_checkpoint_that_are_replaced(tmp_path: Path, often: None) -> None:
    """A name that is added again, with other dumps, does not bring back what it had."""
    run(tmp_path, batch("a", "1", "2"), batch("b", "3"), batch("c", "4"))
    assert len(names(tmp_path)) == 1
    run(tmp_path, batch("a", "1"), remove=("a" * 32,))
    found = state(tmp_path)
    assert dict(found.stored) == {dump("1"): "a" * 32, dump("3"): "b" * 32, dump("4"): "c" * 32}
    assert [*found.batches["a" * 32].dumps] == [dump("1")]
    assert dump("2") not in found.stored
    run(tmp_path, batch("d", "2"), batch("e", "5"), batch("f", "6"))
    assert state(tmp_path).stored[dump("2")] == "d" * 32
    log = Ledger(Storage(tmp_path))
    assert log.commit(remove=("c" * 32,)) == set()
    assert dump("4") not in log.state.stored
    assert len(log.state.stored) == len(dict(log.state.stored)) == 5


@pytest.mark.parametrize("n", [1, 5, 1000])
def test_ids_are_found_in_segments(tmp_path: Path, often: None, n: int) -> None:
    chance = random.Random(n)
    ids = [f"{chance.getrandbits(128):032x}" for _ in range(n)]
    ids += ["0" * 32, "f" * 32, "ab" + "0" * 30, "ab" + "00" * 14 + "01"]
    parts = [ids[i::7] for i in range(7)]
    for i, part in enumerate(parts):
        run(tmp_path, replace(batch("a"), name=f"{i:032x}", dumps=tuple(part)))
    found = state(tmp_path).stored
    wanted = {content_id: f"{i:032x}" for i, part in enumerate(parts) for content_id in part}
    others = [f"{chance.getrandbits(128):032x}" for _ in range(100)]
    assert found.find([*ids, *others, "x", "A" * 32, "ab"]) == wanted
    assert set(found) == set(ids)
    for prefix in ("", "ab", "abc", "f", ids[0][:5], ids[0], "x"):
        assert found.starting_with(prefix) == sorted(i for i in ids if i.startswith(prefix))


def test_files_of_batches_in_a_checkpoint(tmp_path: Path, often: None) -> None:
    """A batch has its own files, not those of its neighbours; some batches have several, others none."""
    made = []
    for i, n in enumerate((1, 0, 3, 2, 0, 1, 1)):
        files = tuple(File("values", f"values/v2/{i}{k}.parquet", 1, i) for k in range(n))
        made.append(replace(batch(f"{i}", f"{i}"), files=files))
    log = Ledger(Storage(tmp_path))
    with log.run("run"):
        assert log.commit(*made) == set()
        for i in range(3):
            assert log.commit(batch(f"{i + 7}", f"{i + 7}")) == set()
        log.checkpoint()
    assert names(tmp_path)
    found = state(tmp_path).batches
    assert {b.name: [*found[b.name].files] for b in made} == {b.name: [*b.files] for b in made}


def test_paths_in_a_checkpoint_do_not_leave_the_dataset(
    tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("xlamem.warehouse.batch.leaves_dataset", lambda path: False)
        run(tmp_path, *(replace(batch(n, n), files=(File("values", f"{n}/../../a", 1, 1),)) for n in "123"))
    found = state(tmp_path).batches
    with pytest.raises(xlamem.DumpError, match="paths of files within the dataset"):
        [*found["1" * 32].files]


@pytest.mark.parametrize(
    ("segments", "n_stored", "n_added", "limit", "n_merged"),
    [
        ([16, 4], 20, 1, 99, 0), ([16, 4], 20, 2, 99, 1), ([16, 4], 20, 4, 99, 2), ([16, 4], 20, 3, 99, 1),
        ([16, 4], 20, 50, 3, 0), ([16, 4], 20, 50, 4, 1), ([16, 4], 20, 50, 15, 1), ([16, 4], 20, 50, 16, 2),
        ([16, 4], 10, 1, 99, 0), ([16, 4], 9, 1, 99, 2), ([16, 4], 9, 0, 3, 2), ([], 0, 7, 99, 0),
    ],
)  # fmt: skip
def test_which_segments_are_merged(
    segments: list[int], n_stored: int, n_added: int, limit: int, n_merged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last ones, of at most twice the ids that are merged with them, and a limit; all if most ids are gone."""
    monkeypatch.setattr(checkpoints, "MAX_MERGED_ROWS", limit)
    made = [SimpleNamespace(rows=rows) for rows in segments]
    found: Any = SimpleNamespace(members=SimpleNamespace(segments=tuple(made)), stored=range(n_stored))
    kept, merged = checkpoints._to_merge(found, n_added)
    assert kept == made[: len(made) - n_merged]
    assert sorted(s.rows for s in merged) == sorted(s.rows for s in made[len(made) - n_merged :])


def test_ids_of_batches_that_were_removed_are_not_added() -> None:
    """They do not decide which segments are merged."""
    state = State()
    for number, name in enumerate("ab"):
        state.add(batch(name, str(number)), number)
    state.remove("a" * 32)
    ids, ordinals = checkpoints._added(state)
    assert (segments.to_texts(ids), ordinals.tolist()) == ([dump("1")], [1])


def test_segments_stay_few(tmp_path: Path, often: None) -> None:
    for i in range(60):
        run(tmp_path, replace(batch("a", *(f"{i * 10 + j:x}" for j in range(10))), name=f"{i:032x}"))
    log = Ledger(Storage(tmp_path))
    assert len(log.state.members.segments) <= 6
    assert sum(segment.rows for segment in log.state.members.segments) >= 500
    log = Ledger(Storage(tmp_path))
    with log.run("run"):
        for i in range(50):
            log.commit(remove=(f"{i:032x}",))
        log.checkpoint()
    found = Ledger(Storage(tmp_path)).state
    assert sum(segment.rows for segment in found.members.segments) == len(found.stored) == 100
    assert [*found.batches[f"{55:032x}"].dumps] == [dump(f"{550 + j:x}") for j in range(10)]


# -- damage


def test_a_damaged_checkpoint_does_not_look_like_an_empty_dataset(tmp_path: Path, often: None) -> None:
    convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path)
    for _ in range(4):
        convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path)
    assert "000000000002.json" not in entries(tmp_path)
    files = on_disk(tmp_path)
    kept = names(tmp_path)
    (tmp_path / checkpoints.FOLDER / kept[-1]).write_bytes(b"half")
    assert xlamem.Dataset(tmp_path).files("values").num_rows == 1  # the one before
    (tmp_path / checkpoints.FOLDER / kept[0]).unlink()
    with pytest.raises(xlamem.DumpError, match="a readable checkpoint of the ledger"):
        xlamem.Dataset(tmp_path)
    with pytest.raises(xlamem.OutputError, match="a readable checkpoint of the ledger"):
        convert(DUMPS, to=tmp_path)
    assert on_disk(tmp_path) == files


def test_a_damaged_segment_is_named(tmp_path: Path, often: None) -> None:
    run(tmp_path, *(batch(name, digits) for name, digits in zip("abc", "123", strict=True)))
    found = state(tmp_path)
    (segment,) = (tmp_path / checkpoints.FOLDER).glob("*-ids-*")
    data = bytearray(segment.read_bytes())
    data[data.index(bytes.fromhex(dump("2")))] ^= 1
    segment.write_bytes(data)
    with pytest.raises(xlamem.DumpError, match="a readable checkpoint") as caught:
        found.stored.find([dump("1")])
    assert caught.value.path == str(segment)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]"])
@pytest.mark.parametrize("name", ["entries/000000000001.json", "entries/000000000002.json", "registered/delta.json"])
def test_a_damaged_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path)
    damaged = tmp_path / "_ledger" / name
    damaged.parent.mkdir(exist_ok=True)
    damaged.write_bytes(content)
    with pytest.raises(xlamem.OutputError, match=f"{name}: expected (an entry of the ledger|where the dataset is reg)"):
        convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path)
    if name.startswith("entries"):
        with pytest.raises(xlamem.DumpError, match="an entry of the ledger") as caught:
            xlamem.Dataset(tmp_path)
        assert caught.value.path == str(damaged)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", "a"), ("bytes", 10**20), ("columns", -1), ("path", "\ud800"), ("path", "../a.parquet"),
        ("path", "values/../../a.parquet"), ("table", None), ("run_id", []),
        ("schema_version", 1.5), ("tables", "x"), ("dumps", [1]), ("labels", []), ("number", 7), ("drop", [1]),
    ],
)  # fmt: skip
def test_a_damaged_field_of_an_entry_is_named(field: str, value: object, tmp_path: Path) -> None:
    convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path)
    path = tmp_path / checkpoints.entry_name(1)
    entry = json.loads(path.read_text())
    holder = next(x for x in (entry, entry["add"][0], entry["add"][0]["files"][0]) if field in x)
    holder[field] = value
    path.write_text(json.dumps(entry))
    with pytest.raises(xlamem.DumpError, match="an entry of the ledger") as caught:
        xlamem.Dataset(tmp_path)
    assert caught.value.path == str(path)


@pytest.mark.parametrize("is_gone", [True, False])
@pytest.mark.parametrize("kind", ["ids", "files"])
def test_a_checkpoint_without_all_its_files(kind: str, is_gone: bool, tmp_path: Path, often: None) -> None:
    """The one before is read, and the entries after it."""
    ids = "123456"
    run(tmp_path, *(batch(name, digits) for name, digits in zip("abcdef", ids, strict=True)))
    newest = names(tmp_path)[-1].partition(".")[0]
    (path,) = (tmp_path / checkpoints.FOLDER).glob(f"{newest}-{kind}-*")
    data = path.read_bytes()
    path.unlink()
    if not is_gone:
        path.write_bytes(data[:-1])
    found = state(tmp_path)
    assert sorted(found.stored.find([dump(digits) for digits in ids])) == [dump(digits) for digits in ids]
    assert found.files() == []


# -- kills and the form of version 0.2


def of_version_02(dest: Path, at: int = 0) -> None:
    """Write a checkpoint as version 0.2 did, of all entries or of the first ones."""
    found = State()
    log = object.__new__(Ledger)
    log.state = found
    for path in sorted((dest / checkpoints.ENTRIES).iterdir())[: at or None]:
        log._apply(json.loads(path.read_text()))
    batches = [asdict(added) for added in found.batches.values()]
    data = {"number": found.number, "hidden": sorted(found.hidden), "batches": batches}
    (dest / checkpoints.FOLDER).mkdir(exist_ok=True)
    (dest / checkpoints.FOLDER / f"{found.number:012}.json.z").write_bytes(zlib.compress(json.dumps(data).encode()))


@pytest.mark.parametrize("name", ["v1-dataset", "old-dataset"])
@pytest.mark.parametrize("with_checkpoint", [False, True])
def test_stored_datasets_get_new_checkpoints(
    tmp_path: Path, often: None, name: str, with_checkpoint: bool
) -> None:
    """Those of older versions, with and without a checkpoint in their form: nothing changes for readers."""
    old = HERE / "data" / name
    dest = tmp_path / "out"
    shutil.copytree(old, dest)
    if with_checkpoint:
        of_version_02(dest)
    wanted = {table: sorted(map(str, xlamem.Dataset(old)[table].to_table().to_pylist())) for table in schema.WAREHOUSE}
    for i in range(8):
        assert same(run(dest, batch("abcdefgh"[i], f"{i:x}")), state(dest))
    assert "000000000002.json" not in entries(dest)
    assert len(names(dest)) == 2
    dataset = xlamem.Dataset(dest)
    assert set(xlamem.Dataset(old).ids) == {*dataset.ids} - {dump(f"{i:x}") for i in range(8)}
    for table, rows in wanted.items():
        assert sorted(map(str, dataset[table].to_table().to_pylist())) == rows, table
    warehouse.migrate(dest)
    assert not state(dest).old_batches
    assert {*xlamem.Dataset(dest).ids} == {*dataset.ids}


def test_a_checkpoint_of_version_02_and_entries_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights = v1_dataset.nights(tmp_path / "nights")
    v1_dataset.convert(nights, tmp_path / "clean")
    shutil.copytree(tmp_path / "clean", tmp_path / "out")
    of_version_02(tmp_path / "out", 3)
    assert same(state(tmp_path / "out"), state(tmp_path / "clean"))
    monkeypatch.setattr(ledger, "CHECKPOINT_INTERVAL", 3)
    v1_dataset.convert(nights, tmp_path / "out")
    assert len(names(tmp_path / "out")) == 2
    assert counts(tmp_path / "out") == counts(tmp_path / "clean")


def test_entries_before_checkpoints_of_version_02_are_kept(tmp_path: Path) -> None:
    """They do not say when they were written."""
    log = Ledger(Storage(tmp_path))
    for i in range(6):
        assert log.commit(batch("abcdef"[i], str(i))) == set()
    for at in (3, 5):
        of_version_02(tmp_path, at)
    log.checkpoints.delete_unused()
    assert len(entries(tmp_path)) == 6


def test_checkpoints_killed_at_every_write(tmp_path: Path, often: None) -> None:
    """Readers see all that was committed, and the next run continues."""
    sources = [DUMPS / "cpu-jaxlib-0.5.3-tuple3", DUMPS / "cpu-killed-at-buffer-assignment"]
    start, dest, tables = tmp_path / "start", tmp_path / "out", ["modules", "values"]
    for i in range(5):
        convert(sources[0], to=start, labels={"night": str(i)}, tables=tables)
    for when, write in (("before", 0), ("after", 2)):
        while True:
            shutil.rmtree(dest, ignore_errors=True)
            shutil.copytree(start, dest)
            last = killed(lambda: convert(*sources, to=dest, labels={"night": "5"}, tables=tables), write, when)
            found = state(dest)
            assert all((dest / file.path).exists() for file in found.files())
            assert len(found.stored) == len(stored(dest, "modules")) in (1, 2)
            if not last:
                break
            convert(*sources, to=dest, labels={"night": "5"}, tables=tables)
            assert counts(dest)["occurrences"] == 7
            assert len(stored(dest, "modules")) == len(state(dest).stored) == 2
            assert on_disk(dest) == {f.path for f in state(dest).files()}
            write += 4
        assert write > 15
