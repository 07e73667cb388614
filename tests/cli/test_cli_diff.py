"""`xlamem diff`: the screen, its formats and exit codes, for two dumps, two directories and two labels of a dataset."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tarfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, every

import xlamem
from xlamem import cli, schema
from xlamem.compare import wording
from xlamem.display.markdown import code, escaped, table

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
ORIGINS = DATA / "origins"
COMPILED = sorted((DATA / "pairs").glob("*.tar.xz"))
"""Pairs of compiled programs that differ in one edit."""
SCAN, REMAT, UNROLLED = (ORIGINS / f"cpu-{name}.tar.gz" for name in ("scan", "scan-remat", "unrolled"))
TPU, SHARDED = (ORIGINS / f"v5e-{name}.tar.gz" for name in ("unrolled", "unrolled-sharded"))
DONATED = ORIGINS / "v5e-scan-bf16-donated.tar.gz"
MLP = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
PAIRS = [(SCAN, REMAT), (REMAT, SCAN), (SCAN, UNROLLED), (TPU, SHARDED), (TPU, DONATED), (UNROLLED, TPU)]
IDS = [f"{a.name.split('.')[0]} {b.name.split('.')[0]}" for a, b in PAIRS]
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
EVERY = sorted(DUMPS.iterdir())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*args: str | Path) -> tuple[int, str, str]:
        return cli.main(["diff", *map(str, args)]), *capsys.readouterr()

    return call


@cache
def difference(a: Path, b: Path) -> xlamem.Diff:
    """What several tests compare with what the command says."""
    return xlamem.diff(a, b)


def without(folder: Path, target: Path, role: str) -> Path:
    """Copy a dump without the file of one role."""
    shutil.copytree(folder, target)
    for path in target.glob(f"*-{role}.txt"):
        path.unlink()
    return target


def cut(folder: Path, target: Path) -> Path:
    """Copy a dump with half of its allocations."""
    shutil.copytree(folder, target)
    (path,) = target.glob("*-buffer-assignment.txt")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return target


def amount(line: str) -> float:
    """Return the signed size at the beginning of a line."""
    if line.split()[0] == "±0":
        return 0
    number, unit = line.split()[:2]
    return float(number) * UNITS[unit]


def section(lines: list[str], pattern: str) -> list[str]:
    """Return the line that matches, and those below it with a change."""
    begin = next(i for i, line in enumerate(lines) if re.match(pattern, line))
    end = next((i for i in range(begin, len(lines)) if not lines[i]), len(lines))
    return [lines[begin], *(line for line in lines[begin + 1 : end] if re.match(r" *(±0|[-+][\d.]+ [KMG]?i?B) ", line))]


# ---- two dumps


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=IDS)
def test_the_screen(run: Any, a: Path, b: Path) -> None:
    status, out, err = run(a, b)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert " ".join(out.partition("\n\n")[0].split()) == " ".join(difference(a, b).verdict.split())


@pytest.mark.parametrize("sides", every(2, PAIRS), ids=IDS)
def test_the_columns_add_up(run: Any, sides: tuple[Path, Path]) -> None:
    a, b = sides
    for options in ((), ("--limit", 1), ("--by", "scope,phase"), ("--by", "edit")):
        lines = run(a, b, *options)[1].splitlines()
        for pattern in ("must fit [-+±]", "peak [-+±]"):
            title, *rows = section(lines, pattern)
            total = amount(re.sub("^(must fit|peak) ", "", title))
            largest = max(abs(amount(row)) for row in rows)
            assert sum(map(amount, rows)) == pytest.approx(total, abs=0.01 * len(rows) * largest + 1)


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=IDS)
def test_the_numbers_in_json_add_up(run: Any, a: Path, b: Path) -> None:
    data = json.loads(run(a, b, "--json")[1])
    for account in data["account_differences"]:
        def total(table: str, name: str = account["account"]) -> int:
            return sum(row["change"] for row in data[table] if row["account"] == name)

        assert total("bill_differences") == account["reserved_b"] - account["reserved_a"]
        assert total("differences") + account["moved"] == account["peak_b"] - account["peak_a"]
    first = data["account_differences"][0]
    in_groups = sum(row["change"] for row in data["difference_groups"])
    assert in_groups + first["moved"] == data["peak_change"] == first["peak_b"] - first["peak_a"]


@pytest.mark.parametrize("path", every(3, COMPILED), ids=lambda path: path.name.split(".")[0])
def test_one_edit(run: Any, path: Path, tmp_path: Path) -> None:
    """Whatever was edited, the screen fits the terminal; if nothing changed, it is one line."""
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    status, out, err = run(tmp_path / "a", tmp_path / "b")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert (len(lines) == 1) == path.name.endswith("-same.tar.xz")
    assert lines[0].startswith("No buffer changed: ") == path.name.endswith("-names.tar.xz")


def test_what_a_row_says(run: Any) -> None:
    out = run(SCAN, UNROLLED)[1]
    assert re.search(r"\n +-4\.69 MiB +[\d.]+ % +\[GONE\] +mlp/tanh +f32\[5,4,96,640\] +program\.py:33\n", out)
    assert re.search(r"\[NEW\] +5× +layer_\*/mlp/tanh\n +f32\[384,640\] +program\.py:33\n", out)
    assert re.search(r"\[GONE\] +3× +sub\n +f32\[5,128,640\], 3 shapes", out)
    assert "what else changed\n" in out
    assert "A  jit_train_step  cpu, 226 steps  in " in out


def test_nothing_changed_is_one_line(run: Any) -> None:
    for path in (SCAN, MLP):
        status, out, err = run(path, path, "--exit-code")
        assert (status, err) == (0, "")
        assert len(out.splitlines()) == 1
        assert out.startswith("Nothing changed: ")


def test_exit_codes(run: Any, tmp_path: Path) -> None:
    assert run(REMAT, SCAN)[0] == 0
    assert run(REMAT, SCAN, "--exit-code")[0] == 1
    assert run(SCAN, REMAT, "--exit-code")[0] == 0
    half = cut(MLP, tmp_path / "cut")
    assert run(MLP, half)[0] == 0
    assert run(MLP, half, "--exit-code")[0] == 3
    assert run(half, MLP, "--exit-code")[0] == 3
    assert run(MLP, without(MLP, tmp_path / "untimed", "live-range"), "--exit-code")[0] == 3
    assert run(MLP, tmp_path / "nothing")[0] == 2
    bad = tmp_path / "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz"
    bad.write_bytes(b"\x1f\x8b")
    assert run(MLP, bad)[0] == 3


def test_the_state_of_both_sides_is_visible(run: Any, tmp_path: Path) -> None:
    half = cut(MLP, tmp_path / "cut")
    out = run(MLP, half)[1]
    assert out.startswith("Not known (B is not known: ")
    assert "\nB: truncated: " in out
    assert "\nA: truncated: " in run(half, MLP)[1]
    data = json.loads(run(MLP, half, "--json")[1])
    assert (data["is_known"], data["a"]["module"]["complete"], data["b"]["module"]["complete"]) == (False, True, False)
    assert data["doubt"].startswith("B is not known")
    assert data["b"]["problems"][0].startswith("truncated: ")
    assert "\n> B: truncated" in run(MLP, half, "--markdown")[1]
    untimed = without(MLP, tmp_path / "untimed", "live-range")
    out = run(MLP, untimed)[1]
    assert "B has no live ranges" in out
    assert "Nothing changed: 4.11 MiB must fit." in out
    for out in (run(REMAT, untimed)[1], run(REMAT, untimed, "--markdown")[1]):
        assert re.search("all of A against all of B, by buffer:|reserved of device", out)
        assert not re.search("peak (of|[-+])|^ +peak|in use", out)


@pytest.mark.parametrize("sides", every(2, pairwise(EVERY)), ids=lambda sides: f"{sides[0].name} {sides[1].name}")
def test_unrelated_dumps(run: Any, sides: tuple[Path, Path]) -> None:
    """Other platforms and releases, dumps without live ranges, truncated ones, several programs on one side."""
    a, b = sides  # each dump is on a side of one quick test
    status, out, error = run(a, b)
    if "killed" in a.name + b.name:
        assert (status, out) == (2, "")
        assert error.endswith(" has no allocations: its memory use is unknown\n")
    else:
        assert status in (0, 3)
    lines = out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines), default=0) <= 80


def test_a_dump_against_nothing(run: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.txt"
    empty.write_text("BufferAssignment:\n")
    for sides in ((empty, SCAN), (SCAN, empty), (empty, empty)):
        refused = "", "error: empty.txt has no allocations: its memory use is unknown\n"
        assert run(*sides) == (2, *refused)
        assert run(*sides, "--exit-code") == (3, *refused)


def test_json(run: Any) -> None:
    data = json.loads(run(SCAN, REMAT, "--json")[1])
    d = difference(SCAN, REMAT)
    assert data["format"] == "xlamem.diff"
    assert data["verdict"] == d.verdict
    assert data["account_differences"] == d.accounts.to_pylist()
    assert data["bill_differences"] == d.bills.to_pylist()
    assert data["differences"] == d.buffers.to_pylist()
    assert data["matches"] == d.matches.to_pylist()
    assert sorted(data["edits"], key=lambda e: e["edit"]) == d.edits.to_pylist()
    assert data["a"]["module"]["module_name"] == "jit_train_step"
    short = json.loads(run(SCAN, REMAT, "--json", "--limit", "2")[1])
    assert len(short["differences"]) == len(short["difference_groups"]) == 2
    assert short["n_differences"] == len(data["differences"])


def test_csv(run: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(run(SCAN, REMAT, "--csv", "--by", "scope", "-n", "3")[1])))
    assert tuple(rows[0]) == schema.COMPARED["difference_groups"].names
    assert len(rows) == 3
    assert abs(int(rows[0]["change"])) >= abs(int(rows[1]["change"]))


def test_options(run: Any) -> None:
    assert len(run(SCAN, REMAT, "--limit", 1)[1].splitlines()) < len(run(SCAN, REMAT, "--limit", 100)[1].splitlines())
    assert "other group" not in run(SCAN, REMAT, "--limit", 100)[1]
    vmem = run(TPU, SHARDED, "--space", "vmem")[1]
    assert "\nreserved -7.03 MiB " in vmem
    assert "\npeak -7.75 MiB " in vmem
    assert max(map(len, run(SCAN, UNROLLED, "--wide")[1].splitlines())) > 80
    for arguments, message in [
        ((SCAN,), "diff compares two paths, A and B, not 1"),
        ((SCAN, REMAT, "--by", "colour"), "cannot group by colour: the keys are buffer, "),
        ((SCAN, REMAT, "--by", ","), "--by needs a key"),
        ((SCAN, REMAT, "--space", "attic"), "no account 'attic'"),
        ((SCAN, REMAT, "--json", "--markdown"), "--json and --markdown exclude each other"),
        ((SCAN, REMAT, "--label", "commit=a"), "--label compares two labels of one dataset"),
        ((SCAN, "--label", "commit", "--label", "b"), "a label has the form KEY=VALUE, not 'commit'"),
    ]:
        status, out, err = run(*arguments)
        assert (status, out) == (2, "")
        assert message in err


# ---- Markdown


def cells(line: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=IDS)
def test_markdown(run: Any, a: Path, b: Path) -> None:
    out = run(a, b, "--markdown")[1]
    verdict, accounts, buffers, *_ = out.split("\n\n")
    assert re.sub(r"\\(.)", r"\1", verdict) == f"**{difference(a, b).verdict}**"
    for text, n_columns in ((accounts, 6), (buffers, 7)):
        assert {len(cells(line)) for line in text.splitlines()} == {n_columns}
    assert cells(accounts.splitlines()[2])[:2] == [r"device\_total", "must fit"]
    changes = [amount(cells(line)[0].strip("*")) for line in buffers.splitlines()[2:]]
    assert sum(changes[:-1]) == pytest.approx(changes[-1], abs=0.01 * len(changes) * max(map(abs, changes)) + 1)


def test_markdown_is_escaped() -> None:
    assert code("a|b") == r"`a\|b`"
    assert code("a`b``c") == "```a`b``c```"
    assert code("`") == "`` ` ``"
    assert [code(text) for text in ("a ", " a ", " ")] == ["`a `", "`  a  `", "` `"]
    assert code("|", in_table=False) == "`|`"
    assert code("") == ""
    assert escaped("a_b*c|d`e<f>[g]\nh") == r"a\_b\*c\|d\`e\<f\>\[g\]\\nh"
    assert table(["n:", "name"], [["1", "x"]]) == ["| n | name |", "|---:|---|", "| 1 | x |"]


# ---- words


def group(**values: Any) -> dict[str, Any]:
    row = dict.fromkeys(schema.COMPARED["difference_groups"].names)
    return row | {"cause": "larger", "bytes_a": 1, "bytes_b": 2, "change": 1, "n": 1, "n_shapes": 1} | values


def test_marks() -> None:
    assert {wording.mark(group(cause=cause)) for cause in schema.CAUSES} == {
        "[NEW]", "[GONE]", "longer", "shorter", "moved", "sharing", "larger", "smaller", "padding",
    }  # fmt: skip
    assert wording.mark(group(cause="moved to another space", bytes_a=0)) == "moved in"
    assert wording.mark(group(cause="moved to another space", bytes_b=0)) == "moved out"
    assert wording.mark(group(cause="sharing changed", bytes_a=0)) == "unshared"
    assert wording.mark(group(cause="sharing changed", bytes_b=0)) == "shared"
    assert wording.mark(group(cause=None)) == ""


def test_shapes_of_both_sides() -> None:
    def shapes(a: str | None, b: str | None, **values: Any) -> str:
        return wording.shapes(group(shape_a=a, shape_b=b, **values))

    assert shapes("f32[8,4]{1,0}", "f32[16,4]{1,0}") == "f32[8,4] -> f32[16,4]"
    assert shapes("f32[8,4]{1,0}", "f32[8,4]{1,0}", n_shapes=3) == "f32[8,4], 3 shapes"
    assert shapes("f32[8,4]{1,0}", "f32[8,4]{0,1}") == "f32[8,4]{1,0} -> f32[8,4]{0,1}"
    assert shapes("f32[8]{0:S(1)}", "f32[8]{0}") == "f32[8]"
    assert shapes("f32[]{:S(1)}", "f32[]") == "f32[]"
    assert shapes("f32[8]{0}", "f32[4]{0}", cause="gone") == "f32[8]"
    assert shapes("f32[8]{0}", "f32[4]{0}", cause="new") == "f32[4]"
    assert shapes(None, None) == ""


def test_source_lines_of_both_sides() -> None:
    def sources(a: tuple[str | None, int | None], b: tuple[str | None, int | None]) -> str:
        lines = {"source_file_a": a[0], "source_line_a": a[1], "source_file_b": b[0], "source_line_b": b[1]}
        return wording.sources(group(**lines))

    assert sources(("/u/train.py", 41), ("/u/train.py", 43)) == "train.py:41 -> :43"
    assert sources(("/u/train.py", 41), ("/v/train.py", 41)) == "train.py:41"
    assert sources(("/u/old.py", 1), ("/u/new.py", 2)) == "old.py:1 -> new.py:2"
    assert sources(("/u/old.py", 1), (None, None)) == "old.py:1"
    assert sources((None, None), ("/u/new.py", None)) == "new.py"
    assert sources((None, None), (None, None)) == ""


def test_shares() -> None:
    assert wording.share(25, 100) == "25.0 %"
    assert wording.share(-25, 100) == "-25.0 %"
    assert wording.share(1, 10_000) == "~0 %"
    assert wording.share(0, 100) == "0.0 %"
    assert wording.share(5, 0) == wording.share(1000, 1) == ""
    assert wording.relative(100, 150) == "+50.0 %"
    assert wording.relative(10_000, 10_001) == wording.relative(10_001, 10_000) == "~0 %"
    assert wording.relative(0, 150) == wording.relative(150, 0) == wording.relative(1, 1) == ""


def test_a_diff_shows_itself() -> None:
    d = xlamem.diff(SCAN, REMAT)
    assert repr(d).startswith(f"<xlamem.Diff: {d.verdict}>\n")
    assert "device_total  must fit  37.48 MiB  20.57 MiB  -16.90 MiB  -45.1 %" in repr(d)
    assert "<td" in d._repr_html_()
    assert repr(xlamem.diff(SCAN, SCAN)) == f"<xlamem.Diff: {xlamem.diff(SCAN, SCAN).verdict}>"


# ---- several programs


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two directories: a program is the same, one changed, one is gone, one is new."""
    a, b = (tmp_path_factory.mktemp(name) for name in "ab")
    for side, dumps in ((a, [MLP, SCAN, TPU]), (b, [MLP, REMAT, DUMPS / "cpu-jaxlib-0.12.0-odd_tree"])):
        for path in dumps:
            name = path.name.split(".")[0]
            (shutil.copytree if path.is_dir() else shutil.copy)(path, side / (name if path.is_dir() else path.name))
    return a, b


