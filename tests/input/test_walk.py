"""Paths that cannot be read, and URIs."""

from __future__ import annotations

import io
import json
import mmap
import os
import pickle
import socket
import stat
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pytest
from small_dumps import ALLOCATIONS, HLO, PACK, STEM, TEXTS, contents, frames, tar_of, write

import xlamem
from xlamem.errors import DumpError, UsageError
from xlamem.input import contents as input_contents
from xlamem.input import files, filesystems, walk
from xlamem.input.access import system_errors
from xlamem.input.find import Member, find, find_all, resolve, split_modules
from xlamem.input.names import EXTENSIONS
from xlamem.input.walk import NoDumpError, Walker

# ---- what is not there


def test_missing_paths(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "nothing" / "x", tmp_path / f"{STEM}.txt"):
        with pytest.raises(UsageError, match="does not exist"):
            find(path)
    with pytest.raises(UsageError, match="no path"):
        find()
    with pytest.raises(UsageError, match="not a path"):
        find(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot access"):
        find("a\0b")


def test_an_empty_path_is_no_stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-buffer-assignment.txt").write_text(ALLOCATIONS)
    with pytest.raises(UsageError, match="does not exist"):
        find("")


def test_a_listed_file_that_cannot_be_examined() -> None:
    """It is treated like a link, and errors are reported when the link is resolved."""

    class Entry:
        def is_file(self, *, follow_symlinks: bool) -> bool:
            assert not follow_symlinks
            raise OSError("stale")

    assert walk._is_plain_file(Entry()) is False  # type: ignore[arg-type]


def test_the_first_name_of_a_file_counts(tmp_path: Path) -> None:
    paths = [tmp_path / "one.txt", tmp_path / "two.txt"]
    paths[0].write_text(ALLOCATIONS)
    paths[1].symlink_to(paths[0])
    for given in (paths, paths[::-1]):
        assert [source.members[0].uri for source in find(*given)] == [str(given[0])]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_files_that_were_found_before_count_again(tmp_path: Path, n: int) -> None:
    for name in ["a", *"bc"[:n]]:
        (tmp_path / f"{name}.txt").write_text(ALLOCATIONS)
    for paths in ((tmp_path / "a.txt", tmp_path), (tmp_path / "a.txt", tmp_path / "*.txt"), (tmp_path, tmp_path)):
        assert len(find(*paths)) == 1 + n


def test_nothing_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no dump in .*-buffer-assignment\.txt"):
        find(tmp_path)
    write(tmp_path / "other")
    (tmp_path / "x.json").write_text("{}")
    for path in (tmp_path / "x.json", tmp_path / "*.json"):
        with pytest.raises(UsageError, match="no dump in"):
            find(tmp_path / "other", path)
    with pytest.raises(UsageError, match="no dump in <bytes>"):
        resolve(b"")


def test_only_protos(tmp_path: Path) -> None:
    (tmp_path / f"{STEM}.hlo.pb").write_bytes(b"\x0a\x00")
    with pytest.raises(UsageError, match="xla_dump_hlo_as_text"):
        find(tmp_path)


def test_hints_are_about_one_path_each(tmp_path: Path) -> None:
    """That of the error for all of them is about all."""
    write(tmp_path / "good")
    for name, data in {f"protos/{STEM}.hlo.pb": b"\x0a\x00", "hlo/lowered.txt": HLO.encode(), "none/x": b""}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    folders = [tmp_path / name for name in ("good", "protos", "none", "hlo", "none")]
    sources, errors = find_all(*folders)
    assert len(sources) == 1
    hints = [error.hint.partition(";")[0].partition(",")[0] for error in errors]
    assert hints == ["there are only protos", "", "there is HLO text"]  # a path that is repeated is searched once
    with pytest.raises(NoDumpError, match="there are only protos"):
        find_all(*folders[1:3])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("x.pb", "there are only protos"),
        ("x.hlo.pb.gz", "there are only protos"),
        ("x.hlo", "there is HLO text"),
        ("x.xplane.pb", "there are only profiles"),
        ("x.json", ""),
        ("x.txt", ""),
        ("x", ""),
    ],
)
@pytest.mark.parametrize("glob", [False, True])
def test_hints_about_a_file(name: str, hint: str, glob: bool, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(NoDumpError) as caught:
        find(tmp_path / ("x*" if glob else name))
    assert caught.value.hint.startswith(hint)
    assert bool(caught.value.hint) == bool(hint)


def test_other_files_of_xla_may_be_given(tmp_path: Path) -> None:
    """As a shell expands `dir/*`. A directory of such a name is expected to have a dump."""
    stem = write(tmp_path)
    (other := tmp_path / "module_0000.jit_f.before_optimizations.txt").write_text(HLO)
    assert len(find(f"{stem}-live-range.txt", other)) == 1
    (folder := tmp_path / "module_0001.jit_g").mkdir()
    for paths in ((f"{stem}-live-range.txt", folder), (folder, other), (other, folder)):
        with pytest.raises(NoDumpError, match=f"no dump in {folder}: "):
            find(*paths)
    with pytest.raises(NoDumpError, match=f"no dump in {folder}, {other}, {folder}: "):
        find(folder, other, folder)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("x", OSError(5, "Input/output error"), "x: expected a file (Input/output error)"),
        ("x", OSError("one\ntwo"), "x: expected a file (one)"),
        ("x", pa.ArrowInvalid("one\ntwo"), "x: expected a file (one)"),
        ("s3://x", LookupError("one\ntwo"), "s3://x: expected a file (one)"),
        ("s3://x", LookupError(), "s3://x: expected a file (LookupError)"),
        ("x", LookupError("odd"), ""),
        ("s3://x", MemoryError(), ""),
        ("s3://x", UsageError("no"), ""),
        ("x", DumpError("y", "z"), ""),
    ],
)
def test_errors_of_libraries(name: str, error: Exception, message: str) -> None:
    """Those of the system and of Arrow, and all that concern a URI, are about the file. Others are as they were."""
    with pytest.raises(Exception) as caught, system_errors(name, "a file"):  # noqa: PT011
        raise error
    assert (str(caught.value) == message) if message else (caught.value is error)
    assert getattr(caught.value, "system", False) == bool(message)


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFBLK])
def test_devices_are_not_read(kind: int, tmp_path: Path) -> None:
    (path := tmp_path / "device").write_text(ALLOCATIONS)
    with pytest.raises(DumpError, match=r"a file, a directory or a pipe \(a device\)"):
        Walker()._add_existing(str(path), kind)
    walker = Walker()
    walker._add_existing(str(path), stat.S_IFREG)
    assert walker.groups.hits == 1


