"""From paths to texts: grouping, choice of a module, positions."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import pickle
import threading
from collections.abc import Callable
from dataclasses import fields
from itertools import chain, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_dumps import (
    ALLOCATIONS,
    HLO,
    LIVE,
    LOG,
    LOG_TF,
    REPORT_A,
    REPORT_B,
    STEM,
    TEXTS,
    VALUES,
    contents,
    frame,
    frames,
    tar_of,
    write,
)  # fmt: skip

from xlamem import read
from xlamem.errors import DumpError, UsageError
from xlamem.input import contents as input_contents
from xlamem.input import files, text
from xlamem.input.containers.tar import TarEntry
from xlamem.input.find import Member, Source, Text, _choose, _numbers, find, find_all, resolve, split_modules
from xlamem.input.names import EXTENSIONS
from xlamem.input.spans import contains_dump, detect_role, is_one_module
from xlamem.input.walk import NoDumpError
from xlamem.parse import modules

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
    assert [os.path.relpath(s.location, tmp_path) for s in found] == ["jit_f/vm_9", "jit_f/vm_9/more", "jit_f/vm_10"]
    assert {s.name for s in found} == {STEM}


def test_order_is_natural(tmp_path: Path) -> None:
    for number in (10000, 2, 9999, 10):
        write(tmp_path, f"module_{number:04d}.jit_f.cpu_after_optimizations")
    assert [s.module_id for s in find(tmp_path)] == [2, 10, 9999, 10000]


def test_zeros_before_a_number_do_not_count(tmp_path: Path) -> None:
    for run in ("run-8", "run-007", "run-010", "run-9"):
        write(tmp_path / run)
    places = [os.path.basename(s.location) for s in find(tmp_path)]
    assert places == ["run-007", "run-8", "run-9", "run-010"]


@pytest.mark.parametrize("relative_first", [True, False])
def test_the_first_path_of_a_file_counts(
    relative_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    name = f"{STEM}-buffer-assignment.txt"
    paths = (name, str(tmp_path / name))[:: 1 if relative_first else -1]
    (source,) = find(*paths)
    assert {os.path.isabs(member.uri) for member in source.members} == {not relative_first}


def test_a_size_that_is_not_known(tmp_path: Path) -> None:
    write(tmp_path)
    (source,) = find(tmp_path)
    assert source.bytes_on_disk() == sum(path.stat().st_size for path in tmp_path.iterdir())
    Path(source.members[-1].uri).unlink()
    assert source.bytes_on_disk() is None


def test_sizes_of_members(tmp_path: Path) -> None:
    """That of the span, or what the archive or the system states; a compressed file has its own."""
    (path := tmp_path / "x.gz").write_bytes(data := gzip.compress(b"x" * 100))
    entry = TarEntry("y", 512, 519)
    uri = str(path)
    assert [
        Member("hlo", uri, begin=3, end=8).bytes_on_disk(),
        Member("hlo", uri, begin=3, end=8, size=9).bytes_on_disk(),
        Member("hlo", uri, end=0).bytes_on_disk(),
        Member("hlo", uri, begin=3, size=0).bytes_on_disk(),
        Member("hlo", uri, begin=3, size=4, entry=entry).bytes_on_disk(),
        Member("hlo", uri, entry=entry).bytes_on_disk(),
        Member("hlo", uri).bytes_on_disk(),
        Member("hlo", f"{uri}/nothing").bytes_on_disk(),
    ] == [5, 5, 0, 0, 4, 7, len(data), None]


def test_a_text_that_begins_beyond_its_file(tmp_path: Path) -> None:
    """The file has become shorter since it was searched. Offsets in messages are within it."""
    (path := tmp_path / "a.txt").write_text("x\n")
    text = Member("buffer-assignment", str(path), begin=9, end=20).load()
    assert (bytes(text.data), text.base) == (b"", 2)


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


def test_hlo_text_with_a_name_of_its_own(tmp_path: Path) -> None:
    (path := tmp_path / "mine.after_optimizations.txt").write_text(HLO)
    (source,) = find(path)
    assert [m.role for m in source.members] == ["hlo"]


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


def test_hidden_directories_are_skipped(tmp_path: Path) -> None:
    write(tmp_path / ".cache")
    with pytest.raises(UsageError, match="no dump in"):
        find(tmp_path)
    assert len(find(tmp_path / ".cache")) == 1


def test_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert contents(resolve(f"{STEM}.txt")) == contents(resolve(".")) == contents(resolve(STEM)) == TEXTS
    assert resolve(f"{STEM}.txt").location == "."


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
    for missing in (3, -1, "jit_h", "3"):
        with pytest.raises(UsageError, match="no module"):
            resolve(tmp_path, module=missing)


@pytest.mark.parametrize("n", [40, 41])
def test_an_error_lists_forty_modules(tmp_path: Path, n: int) -> None:
    (tmp_path / "all.txt").write_text(ALLOCATIONS * n)
    with pytest.raises(UsageError, match=f"holds {n} modules") as caught:
        resolve(tmp_path / "all.txt")
    lines = str(caught.value).splitlines()[1:]
    assert lines[39] == f"  39  all.txt  {len(ALLOCATIONS)} bytes"
    assert lines[40:] == (["  … and 1 more"] if n == 41 else [])


def test_modules_in_the_only_file_of_a_directory(tmp_path: Path) -> None:
    path = tmp_path / f"{STEM}-buffer-assignment.txt"
    path.write_text(ALLOCATIONS + ALLOCATIONS.replace(" p ", " q "))
    for module, letter in ((0, "p"), (1, "q")):
        assert f" {letter} @0" in contents(resolve(tmp_path, module=module))["buffer-assignment"]
    first, second = split_modules(resolve(tmp_path))
    assert split_modules(first) == [first]
    assert resolve(first, module=0) == first
    assert first.bytes_on_disk() == second.bytes_on_disk() == len(ALLOCATIONS)
    with pytest.raises(UsageError, match="no module 1"):
        resolve(first, module=1)


@pytest.mark.parametrize("prefix", [LOG, LOG_TF])
def test_a_log_with_the_name_of_a_member(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / f"{STEM}-buffer-assignment.txt"
    path.write_text("".join(prefix + line for line in ALLOCATIONS.splitlines(keepends=True)))
    assert contents(resolve(path)) == {"buffer-assignment": ALLOCATIONS}


def test_hlo_text_that_is_named_and_found(tmp_path: Path) -> None:
    write(tmp_path, texts={"hlo": HLO})
    for paths in ((tmp_path, tmp_path / f"{STEM}.txt"), (tmp_path / f"{STEM}.txt", tmp_path)):
        assert [contents(source) for source in find_all(*paths)[0]] == [{"hlo": HLO}]


def test_a_module_is_selected_by_its_own_number_if_it_has_one(tmp_path: Path) -> None:
    for number in (0, 2, 4):
        write(tmp_path, f"module_{number:04d}.jit_{number}.cpu_after_optimizations")
    for module in (2, "2", "0002", "0002.jit_2", "module_0002.jit_2.cpu_after_optimizations"):
        assert resolve(tmp_path, module=module).module_id == 2
    with pytest.raises(UsageError, match=r"no module 1 in(.|\n)*  0  module_0000.*\n  2  module_0002.*\n  4  mod"):
        resolve(tmp_path, module=1)
    for name in ("2", "7"):  # names come first
        write(tmp_path / "named", f"module_000{name}.{9 - int(name)}.cpu_after_optimizations")
    assert resolve(tmp_path / "named", module="2").module_id == 7
    assert resolve(tmp_path / "named", module=2).module_id == 2


def test_modules_with_equal_numbers_are_selected_by_position(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write(tmp_path / folder, "module_0003.jit_f.cpu_after_optimizations")
    write(tmp_path / "c", "module_0001.jit_g.cpu_after_optimizations")
    assert resolve(tmp_path, module=0).location == str(tmp_path / "a")
    assert resolve(tmp_path, module=1).module_name == "jit_g"
    with pytest.raises(UsageError, match=r"\n  0  module_0003.*\n  -  module_0003.*\n  1  module_0001"):
        resolve(tmp_path, module=3)


def test_labels() -> None:
    """Commands list modules by them, and `module` selects by them."""
    assert Source("module_0042.jit_f.cpu", (), 42, "jit_f").label == "0042.jit_f"
    assert Source("mine", (), 42).label == Source("mine", (), None, "jit_f").label == "mine"
    assert Source("m", (), 0, "f").label == "0000.f"


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


def test_different_bytes_of_one_size_are_different_dumps() -> None:
    one, other = ALLOCATIONS.encode(), ALLOCATIONS.replace("4", "8").encode()
    a, b = resolve(one), resolve(other)
    assert a != b
    assert len({a, b}) == 2
    assert resolve(one) == a
    assert hash(resolve(one)) == hash(a)
    assert read(a) != read(b)
    assert a.members[0] != "a string"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(frames().encode())))
    assert [contents(s) for s in find("-", "-")] == [TEXTS]


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(DumpError, match="<stdin>: expected standard input; it is closed"):
        find("-")


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


def test_sources_are_pickled(tmp_path: Path) -> None:
    write(tmp_path / "d")
    tar_of(tmp_path / "d", tmp_path / "d.tar")
    for dump in find(tmp_path):
        copy = pickle.loads(pickle.dumps(dump))
        assert copy == dump
        assert contents(copy) == TEXTS


def test_bytes_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="a dump from bytes or standard input cannot be pickled"):
        pickle.dumps(resolve(ALLOCATIONS.encode()))


def test_every_field_is_pickled() -> None:
    fault = DumpError("a.tar", "a complete tar archive")
    member = Member("hlo", "a.tar", "x/b.txt", "log", 3, 9, 6, TarEntry("x/b.txt", 512, 700), fault)
    source = Source("b", (member,), 7, "jit_f", "tpu", "v5e", 12, 34)
    again = pickle.loads(pickle.dumps(source))
    assert again == source
    assert str(again.members[0].fault) == str(fault)
    assert None not in (getattr(source, f.name) for f in fields(source))
    assert [f.name for f in fields(member) if getattr(member, f.name) is None] == ["content"]


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


@pytest.mark.parametrize(
    ("n", "role"), [(1024, "memory-usage-report"), (1025, "buffer-assignment-values")]
)
def test_a_report_is_recognised_by_its_first_kilobyte(n: int, role: str) -> None:
    title = b"\nAllocations sorted by size"
    assert detect_role(b"Total bytes used: ".ljust(n - len(title), b"4") + title) == role


def test_a_directory_is_sniffed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(ALLOCATIONS)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(b"hello\n" + ALLOCATIONS.encode()))
    (tmp_path / "c").write_text("hello\n" + frames())
    (tmp_path / "d.dat").write_text(ALLOCATIONS)
    (tmp_path / "e.txt").write_text(VALUES)
    (tmp_path / "late.txt").write_text("x\n" * input_contents.MAX_SEARCHED + ALLOCATIONS)
    assert [s.name for s in find(tmp_path)] == ["a.txt", "b.log.gz", STEM]
    assert [s.name for s in find(tmp_path / "late.txt", tmp_path / "d.dat")] == ["d.dat", "late.txt"]
    for paths in ((tmp_path, tmp_path / "late.txt"), (tmp_path / "late.txt", tmp_path)):
        assert [s.name for s in find(*paths)] == ["a.txt", "b.log.gz", "late.txt", STEM]


@pytest.mark.parametrize("lines", [("out", "x"), ("x", "out"), ("x", "out", "x"), ("x", "x")])
def test_what_a_text_without_a_dump_is(lines: tuple[str, ...], tmp_path: Path) -> None:
    """A message at either end of a long log is noticed."""
    parts = {"out": "RESOURCE_EXHAUSTED: Out of memory\n", "x": "a line\n" * input_contents.MAX_HEAD}
    (path := tmp_path / "train.log").write_text("".join(parts[line] for line in lines))
    with pytest.raises(NoDumpError) as caught:
        find(path)
    assert ("out-of-memory" in caught.value.hint) == ("out" in (lines[0], lines[-1]))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="a file of Linux")
def test_a_file_that_has_no_size() -> None:
    assert b"Name:" in (files.read_small("/proc/self/status") or b"")


def test_several_modules_in_one_text(tmp_path: Path) -> None:
    path = tmp_path / "all.txt"
    one, two = "# head\n" + ALLOCATIONS, ALLOCATIONS.replace("4", "8")
    path.write_text(one + two + ALLOCATIONS)
    assert [contents(s)["buffer-assignment"] for s in find(path)] == [one, two, ALLOCATIONS]
    assert resolve(path, module="1") == resolve(path, module=1)
    with resolve(path, module=1).members[0].load() as text:
        assert text.first_line == 5
        assert text.position(0) == (5, len(one))
    with pytest.raises(UsageError, match="holds 3 modules"):
        resolve(path)


def test_which_texts_are_searched_for_modules(tmp_path: Path) -> None:
    """Those of a file that has the name of a member, and others if a module is chosen."""
    searched: list[bytes] = []
    path = write(tmp_path / f"{STEM}{EXTENSIONS['buffer-assignment']}", texts={"buffer-assignment": ALLOCATIONS})
    member = Path(f"{path}{EXTENSIONS['buffer-assignment']}")
    for given, module, is_searched in (
        (member, None, True), (path, None, False), (path.parent, None, False), (path, 0, True), (path.parent, 0, True),
        (member.as_uri(), None, False), (member.as_uri(), 0, True), (ALLOCATIONS.encode(), None, False),
    ):  # fmt: skip
        searched.clear()
        source = resolve(given, module=module, is_one=lambda data: (searched.append(bytes(data)), True)[1])
        assert len(source.members) == 1
        assert searched == [ALLOCATIONS.encode()] * is_searched, given


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (b"", False),
        (b"BufferAssignment", False),
        (b"BufferAssignment:", True),
        (b"\nBufferAssignment (v2):\nx\n", True),
        (b"x BufferAssignment:\n", False),
        (b"\nBufferAssignment;\n", False),
        (b"BufferAssignment:\n BufferAssignment/x\n", True),
        (b"a BufferAssignment/x\nBufferAssignment:\n", True),
        (b"a BufferAssignment/x\n BufferAssignment:\n", False),
        (b"BufferAssignment/x BufferAssignment/y", False),
        (b"BufferAssignment:\nBufferAssignment:\n", False),
        (b"BufferAssignment:\n x BufferAssignment (a):\n", False),
    ],
)
def test_one_module(text: bytes, is_one: bool) -> None:
    """The words of the head may occur in names."""
    assert is_one_module(text) is is_one
    for data in (text, memoryview(text), memoryview(b"x\n" * 300 + text), memoryview(text + b"\ny" * 300)):
        assert modules.is_one_module(data) is is_one_module(data)


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
    assert found[0].location == str(path)
    member = found[0].member("live-range")
    assert member is not None
    with member.load() as text:
        line, offset = text.position(len("HloLiveRange (max 1):\n"))
        data = path.read_bytes()
        assert data[offset:].startswith(b"  InstructionSequence:")
        assert line == data.count(b"\n", 0, offset) + 1
        assert text.uri == str(path)
    assert member.file_name == f"{STEM}-live-range.txt"


def test_frames_in_a_file_with_the_name_of_a_member(tmp_path: Path) -> None:
    path = tmp_path / "train-buffer-assignment.txt"
    path.write_text("program output\n" + frames() + frames("module_0001.jit_g.cpu_after_optimizations"))
    for where in (path, path.read_bytes()):
        with pytest.raises(UsageError, match=r"holds 2 modules(.|\n)*  0  module_0000(.|\n)*  1  module_0001"):
            resolve(where)
        dump = resolve(where, module="jit_g")
        assert (dump.module_id, contents(dump)) == (1, TEXTS)
    assert [s.module_id for s in split_modules(find(path)[0])] == [0, 1]
    path.write_text(ALLOCATIONS + frames() + ALLOCATIONS)
    assert [s.name for s in split_modules(find(path)[0])] == [path.name, path.name, STEM]
    path.write_text(frame("notes.txt", ALLOCATIONS) * 2)  # no members
    assert split_modules(find(path)[0]) == find(path)


def test_frames_with_flags(tmp_path: Path) -> None:
    """They belong to the dump of their stem; without one, they are none."""
    path = tmp_path / "stdout.txt"
    flags = frame("module_0000.jit_f.debug_options", "a: 1\n") + frame("module_0001.jit_g.debug_options", "a: 2\n")
    for stream in (flags + frames(), frames() + flags):
        path.write_text(stream)
        assert [contents(s) for s in find(path)] == [{**TEXTS, "debug-options": "a: 1\n"}]
    path.write_text(flags)
    with pytest.raises(NoDumpError):
        find(path)


def test_a_frame_ends_where_its_name_is_repeated(tmp_path: Path) -> None:
    """Other ends, such as in captured output that was captured again, are part of it."""
    text = ALLOCATIONS + "*** End other ***\n*** End ***\nmore\n"
    path = tmp_path / "stdout.txt"
    path.write_text(frames(texts={"buffer-assignment": text, "hlo": HLO}))
    assert contents(resolve(path)) == {"buffer-assignment": text, "hlo": HLO}


@pytest.mark.parametrize(
    ("text", "is_dump"),
    [
        (ALLOCATIONS, True),
        (f"hello\n{LOG}BufferAssignment:\n", True),
        (frame("x-live-range.txt", LIVE), True),
        (f"*** Begin x ***\n{LIVE}", True),
        ("*** Begin x ***", False),
        ("a BufferAssignment: of another tool\n", False),
        (LIVE, False),
        ("", False),
    ],
)
def test_texts_with_dumps(text: str, is_dump: bool) -> None:
    assert contains_dump(text.encode()) == is_dump


def test_truncated_frames(tmp_path: Path) -> None:
    first = frames(texts={"hlo": HLO}) + f"*** Begin {STEM}-buffer-assignment.txt ***\nBufferAssignment:\nalloc"
    path = tmp_path / "stdout.txt"
    path.write_text(first)
    assert contents(resolve(path)) == {"hlo": HLO, "buffer-assignment": "BufferAssignment:\nalloc"}
    path.write_text(first + "\n" + frames())
    truncated, complete = find(path)
    assert contents(truncated) == {"hlo": HLO, "buffer-assignment": "BufferAssignment:\nalloc\n"}
    assert contents(complete) == TEXTS


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


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [([1, 1, 1], "bc"), ([4, 4, 4], "bc"), ([9, 9], "b"), ([20], "a"), ([1, 9], "ab"), ([4, 4, "a", 4], "ac")],
)
def test_decompressed_content_is_kept_within_two_limits(
    sizes: list[int | str], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most two files and ten bytes, except for one; the oldest goes first. A name reads its content again."""
    monkeypatch.setattr(files, "MAX_CACHED_FILES", 2)
    monkeypatch.setattr(files, "MAX_CACHED_BYTES", 10)
    cache, names = files._ContentCache(), iter("abc")
    read: list[str] = []

    def get(name: str, size: int = 0) -> None:
        cache.get((name,), lambda: read.append(name) or bytes(size))  # type: ignore[func-returns-value]

    for size in sizes:
        get(size) if isinstance(size, str) else get(next(names), size)
    read.clear()
    for name in kept:
        get(name)
    assert not read
    for name in set("abc") - set(kept):
        get(name)
        assert read.pop() == name


