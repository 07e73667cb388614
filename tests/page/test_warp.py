"""The common axis of two schedules: matching steps coincide, and every step of both sides has its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from node import bundled, run
from pairs import stored

from xlamem.compare.difference import diff
from xlamem.page.alignment import aligned_steps

WARP = """
import { Warp } from "./data/warp.js";
const warp = new Warp({ a: Int32Array.from(given.a), b: Int32Array.from(given.b) }, given.n);
const sides = Object.fromEntries(["a", "b"].map((side) => {
  const steps = Array.from({ length: given.n[side] + 1 }, (_, step) => step);
  const at = steps.map((step) => warp.coordinate(side, step));
  const back = steps.slice(0, -1).map((step) => warp.place(side, (at[step] + at[step + 1]) / 2).step);
  const pieces = [];
  warp.eachUnmatched(side, 0, warp.length, (from, to, gap) => pieces.push([from, to, gap]));
  return [side, { at, back, pieces }];
}));
console.log(JSON.stringify({ length: warp.length, ...sides }));
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundled(WARP, tmp_path_factory.mktemp("warp"))


def assert_is_an_axis(found: dict[str, Any], a: list[int], b: list[int], n: dict[str, int]) -> None:
    """Check that steps ascend, are found again, and match; and that pieces and matched steps fill the axis."""
    at = {side: np.array(found[side]["at"]) for side in "ab"}
    for side in "ab":
        assert (np.diff(at[side]) > 0).all()
        assert at[side][0] >= 0
        assert at[side][-1] <= found["length"] + 1e-6
        assert found[side]["back"] == list(range(n[side]))
        pieces = found[side]["pieces"]
        assert sum(to - begin for begin, to, _ in pieces) + len(a) == pytest.approx(found["length"])
        unmatched = set(range(n[side])) - set(a if side == "a" else b)
        shown = [any(begin <= at[side][s] < to for begin, to, gap in pieces if not gap) for s in sorted(unmatched)]
        assert all(shown)
    assert at["a"][a] == pytest.approx(at["b"][b])
    assert found["length"] >= max(n.values())


@pytest.mark.parametrize("seed", range(12))
def test_any_matching_gives_an_axis(program: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    n = {side: int(generator.integers(1, 60)) for side in "ab"}
    k = int(generator.integers(0, min(n.values()) + 1))
    a, b = (np.sort(generator.permutation(n[side])[:k]).tolist() for side in "ab")
    assert_is_an_axis(run(program, a=a, b=b, n=n), a, b, n)


@pytest.mark.parametrize("pair", stored()[::6], ids=lambda pair: pair.name)
def test_the_schedules_of_a_pair_have_an_axis(program: Path, pair: Any) -> None:
    m = diff(*pair.sides())._matching
    a, b = (steps.tolist() for steps in aligned_steps(m))
    n = {"a": m.a.steps, "b": m.b.steps}
    assert_is_an_axis(run(program, a=a, b=b, n=n), a, b, n)


def test_equal_schedules_are_not_stretched(program: Path) -> None:
    steps = list(range(20))
    found = run(program, a=steps, b=steps, n={"a": 20, "b": 20})
    assert found["length"] == 20
    assert found["a"]["pieces"] == []
    assert found["a"]["at"] == list(range(21))


def test_a_side_without_steps_has_a_gap(program: Path) -> None:
    found = run(program, a=[0, 1], b=[0, 5], n={"a": 2, "b": 6})
    assert found["length"] == 6
    assert found["a"]["pieces"] == [[1, 5, True]]
    assert found["b"]["pieces"] == [[1, 5, False]]
    assert found["b"]["at"] == list(range(7))
