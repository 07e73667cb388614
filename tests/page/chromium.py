"""Pages in Chromium, driven by Playwright. Without one of them, the tests are skipped; nothing is ever downloaded.

Test modules get the fixtures by ``pytest_plugins = "chromium"``. A browser serves one module, as Playwright occupies
the event loop of its thread as long as it runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--font-render-hinting=none")  # fmt: skip
READY = "html[data-ready=true]"
"""Matches a page that has drawn its first view."""
TIMEOUT = 30_000
"""Milliseconds until an action or a condition fails. Generous, as the cores are shared."""


def executable() -> str | None:
    """Return the path of the browser that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


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


class Window:
    """A window that shows pages from files, and lists what must never happen in one."""

    def __init__(self, context: BrowserContext) -> None:
        self.problems: list[str] = []
        """Errors and warnings of the script, requests, dialogs, violations of the policy."""
        self.page: Page = context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        context.route(lambda url: not url.startswith(("file:", "data:", "blob:")), self._refuse)
        self.page.on("console", lambda message: self._note(f"console {message.type}", message.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("popup", lambda popup: self._note("popup", popup.url))

    def open(self, path: Path, fragment: str = "") -> Page:
        """Show a page and wait for its first view."""
        self.page.goto(path.as_uri() + (fragment and f"#{fragment}"))
        self.page.wait_for_selector(READY, state="attached")
        return self.page

    def _note(self, what: str, text: str) -> None:
        self.problems.append(f"{what}: {text}")

    def _refuse(self, route: Any) -> None:
        self._note("request", route.request.url)
        route.abort()

    def _dismiss(self, dialog: Any) -> None:
        self._note("dialog", dialog.message)
        dialog.dismiss()


Open = Callable[..., "Page"]


@pytest.fixture
def window(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Return a new window of a size and theme. At the end, none may have had a problem."""
    windows: list[Window] = []

    def new(width: int = 1280, height: int = 800, *, dark: bool = False, **options: Any) -> Window:
        size: Any = {"width": width, "height": height}
        scheme: Any = "dark" if dark else "light"
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce", **options)
        windows.append(Window(context))
        return windows[-1]

    yield new
    problems = [problem for window in windows for problem in window.problems]
    for window in windows:
        window.page.context.close()
    assert problems == []


@pytest.fixture
def show(window: Callable[..., Window]) -> Open:
    """Return a function that shows a page in a new window: ``show(path, fragment, width=390, dark=True)``."""

    def show(path: Path, fragment: str = "", **options: Any) -> Page:
        return window(**options).open(path, fragment)

    return show
