"""Points, programs that are followed and their jumps, and rules of a comparison, on tables made by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import record, value
from conftest import DUMPS
from stored import check

import xlamem
from xlamem.compare import account, difference, doubts, edits, following, points, programs, quarantined, series
from xlamem.compare.account import Account, accounts, buffers_at, levels
from xlamem.compare.context import Edit
from xlamem.compare.following import HOW, NEW, SAME, Following
from xlamem.compare.interface import Interface, arguments
from xlamem.compare.matching import Matching
from xlamem.compare.points import Contents, Points
from xlamem.compare.program_edits import _heaviest, _lines_of, _outermost
from xlamem.compare.rows import Shape, shape_text
from xlamem.compute.program import program
from xlamem.errors import UsageError


def array(values: Any) -> Any:
    return np.array(values, np.int64)


# -- points --------------------------------------------------------------------------------------


def contents(keys: list[int], interfaces: list[int] | None = None, known: list[bool] | None = None) -> Contents:
    n = len(keys)
    table = pa.table({"id": pa.array([f"c{i}" for i in range(n)], pa.string()),
                      "module_name": pa.array(["jit_f"] * n, pa.string()),
                      "program_fp": pa.array([f"p{k}" for k in keys], pa.string()),
                      "interface_fp": pa.array([f"i{k}" for k in interfaces or keys], pa.string()),
                      "problem": pa.nulls(n, pa.string())})  # fmt: skip
    sizes = array([100 + k for k in keys])
    has = np.array(known if known is not None else [True] * n, bool)
    return Contents(table, array(keys), array(interfaces or keys), sizes, sizes, has)


def test_programs_at_points() -> None:
    """Within a folder each dump counts, over folders and runs a program counts once; in order of compilation."""
    chance = random.Random(3)
    c = contents([0, 1, 1, 2])
    for _ in range(60):
        n = chance.randrange(9)
        point, content = ([chance.randrange(k) for _ in range(n)] for k in (2, 4))
        uris = [chance.choice((None, "/d/a/x", "/d/a/y", "/d/b/x")) for _ in range(n)]
        ids = [chance.choice((None, 0, 1, 12)) for _ in range(n)]
        offsets = [chance.choice((None, 0, 7)) for _ in range(n)]
        rows = pa.table({"uri": pa.array(uris, pa.string()), "module_id": pa.array(ids, pa.int64()),
                         "offset": pa.array(offsets, pa.int64())})  # fmt: skip
        found = points._distinct(rows, array(point), array(content), c, ("p", "q"))
        order = [(point[i], ids[i] is None, ids[i] or 0, uris[i] is None, uris[i] or "", i) for i in range(n)]
        dumps = sorted(range(n), key=order.__getitem__)
        seen, in_folder, programs_of = set(), Counter[Any](), {}
        for i in dumps:
            key = int(c.key[content[i]])
            place = point[i], key, uris[i], offsets[i]
            if uris[i] is not None and place in seen:
                continue
            seen.add(place)
            folder = point[i], key, uris[i] and uris[i].rpartition("/")[0]
            in_folder[folder] += 1
            programs_of.setdefault((point[i], key, in_folder[folder]), []).append(i)
        wanted = [(point[own[0]], content[own[0]], -1 if ids[own[0]] is None else ids[own[0]], len(own), uris[own[0]])
                  for own in sorted(programs_of.values(), key=lambda own: dumps.index(own[0]))]  # fmt: skip
        columns = found.point, found.content, found.module_id, found.occurrences
        assert [*zip(*(x.tolist() for x in columns), found.uri.to_pylist(), strict=True)] == wanted
        for k in range(2):
            assert found.point[found.at(k)].tolist() == [k] * wanted_at(wanted, k)
            own = [w[4] for w in wanted if w[0] == k]
            assert found.folders_of(found.at(k)) == programs.relative_folders(
                [(uri or "").rpartition("/")[0] for uri in own]
            )


def wanted_at(rows: list[Any], point: int) -> int:
    return sum(row[0] == point for row in rows)


def runs(**options: Any) -> list[str]:
    rows = [("1", "commit", "a"), ("1", "branch", "main"), ("2", "commit", "b"), ("2", "branch", "dev"),
            ("3", "commit", "c"), ("4", "branch", "main"), ("5", "commit", "a"),
            ("5", "branch", "main"), ("5", "host", "x")]  # fmt: skip
    columns = zip(*rows, strict=True)
    table = pa.table(dict(zip(("run_id", "key", "value"), (pa.array(list(c)) for c in columns), strict=True)))
    stored = SimpleNamespace(to_table=lambda **_: table)
    dataset: Any = SimpleNamespace(label_keys=["branch", "commit", "host"])
    dataset_type = type("Stored", (SimpleNamespace,), {"__getitem__": lambda _, name: stored})
    found = points._runs(dataset_type(**vars(dataset)), options.pop("over", "commit"), options)  # type: ignore[arg-type]
    return [f"{r['run_id']}={r['value']}" for r in found.to_pylist()]


def test_runs_with_labels() -> None:
    assert runs() == ["1=a", "2=b", "3=c", "5=a"]
    assert runs(branch="main") == ["1=a", "5=a"]
    assert runs(branch="main", host="x") == ["5=a"]
    assert runs(over="branch", commit="b") == ["2=dev"]
    with pytest.raises(UsageError, match="no dump has branch=main2; did you mean 'main'"):
        runs(branch="main2")
    with pytest.raises(UsageError, match="no dump has the label 'hosts'; did you mean 'host'"):
        runs(hosts="x")
    with pytest.raises(UsageError, match="no dump has the label 'comit'"):
        runs(over="comit")


# -- following -----------------------------------------------------------------------------------


def made_points(rows: list[tuple[int, int]], c: Contents, occurrences: list[int] | None = None) -> Points:
    n = len(rows)
    point, content = (array([r[i] for r in rows]) for i in range(2))
    uris = pa.chunked_array([pa.array([f"/d/{i}" for i in range(n)], pa.string())])
    names = tuple(f"p{i}" for i in range(max(point, default=-1) + 1))
    return Points(names, c, point, content, array([-1] * n), array(occurrences or [1] * n), uris, pa.array([""] * n))


def followed(rows: list[tuple[int, int]], c: Contents, occurrences: list[int] | None = None) -> Following:
    """Follow programs whose instructions are all alike."""
    dataset: Any = None
    made = Following.__new__(Following)
    none = programs.no_sketches(1)[0]
    stored = SimpleNamespace(of=lambda ids: np.stack([none for _ in ids]), dataset=dataset)
    original = Following.__init__.__globals__["_StoredSketches"]
    Following.__init__.__globals__["_StoredSketches"] = lambda _: stored
    try:
        made.__init__(made_points(rows, c, occurrences), dataset)  # type: ignore[misc]
    finally:
        Following.__init__.__globals__["_StoredSketches"] = original
    return made


def test_programs_with_equal_fingerprints_are_followed_in_order() -> None:
    """One that was missing is found again; of copies, the first is kept, with the dumps of all."""
    c = contents([0, 1, 2])
    f = followed([(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)], c)
    assert (f.program.tolist(), f.kept.all()) == ([0, 1, 1, 0, 1], True)
    assert [HOW[h] for h in f.how] == ["new", "new", "same", "same", "same"]
    assert f.score.tolist()[2:] == [1, 1, 1]
    f = followed([(0, 0), (0, 0), (1, 0), (1, 0), (1, 2)], c, [3, 4, 5, 6, 7])
    assert (f.program.tolist(), f.kept.tolist()) == ([0, 0, 0, 0, 1], [True, False, True, False, True])
    assert [n for n, kept in zip(f.occurrences.tolist(), f.kept, strict=True) if kept] == [7, 11, 7]
    f = followed([(0, 0), (0, 0), (1, 0), (2, 0), (2, 0)], c, [1, 2, 4, 8, 16])
    assert f.program.tolist() == [0, 0, 0, 0, 0]
    assert [n for n, kept in zip(f.occurrences.tolist(), f.kept, strict=True) if kept] == [3, 4, 24]


def test_a_program_that_changed_is_no_copy() -> None:
    """Two programs that cannot be told apart at one point only are two."""
    c = contents([0, 1, 2], [5, 5, 5])
    f = followed([(0, 0), (0, 0), (1, 0), (1, 1)], c)
    assert len({*f.program.tolist()}) == 2
    assert f.kept.all()
    assert f.how.tolist()[:3] == [NEW, NEW, SAME]


def test_programs_are_paired_in_the_order_of_the_point_before() -> None:
    """In which they were found there, not in that in which they appeared."""
    c = contents([0, 1, 2, 3], [5, 5, 5, 5])
    f = followed([(0, 0), (0, 1), (1, 1), (1, 0), (2, 2), (2, 3)], c)
    assert f.program.tolist() == [0, 1, 1, 0, 1, 0]
    f = followed([(0, 0), (0, 1), (1, 1), (1, 0), (3, 2), (3, 3)], c)
    assert f.program.tolist() == [0, 1, 1, 0, 1, 0]


def test_the_order_of_both_points_tells_changed_programs_apart() -> None:
    """The last program became the one with a single unchanged program in between, not the one behind three of them."""
    c = contents([0, 1, 2, 3, 4, 5, 6], [10, 11, 12, 5, 5, 5, 16])
    f = followed([(0, 1), (0, 2), (0, 0), (0, 3), (1, 4), (1, 0), (1, 1), (1, 6), (1, 2), (1, 5)], c)
    assert f.program.tolist() == [0, 1, 2, 3, 3, 2, 0, 4, 1, 5]


def test_a_damaged_dump_does_not_hide_an_interface_that_comes_back() -> None:
    """What looks like the program under another name meanwhile is another one."""
    c = contents([0, 1, 2], [0, -1, 1], [True, False, True])
    columns = {"module_name": ["jit_f", "jit_f", "jit_g"], "program_fp": ["p0", None, "p0"],
               "interface_fp": ["i0", None, "i1"]}  # fmt: skip
    table = c.table
    for name, texts in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
    c = replace(c, table=table)
    assert followed([(0, 0), (1, 1), (2, 2), (3, 0)], c).program.tolist() == [0, 0, 1, 0]
    assert followed([(0, 0), (1, 1), (2, 2)], c).program.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("old", "new", "before", "row", "renamed"),
    [
        (0, 1, 0, 1, True), (0, 1, 0, 3, False), (2, 1, 4, 3, False), (-1, -1, 6, 7, True), (0, -1, 0, 7, True),
        (-1, 3, 6, 5, True),
    ],
)  # fmt: skip
def test_whether_a_program_is_renamed(old: int, new: int, before: int, row: int, renamed: bool) -> None:
    """The old interface never comes back, and the new one was never there before."""
    interfaces = [0, 1, 2, 1, 2, 3, -1, -1]
    at = [0, 1, 1, 2, 1, 2, 1, 2]
    own: Any = SimpleNamespace(
        points=SimpleNamespace(point=array(at), content=np.arange(8),
                               contents=SimpleNamespace(interface=array(interfaces))),
        _begin=array([0, 1, 1, 2]), _end=array([0, 2, 2, 2]),
    )  # fmt: skip
    assert (interfaces[before], interfaces[row]) == (old, new)
    assert Following._is_renamed(own, before, row) is renamed


@pytest.mark.parametrize("changed", [0, 1])
@pytest.mark.parametrize(("ends", "begins", "renamed"), [(1, 1, True), (2, 1, False), (1, 0, False), (2, 0, False)])
def test_whichever_interface_comes_back(changed: int, ends: int, begins: int, renamed: bool) -> None:
    """Also the first one of all."""
    order = [0, 1] if changed else [1, 0]
    own: Any = SimpleNamespace(
        points=SimpleNamespace(point=array([0, 1]), content=np.arange(2),
                               contents=SimpleNamespace(interface=array(order))),
        _begin=array([0, begins])[order], _end=array([ends, 2])[order],
    )  # fmt: skip
    assert Following._is_renamed(own, 0, 1) is renamed


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [("jit_f", "jit_f", True), ("jit_f.1", "jit_f.22", True), ("jit_f", "jit_g", False), (None, "jit_f", False),
     ("jit_f", None, False), (None, None, True), (None, "", True)],
)  # fmt: skip
def test_names_of_one_program(a: str | None, b: str | None, same: bool) -> None:
    """They may have other numbers, or be unknown."""
    programs_of: list[Any] = [SimpleNamespace(module_name=name) for name in (a, b)]
    assert following._has_same_name(*programs_of) is same


# -- series --------------------------------------------------------------------------------------


def series_of(rows: list[tuple[int, int, int, int]], n_points: int) -> Any:
    """Return a series of (program, point, device_total, peak); -1 is not known."""
    made = series._Rows.__new__(series._Rows)
    made.program, made.ordinal, made.total, made.peak = (array([r[i] for r in rows]) for i in range(4))
    made.names = pa.array([f"p{i}" for i in range(n_points)])
    n = len(rows)
    names = [f"jit_{r[0]}" for r in rows]
    made.texts = pa.table({"id": pa.array([f"c{i}" for i in range(n)]), "module_name": pa.array(names),
                           "problem": pa.nulls(n, pa.string())})  # fmt: skip
    made.content, made.module_id = np.arange(n), array([7] * n)
    made.how, made.score, made.occurrences = array([0] * n), np.full(n, np.nan), array([1] * n)
    made.first = np.flatnonzero(np.diff(made.program, prepend=-1))
    made.last = np.append(made.first[1:], n)[: len(made.first)] - 1
    made.before = made._before()
    jumps, biggest = series._jumps(made)
    table, number = series._programs(made, jumps, biggest)
    jumps = jumps.set_column(0, jumps.schema.field(0), pa.array(number[jumps["program"].to_numpy()]))
    none: Any = None
    points = tuple(f"p{i}" for i in range(n_points))
    return series.Series("commit", points, table, series._series(made, number), jumps, none)


def test_jumps() -> None:
    """By change of what must fit, then of the peak, then in order of points and programs."""
    s = series_of(
        [(0, 0, 5, 5), (0, 1, 5, 5), (0, 2, 9, 4), (1, 0, 9, 9), (1, 1, 5, -1), (1, 2, 5, 9), (2, 0, 5, 5),
         (2, 1, -1, -1), (2, 2, 9, 4), (3, 0, 5, 5), (3, 1, 5, 7), (4, 1, 100, 100)], 3,
    )  # fmt: skip
    names = ("module_name", "ordinal_a", "ordinal_b", "change", "peak_change", "device_total_a", "device_total_b")
    assert [tuple(r[n] for n in names) for r in s.jumps.to_pylist()] == [
        ("jit_0", 1, 2, 4, -1, 5, 9), ("jit_2", 0, 2, 4, -1, 5, 9), ("jit_1", 0, 1, -4, None, 9, 5),
        ("jit_3", 0, 1, 0, 2, 5, 5),
    ]  # fmt: skip
    assert [(r["peak_a"], r["peak_b"], r["content_id_a"], r["content_id_b"]) for r in s.jumps.to_pylist()] == [
        (5, 4, "c1", "c2"), (5, 4, "c6", "c8"), (9, None, "c3", "c4"), (5, 7, "c9", "c10"),
    ]  # fmt: skip
    names = ("module_name", "n_points", "n_known", "ordinal_first", "ordinal_last", "device_total_first",
             "device_total_last", "peak_first", "peak_last", "jump")  # fmt: skip
    assert [tuple(r[n] for n in names) for r in s.programs.to_pylist()] == [
        ("jit_0", 3, 3, 0, 2, 5, 9, 5, 4, 0), ("jit_2", 3, 2, 0, 2, 5, 9, 5, 4, 1),
        ("jit_1", 3, 3, 0, 2, 9, 5, 9, 9, 2), ("jit_3", 2, 2, 0, 1, 5, 5, 5, 7, 3),
        ("jit_4", 1, 1, 1, 1, 100, 100, 100, 100, None),
    ]  # fmt: skip
    assert s.counts == {
        "programs": 5, "changed": 4, "grown": 3, "new": 1, "gone": 2, "listed": 5, "unknown": 2, "same": 0,
    }  # fmt: skip
    assert s.rows(1)["device_total"].to_pylist() == [5, None, 9]
    assert [s.first(n).num_rows for n in range(6)] == [0, 3, 6, 9, 11, 12]
    assert s.series["program"].to_pylist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 2 + [4]
    assert s.series["change"].to_pylist() == [None, 0, 4, None, None, 4, None, -4, 0, None, 0, None]
    assert s.summary == (
        "5 programs at 3 points (commit p0 to p2): 4 changed (3 grew), 1 new, 2 gone, 2 not known at some points, "
        "0 without a known change."
    )


def test_the_largest_jump_of_a_program() -> None:
    s = series_of([(0, 0, 5, 5), (0, 1, 9, 5), (0, 2, 20, 5), (1, 0, 50, 5), (1, 1, 30, 5), (1, 2, 31, 5)], 3)
    assert [(r["module_name"], r["change"]) for r in s.jumps.to_pylist()] == [
        ("jit_1", -20), ("jit_0", 11), ("jit_0", 4), ("jit_1", 1),
    ]  # fmt: skip
    by_name = {r["module_name"]: s.jumps["change"][r["jump"]].as_py() for r in s.programs.to_pylist()}
    assert by_name == {"jit_1": -20, "jit_0": 11}


def test_programs_without_a_change() -> None:
    """New and gone ones first, then by what must fit."""
    s = series_of([(0, 0, 9, 1), (0, 1, 9, 1), (1, 0, 99, 1), (1, 1, 99, 1), (2, 1, 1, 1), (3, 0, 2, 1), (4, 0, -1, 3),
                   (4, 1, -1, 3)], 2)  # fmt: skip
    assert [(r["module_name"], r["device_total_last"]) for r in s.programs.to_pylist()] == [
        ("jit_3", 2), ("jit_2", 1), ("jit_1", 99), ("jit_0", 9), ("jit_4", None),
    ]  # fmt: skip
    assert s.summary.endswith(": 0 changed, 1 new, 1 gone, 1 not known at some points, 3 without a known change.")
    single = series_of([(0, 0, 9, 1)], 1)
    assert single.summary == "1 program at 1 point (commit p0): a single point cannot be compared."
    assert not s.has_grown
    with pytest.raises(UsageError, match="no jump 0; there are 0"):
        s.diff(0)
    one = series_of([(0, 0, 9, 1), (0, 1, 10, 1)], 2)
    for jump in (1, -1):
        with pytest.raises(UsageError, match=f"no jump {jump}; there are 1"):
            one.diff(jump)


def test_random_series() -> None:
    """Their tables, counts and words are those of before."""
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(2)
        for n in range(30):
            n_points = chance.randint(1, 4)
            at = [sorted(chance.sample(range(n_points), chance.randint(1, n_points))) for _ in range(4)]
            rows = [
                (p, k, chance.choice((-1, 0, 5, 5, 9, 20)), chance.choice((-1, 0, 3, 3, 8)))
                for p, present in enumerate(at) for k in present
            ]  # fmt: skip
            s = series_of(rows, n_points)
            yield f"{n} summary", [s.summary, s.counts, s.is_known, s.has_grown]
            yield f"{n} tables", [table.to_pylist() for table in (s.programs, s.series, s.jumps, s.unknown)]
            yield f"{n} view", repr(s)

    check("compare/random-series", results())


def test_random_programs_at_points() -> None:
    """They are followed as they were before."""
    def results() -> Iterator[tuple[str, Any]]:
        chance = random.Random(6)
        for n in range(50):
            k = chance.randint(1, 5)
            keys, interfaces = ([chance.randrange(top) for _ in range(k)] for top in (4, 2))
            c = contents(keys, interfaces, [chance.random() < 0.8 for _ in range(k)])
            rows = [(p, chance.randrange(k)) for p in range(4) for _ in range(chance.randint(0, 3))]
            f = followed([(p - rows[0][0] if rows else 0, i) for p, i in rows], c, [i + 1 for i in range(len(rows))])
            yield f"{n}", [f.program.tolist(), f.how.tolist(), f.kept.tolist(), f.occurrences.tolist()]

    check("compare/followed", results())


def test_a_series_in_a_terminal() -> None:
    many = [(p, k, 10 + (20 - p) * k, 10 + k) for p in range(12) for k in range(2)]
    lines = repr(series_of(many, 2)).splitlines()
    assert lines[2].split() == ["jit_0", "10", "B", "30", "B", "p0", "p1", "+20", "B", "+1", "B"]
    assert len([line for line in lines if "jit_" in line]) == 10
    assert "and 2 more programs: the attribute programs has all" in lines[-1]
    assert "and 1 more program: " in repr(series_of(many[:22], 2))
    assert "more program" not in repr(series_of(many[:20], 2))


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["a" * 12, "b" * 12], ["a" * 7, "b" * 7]),
        (["a" * 12, "a" * 9 + "bbb"], ["a" * 10, "a" * 9 + "b"]),
        (["a" * 12, "a" * 9 + "bbb", "a" * 9 + "bbc"], ["a" * 12, "a" * 9 + "bbb", "a" * 9 + "bbc"]),
        (["a" * 12, "main"], ["a" * 12, "main"]),
        (["a" * 11, "b" * 12], ["a" * 11, "b" * 12]),
    ],
)
def test_short_hashes(names: list[str], short: list[str]) -> None:
    none: Any = None
    assert series.Series("c", tuple(names), none, none, none, none).short_points == short


# -- doubts, quarantine and edits ----------------------------------------------------------------


class Tables(dict[str, Any]):
    def count_rows(self, name: str) -> int:
        return self["n"] if name == "live_ranges" else 0


@pytest.mark.parametrize(
    ("complete", "understood", "ranges", "codes", "doubt"),
    [
        (True, True, 1, [], ""),
        (False, True, 1, [], "is truncated"),
        (None, True, 1, [], "is truncated"),
        (True, False, 1, [("unknown_line", "allocations")], "has lines about values that were not understood"),
        (True, False, 1, [("unknown_line", "live ranges")], "has lines about values that were not understood"),
        (True, False, 0, [("unknown_line", "allocations")], ""),
        (True, False, 1, [("unknown_line", "hlo")], ""),
        (True, False, 1, [("other", "allocations")], ""),
        (True, True, 1, [("unknown_line", "allocations")], ""),
        (True, True, 1, [("other", "x"), ("range_outside", "x")], "has live ranges that contradict its allocations"),
        (True, True, 1, [("live_range_missing", "x")], "has live ranges that contradict its allocations"),
        (True, True, 1, [("live_range_unmatched", "x")], "has live ranges that contradict its allocations"),
    ],
)
def test_doubts(
    complete: Any, understood: bool, ranges: int, codes: list[Any], doubt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubts, "reason_for_doubt", lambda _: "")
    columns = list(zip(*codes, strict=True)) or [[], []]
    names = ("code", "section")
    diagnostics = pa.table({n: pa.array(list(c), pa.string()) for n, c in zip(names, columns, strict=True)})
    modules = pa.table({"complete": pa.array([complete], pa.bool_()), "understood": pa.array([understood])})
    tables: Any = Tables(modules=modules, diagnostics=diagnostics, n=ranges)
    assert doubts.doubt_of_numbers(tables) == doubt
    monkeypatch.setattr(doubts, "reason_for_doubt", lambda _: "because")
    assert doubts.doubt_of_numbers(tables) == "is not known: because"


def test_dumps_that_are_proven() -> None:
    modules = {"n_diagnostics": pa.chunked_array([[0, 1, 0, None]]), "total_bytes": pa.chunked_array([[5, 5, None, 5]])}
    assert doubts.are_proven(modules).to_pylist() == [True, False, False, False]


@pytest.mark.parametrize(("sides", "doubt"), [(("", ""), ""), (("x", "y"), "A x"), (("", "y"), "B y")])
def test_the_first_side_in_doubt_is_named(sides: tuple[str, str], doubt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(difference, "doubt_of_numbers", lambda tables: tables)
    monkeypatch.setattr(difference, "doubt_of_peak", lambda p: p.peak)
    a, b = (SimpleNamespace(tables=text, peak="") for text in sides)
    assert difference._doubt(a, b) == doubt  # type: ignore[arg-type]
    a, b = (SimpleNamespace(tables=text, peak="peak") for text in ("numbers", ""))
    assert difference._doubt(a, b) == "A numbers"  # type: ignore[arg-type]
    assert difference._doubt(b, a) == "A peak"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row", "run", "found"),
    [
        ({}, {}, True),
        ({"converted_at": 5}, {}, False),
        ({"converted_at": 6}, {}, False),
        ({"host": "other"}, {}, False),
        ({"host": "other", "uri": "s3://b/x"}, {}, True),
        ({"uri": "/elsewhere/x"}, {}, False),
        ({"uri": "/elsewhere/x"}, {"n_sources": 2}, True),
        ({}, {"known": 0}, False),
        ({}, {"options": None}, False),
    ],
)
def test_text_in_quarantine_that_a_later_run_found(
    row: dict[str, Any], run: dict[str, Any], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    sources = ["/d"] if "s3" not in str(row) else ["s3://b"]
    options = json.dumps({"sources": sources, "n_sources": run.pop("n_sources", 1)})
    runs = pa.table({"run_id": ["2"], "host": ["h"], "started_at": [5], "known": [run.get("known", 3)],
                     "options": pa.array([run.get("options", options)], pa.string())})  # fmt: skip
    rows = pa.Table.from_pylist([{"uri": "/d/x", "run_id": "1", "converted_at": 4, "host": "h", **row}])
    stored = SimpleNamespace(to_table=lambda **_: runs)
    dataset: Any = type("Stored", (), {"__getitem__": lambda _, name: stored})()
    monkeypatch.setattr(quarantined, "is_one_of", lambda *_: None)
    skipped = quarantined._skipped(dataset, rows, pa.array(["2"])).to_pylist()
    assert skipped == ([{**rows.to_pylist()[0], "run_id": "2", "converted_at": 5}] if found else [])


def test_the_first_edit_explains_a_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    claims = {"flags": [1, 1, 0, 0], "layers": [0, 1, 1, 0]}
    made = [Edit(kind, kind, np.array(rows, bool), "names") for kind, rows in claims.items()]
    monkeypatch.setattr(edits, "RULES", [lambda _, e=e: iter([e]) for e in made])
    left: list[Any] = []

    def of_rest(_: Any, rest: Any) -> Any:
        left.append(rest.tolist())
        return iter([Edit("dimensions", "dimensions", rest, "buffers")])

    monkeypatch.setattr(edits, "RULES_OF_REST", [of_rest])
    monkeypatch.setattr(edits, "Context", lambda *_: SimpleNamespace(has_names=True, other_chip=None))
    rows: Any = SimpleNamespace(n=4)
    none: Any = None
    assert edits.find_edits(none, rows)[1].tolist() == [0, 0, 1, 2]
    assert left == [[False, False, False, True]]


def test_the_table_of_edits() -> None:
    """Largest change first; only buffers of device_total count."""
    table = pa.table({"account": ["device_total", "device_total", "hbm", "device_total"], "change": [1, -5, 99, 2]})
    found = [Edit(kind, kind, np.zeros(4, bool), "names") for kind in ("flags", "layers", "loops")]
    edits_table, number = difference._edit_table(found, array([0, 1, 2, -1]), table)
    assert [(r["edit"], r["kind"], r["change"], r["n"]) for r in edits_table.to_pylist()] == [
        (0, "layers", -5, 1), (1, "flags", 1, 1), (2, "loops", 0, 0),
    ]  # fmt: skip
    assert number.tolist() == [1, 0, 2, -1]


def test_names_of_operations() -> None:
    assert _outermost({"a/b", "a/b/c", "d"}) == {"a/b", "d"}
    weights = {"a": 5, "a/b": 7, "ab": 100, "c/d": 12, "e": 12}
    assert _heaviest({"a", "c", "e", "ab", "f"}, weights) == ["ab", "a", "c", "e", "f"]
    assert _heaviest({"a", "b"}, {"a/x": 5, "b/x": 5}) == ["a", "b"]
    assert _heaviest({"a", "b"}, {"a/x": 4, "b/x": 5, "c": 9}) == _heaviest({"a", "b"}, {"b": 1}) == ["b", "a"]
    assert shape_text(Shape("f32", (2, 3))) == "f32[2,3]"
    lines = Counter({"x/mlp/dot": 2, "mlp/dot": 3, "x/attn/dot": 5, "adot": 7})
    around = {"mlp"}, {""}, {"attn", "x"}, {"y"}
    assert [_lines_of({"dot": scopes}, lines)["dot"] for scopes in around] == [5, 10, 7, 0]


# -- accounts, arguments and outputs -------------------------------------------------------------


def spaces(*names: tuple[str, int, int]) -> Any:
    made = [SimpleNamespace(name=name, color=color, page=page) for name, color, page in names]
    return SimpleNamespace(spaces=made, tables=SimpleNamespace(platform="tpu"))


def test_order_of_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By color and page; spaces of both sides, of which one may lack some."""
    a = spaces(("vmem", 1, 0), ("hbm", 0, 1), ("hbm", 0, 0), ("x", 9, 0))
    b = spaces(("hbm", 0, 0), ("smem", 3, 0), ("x", 2, 0))
    found = accounts(a, b)
    assert [s.name for s in found] == ["device_total", "hbm", "hbm page 1", "vmem", "x", "smem"]
    assert [(s.spaces_a.tolist(), s.spaces_b.tolist()) for s in found[1:4]] == [
        ([False, False, True, False], [True, False, False]), ([False, True, False, False], [False] * 3),
        ([True, False, False, False], [False] * 3),
    ]  # fmt: skip
    for n, last in ((4, "other spaces"), (5, "smem")):
        monkeypatch.setattr(account, "MAX_SPACES", n)
        assert [s.name for s in accounts(a, b)[1:]] == ["hbm", "hbm page 1", "vmem", "x", last]
    assert found[0].spaces_a.tolist() == [False, True, True, True]


