"""The source lines and the functions of the model: a line of a library has one of the model among its callers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import kernels as pc
from ..formatting import file_line
from ..parse.arrays import row_of
from .columns import Ints, Mask, decoded, encoded, flags_of, ints, nullable, take
from .op_names import matching
from .program import distinct_rows

INSTALLED = r"(?:site-packages|dist-packages|python3\.\d+)"
"""Folders of installed packages and the standard library: below them, the whole path names a module."""

_TENSORFLOW = r"(?:^|[/\\])tensorflow[/\\]python[/\\]framework[/\\]ops\.py$"
"""The file that creates all operations of TensorFlow; its lines say nothing about the model."""

Floats = npt.NDArray[np.float64]

MAX_FUNCTIONS = 64
"""Maximum number of functions that call each other of which the names are kept."""
MAX_STACK, MAX_FRAMES = 1 << 8, 1 << 12
"""Maximum number of callers of a frame, and of frames, that are searched for a function: a damaged table has cycles."""


def lines_of_model(lines: dict[str, pa.Array], stack_frame: Ints, frames: pa.Table) -> dict[str, pa.Array]:
    """Return source_file and source_line with lines of libraries replaced by the innermost caller outside of them.

    A line stays as it is without such a caller, but the one that TensorFlow prints for all operations is null.
    """
    found = _lines_of_callers(lines, stack_frame, frames)
    codes, files = encoded(found["source_file"])
    says_nothing = flags_of(matching(files, _TENSORFLOW), codes)
    if not says_nothing.any():
        return found
    line = np.where(says_nothing, -1, ints(found, "source_line"))
    return {"source_file": decoded(np.where(says_nothing, -1, codes), files), "source_line": nullable(line)}


def _lines_of_callers(lines: dict[str, pa.Array], stack_frame: Ints, frames: pa.Table) -> dict[str, pa.Array]:
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


def calls_outside(frames: pa.Table, frame: int) -> list[dict[str, Any]]:
    """Return file, line and function of the frame with an id and of its callers, the innermost first.

    Those of libraries are left out. A line that calls several lines of a library is one call.
    """
    found: list[dict[str, Any]] = []
    outside, ids, parents = callers_outside(frames), ints(frames, "id"), ints(frames, "parent")
    row = int(row_of(ids, np.array([frame]))[0])
    for _ in range(MAX_STACK):  # a damaged table may have a cycle
        row = int(outside[row]) if row >= 0 else -1
        if row < 0:
            break
        call = {name: frames[name][row].as_py() for name in ("file", "line", "function")}
        if call not in found[-1:]:
            found.append(call)
        row = int(row_of(ids, parents[[row]])[0])
    return found


def function_paths(frames: pa.Table, stack_frame: Ints) -> tuple[Ints, pa.Array]:
    """Return codes and texts of the functions that call each other at these frames: `train_step/loss_fn/mlp`.

    The outermost is first. Those of libraries, modules and lambdas are left out; of a function that is called again by
    what it calls, only one call counts. The code is -1 for a frame without a function.
    """
    outside, ids = callers_outside(frames), ints(frames, "id")
    caller = take(outside, row_of(ids, ints(frames, "parent")))
    used, code = np.unique(take(outside, row_of(ids, stack_frame)), return_inverse=True)
    codes, names = encoded(frames["function"])
    inner = pc.replace_substring_regex(pc.cast(names, pa.string()), r"^.*<locals>\.", "")
    function = [*pc.replace_substring_regex(inner, "^<.*>$", "").to_pylist(), ""]
    paths = _paths(used[used >= 0], [function[c] for c in codes.tolist()], caller.tolist())
    texts = ["/".join(paths.get(row, ())) or None for row in used.tolist()]
    known, distinct = encoded(pa.chunked_array([pa.array(texts, pa.string())]))
    return known[code.ravel()], distinct


def _paths(rows: Ints, function: list[str], caller: list[int]) -> dict[int, tuple[str, ...]]:
    """Return the functions on the stack of each of these frames, of which `function` and `caller` list those of all."""
    paths: dict[int, tuple[str, ...]] = {-1: ()}
    for row in rows.tolist():
        above: list[int] = []
        while row not in paths and len(above) < MAX_STACK:  # a damaged table may have a cycle
            above.append(row)
            row = caller[row]
        path = paths.get(row, ())
        for inner in reversed(above):
            name = function[inner]
            if name in path:
                path = path[: path.index(name) + 1]
            elif name and len(path) < MAX_FUNCTIONS:
                path = *path, name
            paths[inner] = path
    return paths


def calls_from(frames: pa.Table, rows: Ints, file: str, function: str) -> tuple[Ints, Ints]:
    """Return the rows of frames that a function calls, of these rows and their callers, and the rows of the calls.

    Frames of libraries are left out. The innermost call of each frame counts; `file` is the name without folders.
    """
    outside = callers_outside(frames)
    caller = take(outside, row_of(ints(frames, "id"), ints(frames, "parent")))
    codes, files = encoded(frames["file"])
    function_codes, functions = encoded(frames["function"])
    is_call = flags_of(matching(files, rf"(?:^|[/\\]){re.escape(file)}$"), codes)
    is_call &= flags_of(matching(functions, rf"^{re.escape(function)}$"), function_codes)
    inner, found = np.unique(take(outside, rows)), list[Ints]()
    for _ in range(MAX_STACK):  # a damaged table may have a cycle
        inner = inner[inner >= 0]
        of_function = flags_of(is_call, take(caller, inner)) & ~is_call[inner]
        found.append(inner[of_function])
        inner = np.unique(take(caller, inner[~of_function]))
        if not len(inner):
            break
    called = np.unique(np.concatenate(found))
    return called, take(caller, called)


def shared_lines(frames: pa.Table) -> set[str]:
    """Return file:line of the frames outside of libraries that several lines of the model call."""
    outside, line = callers_outside(frames), ints(frames, "line")
    caller = take(outside, row_of(ints(frames, "id"), ints(frames, "parent")))
    places = np.stack([encoded(frames["file"])[0], line], axis=1)
    place = np.unique(places, axis=0, return_inverse=True)[1].ravel()
    called = np.flatnonzero((caller >= 0) & (outside == np.arange(len(outside))))
    called = called[place[called] != place[caller[called]]]
    called = called[np.unique(np.stack([place[called], place[caller[called]]]), axis=1, return_index=True)[1]]
    _, first, n = np.unique(place[called], return_index=True, return_counts=True)
    return {f"{frames['file'][row].as_py()}:{line[row]}" for row in called[first[n > 1]].tolist()}


def is_installed(files: pa.Array) -> Mask:
    """Return which of these files belong to an installed package or to the standard library."""
    return matching(files, rf"(?:^|[/\\]){INSTALLED}[/\\]")


class Function(NamedTuple):
    """A function of the model."""

    name: str
    calls: Mask
    """Whether it computes each value."""
    frames: Ints
    """Ids of its frames, and of those that it calls."""
    lines: Ints
    """The line in it that computes each value, -1 for others."""
    file: str = ""
    called_at: tuple[str, ...] = ()
    """The lines that call it, as ``train.py:41``."""

    def among(self, values: Mask) -> Function:
        """Return what it says of some of the values."""
        return self._replace(calls=self.calls[values], lines=self.lines[values])


class _Calls(NamedTuple):
    """Functions on the stacks of frames."""

    item: Ints
    """Index of the frame whose stack it is."""
    function: Ints
    height: Ints
    """Number of callees."""
    frame: Ints
    """Row of the function's own frame."""


