"""Compressed files and tar archives."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import random
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from small_dumps import ALLOCATIONS, LIVE, PACK, STEM, TEXTS, contents, tar_of, write

from xlamem.errors import DumpError
from xlamem.input import containers, decompression, files
from xlamem.input.compression import Codec
from xlamem.input.decompression import CHUNK_SIZE, READ_SIZE
from xlamem.input.files import FileView
from xlamem.input.find import find, resolve
from xlamem.input.names import EXTENSIONS


@pytest.mark.parametrize("packed", PACK)
def test_compressed_members(tmp_path: Path, packed: str) -> None:
    write(tmp_path, texts={"buffer-assignment": ALLOCATIONS})
    write(tmp_path, texts={r: t for r, t in TEXTS.items() if r != "buffer-assignment"}, packed=packed)
    assert [contents(s) for s in find(tmp_path)] == [TEXTS]
    assert contents(resolve(f"{tmp_path / STEM}-live-range.txt.{packed}")) == TEXTS


def test_plain_is_preferred_but_the_named_file_wins(tmp_path: Path) -> None:
    stem = write(tmp_path, packed="gz")
    write(tmp_path)
    live = tmp_path / f"{STEM}-live-range.txt.gz"
    assert all(m.uri.endswith(".txt") for m in resolve(tmp_path).members)
    assert [m.uri for m in resolve(live).members if m.role == "live-range"] == [f"{stem}-live-range.txt.gz"]


def test_compression_by_content_and_misleading_names(tmp_path: Path) -> None:
    name = f"{STEM}-buffer-assignment.txt"
    (tmp_path / name).write_bytes(bz2.compress(ALLOCATIONS.encode()))
    (tmp_path / f"{STEM}-live-range.txt.gz").write_text(LIVE)
    assert contents(resolve(tmp_path)) == {"buffer-assignment": ALLOCATIONS, "live-range": LIVE}


@pytest.mark.parametrize("packed", PACK)
def test_streams_one_after_the_other(tmp_path: Path, packed: str) -> None:
    half = len(ALLOCATIONS) // 2
    data = PACK[packed](ALLOCATIONS[:half].encode()) + PACK[packed](ALLOCATIONS[half:].encode())
    if packed != "zst":
        data += bytes(64)
    assert contents(resolve(data)) == {"buffer-assignment": ALLOCATIONS}


@pytest.mark.parametrize("packed", PACK)
def test_streams_longer_than_what_is_read_at_once(packed: str) -> None:
    """All but those of zstd may be padded with zeros."""
    noise = random.Random(1).randbytes(3 * READ_SIZE // 2) + bytes(CHUNK_SIZE + 1)
    first, second = PACK[packed](noise), PACK[packed](noise[::-1])
    for padding in (0,) if packed == "zst" else (0, 1, READ_SIZE - 1, READ_SIZE, 2 * READ_SIZE):
        data = first + bytes(padding) + second + bytes(padding)
        assert FileView.from_bytes("x", data).decompressed().read() == noise + noise[::-1]


@pytest.mark.parametrize(("codec", "packed"), [("gzip", "gz"), ("bzip2", "bz2"), ("xz", "xz"), ("zstd", "zst")])
def test_each_codec_reads_its_own_format_only(codec: Codec, packed: str) -> None:
    others = {**PACK, "zlib": zlib.compress, "lzma": partial(lzma.compress, format=lzma.FORMAT_ALONE)}
    for name, pack in others.items():
        chunks = decompression.decompress(io.BytesIO(pack(b"text" * 9)), codec, "x")
        if name == packed:
            assert b"".join(chunks) == b"text" * 9
        else:
            with pytest.raises(DumpError, match=f"{codec} data"):
                list(chunks)


@pytest.mark.parametrize("codec", ["gzip", "bzip2", "xz", "zstd"])
def test_what_cannot_be_read_is_no_fault_of_the_content(codec: Codec) -> None:
    class Unreadable(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def read(self, size: int = -1) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(DumpError, match=r"^x: expected a readable file \(Input/output error\)$") as caught:
        list(decompression.decompress(Unreadable(), codec, "x"))
    assert caught.value.system
    with pytest.raises(DumpError, match=codec) as caught:
        list(decompression.decompress(io.BytesIO(b"text"), codec, "x"))
    assert (caught.value.offset, caught.value.system) == (0, False)


@pytest.mark.parametrize("packed", PACK)
def test_broken_compression(tmp_path: Path, packed: str) -> None:
    path = tmp_path / f"{STEM}-buffer-assignment.txt.{packed}"
    noise = b"".join(os.urandom(50).hex().encode() + b"\n" for _ in range(6_000))
    whole = PACK[packed](b"BufferAssignment:\n" + noise)
    for data in (whole[:-30], whole[: len(whole) // 2], whole[:200_000] + bytes(40) + whole[200_040:], b"\x01"):
        path.write_bytes(data)
        member = resolve(path).members[0]
        with pytest.raises(DumpError, match=STEM) as caught:
            member.load()
        assert caught.value.path == str(path)
        assert caught.value.offset is not None or data == b"\x01"


@pytest.mark.parametrize("packed", PACK)
def test_broken_files_of_unknown_name_stop_nothing(tmp_path: Path, packed: str) -> None:
    write(tmp_path)
    noise = b"".join(os.urandom(50).hex().encode() + b"\n" for _ in range(6_000))
    (tmp_path / f"log.txt.{packed}").write_bytes(PACK[packed](ALLOCATIONS.encode() + noise)[:-30])
    (tmp_path / f"more.tar.{packed}").write_bytes(b"\x02" * 40)
    broken, whole, more = find(tmp_path)
    assert contents(whole) == TEXTS
    for dump in (broken, more, pickle.loads(pickle.dumps(broken))):
        with pytest.raises(DumpError):
            dump.members[0].load()


@pytest.mark.parametrize("mode", ["", "gz", "xz", "bz2", "zst"])
def test_tars(tmp_path: Path, mode: str) -> None:
    for number in range(20):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations", packed="gz" if number % 2 else "")
    (tmp_path / "d" / "more.txt").write_text("hello\n" + ALLOCATIONS + ALLOCATIONS)
    (tmp_path / "d" / "oracle.json").write_text("{}")
    path = tar_of(tmp_path / "d", tmp_path / "plain.tar")
    if mode:
        path = tmp_path / f"d.tar.{mode}"
        path.write_bytes(PACK[mode]((tmp_path / "plain.tar").read_bytes()))
    found = find(path)
    assert [s.module_id for s in found] == [*range(20), None, None]
    assert all(contents(s) == TEXTS for s in found[:20])
    assert found[0].location == f"{path}::d"
    assert (
        found[0]
        .members[0]
        .file_name.startswith(f"module_0000.jit_f.cpu_after_optimizations{EXTENSIONS['buffer-assignment']}")
    )
    with found[21].members[0].load() as text:
        assert bytes(text.data).decode() == ALLOCATIONS
        assert text.position(0) == (5, len("hello\n" + ALLOCATIONS))
        assert text.uri == f"{path}::d/more.txt"


def test_a_compressed_tar_is_decompressed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    path = tar_of(tmp_path / "d", tmp_path / "d.tgz", "w:gz")
    files._CACHE.clear()
    calls = []
    decompress = decompression.decompress
    monkeypatch.setattr(decompression, "decompress", lambda *a: calls.append(a) or decompress(*a))
    assert all(contents(s) == TEXTS for s in find(path))
    assert len(calls) == 1
    os.utime(path, ns=(1, 1))
    find(path)
    assert len(calls) == 2


def test_long_streams_go_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_IN_MEMORY", 1000)
    files._CACHE.clear()
    write(tmp_path / "d")
    path = tar_of(tmp_path / "d", tmp_path / "d.tgz", "w:gz")
    dump = resolve(path)
    assert contents(dump) == TEXTS
    assert contents(dump) == TEXTS
    path = tmp_path / f"{STEM}-buffer-assignment.txt.gz"
    path.write_bytes(gzip.compress(ALLOCATIONS.encode() * 50))
    assert [contents(s) for s in find(path)] == [{"buffer-assignment": ALLOCATIONS * 50}]


def test_no_space_for_a_long_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the fault of the system, not of the content."""

    class Full(io.BytesIO):
        def write(self, chunk: Any) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda max_size: Full())
    with pytest.raises(DumpError, match=r"free space in .* \(No space left on device\)") as caught:
        files.spool("x", [b"a"])
    assert (caught.value.path, caught.value.system) == ("x", True)


