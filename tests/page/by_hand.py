"""Programs made by hand for the page's script, as it decodes them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

NAMES = ("categoryNames", "indexNames", "kindNames", "layerNames", "opNames", "originNames", "phaseNames", "shapeNames",
         "sourceNames")  # fmt: skip
UNKNOWN = ("kind", "layer", "layerIndex", "opName", "origin", "originInstruction", "phase", "scope", "shape",
           "shapeIndex", "source", "unpadded")  # fmt: skip
OTHERS = ("aliases", "instructions", "phases", "schedule", "scopes", "uses", "usage")


def program(n: int, *, model: Json | None = None, allocations: Json | None = None, **columns: Any) -> Json:
    """Return a program as the page decodes it: n buffers of 10 bytes beside each other in one arena, at one step."""
    buffers: Json = {"length": n, "valueId": [*range(n)], "instruction": [*range(n)], "size": [10] * n}
    buffers |= {name: [] for name in NAMES} | {name: [-1] * n for name in UNKNOWN}
    buffers |= {name: [0] * n for name in ("allocation", "start", "end", "category", "iterations", "saving")}
    buffers |= {"offset": [10 * i for i in range(n)], "categoryNames": ["temp"]}
    arena: Json = {"allocation": [7], "space": [0], "size": [1000], "category": [0], "categoryNames": ["temp"],
                   "label": ["arena 7"]}  # fmt: skip
    spaces = [{"memory_space": "hbm", "page": 0, "first_step": 0, "plateaus": [], "in_device_memory": True}]
    others = {name: columns.pop(name) for name in OTHERS if name in columns}
    assert columns.keys() <= buffers.keys()
    return {
        "model": {"steps": 1, "spaces": spaces, **(model or {})},
        "allocations": arena | (allocations or {}),
        "buffers": buffers | columns,
        "instructions": {"name": [f"i{i}" for i in range(n)], "opcode": [-1] * n, "opcodeNames": []},
        "scopes": {"name": [""], "parent": [-1]},
        **others,
    }
