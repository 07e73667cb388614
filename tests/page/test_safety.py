"""Names of strangers stay text: no view of a hostile dump runs, loads or injects anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browsing import Show, Window, Write, go, settle
from conftest import every
from hostile import MEGABYTE, NAMES, SCRIPT, hostile_dump

import xlamem

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

pytest_plugins = "chromium"

NEVER = "img, iframe, frame, object, embed, form, base, audio, video, template, b, i, [src], [srcdoc], [style*=url]"
"""Selects what the page never makes, so that it would be made by a name."""
KEYS = ("s", "s", "p", "]", "+", "c", "c", "c", "0", "?", "Escape")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_dump(tmp_path_factory.mktemp("hostile") / "dump")


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of two programs, in folders with hostile names."""
    folder = tmp_path_factory.mktemp("several")
    for name in ("<img src=x onerror=alert(1)>", "javascript:alert(1)#"):
        hostile_dump(folder / name, long=False)
    (path,) = (folder / "javascript:alert(1)#").glob("*-buffer-assignment.txt")
    path.write_text(path.read_text("utf-8").replace("size 512", "size 1024"), "utf-8")
    return folder


def assert_harmless(page: Page) -> None:
    """Assert that no name has become markup, style or script."""
    assert page.locator(NEVER).count() == 0
    attributes = page.evaluate("""() =>
        [...new Set(Array.from(document.querySelectorAll('*'), e => e.getAttributeNames()).flat())]""")
    assert [name for name in attributes if name.startswith("on")] == []
    links = page.evaluate("() => Array.from(document.querySelectorAll('[href]'), e => e.getAttribute('href'))")
    assert [link for link in links if not re.match(r"(data:image/svg|#|programs/[\w.-]+$)", link)] == []
    assert page.locator("script:not([type='application/json'])").count() == 1
    assert page.locator("style").count() == 1
    assert page.title() != "injected"
    assert page.evaluate("() => ({}).polluted") is None


def walk(page: Page) -> None:
    """Use every view: each memory space, buffer row, scope, line of the bill, and the search."""
    for key in KEYS:
        page.keyboard.press(key)
    for selector in ("#bill .opener", "#bill .choice button", "details summary", "#scopes [role=treeitem]"):
        for element in page.locator(selector).all()[:8]:
            if element.is_visible():
                element.click()
                settle(page)  # the click may take away the elements that follow
    go(page, "t=14")
    for row in page.locator("#buffers [role=row]:has([role=gridcell])").all()[:12]:
        row.click()
        settle(page)
        assert_harmless(page)
    page.locator(".map canvas").first.hover(position={"x": 300, "y": 200})
    page.get_by_role("searchbox").first.fill("<script>")
    page.wait_for_function("() => decodeURIComponent(location.hash).includes('<script>')")
    settle(page)


def test_no_view_of_a_hostile_dump_runs_anything(hostile: Path, page_of: Write, show: Show) -> None:
    page = show(page_of(hostile))
    assert "<img src=x onerror=alert(1)>" in page.locator("h1").inner_text()
    assert "<script>document.title='injected'</script>" in page.locator("#diagnostics").inner_text()
    walk(page)
    assert_harmless(page)


def test_names_are_shown_with_their_control_characters(hostile: Path, page_of: Write, show: Show) -> None:
    page = show(page_of(hostile))
    text = page.locator("body").inner_text()
    assert not re.search(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]", text)
    assert len(text) < 100_000
    assert text.count("M" * 100) < 100


def test_hostile_addresses_are_harmless(hostile: Path, page_of: Write, show: Show) -> None:
    page = show(page_of(hostile))
    for name in (*NAMES, MEGABYTE[:100_000]):
        page.evaluate("name => { location.hash = `buffer=${name}&scope=${name}&space=${name}&q=${name}` }", name)
        settle(page)
        page.evaluate("name => { location.hash = new URLSearchParams({ buffer: name, scope: name, q: name }) }", name)
        settle(page)
        assert_harmless(page)


def test_a_comparison_and_a_directory_are_harmless(
    hostile: Path, several: Path, page_of: Write, show: Show
) -> None:
    program, *_ = xlamem.find(several)
    page = show(page_of(hostile, program.members[0].uri))
    assert_harmless(page)
    page = show(page_of(several))
    page.locator("#directory tbody a").first.click()
    page.wait_for_selector("#bill")
    assert_harmless(page)


def test_a_folder_of_pages_has_harmless_names(several: Path, tmp_path: Path, show: Show) -> None:
    index = xlamem.report(several, max_bytes=50_000).save(tmp_path / "report.html")
    assert index == tmp_path / "report" / "index.html"
    files = [p.relative_to(index.parent).as_posix() for p in index.parent.rglob("*") if p.is_file()]
    assert all(re.fullmatch(r"[\w./-]+", name) for name in files)
    page = show(index)
    assert_harmless(page)
    page.locator("#directory tbody a").first.click()
    page.wait_for_selector("html[data-ready=true] #bill")
    assert_harmless(page)


# ---- the policy


ADD = "const add = (tag, properties) => document.body.append(Object.assign(document.createElement(tag), properties));"
INJECTIONS = {
    "inline script": "add('script', { textContent: 'window.ran = 1' })",
    "handler": "document.body.insertAdjacentHTML('beforeend', '<b id=x onclick=\"window.ran=1\"></b>'); x.click()",
    "javascript: link": "add('a', { href: 'javascript:window.ran=1', id: 'x' }); x.click()",
    "remote script": "add('script', { src: 'https://example.com/x.js' })",
    "image": "add('img', { src: 'https://example.com/x.png' })",
    "frame": "add('iframe', { src: 'https://example.com/' })",
    "style": "add('style', { textContent: 'body { display: none }' })",
    "font": "new FontFace('x', 'url(https://example.com/x.woff2)').load().catch(() => {})",
    "request": "fetch('https://example.com/').catch(() => {})",
    "socket": "try { new WebSocket('wss://example.com/') } catch {}",
    "worker": "try { new Worker('data:text/javascript,1') } catch {}",
    "form": "add('form', { action: 'https://example.com/', id: 'x' }); x.submit()",
}
"""What a name could do if it became markup or script."""


@pytest.mark.parametrize("what", every(3, INJECTIONS))
def test_the_policy_blocks_what_gets_in(
    what: str, hostile: Path, page_of: Write, window: Callable[..., Window]
) -> None:
    tested = window()
    page = tested.open(page_of(hostile))
    page.evaluate(f"""() => new Promise(done => {{
        document.addEventListener('securitypolicyviolation', e => {{ window.violated = e.effectiveDirective; done() }});
        setTimeout(done, 3000);
        {ADD}
        {INJECTIONS[what]};
    }})""")
    assert page.evaluate("() => window.violated"), "the policy is not violated"
    assert page.evaluate("() => window.ran ?? null") is None
    assert page.locator("body").is_visible()
    assert not any(problem.startswith("request") for problem in tested.problems)
    tested.problems.clear()


def test_the_data_are_parsed_as_json(hostile: Path, page_of: Write, show: Show) -> None:
    page = show(page_of(hostile))
    program = page.evaluate("() => JSON.parse(document.getElementById('program-0').textContent)")
    assert program["name"].startswith("jit_<img")
    assert SCRIPT in program["diagnostics"][0]["excerpt"]
