"""Columns of integers and texts as JSON: what is encoded is decoded again."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import xlamem
from xlamem.compute.columns import encoded
from xlamem.page.columns import (
    LIMIT,
    SAMPLE,
    Encoder,
    _samples,
    decoded_ints,
    decoded_texts,
    encoded_ints,
    encoded_texts,
)
from xlamem.page.model import size_as_json
from xlamem.page.texts import joined

EXTREME = [
    [],
    [0],
    [-1],
    [7] * 1000,
    [LIMIT - 1, 1 - LIMIT] * 50,
    [1 - LIMIT, 0, LIMIT - 1],
    [-(1 << k) for k in range(53)],
    [(1 << k) - 1 for k in range(54)],
    list(range(100_000)),
    [LIMIT - 1 - i for i in range(1000)],
]


@pytest.mark.parametrize("values", EXTREME, ids=str)
def test_extreme_integers(values: list[int]) -> None:
    column = encoded_ints(np.array(values, np.int64))
    assert decoded_ints(column).tolist() == values
    assert column["length"] == len(values)
    assert 1 <= column["width"] <= 7


@pytest.mark.parametrize("seed", range(200))
def test_random_integers(seed: int) -> None:
    rng = random.Random(seed)
    bound = 1 << rng.randrange(54)
    step = 1 << rng.randrange(20)
    values = [rng.randrange(-bound + 1, bound) for _ in range(rng.randrange(300))]
    if seed % 2:
        values = [max(-bound + 1, min(bound - 1, i * step + v % 5)) for i, v in enumerate(values)]
    column = json.loads(json.dumps(encoded_ints(np.array(values, np.int64))))
    assert decoded_ints(column).tolist() == values


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_other_types(dtype: type) -> None:
    values = np.array([0, 1, 127, 3], dtype)
    assert decoded_ints(encoded_ints(values)).tolist() == values.tolist()


@pytest.mark.parametrize("value", [LIMIT, -LIMIT, np.iinfo(np.int64).max, np.iinfo(np.int64).min])
def test_numbers_that_javascript_cannot_represent(value: int) -> None:
    with pytest.raises(xlamem.UsageError, match="2\\^53"):
        encoded_ints(np.array([0, value]))


def test_differences_are_encoded_where_they_are_smaller() -> None:
    rng = np.random.default_rng(1)
    ascending, noise = np.cumsum(rng.integers(0, 9, 200_000)), rng.integers(0, 200, 200_000)
    assert encoded_ints(ascending)["delta"]
    assert not encoded_ints(noise)["delta"]
    assert len(encoded_ints(ascending)["data"]) < 200_000


@pytest.mark.parametrize(("jump", "delta"), [(LIMIT - 1, True), (LIMIT, False)])
def test_differences_are_numbers_of_the_script(jump: int, delta: bool) -> None:
    """A script cannot hold larger ones, though a column would be smaller with them."""
    column = np.arange(10_000) - LIMIT // 2
    column[5000:] += jump - 1
    for values in (column, -column):
        assert encoded_ints(values)["delta"] is delta


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["a", "</script>", "\0\x1f\u2028\u2029\ud7ff\U0001f600", '"\\', "\u202e", "x" * 1_000_000],
        [f"fusion.{i}" for i in range(10_000)],
    ],
    ids=["empty", "one", "odd", "many"],
)
def test_texts(texts: list[str]) -> None:
    column = json.loads(json.dumps(encoded_texts(pa.array(texts, pa.string()))))
    assert decoded_texts(column) == texts
    assert column["length"] == len(texts)


def test_dictionaries_and_nulls() -> None:
    column = encoded_texts(pa.array(["a", None, "a"]).dictionary_encode())
    assert decoded_texts(column) == ["a", "", "a"]


def test_each_column_is_encoded_once() -> None:
    encoder, column = Encoder(), np.arange(10)
    assert encoder(column) is encoder(column)
    assert encoder.size(column) == pytest.approx(len(json.dumps(encoder(column), separators=(",", ":"))), abs=40)


def test_columns_that_are_no_longer_there_are_not_mistaken_for_others() -> None:
    """Another column may get the place in memory of one that was encoded."""
    encoder = Encoder()
    assert [decoded_ints(encoder(np.array([i]))).tolist() for i in range(50)] == [[i] for i in range(50)]


def test_columns_with_one_dictionary() -> None:
    """In the order of their first rows; texts that only other columns have are left out."""
    def column(*names: str | None) -> Any:
        return encoded(pa.chunked_array([pa.array(names, pa.string())]))

    (first, second, other), names = joined([column("b", None, "a", "b"), column("c", "a")], (column("x", "a", "y"),))
    assert names.to_pylist() == ["b", "a", "c"]
    assert [codes.tolist() for codes in (first, second, other)] == [[0, -1, 1, 0], [2, 1], [-1, 1, -1]]


@pytest.mark.parametrize(
    "value", [[], [7] * 1000, ["ab", None] * 500, {"a": 1, "bc": [True]}, {f"k{i}": i for i in range(1000)}]
)
def test_how_many_bytes_data_take_as_json(value: Any) -> None:
    assert abs(size_as_json(value, Encoder()) - len(json.dumps(value, separators=(",", ":")))) <= 2


def test_samples_of_a_column_end_with_it() -> None:
    """They are as long as each other, and at equal distances."""
    n = 5 * SAMPLE
    samples = _samples(np.arange(n))
    assert [(part[0], part[-1] + 1) for part in samples] == [
        (begin, begin + SAMPLE) for begin in (0, 4 * SAMPLE // 3, 8 * SAMPLE // 3, 4 * SAMPLE)
    ]
