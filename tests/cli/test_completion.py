"""Completion in shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from xlamem import cli, compute, schema
from xlamem.cli import completion
from xlamem.compute.devices import DEVICES

VARIABLE = "_XLAMEM_COMPLETE"


def completed(line: str) -> list[str]:
    """Return what completes a line, and [type] for what the shell completes itself."""
    *words, incomplete = line.split(" ")[1:]
    items = ShellComplete(cli.cli, {}, "xlamem", VARIABLE).get_completions(words, incomplete)
    return [item.value if item.type == "plain" else f"[{item.type}]" for item in items]


def test_commands() -> None:
    assert completed("xlamem ") == list(cli.VERBS)
    assert completed("xlamem s") == ["show", "schema", "sql"]
    assert completed("xlamem dataset ") == ["compact", "drop", "files", "migrate", "register"]
    assert completed("xlamem dumps/x") == ["[file]"]
    assert completed("xlamem --v") == ["--version"]


def test_commands_are_not_imported() -> None:
    code = (
        "import sys; from xlamem import cli; from click.shell_completion import ShellComplete;"
        " ShellComplete(cli.cli, {}, 'xlamem', '_').get_completions([], '');"
        " print(sorted(m for m in sys.modules if m in ('numpy', 'pyarrow', 'rich')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_options() -> None:
    assert "--json" in completed("xlamem peak --")
    assert completed("xlamem peak --dev") == ["--device"]
    assert completed("xlamem dataset drop --wh") == ["--where"]
    assert completed("xlamem diff A B --order ") == ["seen", "name"]


@pytest.mark.parametrize("verb", ["peak", "info", "top", "bill", "explain", "convert", "report", "diff", "oom"])
def test_paths(verb: str) -> None:
    assert completed(f"xlamem {verb} x") == ["[file]"]


def test_one_of_some_names() -> None:
    complete = completion.one_of(lambda: ["ab", "b", "abc"])
    assert [item.value for item in complete(None, None, "ab")] == ["ab", "abc"]  # type: ignore[arg-type]


def test_values() -> None:
    assert completed("xlamem peak --device ") == [device.name for device in DEVICES]
    assert completed("xlamem check --device h") == ["h100", "h100-nvl", "h200"]
    assert completed("xlamem bill --space h") == ["hbm", "host"]
    tables = completed("xlamem show ")
    assert set(tables) == {*schema.TABLES, *compute.REGISTRY, *schema.WAREHOUSE, "dumps"}
    assert len(tables) == len(set(tables))
    assert completed("xlamem show values d") == ["[file]"]
    assert completed("xlamem schema printed_r") == ["printed_report"]
    assert completed("xlamem schema --document pe") == ["peak"]
    assert completed("xlamem dataset files DEST quar") == ["quarantine"]
    assert completed("xlamem check --output j") == ["json", "junit"]


def test_lists_of_values() -> None:
    assert completed("xlamem top --by la") == ["layer"]
    assert completed("xlamem top --by scope,la") == ["scope,layer"]
    assert "scope,scope" not in completed("xlamem top --by scope,")
    assert completed("xlamem diff --by buffer,ca") == ["buffer,cause", "buffer,category"]
    assert completed("xlamem convert --tables values,us") == ["values,uses"]


# -- in shells

ZSH = """
compdef() { : }
compadd() { print -rl -- $completions }
_describe() { print -rl -- $completions_with_descriptions }
eval "$(_XLAMEM_COMPLETE=zsh_source xlamem)"
words=(%s) CURRENT=3 _xlamem_completion
"""
SCRIPTS = {
    "bash": 'eval "$(_XLAMEM_COMPLETE=bash_source xlamem)"; COMP_WORDS=(%s); COMP_CWORD=2; '
    '_xlamem_completion xlamem; printf "%%s\\n" "${COMPREPLY[@]}"',
    "zsh": ZSH,
    "fish": '_XLAMEM_COMPLETE=fish_source xlamem | source; complete -C "%s"',
}
"""What completes a line of three words, by shell; as docs/cli.md installs it."""


@pytest.mark.parametrize("shell", SCRIPTS)
def test_shells(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = tmp_path / "xlamem"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from xlamem.cli import run; run()" "$@"\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for line, found in (("xlamem show value", ["values"]), ("xlamem peak --verb", ["--verbose"])):
        script = SCRIPTS[shell] % line
        ended = subprocess.run([shell, "-c", script], capture_output=True, text=True, env=environment, cwd=tmp_path)
        shown = [text.split("\t")[0].split(":")[0] for text in ended.stdout.split("\n") if text]
        assert shown == found, ended.stderr
