"""From paths to texts: grouping, containers, positions, errors."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import socket
import sys
import tarfile
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

import xlamem
from xlamem.errors import DumpError, UsageError
from xlamem.input import contents as input_contents
from xlamem.input import files, filesystems
from xlamem.input.containers.tar import TarEntry
from xlamem.input.find import Member, Source, Text, find, resolve
from xlamem.input.names import EXTENSIONS

ALLOCATIONS = "BufferAssignment:\nallocation 0: size 4, thread-local:\n value: <0 p @0> (size=4,offset=0): f32[]\n"
VALUES = "\nTotal bytes used: 4 (4B)\n\nUsed values:\n<0 p @0>\n positions:\n  p\n uses:\n  (none)\n"
LIVE = "HloLiveRange (max 1):\n  InstructionSequence:\n    0:p\n"
REPORT_A = "Total bytes used: 4 (4B)\n\nAllocations sorted by size:\n\n"
REPORT_B = "Memory Space: default (color=0)\nTotal bytes: 4 (4B)\n"
HLO = "HloModule jit_f, is_scheduled=true\n\n"
TEXTS = {
    "buffer-assignment": ALLOCATIONS,
    "buffer-assignment-values": VALUES,
    "live-range": LIVE,
    "memory-usage-report": REPORT_B,
    "hlo": HLO,
}
STEM = "module_0000.jit_f.cpu_after_optimizations"
LOG = "I1120 12:03:29.928370   18058 buffer_assignment.cc:2664] "
LOG_TF = "2023-11-20 12:03:29.928370: I tensorflow/compiler/xla/buffer_assignment.cc:99] "

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


def write(directory: Path, stem: str = STEM, texts: dict[str, str] = TEXTS, packed: str = "") -> Path:
    """One dump; returns the path of its stem."""
    directory.mkdir(parents=True, exist_ok=True)
    for role, text in texts.items():
        data = text.encode()
        name = stem + EXTENSIONS[role]  # type: ignore[index]
        if packed:
            data, name = PACK[packed](data), f"{name}.{packed}"
        (directory / name).write_bytes(data)
    return directory / stem


def frame(name: str, content: str) -> str:
    return f"*** Begin {name} ***\n{content}\n*** End {name} ***\n"


def frames(stem: str = STEM, texts: dict[str, str] = TEXTS) -> str:
    return "".join(frame(stem + EXTENSIONS[role], text) for role, text in texts.items())  # type: ignore[index]


def contents(dump: Source) -> dict[str, str]:
    out = {}
    for member in dump.members:
        with member.load() as text:
            out[member.role] = bytes(text.data).decode()
    return out


def tar_of(directory: Path, path: Path, mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        tar.add(directory, arcname=directory.name)
    return path


# ---- names in directories


def test_siblings_are_one_dump(tmp_path: Path) -> None:
    write(tmp_path)
    (dump,) = find(tmp_path)
    assert [m.role for m in dump.members] == list(TEXTS)
    assert contents(dump) == TEXTS
    assert (dump.name, dump.module_id, dump.module_name, dump.platform) == (STEM, 0, "jit_f", "cpu")
    assert STEM in repr(dump)
    assert str(tmp_path) in repr(dump)


def test_other_files_and_directories_named_like_files(tmp_path: Path) -> None:
    write(tmp_path)
    for name in ("module_0001.jit_g", "module_0002.jit_h.cpu_after_optimizations-buffer-assignment.txt"):
        (tmp_path / name).mkdir()
    (tmp_path / "module_0001.jit_g" / "module.mlir").write_text("module {}")
    (tmp_path / "module_0000.jit_f.before_optimizations.txt").write_text(HLO)
    (tmp_path / "module_0000.jit_f.0001.a.after_x.before_y.txt").write_text("BufferAssignment:\n")
    (tmp_path / "oracle.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("the text of BufferAssignment: is long")
    assert len(find(tmp_path)) == 1


def test_subfolders_and_processes_with_the_same_names(tmp_path: Path) -> None:
    for folder in ("jit_f/vm_10", "jit_f/vm_9", "jit_f/vm_9/more"):
        write(tmp_path / folder)
    found = find(tmp_path)
    assert [os.path.relpath(s.place, tmp_path) for s in found] == ["jit_f/vm_9", "jit_f/vm_9/more", "jit_f/vm_10"]
    assert {s.name for s in found} == {STEM}


def test_order_is_natural(tmp_path: Path) -> None:
    for number in (10000, 2, 9999, 10):
        write(tmp_path, f"module_{number:04d}.jit_f.cpu_after_optimizations")
    assert [s.module_id for s in find(tmp_path)] == [2, 10, 9999, 10000]


def test_timestamps_and_mixed_releases(tmp_path: Path) -> None:
    write(tmp_path, "1795176133689448.module_0000.jit_f.cl_7.after_optimizations")
    write(tmp_path, "1795176133689449.module_0000.after_optimizations", {"buffer-assignment": ALLOCATIONS})
    write(tmp_path, "module_0000.cpu_after_optimizations", {"buffer-assignment": ALLOCATIONS, "hlo": HLO})
    write(tmp_path, "module_0001.jit_g.sm_9.0a_gpu_after_optimizations")
    facts = {
        (s.timestamp_us, s.module_name, s.platform, s.target, s.changelist, len(s.members)) for s in find(tmp_path)
    }
    assert facts == {
        (1795176133689448, "jit_f", "tpu", None, 7, 5),
        (1795176133689449, None, None, None, None, 1),
        (None, None, "cpu", None, None, 2),
        (None, "jit_g", "gpu", "sm_9.0a", None, 5),
    }


def test_hlo_text_alone_is_no_dump_unless_named(tmp_path: Path) -> None:
    stem = write(tmp_path, texts={"hlo": HLO})
    with pytest.raises(UsageError, match="no dump in"):
        find(tmp_path)
    assert [m.role for m in resolve(f"{stem}.txt").members] == ["hlo"]


def test_the_same_dump_twice_is_there_once(tmp_path: Path) -> None:
    stem = write(tmp_path / "a")
    (tmp_path / "log.txt").write_text(ALLOCATIONS)
    (tmp_path / "a" / "round").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "b").mkdir()
    name = stem.name + "-live-range.txt"
    (tmp_path / "b" / name).symlink_to(stem.parent / name)
    found = find(tmp_path, tmp_path / "a", f"{stem}-live-range.txt", tmp_path / "b", tmp_path / "log.txt", tmp_path)
    assert [s.name for s in found] == ["log.txt", STEM]
    assert len(found[1].members) == 5


def test_hidden_directories_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / ".cache")
    with pytest.raises(UsageError, match="no dump in"):
        find(tmp_path)
    assert len(find(tmp_path / ".cache")) == 1


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert contents(resolve(f"{STEM}.txt")) == contents(resolve(".")) == contents(resolve(STEM)) == TEXTS
    assert resolve(f"{STEM}.txt").place == "."


def test_patterns(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b" / "c")
    (tmp_path / "a" / "oracle.json").write_text("{}")
    assert len(find(tmp_path / "*")) == 2
    assert len(find(f"{tmp_path}/**/*-buffer-assignment.txt")) == 2
    assert len(find(f"{tmp_path}/a/*")) == 1
    with pytest.raises(UsageError, match="no dump in"):
        find(tmp_path / "*.json")


def test_a_shell_may_expand_the_pattern(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "module_0000.jit_f.before_optimizations.txt").write_text(HLO)
    assert len(find(*sorted(tmp_path.iterdir()))) == 1
    with pytest.raises(UsageError, match="no dump in"):
        find(tmp_path / "module_0000.jit_f.before_optimizations.txt")


# ---- what resolve takes


@pytest.mark.parametrize("extension", ["", *EXTENSIONS.values()])
def test_any_member_or_the_stem(tmp_path: Path, extension: str) -> None:
    stem = write(tmp_path)
    write(tmp_path, "module_0001.jit_g.cpu_after_optimizations")
    assert contents(resolve(f"{stem}{extension}")) == TEXTS


def test_several_modules_need_a_choice(tmp_path: Path) -> None:
    for number, name in enumerate(("jit_f", "jit_g", "jit_f")):
        write(tmp_path, f"module_{number:04d}.{name}.cpu_after_optimizations")
    with pytest.raises(UsageError, match=r"holds 3 modules(.|\n)*1  module_0001\.jit_g.* bytes"):
        resolve(tmp_path)
    assert resolve(tmp_path, module=2).module_id == 2
    assert resolve(tmp_path, module="jit_g").module_id == 1
    assert resolve(tmp_path, module="module_0000.jit_f.cpu_after_optimizations").module_id == 0
    with pytest.raises(UsageError, match="holds 2 modules"):
        resolve(tmp_path, module="jit_f")
    for missing in (3, -1, "jit_h"):
        with pytest.raises(UsageError, match="no module"):
            resolve(tmp_path, module=missing)


def test_a_source_is_itself(tmp_path: Path) -> None:
    write(tmp_path)
    dump = resolve(tmp_path)
    assert resolve(dump) is dump
    assert resolve(dump, module="jit_f") is dump


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, io.BytesIO, pa.py_buffer])
def test_bytes_and_files(wrap: Callable[[bytes], object]) -> None:
    for data in (ALLOCATIONS.encode(), gzip.compress(ALLOCATIONS.encode())):
        dump = resolve(wrap(data))
        assert contents(dump) == {"buffer-assignment": ALLOCATIONS}
    assert contents(resolve(wrap(frames().encode()))) == TEXTS


def test_bytes_of_a_tar(tmp_path: Path) -> None:
    write(tmp_path / "d", packed="gz")
    data = tar_of(tmp_path / "d", tmp_path / "d.tar.xz", "w:xz").read_bytes()
    assert contents(resolve(data)) == TEXTS


def test_a_file_opened_as_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="binary mode"):
        resolve(io.StringIO(ALLOCATIONS))
    with pytest.raises(UsageError, match="cannot read a dump from int"):
        resolve(7)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(frames().encode())))
    assert [contents(s) for s in find("-", "-")] == [TEXTS]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(ALLOCATIONS,))
    writer.start()
    dump = resolve(pipe)
    writer.join()
    assert contents(dump) == {"buffer-assignment": ALLOCATIONS}


# ---- pickling


def test_sources_travel(tmp_path: Path) -> None:
    write(tmp_path / "d")
    tar_of(tmp_path / "d", tmp_path / "d.tar")
    for dump in find(tmp_path):
        copy = pickle.loads(pickle.dumps(dump))
        assert copy == dump
        assert contents(copy) == TEXTS


def test_bytes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="a dump from bytes or standard input cannot be pickled"):
        pickle.dumps(resolve(ALLOCATIONS.encode()))


# ---- contents of unknown name


@pytest.mark.parametrize(
    ("text", "role"),
    [
        (ALLOCATIONS, "buffer-assignment"),
        (VALUES, "buffer-assignment-values"),
        (VALUES.replace("\n", "\r\n"), "buffer-assignment-values"),
        (LIVE, "live-range"),
        ("HloLiveRange not available (finalized or constructed from proto)", "live-range"),
        (REPORT_A, "memory-usage-report"),
        (REPORT_B, "memory-usage-report"),
    ],
)
def test_role_by_content(tmp_path: Path, text: str, role: str) -> None:
    path = tmp_path / "something.txt"
    path.write_bytes(text.encode())
    (member,) = resolve(path).members
    assert (member.role, member.begin, member.end) == (role, 0, None)


def test_a_directory_is_sniffed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(ALLOCATIONS)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"hello\n" + ALLOCATIONS.encode()))
    (tmp_path / "c").write_text("hello\n" + frames())
    (tmp_path / "d.dat").write_text(ALLOCATIONS)
    (tmp_path / "e.txt").write_text(VALUES)
    (tmp_path / "late.txt").write_text("x\n" * input_contents.MAX_SEARCHED + ALLOCATIONS)
    assert [s.name for s in find(tmp_path)] == ["a.txt", "b.log.gz", STEM]
    assert [s.name for s in find(tmp_path / "late.txt", tmp_path / "d.dat")] == ["d.dat", "late.txt"]


def test_several_modules_in_one_text(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    one, two = "# head\n" + ALLOCATIONS, ALLOCATIONS.replace("4", "8")
    path.write_text(one + two + ALLOCATIONS)
    assert [contents(s)["buffer-assignment"] for s in find(path)] == [one, two, ALLOCATIONS]
    with resolve(path, module=1).members[0].load() as text:
        assert text.first_line == 5
        assert text.position(0) == (5, len(one))
    with pytest.raises(UsageError, match="holds 3 modules"):
        resolve(path)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_frames(tmp_path: Path, end: str) -> None:
    unavailable = {**TEXTS, "live-range": "HloLiveRange not available (finalized or constructed from proto)"}
    stream = (
        "program output\n*** Begin not a frame\n"
        + frame("module_0000.jit_f.before_optimizations.txt", HLO)
        + frames()
        + "more output\n"
        + frames("module_0001.jit_g.cpu_after_optimizations", unavailable)
        + frames()
    )
    path = tmp_path / "stdout.txt"
    path.write_bytes(stream.replace("\n", end).encode())
    found = find(path)
    assert [s.module_name for s in found] == ["jit_f", "jit_f", "jit_g"]
    assert [contents(s) for s in found] == [TEXTS, TEXTS, unavailable]
    assert found[0].place == str(path)
    member = found[0].member("live-range")
    assert member is not None
    with member.load() as text:
        line, offset = text.position(len("HloLiveRange (max 1):\n"))
        data = path.read_bytes()
        assert data[offset:].startswith(b"  InstructionSequence:")
        assert line == data.count(b"\n", 0, offset) + 1
        assert text.uri == str(path)
    assert member.file_name == f"{STEM}-live-range.txt"


def test_frames_that_were_cut(tmp_path: Path) -> None:
    first = frames(texts={"hlo": HLO}) + f"*** Begin {STEM}-buffer-assignment.txt ***\nBufferAssignment:\nalloc"
    path = tmp_path / "stdout.txt"
    path.write_text(first)
    assert contents(resolve(path)) == {"hlo": HLO, "buffer-assignment": "BufferAssignment:\nalloc"}
    path.write_text(first + "\n" + frames())
    cut, whole = find(path)
    assert contents(cut) == {"hlo": HLO, "buffer-assignment": "BufferAssignment:\nalloc\n"}
    assert contents(whole) == TEXTS


def test_an_empty_frame(tmp_path: Path) -> None:
    path = tmp_path / "stdout.txt"
    path.write_text(frames(texts={"buffer-assignment": "", "hlo": HLO}))
    assert contents(resolve(path)) == {"buffer-assignment": "", "hlo": HLO}


@pytest.mark.parametrize("prefix", [LOG, LOG_TF])
def test_logs(tmp_path: Path, prefix: str) -> None:
    module = "".join(prefix + line + "\n" for line in ALLOCATIONS.splitlines())
    head = f"starting\n{prefix}BufferAssignment stats:\nanother BufferAssignment:\n"
    path = tmp_path / "train.log"
    path.write_text(head + module + module)
    for where in (path, tmp_path):
        one, two = (s.members[0] for s in find(where))
        assert (one.form, one.begin, one.end) == ("log", len(head), len(head + module))
        assert (two.form, two.begin, two.end) == ("log", len(head + module), None)
    assert [contents(s) for s in find(path)] == [{"buffer-assignment": ALLOCATIONS}] * 2


# ---- containers


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
    assert found[0].place == f"{path}::d"
    assert (
        found[0]
        .members[0]
        .file_name.startswith(f"module_0000.jit_f.cpu_after_optimizations{EXTENSIONS['buffer-assignment']}")
    )
    with found[21].members[0].load() as text:
        assert bytes(text.data).decode() == ALLOCATIONS
        assert text.position(0) == (5, len("hello\n" + ALLOCATIONS))
        assert text.uri == f"{path}::d/more.txt"


def test_a_compressed_tar_is_undone_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        write(tmp_path / "d", f"module_{number:04d}.jit_f.cpu_after_optimizations")
    path = tar_of(tmp_path / "d", tmp_path / "d.tgz", "w:gz")
    files._CACHE.clear()
    undone = []
    decompress = files.decompress
    monkeypatch.setattr(files, "decompress", lambda *a: undone.append(a) or decompress(*a))
    assert all(contents(s) == TEXTS for s in find(path))
    assert len(undone) == 1
    os.utime(path, ns=(1, 1))
    find(path)
    assert len(undone) == 2


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


def test_a_tar_that_was_cut(tmp_path: Path) -> None:
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


# ---- texts


def test_large_files_are_mapped(tmp_path: Path) -> None:
    text = ALLOCATIONS * 2000
    stem = write(tmp_path, texts={"buffer-assignment": text})
    loaded = resolve(stem).members[0].load()
    assert isinstance(loaded.data, memoryview)
    assert loaded.data.readonly
    assert loaded.data.contiguous
    assert bytes(loaded.data).decode() == text
    view = memoryview(loaded.data)
    loaded.close()  # somebody still looks
    assert bytes(view[:17]) == b"BufferAssignment:"
    view.release()
    loaded.close()


def test_mapped_spans_begin_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "x"
    data = bytes(range(33, 127)) * 6000
    path.write_bytes(data)
    for begin, end in ((1, len(data) - 1), (5000, 300_000), (4096, 4096 + files.MIN_MAPPED), (9, 10), (7, 7)):
        with Member("hlo", str(path), begin=begin, end=end).load() as text:
            assert bytes(text.data) == data[begin:end]
            assert text.base == begin
    with Member("hlo", str(path), begin=len(data) + 5, end=len(data) + 9).load() as text:
        assert bytes(text.data) == b""


@pytest.mark.parametrize("copies", [1, 3000])
def test_cr_lf(tmp_path: Path, copies: int) -> None:
    plain = (ALLOCATIONS * copies).encode()
    path = tmp_path / f"{STEM}-buffer-assignment.txt"
    path.write_bytes(raw := plain.replace(b"\n", b"\r\n"))
    with find(path)[0].members[0].load() as text:
        assert text.crlf
        assert text.first_bare_lf is None
        assert text.data == plain
        for offset in (0, 1, 18, 25, 60, len(plain) - 1, len(plain)):
            line, at = text.position(offset)
            assert line == plain.count(b"\n", 0, offset) + 1
            assert at == len(plain[:offset].replace(b"\n", b"\r\n"))
            assert raw[at : at + 1] in (plain[offset : offset + 1], b"\r")


def test_mixed_newlines() -> None:
    raw = b"one\r\ntwo\r\nthree\nfour\r\r\nfive\r\n"
    text = Text(raw)
    assert text.data == b"one\ntwo\nthree\nfour\r\nfive\n"
    assert text.crlf
    assert text.first_bare_lf == text.data.index(b"three")
    assert (text.size, text.raw) == (len(raw), raw)
    for word in (b"one", b"two", b"three", b"four", b"five"):
        line, at = text.position(text.data.index(word))
        assert at == raw.index(word)
        assert line == raw.count(b"\n", 0, at) + 1


@pytest.mark.parametrize("raw", [b"", b"\n", b"a", b"a\r", b"\na\r\n", b"a\nb\r\n"])
def test_lf_stays(raw: bytes) -> None:
    text = Text(raw)
    assert (text.data, text.crlf, text.first_bare_lf) == (raw, False, None)


def test_an_empty_member(tmp_path: Path) -> None:
    write(tmp_path, texts={"buffer-assignment": "", "live-range": ""})
    assert contents(resolve(tmp_path)) == {"buffer-assignment": "", "live-range": ""}


# ---- what is not there


def test_missing_paths(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing", tmp_path / "nothing" / "x", tmp_path / f"{STEM}.txt"):
        with pytest.raises(UsageError, match="does not exist"):
            find(path)
    with pytest.raises(UsageError, match="no path"):
        find()
    with pytest.raises(UsageError, match="not a path"):
        find(7)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="cannot look at"):
        find("a\0b")


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
    assert (alone.name, alone.place) == ("closed", str(tmp_path))


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
    assert [s.place for s in found] == [rf"{tmp_path}/caf\xe9", rf"{tmp_path}/x.tar::caf\xe9"]
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
def test_errors_of_the_system_are_told_from_those_of_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: str
) -> None:
    """Also in the midst of a decompression, and where a library has exceptions of its own."""
    fsspec = pytest.importorskip("fsspec")
    stem = write(tmp_path, packed=packed)
    end = f"-buffer-assignment.txt{'.' + packed if packed else ''}"
    data = Path(f"{stem}{end}").read_bytes()
    memory = fsspec.filesystem("memory")
    memory.pipe_file(f"/{tmp_path.name}/{STEM}{end}", data)
    memory.pipe_file(f"/{tmp_path.name}/cut{end}", data[: len(data) // 2])
    good, cut = (Member("buffer-assignment", f"memory:///{tmp_path.name}/{n}{end}") for n in (STEM, "cut"))
    with good.load() as text:
        assert bytes(text.data).decode() == ALLOCATIONS
    if packed:
        with pytest.raises(DumpError, match=r"the end of|data \(") as caught:
            cut.load()
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

    monkeypatch.setattr(files, "open", lambda *a, **k: (_ for _ in ()).throw(OSError(5, "EIO")), raising=False)
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
        assert [s.place for s in found] == [f"{base}/d", f"{base}/d/stdout.txt", f"{base}/d/vm_2"]
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
    assert contents(resolve("away:///*/*-live-range.txt?r=1")) == {"live-range": LIVE}


def test_unknown_schemes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot open nowhere://x"):
        find("nowhere://x")
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(UsageError, match="pip install fsspec"):
        find("memory://x")


# ---- real dumps, where there are some

CORPUS = os.environ.get("XLAMEM_CORPUS", "")
real = pytest.mark.skipif(not CORPUS, reason="XLAMEM_CORPUS names no folder of real dumps")


@real
@pytest.mark.parametrize(
    ("folder", "members"),
    [
        ("dump-flags/compress_protos-tpu", [5]),
        ("dump-flags/timestamp-tpu", [5]),
        ("dump-flags/multi-plain4", [5] * 4),
        ("dump-flags/multi-module_re", [5] * 2),
        ("dump-flags/multiheap-cpu", [5]),
        ("dump-flags/stdout-tpu", [5]),
        ("dump-flags/stdout-tpu/stdout.txt", [5]),
        ("variety-cpu/long_name", [5]),
        ("sweep-cpu-tf-2.3.4", [2] * 5),
        ("truncated", [1, 5, 4, 4]),
        ("seeds", [1] * 5),
        ("tuple_args_2500.tar.zst", [5]),
    ],
)
def test_corpus(folder: str, members: list[int]) -> None:
    assert [len(s.members) for s in find(os.path.join(CORPUS, folder))] == members


@real
def test_corpus_texts_are_the_files() -> None:
    for dump in find(os.path.join(CORPUS, "dump-flags"), os.path.join(CORPUS, "sweep-cpu-tf-2.9.3")):
        for member in dump.members:
            with member.load() as text:
                data = Path(member.uri).read_bytes()[member.begin : member.end]
                assert bytes(text.data) == data
                assert not text.crlf


@real
def test_corpus_protos_only() -> None:
    with pytest.raises(UsageError, match="xla_dump_hlo_as_text"):
        find(os.path.join(CORPUS, "dump-flags/proto_only-cpu"))


def test_every_field_is_pickled() -> None:
    fault = DumpError("a.tar", "a complete tar archive")
    member = Member("hlo", "a.tar", "x/b.txt", "log", 3, 9, 6, TarEntry("x/b.txt", 512, 700), fault)
    source = Source("b", (member,), 7, "jit_f", "tpu", "v5e", 12, 34)
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    assert str(again.members[0].fault) == str(fault)
    assert None not in (getattr(source, f.name) for f in fields(source))
    assert [f.name for f in fields(member) if getattr(member, f.name) is None] == ["content"]
