"""Advice on what loops return, on small programs like ones that were recompiled."""

from __future__ import annotations

import pytest
from advice_programs import KIB, Buffer, Make, Row, advice, loop, program

FORWARD, BACKWARD = "jit(f)/jvp()", "jit(f)/transpose(jvp())"
SHAPE = "f32[8,64,64]"
STACK = loop("while.1{1}", 8, f"{FORWARD}/while", live=(2, 4), uses="  sum.1, operand 0")._replace(shape=SHAPE)
SUM = Buffer("sum.1", "f32[8,64]", (4, 9), f"{FORWARD}/reduce_sum", "reduce(%x, %y)")
SMALL = Buffer("add.1", "f32[16]", (0, 9), f"{BACKWARD}/add_any")
GRADIENT = Buffer("broadcast.1", SHAPE, (6, 8), f"{BACKWARD}/broadcast_in_dim", "broadcast(%x)")


def least(saved: int, *live: Buffer) -> int:
    """The lower bound if so many bytes of the temporaries that are live at the peak are saved."""
    return int(0.75 * saved) - sum(b.size for b in live) // 10


def reductions(make: Make, *buffers: Buffer, platform: str = "cpu") -> list[Row]:
    return advice(program(make, [SMALL, *buffers], platform), "reduce")


def test_a_stack_that_is_summed_up(make: Make) -> None:
    """The stack, of 128 KiB, is not needed, but the sum in addition to what is left."""
    (row,) = reductions(make, STACK, SUM)
    assert row["action"].startswith("A loop stacks f32[8,64,64] over its 8 iterations, from which the program only")
    assert " computes f32[8,64]. " in row["action"]
    assert (row["n_buffers"], row["bytes"], row["shape"]) == (1, STACK.size, SHAPE)
    assert row["lower"] == least(STACK.size - SUM.size, STACK, SUM, SMALL)
    assert row["upper"] == STACK.size + SUM.size + SMALL.size  # all temporaries, which are less than 1.1 stacks
    assert row["confidence"] == "likely"


def test_its_gradient_counts(make: Make) -> None:
    """It is the only one at the peak here: the stack is not needed then any more."""
    other = Buffer("add.2", "f32[2048]", (6, 8), f"{BACKWARD}/add")
    (row,) = reductions(make, STACK, SUM, GRADIENT, other)
    assert (row["n_buffers"], row["source_line"], row["instruction"]) == (1, None, "broadcast.1")
    assert row["lower"] == least(STACK.size - SUM.size, GRADIENT, SUM, SMALL, other)
    forward = GRADIENT._replace(op_name=f"{FORWARD}/broadcast_in_dim")
    assert all(row["upper"] == 0 for row in reductions(make, STACK, SUM, forward, other))


@pytest.mark.parametrize(
    ("stack", "reader", "n"),
    [
        ({}, {}, 1),
        ({"shape": "f32[9,64,64]"}, {}, 0),  # not the number of iterations
        ({"instruction": "fusion(%x)"}, {}, 0),  # of no loop
        ({}, {"shape": "f32[8,64,16]"}, 1),
        ({}, {"shape": "f32[8,64,17]"}, 0),  # saves less than three quarters
        ({}, {"op_name": f"{BACKWARD}/mul"}, 0),  # its gradient needs the stack
        ({}, {"op_name": f"{FORWARD}/rematted_computation/sum"}, 0),
        ({}, {"instruction": "while(%x)"}, 0),
        ({}, {"instruction": "tuple(%x)"}, 0),
        ({}, {"instruction": "custom-call(%x)"}, 0),
        ({}, {"instruction": "fusion(%x)"}, 1),
        ({}, {"name": "sum.2"}, 0),  # nothing is computed from it
    ],
)
def test_what_reads_a_stack(stack: dict[str, str], reader: dict[str, str], n: int, make: Make) -> None:
    assert len(reductions(make, STACK._replace(**stack), SUM._replace(**reader))) == n


def test_copies_of_a_stack_are_followed(make: Make) -> None:
    copy = Buffer("copy.1", SHAPE, (4, 5), instruction="copy(%x)", uses="  sum.1, operand 0")
    stack = STACK._replace(uses="  copy.1, operand 0")
    (row,) = reductions(make, stack, copy, SUM._replace(live=(5, 9)))
    saved = 2 * STACK.size - 2 * SUM.size  # the sum, and the one that remains
    assert row["lower"] == least(saved, stack, copy, SMALL)
    assert reductions(make, stack, copy._replace(uses="")) == []


def test_a_stack_that_the_backward_pass_reads_too(make: Make) -> None:
    other = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul")
    stack = STACK._replace(live=(2, 7), uses="  sum.1, operand 0\n  mul.1, operand 0")
    assert reductions(make, stack, SUM, other) == []


