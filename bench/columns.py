"""The tables of a program of millions of values, as columns: the computations need no text.

A training step: values are made at the rate of one a step; two fifths of the first half are kept for the
second half, last in first out; the rest lives a few steps, in places used over and over again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from xlamem import schema
from xlamem.parse.arrow import numbers_of

PLACES = 64
"""Places that short-lived values share in turn: each lives for fewer steps."""
LARGEST = 1 << 22
PARAMETERS = 1000
SCOPES = 2000


class Columns:
    """The `Tables` of a dump, made of arrays."""

    platform = None

    def __init__(self, values: int, seed: int = 1):
        self.name = f"{values} values"
        self.schedule_length = values
        self._tables = _tables(values, np.random.default_rng(seed))
        self.forget()

    def forget(self) -> None:
        """As if just read: nothing is computed yet."""
        self.cache: dict[str, Any] = {}

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self._tables)

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables[name]

    def integers(self, name: str, *columns: str) -> list[Any]:
        return [numbers_of(self[name][column]) for column in columns]

    def count_rows(self, name: str) -> int:
        return self[name].num_rows


def _table(name: str, rows: int, **given: Any) -> pa.Table:
    """A table of the schema; columns that are not given are null (false for flags)."""
    arrays = []
    for field in schema.TABLES[name].arrow:
        column = given.get(field.name)
        if column is None:
            flag = pa.types.is_boolean(field.type)
            column = pa.repeat(pa.scalar(False), rows) if flag else pa.nulls(rows, field.type)
        arrays.append(column if isinstance(column, (pa.Array, pa.ChunkedArray)) else pa.array(column, field.type))
    return pa.table(arrays, schema=schema.TABLES[name].arrow)


def _names(codes: np.ndarray, texts: list[str] | pa.Array) -> pa.DictionaryArray:
    texts = pa.array(texts, pa.string()) if isinstance(texts, list) else texts
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), texts)


def _tables(n: int, rng: np.random.Generator) -> dict[str, pa.Table]:
    size = np.exp2(rng.uniform(9, 22, n)).astype(np.int64) // 512 * 512
    start = np.arange(n)
    kept = (start < n // 2) & (rng.random(n) < 0.4)
    end = np.where(kept, n - 1 - start, np.minimum(start + rng.integers(1, PLACES, n), n - 1))
    # Kept ones pile up above the shared places.
    bottom = PLACES * LARGEST
    above = np.cumsum(np.where(kept, size, 0))
    offset = np.where(kept, bottom + above - size, start % PLACES * LARGEST)
    own = np.arange(PARAMETERS)
    every = n + PARAMETERS
    names = pa.array([f"p.{i}" for i in range(PARAMETERS)] + [f"fusion.{i}" for i in range(n)], pa.string())
    index = np.arange(every)
    live = np.concatenate([np.zeros(PARAMETERS, np.int64), start]), np.concatenate([np.full(PARAMETERS, n - 1), end])
    sizes = np.concatenate([np.full(PARAMETERS, LARGEST), size])
    scopes = [f"jit(step)/transpose(jvp(layer_{i // 20}))/block_{i % 20}/dot_general" for i in range(SCOPES)]
    temp = np.arange(PARAMETERS + 1) == PARAMETERS
    return {
        "allocations": _table(
            "allocations",
            PARAMETERS + 1,
            allocation=np.arange(PARAMETERS + 1),
            size=np.append(np.full(PARAMETERS, LARGEST), bottom + int(above[-1])),
            color=np.zeros(PARAMETERS + 1, np.int64),
            memory_space=_names(np.zeros(PARAMETERS + 1), ["hbm"]),
            parameter_number=np.append(own, 0),
            is_parameter=~temp,
            is_temp=temp,
        ),
        "values": _table(
            "values",
            every,
            value_id=index,
            instruction=_names(index, names),
            is_phi=np.zeros(every, bool),
            allocation=np.append(own, np.full(n, PARAMETERS)),
            offset=np.append(np.zeros(PARAMETERS, np.int64), offset),
            size=sizes,
            shape=_names(index % 100, [f"f32[{i},128]" for i in range(100)]),
            element_type=_names(index % 1, ["f32"]),
            unpadded_size=sizes,
        ),
        "live_ranges": _table(
            "live_ranges", every, value_id=index, instruction=_names(index, names), start=live[0], end=live[1]
        ),
        "instructions": _table(
            "instructions",
            every,
            instruction=_names(index, names),
            opcode=_names((index >= PARAMETERS).astype(int), ["parameter", "fusion"]),
            op_name=_names(index * SCOPES // every, scopes),
            source_file=_names(index % 1, ["train.py"]),
            source_line=index % 900,
        ),
        "schedule": _table("schedule", n, time=start, instruction=_names(start + PARAMETERS, names)),
        "frames": _table("frames", 0),
        "positions": _table("positions", 0),
        "uses": _table("uses", 0),
    }
