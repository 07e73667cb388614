"""Mapped files that another process makes shorter: an error, not the end of the process."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import DumpError, _guard
from xlamem.input.files import MIN_MAPPED, check_unchanged, open_file
from xlamem.parse import reader

HEAD = b"BufferAssignment:\nallocation 0: size 8000000, preallocated-temp:\n"
VALUE = b" value: <%d name.%d @0> (size=8,offset=%d): f32[2]{0}\n"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows refuses to shorten a mapped file")


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "x.cpu_after_optimizations-buffer-assignment.txt"
    path.write_bytes(HEAD + b"".join(VALUE % (i, i, i) for i in range(40_000)))
    return path


READS = {
    "one thread": lambda path: xlamem.read(path, threads=1).values,
    "threads": lambda path: xlamem.read(path, threads=3).values,
    "stream": lambda path: xlamem.read(path).batches("values").read_all(),
    "hash": lambda path: xlamem.read(path, tables=["modules"], hashes=True).modules,
}


def after_the_outline(change: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Change the file between the two passes over it."""
    outline = reader.outline

    def changed(*arguments: Any) -> Any:
        file = outline(*arguments)
        change()
        return file

    monkeypatch.setattr(reader, "outline", changed)
    return outline


@pytest.mark.parametrize("way", READS)
def test_read(large: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outline = after_the_outline(lambda: os.truncate(large, 5000), monkeypatch)
    with pytest.raises(DumpError, match="a file that does not change while it is read"):
        READS[way](large)
    monkeypatch.setattr(reader, "outline", outline)
    again = xlamem.read(large)
    assert not again.complete
    assert 0 < again.values.num_rows < 200


@pytest.mark.parametrize("way", READS)
@pytest.mark.parametrize("change", [(b"name.", b"eman."), (b"name.7 ", b"name.8 "), (b"name.", b"another_name.")])
def test_read_while_it_is_written_again(
    large: Path, way: str, change: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run with the same folder writes other content: of the same size, with the same end too, and longer."""
    os.utime(large, ns=(0, 0))
    text = large.read_bytes().replace(*change)
    after_the_outline(lambda: large.write_bytes(text), monkeypatch)
    with pytest.raises(DumpError, match="a file that does not change while it is read"):
        READS[way](large)


@pytest.mark.parametrize("way", READS)
def test_read_while_it_grows(large: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may grow. What is appended is not read."""

    def append() -> None:
        with large.open("ab") as file:
            file.write(VALUE % (1, 1, 1))

    after_the_outline(append, monkeypatch)
    assert READS[way](large).num_rows


@pytest.mark.parametrize("replaced", [False, True])
def test_read_while_it_is_deleted(large: Path, replaced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was opened is read to its end, also if another file gets its name."""

    def delete() -> None:
        large.unlink()
        if replaced:
            large.write_bytes(b"x\n")

    after_the_outline(delete, monkeypatch)
    assert xlamem.read(large).values.num_rows == 40_000


def test_read_by_threads_while_it_becomes_shorter(large: Path) -> None:
    """Whichever line the threads are in: the process lives."""
    code = (
        "import os, sys, threading, xlamem\n"
        "path = sys.argv[1]; text = open(path, 'rb').read()\n"
        "for i in range(25):\n"
        "    open(path, 'wb').write(text)\n"
        "    timer = threading.Timer(0.001 * i, os.truncate, (path, 3000))\n"
        "    timer.start()\n"
        "    try:\n"
        "        xlamem.read(path, threads=2).values\n"
        "    except xlamem.DumpError:\n"
        "        pass\n"
        "    timer.join()\n"
    )
    text = large.read_bytes()
    large.write_bytes(text + b"".join(VALUE % (i, i, i) for i in range(40_000, 100_000)))
    ended = subprocess.run([sys.executable, "-c", code, large], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_read_after_another_handler_was_installed(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xlamem.read(large).values  # noqa: B018
    faulthandler.disable()
    faulthandler.enable(sys.__stderr__)
    test_read(large, "one thread", monkeypatch)


def test_a_guard_ends_with_its_mapping(large: Path) -> None:
    for _ in range(3000):  # more than there are guards
        data = open_file(str(large)).read()
        assert not _guard.is_cut(data)
    assert len(data) > MIN_MAPPED
    os.truncate(large, 0)
    bytes(data[-10:])
    assert _guard.is_cut(data)
    assert bytes(data[-10:]) == b"\n" * 10


def test_a_file_that_was_cut_and_is_gone(large: Path) -> None:
    """Its status cannot tell any more, but what was read of it can."""
    whole, cut = (open_file(str(large)).read() for _ in range(2))
    os.truncate(large, 0)
    bytes(cut[-10:])
    large.unlink()
    check_unchanged(whole, "x")
    with pytest.raises(DumpError, match="x: expected a file that does not change while it is read"):
        check_unchanged(cut, "x")


def test_other_faults_keep_their_handler(large: Path) -> None:
    """Only pages of files that xlamem maps are replaced."""
    code = (
        "import faulthandler, mmap, os, sys, xlamem; faulthandler.enable()\n"
        "path, other = sys.argv[1:]\n"
        "xlamem.read(path).values\n"
        "file = open(other, 'r+b'); mapped = mmap.mmap(file.fileno(), 0); os.truncate(other, 0); mapped[5000]\n"
    )
    other = large.parent / "other"
    other.write_bytes(b"x" * 10_000)
    ended = subprocess.run([sys.executable, "-c", code, large, other], capture_output=True, text=True)
    assert ended.returncode == -7
    assert "Fatal Python error: Bus error" in ended.stderr


def test_small_dumps_are_not_mapped() -> None:
    assert xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-scan_while").complete
