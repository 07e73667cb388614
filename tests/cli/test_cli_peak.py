"""`xlamem peak`, `top` and `explain`: the screens, their width, JSON and CSV, exit codes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attacks
import pytest
from conftest import DUMPS, every

import xlamem
from xlamem import cli, compute, formatting, schema
from xlamem.cli.reporters.buffers import label
from xlamem.cli.reporters.peak import budget_text
from xlamem.cli.verbs import peak
from xlamem.compute.devices import parse_bytes

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
MLP = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
SMALL, OLD = DUMPS / "cpu-jaxlib-0.12.0-scan_while", DUMPS / "cpu-jaxlib-0.4.26-scan_while"
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
GPU = DUMPS / "gpu-jax-0.10.2-offload_params"
TIMELESS = DUMPS / "cpu-tf-1.15.0-loop"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"
ALL = sorted(p for p in DUMPS.iterdir() if p.is_dir())
MOST_IMPORTS = 400
"""Modules that `xlamem peak` may import, dependencies included."""


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def csv(self) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.out)))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(*args: str | Path, columns: int | None = 80) -> Result:
        monkeypatch.delenv("COLUMNS", raising=False)
        if columns is not None:
            monkeypatch.setenv("COLUMNS", str(columns))
        code = cli.main([str(a) for a in args])
        return Result(code, *capsys.readouterr())

    return call


# ---- peak: the screen


def test_the_first_screen_names_buffer_layer_line_and_bytes(run: Any) -> None:
    r = run("peak", TPU)
    assert (r.code, r.err) == (0, "")
    lines = r.out.splitlines()
    assert lines[0] == "jit_m_host_offload  tpu, 15 steps"
    assert "  reserved  3.56 MiB  (3,737,088 bytes)  must fit" in lines
    assert "  peak      3.50 MiB  (3,672,576 bytes)  at step 8 of 15" in lines
    scopes = next(i for i, line in enumerate(lines) if line.startswith("  scopes"))
    assert lines[scopes + 1].split() == ["2.00", "MiB", "57.1", "%", "temporaries:", "dot_general", "5×"]
    assert lines[scopes + 3].split() == ["512.00", "KiB", "14.3", "%", "├─", "x"]
    first = next(i for i, line in enumerate(lines) if line.startswith("  largest"))
    assert lines[first + 1].split() == ["1.00", "MiB", "dot_general", "f32[512,512]", "models.py:369"]
    assert lines[-1] == "1 note: XLA prints another peak; -v shows it"
    verbose = run("peak", TPU, "-v").out.splitlines()
    assert verbose[: len(lines) - 1] == lines[:-1]
    assert verbose[len(lines) - 1 :] == [
        "1 note:",
        "  - for all memory spaces together, XLA prints a peak of 4.50 MiB at step 7;",
        "    xlamem computes 5.00 MiB at step 8 (see xlamem explain)",
    ]


@pytest.mark.parametrize("available", [1, 999, 15 * 2**30 + 2**29, 85_520_809_984, 2**49 + 1])
def test_the_budget_of_the_advice_is_not_above_what_is_available(available: int) -> None:
    budget = parse_bytes(budget_text(available))
    assert available * 0.99 <= budget <= available


def test_the_course_of_other_spaces_fits_narrow_terminals(run: Any) -> None:
    line = next(line for line in run("peak", TPU, columns=50).out.splitlines() if line.startswith("vmem "))
    assert len(line) <= 50
    assert line.endswith("  at steps 1-8 of 15")


def test_the_command_of_the_advice(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the path, if there is room and it is the only one."""
    command, lead = "xlamem advise 'd e' --budget 2.00MiB", "            how, and what else helps:"
    shutil.copytree(TPU, tmp_path / "d e")
    monkeypatch.chdir(tmp_path)
    assert f"{lead} {command}\n" in run("peak", "d e", "--capacity", "2MiB").out
    assert f"{lead}\n            {command}\n" in run("peak", "d e", "--capacity", "2MiB", columns=60).out
    assert f"{lead} xlamem advise 'd e'\n" in run("peak", "d e", "--capacity", "2MiB", "--resident", "3MiB").out
    os.rename("d e", "d" * 60)
    general = command.replace("'d e'", "PATH")
    assert f"{lead} {general}\n" in run("peak", "d" * 60, "--capacity", "2MiB").out
    os.rename("d" * 60, "d")
    assert f"{lead} {general}\n" in run("peak", "d", "--module", "0", "--capacity", "2MiB").out
    shutil.copytree(SMALL, tmp_path / "small")
    assert f"{lead} {general}\n" in run("peak", "d", "small", "--capacity", "2MiB").out


