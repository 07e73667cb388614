"""Read op_names: scope, layer, phase, and whether a name says more than that there is control flow."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .columns import Ints, Mask, arrow_array, encoded, flags_of, take

PHASES = ("forward", "backward", "recompute", "optimizer")
OPTIMIZER = PHASES.index("optimizer")

_WRAPPERS = (
    r"\b(?:p?jit|transpose|jvp|vmap|pmap|remat|rematted_computation|checkpoint|custom_jvp|custom_vjp|shard_map|named)"
    r"\(([^()]*)\)"
)
_WRAPPER_DEPTH = 16
"""Maximum depth of nested wrappers that are removed, as in transpose(jvp(jit(f)))."""

_WRAPPER = r"(?:(?:transpose|jvp|vmap|pmap|remat\d*|checkpoint|custom_jvp|custom_vjp|shard_map|named|pjit)\()"
_CONTROL_WORD = (
    r"(?:while|body|cond|condition|call|scan|cond_fun|body_fun|branch_\d+_fun|rematted_computation|remat\d*|checkpoint|"
    r"shard_map|pjit|eval_jaxpr|(?:core_|closed_|custom_jvp_|custom_vjp_|xla_)call(?:_jaxpr)?)"
)
_BETWEEN = (
    r"(?:while/(?:body|cond)|cond/branch_\d+_fun|(?:core_|closed_|core_closed_|custom_jvp_|custom_vjp_)call|checkpoint|"
    r"remat\d*|rematted_computation|eval_jaxpr|shard_map)"
)
"""Components between those of a model that plain names leave out."""
_REPEATED = re.compile(r"(?<![^/])((?:[^/]+/){1,8})\1(?=checkpoint/|remat|add_any$)")
"""A path that JAX repeats in the backward pass of a checkpoint: `layer_1/attn/layer_1/attn/checkpoint/mul`."""
_CONTROL = rf"(?:{_WRAPPER}*p?jit\([^()/]*\)+|{_WRAPPER}+\)+|{_WRAPPER}*{_CONTROL_WORD}\)*)"
"""A component of a path that names only control flow or a transformation."""
_MOVES = (
    r"dynamic_update_slice|dynamic_slice|dynamic_update_index_in_dim|broadcast_in_dim|reshape|squeeze|slice|"
    r"copy|copy_p|convert_element_type|transpose|device_put|broadcast|optimization_barrier|empty"
)
"""Primitives that only move or convert bytes."""
MAX_DEPTH = 1000
"""Maximum number of components of a path that are kept: RE2 repeats no more."""
PARAMETERS = r"\[[a-z_]+=.*$"
"""The parameters of a primitive, which old versions of JAX append to it: `dot_general[dimension_numbers=…]`."""
END = rf"(?:{PARAMETERS}|$)"
"""The end of a primitive, with or without parameters."""
CALL = rf"(?:^|/){_CONTROL}{END}"
"""Op_names that end in control flow or a transformation, and name no operation: `jit(f)`, `jit(f)/closed_call`."""
_JIT = r"^(?:p?jit\([^()]*\)/)+"
_CONTROL_ONLY = rf"^(?:{_CONTROL})?(?:/(?:{_CONTROL}|))*{END}"
_MOVE_ONLY = rf"^(?:.*/while/body/+)?(?:{_CONTROL}/+)*(?:{_MOVES}){END}"
"""A move in control flow, or in a loop with a scope, of which JAX stacks and slices what the body reads and writes."""
_JOINED = (
    rf"^(?:([^'\"]*?);(?:p?jit|transpose|jvp|vmap|pmap|checkpoint|custom_jvp|custom_vjp|shard_map)\(|"
    rf"((?:[^'\"]*?/)?(?:{_MOVES}));).*$"
)
"""The op_names of several instructions that XLA merged, joined by semicolons, which scopes may contain too."""
_COMBINED = r"(^|/)\(+(?:[^:]*/)?([^/:]*):.*\)$"
"""The end of op_names that XLA combined: `jit(f)/layer_1/(attention/add:mlp/mul)`; scopes keep the first primitive."""
_PLACEHOLDER = r"^(?:XLA_Args|xla__device_data)$"
"""The name of every argument of a program of TensorFlow or PyTorch/XLA."""
_CALL_NUMBER = r"_(?:\d+|\*)/"
_NUMBERED_OPERATION = r"(^|/)([A-Z][^/]*|einsum|moments|gradients)_(\d|\*)"
"""Operations of TensorFlow, which numbers those of one call."""
_KERAS_MODEL = rf"^(?:functional|sequential|model)(?:_\d+)*{_CALL_NUMBER}"
_KERAS = rf"^gradient_tape/|{_KERAS_MODEL}"
"""Op_names of the backward pass of TensorFlow, and of models of Keras that have no name and are called again."""
MOVE = rf"(?:^|/)(?:{_MOVES}){END}"
"""Op_names that end in a primitive that moves or converts bytes."""


def scopes(names: pa.Array, *, depth: int | None = None, fold: bool = False) -> pa.Array:
    """Return the scope of each op_name: its path without the last component (the primitive) and JAX's wrappers.

    `jit(f)/jit(main)/transpose(jvp(Model))/layers_17/dot_general` becomes `Model/layers_17`, or `Model/layers_*` with
    `fold`, or `Model` with `depth=1`. An op_name with a single component (the name of an argument) is kept, without the
    parameters of a primitive.
    """
    return shortened_paths(_by_pattern(_plain_scopes, _without_jit(names)), depth, fold)


def _without_jit(names: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(_without_keras(names), _JIT, "")


def _without_keras(names: pa.Array) -> pa.Array:
    """Remove the name of TensorFlow's backward pass, and the numbers that Keras appends to what is called again.

    `gradient_tape/functional_1/block_3_1/dense_1/MatMul` becomes `functional/block_3/dense/MatMul`. Building a model
    calls it and its layers once, so that a training step calls all of them again. The numbers of operations stay.
    """
    if not pc.any(pc.match_substring_regex(names, _KERAS)).as_py():
        return names
    names = pc.replace_substring_regex(names, r"^gradient_tape/", "")
    of_keras = pc.fill_null(pc.match_substring_regex(names, _KERAS_MODEL), False)
    called = pc.replace_substring_regex(names, _NUMBERED_OPERATION, "\\1\\2\0\\3")
    called = pc.replace_substring(pc.replace_substring_regex(called, _CALL_NUMBER, "/"), "\0", "_")
    return pc.if_else(of_keras, called, names)


def _plain_scopes(names: pa.Array) -> pa.Array:
    names = pc.replace_substring_regex(_without_parameters(names), _COMBINED, r"\1\2")
    return pc.replace_substring_regex(_without_wrappers(names), r"^([^'\"]*)/[^/'\"]*$", r"\1")


def plain_names(names: pa.Array) -> pa.Array:
    """Return op_names without JAX's wrappers, loops and parameters of primitives.

    `jit(f)/jvp(Model)/while/body/dot` becomes `Model/dot`.
    """
    return _by_pattern(_plain_names, _without_jit(names))


def _plain_names(names: pa.Array) -> pa.Array:
    return _without_wrappers(_without_parameters(names))


def _without_parameters(names: pa.Array) -> pa.Array:
    # The name of an argument (params['a/b'].c) is not a path.
    return pc.replace_substring_regex(names, rf"^([^'\"]*?){PARAMETERS}", r"\1")


def _without_wrappers(text: pa.Array) -> pa.Array:
    text = _first(text)
    for _ in range(_WRAPPER_DEPTH):
        wrapped, text = text, pc.replace_substring_regex(text, _WRAPPERS, r"\1")
        if text.equals(wrapped):
            break
    text = pc.replace_substring_regex(text, r"/{2,}", "/")
    text = _without_repeats(pc.replace_substring_regex(text, r"^/", ""))
    return pc.replace_substring_regex(text, rf"(^|/)(?:{_BETWEEN}/)+([^/])", r"\1\2")


def _without_repeats(text: pa.Array) -> pa.Array:
    candidates = pc.fill_null(pc.match_substring_regex(text, "/(?:checkpoint/|remat|add_any$)"), False)
    if not pc.any(candidates).as_py():
        return text
    parts = pc.extract_regex(pc.filter(text, candidates), r"(?s)^(?P<path>.*/(?:remat|add_any$)?)(?P<rest>.*)$")
    codes, paths = encoded(pc.struct_field(parts, "path"))
    # RE2 has no back references. There are far fewer paths than names.
    once = pa.array([_REPEATED.sub(r"\1", path) for path in paths.to_pylist()], text.type)
    short = pc.binary_join_element_wise(pc.take(once, arrow_array(codes)), pc.struct_field(parts, "rest"), "")
    return pc.replace_with_mask(text, candidates, short)


def _first(names: pa.Array) -> pa.Array:
    """Return the first of op_names that were joined."""
    if not pc.any(pc.match_substring(names, ";")).as_py():  # nearly always, and ten times as fast
        return names
    return pc.replace_substring_regex(names, _JOINED, r"\1\2")


def shortened_paths(paths: pa.Array, depth: int | None, fold: bool) -> pa.Array:
    """Fold layers (`layers_17` -> `layers_*`, `h[12]` -> `h[*]`, `block3` -> `block*`), keep `depth` components."""
    if fold:
        paths = pc.replace_substring_regex(paths, _JOINTLESS, r"\1*")
        paths = pc.replace_substring_regex(paths, r"([_.\[/])\d+\b", r"\1*")
        paths = pc.replace_substring_regex(paths, r"^\d+\b", "*")
    return paths if depth is None else first_components(paths, depth)


def first_components(paths: pa.Array, depth: int) -> pa.Array:
    """Keep the first components of paths; the quoted key of an argument (params['a/b'].c) is not a path."""
    depth = min(depth, MAX_DEPTH)
    return pc.replace_substring_regex(paths, rf"^((?:[^/'\"]*/){{{depth - 1}}}[^/'\"]*)/.*$", r"\1")


def folded_paths(names: pa.Array, *, plain: bool = True) -> tuple[Ints, pa.Array]:
    """Return codes and texts of op_names with folded layers, which need not be distinct, by default as plain names.

    Others keep their wrappers, but not the parameters of primitives. Names that only differ in their numbers, of which
    long programs have many, are looked at once.
    """
    codes, patterns = patterns_of(names)
    paths = _folded(patterns, plain)
    kept = np.flatnonzero(take(_matches(paths, "0"), codes) > 0)  # a number that is not of a layer
    codes[kept] = len(paths) + np.arange(len(kept))
    return codes, pa.concat_arrays([paths, _folded(pc.take(names, arrow_array(kept)), plain)])


def _folded(names: pa.Array, plain: bool) -> pa.Array:
    short = plain_names(names) if plain else pc.replace_substring_regex(_without_parameters(names), _JIT, "")
    return shortened_paths(short, None, fold=True)


def patterns_of(names: pa.Array) -> tuple[Ints, pa.Array]:
    """Return codes and texts of names with 0 instead of each digit.

    Long programs have many names that only differ in their numbers. Tests that treat all digits alike need to look at
    these texts only.
    """
    validity, ends, data = names.buffers()
    text = np.frombuffer(data or b"", np.uint8)
    zeros = np.where(text - np.uint8(ord("0")) < 10, np.uint8(ord("0")), text)
    buffers = ends, pa.py_buffer(zeros), validity, names.null_count, names.offset
    return encoded(pa.StringArray.from_buffers(len(names), *buffers))


def _by_pattern(shorten: Callable[[pa.Array], pa.Array], names: pa.StringArray) -> pa.StringArray:
    """Apply a function that deletes parts of names, and treats all digits alike, to their patterns where possible.

    Names that lose a digit are looked at themselves.
    """
    if not len(names):
        return names
    codes, patterns = patterns_of(names)
    short = shorten(patterns)
    keeps_digits = pc.equal(pc.count_substring(patterns, "0"), pc.count_substring(short, "0"))
    kept = flags_of(np.asarray(keeps_digits.to_numpy(zero_copy_only=False), bool), codes)
    if kept.all():
        return _with_digits(pc.take(short, arrow_array(codes)), names)
    mask, others = arrow_array(kept), arrow_array(~kept)
    texts = _with_digits(pc.take(short, arrow_array(codes[kept])), pc.filter(names, mask))
    return pc.replace_with_mask(pc.replace_with_mask(names, mask, texts), others, shorten(pc.filter(names, others)))


def _with_digits(patterns: pa.StringArray, names: pa.StringArray) -> pa.StringArray:
    """Replace the zeros of patterns by the digits of names, of which there are as many."""
    validity, ends, data = patterns.buffers()
    text, digits = np.frombuffer(data or b"", np.uint8).copy(), np.frombuffer(names.buffers()[2] or b"", np.uint8)
    text[text == ord("0")] = digits[digits - np.uint8(ord("0")) < 10]
    return pa.StringArray.from_buffers(len(patterns), ends, pa.py_buffer(text), validity, patterns.null_count)


def is_control_flow(names: pa.Array) -> Mask:
    """Return whether each op_name names only control flow and transformations, as `jit(f)/jvp()/while/body` does."""
    return _matches(_first(names), _CONTROL_ONLY)


def is_move(names: pa.Array) -> Mask:
    """Return whether each op_name says only that bytes are moved.

    That is a move in control flow or in the body of a loop (`jit(f)/Model/while/body/copy`), a loop or a call in a
    scope (`jit(f)/jvp(Model)/while`), or the name of an instruction, such as `broadcast.37`, which XLA uses where there
    is no op_name.
    """
    first = _first(names)
    in_scope = _matches(first, CALL)
    if in_scope.any():
        in_scope &= ~_matches(first, _CONTROL_ONLY)
    return in_scope | _matches(first, _MOVE_ONLY) | _matches(names, r"^[a-z\-]+\.\d+$")


def ends_in_move(names: pa.Array) -> Mask:
    """Return whether the last component of each op_name is a primitive that moves or converts bytes."""
    return _matches(_first(names), MOVE)


def without_placeholders(codes: Ints, names: pa.Array) -> tuple[Ints, pa.Array]:
    """Return encoded op_names, with null (-1) for those that a front end gives to all arguments of a program."""
    return np.where(flags_of(_matches(pc.cast(names, pa.string()), _PLACEHOLDER), codes), -1, codes), names


def is_parameter_name(names: pa.Array, parameters: pa.Array) -> Mask:
    """Return whether each op_name is that of an entry parameter, which XLA gives to copies of it too."""
    return _are_in(pc.cast(names, pa.string()), pc.cast(parameters, pa.string()))


COLLECTIVE = (
    r"^(?:opt-barrier|optimization-barrier|all-reduce|all-gather|all-to-all|reduce-scatter|all-reduce-start|"
    r"all-gather-start|collective-permute|collective-permute-start)$"
)
"""Opcodes with one result for each operand."""
STARTING = r"^(?:all-gather-start|collective-permute-start|slice-start|dynamic-slice-start|async-start|async-update)$"
"""Opcodes with a tuple of their operands and results; several operands or results are tuples in it."""
FORWARDING = (
    r"^(?:copy|copy-start|copy-done|bitcast|bitcast-convert|reshape|transpose|convert|slice|dynamic-slice|reverse|"
    r"get-tuple-element|async-start|async-update|async-done|slice-start|slice-done|dynamic-slice-start|"
    r"dynamic-slice-done|opt-barrier|optimization-barrier|all-gather|all-gather-start|all-gather-done|all-to-all|"
    r"collective-permute|collective-permute-start|collective-permute-done|reduce-scatter|all-reduce|"
    r"all-reduce-start|all-reduce-done|pad|add-dependency)$"
)
"""Opcodes with a result that consists of the first operand's bytes: moved, converted, or exchanged with devices."""


