"""`pair`: every program of both sides is paired once, with the right one."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import every
from variants import GROWTH, ORIGINAL, PLATFORM, TEXTS, compiled_again, inner, larger, outer, replaced, written

import xlamem
from xlamem import schema
from xlamem.compare import pairing
from xlamem.compare.programs import programs_of
from xlamem.compare.sketches import EMPTY, no_sketches, similarity, sketches

DUMPS = Path(__file__).parents[1] / "dumps"
PAIRS = Path(__file__).parents[1] / "data" / "pairs"
Rows = list[dict[str, Any]]


def paired(a: Any, b: Any) -> Rows:
    table = pairing.pair(a, b)
    assert table.schema.equals(schema.COMPARED["pairs"].arrow)
    rows: Rows = table.to_pylist()
    for side, programs in (("a", programs_of(a)), ("b", programs_of(b))):
        numbers = [r[f"program_{side}"] for r in rows if r[f"program_{side}"] is not None]
        assert len(set(numbers)) == len(numbers)
        assert {programs[n].key for n in numbers} == {p.key for p in programs.programs}
        assert sum(r[f"occurrences_{side}"] or 0 for r in rows) == sum(p.occurrences for p in programs.programs)
    assert {r["how"] for r in rows} <= schema.PAIRED.keys()
    for row in rows:
        assert (row["program_b"] is None) == (row["how"] == "gone")
        assert (row["program_a"] is None) == (row["how"] == "new")
    return rows


def hows(rows: Rows) -> dict[str, int]:
    return dict(Counter(r["how"] for r in rows))


def modules(rows: Rows) -> list[tuple[int | None, int | None]]:
    return [(r["module_id_a"], r["module_id_b"]) for r in rows]


# -- equal programs


def test_against_itself() -> None:
    rows = paired(DUMPS, DUMPS)
    assert hows(rows) == {"same": len(rows)}
    assert all(r["program_a"] == r["program_b"] and r["score"] == 1 for r in rows)
    assert all(r["device_total_a"] == r["device_total_b"] and r["peak_a"] == r["peak_b"] for r in rows)


def test_numbers_are_those_of_the_dump() -> None:
    (row,) = paired(ORIGINAL.source, [ORIGINAL.source])
    assert row["device_total_a"] == xlamem.peak(ORIGINAL).device_total
    spaces = xlamem.peak(ORIGINAL).spaces
    assert spaces.num_rows == 1
    assert row["peak_a"] == spaces["peak"][0].as_py()


def test_renumbered_and_a_third_new(tmp_path: Path) -> None:
    old = [(f"jit_f{i % 3}", inner(i)) for i in range(12)]
    new = [("jit_f0", inner(100 + i)) for i in range(6)]
    again = [(name, compiled_again(texts, tmp_path, i)) for i, (name, texts) in enumerate(old)]
    mixed = [x for i in range(6) for x in (again[2 * i], again[2 * i + 1], new[i])]
    rows = paired(written(tmp_path / "a", old), written(tmp_path / "b", mixed, first=70))
    assert hows(rows) == {"same": 12, "new": 6}
    assert [b for a, b in modules(rows) if a is not None] == [70 + i + i // 2 for i in range(12)]


def test_occurrences(tmp_path: Path) -> None:
    """Dumps of one program in several processes count as one program."""
    old = [("jit_f", inner(i)) for i in range(3)]
    for process in range(4):
        written(tmp_path / "a" / f"host{process}", old)
        again = [(n, compiled_again(t, tmp_path, process)) for n, t in old[: 2 + process % 2]]
        written(tmp_path / "b" / f"host{process}", again, first=process)
    rows = paired(tmp_path / "a", tmp_path / "b")
    assert hows(rows) == {"same": 3}
    assert [(r["occurrences_a"], r["occurrences_b"]) for r in rows] == [(4, 4), (4, 4), (4, 2)]


# -- changed programs


@pytest.mark.parametrize("n", [100, pytest.param(500, marks=pytest.mark.slow)])
def test_a_hidden_regression(n: int, tmp_path: Path) -> None:
    """One of many programs of one name needs more memory: it is found, and nothing else."""
    old = [("jit_f", inner(i) if i % 2 else outer(i)) for i in range(n)]
    new = [(name, compiled_again(texts, tmp_path, i) if i % 10 == 0 else texts) for i, (name, texts) in enumerate(old)]
    at = n // 2 + 1
    new[at] = "jit_f", compiled_again(larger(inner(at), GROWTH), tmp_path)
    rows = paired(written(tmp_path / "a", old), written(tmp_path / "b", new, first=123))
    changed = [r for r in rows if r["how"] != "same"]
    assert [(r["how"], r["module_id_a"], r["module_id_b"]) for r in changed] == [("interface", at, at + 123)]
    assert changed[0]["device_total_b"] - changed[0]["device_total_a"] == 131072
    assert changed[0]["score"] == 1
    assert hows(rows)["same"] == n - 1


def test_all_changed_alike_keep_their_order(tmp_path: Path) -> None:
    """A new compiler schedules each of them in another way: similarity and order tell which is which."""
    old = [("jit_f", inner(i)) for i in range(40)]
    new = [(n, replaced(t, "live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36")) for n, t in old]
    rows = paired(written(tmp_path / "a", old), written(tmp_path / "b", new, first=5))
    assert hows(rows) == {"interface": 40}
    assert modules(rows) == [(i, i + 5) for i in range(40)]


def test_swapped_order(tmp_path: Path) -> None:
    old = [("jit_f", inner(i)) for i in range(10)]
    new = [(n, replaced(t, "live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36")) for n, t in old]
    order = random.Random(1).sample(range(10), 10)
    rows = paired(written(tmp_path / "a", old), written(tmp_path / "b", [new[i] for i in order]))
    assert hows(rows) == {"interface": 10}
    assert modules(rows) == [(i, order.index(i)) for i in range(10)]


def test_equal_instructions_are_paired_between_anchors(tmp_path: Path) -> None:
    """Two pairs of changed programs with the same instructions: the unchanged ones around them decide."""
    def twin(end: int) -> dict[str, str]:
        return replaced(TEXTS, "live-range", "wrapped_clamp{}:8-37", f"wrapped_clamp{{}}:8-{end}")

    same = [("jit_g", inner(i)) for i in range(3)]
    a = [("jit_f", twin(20)), same[0], same[1], ("jit_f", twin(21)), same[2], ("jit_f", twin(22))]
    b = [same[2], ("jit_f", twin(32)), same[0], same[1], ("jit_f", twin(31))]
    rows = paired(written(tmp_path / "a", a), written(tmp_path / "b", b))
    assert {(r["module_id_a"], r["module_id_b"]) for r in rows if r["how"] == "interface"} == {(5, 1), (3, 4)}
    assert [r["module_id_a"] for r in rows if r["how"] == "gone"] == [0]


def test_one_of_several_equal_programs_changes(tmp_path: Path) -> None:
    """Four functions have the same fingerprints: the one that changed has a row of its own, by its place."""
    equal = [replaced(TEXTS, "buffer-assignment-values", 'op_name="x"', f'op_name="x{i}"') for i in range(4)]
    around = [inner(i) for i in range(5)]
    a = [x for pair in zip(around, equal, strict=False) for x in pair]
    b = [*a]
    b[5] = larger(equal[2], GROWTH)
    old, new = (written(tmp_path / side, [("jit_f", t) for t in texts]) for side, texts in (("a", a), ("b", b)))
    rows = paired(old, new)
    assert hows(rows) == {"same": 5, "interface": 1}
    (changed,) = (r for r in rows if r["how"] == "interface")
    assert (changed["module_id_a"], changed["module_id_b"]) == (5, 5)
    assert (changed["occurrences_a"], changed["occurrences_b"]) == (1, 1)
    assert sorted((r["occurrences_a"], r["occurrences_b"]) for r in rows if r["how"] == "same")[-1] == (3, 3)
    assert modules(paired(new, old)).count((5, 5)) == 1


def test_compiled_more_often(tmp_path: Path) -> None:
    """A program that is compiled once more is neither new nor changed."""
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1))])
    b = written(tmp_path / "b", [("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_f", TEXTS)])
    rows = paired(a, b)
    assert hows(rows) == {"same": 2}
    assert [(r["occurrences_a"], r["occurrences_b"]) for r in rows] == [(1, 2), (1, 1)]


def test_the_same_folder_counts_more_than_similarity(tmp_path: Path) -> None:
    """Programs with one interface in folders that both sides have are paired with those of the same folder."""
    for folder, before, after in (("x", 1, 2), ("y", 2, 1)):
        written(tmp_path / "a" / folder, [("jit_f", inner(before))])
        changed = replaced(inner(after), "live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36")
        written(tmp_path / "b" / folder, [("jit_f", changed)], first=7)
    rows = paired(tmp_path / "a", tmp_path / "b")
    assert hows(rows) == {"interface": 2}
    assert [(Path(r["uri_a"]).parent.name, Path(r["uri_b"]).parent.name) for r in rows] == [("x", "x"), ("y", "y")]


def test_another_interface(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1))])
    b = written(tmp_path / "b", [("jit_f", outer(7)), ("jit_g", inner(1))])
    row, same = paired(a, b)
    assert same["how"] == "same"
    assert row["how"] == "similar"
    assert row["module_name_a"] == row["module_name_b"] == "jit_f"
    assert 0.5 < row["score"] < 1


def test_renamed_functions(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [("jit_f", inner(1)), ("jit_g", inner(2)), ("jit_h", outer(3))])
    changed = replaced(inner(2), "live-range", "wrapped_clamp{}:8-37", "wrapped_clamp{}:8-36")
    b = written(tmp_path / "b", [("jit_x", outer(3)), ("jit_y", inner(1)), ("jit_z", changed)])
    rows = paired(a, b)
    assert hows(rows) == {"similar": 3}
    assert modules(rows) == [(0, 1), (1, 2), (2, 0)]
    assert [("program_fp" in r["reason"]) for r in rows] == [True, False, True]


def test_everything_renamed(tmp_path: Path) -> None:
    """Function and scopes have other names: the memory behaviour is the same."""
    role = "buffer-assignment-values"
    renamed = {**TEXTS, role: TEXTS[role].replace('op_name="', 'op_name="other')}
    a, b = written(tmp_path / "a", [("jit_f", TEXTS)]), written(tmp_path / "b", [("jit_g", renamed)])
    (row,) = paired(a, b)
    assert row["how"] == "similar"
    assert row["score"] < pairing.MIN_OTHER
    assert "the same memory behaviour (program_fp)" in row["reason"]


def test_unrelated_programs_have_no_partner() -> None:
    a, b = DUMPS / "cpu-jaxlib-0.10.2-cond_switch", DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    assert hows(paired(a, b)) == {"gone": 1, "new": 1}


# -- what cannot be compared


def test_empty_sides() -> None:
    assert hows(paired([], DUMPS)).keys() == {"new"}
    assert hows(paired(DUMPS, [])).keys() == {"gone"}
    assert paired([], []) == []


def test_unreadable_dumps(tmp_path: Path) -> None:
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_h", inner(2))])
    b = written(tmp_path / "b", [("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_h", inner(2))])
    for name in ("0000.jit_f", "0001.jit_g"):
        for file in b.glob(f"module_{name}.*"):
            file.write_text("nothing\n")
    for file in a.glob("module_0001.jit_g.*"):
        file.write_text("nothing\n")
    f, g, h = paired(a, b)
    assert (f["how"], g["how"], h["how"]) == ("name", "same", "same")
    assert f["score"] is None
    assert f["problem_a"] is None
    assert "cannot be read" in f["problem_b"]
    assert "B: it cannot be read" in f["reason"]
    assert (f["readable_a"], f["readable_b"]) == (True, False)
    assert g["problem_a"]
    assert g["problem_b"]
    rows = paired(a, DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    assert hows(rows) == {"gone": 3, "new": 1}
    assert "cannot be read" in rows[1]["reason"]


@pytest.mark.parametrize("role", ["buffer-assignment", "buffer-assignment-values", "live-range"])
def test_truncated_dumps(tmp_path: Path, role: str) -> None:
    cut = {**TEXTS, role: TEXTS[role][: len(TEXTS[role]) // 2]}
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1))])
    b = written(tmp_path / "b", [("jit_f", cut), ("jit_g", inner(1))])
    row, same = paired(a, b)
    assert same["how"] == "same"
    assert row["how"] == ("similar" if role == "buffer-assignment" else "interface")
    assert (row["problem_b"], row["device_total_b"], row["peak_b"]) == ("it is truncated", None, None)
    assert row["device_total_a"] is not None
    xlamem.convert(b, to=tmp_path / "to", engine="here")
    assert _comparable(paired(a, tmp_path / "to")) == _comparable([row, same])
    assert hows(paired(b, b)) == {"same": 2}  # by content


@pytest.mark.parametrize("archive", every(2, sorted(PAIRS.glob("*.tar.xz"))), ids=lambda path: path.name.split(".")[0])
def test_two_compiles_of_a_model(archive: Path) -> None:
    """Whatever was edited, the two programs are a pair."""
    sides = [[s for s in xlamem.find(archive) if f"::{side}" in s.location] for side in "ab"]
    (row,) = paired(*sides)
    if "-names" in archive.name:
        assert row["how"] == "similar"
        assert row["module_name_a"] != row["module_name_b"]
    elif "-same" in archive.name:
        assert row["how"] == "same"
    else:
        assert row["how"] in ("interface", "similar")


def test_hostile_pairs() -> None:
    """Every program has one row, whatever is compared."""
    folders = sorted(p for p in DUMPS.iterdir() if p.is_dir())
    for a, b in zip(folders, [*folders[1:], folders[0]], strict=True):
        paired(a, b)
    paired([*folders[:9]], [*folders[5:]])


# -- datasets


def test_datasets(tmp_path: Path) -> None:
    """The same pairs, whether dumps are files, in two datasets, or under two labels of one."""
    old = [("jit_f", inner(i)) for i in (0, 1, 2, 2, 3, 4)]
    changed = larger(inner(2), GROWTH)
    new = [*old[:2], ("jit_f", changed), ("jit_f", changed), *old[3:5], ("jit_new", outer(2)), ("jit_f", outer(4))]
    a, b = written(tmp_path / "a", old), written(tmp_path / "b", new)
    for commit, side in (("1", a), ("2", b)):
        xlamem.convert(side, to=tmp_path / "both", labels={"commit": commit}, engine="here")
        xlamem.convert(side, to=tmp_path / f"only{commit}", engine="here")
    expected = _comparable(paired(a, b))
    assert _comparable(paired(tmp_path / "only1", xlamem.Dataset(tmp_path / "only2"))) == expected
    both = xlamem.Dataset(tmp_path / "both")
    labeled = paired((both, {"commit": "1"}), (tmp_path / "both", {"commit": "2"}))
    assert _comparable(labeled) == expected
    assert _comparable(paired(a, (both, {"commit": "2"}))) == expected
    number = next(r["program_b"] for r in labeled if r["how"] == "interface")
    assert programs_of((both, {"commit": "2"})).read(number).allocations["size"].to_pylist().count(196608) == 1
    with pytest.raises(xlamem.UsageError, match="'night'; there are commit"):
        pairing.pair((both, {"night": "1"}), both)
    with pytest.raises(xlamem.UsageError, match="commit=7; there are 1, 2"):
        pairing.pair((both, {"commit": "7"}), both)


def test_a_dataset_with_unreadable_dumps(tmp_path: Path) -> None:
    """What is in quarantine has a row."""
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1))])
    b = written(tmp_path / "b", [("jit_f", TEXTS), ("jit_g", inner(1))])
    for file in b.glob("module_0001.*"):
        file.write_text("nothing\n")
    xlamem.convert(b, to=tmp_path / "to", engine="here")
    same, row = paired(a, tmp_path / "to")
    assert (same["how"], row["how"]) == ("same", "name")
    assert "it cannot be read: expected" in row["problem_b"]
    with pytest.raises(xlamem.DumpError):
        programs_of(tmp_path / "to").read(row["program_b"])


def test_unreadable_dumps_are_the_same_as_themselves(tmp_path: Path) -> None:
    """By their text, if that can be loaded, or by their id in a dataset."""
    a = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1)), ("jit_h", inner(2))])
    for file in a.glob("module_0001.*"):
        file.write_text("nothing\n")
    for file in a.glob("module_0002.*"):
        file.unlink()
    (a / f"module_0002.jit_h.{PLATFORM}-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
    written(tmp_path / "b", [("jit_f", TEXTS)])
    xlamem.convert(a, to=tmp_path / "to", labels={"commit": "1"}, engine="here")
    dataset = tmp_path / "to"
    for rows in (paired(dataset, dataset), paired(a, a)):
        assert [r["how"] for r in rows[:2]] == ["same", "same"]
        assert [r["readable_b"] for r in rows] == [True, False, False]
    assert hows(paired(dataset, dataset)) == {"same": 3}
    assert hows(paired(a, dataset)) == {"same": 2, "name": 1}
    assert hows(paired(a, tmp_path / "b")) == {"same": 1, "gone": 2}


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        (["values", "allocations"], "the table modules is not stored"),
        (["peaks"], "the table modules is not stored"),
        (["modules", "peaks"], None),
    ],
)
def test_a_dataset_without_some_tables(tmp_path: Path, tables: list[str], problem: str | None) -> None:
    """What is missing is named; nothing is taken for unreadable, and no number is shown whose state is not known."""
    folder = written(tmp_path / "a", [("jit_f", TEXTS), ("jit_g", inner(1))])
    xlamem.convert(folder, to=tmp_path / "to", tables=tables, labels={"commit": "1"}, engine="here")
    rows = paired(tmp_path / "to", tmp_path / "to")
    assert {r["problem_a"] for r in rows} == {problem}
    assert all(r["readable_a"] for r in rows)
    assert all((r["device_total_a"] is None) == (problem is not None) for r in rows)
    assert {r["problem"] for r in xlamem.series(tmp_path / "to", "commit").series.to_pylist()} == {problem}


def test_a_dataset_of_version_1(tmp_path: Path) -> None:
    """Without fingerprints, but with numbers."""
    dataset = tmp_path / "to"
    shutil.copytree(DUMPS.parent / "data" / "v1-dataset", dataset)
    complete = {m["content_id"]: m["complete"] for m in xlamem.Dataset(dataset)["modules"].to_table().to_pylist()}
    old = [r for r in paired(dataset, dataset) if r["readable_a"]]
    assert {complete[r["id_a"]]: r["problem_a"] for r in old} == {
        True: "its fingerprint is not stored; `xlamem dataset migrate` adds it", False: "it is truncated",
    }  # fmt: skip
    assert all((r["device_total_a"] is not None) == complete[r["id_a"]] for r in old)
    xlamem.warehouse.migrate(dataset)
    assert {r["problem_a"] for r in paired(dataset, dataset) if r["readable_a"]} == {None, "it is truncated"}


@pytest.mark.parametrize("table", ["modules", "peaks", "instructions"])
def test_a_dataset_with_a_damaged_file(tmp_path: Path, table: str) -> None:
    """The error names the file."""
    for commit, texts in (("1", TEXTS), ("2", inner(1))):
        folder = written(tmp_path / commit, [("jit_f", texts)])
        xlamem.convert(folder, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    path = Path(xlamem.Dataset(tmp_path / "to").files(table)["path"][0].as_py())
    content = path.read_bytes()
    a, b = ((tmp_path / "to", {"commit": commit}) for commit in "12")
    path.write_bytes(b"nothing")
    for compare in (lambda: pairing.pair(a, b), lambda: xlamem.series(tmp_path / "to", "commit")):
        with pytest.raises(xlamem.DumpError, match=rf"{path}: expected {len(content):,} bytes, as committed, not 7"):
            compare()
    path.unlink()
    for compare in (lambda: pairing.pair(a, b), lambda: xlamem.series(tmp_path / "to", "commit")):
        with pytest.raises(xlamem.DumpError, match=f"{path}: expected a committed file; it is gone"):
            compare()


def _comparable(rows: Rows) -> Rows:
    return [{k: v for k, v in r.items() if not k.startswith(("id_", "uri_"))} for r in rows]


def test_arguments() -> None:
    with pytest.raises(xlamem.UsageError, match="not a directory, a dump, a dataset"):
        pairing.pair(7, DUMPS)  # type: ignore[arg-type]
    with pytest.raises(xlamem.UsageError, match="does not exist"):
        pairing.pair(DUMPS / "missing", DUMPS)


# -- parts


def test_many_candidates_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "MAX_CANDIDATES", 30)
    test_all_changed_alike_keep_their_order(tmp_path)


def _zeros(n: int) -> Any:
    return np.zeros(n, np.int64)


def test_sketches() -> None:
    instructions = ORIGINAL.instructions.select(["opcode", "op_name", "shape"])
    n = instructions.num_rows
    one = sketches(instructions, _zeros(n), 1)
    assert (sketches(instructions.take(list(range(n))[::-1]), _zeros(n), 1) == one).all()
    half = sketches(instructions.slice(0, n // 2), _zeros(n // 2), 1)
    zero = _zeros(1)
    assert similarity(one, one, zero, zero).score.tolist() == [1]
    assert similarity(one, one, zero, zero).shared.tolist() == [(one != EMPTY).sum()]
    assert 0.2 < similarity(one, half, zero, zero).score[0] < 0.9
    assert np.isnan(similarity(one, no_sketches(1), zero, zero).score[0])


def test_candidates_are_programs_that_share_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 6, (n, 5)).astype(np.uint32) for n in (7, 9))
    a[rng.random(a.shape) < 0.3] = b[rng.random(b.shape) < 0.3] = EMPTY
    for most in (1, 4, 1 << 10):
        monkeypatch.setattr(pairing, "MAX_SHARED", most)
        expected = set()
        for x, y in zip(a.T.tolist(), b.T.tolist(), strict=True):
            for value in {*x} - {int(EMPTY)}:
                pairs = [(i, j) for i in range(7) for j in range(9) if x[i] == y[j] == value]
                expected |= {*pairs} if len(pairs) <= most else set()
        rows = pairing._sharing(a, b)
        assert [*zip(*(r.tolist() for r in rows), strict=True)] == sorted(expected)


def test_candidates_in_a_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many are chosen one by one, the pairs are the same."""
    rng = np.random.default_rng(1)
    i, j = (side.reshape(-1) for side in np.meshgrid(np.arange(40), np.arange(40)))
    for score in (np.ones(1600), rng.random(1600), np.round(rng.random(1600), 1)):
        found = []
        for rounds in (0, 1, 3, 1000):
            monkeypatch.setattr(pairing, "MAX_ROUNDS", rounds)
            made = object.__new__(pairing.Pairing)
            made._order = object.__new__(pairing._Order)
            made._order.a, made._order.b = np.linspace(0, 0.5, 40), np.linspace(20, 60, 40)
            found.append(sorted(made._best(i, j, score)))
        assert all(pairs == found[0] for pairs in found)
        assert len(found[0]) == 40
