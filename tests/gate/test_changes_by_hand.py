"""What changed since a baseline file: against a slow search in small programs, and in words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from xlamem.gate import causes
from xlamem.gate.amounts import Amount
from xlamem.gate.causes import changes_since, compared, describe, largest, source_of, why_since
from xlamem.gate.config import Budget, Config
from xlamem.gate.entry import Argument, Entry, Group
from xlamem.gate.finding import Change, Finding
from xlamem.gate.growth import (
    FLOOR,
    change_text,
    floor,
    growth_findings,
    growth_if_renamed,
    improvements,
    tightened,
    toolchain_changes,
)

MIB = 1 << 20
CATEGORIES = {
    "temp": "temp", "temp_in_output": "temp", "parameter": "parameter", "donated": "parameter", "live_out": "live_out",
}  # fmt: skip
"""Categories, and what they count as."""


def entry(total: int = 1000 * MIB, peak: int | None = 900 * MIB, **more: Any) -> Entry:
    return Entry(**{"name": "jit_f", "platform": "tpu", "program_fp": "1", "interface_fp": "2",
                    "device_total": total, "peak": peak, **more})  # fmt: skip


# -- groups of buffers ---------------------------------------------------------------------------


def joined(groups: Sequence[Group]) -> dict[tuple[str, str], tuple[int, int, Group]]:
    """Return bytes, number and the largest of the groups of each name and category; of equal ones, the first."""
    found: dict[tuple[str, str], tuple[int, int, Group]] = {}
    for g in groups:
        key = g.name, CATEGORIES[g.category]
        size, n, top = found.get(key, (0, 0, g))
        # The bytes of those before together are compared with those of this one.
        found[key] = size + g.bytes, n + g.n, g if g.bytes > size else top
    return found


def slow_changes(base: Entry, now: Entry) -> list[Change]:
    before, after = joined(base.groups), joined(now.groups)
    for name in "abc":
        temp, output = (name, "temp"), (name, "live_out")
        sides = [(temp in side, output in side) for side in (before, after)]
        if sides == [(True, False), (False, True)]:
            before[output] = before.pop(temp)
        if sides == [(False, True), (True, False)]:
            before[temp] = before.pop(output)
    hidden = min([base.rest, *(g.bytes for g in base.groups)])
    found = []
    for key in {*before, *after}:
        (old, n_old, top_old), (new, n_new, top) = (side.get(key, (0, 0, None)) for side in (before, after))
        if top is None:
            assert top_old is not None
            place = top_old.shape, top_old.source_file, top_old.source_line
            found.append(Change("gone", *key, n_old, n_old, old, 0, -old, *place))
        elif top_old is None:
            known = None if hidden else 0
            place = top.shape, top.source_file, top.source_line
            if new > hidden:
                found.append(Change("new", *key, known, n_new, known, new, new - hidden, *place))
        elif new != old:
            a, b = top_old.shape, top.shape
            text = f"{a} -> {b}" if a and b and a != b and a.count(",") == b.count(",") else b
            cause = "larger" if new > old else "smaller"
            found.append(Change(cause, *key, n_old, n_new, old, new, new - old, text, top.source_file, top.source_line))
    return sorted(found, key=lambda c: (-abs(c.change), c.name, c.category or ""))


def any_groups(chance: random.Random) -> tuple[Group, ...]:
    shapes = (None, "f32[8]", "f32[9]", "f32[8,8]", "bf16[4,2]")
    groups = [
        Group(chance.choice("abc"), chance.choice([*CATEGORIES]), chance.randrange(1, 9), chance.randrange(1, 4),
              chance.choice(shapes), chance.choice((None, "x.py", "y.py")), chance.choice((None, 3, 4)))
        for _ in range(chance.randrange(5))
    ]  # fmt: skip
    return tuple(sorted(groups, key=lambda g: -g.bytes))


def test_changes_of_groups() -> None:
    chance = random.Random(4)
    kinds = set()
    for _ in range(300):
        base = entry(groups=any_groups(chance), rest=chance.choice((0, 0, 1, 4, 20)))
        now = entry(groups=any_groups(chance))
        found = changes_since(base, now)
        assert found == slow_changes(base, now)
        kinds |= {(c.cause, c.bytes_baseline is None) for c in found}
    assert kinds == {("new", True), ("new", False), ("gone", False), ("larger", False), ("smaller", False)}


def test_a_temporary_that_is_returned_has_not_grown() -> None:
    def changes(before: Group, after: Group) -> list[tuple[str, str | None, int]]:
        found = changes_since(entry(groups=(before,)), entry(groups=(after,)))
        return [(c.cause, c.category, c.change) for c in found]

    temp, output = Group("x", "temp", 8), Group("x", "live_out", 8)
    assert changes(temp, output) == changes(output, temp) == []
    assert changes(temp, replace(output, bytes=9)) == [("larger", "live_out", 1)]
    assert changes(temp, Group("x", "constant", 8)) == [("new", "constant", 8), ("gone", "temp", -8)]


# -- the cause in words --------------------------------------------------------------------------


def change(by: int, **more: Any) -> Change:
    about = {"cause": "larger" if by > 0 else "smaller", "name": "w", "category": "temp", "n_baseline": 1, "n": 1,
             "bytes_baseline": 100 * MIB, "bytes": 100 * MIB + by, "change": by, "shape": None, "source_file": None,
             "source_line": None}  # fmt: skip
    return Change(**{**about, **more})


UNLISTED = {"cause": "new", "n_baseline": None, "bytes_baseline": None}
"""A group that the baseline does not list."""


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (change(MIB), "+1.00 MiB: w is larger"),
        (change(MIB, shape="(f32[2], s32[])"), "+1.00 MiB: w is larger"),
        (change(MIB, shape="f32[2]", source_file="/a/b.py", source_line=7), "+1.00 MiB: w (f32[2]) is larger, b.py:7"),
        (change(-MIB, n=3, n_baseline=3), "-1.00 MiB: 3× w are smaller"),
        (change(-MIB, cause="gone", n=2, n_baseline=2), "-1.00 MiB: 2× w no longer at the peak"),
        (change(MIB, cause="new", n_baseline=0, bytes=MIB), "+1.00 MiB: w at the peak now"),
        (change(MIB, **UNLISTED, bytes=2 * MIB), "2.00 MiB at the peak now, at most 1.00 MiB before: w"),
        (change(95 * MIB, **UNLISTED, bytes=100 * MIB, n=3), "100.00 MiB at the peak now: 3× w"),
        (change(MIB, **UNLISTED, bytes=MIB + 100), "+1.00 MiB: w at the peak now"),
        (change(MIB, n=2000), "+1.00 MiB: w: 2,000 instead of 1 at the peak"),
        (change(-MIB, n=2000), "-1.00 MiB: w: 2,000 instead of 1 at the peak, on average smaller"),
        (change(MIB, n=1, n_baseline=2), "+1.00 MiB: w: 1 instead of 2 at the peak, on average larger"),
    ],
)  # fmt: skip
def test_a_change_in_words(change: Change, text: str) -> None:
    assert describe(change) == text


@pytest.mark.parametrize(
    ("base", "now", "text"),
    [
        ({}, {}, ""),
        ({}, {"interface_fp": "3"}, "arguments or outputs differ"),
        ({"interface_fp": None}, {}, ""),
        ({}, {"interface_fp": None}, ""),
        (
            {"bill": {"packing": 7 * MIB, "parameters/data": MIB, "parameters/padding": MIB}},
            {"total": 1009 * MIB,
             "bill": {"packing": 6 * MIB, "parameters/data": 4 * MIB, "parameters/padding": 8 * MIB}},
            "in the bill: arguments +10.00 MiB",
        ),
        (
            {"bill": {"outputs": MIB}},
            {"total": 1012 * MIB, "bill": {"packing": 3 * MIB, "outputs": 6 * MIB, "donated": 4 * MIB}},
            "in the bill: outputs +5.00 MiB, donated arguments +4.00 MiB",
        ),
        (
            {"bill": {"packing": 9 * MIB, "outputs": MIB, "constants": 2 * MIB}},
            {"total": 993 * MIB, "bill": {"outputs": MIB, "constants": 4 * MIB}},
            "in the bill: packing -9.00 MiB",
        ),
        (
            {"bill": {"packing": 4 * MIB, "outputs": 9 * MIB, "constants": 8 * MIB}},
            {"total": 980 * MIB, "bill": {"packing": MIB}},
            "in the bill: outputs -9.00 MiB, constants -8.00 MiB",
        ),
        (
            {"bill": {"packing": 0, "outputs": 0}},
            {"total": 1100 * MIB, "bill": {"packing": 96 * MIB, "outputs": 4 * MIB}},
            "in the bill: packing +96.00 MiB",
        ),
        ({"bill": {"packing": MIB}}, {"bill": {"outputs": MIB}}, ""),
    ],
)  # fmt: skip
def test_what_the_bill_and_the_interface_say(base: dict[str, Any], now: dict[str, Any], text: str) -> None:
    assert why_since(entry(**base), entry(**now), []) == text


def test_the_largest_changes_in_the_direction_of_the_peak() -> None:
    names = dict(zip("abcdef", (-50, 40, -30, 20, 3, 1), strict=True))
    changes = [change(n * MIB, name=name) for name, n in names.items()]

    def said(before: int | None, after: int | None, of: Sequence[Change] = changes) -> list[str]:
        text = why_since(entry(peak=before), entry(peak=after), of)
        return [part.partition(": ")[2].split()[0] for part in text.split("; ") if part and "all others" not in part]

    assert said(100, 101) == ["b", "d"]
    assert said(101, 100) == ["a", "c"]
    assert said(100, 100) == said(None, 1) == said(1, None) == []
    assert said(100, 101, [changes[0], changes[1], changes[5]]) == ["b"], "1 MiB is less than 5 % of 40 MiB"
    assert said(100, 101, [changes[0], changes[3], changes[5]]) == ["d", "f"], "1 MiB is 5 % of 20 MiB"
    assert said(100, 101, [changes[0]]) == []


@pytest.mark.parametrize(
    ("sizes", "peak", "text"),
    [
        ((12, -4), 8, "-4.00 MiB: all others together"), ((-12, 4), -8, "+4.00 MiB: all others together"),
        ((12,), 10, ""), ((12,), 9, "-3.00 MiB: all others together"), ((6,), 8, ""), ((-6,), -8, ""),
        ((8, 8), 8, "+8.00 MiB: w is larger"),  # none of them is larger than the change
    ],
)  # fmt: skip
def test_a_change_of_more_than_the_peak(sizes: tuple[int, ...], peak: int, text: str) -> None:
    """The others changed in the other direction."""
    base, now = entry(peak=100 * MIB), entry(peak=(100 + peak) * MIB)
    said = why_since(base, now, [change(n * MIB) for n in sizes]).split("; ")
    assert said[1:] == ([text] if text else [])
    bound = change(12 * MIB, **UNLISTED, bytes=20 * MIB)
    assert "all others" not in why_since(entry(peak=0), entry(peak=8 * MIB), [bound])


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"m": "f32[8,64]", "v": "f32[8,64]", "w": "f32[4,16]"}, "3 arguments are 4 times as large: m, v, w"),
        ({"m": "f32[8,4]"}, "1 argument is 1/4 as large: m"),
        ({"m": "f32[8,64]", "w": "f32[4,8]"}, "2 arguments are of another shape: m (f32[8,16] -> f32[8,64]), w"),
        ({"m": "bf16[8,64]"}, "1 argument is of another shape: m (f32[8,16] -> bf16[8,64])"),
        ({"w": "f32[2,4,2]"}, "1 argument is of another shape: w (f32[4,4] -> f32[2,4,2])"),
        ({"n": "f32[8]"}, "arguments or outputs differ"),
        ({"m": "f32[16,8]"}, "1 argument is of another shape: m (f32[8,16] -> f32[16,8])"),
        ({"m": "f32[0,16]"}, "1 argument is of another shape: m (f32[8,16] -> f32[0,16])"),
    ],
)  # fmt: skip
def test_arguments_of_another_shape(now: dict[str, str], text: str) -> None:
    """A baseline lists the donated ones, and others among the largest buffers; a name that two have says nothing."""
    donated = tuple(Argument(name, MIB, "f32[8,16]") for name in "mv")
    groups = Group("w", "parameter", MIB, 1, "f32[4,4]"), Group("x", "parameter", MIB, 2, "f32[4,4]")
    base = entry(donated=donated, groups=(*groups, Group("y", "temp", MIB, 1, "f32[4,4]")))
    others = {("v", "f32[8]"), ("v", "f32[9]")} if "v" not in now else set()
    arguments = frozenset({*now.items(), *others, ("x", "f32[9]"), ("y", "f32[9]")})
    assert why_since(base, entry(interface_fp="3", arguments=arguments), []) == text


@pytest.mark.parametrize("n_donated", [2, 3])
def test_donations_that_are_left(n_donated: int) -> None:
    """An argument that is donated still, or that the program does not have, is not lost."""
    a, b, c = (Argument(name, MIB, "f32[8]") for name in "abc")
    other = replace(b, shape="f32[9]")
    base = entry(donated=(a, b), n_donated=n_donated)
    for donated, arguments, lost, fewer in (
        ((a, b), "ab", "", "2 arguments are donated instead of 3"),
        ((a,), "ab", "1 argument is no longer donated: b", ""),
        ((), "ab", "2 arguments are no longer donated: a, b", ""),
        ((a,), "a", "", "1 argument is donated instead of 3"),
        ((a,), None, "", "1 argument is donated instead of 3"),
        ((a, b, c), "ab", "", ""),
        ((a, other), "ab", "1 argument is no longer donated: b", ""),
    ):
        names = None if arguments is None else frozenset((name, "f32[8]") for name in arguments)
        text = why_since(base, entry(donated=donated, n_donated=len(donated), arguments=names), [])
        assert text == (lost if n_donated == 2 else f"at least {lost}" if lost else fewer)


def test_the_largest_at_the_peak() -> None:
    groups = Group("a", "temp", 5 * MIB, 3, "f32[2]", "/x/m.py", 4), Group("b", "temp", MIB), Group("c", "temp", 1)
    assert largest(entry(groups=groups)) == "largest at the peak: 5.00 MiB: 3× a, m.py:4; 1.00 MiB: b"
    assert largest(entry(groups=groups[1:2])) == "largest at the peak: 1.00 MiB: b"
    assert largest(entry()) == ""


def test_the_line_of_what_grew_most() -> None:
    """Otherwise that of the largest buffers that have one."""
    groups = Group("a", "temp", 5), Group("b", "temp", 4, 1, None, "b.py", 4), Group("c", "temp", 3, 1, None, "c.py")
    changes = [
        change(-9, source_file="less.py", source_line=1), change(9, cause="gone", source_file="gone.py"),
        change(8), change(7, source_file="more.py", source_line=2), change(6, source_file="rest.py"),
    ]  # fmt: skip
    assert source_of(entry(groups=groups), changes) == ("more.py", 2)
    assert source_of(entry(groups=groups), changes[:3]) == ("b.py", 4)
    assert source_of(entry(groups=groups[2:]), []) == ("c.py", None)
    assert source_of(entry(groups=groups[:1]), changes[:3]) == source_of(None, []) == (None, None)


def test_groups_of_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is described on the side that has it, the largest ones only."""
    row = {
        "buffer": None, "cause": "sharing changed", "category": "temp", "n": 2, "bytes_a": 8, "bytes_b": 0,
        "change": -8, "shape_a": "f32[2]{0:T(8)}", "shape_b": "f32[3]", "source_file_a": "a.py", "source_line_a": 1,
        "source_file_b": "b.py", "source_line_b": 2,
    }  # fmt: skip
    rows = [row, {**row, "buffer": "w", "bytes_b": 4, "change": -4}, *[row] * 30]
    table = SimpleNamespace(slice=lambda begin, n: SimpleNamespace(to_pylist=lambda: rows[begin : begin + n]))
    keys: list[Any] = []
    monkeypatch.setattr(causes, "difference_groups", lambda _, by: keys.append(by) or table)
    monkeypatch.setattr("xlamem.compare.difference.diff", lambda a, b: SimpleNamespace(verdict=f"{a} and {b}."))
    a: Any = "A"
    b: Any = "B"
    text, found = compared(a, b)
    assert (text, len(found), keys) == ("A and B", causes.MAX_CHANGES, [("buffer", "cause", "category")])
    assert found[:2] == [
        Change("sharing changed", "unnamed", "temp", None, 2, 8, 0, -8, "f32[2]", "a.py", 1),
        Change("sharing changed", "w", "temp", None, 2, 8, 4, -4, "f32[3]", "b.py", 2),
    ]


