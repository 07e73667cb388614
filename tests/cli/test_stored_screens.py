"""What commands print about stored programs and logs, compared with what they printed before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS
from pairs import Pair
from pairs import stored as pairs
from stored import check

import xlamem
from xlamem import cli

LOGS = sorted(path.name for path in (DUMPS.parent / "data" / "oom").glob("*.txt"))
OF_DUMP = (
    "peak", "peak --limit 2 --wide -v --device v5e --resident 15.7GiB", "peak --csv --capacity 1GiB", "top",
    "top --by buffer --limit 3", "top --by source,category --limit 4", "top --tree --limit 6", "top --at 3 --fold",
    "top --by kind --csv --limit 2", "bill", "advise", "advise --budget 1KiB --limit 2", "advise --csv", "explain",
    "explain -v --limit 9", "info",
)  # fmt: skip
"""Commands about one dump, whose path is the first argument."""
FOLDERS = (
    "cpu-jaxlib-0.12.0-multiheap", "tpu-libtpu-0.0.50.1-v5e-host_offload", "gpu-jax-0.10.2-attn_cudnn",
    "cpu-jaxlib-0.4.13-donate_adam",
)  # fmt: skip
OF_PAIR = ("", "--markdown --limit 3", "--by edit,category --limit 4", "--csv --limit 2")
OF_PAIRS = ("cpu-layer-added-sgd", "cpu-names")

Run = Callable[..., list[tuple[str, Any]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command at some widths, and return what it printed, by its name and the width.

    Paths are relative: how they are shortened must not depend on where the tests are.
    """
    monkeypatch.chdir(DUMPS)

    def call(name: str, *arguments: object, widths: tuple[str, ...] = ("80",)) -> list[tuple[str, Any]]:
        found = []
        for width in widths:
            monkeypatch.setenv("COLUMNS", width)
            code = cli.main([str(a) for a in arguments])
            printed = capsys.readouterr()
            found.append((f"{name} at {width or 'any'}", f"{code}\n{printed.out}\n{printed.err}"))
        return found

    return call


def with_path(text: str, *paths: object) -> list[object]:
    verb, *options = text.split()
    return [verb, *paths, *options]


@pytest.mark.parametrize("folder", FOLDERS)
def test_programs(folder: str, run: Run) -> None:
    values = xlamem.read(folder)["values"]
    names = [values["value_id"][i].as_py() for i in (0, values.num_rows // 2, values.num_rows - 1)]

    def results() -> Iterator[tuple[str, Any]]:
        for text in OF_DUMP:
            yield from run(text, *with_path(text, folder))
        yield from run("peak", "peak", folder, widths=("", "150"))
        for name in names:
            yield from run(f"buffer {name}", "buffer", folder, name, "--limit", 2)

    check(f"cli/{folder}", results())


def test_directories(run: Run) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        yield from run("peak", "peak", *FOLDERS, "--limit", 3, "--device", "v5e", "--resident", "15.74GiB")
        yield from run("info", "info", *FOLDERS, widths=("80", ""))
        yield from run("schema", "schema", widths=("80",))
        yield from run("schema of tables", "schema", "values", "bills", "peaks", "differences", "quarantine")
        spaces = ("tpu-libtpu-0.0.50.1-v5e-mlp_grad", FOLDERS[1])
        yield from run("diff of a space", "diff", *spaces, "--space", "hbm", "--limit", 3, widths=("80", "130"))
        yield from run("show", "show", "allocations", FOLDERS[0], "--limit", 4, widths=("60", "80", ""))
        yield from run("show as CSV", "show", "values", FOLDERS[1], "--csv", "--limit", 4)

    check("cli/directories", results())


@pytest.mark.parametrize("pair", [p for p in pairs() if p.name in OF_PAIRS], ids=lambda pair: pair.name)
def test_differences(pair: Pair, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (path.relative_to(tmp_path) for path in pair.unpack(tmp_path))
    monkeypatch.chdir(tmp_path)

    def results() -> Iterator[tuple[str, Any]]:
        for text in OF_PAIR:
            yield from run(f"diff {text}", "diff", a, b, *text.split())
        yield from run("diff backwards", "diff", b, a, "--exit-code", widths=("", "60"))

    check(f"cli/{pair.name}", results())


def test_logs(run: Run) -> None:
    def results() -> Iterator[tuple[str, Any]]:
        for log in LOGS:
            yield from run(log, "oom", f"../data/oom/{log}", widths=("80", ""))
        yield from run("limit", "oom", f"../data/oom/{LOGS[0]}", "--limit", 1)

    check("cli/logs", results())
