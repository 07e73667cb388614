"""Compute the loss in chunks: the logits of all samples are often the largest buffers of a training step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..aliasing import is_partitioned
from ..columns import Ints, Mask, flags_of, take
from ..layout import PARAMETER
from ..op_names import matching
from ..origins import has_opcode, origins, uses_of
from ..program import CLONE, distinct_rows
from .activations import FORWARD, Activations, loop_over
from .bounds import largest_divisor, of_values, with_vmem
from .intervention import Intervention
from .stacks import LoopActivations
from .what_if import Change

LOSS_LOWER, LOSS_UPPER = 0.7, 1.15
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
MAX_CHUNKS = 8
"""Maximum number of chunks that are proposed."""
MORE_CLASSES = 2
"""Number of times that there are more classes than features of a sample; otherwise, the logits are small."""
SMALL_HEAD = 64
"""What follows the logits has this many times fewer bytes: losses, and results of another head of the model."""
MAX_HEADS = 2
"""Maximum number of products that compute logits: those of a policy and of a reference, for example."""
MAX_ASPECT = 4
"""Maximum ratio of the sizes of two sets of samples of which all pairs are compared."""
_DECOMPOSITION = r"(?:^|/)(?:cholesky|eigh?|lu|qr|svd|schur|householder_product|triangular_solve)(?:\[|$)"
MAX_SLICED = 1 / 8
"""Maximum share of the samples that a slice of the logits leaves out, such as the last token of each sequence."""
MAX_KINDS = 8
"""Number of kinds of arrays, with other dimensions each, among which the logits are looked for."""


class Logits(NamedTuple):
    """What the forward pass computes last, and what has as many elements: the gradient, for example."""

    members: Mask
    size: int
    """Size of the dimension of samples that is split."""
    chunks: int
    """Number of chunks into which it is split."""
    gradient: int
    """Bytes of the gradients of the weights, to which each chunk adds."""
    pairs: str = ""
    """The numbers of samples of which all pairs are compared; empty if samples have classes."""


def chunked_losses(a: LoopActivations) -> Iterator[Intervention]:
    """Compute logits and loss of a chunk of the samples at a time."""
    logits = _logits(a) if len(uses_of(a.p)[0]) else None
    if logits is None:
        return
    only = a.w.only(a.with_slot_mates(logits.members))
    change = Change(0, -only + only // logits.chunks + np.where(only > 0, logits.gradient, 0))
    estimate = a.w.saved(change)
    if estimate <= 0:
        return
    best = Change(0, -only + only // logits.chunks)
    bounds = int(LOSS_LOWER * estimate), with_vmem(a.w, int(LOSS_UPPER * a.w.saved(best)) + a.w.lost_by(only))
    where = " on each device" if is_partitioned(a.p) else ""
    what, which = ("similarities", "samples") if logits.pairs else ("logits", "along a dimension of the samples")
    text = (
        f"Compute {logits.pairs}{what} and loss in {logits.chunks} chunks{where}, so that only the {what} of one chunk "
        f"exist at a time: {loop_over(a, 'f')}, where f computes both for "
        f"{logits.size // logits.chunks:,} of the {logits.size:,} {which}."
    )
    if a.is_tensorflow:
        text += " Weights have to be arguments of f."
    if logits.pairs:
        text += " A loss over both rows and columns needs chunks of both."
    values = np.flatnonzero(logits.members & a.w.at_peak)
    yield of_values(a, "loss", values, change, bounds, text)


def _logits(a: LoopActivations) -> Logits | None:
    """Return the logits, or None if it cannot be told what they are.

    They are found by what follows, since the product that computes them may be fused and have another name.
    """
    p, start = a.p, a.p.ranges[0]
    dimensions = distinct_rows(*np.sort(np.where(a.dimensions > 1, a.dimensions, 0), axis=1).T)
    has_own_name = (p.op_names(np.arange(len(start)))[0] >= 0) & ~has_opcode(p, p.instruction_row, "^copy")
    gathered = _are_gathered(a)
    forward = np.flatnonzero((a.phase == FORWARD) & has_own_name & (start >= 0) & ~gathered)
    forward = forward[~a.is_backward[np.minimum(start[forward], len(a.is_backward) - 1)]]
    codes, names = p.texts("instructions", "instruction")
    is_product = a.is_forward_product & ~flags_of(matching(names, CLONE), codes)
    stacked = np.zeros(len(start), bool)
    for stacks in a.stacks:
        stacked |= stacks.members
    for value in _largest(dimensions[forward], p.extent[forward]):
        value = forward[value]
        alike = ((dimensions == dimensions[value]) | _are_slices(a, value)) & ~gathered
        of_product = alike & flags_of(is_product, p.instruction_row)
        products = np.unique(p.instruction_row[of_product])
        # Between the logits of two models, the second one computes its activations.
        first = start[of_product].max() if len(products) > 1 else start[forward[alike[forward]]].min()
        later = forward[(start[forward] > first) & ~alike[forward]]
        is_last = int(p.extent[later].max(initial=0)) <= p.extent[value] // SMALL_HEAD
        # What a loop stacks has a dimension of iterations, which are no samples.
        if is_last and len(products) <= MAX_HEADS and not stacked[alike].any() and not _is_read_by_product(a, alike):
            return _split(a, value, max(1, len(products))) if (alike & a.w.at_peak).any() else None
    return None


def _are_gathered(a: Activations) -> Mask:
    """Return which values devices gather, such as weights, which may have as many features as there are samples."""
    return has_opcode(a.p, a.p.instruction_row, "^all-gather")


def _largest(kinds: Ints, extent: Ints) -> list[int]:
    """Return the rows of the largest values of the largest kinds."""
    order = np.argsort(-extent, kind="stable")
    first = np.sort(np.unique(kinds[order], return_index=True)[1])
    largest: list[int] = order[first[:MAX_KINDS]].tolist()
    return largest


def _is_read_by_product(a: Activations, values: Mask) -> bool:
    """Return whether a matrix product of the forward pass reads one of these values."""
    value, user, _, _ = uses_of(a.p)
    return bool(flags_of(a.is_forward_product, user[flags_of(values, value)]).any())


def _split(a: Activations, value: int, heads: int) -> Logits | None:
    """Return how the samples of these logits can be split; None for results that are no logits of many classes.

    The classes are a dimension of weights, whose other dimensions are the features.
    """
    p, own = a.p, [d for d in a.dimensions[value].tolist() if d > 1]
    if a.is_like_state[value]:
        return None
    classes, weights = _classes(a, value)
    if not classes:
        return _split_pairs(a, value, own)
    chunks, samples = max(((largest_divisor(d, MAX_CHUNKS), d) for d in own if d != classes), default=(1, 1))
    if chunks < 2 or not _are_many(a, classes, weights):
        return None
    updated = weights[a.is_state[weights]]
    members = a.w.in_arena & ((a.elements == a.elements[value]) | _are_slices(a, value)) & ~a.is_like_state
    members &= (a.dimensions == classes).any(axis=1) & ~_are_gathered(a)
    return Logits(members, samples, chunks, heads * int(p.extent[updated].max(initial=0)))


def _classes(a: Activations, value: int) -> tuple[int, Ints]:
    """Return the dimension of classes of logits, and the weights that have it, too; 0 if these are no logits.

    It is the last dimension, if weights have that, or the largest, or else the largest that they have. Weights of a
    frozen model are not updated; the adapters that are may have a dimension of the samples by chance.
    """
    own, found = [d for d in a.dimensions[value].tolist() if d > 1], (0, np.empty(0, np.int64))
    kinds = a.is_state & (a.dimensions[:, 1] > 0), _are_frozen(a)
    others = [] if kinds[1].any() else sorted(own, reverse=True)
    for classes in (own[-1], max(own), *others) if own else ():
        for is_weight in kinds:
            weights = np.flatnonzero(is_weight & (a.dimensions == classes).any(axis=1))
            if len(weights) and _are_many(a, classes, weights):
                return classes, weights
            found = (classes, weights) if len(weights) and not found[0] else found
    return found


def _are_many(a: Activations, classes: int, weights: Ints) -> bool:
    """Return whether there are so many classes that the logits are large."""
    return bool(classes >= MORE_CLASSES * a.elements[weights].max() / classes)


def _are_frozen(a: Activations) -> Mask:
    """Return which values are matrices that are arguments, are not updated, and are read by a product."""
    p, (value, user, _, _) = a.p, uses_of(a.p)
    argument = take(origins(p).argument, value)
    argument = np.where(argument < 0, take(p.owner, value), argument)[flags_of(a.is_forward_product, user)]
    is_read = np.isin(np.arange(len(p.category)), argument) & (p.category == PARAMETER)
    found: Mask = ((a.dimensions > 1).sum(axis=1) == 2) & is_read[p.owner] & ~a.is_state
    return found


def _are_slices(a: Activations, value: int) -> Mask:
    """Return which arrays are slices of the same array as this one: they have the same classes, but other samples."""
    dimensions = np.sort(np.where(a.dimensions > 1, a.dimensions, 0), axis=1)
    differs = dimensions != dimensions[value]
    column = differs.argmax(axis=1)
    size, own = dimensions[np.arange(len(column)), column], dimensions[value, column]
    is_near = np.minimum(size, own) >= (1 - MAX_SLICED) * np.maximum(size, own)
    found: Mask = (differs.sum(axis=1) == 1) & is_near & (own != (_classes(a, value)[0] or own)) & ~a.is_like_state
    return found


def _split_pairs(a: Activations, value: int, own: list[int]) -> Logits | None:
    """Return how all pairs of samples can be split, whose similarities a product of the forward pass computes.

    Both factors have fewer features than there are samples. A decomposition needs the whole matrix.
    """
    if len(own) != 2 or max(own) > MAX_ASPECT * min(own) or _has_decomposition(a):
        return None
    p = a.p
    alike = (a.elements == a.elements[value]) & (a.dimensions == own[1]).any(axis=1)
    products = p.instruction_row[alike & flags_of(a.is_forward_product, p.instruction_row)]
    factor, user, _, _ = uses_of(p)
    factors = np.unique(factor[(factor >= 0) & np.isin(user, products)])
    factors = factors[np.isin(a.dimensions[factors], own).any(axis=1)]
    chunks, size = max((largest_divisor(d, MAX_CHUNKS), d) for d in own)
    if chunks < 2 or not len(factors) or a.elements[value] < MORE_CLASSES * a.elements[factors].max():
        return None
    # Also those of which scatters join the dimensions.
    members = a.w.in_arena & (a.elements == a.elements[value]) & ~a.is_like_state
    return Logits(members, size, chunks, int(p.extent[factors].max()), f"{own[0]:,} by {own[1]:,} ")


def _has_decomposition(a: Activations) -> bool:
    names = pc.cast(a.p.printed_op_names[1], pa.string())
    return bool(matching(names, _DECOMPOSITION).any())
