"""The wording of small differences: sentences, marks, shares and tables."""

from __future__ import annotations

import random
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest
from handmade import MIB, Row, account, buffer, difference, edit

from xlamem.compare.difference import Diff
from xlamem.compare.groups import difference_groups, numbered_groups
from xlamem.compare.series import Series
from xlamem.compare.verdict import buffers_of, describe, happened, main_cause, ranked_edits, signed, verdict
from xlamem.compare.view import moved, numbers, view
from xlamem.compare.wording import label, mark, relative, shapes, share, sources

TOTAL = "device_total"

# -- words ---------------------------------------------------------------------------------------


def test_signs() -> None:
    assert [signed(n) for n in (MIB, -MIB, 1, -1, 0)] == ["+1.00 MiB", "-1.00 MiB", "+1 B", "-1 B", "±0"]


@pytest.mark.parametrize(
    ("change", "total", "text"),
    [
        (5, 0, ""), (5, 100, "5.0 %"), (-5, 100, "-5.0 %"), (5, -100, "-5.0 %"), (999, 100, "999.0 %"),
        (1000, 100, ""), (-1000, 100, ""), (0, 100, "0.0 %"), (1, 2000, "0.1 %"), (1, 2001, "~0 %"),
        (-1, 2001, "~0 %"), (1, 3, "33.3 %"),
    ],
)  # fmt: skip
def test_shares(change: int, total: int, text: str) -> None:
    assert share(change, total) == text


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        (0, 5, ""), (5, 0, ""), (5, 5, ""), (4, 5, "+25.0 %"), (5, 4, "-20.0 %"), (1, 21, "+2,000.0 %"),
        (2000, 2001, "+0.1 %"), (2001, 2002, "~0 %"), (2001, 2000, "~0 %"),
    ],
)  # fmt: skip
def test_relative_changes(a: int, b: int, text: str) -> None:
    assert relative(a, b) == text


def group(cause: str | None, a: int = 1, b: int = 1, **more: Any) -> Row:
    plain: Row = {
        "cause": cause, "bytes_a": a, "bytes_b": b, "change": b - a, "n": 1, "n_shapes": 1, "buffer": "w",
        "shape_a": None, "shape_b": None, "source_file_a": None, "source_line_a": None, "source_file_b": None,
        "source_line_b": None, "memory_space_a": "hbm", "memory_space_b": "vmem",
    }  # fmt: skip
    return {**plain, **more}


@pytest.mark.parametrize(
    ("cause", "both", "only_a", "only_b"),
    [
        ("moved to another space", "moved", "moved out", "moved in"),
        ("sharing changed", "sharing", "shared", "unshared"),
        ("lives longer", "longer", "longer", "longer"),
        ("new", "[NEW]", "[NEW]", "[NEW]"),
        ("larger", "larger", "larger", "larger"),
        (None, "", "", ""),
    ],
)
def test_marks(cause: str | None, both: str, only_a: str, only_b: str) -> None:
    assert [mark(group(cause, a, b)) for a, b in ((1, 2), (1, 0), (0, 1))] == [both, only_a, only_b]


def test_labels() -> None:
    row = {**group("new"), "scope": "a/b", "layer": None}
    assert label(row, ("buffer", "cause")) == "w"
    assert label(row, ("scope", "layer", "cause")) == "a/b, no layer"
    assert label({**row, "buffer": None}, ("buffer",)) == "unnamed"
    assert label(row, ("cause",)) == "[NEW]"
    assert label({**row, "buffer": "a\nb"}, ("buffer",)) == "a\\nb"


@pytest.mark.parametrize(
    ("cause", "a", "b", "n", "text"),
    [
        ("larger", "f32[2]{0}", "f32[3]{0}", 1, "f32[2] -> f32[3]"),
        ("larger", "f32[2]{0}", "f32[2]{0:T(8)}", 1, "f32[2]{0} -> f32[2]{0:T(8)}"),
        ("padding changed", "f32[2]{0}", "f32[2]{0:T(8)}", 3, "f32[2]{0} -> f32[2]{0:T(8)}, 3 shapes"),
        ("lives longer", "f32[2]{0}", "f32[2]{0:T(8)}", 1, "f32[2]"),
        ("larger", "f32[2]{0:S(1)}", "f32[2]{0}", 1, "f32[2]"),
        ("new", "f32[2]{0}", "f32[3]{0}", 1, "f32[3]"),
        ("gone", "f32[2]{0}", "f32[3]{0}", 2, "f32[2], 2 shapes"),
        ("gone", "f32[2]{0}", None, 1, "f32[2]"),
        ("sharing changed", None, "f32[3]{0}", 1, "f32[3]"),
    ],
)
def test_shapes(cause: str, a: str | None, b: str | None, n: int, text: str) -> None:
    assert shapes(group(cause, shape_a=a, shape_b=b, n_shapes=n)) == text


