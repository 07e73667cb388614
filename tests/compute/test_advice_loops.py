"""Advice on what loops return, on small programs like ones that were recompiled."""

from __future__ import annotations

import pytest
from advice_programs import KIB, Buffer, Make, Row, advice, argument, loop, output, program
from attacks import value

from xlamem.compute import uses
from xlamem.compute.advice import loop_results

FORWARD, BACKWARD = "jit(f)/jvp()", "jit(f)/transpose(jvp())"
SHAPE = "f32[8,64,64]"
STACK = loop("while.1{1}", 8, f"{FORWARD}/while", live=(2, 4), uses="  sum.1, operand 0")._replace(shape=SHAPE)
SUM = Buffer("sum.1", "f32[8,64]", (4, 9), f"{FORWARD}/reduce_sum", "reduce(%x, %y)")
SMALL = Buffer("add.1", "f32[16]", (0, 9), f"{BACKWARD}/add_any")
GRADIENT = Buffer("broadcast.1", SHAPE, (6, 8), f"{BACKWARD}/broadcast_in_dim", "broadcast(%x)")


def least(saved: int, *live: Buffer) -> int:
    """The lower bound if so many bytes of the temporaries that are live at the peak are saved."""
    return int(0.75 * saved) - int(sum(b.size for b in live) / 6)


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


def test_what_is_left_of_a_small_stack_may_be_packed_worse(make: Make) -> None:
    """Reducing 1.4 of 8.1 GiB saved nothing, since packing lost as much."""
    other = Buffer("add.2", "f32[16,16384]")
    (row,) = reductions(make, STACK, SUM, other)
    peak = STACK.size + SUM.size + SMALL.size + other.size
    assert (row["lower"], row["confidence"]) == (-int(0.02 * peak), "try")


@pytest.mark.parametrize("end", ["at ShapeIndex {}:", "at ShapeIndex {}, maybe-live-out:"])
@pytest.mark.parametrize(
    ("op_name", "shape", "is_gradient"),
    [
        (f"{BACKWARD}/while", SHAPE, True),
        (f"{FORWARD}/while", SHAPE, False),
        (f"{BACKWARD}/while", "f32[8,64,32]", False),
    ],
)
def test_gradients_of_what_is_not_updated(op_name: str, shape: str, is_gradient: bool, end: str, make: Make) -> None:
    """Only a norm of all gradients reads them. The argument may be returned as it is."""
    weights = Buffer("p.0", shape, (0, 9), "p['w']", "parameter(0)", f"parameter 0, shape |{shape}| {end}")
    stack = STACK._replace(op_name=op_name)
    norm = SUM._replace(op_name="jit(f)/norm", shape="f32[]")
    (row,) = reductions(make, weights, stack, norm)
    assert ("apply jax.lax.stop_gradient" in row["action"]) == is_gradient
    assert ("in the body of the loop" in row["action"]) != is_gradient


@pytest.mark.parametrize(("shape", "is_gradient"), [(SHAPE, True), ("f32[8,64,32]", False)])
def test_gradients_beside_another_stack_of_the_loop(shape: str, is_gradient: bool, make: Make) -> None:
    weights = argument("p['w']", SHAPE, 0)
    stack = STACK._replace(op_name=f"{BACKWARD}/while")
    other = stack._replace(name="while.1{2}", shape=shape)
    (row,) = reductions(make, weights, stack, other, SUM._replace(op_name="jit(f)/norm", shape="f32[]"))
    assert row["action"].startswith("A loop stacks 2 arrays")
    assert ("apply jax.lax.stop_gradient" in row["action"]) == is_gradient


@pytest.mark.parametrize("first", [0, 1])
def test_shapes_without_layouts(first: int, make: Make) -> None:
    """The largest of the results is named, and all of them are needed."""
    other = Buffer("sum.2", "f32[8]{0}", (4, 9), f"{FORWARD}/reduce_sum", "reduce(%x, %y)")
    stack = STACK._replace(shape=f"{SHAPE}{{2,1,0}}", uses="  sum.1, operand 0\n  sum.2, operand 0")
    results = [SUM._replace(shape="f32[8,64]{1,0}"), other]
    (row,) = reductions(make, stack, results[first], results[1 - first])
    assert row["action"].startswith("A loop stacks f32[8,64,64] over its 8 iterations, from which the program only")
    assert " computes f32[8,64]. " in row["action"]
    assert row["lower"] == least(STACK.size - SUM.size - other.size, STACK, SUM, other, SMALL)


