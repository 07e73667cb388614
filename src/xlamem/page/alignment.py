"""Align the schedules of two programs: matched steps that are in the same order in both."""

from __future__ import annotations

import numpy as np

from ..compare.matching import Matching
from ..compute.columns import Ints, sums_of

MAX_RUNS = 1 << 13
"""Maximum number of runs among which the longest common order is searched. Of more, only the longest are considered."""


def aligned_steps(m: Matching) -> tuple[Ints, Ints]:
    """Return steps of A and of B with matching instructions, both ascending: as many as possible."""
    a, b = m.steps_in_order[0]
    kept = longest_increasing(b)
    return a[kept], b[kept]


def longest_increasing(values: Ints) -> Ints:
    """Return the indices of a longest increasing subsequence of distinct values.

    Consecutive values that are also neighbours in sorted order are a run, of which all or none belong to the result:
    every other value is below or above all of them. Schedules have few runs. With more than MAX_RUNS, the result may
    not be the longest.
    """
    n = len(values)
    if not n:
        return np.empty(0, np.int64)
    rank = np.empty(n, np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(n)
    begins = np.append(True, np.diff(rank) != 1)
    run = np.cumsum(begins) - 1
    first = rank[begins]
    length = sums_of(np.ones(n, np.int64), run, len(first))
    runs = np.sort(np.argsort(-length, kind="stable")[:MAX_RUNS])
    chosen = np.zeros(len(first), bool)
    chosen[runs[_heaviest_increasing(first[runs], length[runs])]] = True
    return np.flatnonzero(chosen[run])


def _heaviest_increasing(values: Ints, weight: Ints) -> Ints:
    """Return the indices of the increasing subsequence with the largest sum of weights."""
    total, previous = weight.copy(), np.full(len(values), -1)
    for i in range(1, len(values)):
        candidates = np.where(values[:i] < values[i], total[:i], 0)
        best = int(candidates.argmax())
        if candidates[best]:
            previous[i] = best
            total[i] += candidates[best]
    chain = [int(total.argmax())]
    while previous[chain[-1]] >= 0:
        chain.append(int(previous[chain[-1]]))
    return np.array(chain[::-1], np.int64)