@pytest.mark.parametrize(
    ("top", "found"),
    [
        (".", [".", "proc", "proc/shm/run", "processes/below"]),
        ("proc", ["proc", "proc/shm/run"]),
        ("proc/below", ["proc/below"]),
        ("proc/shm", ["proc/shm/run"]),
    ],
)
def test_directories_of_the_kernel_are_not_descended_except_shared_memory(
    top: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_KERNEL", (f"{tmp_path}/proc/", "/elsewhere/"))
    monkeypatch.setattr(walk, "_SHARED_MEMORY", f"{tmp_path}/proc/shm/")
    for folder in (".", "proc", "proc/below", "proc/below/deep", "proc/shmem/run", "proc/shm/run", "processes/below"):
        write(tmp_path / folder, texts={"buffer-assignment": ALLOCATIONS})
    assert [os.path.relpath(s.location, tmp_path) for s in find(tmp_path / top)] == found


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ([], "the directory is empty"),
        (["below/"], ""),
        (["x.json", "below/"], ""),
        (["x.pb", "below/"], "there are only protos"),
        (["x.pb", "x.hlo"], "there are only protos"),
        (["x.xplane.pb", "x.hlo"], "there is HLO text"),
        (["x.xplane.pb.gz"], "there are only profiles"),
        (["module_0001.jit_f.before_optimizations.txt.xz"], "there is HLO text"),
        ([f"{STEM}.txt", "x.xplane.pb"], "there is HLO text"),
    ],
)
def test_hints_by_names(files: list[str], hint: str, tmp_path: Path) -> None:
    """The first one that applies. Directories below that are empty do not count."""
    for name in files:
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).write_bytes(b"x")
    with pytest.raises(NoDumpError) as caught:
        find(tmp_path)
    assert caught.value.hint.startswith(hint)
    assert bool(caught.value.hint) == bool(hint)
    assert f"no dump in {tmp_path}: {hint or 'searched for'}" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.path, again.hint) == (str(caught.value), str(tmp_path), caught.value.hint)