MOVING = r"^(?:fusion|dynamic-update-slice|broadcast|iota|constant|tuple|while|call|conditional|parameter)$"
"""Further opcodes that may only move bytes if their op_name says so; others compute, whatever their op_name."""


MOVING_TARGETS = r"^(?:ConcatBitcast|TODO\(|SliceToDynamic|PadToStatic|Sharding|SPMD|annotate_device_placement|MoveTo)"
"""Targets of the custom calls that XLA inserts to move bytes."""


def matching(names: pa.Array, pattern: str) -> Mask:
    """Return whether each of these names contains a pattern."""
    return _matches(pc.cast(names, pa.string()), pattern)


def first_numbers(indices: pa.ChunkedArray) -> Ints:
    """Return the first number of each shape index (`{1,0}`: 1), -1 for null and {}."""
    return _numbers(indices, r"^\{(?P<n>\d{1,9})")


def second_numbers(indices: pa.ChunkedArray) -> Ints:
    """Return the second number of each shape index (`{1,0}`: 0), -1 if there is none."""
    return _numbers(indices, r"^\{\d+,(?P<n>\d{1,9})")


def _numbers(indices: pa.ChunkedArray, pattern: str) -> Ints:
    codes, texts = encoded(indices)
    number = pc.struct_field(pc.extract_regex(pc.cast(texts, pa.string()), pattern), "n")
    numbers = pc.fill_null(pc.cast(number, pa.int64()), -1).to_numpy(zero_copy_only=False)
    return take(np.asarray(numbers, np.int64), codes)