def test_accounts_with_the_same_spaces_share_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    masks = np.array([True]), np.array([False])
    listed = [Account("a", masks[0], masks[0]), Account("b", masks[0], masks[0]), Account("c", masks[1], masks[0])]
    asked: list[str] = []

    def one(_: Any, chosen: Account) -> Any:
        asked.append(chosen.name)
        return SimpleNamespace(_replace=lambda account: (account.name, chosen.name))

    monkeypatch.setattr(account, "account_difference", one)
    none: Any = None
    assert account.account_differences(none, listed) == [("a", "a"), ("b", "a"), ("c", "c")]
    assert sorted(asked) == ["a", "c"]


def test_bytes_in_use_that_32_bits_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces are added up; others, and windows without one of them, add nothing."""
    gib = 1 << 30
    used = {"first": [[3 * gib, gib, 7], [9, 9, 9], [2 * gib, 0, 1]], "second": [[8, 8, 8]]}
    spaces = {"first": [0, 1, 2], "second": [1]}
    found = [SimpleNamespace(name=n, spaces=array(of), expand=lambda rows: rows) for n, of in spaces.items()]
    monkeypatch.setattr(account, "windows", lambda _: found)
    monkeypatch.setattr(account, "occupied_in", lambda _, window: array(used[window.name]))
    p: Any = SimpleNamespace(steps=3)
    assert levels(p, np.array([True, False, True])).tolist() == [5 * gib, gib, 8]
    p.steps = None  # all that the spaces reserve
    monkeypatch.setattr(account, "_reserved", lambda _: array([3 * gib, 5, 7]))
    assert levels(p, np.array([True, False, True])).tolist() == [3 * gib + 7]


def test_steps_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the larger peak; of equal ones B's. Of several, the first at which the other side has most."""
    monkeypatch.setattr(account, "corresponding", lambda _, step, side: account.Interval(step, step + 1))
    none: Any = None
    for a, b, steps in (
        ([1, 9, 2, 2], [3, 4, 5, 1], [1, 2]), ([1, 2, 3, 3], [3, 9, 5, 1], [2, 1]),
        ([1, 9, 2, 2], [3, 4, 9, 1], [2, 2]), ([9, 1, 9, 9, 0], [1, 2, 3, 3, 0], [2, 2]),
        ([2, 2, 2, 0], [5, 1, 5, 5], [0, 0]), ([5, 5, 1], [0, 4, 0], [0, 1]),
    ):  # fmt: skip
        usage = array(a), array(b)
        assert account._compared_steps(none, usage, [int(u.argmax()) for u in usage]) == steps


