"""Change shapes whose layouts add bytes, and use fewer small buffers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..columns import Ints, Mask, encoded, take
from ..layout import DONATED, PARAMETER, TEMP
from ..op_names import matching
from ..tiles import tiled_dimensions
from .intervention import MARGIN, MIN_SHARE, Intervention, common_scope, joined_by_and, largest_first
from .what_if import Change, WhatIf

SHAPES_UPPER = 1.05
"""Multiple of the estimate that is the upper bound for an array in several shapes."""
TIMES = 1.1
"""How many times as large an array is at least that is not just some percent larger."""
MAX_SHAPES = 5
"""Maximum number of shapes that are proposed to be changed."""
MAX_GRANULE = 1 << 16
"""Maximum size of the cells of an arena."""
MIN_SMALL_BUFFERS = 64
"""Minimum number of small buffers that are worth a row."""


def shapes(w: WhatIf) -> Iterator[Intervention]:
    """Change the shapes whose layouts add most bytes: tiles round small minor dimensions up."""
    p = w.p
    padding = np.where(p.unpadded > 0, np.maximum(p.extent - p.unpadded, 0), 0)
    counts = w.at_peak | (p.is_fixed & w.in_memory)[p.owner] & (np.arange(len(p.owner)) == p.representative[p.owner])
    codes, names = encoded(p.tables["values"]["shape"])
    padding[take(matching(pc.cast(names, pa.string()), r"^\("), codes) > 0] = 0  # tables of tuples
    if not (counts & (padding > 0)).any():
        return
    total = np.bincount(codes[counts] + 1, padding[counts], minlength=len(names) + 1)[1:]
    alike: dict[tuple[Any, ...], list[int]] = {}
    for code in np.argsort(-total, kind="stable")[:MAX_SHAPES].tolist():
        alike.setdefault(_padded_array(names[code].as_py()), []).append(code)
    for group in alike.values():
        values = np.flatnonzero(np.isin(codes, group) & (padding > 0))
        if len(values) and "[]" not in names[group[0]].as_py():
            yield _shape(w, [names[code].as_py() for code in group], values, padding, counts)


def _padded_array(shape: str) -> tuple[Any, ...]:
    """Return a key that two shapes share if only dimensions without padding are merged or split."""
    array, _, layout = shape.partition("{")
    padded = sorted(t.padded / t.size for t in tiled_dimensions(shape) if t.is_padded)
    sizes = sorted(t.size for t in tiled_dimensions(shape) if t.is_padded)
    element_type, _, dimensions = array.rstrip("]").partition("[")
    elements = math.prod(map(int, re.findall(r"\d+", dimensions)))
    return (element_type, elements, *sizes, *padded) if sizes else (array, layout)


def _shape(w: WhatIf, texts: list[str], values: Ints, padding: Ints, counts: Mask) -> Intervention:
    p, shape, smaller = w.p, texts[0], w.p.extent.copy()
    smaller[values] -= padding[values]
    fixed = -int(padding[values[counts[values] & ~w.in_arena[values]]].sum())
    change = Change(fixed, -w.shrunk(smaller))
    estimate, times = w.saved(change), p.extent[values].sum() / max(1, (p.extent - padding)[values].sum())
    array, *others = dict.fromkeys(text.partition("{")[0] for text in texts)
    also = f"So does that of {joined_by_and(others)}. " if others else ""
    tiled = [t for t in tiled_dimensions(shape) if t.is_padded]
    padded = " and ".join(f"dimension {t.dimension} from {t.size:,} to {t.padded:,}" for t in tiled)
    larger = f"{times:.1f} times as large" if times >= TIMES else f"{100 * (times - 1):.0f} % larger"
    text = (
        f"The layout makes {array} {larger}{': it pads ' if padded else ''}{padded}. "
        f"{also}Merge its dimensions (reshape it to one), put a long one last, or choose sizes that need no padding."
    )
    scope, order = _named_first(w, largest_first(w, values[counts[values]]), shape)
    # The compiler may need a copy in the other layout.
    lower = min(-int((p.extent - padding)[order].max(initial=0)), -int(MARGIN * w.peak))
    upper = int(SHAPES_UPPER * estimate) if others else estimate  # parts of the array have more shapes
    return Intervention("shape", order, change, lower, upper, "try", text, scope=scope)


def _named_first(w: WhatIf, values: Ints, shape: str) -> tuple[str | None, Ints]:
    """Return the scope that most bytes of this shape have, and the values with those of both first.

    If arguments have this shape, these count: what is computed from them has it because of them.
    """
    p = w.p
    named = np.array([text == shape for text in p.value_text("shape", values).to_pylist()], bool)
    arguments = named & np.isin(p.category[p.owner[values]], (PARAMETER, DONATED))
    named = arguments if arguments.any() else named
    scope, members = common_scope(p, values[named])
    rank = np.where(named, 1, 2)
    rank[np.flatnonzero(named)[members]] = 0
    return scope, values[np.argsort(rank, kind="stable")]


def small_slots(w: WhatIf) -> Iterator[Intervention]:
    """Use fewer small buffers, each of which occupies a cell of the arena alone."""
    p, owner = w.p, w.p.owner[w.rows]
    is_large = (p.category == TEMP) & w.in_memory & (p.allocation_size >= max(1, MIN_SHARE * w.total))
    for arena in np.flatnonzero(is_large).tolist():
        rows = w.rows[owner == arena]
        offsets = np.unique(p.offset[rows])
        if len(offsets) < 2:
            continue
        granule = int(np.bitwise_or.reduce(offsets))
        granule = min(granule & -granule, MAX_GRANULE)
        cells, small = _small_cells(w, rows, granule), rows[p.extent[rows] <= granule // 4]
        if len(cells) * granule >= MIN_SHARE * w.total and len(small) >= MIN_SMALL_BUFFERS:
            yield _slots(w, small, len(cells) * granule, granule)


def _small_cells(w: WhatIf, rows: Ints, granule: int) -> Ints:
    """Return the cells of an arena in which there are never any but small values."""
    p = w.p
    is_small = p.extent[rows] <= granule // 4
    small, large = rows[is_small], rows[~is_small]
    cells = np.unique(p.offset[small] // granule)
    first = np.sort(p.offset[large] // granule)
    last = np.sort((p.offset[large] + p.extent[large] - 1) // granule)
    n_large = np.searchsorted(first, cells, "right") - np.searchsorted(last, cells, "left")
    alone: Ints = cells[n_large == 0]
    return alone


def _slots(w: WhatIf, values: Ints, lost: int, granule: int) -> Intervention:
    shapes = pc.cast(w.p.value_text("shape", values), pa.string())
    n_tables = int(pc.sum(pc.starts_with(shapes, "(")).as_py() or 0)
    text = (
        f"{len(values):,} buffers of at most {granule // 4:,} bytes keep slots of {granule:,} bytes; {n_tables:,} of "
        "them are tables of tuples, as asynchronous copies have. Pass fewer, larger arrays (join small ones), or scan "
        f"over the layers."
    )
    change = Change(-lost, w.none)
    return Intervention("slots", largest_first(w, values), change, 0, lost + lost // 20, "try", text)
