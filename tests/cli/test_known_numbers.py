"""`xlamem diff --exit-code` has one rule for numbers that are not known: two dumps, directories, labels, and points."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import every
from variants import TEXTS, converted, inner, replaced, written

from xlamem import cli

OTHER_TOTAL = replaced(TEXTS, "buffer-assignment-values", "used: 262447 (256.3KiB)", "used: 999999 (976.6KiB)")
NO_TOTAL = {role: "\n".join(line for line in text.split("\n") if "Total bytes used" not in line)
            for role, text in TEXTS.items()}  # fmt: skip
OTHER_FIELD = replaced(TEXTS, "buffer-assignment", "allocation 1: size 65536", "allocation 1: size 65536, wobbly")
NO_RANGES = {role: text for role, text in TEXTS.items() if role != "live-range"}
RULES = [
    (TEXTS, 0, ""),
    (OTHER_TOTAL, 3, "the allocations do not add up to a printed total"),
    (NO_TOTAL, 3, "the dump prints no total"),
    (OTHER_FIELD, 3, "an allocation has a field that this version does not know"),
    (NO_RANGES, 3, "its used values or live ranges are missing"),
]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "200")

    def call(*args: str | Path) -> tuple[int, str]:
        return cli.main(["diff", *map(str, args)]), capsys.readouterr().out

    return call


@pytest.mark.parametrize(("texts", "code", "reason"), RULES, ids=["known", "total", "no-total", "field", "ranges"])
@pytest.mark.parametrize("before", every(2, ["known", "the same"]))
def test_one_rule(run: Any, tmp_path: Path, texts: Mapping[str, str], code: int, reason: str, before: str) -> None:
    """Also of a dump that is the same on both sides, or that has the same fingerprints."""
    was = TEXTS if before == "known" else texts
    other = ("jit_g", inner(1))
    for name, programs in (("a1", [("jit_f", was)]), ("b1", [("jit_f", texts)]),
                           ("a", [("jit_f", was), other]), ("b", [("jit_f", texts), other])):  # fmt: skip
        written(tmp_path / name, programs)
    converted(tmp_path / "to", {"1": [("jit_f", was), other], "2": [("jit_f", texts), other]})
    dataset = tmp_path / "to" / "dataset"
    sides = {
        "dumps": (tmp_path / "a1", tmp_path / "b1"),
        "directories": (tmp_path / "a", tmp_path / "b"),
        "labels": (dataset, "--label", "commit=1", "--label", "commit=2"),
        "points": (dataset, "--over", "commit"),
    }
    screens = {name: run(*args, "--exit-code") for name, args in sides.items()}
    assert {name: found for name, (found, _) in screens.items()} == dict.fromkeys(sides, code)
    for name, args in sides.items():
        assert json.loads(run(*args, "--json")[1])["is_known"] == (code == 0)
        for out in (screens[name][1], run(*args, "--markdown")[1]):
            assert ("known" in out) == bool(code)
            assert name == "dumps" or reason in out
    summary = screens["points"][1].splitlines()[0]
    unknown = ", 1 not known at some points" if code else ""
    assert summary.endswith(f": 0 changed{unknown}, 2 without a {'known ' if code else ''}change.")
    first = screens["directories"][1].splitlines()[0]
    assert first == ("2 programs: 0 changed, 1 unknown, 1 the same." if code else "Nothing changed: 2 programs.")
