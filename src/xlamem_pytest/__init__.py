"""The pytest plugin of xlamem, as far as pytest always loads it: options, the marker, the fixture.

It is a package of its own, so that pytest imports neither xlamem nor NumPy unless a test uses the marker or the
fixture. What they do is in `xlamem.gate.testing`. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xlamem.gate.testing.blocks import XlaMemory
    from xlamem.gate.testing.plugin import Record

NAME = "xla_memory"
"""Name of the marker, of the fixture, and of the attribute of reports that has what was measured."""

_MARKER = (
    f"{NAME}(**limits): check the memory of what JAX compiles in the test. Limits are those of a budget of xlamem "
    "(device_total='12GiB', growth='0 %', …); without one, no growth since the baseline is allowed."
)


class Found:
    """What the tests of this run measured, on the controller also if they ran in workers."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        record = getattr(report, NAME, None)
        if record is not None:
            self.records.append(record)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.records and not hasattr(session.config, "workerinput"):
            from xlamem.gate.testing.summary import finish

            finish(self.records, session)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        if self.records:
            from xlamem.gate.testing.summary import summarize

            summarize(self.records, terminalreporter, config)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("xlamem", "memory of programs compiled by XLA")
    group.addoption(
        "--xlamem-bless",
        action="store_true",
        help=f"write the baselines of the tests marked with {NAME} that run",
    )
    group.addoption(
        "--xlamem-prune",
        action="store_true",
        help="remove tests that did not run from the baselines of the files with tests that ran, unless a test fails",
    )
    group.addoption(
        "--xlamem-table",
        choices=("all", "failed", "none"),
        help="the programs in the table at the end; default: all, with -q those that did not pass",
    )
    parser.addini(
        "xlamem_baselines",
        "directory of the baselines, relative to the root directory; default: xlamem-baselines beside each test file",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)
    config.pluginmanager.register(Found(), "xlamem-found")


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.get_closest_marker(NAME) for item in session.items):
        _measure(session.config)


@pytest.fixture
def xla_memory(request: pytest.FixtureRequest) -> XlaMemory:
    """Capture what JAX compiles in a block: ``with xla_memory() as a: step(x)``, then ``a.device_total``, ``a.peak``.

    Sizes are integers in bytes: the largest of the programs, without helpers of JAX. ``a.dump`` is the dump of the
    only program, and ``a.programs`` and ``a["step"]`` are those of several.
    """
    _measure(request.config)
    from xlamem.gate.testing.blocks import XlaMemory

    return XlaMemory(request.node)


def _measure(config: pytest.Config) -> None:
    """Register the hooks that measure tests, once."""
    from xlamem.gate.testing.plugin import Measuring

    if not config.pluginmanager.has_plugin("xlamem-measuring"):
        config.pluginmanager.register(Measuring(config), "xlamem-measuring")
