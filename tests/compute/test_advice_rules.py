"""Advice on small programs, of which each is like one that was recompiled with a half batch or without activations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attacks
import numpy as np
import pytest
from attacks import record, value

import xlamem
from xlamem.compute.layers import LayerActivations
from xlamem.compute.program import program as program_of
from xlamem.compute.what_if import MAX_GROUPS, WhatIf, largest_groups

Make = Callable[..., Path]
Row = dict[str, Any]
KIB = 1 << 10


class Buffer(NamedTuple):
    """A temporary, or an allocation of its own if that is given."""

    name: str
    shape: str
    live: tuple[int, int] = (0, 9)
    op_name: str = ""
    instruction: str = "add(%x, %x)"
    allocation: str = ""
    positions: str = ""
    uses: str = ""
    more: str = ""
    """Other values in the allocation."""
    frame: int = 0

    @property
    def size(self) -> int:
        return 4 * math.prod(int(n) for n in re.findall(r"\d+", self.shape.partition("[")[2].partition("]")[0]))


def argument(name: str, shape: str, number: int, **others: Any) -> Buffer:
    allocation = f"parameter {number}, shape |{shape}| at ShapeIndex {{}}:"
    return Buffer(f"p.{number}", shape, (0, 9), name, f"parameter({number})", allocation, **others)


def output(name: str, shape: str, **others: Any) -> Buffer:
    return Buffer(name, shape, (9, 10), allocation=f"output shape is |{shape}|, maybe-live-out:", **others)


def loop(name: str, trips: int, op_name: str = "jit(f)/while", **others: Any) -> Buffer:
    config = f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}'
    instruction = f"while(%init), condition=%cond, body=%body, {config}"
    return Buffer(name, "s32[]", op_name=op_name, instruction=instruction, **others)


BACKEND = {"cpu": "cpu_", "gpu": "sm_9.0_gpu_", "tpu": "cl_1."}


def program(
    make: Make, buffers: Sequence[Buffer], platform: str = "cpu", ranges: Sequence[str] = (), **others: str
) -> xlamem.Dump:
    """Return a program of ten steps with these buffers; the temporaries lie one after the other."""
    own, temps, end = "", "", 0
    for i, b in enumerate(buffers):
        if b.allocation:
            own += f"allocation {i + 1}: size {b.size}, {b.allocation}\n"
            own += value(i, b.name, b.size, 0, b.shape) + b.more
        else:
            temps += value(i, b.name, b.size, end, b.shape)
            end += b.size
    frames = [f" stack_frame_id={b.frame}" if b.frame else "" for b in buffers]
    pairs = zip(buffers, frames, strict=True)
    metadata = [f', metadata={{op_name="{b.op_name}"{frame}}}' if b.op_name else "" for b, frame in pairs]
    records = [
        record(i, b.name, f"{b.shape} {b.instruction}{m}", b.positions, b.uses)
        for i, (b, m) in enumerate(zip(buffers, metadata, strict=True))
    ]
    names = [b.name if "{" in b.name else f"{b.name}{{}}" for b in buffers]
    members = attacks.dump(
        [temps, own],
        size=end,
        steps=10,
        records=records,
        ranges=[*(f"{name}:{b.live[0]}-{b.live[1]}" for name, b in zip(names, buffers, strict=True)), *ranges],
        **others,
    )
    return xlamem.read(make(members, f"{BACKEND[platform]}after_optimizations"))


def advice(dump: xlamem.Dump, kind: str) -> list[Row]:
    return [r for r in xlamem.advise(dump).to_pylist() if r["kind"] == kind]


# -- batch ---------------------------------------------------------------------------------------


def test_the_number_of_layers_is_no_batch(make: Make) -> None:
    """A decoder scans over 12 layers of weights and of a cache; the batch is 8."""
    dump = program(
        make,
        [
            argument("params['w']", "f32[12,64,16]", 0),
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
    assert row["action"].startswith("Halve the batch of `parameter 0` (64 to 32).")
    kinds = {r["op_name"]: (r["phase"], r["kind"]) for r in xlamem.live_set(dump, 5).to_pylist()}
    assert kinds["gradient_tape/dense/ReluGrad"] == ("backward", "gradient")


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


@pytest.mark.parametrize("trips", [2, 64])
def test_what_is_left_of_a_large_buffer_may_move_to_vmem(trips: int, make: Make) -> None:
    """A rollout of 128 MiB became 64 MiB in VMEM with half the batch. Half of 4 GiB does not fit into VMEM.

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


@pytest.mark.parametrize("kind", ["kLoop", "kCustom"])
def test_an_argument_that_is_updated_needs_no_copy(kind: str, make: Make) -> None:
    x = argument("x", "f32[128,256]", 0, uses="  y, operand 0")
    y = output("y", "f32[128,256]", op_name="jit(f)/add", instruction=f"fusion(%p.0), kind={kind}, calls=%f")
    (row,) = advice(program(make, [x, y]), "dtype")
    assert row["confidence"] == ("likely" if kind == "kLoop" else "try")


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