# -- growth and improvement ----------------------------------------------------------------------


def test_findings_of_growth() -> None:
    """One for each number and budget, with the limit that applies."""
    budgets = [
        Budget(number=3, growth=Amount("2MiB", bytes=2 * MIB)), Budget(number=4, peak=1),
        Budget(number=5, growth=Amount("1 byte", bytes=1)),
    ]  # fmt: skip
    base, now = entry(10 * MIB, 9 * MIB), entry(11 * MIB, 8 * MIB)
    assert [*growth_findings(base, now, budgets, Config())] == [
        Finding("growth", "passed", "what must fit: 11.00 MiB, +1.00 MiB since the baseline", "device_total",
                11 * MIB, 12 * MIB, 10 * MIB, "2MiB", 3),
        Finding("growth", "failed", "what must fit grew by 1.00 MiB (10.0 %) to 11.00 MiB; at most 64.00 KiB is"
                " allowed", "device_total", 11 * MIB, 10 * MIB + FLOOR, 10 * MIB, "1 byte", 5),
        Finding("growth", "passed", "peak: 8.00 MiB, -1.00 MiB since the baseline", "peak", 8 * MIB, 11 * MIB,
                9 * MIB, "2MiB", 3),
        Finding("growth", "passed", "peak: 8.00 MiB, -1.00 MiB since the baseline", "peak", 8 * MIB, 9 * MIB + FLOOR,
                9 * MIB, "1 byte", 5),
    ]  # fmt: skip
    first, second = growth_findings(base, now, [], Config(), "the largest jit_f")
    assert first.message == "what must fit: 11.00 MiB, 1.00 MiB more than the largest jit_f"
    assert second.message == "peak: 8.00 MiB, 1.00 MiB less than the largest jit_f"
    assert (first.status, first.limit_text, first.budget) == ("failed", None, None)
    (same, _) = growth_findings(base, base, [], Config(), "it")
    assert same.message == "what must fit: 10.00 MiB, as much as it"


