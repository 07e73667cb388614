"""Run tests in a forked process that has pytest imported already, with limits."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PASSED = 0


class TestRun(NamedTuple):
    failed: str
    """The test that failed, or how the process ended; empty if all tests passed."""
    seconds: dict[str, float]
    """Time of each test that was run."""

    __test__ = False


class Selection(NamedTuple):
    """Which tests of a file run, and in which order."""

    names: Set[str] = frozenset()
    """What the changed file defines: tests that mention more of it run earlier."""
    killers: Counter[str] = Counter()  # noqa: RUF012
    """How many bugs in this file each test caught before: those run first."""
    cases: int = 0
    """Most cases of a parametrized test that run; 0: all."""
    order: Mapping[str, int] = {}
    """Positions of the only tests that run; empty: all."""

    def of(self, items: list[pytest.Item]) -> list[pytest.Item]:
        if self.order:
            return sorted((item for item in items if item.nodeid in self.order), key=lambda i: self.order[i.nodeid])
        total = Counter(item.nodeid.split("[")[0] for item in items)
        seen: Counter[str] = Counter()
        chosen = []
        for item in items:
            test = item.nodeid.split("[")[0]
            step = -(-total[test] // self.cases) if self.cases else 1
            if seen[test] % step == 0 or self.killers[item.nodeid]:
                chosen.append(item)
            seen[test] += 1
        return sorted(chosen, key=lambda item: (-self.killers[item.nodeid], -self.mentions(item)))

    def mentions(self, item: pytest.Item) -> int:
        code = getattr(getattr(item, "function", None), "__code__", None)
        return len(self.names & {*code.co_names, *code.co_consts}) if code else 0


class Plugin:
    """Reports each test to the parent, and selects tests."""

    def __init__(self, pipe: int, selection: Selection, limit: float) -> None:
        self.pipe, self.selection, self.limit = pipe, selection, limit

    def say(self, *words: object) -> None:
        os.write(self.pipe, ("\t".join(map(str, words)) + "\n").encode())

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = self.selection.of(items)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + self.limit) + 1, resource.RLIM_INFINITY))
        self.say("start", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.say("failed" if report.failed else "ran", report.nodeid, report.duration)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say("failed", report.nodeid, 0)


def run_tests(
    tree: Path, files: list[str], selection: Selection, limit: float, memory: int, *plugins: object
) -> TestRun:
    """Run test files of a tree until one test fails, with further plugins of pytest.

    A test that takes more than `limit` seconds of processor time is killed, and one that waits ten times as long.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_run(tree, files, memory, Plugin(writing, selection, limit), *plugins))
    os.close(writing)
    lines, in_time = _listen(reading, 10 * limit)
    os.close(reading)
    if not in_time:
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _kill_others(child)
    seconds = defaultdict[str, float](float)
    for line in lines:
        if line[0] == "ran":  # setup, call or teardown
            seconds[line[1]] += float(line[2])
    return TestRun(_failed(lines, code, in_time), dict(seconds))


def _run(tree: Path, files: list[str], memory: int, plugin: Plugin, *others: object) -> int:
    """Run pytest; never return to the caller of `fork`."""
    os.setsid()
    log = os.open(tree / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(tree)
    os.environ["PYTHONPATH"] = str(tree / "src")
    sys.path.insert(0, str(tree / "src"))
    temporary = f"{tree}.tmp"  # in the tree, its pyproject.toml would configure the pytest runs of tests
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow", "--basetemp", temporary]
    try:
        return int(pytest.main([*options, *files], plugins=[plugin, *others]))
    except BaseException:
        return 99
    finally:
        plugin.say("end", "")


def _listen(pipe: int, limit: float) -> tuple[list[list[str]], bool]:
    """Read what the tests report until they end. False if they report nothing for too long."""
    data = b""
    while select.select([pipe], [], [], limit)[0]:
        part = os.read(pipe, 1 << 16)
        data += part
        if not part or data.endswith(b"end\t\n"):  # processes that the tests left behind keep the pipe open
            return _lines(data), True
    return _lines(data), False


def _lines(data: bytes) -> list[list[str]]:
    return [line.split("\t") for line in data.decode(errors="replace").split("\n") if line.count("\t")]


def _failed(lines: list[list[str]], code: int, in_time: bool) -> str:
    if failed := [words[1] for words in lines if words[0] == "failed"]:
        return failed[0]
    if code == PASSED and in_time:
        return ""
    test = next((words[1] for words in reversed(lines) if words[0] == "start"), "collection")
    return f"{test} ended with {code}" if in_time else f"{test} hangs"


def _kill_others(group: int) -> Any:
    """Kill processes that the tests left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
