"""Number texts in the order in which columns use them, and keep only those that are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ..compute.columns import Ints, encoded, match_dictionaries, take

Encoded = tuple[Ints, pa.Array]
"""Codes, -1 for none, and the texts that they number."""


def compacted(column: Any) -> Encoded:
    """Return a text column of Arrow as codes and texts in the order of their first rows, without unused texts."""
    codes, dictionary = encoded(column)
    used = in_order(codes, len(dictionary))
    return take(_ranks(used, len(dictionary)), codes), dictionary.take(pa.array(used)).cast(pa.string())


def joined(columns: list[Encoded]) -> tuple[list[Ints], pa.Array]:
    """Return columns with one dictionary for all, whose texts are in the order of their first rows."""
    codes, dictionary = [], pa.array([], pa.string())
    for column, names in columns:
        matched = match_dictionaries(names := names.cast(pa.string()), dictionary)
        missing = np.flatnonzero(matched < 0)
        matched[missing] = len(dictionary) + np.arange(len(missing))
        dictionary = pa.concat_arrays([dictionary, names.take(pa.array(missing))])
        codes.append(take(matched, column))
    used = in_order(np.concatenate([np.empty(0, np.int64), *codes]), len(dictionary))
    ranks = _ranks(used, len(dictionary))
    return [take(ranks, c) for c in codes], dictionary.take(pa.array(used))


def in_order(codes: Ints, n: int) -> Ints:
    """Return those of n codes that occur, in the order of their first rows."""
    first = np.full(n + 1, len(codes), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    used = np.flatnonzero(first[:n] < len(codes))
    return used[np.argsort(first[used], kind="stable")]


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in the order of their first rows, and the number of each row's key among them."""
    codes, distinct = encoded(pa.array(keys))
    return distinct.to_numpy(), codes


def _ranks(used: Ints, n: int) -> Ints:
    ranks = np.full(n, -1, np.int64)
    ranks[used] = np.arange(len(used))
    return ranks