@pytest.mark.parametrize("is_copied", [False, True])
@pytest.mark.parametrize("is_update", [False, True])
def test_gradients_may_not_replace_weights(is_update: bool, is_copied: bool, make: Make) -> None:
    """An update follows, for which the weights must be there. One that is part of the program reads them as it writes.

    Its name may be that of the gradient with which it is fused. On a TPU, it may be written to VMEM and copied.
    """
    named = {"op_name": "jit(f)/transpose(jvp())/dot_general"}
    written = [output("y", "f32[128,256]", **named)]
    if is_copied:
        fusion = Buffer("y", "f32[128,256]", (6, 7), instruction="fusion(%p.0)", uses="  c, operand 0", **named)
        written = [output("c", "f32[128,256]", instruction="copy(%y)"), fusion]
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
    root = Buffer("s.9", "(f32[128,256])", (9, 10), instruction="tuple(%s.8)")

    def rows(*others: Buffer) -> list[Row]:
        first = argument("x", shape, 0, uses="  s.8, operand 0\n  s.2, operand 0")
        return advice(program(make, [first, y, segments, last, root, *others], platform), "donate")

    (row,) = rows()
    is_apart = reader in ("s.3", "s.9") and platform != "tpu"
    assert (row["lower"] == 0, row["confidence"] == "try") == (is_apart, is_apart)
    (row,) = rows(argument("x", shape, 1, uses="  s.7, operand 0"), z)
    assert 0 < row["lower"] < (y.size if is_apart else 2 * y.size)


@pytest.mark.parametrize("shape", ["f32[64,32]", "f32[32,64]", "s32[64,32]"])
def test_an_argument_that_an_output_does_not_replace(shape: str, make: Make) -> None:
    """It has as many bytes by chance, as a weight and the result of an inference may have."""
    w = argument("w", "f32[64,32]", 0, uses="  y, operand 0")
    y = output("y", shape, op_name="jit(f)/add", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    (row,) = advice(program(make, [w, y]), "donate")
    assert ("donate it only if nothing reads it" in row["action"]) == (shape != "f32[64,32]")


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
            argument("w", "f32[64,32]", 0, uses=f"  {user.name}, operand 0\n  w.new, operand 0"),
            argument("mu", "f32[64,32]", 1, uses="  mu.copy, operand 0"),
            user,
            Buffer("mu.copy", "f32[64,32]", (1, 8), instruction="copy(%p.1)"),
            Buffer("g", "f32[64,32]", (2, 8), "jit(f)/transpose(jvp())/dot_general"),
            output("w.new", "f32[64,32]", op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f"),
        ],
        "tpu",
    )
    (row,) = (r for r in advice(dump, "dtype") if r["argument"] == "w")
    size = 64 * 32 * 4
    least = 2 * size // 2 + (size + size // 2) * is_read
    assert least <= row["upper"] < least + size // 4


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


# -- collectives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "is_alike"), [("f32[64,2,512]", True), ("bf16[64,1024]", False), ("f32[9]", False)])
@pytest.mark.parametrize("opcode", ["all-gather", "all-reduce"])
def test_what_is_sharded_with_a_gathered_result(opcode: str, shape: str, *, is_alike: bool, make: Make) -> None:
    """Without the constraint that gathered activations of a layer, nothing as large as these was left."""
    gathered = Buffer("g", "f32[64,1024]", (0, 7), "jit(f)/mul", f"{opcode}(%x)")
    other = Buffer("h", shape, (0, 7), "jit(f)/tanh")
    dump = program(make, [argument("x", "f32[16,8]", 0), gathered, other])
    (row,) = advice(dump, "collective")
    assert row["upper"] == gathered.size + (other.size if is_alike and opcode == "all-gather" else 0)


def gathered(shape: str, whole: str) -> list[Buffer]:
    """Return weights, the result of gathering them, and a gradient of 8 KiB."""
    weights = argument("w", whole, 0, uses="  all-gather.1, operand 0")
    return [
        weights,
        Buffer("all-gather.1", shape, (2, 8), instruction="all-gather(%p.0), dimensions={0}"),
        Buffer("g", "f32[4,16,32]", (2, 8), "jit(f)/transpose(jvp())/dot_general"),
    ]


def test_gradients_of_gathered_weights(make: Make) -> None:
    """Weights that stayed sharded saved more than twice what they take: their gradients were no longer gathered."""
    (row,) = advice(program(make, gathered("f32[4,16,32]", "f32[4,4,32]")), "collective")
    assert row["upper"] == 2 * 4 * 16 * 32 * 4
    assert row["n_buffers"] == 1


def test_weights_of_one_layer_that_are_gathered(make: Make) -> None:
    """There is nothing to advise: a loop gathers one layer at a time already."""
    assert not advice(program(make, gathered("f32[1,16,32]", "f32[4,4,32]")), "collective")


# -- recomputation -------------------------------------------------------------------------------


def products(*names: str, frames: tuple[int, int] = (0, 0)) -> list[Buffer]:
    """Return two small products for each name, which nothing keeps: a layer with less is no layer."""
    return [
        Buffer(f"dot.{frame}.{i}.{k}", "f32[2,2]", (0, 0), f"{name}/dot_general", frame=frame)
        for i, name in enumerate(names)
        for k, frame in enumerate(frames)
    ]


LAYERS = [f"jit(f)/jvp(layer_{i})" for i in range(4)]


@pytest.mark.parametrize(("trips", "n"), [(5, 0), (64, 1), (63, 1), (32, 1)])
def test_a_loop_with_another_number_of_iterations_stacks_nothing(trips: int, n: int, make: Make) -> None:
    """Random bits of dropout, with a batch of 64, are the result of a loop with 5 rounds."""
    bits = loop("while.1{1}", trips, "jit(f)/jvp()/while")._replace(shape="u32[64,32,64]", live=(3, 7))
    gradient = Buffer("g", "f32[64,32,64]", (7, 8), "jit(f)/transpose(jvp())/mul")
    dump = program(make, [argument("x", "f32[64,32]", 0), bits, gradient])
    assert len(advice(dump, "recompute")) == n


