"""Variants of a small program, written as the dumps of a directory or of a dataset with several points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from renumber import memory_files, renumbered, write

import xlamem

ORIGINAL = xlamem.read(Path(__file__).parents[1] / "dumps" / "cpu-jaxlib-0.10.2-cond_switch")
TEXTS = memory_files(ORIGINAL)
PLATFORM = "cpu_after_optimizations"

Texts = Mapping[str, str]
Named = tuple[str, Texts]
"""Name of the module, and texts by role."""


def replaced(texts: Texts, role: str, old: str, new: str) -> dict[str, str]:
    assert old in texts[role]
    return {**texts, role: texts[role].replace(old, new, 1)}


def inner(number: int, texts: Texts = TEXTS) -> dict[str, str]:
    """A program with the same interface, whose copy_add_fusion has another shape and scope."""
    shape = f"f32[64,{number + 1}]{{1,0}}"
    texts = replaced(texts, "buffer-assignment", "<38 copy_add_fusion @0> (size=65536,offset=0): f32[128,128]{1,0}",
                     f"<38 copy_add_fusion @0> (size=65536,offset=0): {shape}")  # fmt: skip
    texts = replaced(texts, "buffer-assignment-values", "%copy_add_fusion = f32[128,128]{1,0}",
                     f"%copy_add_fusion = {shape}")  # fmt: skip
    return replaced(texts, "buffer-assignment-values", "branch_0_fun/add", f"part{chr(97 + number % 26)}/add")


def larger(texts: Texts, by: int) -> dict[str, str]:
    """Return the program with an output in a larger allocation, and the printed total that belongs to it."""
    texts = replaced(texts, "buffer-assignment", "allocation 1: size 65536", f"allocation 1: size {65536 + by}")
    total = 262447 + by
    printed = f"used: {total} ({total / 1024:.1f}KiB)"
    return replaced(texts, "buffer-assignment-values", "used: 262447 (256.3KiB)", printed)


def outer(number: int) -> dict[str, str]:
    """A program with another interface: other dimensions."""
    return {role: text.replace("[128,128]", f"[128,{129 + number}]") for role, text in TEXTS.items()}


def compiled_again(texts: Texts, directory: Path, seed: int = 0) -> dict[str, str]:
    """The same program with other names and ids."""
    dump = xlamem.read(write(texts, directory / "again", f"module_0000.jit_x.{PLATFORM}"))
    return renumbered(dump, seed)


def written(directory: Path, programs: Iterable[tuple[str, Texts]], first: int = 0) -> Path:
    for number, (name, texts) in enumerate(programs, first):
        write(texts, directory, f"module_{number:04d}.{name}.{PLATFORM}")
    return directory


GROWTH = 196608 - 65536
BIG = larger(TEXTS, GROWTH)
"""The program with a larger allocation."""
CUT = {**TEXTS, "live-range": TEXTS["live-range"][:300]}
"""The program with a truncated file."""


def converted(directory: Path, points: Mapping[str, Iterable[Named]], key: str = "commit") -> xlamem.Dataset:
    """Write the programs of each point and convert them with its label. Their numbers shift from point to point."""
    for i, (point, programs) in enumerate(points.items()):
        folder = directory / point
        folder.mkdir(parents=True)
        written(folder, programs, first=3 * i)
        xlamem.convert(folder, to=directory / "dataset", labels={key: point}, engine="here")
    return xlamem.Dataset(directory / "dataset")
