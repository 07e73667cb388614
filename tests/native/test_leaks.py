"""Native memory: whatever is read, computed or refused, and wherever it fails, every block is freed."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from leaks import QUICK, SLOW

from xlamem import _lines

HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="counts the calls of glibc's allocator"),
    pytest.mark.skipif("SANITIZE" in _lines.BUILD, reason="the sanitizer has an allocator of its own"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("counter") / "live_blocks.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fno-builtin"]
    subprocess.run(["cc", *options, HERE / "live_blocks.c", "-o", library], check=True)
    return library


def run(counter: Path, *scenarios: str) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Numbers of blocks that each scenario allocates and leaves behind; native functions that none of them calls."""
    environment = os.environ | {"LD_PRELOAD": str(counter)}
    command = [sys.executable, str(HERE / "leaks.py"), *scenarios]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    result = json.loads(shown.stdout)
    return result["left"], result["uncalled"]


def check(left: dict[str, tuple[int, int]]) -> None:
    assert all(allocated > 1000 for allocated, _ in left.values()), left
    assert {name: n for name, (_, n) in left.items() if n} == {}


def test_every_block_is_freed(counter: Path) -> None:
    left, uncalled = run(counter, *QUICK)
    check(left)
    assert not [name for name in uncalled if not name.startswith("xlamem._guard.")]  # which allocates nothing


@pytest.mark.slow
def test_every_block_of_more_is_freed(counter: Path) -> None:
    check(run(counter, *SLOW)[0])


def test_a_leak_is_counted(counter: Path) -> None:
    assert run(counter, "a leak")[0]["a leak"][1] == 3