@pytest.mark.parametrize(
    ("sizes", "kept"), [([4, 4, 4], "bc"), ([5, 5, 5], "abc"), ([4, 5, 4], "abc"), ([5, 5, 5, 5], "bcd")]
)
def test_content_in_temporary_files_counts_as_a_file_only(
    sizes: list[int], kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("MAX_CACHED_FILES", 3), ("MAX_CACHED_BYTES", 10), ("MAX_IN_MEMORY", 4)):
        monkeypatch.setattr(files, name, limit)
    cache = files._ContentCache()
    for name, size in zip("abcd", sizes, strict=False):
        cache.get((name,), lambda size=size: bytes(size))  # type: ignore[misc]
    assert "".join(str(name) for (name,) in cache._contents) == kept
    cache.clear()
    assert cache.get(("d",), lambda: b"again") == b"again"


def test_limits_of_what_is_read_and_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MIN_MAPPED", 10)
    monkeypatch.setattr(files, "MAX_IN_MEMORY", 10)
    for n, is_mapped in ((9, False), (10, True)):
        path = tmp_path / str(n)
        path.write_bytes(data := bytes(range(48, 48 + n)))
        assert files.read_small(str(path)) == (None if is_mapped else data)
        assert isinstance(files.open_file(str(path)).read(), memoryview) == is_mapped
        assert not isinstance(files.open_file(str(path)).read(1), memoryview)
    for n, is_mapped in ((10, False), (11, True)):
        assert isinstance(files.spool("x", [b"1234", bytes(n - 4)]), mmap.mmap) == is_mapped


