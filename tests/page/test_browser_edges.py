"""The page in a browser where a dump, a gesture or an address is unusual."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from browsing import Show, Write, fragment, go, settle, step_shown
from conftest import DUMPS

import xlamem
from xlamem.page import folding
from xlamem.page.columns import Encoder
from xlamem.page.folding import folded
from xlamem.page.model import as_json

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest_plugins = "chromium"

CPU = DUMPS / "cpu-jaxlib-0.9.1-mlp_grad"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
LAST = 279
"""Last step of LAYERS."""
GRAD = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


def test_a_dump_with_live_ranges_but_no_allocations_is_shown(tmp_path: Path, show: Show) -> None:
    for path in GRAD.iterdir():
        if "buffer-assignment" not in path.name:
            shutil.copy(path, tmp_path)
    page = show(xlamem.report(tmp_path).save(tmp_path / "report.html"))
    assert page.locator("#bill").inner_text().endswith("The dump lists no allocations, so there is no bill.")
    shown = page.locator("section").evaluate_all("sections => sections.map(s => s.id)")
    assert shown == ["verdict", "bill", "explain", "diagnostics"]


def test_a_link_to_another_program_keeps_what_both_have_in_common(page_of: Write, show: Show) -> None:
    page = show(page_of(CPU, GRAD))
    for link in ("program=0&t=8", "program=0&color=kind&q=dot", "color=kind&q=dot", "program=0&t=8&color=kind"):
        go(page, link)
        settle(page)
        assert fragment(page) == dict(part.split("=") for part in link.split("&"))
    page.go_back()
    settle(page)
    assert fragment(page) == {"color": "kind", "q": "dot"}


def test_buffers_whose_names_are_left_out_have_links(
    tmp_path: Path, show: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in {"N_AT_PEAKS": 10, "BYTES_PER_NAME": 4000, "SPARE": 300}.items():
        monkeypatch.setattr(folding, name, limit)
    report = xlamem.report(LAYERS)
    program = folded(report.programs[0], int(0.8 * len(json.dumps(as_json(report.programs[0])))), Encoder())
    page = show(replace(report, programs=[program]).save(tmp_path / "report.html"))
    b, names = program.buffers, np.array(program.instructions.name.to_pylist())
    unnamed = np.flatnonzero((names[b.instruction] == "") & (b.start >= 0))
    for origin in ("own", "user"):
        key = str(b.value_id[unnamed[b.origin[unnamed] == b.origin_names.index(origin)][0]])
        go(page, f"buffer={key}&t=1")
        assert fragment(page) == {"buffer": key, "t": "1"}
        detail = page.locator("#detail")
        assert detail.locator("h3").inner_text() == f"value {key}"
        assert "?" not in detail.inner_text()
        assert "read" not in str(detail.locator(".life-bar").get_attribute("aria-label"))


def test_keys_search_in_the_visible_table_and_clear_the_search(page_of: Write, show: Show) -> None:
    page = show(page_of(DUMPS / "cpu-jaxlib-0.12.0-several_modules"))
    programs = page.locator("#directory tbody tr")
    n = programs.count()
    page.get_by_role("searchbox").fill("nothing")
    assert programs.count() == 0
    page.keyboard.press("Escape")
    assert programs.count() == n
    go(page, "program=1")
    page.wait_for_selector("#buffers .summary")
    page.keyboard.press("/")
    page.keyboard.type("nothing")
    page.wait_for_function("() => location.hash.includes('q=nothing')")
    page.keyboard.press("Escape")
    page.wait_for_function("() => !location.hash.includes('q=')")
    assert " of " not in page.locator("#buffers .summary").inner_text()


def test_the_maps_of_a_comparison_follow_its_waterfall_and_each_other(page_of: Write, show: Show) -> None:
    page = show(page_of(CPU, GRAD))
    changes, maps = page.locator("#changes"), page.locator("#maps")
    changes.get_by_role("button", name="vmem").click()
    maps.get_by_text("A has nothing in vmem.").wait_for()
    assert [part.is_visible() for part in maps.locator(".map").all()] == [False, True]
    changes.get_by_role("button", name="Device memory").click()
    assert [part.is_visible() for part in maps.locator(".map").all()] == [True, True]

    changes.get_by_role("button", name="In use at the peak").click()
    settle(page)
    row = page.locator("button.row-label").first
    row.click()
    settle(page)  # drawing replaces the buttons
    page.get_by_role("button", name="Show new and gone buffers").click()
    page.mouse.move(0, 0)  # rows that the pointer is over are highlighted
    settle(page)
    maps.locator(".status", has_text="other side").wait_for()
    assert row.get_attribute("aria-pressed") == "false"
    row.click()
    assert row.get_attribute("aria-pressed") == "true"

    details = maps.locator(".two-columns").nth(1)
    details.locator(".suggestion button").first.click()
    details.locator("h3", has_text="the same buffer").wait_for()
    details.get_by_role("button", name="Clear the selection").first.click()
    details.locator("h3", has_text="the same buffer").wait_for(state="detached")
    settle(page)  # the two sides are drawn one after the other
    assert details.locator(".suggestion").count() == 2


def test_what_a_button_leads_to_is_visible(page_of: Write, show: Show) -> None:
    page = show(page_of(TPU), "space=vmem")
    settle(page)
    peak = xlamem.report(TPU).programs[0].spaces[0].peak
    assert step_shown(page)[1] != peak
    page.locator("#bill .bill-step button").click()
    settle(page)
    assert step_shown(page)[1] == peak
    assert "space" not in fragment(page)
    last = xlamem.report(TPU).programs[0].steps or 0
    go(page, f"t={last - 1}&zoom={last - 2}-{last - 1}")
    page.locator("#detail .suggestion button").click()
    settle(page)
    first, _, end = fragment(page)["zoom"].partition("-")
    assert int(first) <= step_shown(page)[0] <= int(end)


# ---- gestures


def box_of(page: Page, selector: str) -> dict[str, float]:
    """Return the box of an element after it is scrolled to."""
    element = page.locator(selector).first
    element.evaluate("element => element.scrollIntoView({ block: 'center' })")
    box = element.bounding_box()
    assert box
    return dict(box)


def zoom(page: Page) -> tuple[int, int]:
    """Return the visible steps."""
    first, _, last = fragment(page).get("zoom", f"0-{LAST}").partition("-")
    return int(first), int(last)


def test_a_click_right_of_the_map_selects_the_last_visible_step(page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS))
    for link, last in (("", LAST), ("zoom=100-119", 119)):
        go(page, link)
        box = box_of(page, ".map-frame")
        page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 20)
        settle(page)
        assert step_shown(page)[0] == last


def test_small_movements_add_up(page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS), "zoom=100-149")
    box = box_of(page, ".timeline .u-over")
    x, y = box["x"] + box["width"] - 20, box["y"] + 100
    page.keyboard.down("Shift")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - box["width"] / 2, y, steps=60)
    page.mouse.up()
    page.keyboard.up("Shift")
    settle(page)
    assert zoom(page)[0] == pytest.approx(125, abs=1)
    for plot in (".timeline .u-over", ".map-frame"):
        first = zoom(page)[0]
        box = box_of(page, plot)
        page.mouse.move(box["x"] + 200, box["y"] + 50)
        for _ in range(20):
            page.mouse.wheel(8, 0)
        page.wait_for_function(f"() => Number(/zoom=(\\d+)/.exec(location.hash)[1]) >= {first + 6}")
        settle(page)
        assert zoom(page)[0] <= first + 8


def test_the_wheel_zooms_out_at_once_after_one_step_is_reached(page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS), "zoom=100-101")
    box = box_of(page, ".map-frame")
    page.mouse.move(box["x"] + 500, box["y"] + 50)
    for _ in range(6):
        page.mouse.wheel(0, -200)
    page.wait_for_function("() => /zoom=(\\d+)-\\1$/.test(location.hash)")
    page.mouse.wheel(0, 200)
    page.wait_for_function("() => !/zoom=(\\d+)-\\1$/.test(location.hash)")
