"""Several nights of a small fleet, with kills: see `seven_nights`, which does the same with any number of dumps."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from seven_nights import Nights, counted, several_nights


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("registered", [(), ("iceberg", "delta")])
def test_killed_commands_and_an_independent_count(tmp_path: Path, registered: tuple[str, ...]) -> None:
    for library in ("pyiceberg", "deltalake") if registered else ():
        pytest.importorskip(library)
    nights = Nights(tmp_path / "in", tmp_path / "out", random.Random(3), kills=2, registered=registered)
    nights.forge(250)
    several_nights(nights, 4)
    assert nights.killed


def test_the_independent_count_notices_what_is_missing(tmp_path: Path) -> None:
    nights = Nights(tmp_path / "in", tmp_path / "out", random.Random(3), kills=0)
    nights.forge(3)
    nights.night("1")
    key, rows = counted(nights.fleet[0])
    assert rows["values"] > rows["allocations"] > 0
    nights.contents["another"] = nights.contents[key]
    with pytest.raises(AssertionError, match="ledger has"):
        nights.check("night 1")
