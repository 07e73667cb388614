"""What the tests share: the real dumps, as files and as bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import xlamem
from xlamem.input.find import Source

HERE = Path(__file__).parent
DUMPS = HERE / "dumps"
CORPUS = HERE.parent.parent / "shared" / "corpus"
"""A larger collection of real dumps, used where it is present."""


def sources() -> list[Source]:
    """Real dumps; without those that hold nothing because their writer was killed at once."""
    roots = [p for p in (DUMPS, CORPUS) if p.is_dir() and any(p.iterdir())]
    return [s for s in (xlamem.find(*roots) if roots else []) if s.bytes_on_disk() != 0]


def label(source: Source) -> str:
    place = Path(source.location.split("::")[0])
    for root in (DUMPS, CORPUS):
        if place.is_relative_to(root):
            place = Path(root.name) / place.relative_to(root)
    return f"{place}/{source.name}"


def texts(source: Source) -> dict[str, bytes]:
    """Role -> bytes of each member, containers undone."""
    found = {}
    for member in source.members:
        text = member.load()
        found[member.role] = bytes(text.data)
        text.close()
    return found


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Write members {role: bytes} as a dump of its own folder; returns the folder."""
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
