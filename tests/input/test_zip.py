"""Zip archives: like tars, but without decompressing more than is read; broken and hostile ones."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import pickle
import random
import stat
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import DUMPS, texts
from small_dumps import ALLOCATIONS, LIVE, LOG, PACK, STEM, TEXTS, contents, frames, write

import xlamem
from xlamem.cli import main
from xlamem.errors import DumpError, UsageError
from xlamem.input import contents as input_contents
from xlamem.input import files
from xlamem.input.containers import zip_entries as input_zip
from xlamem.input.find import find, resolve
from xlamem.input.names import EXTENSIONS

METHODS = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
ASSIGNMENT = f"{STEM}{EXTENSIONS['buffer-assignment']}"


def zip_of(directory: Path, path: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """All files below a directory, under its name."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for file in sorted(directory.rglob("*")):
            archive.write(file, file.relative_to(directory.parent))
    return path


def zip_with(path: Path, entries: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return path


Field = tuple[int, str, int]
"""Offset in a header, format and value."""


def patched(path: Path, name: str, *fields: Field, local: tuple[Field, ...] = ()) -> Path:
    """Change fields of an entry's header in the directory, and of the local one before its data."""
    data = bytearray(path.read_bytes())
    for header, changes in ((local_header(data, name), local), (data.rindex(name.encode()) - 46, fields)):
        for offset, kind, value in changes:
            struct.pack_into(kind, data, header + offset, value)
    path.write_bytes(data)
    return path


def local_header(data: bytes | bytearray, name: str) -> int:
    return data.index(name.encode()) - 30


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Name and decompressed bytes of each read of an entry."""
    log: list[tuple[str, int]] = []
    read = input_zip._EntryFile.read

    def counted(self: input_zip._EntryFile, n: int | None = -1) -> bytes:
        data = read(self, n)
        log.append((self.name, len(data)))
        return data

    monkeypatch.setattr(input_zip._EntryFile, "read", counted)
    files._CACHE.clear()
    return log


# ---- as for tars


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("packed", ["", *PACK])
def test_zips(tmp_path: Path, method: str, packed: str) -> None:
    for number in range(20):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations", packed="gz" if number % 2 else "")
    (tmp_path / "d" / "more.txt").write_text("hello\n" + ALLOCATIONS + ALLOCATIONS)
    (tmp_path / "d" / "oracle.json").write_text("{}")
    path = zip_of(tmp_path / "d", tmp_path / "d.zip", METHODS[method])
    if packed:
        path = tmp_path / f"x.zip.{packed}"
        path.write_bytes(PACK[packed]((tmp_path / "d.zip").read_bytes()))
    found = find(path)
    assert [s.module_id for s in found] == [*range(20), None, None]
    assert all(contents(s) == TEXTS for s in found[:20])
    assert found[0].location == f"{path}::d"
    assert found[0].members[0].file_name == "module_0000.jit_f.cpu_after_optimizations-buffer-assignment.txt"
    assert found[0].bytes_on_disk() == sum(map(len, TEXTS.values()))
    assert found[1].bytes_on_disk() == sum(len(PACK["gz"](text.encode())) for text in TEXTS.values())
    with found[21].members[0].load() as text:
        assert bytes(text.data).decode() == ALLOCATIONS
        assert text.position(0) == (5, len("hello\n" + ALLOCATIONS))
        assert text.uri == f"{path}::d/more.txt"


def test_nested_folders_and_directories(tmp_path: Path) -> None:
    for folder in ("d/vm_10", "d/vm_9", "d/vm_9/more"):
        write(tmp_path / folder)
    path = zip_of(tmp_path / "d", tmp_path / "d.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"d/{ASSIGNMENT}/", b"")
        archive.writestr(f"__MACOSX/d/._{ASSIGNMENT}", b"\0\1")
    found = find(path)
    assert [s.location for s in found] == [f"{path}::d/{folder}" for folder in ("vm_9", "vm_9/more", "vm_10")]
    assert [contents(s) for s in found] == [TEXTS] * 3


@pytest.mark.parametrize("packed", PACK)
def test_entries_that_are_compressed_again(tmp_path: Path, packed: str) -> None:
    write(tmp_path / "d", packed=packed)
    (tmp_path / "d" / f"log.txt.{packed}").write_bytes(PACK[packed](b"hello\n" + ALLOCATIONS.encode()))
    for method in METHODS.values():
        one, two = find(zip_of(tmp_path / "d", tmp_path / "d.zip", method))
        assert contents(one) == {"buffer-assignment": "hello\n" + ALLOCATIONS}
        assert contents(two) == TEXTS


def test_frames_and_logs_in_entries(tmp_path: Path) -> None:
    logged = "".join(LOG + line + "\n" for line in ALLOCATIONS.splitlines())
    path = zip_with(tmp_path / "x.zip", {"a/stdout.txt": "hello\n" + frames(), "a/train.log": "hello\n" + logged})
    framed, log = find(path)
    assert contents(framed) == TEXTS
    assert (framed.name, framed.location) == (STEM, f"{path}::a")
    assert contents(log) == {"buffer-assignment": ALLOCATIONS}
    with log.members[0].load() as text:
        assert text.position(0) == (2, len("hello\n" + LOG))


@pytest.mark.parametrize("method", METHODS)
def test_diagnostics_name_the_entry(tmp_path: Path, method: str) -> None:
    """Lines and offsets are counted in the entry, also where its lines end in CR LF."""
    text = ALLOCATIONS.replace("thread-local", "thread-local, odd").replace("\n", "\r\n")
    path = zip_with(tmp_path / "x.zip", {"first": b"x" * 999, f"a/{ASSIGNMENT}": text}, METHODS[method])
    (row,) = (r for r in xlamem.read(path).diagnostics.to_pylist() if r["code"] == "unknown_field")
    assert row["file"] == f"{path}::a/{ASSIGNMENT}"
    assert (row["line"], row["offset"]) == (2, text.index(", odd"))


def test_the_later_entry_of_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(ASSIGNMENT, "BufferAssignment:\nold\n")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(ASSIGNMENT, ALLOCATIONS)
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}


def test_links_are_skipped(tmp_path: Path) -> None:
    info = zipfile.ZipInfo(f"{STEM}-live-range.txt")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: ALLOCATIONS})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(info, "elsewhere.txt")
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}


def test_stored_entries_are_read_in_place(tmp_path: Path, reads: list[tuple[str, int]]) -> None:
    for method, are_read in ((zipfile.ZIP_STORED, False), (zipfile.ZIP_DEFLATED, True)):
        path = zip_with(tmp_path / f"{method}.zip", {ASSIGNMENT: ALLOCATIONS}, method)
        assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}
        assert bool(reads) == are_read


def test_only_regular_files_are_entries(tmp_path: Path) -> None:
    """Whatever their permissions; some tools write no mode."""
    kinds = {
        "none": 0, "file": stat.S_IFREG, "setuid": stat.S_IFREG | stat.S_ISUID | 0o777, "permissions": 0o7777,
        "link": stat.S_IFLNK, "folder": stat.S_IFDIR, "socket": stat.S_IFSOCK, "pipe": stat.S_IFIFO,
        "device": stat.S_IFCHR, "disk": stat.S_IFBLK,
    }  # fmt: skip
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, mode in kinds.items():
            info = zipfile.ZipInfo(f"{name}/{ASSIGNMENT}")
            info.external_attr = mode << 16 | 0xFFFF
            archive.writestr(info, ALLOCATIONS)
    found = [s.location.rpartition("::")[2] for s in find(tmp_path / "x.zip")]
    assert found == ["file", "none", "permissions", "setuid"]


def test_names(tmp_path: Path) -> None:
    """Backslashes as some tools of Windows write them, and letters that are not ASCII."""
    path = zip_with(tmp_path / "x.zip", {f"café/{ASSIGNMENT}": ALLOCATIONS, f"zzz/{ASSIGNMENT}": ALLOCATIONS})
    path.write_bytes(path.read_bytes().replace(b"zzz/module", b"zzz\\module"))
    found = find(path)
    assert [s.location for s in found] == [f"{path}::café", f"{path}::zzz"]
    assert [contents(s) for s in found] == [{"buffer-assignment": ALLOCATIONS}] * 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", ["ZIP64_LIMIT", "ZIP_FILECOUNT_LIMIT"])
def test_zip64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, limit: str) -> None:
    """Sizes and offsets of 64 bits, as large archives have them; here from the first bytes or entries on."""
    write(tmp_path / "d")
    with monkeypatch.context() as patch:
        patch.setattr(zipfile, limit, 3)
        path = zip_of(tmp_path / "d", tmp_path / "d.zip", METHODS[method])
    assert b"PK\6\6" in path.read_bytes()
    assert [contents(s) for s in find(path)] == [TEXTS]


def test_text_before_the_archive_and_a_comment(tmp_path: Path) -> None:
    """As in an archive that unpacks itself."""
    write(tmp_path / "d")
    path = zip_of(tmp_path / "d", tmp_path / "d.zip")
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"of two lines\nPK"
    path.write_bytes(b"#!/bin/sh\n" * 50 + path.read_bytes())
    assert [contents(s) for s in find(path)] == [TEXTS]


@pytest.mark.parametrize("wrap", [bytes, io.BytesIO, gzip.compress])
def test_bytes_of_a_zip(tmp_path: Path, wrap: Callable[[bytes], bytes]) -> None:
    write(tmp_path / "d", packed="gz")
    data = zip_of(tmp_path / "d", tmp_path / "d.zip").read_bytes()
    assert contents(resolve(wrap(data))) == TEXTS


def test_a_zip_of_another_name(tmp_path: Path) -> None:
    write(tmp_path / "d")
    path = zip_of(tmp_path / "d", tmp_path / "archive")
    assert contents(resolve(path)) == TEXTS


def test_large_entries_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_IN_MEMORY", 1000)
    text = ALLOCATIONS * 3000
    for method in METHODS.values():
        path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: text}, method)
        files._CACHE.clear()
        with resolve(path, module=None).members[0].load() as loaded:
            assert isinstance(loaded.data, memoryview)
            assert loaded.data.readonly
            assert bytes(loaded.data).decode() == text
    assert contents(find(path)[0]) == {"buffer-assignment": text}


# ---- pickling, reading, converting


@pytest.mark.parametrize("method", METHODS)
def test_members_are_pickled(tmp_path: Path, method: str) -> None:
    write(tmp_path / "d")
    dump = resolve(zip_of(tmp_path / "d", tmp_path / "d.zip", METHODS[method]))
    copy = pickle.loads(pickle.dumps(dump))
    assert copy == dump
    assert hash(copy.members[0]) == hash(dump.members[0])
    files._CACHE.clear()
    assert contents(copy) == TEXTS


def test_a_zip_is_read_and_converted_like_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")[0]
    for role, data in texts(source).items():
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / "d" / f"{source.name}{EXTENSIONS[role]}").write_bytes(data)  # type: ignore[index]
    path = zip_of(tmp_path / "d", tmp_path / "d.zip")
    zipped, plain = xlamem.read(path), xlamem.read(tmp_path / "d")
    for name in ("allocations", "values", "live_ranges", "uses", "diagnostics"):
        assert zipped[name].equals(plain[name]), name
    result = xlamem.convert(path, to=tmp_path / "out", engine="here")
    assert not result.failed
    dataset = xlamem.Dataset(tmp_path / "out")
    assert dataset.read(dataset.ids[0])["values"].num_rows == plain["values"].num_rows
    assert main(["info", str(path)]) == 0
    assert f"{path.name}::d" in capsys.readouterr().out


def test_remote_zips(tmp_path: Path) -> None:
    memory = pytest.importorskip("fsspec").filesystem("memory")
    write(tmp_path / "d", packed="xz")
    write(tmp_path / "d" / "vm_2")
    for method in METHODS:
        zip_of(tmp_path / "d", tmp_path / f"{method}.zip", METHODS[method])
        memory.pipe_file(f"/{tmp_path.name}/{method}.zip", (tmp_path / f"{method}.zip").read_bytes())
    base = f"memory:///{tmp_path.name}"
    try:
        for method in METHODS:
            found = find(f"{base}/{method}.zip")
            assert [contents(s) for s in found] == [TEXTS] * 2
            assert found[0].location == f"{base}/{method}.zip::d"
            assert contents(pickle.loads(pickle.dumps(found[1]))) == TEXTS
        assert len(find(base)) == 4
        memory.pipe_file(f"/{tmp_path.name}/cut.zip", (tmp_path / "stored.zip").read_bytes()[:-9])
        (fault,) = (s.fault for s in find(base) if s.fault)
        assert fault.path == f"{base}/cut.zip"
    finally:
        memory.rm(f"/{tmp_path.name}", recursive=True)


# ---- no more is decompressed than is read


def test_listing_decompresses_nothing(tmp_path: Path, reads: list[tuple[str, int]]) -> None:
    for number in range(30):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    (tmp_path / "d" / "module_0000.jit_f.before_optimizations.txt").write_text("HloModule\n" * 1000)
    path = zip_of(tmp_path / "d", tmp_path / "d.zip")
    found = find(path)
    assert (len(found), reads) == (30, [])
    assert contents(found[7]) == TEXTS
    assert {name for name, _ in reads} == {f"d/{found[7].name}{e}" for e in EXTENSIONS.values()}


def test_many_members_open_the_directory_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[tuple[str, int]]
) -> None:
    for number in range(200):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    path = zip_of(tmp_path / "d", tmp_path / "d.zip")
    opened = []
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", _counted(zipfile.ZipFile._RealGetContents, opened))
    assert all(contents(s) == TEXTS for s in find(path))
    assert len(opened) == 1
    assert sum(size for _, size in reads) == 200 * sum(map(len, TEXTS.values()))


def _counted(function: Callable[..., object], calls: list[object]) -> Callable[..., object]:
    return lambda *args: calls.append(args) or function(*args)


def test_other_texts_are_searched_at_their_beginning(tmp_path: Path, reads: list[tuple[str, int]]) -> None:
    """A bomb that is no member costs 16 MiB: its first 16 MiB hold no dump."""
    large = bytes(4 * input_contents.MAX_SEARCHED)
    path = zip_with(tmp_path / "x.zip", {"bomb.txt": large, "twice.txt.gz": gzip.compress(large), ASSIGNMENT: "x\n"})
    assert [s.name for s in find(path)] == [STEM]
    assert {name for name, _ in reads} == {"bomb.txt", "twice.txt.gz"}
    assert sum(size for name, size in reads if name == "bomb.txt") == input_contents.MAX_SEARCHED
    assert sum(size for name, size in reads if name == "twice.txt.gz") < 4 * len(gzip.compress(large))


def test_found_texts_are_decompressed_once(tmp_path: Path, reads: list[tuple[str, int]]) -> None:
    path = zip_with(tmp_path / "x.zip", {"all.txt": ALLOCATIONS * 50})
    found = find(path)
    searched = sum(size for _, size in reads)
    assert searched == 2 * 50 * len(ALLOCATIONS)  # its beginning, and all of it because a dump begins there
    assert [contents(s) for s in found] == [{"buffer-assignment": ALLOCATIONS}] * 50
    assert sum(size for _, size in reads) == searched


# ---- broken and hostile archives


def faults(path: Path) -> dict[str, DumpError]:
    """The sources that cannot be read, by name; each raises its error when it is read, also after pickling."""
    faulty = {s.name: s for s in find(path) if s.fault}
    for source in faulty.values():
        copy = pickle.loads(pickle.dumps(source))
        assert str(copy.fault) == str(source.fault)
        for dump in (source, copy):
            (member,) = dump.members
            with pytest.raises(DumpError) as caught:
                member.load()
            assert str(caught.value) == str(source.fault)
    return {name: s.fault for name, s in faulty.items() if s.fault}


def two_dumps(path: Path, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """One member each; the second one is to be damaged."""
    good = {f"good/{STEM}{EXTENSIONS[role]}": text for role, text in TEXTS.items()}  # type: ignore[index]
    return zip_with(path, {**good, f"bad/{ASSIGNMENT}": ALLOCATIONS * 9}, method)


def check_damage(path: Path, message: str) -> None:
    """The damaged entry gives a clear error; the others are read."""
    bad, good = find(path)
    assert contents(good) == TEXTS
    assert bad.location == f"{path}::bad"
    with pytest.raises(DumpError, match=message) as caught:
        bad.members[0].load()
    assert caught.value.path == f"{path}::bad/{ASSIGNMENT}"
    assert not caught.value.system


FLAGS, METHOD, CRC, STORED, SIZE, OFFSET = 8, 10, 16, 20, 24, 42
"""Offsets in an entry's header in the directory."""


def test_an_encrypted_entry(tmp_path: Path) -> None:
    path = patched(two_dumps(tmp_path / "x.zip"), f"bad/{ASSIGNMENT}", (FLAGS, "<H", 1), local=((6, "<H", 1),))
    check_damage(path, "expected an entry without encryption")
    assert list(faults(path)) == [STEM]
    with pytest.raises(UsageError, match=r"unreadable: .*bad/.*expected an entry without encryption"):
        resolve(path)


def test_encrypted_flags(tmp_path: Path) -> None:
    """A dump can be read without them."""
    flags = "module_0000.jit_f.debug_options"
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: ALLOCATIONS, flags: "a: 1\n"})
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS, "debug-options": "a: 1\n"}
    patched(path, flags, (FLAGS, "<H", 1))
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}


