"""The yardstick of the benchmarks reads the same rows as the package: else they compare nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import xlamem

HERE = Path(__file__).parent
RIVALS = HERE.parent / "bench" / "rivals.py"
DUMPS = [
    "tpu-libtpu-0.0.50.1-v5e-mlp_grad",  # E7
    "cpu-jaxlib-0.12.0-odd_tree",
    "gpu-jax-0.10.2-attn_cudnn",  # E6
    "gpu-jax-0.8.2-host_weights_scan",  # E5
    "cpu-jaxlib-0.4.35-cond_switch",  # E4: glued records, layout A of the report
    "cpu-jaxlib-0.4.13-donate_adam",  # E3
    "cpu-tf-2.3.4-loop",  # E2
]

pytestmark = pytest.mark.skipif(not RIVALS.exists(), reason="the benchmarks are not here")


@pytest.mark.parametrize("name", DUMPS)
def test_the_rival_reads_the_same_rows(name: str) -> None:
    if not (HERE / "dumps" / name).is_dir():
        pytest.skip("the dump is not here")
    spec = importlib.util.spec_from_file_location("rivals", RIVALS)
    assert spec is not None
    assert spec.loader is not None
    rivals = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rivals)
    tables = rivals.read(rivals.memory_files(HERE / "dumps" / name))
    dump = xlamem.read(HERE / "dumps" / name)
    for table, columns in rivals.to_arrow(tables).items():
        ours = dump[table]
        left_out = {"text"} if table == "instructions" else set()
        assert columns.column_names == [c for c in ours.column_names if c not in left_out]
        assert columns.to_pylist() == ours.select(columns.column_names).to_pylist()
