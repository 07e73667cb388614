"""Advice on arguments that are sharded along the dimension of a loop, on small programs like recompiled ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, program

import xlamem
from xlamem.compute.advice import gathered_batches

STORED = Path(__file__).parents[1] / "data" / "advice" / "tpu-microbatches" / "base"

STEP, GRADIENT = "jit(f)/while/body/closed_call/jvp()/dot_general", "jit(f)/while/body/closed_call/transpose(jvp())/mul"
GROUPS = "replica_groups={{0,1}}"
BATCH = argument("batch", "f32[2,16,64]", 0, uses="  gather, operand 0")
GATHER = Buffer(
    "gather", "f32[4,16,64]", (1, 3), "", f"all-gather(%p.0), {GROUPS}, dimensions={{0}}", uses="  step, operand 0"
)
PARTS = Buffer("step", "f32[16,512]", (2, 6), STEP, "dot(%gather, %gather)")
WHILE = loop("while{0}", 4, live=(7, 9))
LATER = Buffer("later", "f32[16,8]", (5, 6), GRADIENT)
BUFFERS = (BATCH, GATHER, PARTS, LATER, WHILE)


def gathers(make: Make, *more: Buffer, platform: str = "cpu", **changes: Any) -> list[Row]:
    """Return the advice for such a program, with changes of its buffers by name."""
    buffers = [b._replace(**changes.get(b.name.partition("{")[0], {})) for b in BUFFERS]
    rows = advice(program(make, [*buffers, *more], platform), "shard")
    return [row for row in rows if row["action"].startswith("A loop iterates")]


def test_micro_batches_that_each_device_gathers() -> None:
    row = advice(xlamem.read(STORED), "shard")[0]
    assert row["action"] == (
        "A loop iterates over the dimension of 4 along which `batch` is sharded: 4 devices gather it, and each "
        "computes all 6,144 samples of an iteration. Shard these instead, so that each computes 1,536: reshape to "
        "(-1, 4, ...) instead of (4, -1, ...) and swap these two dimensions, or use jax.lax.with_sharding_constraint."
    )
    assert (row["argument"], row["parameter"], row["instruction"]) == ("batch", 8, "all-gather.8")
    assert row["shape"].startswith("f32[4,6144,512]")
    assert row["source_file"].endswith("interventions.py")
    assert row["source_line"] == 359  # of lax.scan, in the stored dump
    assert row["confidence"] == "likely"


def test_bounds(make: Make) -> None:
    """What has the samples of an iteration becomes half as large on two devices. So may what packing loses."""
    (row,) = gathers(make)
    assert row["lower"] == int(0.6 * (PARTS.size + GATHER.size) // 2)
    assert row["upper"] == int(1.25 * ((PARTS.size + GATHER.size) // 2 + LATER.size + WHILE.size))
    assert row["n_buffers"] == 2


NONE: dict[str, dict[str, Any]] = {
    "another dimension": {"gather": {"instruction": f"all-gather(%p.0), {GROUPS}, dimensions={{1}}"}},
    "no groups": {"gather": {"instruction": "all-gather(%p.0), dimensions={0}"}},
    "groups of one": {"gather": {"instruction": "all-gather(%p.0), replica_groups={{0},{1}}, dimensions={0}"}},
    "a part for each of three": {
        "gather": {"instruction": "all-gather(%p.0), replica_groups={{0,1,2}}, dimensions={0}"}
    },
    "samples that two devices cannot share": {"gather": {"shape": "f32[4,15,64]"}},
    "as many elements as no loop has iterations": {"while": {"instruction": "while(%init), body=%body"}},
    "not gathered": {"gather": {"instruction": f"all-to-all(%p.0), {GROUPS}, dimensions={{0}}"}},
    "a loop over layers, which is differentiated": {
        "step": {"op_name": "jit(f)/jvp()/while/body/closed_call/dot_general"},
        "later": {"op_name": "jit(f)/jvp()/while/body/closed_call/jvp()/mul"},
    },
    "a loop over layers that are not trained": {
        "step": {"op_name": "jit(f)/while/body/closed_call/dot_general"},
        "later": {"op_name": "jit(f)/transpose(jvp())/mul"},
    },
    "updated weights": {"p.0": {"allocation": f"{BATCH.allocation.removesuffix(':')}, maybe-live-out:"}},
}


@pytest.mark.parametrize("changes", NONE.values(), ids=NONE)
def test_other_programs(changes: dict[str, dict[str, Any]], make: Make) -> None:
    assert not gathers(make, **changes)


@pytest.mark.parametrize("op_name", [STEP, "jit(f)/while/body/dot_general", "jit(f)/jvp()/while/body/dot_general"])
def test_tokens_are_no_weights(op_name: str, make: Make) -> None:
    """Whatever the loop computes."""
    shapes = {"p.0": {"shape": "s32[2,16,64]"}, "gather": {"shape": "s32[4,16,64]"}, "step": {"op_name": op_name}}
    (row,) = gathers(make, **shapes)
    assert row["argument"] == "batch"


@pytest.mark.parametrize(
    ("shape", "is_likely"), [("f32[16,7]", True), ("f32[7,16]", False), ("f32[7,8]", True), ("f32[7,7,16]", False)]
)
def test_weights_with_as_many_rows_as_samples(shape: str, is_likely: bool, make: Make) -> None:
    """What has this dimension may be no activations then. The batch of another argument comes first."""
    (row,) = gathers(make, argument("w", shape, 1))
    assert (row["lower"] > 0) is is_likely
    assert (row["confidence"] == "likely") is is_likely


def test_as_many_samples_as_iterations(make: Make) -> None:
    shapes = {"p.0": {"shape": "f32[2,4,64]"}, "gather": {"shape": "f32[4,4,64]"}, "step": {"shape": "f32[4,512]"}}
    (row,) = gathers(make, **shapes)
    assert (row["lower"], row["confidence"]) == (0, "try")


def test_several_arguments_of_a_loop_are_one_row(make: Make) -> None:
    labels = argument("labels", "s32[2,16]", 1, uses="  second, operand 0")
    gathered = GATHER._replace(name="second", shape="s32[4,16]")._replace(
        instruction=GATHER.instruction.replace("p.0", "p.1")
    )
    (row,) = gathers(make, labels, gathered)
    assert (row["argument"], row["n_buffers"]) == ("batch", 3)


EXCHANGES = {
    "all-reduce(%step), replica_groups={{0,1}}": 0,
    "all-reduce(%step), replica_groups=[1,2]<=[2]": 0,
    "all-gather(%step), replica_groups=mesh['axis_0'=1,'axis_1'=2] {'axis_1'}, dimensions={1}": 0,
    "all-reduce(%step), replica_groups={{0,1},{2,3}}": 1,
    "add(%step, %step)": 1,
}


@pytest.mark.parametrize(("instruction", "is_likely"), EXCHANGES.items())
def test_devices_that_exchange_more_may_share_the_work(instruction: str, is_likely: int, make: Make) -> None:
    (row,) = gathers(make, Buffer("sum", "f32[8]", (4, 4), "jit(f)/psum", instruction))
    assert (row["confidence"], row["lower"] > 0) == (("try", False), ("likely", True))[is_likely]


def test_the_sum_of_a_loss_is_no_shared_work(make: Make) -> None:
    (row,) = gathers(make, Buffer("sum", "f32[]", (4, 4), "jit(f)/psum", f"all-reduce(%step), {GROUPS}"))
    assert row["confidence"] == "likely"


@pytest.mark.parametrize("limit", [1, 2])
def test_the_largest_gathers_are_compared(limit: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_batches, "MAX_GATHERS", limit)
    small = GATHER._replace(name="second", shape="f32[4,8,64]")
    rows = gathers(make, small, **{"p.0": {"uses": f"{BATCH.uses}\n  second, operand 0"}})
    assert [r["shape"] for r in rows] == [GATHER.shape, small.shape][:limit]
