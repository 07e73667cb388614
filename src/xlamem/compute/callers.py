"""The source line of the model: a line of a library has one of the model among its callers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.arrays import row_of
from .columns import Ints, Mask, decoded, encoded, flags_of, ints, nullable, take
from .op_names import matching

INSTALLED = r"(?:site-packages|dist-packages|python3\.\d+)"
"""Folders of installed packages and the standard library: below them, the whole path names a module."""


def lines_of_model(lines: dict[str, pa.Array], stack_frame: Ints, frames: pa.Table) -> dict[str, pa.Array]:
    """Return source_file and source_line with lines of libraries replaced by the innermost caller outside of them.

    A line stays as it is without such a caller.
    """
    codes, files = encoded(lines["source_file"])
    in_library = flags_of(_is_installed(files), codes)
    if not frames.num_rows or not in_library.any():
        return lines
    frame = row_of(ints(frames, "id"), stack_frame)
    caller = np.where(in_library, take(callers_outside(frames), frame), -1)
    file_codes, frame_files = encoded(frames["file"])
    codes = np.where(caller >= 0, take(file_codes, caller) + len(files), codes)
    line = np.where(caller >= 0, take(ints(frames, "line"), caller), ints(lines, "source_line"))
    files = pa.concat_arrays([pc.cast(files, pa.string()), pc.cast(frame_files, pa.string())])
    return {"source_file": decoded(codes, files), "source_line": nullable(line)}


def callers_outside(frames: pa.Table) -> Ints:
    """Return the row of the innermost frame outside of libraries that each frame is, or is called from; or -1."""
    codes, files = encoded(frames["file"])
    is_outside = (codes >= 0) & ~flags_of(_is_installed(files), codes)
    rows = np.arange(frames.num_rows)
    parent = row_of(ints(frames, "id"), ints(frames, "parent"))
    row = np.where(is_outside | (parent < 0), rows, parent)
    for _ in range(frames.num_rows.bit_length()):  # each round doubles the reach; a damaged table may have a cycle
        row = row[row]
    return np.where(is_outside[row], row, -1)


def _is_installed(files: pa.Array) -> Mask:
    return matching(files, rf"(?:^|[/\\]){INSTALLED}[/\\]")
