"""Peak and timeline of one program with XProf and with xlamem. Skipped if XProf or JAX is not installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import real
import rivals
from measure import in_fresh_process
from tabular import Row


@pytest.mark.parametrize("name", ["v5e-unrolled", "cpu-unrolled"])
@pytest.mark.benchmark(warmup=False)
def test_xprof(name: str, others: str, tmp_path: Path, benchmark: Any, rows: list[Row]) -> None:
    if not real.has(others, "xprof", "jax"):
        pytest.skip("xprof and jax are not installed: pip install xprof jax, here or elsewhere (--others PYTHON)")
    program = real.folder(name, others)
    proto = real.proto(program)
    text = rivals.memory_files(program)
    for path in text:  # the memory files alone
        (tmp_path / path.name).symlink_to(path)
    (profile := tmp_path / "profile").mkdir()
    (profile / "program.hlo_proto.pb").write_bytes(proto.read_bytes())
    (profile / "host.xplane.pb").touch()
    theirs = in_fresh_process("xprof_viewer", "xprof", profile / "host.xplane.pb", python=others)
    ours = benchmark.pedantic(in_fresh_process, ("xprof_viewer", "xlamem", tmp_path), rounds=1)
    size = sum(path.stat().st_size for path in text)
    for label, found, read in (("xlamem, from text", ours, size), ("XProf, from proto", theirs, proto.stat().st_size)):
        cells = {
            "MB input": f"{read / 1e6:.1f}",
            "CPU ms": f"{1e3 * found['again_s']:.2f}",
            "first": f"{1e3 * found['first_s']:.2f}",
            "MB memory": f"{found['peak_bytes'] / 1e6:.1f}",
            "x CPU": f"{found['again_s'] / ours['again_s']:.1f}",
            "x first": f"{found['first_s'] / ours['first_s']:.1f}",
            "x memory": f"{found['peak_bytes'] / max(ours['peak_bytes'], 1):.1f}",
        }
        rows.append(Row(f"XProf, {name}: peak and timeline of one program", label, cells))
    benchmark.extra_info.update({"xprof": theirs, "xlamem": ours})