def test_a_glob_that_matches_hlo_text_only(tmp_path: Path) -> None:
    write(tmp_path, texts={"hlo": HLO})
    write(tmp_path / "with", texts={"hlo": HLO, "live-range": TEXTS["live-range"]})
    with pytest.raises(NoDumpError, match="there is HLO text, but no"):
        find(tmp_path / "*.txt")
    assert [contents(s) for s in find(tmp_path / f"{STEM}.txt")] == [{"hlo": HLO}]
    assert [contents(s) for s in find(tmp_path / "*/*.txt")] == [{"hlo": HLO, "live-range": TEXTS["live-range"]}]


@pytest.mark.parametrize("n", [3, 4, 1003])
def test_an_error_names_three_paths(tmp_path: Path, n: int) -> None:
    for i in range(n):
        (tmp_path / f"{i:04d}").mkdir()
    three = ", ".join(str(tmp_path / f"{i:04d}") for i in range(3))
    more = {3: "", 4: " and 1 more", 1003: " and 1,000 more"}[n]
    with pytest.raises(NoDumpError) as caught:
        find(*sorted(tmp_path.iterdir()))
    assert str(caught.value).startswith(f"no dump in {three}{more}: ")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_that_is_named_like_an_archive(tmp_path: Path) -> None:
    """In a directory it is not read, and other pipes are no dumps."""
    write(tmp_path)
    for name in ("x.tar.gz", "x.sock"):
        os.mkfifo(tmp_path / name)
    faulty = {source.name: str(source.fault) for source in find(tmp_path) if source.fault}
    assert list(faulty) == ["x.tar.gz"]
    assert "a pipe, a socket or a device" in faulty["x.tar.gz"]


def bad_entries(folder: Path) -> dict[str, str]:
    """Entries of a directory that cannot be read, and the message for each, by name."""
    (folder / "loop").symlink_to("loop")
    (folder / f"{STEM}_loop-live-range.txt").symlink_to(f"{STEM}_loop-live-range.txt")
    (folder / "latest").symlink_to("gone")
    (folder / f"{STEM}_link-buffer-assignment.txt").symlink_to("gone.txt")
    (folder / "module_0001.jit_g.before_optimizations.txt").symlink_to("gone.txt")  # never a dump
    (folder / ".#notes.txt").symlink_to("somebody@somewhere")  # nor is what is hidden
    os.mkfifo(folder / f"{STEM}_fifo-buffer-assignment.txt")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(folder / f"{STEM}_socket-buffer-assignment.txt"))  # its length is limited
    return {
        "loop": "Too many levels of symbolic links",
        f"{STEM}_loop": "Too many levels of symbolic links",
        "latest": "No such file or directory",
        f"{STEM}_link": "No such file or directory",
        f"{STEM}_fifo": "a pipe, a socket or a device",
        f"{STEM}_socket": "a pipe, a socket or a device",
    }


@pytest.mark.skipif(sys.platform == "win32", reason="no such entries there")
@pytest.mark.parametrize("way", ["directory", "pattern", "paths"])
def test_bad_entries_stop_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "in"
    write(folder / "deep")
    write(folder)
    wanted = bad_entries(folder)
    given = sorted(p for p in folder.iterdir() if p.name in {"deep", "loop", "latest"} or "after" in p.name)
    if way == "paths":  # a pipe that is named is read
        given = [p for p in given if "fifo" not in p.name and "socket" not in p.name]
        wanted = {k: v for k, v in wanted.items() if "fifo" not in k and "socket" not in k}
    found = find(*{"directory": [folder], "pattern": [folder / "*"], "paths": given}[way])
    assert [contents(s) for s in found if not s.fault] == [TEXTS] * 2
    assert {s.name: s.fault.wanted for s in found if s.fault} == {
        name: f"a readable file ({why})" for name, why in wanted.items()
    }
    for source in found:
        if source.fault:
            assert source.fault.system
            with pytest.raises(DumpError, match="a readable file"):
                source.members[0].load()
            assert split_modules(source) == [source]  # a pipe is not opened
            again = pickle.loads(pickle.dumps(source))
            assert str(again.fault) == str(source.fault)
            assert again.fault.system
    with pytest.raises(UsageError, match=r"latest  unreadable: .*No such file"):
        resolve(folder)


