"""The page for everyone: accessible by axe-core's rules, at every width, in both themes, on paper, without mouse."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import Show, Write, go, settle
from conftest import DUMPS, every
from node import SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytest_plugins = "chromium"

AXE = SCRIPT / "node_modules" / "axe-core" / "axe.min.js"
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
TIMELESS = DUMPS / "cpu-tf-1.15.0-loop"
TRUNCATED = DUMPS / "cpu-killed-at-buffer-assignment"
SEVERAL = DUMPS / "cpu-jaxlib-0.12.0-several_modules"
ORIGINS = DUMPS.parent / "data" / "origins"
PAGES: dict[str, tuple[tuple[Path, ...], str]] = {
    "program": ((LAYERS,), "buffer=ynn_fusion.33&q=tanh&zoom=100-199&color=layer"),
    "tpu": ((TPU,), "space=vmem&t=20"),
    "no live ranges": ((TIMELESS,), ""),
    "truncated": ((TRUNCATED,), ""),
    "comparison": ((ORIGINS / "cpu-scan-remat.tar.gz", ORIGINS / "cpu-scan.tar.gz"), ""),
    "directory": ((SEVERAL,), ""),
    "directory, opened": ((SEVERAL,), "program=1"),
}
"""Paths and fragments of pages."""
WIDTHS = (320, 390, 768, 1100, 1280, 1920)


def opened(name: str, page_of: Write, show: Show, **options: Any) -> Page:
    paths, fragment = PAGES[name]
    page = show(page_of(*paths, device="v5e"), fragment, **options)
    settle(page)
    return page


@pytest.mark.parametrize("dark", every(2, [False, True]), ids=["light", "dark"])
@pytest.mark.parametrize("name", every(2, PAGES))
def test_axe_finds_nothing(name: str, dark: bool, page_of: Write, show: Show) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make page")
    page = opened(name, page_of, show, dark=dark)
    page.evaluate(AXE.read_text("utf-8"))
    if name == "program":
        page.locator("#bill .opener").first.click()
    found = page.evaluate("""() => axe.run({ resultTypes: ['violations'] }).then(result => result.violations.map(
        v => [v.id, v.help, v.nodes.slice(0, 3).map(n => `${n.target} ${n.any[0]?.message ?? ''}`)]))""")
    assert found == []


@pytest.mark.parametrize("name", every(2, PAGES))
def test_nothing_sticks_out_at_any_width(name: str, page_of: Write, show: Show) -> None:
    page = opened(name, page_of, show)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        settle(page)
        page.wait_for_timeout(100)
        wider = page.evaluate("""() => [document.documentElement.scrollWidth - innerWidth,
            ...Array.from(document.querySelectorAll('body *'), e => [e, e.getBoundingClientRect()])
                .filter(([e, box]) => box.right > innerWidth + 1 && box.width && !e.closest('.grid, [hidden]'))
                .slice(0, 5).map(([e, box]) => `${e.localName}.${e.className} to ${box.right}`)]""")
        assert wider[0] <= 0, (width, wider)


@pytest.mark.parametrize("name", ["program", "comparison", "directory"])
def test_every_control_is_reached_by_tab_and_has_a_visible_focus(name: str, page_of: Write, show: Show) -> None:
    page = opened(name, page_of, show)
    page.evaluate("""() => {
        window.wanted = new Set(Array.from(document.querySelectorAll('a[href], button, input, [tabindex="0"]'))
            .filter(e => e.checkVisibility({ visibilityProperty: true }) && !e.disabled && e.tabIndex >= 0));
    }""")
    unmarked = set()
    for _ in range(page.evaluate("() => wanted.size") + 5):
        page.keyboard.press("Tab")
        unmarked.add(page.evaluate("""() => {
            const { activeElement: e, body } = document;
            window.wanted.delete(e);
            const { outlineStyle, boxShadow } = getComputedStyle(e);
            return e === body || outlineStyle !== 'none' || boxShadow !== 'none' ? '' : e.outerHTML.slice(0, 100);
        }"""))
    assert unmarked == {""}
    assert page.evaluate("() => Array.from(wanted, e => e.outerHTML.slice(0, 100))") == []


def test_headings_are_in_order_and_sections_have_names(page_of: Write, show: Show) -> None:
    page = opened("program", page_of, show)
    levels = page.evaluate("() => Array.from(document.querySelectorAll('h1,h2,h3,h4'), e => Number(e.localName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    unnamed = page.evaluate("""() => Array.from(document.querySelectorAll('section'))
        .filter(s => !document.getElementById(s.getAttribute('aria-labelledby'))?.textContent).length""")
    assert unnamed == 0


def test_the_theme_follows_the_system_and_the_switch(page_of: Write, show: Show) -> None:
    page = opened("program", page_of, show, dark=True)

    def background() -> str:
        return str(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))

    def picture() -> str:
        return str(page.evaluate("() => document.querySelector('.map canvas').toDataURL()"))

    dark, drawn = background(), picture()
    page.emulate_media(color_scheme="light")
    settle(page)
    assert background() != dark
    assert picture() != drawn
    page.keyboard.press("d")
    settle(page)
    assert background() == dark


def test_the_page_prints_light_and_whole(page_of: Write, show: Show) -> None:
    page = opened("program", page_of, show, dark=True)
    before = page.evaluate("() => document.documentElement.dataset.theme")
    page.evaluate("""() => addEventListener('beforeprint', () => {
        window.printed = document.documentElement.dataset.theme;
        window.tools = getComputedStyle(document.querySelector('.tools')).display;
    })""")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 12
    assert page.evaluate("() => window.printed") == "light"
    settle(page)
    assert page.evaluate("() => document.documentElement.dataset.theme") == before == "dark"
    page.emulate_media(media="print")
    assert not page.locator(".tools").is_visible()


def test_without_script_the_page_shows_the_bill(page_of: Write, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_of(TPU).as_uri())
    assert "982.56 KiB" in page.locator("body").inner_text()
    context.close()


def test_a_narrow_page_is_used_by_touch(page_of: Write, show: Show) -> None:
    page = show(page_of(LAYERS), width=390, height=844, has_touch=True, is_mobile=True)
    go(page, "t=100")
    page.locator("#buffers [role=row]:has([role=gridcell])").nth(1).tap()
    settle(page)
    assert page.locator("#detail h3").count() == 1
    page.locator(".map canvas.base").tap(position={"x": 200, "y": 200})
    settle(page)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
