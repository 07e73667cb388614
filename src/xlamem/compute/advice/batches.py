"""Halve the batch of a program, with bounds of what that saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ...formatting import plain_shape
from ..aliasing import is_partitioned, outputs_of
from ..buffer_names import buffer_names, trip_counts_of
from ..columns import Ints, Mask, encoded, ints
from ..layout import DONATED, LIVE_OUT, PARAMETER, TEMP, TEMP_IN_OUTPUT
from ..op_names import matching
from ..program import distinct_rows
from .activations import FORWARD, RECOMPUTE
from .bounds import moved_at_worst, of_values, with_vmem
from .intervention import RESCHEDULED, UNNAMED, Intervention, argument_names, rescheduled_at_worst
from .layers import LayerActivations
from .stacks import SMALL_ELEMENT, Stacks
from .what_if import Change, largest_groups

BATCH_LOWER, BATCH_UPPER = 0.6, 1.25
"""Multiples of the estimates that are bounds; docs/advice.md has the measurements."""
KEPT = 1.25
"""Multiple of what XLA may keep if it does not rematerialize."""
MAX_COST = 0.15
"""Share of the temporaries that half a batch may cost if XLA stops saving memory in other ways."""
MIN_BATCH_SHARE = 0.02
"""Share of what must fit that half a batch of a TPU program has to save at least to be likely."""
MAX_VIEWS = 4
"""Maximum number of views of each sample that are computed together, and of which all pairs are compared."""
MIN_PAIRS = 0.1
"""Minimum share of the temporaries at the peak of matrices of all pairs that is mentioned."""
NOT_INDEPENDENT = "All pairs of samples are compared: those of two halves are left out then, which changes the result."
ACCUMULATION = "Gradients accumulated over two halves need as much memory as the parameters in addition."
_RANDOM_KEY = r"^u32\[[24]\]"
"""Shapes of the keys of JAX's random numbers, which have no batch."""
_INDICES = ("pred", "s32", "u32", "s64", "u64")
"""Element types that weights do not have."""


def smaller_batches(a: LayerActivations) -> Iterator[Intervention]:
    """Halve the batch: the leading dimension that all arrays of an argument share, if activations have it too."""
    found = [_half_batch(a, batch) for batch in batches_of(a)]
    if found:  # an upper bound of 0 is that of an argument without activations, such as an index that is searched
        yield max(found, key=lambda i: (min(i.lower, i.upper), i.upper))


class Batch(NamedTuple):
    """An argument that can be split along its leading dimension."""

    name: str
    number: int
    size: int
    values: Ints
    """Parameters and outputs with this leading dimension."""
    shape: str
    """" of shape s32[8,512]" for an argument without a name, otherwise empty."""
    is_shared: bool
    """Whether temporaries may have this dimension from elsewhere: stacked weights, such as experts, have it, too, or
    all inputs have it twice."""


def batches_of(a: LayerActivations) -> list[Batch]:
    """Return the arguments that have a batch."""
    return a.p.once("batches", lambda: _batches(a))


def _batches(a: LayerActivations) -> list[Batch]:
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
    state = [_is_updated(a, value[rows]) for rows in arguments]
    found = []
    is_input = ~np.array(state, bool)[codes]
    for code in largest_groups(codes, p.extent[value]).tolist():
        name, members = names[code].as_py(), value[codes == code]
        # Without a backward pass, what loops read slice by slice are weights and caches: the batch is elsewhere.
        excluded = state[code] if a.is_training else bool(sliced[codes == code].any())
        size = 0 if excluded else shared[code]
        is_named = not name.startswith(UNNAMED)
        if a.is_training:
            ambiguous = bool(size) and _is_no_batch(a, members, value[is_input & (codes != code)], size)
        else:
            ambiguous = bool(size) and _is_ambiguous(a, value, codes, code, shared, state, is_named)
        if size and not ambiguous and not _is_of_features(a, size):
            weights = a.is_state[value] & ~sliced & (a.dimensions[value, 0] == size) & (a.dimensions[value, 2] > 0)
            is_shared = a.is_training and bool(weights.any()) and size not in trips
            is_shared |= a.is_training and _is_repeated(a, value[is_input], size)
            first, values = int(number[codes == code].min()), _whole_arrays(a, size, members)
            found.append(Batch(name, first, size, values, _shape_of(a, name, members), is_shared))
        elif not a.is_training and (batch := _batch_of_tokens(a, name, int(number[codes == code].min()), members)):
            found.append(batch)
    return found


