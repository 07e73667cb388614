"""Advice on the batch and on element types, on small programs like ones that were recompiled."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advice_programs import KIB, Buffer, Make, advice, argument, loop, output, program
from attacks import value

import xlamem
from xlamem.compute.advice import batches
from xlamem.compute.advice.batches import _is_last
from xlamem.compute.advice.layers import LayerActivations
from xlamem.compute.advice.what_if import WhatIf
from xlamem.compute.layout import PARAMETER
from xlamem.compute.program import program as program_of

Live = tuple[int, int]
PYTORCH = Path(__file__).parent.parent / "data" / "pytorch"
"""A perceptron with GELU, 256 samples of 64 features, and SGD with momentum, by torch_xla 2.9.0 for a CPU."""

# -- batch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", ["f32[12,64,16]", "f32[12,8,64,64]"])
def test_the_number_of_layers_is_no_batch(weights: str, make: Make) -> None:
    """A decoder scans over 12 layers of weights and of a cache; the batch is 8. Weights may have as many heads."""
    dump = program(
        make,
        [
            argument("params['w']", weights, 0),
            argument("tok", "f32[8]", 1),
            argument("cache", "f32[12,8,32,16]", 2),
            output("out", "f32[12,8,32,16]"),
            loop("while.1", 12),
            Buffer("c", "f32[12,8,32,16]", op_name="jit(f)/while/body/copy"),
            Buffer("h", "f32[8,512]", op_name="jit(f)/while/body/tanh"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert (row["argument"], row["action"]) == ("tok", "Halve the batch of `tok` (8 to 4).")
    half = (3 * 12 * 8 * 32 * 16 + 8 * 512) * 4 // 2
    assert half // 2 < row["lower"] <= half <= row["upper"]


@pytest.mark.parametrize(("out", "halves"), [("f32[12,8,32,4]", True), ("f32[12,8,16,4]", False), ("f32[8,9]", False)])
def test_a_cache_that_an_output_does_not_replace(out: str, *, halves: bool, make: Make) -> None:
    """The output has a quarter of its heads on each device. Weights have other dimensions than what is returned."""
    cache, ys = argument("cache", "f32[12,8,32,16]", 1), output("out", out)
    tokens, hidden = argument("tok", "f32[8]", 0), Buffer("h", "f32[8,512]", op_name="jit(f)/while/body/tanh")
    (row,) = advice(program(make, [tokens, cache, ys, loop("while.1", 12), hidden]), "batch")
    assert row["lower"] == int(0.6 * (tokens.size + hidden.size + ys.size + cache.size * halves) / 2)


@pytest.mark.parametrize(
    ("tokens", "cache", "n"),
    [
        ("s32[12]", "f32[12,12,32,16]", 1), ("s32[8]", "f32[12,8,32,8]", 1), ("s32[12]", "f32[12,8,32,16]", 0),
        ("f32[12]", "f32[12,12,32,16]", 0), ("s32[12,2]", "f32[12,12,32,16]", 0), ("s32[9]", "f32[12,9,32,9]", 0),
    ],
)  # fmt: skip
def test_as_many_tokens_as_layers_or_heads(tokens: str, cache: str, n: int, make: Make) -> None:
    """A step computes one token for each sample, and reads the caches of all layers."""
    weights, tok = argument("params['w']", "f32[12,64,32]", 0), argument("tok", tokens, 1)
    old, new = argument("cache", cache, 2), output("out", cache)
    hidden = Buffer("h", tokens.replace("s32[", "f32[").replace("]", ",512]"), op_name="jit(f)/while/body/tanh")
    rows = advice(program(make, [weights, tok, old, new, loop("while.1", 12), hidden]), "batch")
    assert [(r["argument"], r["lower"], r["confidence"]) for r in rows] == [("tok", 0, "try")] * n
    assert all(old.size // 2 < r["upper"] < 2 * old.size for r in rows)


@pytest.mark.parametrize(("mask", "n"), [("s32[12]", 1), ("f32[12]", 0), ("s32[12,2]", 0)])
def test_tokens_and_another_array_of_their_argument(mask: str, n: int, make: Make) -> None:
    """The other array could be weights of 12 layers."""
    both = [argument("tok['a']", "s32[12]", 0), argument("tok['b']", mask, 1)]
    old, new = argument("cache", "f32[12,12,32,16]", 2), output("out", "f32[12,12,32,16]")
    hidden = Buffer("h", "f32[12,512]", op_name="jit(f)/while/body/tanh")
    rows = advice(program(make, [*both, old, new, loop("while.1", 12), hidden]), "batch")
    assert [r["argument"] for r in rows] == ["tok"] * n


@pytest.mark.parametrize("operation", ["dynamic_slice", "add"])
def test_tokens_that_a_loop_reads_one_by_one(operation: str, make: Make) -> None:
    """They are those of one sample: 12 positions, which its cache has as well."""
    read = Buffer("slice", "s32[1]", (2, 3), f"jit(f)/while/body/{operation}", "fusion(%tok)")
    positions = "  p.0\n  init {0}\n  while.1 {0}"
    tok = argument("tok", "s32[12]", 0, positions=positions, uses="  slice, operand 0")
    old, new = argument("cache", "f32[12,12,32,16]", 1), output("out", "f32[12,12,32,16]")
    hidden = Buffer("h", "f32[12,512]", op_name="jit(f)/while/body/tanh")
    rows = advice(program(make, [tok, old, new, loop("while.1", 12), read, hidden]), "batch")
    assert [r["argument"] for r in rows] == ["tok"] * (operation == "add")


@pytest.mark.parametrize(("shape", "halves"), [("f32[12,8,512]", True), ("f32[11,8,512]", False)])
def test_an_output_that_a_loop_stacks_halves_as_well(shape: str, halves: bool, make: Make) -> None:
    """It has the number of iterations first, and then the batch."""
    x, ys = argument("x", "f32[8,64]", 0), output("ys", shape)
    h = Buffer("h", "f32[8,512]", op_name="jit(f)/while/body/tanh")
    (row,) = advice(program(make, [x, ys, loop("while.1", 12), h]), "batch")
    assert row["lower"] == int(0.6 * (x.size + h.size + ys.size * halves) / 2)


def test_a_batch_after_the_number_of_micro_batches(make: Make) -> None:
    """Gradients are accumulated over 8 micro-batches of 64, which are read slice by slice."""
    read = Buffer("slice", "f32[1,64,16]", (2, 3), "jit(f)/while/body/jvp()/dynamic_slice", "dynamic-slice(%g)")
    positions = "  p.0\n  init {0}\n  while.1 {0}"
    dump = program(
        make,
        [
            argument("xs", "f32[8,64,16]", 0, positions=positions, uses="  slice, operand 0"),
            loop("while.1", 8),
            read,
            Buffer("h", "f32[64,128]", (3, 5), "jit(f)/while/body/jvp()/tanh"),
            Buffer("g", "f32[64,128]", (4, 5), "jit(f)/while/body/transpose(jvp())/mul"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `xs` (64 to 32).")


@pytest.mark.parametrize(("samples", "wanted"), [(32, "(32 to 16)"), (64, "(64 to 32)")])
def test_a_loop_over_the_steps_of_a_training(samples: int, wanted: str, make: Make) -> None:
    """It stacks nothing for a backward pass, but losses of all steps."""
    hidden = Buffer("dot.1", f"f32[{samples},4096]", (1, 7), "jit(f)/while/body/jvp()/dot_general", "dot(%x, %y)")
    losses = Buffer("dot.2", "f32[64,2]", (1, 7), "jit(f)/while/body/jvp()/dot_general", "dot(%x, %y)")
    gradient = Buffer("g", hidden.shape, (7, 8), "jit(f)/while/body/transpose(jvp())/mul")
    images = argument("images", f"f32[64,{32 if samples == 64 else samples},16]", 0)
    (row,) = advice(program(make, [images, loop("while.1", 64), hidden, losses, gradient]), "batch")
    assert row["action"].startswith(f"Halve the batch of `images` {wanted}.")


@pytest.mark.parametrize(("frames", "n"), [("f32[24,8,32]", 1), ("f32[24,6,32]", 0), ("f32[26,8,32]", 0)])
def test_a_loop_over_all_frames_but_one(frames: str, n: int, make: Make) -> None:
    """A model that predicts the next frame stacks activations of 23 of 24, with the samples after them."""
    stack = loop("while.1{1}", 23, "jit(f)/jvp()/while", live=(3, 7))._replace(shape="f32[23,8,64]")
    gradient = Buffer("g", "f32[23,8,64]", (7, 8), "jit(f)/transpose(jvp())/mul")
    rows = advice(program(make, [argument("frames", frames, 0), stack, gradient]), "batch")
    assert [r["action"][:37] for r in rows] == ["Halve the batch of `frames` (8 to 4)."] * n


@pytest.mark.parametrize(("shape", "n"), [("f32[24]", 1), ("f32[24,1]", 0), ("f32[24,2]", 1)])
def test_as_many_samples_as_iterations_and_one(shape: str, n: int, make: Make) -> None:
    """A vector has no samples in its second dimension, also if the loop stacks numbers, such as losses."""
    shapes = ["f32[23,8,64]", "f32[23]", "f32[23,1]"]
    stacks = [loop(f"while.1{{{i}}}", 23, "jit(f)/jvp()/while", live=(3, 7)) for i in range(3)]
    stacks = [b._replace(shape=s) for b, s in zip(stacks, shapes, strict=True)]
    hidden = Buffer("h", "f32[24,512]", (2, 7), "jit(f)/jvp()/tanh")
    gradient = Buffer("g", "f32[23,8,64]", (7, 8), "jit(f)/transpose(jvp())/mul")
    rows = advice(program(make, [argument("y", shape, 0), *stacks, hidden, gradient]), "batch")
    assert [r["action"][:35] for r in rows] == ["Halve the batch of `y` (24 to 12). "] * n


@pytest.mark.parametrize(("trips", "batch"), [(24, "8 to 4"), (5, "24 to 12"), (0, "8 to 4")])
def test_a_leading_dimension_that_is_no_number_of_iterations(trips: int, batch: str, make: Make) -> None:
    """What the backward pass reads of a loop has it. The number is not known of this loop, but of another one."""
    shape = "f32[24,8,64]"
    stack = Buffer("while.1{1}", shape, (3, 7), "jit(f)/jvp()/while", "while(%init), condition=%cond, body=%body")
    gradient = Buffer("g", shape, (7, 8), "jit(f)/transpose(jvp())/mul")
    others = [loop("while.2", trips)] if trips else []
    (row,) = advice(program(make, [argument("x", "f32[24,8,32]", 0), stack, gradient, *others]), "batch")
    assert row["action"].startswith(f"Halve the batch of `x` ({batch}).")


def test_an_argument_without_activations_is_not_halved_instead(make: Make) -> None:
    """Such as the index that a program searches for each of its queries."""
    index = argument("index", "f32[4096,64]", 0)
    queries = [argument("queries", "s32[8,64]", 1), Buffer("h", "f32[8,512]", op_name="jit(f)/tanh")]
    (row,) = advice(program(make, [index, *queries]), "batch")
    assert row["action"] == "Halve the batch of `queries` (8 to 4)."


@pytest.mark.parametrize(("operation", "wanted"), [("dot_general", "(8 to 4)"), ("while/dot_general", "(64 to 32)")])
def test_a_loop_over_the_samples(operation: str, wanted: str, make: Make) -> None:
    """It has as many iterations as products outside of loops have samples: jax.lax.map computes attention like this."""
    stack = loop("while.1{1}", 8, "jit(f)/jvp()/while", live=(3, 7))._replace(shape="f32[8,64,32]")
    hidden = Buffer("dot.1", "f32[8,64,96]", (1, 7), f"jit(f)/jvp()/{operation}", "dot(%x, %y)")
    gradient = Buffer("g", "f32[8,64,96]", (7, 8), "jit(f)/transpose(jvp())/mul")
    dump = program(make, [argument("tokens", "s32[8,64]", 0), stack, hidden, gradient])
    (row,) = advice(dump, "batch")
    assert row["action"].startswith(f"Halve the batch of `tokens` {wanted}.")


@pytest.mark.parametrize(("samples", "found"), [(16, True), (24, True), (32, True), (40, False), (4, False)])
def test_a_step_that_joins_the_arrays_of_its_batch(samples: int, found: bool, make: Make) -> None:
    """Such as two answers to each question, or up to four crops of each image."""
    hidden = Buffer("dot.1", f"f32[{samples},64,96]", (1, 7), "jit(f)/jvp()/dot_general", "dot(%x, %y)")
    gradient = Buffer("g", hidden.shape, (7, 8), "jit(f)/transpose(jvp())/mul")
    rows = advice(program(make, [argument("batch", "s32[8,65]", 0), hidden, gradient]), "batch")
    assert [r["action"][:37] for r in rows] == (["Halve the batch of `batch` (8 to 4). "] if found else [])


def test_pairs_of_as_many_samples_as_layers(make: Make) -> None:
    """Tokens, and masks of the same dimensions, are no weights of layers."""
    stack = loop("while.1{1}", 8, "jit(f)/jvp()/while", live=(3, 7))._replace(shape="f32[8,16,64,32]")
    hidden = Buffer("dot.1", "f32[16,64,96]", (1, 7), "jit(f)/jvp()/dot_general", "dot(%x, %y)")
    gradient = Buffer("g", "f32[16,64,96]", (7, 8), "jit(f)/transpose(jvp())/mul")
    frozen = argument("frozen", "f32[8,32,32]", 2)
    tokens, mask = (argument(f"batch['{n}']", f"{t}[8,65]", i) for i, (n, t) in enumerate([("t", "s32"), ("m", "f32")]))
    (row,) = advice(program(make, [tokens, mask, frozen, stack, hidden, gradient]), "batch")
    assert row["action"].startswith("Halve the batch of `batch` (8 to 4).")
    assert advice(program(make, [mask, frozen, stack, hidden, gradient]), "batch") == []


def test_the_batch_of_a_training_step_of_tensorflow(make: Make) -> None:
    """Only the names of its backward pass tell that it trains: what it updates are weights, not the batch."""
    updated = "parameter 2, shape |f32[128,128]| at ShapeIndex {}, maybe-live-out:"
    dump = program(
        make,
        [
            argument("XLA_Args", "f32[64,128]", 0),
            argument("XLA_Args", "f32[64]", 1),
            argument("XLA_Args", "f32[128,128]", 2)._replace(allocation=updated),
            Buffer("h", "f32[64,128]", (1, 6), "dense/Relu"),
            Buffer("g", "f32[64,128]", (4, 6), "gradient_tape/dense/ReluGrad"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `argument 0` of shape f32[64,128] (64 to 32).")
    kinds = {r["op_name"]: (r["phase"], r["kind"]) for r in xlamem.live_set(dump, 5).to_pylist()}
    assert kinds["gradient_tape/dense/ReluGrad"] == ("backward", "gradient")


@pytest.mark.parametrize("backward", ["aten__nll_loss_backward", "Model.forward/aten__native_layer_norm_backward"])
def test_the_batch_of_a_training_step_of_pytorch(make: Make, backward: str) -> None:
    """Parts of its backward pass have names that tell. No output has a batch."""
    weights = "parameter 1, shape |f32[128,128]| at ShapeIndex {}, maybe-live-out:"
    dump = program(
        make,
        [
            argument("xla__device_data", "s64[64,16]", 0),
            argument("xla__device_data", "f32[128,128]", 1)._replace(allocation=weights),
            Buffer("h", "f32[64,16,128]", (1, 6), "aten__gelu"),
            Buffer("g", "f32[64,16,128]", (4, 6), backward),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `argument 0` of shape s64[64,16] (64 to 32). Gradients")


@pytest.mark.parametrize("named", [True, False])
def test_a_real_training_step_of_pytorch(named: bool, make: Make) -> None:
    """Without names, which PyTorch/XLA writes if it is asked to, nothing tells that it trains."""
    (path,) = PYTORCH.iterdir()
    text = path.read_bytes()
    dump = make({"buffer-assignment": text if named else re.sub(rb", metadata={[^}]*}", b"", text)})
    rows = advice(xlamem.read(dump), "batch")
    wanted = "Halve the batch of `argument 5` of shape f32[256,64] (256 to 128)."
    assert [r["action"][: len(wanted)] for r in rows] == ([wanted] if named else [])


@pytest.mark.parametrize(
    ("shapes", "found"),
    [
        (3 * ["f32[1536,512]"], 0), (["f32[1536,512]", "f32[1536]"], 0), (["f32[1536,512]"], 1),
        (2 * ["f32[128,64,3,3]"], 0),
    ],
)
def test_arrays_that_are_updated_may_be_weights(make: Make, shapes: list[str], found: int) -> None:
    """Without names, nothing tells weights and the state of an optimizer from caches."""
    updated = [
        argument("xla__device_data", shape, i)._replace(
            allocation=f"parameter {i}, shape |{shape}| at ShapeIndex {{}}, maybe-live-out:"
        )
        for i, shape in enumerate(shapes)
    ]
    hidden = Buffer("h", shapes[0], (1, 6))
    assert len(advice(program(make, [*updated, hidden]), "batch")) == found
    named = [b._replace(op_name=f"cache[{i}]") for i, b in enumerate(updated)]
    assert len(advice(program(make, [*named, hidden]), "batch")) == 1


def test_types_of_a_training_step_of_tensorflow(make: Make) -> None:
    """Any temporary without the name of the backward pass may belong to the forward pass, which has no names."""
    g = Buffer("g", "f32[64,128]", (4, 6), "gradient_tape/dense/ReluGrad")
    dump = program(make, [Buffer("h", "f32[64,128]", (1, 6), "dense/Relu"), g], platform="tpu")
    (row,) = advice(dump, "dtype")
    assert row["n_buffers"] == 2


def test_as_many_samples_as_layers(make: Make) -> None:
    """A batch is not read slice by slice, although a loop has as many iterations."""
    dump = program(
        make,
        [
            argument("tokens", "f32[8,32]", 0),
            loop("while.1", 8, "jit(f)/jvp()/while"),
            Buffer("h", "f32[8,512]", (3, 5), "jit(f)/jvp()/tanh"),
            Buffer("g", "f32[8,512]", (4, 5), "jit(f)/transpose(jvp())/mul"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `tokens` (8 to 4).")


def test_as_many_samples_as_layers_in_stacks(make: Make) -> None:
    """The loop over 8 layers stacks activations of 8 samples. Samples have the first dimensions of such activations."""
    stack = loop("while.1{1}", 8, "jit(f)/jvp()/while")._replace(shape="f32[8,8,32,64]", live=(3, 6))
    dump = program(
        make,
        [
            argument("params", "f32[8,64,64]", 0),
            argument("x", "f32[8,32,64]", 1),
            stack,
            Buffer("g", "f32[8,32,64]", (6, 7), "jit(f)/transpose(jvp())/mul"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `x` (8 to 4).")


@pytest.mark.parametrize(
    ("stack", "phase", "trips", "halves"),
    [
        ("f32[8,64,32]", "transpose(jvp())", 8, False), ("f32[8,32,64]", "transpose(jvp())", 8, False),
        ("f32[8,64,32]", "transpose(jvp())", 9, True), ("f32[8,64,32]", "jvp()", 8, True),
        ("f32[8,64,16]", "transpose(jvp())", 8, True), ("f32[8,64]", "transpose(jvp())", 8, True),
        ("f32[2,64,32]", "transpose(jvp())", 2, True),
    ],
)  # fmt: skip
def test_as_many_micro_batches_as_samples_and_heads(
    stack: str, phase: str, trips: int, *, halves: bool, make: Make
) -> None:
    """What stacks the gradients of 8 micro-batches does not halve with the batch: 0.4 GiB of 29.3 were saved."""
    shapes = ["f32[64,32]", "f32[64]"]
    weights = [argument(f"w.{i}", shape, i, uses=f"  w.{i}.new, operand 0") for i, shape in enumerate(shapes)]
    updated = [output(f"w.{i}.new", shape) for i, shape in enumerate(shapes)]
    x, h = argument("x", "f32[2,32]", 2), Buffer("h", "f32[2,4,2048]", (0, 8), "jit(f)/jvp()/tanh")
    g = Buffer("g", stack, (1, 8), f"jit(f)/{phase}/while/body/dynamic_update_slice")
    end = Buffer("e", "f32[16]", (7, 8), "jit(f)/transpose(jvp())/mul")
    (row,) = advice(program(make, [*weights, *updated, x, loop("while.1", trips), h, g, end]), "batch")
    half, more = (x.size + h.size) // 2, halves * g.size // 2
    assert row["lower"] == int(0.6 * (half + more))
    assert half + more <= row["upper"] <= 1.25 * (half + more) + 100


@pytest.mark.parametrize(("n", "confidence"), [(2, "try"), (6, "likely")])
def test_as_many_samples_as_experts(n: int, confidence: str, make: Make) -> None:
    """What experts compute has their number first, which does not halve with the batch."""
    dump = program(
        make,
        [
            argument("w", f"f32[{n},64,128]", 0, uses="  w.new, operand 0"),
            argument("x", "f32[2,32,64]", 1),
            output("w.new", f"f32[{n},64,128]"),
            Buffer("h", "f32[2,512,128]", (3, 8), "jit(f)/jvp()/tanh"),
            Buffer("g", "f32[2,512,128]", (6, 8), "jit(f)/transpose(jvp())/mul"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert (row["argument"], row["confidence"], row["lower"] > 0) == ("x", confidence, confidence == "likely")


def test_as_many_samples_as_layers_with_weights(make: Make) -> None:
    """Gradients of stacked weights have the number of layers first, which does not halve with the batch."""
    kept = Buffer("h", "f32[8,8,64]", (0, 8), "jit(f)/jvp()/while/body/tanh")
    gradients = Buffer("g", "f32[8,128,64]", (6, 8), "jit(f)/transpose(jvp())/while/body/dot_general")
    weights = [argument("w", "f32[8,128,64]", 0, uses="  w.new, operand 0"), output("w.new", "f32[8,128,64]")]
    dump = program(make, [*weights, argument("x", "f32[8,64]", 1), loop("while.1", 8), kept, gradients])
    (row,) = advice(dump, "batch")
    half = (8 * 8 * 64 + 8 * 64) * 4 // 2
    assert (row["argument"], row["lower"]) == ("x", int(0.6 * half))


@pytest.mark.parametrize(("is_training", "views"), [(False, 1), (True, 1), (True, 2)])
def test_pairs_of_samples_fall_to_a_quarter(is_training: bool, views: int, make: Make) -> None:
    """The similarities of a contrastive loss, 256 by 256, became 128 by 128; so do those of two views each."""
    n = 256 * views
    similarities = Buffer("h", f"f32[{n},{n}]", (0, 7), f"jit(f)/{'jvp()/' * is_training}dot_general")
    gradient = Buffer("g", "f32[256,8]", (7, 8), "jit(f)/transpose(jvp())/dot_general")
    buffers = [argument("x", "f32[256,8]", 0), similarities, *[gradient] * is_training]
    (row,) = advice(program(make, buffers), "batch")
    half = 256 * 8 * 4 // 2 + n * n * 4 // 2
    assert half + n * n <= row["upper"]
    assert ("All pairs of samples are compared" in row["action"]) == is_training
    if views == 1:
        assert row["lower"] <= half


@pytest.mark.parametrize(
    ("samples", "found"), [([16, 24], [8, 16, 24]), ([8, 16, 24], [8]), ([12, 20], [8]), ([], [8])]
)
def test_multiples_of_a_batch_are_its_views(
    samples: list[int], found: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless there are products of the batch itself."""
    monkeypatch.setattr(batches, "_samples", lambda a: np.array(samples))
    a: Any = None
    assert batches._views(a, 8) == found


