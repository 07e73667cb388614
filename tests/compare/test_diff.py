"""Differences of programs: every byte has a cause, and pairs that differ in one edit name it first."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from compare_diffs import assert_adds_up
from conftest import every, label, sources
from pairs import FOLDER, Pair, stored
from rename import rename

import xlamem
from xlamem.compare.difference import Diff, diff
from xlamem.compare.groups import difference_groups
from xlamem.compare.rows import parsed, replaced_dimensions
from xlamem.compare.verdict import ranked_edits
from xlamem.compute.program import program
from xlamem.errors import UsageError
from xlamem.input.find import find

DUMPS = Path(__file__).parent.parent / "dumps"
KILLED = DUMPS / "cpu-killed-at-buffer-assignment"
FOLDERS = sorted(d for d in DUMPS.iterdir() if d.is_dir() and len(find(d)) == 1 and d != KILLED)

Row = dict[str, Any]

KINDS = {
    "layer_added": {"layers", "loops"},
    "donation_removed": {"donation"},
    "remat_removed": {"rematerialization"},
    "type_changed": {"element type", "operation types"},
    "outputs_gone": {"outputs"},
    "batch_doubled": {"dimensions"},
    "cache_longer": {"dimensions"},
    "heads_doubled": {"dimensions"},
    "vocabulary_doubled": {"dimensions"},
    "scan_unrolled": {"loops"},
    "loss_chunking_removed": {"loops"},
    "sharding_lost": {"sharding"},
    "einsum_rewritten": {"operations"},
    "flag_changed": {"flags"},
    "offload_removed": {"memory space"},
    "compiler_upgraded": {"compiler"},
}
"""The kinds of edits that name each cause of the stored pairs."""


# -- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sides", every(2, itertools.pairwise(FOLDERS)), ids=lambda f: f"{f[0].name} {f[1].name}")
def test_unrelated_programs_are_accounted_for(sides: tuple[Path, Path]) -> None:
    one, other = map(xlamem.read, sides)  # each program is in one quick test
    assert_adds_up(diff(one, other), one, other)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_program_without_allocations_is_not_compared(swapped: bool) -> None:
    sides = (KILLED, FOLDERS[0])[:: -1 if swapped else 1]
    with pytest.raises(UsageError, match="has no allocations: its memory use is unknown"):
        diff(*sides)


@pytest.mark.parametrize("source", every(2, [s for s in sources() if KILLED.name not in s.location]), ids=label)
def test_a_program_does_not_differ_from_itself(source: Any) -> None:
    dump = xlamem.read(source)
    d = diff(dump, xlamem.read(source))
    assert d.is_same
    assert not d.edits.num_rows
    assert not d.grown
    assert d.matches.num_rows == dump.values.num_rows
    assert d.matches["value_id_a"].equals(d.matches["value_id_b"])
    assert "Nothing changed" in d.verdict


@pytest.mark.parametrize(
    "text",
    [
        # Two instructions of one step, of which the second is known by name when the allocations are read first.
        "BufferAssignment:\nallocation 0: size 5 :\n value: <2 tuple > (size=0,offset=0): :\n"
        " value: <2 tuple.2{}> (size=2,offset=2): )\nHloLiveRange (\n  InstructionSequence:\n    5:tuple.2\n",
        # An allocation without values.
        "BufferAssignment:\nallocation 4: size 4:\n",
    ],
    ids=["two-of-one-step", "no-value"],
)
def test_a_damaged_dump_does_not_differ_from_itself(text: str) -> None:
    dump = xlamem.read(text.encode())
    xlamem.peak(dump)  # what was read first does not matter
    assert diff(dump, xlamem.read(text.encode())).is_same


@pytest.mark.parametrize("folder", every(2, FOLDERS), ids=lambda f: f.name)
def test_other_names_ids_and_lines_are_no_difference(folder: Path, tmp_path: Path) -> None:
    a, b = xlamem.read(folder), xlamem.read(rename(folder, tmp_path / "renamed", seed=3))
    d = diff(a, b)
    assert not d.buffers.num_rows
    assert not d.bills.num_rows
    assert not d.edits.num_rows
    placed = [_placement(program(dump)) for dump in (a, b)]
    m = d._matching
    assert (m.value >= 0).all()
    for left, right in zip(*placed, strict=True):
        same = left == right[m.value]
        assert same.all()


def _placement(p: Any) -> tuple[Any, ...]:
    return p.size, p.value_category, p.allocation_size[p.owner]


def test_a_truncated_dump_is_not_known(tmp_path: Path) -> None:
    folder = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
    for file in folder.iterdir():
        content = file.read_bytes()
        cut = "buffer-assignment-values" in file.name
        (tmp_path / file.name).write_bytes(content[: len(content) // 2] if cut else content)
    a, b = xlamem.read(folder), xlamem.read(tmp_path)
    for d in (diff(a, b), diff(b, a)):
        assert not d.is_known
        assert d.verdict.startswith("Not known")
    assert_adds_up(diff(a, b), a, b)


def test_without_live_ranges_what_must_fit_is_compared(tmp_path: Path) -> None:
    folder = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
    for file in folder.iterdir():
        if "live-range" not in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    a, b = xlamem.read(folder), xlamem.read(tmp_path)
    d = diff(a, b)
    assert d.device_total_change == 0
    assert "no live ranges" in d.doubt
    assert_adds_up(d, a, b)


# -- causes --------------------------------------------------------------------------------------


def assert_cause_is_named_first(pair: Pair, a: xlamem.Dump, b: xlamem.Dump) -> None:
    forth, back = diff(a, b), diff(b, a)
    assert_both_directions_agree(forth, back)
    for d, one, other in ((forth, a, b), (back, b, a)):
        assert_adds_up(d, one, other)
        first = [row["kind"] for row in ranked_edits(d)][:1]
        if pair.cause in ("names", "none"):
            assert not d.device_total_change
            assert not d.peak_change
            assert d.verdict.startswith("No buffer changed" if pair.cause == "names" else "Nothing changed")
        else:
            assert first, d.verdict
            assert set(first) <= KINDS[pair.cause], d.verdict


def assert_both_directions_agree(forth: Diff, back: Diff) -> None:
    assert forth.device_total_change == -back.device_total_change
    for row, other in zip(forth.accounts.to_pylist(), back.accounts.to_pylist(), strict=True):
        assert (row["reserved_a"], row["peak_a"]) == (other["reserved_b"], other["peak_b"])
        assert (row["reserved_b"], row["peak_b"]) == (other["reserved_a"], other["peak_a"])


@pytest.mark.parametrize("pair", every(3, stored()), ids=lambda p: p.name)
def test_the_cause_is_named_first(pair: Pair) -> None:
    """And both directions agree."""
    assert_cause_is_named_first(pair, *pair.sides())


@pytest.mark.slow
def test_recompiled(tmp_path: Path) -> None:
    """The same pairs, compiled by the JAX that is installed."""
    pytest.importorskip("jax", reason="jax, which compiles the programs, is not installed")
    pairs = [p for p in stored() if p.platform == "cpu" and p.cause != "compiler_upgraded"]
    names = [p.name.replace("-", "/", 1) for p in pairs]
    command = [sys.executable, FOLDER / "make.py", tmp_path, *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for pair, name in zip(pairs, names, strict=True):
        assert_cause_is_named_first(pair, *(xlamem.read(tmp_path / name / side) for side in "ab"))


def named(name: str) -> Diff:
    pair = next(p for p in stored() if p.name == name)
    return diff(*pair.sides())


def edited(name: str) -> tuple[xlamem.Dump, xlamem.Dump]:
    """Return both sides of an edit for a single test."""
    a, b = find(FOLDER.parent / "edits" / f"{name}.tar.xz")
    return xlamem.read(a), xlamem.read(b)


def test_mixed_precision_of_keras_is_named_first() -> None:
    """Its casts are conversions as those of JAX are. Each has a scope of its own."""
    pair = Pair("tensorflow-mixed-precision", "cpu", "type_changed", "", "")
    a, b = edited("tensorflow-mixed-precision")
    assert_cause_is_named_first(pair, a, b)
    assert "bf16 instead of f32; conversions are new in functional, functional/block_*/dense, " in diff(a, b).verdict


def test_recompute_grad_of_tensorflow_is_named_first() -> None:
    folder = FOLDER.parent / "advice" / "cpu-tensorflow"
    a, b = (xlamem.read(folder / name) for name in ("base", "recompute"))
    for d, word, numbers in ((diff(a, b), "new", r"\d+ instead of 0"), (diff(b, a), "gone", r"0 instead of \d+")):
        (first, *_) = ranked_edits(d)
        text = rf"tf\.recompute_grad is {word}: the backward pass recomputes {numbers} instructions"
        assert re.fullmatch(text, first["text"])
    assert not texts(diff(a, xlamem.read(folder / "batch")), "rematerialization")


def test_lost_donation_is_a_change_of_sharing() -> None:
    d = named("cpu-donation-removed-decode")
    rows = xlamem_rows(d, "device_total")
    assert {row["cause"] for row in rows} == {"sharing changed"}
    assert sum(row["change"] for row in rows) == d.peak_change == 8 * 8 << 20
    lines = {(r["line"], r["part"]): r["change"] for r in d.bills.to_pylist() if r["account"] == "device_total"}
    assert lines["donated", "data"] < 0 < lines["parameters", "data"]


def test_what_is_not_live_shares_nothing() -> None:
    """Values that borrow the memory of an output share memory only while they are live."""
    d = named("cpu-flag-fusion")
    steps = {row["account"]: row for row in d.accounts.to_pylist()}
    borrowed = 0
    for row in d.buffers.to_pylist():
        side = "a" if row["allocation_a"] is None else "b"
        if row["cause"] not in ("new", "gone") and row[f"category_{side}"] == "temp_in_output":
            step = steps[row["account"]][f"step_{side}"]
            is_live = row[f"start_{side}"] <= step <= row[f"end_{side}"]
            borrowed += row[f"allocation_{side}"] is None
            assert is_live or row["cause"] != "sharing changed"
    assert borrowed


def test_another_compiler_is_named_first(tmp_path: Path) -> None:
    """Before an edit that explains the change."""
    a, b = next(p for p in stored() if p.name == "v5e-donation-removed-decode").unpack(tmp_path)
    for path in sorted(b.iterdir()):
        path.rename(b / re.sub(r"cl_\d+", "cl_999", path.name))
    assert ": the compiler is of changelist 999 instead of 1014260217" in xlamem.diff(a, b).verdict


def test_the_side_whose_peak_moved() -> None:
    """The larger peak is reached several times: the step that is compared is not the first one, but is a peak."""
    b, a = next(p for p in stored() if p.name == "tpu7x-offload-removed").sides()
    d = xlamem.diff(a, b)
    total = d.accounts.slice(0, 1).to_pylist()[0]
    assert (total["in_use_a"], total["moved"] != 0) == (total["peak_a"], True)
    assert total["step_a"] != total["peak_step_a"]
    step, peak = total["step_b"], total["peak_step_b"]
    assert f"peak moved: that of B is at step {peak:,}, not {step:,}" in repr(d)


def test_without_an_output_nothing_can_be_donated() -> None:
    (edit,) = texts(named("cpu-cache-not-returned"), "donation")
    assert edit.startswith("8 arguments are no longer donated, because no output has the shape: cache[0][0], ")


def test_the_example_of_the_guide() -> None:
    d = named("v5e-donation-removed-decode")
    guide = (Path(__file__).parents[2] / "docs" / "numbers.md").read_text()
    total = d.accounts.to_pylist()[0]
    assert (total["step_a"], total["step_b"], total["peak_step_b"], total["moved"]) == (199, 271, 162, 0)
    numbers = [total[name] for name in ("reserved_a", "reserved_b")]
    numbers += [abs(row["change"]) for row in d.bills.to_pylist() if row["account"] == "device_total"]
    for number in numbers:
        assert f"{number:,}" in guide
    shared = [row for row in xlamem_rows(d, "device_total") if row["cause"] == "sharing changed"]
    assert [row["change"] for row in shared] == [8_388_608] * 8
    assert sum(row["change"] for row in shared) == d.peak_change


def test_doubled_batch_makes_buffers_larger() -> None:
    d = named("cpu-batch-doubled-scan")
    causes = Counter[str]()
    for row in xlamem_rows(d, "device_total"):
        causes[row["cause"]] += row["change"]
    assert causes.most_common(1)[0][0] == "larger"
    assert "a dimension of 8 is 16 now, as in argument tokens" in d.verdict


def test_a_flag_is_named_with_both_values() -> None:
    assert "xla_tpu_scoped_vmem_limit_kib is 65536 instead of -1" in named("v5e-flag-vmem").verdict


def texts(d: Diff, kind: str) -> list[str]:
    return [row["text"] for row in d.edits.to_pylist() if row["kind"] == kind]


@pytest.mark.parametrize("platform", ["cpu", "h100", "tpu7x", "v5e"])
def test_the_call_with_checkpoint_is_named(platform: str) -> None:
    a, b = next(p for p in stored() if p.name == f"{platform}-remat-removed-scan").sides()
    assert texts(diff(a, b), "rematerialization")[0].startswith("jax.checkpoint is gone from program.py:88: ")
    assert texts(diff(b, a), "rematerialization")[0].startswith("jax.checkpoint is new in program.py:88: ")


def test_flags_of_a_file_that_only_one_side_has_do_not_differ(tmp_path: Path) -> None:
    pair = next(p for p in stored() if p.name == "v5e-flag-vmem")
    b = pair.unpack(tmp_path)[1]
    assert texts(diff(*pair.sides()), "flags")
    (environment,) = b.glob("*tpu_comp_env.txt")
    environment.unlink()
    assert not texts(diff(pair.sides()[0], b), "flags")


def test_a_cache_that_is_divided_into_pages() -> None:
    """Two of its dimensions have nothing to do with those before."""
    a, b = edited("cpu-cache-paged")
    for d, shapes in (
        (diff(a, b), "f32[2,4,256,2,32] -> f32[2,128,16,2,32]"), (diff(b, a), "f32[2,128,16,2,32] -> f32[2,4,256,2,32]")
    ):  # fmt: skip
        assert f": 1 argument has another shape: cache ({shapes})" in d.verdict
        assert texts(d, "dimensions") == [f"1 argument has another shape: cache ({shapes})"]


CHIPS = {"v5e": "VIPERFISH", "tpu7x": "6acc60406"}


@pytest.mark.parametrize("named", [True, False])
def test_another_chip_is_named_first(named: bool, tmp_path: Path) -> None:
    """What its compiler chooses is no edit of the program: how much is recomputed, and what it moves and splits."""
    folders = []
    for name, version in CHIPS.items():
        pair = next(p for p in stored() if p.name == f"{name}-remat-removed-scan")
        folder = pair.unpack(tmp_path / name)[0]
        (file,) = folder.glob("*-buffer-assignment.txt")
        stem = file.name.partition(".after_optimizations")[0]
        lite = '  variant: "lite"\n' if name == "v5e" else ""
        text = f"tpu_topology_args {{\n  version: TPU_VERSION_{version}\n{lite}}}\n"
        if named:
            (folder / f"{stem}.target_arguments.txt").write_text(text)
        folders.append(folder)
    a, b = map(xlamem.read, folders)
    d = diff(a, b)
    first, *others = ranked_edits(d)
    tiles = "another TPU, with tiles of 16 rows for bf16 instead of 8"
    assert first["text"] == f"compiled for {'TPU7x instead of TPU v5e' if named else tiles}"
    assert first["evidence"] == ("files" if named else "buffers")
    assert {row["kind"] for row in others}.isdisjoint({"rematerialization", "instructions", "operations", "flags"})
    assert not texts(diff(a, a), "compiler")


def test_two_platforms() -> None:
    """Their memory spaces have different names; no buffer moved because of that."""
    a, b = (next(p for p in stored() if p.name == f"{name}-names").sides()[0] for name in ("v5e", "h100"))
    d = diff(a, b)
    assert_adds_up(d, a, b)
    assert texts(d, "compiler") == ["compiled for gpu instead of tpu"]
    assert not texts(d, "memory space")
    assert d.verdict.partition(": ")[2].startswith("compiled for gpu instead of tpu")


@pytest.mark.parametrize(
    ("a", "b", "replaced"),
    [
        ("f32[8,64]", "f32[16,64]", {(8, 16)}),
        ("f32[64]", "f32[8,64]", {(1, 8)}),
        ("f32[8,1,64]", "f32[64]", {(8, 1)}),
        ("s32[0]", "s32[0,0]", set()),
        ("s32[0,5]", "s32[3,5]", set()),
        ("f32[]", "f32[0]", set()),
        ("f32[2,3]", "f32[4,5,6,7]", set()),
    ],
)
def test_replaced_dimensions(a: str, b: str, replaced: set[tuple[int, int]]) -> None:
    one, other = parsed(a), parsed(b)
    assert one
    assert other
    assert replaced_dimensions(one, other) == replaced
    assert replaced_dimensions(other, one) == {(y, x) for x, y in replaced}


def test_keys_of_groups_are_checked() -> None:
    d = named("cpu-names")
    for by in ((), ("color",)):
        with pytest.raises(UsageError, match=r"cannot group by .*: the keys are buffer, cause"):
            difference_groups(d, by)


def test_matches_survive_fused_neighbors() -> None:
    """Most of a model still matches when fusion is switched off."""
    d = named("cpu-flag-fusion")
    assert (d._matching.value >= 0).mean() > 0.9


def xlamem_rows(d: Diff, account: str) -> list[Row]:
    mask = pa.array(np.array([name == account for name in d.buffers["account"].to_pylist()], bool))
    rows: list[Row] = d.buffers.filter(mask).to_pylist()
    return rows