def _is_no_batch(a: LayerActivations, argument: Ints, others: Ints, size: int) -> bool:
    """Return whether the leading dimension of an argument is not a batch, because of how it recurs in two arguments.

    Pairs of the residues of a protein have their number twice. The sequences that are aligned with it have it later.
    """
    dimensions = a.dimensions[others]
    if (_count(a, argument, size) > 1).any():
        return bool(((dimensions == size).any(axis=1) & (dimensions[:, 0] != size)).any())
    is_only = len(argument) == 1 and not (dimensions[:, 0] == size).any()
    is_pairs = (dimensions[:, 0] > 1) & (dimensions[:, :1] == dimensions[:, 1:]).any(axis=1)
    return is_only and bool(np.isin(a.dimensions[argument, 1:], dimensions[is_pairs, 0]).any())


def _is_repeated(a: LayerActivations, inputs: Ints, size: int) -> bool:
    """Return whether all inputs with this leading dimension have it again: images that are as high as wide, perhaps.

    Tokens have no other dimensions than samples and positions.
    """
    inputs = inputs[a.dimensions[inputs, 0] == size]
    return not are_indices(a, inputs).all() and bool((_count(a, inputs, size) > 1).all())


def _count(a: LayerActivations, values: Ints, size: int) -> Ints:
    """Return how many dimensions of each array have this size."""
    n: Ints = (a.dimensions[values] == size).sum(axis=1)
    return n


def _is_updated(a: LayerActivations, values: Ints) -> bool:
    """Return whether arrays of an argument are updated: in a training step, those with most of its bytes.

    A small one, such as the lengths of samples, may have the size of an output by chance, such as the loss.
    """
    updated = a.is_state[values]
    extent = a.p.extent[values]
    return bool(2 * extent[updated].sum() > extent.sum() if a.is_training else updated.any())


def _batch_of_tokens(a: LayerActivations, name: str, number: int, members: Ints) -> Batch | None:
    """Return the batch of numbers that are one for each sample, such as tokens, although other dimensions are as large.

    There are as many layers or heads, for example. The caches that loops read tell that there is a batch.
    """
    size = _shared_size(a.dimensions[members], np.zeros(len(members), bool))
    if not size or a.dimensions[members, 1].any() or not are_indices(a, members).all():
        return None
    if pc.is_valid(buffer_names(a.p, members, ("iterations",))["iterations"]).to_numpy(zero_copy_only=False).any():
        return None  # a loop reads them one by one
    caches = np.flatnonzero(_is_stacked(a, size) & (a.dimensions[:, 2] > 0))
    if not len(caches):
        return None
    return Batch(name, number, size, np.union1d(members, caches), _shape_of(a, name, members), is_shared=True)


def _shape_of(a: LayerActivations, name: str, values: Ints) -> str:
    """Return " of shape s32[8,512]" for an argument without a name, and otherwise nothing."""
    if not name.startswith(UNNAMED):
        return ""
    return f" of shape {plain_shape(a.p.value_text('shape', values[:1])[0].as_py())}"