def test_pairs_of_samples_that_a_loop_stacks(make: Make) -> None:
    """Iterations of optimal transport between all samples: half of these saved 19.2 of 25.6 GiB."""
    name = "jit(f)/jvp()/while"
    kept = Buffer("while.1{1}", "f32[50,64,64]", (2, 6), name, uses="  s.4, operand 0")
    gradient = Buffer("g", "f32[64,64]", (4, 5), "jit(f)/transpose(jvp())/while/body/mul")
    buffers = [argument("x", "f32[64,8]", 0), loop("while.1", 50, name, live=(2, 2)), kept, gradient]
    (row,) = advice(program(make, buffers), "batch")
    assert row["upper"] > kept.size * 3 // 4
    assert "All pairs of samples are compared" in row["action"]


@pytest.mark.parametrize("is_training", [False, True])
def test_weights_and_activations_are_no_pairs_of_samples(is_training: bool, make: Make) -> None:
    """Weights of 512 by 1024 that are converted for a batch of 8 do not shrink; what 256 tokens have falls to half."""
    name = f"jit(f)/{'jvp()/' * is_training}dot_general"
    tokens = [Buffer("h", "f32[2048,64]", (0, 7), name), Buffer("g", "f32[8,8]", (7, 8), "jit(f)/transpose(jvp())/mul")]
    weights = [Buffer("w", "f32[512,1024]", (0, 7), "jit(f)/mul"), Buffer("h", "f32[8,900]", (0, 7), name)]
    (row,) = advice(program(make, [argument("x", "f32[8,256]", 0), *(tokens if is_training else weights)]), "batch")
    half = 8 * 256 * 4 // 2 + (2048 * 64 if is_training else 8 * 900) * 4 // 2
    assert row["lower"] <= half <= row["upper"] < 1.3 * half


