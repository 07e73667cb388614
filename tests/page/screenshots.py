"""Pictures of every view of the page, light and dark, wide and narrow, to be looked at.

    python tests/page/screenshots.py OUT [--dump PATH …] [--only WORD] [--bundle]

OUT gets the pages and the pictures. ``--dump`` adds pages of your own dumps; ``--bundle`` bundles the script first.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "forge"), str(Path(__file__).parent)]

from browsing import ARGUMENTS, Window, executable  # noqa: E402
from conftest import DUMPS  # noqa: E402
from hostile import hostile_dump  # noqa: E402

import xlamem  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = {"wide": (1280, 900), "narrow": (390, 844)}
SCRIPT = TESTS.parent / "src" / "xlamem" / "page" / "script"
PAIRS = TESTS / "data" / "pairs"
ORIGINS = TESTS / "data" / "origins"

TPU = DUMPS / "tpu-libtpu-0.0.50.1-tpu7x-donate_adam"
LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
REMAT = ORIGINS / "cpu-scan.tar.gz"


def nothing(page: Page) -> None:
    """Show the page as it opens."""


def select_buffer(page: Page) -> None:
    page.locator("#buffers .row").nth(1).click()


def open_scope(page: Page) -> None:
    page.locator("#scopes [role=treeitem]").nth(1).click()


def search(page: Page) -> None:
    page.locator("#buffers input[type=search]").fill("mul")
    page.wait_for_timeout(400)


def zoom(page: Page) -> None:
    for _ in range(3):
        page.keyboard.press("+")


def colour_by_layer(page: Page) -> None:
    page.keyboard.press("c")


def help_dialog(page: Page) -> None:
    page.keyboard.press("?")


def hover_map(page: Page) -> None:
    box = page.locator(".map canvas").first.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.3 * box["height"])


def open_first_program(page: Page) -> None:
    page.locator("#directory tbody a").first.click()


@dataclass(frozen=True)
class View:
    """A page, what is done with it, and where the picture begins."""

    name: str
    paths: tuple[Path, ...]
    act: Callable[[Page], None] = nothing
    options: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    """Whether the picture shows the whole page; else one screen from `section` on."""
    section: str = ""
    fragment: str = ""


def views(hostile: Path) -> list[View]:
    v5e = {"device": "v5e"}
    return [
        View("tpu", (TPU,), options=v5e, whole=True),
        View("gpu", (DUMPS / "gpu-jax-0.8.2-host_weights_scan",), whole=True),
        View("cpu", (LAYERS,), whole=True),
        View("remat", (REMAT,), whole=True, options={"capacity": "64MiB"}),
        View("too-large", (LAYERS,), options={"capacity": "300KiB"}),
        View("truncated", (DUMPS / "cpu-killed-at-buffer-assignment",), whole=True),
        View("no-live-ranges", (DUMPS / "cpu-tf-1.15.0-loop",), whole=True),
        View("no-output", (DUMPS / "cpu-jaxlib-0.12.0-no_output",), whole=True),
        View("hostile", (hostile,), whole=True),
        View("selected", (LAYERS,), select_buffer, section="#scopes"),
        View("icicle", (LAYERS,), open_scope, section="#scopes"),
        View("search", (LAYERS,), search, section="#buffers"),
        View("zoomed", (LAYERS,), zoom, section="#time"),
        View("layers", (LAYERS,), colour_by_layer, section="#time"),
        View("hover", (LAYERS,), hover_map, section="#time"),
        View("help", (LAYERS,), help_dialog),
        View("comparison", (ORIGINS / "cpu-scan-remat.tar.gz", REMAT), whole=True),
        View("same", (TPU, TPU), whole=True),
        View("directory", (DUMPS,), options=v5e, whole=True),
        View("directory-open", (DUMPS / "cpu-jaxlib-0.12.0-several_modules",), open_first_program, whole=True),
    ]


def pictures(browser: Browser, view: View, page_file: Path, out: Path) -> Iterator[str]:
    """Take the pictures of a view, and yield what went wrong."""
    for size, (width, height) in SIZES.items():
        for theme in ("light", "dark"):
            scheme: Any = theme
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
            )
            window, label = Window(context), f"{view.name}-{size}-{theme}"
            try:
                page = window.open(page_file, view.fragment)
                if view.section:
                    page.locator(view.section).first.evaluate("element => element.scrollIntoView()")
                view.act(page)
                page.wait_for_timeout(300)
                page.screenshot(path=out / f"{label}.png", full_page=view.whole)
                overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if overflow > 0:
                    yield f"{label}: {overflow} px wider than the window"
            except Exception as error:
                yield f"{label}: {type(error).__name__}: {str(error)[:200]}"
            yield from (f"{label}: {problem}" for problem in window.problems)
            context.close()


def written(view: View, folder: Path) -> Path:
    """Write the page of a view, and return the file to open."""
    return xlamem.report(*view.paths, **view.options).save(folder / f"{view.name}.html")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dump", type=Path, action="append", default=[])
    parser.add_argument("--only", default="", metavar="WORD", help="views whose names contain this")
    parser.add_argument("--bundle", action="store_true", help="bundle the script first")
    options = parser.parse_args()
    if options.bundle:
        subprocess.run(["node", "build.mjs"], cwd=SCRIPT, check=True)
    from playwright.sync_api import sync_playwright

    pages: Path = options.out / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    hostile = pages / "hostile"
    shown = [*views(hostile), *(View(path.name, (path,), whole=True) for path in options.dump)]
    shown = [view for view in shown if options.only in view.name]
    if not hostile.exists():
        hostile_dump(hostile, long=False)
    n_problems = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        for view in shown:
            for problem in pictures(browser, view, written(view, pages), options.out):
                print(problem, flush=True)
                n_problems += 1
        browser.close()
    print(f"{len(shown) * 4} pictures in {options.out}, {n_problems} problems")
    return min(n_problems, 1)


if __name__ == "__main__":
    sys.exit(main())
