"""Find the activations that a training step keeps for its backward pass: by layer, and stacked by loops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.arrays import row_of
from .aliasing import matched
from .buffer_names import source_columns, stack_frames, trip_counts
from .callers import Function, Functions
from .columns import Ints, Mask, arrow_array, encoded, flags_of, ints, match_dictionaries, take
from .layout import DONATED
from .op_names import BACKWARD_NAME, END, scopes
from .origins import has_opcode, operands_of, origins, uses_of
from .program import distinct_rows
from .uses import use_steps
from .what_if import WhatIf, largest_groups

NO_PHASE, FORWARD, BACKWARD, RECOMPUTE = range(4)
"""Phases of a training step, as JAX's transformations name them in an op_name. TensorFlow names the backward pass."""

_FORWARD_NAME = r"\bjvp\("
_PHASES = ((_FORWARD_NAME, FORWARD), (BACKWARD_NAME, BACKWARD), (r"rematted_computation", RECOMPUTE))
"""Patterns of op_names with their phases; the last one that matches applies."""
_LAYER = r"^(?P<layer>(?:[^/]*/)*?[^/]*?\d+\]?)(?:/|$)"
"""A scope up to its first numbered component."""
_PRIMITIVE = r"dot_general|conv_general_dilated|ragged_dot|ragged_dot_general"
_WEIGHTED = rf"/(?:{_PRIMITIVE}){END}"
"""The primitives whose results are worth keeping, because they are expensive to compute again."""
_CHECKPOINT = r"\btranspose\(.*\b(?:checkpoint|remat\d*|rematted_computation)/"
"""Op_names of the backward pass of what jax.checkpoint wraps, whether or not something is computed again."""
_INNERMOST_CHECKPOINT = r"^(?P<outside>.*)\b(?:checkpoint|remat\d*|rematted_computation)/"
"""An op_name up to the last component that says so."""
_LATER = rf"{BACKWARD_NAME}|rematted_computation"
"""Op_names of the backward pass, and of what it computes again."""
_REMAT = r"\.remat"
"""Names of instructions that XLA's rematerialization adds."""
_CONTROL = {
    "while", "body", "cond", "closed_call", "eval_jaxpr", "checkpoint", "rematted_computation", "scan", "shard_map",
    "branch", "jvp",
}  # fmt: skip
"""Components of scopes that name no part of a model."""
MAX_DIMENSIONS = 8
IN_FUNCTION = 0.9
"""Share of the bytes of repeated lines that a function must have computed to be the one that is repeated."""
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


class Layers(NamedTuple):
    """The activations of layers with the same scope, except for a number, or of code that runs several times."""

    family: str
    """The scope, with the number replaced by `*`; empty if no scope has a number."""
    values: Ints
    layer: Ints
    """Layer of each value, from 0."""
    function: Function | None = None
    """The function that runs once per layer, of layers without a number."""

    @property
    def n_layers(self) -> int:
        return len(np.unique(self.layer))


class _Runs(NamedTuple):
    """How often values are computed in the same way."""

    n: int
    """The number with most bytes."""
    times: Ints
    """The number for each value."""
    layer: Ints
    """Which of n each value belongs to, by the step at which it is defined."""


