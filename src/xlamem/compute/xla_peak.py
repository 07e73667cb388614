"""Recompute XLA's "Live ranges at N (peak)"."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import _shapes
from .. import kernels as pc
from ..dump import DumpLike
from ..errors import DumpError
from ..parse.arrays import ints as column_ints
from ..parse.arrays import row_of
from ..parse.interners import Interner
from .columns import Ints, encoded, ints, take
from .layout import MAX_TOTAL_BYTES
from .program import Program, program


def xla_rule(dump: DumpLike) -> tuple[int, int] | None:
    """Recompute step and bytes of XLA's "Live ranges at N (peak)"; return None without live ranges.

    XLA sweeps over the schedule and weighs each value with the shape of its entire instruction. It adds the values that
    start at a step before it removes those that ended at the previous step, and selects the step of the first strict
    maximum. The bytes are those of the values live (closed) at that step, weighed with the shape of the instruction in
    peak lists without shape indices, and with the shape of the value in later ones. Sizes are unpadded, all memory
    spaces are added up, and each alias counts.
    """
    p = program(dump)
    if p.steps is None:
        return None
    start, end = p.ranges
    rows = np.flatnonzero((start >= 0) & (start <= end))
    weight, unpadded = np.maximum(_instruction_bytes(p), 0), np.maximum(p.unpadded, 0)
    if max(sizes[rows].sum(dtype=np.float64) for sizes in (weight, unpadded)) >= MAX_TOTAL_BYTES:
        raise DumpError(p.name, "shapes of less than 2^62 bytes together", "used values")
    step, _ = max_overlap(start[rows], end[rows], weight[rows], delay=1)
    live = rows[(start[rows] <= step) & (step <= end[rows])]
    features = (p.tables["modules"]["features"][0].as_py() or "").split(",")
    return step, int((weight if "peak_a" in features else unpadded)[live].sum())


def max_overlap(start: Ints, end: Ints, weight: Ints, delay: int = 0) -> tuple[int, int]:
    """Return the first step at which closed ranges have the greatest total weight, and that weight.

    `delay` is the number of steps by which the removal of a range is late. The cost depends on the number of ranges,
    not on the number of steps, because a dump can contain arbitrary steps.
    """
    if not len(start):
        return 0, 0
    time = np.concatenate([start, end + 1 + delay])
    order = np.argsort(time, kind="stable")
    time, level = time[order], np.cumsum(np.concatenate([weight, -weight])[order])
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True))
    top = int(last[level[last].argmax()])
    return (int(time[top]), int(level[top])) if level[top] > 0 else (0, 0)


def _instruction_bytes(p: Program) -> Ints:
    """Return the unpadded bytes of the entire shape of each value's defining instruction, -1 if unknown."""
    value_bytes = ints(p.tables["values"], "unpadded_size")
    index, index_texts = encoded(p.tables["values"]["shape_index"])
    shape, shapes = encoded(p.tables["instructions"]["shape"])
    sizes = np.where(index >= 0, -1, value_bytes)
    if len(shape):
        row = p.instruction_row
        sizes = np.where(row >= 0, _shape_bytes(shapes)[shape[row]], sizes)
    unknown = np.flatnonzero(sizes < 0)
    if len(unknown):
        # Without instruction text, the value with index {} of the same instruction has the entire shape.
        names, _ = p.names
        top = index_texts.to_pylist().index("{}") if "{}" in index_texts.to_pylist() else None
        entire = np.flatnonzero(index == top) if top is not None else unknown[:0]
        row = row_of(names[entire], names[unknown])
        sizes[unknown] = np.where(row >= 0, take(value_bytes, take(entire, row)), value_bytes[unknown])
    return sizes


def _shape_bytes(shapes: pa.Array) -> Ints:
    """Return the unpadded bytes of each shape, -1 if unknown."""
    texts = [text.encode() for text in pc.cast(shapes, pa.string()).to_pylist()]
    ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
    return column_ints(_shapes.sizes(b"".join(texts), ends, Interner().names)[1])
