"""Modules of the page's script, run by node. Without node or esbuild, the tests are skipped."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "src" / "xlamem" / "page" / "script"
"""The wheel does not contain it."""
ESBUILD = SCRIPT / "node_modules" / ".bin" / "esbuild"
HEAD = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
"""


def bundled(program: str, folder: Path, head: str = HEAD) -> Path:
    """Write a program that uses modules of the page's script: with `HEAD`, `given` is its input. It prints JSON."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    if not ESBUILD.exists():
        pytest.skip("esbuild is not installed: make page")
    output = folder / "program.mjs"
    command = [str(ESBUILD), "--bundle", "--platform=node", "--format=esm", "--log-level=error", f"--outfile={output}"]
    subprocess.run(command, input=head + program, text=True, cwd=SCRIPT, check=True, timeout=60)
    return output


def run(program: Path, **given: Any) -> Any:
    """Run a program with this input. Returns what it prints."""
    command = ["node", str(program)]
    result = subprocess.run(command, input=json.dumps(given), text=True, capture_output=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
