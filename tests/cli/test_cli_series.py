"""`xlamem diff --over`: the screen, its formats and exit codes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import pytest
from variants import BIG, CUT, GROWTH, TEXTS, converted, inner, larger, outer, written

import xlamem
from xlamem import cli, schema
from xlamem.cli.reporters.series import ABSENT, UNKNOWN, sparkline

COMMITS = [f"{c}{'0' * 32}{i:02x}" for i, c in enumerate(("c0ffee1", "beef002", "a3a3a3a", "d4d4d4d", "e5e5e5e"))]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | Path) -> tuple[int, str, str]:
        return cli.main(["diff", *map(str, args)]), *capsys.readouterr()

    return call


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five commits: a program that loses remat, one that grows and is truncated, one that is new, one that is gone."""
    directory = tmp_path_factory.mktemp("five")
    (pair,) = (p for p in pairs.stored() if p.name == "cpu-remat-removed-scan")
    before, after = pair.unpack(directory / "pair")
    f, g, old, new = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_old", outer(3)), ("jit_new", outer(9))
    big, cut = ("jit_f", BIG), ("jit_f", CUT)
    for i, small in enumerate(([f, g, old], [f, g], [new, f, g], [cut, new, g], [big, new, g])):
        folder = written(directory / str(i), small, first=i)
        shutil.copytree(after if i > 1 else before, folder, dirs_exist_ok=True)
        xlamem.convert(folder, to=directory / "dataset", labels={"commit": COMMITS[i]}, engine="here")
    return directory / "dataset"


def test_the_screen(run: Any, five: Path) -> None:
    status, out, err = run(five, "--over", "commit")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert max(map(len, lines)) <= 80
    assert " ".join(out.split("\n\n")[0].split()) == xlamem.series(five, "commit").summary
    heading, *rows, problem = out.split("\n\n")[1].splitlines()
    assert heading.split() == ["first", "last", "largest", "jump", "program"]
    assert problem == "Not known: it is truncated (1 dump)"
    assert [row.split("  ")[-1].partition(".")[2] for row in rows] == ["jit_train_step", "jit_f", "jit_old", "jit_new"]
    assert "  ▁▁███  beef002 -> a3a3a3a: +" in rows[0]
    assert "256.25 KiB  384.25 KiB  ▁▁▁·█  a3a3a3a -> e5e5e5e: +128.00 KiB" in rows[1]
    assert "  ▄      [GONE] after c0ffee1 " in rows[2]
    assert "    ▄▄▄  [NEW] at a3a3a3a " in rows[3]
    first, second = out.split("\n\n")[2:]
    assert first.startswith("beef002 -> a3a3a3a  0014.jit_train_step\n")
    assert "jax.checkpoint" in first
    assert second.startswith("a3a3a3a -> e5e5e5e  0004.jit_f\n")
    assert "and 3 more: --limit shows more" in run(five, "--over", "commit", "--limit", 1)[1]


def test_without_unicode(run: Any, five: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xlamem.cli.reporters.chart.is_unicode", lambda: False)
    monkeypatch.setattr("xlamem.cli.reporters.series.is_unicode", lambda: False)
    out = run(five, "--over", "commit")[1]
    assert not set(out) & set("▁▂▃▄▅▆▇█·")
    assert "  ...?#  a3a3a3a -> e5e5e5e: +128.00 KiB" in out


def test_many_programs_fit_a_screen(run: Any, tmp_path: Path) -> None:
    """At most 40 lines of 80 columns, and short names that differ."""
    name = "jit_a_function_with_a_rather_long_name_number_{}_of_many"
    old = [(name.format(i), inner(i)) for i in range(30)]
    grown = [(n, larger(t, GROWTH)) for n, t in old]
    nights = {f"2025-01-{i + 1:02d}": (old if i < 9 else grown) for i in range(12)}
    converted(tmp_path, nights, "night")
    status, out, _ = run(tmp_path / "dataset", "--over", "night")
    lines = out.splitlines()
    assert status == 0
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    table = lines[lines.index("") + 2 :][:20]
    assert all("2025-01-09 -> 2025-01-10: +128.00 KiB" in line for line in table)
    assert len({line.split()[-1] for line in table}) == 20
    assert "and 10 more: --limit shows more" in out


def test_json(run: Any, five: Path) -> None:
    data = json.loads(run(five, "--over", "commit", "--json")[1])
    s = xlamem.series(five, "commit")
    assert (data["format"], data["over"], data["points"]) == ("xlamem.series", "commit", COMMITS)
    assert (data["n_programs"], data["n_changed"], data["n_new"], data["n_gone"], data["n_same"]) == (5, 2, 1, 1, 1)
    assert (data["summary"], data["grown"], data["is_known"]) == (s.summary, True, True)
    f = data["programs"][1]
    assert [p["is_known"] for p in f["points"]] == [True, True, True, False, True]
    assert [p["point"] for p in f["points"]] == COMMITS
    assert f["points"][3]["device_total"] is None
    assert [(j["point_a"], j["point_b"], j["change"]) for j in f["jumps"]] == [(COMMITS[2], COMMITS[4], GROWTH)]
    assert [p["verdict"] for p in data["programs"]] == [s.diff(0).verdict, s.diff(1).verdict, None, None, None]
    assert len(json.loads(run(five, "--over", "commit", "--json", "--limit", 2)[1])["programs"]) == 2


def test_verdicts_follow_the_limit(run: Any, tmp_path: Path) -> None:
    old = [(f"jit_{c}", inner(i)) for i, c in enumerate("abcdefghijkl")]
    grown = [(n, larger(t, GROWTH)) for n, t in old]
    converted(tmp_path, {"1": old, "2": grown})

    def verdicts(*options: Any) -> int:
        data = json.loads(run(tmp_path / "dataset", "--over", "commit", "--json", *options)[1])
        return sum(program["verdict"] is not None for program in data["programs"])

    assert [verdicts(), verdicts("--limit", 1), verdicts("--limit", 4), verdicts("--limit", 12)] == [2, 1, 4, 10]
    assert run(tmp_path / "dataset", "--over", "commit", "--limit", 4)[1].count("must fit") == 4


def test_csv(run: Any, five: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(run(five, "--over", "commit", "--csv")[1])))
    s = xlamem.series(five, "commit")
    assert tuple(rows[0]) == schema.COMPARED["series"].names
    expected = ["" if n is None else str(n) for n in s.series["device_total"].to_pylist()]
    assert [row["device_total"] for row in rows] == expected
    limited = list(csv.DictReader(io.StringIO(run(five, "--over", "commit", "--csv", "--limit", 2)[1])))
    assert {row["program"] for row in limited} == {"0", "1"}


