"""Find arrays that a program computes before a loop reads them slice by slice, such as noise for all its steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ...dump import hlo_body
from ...parse.hlo_body import HloBody
from ..buffer_names import trip_counts
from ..columns import Ints, Mask, arrow_array, encoded, flags_of, ints, take
from ..hlo_flow import HloFlow, first_callers
from ..lazy import cached_property
from ..op_names import END, matching
from ..origins import has_opcode, uses_of
from ..slice_reads import SliceReads, are_read
from .activations import FORWARD
from .bounds import of_values, with_vmem
from .intervention import MIN_SHARE, Intervention, largest_first, rescheduled_at_worst
from .layers import LayerActivations
from .loop_results import described
from .what_if import Change

SLICE_LOWER, SLICE_UPPER = 0.75, 1.1
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""
MAX_INPUTS = 16
"""Maximum number of arrays that are followed to what computes them, the largest first."""
MAX_DISTANCE, MAX_PRODUCERS = 1 << 11, 1 << 14
"""Maximum number of instructions from an array to what it is computed from, and of all that compute it."""

_LOOP = rf"(?:^|/)while{END}"
"""The op_name of the loops of a program. XLA makes others, such as those of a scatter."""
_LOCAL = (
    r"^(?:abs|add|and|atan2|bitcast|bitcast-convert|broadcast|call|cbrt|ceil|clamp|compare|complex|concatenate|constant|"
    r"convert|copy|copy-start|copy-done|cosine|count-leading-zeros|divide|dynamic-slice|erf|exponential|"
    r"exponential-minus-one|floor|fusion|gather|get-tuple-element|imag|iota|is-finite|log|log-plus-one|logistic|maximum|"
    r"minimum|multiply|negate|not|opt-barrier|or|popcnt|power|real|reduce-precision|remainder|reshape|reverse|"
    r"rng-bit-generator|round-nearest-afz|round-nearest-even|rsqrt|select|shift-left|shift-right-arithmetic|"
    r"shift-right-logical|sign|sine|slice|sqrt|subtract|tan|tanh|transpose|tuple|xor)$"
)
"""Opcodes of which each element is computed from one or few elements, so that a slice of the result needs no more."""
_MOVING = (
    r"^(?:bitcast|call|constant|convert|copy|copy-start|copy-done|fusion|get-tuple-element|opt-barrier|parameter|reshape|"
    r"reverse|slice|transpose|tuple)$"
)
_RANDOM = (
    r"\bjit\(_(?:uniform|randint|bits)\)|\b(?:threefry2x32|iota_2x32_shape|random_bits|rng_bit_generator|rng_uniform)\b"
)
"""Op_names of random numbers, each of which is computed from its index and a key. On a CPU, these are loops."""
_GATHER = rf"(?:^|/)gather{END}"
"""The op_name of custom calls that only say that the indices of a gather are in bounds."""
_EXACT = "^(?:u32|s32|u8|s8|u16|s16|u64|s64|pred)$"
"""Element types without gradients."""


class _Input(NamedTuple):
    """An array that a loop reads slice by slice."""

    value: int
    loops: Ints
    """The rows of `instructions` of the loops that read it."""
    producers: Ints
    """The rows of the HLO text that compute it."""
    sources: Ints
    """The values that it is computed from."""


def sliced_inputs(a: LayerActivations) -> Iterator[Intervention]:
    """Compute in a loop each slice of what the program computes before, and the loop reads slice by slice."""
    candidates = _candidates(a)
    body = hlo_body(a.p.tables) if len(candidates) else None
    if body is None:
        return
    producers = _Producers(a, body)
    by_loop: dict[int, list[_Input]] = {}
    for value in candidates.tolist():
        if not producers.reads.are_only_slices(value) or (found := producers.of(value)) is None:
            continue
        by_loop.setdefault(int(found.loops[0]), []).append(found)
    for inputs in by_loop.values():
        yield from _computed_in_loop(a, producers, inputs)


def _candidates(a: LayerActivations) -> Ints:
    """Return the largest temporaries that loops read which have an element per iteration, and that no loop returns."""
    p, values = a.p, np.unique(_loops(a)[0])
    is_large = a.w.in_arena[values] & (p.extent[values] >= MIN_SHARE * a.w.total)
    values = values[is_large & are_read(p)[values] & (a.phase[values] <= FORWARD) & ~a.has_opcode("while")[values]]
    return values[:0] if a.is_tensorflow else largest_first(a.w, values)[:MAX_INPUTS]


def _loops(a: LayerActivations) -> tuple[Ints, Ints]:
    """Return the pairs of a value and a loop, a row of `instructions`, that reads it and may take an element each time.

    XLA may unroll a loop, or peel an iteration off.
    """
    value, user, _, _ = uses_of(a.p)
    codes, names = a.p.printed_op_names
    is_loop = (value >= 0) & has_opcode(a.p, user, "^while$") & flags_of(matching(names, _LOOP), take(codes, user))
    value, user = value[is_loop], user[is_loop]
    n, trips = a.dimensions[value, 0], trip_counts(a.p)[user]
    is_count = (trips > 1) & (n > 1) & ((n % np.maximum(trips, 1) == 0) | (trips == n - 1))
    return value[is_count], user[is_count]


class _Producers:
    """What computes arrays, by the HLO text."""

    def __init__(self, a: LayerActivations, body: HloBody) -> None:
        self.a, self.body, self.flow, self.reads = a, body, HloFlow(body), SliceReads(a.p, body)

    def of(self, value: int) -> _Input | None:
        """Return what computes an array, or None if a slice of it needs more than slices of what that reads."""
        reached, ends, new = [], [], self._defining(value)
        seen = np.zeros(len(self.body), bool)
        for _ in range(MAX_DISTANCE):
            seen[new] = True
            reached.append(new[self._is_local[new]])
            ends.append(new[~self._is_local[new]])
            new = self._sources_of(reached[-1])
            new = new[~seen[new]]
            if not len(new):
                break
        rows, sources = np.concatenate(reached), self._values_at(np.concatenate(ends))
        if len(new) or len(rows) > MAX_PRODUCERS or sources is None or not self._computes[rows].any():
            return None
        read, loops = _loops(self.a)
        loops = np.unique(loops[read == value])
        in_training = self.a.is_later[loops].any() or self.a.phase[value] == FORWARD
        if in_training and self._may_have_gradients(sources):
            return None
        return _Input(value, loops, np.union1d(rows, self._tuples_of(rows)), sources)

    def are_random(self, rows: Ints) -> bool:
        return bool(self._is_random[rows].any())

    def _defining(self, value: int) -> Ints:
        """Return the row that computes a value: of a fusion with several results, that of the element."""
        p = self.a.p
        row = np.asarray(self.body.rows_of(self._plain(p.value_text("instruction", np.array([value])))), np.int64)
        root = take(np.asarray(self.body.root, np.int64), take(np.asarray(self.body.called, np.int64), row))
        is_element = (p.element[value] >= 0) & self._has("^fusion$", row)
        found = np.where(is_element, self.flow.operand(root, p.element[value]), row)
        return found[found >= 0]

    def _sources_of(self, rows: Ints) -> Ints:
        """Return what these rows are computed from."""
        source, user = self._pairs
        begin, end = (np.searchsorted(user, rows, side) for side in ("left", "right"))
        n = end - begin
        return np.unique(source[np.repeat(begin - np.cumsum(n) + n, n) + np.arange(n.sum())])

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints]:
        source, user = self.flow.pairs
        order = np.argsort(user, kind="stable")
        return source[order], user[order]

    def _tuples_of(self, rows: Ints) -> Ints:
        """Return the tuples, such as the results of loops, of which these rows are elements."""
        found = self.flow.operand(rows[self._is_element[rows]], 0)
        return np.unique(found[found >= 0])

    def _values_at(self, rows: Ints) -> Ints | None:
        """Return the values that these rows of the HLO text stand for; None if one has none, as in a fusion."""
        row, value = self._positions
        at = np.isin(row, rows)
        return np.unique(value[at]) if np.isin(rows, row[at]).all() else None

    @cached_property
    def _positions(self) -> tuple[Ints, Ints]:
        """Rows of the HLO text, and the values that are there."""
        positions = self.a.p.optional("positions")
        codes, names = encoded(positions["instruction"])
        row = take(np.asarray(self.body.rows_of(self._plain(names)), np.int64), codes)
        value = self.a.p.row_of_value(ints(positions, "value_id"))
        return row[value >= 0], value[value >= 0]

    def instructions_of(self, rows: Ints) -> Ints:
        """Return the rows of `instructions` that these rows of the HLO text are."""
        found = self.a.p.row_of_instruction(pc.take(self.body.text("instruction"), arrow_array(rows)))
        return found[found >= 0]

    def _may_have_gradients(self, values: Ints) -> bool:
        """Return whether one of these arrays has an element type that gradients may have."""
        codes, names = self.a.p.texts("values", "element_type")
        is_exact = flags_of(matching(names, _EXACT), codes[values])
        return bool((~is_exact & (self.a.elements[values] > 1)).any())

    # -- rows ------------------------------------------------------------------------------------

    def _has(self, pattern: str, rows: Ints) -> Mask:
        return take(self.flow.has_opcode(pattern), rows) > 0

    @staticmethod
    def _plain(names: pa.Array) -> pa.Array:
        return pc.cast(names, pa.string())

    @cached_property
    def _is_element(self) -> Mask:
        return self.flow.has_opcode("^get-tuple-element$")

    @cached_property
    def _is_random(self) -> Mask:
        codes, names = self.flow.texts("op_name")
        return flags_of(matching(names, _RANDOM), codes)

    @cached_property
    def _is_local(self) -> Mask:
        """Which rows compute each element from few. Loops pass on what they compute, unless it is random numbers."""
        number, is_loop = self.flow.parameter_number, self.flow.has_opcode("^while$")
        caller = take(first_callers(self.body), np.asarray(self.body.computation, np.int64))
        is_called = (caller >= 0) & self._has("^(?:fusion|call)$", caller)
        of_loop = is_loop | ((number >= 0) & ~is_called)
        loop = np.where(is_loop, np.arange(len(self.body)), caller)
        is_passed = of_loop & ~(self._has("^while$", loop) & (take(self._is_random, loop) > 0))
        is_known = self.flow.has_opcode("^(?:constant|iota)$")
        is_known[self._pairs[1]] = True
        codes, names = self.flow.texts("op_name")
        checks = self.flow.has_opcode("^custom-call$") & flags_of(matching(names, _GATHER), codes)
        is_local: Mask = is_known & (self.flow.has_opcode(_LOCAL) | self._is_random | checks | (number >= 0))
        of_passed = self._is_element & (take(is_passed, self.flow.operand(np.arange(len(self.body)), 0)) > 0)
        return is_local & ~is_passed & ~of_passed

    @cached_property
    def _computes(self) -> Mask:
        """Which rows do more than move bytes, or convert them, which XLA does before the loop in any case."""
        return ~self.flow.has_opcode(_MOVING)


def _computed_in_loop(a: LayerActivations, producers: _Producers, inputs: list[_Input]) -> Iterator[Intervention]:
    """Return the intervention on inputs of one loop, the largest first."""
    p, w = a.p, a.w
    values, rows = np.array([i.value for i in inputs]), np.unique(np.concatenate([i.producers for i in inputs]))
    members = w.in_arena & _only_for(a, producers, rows)
    members[values] = True
    change, best = _without(a, inputs, members)
    estimate, only = w.saved(change), -best.levels
    lower = int(SLICE_LOWER * estimate)
    if p.tables.platform == "tpu":
        lower -= rescheduled_at_worst(w, lower)
    if estimate <= 0:
        return
    loops = np.unique(np.concatenate([i.loops for i in inputs]))
    trips = int(trip_counts(p)[loops].max())
    how = "."
    if producers.are_random(rows):
        how = (
            f": pass keys instead of random numbers, from jax.random.split(key, {trips}), or call "
            "jax.random.fold_in(key, i). The numbers will be others."
        )
    again = (
        " Unless jax.checkpoint is around the body, put it around what computes and uses a slice: the loop would keep "
        "all slices for its backward pass."
    )
    text = (
        f"Before a loop of {trips:,} iterations, the program computes {described(a, values).rstrip(',')}, which the "
        f"loop reads slice by slice. Compute each slice in the body of the loop{how}"
        f"{again if a.is_later[loops].any() else ''}"
    )
    bounds = lower, with_vmem(w, int(SLICE_UPPER * w.saved(best)) + w.lost_by(only))
    yield of_values(a, "slice", np.flatnonzero(members & w.at_peak), change, bounds, text)


def _only_for(a: LayerActivations, producers: _Producers, rows: Ints) -> Mask:
    """Return which values these rows of the HLO text define that no others read."""
    value, user, _ = producers.reads.uses
    is_other = (value >= 0) & ~np.isin(user, rows)
    is_other[is_other] = ~producers.reads.are_passed_on(user[is_other])
    found: Mask = np.isin(a.p.instruction_row, producers.instructions_of(rows))
    found[value[is_other]] = False
    # So are those that loops of random numbers pass on, also to their conditions.
    return found | np.isin(a.p.chains, a.p.chains[found & a.has_opcode("parameter")])


def _without(a: LayerActivations, inputs: list[_Input], members: Mask) -> tuple[Change, Change]:
    """Return the change without these values, and at best.

    While an input is live now, one of its slices is needed, and what it is computed from.
    """
    w, needed = a.w, a.w.none
    for i in inputs:
        live = slice(w.start[i.value], w.end[i.value] + 1)
        needed[live] += a.p.extent[i.value] // int(trip_counts(a.p)[i.loops].max())
    for source in {int(s) for i in inputs for s in i.sources if w.in_arena[s] and not members[s]}:
        is_needed = np.zeros(len(needed), bool)
        for i in inputs:
            if source in i.sources:
                is_needed[w.start[i.value] : w.end[i.value] + 1] = True
        is_needed[w.start[source] : w.end[source] + 1] = False
        needed[is_needed] += a.p.extent[source]
    only = w.only(members)
    return Change(0, needed - only), Change(0, -only)
