"""Computations on forged programs and on small texts, compared with what they gave before.

Each kind of program that no shipped dump shows is here: releases, spaces, ranges and sizes of every sort. The results
are digests, so a difference says which computation of which program changed; the reference in `oracle` says which of
both is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pytest
from brute import hostile
from conftest import every, every_row
from forge import ERAS, forge
from render import render
from stored import TESTS, check, described, digest, outcome
from test_folding import random_rows
from test_stored_results import at_other_steps_and_spaces, questions, tables, views

import xlamem
from xlamem import compute
from xlamem.compute.devices import DEVICES

Results = Iterator[tuple[str, Any]]

DONATION, ADVICE = TESTS / "data" / "donation", TESTS / "data" / "advice"
RELEASES = [*zip(sorted(ERAS.keys() - {"E2", "E5"}), cycle(("cpu", "gpu", "tpu")))]  # these are other names
HOSTILE = [{}, {"beyond": 3}, {"arenas": 3, "values": 30, "steps": 40, "size": 400}]
"""Options of `brute.hostile`."""


def everything(dump: xlamem.Dump) -> Results:
    yield from tables(dump)
    yield from at_other_steps_and_spaces(dump)
    yield from views(dump)
    yield from questions(dump)
    yield "packings", outcome(compute.repack, dump, 0)
    for number, value in enumerate(dump.values["value_id"].to_pylist()[::8]):
        yield f"value {number}", outcome(compute.buffer, dump, value)


def digests(name: str, results: Results, *folders: Path) -> Results:
    for key, value in results:
        yield f"{name} {key}".strip(), digest(described(value, *folders, TESTS))


@pytest.mark.parametrize(("era", "platform"), every_row(2, RELEASES))
def test_of_releases(era: str, platform: Any, tmp_path: Path) -> None:
    forge(7, era=era, platform=platform, values=60, hostile=platform == "gpu").write(tmp_path)
    check(f"compute/forged-{era}-{platform}", digests("", everything(xlamem.read(tmp_path)), tmp_path))


@pytest.mark.parametrize("kind", every(2, range(len(HOSTILE))))
def test_of_layouts_that_no_compiler_makes(kind: int) -> None:
    found: list[tuple[str, Any]] = []
    for seed in range(6):
        text = render(hostile(seed, **HOSTILE[kind]))["buffer-assignment"]
        found += digests(str(seed), everything(xlamem.read(text)))
    check(f"compute/hostile-{kind}", found)


@pytest.mark.parametrize("folder", every(2, [ADVICE, DONATION]), ids=lambda folder: folder.name)
def test_of_recompiled_programs(folder: Path) -> None:
    found: list[tuple[str, Any]] = []
    for path in sorted(folder.glob("*/*")):
        if path.name != "base":
            found += digests(str(path.relative_to(folder)), [*tables(xlamem.read(path)), *questions(xlamem.read(path))])
    check(f"compute/{folder.name}", found)


# ---- without a dump


def test_of_devices() -> None:
    check("compute/devices", ((d.name, d) for d in DEVICES))


@pytest.mark.parametrize("by_category", [True, False])
def test_of_folded_trees(by_category: bool) -> None:
    found = []
    for seed in range(24):
        rows = random_rows(seed, 6 ** (seed % 4))
        for row in () if by_category else rows:
            del row["category"]
        root = compute.scope_tree(rows)
        found += [(f"{seed} in {n}", compute.fold_scopes(root, n)) for n in (0, 1, 3, 6, 7, 8, 14, 40)]
    check(f"compute/trees-{'by-category' if by_category else 'alone'}", digests("", iter(found)))


def test_of_out_of_memory_reports() -> None:
    draw = random.Random(0)
    found = []
    ends = (None, 0, 1, 25, 50, 99, 100, 101, 200)
    for number in range(600):
        report = {key: draw.choice(ends) for key in ("exceeded_bytes", "used_bytes", "capacity_bytes")}
        report["form"] = draw.choice(["usage", "other"])
        usage = [
            {"part": draw.choice(["program", "total"]), "label": draw.choice(["arguments", "x"])}
            | {key: draw.choice((None, 0, 4, 5, 6, 50, 99, 100, 101)) for key in ("bytes", "fragmentation_bytes")}
            for _ in range(draw.randrange(4))
        ]
        buffers = [_buffer(draw) for _ in range(draw.randrange(5))]
        found.append((str(number), compute.oom_causes(report, usage, buffers)))
    check("compute/oom", digests("report", iter(found)))


def test_the_repeated_shape_with_the_most_bytes() -> None:
    """Neither the most frequent one, nor a larger buffer that is alone."""
    report = {"form": "usage", "exceeded_bytes": None, "used_bytes": None, "capacity_bytes": None}
    rows = [("f32[9]", 10)] * 3 + [("f32[99]", 100)] * 2 + [("f32[999]", 150)]
    buffers = [{"shape": s, "size_bytes": n, "padding_bytes": 0, "expansion": None} for s, n in rows]
    assert compute.oom_causes(report, [], buffers).repeated == ("f32[99]", 2, 200)


def _buffer(draw: random.Random) -> dict[str, Any]:
    padding = draw.choice((None, 0, 1, 2, 50))
    return {
        "size_bytes": draw.choice((None, 0, 25, 75, 100, 101, 199)),
        "padding_bytes": padding,
        "expansion": draw.choice((1, 1.5, 2, 2.5)) if padding else draw.choice((None, 0, 1, 3)),
        "shape": draw.choice((None, "f32[8]", "f32[9]", "f32[10]")),
        "list": draw.choice(("failed allocation", "largest")),
    }


def test_of_capacities() -> None:
    """Every way to state what is available."""
    amounts = (None, 0, 1, 4000, "4000B", "3.9k", "1e3", "4 kB", -1, 1.5)
    options = product(amounts, (None, "v5e", "h100", "nothing"), (0, 1, "1KiB"), (1.0, 0.92, 0.5, 0.0, 1.01))
    found = ((repr(o), outcome(compute.available, *o)) for o in options)
    check("compute/available", digests("", found))
