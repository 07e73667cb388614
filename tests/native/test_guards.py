"""The guards of mapped files that become shorter."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from xlamem import _guard

PAGE = mmap.PAGESIZE
GUARDS = 1024

pytestmark = pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="others have no SIGBUS")


def mapped(path: Path, pages: int = 4) -> memoryview:
    path.write_bytes(b"x" * (pages * PAGE))
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


@pytest.fixture
def numbers() -> Iterator[list[int]]:
    """Guards that end with the test."""
    found: list[int] = []
    yield found
    for number in found:
        _guard.remove(number)


def test_what_is_cut_reads_as_newlines(tmp_path: Path, numbers: list[int]) -> None:
    for kept in (0, 1, 3 * PAGE, 3 * PAGE + 1):
        data, other = mapped(tmp_path / "a"), mapped(tmp_path / "b")
        mine = [_guard.add(other), _guard.add(data), _guard.add(other[PAGE:])]
        numbers += mine
        assert min(mine) >= 0
        assert len(set(mine)) == 3
        os.truncate(tmp_path / "a", kept)
        assert not _guard.is_cut(data)
        whole = -(-kept // PAGE) * PAGE
        assert bytes(data[whole:]) == b"\n" * (len(data) - whole)
        assert bytes(data[:whole]) == b"x" * kept + b"\0" * (whole - kept)
        assert _guard.is_cut(data) == (whole < len(data))
        if whole < len(data):
            assert _guard.is_cut(data[:1])
            assert _guard.is_cut(data[-1:])
        assert not _guard.is_cut(other)
        assert bytes(other) == b"x" * len(other)
        for number in mine:
            _guard.remove(number)
        assert not _guard.is_cut(data)
        again = _guard.add(data)
        assert again in mine
        assert not _guard.is_cut(data)
        _guard.remove(again)


def test_bounds_of_a_guard(tmp_path: Path, numbers: list[int]) -> None:
    data = mapped(tmp_path / "a")
    numbers.append(_guard.add(data[PAGE : 3 * PAGE]))
    os.truncate(tmp_path / "a", PAGE)
    assert data[2 * PAGE] == 10
    assert [_guard.is_cut(data[at : at + 1]) for at in (PAGE, 3 * PAGE - 1)] == [True, True]
    assert [_guard.is_cut(data[at : at + 1]) for at in (0, PAGE - 1, 3 * PAGE)] == [False] * 3


def test_there_are_so_many_guards(tmp_path: Path, numbers: list[int]) -> None:
    data = mapped(tmp_path / "a")
    while (number := _guard.add(data)) >= 0:
        numbers.append(number)
    assert number == -1
    assert len(set(numbers)) == len(numbers) <= GUARDS
    assert max(numbers) == GUARDS - 1
    for number in (numbers[0], numbers[7]):
        _guard.remove(number)
        assert _guard.add(data) == number
    _guard.remove(-1)
    assert _guard.add(data) == -1
    for number in numbers[:-1]:
        _guard.remove(number)
    os.truncate(tmp_path / "a", 0)
    assert data[5] == 10  # the last guard counts, too
    assert _guard.is_cut(data)


def test_no_bytes_need_no_guard() -> None:
    assert _guard.add(b"") == -1
    assert not _guard.is_cut(b"")
    assert not _guard.is_cut(b"abc")


@pytest.mark.parametrize("place", [0, 3])
def test_faults_elsewhere_have_their_handler(tmp_path: Path, place: int) -> None:
    """Beside a guard, and before or after another handler was installed."""
    code = (
        "import mmap, os, sys, faulthandler\n"
        "from xlamem import _guard\n"
        "file = open(sys.argv[1], 'r+b'); data = mmap.mmap(file.fileno(), 0); page = mmap.PAGESIZE\n"
        "view = memoryview(data)\n"
        "_guard.add(view[page:3 * page])\n"
        "faulthandler.enable()\n"
        "_guard.remove(_guard.add(view)); _guard.add(view[page:2 * page])\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(data[page], data[3 * page - 1], flush=True)\n"
        f"data[{place} * page]\n"
    )
    path = tmp_path / "a"
    path.write_bytes(b"x" * (4 * PAGE))
    ended = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert ended.stdout == "10 10\n"
    assert ended.returncode == -7
    assert "Fatal Python error: Bus error" in ended.stderr


def test_a_single_guard(tmp_path: Path) -> None:
    """The first one of a process."""
    mapped(tmp_path / "a")
    code = f"""
import mmap, os
from xlamem import _guard
with open({str(tmp_path / "a")!r}, "rb") as file:
    data = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
assert _guard.add(data) == 0
os.truncate({str(tmp_path / "a")!r}, 0)
assert data[0] == 10 and _guard.is_cut(data)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
