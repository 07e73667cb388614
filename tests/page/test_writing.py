"""Reports as Python objects: what they say in a terminal, whether they fit, and what they can be written as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem.errors import OutputError, UsageError
from xlamem.page import writing
from xlamem.page.columns import Encoder
from xlamem.page.listing import Failed, Listing, list_programs
from xlamem.page.model import Program
from xlamem.page.output import write_file
from xlamem.page.writing import N_LISTED, Report, require_suffix

MLP = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
ADAM = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
SEVERAL = DUMPS / "cpu-jaxlib-0.12.0-several_modules"


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ([True], True), ([False], False), ([None], None), ([True, True], True), ([True, None], None),
        ([None, False], False), ([], None),
    ],
)  # fmt: skip
def test_all_programs_fit(fits: list[bool | None], expected: bool | None) -> None:
    """None if that is not known of one, unless another one does not fit."""
    programs: Any = [SimpleNamespace(verdict=SimpleNamespace(fits=one)) for one in fits]
    listed: Any = [SimpleNamespace(fits=one, available=1) for one in fits]
    other: Any = SimpleNamespace(fits=None, available=None)
    assert Report("a", "program", programs).fits is expected
    assert Report("a", "directory", listing=Listing(listed, [])).fits is expected
    assert Report("a", "directory", listing=Listing([*listed, other], [])).fits is expected


def test_a_program_and_a_comparison_in_a_terminal() -> None:
    one, two = xlamem.report(MLP), xlamem.report(MLP, ADAM)
    (program,), (a, b) = one.programs, two.programs
    assert repr(one).split("\n")[0] == f"<xlamem.Report of {program.name}>"
    assert program.verdict.headline in repr(one)
    assert "change" not in repr(one)
    assert repr(two).split("\n")[0] == f"<xlamem.Report of {a.name} → {b.name}>"
    assert two.difference is not None
    said = " ".join(repr(two).split())
    assert said.index(a.verdict.headline) < said.index(b.verdict.headline) < said.index("change ")
    assert " ".join(two.difference.verdict.split()) in said


def test_a_directory_in_a_terminal() -> None:
    """The largest programs, and the number of the others; verdicts if a device is given."""
    listing = list_programs(SEVERAL)
    n = len(listing.programs)
    lines = repr(Report("runs", "directory", listing=Listing(listing.programs * 20, []))).rstrip().split("\n")
    assert lines[0] == "<xlamem.Report of runs>"
    assert lines[1].rstrip() == "  program    must fit      peak"
    assert lines[2].rstrip() == "  jit_alpha  9.57 KiB  9.57 KiB"
    assert sum("jit_" in line for line in lines) == N_LISTED
    assert lines[-1].strip() == f"and {20 * n - N_LISTED} smaller programs"
    assert "smaller" not in repr(Report("runs", "directory", listing=listing))
    compared = xlamem.report(SEVERAL, capacity=1)
    assert repr(compared).count("does not fit") == n
    assert [p["verdict"]["fits"] for p in compared.as_json()["programs"]] == [False] * n
    assert "fit" not in repr(Report("runs", "directory", listing=listing)).replace("must fit", "")
    full = [replace(listing.programs[0], available=0, fits=False)]
    assert "does not fit" in repr(Report("runs", "directory", listing=Listing(full, [])))
    unsure = [replace(listing.programs[0], available=8, fits=None)]
    assert repr(Report("runs", "directory", listing=Listing(unsure, []))).rstrip().endswith("not known")


def test_a_dataset_has_a_page(tmp_path: Path) -> None:
    xlamem.convert(SEVERAL, to=tmp_path / "ds")
    names = sorted(p.name for p in list_programs(SEVERAL).programs)
    for source in (tmp_path / "ds", xlamem.Dataset(tmp_path / "ds")):
        report = xlamem.report(source)
        listing = report.listing
        assert listing is not None
        assert report.title == str(tmp_path / "ds")
        assert sorted(p.name for p in listing.programs) == names


def test_what_cannot_be_read_has_no_page() -> None:
    listing = Listing([], [Failed("x", "bad")])
    report = Report("runs", "directory", listing=listing, _unbuilt=[Failed("y", "large")])
    assert report.failed == [{"path": "x", "error": "bad"}, {"path": "y", "error": "large"}]
    assert Report("a", "program").failed == []


def test_programs_without_a_page_are_those_of_the_last_file() -> None:
    """A report that is written again lists them once. Its pages may have all bytes of a file."""
    def broken(dump: xlamem.Dump) -> Any:
        raise UsageError("large")

    listing = Listing(list_programs(MLP).programs, [Failed("x", "bad")])
    report = Report("runs", "directory", listing=listing, _build=broken, _max_bytes=1 << 20)
    for _ in range(2):
        assert [failure["error"] for failure in report.as_json()["directory"]["failed"]] == ["bad", "large"]
        assert [failure["error"] for failure in report.failed] == ["bad", "large"]
    assert report._of_directory(listing)["cap"] == 1 << 20


def test_a_directory_has_the_title_of_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_dump_or_listing", lambda *_: Listing([], []))
    dataset = SimpleNamespace(storage=SimpleNamespace(uri="runs/a"))
    sources = "runs/a", Path("runs/a"), dataset
    assert {writing._shown(source, None, 1, 1).title for source in sources} == {str(Path("runs/a"))}
    assert writing._shown("s3://key:secret@bucket/ds", None, 1, 1).title == "s3://bucket/ds"


def test_two_programs_share_the_room_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of one name have one title. Buffers that a page leaves out are not in its difference."""
    limits: list[int] = []

    def half(program: Program, limit: int, _: Encoder) -> Program:
        limits.append(limit)
        return replace(program, buffers=replace(program.buffers, value_id=program.buffers.value_id[::2]))

    monkeypatch.setattr(writing, "folded", half)
    made = xlamem.report(MLP, MLP, max_bytes=1 << 20)
    assert made.title == made.programs[0].name
    assert made.difference is not None
    assert made.difference.buffers.a.max() == len(made.programs[0].buffers.value_id) - 1
    assert limits[0] == limits[1] > 0
    assert sum(limits) <= (1 << 20) - writing._overhead()