@pytest.mark.parametrize(
    ("cause", "a", "b", "text"),
    [
        ("larger", ("/u/m.py", 1), ("/v/m.py", 1), "m.py:1"),
        ("larger", ("/u/m.py", 1), ("/v/m.py", 2), "m.py:1 -> :2"),
        ("larger", ("m.py", 1), ("n.py", 1), "m.py:1 -> n.py:1"),
        ("larger", ("m.py", 1), (None, None), "m.py:1"),
        ("larger", (None, None), ("n.py", None), "n.py"),
        ("larger", ("m.py", 1), ("m.py", None), "m.py:1 -> "),
        ("new", ("m.py", 1), ("n.py", 2), "n.py:2"),
        ("gone", ("m.py", 1), ("n.py", 2), "m.py:1"),
        (None, (None, None), (None, None), ""),
    ],
)
def test_sources(cause: str | None, a: Any, b: Any, text: str) -> None:
    row = group(cause, source_file_a=a[0], source_line_a=a[1], source_file_b=b[0], source_line_b=b[1])
    assert sources(row) == text


@pytest.mark.parametrize(
    ("cause", "one", "several"),
    [
        ("new", "is new", "are new"),
        ("lives longer", "lives longer", "live longer"),
        ("lives shorter", "lives shorter", "live shorter"),
        ("padding changed", "is padded differently", "are padded differently"),
        ("moved to another space", "moved from hbm to vmem", "moved from hbm to vmem"),
        ("sharing changed", "no longer shares memory", "no longer share memory"),
    ],
)
def test_what_happened(cause: str, one: str, several: str) -> None:
    assert [happened(group(cause, 1, 2, n=n)) for n in (1, 2)] == [one, several]
    if cause == "sharing changed":
        assert [happened(group(cause, 2, 1, n=n)) for n in (1, 2)] == ["shares memory now", "share memory now"]


def test_groups_in_words() -> None:
    assert buffers_of(group("new", buffer=None)) == "unnamed"
    assert [buffers_of(group("new", n=n)) for n in (1, 2, 1234)] == ["w", "2× w", "1,234× w"]
    row = group("larger", 0, MIB, n=2, source_file_b="/u/m.py", source_line_b=7)
    assert describe(row) == "+1.00 MiB: 2× w are larger, m.py:7"
    assert describe(group("gone", MIB, 0)) == "-1.00 MiB: w is gone"


# -- the tables ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "space", "has_grown", "grown", "is_same"),
    [
        ({"a": 5, "b": 5}, {"a": 5, "b": 5}, False, [], True),
        ({"a": 5, "b": 6}, {"a": 5, "b": 5}, True, [TOTAL], False),
        ({"a": 6, "b": 5}, {"a": 5, "b": 5}, False, [], False),
        ({"a": 5, "b": 5, "peaks": (3, 4)}, {"a": 5, "b": 5}, True, [TOTAL], False),
        ({"a": 5, "b": 5, "peaks": (4, 3)}, {"a": 5, "b": 5}, False, [], False),
        ({"a": 5, "b": 6, "peaks": (4, 3)}, {"a": 5, "b": 5}, True, [TOTAL], False),
        ({"a": 6, "b": 5, "peaks": (3, 4)}, {"a": 5, "b": 5}, True, [TOTAL], False),
        ({"a": 5, "b": 5}, {"a": 5, "b": 6}, False, ["vmem"], False),
        ({"a": 5, "b": 5}, {"a": 5, "b": 5, "peaks": (4, 3)}, False, [], False),
        ({"a": 5, "b": 6}, {"a": 5, "b": 5, "peaks": (3, 4)}, True, [TOTAL, "vmem"], False),
    ],
)
def test_growth(total: Row, space: Row, has_grown: bool, grown: list[str], is_same: bool) -> None:
    d = difference([account(TOTAL, **total), account("vmem", **space)])
    assert (d.has_grown, d.grown, d.is_same) == (has_grown, grown, is_same)
    assert d.device_total_change == total["b"] - total["a"]
    peaks = total.get("peaks", (total["a"], total["b"]))
    assert d.peak_change == peaks[1] - peaks[0]


