"""The sentences of the verdict, in every state of a dump and of a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS
from variants import CUT, TEXTS, replaced

import xlamem
from xlamem.compute import Fits, Plan, like_buffers
from xlamem.compute.advice.plan import TRY
from xlamem.compute.layout import TEMP, THREAD_LOCAL
from xlamem.compute.op_names import PHASES
from xlamem.compute.program import program
from xlamem.errors import UsageError
from xlamem.formatting import size
from xlamem.page import bill_model, program_model, verdict_model
from xlamem.page.model import Account, BillLine, Phases, Verdict
from xlamem.page.verdict_model import _mostly, first_step

MLP = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
ADAM = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
HEAPS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
UNTIMED = DUMPS / "cpu-tf-2.3.4-loop"
NO_TOTAL = DUMPS / "cpu-tf-1.15.0-loop"
KILLED = DUMPS / "cpu-killed-at-buffer-assignment"
ODD = DUMPS / "tpu-libtpu-0.0.50.1-v5e-odd_tree"


def verdict(path: Any, **memory: Any) -> Verdict:
    return xlamem.report(path, **memory).programs[0].verdict


# -- what must fit -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "headline"),
    [
        ({}, "4.11 MiB must fit into the device's memory."),
        ({"device": "v5e"}, "4.11 MiB must fit; v5e has 15.75 GiB: fits, 15.75 GiB to spare."),
        ({"capacity": "4MiB"}, "4.11 MiB must fit; the device has 4.00 MiB: does not fit, 114.00 KiB over."),
        ({"capacity": 4311040}, "4.11 MiB must fit; the device has 4.11 MiB: fits, 0 B to spare."),
        (
            {"capacity": "10MiB", "fraction": 0.9, "resident": "1MiB"},
            "4.11 MiB must fit; the device has 8.00 MiB (90 % of 10.00 MiB minus 1.00 MiB resident): fits, 3.89 MiB to "
            "spare.",
        ),
    ],
)
def test_headline(memory: dict[str, Any], headline: str) -> None:
    found = verdict(MLP, **memory)
    assert found.headline == headline
    assert found.reason == ""


@pytest.mark.parametrize("memory", [{"resident": 1}, {"resident": "1GiB"}, {"fraction": 0.9}, {"fraction": 2}])
def test_what_is_left_of_no_device_is_a_wrong_use(memory: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="require a capacity or a device"):
        xlamem.report(MLP, **memory)


def test_no_verdict_without_proof() -> None:
    found = verdict(NO_TOTAL, capacity="1GiB")
    assert found.fits is None
    assert found.headline == "7.06 KiB must fit; the device has 1.00 GiB: whether it fits is not known."
    assert "prints no total" in found.reason
    assert "prints no total" in verdict(NO_TOTAL).reason


def test_no_allocations() -> None:
    for found in (verdict(KILLED), verdict(KILLED, capacity="1GiB")):
        assert found.headline == "What must fit is not known: the dump has no allocations."
        assert found.must_fit is None
        assert found.fits is None
        assert found.decided_by == []
        assert found.first_step == "XLA writes them to *-buffer-assignment.txt."


def test_truncated(write: Callable[..., Path]) -> None:
    cut = replaced(TEXTS, "buffer-assignment", "allocation 3: size", "allocation 3: si")
    for texts in (CUT, cut):
        program = xlamem.report(write(jit_f=texts)).programs[0]
        assert ", as far as the dump says." in program.verdict.headline
        assert program.problems


def test_not_understood(write: Callable[..., Path]) -> None:
    texts = replaced(TEXTS, "buffer-assignment", "allocation 1: size 65536", "allocation 1: size 65536, wobbly")
    found = verdict(write(jit_f=texts), capacity="1GiB")
    assert found.fits is None
    assert found.headline.endswith("as far as the dump says; the device has 1.00 GiB: whether it fits is not known.")
    assert "wobbly" in found.reason


def test_inconsistent_sizes(write: Callable[..., Path]) -> None:
    texts = replaced(TEXTS, "buffer-assignment", "allocation 1: size 65536", "allocation 1: size 65537")
    found = verdict(write(jit_f=texts), capacity="1GiB")
    assert found.fits is None
    assert "do not add up to a printed total" in found.reason


def test_device() -> None:
    device = verdict(MLP, device="v5e", resident=7).device
    assert device is not None
    assert (device.name, device.resident, device.available) == ("v5e", 7, device.capacity - 7)
    assert "16 GB per chip" in device.note
    assert "program code" in device.note
    other = verdict(HEAPS, capacity="1GiB").device
    assert other is not None
    assert (other.name, other.note) == ("capacity", "")


# -- what decides it -----------------------------------------------------------------------------


def test_the_peak() -> None:
    found = verdict(HEAPS).decided_by
    assert found == [
        "The peak of memory, 12.14 MiB in use, is at step 148 of 279, in the backward pass.",
        "Of these, 69.0 % are temporaries, mostly activations (6.14 MiB), and 30.9 % are donated parameters.",
        "The largest buffers are 2× pad, 1.00 MiB.",
        "4.15 MiB more must fit than is in use then, mostly because another step needs more memory.",
    ]
    assert "in the forward pass (models.py:38)." in verdict(MLP).decided_by[0]


def test_the_largest_buffers() -> None:
    for path in (MLP, ADAM):
        dump = xlamem.read(path)
        step = xlamem.peak(dump).spaces["first_step"][0].as_py()
        (largest,) = like_buffers(xlamem.live_set(dump, step, space=0), 1)
        (sentence,) = [s for s in verdict(dump).decided_by if s.startswith("The largest")]
        assert size(largest["bytes"]) in sentence
        assert largest["name"] in sentence
    assert not any(s.startswith("The largest") for s in verdict(UNTIMED).decided_by)


def test_packing_and_alignment() -> None:
    reason = "mostly because of packing: nearly all slots of 16 KiB that hold 32 bytes."
    assert verdict(ADAM).decided_by[-1].endswith(reason)
    found = verdict(DUMPS / "tpu-libtpu-0.0.11.4-v5e-tuple3").decided_by[-1]
    assert found.endswith("mostly because of alignment: what is left behind the ends of buffers.")


def test_no_live_ranges() -> None:
    found = verdict(UNTIMED)
    assert found.decided_by == [
        "This dump has no live ranges: only reserved sizes are known, not what is in use at which step.",
        "Of what must fit, 70.8 % are parameters, 14.6 % are temporaries, and 14.4 % are outputs.",
    ]
    assert found.first_step == "The dump has no live ranges, so nothing can be said about what would save memory."


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("activation", 51), (None, 50)], ", mostly activations (51 B)"),
        ([("activation", 50), (None, 50)], ""),
        ([(None, 60), ("activation", 40)], ""),
        ([("activation", 30), ("gradient", 50), ("activation", 30)], ", mostly activations (60 B)"),
        ([("activation", 40), ("gradient", 35), (None, 35)], ""),
    ],
)
def test_the_kind_of_more_than_half_is_named(parts: list[tuple[str | None, int]], expected: str) -> None:
    assert _mostly([{"kind": kind, "bytes": n} for kind, n in parts]) == expected


# -- what to do ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "start"),
    [
        ({}, "To need less memory: Keep `w1` in bfloat16"),
        ({"device": "v5e"}, "To need less memory: Keep `w1` in bfloat16"),
        ({"capacity": "3.75MiB"}, "To make it fit: Keep `w1` in bfloat16"),
        ({"capacity": "3.5MiB"}, "To make it fit, do 2 things. First: Keep `w1` in bfloat16"),
        ({"capacity": "1KiB"}, "Nothing that is known makes it fit for certain. Begin with this: Keep `w1`"),
    ],
)
def test_first_step(memory: dict[str, Any], start: str) -> None:
    found = verdict(MLP, **memory).first_step
    assert found.startswith(start)
    assert found.endswith("It saves 409.60 KiB to 1.00 MiB.")


ROW = {"action": f"Do it. {TRY}", "lower": 0, "upper": 2048, "in_plan": False}


@pytest.mark.parametrize(
    ("rows", "plan", "sentence"),
    [
        ([], None, "No intervention that xlamem knows would save 1 % of this or more."),
        ([ROW], None, "To need less memory: Do it. It saves at most 2.00 KiB; the compiler decides."),
        (
            [ROW],
            Plan(4096, 1024, 0, 0),
            "Nothing is known to save memory for certain, but this may help: Do it. It saves at most 2.00 KiB; the "
            "compiler decides.",
        ),
        (
            [ROW, ROW | {"action": "Do that.", "lower": 1024, "in_plan": True}],
            Plan(2048, 1024, 1024, 1),
            "To make it fit: Do that. It saves 1.00 KiB to 2.00 KiB.",
        ),
        ([ROW | {"lower": 2048}], None, "To need less memory: Do it. It saves 2.00 KiB."),
    ],
)
def test_what_to_do_first(rows: list[dict[str, Any]], plan: Plan | None, sentence: str) -> None:
    fits = Fits(None if plan is None else False, "", 4096, 1024, 1024)
    assert first_step(program(xlamem.read(ODD)), rows, fits, plan) == sentence


# -- sentences by hand ---------------------------------------------------------------------------


def account(*lines: tuple[str, int, bool]) -> Account:
    parts = [BillLine(name, name, n, used, "", [{"kind": None, "bytes": n}]) for name, n, used in lines]
    in_use = sum(n for _, n, used in lines if used)
    return Account("device_total", 0, 3, sum(n for _, n, _ in lines), in_use, parts)


def test_the_largest_lines_of_a_bill() -> None:
    found = account(("outputs", 20, True), ("parameters", 40, True), ("constants", 11, True), ("temporaries", 29, True),
                    ("packing", 90, False))  # fmt: skip
    assert verdict_model._composition(found, 100, "Of these") == [
        "Of these, 40.0 % are parameters, 29.0 % are temporaries, and 20.0 % are outputs."
    ]
    for n, shown in ((10, 2), (9, 1)):  # a tenth
        (text,) = verdict_model._composition(
            account(("parameters", 100 - n, True), ("outputs", n, True)), 100, "Of these"
        )
        assert text.count("% are") == shown
    share = round(100 * verdict_model.MIN_LINE_SHARE)  # of what must fit, not of what is in use
    assert verdict_model._unused(account(("outputs", 100 - share, True), ("packing", share, False)), []) == []


@pytest.mark.parametrize(("packing", "share"), [(9, "mostly"), (10, "first of all")])
def test_what_is_more_than_half_of_what_is_not_in_use(packing: int, share: str) -> None:
    rows = [{"line": name, "bytes": n} for name, n in (("another_step", 10), ("packing", packing))]
    found = account(("outputs", 20, True), *((row["line"], row["bytes"], False) for row in rows))
    assert verdict_model._unused(found, rows) == [
        f"{10 + packing} B more must fit than is in use then, {share} because another step needs more memory."
    ]


@pytest.mark.parametrize(("step", "words"), [(3, ", in the forward pass"), (4, ", in the backward pass"), (6, "")])
def test_where_the_peak_is(step: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In which phase, also at its last step; in which layer; and the memory, if it is one."""
    named = {"op_name": "jit(f)/layers_3/mlp/dot_general", "source_file": "a/m.py", "source_line": 7}
    monkeypatch.setattr(verdict_model, "_named_at", lambda *_: named)
    monkeypatch.setattr(verdict_model, "_in_account", lambda p, i: i < 2)
    phases = Phases([*PHASES], np.array([0, 1]), np.array([0, 4]), np.array([3, 5]))
    where = f"{words}, in layers_3 (m.py:7)"
    program: Any = None
    assert verdict_model._where(program, step, phases) == where
    for names, memory in ((("hbm", "hbm", "vmem"), "hbm"), (("hbm", "vmem", "hbm"), "device memory")):
        p: Any = SimpleNamespace(spaces=[SimpleNamespace(name=name) for name in names], steps=9)
        found = replace(account(("temporaries", 2048, True)), step=step)
        assert verdict_model._peak(p, found, phases) == (
            f"The peak of {memory}, 2.00 KiB in use, is at step {step} of 8{where}."
        )


