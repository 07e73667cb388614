"""Origins of buffers, on training steps for which the shapes of the buffers tell where they belong."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS

import xlamem
from xlamem import compute
from xlamem.compute import origins as module
from xlamem.compute.buffer_names import source_columns
from xlamem.compute.op_names import is_move, phases
from xlamem.compute.program import source_lines

DATA = Path(__file__).parent.parent / "data" / "origins"
PROGRAM = (DATA / "program.py").read_text().splitlines()
TIMES, FEATURES, VOCABULARY, LAYERS = 96, 640, 1152, 5
PROGRAMS = sorted(path.name.removesuffix(".tar.gz") for path in DATA.glob("*.tar.gz"))
LARGE = 16 << 10


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("origins")
    for name in PROGRAMS:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            archive.extractall(root / name, filter="data")
    return {name: root / name for name in PROGRAMS}


def union(ranges: Iterable[tuple[int, int]]) -> int:
    """Number of bytes in any of the address ranges."""
    size = reached = 0
    for begin, end in sorted(ranges):
        size += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return size


def large_rows(dump: xlamem.Dump) -> list[dict[str, Any]]:
    return [r for r in xlamem.live_set(dump).to_pylist() if r["role"] == "value" and r["size"] >= LARGE]


def true_blocks(shape: str) -> str | None:
    """Return a pattern that the name of a buffer of this shape must match; None if the shape does not tell."""
    dimensions = [int(n) for n in re.findall(r"\d+", shape[shape.find("[") : shape.find("]")])]
    if FEATURES in dimensions or FEATURES // 2 in dimensions:  # which may be divided among devices
        return r"/mlp/|\['up'\]|\['down'\]"
    if dimensions.count(TIMES) == 2:
        return "/attention/"
    if VOCABULARY in dimensions:
        in_loss = r"log_softmax|take_along_axis|jvp\(\)+/(gather|scatter-add|reduce\w*|neg|mul|div|exp|sub)"
        return rf"unembed|embedding|{in_loss}"
    return None


def lines_of(function: str) -> range:
    """Return the numbers of the lines of a function of the program."""
    first = next(i for i, line in enumerate(PROGRAM, 1) if line.startswith(f"def {function}("))
    last = next(i for i, line in enumerate(PROGRAM[first:], first + 1) if line and not line.startswith(" "))
    return range(first, last)


@pytest.mark.parametrize("name", PROGRAMS)
def test_large_buffers_have_their_true_block(name: str, folders: dict[str, Path]) -> None:
    rows, judged = large_rows(xlamem.read(folders[name])), 0
    for row in rows:
        assert row["op_name"] is not None, row
        assert row["origin"] != "none", row
        pattern = true_blocks(row["shape"])
        if pattern is None or row["origin"] == "user":
            continue
        judged += row["size"]
        # The update of parameters is outside of all scopes.
        assert re.search(pattern, row["op_name"]) or re.fullmatch(r"jit\(train_step\)/(sub|mul)", row["op_name"]), row
        if row["argument"] is None and "/mlp/" in row["op_name"]:
            assert row["source_line"] in lines_of("experts" if name.endswith("-moe") else "mlp"), row
        if row["argument"] is None and "/attention/" in row["op_name"]:
            assert row["source_line"] in lines_of("attention"), row
    assert judged > 0.5 * sum(row["size"] for row in rows)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.endswith("-scan")])
def test_residuals_of_a_scan_have_the_names_of_the_body(name: str, folders: dict[str, Path]) -> None:
    rows = sorted(large_rows(xlamem.read(folders[name])), key=lambda r: -r["size"])
    stacked = [r for r in rows if r["kind"] == "residual of a scan"]
    assert {r["iterations"] for r in stacked} == {LAYERS}
    assert all(r["phase"] == "forward" and "/while/body/" in r["op_name"] for r in stacked)
    assert len({r["op_name"] for r in stacked}) > 3
    assert rows[0] in stacked
    assert sum(r["size"] for r in stacked) > 0.3 * sum(r["size"] for r in rows if r["category"] == "temp")


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.endswith("-unrolled")])
def test_layers_are_numbered(name: str, folders: dict[str, Path]) -> None:
    rows = [r for r in large_rows(xlamem.read(folders[name])) if r["category"] == "temp" and r["layer"]]
    activations = [r for r in rows if "/mlp/" in r["op_name"] and r["phase"] == "forward"]
    assert sorted({r["layer_index"] for r in activations}) == list(range(LAYERS))
    assert {r["layer"] for r in activations} == {"layer_*"}
    for row in rows:
        assert re.search(rf"layer_{row['layer_index']}\b|\['layers'\]\[{row['layer_index']}\]", row["op_name"]), row


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_checkpointed_programs_recompute(name: str, folders: dict[str, Path]) -> None:
    named = {r["phase"] for r in xlamem.live_set(xlamem.read(folders[name])).to_pylist()}
    assert {"forward", "backward"} & named
    everything = module.origins(program(folders[name]))
    codes, names = everything.names.op_name
    used = set(phases(names.take(pa.array(codes[everything.source[everything.source >= 0]]))).to_pylist())
    assert ("recompute" in used) == name.endswith("-remat")


def program(folder: Path) -> Any:
    from xlamem.compute.program import program

    return program(xlamem.read(folder))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_the_hlo_text_names_are_fewer_but_not_others(name: str, folders: dict[str, Path]) -> None:
    (source,) = xlamem.find(folders[name])
    members = [p for p in folders[name].iterdir() if "buffer-assignment" in p.name or "live-range" in p.name]
    alone = folders[name].parent / f"{name}-without-hlo"
    alone.mkdir(exist_ok=True)
    for path in members:
        (alone / path.name).write_bytes(path.read_bytes())
    rows = large_rows(xlamem.read(alone))
    assert all(r["origin"] != "hlo" for r in rows)
    for row in rows:
        pattern = true_blocks(row["shape"])
        if row["origin"] in ("own", "argument", "operand", "slot") and row["op_name"] and pattern:
            is_weak = is_move(pa.array([row["op_name"]]))[0]
            known = re.search(pattern, row["op_name"]) or re.fullmatch(r"jit\(train_step\)/(sub|mul)", row["op_name"])
            assert known or is_weak, row
    assert len(rows) == len(large_rows(xlamem.read(source)))


def test_the_hlo_text_is_read_only_if_needed(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    original = module.hlo_body
    monkeypatch.setattr(module, "hlo_body", lambda tables: reads.append(tables.name) or original(tables))
    xlamem.live_set(xlamem.read(folders["cpu-scan"]))
    assert len(reads) == 1
    monkeypatch.setattr(module, "MAX_SHARE", 1.0)
    assert "hlo" not in xlamem.live_set(xlamem.read(folders["cpu-scan"]))["origin"].to_pylist()
    assert len(reads) == 1


def test_attribution_by_layer_phase_and_kind(folders: dict[str, Path]) -> None:
    dump = xlamem.read(folders["v5e-unrolled"])
    total = sum(xlamem.live_set(dump)["bytes"].to_pylist())
    rows = xlamem.attribution(dump, ("layer", "phase", "kind", "origin")).to_pylist()
    assert sum(r["bytes"] for r in rows) == total
    assert {"layer_0", "layer_4", "layers[3]"} <= {r["layer"] for r in rows}
    folded = xlamem.attribution(dump, "layer", fold=True).to_pylist()
    assert {"layer_*", "layers[*]"} <= {r["layer"] for r in folded}


def test_printed_source_lines_are_those_of_the_instruction() -> None:
    """The stack frame is only looked up where no file is printed."""
    frames = pa.table({"id": [1, 2], "file": ["frame.py", None], "line": pa.array([11, 22], pa.int64())})
    files = pa.chunked_array([["own.py", None, None, "own.py", None]])
    lines, ids = np.array([3, -1, 4, -1, 5]), np.array([1, 1, 7, 2, 2])
    found = source_lines(files, lines, ids, frames)
    assert found["source_file"].to_pylist() == ["own.py", "frame.py", None, "own.py", None]
    assert found["source_line"].to_pylist() == [3, 11, 4, None, 22]


def test_an_empty_program_has_no_origins() -> None:
    dump = xlamem.read(b"BufferAssignment:\nallocation 0: size 4, output shape is |f32[]|, maybe-live-out:\n\n")
    assert iterate(dump) == []


def iterate(dump: xlamem.Dump) -> list[int]:
    from xlamem.compute.program import program

    return module.origins(program(dump)).source.tolist()




# -- scopes over time, and clones


@pytest.mark.parametrize("name", PROGRAMS)
def test_peaks_of_scopes(name: str, folders: dict[str, Path]) -> None:
    dump = xlamem.read(folders[name])
    rows = compute.scope_peaks(dump).to_pylist()
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    p = program(folders[name])
    op_names = source_columns(p, np.arange(len(p.value_ids)))["op_name"].cast(pa.string())
    scope_of = dict(zip(p.value_ids.tolist(), compute.scopes(op_names).to_pylist(), strict=True))
    values = [v for v in dump.values.to_pylist() if v["size"] and v["value_id"] in ranges]
    for row in rows[:4]:
        here = [v for v in values if v["allocation"] == row["allocation"]]
        members = [v for v in here if scope_of[v["value_id"]] == row["scope"]]
        assert len(members) == row["n"]
        sizes = {}
        for step in {ranges[v["value_id"]][0] for v in members}:
            live = [v for v in members if ranges[v["value_id"]][0] <= step <= ranges[v["value_id"]][1]]
            sizes[step] = union((v["offset"], v["offset"] + v["size"]) for v in live)
        assert row["peak"] == max(sizes.values())
        assert row["step"] == min(s for s, size in sizes.items() if size == row["peak"])


def test_clones_of_rematerialization(tmp_path: Path) -> None:
    folder = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    assert compute.rematerialized(folder).num_rows == 0
    for path in folder.glob("*.txt"):
        text = re.sub(r"\bfusion\.6\b(?!\d)", "fusion.63.remat", path.read_text())
        (tmp_path / path.name).write_text(text)
    dump = xlamem.read(tmp_path)
    ids = {v["instruction"]: v["value_id"] for v in dump.values.to_pylist()}
    (row,) = compute.rematerialized(dump).to_pylist()
    assert (row["value_id"], row["original_id"]) == (ids["fusion.63.remat"], ids["fusion.63"])
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    peak = {s["memory_space"]: s["first_step"] for s in xlamem.peak(dump).spaces.to_pylist()}[row["memory_space"]]
    assert (row["original_end"], row["start"]) == (ranges[row["original_id"]][1], ranges[row["value_id"]][0])
    assert row["saved"] == (row["size"] if row["original_end"] < peak < row["start"] else 0)
