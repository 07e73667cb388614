"""Interventions on activations, with bounds of what each saves: recompute, offload, chunk, smaller types, less batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activations import NO_PHASE, Activations, Layers, Stacks
from .columns import Ints, Mask, encoded
from .interventions import TRY, Intervention, argument_names, bounded, largest_first
from .layout import DONATED, LIVE_OUT, PARAMETER
from .what_if import Change, WhatIf

NARROWER = {"f32": "bfloat16", "f64": "float32", "s64": "int32", "u64": "uint32", "c128": "complex64"}
"""Element types with one of half the size."""
POLICY = "jax.checkpoint_policies.save_only_these_names"


def recomputations(a: Activations) -> Iterator[Intervention]:
    """Compute the activations of layers and of iterations again in the backward pass, instead of keeping them."""
    for stacks in a.stacks:
        if not stacks.recomputed:
            yield _recomputed_loop(a, stacks)
    for layers in a.layers:
        if layers.n_layers > 1:
            yield _recomputed_layers(a, layers)


def _recomputed_loop(a: Activations, s: Stacks) -> Intervention:
    """Each iteration keeps what it passes to the next one; the backward pass holds the activations of one."""
    change = _stacked_again(a, s, s.trips * s.carry, s.per_trip(a.p.extent))
    lower, upper = bounded(a.w, a.w.saved(change), 0.7, 1.1)
    text = (
        f"Recompute the activations of the loop: scan over jax.checkpoint(body). They are stacked over {s.trips:,} "
        f"iterations.{_policy(a, s.values)}"
    )
    return _of_values(a, "recompute", s.values, change, (lower, upper), text, names=a.names_for(s))


def _stacked_again(a: Activations, s: Stacks, kept: int, in_flight: int) -> Change:
    """Return the change if a loop keeps `kept` bytes, and its backward pass needs `in_flight` bytes more."""
    only = a.w.only(s.members)
    steps = np.arange(len(only))
    reading = (steps >= s.read[0]) & (steps <= s.read[1])
    return Change(0, -only + np.where(only > 0, kept, 0) + np.where(reading, in_flight, 0))


def _recomputed_layers(a: Activations, layers: Layers) -> Intervention:
    """The compiler decides when it recomputes; at worst, the activations of a layer are there twice."""
    w, members = a.w, np.zeros(len(a.p.owner), bool)
    members[layers.values] = True
    only = w.only(members)
    largest = int(np.bincount(layers.layer - layers.layer.min(), a.p.extent[layers.values]).max())
    change = Change(0, -only + np.where(a.is_backward, largest, 0))
    estimate = w.saved(change)
    how = "Wrap each of these layers in jax.checkpoint."
    if w.p.tables.platform == "cpu":
        how = "Scan over these layers with jax.checkpoint(body): a CPU schedules what layers recompute without a loop early."
    text = f"{how}{_policy(a, layers.values)} {TRY}"
    names = a.names_of(layers.values)
    return _of_values(a, "recompute", layers.values, change, (-largest, estimate), text, scope=layers.family, names=names)


def _policy(a: Activations, values: Ints) -> str:
    names = a.names_of(values)
    if not names:
        return ""
    quoted = ", ".join(map(repr, names))
    return (
        f" To keep its matrix products, mark them by checkpoint_name(x, {names[0]!r}), and pass "
        f"policy={POLICY}({quoted})."
    )


def chunks(a: Activations) -> Iterator[Intervention]:
    """Scan over chunks of iterations, and keep only what the chunks pass to each other."""
    for s in a.stacks:
        per_trip = s.per_trip(a.p.extent)
        divisors = [c for c in range(2, s.trips) if s.trips % c == 0]
        if not divisors:
            continue
        needed = {c: s.trips // c * s.carry + c * per_trip for c in divisors}
        length = min(divisors, key=lambda c: needed[c])
        change = _stacked_again(a, s, s.trips // length * s.carry, length * per_trip)
        lower, upper = bounded(a.w, a.w.saved(change), 0.6, 1.1)
        text = (
            f"Scan over {s.trips // length:,} chunks: split the leading dimension of {s.trips:,} into "
            f"({s.trips // length:,}, {length:,}), and scan over jax.checkpoint of the scan over a chunk."
        )
        yield _of_values(a, "scan", s.values, change, (lower, upper), text)


def offloads(a: Activations) -> Iterator[Intervention]:
    """Move what loops keep for their backward pass to the host's memory. The CPU has no other memory."""
    if a.p.tables.platform == "cpu":
        return
    for s in a.stacks:
        change = _stacked_again(a, s, 0, 2 * s.per_trip(a.p.extent))
        names = a.names_for(s) or ("x",)
        text = (
            f"Offload what the loop keeps: mark it by checkpoint_name(x, {names[0]!r}), and pass jax.checkpoint "
            f"policy=save_and_offload_only_these_names(names_which_can_be_saved=[], names_which_can_be_offloaded="
            f"{list(names)}, offload_src='device', offload_dst='pinned_host'). {TRY}"
        )
        estimate = a.w.saved(change)
        yield _of_values(a, "offload", s.values, change, (-a.w.peak // 10, estimate), text, names=names)


# -- element types -------------------------------------------------------------------------------


def narrower_types(a: Activations) -> Iterator[Intervention]:
    """Compute in an element type of half the size. CPUs compute in float32 anyway."""
    w, platform = a.w, a.p.tables.platform
    codes, names = encoded(a.p.tables["values"]["element_type"])
    is_training = bool((a.phase != NO_PHASE).any())
    candidates = w.in_arena & ((a.phase != NO_PHASE) if is_training else True)
    for code, name in enumerate(names.to_pylist()):
        members = candidates & (codes == code)
        if name in NARROWER and members[w.at_peak].any() and not (platform == "cpu" and name == "f32"):
            yield _narrower(a, name, members)


def _narrower(a: Activations, name: str, members: Mask) -> Intervention:
    change = Change(0, -(a.w.only(members) // 2))
    estimate = a.w.saved(change)
    bounds = -a.w.peak // 20, int(1.2 * estimate)
    text = f"Compute in {NARROWER[name]}: these buffers are {name}. The compiler may convert them back. {TRY}"
    return _of_values(a, "dtype", np.flatnonzero(members & a.w.at_peak), change, bounds, text)


# -- batch ---------------------------------------------------------------------------------------


def smaller_batches(a: Activations) -> Iterator[Intervention]:
    """Halve the batch: the leading dimension that all arrays of an argument share, if activations have it too."""
    found = [_half_batch(a, *batch) for batch in _batches(a)]
    if found:
        yield max(found, key=lambda i: i.upper)


def _batches(a: Activations) -> list[tuple[str, int, int]]:
    """Return name, number and batch size of each argument that can be split."""
    p = a.p
    allocations = np.flatnonzero((p.category == PARAMETER) & a.w.in_memory & (p.representative >= 0))
    value = p.representative[allocations]
    number = np.asarray(p.allocations["parameter_number"].fill_null(-1).to_numpy(), np.int64)[allocations]
    codes, names = encoded(pa.chunked_array([argument_names(a.w, value, number)]))
    trips = {s.trips for s in a.stacks}
    found = []
    for code, name in enumerate(names.to_pylist()):
        rows = np.flatnonzero(codes == code)
        size = _batch_size(a.dimensions[value[rows]], trips)
        if size and not a.is_state[value[rows]].any():
            found.append((name, int(number[rows].min()), size))
    return found


def _batch_size(dimensions: Ints, trips: set[int]) -> int:
    """Return the leading dimension that these arrays share (not that of a loop), if it can be halved, or 0."""
    position = 1 if int(dimensions[0, 0]) in trips else 0
    sizes = np.unique(dimensions[:, position])
    size = int(sizes[0])
    return size if len(sizes) == 1 and size >= 2 and size % 2 == 0 else 0


def _half_batch(a: Activations, name: str, number: int, size: int) -> Intervention:
    p, w = a.p, a.w
    has_batch = (a.dimensions == size).any(axis=1) | np.isin(a.dimensions[:, 0], a.multiples_of(size))
    whole = (w.in_memory & np.isin(p.category, (PARAMETER, DONATED, LIVE_OUT)))[p.owner]
    whole &= (np.arange(len(p.owner)) == p.representative[p.owner]) & has_batch & ~a.is_state
    temps = w.in_arena & has_batch
    change = Change(-int(p.extent[whole].sum()) // 2, -(w.only(temps) // 2))
    lower, upper = bounded(w, w.saved(change), 0.6, 1.1)
    text = (
        f"Halve the batch of `{name}` ({size:,} to {size // 2:,}). Gradients accumulated over two halves need as much "
        "memory as the parameters in addition."
    )
    values = np.flatnonzero((temps & w.at_peak) | whole)
    found = _of_values(a, "batch", values, change, (lower, upper), text)
    return Intervention(**{**vars(found), "argument": name, "parameter": number})


# -- rows ----------------------------------------------------------------------------------------


def _of_values(
    a: Activations,
    kind: str,
    values: Ints,
    change: Change,
    bounds: tuple[int, int],
    text: str,
    *,
    scope: str | None = None,
    names: tuple[str, ...] = (),
) -> Intervention:
    lower, upper = bounds
    confidence = "likely" if lower > 0 else "try"
    order = largest_first(a.w, values)
    return Intervention(  # type: ignore[arg-type]
        kind, order, change, lower, upper, confidence, text, scope=scope or a.common_scope(order), names=names
    )