def test_an_encrypted_text_of_another_name(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "x.zip", {f"a/{ASSIGNMENT}": ALLOCATIONS, "a/notes.txt": "x", "a/notes.md": "x"})
    for name in ("a/notes.txt", "a/notes.md"):
        patched(path, name, (FLAGS, "<H", 1))
    assert {name: str(fault) for name, fault in faults(path).items()} == {
        "notes.txt": f"{path}::a/notes.txt: expected an entry without encryption"
    }


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_methods(tmp_path: Path, method: int) -> None:
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: ALLOCATIONS * 9}, method)
    assert f"stored or deflated, not compressed by method {method}" in str(faults(path)[STEM])


def test_damaged_content(tmp_path: Path) -> None:
    path = two_dumps(tmp_path / "x.zip")
    data = bytearray(path.read_bytes())
    data[local_header(data, f"bad/{ASSIGNMENT}") + 30 + len(f"bad/{ASSIGNMENT}") + 20] ^= 255
    path.write_bytes(data)
    check_damage(path, r"bytes of zip data \((Bad CRC|Error -3)")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ((CRC, "<I", 7), "Bad CRC-32"),
        ((SIZE, "<I", 100), "100 bytes of zip data"),
        ((SIZE, "<I", 9 * len(ALLOCATIONS) + 1), "it ends early"),
        ((SIZE, "<I", 1 << 31), r"an entry of at most [0-9,]+ bytes, not 2,147,483,648"),
        ((STORED, "<I", 10), r"bytes of zip data|an entry of at most"),
        ((STORED, "<I", 1 << 31), "ends before the next one begins"),
        ((OFFSET, "<I", 0), "ends before the next one begins"),
        ((OFFSET, "<I", 7), "ends before the next one begins|the header of a zip entry"),
        ((OFFSET, "<I", 1 << 31), "ends before the next one begins"),
    ],
)
def test_absurd_headers(tmp_path: Path, field: tuple[int, str, int], message: str) -> None:
    path = patched(two_dumps(tmp_path / "x.zip"), f"bad/{ASSIGNMENT}", field)
    bad = next(s for s in find(path) if s.location.endswith("::bad"))
    with pytest.raises(DumpError, match=message):
        bad.members[0].load()


