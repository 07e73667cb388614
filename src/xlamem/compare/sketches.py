"""Sketches of programs: how similar two programs are, estimated from a few numbers of each.

The features of a program are of three kinds: the (opcode, scope), (opcode, scope, shape) and (opcode, shape) of its
instructions, with layers folded and without layouts. Of each kind, `BUCKETS` minimum hashes are kept (one-permutation
MinHash): the share of equal ones estimates the Jaccard index of two sets of features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, encoded
from ..compute.op_names import plain_names, shortened_paths
from ..parse.fingerprints import hash_texts, row_hash

Sketches = npt.NDArray[np.uint32]
"""A row for each program: BUCKETS hashes of each kind of feature, `EMPTY` without a feature."""

BUCKETS = 64
KINDS = 3
EMPTY = np.uint32(0xFFFFFFFF)
COLUMNS = ("opcode", "op_name", "shape")
"""The columns of `instructions` from which sketches are made."""

LAYOUT = r"\{[^{}]*\}"
ROWS_PER_CALL = 1 << 14
"""Number of pairs of sketches that are compared at once."""


def no_sketches(n: int) -> Sketches:
    """Return sketches of n programs without instructions."""
    return np.full((n, KINDS * BUCKETS), EMPTY)


def sketches(instructions: pa.Table, owner: Ints, n: int) -> Sketches:
    """Return the sketches of n programs. `owner` is the program of each row of `instructions` (its COLUMNS)."""
    opcode = _hashes(instructions["opcode"], lambda texts: texts)
    scope = _hashes(instructions["op_name"], lambda texts: shortened_paths(plain_names(texts), None, True))
    shape = _hashes(instructions["shape"], lambda texts: pc.replace_substring_regex(texts, LAYOUT, ""))
    out = no_sketches(n)
    features = row_hash(opcode, scope), row_hash(opcode, scope, shape), row_hash(opcode, shape)
    for i, feature in enumerate(features):
        bits = feature.view(np.uint64)
        bucket = (bits >> np.uint64(58)).astype(np.int64) + i * BUCKETS
        np.minimum.at(out.reshape(-1), owner * (KINDS * BUCKETS) + bucket, bits.astype(np.uint32))
    return out


class Similarity(NamedTuple):
    """How similar the programs of several pairs are."""

    score: npt.NDArray[np.float64]
    """Mean of the first two kinds, from 0 to 1; NaN if one of the programs has no instructions."""
    unscoped: npt.NDArray[np.float64]
    """The third kind: without scopes, as if everything had been renamed."""
    shared: Ints
    """Number of hashes that both programs have: little evidence if there are few."""


def similarity(a: Sketches, b: Sketches, rows_a: Ints, rows_b: Ints) -> Similarity:
    """Compare a[rows_a[i]] with b[rows_b[i]]."""
    n = len(rows_a)
    out = Similarity(np.empty(n), np.empty(n), np.empty(n, np.int64))
    for begin in range(0, n, ROWS_PER_CALL):
        chunk = slice(begin, begin + ROWS_PER_CALL)
        for array, part in zip(out, _similarity(a[rows_a[chunk]], b[rows_b[chunk]]), strict=True):
            array[chunk] = part
    return out


def _similarity(a: Sketches, b: Sketches) -> Similarity:
    in_a, in_b = a != EMPTY, b != EMPTY
    equal, either = _counts((a == b) & in_a), _counts(in_a | in_b)
    index = equal / np.maximum(either, 1)
    index[~(in_a.any(axis=1) & in_b.any(axis=1))] = np.nan
    return Similarity(index[:, :2].mean(axis=1), index[:, 2], equal.sum(axis=1))


def _counts(mask: npt.NDArray[np.bool_]) -> Ints:
    """Return the number of buckets of each kind, by row."""
    counts: Ints = mask.reshape(len(mask), KINDS, BUCKETS).sum(axis=2)
    return counts


def _hashes(column: pa.ChunkedArray, normalized: Callable[[pa.Array], pa.Array]) -> Ints:
    """Return the hash of each text after normalizing it, 0 for null."""
    codes, texts = encoded(column)
    return np.append(hash_texts(normalized(pc.cast(texts, pa.string()))), 0)[codes]
