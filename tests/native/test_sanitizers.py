"""In a build with sanitizers: a read of one byte beyond a text is reported, however the text came into memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xlamem import _lines

TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif("SANITIZE" not in _lines.BUILD, reason="needs a build with sanitizers")

READ = """
import ctypes, sys
import numpy as np
import conftest
from xlamem.input.find import Member

member = Member("hlo", sys.argv[1], content=open(sys.argv[1], "rb").read() if sys.argv[2] == "bytes" else None)
data = np.frombuffer(member.load().data, np.uint8)
print(len(ctypes.string_at(data.ctypes.data, len(data))), flush=True)
ctypes.string_at(data.ctypes.data, len(data) + 1)
"""


@pytest.mark.parametrize(("way", "size"), [("file", 15), ("file", 300_000), ("bytes", 16)])
def test_a_read_beyond_a_text_is_reported(tmp_path: Path, way: str, size: int) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"x" * size)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-c", READ, str(path), way]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.stdout == f"{size}\n"
    assert "heap-buffer-overflow" in shown.stderr