def test_two_directories(run: Any, sides: tuple[Path, Path]) -> None:
    status, out, err = run(*sides)
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0] == "4 programs: 1 changed, 1 new, 1 gone, 1 the same."
    heading, changed, *alone = lines[2:6]
    assert heading.split() == ["must", "fit:", "A", "B", "change", "peak", "program"]
    assert " ".join(changed.split()[:8]) == "37.48 MiB 20.57 MiB -16.90 MiB -16.90 MiB"
    assert changed.endswith("/0004.jit_train_step")
    assert {line.split()[2] for line in alone if line} == {"[GONE]", "[NEW]"}
    assert run(SCAN, REMAT)[1].partition("device_total")[2] in out
    assert f"/0004.jit_train_step {difference(SCAN, REMAT).verdict} A " in " ".join(out.split())
    assert max(map(len, lines)) <= 80
    assert run(*sides, "--exit-code")[0] == 0
    assert run(*reversed(sides), "--exit-code")[0] == 1
    assert "and 2 more: --limit shows more" in run(*sides, "--limit", 1)[1]


def test_the_only_program_that_changed(run: Any, tmp_path: Path) -> None:
    """JAX compiles helpers beside it: all of its comparison is shown, as if they were not there."""
    for side, program in (("a", SCAN), ("b", REMAT)):
        shutil.copytree(MLP, tmp_path / side / "helper")
        shutil.copy(program, tmp_path / side)
    lines = run(tmp_path / "a", tmp_path / "b")[1].splitlines()
    assert lines[0] == "2 programs: 1 changed, 1 the same."
    assert lines[2].startswith("changed  ")
    shown, alone = ([line for line in screen if line[:3] not in ("A  ", "B  ")]
                    for screen in (lines, run(SCAN, REMAT)[1].splitlines()))  # fmt: skip
    assert len(alone) > 20
    assert shown[-len(alone) :] == alone
    assert len(shown) - len(alone) <= 6