@pytest.mark.parametrize(("width", "coupled"), [(512, False), (256, True)])
def test_features_twice_as_many_as_samples(width: int, coupled: bool, make: Make) -> None:
    """Activations of 256 samples with 512 features are no pairs of samples: weights have 512 features, too."""
    h = Buffer("h", f"f32[256,{width}]", (0, 7), "jit(f)/jvp()/dot_general")
    gradient = Buffer("g", f"f32[256,{width}]", (6, 8), "jit(f)/transpose(jvp())/mul")
    weights = [argument("w", "f32[64,512]", 0, uses="  w.new, operand 0"), output("w.new", "f32[64,512]")]
    dump = program(make, [*weights, argument("x", "f32[256,64]", 1), h, gradient])
    (row,) = advice(dump, "batch")
    assert LayerActivations(WhatIf(program_of(dump))).is_state.any()
    assert ("All pairs of samples are compared" in row["action"]) == coupled


@pytest.mark.parametrize(("width", "coupled"), [(288, False), (256, True)])
def test_a_tenth_of_the_temporaries_of_pairs_of_samples_is_not_mentioned(width: int, coupled: bool, make: Make) -> None:
    pairs = Buffer("s", "f32[64,64]", (0, 7), "jit(f)/jvp()/dot_general")
    h = Buffer("h", f"f32[64,2,{width}]", (0, 7), "jit(f)/jvp()/tanh")
    gradient = Buffer("g", "f32[64,8]", (8, 8), "jit(f)/transpose(jvp())/mul")
    (row,) = advice(program(make, [argument("x", "f32[64,8]", 0), pairs, h, gradient]), "batch")
    assert ("All pairs of samples are compared" in row["action"]) == coupled


