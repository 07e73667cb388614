"""Every command and snippet of the documentation is run, and every command and option that it mentions exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pairs
import pytest
from doc_pages import PAGES, ROOT, Block, Command, Shell, blocks, commands, script

import xlamem
from xlamem import cli
from xlamem.cli.reporters import schema as reporter
from xlamem.gate.config import load_config

hooks = script("hooks")

ELSEWHERE = {
    ("capture.md", "python"): "gate/test_capture_docs.py",
    ("ci.md", "python"): "gate/test_ci_docs.py",
    ("ci.md", "console"): "gate/test_ci_docs.py",
    ("ci.md", "yaml"): "gate/test_action.py",
    ("pytest.md", "python"): "gate/test_pytest_jax.py",
    ("pytest.md", "console"): "gate/test_pytest_jax.py",
    ("report.md", "python"): "page/test_report_docs.py",
    ("start.md", "python"): "gate/test_start_docs.py",
    ("warehouse.md", "python"): "warehouse/test_warehouse_docs.py",
    ("warehouse.md", "toml"): "warehouse/test_clusters.py",
    ("warehouse.md", "ini"): "warehouse/test_warehouse_docs.py",
    ("warehouse.md", "sql"): "warehouse/test_warehouse_docs.py",
}
"""Blocks, by page and language, that another test runs."""

NOT_RUN = {
    "pip install ": "changes the environment; .ci/test-wheel installs xlamem",
    "make ": "builds the project, or measures it for minutes",
    "python tests/fuzz/run.py ": "needs a checkout, and a failure; tests/parse/test_fuzzer.py runs it",
    "go tool pprof ": "needs Go; tests/page/test_pprof.py runs it",
    "duckdb ": "needs the command; tests/warehouse runs the views in Python",
    "xlamem dataset files gs://bucket": "needs accounts of clouds",
}
"""Commands and scripts that no test runs, by how they begin, and why."""


GENERATED = {"tables.md", "commands.md", "changelog.md"}
"""Pages that docs/hooks.py writes."""

HISTORY = {"9b1f3ac": ("a", "a"), "c0ffee1": ("a", "b"), "41d07aa": ("b", "b")}
"""Commits, with the sides of the stored pairs that they compile."""


def history(folder: Path) -> None:
    """Write the dataset `warehouse`: three nights of two programs, each of which grows once."""
    chosen = [p for p in pairs.stored() if p.name in ("cpu-remat-removed-scan", "cpu-donation-removed-decode")]
    sides = [dict(zip("ab", pair.unpack(folder / "pairs" / pair.name), strict=True)) for pair in chosen]
    for night, (commit, compiled) in enumerate(HISTORY.items(), 10):
        dumps = [side[name] for side, name in zip(sides, compiled, strict=True)]
        labels = {"commit": commit, "night": f"2026-08-{night}"}
        xlamem.convert(*dumps, to=folder / "warehouse", labels=labels, engine="here")


def is_run(command: Command) -> bool:
    return not command.text.startswith(tuple(NOT_RUN))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = Shell(tmp_path, monkeypatch, capsys)
    if page.name == "warehouse.md":
        history(tmp_path)
    for block in blocks(page):
        if block.language in ("", "text") or (block.page, block.language) in ELSEWHERE:
            continue
        if block.language == "python":
            if "import jax" in block.text:
                pytest.importorskip("jax")
            shell.execute(block)
        elif block.language == "toml":
            (tmp_path / "xlamem.toml").write_text(block.text)
            load_config(tmp_path / "xlamem.toml")
        elif block.language != "sh" or is_run(Command(block.first, "")):
            assert block.language == "console", f"{block}: write console, python or text, or name the test that runs it"
            for command in filter(is_run, commands(block)):
                shell.run(block, command)


def test_the_lists_are_true() -> None:
    every = [block for page in PAGES for block in blocks(page)]
    assert ELSEWHERE.keys() <= {(b.page, b.language) for b in every}
    for (page, _), test in ELSEWHERE.items():
        assert page in (ROOT / "tests" / test).read_text("utf-8"), f"{test} does not read {page}"
    found = [c.text for b in every if b.language == "console" for c in commands(b)]
    found += [b.first for b in every if b.language == "sh"]
    for words in NOT_RUN:
        assert any(text.startswith(words) for text in found), f"no page has {words}"


INLINE = [(page, code) for page in PAGES for code in re.findall(r"`(xlamem [^`]+)`", page.read_text("utf-8"))]
"""Commands in the text of a page."""


@pytest.mark.parametrize(("page", "code"), INLINE, ids=[f"{page.stem}:{code}" for page, code in INLINE])
def test_commands_in_the_text_exist(page: Path, code: str) -> None:
    """The verb exists and has the options. `xlamem PATH` is short for `xlamem peak PATH`."""
    words = shlex.split(code.replace("…", " "))[1:]
    command = _command(words)
    options = {option for p in [*command.params, *cli.cli.params] for option in (*p.opts, *p.secondary_opts)}
    assert {w.partition("=")[0] for w in words if re.match("--?[a-z]", w)} <= options | {"--help", "-h"}


def _command(words: list[str]) -> click.Command:
    """Return the command that these words begin with."""
    command: click.Command = cli.cli
    for word in words:
        if not isinstance(command, click.Group):
            break
        with click.Context(command) as context:
            if word in command.list_commands(context):
                command = command.get_command(context, word) or command
            elif command is cli.cli and not word.startswith("-"):
                assert word == "dumps" or not re.fullmatch("[a-z]+", word), f"no command {word!r}"
                command = command.get_command(context, "peak") or command
    return command


def test_every_command_and_public_name_is_documented() -> None:
    terminal = (ROOT / "docs" / "terminal.md").read_text("utf-8")
    assert [verb for verb in cli.VERBS if f"`xlamem {verb}" not in terminal] == []
    api = re.findall(r"^::: xlamem\.(\w+)$", (ROOT / "docs" / "api.md").read_text("utf-8"), re.M)
    assert sorted(api) == sorted(set(xlamem.__all__) - {"schema"})


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = set(re.findall(r"[\w.]+\.md$", text, re.M))
    assert nav - GENERATED == {page.name for page in PAGES} - {"README.md"}
    assert nav >= GENERATED


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    """`make docs` also checks the anchors."""
    generated = GENERATED if page.parent.name == "docs" else set()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        assert target in generated or (page.parent / target).exists(), target


def test_matching_ellipses() -> None:
    from doc_pages import matches

    assert matches("a\nb\nc\n", "a\n…\n")
    assert matches("a\nb\nc\n", "a\n…\nc\n")
    assert not matches("a\nb\nc\n", "b\n…\n")
    assert not matches("a\nb\nc\n", "a\nb\n")
    assert Block("p", 1, "console", "$ a\nb\n").first == "$ a"


def test_the_generated_pages_are_complete() -> None:
    """`make docs` builds the site; that its generated pages have everything is tested without mkdocs."""
    tables, commands_page = hooks.tables_page(), hooks.commands_page()
    every = {**reporter.OF_DUMPS, **{f"dataset-{name}": table for name, table in reporter.OF_DATASETS.items()}}
    for name, table in every.items():
        rows = tables.partition(f"{{ #{name} }}")[2].partition("\n### ")[0]
        assert re.findall(r"^\| `(\w+)` \|", rows, re.M) == list(table.names), table.name
    headings = re.findall("^##+ (.*)$", commands_page, re.M)
    assert [h for h in headings if " " not in h] == list(cli.VERBS)
    assert "dataset compact" in headings
    assert "](docs/" not in hooks.changelog()
