"""The source lines and the functions of the model: a line of a library has one of the model among its callers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.arrays import row_of
from .columns import Ints, Mask, decoded, encoded, flags_of, ints, nullable, take
from .op_names import matching

INSTALLED = r"(?:site-packages|dist-packages|python3\.\d+)"
"""Folders of installed packages and the standard library: below them, the whole path names a module."""

MAX_STACK, MAX_FRAMES = 1 << 8, 1 << 12
"""Maximum number of callers of a frame, and of frames, that are searched for a function: a damaged table has cycles."""


def lines_of_model(lines: dict[str, pa.Array], stack_frame: Ints, frames: pa.Table) -> dict[str, pa.Array]:
    """Return source_file and source_line with lines of libraries replaced by the innermost caller outside of them.

    A line stays as it is without such a caller.
    """
    codes, files = encoded(lines["source_file"])
    in_library = flags_of(is_installed(files), codes)
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
    is_outside = (codes >= 0) & ~flags_of(is_installed(files), codes)
    rows = np.arange(frames.num_rows)
    parent = row_of(ints(frames, "id"), ints(frames, "parent"))
    row = np.where(is_outside | (parent < 0), rows, parent)
    for _ in range(frames.num_rows.bit_length()):  # each round doubles the reach; a damaged table may have a cycle
        row = row[row]
    return np.where(is_outside[row], row, -1)


def is_installed(files: pa.Array) -> Mask:
    """Return which of these files belong to an installed package or to the standard library."""
    return matching(files, rf"(?:^|[/\\]){INSTALLED}[/\\]")


class Functions:
    """The functions of the model on the stacks of values. `stack_frame` is the id of the frame of each, -1 for none."""

    def __init__(self, frames: pa.Table, stack_frame: Ints) -> None:
        files, file_names = encoded(frames["file"])
        names, self._names = encoded(frames["function"])
        in_model = (files >= 0) & (names >= 0) & ~flags_of(is_installed(file_names), files)
        self._function = np.where(in_model, files * (len(self._names) + 1) + names, -1)
        ids = ints(frames, "id")
        self._parent, self._line = row_of(ids, ints(frames, "parent")), ints(frames, "line")
        self._row = row_of(ids, stack_frame)

    def innermost(self, weight: Ints, share: float, *, in_loop: bool) -> tuple[str, Mask] | None:
        """Return the innermost function that is repeated and has this share of the weight, and the values of its calls.

        In a loop, one call is repeated, which has this share. Otherwise, several lines call it, and it has several
        lines, or it would be a helper. None if there is no such function.
        """
        weights = np.bincount(self._row + 1, weight, len(self._parent) + 1)[1:]
        heaviest = np.argsort(-weights, kind="stable")[:MAX_FRAMES]
        weights, enough = weights[heaviest], share * weight.sum()
        pairs = self._stacks(heaviest)
        for function in _from_inside(pairs, weights):
            item, _, _, frame = pairs[:, pairs[1] == function]
            caller = self._parent[frame]
            if weights[np.unique(item)].sum() < enough:
                continue
            if in_loop:
                found = any(weights[np.unique(item[caller == row])].sum() >= enough for row in np.unique(caller))
            else:
                found = len(np.unique(caller)) > 1 and len(np.unique(self._line[frame])) > 1
            if found:
                return self._name(function), flags_of(self._calls(function), self._row)
        return None

    def _stacks(self, rows: Ints) -> Ints:
        """Return an index in `rows`, a function, its number of callees, and its frame, for each function on a stack.

        They have the shape (4, n). The frame is a row of the frames.
        """
        item, found = np.arange(len(rows)), [np.empty((4, 0), np.int64)]
        for height in range(MAX_STACK):
            item, rows = item[rows >= 0], rows[rows >= 0]
            in_model = self._function[rows] >= 0
            found.append(np.stack([item, self._function[rows], np.full(len(rows), height), rows])[:, in_model])
            rows = self._parent[rows]
        return np.concatenate(found, axis=1)

    def _calls(self, function: int) -> Mask:
        """Return which frames are those of a function, or are called from it."""
        rows = np.arange(len(self._parent))
        parent = np.where(self._parent < 0, rows, self._parent)
        found: Mask = self._function == function
        for _ in range(len(rows).bit_length()):  # each round doubles the reach
            found, parent = found | found[parent], parent[parent]
        return found

    def _name(self, function: int) -> str:
        name: str = self._names[function % (len(self._names) + 1)].as_py()
        return name.rpartition("<locals>.")[2]


def _from_inside(pairs: Ints, weights: Ints) -> list[int]:
    """Return the functions of `_stacks`, those with fewest callees first, by the weighted mean."""
    functions, code = np.unique(pairs[1], return_inverse=True)
    code, weight = code.reshape(-1), weights[pairs[0]]
    callees = np.bincount(code, weight * pairs[2]) / np.maximum(np.bincount(code, weight), 1)
    found: list[int] = functions[np.argsort(callees, kind="stable")].tolist()
    return found
