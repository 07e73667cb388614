"""The bugs that can be planted, and what leaves them out."""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch

import pytest
from mutation import run
from mutation.changes import changes
from mutation.covered import Covered


def lines(text: str, path: str = "a.py") -> list[str]:
    """The changed lines."""
    return [change.lines(text)[1] for change in changes(path, text)]


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("y = a < b", ["y = a <= b"]),
        ("y = a + -b", ["y = a - -b", "y = a + b"]),
        ("x[i] = a", ["pass"]),
        ("f(2)", ["pass", "f(3)", "f(1)"]),
        ("y = 0.5", ["y = 1.5"]),
        ("if a and b:", ["if b:", "if False:", "if True:", "if a:", "if a or b:"]),
        ("z = a if b else c", ["z = a if not (b) else c"]),
        ("w = [a for a in b if a]", ["w = [a for a in b if False]", "w = [a for a in b if True]"]),
        ("continue", ["break", "pass"]),
        ("a is None", ["a is not None"]),
        ("a not in b", ["a in b"]),
        ("v = np.where(a, b, c)", ["v = np.where(a, c, b)"]),
        ("u = max(a, b)", ["u = min(a, b)"]),
        ("t: int | None = 1", ["t: int | None = 2", "t: int | None = 0"]),
        ("def f(a: int | None = 1) -> None:", []),
        ("from a import b", []),
        ('"""A docstring: 1 < 2."""', []),
        ("assert a is not None", []),
    ],
)
def test_python(line: str, becomes: list[str]) -> None:
    assert sorted(lines(f"{line}\n")) == sorted(becomes)


def test_an_assignment_is_dropped_if_the_name_exists() -> None:
    assert lines("def f():\n    a = b\n    a = c\n") == ["pass"]


@pytest.mark.parametrize(
    ("path", "line", "becomes"),
    [
        ("a.pyx", "cdef int64_t* p = <int64_t*> q", []),
        ("a.pyx", "cdef inline int f(int a) noexcept nogil:", []),
        (
            "a.pxd",
            "while p < end and p[0] != 3:",
            [
                "while p <= end and p[0] != 3:", "while p < end or p[0] != 3:", "while p < end and p[1] != 3:",
                "while p < end and p[0] == 3:", "while p < end and p[0] != 4:", "while p < end and p[0] != 2:",
                "while p < end:", "while p[0] != 3:", "while False:",
            ],
        ),
        ("a.h", "while (p < end && *p) /* a < b */ {", ["while (p <= end && *p) /* a < b */ {"]),
    ],
)  # fmt: skip
def test_native(path: str, line: str, becomes: list[str]) -> None:
    found = lines(f"{line}\n", path)
    assert sorted(found) == sorted(becomes) if path != "a.h" else set(becomes) <= set(found)


def test_equivalents_are_of_this_source() -> None:
    """A line that has changed is no longer listed."""
    paths = [path for room in ("native", *run.ROOMS) for path in run.files_of(room)]
    texts = {path.relative_to(run.ROOT).as_posix(): path.read_text() for path in paths}
    for bug in run.listed(run.EQUIVALENTS):
        assert bug["line"] in texts[bug["file"]], bug
    for kind in run.listed(run.EQUIVALENTS, "kind"):
        lines = "\n".join(text for file, text in texts.items() if fnmatch(file, kind["file"])).split("\n")
        assert any(re.search(kind["line"], line.strip()) for line in lines), kind


def test_tests_that_execute_a_line() -> None:
    """The quickest first. A line in a statement may be recorded at its first line only."""
    found = Covered({"a.py": {"3": ["slow", "quick", "new"], "20": []}}, {"slow": 2.0, "quick": 0.1})
    assert found.tests("a.py", 3) == found.tests("a.py", 12) == ["quick", "new", "slow"]
    assert found.tests("a.py", 2) == found.tests("a.py", 13) == found.tests("a.py", 20) == found.tests("b.py", 3) == []


def test_lines_of_functions() -> None:
    """The lines of one may be recorded, and those of constants below it are not."""
    f, g = "def f():\n    return (\n        2)\n", "    def g(self):\n        pass\n"
    tree = ast.parse(f"A = 1\n\n{f}B = 3\nclass C:\n    D = 4\n{g}")
    assert [row for row in range(1, 11) if run.in_function(tree, row)] == [4, 5, 10]
