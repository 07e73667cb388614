"""The static pictures: valid SVG that loads nothing, with the numbers of the tables, and legible in any theme."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import attacks
import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS, every, label, sources
from hostile import hostile_dump

import xlamem
from xlamem.formatting import one_line, size
from xlamem.input.find import Source
from xlamem.page import pictures
from xlamem.page.model import Program
from xlamem.page.pictures import address_map, cells, colors, picture, svg, timeline
from xlamem.page.program_model import program_model
from xlamem.page.writing import report

pytest_plugins = "chromium"

STORED = [s for s in sources() if str(DUMPS) in s.location]
SCRIPT = Path(__file__).parents[2] / "src" / "xlamem" / "page" / "script"
SVG = "{http://www.w3.org/2000/svg}"


@cache
def model(name: str) -> Program:
    return program_model(xlamem.read(DUMPS / name))


@cache
def model_of(source: Source) -> Program:
    return program_model(xlamem.read(source))


TPU = "tpu-libtpu-0.0.50.1-v5e-host_offload"
CPU = "cpu-jaxlib-0.12.0-multiheap"


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def texts(root: ElementTree.Element) -> list[str]:
    return [t.text or "" for t in root.iter(f"{SVG}text")]


def check(text: str) -> ElementTree.Element:
    """Parse a picture; it is small, has no identifiers, and loads and runs nothing."""
    root = parsed(text)
    assert {e.tag.removeprefix(SVG) for e in root.iter()} <= {"svg", "title", "style", "rect", "path", "text"}
    for element in root.iter():
        assert not {name for name in element.attrib if name in ("id", "href") or name.startswith("on")}
        values = [value for name, value in element.attrib.items() if name != "aria-label"]
        rules = (element.text or "") if element.tag == f"{SVG}style" else ""
        assert not re.search(r"url\(|@import|//", " ".join([*values, rules]))
    assert len(text) < 300_000
    return root


# -- every dump


@pytest.mark.parametrize("source", every(2, STORED), ids=label)
def test_numbers_of_every_dump(source: Source) -> None:
    program = model_of(source)
    root = check(picture([program]))
    shown = texts(root)
    must_fit = program.verdict.must_fit
    assert (must_fit is None) or size(must_fit) in shown
    assert one_line(program.verdict.headline) in " ".join(shown)
    if program.bill:
        account = program.bill[0]
        for line in account.lines:
            assert not line.bytes or {line.label, size(line.bytes)} <= set(shown)
        assert size(account.in_use) in shown
    first = program.spaces[0] if program.spaces else None
    if first is not None and first.peak:
        assert f"peak {size(first.peak)} at step {first.first_step:,}" in shown
    assert picture([program]) == picture([program])


def test_parts() -> None:
    program = model(CPU)
    for part, title in (("bill", "Bill"), ("timeline", "In use over time"), ("map", "Address map")):
        shown = texts(check(picture([program], parts=[part])))  # type: ignore[list-item]
        assert [t for t in shown if t in ("Bill", "In use over time", "Address map")] == [title]


def test_the_number_of_steps_is_that_of_the_schedule() -> None:
    schedule = xlamem.read(DUMPS / TPU).schedule_length
    assert f"tpu · {schedule} steps" in texts(check(picture([model(TPU)])))


def test_what_the_model_leaves_out_is_said() -> None:
    program = replace(model(CPU), folded=["12 buffers of at most 4 KiB are left out."])
    assert program.folded[0] in texts(check(picture([program])))
    assert program.folded[0] not in texts(check(picture([program], parts=["bill"])))


def test_the_verdict_has_the_height_of_the_number_or_of_its_lines() -> None:
    program = replace(model(CPU), problems=[])

    def height(n_lines: int) -> float:
        verdict = replace(program.verdict, headline="It fits.", decided_by=["It is so."] * (n_lines - 1), first_step="")
        return float(check(picture([replace(program, verdict=verdict)])).get("viewBox", "").split()[3])

    assert [height(n) - height(2) for n in (1, 2, 3, 4)] == [0, 0, 18, 36]


@pytest.mark.parametrize(
    ("name", "page", "shown"), [("host", 0, "host"), ("vmem", 1, "vmem page 1"), ("mmmmmm", 12, "mmmm…e 12")]
)
def test_the_names_of_other_memory_spaces(name: str, page: int, shown: str) -> None:
    program = model(CPU)
    spaces = [program.spaces[0], replace(program.spaces[0], memory_space=name, page=page)]
    assert shown in texts(check(picture([replace(program, spaces=spaces)], parts=["timeline"])))


def test_a_curve_has_the_name_of_its_space_and_a_legend_of_what_is_in_it() -> None:
    program = model(CPU)
    (space,) = program.spaces
    for page, name in ((0, "memory"), (2, "memory page 2")):
        for n, labels in ((0, ["temporaries"]), (1, ["parameters", "temporaries"])):
            categories = {**dict.fromkeys(space.categories, 0), "parameter": n, "temp": 9}
            shown = texts(check(picture(
                [replace(program, spaces=[replace(space, page=page, categories=categories)])], parts=["timeline"]
            )))  # fmt: skip
            assert f"memory space {name}, by step of the schedule" in shown
            assert [text for text in shown if text in ("parameters", "outputs", "constants", "temporaries")] == labels


def test_a_space_that_is_never_in_use_has_a_curve() -> None:
    program = model(CPU)
    space = replace(program.spaces[0], peak=0, usage=program.spaces[0].usage * 0)
    for peak, is_known in ((0, True), (None, False)):
        shown = picture([replace(program, spaces=[replace(space, peak=peak)])], parts=["timeline"])
        assert (timeline.NO_LIVE_RANGES not in texts(check(shown))) is is_known


def test_a_memory_space_without_a_curve_is_left_out() -> None:
    """The model leaves out the curves of a program with very many steps and memory spaces."""
    program = model(CPU)
    other = replace(program.spaces[0], memory_space="vmem")
    for usage, n in ((other.usage, 1), (other.usage[:0], 0)):
        spaces = [program.spaces[0], replace(other, usage=usage)]
        assert texts(check(picture([replace(program, spaces=spaces)], parts=["timeline"]))).count("vmem") == n


def test_two_programs() -> None:
    shown = texts(check(picture([model(CPU), model(TPU)], summary="B needs less than A.")))
    assert shown[0] == "B needs less than A."
    assert {f"A: {model(CPU).name}", f"B: {model(TPU).name}"} <= set(shown)


def test_a_long_summary_has_several_lines() -> None:
    words = [f"word{i}" for i in range(60)]
    shown = texts(check(picture([model(CPU)], parts=[], summary=" ".join(words))))
    lines = shown[: next(i for i, text in enumerate(shown) if not text.startswith("word"))]
    assert " ".join(lines).split() == words
    widths = [svg.BOLD * svg.text_width(line) for line in lines]
    assert max(widths) <= svg.RIGHT - svg.LEFT < min(a + svg.text_width(" word10") * svg.BOLD for a in widths[:-1])


def test_notebooks_and_files_show_the_picture(tmp_path: Path) -> None:
    made = report(DUMPS / CPU)
    made.save(tmp_path / "report.svg")
    assert made._repr_html_() == picture([model(CPU)]) == (tmp_path / "report.svg").read_text("utf-8")


def test_hostile_names(tmp_path: Path) -> None:
    program = program_model(xlamem.read(hostile_dump(tmp_path / "dump")))
    root = check(picture([program]))
    assert all(c.isprintable() for t in root.itertext() for c in t)
    assert any("<img src=x onerror=alert(1)>" in t for t in texts(root))


# -- geometry


def paths(root: ElementTree.Element, fill: str) -> list[str]:
    return [p.get("d", "") for p in root.iter(f"{SVG}path") if p.get("class") == f"f-{fill}"]


def test_timeline_is_drawn_to_scale() -> None:
    program = model(CPU)
    space = program.spaces[0]
    root = parsed(picture([program], parts=["timeline"]))
    outline = next(d for d in paths(root, "c-temp") if d.startswith(f"M{svg.PLOT_LEFT} "))
    corners = [(float(x), float(y)) for x, y in re.findall(r"H([\d.]+)V([\d.]+)", outline)]
    fixed = space.peak - space.categories["temp"]
    base = float(re.match(r"M\d+ ([\d.]+)", outline)[1])  # type: ignore[index]
    assert program.steps is not None
    assert program.steps <= timeline.COLUMNS
    left = svg.PLOT_LEFT + np.arange(program.steps) * (svg.PLOT_RIGHT - svg.PLOT_LEFT) / program.steps
    x, y = np.array(corners[:-1]).T
    height = base - y[np.searchsorted(x, left + 0.2, "right") - 1]
    scale = height.max() / (space.peak - fixed)
    assert np.abs(height - scale * (space.usage - fixed)).max() < 0.2


def test_the_peak_reaches_the_top_unless_a_line_is_above_it() -> None:
    program = model(CPU)
    (space,) = program.spaces
    assert space.peak is not None
    for reserved, share in ((space.peak, 1.0), (space.peak * 5 // 4, 0.8)):
        root = parsed(picture([replace(program, spaces=[replace(space, reserved=reserved)])], parts=["timeline"]))
        outline = next(d for d in paths(root, "c-temp") if d.startswith(f"M{svg.PLOT_LEFT} "))
        base, *heights = (float(y) for y in re.findall(r"(?:M\d+ |V)([\d.]+)", outline))
        height = share * timeline.HEIGHT * space.categories["temp"] / space.peak  # above what is always in use
        assert base - min(heights) == pytest.approx(height, abs=0.2)


def test_curve_of_many_steps_keeps_extremes() -> None:
    """Of more steps than columns, the outline of the greatest values has the peak, and that of the least its gap."""
    program = model(CPU)
    space = program.spaces[0]
    fixed = space.peak - space.categories["temp"]
    usage = np.full(100_000, (fixed + space.peak) // 2)
    usage[77_777], usage[33_333] = space.peak, fixed
    long = replace(program, steps=len(usage), spaces=[replace(space, usage=usage, first_step=77_777)])
    most, least = paths(parsed(picture([long], parts=["timeline"])), "c-temp")[:2]
    tops = [[float(y) for y in re.findall(r"V([\d.]+)", d)] for d in (most, least)]
    assert min(tops[0]) < min(tops[1])
    assert max(tops[1][:-1]) == pytest.approx(tops[1][-1], abs=0.2)
    assert len(most) < 1000


def test_rectangles_are_where_the_buffers_are() -> None:
    program = model(CPU)
    b, a, steps = program.buffers, program.allocations, program.steps
    assert steps is not None
    root = parsed(picture([program], parts=["map"]))
    titled = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
    is_arena = (a.space == 0) & (a.category == a.category_names.index("temp"))
    rows = np.flatnonzero(is_arena[b.allocation] & (b.start >= 0))
    assert 50 < len(titled) == min(len(rows), address_map.N_TITLES)
    total = a.size[is_arena].sum()
    order = np.flatnonzero(is_arena)[np.argsort(-a.size[is_arena], kind="stable")]
    base = np.zeros(len(a.size))
    base[order] = np.cumsum(a.size[order]) - a.size[order]
    wide = (svg.PLOT_RIGHT - svg.PLOT_LEFT) / steps
    (ground,) = (r for r in root.iter(f"{SVG}rect") if r.get("class") == "f-map-hole")
    lower = float(ground.get("y", "0")) + float(ground.get("height", "0"))
    high = address_map.HEIGHT / total
    top = base[b.allocation[rows]] + b.offset[rows] + b.size[rows]
    sizes = wide * (b.end[rows] + 1 - b.start[rows]), high * b.size[rows]
    drawn = (np.maximum(n - address_map.GAP, address_map.MIN_DRAWN) for n in sizes)
    expected = np.stack([svg.PLOT_LEFT + wide * b.start[rows], lower - high * top, *drawn], 1)
    for rect in titled:
        place = [float(rect.get(name, "nan")) for name in ("x", "y", "width", "height")]
        assert np.abs(expected - place).max(1).min() < 0.11, rect.attrib


def test_each_rectangle_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a title, or else in the path of its color."""
    program = model(CPU)
    boxes = address_map._boxes(program, address_map._arenas(program), svg.StepAxis(program.steps or 1), 0.0)
    for n_titles in (0, 10, len(boxes.rows)):
        monkeypatch.setattr(address_map, "N_TITLES", n_titles)
        root = parsed(picture([program], parts=["map"]))
        titled = [r for r in root.iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]
        paths = [path.get("d", "") for path in root.iter(f"{SVG}path")]
        assert (len(titled), sum(path.count("z") for path in paths)) == (n_titles, len(boxes.rows) - n_titles)


