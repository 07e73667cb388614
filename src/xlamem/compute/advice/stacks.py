"""Find the activations that loops stack for their backward pass."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from ... import kernels as pc
from ..buffer_names import trip_counts
from ..columns import Ints, Mask
from ..origins import has_opcode, uses_of
from ..program import distinct_rows
from ..uses import use_steps
from .activations import BACKWARD, FORWARD, RECOMPUTE, Activations
from .what_if import largest_groups

_INNERMOST_CHECKPOINT = r"^(?P<outside>.*)\b(?:checkpoint|remat\d*|rematted_computation)/"
"""An op_name up to the last component that says so."""
_PASSING = "^(?:tuple|get-tuple-element|while|bitcast|copy|slice|transpose|reshape|(?:copy|slice)-(?:start|done))$"
"""Opcodes that pass the results of loops on, also to the backward pass."""
SMALL_ELEMENT = 64
"""An element of a stack is small if it is this many times smaller than the largest one."""


class Stacks(NamedTuple):
    """The buffers in which a loop of the forward pass collects what its backward pass reads."""

    loop: int
    """The `while` value that stands for the loop."""
    values: Ints
    """The results of the loop, one per buffer."""
    members: Mask
    """All values in the same slots."""
    trips: int
    """Number of iterations, the leading dimension of each buffer."""
    carry: int
    """Bytes that one iteration passes to the next."""
    least_carry: int
    """Bytes that it passes at least, if the arrays are passed on in half the size, or none is known to be."""
    recomputed: bool
    """Whether the backward pass computes parts of an iteration again, as it does if only what is passed on is kept."""
    checkpointed: bool
    """Whether the body is checkpointed. If nothing is computed again, a policy keeps it."""
    read: tuple[int, int]
    """First and last step at which the backward pass reads them."""
    sliced: int
    """Bytes of an iteration in other arrays that the loop of the backward pass reads or writes slice by slice, such as
    weights and their gradients."""

    def per_trip(self, sizes: Ints) -> int:
        """Return the bytes that one iteration adds."""
        return int(sizes[self.values].sum()) // self.trips


class LoopActivations(Activations):
    """Knows what loops keep for their backward pass."""

    @cached_property
    def stacks(self) -> list[Stacks]:
        """The loops of the forward pass, or of its recomputation, whose results the backward pass reads."""
        again = self.w.in_arena & (self.phase == RECOMPUTE)
        results = np.flatnonzero(self.has_opcode("while") & (self.is_kept | again) & ~self.used_after_loops)
        instruction = self.p.names[0][results]
        largest = largest_groups(instruction, self.p.extent[results])
        found = [self._stacks(results[instruction == code]) for code in largest]
        return [s for s in found if s is not None]

    @cached_property
    def used_after_loops(self) -> Mask:
        """Which results of loops code outside of the backward pass reads, such as `ys` of `jax.lax.scan`."""
        value, user, _, _ = uses_of(self.p)
        known = (value >= 0) & (user >= 0) & self.has_opcode("while")[value]
        value, user = value[known], user[known]
        used = np.zeros(len(self.p.owner), bool)
        is_named = self.p.printed_op_names[0][user] >= 0
        used[value[is_named & ~has_opcode(self.p, user, _PASSING) & ~self.is_later[user]]] = True
        return used & self.w.in_arena

    def gradients_of(self, stacks: Mask) -> Mask:
        """Return which values may be gradients of these results of loops: they have the same dimensions.

        Gradients of arguments do not count.
        """
        code = distinct_rows(*self.dimensions.T)
        found: Mask = self.w.in_arena & (self.phase == BACKWARD) & np.isin(code, code[stacks])
        return found & ~self.is_like_state

    def _stacks(self, results: Ints) -> Stacks | None:
        """Return the stacks among the results of one loop, if there are any."""
        leading = self.dimensions[results, 0]
        trips = with_most_bytes(leading, self.p.extent[results])
        known = int(trip_counts(self.p)[self.p.instruction_row[results[0]]])
        if known > 0 and known not in (trips, trips - 1, trips // 2):
            # The rounds of a random number generator, for example, whose results have a batch. XLA may peel an
            # iteration off a loop, or join two.
            trips = known
        values = results[leading == trips]
        if trips < 2 or not len(values):
            return None
        loop = values[np.argmax(self.p.extent[values])]
        members = self.w.in_arena & np.isin(self.slot, self.slot[values])
        read = self._first_read(values), int(self.p.ranges[1][values].max())
        start = self.p.ranges[0]
        inside = (start >= read[0]) & (start <= read[1])
        # What surrounds a loop that is computed again itself is checkpointed, which does not concern its body.
        inside &= (self.phase[loop] != RECOMPUTE) | (self._checkpointed_loops >= self.loops[loop])
        again, in_checkpoint = (self.phase == RECOMPUTE) & inside, self._is_checkpointed & inside
        passed_on = self._keeps_what_it_passes_on(int(loop), values, trips)
        # A checkpoint of a part of the body, such as attention, does not keep the loop from stacking the others.
        of_body = passed_on or self.mostly_on_lines_of(again | in_checkpoint, values)
        recomputed, checkpointed = (of_body and bool(m.any()) for m in (again, in_checkpoint))
        # What is computed again may be inside of fusions only, and not all that a policy leaves out is a product.
        recomputed = (recomputed and not self._mostly_saved_by_policy(values)) or (checkpointed and passed_on)
        by_policy = checkpointed and not recomputed
        carry = self._carry(int(loop), values, trips, by_policy=by_policy)
        least = min(carry // 2, self._other_bytes(int(loop), trips))
        sliced = self._sliced(values, trips) // trips
        return Stacks(int(loop), values, members, trips, carry, least, recomputed, checkpointed, read, sliced)

    def _sliced(self, stacks: Ints, trips: int) -> int:
        """Return the bytes of other arrays with this leading dimension that loops read which read these stacks."""
        value, user, _, _ = uses_of(self.p)
        is_loop = (value >= 0) & has_opcode(self.p, user, "^while$")
        value, user = value[is_loop], user[is_loop]
        read = np.unique(value[np.isin(user, user[np.isin(value, stacks)])])
        return int(self.p.extent[read[(self.dimensions[read, 0] == trips) & ~np.isin(read, stacks)]].sum())

    def are_slices_of(self, stacks: Ints) -> Mask:
        """Return which temporaries have the dimensions of one of these arrays, but 1 in place of the first."""
        is_slice = self.w.in_arena & (self.dimensions[:, 0] == 1)
        found: Mask = is_slice & np.isin(self._of_elements, self._of_elements[stacks])
        return found

    @cached_property
    def _of_elements(self) -> Ints:
        """Codes that are equal for arrays with the same dimensions after the first one."""
        return distinct_rows(*self.dimensions[:, 1:].T)

    def _first_read(self, values: Ints) -> int:
        """Return the first step at which one of these values is read."""
        value, step = use_steps(self.p)
        reads = step[np.isin(value, values) & (step > self.p.ranges[0][value])]
        return int(reads.min()) if len(reads) else int(self.p.ranges[1][values].max())

    def _carry(self, loop: int, stacks: Ints, trips: int, *, by_policy: bool) -> int:
        """Return the bytes of the arrays that a loop passes from one iteration to the next.

        These are results of the loop as large as an element of one of its stacks, or the smallest element without any.
        Elements much smaller than the largest are not considered. If the stacks are kept by a policy, so are these
        arrays: if none of these stacks is theirs, it is in another memory space.
        """
        p, (others, of_others, of_stacks) = self.p, self._other_results(loop, stacks, trips)
        element = np.unique(p.extent[stacks] // trips)
        element = element[element >= element[-1] // SMALL_ELEMENT]
        # In another memory space, the same array may have another layout.
        size_of = np.zeros(int(max(of_others.max(initial=0), of_stacks.max())) + 1, np.int64)
        np.maximum.at(size_of, of_stacks, p.extent[stacks] // trips)
        in_memory = self.w.in_memory[p.owner[others]]
        is_own = np.isin(p.extent[others], element) | (in_memory & (size_of[of_others] > 0))
        size = np.where(is_own, p.extent[others], size_of[of_others])
        size[size < element[0]] = 0
        in_memory &= size > 0
        carried = int(size[in_memory].sum() if in_memory.any() and not by_policy else size.sum())
        return carried or (0 if by_policy else int(element[0]))

    def _other_bytes(self, loop: int, trips: int) -> int:
        """Return the bytes of the results of a loop that are no stacks: no more is passed on."""
        others = (self.p.names[0] == self.p.names[0][loop]) & (self.dimensions[:, 0] != trips)
        return int(self.p.extent[others].sum())

    def _other_results(self, loop: int, stacks: Ints, trips: int) -> tuple[Ints, Ints, Ints]:
        """Return the results of a loop that are no stacks, and codes that are equal for the dimensions of elements.

        The codes are those of the others and of the stacks, whatever the order of dimensions. What has the dimensions
        of an element is none of the stacks, even if there are as many samples as iterations.
        """
        others = np.flatnonzero((self.p.names[0] == self.p.names[0][loop]) & (self.p.names[0] >= 0))
        others = others[~np.isin(others, stacks)]
        of_stacks = self.dimensions[stacks]
        of_stacks[:, 0] = 0
        dimensions = np.concatenate([self.dimensions[others], of_stacks])
        code = distinct_rows(*np.sort(np.where(dimensions == 1, 0, dimensions), axis=1).T)
        of_others, of_stacks = code[: len(others)], code[len(others) :]
        kept = (self.dimensions[others, 0] != trips) | np.isin(of_others, of_stacks)
        return others[kept], of_others[kept], of_stacks

    def _keeps_what_it_passes_on(self, loop: int, stacks: Ints, trips: int) -> bool:
        """Return whether most bytes of these stacks are what the loop passes on: one stack for each of these arrays."""
        _, of_others, of_stacks = self._other_results(loop, stacks, trips)
        order = np.lexsort((-self.p.extent[stacks], of_stacks))
        stacks, code = stacks[order], of_stacks[order]
        position = np.arange(len(code)) - np.searchsorted(code, code)
        is_passed_on = position < np.bincount(of_others, minlength=int(code.max()) + 1)[code]
        extent = self.p.extent[stacks]
        return 2 * int(extent[is_passed_on].sum()) > int(extent.sum())

    def _mostly_saved_by_policy(self, values: Ints) -> bool:
        """Return whether a policy of jax.checkpoint saves most bytes of these values."""
        extent = self.p.extent[values]
        return 2 * int(extent[self.is_saved_by_policy(values)].sum()) > int(extent.sum())

    @cached_property
    def loops(self) -> Ints:
        """The number of loops around each value and of which it is a result, by its op_name."""
        return self.of_op_name(np.asarray(pc.count_substring(self.op_names, "/while"), np.int64))

    @cached_property
    def _checkpointed_loops(self) -> Ints:
        """The number of loops around the innermost call of jax.checkpoint that contains each value."""
        outside = pc.struct_field(pc.extract_regex(self.op_names, _INNERMOST_CHECKPOINT), "outside")
        return self.of_op_name(np.asarray(pc.fill_null(pc.count_substring(outside, "/while"), 0), np.int64))

    def names_for(self, stacks: Stacks) -> tuple[str, ...]:
        """Return names for the matrix products in the body of a loop."""
        start, end = self.p.ranges[0][stacks.members].min(), self.p.ranges[0][stacks.loop]
        starts = self.p.ranges[0]
        return self.names_of(np.flatnonzero((starts >= start) & (starts <= end) & (self.phase == FORWARD)))


def with_most_bytes(numbers: Ints, sizes: Ints) -> int:
    """Return the number whose items have most bytes together; of several, the lowest."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return int(distinct[np.bincount(inverse, sizes).argmax()])
