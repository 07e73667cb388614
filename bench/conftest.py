"""Inputs of the benchmarks, forged once and kept in bench/data; the table of ratios at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forge_bulk import forge_files

pytest.importorskip("pytest_benchmark")

DATA = Path(__file__).parent / "data"
SEED = 1
SMALL = 0.05  # MB a dump, as asked of forge_files
LEAF = 57  # bytes that one leaf of a tuple parameter adds to its text (E7, tpu)


@dataclass(frozen=True)
class Shape:
    """One shape of input: folders, each with the memory files of one dump."""

    name: str
    folders: list[Path]
    files: list[Path]
    bytes: int


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--size", type=int, default=100, metavar="MB", help="size of the forged dumps (default: 100)")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RESULTS] = []


RESULTS = pytest.StashKey[list[dict[str, Any]]]()


def _dense(root: Path, size: int) -> None:
    forge_files(root, seed=SEED, megabytes=size)


def _wide(root: Path, size: int) -> None:
    """A tuple parameter whose text, repeated for each leaf, is nine tenths of the bytes."""
    forge_files(root, seed=SEED, megabytes=size, wide=round((0.9 * size * 1e6 / LEAF) ** 0.5))


def _small(root: Path, size: int) -> None:
    """A fifth of the bytes in dumps of tens of kilobytes."""
    made = 0
    while made < size * 2e5:
        folder = root / f"{made:09}"
        folder.mkdir()
        paths = forge_files(folder, seed=made, megabytes=SMALL)
        made += sum(p.stat().st_size for p in paths)


SHAPES: dict[str, Callable[[Path, int], None]] = {"dense": _dense, "wide": _wide, "small": _small}


@pytest.fixture(scope="session", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    """One shape of input, forged if it is not there yet; its pages are warm."""
    size = request.config.getoption("--size")
    root = DATA / f"{request.param}-{size}"
    if not root.exists():
        making = root.with_suffix(".new")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        SHAPES[request.param](making, size)
        making.rename(root)
    files = sorted(root.rglob("*.txt"))
    total = sum(len(path.read_bytes()) for path in files)
    return Shape(request.param, sorted({path.parent for path in files}), files, total)


@pytest.fixture
def results(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """What the table at the end is made of."""
    return request.config.stash[RESULTS]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    rows = config.stash[RESULTS]
    for name in dict.fromkeys(row["shape"] for row in rows):
        mine = [row for row in rows if row["shape"] == name]
        first = mine[0]
        terminalreporter.section(f"{name}: {first['bytes'] / 1e6:.1f} MB in {first['dumps']} dumps")
        terminalreporter.write_line(
            f"{'':30}{'CPU s':>9}{'x wc -l':>9}{'GB/s CPU':>10}{'GB/s wall':>11}{'rows/s':>13}{'dumps/s':>9}"
            f"{'first x wc':>12}{'MB memory':>11}"
        )
        for row in mine:
            cells = (
                f"{row['cpu_s']:9.4f}",
                f"{row['times_wc']:9.2f}",
                f"{row['cpu_gb_s']:10.3f}",
                f"{row['wall_gb_s']:11.3f}",
                f"{row['rows_s']:13,.0f}" if row["rows_s"] else f"{'':13}",
                f"{row['dumps_s']:9,.1f}",
                f"{row['first_times_wc']:12.2f}" if row["first_times_wc"] else f"{'':12}",
                f"{row['memory_bytes'] / 1e6:11.1f}" if row["memory_bytes"] else f"{'':11}",
            )
            terminalreporter.write_line(f"{row['label']:30}{''.join(cells)}")
