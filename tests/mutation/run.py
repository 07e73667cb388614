"""Plant bugs and see whether the tests of the same room catch them: `python tests/mutation/run.py compute --count 50`.

A room is a package of `src/xlamem`, or `native`, and its tests. Each planted bug is one change of one expression or
statement (changes.py) in a copy of the tree. Which ones are planted depends on the seed and the files only. Changes
that no test can see are listed in equivalents.toml with the reason, and left out.

mutmut and cosmic-ray change Python only, whereas half of the code that matters here is Cython and C. One engine on
tokens covers all three. It imports pytest and pyarrow once and forks for each bug, and stops at the first test that
fails. For a bug in a function in Python, it runs the tests that execute the line (covered.py), the quickest first; for
others the test files, first those that mention most of the changed file or caught a bug in it before.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import importlib
import json
import multiprocessing
import os
import py_compile
import random
import re
import shutil
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from mutation import native
from mutation.changes import Change, changes
from mutation.covered import Covered, Recorder
from mutation.session import Selection, run_tests

ROOT = Path(__file__).parents[2]
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
ROOMS = ("parse", "compute", "warehouse", "compare", "gate", "page", "input", "display", "cli")
COPIED = (
    "_native", "src", "tests", "docs", "bench",
    "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "CONTRIBUTING.md",
    "action.yml", ".pre-commit-hooks.yaml",
)  # fmt: skip
IGNORED = ("__pycache__", "node_modules")
WANTED = 0.95
FIRST = re.compile("test_(stored_.*|.*_settings|corpus|edits|models).py")
"""Test files that run early because they compare whatever a dump yields, or whatever a dataset contains."""
LIKELY = 5
"""Test files that run before the others."""


@dataclass(frozen=True)
class Bug:
    """A change, as people see it and as the list of equivalents names it."""

    room: str
    file: str
    row: int
    line: str
    becomes: str
    change: Change


@dataclass(frozen=True)
class Outcome:
    bug: Bug
    verdict: str
    """caught, survived, or invalid: it does not compile."""
    by: str
    """The test that failed, or what happened."""
    seconds: float


# -- bugs


def bugs(room: str) -> list[Bug]:
    """Return all bugs that can be planted in a room and can be seen."""
    equivalent = {(e["file"], e["line"], e["becomes"]) for e in listed(EQUIVALENTS)}
    kinds = [(k["file"], re.compile(k["line"])) for k in listed(EQUIVALENTS, "kind")]

    def is_equivalent(bug: Bug) -> bool:
        return (bug.file, bug.line, bug.becomes) in equivalent or any(
            fnmatch(bug.file, file) and line.search(bug.line) for file, line in kinds
        )

    return [bug for bug in possible(room) if not is_equivalent(bug)]


def possible(room: str) -> Iterator[Bug]:
    for path in files_of(room):
        text, file = path.read_text(), path.relative_to(ROOT).as_posix()
        for change in changes(path.name, text):
            line, becomes = change.lines(text)
            if line != becomes:
                yield Bug(room, file, text.count("\n", 0, change.start) + 1, line, becomes, change)


def files_of(room: str) -> list[Path]:
    if room == "native":
        return sorted(p for p in (ROOT / "_native").iterdir() if p.suffix in (".pyx", ".pxd", ".h"))
    package = sorted(p for p in (ROOT / "src/xlamem" / room).rglob("*.py") if not p.name.endswith("_pb2.py"))
    alone = {"parse": ["dump.py"], "display": ["formatting.py"]}.get(room, [])
    return package + [ROOT / "src/xlamem" / name for name in alone]


def tests_of(room: str, root: Path) -> list[str]:
    folders = ["tests/native", "tests/parse"] if room == "native" else [f"tests/{room}"]
    return sorted(p.relative_to(root).as_posix() for f in folders for p in (root / f).glob("test_*.py"))


def listed(path: Path, what: str = "bug") -> list[dict[str, str]]:
    """Return the bugs, or the kinds of bugs, of a file like equivalents.toml."""
    found: list[dict[str, str]] = tomllib.loads(path.read_text()).get(what, [])
    return found


def by_hand(room: str, path: Path) -> list[Bug]:
    """Return the bugs of a file, each of which must match one line of the source."""
    found = []
    for e in listed(path):
        text = (ROOT / e["file"]).read_text()
        if text.count(e["line"]) != 1:
            sys.exit(f"{e['file']} has {text.count(e['line'])} lines like {e['line']!r}")
        start = text.index(e["line"])
        change = Change(start, start + len(e["line"]), e["becomes"])
        found.append(Bug(room, e["file"], text.count("\n", 0, start) + 1, e["line"], e["becomes"], change))
    return found


# -- trees


class Tree:
    """A copy of the project in which one bug at a time is planted."""

    def __init__(self, room: str, options: argparse.Namespace) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="xlamem-mutation-"))
        self.room, self.options = room, options
        self.covered = Covered.read(covered_path(room, options))
        self.killers: dict[str, Counter[str]] = {}
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                ignored = shutil.ignore_patterns(*IGNORED, *(["data"] if name == "bench" else []))  # dumps of the bench
                shutil.copytree(source, self.root / name, ignore=ignored)
            else:
                shutil.copy2(source, self.root / name)
        self.add_native_modules()
        # Validated by content: a change within a second would not change the time stamp.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.root / "src", quiet=1, invalidation_mode=mode)

    def add_native_modules(self) -> None:
        """Copy those that are installed, unless the tree contains them."""
        package = self.root / "src/xlamem"
        if not any(package.glob("_column*.so")):
            installed = importlib.util.find_spec("xlamem")
            assert installed is not None
            for path in Path(str(installed.origin)).parent.glob("_*.so"):
                shutil.copy2(path, package)

    def attempt(self, bug: Bug) -> Outcome:
        begin = time.monotonic()
        path = self.root / bug.file
        text = path.read_text()
        path.write_text(bug.change.apply(text))
        try:
            verdict, by = self.verdict(bug)
        except (native.BuildError, SyntaxError) as error:
            verdict, by = "invalid", str(error).strip().split("\n")[-1]
        finally:
            path.write_text(text)
            for saved in (self.root / "src/xlamem").glob("*.saved"):
                os.replace(saved, saved.with_suffix(""))
        return Outcome(bug, verdict, by, time.monotonic() - begin)

    def verdict(self, bug: Bug) -> tuple[str, str]:
        """Run the likeliest test files, then the others."""
        killers = self.killers.setdefault(bug.file, Counter())
        if is_python := bug.file.endswith(".py"):
            tree = ast.parse((self.root / bug.file).read_text())
            if (tests := self.covered.tests(bug.file, bug.row)) and in_function(tree, bug.row):
                return self.covered_verdict(tests, killers)
        modules: list[str] = []
        if not is_python:
            modules = native.modules_of(self.root / "_native", Path(bug.file).name, bug.row)
        names = defined((ROOT / bug.file).read_text()) | {Path(bug.file).stem, *modules}
        selection = Selection(names, killers, self.options.cases)
        files = sorted(tests_of(self.room, self.root), key=lambda test: self.rank(test, selection))
        # A test that fails with some modules built again also fails with all of them.
        some, others = modules[: native.SOME], modules[native.SOME :]
        likely = [f for f in files if f.startswith("tests/native/")] or files[:LIKELY]
        steps = [(some, likely), (others, files if others else [f for f in files if f not in likely])]
        for rebuilt, part in steps[:1] if self.options.likely else steps:
            if not part:  # pytest would run all tests of the tree
                continue
            for module in rebuilt:
                self.rebuild(module)
            run = run_tests(self.root, part, selection, self.options.limit, self.options.memory)
            if run.failed:
                killers[run.failed] += 1
                return "caught", run.failed
        return "survived", ""

    def covered_verdict(self, tests: list[str], killers: Counter[str]) -> tuple[str, str]:
        """Run these tests, first those that caught bugs, until they have taken the seconds that a bug may take."""
        seconds, order = 0.0, dict[str, int]()
        for test in sorted(tests, key=lambda test: -killers[test]):
            if seconds < self.options.seconds:
                order[test] = len(order)
                seconds += self.covered.seconds.get(test, 1.0)
        files = [*dict.fromkeys(test.split("::")[0] for test in order)]
        run = run_tests(self.root, files, Selection(order=order), self.options.limit, self.options.memory)
        killers[run.failed] += bool(run.failed)
        return ("caught", run.failed) if run.failed else ("survived", f"{len(order)} of {len(tests)} tests")

    def rebuild(self, module: str) -> None:
        (place,) = (self.root / "src/xlamem").glob(f"{module}.*.so")
        shutil.copy2(place, f"{place}.saved")
        native.build(self.root, module, place)

    def rank(self, test: str, selection: Selection) -> tuple[int, bool, int, float]:
        """Sort test files by bugs that they caught, then by how much and how often they mention of the changed file."""
        caught = sum(n for node, n in selection.killers.items() if node.startswith(test))
        words = re.findall(r"\w+", (self.root / test).read_text())
        mentions = [word for word in words if word in selection.names]
        return -caught, not FIRST.fullmatch(Path(test).name), -len({*mentions}), -len(mentions) / max(1, len(words))


def in_function(tree: ast.Module, row: int) -> bool:
    """Return whether a row is in a function, and not executed by an import only."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any(node.lineno < row <= (node.end_lineno or 0) for node in functions)


