"""Interventions on activations, with bounds of what each saves: recompute, offload, chunk, narrow, halve the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .activations import FORWARD, NO_PHASE, Activations, Layers, Stacks
from .aliasing import is_partitioned
from .buffer_names import buffer_names, trip_counts_of
from .columns import Ints, Mask, encoded, ints
from .interventions import MIN_SHARE, NARROWER, Confidence, Intervention, Kind, argument_names, largest_first
from .layout import DONATED, LIVE_OUT, MAX_TOTAL_BYTES, PARAMETER, TEMP
from .op_names import matching
from .program import distinct_rows
from .what_if import Change, WhatIf, largest_groups

LOOP_LOWER, LOOP_UPPER = 0.7, 1.05
LAYER_LOWER, LAYER_UPPER = 0.7, 1.05
CHUNK_LOWER, CHUNK_UPPER = 0.6, 1.15
BATCH_LOWER, BATCH_UPPER = 0.6, 1.25
DTYPE_UPPER = 1.47
"""Multiples of the estimates that are bounds; docs/advice.md has the measurements."""
MIN_PRODUCTS = 1.5
"""Mean number of matrix products in what is a layer, and no helper of one."""
VMEM, VMEM_SHARE = 64 << 20, 0.4
"""Bytes, and the share of an estimate, that may move from a TPU's main memory to its VMEM.

Where half of what is in VMEM, or of a buffer that shrinks, is more than this share, that may move.
"""
VMEM_COLOR = 1
MAX_VIEWS = 4
"""Maximum number of views of each sample of which all pairs are compared."""
MIN_PAIRS = 0.1
"""Minimum share of the temporaries at the peak of matrices of all pairs that is mentioned."""
NOT_INDEPENDENT = "All pairs of samples are compared: those of two halves are left out then, which changes the result."
ACCUMULATION = "Gradients accumulated over two halves need as much memory as the parameters in addition."
MAX_CHUNK = 1 << 12
"""Maximum number of iterations in a chunk."""
BODY_INPUT = "body_input"
"""Name for what a loop passes to its next iteration."""
POLICY = "jax.checkpoint_policies.save_only_these_names"

_RANDOM_KEY = r"^u32\[[24]\]"
"""Shapes of the keys of JAX's random numbers, which have no batch."""
LESS = "Let it keep less, or pass no policy."


def recomputations(a: Activations) -> Iterator[Intervention]:
    """Compute the activations of layers and of iterations again in the backward pass, instead of keeping them."""
    for stacks in a.stacks:
        if not stacks.recomputed:
            yield _recomputed_loop(a, stacks)
    for layers in a.layers:
        if layers.n_layers > 1 and not a.is_recomputed(layers):
            yield _recomputed_layers(a, layers)


