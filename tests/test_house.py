"""Rules of the house, held by tests."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xlamem
from xlamem import compute, schema

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "xlamem"
NATIVE = ROOT / "_native"

ORDER = (
    "errors", "kernels", "schema", "formatting", "display", "input", "parse", "dump", "compute", "warehouse", "compare",
    "page", "gate", "cli", "__main__",
)  # fmt: skip
"""Each package imports only itself and those before it."""
NATIVE_FOR = {"parse", "compute"}
"""The packages that import native modules. `input` imports `_guard`, which knows mappings and no text."""


def modules(root: Path = PACKAGE) -> list[Path]:
    return [p for p in sorted(root.rglob("*.py")) if p.name != "__init__.py" or p.parent != root]


def dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path, known: set[str]) -> set[str]:
    """Modules of the package, of which these are known, that a file imports, wherever the import stands."""
    package = list(path.relative_to(root).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "xlamem":
            base = []
        else:
            continue
        stem = [*base, *(node.module or "").removeprefix("xlamem").strip(".").split(".")]
        target = ".".join(part for part in stem if part)
        for alias in node.names:
            full = f"{target}.{alias.name}".lstrip(".")
            found.add(full if full in known else target)
    return found - {""}


def wrong_imports(root: Path) -> list[str]:
    """Imports that climb, native ones where they do not belong, and circles of files."""
    found, graph, paths = [], {}, modules(root)
    known = {dotted(p, root) for p in paths} | {p.stem for p in PACKAGE.glob("_*.pyi")}
    for path in paths:
        name = dotted(path, root)
        own, graph[name] = name.split(".")[0], imports(path, root, known)
        assert own in ORDER, f"{own} is a new package: give it its place in ORDER"
        for target in graph[name]:
            package = target.split(".")[0]
            if package.startswith("_"):
                if own not in NATIVE_FOR and (own, target) != ("input", "_guard"):
                    found.append(f"{name} imports the native module {target}")
            elif ORDER.index(package) > ORDER.index(own):
                found.append(f"{name} imports {target}")
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if name in trail:
            found.append(" -> ".join([*trail[trail.index(name) :], name]))
        elif name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*trail, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())
    return found


def test_imports_go_one_way() -> None:
    assert wrong_imports(PACKAGE) == []


def test_the_import_check_sees_wrong_imports(tmp_path: Path) -> None:
    wrong = [
        ("schema.py", "from .parse import arrow", "schema imports parse.arrow"),
        ("input/names.py", "from ..dump import Dump", "input.names imports dump"),
        ("input/names.py", "from .. import _values", "input.names imports the native module _values"),
        ("parse/arrow.py", "def f():\n    from xlamem.compute import peak", "parse.arrow imports compute"),
        ("input/names.py", "from . import find", "input.names -> input.find"),
    ]
    root = tmp_path / "xlamem"
    shutil.copytree(PACKAGE, root, ignore=shutil.ignore_patterns("*.so", "__pycache__", "node_modules"))
    for file, line, _ in wrong:
        path = root / file
        path.write_text(f"{path.read_text()}\n{line}\n")
    faults = wrong_imports(root)
    assert [wanted for *_, wanted in wrong if not any(wanted in fault for fault in faults)] == []


def test_import_brings_no_extra() -> None:
    """`import xlamem` is quick and imports neither the terminal's libraries nor any extra."""
    code = (
        "import sys, xlamem; xlamem.read; xlamem.find;"
        " heavy = {'rich', 'click', 'pandas', 'duckdb', 'dask', 'fsspec', 'polars',"
        " 'jax', 'pyarrow.parquet', 'pyarrow.dataset', 'pyarrow.compute', 'pyarrow.fs', 'concurrent.futures', 'html',"
        " 'zipfile', 'tarfile', 'tempfile', 'bz2', 'lzma'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_import_of_the_package_loads_nothing_slow() -> None:
    code = "import sys, xlamem; print(sorted({'dataclasses', 'inspect', 'numpy', 'pyarrow'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_computations_are_imported_from_the_module_that_is_named() -> None:
    """Names of `xlamem.compute` are imported on first use; no module hides one of them."""
    assert sorted(compute.__all__) == sorted(compute._MODULE_OF)
    submodules = {path.stem for path in (PACKAGE / "compute").iterdir() if path.suffix in ("", ".py")}
    assert {"advice", "bills"} <= submodules
    assert not submodules & set(compute.__all__)
    for name in compute.__all__:
        assert getattr(compute, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        compute.nothing  # noqa: B018


def test_import_changes_nothing() -> None:
    code = (
        "import gc, os, sys, threading; before = dict(os.environ); import xlamem;"
        " print(dict(os.environ) == before, gc.isenabled(), threading.active_count(), 'numpy' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "True True 1 False"


def test_numpy_is_loaded_before_all_that_takes_long() -> None:
    """OpenBLAS occupies a core for a while after that, which the first read of a dump needs."""
    code = "import sys, xlamem; xlamem.read; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    order = shown.stdout.split()
    assert order.index("numpy") < min(order.index(name) for name in ("pyarrow", "dataclasses", "xlamem.dump"))


def test_native_code_neither_prints_nor_exits() -> None:
    for path in NATIVE.glob("*.p*"):
        text = path.read_text()
        assert not re.search(r"\b(print|printf|puts|exit|abort)\s*\(", text), path.name


def test_native_loops_hold_no_gil() -> None:
    """Every C function is nogil, but those that give a Python object."""
    function = re.compile(r"^cdef (?!extern|struct|enum|class|Column|tuple|object).*\) *[^\n]*:$", re.M)
    for path in NATIVE.glob("*.p*"):
        for line in function.findall(path.read_text()):
            assert "noexcept nogil" in line, f"{path.name}: {line}"


def test_native_modules_have_no_state() -> None:
    """Module-level C variables would be shared by all threads: there are only constants."""
    variable = re.compile(r"cdef (?!extern|struct|enum|class|inline)[\w *]+ \w+ *(=.*)?$")
    for path in NATIVE.glob("*.pyx"):
        text = re.sub(r'"""(?:.|\n)*?"""', "", path.read_text())
        for line in text.splitlines():
            assert not variable.match(line), f"{path.name}: {line}"


def test_only_the_schema_lists_columns() -> None:
    """No other module of the package holds a list of a table's columns in order."""
    for path in modules():
        if path.name in ("schema.py",):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.List, ast.Tuple)) and len(node.elts) > 5:
                texts = [e.value for e in node.elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
                for table in schema.TABLES.values():
                    names = [c.name for c in table.columns]
                    assert texts != names, f"{path.name} lists the columns of {table.name}"


def test_the_slow_reader_knows_the_schema() -> None:
    import oracle

    for name, table in schema.TABLES.items():
        assert oracle.COLUMNS[name].split() == [c.name for c in table.columns], name


def test_public_names() -> None:
    for name in xlamem.__all__:
        assert getattr(xlamem, name).__doc__, name
    for path in PACKAGE.glob("*.py"):
        assert path.stem not in ("read", "convert", "check", "report"), "a module must not hide a function"


def test_type_checkers_know_the_public_names() -> None:
    """Names that are imported on first use are also imported for type checkers."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert set(xlamem.__all__) - imported == set()


def test_nothing_of_this_machine_is_in_the_files() -> None:
    shown = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    for name in shown.stdout.splitlines():
        path = ROOT / name
        ours = path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".md", ".toml", ".txt", "") and "dumps" not in path.parts
        if ours and path.is_file():
            text = path.read_text(errors="replace")
            assert not re.search(r"(^|[^A-Za-z0-9_.])/(work|farm)/", text, re.M), name