class Functions:
    """The functions of the model on the stacks of values. `stack_frame` is the id of the frame of each, -1 for none."""

    def __init__(self, frames: pa.Table, stack_frame: Ints) -> None:
        self._files, self._file_names = files, file_names = encoded(frames["file"])
        names, self._names = encoded(frames["function"])
        in_model = (files >= 0) & (names >= 0) & ~flags_of(is_installed(file_names), files)
        self._function = np.where(in_model, files * (len(self._names) + 1) + names, -1)
        self._ids = ids = ints(frames, "id")
        self._parent, self._line = row_of(ids, ints(frames, "parent")), ints(frames, "line")
        self._row = row_of(ids, stack_frame)

    def innermost(self, weight: Ints, share: float, *, in_loop: bool, surplus: Ints | None = None) -> Function | None:
        """Return the innermost function that is repeated and has this share of the weight. None if there is none.

        In a loop, this share is below a single caller, which runs several times or has the loop in itself. Otherwise,
        several lines call the function, and it has several lines, or it would be a helper. With `surplus`, which is
        negative where a value is not repeated, it is the outermost function around that one of which most is repeated.
        """
        weights = np.bincount(self._row + 1, weight, len(self._parent) + 1)[1:].astype(np.float64)
        heaviest = np.argsort(-weights, kind="stable")[: min(MAX_FRAMES, np.count_nonzero(weights))]
        weights, enough = weights[heaviest], share * weight.sum()
        calls = self._on_stacks(heaviest)
        caller = self._parent[calls.frame]
        covered, callees = _sums(calls.function, calls.item, weights, calls.height)
        most = np.full(len(covered), -1.0)
        distinct = distinct_rows(calls.function, caller) if len(caller) else caller
        of_caller, _ = _sums(distinct, calls.item, weights, calls.height)
        function = np.unique(calls.function, return_inverse=True)[1].ravel()
        np.maximum.at(most, function, of_caller[np.unique(distinct, return_inverse=True)[1].ravel()])
        found = np.flatnonzero((most if in_loop else covered) >= enough)
        for code in found[np.argsort(callees[found], kind="stable")].tolist():
            frames = calls.frame[function == code]
            if in_loop or min(len(np.unique(self._parent[frames])), len(np.unique(self._line[frames]))) > 1:
                inner = int(calls.function[function == code][0])
                return self._described(inner if surplus is None else self._around(inner, surplus))
        return None

    def _around(self, inner: int, surplus: Ints) -> int:
        """Return the outermost function that calls a function on one line and computes more that is repeated besides.

        The function with the loop, and those that call it, compute what is not repeated: there, `surplus` is negative.
        """
        found, below = inner, self._calls(inner)
        for _ in range(MAX_FUNCTIONS):  # a damaged table may have a cycle
            rows = self._called_from(inner)
            if len(np.unique(np.stack([self._function[rows], self._line[rows]]), axis=1).T) != 1:
                break
            inner = int(self._function[rows[0]])
            around = self._calls(inner)
            besides = flags_of(around & ~below, self._row)
            if besides.any():
                if surplus[besides].sum() <= 0:
                    break
                found, below = inner, around
        return found

    def _called_from(self, function: int) -> Ints:
        """Return the frames of the model that call a function."""
        rows = take(self._parent, np.flatnonzero(self._function == function))
        for _ in range(MAX_STACK):  # a damaged table may have a cycle
            is_library = (rows >= 0) & (take(self._function, rows) < 0)
            if not is_library.any():
                break
            rows = np.unique(np.where(is_library, take(self._parent, rows), rows))
        caller = take(self._function, rows)
        found: Ints = rows[(caller >= 0) & (caller != function)]
        return found

    def _on_stacks(self, rows: Ints) -> _Calls:
        """Return the functions on the stacks of frames."""
        item, found = np.arange(len(rows)), [np.empty((4, 0), np.int64)]
        for height in range(MAX_STACK):
            item, rows = item[rows >= 0], rows[rows >= 0]
            in_model = self._function[rows] >= 0
            found.append(np.stack([item, self._function[rows], np.full(len(rows), height), rows])[:, in_model])
            rows = self._parent[rows]
        return _Calls(*np.concatenate(found, axis=1))

    def _described(self, function: int) -> Function:
        name: str = self._names[function % (len(self._names) + 1)].as_py()
        calls, row = self._calls(function), self._row
        for _ in range(MAX_STACK):  # a damaged table may have a cycle
            is_inner = (row >= 0) & (self._function[row] != function)
            if not is_inner.any():
                break
            row = np.where(is_inner, take(self._parent, row), row)
        name = name.rpartition("<locals>.")[2]
        file: str = self._file_names[function // (len(self._names) + 1)].as_py()
        places = sorted({(self._files[row], self._line[row]) for row in self._called_from(function).tolist()})
        called_at = tuple(file_line(self._file_names[code].as_py(), int(line), folder=False) for code, line in places)
        return Function(name, flags_of(calls, self._row), self._ids[calls], take(self._line, row), file, called_at)

    def _calls(self, function: int) -> Mask:
        """Return which frames are those of a function, or are called from it."""
        rows = np.arange(len(self._parent))
        parent = np.where(self._parent < 0, rows, self._parent)
        found: Mask = self._function == function
        for _ in range(len(rows).bit_length()):  # each round doubles the reach
            found, parent = found | found[parent], parent[parent]
        return found


def _sums(group: Ints, item: Ints, weights: Floats, height: Ints) -> tuple[Floats, Floats]:
    """Return the weight of each group, in which an item counts once, and its weighted mean of the heights."""
    code = np.unique(group, return_inverse=True)[1].ravel()
    n = int(code.max(initial=-1)) + 1
    pairs = np.unique(code * (int(item.max(initial=0)) + 1) + item, return_index=True)[1]
    sums = np.bincount(code[pairs], weights[item[pairs]], n).astype(np.float64)
    total = np.bincount(code, weights[item], n)
    return sums, np.bincount(code, weights[item] * height, n) / np.maximum(total, 1)