def test_activations_that_are_read_back_in_the_backward_pass(make: Make) -> None:
    """The last reader of an activation is a copy with its name, which is of the forward pass as the activation is.

    So is an instruction that the compiler moved between those of the backward pass.
    """
    forward, backward = "jit(f)/jvp(layer_{})/mlp/dot_general", "jit(f)/transpose(jvp(layer_{}))/mlp/dot_general"
    dump = program(
        make,
        [
            Buffer("h.0", "f32[64,64]", (0, 6), forward.format(0), uses="  copy-start.0, operand 0"),
            Buffer("h.1", "f32[64,64]", (1, 8), forward.format(1), uses="  copy-start.1, operand 0"),
            Buffer("h.2", "f32[64,64]", (2, 3), forward.format(2)),
            Buffer("g.2", "f32[8,8]", (3, 4), backward.format(2)),
            Buffer("g.1", "f32[8,8]", (4, 5), backward.format(1)),
            Buffer("copy-start.0", "f32[64,64]", (6, 6), instruction="copy-start(%h.0)"),
            Buffer("late", "f32[8,8]", (7, 9), forward.format(0)),
            Buffer("copy-start.1", "f32[64,64]", (8, 8), instruction="copy-start(%h.1)"),
            Buffer("g.0", "f32[8,8]", (9, 9), backward.format(0)),
            *products(*LAYERS[:3]),
        ],
    )
    (row,) = advice(dump, "recompute")
    assert (row["scope"], row["n_buffers"]) == ("layer_*", 6)  # h.0 to h.2, two copies of these, and what is late


@pytest.mark.parametrize(
    ("backward", "wanted"),
    [
        ("mul", "Wrap each of these layers in jax.checkpoint."),
        ("checkpoint/rematted_computation/tanh", "The policy of jax.checkpoint keeps activations of these layers."),
        ("checkpoint/rematted_computation/dot_general", None),
    ],
)
def test_layers_that_are_checkpointed_already(backward: str, wanted: str | None, make: Make) -> None:
    """A policy may keep results of matrix products. Without one, these are computed again."""
    forward = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"jit(f)/jvp(layer_{i})/dot_general") for i in range(4)]
    name = "jit(f)/transpose(jvp(layer_{}))/{}"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name.format(i, backward)) for i in range(4)]
    rows = advice(program(make, forward + gradients + products(*LAYERS), "tpu"), "recompute")
    assert [r["action"].startswith(wanted) for r in rows] == ([True] if wanted else [])


@pytest.mark.parametrize(("platform", "side", "n"), [("cpu", 64, 0), ("tpu", 64, 1), ("cpu", 128, 1)])
def test_layers_of_different_shapes_are_no_loop(platform: str, side: int, n: int, make: Make) -> None:
    """The stages of a convolutional network cannot be the iterations of a loop, which a CPU needs."""
    shapes = ["f32[128,64]", f"f32[{side},64]", "f32[96,64]"]
    forward = [Buffer(f"h.{i}", s, (i, 8 - i), f"jit(f)/jvp(layer_{i})/tanh") for i, s in enumerate(shapes)]
    name = "jit(f)/transpose(jvp(layer_{}))/mul"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name.format(i)) for i in range(3)]
    assert len(advice(program(make, forward + gradients, platform), "recompute")) == n


Calls = list[tuple[str, int]]
"""A function and a line in it for each call on a stack, the outermost first."""
INIT, STEP, LOSS = ("<module>", 9), ("step", 8), ("step.<locals>.loss", 7)


def stack_frames(*stacks: Calls) -> str:
    """Return an HLO text with frames of these stacks and of their callers.

    The frames 1, 3, 5, … are those of the stacks, and the next one of each is another line of the same call.
    """
    names = sorted({name for stack in stacks for name, _ in stack})
    paths = [(*outer, (name, line)) for *outer, (name, first) in stacks for line in (first, first + 100)]
    paths += sorted({path[:n] for path in paths for n in range(1, len(path))} - {*paths})
    number = {path: i for i, path in enumerate(paths, 1)}
    locations = [
        f"{{file_name_id={1 + name.startswith('Linear')} function_name_id={names.index(name) + 1} line={line}}}"
        for *_, (name, line) in paths
    ]
    frames = [f"{{file_location_id={i} parent_frame_id={number.get(p[:-1], 0) + 1}}}" for p, i in number.items()]
    tables = {
        "FileNames": ['"/m/train.py"', '"/v/site-packages/flax/nn.py"'],
        "FunctionNames": [f'"{name}"' for name in names],
        "FileLocations": locations,
        "StackFrames": frames,
    }
    titled = ("\n".join([title, *(f"{i} {row}" for i, row in enumerate(rows, 1))]) for title, rows in tables.items())
    header = "\n" + "\n\n".join(titled) + "\n\n"
    return attacks.hlo("ENTRY %main () -> f32[2] {\n}\n", header=header)


def step_of_layers(make: Make, frames: Sequence[Sequence[int]], platform: str = "tpu", **others: str) -> list[Row]:
    """Return the recomputations advised to a training step whose n-th layer keeps an array for each of these stacks."""
    kept = [Buffer(f"h.{i}.{k}", "f32[64,64]", (i, 8 - i), "jit(f)/jvp()/dot_general", frame=max(0, 2 * k - 1))
            for i, layer in enumerate(frames) for k in layer]  # fmt: skip
    name = "jit(f)/transpose(jvp())/mul"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name) for i in range(len(frames))]
    inside = {k for layer in frames for k in layer}
    more = [b for k in inside for b in products("jit(f)/jvp()", frames=(max(0, 2 * k - 1), 2 * k))]
    return advice(program(make, kept + gradients + more, platform, **others), "recompute")


