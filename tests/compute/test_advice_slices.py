"""Advice on what a program computes before a loop reads it slice by slice, on small programs like recompiled ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, program

import xlamem
from xlamem.compute import buffer_names, slice_reads
from xlamem.compute.advice import loop_inputs

SHAPE, SLICE, KEY = "f32[8,64,64]", "f32[1,64,64]", "u32[2]"
RANDOM, STEP = "jit(f)/jit(_normal)/jit(_uniform)", "jit(f)/while/body"
MADE = ["%k = u32[2] parameter(0)", f'%b = {SHAPE} broadcast(%k), metadata={{op_name="{RANDOM}/xor"}}',
        f"ROOT %m = {SHAPE} multiply(%b, %b)"]  # fmt: skip
READ = [f"%x = {SHAPE} parameter(0)", "%i = s32[] parameter(1)", f"%s = {SLICE} dynamic-slice(%x, %i)",
        f"ROOT %r = {SLICE} tanh(%s)"]  # fmt: skip
ENTRY = ["%key = u32[2] parameter(0)", f"%noise = {SHAPE} fusion(%key), kind=kLoop, calls=%made",
         f"%while = (s32[], {SHAPE}) while(%init), condition=%cond, body=%body"]  # fmt: skip
BODY = [f"%carried = (s32[], {SHAPE}) parameter(0)", f"%x.1 = {SHAPE} get-tuple-element(%carried), index=1",
        f"%step = {SLICE} fusion(%x.1, %i.1), kind=kLoop, calls=%read"]  # fmt: skip


def computation(name: str, lines: list[str]) -> str:
    return "\n".join([f"{name} (p: s32[]) -> s32[] {{", *(f"  {line}" for line in lines), "}"])


def hlo(made: list[str] = MADE, read: list[str] = READ, entry: list[str] = ENTRY, *more: str) -> str:
    parts = [("%made", made), ("%read", read), ("%body", BODY), ("ENTRY %main", entry)]
    return attacks.hlo(*more, *(computation(name, lines) for name, lines in parts))


NOISE = Buffer(
    "noise", SHAPE, (1, 7), f"{RANDOM}/mul", "fusion(%key), kind=kLoop, calls=%made",
    uses="  step, operand 0\n  while, operand 0 {1}",
)  # fmt: skip
SLICED = Buffer("step", SLICE, (3, 5), f"{STEP}/tanh", "fusion(%x.1, %i.1), kind=kLoop, calls=%read")
WHILE = loop("while{0}", 8, live=(7, 9))
SMALL = Buffer("add", "f32[16]")
ARGUMENT = argument("key", KEY, 0)._replace(name="key")
SIZE = NOISE.size


def slices(make: Make, text: str | None = None, platform: str = "cpu", **changes: Any) -> list[Row]:
    """Return the advice for such a program, with changes of its buffers by name."""
    buffers = [b._replace(**changes.get(b.name.partition("{")[0], {})) for b in (ARGUMENT, NOISE, SLICED, WHILE, SMALL)]
    return advice(program(make, buffers, platform, hlo=hlo() if text is None else text), "slice")


def test_noise_for_all_steps(make: Make) -> None:
    (row,) = slices(make)
    assert row["action"] == (
        f"Before a loop of 8 iterations, the program computes {SHAPE}, which the loop reads slice by slice. Compute "
        "each slice in the body of the loop: pass keys instead of random numbers, from jax.random.split(key, 8), or "
        "call jax.random.fold_in(key, i). The numbers will be others."
    )
    assert (row["lower"], row["upper"]) == (int(0.75 * (SIZE - SIZE // 8)), int(1.1 * SIZE) + WHILE.size)
    assert (row["n_buffers"], row["shape"], row["confidence"], row["argument"]) == (1, SHAPE, "likely", None)


def test_on_a_tpu_the_program_is_scheduled_anew(make: Make) -> None:
    (row,) = slices(make, platform="tpu")
    peak = SIZE + SLICED.size + SMALL.size
    assert row["lower"] == int(0.75 * (SIZE - SIZE // 8)) - int(0.05 * peak)


def test_what_is_not_random(make: Make) -> None:
    (row,) = slices(make, hlo([line.replace(f"{RANDOM}/xor", "jit(f)/cos") for line in MADE]))
    assert row["action"].endswith("Compute each slice in the body of the loop.")


def with_opcode(text: str) -> list[str]:
    return [*MADE[:2], f"ROOT %m = {SHAPE} {text}"]


@pytest.mark.parametrize(
    ("made", "n"),
    [
        (with_opcode("gather(%b, %k)"), 1),
        (with_opcode('custom-call(%b), metadata={op_name="jit(f)/gather"}'), 1),
        (with_opcode("custom-call(%b)"), 0),
        (with_opcode("dot(%b, %b)"), 0),
        (with_opcode("sort(%b)"), 0),
        (with_opcode("reduce-window(%b)"), 0),
        (with_opcode("scatter(%b)"), 0),
        (with_opcode("pad(%b)"), 0),  # associative scans pad
        ([MADE[0], f"ROOT %m = {SHAPE} transpose(%k)"], 0),  # moves only
        ([MADE[0], f"ROOT %m = {SHAPE} convert(%k)"], 0),  # XLA converts before the loop
        ([f"ROOT %m = {SHAPE} iota()"], 1),
    ],
)
def test_what_can_be_computed_by_slices(made: list[str], n: int, make: Make) -> None:
    assert len(slices(make, hlo(made))) == n


@pytest.mark.parametrize(
    ("read", "n"),
    [
        ([*READ[:2], f"%c = {SHAPE} bitcast(%x)", f"ROOT %s = {SLICE} dynamic-slice(%c, %i)"], 1),
        ([*READ[:3], f"ROOT %r = {SLICE} add(%s, %x)"], 0),  # all of it is read, too
        ([*READ[:2], f"ROOT %s = {SLICE} dynamic-slice(%i, %x)"], 0),  # an index
        ([*READ[:2], f"ROOT %r = {SHAPE} copy(%x)"], 0),  # nothing slices the copy
        ([*READ[:2], f"%c = {SHAPE} fusion(%x), calls=%copied", f"ROOT %s = {SLICE} dynamic-slice(%c, %i)"], 1),
        ([*READ[:2], f"%c = {SHAPE} fusion(%x), calls=%copied", f"ROOT %s = {SLICE} tanh(%c)"], 0),
        ([READ[0], f"%y = {SHAPE} parameter(0)", *READ[1:]], 0),  # damaged
        ([*READ[:2], f"ROOT %c = {SHAPE} fusion(%x), calls=%gone"], 0),
    ],
)
def test_what_reads_slices(read: list[str], n: int, make: Make) -> None:
    copied = computation("%copied", [f"%x = {SHAPE} parameter(0)", f"ROOT %c = {SHAPE} copy(%x)"])
    text = hlo(MADE, read, ENTRY, copied)
    assert len(slices(make, text)) == n
    dump = program(make, [ARGUMENT, NOISE._replace(positions="  noise\n  while {1}"), SLICED, WHILE, SMALL], hlo=text)
    assert xlamem.buffer(dump, "noise").value["iterations"] == (8 if n else None)


@pytest.mark.parametrize(
    ("changes", "n"),
    [
        ({"noise": {"uses": "  while, operand 0 {1}"}}, 0),  # nothing slices it
        ({"noise": {"uses": "  step, operand 0"}}, 0),  # no loop reads it
        ({"noise": {"uses": NOISE.uses + "\n  add, operand 0"}}, 0),  # something else reads all of it
        ({"noise": {"uses": NOISE.uses + "\n  gone, operand 0"}}, 0),
        ({"noise": {"uses": NOISE.uses + "\n  tuple, operand 0"}}, 0),  # not in the HLO text
        ({"noise": {"shape": "f32[16,32,64]"}}, 1),  # unrolled
        ({"noise": {"shape": "f32[9,64,64]"}}, 1),  # an iteration was peeled off
        ({"noise": {"shape": "f32[12,64,64]"}}, 0),
        ({"while": loop("while{0}", 1)._asdict()}, 0),
        ({"while": {"op_name": "jit(f)/scatter"}}, 0),  # of XLA
        ({"noise": {"op_name": "jit(f)/transpose(jvp())/mul"}}, 0),  # a gradient
        ({"noise": {"instruction": "while(%x)"}}, 0),
    ],
)
def test_what_a_loop_reads(changes: dict[str, Any], n: int, make: Make) -> None:
    assert len(slices(make, **changes)) == n


def test_without_the_hlo_text(make: Make) -> None:
    buffers = [ARGUMENT, NOISE._replace(positions="  noise\n  while {1}"), SLICED, WHILE, SMALL]
    dump = program(make, buffers)
    assert advice(dump, "slice") == []
    assert xlamem.buffer(dump, "noise").value["iterations"] is None


@pytest.mark.parametrize(("source", "n"), [(KEY, 1), ("f32[2]", 0), ("f32[]", 1)])
@pytest.mark.parametrize("phase", ["forward", "read by the backward pass"])
def test_training(phase: str, source: str, n: int, make: Make) -> None:
    """What may have gradients, which the loop would add up, is left out. The backward pass would keep each slice."""
    is_forward = phase == "forward"
    changes = {"noise": "jit(f)/jvp()/mul"} if is_forward else {"while": "jit(f)/transpose(jvp())/while"}
    rows = slices(make, key={"shape": source}, **{name: {"op_name": text} for name, text in changes.items()})
    assert len(rows) == n
    assert all(("jax.checkpoint" in row["action"]) != is_forward for row in rows)


def test_what_an_array_is_computed_from_has_to_stay(make: Make) -> None:
    """Here, the result of an earlier loop would be needed as long as the array is now."""
    entry = [f"%key = {SHAPE} custom-call()", *ENTRY[1:]]
    source: dict[str, Any] = {"shape": "f32[4,64,64]", "live": (0, 0), "allocation": "", "instruction": "custom-call()"}
    (row,) = slices(make, hlo(entry=entry), key=source)
    kept = 4 * 64 * 64 * 4
    assert row["lower"] == int(0.75 * (SIZE - kept - SIZE // 8))
    assert slices(make, hlo(entry=entry), key=source | {"shape": SHAPE}) == []


def test_two_loops_that_read_an_array(make: Make) -> None:
    """Of one, an iteration was peeled off."""
    again = loop("again{0}", 7, live=(8, 9))
    entry = [*ENTRY, f"%again = (s32[], {SHAPE}) while(%init), condition=%cond, body=%body"]
    noise = NOISE._replace(uses=f"{NOISE.uses}\n  again, operand 0 {{1}}")
    (row,) = advice(program(make, [ARGUMENT, noise, SLICED, WHILE, again, SMALL], hlo=hlo(entry=entry)), "slice")
    assert row["action"].startswith("Before a loop of 8 iterations")
    assert row["lower"] == int(0.75 * (SIZE - SIZE // 8))


def test_what_loops_need_instead_of_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice, and what it is computed from unless that is live or not needed either; also at the last step."""
    monkeypatch.setattr(loop_inputs, "trip_counts", lambda p: np.array([9, 10]))
    start, end = np.array([4, 2, 0, 0]), np.array([6, 4, 4, 9])
    w: Any = SimpleNamespace(
        start=start, end=end, none=np.zeros(8, int), in_arena=np.array([1, 1, 1, 0], bool), only=lambda _: np.full(8, 3)
    )
    a: Any = SimpleNamespace(w=w, p=SimpleNamespace(extent=np.array([100, 7, 9, 11])))
    inputs = [loop_inputs._Input(0, np.array([0, 1]), np.array([0]), np.array([1, 2, 3]))]
    change, best = loop_inputs._without(a, inputs, np.array([1, 0, 1, 0], bool))
    assert (change.levels + 3).tolist() == [0, 0, 0, 0, 10, 17, 17, 0]
    assert best.levels.tolist() == [-3] * 8


