"""The screens of `peak`, `top`, `explain` and `info` on every real dump: how long they are, and what they leave out."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import re
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from conftest import DUMPS, every, label, sources
from test_cli_peak import Result, process

import xlamem
from xlamem import cli, compute, schema
from xlamem.cli import console, reporters
from xlamem.cli.reporters import buffers
from xlamem.cli.reporters.notes import Note, note_lines
from xlamem.input.find import Source

HEIGHT, WIDTH = 40, 80
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
MPL = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
EVERY = sources()
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*args: str | Path, columns: int = WIDTH) -> Result:
        monkeypatch.setenv("COLUMNS", str(columns))
        code = cli.main([str(a) for a in args])
        return Result(code, *capsys.readouterr())

    return call


def size_of(line: str) -> float:
    """The size at the beginning of a line."""
    amount, unit = line.split()[:2]
    return float(amount) * UNITS[unit]


# ---- their length


@pytest.mark.parametrize("verb", ["peak", "peak --device v5e --resident 1GiB", "explain"])
@pytest.mark.parametrize("source", every(2, EVERY), ids=label)
def test_a_screen_has_at_most_40_lines(run: Any, source: Source, verb: str) -> None:
    lines = run(*verb.split(), source.members[0].uri).out.splitlines()
    assert 2 <= len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.parametrize(
    "command",
    [
        "peak {tpu} --device v5e --resident 15.7GiB -v", "peak {cpu} {tpu}", "bill {tpu}", "advise {cpu}",
        "explain {tpu} -v", "info {tpu}", "info {cpu} {tpu}", "schema", "schema values", "top {tpu} --by buffer",
        "buffer {tpu} 0", "oom {log}",
    ],
)  # fmt: skip
def test_prose_has_the_room_that_is_left(command: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line of it begins where the room begins for which it was wrapped."""
    for found in pkgutil.iter_modules(reporters.__path__):
        module = importlib.import_module(f"{reporters.__name__}.{found.name}")
        if hasattr(module, "wrap"):
            monkeypatch.setattr(module, "wrap", lambda text, indent, width: [f"<{WIDTH - width + indent}>"] * 2)
    log = DUMPS.parent / "data/oom/tpu-v5e-jax0.7.2-oom_temps.txt"
    result = run(*command.format(cpu=LAYERS, tpu=MPL, log=log).split())
    places = [(m.start(), int(m[1])) for line in result.out.splitlines() for m in re.finditer(r"<(\d+)>", line)]
    assert result.code == 0
    assert [at for at, _ in places] == [room for _, room in places]
    assert places


def test_a_directory_with_the_screen_of_its_largest_program_too(run: Any) -> None:
    lines = run("peak", DUMPS).out.splitlines()
    assert len(lines) <= HEIGHT
    assert any(line.startswith("  scopes") for line in lines)
    assert any(line.startswith("  largest") for line in lines)


def test_a_path_alone_shows_its_peak(run: Any) -> None:
    assert run(LAYERS).out == run("peak", LAYERS).out
    assert run(LAYERS, "--csv").out == run("peak", LAYERS, "--csv").out
    (dump,) = xlamem.find(LAYERS)
    for path in (LAYERS / dump.name, f"{LAYERS}*"):  # a stem, a glob
        shown = run("peak", path)
        assert (shown.code, run(path).out) == (0, shown.out)
    r = run("peke", LAYERS)
    assert (r.code, r.out) == (2, "")
    assert "No such command" in r.err


# ---- nothing large is left out


def check_remainder(line: str, previous: str, total: float) -> None:
    """A line that sums up other rows is smaller than the line before it, and a small share of all."""
    assert size_of(line) <= size_of(previous) + 0.01 * UNITS[previous.split()[1]]
    assert size_of(line) <= 0.031 * total


def has_live_ranges(source: Source) -> bool:
    return xlamem.read(source).live_ranges.num_rows > 0


@pytest.mark.parametrize(
    "source", every(3, (s for s in EVERY if "dumps" in s.location and has_live_ranges(s))), ids=label
)
def test_no_screen_ends_in_a_large_remainder(run: Any, source: Source) -> None:
    dump = xlamem.read(source)
    peaks = {s["memory_space"]: s["peak"] for s in compute.peak(dump).spaces.to_pylist()}
    for verb in ("peak", "top --by buffer", "top", "top --by source", "top --by instruction", "top --tree"):
        total, lines = 0, run(*verb.split(), source.members[0].uri).out.splitlines()
        for previous, line in pairwise(lines):
            total = peaks.get(line.split(maxsplit=1)[0] if line else "", total)
            if re.search(r"\d[a-zA-Z ]+in [\d,]+ (more: --limit|other groups?)", line) and size_of(previous):
                check_remainder(line, previous, total)


