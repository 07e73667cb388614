"""A selection is the same in the timeline, the map, the scopes, the table, the detail and the address."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest
from browsing import Show, Write, fragment, go, settle, step_shown
from conftest import DUMPS, every

import xlamem

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest_plugins = "chromium"

LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
PEAK = 148
"""Step of the peak of LAYERS."""
STEPS = 280


@pytest.fixture
def page(page_of: Write, show: Show) -> Page:
    return show(page_of(LAYERS))


def rows(page: Page) -> Locator:
    return page.locator("#buffers [role=row]:has([role=gridcell])")


def selected(page: Page) -> str:
    """The name that the detail shows, or an empty text."""
    title = page.locator("#detail h3")
    return title.inner_text() if title.count() else ""


def canvas_box(page: Page, selector: str) -> dict[str, float]:
    """Return the box of an element after it is scrolled to."""
    element = page.locator(selector).first
    element.evaluate("element => element.scrollIntoView({ block: 'center' })")
    box = element.bounding_box()
    assert box
    return dict(box)


def in_map(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return a point of the address map's plot, as shares of its width and height."""
    box = canvas_box(page, ".map canvas.base")
    return box["x"] + 76 + x * (box["width"] - 88), box["y"] + y * box["height"]


def hit(page: Page) -> tuple[float, float]:
    """Return a point of the map with a buffer that exists at the peak, found by hovering."""
    for share in (0.1, 0.2, 0.3, 0.5, 0.7, 0.9):
        x, y = in_map(page, (PEAK + 0.5) / STEPS, share)
        page.mouse.move(x, y)
        settle(page)
        if page.locator("#time .tooltip:visible").count():
            return x, y
    raise AssertionError("no buffer in the map")


# ---- by mouse


def test_a_row_of_the_table_selects_a_buffer_everywhere(page: Page) -> None:
    row = rows(page).nth(1)
    name = row.locator(".name").first.inner_text()
    row.click()
    settle(page)
    assert selected(page) == name
    assert rows(page).nth(1).get_attribute("aria-selected") == "true"
    assert page.locator("#buffers [aria-selected=true]").count() == 1
    assert page.locator("#scopes .selected").count() == 1
    assert fragment(page)["buffer"] == name


def test_a_click_in_the_map_selects_what_the_pointer_names(page: Page) -> None:
    x, y = hit(page)
    tooltip = page.locator("#time .tooltip:visible").inner_text()
    page.mouse.click(x, y)
    settle(page)
    assert selected(page)
    assert selected(page) in tooltip
    assert page.locator("#buffers [aria-selected=true]").count() == 1
    assert "buffer" in fragment(page)


def test_a_click_in_the_timeline_selects_a_step(page: Page) -> None:
    box = canvas_box(page, ".timeline .u-over")
    page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"])
    settle(page)
    step, in_use = step_shown(page)
    assert step == pytest.approx(0.25 * STEPS, abs=1)
    usage = xlamem.report(LAYERS).programs[0].spaces[0].usage
    assert in_use == usage[step]
    assert f"at step {step}" in page.locator("#buffers .summary").inner_text()
    assert fragment(page)["t"] == str(step)
    page.get_by_role("button", name="Go to peak").click()
    settle(page)
    assert step_shown(page)[0] == PEAK
    assert fragment(page) == {}


def test_a_scope_selects_its_buffers(page: Page) -> None:
    block = page.locator("#scopes [role=treeitem]").nth(1)
    name = block.locator(".name").first.inner_text()
    n = rows(page).count()
    block.click()
    settle(page)
    assert fragment(page)["scope"] == name
    assert " of " in page.locator("#buffers .summary").inner_text()
    assert page.locator("#scopes [aria-current=true]").inner_text() == name
    page.get_by_role("button", name="All scopes").click()
    settle(page)
    assert fragment(page) == {}
    assert rows(page).count() == n


def test_links_of_the_detail_lead_to_other_buffers_and_steps(page: Page) -> None:
    go(page, "buffer=ynn_fusion.33")
    page.locator("#detail").get_by_role("button", name="multiply_tanh_fusion", exact=True).click()
    settle(page)
    assert selected(page) == "multiply_tanh_fusion"
    assert f" of {STEPS - 1}, read " in (page.locator("#detail .life-bar").get_attribute("aria-label") or "")
    page.locator("#detail").get_by_role("button", name="165", exact=True).first.click()
    settle(page)
    assert step_shown(page)[0] == 165
    page.get_by_role("button", name="Clear the selection").click()
    settle(page)
    assert selected(page) == ""
    assert fragment(page) == {"t": "165"}


def test_the_table_is_sorted_and_searched(page: Page) -> None:
    def column(key: str) -> list[str]:
        return [row.locator(f".{key}").first.inner_text() for row in rows(page).all()]

    page.locator("#buffers [role=columnheader]", has_text="Name").get_by_role("button").click()
    settle(page)
    assert column("cell.name") == sorted(column("cell.name"), key=str) or len(column("cell.name")) > 1
    page.get_by_role("searchbox").fill("tanh")
    page.wait_for_function("() => location.hash.includes('q=tanh')")
    settle(page)
    found = column("cell.name")
    assert found
    assert all("tanh" in name for name in found)
    assert page.locator("#buffers .summary").inner_text().startswith(f"{len(found)} of ")
    page.get_by_role("searchbox").fill("nothing is called so")
    page.wait_for_function("() => location.hash.includes('nothing')")
    settle(page)
    assert rows(page).count() == 0


# ---- by keyboard


