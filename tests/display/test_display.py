"""What results look like in a terminal and in a notebook."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import compute
from xlamem.display import Curve, Grid, View, fields

TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
TIMELESS = DUMPS / "cpu-tf-1.15.0-loop"
HOSTILE = "<script>alert('x')</script>\x1b[31m&"


class Tags(HTMLParser):
    """Counts the elements and collects the text of a piece of HTML, and checks that elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_peak_in_a_terminal() -> None:
    assert repr(xlamem.peak(TPU)).splitlines() == [
        "<xlamem.Peak of module_0000.jit_m_host_offload.cl_1004524046.after_optimizations>",
        "  must fit  3.56 MiB (3,737,088 bytes)",
        "  memory space    reserved        peak  first step  last step  plateaus",
        "  hbm             3.56 MiB    3.50 MiB           8          8         1",
        "  vmem          512.00 KiB  512.00 KiB           1          8         1",
        "  sflag                4 B         4 B           1          3         2",
        "  host            1.00 MiB    1.00 MiB           5          9         1",
    ]


def test_a_peak_in_a_notebook_has_its_curve() -> None:
    html = xlamem.peak(TPU)._repr_html_()
    tags = Tags(html)
    assert tags.seen.count("svg") == 3  # sflag has 4 bytes
    assert {"hbm: 3.50 MiB at step 8 of 15", "vmem: 512.00 KiB at step 1 of 15"} <= set(map(str.strip, tags.texts))
    assert "3.56 MiB (3,737,088 bytes)" in tags.texts
    assert "text-align:right'>3.50 MiB<" in html
    assert "pyarrow" not in html


def test_results_without_a_peak() -> None:
    assert "must fit  7.06 KiB (7,232 bytes)" in repr(xlamem.peak(TIMELESS))
    assert "svg" not in xlamem.peak(TIMELESS)._repr_html_()
    empty = xlamem.peak(b"BufferAssignment:\n")
    assert repr(empty).startswith("<xlamem.Peak of")
    Tags(empty._repr_html_())


def test_a_peak_can_be_pickled_and_compared() -> None:
    peak = xlamem.peak(TPU)
    again = pickle.loads(pickle.dumps(peak))
    assert again == peak
    assert again._repr_html_() == peak._repr_html_()


@pytest.mark.parametrize(
    ("capacity", "title", "rows"),
    [
        ("4MiB", "fits", ["must fit   3.56 MiB (3,737,088 bytes)", "to spare   446.50 KiB (457,216 bytes)"]),
        ("1MiB", "does not fit", ["available  1.00 MiB (1,048,576 bytes)", "missing    2.56 MiB (2,688,512 bytes)"]),
    ],
)
def test_a_verdict(capacity: str, title: str, rows: list[str]) -> None:
    verdict = xlamem.fits(TPU, capacity=capacity)
    lines = repr(verdict).splitlines()
    assert lines[0] == f"<xlamem.Fits: {title}>"
    assert {f"  {row}" for row in rows} <= set(lines)
    assert lines[-1].startswith("  reason  ")
    assert title in " ".join(Tags(verdict._repr_html_()).texts)


def test_an_unknown_verdict() -> None:
    assert repr(xlamem.fits(TIMELESS, capacity="1GiB")).startswith("<xlamem.Fits: not known whether it fits>")


def test_memory_analysis() -> None:
    lines = repr(xlamem.memory_analysis(TPU)).splitlines()
    assert re.fullmatch(r"  host_temp_size_in_bytes +1\.00 MiB +1,048,576", lines[9])
    assert lines[-1].endswith("not in the dump")
    by_release = repr(xlamem.memory_analysis(DUMPS / "cpu-jaxlib-0.12.0-multiheap"))
    assert "total_allocation_bytes, jaxlib 0.11.2  " in by_release
    Tags(xlamem.memory_analysis(TPU)._repr_html_())


def test_a_dump_has_sizes_with_units() -> None:
    dump = xlamem.read(TPU)
    assert "  files   5 files, 24.75 KiB (25,347 bytes)" in repr(dump).splitlines()
    assert "5 files, 24.75 KiB (25,347 bytes)" in Tags(dump._repr_html_()).texts


# ---- tables


