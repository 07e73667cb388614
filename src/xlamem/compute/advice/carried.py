"""Find arrays that a loop reads slice by slice and stacks anew, such as a cache in `xs` and `ys` of `jax.lax.scan`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from ..buffer_names import phases_of_values, trip_counts
from ..columns import Ints, Mask, flags_of, ints
from ..layout import CONSTANT, LIVE_OUT, PARAMETER
from ..op_names import OPTIMIZER, matching
from ..origins import uses_of
from ..program import distinct_rows
from ..uses import leads_to, use_steps
from .bounds import of_values, with_vmem
from .donations import without_outputs
from .intervention import MIN_SHARE, Intervention, argument_names, largest_first, rescheduled_at_worst
from .layers import LayerActivations
from .loop_results import described
from .what_if import Change, largest_groups

CARRY_LOWER, CARRY_UPPER = 0.75, 1.1
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
MAX_LOOPS, MAX_ARRAYS = 16, 16
"""Maximum number of loops, and of arrays that each one stacks, that are looked at, the largest first."""
MIN_PART = 1 / 16
"""Minimum size of what a loop computes from a slice, as a share of the slice: XLA may compute it in parts."""

_WRITING = "dynamic[-_]update[-_]slice"

Pair = tuple[int, int]
"""The value that a loop reads slice by slice, and the result in which it stacks what it computes from the slices."""


def carried_stacks(a: LayerActivations) -> Iterator[Intervention]:
    """Update in place what a loop reads slice by slice and stacks anew, if nothing reads it afterwards."""
    p, w, loops = a.p, a.w, _Loops(a)
    pairs = [pair for stacked in loops.stacked() for pair in loops.pairs(stacked)]
    if not pairs:
        return
    read, stacked = np.array(pairs).T
    # One of both is not needed: an output only if it takes the place of an argument.
    replaced = ~w.in_arena[stacked] & ~w.in_arena[read]
    outputs = stacked[replaced]
    is_spare = loops.in_slots_of(np.where(w.in_arena[stacked] | replaced, stacked, read))
    members = w.in_arena & is_spare
    without, only = without_outputs(w, outputs, is_spare), w.only(members)
    change = Change(without.fixed, without.levels - only)
    estimate = w.saved(change)
    lower = int(CARRY_LOWER * estimate)
    if p.tables.platform == "tpu":
        lower -= rescheduled_at_worst(w, lower)
    text = (
        f"A loop reads {described(a, largest_first(w, read))} slice by slice, and stacks what it computes from each "
        "slice in a new array of the same size, as xs and ys of jax.lax.scan. Pass such an array on in the carry, and "
        f"update it in place: x = x.at[i].set(...).{_donation(a, read[replaced])}"
    )
    values = np.concatenate([np.flatnonzero(members & w.at_peak), outputs])
    of_temporaries = int(CARRY_UPPER * (estimate + without.fixed)) + w.lost_by(only)
    bounds = lower, with_vmem(w, of_temporaries) - int(CARRY_UPPER * without.fixed)
    yield of_values(a, "carry", values, change, bounds, text)


def _donation(a: LayerActivations, parameters: Ints) -> str:
    """Return which arguments have to be donated, so that they can be updated in place."""
    number = ints(a.p.allocations, "parameter_number")[a.p.owner[parameters]]
    names = dict.fromkeys(argument_names(a.w, parameters, number).to_pylist())
    return f" Donate {' and '.join(f'`{name}`' for name in names)} for it." if names else ""


class _Loops:
    """What the loops of a program read and stack."""

    def __init__(self, a: LayerActivations) -> None:
        self.a, self.p, self.trips = a, a.p, trip_counts(a.p)

    def stacked(self) -> Iterator[Ints]:
        """Return the large results of each loop that have an element per iteration, outside of a training's passes."""
        a, p = self.a, self.p
        values = np.flatnonzero(a.has_opcode("while") & a.w.in_memory[p.owner] & (p.extent >= MIN_SHARE * a.w.total))
        trips, leading = self.trips[p.instruction_row[values]], a.dimensions[values, 0]
        # An unrolled loop stacks several slices in each iteration.
        values = values[(trips > 1) & (leading > 0) & (leading % np.maximum(trips, 1) == 0)]
        if a.is_training:
            values = values[phases_of_values(p, values) == OPTIMIZER]
        loop = p.instruction_row[values]
        for row in largest_groups(loop, p.extent[values])[:MAX_LOOPS].tolist():
            yield largest_first(a.w, values[loop == row])[:MAX_ARRAYS]

    def pairs(self, stacked: Ints) -> Iterator[Pair]:
        """Return which of these results of a loop it computes from which arrays, which nothing reads later."""
        a, p, (value, user, _, _) = self.a, self.p, uses_of(self.p)
        loop, end = p.instruction_row[stacked[0]], p.ranges[0][stacked[0]]
        read = np.unique(value[(user == loop) & (value >= 0)])
        read = read[~np.isin(a.slot[read], a.slot[stacked]) & (self._last_use[read] <= end)]
        read = largest_first(a.w, read[np.isin(self._kind[read], self._kind[stacked])])[:MAX_ARRAYS]
        for result in stacked.tolist():
            alike = read[(self._kind[read] == self._kind[result]) & self._may_be_replaced_by(read, result)]
            is_source = self._computes(result)
            array = next((array for array in alike.tolist() if is_source(user[value == array])), None)
            if array is not None:
                read = read[read != array]
                yield array, result

    def in_slots_of(self, values: Ints) -> Mask:
        """Return the arrays of the same kind in the slots of these values, such as what is updated in place."""
        found: Mask = np.isin(self._slot_and_kind, self._slot_and_kind[values])
        return found

    def _may_be_replaced_by(self, read: Ints, result: int) -> Mask:
        """Return which arrays a loop could update in place: an argument only if it is donated, or for an output."""
        category = self.p.category[self.p.owner]
        is_argument: Mask = category[read] == PARAMETER
        is_output = category[result] == LIVE_OUT
        return self.a.w.in_arena[read] | is_argument if is_output else ~is_argument & (category[read] != CONSTANT)

    def _computes(self, result: int) -> Callable[[Ints], bool]:
        """Return whether a loop computes from the slices that instructions read those that it writes to a result."""
        p, is_known = self.p, self.p.instruction_row >= 0
        size = self.a.elements * self.trips[p.instruction_row[result]] / self.a.elements[result]
        writes, through = np.zeros((2, p.tables["instructions"].num_rows), bool)
        writes[p.instruction_row[self.in_slots_of(np.array([result])) & is_known]] = True
        through[p.instruction_row[(size <= 1) & (size >= MIN_PART) & is_known]] = True
        writes &= self._writes_slices
        return lambda readers: leads_to(p, readers[readers >= 0], writes, through)

    @cached_property
    def _writes_slices(self) -> Mask:
        """Which instructions write a slice of what they return, by their names or op_names."""
        by_op_name, by_name = (
            flags_of(matching(names, _WRITING), codes)
            for codes, names in (self.p.printed_op_names, self.p.texts("instructions", "instruction"))
        )
        return by_op_name | by_name

    @cached_property
    def _kind(self) -> Ints:
        """Codes that are equal for arrays with the same element type and number of elements."""
        elements = np.minimum(self.a.elements, 1 << 62).astype(np.int64)
        return distinct_rows(elements, self.p.texts("values", "element_type")[0])

    @cached_property
    def _slot_and_kind(self) -> Ints:
        return distinct_rows(self.a.slot, self._kind)

    @cached_property
    def _last_use(self) -> Ints:
        """The last step at which each value is read, or until which it is live in a temp allocation."""
        value, step = use_steps(self.p)
        last = np.where(self.a.w.in_arena, self.p.ranges[1], -1)
        np.maximum.at(last, value, step)
        return last
