"""docs/report.md: its Python runs, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from xlamem import cli
from xlamem.cli.verbs.report import command

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "report.md").read_text("utf-8")


def test_the_examples_in_python_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", DOCS, re.S):
        exec(compile(block, "docs/report.md", "exec"), names)
    assert {"column", "used"} <= names.keys()
    assert {p.name for p in tmp_path.iterdir()} == {"report.html", "report.json", "tests"}


def test_options_exist() -> None:
    shown = CliRunner().invoke(cli.cli, ["report", "--help"]).output
    options = set(re.findall(r"--[a-z][a-z-]+", DOCS))
    assert options - set(re.findall(r"--[a-z-]+", shown)) == set()
    assert options > {"--device", "--capacity", "--max-size", "--max-programs"}
    assert command.name in cli.VERBS


def test_files_that_it_links_exist() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", DOCS):
        assert (ROOT / "docs" / target).exists(), target