def test_a_good_sibling_of_a_broken_link_is_taken(tmp_path: Path) -> None:
    stem = write(tmp_path, packed="gz")
    Path(f"{stem}-live-range.txt").symlink_to("gone")
    assert contents(resolve(tmp_path)) == TEXTS
    os.remove(f"{stem}-live-range.txt.gz")
    (found,) = find(tmp_path)  # not a dump without live ranges: there are some, out of reach
    assert found.fault is not None
    assert found.fault.path == f"{stem}-live-range.txt"


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), FileNotFoundError(2, "No such file")])
def test_directories_that_cannot_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError) -> None:
    write(tmp_path)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.rstrip("/").endswith("closed"):
            raise error
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    dump, closed = sorted(find(tmp_path), key=lambda s: s.fault is not None)
    assert contents(dump) == TEXTS
    assert str(closed.fault) == f"{tmp_path}/closed: expected a directory that can be listed ({error.strerror})"
    (alone,) = find(f"{tmp_path}/closed/")
    assert (alone.name, alone.location) == ("closed", str(tmp_path))


def test_a_root_that_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    (root,) = find(os.sep)
    assert str(root.fault) == "/: expected a directory that can be listed (Permission denied)"


@pytest.mark.filterwarnings("ignore:.*fork")  # JAX, which other tests import, has threads
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="becomes another user")
def test_a_directory_of_another_user(tmp_path: Path) -> None:
    """As the system refuses it: root can read everything, so another uid looks."""
    write(tmp_path)
    (tmp_path / "closed").mkdir(mode=0o700)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.seteuid(65534)
            closed, dump = find(tmp_path)
            code = 0 if "Permission denied" in str(closed.fault or dump.fault) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    for role, text in TEXTS.items():
        name = b"module_0007.jit_\xff\xfe.cpu_after_optimizations" + EXTENSIONS[role].encode()  # type: ignore[index]
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text.encode())
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(os.fsdecode(folder), arcname=os.fsdecode(b"caf\xe9"))
    found = find(tmp_path)
    assert [contents(s) for s in found] == [TEXTS] * 2
    assert [s.location for s in found] == [rf"{tmp_path}/caf\xe9", rf"{tmp_path}/x.tar::caf\xe9"]
    for source in found:
        assert (source.module_name, source.module_id, source.platform) == (r"jit_\xff\xfe", 7, "cpu")
        dump = xlamem.read(source)
        assert dump.modules["module_name"].to_pylist() == [r"jit_\xff\xfe"]
        assert all(r"caf\xe9" in uri for uri in dump.files["uri"].to_pylist())
        json.dumps(dump.files.to_pylist(), ensure_ascii=False).encode()
    assert contents(resolve(os.fsdecode(folder))) == TEXTS
    with pytest.raises(UsageError, match=r"no\\xff does not exist"):
        find(os.fsencode(tmp_path) + b"/no\xff")