def test_what_is_the_same() -> None:
    same = [account(TOTAL, 5, 5)]
    assert not difference(same, [{"line": "outputs", "change": 1}]).is_same
    assert not difference(same, buffers=[buffer(1)]).is_same
    assert difference(same, edits=[edit("flags", 0)]).is_same
    assert [difference(same, doubt=doubt).is_known for doubt in ("", "A is odd")] == [True, False]


@pytest.mark.parametrize(
    ("steps", "peaks", "known"),
    [((1, 2), (5, 5), True), ((None, 2), (5, 5), True), ((1, None), (5, 5), True), ((None, None), (5, 5), False),
     ((None, None), (0, 5), False), ((None, None), (5, 0), False), ((None, None), (0, 0), True)],
)  # fmt: skip
def test_whether_peaks_are_known(steps: tuple[Any, Any], peaks: tuple[int, int], known: bool) -> None:
    d = difference([account(TOTAL, 5, 5, peaks=peaks, peak_step_a=steps[0], peak_step_b=steps[1])])
    assert d.has_peaks is known
    assert (" in use at the peak" in verdict(d)) is known
    assert len(numbers(d)) == (2 if known else 1)


def test_numbers_of_accounts() -> None:
    """Of device_total in any case; of memory spaces, those that changed, unless one is all of device_total."""
    total = account(TOTAL, 5, 5, peaks=(3, 3))
    spaces = [
        account("hbm", 5, 5, peaks=(3, 3)), account("smem", 2, 3, peaks=(1, 1)), account("vmem", 2, 2, peaks=(2, 1)),
    ]  # fmt: skip
    assert [[*row.values()] for row in numbers(difference([total, *spaces]))] == [
        [TOTAL, "must fit", 5, 5, 0], [TOTAL, "peak", 3, 3, 0], ["smem", "reserved", 2, 3, 1],
        ["vmem", "peak", 2, 1, -1],
    ]  # fmt: skip
    grown = account(TOTAL, 5, 7)
    assert [row["account"] for row in numbers(difference([grown, account("hbm", 5, 7)]))] == [TOTAL] * 2
    other = account("hbm", 5, 7, step_a=9)
    assert [row["account"] for row in numbers(difference([grown, other]))] == [TOTAL] * 2 + ["hbm"] * 2


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"in_use_a": 4, "step_a": 1234}, "peak moved: that of A is at step 3, not 1,234"),
        ({"in_use_b": 4, "step_b": 9}, "peak moved: that of B is at step 4, not 9"),
    ],
)
def test_a_peak_that_moved(more: Row, text: str) -> None:
    assert moved(account(TOTAL, 5, 5, **more)) == text


def test_a_difference_in_a_terminal() -> None:
    same = view(difference([account(TOTAL, 5, 5)], edits=[edit("flags", 0)]))
    assert repr(same) == "<xlamem.Diff: No buffer changed: 5 B must fit, 5 B in use at the peak.>"
    rows = [buffer((20 - i) * MIB, op_name=f"jit(f)/w{i}/x") for i in range(12)]
    total = account(TOTAL, 0, 210 * MIB, moved=36 * MIB, in_use_a=4)
    lines = repr(view(difference([total], buffers=rows))).splitlines()
    assert lines[1:3] == ["  A  a", "  B  b"]
    text = " ".join(" ".join(lines).split())
    assert "device_total must fit 0 B 210.00 MiB +210.00 MiB" in text
    assert "+20.00 MiB 9.5 % larger 1 w0/x f32[8]" in text
    assert "+11.00 MiB 5.2 % larger 1 w9/x f32[8]" in text
    assert "w10/x" not in text
    assert "+36.00 MiB 17.1 % peak moved: that of A is at step 3, not 3" in text
    assert text.rstrip(">").endswith("and 2 smaller groups: the attribute buffers has all buffers")
    assert "and 1 smaller group: " in repr(view(difference([total], buffers=rows[:11])))
    assert "smaller group" not in repr(view(difference([total], buffers=rows[:10])))
    assert "peak moved" not in repr(view(difference([account(TOTAL, 5, 6)], buffers=rows)))


