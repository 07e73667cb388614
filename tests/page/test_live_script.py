"""The page computes live sets as `xlamem.live_set` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from node import bundled, run

import xlamem
from xlamem import _sweep
from xlamem.page.writing import report
from xlamem.parse.arrays import ints

DUMPS = Path(__file__).parent.parent / "dumps"
NAMES = (
    "cpu-jaxlib-0.12.0-scan_while",
    "cpu-tf-2.9.3-mlp",
    "gpu-jax-0.4.35-collectives8",
    "gpu-jax-0.8.2-host_weights_scan",
    "tpu-libtpu-0.0.50.1-tpu7x-donate_adam",
    "tpu-libtpu-0.0.50.1-v5e-host_offload",
    "tpu-libtpu-0.0.50.1-v5e-mlp_grad",
)
N_STEPS = 12
"""Steps of each dump that are compared."""
PROGRAM = """
import { decode } from "./data/decode.js";
import { liveSet } from "./data/live.js";
import { bufferName } from "./data/names.js";

const { programs, steps, forged } = given;
const data = forged ?? (await decode(programs[0]));
const sets = [];
for (let space = 0; space < data.model.spaces.length; space++) {
  for (const step of steps) {
    const { length, nLive, buffer, bytes, exclusive, total } = liveSet(data, space, step);
    const name = (row) => (forged ? "" : row < 0 ? null : bufferName(data, row));
    const rows = Array.from({ length }, (_, i) => {
      const [role, id] = i < nLive ? ["value", data.buffers.valueId[buffer[i]]] : ["reserved", null];
      return { role, id, name: name(buffer[i]), bytes: bytes[i], exclusive: exclusive[i] };
    });
    sets.push({ space, step, rows, total, usage: data.usage[space]?.[step] });
  }
}
console.log(JSON.stringify(sets));
"""

Row = dict[str, Any]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Computes live sets by space and step."""
    return bundled(PROGRAM, tmp_path_factory.mktemp("script"))


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def expected(dump: xlamem.Dump, space: Row, step: int) -> list[Row]:
    table = xlamem.live_set(dump, step)
    table = table.filter(pc.and_(pc.equal(table["color"], space["color"]), pc.equal(table["page"], space["page"])))
    return [
        {
            "role": row["role"],
            "id": row["value_id"],
            "name": row["instruction"] and row["instruction"] + (row["shape_index"] or "").replace("{}", ""),
            "bytes": row["bytes"],
            "exclusive": row["exclusive"],
        }
        for row in table.to_pylist()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_live_sets_are_those_of_python(script: Path, name: str) -> None:
    dump = xlamem.read(DUMPS / name)
    model = report(dump).as_json()
    spaces = model["programs"][0]["spaces"]
    steps = sorted({int(step) for step in np.linspace(0, len(dump.schedule), N_STEPS)})
    sets = run(script, **model, steps=steps)
    assert len(sets) == len(spaces) * len(steps)
    for found in sets:
        assert in_order(found["rows"]) == in_order(expected(dump, spaces[found["space"]], found["step"]))
        assert found["total"] == found["usage"] == sum(row["bytes"] for row in found["rows"])


def forged(rng: np.random.Generator, n: int, largest: int) -> Row:
    """Return a program as the page decodes it, whose values are all live and overlap in two arenas."""
    size = rng.integers(0, largest, n)
    offset = rng.integers(0, 1000, n)
    columns = {
        "valueId": rng.permutation(n),
        "allocation": rng.integers(0, 2, n),
        "offset": offset,
        "size": np.minimum(size, 1000 - offset),
        "start": np.zeros(n, int),
        "end": np.ones(n, int),
        "saving": np.zeros(n, int),
    }
    return {
        "model": {"steps": 2, "spaces": [{}]},
        "usage": [],
        "allocations": {"space": [0, 0], "size": [1000, 1000], "category": [0, 0], "categoryNames": ["temp"]},
        "buffers": {"length": n, **{name: column.tolist() for name, column in columns.items()}},
    }


@pytest.mark.parametrize(("n", "largest"), [(1, 10), (10, 100), (300, 5), (300, 50), (1000, 1000)])
def test_shared_bytes_are_charged_as_in_python(script: Path, n: int, largest: int) -> None:
    program = forged(np.random.default_rng(n * largest), n, largest)
    (found,) = run(script, forged=program, steps=[1])
    columns = [np.array(program["buffers"][name]) for name in ("allocation", "valueId", "offset", "size")]
    order = np.lexsort((columns[1], columns[0]))
    owner, value_id, offset, size = (column[order].astype(np.int64) for column in columns)
    charged, exclusive = map(ints, _sweep.charge(owner, value_id, offset, size))
    rows = {row["id"]: (row["bytes"], row["exclusive"]) for row in found["rows"]}
    assert rows == {int(i): (int(b), int(e)) for i, b, e in zip(value_id, charged, exclusive, strict=True)}