@pytest.mark.parametrize(
    ("before", "after", "side"), [(None, 5, "the baseline"), (5, None, "the dump"), (None, None, "the baseline")]
)
def test_a_peak_that_is_not_known(before: int | None, after: int | None, side: str) -> None:
    _, found = growth_findings(entry(peak=before), entry(peak=after), [], Config())
    assert found == Finding("growth", "not known", f"peak: {side} has no live ranges", "peak", after)


@pytest.mark.parametrize(
    ("policy", "growth", "flags", "more"),
    [
        ("fail", "failed", "note", ""),
        ("warn", "warning", "warning", "; growth only warns until the baseline is blessed"),
        ("bless", "note", "note", ""),
    ],
)
def test_what_other_flags_mean(policy: Any, growth: str, flags: str, more: str) -> None:
    base, now = entry(10 * MIB, 9 * MIB, flags={"a": "1"}), entry(11 * MIB, 9 * MIB, flags={"a": "2"})
    total, peak, other = growth_findings(base, now, [], Config(flags_change=policy, compiler_change="warn"))
    assert (total.status, peak.status) == (growth, "passed")
    assert total.message.endswith("; at most 64.00 KiB is allowed, with other flags")
    assert "other flags" not in peak.message
    assert other == Finding("flags", flags, f"flag a is 2 instead of 1{more}")


