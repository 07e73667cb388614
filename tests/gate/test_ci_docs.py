"""The walk through docs/ci.md: from an empty repository to a red check that names the cause, with real JAX."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_action import DOCS, example
from with_jax import jax

from xlamem import cli

FLAGS = re.search(r'export JAX_PLATFORMS=cpu XLA_FLAGS="(.*)"', DOCS)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of the examples in an empty repository."""
    (tmp_path / ".git").mkdir()
    for name in ("model.py", "memory.py", "xlamem.toml"):
        (tmp_path / name).write_text(f"# {name}\n{example(name)}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def compiled() -> None:
    """Run memory.py into an empty directory."""
    assert FLAGS
    shutil.rmtree("dumps", ignore_errors=True)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS[1]}
    subprocess.run([sys.executable, "memory.py"], env=environment, check=True)


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*options: str) -> tuple[int, str]:
        code = cli.main(["check", "dumps", *options])
        return code, capsys.readouterr().out

    return run


def shown(command: str) -> str:
    """Return the output of a command in docs/ci.md."""
    found = re.search(rf"^\$ {re.escape(command)}\n((?:(?!\$ |```).*\n)+)", DOCS, re.M)
    assert found
    return found[1].rstrip()


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


LIBRARY = """
import jax.numpy as jnp

def network(params, x):
    for p in params:
        x = jnp.tanh(x @ p)
    return (x * x).mean()
"""
MODEL = """
import sys

import jax

sys.path.append("venv/lib/site-packages")
from layers import network


def loss(params, x):
    return network(params, x)


shape = jax.ShapeDtypeStruct((512, 512), "float32")
jax.jit(jax.grad(loss)).lower([shape] * 4, shape).compile()
"""


def test_a_line_of_a_library(repository: Path, check: Callable[..., tuple[int, str]]) -> None:
    """What a library needs has the line of the model that calls it."""
    library = repository / "venv" / "lib" / "site-packages" / "layers.py"
    library.parent.mkdir(parents=True)
    library.write_text(LIBRARY)
    (repository / "memory.py").write_text(MODEL)
    (repository / "xlamem.toml").write_text("[[budget]]\npeak = '1KiB'\n")
    compiled()
    code, red = check()
    assert code == 1
    assert "layers.py" not in red
    assert re.search(r"why: .*memory\.py:\d", red, re.S)
    place = re.search(r"at: .*memory.py:(\d+)$", red, re.M)
    assert place
    assert MODEL.splitlines()[int(place[1]) - 1] == "    return network(params, x)"


def test_from_an_empty_repository(repository: Path, check: Callable[..., tuple[int, str]]) -> None:
    """Model, budget, green; then the donation is removed: red, with the line; then blessed: green."""
    compiled()
    code, first = check("--bless")
    assert code == 0
    assert check()[0] == 0
    (snippet,) = re.findall(r"```python\n(import xlamem\n.*?)```", DOCS, re.S)
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert names["result"].passed

    edit(repository / "model.py", "# model.py\n", "# model.py\n# moved\n")
    compiled()
    assert check()[0] == 0
    edit(repository / "model.py", "# moved\n", "")

    edit(repository / "model.py", ", donate_argnums=0", "")
    compiled()
    code, red = check()
    assert code == 1
    assert "why: 8 arguments are no longer donated: state[0][0], state[0][1]," in red
    lines = (repository / "model.py").read_text().splitlines()
    found = re.search(r"^  at: (.*):(\d+)$", red, re.M)
    assert found
    assert str(repository / "model.py").endswith(found[1].lstrip("…"))
    assert lines[int(found[2]) - 1].strip().startswith("momentum = [")
    code, annotations = check("--output", "github")
    assert annotations.startswith(f"::error file=model.py,line={found[2]},title=jit_step%3A failed%2C growth::")

    if jax.__version__ in DOCS:
        assert first.rstrip() == shown("xlamem check dumps --bless")
        assert re.sub(r"at: \S*/model", "at: /home/u/model", red).rstrip() == shown("xlamem check dumps")

    assert check("--bless")[0] == 0
    assert check()[0] == 0

    edit(repository / "xlamem.toml", '"24MiB"', '"16MiB"')
    code, red = check("--bless")
    assert code == 1
    assert "device_total (budget 1): 16.50 MiB must fit" in red
