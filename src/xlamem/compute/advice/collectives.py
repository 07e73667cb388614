"""Gather or exchange less at a time, with bounds of what that saves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..buffer_names import phases_of_values, trip_counts
from ..columns import Ints, Mask, arrow_array, encoded, flags_of, take, take_text
from ..layout import DONATED, LIVE_OUT, PARAMETER
from ..op_names import PHASES, matching
from ..origins import has_opcode, origins, uses_of
from ..program import Program
from ..replica_groups import MAX_DEVICES, replica_groups
from .intervention import MARGIN, MIN_SHARE, Intervention, dimensions, largest_first, only_line, rescheduled
from .what_if import Change, WhatIf, largest_groups

MAX_RESULTS = 16
"""Maximum number of results of collectives that are classified, the largest first."""
_GRADIENTS = "give the result the sharding of the parameters."
_ACTIVATIONS = "shard the result along samples, heads or features with jax.lax.with_sharding_constraint."
_ONE_LAYER = (
    "Gather the weights of one layer at a time (scan over layers), or keep the result sharded with "
    "jax.lax.with_sharding_constraint."
)
_IN_BODY = (
    "A loop reads them slice by slice: put what gathers them, such as jax.lax.with_sharding_constraint, into its body, "
    "in training inside of jax.checkpoint."
)
_COLLECTIVES = r"^(?:all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute|ragged-all-to-all)"


def large_collectives(w: WhatIf) -> Iterator[Intervention]:
    """Gather or exchange less at a time."""
    codes, names = encoded(w.p.tables["instructions"]["opcode"])
    is_collective = matching(names, _COLLECTIVES)
    opcode = take(codes, w.p.instruction_row)
    is_slice = flags_of(matching(names, "^all-gather"), opcode) & _are_slices(w)
    members = w.in_arena & flags_of(is_collective, opcode) & ~is_slice
    for code in largest_groups(np.where(members & w.at_peak, opcode, -1), w.p.extent).tolist():
        yield _collective(w, names[code].as_py(), members & (opcode == code))


def _collective(w: WhatIf, opcode: str, members: Mask) -> Intervention:
    change = Change(0, -w.only(members))
    what, values = opcode.removesuffix("-start"), largest_first(w, np.flatnonzero(members & w.at_peak))
    loops = _loops_over(w, int(values[0])) if what == "all-gather" else np.zeros(0, np.int64)
    how = {
        "all-gather": _IN_BODY if len(loops) else _ONE_LAYER,
        "all-reduce": f"Reduce-scatter instead: {_GRADIENTS if _may_be_gradient(w, int(values[0])) else _ACTIVATIONS}",
        "all-to-all": "Exchange less at a time: split the array, or lower the capacity of experts.",
    }.get(what, "Split the array, so that less of it is in flight.")
    text = f"The results of {what} take memory at the peak. {how}"
    lower, upper = min(0, -int(MARGIN * w.peak)), w.saved(Change(0, -w.only(members | _like_gathered(w, members))))
    if what == "all-gather":
        # What has as many elements as the largest result, in a type that is as wide or twice as wide, is sharded then.
        size = int(w.p.unpadded[values].max())
        alike = members | (w.in_arena & np.isin(w.p.unpadded, [size, 2 * size]))
        best = w.saved(Change(0, -w.only(alike)))
        upper = max(upper, best + (rescheduled(w, best) if w.p.tables.platform == "tpu" else 0))
    if upper >= MIN_SHARE * w.total:
        upper = _others_sharded(w, values, members, upper)
    return Intervention("collective", values, change, lower, upper, "try", text, line=only_line(w.p, loops))


def _loops_over(w: WhatIf, value: int) -> Ints:
    """Return the loops that read a value and have as many iterations as its first dimension."""
    read, user, _, _ = uses_of(w.p)
    loops = user[(read == value) & has_opcode(w.p, user, "^while$")]
    size = _first_dimensions(w.p)[0][value]
    found: Ints = loops[(trip_counts(w.p)[loops] == size) & (size > 0)]
    return found


def _others_sharded(w: WhatIf, values: Ints, members: Mask, upper: int) -> int:
    """Return an upper bound that allows for other arrays to be sharded along with these results.

    That is what has as many samples as activations among them, of which each device keeps its part, and outputs with
    the dimensions of one of them. Temporaries in these outputs need another place then.
    """
    p, own = w.p, values[:MAX_RESULTS][origins(w.p).argument[values[:MAX_RESULTS]] < 0]
    is_gradient = np.array([_may_be_gradient(w, value) for value in own.tolist()], bool)
    results, only = w.only(members), w.only(members | _of_as_many_samples(w, own[~is_gradient]))
    removed = only - (only - results) // _n_devices(w, values) if (only > results).any() else only
    codes, output = dimensions(p)[0], w.in_memory & (p.category == LIVE_OUT) & (p.representative >= 0)
    output[output] = np.isin(codes[p.representative[output]], codes[own])
    saved = w.saved(Change(0, -removed))
    temporaries = min(max(upper, saved) + w.lost_by(only), w.arena_bytes)
    without = Change(-int(p.allocation_size[output].sum()), w.moved_out_of(output) - removed)
    return temporaries + w.saved(without) - saved


def _n_devices(w: WhatIf, values: Ints) -> int:
    """Return the number of devices that take part in these collectives, as printed, or else more than there are."""
    attributes = take_text(w.p.tables["instructions"]["attributes"], w.p.instruction_row[values[:MAX_RESULTS]])
    found = (replica_groups(text or "") for text in attributes.to_pylist())
    return max((groups.devices for groups in found if groups), default=MAX_DEVICES)


def _of_as_many_samples(w: WhatIf, activations: Ints) -> Mask:
    """Return which temporaries have the first dimension of one of these activations as their first or second one.

    Except those with the dimensions of an argument: there may be as many layers as samples.
    """
    first, second = _first_dimensions(w.p)
    sizes = np.setdiff1d(first[activations], [-1])
    is_sample = np.isin(first, sizes) | np.isin(second, sizes)
    found: Mask = w.in_arena & is_sample & ~np.isin(dimensions(w.p)[0], _of_arguments(w.p))
    return found


def _first_dimensions(p: Program) -> tuple[Ints, Ints]:
    """Return the first and the second dimension of each array, -1 where it has none."""
    codes, names = dimensions(p)
    leading = pc.extract_regex(names, r"^(?P<first>\d{1,17})(?:,(?P<second>\d{1,17}))?")
    first, second = (take(_numbers(pc.struct_field(leading, field)), codes) for field in ("first", "second"))
    return first, second


def _of_arguments(p: Program) -> Ints:
    """Return the codes of the dimensions of arguments."""
    codes = np.unique(take(dimensions(p)[0], p.representative[(p.category == PARAMETER) | (p.category == DONATED)]))
    return codes[codes >= 0]


def _numbers(texts: pa.Array) -> Ints:
    """Return these numbers, -1 for what is empty or missing."""
    known = pc.if_else(pc.equal(pc.fill_null(texts, ""), ""), "-1", texts)
    return np.asarray(pc.cast(known, pa.int64()), np.int64)


def _like_gathered(w: WhatIf, members: Mask) -> Mask:
    """Return which temporaries have the dimensions of weights among these: their gradients are gathered as well."""
    dimension, _ = dimensions(w.p)
    weights = members & w.at_peak & (origins(w.p).argument >= 0) & (dimension >= 0)
    alike: Mask = w.in_arena & np.isin(dimension, dimension[weights])
    return alike


def _may_be_gradient(w: WhatIf, value: int) -> bool:
    """Return whether the dimensions of a value are multiples of an argument's, or of those of a layer.

    What the forward pass computes is no gradient.
    """
    p, (codes, names) = w.p, dimensions(w.p)
    forward = [PHASES.index(phase) for phase in ("forward", "recompute")]
    if phases_of_values(p, np.array([value]))[0] in forward or codes[value] < 0:
        return bool(codes[value] < 0)
    texts = pc.take(names, arrow_array(np.append(codes[value], _of_arguments(p)))).to_pylist()
    size, *arguments = ([int(n) for n in text.split(",") if 0 < len(n) < 18] for text in texts)
    layers = (argument[1:] for argument in arguments if len(argument) > 1)
    return any(
        len(like) == len(size) and all(n and m % n == 0 for m, n in zip(size, like, strict=True))
        for like in (*arguments, *layers)
    )


def _are_slices(w: WhatIf) -> Mask:
    """Return which values are slices of arguments, by their number of dimensions: a loop reads those of a layer."""
    p, (codes, names) = w.p, dimensions(w.p)
    rank = take(np.asarray(pc.count_substring(names, ","), np.int64), codes)
    whole = take(p.representative, origins(p).argument)
    found: Mask = (whole >= 0) & (codes >= 0) & (rank < take(rank, whole))
    return found
