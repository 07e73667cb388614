"""`xlamem check`: what it prints where, its files, and its exit codes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import DUMPS
from pairs import stored

from xlamem import cli, schema
from xlamem.gate.formats import FORMATS

SMALL = DUMPS / "cpu-jaxlib-0.10.2-cond_switch"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Run `xlamem check` in an empty repository."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def call(*args: Any) -> Result:
        code = cli.main(["check", *map(str, args)])
        return Result(code, *capsys.readouterr())

    return call


def unpacked(name: str, folder: Path) -> tuple[Path, Path]:
    return next(p for p in stored() if p.name == name).unpack(folder)


def test_from_an_empty_repository(run: Callable[..., Result], tmp_path: Path) -> None:
    """Nothing to check, a baseline, green; an edit, red with the cause; blessed, green."""
    a, b = unpacked("cpu-donation-removed-decode", tmp_path)
    nothing = run(a)
    assert (nothing.code, nothing.out) == (2, "")
    assert "there is nothing to check" in nothing.err
    first = run(a, "--bless")
    assert first.code == 0
    assert "wrote xlamem-baseline.json" in first.out
    assert run(a).code == 0
    red = run(b)
    assert red.code == 1
    lines = red.out.splitlines()
    assert re.match(r"FAILED  jit_decode_step  160.34 MiB  \+64.00 MiB  160.34 MiB  \+64.00 MiB", lines[1])
    assert "  growth: what must fit grew by 64.00 MiB (66.4 %) to 160.34 MiB; at most" in lines
    assert "  why: 8 arguments are no longer donated: cache[0][0], cache[0][1]," in lines
    assert any(re.fullmatch(r"  at: .*/program.py:\d+", line) for line in lines)
    assert lines[-1] == "failed: 1 program checked, 1 failed, 0 passed"
    assert max(map(len, lines)) <= 80
    assert red.err == ""
    assert run(b, "--bless").code == 0
    assert run(b).code == 0


def test_budgets_of_the_configuration(run: Callable[..., Result]) -> None:
    Path("xlamem.toml").write_text('[[budget]]\nprogram = "jit_*"\ndevice_total = "1KiB"\n')
    result = run(SMALL)
    assert result.code == 1
    assert "  device_total (budget 1): 256.25 KiB must fit, 255.25 KiB more than the limit" in result.out
    Path("xlamem.toml").write_text('[[budget]]\nprogram = "jit_x*"\ndevice_total = "1KiB"\n')
    result = run(SMALL)
    assert (result.code, result.out) == (2, "")
    assert "xlamem.toml:2: budget 1 (program = 'jit_x*') matches no program; " in result.err
    other = Path("other.toml")
    other.write_text('[[budget]]\ndevice_total = "1GiB"\n')
    assert run(SMALL, "--config", other).code == 0


def test_budgets_of_the_options(run: Callable[..., Result]) -> None:
    assert run(SMALL, "--max-device-total", "1GiB").code == 0
    assert run(SMALL, "--max-device-total", "1KiB").code == 1
    assert run(TPU, "--device", "v5e").code == 0
    assert run(TPU, "--device", "v5e", "--max-device-total", "1B").code == 1
    for option, value in (("--max-device-total", "5"), ("--device", "v99")):
        result = run(SMALL, option, value)
        assert result.code == 2
        assert "--max-device-total, --device: " in result.err


def test_not_known(run: Callable[..., Result]) -> None:
    result = run(TRUNCATED, "--max-device-total", "1GiB")
    assert result.code == 3
    assert result.out.splitlines()[1].startswith("NOT KNOWN  ")
    assert result.out.splitlines()[-1] == "not known: 1 program checked, 1 not known, 0 passed"
    assert run(TRUNCATED, SMALL, "--max-device-total", "1KiB").code == 1


def test_json(run: Callable[..., Result], tmp_path: Path) -> None:
    a, b = unpacked("cpu-donation-removed-decode", tmp_path)
    run(a, "--bless")
    for args in (["--json"], ["--output", "json"]):
        result = run(b, *args)
        data = json.loads(result.out)
        assert (result.code, data["exit_code"], data["status"]) == (1, 1, "failed")
        assert data["format"] == "xlamem.check"
        assert data["baseline"] == "xlamem-baseline.json"
        tables = {"findings": "findings", "programs": "checked_programs", "contributors": "contributors"}
        for key, table in tables.items():
            assert data[key]
            assert all(list(row) == list(schema.CHECKED[table].names) for row in data[key])


def test_several_outputs(run: Callable[..., Result]) -> None:
    result = run(SMALL, "--max-device-total", "1KiB", "--output", "json=out/check.json", "--output", "text=check.txt")
    assert result.code == 1
    assert json.loads(Path("out/check.json").read_text())["status"] == "failed"
    assert Path("check.txt").read_text() == result.out
    result = run(SMALL, "--max-device-total", "1KiB", "--output", "text", "--output", "json=check.json")
    assert result.out == Path("check.txt").read_text()


def test_outputs_do_not_overwrite_each_other(run: Callable[..., Result]) -> None:
    limit = ("--max-device-total", "1KiB")
    assert run(SMALL, *limit, "--output", "json=a", "--output", "junit=./a").code == 2
    assert run(SMALL, *limit, "--output", "json=xlamem-baseline.json").code == 2
    assert run(SMALL, *limit, "--baseline", "b.json", "--bless", "--output", "text=b.json").code == 2
    assert not [path for path in Path().iterdir() if path.is_file()]
    run(SMALL, "--bless")
    baseline = Path("xlamem-baseline.json").read_text()
    for name in ("text", "json"):
        assert run(SMALL, "--config", "none", "--output", f"{name}=xlamem-baseline.json").code == 2
    assert Path("xlamem-baseline.json").read_text() == baseline
    assert len(run(SMALL, *limit, "--json", "--output", "json").out.splitlines()) == len(
        run(SMALL, *limit, "--json").out.splitlines()
    )


def test_an_output_that_cannot_be_written_hides_no_other(run: Callable[..., Result]) -> None:
    Path("file").write_text("")
    limit = ("--max-device-total", "1KiB")
    result = run(SMALL, *limit, "--output", "json=file/x", "--output", "junit=report.xml", "--output", "text")
    assert result.code == 4
    assert result.out.splitlines()[-1] == "failed: 1 program checked, 1 failed, 0 passed"
    assert Path("report.xml").exists()


def test_reports_of_an_earlier_run_do_not_stay(run: Callable[..., Result]) -> None:
    outputs = [f"--output={name}=report.{name}" for name in ("text", "markdown", "json", "junit")]
    assert run(SMALL, "--max-device-total", "1GiB", *outputs).code == 0
    assert run(SMALL, *outputs).code == 2
    assert Path("report.text").read_text().startswith("error: there is nothing to check: ")
    assert "there is nothing to check" in Path("report.markdown").read_text()
    assert not Path("report.json").exists()
    assert not Path("report.junit").exists()


def test_the_sources_must_be_there(run: Callable[..., Result]) -> None:
    result = run(SMALL, "--max-device-total", "1GiB", "--source-root", "missing")
    assert (result.code, "--source-root missing: no such directory" in result.err) == (2, True)


def annotated(out: str) -> str | None:
    """Return the file of the first annotation."""
    found = re.match(r"::error (?:file=([^,]*),line=192,)?title=", out)
    assert found
    return found[1]


def test_annotations_at_the_sources(
    run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option starts from the current directory, the key from the configuration, and without them `.` counts."""
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    a, b = unpacked("cpu-donation-removed-decode", tmp_path)
    arguments = (b, "--baseline", a, "--output", "github")
    source = Path("ci/src/train/program.py")
    source.parent.mkdir(parents=True)
    source.write_text("\n" * 300)
    assert annotated(run(*arguments).out) is None
    assert annotated(run(*arguments, "--source-root", "ci/src").out) == "ci/src/train/program.py"
    Path("ci/xlamem.toml").write_text('source_root = "src"\n')
    assert annotated(run(*arguments, "--config", "ci/xlamem.toml").out) == "ci/src/train/program.py"
    monkeypatch.chdir("ci/src")
    assert annotated(run(*arguments, "--config", "../xlamem.toml").out) == "train/program.py"
    assert annotated(run(*arguments).out) == "train/program.py"


