"""`series`: every program is followed over all points, and its jumps are where its numbers changed."""

from __future__ import annotations

import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import pytest
from renumber import renumbered, write
from variants import (
    BIG,
    CUT,
    GROWTH,
    PLATFORM,
    TEXTS,
    Named,
    Texts,
    compiled_again,
    converted,
    inner,
    larger,
    outer,
    replaced,
    written,
)

import xlamem
from xlamem import schema
from xlamem.compare.points import _ordered, read_points
from xlamem.warehouse import driver

DATA = Path(__file__).parents[1] / "data"
MIGRATE = "its fingerprint is not stored; `xlamem dataset migrate` adds it"
COMMITS = ("c0ffee", "beef", "a3", "d4", "e5")


def followed(dataset: Any, over: str = "commit", **options: Any) -> Any:
    s = xlamem.series(dataset, over, **options)
    for table, name in ((s.programs, "series_programs"), (s.series, "series"), (s.jumps, "jumps")):
        assert table.schema.equals(schema.COMPARED[name].arrow)
    rows = s.series.to_pylist()
    assert sorted({r["program"] for r in rows}) == s.programs["program"].to_pylist() == list(range(len(s.programs)))
    assert [(r["program"], r["ordinal"]) for r in rows] == sorted({(r["program"], r["ordinal"]) for r in rows})
    assert all(s.points[r["ordinal"]] == r["point"] for r in rows)
    check_jumps(s)
    return s


def check_jumps(s: Any) -> None:
    """Recompute the jumps, and the numbers of each program, from its numbers at each point."""
    jumps = set()
    for program in s.programs.to_pylist():
        rows = s.rows(program["program"]).to_pylist()
        known = [r for r in rows if r["device_total"] is not None]
        assert (program["n_points"], program["n_known"]) == (len(rows), len(known))
        assert (program["point_first"], program["point_last"]) == (rows[0]["point"], rows[-1]["point"])
        ends = (known[0]["device_total"], known[-1]["device_total"]) if known else (None, None)
        assert (program["device_total_first"], program["device_total_last"]) == ends
        peaks = [r["peak"] for r in rows if r["peak"] is not None] or [None]
        assert (program["peak_first"], program["peak_last"]) == (peaks[0], peaks[-1])
        for a, b in pairwise(known):
            assert b["change"] == b["device_total"] - a["device_total"]
            if b["change"] or b["peak"] != a["peak"]:
                jumps.add((program["program"], a["ordinal"], b["ordinal"], b["change"], b["content_id"]))
        assert [r["change"] for r in rows if r not in known[1:]] == [None] * (len(rows) - len(known[1:]))
        changes = [j for j in jumps if j[0] == program["program"]]
        assert (program["jump"] is None) == (not changes)
        if changes:
            assert abs(s.jumps["change"][program["jump"]].as_py()) == max(abs(c[3]) for c in changes)
    names = ("program", "ordinal_a", "ordinal_b", "change", "content_id_b")
    assert {tuple(r[n] for n in names) for r in s.jumps.to_pylist()} == jumps
    sizes = np.abs(s.jumps["change"].to_numpy())
    assert (np.diff(sizes) <= 0).all()


def row_of(s: Any, name: str) -> dict[str, Any]:
    (row,) = (r for r in s.programs.to_pylist() if r["module_name"] == name)
    return dict(row)


