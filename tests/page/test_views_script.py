"""The page's script sorts, draws rectangles and adds up scopes as NumPy and `xlamem.attribution` do."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node import bundled, run

import xlamem
from xlamem.compute.charges import FUNCTION, live_set_of
from xlamem.compute.grouping import folded_scopes
from xlamem.compute.program import program
from xlamem.compute.tree import ScopeNode, scope_tree
from xlamem.page.writing import report

DUMPS = Path(__file__).parent.parent / "dumps"

SORTING = """
import { orderOf, ranksOf } from "./data/sorting.js";
console.log(JSON.stringify({ order: Array.from(orderOf(given.keys)), ranks: Array.from(ranksOf(given.texts)) }));
"""
RASTER = """
import { rasterise, rectangles } from "./map/raster.js";
const { start, end, bottom, top } = given.columns;
const steps = [start, end].map((column) => Int32Array.from(column));
const addresses = [bottom, top].map((column) => Float64Array.from(column));
const shapes = rectangles(...steps, ...addresses);
const pixels = given.views.map((view) => {
  const pixels = new Int32Array(view.width * view.height);
  const roomy = rasterise(shapes, view, pixels, { width: 8, height: 4 });
  return { pixels: Array.from(pixels), roomy };
});
console.log(JSON.stringify(pixels));
"""
SCOPES = """
import { decode } from "./data/decode.js";
import { icicle } from "./buffers/icicle.js";
import { matching } from "./data/matching.js";
import { liveSet } from "./data/live.js";
import { rollUp } from "./data/rollup.js";
const data = await decode(given.programs[0]);
const rollups = given.steps.map(([space, step]) => {
  const { bytes, byPhase, nPhases } = rollUp(data, space, step);
  const live = liveSet(data, space, step);
  const scopes = Array.from(bytes, (n, row) => {
    const names = [];
    for (let i = row; i > 0; i = data.scopes.parent[i]) names.unshift(data.scopes.name[i]);
    const mask = matching(data, "", row);
    const selected = live.bytes.reduce((sum, b, i) => sum + (mask === null || mask[live.buffer[i]] ? b : 0), 0);
    const phases = byPhase.slice(row * nPhases, (row + 1) * nPhases).reduce((a, b) => a + b, 0);
    return { names, bytes: n, selected, phases };
  });
  return { scopes, blocks: icicle(data, rollUp(data, space, step), 0, given.width) };
});
console.log(JSON.stringify(rollups));
"""


@pytest.mark.parametrize(("n", "largest"), [(0, 1), (1, 1), (100, 10), (5000, 3), (5000, 2**17), (9000, 2**52)])
def test_rows_are_sorted_as_by_numpy(tmp_path: Path, n: int, largest: int) -> None:
    keys = np.random.default_rng(n).integers(-largest, largest, n)
    texts = [f"{key % 997}" for key in keys.tolist()]
    found = run(bundled(SORTING, tmp_path), keys=keys.tolist(), texts=texts)
    assert found["order"] == np.argsort(keys, kind="stable").tolist()
    ordered = sorted(texts)
    first = {text: i for i, text in reversed(list(enumerate(ordered)))}
    assert found["ranks"] == [first[text] for text in texts]


def forged_rectangles(n: int) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n)
    start = np.sort(rng.integers(0, 1000, n))
    bottom = rng.integers(0, 5000, n)
    return {
        "start": start,
        "end": np.minimum(999, start + rng.integers(0, 2 ** rng.integers(0, 10, n))),
        "bottom": bottom,
        "top": bottom + rng.integers(1, 2 ** rng.integers(1, 11, n)),
    }


def drawn(columns: dict[str, np.ndarray[Any, Any]], view: dict[str, float]) -> np.ndarray[Any, Any]:
    """Return the last rectangle of each pixel, + 1: it covers the centre of the row and touches the column."""
    width, height = int(view["width"]), int(view["height"])
    step = (view["right"] - view["left"]) / width
    address = view["top"] - (np.arange(height) + 0.5) * (view["top"] - view["bottom"]) / height
    left = view["left"] + np.arange(width) * step
    pixels = np.zeros((height, width), int)
    for i in range(len(columns["start"])):
        rows = (columns["bottom"][i] < address) & (address <= columns["top"][i])
        touched = (columns["start"][i] < left + step) & (columns["end"][i] + 1 > left)
        pixels[np.ix_(rows, touched)] = i + 1
    return pixels


def test_rectangles_are_drawn_as_by_numpy(tmp_path: Path) -> None:
    columns = forged_rectangles(9000)
    views: list[dict[str, float]] = [
        {"width": 128, "height": 64, "left": 0, "right": 1000, "bottom": 0, "top": 8192},
        {"width": 125, "height": 64, "left": 250, "right": 500, "bottom": 0, "top": 1024},
        {"width": 100, "height": 50, "left": 900, "right": 925, "bottom": 4000.25, "top": 4100.25},
    ]
    lists = {name: column.tolist() for name, column in columns.items()}
    found = run(bundled(RASTER, tmp_path), columns=lists, views=views)
    for view, one in zip(views, found, strict=True):
        expected = drawn(columns, view)
        assert (np.abs(one["pixels"]).reshape(expected.shape) == expected).all()
        assert expected.any()


def test_large_rectangles_have_edges_and_room_for_a_name(tmp_path: Path) -> None:
    columns = {"start": [0, 50, 90], "end": [49, 89, 99], "bottom": [0, 0, 0], "top": [100, 2, 100]}
    view = {"width": 20, "height": 20, "left": 0, "right": 100, "bottom": 0, "top": 100}
    (found,) = run(bundled(RASTER, tmp_path), columns=columns, views=[view])
    pixels = np.array(found["pixels"]).reshape(20, 20)
    assert found["roomy"] == [0]
    assert (pixels[0, :10] == -1).all()
    assert (pixels[:, 0] == -1).all()
    assert (pixels[1:, 1:10] == 1).all()
    assert (pixels[:19, 10:18] == 0).all()
    assert (pixels[:, 18:] == 3).all()


def bytes_by_path(node: ScopeNode, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    found = {path: node.bytes}
    for name, child in node.children.items():
        found |= bytes_by_path(child, (*path, name))
    return found


@pytest.mark.parametrize(
    ("place", "by_function"),
    [("dumps/cpu-jaxlib-0.9.1-mlp_grad", False), ("dumps/gpu-jax-0.10.2-attn_cudnn", False),
     ("dumps/tpu-libtpu-0.0.50.1-tpu7x-donate_adam", False), ("data/advice/tpu-calls/base", True)],
)  # fmt: skip
def test_scopes_add_up_as_in_python(tmp_path: Path, place: str, by_function: bool) -> None:
    dump = xlamem.read(DUMPS.parent / place)
    model = report(dump).as_json()
    assert model["programs"][0]["scopes"]["functions"] == by_function
    spaces = model["programs"][0]["spaces"]
    steps = [(space, step) for space in range(len(spaces)) for step in (0, len(dump.schedule) // 2, len(dump.schedule))]
    found = run(bundled(SCOPES, tmp_path), **model, steps=steps, width=600)
    for (space, step), one in zip(steps, found, strict=True):
        color = spaces[space]["color"]
        members = live_set_of(program(dump), step, color, ["category", "op_name", "opcode", "bytes", FUNCTION])
        sums = [row for row in folded_scopes(members, functions=by_function) if row.pop("category")]
        expected = {path: n for path, n in bytes_by_path(scope_tree(sums)).items() if n}
        scopes = one["scopes"]
        assert {tuple(s["names"]): s["bytes"] for s in scopes if s["bytes"]} == expected
        assert all(s["bytes"] == s["selected"] == s["phases"] for s in scopes)
        if expected:
            assert_covers(one["blocks"], expected[()])


def assert_covers(blocks: list[dict[str, Any]], total: int) -> None:
    """Blocks of one row do not overlap, and lie within the picture."""
    assert blocks[0]["bytes"] == total
    assert blocks[0]["width"] == pytest.approx(600)
    for row in range(max(block["row"] for block in blocks) + 1):
        inside = sorted((b["left"], b["left"] + b["width"]) for b in blocks if b["row"] == row)
        assert all(a[1] <= b[0] + 1e-6 for a, b in pairwise(inside))
        assert inside[-1][1] <= 600 + 1e-6