def test_a_step_without_an_instruction_has_the_name_of_the_largest_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that start there, without thread-local ones."""
    names = SimpleNamespace(columns=lambda rows: {"op_name": pa.array([None] * len(rows), pa.string())})
    monkeypatch.setattr(verdict_model, "origins", lambda p: SimpleNamespace(names=names))
    monkeypatch.setattr(verdict_model, "source_columns", lambda p, rows: {"op_name": pa.array([f"v{i}" for i in rows])})
    schedule = pa.table({"time": pa.array([], pa.int64()), "instruction": pa.array([], pa.string())})
    p: Any = SimpleNamespace(
        optional=lambda table: schedule, row_of_instruction=lambda column: np.empty(0, np.int64),
        ranges=(np.array([3, 3, 3, 4]), None), size=np.array([99, 8, 16, 99]),
        value_category=np.array([THREAD_LOCAL, TEMP, TEMP, TEMP]),
    )  # fmt: skip
    assert verdict_model._named_at(p, 3) == {"op_name": "v2"}
    assert verdict_model._named_at(p, 5) == {"op_name": None}


def test_the_largest_buffers_are_those_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(verdict_model, "_in_account", lambda p, i: i != 1)
    monkeypatch.setattr(verdict_model, "live_set", lambda *_: pa.table({"color": [0, 5, 7, 0]}))
    monkeypatch.setattr(verdict_model, "like_buffers", lambda rows, n: seen.append(rows["color"].to_pylist()) or [])
    p: Any = SimpleNamespace(spaces=[SimpleNamespace(color=color) for color in (0, 5, 7)], tables=None)
    assert verdict_model._largest(p, account()) == []
    assert seen == [[0, 7, 0]]


# -- parts of the model --------------------------------------------------------------------------


def test_terms_of_what_must_fit() -> None:
    """Pages of a memory space are one term; what is not in the device's memory is none."""
    spaces: Any = [SimpleNamespace(memory_space=name, reserved=n, in_device_memory=in_device)
                   for name, n, in_device in (("hbm", 8, True), ("host", 4, False), ("hbm", 2, True))]  # fmt: skip
    assert program_model._terms(spaces) == [{"memory_space": "hbm", "bytes": 10}]