def test_markdown(run: Any, five: Path) -> None:
    text = run(five, "--over", "commit", "--markdown")[1]
    lines = text.splitlines()
    assert lines[0].startswith("**5 programs at 5 points")
    assert lines[2] == "| program | c0ffee1 | beef002 | a3a3a3a | d4d4d4d | e5e5e5e | 5 points |"
    assert lines[5] == (
        "| `0004.jit_f` | 256.25 KiB | 256.25 KiB | 256.25 KiB | ? | 384.25 KiB **+128.00 KiB** | `▁▁▁·█` |"
    )
    assert lines[6].endswith("| 256.25 KiB |  |  |  |  | `▄    ` |")
    assert "`0014.jit_train_step`, beef002 -\\> a3a3a3a: +" in text


def test_markdown_of_many_points(run: Any, tmp_path: Path) -> None:
    """Only the points at the ends and at jumps are columns."""
    grown = ("jit_f", BIG)
    converted(tmp_path, {f"{i:02d}": [("jit_f", TEXTS) if i < 8 else grown] for i in range(14)})
    text = run(tmp_path / "dataset", "--over", "commit", "--markdown")[1]
    assert "| program | 00 | 07 | 08 | 13 | 14 points |" in text
    assert "| 256.25 KiB | 256.25 KiB | 384.25 KiB **+128.00 KiB** | 384.25 KiB | `▁▁▁▁▁▁▁▁██████` |" in text


def test_exit_codes(run: Any, five: Path, tmp_path: Path) -> None:
    assert run(five, "--over", "commit", "--exit-code")[0] == 1
    f = ("jit_f", TEXTS)
    converted(tmp_path / "same", {"1": [f], "2": [f]})
    status, out, _ = run(tmp_path / "same" / "dataset", "--over", "commit", "--exit-code")
    assert (status, out) == (0, "1 program at 2 points (commit 1 to 2): 0 changed, 1 without a change.\n")
    converted(tmp_path / "cut", {"1": [f], "2": [("jit_f", CUT)]})
    assert run(tmp_path / "cut" / "dataset", "--over", "commit", "--exit-code")[0] == 3
    converted(tmp_path / "one", {"1": [f]})
    status, out, _ = run(tmp_path / "one" / "dataset", "--over", "commit")
    assert (status, out) == (0, "1 program at 1 point (commit 1): a single point cannot be compared.\n")


def test_wrong_usage(run: Any, five: Path, tmp_path: Path) -> None:
    for args, message in (
        ([five, "--over", "night"], "no dump has the label 'night'; there are commit"),
        ([five, "--over", "commit", "--label", "commit=x"], "no dump has commit=x"),
        ([five, "--over", "commit", "--label", "a=1", "--label", "a=2"], "the label 'a' is given twice"),
        ([five, "--over", "commit", "--by", "scope"], "--over takes one dataset, and excludes --module, --by"),
        ([five, "--over", "commit", "--module", "jit_f"], "--over takes one dataset, and excludes --module"),
        ([five, "--over", "commit", "--space", "hbm"], "--over takes one dataset, and excludes --module"),
        ([five, five, "--over", "commit"], "--over takes one dataset"),
        ([five, five, "--order", "name"], "--order needs --over"),
        ([tmp_path, "--over", "commit"], "is not a dataset"),
    ):
        status, out, err = run(*args)
        assert (status, out) == (2, "")
        assert message in err


def test_order_and_labels(run: Any, five: Path) -> None:
    status, out, _ = run(five, "--over", "commit", "--order", "name", "--json")
    data = json.loads(out)
    assert (status, data["points"]) == (0, sorted(COMMITS))
    out = run(five, "--over", "commit", "--label", f"commit={COMMITS[3]}", "--json")[1]
    assert json.loads(out)["points"] == [COMMITS[3]]


def test_sparkline() -> None:
    assert sparkline(np.array([0, 50, 100]), 9) == "▁▄█"
    assert sparkline(np.array([7, ABSENT, UNKNOWN, 7]), 9) == "▄ ·▄"
    assert sparkline(np.array([UNKNOWN, ABSENT]), 9) == "· "
    assert sparkline(np.array([1, 9, ABSENT, UNKNOWN, 1, UNKNOWN]), 3) == "█·▁"
    assert sparkline(np.array([1 << 60, (1 << 60) + 1]), 2) == "▁█"