def test_a_stored_entry_has_its_size(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: ALLOCATIONS}, zipfile.ZIP_STORED)
    patched(path, ASSIGNMENT, (SIZE, "<I", len(ALLOCATIONS) + 1))
    wanted = f"an entry of at most {len(ALLOCATIONS)} bytes, not {len(ALLOCATIONS) + 1}"
    assert wanted in str(faults(path)[STEM])


def test_a_local_header_that_is_none(tmp_path: Path) -> None:
    path = patched(two_dumps(tmp_path / "x.zip"), f"bad/{ASSIGNMENT}", local=((0, "<I", 0),))
    check_damage(path, "the header of a zip entry at byte [0-9,]+ of the archive")


def test_no_more_than_the_size_is_decompressed(tmp_path: Path, reads: list[tuple[str, int]]) -> None:
    """A bomb that says that it is small."""
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: bytes(50 << 20)})
    patched(path, ASSIGNMENT, (SIZE, "<I", 1000))
    with pytest.raises(DumpError, match="1,000 bytes of zip data"):
        find(path)[0].members[0].load()
    assert sum(size for _, size in reads) <= 1000


def test_entries_that_share_their_bytes(tmp_path: Path) -> None:
    """As in bombs of petabytes: thousands of entries, all of one stream."""
    stems = [f"module_{i:04d}.jit_f.cpu_after_optimizations" for i in range(50)]
    path = zip_with(tmp_path / "x.zip", {f"{s}-live-range.txt": LIVE for s in stems})
    for stem in stems:
        patched(path, f"{stem}-live-range.txt", (OFFSET, "<I", 0))
    assert {f.wanted for f in faults(path).values()} == {"an entry that ends before the next one begins"}
    assert len(faults(path)) == 50