def test_the_result_may_be_in_the_place_of_something_else(make: Make) -> None:
    (row,) = reductions(make, STACK, SUM, Buffer("add.2", "f32[16384]"))
    assert row["upper"] == int(1.1 * STACK.size)


def test_the_result_is_in_addition_only_where_the_stack_was(make: Make) -> None:
    """Later, an array of half the size is at the peak, for which the temporaries have a place of its own."""
    other = Buffer("add.2", "f32[16384]", (8, 9))
    (row,) = reductions(make, STACK, SUM, other)
    saved = STACK.size - other.size
    assert row["lower"] == least(saved, STACK, SUM, SMALL)
    assert row["upper"] == int(1.1 * saved) + other.size


def test_what_the_loop_writes_in_place_is_its_stack(make: Make) -> None:
    stack = STACK._replace(more=value(90, "updated.1", STACK.size, SMALL.size, SHAPE))
    (row,) = advice(program(make, [SMALL, stack, SUM], ranges=["updated.1{}:3-4"]), "reduce")
    assert (row["n_buffers"], row["lower"]) == (2, least(STACK.size - SUM.size, STACK, SUM, SMALL))


@pytest.mark.parametrize(("allocation", "returned"), [("", False), (output("", SHAPE).allocation, True)])
def test_a_stack_that_the_program_returns(allocation: str, returned: bool, make: Make) -> None:
    """It is needed as the program is, and so is what has its dimensions."""
    (row,) = reductions(make, STACK._replace(allocation=allocation), SUM, GRADIENT)
    assert ("which the program returns" in row["action"], "only computes" in row["action"]) == (returned, not returned)


@pytest.mark.parametrize(("trips", "n"), [(1, 0), (2, 1)])
def test_a_loop_of_one_iteration_stacks_nothing(trips: int, n: int, make: Make) -> None:
    stack = loop("while.1{1}", trips, live=(2, 4), uses="  sum.1, operand 0")._replace(shape=f"f32[{trips},64,64]")
    assert len(reductions(make, stack, SUM._replace(shape=f"f32[{trips},64]"))) == n


@pytest.mark.parametrize(("most", "shapes"), [(1, ["f32[8,64,128]"]), (2, ["f32[8,64,128]", SHAPE])])
def test_the_largest_stacks(most: int, shapes: list[str], make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_results, "MAX_STACKS", most)
    larger = STACK._replace(name="while.2{1}", shape="f32[8,64,128]", uses="  sum.2, operand 0")
    rows = reductions(make, STACK, SUM, larger, SUM._replace(name="sum.2"))
    assert [row["shape"] for row in rows] == shapes


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


@pytest.mark.parametrize(
    "opcode",
    [
        "fusion", "reduce", "dot", "convert", "copy", "transpose", "reshape", "slice", "dynamic-slice", "bitcast",
        "convolution",
    ],
)  # fmt: skip
def test_what_computes_from_a_stack(opcode: str, make: Make) -> None:
    assert len(reductions(make, STACK, SUM._replace(instruction=f"{opcode}(%x)"))) == 1


@pytest.mark.parametrize(("opcode", "n"), [("fusion", 1), ("custom-call", 0)])
def test_all_readers_compute_something(opcode: str, n: int, make: Make) -> None:
    other = Buffer("other.1", "f32[8,64]", (4, 9), f"{FORWARD}/add", f"{opcode}(%x)")
    assert len(reductions(make, STACK._replace(uses="  sum.1, operand 0\n  other.1, operand 0"), SUM, other)) == n


def test_a_reader_whose_text_is_unknown(make: Make) -> None:
    assert len(reductions(make, STACK._replace(uses="  sum.1, operand 0\n  gone.1, operand 0"), SUM)) == 1


