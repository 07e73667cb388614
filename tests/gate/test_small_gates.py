"""Rules of the gate on the smallest inputs that tell them apart."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import pytest
from attacks import record, value

import xlamem
from xlamem.compute.program import program
from xlamem.gate import baseline, checking, rules
from xlamem.gate.amounts import Amount
from xlamem.gate.causes import changes_since
from xlamem.gate.config import Budget, Config
from xlamem.gate.entry import Entry, Group
from xlamem.gate.finding import Finding
from xlamem.gate.formats.sources import Sources
from xlamem.gate.result import FAILED, NOT_KNOWN, NOTE, PASSED
from xlamem.gate.rules import _line

MIB = 1 << 20


def entry(**fields: Any) -> Entry:
    needed = {"name": "jit_f", "platform": "tpu", "program_fp": None, "interface_fp": None, "device_total": 1000}
    return Entry(**{**needed, "peak": None, **fields})


@pytest.mark.parametrize("limit", [Amount("100 bytes", bytes=100), Amount("10 %", share=Fraction(1, 10))])
def test_lines_without_live_ranges(limit: Amount) -> None:
    """What is known may exceed a limit already."""
    found = [_line("padding", limit, entry(), n) for n in (0, 100, 101)]
    assert [f.status for f in found if f] == [NOT_KNOWN, NOT_KNOWN, FAILED]
    found = [_line("padding", limit, entry(peak=900), n) for n in (0, 100, 101)]
    assert [f is None or f.status != NOT_KNOWN for f in found] == [True] * 3
    assert found[2] is not None
    assert found[2].status == FAILED


@pytest.mark.parametrize(("total", "least"), [(1000, 500), (1001, 501), (1, 1), (0, 0)])
def test_a_share_with_a_name_is_rounded_up(total: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 of 1,001 bytes are less than half of them."""
    budget: Any = SimpleNamespace(named=Fraction(1, 2))
    for named in {max(0, least - 1), least}:
        monkeypatch.setattr(rules, "named_bytes", lambda _, named=named: (named, total))
        found = rules._named(None, entry(peak=total), budget)  # type: ignore[arg-type]
        assert found is not None
        assert (found.status, found.limit) == (PASSED if named >= least else FAILED, least)


def test_bytes_that_are_not_listed_are_kept() -> None:
    """An entry that is read from a file and written again has few groups, but the bytes of all."""
    groups = tuple(Group(f"g{i}", "temp", 100 - i) for i in range(baseline.MAX_KEPT + 2))
    shortened = baseline._shortened(entry(groups=groups, rest=7))
    assert shortened.groups == groups[: baseline.MAX_KEPT]
    assert shortened.rest == 7 + 80 + 79
    assert baseline._shortened(shortened) == shortened


@pytest.mark.parametrize(("rest", "change"), [(1000, 20), (40, 20), (7, 53), (0, 60)])
def test_what_a_baseline_does_not_list_is_smaller_than_what_it_lists(rest: int, change: int) -> None:
    """A group that it lacks may have been there, with at most as many bytes as the smallest one, or as are left."""
    listed = Group("a", "temp", 100), Group("b", "temp", 40)
    found = changes_since(entry(groups=listed, rest=rest), entry(groups=(*listed, Group("c", "temp", 60))))
    assert [(c.name, c.change, c.bytes_baseline) for c in found] == [("c", change, None if rest else 0)]


@pytest.mark.parametrize(
    ("peaks", "status"),
    [((500, 700), PASSED), ((500, 400), FAILED), ((700, None), NOT_KNOWN), ((None, 700), NOT_KNOWN)],
)
def test_the_largest_peak_of_a_name_is_known_if_all_are(peaks: tuple[int | None, ...], status: str) -> None:
    others = {i: SimpleNamespace(device_total=1000 + i, peak=p and p * MIB) for i, p in enumerate(peaks)}
    check: Any = SimpleNamespace(_namesakes=lambda _: others, _base_entry=lambda _: entry(), config=Config())
    described = SimpleNamespace(platform="tpu", module_name="jit_f")
    checked: Any = SimpleNamespace(entry=entry(peak=600 * MIB), described=described)
    found = checking._Check._growth_beyond_namesakes(check, checked, [])
    assert {f.number: f.status for f in found} == {"device_total": PASSED, "peak": status}


