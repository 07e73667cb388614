"""What the tests of `check` share: programs, and what to look at in a result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conftest import DUMPS
from pairs import Pair, stored
from variants import TEXTS, larger

from xlamem import CheckResult, check, schema
from xlamem.gate.config import Config

MIB = 1 << 20
SMALL = DUMPS / "cpu-jaxlib-0.10.2-cond_switch"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"
Texts = Mapping[str, str]
GROWTH = 128 << 10


BIG = larger(TEXTS, GROWTH)


def pair(name: str) -> Pair:
    return next(p for p in stored() if p.name == name)


def findings(result: CheckResult, rule: str | None = None) -> list[tuple[str, str]]:
    """Return rules and statuses, without those that passed."""
    assert_valid(result)
    rows = result.rows("note", "warning", "not known", "failed")
    return [(r["rule"], r["status"]) for r in rows if rule in (None, r["rule"])]


def assert_valid(result: CheckResult) -> None:
    """Check the tables against the schema and each other."""
    tables = {"findings": result.findings, "checked_programs": result.programs, "contributors": result.contributors}
    for name, table in tables.items():
        table.validate(full=True)
        assert table.schema.equals(schema.CHECKED[name].arrow)
    numbers = result.programs["program"].to_pylist()
    assert numbers == list(range(len(numbers)))
    for row in result.rows():
        assert row["rule"] in schema.RULES
        assert row["status"] in schema.STATUSES
        assert row["message"]
        assert (row["program"] is None) == (row["rule"] == "gone")
    for program in result.programs.to_pylist():
        found = [row["status"] for row in result.of_program(program["program"])]
        assert program["status"] == max(found, key=list(schema.STATUSES).index, default="passed")
    assert result.exit_code == {"passed": 0, "failed": 1, "not known": 3}[result.status]


def blessed(dumps: Any, path: Path, **options: Any) -> Path:
    result = check(dumps, config=Config(), baseline=path, bless=True, **options)
    assert result.written == str(path)
    assert_valid(result)
    return path


def number(path: Path, name: str = "device_total") -> int:
    return check(path, config={"budget": [{name: "1TiB"}]}).findings["value"][0].as_py()