@pytest.mark.parametrize("columns", every(4, [80, 60, 120, 200]))
@pytest.mark.parametrize(
    "verb",
    # test_screens.py looks at all screens of the last two.
    ["top", "top --by buffer", "show idle", *(pytest.param(v, marks=pytest.mark.slow) for v in ("peak", "explain"))],
)
def test_lines_fit(run: Any, verb: str, columns: int) -> None:
    for path in ALL:
        sources = xlamem.find(path)
        for source in sources[:3]:
            r = run(*verb.split(), source.members[0].uri, columns=columns)
            if verb.startswith("top") and r.code == 2:
                assert "no live ranges" in r.err or "no allocations" in r.err
                continue
            assert r.code == 0, (path, r.err)
            long = [line for line in r.out.splitlines() if len(line) > columns]
            assert not long, (path, long[:3])


def test_a_pipe_gets_everything(run: Any) -> None:
    r = run("peak", TPU, columns=None)
    assert "/scripts/models.py:369" in r.out
    assert "…" not in r.out
    assert "\x1b" not in r.out


def test_numbers_of_the_screen_are_those_of_compute(run: Any) -> None:
    for path in ALL:
        for source in xlamem.find(path):
            dump = xlamem.read(source)
            r = run("peak", source.members[0].uri)
            for s in compute.peak(dump).spaces.to_pylist():
                if s["peak"]:
                    assert formatting.size(s["peak"]) in r.out
                    assert s["memory_space"] in r.out


def test_categories_and_buffers_add_up(run: Any) -> None:
    for path in ALL:
        for d in run("peak", path, "--json").json["dumps"]:
            for s in d["spaces"]:
                total = sum(s["categories"].values())
                assert total == (s["reserved"] if s["peak"] is None else s["peak"]), path
                if s["peak"] is not None:
                    assert sum(b["bytes"] for b in s["buffers"]) == s["peak"]
                    assert s["n_buffers"] == len(s["buffers"])
                    assert len(s["plateau_list"]) <= 5


def test_the_chart_has_its_peak_at_the_mark(run: Any) -> None:
    lines = run("peak", LAYERS).out.splitlines()
    top = next(i for i, line in enumerate(lines) if line.startswith("  in use"))
    mark = lines[top + 3].index("▲")
    assert lines[top + 3].strip() == "▲ step 148"
    assert lines[top][mark] == "█"
    assert lines[top].endswith(" 12.14 MiB")
    assert lines[top + 2].endswith(" 0 B")


