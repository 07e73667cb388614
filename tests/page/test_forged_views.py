"""Views of the page on small programs made by hand, each alone in a window of the browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Window, number, settle
from by_hand import Json, program
from node import SCRIPT, bundled

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest_plugins = "chromium"

PROGRAM = """
import { buffersView } from "./buffers/buffers.js";
import { detailView } from "./buffers/detail.js";
import { scopesView } from "./buffers/scopes.js";
import { Aligned } from "./comparison/aligned.js";
import { directoryView } from "./comparison/directory.js";
import { Partners, TwoMaps } from "./comparison/two_maps.js";
import { waterfall } from "./comparison/waterfall.js";
import { initial } from "./data/address.js";
import { Store } from "./data/store.js";
import { Warp } from "./data/warp.js";
import { mapView } from "./map/map.js";
import { h } from "./parts/dom.js";
import { listenToKeys } from "./parts/keys.js";
import { addPointerLine } from "./parts/pointer.js";
import { Tooltip } from "./parts/tooltip.js";
import { VirtualRows } from "./parts/virtual_rows.js";
import { adviceView } from "./program/advice.js";
import { billView } from "./program/bill.js";
import { diagnosticsView } from "./program/diagnostics.js";
import { explainView } from "./program/explain.js";
import { verdictView } from "./program/verdict.js";
import { timelineView } from "./time/timeline.js";

const views = { buffersView, detailView, mapView, scopesView, timelineView };
const plainViews = { adviceView, billView, diagnosticsView, explainView, verdictView };
const host = document.getElementById("host");
/** Texts drawn since they were taken, each with its place. */
const texts = [];
const { fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
  texts.push([text, x, x + this.measureText(text).width, y]);
  fillText.call(this, text, x, y);
};
let page;
const pageOf = (programs, state) => {
  const store = new Store({ ...initial(0, programs[0]?.model), colorBy: "category", ...state });
  return (page = { report: { programs: programs.map(({ model }) => model) }, programs, store });
};
Object.assign(globalThis, {
  clear: () => host.replaceChildren(),
  taken: () => texts.splice(0),
  state: (name) => page.store.state[name],
  set: (change) => page.store.set(change),
  draw([name, data, state]) {
    const drawn = pageOf([data], state);
    if (views[name]) views[name](host, data, drawn);
    else plainViews[name](host, data.model, drawn);
  },
  listen: () => listenToKeys(page.store, () => page.programs[0]),
  followPointer: () => addPointerLine(host, [host.querySelector(".map-frame")], page.programs[0], page.store),
  drawTooltip: ([x, y]) => new Tooltip(document.body).show(x, y, "a note"),
  drawRows: ([n, row]) => {
    const scroller = h("div", { class: "grid" });
    scroller.style.height = "300px";
    const rows = new VirtualRows(scroller, 0, 28, (row) => h("div", { class: "row" }, String(row)));
    scroller.append(rows.body);
    host.append(scroller);
    rows.show(n);
    rows.reveal(row);
  },
  drawWaterfall: (data) => host.append(waterfall(data, "must fit", null)),
  drawAligned([data, steps, series]) {
    const [a, b] = [data.a.model.steps, data.b.model.steps];
    new Aligned(host, data, new Warp(steps, { a, b }), () => undefined).show(series);
  },
  drawMaps([a, b, ofA, ofB]) {
    const maps = new TwoMaps(host, { a, b }, pageOf([a, b]), new Partners({ a, b }, ofA, ofB));
    maps.show("hbm", { a: [0], b: [0] });
    globalThis.highlight = (chosen) => maps.highlight(chosen);
    globalThis.point = (pointed) => maps.point(pointed);
  },
  drawDirectory: (directory) => directoryView(host, { programs: [], directory }, pageOf([], { program: -1 })),
});
"""
KIB = 1024
SPACE: Json = {"memory_space": "hbm", "page": 0, "first_step": 0, "peak": 0, "reserved": 0, "plateaus": [],
               "categories": {}, "in_device_memory": True}  # fmt: skip

Draw = Callable[..., "Page"]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page without views."""
    folder = tmp_path_factory.mktemp("views")
    script = bundled(PROGRAM, folder, head="").read_text("utf-8")
    style = (SCRIPT.parent / "page.css").read_text("utf-8")
    path = folder / "views.html"
    body = '<main><div id="host" style="width: 800px; position: relative"></div></main>'
    page = f'<!doctype html><meta charset="utf-8"><style>{style}</style>{body}<script type="module">{script}</script>'
    path.write_text(page, "utf-8")
    return path


