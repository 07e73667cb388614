"""The calls that lead to a source line: a line of a library has one of the model among its callers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.callers import callers_outside
from ..compute.columns import Ints, ints, take
from ..compute.program import Program
from ..parse.arrays import row_of
from .entry import members

Line = tuple[str, int | None]
"""A source file and a line in it."""
Stack = tuple[Line, ...]
"""A source line and its callers, the innermost first."""


def stack_of(p: Program, line: Line) -> Stack:
    """Return the calls that lead to a source line: those of the largest buffer at the peak with this line.

    They begin in a library if the line calls one. It is alone if the dump has no stack frames, or if that buffer is
    named by an instruction without one.
    """
    frames = p.optional("frames")
    ids, parents, lines = (ints(frames, name) for name in ("id", "parent", "line"))
    rows = row_of(ids, _frame_ids(p, line))
    rows = rows[rows >= 0]
    outside = callers_outside(frames)[rows]
    shown = np.where(outside >= 0, outside, rows)
    has_line = pc.equal(pc.take(pc.cast(frames["file"], pa.string()), pa.array(shown)), line[0]).to_numpy()
    rows = rows[has_line.astype(bool) & (lines[shown] == line[1])]
    stack: list[Line] = []
    row = int(rows[0]) if len(rows) else -1
    for _ in range(len(ids)):  # a damaged table may have a cycle
        if row < 0:
            break
        if file := frames["file"][row].as_py():
            stack.append((file, int(lines[row])))
        row = int(row_of(ids, parents[[row]])[0])
    return tuple(stack) or (line,)


def _frame_ids(p: Program, line: Line) -> Ints:
    """Return the stack frames of the instructions that name the buffers with a line, the largest first."""
    rows = members(p)
    in_file = pc.equal(pc.cast(rows["source_file"], pa.string()), line[0])
    rows = pc.filter(rows, pc.and_(in_file, pc.equal(rows["source_line"], line[1])))
    names = pc.coalesce(*(pc.cast(rows[name], pa.string()) for name in ("origin_instruction", "instruction")))
    found = p.row_of_instruction(names)
    return take(ints(p.tables["instructions"], "stack_frame_id"), found)