def test_a_table_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    rows = compute.attribution(xlamem.read(TPU), ("category", "role"), space="hbm")
    assert repr(xlamem.show(rows, limit=3)).splitlines() == [
        "  category   role        bytes  n",
        "  temp       value    2.00 MiB  5",
        "  parameter  value    1.00 MiB  2",
        "  live_out   value  512.00 KiB  1",
        "  1 more row",
    ]
    for columns in (60, 80, 120, 400):
        monkeypatch.setenv("COLUMNS", str(columns))
        for table in (compute.live_set, compute.donation, compute.idle, compute.padding, compute.explain):
            lines = repr(xlamem.show(table(xlamem.read(TPU)))).splitlines()
            assert max(map(len, lines)) <= columns
            assert lines[-1].endswith("more columns") or columns == 400


def test_columns_that_fit_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """All if two characters are left; else those with names that matter, then the first ones, but at least one."""
    table = pa.table({"first": ["a"], "second": ["bb"], "scope": ["c" * 9]})
    for columns, shown in (
        (28, ["first", "second", "scope"]), (27, ["first", "scope"]), (20, ["first", "scope"]), (19, ["scope"]),
        (3, ["scope"]),
    ):  # fmt: skip
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = repr(xlamem.show(table)).splitlines()
        n_hidden = 3 - len(shown)
        more = [f"  {n_hidden} more column{'s' if n_hidden > 1 else ''}"] if n_hidden else []
        assert (lines[0].split(), lines[2:]) == (shown, more)
        assert max(map(len, lines[:2])) <= max(columns - 2, 11)


def test_long_shapes_have_no_layout_in_a_terminal() -> None:
    """The dimensions say more; a notebook has room for both."""
    short, long = "f32[8]{0}", "bf16[32,8192,8,64]{1,3,2,0:T(8,128)(2,1)}"
    shown = xlamem.show(pa.table({"shape": [short, long]}))
    assert repr(shown).split() == ["shape", short, "bf16[32,8192,8,64]"]
    assert long in shown._repr_html_()


def test_only_sizes_have_units() -> None:
    dump = xlamem.read(TPU)
    donation = Tags(xlamem.show(compute.donation(dump))._repr_html_())
    assert "512.00 KiB" in donation.texts
    assert "0 B" in donation.texts  # the lower bound of the saving
    headings = donation.texts[: donation.texts.index("free_in_schedule") + 1]
    first_row = dict(zip(headings, donation.texts[len(headings) :], strict=False))
    assert (first_row["parameter"], first_row["parameter_index"]) == ("0", "{}")
    occupancy = repr(xlamem.show(compute.occupancy(dump)))
    assert "1.00 MiB" in occupancy
    offsets = xlamem.show(compute.live_set(dump))._repr_html_()
    assert ">2,113,536<" in offsets


def test_a_size_has_units_in_any_table() -> None:
    table = pa.table({"size": [1 << 20], "remaining": [2048], "parameter": [4], "value": [5]})
    assert repr(xlamem.show(table)).splitlines()[1].split() == ["1.00", "MiB", "2.00", "KiB", "4", "5"]
    # A parameter is a number in other tables than `occupancy`.
    assert repr(xlamem.show(pa.table({"time": [1], "parameter": [2048]}))).splitlines()[1].split() == ["1", "2,048"]
    values = xlamem.read(TPU).values
    assert "1.00 MiB" in repr(xlamem.show(values.select(["value_id", "size"])))


def test_columns_may_have_the_same_name() -> None:
    table = pa.table([[1], [None], ["b"]], names=["a", "a", "a"])
    assert repr(xlamem.show(table)).splitlines() == ["  a  a", "  1  b"]


def test_columns_that_are_null_are_left_out() -> None:
    table = pa.table({"a": [1, 2], "empty": pa.nulls(2, pa.string()), "x": [0.12346, None], "b": [True, False]})
    assert repr(xlamem.show(table)).splitlines() == ["  a       x  b", "  1  0.1235  yes", "  2          no"]
    assert repr(xlamem.show(table.slice(0, 0))).splitlines() == ["  a  empty  x  b"]
    assert repr(xlamem.show(pa.table({}))) == ""
    later = pa.table({"a": [1, 2], "later": [None, "x"]})
    assert repr(xlamem.show(later, limit=1)).splitlines() == ["  a  later", "  1", "  1 more row"]


@pytest.mark.parametrize(
    ("limit", "lines"),
    [
        (0, ["  a", "  3 more rows"]),
        (1, ["  a", "  5", "  2 more rows"]),
        (2, ["  a", "  5", "  6", "  1 more row"]),
        (3, ["  a", "  5", "  6", "  7"]),
        (4, ["  a", "  5", "  6", "  7"]),
    ],
)
def test_rows_up_to_a_limit(limit: int, lines: list[str]) -> None:
    view = xlamem.show(pa.table({"a": [5, 6, 7]}), limit=limit)
    assert repr(view).splitlines() == lines
    assert Tags(view._repr_html_()).texts == [line.strip() for line in lines]