def found_at(s: Any, name: str) -> list[int]:
    ordinals: list[int] = s.rows(row_of(s, name)["program"])["ordinal"].to_pylist()
    return ordinals


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    (pair,) = (p for p in pairs.stored() if p.name == "cpu-remat-removed-scan")
    return pair.unpack(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def five(tmp_path_factory: pytest.TempPathFactory, sides: tuple[Path, Path]) -> xlamem.Dataset:
    """Five commits: a training step compiled again and then without remat, and small programs that come and go."""
    directory = tmp_path_factory.mktemp("five")
    before, after = sides
    f, g, h = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_h", inner(2))
    old, new = ("jit_old", outer(3)), ("jit_new", outer(9))
    small = {
        COMMITS[0]: [f, g, h, old],
        COMMITS[1]: [("jit_f", compiled_again(TEXTS, directory)), g, h],
        COMMITS[2]: [new, f, g],
        COMMITS[3]: [new, ("jit_f", CUT), g, h],
        COMMITS[4]: [new, f, g, h],
    }
    for i, (commit, programs) in enumerate(small.items()):
        written(directory / commit, programs, first=3 * i)
        if i == 1:
            write(renumbered(xlamem.read(before)), directory / commit, f"module_0044.jit_train_step.{PLATFORM}")
        else:
            shutil.copytree(before if i == 0 else after, directory / commit, dirs_exist_ok=True)
        xlamem.convert(directory / commit, to=directory / "dataset", labels={"commit": commit}, engine="here")
    return xlamem.Dataset(directory / "dataset")


# -- five commits


def test_a_jump_at_a_known_commit(five: xlamem.Dataset, sides: tuple[Path, Path]) -> None:
    s = followed(five)
    assert s.points == COMMITS
    (jump,) = s.jumps.to_pylist()
    assert (jump["module_name"], jump["point_a"], jump["point_b"]) == ("jit_train_step", "beef", "a3")
    before, after = (xlamem.peak(side).device_total for side in sides)
    assert (jump["device_total_a"], jump["device_total_b"], jump["change"]) == (before, after, after - before)
    assert jump["change"] > 0
    first = s.programs.slice(0, 1).to_pylist()[0]
    assert (first["module_name"], first["jump"], first["n_points"]) == ("jit_train_step", 0, 5)
    assert s.diff(0).device_total_change == jump["change"]
    assert re.search("jax.checkpoint", s.diff(0).verdict)


def test_a_recompile_is_no_jump(five: xlamem.Dataset) -> None:
    s = followed(five)
    rows = s.rows(row_of(s, "jit_train_step")["program"]).to_pylist()
    assert [r["how"] for r in rows[:2]] == ["new", "same"]
    assert rows[0]["content_id"] != rows[1]["content_id"]
    assert rows[1]["change"] == rows[1]["peak_change"] == 0


def test_new_gone_and_missing_programs(five: xlamem.Dataset) -> None:
    """A program that is missing at one commit comes back, and no other takes its place there."""
    s = followed(five)
    assert found_at(s, "jit_new") == [2, 3, 4]
    assert found_at(s, "jit_old") == [0]
    assert found_at(s, "jit_h") == [0, 1, 3, 4]
    assert found_at(s, "jit_g") == [0, 1, 2, 3, 4]
    assert s.programs["module_name"].to_pylist()[:3] == ["jit_train_step", "jit_old", "jit_new"]
    expected = {"programs": 6, "changed": 1, "grown": 1, "new": 1, "gone": 1, "unknown": 1, "listed": 3, "same": 3}
    assert s.counts == expected
    assert s.summary == (
        "6 programs at 5 points (commit c0ffee to e5): 1 changed (1 grew), 1 new, 1 gone, 1 not known at some points, "
        "3 without a known change."
    )


def test_a_truncated_dump_is_a_gap(five: xlamem.Dataset) -> None:
    s = followed(five)
    rows = s.rows(row_of(s, "jit_f")["program"]).to_pylist()
    assert [r["device_total"] is None for r in rows] == [False, False, False, True, False]
    assert (rows[3]["peak"], rows[3]["change"], rows[3]["problem"]) == (None, None, "it is truncated")
    assert (rows[4]["change"], rows[4]["how"]) == (0, "same")
    assert s.is_known
    assert s.has_grown


def test_it_shows_itself(five: xlamem.Dataset) -> None:
    s = xlamem.series(five, "commit")
    assert repr(s).startswith(f"<xlamem.Series: {s.summary}>\n")
    assert "jit_train_step" in repr(s)
    assert "<td" in s._repr_html_()
    with pytest.raises(xlamem.UsageError, match="no jump 1; there are 1"):
        s.diff(1)


def test_consecutive_points_are_paired_like_labels(five: xlamem.Dataset) -> None:
    """Between two points, the programs are those that `pair` pairs, except for those that only look alike."""
    s = followed(five)
    rows = s.series.to_pylist()
    for i, (a, b) in enumerate(pairwise(COMMITS[:4])):  # later, it remembers more
        found = xlamem.pair((five, {"commit": a}), (five, {"commit": b})).to_pylist()
        expected = {(r["id_a"], r["id_b"], r["how"]) for r in found if r["how"] in ("same", "interface")}
        before = {r["program"]: r for r in rows if r["ordinal"] == i}
        after = {r["program"]: r for r in rows if r["ordinal"] == i + 1}
        both = [(before[n], after[n]) for n in before.keys() & after.keys()]
        assert {(x["content_id"], y["content_id"], y["how"]) for x, y in both} == expected


# -- points


def test_order_of_points(tmp_path: Path) -> None:
    ds = converted(tmp_path, {name: [("jit_f", TEXTS)] for name in ("n10", "n9", "a1")})
    assert followed(ds).points == ("n10", "n9", "a1")
    assert followed(ds, order="name").points == ("a1", "n9", "n10")
    with pytest.raises(xlamem.UsageError, match="order must be"):
        xlamem.series(ds, "commit", order="size")  # type: ignore[arg-type]


def test_only_dates_are_ordered_by_name() -> None:
    """If one value is no date, by when they were seen."""
    value, seen_at = np.array([0, 1, 2, 1]), np.array([30, 20, 10, 5])
    assert _ordered(value, ["2026-01-01", "2026-01-02", "main"], seen_at, None)[1][-1] == "2026-01-01"
    assert _ordered(value, ["2026-01-03", "2026-01-02", "2026-01-01"], seen_at, None)[0].tolist() == [2, 1, 0]
    assert _ordered(value, ["2026-01-03", "2026-01-02", "2026-01-011"], seen_at, None)[0].tolist() == [2, 0, 1]


NIGHTS = [("2025-10-02", "2025-09-30"), ("20251002", "20250930"), ("2025-10-02 b", "2025-10-02 a")]


@pytest.mark.parametrize("nights", NIGHTS)
def test_dates_are_in_order(tmp_path: Path, nights: tuple[str, str]) -> None:
    ds = converted(tmp_path, {night: [("jit_f", TEXTS)] for night in nights}, "night")
    assert followed(ds, "night").points == tuple(sorted(nights))
    assert followed(ds, "night", order="seen").points == nights


def test_labels(tmp_path: Path) -> None:
    folder = written(tmp_path / "dumps", [("jit_f", TEXTS)])
    for commit, branch in (("1", "main"), ("2", "side"), ("3", "main")):
        xlamem.convert(folder, to=tmp_path / "to", labels={"commit": commit, "branch": branch}, engine="here")
    assert followed(tmp_path / "to", labels={"branch": "main"}).points == ("1", "3")
    with pytest.raises(xlamem.UsageError, match="no dump has the label 'night'; there are branch, commit"):
        xlamem.series(tmp_path / "to", "night")
    with pytest.raises(xlamem.UsageError, match="no dump has branch=x; there are main, side"):
        xlamem.series(tmp_path / "to", "commit", labels={"branch": "x"})
    with pytest.raises(xlamem.UsageError, match="is not a dataset"):
        xlamem.series(folder, "commit")


def test_one_point(tmp_path: Path) -> None:
    s = followed(converted(tmp_path, {"a1": [("jit_f", TEXTS), ("jit_g", inner(1))]}))
    assert s.summary == "2 programs at 1 point (commit a1): a single point cannot be compared."
    assert (s.jumps.num_rows, s.has_grown) == (0, False)


def test_a_dataset_of_version_1() -> None:
    dataset = xlamem.Dataset(DATA / "v1-dataset")
    assert dataset.label_keys
    for key in dataset.label_keys:
        s = followed(dataset, key)
        complete = {m["content_id"] for m in dataset["modules"].to_table().to_pylist() if m["complete"]}
        for row in s.series.to_pylist():
            if row["content_id"] in complete:
                assert row["problem"] == MIGRATE
                assert row["device_total"] is not None
        ids = set(read_points(dataset, key, {}, None).contents.table["id"].to_pylist())
        assert set(s.series["content_id"].to_pylist()) <= ids


# -- which program is which


def test_a_hidden_regression(tmp_path: Path) -> None:
    """One of 60 programs of one name grows at the third of four points, and all have other numbers everywhere."""
    programs = [("jit_f", inner(i)) for i in range(60)]
    tripled = larger(inner(31), GROWTH)
    grown = [*programs[:31], ("jit_f", tripled), *programs[32:]]
    s = followed(converted(tmp_path, {"1": programs, "2": programs, "3": grown, "4": grown}))
    assert [(r["point_a"], r["point_b"], r["change"]) for r in s.jumps.to_pylist()] == [("2", "3", GROWTH)]
    assert s.rows(0)["module_id"].to_pylist() == [31, 34, 37, 40]
    assert s.counts == {**dict.fromkeys(("new", "gone", "unknown"), 0), "programs": 60, "same": 59,
                        "changed": 1, "grown": 1, "listed": 1}  # fmt: skip


def test_all_change_at_once(tmp_path: Path) -> None:
    """A new compiler: similarity tells which program is which."""
    old = [("jit_f", inner(i)) for i in range(12)]
    new = [(n, replaced(t, "live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36")) for n, t in reversed(old)]
    s = followed(converted(tmp_path, {"1": old, "2": new}))
    ids = s.series["module_id"].to_pylist()
    assert {tuple(ids[i : i + 2]) for i in range(0, 24, 2)} == {(i, 3 + 11 - i) for i in range(12)}


def test_there_and_back(tmp_path: Path) -> None:
    f, g, big = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_f", BIG)
    s = followed(converted(tmp_path, {"0": [f, g], "1": [big, g], "2": [f, g]}))
    assert [(r["point_a"], r["point_b"], r["change"]) for r in s.jumps.to_pylist()] == [
        ("0", "1", GROWTH), ("1", "2", -GROWTH),
    ]  # fmt: skip
    assert s.programs["jump"].to_pylist() == [0, None]
    assert not s.has_grown


def test_changed_while_missing(tmp_path: Path) -> None:
    """The jump is between the points at which the program is known."""
    f, g, big = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_f", BIG)
    s = followed(converted(tmp_path, {"1": [f, g], "2": [g], "3": [g], "4": [g, big]}))
    assert found_at(s, "jit_f") == [0, 3]
    (jump,) = s.jumps.to_pylist()
    assert (jump["ordinal_a"], jump["ordinal_b"], jump["how"]) == (0, 3, "interface")


def test_a_renamed_program(tmp_path: Path) -> None:
    f, g, other = ("jit_f", TEXTS), ("jit_g", outer(5)), ("jit_renamed", TEXTS)
    s = followed(converted(tmp_path, {"1": [f, g], "2": [g, other], "3": [g, other]}))
    assert s.counts["programs"] == 2
    assert found_at(s, "jit_renamed") == [0, 1, 2]


def test_copies(tmp_path: Path) -> None:
    """A program that is compiled more often is no new one, but one of its copies that changes has its own numbers."""
    f, g, big = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_f", BIG)
    s = followed(converted(tmp_path, {"1": [f, g], "2": [f, g, f], "3": [f, f, g, f], "4": [f, g]}))
    assert s.counts["programs"] == 2
    assert s.counts["same"] == 2
    assert s.rows(row_of(s, "jit_f")["program"])["occurrences"].to_pylist() == [1, 2, 3, 1]
    s = followed(converted(tmp_path / "changed", {"1": [f, g, f], "2": [f, g, big], "3": [f, g, big]}))
    assert (s.counts["programs"], s.counts["changed"]) == (3, 1)
    assert s.rows(0)["occurrences"].to_pylist() == [1, 1, 1]


def test_processes_count_once(tmp_path: Path) -> None:
    for commit, texts in (("1", TEXTS), ("2", BIG)):
        for host in "xyz":
            written(tmp_path / commit / host, [("jit_f", texts)])
        xlamem.convert(tmp_path / commit, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    s = followed(tmp_path / "to")
    assert s.series["occurrences"].to_pylist() == [3, 3]
    assert s.jumps["change"].to_pylist() == [GROWTH]


def test_unreadable_and_truncated_everywhere(tmp_path: Path) -> None:
    """Programs without numbers have no jumps, and one that was unreadable for a while is the same as before."""
    broken = dict.fromkeys(TEXTS, "nothing\n")
    f, g, cut = ("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_c", CUT)
    lost = [("jit_f", broken), ("jit_g", {**broken, "live-range": "none\n"})]
    s = followed(converted(tmp_path, {"1": [f, g, cut], "2": [*lost, cut], "3": [g, f, cut]}))
    assert s.counts["programs"] == 3
    assert s.jumps.num_rows == 0
    assert s.rows(row_of(s, "jit_c")["program"])["device_total"].to_pylist() == [None] * 3
    for name in ("jit_f", "jit_g"):
        rows = s.rows(row_of(s, name)["program"]).to_pylist()
        assert [r["how"] for r in rows] == ["new", "name", "same"]
        assert rows[1]["device_total"] is None
        assert "cannot be read" in rows[1]["problem"]
    assert not s.is_known


def test_text_that_cannot_be_loaded(tmp_path: Path) -> None:
    """A broken file is in quarantine only, and has a row at the point of its run, and on its side of a pair."""
    f, g = ("jit_f", TEXTS), ("jit_g", inner(1))
    for i, commit in enumerate("123"):
        folder = written(tmp_path / commit, [g, f])
        if i == 1:
            for path in folder.glob("module_0001.*"):
                path.unlink()
            (folder / f"module_0001.jit_f.{PLATFORM}-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
        xlamem.convert(folder, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    s = followed(tmp_path / "to")
    rows = s.rows(row_of(s, "jit_f")["program"]).to_pylist()
    assert [(r["how"], r["device_total"] is None) for r in rows] == [("new", False), ("name", True), ("same", False)]
    assert "cannot be read" in rows[1]["problem"]
    assert (s.counts["programs"], s.counts["unknown"], s.is_known) == (2, 1, True)
    sides = [[r["how"] for r in xlamem.pair((tmp_path / "to", {"commit": "1"}), (tmp_path / "to", {"commit": c}))
              .to_pylist()] for c in "23"]  # fmt: skip
    assert sides == [["same", "name"], ["same", "same"]]


@pytest.mark.parametrize("listed", [20, 0])
def test_text_in_quarantine_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int) -> None:
    """A run that finds a broken file again does not try it again, also if it does not record all that it searched."""
    monkeypatch.setattr(driver, "MAX_SOURCES", listed)
    folder = written(tmp_path / "in", [("jit_g", inner(1)), ("jit_f", TEXTS)])
    for path in folder.glob("module_0001.*"):
        path.unlink()
    (folder / f"module_0001.jit_f.{PLATFORM}-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
    for night in "12":
        xlamem.convert(folder, to=tmp_path / "to", labels={"night": night}, engine="here")
    other = written(tmp_path / "elsewhere", [("jit_g", inner(1))])
    xlamem.convert(other, to=tmp_path / "to", labels={"night": "3"}, engine="here")
    s = followed(tmp_path / "to", "night")
    (rows,) = (s.rows(p["program"]).to_pylist() for p in s.programs.to_pylist() if not p["n_known"])
    assert [(r["point"], "cannot be read" in r["problem"]) for r in rows] == [("1", True), ("2", True)]
    assert s.counts["gone"] == 1  # in the third night, another folder was searched
    sides = [(tmp_path / "to", {"night": night}) for night in "12"]
    assert [r["how"] for r in xlamem.pair(*sides).to_pylist()] == ["same", "same"]


def test_programs_keep_their_folders(tmp_path: Path) -> None:
    """Two programs that cannot be told apart by what they contain are told apart by their folders."""
    def small(end: int) -> dict[str, str]:
        return replaced(TEXTS, "live-range", "wrapped_clamp{}:8-37", f"wrapped_clamp{{}}:8-{end}")

    def grown(texts: Texts) -> dict[str, str]:
        return larger(texts, GROWTH)

    commits = {"1": {"eval": small(20), "train": small(21)}, "2": {"train": grown(small(22)), "eval": small(23)}}
    for commit, folders in commits.items():
        for i, (folder, texts) in enumerate(folders.items()):
            written(tmp_path / commit / folder, [("jit_f", texts)], first=i)
        written(tmp_path / commit / "eval", [("jit_g", inner(1))], first=7)
        xlamem.convert(tmp_path / commit, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    s = followed(tmp_path / "to")
    (jump,) = s.jumps.to_pylist()
    uris = {r["content_id"]: r["uri"] for r in xlamem.Dataset(tmp_path / "to").dumps().to_pylist()}
    assert [Path(uris[jump[f"content_id_{side}"]]).parent.name for side in "ab"] == ["train", "train"]


def test_unchanged_programs_around_tell_the_order(tmp_path: Path) -> None:
    """Of programs with the same instructions, those between the same unchanged programs are pairs."""
    def twin(end: int) -> Named:
        return "jit_f", replaced(TEXTS, "live-range", "wrapped_clamp{}:8-37", f"wrapped_clamp{{}}:8-{end}")

    same = [("jit_g", inner(i)) for i in range(40)]
    before = [twin(20), *same[:20], twin(21), *same[20:], twin(22)]
    after = [*same[:20], twin(31), *same[20:], twin(32)]
    s = followed(converted(tmp_path, {"1": before, "2": after}))
    rows = [r for r in s.series.to_pylist() if r["module_name"] == "jit_f"]
    chains = {tuple(r["module_id"] for r in rows if r["program"] == n) for n in {r["program"] for r in rows}}
    assert chains == {(0,), (21, 3 + 20), (42, 3 + 41)}