def test_truncated_zips(tmp_path: Path) -> None:
    write(tmp_path / "in")
    whole = two_dumps(tmp_path / "x.zip").read_bytes()
    for end in (0, 3, 4, 100, len(whole) // 2, len(whole) - 23, len(whole) - 1):
        (tmp_path / "in" / "x.zip").write_bytes(whole[:end])
        broken, good = sorted(find(tmp_path / "in"), key=lambda s: s.fault is None)
        assert contents(good) == TEXTS
        assert str(broken.fault).startswith(f"{tmp_path}/in/x.zip: expected a complete zip archive (")
        assert broken.fault is not None
        assert not broken.fault.system


@pytest.mark.parametrize("data", [b"PK\5\6" + bytes(18), b"PK\6\6" + b"\xff" * 52 + b"PK\6\7" + bytes(16) + b"PK\5\6"])
def test_archives_without_entries(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(data.ljust(22, b"\xff"))
    if data.startswith(b"PK\5\6"):
        with pytest.raises(UsageError, match="no dump in"):
            find(path)
    else:
        assert "a complete zip archive" in str(find(path)[0].fault)


def test_what_is_named_a_zip(tmp_path: Path) -> None:
    """Its bytes say what it is; if they say nothing, it is a broken zip."""
    write(tmp_path / "d")
    (tmp_path / "x.zip").write_bytes(bz2.compress(zip_of(tmp_path / "d", tmp_path / "y").read_bytes()))
    assert contents(resolve(tmp_path / "x.zip")) == TEXTS
    (tmp_path / "x.zip").write_text(ALLOCATIONS)
    assert "a complete zip archive" in str(find(tmp_path / "x.zip")[0].fault)


def test_a_zip_that_changed(tmp_path: Path) -> None:
    path = two_dumps(tmp_path / "x.zip")
    found = find(path)
    zip_with(path, {"other.txt": os.urandom(5000)})
    files._CACHE.clear()
    for source in found:
        with pytest.raises(DumpError):
            source.members[-1].load()
    os.remove(path)
    with pytest.raises(DumpError, match="a readable file") as caught:
        found[0].members[0].load()
    assert caught.value.system


@pytest.mark.parametrize("method", METHODS)
def test_random_damage(tmp_path: Path, method: str) -> None:
    """A text or a DumpError."""
    rng = random.Random(method)
    path = two_dumps(tmp_path / "x.zip", METHODS[method])
    whole = path.read_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 5, 50])):
            data[rng.choice([rng.randrange(len(data)), len(data) - 1 - rng.randrange(700)])] = rng.randrange(256)
        path.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            found = find(path)
        except UsageError:
            continue
        for member in (m for source in found for m in source.members):
            with suppress(DumpError):
                member.load().close()


def test_a_thread_per_member(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for number in range(40):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    found = find(zip_of(tmp_path / "d", tmp_path / "d.zip"))
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(contents, found)) == [TEXTS] * 40


def test_dumps_of_a_zip_are_arrow_tables(tmp_path: Path) -> None:
    path = zip_with(tmp_path / "x.zip", {ASSIGNMENT: ALLOCATIONS})
    assert isinstance(xlamem.read(path).allocations, pa.Table)
