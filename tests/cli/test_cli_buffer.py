"""`xlamem buffer`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import attacks
import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*args: str | Path | int, columns: int = 80) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        code = cli.main(["buffer", *map(str, args)])
        return Result(code, *capsys.readouterr())

    return call


def test_screen(run: Any) -> None:
    r = run(TPU, "copy-start.1{0}")
    assert (r.code, r.err) == (0, "")
    lines = [" ".join(line.split()) for line in r.out.splitlines()]
    assert "copy-start.1{0} f32[512,512] 1.00 MiB (1,048,576 bytes)" in lines
    assert "name jit(m_host_offload)/dot_general" in lines
    assert any(line.startswith("definer copy-start.1, copy-start") for line in lines)
    assert all(len(line) <= 80 for line in run(TPU, "copy-start.1{0}", columns=80).out.splitlines())


def test_the_limit_that_the_screen_mentions(run: Any) -> None:
    uses = xlamem.read(LAYERS).uses["value_id"].to_pylist()
    most_used = max(set(uses), key=uses.count)
    assert "more: --limit shows more" in run(LAYERS, most_used, "--limit", 1).out
    assert "--limit" not in run(LAYERS, most_used, "--limit", 1000).out
    every, first = (json.loads(run(LAYERS, most_used, "--json", *limit).out) for limit in ((), ("--limit", 1)))
    for name in ("users", "positions", "mates"):
        assert first[name] == every[name][:1]
    assert len(every["users"]) > 1


def test_json(run: Any) -> None:
    data = json.loads(run(TPU, "copy-start.1{0}", "--json").out)
    assert data["value"]["instruction"] == "copy-start.1"
    assert {use["instruction"] for use in data["users"]} >= {"copy-done.1"}


def test_where_the_peak_is_without_it(run: Any, make: Callable[..., Path]) -> None:
    values = [attacks.value(1, "first", 512), attacks.value(2, "second", 448)]
    path = make(attacks.dump(values, ranges=["first{}:0-1", "second{}:3-4"]))
    texts = [" ".join(run(path, name).out.split()) for name in ("first", "second")]
    assert "without the buffer, the peak of memory is at most 64 bytes lower: 448 B, at step 3" in texts[0]
    assert "without the buffer, the peak of memory does not change" in texts[1]
    assert "lower" not in texts[1]
    path = make(attacks.dump([*values[:1], attacks.value(2, "second", 512)], ranges=["first{}:0-1", "second{}:3-4"]))
    text = " ".join(run(path, "first").out.split())
    assert "without the buffer, the peak of memory is as high, at step 3" in text
    path = make(attacks.dump(values, ranges=["first{}:0-1", "second{}:3-4"]))
    data = json.loads(run(path, "first", "--json").out)
    assert (data["peak_without"], data["peak_step_without"]) == (448, 3)


def test_the_callers_of_a_line(run: Any) -> None:
    """The innermost first, some on the screen and all in JSON; none for an argument."""
    calls = json.loads(run(TPU, "copy-start.1{0}", "--json").out)["calls"]
    assert [(call["file"], call["line"], call["function"]) for call in calls[:2]] == [
        ("/home/user/model/scripts/models.py", 369, "host_offload.<locals>.m_host_offload"),
        ("/home/user/model/scripts/gen.py", 76, "child"),
    ]  # fmt: skip
    text = " ".join(run(TPU, "copy-start.1{0}").out.split())
    assert " calls models.py:369 (m_host_offload) < gen.py:76 (child) < " in text
    assert json.loads(run(TPU, "x.1", "--json").out)["calls"] == []
    assert "calls" not in run(TPU, "x.1").out


def test_a_name_that_does_not_exist(run: Any) -> None:
    r = run(TPU, "nothing")
    assert (r.code, r.out) == (2, "")
    assert "no buffer 'nothing'" in r.err
    assert "; `xlamem top --by buffer` lists those in use" in r.err


def test_a_label_of_the_screens(run: Any) -> None:
    """The largest of the buffers that are called so is shown, and how many there are."""
    for label in ("dot_general", "copy of dot_general", "…_general", "2× dot_general"):
        r, is_copy = run(TPU, label), label.startswith("copy")
        n = 6 if is_copy else 2
        assert r.err == f"note: {n} buffers have this label; `xlamem top --by buffer` lists those in use\n"
        assert r.out == run(TPU, "copy-start{0}" if is_copy else "convolution_tanh_fusion").out
        assert "jit(m_host_offload)/dot_general" in r.out
    r = run(TPU, "dot_general", "--json")
    assert json.loads(r.out)["namesakes"] == 1
    assert run(TPU, "copy-start{0}").err == ""


def test_a_label_with_folded_numbers(run: Any) -> None:
    assert "buffers have this label" in run(LAYERS, "layer_*/mlp/dot_general").err
    for text in ("", "…", "read by ", "*", "("):
        assert "no buffer" in run(LAYERS, text).err
