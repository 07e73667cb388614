"""Compute the gradients of each sample in chunks, as differentially private training has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..aliasing import is_partitioned
from ..columns import Ints, Mask, flags_of
from ..layout import DONATED, LIVE_OUT
from ..op_names import END, matching
from ..program import distinct_rows
from .batches import Batch, batches_of, depend_on_batch
from .bounds import largest_divisor, of_values, with_vmem
from .intervention import Intervention, largest_first
from .layers import LayerActivations
from .what_if import Change

SAMPLES_LOWER, SAMPLES_UPPER = 0.7, 1.1
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
MAX_CHUNKS = 8
"""Maximum number of chunks that are proposed."""
MIN_GRADIENTS = 0.1
"""Minimum size of the gradients of single samples, as a share of the temporaries at the peak."""

_PER_SAMPLE = r"\bvmap\(transpose\(jvp\("
"""Op_names of what differentiates the loss of each sample by itself."""
_OF_ALL_SAMPLES = rf"/(?:sort|top_k|cum\w+|cholesky|eigh|svd|qr){END}"
"""Primitives that need all samples at once."""


def gradients_of_samples(a: LayerActivations) -> Iterator[Intervention]:
    """Compute the gradients of a chunk of the samples at a time, and add up what the program makes of them."""
    per_sample = matching(a.op_names, _PER_SAMPLE)
    if not per_sample.any():
        return
    computed = flags_of(per_sample, a.op_codes) & a.w.in_arena
    found = [row for batch in batches_of(a) for row in _in_chunks(a, batch, computed)]
    if found:
        yield max(found, key=lambda i: (i.lower, i.upper))


def _in_chunks(a: LayerActivations, batch: Batch, computed: Mask) -> Iterator[Intervention]:
    p, w, size = a.p, a.w, batch.size
    alike, chunks = _are_gradients(a, size), largest_divisor(size, MAX_CHUNKS)
    gradients, of_batch = largest_first(w, np.flatnonzero(alike & computed)), w.in_arena & depend_on_batch(a, size)
    if chunks < 2 or not len(gradients) or p.extent[gradients].sum() < MIN_GRADIENTS * w.peak:
        return
    if _needs_all_samples(a, size, alike):
        return
    only = w.only(of_batch)
    best, fewer = -only + only // chunks, a.kept_otherwise // chunks
    # The chunks add up gradients. What is rematerialized now may be kept then.
    change = Change(0, best + np.where(only > 0, _state(a), 0) + fewer)
    upper = int(SAMPLES_UPPER * w.saved(Change(0, best))) + w.lost_by(only)
    bounds = int(SAMPLES_LOWER * w.saved(change)), with_vmem(w, upper)
    where = " on each device" if is_partitioned(p) else ""
    shape = p.value_text("shape", gradients[:1])[0].as_py().partition("{")[0]
    text = (
        f"Each of the {size:,} samples of `{batch.name}`{where} has its own gradients, such as {shape}. Compute those "
        f"of {size // chunks:,} samples at a time: jax.lax.scan over {chunks} chunks, with what is added up over the "
        "samples in the carry, such as clipped gradients."
    )
    values = np.flatnonzero(of_batch & w.at_peak)
    yield replace(of_values(a, "scan", values, change, bounds, text), argument=batch.name, parameter=batch.number)


def _are_gradients(a: LayerActivations, size: int) -> Mask:
    """Return which values have this dimension, and those of a matrix or more that is updated, in any order."""
    state = a.dimensions[a.is_state & (a.dimensions[:, 1] > 0) & (a.dimensions[:, -1] == 0)]
    rows = np.concatenate([np.sort(_with(state, size), axis=1), np.sort(a.dimensions, axis=1)])
    code = distinct_rows(*rows.T)
    found: Mask = np.isin(code[len(state) :], code[: len(state)]) & ~a.is_state
    return found


def _with(dimensions: Ints, size: int) -> Ints:
    """Return these dimensions with one more in the last place, which is free."""
    return np.concatenate([dimensions[:, :-1], np.full((len(dimensions), 1), size)], axis=1)


def _needs_all_samples(a: LayerActivations, size: int, alike: Mask) -> bool:
    """Return whether the program returns the gradients of samples, compares all pairs, or sorts them, for example.

    With as many samples as weights have features, gradients of biases look like matrices of all pairs.
    """
    returned = alike & (a.p.category == LIVE_OUT)[a.p.owner] & a.w.in_memory[a.p.owner]
    sorts = alike & flags_of(matching(a.op_names, _OF_ALL_SAMPLES), a.op_codes)
    pairs = (a.dimensions[:, :2] == size).all(axis=1) & (a.dimensions[:, 2] == 0)
    pairs &= size not in a.dimensions[a.is_state]
    return bool((returned | sorts | pairs).any())


def _state(a: LayerActivations) -> int:
    """Return the bytes of what is updated."""
    donated = a.w.in_memory & (a.p.category == DONATED)
    return int(a.p.allocation_size[donated].sum())
