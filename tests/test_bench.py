"""The benchmarks compare like with like, and their gate closes on planted regressions. Nothing is timed here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forge_bulk import forge_files

import xlamem
import xlamem.schema

HERE = Path(__file__).parent
BENCH = HERE.parent / "bench"
DUMPS = [
    "tpu-libtpu-0.0.50.1-v5e-mlp_grad",  # E7
    "cpu-jaxlib-0.12.0-odd_tree",
    "gpu-jax-0.10.2-attn_cudnn",  # E6
    "gpu-jax-0.8.2-host_weights_scan",  # E5
    "cpu-jaxlib-0.4.35-cond_switch",  # E4: glued records, layout A of the report
    "cpu-jaxlib-0.4.13-donate_adam",  # E3
    "cpu-tf-2.3.4-loop",  # E2
]


pytestmark = pytest.mark.skipif(not BENCH.is_dir(), reason="the benchmarks are not here")


def load(name: str) -> ModuleType:
    """A module of the bench; `compare` is the name of one of the tests, too."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look there
        spec.loader.exec_module(module)
    return module


# ------------------------------------------------------------------------------- the rival


def check_rival(folder: Path) -> None:
    rivals = load("rivals")
    tables = rivals.read(rivals.memory_files(folder))
    dump = xlamem.read(folder)
    for table, columns in rivals.to_arrow(tables).items():
        ours = dump[table]
        lacking = set(ours.column_names) - set(columns.column_names)
        assert {c for c in lacking if ours[c].null_count < ours.num_rows} == set()  # else it would do less work
        assert columns.column_names == [c for c in ours.column_names if c not in lacking]
        assert columns.to_pylist() == ours.select(columns.column_names).to_pylist()


@pytest.mark.parametrize("name", DUMPS)
def test_the_rival_reads_the_same_rows(name: str) -> None:
    if not (HERE / "dumps" / name).is_dir():
        pytest.skip("the dump is not here")
    check_rival(HERE / "dumps" / name)


@pytest.mark.parametrize(("size", "options"), [(0.7, {}), (0.03, {"profile": "small"}), (1.5, {"wide": 130})])
def test_the_rival_reads_the_same_rows_of_forged_dumps(size: float, options: Any, tmp_path: Path) -> None:
    forge_files(tmp_path, seed=2, megabytes=size, **options)
    check_rival(tmp_path)


