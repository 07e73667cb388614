"""The hooks that measure tests; pytest calls them only if a test uses the marker or the fixture."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from ...dump import Dump
from ...errors import UsageError, XlaMemError
from ...formatting import wrap
from .. import baseline as baselines
from .. import hook
from ..baseline import Baseline
from ..capture import Capture
from ..checking import check_entries
from ..config import Budget, Config, budget_of, find_config, load_config
from ..formats.as_text import as_text
from ..programs import program_name
from ..result import FAILED, NOT_KNOWN, WARNING, CheckResult
from .blocks import AHEAD_OF_TIME, RECORD, Size, explained
from .records import Record, Row, baseline_file, record_of

__all__ = ["Measuring", "Record"]

NAME, OPTION = "xla_memory", "--xlamem-bless"
BUDGETS = pytest.StashKey[Sequence[Budget]]()
"""The budgets of a test that is marked."""
NO_GROWTH = {"growth": "0 %"}
"""What a marker without a limit means."""


class Body(Capture):
    """The programs that JAX compiles while a test function runs."""

    _place, _way_out = "the test", f"What fixtures compile does not count. {AHEAD_OF_TIME}"

    def __init__(self) -> None:
        super().__init__(None, "*")


class Measuring:
    """Captures what marked tests compile, checks it, and reports what was measured."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._files: dict[Path, Baseline] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[RECORD] = record_of(item)
        if markers := [*item.iter_markers(NAME)]:
            with _failures():
                item.stash[BUDGETS] = tuple(_budget(mark, i + 1) for i, mark in enumerate(reversed(markers)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        if BUDGETS not in item.stash:
            return (yield)
        body = Body()
        with _failures():
            hook.clear_caches()
            hook.add(body)
        try:
            result = yield
        finally:
            hook.remove(body)
        self._check(item, body)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown" and RECORD in item.stash and _is_used(item):
            setattr(report, NAME, item.stash[RECORD])
        return report

    def pytest_assertrepr_compare(self, op: str, left: object, right: object) -> list[str] | None:
        if isinstance(left, Size) and isinstance(right, Size):
            return explained(op, left, right)
        return None

    # -- the check

    @cached_property
    def _policies(self) -> Config:
        """The policies of the configuration of `xlamem check`; its budgets and its baseline are not for tests."""
        path = find_config(self._config.rootpath)
        return replace(load_config(path), budgets=(), baseline=None) if path else Config()

    def _check(self, item: pytest.Item, body: Body) -> None:
        """Check the programs of a test. Fails the test if a check fails or a verdict is not known."""
        with _failures():
            failure = self._failure(item, body, item.stash[BUDGETS])
        if failure:
            pytest.fail(failure, pytrace=False)

    def _failure(self, item: pytest.Item, body: Body, budgets: Sequence[Budget]) -> str:
        """Check the programs of a test and return why it fails; empty if it passes. Raises UsageError."""
        body.require()
        record, bless = item.stash[RECORD], self._config.getoption("xlamem_bless")
        base = Baseline(tuple(e for e in self._file(item).entries if e.test == record["test"]))
        if not (base.entries or bless) and any(b.growth is not None for b in budgets):
            raise UsageError(f"growth needs a baseline, and {record['file']} has none of this test: {OPTION} writes it")
        config = replace(self._policies, budgets=tuple(budgets))
        result, following = check_entries(_selected(body.programs, budgets), config, base, bless=bless, option=OPTION)
        _report(record, result)
        if following is not None and result.status != NOT_KNOWN:
            record["baseline"] = Baseline(tuple(replace(e, test=record["test"]) for e in following.entries)).dumps()
        if not result.passed:
            return f"{_first(result)}\n\n{as_text(result)}"
        if base.entries and not bless and not any(result.programs["how"].is_valid().to_pylist()):
            return f"no program of this test is in its baseline: {OPTION} writes it\n\n{as_text(result)}"
        return ""

    def _file(self, item: pytest.Item) -> Baseline:
        """Return the baseline of the file of a test. Raises UsageError if it is damaged."""
        path = baseline_file(item)
        if path not in self._files:
            self._files[path] = baselines.load(path) if path.exists() else Baseline()
        return self._files[path]


def _budget(mark: pytest.Mark, number: int) -> Budget:
    """Return the budget in a marker. Raises UsageError."""
    where = f"@pytest.mark.{NAME}"
    if mark.args:
        raise UsageError(f"{where} takes limits by name, such as device_total='12GiB', not {mark.args[0]!r}")
    limits = dict(mark.kwargs) if mark.kwargs.keys() - {"program"} else {**mark.kwargs, **NO_GROWTH}
    return budget_of(limits, number, where)


@contextmanager
def _failures() -> Iterator[None]:
    """Turn errors of xlamem into failures of the test without a traceback."""
    try:
        yield
    except XlaMemError as e:
        raise pytest.fail.Exception("\n".join(wrap(f"{NAME}: {e}")), pytrace=False) from None


def _is_used(item: pytest.Item) -> bool:
    """Return whether a test is marked, or has measured a block."""
    return BUDGETS in item.stash or bool(item.stash[RECORD]["rows"])


def _selected(dumps: Sequence[Dump], budgets: Sequence[Budget]) -> list[Dump]:
    """Return the programs that a budget is for; all if a budget is for none, which `check` reports."""
    found = [[d for d in dumps if b.matches(program_name(d))] for b in budgets]
    return [d for d in dumps if any(d in of for of in found)] if all(found) else list(dumps)


def _first(result: CheckResult) -> str:
    """Return the first finding that did not pass, for the summary of failed tests."""
    rows = result.rows(FAILED) or result.rows(NOT_KNOWN)
    return f"{rows[0]['module_name'] or '?'}: {rows[0]['message']}"


def _report(record: Record, result: CheckResult) -> None:
    """Add the programs and the warnings of a check to a record."""
    new = {row["program"] for row in result.rows() if row["rule"] == "new"}
    record["rows"] = [_row(p, p["program"] in new) for p in result.programs.to_pylist()]
    record["warnings"] += [f"{row['module_name'] or '?'}: {row['message']}" for row in result.rows(WARNING)]


def _row(program: dict[str, Any], is_new: bool) -> Row:
    return Row(
        program=program["module_name"] or "?", device_total=program["device_total"],
        device_total_baseline=program["device_total_baseline"], peak=program["peak"],
        peak_baseline=program["peak_baseline"], status=program["status"], is_new=is_new,
    )  # fmt: skip