V5E, TPU7X = "TPU_VERSION_VIPERFISH lite", "TPU_VERSION_6acc60406"


def test_growth_on_another_chip() -> None:
    """Baselines have the chip as the dump names it, so that a name which is added later is no other chip."""
    base, now = entry(10 * MIB, chip=V5E), entry(11 * MIB, chip=TPU7X)
    total, _, other = growth_findings(base, now, [], Config(compiler_change="warn"))
    assert total.status == "warning"
    assert total.message.endswith(", with another chip")
    assert other.message.startswith("compiled for TPU7x instead of TPU v5e; growth only warns")


@pytest.mark.parametrize(
    ("base", "now", "rules"),
    [
        ({}, {}, []),
        ({"changelist": 1}, {"changelist": 2}, ["compiler"]),
        ({"chip": V5E}, {"chip": TPU7X}, ["compiler"]),
        ({"chip": V5E}, {}, []),
        ({"chip": V5E, "changelist": 1}, {"chip": V5E, "changelist": 2}, ["compiler"]),
        ({"changelist": 1}, {}, []),
        ({"format": ("peak_a",)}, {"format": ("peak_b",)}, ["compiler"]),
        ({"changelist": 1, "format": ("peak_a",)}, {"changelist": 2, "format": ("peak_b",)}, ["compiler"]),
        ({"flags": {}}, {"flags": {"a": "1"}}, ["flags"]),
        ({"flags": {"a": "1"}}, {"flags": {}}, ["flags"]),
        ({"flags": None}, {"flags": {"a": "1"}}, []),
        ({"flags": {"a": "1"}}, {"flags": None}, []),
        ({"changelist": 1, "flags": {}}, {"changelist": 2, "flags": {"a": "1"}}, ["compiler", "flags"]),
    ],
)
def test_what_the_compiler_tells(base: dict[str, Any], now: dict[str, Any], rules: list[str]) -> None:
    found = toolchain_changes(entry(**base), entry(**now))
    assert [rule for rule, _ in found] == rules
    with_flags = [text for rule, text in found if rule == "flags"]
    assert not with_flags or with_flags == [
        "flag a is 1 instead of not set" if now["flags"] else "flag a is not set instead of 1"
    ]
    two = toolchain_changes(entry(flags={}), entry(flags={"b": "1", "a": "1"}))
    assert two == [("flags", "flags a is 1 instead of not set, b is 1 instead of not set")]


