"""What `check` says about stored programs in every format, compared with what it said before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS
from pairs import Pair
from pairs import stored as pairs
from stored import check

import xlamem
from xlamem.gate.formats import FORMATS

OF_PAIRS = (
    "cpu-layer-added-sgd", "cpu-donation-removed-decode", "v5e-remat-removed-scan", "v5e-offload-removed",
    "v5e-type-changed-scan", "v5e-upgraded", "h100-upgraded", "tpu7x-offload-removed", "cpu-names",
)  # fmt: skip
BUDGETS: dict[str, Any] = {
    "budget": [
        {"device": "v5e", "fraction": 0.5, "resident": "7GiB"},
        {"device_total": "1MiB", "padding": "5%", "packing": "1%"},
        {"program": "jit_*", "peak": "200KiB", "donation": "required", "named": "90%"},
    ]
}


def said(result: xlamem.CheckResult) -> list[tuple[str, Any]]:
    tables = [(name, getattr(result, name)) for name in ("findings", "programs", "contributors")]
    return [("exit code", result.exit_code), *tables, *((name, f(result)) for name, f in FORMATS.items())]


@pytest.mark.parametrize("pair", [p for p in pairs() if p.name in OF_PAIRS], ids=lambda pair: pair.name)
def test_growth(pair: Pair, tmp_path: Path) -> None:
    a, b = pair.unpack(tmp_path)
    check(f"gate/{pair.name}", said(xlamem.check(b, config={}, baseline=a)), tmp_path)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_budgets(platform: str) -> None:
    dumps = [s for f in sorted(DUMPS.glob(f"{platform}-*")) for s in xlamem.find(f)]
    check(f"gate/budgets-{platform}", said(xlamem.check(dumps, config=BUDGETS)))
