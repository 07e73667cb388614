"""Advice on losses and attention, on small programs like ones that were recompiled."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, program

from xlamem.compute.advice import what_if
from xlamem.compute.advice.attention import attention_by_parts
from xlamem.compute.advice.layers import LayerActivations
from xlamem.compute.advice.what_if import MAX_GROUPS, WhatIf, largest_groups
from xlamem.compute.program import program as program_of

# -- the loss in chunks --------------------------------------------------------------------------


FORWARD, BACKWARD = "jit(f)/jvp()/dot_general", "jit(f)/transpose(jvp())"
HEAD = argument("p['head']", "f32[32,4096]", 0, uses="  dot.2, operand 1")
HEAD = HEAD._replace(allocation=HEAD.allocation[:-1] + ", maybe-live-out:")
HIDDEN = Buffer("dot.1", "f32[8,64,32]", (1, 2), FORWARD, uses="  dot.2, operand 0")
LOGITS = Buffer("dot.2", "f32[8,64,4096]", (2, 6), FORWARD, uses="  exp.1, operand 0")
SOFTMAX = Buffer("exp.1", "f32[8,64,4096]", (3, 6), f"{BACKWARD}/mul")
LOGITS_BYTES, HEAD_BYTES = 4 * 8 * 64 * 4096, 4 * 32 * 4096


def loss_advice(make: Make, *buffers: Buffer, platform: str = "cpu") -> list[Row]:
    return advice(program(make, [HEAD, *buffers], platform), "loss")


def test_logits_in_chunks(make: Make) -> None:
    """An eighth of the logits and of their gradient remains, and the sum of the gradients of the weights."""
    (row,) = loss_advice(make, HIDDEN, LOGITS, SOFTMAX)
    assert row["action"].startswith("Compute logits and loss in 8 chunks")
    assert "for 8 of the 64 along a dimension" in row["action"]
    estimate = 2 * LOGITS_BYTES * 7 // 8 - HEAD_BYTES
    assert row["lower"] == int(0.7 * estimate)
    assert row["upper"] == min(int(1.15 * (estimate + HEAD_BYTES)), HIDDEN.size + 2 * LOGITS_BYTES)
    assert (row["n_buffers"], row["shape"], row["confidence"]) == (2, "f32[8,64,4096]", "likely")


@pytest.mark.parametrize(
    ("shape", "text"),
    [("f32[512,4096]", "8 chunks"), ("f32[7,11,4096]", "7 chunks"), ("f32[4096,8,63]", "8 chunks")],
)
def test_shapes_of_logits(shape: str, text: str, make: Make) -> None:
    """The number of chunks divides a dimension of the samples, wherever that is."""
    (row,) = loss_advice(make, LOGITS._replace(shape=shape), SOFTMAX._replace(shape=shape))
    assert text in row["action"]


def test_gathered_weights_are_no_logits(make: Make) -> None:
    """Each device has as many samples as there are features, of which it gathers the weights before."""
    gathered = Buffer("g", "f32[512,4096]", (0, 1), FORWARD, "all-gather(%p.0)", uses="  dot.2, operand 1")
    buffers = [b._replace(shape="f32[512,4096]") for b in (LOGITS, SOFTMAX)]
    hidden = HIDDEN._replace(shape="f32[512,256]")
    (row,) = loss_advice(make, gathered, hidden, *buffers)
    assert row["n_buffers"] == 2
    assert row["lower"] == int(0.7 * (2 * LOGITS_BYTES - gathered.size - hidden.size))  # these are there at a time


def test_logits_of_two_heads(make: Make) -> None:
    """The gradients of both are kept; a dimension of 1 makes no other array."""
    shapes = ["f32[8,64,4096]", "f32[1,8,64,4096]"]
    heads = [LOGITS._replace(name="dot.3", shape=shape, live=(3, 6), uses="  exp.1, operand 1") for shape in shapes]
    lower = {row["lower"] for head in heads for row in loss_advice(make, HIDDEN, LOGITS, head, SOFTMAX)}
    assert lower == {int(0.7 * (3 * LOGITS_BYTES * 7 // 8 - 2 * HEAD_BYTES))}


def test_what_packing_loses_besides_small_logits(make: Make) -> None:
    """What the layers of a large model lose was in the bound: 257 MiB for two buffers of 2 MiB."""
    layers = Buffer("add.1", "f32[4096,1024]", (0, 7), "jit(f)/transpose(jvp())/add")
    update = layers._replace(name="add.2", live=(8, 9), op_name="jit(f)/add")
    (row,) = loss_advice(make, HIDDEN, LOGITS, SOFTMAX, layers, update)
    assert row["upper"] == int(1.15 * (2 * LOGITS.size - 2 * LOGITS.size // 8)) + 2 * LOGITS.size


def test_more_positions_than_classes(make: Make) -> None:
    """A table of positions is of weights, too; classes are the last dimension."""
    table = argument("p['positions']", "f32[8192,16]", 1)
    table = table._replace(allocation=table.allocation[:-1] + ", maybe-live-out:")
    logits = [b._replace(shape="f32[2,8192,4096]") for b in (LOGITS, SOFTMAX)]
    (row,) = loss_advice(make, table, *logits)
    assert "for 1,024 of the 8,192" in row["action"]


@pytest.mark.parametrize("start", [0, 1])
def test_logits_of_the_first_step(start: int, make: Make) -> None:
    """Nothing but arguments comes before them."""
    (row,) = loss_advice(make, LOGITS._replace(live=(start, 6)), SOFTMAX)
    assert (row["n_buffers"], row["shape"]) == (2, "f32[8,64,4096]")


def test_logits_of_a_prime_number_of_samples(make: Make) -> None:
    assert loss_advice(make, LOGITS._replace(shape="f32[509,4096]"), SOFTMAX._replace(shape="f32[509,4096]")) == []


def test_flattened_gradients_of_logits_count(make: Make) -> None:
    (row,) = loss_advice(make, LOGITS, SOFTMAX._replace(shape="f32[512,4096]"))
    assert row["n_buffers"] == 2


@pytest.mark.parametrize(
    ("shape", "n"),
    [
        ("f32[8,63,4096]", 2), ("f32[8,4096,57]", 2), ("f32[8,72,4096]", 2), ("f32[7,64,4096]", 2),
        ("f32[1,8,64,4096]", 2), ("f32[8,55,4096]", 1), ("f32[7,63,4096]", 1), ("f32[8,63,4096,2]", 1),
    ],
)  # fmt: skip
def test_slices_of_logits_count(shape: str, n: int, make: Make) -> None:
    """A loss over all tokens but the last one computes from slices, of which one dimension is hardly smaller."""
    sliced = Buffer("exp.1", shape, (3, 6), "jit(f)/jvp()/exp")
    assert [row["n_buffers"] for row in loss_advice(make, LOGITS, sliced)] == [n]


def test_a_slice_of_the_classes_is_no_slice_of_samples(make: Make) -> None:
    assert loss_advice(make, LOGITS, Buffer("exp.1", "f32[8,64,4095]", (3, 6), "jit(f)/jvp()/exp")) == []


@pytest.mark.parametrize(("samples", "n"), [(40, 1), (32, 0)])
def test_as_many_samples_as_features(samples: int, n: int, make: Make) -> None:
    """Then they may be weights, or the gradient of these. That a product reads the weights need not be known."""
    logits = LOGITS._replace(shape=f"f32[{samples},4096]")
    others = [SOFTMAX._replace(name=f"exp.{i}", shape=f"f32[{samples // 4},4,4096]") for i in range(3)]
    assert len(advice(program(make, [HEAD._replace(uses=""), logits, *others]), "loss")) == n


def test_gradients_with_as_many_elements_as_logits(make: Make) -> None:
    """They are those of weights with 512 features, and remain if the loss is computed in chunks."""
    weights = argument("p['w']", "f32[512,4096]", 1)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    gradient = Buffer("dot.9", "f32[512,4096]", (4, 6), f"{BACKWARD}/dot_general")
    (row,) = loss_advice(make, LOGITS, SOFTMAX, weights, gradient)
    assert row["n_buffers"] == 2


@pytest.mark.parametrize("shape", ["f32[1024,1024]", "f32[16,4096]"])
def test_weights_besides_those_of_the_logits(shape: str, make: Make) -> None:
    """The gradient of the largest weights with a dimension of classes is that to which each chunk adds."""
    other = argument("p['other']", shape, 1)
    other = other._replace(allocation=other.allocation[:-1] + ", maybe-live-out:")
    (row,), (same,) = loss_advice(make, LOGITS, SOFTMAX), loss_advice(make, LOGITS, SOFTMAX, other)
    assert same["lower"] == row["lower"]


def test_other_arrays_with_as_many_elements_as_logits(make: Make) -> None:
    """They have no dimension of classes."""
    other = Buffer("mul.1", "f32[8,64,64,64]", (3, 6), f"{BACKWARD}/mul")
    (row,) = loss_advice(make, LOGITS, SOFTMAX, other)
    assert row["n_buffers"] == 2


def test_results_of_a_hidden_layer_are_no_logits(make: Make) -> None:
    """A product of the forward pass reads them, or a function of them with the same dimensions."""
    read = LOGITS._replace(uses="  dot.3, operand 0")
    last = Buffer("dot.3", "f32[8,64,1]", (4, 5), FORWARD)
    assert loss_advice(make, read, SOFTMAX, last) == []
    function = Buffer("gelu.1", "f32[8,64,4096]", (3, 6), "jit(f)/jvp()/gelu", uses="  dot.3, operand 0")
    assert loss_advice(make, LOGITS, function, last) == []
    assert len(loss_advice(make, LOGITS, SOFTMAX, last)) == 1


def test_what_many_products_compute_is_no_logits(make: Make) -> None:
    """Those of a policy and a reference are; the second model may compute large activations after the first logits."""
    others = [LOGITS._replace(name=f"dot.{i}", live=(0, 1), uses="") for i in (0, 1)]
    hidden = Buffer("tanh.1", "f32[8,64,512]", (1, 2), "jit(f)/jvp()/tanh")
    (one,), (two,) = (loss_advice(make, *o, hidden, LOGITS, SOFTMAX) for o in ([], others[:1]))
    assert two["lower"] < one["lower"]  # the gradients of both are added up
    assert loss_advice(make, *others, hidden, LOGITS, SOFTMAX) == []
    assert loss_advice(make, others[0], LOGITS, SOFTMAX, hidden._replace(live=(3, 4))) == []


@pytest.mark.parametrize(("step", "n"), [(2, 1), (3, 0)])
def test_what_is_computed_with_the_logits(step: int, n: int, make: Make) -> None:
    """A fusion may have several results. Large activations that come later tell that these are no logits."""
    hidden = Buffer("tanh.1", "f32[8,64,512]", (step, 4), "jit(f)/jvp()/tanh")
    assert len(loss_advice(make, LOGITS, SOFTMAX, hidden)) == n


@pytest.mark.parametrize(("name", "n"), [("jit(f)/jvp()/dot_general", 0), ("jit(f)/optimizer/dot_general", 1)])
def test_logits_that_a_product_outside_of_the_model_reads(name: str, n: int, make: Make) -> None:
    """In a training step, only the products of the forward pass belong to the model."""
    read = LOGITS._replace(uses="  exp.1, operand 0\n  dot.3, operand 0")
    assert len(loss_advice(make, read, SOFTMAX, Buffer("dot.3", "f32[8,8]", (4, 5), name))) == n


@pytest.mark.parametrize(
    ("clones", "n"), [(("remat", "remat5.1"), 1), (("remat2", "rematch"), 1), (("rematch", "rematch2"), 0)]
)
def test_logits_that_the_compiler_computes_again(clones: tuple[str, str], n: int, make: Make) -> None:
    again = [LOGITS._replace(name=f"dot.2.{clone}", live=(6, 7), uses="") for clone in clones]
    assert len(loss_advice(make, HIDDEN, LOGITS, SOFTMAX, *again)) == n


def test_a_large_product_after_the_logits(make: Make) -> None:
    """Only heads that are small beside the logits may follow them."""
    head = Buffer("dot.3", "f32[8,64,64]", (3, 4), FORWARD)
    assert len(loss_advice(make, LOGITS, SOFTMAX, head, head._replace(name="dot.4"))) == 1
    assert loss_advice(make, LOGITS, SOFTMAX, head._replace(shape="f32[8,64,128]")) == []


@pytest.mark.parametrize(("start", "opcode", "n"), [(1, "add", 1), (3, "add", 0), (3, "copy", 1), (5, "add", 0)])
def test_what_the_forward_pass_computes_between_the_logits_and_the_loss(
    start: int, opcode: str, n: int, make: Make
) -> None:
    """Logits are the last large arrays, from the first one of their dimensions on. Copies compute nothing."""
    loss = Buffer("log.1", LOGITS.shape, (4, 6), "jit(f)/jvp()/log")
    other = Buffer("tanh.1", "f32[8,64,2048]", (start, 6), "jit(f)/jvp()/tanh", f"{opcode}(%x)")
    assert len(loss_advice(make, LOGITS, loss, other, SOFTMAX._replace(live=(6, 7)))) == n


def test_what_the_backward_pass_computes_again_is_not_behind_the_logits(make: Make) -> None:
    """It has the name of the forward pass, but comes later."""
    again = Buffer("tanh.1", "f32[8,64,2048]", (5, 6), "jit(f)/jvp()/tanh")
    gradient = Buffer("mul.1", "f32[8]", (6, 7), f"{BACKWARD}/mul")
    assert len(loss_advice(make, LOGITS, SOFTMAX, again, gradient)) == 1


@pytest.mark.parametrize(("trips", "n"), [(8, 0), (5, 1)])
def test_what_a_loop_stacks_is_no_logits(trips: int, n: int, make: Make) -> None:
    """Its first dimension is the number of iterations, which are no samples."""
    stack = loop("while.1{1}", trips, "jit(f)/jvp()/while", live=(2, 6))._replace(shape=LOGITS.shape)
    assert len(loss_advice(make, HIDDEN, LOGITS, SOFTMAX, stack)) == n


def test_logits_without_weights_of_their_classes(make: Make) -> None:
    """Pairs of samples, for example."""
    shape = "f32[8,64,2048]"
    assert loss_advice(make, LOGITS._replace(shape=shape), SOFTMAX._replace(shape=shape)) == []


@pytest.mark.parametrize(("features", "n"), [(2048, 1), (2049, 0)])
def test_more_classes_than_features(features: int, n: int, make: Make) -> None:
    weights = argument("p['head']", f"f32[{features},4096]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    logits = [b._replace(shape="f32[8,1024,4096]") for b in (LOGITS, SOFTMAX)]
    assert len(advice(program(make, [weights, *logits]), "loss")) == n


FROZEN = argument("p['emb']", "bf16[4096,32]", 0, uses="  dot.2, operand 1")
ADAPTER = argument("a['lora']", "f32[4,8,64]", 1)
ADAPTER = ADAPTER._replace(allocation=ADAPTER.allocation[:-1] + ", maybe-live-out:")


def test_classes_that_are_neither_last_nor_most(make: Make) -> None:
    """XLA may exchange the dimensions. Without frozen weights, those that are updated tell the classes."""
    logits = [b._replace(shape="f32[4096,8192,2]") for b in (LOGITS, SOFTMAX)]
    (row,) = loss_advice(make, *logits)
    assert "for 1,024 of the 8,192" in row["action"]


@pytest.mark.parametrize(
    ("shape", "reader", "n"),
    [
        ("bf16[4096,32]", "dot.2", 1), ("bf16[1,4096,32]", "dot.2", 1), ("bf16[64,4096]", "dot.2", 1),
        ("bf16[2048,4096]", "dot.2", 1), ("bf16[2049,4096]", "dot.2", 0), ("bf16[2,4096,32]", "dot.2", 0),
        ("bf16[4096]", "dot.2", 0), ("bf16[2048,32]", "dot.2", 0), ("bf16[64,4096]", "exp.1", 0),
    ],
)  # fmt: skip
def test_logits_of_a_frozen_model(shape: str, reader: str, n: int, make: Make) -> None:
    """An adapter is trained, which has dimensions of the samples by chance; the frozen weights have no gradient.

    Labels, whose dimensions are samples and classes, are read by no product.
    """
    frozen = FROZEN._replace(shape=shape, uses=f"  {reader}, operand 1")
    adapter = ADAPTER if n else ADAPTER._replace(shape="f32[16,8,64]")  # with too many features for 64 classes
    rows = advice(program(make, [frozen, adapter, HIDDEN, LOGITS, SOFTMAX]), "loss")
    assert [row["lower"] for row in rows] == [int(0.7 * (2 * LOGITS_BYTES * 7 // 8))] * n
    assert all("for 8 of the 64 along" in row["action"] for row in rows)


def test_logits_smaller_than_the_gradient_of_their_weights(make: Make) -> None:
    shape = "f32[8,4096]"
    assert loss_advice(make, LOGITS._replace(shape=shape), SOFTMAX._replace(shape=shape)) == []


@pytest.mark.parametrize(("features", "n"), [(55, 1), (56, 0)])
def test_chunks_of_logits_that_save_nothing(features: int, n: int, make: Make) -> None:
    """Seven eighths of 64 samples are as large as the gradient of the weights of 56 features."""
    weights = argument("p['head']", f"f32[{features},4096]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    assert len(advice(program(make, [weights, LOGITS._replace(shape="f32[64,4096]")]), "loss")) == n


def test_logits_without_used_values(make: Make) -> None:
    """It is not known what reads them."""
    dump = program(make, [HEAD._replace(uses=""), LOGITS._replace(uses=""), SOFTMAX])
    assert advice(dump, "loss") == []


def test_products_without_dimensions(make: Make) -> None:
    """The table of a tuple has the name of the product that is in it."""
    table = Buffer("dot.9", "(f32[8])", (2, 3), FORWARD)
    assert loss_advice(make, table) == []
    assert len(loss_advice(make, LOGITS, SOFTMAX, table)) == 1


def test_logits_of_inference(make: Make) -> None:
    assert loss_advice(make, LOGITS._replace(op_name="jit(f)/dot_general")) == []


# -- selections ----------------------------------------------------------------------------------

ALL = Buffer("dot.1", "f32[8,64,512]", (1, 3), "jit(f)/dot_general", "dot(%x, %y)", uses="  gather.1, operand 0")
LAST = Buffer("gather.1", "f32[8,512]", (3, 5), "jit(f)/jit(take_along_axis)/gather", "gather(%x, %y)")


def selected(make: Make, *buffers: Buffer) -> list[Row]:
    return advice(program(make, [argument("params", "f32[32,512]", 0), *buffers]), "reduce")


def test_logits_of_the_last_position(make: Make) -> None:
    (row,) = selected(make, ALL, LAST)
    assert row["action"].startswith("The program only uses parts of f32[8,64,512], such as f32[8,512]. Select them")
    assert (row["lower"], row["upper"]) == (int(0.7 * ALL.size), ALL.size + LAST.size)
    assert (row["n_buffers"], row["bytes"], row["confidence"]) == (1, ALL.size, "likely")


def test_logits_that_are_selected_in_steps_and_computed_twice(make: Make) -> None:
    half = Buffer("slice.1", "f32[8,64,256]", (3, 5), LAST.op_name, "fusion(%x), kind=kLoop, calls=%f")
    again = ALL._replace(name="dot.1.remat", live=(3, 5), uses="  slice.1, operand 0")
    (row,) = selected(make, ALL._replace(uses="  slice.1, operand 0"), half, again, LAST._replace(live=(5, 6)))
    assert (row["n_buffers"], row["bytes"]) == (3, 2 * ALL.size + half.size)


@pytest.mark.parametrize(
    ("product", "selection", "n"),
    [
        (ALL, LAST._replace(shape="f32[8,8,512]"), 1),
        (ALL, LAST._replace(shape="f32[8,9,512]"), 0),  # more than an eighth
        (ALL, LAST._replace(op_name="jit(f)/argmax"), 0),
        (ALL, LAST._replace(op_name="jit(f)/slice"), 1),
        (ALL._replace(op_name="jit(f)/add"), LAST, 0),  # no product
        (ALL._replace(uses=""), LAST, 0),
        (ALL._replace(uses="  gather.1, operand 0\n  argmax, operand 0"), LAST, 0),  # all of it is used
        (ALL._replace(op_name="jit(f)/jvp()/dot_general"), LAST._replace(op_name="jit(f)/transpose(jvp())/gather"), 0),
    ],
)
def test_what_is_selected(product: Buffer, selection: Buffer, n: int, make: Make) -> None:
    other = Buffer("argmax", "s32[8,64]", (3, 5), "jit(f)/argmax", "fusion(%x)")
    assert len(selected(make, product, selection, other)) == n


@pytest.mark.parametrize(("heads", "n"), [(8, 1), (9, 0)])
def test_slices_that_use_all_of_a_product(heads: int, n: int, make: Make) -> None:
    """An eighth at most, in all."""
    uses = "\n".join(f"  slice.{i}, operand 0" for i in range(heads))
    slices = [Buffer(f"slice.{i}", "f32[8,512]", (3, 5), "jit(f)/slice", "slice(%x)") for i in range(heads)]
    assert len(selected(make, ALL._replace(uses=uses), *slices)) == n


# -- pairs ---------------------------------------------------------------------------------------

USERS = Buffer("dot.1", "f32[512,32]", (1, 4), FORWARD, uses="  dot.2, operand 0")
ITEMS = USERS._replace(name="dot.0", uses="  dot.2, operand 1")
PAIRS = Buffer("dot.2", "f32[512,512]", (2, 6), FORWARD, uses="  exp.1, operand 0")
PAIR_GRADIENT = Buffer("exp.1", "f32[512,512]", (3, 6), f"{BACKWARD}/mul")


def test_pairs_in_chunks_of_rows(make: Make) -> None:
    """An eighth of them and of their gradient remains, and the sum of the gradients of one factor."""
    (row,) = loss_advice(make, USERS, ITEMS, PAIRS, PAIR_GRADIENT)
    assert row["action"].startswith("Compute 512 by 512 similarities and loss in 8 chunks, so that only the")
    assert "for 64 of the 512 samples. A loss over both rows and columns needs chunks of both." in row["action"]
    estimate = 2 * PAIRS.size * 7 // 8 - USERS.size
    assert (row["lower"], row["n_buffers"], row["shape"]) == (int(0.7 * estimate), 2, "f32[512,512]")
    assert row["upper"] == min(int(1.15 * (estimate + USERS.size)), 2 * PAIRS.size + 2 * USERS.size)


def test_a_gradient_of_weights_with_as_many_elements_as_pairs(make: Make) -> None:
    updated = "output shape is |f32[256,1024]|, maybe-live-out:"
    weights = argument("w", "f32[256,1024]", 0)
    weights = weights._replace(allocation=weights.allocation.replace("{}:", "{}, " + updated))
    gradient = PAIR_GRADIENT._replace(name="dot.9", shape="f32[256,1024]")
    (row,) = loss_advice(make, USERS, ITEMS, PAIRS, PAIR_GRADIENT, weights, gradient)
    assert (row["n_buffers"], row["bytes"]) == (2, 2 * PAIRS.size)


def test_a_scatter_into_pairs_joins_their_dimensions(make: Make) -> None:
    joined = PAIR_GRADIENT._replace(name="scatter.1", shape="f32[262144]")
    (row,) = loss_advice(make, USERS, ITEMS, PAIRS, PAIR_GRADIENT, joined)
    assert row["n_buffers"] == 3


@pytest.mark.parametrize(
    ("pairs", "factor", "n"),
    [
        ("f32[512,512]", "f32[512,256]", 1),
        ("f32[512,512]", "f32[512,257]", 0),  # the matrix is little larger than its factors
        ("f32[2048,512]", "f32[512,32]", 1),
        ("f32[2048,512]", "f32[512,1024]", 1),
        ("f32[2048,512]", "f32[512,1025]", 0),
        ("f32[509,512]", "f32[512,32]", 1),  # chunks of columns
        ("f32[2560,512]", "f32[512,32]", 0),  # rather samples and classes
        ("f32[2,512,256]", "f32[512,32]", 0),
        ("f32[511,511]", "f32[511,32]", 1),  # seven chunks
        ("f32[509,509]", "f32[509,32]", 0),  # a prime
        ("f32[512,512]", "f32[500,32]", 0),  # no factor of it is known
    ],
)
def test_shapes_of_pairs(pairs: str, factor: str, n: int, make: Make) -> None:
    both = [b._replace(shape=pairs) for b in (PAIRS, PAIR_GRADIENT)]
    assert len(loss_advice(make, USERS._replace(shape=factor), *both)) == n


@pytest.mark.parametrize(
    ("function", "n"),
    [("cholesky", 0), ("triangular_solve", 0), ("lu[x=1]", 0), ("luong_score", 1), ("qr_code/add", 1), ("fft", 1)],
)
def test_a_decomposition_needs_the_whole_matrix(function: str, n: int, make: Make) -> None:
    solved = Buffer("solve.1", "f32[8]", (3, 4), f"jit(f)/jvp()/{function}")
    assert len(loss_advice(make, USERS, ITEMS, PAIRS, PAIR_GRADIENT, solved)) == n


# -- attention -----------------------------------------------------------------------------------


SCORES = Buffer("dot.1", "f32[8,4,64,64]", (1, 2), FORWARD, uses="  exp.1, operand 0")
WEIGHTS = Buffer("exp.1", "f32[8,4,64,64]", (2, 7), "jit(f)/jvp()/exp", uses="  dot.2, operand 0")
ATTENDED = Buffer("dot.2", "f32[8,4,64,16]", (3, 4), FORWARD)
ATTENTION_GRADIENT = Buffer("dot.3", "f32[8,4,64,64]", (6, 7), f"{BACKWARD}/dot_general")
TOKENS = argument("tokens", "s32[8,64]", 0)
ATTENTION = [TOKENS, SCORES, WEIGHTS, ATTENDED, ATTENTION_GRADIENT]
MATRIX = SCORES.size


def attention_advice(make: Make, *buffers: Buffer) -> list[Row]:
    return advice(program(make, list(buffers)), "attention")


def test_attention_sample_by_sample(make: Make) -> None:
    """Of two matrices at the peak, four of one of eight samples remain."""
    (row,) = attention_advice(make, *ATTENTION)
    assert row["action"].startswith("Compute attention in 8 parts")
    assert "jax.checkpoint(f)" in row["action"]
    assert "no matrix of 64 by 64" in row["action"]
    assert row["lower"] == int(0.6 * (2 * MATRIX - 4 * MATRIX // 8 - ATTENDED.size))
    lost = MATRIX + ATTENDED.size
    assert row["upper"] == min(int(1.25 * (2 * MATRIX - ATTENDED.size)) + lost, 2 * MATRIX + lost)
    assert (row["n_buffers"], row["shape"], row["confidence"]) == (2, "f32[8,4,64,64]", "likely")


@pytest.mark.parametrize(("op_name", "n"), [("jit(fft)", 0), ("jit(fft)/fft", 0), ("fft/exp", 1)])
def test_stages_of_a_fourier_transform_are_no_attention(op_name: str, n: int, make: Make) -> None:
    """XLA for TPU computes them as products; what a product reads may be such a matrix."""
    weights = WEIGHTS._replace(op_name=f"jit(f)/jvp(conv)/{op_name}")
    assert len(attention_advice(make, TOKENS, SCORES, weights, ATTENDED, ATTENTION_GRADIENT)) == n


def test_fourier_transforms_besides_attention(make: Make) -> None:
    """They are computed whole, although their stages may be as large as the weights of attention."""
    stage = SCORES._replace(name="f", live=(2, 7), op_name="jit(f)/jvp()/jit(fft)", uses="")
    (row,) = attention_advice(make, *ATTENTION, stage)
    assert row["n_buffers"] == 2
    assert row["lower"] == attention_advice(make, *ATTENTION)[0]["lower"]


def test_matrices_of_one_part_are_in_memory(make: Make) -> None:
    """Four of an eighth each, at the peak and elsewhere."""
    (found,) = attention_by_parts(LayerActivations(WhatIf(program_of(program(make, ATTENTION)))))
    at_steps = [0, 1, 2, 1, 1, 1, 2, 2, 0, 0, 0]  # whole matrices, which are not needed
    assert found.change.fixed == 0
    assert found.change.levels.tolist() == [MATRIX // 2 - n * MATRIX for n in at_steps]


def test_attention_of_which_a_policy_saves_the_scores(make: Make) -> None:
    """It saves those of each part as well, so that only the gradients are sure to be smaller."""
    saved = WEIGHTS._replace(op_name="jit(f)/jvp()/reduce_precision", live=(1, 8))
    again = Buffer("mul.1", "f32[8]", (5, 6), f"{BACKWARD}/checkpoint/rematted_computation/mul")
    (before,) = attention_advice(make, TOKENS, SCORES, saved, ATTENDED, ATTENTION_GRADIENT)
    (row,) = attention_advice(make, TOKENS, SCORES, saved, ATTENDED, ATTENTION_GRADIENT, again)
    assert row["lower"] <= 0.6 * MATRIX // 2 < before["lower"]
    assert row["upper"] >= 2 * MATRIX
    assert row["action"].startswith(before["action"])
    assert "The policy of jax.checkpoint has to leave these matrices out" in row["action"]


@pytest.mark.parametrize(
    ("shape", "n"),
    [("f32[8,64,64,4]", 1), ("f32[32768,4]", 1), ("f32[8,4,64,64]", 0), ("f32[8,64,64,2]", 0), ("f32[8,64,256]", 0)],
)
def test_attention_with_a_bias_for_each_pair(shape: str, n: int, make: Make) -> None:
    """Computed by a product of features of pairs, it is as large as the scores."""
    bias = Buffer("dot.0", shape, (0, 1), FORWARD)
    (row,) = attention_advice(make, bias, *ATTENTION)
    assert row["action"].count("If a bias is added to the scores, f has to compute it for its part as well.") == n


CROSS = [
    argument("x", "s32[8,64]", 0), argument("y", "s32[8,48]", 1),
    *(b._replace(shape="f32[8,4,48,64]") for b in (SCORES, WEIGHTS, ATTENTION_GRADIENT)),
    ATTENDED._replace(shape="f32[8,4,48,16]"),
]  # fmt: skip


def test_attention_to_another_sequence(make: Make) -> None:
    """48 queries compare themselves with 64 keys; the compiler may store the matrices the other way round."""
    (row,) = attention_advice(make, *CROSS)
    assert "no matrix of 48 by 64 at all" in row["action"]
    assert row["n_buffers"] == 2
    turned = [b._replace(shape=b.shape.replace("48,64]", "64,48]")) for b in CROSS]
    (same,) = attention_advice(make, *turned)
    assert (same["lower"], same["action"]) == (row["lower"], row["action"])


@pytest.mark.parametrize(
    ("others", "result"),
    [
        ([argument("w", "f32[64,32]", 2, uses="  dot.2, operand 1")], "f32[8,4,48,16]"),  # a dimension of weights
        ([], "f32[8,4,48,64]"),  # it is not summed over
        ([], "f32[8,4,64,12]"),
    ],
)
def test_features_are_no_positions(others: list[Buffer], result: str, make: Make) -> None:
    """Keys and values have dimensions of heads and features, which may be second dimensions of arguments, too."""
    updated = [b._replace(allocation=b.allocation[:-1] + ", maybe-live-out:") for b in others]
    buffers = [b._replace(shape=result) if b.name == "dot.2" else b for b in CROSS]
    assert len(attention_advice(make, *updated, *buffers)) == (result == "f32[8,4,64,12]")


def test_cross_attention_has_heads(make: Make) -> None:
    """Hidden activations have no heads: samples, positions, features."""
    assert attention_advice(make, *(b._replace(shape=b.shape.replace("8,4,", "8,")) for b in CROSS)) == []


@pytest.mark.parametrize(("n", "width", "kept"), [(2, 32, 2), (8, 32, None), (8, 24, 0)])
def test_what_xla_rematerializes_may_take_the_place_of_attention(
    n: int, width: int, kept: int | None, make: Make
) -> None:
    """0.65 GiB of 14.3 were saved where the weights of cross-attention take 1.5: XLA kept those of self-attention."""
    buffers = [argument("y", "s32[8,32]", 1), ATTENDED._replace(name="dot.9", shape="f32[8,4,32,16]")]
    for i in range(n):
        live = 8 + i % 2, 8 + i % 2
        matrix = Buffer(f"exp.9{i}", f"f32[8,4,32,{width}]", live, "jit(f)/jvp()/exp", uses="  dot.9, operand 0")
        buffers.append(matrix)
    clones = [b._replace(name=f"{b.name}.remat") if b.name.startswith("exp") else b for b in buffers]
    before, after = (attention_advice(make, *ATTENTION, *others)[0] for others in (buffers, clones))
    assert before["lower"] > 0
    wanted = 0 if kept is None else before["lower"] - 0.6 * kept * matrix.size
    assert after["lower"] == pytest.approx(wanted, abs=1)
    assert after["upper"] == before["upper"]


def test_matrices_that_xla_rematerializes_are_gone_as_well(make: Make) -> None:
    again = WEIGHTS._replace(name="exp.1.remat", live=(5, 7))
    (row,) = attention_advice(make, *ATTENTION[:2], WEIGHTS._replace(live=(2, 3)), *ATTENTION[3:], again)
    assert row["confidence"] == "likely"


def test_attention_without_a_backward_pass(make: Make) -> None:
    buffers = [b._replace(op_name=b.op_name.replace("jvp()/", "")) for b in ATTENTION[:4]]
    (row,) = attention_advice(make, *buffers)
    assert "jax.lax.map over f, where" in row["action"]
    # A TPU program is scheduled anew.
    (on_tpu,) = advice(program(make, buffers, "tpu"), "attention")
    assert on_tpu["lower"] == row["lower"] - min(int(0.05 * (SCORES.size + WEIGHTS.size)), row["lower"] // 3)
    on_tpu, row = (advice(program(make, ATTENTION, platform), "attention")[0] for platform in ("tpu", "cpu"))
    assert on_tpu["lower"] == row["lower"]


def test_attention_of_more_heads_than_samples(make: Make) -> None:
    buffers = [b._replace(shape=b.shape.replace("8,4,", "2,16,")) for b in ATTENTION]
    (row,) = attention_advice(make, *buffers)
    assert "in 16 parts" in row["action"]


def test_attention_of_one_sample_with_several_heads(make: Make) -> None:
    (row,) = attention_advice(make, *(b._replace(shape=b.shape.replace("8,4,", "1,16,")) for b in ATTENTION))
    assert "in 16 parts" in row["action"]


def test_attention_of_one_sample_with_one_head(make: Make) -> None:
    assert attention_advice(make, *(b._replace(shape=b.shape.replace("8,4,", "1,1,")) for b in ATTENTION)) == []


@pytest.mark.parametrize(("samples", "n"), [(66, 1), (67, 0)])
def test_attention_of_a_prime_number_of_samples(samples: int, n: int, make: Make) -> None:
    """They cannot be split, although several matrices are live at the same time."""
    buffers = [b._replace(shape=b.shape.replace("8,4,", f"{samples},")) for b in ATTENTION]
    others = [buffers[-1]._replace(name=f"mul.{i}", op_name=f"{BACKWARD}/mul") for i in range(4)]
    assert len(attention_advice(make, *buffers, *others)) == n


def test_as_many_heads_as_features_of_each(make: Make) -> None:
    """Queries of 64 heads with 64 features each are square matrices, too, but multiplied they become larger."""
    queries = Buffer("dot.0", "f32[8,128,64,64]", (1, 6), FORWARD, uses="  dot.1, operand 0")
    scores = Buffer("dot.1", "f32[8,64,128,128]", (2, 3), FORWARD)
    assert attention_advice(make, argument("tokens", "s32[8,128]", 0), queries, scores) == []


@pytest.mark.parametrize(("features", "n"), [(63, 1), (64, 0)])
def test_what_is_multiplied_by_as_many_vectors_as_it_has_rows(features: int, n: int, make: Make) -> None:
    """The results are as large as the matrices."""
    attended = ATTENDED._replace(shape=f"f32[8,4,64,{features}]")
    assert len(attention_advice(make, TOKENS, SCORES, WEIGHTS, attended, ATTENTION_GRADIENT)) == n


def test_square_matrices_that_no_product_reads(make: Make) -> None:
    assert attention_advice(make, TOKENS, SCORES, WEIGHTS._replace(uses=""), ATTENDED, ATTENTION_GRADIENT) == []


@pytest.mark.parametrize(("features", "n"), [(16, 1), (64, 0)])
def test_as_many_features_as_positions(features: int, n: int, make: Make) -> None:
    """(samples, 64, 64) may be activations, if weights have a dimension of 64."""
    weights = argument("p['w']", f"f32[{features},16]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    buffers = [b._replace(shape=b.shape.replace("8,4,", "8,")) for b in ATTENTION]
    assert len(attention_advice(make, weights, *buffers)) == n


@pytest.mark.parametrize(("shape", "n"), [("f32[32,64,64]", 0), ("f32[16,64,64]", 1)])
def test_samples_in_two_dimensions(shape: str, n: int, make: Make) -> None:
    """A copy of weights for each of 32 samples, as (8, 4, 64, 64)."""
    weights = argument("p['w']", "f32[64,16]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    made = Buffer("dot.0", shape, (0, 1), FORWARD)
    assert len(attention_advice(make, weights, made, *ATTENTION)) == n


@pytest.mark.parametrize(
    ("shape", "uses", "n"),
    [("f32[64,64]", "dot.2", 0), ("f32[64,16]", "dot.2", 1), ("f32[64,64]", "exp.1", 1), ("f32[8,64,64]", "dot.2", 1)],
)
def test_covariances_that_an_argument_multiplies(shape: str, uses: str, n: int, make: Make) -> None:
    """Those of a Kalman filter with as many features as samples, in a program that updates no weights."""
    transition = argument("a", shape, 1, uses=f"  {uses}, operand 1")
    buffers = [b._replace(shape=b.shape.replace("8,4,", "8,")) for b in ATTENTION[:4]]
    assert len(attention_advice(make, transition, *buffers)) == n


def test_images_as_wide_as_they_have_channels(make: Make) -> None:
    """A convolution reads them, and makes them smaller."""
    image = Buffer("conv.1", "f32[8,64,64,64]", (1, 6), "jit(f)/jvp()/conv_general_dilated", uses="  conv.2, operand 0")
    smaller = Buffer("conv.2", "f32[8,32,32,64]", (2, 3), "jit(f)/jvp()/conv_general_dilated")
    assert attention_advice(make, TOKENS, image, smaller) == []


@pytest.mark.parametrize(("trips", "n"), [(6, 1), (5, 0)])
def test_attention_in_a_loop(trips: int, n: int, make: Make) -> None:
    """The product writes its result into a stack of all iterations, which is larger than the matrix."""
    stacked = ATTENDED._replace(shape="f32[6,8,4,64,16]", instruction="fusion(%x)")
    buffers = [TOKENS, loop("while.1", trips), SCORES, WEIGHTS, stacked, ATTENTION_GRADIENT]
    assert len(attention_advice(make, *buffers)) == n


def test_states_of_linear_attention(make: Make) -> None:
    """Each step multiplies a state by one vector, which is no attention to all positions."""
    state = SCORES._replace(uses="  dot.2, operand 1", live=(1, 7))
    assert attention_advice(make, TOKENS, state, ATTENDED._replace(shape="f32[8,4,64]")) == []
    assert len(attention_advice(make, TOKENS, state, ATTENDED._replace(shape="f32[8,4,2,64]"))) == 1


@pytest.mark.parametrize(("trips", "n"), [(6, 0), (5, 1)])
def test_a_stack_of_as_many_features_as_positions(trips: int, n: int, make: Make) -> None:
    """(layers, samples, 64, 64): the first dimension is no evidence of heads."""
    weights = argument("p['w']", "f32[64,16]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    stack = SCORES._replace(shape="f32[6,8,64,64]", uses="  dot.2, operand 0", live=(1, 7))
    result = ATTENDED._replace(shape="f32[8,64,16]")
    assert len(attention_advice(make, weights, loop("while.1", trips), stack, result)) == n


def test_the_largest_groups() -> None:
    """Each estimate takes time for the whole program: there is one for the largest groups only."""
    codes = np.concatenate([[-1, -1], np.repeat(np.arange(1000), 2)])
    sizes = np.concatenate([[10**12, 10**12], np.tile([1, 2], 1000)])
    assert largest_groups(codes, sizes).tolist() == list(range(MAX_GROUPS))
    sizes[2 + 2 * 700] = 5
    assert largest_groups(codes, sizes).tolist() == [*range(MAX_GROUPS - 1), 700]
    assert largest_groups(codes[:8], sizes[:8]).tolist() == [0, 1, 2]
    assert largest_groups(codes[:2], sizes[:2]).tolist() == []


def test_a_residual_stream_as_wide_as_long(make: Make) -> None:
    """(layers, samples, 64, 64) has two dimensions of 64, but is no matrix of attention."""
    stream = Buffer("while.1{1}", "f32[2,8,64,64]", (2, 7), "jit(f)/jvp()/while")
    (row,) = attention_advice(make, *ATTENTION, loop("while.1", 2), stream)
    assert row["n_buffers"] == 2


@pytest.mark.parametrize(("carry", "n"), [("f32[8,64,64]", 2), ("f32[8,64]", 3)])
def test_a_residual_stream_with_as_many_elements_as_a_matrix(carry: str, n: int, make: Make) -> None:
    """There are as many layers as heads. A loop that passes on less stacks something else."""
    shapes = {"while.1{1}": "f32[4,8,64,64]", "while.1{2}": carry}
    results = [loop(name, 4, "jit(f)/jvp()/while", live=(2, 7))._replace(shape=s) for name, s in shapes.items()]
    (row,) = attention_advice(make, *ATTENTION, *results)
    assert row["n_buffers"] == n


@pytest.mark.parametrize(("trips", "parts"), [(2, 8), (16, 8), (8, 4)])
def test_stacked_matrices_of_attention(trips: int, parts: int, make: Make) -> None:
    """The parts are of samples or heads, and not of iterations; as many samples may be these."""
    stack = Buffer("while.1{1}", f"f32[{trips},8,4,64,64]", (2, 7), "jit(f)/jvp()/while")
    (row,) = attention_advice(make, *ATTENTION, loop("while.1", trips), stack)
    assert (row["n_buffers"], row["shape"]) == (3, stack.shape)
    assert f"in {parts} parts" in row["action"]


def test_states_of_chunks_of_linear_attention(make: Make) -> None:
    """16 queries of a chunk are multiplied by a state of 64 by 64 features; no array has 64 positions."""
    state = SCORES._replace(uses="  dot.2, operand 1", live=(1, 7))
    queries = Buffer("q", "f32[8,4,16,64]", (0, 2), "jit(f)/jvp()/dot_general")
    result = ATTENDED._replace(shape="f32[8,4,16,64]")
    assert attention_advice(make, argument("x", "f32[8,256,256]", 0), queries, state, result) == []
    assert len(attention_advice(make, argument("x", "f32[8,64,256]", 0), queries, state, result)) == 1


def test_states_of_one_head_are_no_attention(make: Make) -> None:
    """They are (samples, features, features): their second dimension is no number of positions."""
    state = SCORES._replace(shape="f32[8,64,64]", uses="  dot.2, operand 1", live=(1, 7))
    result = ATTENDED._replace(shape="f32[8,16,64]")
    assert attention_advice(make, argument("x", "f32[8,256,256]", 0), state, result) == []
    assert len(attention_advice(make, argument("x", "f32[8,64,256]", 0), state, result)) == 1


def test_attention_in_many_windows(make: Make) -> None:
    buffers = [b._replace(shape=b.shape.replace("[8,4,", "[520,4,")) for b in ATTENTION]
    (row,) = attention_advice(make, *buffers)
    assert "in 52 parts" in row["action"]


def test_zero_dimensions(make: Make) -> None:
    zero = SCORES._replace(shape="f32[128,0,64,0,0,64]", uses="  dot.2, operand 0")
    assert attention_advice(make, TOKENS, zero, ATTENDED) == []


def test_grouped_heads(make: Make) -> None:
    """The largest dimension of samples, groups and heads is split, wherever it is."""
    buffers = [b._replace(shape=b.shape.replace("[8,4,", "[2,3,16,")) for b in ATTENTION]
    (row,) = attention_advice(make, *buffers)
    assert "in 16 parts" in row["action"]


def others_like(buffers: Sequence[Buffer], *replaced: tuple[str, str]) -> list[Buffer]:
    """Return buffers of another computation, with other shapes."""
    names = {b.name: f"other.{i}" for i, b in enumerate(buffers)}
    found = []
    for b in buffers:
        shape, uses = b.shape, b.uses
        for old, new in replaced:
            shape = shape.replace(old, new)
        for old, new in names.items():
            uses = uses.replace(old, new)
        found.append(b._replace(name=names[b.name], shape=shape, uses=uses))
    return found


def test_attention_of_two_lengths(make: Make) -> None:
    """That of an encoder is smaller than that of the decoder."""
    encoder = others_like(ATTENTION[1:], ("64,64]", "32,32]"), ("64,16]", "32,16]"))
    first, second = attention_advice(make, argument("source", "s32[8,32]", 1), *encoder, *ATTENTION)
    assert (first["n_buffers"], first["shape"]) == (2, "f32[8,4,64,64]")
    assert (second["n_buffers"], second["shape"]) == (2, "f32[8,4,32,32]")


def test_the_lengths_with_most_bytes(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is an estimate for the whole program."""
    monkeypatch.setattr(what_if, "MAX_GROUPS", 1)
    encoder = others_like(ATTENTION[1:], ("64,64]", "32,32]"), ("64,16]", "32,16]"))
    (row,) = attention_advice(make, argument("source", "s32[8,32]", 1), *encoder, *ATTENTION)
    assert row["shape"] == "f32[8,4,64,64]"