def test_copies_of_a_stack_are_followed(make: Make) -> None:
    copy = Buffer("copy.1", SHAPE, (4, 5), instruction="copy(%x)", uses="  sum.1, operand 0")
    stack = STACK._replace(uses="  copy.1, operand 0")
    (row,) = reductions(make, stack, copy, SUM._replace(live=(5, 9)))
    saved = 2 * STACK.size - 2 * SUM.size  # the sum, and the one that remains
    assert row["lower"] == least(saved, stack, copy, SMALL)
    assert reductions(make, stack, copy._replace(uses="")) == []


@pytest.mark.parametrize(("n_elements", "n"), [(32, 0), (33, 1)])
def test_most_of_a_stack_is_a_copy_of_it(n_elements: int, n: int, make: Make) -> None:
    """A half is a result, which is too large."""
    copy = Buffer("slice.1", f"f32[8,64,{n_elements}]", (4, 5), instruction="slice(%x)", uses="  sum.1, operand 0")
    stack = STACK._replace(uses="  slice.1, operand 0")
    assert len(reductions(make, stack, copy, SUM._replace(live=(5, 9)))) == n


@pytest.mark.parametrize(("rounds", "n"), [(1, 0), (2, 1)])
def test_copies_are_followed_so_far(rounds: int, n: int, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_results, "MAX_ROUNDS", rounds)
    copy = Buffer("copy.1", SHAPE, (4, 5), instruction="copy(%x)", uses="  sum.1, operand 0")
    assert len(reductions(make, STACK._replace(uses="  copy.1, operand 0"), copy, SUM._replace(live=(5, 9)))) == n


def test_a_result_of_a_stack_and_its_copy_counts_once(make: Make) -> None:
    copy = Buffer("copy.1", SHAPE, (4, 5), instruction="copy(%x)", uses="  sum.1, operand 1")
    stack = STACK._replace(live=(2, 5), uses="  copy.1, operand 0\n  sum.1, operand 0")
    (row,) = reductions(make, stack, copy, SUM._replace(live=(5, 9)))
    assert row["lower"] == least(2 * STACK.size - SUM.size, stack, copy, SUM, SMALL)


