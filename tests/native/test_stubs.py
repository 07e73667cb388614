"""The stubs of the native modules: one for each, and a wrong one would be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "xlamem"


def stubtest(stubs: Path) -> subprocess.CompletedProcess[str]:
    """Compare the smallest module with the stub in a folder of its own (`make lint` compares them all)."""
    command = [sys.executable, "-m", "mypy.stubtest", "xlamem._lines"]
    command += ["--allowlist", str(ROOT / "tests" / "native" / "stubtest-allow.txt"), "--ignore-unused-allowlist"]
    environment = os.environ | {"MYPYPATH": str(stubs)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=stubs, check=False)


def test_every_native_module_has_a_stub() -> None:
    native = {path.stem for path in (ROOT / "_native").glob("*.pyx")}
    assert {path.stem for path in PACKAGE.glob("*.pyi")} == native
    assert (PACKAGE / "py.typed").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("", ""),
        ("first_only: bool", "first: bool"),
        ("prefix: Buffer) -> int", "prefix: Buffer, deep: bool) -> int"),
        ("def uses_unknown", "def uses_known"),
        ("SPACE: int", "SPACE: str"),
    ],
)
def test_a_wrong_stub_is_seen(tmp_path: Path, right: str, wrong: str) -> None:
    pytest.importorskip("mypy")
    text = (PACKAGE / "_lines.pyi").read_text()
    assert right in text
    (tmp_path / "xlamem").mkdir()
    (tmp_path / "xlamem" / "__init__.pyi").touch()
    (tmp_path / "xlamem" / "_lines.pyi").write_text(text.replace(right, wrong) if right else text)
    shown = stubtest(tmp_path)
    assert shown.returncode == (1 if right else 0), shown.stdout + shown.stderr
    assert not right or "xlamem._lines." in shown.stdout, shown.stdout + shown.stderr