def test_a_chart_of_a_small_part_stands_on_the_rest(run: Any) -> None:
    lines = run("peak", DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam").out.splitlines()
    top = next(i for i, line in enumerate(lines) if line.startswith("  in use"))
    assert lines[top].endswith(" 790.69 KiB")
    assert lines[top + 2].endswith(" 790.53 KiB")


def test_padding_is_named(run: Any) -> None:
    r = run("peak", DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree")
    assert re.search(r"32\.00 KiB +x +f32\[64,64\] 50 % padding", r.out)
    buffers = run("top", "--by", "buffer", DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree").out
    assert "f32[64,64]  x.1  parameter, 16.00 KiB padding" in buffers
    wide = run("top", "--by", "buffer", DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree", columns=150)
    assert re.search(r"32\.00 KiB  16\.00 KiB  x  .*parameter", wide.out)


@pytest.mark.parametrize(
    ("origin", "opcode", "category", "wanted"),
    [
        ("argument", "fusion", "temp", "copy of cache['k']"),
        ("argument", "fusion", "temp_in_output", "copy of cache['k']"),
        ("argument", "dynamic-slice", "temp", "dynamic-slice of cache['k']"),
        ("argument", "fusion", "live_out", "cache['k']"),  # an update of it
        ("own", "parameter", "parameter", "cache['k']"),
    ],
)
def test_what_has_the_name_of_an_argument_but_is_not_the_argument(
    origin: str, opcode: str, category: str, wanted: str
) -> None:
    assert label({"op_name": "cache['k']", "origin": origin, "opcode": opcode, "category": category}) == wanted


def test_limit_space_and_wide(run: Any) -> None:
    r = run("peak", TPU, "--space", "hbm", "--limit", 2)
    assert "vmem" not in r.out
    assert r.out.count(" MiB  dot_general") == 1
    assert r.out.count(" MiB  copy of dot_general") == 1
    largest = r.out.splitlines()[-2:]
    assert [line.split()[:2] for line in largest] == [["1.00", "MiB"], ["1.00", "MiB"]]
    assert run("peak", TPU, "--space", "5").out.splitlines()[3] == "host"
    wide = run("peak", TPU, "--wide")
    assert "{1,0:T(8,128)}" in wide.out
    assert re.search(r"^sflag +4 B +█", wide.out, re.M)
    bad = run("peak", TPU, "--space", "moon")
    assert (bad.code, bad.out) == (2, "")
    assert "hbm (color 0), vmem (color 1)" in bad.err


def test_names_cannot_reach_the_terminal(run: Any) -> None:
    for verb in ("peak", "top", "top --by buffer", "top --tree", "explain", "show instructions"):
        for name in ("tpu-libtpu-0.0.50.1-v5e-odd_tree", "cpu-jaxlib-0.12.0-odd_tree"):
            r = run(*verb.split(), DUMPS / name, "--wide")
            assert r.code == 0
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", r.out)


def test_without_unicode(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    shown = process("peak", LAYERS, env=env)
    assert shown.returncode == 0
    assert "^ step 148" in shown.stdout
    assert "#####" in shown.stdout


# ---- peak: what it compares with


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--capacity", "3737088B"], 0, "fits, 0 B to spare, 100.0 % used"),
        (["--capacity", "3737087B"], 1, "DOES NOT FIT, 1 B over"),
        (["--capacity", "3.6MiB", "--space", "vmem"], 0, ""),
        (["--capacity", "1MiB", "--space", "vmem"], 1, ""),
        (["--device", "v5e"], 0, "15.75 GiB: fits"),
        (["--device", "TPU v4"], 0, "30.75 GiB: fits"),
        (["--device", "v5p"], 0, "notes: memory of v5p; program code; "),
        (["--device", "h100-nvl", "-v"], 3, "less is usable"),
        (["--device", "h100"], 3, "CANNOT TELL whether it fits: it is compiled for a TPU; compiled for h100, "),
        (["--device", "v5p", "-v"], 0, "program code also takes device memory but is not in the dump"),
        (["--capacity", "4MiB", "--fraction", "0.9"], 0, "3.60 MiB = 90 % of 4.00 MiB"),
        (["--capacity", "4MiB", "--fraction", "0.8"], 1, "3.20 MiB = 80 % of 4.00 MiB: DOES NOT FIT"),
        (["--capacity", "4MiB", "--resident", "1MiB"], 1, "3.00 MiB = 4.00 MiB minus 1.00 MiB resident"),
    ],
)
def test_capacity(run: Any, args: list[str], code: int, text: str) -> None:
    r = run("peak", TPU, *args)
    assert r.code == code
    assert text in re.sub(r"\s+", " ", r.out)


V5E = 'version: TPU_VERSION_VIPERFISH\n  variant: "lite"'


@pytest.mark.parametrize(
    ("chip", "device", "share", "words"),
    [
        (V5E, "v5e", 1.1, "DOES NOT FIT, "),
        (V5E, "v5e", 1, "fits, 0 B to spare, 100.0 % used advice "),
        (V5E, "v5e", 0.91, " to spare, 91.0 % used advice "),
        (V5E, "v5e", 0.89, ""),
        ("version: TPU_VERSION_GHOSTLITE", "v6e", 1.1, "DOES NOT FIT, "),
        ("version: TPU_VERSION_6acc60406", "v7x", 1.1, "DOES NOT FIT, "),
        ("version: TPU_VERSION_PUFFERFISH", "v4", 1.1, ""),  # a core, or both
        ("version: TPU_VERSION_NEW", "v5e", 1.1, ""),
        ("", "v5e", 1.1, ""),
    ],
)
def test_the_chip_that_a_dump_names(
    run: Any, chip: str, device: str, share: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without options. The exit code is about these only, and so is JSON."""
    path = shutil.copytree(MLP, tmp_path / "dump")
    (file,) = path.glob("*optimizations-buffer-assignment.txt*")
    stem = file.name.partition(".after_optimizations")[0]
    (path / f"{stem}.target_arguments.txt").write_text(f"tpu_topology_args {{\n  {chip}\n}}\n")
    total = compute.device_total(xlamem.read(path)) or 0
    resident = compute.available(None, device, 0, 1).bytes - int(total / share)
    monkeypatch.setattr(peak.compute, "fits", partial(compute.fits, resident=resident))
    shown = run("peak", path)
    text = " ".join(shown.out.split())
    assert shown.code == 0
    assert (words in text and f"{device} " in text) if words else not re.search("fit,|fits,|advice", text)
    assert json.loads(run("peak", path, "--json").out)["dumps"][0]["fits"] is None
    if words:
        assert ("--budget" in text) is (share > 1)
    monkeypatch.undo()
    assert run("peak", path, "--device", "v5e").code == 0


def test_a_password_is_not_part_of_a_command(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = next(iter(xlamem.find(TPU)))
    monkeypatch.setattr(peak, "find", lambda *_: [dump])
    for path, named in (("memory://user:secret@host/d", "PATH"), ("memory://host/d", "memory://host/d")):
        out = run("peak", path, "--capacity", "2MiB").out
        assert f"xlamem advise {named} --budget" in out
        assert "secret" not in out


def test_programs_for_another_platform_are_not_compared_beside_others(run: Any) -> None:
    """JAX compiles small programs for the CPU beside one for a TPU."""
    shown = run("peak", TPU, SMALL, "--device", "v5e")
    assert shown.code == 0
    assert "2 programs, all others fit in v5e (15.75 GiB), 1 not compared; the largest:" in " ".join(shown.out.split())
    assert re.search(r"scan_while\S*  for cpu$", shown.out, re.M)
    assert [d["fits"] for d in json.loads(run("peak", TPU, SMALL, "--device", "v5e", "--json").out)["dumps"]] == [
        True, None,
    ]  # fmt: skip
    alone = run("peak", SMALL, OLD, "--device", "v5e")
    assert (alone.code, "2 programs, fit unknown for 2; the largest:" in alone.out) == (3, True)
    assert run("peak", TPU, SMALL, "--device", "v5e", "--fraction", "0.0001").code == 1



def test_capacity_compares_what_is_reserved_in_device_memory(run: Any) -> None:
    """Not the peak, which is less, and not host memory or VMEM."""
    spaces = {s["memory_space"]: s for s in compute.peak(xlamem.read(TPU)).spaces.to_pylist()}
    assert spaces["hbm"]["peak"] < spaces["hbm"]["reserved"]
    assert run("peak", TPU, "--capacity", f"{spaces['hbm']['peak']}B").code == 1
    data = run("peak", TPU, "--capacity", "1MiB", "--json")
    assert data.code == 1
    assert data.json["capacity"] == {"name": "capacity", "bytes": 1 << 20, "resident": 0, "available": 1 << 20}
    assert data.json["dumps"][0]["fits"] is False
    assert data.json["dumps"][0]["device_total"] == spaces["hbm"]["reserved"]
    assert "3,737,088 bytes must fit, 1,048,576 are available" in data.json["dumps"][0]["reason"]
    assert [s["in_device_memory"] for s in data.json["dumps"][0]["spaces"]] == [True, False, False, False]


def test_a_memory_space_of_two_pages_is_two_spaces(run: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad", tmp_path / "dump")
    (path,) = folder.glob("*-buffer-assignment.txt")
    forged = re.sub(r"^(allocation [12]: .*) page 0,", r"\1 page 1,", path.read_text(), flags=re.M)
    assert forged.count("page 1,") == 2
    path.write_text(forged)
    out = run("peak", folder).out
    assert "must fit 4.11 MiB (4,311,040 bytes) hbm 2.11 MiB + hbm page 1 2.00 MiB" in re.sub(r" +", " ", out)
    assert out.count("must fit") == 1
    lines = run("explain", folder, "--wide").out.splitlines()
    assert lines[lines.index("hbm page 1") + 1].split()[:3] == ["reserved", "2.00", "MiB"]


def test_the_capacity_is_drawn_where_it_is_near(run: Any) -> None:
    assert "┄" in run("peak", TPU, "--capacity", "4MiB").out
    assert "┄" not in run("peak", TPU, "--capacity", "1GiB").out


@pytest.mark.parametrize(
    "args",
    [
        ["--capacity", "much"], ["--device", "abacus"], ["--device", "a100"], ["--capacity", "1G", "--device", "v5e"],
        ["--capacity", "16"], ["--resident", "1GiB"], ["--fraction", "0.5"], ["--capacity", "1G", "--fraction", "2"],
        ["--capacity", "1G", "--resident", "5"], ["--json", "--csv"], ["--limit", "-1"], ["--limit", "x"],
    ],
)  # fmt: skip
def test_wrong_usage(run: Any, args: list[str]) -> None:
    r = run("peak", TPU, *args)
    assert (r.code, r.out) == (2, "")
    assert r.err


# ---- peak: several, truncated, without live ranges


def test_a_directory_has_the_largest_first(run: Any) -> None:
    r = run("peak", DUMPS, "--limit", 5)
    lines = r.out.splitlines()
    assert r.code == 0
    assert lines[0].split() == ["device_total", "peak", "step", "space", "program"]
    assert lines[1].split()[:2] == ["200.05", "MiB"]
    assert re.fullmatch(r"… and \d+ smaller programs: --limit shows more", lines[6])
    assert lines[7].endswith("1 truncated; the largest:")
    assert lines[9].startswith("004_")
    data = run("peak", DUMPS, "--json").json["dumps"]
    assert len(data) == len(xlamem.find(DUMPS))
    sizes = [d["device_total"] or 0 for d in data]
    assert sizes == sorted(sizes, reverse=True)


def test_the_first_of_equal_size_is_the_largest(run: Any, tmp_path: Path) -> None:
    """Every command takes the same program, also if another one reserves more elsewhere or has a higher peak."""
    source = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    for name, vmem, end in (("a", 1441792, 6), ("b", 1541792, 8)):
        for role in ("buffer-assignment", "live-range"):
            (path,) = source.glob(f"*-{role}.txt")
            text = path.read_text().replace("size 1441792", f"size {vmem}")
            text = text.replace("copy-start{}:1-6", f"copy-start{{}}:1-{end}")
            (tmp_path / path.name.replace("jit_m_mlp_grad", f"jit_{name}")).write_text(text)
    dumps = run("peak", tmp_path, "--json").json["dumps"]
    assert [d["module"]["module_name"] for d in dumps] == ["jit_a", "jit_b"]
    assert dumps[0]["device_total"] == dumps[1]["device_total"]
    for column in ("reserved", "peak"):
        assert sum(s[column] for s in dumps[0]["spaces"]) < sum(s[column] for s in dumps[1]["spaces"])
    assert "jit_a" in run("top", tmp_path).err
    r = run("report", tmp_path, "-o", tmp_path / "report.json", "--json")
    assert r.code == 0
    rows = json.loads((tmp_path / "report.json").read_text())["directory"]["rows"]
    assert [row["name"] for row in rows] == ["jit_a", "jit_b"]


def test_a_directory_against_a_capacity(run: Any) -> None:
    r = run("peak", DUMPS, "--capacity", "30MiB", "--limit", 3)
    assert r.code == 3
    assert r.out.splitlines()[1].endswith("  does not fit")
    assert not r.out.splitlines()[3].endswith("  does not fit")
    assert "2 do not fit in 30.00 MiB, fit unknown for 2" in r.out
    assert "all fit in v5e (15.75 GiB); the largest" in run("peak", DUMPS / "seeds", "--device", "v5e").out
    assert run("peak", DUMPS / "seeds", "--capacity", "30MiB").code == 1


def test_a_directory_and_a_space(run: Any) -> None:
    assert "vmem" in run("peak", DUMPS, "--space", "vmem").out
    assert run("peak", DUMPS, "--space", "moon").code == 2


def test_without_live_ranges(run: Any) -> None:
    r = run("peak", TIMELESS)
    assert r.code == 0
    assert "this dump has no live ranges" in r.out
    assert "  reserved  7.06 KiB  (7,232 bytes)  must fit" in r.out
    assert "  peak " not in r.out
    assert "arg1.2" in r.out
    for capacity in ("7KiB", "1TiB"):
        r = run("peak", TIMELESS, "--capacity", capacity)
        assert r.code == 3
        assert "CANNOT TELL whether it fits: the dump prints no total" in r.out
    (s,) = run("peak", TIMELESS, "--json").json["dumps"][0]["spaces"]
    assert (s["reserved"], s["peak"]) == (7232, None)
    assert run("top", TIMELESS).code == 2
    assert run("top", TIMELESS, "--by", "buffer").code == 2
    assert run("explain", TIMELESS).code == 0


def test_a_truncated_dump(run: Any) -> None:
    r = run("peak", TRUNCATED)
    assert r.code == 0
    assert r.out.startswith("truncated: …-buffer-assignment.txt:1 (byte 0) and 1 more: ")
    assert run("peak", TRUNCATED, "--strict").code == 3
    assert run("peak", DUMPS, "--strict").code == 3
    assert run("peak", TPU, "--strict").code == 0


def test_an_unreadable_dump_beside_a_good_one(run: Any, tmp_path: Path) -> None:
    shutil.copytree(TPU, tmp_path / "good")
    (tmp_path / "module_0001.bad.after_optimizations-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8bnothing")
    r = run("peak", tmp_path)
    assert r.code == 3
    assert "1 unreadable" in r.out
    assert "module_0001.bad" in r.err


def test_a_directory_without_dumps(run: Any, tmp_path: Path) -> None:
    for verb in (["peak"], ["top"], ["explain"], ["show", "values"]):
        assert run(*verb, tmp_path).code == 2
        assert run(*verb, tmp_path / "none").code == 2


# ---- top, explain


@pytest.mark.parametrize("verb", ["top", "top --by buffer", "explain", "show peaks", "sql"])
def test_skipped_modules_are_3(run: Any, tmp_path: Path, verb: str) -> None:
    query = ["SELECT 1 AS one"] if verb == "sql" else []
    shutil.copytree(TPU, tmp_path / "good")
    assert run(*verb.split(), tmp_path, *query).code == 0
    bad = tmp_path / "module_0001.bad.after_optimizations-buffer-assignment.txt.gz"
    bad.write_bytes(b"\x1f\x8bnothing")
    r = run(*verb.split(), tmp_path, *query)
    assert r.code == 3
    assert r.out
    assert "module_0001.bad" in r.err
    assert run(*verb.split(), tmp_path, *query, "--module", "jit_m_host_offload").code == 0
    shutil.rmtree(tmp_path / "good")
    shutil.copy(bad, tmp_path / "module_0002.bad.after_optimizations-buffer-assignment.txt.gz")
    r = run(*verb.split(), tmp_path, *query)
    assert (r.code, r.out) == (3, "")


def test_buffers_at_a_step(run: Any) -> None:
    r = run("top", TPU, "--by", "buffer", "--at", 5)
    assert r.code == 0
    assert "hbm  2.50 MiB (2,622,976 bytes) in use at step 5 of 15 (peak 3.50 MiB)" in r.out
    assert "step 5 runs copy-start" in r.out
    assert "after the last instruction" in run("top", TPU, "--by", "buffer", "--at", 15).out
    for by in ("buffer", "scope"):
        bad = run("top", TPU, "--by", by, "--at", 16)
        assert bad.code == 2
        assert "0 to 15" in bad.err


def test_buffers_as_data(run: Any) -> None:
    names = [c.name for c in schema.COMPUTED["live_set"].columns]
    rows = run("top", TPU, "--by", "buffer", "--at", 8, "--csv").csv
    assert list(rows[0]) == names
    assert sum(int(r["bytes"]) for r in rows if r["memory_space"] == "hbm") == 3_672_576
    assert {r["role"] for r in rows} == {"value", "reserved"}
    data = run("top", TPU, "--by", "buffer", "--json").json
    assert {s["memory_space"]: (s["time"], s["bytes"]) for s in data["spaces"]} == {
        "hbm": (8, 3_672_576), "vmem": (1, 524_288), "sflag": (1, 4), "host": (5, 1_048_576),
    }  # fmt: skip
    assert [(s["color"], s["page"]) for s in data["spaces"]] == [(0, 0), (1, 0), (2, 0), (5, 0)]
    for s in data["spaces"]:
        assert sum(r["bytes"] for r in data["rows"] if r["color"] == s["color"]) == s["bytes"]
    assert data["rows"] == compute.live_set(xlamem.read(TPU)).to_pylist()
    assert data["n_rows"] == len(data["rows"])
    assert len(run("top", TPU, "--by", "buffer", "--csv", "--limit", 1).csv) == 4


def test_top(run: Any) -> None:
    r = run("top", LAYERS, "--by", "category")
    assert r.code == 0
    assert re.search(r"8\.38 MiB +69\.0 %  █+ +\d+×  temp", r.out)
    rows = run("top", LAYERS, "--by", "opcode,element_type", "--csv").csv
    assert list(rows[0]) == ["memory_space", "opcode", "element_type", "bytes", "n"]
    assert sum(int(r["bytes"]) for r in rows) == 12_733_224
    data = run("top", LAYERS, "--json", "--limit", 2).json
    assert (data["by"], len(data["rows"])) == (["memory_space", "scope"], 2)
    folded = run("top", LAYERS, "--fold").out
    assert "layer_*/mlp" in folded
    assert "layer_1/mlp" not in folded
    assert [(s["memory_space"], s["bytes"]) for s in data["spaces"]] == [("memory", 12_733_224)]
    assert len(run("top", TPU, "--json", "--limit", 1).json["rows"]) == 4  # one of each memory space
    assert run("top", LAYERS, "--by", "color").code == 2
    assert run("top", LAYERS, "--by", "buffer,scope").code == 2
    assert run("top", LAYERS, "--depth", 0).code == 2


def test_top_as_a_tree(run: Any) -> None:
    for form in ("--json", "--csv"):
        r = run("top", LAYERS, "--tree", form)
        assert (r.code, r.out) == (2, "")
        assert f"--tree and {form} exclude each other" in r.err
    out = run("top", LAYERS, "--tree", "--fold").out
    assert re.search(r"%  layer_\*  \d+×\n.*%  ├─ \w+  \d+×\n", out)
    total = sum(_size(line) for line in out.splitlines() if re.search(r"%  [\w(]", line))
    assert abs(total - 12_733_224) < 0.01 * 12_733_224
    assert run("top", LAYERS, "--tree", "--by", "source").code == 2


def test_lines_are_missed_only_without_hlo_text(run: Any, tmp_path: Path) -> None:
    message = "No source lines: the dump lacks the HLO text"
    for path in Path(TPU).glob("*after_optimizations-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert message in run("top", tmp_path, "--by", "phase,source").out
    assert message not in run("top", tmp_path, "--by", "phase").out
    assert message not in run("top", TPU, "--by", "source").out


def _size(line: str) -> float:
    amount, unit = line.split()[:2]
    return float(amount) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]


def test_explain(run: Any) -> None:
    r = run("explain", TPU)
    assert r.code == 0
    for text in ("3,672,576", "xla_printed", "4,718,620", "all memory spaces together", "host_temp_size_in_bytes"):
        assert text in r.out
    rows = run("explain", TPU, "--csv").csv
    assert list(rows[0]) == [c.name for c in schema.COMPUTED["explain"].columns]
    numbers = run("explain", TPU, "--json").json["numbers"]
    assert len(numbers) == len(rows)
    assert {r["memory_space"] for r in run("explain", TPU, "--space", "hbm", "--csv").csv} == {"hbm"}


@pytest.mark.parametrize("verb", ["peak", "top", "explain", "bill"])
def test_a_memory_space_without_bytes(verb: str, run: Any, make: Callable[..., Path]) -> None:
    """A dump may have a space in which nothing is reserved."""
    allocations = "allocation 0: size 0, color 1, page 0, preallocated-temp:\n"
    allocations += "allocation 1: size 512, color 0, page 0, preallocated-temp:\n"
    members = attacks.dump([attacks.value(0, "a", 512)], allocations=allocations, ranges=["a{}:0-3"])
    path = make(members, "cl_1.after_optimizations")
    for space in ("vmem", "1"):
        r = run(verb, path, "--space", space)
        assert (r.code, r.err) == (0, "")
        assert "512" not in r.out
        assert "0 B in use" in run("top", path, "--space", space, "--at", 1).out
    for space in ("smem", "4"):
        assert run(verb, path, "--space", space).code == 2


def test_unreadable_dumps_are_not_counted_as_modules(run: Any, tmp_path: Path) -> None:
    for source in (TPU, LAYERS):
        shutil.copytree(source, tmp_path / source.name)
    (tmp_path / "module_0009.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
    assert "the largest of 2 readable modules;" in run("top", tmp_path).err


def test_one_of_several(run: Any) -> None:
    r = run("top", DUMPS / "seeds", "--by", "buffer")
    assert "is the largest of 5 modules;" in r.err
    assert r.out.splitlines()[0].startswith("004_")
    several = DUMPS / "cpu-jaxlib-0.12.0-several_modules"
    names = [s.name for s in xlamem.find(several)]
    for i, s in enumerate(xlamem.find(several)):
        assert s.module_id is not None
        out = run("explain", several, "--module", s.module_id)
        assert (out.code, out.err) == (0, "")
        assert f"module {s.module_id:04d} in" in out.out
        assert run("explain", several, "--module", names[i]).code == 0
    assert run("explain", several, "--module", "none").code == 2
    last = xlamem.find(several)[-1]
    alone = run("peak", last.members[0].location).out
    for module in (last.name, str(last.module_id)):
        assert run("peak", several, "--module", module).out == alone
    assert run("peak", several, "--module", "none").code == 2
    two = json.loads(run("peak", several, several, "--module", last.name, "--json").out)
    assert [d["name"] for d in two["dumps"]] == [last.name] * 2


def test_one_of_several_in_a_log(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = next((DUMPS / "cpu-jaxlib-0.5.3-tuple3").glob("*-buffer-assignment.txt")).read_bytes()
    two = next((DUMPS / "cpu-jaxlib-0.9.1-mlp_grad").glob("*-buffer-assignment.txt")).read_bytes()
    log = tmp_path / "two.txt"
    log.write_bytes(one + two)
    alone = tmp_path / "one.txt"
    alone.write_bytes(two)
    expected = run("top", alone, "--csv").csv
    assert run("top", log, "--module", "1", "--csv").csv == expected
    assert run("top", log, "--module", "0", "--csv").csv != expected
    assert "\n  1  two.txt" in run("top", log, "--module", "2").err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(one + two)))  # can be read only once
    assert run("top", "-", "--module", "1", "--csv").csv == expected


# ---- help and imports


def process(*args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from xlamem.cli import main; sys.exit(main())", *map(str, args)]
    return subprocess.run(command, text=True, capture_output=True, timeout=600, **options)


def test_verbs_are_listed(run: Any) -> None:
    out = run("--help").out
    assert max(map(len, out.splitlines())) <= 80
    for verb in cli.VERBS:
        assert re.search(rf"\n  {verb} ", out)
        shown = run(verb, "--help")
        assert shown.code == 0
        assert max(map(len, shown.out.splitlines())) <= 80
        assert "..." not in shown.out.partition("\nCommands:")[2]


@pytest.mark.parametrize("verb", ["peak", "peak --device v5e", "peak --json", "bill", "info", "top"])
def test_a_cold_start_imports_only_what_it_needs(verb: str) -> None:
    # Also what is searched for without being installed here.
    code = (
        "import sys, types; asked = set(); "
        "finder = types.SimpleNamespace(find_spec=lambda name, path=None, target=None: asked.add(name)); "
        "before = set(sys.modules); from xlamem import cli; sys.meta_path.append(finder); cli.main(sys.argv[1:]); "
        "print(sorted({'pandas', 'duckdb', 'rich.table', 'pyarrow.parquet', 'pyarrow.acero', 'pyarrow.compute', "
        "'pyarrow.dataset', 'pyarrow.fs', 'numpy.ma', 'pydoc', 'dateutil', 'zipfile', 'tarfile', 'tempfile', "
        "'xlamem.compute.advice', 'xlamem.compute.advice.activations', 'xlamem.compute.explanation', "
        "'xlamem.compute.registry'} & {*asked, *sys.modules})); print(len(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", code, *verb.split(), str(LAYERS)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    unneeded, imports = shown.stdout.splitlines()[-2:]
    assert unneeded == "[]"
    assert int(imports) < MOST_IMPORTS


def test_a_conversion_imports_no_datasets(tmp_path: Path) -> None:
    """Neither the first one, nor one that finds nothing new."""
    code = (
        "import sys; from xlamem import cli; cli.main(sys.argv[1:]); cli.main(sys.argv[1:]); "
        "print(sorted({'pandas', 'duckdb', 'pyarrow.acero', 'pyarrow.compute', 'pyarrow.dataset'} & {*sys.modules}))"
    )
    command = [sys.executable, "-c", code, "convert", LAYERS, "--to", tmp_path, "--engine", "here"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", [["diff", DUMPS / "cpu-jaxlib-0.12.0-scan_while"], ["check", "--device", "v5e"]])
def test_comparisons_of_dumps_import_no_datasets(command: list[Any], tmp_path: Path) -> None:
    code = (
        "import sys; from xlamem import cli; cli.main(sys.argv[1:]); "
        "print(sorted({'pandas', 'duckdb', 'pyarrow.parquet', 'pyarrow.acero', 'pyarrow.compute', 'pyarrow.dataset', "
        "'pydoc'} & {*sys.modules}))"
    )
    command = [sys.executable, "-c", code, *command, LAYERS]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_tree_of_functions(run: Any) -> None:
    """It adds up, as that of scopes does; `peak` shows it where it tells more than primitives."""
    dump = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
    lines = run("top", dump, "--by", "function", "--tree", "--space", "hbm").out.splitlines()
    assert [line.split("%")[1].split("×")[0].split() for line in lines if "%" in line] == [
        ["main/child/m_host_offload", "7"], ["(no", "function)", "3"],
    ]  # fmt: skip
    assert run("top", dump, "--by", "function,scope", "--tree").code == 2