@pytest.fixture
def draw(empty: Path, window: Callable[..., Window]) -> Draw:
    """Return a function that draws something alone into a page, 800 pixels wide: ``draw("drawRows", 100, 20)``."""

    page = window().page
    page.goto(empty.as_uri())

    def draw(function: str, *given: Any) -> Page:
        page.evaluate(f"given => {{ clear(); {function}(given.length > 1 ? given : given[0]) }}", given)
        settle(page)
        settle(page)  # sizes are observed
        return page

    return draw


def made(
    n: int, steps: int = 10, *, spaces: list[Json] | None = None, model: Json | None = None, **columns: Any
) -> Json:
    """Return a program of n buffers with everything that views need."""
    spaces = [SPACE | space for space in spaces or [{}]]
    known = {"steps": steps, "spaces": spaces, "folded": [], "scopes": {}, "verdict": {"device": None}, **(model or {})}
    columns = {
        "usage": [[0] * steps] * len(spaces), "phases": {"names": [], "phase": [], "first": [], "last": []},
        "schedule": [], "uses": {"begin": [0] * (n + 1)}, "aliases": {"begin": [0] * (n + 1)},
    } | columns  # fmt: skip
    return program(n, model=known, **columns)


def box_of(found: Locator) -> tuple[float, float, float, float]:
    """Left, top, right and bottom."""
    box = found.bounding_box()
    assert box
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


def drag(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=2)
    page.mouse.up()
    settle(page)


def wheel(page: Page, x: float, y: float, by: tuple[float, float], *, key: str = "") -> None:
    """Turn the wheel at a point, and wait until the page has done what it does."""
    page.mouse.move(x, y)
    if key:
        page.keyboard.down(key)
    page.evaluate("() => { window.turned = 0; addEventListener('wheel', () => { window.turned = 1 }, { once: true }) }")
    page.mouse.wheel(*by)
    page.wait_for_function("() => window.turned")
    if key:
        page.keyboard.up(key)
    settle(page)


def state(page: Page, name: str) -> Any:
    return page.evaluate("name => state(name)", name)


# -- time ----------------------------------------------------------------------------------------


def test_the_timeline_of_a_memory_space(draw: Draw) -> None:
    """Only device memory has a capacity. What is almost the peak is not said to be all of it. All steps have a line."""
    plateaus = [{"first_step": step, "last_step": step, "bytes": 500} for step in (20, 55)]
    host = {"memory_space": "host", "peak": 500, "reserved": 500, "plateaus": plateaus, "in_device_memory": False}
    model = {"verdict": {"device": {"name": "v5e", "available": 600}}}
    data = made(0, 100, spaces=[{"peak": 1_000_000}, host], model=model, usage=[[999_999] * 100, [500] * 100])
    page = draw("draw", "timelineView", data, {})
    assert page.locator(".status").inner_text() == "Step 0 of 99: 976.56 KiB in use, 1 B below the peak"
    assert page.locator(".space canvas").first.evaluate("it => it.getContext('2d').getImageData(60, 10, 1, 1).data[3]")
    page.evaluate("() => { taken(); set({ space: 1, range: [50, 59] }) }")
    settle(page)
    drawn = [text for text, *_ in page.evaluate("() => taken()")]
    assert [text for text in drawn if text.startswith("available")] == []
    labels = {int(text) for text in drawn if text.isdigit()} - {0}
    assert labels
    assert labels <= {*range(50, 60)}
    page.get_by_role("button", name="Next plateau").click()
    assert state(page, "step") == 20
    page.evaluate("() => set({ range: [0, 99] })")
    settle(page)
    area = page.locator(".plot canvas").evaluate("""canvas => Array.from(
        canvas.getContext("2d").getImageData(76, canvas.height - 33, 712, 1).data).filter((_, i) => i % 4 === 3)""")
    assert all(area[5:-5])