def test_a_file_that_becomes_shorter_before_it_is_mapped(tmp_path: Path) -> None:
    (path := tmp_path / "x").write_bytes(bytes(5000))
    with path.open("rb") as file, pytest.raises(OSError, match="mmap length is greater than file size"):
        files._map(file.fileno(), 5001)


def test_small_files_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that turn out to be large: searches open thousands."""
    original, opened = os.open, list[int]()

    def open_and_note(*args: Any) -> int:
        opened.append(original(*args))
        return opened[-1]

    (path := tmp_path / "x").write_bytes(b"content")
    monkeypatch.setattr(files.os, "open", open_and_note)
    for limit, content in ((8, b"content"), (7, None)):
        monkeypatch.setattr(files, "MIN_MAPPED", limit)
        assert files.read_small(str(path)) == content
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(opened[-1])
    assert len(opened) == 2


def test_pages_that_are_released_are_read_again(tmp_path: Path) -> None:
    (path := tmp_path / "x").write_bytes(data := bytes(range(256)) * 2000)
    for begin, end in ((0, len(data)), (5000, len(data) - 3)):
        mapped = files.open_file(str(path)).read(begin, end)
        n = end - begin
        for first, last in ((0, n), (1, n - 1), (5000, 5000), (300_000, 7), (n, n), (n - 1, n), (4096, 8192)):
            files.evict_pages(mapped, first, last)
            assert mapped == data[begin:end]
    files.evict_pages(data, 0, len(data))


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="the system keeps them")
def test_which_pages_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole ones of mapped files, unless the file has become shorter."""
    (path := tmp_path / "x").write_bytes(bytes(400_000))
    page, calls = mmap.PAGESIZE, list[tuple[int, int]]()
    monkeypatch.setattr(files._Mapped, "madvise", lambda self, _, *span: calls.append(span), raising=False)
    mapped = files.open_file(str(path)).read(page + 5, page + 300_000)
    calls.clear()
    for begin, end in ((0, 10), (page - 5, page), (page - 6, 3 * page), (2 * page, 299_995), (5, 5), (5, 4)):
        files.evict_pages(mapped, begin, end)
    assert calls == [(0, 15), (page, 5), (0, 3 * page + 5), (2 * page, 300_000 - 2 * page)]
    monkeypatch.setattr(files._guard, "is_cut", lambda data: True)
    files.evict_pages(mapped, 0, 10)
    assert len(calls) == 4


