"""Compares the difference of two programs with the numbers of each alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import xlamem
from xlamem import schema
from xlamem.compare.difference import Diff


def in_use_at(levels: list[dict[str, Any]], step: int | None, spaces: set[str], *, pages: bool) -> int:
    """Return what is in use in these memory spaces at a step, with or without `pages` other than the first."""
    rows = [row for row in levels if row["time"] == (step or 0)]
    return sum(row["occupied"] for row in rows if row["memory_space"] in spaces and (pages or not row["page"]))


def device_spaces(dump: xlamem.Dump) -> set[str]:
    allocations = dump.allocations.select(["memory_space", "color"]).to_pylist()
    return {a["memory_space"] for a in allocations if schema.in_device_memory(dump.platform, a["color"])}


def assert_adds_up(d: Diff, a: xlamem.Dump, b: xlamem.Dump) -> None:
    """Check the sums of every account, and the bytes in use against those of each dump alone."""
    for name in ("accounts", "bills", "buffers", "edits", "matches"):
        getattr(d, name).validate(full=True)
    change, billed = Counter[str](), Counter[str]()
    for row in d.buffers.select(["account", "change", "cause", "bytes_a", "bytes_b"]).to_pylist():
        assert row["cause"] in schema.CAUSES
        assert row["change"] == row["bytes_b"] - row["bytes_a"] != 0
        change[row["account"]] += row["change"]
    for row in d.bills.to_pylist():
        billed[row["account"]] += row["change"]
    timed = all(dump.live_ranges.num_rows for dump in (a, b))
    levels = {side: xlamem.occupancy(dump).to_pylist() for side, dump in (("a", a), ("b", b)) if timed}
    for row in d.accounts.to_pylist():
        name = row["account"]
        assert change[name] == row["in_use_b"] - row["in_use_a"]
        assert change[name] + row["moved"] == row["peak_b"] - row["peak_a"]
        assert billed[name] == row["reserved_b"] - row["reserved_a"]
        for side, dump in (("a", a), ("b", b)):
            spaces = device_spaces(dump) if name == "device_total" else {name}
            if timed and " page " not in name:
                used = in_use_at(levels[side], row[f"step_{side}"], spaces, pages=name == "device_total")
                assert row[f"in_use_{side}"] == used
