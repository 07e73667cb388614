"""Advice on what a loop reads slice by slice and stacks anew, on small programs like ones that were recompiled."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, output, program

from xlamem.compute import uses
from xlamem.compute.advice import carried

SHAPE, SLICE = "f32[8,64,64]", "f32[1,64,64]"
TEXT = (
    f"A loop reads {SHAPE} slice by slice, and stacks what it computes from each slice in a new array of the same "
    "size, as xs and ys of jax.lax.scan. Pass such an array on in the carry, and update it in place: x = "
    "x.at[i].set(...)."
)


def decoding(suffix: str = "", trips: int = 8, **changes: dict[str, Any]) -> list[Buffer]:
    """Return a loop that stacks updated slices of a cache, with changes of its buffers by name."""
    loop_, write = f"while{suffix}", f"write{suffix}"
    buffers = [
        Buffer("cache", SHAPE, (0, 7), "cache", uses=f"  {loop_}, operand 0 {{1}}\n  slice{suffix}, operand 0"),
        Buffer("zeros", SHAPE, (1, 5), instruction="broadcast(%x)", uses=f"  {loop_}, operand 0 {{2}}"),
        Buffer("slice", SLICE, (3, 4), "jit(f)/while/body/squeeze", uses=f"  update{suffix}, operand 0"),
        Buffer("update", SLICE, (4, 5), "jit(f)/while/body/scatter", uses=f"  {write}, operand 2"),
        Buffer("write", SHAPE, (5, 7), "jit(f)/while/body/dynamic_update_slice", "fusion(%x)", slot_of="zeros"),
        loop("while{2}", trips, live=(7, 9))._replace(shape=SHAPE, slot_of="zeros"),
    ]
    changed = [b._replace(**changes.get(b.name.partition("{")[0], {})) for b in buffers]
    return [
        b._replace(
            name=b.name.replace("{", f"{suffix}{{") if "{" in b.name else b.name + suffix,
            slot_of=b.slot_of and b.slot_of + suffix,
        )
        for b in changed
    ]


SIZE = decoding()[0].size
SMALL = Buffer("add", "f32[16]")


def carry(make: Make, *buffers: Buffer, platform: str = "cpu") -> list[Row]:
    return advice(program(make, [SMALL, *buffers], platform), "carry")


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_a_cache_that_a_loop_stacks(platform: str, make: Make) -> None:
    (row,) = carry(make, *decoding(), platform=platform)
    assert row["action"] == TEXT
    assert (row["lower"], row["upper"]) == (int(0.75 * SIZE), int(1.1 * SIZE))
    assert (row["n_buffers"], row["shape"], row["confidence"], row["argument"]) == (1, SHAPE, "likely", None)


def test_on_a_tpu_the_program_is_scheduled_anew(make: Make) -> None:
    (row,) = carry(make, *decoding(), platform="tpu")
    assert row["lower"] == int(0.75 * SIZE) - int(0.05 * (2 * SIZE + 2 * decoding()[2].size + SMALL.size))


def test_caches_of_keys_and_values(make: Make) -> None:
    """What lies in the slots of both is not needed."""
    (row,) = carry(make, *decoding(), *decoding(".2"))
    assert row["action"].startswith(f"A loop reads 2 arrays, such as {SHAPE}, slice by slice, and stacks")
    assert row["lower"] == int(0.75 * 2 * SIZE)


def test_a_loop_in_a_loop(make: Make) -> None:
    """A copy over what has been read, for the next iteration of the loop around it, is spared."""
    copy = Buffer("copy", SHAPE, (8, 9), "", "copy(%while)", slot_of="cache")
    stacked = {"live": (7, 8), "uses": "  copy, operand 0"}
    (row,) = carry(make, *decoding(**{"while": stacked}), copy)
    assert row["lower"] == int(0.75 * SIZE)


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({}, 1),
        ({"cache": {"live": (0, 8)}}, 0),  # needed after the loop
        ({"cache": {"shape": "f32[8,64,63]"}}, 0),  # of another size
        ({"cache": {"shape": "s32[8,64,64]"}}, 0),
        ({"cache": {"shape": "f32[16,32,64]"}}, 1),  # unrolled
        ({"trips": 4}, 1),
        ({"trips": 3}, 0),  # what is written is not by iteration
        ({"trips": 1}, 0),
        ({"write": {"op_name": "jit(f)/while/body/add"}}, 0),  # all of it is written, as a carry may be
        ({"write": {"op_name": "", "name": "bitcast_dynamic-update-slice_fusion"},
          "update": {"uses": "  bitcast_dynamic-update-slice_fusion, operand 1"}}, 1),
        ({"write": {"slot_of": ""}}, 0),  # it writes something else
        ({"update": {"uses": ""}}, 0),  # what is stacked is not computed from the slice
        ({"slice": {"shape": "f32[1,64,4]"}}, 1),  # computed in parts
        ({"slice": {"shape": "f32[1,64,3]"}}, 0),  # such as weights of attention
        ({"slice": {"shape": "f32[1,64,65]"}}, 0),
        ({"cache": {"uses": "  while, operand 0 {1}\n  write, operand 0"}}, 1),  # fused
        ({"cache": {"uses": "  slice, operand 0"}}, 0),  # another loop reads it
        ({"while": {"op_name": "jit(f)/jvp()/while"}}, 0),  # gradients have the shapes of what is read
        ({"while": {"op_name": "jit(f)/transpose(jvp())/while"}}, 0),
        ({"while": {"instruction": "conditional(%x)"}}, 0),
    ],
)  # fmt: skip
def test_what_can_be_carried(changes: dict[str, Any], n: int, make: Make) -> None:
    assert len(carry(make, *decoding(**changes))) == n


@pytest.mark.parametrize(("more", "n"), [(0, 1), (1, 0)])
def test_small_results_are_left_out(more: int, n: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    total = 2 * SIZE + 2 * decoding()[2].size + SMALL.size
    monkeypatch.setattr(carried, "MIN_SHARE", Fraction(SIZE + more, total))
    assert len(carry(make, *decoding())) == n


def test_an_optimizer_that_updates_layer_by_layer(make: Make) -> None:
    """Outside of the passes of a training, it is no gradient."""
    gradient = Buffer("dot", "f32[8,64]", (0, 1), "jit(f)/transpose(jvp())/dot_general", "dot(%x, %y)")
    assert len(carry(make, *decoding(**{"while": {"op_name": "jit(f)/adam/while"}}), gradient)) == 1
    assert carry(make, *decoding(), gradient) == []


PARAMETER = {"allocation": argument("", SHAPE, 0).allocation, "instruction": "parameter(0)", "live": (0, 9)}
DONATED = PARAMETER | {"allocation": PARAMETER["allocation"][:-1] + ", maybe-live-out:"}
RETURNED = {"allocation": output("", SHAPE).allocation, "slot_of": ""}


@pytest.mark.parametrize(
    ("cache", "stacked", "saved", "donated"),
    [
        (PARAMETER, {}, 0, False),  # a copy that could be updated takes as much
        (DONATED, {}, SIZE, False),
        (PARAMETER, RETURNED, SIZE, True),
        (DONATED, RETURNED, 0, False),
        ({}, RETURNED, SIZE, False),
        ({"allocation": "constant:", "instruction": "constant(...)"}, {}, 0, False),
        ({"allocation": "constant:", "instruction": "constant(...)"}, RETURNED, 0, False),
    ],
)
def test_arguments_and_outputs(
    cache: dict[str, Any], stacked: dict[str, Any], saved: int, donated: bool, make: Make
) -> None:
    """One of both is not needed, but an argument only if it can be overwritten."""
    write = {"slot_of": "while{2}" if stacked else "zeros"}
    rows = carry(make, *decoding(cache=cache, write=write, zeros=write if stacked else {}, **{"while": stacked}))
    assert [row["lower"] for row in rows] == [int(0.75 * saved)] * (saved > 0)
    assert all(saved <= row["upper"] <= int(1.1 * saved) for row in rows)
    assert [row["action"] for row in rows] == [TEXT + " Donate `cache` for it." * donated] * (saved > 0)


@pytest.mark.parametrize(("limit", "n"), [(1, 1), (2, 2)])
@pytest.mark.parametrize("name", ["MAX_LOOPS", "MAX_ARRAYS"])
def test_the_largest_are_looked_at(
    name: str, limit: int, n: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carried, name, limit)
    buffers = decoding()
    if name == "MAX_LOOPS":
        buffers += decoding(".2")
    else:  # two results of one loop
        *others, stacked = decoding(".2")
        buffers += [b._replace(uses=b.uses.replace("while.2, operand 0 {", "while, operand 0 {1")) for b in others]
        buffers += [stacked._replace(name="while{12}")]
    (row,) = carry(make, *buffers)
    assert row["lower"] == int(0.75 * n * SIZE)


@pytest.mark.parametrize(("limit", "n"), [("MAX_ROUNDS", 3), ("MAX_FOLLOWED", 3)])
def test_how_far_a_slice_is_followed(limit: str, n: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its readers, one of which is the loop, to what is computed, and what is written."""
    monkeypatch.setattr(uses, limit, n)
    assert len(carry(make, *decoding())) == 1
    monkeypatch.setattr(uses, limit, n - 1)
    assert carry(make, *decoding()) == []
