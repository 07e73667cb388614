"""The stored pairs of compiled programs are complete, and differ as their index says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pairs import FOLDER, Pair, flags_that_differ, stored


def test_the_index_lists_every_archive() -> None:
    assert {p.archive for p in stored()} == set(FOLDER.glob("*.tar.xz"))
    assert {p.platform for p in stored()} == {"cpu", "v5e", "tpu7x", "h100"}


@pytest.mark.parametrize("pair", stored(), ids=lambda p: p.name)
def test_both_sides_are_read_without_diagnostics(pair: Pair) -> None:
    platform = {"cpu": "cpu", "h100": "gpu"}.get(pair.platform, "tpu")
    for dump in pair.sides():
        assert dump.verify().num_rows == 0
        assert dump.modules["platform"].to_pylist() == [platform]


@pytest.mark.parametrize("pair", stored(), ids=lambda p: p.name)
def test_flags_differ_where_a_flag_was_changed(pair: Pair) -> None:
    a, b = pair.sides()
    if pair.cause == "compiler_upgraded":
        assert a["flags"].num_rows == b["flags"].num_rows == 0  # not stored
        return
    assert all(d["flags"].num_rows for d in (a, b))
    named = {word for word in pair.words.replace("=", " ").split() if word.startswith("xla_")}
    assert flags_that_differ(a, b) == named


@pytest.mark.parametrize("pair", stored(), ids=lambda p: p.name)
def test_the_memory_files_differ_unless_nothing_changed(pair: Pair, tmp_path: Path) -> None:
    contents = [
        [f.read_bytes() for f in sorted(folder.iterdir()) if f.name.endswith("-buffer-assignment.txt")]
        for folder in pair.unpack(tmp_path)
    ]
    if pair.cause == "none":
        assert contents[0] == contents[1]
    else:
        assert contents[0] != contents[1]
