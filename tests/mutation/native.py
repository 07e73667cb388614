"""Rebuild the native modules that a changed file is part of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

DIRECTIVES = "freethreading_compatible=True boundscheck=False initializedcheck=False wraparound=False cdivision=True"
"""Those of a release, as in CMakeLists.txt."""
USES = re.compile(r"^\s*(?:from\s+(\w+)\s+cimport|#include \"(\w+)\.h\"|cdef extern from \"(\w+)\.h\")", re.MULTILINE)


class BuildError(Exception):
    """The change is not valid Cython or C."""


def modules_of(folder: Path, changed: str) -> list[str]:
    """Return the modules that contain a file, directly or through others."""
    files = [p for p in folder.iterdir() if p.suffix in (".pyx", ".pxd", ".h")]
    uses = {p.name: {name for names in USES.findall(p.read_text()) for name in names if name} for p in files}
    reached = {changed}
    while more := {p for p, used in uses.items() if used & {Path(r).stem for r in reached}} - reached:
        reached |= more
    return sorted(name.removesuffix(".pyx") for name in reached if name.endswith(".pyx"))


def build(tree: Path, module: str, target: Path) -> None:
    """Translate and compile a module of a tree."""
    source, c, shared = tree / "_native", tree / "build" / f"{module}.c", tree / "build" / f"{module}.so"
    c.parent.mkdir(exist_ok=True)
    version = re.findall(r'__version__ = "([^"]+)"', (tree / "src/xlamem/__init__.py").read_text())[0]
    options = [f"-X{directive}" for directive in DIRECTIVES.split()]
    cython = [sys.executable, "-m", "cython", "-3", *options, "--module-name", f"xlamem.{module}", "-I", str(source)]
    _run([*cython, str(source / f"{module}.pyx"), "-o", str(c)])
    flags = f'-O1 -w -fPIC -shared -fvisibility=hidden -DXLAMEM_STAMP="{version}"'.split()
    include = ["-I", sysconfig.get_path("include"), "-I", str(source)]
    _run([os.environ.get("CC", "cc"), *flags, *include, str(c), "-o", str(shared)])
    os.replace(shared, target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise BuildError(done.stderr[-2000:])
