"""Source lines of dumps: which file of the repository they are in, and who calls them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import DUMPS

import xlamem
from xlamem.compute.program import program
from xlamem.gate.formats.sources import Sources
from xlamem.gate.stacks import stack_of

REPOSITORY = ("program.py", "models/gpt.py", "src/pkg/train.py", "models/a b,c.py")


@pytest.mark.parametrize(
    ("file", "line", "found"),
    [
        ("/home/u/train/program.py", 3, "program.py"),
        ("/home/u/models/gpt.py", 3, "models/gpt.py"),
        ("C:\\work\\models\\gpt.py", 3, "models/gpt.py"),
        ("models/gpt.py", None, "models/gpt.py"),
        ("/x/models/a b,c.py", 1, "models/a b,c.py"),
        ("/x/gpt.py", 1, None),
        ("/home/u/train/program.py", 4, None),
        ("/venv/lib/python3.11/site-packages/flax/program.py", 1, None),
        ("/usr/lib/python3.11/program.py", 1, "program.py"),
        ("/usr/lib/python3.11/pkg/program.py", 1, None),
        ("../../program.py", 1, "program.py"),
        ("models/../program.py", 1, "program.py"),
        ("/etc/models", 1, None),
        ("<stdin>", 1, None),
        ("program.py/", 1, None),
        ("a\0b/program.py", 1, None),
        (f"{'x' * 5000}/program.py", 1, "program.py"),
        ("", 1, None),
        (None, None, None),
    ],
)
def test_source_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str | None, line: int | None, found: str | None
) -> None:
    for name in REPOSITORY:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n2\n3")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    monkeypatch.chdir(tmp_path)
    assert Sources(Path()).find(file, line) == found
    monkeypatch.chdir(tmp_path / "models")
    assert Sources(tmp_path).find(file, line) == (found and (tmp_path / found).as_posix().replace(
        f"{tmp_path.as_posix()}/models/", ""
    ))  # fmt: skip


@pytest.mark.parametrize("workspace", [None, ""])
def test_paths_are_relative_to_the_current_folder(
    workspace: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a service names another one."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.py").write_text("1\n")
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    if workspace is not None:
        monkeypatch.setenv("GITHUB_WORKSPACE", workspace)
    monkeypatch.chdir(tmp_path)
    assert Sources(tmp_path / "a").find("/x/m.py", 1) == "a/m.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path / "other"))
    assert Sources(tmp_path / "a").find("/x/m.py", 1) == (tmp_path / "a" / "m.py").as_posix()


def test_an_installed_package_of_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "src" / "pkg" / "train.py").write_text("1\n")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    installed = "/venv/lib/python3.12/site-packages/pkg/train.py"
    assert Sources(tmp_path / "src").find(installed, 1) == "src/pkg/train.py"
    assert Sources(tmp_path / "src" / "pkg").find(installed, 1) is None


MODELS = "/home/user/model/scripts/models.py"
GENERATOR = "/home/user/model/scripts/gen.py"
CALLED = ((MODELS, 38), (MODELS, 40), (GENERATOR, 76), (GENERATOR, 136), (GENERATOR, 166))


def test_stacks() -> None:
    p = program(xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"))
    assert stack_of(p, CALLED[0]) == CALLED
    assert stack_of(p, (MODELS, 39)) == ((MODELS, 39), *CALLED[1:])
    for unknown in ((MODELS, 1000), (MODELS, None), ("other.py", 38)):
        assert stack_of(p, unknown) == (unknown,)
    assert stack_of(program(xlamem.read(DUMPS / "cpu-tf-2.9.3-mlp")), CALLED[0]) == (CALLED[0],)


LIBRARY = "/venv/lib/python3.12/site-packages/flax/linen.py"


def test_stacks_of_lines_that_call_a_library(tmp_path: Path) -> None:
    """They begin in the library: the repository may be that of the library."""
    folder = shutil.copytree(DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree", tmp_path / "dump")
    for path in folder.glob("*after_optimizations.txt"):
        path.write_text(path.read_text().replace(MODELS, LIBRARY))
    dump = xlamem.read(folder)
    rows = [r for r in xlamem.live_set(dump).to_pylist() if r["source_file"]]
    assert {(r["source_file"], r["source_line"]) for r in rows} == {(GENERATOR, 76)}
    assert set(dump.instructions["source_file"].to_pylist()) == {None}
    stack = stack_of(program(dump), (GENERATOR, 76))
    assert stack == ((LIBRARY, 666), (GENERATOR, 76), (GENERATOR, 136), (GENERATOR, 166))
