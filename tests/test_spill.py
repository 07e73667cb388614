"""Large arrays in files: what NumPy does must not depend on where its arrays are."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import numpy as np
import pytest

from xlamem.warehouse import spill


@pytest.fixture
def all_in_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every array of a page goes to a file in this folder."""
    monkeypatch.setattr(spill, "LARGE", 4096)
    monkeypatch.setattr(spill, "MOST", 1 << 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mapped_in(folder: Path) -> int:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("no list of mapped files here")
    return sum(str(folder) in line for line in maps.read_text().splitlines())


def test_large_arrays_lie_in_files_without_a_name(all_in_files: Path) -> None:
    with spill.mapped():
        small = np.ones(100)
        first = np.ones(4096)  # room for it is in memory
        second = np.ones(8192)
        assert mapped_in(all_in_files) == 1
        assert not list(all_in_files.iterdir())
    outside = np.ones(8192)
    assert mapped_in(all_in_files) == 1
    assert small.sum() + first.sum() + second.sum() + outside.sum() == 100 + 4096 + 2 * 8192
    del small, first, second
    gc.collect()
    assert mapped_in(all_in_files) == 0


def test_computing_is_as_ever(all_in_files: Path) -> None:
    def computed() -> list[np.ndarray]:
        n = np.arange(100_000) * 7919 % 100_003
        grown = n.copy()
        grown.resize(150_000)
        grown.resize(50_000)
        dirty = np.full(40_000, 7)
        del dirty  # its memory may be used again, and is to be zeros then
        return [np.sort(n), np.argsort(n, kind="stable"), np.where(n > 5, n, -1), grown, np.zeros(40_000, np.int64)]

    before = computed()
    with spill.mapped():
        within = computed()
    for a, b in zip(before, within, strict=True):
        assert np.array_equal(a, b)


def test_without_room_for_files_arrays_stay_in_memory(all_in_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(all_in_files / "missing"))
    with spill.mapped():
        assert np.ones(1 << 20).sum() == 1 << 20


def test_what_made_arrays_before_does_so_again() -> None:
    name = np._core.multiarray.get_handler_name if hasattr(np, "_core") else np.core.multiarray.get_handler_name
    before = name()
    with spill.mapped():
        assert name(np.ones(1)) == "xlamem_mapped"
    assert name(np.ones(1)) == name() == before