def test_gestures_in_the_timeline(draw: Draw) -> None:
    page = draw("draw", "timelineView", made(0, 100), {})
    left, top, right, _ = box_of(page.locator(".u-over"))
    y, width = top + 50, right - left
    drag(page, (left + width / 2, y), (right + 10, y))
    assert state(page, "range") == [50, 99]
    page.evaluate("() => set({ range: [0, 99] })")
    settle(page)
    drag(page, (left + 0.605 * width, y), (left + 0.405 * width, y))
    assert state(page, "range") == [40, 60]
    page.mouse.move(left + 10, y)
    page.mouse.down()
    page.locator(".u-over").dispatch_event("pointercancel")
    page.mouse.up()
    assert (state(page, "range"), state(page, "step")) == ([40, 60], 0)
    wheel(page, left + 100, y, (-400, 0))
    assert state(page, "range")[0] < 40
    page.evaluate("() => set({ range: [40, 60] })")
    page.locator(".u-over").evaluate(TOUCHES)
    page.evaluate("() => drag()")
    first, last = state(page, "range")
    assert first > 40
    assert last - first == 20


# -- the address map -----------------------------------------------------------------------------


def mapped() -> Json:
    """Return a program whose map has an argument below four buffers, each of 52 pixels."""
    table = {"allocation": [0, 1, 2], "space": [0, 0, 1], "size": [64 * KIB, 64 * KIB, 256 * KIB],
             "category": [0, 1, 1], "categoryNames": ["parameter", "temp"],
             "label": ["w", "arena", "other"]}  # fmt: skip
    return made(
        5, 100, spaces=[{}, {"memory_space": "vmem"}], allocations=table, allocation=[0, 1, 1, 1, 1],
        offset=[0, *(16 * KIB * i for i in range(4))], size=[64 * KIB, *[16 * KIB] * 4], end=[99] * 5,
        category=[0, 1, 1, 1, 1], categoryNames=["parameter", "temp"], kindNames=["activation", "gradient"],
        kind=[-1, 0, 0, 1, 1],
    )  # fmt: skip


def picked(page: Page, x: float, y: float) -> str:
    """The buffer that a click at a point selects."""
    page.mouse.click(x, y)
    settle(page)
    return f"i{state(page, 'buffer')}"


def visible(page: Page) -> str:
    return page.locator(".zoomed span").inner_text()


def test_what_the_pointer_is_at_in_the_map(draw: Draw) -> None:
    """Zooming and moving keep it there."""
    page = draw("draw", "mapView", mapped(), {})
    x, y, *_ = box_of(page.locator(".map-frame"))
    assert picked(page, x + 400, y + 54) == "i3"  # just below i4
    drag(page, (x + 200, y + 110), (x + 400, y + 150))
    assert picked(page, x + 400, y + 210) == "i2"
    page.mouse.dblclick(x + 400, y + 210)
    settle(page)
    assert visible(page) == ""
    wheel(page, x + 400, y + 74, (0, -400), key="Alt")
    assert visible(page).endswith("of 128.00 KiB")
    assert picked(page, x + 400, y + 74) == "i3"
    page.mouse.dblclick(x + 400, y + 210)
    wheel(page, x + 400, y + 130, (0, -400), key="Alt")
    drag(page, (x + 400, y + 130), (x + 400, y + 230))
    assert picked(page, x + 400, y + 230) == "i2"
    page.evaluate("() => set({ space: 1 })")
    settle(page)
    assert visible(page) == ""


def test_allocations_are_shown_alone_by_a_click_on_their_names(draw: Draw) -> None:
    page = draw("draw", "mapView", mapped(), {})
    x, y, *_ = box_of(page.locator(".map-frame"))
    for wanted in ("64.00 KiB of 128.00 KiB", ""):
        page.mouse.click(x + 30, y + 100)
        settle(page)
        assert visible(page) == wanted


def test_notes_beside_the_pointer(draw: Draw) -> None:
    page = draw("draw", "mapView", mapped(), {})
    page.evaluate("() => followPointer()")
    x, y, right, _ = box_of(page.locator(".map-frame"))
    tooltip = page.locator(".tooltip")
    for at in (x + 90, right - 20):
        page.mouse.move(at, y + 20)
        settle(page)
        assert tooltip.is_visible()
        label = box_of(page.locator(".pointer-label"))
        assert x <= label[0]
        assert label[2] <= right
    page.mouse.move(right + 50, y + 20)
    settle(page)
    assert not tooltip.is_visible()
    assert "steps 0 to 99 (100 steps)" in str(tooltip.text_content())
    page = draw("drawTooltip", 1270, 795)
    left, top, right, bottom = box_of(page.locator(".tooltip").last)
    assert 700 < top < bottom < 795
    assert 1100 < left < right < 1270


