"""Interventions on activations, with bounds of what each saves: recompute, offload, chunk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from ..buffer_names import functions
from ..callers import Function
from ..clones import are_clones
from ..columns import Ints
from ..layout import MAX_TOTAL_BYTES
from .bounds import of_values, with_vmem
from .intervention import Intervention, common_scope, joined_by_and
from .layers import LayerActivations, Layers
from .stacks import Stacks
from .what_if import Change, sum_of

LOOP_LOWER, LOOP_UPPER = 0.65, 1.05
LAYER_LOWER, LAYER_UPPER = 0.6, 1.05
STAGES_UPPER, STAGES_COST = 1.35, 0.15
CHUNK_LOWER, CHUNK_UPPER = 0.6, 1.15
OFFLOAD_MARGIN = 0.5
"""Multiples of the estimates that are bounds; docs/advice.md has the measurements."""
MIN_PRODUCTS = 1.5
"""Mean number of matrix products in what is a layer, and no helper of one."""
MAX_CHUNK = 1 << 12
"""Maximum number of iterations in a chunk."""
MAX_CALLS = 3
"""Maximum number of lines that call a function of which the text names all."""
BODY_INPUT = "body_input"
"""Name for what a loop passes to its next iteration."""
POLICY = "jax.checkpoint_policies.save_only_these_names"
LESS = "Pass policy=jax.checkpoint_policies.nothing_saveable, or no policy; save_only_these_names keeps a part."
RECOMPUTE_GRAD = (
    "Wrap what each of these layers computes in tf.recompute_grad: for a layer of Keras, call(self, x) returns "
    "tf.recompute_grad(self.f)(x), where f computes what call does now."
)
"""TensorFlow lets what is computed again depend on the gradient, so that XLA cannot do it for all layers at once."""


def recomputations(a: LayerActivations) -> Iterator[Intervention]:
    """Compute the activations of layers and of iterations again in the backward pass, instead of keeping them."""
    for loops in _similar(a, [s for s in _own_stacks(a) if not s.recomputed]):
        yield _recomputed_loops(a, loops)
    for layers in a.layers:
        if layers.n_layers > 1 and not a.is_recomputed(layers):
            yield _recomputed_layers(a, layers)


def _own_stacks(a: LayerActivations) -> list[Stacks]:
    """Return what loops keep whose body can be checkpointed: those of TensorFlow are in its recurrent layers."""
    return [] if a.is_tensorflow else a.stacks


class _Loops(NamedTuple):
    """Similar loops."""

    n: int
    parts: list[Stacks]
    """Their stacks. Of loops that share memory, only the largest: what it saves is saved for all of them."""

    @property
    def first(self) -> Stacks:
        return self.parts[0]

    @property
    def values(self) -> Ints:
        values: Ints = np.concatenate([s.values for s in self.parts])
        return values

    def __str__(self) -> str:
        return "the loop" if self.n == 1 else f"these {self.n:,} loops"


def _similar(a: LayerActivations, stacks: Sequence[Stacks]) -> Iterator[_Loops]:
    """Group loops with as many iterations and the same scope except for numbers, such as those of recurrent layers."""
    groups: dict[tuple[int, bool, str | int], list[Stacks]] = {}
    for s in stacks:
        scope = common_scope(a.p, s.values)[0] or ""
        groups.setdefault((s.trips, s.checkpointed, scope if "*" in scope else s.loop), []).append(s)
    for group in groups.values():
        parts: list[Stacks] = []
        for s in sorted(group, key=lambda s: -int(a.p.extent[s.values].sum())):
            if not any((s.members & part.members).any() for part in parts):
                parts.append(s)
        yield _Loops(len(group), parts)


def _recomputed_loops(a: LayerActivations, loops: _Loops) -> Intervention:
    """Each iteration keeps what it passes to the next one; the backward pass holds the activations of one."""
    change = sum_of(_stacked_again(a, s, s.trips * s.carry, s.per_trip(a.p.extent)) for s in loops.parts)
    # At best, what is passed on is kept in half the size, and the peak is elsewhere while an iteration is recomputed:
    # neither slices of the stacks nor their copies are needed then.
    slices = (s._replace(members=s.members | a.are_slices_of(s.values)) for s in loops.parts)
    best = sum_of(_stacked_again(a, s, s.trips * s.least_carry, 0) for s in slices)
    names = () if loops.first.checkpointed else tuple(sorted({name for s in loops.parts for name in a.names_for(s)}))
    how = f"Recompute the activations of {loops}: scan over jax.checkpoint(body)."
    if loops.first.checkpointed:
        how = f"The policy of jax.checkpoint keeps activations of {loops}{_computed_in(a, loops.values)}. {LESS}"
    text = f"{how}{_in_linen(a)} They are stacked over {loops.first.trips:,} iterations.{_policy(names)}"
    bounds = int(LOOP_LOWER * a.w.saved(change)), with_vmem(a.w, int(LOOP_UPPER * a.w.saved(best)))
    return of_values(a, "recompute", loops.values, change, bounds, text, names=names)


def _computed_in(a: LayerActivations, values: Ints) -> str:
    """Name the innermost function that computes all of these values or calls what does, as checkpointed layers do."""
    paths = [(path or "").split("/") for path in functions(a.p, values).to_pylist()]
    common = [calls[0] for calls in takewhile(lambda calls: len(set(calls)) == 1, zip(*paths, strict=False))][-1:]
    return "".join(f", which `{name}` computes" for name in common if name and not a.is_whole(name))


def _stacked_again(a: LayerActivations, s: Stacks, kept: int, in_flight: int) -> Change:
    """Return the change if a loop keeps `kept` bytes, and its backward pass needs `in_flight` bytes more."""
    only, kept = a.w.only(s.members), min(kept, MAX_TOTAL_BYTES)
    steps = np.arange(len(only))
    reading = (steps >= s.read[0]) & (steps <= s.read[1])
    return Change(0, -only + np.where(only > 0, kept, 0) + np.where(reading, in_flight, 0))


def _recomputed_layers(a: LayerActivations, layers: Layers) -> Intervention:
    """Each layer keeps what it passes to others; the backward pass holds the activations of one layer at a time."""
    names, by_policy = a.names_of(layers.values), a.is_checkpointed(layers)
    change, lower, upper = _without_layers(a, layers, certain=not by_policy)
    these, how = "these layers", "Wrap each of these layers in jax.checkpoint."
    if layers.function:
        code = f"the code in `{layers.function.name}` that runs several times{_called_at(a, layers.function)}"
        these, how = f"the layers ({code})", f"Wrap each layer in jax.checkpoint: {code}."
    if a.is_tensorflow:
        how, names = RECOMPUTE_GRAD, ()
    elif a.p.tables.platform == "cpu":
        upper = upper if a.are_alike(layers) else 0
        how = (
            f"Scan over {these} with jax.checkpoint(body): without a loop, XLA recomputes for all layers at once on a "
            "CPU."
        )
    if by_policy:
        how, names = f"The policy of jax.checkpoint keeps activations of these layers. {LESS}", ()
    text, scope = f"{how}{_in_linen(a)}{_policy(names)}", layers.family or None
    found = of_values(a, "recompute", layers.values, change, (lower, upper), text, scope=scope, names=names)
    return _in_function(a, layers.function, found, layers.values) if layers.function else found


def _called_at(a: LayerActivations, function: Function) -> str:
    """Say which lines call a function: not that of jax.jit, which is no part of the model."""
    lines = function.called_at
    if not lines or a.is_whole(function.name):
        return ""
    if len(lines) > MAX_CALLS:
        lines = *lines[: MAX_CALLS - 1], f"{len(lines) - MAX_CALLS + 1:,} other lines"
    return f", called at {joined_by_and(lines)}"


def _in_function(a: LayerActivations, function: Function, found: Intervention, values: Ints) -> Intervention:
    """Return an intervention on values that a function computes, with the line in it of the first one."""
    line = int(function.lines[np.flatnonzero(values == found.values[0])[0]])
    is_known = line >= 0 and not a.is_whole(function.name)
    return replace(found, function=function.name, line=(function.file, line) if is_known else None)


def _without_layers(a: LayerActivations, layers: Layers, *, certain: bool) -> tuple[Change, int, int]:
    """Return the change if the activations of layers are computed again, and its bounds.

    The compiler decides when it recomputes. At worst, the activations of a layer are there twice, and nothing is saved.
    """
    w, is_tpu, cloned = a.w, a.p.tables.platform == "tpu", are_clones(a.p)[layers.values]
    extent, layer = a.p.extent[layers.values], np.unique(layers.layer, return_inverse=True)[1].ravel()
    largest = int(np.bincount(layer, extent).max())
    in_flight, passed_on = a.in_flight(layers), a.passed_on(layers)
    only = a.only_in_slots(layers.values)
    # Loops in the layers stack activations, too, which their checkpoint makes unnecessary.
    all_of_layers = a.only_in_slots(np.concatenate([layers.values, a.stacked_in(layers)]))
    factor = LAYER_UPPER if is_tpu or a.is_tensorflow else 1
    upper = with_vmem(w, int(factor * w.saved(Change(0, -all_of_layers))))
    at_peak = np.where(w.at_peak[layers.values], extent, 0)
    products = a.products_per_layer(layers)
    # Results that other code reads are kept. Those of a single product are most of a layer.
    has_names = layers.function is not None or a.is_tensorflow
    is_helper = products < MIN_PRODUCTS and (products > 0 or has_names)
    # Where memory is scarce, XLA computes some again by itself, as checkpoints do if it has one layer at a time.
    is_recomputed = bool(2 * at_peak[cloned].sum() > at_peak.sum())
    of_one_layer = is_recomputed and bool(2 * np.bincount(layer, at_peak).max() > at_peak.sum())
    if layers.are_stages:
        best = a.only_in_slots(layers.values[~(cloned | passed_on)])
        upper = min(upper, int(STAGES_UPPER * with_vmem(w, w.saved(Change(0, -best)))) + w.lost_by(best))
        largest = min(largest, int(STAGES_COST * w.peak))
        is_recomputed, of_one_layer = bool(2 * a.kept_otherwise[w.peak_step] > at_peak.sum()), False
    if is_helper or of_one_layer or passed_on.all() or w.saved(Change(0, in_flight - only)) <= 0:
        upper = 0
    change = Change(0, in_flight - a.only_in_slots(layers.values[~(cloned | passed_on)]))
    estimate = w.saved(change)
    is_known = certain and (is_tpu or a.is_tensorflow) and a.has_uses and estimate > 0
    is_known &= products >= MIN_PRODUCTS and not is_recomputed
    return change, int(LAYER_LOWER * estimate) if is_known else -largest, upper


def _in_linen(a: LayerActivations) -> str:
    """Say what Flax Linen has instead of jax.checkpoint, which fails on its modules."""
    return " (In Flax Linen: nn.remat.)" if a.is_linen else ""


def _policy(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    quoted = ", ".join(map(repr, names))
    return (
        " To keep the results of matrix products, which saves less, mark them by "
        f"checkpoint_name(x, {names[0]!r}), and pass policy={POLICY}({quoted})."
    )


def chunks(a: LayerActivations) -> Iterator[Intervention]:
    """Scan over chunks of iterations, and keep only what the chunks pass to each other.

    The backward pass of a chunk also has its slices of weights, and their gradients.
    """
    stacks = _own_stacks(a)
    length_of = {s.loop: _chunk(s.trips, s.carry, s.per_trip(a.p.extent) + s.sliced) for s in stacks}
    for length in sorted({n for n in length_of.values() if n is not None}):
        for loops in _similar(a, [s for s in stacks if length_of[s.loop] == length]):
            yield _chunked(a, loops, length)


def _chunked(a: LayerActivations, loops: _Loops, length: int) -> Intervention:
    trips = loops.first.trips
    n = trips // length
    change, best = (
        sum_of(_stacked_again(a, s, n * carry(s), length * (s.per_trip(a.p.extent) + s.sliced)) for s in loops.parts)
        for carry in (attrgetter("carry"), attrgetter("least_carry"))
    )
    of_loops = f" in each of {loops}" if loops.n > 1 else ""
    text = (
        f"Scan over {n:,} chunks{of_loops}: split the leading dimension of {trips:,} into ({n:,}, {length:,}), and "
        "scan over jax.checkpoint of the scan over a chunk."
    )
    estimate = a.w.saved(change)
    bounds = int(CHUNK_LOWER * estimate), int(CHUNK_UPPER * a.w.saved(best)) if estimate > 0 else 0
    return of_values(a, "scan", loops.values, change, bounds, text)


def _chunk(trips: int, carry: int, per_trip: int) -> int | None:
    """Return the length of the chunks for which least is kept: what they pass on, and the iterations of one chunk."""
    divisors = (c for c in range(2, min(trips, MAX_CHUNK + 1)) if trips % c == 0)
    return min(divisors, key=lambda c: trips // c * carry + c * per_trip, default=None)


def offloads(a: LayerActivations) -> Iterator[Intervention]:
    """Move what loops keep for their backward pass to the host's memory. The CPU has no other memory."""
    if a.p.tables.platform == "cpu":
        return
    for loops in _similar(a, [s for s in _own_stacks(a) if s.recomputed]):
        change = sum_of(_stacked_again(a, s, 0, 2 * s.per_trip(a.p.extent)) for s in loops.parts)
        names = (BODY_INPUT,)
        body = "its body" if loops.n == 1 else "their bodies"
        text = (
            f"Offload what {loops} keep{'s' * (loops.n == 1)}: begin {body} with x = checkpoint_name(x, "
            f"{BODY_INPUT!r}), imported from "
            "jax.ad_checkpoint, and pass jax.checkpoint policy=save_and_offload_only_these_names("
            f"names_which_can_be_saved=[], names_which_can_be_offloaded=[{BODY_INPUT!r}], offload_src='device', "
            "offload_dst='pinned_host'), of jax.checkpoint_policies."
        )
        best = a.w.saved(sum_of(_stacked_again(a, s, 0, 0) for s in loops.parts))
        bounds = -a.w.peak // 10, best + min(int(OFFLOAD_MARGIN * best), a.w.peak // 10)
        yield of_values(a, "offload", loops.values, change, bounds, text, names=names)
