"""The page of a directory or a dataset: its rows are the programs, and its pages are in one file or in a folder."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import jsonschema
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import compute
from xlamem.errors import OutputError, UsageError
from xlamem.page.directory import (
    MAX_FAILED,
    ROWS_SHARE,
    Row,
    _built,
    _directory,
    _held,
    _write_pages,
    directory_report,
    file_name,
    write_directory,
)
from xlamem.page.listing import Failed, Listing, _merged, _occurrences, _path_of, _stored_key, list_programs

SMALL, LARGE = 100_000, 1 << 24


def build(dump: xlamem.Dump) -> dict[str, Any]:
    """Return a model with as much as the static part of a page needs."""
    verdict = {"headline": f"About {dump.name}.", "decided_by": [], "first_step": ""}
    return {"name": dump.name, "verdict": verdict, "bill": [], "filler": "x" * 60_000}


@pytest.fixture(scope="module")
def listing() -> Listing:
    return list_programs(DUMPS)


def data(page: Path, name: str = "report") -> Any:
    """Return a block of data of a page."""
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page.read_text("utf-8"), re.S)
    assert found
    return json.loads(found[1])


# -- rows ----------------------------------------------------------------------------------------


def test_rows_are_the_numbers_of_the_dumps(listing: Listing) -> None:
    for listed in listing.programs:
        dump = listed.read()
        assert listed.must_fit == compute.device_total(dump)
        assert listed.platform == dump.platform
        assert listed.complete == dump.complete
        spaces = [row for row in compute.peak(dump).spaces.to_pylist() if row["peak"] is not None]
        assert listed.peak is None or listed.peak <= sum(row["peak"] for row in spaces)
        if dump.schedule_length is not None:
            assert listed.steps is not None
            assert listed.steps >= dump.schedule_length + 1
    sizes = [listed.must_fit or 0 for listed in listing.programs]
    assert sizes == sorted(sizes, reverse=True)
    assert not listing.failed


def test_equal_dumps_are_one_row(tmp_path: Path) -> None:
    for process in ("0", "1"):
        shutil.copytree(DUMPS / "cpu-jaxlib-0.9.1-mlp_grad", tmp_path / process)
    shutil.copytree(DUMPS / "cpu-jaxlib-0.5.3-tuple3", tmp_path / "other")
    found = list_programs(tmp_path).programs
    assert sorted(listed.occurrences for listed in found) == [1, 2]


def test_dumps_of_one_interface_are_not_one_program(make: Callable[..., Path]) -> None:
    """Without live ranges, it is not known whether they are the same: their text says so."""
    for size in (8, 8, 16):
        arena = f"allocation 1: size {size}, preallocated-temp:\n{attacks.value(1, 't', 8)}"
        parameter = "allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n" + attacks.value(0, "p", 8)
        members = attacks.dump([], allocations=parameter + arena)
        folder = make({"buffer-assignment": members["buffer-assignment"]})
    found = list_programs(folder.parent).programs
    assert sorted((listed.must_fit, listed.occurrences) for listed in found) == [(16, 2), (24, 1)]


def test_fits_is_that_of_the_dump() -> None:
    judge = partial(compute.fits, capacity=1 << 20)
    programs = list_programs(DUMPS, judge).programs
    for listed in programs:
        assert listed.fits == judge(listed.read()).fits
        assert listed.available == 1 << 20
    assert {listed.fits for listed in programs} == {True, False, None}


def test_programs_for_another_platform_are_not_compared_beside_others() -> None:
    """JAX compiles small programs for the CPU beside one for a TPU."""
    judge = partial(compute.fits, device="v5e")
    programs = list_programs(DUMPS, judge).programs
    assert {(p.platform in ("tpu", None), p.available is None) for p in programs} == {(True, False), (False, True)}
    listing = list_programs(DUMPS / "cpu-jaxlib-0.5.3-tuple3", judge)
    assert [(p.available is None, p.fits, p.other_platform) for p in listing.programs] == [(False, None, True)]
    assert listing.verdicts == {None}


def test_a_dump_that_cannot_be_read_is_listed_as_failed(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "cpu-jaxlib-0.5.3-tuple3", tmp_path / "good")
    (tmp_path / "module_0001.jit_bad.cpu_after_optimizations-buffer-assignment.txt").write_text("nothing\n")
    found = list_programs(tmp_path)
    assert len(found.programs) == 1
    (failed,) = found.failed
    assert "jit_bad" in failed.path
    assert failed.error


def test_nothing_to_list_is_a_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        list_programs(tmp_path)


def test_an_archive_has_the_rows_of_its_directory(tmp_path: Path, listing: Listing) -> None:
    archive = tmp_path / "dumps.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(DUMPS, "dumps")
    found = list_programs(archive)
    assert [(p.name, p.must_fit, p.peak) for p in found.programs] == [
        (p.name, p.must_fit, p.peak) for p in listing.programs
    ]


def test_a_dataset_has_the_rows_of_its_directory(tmp_path: Path, listing: Listing) -> None:
    xlamem.convert(DUMPS, to=tmp_path / "ds")
    for source in (tmp_path / "ds", xlamem.Dataset(tmp_path / "ds")):
        found = list_programs(source)
        keys = [(p.platform, p.must_fit, p.peak, p.occurrences, p.complete) for p in found.programs]
        assert sorted(keys, key=str) == sorted(
            ((p.platform, p.must_fit, p.peak, p.occurrences, p.complete) for p in listing.programs), key=str
        )
        assert found.programs[0].read().name == listing.programs[0].read().name


def test_a_dataset_has_the_programs_of_its_directory(tmp_path: Path) -> None:
    """Two dumps of one program, three that end too early, which are never the same one, and one without a name.

    A program has the first place of all, whichever was converted first, and what cannot be read its own.
    """
    texts = {path.name: path.read_text() for path in (DUMPS / "cpu-jaxlib-0.9.1-mlp_grad").glob("*.txt")}
    seed = sorted((DUMPS / "seeds").glob("000_*"))[0]
    report = next(name for name in texts if "usage-report" in name)
    assignment = next(name for name in texts if name.endswith("buffer-assignment.txt"))
    dumps = {"whole": texts, "no-report": {**texts, report: ""}, "seed": {seed.name: seed.read_text()}}
    dumps |= {f"to-{n}": {assignment: texts[assignment][:n]} for n in (1500, 2000, 3000)}
    for folder, files in dumps.items():
        (tmp_path / "dumps" / folder).mkdir(parents=True)
        for name in filter(files.get, files):
            (tmp_path / "dumps" / folder / name).write_text(files[name])
    (bad := tmp_path / "dumps" / "bad" / assignment).parent.mkdir()
    bad.write_text("nothing\n")
    for part in ("no-report", ""):
        xlamem.convert(tmp_path / "dumps" / part, to=tmp_path / "ds")
    judge = partial(compute.fits, capacity=1 << 20)
    listings = [list_programs(tmp_path / name, judge) for name in ("dumps", "ds")]
    assert [[failed.path.startswith(str(bad.parent)) for failed in found.failed] for found in listings] == [[True]] * 2
    of_files, stored = (found.programs for found in listings)
    assert sorted((p.complete, p.occurrences) for p in of_files) == [*[(False, 1)] * 3, (True, 1), (True, 2)]
    wanted = {p.path: replace(p, read=judge) for p in of_files}
    assert {p.path: replace(p, read=judge) for p in stored} == wanted


def test_places_of_a_stored_dump() -> None:
    """Each place counts once, also several in one archive, whatever the number of hosts that found it."""
    table = pa.table({
        "content_id": ["x", "x", "x", "y", "x"], "uri": ["d/a.tar", "d/a.tar", "d/a.tar", "e/m.txt", "c/m.txt"],
        "offset": pa.array([0, 512, 0, None, None], pa.int64()), "stem": ["m", "m", "m", "m", "m"],
    })  # fmt: skip
    dataset: Any = {"occurrences": SimpleNamespace(to_table=lambda columns: table.select(columns))}
    found = _occurrences(dataset, pa.chunked_array([["y", "x", "z"]]))
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "path": ["e/m", "c/m", None], "occurrences": [1, 3, None]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("program", "interface", "key"), [("p", "i", ("p", "i")), (None, "i", "c"), ("p", None, "c"), (None, None, "c")]
)
def test_stored_programs_that_are_one(program: str | None, interface: str | None, key: Any) -> None:
    """Those with the same fingerprints, or the same text if one is not known."""
    assert _stored_key({"program_fp": program, "interface_fp": interface, "content_id": "c"}) == key


def test_occurrences_of_stored_dumps_of_one_program_add_up(listing: Listing) -> None:
    first, other = listing.programs[:2]
    dumps = [("k", replace(first, occurrences=2)), ("o", other), ("k", replace(first, path="x", occurrences=3))]
    assert _merged(dumps, []).programs == [replace(first, occurrences=5), other]


@pytest.mark.parametrize(("folder", "path"), [(".", "f"), ("./a", "a/f"), ("a", "a/f"), ("../a", "../a/f")])
def test_paths_of_files(folder: str, path: str) -> None:
    source: Any = SimpleNamespace(location=folder, name="f")
    assert _path_of(source) == path


def test_rows_that_fill_the_file() -> None:
    rows = [Row("f", f"dumps/{i}", "cpu", 3, 8, 8, None, None, True, 1) for i in range(4)]
    size = sum(len(json.dumps(vars(row))) for row in rows[:3])
    cap = next(n for n in range(size, 2 * size) if int(ROWS_SHARE * n) >= size)
    for n, shown in ((cap, 3), (cap - 2, 2)):
        directory = _directory(rows, [Failed("x", "bad")] * MAX_FAILED, 4, n)  # neither of these is too many
        assert (len(directory.rows), len(directory.failed), len(directory.folded)) == (shown, MAX_FAILED, 1)


def test_models_that_fill_the_file() -> None:
    """Those up to the first that does not fit are in memory."""
    program = {"name": "f"}  # 12 bytes
    for cap, n, fits in ((36, 3, True), (35, 3, False), (24, 3, False), (23, 2, False), (11, 1, False)):
        built = iter([(i, program) for i in range(3)])
        assert _held(built, cap) == ([(i, program) for i in range(n)], fits)
        assert len([*built]) == 3 - n


@pytest.mark.parametrize("error", [UsageError("bad"), OSError("bad")])
def test_programs_that_cannot_be_read_again(error: Exception) -> None:
    """Files may have vanished since they were listed."""

    def read() -> Any:
        raise error

    programs: Any = [SimpleNamespace(path=path, read=read) for path in "abc"]
    unbuilt = [Failed("x", "y")]
    assert [*_built(Listing(programs, []), build, 2, unbuilt)] == []
    assert unbuilt == [Failed("x", "y"), Failed("a", "bad"), Failed("b", "bad")]


# -- pages ---------------------------------------------------------------------------------------


def test_small_pages_are_in_one_file(tmp_path: Path, listing: Listing) -> None:
    output = tmp_path / "report.html"
    assert write_directory(listing, output, title="dumps", build=build, cap=LARGE) == output
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    rows = data(output)["directory"]["rows"]
    assert [row["program"] for row in rows] == list(range(len(rows)))
    for row in rows:
        assert data(output, f"program-{row['program']}")["name"] == listing.programs[row["program"]].read().name
        assert row["file"] == ""


def test_large_pages_are_in_a_folder(tmp_path: Path, listing: Listing) -> None:
    output = tmp_path / "report.html"
    output.write_text("an earlier page")
    index = write_directory(listing, output, title="dumps", build=build, cap=SMALL)
    assert index == tmp_path / "report" / "index.html"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
    rows = data(index)["directory"]["rows"]
    for number, row in enumerate(rows):
        assert row["program"] == -1
        page = index.parent / row["file"]
        assert page.parent == tmp_path / "report" / "programs"
        assert data(page, "program-0")["name"] == listing.programs[number].read().name
    assert len({row["file"] for row in rows}) == len(rows)
    assert not list(tmp_path.rglob("*.tmp"))


def test_pages_beyond_the_limit_are_left_out(tmp_path: Path, listing: Listing) -> None:
    for cap, folder in ((LARGE, tmp_path / "one"), (SMALL, tmp_path / "many")):
        index = write_directory(listing, folder / "r.html", title="dumps", build=build, cap=cap, max_programs=3)
        directory = data(index)["directory"]
        assert [row["program"] >= 0 or row["file"] != "" for row in directory["rows"]].count(True) == 3
        assert len(directory["rows"]) == len(listing.programs)
        assert "largest 3 of" in directory["folded"][0]


def test_a_page_that_is_larger_than_its_models_is_a_folder(tmp_path: Path, listing: Listing) -> None:
    """With the script and the styles. Its pages are numbered up to the last one that there is."""
    many = Listing(listing.programs * 30, [])
    index = write_directory(many, tmp_path / "r.html", title="dumps", build=build, cap=SMALL, max_programs=1)
    row = data(index)["directory"]["rows"][0]
    assert row["file"] == f"programs/001-{file_name(listing.programs[0].name)}.html"
    assert data(index.parent / row["file"])["title"] == listing.programs[0].name


def test_a_page_that_is_as_large_as_it_may_be(tmp_path: Path, listing: Listing) -> None:
    few = Listing(listing.programs[:2], [])
    one, many = tmp_path / "r.html", tmp_path / "r" / "index.html"
    write_directory(few, one, title="dumps", build=build, cap=LARGE)
    n = len(one.read_text("utf-8"))
    for cap, wanted in ((n, one), (n - 1, many)):
        assert write_directory(few, one, title="dumps", build=build, cap=cap, max_programs=10_000) == wanted
    assert data(many)["directory"]["rows"][0]["file"].startswith("programs/001-")


@pytest.mark.parametrize(("n", "number"), [(999, "001"), (1000, "0001"), (10_000, "00001")])
def test_as_many_digits_as_the_last_page_has(n: int, number: str, tmp_path: Path, listing: Listing) -> None:
    files = _write_pages(listing, [(0, build(listing.programs[0].read()))], tmp_path, n)
    assert files == {0: f"programs/{number}-{file_name(listing.programs[0].name)}.html"}


def test_rows_and_failures_that_would_make_the_index_too_large_are_left_out(listing: Listing) -> None:
    many = Listing(listing.programs * 100, [Failed(f"dump{i}", "bad") for i in range(MAX_FAILED + 1)])
    directory = directory_report(many, title="dumps", build=build, cap=SMALL, max_programs=0)["directory"]
    assert 0 < len(json.dumps(directory["rows"])) < SMALL
    assert len(directory["failed"]) == MAX_FAILED
    assert [text.split(" of ")[0] for text in directory["folded"]] == [
        "Only the largest 0", f"Only the largest {len(directory['rows'])}", f"Only the first {MAX_FAILED:,}"
    ]  # fmt: skip
    numbers = [len(many.programs), len(many.programs), len(many.failed)]
    assert [re.findall(r" of ([\d,]+)", text) for text in directory["folded"]] == [[f"{n:,}"] for n in numbers]


def test_the_index_is_written_last(tmp_path: Path, listing: Listing) -> None:
    def broken(dump: xlamem.Dump) -> dict[str, Any]:
        if dump.name == listing.programs[4].read().name:
            raise KeyboardInterrupt
        return build(dump)

    with pytest.raises(KeyboardInterrupt):
        write_directory(listing, tmp_path / "report.html", title="dumps", build=broken, cap=SMALL)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    for path in files:
        assert path.read_text("utf-8").endswith("</html>\n")


def test_a_program_that_cannot_be_built_has_no_page(tmp_path: Path, listing: Listing) -> None:
    def broken(dump: xlamem.Dump) -> dict[str, Any]:
        if dump.name == listing.programs[0].read().name:
            raise UsageError("no page")
        return build(dump)

    output = tmp_path / "report.html"
    write_directory(listing, output, title="dumps", build=broken, cap=LARGE)
    directory = data(output)["directory"]
    assert directory["rows"][0]["program"] == -1
    assert directory["rows"][1]["program"] == 0
    assert directory["failed"][0]["error"] == "no page"


@pytest.mark.parametrize("number", [0, -1])
def test_a_program_that_cannot_be_built_has_no_page_in_a_folder(number: int, tmp_path: Path, listing: Listing) -> None:
    """Also one that is built after it is known that the pages do not fit one file."""
    failing = listing.programs[number]

    def read(program: Any) -> Any:
        return program, program.read()

    programs = [replace(p, read=partial(read, p)) for p in listing.programs]
    found = Listing(programs, [Failed("x", "bad")])

    def broken(pair: Any) -> dict[str, Any]:
        program, dump = pair
        if program is failing:
            raise UsageError("no page")
        return build(dump)

    index = write_directory(found, tmp_path / "report.html", title="dumps", build=broken, cap=SMALL)
    directory = data(index)["directory"]
    assert [row["path"] for row in directory["rows"] if not row["file"]] == [failing.path]
    failed = [(failure["path"], failure["error"]) for failure in directory["failed"]]
    assert failed == [("x", "bad"), (failing.path, "no page")]


def test_an_output_that_cannot_be_written(tmp_path: Path, listing: Listing) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError):
        write_directory(listing, tmp_path / "file" / "r.html", title="dumps", build=build, cap=LARGE, max_programs=1)


def test_the_report_as_json_has_the_programs_that_fit(listing: Listing) -> None:
    report = directory_report(listing, title="dumps", build=build, cap=150_000)
    n = len(report["programs"])
    assert n == 2  # three are larger than that
    assert report["kind"] == "directory"
    assert [row["program"] for row in report["directory"]["rows"]] == [*range(n), *[-1] * (len(listing.programs) - n)]
    assert f"{n} largest programs" in report["directory"]["folded"][-1]
    schema = json.loads(resources.files("xlamem.page").joinpath("report.schema.json").read_text("utf-8"))
    jsonschema.validate(report["directory"], {"$ref": "#/$defs/Directory", "$defs": schema["$defs"]})


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("jit_train_step", "jit_train_step"),
        ("../../etc/passwd", "etc_passwd"),
        ("a b\0c<script>", "a_b_c_script"),
        ("größe", "gr_e"),
        ("..", "program"),
        (".x" * 100 + "y" * 400, "x." * 40),
    ],
)
def test_file_names_are_safe(name: str, wanted: str) -> None:
    assert file_name(name) == wanted