TOUCHES = """area => {
    Element.prototype.setPointerCapture = () => undefined; // which pointers of scripts do not have
    const { left, top } = area.getBoundingClientRect();
    window.touch = (type, pointerId, x) => area.dispatchEvent(new PointerEvent(`pointer${type}`,
        { pointerId, pointerType: "touch", clientX: left + x, clientY: top + 50, bubbles: true }));
    window.drag = () => { touch("down", 9, 500); touch("move", 9, 450); touch("move", 9, 300); touch("up", 9, 300) };
    window.isPrevented = () => !area.dispatchEvent(new WheelEvent("wheel",
        { deltaY: 100, ctrlKey: true, clientX: left + 400, clientY: top + 50, cancelable: true }));
}"""


def test_fingers_and_the_wheel_on_the_map(draw: Draw) -> None:
    """Fingers zoom; two that touch, and one that is cancelled, do not click."""
    page = draw("draw", "mapView", mapped(), {})
    page.locator(".map-frame").evaluate(TOUCHES)
    page.evaluate("() => drag()")
    assert state(page, "range") == [0, 99]
    page.evaluate("""() => { touch("down", 7, 400); touch("cancel", 7, 400);
        touch("down", 7, 400); touch("down", 8, 500); touch("up", 7, 400); touch("up", 8, 500) }""")
    assert (state(page, "step"), state(page, "buffer")) == (0, -1)
    page.evaluate("""() => { touch("down", 7, 400); touch("down", 8, 500); touch("move", 8, 600);
        touch("up", 7, 400); touch("up", 8, 600) }""")
    first, last = state(page, "range")
    assert first > 0
    assert last + 1 - first == 50
    assert page.evaluate("() => isPrevented()")  # the browser would zoom the page


def test_the_legend_highlights_one_colour(draw: Draw) -> None:
    page = draw("draw", "mapView", mapped(), {})
    page.locator(".legend button").first.click()
    settle(page)
    pressed = page.locator(".legend [aria-pressed=true]")
    assert pressed.count() == 1
    assert pressed.evaluate("element => element === document.activeElement")
    page.evaluate("() => listen()")
    page.keyboard.press("c")  # nothing is known of phases and layers
    settle(page)
    assert page.get_by_role("button", name="Kind").get_attribute("aria-pressed") == "true"
    assert page.locator(".legend button").count() == 3
    assert pressed.count() == 0
    assert colors(page, ".legend .swatch") == colors_of(page, "--k-4", "--k-3", "--p-unknown")


def colors(page: Page, selector: str) -> list[str]:
    found: list[str] = page.locator(selector).evaluate_all(
        "elements => elements.map(element => getComputedStyle(element).backgroundColor)")  # fmt: skip
    return found


def colors_of(page: Page, *variables: str) -> list[str]:
    """What variables of the theme look like."""
    page.evaluate("""variables => document.body.append(...variables.map(variable => {
        const element = Object.assign(document.createElement("div"), { className: "sample" });
        element.style.backgroundColor = `var(${variable})`;
        return element;
    }))""", variables)  # fmt: skip
    return colors(page, ".sample")


def test_the_legend_of_many_layers(draw: Draw) -> None:
    """One strip, from the first colour of the scale to its last one. The arrow keys move in it."""
    data = made(14, layerIndex=[*range(14)])
    page = draw("draw", "mapView", data, {"colorBy": "layer"})
    swatches = colors(page, ".strip .swatch")
    assert [swatches[0], swatches[-1]] == colors_of(page, "--layer-1", "--layer-5")
    buttons = page.locator(".strip button")
    buttons.first.focus()
    page.keyboard.press("ArrowRight")
    assert buttons.nth(1).evaluate("element => element === document.activeElement")


def test_names_in_the_zoomed_map_are_where_it_is(draw: Draw) -> None:
    page = draw("draw", "mapView", mapped(), {})
    page.evaluate("() => { taken(); set({ range: [50, 59] }) }")
    settle(page)
    names = [left for text, left, *_ in page.evaluate("() => taken()") if text.startswith("i")]
    assert names
    assert all(left > 76 for left in names)


# -- buffers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "row"), [(100, 30), (1_000_000, 999_999)])
def test_a_row_that_is_revealed_is_visible(draw: Draw, n: int, row: int) -> None:
    """Also in a list that is higher than browsers scroll."""
    page = draw("drawRows", n, row)
    _, top, _, bottom = box_of(page.locator(".grid"))
    _, above, _, below = box_of(page.locator(".row").get_by_text(str(row), exact=True))
    assert top <= above < below <= bottom + 2