def test_twenty_rows_are_shown() -> None:
    lines = repr(xlamem.show(pa.table({"a": range(22)}))).splitlines()
    assert [lines[0], *lines[-2:]] == ["   a", "  19", "  2 more rows"]


def test_a_note_stands_below_its_grid() -> None:
    for grid, text, texts in (
        (Grid(["a"], [["b"]], note="n"), "  a\n  b\n  n", ["a", "b", "n"]),
        (Grid(["a"], [["b"]]), "  a\n  b", ["a", "b"]),
        (Grid([], [["a", "b"], ["cc", ""]], note="n"), "  a   b\n  cc\n  n", ["a", "b", "cc", "n"]),
        (Grid(["a"], [], note="n"), "  a\n  n", ["a", "n"]),
        (Grid([], [], note="n"), "  n", ["n"]),
        (Grid([], []), "", []),
    ):
        assert (grid.text(), Tags(grid.html()).texts) == (text, texts)


@pytest.mark.parametrize(("headings", "tags"), [(["a", "b"], ["th", "th", "td", "td"]), ([], ["th", "td"])])
def test_cells_of_a_grid_in_a_notebook(headings: list[str], tags: list[str]) -> None:
    """Without headings, the first cell of each row is one. Numbers are on the right in either case."""
    html = Grid(headings, [["x", "1"]], right=frozenset({1})).html()
    cells = re.findall(r"<(t[hd]) style='[^']*text-align:(\w+)'>(\w)", html)
    sides = ["left", "right"] * (len(tags) // 2)
    assert cells == [*zip(tags, sides, [*headings, "x", "1"], strict=True)]


def test_a_view_without_a_title() -> None:
    assert View("", ())._repr_html_() == "<div></div>"
    assert View("a", ())._repr_html_() == "<div><div><strong>a</strong></div></div>"
    assert (repr(View("", ())), repr(View("a", ()))) == ("", "<a>")


@pytest.mark.parametrize("value", [3, None, "text", [1]])
def test_show_needs_a_table(value: Any) -> None:
    with pytest.raises(xlamem.UsageError, match=r"needs a pyarrow\.Table"):
        xlamem.show(value)
    with pytest.raises(xlamem.UsageError, match="0 or more"):
        xlamem.show(pa.table({}), limit=-1)


# ---- safety


def test_html_is_escaped() -> None:
    table = pa.table({HOSTILE: [HOSTILE], "bytes": [2048]})
    curve = Curve(HOSTILE, np.array([1, 5, 2]), 1, 1)
    view = View(HOSTILE, (fields([(HOSTILE, HOSTILE)]), Grid([HOSTILE], [[HOSTILE]], note=HOSTILE), curve))
    for html in (xlamem.show(table)._repr_html_(), view._repr_html_()):
        tags = Tags(html)
        assert "script" not in tags.seen
        assert "\x1b" not in html
        assert any("<script>" in text for text in tags.texts)
    for text in (repr(view), repr(xlamem.show(table))):
        assert "\x1b" not in text


@pytest.mark.parametrize(("usage", "fixed", "step"), [([4], 0, 0), ([4, 9, 1], 1, 1), (list(range(5000)), 0, 4999)])
def test_a_curve_is_valid_svg(usage: list[int], fixed: int, step: int) -> None:
    html = Curve("hbm", np.array(usage), fixed, step).html()
    svg = ET.fromstring(html[html.index("<svg") :])
    assert svg.findtext("title") == f"hbm: {max(usage):,} B at step {step:,} of {len(usage) - 1:,}" or max(usage) > 1023
    area, mark = (path.attrib["d"] for path in svg.findall("path"))
    heights = [float(y) for y in re.findall(r"V([\d.]+)", area)]
    assert min(heights) == 6.0  # the top of the area is the maximum
    assert len(heights) <= 642
    x = float(re.match(r"M([\d.]+)", mark)[1])  # type: ignore[index]
    assert 90 <= x <= 730


@pytest.mark.parametrize(
    ("usage", "step", "corners"),
    [
        ([4, 9, 1, 9], 0, "H90.0V72.7H250.0V6.0H410.0V112.7H570.0V6.0"),
        ([1, 1, 9, 9], 1, "H90.0V112.7H410.0V6.0"),
        ([0, 9, 0, 0], 2, "H90.0V126.0H250.0V6.0H410.0V126.0"),
        ([9, 9, 9, 9], 3, "H90.0V6.0"),
    ],
)
def test_lines_and_labels_of_a_curve(usage: list[int], step: int, corners: str) -> None:
    """640 pixels for the steps and 120 for the bytes, from (90, 6) on. At its ends, the peak has no label."""
    html = Curve("hbm", np.array(usage), 1, step).html()
    svg = ET.fromstring(html[html.index("<svg") :])
    assert svg.findtext("title") == f"hbm: {usage[step]} B at step {step} of 3"
    area, mark = (path.attrib["d"] for path in svg.findall("path"))
    middle = 90 + 160 * step + 80
    assert (area, mark) == (f"M90 126{corners}H730V126Z", f"M{middle}.0 6V126")
    rect = svg.find("rect")
    assert rect is not None
    legend = re.findall(r"color:(#\w+)'>■</span> <small>(\w+)", html)
    assert legend == [(rect.attrib["fill"], "parameters"), (svg.findall("path")[0].attrib["fill"], "temporaries")]
    assert [rect.attrib[k] for k in ("x", "y", "width", "height")] == ["90", "112.7", "640", "13.3"]
    labels = [(t.attrib["x"], t.attrib["y"], t.attrib["text-anchor"], t.text) for t in svg.findall("text")]
    assert labels == [
        ("84.0", "14", "end", "9 B"), ("84.0", "126", "end", "0"), ("84.0", "140", "end", "step"),
        ("90.0", "140", "start", "0"), ("730.0", "140", "end", "3"),
        *([(f"{middle}.0", "140", "middle", str(step))] if step in (1, 2) else []),
    ]  # fmt: skip


@pytest.mark.parametrize(("step", "has_label"), [(0, False), (19, False), (20, True), (139, True), (140, False)])
def test_the_label_of_a_peak_stands_apart_from_those_of_the_ends(step: int, has_label: bool) -> None:
    """An eighth of the width, which 20 of 160 steps take, is left to each of these."""
    html = Curve("hbm", np.ones(160, np.int64), 0, step).html()
    svg = ET.fromstring(html[html.index("<svg") :])
    assert [t.text for t in svg.findall("text")][5:] == ([str(step)] if has_label else [])


def test_curves_of_nothing_and_of_a_byte() -> None:
    """The highest column reaches the top, and one of 0 bytes stays at the bottom."""
    for usage, path in (([0, 0], "M90 126H90.0V126.0H730V126Z"), ([0, 1], "M90 126H90.0V126.0H410.0V6.0H730V126Z")):
        curve = Curve("hbm", np.array(usage), 0, 1)
        html = curve.html()
        svg = ET.fromstring(html[html.index("<svg") :])
        assert svg.findall("path")[0].attrib["d"] == path
        legend = ["■", " ", "parameters, outputs, constants", " ", "■", " ", "temporaries"]
        assert Tags(html[: html.index("<svg")]).texts == [f"hbm: {usage[1]} B at step 1 of 1 \xa0 ", *legend]
        assert curve.text() == ""


def test_a_column_of_several_steps_is_as_high_as_the_highest() -> None:
    usage = np.zeros(5000, np.int64)
    usage[[1233, 1300]] = 9, 3
    html = Curve("hbm", usage, 0, 1233).html()
    svg = ET.fromstring(html[html.index("<svg") :])
    columns = "H246.9V6.0H248.0V126.0H255.9V86.0H256.9V126.0"
    assert svg.findall("path")[0].attrib["d"] == f"M90 126H90.0V126.0{columns}H730V126Z"


def test_numbers_of_any_kind_are_aligned_to_the_right() -> None:
    numbers: dict[str, Any] = {"i": [1, 10], "f": [0.5, 10.0], "d": [Decimal("1.25"), Decimal("10.25")]}
    lines = repr(xlamem.show(pa.table({**numbers, "text": ["a", "bc"]}))).splitlines()
    assert lines == ["   i    f      d  text", "   1  0.5   1.25  a", "  10   10  10.25  bc"]


def test_reprs_load_no_more_than_they_need() -> None:
    code = (
        "import sys, xlamem; peak = xlamem.peak(sys.argv[1]); before = {'html', 'xlamem.display'} & set(sys.modules);"
        "print(sorted(before)); repr(peak); print(sorted({'rich', 'click', 'IPython', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code, str(TPU)], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines() == ["[]", "[]"]
