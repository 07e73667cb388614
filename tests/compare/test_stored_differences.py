"""Differences, pairs and series of stored programs, compared with what they were before."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import DUMPS, every
from pairs import Pair, stored
from stored import check

import xlamem

TABLES = ("accounts", "bills", "buffers", "edits", "matches")


@pytest.mark.parametrize("pair", every(2, stored()), ids=lambda pair: pair.name)
def test_differences(pair: Pair, tmp_path: Path) -> None:
    a, b = pair.unpack(tmp_path)
    difference = xlamem.diff(a, b)
    found = [(name, getattr(difference, name)) for name in TABLES]
    check(f"compare/{pair.name}", [*found, ("view", str(difference))], tmp_path)


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_pairs(platform: str) -> None:
    """The programs of two releases, with names and fingerprints that differ."""
    folders = sorted(DUMPS.glob(f"{platform}-*"))
    old, new = folders[: len(folders) // 2], folders[len(folders) // 2 :]
    paired = xlamem.pair([s for f in old for s in xlamem.find(f)], [s for f in new for s in xlamem.find(f)])
    check(f"compare/pairs-{platform}", [(name, paired[name].to_pylist()) for name in paired.column_names])
