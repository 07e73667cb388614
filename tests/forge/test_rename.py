"""Renamed dumps are read like the originals: the same memory, other names."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import every
from rename import rename

import xlamem
from xlamem.input.find import find

DUMPS = Path(__file__).parent.parent / "dumps"
FOLDERS = sorted(d for d in DUMPS.iterdir() if d.is_dir())
SAME = {
    "allocations": ("allocation", "size", "color", "page", "parameter_number", "parameter_shape", "output_shape"),
    "values": ("allocation", "offset", "size", "shape", "color", "is_phi", "shape_index"),
    "instructions": ("shape", "opcode", "op_name", "custom_call_target"),
    "printed_peak": ("bytes",),
    "printed_stack": ("depth", "total", "current", "remaining"),
    "live_ranges": ("start", "end", "shape_index"),
    "positions": ("ordinal", "shape_index"),
    "uses": ("ordinal", "operand", "operand_shape_index"),
    "aliases": ("output_index", "parameter", "kind"),
}


def counted(dump: xlamem.Dump, table: str) -> Counter[tuple[Any, ...]]:
    columns = SAME[table]
    return Counter(tuple(row[c] for c in columns) for row in dump[table].select(columns).to_pylist())


def totals(dump: xlamem.Dump) -> dict[tuple[Any, ...], int]:
    lines: Counter[tuple[Any, ...]] = Counter()
    for row in xlamem.bill(dump).to_pylist():
        lines[row["account"], row["line"]] += row["bytes"]
    return dict(lines)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_a_renamed_dump_has_the_same_memory(tmp_path: Path, folder: Path) -> None:
    before, after = find(folder), find(rename(folder, tmp_path / "renamed"))
    assert len(before) == len(after)
    for a, b in zip(map(xlamem.read, before), map(xlamem.read, after), strict=True):
        assert b.verify()["code"].to_pylist() == a.verify()["code"].to_pylist()
        for table in SAME:
            assert counted(b, table) == counted(a, table), table
        assert totals(b) == totals(a)
        schedule = [len(set(d["schedule"]["instruction"].to_pylist())) for d in (a, b)]
        assert schedule[0] == schedule[1] == len(a["schedule"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_a_renamed_dump_has_other_names(tmp_path: Path, folder: Path) -> None:
    before, after = find(folder), find(rename(folder, tmp_path / "renamed"))
    for a, b in zip(map(xlamem.read, before), map(xlamem.read, after), strict=True):
        names = [set(d["instructions"]["instruction"].to_pylist()) for d in (a, b)]
        assert names[0].isdisjoint(names[1])
        ids = [d["values"]["value_id"].to_pylist() for d in (a, b)]
        assert len(ids[0]) < 5 or ids[0] != ids[1]
        assert set(ids[0]) == set(ids[1])
        files = [{f for f in d["frames"]["file"].to_pylist() if f} for d in (a, b)]
        assert files[0].isdisjoint(files[1])


@pytest.mark.parametrize("folder", every(2, FOLDERS), ids=lambda f: f.name)
def test_names_stay_connected(tmp_path: Path, folder: Path) -> None:
    """Scopes and sources come through operands, uses and the HLO text, all of which name instructions."""
    before, after = find(folder), find(rename(folder, tmp_path / "renamed", shuffle_ids=False))
    for a, b in zip(map(xlamem.read, before), map(xlamem.read, after), strict=True):
        assert xlamem.bill(b).to_pylist() == xlamem.bill(a).to_pylist()
        if a.modules["schedule_length"].null_count:
            continue
        columns = ["allocation", "op_name", "origin", "bytes", "layer", "phase", "kind"]
        columns = [c for c in columns if c in xlamem.live_set(a).column_names]
        rows = [sorted(map(str, xlamem.live_set(d).select(columns).to_pylist())) for d in (a, b)]
        assert rows[0] == rows[1]