def _recomputed_loop(a: Activations, s: Stacks) -> Intervention:
    """Each iteration keeps what it passes to the next one; the backward pass holds the activations of one."""
    change = _stacked_again(a, s, s.trips * s.carry, s.per_trip(a.p.extent))
    # At best, what is passed on is kept in half the size, and the peak is elsewhere while an iteration is recomputed:
    # neither slices of the stacks nor their copies are needed then.
    slices = s._replace(members=s.members | a.are_slices_of(s.values))
    best = _stacked_again(a, slices, s.trips * s.carry // 2, 0)
    names = () if s.checkpointed else a.names_for(s)
    how = "Recompute the activations of the loop: scan over jax.checkpoint(body)."
    if s.checkpointed:
        how = f"The policy of jax.checkpoint keeps activations of the loop. {LESS}"
    text = f"{how} They are stacked over {s.trips:,} iterations.{_policy(names)}"
    bounds = int(LOOP_LOWER * a.w.saved(change)), with_vmem(a.w, int(LOOP_UPPER * a.w.saved(best)))
    return of_values(a, "recompute", s.values, change, bounds, text, names=names)


def _stacked_again(a: Activations, s: Stacks, kept: int, in_flight: int) -> Change:
    """Return the change if a loop keeps `kept` bytes, and its backward pass needs `in_flight` bytes more."""
    only, kept = a.w.only(s.members), min(kept, MAX_TOTAL_BYTES)
    steps = np.arange(len(only))
    reading = (steps >= s.read[0]) & (steps <= s.read[1])
    return Change(0, -only + np.where(only > 0, kept, 0) + np.where(reading, in_flight, 0))


def _recomputed_layers(a: Activations, layers: Layers) -> Intervention:
    """Each layer keeps what it passes to others; the backward pass holds the activations of one layer at a time."""
    names, by_policy = a.names_of(layers.values), a.is_checkpointed(layers)
    change, lower, upper = _without_layers(a, layers, certain=not by_policy)
    these, how = "these layers", "Wrap each of these layers in jax.checkpoint."
    if layers.function:
        code = f"the code in `{layers.function.name}` that runs several times"
        these, how = f"the layers ({code})", f"Wrap each layer in jax.checkpoint: {code}."
    if a.p.tables.platform == "cpu":
        upper = upper if a.are_alike(layers) else 0
        how = (
            f"Scan over {these} with jax.checkpoint(body): without a loop, XLA recomputes for all layers at once on a "
            "CPU."
        )
    if by_policy:
        how, names = f"The policy of jax.checkpoint keeps activations of these layers. {LESS}", ()
    text, scope = f"{how}{_policy(names)}", layers.family or None
    found = of_values(a, "recompute", layers.values, change, (lower, upper), text, scope=scope, names=names)
    return replace(found, function=layers.function.name if layers.function else None)


def _without_layers(a: Activations, layers: Layers, *, certain: bool) -> tuple[Change, int, int]:
    """Return the change if the activations of layers are computed again, and its bounds.

    The compiler decides when it recomputes. At worst, the activations of a layer are there twice, and nothing is saved.
    """
    w, is_tpu, again = a.w, a.p.tables.platform == "tpu", a.is_computed_again(layers.values)
    extent, layer = a.p.extent[layers.values], np.unique(layers.layer, return_inverse=True)[1].reshape(-1)
    largest = int(np.bincount(layer, extent).max())
    in_flight = np.where(a.is_backward, largest, 0)
    only = a.only_in_slots(layers.values)
    upper = with_vmem(w, int((LAYER_UPPER if is_tpu else 1) * w.saved(Change(0, -only))))
    at_peak = np.where(w.at_peak[layers.values], extent, 0)
    passed_on, products = a.passed_on(layers), a.products_per_layer(layers)
    # Results that other code reads are kept. Those of a single product are most of a layer.
    is_helper = products < MIN_PRODUCTS and (products > 0 or layers.function is not None)
    # Where memory is scarce, XLA computes some again by itself, as checkpoints do if it has one layer at a time.
    is_recomputed = bool(2 * at_peak[again].sum() > at_peak.sum())
    of_one_layer = is_recomputed and bool(2 * np.bincount(layer, at_peak).max() > at_peak.sum())
    if is_helper or of_one_layer or passed_on.all() or w.saved(Change(0, in_flight - only)) <= 0:
        upper = 0
    change = Change(0, in_flight - a.only_in_slots(layers.values[~(again | passed_on)]))
    estimate = w.saved(change)
    is_known = certain and is_tpu and a.has_uses and estimate > 0 and products >= MIN_PRODUCTS and not is_recomputed
    return change, int(LAYER_LOWER * estimate) if is_known else -largest, upper


def with_vmem(w: WhatIf, estimate: int, halved: Ints | None = None) -> int:
    """Return an upper bound for activations that shrink: on a TPU, some of the others may then move to VMEM.

    So may what is left of the largest of the values that become half as large.
    """
    if w.p.tables.platform != "tpu":
        return min(estimate, w.arena_bytes)
    is_vmem = np.array([space.color == VMEM_COLOR for space in w.p.spaces], bool)[w.p.space_of_allocation]
    room = int(w.p.allocation_size[is_vmem & (w.p.category == TEMP)].sum()) // 2
    halves = (w.p.extent[[] if halved is None else halved] + 1) // 2
    room = max(room, int(halves[halves <= VMEM].max(initial=0)))
    return min(estimate + min(VMEM, max(room, int(VMEM_SHARE * estimate))), w.arena_bytes)


def _policy(names: tuple[str, ...]) -> str:
    if not names:
        return ""
    quoted = ", ".join(map(repr, names))
    return (
        " To keep the results of matrix products, which saves less, mark them by "
        f"checkpoint_name(x, {names[0]!r}), and pass policy={POLICY}({quoted})."
    )


def chunks(a: Activations) -> Iterator[Intervention]:
    """Scan over chunks of iterations, and keep only what the chunks pass to each other.

    The backward pass of a chunk also has its slices of weights, and their gradients.
    """
    for s in a.stacks:
        per_trip = s.per_trip(a.p.extent) + s.sliced
        length = _chunk(s.trips, s.carry, per_trip)
        if length is None:
            continue
        change = _stacked_again(a, s, s.trips // length * s.carry, length * per_trip)
        estimate = a.w.saved(change)
        text = (
            f"Scan over {s.trips // length:,} chunks: split the leading dimension of {s.trips:,} into "
            f"({s.trips // length:,}, {length:,}), and scan over jax.checkpoint of the scan over a chunk."
        )
        yield of_values(a, "scan", s.values, change, (int(CHUNK_LOWER * estimate), int(CHUNK_UPPER * estimate)), text)


def _chunk(trips: int, carry: int, per_trip: int) -> int | None:
    """Return the length of the chunks for which least is kept: what they pass on, and the iterations of one chunk."""
    divisors = (c for c in range(2, min(trips, MAX_CHUNK + 1)) if trips % c == 0)
    return min(divisors, key=lambda c: trips // c * carry + c * per_trip, default=None)


def offloads(a: Activations) -> Iterator[Intervention]:
    """Move what loops keep for their backward pass to the host's memory. The CPU has no other memory."""
    if a.p.tables.platform == "cpu":
        return
    for s in (s for s in a.stacks if s.recomputed):
        change = _stacked_again(a, s, 0, 2 * s.per_trip(a.p.extent))
        names = (BODY_INPUT,)
        text = (
            f"Offload what the loop keeps: begin its body with x = checkpoint_name(x, {BODY_INPUT!r}), and pass "
            "jax.checkpoint policy=save_and_offload_only_these_names(names_which_can_be_saved=[], "
            f"names_which_can_be_offloaded=[{BODY_INPUT!r}], offload_src='device', offload_dst='pinned_host')."
        )
        bounds = -a.w.peak // 10, a.w.saved(_stacked_again(a, s, 0, 0))
        yield of_values(a, "offload", s.values, change, bounds, text, names=names)


# -- element types -------------------------------------------------------------------------------


def narrower_types(a: Activations) -> Iterator[Intervention]:
    """Compute in an element type of half the size. CPUs compute in float32 anyway."""
    w, platform = a.w, a.p.tables.platform
    codes, names = encoded(a.p.tables["values"]["element_type"])
    candidates = w.in_arena & ((a.phase != NO_PHASE) | (not (a.phase == FORWARD).any()))
    for code, name in enumerate(names.to_pylist()):
        members = candidates & (codes == code)
        if name in NARROWER and members[w.at_peak].any() and not (platform == "cpu" and name == "f32"):
            yield _narrower(a, name, members)


def _narrower(a: Activations, name: str, members: Mask) -> Intervention:
    change = Change(0, -(a.w.only(a.with_slot_mates(members)) // 2))
    estimate = a.w.saved(change)
    upper = int(DTYPE_UPPER * with_vmem(a.w, estimate, np.flatnonzero(members & a.w.at_peak)))
    bounds = -a.w.peak // 20, upper if estimate >= MIN_SHARE * a.w.total else 0
    text = f"Compute in {NARROWER[name]}: these buffers are {name}. The compiler may convert them back."
    return of_values(a, "dtype", np.flatnonzero(members & a.w.at_peak), change, bounds, text)


# -- batch ---------------------------------------------------------------------------------------


def smaller_batches(a: Activations) -> Iterator[Intervention]:
    """Halve the batch: the leading dimension that all arrays of an argument share, if activations have it too."""
    found = [_half_batch(a, batch) for batch in _batches(a)]
    if found:
        yield max(found, key=lambda i: (i.lower, i.upper))


class Batch(NamedTuple):
    """An argument that can be split along its leading dimension."""

    name: str
    number: int
    size: int
    values: Ints
    """Parameters and outputs with this leading dimension."""
    is_shared: bool
    """Whether stacked weights have this leading dimension, too, as experts do: temporaries may have it from them."""


def _batches(a: Activations) -> list[Batch]:
    p = a.p
    parameters = a.w.in_memory & ((p.category == PARAMETER) | (p.category == DONATED)) & (p.representative >= 0)
    parameters[parameters] = ~matching(p.value_text("shape", p.representative[parameters]), _RANDOM_KEY)
    value = p.representative[parameters]
    number = ints(p.allocations, "parameter_number")[parameters]
    codes, names = encoded(pa.chunked_array([argument_names(a.w, value, number)]))
    sliced, trips = _is_sliced(a, value), set(trip_counts_of(p))
    order = np.argsort(codes, kind="stable")
    arguments = np.split(order, np.searchsorted(codes[order], np.arange(1, len(names)))) if len(names) else []
    shared = [_shared_size(a.dimensions[value[rows]], sliced[rows]) for rows in arguments]
    state = [bool(a.is_state[value[rows]].any()) for rows in arguments]
    found = []
    for code in largest_groups(codes, p.extent[value]).tolist():
        name, members = names[code].as_py(), value[codes == code]
        # Without a backward pass, what loops read slice by slice are weights and caches: the batch is elsewhere.
        excluded = state[code] if a.is_training else bool(sliced[codes == code].any())
        size = 0 if excluded else shared[code]
        ambiguous = bool(size) and not a.is_training and _is_ambiguous(a.dimensions[value], codes, code, shared, state)
        if size and not ambiguous and not _is_of_features(a, size):
            weights = a.is_state[value] & ~sliced & (a.dimensions[value, 0] == size) & (a.dimensions[value, 2] > 0)
            is_shared = a.is_training and bool(weights.any()) and size not in trips
            first, values = int(number[codes == code].min()), _whole_arrays(a, size, members)
            found.append(Batch(name, first, size, values, is_shared))
    return found


def _is_sliced(a: Activations, values: Ints) -> Mask:
    """Return whether the leading dimension of each array is the number of iterations of a loop, not a batch.

    A training step may well have as many samples as layers, so its arrays need to be read slice by slice.
    """
    trips = [n for n in trip_counts_of(a.p) if n > 0]
    if not a.is_training:
        return np.isin(a.dimensions[values, 0], trips)
    iterations = pc.is_valid(buffer_names(a.p, values)["iterations"]).to_numpy(zero_copy_only=False)
    stacks = [s for s in a.stacks if not trips or s.trips in trips]
    stacked = np.isin(a.dimensions[values, 0], [s.trips for s in stacks])
    return np.asarray(iterations | (stacked & ~_are_like_elements(a, values, stacks)), bool)


def _are_like_elements(a: Activations, values: Ints, stacks: list[Stacks]) -> Mask:
    """Return which arrays have the first dimensions of what each iteration keeps, such as tokens and labels."""
    dimensions = a.dimensions[values]
    elements = np.concatenate([dimensions[:0], *(np.pad(a.dimensions[s.values, 1:], ((0, 0), (0, 1))) for s in stacks)])
    found = np.zeros(len(dimensions), bool)
    known, pattern = np.unique(dimensions > 0, axis=0, return_inverse=True)
    for i, compared in enumerate(known):
        rows = np.flatnonzero(pattern.reshape(-1) == i)
        both = np.concatenate([elements * compared, dimensions[rows]])
        code = distinct_rows(*both.T)
        found[rows] = compared[0] & np.isin(code[len(elements) :], code[: len(elements)])
    return found


def _shared_size(dimensions: Ints, sliced: Mask) -> int:
    """Return the leading dimension that these arrays share (not that of a loop), if it can be halved, or 0."""
    sizes = np.unique(np.where(sliced, dimensions[:, 1], dimensions[:, 0]))
    size = int(sizes[0])
    return size if len(sizes) == 1 and size >= 2 and size % 2 == 0 else 0


def _is_ambiguous(dimensions: Ints, codes: Ints, code: int, shared: list[int], state: list[bool]) -> bool:
    """Return whether the batch size of an argument is also a dimension of weights.

    It is the first one of an argument that is no state, the last one of another argument, or one of two of an array.
    """
    has_size = dimensions == shared[code]
    others = {int(c) for c in codes[has_size[:, 0]]} - {code}
    weights = any(not state[c] or shared[c] != shared[code] for c in others)
    repeated = has_size[np.isin(codes, [code, *others])].sum(axis=1) > 1
    return weights or bool(repeated.any() or (_is_last(dimensions, shared[code]) & (codes != code)).any())


def _is_last(dimensions: Ints, size: int) -> Mask:
    """Return which of these arrays have several dimensions, of which the last one has this size."""
    rank = (dimensions > 0).sum(axis=1)
    last: Mask = (rank > 1) & (dimensions[np.arange(len(rank)), rank - 1] == size)
    return last


def _is_of_features(a: Activations, size: int) -> bool:
    """Return whether most bytes at the peak that have this dimension have it last, and are thus no batch of it."""
    rows = np.flatnonzero(a.w.at_peak)
    dimensions, extent = a.dimensions[rows], a.p.extent[rows]
    is_last = _is_last(dimensions, size)
    is_before = ((dimensions == size).sum(axis=1) > is_last) | np.isin(dimensions[:, 0], a.multiples_of(size))
    return int(extent[is_last & ~is_before].sum()) > int(extent[is_before].sum())


def _whole_arrays(a: Activations, size: int, values: Ints) -> Ints:
    """Return the parameters and outputs that have this leading dimension, and these parameters.

    Caches and outputs that a loop stacks have it after the number of iterations.
    """
    p = a.p
    whole = (a.w.in_memory & np.isin(p.category, (PARAMETER, DONATED, LIVE_OUT)))[p.owner]
    whole &= np.arange(len(p.owner)) == p.representative[p.owner]
    if a.is_training:
        whole &= (a.dimensions[:, 0] == size) & ~a.is_state
    else:
        stacked = (a.dimensions[:, 1] == size) & _is_sliced(a, np.arange(len(p.owner)))
        whole &= (a.dimensions[:, 0] == size) | (stacked & (a.is_state | (p.category == LIVE_OUT)[p.owner]))
    return np.union1d(np.flatnonzero(whole), values)


def _half_batch(a: Activations, batch: Batch) -> Intervention:
    p, w, size = a.p, a.w, batch.size
    has_batch = (a.dimensions == size).any(axis=1) | np.isin(a.dimensions[:, :2], a.multiples_of(size)).any(axis=1)
    # With as many samples as layers, stacked weights and their gradients have this dimension, too.
    temps = w.in_arena & has_batch & ~(a.is_like_state & a.is_training)
    fixed = -int(p.allocation_size[p.owner[batch.values]].sum()) // 2
    change = Change(fixed, -(w.only(temps) // 2))
    # A step may have activations that show no batch in their shape. Smaller ones may fit into outputs.
    others = w.in_arena & ~a.is_like_state if a.is_training else temps
    # Matrices of all pairs of samples fall to a quarter.
    is_pairs = (a.dimensions[:, 1] > 0) & (a.dimensions[:, 2] == 0) & (a.dimensions[:, :2] % size == 0).all(axis=1)
    is_pairs &= a.dimensions[:, :2].min(axis=1) <= MAX_VIEWS * size
    pairs = w.only(w.in_arena & is_pairs & ~a.is_like_state) // 4
    most = (Change(fixed, -(w.only(some) // 2 + pairs)) for some in (temps, others))
    rows = np.flatnonzero(temps & w.at_peak)
    half = int(np.median(p.extent[rows])) // 2 if len(rows) else w.total
    # What packing loses may halve as well.
    temporaries = max(map(w.saved, most)) + fixed + w.lost // 2
    upper = int(BATCH_UPPER * (with_vmem(w, temporaries, rows) - fixed)) + w.room_in_outputs(half)
    upper = min(upper, w.arena_bytes - fixed)
    where = " on each device" if is_partitioned(p) else ""
    text = f"Halve the batch of `{batch.name}`{where} ({size:,} to {size // 2:,})."
    if a.is_training:
        all_pairs = w.at_peak & is_pairs & (a.dimensions[:, :2].max(axis=1) <= MAX_VIEWS * size) & ~a.is_like_state
        is_coupled = p.extent[all_pairs].sum() > MIN_PAIRS * w.peak
        text += f" {NOT_INDEPENDENT if is_coupled else ACCUMULATION}"
    lower = 0 if batch.is_shared else int(BATCH_LOWER * w.saved(change))
    bounds = lower, upper if len(rows) else 0
    values = np.union1d(rows, batch.values)
    found = of_values(a, "batch", values, change, bounds, text)
    return replace(found, argument=batch.name, parameter=batch.number)


# -- rows ----------------------------------------------------------------------------------------


def of_values(
    a: Activations,
    kind: Kind,
    values: Ints,
    change: Change,
    bounds: tuple[int, int],
    text: str,
    *,
    scope: str | None = None,
    names: tuple[str, ...] = (),
) -> Intervention:
    lower, upper = bounds
    order = largest_first(a.w, values)
    if scope is None:
        # The row has the shape and the source line of the first buffer, which must be one of the scope.
        scope, members = a.common_scope(order)
        order = np.concatenate([order[members], order[~members]])
    confidence: Confidence = "likely" if lower > 0 else "try"
    return Intervention(kind, order, change, lower, upper, confidence, text, scope=scope, names=names)