def defined(text: str) -> set[str]:
    """Return the names of functions and classes of a Python or Cython file."""
    return set(re.findall(r"^(?:def|class|cdef [^=\n]*?|cpdef [^=\n]*?) ?(\w+)(?=[(:])", text, re.MULTILINE))


# -- running

_tree: Tree | None = None


def start(room: str, options: argparse.Namespace) -> None:
    global _tree
    _tree = Tree(room, options)


def attempt(bug: Bug) -> Outcome:
    assert _tree is not None
    return _tree.attempt(bug)


def covered_path(room: str, options: argparse.Namespace) -> Path:
    """Return the file that records which tests of a room execute which lines."""
    return Path(options.log).with_name(f"mutation-{room}.json")


def check_unchanged(room: str, options: argparse.Namespace) -> None:
    """Stop unless all tests of the room pass without a bug. Record which lines each of them executes."""
    tree = Tree(room, options)
    begin = time.monotonic()
    recorder = Recorder(tree.root, tree.root / "src/xlamem", tree.root / "covered.json")
    selection = Selection(cases=options.cases)
    run = run_tests(
        tree.root, tests_of(room, tree.root), selection, options.limit, options.memory,
        *([] if room == "native" else [recorder]),
    )  # fmt: skip
    if run.failed:
        sys.exit(f"without a bug, {run.failed} fails")
    if recorder.to.exists():
        Covered(json.loads(recorder.to.read_text()), run.seconds).write(covered_path(room, options))
    for path in (tree.root, Path(f"{tree.root}.tmp")):
        shutil.rmtree(path, ignore_errors=True)
    print(f"{room}: {len(run.seconds)} tests pass without a bug in {time.monotonic() - begin:.0f} s", flush=True)


