"""Inputs: forged once, stored in bench/data, and refused if they do not resemble real dumps."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import forge_bulk
import rivals
from bulk_statistics import misfits, statistics, wide_statistics
from forge_bulk import forge_files, leaf_bytes
from forge_fleet import forge_fleet
from forge_large import forge_large

DATA = Path(__file__).parent / "data"
SEED = 1
SMALL = 0.0275
"""MB to request from `forge_files` for a dump of about 30 KB."""
SAMPLE = 50
"""Small dumps whose statistics are compared."""
COPY = 16.8
"""MB of a copy in `forge_large`."""
ONE_PROGRAM = 40
"""MB up to which a dump is forged as one program."""


@dataclass(frozen=True)
class Shape:
    """An input: a folder with the four memory files of each dump, each dump in its own folder unless it is a fleet."""

    name: str
    root: Path
    files: list[Path]
    bytes: int

    @property
    def folders(self) -> list[Path]:
        return sorted({path.parent for path in self.files})

    @property
    def dumps(self) -> int:
        return sum(path.name.endswith(rivals.ROLES[0]) for path in self.files)

    @property
    def title(self) -> str:
        return f"{self.name}: {self.bytes / 1e6:,.1f} MB in {self.dumps:,} dump{'s' * (self.dumps > 1)}"


def dense(root: Path, size: float, seed: int = SEED) -> dict[str, float]:
    if size <= ONE_PROGRAM:
        return statistics(forge_files(root, seed=seed, megabytes=size))
    forge_large(root, seed=seed, copies=round(size / COPY))
    with tempfile.TemporaryDirectory() as folder:  # the same in small, because statistics are slow
        return statistics(forge_large(Path(folder), seed=seed, copies=2))


def sharded(root: Path, size: float) -> dict[str, float]:
    """Forge programs of several devices: long tuples, which fusions with asynchronous collectives return."""
    return statistics(forge_files(root, seed=SEED, megabytes=min(size, ONE_PROGRAM), profile="sharded"))


def changed(root: Path, size: float) -> dict[str, float]:
    """Forge another dense dump: the same layers with other operations, and a copy more."""
    return dense(root, size + COPY, SEED + 1)


def wide(root: Path, size: float) -> dict[str, float]:
    """Forge a tuple parameter whose text, repeated for each leaf, is nine tenths of the bytes."""

    def leaves(megabytes: float) -> int:
        return round((megabytes * 1e6 / leaf_bytes(forge_bulk.ERAS["E7"], "tpu")) ** 0.5)

    copies = round(size / 170)
    if copies < 2:
        return wide_statistics(forge_files(root, seed=SEED, megabytes=size, wide=leaves(0.9 * size)))
    return wide_statistics(forge_large(root, seed=SEED, copies=copies, wide=leaves(size / copies - COPY)))


def small(root: Path, size: float) -> dict[str, float]:
    """Forge dumps of 30 KB with a fifth of the bytes."""
    dumps: list[list[Path]] = []
    made = 0
    while made < size * 2e5:
        (folder := root / f"{made:011}").mkdir()
        dumps.append(forge_files(folder, seed=made, megabytes=SMALL, profile="small"))
        made += sum(path.stat().st_size for path in dumps[-1])
    return _mean(dumps[:SAMPLE])


def fleet(root: Path, count: float) -> dict[str, float]:
    """Forge runs of the same 193 modules, 15 KB each. Four dumps of ten repeat an earlier dump of their module."""
    return _mean(forge_fleet(root, round(count), SEED)[:SAMPLE])


def _mean(dumps: list[list[Path]]) -> dict[str, float]:
    found = [statistics(paths) for paths in dumps]
    return {name: sum(s[name] for s in found) / len(found) for name in found[0]}


def several(root: Path, size: float) -> dict[str, float]:
    """Forge four dense dumps."""
    for i in range(4):
        (folder := root / str(i)).mkdir()
        paths = forge_files(folder, seed=SEED + i, megabytes=size / 4)
    return statistics(paths)


SHAPES: dict[str, tuple[Callable[[Path, float], dict[str, float]], str]] = {
    "dense": (dense, "tpu"),
    "changed": (changed, "tpu"),
    "sharded": (sharded, "sharded"),
    "wide": (wide, "wide"),
    "small": (small, "small"),
    "several": (several, "tpu"),
    "fleet": (fleet, "small"),
}
"""By name: the function that forges it, and the real dumps that it must resemble. The size is in MB, or dumps."""


def shape(name: str, size: float) -> Shape:
    """Return an input with a warm page cache, and forge it first if necessary.

    Raises ValueError if its statistics differ from those of real dumps, because results would mean nothing.
    """
    root = DATA / f"{name}-{size:g}"
    stamp = root / "statistics.json"
    if not stamp.exists() or json.loads(stamp.read_text())["forge"] != _digest():
        forge, kind = SHAPES[name]
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        found = forge(root, size)
        if size >= 2 and (wrong := misfits(found, kind)):
            raise ValueError(f"the forged {name} dumps do not look like real ones: (found, measured) {wrong}")
        stamp.write_text(json.dumps({"forge": _digest(), **found}, indent=1))
    return _shape(name, root, sorted(root.rglob("*.txt")))


def repeated(shape: Shape, times: int) -> Path:
    """Return a folder with the dumps of an input several times, as hard links."""
    root = shape.root.with_name(f"{shape.root.name}-times-{times}")
    shutil.rmtree(root, ignore_errors=True)
    for i in range(times):
        shutil.copytree(shape.root, root / str(i), copy_function=os.link)
    return root


def real(name: str, folder: Path) -> Shape:
    """Return the memory files of a folder, a real dump."""
    return _shape(name, folder, rivals.memory_files(folder))


def _shape(name: str, root: Path, files: list[Path]) -> Shape:
    return Shape(name, root, files, sum(map(_warm, files)))


def _warm(path: Path) -> int:
    total = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 22):
            total += len(block)
    return total


def _digest() -> str:
    """Return a hash of the code that forges."""
    folder = Path(forge_bulk.__file__).parent
    names = ("bulk_profiles", "bulk_statistics", "forge", "forge_bulk", "forge_large", "forge_program", "render")
    sources = [folder / f"{name}.py" for name in names]
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(__file__)])).hexdigest()[:16]
