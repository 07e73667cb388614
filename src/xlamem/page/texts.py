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
    used = in_order([codes], len(dictionary))
    return take(_ranks(used, len(dictionary)), codes), dictionary.take(pa.array(used)).cast(pa.string())


def joined(columns: list[Encoded], others: tuple[Encoded, ...] = ()) -> tuple[list[Ints], pa.Array]:
    """Return columns with one dictionary for all, whose texts are in the order of their first rows.

    `others` are coded too, but texts that only they have are left out: their code is -1.
    """
    codes, dictionary = [], pa.array([], pa.string())
    for column, names in [*columns, *others]:
        matched = match_dictionaries(names := names.cast(pa.string()), dictionary)
        missing = np.flatnonzero(matched < 0)
        matched[missing] = len(dictionary) + np.arange(len(missing))
        dictionary = pa.concat_arrays([dictionary, names.take(pa.array(missing))]) if len(missing) else dictionary
        codes.append(take(matched, column))
    used = in_order(codes[: len(columns)], len(dictionary))
    ranks = _ranks(used, len(dictionary))
    return [take(ranks, c) for c in codes], dictionary.take(pa.array(used))


def in_order(columns: list[Ints], n: int) -> Ints:
    """Return those of n codes that occur, in the order of their first rows in the first column that has them."""
    found, is_new = [np.empty(0, np.int64)], np.ones(n + 1, bool)
    is_new[-1] = False
    for codes in columns:
        new = codes[is_new[codes]]
        first = np.full(n, len(new), np.int64)
        first[new[::-1]] = np.arange(len(new))[::-1]
        used = np.flatnonzero(first < len(new))
        found.append(used[np.argsort(first[used], kind="stable")])
        is_new[new] = False
    return np.concatenate(found)


def numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in the order of their first rows, and the number of each row's key among them."""
    codes, distinct = encoded(pa.array(keys))
    return distinct.to_numpy(), codes


def _ranks(used: Ints, n: int) -> Ints:
    ranks = np.full(n, -1, np.int64)
    ranks[used] = np.arange(len(used))
    return ranks