@pytest.mark.parametrize(("reads", "n"), [("  dot.1, operand 0", 0), ("", 1)])
def test_a_result_of_a_copy_that_depends_on_one_of_the_stack(reads: str, n: int, make: Make) -> None:
    stack = STACK._replace(uses="  sum.1, operand 0\n  copy.1, operand 0")
    copy = Buffer("copy.1", SHAPE, (4, 6), instruction="copy(%x)", uses="  dot.1, operand 1")
    mean = Buffer("dot.1", "f32[64]", (6, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    assert len(reductions(make, stack, SUM._replace(uses=reads), copy, mean)) == n


def test_a_stack_that_the_backward_pass_reads_too(make: Make) -> None:
    other = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul", "fusion(%x)")
    stack = STACK._replace(live=(2, 7), uses="  sum.1, operand 0\n  mul.1, operand 0")
    assert reductions(make, stack, SUM, other) == []
    assert len(reductions(make, stack, SUM, other._replace(op_name=f"{FORWARD}/mul"))) == 1


@pytest.mark.parametrize(("user", "n"), [("exp.1", 0), ("add.2", 1), ("dot.1", 0)])
def test_a_result_that_depends_on_all_iterations(user: str, n: int, make: Make) -> None:
    """A mean of states with weights that are computed from all of them cannot be added up, in whatever order."""
    stack = STACK._replace(live=(2, 6), uses="  sum.1, operand 0\n  dot.1, operand 1")
    weights = Buffer("exp.1", "f32[8,64]", (5, 6), f"{FORWARD}/exp", uses="  dot.1, operand 0")
    other = Buffer("add.2", "f32[8,64]", (5, 9), f"{FORWARD}/add", uses="  dot.2, operand 0")
    mean = Buffer("dot.1", "f32[64]", (6, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    after = Buffer("dot.2", "f32[64]", (7, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    buffers = [stack, SUM._replace(uses=f"  {user}, operand 0"), weights, other, mean, after, SMALL]
    for i in range(len(buffers)):
        assert len(advice(program(make, buffers[i:] + buffers[:i]), "reduce")) == n


@pytest.mark.parametrize(
    ("limits", "n"),
    [({}, 1), ({"MAX_FOLLOWED": 4}, 1), ({"MAX_FOLLOWED": 3}, 0), ({"MAX_ROUNDS": 3}, 1), ({"MAX_ROUNDS": 2}, 0)],
)
def test_what_is_too_much_to_follow_may_depend_on_all_iterations(
    limits: dict[str, int], n: int, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in limits.items():
        monkeypatch.setattr(uses, name, limit)
    stack = STACK._replace(live=(2, 6), uses="  sum.1, operand 0\n  dot.1, operand 0")
    exp = Buffer("exp.1", "f32[8,64]", (5, 9), f"{FORWARD}/exp", uses="  add.2, operand 0")
    other = Buffer("add.2", "f32[8,64]", (5, 9), f"{FORWARD}/add", uses="  late.1, operand 0")
    late = Buffer("late.1", "f32[8,64]", (7, 9), f"{FORWARD}/add")  # after the last reader
    product = Buffer("dot.1", "f32[64]", (6, 9), f"{FORWARD}/dot_general", "dot(%x, %y)")
    assert len(reductions(make, stack, SUM._replace(uses="  exp.1, operand 0"), exp, other, late, product)) == n


@pytest.mark.parametrize(
    ("name", "opcode", "n"),
    [
        ("jit(f)/jvp()/add", "reduce", 0),
        (f"{BACKWARD}/mul", "reduce", 1),
        *(("jit(f)/jvp()/add", opcode, 1) for opcode in ("tuple", "get-tuple-element", "while", "bitcast")),
    ],
)
def test_a_result_that_the_program_uses_is_not_kept_by_the_loop(name: str, opcode: str, n: int, make: Make) -> None:
    """What jax.lax.map returns goes on, and is no input of its body that could be offloaded or computed again."""
    stack = STACK._replace(live=(2, 7))
    gradient = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul")
    again = Buffer("tanh.1", "f32[64]", (7, 7), f"{BACKWARD}/while/body/checkpoint/rematted_computation/tanh")
    reader = SUM._replace(op_name=name, instruction=f"{opcode}(%x)")
    dump = program(make, [SMALL, stack, reader, gradient, again], "tpu")
    assert len(advice(dump, "offload")) == n
    if not n:
        assert advice(dump, "recompute") == []


def test_a_result_that_something_unknown_reads(make: Make) -> None:
    gradient = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul")
    again = Buffer("tanh.1", "f32[64]", (7, 7), f"{BACKWARD}/while/body/checkpoint/rematted_computation/tanh")
    stack = STACK._replace(live=(2, 7), uses="  gone.1, operand 0\n  mul.1, operand 0")
    assert len(advice(program(make, [SMALL, gradient, again, stack], "tpu"), "offload")) == 1


@pytest.mark.parametrize(
    ("op_name", "instruction", "n"),
    [
        ("jit(f)/jvp()/add", "fusion(%x)", 0),
        ("", "fusion(%x)", 1),  # the compiler does not say what it is for
        ("jit(f)/jvp()/while", "slice(%x)", 1),  # a move for the backward pass
        ("jit(f)/jvp()/while", "copy-start(%x)", 1),
    ],
)
def test_readers_that_may_be_of_the_backward_pass(op_name: str, instruction: str, n: int, make: Make) -> None:
    """A stack that they read is kept for the backward pass all the same."""
    stack = STACK._replace(live=(2, 7))
    reader = SUM._replace(op_name=op_name, instruction=instruction)
    gradient = Buffer("mul.1", "f32[8,64]", (7, 8), f"{BACKWARD}/mul")
    assert len(advice(program(make, [SMALL, stack, reader, gradient], "tpu"), "recompute")) == n


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


# -- what loops stack for results ----------------------------------------------------------------

HISTORY = loop("while.1{1}", 8, f"{FORWARD}/while", live=(2, 9))._replace(
    shape="f32[8,64,16]", allocation=output("", "f32[8,64,16]").allocation
)


def test_parameters_of_each_step_that_are_returned(make: Make) -> None:
    """Those of the last of eight steps are an eighth."""
    (row,) = reductions(make, HISTORY)
    assert row["action"].startswith("A loop stacks f32[8,64,16] over its 8 iterations, which the program returns. If")
    assert (row["lower"], row["upper"]) == (int(0.5 * HISTORY.size * 7 // 8), HISTORY.size + SMALL.size)
    assert (row["n_buffers"], row["bytes"], row["confidence"]) == (1, HISTORY.size, "likely")


def test_several_stacks_that_are_returned(make: Make) -> None:
    """The row is about those of one loop, the largest first."""
    small = HISTORY._replace(name="while.1{2}", shape="f32[8,64]", allocation=output("", "f32[8,64]").allocation)
    (row,) = reductions(make, small, HISTORY)
    assert row["action"].startswith("A loop stacks 2 arrays, such as f32[8,64,16], over its 8 iterations, which")
    assert len(reductions(make, small._replace(name="while.2{1}"), HISTORY)) == 1  # the other is too small


@pytest.mark.parametrize(
    ("others", "n"),
    [
        ([], 1),
        ([argument("p", "f32[8,64,16]", 0)], 0),
        ([argument("p", "f32[64,16]", 0)], 1),
        ([Buffer("large", "f32[75000]", (0, 9), f"{FORWARD}/tanh")], 0),  # more than nine tenths are something else
    ],
)
def test_stacks_that_may_be_needed(others: list[Buffer], n: int, make: Make) -> None:
    """A loop over layers returns stacks of weights that it has got, or small ones."""
    assert len(reductions(make, HISTORY, *others)) == n


@pytest.mark.parametrize(("shape", "n"), [("f32[8,64,16]", 1), ("f32[16,64,8]", 0), ("f32[1,64,128]", 0)])
def test_results_of_a_loop_that_are_no_stacks(shape: str, n: int, make: Make) -> None:
    assert len(reductions(make, HISTORY._replace(shape=shape, allocation=output("", shape).allocation))) == n


def test_a_loop_of_an_inference_returns_what_it_has_to(make: Make) -> None:
    dump = program(make, [HISTORY._replace(op_name="jit(f)/while"), SMALL._replace(op_name="jit(f)/add")])
    assert advice(dump, "reduce") == []


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


def test_the_gradient_of_weights_that_a_loop_and_the_program_return(make: Make) -> None:
    gradient = Buffer("broadcast.1", WEIGHTS.shape, (5, 7), f"{BACKWARD}/broadcast_in_dim", "broadcast(%x)")
    weights = WEIGHTS._replace(allocation=output("", WEIGHTS.shape).allocation)
    dump = program(make, [QUERIES, SCORES, MATRIX, ATTENDED, weights, gradient, SUM, SMALL])
    (row,) = advice(dump, "attention")
    assert (row["n_buffers"], row["bytes"]) == (3, 2 * MATRIX.size + gradient.size)


def test_a_loop_with_as_many_layers_as_heads_stacks_its_carry(make: Make) -> None:
    """It has as many elements as the matrices, and as many features as positions, but attention does not compute it."""
    carry = loop("while.2{1}", 4, f"{FORWARD}/while", live=(2, 7))._replace(shape="f32[8,64,64]")
    stack = loop("while.2{2}", 4, f"{FORWARD}/while", live=(2, 7), uses="  dot.3, operand 0")
    stack = stack._replace(shape="f32[4,8,64,64]")
    gradient = Buffer("dot.3", "f32[64,64]", (6, 7), f"{BACKWARD}/dot_general", "dot(%x, %y)")
    before, after = (
        advice(program(make, [QUERIES, SCORES, MATRIX, ATTENDED, *loops, gradient, SMALL]), "attention")
        for loops in ([], [carry, stack])
    )
    assert [(r["n_buffers"], r["lower"]) for r in after] == [(r["n_buffers"], r["lower"]) for r in before]
    assert len(after) == 1
