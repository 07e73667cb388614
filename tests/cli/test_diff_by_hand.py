"""The screen of a difference, piece by piece, on rows made by hand."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from xlamem.cli.options import Output
from xlamem.cli.reporters import diff
from xlamem.cli.reporters.diff import DOWN, UP

Row = dict[str, Any]
MIB = 1 << 20


def plain(lines: list[Any]) -> list[str]:
    return [" ".join(str(line).replace("\N{NO-BREAK SPACE}", " ").split()) for line in lines]


def test_growth_is_red() -> None:
    assert [diff._style(n) for n in (1, 0, -1)] == [UP, "", DOWN] == ["red", "", "green"]


@pytest.mark.parametrize(
    ("is_same", "is_known", "problem", "parts"),
    [
        (True, True, "", "verdict edits"), (True, True, "A: bad", "verdict A: bad sides edits"),
        (True, False, "", "verdict sides edits"), (False, True, "", "verdict sides accounts bill groups edits"),
        (False, True, "B: bad", "verdict B: bad sides accounts bill groups edits"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("with_edits", [True, False])
def test_parts_of_the_screen(
    is_same: bool, is_known: bool, problem: str, parts: str, with_edits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What did not change is not listed, if it is known."""
    heights: list[int] = []
    for name in ("verdict", "sides", "accounts", "bill"):
        monkeypatch.setattr(diff, f"_{name}", lambda *_, name=name: [name])
    titles: list[str] = []
    monkeypatch.setattr(diff, "_edits", lambda c, width, title: titles.append(title) or ["edits"] * with_edits)
    monkeypatch.setattr(diff, "_contributors", lambda c, output, height: heights.append(height) or ["groups"])
    c: Any = SimpleNamespace(
        diff=SimpleNamespace(is_same=is_same, is_known=is_known), problems=lambda: [problem] if problem else []
    )
    lines = plain(diff.screen(c, Output(wide=True)))
    assert " ".join(line for line in lines if line) == (parts if with_edits else parts.replace(" edits", ""))
    assert heights == ([] if is_same else [40 - 7 - bool(problem) - 2 * with_edits - 4])
    assert titles == ["what changed without an effect on memory" if is_same else "what else changed"]
    assert all(a or b for a, b in pairwise(lines))


@pytest.mark.parametrize(("n", "shown"), [(6, 6), (7, 6)])
def test_long_verdicts(n: int, shown: int) -> None:
    d: Any = SimpleNamespace(verdict=" ".join(["x" * 60] * n))
    lines = [str(line) for line in diff._verdict(d, 80)]
    assert (len(lines), lines[-1].endswith("…"), lines[0]) == (shown, n > shown, "x" * 60)


@pytest.mark.parametrize(
    ("bill", "lines"),
    [
        ([], []),
        ([("outputs", 5)], ["+5 B outputs"]),
        ([("outputs", 1000), ("padding", 5)], ["+1000 B outputs", "+5 B padding"]),
        ([("outputs", 1000), ("padding", -4)], ["+1000 B outputs", "-4 B padding"]),
        ([("a", -1000), ("b", 4), ("c", -2)], ["-1000 B a", "+2 B b +4 B, c -2 B"]),
        ([("a", -1000), ("b", 5), ("c", 4), ("d", 1)], ["-1000 B a", "+5 B b", "+5 B c +4 B, d +1 B"]),
    ],
)
def test_small_lines_of_a_bill(bill: list[tuple[str, int]], lines: list[str]) -> None:
    """Several below a two-hundredth of the largest are one line."""
    c: Any = SimpleNamespace(bill=lambda: bill, reserved="must fit")
    title, *found = plain(diff._bill(c, None)) or [""]
    assert found == lines
    total = sum(n for _, n in bill)
    assert not bill or title.startswith(f"must fit {total:+} B the sum")


def account(name: str, number: str, a: int, b: int) -> Row:
    return {"account": name, "number": number, "a": a, "b": b, "change": b - a}


