"""What could be donated, against recompilations in which it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import value

import xlamem

HERE = Path(__file__).parents[1]
STORED = HERE / "data" / "donation"
"""Pairs of dumps made by donate.py: jaxlib 0.10.2; libtpu 0.0.52 for v5e."""

Row = dict[str, Any]

CANDIDATES = {
    "train": 9,
    "mixed": 4,
    "swap": 2,
    "one": 1,
    "scan": 2,
    "sharded": 3,
    "host": 1,
    "tpu-mixed": 3,
}
"""Of each program. Of `mixed` f32[512] and bf16[1024] have as many bytes, but not elements; on a TPU, where tiles are
padded, f32[64,64] and f32[128,32] do not even have as many bytes."""

EXACT = {"train": 9, "mixed": 1, "swap": 2, "one": 1, "scan": 2, "host": 1}
"""How the outputs of `sharded` are laid out over the devices is the compiler's choice."""


def held(dump: xlamem.Dump) -> tuple[int, int]:
    """Bytes of the allocations in the device's memory, and of the temporaries among them."""
    found = [a for a in dump.allocations.to_pylist() if a["color"] == 0 and not a["is_thread_local"]]
    return sum(a["size"] for a in found), sum(a["size"] for a in found if a["is_temp"])


def check(folder: Path) -> None:
    """A candidate that is donated is taken, for the named output, and saves within the bounds."""
    before, after = (xlamem.read(folder / name) for name in ("undonated", "donated"))
    rows, again = xlamem.donation(before).to_pylist(), xlamem.donation(after).to_pylist()
    wanted = {(r["parameter"], r["parameter_index"]): r["candidate_output"] for r in rows if r["candidate"]}
    taken = {(r["parameter"], r["parameter_index"]): r["output_index"] for r in again if r["state"] == "taken"}
    assert wanted == taken
    name = folder.name.partition("-")[2]
    assert len(wanted) == CANDIDATES.get(folder.name, CANDIDATES[name])
    assert name not in EXACT or sum(r["exact"] for r in rows) == EXACT[name]
    assert not any(r["candidate"] for r in again)
    (total, temp), (less, other) = held(before), held(after)
    upper = sum(r["saving_upper"] or 0 for r in rows)
    assert (total - temp) - (less - other) == upper, "each candidate takes the place of an output's allocation"
    assert sum(r["saving_lower"] or 0 for r in rows) <= total - less


