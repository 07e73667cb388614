"""Pair rows with equal keys, in a given order."""

from __future__ import annotations

import numpy as np

from ..compute.columns import Ints
from .graph import Labels


def groups(a: Ints, b: Ints) -> tuple[Ints, Ints, int]:
    """Number the distinct keys of two sides."""
    distinct, group = np.unique(np.concatenate([a, b]), return_inverse=True)
    group = group.reshape(-1)
    return group[: len(a)], group[len(a) :], len(distinct)


def labels_in_order(left: Ints, right: Ints, labels: Labels, order_a: Ints, order_b: Ints) -> tuple[Ints, Ints]:
    """Pair the k-th row of each label on the left with its k-th row on the right."""
    at_a, at_b = in_order(labels.a[left], labels.b[right], order_a[left], order_b[right])
    return left[at_a], right[at_b]


def in_order(
    a: Ints, b: Ints, order_a: Ints | None = None, order_b: Ints | None = None
) -> tuple[Ints, Ints]:
    """Return the indices of pairs of equal keys: the k-th of each key on both sides, by default in the given order."""
    group_a, group_b, _ = groups(a, b)
    rank_a = ranks(group_a, np.arange(len(a)) if order_a is None else order_a)
    rank_b = ranks(group_b, np.arange(len(b)) if order_b is None else order_b)
    width = max(len(a), len(b), 1)
    keys_a, keys_b = group_a * width + rank_a, group_b * width + rank_b
    _, at_a, at_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    return at_a, at_b


def ranks(group: Ints, position: Ints) -> Ints:
    """Return the rank of each row within its group."""
    order = by_group(group, position)
    ordered = group[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1))
    rank = np.empty(len(group), np.int64)
    rank[order] = np.arange(len(group)) - np.repeat(first, np.diff(np.append(first, len(group))))
    return rank


def by_group(group: Ints, position: Ints) -> Ints:
    """Return the order of rows by group, then by position (from 0). All pairs of these differ."""
    return np.argsort(group * (int(position.max(initial=0)) + 1) + position)