def test_features_of_layers_that_are_computed_together(make: Make) -> None:
    """Eight members of an ensemble, 32 features each, multiply 64 samples in one product: they are no pairs of them."""
    h = Buffer("h", "f32[64,256]", (0, 7), "jit(f)/vmap(jvp())/dot_general")
    gradient = Buffer("g", "f32[64,256]", (6, 8), "jit(f)/vmap(transpose(jvp()))/mul")
    weights = [argument("w", "f32[8,16,32]", 0, uses="  w.new, operand 0"), output("w.new", "f32[8,16,32]")]
    (row,) = advice(program(make, [*weights, argument("x", "f32[64,16]", 1), h, gradient]), "batch")
    assert "All pairs of samples" not in row["action"]
    (row,) = advice(program(make, [argument("x", "f32[64,16]", 1), h, gradient]), "batch")
    assert "All pairs of samples" in row["action"]


def test_several_inputs_without_a_backward_pass(make: Make) -> None:
    """A program that generates text gets a cache and tokens, and returns tokens."""
    cache = argument("cache", "f32[8,32,2,16]", 0)
    h = Buffer("h", "f32[8,2,16,32]", (0, 7), "jit(f)/transpose")
    tokens = [argument("tokens", "s32[8]", 1), output("y", "s32[8]")]
    weights = argument("w", "f32[64,64]", 2)
    (row,) = advice(program(make, [cache, *tokens, weights, h]), "batch")
    assert row["action"] == "Halve the batch of `cache` (8 to 4)."
    assert row["lower"] <= (cache.size + h.size) // 2 <= row["upper"]
    # Weights may have as many rows, or results no samples.
    assert not advice(program(make, [cache, *tokens, argument("w", "f32[8,64]", 2), h]), "batch")
    assert not advice(program(make, [cache, argument("m", "s32[8,4]", 1), output("y", "s32[]"), weights, h]), "batch")
    assert advice(program(make, [cache, argument("m", "s32[8,4]", 1), output("y", "f32[8]"), weights, h]), "batch")


