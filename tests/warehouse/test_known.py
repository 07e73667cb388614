"""Dumps that an earlier run has read: not read again while their files are unchanged."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import xxhash
from conftest import DUMPS
from test_convert import SMALL, TWO, convert, state, stored

import xlamem
from xlamem.input.find import Member
from xlamem.warehouse import identity, known, run
from xlamem.warehouse.storage import Storage

LONG_AGO = 1_700_000_000
ASSIGNMENT = "*-buffer-assignment.txt"


def aged(path: Path, seconds: int = LONG_AGO) -> Path:
    """Set the modification time of a file or of all files in a folder."""
    for file in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(file, (seconds, seconds))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two dumps that were written long ago."""
    for name in TWO:
        shutil.copytree(DUMPS / name, tmp_path / "in" / name)
    return aged(tmp_path / "in")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read."""
    read: list[str] = []
    load = Member.load

    def counted(member: Member) -> Any:
        read.append(member.uri)
        return load(member)

    monkeypatch.setattr(Member, "load", counted)
    return read


def edit(path: Path) -> None:
    """Change a file in place without changing its size."""
    data = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(data.replace(b"size 256,", b"size 264,", 1))
    assert path.read_bytes() != data
    assert path.stat().st_size == len(data)


def recorded(to: Path) -> list[str]:
    return [name for name, _ in Storage(to).files(known.FOLDER)]


def test_unchanged_files_are_not_read(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    to = tmp_path / "out"
    first = convert(folder, to=to)
    assert (first.found, first.dumps, len(recorded(to))) == (2, 2, 1)
    reads.clear()
    again = convert(folder, to=to)
    assert (again.found, again.dumps, again.already_stored, again.occurrences) == (2, 0, 2, 0)
    assert not reads
    assert len(recorded(to)) == 1  # nothing new to record
    # Each run records what it finds, as if it had read it.
    labelled = convert(folder, to=to, labels={"night": "2"})
    assert (labelled.already_stored, labelled.occurrences) == (2, 2)
    assert not reads
    assert len(stored(to, "runs")) == 3


def test_everything_is_read_to_check_the_content(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    convert(folder, to=tmp_path / "out")
    reads.clear()
    again = convert(folder, to=tmp_path / "out", check_content=True)
    assert (again.found, again.already_stored) == (2, 2)
    assert {Path(uri) for uri in reads} >= set(folder.rglob(ASSIGNMENT))
    assert len(recorded(tmp_path / "out")) == 1  # what is as recorded is not recorded again


def changed_dump(folder: Path) -> Path:
    (path,) = (folder / TWO[0]).glob(ASSIGNMENT)
    return path


def new_time(path: Path) -> None:
    edit(path)
    aged(path, LONG_AGO + 100)


def new_inode(path: Path) -> None:
    """Another file of the same size and time takes the place of the first."""
    other = path.with_name("other")
    shutil.copy(path, other)
    edit(other)
    os.replace(aged(other), path)


def new_size(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")
    aged(path)


@pytest.mark.parametrize("change", [new_time, new_inode, new_size])
def test_a_changed_file_is_read(folder: Path, tmp_path: Path, reads: list[str], change: Any) -> None:
    convert(folder, to=tmp_path / "out")
    path = changed_dump(folder)
    change(path)
    reads.clear()
    again = convert(folder, to=tmp_path / "out")
    assert (again.found, again.dumps, again.already_stored) == (2, 1, 1)
    assert {Path(uri).parent for uri in reads} == {path.parent}
    assert len(state(tmp_path / "out").stored) == 3


def test_recent_times_are_not_trusted(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    """A file could change again within the resolution of its time."""
    path = changed_dump(folder)
    now = path.parent.stat().st_ctime_ns
    os.utime(path, ns=(now, now))
    convert(folder, to=tmp_path / "out")
    edit(path)
    os.utime(path, ns=(now, now))
    reads.clear()
    again = convert(folder, to=tmp_path / "out")
    assert (again.dumps, again.already_stored) == (1, 1)
    assert str(path) in reads


def test_a_time_in_the_future_is_not_trusted(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    aged(folder / TWO[0], 4_000_000_000)
    for _ in range(2):
        reads.clear()
        convert(folder, to=tmp_path / "out")
    assert {Path(uri).parent.name for uri in reads} == {TWO[0]}


def test_a_dump_that_grows_a_file_is_read(folder: Path, tmp_path: Path, reads: list[str]) -> None:
    (path,) = (folder / TWO[0]).glob("*-memory-usage-report.txt")
    shutil.move(path, tmp_path / path.name)
    convert(folder, to=tmp_path / "out")
    shutil.move(tmp_path / path.name, path)
    reads.clear()
    assert convert(folder, to=tmp_path / "out").dumps == 1
    assert str(path) in reads


def test_the_name_counts(folder: Path, tmp_path: Path) -> None:
    """It says what the module is called, which is part of a content."""
    convert(folder, to=tmp_path / "out")
    for path in (folder / TWO[0]).glob("module_0001.*"):
        path.rename(path.with_name(path.name.replace("jit_m_tuple3", "jit_renamed")))
    assert convert(folder, to=tmp_path / "out").dumps == 1


def test_archives_and_streams(tmp_path: Path, reads: list[str]) -> None:
    """The members of an archive or a stream are those of its file; a stream of several dumps has one key for each."""
    source = tmp_path / "in"
    source.mkdir()
    with tarfile.open(source / "night.tar", "w") as tar:
        for name in TWO:
            tar.add(DUMPS / name, arcname=name)
    stream = (DUMPS / "tpu-libtpu-0.0.50.1-v5e-stdout" / "stdout.txt").read_bytes()
    (source / "stdout.txt").write_bytes(stream * 2)
    aged(source)
    first = convert(source, to=tmp_path / "out")
    assert (first.found, first.dumps) == (4, 3)
    reads.clear()
    again = convert(source, to=tmp_path / "out")
    assert (again.found, again.already_stored, again.duplicates, reads) == (4, 3, 1, [])
    assert len(stored(tmp_path / "out", "occurrences")) == 4


def test_a_file_with_several_modules_is_read(tmp_path: Path, reads: list[str]) -> None:
    """Which modules it contains, only its text says."""
    shutil.copytree(DUMPS / "cpu-jaxlib-0.12.0-several_modules", tmp_path / "in")
    (path,) = SMALL.glob(ASSIGNMENT)
    text = path.read_bytes()
    (tmp_path / "in" / path.name).write_bytes(text + text.replace(b"size 256,", b"size 264,"))
    aged(tmp_path / "in")
    first = convert(tmp_path / "in", to=tmp_path / "out")
    reads.clear()
    again = convert(tmp_path / "in", to=tmp_path / "out")
    assert again.already_stored == first.dumps
    assert {Path(uri).name for uri in reads} == {path.name}


def test_another_version_reads_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert(folder, to=tmp_path / "out")
    monkeypatch.setattr(xlamem, "__version__", "999")
    assert convert(folder, to=tmp_path / "out").dumps == 2


def test_a_dump_that_is_known_but_not_stored(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was killed before it converted the dump has recorded it; the next run converts it."""

    def fail(self: run.Run, tasks: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(run.Run, "run_tasks", fail)
        with pytest.raises(ZeroDivisionError):
            convert(folder, to=tmp_path / "out")
    assert len(recorded(tmp_path / "out")) == 1
    assert convert(folder, to=tmp_path / "out").dumps == 2


def test_what_cannot_be_read_is_tried_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(source: Any) -> Any:
        raise OSError("no")

    monkeypatch.setattr(identity, "_load", fail)
    assert len(convert(folder, to=tmp_path / "out").failed) == 2
    assert not recorded(tmp_path / "out")
    monkeypatch.undo()
    assert convert(folder, to=tmp_path / "out").dumps == 2


# -- the records ---------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated", "changed", "longer"])
def test_damaged_records_are_ignored(folder: Path, tmp_path: Path, reads: list[str], damage: str) -> None:
    to = tmp_path / "out"
    convert(folder, to=to)
    path = to / recorded(to)[0]
    data = path.read_bytes()
    damaged = {"empty": b"", "truncated": data[:-1], "changed": data[:-1] + bytes([data[-1] ^ 1]), "longer": data * 2}
    path.unlink() if damage == "missing" else path.write_bytes(damaged[damage])
    reads.clear()
    again = convert(folder, to=to)
    assert (again.already_stored, again.dumps) == (2, 0)
    assert reads
    reads.clear()
    convert(folder, to=to)
    assert not reads


def nights(folder: Path, to: Path, n: int) -> list[Path]:
    """Convert n folders one night after the other."""
    made = []
    for i in range(n):
        made.append(aged(Path(shutil.copytree(folder / TWO[0], folder.parent / f"night-{i}"))))
        convert(made[-1], to=to)
    return made


def test_files_are_merged(folder: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MAX_FILES", 3)
    to = tmp_path / "out"
    made = nights(folder, to, 9)
    assert len(recorded(to)) <= 3
    reads.clear()
    assert convert(*made, to=to).found == 9
    assert not reads


def test_records_do_not_grow_forever(
    folder: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of dumps that are not found anymore are dropped, at the cost of reading the dumps if they come back."""
    monkeypatch.setattr(known, "MAX_BYTES", 200)
    to = tmp_path / "out"
    made = nights(folder, to, 9)
    assert sum(size for _, size in Storage(to).files(known.FOLDER)) < 500
    reads.clear()
    convert(made[-1], to=to)
    assert not reads
    convert(*made, to=to)
    assert reads


def test_converters_at_once_keep_their_records(
    folder: Path, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run writes records between this run's look-up and its own; merging keeps them."""
    monkeypatch.setattr(known, "MAX_FILES", 1)
    to = tmp_path / "out"
    nights(folder, to, 2)
    save = known.KnownDumps.save

    def save_after_another(self: known.KnownDumps) -> None:
        monkeypatch.setattr(known.KnownDumps, "save", save)
        convert(folder / TWO[1], to=to)
        save(self)

    monkeypatch.setattr(known.KnownDumps, "save", save_after_another)
    third = aged(Path(shutil.copytree(folder / TWO[0], tmp_path / "third")))
    convert(third, to=to)
    reads.clear()
    assert convert(third, folder / TWO[1], to=to).found == 2
    assert not reads


@pytest.mark.parametrize(("size", "n"), [(7, 0), (8, 1)])
def test_what_has_another_content_than_is_recorded_is_recorded_anew(size: int, n: int) -> None:
    """As `check_content` finds out. A source that has to be read each time has no key."""
    key, content = b"k" * 16, "ab" * 16
    own: Any = known.KnownDumps.__new__(known.KnownDumps)
    own._keys, own._new, own._used = [None, key], {}, {key: known._RECORD.pack(key, b"\xab" * 16, b"\xab" * 16, 7)}
    for number in range(2):
        own.add(number, SimpleNamespace(content_id=content, content_hash=content, bytes=size))
    assert len(own._new) == n


@pytest.mark.parametrize(
    ("files", "written", "deleted"),
    [
        ({}, b"new", ()), ({"x": b"aa", "y": b"bb"}, b"new", ()),
        ({"x": b"aa", "y": b"bb", "z": b""}, b"aabbnew", ("x", "y", "z")),
        ({"x": b"a" * 9, "y": b"b"}, b"new", ()), ({"x": b"a" * 9, "y": b"bb"}, b"usednew", ("x", "y")),
        ({"x": b"a" * 9, "y": b"b", "z": b""}, b"a" * 9 + b"bnew", ("x", "y", "z")),
        ({"x": b"a" * 9, "y": b"bb", "z": b""}, b"usednew", ("x", "y", "z")),
    ],
)  # fmt: skip
def test_records_that_a_run_writes(
    files: dict[str, bytes], written: bytes, deleted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own ones. Of many files, those of all are merged; of large ones, those that it found."""
    monkeypatch.setattr(known, "MAX_FILES", 3)
    monkeypatch.setattr(known, "MAX_BYTES", 10)
    changes: list[Any] = []
    own: Any = known.KnownDumps.__new__(known.KnownDumps)
    own.name, own._files, own._used, own._new = "own", files, {b"u": b"used"}, {b"n": b"new"}
    own.storage = SimpleNamespace(
        write=lambda *args: changes.append(args), delete=lambda names: changes.append((*names,))
    )  # fmt: skip
    own.save()
    assert changes == [("own", xxhash.xxh3_128_digest(written) + written), deleted]
    own._new = {}
    own.save()
    assert len(changes) == 2