@pytest.mark.parametrize(
    ("compiler", "flags", "changed", "replaces"),
    [
        ("bless", "bless", ("compiler", "flags"), True),
        ("bless", "fail", ("compiler", "flags"), False),
        ("fail", "bless", ("compiler", "flags"), False),
        ("bless", "fail", ("compiler",), True),
        ("bless", "fail", ("flags",), False),
    ],
)
def test_a_change_of_the_toolchain_is_blessed_if_all_of_it_is(
    compiler: str, flags: str, changed: tuple[str, ...], replaces: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "toolchain_changes", lambda *_: [(rule, "") for rule in changed])
    config = SimpleNamespace(compiler_change=compiler, flags_change=flags, ratchet=False)
    check: Any = SimpleNamespace(bless=False, config=config, _loses_peak=lambda _: False)
    checked: Any = SimpleNamespace(entry=entry(), base=entry())
    assert checking._Check._next_entry(check, checked) is (checked.entry if replaces else None)


def test_what_is_compared_with_the_baseline() -> None:
    """A limit of growth has something to compare if a program is not known, or may be one that was renamed."""
    check: Any = SimpleNamespace(renamed_from={7: 0})
    growth, new = Finding("growth", PASSED, ""), Finding("new", NOTE, "")
    for number, known, rules_found, wanted in (
        (1, entry(), [growth], True),
        (1, entry(), [new], False),
        (1, entry(), [], False),
        (7, entry(), [new], True),
        (1, None, [], True),
    ):
        checked: Any = SimpleNamespace(number=number, entry=known, findings=rules_found)
        assert checking._Check._is_compared(check, checked) is wanted


def test_a_dump_that_is_known_by_its_name_is_no_stranger() -> None:
    """It cannot be another program of the baseline, so these can be pruned."""
    damaged: Any = SimpleNamespace(number=0, entry=None)
    good: Any = SimpleNamespace(number=1, entry=entry())
    partner: Any = SimpleNamespace(number=5)
    assert checking._has_stranger([good, damaged], {})
    assert not checking._has_stranger([good, damaged], {0: partner})
    assert not checking._has_stranger([good], {})


@pytest.mark.parametrize(("n", "status"), [(255, PASSED), (256, FAILED)])
def test_the_least_argument_that_must_be_donated(n: int, status: str, make: Callable[..., Path]) -> None:
    """It has a KiB."""
    shape, size = f"f32[{n}]", 4 * n
    allocations = f"allocation 0: size {size}, parameter 0, shape |{shape}| at ShapeIndex {{}}:\n"
    allocations += value(0, "p", size, 0, shape)
    allocations += f"allocation 1: size {size}, output shape is |{shape}|, maybe-live-out:\n"
    allocations += value(1, "o", size, 0, shape)
    records = [record(0, "p", f"{shape} parameter(0)"), record(1, "o", f"{shape} negate(%p)")]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["p{}:0-4", "o{}:3-4"])
    p, budget = program(xlamem.read(make(members))), Budget(number=1, where="", donation="required")
    found = rules._donation(p, entry(), budget)
    assert found is not None
    assert (found.status, found.value) == (status, size if status == FAILED else 0)


def test_the_source_of_an_installed_package(tmp_path: Path) -> None:
    """Below site-packages, not below the folder that contains it."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "layers.py").write_text("x\n" * 9)
    candidates = Sources(tmp_path)._candidates
    found = candidates(["", "usr", "lib", "python3.11", "site-packages", "pkg", "layers.py"])
    assert found == [str(tmp_path / "pkg" / "layers.py")]
    assert candidates(["", "home", "u", "pkg", "layers.py"])[-2:] == [*found, str(tmp_path / "layers.py")]
