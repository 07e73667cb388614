"""How commands read names, options and inputs, and what they say of errors, on values made by hand."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from xlamem import cli, compute
from xlamem.cli import completion, console, inputs, installation
from xlamem.cli.memory import Memory
from xlamem.cli.options import Output
from xlamem.cli.reporters import tables
from xlamem.compute.capacity import Available
from xlamem.compute.devices import Device
from xlamem.errors import DumpError, OutputError, UsageError

NONE: Any = None


# -- names and options ---------------------------------------------------------------------------


@pytest.mark.parametrize("verb", cli.VERBS)
def test_names_that_are_no_command(verb: str) -> None:
    assert cli._no_such_command(verb + "s") == f"No such command '{verb}s'. Did you mean {verb!r}?"


def test_a_command_that_does_not_exist_is_not_imported() -> None:
    ctx = click.Context(cli.cli)
    assert cli.cli.get_command(ctx, "no_such_command") is None
    assert cli.cli.get_command(ctx, "schema") is cli.import_module("xlamem.cli.verbs.schema").command


def test_replaced_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are named even if another command is spelled alike."""
    for name, replacement in cli.REPLACED.items():
        monkeypatch.setattr(cli, "VERBS", {"peak": "", f"{name}s": ""})
        assert cli._no_such_command(name) == f"No such command {name!r}. Did you mean {replacement!r}?"
    assert cli._no_such_command("nothing") == "No such command or path: 'nothing'."


