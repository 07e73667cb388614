"""XLA's own "Live ranges at N (peak)", recomputed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import _shapes
from ..dump import DumpLike
from ..errors import DumpError
from ..parse.arrow import Pool, row_of
from ..parse.arrow import ints as column_ints
from .columns import Ints, encoded, ints, take
from .layout import MAX_TOTAL_BYTES
from .program import Program, program


def xla_rule(dump: DumpLike) -> tuple[int, int] | None:
    """Return step and bytes of XLA's "Live ranges at N (peak)", recomputed; None without live ranges.

    XLA sweeps over the schedule and weighs each value with the shape of its entire instruction. It adds the values
    that start at a step before it removes those that ended at the step before; the first strict maximum is the step.
    The bytes are those of the values live (closed) at that step: the size of the instruction's shape in lists
    without index, of the value's own shape in later ones. Sizes are unpadded, all memory spaces are added up, and
    each alias counts.
    """
    p = program(dump)
    if p.steps is None:
        return None
    start, end = p.ranges
    rows = np.flatnonzero((start >= 0) & (start <= end))
    weight = np.maximum(_instruction_bytes(p), 0)
    if max(sizes[rows].sum(dtype=np.float64) for sizes in (weight, p.unpadded)) >= MAX_TOTAL_BYTES:
        raise DumpError(p.name, "shapes of less than 2^62 bytes together", "used values")
    step, _ = max_overlap(start[rows], end[rows], weight[rows], delay=1)
    live = rows[(start[rows] <= step) & (step <= end[rows])]
    features = (p.tables["modules"]["features"][0].as_py() or "").split(",")
    return step, int((weight if "peak_a" in features else p.unpadded)[live].sum())


def max_overlap(start: Ints, end: Ints, weight: Ints, delay: int = 0) -> tuple[int, int]:
    """Return the first step at which closed ranges have the greatest total weight, and that weight.

    `delay`: steps by which the removal of a range is late. The cost depends on the number of ranges, not of steps:
    a text can print any step.
    """
    if not len(start):
        return 0, 0
    end = np.minimum(end, start.max())  # a range that ends after the last start is not removed before the maximum
    time = np.concatenate([start, end + 1 + delay])
    order = np.argsort(time, kind="stable")
    time, level = time[order], np.cumsum(np.concatenate([weight, -weight])[order])
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True))
    top = int(last[level[last].argmax()])
    return (int(time[top]), int(level[top])) if level[top] > 0 else (0, 0)


def _instruction_bytes(p: Program) -> Ints:
    """Return ByteSizeOf the entire shape of each value's defining instruction, -1 if unknown."""
    own = ints(p.tables["values"], "unpadded_size")
    index, index_texts = encoded(p.tables["values"]["shape_index"])
    shape, shapes = encoded(p.tables["instructions"]["shape"])
    sizes = np.where(index >= 0, -1, own)
    if len(shape):
        row = p.instruction_row
        sizes = np.where(row >= 0, _shape_bytes(shapes)[shape[row]], sizes)
    unknown = np.flatnonzero(sizes < 0)
    if len(unknown):
        # Without instruction texts: the value of the same instruction with index {} has the entire shape.
        names, _ = p.names
        top = index_texts.to_pylist().index("{}") if "{}" in index_texts.to_pylist() else None
        entire = np.flatnonzero(index == top) if top is not None else unknown[:0]
        row = row_of(names[entire], names[unknown])
        sizes[unknown] = np.where(row >= 0, take(own, take(entire, row)), own[unknown])
    return sizes


def _shape_bytes(shapes: pa.Array) -> Ints:
    """Return the unpadded bytes of each shape, -1 if unknown."""
    texts = [text.encode() for text in shapes.cast(pa.string()).to_pylist()]
    ends = np.cumsum([len(text) for text in texts]).astype(np.int64)
    return column_ints(_shapes.sizes(b"".join(texts), ends, Pool().names)[1])