def _is_sliced(a: LayerActivations, values: Ints) -> Mask:
    """Return whether the leading dimension of each array is the number of iterations of a loop, not a batch.

    A training step may well have as many samples as layers, so its arrays need to be read slice by slice.
    """
    trips = [n for n in trip_counts_of(a.p) if n > 0]
    if not a.is_training:
        return np.isin(a.dimensions[values, 0], trips)
    iterations = pc.is_valid(buffer_names(a.p, values, ("iterations",))["iterations"]).to_numpy(zero_copy_only=False)
    # A loop over the samples (jax.lax.map) has as many iterations as other products have samples.
    samples = _samples(a)
    stacks = [s for s in a.stacks if (not trips or s.trips in trips) and s.trips not in samples]
    stacked = np.isin(a.dimensions[values, 0], [s.trips for s in stacks])
    # A model that predicts the next of several frames loops over all but one of them.
    elements = [a.dimensions[s.values, 1] for s in stacks]
    for s, second in zip(stacks, elements, strict=True):
        stacked |= (a.dimensions[values, 0] == s.trips + 1) & np.isin(a.dimensions[values, 1], second[second > 0])
    # A loop over the steps of a training, for example, stacks nothing for a backward pass.
    stacked |= np.isin(a.dimensions[values, 0], [n for n in set(trips) if not _is_in_activations(a, n)])
    # So may half of them be, if tokens come in pairs, such as two answers to each question, with a mask for each.
    shapes = distinct_rows(*a.dimensions[values].T)
    tokens = are_indices(a, values) & np.isin(2 * a.dimensions[values, 0], samples)
    stacked &= ~np.isin(shapes, shapes[tokens])
    return np.asarray(iterations | (stacked & ~_are_like_elements(a, values, stacks)), bool)


def _is_in_activations(a: LayerActivations, size: int) -> bool:
    """Return whether large activations of the forward pass, in or out of loops, have this leading dimension.

    Or a product of it. Losses of all iterations are small beside them.
    """
    forward = np.flatnonzero((a.phase == FORWARD) & ~a.has_opcode("while"))
    leading, extent = a.dimensions[forward, :3], a.p.extent[forward]
    has_size = (leading == size).any(axis=1) | np.isin(leading, a.multiples_of(size)).any(axis=1)
    return SMALL_ELEMENT * int(extent[has_size].max(initial=0)) > int(extent.max(initial=0))


def _samples(a: LayerActivations) -> Ints:
    """Return the leading dimensions of the products of the forward pass outside of loops."""
    outside = a.is_product & (a.loops == 0)
    return np.unique(a.dimensions[outside & (a.phase == FORWARD), 0])


def _views(a: LayerActivations, size: int) -> list[int]:
    """Return the leading dimensions of activations of a batch: its size, or multiples if the step joins its arrays."""
    samples = _samples(a)
    return [size, *(k * size for k in range(2, MAX_VIEWS + 1) if k * size in samples and size not in samples)]


def are_indices(a: LayerActivations, values: Ints) -> Mask:
    """Return which arrays have an element type that weights do not have."""
    element_types = pc.cast(a.p.value_text("element_type", values), pa.string())
    return np.asarray(pc.is_in(element_types, pa.array(_INDICES)).to_numpy(zero_copy_only=False), bool)


def _are_like_elements(a: LayerActivations, values: Ints, stacks: list[Stacks]) -> Mask:
    """Return which arrays have the first dimensions of what each iteration keeps, such as tokens and labels."""
    dimensions = a.dimensions[values]
    elements = np.concatenate([dimensions[:0], *(np.pad(a.dimensions[s.values, 1:], ((0, 0), (0, 1))) for s in stacks)])
    found = np.zeros(len(dimensions), bool)
    known, pattern = np.unique(dimensions > 0, axis=0, return_inverse=True)
    for i, compared in enumerate(known):
        rows = np.flatnonzero(pattern.ravel() == i)
        both = np.concatenate([elements * compared, dimensions[rows]])
        code = distinct_rows(*both.T)
        found[rows] = compared[0] & np.isin(code[len(elements) :], code[: len(elements)])
    return found


def _shared_size(dimensions: Ints, sliced: Mask) -> int:
    """Return the leading dimension that these arrays share (not that of a loop), if it can be halved, or 0."""
    sizes = np.unique(np.where(sliced, dimensions[:, 1], dimensions[:, 0]))
    size = int(sizes[0])
    return size if len(sizes) == 1 and size >= 2 and size % 2 == 0 else 0


