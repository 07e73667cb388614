"""`xlamem advise`: the screen, the budget, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli, compute, schema
from xlamem.cli.options import Output
from xlamem.cli.reporters import advice as reporter

PROGRAM = Path(__file__).parents[1] / "data" / "advice" / "tpu-attention" / "base"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | Path) -> tuple[int, str, str]:
        return cli.main(["advise", *map(str, args)]), *capsys.readouterr()

    return call


def test_the_screen(run: Any) -> None:
    code, out, err = run(PROGRAM)
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert max(map(len, lines)) <= 80
    assert lines[3] == "must fit  6.32 GiB (6,784,195,072 bytes)"
    heads = [line.split() for line in lines if line.startswith(" 1 ")]
    assert heads[0][-2:] == ["likely", "recompute"]
    assert any("scan over jax.checkpoint(body)" in line for line in lines)
    assert any("interventions.py:" in line for line in lines)


def test_the_limit(run: Any) -> None:
    _, out, _ = run(PROGRAM, "--limit", "1")
    assert "\n 2  " not in out
    assert out.endswith("other interventions: --limit shows more\n")


def sentence(out: str) -> str:
    """Return the paragraph below the bytes that must fit."""
    return " ".join(out.partition("must fit")[2].partition("\n\n")[0].split("\n")[1:])


@pytest.mark.parametrize(
    ("name", "needed", "shown"), [("dot.1.remat", 6400, True), ("dot.1.remat", 6401, False), ("dot.2", 6400, False)]
)
def test_what_xla_computes_again_may_be_kept_instead(
    name: str, needed: int, shown: bool, make: Callable[..., Path]
) -> None:
    """At least 1 % of what must fit."""
    values = [attacks.value(1, "dot.1", 64), attacks.value(2, name, 64, 64), attacks.value(3, "dot.3", 512, 128)]
    dump = xlamem.read(make(attacks.dump(values, ranges=["dot.1{}:0-2", f"{name}{{}}:3-5", "dot.3{}:3-5"])))
    text = reporter._rematerializes(dump, needed)
    wanted = "XLA rematerializes 1 buffer around the peak (64 B, .remat): because memory is scarce, it computes it"
    assert (wanted in text) == shown == bool(text)


def test_which_rematerialized_buffers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in the main memory that are at the peak, or that save something there."""
    clones = pa.table({"color": [0, 0, 1, 0], "at_peak": [True, False, True, False], "saved": [0, 5, 5, 0],
                       "size": [10, 20, 40, 80]})  # fmt: skip
    monkeypatch.setattr(reporter, "rematerialized", lambda _: clones)
    dump: Any = None
    assert reporter._rematerializes(dump, 3000).startswith("XLA rematerializes 2 buffers around the peak (30 B, .remat")
    assert reporter._rematerializes(dump, 3001) == ""


def test_rows_that_are_alike_say_where_their_code_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is used twice has one row for each use; the innermost calls are the same."""

    def call(line: int, function: str) -> dict[str, Any]:
        return {"file": "/x/train.py", "line": line, "function": function}

    calls = {1: [call(50, "layer"), call(69, "f.<locals>.loss")], 2: [call(50, "layer"), call(70, "loss")]}
    calls |= {3: calls[2][:1], 4: []}
    monkeypatch.setattr(reporter, "calls_to", lambda dump, value: calls[value])
    row = dict.fromkeys(("scope", "function", "source_file", "source_line")) | {"kind": "scan", "action": "Scan."}

    def sites(*values: int | None, **others: Any) -> dict[int, str]:
        rows = [row | {"rank": i, "value_id": value} for i, value in enumerate(values)]
        rows[0] |= others
        return reporter._call_sites(None, rows)  # type: ignore[arg-type]

    assert sites(1, 2) == {0: "called at train.py:69 (loss)", 1: "called at train.py:70 (loss)"}
    assert sites(1, 2, 1)[2] == "called at train.py:69 (loss)"
    assert sites(1, 2, source_line=5) == sites(1, 2, action="Offload.") == sites(2, 2) == sites(1) == {}
    assert sites(2, 3) == sites(1, 4) == sites(1, None) == {}  # no callers are known that differ


def test_rows_of_a_helper_say_where_it_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several lines call the helper and what calls it, so that their lines tell little. A layer has its own text."""
    calls = [{"file": "/x/nn.py", "line": n, "function": name} for n, name in ((1, "dense"), (2, "mlp"), (3, "block"))]
    monkeypatch.setattr(reporter, "calls_to", lambda dump, value: calls)
    monkeypatch.setattr(reporter, "shared_lines", lambda frames: {"/x/nn.py:1", "/x/nn.py:2"})
    row = {"rank": 0, "value_id": 7, "function": None, "source_file": "/x/nn.py", "source_line": 1}
    dump: Any = SimpleNamespace(frames=None)

    def sites(**others: Any) -> dict[int, str]:
        return reporter._calls_of_helpers(dump, [row | others])

    assert sites() == {0: "called at nn.py:3 (block)"}
    assert sites(source_line=3) == sites(function="block") == sites(value_id=None) == sites(source_file=None) == {}
    del calls[2]
    assert sites() == {}


