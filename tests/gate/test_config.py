"""The configuration of `check`: every key, and errors that say what is wrong and where."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from xlamem import UsageError
from xlamem.gate.amounts import Amount
from xlamem.gate.config import Budget, Config, budget_of, config_of, find_config, load_config

MIB = 1 << 20

EVERY_KEY = """
baseline = "memory.json"
ratchet = true
compiler_change = "fail"
flags_change = "bless"
source_root = "src"

[[budget]]
program = "jit_train_*"
device_total = "14.5GiB"
device = "v5e"
resident = "1GiB"
fraction = 0.92
peak = 1048576
growth = "0 %"
padding = "5 %"
packing = "3MB"
donation = "required"
named = "95 %"

[[budget]]
limit = "12 GiB"
"""


def written(folder: Path, text: str, name: str = "xlamem.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_key(tmp_path: Path) -> None:
    path = written(tmp_path, EVERY_KEY)
    config = load_config(path)
    assert config == Config(
        budgets=(
            Budget(
                number=1,
                program="jit_train_*",
                device_total=29 << 29,
                device="v5e",
                resident=1 << 30,
                fraction=0.92,
                peak=MIB,
                growth=Amount("0 %", share=Fraction(0)),
                padding=Amount("5 %", share=Fraction(1, 20)),
                packing=Amount("3MB", bytes=3_000_000),
                donation="required",
                named=Fraction(95, 100),
            ),
            Budget(number=2, device_total=12 << 30),
        ),
        baseline="memory.json",
        ratchet=True,
        compiler_change="fail",
        flags_change="bless",
        source_root="src",
        path=str(path),
    )


def test_defaults() -> None:
    assert config_of({}) == Config(baseline=None, ratchet=False, compiler_change="warn", flags_change="fail")


def test_the_same_in_a_project_file(tmp_path: Path) -> None:
    tables = EVERY_KEY.replace("[[budget]]", "[[tool.xlamem.budget]]")
    path = written(tmp_path, f'[project]\nname = "x"\n\n[tool.xlamem]\n{tables}', "pyproject.toml")
    expected = load_config(written(tmp_path, EVERY_KEY))
    assert load_config(path).budgets == expected.budgets
    assert load_config(path).baseline == "memory.json"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('device_total = "2000000TiB"', "device_total must be at most 2^60 bytes, not '2000000TiB'"),
        ("packing = 2305843009213693952", "packing must be at most 2^60 bytes, not 2305843009213693952"),
        (f'growth = "{"9" * 5000} %"', "growth must be a share such as '5 %'"),
        ('devise_total = "1GiB"', "unknown key 'devise_total'; did you mean 'device_total'?"),
        ('xyzzy = "1GiB"', "unknown key 'xyzzy'; there are device, device_total"),
        ('device_total = "14.5"', "device_total: '14.5' has no unit"),
        ('padding = "14.5"', "padding: '14.5' has no unit"),
        ('device_total = "many"', "'many' is not a size"),
        ('device_total = "5 %"', "device_total must be a size such as '14.5GiB', not '5 %'"),
        ("device_total = true", "device_total must be a size such as '14.5GiB', not True"),
        ("device_total = -1", "device_total must be 0 or more, not -1"),
        ("device_total = 1.5", "device_total must be a number of bytes or a size such as '16GiB', not 1.5"),
        ('device = "v99"', "no device 'v99'"),
        ('growth = "x %"', "growth must be a share such as '5 %' or a size such as '64MiB', not 'x %'"),
        ("growth = []", "growth must be a share such as '5 %' or a size such as '64MiB', not []"),
        ('named = "101 %"', "named must be at most 100 %, not '101 %'"),
        ("named = 95", "named must be a share such as '95 %', not 95"),
        ('donation = "maybe"', "donation must be 'required', not 'maybe'"),
        ("program = 5", "program must be a text that is not empty, not 5"),
        ('limit = "1GiB"\ndevice_total = "1GiB"', "limit and device_total are the same limit"),
        ('resident = "1GiB"\npeak = "1GiB"', "resident needs device"),
        ('device = "v5e"\nresident = "20GiB"', "resident is 20.00 GiB, more than the 15.75 GiB of v5e"),
        ('device = "v5e"\nresident = "8GiB"\nfraction = 0.5', "resident is 8.00 GiB, more than the 7.88 GiB of v5e"),
        ('fraction = 0.5\npeak = "1GiB"', "fraction needs device"),
        ('fraction = 2\ndevice = "v5e"', "fraction must be a number above 0 and at most 1, not 2"),
        ("", "there is no limit; the limits are device, device_total, donation, growth"),
    ],
)
def test_errors_of_a_budget(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path, f'[[budget]]\npeak = "1GiB"\n\n[[budget]]\n{line}\n')
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}:")
    assert "budget 2: " in str(caught.value)
    assert message in str(caught.value)


def test_an_error_names_the_line_and_the_program(tmp_path: Path) -> None:
    path = written(tmp_path, '[[budget]]\nprogram = "a*"\npeak = "1GiB"\n[[budget]]\nprogram = "b*"\npeek = 5\n')
    with pytest.raises(UsageError, match=rf"^{path}:6: budget 2 \(program = 'b\*'\): unknown key 'peek'; did you mean"):
        load_config(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rachet = true", ":1: unknown key 'rachet'; did you mean 'ratchet'?"),
        ('ratchet = "yes"', ":1: ratchet must be true or false, not 'yes'"),
        ('\ncompiler_change = "ignore"', ":2: compiler_change must be 'fail' or 'warn' or 'bless', not 'ignore'"),
        ("budget = 5", ":1: budget must be an array of tables: write [[budget]]"),
        ("[budget]\npeak = 5", "budget must be an array of tables: write [[budget]]"),
        ("a = ", " is not TOML: "),
        (f"baseline = {'[' * 5000}", " is not TOML: "),
    ],
)
def test_errors_outside_budgets(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        load_config(path)
    assert f"{path}{message}" in str(caught.value) or f": {message}" in str(caught.value)


def test_a_file_that_is_missing_or_has_no_table(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_config(tmp_path / "xlamem.toml")
    with pytest.raises(UsageError, match=r"there is no table \[tool.xlamem\]"):
        load_config(written(tmp_path, "", "pyproject.toml"))


def test_the_nearest_file_up_to_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = written(tmp_path, 'baseline = "outside.json"')
    repository = tmp_path / "repository"
    inner = repository / "a" / "b"
    inner.mkdir(parents=True)
    assert find_config(inner) == outside
    (repository / "a" / ".git").write_text("gitdir: elsewhere")  # a worktree or a submodule
    assert find_config(inner) is None
    (repository / "a" / ".git").unlink()
    (repository / ".git").mkdir()
    assert find_config(inner) is None
    project = written(repository, "[tool.xlamem]\nratchet = true", "pyproject.toml")
    written(inner.parent, "[tool.ruff]\n", "pyproject.toml")
    assert find_config(inner) == project
    own = written(repository, "ratchet = false")
    assert find_config(inner) == own
    monkeypatch.chdir(inner)
    assert load_config().path == str(own)


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("*", "jit_f.3", True),
        ("jit_train_*", "jit_train_step", True),
        ("jit_train_step", "jit_train_step.12", True),
        ("jit_train_*", "jit_eval", False),
        ("JIT_*", "jit_f", False),
        ("*", None, True),
        ("jit_*", None, False),
    ],
)
def test_patterns(pattern: str, name: str | None, is_match: bool) -> None:
    assert budget_of({"program": pattern, "peak": 1}).matches(name) == is_match


@pytest.mark.parametrize(("limit", "of", "expected"), [("5 %", 1000, 50), ("0.1%", 999, 0), ("1KiB", 7, 1024)])
def test_amounts(limit: Any, of: int, expected: int) -> None:
    budget = budget_of({"padding": limit})
    assert budget.padding is not None
    assert budget.padding.of(of) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [("tool = 3", "tool must be a table, not 3"), ("[tool]\nxlamem = 3", "tool.xlamem must be a table, not 3")],
)
def test_no_table_in_a_project(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    monkeypatch.chdir(tmp_path)
    for place in (path, None):
        with pytest.raises(UsageError, match=rf"pyproject\.toml: {message}"):
            load_config(place)