BLOCK = [LOSS, ("Block.__call__", 3)]
HELPERS = [[STEP, LOSS, ("Block.__call__", line), ("conv", 1)] for line in (3, 4)]


@pytest.mark.parametrize(
    ("stacks", "layers", "function"),
    [
        ([[STEP, *BLOCK]], [[1]] * 3, "Block.__call__"),
        ([[STEP, *BLOCK, ("Linear.__call__", 2)]], [[1]] * 3, "Block.__call__"),  # of a library
        ([[INIT, STEP, LOSS]], [[1]] * 3, "loss"),  # a loop in the loss
        (HELPERS, [[1, 2]] * 3, "Block.__call__"),  # a helper that each layer calls twice
        (HELPERS, [[1]] * 3, "conv"),  # once
        ([[LOSS, ("block", 3)], [LOSS, ("block", 4)]], [[1, 2], [1], [1]], "block"),
        # A line for each layer, and no loop:
        ([[("loss", n), ("block", m)] for n in (5, 6) for m in (1, 2)], [[1, 2], [3, 4]], "block"),
        ([[("loss", n), ("dense", 1)] for n in (5, 6)], [[1], [2]], None),
        ([[("loss", n)] for n in (5, 6)], [[1], [2]], None),
        # Half of the bytes are elsewhere, in every layer:
        ([[*BLOCK], [LOSS, ("norm", 2)]], [[1, 2]] * 3, "loss"),
    ],
)  # fmt: skip
def test_calls_of_a_function_are_layers(
    stacks: list[Calls], layers: list[list[int]], function: str | None, make: Make
) -> None:
    """No scope has a number. The function is the innermost one that runs once per layer."""
    rows = step_of_layers(make, layers, hlo=stack_frames(*stacks))
    action = f"Wrap each layer in jax.checkpoint: the code in `{function}` that runs several times."
    wanted = [(action, function)] if function else []
    assert [(r["action"].partition(" Try")[0], r["function"]) for r in rows] == wanted


@pytest.mark.parametrize("n", [1, 2])
def test_a_helper_with_a_single_product_is_no_layer(n: int, make: Make) -> None:
    """What others read of it is kept: jax.checkpoint around it cost 192 MiB of 401 on a TPU."""
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8), "jit(f)/jvp()/dot_general", frame=1) for i in range(4)]
    gradient = Buffer("g", "f32[8,8]", (7, 9), "jit(f)/transpose(jvp())/mul")
    more = products("jit(f)/jvp()", frames=(1, n))
    dump = program(make, [*kept, gradient, *more], "tpu", hlo=stack_frames([STEP, LOSS, ("dense", 1)]))
    assert len(advice(dump, "recompute")) == n - 1


@pytest.mark.parametrize(("shape", "n"), [("f32[64,64]", 0), ("f32[64,32]", 1)])
def test_arrays_like_an_updated_argument_are_no_layers(shape: str, n: int, make: Make) -> None:
    """They may be its gradients, which are not computed again."""
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8), "jit(f)/jvp()/dot_general", frame=1) for i in range(4)]
    gradient = Buffer("g", "f32[8,8]", (7, 9), "jit(f)/transpose(jvp())/mul")
    w = argument("w", shape, 0, uses="  w.new, operand 0")
    update = output("w.new", shape, op_name="jit(f)/sub", instruction="fusion(%p.0), kind=kLoop, calls=%f")
    more = products("jit(f)/jvp()", frames=(1, 2))
    dump = program(make, [w, *kept, gradient, update, *more], "tpu", hlo=stack_frames([STEP, LOSS, ("dense", 1)]))
    assert len(advice(dump, "recompute")) == n


@pytest.mark.parametrize("frame", [1, 3])
def test_what_others_read_of_a_layer_is_kept(frame: int, make: Make) -> None:
    """If that is all there is, nothing is saved."""
    kept = [
        Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), "jit(f)/jvp()/dot_general", uses=f"  u.{i}, operand 0", frame=1)
        for i in range(3)
    ]
    name = "jit(f)/transpose(jvp())/mul"
    users = [Buffer(f"u.{i}", "f32[8,8]", (8 - i, 9 - i), name, frame=frame) for i in range(3)]
    more = products("jit(f)/jvp()", frames=(1, 2))
    dump = program(make, [*kept, *users, *more], "tpu", hlo=stack_frames([STEP, *BLOCK], [STEP, LOSS]))
    assert len(advice(dump, "recompute")) == (frame == 1)


def test_results_of_one_instruction_are_no_layers(make: Make) -> None:
    kept = [Buffer(f"call{{{i}}}", "f32[64,64]", (1, 8), "jit(f)/jvp()/dot_general", frame=1) for i in range(4)]
    gradient = Buffer("g", "f32[8,8]", (7, 9), "jit(f)/transpose(jvp())/mul")
    more = products("jit(f)/jvp()", frames=(1, 2))
    dump = program(make, [*kept, gradient, *more], "tpu", hlo=stack_frames([STEP, *BLOCK]))
    assert advice(dump, "recompute") == []


def test_layers_without_stack_frames(make: Make) -> None:
    """Which function runs several times is not known."""
    assert step_of_layers(make, [[0]] * 3) == []
    assert step_of_layers(make, [[1]] * 3) == []