def test_the_plain_script_converts_each_content_once(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (folder := tmp_path / "dumps" / name).mkdir(parents=True)
        forge_files(folder, seed=int(name == "c"), megabytes=0.02, profile="small")
    command = [sys.executable, BENCH / "plain_convert.py", tmp_path / "dumps", tmp_path / "out", "1"]
    subprocess.run(command, check=True)
    rows = [xlamem.read(tmp_path / "dumps" / name).values.num_rows for name in ("a", "c")]
    assert pq.read_table(tmp_path / "out" / "values").num_rows == sum(rows)


def test_every_order_touches_every_table() -> None:
    for order in load("touching").ORDERS.values():
        assert sorted(order) == sorted(xlamem.schema.TABLES)


# ------------------------------------------------------------------------------- the gate

A = [10.0, 10.2, 9.9, 10.1, 10.0]


def test_noise_is_what_the_same_code_differs_by() -> None:
    compare = load("compare")
    assert compare.noise(A, A) == pytest.approx(compare.LEAST_NOISE)
    assert compare.noise([12.0] * 5, [10.0] * 5) == pytest.approx(0.2)
    assert compare.noise([8.0, 10.0, 12.0] * 3, [8.0, 10.0, 12.0] * 3) > 0.1


def test_a_slower_ratio_is_found_beyond_the_noise() -> None:
    compare = load("compare")

    def word(base: float, a: list[float], b: list[float]) -> str:
        (verdict,) = compare.judge_ratios({"dense": (a, b)}, {"dense": base}, 0.1)
        return str(verdict.word)

    assert word(10, A, A) == "ok"
    assert word(8.5, A, A) == "WORSE"
    assert word(9.5, A, A) == "ok"  # 5 %
    assert word(12, A, A) == "better"
    assert word(9.5, A, [12.0] * 5) == "ok"  # the run is too noisy to say


def test_more_instructions_are_found() -> None:
    compare = load("compare")
    base = {"dense": 1000, "wide": 1000, "small": 1000}
    found = compare.judge_counts({"dense": 1029, "wide": 1031, "small": 900, "other": 5}, base, 0.03)
    assert [v.word for v in found] == ["ok", "WORSE", "better", "new"]
    assert [v.worse for v in found] == [False, True, False, False]


def gate(monkeypatch: pytest.MonkeyPatch, place: Path, dense: int) -> int:
    """The exit code of the gate when `dense` instructions are counted where the baseline has 1000."""
    compare = load("compare")
    monkeypatch.setattr(compare, "BASELINE", place)
    monkeypatch.setattr(compare, "measure_counts", lambda: ({"dense": dense}, {"python": "3.11"}))
    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/valgrind")
    monkeypatch.setattr("sys.path", [*sys.path])
    return int(compare.main(["--only", "counts"]))


def stored(place: Path, **counts: int) -> None:
    (place / "counts.json").write_text(json.dumps({"environment": {"python": "3.11"}, "counts": counts}))


def test_the_gate_closes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored(tmp_path, dense=1000)
    assert gate(monkeypatch, tmp_path, 1010) == 0
    assert "WORSE" not in capsys.readouterr().out
    assert gate(monkeypatch, tmp_path, 1100) == 1
    said = capsys.readouterr().out
    assert "WORSE" in said
    assert "+10.0%" in said


def test_the_gate_closes_if_less_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stored(tmp_path, dense=1000, wide=1000)
    assert gate(monkeypatch, tmp_path, 1000) == 1


def test_without_a_baseline_there_is_nothing_to_compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert gate(monkeypatch, tmp_path, 1000) == 0


def test_the_stored_baselines_are_whole() -> None:
    for kind in ("ratios", "counts"):
        found = json.loads((BENCH / "baseline" / f"{kind}.json").read_text())
        assert found["environment"]
        assert {name.split(",")[0] for name in found[kind]} == {"dense", "wide", "small"}
        assert all(number > 0 for number in found[kind].values())


def test_goals_are_read_off_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rivals", load("rivals"))
    monkeypatch.setitem(sys.modules, "real", load("real"))
    monkeypatch.setitem(sys.modules, "tabular", tabular := load("tabular"))
    goals = load("goals")
    monkeypatch.setattr(goals, "REASONS", {"dense: MB of memory above 1.1 x tables": "because"})
    size = {"MB": "100"}
    rows = [
        tabular.Row("dense: 102.3 MB in 1 dump", "xlamem, all tables", {"x wc -l": "5.90", "MB excess": "1,061.0"}),
        tabular.Row("tables touched, dense: 10 MB", "in reverse", {"MB": "10", "x CPU": "1.50", "x wc -l": "9.00"}),
        tabular.Row("tables touched, v5e-unrolled: 100 MB", "in reverse", size | {"x CPU": "1.10", "x wc -l": "7.00"}),
        tabular.Row("tables touched, v5e-unrolled: 100 MB", "values first", size | {"x CPU": "1.07"}),
    ]
    found = {row.label: [cell for cell in row.cells.values() if cell] for row in goals.judged(rows)}
    assert found == {
        "record-dense TPU dumps: CPU / wc -l": ["<= 8", "9.00", "missed", "tables touched, dense; in reverse"],
        "two threads, 20 MB and more: CPU / one thread": [
            "<= 1.1", "1.10", "met", "tables touched, v5e-unrolled; in reverse",
        ],
        "dense, all tables: CPU / wc -l": ["<= 6", "5.90", "met"],
        "dense: MB of memory above 1.1 x tables": ["<= 50", "1,061.0", "missed", "because"],
    }  # fmt: skip


# ------------------------------------------------------------------------------- inputs and tables


def test_inputs_that_look_like_no_real_dump_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "rivals", load("rivals"))
    inputs = load("inputs")
    monkeypatch.setattr(inputs, "DATA", tmp_path)
    shape = inputs.shape("dense", 2)
    assert len(shape.files) == 4
    assert shape.bytes == pytest.approx(2e6, rel=0.15)
    monkeypatch.setattr(inputs, "misfits", lambda found, kind: {"name_length": (30.0, 15.4)})
    with pytest.raises(ValueError, match=r"do not look like real ones.*name_length"):
        inputs.shape("dense", 2.5)


def test_bytes_of_tables_count_shared_buffers_once() -> None:
    measure = load("measure")
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), ["one", "two"])
    table = pa.table({"a": names, "n": pa.array([1, 2], pa.int64())})
    assert measure.tables_bytes([table, table]) == measure.tables_bytes([table]) == 2 * 4 + 3 * 4 + 6 + 2 * 8


def test_tables_are_kept_between_their_marks(tmp_path: Path) -> None:
    tabular = load("tabular")
    rows = [tabular.Row("t", "first", {"x": "1"}), tabular.Row("t", "second", {"x": "22", "y": "3"})]
    lines = tabular.render(rows)
    assert lines == ["t", "         x  y", "first    1", "second  22  3"]
    page = tmp_path / "page.md"
    page.write_text(f"before\n{tabular.BEGIN}old\n{tabular.END}after\n")
    tabular.keep(lines, page)
    tabular.keep(lines, page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.count("    first    1\n") == 1
