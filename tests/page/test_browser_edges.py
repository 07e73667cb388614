"""The page in a browser where a dump, a gesture or an address is unusual."""

from __future__ import annotations

import shutil
from pathlib import Path

from browsing import Show, Write, fragment, go, settle
from conftest import DUMPS

import xlamem

pytest_plugins = "chromium"

CPU = DUMPS / "cpu-jaxlib-0.9.1-mlp_grad"
GRAD = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


def test_a_dump_with_live_ranges_but_no_allocations_is_shown(tmp_path: Path, show: Show) -> None:
    for path in GRAD.iterdir():
        if "buffer-assignment" not in path.name:
            shutil.copy(path, tmp_path)
    page = show(xlamem.report(tmp_path).save(tmp_path / "report.html"))
    assert page.locator("#time").inner_text().endswith("it is not known what is in use.")
    assert page.locator("#detail").inner_text().endswith("Select a buffer in the map or in the table.")


def test_a_link_to_another_program_keeps_what_both_have_in_common(page_of: Write, show: Show) -> None:
    page = show(page_of(CPU, GRAD))
    for link in ("program=0&t=8", "program=0&color=kind&q=dot", "color=kind&q=dot", "program=0&t=8&color=kind"):
        go(page, link)
        settle(page)
        assert fragment(page) == dict(part.split("=") for part in link.split("&"))
    page.go_back()
    settle(page)
    assert fragment(page) == {"color": "kind", "q": "dot"}