def test_bounds_of_calls_count_the_largest_layer(make: Make) -> None:
    (row,) = step_of_layers(make, [[1, 2], [1, 2], [1, 2], [1]], hlo=stack_frames(*HELPERS))
    assert (row["n_buffers"], row["lower"]) == (7, -2 << 14)


@pytest.mark.parametrize(
    ("read", "copied", "platform", "kept"),
    [
        (1, False, "tpu", 0),  # within the layer
        (2, False, "tpu", 1),  # when the next layer has begun
        (2, True, "tpu", 1),
        (1, True, "tpu", 0),
        (7, False, "tpu", 0),  # by the backward pass
        (None, False, "tpu", None),  # it is not known when anything is read
        (2, False, "cpu", None),
    ],
)
def test_layers_keep_what_they_pass_on(
    read: int | None, copied: bool, platform: str, kept: int | None, make: Make
) -> None:
    """Of two arrays of each layer, one may be read by the next layer, or be a copy of what that reads."""
    name, kib = "jit(f)/jvp(layer_{})/mul", 1 << 10
    buffers = []
    for i in range(3):
        step = None if read is None else min(2 * i + read, 8)
        uses = f"  s.{step}, operand 0\n" if step is not None else ""
        live = (2 * i, 9 - i)
        buffers.append(Buffer(f"e.{i}", "f32[64,64]", live, name.format(i), uses=uses and f"  s.{live[1]}, operand 0"))
        if copied:
            buffers.append(Buffer(f"x.{i}", "f32[2,2]", (2 * i, step or 0), name.format(i),
                                  uses=f"{uses}  h.{i}, operand 0"))  # fmt: skip
            buffers.append(Buffer(f"h.{i}", "f32[64,64]", live, name.format(i), f"copy(%x.{i})"))
        else:
            buffers.append(Buffer(f"h.{i}", "f32[64,64]", live, name.format(i), uses=uses.rstrip()))
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(3)]
    (row,) = advice(program(make, buffers + gradients + products(*LAYERS[:3]), platform), "recompute")
    if kept is None:
        assert row["lower"] == -32 * kib
    else:
        # Three layers keep two arrays of 16 KiB. Then the backward pass needs those of one layer, and what two pass on.
        assert row["lower"] == pytest.approx(0.7 * (6 - 2 - 2 * kept) * 16 * kib, abs=100)


@pytest.mark.parametrize("again", [0, 1, 2, 3])
def test_layers_that_the_compiler_computes_again(again: int, make: Make) -> None:
    """Of four arrays that are kept, some are second copies, which XLA computes because memory is scarce.

    jax.checkpoint saves nothing of these for certain. If they have more than half of the bytes, it may save nothing.
    """
    names = [f"h.{i}.remat2" if i < again else f"h.{i}" for i in range(4)]
    name, use = "jit(f)/jvp(layer_{})/mul", "  s.9, operand 0"
    kept = [Buffer(n, f"f32[{64 + i},64]", (i, 9), name.format(i), uses=use) for i, n in enumerate(names)]
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    (row,) = advice(program(make, kept + gradients + products(*LAYERS), "tpu"), "recompute")
    largest, sizes = 4 * 67 * 64, [4 * (64 + i) * 64 for i in range(again, 4)]
    assert row["lower"] == (-largest if again > 2 else pytest.approx(0.7 * (sum(sizes) - largest), abs=100))
    assert row["upper"] >= 4 * 64 * (64 + 65 + 66 + 67)


@pytest.mark.parametrize(("name", "n"), [("h.0.remat2", 0), ("h.0", 1)])
def test_the_compiler_computes_one_layer_at_a_time_again(name: str, n: int, make: Make) -> None:
    """At the peak are second copies of one layer, and little of the others: jax.checkpoint saved 1.5 % of that."""
    names, use = [name, "h.1", "h.2", "h.3"], "  s.9, operand 0"
    rows = [512, 64, 65, 66]
    kept = [Buffer(names[i], f"f32[{rows[i]},64]", (i, 9), f"jit(f)/jvp(layer_{i})/mul", uses=use) for i in range(4)]
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    assert len(advice(program(make, kept + gradients + products(*LAYERS), "tpu"), "recompute")) == n


def test_what_is_computed_once_is_no_layer(make: Make) -> None:
    """Nor are the weights that are converted for each layer, nor what few of many layers keep."""
    frames = stack_frames([STEP, LOSS, ("block", 3)], [STEP, LOSS, ("embed", 5)])
    assert step_of_layers(make, [[1]], hlo=frames) == []
    assert step_of_layers(make, [[1, 2]], hlo=frames) == []
    (row,) = step_of_layers(make, [[1, 2], [1, 2], [1], [1], [1]], hlo=frames)
    assert row["n_buffers"] == 5
    weights = [argument(f"params[{i}]", "f32[64,64]", i) for i in range(3)]
    updated = [output(f"out.{i}", "f32[64,64]") for i in range(3)]
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), "jit(f)/jvp()/convert_element_type", frame=1) for i in range(3)]
    gradient = Buffer("g", "f32[8,8]", (6, 9), "jit(f)/transpose(jvp())/mul")
    assert advice(program(make, [*weights, *updated, *kept, gradient], "tpu", hlo=frames), "recompute") == []


