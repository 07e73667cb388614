"""All computations on real dumps, compared with what they gave before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, every, label
from stored import check, outcome

import xlamem
from xlamem import compute
from xlamem.input.find import Source

DATA = DUMPS.parent / "data"
MORE = [*sorted((DATA / "advice").glob("*/base")), *sorted((DATA / "origins").glob("v5e-*.tar.gz"))]

Results = Iterator[tuple[str, Any]]


def shipped() -> list[Source]:
    return [s for s in xlamem.find(DUMPS) if s.bytes_on_disk()]


def tables(dump: xlamem.Dump) -> Results:
    for name, function in compute.REGISTRY.items():
        yield name, outcome(function, dump)


def at_other_steps_and_spaces(dump: xlamem.Dump) -> Results:
    length = dump.modules["schedule_length"][0].as_py() or 0
    for time in (0, length // 3, length):
        yield f"live_set at {time}", outcome(compute.live_set, dump, time)
    for space in sorted({(a["memory_space"], a["color"]) for a in dump.allocations.to_pylist()}, key=str):
        yield f"live_set of {space}", outcome(compute.live_set, dump, space=space[1] or 0)
        yield f"occupancy of {space}", outcome(compute.occupancy, dump, space=space[0], interval="half_open")
    for keys in compute.KEYS:
        yield f"attribution by {keys}", outcome(compute.attribution, dump, by=keys)
    yield "attribution by scope, folded", outcome(compute.attribution, dump, by="scope", depth=2, fold=True)
    yield "top plateaus", outcome(lambda: compute.peak(dump, k=2).plateaus)


def views(dump: xlamem.Dump) -> Results:
    """What people see of objects that are no tables."""
    yield "device_total", compute.device_total(dump)
    yield "xla_rule", outcome(compute.xla_rule, dump)
    yield "memory_analysis", outcome(compute.memory_analysis, dump)
    yield "inspect", outcome(compute.inspect, dump)
    rows = outcome(compute.live_set, dump)
    if isinstance(rows, str):
        return
    yield "peak", str(compute.peak(dump))
    yield "summary", compute.summarize(dump, limit=3)
    root = compute.scope_tree(compute.attribution(dump, by=["category", "scope"]).to_pylist())
    yield "tree", [(s.name, s.bytes) for s in compute.fold_scopes(root, 5)]
    yield "like buffers", compute.like_buffers(rows, 4)
    for value in rows["value_id"].drop_null().to_pylist()[:3]:
        yield f"buffer {value}", outcome(compute.buffer, dump, value)


def questions(dump: xlamem.Dump) -> Results:
    """Devices and budgets."""
    for device in ("v5e", "h100"):
        yield f"fits {device}", outcome(compute.fits, dump, device=device, resident="1GiB")
    total = compute.device_total(dump) or 0
    for capacity in (total // 2, total, total + 1):
        yield f"fits {capacity}", outcome(compute.fits, dump, capacity=capacity)
    for percent in (90, 99):
        yield f"plan for {percent} %", outcome(compute.plan_advice, dump, total * percent // 100)


@pytest.mark.parametrize("source", every(2, shipped()), ids=label)
def test_of_shipped_dumps(source: Source) -> None:
    dump = xlamem.read(source)
    found = [*tables(dump), *at_other_steps_and_spaces(dump), *views(dump), *questions(dump)]
    check(f"compute/{label(source).replace('/', '-')}", found)


@pytest.mark.parametrize("path", every(2, MORE), ids=lambda path: str(path.relative_to(DATA)))
def test_of_programs_with_layers(path: Path) -> None:
    dump = xlamem.read(path)
    name = str(path.relative_to(DATA)).replace("/", "-")
    check(f"compute/{name}", [*tables(dump), *views(dump), *questions(dump)])
