"""Return fewer results."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..columns import encoded
from ..uses import use_steps
from .intervention import Intervention, largest_first
from .what_if import Change, WhatIf


def unread_elements(w: WhatIf) -> Iterator[Intervention]:
    """Return fewer results: elements of a tuple that nothing reads live as long as the others are needed."""
    p = w.p
    value, _ = use_steps(p)
    is_read = np.zeros(len(p.owner), bool)
    is_read[value] = True
    known = p.tables["uses"].num_rows > 0
    index = p.tables["values"]["shape_index"]
    is_element = pc.fill_null(pc.match_substring(pc.cast(index, pa.string()), "{"), False).to_numpy() & known
    codes, names = encoded(index)
    empty = pc.index(names, "{}").as_py()
    members = w.at_peak & ~is_read & is_element & (codes != empty)
    values = np.flatnonzero(members)
    if not len(values):
        return
    change = Change(0, -w.only(members))
    text = (
        "Nothing reads these results, which are elements of a tuple that is needed, or the scratch memory of a library "
        "call. Compute only what is used, or try another algorithm."
    )
    yield Intervention("tuple", largest_first(w, values), change, 0, w.saved(change), "try", text)
