"""Which tests execute a line of Python: recorded by coverage.py while all tests of a room pass."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

STATEMENT = 10
"""Lines of a statement of which only the first may be recorded."""
SETUP = "|setup"
"""Ends the context of what the fixtures of a test execute."""


@dataclass(frozen=True)
class Covered:
    lines: dict[str, dict[str, list[str]]]
    """Tests by file and line."""
    seconds: dict[str, float]
    """Time of each test."""

    @classmethod
    def read(cls, path: Path) -> Covered:
        return cls(**json.loads(path.read_text())) if path.exists() else cls({}, {})

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    def tests(self, file: str, row: int) -> list[str]:
        """Return the tests that execute a line, the quickest first; none if it is executed by an import only."""
        lines = self.lines.get(file, {})
        recorded = next((str(i) for i in range(row, max(0, row - STATEMENT), -1) if str(i) in lines), "")
        return sorted(lines.get(recorded, ()), key=lambda test: self.seconds.get(test, 1.0))


class Recorder:
    """Records, as a plugin of pytest, which tests execute the lines of a package."""

    def __init__(self, tree: Path, package: Path, to: Path) -> None:
        self.tree, self.package, self.to = tree, package, to
        self.tests: defaultdict[str, list[str]] = defaultdict(list)
        """Tests by file."""

    def pytest_sessionstart(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, include=[f"{self.package}/*"], config_file=False)
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        self.tests[item.nodeid.split("::")[0]].append(item.nodeid)
        self.coverage.switch_context(item.nodeid + SETUP)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_teardown(self) -> None:
        self.coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        data = self.coverage.get_data()
        self.to.write_text(json.dumps({
            Path(file).relative_to(self.tree).as_posix(): {
                line: self._tests_in(contexts) for line, contexts in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }))  # fmt: skip

    def _tests_in(self, contexts: Any) -> list[str]:
        """Return the tests of these contexts. What a fixture made may be used by all tests of its file."""
        found = {context for context in contexts if context and not context.endswith(SETUP)}
        for context in contexts:
            if context.endswith(SETUP):
                found.update(self.tests[context.split("::")[0]])
        return sorted(found)
