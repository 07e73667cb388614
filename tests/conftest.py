"""Real dumps as sources and bytes, shared by the tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import exact
import pytest

import xlamem
from xlamem import _lines
from xlamem.input.find import Source

HERE = Path(__file__).parent
DUMPS = HERE / "dumps"
CORPUS = Path(os.environ.get("XLAMEM_CORPUS") or HERE.parent.parent / "shared" / "corpus")
"""A larger collection of real dumps, optional."""

if "SANITIZE" in _lines.BUILD:
    exact.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests on dumps of the corpus as slow: the stored dumps cover the same formats."""
    for item in items:
        callspec = getattr(item, "callspec", None)
        if callspec and any(in_corpus(value) for value in callspec.params.values()):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Exclude the thousands of tests from garbage collection, which `convert` runs often."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def every(n: int, values: Iterable[Any]) -> list[Any]:
    """Values of a parameter, of which all but each n-th are marked as slow."""
    return every_row(n, ((value,) for value in values))


def every_row(n: int, rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Values of several parameters, of which all but each n-th are marked as slow."""
    return [pytest.param(*row, marks=[pytest.mark.slow] if i % n else []) for i, row in enumerate(rows)]


def in_corpus(value: Any) -> bool:
    return isinstance(value, Source) and Path(value.members[0].uri).is_relative_to(CORPUS)


def sources() -> list[Source]:
    """The real dumps, without the empty ones of a writer that was killed immediately."""
    roots = [p for p in (DUMPS, CORPUS) if p.is_dir() and any(p.iterdir())]
    return [s for s in (xlamem.find(*roots) if roots else []) if s.bytes_on_disk() != 0]


def label(source: Source) -> str:
    place = Path(source.location.split("::")[0])
    for root in (DUMPS, CORPUS):
        if place.is_relative_to(root):
            place = Path(root.name) / place.relative_to(root)
    return f"{place}/{source.name}"


def texts(source: Source) -> dict[str, bytes]:
    """The bytes of each member by role, after decompression."""
    found = {}
    for member in source.members:
        text = member.load()
        found[member.role] = bytes(text.data)
        text.close()
    return found


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write members {role: bytes} as a dump in a new folder, and return the folder."""
    made = 0

    def write(members: dict[str, bytes], suffix: str = "cpu_after_optimizations") -> Path:
        nonlocal made
        folder = tmp_path / f"dump{made}"
        made += 1
        folder.mkdir()
        for role, data in members.items():
            name = f"module_0000.jit_f.{suffix}" + (".txt" if role == "hlo" else f"-{role}.txt")
            (folder / name).write_bytes(data)
        return folder

    return write


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write programs {name: texts} to a new folder."""
    from variants import written

    made = 0

    def write(**programs: Mapping[str, str]) -> Path:
        nonlocal made
        made += 1
        folder = tmp_path / f"programs{made}"
        folder.mkdir()
        return written(folder, list(programs.items()))

    return write