@pytest.mark.parametrize("dimensions", ["8,512", "16,512", "512,8"])
def test_activations_in_vmem(dimensions: str, make: Make) -> None:
    """The main memory of a TPU has only arguments and outputs, of which half a batch saves half."""
    x, y = argument("x", "f32[8,4096]", 0), output("y", "f32[8,4096]")
    h = Buffer("h", f"f32[{dimensions}]", op_name="jit(f)/tanh", allocation="color 1, preallocated-temp:")
    rows = advice(program(make, [x, y, h], "tpu"), "batch")
    assert [r["action"] for r in rows] == ["Halve the batch of `x` (8 to 4)."] * dimensions.startswith("8")
    assert all(r["lower"] <= x.size <= r["upper"] for r in rows)


@pytest.mark.parametrize("dimensions", ["8,512", "512,8"])
def test_activations_in_the_memory_of_an_output(dimensions: str, make: Make) -> None:
    """There may be no others that show that the program computes something of 8 samples."""
    y = output("y", "f32[5000]", more=value(9, "t", 16 * KIB, 0, f"f32[{dimensions}]"))
    rows = advice(program(make, [argument("x", "f32[8,4096]", 0), y], "gpu", ranges=["t{}:2-5"]), "batch")
    assert len(rows) == dimensions.startswith("8")


@pytest.mark.parametrize(("width", "confidence"), [(8, "try"), (64, "likely")])
def test_a_small_batch_of_a_tpu_program(width: int, confidence: str, make: Make) -> None:
    """Half the batch of a recommender cost 88 MiB of 2.6 GiB, because its tables were updated in another order."""
    table = Buffer("t", "f32[4096,64]", (0, 7), "jit(f)/scatter-add")
    h = Buffer("h", f"f32[256,{width}]", (0, 7), "jit(f)/jvp()/tanh")
    gradient = Buffer("g", f"f32[256,{width}]", (6, 8), "jit(f)/transpose(jvp())/mul")
    (row,) = advice(program(make, [argument("x", "f32[256,8]", 0), table, h, gradient], "tpu"), "batch")
    assert (row["confidence"], row["lower"] < 0) == (confidence, confidence == "try")
    (row,) = advice(program(make, [argument("x", "f32[256,8]", 0), table, h, gradient], "gpu"), "batch")
    assert row["confidence"] == "likely"


def test_activations_in_the_memory_of_a_donated_argument(make: Make) -> None:
    """What the compiler puts there after the last use of the argument says nothing about its dimensions."""
    donated = "parameter 1, shape |f32[32,64]| at ShapeIndex {}, maybe-live-out:"
    lent = value(9, "t", 8 * KIB, 0, "f32[16,128]")
    w = argument("w", "f32[32,64]", 1)._replace(allocation=donated, live=(0, 2), more=lent)
    h = Buffer("h", "f32[16,128]", (1, 7), "jit(f)/jvp()/tanh")
    gradient = Buffer("g", "f32[16,128]", (6, 8), "jit(f)/transpose(jvp())/mul")
    x = argument("x", "f32[16,8]", 0)
    (row,) = advice(program(make, [x, w, h, gradient], ranges=["t{}:3-5"]), "batch")
    assert row["lower"] <= (x.size + h.size + gradient.size) // 2 <= row["upper"]
    assert row["lower"] > h.size // 2


def test_nodes_and_edges(make: Make) -> None:
    """Of two batches, that of which most bytes are known to depend is halved: most activations have the edges first."""
    nodes = Buffer("h", "f32[64,32]", (0, 7), "jit(f)/jvp()/add")
    edges = Buffer("m", "f32[512,32]", (0, 7), "jit(f)/jvp()/gather")
    gradient = Buffer("g", "f32[512,32]", (6, 8), "jit(f)/transpose(jvp())/mul")
    arguments = [argument("x", "f32[64,32]", 0), argument("source", "s32[512]", 1)]
    (row,) = advice(program(make, [*arguments, nodes, edges, gradient]), "batch")
    assert row["action"].startswith("Halve the batch of `source` (512 to 256).")


@pytest.mark.parametrize(("updated", "n"), [("s32[8]", 1), ("f32[8,512]", 0)])
def test_a_small_array_of_a_batch_may_have_the_size_of_an_output(updated: str, n: int, make: Make) -> None:
    """Such as the lengths of the samples, and the loss. If most bytes could be donated, it is a state."""
    arguments = [argument("batch['x']", "f32[8,512]", 0), argument("batch['lengths']", "s32[8]", 1)]
    forward = Buffer("h", "f32[8,4096]", (0, 7), "jit(f)/jvp()/add")
    gradient = Buffer("g", "f32[8,4096]", (6, 8), "jit(f)/transpose(jvp())/mul")
    dump = program(make, [*arguments, output("loss", updated), forward, gradient])
    assert len(advice(dump, "batch")) == n