def _matches(names: pa.Array, pattern: str) -> Mask:
    matches = pc.fill_null(pc.match_substring_regex(names, pattern), False)
    return np.asarray(matches.to_numpy(zero_copy_only=False), bool)


# -- phases and layers ---------------------------------------------------------------------------

_OPTIMIZER = (
    r"(?i)(?:^|[/(])"
    r"(?:optimizers?|apply_updates|adam\w*|sgd\w*|momentum|adafactor|adagrad|rmsprop|lamb|lion)\b"
)
_OPTIMIZER_FILE = r"(?:^|/)(?:optax|optimizers?)(?:/|\.py$)"
OPTIMIZER_STATE = r"(?i)\b(?:opt_?state|optimizer|mu|nu|momentum|exp_avg\w*|velocity|adam\w*)\b"

_ARGUMENT_INDEX = r"^(?P<stem>\w+)\[\d+\]"
_OPTIMIZER_INDEX = r"(?i)\b((?:opt\w*|inner_states?)['\"]?\]?)(?:\[\d+\])+"
"""The number of a transformation in a chain of them: `opt_state[0]`, `state['opt'][1][0].mu`, `inner_state[0].nu`."""
_JOINTLESS = r"(?i)((?:layer|block|stage)s?)(\d{1,9})\b"
"""Layers whose number follows right after their name. That of other names, such as conv1, may be no layer."""
_JOINT = "#"
"""What stands for the missing joint while layers are looked for."""
_LAYER_STEM = r"(?i)layer|block|stage|resnet|\bh$"
_NO_LAYER = r"(?i)norm|embed|dropout|matmul|branch|einsum|dot_general|^adam|^sgd|opt_?state|batch$|inputs?|ids$|^addn?$"
_LAYER = (
    rf"(?:^|[/'\"\[.(])(?P<stem>[A-Za-z][A-Za-z0-9_\-]*?)(?P<joint>_|\.|{_JOINT}|\[|'\]\[|\"\]\[)(?P<index>\d{{1,9}})"
    r"(?:['\"]?\]|)(?:[/'\".)\[]|$)"
)


