"""Temporary storage on disk: memory-mapped arrays and tables."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xlamem import OutputError
from xlamem.warehouse import spill


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of temporary files; arrays share files of 64 KiB."""
    monkeypatch.setattr(spill, "REGION_BYTES", 1 << 16)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mappings(folder: Path) -> int:
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("/proc/self/maps is missing")
    return sum(str(folder) in line for line in maps.read_text().splitlines())


def test_arrays_share_unlinked_files(folder: Path) -> None:
    scratch = spill.Scratch()
    arrays = [scratch.empty(1000, np.int32), scratch.empty(4096, np.int64), scratch.empty(20_000, np.uint8)]
    assert mappings(folder) == 1
    arrays.append(scratch.empty(1 << 17, np.uint8))  # larger than a region: a file of its own
    assert mappings(folder) == 2
    assert not list(folder.iterdir())
    for i, array in enumerate(arrays):
        array[:] = i
    assert [a.sum() for a in arrays] == [i * len(a) for i, a in enumerate(arrays)]
    assert all(type(a) is np.ndarray for a in arrays)


def test_a_file_is_freed_with_its_last_array(folder: Path) -> None:
    scratch = spill.Scratch()
    first, second = scratch.empty(10, np.int64), scratch.empty(10, np.int64)
    third = scratch.empty(1 << 16, np.uint8)
    assert mappings(folder) == 2
    del first
    assert mappings(folder) == 2
    second[:] = 7
    del second, scratch
    gc.collect()
    assert mappings(folder) == 1
    del third
    gc.collect()
    assert mappings(folder) == 0


@pytest.mark.parametrize("fallocate", [True, False])
def test_blocks_are_allocated_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch, fallocate: bool) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with tempfile.TemporaryFile() as file:
        spill._reserve(file, 100_001)
        status = os.fstat(file.fileno())
        assert status.st_size == 100_001
        assert status.st_blocks * 512 >= 100_001


def test_a_full_disk_leaves_arrays_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Any, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spill, "_reserve", full)
    array = spill.Scratch().empty(1 << 17, np.int64)
    array[:] = 1
    assert array.sum() == 1 << 17
    assert mappings(folder) == 0


def test_a_missing_directory_leaves_arrays_in_memory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    assert len(spill.Scratch().empty(100, np.int64)) == 100


def test_tables_outlive_the_spill(folder: Path) -> None:
    rows = pa.table({"a": pa.array([1, 2, 3]), "b": pa.array(["x", None, "z"]).dictionary_encode()})
    with spill.Spill({"t": rows.schema, "empty": rows.schema}) as kept:
        kept.add("t", rows)
        kept.add("t", rows.slice(1))
        tables = kept.tables()
    assert tables["t"].to_pylist() == [*rows.to_pylist(), *rows.slice(1).to_pylist()]
    assert (tables["empty"].num_rows, tables["empty"].schema) == (0, rows.schema)
    assert not list(folder.iterdir())


def test_an_unwritable_directory_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "missing"))
    with pytest.raises(OutputError, match=r"cannot write to .*missing"):
        spill.Spill({"t": pa.schema([("a", pa.int64())])})
