"""Which program of a baseline is which, on small sets of programs, against slow searches."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from xlamem.errors import DumpError
from xlamem.gate import checking
from xlamem.gate.config import Config
from xlamem.gate.entry import Entry
from xlamem.gate.finding import Checked, Finding
from xlamem.gate.result import FAILED, NOT_KNOWN, NOTE, PASSED, WARNING
from xlamem.gate.stored import (
    EntryPrograms,
    Partner,
    Selected,
    by_name,
    gone,
    partners,
    platform_and_name,
    possibly_renamed,
)


def entry(name: str | None = "jit_f", key: str | None = "1", total: int = 10, **more: Any) -> Entry:
    """Return a program whose fingerprints are `key`, or that has none."""
    return Entry(**{"name": name, "platform": "tpu", "program_fp": key, "interface_fp": key and f"i{key}",
                    "device_total": total, "peak": None, **more})  # fmt: skip


def side(*entries: Entry) -> EntryPrograms:
    return EntryPrograms(entries)


def paired(base: EntryPrograms, now: EntryPrograms) -> dict[int, tuple[int, str]]:
    return {i: (p.number, p.how) for i, p in partners(base, now).items()}


def test_numbers_of_a_baseline_file() -> None:
    programs = side(entry(peak=7, total=9), entry("jit_g", None))
    assert [(p.module_name, p.device_total, p.peak, p.interface_fp) for p in programs.programs] == [
        ("jit_f", 9, 7, "i1"), ("jit_g", 10, None, None),
    ]  # fmt: skip
    assert programs.sketches([0, 1]).shape[0] == 2
    with pytest.raises(DumpError, match="jit_g"):
        programs.read(1)


def test_some_programs_of_a_side() -> None:
    whole: Any = SimpleNamespace(programs="abcde", sketches=lambda numbers: numbers, read=lambda n: f"dump {n}")
    some = Selected(whole, [3, 1])
    assert (list(some.programs), some.sketches([1, 0]), some.read(0)) == (["d", "b"], [1, 3], "dump 3")


def test_functions_of_tensorflow_are_known_whatever_their_number() -> None:
    """Any edit of the program around a function changes it."""
    names = "a_inference_f_{}__XlaMustCompile_true_.9", "a_inference_g_{}__.12"
    base, now = (side(*(entry(n.format(k), key=n.format(k)) for n in names)) for k in (10, 254))
    assert paired(base, now) == {0: (0, "name"), 1: (1, "name")}


def test_platforms_are_kept_apart() -> None:
    """Also programs of which the platform is not known."""
    platforms = ("cpu", "tpu", None)
    base = side(*(entry(key=str(i), platform=p) for i, p in enumerate(platforms)))
    now = side(*(entry(key=str(9 + i), platform=p) for i, p in enumerate(reversed(platforms))))
    assert paired(base, now) == {0: (2, "name"), 1: (1, "name"), 2: (0, "name")}
    assert paired(base, side(entry(key="0", platform="gpu"))) == {}


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("f1 f2", "f1 f3", {0: (0, "same"), 1: (1, "name")}),
        ("f1", "f2 f3", {}),
        ("f1 f2", "f3", {}),
        ("f1 g2", "f3 f4 g5", {2: (1, "name")}),
        ("f1 f2 g3", "f1 f4 f5 g6", {0: (0, "same"), 3: (2, "name")}),
        ("f1 f2", "f2 f1", {0: (1, "same"), 1: (0, "same")}),
        ("f1", "f1 f2", {0: (0, "same")}),
        ("f1", "g1", {0: (0, "same")}),
    ],
)
def test_a_name_in_common_is_not_enough(before: str, after: str, found: dict[int, tuple[int, str]]) -> None:
    """If one side has more programs of it, one of them may be new."""
    sides = [side(*(entry(f"jit_{p[0]}", p[1]) for p in text.split())) for text in (before, after)]
    assert paired(sides[0], sides[1]) == found


def test_an_interface_in_common_is_enough() -> None:
    """Although one side has more programs of the name."""
    base = side(*(entry(key=key) for key in "123"))
    now = side(entry(key="9", interface_fp="i2"), entry(key="8"))
    assert paired(base, now) == {0: (1, "interface")}


def test_programs_by_name() -> None:
    programs = side(entry("jit_f.3"), entry(None), entry("jit_f"), entry("jit_f", platform="cpu"), entry(""))
    assert by_name(programs) == {("tpu", "jit_f"): [0, 2], ("cpu", "jit_f"): [3]}
    assert platform_and_name(programs[1]) == ("tpu", "")


def test_programs_that_are_gone_or_may_be_renamed() -> None:
    """Against a slow search in random sets of programs."""
    chance = random.Random(7)
    renamed = 0
    for _ in range(200):
        base, now = (
            side(*(entry(f"jit_{chance.choice('abcd')}", chance.choice("123456"), chance.randrange(5),
                         platform=chance.choice(("tpu", "cpu"))) for _ in range(chance.randrange(6))))
            for _ in range(2)
        )  # fmt: skip
        numbers = chance.sample(range(len(base)), min(len(base), len(now), chance.randrange(4)))
        found = {i: Partner(n, "same") for i, n in enumerate(numbers)}
        keys = [p.key for p in base.programs]
        left = [i for i in range(len(base)) if i not in numbers and keys[i] not in {keys[n] for n in numbers}]
        assert gone(base, found) == left
        wanted = {}
        for platform in ("cpu", "tpu"):
            names = {p.module_name for p in base.programs if p.platform == platform}
            new = [i for i, p in enumerate(now.programs)
                   if p.platform == platform and i not in found and p.module_name not in names]  # fmt: skip
            old = [i for i in left if base[i].platform == platform]
            new, old = (sorted(rows, key=[-p.device_total for p in of.programs].__getitem__)
                        for of, rows in ((now, new), (base, old)))  # fmt: skip
            wanted |= dict(zip(new, old, strict=False))
        assert possibly_renamed(base, now, found) == wanted
        renamed += len(wanted)
    assert renamed > 50


# -- what becomes of the baseline ----------------------------------------------------------------


def check(base: list[Entry] | None, now: list[Entry | None], **options: Any) -> tuple[Any, list[Checked]]:
    """Return a check of programs against the entries of a baseline, before anything is compared."""
    old = None if base is None else side(*base)
    made: Any = checking._Check.__new__(checking._Check)
    made.programs = side(*(e or entry(None, None) for e in now))
    made.base, made.entries = old, None if base is None else tuple(base)
    made.names = by_name(old) if old else {}
    made.config, made.option, made.baseline, made.renamed_from = Config(), "--bless", "b.json", {}
    made.bless = made.prune = False
    for name, value in options.items():
        setattr(made, name, value)
    checked = [Checked(i, made.programs[i], e) for i, e in enumerate(now)]
    return made, checked


def same(*pairs: tuple[int, int]) -> dict[int, Partner]:
    return {i: Partner(n, "same") for i, n in pairs}


@pytest.mark.parametrize(
    ("options", "found", "removed"),
    [
        ({}, same((0, 1)), []),
        ({"prune": True}, same((0, 1)), [0, 2]),
        ({"prune": True, "bless": True}, same((0, 1)), [0, 2]),
        ({"prune": True, "entries": None}, same((0, 1)), []),
        ({"bless": True, "entries": None}, same((0, 1)), []),
        ({"prune": True}, same(), [0, 1, 2]),
    ],
)
def test_what_is_removed(options: dict[str, Any], found: dict[int, Partner], removed: list[int]) -> None:
    made, checked = check([entry(f"jit_{n}", n) for n in "abc"], [entry("jit_b", "b")], **options)
    assert made._removed(checked, found) == removed


def test_a_dump_that_cannot_be_read_keeps_the_others() -> None:
    for options, removed in (({"prune": True}, []), ({"prune": True, "bless": True}, [])):
        made, checked = check([entry("jit_a", "a"), entry("jit_b", "b")], [entry("jit_b", "b"), None], **options)
        assert made._removed(checked, same((0, 1))) == removed
    made, checked = check([entry("jit_a", "a"), entry("jit_b", "b")], [entry("jit_b", "b"), None], prune=True)
    assert made._removed(checked, same((0, 1), (1, 0))) == []


@pytest.mark.parametrize(
    ("base", "now", "found", "removed"),
    [
        ("a1 a2 a3", "a9", {}, [0]),
        ("a1 a2 a3", "a9 a8", {}, [0, 1]),
        ("a1 b2", "b9 a8", {}, [0, 1]),
        ("a1 a2", "a1 a9", {0: 0}, [1]),
        ("a1 a2", "a1", {0: 0}, []),
        ("a1 a2", "a1 b9", {0: 0}, []),
        ("a1", "a9 a?", {}, []),
        ("a1 b1", "a9 b?", {}, [0]),
    ],
)
def test_a_new_program_takes_the_place_of_one_of_its_name(
    base: str, now: str, found: dict[int, int], removed: list[int]
) -> None:
    """Unless another of that name is not known."""
    entries = [entry(f"jit_{p[0]}", p[1]) for p in base.split()]
    known = [entry(f"jit_{p[0]}", p[1]) for p in now.split()]
    made, checked = check(entries, [*known], bless=True)  # type: ignore[list-item]
    for c, text in zip(checked, now.split(), strict=True):
        c.entry = None if "?" in text else c.entry
    assert made._removed(checked, same(*found.items())) == removed


@pytest.mark.parametrize("bless", [False, True])
def test_the_entries_from_now_on(bless: bool) -> None:
    """Those that are kept, those that replace others, and new ones."""
    old = [entry("jit_a", "a", 5), entry("jit_b", "b", 5), entry("jit_c", "c", 5)]
    now = [entry("jit_b", "b", 7), entry("jit_d", "d", 7), None]
    made, checked = check(old, now, bless=bless)
    checked[0].base = old[1]
    written = made._changed(checked, same((0, 1)), [0])
    if bless:
        assert [(e.name, e.device_total) for e in written.entries] == [("jit_b", 7), ("jit_c", 5), ("jit_d", 7)]
    else:
        assert written is None
    made.entries = None
    assert made._changed(checked, same((0, 1)), []) is None


def test_pruning_alone_writes_the_others() -> None:
    made, checked = check([entry("jit_a", "a"), entry("jit_b", "b")], [entry("jit_b", "b", 9)], prune=True)
    checked[0].base = made.entries[1]
    assert [(e.name, e.device_total) for e in made._changed(checked, same((0, 1)), [0]).entries] == [("jit_b", 10)]
    made.prune = False
    assert made._changed(checked, same((0, 1)), []) is None


@pytest.mark.parametrize(
    ("config", "base", "now", "replaced"),
    [
        ({}, {"total": 99 << 20}, {}, False),
        ({"ratchet": True}, {"total": 99 << 20}, {}, True),
        ({"ratchet": True}, {"total": 11}, {}, False),
        ({"ratchet": True, "flags_change": "warn"}, {"total": 99 << 20, "flags": {}}, {"flags": {"a": "1"}}, False),
        ({"flags_change": "bless"}, {"flags": {}}, {"flags": {"a": "1"}}, True),
        ({"flags_change": "bless"}, {"flags": {}, "changelist": 1}, {"flags": {"a": "1"}, "changelist": 2}, False),
        ({"ratchet": True}, {"total": 99 << 20, "peak": 5}, {}, False),
        ({"flags_change": "bless"}, {"flags": {}, "peak": 5}, {"flags": {"a": "1"}}, False),
    ],
)
def test_which_entry_replaces_another(
    config: dict[str, Any], base: dict[str, Any], now: dict[str, Any], replaced: bool
) -> None:
    made, (c,) = check([entry(**base)], [entry(**now)], config=Config(**config))
    assert made._next_entry(c) is None, "it has no partner"
    c.base = made.entries[0]
    assert (made._next_entry(c) is not None) == replaced
    c.entry = None
    made.bless = True
    assert made._next_entry(c) is None


@pytest.mark.parametrize(
    ("peak", "base", "names", "loses"),
    [
        (None, 5, (), True),
        (None, None, (), False),
        (7, 5, (), False),
        (None, "new", (None, 5), True),
        (None, "new", (None, None), False),
        (None, "new", (), False),
        (None, None, (None, 5), False),
    ],
)
def test_a_peak_that_would_be_lost(peak: int | None, base: Any, names: tuple[int | None, ...], loses: bool) -> None:
    """That of the program in the baseline, or else of one with its name."""
    made, (c,) = check([entry(key=str(i), peak=p) for i, p in enumerate(names)], [entry(key="9", peak=peak)])
    if base != "new":
        c.base = entry(peak=base)
    assert made._loses_peak(c) is loses
    made.bless = True
    assert made._is_blessed(c) is not loses
    c.entry = None
    assert (made._loses_peak(c), made._is_blessed(c)) == (False, False)


def test_growth_is_accepted() -> None:
    made, _ = check([], [])
    found = {s: made._blessed(Finding("growth", s, "it grew")) for s in (PASSED, NOTE, WARNING, NOT_KNOWN, FAILED)}
    assert {s: f.status for s, f in found.items()} == {
        PASSED: PASSED, NOTE: NOTE, WARNING: NOTE, NOT_KNOWN: NOT_KNOWN, FAILED: NOTE,
    }  # fmt: skip
    assert Counter(f.message for f in found.values()) == {"it grew": 3, "it grew: accepted": 2}


def test_what_is_said_of_a_new_program() -> None:
    made, (c,) = check([entry("jit_old", "1", 10)], [entry("jit_new", "2", 1 << 20)])
    plain = Finding("new", NOTE, "not in the baseline; --bless adds new programs")
    assert made._new(c) == plain
    made.renamed_from = {0: 0}
    grown = made._new(c)
    assert (grown.rule, grown.status) == ("new", NOT_KNOWN)
    assert grown.message.startswith("it is not in the baseline; --bless adds it. jit_old is gone: if it was renamed, ")
    c.entry = entry(total=10 + (64 << 10))
    assert made._new(c) == plain
    made.entries = None
    assert made._new(c) == Finding("new", NOTE, "not in the baseline")
    made.bless = True
    assert made._new(c) == Finding("new", NOTE, "added to the baseline")


def test_programs_of_a_name() -> None:
    made, checked = check([entry("jit_f.1"), entry("jit_g"), entry("jit_f", platform="cpu"), entry()], [entry()])
    assert list(made._namesakes(checked[0])) == [0, 3]
    made, checked = check(None, [entry()])
    assert made._namesakes(checked[0]) == {}


@pytest.mark.parametrize(("totals", "largest"), [((5, 9, 7), 1), ((9, 5), 0), ((5, None), None)])
def test_the_largest_program_of_a_name(totals: tuple[int | None, ...], largest: int | None) -> None:
    made, (c,) = check([entry(key=str(i), total=t or 0) for i, t in enumerate(totals)], [entry(key="9", total=6)])
    for program, total in zip(made.base.programs, totals, strict=True):
        object.__setattr__(program, "device_total", total)
    found = made._growth_beyond_namesakes(c, [])
    if largest is None:
        assert found == [Finding("growth", NOT_KNOWN, "the largest jit_f of the baseline is not known")]
    else:
        assert found[0].baseline == totals[largest]
    c.entry = None
    assert made._growth_beyond_namesakes(c, []) == []


def test_programs_that_were_not_compiled() -> None:
    made, _ = check([entry("jit_a", "a", 5), entry("jit_b", "b", 6)], [])
    text = "in the baseline, but not among the dumps"
    for found, removed, stranger, more in (
        (same((0, 1)), [], False, ""),
        (same((0, 1)), [0], False, "; removed from the baseline"),
        (same((0, 1)), [1], True, " that can be read"),
    ):
        assert [*made._gone(found, removed, stranger)] == [
            ("jit_a", "tpu", Finding("gone", NOTE, f"{text}{more}", baseline=5))
        ]
    made, _ = check(None, [])
    assert [*made._gone({}, [], False)] == []