@pytest.mark.parametrize(
    ("names", "width", "text"),
    [
        ({"scope": "exp"}, 70, "2 buffers, 8 B  exp  f32[16,4,2048,2048]  /home/me/model/nn.py:14"),
        ({"scope": "exp"}, 62, "2 buffers, 8 B  exp  f32[16,4,2048,2048]  …/model/nn.py:14"),
        ({"scope": "exp"}, 55, "2 buffers, 8 B  exp  f32[16,4,2048,2048]  nn.py:14"),
        ({"function": "Block.__call__"}, 65, "2 buffers, 8 B  Block.__call__  f32[16,4,2048,2048]  nn.py:14"),
    ],
)
def test_directories_are_left_out_before_names_and_shapes(names: dict[str, str], width: int, text: str) -> None:
    row: dict[str, Any] = dict.fromkeys(("function", "scope", "argument", "instruction"))
    row |= {"n_buffers": 2, "bytes": 8, "shape": "f32[16,4,2048,2048]{3,2,1,0}"}
    row |= {"source_file": "/home/me/model/nn.py", "source_line": 14}
    assert str(reporter._place(row | names, width)).strip() == text


def test_where_the_screen_says_what_is_called_and_rematerialized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call below its row; XLA's choice once, at the end."""
    dump = xlamem.read(PROGRAM)
    rows = compute.advise(dump).to_pylist()
    output = Output(limit=2)
    plain = [str(line) for line in reporter.screen(dump, rows, None, output)]
    called = {rows[1]["rank"]: "called here", rows[2]["rank"]: "not shown"}
    monkeypatch.setattr(reporter, "_call_sites", lambda dump, shown: called)
    monkeypatch.setattr(reporter, "_rematerializes", lambda dump, total: "again")
    found = [str(line) for line in reporter.screen(dump, rows, None, output)]
    end = len(plain) - 2  # before the number of the others
    assert found == [*plain[:end], "    called here", *plain[end:], "", "again"]


def test_budgets(run: Any) -> None:
    reached = sentence(run(PROGRAM, "--budget", "5GiB")[1])
    assert reached == (
        "The following saves at least 1.55 GiB: 4.77 GiB must fit then, within the budget of 5.00 GiB."
    )
    far = sentence(run(PROGRAM, "--budget", "1GiB")[1])
    assert "together save at least" in far
    assert "which may not be enough" in far
    assert sentence(run(PROGRAM, "--budget", "7GiB")[1]) == "It fits the budget of 7.00 GiB already."
    code, _, err = run(PROGRAM, "--budget", "7")
    assert code == 2
    assert "has no unit" in err


def test_the_memory_of_a_device_is_a_budget(run: Any) -> None:
    assert sentence(run(PROGRAM, "--device", "v5e")[1]) == "It fits the budget of 15.75 GiB already."
    plan = json.loads(run(PROGRAM, "--json", "--device", "V3")[1])["plan"]
    assert plan == json.loads(run(PROGRAM, "--json", "--budget", "16621523435B")[1])["plan"]
    for given, message in (
        (["--device", "v5e", "--budget", "5GiB"], "a budget and a device exclude each other"),
        (["--device", "v9"], "no device 'v9'"),
    ):
        code, _, err = run(PROGRAM, *given)
        assert (code, message in err) == (2, True)


def test_json(run: Any) -> None:
    data = json.loads(run(PROGRAM, "--json", "--budget", "5GiB")[1])
    table, plan = compute.plan_advice(xlamem.read(PROGRAM), "5GiB")
    assert data["advice"] == table.to_pylist()
    assert plan is not None
    assert data["plan"] == {**plan._asdict(), "is_reached": True}
    assert data["device_total"] == plan.device_total
    assert json.loads(run(PROGRAM, "--json")[1])["plan"] is None


def test_csv(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(run(PROGRAM, "--csv", "-n", "2")[1])))
    assert len(rows) == 2
    assert tuple(rows[0]) == schema.COMPUTED["advice"].names


def test_nothing_to_say(run: Any, tmp_path: Path) -> None:
    assert "no live ranges" in run(DUMPS / "cpu-tf-1.15.0-loop")[1]
    lines = ["BufferAssignment:", "allocation 0: size 8, output shape is |f32[2]|, maybe-live-out:"]
    lines += [" value: <0 out @0> (size=8,offset=0): f32[2]{0}", "", "Total bytes used: 8", "", "Used values:", ""]
    lines += ["HloLiveRange (max 1):", "  InstructionSequence:", "    0:out", "  BufferLiveRange:", "    out{}:0-1", ""]
    path = tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"
    path.write_text("\n".join(lines))
    assert "No intervention that xlamem knows would save 1 %" in run(path)[1]


@pytest.mark.parametrize("folder", sorted(DUMPS.iterdir()), ids=lambda f: f.name)
def test_every_dump(run: Any, folder: Path) -> None:
    code, out, _ = run(folder)
    assert code in (0, 3)
    assert max((len(line) for line in out.splitlines()), default=0) <= 80


def test_a_device_of_another_platform(run: Any) -> None:
    """What the program would need there is not known."""
    code, out, err = run(DUMPS / "cpu-jaxlib-0.12.0-scan_while", "--device", "v5e")
    assert (code, out) == (2, "")
    assert "compiled for v5e, it needs another amount; state a --budget instead" in err
