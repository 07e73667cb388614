"""Options and inputs of the benchmarks, and the tables at the end."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytest_benchmark")

import goals
import inputs
import measure
import real
import tabular

FORGED = ["dense", "sharded", "wide", "small"]
ROWS = pytest.StashKey[list[tabular.Row]]()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xlamem")
    group.addoption("--size", type=float, default=100, metavar="MB", help="size of the forged dumps (default: 100)")
    group.addoption("--sizes", type=numbers, default=[], metavar="MB,MB,…", help="sizes for the cost against size")
    group.addoption("--values", type=numbers, default=[1_000_000], metavar="N,N,…", help="values of the computations")
    group.addoption("--fleet", type=int, default=2500, metavar="N", help="small dumps to convert (default: 2500)")
    group.addoption("--huge", type=float, default=500, metavar="MB", help="size of one dump to convert (default: 500)")
    group.addoption(
        "--others", default=sys.executable, metavar="PYTHON", help="an interpreter with jax, libtpu, xprof and xprof-rs"
    )
    group.addoption("--dump", type=Path, metavar="DIR", help="also read this dump")
    group.addoption("--keep", type=Path, metavar="FILE", help="write the tables into this Markdown file")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []
    config.option.benchmark_quiet = True  # its table mixes wall and CPU seconds


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, option in (("megabytes", "sizes"), ("values", "values")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, metafunc.config.getoption(option))
    if "shape" in metafunc.fixturenames:
        given = ["dump"] if metafunc.config.getoption("dump") else []
        every = [*FORGED, *real.names(metafunc.config.getoption("others")), *given]
        metafunc.parametrize("shape", every, indirect=True, scope="session")


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[tabular.Row]:
    """The rows of the tables at the end."""
    return request.config.stash[ROWS]


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> float:
    return float(request.config.getoption("--size"))


@pytest.fixture(scope="session")
def others(request: pytest.FixtureRequest) -> str:
    """The interpreter that has the other software."""
    return str(request.config.getoption("others"))


@pytest.fixture(scope="session")
def shape(request: pytest.FixtureRequest, size: float, others: str) -> inputs.Shape:
    if request.param in real.PROGRAMS:
        return inputs.real(request.param, real.folder(request.param, others))
    if request.param == "dump":
        return inputs.real("dump", request.config.getoption("dump"))
    return inputs.shape(request.param, size)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not (rows := config.stash[ROWS]):
        return
    command = f"python -m pytest {_arguments(config)}"
    lines = [measure.machine(), command, "", *tabular.render([*goals.judged(rows), *rows])]
    if not real.names(config.getoption("others")):
        lines += ["", "The real dumps are missing: --others PYTHON, an interpreter with jax and libtpu, makes them."]
    terminalreporter.section("xlamem")
    for line in lines:
        terminalreporter.write_line(line)
    if path := config.getoption("--keep"):
        tabular.keep(lines, path)


def _arguments(config: pytest.Config) -> str:
    """Return the command's arguments without paths of this machine."""
    words = [word for word in config.invocation_params.args if "--keep" not in word]
    words = [word for word in words if word != str(config.getoption("--keep"))]
    return shlex.join(Path(word).name if Path(word).is_absolute() else word for word in words)