@pytest.mark.parametrize("packed", ["", *PACK])
def test_errors_of_the_system_and_of_the_content_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str
) -> None:
    """Also during decompression, and if a library has exceptions of its own."""
    fsspec = pytest.importorskip("fsspec")
    stem = write(tmp_path, packed=packed)
    end = f"-buffer-assignment.txt{'.' + packed if packed else ''}"
    data = Path(f"{stem}{end}").read_bytes()
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/{tmp_path.name}/{STEM}{end}", data)
    memory.pipe_file(f"/{tmp_path.name}/cut{end}", data[: len(data) // 2])
    good, truncated = (Member("buffer-assignment", f"memory:///{tmp_path.name}/{n}{end}") for n in (STEM, "cut"))
    with good.load() as text:
        assert bytes(text.data).decode() == ALLOCATIONS
    if packed:
        with pytest.raises(DumpError, match=r"the end of|data \(") as caught:
            truncated.load()
        assert not caught.value.system
    from fsspec.implementations.memory import MemoryFile

    for error in (OSError(5, "Input/output error"), OSError("reset by peer"), LookupError("throttled")):

        def fail(self: object, *_: object, error: Exception = error) -> bytes:
            raise error

        monkeypatch.setattr(MemoryFile, "read", fail)
        with pytest.raises(DumpError, match=r"error|peer|throttled") as caught:
            good.load()
        assert caught.value.system
    memory.rm(f"/{tmp_path.name}", recursive=True)

    monkeypatch.setattr(files, "_read_small", lambda path: (_ for _ in ()).throw(OSError(5, "EIO")))
    with pytest.raises(DumpError, match="EIO") as caught:
        Member("buffer-assignment", f"{stem}{end}").load()
    assert caught.value.system


def test_a_tar_with_an_absurd_header(tmp_path: Path) -> None:
    write(tmp_path / "d")
    info = tarfile.TarInfo("x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}
    info.size = 6
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.add(tmp_path / "d", arcname="d")
        tar.addfile(info, io.BytesIO(b"a\nb\nc\n"))
    found = find(tmp_path / "x.tar")
    assert [contents(s) for s in found if not s.fault] == [TEXTS]
    assert [s.fault.system for s in found if s.fault] == [False]


def test_a_file_that_vanished(tmp_path: Path) -> None:
    stem = write(tmp_path)
    dump = resolve(tmp_path)
    os.remove(f"{stem}-live-range.txt")
    member = dump.member("live-range")
    assert member is not None
    with pytest.raises(DumpError, match="a readable file"):
        member.load()


# ---- URIs


def test_file_uris(tmp_path: Path) -> None:
    stem = write(tmp_path / "a b")
    assert contents(resolve((tmp_path / "a b").as_uri())) == TEXTS
    assert contents(resolve(f"{stem.parent.as_uri()}/{STEM}-live-range.txt")) == TEXTS


def test_fsspec_uris(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"
    write(tmp_path / "d", texts={r: t for r, t in TEXTS.items() if r != "hlo"})
    write(tmp_path / "d", texts={"hlo": HLO}, packed="gz")
    write(tmp_path / "d" / "vm_2", packed="zst")
    (tmp_path / "d" / "stdout.txt").write_text("hello\n" + frames())
    tar_of(tmp_path / "d", tmp_path / "d.tar")
    tar_of(tmp_path / "d", tmp_path / "d.tgz", "w:gz")
    for path in tmp_path.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"{root}/{path.relative_to(tmp_path)}", path.read_bytes())
    try:
        base = f"memory:/{root}"
        found = find(base + "/d")
        assert [contents(s) for s in found] == [TEXTS] * 3
        assert [s.location for s in found] == [f"{base}/d", f"{base}/d/stdout.txt", f"{base}/d/vm_2"]
        assert contents(pickle.loads(pickle.dumps(found[0]))) == TEXTS
        assert contents(resolve(f"{base}/d/{STEM}-live-range.txt")) == TEXTS
        assert contents(resolve(f"{base}/d/{STEM}")) == TEXTS
        assert len(find(f"{base}/*/*-live-range.txt")) == 1
        assert len(find(f"{base}/**/*-live-range.txt*")) == 2
        for tar in ("d.tar", "d.tgz"):
            assert [contents(s) for s in find(f"{base}/{tar}")] == [TEXTS] * 3
        assert len(find(base)) == 9
        with resolve(f"{base}/d/stdout.txt").members[1].load() as text:
            assert text.position(0)[0] == (frames().encode()[: text.base - 6].count(b"\n") + 2)
        for missing in ("/d/nothing", "/e*"):
            with pytest.raises(UsageError, match=r"does not exist|no dump in"):
                find(base + missing)
    finally:
        memory.rm(root, recursive=True)


@pytest.mark.parametrize(
    ("root", "opened"),
    [
        ("gs://b", "gs://b?retry_limit_seconds=30"),
        ("gcs://b?endpoint_override=c", "gcs://b?endpoint_override=c&retry_limit_seconds=30"),
        ("gs://b?retry_limit_seconds=5", "gs://b?retry_limit_seconds=5"),
        ("gs://b?a=1&retry_limit_seconds=5", "gs://b?a=1&retry_limit_seconds=5"),
        ("s3://gs", "s3://gs"),
    ],
)
def test_google_is_tried_for_half_a_minute(root: str, opened: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network, its library would try for fifteen."""
    asked: list[str] = []

    def from_uri(uri: str) -> tuple[None, str]:
        asked.append(uri)
        return None, ""

    monkeypatch.setattr(filesystems, "arrow_fs", SimpleNamespace(FileSystem=SimpleNamespace(from_uri=from_uri)))
    assert filesystems._arrow_filesystem.__wrapped__(root) == (None, "")
    assert asked == [opened]


def test_pyarrow_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyarrow import fs

    write(tmp_path / "a b")
    away = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_arrow_filesystem", lambda root: (away, "") if root == "away://?r=1" else None)
    (dump,) = find("away:///a%20b?r=1")
    assert contents(dump) == TEXTS
    assert dump.members[0].uri == f"away:///a%20b/{STEM}-buffer-assignment.txt?r=1"
    assert len(find("away:///?r=1")) == 1
    assert contents(resolve(f"away:///a%20b/{STEM}?r=1")) == TEXTS
    assert contents(resolve("away:///*/*-live-range.txt?r=1")) == TEXTS


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 25])
def test_large_files_of_a_server_are_read_in_blocks(
    n: int, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not the server reports their size."""
    from pyarrow import fs

    class Info(NamedTuple):
        type: fs.FileType
        size: int | None
        mtime_ns: int

    class System:
        def get_file_info(self, path: str) -> Info:
            return Info(fs.FileType.File, n if known else None, 0)

        def open_input_file(self, path: str) -> object:
            return fs.LocalFileSystem().open_input_file(path)

        def open_input_stream(self, path: str, compression: None) -> object:
            return fs.LocalFileSystem().open_input_stream(path, compression=compression)

    (tmp_path / "x").write_bytes(data := bytes(range(n)))
    for name, size in (("MAX_IN_MEMORY", 10), ("BLOCK_SIZE", 4)):
        monkeypatch.setattr(files, name, size)
    monkeypatch.setattr(filesystems, "filesystem", lambda uri: (System(), str(tmp_path / "x")))
    view = files.open_file("away://x")
    assert view.size == n
    assert isinstance(view.read(), mmap.mmap) == (n > 10)
    for begin, end in ((0, n), (0, None), (3, n), (2, n - 1)):
        if begin <= (n if end is None else end):
            assert bytes(view.read(begin, end)) == data[begin:end]


def test_names_that_uris_quote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Globs match them, and each dump is found once, however its URI is quoted."""
    from pyarrow import fs

    write(tmp_path / "a" / "date=2026-01-01" / "x y")
    (tmp_path / "a" / "date=2026-01-01" / "run+1.log").write_text(ALLOCATIONS)
    away = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_arrow_filesystem", lambda root: (away, "") if root == "gs://b" else None)
    for below in ("date=2026-01-01", "date%3D2026-01-01", "d*[=]2026-01-01"):
        assert len(find(f"gs://b/*/{below}/x y/*")) == len(find(f"gs://b/*/{below}/x%20y/*")) == 1
        assert len(find(f"gs://b/**/{below}/**")) == 2
    day = "gs://b/a/date=2026-01-01"
    for again in (day, f"{day}/*/*", f"{day}/x y", f"{day}/x%20y/{STEM}", f"{day}/run+1.log", f"{day}/run%2B1.log"):
        assert len(find("gs://b", again)) == len(find(again, "gs://b")) == 2


def test_hlo_text_that_a_uri_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with paths, it is a dump only if the user names it."""
    from pyarrow import fs

    write(tmp_path / "d", texts={"hlo": HLO})
    away = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_arrow_filesystem", lambda root: (away, "") if root == "gs://b" else None)
    for uri in (f"gs://b/d/{STEM}.txt", f"gs://b/d/{STEM}"):
        for paths in ((uri,), (uri, "gs://b/d"), ("gs://b/d", uri)):
            sources, _ = find_all(*paths)
            assert [contents(source) for source in sources] == [{"hlo": HLO}]
    with pytest.raises(NoDumpError, match="there is HLO text"):
        find("gs://b/d")


def test_what_is_not_at_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names what was given."""
    from pyarrow import fs

    write(tmp_path / "d")
    away = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_arrow_filesystem", lambda root: (away, "") if root == "gs://b" else None)
    for uri in ("gs://b/nothing", "gs://b/nothing/*.txt", "gs://b/d/module_0001"):
        with pytest.raises(UsageError) as caught:
            find(uri)
        assert str(caught.value).startswith(f"{uri} does not exist: ")
    with pytest.raises(NoDumpError, match=r"no dump in gs://b/d/\*\.gz: searched for"):
        find("gs://b/d/*.gz")


def test_a_number_sign_in_a_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a character of the name, as in object stores, and begins no fragment."""
    from pyarrow import fs

    write(tmp_path / "x")
    write(tmp_path / "x#1", "module_0001.jit_g.cpu_after_optimizations")
    away = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    monkeypatch.setattr(filesystems, "_arrow_filesystem", lambda root: (away, "") if root == "gs://b?r=1" else None)
    for base in ("gs://b", f"file://{tmp_path}"):
        query = "?r=1" if base == "gs://b" else ""
        assert len(find(f"{base}/{query}")) == 2
        for again in ("x#1", "x%231", "x#1/module_0001.jit_g.cpu_after_optimizations"):
            (dump,) = find(f"{base}/{again}{query}")
            assert (dump.name, contents(dump)) == ("module_0001.jit_g.cpu_after_optimizations", TEXTS)


@pytest.mark.parametrize("uri", [False, True])
def test_globs_give_what_the_named_files_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: bool) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(input_contents, "MAX_SEARCHED", 10)
    write(tmp_path / "d")
    write(tmp_path / "d", "module_0001.jit_g.cpu_after_optimizations")
    write(tmp_path / "d", "module_0002.jit_h.cpu_after_optimizations", {"hlo": HLO})  # no dump, unless it is named
    (tmp_path / "d" / "module_0000.jit_f.debug_options").write_text("a: 1\n")
    (tmp_path / "d" / "train.log").write_text("hello\n" * 9 + ALLOCATIONS)
    for path in tmp_path.rglob("*.*"):
        memory.pipe_file(str(path), path.read_bytes())
    base = f"memory://{tmp_path}/d" if uri else f"{tmp_path}/d"
    try:
        names = [STEM, "module_0001.jit_g.cpu_after_optimizations", "train.log"]
        assert [s.name for s in find(f"{base}/*")] == names
        assert [s.name for s in find(f"{base}/*.txt")] == names[:2]
        (dump,) = find(f"{base}/*.jit_f.*-live-range.txt")
        assert contents(dump) == {**TEXTS, "debug-options": "a: 1\n"}
    finally:
        memory.rm(str(tmp_path), recursive=True)


@pytest.mark.parametrize(
    ("glob", "matches"),
    [
        ("*[0a]", "0a"),
        ("*[!0a]", "1[]"),
        ("*[]a]", "a]"),
        ("*[![]", "01a]"),
        ("x[", "["),
        ("*[abc", ""),
        ("x[]", ""),
        ("*[z-a]", ""),
        (r"*[\d]", ""),
        (r"*[a\]", "a"),
    ],
)
def test_classes_in_globs_are_those_of_local_paths(tmp_path: Path, glob: str, matches: str) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for end in "01a[]":
        memory.pipe_file(f"/{tmp_path.name}/x{end}/a.txt", ALLOCATIONS.encode())
        (tmp_path / f"x{end}").mkdir()
        (tmp_path / f"x{end}" / "a.txt").write_text(ALLOCATIONS)
    try:
        for base in (f"memory:///{tmp_path.name}", str(tmp_path)):
            if matches:
                assert [s.location[-1] for s in find(f"{base}/{glob}/*.txt")] == sorted(matches)
            else:
                with pytest.raises(UsageError, match="no dump in"):
                    find(f"{base}/{glob}/*.txt")
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)


@pytest.mark.parametrize(
    ("glob", "location", "matches"),
    [
        ("gs://b/a%20]*", "gs://b/a ]x", True),
        ("gs://b/[a%20*", "gs://b/[a x", True),
        ("gs://b/a.txt*", "gs://b/axtxt", False),
        ("gs://b/*/c", "gs://b/a/c", True),
        ("gs://b/*/c", "gs://b/a/a/c", False),
        ("gs://b/**/c", "gs://b/c", True),
        ("gs://b/**/c", "gs://b/a/a/c", True),
        ("gs://b/**c", "gs://b/a/a/xc", True),
        ("gs://b/*", "gs://b/a\n", True),
        ("gs://b/a*c", "gs://b/abcd", False),
    ],
)
def test_what_a_glob_for_uris_matches(glob: str, location: str, matches: bool) -> None:
    assert (filesystems.glob_pattern(glob, unquote).match(location) is not None) == matches


def test_filesystems_of_uris() -> None:
    """Those of pyarrow are preferred; others are those of fsspec, which does not quote."""
    from pyarrow import fs

    pytest.importorskip("fsspec")
    for uri, path in (("mock:///a%20b/c/", "/a b/c"), ("mock:///a#b", "/a#b"), ("mock:///", "/")):
        system, found = filesystems.filesystem(uri)
        assert (type(system), found) == (fs._MockFileSystem, path)
        assert filesystems.decoder(uri)("a%20b") == "a b"
    system, found = filesystems.filesystem("memory://a%20b/c/")
    assert (type(system), found) == (fs.PyFileSystem, "/a%20b/c")
    assert filesystems.decoder("memory://a")("a%20b") == "a%20b"
    assert filesystems.decoder("mock:///x::mock:///y")("a%20b") == "a%20b"


def test_a_slash_at_the_end_of_a_path_of_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some filesystems keep it."""
    core = pytest.importorskip("fsspec.core")
    monkeypatch.setattr(core, "url_to_fs", lambda uri: (core.get_filesystem_class("memory")(), uri.partition("//")[2]))
    assert [filesystems.filesystem(uri)[1] for uri in ("own://a/b/", "own://a/b")] == ["a/b", "a/b"]


def test_real_directories_of_files_under_their_own_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link with another name is a file of the directory that contains the link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("")
    (tmp_path / "links").mkdir()
    (tmp_path / "alias").symlink_to("links")
    for name in ("a.txt", "A.txt", "b.txt"):
        (tmp_path / "links" / name).symlink_to("../real/a.txt")
    monkeypatch.chdir(tmp_path / "links")
    real = os.path.realpath(tmp_path)
    for path, folder in (
        (f"{tmp_path}/alias/a.txt", "real"), (f"{tmp_path}/alias/A.txt", "links"), (f"{tmp_path}/alias/b.txt", "links"),
        ("a.txt", "real"), ("b.txt", "links"), ("../alias/b.txt", "links"), ("../real/a.txt", "real"),
    ):  # fmt: skip
        assert walk._real_paths(path) == (f"{real}/{folder}", f"{real}/real/a.txt"), path


def test_a_file_that_a_server_does_not_have() -> None:
    with pytest.raises(FileNotFoundError, match=r"^no such file$"):
        files.open_file("mock:///nothing")
    with pytest.raises(DumpError, match=r"^mock:///nothing: expected a readable file \(no such file\)$"):
        Member("hlo", "mock:///nothing").load()


def test_unknown_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot open nowhere://x"):
        find("nowhere://x")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UsageError, match=r"pip install 'xlamem\[uri\]'"):
        find("memory://x")


def test_one_of_several_directories_is_empty(tmp_path: Path) -> None:
    """A hint would not say which one."""
    for name in "ab":
        (tmp_path / name).mkdir()
    (tmp_path / "b" / "x.json").write_text("{}")
    with pytest.raises(NoDumpError) as caught:
        find_all(tmp_path / "a", tmp_path / "b")
    assert caught.value.hint == ""
    with pytest.raises(NoDumpError) as caught:
        find_all(tmp_path / "a")
    assert caught.value.hint.startswith("the directory is empty")


@pytest.mark.parametrize("query", ["", "?region=eu", "?a=x.txt"])
@pytest.mark.parametrize("search", [True, False])
def test_listed_files_are_known_by_their_names(query: str, search: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever follows the name in the URI."""
    walker, added = Walker(), []  # type: tuple[Walker, list[tuple[str, str, bool | None]]]
    monkeypatch.setattr(
        walker._contents, "add_file", lambda uri, path, search=None: added.append((uri.partition("?")[0], path, search))
    )
    kinds: dict[str, bool | None] = {
        "a.tar": None, "a.tgz": None, "a.tar.gz": None, "A.ZIP": None, "a.txt": search, "a.log": search, "a": search,
        "a.txt.gz": search, "a.log.xz": search,
    }  # fmt: skip
    skipped = ["a.pb", "a.hlo", ".a.txt", "module_0001.jit_f.x.txt", "a.csv", "a.gz.tmp"]
    for name in (*kinds, *skipped):
        walker._add_listed(f"s3://b/{name}{query}", name, "s3://b", f"key of {name}", search=search)
    assert added == [(f"s3://b/{name}", f"key of {name}", kind) for name, kind in kinds.items()]
    assert not walker.groups
    walker._add_listed(f"s3://b/{STEM}-live-range.txt.gz{query}", f"{STEM}-live-range.txt.gz", "s3://b", "k")
    (source,) = walker.groups.sources()
    assert [member.role for member in source.members] == ["live-range"]
