"""Mapped files that another process makes shorter: an error, not the end of the process."""

from __future__ import annotations

import faulthandler
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import DumpError, _guard
from xlamem.input.files import MIN_MAPPED, open_file
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


@pytest.mark.parametrize("way", READS)
def test_read(large: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outline = reader.outline

    def shortened(*arguments: Any) -> Any:
        file = outline(*arguments)
        os.truncate(large, 5000)
        return file

    monkeypatch.setattr(reader, "outline", shortened)
    with pytest.raises(DumpError, match="a file that does not become shorter while it is read"):
        READS[way](large)
    monkeypatch.setattr(reader, "outline", outline)
    again = xlamem.read(large)
    assert not again.complete
    assert 0 < again.values.num_rows < 200


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
