"""Pair rows with equal keys, in a given order."""

from __future__ import annotations

import numpy as np

from ..compute.columns import Ints
from ..parse.arrays import stable_order
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