_FORWARD = r"\bjvp\("
_RECOMPUTED = r"\brematted_computation\b"
_BACKWARD = r"\btranspose\(|(?:^|/)gradient_tape/|^gradients(?:_\d+)?/|(?:^|/)aten__\w+_backward"
"""Op_names of the backward pass, by JAX, by TensorFlow, and by PyTorch/XLA, which names parts of it like the forward
pass (`aten__mm`)."""
_TWICE = r"\btranspose\((?:\w+\()+transpose\("
"""Op_names of a backward pass of a backward pass, in programs that differentiate gradients, such as meta-learning."""
_INNER_BACKWARD = r"^(?:[^/]*/)*?(?:(?:p?jit|vmap|pmap|named|shard_map)\()*jvp\((?:\w+\()*transpose\("
"""Op_names of a backward pass that is differentiated itself: in these programs, a part of the forward pass."""
_TAPES = (
    r"^gradient_tape/(?P<root>[^/]+)",
    r"^gradients(?:_\d+)?/(?P<root>[^/]+?)_grad/",
    r"^gradients(?:_\d+)?/(?P<root>[^/]+)/(?:[^/]+/)*[^/]+_grad/",
)
"""Op_names of TensorFlow's backward pass, with the outermost scope or the operation that is differentiated."""
_MAX_AROUND = 8
"""Maximum depth of the scopes around a call that `tf.recompute_grad` repeats."""