def _is_ambiguous(
    a: LayerActivations, values: Ints, codes: Ints, code: int, shared: list[int], state: list[bool], is_named: bool
) -> bool:
    """Return whether the batch size of an argument is also a dimension of weights.

    It is the first one of an argument that may be weights, the last one of another argument, or one of two of an array.
    """
    dimensions, size = a.dimensions[values], shared[code]
    has_size = dimensions == size
    others = {int(c) for c in codes[has_size[:, 0]]} - {code}
    # Several inputs have samples, such as tokens and caches. Then results have them, too.
    inputs = [c for c in others if not state[c]]
    weights = any(shared[c] != size for c in others)
    if inputs:
        may_be = _may_be_weights(a, values[np.isin(codes, [code, *inputs])])
        weights |= bool(may_be.any()) or not _are_in_results(a, size)
    elif state[code] and not is_named:  # what is updated together may be weights and the state of their optimizer
        weights |= bool(has_size[:, 0].sum() > 1)
    repeated = has_size[np.isin(codes, [code, *others])].sum(axis=1) > 1
    return weights or bool(repeated.any() or (_is_last(dimensions, size) & (codes != code)).any())


def _may_be_weights(a: LayerActivations, values: Ints) -> Mask:
    """Return which arrays are matrices of numbers, not of indices."""
    is_matrix = (a.dimensions[values] > 0).sum(axis=1) == 2
    found: Mask = is_matrix & ~are_indices(a, values)
    return found


def _are_in_results(a: LayerActivations, size: int) -> bool:
    """Return whether an output has this leading dimension, or after the number of iterations of a loop."""
    values = outputs_of(a.p).value
    samples = np.where(_is_sliced(a, values), a.dimensions[values, 1], a.dimensions[values, 0])
    return bool((samples == size).any())


def _is_last(dimensions: Ints, size: int) -> Mask:
    """Return which of these arrays have several dimensions, of which the last one has this size."""
    rank = (dimensions > 0).sum(axis=1)
    last: Mask = (rank > 1) & (dimensions[np.arange(len(rank)), rank - 1] == size)
    return last


def _is_of_features(a: LayerActivations, size: int) -> bool:
    """Return whether most bytes at the peak that have this dimension have it last, and are thus no batch of it."""
    rows = np.flatnonzero(a.w.at_peak)
    dimensions, extent = a.dimensions[rows], a.p.extent[rows]
    is_last = _is_last(dimensions, size)
    is_before = ((dimensions == size).sum(axis=1) > is_last) | np.isin(dimensions[:, 0], a.multiples_of(size))
    return int(extent[is_last & ~is_before].sum()) > int(extent[is_before].sum())


def _whole_arrays(a: LayerActivations, size: int, values: Ints) -> Ints:
    """Return the parameters and outputs that have this leading dimension, and these parameters.

    Caches and outputs that a loop stacks have it after the number of iterations.
    """
    leading = _is_whole(a) & (a.dimensions[:, 0] == size)
    whole = leading & ~a.is_state if a.is_training else leading | _is_stacked(a, size)
    return np.union1d(np.flatnonzero(whole), values)


def _is_whole(a: LayerActivations) -> Mask:
    """Return which values are parameters and outputs in the device's memory."""
    p = a.p
    in_memory = a.w.in_memory & np.isin(p.category, (PARAMETER, DONATED, LIVE_OUT))
    whole: Mask = in_memory[p.owner] & (np.arange(len(p.owner)) == p.representative[p.owner])
    return whole


