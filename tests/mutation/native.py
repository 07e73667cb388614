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


WORD = re.compile(r"\w+")
SOME = 2
"""Modules that are built before the first tests."""


class BuildError(Exception):
    """The change is not valid Cython or C."""


FUNCTION = re.compile(r"^(?:def|cdef|static|XLA_CLONES|XLA_PEEK|    (?:def|cdef))\b[^\n(=]*?\b(\w+)\(", re.MULTILINE)
MAIN = "_column", "_values", "_allocations"
"""Modules that are built first, as they use most of what others share."""


def modules_of(folder: Path, changed: str, row: int) -> list[str]:
    """Return the modules that contain a line of a file, the likeliest first: those whose functions come to it."""
    files = {p.name: p.read_text() for p in folder.iterdir() if p.suffix in (".pyx", ".pxd", ".h")}
    uses = {file: {name for names in USES.findall(text) for name in names if name} for file, text in files.items()}
    reached = {changed}
    while more := {p for p, used in uses.items() if used & {Path(r).stem for r in reached}} - reached:
        reached |= more
    modules = sorted(name.removesuffix(".pyx") for name in reached if name.endswith(".pyx"))
    parts = [part for file in reached for part in functions(files[file])]
    names = {function_at(files[changed], row)}
    while more := {name for name, body in parts if name and names & set(WORD.findall(body))} - names:
        names |= more
    if None not in names:
        modules = [m for m in modules if names & set(WORD.findall(files[f"{m}.pyx"]))] or modules
    return sorted(modules, key=lambda m: (m not in MAIN, m))


def functions(text: str) -> list[tuple[str | None, str]]:
    """Return the functions of a file by name, with their text. What is before the first one has no name."""
    begins = list(FUNCTION.finditer(text))
    bounds = [0, *(m.start() for m in begins), len(text)]
    return [(name, text[a:b]) for name, a, b in zip([None, *(m[1] for m in begins)], bounds, bounds[1:], strict=False)]


def function_at(text: str, row: int) -> str | None:
    """Return the function that a line belongs to."""
    begins = [m[1] for m in FUNCTION.finditer(text) if text.count("\n", 0, m.start()) < row]
    return begins[-1] if begins else None


def build(tree: Path, module: str, target: Path) -> None:
    """Translate and compile a module of a tree."""
    source, c, shared = tree / "_native", tree / "build" / f"{module}.c", tree / "build" / f"{module}.so"
    c.parent.mkdir(exist_ok=True)
    version = re.findall(r'__version__ = "([^"]+)"', (tree / "src/xlamem/__init__.py").read_text())[0]
    options = [f"-X{directive}" for directive in DIRECTIVES.split()]
    cython = [sys.executable, "-m", "cython", "-3", *options, "--module-name", f"xlamem.{module}", "-I", str(source)]
    _run([*cython, str(source / f"{module}.pyx"), "-o", str(c)])
    flags = f'-O0 -w -fPIC -shared -fvisibility=hidden -DXLAMEM_STAMP="{version}"'.split()
    include = ["-I", sysconfig.get_path("include"), "-I", str(source)]
    _run([os.environ.get("CC", "cc"), *flags, *include, str(c), "-o", str(shared)])
    os.replace(shared, target)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise BuildError(done.stderr[-2000:])