def test_accounts_of_a_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bill_model, "line_note", lambda rows: "")
    row = {"account": "hbm", "memory_space": "hbm", "color": 0, "step": 3, "part": None, "kind": None, "n": None}
    rows = [row | {"page": page, "line": line, "bytes": n}
            for page, line, n in ((0, "outputs", 1), (1, "outputs", 2), (1, "packing", 4))]  # fmt: skip
    found = [(a.page, a.total, a.in_use, [line.line for line in a.lines]) for a in bill_model.accounts(rows)]
    assert found == [(0, 1, 1, ["outputs"]), (1, 6, 2, ["outputs", "packing"])]


@pytest.mark.parametrize(("resident", "wanted"), [(0, None), (1 << 29, 1 << 29), (1 << 31, 0)])
def test_the_memory_that_advice_aims_at(resident: int, wanted: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is available if the program does not fit; never less than nothing."""
    budgets: list[int | None] = []

    def plan(dump: xlamem.Dump, budget: int | None) -> Any:
        budgets.append(budget)
        return found(dump, None)

    found = program_model.plan_advice
    monkeypatch.setattr(program_model, "plan_advice", plan)
    fit = SimpleNamespace(available=(1 << 30) - resident, fits=resident == 0, device=None, capacity=1 << 30,
                          resident=resident, fraction=1.0, device_total=1 << 30, reason="")  # fmt: skip
    monkeypatch.setattr(program_model, "fits", lambda dump, **_: fit)
    program_model.program_model(xlamem.read(DUMPS / "cpu-jaxlib-0.9.1-mlp_grad"), {"capacity": 1 << 30})
    assert budgets == [wanted]


def test_curves_that_are_left_out() -> None:
    """A space without a peak has no curve that could be left out."""
    spaces: Any = [SimpleNamespace(peak=peak, usage=usage) for peak, usage in ((8, [1]), (8, []), (None, []))]
    assert program_model._without_usage(spaces) == [
        "The curves of 1 memory space are left out: there are too many steps."
    ]
    assert program_model._without_usage(spaces[::2]) == []


@pytest.mark.parametrize(
    ("line", "part", "n", "label"),
    [
        ("temporaries", "data", 2, "2 activations"), ("temporaries", "padding", 1, "padding: 1 activation"),
        ("temporaries", None, None, "temporaries"), ("parameters", "data", 3, "data"), ("alignment", None, 1,
        "1 activation"), ("another_step", None, None, "another_step"), ("packing", "shared", None, "shared"),
    ],
)  # fmt: skip
def test_labels_of_parts_of_a_bill(line: str, part: str | None, n: int | None, label: str) -> None:
    row = {"line": line, "part": part, "n": n, "kind": "activation" if n else None, "bytes": 8}
    assert bill_model._part(row)["label"] == label
