"""The page in a browser where a dump, a gesture or an address is unusual."""

from __future__ import annotations

import shutil
from pathlib import Path

from browsing import Show
from conftest import DUMPS

import xlamem

pytest_plugins = "chromium"

GRAD = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"


def test_a_dump_with_live_ranges_but_no_allocations_is_shown(tmp_path: Path, show: Show) -> None:
    for path in GRAD.iterdir():
        if "buffer-assignment" not in path.name:
            shutil.copy(path, tmp_path)
    page = show(xlamem.report(tmp_path).save(tmp_path / "report.html"))
    assert page.locator("#time").inner_text().endswith("it is not known what is in use.")
    assert page.locator("#detail").inner_text().endswith("Select a buffer in the map or in the table.")
