"""A page of a million buffers: zoom, selection, search and sorting work. bench/test_page.py measures how fast."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from browsing import Show, fragment, go, settle, step_shown
from conftest import DUMPS

import xlamem

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from xlamem.page.model import Program

pytest_plugins = "chromium"

LAYERS = DUMPS / "cpu-jaxlib-0.12.0-multiheap"
STRETCH = 80
"""Steps of the large program for each step of the small one."""


def enlarged(program: Program, n: int) -> Program:
    """Return the program with each buffer repeated within its life: so many rectangles, the same bytes in use."""
    b = program.buffers
    steps = program.steps
    assert steps is not None
    timed = np.flatnonzero(b.start >= 0)
    row = np.repeat(timed, -(-n // len(timed)))[:n]
    rng = np.random.default_rng(1)
    first, last = b.start[row] * STRETCH, b.end[row] * STRETCH + STRETCH - 1
    start, end = np.sort(rng.integers(first, last + 1, (2, n)), axis=0)
    order = np.argsort(start, kind="stable")
    repeated = {
        f.name: getattr(b, f.name)[row[order]]
        for f in fields(b)
        if isinstance(getattr(b, f.name), np.ndarray)
    }
    repeated |= {"value_id": np.arange(n), "start": start[order], "end": end[order]}
    none = np.empty(0, np.int64)
    return replace(
        program,
        steps=steps * STRETCH,
        spaces=[_stretched(space) for space in program.spaces],
        phases=replace(
            program.phases,
            first_step=program.phases.first_step * STRETCH,
            last_step=program.phases.last_step * STRETCH + STRETCH - 1,
        ),
        schedule=np.repeat(program.schedule, STRETCH),
        buffers=replace(b, **repeated),
        uses=replace(program.uses, buffer=none, instruction=none, step=none),
        aliases=replace(program.aliases, buffer=none, instruction=none, shape_index=none),
        advice=[],
    )


def _stretched(space: Any) -> Any:
    plateaus = [
        {**p, "first_step": p["first_step"] * STRETCH, "last_step": p["last_step"] * STRETCH + STRETCH - 1}
        for p in space.plateaus
    ]
    ends = {"first_step": space.first_step * STRETCH, "last_step": space.last_step * STRETCH + STRETCH - 1}
    return replace(space, usage=np.repeat(space.usage, STRETCH), plateaus=plateaus, **ends)


def wheel(page: Page, delta: int, times: int) -> None:
    for _ in range(times):
        page.mouse.wheel(0, delta)
        settle(page)


@pytest.mark.parametrize("n", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_many_buffers_are_zoomed_searched_and_selected(n: int, tmp_path: Path, show: Show) -> None:
    report = xlamem.report(LAYERS)
    page = show(replace(report, programs=[enlarged(report.programs[0], n)]).save(tmp_path / "report.html"))
    label = page.locator(".map canvas.base")
    assert f"{n:,} buffers" in str(label.get_attribute("aria-label"))
    peak = step_shown(page)[0]
    label.evaluate("element => element.scrollIntoView({ block: 'center' })")
    box = label.bounding_box()
    assert box
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    wheel(page, -500, 8)
    first, last = map(int, fragment(page)["zoom"].split("-"))
    assert last - first < 2000
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
    settle(page)
    wheel(page, 500, 12)
    assert "zoom" not in fragment(page)
    go(page, f"t={peak}&buffer={n // 2}")
    assert page.locator("#detail h3").count() == 1
    page.get_by_role("searchbox").fill("tanh")
    page.wait_for_function("() => location.hash.includes('q=tanh')")
    settle(page)
    assert " of " in page.locator("#buffers .summary").inner_text()
    page.locator("#buffers [role=columnheader]", has_text="Name").get_by_role("button").click()
    assert "tanh" in page.locator("#buffers [role=row]:has([role=gridcell])").first.inner_text()