def test_the_first_level_of_the_scopes_adds_up(run: Any) -> None:
    for path in (LAYERS, MPL, DUMPS / "gpu-jax-0.10.2-attn_cudnn", DUMPS / "cpu-jaxlib-0.12.0-odd_tree"):
        peak = compute.peak(xlamem.read(path)).spaces.to_pylist()[0]["peak"]
        lines = run("peak", path).out.splitlines()
        begin = next(i for i, line in enumerate(lines) if line.startswith(("  scopes", "  functions")))
        end = next(i for i, line in enumerate(lines) if line.startswith("  largest"))
        first = [line for line in lines[begin + 1 : end] if re.search(r"%  \w", line)]
        assert 0.98 * peak <= sum(map(size_of, first)) <= 1.001 * peak


def test_many_small_buffers_are_folded_by_scope(run: Any) -> None:
    out = run("top", LAYERS, "--by", "buffer", "--limit", 5).out
    (begin,) = (i for i, line in enumerate(out.splitlines()) if line.endswith("with numbers folded to *:"))
    rest = out.splitlines()[begin + 1 :]
    assert len(rest) <= 17
    assert any(re.search(r"█ +\d+×  layer_\*", line) for line in rest)
    listed = [line for line in out.splitlines()[4:begin] if re.match(r" +[\d.]+ [KM]iB  ", line)]
    assert len(listed) == 5
    assert sum(map(size_of, [*listed, *rest])) == pytest.approx(12_733_224, rel=0.002)
    assert re.search(r"in \d+ more: --limit shows more", run("top", LAYERS, "--by", "category", "--limit", 3).out)


# ---- what tells rows apart


def row(**values: Any) -> dict[str, Any]:
    names = dict.fromkeys(schema.COMPUTED["live_set"].names)
    plain = {"role": "value", "category": "temp", "bytes": 4, "size": 4, "unpadded_size": 4, "shape": "f32[]"}
    return names | {"n": 1, "n_shapes": 1} | plain | values


def test_rows_that_differ_are_shown_differently() -> None:
    scope = "Transformer/decoder/layers_{}/self_attention/{}/bhqk,bkhd->bqhd/dot_general"
    rows = [
        row(op_name=scope.format(i, kind), source_file=f"/home/u/{d}/model/layers.py", source_line=17, instruction="f")
        for i in (1, 12, 120)
        for kind in ("query", "key")
        for d in ("flax", "haiku")
    ]
    for width in (60, 80, 100):
        lines = [line.plain for line in buffers.group_lines(rows, width, wide=False)]
        assert len(set(lines)) == len(rows)
        assert max(map(len, lines)) <= width
        pairs = [line.plain for line in buffers.buffer_lines(rows, width, wide=False)][::2]
        assert len(set(pairs)) == len(rows)
        assert max(map(len, pairs)) <= width


def test_programs_with_long_names_are_told_apart(run: Any, tmp_path: Path) -> None:
    text = next(s for s in EVERY if s.module_name == "jit_beta").members[0]
    name = "jit_" + "transform_the_batch_and_apply_the_model_" * 2
    for i, letter in enumerate("abc"):
        target = tmp_path / f"module_{i:04d}.{name}{letter}_{'of_the_update_step' * 3}.cpu_after_optimizations"
        Path(f"{target}-buffer-assignment.txt").write_bytes(Path(text.uri).read_bytes())
    lines = run("peak", tmp_path).out.splitlines()[1:4]
    names = {line.split()[-1] for line in lines}
    assert len(names) == 3
    assert max(map(len, lines)) <= WIDTH
    assert len({line.split()[-1] for line in run("info", tmp_path).out.splitlines()[1:4]}) == 3


# ---- notes


def test_notes_are_one_line() -> None:
    notes = [Note(f"title {i}", f"text {i} " * 20) for i in range(9)]
    (line,) = note_lines(notes, WIDTH, verbose=False)
    assert line.plain.startswith("9 notes: title 0; title 1; ")
    assert line.plain.endswith("; …; -v lists them")
    assert len(line.plain) <= WIDTH
    assert note_lines([], WIDTH, verbose=True) == []
    assert note_lines(notes[:1], None, verbose=False)[0].plain == "1 note: title 0; -v shows it"
    texts = [line.plain for line in note_lines(notes[:2], WIDTH, verbose=True)]
    assert texts[0] == "2 notes:"
    assert " ".join(" ".join(texts[1:]).split()).count("text 1") == 20