def test_accounts_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What must fit, the chosen account, and the three that changed most; the others are named."""
    rows = [account("device_total", "reserved", 1000, 3000), account("device_total", "peak", 900, 900)]
    rows += [account(name, "reserved", 0, n) for name, n in (("hbm", -5), ("vmem", 9), ("a", 800))]
    rows += [account("b", "reserved", 700, 0), account("c", "peak", 10, 20), account("c", "reserved", 30, 21)]
    monkeypatch.setattr(diff, "numbers", lambda _: rows)
    c: Any = SimpleNamespace(diff=None, account="hbm")
    assert plain(diff._accounts(c))[1:] == [
        "device_total reserved 1000 B 2.93 KiB +1.95 KiB +200.0 %", "peak 900 B 900 B ±0",
        "hbm reserved 0 B -5 B -5 B", "a reserved 0 B 800 B +800 B", "b reserved 700 B 0 B -700 B",
        "c peak 10 B 20 B +10 B +100.0 %", "reserved 30 B 21 B -9 B -30.0 %", "also changed: vmem",
    ]  # fmt: skip
    c.account = "vmem"
    assert plain(diff._accounts(c))[-1] == "also changed: hbm"
    c.account = "missing"
    assert plain(diff._accounts(c))[-1] == "also changed: vmem, hbm"


@pytest.mark.parametrize(
    ("has_peaks", "limit", "moved", "lines"),
    [
        (True, None, 0, ["peak +11 B step 3 of A against step 1,004 of B, by buffer:", "g0", "g1", "g2",
                         "+1 B 9.1 % rest of 1"]),
        (False, 1, 4, ["reserved +11 B all of A against all of B, by buffer:", "g0", "+4 B 36.4 % rest of 3",
                       "+4 B 36.4 % 4 moved"]),
        (True, 4, 0, ["peak +11 B step 3 of A against step 1,004 of B, by buffer:", "g0", "g1", "g2", "g3"]),
        (True, 0, 0, ["peak +11 B step 3 of A against step 1,004 of B, by buffer:", "+11 B 100.0 % rest of 4"]),
    ],
)  # fmt: skip
def test_groups_add_up(
    has_peaks: bool, limit: int | None, moved: int, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = [{"change": n, "i": i} for i, n in enumerate((7, 2, 1, 1))]
    row = {"moved": moved, "step_a": 3, "step_b": 1004}
    monkeypatch.setattr(diff, "_groups", lambda c, listed, width: [[f"g{g['i']}"] for g in listed])
    monkeypatch.setattr(diff, "_rest", lambda rest, largest, width: f"rest of {len(rest)}")
    monkeypatch.setattr(diff, "moved", lambda row: f"{row['moved']} moved")
    monkeypatch.setattr(diff, "MAX_ROWS", 3)
    c: Any = SimpleNamespace(
        groups=lambda: groups, row=row, diff=SimpleNamespace(has_peaks=has_peaks), peak_change=11
    )
    assert plain(diff._contributors(c, Output(limit=limit), 40)) == lines
    c.groups = list
    assert len(diff._contributors(c, Output(), 40)) == (2 if moved else 0)


@pytest.mark.parametrize(
    ("groups", "text"),
    [
        ([("new", 49)], "1 other group: --limit shows more"),
        ([("new", 50)], "1 other group: new +50 B, …"),
        ([("", 99)], "1 other group: --limit shows more"),
        ([("new", 20), ("gone", -90), ("", 5), ("new", 4), ("larger", 1)], "5 other groups: gone -90 B, new +24 B, …"),
    ],
)
def test_groups_that_are_not_listed(
    groups: list[tuple[str, int]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their main causes are named if they are large together."""
    monkeypatch.setattr(diff, "mark", lambda g: g["mark"])
    assert diff._rest([{"mark": m, "change": n} for m, n in groups], {"change": -100}, None) == text


