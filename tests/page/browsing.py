"""Pages in Chromium: windows that list what must never happen, and what a page shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

Show = Callable[..., "Page"]
Write = Callable[..., Path]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-sync", "--no-first-run", "--font-render-hinting=none")  # fmt: skip
READY = "html[data-ready=true]"
"""Matches a page that has drawn its first view."""
TIMEOUT = 15_000
"""Milliseconds until an action or a condition fails. Generous, as the cores are shared."""


def executable() -> str | None:
    """Return the path of the browser that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


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

    def leave(self) -> list[str]:
        """Leave the page, so that nothing of it is left for the next one, and return the problems that it had."""
        self.page.goto("about:blank")
        self.page.mouse.move(0, 0)
        problems, self.problems = self.problems, []
        return problems

    def _note(self, what: str, text: str) -> None:
        self.problems.append(f"{what}: {text}")

    def _refuse(self, route: Any) -> None:
        self._note("request", route.request.url)
        route.abort()

    def _dismiss(self, dialog: Any) -> None:
        self._note("dialog", dialog.message)
        dialog.dismiss()


# -- what is shown ---------------------------------------------------------------------------------


def go(page: Page, fragment: str) -> None:
    """Follow a link within the page, and wait until it is drawn."""
    page.evaluate("fragment => { location.hash = fragment }", fragment)
    settle(page)


def settle(page: Page) -> None:
    """Wait until the views show the state: they are drawn in the next frame, and may change the address in another."""
    page.evaluate("() => new Promise(d => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(d))))")


def fragment(page: Page) -> dict[str, str]:
    """Return the parts of the page's address."""
    return dict(parse_qsl(urlsplit(page.url).fragment))


def step_shown(page: Page) -> tuple[int, int]:
    """Return the selected step and the bytes in use at it, as the text above the timeline says."""
    status = page.locator(".timeline .status")
    step = re.match(r"Step ([\d,]+) of", status.inner_text())
    exact = status.locator("strong").get_attribute("title")
    assert step
    assert exact
    return number(step[1]), exact_bytes(exact)


def exact_bytes(text: str) -> int:
    """Return the bytes in a text like ``1.00 KiB (1,024 bytes)``."""
    found = re.search(r"([\d,]+) bytes?\)?$", text)
    assert found, text
    return number(found[1])


def number(text: str) -> int:
    return int(text.replace(",", ""))