def test_differences_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """They show themselves as their views do."""
    shown = view(difference([account(TOTAL, 5, 6)], buffers=[buffer(MIB, op_name="jit(f)/x")]))
    for kind in (Diff, Series):
        monkeypatch.setattr(kind, "_view", lambda self: shown)
        made: Any = object.__new__(kind)
        assert (repr(made), made._repr_html_()) == (repr(shown), shown._repr_html_())
        assert "<table" in made._repr_html_()


# -- groups --------------------------------------------------------------------------------------


def test_groups_of_buffers() -> None:
    """The largest change first; the largest buffer of a group stands for it, on the side where it is."""
    rows = [
        buffer(3, op_name="jit(f)/l/x", shape_b="f32[3]", source_file_b="m.py", source_line_b=3, category_b="donated"),
        buffer(-9, op_name="jit(f)/l/x", shape_a="f32[9]", cause="gone", bytes_b=0, bytes_a=9, category_a="constant"),
        buffer(-9, op_name="jit(f)/l/y", shape_a="f32[8]", cause="gone", bytes_b=0, bytes_a=9, instruction_b=None),
        buffer(7, op_name=None, instruction_a="copy.1", instruction_b="add.3.1", bytes_a=0, bytes_b=7),
        buffer(2, op_name=None, instruction_a="copy.2", instruction_b="add.4", memory_space="vmem"),
        buffer(1, op_name="x", argument=0), buffer(1, op_name="x", argument=0, category_b="parameter"),
        buffer(99, account="vmem"), buffer(1, op_name=None, instruction_a=None, instruction_b=None),
    ]  # fmt: skip
    d = difference([account(TOTAL, 0, 0), account("vmem", 0, 0)], buffers=rows)
    found = difference_groups(d, "buffer").to_pylist()
    assert [(g["buffer"], g["n"], g["change"], g["bytes_a"], g["bytes_b"], g["n_shapes"]) for g in found] == [
        ("l/y", 1, -9, 9, 0, 1), ("add", 2, 9, MIB, MIB + 9, 1), ("l/x", 2, -6, MIB + 9, MIB + 3, 2),
        ("copy of x", 1, 1, MIB, MIB + 1, 1), ("x", 1, 1, MIB, MIB + 1, 1), (None, 1, 1, MIB, MIB + 1, 1),
    ]  # fmt: skip
    assert (found[2]["shape_a"], found[2]["source_file_b"]) == ("f32[9]", None)
    assert found[1]["instruction_b"] == "add.3.1"
    by_category = difference_groups(d, ("category",)).to_pylist()
    assert [(g["category"], g["change"]) for g in by_category] == [
        ("constant", -9), ("donated", 3), ("temp", 2), ("parameter", 1),
    ]  # fmt: skip
    _, place = numbered_groups(d, "category")
    assert place.tolist() == [1, 0, 2, 2, 2, 2, 3, 2]
    assert [g["n"] for g in difference_groups(d, "cause", account="vmem").to_pylist()] == [1]
    both = difference_groups(d, ("memory_space", "cause")).to_pylist()
    assert [(g["memory_space"], g["cause"], g["change"]) for g in both] == [
        ("hbm", "gone", -18), ("hbm", "larger", 13), ("vmem", "larger", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("instruction", "name"),
    [
        ("all-gather.7", "all-gather of x"), ("copy-start.41", "copy of x"), ("transpose", "transpose of x"),
        ("dynamic-slice_fusion.3", "copy of x"), (None, "copy of x"),
    ],
)  # fmt: skip
def test_groups_of_what_moves_an_argument(instruction: str | None, name: str) -> None:
    """Their names begin as those in lists of buffers do."""
    rows = [buffer(7, op_name="x", argument=2, instruction_b=instruction), buffer(5, op_name="y")]
    found = difference_groups(difference([account(TOTAL, 0, 0)], buffers=rows), "buffer").to_pylist()
    assert [g["buffer"] for g in found] == [name, "y"]


def test_groups_by_edit() -> None:
    edits = [edit("flags", 5), edit("layers", 7)]
    rows = [buffer(7, edit=1), buffer(2, edit=0), buffer(3, edit=0), buffer(1)]
    d = difference([account(TOTAL, 0, 0)], buffers=rows, edits=edits)
    found = difference_groups(d, "edit").to_pylist()
    assert [(g["edit"], g["change"]) for g in found] == [("layers differ", 7), ("flags differ", 5), (None, 1)]


# -- the verdict ---------------------------------------------------------------------------------


KINDS = [
    edit("compiler", 0, evidence="files"),
    edit("layers", 60), edit("sharding", 11),
    edit("dimensions", 99, evidence="buffers"),
    edit("arguments", 0), edit("constants", 0), edit("operations", 9), edit("donation", -50),
    edit("outputs", 9), edit("arguments", 2, text="few"),
    edit("instructions", 0), edit("operation types", 0),
    edit("memory space", 30, evidence="buffers"), edit("loops", 20),
    edit("constants", -3, text="fewer"), edit("arguments", -2, text="less"),
]  # fmt: skip
"""Edits in the order of their rank, where 100 bytes more are in use."""


def test_order_of_edits() -> None:
    """Whatever their order in the table is, unless nothing else tells."""
    shuffled = random.Random(2)
    without_compiler = KINDS[1:]
    for sign in (1, -1):
        for kinds in (without_compiler, KINDS[1:4]):
            for _ in range(20):
                rows = shuffled.sample(kinds, len(kinds))
                d: Any = difference([account(TOTAL, 100, 100 + 100 * sign)],
                                    edits=[{**e, "change": sign * e["change"]} for e in rows])  # fmt: skip
                assert [r["text"] for r in ranked_edits(d)] == [e["text"] for e in kinds]
    d = difference([account(TOTAL, 100, 200)], edits=KINDS[::-1])
    assert ranked_edits(d)[0]["kind"] == "compiler"
    assert main_cause(difference([account(TOTAL, 1, 2)])) is None


@pytest.mark.parametrize(
    ("total", "peaks", "first"),
    [((0, 100), (0, 0), "layers"), ((0, 100), (0, -50), "flags"), ((0, -100), (0, 50), "layers")],
)
def test_the_peak_counts_more_than_what_must_fit(total: Any, peaks: Any, first: str) -> None:
    edits = [edit("layers", 60), edit("flags", -60)]
    assert ranked_edits(difference([account(TOTAL, *total, peaks=peaks)], edits=edits))[0]["kind"] == first


@pytest.mark.parametrize(("change", "explains"), [(10, True), (9, False), (-99, False)])
def test_the_least_that_explains_a_change(change: int, explains: bool) -> None:
    edits = [edit("layers", 0), edit("sharding", change)]
    first = ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"]
    assert first == ("sharding" if explains else "layers")


@pytest.mark.parametrize(
    ("change", "evidence", "first"),
    [(-999, "names", "layers"), (-1000, "names", "dimensions"), (-1000, "buffers", "layers")],
)
def test_a_cause_of_which_little_is_left(change: int, evidence: str, first: str) -> None:
    """As of a larger table whose copies are gone: what explains the rest is not the cause."""
    edits = [edit("layers", 50), edit("dimensions", change, evidence=evidence)]
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"] == first


def test_facts_are_in_their_order_if_nothing_changed_in_total() -> None:
    """No edit changed many times as much as nothing."""
    edits = [edit("dimensions", 50), edit("layers", 0), edit("element type", -40)]
    ranked = ranked_edits(difference([account(TOTAL, 7, 7)], edits=edits))
    assert [row["kind"] for row in ranked] == ["layers", "element type", "dimensions"]


@pytest.mark.parametrize(
    ("kind", "change", "evidence", "first"),
    [
        ("dimensions", 51, "interface", "dimensions"), ("dimensions", 50, "interface", "compiler"),
        ("dimensions", 99, "buffers", "compiler"), ("rematerialization", 60, "names", "rematerialization"),
        ("layers", 60, "names", "layers"), ("operations", 99, "names", "compiler"),
        ("dimensions", -99, "interface", "compiler"),
    ],
)  # fmt: skip
def test_an_edit_that_explains_more_than_another_chip(kind: str, change: int, evidence: str, first: str) -> None:
    chip = edit("compiler", 0, text="compiled for TPU7x instead of TPU v5e", evidence="files")
    edits = [edit(kind, change, evidence=evidence), chip]
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"] == first
    version = edit("compiler", 0, text="the compiler is of changelist 2 instead of 1", evidence="files")
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=[edits[0], version]))[0]["kind"] == "compiler"


