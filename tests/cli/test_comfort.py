"""Colors, suggestions for what does not exist, and the description of the installation."""

from __future__ import annotations

import errno
import gzip
import json
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS

import xlamem
from xlamem import cli, schema
from xlamem.cli import console, installation
from xlamem.errors import OutputError, output_error, reason
from xlamem.formatting import closest, similar

SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
ROOT = DUMPS.parent.parent

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main([str(a) for a in arguments])
        return (code, *capsys.readouterr())

    return call


# -- names that do not exist


def test_similar_names() -> None:
    assert closest("Valeus", ["uses", "values"]) == "values"
    assert closest("nonsense", ["uses", "values"]) is None
    assert similar("HBM", ["hbm", "vmem"]) == "did you mean 'hbm'?"
    assert similar(["vlaues", "x", "usees"], ["uses", "values"]) == "did you mean 'values', 'uses'?"
    assert similar("x", ["uses", "values"], "a dump has") == "a dump has uses, values"
    assert similar("x", []) == "there are none"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pek", "x"], "No such command 'pek'. Did you mean 'peak'?"),
        (["nonsense"], "No such command or path: 'nonsense'."),
        (["./nowhere"], "./nowhere does not exist: neither a file, a directory nor the stem of a dump"),
        (["-x", "-"], "No such option '-x'."),
        (["peak", "--jsn", SMALL], "--json"),
        (["show", "valus", SMALL], "no table 'valus'; did you mean 'values'?"),
        (["show", "savngs", SMALL], "no table 'savngs'; did you mean 'savings'?"),
        (["show", "x", SMALL], "no table 'x'; a dump has modules, files, "),
        (["show", SMALL, "donation"], f"the table comes first: xlamem show donation {SMALL}"),
        (["show", SMALL, "nonsense"], "nonsense does not exist"),
        (["top", TPU, "--at", "99"], "there is no step 99: the steps of "),
        (["peak", TPU, "--device", "v5e", "--capacity", "1GiB"], "a capacity and a device exclude each other"),
        (["schema", "peak"], "no table peak; did you mean 'peaks'?"),
        (["convert", SMALL, "--to", "never-made", "--tables", "vlues,used"], "did you mean 'uses', 'values'?"),
        (["peak", TPU, "--space", "hmb"], "no memory space 'hmb'; did you mean 'hbm'?"),
        (["top", TPU, "--space", "vmen"], "no memory space 'vmen'; did you mean 'vmem'?"),
        (["bill", TPU, "--space", "x"], "this dump has hbm (color 0), "),
        (["peak", TPU, "--device", "h1000"], "did you mean 'h100'? There are v2, "),
        (["top", TPU, "--by", "scop"], "cannot group by scop: did you mean 'scope'?"),
        (["top", TPU, "--by", "xyz"], "cannot group by xyz: the keys are buffer, "),
        (["diff", TPU, TPU, "--by", "cuase"], "cannot group by cuase: did you mean 'cause'?"),
        (["diff", TPU, TPU, "--space", "hmb"], "no account 'hmb'; did you mean 'hbm'?"),
        (["buffer", TPU, "fusoin"], "; did you mean fusion"),
        (["check", SMALL, "--output", "jsn"], "no format 'jsn'; did you mean 'json'?"),
    ],
)
def test_suggestions(run: Run, arguments: list[object], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_suggestions_for_datasets(run: Run, tmp_path: Path) -> None:
    for commit in ("c0ffee1", "beef002"):
        xlamem.convert(SMALL, to=tmp_path / "d", engine="here", labels={"commit": commit})
    for arguments, message in (
        (("show", "valus", tmp_path / "d"), "did you mean 'values'?"),
        (("show", "donation", tmp_path / "d"), "'donation' is computed from a dump; a dataset does not store it"),
        (("dataset", "files", tmp_path / "d", "valus"), "did you mean 'values'?"),
        (("diff", tmp_path / "d", "--over", "comit"), "no dump has the label 'comit'; did you mean 'commit'?"),
        (("diff", tmp_path / "d", "--label", "comit=a", "--label", "comit=b"), "did you mean 'commit'?"),
        (("diff", tmp_path / "d", "--label", "commit=cofee1", "--label", "commit=beef002"), "did you mean 'c0ffee1'?"),
        (("sql", tmp_path / "d", "SELECT modul_name FROM modules"), '"module_name"'),
        (("dataset", "drop", tmp_path / "d", "--where", "label.comit = 'a'"), '"commit"'),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err


# -- colors


def test_colors(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    plain = {verb: run(verb, SMALL)[1] for verb in ("peak", "info", "explain")}
    assert "\x1b" not in "".join(plain.values())
    monkeypatch.setenv("FORCE_COLOR", "1")
    for verb, text in plain.items():
        shown = run(verb, SMALL)[1]
        assert "\x1b[1m" in shown
        assert console.click.unstyle(shown) == text
    for options in (["--json"], ["--csv"]):
        assert "\x1b" not in run("peak", SMALL, *options)[1]
    assert "\x1b[31m" in run("show", "x", SMALL)[2]
    monkeypatch.setenv("NO_COLOR", "1")  # wins
    assert {verb: run(verb, SMALL)[1] for verb in plain} == plain


# -- open files


def test_the_limit_of_open_files_is_not_the_path() -> None:
    full = OSError(errno.EMFILE, "Too many open files", "x")
    denied = OSError(errno.EACCES, "Permission denied")
    assert str(output_error("a/b", denied)) == "cannot write to a/b: Permission denied"
    message = str(output_error("a/b", full))
    assert message.startswith("a/b: Too many open files (this process may open ")
    assert message.endswith("; ulimit -n raises the limit)")
    assert reason(OSError("no number")) == "no number"


def test_open_files_in_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    full = OSError(errno.EMFILE, "Too many open files")

    def fail(error: BaseException) -> Any:
        raise error

    def wrapped() -> None:
        try:
            raise full
        except OSError as e:
            raise RuntimeError("no pool") from e

    for call, code in (
        (lambda: fail(full), 3),
        (lambda: fail(output_error("x", full)), 4),
        (lambda: fail(ImportError("libarrow.so: cannot open shared object file: Too many open files")), 3),
        (wrapped, 3),
    ):
        assert console.report_errors(call) == code
        err = capsys.readouterr().err
        assert "Too many open files (this process may open " in err
        assert "cannot write" not in err
        assert "bug" not in err
    assert isinstance(output_error("x", full), OutputError)


# -- paths without a dump


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["module_0001.jit_f.hlo.pb"], "there are only protos"),
        (["module_0001.jit_f.cpu_after_optimizations.hlo.pb.gz", "m.xplane.pb"], "there are only protos"),
        (["saved.pb"], "there are only protos"),
        (["plugins/profile/x/host.xplane.pb"], "there are only profiles"),
        (["module_0001.jit_f.cpu_after_optimizations.txt"], "there is HLO text"),
        (["module_0001.jit_f.before_optimizations.txt"], "there is HLO text"),
        (["f.hlo"], "there is HLO text"),
        (["lowered.txt"], "there is HLO text"),
        (["lowered.txt", "module_0001.jit_f.hlo.pb", "host.xplane.pb"], "there are only protos"),
    ],
)
def test_hints_come_first(run: Run, tmp_path: Path, names: list[str], hint: str) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        data = b"\x0a\x05jit_f" if ".pb" in name else b"HloModule jit_f\n"
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    for paths in ([tmp_path], files, [tmp_path / "**"]):
        code, _, err = run("info", *paths)
        if code == 2:
            first = err.partition("; searched for")[0]
            assert hint in first
            assert 'XLA_FLAGS="--xla_dump_to=DIR --xla_dump_hlo_as_text"' in first
        else:  # HLO text that the user names is read
            assert paths == files == [tmp_path / "module_0001.jit_f.cpu_after_optimizations.txt"]


