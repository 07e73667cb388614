"""What could be done, against recompilations in which it was."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from advice_programs import Make
from attacks import value
from conftest import DUMPS, every

import xlamem
from xlamem import compute
from xlamem.compute.advice.intervention import MIN_SHARE, Confidence, Intervention, Kind, largest_first
from xlamem.compute.advice.plan import MAY_COST, TRY, _action, _chosen, _rank
from xlamem.compute.advice.what_if import Change, WhatIf
from xlamem.compute.devices import device
from xlamem.compute.program import program

HERE = Path(__file__).parents[1]
STORED = HERE / "data" / "advice"
"""Dumps made by interventions.py: jaxlib 0.10.2; libtpu 0.0.52 for v5e. That of TensorFlow 2.21 is a transformer."""

Row = dict[str, Any]

ARGUMENT = {"averages": "averages"}
"""The argument that is kept in a smaller type, by program; elsewhere activations are."""

LOOSE = {"cpu-layers/recompute", "tpu-layers/recompute-loop", "cpu-tensorflow/attention"}
"""Interventions that save less than half of the upper bound.

On a CPU, the advice is to recompute in a loop; `jax.checkpoint` alone saves nothing there. On a TPU it is the reverse.
"""
NOT_AS_ADVISED = {"tpu-layers/recompute-loop"}
"""Interventions that may save less than the lower bound."""
NOT_ADVISED = {
    "cpu-inference/donate", "tpu-inference/donate", "cpu-convolutions/recompute", "tpu-convolutions/recompute",
    "cpu-attention/dtype",
}  # fmt: skip
"""Controls, which save nothing."""
TOO_SMALL = {"cpu-attention/donate"}
"""Interventions that save less than 1 %."""


def rows_for(folder: Path) -> list[Row]:
    """Return the advice that corresponds to the variant of a program in a folder."""
    kind, program = folder.name.partition("-")[0], folder.parent.name.partition("-")[2]
    rows = [r for r in xlamem.advise(xlamem.read(folder.parent / "base")).to_pylist() if r["kind"] == kind]
    if kind == "dtype":
        rows = [r for r in rows if r["argument"] == ARGUMENT.get(program)]
    return rows if kind == "donate" else rows[:1]


def saved(folder: Path) -> int:
    before, after = (compute.device_total(xlamem.read(f)) for f in (folder.parent / "base", folder))
    assert before is not None
    assert after is not None
    return before - after


def check(folder: Path) -> None:
    """The change lies within the bounds, of which the upper one is at most twice the change."""
    name, change = f"{folder.parent.name}/{folder.name}", saved(folder)
    rows = rows_for(folder)
    if name in NOT_ADVISED:
        assert not rows
        assert change <= 0
        return
    if name in TOO_SMALL:
        assert not rows
        assert change < 0.01 * (compute.device_total(xlamem.read(folder.parent / "base")) or 0)
        return
    lower, upper = sum(r["lower"] for r in rows), sum(r["upper"] for r in rows)
    assert lower <= change or name in NOT_AS_ADVISED
    assert change <= upper
    assert (upper <= 2 * change) == (name not in LOOSE)


def variants(made: Path, platform: str) -> list[Path]:
    return sorted(f for f in made.glob(f"{platform}-*/*") if f.name != "base")


@pytest.mark.parametrize("folder", every(2, variants(STORED, "*")), ids=lambda f: f"{f.parent.name}-{f.name}")
def test_stored(folder: Path) -> None:
    check(folder)


def test_there_are_enough() -> None:
    """At least twelve interventions, and two that save nothing."""
    names = {f"{f.parent.name}/{f.name}" for f in variants(STORED, "tpu")}
    assert len(names - NOT_ADVISED - LOOSE) >= 12
    assert len(names & NOT_ADVISED) >= 2


@pytest.mark.slow
def test_recompiled(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="jax, which compiles the programs, is not installed")
    command = [sys.executable, HERE / "forge" / "interventions.py", "cpu", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folders = variants(tmp_path, "cpu")
    assert len(folders) >= 16
    for folder in folders:
        check(folder)


# -- every dump ----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", sorted(DUMPS.iterdir()), ids=lambda f: f.name)
def test_every_row_has_a_buffer_and_a_number(folder: Path) -> None:
    for source in xlamem.find(folder):
        dump = xlamem.read(source)
        total = compute.device_total(dump)
        ids = set(dump["values"]["value_id"].to_pylist())
        rows = xlamem.advise(dump).to_pylist()
        assert [r["rank"] for r in rows] == list(range(len(rows)))
        for row in rows:
            assert row["kind"] in compute.ADVICE_KINDS
            assert row["value_id"] in ids
            assert row["n_buffers"] >= 1
            assert row["lower"] <= row["upper"]
            assert 0 < row["upper"] <= total
            assert row["upper"] >= MIN_SHARE * total
            assert (row["lower"] > 0) == (row["confidence"] != "try")
            assert row["action"].endswith(TRY) == (row["confidence"] == "try")
            assert row["in_plan"] is None


def test_without_live_ranges() -> None:
    folder = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    dump = xlamem.read(next(folder.glob("*-buffer-assignment.txt")).read_bytes())
    assert xlamem.advise(dump).num_rows == 0
    assert xlamem.advise(dump).schema == xlamem.schema.COMPUTED["advice"].arrow


def test_live_ranges_alone(make: Make) -> None:
    """Without allocations, no budget is kept or exceeded."""
    members = attacks.dump([value(0, "a.0")], ranges=["a.0{}:0-1"])
    table, plan = compute.plan_advice(xlamem.read(make({"live-range": members["live-range"]})), 0)
    assert (table.num_rows, plan) == (0, None)


def test_what_is_donated_is_not_advised() -> None:
    for folder in sorted((HERE / "data" / "donation").iterdir()):
        donated = xlamem.advise(xlamem.read(folder / "donated")).to_pylist()
        assert not [r for r in donated if r["kind"] == "donate"], folder.name


def test_donations_of_small_programs() -> None:
    """The pairs of `donation`: what 11 small programs save lies within the bounds."""
    for folder in sorted((HERE / "data" / "donation").iterdir()):
        before, after = (xlamem.read(folder / name) for name in ("undonated", "donated"))
        rows = [r for r in xlamem.advise(before).to_pylist() if r["kind"] == "donate"]
        change = (compute.device_total(before) or 0) - (compute.device_total(after) or 0)
        assert sum(r["lower"] for r in rows) <= change <= sum(r["upper"] for r in rows), folder.name


# -- single rules --------------------------------------------------------------------------------


def advice(folder: Path, kind: str) -> list[Row]:
    return [r for r in xlamem.advise(xlamem.read(folder)).to_pylist() if r["kind"] == kind]


def test_arguments_have_names() -> None:
    rows = advice(STORED / "tpu-attention" / "base", "donate")
    assert {r["argument"] for r in rows} == {"params", "opt"}
    (opt,) = (r for r in rows if r["argument"] == "opt")
    assert "donate_argnames='opt'" in opt["action"]
    assert opt["n_buffers"] == 14


def test_donations_are_not_sure_without_used_values(tmp_path: Path) -> None:
    """An argument may be read after the output is written."""
    for path in (DUMPS / "cpu-jaxlib-0.12.0-odd_tree").glob("*.txt"):
        if not path.name.endswith("-values.txt"):
            shutil.copy(path, tmp_path)
    (row,) = advice(tmp_path, "donate")
    assert (row["lower"], row["confidence"]) == (0, "try")
    assert row["upper"] > 0


def test_a_loop() -> None:
    """The names of its matrix products, the length of its chunks, and where it is."""
    (row,) = advice(STORED / "tpu-attention" / "base", "recompute")
    assert row["names"] == "attention,feed_forward"
    assert "save_only_these_names('attention', 'feed_forward')" in row["action"]
    assert row["source_file"].endswith("interventions.py")
    assert row["source_line"] > 1
    (row,) = advice(STORED / "tpu-attention" / "base", "scan")
    assert "(4, 2)" in row["action"]


def test_layers() -> None:
    (row,) = advice(STORED / "tpu-layers" / "base", "recompute")
    assert row["scope"] == "layer_*"
    assert row["confidence"] == "likely"


def test_calls() -> None:
    (row,) = advice(STORED / "tpu-calls" / "base", "recompute")
    code = "the code in `block` that runs several times, called at interventions.py:112"
    assert row["action"] == f"Wrap each layer in jax.checkpoint: {code}."
    assert row["source_line"] in (105, 106)
    assert row["source_file"].endswith("interventions.py")
    assert row["confidence"] == "likely"


def test_a_batch() -> None:
    (row,) = advice(STORED / "tpu-attention" / "base", "batch")
    assert (row["argument"], row["parameter"]) == ("batch", 21)
    assert "16 to 8" in row["action"]


def test_small_slots() -> None:
    (row,) = advice(STORED / "tpu-small_arrays" / "base", "slots")
    assert row["n_buffers"] >= 250
    assert "16,384 bytes" in row["action"]


@pytest.mark.parametrize("begin", [1 << 16, 1 << 17])
@pytest.mark.parametrize(("n", "n_rows"), [(64, 1), (63, 0)])
def test_small_buffers_that_keep_a_slot_in_turn(n: int, n_rows: int, begin: int, make: Make) -> None:
    """Of 64 KiB, behind a large buffer. Fewer than 64 of them are not worth a row.

    What is in another allocation does not matter, nor that all begin at multiples of more than 64 KiB.
    """
    shapes = ["(f32[2]{0}, s32[])" if i % 4 == 0 else "f32[2]{0}" for i in range(n)]
    values = [value(n, "large", begin, 0, "f32[16384]{0}")]
    values += [value(i, f"a.{i}", 8, begin, shape) for i, shape in enumerate(shapes)]
    ranges = [f"large{{}}:0-{n}", *(f"a.{i}{{}}:{i}-{i}" for i in range(n))]
    allocations = f"allocation 0: size {2 * begin}, preallocated-temp:\n{''.join(values)}"
    other = value(99, "other", 1 << 17, 0, "f32[32768]{0}")
    allocations += f"allocation 1: size {1 << 17}, preallocated-temp:\n{other}"
    ranges.append("other{}:0-1")
    dump = xlamem.read(make(attacks.dump([], allocations=allocations, steps=n, ranges=ranges)))
    rows = [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "slots"]
    assert [(r["n_buffers"], r["lower"], r["upper"]) for r in rows] == [(n, 0, (1 << 16) * 21 // 20)] * n_rows
    assert all("16 of them are tables of tuples" in r["action"] for r in rows)


def test_shapes_with_padding() -> None:
    """The compiler may need a copy of the largest one in another layout."""
    dump = xlamem.read(STORED / "tpu-pixels" / "base")
    row = next(r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape")
    assert (row["n_buffers"], row["bytes"], row["shape"].partition("{")[0]) == (3, 3 << 25, "f32[2097152,3]")
    assert (row["lower"], row["upper"]) == (-12 * 2097152, 3 * ((1 << 25) - 12 * 2097152))


def test_a_shape_counts_where_it_is_live_at_the_peak(make: Make) -> None:
    """A loop and its copies had one stack six times, one after the other: 137 GiB instead of 23."""
    shape, size = "f32[64,100]{1,0:T(8,128)}", 64 * 128 * 4
    values = "".join(value(i, f"copy.{i}", size, 0, shape) for i in range(3))
    ranges = [f"copy.{i}{{}}:{2 * i}-{2 * i}" for i in range(3)]
    dump = xlamem.read(make(attacks.dump([values], size=size, steps=6, ranges=ranges), "cl_1.after_optimizations"))
    row = next(r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape")
    assert (row["n_buffers"], row["bytes"]) == (1, size)
    assert (row["lower"], row["upper"]) == (-4 * 64 * 100, size - 4 * 64 * 100)


@pytest.mark.parametrize(
    ("layout", "padding"),
    [("{2,0,1:T(8,128)}", ": it pads dimension 0 from 12 to 16 and dimension 2 from 100 to 128."), ("{2,1,0}", ".")],
)
def test_the_dimensions_that_a_layout_pads(layout: str, padding: str, make: Make) -> None:
    values = value(0, "t", 4 * 16 * 50 * 128, 0, f"f32[12,50,100]{layout}")
    dump = xlamem.read(make(attacks.dump([values], size=1 << 20, ranges=["t{}:0-3"]), "cl_1.after_optimizations"))
    row = next(r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape")
    assert row["action"].startswith(f"The layout makes f32[12,50,100] 1.7 times as large{padding}")


@pytest.mark.parametrize(
    ("other", "actions"),
    [
        ("bf16[8,4,16,16,4]{4,2,1,3,0:T(8,128)}", 2), ("bf16[32,16,16,4]{0,3,2,1:T(4,128)}", 2),
        ("bf16[8,4,16,16,4]{3,4,2,1,0:T(4,128)}", 1), ("bf16[8,5,16,16,4]{3,4,2,1,0:T(4,128)}", 2),
        ("f32[8,4,16,16,4]{3,4,2,1,0:T(4,128)}", 2),
    ],
)
def test_an_array_in_two_shapes(other: str, actions: int, make: Make) -> None:
    """Such as a batch of all steps, before and after its first two dimensions are merged: both are padded, or none."""
    first = "bf16[32,16,16,4]{2,3,1,0:T(4,128)}"
    values = value(0, "t", 1 << 18, 0, first) + value(1, "u", 1 << 18, 1 << 18, other)
    text = attacks.dump([values], size=1 << 19, ranges=["t{}:0-3", "u{}:0-3"])
    dump = xlamem.read(make(text, "cl_1.after_optimizations"))
    rows = [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape"]
    assert len(rows) == actions
    if actions == 1:
        assert (rows[0]["n_buffers"], rows[0]["upper"]) == (2, int(1.05 * 2 * ((1 << 18) - 2 * 32 * 16 * 16 * 4)))
        assert "dimension 2 from 16 to 128. So does that of bf16[8,4,16,16,4]. Merge its" in rows[0]["action"]


def test_the_shape_with_most_padding_is_that_of_the_row(make: Make) -> None:
    """Even if the largest array has another one."""
    shapes = ["bf16[8,4,16,16,4]{3,4,2,1,0:T(4,128)}", *["bf16[32,16,16,4]{2,3,1,0:T(4,128)}"] * 2]
    sizes = [3 << 17, 1 << 18, 1 << 18]
    values = [value(i, f"t.{i}", sizes[i], sum(sizes[:i]), shape) for i, shape in enumerate(shapes)]
    text = attacks.dump(values, size=sum(sizes), ranges=[f"t.{i}{{}}:0-3" for i in range(3)])
    dump = xlamem.read(make(text, "cl_1.after_optimizations"))
    (row,) = (r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape")
    assert (row["n_buffers"], row["shape"], row["instruction"]) == (3, shapes[1], "t.1")


def test_the_largest_values_are_those_with_padding(make: Make) -> None:
    values = [value(0, "t", 2048, 0, "f32[512]{0}"), value(1, "u", 4096, 2048, "f32[4,8]{1,0}")]
    dump = xlamem.read(make(attacks.dump(values, size=6144, ranges=["t{}:0-1", "u{}:0-1"]), "cpu_after_opt"))
    assert largest_first(WhatIf(program(dump)), np.array([0, 1])).tolist() == [1, 0]


def test_what_changes_results_counts_half() -> None:
    """Donating the averages and keeping them in a smaller type save the same at most."""
    rows = xlamem.advise(xlamem.read(STORED / "tpu-averages" / "base")).to_pylist()
    assert [(r["kind"], r["rank"]) for r in rows][:2] == [("donate", 0), ("dtype", 1)]


@pytest.mark.parametrize(
    ("kind", "lower", "confidence", "rank"),
    [
        ("donate", 2, "exact", -10), ("donate", 2, "likely", -10), ("donate", 2, "try", -5), ("dtype", 2, "likely", -5),
        ("dtype", 2, "try", -2.5), ("donate", 0, "likely", -8), ("donate", -2, "likely", -8),
        ("batch", 2, "likely", -10),
    ],
)  # fmt: skip
def test_ranks(kind: Kind, lower: int, confidence: Confidence, rank: float) -> None:
    change = Change(0, np.zeros(1, np.int64))
    assert _rank(Intervention(kind, np.array([0]), change, lower, 8, confidence, "")) == rank


@pytest.mark.parametrize(
    ("lower", "confidence", "text"),
    [(0, "try", f"Do it. {TRY}"), (-1, "try", f"Do it. {MAY_COST} {TRY}"), (-1, "likely", "Do it.")],
)
def test_what_may_cost_memory(lower: int, confidence: Confidence, text: str) -> None:
    change = Change(0, np.zeros(1, np.int64))
    assert _action(Intervention("shape", np.array([0]), change, lower, 8, confidence, "Do it.")) == text


def test_collectives() -> None:
    (row,) = advice(DUMPS / "gpu-jax-0.4.35-collectives8", "collective")
    assert row["upper"] == 2097152 + 616  # what packing loses
    assert "all-gather" in row["action"]


def text_of(values: list[str], ranges: list[str], uses: list[str], arena: int) -> bytes:
    """Return a dump with these temporaries in an arena, and an output of 8 bytes."""
    lines = ["BufferAssignment:", f"allocation 0: size {arena}, preallocated-temp:", *values]
    lines += ["allocation 1: size 8, output shape is |f32[2]|, maybe-live-out:"]
    lines += [" value: <9 out @0> (size=8,offset=0): f32[2]{0}", "", f"Total bytes used: {arena + 8}", ""]
    lines += ["Used values:", *uses, "", "HloLiveRange (max 3):", "  InstructionSequence:"]
    lines += ["    0:pair", "    1:first", "    2:out", "  BufferLiveRange:", *ranges, "    out{}:2-3"]
    lines += ["  Live ranges at 0 (peak):", ""]
    return "\n".join(lines).encode()


def test_elements_that_nothing_reads() -> None:
    """The second element of a tuple is never used, but it is as large as the first."""
    values = [
        " value: <1 pair{0} @0> (size=4096,offset=0): f32[1024]{0}",
        " value: <2 pair{1} @0> (size=8192,offset=4096): f32[2048]{0}",
    ]
    uses = ["<1 pair{0} @0>", " positions:", "  pair {0}", " uses:", "  first, operand 0", " from instruction:%pair"]
    ranges = ["    pair{0}:0-1", "    pair{1}:0-1"]
    dump = xlamem.read(text_of(values, ranges, uses, 12288))
    rows = [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "tuple"]
    assert [(r["instruction"], r["shape_index"], r["upper"]) for r in rows] == [("pair", "{1}", 8192)]


@pytest.mark.parametrize(("size", "n"), [(8192, 1), (8191, 0)])
def test_a_hundredth_of_what_must_fit_is_worth_a_row(size: int, n: int) -> None:
    arena = 819200 - 8
    values = [
        f" value: <1 pair{{0}} @0> (size={arena - size},offset=0): u8[{arena - size}]{{0}}",
        f" value: <2 pair{{1}} @0> (size={size},offset={arena - size}): u8[{size}]{{0}}",
    ]
    uses = ["<1 pair{0} @0>", " positions:", "  pair {0}", " uses:", "  first, operand 0", " from instruction:%pair"]
    dump = xlamem.read(text_of(values, ["    pair{0}:0-1", "    pair{1}:0-1"], uses, arena))
    assert compute.device_total(dump) == 819200
    assert len([r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "tuple"]) == n


@pytest.mark.parametrize("uses", [[], ["<9 out @0>", " positions:", "  out", " uses:", "  first, operand 0"]])
@pytest.mark.parametrize("index", ["{1}", "{}"])
def test_what_nothing_is_known_to_read(uses: list[str], index: str) -> None:
    """Where no used values are printed, anything may be read. What is not an element is needed by itself."""
    values = [f" value: <1 pair{index} @0> (size=8192,offset=0): f32[2048]{{0}}"]
    dump = xlamem.read(text_of(values, [f"    pair{index}:0-1"], uses, 8192))
    rows = [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == "tuple"]
    assert len(rows) == (bool(uses) and index == "{1}")


# -- the budget ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dump() -> xlamem.Dump:
    return xlamem.read(STORED / "tpu-attention" / "base")


def planned(table: pa.Table) -> list[Row]:
    return [r for r in table.to_pylist() if r["in_plan"]]


def test_the_shortest_list(dump: xlamem.Dump) -> None:
    """One intervention if that is enough, the one with the largest lower bound."""
    total = compute.device_total(dump) or 0
    rows = xlamem.advise(dump).to_pylist()
    best = max(rows, key=lambda r: r["lower"])
    table, plan = compute.plan_advice(dump, total - best["lower"])
    assert plan is not None
    assert plan.is_reached
    assert [r["rank"] for r in planned(table)] == [best["rank"]]
    assert len(planned(xlamem.advise(dump, total - best["lower"] - 1))) > 1


@pytest.mark.parametrize(("needed", "kinds"), [(50, ["donate"]), (51, ["batch"]), (90, ["batch"]), (200, ["batch"])])
def test_what_changes_nothing_that_is_computed_is_tried_first(needed: int, kinds: list[str], make: Make) -> None:
    """Donating caches was enough, but half of the batch was advised, which saves more."""
    w = WhatIf(program(xlamem.read(make(attacks.dump([value(0, "a.0", 8, 0)], ranges=["a.0{}:0-1"]), "cpu_after_opt"))))
    rows: list[tuple[Kind, int]] = [("batch", 90), ("donate", 50), ("dtype", 40), ("shape", 0)]
    found = [Intervention(k, np.array([0]), Change(-n, w.none), n, n, "likely", "") for k, n in rows]
    assert [found[i].kind for i in _chosen(w, found, needed)] == kinds


@pytest.mark.parametrize(
    ("planned", "is_reached", "shown"),
    [
        ("batch", True, ["donate", "tuple"]), ("dtype", True, ["donate", "tuple"]), ("donate", True, []),
        ("batch", False, ["dtype", "donate", "tuple"]), ("", True, []),
        ("", False, ["batch", "dtype", "donate", "tuple"]),
    ],
)  # fmt: skip
def test_what_may_be_enough_besides_a_plan(planned: str, is_reached: bool, shown: list[str]) -> None:
    """If the plan is enough, that is what changes less than it does."""
    upper = {"batch": 9, "dtype": 9, "donate": 9, "tuple": 9, "shape": 8}
    rows = [{"kind": k, "in_plan": k == planned, "upper": n} for k, n in upper.items()]
    plan = compute.Plan(device_total=100, budget=91, saved=9 if is_reached else 8, n=1 if planned else 0)
    assert [row["kind"] for row in compute.enough_alone(rows, plan)] == shown
    assert compute.enough_alone(rows, None) == []


def test_the_largest_lower_bounds_are_chosen(make: Make) -> None:
    """Not the largest upper bounds, and none without a lower bound."""
    values = [value(i, f"a.{i}", 8, 8 * i) for i in range(3)]
    dump = xlamem.read(make(attacks.dump(values, ranges=[f"a.{i}{{}}:0-1" for i in range(3)]), "cpu_after_opt"))
    w = WhatIf(program(dump))
    found = [
        Intervention("donate", np.array([i]), Change(-lower, w.none), lower, upper, "likely", "")
        for i, (lower, upper) in enumerate([(2, 8), (3, 4), (0, 8)])
    ]
    assert [_chosen(w, found, needed) for needed in (3, 4, 6)] == [[1], [1, 0], [1, 0]]


def test_budgets_that_are_kept_or_out_of_reach(dump: xlamem.Dump) -> None:
    total = compute.device_total(dump) or 0
    table, plan = compute.plan_advice(dump, total)
    assert plan is not None
    assert plan.is_reached
    assert not planned(table)
    table, plan = compute.plan_advice(dump, "1MiB")
    assert plan is not None
    assert not plan.is_reached
    assert 0 < plan.saved < total
    assert all(r["lower"] > 0 for r in planned(table))


def test_a_plan_does_not_count_buffers_twice(dump: xlamem.Dump) -> None:
    """Recomputing the activations of a loop and scanning over chunks exclude each other."""
    kinds = [r["kind"] for r in planned(xlamem.advise(dump, "1MiB"))]
    assert "recompute" in kinds
    assert not {"scan", "batch"} & set(kinds)


def test_the_memory_of_a_device_is_a_budget(dump: xlamem.Dump) -> None:
    """That which its compiler reports, not that which its vendor states."""
    v5e = device("v5e")
    assert v5e.usable < v5e.bytes
    assert compute.plan_advice(dump, device="v5e")[1] == compute.plan_advice(dump, v5e.usable)[1]
    with pytest.raises(xlamem.UsageError, match="a budget and a device exclude each other"):
        xlamem.advise(dump, "1GiB", device="v5e")


def test_wrong_budgets(dump: xlamem.Dump) -> None:
    with pytest.raises(xlamem.UsageError, match="unit"):
        xlamem.advise(dump, "14")
    with pytest.raises(xlamem.UsageError, match="budget must be 0 or more"):
        xlamem.advise(dump, -1)


def test_tables_of_tuples_have_no_layout_to_change(make: Make) -> None:
    """They are padded, too."""
    array = "f32[8,8]{1,0:T(8,128)}"
    values = value(1, "a", 4096, 0, array) + value(2, "t", 2048, 4096, f"({array}, {array})")
    allocations = f"allocation 0: size 6144, preallocated-temp:\n{values}"
    dump = xlamem.read(make(attacks.dump([], allocations=allocations, ranges=["a{}:0-3", "t{}:0-3"])))
    assert all(v["unpadded_size"] < v["size"] for v in dump.values.to_pylist())
    assert [r["shape"] for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape"] == [array]


def test_an_array_without_elements_has_no_layout_to_change(make: Make) -> None:
    """All of its bytes are padding, whatever its dimensions are."""
    arrays = ["f32[8,8]{1,0:T(8,128)}", "f32[0,8]{1,0:T(8,128)}"]
    values = "".join(value(i, f"a.{i}", 4096, 4096 * i, shape) for i, shape in enumerate(arrays))
    allocations = f"allocation 0: size 8192, preallocated-temp:\n{values}"
    dump = xlamem.read(make(attacks.dump([], allocations=allocations, ranges=["a.0{}:0-3", "a.1{}:0-3"])))
    assert dump.values["unpadded_size"].to_pylist() == [256, 0]
    assert [r["shape"] for r in xlamem.advise(dump).to_pylist() if r["kind"] == "shape"] == arrays[:1]


@pytest.mark.parametrize(
    ("shape", "color", "is_advised"),
    [("f32[8,8]{1,0:T(8,128)}", 0, True), ("f32[8,8]{1,0:T(8,128)}", 5, False), ("f32[]{:T(1024)}", 0, False),
     ("u8[1]{0:T(4096)}", 0, True)],
)
def test_arguments_whose_layout_could_change(shape: str, color: int, is_advised: bool, make: Make) -> None:
    """Not those in the host's memory, nor numbers, which are padded as well."""
    allocations = f"allocation 0: size 8, preallocated-temp:\n{value(0, 't', 8)}"
    allocations += f"allocation 1: size 4096, color {color}, parameter 0, shape |{shape}| at ShapeIndex {{}}:\n"
    allocations += value(1, "p", 4096, 0, shape, color)
    members = attacks.dump([], allocations=allocations, ranges=["t{}:0-3", "p{}:0-3"])
    found = xlamem.advise(xlamem.read(make(members, "cl_1.after_optimizations"))).to_pylist()
    assert [r["shape"] for r in found if r["kind"] == "shape"] == [shape] * is_advised