@pytest.mark.parametrize(
    ("change", "evidence", "first"),
    [
        (0, "interface", "dimensions"), (1, "interface", "dimensions"), (0, "buffers", "outputs"),
        (20, "interface", "outputs"),
    ],
)
def test_outputs_of_another_shape_because_of_an_argument(change: int, evidence: str, first: str) -> None:
    edits = [edit("outputs", change), edit("dimensions", 3, evidence=evidence)]
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"] == first


@pytest.mark.parametrize(("change", "first"), [(3, "arguments"), (2, "repetitions"), (-3, "repetitions")])
def test_lines_that_run_more_often_because_of_new_layers(change: int, first: str) -> None:
    """The arguments of layers that have no names of their own in the op_names, such as those of Flax NNX.

    Where layers are gone, fewer run.
    """
    edits = [edit("repetitions", 90), edit("arguments", change)]
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"] == first
    less = [edit("repetitions", -90), edit("arguments", -change)]
    assert ranked_edits(difference([account(TOTAL, 100, 0)], edits=less))[0]["kind"] == first
    edits[0] = edit("loops", 90)
    assert ranked_edits(difference([account(TOTAL, 0, 100)], edits=edits))[0]["kind"] == "loops"


@pytest.mark.parametrize(
    ("kinds", "row", "follows"),
    [
        ((), edit("memory space", 0, evidence="buffers"), True),
        ((), edit("element type", 0, evidence="buffers"), True),
        ((), edit("donation", 0, evidence="buffers"), True),
        ((), edit("dimensions", 0, evidence="buffers"), False),
        (("compiler",), edit("dimensions", 0, evidence="buffers"), True),
        ((), edit("loops", 0), False),
        (("layers",), edit("loops", 0), True),
        (("layers",), edit("dimensions", 0), False),
        (("compiler",), edit("operations", 0, evidence="names"), True),
        (("compiler",), edit("layers", 0, evidence="names"), False),
        (("flags",), edit("operations", 0, evidence="names"), False),
        (("compiler",), edit("operations", 0), False),
    ],
)
def test_what_may_follow_from_another_edit(kinds: tuple[str, ...], row: Row, follows: bool) -> None:
    from xlamem.compare.verdict import _may_follow

    assert _may_follow(row, {*kinds, row["kind"]}) is follows