def phases(names: pa.Array) -> pa.Array:
    """Return the phase of each of the op_names of a program: forward, backward, recompute, optimizer, or null.

    JAX wraps what is differentiated in `jvp(…)`, its backward pass in `transpose(jvp(…))`, and marks forward
    operations that a backward pass repeats as `rematted_computation`. TensorFlow marks its backward pass only, which
    names what is differentiated, and PyTorch/XLA parts of it.
    """
    forward, recomputed = _of_tensorflow(names)
    of_jax = _matches(names, _FORWARD)
    is_optimizer = _matches(names, _OPTIMIZER) & ~of_jax
    conditions = [_matches(names, _RECOMPUTED) | recomputed, are_backward(names), of_jax | forward, is_optimizer]
    fields = pa.StructArray.from_arrays([arrow_array(c) for c in conditions], ["r", "b", "f", "o"])
    return pc.case_when(fields, "recompute", "backward", "forward", "optimizer")


def are_backward(names: pa.Array) -> Mask:
    """Return which of the op_names of a program belong to its backward pass."""
    backward = _matches(names, _BACKWARD)
    return backward & ~_matches(names, _INNER_BACKWARD) if _matches(names, _TWICE).any() else backward


def are_forward(names: pa.Array) -> Mask:
    """Return which of the op_names of a program are differentiated, including what the backward pass computes again."""
    return _matches(names, _FORWARD) | _of_tensorflow(names)[0]


