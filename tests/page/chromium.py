"""Fixtures for pages in Chromium, driven by Playwright. Without one of them, the tests are skipped.

Test modules get them by ``pytest_plugins = "chromium"``. A browser serves one module, as Playwright occupies the event
loop of its thread as long as it runs. Nothing is downloaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import ARGUMENTS, NAMES, Show, Window, Write, executable

import xlamem

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install 'xlamem[test]')")
    path = executable()
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(NAMES)} is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def windows(browser: Browser) -> dict[Any, list[Window]]:
    """Return the windows of this module by their options. A page in a new one costs four times as much."""
    return defaultdict(list)


@pytest.fixture
def window(browser: Browser, windows: dict[Any, list[Window]]) -> Iterator[Callable[..., Window]]:
    """Return an empty window of a size and theme, another one each time. At the end, none may have had a problem."""
    used: list[Window] = []

    def empty(width: int = 1280, height: int = 800, *, dark: bool = False, **options: Any) -> Window:
        size: Any = {"width": width, "height": height}
        media: Any = {"color_scheme": "dark" if dark else "light", "reduced_motion": "reduce"}
        of_kind = windows[width, height, dark, *sorted(options.items())]
        found = next((window for window in of_kind if window not in used), None)
        if found is None:
            found = Window(browser.new_context(viewport=size, **media, **options))
            of_kind.append(found)
        found.page.set_viewport_size(size)
        found.page.emulate_media(media="null", **media)
        used.append(found)
        return found

    yield empty
    assert [problem for window in used for problem in window.leave()] == []


@pytest.fixture
def show(window: Callable[..., Window]) -> Show:
    """Return a function that shows a page in an empty window: ``show(path, fragment, width=390, dark=True)``."""

    def show(path: Path, fragment: str = "", **options: Any) -> Page:
        return window(**options).open(path, fragment)

    return show


@pytest.fixture(scope="session")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Return a function that writes the page of one path or two, each once: ``page_of(path, device="v5e")``."""
    folder = tmp_path_factory.mktemp("pages")
    written: dict[Any, Path] = {}

    def page_of(*paths: Path, **options: Any) -> Path:
        key = (paths, *sorted(options.items()))
        if key not in written:
            written[key] = xlamem.report(*paths, **options).save(folder / f"{len(written)}.html")
        return written[key]

    return page_of