@pytest.mark.parametrize(("user", "n"), [("exp.1", 0), ("add.2", 1), ("dot.1", 0)])
def test_a_result_that_depends_on_all_iterations(user: str, n: int, make: Make) -> None:
    """A mean of states with weights that are computed from all of them cannot be added up."""
    stack = STACK._replace(live=(2, 6), uses="  sum.1, operand 0\n  dot.1, operand 1")
    weights = Buffer("exp.1", "f32[8,64]", (5, 6), f"{FORWARD}/exp", uses="  dot.1, operand 0")
    other = Buffer("add.2", "f32[8,64]", (5, 9), f"{FORWARD}/add", uses="  dot.2, operand 0")
    mean = Buffer("dot.1", "f32[64]", (6, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    after = Buffer("dot.2", "f32[64]", (7, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    assert len(reductions(make, stack, SUM._replace(uses=f"  {user}, operand 0"), weights, other, mean, after)) == n


@pytest.mark.parametrize(("name", "n"), [("jit(f)/jvp()/add", 0), (f"{BACKWARD}/mul", 1)])
def test_a_result_that_the_program_uses_is_not_kept_by_the_loop(name: str, n: int, make: Make) -> None:
    """What jax.lax.map returns goes on, and is no input of its body that could be offloaded or computed again."""
    stack = STACK._replace(live=(2, 7))
    gradient = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul")
    again = Buffer("tanh.1", "f32[64]", (7, 7), f"{BACKWARD}/while/body/checkpoint/rematted_computation/tanh")
    reader = SUM._replace(op_name=name)
    dump = program(make, [SMALL, stack, reader, gradient, again], "tpu")
    assert len(advice(dump, "offload")) == n
    assert advice(dump, "recompute") == []


def test_stacks_of_one_loop_are_one_row(make: Make) -> None:
    """Gradients of all weights, of which the mean is taken afterwards."""
    others = [loop(f"while.1{{{i}}}", 8, f"{FORWARD}/while", live=(2, 4)) for i in (2, 3)]
    others = [b._replace(shape="f32[8,32,64]", uses=f"  sum.{i}, operand 0") for i, b in enumerate(others, 2)]
    sums = [Buffer(f"sum.{i}", "f32[8,32]", (4, 9), f"{FORWARD}/reduce_sum", "reduce(%x, %y)") for i in (2, 3)]
    second = loop("while.2{1}", 8, f"{FORWARD}/while", live=(2, 4), uses="  sum.4, operand 0")._replace(shape=SHAPE)
    last = SUM._replace(name="sum.4")
    first, other = reductions(make, STACK, *others, SUM, *sums, second, last)
    assert first["action"].startswith("A loop stacks 3 arrays, such as f32[8,64,64], over its 8 iterations, from which")
    assert (first["n_buffers"], first["bytes"]) == (3, 2 * STACK.size)
    assert (other["n_buffers"], other["bytes"]) == (1, STACK.size)


def test_a_small_stack(make: Make) -> None:
    """A hundredth of what must fit is worth a row."""
    large = Buffer("add.2", f"f32[{99 * 32 * KIB - SUM.size // 4 - 16}]", (1, 9))
    assert len(reductions(make, STACK, SUM, large)) == 1
    assert reductions(make, STACK, SUM, large._replace(shape=f"f32[{110 * 32 * KIB}]")) == []


def test_a_tpu_program_is_scheduled_anew(make: Make) -> None:
    (row,) = reductions(make, STACK, SUM, platform="tpu")
    peak = STACK.size + SUM.size + SMALL.size
    assert row["lower"] == least(STACK.size - SUM.size, STACK, SUM, SMALL) - int(0.05 * peak)


# -- attention -----------------------------------------------------------------------------------

MATRIX = Buffer("exp.1", "f32[8,4,64,64]", (3, 7), f"{FORWARD}/exp", uses="  dot.2, operand 0")
SCORES = Buffer("dot.1", "f32[8,4,64,64]", (1, 7), f"{FORWARD}/dot_general", "dot(%x, %y)", uses="  exp.1, operand 0")
ATTENDED = Buffer("dot.2", "f32[8,4,64,16]", (4, 5), f"{FORWARD}/dot_general", "dot(%x, %y)")
QUERIES = Buffer("q", "f32[8,64,32]", (0, 1), f"{FORWARD}/add")
WEIGHTS = loop("while.1{1}", 2, f"{FORWARD}/while", live=(2, 7), uses="  sum.1, operand 0")
WEIGHTS = WEIGHTS._replace(shape="f32[2,8,4,64,64]")


@pytest.mark.parametrize(("reader", "n", "confidence"), [(SUM, 2, "try"), (SUM._replace(name="sum.2"), 3, "likely")])
def test_weights_that_a_loop_returns(reader: Buffer, n: int, confidence: str, make: Make) -> None:
    """Computing them part by part saves none of what the program itself reads."""
    dump = program(make, [QUERIES, SCORES, MATRIX, ATTENDED, WEIGHTS, reader, SMALL])
    (row,) = advice(dump, "attention")
    assert (row["n_buffers"], row["confidence"]) == (n, confidence)
    assert ("after a loop" in row["action"]) == (confidence == "try")
    assert (row["lower"] == 0) == (confidence == "try")


def test_the_gradient_of_weights_that_a_loop_returns(make: Make) -> None:
    gradient = Buffer("broadcast.1", WEIGHTS.shape, (5, 7), f"{BACKWARD}/broadcast_in_dim", "broadcast(%x)")
    dump = program(make, [QUERIES, SCORES, MATRIX, ATTENDED, WEIGHTS, gradient, SUM, SMALL])
    (row,) = advice(dump, "attention")
    assert (row["n_buffers"], row["bytes"]) == (2, 2 * MATRIX.size)
