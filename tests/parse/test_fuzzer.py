"""The fuzzer itself: it repeats what it did, notices what it looks for, and makes inputs smaller."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, texts
from fuzz import check, computations, outputs
from fuzz.computations import CheckError
from fuzz.run import execution, seeds
from fuzz.shrink import shrunk

import xlamem

CLEAN = texts(xlamem.find(DUMPS / "cpu-jaxlib-0.5.3-tuple3")[0])


def run(place: Path | None = None) -> None:
    check.check(random.Random(0), CLEAN, CLEAN, place, slowly=True)


def test_executions_are_functions_of_seed_and_number() -> None:
    inputs = seeds([])
    made = [execution("a", i, inputs).members for i in range(20)]
    assert made == [execution("a", i, inputs).members for i in range(20)]
    assert made != [execution("b", i, inputs).members for i in range(20)]
    assert sum(members in inputs for members in made) < 5


def lost(give: Callable[..., Any]) -> Callable[..., Any]:
    """Without the last row of the table that is returned."""
    return lambda *a: give(*a)[:-1]


def test_a_clean_dump_passes(tmp_path: Path) -> None:
    run(tmp_path)


@pytest.mark.parametrize("name", ["streamed", "joined"])
def test_a_row_that_one_way_of_reading_loses(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    give = getattr(check, name)
    monkeypatch.setattr(check, name, lambda *a: {n: t.slice(1) for n, t in give(*a).items()})
    with pytest.raises(CheckError, match="differs"):
        run()


def test_a_slow_reader_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "differences", lambda *_: ["values: row 3"])
    with pytest.raises(CheckError, match="slow reader"):
        run()


@pytest.mark.parametrize("name", ["live_set", "bills"])
def test_sums_that_lack_a_row(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(computations.REGISTRY, name, lost(computations.REGISTRY[name]))
    with pytest.raises(CheckError, match=r"adds? up"):
        run()


def test_an_error_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(computations.REGISTRY, "idle", lambda _: [][0])
    with pytest.raises(IndexError):
        run()


def test_a_native_invariant(monkeypatch: pytest.MonkeyPatch) -> None:
    def violated(_: Any) -> None:
        raise xlamem.NativeError("too few records")

    monkeypatch.setitem(computations.REGISTRY, "idle", violated)
    with pytest.raises(CheckError, match="too few records"):
        run()


def test_a_command_that_ends_with_a_bug(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outputs.cli, "main", lambda _: 70)
    with pytest.raises(CheckError, match="ended with 70"):
        run(tmp_path)


def test_a_difference_that_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any) -> None:
        raise AssertionError("accounts")

    monkeypatch.setattr(check, "DIFFERENCES", 1)
    monkeypatch.setattr(outputs, "assert_adds_up", wrong)
    with pytest.raises(AssertionError, match="accounts"):
        run()


def test_shrinking() -> None:
    members = {"hlo": b"a\n" * 50, "buffer-assignment": b"x\n" * 30 + b"keep this one\n" + b"y\n" * 30}
    found = shrunk(members, lambda m: b"this" in m.get("buffer-assignment", b""))
    assert found == {"buffer-assignment": b"this"}
