"""How files are written, named and deleted: in which order, what survives a power failure, and what is left behind."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pytest
from conftest import DUMPS

import xlamem
from xlamem import UsageError, schema
from xlamem.warehouse import storage as storage_module
from xlamem.warehouse.batch import Batch, File
from xlamem.warehouse.ledger import Ledger
from xlamem.warehouse.storage import TEMPORARY, Storage, absolute, s3_endpoint

posix = pytest.mark.skipif(os.name != "posix", reason="folders cannot be flushed")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is flushed, named and deleted, in order. Folders end with a slash, and tokens of names are left out."""
    done: list[str] = []

    def plain(path: Any) -> str:
        name = Path(path).name
        return ("new " + name[1:].rsplit(".", 2)[0]) if name.endswith(TEMPORARY) else name

    def recorded(name: str, describe: Callable[..., str]) -> None:
        function = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            done.append(f"{name} {describe(*args)}")
            return result

        monkeypatch.setattr(os, name, call)

    def flushed(descriptor: int) -> str:
        path = os.readlink(f"/proc/self/fd/{descriptor}") if os.path.exists("/proc/self/fd") else ""
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        size = "" if is_folder else f" {os.fstat(descriptor).st_size}"
        return plain(path) + "/" * is_folder + size

    recorded("fsync", flushed)
    recorded("link", lambda old, new: f"{plain(old)} {plain(new)}")
    recorded("replace", lambda old, new: f"{plain(old)} {plain(new)}")
    recorded("unlink", lambda path: plain(path))
    return done


