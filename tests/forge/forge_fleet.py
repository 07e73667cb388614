"""Forge the dumps of a fleet: runs of the same modules, of which some have the text of an earlier run."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from forge_bulk import forge_files

MODULES = 193
"""Distinct modules of each run."""
REPEATED = 0.42
"""Share of the dumps that repeat an earlier text, after the first run."""
MEGABYTES = 0.0135
"""MB to request from `forge_files` for a dump of about 15 KB."""
FORGED = "module_0000.jit_forged"
"""Names of forged files begin with it."""


def forge_fleet(root: Path, count: int, seed: int) -> list[list[Path]]:
    """Forge dumps into a folder for each run; return the paths of each dump."""
    rng = random.Random(seed)
    fleet: list[list[Path]] = []
    texts: list[list[list[Path]]] = [[] for _ in range(MODULES)]
    for i in range(count):
        run, module = divmod(i, MODULES)
        (folder := root / f"run-{run:04}").mkdir(exist_ok=True)
        if texts[module] and rng.random() < REPEATED:
            fleet.append([Path(shutil.copyfile(p, folder / p.name)) for p in rng.choice(texts[module])])
        else:
            fleet.append(forge_dump(folder, module, i))
            texts[module].append(fleet[-1])
    return fleet


def forge_dump(folder: Path, module: int, seed: int) -> list[Path]:
    """Forge the files of one dump, or replace them by those of another seed."""
    stem = f"module_{module:04}.jit_step_{module}"
    paths = forge_files(folder, seed=seed, megabytes=MEGABYTES, profile="small")
    return [path.rename(folder / path.name.replace(FORGED, stem)) for path in paths]