@pytest.mark.parametrize(
    ("name", "instruction", "n"),
    [
        ("dot_general", "add(%x, %x)", 1),
        ("reduce_sum", "add(%x, %x)", 0),  # the terms of a sum
        ("dot_general", "copy(%h.0)", 0),  # a value and its copy
    ],
)
def test_two_values_of_a_line_may_be_no_layers(name: str, instruction: str, n: int, make: Make) -> None:
    name = f"jit(f)/jvp()/{name}"
    kept = [
        Buffer("h.0", "f32[64,64]", (0, 8), name, "add(%x, %x)", frame=1),
        Buffer("h.1", "f32[64,64]", (1, 8), name, instruction, frame=1),
    ]
    gradient = Buffer("g", "f32[8,8]", (7, 9), "jit(f)/transpose(jvp())/mul")
    more = products("jit(f)/jvp()", frames=(1, 2))
    dump = program(make, [*kept, gradient, *more], "tpu", hlo=stack_frames([STEP, *BLOCK]))
    assert len(advice(dump, "recompute")) == n


@pytest.mark.parametrize("frame", [1, 3])
@pytest.mark.parametrize("kept", ["tanh", "dot_general"])
@pytest.mark.parametrize("again", ["tanh", "dot_general"])
def test_calls_that_are_checkpointed_already(kept: str, again: str, frame: int, make: Make) -> None:
    """A policy that keeps products may keep less. Where products are computed again, all of it is.

    What another function computes again does not matter.
    """
    forward = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"jit(f)/jvp(checkpoint)/{kept}", frame=1) for i in range(3)]
    name = f"jit(f)/transpose(jvp(checkpoint))/rematted_computation/{again}"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name, frame=frame) for i in range(3)]
    more = products("jit(f)/jvp(checkpoint)", frames=(1, 2))
    dump = program(make, forward + gradients + more, "tpu", hlo=stack_frames([STEP, *BLOCK], [STEP, LOSS]))
    actions = [r["action"] for r in advice(dump, "recompute")]
    if frame == 3:
        (action,) = actions
        assert action.startswith("Wrap each layer in jax.checkpoint")
    elif (kept, again) == ("dot_general", "tanh"):
        (action,) = actions
        assert action.startswith("The policy of jax.checkpoint keeps activations of these layers.")
    else:
        assert actions == []


def test_a_policy_of_a_loop(make: Make) -> None:
    """The body is checkpointed, but nothing in it is computed again."""
    stack, scope = "f32[8,64,64]", "jit(f)/transpose(jvp())/while/body/checkpoint/"
    dump = program(
        make,
        [
            loop("while.1", 8, "jit(f)/jvp()/while", live=(2, 2)),
            Buffer("while.1{1}", stack, (2, 6), "jit(f)/jvp()/while", uses="  s.5, operand 0"),
            Buffer("h", "f32[64,64]", (1, 2), "jit(f)/jvp()/while/body/dot_general"),
            Buffer("g.1", "f32[64,64]", (4, 5), f"{scope}mul"),
            Buffer("g.2", "f32[64,64]", (5, 6), f"{scope}dot_general"),
        ],
    )
    (row,) = advice(dump, "recompute")
    assert row["action"].startswith("The policy of jax.checkpoint keeps activations of the loop.")
    assert row["names"] is None
    # What the loop passes on is in another memory space, and stays there.
    assert row["upper"] >= 4 * 8 * 64 * 64 - 4 * 64 * 64


@pytest.mark.parametrize(("body", "kinds"), [("", ["recompute", "scan"]), ("checkpoint/", ["offload", "scan"])])
def test_a_loop_that_is_computed_again(body: str, kinds: list[str], make: Make) -> None:
    """Layers are checkpointed, but not the loop over time in each: its states are stacked in the backward pass."""
    layer = "jit(f)/transpose(jvp())/while/body/checkpoint/"
    time = f"{layer}rematted_computation/while"
    again = f"{layer}while/body/{body}{'rematted_computation/' if body else ''}"
    dump = program(
        make,
        [
            loop("while.1", 16, time, live=(3, 3)),
            Buffer("while.1{1}", "f32[16,64,64]", (3, 7), time, uses="  s.5, operand 0"),
            Buffer("other", "f32[64,64]", (5, 6), f"{layer}rematted_computation/tanh"),
            Buffer("h", "f32[64,64]", (5, 6), f"{again}tanh"),
            Buffer("g", "f32[64,64]", (6, 7), f"{layer}while/body/{body}mul"),
        ],
        "tpu",
    )
    found = [r["kind"] for r in xlamem.advise(dump).to_pylist() if r["kind"] in ("recompute", "scan", "offload")]
    assert sorted(found) == kinds


@pytest.mark.parametrize(("n", "kinds"), [(1, {"offload"}), (2, {"recompute"})])
def test_a_checkpointed_loop_that_keeps_only_what_it_passes_on(n: int, kinds: set[str], make: Make) -> None:
    """What it computes again is inside of fusions. It passes on one array; a policy keeps another stack."""
    name, scope = "jit(f)/jvp()/while", "jit(f)/transpose(jvp())/while/body/checkpoint/"
    stacks = [Buffer(f"while.1{{{i + 2}}}", "f32[8,64,64]", (2, 6), name, uses="  s.4, operand 0") for i in range(n)]
    passed_on = Buffer("while.1{1}", "f32[1,64,64]", (2, 2), name)
    dump = program(
        make,
        [loop("while.1", 8, name, live=(2, 2)), *stacks, passed_on, Buffer("g", "f32[64,64]", (4, 5), f"{scope}mul")],
        "tpu",
    )
    assert {r["kind"] for r in xlamem.advise(dump).to_pylist()} & {"offload", "recompute"} == kinds


