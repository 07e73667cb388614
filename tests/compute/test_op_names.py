"""What an op_name says: layer, phase, scope, and whether it names only control flow or a move."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from xlamem import compute
from xlamem.compute.advice import activations, donations
from xlamem.compute.advice.layers import scopes_folded
from xlamem.compute.op_names import (
    ends_in_move,
    folded_paths,
    is_control_flow,
    is_move,
    layers,
    phases,
    plain_names,
    shortened_paths,
)


def names(*texts: str) -> pa.Array:
    return pa.array(texts, pa.string())


@pytest.mark.parametrize(
    ("name", "control", "move"),
    [
        ("jit(train_step)/jvp()/while", True, False),
        ("jit(f)/while;jit(f)/layer_1/add", True, False),
        ("jit(f)/transpose(jvp(while))/body", True, False),
        ("jit(f)/transpose(jvp(checkpoint))/rematted_computation", True, False),
        ("jit(f)/jit(main)/cond/branch_1_fun", True, False),
        ("jit(f)/jvp()/while/body/eval_jaxpr", True, False),
        ("jit(f)/jvp()/while/body/eval_jaxpr/copy", False, True),
        ("", True, False),
        ("jit(f)/jit(main)/while/body/dynamic_update_slice", False, True),
        ("jit(f)/jvp()/while/body/jit(dynamic_update_index_in_dim)/dynamic_update_slice", False, True),
        ("copy", False, True),
        ("broadcast.37", False, True),
        ("dynamic-slice.12", False, True),
        ("copy.x", False, False),
        ("jit(f)/jvp()/dot_general", False, False),
        ("jit(f)/jvp(Model)/while", False, True),
        ("jit(f)/transpose(jvp(Model))/encoder/while/body", False, True),
        ("jit(f)/jit(main)/Model/while[cond_nconsts=0 body_nconsts=1]", False, True),
        ("jit(f)/Model/while/body/jit(dynamic_update_index_in_dim)/dynamic_update_slice", False, True),
        ("jit(f)/Model/while/body/closed_call/copy", False, True),
        ("jit(f)/Model/while/body/closed_call/layer/copy", False, False),
        ("jit(f)/Model/while/body/layer/while/body/squeeze", False, True),
        ("jit(f)/Model/while/body/dot_general", False, False),
        ("jit(f)/Model/copy", False, False),
        ("jit(f)/Model/meanwhile", False, False),
        ("jit(f)/transpose(jvp(layer_5))/mlp/transpose", False, False),
        ("params['w']", False, False),
        ("jit(f)/jvp()/while/body/copy;jit(f)/jvp()/while/body/reshape", False, True),
        ("jit(f)/transpose(jvp())/mul;jit(f)/transpose(jvp())/broadcast_in_dim", False, False),
        ("jit(f)/while/body/transpose;reshape", False, True),
        ("jit(f)/jit(main)/while[cond_nconsts=0 body_nconsts=1]", True, False),
        ("jit(f)/jit(main)/cond[linear=(False,)]", True, False),
        ("jit(f)/jit(main)/while/body/squeeze[dimensions=(0,)]", False, True),
        ("jit(f)/jit(main)/while/body/reduce_sum[axes=(0, 1)]", False, False),
        ("while[0]", False, False),
        ("copy['w']", False, False),
    ],
)
def test_what_names_only_control_flow(name: str, control: bool, move: bool) -> None:
    assert is_control_flow(names(name)).tolist() == [control]
    assert is_move(names(name)).tolist() == [move]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("jit(f)/jvp(Model)/layers_17/dot_general", "forward"),
        ("jit(f)/transpose(jvp(Model))/layers_17/dot_general", "backward"),
        ("jit(f)/transpose(jvp(a))/jvp(a)/checkpoint/rematted_computation/mul", "recompute"),
        ("jit(f)/adam/mul", "optimizer"),
        ("jit(f)/mul", None),
        ("params['w']", None),
    ],
)
def test_phases(name: str, phase: str | None) -> None:
    assert phases(names(name)).to_pylist() == [phase]


TWICE = {
    "jit(f)/jvp(vmap(jvp(conv_1)))/mul": "forward",
    "jit(f)/jvp(vmap(transpose(jvp(conv_1))))/mul": "forward",
    "jit(f)/while/body/jvp(transpose(jvp()))/mul": "forward",
    "jit(f)/transpose(jvp(vmap(jvp(conv_1))))/mul": "backward",
    "jit(f)/transpose(jvp(vmap(transpose(jvp(conv_1)))))/mul": "backward",
    "jit(f)/transpose(jvp(a))/jvp(b)/transpose": "backward",
    "jit(f)/vmap(transpose(jvp(a)))/mul": "backward",
    "jit(f)/add": None,
}
"""Phases of a program that differentiates gradients."""


def test_phases_of_gradients_of_gradients() -> None:
    """The inner backward pass is a part of what the outer one differentiates."""
    assert phases(names(*TWICE)).to_pylist() == [*TWICE.values()]
    # Forward over reverse, as for products with the Hessian: there is no other backward pass.
    inner = "jit(f)/jvp(transpose(jvp(a)))/mul"
    assert phases(names("jit(f)/jvp(jvp(a))/mul", inner)).to_pylist() == ["forward", "backward"]


TENSORFLOW = {
    "functional_1/block_1_1/dense_2_1/MatMul": "forward",
    "functional_1/block_1_1/einsum/Einsum": "forward",
    "Mean": "forward",
    "dense_2_1/MatMul": None,
    "einsum_7/Einsum": None,
    "AddN_3": None,
    "gradient_tape/functional_1/block_1_1/dense_2_1/MatMul/MatMul_1": "backward",
    "gradient_tape/dense_2_1/MatMul/MatMul_1": "backward",
    "gradient_tape/einsum_7/Einsum": "backward",
    "gradient_tape/Mean/truediv": "backward",
    "adam/Mul_3": "optimizer",
    "XLA_Args": None,
}


def test_phases_of_tensorflow() -> None:
    """What the backward pass names is differentiated; a call that is repeated has no scopes around it."""
    names_, expected = list(TENSORFLOW), list(TENSORFLOW.values())
    recomputed = ["recompute" if n == "dense_2_1/MatMul" else p for n, p in TENSORFLOW.items()]
    assert phases(names(*names_)).to_pylist() == recomputed
    alone = [n for n in names_ if "block" not in n]  # without what is computed again, all that has gradients is forward
    found = dict(zip(alone, phases(names(*alone)).to_pylist(), strict=True))
    assert (found["dense_2_1/MatMul"], found["einsum_7/Einsum"], found["Mean"]) == 3 * ("forward",)
    assert [found[n] for n in alone if n.startswith(("gradient_tape", "adam"))] == [
        p for n, p in zip(names_, expected, strict=True) if n in alone and n.startswith(("gradient_tape", "adam"))
    ]


def test_phases_of_tensorflow_1() -> None:
    tape = names("gradients/Relu_grad/ReluGrad", "gradients_1/model/mul_grad/Mul", "gradients/AddN")
    found = phases(pa.concat_arrays([names("Relu", "model/mul", "model/Relu", "Softmax"), tape]))
    assert found.to_pylist() == ["forward", "forward", "forward", None, "backward", "backward", "backward"]


def test_folded_layers() -> None:
    paths = names("layer5/w", "h[12].b", "Blocks3.conv1", "layers_2", "conv1/mul")
    folded = shortened_paths(paths, None, fold=True)
    assert folded.to_pylist() == ["layer*/w", "h[*].b", "Blocks*.conv1", "layers_*", "conv1/mul"]


@pytest.mark.parametrize(
    ("name", "layer", "index"),
    [
        ("jit(f)/jvp(Model)/layers_17/Dense_0/dot_general", "layers_*", 17),
        ("jit(f)/model/h.3/mul", "h.*", 3),
        ("params['blocks'][12].w", "blocks'][*]", 12),
        ("opt_state[0].mu['layer_3']['w1']", "layer_*", 3),
        ("state['opt'][1][0].nu['w']", None, None),
        ("opt_state.inner_states['policy'].inner_state[0].mu['w']", None, None),
        ("state['opt'][1][0].nu['layers'][3]['w']", "layers'][*]", 3),
        ("state.opt_state[1].mu.layers_3.w", "layers_*", 3),
        ("state['opt'].layers[2]", "layers[*]", 2),
        ("args[0]", None, None),
        ("broadcast.37", None, None),
        ("jit(f)/LayerNorm_0/add", None, None),
        ("layers[3].w", "layers[*]", 3),
        ("jit(f)/jvp(layer5)/norm_1/mul", "layer*", 5),
        ("params['encoder']['TransformerBlock12']['w']", "TransformerBlock*", 12),
        ("jit(f)/jvp(model2)/conv1/layers_3/mul", "layers_*", 3),
        ("jit(f)/jvp(conv1)/mul", None, None),
        ("jit(f)/jvp()/while/body/mlp/mul", None, None),
        ("gradient_tape/functional_1/block_3_1/dense_2/MatMul", "block_*", 3),
        ("functional_1/layer_normalization_8_1/add", None, None),
        ("gradient_tape/model/block_3/dense_2/MatMul", "block_*", 3),
        ("jit(f)/model_1/block_3_1/mul", "model_*", 1),
        ("AddN_5", None, None),
        ("jit(f)/jvp(layers_17)/mlp/dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]", "layers_*", 17),
    ],
)
def test_layers(name: str, layer: str | None, index: int | None) -> None:
    found, number = layers(names(name))
    assert (found.to_pylist(), number.to_pylist()) == ([layer and layer.replace("']", "")], [index])


ARGUMENTS = ("params['w']", "layers[3]", "a[3].w", "p['a/b'].c", "p['a[x=1]/b']", 'p["a[x=1]"]', "p[<flat index 0>]")


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("jit(f)/jit(main)/jvp(Model)/layer_0/add", "Model/layer_0"),
        ("jit(f)/jvp(Model)/layer_0/dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]", "Model/layer_0"),
        ("jit(f)/jit(main)/layer_0/psum[axes=('i',) axis_index_groups=None]", "layer_0"),
        ("jit(f)/h[12]/attn/dot_general", "h[12]/attn"),
        ("jit(f)/h[12]/attn/transpose[permutation=(1, 0)]", "h[12]/attn"),
        ("jit(f)/jit(main)/while[cond_nconsts=0 body_nconsts=1]", "while"),
        ("jit(f)/jvp()/while/body/closed_call/attn/split", "attn"),
        ("jit(f)/jvp()/while/body/eval_jaxpr/attn/split", "attn"),
        ("jit(f)/while/body/eval_jaxpr/while/body/eval_jaxpr/cond/branch_0_fun/mlp/mul", "mlp"),
        ("jit(f)/shard_map/layer_1/psum", "layer_1"),
        ("jit(f)/transpose(jvp(a_1))/attn/transpose;jit(f)/transpose(jvp(a_1))/attn/transpose", "a_1/attn"),
        ("jit(f)/jvp()/mul;jit(f)/jvp()/broadcast_in_dim;jit(f)/jvp()/broadcast_in_dim", "mul"),
        ("jit(f)/while/body/closed_call/jvp(mlp)/mul;jvp(attn)/broadcast_in_dim", "mlp"),
        ("jit(f)/while/body/closed_call/attn/ab->ba/transpose;mlp/transpose", "attn/ab->ba"),
        ("jit(f)/a;b,c/;/add", "a;b,c/;"),
        ("jit(f)/transpose(jvp(vmap(jvp(vmap()))))/checkpoint/vmap(nn.MLP)/nn.Linear/dot_general", "nn.MLP/nn.Linear"),
        ("jit(f)/(transpose(jvp())/scatter-add:jvp(jit(log_softmax))/sub:jvp(jit(take))/gather)", "scatter-add"),
        ("jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/layer_1/(dot_general:mul)", "layer_1"),
        ("p['a;jit(b']", "p['a;jit(b']"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_1)/checkpoint/rematted_computation/attn/div", "a_1/attn"),
        ("jit(f)/transpose(jvp(a_1))/mlp/jvp(a_1)/mlp/checkpoint/b/mul", "a_1/mlp/b"),
        ("jit(f)/a/transpose(jvp(b))/a/jvp(b)/checkpoint/mul", "a/b"),
        ("jit(f)/transpose(jvp(a))/while/body/closed_call/b/c/b/c/checkpoint/mul", "a/b/c"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_1)/add_any", "a_1"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_2)/checkpoint/mul", "a_1/a_2"),
        ("jit(f)/a/a/mul", "a/a"),
        ("functional_1/block_3_1/dense_2_1/Gelu/mul_1", "functional/block_3/dense_2/Gelu"),
        ("gradient_tape/functional_1/cat0_1/Slice", "functional/cat0"),
        ("functional_2_1/conv2d_2_1/Relu", "functional_2/conv2d_2"),
        ("functional_1/mha_0_1/einsum_1/Einsum", "functional/mha_0/einsum_1"),
        ("functional_1/while/MatMul_1/x", "functional/while/MatMul_1"),
        ("functional_1/dense_1_1/Tensordot_2/MatMul_1/y", "functional/dense_1/Tensordot_2/MatMul_1"),
        ("gradient_tape/sparse_loss/mul", "sparse_loss"),
        ("jit(f)/model_1/block_3_1/mul", "model_1/block_3_1"),
        *zip(ARGUMENTS, ARGUMENTS, strict=True),
    ],
)
def test_scopes_without_primitives(name: str, scope: str) -> None:
    """Old versions of JAX append parameters to a primitive. Names of arguments are scopes as they are."""
    assert compute.scopes(names(name)).to_pylist() == [scope]


def test_names_of_merged_instructions() -> None:
    """They are those of the first one."""
    joined = names("jit(f)/jvp(a_1)/attn/transpose;jit(f)/jvp(a_2)/mul", "jit(f)/a_1/(b/add:c/mul)")
    assert plain_names(joined).to_pylist() == ["a_1/attn/transpose", "a_1/(b/add:c/mul)"]
    assert layers(joined)[1].to_pylist() == [1, 1]
    assert ends_in_move(joined).tolist() == [True, False]


def test_plain_names_have_no_parameters_of_primitives() -> None:
    """The names of arguments stay as they are."""
    old = names("jit(f)/jit(main)/jvp(M)/up/dot_general[dimension_numbers=(((1,), (0,)), ((), ())) precision=None]")
    assert plain_names(old).to_pylist() == ["M/up/dot_general"]
    assert plain_names(names(*ARGUMENTS)).to_pylist() == list(ARGUMENTS)


def test_primitives_with_parameters() -> None:
    """They are known as those without."""
    for name in ("dot_general", "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]"):
        assert re.search(donations._MIXING_PRIMITIVES, f"jit(f)/mlp/{name}")
        assert re.search(activations._WEIGHTED, f"jit(f)/mlp/{name}")
        assert not ends_in_move(names(f"jit(f)/mlp/{name}"))[0]
    assert ends_in_move(names("jit(f)/mlp/slice", "jit(f)/mlp/slice[start_indices=(0, 0)]")).all()


def test_folded_numbers() -> None:
    """Those that are a component, or follow a joint, or the name of a layer."""
    paths = names("12/dot", "a/12/dot", "h[12]/dot", "x_12/dot", "block3/dot", "conv3/dot", "12a/dot")
    assert shortened_paths(paths, None, fold=True).to_pylist() == [
        "*/dot", "a/*/dot", "h[*]/dot", "x_*/dot", "block*/dot", "conv3/dot", "12a/dot",
    ]  # fmt: skip


def test_families_of_layers() -> None:
    """The last number is that of the layer."""
    layers = ["encoder_2/layer_17", "h[12]", "block3", "embed"]
    assert scopes_folded(names(*layers)).to_pylist() == ["encoder_2/layer_*", "h[*]", "block*", "embed"]


def test_folded_paths_of_names() -> None:
    """Names of different layers have one path; a number that is not of a layer stays."""
    texts = ["jit(f)/jvp(M)/layers_3/dot", "jit(f)/jvp(M)/layers_17/dot", "jit(f)/conv1/dot", "jit(f)/conv2/dot", "x"]
    codes, paths = folded_paths(names(*texts))
    assert paths.take(codes).to_pylist() == ["M/layers_*/dot", "M/layers_*/dot", "conv1/dot", "conv2/dot", "x"]
    codes, paths = folded_paths(names(*texts), plain=False)
    assert paths.take(codes).to_pylist()[:3] == ["jvp(M)/layers_*/dot", "jvp(M)/layers_*/dot", "conv1/dot"]


@pytest.mark.parametrize(("depth", "path"), [(1, "a"), (2, "a/b"), (3, "a/b/c"), (1002, "a/b/c"), (5000, "a/b/c")])
def test_the_first_components_of_a_path(depth: int, path: str) -> None:
    """RE2 repeats nothing more than a thousand times."""
    assert shortened_paths(names("a/b/c"), depth, fold=False).to_pylist() == [path]
