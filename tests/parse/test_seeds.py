"""The five dumps that everything began with: their numbers, counted by hand."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from conftest import DUMPS

import xlamem
from xlamem import compute


class Seed(NamedTuple):
    """What one memory space of one seed holds; steps are (first, last)."""

    number: int
    color: int
    allocated: int
    thread_local: int
    peak: int
    plateau: tuple[int, int]
    plateaus: tuple[tuple[int, int], ...]
    live_peak: int
    live_step: int


SEEDS = (
    Seed(0, 0, 593_928, 0, 593_928, (3, 4), ((3, 4),), 593_920, 4),
    Seed(1, 0, 33_556, 12, 33_544, (0, 4), ((0, 4),), 33_544, 3),
    Seed(2, 0, 30_920, 24, 30_816, (17, 17), ((17, 17),), 30_788, 17),
    Seed(3, 0, 524_320, 0, 524_320, (0, 6), ((0, 6),), 524_320, 5),
    Seed(4, 0, 209_766_464, 1_536, 209_716_288, (12, 12), ((12, 12),), 209_716_256, 12),
    Seed(4, 1, 90_177_536, 0, 90_177_536, (7, 9), ((7, 9), (11, 11)), 90_177_536, 7),
    Seed(4, 2, 8, 0, 8, (6, 8), ((6, 8),), 8, 6),
)

PRINTED = {0: (5, 335_872), 1: (3, 33_544), 2: (18, 30_724), 3: (5, 524_320), 4: (11, 239_075_356)}
"""XLA's own moment and bytes, all spaces together."""


def read(number: int) -> xlamem.Dump:
    (path,) = (DUMPS / "seeds").glob(f"{number:03}_*.txt")
    return xlamem.read(path)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda s: f"{s.number:03}-{s.color}")
def test_space(seed: Seed) -> None:
    dump = read(seed.number)
    peak = compute.peak(dump)
    (row,) = (r for r in peak.spaces.to_pylist() if r["color"] == seed.color)
    assert row["page"] == 0
    assert (row["allocated"], row["allocated"] - row["reserved"]) == (seed.allocated, seed.thread_local)
    assert (row["peak"], (row["first_step"], row["last_step"])) == (seed.peak, seed.plateau)
    assert row["plateaus"] == len(seed.plateaus)
    assert (row["live_peak"], row["live_step"]) == (seed.live_peak, seed.live_step)
    top = [p for p in peak.plateaus.to_pylist() if p["color"] == seed.color and p["bytes"] == seed.peak]
    assert tuple((p["first_step"], p["last_step"]) for p in top) == seed.plateaus
    at_peak = compute.live_set(dump, space=seed.color).to_pylist()
    assert sum(r["bytes"] for r in at_peak) == seed.peak


@pytest.mark.parametrize("number", PRINTED)
def test_printed(number: int) -> None:
    dump = read(number)
    module = dump.modules.to_pylist()[0]
    assert (module["printed_peak_time"], module["printed_peak_bytes"]) == PRINTED[number]
    assert compute.xla_rule(dump) == PRINTED[number]


@pytest.mark.parametrize("number", PRINTED)
def test_spaces(number: int) -> None:
    """No space is missing and none is invented."""
    spaces = compute.peak(read(number)).spaces.to_pylist()
    assert [(s["color"], s["page"]) for s in spaces] == [(s.color, 0) for s in SEEDS if s.number == number]


def test_padding_of_a_space_counts_shared_bytes_once() -> None:
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    peaks = {r["memory_space"]: r["peak"] for r in compute.peak(dump).spaces.to_pylist()}
    rows = compute.live_set(dump).to_pylist()
    for space in compute.space_padding(dump).to_pylist():
        mine = [r for r in rows if r["memory_space"] == space["memory_space"]]
        assert space["peak"] == peaks[space["memory_space"]] == sum(r["bytes"] for r in mine)
        known = [r for r in mine if r["unpadded_size"] is not None]
        assert space["padding"] == sum(max(0, min(r["bytes"], r["size"] - r["unpadded_size"])) for r in known)
        assert space["unknown"] == sum(r["bytes"] for r in mine if r["unpadded_size"] is None)
