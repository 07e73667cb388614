"""The screens of stored programs at several widths and heights, compared with what they were before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from conftest import DUMPS
from stored import check

import xlamem
from xlamem import compute
from xlamem.cli.inputs import Program
from xlamem.cli.options import Output
from xlamem.cli.reporters import advice, bill, buffer, explain, peak

WIDTHS = (40, 72, 100, 150, None)
PROBLEM = "it is truncated, so that the numbers cover only what is present in its files"


def drawn(lines: Iterable[Any]) -> str:
    return "\n".join(f"{line.style}: {line.markup}" for line in lines)


@pytest.fixture
def dump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> xlamem.Dump:
    """A program, whose path is relative: how it is shortened must not depend on where the tests are."""
    monkeypatch.chdir(DUMPS)
    return xlamem.read(request.param)


@pytest.mark.parametrize(
    "dump", ["cpu-jaxlib-0.12.0-multiheap", "tpu-libtpu-0.0.50.1-v5e-host_offload"], indirect=True, ids=("cpu", "tpu")
)
def test_screens(dump: xlamem.Dump, request: pytest.FixtureRequest) -> None:
    total = compute.device_total(dump) or 0

    def results() -> Iterator[tuple[str, Any]]:
        overview = compute.summarize(dump, limit=10)
        rows = compute.advise(dump).to_pylist()
        for i, capacity in enumerate((None, 2 * total, total // 2, total // 4)):
            fits = None if capacity is None else compute.fits(dump, capacity=capacity)
            problems, savings = [PROBLEM] * (i % 2), rows[: i if i > 1 else 0]
            for k, width in enumerate(WIDTHS):
                layout = peak.Layout(width, (None, 3, 0)[(i + k) % 3], k == 2, k == 1, (40, 24, 30)[k % 3])
                lines = peak.screen(Program(overview, fits, problems, savings), layout, all_spaces=k != 3)
                yield f"peak {i} {width}", drawn(lines)
        plans = [compute.plan_advice(dump, budget) for budget in (None, total, total * 9 // 10, total // 3)]
        numbers, causes = compute.explain(dump).to_pylist(), compute.explain_causes(dump).to_pylist()
        values = dump["values"]["value_id"].to_pylist()
        found = [compute.buffer(dump, str(values[i])) for i in (0, len(values) // 3, len(values) // 2, -1)]
        for width in WIDTHS:
            yield f"bill {width}", drawn(bill.screen(dump, compute.bill(dump).to_pylist(), None, width))
            for verbose in (False, True):
                yield f"explain {width} {verbose}", drawn(explain.screen(dump, numbers, causes, width, verbose=verbose))
            for i, b in enumerate(found):
                yield f"buffer {i} {width}", drawn(buffer.screen(dump, b, width, (None, 2, 0)[i % 3]))
        for i, (table, plan) in enumerate(plans):
            for limit in (None, 1, 50):
                lines = advice.screen(dump, table.to_pylist(), plan, Output(limit=limit, wide=True))
                yield f"advice {i} {limit}", drawn(lines)

    check(f"cli/program-{request.node.callspec.id}", results())
