"""Peak and timeline of one program with XProf and with xlamem. Skipped if XProf is not installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rivals
from inputs import DATA
from measure import in_fresh_process
from tabular import Row

TITLE = "XProf: peak and timeline of one program"
DUMPS = Path(__file__).parent.parent / "tests" / "dumps"


def has(python: str, module: str) -> bool:
    return not subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Path:
    """A dump with its proto: from --program, else a large one made with JAX, else the largest one of the tests."""
    if folder := request.config.getoption("--program"):
        return Path(folder)
    made = DATA / "program"
    if not made.exists():
        python = next((p for p in (sys.executable, request.config.getoption("--xprof")) if has(p, "jax")), None)
        if python is None:
            return max(DUMPS.rglob("*after_optimizations.hlo.pb"), key=lambda path: path.stat().st_size).parent
        new = made.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        subprocess.run([python, Path(__file__).with_name("program.py"), new], check=True, capture_output=True)
        made.mkdir(parents=True)
        for path in [*rivals.memory_files(new), *new.glob("*after_optimizations.hlo.pb")]:
            path.rename(made / path.name)
        shutil.rmtree(new)
    return made


@pytest.mark.benchmark(warmup=False)
def test_xprof(program: Path, request: pytest.FixtureRequest, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    python = request.config.getoption("--xprof")
    if not has(python, "xprof"):
        pytest.skip("xprof is not installed: pip install xprof, here or elsewhere (--xprof PYTHON)")
    (proto,) = program.glob("*after_optimizations.hlo.pb")
    text = rivals.memory_files(program)
    for path in text:  # the memory files alone
        (tmp_path / path.name).symlink_to(path)
    (profile := tmp_path / "profile").mkdir()
    (profile / "program.hlo_proto.pb").write_bytes(proto.read_bytes())
    (profile / "host.xplane.pb").touch()
    theirs = in_fresh_process("xprof_viewer", "xprof", profile / "host.xplane.pb", python=python)
    ours = benchmark.pedantic(in_fresh_process, ("xprof_viewer", "xlamem", tmp_path), rounds=1)
    size = sum(path.stat().st_size for path in text)
    for label, found, read in (("xlamem, from text", ours, size), ("XProf, from proto", theirs, proto.stat().st_size)):
        cells = {
            "MB input": f"{read / 1e6:.1f}",
            "CPU ms": f"{1e3 * found['again_s']:.2f}",
            "first": f"{1e3 * found['first_s']:.2f}",
            "MB memory": f"{found['peak_bytes'] / 1e6:.1f}",
            "x CPU": f"{found['again_s'] / ours['again_s']:.1f}",
            "x first": f"{found['first_s'] / ours['first_s']:.1f}",
            "x memory": f"{found['peak_bytes'] / max(ours['peak_bytes'], 1):.1f}",
        }
        rows.append(Row(TITLE, label, cells))
    benchmark.extra_info.update({"xprof": theirs, "xlamem": ours})