def _is_stacked(a: LayerActivations, size: int) -> Mask:
    """Return which are caches and outputs that have this dimension after the number of iterations of a loop.

    An output may be sharded otherwise than its cache, and not replace it. Weights have other dimensions.
    """
    stacked = _is_whole(a) & (a.dimensions[:, 1] == size) & _is_sliced(a, np.arange(len(a.p.owner)))
    first = distinct_rows(*a.dimensions[:, :3].T)
    is_result = a.is_state | (a.p.category == LIVE_OUT)[a.p.owner]
    found: Mask = stacked & np.isin(first, first[stacked & is_result])
    return found


def _has_activations(a: LayerActivations, size: int) -> bool:
    """Return whether a temporary, in any memory space, has this leading dimension, or a product of it.

    Those with the dimensions of what is updated do not count: they may be weights of an optimizer.
    """
    is_temp = np.isin(a.p.categories_of(np.arange(len(a.p.owner))), (TEMP, TEMP_IN_OUTPUT)) & ~a.is_like_state
    return bool((is_temp & np.isin(a.dimensions[:, 0], [size, *a.multiples_of(size)])).any())


def _joined(a: LayerActivations) -> Ints:
    """Return the products of two dimensions of an array that is updated, as layers have that are computed together."""
    dimensions = np.unique(a.dimensions[a.is_state], axis=0)
    first, second = np.triu_indices(dimensions.shape[1], 1)
    products = np.minimum(dimensions, 1 << 31)[:, first] * np.minimum(dimensions, 1 << 31)[:, second]
    return np.unique(products[products > 0])


def _are_of_batch(a: LayerActivations, size: int) -> Mask:
    """Return which dimensions of each array are that of a batch, or else a product of it with the next ones."""
    is_batch, is_joined = np.zeros((2, *a.dimensions.shape), bool)
    for n in _views(a, size):
        is_batch |= a.dimensions == n
        is_joined[:, :2] |= np.isin(a.dimensions[:, :2], a.multiples_of(n))
    is_joined &= ~_are_stacked_gradients(a)[:, None]
    found: Mask = is_batch | (is_joined & ~is_batch.any(axis=1, keepdims=True))
    return found


def _are_stacked_gradients(a: LayerActivations) -> Mask:
    """Return which values have all iterations of a loop first, and then the dimensions of a matrix that is updated.

    So have the gradients of micro-batches. What the forward pass computes may have such dimensions by chance.
    """
    trips = [n for n in trip_counts_of(a.p) if n > 1]
    found = np.isin(a.dimensions[:, 0], trips) & ~np.isin(a.phase, (FORWARD, RECOMPUTE))
    elements = np.pad(a.dimensions[found, 1:], ((0, 0), (0, 1)))
    matrices = a.dimensions[a.is_state & (a.dimensions[:, 1] > 0)]
    code = distinct_rows(*np.sort(np.concatenate([elements, matrices]), axis=1).T)
    found[found] = np.isin(code[: len(elements)], code[len(elements) :])
    return found


def depend_on_batch(a: LayerActivations, size: int) -> Mask:
    """Return which values have a batch."""
    return _depend_on(a, _are_of_batch(a, size))


def _depend_on(a: LayerActivations, is_batch: Mask) -> Mask:
    """Return which values have a dimension that is that of a batch.

    With as many samples as layers, stacked weights and their gradients have this dimension, too.
    """
    found: Mask = is_batch.any(axis=1) & ~(a.is_like_state & a.is_training)
    return found


def _of_iteration(a: LayerActivations) -> Ints:
    """Return the first three dimensions of each array, without the number of iterations of a loop that stacks it."""
    stacked = np.zeros(len(a.dimensions), bool)
    for s in a.stacks:
        stacked |= s.members & (a.dimensions[:, 0] == s.trips)
    return np.where(stacked[:, None], a.dimensions[:, 1:4], a.dimensions[:, :3])


def _are_pairs(a: LayerActivations, size: int) -> Mask:
    """Return which values are matrices of all pairs of samples, or of a few views of each."""
    first, second, third = _of_iteration(a).T
    pairs = np.stack([first, second], axis=1)
    found: Mask = (second > 0) & (third == 0) & (pairs % size == 0).all(axis=1)
    found &= pairs.min(axis=1) <= MAX_VIEWS * size
    # Of samples and features, weights have a dimension, or two that are joined.
    found &= ~np.isin(pairs, a.dimensions[a.is_state]).any(axis=1)
    found &= ~(np.isin(pairs, _joined(a)) & (pairs != size)).any(axis=1)
    return found