def test_the_causes_of_other_groups_are_cut_between_numbers() -> None:
    rows = [{"cause": cause, "change": n, "bytes_a": 1, "bytes_b": 1} for cause, n in (("larger", 90), ("smaller", -9))]
    found = {diff._rest(rows, {"change": 100}, width) for width in range(20, 100)}
    assert found == {
        "2 other groups: larger +90 B, smaller -9 B, …", "2 other groups: larger +90 B, …", "2 other groups"
    }  # fmt: skip
    indent = len(plain(diff._amount(1, 1, "")))
    for width in range(indent + len("2 other groups"), 100):
        assert indent + len(diff._rest(rows, {"change": 100}, width)) <= width


@pytest.mark.parametrize(
    ("changes", "limit", "height", "n"),
    [
        ([9, 8, 7], 2, 40, 2), ([9, 8, 7], 0, 40, 0), ([9] * 20, None, 40, 12), ([9] * 20, None, 8, 6),
        ([9] * 20, None, 12, 9), ([9] * 20, None, 2, 3), ([9] * 20, None, 16, 12), ([9] * 20, None, 20, 12),
        ([9] * 20, None, 15, 12), ([9] * 20, None, 13, 10), ([1000, -3, 2, 1], None, 40, 3), ([-1000, 1], None, 40, 1),
    ],
)  # fmt: skip
def test_groups_that_are_listed(changes: list[int], limit: int | None, height: int, n: int) -> None:
    groups = [{"change": change} for change in changes]
    assert diff._largest_groups(groups, limit, height) == groups[:n]


def test_second_lines_of_groups() -> None:
    """As many as fit the height, of the first groups."""
    groups: list[Any] = [["a", "A"], ["b"], ["c", "C"], ["d", "D"]]
    for height, lines in ((None, "aAbcCdD"), (7, "aAbcCdD"), (6, "aAbcCd"), (5, "aAbcd"), (4, "abcd"), (1, "abcd")):
        assert "".join(map(str, diff._with_details(groups, height))) == lines


@pytest.mark.parametrize(
    ("n", "length", "lines"),
    [
        (0, 0, []), (1, 10, ["+5 B: x0"]), (3, 100, ["+5 B: x0", "-", "x1", "-", "x2", "-"]),
        (4, 10, ["+5 B: x0", "x1", "x2", "and 1 more: --json lists them"]),
        (5, 100, ["+5 B: x0 …", "x1 …", "x2 …", "and 2 more: --json lists them"]),
        (1, 200, ["+5 B: x0", "- …"]),
    ],
)  # fmt: skip
def test_other_edits(n: int, length: int, lines: list[str]) -> None:
    """Up to three, on two lines each if there are no others."""
    edits = [{"change": 0 if i else 5, "text": f"x{i}" + " yyyyyyyyy" * (length // 10 - 1)} for i in range(n)]
    c: Any = SimpleNamespace(other_edits=lambda: edits)
    title, *found = plain(diff._edits(c, 80)) or [""]
    assert title == ("what else changed" if n else "")
    assert [line.replace(" yyyyyyyyy", "").replace("yyyyyyyyy", "-") for line in found] == lines


@pytest.mark.parametrize(
    ("width", "n_lines"), [(None, 1), (24, 1), (23, 2)]
)
def test_groups_on_one_line_or_two(width: int | None, n_lines: int) -> None:
    assert len(diff._lines_of(diff.Text("x" * 10), "f32[8]", "m.py", width)) == n_lines
    assert "  ".join(str(line).strip() for line in diff._lines_of(diff.Text("x"), "f32[8]", "m.py", width)) == (
        "x  f32[8]  m.py"
    )


def test_names_of_edits() -> None:
    groups = [{"edit": "the quick brown fox"}]
    kept = diff.label(groups[0] | {"name": "n"}, ("edit",))
    rows = [groups[0] | {"name": "n"}]
    assert diff._names(rows, ("edit",), None) == [kept]
    assert diff._names(rows, ("edit",), len(kept)) == [kept]
    assert diff._names(rows, ("edit",), len(kept) - 1) == [f"{kept[: len(kept) - 2]}…"]
