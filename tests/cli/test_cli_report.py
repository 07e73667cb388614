"""`xlamem report`: files, formats, exit codes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import attacks
import pytest
from attacks import value
from conftest import DUMPS

import xlamem
from xlamem import cli, schema

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
OTHER = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
SEVERAL = DUMPS / "cpu-jaxlib-0.12.0-several_modules"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `xlamem report` in an empty directory."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str | Path) -> Result:
        code = cli.main(["report", *map(str, args)])
        return Result(code, *capsys.readouterr())

    return call


def data(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


# ---- files


def test_the_page_is_written_to_report_html(run: Any, tmp_path: Path) -> None:
    r = run(TPU)
    page = tmp_path / "report.html"
    size = page.stat().st_size
    assert (r.code, r.err) == (0, "")
    assert r.out == f"wrote report.html  {xlamem.formatting.exact_size(size)}\n"
    assert page.read_text("utf-8").startswith("<!doctype html>")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


def test_the_suffix_selects_the_format(run: Any, tmp_path: Path) -> None:
    for suffix, start in ((".json", b'{"format":"xlamem.report"'), (".svg", b"<svg "), (".pb.gz", b"\x1f\x8b")):
        assert run(TPU, "-o", f"x{suffix}").code == 0
        assert (tmp_path / f"x{suffix}").read_bytes().startswith(start), suffix


def test_an_existing_file_is_replaced_and_folders_are_made(run: Any, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("old")
    assert run(TPU).code == 0
    assert run(TPU, "-o", "a/b/c.html").code == 0
    assert (tmp_path / "report.html").read_bytes() == (tmp_path / "a/b/c.html").read_bytes()


def test_json_describes_the_file(run: Any, tmp_path: Path) -> None:
    r = run(TPU, "--device", "v5e", "--json")
    assert r.json == {
        **schema.envelope("report-file"),
        "output": "report.html",
        "bytes": (tmp_path / "report.html").stat().st_size,
        "kind": "program",
        "title": "jit_m_host_offload",
        "fits": True,
        "failed": [],
    }


# ---- what is shown


def test_two_paths_are_compared(run: Any, tmp_path: Path) -> None:
    assert run(TPU, OTHER, "-o", "x.json").code == 0
    report = data(tmp_path / "x.json")
    assert report["kind"] == "comparison"
    assert [p["name"] for p in report["programs"]] == ["jit_m_host_offload", "jit_m_mlp_grad"]


def test_a_listed_program_without_a_page_is_an_error(run: Any, tmp_path: Path) -> None:
    shutil.copytree(TPU, tmp_path / "dumps" / "good")
    (tmp_path / "dumps" / "bad").mkdir()
    for name, text in attacks.dump([value(2**53 + 1, "a")], ranges=["a{}:0-1"]).items():
        (tmp_path / "dumps" / "bad" / name).write_bytes(text)
    for args in ((), ("-o", "x.json"), ("--max-size", "100KB")):
        r = run("dumps", *args, "--json")
        assert r.code == 3
        assert "numbers of 2^53" in r.err
        assert [f["path"].startswith("dumps/bad/") for f in r.json["failed"]] == [True]


def test_verdicts_of_a_directory_are_shown_without_available_memory() -> None:
    assert "does not fit" in repr(xlamem.report(SEVERAL, capacity="1GiB", resident="1GiB"))


def test_several_programs_are_listed(run: Any, tmp_path: Path) -> None:
    assert run(SEVERAL, "-o", "x.json").code == 0
    report = data(tmp_path / "x.json")
    assert report["kind"] == "directory"
    assert len(report["directory"]["rows"]) == len(report["programs"]) > 1
    assert run(SEVERAL, "-o", "x.json", "--max-programs", "1").code == 0
    assert len(data(tmp_path / "x.json")["programs"]) == 1


def test_module_selects_one_of_several(run: Any, tmp_path: Path) -> None:
    number = xlamem.find(SEVERAL)[-1].module_id
    assert run(SEVERAL, "--module", str(number), "-o", "x.json").code == 0
    report = data(tmp_path / "x.json")
    assert report["kind"] == "program"
    assert report["programs"][0]["module_id"] == number


def test_a_directory_beyond_the_maximum_size_is_a_folder(run: Any, tmp_path: Path) -> None:
    r = run(SEVERAL, "--max-size", "50kB")
    assert r.code == 0
    assert r.out.startswith("wrote report/index.html ")
    assert not (tmp_path / "report.html").exists()
    assert list((tmp_path / "report").rglob("*.html"))


# ---- exit codes


def test_the_exit_code_says_whether_it_fits(run: Any, tmp_path: Path) -> None:
    assert run(TPU, "--capacity", "16GiB").code == 0
    assert run(TPU, "--capacity", "1MiB").code == 1
    assert run(TRUNCATED, "--capacity", "1MiB").code == 3
    truncated = run(TRUNCATED)
    assert truncated.code == 0
    assert truncated.err.startswith("note: truncated: ")
    assert (tmp_path / "report.html").exists()


def test_the_exit_code_is_that_of_peak(run: Any, tmp_path: Path) -> None:
    """One program does not fit, and of another that is not known."""
    mixed = tmp_path / "mixed"
    shutil.copytree(TPU, mixed / "a")
    shutil.copytree(TRUNCATED, mixed / "b")
    for capacity, code in (("16GiB", 3), ("1MiB", 3)):
        assert cli.main(["peak", str(mixed), "--capacity", capacity]) == code
        assert run(mixed, "--capacity", capacity).code == code
    assert run(mixed).code == 0


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-o", "x.txt"], "x.txt"),
        (["-o", "folder"], "folder"),
        (["-o", "folder/x"], "folder/x"),
        ([OTHER, TPU], "3"),
        (["--max-size", "10"], "unit"),
        (["--fraction", "0.9"], "--capacity or --device"),
        (["--module", "nothing"], "nothing"),
    ],
)
def test_wrong_usage(args: list[Any], message: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    r = run(TPU, *args)
    assert (r.code, r.out) == (2, "")
    assert message in r.err
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_no_input(run: Any, tmp_path: Path) -> None:
    assert run("missing").code == 2
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty").code == 2
    assert not (tmp_path / "report.html").exists()


def test_an_output_that_cannot_be_written(run: Any, tmp_path: Path) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    for file in ("folder.html", "file/x.html", "/dev/full/x.html"):
        r = run(TPU, "-o", file)
        assert (r.code, r.out) == (4, ""), file
        assert file.split("/x")[0] in r.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.html"]


# ---- start


def test_other_commands_do_not_load_the_page() -> None:
    code = "import sys; from xlamem import cli; cli.main(sys.argv[1:]); print([m for m in sys.modules if '.page' in m])"
    for args in (["--help"], ["peak", os.fspath(TPU), "--json"]):
        shown = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
        assert shown.stdout.splitlines()[-1] == "[]"