def _half_batch(a: LayerActivations, batch: Batch) -> Intervention:
    p, w, size = a.p, a.w, batch.size
    is_batch = _are_of_batch(a, size)
    halved = _depend_on(a, is_batch)
    temps = w.in_arena & halved
    fixed = -int(p.allocation_size[p.owner[batch.values]].sum()) // 2
    change = Change(fixed, -(w.only(temps) // 2))
    # Half a batch in a dimension of the layout's tile may be padded, or have another layout, which pads others.
    fills_tiles = (is_batch & (a.dimensions // 2 % a.tiles == 0)).any(axis=1)
    certain = w.saved(Change(fixed, -(w.only(temps & fills_tiles) // 2)))
    # A step may have activations that show no batch in their shape. Smaller ones may fit into outputs.
    is_fixed = a.is_like_state | (_are_stacked_gradients(a) & ~halved)
    others = w.in_arena & ~is_fixed if a.is_training else temps
    # Matrices of all pairs of samples fall to a quarter.
    is_pairs = _are_pairs(a, size)
    pairs = w.only(w.in_arena & is_pairs & ~a.is_like_state) // 4
    most = (Change(fixed, -(w.only(some) // 2 + pairs)) for some in (temps, others))
    rows = np.flatnonzero(temps & w.at_peak)
    half = int(np.median(p.extent[rows])) // 2 if len(rows) else w.total
    # What packing loses may halve as well.
    temporaries = max(map(w.saved, most)) + fixed + w.lost // 2
    upper = int(BATCH_UPPER * (with_vmem(w, temporaries, rows) - fixed)) + w.room_in_outputs(half)
    upper = min(upper, w.arena_bytes - fixed)
    where = " on each device" if is_partitioned(p) else ""
    text = f"Halve the batch of `{batch.name}`{batch.shape}{where} ({size:,} to {size // 2:,})."
    if a.is_training:
        is_small = _of_iteration(a)[:, :2].max(axis=1) <= MAX_VIEWS * size
        all_pairs = w.at_peak & is_pairs & is_small & ~a.is_like_state
        is_coupled = p.extent[all_pairs].sum() > MIN_PAIRS * w.peak
        text += f" {NOT_INDEPENDENT if is_coupled else ACCUMULATION}"
    lower = 0 if batch.is_shared else int(BATCH_LOWER * certain)
    lower = lower_if_kept(a, halved, change, lower)
    has_samples = len(rows) > 0 or (not a.is_training and _has_activations(a, size))
    if p.tables.platform == "tpu":
        # The compiler schedules the program anew, which may need more temporaries than a small part of them saves.
        is_small = certain < MIN_BATCH_SHARE * w.total
        lower -= int(RESCHEDULED * w.peak) if is_small else rescheduled_at_worst(w, lower)
    bounds = lower, upper if has_samples else 0
    values = np.union1d(rows, batch.values)
    found = of_values(a, "batch", values, change, bounds, text)
    return replace(found, argument=batch.name, parameter=batch.number)


def lower_if_kept(a: LayerActivations, halved: Mask, change: Change, lower: int) -> int:
    """Return a lower bound if XLA keeps the halves of what it rematerializes now, since they fit.

    On a TPU, the temporaries that are in outputs now may also need their own place.
    """
    w, p = a.w, a.p
    kept = int(KEPT / 2 * (w.saved(change) - w.saved(change._replace(levels=change.levels + a.kept_otherwise))))
    if p.tables.platform == "tpu":
        kept += moved_at_worst(w, halved)
    return min(lower, max(lower - int(BATCH_LOWER * kept), -int(MAX_COST * w.peak)))
