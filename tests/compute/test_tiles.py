"""Dimensions that the tile of a layout spans."""

from __future__ import annotations

import pytest

from xlamem.compute.tiles import tiled_dimensions


@pytest.mark.parametrize(
    ("shape", "padded"),
    [
        ("f32[12,512,512,64]{3,0,2,1:T(8,128)}", [(0, 12, 16), (3, 64, 128)]),
        ("bf16[12,512,3]{0,2,1:T(4,128)(2,1)S(1)}", [(0, 12, 128), (2, 3, 4)]),
        ("s32[100]{0:T(1024)}", [(0, 100, 1024)]),
        ("f32[2,100]{1,0:T(1024)}", [(1, 100, 1024)]),
        ("f32[100]{0:T(8,128)}", [(0, 100, 128)]),
    ],
)
def test_what_a_tile_spans(shape: str, padded: list[tuple[int, int, int]]) -> None:
    assert [(t.dimension, t.size, t.padded) for t in tiled_dimensions(shape)] == padded


@pytest.mark.parametrize(
    "shape",
    [
        "", "f32[]", "f32[]{:T(128)}", "f32[8,4]", "f32[8,4]{1,0}", "f32[8,4]{1,0:T(0,128)}", "f32[8,4]{1:T(8,128)}",
        "f32[8,4]{1,9:T(8,128)}", "f32[8]{0:T(*,128)}", "(f32[8]{0:T(128)})",
    ],
)  # fmt: skip
def test_layouts_without_a_tile(shape: str) -> None:
    assert tiled_dimensions(shape) == []