@pytest.mark.parametrize(("primitive", "kind"), [("reduce_precision", "recompute"), ("exp", "offload")])
def test_a_loop_of_which_a_policy_saves_products(primitive: str, kind: str, make: Make) -> None:
    """JAX rounds what a policy saves. The backward pass computes what is elementwise again."""
    forward, scope = "jit(f)/jvp()/while/body", "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation"
    stack = loop("while.1{1}", 8, f"{forward}/{primitive}", live=(2, 6), uses="  s.4, operand 0")
    again = Buffer("g", "f32[64,64]", (4, 5), f"{scope}/mul")
    dump = program(make, [stack._replace(shape="f32[8,64,64]"), again], "tpu")
    (row,) = [r for r in xlamem.advise(dump).to_pylist() if r["kind"] in ("offload", "recompute")]
    assert row["kind"] == kind
    if kind == "recompute":
        assert row["action"].startswith("The policy of jax.checkpoint keeps activations of the loop.")


def test_a_loop_that_passes_on_less_than_it_stacks(make: Make) -> None:
    """Two vectors, and each iteration stacks a matrix: recomputation keeps the vectors only."""
    name = "jit(f)/jvp()/while"
    carry = Buffer("while.1{1}", "f32[64]", (2, 2), name)
    stack = Buffer("while.1{2}", "f32[8,128,64]", (2, 6), name, uses="  s.4, operand 0")
    gradient = Buffer("g", "f32[128,64]", (4, 5), "jit(f)/transpose(jvp())/while/body/mul")
    dump = program(make, [loop("while.1", 8, name, live=(2, 2)), carry, stack, gradient])
    (row,) = advice(dump, "recompute")
    assert row["lower"] < stack.size * 3 // 4 < stack.size - 8 * carry.size < row["upper"]


@pytest.mark.parametrize(("rows", "n"), [(8, 1), (256, 0)])
def test_chunks_of_a_loop_over_weights(rows: int, n: int, make: Make) -> None:
    """The backward pass of a chunk has its weights and gradients, which cost more than the chunks saved."""
    name, back = "jit(f)/jvp()/while", "jit(f)/transpose(jvp())/while"
    weights = argument("w", f"f32[8,{rows},64]", 0, uses="  while.2, operand 0 {2}")
    kept = Buffer("while.1{1}", "f32[8,64,64]", (2, 6), name, uses="  while.2, operand 0 {1}\n  s.4, operand 0")
    backward = Buffer("g", "f32[64,64]", (4, 5), f"{back}/body/checkpoint/rematted_computation/mul")
    loops = [loop("while.1", 8, name, live=(2, 2)), loop("while.2", 8, back, live=(6, 7))]
    dump = program(make, [weights, loops[0], kept, backward, loops[1]])
    assert len(advice(dump, "scan")) == n


def test_slices_of_a_stack_are_not_needed_either(make: Make) -> None:
    """A loop of loops has a slice of a stack, and a copy of it, at the peak, which recomputation saved as well."""
    dump = program(
        make,
        [
            loop("while.1", 8, "jit(f)/jvp()/while", live=(2, 2)),
            Buffer("while.1{1}", "f32[8,64,64]", (2, 7), "jit(f)/jvp()/while", uses="  s.5, operand 0"),
            Buffer("slice", "f32[1,64,64]", (4, 6), "jit(f)/transpose(jvp())/while/body/mul"),
            Buffer("copy", "f32[1,64,64]", (4, 6), "jit(f)/transpose(jvp())/while/body/mul"),
        ],
    )
    (row,) = advice(dump, "recompute")
    assert row["upper"] >= (8 + 2) * 64 * 64 * 4 - 8 * 64 * 64 * 4 // 2


@pytest.mark.parametrize(("n", "rows"), [(8, 0), (1 << 16, 1)])
def test_no_other_element_type_for_few_bytes(n: int, rows: int, make: Make) -> None:
    """Half of 512 bytes was called a saving of up to 61 MiB, because other buffers may move to VMEM."""
    loss = Buffer("loss", f"f32[{n}]", (0, 8), "jit(f)/jvp()/reduce_sum")
    large = Buffer("h", "s8[65536]", (0, 8), "jit(f)/jvp()/round")
    dump = program(make, [argument("x", "s8[65536]", 0), loss, large], "tpu")
    assert len([r for r in advice(dump, "dtype") if r["argument"] is None]) == rows


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


def test_more_positions_than_classes(make: Make) -> None:
    """A table of positions is of weights, too; classes are the last dimension."""
    table = argument("p['positions']", "f32[8192,16]", 1)
    table = table._replace(allocation=table.allocation[:-1] + ", maybe-live-out:")
    logits = [b._replace(shape="f32[2,8192,4096]") for b in (LOGITS, SOFTMAX)]
    (row,) = loss_advice(make, table, *logits)
    assert "for 1,024 of the 8,192" in row["action"]


def test_logits_of_a_prime_number_of_samples(make: Make) -> None:
    assert loss_advice(make, LOGITS._replace(shape="f32[509,4096]"), SOFTMAX._replace(shape="f32[509,4096]")) == []


def test_flattened_gradients_of_logits_count(make: Make) -> None:
    (row,) = loss_advice(make, LOGITS, SOFTMAX._replace(shape="f32[512,4096]"))
    assert row["n_buffers"] == 2


