"""The page in a browser shows the numbers of the tables, for every shipped dump."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from browsing import Show, Write, exact_bytes, go, step_shown
from conftest import DUMPS, every

import xlamem
from xlamem.formatting import count, size

pytest_plugins = "chromium"

SAMPLE = (
    "cpu-jaxlib-0.12.0-multiheap",
    "cpu-killed-at-buffer-assignment",
    "cpu-tf-1.15.0-loop",
    "gpu-jax-0.8.2-host_weights_scan",
    "tpu-libtpu-0.0.50.1-tpu7x-donate_adam",
    "tpu-libtpu-0.0.50.1-v5e-odd_tree",
)
"""Three platforms, without allocations, without live ranges, odd names. Quick tests use every second, or all."""
PATHS = sorted(p for p in DUMPS.iterdir() if p.is_dir() and len(xlamem.find(p)) == 1)
EVERY = [pytest.param(p, id=p.name, marks=[] if p.name in SAMPLE[::2] else pytest.mark.slow) for p in PATHS]
SUMMED = [p for p in PATHS if p.name in SAMPLE and "killed" not in p.name]
TIMED = [param for param in EVERY if param.values[0].name not in SAMPLE[1:3]]
MANY = (DUMPS / SAMPLE[0], DUMPS / SAMPLE[4])
N_STEPS = 5


@pytest.mark.parametrize("path", EVERY)
def test_every_dump_is_shown_without_a_problem(path: Path, page_of: Write, show: Show) -> None:
    report = xlamem.report(path)
    page = show(page_of(path))
    verdict = report.programs[0].verdict
    assert page.locator("h1").inner_text() == report.title
    assert page.locator("#verdict .headline").inner_text() == verdict.headline.replace("`", "")
    assert "".join(page.locator("#verdict .figure").inner_text().split()) == size(verdict.must_fit).replace(" ", "")
    for key in ("s", "p", "]", "[", "+", "ArrowRight", "Shift+ArrowLeft", "-", "0", "c", "d", "?", "Escape"):
        page.keyboard.press(key)
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_a_device_without_available_memory(page_of: Write, show: Show) -> None:
    page = show(page_of(MANY[1], device="v5e", resident="16GiB"))
    words = page.locator("#verdict .device-words").inner_text()
    assert "too much" in words
    assert "used" not in words
    bar = page.locator("#verdict .device-bar")
    widths = bar.evaluate("bar => Array.from(bar.children, part => parseFloat(part.style.width))")
    assert sum(widths) == pytest.approx(100)


@pytest.mark.parametrize("path", SUMMED, ids=lambda p: p.name)
def test_the_bill_is_that_of_the_table(path: Path, page_of: Write, show: Show) -> None:
    rows = xlamem.bill(xlamem.read(path)).to_pylist()
    account = rows[0]["account"]
    wanted: dict[str, int] = {}
    for row in rows:
        if row["account"] == account:
            line = row["line"].replace("_", " ")
            wanted[line] = wanted.get(line, 0) + row["bytes"]
    page = show(page_of(path))
    shown = {}
    for body in page.locator("#bill tbody:not(.sum)").all():
        line = body.locator("tr").first
        exact = line.locator("td").first.get_attribute("title")
        shown[line.locator("th").inner_text().strip()] = exact_bytes(str(exact))
    assert shown == {line: n for line, n in wanted.items() if n or line in shown}
    total = page.locator("#bill tbody.sum").last.locator("td").first
    assert exact_bytes(str(total.get_attribute("title"))) == sum(wanted.values())


@pytest.mark.parametrize("path", TIMED)
def test_bytes_in_use_are_those_of_occupancy(path: Path, page_of: Write, show: Show) -> None:
    page = show(page_of(path))
    spaces = xlamem.report(path).programs[0].spaces
    occupancy = xlamem.occupancy(xlamem.read(path)).to_pylist()
    if not occupancy:
        pytest.skip("has no live ranges")
    for space in spaces[:3]:
        rows = [r for r in occupancy if (r["color"], r["page"]) == (space.color, space.page)]
        for i in np.linspace(0, len(rows) - 1, N_STEPS).astype(int):
            go(page, f"space={space.memory_space}&t={rows[i]['time']}")
            assert step_shown(page) == (rows[i]["time"], rows[i]["occupied"])


@pytest.mark.parametrize("path", every(2, MANY), ids=lambda p: p.name)
def test_the_table_of_buffers_is_the_live_set(path: Path, page_of: Write, show: Show) -> None:
    dump = xlamem.read(path)
    page = show(page_of(path))
    page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    (space, *_) = xlamem.report(path).programs[0].spaces
    for step in (0, space.first_step, len(space.usage) - 1):
        go(page, f"t={step}")
        live = xlamem.live_set(dump, step, space=space.memory_space).to_pylist()
        in_use = sum(row["bytes"] for row in live)
        summary = page.locator("#buffers .summary").inner_text()
        assert summary == f"{count(len(live), 'buffer')}, {size(in_use)} in use at step {step:,}"
        page.get_by_role("button", name="Copy", exact=True).click()
        page.wait_for_function("() => window.copied")
        copied = page.evaluate("() => { const text = window.copied; window.copied = ''; return text }")
        rows = list(csv.DictReader(io.StringIO(copied), delimiter="\t", quoting=csv.QUOTE_NONE))
        columns = ("bytes", "exclusive", "role", "allocation")
        shown = [tuple(row[c] for c in columns) for row in rows]
        assert sorted(shown) == sorted(tuple(str(row[c]) for c in columns) for row in live)
