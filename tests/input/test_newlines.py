"""Newlines before an offset of a file with several modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlamem.input.files import open_decompressed


@pytest.mark.parametrize("several", [True, False])
def test_newlines_before_any_offset_in_any_order(tmp_path: Path, several: bool) -> None:
    """The last count is continued only where it can be."""
    data = b"\n" + b"".join(b"%d\n" % i for i in range(2000))
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    file = open_decompressed(str(path))
    for offset in (0, 100, 99, 5000, 5001, 4999, len(data), 1, len(data)):
        if several:
            file = open_decompressed(str(path))
        assert file.count_newlines(offset) == data[:offset].count(b"\n")


def test_newlines_of_a_file_that_was_not_counted_before(tmp_path: Path) -> None:
    data = b"\n\n1\n\n"
    for offset in range(len(data) + 1):
        (path := tmp_path / str(offset)).write_bytes(data)
        assert open_decompressed(str(path)).count_newlines(offset) == data[:offset].count(b"\n")
