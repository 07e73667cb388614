"""Files that are made to take all memory, time or disk: a stated result, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import stat
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import DumpError, UsageError
from xlamem.cli import main
from xlamem.input import decompression
from xlamem.input.spans import member_spans

HEAD = b"BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n"
VALUE = b" value: <0 a @0> (size=8,offset=0): "
SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)  # type: ignore[no-any-return]


CODECS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress), ("zstd", zstd),
]  # fmt: skip


@pytest.mark.parametrize(("codec", "compress"), CODECS)
def test_bombs(codec: str, compress: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = compress(HEAD + bytes(8 << 20))
    seen: list[int] = []
    monkeypatch.setattr(decompression, "MIN_LIMITED", 1 << 20)
    monkeypatch.setattr(decompression, "MAX_RATIO", 500)
    with pytest.raises(DumpError, match="at most 500 bytes per compressed byte"):
        seen.extend(map(len, decompression.decompress(io.BytesIO(bomb), codec, "bomb")))  # type: ignore[arg-type]
    assert max(seen) <= decompression.CHUNK_SIZE
    assert sum(seen) <= 3 << 20
    monkeypatch.setenv("XLAMEM_MAX_RATIO", "10000000")
    monkeypatch.setenv("XLAMEM_MAX_DECOMPRESSED", "3000000")
    with pytest.raises(DumpError, match="at most 3,000,000 bytes after decompression"):
        list(decompression.decompress(io.BytesIO(bomb), codec, "bomb"))  # type: ignore[arg-type]
    monkeypatch.setenv("XLAMEM_MAX_DECOMPRESSED", "30000000")
    chunks = list(decompression.decompress(io.BytesIO(bomb), codec, "bomb"))  # type: ignore[arg-type]
    assert b"".join(chunks) == HEAD + bytes(8 << 20)


def test_the_largest_sizes_after_decompression() -> None:
    check = decompression._check_size
    for sizes in ((30, 3, 10, 30), (10, 0, 10, 10), (0, 0, 1, 0)):
        check("x", *sizes)
    for sizes in ((31, 3, 10, 99), (11, 0, 10, 99), (11, 1, 10, 99)):
        with pytest.raises(DumpError, match="at most 10 bytes per compressed byte"):
            check("x", *sizes)
    with pytest.raises(DumpError, match="at most 29 bytes after decompression"):
        check("x", 30, 3, 10, 29)


def test_compressed_bytes_are_counted_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = decompression._SystemErrorFile(io.BytesIO(b"abcde"), "x")
    assert [file.tell(), file.read(3), file.tell(), file.read(), file.tell()] == [0, b"abc", 3, b"de", 5]
    monkeypatch.setattr(decompression, "MIN_LIMITED", 0)
    data, compressed = bytes(1000), gzip.compress(bytes(1000))
    for ratio, is_allowed in ((len(data) // len(compressed) + 1, True), (len(data) // len(compressed), False)):
        monkeypatch.setattr(decompression, "MAX_RATIO", ratio)
        with nullcontext() if is_allowed else pytest.raises(DumpError, match="at most"):
            assert b"".join(decompression.decompress(io.BytesIO(compressed), "gzip", "x")) == data


@pytest.mark.parametrize(("codec", "compress"), CODECS)
def test_concatenated_streams(codec: str, compress: Callable[[bytes], bytes]) -> None:
    parts = [bytes([i]) * 3_000_000 for i in range(3)]
    whole = b"".join(map(compress, parts))
    chunks = decompression.decompress(io.BytesIO(whole), codec, "x")  # type: ignore[arg-type]
    assert b"".join(chunks) == b"".join(parts)


def test_devices_and_pipes(tmp_path: Path) -> None:
    for path in ("/dev/zero", "/dev/null"):
        with pytest.raises(DumpError, match="a file, a directory or a pipe"):
            xlamem.read(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = (SMALL / "module_0000.jit_m_scan_while.cpu_after_optimizations-buffer-assignment.txt").read_bytes()
    writer = threading.Thread(target=lambda: pipe.write_bytes(text))
    writer.start()
    assert xlamem.read(pipe).allocations.num_rows > 0  # named, it is read to its end
    writer.join()
    (tmp_path / "x.cpu_after_optimizations-buffer-assignment.txt").symlink_to(pipe)
    with pytest.raises(DumpError, match="a pipe, a socket or a device"):
        xlamem.read(tmp_path).allocations  # noqa: B018


def test_dictionaries_of_gigabytes() -> None:
    """An xz header decides how much memory the decompressor takes."""
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 512 << 20}]
    bomb = lzma.compress(HEAD, filters=filters)
    with pytest.raises(DumpError, match="Memory usage limit exceeded"):
        xlamem.read(io.BytesIO(bomb))
    assert xlamem.read(io.BytesIO(lzma.compress(HEAD, preset=9))).allocations.num_rows == 1


def test_windows_of_gigabytes() -> None:
    """A zstd frame does so too."""
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=30)
    bomb = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    with pytest.raises(DumpError, match="requires too much memory"):
        xlamem.read(bomb.compress(HEAD) + bomb.flush()).allocations  # noqa: B018


def _tar_of(*infos: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info in infos:
            tar.addfile(info, io.BytesIO(HEAD[: info.size]))
    return file.getvalue()


def _tar_entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = len(HEAD)) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return info


MEMBER = "m.cpu_after_optimizations-buffer-assignment.txt"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_archives(kind: bytes, tmp_path: Path) -> None:
    """They are no files of the archive: nothing outside of it is read."""
    (tmp_path / "outside").write_bytes(HEAD)
    entries = [_tar_entry(f"a/{MEMBER}", kind, str(tmp_path / "outside")), _tar_entry(f"b/{MEMBER}")]
    (tmp_path / "x.tar").write_bytes(_tar_of(*entries))
    (source,) = xlamem.find(tmp_path / "x.tar")
    assert source.location.endswith("::b")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        info = zipfile.ZipInfo(MEMBER)
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, str(tmp_path / "outside"))
    with pytest.raises(UsageError, match="no dump"):
        xlamem.find(tmp_path / "x.zip")


def test_names_that_leave_the_archive(tmp_path: Path) -> None:
    """They are labels: entries are read in place and never written."""
    names = [f"/etc/{MEMBER}", f"../../{MEMBER}", f"a/../b/{MEMBER}"]
    (folder := tmp_path / "in").mkdir()
    (folder / "x.tar").write_bytes(_tar_of(*map(_tar_entry, names)))
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, HEAD)
    sources = xlamem.find(folder)
    assert [xlamem.read(s).allocations.num_rows for s in sources] == [1] * 6
    xlamem.convert(folder, to=tmp_path / "out", engine="here")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


def test_sparse_files_in_archives(tmp_path: Path) -> None:
    """Their bytes in the archive are not those of the file."""
    header = bytearray(_tar_of(_tar_entry(f"a/{MEMBER}"))[:1024])
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[257:265] = b"ustar  \0"
    header[386:410] = b"%011o\0%011o\0" % (512, len(HEAD))
    header[483:495] = b"%011o\0" % (512 + len(HEAD))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    other = _tar_of(_tar_entry(f"b/{MEMBER}"))
    (tmp_path / "x.tar").write_bytes(bytes(header) + other)
    with tarfile.open(tmp_path / "x.tar") as tar:
        assert [info.issparse() for info in tar] == [True, False]
    (source,) = xlamem.find(tmp_path / "x.tar")
    assert source.location.endswith("::b")


@pytest.mark.parametrize("size", [10**18, -512, -(1 << 62)])
def test_absurd_sizes_in_archives(size: int, tmp_path: Path) -> None:
    """A negative size leads back to the same header."""
    header = bytearray(_tar_of(_tar_entry(f"a/{MEMBER}"))[:512])
    header[124:136] = (size % (1 << 96)).to_bytes(12, "big")
    header[124] |= 0x80
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path = tmp_path / "x.tar"
    path.write_bytes(bytes(header) + bytes(10240))
    faults = [str(source.fault) for source in xlamem.find(path) if source.fault]
    assert len(faults) == 1
    assert "a complete tar archive" in faults[0]


def test_archives_in_archives(tmp_path: Path) -> None:
    """They are not opened: a bomb of nested archives stays small."""
    inner = _tar_of(_tar_entry(MEMBER))
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("inner.tar", inner)
        archive.writestr("inner.txt", inner)
    with pytest.raises(UsageError, match="no dump"):
        xlamem.find(tmp_path / "x.zip")


def test_directories_of_the_kernel() -> None:
    """They lead to all other files."""
    if not os.path.exists("/proc/self/root"):
        pytest.skip("no /proc")
    with pytest.raises((UsageError, DumpError)):
        xlamem.read("/proc/self")


@pytest.mark.parametrize("text", [b"*** Begin ", b"*** Begin x *** ", b"BufferAssignment (", b"HloLiveRange ("])
def test_heads_repeated_on_one_line(text: bytes) -> None:
    """Each took time that grows with the square of the line."""
    data = b"I1120 12:03:29.928370   18058 x.cc:1] " + text * 100_000 + b"\n" + HEAD
    assert member_spans(data)[-1].begin in (0, len(data) - len(HEAD))


@pytest.mark.parametrize(
    "text",
    [
        HEAD + b"x" * 50_000_000 + b"\n",
        HEAD + b"\n" * 1_000_000 + VALUE + b"f32[2]{0}\n",
        HEAD + VALUE.replace(b"a", b"a" * 10_000_000) + b"f32[2]{0}\n",
        HEAD + VALUE + b"(" * 1_000_000 + b"f32[2]{0}" + b")" * 1_000_000 + b"\n",
        HEAD + VALUE + b"b(" * 1_000_000 + b"f32[2]{0}" + b")" * 1_000_000 + b"\n",
    ],
    ids=["line", "empty lines", "name", "tuples", "buffers"],
)
def test_extremes(text: bytes) -> None:
    dump = xlamem.read(io.BytesIO(text))
    dump.verify()
    assert dump.allocations.num_rows == 1


@pytest.mark.parametrize("before", [b"", b"x\n" * 128])
def test_used_values_before_the_allocations_of_each_module(before: bytes) -> None:
    used = b"\nTotal bytes used: 8\n\nUsed values:\n"
    module = HEAD + VALUE + b"f32[2]{0}\n"
    data = before + used + module + used + module
    spans = member_spans(data)
    assert [data[span.begin :][: len(used)] for span in spans[1:]] == [used]


@pytest.mark.parametrize(("n", "belongs"), [(40, True), (256, True), (257, False)])
def test_used_values_are_recognised_by_their_first_bytes(n: int, belongs: bool) -> None:
    title = b"\nUsed values:"
    used = b"\nTotal bytes used: ".ljust(n - len(title), b"8") + title + b"\n"
    data = (used + HEAD) * 2
    begin = len(used + HEAD) if belongs else len(used + HEAD + used)
    assert [span[:2] for span in member_spans(data)] == [(0, begin), (begin, None)]


def test_stack_frames_in_a_circle() -> None:
    used = b"\nTotal bytes used: 8\n\nUsed values:\n<0 a @0>\n positions:\n  a\n uses:\n"
    used += b' from instruction: %a = f32[2]{0} add(%b), metadata={op_name="x" stack_frame_id=1}\n'
    live = b"\nHloLiveRange (max 1):\n  InstructionSequence:\n    0:a\n  BufferLiveRange:\n    a{}:0-1\n"
    live += b"  Live ranges at 0 (peak):\n    a: 8 bytes\n"
    tables = b'FileNames\n1 "f"\n\nFunctionNames\n1 "g"\n\n'
    tables += b"FileLocations\n1 {file_name_id=1 function_name_id=1 line=1}\n"
    frames = b"\nStackFrames\n1 {file_location_id=1 parent_frame_id=3}\n2 {file_location_id=1 parent_frame_id=2}\n"
    hlo = b"HloModule m\n\n" + tables + frames + b"\nENTRY main {\n}\n"
    members = {"buffer-assignment": HEAD + VALUE + b"f32[2]{0}\n" + used + live, "hlo": hlo}
    from fuzz.check import computed, source_of

    dump = xlamem.read(source_of(members))
    assert dump.frames["parent"].to_pylist() == [2, 1]
    computed(dump)


def test_memory_limit(capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-c", "import sys; from xlamem.cli import main; sys.exit(main())"]
    for limit, code in (("50MiB", 3), ("200MiB", 0), ("64GiB", 0)):
        made = subprocess.run([*command, "--memory-limit", limit, "info", SMALL], capture_output=True, text=True)
        assert made.returncode == code, made.stderr
        assert ("error: not enough memory" in made.stderr) == (code == 3)
    assert main(["--memory-limit", "much", "info", str(SMALL)]) == 2
    assert "'much' is not a size" in capsys.readouterr().err