def test_verdicts() -> None:
    total = account(TOTAL, MIB, 3 * MIB, peaks=(MIB, 2 * MIB))
    rows = [
        buffer(MIB, op_name="jit(f)/a", edit=1, source_file_b="m.py", source_line_b=4),
        buffer(2 * MIB, op_name="jit(f)/b"), buffer(-9 * MIB, op_name="jit(f)/c", edit=1),
    ]  # fmt: skip
    edits = [edit("flags", 0), edit("layers", MIB)]
    assert verdict(difference([total], buffers=rows, edits=edits)) == (
        "+2.00 MiB must fit, +1.00 MiB in use at the peak: layers differ (+1.00 MiB: a is larger, m.py:4)."
    )
    single = [{**row, "edit": None} for row in rows]
    assert verdict(difference([total], buffers=single, edits=edits[:1])) == (
        "+2.00 MiB must fit, +1.00 MiB in use at the peak: flags differ (+2.00 MiB: b is larger; -9.00 MiB:"
        " c is smaller)."
    )
    assert verdict(difference([total], buffers=single[2:])) == (
        "+2.00 MiB must fit, +1.00 MiB in use at the peak: the same arguments and operations are compiled differently."
    )
    less = account(TOTAL, 3 * MIB, MIB, peaks=(MIB, MIB))
    assert verdict(difference([less], buffers=single, doubt="A is odd")) == (
        "Not known (A is odd). As far as the text goes: -2.00 MiB must fit, ±0 in use at the peak: the same arguments"
        " and operations are compiled differently (-9.00 MiB: c is smaller; +2.00 MiB: b is larger)."
    )
    wide = account(TOTAL, MIB, 3 * MIB, peaks=(2 * MIB, MIB))
    for n, words in ((MIB + 1, " (+1.00 MiB of packing)"), (MIB, ""), (-2 * MIB, "")):
        packed = [{"line": "packing", "change": n - 5}, {"line": "packing", "change": 5}]
        assert verdict(difference([wide], packed, edits=edits)) == (
            f"+2.00 MiB must fit{words}, -1.00 MiB in use at the peak: layers differ."
        )
    level = account(TOTAL, MIB, MIB)
    bills = [{"line": "outputs", "change": 3}, {"line": "packing", "change": -5},
             {"line": "outputs", "part": "padding", "change": 2}, {"line": "donated", "change": 4},
             {"line": "donated", "part": "padding", "change": -4}]  # fmt: skip
    for shuffled in (bills, bills[::-1]):
        assert verdict(difference([level], shuffled, edits=edits)) == (
            "Nothing changed in total (1.00 MiB must fit), but outputs +5 B, packing -5 B: layers differ."
        )
    assert verdict(difference([level], buffers=single[:1], edits=edits)) == (
        "Nothing changed in total (1.00 MiB must fit): layers differ."
    )
    up = account(TOTAL, MIB, MIB, peaks=(4, 5))
    assert verdict(difference([up], edits=edits)) == "±0 must fit, +1 B in use at the peak: layers differ."


