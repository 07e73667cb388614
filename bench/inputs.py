"""Inputs: forged once, stored in bench/data, and refused if they do not resemble real dumps."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import forge_bulk
import rivals
from forge_bulk import forge_files, leaf_bytes, misfits, statistics, wide_statistics
from forge_large import forge_large

DATA = Path(__file__).parent / "data"
SEED = 1
SMALL = 0.0275
"""MB to request from `forge_files` for a dump of about 30 KB."""
COPY = 17.2
"""MB of a copy in `forge_large`."""
ONE_PROGRAM = 40
"""MB up to which a dump is forged as one program."""


@dataclass(frozen=True)
class Shape:
    """An input: folders, each with the four memory files of one dump."""

    name: str
    folders: list[Path]
    files: list[Path]
    bytes: int

    @property
    def title(self) -> str:
        dumps = f"{len(self.folders):,} dumps" if len(self.folders) > 1 else "1 dump"
        return f"{self.name}: {self.bytes / 1e6:,.1f} MB in {dumps}"


def dense(root: Path, size: float, seed: int = SEED) -> dict[str, float]:
    if size <= ONE_PROGRAM:
        return statistics(forge_files(root, seed=seed, megabytes=size))
    forge_large(root, seed=seed, copies=round(size / COPY))
    with tempfile.TemporaryDirectory() as folder:  # the same in small, because statistics are slow
        return statistics(forge_large(Path(folder), seed=seed, copies=2))


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
    found: list[dict[str, float]] = []
    made = 0
    while made < size * 2e5:
        (folder := root / f"{made:011}").mkdir()
        paths = forge_files(folder, seed=made, megabytes=SMALL, profile="small")
        made += sum(path.stat().st_size for path in paths)
        if len(found) < 50:
            found.append(statistics(paths))
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
    "wide": (wide, "wide"),
    "small": (small, "small"),
    "several": (several, "tpu"),
}
"""By name: the function that forges it, and the real dumps that it must resemble."""


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
        if size >= 1 and (wrong := misfits(found, kind)):
            raise ValueError(f"the forged {name} dumps do not look like real ones: (found, measured) {wrong}")
        stamp.write_text(json.dumps({"forge": _digest(), **found}, indent=1))
    return _shape(name, sorted(root.rglob("*.txt")))


def real(folder: Path) -> Shape:
    """Return the memory files of a folder, a real dump."""
    return _shape("real", rivals.memory_files(folder))


def _shape(name: str, files: list[Path]) -> Shape:
    return Shape(name, sorted({path.parent for path in files}), files, sum(map(_warm, files)))


def _warm(path: Path) -> int:
    total = 0
    with open(path, "rb", buffering=0) as file:
        while block := file.read(1 << 22):
            total += len(block)
    return total


def _digest() -> str:
    """Return a hash of the code that forges."""
    folder = Path(forge_bulk.__file__).parent
    sources = [folder / f"{name}.py" for name in ("forge", "forge_bulk", "forge_large", "forge_program", "render")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(__file__)])).hexdigest()[:16]