def test_the_table_of_buffers_is_ordered_by_names(draw: Draw) -> None:
    """Names ascend at first. A life of one step of ten is a tenth of its bar."""
    page = draw("draw", "buffersView", made(3, size=[1, 3, 2]), {})
    rows = page.locator("[role=row]:has([role=gridcell])")
    names = [text.split()[2] for text in rows.all_inner_texts()]
    assert names == ["i1", "i2", "i0"]
    page.get_by_role("button", name="Name").click()
    settle(page)
    assert [text.split()[2] for text in rows.all_inner_texts()] == ["i0", "i1", "i2"]
    assert rows.first.locator(".track .life").evaluate("element => element.style.width") == "10%"


def test_keys_and_filters_of_the_table(draw: Draw) -> None:
    """Keys go on from the selected row in any order; each filter can be removed, and bytes that match are first."""
    table = {"allocation": [0, 1], "space": [0, 0], "size": [1000, 50], "category": [0, 1],
             "categoryNames": ["temp", "constant"], "label": ["arena", "fixed"]}  # fmt: skip
    data = made(
        40, allocations=table, size=[*range(1, 10), *[9] * 31], offset=[*range(0, 400, 10)], scope=[1] * 40,
        scopes={"name": ["", "net"], "parent": [-1, 0]}, source=[0] * 40, sourceNames=["/a/b/c.py:7"], saving=[-1] * 40,
    )  # fmt: skip
    page = draw("draw", "buffersView", data, {})
    assert page.get_by_text("always", exact=True).count() == 1
    assert page.locator(".row .source").nth(1).text_content() == "c.py:7"
    page.evaluate("() => set({ buffer: 3 })")
    settle(page)
    page.get_by_role("button", name="Name").click()
    page.locator("[role=grid]").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert state(page, "buffer") == 30  # i3, i30
    page.keyboard.press("Home")
    page.keyboard.press("PageDown")
    page.keyboard.press("Enter")
    assert state(page, "buffer") not in (0, 1)
    page.evaluate("() => set({ scope: 1, query: 'i12' })")
    settle(page)
    assert page.locator(".summary").inner_text().startswith("1 of 41 buffers, 9 B of 374 B in use at step 0")
    page.locator(".filter", has_text="i12").click()
    assert (state(page, "scope"), state(page, "query")) == (1, "")


def test_the_detail_of_a_buffer(draw: Draw) -> None:
    """What reads it last keeps it alive; its bar has the peak of its own space; of many uses, 500 are listed."""
    uses = {"begin": [0, 600], "instruction": [0] * 600, "step": [*[4] * 599, 5]}
    spaces = [{"first_step": 1}, {"first_step": 8}]
    aliases = {"begin": [0, 1], "instruction": [0], "shapeIndex": [0], "indexNames": ["{}"]}
    kept = made(1, aliases=aliases, end=[9])
    kept["uses"] = {"begin": [0, 1], "instruction": [0], "step": [4]}
    page = draw("draw", "detailView", kept, {"buffer": 0})
    assert page.get_by_label("Live from step 0 to 9 of 9, read 1 time", exact=True).count() == 1
    text = page.locator(".detail").inner_text()
    assert "Live to the end" in text
    assert "{}" not in text
    data = made(1, spaces=spaces, allocations={"space": [1]}, uses=uses, end=[5])
    page = draw("draw", "detailView", data, {"buffer": 0})
    assert "at step 5" in page.locator("dl").inner_text()
    assert "kept until" not in page.locator("dl").inner_text()
    assert page.locator(".life-scale .peak").evaluate("element => element.style.left") == "85%"
    page.get_by_role("button", name="594 more").click()
    assert page.locator(".detail-list li").count() == 501
    assert page.locator(".detail-list li").last.inner_text() == "and 100 more"
    left, top, right, _ = box_of(page.locator(".life-bar"))
    page.mouse.click(left + 0.97 * (right - left), top + 5)
    assert state(page, "step") == 9