def tree(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


@posix
def test_an_entry_is_on_the_disk_before_it_has_its_name(tmp_path: Path, calls: list[str]) -> None:
    found = Storage(tmp_path)
    assert found.create("a/b/entry", b"12345") is True
    assert calls == ["fsync new entry 5", "link new entry entry", "unlink new entry", "fsync b/"]
    calls.clear()
    assert found.create("a/b/entry", b"other") is False
    assert calls == ["fsync new entry 5", "unlink new entry"]
    assert tree(tmp_path) == {"a/b/entry": "12345"}


@posix
def test_files_are_named_when_they_are_complete(tmp_path: Path, calls: list[str]) -> None:
    found = Storage(tmp_path)
    found.write("a/x", b"1")
    found.write("a/x", b"22")
    assert calls == ["replace new x x"] * 2
    calls.clear()
    staged = [found.staged(f"{folder}/x.parquet") for folder in "bbc"]
    assert len({*staged}) == 3
    for i, name in enumerate(staged):
        hidden = name.rpartition("/")[2]
        assert hidden.startswith(".x.parquet.")
        assert hidden.endswith(TEMPORARY)
        with found.open_staged(name) as stream:
            stream.write(bytes(str(i), "ascii"))
    found.sync(staged)
    assert sorted(calls) == ["fsync new x.parquet 1"] * 3
    calls.clear()
    published = found.publish([*staged, "d/not-staged"])
    assert sorted(calls[-2:]) == ["fsync b/", "fsync c/"]
    assert published[staged[0]] == "b/x.parquet"
    assert published[staged[1]] == f"b/x-{staged[1].split('.')[-2]}.parquet"
    assert published[staged[2]] == "c/x.parquet"
    assert calls[0] == "link new x.parquet x.parquet"
    found.delete(staged)
    assert tree(tmp_path) == {"a/x": "22", "b/x.parquet": "0", published[staged[1]]: "1", "c/x.parquet": "2"}
    again = found.staged("c/x.parquet")
    (tmp_path / again).write_text("")
    (tmp_path / "c" / f"x-{again.split('.')[-2]}.parquet").write_text("")
    with pytest.raises(FileExistsError):
        found.publish([again])


@posix
@pytest.mark.parametrize("is_full", [False, True])
def test_files_that_are_flushed_are_closed(is_full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, real = [], os.open  # type: tuple[list[int], Any]
    (tmp_path / "a").write_bytes(b"1")

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "open", lambda *args: opened.append(real(*args)) or opened[-1])
    if is_full:
        monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space") if is_full else nullcontext():
        Storage(tmp_path).sync(["a"])
    assert len(opened) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


@posix
def test_files_of_a_dataset_are_on_the_disk_before_the_ledger_names_them(tmp_path: Path, calls: list[str]) -> None:
    xlamem.convert(DUMPS / "cpu-jaxlib-0.5.3-tuple3", to=tmp_path, engine="here")
    entries = [i for i, call in enumerate(calls) if call.startswith("link") and call.endswith(".json")]
    assert len(entries) == 3  # the occurrences, the dump, the end of the run
    flushed = {call.split()[2]: i for i, call in enumerate(calls) if call.startswith("fsync new")}
    named = {call.split()[-1]: i for i, call in enumerate(calls) if call.startswith("link")}
    files = [name for name in named if name.endswith(".parquet")]
    assert {path.name for path in tmp_path.rglob("*.parquet")} <= {*files}
    folders = [i for i, call in enumerate(calls) if call.startswith("fsync") and call.endswith("/")]
    for name in files:
        entry = next(i for i in entries if i > named[name])
        assert flushed[name] < named[name] < next(i for i in folders if i > named[name]) < entry, name
    assert not [*tmp_path.rglob(f"*{TEMPORARY}")]


def test_a_commit_leaves_no_staged_file(tmp_path: Path) -> None:
    found = Storage(tmp_path)
    log = Ledger(found)
    for number in range(2):
        name = found.staged("values/v2/x.parquet")
        with found.open_staged(name) as stream:
            stream.write(b"x")
        batch_id, files = f"{number:032x}", (File("values", name, 1, 1),)
        batch = Batch(batch_id, (batch_id,), (), files, "1", schema.VERSION, "r")
        assert log.commit(batch) == set()
    assert not [*tmp_path.rglob(f"*{TEMPORARY}")]
    assert sorted(f.path for f in log.state.files()) == sorted(n for n in tree(tmp_path) if n.endswith(".parquet"))


def test_what_fails_leaves_no_file(tmp_path: Path) -> None:
    found = Storage(tmp_path)
    with pytest.raises(ZeroDivisionError), found.open_staged(found.staged("a/x.parquet")):
        raise ZeroDivisionError
    assert tree(tmp_path) == {}
    with pytest.raises(OSError, match="directory"):
        found.write("a", b"")  # a folder
    assert tree(tmp_path) == {}


def test_folders_are_deleted_when_they_are_empty(tmp_path: Path) -> None:
    found = Storage(tmp_path)
    for name in ("a/b/c/1", "a/b/c/2", "a/3", "d/e/4", "5"):
        found.write(name, name.encode())
    found.delete(["a/b/c/1", "a/b/c/missing", "missing/6"])
    assert sorted(tree(tmp_path)) == ["5", "a/3", "a/b/c/2", "d/e/4"]
    found.delete(["a/b/c/2", "d/e/4"])
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")) == ["5", "a", "a/3"]
    found.delete(["a/3", "5"])
    assert tmp_path.is_dir() is False or not [*tmp_path.iterdir()]


def test_files_are_listed_with_their_sizes(tmp_path: Path) -> None:
    found = Storage(tmp_path)
    for name, size in {"a/2": 2, "a/10": 0, "a/b/1": 3, "c": 1}.items():
        found.write(name, b"x" * size)
    assert found.files("a") == [("a/10", 0), ("a/2", 2), ("a/b/1", 3)]
    assert found.files("a", recursive=False) == [("a/10", 0), ("a/2", 2)]
    assert found.files("") == [("a/10", 0), ("a/2", 2), ("a/b/1", 3), ("c", 1)]
    assert found.files("missing") == []
    assert found.exist(["c", "a/2"]) is True
    assert found.exist(["c", "missing"]) is False
    assert found.exist(["a"]) is False
    assert (found.read("c"), found.read("missing")) == (b"x", None)
    assert (found.path("c"), found.path("")) == (f"{tmp_path}/c", str(tmp_path))
    assert found.uri_of("c") == f"{tmp_path}/c"


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("s3://b/x", "s3://b/x/c?d"), ("s3://b/x/", "s3://b/x/c?d"), ("s3://b/x?region=eu", "s3://b/x/c?d?region=eu"),
        ("s3://b/x/?region=a&scheme=b?", "s3://b/x/c?d?region=a&scheme=b?"),
    ],
)  # fmt: skip
def test_uris_of_files_in_a_store(uri: str, wanted: str) -> None:
    """The query, which says where the store is, stays at the end."""
    storage: Any = SimpleNamespace(uri=uri, local=False)
    assert Storage.uri_of(storage, "c?d") == wanted


