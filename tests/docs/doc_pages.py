"""The pages of the documentation: their blocks, and how commands and snippets in them are run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from markdown_it import MarkdownIt

from xlamem import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHIMS = {
    "python": "",
    "pytest": "-m pytest",
    "xlamem": "-c 'import sys; from xlamem.cli import main; sys.exit(main())'",
}
"""Commands for shells, as options of this interpreter: xlamem need not be installed."""


def script(name: str) -> ModuleType:
    """Import a script of the folder docs."""
    spec = importlib.util.spec_from_file_location(f"doc_{name}", ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """The first line, by which lists of blocks name it."""
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.first}"


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output below it; without output, it is not compared."""

    text: str
    output: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page, also those in tabs and admonitions."""
    tokens = MarkdownIt().parse(_without_containers(page.read_text("utf-8")))
    assert not [t for t in tokens if t.type == "code_block"], f"{page.name}: fence indented code, with its language"
    return [
        Block(page.name, t.map[0] + 1 if t.map else 0, t.info.partition(" ")[0], t.content)
        for t in tokens
        if t.type == "fence"
    ]


def _without_containers(text: str) -> str:
    """Return the text with what tabs and admonitions contain at the margin. Lines keep their numbers."""
    lines, inside = [], False
    for line in text.splitlines():
        if re.match(r"(===|!!!|\?\?\?\+?) ", line):
            inside, line = True, ""
        elif line and not line.startswith("    "):
            inside = False
        lines.append(line[4:] if inside else line)
    return "\n".join(lines) + "\n"


def commands(block: Block) -> Iterator[Command]:
    """Split a console block."""
    assert block.text.startswith("$ "), f"{block}: a console block begins with a command"
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, output = re.sub(r"\\\n\s*", "", part).partition("\n")
        yield Command(command, output)


def matches(output: str, shown: str) -> bool:
    """Return whether a page shows this output; a line with only … stands for any lines."""
    pattern = ".*".join(re.escape(part) for part in re.split(r"^…\n", shown.rstrip() + "\n", flags=re.M))
    return re.fullmatch(pattern, output.rstrip() + "\n", re.S) is not None


TRAIN = """
import os, re, shutil
folder = re.search(r"--xla_dump_to=(\\S+)", os.environ["XLA_FLAGS"])[1]
shutil.copytree("stored/dumps", folder, dirs_exist_ok=True)
"""
"""Stands for the reader's program: dumps what a real one has dumped, without JAX."""


class Shell:
    """Runs the commands and snippets of one page, in order, in one directory and with one set of Python names.

    The directory has the dumps of docs/start.md, and programs, which dump again.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys, self.exports = capsys, ""
        self.names: dict[str, Any] = {}
        (folder / "bin").mkdir()
        for name, code in SHIMS.items():
            script = folder / "bin" / name
            script.write_text(f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} {code} "$@"\n')
            script.chmod(0o755)
        for name, places in {"does-not-fit": ("stored", "before"), "fits": ("after",)}.items():
            for place in places:
                with tarfile.open(ROOT / "tests" / "data" / "start" / f"{name}.tar.xz") as archive:
                    archive.extractall(folder / place, filter="data")
        (folder / "dumps").symlink_to("stored/dumps")
        (folder / "dumps-after").symlink_to("after/dumps")
        (folder / "tests").symlink_to(ROOT / "tests")
        for name in ("train.py", "memory.py"):
            (folder / name).write_text(TRAIN)
        shutil.copy(ROOT / "tests" / "data" / "start" / "log.txt", folder)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=":")
        monkeypatch.setenv("PYTHONPATH", ":".join(p for p in sys.path if p))

    def execute(self, block: Block) -> None:
        """Execute a block of Python."""
        exec(compile(block.text, f"{block.page}:{block.line}", "exec"), self.names)

    def run(self, block: Block, command: Command) -> None:
        """Run a command, and compare its output with that on the page."""
        code, output = self._command(command.text)
        assert code in (0, 1), f"{block}\n$ {command.text}\n{output}"
        if command.output:
            assert matches(output, command.output), f"{block}\n$ {command.text}\n{output}"

    def _command(self, text: str) -> tuple[int, str]:
        """Return the exit code and the output of a command, of a failed one also its errors."""
        words = shlex.split(text, comments=True)
        if words[0] == "export":
            self.exports += f"{text}\n"
            return 0, ""
        if words[0] == "xlamem" and not set("|<>*;&") & set(words):
            code = cli.main(words[1:])
            out, err = self.capsys.readouterr()
        else:
            done = subprocess.run(["bash", "-c", self.exports + text], capture_output=True, text=True)
            code, out, err = done.returncode, done.stdout, done.stderr
        return code, out if code in (0, 1) else out + err
