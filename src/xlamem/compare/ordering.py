"""Pair rows with equal keys, in a given order."""

from __future__ import annotations

import numpy as np

from ..compute.columns import Ints, Mask
from ..parse.arrays import stable_order
from .graph import Labels


def groups(a: Ints, b: Ints) -> tuple[Ints, Ints, int]:
    """Number the distinct keys of two sides."""
    keys = np.concatenate([a, b])
    order, is_new = _alike(keys)
    number = np.cumsum(is_new)
    group = np.empty(len(keys), np.int64)
    group[order] = number - 1
    return group[: len(a)], group[len(a) :], int(number[-1]) if len(keys) else 0


def _alike(keys: Ints) -> tuple[Ints, Mask]:
    """Return an order in which equal keys are neighbours, and where another key begins.

    The high bits of the keys are sorted together with the rows, which is much faster than an argsort. They suffice
    unless different hashes have the same ones.
    """
    bits = len(keys).bit_length()
    packed = keys & (-1 << bits)
    packed |= np.arange(len(keys))
    packed.sort()
    order = packed & ~(-1 << bits)
    ordered, is_new = keys[order], np.ones(len(keys), bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    if (is_new[1:] & (ordered[1:] >> bits == ordered[:-1] >> bits)).any():
        order = np.argsort(keys)
        is_new[1:] = np.diff(keys[order]) != 0
    return order, is_new


def labels_in_order(left: Ints, right: Ints, labels: Labels, order_a: Ints, order_b: Ints) -> tuple[Ints, Ints]:
    """Pair the k-th row of each label on the left with its k-th row on the right."""
    at_a, at_b = in_order(labels.a[left], labels.b[right], order_a[left], order_b[right])
    return left[at_a], right[at_b]


def in_order(
    a: Ints, b: Ints, order_a: Ints | None = None, order_b: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return the indices of pairs of equal keys: the k-th of each key on both sides, by default in the given order."""
    group_a, group_b, n = groups(a, b)
    pairs = np.minimum(np.bincount(group_a, minlength=n), np.bincount(group_b, minlength=n))
    return _first_rows(group_a, order_a, pairs), _first_rows(group_b, order_b, pairs)


def _first_rows(group: Ints, position: Ints | None, counts: Ints) -> Ints:
    """Return the first rows of each group, as many as its count, in the order of `by_group`."""
    rows = np.flatnonzero(counts[group])
    group = group[rows]
    position = rows if position is None else position[rows]
    order = by_group(group, position)
    return rows[order[_ranks(group[order]) < counts[group[order]]]]


def ranks(group: Ints, position: Ints) -> Ints:
    """Return the rank of each row within its group."""
    order = by_group(group, position)
    rank = np.empty(len(group), np.int64)
    rank[order] = _ranks(group[order])
    return rank


def _ranks(ordered: Ints) -> Ints:
    """Return the rank of each row within its group, given groups in ascending order."""
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    return np.arange(len(ordered)) - np.repeat(first, np.diff(np.append(first, len(ordered))))


def by_group(group: Ints, position: Ints) -> Ints:
    """Return the order of rows by group, then by position (from 0). All pairs of these differ."""
    return stable_order(group * (int(position.max(initial=0)) + 1) + position)
