"""Forged dumps have the texture of real ones: else a benchmark on them measures something else."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import CORPUS
from forge_bulk import MEASURED, forge_files, statistics

import xlamem

REAL = {"cpu": "big-cpu", "tpu": "big-tpu-v5e"}


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_forged_files_look_like_real_ones(platform: str, tmp_path: Path) -> None:
    found = statistics(forge_files(tmp_path, seed=5, megabytes=4, platform=platform))
    for name, wanted in MEASURED[platform].items():
        assert found[name] == pytest.approx(wanted, rel=0.15, abs=0.02), name
    dump = xlamem.read(tmp_path)
    assert dump.verify().num_rows == 0
    assert dump.complete


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_what_real_ones_look_like(platform: str) -> None:
    folder = CORPUS / REAL[platform]
    if not folder.is_dir():
        pytest.skip("the larger collection of dumps is not here")
    found = statistics(p for case in sorted(folder.iterdir())[:1] for p in case.iterdir())
    for name, wanted in MEASURED[platform].items():
        assert found[name] == pytest.approx(wanted, rel=0.01), name