def test_no_hint_without_such_files(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("HLO\n")
    assert run("info", tmp_path)[2].startswith(f"error: no dump in {tmp_path}: searched for files named ")


def test_a_hint_for_an_empty_directory(run: Run, tmp_path: Path) -> None:
    begin = f'error: no dump in {tmp_path}: the directory is empty; XLA writes dumps if XLA_FLAGS="--xla_dump_to=DIR '
    assert run(tmp_path)[2].startswith(begin)
    (tmp_path / "below").mkdir()
    assert run(tmp_path)[2].startswith(f"error: no dump in {tmp_path}: searched for ")


@pytest.mark.parametrize("n_lines", [0, 100_000])
def test_a_hint_for_an_out_of_memory_message(run: Run, tmp_path: Path, n_lines: int) -> None:
    text = "a line of a log\n" * n_lines + "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1024 bytes.\n"
    (tmp_path / "log.txt").write_text(text)
    for path in (tmp_path / "log.txt", tmp_path):
        hint = "there is an out-of-memory message, which `xlamem oom FILE` reads"
        assert run(path)[2].startswith(f"error: no dump in {path}: {hint}; ")
    (tmp_path / "log.txt").write_text(text + "BufferAssignment:\n")
    assert "out-of-memory" not in run(tmp_path)[2]


def test_a_path_without_a_dump(run: Run, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    arguments = ("convert", tmp_path / "none", SMALL, "--to", tmp_path / "out", "--engine", "here")
    code, _, err = run(*arguments)
    assert (code, err) == (0, f"note: no dump in {tmp_path / 'none'}\n")
    code, out, _ = run(*arguments, "--json", "--quiet", "--strict")
    assert (code, json.loads(out)["empty"]) == (3, [str(tmp_path / "none")])


# -- the installation


def test_the_installation(run: Run) -> None:
    code, out, err = run("info", "--self")
    assert (code, err) == (0, "")
    assert out.startswith(f"xlamem {xlamem.__version__}\n")
    assert os.path.dirname(xlamem.__file__) in out
    assert f"schema version {schema.VERSION}" in out
    assert f"numpy {metadata.version('numpy')}" in out
    assert max(len(line) for line in out.splitlines() if "path" not in line) <= 80
    found = json.loads(run("info", "--self", "--json")[1])
    assert found["dependencies"]["pyarrow"] == metadata.version("pyarrow")
    assert set(found["build"]) <= {"CHECKED", "SANITIZE", "COVERAGE"}
    assert run("info", "--self", SMALL)[0] == run("info")[0] == 2


@pytest.mark.skipif(platform.system() + platform.machine() != "Linuxx86_64", reason="reads /proc/cpuinfo")
def test_the_instructions(run: Run) -> None:
    has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text()
    assert json.loads(run("info", "--self", "--json")[1])["simd"] == ["sse2", "avx2"][: 1 + has_avx2]


def test_the_packages_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    """From what pyproject.toml says, as pip stores it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    stored = list(project["dependencies"])
    for extra, texts in project["optional-dependencies"].items():
        stored += [f'{text}; extra == "{extra}"' for text in texts]
    monkeypatch.setattr(installation, "_requirements", lambda: stored)
    required, extras = installation._packages()
    assert required == ["numpy", "pyarrow", "click", "rich", "xxhash"]
    users = {extra for extra in project["optional-dependencies"] if not extra.startswith(("test", "bench", "lint"))}
    assert {e["extra"] for e in extras} == users
    assert {e["package"]: e["version"] for e in extras}["duckdb"] == metadata.version("duckdb")
    monkeypatch.setattr(installation, "_requirements", lambda: ["no-such-package; extra == 'x'"])
    assert installation._packages() == ([], [{"extra": "x", "package": "no-such-package", "version": None}])


# -- other packages


def test_commands_do_not_import_pandas(tmp_path: Path) -> None:
    """pyarrow would, and it takes longer than the command; what runs later in the process still can."""
    (tmp_path / "pandas.py").write_text("print('pandas is imported')")
    code = "from xlamem.cli import main; main(); print('done', flush=True); import pandas"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [sys.executable, "-c", code, "peak", str(SMALL)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert result.stdout.endswith("done\npandas is imported\n")
    assert result.stdout.count("pandas is imported") == 1