def test_the_summary_of_the_step(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is added to what other steps wrote, also if a check fails, and if nothing can be checked."""
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    Path("summary.md").write_text("before\n")
    assert run(SMALL, "--max-device-total", "1KiB", "--output", "markdown=comment.md").code == 1
    assert Path("summary.md").read_text() == "before\n"
    comment = Path("comment.md").read_text()
    assert run(SMALL, "--max-device-total", "1KiB", "--output", "github", "--output", "text=x").code == 1
    assert Path("summary.md").read_text() == f"before\n{comment}"
    Path("summary.md").unlink()
    result = run(SMALL, "--baseline", "no|ne.json", "--output", "github")
    assert result.code == 2
    assert result.out.startswith("::error title=xlamem check::there is no baseline no|ne.json")
    assert r"**xlamem check: there is no baseline no\|ne.json" in Path("summary.md").read_text()
    assert "error: there is no baseline" in result.err
    assert run(SMALL, "--baseline", "no|ne.json", "--output", "github=commands").out == ""
    assert Path("commands").read_text() == result.out


def test_help_fits_80_columns(run: Callable[..., Result]) -> None:
    text = run("--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert all(name in text for name in FORMATS)


def test_wrong_outputs(run: Callable[..., Result]) -> None:
    result = run(SMALL, "--max-device-total", "1KiB", "--output", "xml")
    assert result.code == 2
    assert f"no format 'xml'; there are {', '.join(FORMATS)}" in result.err
    Path("file").write_text("")
    assert run(SMALL, "--max-device-total", "1GiB", "--output", "text=file/x").code == 4
    assert run(SMALL, "--max-device-total", "1GiB", "--label", "x").code == 2
    twice = run(SMALL, "--max-device-total", "1GiB", "--label", "x=1", "--label", "x=2")
    assert (twice.code, "the label 'x' is given twice" in twice.err) == (2, True)
    assert run(SMALL, "--baseline", "file/base.json", "--bless").code == 4


def test_many_programs(run: Callable[..., Result]) -> None:
    """What did not pass is shown; of what passed, the largest programs."""
    result = run(DUMPS, "--max-device-total", "1GiB")
    lines = result.out.splitlines()
    assert result.code == 3
    assert sum(line.startswith("ok ") for line in lines) == 20
    assert any(re.fullmatch(r"and \d+ more programs that passed", line) for line in lines)
    assert max(map(len, lines)) <= 80


def test_the_ratchet(run: Callable[..., Result], tmp_path: Path) -> None:
    a, b = unpacked("cpu-donation-removed-decode", tmp_path)
    run(b, "--bless")
    before = Path("xlamem-baseline.json").read_text()
    assert "--bless tightens the baseline" in " ".join(run(a).out.split())
    assert Path("xlamem-baseline.json").read_text() == before
    result = run(a, "--ratchet")
    assert (result.code, "the baseline is tightened" in " ".join(result.out.split())) == (0, True)
    assert Path("xlamem-baseline.json").read_text() != before
    assert run(b, "--ratchet").code == 1
