"""Advice on recomputation, on small programs like ones that were recompiled."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from advice_programs import Buffer, Make, Row, advice, argument, loop, output, program
from attacks import value

import xlamem
from xlamem.compute.advice import rematerialization
from xlamem.compute.advice.activations import FORWARD, NO_PHASE, loop_over
from xlamem.compute.advice.bounds import moved_at_worst
from xlamem.compute.advice.layers import LayerActivations, Layers
from xlamem.compute.advice.rematerialization import _chunk, _similar, offloads
from xlamem.compute.advice.what_if import WhatIf
from xlamem.compute.callers import Function
from xlamem.compute.program import program as program_of

# -- recomputation -------------------------------------------------------------------------------


def products(*names: str, frames: tuple[int, int] = (0, 0)) -> list[Buffer]:
    """Return two small products for each name, which nothing keeps: a layer with less is no layer."""
    return [
        Buffer(f"dot.{frame}.{i}.{k}", "f32[2,2]", (0, 0), f"{name}/dot_general", frame=frame)
        for i, name in enumerate(names)
        for k, frame in enumerate(frames)
    ]


LAYERS = [f"jit(f)/jvp(layer_{i})" for i in range(4)]
LAST = "jit(f)/transpose(jvp(layer_0))/mul"


@pytest.mark.parametrize(("trips", "n"), [(5, 0), (64, 1), (63, 1), (32, 1)])
def test_a_loop_with_another_number_of_iterations_stacks_nothing(trips: int, n: int, make: Make) -> None:
    """Random bits of dropout, with a batch of 64, are the result of a loop with 5 rounds."""
    bits = loop("while.1{1}", trips, "jit(f)/jvp()/while")._replace(shape="u32[64,32,64]", live=(3, 7))
    gradient = Buffer("g", "f32[64,32,64]", (7, 8), "jit(f)/transpose(jvp())/mul")
    dump = program(make, [argument("x", "f32[64,32]", 0), bits, gradient])
    assert len(advice(dump, "recompute")) == n


@pytest.mark.parametrize(("trips", "n"), [(1, 0), (2, 1)])
def test_a_loop_of_one_iteration_stacks_nothing(trips: int, n: int, make: Make) -> None:
    kept = loop("while.1{1}", trips, "jit(f)/jvp()/while", live=(3, 7))._replace(shape=f"f32[{trips},64,64]")
    gradient = Buffer("g", "f32[64]", (7, 8), "jit(f)/transpose(jvp())/mul")
    assert len(advice(program(make, [kept, gradient]), "recompute")) == n


@pytest.mark.parametrize("batch", [8, 6])
def test_a_checkpointed_loop_with_as_many_samples_as_iterations(batch: int, make: Make) -> None:
    """What the loop passes on has a batch as its leading dimension, as many as it has iterations."""
    name = 'jit(f)/jvp()/while" source_file="model.py'
    carry = loop("while.1{1}", 8, name, live=(3, 4))._replace(shape=f"f32[{batch},32,64]")
    stack = carry._replace(name="while.1{2}", shape=f"f32[8,{batch},32,64]", live=(3, 7))
    gradient = Buffer("g", "f32[64]", (7, 8), "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/mul")
    assert not advice(program(make, [carry, stack, gradient]), "recompute")


@pytest.mark.parametrize(("tensorflow", "n"), [(True, 0), (False, 1)])
def test_loops_of_recurrent_layers_of_tensorflow(tensorflow: bool, n: int, make: Make) -> None:
    """Keras writes these loops, so users cannot checkpoint their bodies."""
    forward, backward = (
        ("model/lstm/while", "gradient_tape/model/lstm/mul") if tensorflow
        else ("jit(f)/jvp()/while", "jit(f)/transpose(jvp())/mul")
    )  # fmt: skip
    kept = loop("while.1{1}", 8, forward, live=(3, 7))._replace(shape="f32[8,64,64]")
    gradient = Buffer("g", "f32[64]", (7, 8), backward)
    assert len(advice(program(make, [kept, gradient]), "recompute")) == n


@pytest.mark.parametrize("tensorflow", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_loop_over_parts_in_words(tensorflow: bool, training: bool) -> None:
    a: Any = SimpleNamespace(is_tensorflow=tensorflow, is_training=training)
    loop, again = ("tf.map_fn", "tf.recompute_grad") if tensorflow else ("jax.lax.map", "jax.checkpoint")
    assert loop_over(a, "f") == (f"{loop} over {again}(f)" if training else f"{loop} over f")


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
            Buffer("mask", "f32[64,64]", (0, 9), "jit(f)/layer_0/mul"),  # not differentiated
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
    """A policy may keep results of matrix products. Without one, these are computed again.

    What is saved if the policy keeps less is not certain.
    """
    forward = [
        Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"{layer}/dot_general", uses=f"  s.{8 - i}, operand 0")
        for i, layer in enumerate(LAYERS)
    ]
    name = "jit(f)/transpose(jvp(layer_{}))/{}"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name.format(i, backward)) for i in range(4)]
    rows = advice(program(make, forward + gradients + products(*LAYERS), "tpu"), "recompute")
    assert [r["action"].startswith(wanted) for r in rows] == ([True] if wanted else [])
    assert all((r["lower"] > 0) == (backward == "mul") for r in rows)


@pytest.mark.parametrize(("platform", "side", "n"), [("cpu", 64, 0), ("tpu", 64, 1), ("cpu", 128, 1)])
def test_layers_of_different_shapes_are_no_loop(platform: str, side: int, n: int, make: Make) -> None:
    """The stages of a convolutional network cannot be the iterations of a loop, which a CPU needs."""
    shapes = ["f32[128,64]", f"f32[{side},64]", "f32[96,64]"]
    forward = [Buffer(f"h.{i}", s, (i, 8 - i), f"jit(f)/jvp(layer_{i})/tanh") for i, s in enumerate(shapes)]
    name = "jit(f)/transpose(jvp(layer_{}))/mul"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name.format(i)) for i in range(3)]
    assert len(advice(program(make, forward + gradients, platform), "recompute")) == n


@pytest.mark.parametrize("n", [1, 2])
def test_a_single_layer_is_not_recomputed(n: int, make: Make) -> None:
    """Even if most is in use in the forward pass."""
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8), f"{LAYERS[i]}/dot_general") for i in range(n)]
    others = [Buffer("t", "f32[128,64]", (3, 3), "jit(f)/jvp()/tanh"), Buffer("g", "f32[8]", (6, 9), LAST)]
    dump = program(make, [*kept, *others, *products(*LAYERS[:n])], "tpu")
    assert len(advice(dump, "recompute")) == n - 1


def test_the_number_of_layers_of_a_family() -> None:
    """Their codes do not begin at 0, and those of another family may lie between them."""
    assert Layers("decoder_*", np.arange(3), np.array([3, 3, 5])).n_layers == 2


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


@pytest.mark.parametrize(
    ("frame", "step", "kinds"), [(1, 7, ["offload"]), (3, 7, ["recompute"]), (1, 8, ["recompute"])]
)
def test_a_part_of_a_body_that_is_checkpointed(frame: int, step: int, kinds: list[str], make: Make) -> None:
    """Attention was, while the loop stacked what other lines compute: jax.checkpoint(body) saved 29 of 36 GiB.

    What is computed again after the stack has been read is of another loop.
    """
    stack = loop("while.1{1}", 8, "jit(f)/jvp()/while", live=(2, 7), frame=1)._replace(shape="f32[8,64,64]")
    again = "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/tanh"
    recomputed = Buffer("t", "f32[64]", (step, step), again, frame=frame)
    buffers = [stack, recomputed, Buffer("g", "f32[64]", (7, 9), again[:30])]
    frames = stack_frames([LOSS, ("mlp", 3)], [LOSS, ("attention", 5)])
    dump = program(make, buffers, "tpu", hlo=frames)
    assert [r["kind"] for r in xlamem.advise(dump).to_pylist() if r["kind"] in ("offload", "recompute")] == kinds


def test_loops_in_layers_stack_activations_of_these(make: Make) -> None:
    """jax.checkpoint around each layer saved 9.7 GiB, of at most 6.3 without the stacks."""
    stacks = [loop(f"while.{i}{{1}}", 8, f"jit(f)/jvp(layer_{i})/while", live=(i, 8 - i)) for i in range(3)]
    stacks = [b._replace(shape="f32[8,64]") for b in stacks]
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"jit(f)/jvp(layer_{i})/dot_general") for i in range(3)]
    gradients = [Buffer(f"g.{i}", "f32[8]", (8 - i, 9 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(3)]
    dump = program(make, [*stacks, *kept, *gradients, *products(*LAYERS[:3])], "gpu")
    row = next(r for r in advice(dump, "recompute") if r["scope"] == "layer_*" and r["n_buffers"] == 3)
    assert row["upper"] == 3 * (8 * 64 + 64 * 64) * 4 - 2 * 32  # two gradients remain at the new peak


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
PARTS = [*([*BLOCK, ("attention", n)] for n in range(20, 30)), [LOSS, ("Block.__call__", 5)]]


@pytest.mark.parametrize(("frame", "wanted"), [(1, "The policy of jax.checkpoint keeps"), (2, "Wrap each layer in")])
def test_a_part_of_a_layer_that_is_checkpointed(frame: int, wanted: str, make: Make) -> None:
    """Attention was, while the layers kept what another line computes: no policy says so, and the program has none."""
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), "jit(f)/jvp()/dot_general", frame=1) for i in range(4)]
    name = "jit(f)/transpose(jvp())/checkpoint/rematted_computation/tanh"
    gradients = [Buffer(f"g.{i}", "f32[8,8]", (8 - i, 9 - i), name, frame=frame) for i in range(4)]
    more = products("jit(f)/jvp()", frames=(1, 2))
    (row,) = advice(program(make, kept + gradients + more, "tpu", hlo=stack_frames(BLOCK)), "recompute")
    assert row["action"].startswith(wanted)


@pytest.mark.parametrize(
    ("stacks", "layers", "function", "line", "calls"),
    [
        ([[STEP, *BLOCK]], [[1]] * 3, "Block.__call__", 3, "7"),
        ([[STEP, *BLOCK, ("Linear.__call__", 2)]], [[1]] * 3, "Block.__call__", 3, "7"),  # of a library
        ([[INIT, STEP, LOSS]], [[1]] * 3, "loss", 7, "8"),  # a loop in the loss
        (HELPERS, [[1, 2]] * 3, "Block.__call__", 3, "7"),  # a helper that each layer calls twice
        (HELPERS, [[1]] * 3, "conv", 1, "3, 4"),  # once
        ([[LOSS, ("block", 3)], [LOSS, ("block", 4)]], [[1, 2], [1], [1]], "block", 3, "7"),
        # A line for each layer, and no loop:
        ([[("loss", n), ("block", m)] for n in (5, 6) for m in (1, 2)], [[1, 2], [3, 4]], "block", 1, "5, 6"),
        ([[("loss", n), ("dense", 1)] for n in (5, 6)], [[1], [2]], None, None, ""),
        ([[("loss", n)] for n in (5, 6)], [[1], [2]], None, None, ""),
        # Half of the bytes are elsewhere, in every layer:
        ([[*BLOCK], [LOSS, ("norm", 2)]], [[1, 2]] * 3, "loss", 7, ""),
        ([[*BLOCK], [LOSS, ("norm", 2)]], [[1, 2], [1, 2], [1], [1]], "Block.__call__", 3, "7"),  # in half of them
        # Most are in a part of each layer, of which every layer keeps a little more:
        (PARTS, [[*range(1, 12)]] * 3, "Block.__call__", 3, "7"),
        (PARTS, [[*range(1, 12)], *[[*range(1, 11)]] * 2], "attention", 20, "3"),  # only one layer
        (PARTS[:10], [[*range(1, 11)]] * 3, "attention", 20, "3"),  # none
    ],
)  # fmt: skip
def test_calls_of_a_function_are_layers(
    stacks: list[Calls], layers: list[list[int]], function: str | None, line: int | None, calls: str, make: Make
) -> None:
    """No scope has a number. The function is the innermost one that runs once per layer, and the line is in it."""
    rows = step_of_layers(make, layers, hlo=stack_frames(*stacks))
    called = f", called at {' and '.join(f'train.py:{n}' for n in calls.split(', '))}" if calls else ""
    action = f"Wrap each layer in jax.checkpoint: the code in `{function}` that runs several times{called}."
    wanted = [(action, function, line)] if function else []
    assert [(r["action"].partition(" It may")[0], r["function"], r["source_line"]) for r in rows] == wanted


@pytest.mark.parametrize(
    ("lines", "text"),
    [(1, ", called at train.py:0"), (3, ", called at train.py:0, train.py:1 and train.py:2"),
     (5, ", called at train.py:0, train.py:1 and 3 other lines"), (0, "")],
)  # fmt: skip
def test_where_a_function_is_called(lines: int, text: str) -> None:
    """The function that jax.jit compiles is called by no line of the model."""
    a: Any = SimpleNamespace(is_whole=lambda name: name == "step")
    function = Function("block", *[np.empty(0, np.int64)] * 3, "", tuple(f"train.py:{n}" for n in range(lines)))
    assert rematerialization._called_at(a, function) == text
    assert rematerialization._called_at(a, function._replace(name="step")) == ""


@pytest.mark.parametrize(("function", "found"), [("f", True), ("main", False), ("g", False)])
def test_the_function_that_is_compiled(function: str, found: bool, make: Make) -> None:
    dump = program(make, [Buffer("h", "f32[8]", (0, 1), "jit(f)/jit(g)/mul")], "tpu")
    assert LayerActivations(WhatIf(program_of(dump))).is_whole(function) == found


@pytest.mark.parametrize(
    ("file", "found"),
    [("/v/site-packages/flax/linen/module.py", True), ("/v/site-packages/flax/nnx/module.py", False), (None, False)],
)
def test_flax_linen_has_its_own_checkpoint(file: str | None, found: bool) -> None:
    frames = pa.table({"file": pa.array([None, file], pa.string())})
    a: Any = SimpleNamespace(p=SimpleNamespace(optional=lambda name: frames if file else None))
    a.is_linen = LayerActivations.is_linen.func(a)
    assert a.is_linen == found
    assert ("nn.remat" in rematerialization._in_linen(a)) == found


def test_which_layer_computes_the_nth_value_of_a_line() -> None:
    """A line may run twice in each of the four layers, once, or in the first two layers only."""
    line = np.repeat([0, 1, 2], [8, 4, 2])
    n, none = len(line), np.zeros(len(line), np.int64)
    p = SimpleNamespace(texts=lambda *_: [none], extent=np.where(line == 1, 100, 1), ranges=[np.arange(n)])
    a: Any = SimpleNamespace(p=p, op_codes=none, opcode=[none], dimensions=np.zeros((n, 2), np.int64))
    runs = LayerActivations._runs(a, np.arange(n), line)
    assert runs.n == 4
    assert runs.times.tolist() == [8] * 8 + [4] * 4 + [2] * 2
    assert runs.layer.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 0, 1, 2, 3, 0, 1]


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


@pytest.mark.parametrize("frame", [0, 1, 3])
def test_what_others_read_of_a_layer_is_kept(frame: int, make: Make) -> None:
    """If that is all there is, nothing is saved. Readers without a frame are not known to be of another function."""
    kept = [
        Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), "jit(f)/jvp()/dot_general", uses=f"  u.{i}, operand 0", frame=1)
        for i in range(3)
    ]
    name = "jit(f)/transpose(jvp())/mul"
    users = [Buffer(f"u.{i}", "f32[8,8]", (8 - i, 9 - i), name, frame=frame) for i in range(3)]
    more = products("jit(f)/jvp()", frames=(1, 2))
    dump = program(make, [*users, *kept, *more], "tpu", hlo=stack_frames([STEP, *BLOCK], [STEP, LOSS]))
    assert len(advice(dump, "recompute")) == (frame != 3)


@pytest.mark.parametrize(
    ("user", "n"),
    [("layer_{}", 1), ("", 1), ("layer_9", 0), ("head", 0)],  # that of the same layer, or of nothing that is known
)
@pytest.mark.parametrize("is_copied", [False, True])
def test_what_another_layer_reads_is_kept(user: str, n: int, is_copied: bool, make: Make) -> None:
    """If that is all there is, nothing is saved. A copy is kept as well if what it copies is read."""
    buffers = []
    for i, layer in enumerate(LAYERS[:3]):
        name = f"jit(f)/transpose(jvp({user.format(i)}))/mul" if user else ""
        uses, instruction = f"  u.{i}, operand 0", f"copy(%x.{i})" if is_copied else "add(%x, %x)"
        if is_copied:
            both = f"{uses}\n  h.{i}, operand 0"
            buffers.append(Buffer(f"x.{i}", "f32[2,2]", (i, 8 - i), f"{layer}/dot_general", uses=both))
            uses = ""
        buffers += [
            Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"{layer}/dot_general", instruction, uses=uses),
            Buffer(f"u.{i}", "f32[8,8]", (8 - i, 9 - i), name),
            Buffer(f"g.{i}", "f32[8]", (8 - i, 9 - i), f"jit(f)/transpose(jvp(layer_{i}))/sub"),
        ]
    assert len(advice(program(make, [*buffers, *products(*LAYERS[:3])], "tpu"), "recompute")) == n


STAGES = [[("loss", call), ("Block.__call__", n), ("conv", 1)] for call in (5, 6) for n in (3, 4)]
"""A function of two lines, called at two: the second one is in a loop over modules."""


def stages(make: Make, *, reader: int = 0, clone: str = "", cloned: str = "", platform: str = "tpu") -> list[Row]:
    """Return the recomputations advised to blocks that keep 32, 16 and 8 KiB, beside logits of 16 KiB.

    Code of the loss reads a part in the backward pass (`reader` 9), or in the forward pass (4).
    """
    buffers, kib = [Buffer("logits", "f32[64,64]", (5, 7), "jit(f)/jvp()/dot_general")], 1 << 10
    for stage, columns in enumerate((64, 32, 16)):
        for line in range(2):
            live, frame = (stage, 9 - stage), 4 * (stage > 0) + 2 * line + 1
            uses = f"  s.{live[1]}, operand 0" + (f"\n  u.{stage}, operand 0" if reader and line else "")
            name = f"h.{stage}.{line}"
            op_name = f"jit(f)/jvp()/{('conv', 'relu')[line]}"
            buffers.append(Buffer(name, f"f32[64,{columns}]", live, op_name, uses=uses, frame=frame))
            buffers += products("jit(f)/jvp()", frames=(frame, frame + 1))
        phase = "transpose(jvp())" if reader == 9 else "jvp()"
        buffers.append(Buffer(f"u.{stage}", "f32[2,2]", (reader, reader), f"jit(f)/{phase}/add", frame=9))
        buffers.append(Buffer(f"g.{stage}", "f32[2,2]", (9 - stage, 9 - stage), "jit(f)/transpose(jvp())/mul"))
    if clone:
        buffers += [Buffer("c", "f32[64,120]", (0, 0)), Buffer(clone, "f32[64,120]", (9, 9))]
    buffers = [b._replace(name=f"{b.name}.{i}") if b.name.startswith("dot.") else b for i, b in enumerate(buffers)]
    buffers = [b._replace(name=f"{b.name}.remat") if b.name == cloned else b for b in buffers]
    assert sum(b.size for b in buffers if b.name.startswith("h.")) == 56 * kib
    return advice(program(make, buffers, platform, hlo=stack_frames(*STAGES, [LOSS])), "recompute")


def test_blocks_of_different_sizes_are_layers(make: Make) -> None:
    """As those of a U-Net, of which each has half as many elements: jax.checkpoint around them saved 2.9 of 7.9 GiB.

    The backward pass holds one at a time: the last one, the smallest, beside the logits.
    """
    (row,) = stages(make)
    assert (row["function"], row["n_buffers"], row["confidence"]) == ("Block.__call__", 6, "likely")
    assert row["lower"] == int(0.6 * ((56 - 32 + 16) << 10))


@pytest.mark.parametrize(("reader", "is_alike"), [(9, True), (4, False)])
def test_what_code_around_blocks_reads_in_the_backward_pass_is_not_kept(
    reader: int, is_alike: bool, make: Make
) -> None:
    """XLA fuses the backward pass of a block with that of what is around it."""
    (row,), (bound,) = stages(make), stages(make, reader=reader)
    assert (row["lower"] - bound["lower"] < 100) == is_alike
    assert (row["upper"] - bound["upper"] < 100) == is_alike, (row["upper"], bound["upper"])


def test_blocks_of_different_sizes_are_no_loop(make: Make) -> None:
    """Which a CPU would need to compute them again one after the other."""
    assert stages(make, platform="cpu") == []
    assert len(stages(make, platform="gpu")) == 1


@pytest.mark.parametrize(("clone", "confidence"), [("c.remat", "try"), ("c.1", "likely")])
def test_blocks_of_which_xla_computes_parts_again(clone: str, confidence: str, make: Make) -> None:
    """It does so less then: jax.checkpoint around them cost 0.7 GiB of 13.7, and saved 1.7 of 15.9."""
    (row,) = stages(make, clone=clone)
    assert row["confidence"] == confidence
    assert row["lower"] > -0.16 * (72 << 10), "a part of the peak is less than the largest block"


def test_what_xla_computes_again_of_a_block_is_in_memory_once(make: Make) -> None:
    """The largest block is in memory with the blocks that the backward pass has not come to, or the logits."""
    (row,) = stages(make, cloned="h.0.0")
    assert row["lower"] == int(0.6 * ((56 - 16 - 8) << 10))


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
        assert row["lower"] == pytest.approx(0.6 * (6 - 2 - 2 * kept) * 16 * kib, abs=100)


@pytest.mark.parametrize(("frames", "n"), [((0, 0), 1), ((0,), 0)])
def test_layers_with_a_single_product_are_helpers(frames: tuple[int, ...], n: int, make: Make) -> None:
    """However many there are."""
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 8 - i), f"{layer}/mul") for i, layer in enumerate(LAYERS)]
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    inside = [b for i, layer in enumerate(LAYERS) for b in products(layer, frames=frames)]
    inside = [b._replace(name=f"{b.name}.{i}") for i, b in enumerate(inside)]
    assert len(advice(program(make, [*kept, *gradients, *inside], "tpu"), "recompute")) == n


@pytest.mark.parametrize(("again", "is_certain"), [(2, True), (3, False)])
def test_more_than_half_of_five_layers_are_computed_again(again: int, is_certain: bool, make: Make) -> None:
    """Even if the others alone save something, the compiler may then keep more."""
    layers, use = [f"jit(f)/jvp(layer_{i})" for i in range(5)], "  s.9, operand 0"
    names = [f"h.{i}.remat2" if i < again else f"h.{i}" for i in range(5)]
    kept = [Buffer(n, "f32[64,64]", (i, 9), f"{layers[i]}/mul", uses=use) for i, n in enumerate(names)]
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    (row,) = advice(program(make, kept + gradients + products(*layers), "tpu"), "recompute")
    assert (row["lower"] > 0) == is_certain


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
    assert row["lower"] == (-largest if again > 2 else pytest.approx(0.6 * (sum(sizes) - largest), abs=100))
    assert row["upper"] >= 4 * 64 * (64 + 65 + 66 + 67)


@pytest.mark.parametrize(("n", "lower"), [(8, True), (6, True), (5, None)])
def test_layers_with_few_products(n: int, lower: bool | None, make: Make) -> None:
    """One and a half in each of four layers are enough, also for a lower bound."""
    name = "jit(f)/jvp(layer_{})/mul"
    kept = [Buffer(f"h.{i}", "f32[64,64]", (i, 9), name.format(i), uses="  s.9, operand 0") for i in range(4)]
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    rows = advice(program(make, kept + gradients + products(*LAYERS)[:n], "tpu"), "recompute")
    assert [row["lower"] > 0 for row in rows] == ([] if lower is None else [lower])


def test_half_of_the_bytes_at_the_peak_are_computed_again(make: Make) -> None:
    """That is not most of them: another second copy is only needed after the peak."""
    name = "jit(f)/jvp(layer_{})/mul"
    names = ["h.0.remat2", "h.1.remat2", "h.2", "h.3"]
    kept = [Buffer(n, "f32[64,64]", (i, 7), name.format(i), uses="  s.7, operand 0") for i, n in enumerate(names)]
    kept.append(Buffer("e.0.remat2", "f32[2,64]", (8, 9), name.format(0), uses="  s.9, operand 0"))
    gradients = [Buffer(f"g.{i}", "f32[]", (8 - i, 8 - i), f"jit(f)/transpose(jvp(layer_{i}))/mul") for i in range(4)]
    (row,) = advice(program(make, kept + gradients + products(*LAYERS), "tpu"), "recompute")
    assert row["lower"] > 0


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


def test_what_one_layer_alone_keeps_is_none_of_the_layers(make: Make) -> None:
    """Although it is computed in the same function."""
    frames = stack_frames([STEP, LOSS, ("block", 3)], [STEP, LOSS, ("block", 4)])
    (row,) = step_of_layers(make, [[1, 2], [1], [1]], hlo=frames)
    assert (row["function"], row["n_buffers"]) == ("block", 3)


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
            Buffer("h", "f32[64,64]", (2, 2), "jit(f)/jvp()/while/body/mlp/dot_general"),
            Buffer("g.1", "f32[64,64]", (4, 5), f"{scope}mul"),
            Buffer("g.2", "f32[64,64]", (5, 6), f"{scope}dot_general"),
        ],
    )
    (row,) = advice(dump, "recompute")
    assert row["action"].startswith(
        "The policy of jax.checkpoint keeps activations of the loop. Pass policy=jax.checkpoint_policies."
        "nothing_saveable, or no policy; save_only_these_names keeps a part. They are stacked over 8 iterations."
    )
    assert row["names"] is None
    # What the loop passes on is in another memory space, and stays there.
    assert row["upper"] >= 4 * 8 * 64 * 64 - 4 * 64 * 64


@pytest.mark.parametrize(
    ("paths", "named"),
    [
        (["step/loss/Block.__call__/attend", "step/loss/Block.__call__/mlp"], ", which `Block.__call__` computes"),
        (["step/loss/Block.__call__", "step/loss/Block.__call__/mlp"], ", which `Block.__call__` computes"),
        (["step/loss/attend/norm", "step/loss/mlp/norm"], ", which `loss` computes"),
        (["step/attend", "step/mlp"], ""),  # the whole program
        (["step/attend", "other/mlp"], ""),
        (["step/loss/attend", None], ""),
        ([None, None], ""),
    ],
)
def test_the_function_of_which_a_policy_keeps_activations(
    paths: list[str | None], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rematerialization, "functions", lambda p, values: pa.array(paths, pa.string()))
    a: Any = SimpleNamespace(p=None, is_whole=lambda name: name == "step")
    assert rematerialization._computed_in(a, np.arange(2)) == named


def test_names_of_the_products_in_the_body_of_a_loop(make: Make) -> None:
    """Not of those before the loop, after it, or of the backward pass. It begins with the initial value of a stack."""
    forward, backward = "jit(f)/jvp()/{}/dot_general", "jit(f)/transpose(jvp())/gradient/dot_general"
    names = [("embed", 1), ("mlp", 2), ("attention", 3), ("head", 4)]
    inside = [Buffer(name, "f32[8,8]", (at, at), forward.format(name)) for name, at in names]
    result = loop("while.1", 8, "jit(f)/jvp()/while", live=(3, 3))
    stack = Buffer("while.1{1}", "f32[8,64,64]", (3, 6), "jit(f)/jvp()/while", uses="  s.5, operand 0")
    stack = stack._replace(more=value(90, "initial", stack.size, result.size, stack.shape))
    gradients = [Buffer(f"g.{at}", "f32[8,8]", (at, at), backward) for at in (3, 5)]
    (row,) = advice(program(make, [result, stack, *inside, *gradients], ranges=["initial{}:2-3"]), "recompute")
    assert row["names"] == "attention,mlp"


@pytest.mark.parametrize("is_passed_on", [False, True])
@pytest.mark.parametrize(("n", "carry"), [(64, 4 * 64), (63, 4 * 64 * 64)])
def test_much_smaller_elements_of_stacks_do_not_count(n: int, carry: int, is_passed_on: bool, make: Make) -> None:
    """Even if they are passed on. Then what is passed on is taken for as large as the smallest of the others."""
    name = "jit(f)/jvp()/while"
    stacks = [f"f32[8,{shape}]" for shape in ("64,64", f"{n}")]
    buffers = [Buffer(f"while.1{{{i}}}", s, (2, 6), name, uses="  s.5, operand 0") for i, s in enumerate(stacks, 1)]
    buffers += [Buffer("while.1{9}", f"f32[{n}]", (2, 2), name)] * is_passed_on
    gradient = Buffer("g", "f32[8]", (5, 6), "jit(f)/transpose(jvp())/while/body/mul")
    dump = program(make, [loop("while.1", 8, name, live=(2, 2)), *buffers, gradient])
    (found,) = LayerActivations(WhatIf(program_of(dump))).stacks
    assert found.carry == carry


@pytest.mark.parametrize("is_checkpointed", [True, False])
def test_what_a_loop_passes_on_in_two_memories(is_checkpointed: bool, make: Make) -> None:
    """With a policy, each of the two arrays is kept. Otherwise, what is passed on in the main memory counts."""
    body = "jit(f)/transpose(jvp())/while/body/" + "checkpoint/" * is_checkpointed
    name = "jit(f)/jvp()/while"
    passed_on = Buffer("while.1{2}", "f32[32,64]", (2, 2), name)
    buffers = [
        loop("while.1", 8, name, live=(2, 2)),
        Buffer("while.1{1}", "f32[8,64,64]", (2, 6), name, uses="  s.5, operand 0"),
        Buffer("while.1{4}", "f32[8,32,64]", (2, 6), name, uses="  s.5, operand 0"),
        passed_on, passed_on._replace(name="while.1{3}", allocation="color 1, preallocated-temp:"),
        Buffer("g", "f32[8]", (5, 6), f"{body}mul"),
    ]  # fmt: skip
    a = LayerActivations(WhatIf(program_of(program(make, buffers, "tpu"))))
    (stacks,) = a.stacks
    assert (stacks.checkpointed, stacks.recomputed) == (is_checkpointed, False)
    assert stacks.carry == passed_on.size * (2 if is_checkpointed else 1)


def test_what_a_loop_passes_on_is_padded_in_another_memory(make: Make) -> None:
    """A policy keeps as many bytes of it as the stack of such arrays has for each iteration."""
    body, name = "jit(f)/transpose(jvp())/while/body/checkpoint/", "jit(f)/jvp()/while"
    stack = Buffer("while.1{1}", "f32[8,32,64]", (2, 6), name, uses="  s.5, operand 0")
    padded = value(90, "while.1{2}", stack.size // 4, 0, "f32[32,64]", 1)
    vmem = Buffer("x", "f32[64,64]", allocation="color 1, preallocated-temp:", more=padded)
    buffers = [loop("while.1", 8, name, live=(2, 2)), stack, vmem, Buffer("g", "f32[8]", (5, 6), f"{body}mul")]
    dump = program(make, buffers, "tpu", ["while.1{2}:2-2"])
    (stacks,) = LayerActivations(WhatIf(program_of(dump))).stacks
    assert (stacks.checkpointed, stacks.carry) == (True, stack.size // 8)


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


def test_when_the_stacks_of_a_loop_are_read(make: Make) -> None:
    """From the first use of any of them to the end of the last one."""
    name = "jit(f)/jvp()/while"
    ends = [(7, 5), (6, 4), (8, 6)]
    stacks = [
        Buffer(f"while.1{{{i}}}", "f32[8,64,64]", (2, end), name, uses=f"  s.{step}, operand 0")
        for i, (end, step) in enumerate(ends, 1)
    ]
    gradient = Buffer("g", "f32[64]", (4, 9), "jit(f)/transpose(jvp())/while/body/mul")
    dump = program(make, [loop("while.1", 8, name, live=(2, 2)), *stacks, gradient])
    (found,) = LayerActivations(WhatIf(program_of(dump))).stacks
    assert found.read == (4, 8)


def test_two_iterations_of_an_offloaded_stack_are_in_memory(make: Make) -> None:
    """One is read while the next one comes. Until the backward pass begins, none is."""
    name, scope = "jit(f)/jvp()/while", "jit(f)/transpose(jvp())/while/body/checkpoint/"
    stack = Buffer("while.1{2}", "f32[8,64,64]", (2, 6), name, uses="  s.4, operand 0")
    passed_on = Buffer("while.1{1}", "f32[1,64,64]", (2, 2), name)
    again = Buffer("g", "f32[64,64]", (4, 5), f"{scope}mul")
    dump = program(make, [loop("while.1", 8, name, live=(2, 2)), stack, passed_on, again], "tpu")
    (found,) = offloads(LayerActivations(WhatIf(program_of(dump))))
    one = stack.size // 8
    assert (found.change.levels // one).tolist() == [0, 0, -8, -8, -6, -6, -6, 0, 0, 0, 0]


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


@pytest.mark.parametrize(("begin", "phases"), [(3, [FORWARD, FORWARD]), (4, [FORWARD, NO_PHASE])])
def test_a_loop_without_a_phase_has_that_of_its_writer(begin: int, phases: list[int], make: Make) -> None:
    """Old releases of JAX name it only in the body: the result begins where the last iteration has written it."""
    shape = "f32[8,64]"
    written = Buffer("t", shape, (0, 3), "jit(f)/jvp(while)/body/tanh", more=value(9, "while.1{1}", 2048, 0, shape))
    dump = program(make, [written, loop("while.1", 8, "jit(f)/while")], ranges=[f"while.1{{1}}:{begin}-7"])
    a = LayerActivations(WhatIf(program_of(dump)))
    assert a.phase[:2].tolist() == phases


def test_a_loop_without_a_name_is_in_the_pass_of_its_writer(make: Make) -> None:
    """Its writer alone might have been moved to there by the compiler."""
    shape = "f32[8,64]"
    name, more = "jit(f)/transpose(jvp(while))/body/mul", value(9, "while.1{1}", 2048, 0, shape)
    forward = [Buffer(f"a.{i}", "f32[8]", (i, 9), "jit(f)/jvp()/tanh") for i in (1, 6)]
    buffers = [Buffer("t", shape, (3, 4), name, more=more), *forward, loop("while.1", 8, "")]
    a = LayerActivations(WhatIf(program_of(program(make, buffers, ranges=["while.1{1}:4-7"]))))
    assert np.flatnonzero(a.is_backward).tolist() == [3, 4, 5]


@pytest.mark.parametrize("order", [1, -1])
def test_when_the_backward_pass_begins(order: int, make: Make) -> None:
    """With its first instruction, whichever op_name is the first of the dump."""
    names = ["jit(f)/jvp()/tanh", "jit(f)/transpose(jvp())/mul"]
    buffers = [Buffer(f"a.{i}", "f32[8]", (5 * i, 9), name) for i, name in enumerate(names)]
    a = LayerActivations(WhatIf(program_of(program(make, buffers[::order]))))
    assert np.flatnonzero(a.is_backward).tolist() == [*range(5, 11)]


def test_transposed_weights_are_like_weights(make: Make) -> None:
    """Gradients often have their dimensions in another order."""
    weights = argument("w", "f32[64,48]", 0)._replace(allocation="parameter 0, shape |f32[64,48]|, maybe-live-out:")
    shapes = ["f32[64,48]", "f32[48,64]", "f32[1,64,48]", "f32[64,47]", "f32[64]", "f32[64,48,2]"]
    temps = [Buffer(f"a.{i}", shape, (i, 9)) for i, shape in enumerate(shapes)]
    a = LayerActivations(WhatIf(program_of(program(make, [*temps, weights]))))
    assert a.is_like_state.tolist() == [True, True, False, False, False, False, True]


@pytest.mark.parametrize("body", ["", "checkpoint/"])
def test_what_a_policy_saves(body: str, make: Make) -> None:
    """What the forward pass rounds, if anything is checkpointed."""
    names = ["jvp()/reduce_precision", "jvp()/exp", f"transpose(jvp())/{body}mul", "transpose(jvp())/reduce_precision"]
    buffers = [Buffer(f"a.{i}", "f32[8]", (i, 9), f"jit(f)/{name}") for i, name in enumerate(names)]
    a = LayerActivations(WhatIf(program_of(program(make, buffers))))
    assert a.is_saved_by_policy(np.arange(4)).tolist() == [bool(body), False, False, False]


def test_a_loop_that_passes_on_less_than_it_stacks(make: Make) -> None:
    """Two vectors, and each iteration stacks a matrix: recomputation keeps the vectors only."""
    name = "jit(f)/jvp()/while"
    carry = Buffer("while.1{1}", "f32[64]", (2, 2), name)
    stack = Buffer("while.1{2}", "f32[8,128,64]", (2, 6), name, uses="  s.4, operand 0")
    gradient = Buffer("g", "f32[128,64]", (4, 5), "jit(f)/transpose(jvp())/while/body/mul")
    dump = program(make, [loop("while.1", 8, name, live=(2, 2)), carry, stack, gradient])
    (row,) = advice(dump, "recompute")
    assert row["lower"] < stack.size * 3 // 4 < stack.size - 8 * carry.size < row["upper"]


@pytest.mark.parametrize(("trips", "rows", "n"), [(8, 8, 1), (8, 256, 0), (7, 8, 0)])
def test_chunks_of_a_loop_over_weights(trips: int, rows: int, n: int, make: Make) -> None:
    """The backward pass of a chunk has its weights and gradients, which cost more than the chunks saved.

    A prime number of iterations has no chunks.
    """
    name, back = "jit(f)/jvp()/while", "jit(f)/transpose(jvp())/while"
    weights = argument("w", f"f32[{trips},{rows},64]", 0, uses="  while.2, operand 0 {2}")
    kept = Buffer("while.1{1}", f"f32[{trips},64,64]", (2, 6), name, uses="  while.2, operand 0 {1}\n  s.4, operand 0")
    backward = Buffer("g", "f32[64,64]", (4, 5), f"{back}/body/checkpoint/rematted_computation/mul")
    loops = [loop("while.1", trips, name, live=(2, 2)), loop("while.2", trips, back, live=(6, 7))]
    dump = program(make, [weights, loops[0], kept, backward, loops[1]])
    assert len(advice(dump, "scan")) == n


def test_chunks_of_the_loops_that_have_some(make: Make) -> None:
    """One with a prime number of iterations comes first."""
    name, buffers = "jit(f)/jvp()/while", []
    for i, trips in ((1, 7), (2, 8)):
        kept = Buffer(f"while.{i}{{1}}", f"f32[{trips},64,64]", (2, 6), name, uses="  s.4, operand 0")
        buffers += [loop(f"while.{i}", trips, name, live=(2, 2)), kept]
    again = Buffer("g", "f32[64,64]", (4, 5), "jit(f)/transpose(jvp())/while/body/checkpoint/rematted_computation/mul")
    (row,) = advice(program(make, [*buffers, again]), "scan")
    assert row["shape"] == "f32[8,64,64]"


def recurrent_layers(*layers: tuple[str, int]) -> list[Buffer]:
    """Return loops with their numbers of iterations, each of which stacks an array for the backward pass."""
    buffers = []
    for i, (name, trips) in enumerate(layers):
        op_name = f"jit(f)/jvp({name})/while"
        buffers.append(loop(f"while.{i}", trips, op_name, live=(2, 2)))
        for k, width in ((1, 64), (2, 512)):
            shape = f"f32[{trips},{width},64]"
            buffers.append(Buffer(f"while.{i}{{{k}}}", shape, (2, 6), op_name, uses="  s.4, operand 0"))
    return [*buffers, Buffer("g", "f32[64,64]", (4, 5), "jit(f)/transpose(jvp(lstm_0))/while/body/mul")]


def test_alike_loops_are_one_row(make: Make) -> None:
    """Each of the layers of a recurrent network is a loop. What they save adds up."""
    alone, together = (program(make, recurrent_layers(*[(f"lstm_{i}", 8) for i in range(n)])) for n in (1, 3))
    for kind, text in (
        ("recompute", "Recompute the activations of these 3 loops: scan over jax.checkpoint(body). They are stacked"),
        ("scan", "Scan over 4 chunks in each of these 3 loops: split the leading dimension of 8 into (4, 2), and"),
    ):
        (one,), (row,) = advice(alone, kind), advice(together, kind)
        assert row["action"].startswith(text)
        assert row["n_buffers"] == 3 * one["n_buffers"]
        assert row["lower"] == pytest.approx(3 * one["lower"], abs=3)
        assert one["lower"] > 0
        assert row["scope"] == "lstm_*"


def test_alike_loops_that_share_memory(make: Make) -> None:
    """What one of them saves, all of them save together: they are computed one after the other."""
    name = "jit(f)/transpose(jvp(lstm_{}))/checkpoint/rematted_computation/while"
    back = "jit(f)/transpose(jvp(lstm_0))/while/body/mul"
    buffers: list[Buffer] = []
    for i, (begin, end) in enumerate([(1, 4), (6, 8)]):
        buffers.append(loop(f"while.{i}", 8, name.format(i), live=(begin, begin)))
        for k, width in ((1, 64), (2, 512)):
            slot = f"while.0{{{k}}}" if i else ""
            kept = Buffer(f"while.{i}{{{k}}}", f"f32[8,{width},64]", (begin, end), name.format(i), slot_of=slot)
            buffers.append(kept._replace(uses=f"  g.{i}, operand 0"))
        buffers.append(Buffer(f"g.{i}", "f32[64,64]", (end - 1, end - 1), back))
    stacks = 8 * (64 + 512) * 64 * 4
    for kind, text in (("recompute", "activations of these 2 loops:"), ("scan", "in each of these 2 loops:")):
        (row,) = advice(program(make, buffers), kind)
        assert text in row["action"]
        assert 0 < row["lower"] < row["upper"] <= 1.2 * stacks
        assert (row["n_buffers"], row["bytes"]) == (2, stacks)


@pytest.mark.parametrize("layers", [
    [("lstm_0", 8), ("gru_0", 8)], [("lstm_0", 8), ("lstm_1", 16)], [("encoder", 8)] * 2, [("", 8)] * 2,
])  # fmt: skip
def test_other_loops_are_rows_of_their_own(layers: list[tuple[str, int]], make: Make) -> None:
    """They have another scope, one without a number, or another number of iterations."""
    dump = program(make, recurrent_layers(*layers))
    assert [len(advice(dump, kind)) for kind in ("recompute", "scan")] == [2, 2]


def test_alike_loops_that_are_offloaded(make: Make) -> None:
    name, buffers = "jit(f)/jvp(lstm_{})/while", []
    body = "jit(f)/transpose(jvp(lstm_{}))/while/body/checkpoint/rematted_computation"
    for i in range(2):
        kept = Buffer(f"while.{i}{{1}}", "f32[8,64,64]", (2, 6), name.format(i), uses="  s.4, operand 0")
        again = Buffer(f"g.{i}", "f32[64,64]", (4, 5), f"{body.format(i)}/mul")
        buffers += [loop(f"while.{i}", 8, name.format(i), live=(2, 2)), kept, again]
    (row,) = advice(program(make, buffers, "tpu"), "offload")
    assert row["action"].startswith("Offload what these 2 loops keep: begin their bodies with x = checkpoint_name(x,")
    assert row["n_buffers"] == 2


def test_chunks_pass_on_less_at_best(make: Make) -> None:
    """Ring attention passes on a few arrays, and stacks matrices: chunks saved 20.0 GiB of 45.7, estimated 16.1."""
    name = "jit(f)/jvp()/while"
    carry = Buffer("while.1{1}", "f32[64]", (2, 2), name)
    stack = Buffer("while.1{2}", "f32[4,128,64]", (2, 6), name, uses="  s.4, operand 0")
    stacks = [stack, stack._replace(name="while.1{3}", shape="f32[4,512,64]")]
    gradient = Buffer("g", "f32[64]", (4, 5), "jit(f)/transpose(jvp())/while/body/mul")
    (row,) = advice(program(make, [loop("while.1", 4, name, live=(2, 2)), carry, *stacks, gradient]), "scan")
    assert row["lower"] < sum(s.size for s in stacks) // 2 < row["upper"]


@pytest.mark.parametrize(
    ("trips", "carry", "per_trip", "length"),
    [(12, 1, 1, 3), (12, 1, 0, 6), (12, 0, 1, 2), (2, 1, 1, None), (7, 1, 1, None),
     (2 * 4096, 1, 0, 4096), (2 * 4097, 1, 0, 482)],
)  # fmt: skip
def test_lengths_of_chunks(trips: int, carry: int, per_trip: int, length: int | None) -> None:
    """They divide the iterations, and there are several chunks, of which none is too long."""
    assert _chunk(trips, carry, per_trip) == length


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
    assert row["upper"] >= (8 + 2) * 64 * 64 * 4  # hardly anything is passed on


@pytest.mark.parametrize(("n", "rows"), [(8, 0), (1 << 16, 1)])
def test_no_other_element_type_for_few_bytes(n: int, rows: int, make: Make) -> None:
    """Half of 512 bytes was called a saving of up to 61 MiB, because other buffers may move to VMEM."""
    loss = Buffer("loss", f"f32[{n}]", (0, 8), "jit(f)/jvp()/reduce_sum")
    large = Buffer("h", "s8[65536]", (0, 8), "jit(f)/jvp()/round")
    dump = program(make, [argument("x", "s8[65536]", 0), loss, large], "tpu")
    assert len([r for r in advice(dump, "dtype") if r["argument"] is None]) == rows


@pytest.mark.parametrize(("width", "text"), [(48, "convert these before jax.grad"), (40, "The compiler may")])
def test_gradients_of_wide_arguments(width: int, text: str, make: Make) -> None:
    """A program that converts its parameters to bf16 inside of the loss has gradients in f32 all the same."""
    weights = argument("w", "f32[64,48]", 0)._replace(allocation="parameter 0, shape |f32[64,48]|, maybe-live-out:")
    gradient = Buffer("g", "f32[64,48]", (3, 6), "jit(f)/transpose(jvp())/dot_general")
    hidden = Buffer("h", f"f32[{64 * (88 - width)}]", (3, 6), "jit(f)/jvp()/tanh")
    (row,) = (r for r in advice(program(make, [weights, gradient, hidden], "tpu"), "dtype") if r["argument"] is None)
    assert text in row["action"]
    assert ("Most are gradients" in row["action"]) == (width == 48)


def test_gradients_of_activations_have_no_type_of_arguments(make: Make) -> None:
    weights = argument("w", "f32[64,48]", 0)._replace(allocation="parameter 0, shape |f32[64,48]|, maybe-live-out:")
    gradient = Buffer("g", "f32[64,96]", (3, 6), "jit(f)/transpose(jvp())/mul")
    (row,) = (r for r in advice(program(make, [weights, gradient], "tpu"), "dtype") if r["argument"] is None)
    assert "Most are gradients" not in row["action"]


def test_xla_may_keep_an_array_in_both_element_types(make: Make) -> None:
    """Then the smaller one is in addition to it, and what is computed from the larger one."""
    logits = Buffer("logits", "f32[64,512]", (3, 6), "jit(f)/jvp()/dot_general")
    hidden = [Buffer(f"h.{i}", "f32[64,64]", (2, 6), "jit(f)/jvp()/tanh") for i in range(4)]
    (row,) = advice(program(make, [*hidden, logits], "tpu"), "dtype")
    assert (row["lower"], row["confidence"]) == (-logits.size, "try")


def test_less_than_a_twentieth_of_the_peak_may_be_lost_anyway(make: Make) -> None:
    hidden = [Buffer(f"h.{i}", "f32[64,64]", (2, 6), "jit(f)/jvp()/tanh") for i in range(24)]
    (row,) = advice(program(make, hidden, "tpu"), "dtype")
    assert row["lower"] == -(24 * hidden[0].size // 20)


def test_temporaries_that_share_bytes_of_an_output_leave_at_least_half_of_them(make: Make) -> None:
    """Each of both may shrink by half, but not both leave the other half."""
    hidden = Buffer("h", "f32[64,64]", (2, 6))
    mates = [Buffer(f"m.{i}", "f32[64,32]", (2, 6), slot_of="out") for i in range(2)]
    w = WhatIf(program_of(program(make, [hidden, output("out", "f32[64,32]"), *mates])))
    names = w.p.value_text("instruction", np.arange(4)).to_pylist()
    for halved, wanted in ((["m.0", "m.1"], 4096), (["m.0"], 4096), ([], 8192)):
        assert moved_at_worst(w, np.isin(names, halved)) == wanted


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0]])
def test_of_loops_that_share_memory_the_largest_counts(order: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rematerialization, "common_scope", lambda p, values: ("layer_*", 1))
    shared = np.kron(np.eye(2), np.ones((2, 2))).astype(bool)
    loops = [SimpleNamespace(values=np.array([i]), members=shared[i], trips=4, checkpointed=False, loop=i)
             for i in order]  # fmt: skip
    p = SimpleNamespace(extent=np.array([10, 30, 20, 15]))
    a: Any = SimpleNamespace(p=p)
    (found,) = _similar(a, loops)  # type: ignore[arg-type]
    assert (found.n, [s.loop for s in found.parts]) == (4, [1, 2])