def test_scopes_of_buffers(draw: Draw) -> None:
    """The arrows lead to what lies below; the innermost scope that is shown is that of the selected buffer."""
    scopes = {"name": ["", "x", "x1", "x2", "y", "y1", "y2", "t", "u", "v"],
              "parent": [-1, 0, 1, 1, 0, 4, 4, 2, 7, 8]}  # fmt: skip
    data = made(
        5, scopes=scopes, scope=[2, 3, 5, 6, 9], size=[199, 200, 200, 200, 1], allocations={"size": [1000]},
        offset=[0, 200, 400, 600, 800], phaseNames=["forward", "backward"], phase=[0, 1, 0, 1, 0],
    )  # fmt: skip
    page = draw("draw", "scopesView", data, {"buffer": 4, "scope": 1, "step": 0})
    page.evaluate("() => listen()")
    assert page.locator(".block.selected .name").all_inner_texts() == ["x1"]
    page.evaluate("() => set({ scope: 3 })")
    settle(page)
    page.locator(".crumbs button", has_text="x").click()
    assert state(page, "scope") == 1
    settle(page)
    phases = page.locator(".block .phases").first.evaluate("element => element.style.backgroundImage")
    assert " 50% 100%" in phases
    page.keyboard.press("Escape")
    settle(page)
    assert (state(page, "buffer"), state(page, "scope")) == (-1, 1)
    page.keyboard.press("Escape")
    settle(page)
    assert state(page, "scope") == 0
    page.locator(".block", has_text="y").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.innerText").startswith("y1")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("() => document.activeElement.innerText").startswith("y2")
    assert state(page, "step") == 0


# -- texts and bars of a program -----------------------------------------------------------------


def test_too_little_memory_is_marked_in_the_verdict(draw: Draw) -> None:
    device = {"name": "v5e", "available": 50, "capacity": 80, "note": ""}
    verdict = {"must_fit": 100, "terms": [], "fits": False, "headline": "", "decided_by": [], "first_step": "",
               "reason": "", "device": device}  # fmt: skip
    page = draw("draw", "verdictView", made(0, model={"verdict": verdict, "problems": []}), {})
    assert page.locator(".available-mark").evaluate("element => element.style.left") == "50%"


def test_advice_that_could_do_harm(draw: Draw) -> None:
    advice = {"lower": -10, "upper": 10, "action": "", "kind": "", "confidence": "", "subject": "", "source": "",
              "buffer": -1}  # fmt: skip
    page = draw("draw", "adviceView", made(0, model={"advice": [advice]}), {})
    assert page.locator(".advice-bytes").inner_text().startswith("up to 10 B")
    assert page.locator(".possible").evaluate("element => element.style.width") == "100%"


def test_a_bill_of_a_page_of_memory(draw: Draw) -> None:
    """Its step is that of this page. The largest parts of a line are first."""
    parts = [{"label": f"p{n}", "bytes": n, "note": ""} for n in (20, 30, 10)]
    line = {"line": "outputs", "label": "outputs", "bytes": 60, "in_use": True, "note": "", "parts": parts}
    bill = [{"account": "hbm", "page": 1, "step": 7, "total": 60, "in_use": 60, "lines": [line]}]
    page = draw("draw", "billView", made(0, spaces=[{}, {"page": 1}], model={"bill": bill}), {})
    page.locator(".opener").click()
    assert [text.split()[0] for text in page.locator(".part").all_inner_texts()] == ["p30", "p20", "p10"]
    page.locator(".bill-step button").click()
    assert (state(page, "space"), state(page, "step")) == (1, 7)


def test_numbers_that_are_0(draw: Draw) -> None:
    published: Json = {"name": "peak", "memory_space": None, "bytes": 10, "difference": 0, "step": None,
                       "definition": "", "basis": "", "causes": []}  # fmt: skip
    spaces = [{**published, "memory_space": space} for space in ("hbm", "vmem")]
    page = draw("draw", "explainView", made(0, model={"explain": [published, *spaces]}), {})
    assert page.locator(".explain-table tbody td").nth(1).inner_text() == "same"
    opened = page.locator(".opener").evaluate_all("all => all.map(opener => opener.ariaExpanded)")
    assert opened == ["true", "true", "false"]
    problem = {"severity": "error", "code": "x", "file": "f", "line": None, "offset": 0, "wanted": "y", "excerpt": ""}
    page = draw("draw", "diagnosticsView", made(0, model={"diagnostics": [problem], "n_diagnostics": 1}), {})
    assert page.locator(".diagnostics .muted").inner_text() == "f, byte 0"
    assert page.get_by_text("1 diagnostic.", exact=True).count() == 1