def test_a_truncated_tar(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    path = tar_of(tmp_path / "d", tmp_path / "d.tar")
    with tarfile.open(path) as tar:
        last = sorted(info.offset_data for info in tar)[-1]
    path.write_bytes(path.read_bytes()[: last + 3])
    found = find(path)
    assert sum(len(s.members) for s in found[1:]) >= 14
    with pytest.raises(DumpError, match="a complete tar archive"):
        found[0].members[0].load()


def test_the_later_entry_of_a_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "d.tar"
    with tarfile.open(path, "w") as tar:
        for text in ("BufferAssignment:\nold\n", ALLOCATIONS):
            info = tarfile.TarInfo(f"{STEM}-buffer-assignment.txt")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}


@pytest.mark.parametrize("order", [("", "gz"), ("gz", "")])
def test_plain_entries_are_preferred(tmp_path: Path, order: tuple[str, ...]) -> None:
    """Wherever they are in the archive, of flags too, as in a directory."""
    folder = tmp_path / "d"
    write(folder)
    flags = folder / "module_0000.jit_f.debug_options"
    flags.write_text("a: 1\n")
    for path in sorted(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(PACK["gz"](b"HloLiveRange (max 9):\n"))
    wanted = {**TEXTS, "debug-options": "a: 1\n"}
    with tarfile.open(tmp_path / "d.tar", "w") as tar:
        for end in order:
            for path in sorted(p for p in folder.iterdir() if (p.suffix == ".gz") == (end == "gz")):
                tar.add(path, arcname=path.name)
    assert contents(resolve(tmp_path / "d.tar")) == wanted
    assert contents(resolve(folder)) == wanted


def test_a_tar_with_a_header_of_terabytes(tmp_path: Path) -> None:
    """An extended header is read into memory: of this size it cannot be."""
    path = tmp_path / "x.tar"
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.XHDTYPE, 1 << 45
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    (found,) = find(path)
    assert found.fault is not None
    assert "a complete tar archive" in str(found.fault)


@pytest.mark.parametrize("library", [tarfile, zipfile])
@pytest.mark.parametrize(("text", "reason"), [("it is odd", "it is odd"), ("", "ValueError")])
def test_the_reason_why_an_archive_is_not_complete(
    library: Any, text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is that of the library, or else the name of its error."""
    kind = {tarfile: "tar", zipfile: "zip"}[library]
    (tmp_path / f"x.{kind}").write_bytes({"tar": tarfile.TarInfo("x").tobuf(), "zip": b"PK\5\6" + bytes(18)}[kind])

    def fail(*arguments: Any, **options: Any) -> None:
        raise ValueError(*([text] if text else []))

    monkeypatch.setattr(library, {"tar": "open", "zip": "ZipFile"}[kind], fail)
    (found,) = find(tmp_path / f"x.{kind}")
    assert f"a complete {kind} archive ({reason})" in str(found.fault)


# -- views of files


DATA = b"".join(b"line %d of some text%s\n" % (i, b"\n" * (i % 3)) for i in range(200))


def views(tmp_path: Path) -> Iterator[tuple[str, files.FileView]]:
    """The same bytes, held in each way."""
    yield "bytes", files.FileView.from_bytes("b", DATA)
    yield "keyed", files.FileView.from_bytes("b", memoryview(DATA), ("k", len(DATA)))
    yield "part", files.FileView.from_bytes("b", b"\n\nx" + DATA + b"y\n", ("k", 1)).slice("p", 3, 3 + len(DATA))
    yield "part of a part", files.FileView.from_bytes("b", b"12" + DATA).slice("p", 1, 9999).slice("q", 1, 9999)
    yield "stream", files.FileView.from_stream("s", len(DATA), ("s", 1), lambda: io.BytesIO(DATA))
    (tmp_path / "file").write_bytes(DATA)
    yield "file", files.open_file(str(tmp_path / "file"))
    for name, pack in PACK.items():
        (tmp_path / f"file.{name}").write_bytes(pack(DATA))
        yield name, files.open_decompressed(str(tmp_path / f"file.{name}"))
        yield f"{name} twice", files.FileView.from_bytes("b", pack(pack(DATA))).decompressed().decompressed()
    entries = {"before": b"z\n" * 9, "it": DATA, "after": b"z\n"}
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / f"{method}.zip", "w", method) as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
    for container in ("t.tar", f"{zipfile.ZIP_STORED}.zip", f"{zipfile.ZIP_DEFLATED}.zip"):
        opened = files.open_file(str(tmp_path / container))
        kind = containers.recognize(container, opened)
        assert kind is not None
        (entry,) = (e for e in kind.entries(opened) if e.name == "it")
        yield container, entry.open(opened)


@pytest.mark.parametrize("mapped", [False, True])
def test_views_are_like_bytes(mapped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if mapped:
        monkeypatch.setattr(files, "MIN_MAPPED", 1)
        monkeypatch.setattr(files, "MAX_IN_MEMORY", 1)
    monkeypatch.setattr(files, "BLOCK_SIZE", 100)
    size, places = len(DATA), [0, 1, 99, 100, 101, 4000, len(DATA) - 1, len(DATA), len(DATA) + 7]
    for name, view in views(tmp_path):
        assert view.size == size, name
        assert bytes(view.read()) == DATA, name
        for begin in places:
            assert bytes(view.read(begin)) == DATA[begin:], name
            for end in places:
                assert bytes(view.read(begin, end)) == DATA[begin : max(begin, end)], (name, begin, end)
                part = view.slice("part", begin, max(begin, end))
                assert bytes(part.read(1, 50)) == DATA[begin : max(begin, end)][1:50], (name, begin, end)
            assert view.head(begin) == DATA[:begin], (name, begin)
        for end in [*places[:-1], 100, 4000, 0, 1, size]:
            assert view.count_newlines(end) == DATA[:end].count(b"\n"), (name, end)
        assert view.decompressed().size == size, name


@pytest.mark.parametrize("seed", range(3))
def test_views_open_as_files(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    for name, view in views(tmp_path):
        with view.open() as found, io.BytesIO(DATA) as expected:
            for _ in range(30):
                if chance.random() < 0.3:
                    offset = chance.choice([0, 5, 4000, len(DATA)])
                    assert found.seek(offset) == expected.seek(offset), name
                n = chance.choice([0, 0, 1, 10, 3000, None])
                assert found.read(n) == expected.read(n), (name, n)
                assert found.tell() == expected.tell(), (name, n)