def test_results_of_a_hidden_layer_are_no_logits(make: Make) -> None:
    """A product of the forward pass reads them, or a function of them with the same dimensions."""
    read = LOGITS._replace(uses="  dot.3, operand 0")
    last = Buffer("dot.3", "f32[8,64,1]", (4, 5), FORWARD)
    assert loss_advice(make, read, SOFTMAX, last) == []
    function = Buffer("gelu.1", "f32[8,64,4096]", (3, 6), "jit(f)/jvp()/gelu", uses="  dot.3, operand 0")
    assert loss_advice(make, LOGITS, function, last) == []
    assert len(loss_advice(make, LOGITS, SOFTMAX, last)) == 1


def test_what_several_products_compute_is_no_logits(make: Make) -> None:
    other = LOGITS._replace(name="dot.0", live=(0, 1), uses="")
    assert loss_advice(make, other, LOGITS, SOFTMAX) == []


def test_a_large_product_after_the_logits(make: Make) -> None:
    """Only heads that are small beside the logits may follow them."""
    head = Buffer("dot.3", "f32[8,64,64]", (3, 4), FORWARD)
    assert len(loss_advice(make, LOGITS, SOFTMAX, head)) == 1
    assert loss_advice(make, LOGITS, SOFTMAX, head._replace(shape="f32[8,64,128]")) == []


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


def test_logits_smaller_than_the_gradient_of_their_weights(make: Make) -> None:
    shape = "f32[8,4096]"
    assert loss_advice(make, LOGITS._replace(shape=shape), SOFTMAX._replace(shape=shape)) == []


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


def test_attention_without_a_backward_pass(make: Make) -> None:
    buffers = [b._replace(op_name=b.op_name.replace("jvp()/", "")) for b in ATTENTION[:4]]
    (row,) = attention_advice(make, *buffers)
    assert "jax.lax.map over f, where" in row["action"]


def test_attention_of_more_heads_than_samples(make: Make) -> None:
    buffers = [b._replace(shape=b.shape.replace("8,4,", "2,16,")) for b in ATTENTION]
    (row,) = attention_advice(make, *buffers)
    assert "in 16 parts" in row["action"]


def test_attention_of_one_sample_with_one_head(make: Make) -> None:
    assert attention_advice(make, *(b._replace(shape=b.shape.replace("8,4,", "1,1,")) for b in ATTENTION)) == []


def test_as_many_heads_as_features_of_each(make: Make) -> None:
    """Queries of 64 heads with 64 features each are square matrices, too, but multiplied they become larger."""
    queries = Buffer("dot.0", "f32[8,128,64,64]", (1, 6), FORWARD, uses="  dot.1, operand 0")
    scores = Buffer("dot.1", "f32[8,64,128,128]", (2, 3), FORWARD)
    assert attention_advice(make, argument("tokens", "s32[8,128]", 0), queries, scores) == []


def test_square_matrices_that_no_product_reads(make: Make) -> None:
    assert attention_advice(make, TOKENS, SCORES, WEIGHTS._replace(uses=""), ATTENDED, ATTENTION_GRADIENT) == []


@pytest.mark.parametrize(("features", "n"), [(16, 1), (64, 0)])
def test_as_many_features_as_positions(features: int, n: int, make: Make) -> None:
    """(samples, 64, 64) may be activations, if weights have a dimension of 64."""
    weights = argument("p['w']", f"f32[{features},16]", 0)
    weights = weights._replace(allocation=weights.allocation[:-1] + ", maybe-live-out:")
    buffers = [b._replace(shape=b.shape.replace("8,4,", "8,")) for b in ATTENTION]
    assert len(attention_advice(make, weights, *buffers)) == n


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


def test_stacked_matrices_of_attention(make: Make) -> None:
    stack = Buffer("while.1{1}", "f32[2,8,4,64,64]", (2, 7), "jit(f)/jvp()/while")
    (row,) = attention_advice(make, *ATTENTION, loop("while.1", 2), stack)
    assert (row["n_buffers"], row["shape"]) == (3, "f32[2,8,4,64,64]")
    assert "in 8 parts" in row["action"]


def test_states_of_chunks_of_linear_attention(make: Make) -> None:
    """16 queries of a chunk are multiplied by a state of 64 by 64 features; no array has 64 positions."""
    state = SCORES._replace(uses="  dot.2, operand 1", live=(1, 7))
    queries = Buffer("q", "f32[8,4,16,64]", (0, 2), "jit(f)/jvp()/dot_general")
    result = ATTENDED._replace(shape="f32[8,4,16,64]")
    assert attention_advice(make, argument("x", "f32[8,256,256]", 0), queries, state, result) == []
    assert len(attention_advice(make, argument("x", "f32[8,64,256]", 0), queries, state, result)) == 1


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


def test_attention_of_two_lengths(make: Make) -> None:
    """That of an encoder is smaller than that of the decoder."""
    names = {"dot.1": "dot.5", "exp.1": "exp.2", "dot.2": "dot.6", "dot.3": "dot.7"}
    small = [
        b._replace(
            name=names[b.name], shape=b.shape.replace("64,64]", "32,32]").replace("64,16]", "32,16]"),
            uses=b.uses.replace("exp.1", "exp.2").replace("dot.2", "dot.6"),
        )
        for b in ATTENTION[1:]
    ]  # fmt: skip
    encoded = argument("source", "s32[8,32]", 1)
    (row,) = attention_advice(make, encoded, *small, *ATTENTION)
    assert (row["n_buffers"], row["shape"]) == (2, "f32[8,4,64,64]")


def test_logits_with_the_first_name_of_a_program(make: Make) -> None:
    assert len(advice(program(make, [LOGITS, SOFTMAX, HEAD]), "loss")) == 1
