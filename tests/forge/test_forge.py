"""Forged dumps have the texture of real ones: else a benchmark on them measures something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bulk_statistics import MEASURED, misfits, statistics, wide_statistics
from conftest import CORPUS
from forge_bulk import forge_files
from forge_large import forge_large

import xlamem


def check(folder: Path) -> None:
    dump = xlamem.read(folder)
    assert dump.verify().num_rows == 0
    assert dump.complete


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_forged_files_look_like_real_ones(platform: Any, tmp_path: Path) -> None:
    assert misfits(statistics(forge_files(tmp_path, seed=5, megabytes=4, platform=platform)), platform) == {}
    check(tmp_path)


def test_sharded_ones_look_like_real_ones(tmp_path: Path) -> None:
    assert misfits(statistics(forge_files(tmp_path, seed=5, megabytes=8, profile="sharded")), "sharded") == {}
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_large_ones_look_like_real_ones(platform: Any, tmp_path: Path) -> None:
    assert misfits(statistics(forge_large(tmp_path, seed=5, copies=2, platform=platform)), platform) == {}
    check(tmp_path)


@pytest.mark.slow
def test_a_large_one_is_one_program(tmp_path: Path) -> None:
    forge_large(tmp_path, seed=6, copies=3)
    dump = xlamem.read(tmp_path)
    assert dump.verify().num_rows == 0
    for table, column in (("values", "value_id"), ("allocations", "allocation"), ("schedule", "time")):
        assert len(dump[table][column].unique()) == dump[table].num_rows, table
    # What the forward half keeps lives until the backward half of the same copy.
    half = dump.schedule.num_rows // 2
    start, end = (dump.live_ranges[c].to_numpy() for c in ("start", "end"))
    assert dump.modules["printed_peak_time"][0].as_py() == half - 1
    assert dump.printed_peak.num_rows == pytest.approx(((start < half) & (end >= half)).sum(), rel=0.01)


def test_small_ones_look_like_real_ones(tmp_path: Path) -> None:
    found = []
    for seed in range(20):
        (folder := tmp_path / str(seed)).mkdir()
        found.append(statistics(forge_files(folder, seed=seed, megabytes=0.028, profile="small")))
        check(folder)
    assert misfits({name: sum(s[name] for s in found) / len(found) for name in found[0]}, "small") == {}


def test_wide_ones_look_like_real_ones(tmp_path: Path) -> None:
    assert misfits(wide_statistics(forge_files(tmp_path, seed=5, megabytes=5, wide=280)), "wide") == {}
    check(tmp_path)


def test_what_does_not_fit_is_named() -> None:
    found = MEASURED["tpu"] | {"name_length": 30.0}
    assert misfits(found, "tpu") == {"name_length": (30.0, MEASURED["tpu"]["name_length"])}


def test_what_real_ones_look_like() -> None:
    folder = CORPUS / "big-cpu"
    if not folder.is_dir():
        pytest.skip("the larger collection of dumps is not here")
    found = statistics(p for case in sorted(folder.iterdir())[:1] for p in case.iterdir())
    for name, wanted in MEASURED["cpu"].items():
        assert found[name] == pytest.approx(wanted, rel=0.01), name
