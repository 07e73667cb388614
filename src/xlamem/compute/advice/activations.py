"""What a training step computes: phases, scopes, shapes and slots of the values of a program."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ... import kernels as pc
from ...parse.arrays import row_of
from ..aliasing import matched
from ..buffer_names import source_columns
from ..columns import Ints, Mask, arrow_array, encoded, flags_of, ints, take
from ..layout import DONATED
from ..op_names import END, are_backward, are_forward, are_recomputed, is_tensorflow, matching, scopes
from ..program import distinct_rows
from ..tiles import tiled_dimensions
from ..uses import use_steps
from .what_if import WhatIf

NO_PHASE, FORWARD, BACKWARD, RECOMPUTE = range(4)
"""Phases of a training step, as op_names tell them."""

_PRIMITIVE = r"dot_general|conv_general_dilated|ragged_dot|ragged_dot_general"
ARGUMENTS = "^XLA_Args$"
TF_PRODUCT = r"(?i:(?:Batch)?MatMul(?:V\d)?|Einsum|Tensordot)(?:_\d+)?$"
_TF_CONVOLUTION = r"(?i:Conv\dD|convolution|conv_transpose)(?:_\d+)?$"
_WEIGHTED = rf"/(?:{_PRIMITIVE}){END}|(?:^|/)(?:{TF_PRODUCT}|{_TF_CONVOLUTION})"
"""The operations whose results are worth keeping, because they are expensive to compute again."""
_CHECKPOINT = r"\btranspose\(.*\b(?:checkpoint|remat\d*|rematted_computation)/"
"""Op_names of the backward pass of what jax.checkpoint wraps, whether or not something is computed again."""
_SAVED = r"/reduce_precision$"
"""What JAX names results that a policy of jax.checkpoint saves: it rounds them."""
_FFT = rf"/(?:fft{END}|jit\(fft\)$)"
"""Op_names of Fourier transforms: XLA for TPU computes their stages as products."""
_LINEN = r"[/\\]flax[/\\]linen[/\\]"
"""The folder of Flax Linen, of which the files of stack frames show that it is used."""
_CONTROL = {
    "while", "body", "cond", "closed_call", "eval_jaxpr", "checkpoint", "rematted_computation", "scan", "shard_map",
    "branch", "jvp",
}  # fmt: skip
"""Components of scopes that name no part of a model."""
MAX_DIMENSIONS = 8


def loop_over(a: Activations, function: str) -> str:
    """Say how a loop computes a function for one part at a time, and again in the backward pass if there is one."""
    loop, again = ("tf.map_fn", "tf.recompute_grad") if a.is_tensorflow else ("jax.lax.map", "jax.checkpoint")
    return f"{loop} over {again}({function})" if a.is_training else f"{loop} over {function}"


def are_later(names: pa.Array) -> Mask:
    """Return which of the op_names of a program are of the backward pass, or of what it computes again."""
    return are_backward(names) | are_recomputed(names)


class Activations:
    """The values of a program with their phases, scopes and dimensions."""

    def __init__(self, w: WhatIf) -> None:
        self.w, self.p = w, w.p
        values = np.arange(len(self.p.owner))
        own = pc.cast(self.p.source_columns(values)["op_name"], pa.string())
        # Names of loops tell what they carry. Copies and elements of fusions have the name of their origin.
        completed = pc.cast(source_columns(self.p, values)["op_name"], pa.string())
        self.op_codes, self.op_names = encoded(pc.coalesce(own, completed))

    @cached_property
    def is_tensorflow(self) -> bool:
        """Whether it is a program of TensorFlow: by its backward pass, or the name of all arguments."""
        names = self.p.texts("instructions", "op_name")[1]
        return is_tensorflow(self.op_names) or bool(matching(names, ARGUMENTS).any())

    @cached_property
    def is_linen(self) -> bool:
        """Whether modules of Flax Linen compute it, by the files of the stack frames."""
        frames = self.p.optional("frames")
        return frames is not None and bool(matching(encoded(frames["file"])[1], _LINEN).any())

    def is_whole(self, function: str) -> bool:
        """Return whether the program is this function, by the op_names."""
        return bool(matching(self.op_names, rf"^p?jit\({re.escape(function)}\)/").any())

    def of_op_name(self, by_name: Ints) -> Ints:
        """Return for each value what holds for its op_name, -1 without one."""
        return take(by_name, self.op_codes)

    @cached_property
    def phase(self) -> Ints:
        """The phase of each value."""
        by_name = np.zeros(len(self.op_names), np.int64)
        for of_phase, phase in ((are_forward, FORWARD), (are_backward, BACKWARD), (are_recomputed, RECOMPUTE)):
            by_name[of_phase(self.op_names)] = phase
        return self._with_loops(np.maximum(self.of_op_name(by_name), NO_PHASE))

    def _with_loops(self, phase: Ints) -> Ints:
        """Give results of loops without a phase that of the value in the same slot that ends when they start.

        Old releases of JAX name the transformation only in the bodies of loops.
        """
        loops = np.flatnonzero(self.has_opcode("while") & (phase == NO_PHASE) & self.w.in_arena)
        start, end = self.p.ranges
        writers = np.flatnonzero((phase != NO_PHASE) & (end >= 0))
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

    @cached_property
    def _is_checkpointed(self) -> Mask:
        """Whether each value belongs to the backward pass of what jax.checkpoint wraps."""
        return flags_of(matching(self.op_names, _CHECKPOINT), self.op_codes)

    @cached_property
    def lines(self) -> tuple[Ints, Ints]:
        """The code of the source file and the line of each value, -1 if they are not known."""
        columns = pa.table(source_columns(self.p, np.arange(len(self.p.owner))))
        return encoded(columns["source_file"])[0], ints(columns, "source_line")

    def mostly_on_lines_of(self, others: Mask, values: Ints) -> bool:
        """Return whether most bytes of these values are of lines that compute some of the others, too."""
        extent = self.p.extent[values]
        is_on_line = np.isin(self._line[values], np.unique(self._line[others]))
        return 2 * int(extent[is_on_line].sum()) > int(extent.sum())

    @cached_property
    def _line(self) -> Ints:
        """Equal codes for values of equal lines."""
        return distinct_rows(*self.lines)

    def is_saved_by_policy(self, values: Ints) -> Mask:
        """Return which of these values of the forward pass a policy of jax.checkpoint saves, by their names."""
        if not self._is_checkpointed.any():
            return np.zeros(len(values), bool)
        saved: Mask = matching(source_columns(self.p, values)["op_name"], _SAVED) & (self.phase[values] == FORWARD)
        return saved

    # -- shapes ------------------------------------------------------------------------------------

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
    def tiles(self) -> Ints:
        """The size of the layout's tile in each of these dimensions, 1 where it has none."""
        codes, shapes = self._shapes
        found = np.ones((len(shapes) + 1, MAX_DIMENSIONS), np.int64)
        for i, text in enumerate(shapes.to_pylist()):
            for t in tiled_dimensions(text):
                if t.dimension < MAX_DIMENSIONS:
                    found[i, t.dimension] = t.tile
        return found[codes]

    @cached_property
    def elements(self) -> npt.NDArray[np.float64]:
        """The number of elements of each array by these dimensions; 1 for arrays without any."""
        elements: npt.NDArray[np.float64] = np.where(self.dimensions > 0, self.dimensions, 1).prod(axis=1, dtype=float)
        return elements

    @cached_property
    def opcode(self) -> tuple[Ints, list[str]]:
        """Codes (-1 for unknown) and names of the opcodes that define the values."""
        codes, names = encoded(self.p.tables["instructions"]["opcode"])
        return take(codes, self.p.instruction_row), names.to_pylist()

    def has_opcode(self, name: str) -> Mask:
        codes, names = self.opcode
        return codes == names.index(name) if name in names else np.zeros(len(codes), bool)

    # -- slots -------------------------------------------------------------------------------------

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

    # -- matrix products ---------------------------------------------------------------------------

    @cached_property
    def is_forward_product(self) -> Mask:
        """Whether each row of `instructions` is by its name a matrix product, in training one of the forward pass."""
        codes, names = self.p.printed_op_names
        names = pc.cast(names, pa.string())
        found = matching(names, _WEIGHTED) & ~are_later(names)
        return flags_of(found & are_forward(names) if self.is_training else found, codes)

    @cached_property
    def is_later(self) -> Mask:
        """Whether each row of `instructions` is by its name of the backward pass, or of what that computes again."""
        codes, names = self.p.printed_op_names
        return flags_of(are_later(names), codes)

    @cached_property
    def is_product(self) -> Mask:
        """Whether each value is the result of a matrix product, by its op_name."""
        return flags_of(matching(self.op_names, _WEIGHTED), self.op_codes)

    @cached_property
    def is_fft(self) -> Mask:
        """Whether each value is a stage of a Fourier transform, by its op_name. JAX has none in bfloat16."""
        return flags_of(matching(self.op_names, _FFT), self.op_codes)

    # -- names -------------------------------------------------------------------------------------

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

    # -- arguments ---------------------------------------------------------------------------------

    @cached_property
    def is_state(self) -> Mask:
        """Whether each value belongs to a donated parameter, or to one that could be, or to such an output.

        Activations that only lie in the memory of a donated parameter do not.
        """
        parameters, outputs, match = matched(self.p)
        state: Mask = self.p.categories_of(np.arange(len(self.p.owner))) == DONATED
        state[parameters.value[match.output >= 0]] = True
        state[outputs.value[match.output[match.output >= 0]]] = True
        return state

    @cached_property
    def is_like_state(self) -> Mask:
        """Whether each value has the dimensions of a parameter that is updated, as gradients have."""
        code = distinct_rows(*np.sort(self.dimensions, axis=1).T)
        like: Mask = np.isin(code, code[self.is_state])
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
