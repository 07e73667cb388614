"""JSON of tables and nested data, against the standard library."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from xlamem.cli.json_text import json_text

TEXTS = ("", 'a "quote"', "line\nbreak", "naïve \u2028 100 % %s")
SCALARS = (None, True, False, 0, -(2**40), 1.5, float("inf"), *TEXTS, {}, [])


def nested(choice: random.Random, depth: int) -> Any:
    if not depth or choice.random() < 0.3:
        return choice.choice(SCALARS)
    items = [nested(choice, depth - 1) for _ in range(choice.randrange(4))]
    return items if choice.random() < 0.5 else {f"key {i}\n%": item for i, item in enumerate(items)}


@pytest.mark.parametrize("seed", range(200))
def test_like_the_standard_library(seed: int) -> None:
    data = nested(random.Random(seed), 4)
    assert json_text(data) == json.dumps(data, indent=2)


@pytest.mark.parametrize("n", [0, 1, 7])
def test_a_table_is_the_list_of_its_rows(n: int) -> None:
    texts = pa.array([*TEXTS, None, "x", "y"][:n], pa.string())
    table = pa.table(
        {
            "int %": pa.array([1, None, -3, 2**62, 0, None, 5][:n], pa.int64()),
            "all": pa.array(range(n), pa.int32()),
            "flag": pa.array([True, None, False, True, True, None, False][:n], pa.bool_()),
            "share": pa.array([0.1, None, 1e300, -0.0, 2.0, 3.5, 1 / 3][:n], pa.float64()),
            "text": texts,
            "name": texts.dictionary_encode(),
            "list": pa.array([[1], [], None, [2, 3], [], None, [4]][:n], pa.list_(pa.int64())),
        }
    )
    chunked = pa.concat_tables([table.slice(0, n // 2), table.slice(n // 2)])
    for data in (table, chunked):
        assert json_text({"rows": data}) == json.dumps({"rows": table.to_pylist()}, indent=2)


def test_a_table_without_columns() -> None:
    assert json_text(pa.table({})) == "[]"