def test_the_allocation_of_an_argument_halves(make: Make) -> None:
    """It may be larger than the argument."""
    p = program_of(program(make, [argument("x", "f32[64,1024]", 0), Buffer("h", "f32[64,128]", op_name="jit(f)/tanh")]))
    p.allocation_size = np.where(p.category == PARAMETER, p.allocation_size + 4096, p.allocation_size)
    (found,) = batches.smaller_batches(LayerActivations(WhatIf(p)))
    assert found.lower == int(0.6 * (64 * (1024 + 128) * 4 + 4096) / 2)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_arguments_and_outputs_halve_as_well(platform: str, make: Make) -> None:
    """They are larger than the temporaries, which alone limit what moves to VMEM, and what another schedule costs."""
    dump = program(
        make,
        [
            argument("x", "f32[64,1024]", 0),
            output("y", "f32[64,1024]"),
            Buffer("h", "f32[64,128]", op_name="jit(f)/tanh"),
        ],
        platform,
    )
    (row,) = advice(dump, "batch")
    half, temporary = 64 * (1024 + 1024 + 128) * 4 // 2, 64 * 128 * 4
    rescheduled = temporary // 20 if platform == "tpu" else 0
    assert (row["lower"], row["upper"]) == (int(0.6 * half) - rescheduled, half + temporary // 2)


@pytest.mark.parametrize(
    ("shape", "halves"),
    [
        ("f32[12,64,32]{2,1,0:T(8,128)}", True), ("f32[12,64,32]{2,0,1:T(8,128)}", False),
        ("f32[768,32]{1,0:T(8,128)}", True), ("f32[768,32]{0,1:T(8,128)}", True), ("f32[768,32]{0,1:T(8,384)}", True),
        ("f32[12,768]{1,0:T(8,128)}", False), ("f32[12,1536,32]{2,1,0:T(8,768)}", True),
    ],
)  # fmt: skip
def test_half_a_batch_in_a_tile(shape: str, halves: bool, make: Make) -> None:
    """6 samples take as much as 8 in this layout, and more in another one. 768 are 12 times 64."""
    x, joined = argument("x", "f32[12,64]", 0), Buffer("g", "f32[12,64,8]", (8, 9), "jit(f)/sin")
    hidden = Buffer("h", shape, (0, 7), "jit(f)/tanh")
    (row,) = advice(program(make, [x, hidden, joined]), "batch")
    assert row["lower"] == int(0.6 * (x.size + hidden.size * halves) / 2)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["f.1", "f.2"], 0), (["f.1.remat", "f.2"], 1), (["f.1.remat", "f.2.remat3"], 2),
        (["f.1.remat.4", "f.remat.x"], 1),
    ],
)  # fmt: skip
def test_what_xla_rematerializes_may_be_kept_instead(names: list[str], kept: int, make: Make) -> None:
    """Half the batch of a U-Net saved 0.7 GiB of 13.7: XLA had rematerialized 15 GiB, of which it kept the halves."""
    h = Buffer("h", "f32[64,8192]", op_name="jit(f)/tanh")
    clones = [Buffer(name, "f32[64,1024]", (4 + 3 * i, 5 + 3 * i), "jit(f)/mul") for i, name in enumerate(names)]
    x, c = argument("x", "f32[64,32]", 0), clones[0].size
    (row,) = advice(program(make, [x, h, *clones], "gpu"), "batch")
    more = max(0, 2 * kept * c - c) // 2
    assert row["lower"] == int(0.6 * (x.size + h.size + c) / 2) - int(0.6 * int(1.25 / 2 * more))