@pytest.mark.parametrize(
    ("shape", "n"), [("f32[8,64,48]", 1), ("f32[8,48,64]", 0), ("f32[8,64,64]", 0), ("f32[8,64]", 0)]
)
def test_attention_to_parts_of_images(shape: str, n: int, make: Make) -> None:
    """What the model computes of an image has the number of parts between samples and features."""
    image, parts = argument("image", "f32[8,32,32,3]", 0), Buffer("add.1", shape, (0, 2), "jit(f)/jvp()/add")
    assert len(attention_advice(make, image, parts, *ATTENTION[1:])) == n


def test_attention_of_two_models(make: Make) -> None:
    """A teacher without a backward pass has more heads, and larger matrices, which are freed before the peak."""
    scores, weights, attended = others_like(ATTENTION[1:4], ("[8,4,", "[8,8,"))
    teacher = [scores._replace(live=(0, 0)), weights._replace(live=(1, 1)), attended._replace(live=(1, 1))]
    layers = [WEIGHTS._replace(name=f"exp.{i}") for i in (2, 3)]
    (row,) = attention_advice(make, *teacher, *ATTENTION, *layers)
    assert (row["n_buffers"], row["shape"], row["confidence"]) == (4, "f32[8,4,64,64]", "likely")
    assert "in 8 parts" in row["action"]


def test_logits_with_the_first_name_of_a_program(make: Make) -> None:
    assert len(advice(program(make, [LOGITS, SOFTMAX, HEAD]), "loss")) == 1