@pytest.mark.parametrize("folder", ["cpu-jaxlib-0.12.0-multiheap", "tpu-libtpu-0.0.50.1-v5e-host_offload"])
def test_buffers_at_a_step_add_up(folder: str) -> None:
    """To what is in use; each value that is in use belongs to one, and its largest value stands for it."""
    p = program(xlamem.read(DUMPS / folder))
    for space in range(len(p.spaces)):
        mask = np.arange(len(p.spaces)) == space
        usage = levels(p, mask)
        for step in {0, int(usage.argmax()), (p.steps or 1) // 2, (p.steps or 1) - 1}:
            found = buffers_at(p, mask, step)
            assert found.bytes.sum() == usage[step]
            assert (found.data <= found.bytes).all()
            known = found.main >= 0
            assert (found.of_value[found.main[known]] == np.flatnonzero(known)).all()
            assert (p.owner[found.main[known]] == found.owner[known]).all()
            for n, main in zip(np.flatnonzero(known).tolist(), found.main[known].tolist(), strict=True):
                own = np.flatnonzero(found.of_value == n)
                if p.in_temp[main]:
                    assert p.extent[main] == p.extent[own].max()


def test_arguments_by_number(make: Callable[..., Path]) -> None:
    """Whatever the order of their allocations is; without a name, by number and index."""
    allocations, records = "", []
    for i, (number, index, name) in enumerate(((2, "{}", ""), (0, "{1}", ""), (10, "{}", "w"), (1, "{}", ""))):
        allocations += f"allocation {i}: size 8, parameter {number}, shape |f32[2]| at ShapeIndex {index}:\n"
        allocations += value(i, f"p{i}", 8, 0, "f32[2]")
        metadata = f', metadata={{op_name="{name}"}}' if name else ""
        records.append(record(i, f"p{i}", f"f32[2] parameter({number}){metadata}"))
    members = attacks.dump([], allocations=allocations, records=records, ranges=[f"p{i}{{}}:0-4" for i in range(4)])
    own = arguments(program(xlamem.read(make(members))))
    assert own.names.to_pylist() == ["argument 0{1}", "argument 1", "argument 2", "w"]
    assert own.allocation.tolist() == [1, 3, 0, 2]
    assert not own.donated.any()


@pytest.mark.parametrize(
    ("a", "b", "gone", "new"),
    [
        ("xyz", "xyz", [], []), ("xyz", "zx", [1], []), ("xy", "xyz", [], [2]), ("ab", "cd", [0, 1], [0, 1]),
        ("", "x", [], [0]),
    ],
)
def test_arguments_of_one_side(a: str, b: str, gone: list[int], new: list[int]) -> None:
    i: Any = Interface.__new__(Interface)
    i.partner = array([b.find(name) for name in a])
    i.b = SimpleNamespace(allocation=np.arange(len(b)))
    assert (i.gone.tolist(), i.new.tolist()) == (gone, new)


def test_donations_of_one_side() -> None:
    i: Any = Interface.__new__(Interface)
    i.partner = array([1, 0, -1, 2, 3])
    i.a = SimpleNamespace(donated=np.array([1, 1, 1, 0, 0], bool))
    i.b = SimpleNamespace(donated=np.array([1, 0, 1, 0], bool))
    assert [x.tolist() for x in i.undonated] == [[0], [1]]
    assert [x.tolist() for x in i.newly_donated] == [[3], [2]]


def test_arguments_of_another_shape_are_named_as_in_b() -> None:
    """The first one stands for all that changed alike."""
    i: Any = Interface.__new__(Interface)
    i.partner = array([1, -1, 2, 0])
    i.a = SimpleNamespace(names=pa.array(list("wxyz")), shapes=pa.array(["f32[4]", "f32[4]", "f32[4]", "f32[5]"]))
    i.b = SimpleNamespace(names=pa.array(list("ABC")), shapes=pa.array(["f32[6]", "f32[8]", "f32[8]"]),
                          allocation=np.arange(3))  # fmt: skip
    i.m = SimpleNamespace(b=SimpleNamespace(allocation_size=array([24, 32, 32])))
    four, five, six, eight = (Shape("f32", (n,)) for n in (4, 5, 6, 8))
    assert i.shapes == {(four, eight): "B", (five, six): "A"}


@pytest.mark.parametrize(
    ("partner", "rows"),
    [([0, 1, 2], []), ([0, 2, 1], [0, 2, 1]), ([1, 2, 0], [1, 2, 0]), ([-1, 1, 2], []), ([0, -1, 2], [])],
)
def test_arguments_that_are_reordered(partner: list[int], rows: list[int]) -> None:
    """Only those with the same name count."""
    i: Any = Interface.__new__(Interface)
    i.partner = array(partner)
    names = ["x", "y", "z"]
    i.a = SimpleNamespace(names=pa.array(names))
    i.b = SimpleNamespace(names=pa.array([names[partner.index(k)] if k in partner else "new" for k in range(3)]))
    assert i.reordered.tolist() == rows
    renamed: Any = Interface.__new__(Interface)
    renamed.partner, renamed.a = array([1, 0]), SimpleNamespace(names=pa.array(["x", "y"]))
    renamed.b = SimpleNamespace(names=pa.array(["u", "v"]))
    assert renamed.reordered.tolist() == []


@pytest.mark.parametrize(
    ("a", "b", "differs"),
    [
        ("{devices=[2]<=[2]}", "{devices=[4]<=[4]}", True), ("{devices=[2]<=[2]}", "{devices=[2]<=[2]}", False),
        ("{devices=[2]<=[2]}", "{mesh['x'=2], [{'x'}]}", False), (None, "{replicated}", False),
        ("{mesh['x'=2], [{'x'}]}", "{mesh['x'=2], [{}]}", True),
        ("{devices=[1,4]0,1,2,3}", "{devices=[4,1]<=[4]}", True),
        ("{devices=[1,4]0,1,2,3}", "{devices=[1,4]0,2,1,3}", True),
    ],
)  # fmt: skip
def test_arguments_with_another_sharding(a: str | None, b: str, differs: bool) -> None:
    i: Any = Interface.__new__(Interface)
    i.partner = array([0])
    i.a, i.b = (SimpleNamespace(sharding=pa.array([text], pa.string())) for text in (a, b))
    assert [x.tolist() for x in i.resharded] == [[0] if differs else []] * 2
    assert i.sharded_alike(array([0]), array([0])).tolist() == [a == b]


@pytest.mark.parametrize("end", ["}", " last_tile_dim_replicate}"])
def test_two_notations_of_a_sharding(end: str) -> None:
    """Old compilers list the numbers of the devices."""
    i: Any = Interface.__new__(Interface)
    i.partner = array([0, 1])
    i.a = SimpleNamespace(sharding=pa.array(["{devices=[1,4]0,1,2,3" + end, None], pa.string()))
    i.b = SimpleNamespace(sharding=pa.array(["{devices=[1,4]<=[4]" + end, None], pa.string()))
    assert [x.tolist() for x in i.resharded] == [[], []]
    assert i.sharded_alike(array([0, 1]), array([0, 1])).tolist() == [True, False]


def test_values_match_those_of_the_same_instruction() -> None:
    """A program matches itself, value by value."""
    p, q = (program(xlamem.read(DUMPS / "cpu-jaxlib-0.12.0-scan_while")) for _ in "ab")
    m = Matching(p, q)
    assert m.value.tolist() == list(range(len(m.value)))
    here, there = m.steps_in_order[0]
    assert (here == there).all()
    assert 0 in here
