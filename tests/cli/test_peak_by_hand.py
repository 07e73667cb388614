"""Parts of the screen of `xlamem peak`, on numbers made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem.cli import options
from xlamem.cli.reporters import peak, programs, series
from xlamem.cli.reporters.peak import Layout
from xlamem.compute.capacity import Fits
from xlamem.compute.overview import Overview

Row = dict[str, Any]
NONE: Any = None

MIB = 1 << 20


def plain(text: object) -> str:
    return " ".join(str(text).replace("\N{NO-BREAK SPACE}", " ").split())


def a_space(name: str, most: int | None, **more: Any) -> Row:
    return {"memory_space": name, "page": 0, "color": 0, "peak": most, "reserved": 10, "first_step": 1, "last_step": 1,
            "plateaus": 1, "categories": {}, "in_device_memory": False, **more}  # fmt: skip


def an_overview(spaces: list[Row] | None = None, usage: dict[str, list[int]] | None = None, **module: Any) -> Overview:
    about = {"schedule_length": 5000, "printed_peak_bytes": None, "printed_peak_time": None, "platform": "tpu",
             "module_name": "jit_f"}  # fmt: skip
    series = {(name, 0): np.array(n, np.int64) for name, n in (usage or {}).items()}
    return Overview(NONE, {**about, **module}, spaces or [], usage=series)


@pytest.mark.parametrize(
    ("total", "n_report", "unproven"), [(None, 0, True), (None, None, True), (None, 3, False), (0, 0, False)]
)
def test_a_dump_without_live_ranges_and_total(total: int | None, n_report: int | None, unproven: bool) -> None:
    """Nothing shows that it was cut between two allocations."""
    overview = an_overview([a_space("hbm", None)], total_bytes=total, n_printed_report=n_report)
    text = plain(" ".join(map(str, peak._missing(overview, Layout(80)))))
    assert text.startswith("this dump has no live ranges: only reserved sizes are known")
    assert text.endswith("; it has no total either, so it may have been cut between two allocations") == unproven


@pytest.mark.parametrize(
    ("most", "categories", "capacity", "floor", "line"),
    [
        (100, {"parameter": 51, "temp": 49}, None, 51, None), (100, {"parameter": 50, "temp": 50}, None, 0, None),
        (100, {"parameter": 60, "donated": 30, "temp": 10}, None, 90, None), (100, {"parameter": 100}, None, 0, None),
        (100, {"parameter": 60, "temp": 40}, 200, 0, 200), (100, {"parameter": 60, "temp": 40}, 201, 60, None),
        (100, {"parameter": 60, "temp": 40}, 0, 60, None), (100, {"parameter": 60, "temp": 40}, -5, 60, None),
        (100, {"temp": 100}, 50, 0, 50), (1, {"temp": 1}, 1, 0, 1), (1, {"temp": 1}, 2, 0, 2),
        (1, {"temp": 1}, 3, 0, None),
    ],
)  # fmt: skip
def test_where_a_chart_begins(
    most: int, categories: dict[str, int], capacity: int | None, floor: int, line: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """At what is always in use if that is most of the peak, unless the capacity is shown."""
    asked: list[Any] = []
    monkeypatch.setattr(peak, "usage_chart", lambda *a, **k: asked.append((a, k)) or ["x", "y"])
    space = a_space("hbm", most, categories=categories)
    lines = peak._chart(an_overview(usage={"hbm": [1]}), space, capacity, Layout(80))
    (((usage, step), found),) = asked
    assert (usage.tolist(), step) == ([1], 1)
    assert found == {"floor": floor, "capacity": line, "rows": 3, "width": Layout(80).room}
    assert [plain(t) for t in lines] == ["in use x", "y"]


@pytest.mark.parametrize(
    ("printed", "at", "text"),
    [
        (None, None, ""), (9, 1, ""), (9, 0, "9 bytes at step 0; xlamem computes 9 bytes at step 1"),
        (8, 1, "8 B at step 1; xlamem computes 9 B at step 1"),
        (9, 7, "9 bytes at step 7; xlamem computes 9 bytes at step 1"), (9, 2, ""),
        (2000, 1234, "1.95 KiB at step 1,234; xlamem computes 9 B at step 1"),
    ],
)  # fmt: skip
def test_peaks_that_xla_prints(printed: int | None, at: int | None, text: str) -> None:
    """They differ if the bytes do, or those at the step."""
    overview = an_overview(usage={"hbm": [1, 5, 4], "vmem": [1, 4, 5]}, printed_peak_bytes=printed,
        printed_peak_time=at)  # fmt: skip
    said = plain(peak._printed_peak(overview))
    before, after = "for all memory spaces together, XLA prints a peak of ", " (see xlamem explain)"
    assert said == (f"{before}{text}{after}" if text else "")
    assert peak._printed_peak(an_overview(printed_peak_bytes=5, printed_peak_time=1)) == ""
    large = an_overview(usage={"hbm": [0, MIB]}, printed_peak_bytes=MIB + 1, printed_peak_time=1)
    text = "1,048,577 bytes at step 1; xlamem computes 1,048,576 bytes at step 1"  # both are 1.00 MiB
    assert plain(peak._printed_peak(large)) == f"{before}{text}{after}"


def test_the_note_on_stacked_buffers_has_one_of_the_program() -> None:
    """The largest with a slice for each iteration, in the first memory space that has one."""
    spaces = [a_space("hbm", 9), a_space("vmem", 5), a_space("host", 5)]
    overview = an_overview(spaces)
    shapes = {"hbm": ["f32[9]"], "vmem": ["f32[8]", "bf16[24,8,512]{2,1,0}", "f32[7,2]"], "host": ["f32[6,2]"]}
    n = {"hbm": [None], "vmem": [None, 24, 7], "host": [6]}
    for name in shapes:
        columns = {"shape": shapes[name], "instruction": ["add"] * len(n[name]), "bytes": [1] * len(n[name])}
        overview.members[name, 0] = pa.table(columns | {"iterations": pa.array(n[name], pa.int64())})
    (note,) = peak._notes(overview, None, spaces, all_spaces=False)
    assert note.text.startswith("bf16[24 × 8,512] has one slice for each of 24 iterations of a loop, ")
    assert peak._notes(overview, None, spaces[2:], all_spaces=False)[0].text.startswith("f32[6 × 2] ")
    assert peak._stacked(overview, spaces[:1]) is peak._stacked(an_overview(), spaces) is None


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["add.remat", "add.remat2.1", "rematch", None], "2 buffers at the peak, 3 B, are rematerialized: "),
        (["add.1", "add.remat", "remat.1"], "1 buffer at the peak, 2 B, is rematerialized: "),
        (["add.1"], ""),
    ],
)
def test_the_note_on_what_xla_computes_again(names: list[str | None], text: str) -> None:
    overview = an_overview([a_space("hbm", 9)])
    overview.members["hbm", 0] = pa.table({"instruction": names, "bytes": [*range(1, len(names) + 1)]})
    said = peak._rematerialized(overview, overview.spaces)
    assert said.startswith(text)
    assert bool(said) == bool(text)
    assert peak._rematerialized(overview, []) == peak._rematerialized(overview, [a_space("vmem", 1)]) == ""
    nulls = pa.nulls(len(names), pa.int64())
    overview.members["hbm", 0] = overview.members["hbm", 0].append_column("iterations", nulls)
    notes = peak._notes(overview, None, overview.spaces, all_spaces=False)
    assert notes == ([peak.Note("XLA rematerializes", said)] if text else [])


@pytest.mark.parametrize(
    ("module", "names", "has_note"),
    [
        ("SyncTensorsGraph.12", [[None, None], []], True), ("SyncTensorsGraph.12", [[None], ["aten__mm"]], False),
        ("SyncTensorsGraph.12", [[], []], False), ("jit_f", [[None], [None]], False), (None, [[None], [None]], False),
    ],
)  # fmt: skip
def test_the_note_on_missing_names(module: str | None, names: list[list[str | None]], has_note: bool) -> None:
    """PyTorch/XLA writes names if it is asked to."""
    spaces = [a_space("hbm", 9), a_space("vmem", 5)]
    overview = an_overview(spaces, module_name=module)
    for space, op_names in zip(spaces, names, strict=True):
        n = len(op_names)
        overview.members[space["memory_space"], 0] = pa.table({
            "op_name": pa.array(op_names, pa.string()), "instruction": ["add"] * n, "bytes": [1] * n,
            "iterations": pa.nulls(n, pa.int64()),
        })  # fmt: skip
    notes = [note.text for note in peak._notes(overview, None, spaces, all_spaces=False)]
    assert notes == ([peak.NO_NAMES] if has_note else [])


def test_the_course_of_another_memory_space() -> None:
    """As wide as there is room; without live ranges, only what is reserved is known."""
    assert plain(peak._other_space(an_overview(), a_space("host", None), Layout(80))) == "host 10 B reserved"
    overview, space = an_overview(usage={"vmem": [1, 4, 2]}), a_space("vmem", 4)
    wide, narrow = (peak._other_space(overview, space, Layout(width)) for width in (None, 60))
    assert plain(wide).endswith(", 10 B reserved")
    assert "reserved" not in plain(narrow)
    assert len(narrow) <= 60
    assert plain(wide).startswith("vmem 4 B ")


def test_other_memory_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of at least a thousandth of the largest peak have a line; the two largest have buffers."""
    monkeypatch.setattr(peak, "_other_space", lambda o, s, layout: peak.Text(f"# {s['memory_space']}"))
    asked: list[Any] = []
    monkeypatch.setattr(peak, "_largest", lambda o, s, n, layout: asked.append((s["memory_space"], n)) or [])
    main = a_space("hbm", 5000)
    others = [a_space("a", 900), a_space("b", None, reserved=5), a_space("c", 700), a_space("d", 4),
              a_space("e", None, reserved=4), a_space("f", 5)]  # fmt: skip
    overview = an_overview([main, *others])
    for layout, listed, last in (
        (Layout(None), "abcf", "also: d 4 B, e ?"), (Layout(None, wide=True), "abcdef", ""),
        (Layout(None, limit=0), "abcf", "also: d 4 B, e ?"),
    ):  # fmt: skip
        asked.clear()
        lines = [plain(t) for t in peak._other_spaces(overview, others, layout)]
        assert "".join(t[2:] for t in lines if t.startswith("#")) == listed
        assert [t.split(",")[0] for t in lines if t.startswith("also")] == ([last.split(",")[0]] if last else [])
        assert asked == [("a", 2 if layout.limit is None else layout.limit)]
    assert peak._other_spaces(overview, [], Layout(None)) == []