def are_recomputed(names: pa.Array) -> Mask:
    """Return which of the op_names of a program the backward pass computes again."""
    return _matches(names, _RECOMPUTED) | _of_tensorflow(names)[1]


def is_tensorflow(names: pa.Array) -> bool:
    """Return whether some of the op_names of a program are those of TensorFlow's backward pass."""
    return any(_matches(names, tape).any() for tape in _TAPES)


def _of_tensorflow(names: pa.Array) -> tuple[Mask, Mask]:
    """Return which of the op_names of a program are of TensorFlow's forward pass, and which of these are recomputed.

    The backward pass has their outermost scope after its own: `gradient_tape/model/dense/MatMul` differentiates
    `model/dense/MatMul`. `tf.recompute_grad` calls a function a second time without the scopes around it, as
    `dense/MatMul`. Where it does, operations without a scope are of no known phase, nor are those with another number,
    such as `einsum_2/Einsum`: they may be of either call.
    """
    if not is_tensorflow(names):
        return np.zeros(len(names), bool), np.zeros(len(names), bool)
    differentiated = [pc.struct_field(pc.extract_regex(names, tape), "root") for tape in _TAPES]
    roots = pc.replace_substring_regex(names, r"/.*$", "")
    forward = _are_in(roots, pc.drop_null(pc.unique(pa.concat_arrays(differentiated)))) & ~are_backward(names)
    plain, inner = _without_number(names), pc.filter(names, arrow_array(forward))
    is_same, is_similar = np.zeros(len(names), bool), np.zeros(len(names), bool)
    for _ in range(_MAX_AROUND):
        inner = pc.unique(pc.replace_substring_regex(pc.filter(inner, pc.match_substring(inner, "/")), r"^[^/]*/", ""))
        is_same |= _are_in(names, inner)
        is_similar |= _are_in(plain, _without_number(inner))
    recomputed = forward & is_same & _matches(names, "/")
    return forward & (recomputed | ~is_similar | ~recomputed.any()), recomputed