def test_growth_under_another_name() -> None:
    now = entry(10 * MIB, 9 * MIB)
    assert growth_if_renamed(None, 1, now) == "it is not known whether it grew"
    assert growth_if_renamed(10 * MIB - FLOOR, None, now) == growth_if_renamed(20 * MIB, 9 * MIB, now) == ""
    text = "what must fit grew by 64.00 KiB (0.6 %)"
    assert growth_if_renamed(10 * MIB - FLOOR - 1, None, now) == text
    assert growth_if_renamed(9 * MIB, 8 * MIB, now) == (
        "what must fit grew by 1.00 MiB (11.1 %) and peak grew by 1.00 MiB (12.5 %)"
    )
    assert growth_if_renamed(9 * MIB, 1, replace(now, peak=None)) == "what must fit grew by 1.00 MiB (11.1 %)"


def test_a_change_without_its_sign() -> None:
    assert change_text(4 * MIB, 5 * MIB) == "1.00 MiB (25.0 %)"
    assert change_text(5 * MIB, 4 * MIB) == "1.00 MiB (20.0 %)"
    assert change_text(0, MIB) == "1.00 MiB"


def test_what_is_an_improvement() -> None:
    """More than the floor of the size before, while the other number did not grow beyond its own."""
    total, peak = 2000 * MIB, 1000 * MIB
    base, least = entry(total, peak), floor(total)
    assert least > floor(total - least)
    assert improvements(base, entry(total - least, peak)) == []
    fell = [f"what must fit fell by {change_text(total, total - least - 1)} to 1.95 GiB"]
    assert improvements(base, entry(total - least - 1, peak)) == fell
    assert improvements(base, entry(total - least - 1, peak + floor(peak))) == fell
    assert improvements(base, entry(total - least - 1, None)) == fell
    assert improvements(base, entry(total - least - 1, peak + floor(peak) + 1)) == []
    assert improvements(base, entry(total - MIB * 1000, peak // 2)) == [
        "what must fit fell by 0.98 GiB (50.0 %) to 0.98 GiB", "peak fell by 500.00 MiB (50.0 %) to 500.00 MiB",
    ]  # fmt: skip


@pytest.mark.parametrize(("peaks", "peak"), [((5, 4), 4), ((4, 5), 4), ((None, 5), 5), ((4, None), None)])
def test_a_baseline_is_only_tightened(peaks: tuple[int | None, int | None], peak: int | None) -> None:
    base = entry(10, peaks[0], groups=(Group("old", "temp", 1),))
    for total in (9, 11):
        now = entry(total, peaks[1], groups=(Group("new", "temp", 1),), interface_fp="other")
        assert tightened(base, now) == replace(now, device_total=min(10, total), peak=peak)


# -- arguments without a name --------------------------------------------------------------------


def unnamed(shape: str, n: int, each: int = MIB) -> Group:
    return Group(f"argument of {shape}", "donated", n * each, n, shape)


def test_arguments_without_a_name_are_told_apart_by_their_shapes() -> None:
    large, small = (unnamed(shape, 1) for shape in ("f32[16,512]", "f32[512,32]"))
    base = entry(groups=(large, small))
    now = entry(910 * MIB, 902 * MIB, groups=(unnamed("f32[16,512]", 3), small))
    (found,) = changes_since(base, now)
    assert (found.name, found.n, found.n_baseline, found.shape) == ("argument of f32[16,512]", 3, 1, "f32[16,512]")
    assert "+2.00 MiB: argument of f32[16,512]: 3 instead of 1 at the peak" in why_since(base, now, [found])


def test_arguments_without_a_name_in_an_older_baseline() -> None:
    """They are one group there, named as the instructions without their numbers."""
    base = entry(groups=(Group("arg", "donated", 2 * MIB, 2, "f32[16,512]"),))
    same = entry(groups=(unnamed("f32[16,512]", 1), unnamed("f32[512,32]", 1)))
    assert changes_since(base, same) == []
    more = entry(groups=(unnamed("f32[16,512]", 2), unnamed("f32[512,32]", 1)))
    (found,) = changes_since(base, more)
    assert (found.name, found.n, found.change) == ("arg", 3, MIB)
    # An argument of this name, beside those without one, stands for itself.
    named = Group("arg", "parameter", 4 * MIB, 1, "f32[1024,1024]")
    base, now = (entry(groups=(named, unnamed("f32[16,512]", n))) for n in (1, 2))
    (found,) = changes_since(base, now)
    assert (found.name, found.n, found.change) == ("argument of f32[16,512]", 2, MIB)


def test_a_donation_is_lost_of_an_argument_without_a_name() -> None:
    lost = Argument("argument 7", MIB, "f32[16,512]")
    base = entry(donated=(lost,), n_donated=1)
    now = entry(arguments=frozenset({("argument 7", "f32[16,512]")}))
    assert "1 argument is no longer donated: argument 7 of shape f32[16,512]" in why_since(base, now, [])
