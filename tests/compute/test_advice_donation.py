"""Advice on donations and collectives, on small programs like ones that were recompiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from advice_programs import KIB, Buffer, Make, Row, advice, argument, loop, output, program
from attacks import value

import xlamem
from xlamem import compute
from xlamem.compute.advice import collectives
from xlamem.compute.advice.argument_types import narrower_arguments
from xlamem.compute.advice.what_if import WhatIf
from xlamem.compute.program import program as program_of

# -- donation ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("platform", "upper"), [("cpu", 128 * KIB), ("gpu", 67 * KIB), ("tpu", 81 * KIB)])
def test_temporaries_in_outputs_may_fit_elsewhere(platform: str, upper: int, make: Make) -> None:
    """XLA puts half as many bytes into the output as it has. On a CPU, it often finds other free space for them."""
    y = output("y", "f32[128,256]", more=value(9, "t", 64 * KIB, 0, "f32[128,128]"))
    buffers = [
        argument("x", "f32[128,256]", 0, uses="  s.1, operand 0"),
        y,
        Buffer("h", "f32[128,256]", (0, 7), "jit(f)/tanh"),
    ]
    dump = program(make, buffers, platform, ranges=["t{}:2-5"])
    (row,) = advice(dump, "donate")
    assert (row["confidence"], row["upper"]) == ("likely", pytest.approx(upper, rel=0.02))


def test_temporaries_that_nearly_fill_an_output(make: Make) -> None:
    """Little is saved for certain, and a copy of the argument may take that. There may be free space elsewhere."""
    y = output("y", "f32[128,256]", more=value(9, "t", 112 * KIB, 0, "f32[112,256]"))
    x = argument("x", "f32[128,256]", 0, uses="  s.1, operand 0")
    dump = program(make, [x, y, Buffer("h", "f32[128,256]", (0, 7), "jit(f)/tanh")], ranges=["t{}:2-5"])
    (row,) = advice(dump, "donate")
    assert (row["lower"], row["upper"], row["confidence"]) == (0, 128 * KIB, "try")


@pytest.mark.parametrize(("is_lent", "room"), [(False, 0), (True, 64 * KIB)])
def test_room_in_outputs(is_lent: bool, room: int, make: Make) -> None:
    """Where the compiler puts no temporaries into an output, smaller ones do not get there either."""
    lent = value(9, "t", 64 * KIB, 0, "f32[128,128]") if is_lent else ""
    buffers = [output("y", "f32[128,256]", more=lent), Buffer("h", "f32[128,256]", (0, 7), "jit(f)/tanh")]
    w = WhatIf(program_of(program(make, buffers, ranges=["t{}:0-5"] if is_lent else [])))
    assert [w.room_in_outputs(size) for size in (KIB, 128 * KIB, 128 * KIB + 1)] == [room, room, 0]


@pytest.mark.parametrize("copies", [0, 1, 3])
@pytest.mark.parametrize("is_update", [False, True])
def test_gradients_may_not_replace_weights(is_update: bool, copies: int, make: Make) -> None:
    """An update follows, for which the weights must be there. One that is part of the program reads them as it writes.

    Its name may be that of the gradient with which it is fused. On a TPU, it may be written to VMEM and copied.
    """
    shape, named = "f32[128,256]", {"op_name": "jit(f)/transpose(jvp())/dot_general"}
    written = [output("y", shape, **named)]
    if copies:
        names = ["y", *(f"c.{i}" for i in range(copies))]
        instructions = ["fusion(%p.0)", *(f"copy(%{name})" for name in names[:-1])]
        written = [
            Buffer(name, shape, (4 + i, 5 + i), instruction=instructions[i], uses=f"  {names[i + 1]}, operand 0")
            for i, name in enumerate(names[:-1])
        ]
        written[0] = written[0]._replace(**named)
        written.append(output(names[-1], shape, instruction=instructions[-1]))
    dump = program(
        make,
        [
            argument("w", "f32[128,256]", 0, uses="  s.1, operand 0" + "\n  y, operand 1" * is_update),
            *written,
            Buffer("h", "f32[128,128]", (0, 7), "jit(f)/jvp()/tanh"),
        ],
    )
    (row,) = advice(dump, "donate")
    if is_update:
        assert row["confidence"] == "likely"
    else:
        assert (row["lower"], row["confidence"]) == (0, "try")
        assert "They are gradients: donate it only if nothing reads it afterwards." in row["action"]


@pytest.mark.parametrize("element", [1, 2])
def test_a_loop_updates_what_it_returns_in_the_same_element(element: int, make: Make) -> None:
    """A backward loop reads weights as element 2 of its tuple. It is an update if their gradients are that element."""
    name = "jit(f)/transpose(jvp())/while"
    loop_ = loop(f"while.1{{{element}}}", 4, name)._replace(shape="f32[128,256]", live=(9, 10))
    dump = program(
        make,
        [
            argument("w", "f32[128,256]", 0, uses="  while.1, operand 0 {2}"),
            loop_._replace(allocation="output shape is |f32[128,256]|, maybe-live-out:"),
            Buffer("h", "f32[128,128]", (0, 7), "jit(f)/jvp()/tanh"),
        ],
    )
    (row,) = advice(dump, "donate")
    assert ("They are gradients" in row["action"]) == (element == 1)


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize(("rows", "confidence"), [(1 << 16, "exact"), (1 << 10, "likely")])
def test_slots_of_asynchronous_copies(platform: str, rows: int, confidence: str, make: Make) -> None:
    """Donating 8 MiB on a TPU saved 240 KiB less than that: the donated program has 15 slots more."""
    shape = f"f32[{rows},128]"
    y = output("y", shape, op_name="jit(f)/add", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    (row,) = advice(program(make, [argument("x", shape, 0, uses="  s.1, operand 0"), y], platform), "donate")
    assert row["confidence"] == (confidence if platform == "tpu" else "exact")


@pytest.mark.parametrize(("reader", "is_exact"), [("s.1", True), ("s.7", False)])
def test_one_of_two_arrays_is_read_after_its_output_is_written(reader: str, is_exact: bool, make: Make) -> None:
    """Then what both save is not certain."""
    shape = "f32[65536,128]"
    buffers = []
    for i, (key, user) in enumerate((("a", "s.1"), ("b", reader))):
        y = output(f"y.{i}", shape, op_name="jit(f)/add", instruction=f"fusion(%p.{i}), kind=kLoop, calls=%f")
        buffers += [argument(f"x['{key}']", shape, i, uses=f"  {user}, operand 0"), y._replace(live=(5, 10))]
    (row,) = advice(program(make, buffers, "gpu"), "donate")
    assert (row["argument"], row["confidence"] == "exact") == ("x", is_exact)


@pytest.mark.parametrize(("platform", "upper"), [("gpu", 1.09), ("tpu", 1.64)])
def test_temporaries_may_shrink_with_donation(platform: str, upper: float, make: Make) -> None:
    """A TPU program that needed 140 MiB of temporaries needed 128 MiB when 24 MiB were donated."""
    shape = "f32[1024,128]"
    y = output("y", shape, op_name="jit(f)/add", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    h = Buffer("h", "f32[1024,1024]", (0, 7), "jit(f)/tanh")
    (row,) = advice(program(make, [argument("x", shape, 0, uses="  s.1, operand 0"), y, h], platform), "donate")
    assert row["upper"] == pytest.approx(y.size * upper, rel=0.01)
    # Another one needed 16 MiB more of 194 MiB, and saved half of the 32 MiB.
    assert (row["lower"] < 0.5 * y.size) == (platform == "tpu")


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
@pytest.mark.parametrize("reader", ["s.8", "s.9", "s.3", "s.4"])
def test_what_reads_an_argument_besides_its_update(reader: str, platform: str, make: Make) -> None:
    """Segments of an array: XLA copied it for them, since its update (s.8) does not depend on them.

    With two arrays of one size, one is saved: there is room for the other copy where the first array was.
    """
    shape = "f32[128,256]"
    fused = {"op_name": "jit(f)/add", "instruction": "fusion(%p.0), kind=kLoop, calls=%f", "uses": "  s.9, operand 0"}
    y, z = (output(name, shape, **fused)._replace(live=(start, 10)) for name, start in (("s.8", 8), ("s.7", 7)))
    segments = Buffer("s.2", "f32[8]", (2, 9), "jit(f)/scatter", "scatter(%p.0)", uses=f"  {reader}, operand 0")
    last = Buffer("s.3", "f32[8]", (3, 9), "jit(f)/neg", "negate(%s.2)", uses="  s.9, operand 1")
    root = Buffer("s.9", "f32[8]", (9, 10), instruction="tuple(%s.8)")

    def rows(*others: Buffer) -> list[Row]:
        first = argument("x", shape, 0, uses="  s.8, operand 0\n  s.2, operand 0")
        return advice(program(make, [first, y, segments, last, root, *others], platform), "donate")

    (row,) = rows()
    is_apart = reader in ("s.3", "s.9") and platform != "tpu"
    assert (row["lower"] == 0, row["confidence"] == "try") == (is_apart, is_apart)
    (row,) = rows(argument("x", shape, 1, uses="  s.7, operand 0"), z)
    assert 0 < row["lower"] < (y.size if is_apart else 2 * y.size)


@pytest.mark.parametrize(("rows", "end", "saved"), [(128, 9, 128), (64, 9, 64), (128, 8, 0)])
def test_a_copy_that_becomes_the_output(rows: int, end: int, saved: int, make: Make) -> None:
    """The output is written over a copy of the argument, which only an argument that is not donated needs.

    A smaller one, or one that is not needed any more then, is a temporary, and needs another place.
    """
    copy = "copy.1{0}", f"f32[{rows},256]"
    y = output("y", "f32[128,256]", more=value(9, copy[0], rows * KIB, 0, copy[1]))
    buffers = [
        argument("x", "f32[128,256]", 0, uses="  s.1, operand 0"), y, Buffer("h", "f32[512,256]", (0, 8)),
        Buffer("copy.1{1}", "f32[1]", instruction="copy(%p.0)"),
    ]  # fmt: skip
    found = advice(program(make, buffers, "gpu", ranges=[f"copy.1{{0}}:3-{end}"]), "donate")
    assert [row["upper"] for row in found] == [pytest.approx(1.05 * saved * KIB, rel=0.05)] * (saved > 0)


WHILE = "while(%init), condition=%cond, body=%body"


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize(("rows", "saved"), [(128, 128), (64, 64)])
def test_a_loop_that_may_write_over_the_argument(rows: int, saved: int, is_copied: bool, make: Make) -> None:
    """What fills the memory of its result is needed no more. Anything smaller there is another temporary.

    The output may be a copy of the result in another layout, as of caches that a loop updates.
    """
    inside = value(9, "t", rows * KIB, 0, f"f32[{rows},256]")
    loop_ = Buffer("w", "f32[8]", (8, 9), instruction=WHILE, uses="  y, operand 0")
    result = output("y", "f32[128,256]", instruction="copy(%w)" if is_copied else WHILE, more=inside)
    buffers = [argument("x", "f32[128,256]", 0, uses="  s.1, operand 0"), result, Buffer("h", "f32[512,256]", (0, 8))]
    buffers += [loop_] if is_copied else []
    (row,) = advice(program(make, buffers, "gpu", ranges=["t{}:3-8"]), "donate")
    assert row["upper"] == pytest.approx(1.05 * saved * KIB, rel=0.05)


@pytest.mark.parametrize(("read", "saved"), [("a", 32 * KIB), ("b", 160 * KIB)])
def test_the_largest_array_that_is_read_besides_its_update(read: str, saved: int, make: Make) -> None:
    """A copy of a smaller one, x['b'], may lie where the largest was."""
    fused = {"op_name": "jit(f)/add", "instruction": "fusion(%p.0), kind=kLoop, calls=%f", "uses": "  s.9, operand 0"}
    buffers = []
    for i, (key, rows, update) in enumerate([("a", 128, 8), ("b", 32, 7)]):
        users = [f"s.{update}", "s.2"] if key == read else [f"s.{update}"]
        uses = "\n".join(f"  {user}, operand 0" for user in users)
        y = output(f"s.{update}", f"f32[{rows},256]", **fused)._replace(live=(update, 10))
        buffers += [argument(f"x['{key}']", f"f32[{rows},256]", i, uses=uses), y]
    segments = Buffer("s.2", "f32[8]", (2, 9), "jit(f)/scatter", "scatter(%p.0)", uses="  s.9, operand 1")
    root = Buffer("s.9", "(f32[128,256])", (9, 10), instruction="tuple(%s.8)")
    (row,) = advice(program(make, [*buffers, segments, root], "gpu"), "donate")
    assert row["lower"] == pytest.approx(0.7 * saved, rel=0.05)


@pytest.mark.parametrize("shape", ["f32[64,32]", "f32[32,64]", "s32[64,32]"])
def test_an_argument_that_an_output_does_not_replace(shape: str, make: Make) -> None:
    """It has as many bytes by chance, as a weight and the result of an inference may have."""
    w = argument("w", "f32[64,32]", 0, uses="  y, operand 0")
    y = output("y", shape, op_name="jit(f)/add", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    (row,) = advice(program(make, [w, y]), "donate")
    assert ("donate it only if nothing reads it" in row["action"]) == (shape != "f32[64,32]")


@pytest.mark.parametrize(("rows", "is_noted"), [(4, True), (5, False)])
def test_outputs_that_replace_half_of_an_argument(rows: int, is_noted: bool, make: Make) -> None:
    """Those of as many bytes with another shape are the others."""
    a, b = f"f32[{rows},64]", f"f32[{10 - rows},64]"
    turned = f"f32[64,{10 - rows}]"
    buffers = [
        argument("x['a']", a, 0, uses="  y.a, operand 0"), argument("x['b']", b, 1, uses="  y.b, operand 0"),
        output("y.a", a, op_name="jit(f)/add"), output("y.b", turned, op_name="jit(f)/add"),
    ]  # fmt: skip
    (row,) = advice(program(make, buffers), "donate")
    assert row["argument"] == "x"
    assert ("The outputs mostly have other shapes" in row["action"]) == is_noted


@pytest.mark.parametrize(
    ("donated", "how"),
    [
        ([], "Donate `w`: jax.jit(..., donate_argnames='w'). 1 of"),
        ([f"p[{i}]" for i in range(9)], "Donate `w`, too: jax.jit(..., donate_argnames=('p', 'w')), without donate_"),
        (["w['a']"], "Donate `w`: jax.jit(..., donate_argnames='w'). 1 of"),
        ([""], "Donate `w`: jax.jit(..., donate_argnames='w'). Name those that are donated already in the same"),
        ([*"abcdefgh"], f"Donate `w`, too: jax.jit(..., donate_argnames=({', '.join(map(repr, 'abcdefgh'))}, 'w')), w"),
        ([f"a{i}" for i in range(9)], "Donate `w`: jax.jit(..., donate_argnames='w'). Name those that are"),
    ],
)
def test_arguments_that_are_donated_already(donated: list[str], how: str, make: Make) -> None:
    """Besides `donate_argnums=0`, `donate_argnames='w'` donated nothing of a call that passes it by position."""
    more = [argument(name, "f32[8]", i) for i, name in enumerate(donated, 1)]
    more = [b._replace(allocation=b.allocation.replace(" at Shape", ", maybe-live-out at Shape")) for b in more]
    weights = argument("w", "f32[64,32]", 0, uses="  w.new, operand 0")
    new = output("w.new", "f32[64,32]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    (row,) = advice(program(make, [weights, *more, new]), "donate")
    assert row["action"].startswith(how)


def test_arguments_and_outputs_without_elements(make: Make) -> None:
    """Nothing is saved where nothing must fit."""
    buffers = [argument("x", "f32[0]", 0, uses="  s.1, operand 0"), output("y", "f32[0]"), Buffer("h", "f32[0]")]
    dump = program(make, buffers, "gpu")
    assert compute.device_total(dump) == 0
    assert xlamem.advise(dump).num_rows == 0


def test_gradients_of_one_argument(make: Make) -> None:
    """That of another argument is a constant, which is of no phase."""
    dump = program(
        make,
        [
            argument("gate", "f32[128,64]", 0, uses="  s.1, operand 0"),
            argument("w", "f32[128,256]", 1, uses="  s.1, operand 1"),
            output("zeros", "f32[128,64]", instruction="broadcast(%x)"),
            output("y", "f32[128,256]", op_name="jit(f)/transpose(jvp())/dot_general"),
        ],
    )
    found = {row["argument"]: "They are gradients" in row["action"] for row in advice(dump, "donate")}
    assert found == {"gate": False, "w": True}


def test_an_argument_of_which_only_a_part_is_a_gradient(make: Make) -> None:
    """The other array is updated, so that donating the argument is what the program expects."""
    dump = program(
        make,
        [
            argument("p['a']", "f32[128,256]", 0, uses="  s.1, operand 0"),
            argument("p['b']", "f32[128,64]", 1, uses="  s.1, operand 1"),
            output("y", "f32[128,256]", op_name="jit(f)/transpose(jvp())/dot_general"),
            output("z", "f32[128,64]", op_name="jit(f)/sub"),
        ],
    )
    (row,) = advice(dump, "donate")
    assert (row["argument"], row["confidence"]) == ("p", "exact")
    assert "They are gradients" not in row["action"]


@pytest.mark.parametrize("reader", ["y", "s.1"])
def test_an_update_of_an_argument_with_an_unknown_instruction(reader: str, make: Make) -> None:
    """The allocation of what it reads tells that it is an update."""
    gradient = {"op_name": "jit(f)/transpose(jvp())/dot_general", "instruction": "fusion(%p.0)"}
    weights = argument("w", "f32[128,256]", 0, uses=f"  {reader}, operand 0")._replace(instruction="custom-call()")
    (row,) = advice(program(make, [weights, output("y", "f32[128,256]", **gradient)]), "donate")
    assert ("They are gradients" in row["action"]) == (reader != "y")


@pytest.mark.parametrize("opcode", ["custom-call", "fusion"])
def test_a_kernel_that_reads_what_it_computes_the_gradient_of(opcode: str, make: Make) -> None:
    """The backward pass of an attention is a custom call, which reads the queries; an update may be a fusion."""
    name = "jit(f)/transpose(jvp(attention))/pallas_call"
    call = {"custom-call": 'custom-call(%p.0), custom_call_target="k"', "fusion": "fusion(%p.0), kind=kLoop, calls=%f"}
    q = argument("q", "f32[64,32]", 0, uses="  dq, operand 0")
    (row,) = advice(program(make, [q, output("dq", "f32[64,32]", op_name=name, instruction=call[opcode])]), "donate")
    assert ("They are gradients" in row["action"]) == (opcode == "custom-call")


@pytest.mark.parametrize("is_read", [True, False])
def test_copies_and_gradients_of_a_narrower_argument(is_read: bool, make: Make) -> None:
    """Parameters in bf16 need no copy in bf16, and have such gradients: they saved 1565 MiB, of at most 571."""
    user = Buffer("convert.1", "bf16[64,32]", (1, 8), instruction="convert(%p.0)") if is_read else Buffer("c", "f32[]")
    dump = program(
        make,
        [
            argument("w", "f32[64,32]", 0, uses=f"  {user.name}, operand 0\n  w.copy, operand 0\n  w.new, operand 0"),
            argument("mu", "f32[64,32]", 1, uses="  mu.copy, operand 0"),
            user,
            Buffer("w.copy", "f32[64,32]", (1, 8), instruction="copy(%p.0)"),
            Buffer("mu.copy", "f32[64,32]", (1, 8), instruction="copy(%p.1)"),
            Buffer("g", "f32[64,32]", (2, 8), "jit(f)/transpose(jvp())/dot_general"),
            Buffer("h", "f32[64,48]", (2, 8), "jit(f)/transpose(jvp())/mul"),  # of other dimensions
            output("w.new", "f32[64,32]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f"),
        ],
        "tpu",
    )
    (row,) = (r for r in advice(dump, "dtype") if r["argument"] == "w")
    size = 64 * 32 * 4
    least = 2 * size // 2 + (size + 2 * size // 2) * is_read
    assert least <= row["upper"] < least + size // 4


@pytest.mark.parametrize(("temporary", "margin"), [("f32[16]", 64), ("f32[1024]", 409), ("f32[8192]", 655)])
def test_temporaries_may_fit_beside_narrower_arguments(temporary: str, margin: int, make: Make) -> None:
    """20 arrays in bf16 saved 2 % more than half of what they and the outputs take: hardly a temporary was left.

    It is 5 % at most, or else 2 % of the temporaries.
    """
    update = "fusion(%p.0), kind=kLoop, calls=%f"
    buffers = [argument("w", "f32[64,32]", 0), output("w.new", "f32[64,32]", instruction=update)]
    dump = program(make, [*buffers, Buffer("t", temporary)], "tpu")
    (found,) = narrower_arguments(WhatIf(program_of(dump)))  # not all of them save enough for a row
    assert found.argument == "w"
    assert found.upper - 64 * 32 * 4 == margin


def test_an_argument_that_only_its_update_reads(make: Make) -> None:
    """On CPU, others are widened again; what reads other arguments does not matter."""
    dump = program(
        make,
        [
            argument("w", "f32[64,32]", 0, uses="  w.new, operand 0"),
            argument("x", "f32[64,48]", 1, uses="  d, operand 0"),
            Buffer("d", "f32[64]", instruction="dot(%p.1)"),
            output("w.new", "f32[64,32]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f"),
        ],
    )
    found = {row["argument"]: row["confidence"] for row in advice(dump, "dtype") if row["argument"]}
    assert found == {"w": "likely", "x": "try"}


@pytest.mark.parametrize(("reader", "confidence"), [("tuple", "likely"), ("bitcast", "likely"), ("negate", "try")])
def test_an_argument_that_is_also_passed_on(reader: str, confidence: str, make: Make) -> None:
    """A tuple and a bitcast convert nothing."""
    dump = program(
        make,
        [
            argument("w", "f32[64,32]", 0, uses="  w.new, operand 0\n  other, operand 0"),
            Buffer("other", "f32[]", instruction=f"{reader}(%p.0)"),
            output("w.new", "f32[64,32]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f"),
        ],
    )
    (row,) = (r for r in advice(dump, "dtype") if r["argument"] == "w")
    assert row["confidence"] == confidence


# -- collectives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "is_alike"),
    [("f32[64,2,512]", True), ("f64[64,1024]", True), ("bf16[64,1024]", False), ("f32[9]", False)],
)
@pytest.mark.parametrize("opcode", ["all-gather", "all-reduce"])
def test_what_is_sharded_with_a_gathered_result(opcode: str, shape: str, *, is_alike: bool, make: Make) -> None:
    """Without the constraint that gathered activations of a layer, nothing as large as these was left."""
    gathered = Buffer("g", "f32[64,1024]", (0, 7), "jit(f)/mul", f"{opcode}(%x)")
    other = Buffer("h", shape, (0, 7), "jit(f)/tanh")
    dump = program(make, [argument("x", "f32[16,8]", 0), gathered, other])
    (row,) = advice(dump, "collective")
    assert row["upper"] == gathered.size + (other.size if is_alike and opcode == "all-gather" else 0)


@pytest.mark.parametrize("opcode", ["all-gather", "all-gather-start"])
def test_asynchronous_collectives_are_advised_like_others(opcode: str, make: Make) -> None:
    gathered = Buffer("g", "f32[64,1024]", (0, 7), "jit(f)/mul", f"{opcode}(%x)")
    (row,) = advice(program(make, [argument("x", "f32[16,8]", 0), gathered]), "collective")
    assert row["action"].startswith("The results of all-gather take memory at the peak. Gather the weights of one")


def test_what_is_sharded_with_the_largest_of_several_gathered_results(make: Make) -> None:
    results = [Buffer(f"g.{n}", f"f32[64,{n}]", (0, 7), "jit(f)/mul", "all-gather(%x)") for n in (16, 1024, 32)]
    others = [Buffer(f"h.{n}", f"f32[2,32,{n}]", (0, 7), "jit(f)/tanh") for n in (16, 1024)]
    (row,) = advice(program(make, [*results, *others]), "collective")
    assert row["upper"] == sum(b.size for b in results) + others[1].size


@pytest.mark.parametrize(
    ("shape", "is_alike"),
    [
        ("f32[48,8]", True), ("f32[3,48,4]", True), ("f32[3,4,48]", False), ("f32[24,8]", False),
        ("f32[48,32]", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_donated", [False, True])
def test_what_has_the_samples_of_an_activation(shape: str, *, is_alike: bool, is_donated: bool, make: Make) -> None:
    """Where activations were constrained to be sharded along the batch, all that has the batch was sharded."""
    reduced = Buffer("r", "f32[48,10]", (0, 7), "jit(f)/jvp()/dot_general", "all-reduce(%x)")
    other = Buffer("h", shape, (0, 7), "jit(f)/jvp()/tanh")
    weights = argument("w", "f32[48,32]", 1)  # 48 layers
    if is_donated:
        result = "output shape is |f32[48,32]|, maybe-live-out:"
        weights = weights._replace(allocation=weights.allocation.replace("{}:", "{}, " + result))
    (row,) = advice(program(make, [argument("x", "f32[16,8]", 0), weights, reduced, other]), "collective")
    assert row["upper"] == reduced.size + is_alike * other.size


@pytest.mark.parametrize(("shape", "is_alike"), [("f32[64,64]", True), ("f32[32,64]", False)])
def test_outputs_with_the_dimensions_of_a_sum(shape: str, *, is_alike: bool, make: Make) -> None:
    """Sharded gradients left outputs sharded like the arguments, whose memory they could take then."""
    reduced = Buffer("r", "f32[64,64]", (0, 7), "jit(f)/transpose(jvp())/dot_general", "all-reduce(%x)")
    y = output("y", shape)
    (row,) = advice(program(make, [argument("w", "f32[64,64]", 0), reduced, y]), "collective")
    assert row["upper"] == reduced.size + is_alike * y.size


@pytest.mark.parametrize(("groups", "share"), [("", 1), (", replica_groups=[2,2]<=[4]", 3 / 4)])
def test_each_device_keeps_its_part_of_the_samples(groups: str, share: float, make: Make) -> None:
    """Of the logits that four chips had whole, each still needed a fourth."""
    reduced = Buffer("r", "f32[48,10]", (0, 7), "jit(f)/jvp()/dot_general", f"all-reduce(%x){groups}")
    other = Buffer("h", "f32[48,8]", (0, 7), "jit(f)/jvp()/tanh")
    (row,) = advice(program(make, [argument("x", "f32[16,8]", 0), reduced, other]), "collective")
    assert row["upper"] == reduced.size + share * other.size


@pytest.mark.parametrize("live", [(0, 7), (8, 8)])
def test_temporaries_in_outputs_that_are_sharded(live: tuple[int, int], make: Make) -> None:
    """They need another place then: 1.7 GiB were saved instead of 4.4."""
    reduced = Buffer("r", "f32[64,64]", (0, 7), "jit(f)/transpose(jvp())/dot_general", "all-reduce(%x)")
    y, inside = output("y", "f32[64,64]"), Buffer("t", "f32[32,64]", live, "jit(f)/add", slot_of="y")
    (row,) = advice(program(make, [argument("w", "f32[64,64]", 0), reduced, y, inside]), "collective")
    assert row["upper"] == reduced.size + y.size - inside.size


@pytest.mark.parametrize("opcode", ["all-gather", "all-reduce"])
def test_what_is_gathered_outside_of_the_peak(opcode: str, make: Make) -> None:
    """Nothing is saved if it is gathered otherwise."""
    buffers = [Buffer("g", "f32[64,32]", (8, 9), "jit(f)/mul", f"{opcode}(%x)"), Buffer("h", "f32[64,64]", (0, 7))]
    assert advice(program(make, buffers), "collective") == []


@pytest.mark.parametrize(
    ("shape", "op_name", "what"),
    [
        ("f32[64,256]", "jit(f)/transpose(jvp())/dot_general", "the parameters"),
        ("f32[64,64]", "jit(f)/transpose(jvp())/dot_general", "the parameters"),
        ("f32[64,64]", "", "the parameters"),
        ("(f32[64,256], f32[8])", "jit(f)/transpose(jvp())/dot_general", "the parameters"),
        ("f32[64,64]", "jit(f)/jvp()/dot_general", "with_sharding_constraint"),
        ("f32[64,64]", "jit(f)/transpose(jvp())/checkpoint/rematted_computation/dot_general", "constraint"),
        ("f32[6,64,64]", "jit(f)/transpose(jvp())/dot_general", "with_sharding_constraint"),
        ("f32[100,64]", "jit(f)/transpose(jvp())/dot_general", "with_sharding_constraint"),
    ],
)
def test_sums_of_gradients_and_of_activations(shape: str, op_name: str, what: str, make: Make) -> None:
    """A gradient has a multiple of the dimensions of a layer of its argument, which may be sharded."""
    result = Buffer("r", shape, (0, 7), op_name, "all-reduce(%x)")
    arguments = [argument("w", "f32[4,64,64]", 0), argument("b", "f32[2]", 1)]
    (row,) = advice(program(make, [*arguments, result]), "collective")
    assert row["action"].startswith("The results of all-reduce")
    assert what in row["action"]


def gathered(shape: str, whole: str) -> list[Buffer]:
    """Return weights, the result of gathering them, and a gradient of 8 KiB."""
    weights = argument("w", whole, 0, uses="  all-gather.1, operand 0")
    return [
        weights,
        Buffer("all-gather.1", shape, (2, 8), instruction="all-gather(%p.0), dimensions={0}"),
        Buffer("g", "f32[4,16,32]", (2, 8), "jit(f)/transpose(jvp())/dot_general"),
    ]


@pytest.mark.parametrize("shape", ["f32[4,16,32]", "f32[1,4,16,32]", "f32[4,16,1,32]", "f32[4,16,32,1]"])
def test_gradients_of_gathered_weights(shape: str, make: Make) -> None:
    """Weights that stayed sharded saved more than twice what they take: their gradients were no longer gathered.

    Neither dimensions of 1 nor the element type matter.
    """
    weights, result, gradient = gathered(shape, "f32[4,4,32]")
    (row,) = advice(program(make, [weights, result, gradient._replace(shape="s8[4,16,32]")]), "collective")
    assert row["upper"] == 2 * 4 * 16 * 32 * 4
    assert row["n_buffers"] == 1


@pytest.mark.parametrize(("reader", "trips", "found"), [("while.1", 4, True), ("while.1", 5, False), ("g", 4, False)])
def test_weights_that_are_gathered_before_the_loop(reader: str, trips: int, *, found: bool, make: Make) -> None:
    """A loop over the layers is no advice then, but its line tells where to gather them."""
    metadata = ', metadata={op_name="jit(f)/while" source_file="/m/train.py" source_line=7}'
    layers = loop("while.1", trips, "")
    layers = layers._replace(instruction=layers.instruction + metadata, live=(3, 4))
    weights, result, gradient = gathered("f32[4,16,32]", "f32[4,4,32]")
    result = result._replace(uses=f"  {reader}, operand 0")
    (row,) = advice(program(make, [weights, result, layers, gradient]), "collective")
    assert ("A loop reads them slice by slice" in row["action"]) == found
    assert ("scan over layers" in row["action"]) != found
    assert (row["source_file"], row["source_line"]) == (("/m/train.py", 7) if found else (None, None))


def test_a_gathered_number_has_no_loop_over_it(make: Make) -> None:
    weights, result, gradient = gathered("f32[]", "f32[4,4,32]")
    layers = loop("while.1", -1, live=(3, 4))
    result = result._replace(uses="  while.1, operand 0")
    w = WhatIf(program_of(program(make, [weights, result, layers, gradient])))
    assert [collectives._loops_over(w, value).tolist() for value in range(len(w.p.owner))] == [[]] * len(w.p.owner)


def test_weights_of_one_layer_that_are_gathered(make: Make) -> None:
    """There is nothing to advise: a loop gathers one layer at a time already."""
    assert not advice(program(make, gathered("f32[1,16,32]", "f32[4,4,32]")), "collective")


def test_slices_of_an_argument_that_is_the_first_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "dimensions", lambda p: (np.array([0, 1, 1]), pa.array(["4,4,32", "16,32"])))
    monkeypatch.setattr(collectives, "origins", lambda p: SimpleNamespace(argument=np.array([0, 0, -1])))
    w: Any = SimpleNamespace(p=SimpleNamespace(representative=np.array([0])))
    assert collectives._are_slices(w).tolist() == [False, True, False]
