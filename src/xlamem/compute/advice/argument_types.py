"""Keep arguments in smaller element types, with bounds of what that saves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..aliasing import matched
from ..buffer_names import phases_of_values
from ..columns import Ints, Mask, encoded, take_text
from ..layout import DONATED, LIVE_OUT
from ..op_names import PHASES, matching
from ..origins import has_opcode, origins, uses_of
from .intervention import (
    MARGIN,
    NARROWER,
    Confidence,
    Intervention,
    argument_names,
    dimensions,
    largest_first,
)
from .what_if import Change, WhatIf, largest_groups

NARROWER_MARGIN = 0.05
"""Share of what smaller element types of arguments save that may be saved in addition, up to all temporaries."""
MIN_ARGUMENT_SHARE = 0.05
"""Minimum share of what must fit that a smaller element type of an argument has to save."""
_SECOND_MOMENTS = r"\b(?:nu|exp_avg_sq)\b"
_WIDENED = "On a CPU, XLA computes in f32, and may read a copy in f32."


def narrower_arguments(w: WhatIf) -> Iterator[Intervention]:
    """Keep each large argument in an element type of half the size, together with the outputs that replace it."""
    p = w.p
    parameters, outputs, match = matched(p)
    element_types = pc.cast(p.value_text("element_type", parameters.value), pa.string())
    wide = pc.is_in(element_types, pa.array([*NARROWER], pa.string()))
    found = np.flatnonzero(wide.to_numpy(zero_copy_only=False) & w.in_memory[parameters.allocation])
    names = argument_names(w, parameters.value[found], parameters.number[found])
    codes, roots = encoded(pa.chunked_array([names]))
    is_kept = _are_second_moments(w, parameters.value[found])
    for code in largest_groups(codes, p.extent[parameters.value[found]]):
        rows = found[(codes == code) & ~is_kept]
        if not len(rows):
            continue
        output = outputs.value[match.output[rows][match.output[rows] >= 0]]
        name, number = roots[int(code)].as_py(), int(parameters.number[rows].min())
        but = " except Adam's second moments," if (is_kept & (codes == code)).any() else ""
        yield _narrower_argument(w, name, number, parameters.value[rows], output, but)


def _narrower_argument(w: WhatIf, name: str, number: int, values: Ints, outputs: Ints, but: str) -> Intervention:
    allocations = np.unique(w.p.owner[np.concatenate([values, outputs])])
    change = Change(-int(w.p.allocation_size[allocations].sum()) // 2, w.none)
    values = largest_first(w, values)
    wide = w.p.value_text("element_type", values[:1])[0].as_py()
    widened = w.p.tables.platform == "cpu" and NARROWER[wide] == "bfloat16" and not _only_updates_read(w, values)
    note = _WIDENED if widened else "Where the program converts it back, temporaries grow."
    text = f"Keep `{name}` in {NARROWER[wide]} instead of {wide},{but} if that is precise enough. {note}"
    estimate = w.saved(change)
    lower = -estimate if widened else int(0.4 * estimate)
    best = w.saved(Change(change.fixed, -_narrowed_with(w, values, wide)))
    # What remains of the temporaries may fit into outputs.
    upper = best + max(int(MARGIN * w.peak), min(w.peak, int(NARROWER_MARGIN * estimate)))
    large = estimate >= MIN_ARGUMENT_SHARE * w.total
    confidence: Confidence = "try" if widened else "likely"
    return Intervention("dtype", values, change, lower, upper if large else 0, confidence, text, name, number)


def _are_second_moments(w: WhatIf, values: Ints) -> Mask:
    """Return which arguments have a name that optax or PyTorch gives to Adam's second moments, and are f32.

    bfloat16 is too coarse for a decay of 0.999.
    """
    names = pc.cast(origins(w.p).names.columns(w.p.instruction_row[values])["op_name"], pa.string())
    is_f32 = pc.equal(pc.cast(w.p.value_text("element_type", values), pa.string()), "f32")
    found: Mask = matching(names, _SECOND_MOMENTS) & is_f32.to_numpy(zero_copy_only=False)
    return found


def _narrowed_with(w: WhatIf, values: Ints, wide: str) -> Ints:
    """Return the bytes at each step that are not needed either if these arguments have a narrower element type.

    Copies of another type are not needed. Gradients have the dimensions of what the forward pass reads, and halve.
    """
    p, (dimension, _), (value, user, _, _) = w.p, dimensions(w.p), uses_of(w.p)
    alike = w.in_arena & np.isin(dimension, dimension[values]) & (dimension >= 0)
    is_wide = alike.copy()
    types = pc.cast(p.value_text("element_type", np.flatnonzero(alike)), pa.string())
    is_wide[alike] = pc.fill_null(pc.equal(types, wide), False).to_numpy(zero_copy_only=False)
    argument = origins(p).argument
    is_own = np.isin(argument, p.owner[values])
    copies, gradients = alike & ~is_wide & is_own, is_wide & (is_own | (argument < 0))
    read = np.isin(p.instruction_row, user[np.isin(value, values) & (user >= 0)])
    if not (copies.any() or (phases_of_values(p, np.flatnonzero(read)) == PHASES.index("forward")).any()):
        return w.none
    narrowed: Ints = w.only(copies) + w.only(gradients) // 2
    return narrowed


def _only_updates_read(w: WhatIf, values: Ints) -> bool:
    """Return whether nothing reads these values but fusions of elementwise operations that write outputs.

    They convert what they read. Other fusions may leave the conversion to an instruction of its own.
    """
    p, (value, user, _, _) = w.p, uses_of(w.p)
    users = user[np.isin(value, values) & (user >= 0)]
    kinds = pc.cast(take_text(p.tables["instructions"]["fusion_kind"], users), pa.string())
    written = p.instruction_row[np.isin(p.category, (DONATED, LIVE_OUT))[p.owner]]
    updates = matching(kinds, "^kLoop$") & np.isin(users, written)
    return bool((updates | has_opcode(p, users, "^(?:tuple|bitcast)$")).all())