def test_a_filesystem_that_needs_folders(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    found = Storage(f"local://{tmp_path}/new", single_writer=True)
    found.write("a/b/small", b"1")
    with found.open_staged(found.staged("c/d/large")) as stream:
        stream.write(b"2")
    assert found.create("e/entry", b"3") is True
    assert found.create("e/entry", b"3") is False
    assert tree(tmp_path) == {"new/a/b/small": "1", "new/c/d/large": "2", "new/e/entry": "3"}


def test_in_memory() -> None:
    pytest.importorskip("fsspec")
    found = Storage("memory://test_storage/x")
    assert (found.local, found.shared) == (False, False)
    assert found.staged("a") == "a"
    assert found.create("a", b"1") is True
    assert found.create("a", b"2") is False
    assert found.create("a", b"1") is True  # a request that is repeated because the answer was lost
    assert found.read("a") == b"1"
    found.check_conditional_create()
    assert found.publish(["a"]) == {}
    assert found.files("") == [("a", 1)]
    alone = Storage("memory://test_storage/y", single_writer=True)
    assert [alone.create("b", b"1"), alone.create("b", b"1")] == [True, False]
    with pytest.raises(UsageError, match="has no conditional writes"):
        Storage(f"local://{os.getcwd()}").create("a", b"")


def test_a_server_that_ignores_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    for answers, is_refused in (([True, False], False), ([True, True], True), ([False, False], True)):
        replies = iter(answers)
        monkeypatch.setattr(Storage, "create", lambda self, name, data, replies=replies: next(replies))
        found = Storage("memory://test_storage/z")
        if is_refused:
            with pytest.raises(UsageError, match="ignores conditional writes"):
                found.check_conditional_create()
        else:
            found.check_conditional_create()


@pytest.mark.parametrize(
    ("uri", "endpoint", "region", "options"),
    [
        ("s3://b/x", None, None, {}),
        ("s3://b/x?region=eu", None, "eu", {"client_kwargs": {"region_name": "eu"}}),
        ("s3://b?endpoint_override=h:9", "https://h:9", None, {"endpoint_url": "https://h:9"}),
        ("s3://b?endpoint_override=h&scheme=http", "http://h", None, {"endpoint_url": "http://h"}),
        ("s3://b?endpoint_override=http://h&scheme=https", "http://h", None, {"endpoint_url": "http://h"}),
        ("s3://k:s%2F1@b/x", None, None, {"key": "k", "secret": "s/1"}),
        ("s3://k%40@b/x?region=a&region=b", None, "b",
         {"client_kwargs": {"region_name": "b"}, "key": "k@", "secret": ""}),
    ],
)  # fmt: skip
def test_uris_of_s3(uri: str, endpoint: str | None, region: str | None, options: dict[str, Any]) -> None:
    assert s3_endpoint(uri) == (endpoint, region)
    assert storage_module._s3fs_options(uri) == options


def test_paths_and_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("a/../b") == f"{tmp_path}/b"
    assert absolute("-") == "-"
    assert absolute("s3://b/../c") == "s3://b/../c"
    assert Storage("FILE://" + str(tmp_path)).root == str(tmp_path)


@pytest.mark.parametrize("error", [ImportError("no s3fs"), ValueError("no protocol")])
@pytest.mark.parametrize(
    ("scheme", "library", "extra"),
    [("s3", "s3fs", "s3"), ("s3a", "s3fs", "s3"), ("gs", "gcsfs", "gcs"), ("az", "adlfs", "azure")],
)
def test_a_store_whose_library_is_missing(
    scheme: str, library: str, extra: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever fsspec says about it, the message says what to install."""
    failures = [error, LookupError("another error")]

    def fail(uri: str) -> None:
        raise failures.pop(0)

    monkeypatch.setattr(storage_module, "open_fsspec", fail)
    found: Any = SimpleNamespace(uri=f"{scheme}://b/x")
    with pytest.raises(UsageError, match=rf"{scheme}:// needs {library} .*'xlamem\[{extra}\]'; .*--single-writer"):
        Storage._open_fsspec(found, scheme)
    with pytest.raises(LookupError, match="another error"):
        Storage._open_fsspec(found, scheme)


def test_which_storage_is_checked_for_conditional_writes() -> None:
    created: list[str] = []
    fields = {"uri": "s3://b", "delete": lambda names: None}

    def create(name: str, data: bytes) -> bool:
        created.append(name)
        return len(created) == 1

    for local, single_writer in ((True, False), (False, True), (True, True)):
        found: Any = SimpleNamespace(local=local, single_writer=single_writer, create=create, **fields)
        Storage.check_conditional_create(found)
    assert not created
    found = SimpleNamespace(local=False, single_writer=False, create=create, **fields)
    Storage.check_conditional_create(found)
    assert len(created) == 2


def test_listings_are_not_taken_from_a_cache() -> None:
    """Other processes write and delete files: what fsspec remembers is forgotten before files are looked for."""
    calls: list[str] = []
    infos = [arrow_fs.FileInfo("b/x/a", arrow_fs.FileType.File, size=3)]
    found: Any = SimpleNamespace(
        path=lambda name: f"b/x/{name}".rstrip("/"),
        _fsspec=SimpleNamespace(invalidate_cache=lambda: calls.append("forget")),
        system=SimpleNamespace(get_file_info=lambda _: (calls.append("look"), infos)[1]),
    )
    assert Storage.exist(found, ["a"])
    assert Storage.files(found, "") == [("a", 3)]
    assert calls == ["forget", "look"] * 2
    found._fsspec = None
    assert Storage.exist(found, ["a"])
    assert Storage.files(found, "") == [("a", 3)]


def test_files_of_a_filesystem_of_arrow(tmp_path: Path) -> None:
    """They are read as a stream; one that is missing is no error."""
    (tmp_path / "a").write_bytes(b"data")
    found: Any = SimpleNamespace(
        local=False, _fsspec=None, system=arrow_fs.LocalFileSystem(), path=lambda name: str(tmp_path / name)
    )
    assert (Storage.read(found, "a"), Storage.read(found, "b")) == (b"data", None)


def test_what_a_damaged_file_raises() -> None:
    """Neither a lack of memory nor an interruption is its fault."""
    found: Any = SimpleNamespace(uri_of=lambda name: f"u/{name}")
    for error in (MemoryError(), pa.ArrowCancelled("by Ctrl-C")):
        with pytest.raises(type(error)), Storage.parquet_errors(found, "a"):
            raise error
    for damage, wanted in (
        (FileNotFoundError(), storage_module.GONE), (OSError("bad\nx"), "a Parquet file (bad)"),
        (pa.ArrowInvalid("bad"), "a Parquet file (bad)"),
    ):  # fmt: skip
        with pytest.raises(xlamem.errors.DumpError) as caught, Storage.parquet_errors(found, "a"):
            raise damage
        assert (caught.value.path, caught.value.wanted) == ("u/a", wanted)


@pytest.mark.parametrize("library", ["s3fs", "fsspec"])
@pytest.mark.parametrize("is_given", [False, True])
def test_the_filesystem_for_conditional_writes(library: str, is_given: bool) -> None:
    """It is opened unless the storage is one of fsspec already, and must be one that has them."""
    system: Any = type("System", (), {"__module__": f"{library}.core"})()
    opened: list[str] = []
    found: Any = SimpleNamespace(
        uri="S3://b/x", shared=True, _fsspec=system if is_given else None,
        _open_fsspec=lambda scheme: (opened.append(scheme), system)[1],
    )  # fmt: skip
    get = Storage.__dict__["_conditional_filesystem"].func
    if library == "s3fs":
        assert get(found) is system
    else:
        with pytest.raises(UsageError, match="s3:// has no conditional writes"):
            get(found)
    assert opened == ([] if is_given else ["s3"])


def test_what_is_written_to_a_store_is_not_written_here(tmp_path: Path) -> None:
    written: dict[str, bytearray] = {}

    class Stream(bytearray):
        def write(self, data: bytes) -> None:
            self.extend(data)

    found: Any = SimpleNamespace(
        local=False, path=lambda name: f"{tmp_path}/{name}",
        _open_remote=lambda path: nullcontext(written.setdefault(path, Stream())),
    )  # fmt: skip
    Storage.write(found, "a/b", b"text")
    assert written == {f"{tmp_path}/a/b": b"text"}
    assert not [*tmp_path.iterdir()]
