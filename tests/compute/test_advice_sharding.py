"""Advice on arguments that are sharded less than others, on small programs like ones that were recompiled."""

from __future__ import annotations

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, output, program

EXCHANGED = Buffer("g", "f32[8]", (0, 9), "jit(f)/psum", "all-reduce(%x)")
PARAMS = argument("params['a']['w']", "f32[16,64]", 0)
STATE = argument("opt[0].mu['a']['w']", "f32[64,64]", 1)


def shardings(make: Make, *buffers: Buffer, platform: str = "cpu") -> list[Row]:
    return advice(program(make, buffers, platform), "shard")


def test_optimizer_state_that_is_on_each_device(make: Make) -> None:
    """A quarter of it is left. What temporaries take may be saved as well, and an output in its place."""
    bias = argument("opt[0].nu['a']['w']", "f32[64,64]", 2)
    (row,) = shardings(make, EXCHANGED, PARAMS, STATE, bias)
    assert row["action"].startswith("Shard `opt` like `params`: on each device, it has arrays such as f32[64,64] where")
    assert "where `params` has f32[16,64]." in row["action"]
    assert (row["argument"], row["parameter"], row["n_buffers"], row["bytes"]) == ("opt", 1, 2, 2 * STATE.size)
    estimate = 2 * (STATE.size - PARAMS.size)
    assert row["lower"] == int(0.8 * estimate) - EXCHANGED.size // 20
    assert row["upper"] == estimate + 2 * PARAMS.size + EXCHANGED.size
    assert row["confidence"] == "likely"


def test_outputs_that_replace_it_are_sharded_as_well(make: Make) -> None:
    new = output("new", "f32[64,64]")
    (row,) = shardings(make, EXCHANGED, PARAMS, STATE, new)
    estimate = 2 * (STATE.size - PARAMS.size)
    assert row["upper"] == min(estimate + EXCHANGED.size, STATE.size + new.size + PARAMS.size + EXCHANGED.size)


@pytest.mark.parametrize(
    ("params", "state", "found"),
    [
        ({}, {}, "opt"),
        ({"op_name": "opt[0].mu['a']['w']"}, {"op_name": "params['a']['w']"}, "params"),  # its state is sharded
        ({}, {"op_name": "opt[0].mu['a']['v']"}, None),
        ({}, {"op_name": "params['b']['a']['w']"}, None),  # of the same argument
        ({}, {"shape": "f32[16,64]"}, None),
        ({}, {"shape": "f32[60,64]"}, None),  # no multiple
        ({}, {"shape": "f32[64,64,2]"}, None),
        ({}, {"shape": "f32[64,32]"}, None),  # larger in one dimension, smaller in another
        ({}, {"shape": "bf16[64,64]"}, None),
        ({}, {"op_name": "opt"}, None),
    ],
)
def test_arrays_with_the_same_path(
    params: dict[str, str], state: dict[str, str], found: str | None, make: Make
) -> None:
    rows = shardings(make, EXCHANGED, PARAMS._replace(**params), STATE._replace(**state))
    assert [r["argument"] for r in rows] == ([found] if found else [])


def test_a_program_for_one_device(make: Make) -> None:
    assert shardings(make, EXCHANGED._replace(instruction="add(%x)"), PARAMS, STATE) == []


def test_the_smallest_array_with_a_path_counts(make: Make) -> None:
    """Average weights may be on each device, too."""
    average = argument("ema['a']['w']", "f32[32,64]", 2)
    rows = shardings(make, EXCHANGED, PARAMS, STATE, average)
    assert sorted((r["argument"], "f32[16,64]" in r["action"]) for r in rows) == [("ema", True), ("opt", True)]