def test_the_largest_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those below a thousandth of the peak, but for the first."""
    monkeypatch.setattr(peak, "group_lines", lambda groups, width, wide: [g["bytes"] for g in groups])
    monkeypatch.setattr(peak, "like_buffers", lambda members, n: [{"bytes": b} for b in members["b"].to_pylist()[:n]])
    overview = an_overview()
    for sizes, n, wide, shown in (([9, 5, 4], 3, False, [9, 5]), ([9, 5, 4], 3, True, [9, 5, 4]), ([4, 4], 2, False,
            [4]), ([9, 8, 7], 2, False, [9, 8]), ([9], 0, False, [])):  # fmt: skip
        overview.members["hbm", 0] = pa.table({"b": sizes})
        assert peak._largest(overview, a_space("hbm", 5000), n, Layout(None, wide=wide)) == shown


@pytest.mark.parametrize(
    ("about", "text"),
    [
        ({}, "at step 1 of 5,000"), ({"last_step": 1200}, "at steps 1-1,200 of 5,000"),
        ({"plateaus": 2}, "at step 1 of 5,000, 2 plateaus"), ({"first_step": 0, "last_step": 0}, "at step 0 of 5,000"),
    ],
)
def test_steps_of_a_peak(about: Row, text: str) -> None:
    assert peak._steps(an_overview(), a_space("hbm", 9, **about)) == text


def test_what_is_reserved_and_in_use() -> None:
    space = a_space("hbm", 5, reserved=2048)
    lines = peak._amounts(an_overview(), space, None, must_fit=True)
    assert [plain(t) for t in lines] == ["reserved 2.00 KiB (2,048 bytes) must fit", "peak 5 B (5 bytes) at step 1 of"
        " 5,000"]  # fmt: skip
    n = len(str(lines[1]).rstrip())
    assert len(peak._amounts(an_overview(), space, n, must_fit=False)) == 2
    narrow = [plain(t) for t in peak._amounts(an_overview(), space, n - 1, must_fit=False)]
    assert narrow == ["reserved 2.00 KiB (2,048 bytes)", "peak 5 B (5 bytes)", "at step 1 of 5,000"]
    assert len(peak._amounts(an_overview(), {**space, "peak": None}, None, must_fit=True)) == 1


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 1025, 1500, 10**9, 15 * 2**30 + 7 * 10**8, 2**34 - 1])
def test_budgets_on_a_command_line(n: int) -> None:
    """At most the available bytes, and nearly all of them."""
    text = peak.budget_text(n)
    assert " " not in text
    assert n * 0.99 <= peak.parse_bytes(text) <= n


def test_advice_of_a_program() -> None:
    rows = [{"kind": "donate", "argument": "w", "scope": None, "function": None, "lower": 5, "upper": 9},
            {"kind": "remat", "argument": None, "scope": "a/b", "function": None, "lower": 1, "upper": 2}]  # fmt: skip
    called = [{**rows[1], "argument": "w", "function": "f"}]
    assert plain(peak._advice(called, SimpleNamespace(available=0), None)[0]) == "advice remat f: 1 B to 2 B less"
    called[0] |= {"lower": 0}
    assert plain(peak._advice(called, SimpleNamespace(available=0), None)[0]) == "advice remat f: up to 2 B less"
    plain_row = {"kind": "batch", "function": None, "scope": None}
    batch = [{**plain_row, "argument": name} for name in ("batch", None)]
    assert [peak._place(row) for row in batch] == ["batch of `batch`", "batch"]
    fits: Any = SimpleNamespace(fits=False, available=2048, capacity=2049, device="v5e")
    lines = [plain(t) for t in peak._advice(rows, fits, None)]
    command = "xlamem advise PATH --budget 2.00KiB"
    assert lines == ["advice donate w: 5 B to 9 B less", "remat a/b: 1 B to 2 B less",
        f"how, and what else helps: {command}"]  # fmt: skip
    width = max(len(str(t).rstrip()) for t in peak._advice(rows, fits, None))
    assert [len(peak._advice(rows, fits, w)) for w in (width, width - 1)] == [3, 4]
    for device, option in ("v5e", "--device v5e"), (None, "--budget 2.00KiB"):
        fits.device, fits.capacity = device, 2048
        assert plain(peak._advice(rows, fits, None)[-1]).endswith(f"xlamem advise PATH {option}")
    fits.available = 0
    assert plain(peak._advice(rows, fits, None)[-1]).endswith("xlamem advise PATH")
    assert peak._advice([], fits, None) == peak._advice(rows, None, None) == []


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("n_others", [0, 4])
def test_room_for_scopes_and_buffers(n_others: int, verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other parts of the screen leave; notes only count if they are short."""
    parts = {"header": ["h"] * 2, "_missing": [], "_space": ["s"] * 3, "_notes": [], "note_lines": ["n"] * 5}
    for name, lines in {**parts, "_other_spaces": ["o"] * n_others}.items():
        monkeypatch.setattr(peak, name, lambda *_, lines=lines, **__: [*lines])
    asked: list[Any] = []
    monkeypatch.setattr(peak, "_contents", lambda o, s, room, layout: asked.append((s, room)) or ["c"])
    first, second = a_space("hbm", 5), a_space("vmem", None)
    overview = an_overview([a_space("x", 0), a_space("y", None, reserved=0), first, second])
    overview.reserved["hbm"] = 10
    program: Any = (overview, None, [], [])
    lines = [plain(t) for t in peak.screen(program, Layout(80, height=30, verbose=verbose))]
    assert lines == [*"hh", "", *"sss", "c", *"o" * n_others, "", *"nnnnn"]
    assert asked == [(first, 30 - 6 - n_others - (0 if verbose else 6))]
    program = (an_overview([a_space("x", 0)]), None, [], [])
    assert [plain(t) for t in peak.screen(program, Layout(80))] == [*"hh", *"o" * n_others, "", *"nnnnn"]