@pytest.mark.parametrize(
    ("others", "levels"),
    [
        ([], [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]), ([("f.1", (1, 2))], [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]),
        ([("f.1.remat2", (8, 9))], [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]), ([("f.1", (0, 7))], [0] * 10),
        ([("f.2.remat", (2, 3))], [2, 2, 1, 1, 1, 1, 0, 0, 0, 0]), ([("f.1.remat2", (0, 1))], [1] * 6 + [0] * 4),
    ],
)  # fmt: skip
def test_when_an_original_would_be_kept(others: list[tuple[str, Live]], levels: list[int], make: Make) -> None:
    """From its last use until the last clone; one that is gone from the start."""
    buffers = [Buffer(name, "f32[64,64]", live) for name, live in [("f.1.remat", (6, 7)), *others]]
    kept = LayerActivations(WhatIf(program_of(program(make, buffers)))).kept_otherwise
    assert (kept // buffers[0].size).tolist()[:10] == levels


def test_half_a_batch_may_cost_memory_where_xla_rematerializes(make: Make) -> None:
    """Half the batch of a U-Net cost 1.4 GiB of 15.3. More than a part of the temporaries is not assumed."""
    h = Buffer("h", "f32[64,8192]", op_name="jit(f)/tanh")
    clones = [Buffer(f"f.{i}.remat", "f32[64,8192]", (i, i), "jit(f)/mul") for i in range(10)]
    (row,) = advice(program(make, [argument("x", "f32[64,32]", 0), h, *clones], "gpu"), "batch")
    assert (row["lower"], row["confidence"]) == (-int(0.15 * 2 * h.size), "try")


@pytest.mark.parametrize(("platform", "moves"), [("gpu", False), ("tpu", True)])
def test_temporaries_may_leave_the_outputs(platform: str, moves: bool, make: Make) -> None:
    """Those of a diffusion transformer did for half the batch, which saved 0.4 of 4.9 GiB."""
    y = output("y", "f32[64,1024]", more=value(9, "t", 256 * KIB, 0, "f32[64,1024]"))
    h = Buffer("h", "f32[64,8192]", op_name="jit(f)/tanh")
    x = argument("x", "f32[64,32]", 0)
    lower = []
    for name in ("t", "u"):  # without a live range, there is no temporary
        (row,) = advice(program(make, [x, y, h], platform, ranges=[f"{name}{{}}:0-8"]), "batch")
        lower.append(row["lower"])
    assert lower[0] < lower[1] if moves else lower[0] == lower[1]


@pytest.mark.parametrize(
    ("memory", "room", "counts"), [(0, 12 * KIB, True), (0, 12 * KIB - 4, False), (1, 12 * KIB, False)]
)
def test_half_of_a_buffer_may_fit_into_an_output(memory: int, room: int, counts: bool, make: Make) -> None:
    """If the output is as large as that, and the buffer is in the same memory."""
    h = Buffer("h", "f32[64,96]", op_name="jit(f)/tanh")
    if memory:
        h = h._replace(allocation=f"color {memory}, preallocated-temp:")
    y = output("y", f"f32[{room // 4}]", more=value(9, "t", KIB, 0, "f32[256]"))
    others = [y, Buffer("g", "f32[100,1000]", op_name="jit(f)/sin")]
    x = argument("x", "f32[64,32]", 0)
    (row,) = advice(program(make, [x, h, *others], "tpu" if memory else "gpu", ranges=["t{}:0-5"]), "batch")
    assert row["upper"] == int(1.25 * (x.size + h.size) / 2) + (room - KIB) * counts


@pytest.mark.parametrize("trips", [2, 3])
def test_what_is_left_of_a_large_buffer_may_move_to_vmem(trips: int, make: Make) -> None:
    """A rollout of 128 MiB became 64 MiB in VMEM with half the batch. Half of 192 MiB does not fit into VMEM.

    What the arena has for buffers at other steps than the peak may not be needed either.
    """
    stack = Buffer("h", f"f32[{trips},1024,16384]", (0, 7), "jit(f)/while/body/tanh")
    x, other = argument("x", "f32[1024,8]{1,0:T(8,128)}", 0), Buffer("g", "f32[1024,1024]", (8, 9))
    (row,) = advice(program(make, [x, loop("while.1", trips), stack, other], "tpu"), "batch")
    assert row["upper"] >= stack.size + other.size if trips == 2 else row["upper"] < 0.9 * stack.size


def test_what_is_left_of_several_buffers_may_move_to_vmem(make: Make) -> None:
    """Of four caches of 31 MiB, half the batch leaves 62 MiB, which fit into VMEM."""
    caches = [Buffer(f"h.{i}", "f32[1024,8000]", (0, 7), "jit(f)/while/body/gather") for i in range(4)]
    x = argument("x", "f32[1024,8]{1,0:T(8,128)}", 0)
    (row,) = advice(program(make, [x, loop("while.1", 5), *caches], "tpu"), "batch")
    assert row["upper"] >= 4 * caches[0].size


def test_the_buffer_of_a_row_has_its_scope(make: Make) -> None:
    """Most bytes are those of the layers, although the logits are the largest buffer."""
    layers = [Buffer(f"h.{i}", "f32[8,512]", op_name=f"jit(f)/layer_{i}/tanh") for i in range(4)]
    logits = Buffer("logits", "f32[8,1024]", op_name="jit(f)/head/dot_general")
    (row,) = advice(program(make, [argument("x", "f32[8,16]", 0), logits, *layers]), "batch")
    assert (row["scope"], row["shape"], row["n_buffers"]) == ("layer_*", "f32[8,512]", 6)


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_batch_on_each_device(is_partitioned: bool, make: Make) -> None:
    """The shapes of a program for several devices are those of the shards."""
    gathered = Buffer("g", "f32[8,16]", instruction="all-gather(%h)" if is_partitioned else "copy(%h)")
    hidden = Buffer("h", "f32[8,512]", op_name="jit(f)/tanh")
    (row,) = advice(program(make, [argument("x", "f32[8,16]", 0), hidden, gathered]), "batch")
    where = " on each device" if is_partitioned else ""
    assert row["action"] == f"Halve the batch of `x`{where} (8 to 4)."


def test_a_random_key_is_no_batch(make: Make) -> None:
    """A key is two integers, as the counters of the generator are two arrays in one; it may be part of the batch."""
    counters = Buffer("c", "u32[2,1024]", (2, 6), "jit(f)/random_bits")
    assert advice(program(make, [argument("key", "u32[2]", 0), counters]), "batch") == []
    noise = Buffer("n", "f32[8,1024]", (2, 6), "jit(f)/add")
    batch = [argument("batch['rng']", "u32[2]", 0), argument("batch['x']", "f32[8,16]", 1)]
    (row,) = advice(program(make, [*batch, counters, noise]), "batch")
    assert row["action"] == "Halve the batch of `batch` (8 to 4)."


def test_a_dimension_of_features_is_no_batch(make: Make) -> None:
    """A recurrent cell multiplies [x, h], of 48 features each, by weights that have 96 rows."""
    dump = program(
        make,
        [argument("w", "f32[96,192]", 0), Buffer("xh", "f32[32,96]", op_name="jit(f)/while/body/concatenate")],
    )
    assert advice(dump, "batch") == []


def test_what_has_the_batch_first_and_last_depends_on_it(make: Make) -> None:
    """Such as scores of 64 samples, beside a few bytes that have 64 features."""
    h, g = Buffer("h", "f32[64,5,64]", op_name="jit(f)/tanh"), Buffer("g", "f32[5,64]", op_name="jit(f)/sin")
    assert len(advice(program(make, [argument("x", "f32[64,16]", 0), h, g]), "batch")) == 1


def test_the_batch_is_not_the_width_of_an_embedding(make: Make) -> None:
    """Most bytes of activations have the 64 features last. A product of the batch and a sequence may be first."""
    dump = program(
        make,
        [
            argument("ids", "f32[128,10]", 0),
            argument("y", "f32[64,16]", 1),
            Buffer("e", "f32[1280,1,64]", (3, 5), "jit(f)/jvp()/gather"),
            Buffer("g", "f32[1280,1,64]", (4, 5), "jit(f)/transpose(jvp())/mul"),
        ],
    )
    (row,) = advice(dump, "batch")
    assert row["action"].startswith("Halve the batch of `ids` (128 to 64).")


@pytest.mark.parametrize(
    ("msa", "others", "wanted"),
    [
        ("f32[16,64,23]", [], None),  # another relation of the same residues: no batch
        ("f32[64,16,23]", [], "`pair` (64 to 32)"),
        ("f32[16,48,23]", [], "`msa` (16 to 8)"),
        ("f32[16,64,23]", [("y", "f32[16,5]")], "`msa` (16 to 8)"),  # several inputs have this number of samples
        ("f32[16,64,23]", [("msa['y']", "f32[16,5]")], "`msa` (16 to 8)"),
    ],
)
def test_one_protein_for_each_step(
    msa: str, others: list[tuple[str, str]], wanted: str | None, make: Make
) -> None:
    """Pairs of residues, and sequences that are aligned with them: half of the residues is no half of a batch."""
    inputs = [("pair", "f32[64,64,65]"), ("msa['x']", msa), *others]
    arguments = [argument(name, shape, i) for i, (name, shape) in enumerate(inputs)]
    m, z = (Buffer(shape, shape, (0, 7), "jit(f)/jvp()/add") for shape in ("f32[16,64,96]", "f32[64,64,24]"))
    gradient = Buffer("g", "f32[16,64,96]", (6, 8), "jit(f)/transpose(jvp())/mul")
    buffers = [*arguments, m._replace(name="m"), z._replace(name="z"), gradient]
    rows = advice(program(make, buffers), "batch")
    assert [re.findall("`.*", row["action"].partition(". ")[0])[0] for row in rows] == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("inputs", "confidence"),
    [
        (["f32[64,64,3]"], "try"),  # one image, as high as wide
        (["f32[64,64,3]", "s32[64]"], "likely"),
        (["f32[64,64,3]", "f32[64,64]"], "try"),
        (["s32[64,64]"], "likely"),
    ],
)
def test_inputs_that_have_a_number_twice(inputs: list[str], confidence: str, make: Make) -> None:
    """The first dimension may be none of samples, except for tokens."""
    arguments = [argument(f"x{i}", shape, i) for i, shape in enumerate(inputs)]
    h = Buffer("h", "f32[64,64,24]", (0, 7), "jit(f)/jvp()/add")
    gradient = Buffer("g", "f32[64,64,24]", (6, 8), "jit(f)/transpose(jvp())/mul")
    (row,) = advice(program(make, [*arguments, h, gradient]), "batch")
    assert row["confidence"] == confidence
    assert (row["lower"] > 0) == (confidence == "likely")