def test_how_to_see_one_of_several(run: Any, tmp_path: Path) -> None:
    """A name that selects a program on both sides is stated."""
    a, b = tmp_path / "a", tmp_path / "b"
    for side, program in ((a, SCAN), (b, REMAT)):
        shutil.unpack_archive(program, side, filter="data")
        shutil.copytree(OLDER, side / "older")
    (path,) = (b / "older").glob("*-buffer-assignment.txt")
    text = path.read_text()
    for old, new in GROWTHS["device_total"][0]:
        text = text.replace(old, new)
    path.write_text(text)
    out = run(a, b)[1]
    assert out.startswith("2 programs: 2 changed (1 grew), 0 the same.")
    assert out.splitlines()[-1] == "  --module jit_train_step shows all of it"
    assert run(a, b, "--module", "jit_train_step")[1].startswith("-16.90 MiB must fit")
    for commit, side in (("1", a), ("2", b)):
        xlamem.convert(side, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    of_dataset = run(tmp_path / "to", "--label", "commit=1", "--label", "commit=2")[1]
    assert "largest change" in of_dataset
    assert "--module" not in of_dataset


OLDER = DUMPS / "cpu-jaxlib-0.4.35-cond_switch"
LARGER_BY_4096 = ("Total bytes used: 262393", "Total bytes used: 266489")
GROWTHS = {
    "nothing": ([], False),
    "device_total": ([("allocation 12: size 208,", "allocation 12: size 4304,"), LARGER_BY_4096], True),
    "peak": ([("    tuple.8{}:23-24", "    tuple.8{}:13-24")], True),
    "host": ([("allocation 12:", "allocation 13: size 4096, color 5, preallocated-temp:\nallocation 12:"),
              LARGER_BY_4096], False),
}  # fmt: skip
"""Edits of OLDER, and whether it needs more of the device's memory."""


@pytest.mark.parametrize("edit", GROWTHS)
def test_growth_has_one_definition(run: Any, tmp_path: Path, edit: str) -> None:
    """For dumps, directories, labels and points: device_total or its peak grew, whatever other spaces do."""
    edits, expected = GROWTHS[edit]
    a, b = (tmp_path / side for side in "ab")
    for side in (a, b):
        (side / "other").mkdir(parents=True)
        for path in OLDER.glob("*-buffer-assignment.txt"):
            text = path.read_text()
            (side / "other" / path.name.replace("module_0001", "module_0002")).write_text(
                text.replace("jit_m_cond_switch", "jit_other").replace("[128,128]", "[128,127]")
            )
            for old, new in edits if side == b else ():
                assert old in text
                text = text.replace(old, new, 1)
            (side / path.name).write_text(text)
    for commit, side in (("1", a), ("2", b)):
        xlamem.convert(side, to=tmp_path / "to", labels={"commit": commit}, engine="here")
    dataset = tmp_path / "to"
    one = [next(side.glob("*-buffer-assignment.txt")) for side in (a, b)]
    labels = ("--label", "commit=1", "--label", "commit=2")
    for arguments in (one, (a, b), (dataset, *labels), (dataset, "--over", "commit")):
        code, out, _ = run(*arguments, "--exit-code", "--json")
        assert (code, json.loads(out)["grown"]) == (expected, expected), arguments
    d = xlamem.diff(*one)
    assert (d.has_grown, d.grown) == (expected, {"nothing": [], "host": ["host"]}.get(edit, ["device_total", "memory"]))


def test_the_same_directory(run: Any, sides: tuple[Path, Path]) -> None:
    status, out, _ = run(sides[0], sides[0], "--exit-code")
    assert (status, out) == (0, "Nothing changed: 3 programs.\n")


def test_formats_of_two_directories(run: Any, sides: tuple[Path, Path]) -> None:
    data = json.loads(run(*sides, "--json")[1])
    pairs = xlamem.pair(*sides)
    assert (data["n_changed"], data["n_new"], data["n_gone"], data["n_programs"]) == (1, 1, 1, 4)
    assert data["largest"] == difference(SCAN, REMAT).verdict
    assert sorted(map(str, data["pairs"])) == sorted(map(str, pairs.to_pylist()))
    assert data["pairs"][0]["device_total_a"] == difference(SCAN, REMAT).accounts["reserved_a"][0].as_py()
    rows = list(csv.DictReader(io.StringIO(run(*sides, "--csv")[1])))
    assert tuple(rows[0]) == schema.COMPARED["pairs"].names
    keys = "program_a", "program_b"
    in_json = [["" if pair[k] is None else str(pair[k]) for k in keys] for pair in data["pairs"]]
    assert [[row[k] for k in keys] for row in rows] == in_json
    text = run(*sides, "--markdown")[1]
    assert text.startswith("**4 programs: 1 changed, 1 new, 1 gone, 1 the same.**\n\n| must fit: A |")
    assert {len(cells(line)) for line in text.splitlines() if line.startswith("|")} == {5}


def test_one_program_on_each_side(run: Any, sides: tuple[Path, Path]) -> None:
    """The screen of two dumps, also if --module selects them."""
    out = run(*sides, "--module", "jit_m_mlp_grad")[1]
    assert out.startswith("Nothing changed: 4.11 MiB must fit")
    assert run(MLP, MLP)[1] == out


def test_unreadable_dumps(run: Any, sides: tuple[Path, Path], tmp_path: Path) -> None:
    shutil.copytree(sides[0], tmp_path / "a")
    (tmp_path / "a" / "module_0009.jit_f.cpu_after_optimizations-buffer-assignment.txt.gz").write_bytes(b"\x1f\x8b")
    status, out, err = run(sides[0], tmp_path / "a")
    assert status == 3
    assert out.splitlines()[0] == "4 programs: 0 changed, 1 unreadable, 3 the same."
    assert "module_0009.jit_f" in err


def test_a_truncated_dump_has_not_shrunk(run: Any, tmp_path: Path) -> None:
    """It is not known whether the program changed: its row has a mark, and the gate says so."""
    a, b = tmp_path / "a", tmp_path / "b"
    shutil.copytree(MLP, a / "mlp")
    shutil.copytree(OLDER, a / "older")
    shutil.copytree(OLDER, b / "older")
    cut(MLP, b / "mlp")
    status, out, err = run(a, b)
    lines = out.splitlines()
    assert (status, err, lines[0]) == (0, "", "2 programs: 0 changed, 1 unknown, 1 the same.")
    assert lines[3].split()[:5] == ["4.11", "MiB", "?", "unknown", "unknown"]
    assert lines[4] == "Not known: it is truncated (1 dump)"
    data = json.loads(run(a, b, "--json")[1])
    assert (data["n_changed"], data["n_unknown"], data["is_known"], data["grown"]) == (0, 1, False, False)
    assert (data["pairs"][0]["device_total_b"], data["pairs"][0]["problem_b"]) == (None, "it is truncated")
    text = run(a, b, "--markdown")[1]
    assert "| 4.11 MiB | ? | unknown | unknown |" in text
    assert "Not known: it is truncated (1 dump)" in text
    assert run(a, b, "--exit-code")[0] == 3
    assert run(b, a, "--exit-code")[0] == 3


def test_a_complete_dump_without_a_fingerprint_is_known(run: Any) -> None:
    """The datasets of version 1 have no fingerprints."""
    labels = ("--label", "night=2025-01-30", "--label", "night=2025-01-30")
    status, out, _ = run(DATA / "v1-dataset", *labels, "--exit-code")
    assert (status, out) == (0, "Nothing changed: 3 programs.\n")


def test_a_pair_that_cannot_be_compared(run: Any, sides: tuple[Path, Path], tmp_path: Path) -> None:
    """The list of programs is there without the tables that the verdict needs."""
    for side, commit in zip(sides, "ab", strict=True):
        options: Any = {"tables": ["modules", "peaks"], "engine": "here"}
        xlamem.convert(side, to=tmp_path, labels={"commit": commit}, **options)
    status, out, err = run(tmp_path, "--label", "commit=a", "--label", "commit=b")
    assert (status, err, out.splitlines()[0]) == (0, "", "4 programs: 1 changed, 1 new, 1 gone, 1 the same.")
    assert "Not known: the table 'allocations' of this dump is not stored; there are modules" in " ".join(out.split())
    assert "Not known: the table 'allocations'" in " ".join(run(tmp_path, "--over", "commit")[1].split())


def test_options_for_two_dumps(run: Any, sides: tuple[Path, Path]) -> None:
    for option in (("--space", "vmem"), ("--by", "scope")):
        status, out, err = run(*sides, *option)
        assert (status, out) == (2, "")
        assert "--by and --space need one program on each side" in err
    assert run(*sides, "--space", "device_total", "--by", "buffer, cause")[0] == 0


def test_two_labels_of_a_dataset(run: Any, sides: tuple[Path, Path], tmp_path: Path) -> None:
    for side, commit in zip(sides, ("old", "new"), strict=True):
        xlamem.convert(side, to=tmp_path, labels={"commit": commit}, engine="here")
    status, out, _ = run(tmp_path, "--label", "commit=old", "--label", "commit=new", "--markdown")
    expected = run(*sides, "--markdown")[1]
    assert (status, out.splitlines()[0]) == (0, expected.splitlines()[0])
    rows, expected_rows = ([cells(line)[:4] for line in text.splitlines()[2:7]] for text in (out, expected))
    assert rows == expected_rows
    status, out, err = run(tmp_path, "--label", "commit=old", "--label", "commit=lost")
    assert (status, out) == (2, "")
    assert "no dump has commit=lost" in err
    status, out, err = run(tmp_path, "--label", "commit=old", "--label", "commit=new", "--module", "0")
    assert "--module selects a module of a dump, not of a dataset" in err


def test_a_dump_of_a_dataset(tmp_path: Path) -> None:
    """Dumps from Parquet differ like those that were converted."""
    for path in (SCAN, REMAT):
        xlamem.convert(path, to=tmp_path, labels={"path": path.name}, engine="here")
    dataset = xlamem.Dataset(tmp_path)
    stored = {d.source.location: d for d in map(dataset.read, dataset.ids)}
    before, after = (next(d for k, d in stored.items() if f"{p.name}" in k) for p in (SCAN, REMAT))
    d, expected = xlamem.diff(before, after), difference(SCAN, REMAT)
    assert d.accounts.equals(expected.accounts)
    assert isinstance(d.buffers, pa.Table)
    assert d.buffers["change"].to_pylist() == expected.buffers["change"].to_pylist()
