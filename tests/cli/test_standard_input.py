"""Standard input and pipes, which can be read only once."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

from xlamem import cli

CAPTURED = (DUMPS / "tpu-libtpu-0.0.50.1-v5e-stdout" / "stdout.txt").read_bytes()
NAME = "jit_m_donate_adam"
OTHER = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(data: bytes, *args: str | Path) -> Any:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        code = cli.main([str(a) for a in args])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize("verb", ["top", "bill"])
def test_a_module_of_standard_input(run: Any, verb: str) -> None:
    code, out, err = run(CAPTURED, verb, "-", "--module", NAME)
    assert (code, err) == (0, "")
    assert out == run(CAPTURED, verb, "-")[1]


def test_standard_input_alone_shows_its_peak(run: Any) -> None:
    assert run(CAPTURED, "-") == run(CAPTURED, "peak", "-")
    assert run(CAPTURED, "-")[0] == 0


def test_a_module_that_standard_input_lacks(run: Any) -> None:
    code, _, err = run(CAPTURED, "top", "-", "--module", "jit_other")
    assert code == 2
    assert "no module 'jit_other' in -, which holds:" in err


def test_several_programs_in_standard_input(run: Any, tmp_path: Path) -> None:
    code, out, err = run(CAPTURED + CAPTURED, "diff", "-", OTHER)
    assert (code, err) == (0, "")
    assert "2 programs: 0 changed, 1 new, 1 gone" in out
    code, out, err = run(CAPTURED + CAPTURED, "report", "-", "-o", tmp_path / "report.json", "--json")
    assert (code, err) == (0, "")
    assert '"kind": "directory"' in out


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="needs paths of pipes")
def test_a_report_of_a_pipe(run: Any, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with open(writer, "wb") as pipe:
        thread = threading.Thread(target=lambda: (pipe.write(CAPTURED), pipe.close()))
        thread.start()
        code, _, err = run(b"", "report", f"/dev/fd/{reader}", "-o", tmp_path / "report.html")
        thread.join()
    os.close(reader)
    assert (code, err) == (0, "")
    assert NAME in (tmp_path / "report.html").read_text("utf-8")


@pytest.mark.parametrize("verb", ["peak", "oom"])
def test_a_closed_standard_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main([verb, "-"]) == 3
    assert capsys.readouterr().err == "error: <stdin>: expected standard input; it is closed\n"


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["peak", OTHER, "--device", "v5e"], 0),
        (["peak", OTHER, "--capacity", "1MiB"], 1),
        (["info", OTHER], 0),
        (["convert", OTHER, "--to", "dataset"], 0),
    ],
)
def test_closed_outputs(tmp_path: Path, args: list[str | Path], code: int) -> None:
    """Those who need only the exit code may close them."""
    command = [sys.executable, "-c", "from xlamem.cli import run; run()", *args]
    for streams in (">&-", "2>&-", ">&- 2>&- <&-"):
        shell = ["sh", "-c", f'exec "$@" {streams}', "sh", *command]
        assert subprocess.run(shell, cwd=tmp_path, capture_output=True, check=False).returncode == code, streams