def test_formats_of_reports(tmp_path: Path) -> None:
    program, comparison, directory = xlamem.report(MLP), xlamem.report(MLP, ADAM), xlamem.report(SEVERAL)
    for report, name, error in (
        (comparison, "a.pb.gz", "of one program, not of a comparison"),
        (directory, "a.pprof", "of one program, not of a directory"),
        (directory, "a.svg", "of one program or of two, not of a directory"),
        (program, "a.txt", "a.txt: the suffix of the file selects its format: .html, .json, .svg, .pb.gz, .pprof"),
    ):
        with pytest.raises(UsageError, match=error):
            report.save(tmp_path / name)
    assert not [*tmp_path.iterdir()]
    assert directory.save(tmp_path / "a.html") == tmp_path / "a.html"
    assert comparison.save(tmp_path / "a.SVG").read_text().startswith("<svg")
    assert require_suffix("run.PB.GZ") == ".pb.gz"


def test_a_format_is_asked_for_before_a_dump_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_shown", lambda *_: pytest.fail("read"))
    with pytest.raises(UsageError, match="the suffix of the file"):
        xlamem.report(MLP, output=tmp_path / "report.pdf")


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    (taken := tmp_path / "taken").mkdir()
    (taken / "file").write_text("old")
    with pytest.raises(OutputError):
        write_file(taken, "new")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "new", "\ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    write_file(tmp_path / "in" / "folders" / "file", b"new")
    assert [path.name for path in (tmp_path / "in" / "folders").iterdir()] == ["file"]
