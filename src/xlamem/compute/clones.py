"""Find what XLA rematerializes: instructions that it has cloned, so that it need not keep what they compute."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.arrays import row_of
from .columns import Ints, Mask, arrow_array, encoded, flags_of, take
from .op_names import matching
from .program import CLONE, Program, distinct_rows


def are_clones(p: Program) -> Mask:
    """Return which values are those of clones, by the names of their instructions."""
    codes, names = p.names
    return flags_of(matching(names, CLONE), codes)


def originals(p: Program, values: Ints) -> tuple[Ints, Ints]:
    """Return what these clones are clones of: values, -1 for those that are gone, and codes that are equal if it is.

    An original is the value of the same shape index that the instruction without ``.remat`` defines.
    """
    codes, names = p.names
    clone, cloned = encoded(pa.chunked_array([pc.take(names, arrow_array(codes[values]))]))
    plain = pc.replace_substring_regex(pc.cast(cloned, pa.string()), CLONE, "")
    known = pc.fill_null(pc.index_in(plain, pc.cast(names, pa.string())), -1).to_numpy(zero_copy_only=False)
    wanted = take(np.asarray(known, np.int64), clone)
    index = encoded(p.tables["values"]["shape_index"])[0]
    width = int(index.max(initial=0)) + 2
    value = row_of(codes * width + index + 1, np.where(wanted >= 0, wanted * width + index[values] + 1, -1))
    same = encoded(pa.chunked_array([plain]))[0][clone] if len(values) else clone
    return value, distinct_rows(same, index[values])