@pytest.mark.parametrize(
    ("less", "more", "text"),
    [
        (-125, 25, "-125 B: a is smaller"), (-126, 26, "-126 B: a is smaller; +26 B: b is larger"),
        (-126, 9, "-126 B: a is smaller"), (-150, 10, "-150 B: a is smaller; +10 B: b is larger"),
    ],
)  # fmt: skip
def test_what_changed_by_more_than_the_peak(less: int, more: int, text: str) -> None:
    """What cancels a part of it is stated as well, if it is not little."""
    rows = [buffer(less, op_name="jit(f)/a"), buffer(more, op_name="jit(f)/b")]
    d = difference([account(TOTAL, 300, 200)], buffers=rows, edits=[edit("flags", 0)])
    assert verdict(d) == f"-100 B must fit, -100 B in use at the peak: flags differ ({text})."


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (5000, ", +4.88 KiB of host memory: moved (+512 B of host memory: a is new)"),
        (10, ", +10 B of host memory: layers differ"), (9, ": layers differ"),
        (-101, ", -101 B of host memory: moved"), (0, ": layers differ"),
    ],
)  # fmt: skip
def test_the_memory_of_the_host(host: int, text: str) -> None:
    """It is stated if it is not little, and what moved there is the cause if it changed by more than the device."""
    moved = {"account": "host", "memory_space": "host", "cause": "new", "op_name": "jit(f)/a", "edit": 1}
    edits = [edit("layers", 0), edit("memory space", 0, text="moved", evidence="names")]
    accounts = [account(TOTAL, 200, 300), account("host", 9000, 9000 + host)]
    d = difference(accounts, buffers=[buffer(512, **moved)], edits=edits)
    assert verdict(d) == f"+100 B must fit, +100 B in use at the peak{text}."
    level = difference([account(TOTAL, 200, 200), account("host", 0, host)], buffers=[buffer(1)], edits=edits)
    but = f", but {signed(host)} of host memory" if host else ""
    assert verdict(level) == f"Nothing changed in total (200 B must fit){but}: {'moved' if host else 'layers differ'}."


def test_buffers_of_the_host_that_may_follow_are_no_cause() -> None:
    edits = [edit("layers", 0), edit("memory space", 0, evidence="buffers")]
    d = difference([account(TOTAL, 2, 3), account("host", 0, 99)], edits=edits)
    assert ranked_edits(d)[0]["kind"] == "layers"


def test_facts_are_in_their_order() -> None:
    """Of edits that explain nothing."""
    kinds = ["layers", "rematerialization", "operations", "donation"]
    for order in permutations(kinds):
        d: Any = SimpleNamespace(
            peak_change=5, device_total_change=0, host_change=0, edits=difference([account(TOTAL, 0, 0)], edits=[
                edit(kind, 0) for kind in order]).edits,
        )  # fmt: skip
        assert [row["kind"] for row in ranked_edits(d)] == kinds


@pytest.mark.parametrize(
    ("buffers", "text"),
    [
        ([-400, 400, -100], "-100 B: c is smaller"),  # a and b cancel
        ([-400, 390, -90], "-90 B: c is smaller"),  # together they are a tenth of the change
        ([-400, 389, -89], "-400 B: a is smaller; +389 B: b is larger"),
        ([-400, 400, 300, -400], "-400 B: d is smaller; +300 B: c is larger"),  # one cancels one
        ([-90, 0, -10], "-90 B: a is smaller"),
        ([-50, 50, -40], "-40 B: c is smaller"),
        ([-49, 49, -40], "-49 B: a is smaller"),  # less than half of the change
    ],
)
def test_buffers_that_cancel_are_not_the_difference(buffers: list[int], text: str) -> None:
    for cause in (None, 0):
        rows = [buffer(n, op_name=f"jit(f)/{name}", edit=cause) for name, n in zip("abcd", buffers, strict=False)]
        d = difference([account(TOTAL, 300, 200)], buffers=rows, edits=[edit("flags", 0)])
        assert verdict(d) == f"-100 B must fit, -100 B in use at the peak: flags differ ({text})."


