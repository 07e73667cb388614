"""The program of docs/start.md, with real JAX: it does not fit, its dump names the lines, and the change helps."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from with_jax import jax, jnp, tpu

import xlamem

TEXT = (Path(__file__).parents[2] / "docs" / "start.md").read_text("utf-8")
LINES = {11, 12, 13}
"""The lines of train.py that compute the attention scores."""


def example(title: str) -> str:
    """Return the snippet with this title."""
    found = re.search(rf'^( *)```python title="{title}"\n(.*?)^ *```', TEXT, re.S | re.M)
    assert found, title
    return re.sub(f"^{found[1]}", "", found[2], flags=re.M)


def changed(program: str) -> str:
    """Return the program with the attention of the second snippet."""
    old = program[program.index("def attention") : program.index("def layer")]
    return program.replace(old, f"{example('train.py, instead of attention')}\n\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "train", raising=False)
    (tmp_path / "train.py").write_text(example("train.py"))
    return tmp_path


def capture_with_jax() -> str:
    """Return the snippet of the tab of JAX."""
    (snippet,) = re.findall(r"^    ```python\n(    import xlamem\n\n    with .*?)^    ```", TEXT, re.S | re.M)
    return re.sub("^    ", "", str(snippet), flags=re.M)


def test_a_block_is_captured(folder: Path) -> None:
    step = jax.jit(lambda params, batch: jnp.tanh(batch @ params).sum())
    exec(capture_with_jax(), {"train_step": step, "params": jnp.ones((64, 64)), "batch": jnp.ones((8, 64))})
    assert len(xlamem.find("dumps")) == 1


def test_the_stored_dump_is_of_the_program() -> None:
    """The lines that the page names compute the scores, before and after."""
    lines = example("train.py").splitlines()
    assert [lines[n - 1].split(" = ")[0].strip() for n in (11, 12)] == ["scores", "weights"]
    dump = xlamem.read(Path(__file__).parents[1] / "data" / "start" / "does-not-fit.tar.xz")
    assert set(xlamem.live_set(dump, space="hbm")["source_line"].to_pylist()[:3]) == LINES


@tpu
@pytest.mark.slow
def test_the_program_does_not_fit_until_it_is_changed(folder: Path) -> None:
    code = example("memory.py")
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as raised:
        exec(code, {})
    assert raised.value.__notes__[0].endswith("GiB must fit")
    dump = xlamem.read("dumps")
    assert xlamem.fits(dump, device="v5e").fits is False
    assert set(xlamem.live_set(dump, space="hbm")["source_line"].to_pylist()[:3]) == LINES

    Path("dumps").rename("dumps-before")
    Path("train.py").write_text(changed(example("train.py")))
    sys.modules.pop("train")
    exec(code, {})
    assert xlamem.fits("dumps", device="v5e").fits is True
