"""Computations that look at some memory spaces and steps at a time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from conftest import DUMPS, every
from fuzz.computations import plain

import xlamem
from xlamem import compute
from xlamem.compute import in_use
from xlamem.errors import UsageError


@pytest.mark.parametrize("source", every(5, xlamem.find(DUMPS)), ids=lambda s: s.name)
def test_spaces_part_by_part(source: xlamem.Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many spaces and steps are looked at together: the numbers are the same."""
    names = [n for n in compute.REGISTRY if n != "occupancy"]

    def found() -> list[pa.Table]:
        dump, tables = xlamem.read(source), []
        for name in names:
            try:
                tables.append(plain(compute.REGISTRY[name](dump)))
            except UsageError:
                tables.append(None)
        return tables

    expected = found()
    for part in (1, 100):
        monkeypatch.setattr(in_use, "MAX_CELLS", part)
        for name, ours, theirs in zip(names, expected, found(), strict=True):
            assert ours is None or ours.equals(theirs), name
