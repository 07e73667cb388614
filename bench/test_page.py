"""The page of a million buffers: how long it takes to write, its size, its first paint and its frames per second.

Frames are those of headless Chromium, which draws on the CPU. Without Playwright and Chromium only writing is measured.
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import inputs
import pytest
from measure import run_command
from tabular import Row

sys.path.append(str(Path(__file__).parents[1] / "tests" / "page"))

VALUES_PER_MB = 1587
"""Of a dense dump."""
FRAMES = 120
TITLE = "the page of large programs (a new process each, with the start of Python)"
GESTURES = {"zoom the map": (".map canvas.overlay", "zoom"), "pan the map": (".map canvas.overlay", "pan"),
            "zoom the timeline": (".timeline .u-over", "zoom"), "pan the timeline": (".timeline .u-over", "pan")}
"""Element, and what the wheel does over it."""
DRIVE = """([selector, gesture, frames]) => new Promise(done => {
    const element = document.querySelector(selector), box = element.getBoundingClientRect(), times = [];
    const there = i => i < frames / 2 ? -1 : 1;
    const wheel = i => gesture === 'zoom' ? { deltaY: 60 * there(i) } : { deltaX: -20 * there(i) };
    const frame = time => {
        times.push(time);
        if (times.length > frames) return done(times);
        element.dispatchEvent(new WheelEvent('wheel', { bubbles: true, cancelable: true,
            clientX: box.left + 0.4 * box.width, clientY: box.top + 0.5 * box.height, ...wheel(times.length) }));
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
})"""
"""Turns the wheel once per frame, there and back; returns the times of the frames in milliseconds."""


@pytest.mark.benchmark(warmup=False)
def test_write(values: int, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    shape = inputs.shape("dense", round(values / VALUES_PER_MB))
    output = tmp_path / "report.html"
    command = [Path(sys.executable).with_name("xlamem"), "report", shape.root, "-o", output]
    used: list[dict[str, float]] = []
    benchmark.pedantic(lambda: used.append(run_command(command)), rounds=3)
    cells = {
        "MB dump": f"{shape.bytes / 1e6:,.0f}",
        "s": f"{statistics.median(u['wall_s'] for u in used):.1f}",
        "CPU s": f"{statistics.median(u['cpu_s'] for u in used):.1f}",
        "MB memory": f"{max(u['peak_bytes'] for u in used) / 1e6:,.0f}",
        "MB page": f"{output.stat().st_size / 1e6:.2f}",
    }
    rows.append(Row(TITLE, f"{values:,} buffers: write", cells))
    _browse(output, f"{values:,} buffers", rows)


def _browse(page: Path, label: str, rows: list[Row]) -> None:
    browsing = pytest.importorskip("browsing")
    sync_api = pytest.importorskip("playwright.sync_api")
    path = browsing.executable()
    if path is None:
        return
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=browsing.ARGUMENTS)
        window = browsing.Window(browser.new_context(viewport={"width": 1280, "height": 900}))
        shown = window.open(page)
        ready = shown.evaluate("() => performance.now()")
        paints = shown.evaluate("() => performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)")
        cells = {"first paint s": f"{min(paints) / 1e3:.2f}", "all s": f"{ready / 1e3:.2f}"}
        rows.append(Row(TITLE, f"{label}: open", cells))
        for what, (selector, gesture) in GESTURES.items():
            shown.locator(selector).first.evaluate("element => element.scrollIntoView({ block: 'center' })")
            if gesture == "pan":
                shown.evaluate(DRIVE, [selector, "zoom", FRAMES // 4])
            times = shown.evaluate(DRIVE, [selector, gesture, FRAMES])
            gaps = sorted(b - a for a, b in pairwise(times))
            median, slow = gaps[len(gaps) // 2], gaps[len(gaps) * 95 // 100]
            cells = {"frames/s": f"{1e3 / median:.0f}", "slowest 5 %": f"{1e3 / slow:.0f}"}
            rows.append(Row(TITLE, f"{label}: {what}", cells))
        browser.close()
    if window.problems:
        raise RuntimeError(f"the page has problems: {window.problems}")
