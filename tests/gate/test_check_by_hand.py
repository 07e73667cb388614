"""Parts of a check, with stand-ins for the programs and for the baseline."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from xlamem.errors import UsageError
from xlamem.gate import checking
from xlamem.gate.config import Budget, Config
from xlamem.gate.curves import Curves
from xlamem.gate.entry import Entry
from xlamem.gate.finding import Checked


def a_check(**fields: Any) -> checking._Check:
    """Return a check that has not begun."""
    check: Any = object.__new__(checking._Check)
    plain = {"config": Config(), "bless": False, "prune": False, "entries": None, "base": None, "names": {}}
    for name, value in {**plain, **fields}.items():
        setattr(check, name, value)
    return check  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("readable", "name", "is_fine"), [(True, "f", True), (True, None, True), (False, "f", True), (False, None, False)]
)
def test_a_baseline_with_a_damaged_dump(
    readable: bool, name: str | None, is_fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be of any program if its name is not known."""
    row = SimpleNamespace(readable=readable, module_name=name, problem="it cannot be read: d/a is empty")
    found = SimpleNamespace(programs=[SimpleNamespace(readable=True, module_name="g"), row])
    monkeypatch.setattr(checking, "programs_of", lambda _: found)
    if is_fine:
        assert a_check()._baseline("gs://d") == (found, "gs://d")
        assert a_check()._baseline(("gs://d", {"a": "b"}))[1] == "gs://d"
    else:
        with pytest.raises(UsageError, match=r"^the baseline cannot be read: d/a is empty$"):
            a_check()._baseline("gs://d")


def test_a_budget_for_no_program() -> None:
    """The names that it may have meant are without numbers, and each once."""
    names = ("jit_step.2", None, "jit_step.10", "jit_eval")
    programs = SimpleNamespace(programs=[SimpleNamespace(module_name=name, platform="cpu") for name in names])
    step, every = Budget(program="jit_step*"), Budget()
    check = a_check(programs=programs, config=Config(budgets=(every, step)))
    assert [[b.program for b in own] for own in check._budgets()] == [
        [b.program for b in (every, step) if b.matches(name)] for name in names
    ]
    function = "a_inference_step_4410__XlaMustCompile_true_executor_type_1_.89"  # the number changes with any edit
    for pattern in ("a_inference_step", "a_inference_step_4410__*"):
        assert Budget(program=pattern).matches(function)
    wrong = Budget(program="jit_stepp", number=3)
    with pytest.raises(UsageError, match="matches no program") as e:
        a_check(programs=programs, config=Config(budgets=(every, wrong)))._budgets()
    assert not re.search(r"\d\d|\.2", str(e.value).partition("program;")[2])
    assert "jit_step" in str(e.value).partition("program;")[2]


@pytest.mark.parametrize(
    ("others", "base"),
    [
        ([(5, 3), (9, 2), (7, 8)], (9, 8)), ([(9, 2), (9, 4)], (9, 4)), ([(5, None), (9, 2)], (9, None)),
        ([(5, 3), (9, None)], (9, None)), ([(None, 3), (9, 2)], None),
    ],
)  # fmt: skip
def test_the_largest_programs_of_a_name(
    others: list[tuple[int | None, int | None]], base: tuple[int, int | None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most that must fit and the highest peak, if all of them are known."""
    described: Any = SimpleNamespace(platform="tpu", module_name="jit_f")
    entry = Entry("jit_f", "tpu", None, None, device_total=10, peak=9)
    rows = {i: SimpleNamespace(device_total=n, peak=p) for i, (n, p) in enumerate(others)}
    entries = {i: Entry("jit_f", "tpu", None, None, device_total=n or 0, peak=p) for i, (n, p) in enumerate(others)}
    check: Any = a_check(entries=entries)
    monkeypatch.setattr(check, "_namesakes", lambda _: rows)
    asked: list[Any] = []
    monkeypatch.setattr(checking, "growth_findings", lambda *arguments: asked.append(arguments) or ["found"])
    checked = Checked(0, described, entry)
    found = check._growth_beyond_namesakes(checked, [])
    if base is None:
        assert asked == []
        assert [(f.rule, f.status) for f in found] == [("growth", "not known")]
        assert found[0].message == "the largest jit_f of the baseline is not known"
    else:
        ((largest, now, budgets, config, name),) = asked
        assert (largest.device_total, largest.peak) == base
        assert (now, budgets, config, name) == (entry, [], check.config, "the largest jit_f of the baseline")
        assert found == ["found"]
    monkeypatch.setattr(check, "_namesakes", lambda _: {})
    assert check._growth_beyond_namesakes(checked, []) == []


def test_curves_of_a_result() -> None:
    """Those of programs that have them, by number."""
    plain = {"module_name": "f", "platform": "tpu", "uri": "u", "occurrences": 1, "module_id": None, "program_fp": None,
             "interface_fp": None}  # fmt: skip
    described: Any = SimpleNamespace(**plain)
    rows = [Checked(n, described) for n in (0, 1, 2)]
    rows[1].curves = Curves((1, 2))
    r = checking._result(rows, [], Config(), None, None)
    assert r.curves == {1: Curves((1, 2))}
    assert [*r.stacks] == [0, 1, 2]
    assert r.programs["program"].to_pylist() == [0, 1, 2]