def plant(room: str, chosen: list[Bug], options: argparse.Namespace) -> list[Outcome]:
    context = multiprocessing.get_context("fork")
    outcomes = []
    with (
        options.log.open("a") as log,
        ProcessPoolExecutor(options.jobs, context, start, (room, options)) as pool,
    ):
        for future in as_completed([pool.submit(attempt, bug) for bug in chosen]):
            outcome = future.result()
            outcomes.append(outcome)
            print(shown(outcome), flush=True)
            print(json.dumps(asdict(outcome)), file=log, flush=True)
    return outcomes


def shown(outcome: Outcome) -> str:
    bug = outcome.bug
    text = f"{outcome.verdict:8} {outcome.seconds:5.0f} s  {bug.file}:{bug.row}  {outcome.by}"
    return text if outcome.verdict == "caught" else f"{text}\n    - {bug.line}\n    + {bug.becomes}"


def preload() -> None:
    """Import what the tests of every bug import."""
    for name in ("numpy", "pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", "duckdb", "rich.console", "click"):
        importlib.import_module(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("rooms", nargs="+", choices=("native", *ROOMS))
    parser.add_argument("--count", type=int, default=30, help="bugs to plant in each room")
    parser.add_argument("--seed", type=int, default=0, help="another seed plants other bugs")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first bugs of the seed")
    parser.add_argument("--only", action="append", help="plant only in files whose path contains it; repeatable")
    parser.add_argument("--bugs", type=Path, help="plant the bugs of this file instead, written like equivalents.toml")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit", type=float, default=60, help="seconds of processor time of one test")
    parser.add_argument("--memory", type=int, help="GiB of address space for the tests of a bug (16; page: 131072)")
    parser.add_argument("--log", type=Path, default=ROOT / "build/mutation.jsonl")
    parser.add_argument("--likely", action="store_true", help="run the likeliest test files only")
    parser.add_argument("--cases", type=int, default=0, help="run at most so many cases of each parametrized test")
    parser.add_argument("--seconds", type=float, default=60, help="tests that execute a line run for so many seconds")
    parser.add_argument("--trust", action="store_true", help="do not run the tests without a bug first")
    options = parser.parse_args()
    # A browser reserves address space by the terabyte.
    options.memory = options.memory or (1 << 17 if "page" in options.rooms else 16)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    preload()
    lines = []
    enough = True
    for room in options.rooms:
        if not options.trust:
            check_unchanged(room, options)
        if options.bugs:
            chosen = by_hand(room, options.bugs)
        else:
            chosen = [b for b in bugs(room) if any(text in b.file for text in options.only or [""])]
            random.Random(options.seed).shuffle(chosen)
            chosen = chosen[options.skip : options.skip + options.count]
        found = Counter(outcome.verdict for outcome in plant(room, chosen, options))
        valid = found["caught"] + found["survived"]
        enough &= found["caught"] >= WANTED * valid
        lines.append(f"{room}: {valid} planted, {found['caught']} caught, {found['survived']} survived")
    print("\n".join(lines))
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