@pytest.mark.parametrize(
    ("uses", "n_buffers"), [("  noise, operand 0", 2), ("  noise, operand 0\n  add, operand 0", 1)]
)
def test_what_only_the_array_is_computed_from(uses: str, n_buffers: int, make: Make) -> None:
    bits = Buffer("key", SHAPE, (0, 4), instruction="multiply(%seed)", uses=uses)
    entry = ["%seed = u32[2] parameter(0)", f"%key = {SHAPE} multiply(%seed)", *ENTRY[1:]]
    seed = argument("seed", KEY, 1)._replace(name="seed")
    buffers = [seed, bits, NOISE, SLICED, WHILE, SMALL]
    (row,) = advice(program(make, buffers, hlo=hlo(entry=entry)), "slice")
    assert row["n_buffers"] == n_buffers


@pytest.mark.parametrize(
    ("name", "limit", "n"),
    [("MAX_DISTANCE", 4, 0), ("MAX_DISTANCE", 5, 1), ("MAX_INPUTS", 0, 0), ("MAX_PRODUCERS", 3, 0),
     ("MAX_PRODUCERS", 4, 1)],
)  # fmt: skip
def test_how_far_an_array_is_followed(
    name: str, limit: int, n: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_inputs, name, limit)
    assert len(slices(make)) == n


def test_how_deep_a_slice_is_nested(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_reads, "MAX_NESTING", 1)
    assert len(slices(make)) == 1
    monkeypatch.setattr(slice_reads, "MAX_NESTING", 0)
    assert slices(make) == []


def test_small_buffers_are_not_looked_up(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_names, "MIN_READ", 1.0)
    dump = program(make, [ARGUMENT, NOISE._replace(positions="  noise\n  while {1}"), SLICED, WHILE, SMALL], hlo=hlo())
    assert xlamem.buffer(dump, "noise").value["iterations"] is None