def test_keys_move_the_step_and_the_range(page: Page) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            page.keyboard.press(key)
        settle(page)

    press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert step_shown(page)[0] == PEAK + 1
    press("p", "+", "+")
    first, last = map(int, fragment(page)["zoom"].split("-"))
    assert last + 1 - first == STEPS // 4
    assert first <= PEAK <= last
    press("Shift+ArrowRight")
    assert step_shown(page)[0] == PEAK + STEPS // 40
    press("-", "0", "p")
    assert fragment(page) == {}
    press("]")
    assert step_shown(page)[0] > PEAK
    press("[", "c")
    assert fragment(page)["color"] == "layer"
    press("/")
    assert page.evaluate("() => document.activeElement.type") == "search"
    page.keyboard.type("pad")
    page.wait_for_function("() => location.hash.includes('q=pad')")
    press("Escape", "Escape")
    page.wait_for_function("() => !location.hash.includes('q=pad')")


def test_keys_select_in_the_table_and_in_the_scopes(page: Page) -> None:
    page.locator("#buffers [role=grid]").focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    settle(page)
    assert selected(page) == rows(page).nth(2).locator(".name").first.inner_text()
    page.locator("#scopes [role=treeitem]").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert "scope" in fragment(page)
    page.keyboard.press("Backspace")
    settle(page)
    assert "scope" not in fragment(page)


def test_help_lists_the_keys_and_closes(page: Page) -> None:
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    assert "previous, next step" in dialog.inner_text()
    page.keyboard.press("ArrowRight")
    assert step_shown(page)[0] == PEAK
    page.keyboard.press("Escape")
    assert dialog.count() == 0


# ---- zoom and pan


def test_the_wheel_zooms_around_the_pointer(page: Page) -> None:
    box = canvas_box(page, ".timeline .u-over")
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 50)
    for _ in range(4):
        page.mouse.wheel(0, -200)
    page.wait_for_function("() => location.hash.includes('zoom')")
    settle(page)
    first, last = map(int, fragment(page)["zoom"].split("-"))
    assert last + 1 - first < STEPS // 2
    assert first <= 0.75 * STEPS <= last + 1
    page.mouse.dblclick(box["x"] + 50, box["y"] + 50)
    settle(page)
    assert "zoom" not in fragment(page)


def test_a_drag_zooms_to_what_is_marked_and_the_map_follows(page: Page) -> None:
    box = canvas_box(page, ".timeline .u-over")
    y = box["y"] + 0.5 * box["height"]
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], y, steps=4)
    page.mouse.up()
    settle(page)
    first, last = map(int, fragment(page)["zoom"].split("-"))
    assert (first, last) == pytest.approx((0.4 * STEPS, 0.6 * STEPS), abs=2)
    label = page.locator(".map canvas.base").get_attribute("aria-label")
    assert f"steps {first} to {last}" in str(label)
    x, y = in_map(page, 0.5, 0.5)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    settle(page)
    assert int(fragment(page)["zoom"].split("-")[0]) < first


# ---- deep links


@pytest.mark.parametrize(
    "link",
    [
        "t=100",
        "t=150&buffer=ynn_fusion.33&zoom=100-199&color=layer",
        f"scope={quote('layer_*/mlp', safe='')}",
        "q=tanh&color=kind",
    ],
)
def test_a_link_shows_what_its_sender_saw(link: str, page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS), link)
    settle(page)
    opened = fragment(page)
    assert opened == dict(part.split("=") for part in link.replace("%2A", "*").replace("%2F", "/").split("&"))
    state = page.locator("#buffers .summary").inner_text(), selected(page), step_shown(page)
    other = show(page_of(LAYERS))
    go(other, link)
    assert (other.locator("#buffers .summary").inner_text(), selected(other), step_shown(other)) == state


@pytest.mark.parametrize(
    "link",
    every(3, ["t=999999", "t=-1", "t=1e3", "buffer=nothing", "space=nowhere", "zoom=9-2", "color=red",
              "scope=__proto__", "program=7", "%E0%A4%A", "t=1&t=2", "=&&=", "buffer=" + "x" * 5000]),
)  # fmt: skip
def test_a_wrong_link_shows_the_peak(link: str, page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS), link)
    settle(page)
    assert step_shown(page)[0] in ({1} if link == "t=1&t=2" else {PEAK})
    assert selected(page) == ""


def test_a_link_selects_a_memory_space(page_of: Write, show: Show) -> None:
    page = show(page_of(TPU), "space=vmem&t=20")
    settle(page)
    pressed = page.locator(".spaces [aria-pressed=true]")
    assert pressed.locator(".space-name").inner_text() == "vmem"
    (vmem,) = (s for s in xlamem.report(TPU).programs[0].spaces if s.memory_space == "vmem")
    assert step_shown(page) == (20, vmem.usage[20])


def test_back_and_forward_work_with_links_that_were_followed(page: Page) -> None:
    go(page, "t=10")
    go(page, "t=20")
    page.go_back()
    settle(page)
    assert step_shown(page)[0] == 10


def test_back_undoes_a_selection_but_no_step(page: Page) -> None:
    rows(page).nth(0).click()
    settle(page)
    first = selected(page)
    rows(page).nth(1).click()
    settle(page)
    page.keyboard.press("p")
    settle(page)
    assert selected(page) not in ("", first)
    page.go_back()
    settle(page)
    assert selected(page) == first
    page.go_back()
    settle(page)
    assert selected(page) == ""
    assert page.locator("#detail").count() == 1