# -- two programs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "changes", "begins"),
    [(1000, [100, -50, 0], 975), (1000, [-100, 90], 875), (100, [100, -150, 20], 0)],
    ids=["cut", "cut below", "whole"],
)  # fmt: skip
def test_bars_of_a_waterfall(draw: Draw, a: int, changes: list[int], begins: int) -> None:
    """The axis of small changes does not begin at 0. All bars are within it."""
    rows = [{"label": f"r{n}", "detail": "", "mark": "", "change": n, "n": 0, "source": ""} for n in changes]
    page = draw("drawWaterfall", {"a": a, "b": a + sum(changes), "rows": rows})
    notes = page.locator(".note").all_inner_texts()
    assert [f"begins at {begins} B" in note for note in notes] == ([True] if begins else [])
    kinds = page.locator("tbody tr").evaluate_all("rows => rows.map(row => row.className)")
    assert kinds == ["total", *("up" if n > 0 else "down" if n < 0 else "same" for n in changes), "total"]
    ends = [page.locator("tr.total .lead").nth(i).get_attribute("y1") for i in range(2)]
    assert ends == ["78%", "0"]
    bars = page.locator(".bar > rect").evaluate_all("""bars => bars.map(
        bar => [parseFloat(bar.getAttribute("x")), parseFloat(bar.getAttribute("width"))])""")
    assert all(0 <= x < x + width <= 100 for x, width in bars)


def aligned() -> Json:
    """Return A of 200 steps and B of 241, whose steps 10 and 101 to 140 are its own; the peaks are at 30 and 238."""
    usage: Json = {"a": [10] * 200, "b": [10] * 241}
    usage["a"][30], usage["b"][238] = 100, 50
    steps = [*range(10), *range(11, 101), *range(141, 241)]
    data = {side: made(0, len(values)) for side, values in usage.items()}
    series = {"a": {"usage": usage["a"], "peak": 30}, "b": {"usage": usage["b"], "peak": 238}}
    return {"data": data, "steps": {"a": [*range(200)], "b": steps}, "series": series}


def test_two_timelines_are_moved_together(draw: Draw) -> None:
    page = draw("drawAligned", *aligned().values())
    words = page.locator(".status").all
    left, top, right, _ = box_of(page.locator(".aligned-area"))
    y, width = top + 100, right - left - 88

    def steps() -> list[int]:
        return [number(re.findall(r"step ([\d,]+)", found.inner_text())[0]) for found in words()]

    assert steps() == [30, 31]  # the higher peak
    page.mouse.move(left + 76 + 0.75 * width, y)
    before = steps()
    wheel(page, left + 76 + 0.75 * width, y, (0, -400))
    page.mouse.move(left + 77 + 0.75 * width, y)
    assert steps() == pytest.approx(before, abs=1)
    page.mouse.move(left + 900, y)
    settle(page)
    assert steps() == [30, 31]
    wheel(page, left + 300, y, (9000, 0))
    page.mouse.move(left + 90, y)
    assert steps()[1] < 200
    page.locator(".aligned-area").focus()
    for key in "a++ba":
        page.keyboard.press(key)
    assert box_of(page.locator(".cursor"))[0] == pytest.approx(left + 76 + width / 2, abs=30)


def test_plots_of_two_timelines(draw: Draw) -> None:
    """Steps without a match are marked on their side, and gaps hatched on the other unless they are very narrow."""
    page = draw("drawAligned", *aligned().values())
    ends = page.evaluate("""() => Array.from(document.querySelectorAll(".aligned-plot"), canvas => {
        const { width, height } = canvas;
        const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
        const left = (u) => 4 * Math.round(76 + (u / 241) * (width - 88));
        return [[120, 22], [180, 22], [110, 27], [160, 27]].map(([u, below]) => {
            const row = data.slice(4 * width * (height - below), 4 * width * (height - below + 1));
            return row.slice(left(u), left(u) + 80).filter((value, i) => i % 4 === 3 && value > 0).length;
        });
    })""")
    assert [found[:2] for found in ends] == [[0, 0], [20, 0]]
    assert ends[0][2] < 10
    assert [ends[0][3], *ends[1][2:]] == [20, 20, 20]
    texts = page.evaluate("() => taken()")
    assert all(0 < y < 168 for *_, y in texts)
    label = next(drawn for drawn in reversed(texts) if drawn[0].startswith("peak 50"))
    assert label[2] < 76 + 712 * 238 / 241