@pytest.mark.parametrize(
    ("name", "is_path"),
    [("there", True), ("missing", False), ("a/b", True), ("a.b", True), ("-", True), ("-x", False), ("--there", True),
     ("gs://a", True), ("a1", True)],
)  # fmt: skip
def test_what_is_a_path(name: str, is_path: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for there in ("there", "--there"):
        (tmp_path / there).touch()
    assert cli._is_path(name) is is_path


@pytest.mark.parametrize(
    ("variables", "color"),
    [
        ({}, None), ({"NO_COLOR": ""}, None), ({"NO_COLOR": "0"}, False), ({"FORCE_COLOR": ""}, None),
        ({"FORCE_COLOR": "0"}, True), ({"NO_COLOR": "", "FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)  # fmt: skip
def test_colors_that_are_asked_for(
    variables: dict[str, str], color: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that are empty do not count."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with click.Context(cli.cli) as context:
        context.invoke(cli.cli.callback or NONE)
        assert context.color is color


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("color", "system"), [(None, {True: "auto", False: None}), (True, "standard"), (False, None)]
)
def test_colors_of_tables(color: Any, system: Any, terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are asked for; otherwise as the terminal has them."""
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
    assert console._color_system() == ("auto" if terminal else None)  # outside of a command
    with click.Context(cli.cli) as context:
        context.color = color
        assert console._color_system() == (system[terminal] if isinstance(system, dict) else system)


@pytest.mark.parametrize("width", [80, None])
@pytest.mark.parametrize(
    ("output", "limit"),
    [(Output(), 100), (Output(json=True), None), (Output(csv=True), None), (Output(limit=3), 3), (Output(limit=0), 0),
     (Output(json=True, limit=3), 3), (Output(wide=True), None), (Output(markdown=True), 100)],
)  # fmt: skip
def test_rows_of_a_dataset_that_are_read(
    output: Output, limit: int | None, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All for JSON and CSV, and if lines may have any length."""
    monkeypatch.setattr(console, "width", lambda: width)
    assert tables.default_limit(output) == (None if width is None and output.limit is None else limit)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("columns", "terminal_width", "pipe_width"),
    [("", 77, None), ("50", 50, 50), ("39", 40, 40), ("x", 77, None), ("-5", 77, None), ("0", 77, 77)],
)  # fmt: skip
def test_the_width_of_lines(
    columns: str, terminal_width: int, pipe_width: int | None, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the terminal, or COLUMNS, which counts in a pipe, too."""
    given = int(columns) if columns.removeprefix("-").isdigit() else 0
    size = os.terminal_size((given if given > 0 else 77, 9))
    with monkeypatch.context() as patch:  # pytest looks at the terminal, too
        patch.setenv("COLUMNS", columns)
        patch.setattr(sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
        patch.setattr(shutil, "get_terminal_size", lambda: size)
        width = console.width()
    assert width == (terminal_width if terminal else pipe_width)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("", ["bill", "bills", "top"]), ("b", ["bill", "bills"]), ("bills,b", ["bills,bill"]), ("bills,", ["bills,bill",
        "bills,top"]), ("top,bill,", ["top,bill,bills"]), ("x", []), ("top,top", []),
    ],
)  # fmt: skip
def test_names_in_a_list(typed: str, found: list[str]) -> None:
    """Each is offered once."""
    complete = completion.some_of(lambda: ["bill", "bills", "top"])
    assert [item.value for item in complete(NONE, NONE, typed)] == found


@pytest.mark.parametrize(("most", "limit"), [(-1, 1000), (1001, 1000), (1000, 1000), (999, 999)])
def test_the_limit_of_memory(most: int, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never exceeds that of the system."""
    monkeypatch.setitem(os.environ, "ARROW_DEFAULT_MEMORY_POOL", "system")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (7, most) if which == resource.RLIMIT_DATA else NONE)
    found: list[Any] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *arguments: found.append(arguments))
    console.limit_memory("1000B")
    assert found == [(resource.RLIMIT_DATA, (limit, most))]


@pytest.mark.parametrize(("size", "code", "limits"), [("5MiB", 0, ["5MiB"]), ("much", 2, ["much"]), (None, 0, [])])
def test_memory_is_limited_before_a_command_runs(
    size: str | None, code: int, limits: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def limit(text: str) -> None:
        asked.append(text)
        if text == "much":
            raise UsageError("much is no size")

    monkeypatch.setattr(console, "limit_memory", limit)
    assert cli.main([*(["--memory-limit", size] if size else []), "schema", "uses"]) == code
    assert asked == limits
    printed = capsys.readouterr()
    assert ("much is no size" in printed.err) == (code == 2) == (not printed.out)


@pytest.mark.parametrize(
    ("arguments", "document"),
    [
        (
            {"capacity": "1000B", "device": None, "fraction": 0.5, "resident": "100B"},
            {"name": "capacity", "bytes": 1000, "resident": 100, "available": 400},
        ),
        ({"capacity": 10, "device": None, "fraction": 1, "resident": 0},
         {"name": "capacity", "bytes": 10, "resident": 0, "available": 10}),
    ],
)  # fmt: skip
def test_the_memory_that_programs_are_compared_with(arguments: dict[str, Any], document: dict[str, Any]) -> None:
    assert Memory(arguments, compute.available(**arguments)).as_json() == document


def test_the_memory_of_a_device_that_nothing_reports() -> None:
    """Its bytes are those of the vendor."""
    device = Device("v9", (), 1000, "1 kB", "a page")
    reported = device._replace(reported=900, reporter="libtpu")
    documents = [Memory({}, Available(n, n, 0, of)).as_json() for n, of in ((1000, device), (900, reported))]
    assert [(d["bytes"], d["stated_bytes"], d["reported_by"]) for d in documents] == [
        (1000, 1000, None), (900, 1000, "libtpu"),
    ]  # fmt: skip


@pytest.mark.parametrize(("allowed", "count", "cores"), [({1, 5, 6}, 8, 3), (None, 8, 8), (None, None, 1)])
def test_cores(allowed: set[int] | None, count: int | None, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those on which the process may run, if the system tells."""
    if allowed is None:
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    else:
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed if pid == 0 else NONE, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert installation._cores() == cores


@pytest.mark.parametrize(
    ("requirements", "required", "extras"),
    [
        ([], [], []), (["numpy>=2.0", "rich"], ["numpy", "rich"], []),
        (['s3fs>=1; extra == "s3"', "ruff; extra == 'lint'", 'moto; extra == "test-s3"', '; extra == "x"', "a.b-c_d>1"],
         ["a.b-c_d"], [("s3", "s3fs")]),
    ],
)  # fmt: skip
def test_packages(
    requirements: list[str], required: list[str], extras: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extras that only the development needs are left out."""
    monkeypatch.setattr(installation.metadata, "requires", lambda name: requirements if name == "xlamem" else NONE)
    monkeypatch.setattr(installation, "_version", lambda package: f"version of {package}")
    found, others = installation._packages()
    assert (found, [(e["extra"], e["package"], e["version"]) for e in others]) == (
        required, [(extra, package, f"version of {package}") for extra, package in extras],
    )  # fmt: skip
    monkeypatch.setattr(installation.metadata, "requires", lambda _: None)
    assert installation._packages() == ([], [])
    monkeypatch.setattr(installation.metadata, "requires", raising_any(installation.metadata.PackageNotFoundError()))
    assert installation._packages() == ([], [])  # imported from a folder


# -- errors --------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def raising_any(error: BaseException) -> Callable[..., Any]:
    return lambda *args, **options: raising(error)()


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (FileNotFoundError(2, "No such file", "/a/b"), 3, "/a/b: No such file"),
        (OSError(5, "Broken disk"), 3, "input: Broken disk"),
        (OSError(28, "No space left", "/a/b"), 3, "/a/b: No space left"),  # that is not standard output
        (UsageError("wrong"), 2, "wrong"),
        (MemoryError(), 3, console.NO_MEMORY),
        (RuntimeError("can't start new thread"), 3, console.NO_MEMORY),
    ],
)
def test_errors_in_words(error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert console.report_errors(raising(error)) == code
    assert capsys.readouterr().err == f"error: {text}\n"


def test_a_reader_that_has_closed_its_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It has read what it wanted: that is no error, and nothing more is written."""
    calls = []
    monkeypatch.setattr(console, "_discard_stdout", lambda: calls.append("discarded"))
    assert console.report_errors(raising(BrokenPipeError())) == console.FINE
    assert (calls, capsys.readouterr().err) == (["discarded"], "")


def test_output_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left in the buffer is discarded, except for a closed pipe, which is no error of the output."""
    calls, errors = [], iter([OSError(28, "No space left"), BrokenPipeError(32, "Broken pipe")])
    monkeypatch.setattr(console, "_discard_stdout", lambda: calls.append("discarded"))
    monkeypatch.setattr(console.click, "echo", lambda *args, **options: raising(next(errors))())
    with pytest.raises(OutputError, match=r"^cannot write to standard output: No space left$"):
        console.write("x")
    with pytest.raises(BrokenPipeError):
        console.write("x")
    assert calls == ["discarded"]
    monkeypatch.undo()
    monkeypatch.setattr(console, "_discard_stdout", lambda: calls.append("discarded"))
    monkeypatch.setattr(cli.cli, "main", raising_any(OSError(28, "No space left")))  # of the help, by click
    assert cli.main(["--help"]) == console.UNWRITABLE
    assert (calls, capsys.readouterr().err) == (
        ["discarded"] * 2, "error: cannot write to standard output: No space left\n"
    )  # fmt: skip


def test_a_system_without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", "system")
    monkeypatch.setitem(sys.modules, "resource", None)  # cannot be imported
    with pytest.raises(UsageError, match=r"^--memory-limit needs a POSIX system$"):
        console.limit_memory("1GiB")


def test_errors_about_an_input(capsys: pytest.CaptureFixture[str]) -> None:
    """They name it once."""
    errors = ("a/b.txt is truncated", "is truncated", "no dump in a/b")
    assert [console.error_about("a/b", e, 3) for e in errors] == [3, 3, 3]
    assert capsys.readouterr().err == "error: a/b.txt is truncated\nerror: a/b: is truncated\nerror: no dump in a/b\n"


def test_the_limit_of_open_files_behind_other_errors() -> None:
    """Also of one that was raised while another was handled."""
    full = OSError(24, "Too many open files")
    during, caused = RuntimeError("a"), RuntimeError("b")
    during.__context__ = full
    caused.__cause__, caused.__context__ = full, RuntimeError("c")
    assert [console._file_limit(e) for e in (during, caused, full)] == [full] * 3
    outer = RuntimeError("d")
    outer.__context__ = during
    assert console._file_limit(outer) is full
    assert console._file_limit(RuntimeError("e")) is None


# -- inputs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "name", "path"),
    [(".", "m.jit_f", "m.jit_f"), ("./a", "m", "a/m"), ("../a", "m", "../a/m"), ("/a", "m", "/a/m"),
     ("gs://a", "m", "gs://a/m"), ("", "m", "m")],
)  # fmt: skip
def test_paths_of_dumps(location: str, name: str, path: str) -> None:
    source: Any = SimpleNamespace(location=location, name=name)
    assert inputs.path_of(source) == path


def test_dumps_that_cannot_be_read() -> None:
    """The others are read, in order."""
    sources: Any = [SimpleNamespace(location="d", name=name) for name in "abcd"]

    def read_one(source: Any) -> str:
        if source.name == "b":
            raise DumpError("b", "a header")
        if source.name == "c":
            raise OSError(5, "Broken disk")
        return str(source.name)

    results, failures = inputs.read_each(sources, read_one)
    assert results == ["a", "d"]
    assert [f.as_json()["name"] for f in failures] == ["d/b", "d/c"]
    assert failures[1].error == "[Errno 5] Broken disk"


@pytest.mark.parametrize(
    ("n", "n_errors", "text"),
    [
        (1, 0, ""),
        (3, 0, "0001.big is the largest of 3 modules; --module selects another"),
        (3, 1, "0001.big is the largest of 2 readable modules; --module selects another"),
        (3, 2, "0001.big is the only module that can be read"),
    ],
)
def test_the_largest_of_several_modules(
    n: int, n_errors: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    big = SimpleNamespace(label="0001.big")
    errors = [DumpError(f"d/{i}", "a header") for i in range(n_errors)]
    reads: list[Any] = []
    monkeypatch.setattr(inputs, "find", lambda path: [big] * n if path == "d" else [])
    monkeypatch.setattr(compute, "largest_program", lambda sources: (big, errors) if len(sources) == n else NONE)
    monkeypatch.setattr(inputs, "read", lambda *a, **k: reads.append((a, k)) or "dump")
    assert inputs.open_dump("d", None, ["values"]) == ("dump", n_errors)
    assert inputs.open_dump("d", "m", ["values"]) == ("dump", 0)
    assert reads == [((big,), {"tables": ["values"]}), (("d",), {"module": "m", "tables": ["values"]})]
    said = capsys.readouterr().err.splitlines()
    assert said == [*(f"error: {e}" for e in errors), *([f"note: {text}"] if text else [])]


def test_no_module_that_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "find", lambda _: [NONE, NONE])
    monkeypatch.setattr(compute, "largest_program", lambda _: (None, []))
    with pytest.raises(DumpError, match=r"d: .*a readable dump"):
        inputs.open_dump("d", None)


# -- odd arguments -------------------------------------------------------------------------------

DUMP = str(Path(__file__).parents[1] / "dumps" / "cpu-jaxlib-0.12.0-scan_while")
MANY = "9" * 5000


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["peak", DUMP, "--space", MANY], "no memory space"), (["bill", DUMP, "--space", MANY], "no memory space"),
        (["explain", DUMP, "--limit", "9" * 20], None), (["peak", DUMP, "--limit", "9" * 20], None),
        (["top", DUMP, "--limit", "9" * 20], None), (["top", DUMP, "--module", MANY], "no module '9999"),
        (["peak", DUMP, "--capacity", f"{MANY}GiB"], "capacity must be below 4 EiB"),
        (["peak", DUMP, "--capacity", "4194304TiB"], "capacity must be below 4 EiB"),
        (["peak", DUMP, "--capacity", "4194303TiB"], None),
        (["advise", DUMP, "--budget", f"{MANY}GiB"], "budget must be below 4 EiB"),
        (["buffer", DUMP, "\udcff"], "no buffer '\\\\xff'"), (["top", DUMP, "--by", " ,"], "--by needs a key: buffer"),
        (["top", DUMP, "--by", "memory_space"], None),
    ],
)  # fmt: skip
def test_odd_arguments(command: list[str], message: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(command) == (0 if message is None else 2)
    assert capsys.readouterr().err.startswith("" if message is None else f"error: {message}")


def test_groups_by_memory_space(capsys: pytest.CaptureFixture[str]) -> None:
    """There is one in each space, with its name."""
    assert cli.main(["top", DUMP, "--by", "memory_space"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("  memory")


@pytest.mark.parametrize("columns", ["²", MANY, "-1", "x", "1e3"])
def test_columns_that_are_no_width(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console.width() is None
    assert console._stderr_width() == 80


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, file names are UTF-8")
def test_directories_that_are_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    shutil.copytree(DUMP, folder)
    page, baseline = f"{folder}/page.html", f"{folder}/baseline.json"
    checked = ["check", folder, "--baseline", baseline]
    for command in (["diff", folder, DUMP], ["diff", DUMP, folder, "--json"], ["report", folder, "-o", page],
                    ["report", DUMP, folder, "-o", page], ["show", "modules", folder], [*checked, "--bless"],
                    checked):  # fmt: skip
        assert cli.main(command) == 0, capsys.readouterr().err
    capsys.readouterr().out.encode()
    assert cli.main(["dataset", "files", folder]) == 2
    assert "must be UTF-8" in capsys.readouterr().err
