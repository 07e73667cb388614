"""Find the activations that layers outside of loops keep for their backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..buffer_names import stack_frames
from ..callers import Function, Functions
from ..clones import are_clones, originals
from ..columns import Ints, Mask, encoded, flags_of, ints, match_dictionaries, take
from ..op_names import scopes
from ..origins import has_opcode, operands_of, origins, uses_of
from ..program import distinct_rows
from ..uses import use_steps
from .activations import RECOMPUTE
from .stacks import LoopActivations, with_most_bytes
from .what_if import largest_groups

_LAYER = r"^(?P<layer>(?:[^/]*/)*?[^/]*?\d+\]?)(?:/|$)"
"""A scope up to its first numbered component."""
IN_FUNCTION = 0.9
"""Share of the bytes of repeated lines that a function must have computed to be the one that is repeated."""
IN_STAGES = 0.8
"""The same where the calls have different shapes."""


class Layers(NamedTuple):
    """The activations of layers with the same scope, except for a number, or of code that runs several times."""

    family: str
    """The scope, with the number replaced by `*`; empty if no scope has a number."""
    values: Ints
    layer: Ints
    """Layer of each value, from 0."""
    function: Function | None = None
    """The function that runs once per layer, of layers without a number, and what it says of these values."""
    are_stages: bool = False
    """Whether they have different sizes, as the blocks of a U-Net."""

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


class LayerActivations(LoopActivations):
    """Knows what layers and loops keep for their backward pass."""

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
        lines = [of_value[values] for of_value in self.lines]
        calls, runs = self._runs(values, frames), self._runs(values, *lines)
        # If the same calls lead to a line each time, a loop makes them. Otherwise, there is a call for each layer.
        in_loop = calls.n > 1
        runs = calls if in_loop else runs
        functions = Functions(self.p.optional("frames"), frames)
        weight = np.where(2 * runs.times > runs.n, extent, 0)
        # A part of a layer may run several times in it. Two values of many layers may be of something else.
        surplus = np.where((weight > 0) | (runs.times > 2), extent, -extent) if in_loop else None
        function = functions.innermost(weight, IN_FUNCTION, in_loop=in_loop, surplus=surplus) if runs.n > 1 else None
        if function is None:
            # A CPU would need one loop for them.
            yield from self._stages(values, functions) if self.p.tables.platform != "cpu" else ()
            return
        members = function.calls & (runs.times > 1)
        if runs.n == 2 and not self.is_product[values[members]].any():
            return  # perhaps the terms of a sum
        yield Layers("", values[members], runs.layer[members], function.among(members))

    def _stages(self, values: Ints, functions: Functions) -> Iterator[Layers]:
        """Find layers of different sizes, as the blocks of a U-Net: the calls of a function.

        The first line that computes a value in each call tells where the calls begin.
        """
        extent, start = self.p.extent[values], self.p.ranges[0][values]
        line = distinct_rows(self.op_codes[values], *(of_value[values] for of_value in self.lines))
        times = np.bincount(line)[line] if len(line) else line
        function = functions.innermost(np.where(times > 1, extent, 0), IN_STAGES, in_loop=False)
        if function is None:
            return
        values, extent, start = (of_value[function.calls] for of_value in (values, extent, start))
        line = distinct_rows(self.op_codes[values], function.lines[function.calls])
        times = np.bincount(line)[line]
        first = np.flatnonzero(times == with_most_bytes(times, extent))
        begins = np.sort(start[first[line[first] == line[first[start[first].argmin()]]]])
        layer = np.maximum(np.searchsorted(begins, start, "right") - 1, 0)
        yield Layers("", values, layer, function.among(function.calls), are_stages=True)

    def _runs(self, values: Ints, *columns: Ints) -> _Runs:
        """Return how often what these columns describe, with the same name and dimensions, computes a value."""
        element = self.p.texts("values", "shape_index")[0][values]
        same = self.op_codes[values], self.opcode[0][values], element, *self.dimensions[values].T
        group = distinct_rows(*same, *columns)
        count = np.bincount(group)[group] if len(group) else group
        n = with_most_bytes(count, self.p.extent[values]) if len(group) else 0
        order = np.lexsort((self.p.ranges[0][values], group))
        position = np.empty(len(values), np.int64)
        position[order] = np.arange(len(values)) - np.searchsorted(group[order], group[order])
        return _Runs(n, count, np.minimum(position * n // np.maximum(count, n), n - 1))

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
    def _layer_of_instruction(self) -> Ints:
        """The code of the layer of each row of `instructions` by its own name, -1 for none."""
        codes, names = self.p.printed_op_names
        matched = match_dictionaries(pc.cast(names, pa.string()), self.op_names)
        return take(take(self._layer_of_name[0], matched), codes)

    def stacked_in(self, layers: Layers) -> Ints:
        """Return the stacks of loops in these layers, by their function or family."""
        found = np.concatenate([np.empty(0, np.int64), *(s.values for s in self.stacks)])
        if layers.function is not None:
            return found[np.isin(stack_frames(self.p, found), layers.function.frames)]
        folded, families = self._family_of_layer
        family = take(folded, take(self._layer_of_name[0], self.op_codes[found]))
        in_family: Ints = found[family == pc.index(families, layers.family).as_py()]
        return in_family

    def products_per_layer(self, layers: Layers) -> float:
        """Return the number of matrix products of the forward pass in a layer: of calls in its function, or the mean.

        They are found by the names of instructions.
        """
        rows = np.flatnonzero(self.is_forward_product)
        if layers.function is not None:
            frame = take(ints(origins(self.p).names.table, "stack_frame"), rows)
            return len(np.intersect1d(frame, layers.function.frames))
        return int(np.isin(self._layer_of_instruction[rows], layers.layer).sum()) / max(1, layers.n_layers)

    def in_flight(self, layers: Layers) -> Ints:
        """Return the bytes of layers that the backward pass holds at each step if it computes them again.

        That is the largest layer, or else the stages of which it reads activations then, at most the largest of them.
        What XLA rematerializes in stages is computed again already.
        """
        layer, extent = np.unique(layers.layer, return_inverse=True)[1].ravel(), self.p.extent[layers.values]
        again = are_clones(self.p)[layers.values] & layers.are_stages
        size = np.bincount(layer, np.where(again, 0, extent)).astype(np.int64)
        largest = np.where(self.is_backward, size.max(), 0)
        if not layers.are_stages:
            return largest
        last_step = len(largest) - 1
        value, step = use_steps(self.p)
        of_value = np.full(len(self.p.owner), -1)
        of_value[layers.values] = layer
        reads = self.is_backward[np.minimum(step, last_step)] & (of_value[value] >= 0)
        begin, until = np.full(len(size), last_step), np.zeros(len(size), np.int64)
        np.minimum.at(begin, of_value[value[reads]], step[reads])
        np.maximum.at(until, layer, np.clip(self.p.ranges[1][layers.values], 0, last_step))
        changes = np.zeros(len(largest) + 1, np.int64)
        np.add.at(changes, begin, size)
        np.add.at(changes, np.maximum(begin, until) + 1, -size)
        return np.minimum(np.cumsum(changes[:-1]), largest)

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
        layer = np.unique(layers.layer, return_inverse=True)[1].ravel()
        begin = np.full(int(layer.max(initial=-1)) + 1, self.p.steps or 0, np.int64)
        np.minimum.at(begin, layer, self.p.ranges[0][layers.values])
        begins = np.append(np.unique(begin), np.iinfo(np.int64).max)
        found: Mask = read >= begins[np.searchsorted(begins, begin[layer], "right")]
        outside = self._read_outside(layers, copied)
        return found | outside[layers.values] | flags_of(outside, copied)

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
            if layers.are_stages:
                # The backward pass of what is around them may be in one fusion with theirs.
                is_outside &= ~self.is_later[user]
        else:
            is_named = take(self.p.printed_op_names[0], user) >= 0
            is_outside = is_named & (self._layer_of_instruction[user] != own[value])
        found = np.zeros(len(own), bool)
        found[value[is_outside]] = True
        return found

    @cached_property
    def rematerialized(self) -> Ints:
        """The temporaries that the compiler rematerializes: clones of instructions."""
        return np.flatnonzero(self.w.in_arena & are_clones(self.p))

    @cached_property
    def kept_otherwise(self) -> Ints:
        """The bytes that would be kept in addition at each step if the compiler did not rematerialize."""
        return self.kept_instead_of(self.rematerialized)

    def kept_instead_of(self, values: Ints) -> Ints:
        """Return the bytes that would be kept in addition at each step without these clones.

        Each original would be kept from its last use, or the start of the program if it is gone, until its last clone.
        """
        extent, (start, end) = self.p.extent, self.p.ranges
        original, code = originals(self.p, values)
        order = np.lexsort((-start[values], code))
        last, size = order[np.unique(code[order], return_index=True)[1]], np.zeros(len(values), np.int64)
        np.maximum.at(size, code, extent[values])
        begin, until = take(end, original[last]) + 1, start[values[last]]
        is_later, changes = begin < until, np.zeros(len(self.w.levels) + 1, np.int64)
        for steps, sign in ((begin, 1), (until, -1)):
            np.add.at(changes, np.minimum(steps, len(self.w.levels))[is_later], sign * size[code[last]][is_later])
        levels: Ints = np.cumsum(changes[:-1])
        return levels

    def are_alike(self, layers: Layers) -> bool:
        """Return whether most bytes are in arrays with dimensions that several layers have: one loop can run these."""
        dimensions = np.sort(self.dimensions[layers.values], axis=1)
        code = distinct_rows(*dimensions.T)
        of_layer = np.unique(np.stack([code, layers.layer]), axis=1)[0]
        extent = self.p.extent[layers.values]
        return 2 * int(extent[np.bincount(of_layer)[code] > 1].sum()) > int(extent.sum())

    def is_checkpointed(self, layers: Layers) -> bool:
        """Return whether lines that compute most bytes of these layers are checkpointed already in some of them.

        A layer of which only a part is checkpointed, such as attention, may keep the activations of the others.
        """
        is_some = self._has_some(layers, self._is_checkpointed)
        return is_some and self.mostly_on_lines_of(self._is_checkpointed, layers.values)

    def is_recomputed(self, layers: Layers) -> bool:
        """Return whether the program computes all of some of these layers again already.

        If it keeps results of matrix products and computes none again, a policy of jax.checkpoint keeps them.
        """
        again = self.phase == RECOMPUTE
        keeps_products = self.is_product[layers.values].any()
        return self._has_some(layers, again & self.is_product if keeps_products else again)

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


def scopes_folded(names: pa.Array) -> pa.Array:
    """Replace the last number in each of these names of layers."""
    return pc.replace_substring_regex(pc.cast(names, pa.string()), r"\d+(\]?)$", r"*\1")