@pytest.mark.parametrize("folder", sorted(STORED.iterdir()), ids=lambda f: f.name)
def test_stored(folder: Path) -> None:
    check(folder)
    before, after = (held(xlamem.read(folder / name))[0] for name in ("undonated", "donated"))
    rows = xlamem.donation(xlamem.read(folder / "undonated")).to_pylist()
    assert before - after <= sum(r["saving_upper"] or 0 for r in rows)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_recompiled(platform: str, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    if platform == "tpu" and find_spec("libtpu") is None:
        pytest.skip("no libtpu")
    command = [sys.executable, "-W", "error:Some donated buffers", HERE / "forge" / "donate.py", platform, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folders = sorted(tmp_path.iterdir())
    assert len(folders) >= 6
    for folder in folders:
        check(folder)


def test_a_training_step() -> None:
    """Nothing is free in the schedule, and yet all of the state can be donated."""
    rows = xlamem.donation(xlamem.read(STORED / "cpu-train" / "undonated")).to_pylist()
    assert [r["candidate"] for r in rows] == [True] * 9 + [False]
    assert [r["candidate_output"] for r in rows[:9]] == [f"{{{i}}}" for i in range(9)]
    assert not all(r["free_in_schedule"] for r in rows[:9])


def test_outputs_are_named() -> None:
    """By their index in the program's output, and by the instruction with the index into its shape."""
    rows = xlamem.donation(xlamem.read(HERE / "dumps" / "tpu-libtpu-0.0.50.1-v5e-host_offload")).to_pylist()
    names = ("candidate_output", "candidate_instruction", "candidate_shape_index", "free_in_schedule", "last_use")
    assert [rows[0][n] for n in names] == ["{1}", "fusion", "{1}", True, 4]
    assert [(r["saving_lower"], r["saving_upper"]) for r in rows] == [(0, 524288), (None, None)]
    assert [r["op_name"] for r in rows] == ["x", "w"]


def test_many_parameters() -> None:
    """Elements of one tuple parameter, in the order of their numbers, without a look at each pair."""
    n = 3000
    lines = ["BufferAssignment:"]
    text = ", ".join("f32[8]" for _ in range(n))
    for i in range(n):
        lines.append(f"allocation {i}: size 32, parameter 0, shape |f32[8]| at ShapeIndex {{{i}}}:")
        lines.append(f" value: <{i} p{{{i}}} @0> (size=32,offset=0): f32[8]{{0}}")
    for i in range(n // 2):
        lines.append(f"allocation {n + i}: size 32, maybe-live-out:")
        lines.append(f" value: <{n + i} out.{i} @0> (size=32,offset=0): f32[8]{{0}}")
    lines.append(f"allocation {2 * n}: size 24000, parameter 0, shape |({text})| at ShapeIndex {{}}:")
    lines.append(f" value: <{2 * n} p{{}} @0> (size=24000,offset=0): ({text})")
    lines += ["", f"Total bytes used: {n * 48 + 24000}", ""]
    rows = xlamem.donation(xlamem.read("\n".join(lines).encode())).to_pylist()
    assert [r["parameter_index"] for r in rows] == ["{}", *(f"{{{i}}}" for i in range(n))]
    assert [r["candidate"] for r in rows] == [False] + [True] * (n // 2) + [False] * (n // 2)
    assert [r["candidate_instruction"] for r in rows[1 : n // 2 + 1]] == [f"out.{i}" for i in range(n // 2)]
    assert {r["free_in_schedule"] for r in rows} == {None}


def test_one_output() -> None:
    """An output that is no tuple is the entry root itself; a tuple's table of pointers goes with nothing."""
    head = "BufferAssignment:\nallocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
    head += " value: <0 x @0> (size=64,offset=0): f32[16]{0}\n"
    plain = head + "allocation 1: size 64, output shape is |s32[16]|, maybe-live-out:\n"
    plain += " value: <1 y @0> (size=64,offset=0): s32[16]{0}\n\nTotal bytes used: 128\n"
    (row,) = xlamem.donation(xlamem.read(plain.encode())).to_pylist()
    assert (row["candidate"], row["exact"], row["candidate_instruction"]) == (True, False, "y")
    table = head + "allocation 1: size 64, output shape is |(f32[1])|, maybe-live-out:\n"
    table += " value: <1 y{} @0> (size=64,offset=0): (f32[1]{0})\n\nTotal bytes used: 128\n"
    (row,) = xlamem.donation(xlamem.read(table.encode())).to_pylist()
    assert not row["candidate"]


def test_the_memory_of_an_output_is_that_of_one_parameter(make: Callable[..., Path]) -> None:
    """Though two values in it are live until the end."""
    texts = [f"allocation {i}: size 64, parameter {i}, shape |f32[16]| at ShapeIndex {{}}:\n" for i in range(2)]
    texts = [text + value(i, f"p.{i}", 64, 0, "f32[16]") for i, text in enumerate(texts)]
    texts += ["allocation 2: size 64, maybe-live-out:\n", *(value(2 + i, "ab"[i], 64, 0, "f32[16]") for i in range(2))]
    ranges = ["p.0{}:0-4", "p.1{}:0-4", "a{}:2-4", "b{}:3-4"]
    dump = xlamem.read(make(attacks.dump([], allocations="".join(texts), ranges=ranges)))
    assert xlamem.donation(dump)["candidate_instruction"].to_pylist() == ["a", None]


@pytest.mark.parametrize(
    ("parameter", "output", "shape", "candidate"),
    [
        (0, 0, "f32[16]", True),
        (5, 5, "f32[16]", True),
        (5, 0, "f32[16]", False),
        (0, 5, "f32[16]", False),
        (0, 5, "s32[16]", False),
        (0, 5, "f32[4,4]", False),
    ],
)
def test_parameters_and_outputs_of_different_memory_spaces(
    parameter: int, output: int, shape: str, candidate: bool
) -> None:
    lines = [
        "BufferAssignment:",
        f"allocation 0: size 64, color {parameter}, parameter 0, shape |f32[16]| at ShapeIndex {{}}:",
        f" value: <0 x @{parameter}> (size=64,offset=0): f32[16]{{0}}",
        f"allocation 1: size 64, color {output}, output shape is |{shape}|, maybe-live-out:",
        f" value: <1 y @{output}> (size=64,offset=0): {shape}{{0}}",
        "",
        "Total bytes used: 128",
        "",
    ]
    (row,) = xlamem.donation(xlamem.read("\n".join(lines).encode())).to_pylist()
    assert row["candidate"] == candidate


def test_parameters_are_in_the_order_of_their_numbers() -> None:
    """Then of their indices, as numbers: {2} before {10}."""
    places = [(1, "{0}"), (0, "{10}"), (0, "{1}"), (0, "{2}"), (1, "{0,1}")]
    lines = ["BufferAssignment:"]
    for i, (number, index) in enumerate(places):
        lines.append(f"allocation {i}: size {8 + i}, parameter {number}, shape |u8[{8 + i}]| at ShapeIndex {index}:")
        lines.append(f" value: <{i} p{number}{index} @0> (size={8 + i},offset=0): u8[{8 + i}]{{0}}")
    rows = xlamem.donation(xlamem.read("\n".join([*lines, "", "Total bytes used: 50", ""]).encode())).to_pylist()
    found = [(row["parameter"], row["parameter_index"]) for row in rows]
    assert found == [(0, "{1}"), (0, "{2}"), (0, "{10}"), (1, "{0}"), (1, "{0,1}")]


@pytest.mark.parametrize("comma", [",", ", "])
def test_arguments_that_the_header_lists_without_an_output(comma: str, make: Callable[..., Path]) -> None:
    """They hold none. Indices are printed with or without spaces."""
    text = "BufferAssignment:\n"
    for i in range(2):
        text += f"allocation {i}: size 8, parameter 0, shape |f32[2]| at ShapeIndex {{{i},1}}:\n"
        text += f" value: <{i} p{{{i},1}} @0> (size=8,offset=0): f32[2]{{0}}\n"
    header = f"HloModule m, input_output_alias={{ {{0{comma}2}}: (0, {{1{comma}1}}, may-alias) }}\n\n"
    hlo = header + "ENTRY %main (p: f32[2]) -> f32[2] {\n}\n"
    members = {"buffer-assignment": f"{text}\nTotal bytes used: 16\n".encode(), "hlo": hlo.encode()}
    rows = xlamem.donation(xlamem.read(make(members))).to_pylist()
    names = ("parameter_index", "state", "output_index")
    assert [[row[name] for name in names] for row in rows] == [["{0,1}", "no", None], ["{1,1}", "refused", "{0,2}"]]