class Activations:
    """The values of a program with their phases, scopes and dimensions."""

    def __init__(self, w: WhatIf) -> None:
        self.w, self.p = w, w.p
        values = np.arange(len(self.p.owner))
        own = pc.cast(self.p.source_columns(values)["op_name"], pa.string())
        # Names of loops tell what they carry. Copies and elements of fusions have the name of their origin.
        completed = pc.cast(source_columns(self.p, values)["op_name"], pa.string())
        self.op_codes, self.op_names = encoded(pc.coalesce(own, completed))

    def of_op_name(self, by_name: Ints) -> Ints:
        """Return for each value what holds for its op_name, -1 without one."""
        return take(by_name, self.op_codes)

    @cached_property
    def phase(self) -> Ints:
        """The phase of each value."""
        by_name = np.zeros(len(self.op_names), np.int64)
        for pattern, phase in _PHASES:
            by_name[_matches(self.op_names, pattern)] = phase
        return self._with_loops(np.maximum(self.of_op_name(by_name), NO_PHASE))

    def _with_loops(self, phase: Ints) -> Ints:
        """Give results of loops without a phase that of the value in the same slot that ends when they start.

        Old releases of JAX name the transformation only in the bodies of loops.
        """
        loops = np.flatnonzero(self.has_opcode("while") & (phase == NO_PHASE) & self.w.in_arena)
        start, end = self.p.ranges
        writers = np.flatnonzero((phase != NO_PHASE) & self.w.in_arena & (end >= 0))
        steps = (self.p.steps or 1) + 1
        found = row_of(self.slot[writers] * steps + end[writers], self.slot[loops] * steps + start[loops])
        phase[loops[found >= 0]] = phase[writers[found[found >= 0]]]
        return phase

    @cached_property
    def is_backward(self) -> Mask:
        """Whether each step belongs to the backward pass, by the last instruction before it that has a phase.

        Copies and slices with the name of what they move do not count: activations are read back in the backward pass.
        Nor does one instruction between two of the other pass, where the compiler has moved it.
        """
        start, steps = self.p.ranges[0], self.p.steps or 1
        is_own = (self.p.op_names(np.arange(len(self.p.owner)))[0] >= 0) | self.has_opcode("while")
        known = np.flatnonzero((self.phase != NO_PHASE) & is_own & (start >= 0) & (start < steps))
        if not len(known):
            return np.zeros(steps, bool)
        phases = np.full(steps, NO_PHASE)
        phases[start[known]] = self.phase[known]
        named = np.flatnonzero(phases)
        backward = phases[named] >= BACKWARD
        before, after = backward[:-2], backward[2:]
        backward[1:-1] = np.where(before == after, before, backward[1:-1])
        last = np.searchsorted(named, np.arange(steps), "right") - 1
        found: Mask = (last >= 0) & backward[last]
        return found

    @cached_property
    def is_kept(self) -> Mask:
        """Whether each value of the forward pass in a temp allocation is last read in the backward pass."""
        end = np.clip(self.p.ranges[1], 0, len(self.is_backward) - 1)
        kept: Mask = self.w.in_arena & (self.phase == FORWARD) & self.is_backward[end]
        return kept

    # -- shapes ----------------------------------------------------------------------------------

    @cached_property
    def _shapes(self) -> tuple[Ints, pa.Array]:
        return encoded(self.p.tables["values"]["shape"])

    @cached_property
    def dimensions(self) -> Ints:
        """The first dimensions of each array, 0 where there are none, as an array (values, MAX_DIMENSIONS)."""
        codes, shapes = self._shapes
        found = np.zeros((len(shapes) + 1, MAX_DIMENSIONS), np.int64)
        for i, text in enumerate(shapes.to_pylist()):
            if match := re.match(r"\w+\[([\d,]+)\]", text):
                numbers = [int(n) for n in match[1].split(",")[:MAX_DIMENSIONS] if 0 < len(n) < 18]
                found[i, : len(numbers)] = numbers
        return found[codes]

    @cached_property
    def opcode(self) -> tuple[Ints, list[str]]:
        """Codes (-1 for unknown) and names of the opcodes that define the values."""
        codes, names = encoded(self.p.tables["instructions"]["opcode"])
        return take(codes, self.p.instruction_row), names.to_pylist()

    def has_opcode(self, name: str) -> Mask:
        codes, names = self.opcode
        return codes == names.index(name) if name in names else np.zeros(len(codes), bool)

    # -- loops -----------------------------------------------------------------------------------

    @cached_property
    def slot(self) -> Ints:
        """The number of the slot (allocation, offset and size) of each value."""
        return distinct_rows(self.p.owner, self.p.offset, self.p.extent)

    def with_slot_mates(self, members: Mask) -> Mask:
        """Return these values and those in the same slots: what a loop reads and writes in place has no op_name."""
        mates: Mask = self.w.in_arena & np.isin(self.slot, self.slot[members])
        return mates

    def only_in_slots(self, values: Ints) -> Ints:
        """Return the bytes that none but these values, and those in the same slots, cover at each step."""
        members = np.zeros(len(self.p.owner), bool)
        members[values] = True
        return self.w.only(self.with_slot_mates(members))

    @cached_property
    def has_uses(self) -> bool:
        """Whether it is known when values are read."""
        return bool(len(use_steps(self.p)[0]))

    @cached_property
    def stacks(self) -> list[Stacks]:
        """The loops of the forward pass, or of its recomputation, whose results the backward pass reads."""
        again = self.w.in_arena & (self.phase == RECOMPUTE)
        results = np.flatnonzero(self.has_opcode("while") & (self.is_kept | again))
        instruction = self.p.names[0][results]
        largest = largest_groups(instruction, self.p.extent[results])
        found = [self._stacks(results[instruction == code]) for code in largest]
        return [s for s in found if s is not None]

    def _stacks(self, results: Ints) -> Stacks | None:
        """Return the stacks among the results of one loop, if there are any."""
        leading = self.dimensions[results, 0]
        trips = _with_most_bytes(leading, self.p.extent[results])
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
        inside &= (self.phase[loop] != RECOMPUTE) | (self._checkpointed_loops >= self._loops[loop])
        recomputed, checkpointed = (bool((m & inside).any()) for m in (self.phase == RECOMPUTE, self._is_checkpointed))
        # What is computed again may be inside of fusions only.
        recomputed |= checkpointed and self._keeps_what_it_passes_on(int(loop), values, trips)
        carry = self._carry(int(loop), values, trips, by_policy=checkpointed and not recomputed)
        sliced = self._sliced(values, trips) // trips
        return Stacks(int(loop), values, members, trips, carry, recomputed, checkpointed, read, sliced)

    def _sliced(self, stacks: Ints, trips: int) -> int:
        """Return the bytes of other arrays with this leading dimension that loops read which read these stacks."""
        value, user, _, _ = uses_of(self.p)
        is_loop = (value >= 0) & has_opcode(self.p, user, "^while$")
        value, user = value[is_loop], user[is_loop]
        read = np.unique(value[np.isin(user, user[np.isin(value, stacks)])])
        return int(self.p.extent[read[(self.dimensions[read, 0] == trips) & ~np.isin(read, stacks)]].sum())

    def are_slices_of(self, stacks: Ints) -> Mask:
        """Return which temporaries have the dimensions of one of these arrays, but 1 in place of the first."""
        of_slices = self.dimensions[stacks]
        of_slices[:, 0] = 1
        code = np.unique(np.concatenate([of_slices, self.dimensions]), axis=0, return_inverse=True)[1].reshape(-1)
        found: Mask = self.w.in_arena & np.isin(code[len(stacks) :], code[: len(stacks)])
        return found

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

    def _other_results(self, loop: int, stacks: Ints, trips: int) -> tuple[Ints, Ints, Ints]:
        """Return the results of a loop that are no stacks, and codes that are equal for the dimensions of elements.

        The codes are those of the others and of the stacks, whatever the order of dimensions.
        """
        others = np.flatnonzero((self.p.names[0] == self.p.names[0][loop]) & (self.p.names[0] >= 0))
        others = others[self.dimensions[others, 0] != trips]
        of_stacks = self.dimensions[stacks]
        of_stacks[:, 0] = 0
        dimensions = np.concatenate([self.dimensions[others], of_stacks])
        code = distinct_rows(*np.sort(np.where(dimensions == 1, 0, dimensions), axis=1).T)
        return others, code[: len(others)], code[len(others) :]

    def _keeps_what_it_passes_on(self, loop: int, stacks: Ints, trips: int) -> bool:
        """Return whether most bytes of these stacks are what the loop passes on: one stack for each of these arrays."""
        _, of_others, of_stacks = self._other_results(loop, stacks, trips)
        order = np.lexsort((-self.p.extent[stacks], of_stacks))
        stacks, code = stacks[order], of_stacks[order]
        position = np.arange(len(code)) - np.searchsorted(code, code)
        is_passed_on = position < np.bincount(of_others, minlength=int(code.max()) + 1)[code]
        extent = self.p.extent[stacks]
        return 2 * int(extent[is_passed_on].sum()) > int(extent.sum())

    # -- layers ----------------------------------------------------------------------------------

    @cached_property
    def _layer_of_name(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the layer of each op_name, -1 for none."""
        if not len(self.op_names):
            return np.empty(0, np.int64), self.op_names
        layers = pc.extract_regex(scopes(self.op_names), _LAYER)
        return encoded(pa.chunked_array([pc.struct_field(layers, "layer")]))

    @cached_property
    def _family_of_layer(self) -> tuple[Ints, pa.Array]:
        """Codes and dictionary of the family of each layer."""
        return encoded(pa.chunked_array([scopes_folded(self._layer_of_name[1])]))

    @cached_property
    def layers(self) -> list[Layers]:
        """The kept activations that are no stacks, by family of layers."""
        stacked = np.zeros(len(self.p.owner), bool)
        for stacks in self.stacks:
            stacked |= stacks.members
        values = np.flatnonzero(self.is_kept & ~stacked)
        layer = take(self._layer_of_name[0], self.op_codes[values])
        folded, families = self._family_of_layer
        family = take(folded, layer)
        largest = largest_groups(family, self.p.extent[values]).tolist()
        found = [Layers(families[f].as_py(), values[family == f], layer[family == f]) for f in largest]
        return [*found, *self._repeated(values[family < 0])]

    def _repeated(self, values: Ints) -> Iterator[Layers]:
        """Find layers without a number: the calls of a function, by stack frames.

        The n-th value of a line is taken for one of the n-th layer.
        """
        values = values[(self.op_codes[values] >= 0) & ~self.is_like_state[values]]
        extent, frames = self.p.extent[values], stack_frames(self.p, values)
        columns = source_columns(self.p, values)
        lines = encoded(columns["source_file"])[0], ints(pa.table(columns), "source_line")
        calls, runs = self._runs(values, frames), self._runs(values, *lines)
        # If the same calls lead to a line each time, a loop makes them. Otherwise, there is a call for each layer.
        in_loop = calls.n > 1
        runs = calls if in_loop else runs
        if runs.n < 2:
            return
        weight = np.where(2 * runs.times > runs.n, extent, 0)
        functions = Functions(self.p.optional("frames"), frames)
        if (function := functions.innermost(weight, IN_FUNCTION, in_loop=in_loop)) is None:
            return
        members = function.calls & (runs.times > 1)
        if runs.n == 2 and not self._is_product[values[members]].any():
            return  # perhaps the terms of a sum
        yield Layers("", values[members], runs.layer[members], function)

    def _runs(self, values: Ints, *columns: Ints) -> _Runs:
        """Return how often what these columns describe, with the same name and dimensions, computes a value."""
        element = self.p.texts("values", "shape_index")[0][values]
        same = self.op_codes[values], self.opcode[0][values], element, *self.dimensions[values].T
        group = distinct_rows(*same, *columns)
        count = np.bincount(group)[group] if len(group) else group
        n = _with_most_bytes(count, self.p.extent[values]) if len(group) else 0
        order = np.lexsort((self.p.ranges[0][values], group))
        position = np.empty(len(values), np.int64)
        position[order] = np.arange(len(values)) - np.searchsorted(group[order], group[order])
        return _Runs(n, count, np.minimum(position * n // np.maximum(count, n), n - 1))

    def is_computed_again(self, values: Ints) -> Mask:
        """Return whether the compiler has chosen to compute each value a second time, by its name."""
        codes, names = self.p.names
        return flags_of(_matches(pc.cast(names, pa.string()), _REMAT), codes[values])

    def passed_on(self, layers: Layers) -> Mask:
        """Return which of these activations are read outside of their layers, which keep them.

        That is by an instruction with the name of another layer, or of none, or with the frame of another function. Or
        the forward pass reads them, or has copied them, once a later layer has begun.
        """
        value, step = use_steps(self.p)
        forward = ~self.is_backward[np.minimum(step, len(self.is_backward) - 1)]
        last = np.full(len(self.p.owner), -1, np.int64)
        np.maximum.at(last, value[forward], step[forward])
        copied = operands_of(self.p, layers.values, np.zeros(len(layers.values), np.int64))
        copied[~has_opcode(self.p, self.p.instruction_row[layers.values], "^copy")] = -1
        read = np.maximum(last[layers.values], take(last, copied))
        layer = np.unique(layers.layer, return_inverse=True)[1].reshape(-1)
        begin = np.full(int(layer.max(initial=-1)) + 1, self.p.steps or 0, np.int64)
        np.minimum.at(begin, layer, self.p.ranges[0][layers.values])
        begins = np.append(np.unique(begin), np.iinfo(np.int64).max)
        found: Mask = read >= begins[np.searchsorted(begins, begin[layer], "right")]
        outside = self._read_outside(layers, copied)
        return found | outside[layers.values] | flags_of(outside, copied)

    def products_per_layer(self, layers: Layers) -> float:
        """Return the number of matrix products of the forward pass in a layer: of calls in its function, or the mean.

        They are found by the names of instructions.
        """
        rows = np.flatnonzero(self.is_forward_product)
        if layers.function is not None:
            frame = take(ints(origins(self.p).names.table, "stack_frame"), rows)
            return len(np.intersect1d(frame, layers.function.frames))
        return int(np.isin(self._layer_of_instruction[rows], layers.layer).sum()) / max(1, layers.n_layers)

    @cached_property
    def _layer_of_instruction(self) -> Ints:
        """The code of the layer of each row of `instructions` by its own name, -1 for none."""
        codes, names = self.p.printed_op_names
        matched = match_dictionaries(pc.cast(names, pa.string()), self.op_names)
        return take(take(self._layer_of_name[0], matched), codes)

    @cached_property
    def is_forward_product(self) -> Mask:
        """Whether each row of `instructions` is by its name a matrix product, in training one of the forward pass."""
        codes, names = self.p.printed_op_names
        names = pc.cast(names, pa.string())
        found = _matches(names, _WEIGHTED) & ~_matches(names, _LATER)
        return flags_of(found & _matches(names, _FORWARD_NAME) if self.is_training else found, codes)

    def _read_outside(self, layers: Layers, copied: Ints) -> Mask:
        """Return which values an instruction reads that belongs to another layer or function by its name or frame.

        `copied` is what each of these activations is a copy of, or -1.
        """
        value, user, _, _ = uses_of(self.p)
        value, user = value[(value >= 0) & (user >= 0)], user[(value >= 0) & (user >= 0)]
        own = np.full(len(self.p.owner), -2, np.int64)
        own[copied[copied >= 0]] = layers.layer[copied >= 0]
        own[layers.values] = layers.layer
        if layers.function is not None:
            frame = take(ints(origins(self.p).names.table, "stack_frame"), user)
            is_outside = (frame >= 0) & ~np.isin(frame, layers.function.frames)
        else:
            is_named = take(self.p.printed_op_names[0], user) >= 0
            is_outside = is_named & (self._layer_of_instruction[user] != own[value])
        found = np.zeros(len(own), bool)
        found[value[is_outside]] = True
        return found

    @cached_property
    def _loops(self) -> Ints:
        """The number of loops around each value and of which it is a result, by its op_name."""
        return self.of_op_name(np.asarray(pc.count_substring(self.op_names, "/while"), np.int64))

    @cached_property
    def _checkpointed_loops(self) -> Ints:
        """The number of loops around the innermost call of jax.checkpoint that contains each value."""
        outside = pc.struct_field(pc.extract_regex(self.op_names, _INNERMOST_CHECKPOINT), "outside")
        return self.of_op_name(np.asarray(pc.fill_null(pc.count_substring(outside, "/while"), 0), np.int64))

    @cached_property
    def _is_checkpointed(self) -> Mask:
        """Whether each value belongs to the backward pass of what jax.checkpoint wraps."""
        return flags_of(_matches(self.op_names, _CHECKPOINT), self.op_codes)

    @cached_property
    def _is_product(self) -> Mask:
        """Whether each value is the result of a matrix product, by its op_name."""
        return flags_of(_matches(self.op_names, _WEIGHTED), self.op_codes)

    def are_alike(self, layers: Layers) -> bool:
        """Return whether most bytes are in arrays with dimensions that several layers have: one loop can run these."""
        dimensions = np.sort(self.dimensions[layers.values], axis=1)
        code = np.unique(dimensions, axis=0, return_inverse=True)[1].reshape(-1)
        of_layer = np.unique(np.stack([code, layers.layer]), axis=1)[0]
        extent = self.p.extent[layers.values]
        return 2 * int(extent[np.bincount(of_layer)[code] > 1].sum()) > int(extent.sum())

    def is_checkpointed(self, layers: Layers) -> bool:
        """Return whether some of these layers are checkpointed already."""
        return self._has_some(layers, self._is_checkpointed)

    def is_recomputed(self, layers: Layers) -> bool:
        """Return whether the program computes all of some of these layers again already.

        If it keeps results of matrix products and computes none again, a policy of jax.checkpoint keeps them.
        """
        again = self.phase == RECOMPUTE
        keeps_products = self._is_product[layers.values].any()
        return self._has_some(layers, again & self._is_product if keeps_products else again)

    def _has_some(self, layers: Layers, values: Mask) -> bool:
        """Return whether some of these values belong to such layers, by their function or family."""
        if layers.function is None:
            return self._is_family(layers.family, values)
        return bool(np.isin(stack_frames(self.p, np.flatnonzero(values)), layers.function.frames).any())

    def _is_family(self, family: str, values: Mask) -> bool:
        """Return whether some of these values belong to a family of layers."""
        folded, families = self._family_of_layer
        code = pc.index(families, family).as_py()
        found = take(folded, take(self._layer_of_name[0], self.op_codes[values]))
        return code >= 0 and bool((found == code).any())

    # -- names -----------------------------------------------------------------------------------

    def names_of(self, values: Ints) -> tuple[str, ...]:
        """Return names for the results of matrix products among these values: the last components of their scopes."""
        codes = np.unique(self.op_codes[values])
        names = pc.take(self.op_names, arrow_array(codes[codes >= 0]))
        names = pc.filter(names, pc.match_substring_regex(names, _WEIGHTED))
        # An einsum is a scope, too: bthk,hkd->btd.
        paths = [re.sub(r"/[^/]*->[^/]*", "", path) for path in scopes(names).to_pylist()] if len(names) else []
        last = {path.rsplit("/", 1)[-1] for path in paths}
        plain = {re.sub(r"_?\d+$", "", name) for name in last}
        scopes_only = [n for n in plain if n not in _CONTROL and not re.fullmatch(_PRIMITIVE, n)]
        return tuple(sorted(name for name in scopes_only if name.isidentifier()))

    def names_for(self, stacks: Stacks) -> tuple[str, ...]:
        """Return names for the matrix products in the body of a loop."""
        start, end = self.p.ranges[0][stacks.members].min(), self.p.ranges[0][stacks.loop]
        starts = self.p.ranges[0]
        return self.names_of(np.flatnonzero((starts >= start) & (starts <= end) & (self.phase == FORWARD)))

    def common_scope(self, values: Ints) -> tuple[str | None, Mask]:
        """Return the folded scope that most bytes of these values have, and which of them have it.

        Names are completed by their origins.
        """
        codes, names = encoded(source_columns(self.p, values)["op_name"])
        scope, texts = encoded(scopes(pc.cast(names, pa.string()), fold=True))
        code = take(scope, codes)
        if not (code >= 0).any():
            return None, np.zeros(len(values), bool)
        common = int(np.bincount(code[code >= 0], self.p.extent[values][code >= 0]).argmax())
        members: Mask = code == common
        return texts[common].as_py() or None, members

    # -- arguments -------------------------------------------------------------------------------

    @cached_property
    def is_state(self) -> Mask:
        """Whether each value belongs to a donated parameter, or to one that could be, or to such an output."""
        parameters, outputs, match = matched(self.p)
        state: Mask = self.p.value_category == DONATED
        state[parameters.value[match.output >= 0]] = True
        state[outputs.value[match.output[match.output >= 0]]] = True
        return state

    @cached_property
    def is_like_state(self) -> Mask:
        """Whether each value has the dimensions of a parameter that is updated, as gradients have."""
        state = np.unique(np.sort(self.dimensions[self.is_state], axis=1), axis=0)
        dimensions = np.concatenate([state, np.sort(self.dimensions, axis=1)])
        code = np.unique(dimensions, axis=0, return_inverse=True)[1].reshape(-1)
        like: Mask = np.isin(code[len(state) :], code[: len(state)])
        return like

    @cached_property
    def is_training(self) -> bool:
        """Whether the program has a backward pass."""
        return bool((self.phase != NO_PHASE).any())

    def multiples_of(self, batch: int) -> Ints:
        """Return the products of a batch size and the next dimensions of arrays that have it first."""
        leading = self.dimensions[(self.dimensions[:, 0] == batch) & (self.dimensions[:, 1] > 1)]
        products = np.cumprod(np.minimum(leading, 1 << 20), axis=1)[:, 1:3]
        return np.unique(products[products > 0])


def _with_most_bytes(numbers: Ints, sizes: Ints) -> int:
    """Return the number whose items have most bytes together; of several, the lowest."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    return int(distinct[np.bincount(inverse, sizes).argmax()])


def scopes_folded(names: pa.Array) -> pa.Array:
    """Replace the last number in each of these names of layers."""
    return pc.replace_substring_regex(pc.cast(names, pa.string()), r"\d+(\]?)$", r"*\1")


def _matches(names: pa.Array, pattern: str) -> Mask:
    if not len(names):
        return np.zeros(0, bool)
    found: Mask = pc.fill_null(pc.match_substring_regex(names, pattern), False).to_numpy(zero_copy_only=False)
    return found


