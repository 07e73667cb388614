"""What a user's type checker sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from xlamem import schema
from xlamem.dump import Dump

pytest.importorskip("mypy")

HERE = Path(__file__).parent / "typing"
SOURCE = Path(__file__).parent.parent / "src"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, int, str]]:
    """File, line and text of each error."""
    cache = tmp_path_factory.mktemp("mypy")
    options = ["--strict", "--no-site-packages", "--follow-imports=silent", "--config-file=", "--cache-dir", cache]
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, (HERE / "stubs", SOURCE)))}
    files = ["accepted.py", "rejected.py"]
    command = [sys.executable, "-m", "mypy", *options, *files]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    found = re.findall(r"^(\w+\.py):(\d+): error: (.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return [(file, int(line), text) for file, line, text in found]


def test_accepted(errors: list[tuple[str, int, str]]) -> None:
    assert [e for e in errors if e[0] == "accepted.py"] == []


def test_rejected(errors: list[tuple[str, int, str]]) -> None:
    lines = (HERE / "rejected.py").read_text().splitlines()
    expected = {i: line.partition("# E: ")[2] for i, line in enumerate(lines, 1) if "# E: " in line}
    reported = {line: text for file, line, text in errors if file == "rejected.py"}
    assert reported.keys() == expected.keys()
    for line, text in expected.items():
        assert text in reported[line]


def test_every_table_is_an_attribute() -> None:
    declared = [name for name, member in vars(Dump).items() if type(member).__name__ == "_TableAttribute"]
    assert declared == list(schema.TABLES)
    for name in declared:
        assert getattr(Dump, name).__doc__ == f"One row per {schema.TABLES[name].row}."