def _without_number(names: pa.Array) -> pa.Array:
    """Remove the number of the outermost scope: `einsum_2/Einsum` becomes `einsum/Einsum`."""
    return pc.replace_substring_regex(names, r"^([^/]*?)_\d+(/|$)", r"\1\2")


def _are_in(names: pa.Array, others: pa.Array) -> Mask:
    found = pc.is_in(names, others, skip_nulls=True)
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)


def is_optimizer_file(files: pa.Array) -> Mask:
    """Return whether each source file belongs to an optimizer library or module."""
    return _matches(files, _OPTIMIZER_FILE)


def is_optimizer_state(names: pa.Array) -> Mask:
    """Return whether each name of an argument is that of optimizer state, as `opt_state[0].mu['w']`."""
    return _matches(names, OPTIMIZER_STATE)


def layers(names: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the layer of each op_name or argument name, and its index: `layers_17` is `layers_*` and 17, or null.

    It is the outermost component of the scope that ends in a number. A number right after the name of an argument
    (`args[0]`) counts only if that name says that it is a layer.
    """
    scope, layer, index = layers_by_scope(names)
    return pc.take(layer, arrow_array(scope)), pc.take(index, arrow_array(scope))


def layers_by_scope(names: pa.Array) -> tuple[Ints, pa.Array, pa.Array]:
    """Return the same for each scope: the scope of each name, the layer of each scope, and its index."""
    names = pc.if_else(arrow_array(is_move(names)), None, names)
    names = pc.fill_null(pc.replace_substring_regex(names, r"/[^/()'\"\[\]]+$", "/x"), "")  # whatever the primitive
    scope, names = encoded(names)
    text = pc.replace_substring_regex(scopes(names), r"^(?:jvp|transpose)\(+", "")
    text = pc.replace_substring_regex(text, _OPTIMIZER_INDEX, r"\1")
    stems = pc.struct_field(pc.extract_regex(text, _ARGUMENT_INDEX), "stem")
    strip = pc.fill_null(pc.and_(pc.is_valid(stems), pc.invert(pc.match_substring_regex(stems, _LAYER_STEM))), False)
    text = pc.if_else(strip, pc.replace_substring_regex(text, _ARGUMENT_INDEX, ""), text)
    parts = pc.extract_regex(pc.replace_substring_regex(text, _JOINTLESS, rf"\1{_JOINT}\2"), rf"^.*?{_LAYER}")
    stem, joint, index = (pc.struct_field(parts, name) for name in ("stem", "joint", "index"))
    bracket = pc.match_substring_regex(joint, r"\[$")
    stem = pc.if_else(pc.match_substring_regex(stem, _NO_LAYER), None, stem)
    joint = pc.if_else(pc.equal(joint, _JOINT), "", joint)
    layer = pc.binary_join_element_wise(
        stem, pc.if_else(bracket, "[", joint), "*", pc.if_else(bracket, "]", ""), ""
    )
    return scope, layer, pc.if_else(pc.is_valid(layer), pc.cast(index, pa.int64()), None)
