"""Compute the loss in chunks: the logits of all samples are often the largest buffers of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .activations import Activations
from .columns import Ints, Mask, flags_of
from .interventions import Intervention
from .origins import uses_of
from .program import distinct_rows
from .rematerialization import of_values, with_vmem
from .what_if import Change

LOSS_LOWER, LOSS_UPPER = 0.7, 1.15
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
MAX_CHUNKS = 8
"""Maximum number of chunks that are proposed."""
MORE_CLASSES = 2
"""Number of times that there are more classes than features of a sample; otherwise, the logits are small."""
SMALL_HEAD = 64
"""A later product is another head of the model if it has this many times fewer bytes than the logits."""


class Logits(NamedTuple):
    """The result of the last matrix product of the forward pass, and what has as many elements: its gradient."""

    members: Mask
    size: int
    """Size of the dimension of samples that is split."""
    chunks: int
    """Number of chunks into which it is split."""
    gradient: int
    """Bytes of the gradient of the weights, to which each chunk adds."""


def chunked_losses(a: Activations) -> Iterator[Intervention]:
    """Compute logits and loss of a chunk of the samples at a time."""
    logits = _logits(a) if a.is_training and len(uses_of(a.p)[0]) else None
    if logits is None:
        return
    only = a.w.only(a.with_slot_mates(logits.members))
    change = Change(0, -only + only // logits.chunks + np.where(only > 0, logits.gradient, 0))
    estimate = a.w.saved(change)
    if estimate <= 0:
        return
    best = Change(0, -only + only // logits.chunks)
    bounds = int(LOSS_LOWER * estimate), with_vmem(a.w, int(LOSS_UPPER * a.w.saved(best)))
    text = (
        f"Compute logits and loss in {logits.chunks} chunks, so that only the logits of one chunk exist at a time: "
        f"jax.lax.map over jax.checkpoint(f), where f computes both for {logits.size // logits.chunks:,} of the "
        f"{logits.size:,} along a dimension of the samples."
    )
    values = np.flatnonzero(logits.members & a.w.at_peak)
    yield of_values(a, "loss", values, change, bounds, text)


def _logits(a: Activations) -> Logits | None:
    """Return the logits with most bytes, or None if it cannot be told what they are."""
    p = a.p
    dimensions = distinct_rows(*np.sort(np.where(a.dimensions > 1, a.dimensions, 0), axis=1).T)
    product = np.flatnonzero(flags_of(a.is_forward_product, p.instruction_row))
    for value in product[_is_last(p.ranges[0][product], p.extent[product])].tolist():
        alike = product[dimensions[product] == dimensions[value]]
        computed_once = (p.instruction_row[alike] == p.instruction_row[value]).all()
        is_read = _is_read_by_product(a, dimensions == dimensions[value])
        if computed_once and a.w.in_arena[value] and not is_read and (found := _split(a, value)) is not None:
            return found
    return None


def _is_last(start: Ints, extent: Ints) -> Mask:
    """Return which products are followed by none but small ones."""
    order = np.argsort(-start, kind="stable")
    begin = np.searchsorted(-start[order], -start[order])  # the first product that starts at the same step
    largest = np.maximum.accumulate(extent[order]) if len(order) else extent
    found = np.empty(len(start), bool)
    found[order] = np.where(begin > 0, largest[begin - 1], 0) <= extent[order] // SMALL_HEAD
    return found


def _is_read_by_product(a: Activations, values: Mask) -> bool:
    """Return whether a matrix product of the forward pass reads one of these values."""
    value, user, _, _ = uses_of(a.p)
    return bool(flags_of(a.is_forward_product, user[flags_of(values, value)]).any())


def _split(a: Activations, value: int) -> Logits | None:
    """Return how the samples of these logits can be split; None for results that are no logits of many classes.

    The classes are a dimension of weights, whose other dimensions are the features.
    """
    p, own = a.p, [d for d in a.dimensions[value].tolist() if d > 1]
    weights = np.flatnonzero(a.is_state & (a.dimensions[:, 1] > 0))
    of_weights = [d for d in own if (a.dimensions[weights] == d).any()]
    if not of_weights or a.is_like_state[value]:
        return None
    classes = own[-1] if own[-1] in of_weights else max(of_weights)
    samples = max((d for d in own if d != classes), key=lambda d: (_chunks(d), d), default=1)
    if _chunks(samples) < 2:
        return None
    weights = weights[(a.dimensions[weights] == classes).any(axis=1)]
    elements = np.where(a.dimensions > 0, a.dimensions, 1).prod(axis=1, dtype=np.float64)
    if classes < MORE_CLASSES * elements[weights].max() / classes:
        return None
    members = a.w.in_arena & (elements == elements[value]) & (a.dimensions == classes).any(axis=1)
    return Logits(members, samples, _chunks(samples), int(p.extent[weights].max()))


def _chunks(size: int) -> int:
    """Return the largest number of equal chunks, up to MAX_CHUNKS."""
    return max(n for n in range(1, MAX_CHUNKS + 1) if size % n == 0)