def test_systems_that_take_no_advice_on_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They keep the pages."""
    for name in ("MADV_SEQUENTIAL", "MADV_DONTNEED"):
        monkeypatch.delattr(mmap, name, raising=False)
    path = tmp_path / "x"
    path.write_bytes(bytes(1 << 20))
    data = files.open_file(str(path)).read(0, 1 << 20)
    assert files._mapped(data)
    files.evict_pages(data, 0, 1 << 20)
    assert bytes(data) == bytes(1 << 20)


def test_a_codec_is_looked_for_in_sixteen_bytes(tmp_path: Path) -> None:
    """A name that promises compression is trusted only if these are no text."""
    for n, is_text in ((15, False), (16, True)):
        path = tmp_path / "a.gz"
        path.write_bytes(data := b"x" * n + b"\0" * 9)
        for reads in (
            lambda: files.open_decompressed(str(path)).read(),  # noqa: B023
            lambda: files.open_file(str(path)).head(99),  # noqa: B023
            lambda: files.read_small(str(path)) or files.open_decompressed(str(path)).read(),  # noqa: B023
        ):
            if is_text:
                assert reads() == data
            else:
                with pytest.raises(DumpError, match="gzip data"):
                    reads()


def test_positions_in_a_text_of_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_SIZE", 7)
    for raw in (b"one\n\nthree\nfour and more\n\n\nseven", b"\n" * 30, b"x" * 30):
        for step in (1, 2, 7, 8, 13):
            offsets = range(0, len(raw) + 1, step)
            expected = [(raw.count(b"\n", 0, offset) + 1, offset + 5) for offset in offsets]
            assert Text(raw, base=5).positions(offsets) == expected


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


@pytest.mark.parametrize("raw", [b"", b"\n", b"a", b"a\r", b"\na\r\n", b"a\nb\r\n", b"\n\r\na\r\nb"])
def test_lf_stays(raw: bytes) -> None:
    text = Text(raw)
    assert (text.data, text.crlf, text.first_bare_lf) == (raw, False, None)
    every = range(len(raw) + 1)
    assert text.positions(every) == [(raw.count(b"\n", 0, offset) + 1, offset) for offset in every]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/runs/a%20b-live-range.txt", "a%20b-live-range.txt"),
        ("/runs/s3://a%20b?x-live-range.txt", "a%20b?x-live-range.txt"),
        ("s3://runs/a%20b-live-range.txt?x=/y", "a b-live-range.txt"),
        ("s3://runs/a%2Fb-live-range.txt", "b-live-range.txt"),
        ("C:\\runs\\a%20b.txt", "a%20b.txt"),
        ("a.txt", "a.txt"),
    ],
)
def test_only_names_in_uris_are_decoded(path: str, name: str) -> None:
    assert Member("", path).file_name == Member("", "x.tar", path).file_name == name


def test_a_text_is_released_at_the_end_of_its_block() -> None:
    with resolve(ALLOCATIONS.encode()).members[0].load() as text:
        assert len(text) == len(ALLOCATIONS)
    assert (len(text), text.data, text.raw) == (0, b"", b"")


def test_an_empty_member(tmp_path: Path) -> None:
    write(tmp_path, texts={"buffer-assignment": "", "live-range": ""})
    assert contents(resolve(tmp_path)) == {"buffer-assignment": "", "live-range": ""}


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


def test_numbers_that_select_a_module() -> None:
    """Its own number if no other module has it, else its position, unless that is the number of another one."""
    for ids in chain.from_iterable(product((None, 0, 1, 2, 3), repeat=n) for n in range(1, 5)):
        sources = [Source(f"m{i}", (Member("hlo", f"{i}"),), module_id=number) for i, number in enumerate(ids)]
        unique = {number for number in ids if number is not None and ids.count(number) == 1}
        expected = [
            number if number in unique else None if position in unique else position
            for position, number in enumerate(ids)
        ]
        assert _numbers(sources) == expected, ids
        for number in range(5):
            if number in expected:
                assert _choose(sources, number, "x") is sources[expected.index(number)]
                assert _choose(sources, str(number), "x") is sources[expected.index(number)]
            else:
                with pytest.raises(UsageError, match=f"no module {number}"):
                    _choose(sources, number, "x")
