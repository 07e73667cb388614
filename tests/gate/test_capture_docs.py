"""The examples of docs/capture.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from with_jax import HAS_LIBTPU

import xlamem
from xlamem.gate.capture import Capture

TEXT = (Path(__file__).parents[2] / "docs" / "capture.md").read_text("utf-8")
FRAMEWORKS = re.compile("import (tensorflow|torch)")
GIVEN = """
import jax, jax.numpy as jnp, xlamem
params = jnp.ones((512, 512))
x = tokens = jnp.ones((64, 512))
args = (params, x)

def other_step(params, x):
    return jnp.sin(x @ params).sum()

@jax.jit
def train_step(params, tokens):
    return tokens.sum() + params.sum()

def train(steps):
    jax.clear_caches()
    train_step(params, tokens)
"""
"""What the examples take as given."""


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.S) if not FRAMEWORKS.search(block)]
    assert len(blocks) == 9
    if not HAS_LIBTPU:
        blocks = [block for block in blocks if "topology" not in block]
    names: dict[str, object] = {}
    for block in [GIVEN, *blocks]:
        exec(compile(block, "docs/capture.md", "exec"), names)
    captured = names["captured"]
    assert isinstance(captured, Capture)
    assert [source.module_name for source in xlamem.find(tmp_path)] == ["jit_step"]