@pytest.mark.parametrize(
    ("own", "other", "change", "text"),
    [
        (50, 100, 50, "+50 B: a is larger"),
        (49, 100, 49, "+100 B: b is larger"),  # what the cause explains is little beside it
        (10, 100, 50, "+50 B in all; +10 B: a is larger"),
        (10, 100, -50, "+100 B: b is larger"),
        (60, 50, 119, "+60 B: a is larger"),
        (60, 50, 120, "+120 B in all; +60 B: a is larger"),  # one of several
        (50, 50, 110, "+50 B: a is larger"),  # about the change itself
        (50, 50, 111, "+111 B in all; +50 B: a is larger"),
        (20, 20, 89, "+89 B in all; +20 B: a is larger"),
        (50, 50, -100, "+50 B: a is larger"),
    ],
)
def test_buffers_of_the_main_cause(own: int, other: int, change: int, text: str) -> None:
    rows = [buffer(own, op_name="jit(f)/a", edit=0), buffer(other, op_name="jit(f)/b")]
    d = difference([account(TOTAL, 200, 300)], buffers=rows, edits=[edit("flags", change)])
    assert verdict(d) == f"+100 B must fit, +100 B in use at the peak: flags differ ({text})."


@pytest.mark.parametrize(
    ("kind", "n", "text"), [("sharding", 2, "+100 B in all; "), ("sharding", 1, ""), ("flags", 2, "")]
)
def test_the_sum_of_several_arguments_is_stated(kind: str, n: int, text: str) -> None:
    """Also if it is all of the change: the largest buffer is only one of those that are named."""
    rows = [buffer(50, op_name=f"jit(f)/{name}", edit=0) for name in "ab"]
    d = difference([account(TOTAL, 200, 300)], buffers=rows, edits=[edit(kind, 100, n=n)])
    assert f"differ ({text}+50 B: a is larger)" in verdict(d)


@pytest.mark.parametrize(
    ("host", "change", "evidence", "in_host", "first"),
    [
        (50, -90, "buffers", True, "moved"), (49, -90, "buffers", True, "layers"),
        (-50, -90, "buffers", True, "layers"), (50, -9, "buffers", True, "layers"),
        (50, -9, "names", False, "moved"), (50, -90, "buffers", False, "layers"),
    ],
)  # fmt: skip
def test_what_is_offloaded_comes_first(host: int, change: int, evidence: str, in_host: bool, first: str) -> None:
    """The host gets at least half of what the device needs less, whatever else explains as much."""
    edits = [edit("layers", -100), edit("memory space", change, text="moved", evidence=evidence)]
    accounts = [account(TOTAL, 300, 200), account("host", 1000, 1000 + host)]
    there = {"account": "host", "memory_space": "host", "cause": "new", "op_name": "jit(f)/a"}
    rows = [buffer(host, **there, edit=1 if in_host else 0)]
    assert ranked_edits(difference(accounts, buffers=rows, edits=edits))[0]["text"].startswith(first)


def test_what_the_text_says_about_offloading_comes_before_buffers() -> None:
    edits = [edit("memory space", -90, text="buffers", evidence="buffers"),
             edit("memory space", -9, text="arguments", evidence="interface")]  # fmt: skip
    there = {"account": "host", "memory_space": "host", "cause": "new", "op_name": "jit(f)/a"}
    accounts = [account(TOTAL, 300, 200), account("host", 1000, 1060)]
    d = difference(accounts, buffers=[buffer(60, **there, edit=0)], edits=edits)
    assert [e["text"] for e in ranked_edits(d)] == ["arguments", "buffers"]


def test_a_group_of_the_main_cause_is_found_among_many() -> None:
    """It is smaller than each of more than fifty others, but the cause explains most."""
    rows = [buffer(10, op_name=f"jit(f)/b{i}x") for i in range(55)]
    rows += [buffer(9, op_name=f"jit(f)/a{i}x", edit=0) for i in range(50)]
    d = difference([account(TOTAL, 0, 1000)], buffers=rows, edits=[edit("flags", 450)])
    assert "450 B in all; +9 B: a" in verdict(d)
