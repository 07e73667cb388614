"""Compute attention part by part: its matrices of all pairs of positions grow with the square of the length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ..aliasing import is_partitioned
from ..buffer_names import trip_counts_of
from ..columns import Ints, Mask, flags_of
from ..layout import DONATED, PARAMETER
from ..op_names import END, matching
from ..origins import origins, uses_of
from ..program import distinct_rows
from .activations import TF_PRODUCT, Activations, loop_over
from .bounds import largest_divisor, of_values, with_vmem
from .intervention import Intervention, rescheduled_at_worst
from .layers import LayerActivations
from .what_if import Change, largest_groups

ATTENTION_LOWER, ATTENTION_UPPER = 0.6, 1.25
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
IN_FLIGHT = 4
"""Matrices of one part that are live at the same time: scores and weights of attention, and their gradients."""
MAX_PARTS = 64
"""Maximum number of parts that are proposed."""
_PRODUCT = rf"/dot_general{END}|(?:^|/){TF_PRODUCT}"
"""Op_names of matrix products, by JAX and by TensorFlow."""


class _Pairs(NamedTuple):
    """Numbers of positions of which attention compares all pairs: those of keys and queries, the smaller first."""

    n: int
    m: int

    def are_in(self, dimensions: Ints) -> Mask:
        """Return which rows have both numbers, or the same one twice."""
        if self.n == self.m:
            twice: Mask = (dimensions == self.n).sum(axis=1) > 1
            return twice
        both: Mask = (dimensions == self.n).any(axis=1) & (dimensions == self.m).any(axis=1)
        return both


class _Attention(NamedTuple):
    """Attention between sequences of the same lengths, whose numbers of samples or heads may differ."""

    pairs: _Pairs
    matrices: Ints
    """The weights: matrices that products multiply by vectors."""
    is_alike: Mask
    """Whether each value has as many elements as one of them."""
    members: Mask
    """Whether it is a matrix of these pairs in a temp allocation."""


def attention_by_parts(a: LayerActivations) -> Iterator[Intervention]:
    """Keep no matrices of pairs of positions, and compute those of a few samples or heads at a time."""
    p = a.p
    is_stack = np.isin(a.dimensions[:, 0], [n for n in trip_counts_of(p) if n > 0])  # of all iterations of a loop
    of_iteration = a.elements / np.where(is_stack, a.dimensions[:, 0], 1)
    matrices = _matrices(a, is_stack, of_iteration)
    lengths = np.sort(np.stack(_last_two(a, (a.dimensions > 0).sum(axis=1)), axis=1)[matrices], axis=1)
    code, found = distinct_rows(*lengths.T), []
    for group in largest_groups(code, p.extent[matrices]).tolist():
        pairs, own = _Pairs(*lengths[code == group][0].tolist()), matrices[code == group]
        is_alike = _are_alike(a, of_iteration, own)
        members = a.w.in_arena & is_alike & pairs.are_in(a.dimensions) & ~a.is_fft
        found.append(_Attention(pairs, own, is_alike, members))
    is_any = np.any([t.members for t in found], axis=0)
    for t in found:
        yield from _by_parts(a, is_stack, t, np.flatnonzero(is_any & ~t.members))


def _are_alike(a: LayerActivations, of_iteration: npt.NDArray[np.float64], matrices: Ints) -> Mask:
    """Return which values have as many elements as one of these matrices, in an iteration if a loop stacks them.

    What a loop stacks may have as many in all iterations, such as its carry if heads are as many as layers.
    """
    sizes = np.append(a.elements[matrices], of_iteration[matrices])
    found: Mask = (np.isin(a.elements, sizes) & ~_is_carry(a)) | np.isin(of_iteration, sizes)
    return found


def _last_two(a: Activations, rank: Ints) -> tuple[Ints, Ints]:
    """Return the last dimension of each array, and the one before it."""
    rows = np.arange(len(rank))
    return a.dimensions[rows, np.maximum(rank - 1, 0)], a.dimensions[rows, np.maximum(rank - 2, 0)]


def _by_parts(a: LayerActivations, is_stack: Mask, t: _Attention, others: Ints) -> Iterator[Intervention]:
    """Compute attention part by part; `others` are the matrices of other pairs."""
    p, pairs = a.p, t.pairs
    largest = t.matrices[np.argmax(p.extent[t.matrices])]
    dimensions = a.dimensions[largest][a.dimensions[largest] > 0]
    parts = max(largest_divisor(n, MAX_PARTS) for n in dimensions[int(is_stack[largest]) : -2].tolist())
    used = a.used_after_loops
    is_used = t.members & (a.with_slot_mates(used) | a.gradients_of(used))
    members = t.members & ~is_used
    only = a.w.only(a.with_slot_mates(members))
    in_flight = IN_FLIGHT * int(p.extent[largest]) // parts
    is_saved = a.with_slot_mates(_saved_by_policy(a, members))
    sure = a.w.only(a.with_slot_mates(members & ~is_saved)) if is_saved.any() else only
    # XLA may keep matrices of other attention that it rematerializes now, but no more than are gone.
    kept = a.kept_instead_of(np.intersect1d(a.rematerialized, others))
    at_worst, certain, estimate, best = (
        a.w.saved(Change(0, -freed + np.where(freed > 0, more, 0)))
        for freed, more in ((sure, in_flight + kept), (sure, in_flight), (only, in_flight), (only, 0))
    )
    certain = max(at_worst, min(certain, 0))
    if parts < 2 or estimate <= 0:
        return
    where = " on each device" if is_partitioned(p) else ""
    text = (
        f"Compute attention in {parts:,} parts{where} along one dimension of samples or heads: {loop_over(a, 'f')}, "
        "where f gets queries, keys and values of a part. A kernel for flash attention keeps no matrix of "
        f"{pairs.n:,} by {pairs.m:,} at all."
    )
    if _has_bias(a, t.is_alike, pairs):
        text += " If a bias is added to the scores, f has to compute it for its part as well."
    if is_saved.any():
        text += " The policy of jax.checkpoint has to leave these matrices out, which it saves now."
    if is_used.any():
        text += " What the program itself computes from these matrices after a loop, f has to return for its part."
        certain = min(certain, 0)
    lower = int(ATTENTION_LOWER * certain)
    if p.tables.platform == "tpu" and not a.is_training:  # what the parts get and return may be copied
        lower -= rescheduled_at_worst(a.w, lower)
    bounds = lower, with_vmem(a.w, int(ATTENTION_UPPER * best) + a.w.lost_by(only))
    yield of_values(a, "attention", np.flatnonzero(members & a.w.at_peak), Change(0, in_flight - only), bounds, text)


def _is_carry(a: LayerActivations) -> Mask:
    """Return which values stack what a loop passes from one iteration to the next, for its backward pass."""
    found = np.zeros(len(a.elements), bool)
    for s in a.stacks:
        found |= s.members & (a.dimensions[:, 0] == s.trips) & (a.p.extent // s.trips <= 2 * s.least_carry)
    return found


def _saved_by_policy(a: Activations, members: Mask) -> Mask:
    """Return which of these values a policy of jax.checkpoint saves, also if they are computed part by part."""
    saved, rows = np.zeros(len(members), bool), np.flatnonzero(members)
    saved[rows] = a.is_saved_by_policy(rows)
    return saved


def _has_bias(a: Activations, is_alike: Mask, pairs: _Pairs) -> bool:
    """Return whether a product of the forward pass computes as many numbers as there are weights of attention.

    Its result is no matrix of all pairs of positions in its last dimensions, as the scores are.
    """
    last, before = _last_two(a, (a.dimensions > 0).sum(axis=1))
    # The pairs may be one dimension. Hidden activations can be as large by chance.
    of_pairs = pairs.are_in(a.dimensions) | _has_multiple(a.dimensions, pairs.n * pairs.m)
    is_matrix = pairs.are_in(np.stack([last, before], axis=1))
    return bool(flags_of(a.is_forward_product, a.p.instruction_row[is_alike & of_pairs & ~is_matrix]).any())


def _has_multiple(dimensions: Ints, number: int) -> Mask:
    """Return which rows have a multiple of a number."""
    found: Mask = ((dimensions > 0) & (dimensions % number == 0)).any(axis=1)
    return found


def _matrices(a: Activations, is_stack: Mask, elements: npt.NDArray[np.float64]) -> Ints:
    """Return the matrices that products of the forward pass multiply by several vectors, which are smaller.

    In (samples, n, n), in whatever shape, n may be the number of features if weights have a dimension of n, or if these
    products also read an argument of n by n, as the covariances of a filter are multiplied by its transitions. Matrices
    of other numbers of queries than keys, as in cross-attention, have samples and heads. Stages of Fourier transforms
    are matrices as well.
    """
    p = a.p
    rank = (a.dimensions > 0).sum(axis=1)
    last, before = _last_two(a, rank)
    others = rank - 2 - is_stack
    result, rows = np.zeros(p.tables["instructions"].num_rows), p.instruction_row
    np.maximum.at(result, rows[rows >= 0], elements[rows >= 0])
    codes, names = p.printed_op_names
    is_product = a.is_forward_product & flags_of(matching(names, _PRODUCT), codes)
    value, user, _, _ = uses_of(p)
    is_factor = (value >= 0) & flags_of(is_product, user)
    value, user = value[is_factor], user[is_factor]
    is_argument = origins(p).argument[value] >= 0
    factors = value[is_argument & (rank[value] == 2)]
    features = np.append(a.dimensions[a.is_state].ravel(), last[factors[last[factors] == before[factors]]])
    is_square = (last == before) & (others > 0)
    # The compiler may divide samples into two dimensions.
    may_be_heads = (others > 1) & ~np.isin(elements, elements[is_square & (others == 1)])
    is_square &= may_be_heads | ~np.isin(last, features)
    lengths = _lengths(a, rank)
    is_rectangle = (last != before) & (others > 1) & np.isin(before, lengths)
    # Features are a dimension of the weights by which products multiply.
    weights = a.dimensions[value[a.is_like_state[value] if a.is_training else is_argument]]
    sums = [~np.isin(n[value], weights) & ~_is_in_result(a, user, n[value]) for n in (last, before)]
    read = (is_square[value] | (is_rectangle[value] & (sums[0] | sums[1]))) & np.isin(last, lengths)[value]
    read &= ~a.is_fft[value]
    value, user = value[read], user[read]
    several = (result[user] < elements[value]) & (result[user] * last[value] > elements[value])
    return np.unique(value[several])


def _is_in_result(a: Activations, rows: Ints, number: Ints) -> Mask:
    """Return whether the result of each instruction has this dimension: products sum over the others."""
    results = np.flatnonzero(np.isin(a.p.instruction_row, rows))
    dimensions = a.dimensions[results]
    row = np.append(np.repeat(a.p.instruction_row[results], dimensions.shape[1]), rows)
    code = distinct_rows(row, np.append(dimensions.ravel(), number))
    found: Mask = np.isin(code[dimensions.size :], code[: dimensions.size])
    return found


def _lengths(a: Activations, rank: Ints) -> Ints:
    """Return what may be numbers of positions: the second dimension of arguments, and of (samples, n, features).

    The states of linear attention are square matrices of features, and multiplied by several vectors, too.
    """
    is_argument = np.isin(a.p.category, (PARAMETER, DONATED))[a.p.owner]
    second, third = a.dimensions[:, 1], a.dimensions[:, 2]
    found = is_argument & (rank > 1) | (rank == 3) & (second != third)
    return np.unique(second[found & ~a.is_like_state])