def test_buffers_beyond_their_arena_end_with_it() -> None:
    """As a damaged dump may say. Those that begin behind it have no height."""
    program = model(CPU)
    b, arenas, axis = program.buffers, address_map._arenas(program), svg.StepAxis(program.steps or 1)
    room = int(arenas.total)
    for offset in (b.offset + room // 2, b.offset + room, b.offset - room):
        boxes = address_map._boxes(replace(program, buffers=replace(b, offset=offset)), arenas, axis, 0.0)
        assert len(boxes.rows)
        assert (boxes.height >= 0).all()
        assert boxes.upper.min() >= -1e-6
        assert boxes.lower.max() <= address_map.HEIGHT + 1e-6


@pytest.mark.parametrize("x", [svg.PLOT_LEFT, svg.PLOT_LEFT + 300, svg.PLOT_RIGHT])
def test_the_label_of_a_peak_stays_inside(x: float) -> None:
    d = svg.Drawing()
    timeline._mark(d, x, 20, 40, "peak 1.00 GiB at step 5")
    (text,) = parsed(d.document(60, "peak")).iter(f"{SVG}text")
    half = svg.BOLD * svg.text_width(text.text or "") / 2
    at = float(text.get("x", "nan"))
    assert at - half >= svg.PLOT_LEFT - 0.1
    assert at + half <= svg.PLOT_RIGHT + 0.1
    assert at == pytest.approx(x, abs=0.1) or x != svg.PLOT_LEFT + 300


def test_bar_and_hatches_fill_the_width() -> None:
    program = model(CPU)
    root = parsed(picture([program], parts=["bill"]))
    bars = [r for r in root.iter(f"{SVG}rect") if r.get("height") == "30"]
    assert sum(float(r.get("width", "0")) + 1 for r in bars) == pytest.approx(svg.RIGHT - svg.LEFT, abs=4)
    for width, height, direction in ((100.0, 30.0, 1), (3.0, 30.0, -1), (40.0, 5.0, 1)):
        drawn = pictures.bill.hatch(10, 20, width, height, direction)
        points = np.array(re.findall(r"[ML]([\d.]+) ([\d.]+)", drawn), float)
        assert points[:, 0].min() >= 10
        assert points[:, 0].max() <= 10 + width
        assert points[:, 1].min() >= 20
        assert points[:, 1].max() <= 20 + height
        (x0, y0), (x1, y1) = points[0::2].T, points[1::2].T
        assert ((x1 - x0) * (y0 - y1) * direction > 0).all()  # 1 rises to the right


# -- many rectangles


def many(program: Program, n: int, seed: int = 0) -> Program:
    """The program with n random buffers in its largest arena."""
    draw = np.random.default_rng(seed)
    b, a = program.buffers, program.allocations
    arena = int(np.argmax(np.where((a.space == 0) & (a.category == a.category_names.index("temp")), a.size, -1)))
    steps, room = 100_000, int(a.size[arena])
    start = np.sort(draw.integers(0, steps, n))
    offset = draw.integers(0, room, n)
    columns: dict[str, Any] = {name: np.resize(column, n) for name, column in vars(b).items() if _is_column(column)}
    columns |= {
        "allocation": np.full(n, arena),
        "start": start,
        "end": np.minimum(start + (draw.pareto(1.0, n) * 20).astype(np.int64), steps - 1),
        "offset": offset,
        "size": np.minimum((draw.pareto(0.8, n) * 2000).astype(np.int64) + 1, room - offset),
        "phase": draw.integers(-1, 4, n),
    }
    return replace(program, steps=steps, buffers=replace(b, **columns))


def _is_column(value: object) -> bool:
    return isinstance(value, np.ndarray)


def test_a_million_buffers() -> None:
    root = check(picture([many(model(CPU), 1_000_000)], parts=["map"]))
    drawn = sum(p.get("d", "").count("M") for p in root.iter(f"{SVG}path") if "f-p-" in p.get("class", ""))
    assert 0 < drawn <= address_map.N_BOXES + cells.MAX_RUNS
    assert sum(1 for _ in root.iter(f"{SVG}rect")) < 300


@pytest.mark.parametrize("seed", range(5))
def test_cells_are_covered_as_their_rectangles_say(seed: int) -> None:
    """Against a slow count on rectangles with whole coordinates; those smaller than a cell count by their area."""
    draw = np.random.default_rng(seed)
    n, columns, rows, cell = 200, 20, 12, cells.CELL
    left, upper = draw.integers(0, columns - 1, n), draw.integers(0, rows - 1, n)
    right, lower = left + draw.integers(1, 4, n), upper + draw.integers(1, 4, n)
    right, lower = np.minimum(right, columns), np.minimum(lower, rows)
    small = draw.random(n) < 0.5
    part = np.where(small, draw.choice((0.25, 0.4), n), 1.0)
    boxes = cells.Boxes(
        np.arange(n),
        left=cell * left,
        right=np.where(small, cell * (left + part), cell * right),
        upper=cell * upper,
        lower=cell * lower,
    )
    code = draw.integers(0, 3, n)
    found = cells._covered(boxes, code, (3, rows, columns), 0, 0)
    expected = np.zeros((3, rows, columns))
    for i in range(n):
        until = left[i] + 1 if small[i] else right[i]
        expected[code[i], upper[i] : lower[i], left[i] : until] += part[i]
    assert np.allclose(found, expected)
    summed = cells.summed(boxes, code, 3, (0, 0, cell * columns, cell * rows))
    assert ((summed.right - summed.left) >= cell).all()
    painted, density = np.full((2, rows, columns), -1)
    for k in range(len(summed.item)):
        run = int(summed.upper[k] / cell), slice(int(summed.left[k] / cell), int(summed.right[k] / cell))
        painted[run], density[run] = summed.item[k], summed.density[k]
    total = expected.sum(0)
    assert ((painted >= 0) == (total >= cells.LEAST)).all()
    assert (density == np.where(painted >= 0, np.floor(3 * total.clip(0, 0.99)), -1)).all()  # less than a third, …
    most = np.take_along_axis(expected, painted.clip(0)[None], 0)[0]
    assert (most[painted >= 0] == expected.max(0)[painted >= 0]).all()


def test_a_rectangle_is_in_at_least_one_cell() -> None:
    """However its edges are rounded, and at the end of the grid."""
    low = np.array([0.5, 1.5, 2.5, 0.0, 5.9, 6.0, 1.4])
    high = np.array([1.5, 2.5, 3.5, 6.0, 6.0, 6.0, 1.6])
    first, last, part = cells._rounded(low, high, 6)
    assert first.tolist() == [0, 2, 2, 0, 5, 5, 1]
    assert last.tolist() == [2, 3, 4, 6, 6, 6, 2]
    assert np.allclose(part, [1, 1, 1, 1, 0.1, 0, 0.2])


@pytest.mark.parametrize("shape", [(2, 4, 6), (1, 5, 7), (3, 1, 1)])
def test_cells_of_twice_the_size_have_the_same_area(shape: tuple[int, int, int]) -> None:
    covered = np.random.default_rng(0).random(shape)
    halved = cells._halved(covered)
    assert halved.shape == (shape[0], (shape[1] + 1) // 2, (shape[2] + 1) // 2)
    assert np.allclose(4 * halved.sum((1, 2)), covered.sum((1, 2)))


def test_cells_grow_until_there_are_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chessboard has a run for each cell, and is evenly covered by larger cells."""
    monkeypatch.setattr(cells, "MAX_RUNS", 8)
    n, cell = 8, cells.CELL
    upper, left = np.nonzero(np.indices((n, n)).sum(0) % 2 == 0)
    boxes = cells.Boxes(left, cell * left, cell * (left + 1), cell * upper, cell * (upper + 1))
    found = cells.summed(boxes, np.zeros(len(left), np.int64), 1, (0, 0, cell * n, cell * n))
    assert found.height == 2 * cell
    assert found.upper.tolist() == [2 * cell * i for i in range(n // 2)]
    assert found.left.tolist() == [0] * (n // 2)
    assert found.right.tolist() == [cell * n] * (n // 2)
    assert found.density.tolist() == [1] * (n // 2)


def test_a_path_for_each_color_and_density_of_cells() -> None:
    item, density = np.array([4, 0, 4, 0]), np.array([1, 2, 1, 0])
    left, upper = np.array([0.0, 10, 20, 30]), np.array([0.0, 0, 5, 5])
    found = cells.Cells(item, density, left, left + 6, upper, 2.0)
    assert [*found.paths()] == [
        (0, 0.25, "M30.0 5.0h6.0v2.0h-6.0z"), (0, 1.0, "M10.0 0.0h6.0v2.0h-6.0z"),
        (4, 0.5, "M0.0 0.0h6.0v2.0h-6.0zM20.0 5.0h6.0v2.0h-6.0z"),
    ]  # fmt: skip


def test_rectangles_over_each_other_fill_a_cell_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it becomes a part of a larger cell. A third of one is no less than a third."""
    monkeypatch.setattr(cells, "MAX_RUNS", 1)
    n, cell = 4, cells.CELL
    left = np.array([0, 0, 2 * cell])
    boxes = cells.Boxes(np.arange(3), left, left + cell, np.zeros(3), np.full(3, cell))
    found = cells.summed(boxes, np.array([0, 1, 0]), 2, (0, 0, cell * n, cell * n))
    assert (found.height, found.right.tolist(), found.density.tolist()) == (2 * cell, [4 * cell], [0])
    shares = np.array([[[0.3, 1 / 3, 0.6, 2 / 3]]])
    assert cells._runs(shares, 0, 0, 4 * cell, cell).density.tolist() == [0, 1, 2]


def test_no_buffers() -> None:
    program = model(CPU)
    empty = replace(program.buffers, **{k: v[:0] for k, v in vars(program.buffers).items() if _is_column(v)})
    check(picture([replace(program, buffers=empty)]))


@pytest.mark.parametrize(("kind", "note"), [
    ("parameter 0, shape |f32[16]| at ShapeIndex {}:", "memory has no temporaries"),
    ("preallocated-temp:", "memory: one rectangle for each temporary; hatched: not in use"),
])  # fmt: skip
def test_a_map_of_nothing_says_so(kind: str, note: str, make: Callable[..., Path]) -> None:
    allocation = f"allocation 0: size 64, {kind}\n{attacks.value(0, 'a', 64)}"
    dump = xlamem.read(make(attacks.dump([], allocations=allocation, ranges=["a{}:0-3"])))
    shown = texts(check(picture([program_model(dump)])))
    assert shown[shown.index("Address map") + 1] == note


def test_names_are_taken_from_few_buffers() -> None:
    """A name of a megabyte does not make the picture large."""
    program = model(CPU)
    names = pa.array(["x" * 100_000] * len(program.buffers.op_name_names))
    check(picture([replace(program, name="y" * 1_000_000, buffers=replace(program.buffers, op_name_names=names))]))


def test_small_rectangles_are_drawn_as_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the largest ones are drawn on their own."""
    monkeypatch.setattr(address_map, "N_BOXES", 10)
    root = check(picture([many(model(CPU), 100_000)], parts=["map"]))
    drawn = sum(len(re.findall(r"M[\d.]+ [\d.]+h", p.get("d", ""))) for p in root.iter(f"{SVG}path"))
    assert 20 < drawn <= 10 + cells.MAX_RUNS


# -- texts and axes


@pytest.mark.parametrize(
    ("reserved", "available", "lines"),
    [
        (104, None, []), (105, None, ["reserved 105 B"]), (300, None, ["reserved 300 B"]), (301, None, []),
        (100, 80, ["available 80 B"]), (100, 300, ["available 300 B"]), (100, 301, []), (100, 0, []),
        (200, 600, ["reserved 200 B", "available 600 B"]), (200, 601, ["reserved 200 B"]),
    ],
)  # fmt: skip
def test_lines_above_the_peak(
    reserved: int, available: int | None, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a peak of 100 bytes: where little more is reserved or available."""
    monkeypatch.setattr(timeline, "MAX_HEADROOM", 3)
    space: Any = SimpleNamespace(peak=100, reserved=reserved, in_device_memory=True)
    device: Any = None if available is None else SimpleNamespace(available=available)
    assert [text for _, _, text in timeline._lines(space, device)] == lines
    space.in_device_memory = False
    assert [text for _, _, text in timeline._lines(space, device)] == [t for t in lines if "reserved" in t]


def test_a_long_legend_has_several_lines() -> None:
    labels = [f"a long name of color {i}" for i in range(20)]
    d = svg.Drawing()
    end = svg.legend(d, 10, [("c-temp", label) for label in labels])
    found = list(check(d.document(end, "legend")).iter(f"{SVG}text"))
    assert [t.text for t in found] == labels
    left = [float(t.get("x", "")) for t in found]
    lines = sorted({float(t.get("y", "")) for t in found})
    assert len(lines) == 1 + sum(a > b for a, b in pairwise(left))  # each begins on the left
    assert end - lines[-1] == svg.legend(svg.Drawing(), 10, [("c-temp", "a")]) - lines[0]
    assert all(x + svg.text_width(label, svg.SMALL) <= svg.RIGHT for x, label in zip(left, labels, strict=True))


def test_a_legend_begins_where_it_is() -> None:
    """Even if its first label is wider than the picture."""
    ends = {svg.legend(svg.Drawing(), 10, [("c-temp", label)]) for label in ("a", "a" * 300)}
    assert len(ends) == 1


def test_labels_of_steps_stay_inside() -> None:
    """That of the last step, too."""
    d = svg.Drawing()
    svg.StepAxis(10_001).draw(d, 10)
    found = [(t.text or "", float(t.get("x", "nan"))) for t in parsed(d.document(40, "axis")).iter(f"{SVG}text")]
    assert found[-1][0] == "10,000"
    assert all(x + svg.text_width(text, svg.SMALL) / 2 <= svg.PLOT_RIGHT + 0.1 for text, x in found)


@pytest.mark.parametrize("top", [1, 7, 1000, 4096, 5 << 20, (3 << 30) + 1, 1 << 40])
def test_byte_ticks(top: int) -> None:
    ticks = svg.byte_ticks(top, 5)
    assert ticks[0] == 0
    assert ticks[-1] <= top
    assert 2 <= len(ticks) <= 6
    step = ticks[1]
    assert step & (step - 1) == 0


def test_tick_sizes() -> None:
    sizes = (0, 512, 1536, 999 << 10, 1_023_693, 1008 << 10, 5 << 28, 1 << 40, 1 << 71)
    expected = ["0", "512 B", "1.5 KiB", "999 KiB", "1000 KiB", "1008 KiB", "1.25 GiB", "1 TiB", "2048 EiB"]
    assert [svg.tick_size(n) for n in sizes] == expected


@pytest.mark.parametrize("steps", [1, 2, 9, 374, 21_236, 10_000_000])
def test_step_ticks(steps: int) -> None:
    ticks = svg.step_ticks(steps, 8)
    assert ticks[0] == 0
    assert ticks[-1] < steps
    assert len(ticks) <= 9
    assert len(ticks) >= 4 or steps < 9


def test_widths_of_characters() -> None:
    widths = [svg.text_width(character) for character in "ieM漢"]
    assert widths == sorted(set(widths))
    assert len({svg.text_width(character, mono=True) for character in "ieM"}) == 1


def test_texts_fit() -> None:
    for text in ("a" * 50, "MMMM", "漢字" * 30, "x" * 100_000, "\u202e\0"):
        fitted = svg.fitted(text, 120, svg.cut_off)
        assert svg.text_width(fitted) <= 120
    assert svg.fitted("long enough", 10, svg.cut_off) == ""
    lines = svg.wrapped("one two three " * 20, 200)
    assert all(svg.text_width(line) <= 200 for line in lines)
    assert " ".join(lines) == ("one two three " * 20).strip()
    assert svg.wrapped(f"{'M' * 50}  {'W' * 50}  three", 200) == ["M" * 50, "W" * 50, "three"]


def test_texts_that_just_fit() -> None:
    """A shortened text has at least six characters."""
    assert [svg.cut_off("abc def", n) for n in (4, 5, 6, 7)] == ["abc…", "abc…", "abc d…", "abc def"]
    for n, shown in ((5, ""), (6, "abcde…"), (7, "abcdef…"), (10, "abcdefghij")):
        room = svg.text_width("x" * n, mono=True)
        assert svg.fitted("abcdefghij", room + 0.001, svg.cut_off, mono=True) == shown
    room = svg.text_width("one two")
    assert svg.wrapped("one two one two", room) == ["one two", "one two"]
    assert svg.wrapped("one two", room - 0.01) == ["one", "two"]


# -- colors


def test_colors_are_those_of_the_page() -> None:
    css = "".join((SCRIPT / "styles" / name).read_text() for name in ("base.css", "views.css"))
    for name, (light, dark) in colors.COLORS.items():
        values = re.findall(rf"--{name}: (#[0-9a-f]+);", css)
        assert set(values) == {light, dark}, name


# -- in a browser

BOXES = """() => [...document.querySelectorAll('body > svg')].map(
  picture => [...picture.querySelectorAll('text:not([aria-hidden])')].map(t => {
    const b = t.getBBox(); return [t.textContent, b.x, b.y, b.x + b.width, b.y + b.height]; }))"""


@pytest.mark.parametrize("dark", every(2, [False, True]))
def test_texts_neither_overlap_nor_leave_the_picture(
    dark: bool, window: Callable[..., Any], tmp_path: Path
) -> None:
    drawn = [picture([model_of(source)]) for source in STORED]
    (tmp_path / "all.html").write_text("<!doctype html><meta charset=utf-8>" + "".join(drawn))
    page = window(900, 1400, dark=dark).page
    page.goto((tmp_path / "all.html").as_uri())
    for text, boxes in zip(drawn, page.evaluate(BOXES), strict=True):
        width, height = (float(v) for v in re.search(r'viewBox="0 0 (\S+) (\S+)"', text).groups())  # type: ignore[union-attr]
        assert boxes
        for j, (name, x0, y0, x1, y1) in enumerate(boxes):
            assert x0 >= 0, name
            assert y0 >= 0, name
            assert x1 <= width, name
            assert y1 <= height, name
            for other, u0, v0, u1, v1 in boxes[:j]:  # lines of text may touch
                assert min(x1, u1) - max(x0, u0) <= 0.5 or min(y1, v1) - max(y0, v0) <= 3, (name, other)


GROUND = "() => [...document.querySelectorAll('svg > rect:first-of-type')].map(e => getComputedStyle(e).fill)"


def test_colors_follow_system_and_notebook(window: Callable[..., Any], tmp_path: Path) -> None:
    """Pictures in one document follow their own surroundings."""
    drawn = picture([model(TPU)])
    jupyter = [f"data-jp-theme-light='{light}'" for light in ("true", "false")]
    places = ["", *jupyter, "class='vscode-light'", "class='vscode-dark'"]
    path = tmp_path / "notebook.html"
    path.write_text("<!doctype html>" + "".join(f"<div {place}><div>{drawn}</div></div>" for place in places))
    light, dark = "rgb(251, 251, 250)", "rgb(18, 20, 23)"
    page = window().page
    page.goto(path.as_uri())
    assert page.evaluate(GROUND) == [light, light, dark, light, dark]
    page = window(dark=True).page
    page.goto(path.as_uri())
    assert page.evaluate(GROUND) == [dark, light, dark, light, dark]
