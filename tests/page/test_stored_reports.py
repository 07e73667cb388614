"""Reports and pictures of real dumps, compared with what they were before."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import DUMPS, every, label
from pairs import Pair
from pairs import stored as pairs
from stored import check

import xlamem
from xlamem.input.find import Source

OF_PAIRS = ("cpu-layer-added-sgd", "v5e-remat-removed-scan", "v5e-type-changed-scan", "h100-upgraded")


def shipped() -> list[Source]:
    return [s for s in xlamem.find(DUMPS) if s.bytes_on_disk()]


@pytest.mark.parametrize("source", every(2, shipped()), ids=label)
def test_programs(source: Source, tmp_path: Path) -> None:
    report = xlamem.report(xlamem.read(source), device="v5e")
    found = [*report.as_json()["programs"][0].items()]
    found.append(("svg", report.save(tmp_path / "report.svg").read_text()))
    check(f"page/{label(source).replace('/', '-')}", found)


@pytest.mark.parametrize("pair", [p for p in pairs() if p.name in OF_PAIRS], ids=lambda pair: pair.name)
def test_comparisons(pair: Pair, tmp_path: Path) -> None:
    a, b = pair.unpack(tmp_path)
    report = xlamem.report(a, b)
    check(f"page/{pair.name}", [*report.as_json()["difference"].items()], tmp_path)


def test_a_directory() -> None:
    found = xlamem.report(DUMPS, device="v5e").as_json()
    check("page/directory", [*found["directory"].items()])
