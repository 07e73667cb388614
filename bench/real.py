"""Real dumps, compiled once into bench/data by an interpreter with JAX and libtpu."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import rivals

DATA = Path(__file__).parent / "data" / "real"
PROGRAMS = {
    "v5e-unrolled": ("v5e", "unrolled", 96),
    "v5e-wide": ("v5e", "unrolled", 128),
    "v5e-sharded": ("v5e", "sharded", 24),
    "v5e-scan": ("v5e", "scan", 24),
    "tpu7x-unrolled": ("tpu7x", "unrolled", 40),
    "tpu7x-sharded": ("tpu7x", "sharded", 24),
    "tpu7x-scan": ("tpu7x", "scan", 24),
    "cpu-unrolled": ("cpu", "unrolled", 192),
}
"""Target, texture and layers of each dump, as in `program.py`."""
WIDE = ("v5e-wide", "v5e-scan", "tpu7x-scan")
"""Most bytes repeat the text of a tuple for each element: more than 2,000 arguments, or what a loop carries."""
PROTO = "after_optimizations.hlo.pb"


@cache
def has(python: str, *modules: str) -> bool:
    """Whether an interpreter finds these modules."""
    code = f"from importlib.util import find_spec; print(all(map(find_spec, {modules})))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True).stdout == "True\n"


def names(python: str) -> list[str]:
    """The dumps that are there or that this interpreter can make."""
    return [name for name in PROGRAMS if (DATA / name).exists() or has(python, "jax", "libtpu")]


def folder(name: str, python: str) -> Path:
    """The memory files of a dump and its proto, compiled if necessary, which takes minutes."""
    made = DATA / name
    if not made.exists():
        new = DATA / f"{name}.new"
        shutil.rmtree(new, ignore_errors=True)
        _compile(name, new, python)
        for path in new.iterdir():
            if path not in (*rivals.memory_files(new), proto(new)):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        new.rename(made)
    return made


def proto(folder: Path) -> Path:
    """The HloProto with buffer assignment of the same program."""
    (path,) = folder.glob(f"*{PROTO}")
    return path


def _compile(name: str, to: Path, python: str) -> None:
    target, texture, layers = PROGRAMS[name]
    command = [python, Path(__file__).with_name("program.py"), to, "--target", target, "--texture", texture]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([*command, "--layers", str(layers)], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} cannot be compiled by {python}: {done.stderr[-2000:]}")