# -- element types -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("platform", "reader", "element_type", "confidence"),
    [
        ("cpu", "fusion(%p.0), kind=kLoop, calls=%f", "f32", "try"),
        ("cpu", "fusion(%p.0), kind=kCustom, calls=%f", "f32", "try"),
        ("cpu", "dot(%p.0, %p.0)", "f32", "try"),
        ("cpu", "dot(%p.0, %p.0)", "f64", "likely"),
        ("tpu", "dot(%p.0, %p.0)", "f32", "likely"),
    ],
)
def test_an_argument_in_a_type_without_instructions(
    platform: str, reader: str, element_type: str, confidence: str, make: Make
) -> None:
    """On a CPU, what is kept in bf16 is converted to f32, for which there may be a copy."""
    x = argument("x", f"{element_type}[128,256]", 0, uses="  h, operand 0")
    dump = program(make, [x, Buffer("h", "f32[128,16]", (1, 5), "jit(f)/a", reader)], platform)
    (row,) = [row for row in advice(dump, "dtype") if row["argument"] == "x"]
    half = 128 * 256 * 4 // 2
    assert (row["confidence"], row["lower"]) == (confidence, -half if confidence == "try" else int(0.4 * half))


@pytest.mark.parametrize(("platform", "element_type", "n"), [("cpu", "f32", 0), ("cpu", "f64", 1), ("gpu", "f32", 1)])
def test_activations_in_a_type_without_instructions(platform: str, element_type: str, n: int, make: Make) -> None:
    """CPUs compute in f32 instead of bf16."""
    h = Buffer("h", f"{element_type}[128,16]", op_name="jit(f)/tanh")
    assert len(advice(program(make, [argument("x", "s32[128]", 0), h], platform), "dtype")) == n


@pytest.mark.parametrize(
    ("element_type", "op_name", "n"),
    [
        ("f32", "fft", 1), ("f32", "jit(fft)/fft[fft_lengths=(64,) fft_type=jaxlib.hlo.FftType.RFFT]", 1),
        ("f32", "jit(fft)", 1), ("f32", "jit(fft)/jit(_rfft_transpose)/mul", 2), ("f64", "fft", 2),
    ],
)  # fmt: skip
def test_fourier_transforms_have_no_bfloat16(element_type: str, op_name: str, n: int, make: Make) -> None:
    """Other buffers of the convolution that uses them may have it."""
    h = Buffer("h", f"{element_type}[128,16]", op_name="jit(f)/fft/tanh")
    stage = h._replace(name="s", op_name=f"jit(f)/{op_name}")
    (row,) = advice(program(make, [argument("x", "s32[128]", 0), h, stage], "gpu"), "dtype")
    assert row["n_buffers"] == n


@pytest.mark.parametrize(("name", "more"), [("f.1", False), ("f.1.remat", True)])
def test_a_narrower_type_where_xla_rematerializes(name: str, more: bool, make: Make) -> None:
    """With gradients in bf16, XLA computed another buffer twice, too, which saved three times as much."""
    h = Buffer("h", "f32[128,16]", op_name="jit(f)/tanh")
    others = [Buffer("x.1", "bf16[64,64]"), Buffer("x.2", "bf16[64,32]"), Buffer(name, "bf16[64,2]", (2, 3))]
    (row,) = advice(program(make, [argument("x", "s32[128]", 0), h, *others], "gpu"), "dtype")
    assert row["upper"] == int(1.47 * h.size / 2) + more * others[0].size


@pytest.mark.parametrize(("scope", "n"), [("jvp(mlp)", 1), ("mlp", 2)])
def test_what_no_forward_pass_computes_keeps_its_type(scope: str, n: int, make: Make) -> None:
    """Such as what an optimizer computes. In a program without a forward pass, it is not known."""
    buffers = [
        Buffer("h", "f32[128,16]", op_name=f"jit(f)/{scope}/tanh"),
        Buffer("u", "f32[128,16]", op_name="jit(f)/optimizer/mul"),
    ]
    (row,) = advice(program(make, [argument("x", "s32[128]", 0), *buffers], "gpu"), "dtype")
    assert row["n_buffers"] == n


@pytest.mark.parametrize("kind", ["kLoop", "kCustom"])
def test_an_argument_that_is_updated_needs_no_copy(kind: str, make: Make) -> None:
    x = argument("x", "f32[128,256]", 0, uses="  y, operand 0")
    y = output("y", "f32[128,256]", op_name="jit(f)/add", instruction=f"fusion(%p.0), kind={kind}, calls=%f")
    (row,) = advice(program(make, [x, y]), "dtype")
    assert row["confidence"] == ("likely" if kind == "kLoop" else "try")


@pytest.mark.parametrize(
    ("op_name", "shape", "is_kept"),
    [
        ("state.opt_state[0].nu['w']", "f32[128,256]", True),
        ("state['exp_avg_sq']['w']", "f32[128,256]", True),
        ("state.opt_state[0].mu['w']", "f32[128,256]", False),
        ("state['menu']['w']", "f32[128,256]", False),
        ("state.opt_state[0].nu['w']", "f64[128,256]", False),
    ],
)
def test_second_moments_need_more_than_bfloat16(op_name: str, shape: str, is_kept: bool, make: Make) -> None:
    """With a decay of 0.999, they would not change. Those alone are no argument to keep in bfloat16."""
    moments, params = argument(op_name, shape, 0), argument("state.params['w']", "f32[128,256]", 1)
    (row,) = (r for r in advice(program(make, [moments, params], "tpu"), "dtype") if r["argument"])
    half = 128 * 256 * 4 // 2
    size = half if is_kept or "f64" in shape else 2 * half
    if "f64" not in shape:
        assert (row["n_buffers"], row["lower"]) == (1 if is_kept else 2, int(0.4 * size))
    assert ("f32, except Adam's second moments, if that is precise enough." in row["action"]) == is_kept
    alone = [r for r in advice(program(make, [moments], "tpu"), "dtype") if r["argument"]]
    assert len(alone) == (not is_kept)


@pytest.mark.parametrize(
    ("dimensions", "is_last"),
    [((16, 8), True), ((8, 16), False), ((8,), False), ((16, 1, 8), True), ((8, 1), False), ((16, 8, 1), False)],
)
def test_the_last_of_several_dimensions(dimensions: tuple[int, ...], is_last: bool) -> None:
    padded = np.array([dimensions + (0,) * (4 - len(dimensions))])
    assert _is_last(padded, 8).tolist() == [is_last]