@pytest.mark.parametrize(("room", "n_buffers", "n"), [(20, 4, 14), (14, 4, 8), (20, 30, 10), (9, 7, 4)])
def test_scopes_get_half_of_the_room_at_least(
    room: int, n_buffers: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what the buffers leave, up to a number."""
    asked: list[int] = []
    monkeypatch.setattr(peak, "have_functions_only", lambda _: False)
    monkeypatch.setattr(peak, "folded_scopes", lambda *_, functions: None)
    monkeypatch.setattr(peak, "scope_tree", lambda _: SimpleNamespace(bytes=5))
    monkeypatch.setattr(peak, "_largest", lambda *_: ["buffer"] * n_buffers)
    monkeypatch.setattr(peak, "fold_scopes", lambda root, n: asked.append(n))
    monkeypatch.setattr(peak, "tree_lines", lambda *_: ["scope"])
    overview: Any = SimpleNamespace(members={("hbm", 0): None})
    peak._contents(overview, a_space("hbm", 5), room, Layout(80))
    assert asked == [n]


@pytest.mark.parametrize(
    ("most", "cells"),
    [
        (a_space("hbm", 5, first_step=0), ["9 B", "5 B", "0", "hbm", ""]),
        (a_space("hbm", 0, first_step=1234), ["9 B", "0 B", "1,234", "hbm", ""]),
        (a_space("hbm", None, first_step=None), ["9 B", "-", "-", "hbm", ""]), (None, ["9 B", "-", "-", "-", ""]),
    ],
)
def test_cells_of_programs(most: Row | None, cells: list[str]) -> None:
    overview: Any = SimpleNamespace(device_total=9, spaces=[most, a_space("x", 7)] if most else [])
    assert programs._cells(overview) == cells
    for total, text in ((None, "-"), (0, "0 B")):
        overview.device_total = total
        assert programs._cells(overview)[0] == text


@pytest.mark.parametrize(
    ("gate", "known", "grown", "code"),
    [(False, False, True, 0), (True, False, True, 3), (True, True, True, 1), (True, True, False, 0),
     (False, True, True, 0), (True, False, False, 3)],
)  # fmt: skip
def test_exit_codes_of_series(gate: bool, known: bool, grown: bool, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "Over", lambda found: found)
    monkeypatch.setattr(series, "screen", lambda *_: [])
    found: Any = SimpleNamespace(is_known=known, has_grown=grown)
    assert series.write(found, options.Output(wide=True), gate=gate) == code


def test_memory_that_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "verdict_notes", lambda *_: [])
    used, empty, free = a_space("hbm", 5), a_space("a", 0, reserved=7), a_space("b", 0, reserved=0)
    overview = an_overview([used, empty, free], {"hbm": [5]}, printed_peak_bytes=4, printed_peak_time=0)
    notes = peak._notes(overview, None, [used], all_spaces=False)
    assert [plain(n.text) for n in notes] == ["nothing is ever in use in a, b, with 7 B reserved"]
    notes = peak._notes(an_overview([used, free]), None, [used], all_spaces=True)
    assert [plain(n.text) for n in notes] == ["nothing is ever in use in b"]
    overview.members["hbm", 0] = pa.table(
        {"iterations": [None, 4], "shape": ["f32[4]", "f32[4,2]"], "instruction": ["a", "b"], "bytes": [1, 1]}
    )
    notes = peak._notes(overview, None, [used, empty, free], all_spaces=True)
    assert [n.text.split(" has ")[0] for n in notes[1:]] == ["f32[4 × 2]"]
    columns = {"instruction": ["a", "b"], "bytes": [1, 1]}
    overview.members["hbm", 0] = pa.table({"iterations": pa.array([None, None], pa.int64()), **columns})
    assert len(peak._notes(overview, None, [used, empty, free], all_spaces=True)) == 1


@pytest.mark.parametrize(
    ("room", "limit", "n"), [(0, None, 1), (4, None, 1), (5, None, 2), (6, None, 2), (7, None, 3), (9, 0, 0), (2, 3, 3)]
)
def test_buffers_of_a_dump_without_live_ranges(
    room: int, limit: int | None, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A title, and two lines each; those without a byte are left out."""
    monkeypatch.setattr(peak, "buffer_lines", lambda rows, width, wide: [f"{r['bytes']}" for r in rows for _ in "ab"])
    space = a_space("hbm", None, buffers=pa.table({"bytes": [9, 8, 7, 6]}))
    title = ["largest buffers of all steps (not live together)"] if n else []
    lines = [plain(t) for t in peak._all_buffers(space, room, Layout(80, limit=limit))]
    assert lines == title + [f"{k}" for k in (9, 8, 7)[:n] for _ in "ab"]
    empty = a_space("hbm", None, buffers=pa.table({"bytes": [0, 0]}))
    assert peak._all_buffers(empty, room, Layout(80, limit=limit)) == []


def test_only_the_main_memory_has_a_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is about what must fit there."""
    monkeypatch.setattr(peak, "bill_line", lambda bill: bill)
    monkeypatch.setattr(peak, "_chart", lambda *_: ["chart"])
    monkeypatch.setattr(peak, "wrap", lambda text, indent, width: [f"{text} {width - indent}", "more"])
    overview = an_overview()
    for in_device, reason, lines in ((True, "why", [f"bill why {80 - peak.INDENT}", "more"]), (False, "why", []),
            (True, None, []), (False, None, [])):  # fmt: skip
        overview.__dict__["bill"] = reason
        found = peak._space(overview, a_space("hbm", 5, in_device_memory=in_device), None, Layout(80))
        assert [plain(t) for t in found if "reserved" not in str(t)] == ["hbm", "peak 5 B (5 bytes) at step 1 of 5,000",
            *lines, "chart"]  # fmt: skip


@pytest.mark.parametrize(
    ("lower", "text"),
    [
        (10 << 20, "batch of `x`: 10.00 MiB to 20.00 MiB less"),
        (0, "batch of `x`: up to 20.00 MiB less"),
        (-1, "batch of `x`: up to 20.00 MiB less, or it costs memory"),
    ],
)
def test_advice_that_may_cost_memory(lower: int, text: str) -> None:
    row = {"kind": "batch", "function": None, "argument": "x", "scope": None, "lower": lower, "upper": 20 << 20}
    fits = Fits(False, "", 100, available=90, capacity=90)
    assert plain(peak._advice([row], fits, 80)[0]) == f"advice {text}"
