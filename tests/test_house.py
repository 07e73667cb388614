"""Rules of the house, held by tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xlamem
from xlamem import schema

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "xlamem"
NATIVE = ROOT / "_native"

ROOMS = {
    # room: the rooms that it may import
    "schema": set(),
    "errors": set(),
    "names": {"schema"},
    "streams": {"errors", "names"},
    "text": {"errors", "names", "streams"},
    "source": {"errors", "names", "schema", "streams", "text"},
    "assemble": {"native", "schema"},
    "section": {"text"},
    "findings": {"native", "assemble", "errors", "schema", "section"},
    "outline": {"native", "findings", "names", "section", "source", "streams"},
    "crew": set(),
    "merge": {"native", "assemble", "crew"},
    "repeats": {"native", "assemble", "section"},
    "reader": {
        "native", "assemble", "crew", "errors", "findings", "merge", "outline", "repeats", "schema", "section",
        "source", "streams",
    },
    "verify": {"native", "assemble", "findings", "reader", "section"},
    "dump": {"assemble", "errors", "reader", "schema", "source", "verify", "text"},
    "stream": {
        "native", "assemble", "dump", "errors", "reader", "repeats", "schema", "section", "source", "streams", "verify",
    },
    "together": {"assemble", "dump", "reader", "schema", "source"},
    "warehouse": {
        "native", "assemble", "compute", "dump", "errors", "names", "reader", "schema", "source", "stream", "streams",
        "text", "together",
    },
    "oom": {"errors", "schema", "streams", "source"},
    "cli": {"warehouse", "dump", "errors", "schema", "source", "oom", "compute", "devices"},
    "devices": {"errors"},
    "compute": {"native", "devices", "dump", "errors", "schema", "assemble", "reader"},
}
LATE = {("dump", "compute"), ("dump", "stream")}
"""Imports allowed inside a function only."""


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> list[tuple[str, bool]]:
    """(room, whether inside a function) of every import of the package's own modules."""
    tree = ast.parse(path.read_text())
    inside = {n for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
    found = []
    depth = len(path.relative_to(PACKAGE).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = node.module.split(".")[0] if node.module else None
            if node.level < depth and depth > 1:
                continue  # within its own room
            rooms = [base] if base else [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xlamem."):
            rooms = [str(node.module).split(".")[1]]
        else:
            continue
        found += [("native" if r.startswith("_") else r, node in inside) for r in rooms if r != "__version__"]
    return found


def modules() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.name != "__init__.py" or p.parent != PACKAGE]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    assert room in ROOMS, f"{room} is a new room: say in tests/test_house.py what it may import"
    for target, late in imports(path):
        allowed = target == room or target in ROOMS[room] or (late and (room, target) in LATE)
        assert allowed, f"{path.name} imports {target}"


def test_the_import_check_sees_a_wrong_import(tmp_path: Path) -> None:
    wrong = PACKAGE / "schema.py"
    assert ("native", False) not in imports(wrong)
    tree = ast.parse("from .reader import Reading\nfrom . import _values\ndef f():\n    from .compute import peak\n")
    path = tmp_path / "x.py"
    path.write_text(ast.unparse(tree))
    rooms = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            rooms.append(node.module or node.names[0].name)
    assert rooms == ["reader", "_values", "compute"]


def test_import_brings_no_extra() -> None:
    """`import xlamem` is quick and imports neither the terminal's libraries nor any extra."""
    code = (
        "import sys, xlamem; heavy = {'rich', 'click', 'pandas', 'duckdb', 'dask', 'fsspec', 'polars',"
        " 'pyarrow.parquet', 'pyarrow.dataset', 'pyarrow.compute', 'concurrent.futures', 'html'};"
        " print(sorted(heavy & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


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


def test_nothing_of_this_machine_is_in_the_files() -> None:
    shown = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    for name in shown.stdout.splitlines():
        path = ROOT / name
        ours = path.suffix in (".py", ".pyi", ".pyx", ".pxd", ".md", ".toml", ".txt", "") and "dumps" not in path.parts
        if ours and path.is_file():
            text = path.read_text(errors="replace")
            assert not re.search(r"(^|[^A-Za-z0-9_.])/(work|farm)/", text, re.M), name