def test_short_peaks_of_long_timelines_are_drawn(draw: Draw) -> None:
    usage = [10] * 5000
    usage[100] = usage[3004] = 100
    data, steps, series = made(0, 5000), [*range(5000)], {"usage": usage, "peak": 100}
    page = draw("drawAligned", {"a": data, "b": data}, {"a": steps, "b": steps}, {"a": series, "b": series})
    found = page.locator(".aligned-plot").first.evaluate("""canvas => {
        const x = Math.floor(76 + (3004 / 5000) * (canvas.width - 88));
        const { data } = canvas.getContext("2d").getImageData(x - 1, 80, 4, 1);
        return Array.from(data).filter((value, i) => i % 4 === 3 && value > 100).length;
    }""")
    assert found > 0


def test_the_maps_of_two_programs(draw: Draw) -> None:
    """Each says what only it has. What is pointed at goes before what is chosen, and colours are the same."""
    kinds: Json = {"kindNames": ["activation"], "spaces": [SPACE], "allocations": {"size": [40]}}
    both = made(2, kind=[0, 0], **kinds), made(3, kind=[0, 0, 0], size=[5, 6, 9], **kinds)
    page = draw("drawMaps", *both, [0, 1], [0, 1])
    captions = [text.split(maxsplit=1)[1] for text in page.locator("h3").all_inner_texts()[:2]]
    assert captions == ["no buffer that B does not have", "1 buffer that A does not have"]
    chosen = {"a": [0], "b": [-1]}
    page.evaluate("chosen => { highlight({ ...chosen, title: 'one' }); point({ ...chosen, title: 'two' }) }", chosen)
    settle(page)
    assert page.locator(".status").first.inner_text() == "Highlighted: two"
    page.evaluate("() => point(null)")
    settle(page)
    assert page.locator(".status").first.inner_text() == "Highlighted: one"
    page.get_by_role("button", name="Kind").first.click()
    settle(page)
    settle(page)  # the two sides are drawn one after the other
    pressed = page.get_by_role("group", name="Colour by").locator("[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["Kind", "Kind"]
    for side, y, selected in ((0, 202, ["i1", "i1"]), (1, 116, ["i2"])):
        left, top, *_ = box_of(page.locator(".map-frame").nth(side))
        page.mouse.click(left + 85, top + y)
        settle(page)
        settle(page)
        assert page.locator(".detail h3").all_inner_texts() == selected


# -- many programs -------------------------------------------------------------------------------


def listed(row: Json, numbers: list[int]) -> Json:
    """Return a directory of a program for each number of bytes, of which 950 are available."""
    fits = {999: False, 900: None, 700: None}
    rows = [
        {**row, "path": f"/x/run_{n}/d", "must_fit": n, "peak": n, "available": 950, "fits": fits.get(n, True)}
        for n in numbers
    ]
    return {"rows": rows, "failed": [], "folded": []}


def test_a_directory_of_many_programs(draw: Draw) -> None:
    """Paths begin at a folder; numbers descend at first; rows are added until all are shown."""
    row = {"name": "p", "platform": "cpu", "steps": 9, "occurrences": 1, "complete": True, "program": -1, "file": ""}
    directory = listed(row, [999, 900, 700, 500])
    unknown = {"path": "/x/run_unknown", "must_fit": None, "peak": None, "available": 950, "fits": None}
    directory["rows"].append({**row, **unknown})
    page = draw("drawDirectory", directory)
    headline = page.locator(".headline").inner_text()
    assert headline.endswith("1 fits into 950 B, 1 does not, of 3 it is not known.")
    assert page.locator(".path").first.inner_text() == "run_999/d"
    bar = page.locator(".capacity").first
    assert bar.locator(".needed").get_attribute("width") == bar.locator(".excess").get_attribute("x")
    head = page.locator("th button", has_text="Must fit")
    for first in ("999 B", "?"):
        head.click()
        assert page.locator("tbody tr").first.locator("td.number").last.inner_text() == first
    page.get_by_role("searchbox").fill(" RUN_7")
    assert page.locator("tbody tr").count() == 1
    page.evaluate("() => { document.body.style.minHeight = '2000px'; scrollTo(0, 500); set({ program: 0 }) }")
    settle(page)
    assert page.locator("#directory").is_hidden()
    page.evaluate("() => set({ program: -1 })")
    settle(page)
    assert page.evaluate("() => scrollY") == 500
    page.evaluate("() => { document.body.hidden = true }")  # so many rows are not laid out
    page = draw("drawDirectory", listed(row, [*range(401)]))
    more = """() => { document.querySelector('.directory > button').click();
        return document.querySelector('tbody').children.length }"""
    assert [page.evaluate(more) for _ in range(2)] == [400, 401]