# ---- explain


def test_explain_shows_equal_numbers_once(run: Any) -> None:
    out = run("explain", LAYERS).out
    reserved = r"^  reserved +16\.29 MiB +17,086,328 +\+4\.15 MiB  = device_total\n +\+4\.15 MiB  another step$"
    assert re.search(reserved, out, re.M)
    assert "= device_total" in out
    assert out.split("\n\nJAX")[0].count("17,086,328") == 1
    assert "maximum bytes" not in out
    verbose = run("explain", LAYERS, "-v").out
    assert verbose.split("\n\nJAX")[0].count("17,086,328") == 2
    assert "maximum bytes in use at any step" in re.sub(r"\s+", " ", verbose)
    for n in compute.explain(xlamem.read(LAYERS)).to_pylist():
        assert n["name"].removeprefix("jax.").split(",")[0] in out or n["name"].startswith("jax.host_")


def test_explain_folds_small_memory_spaces(run: Any) -> None:
    out = run("explain", DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload").out
    assert "also: sflag 4 B" in out.splitlines()
    assert re.search(r"^host +1\.00 MiB +1,048,576 +peak, 1\.00 MiB reserved$", out, re.M)
    alone = run("explain", DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload", "--space", "sflag").out
    assert "\nsflag\n  reserved" in alone


def test_explain_says_what_inferred_numbers_are(run: Any) -> None:
    title = "JAX's memory_analysis(); inferred: by a formula right on N of M real dumps"
    out = run("explain", DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload").out
    assert title in out.splitlines()
    assert "  inferred, 241 of 283\n" in out
    assert title not in run("explain", LAYERS).out


def test_explain_in_a_narrow_terminal(run: Any) -> None:
    out = run("explain", DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload", columns=54).out
    numbers = out.split("\n\nJAX")[0].split("\n\n", 1)[1]
    assert re.search(r"^  peak.*\d\n      step 8$", numbers, re.M)
    assert "…" not in numbers
    assert "\n\n  " not in numbers


def test_explain_needs_no_more_columns_than_its_longest_line(run: Any) -> None:
    """What just fits beside the numbers stays there."""
    wide = run("explain", MPL, columns=300).out
    hbm = wide[wide.index("\n\nhbm\n") : wide.index("\n\nJAX")]
    longest = max(hbm.splitlines(), key=len)
    assert longest.endswith("in use but not live, step 15")
    assert hbm in run("explain", MPL, columns=len(longest)).out


# ---- info


def test_info_says_features_in_words(run: Any) -> None:
    out = re.sub(r"\s+", " ", run("info", MPL).out)
    codes = xlamem.read(MPL).modules["features"][0].as_py().split(",")
    for code in codes:
        assert schema.FEATURES[code] in out
    assert "from_instruction_blank" not in out
    assert "report_b" not in out


def test_the_sum_of_info_fits(run: Any) -> None:
    lines = run("info", DUMPS, columns=40).out.splitlines()
    first, second = lines[lines.index("") + 1 :][:2]
    assert max(len(first), len(second)) <= 40
    assert f"{first} {second}".endswith(" of text, 1 truncated")


def test_a_screen_without_unicode_has_no_line_drawing() -> None:
    shown = process("peak", LAYERS, env={**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"})
    assert shown.returncode == 0
    assert re.search(r"%  \|- layer_\*", shown.stdout)


def test_the_width_of_messages_is_that_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stdout may be a file, or another terminal."""
    size: Any = os.terminal_size((130, 40))
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(fileno=lambda: 7))
    monkeypatch.setattr(os, "get_terminal_size", lambda number=0: size if number == 7 else os.terminal_size((60, 9)))
    for columns, wanted in (("", 130), ("x", 130), ("90", 90), ("3", console.MIN_WIDTH)):
        monkeypatch.setenv("COLUMNS", columns)
        assert console._stderr_width() == wanted
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setenv("COLUMNS", "")
    assert console._stderr_width() == 80


@pytest.mark.parametrize("terminal", [True, False])
def test_errors_are_wrapped_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    """Those of a log stay a line each, as do the lines of a list, and no path is broken."""
    path, others = "x" * 52, f"\n  0  {'module ' * 9}\n  1  b"
    wrapped = f"no budget of\n  {path}\n  matches; there are jit_step, jit_train_step{others}"
    line = f"no budget of {path} matches; there are jit_step, jit_train_step{others}"
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    assert console.error(line, 2) == 2
    console.note("short")
    assert click.unstyle(capsys.readouterr().err) == f"error: {wrapped if terminal else line}\nnote: short\n"
