"""Compare what the callers of two programs see: arguments and outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..compute.aliasing import outputs_of
from ..compute.columns import Ints, Mask, encoded, ints, take, take_text
from ..compute.layout import DONATED, LIVE_OUT, PARAMETER
from ..compute.program import Program
from ..parse.fingerprints import row_hash
from .graph import argument_suffixes, text_hashes
from .matching import Matching
from .ordering import in_order
from .rows import Shape, parsed


class Arguments(NamedTuple):
    """The entry arguments of a program, one per allocation."""

    allocation: Ints
    """Row in `allocations`."""
    value: Ints
    """Row in `values` that represents the allocation, -1 for none."""
    donated: Mask
    names: pa.Array
    """Name as printed, or `argument 3{1}`."""
    shapes: pa.Array
    sharding: pa.Array


def arguments(p: Program) -> Arguments:
    """Return the entry arguments of a program, by number."""
    rows = np.flatnonzero((p.category == PARAMETER) | (p.category == DONATED))
    number = ints(p.allocations, "parameter_number")[rows]
    rows = rows[np.argsort(number, kind="stable")]
    value = p.representative[rows]
    codes, op_names, instruction = p.op_names(value)
    number_text = p.allocations["parameter_number"].take(pa.array(rows)).cast(pa.string()).combine_chunks()
    index = p.allocations["parameter_shape_index"].take(pa.array(rows)).cast(pa.string()).combine_chunks()
    plain = pc.binary_join_element_wise(
        "argument ", number_text, pc.if_else(pc.equal(index, "{}"), "", index).fill_null(""), "", null_handling="skip"
    )
    named = op_names.cast(pa.string()).take(pa.array(codes, mask=codes < 0)) if len(op_names) else pa.nulls(len(rows))
    sharding = take_text(p.tables["instructions"]["sharding"], instruction)
    return Arguments(
        rows, value, p.category[rows] == DONATED, pc.coalesce(named.cast(pa.string()), plain),
        p.value_text("shape", value), sharding,
    )  # fmt: skip


def _suffixes(arguments: Arguments) -> pa.Array:
    return argument_suffixes(arguments.names)


def _names(arguments: Arguments) -> pa.Array:
    """Return the names; old dumps have none, so these are the numbers."""
    return arguments.names


class Interface:
    """The arguments and outputs of two programs, matched with each other."""

    def __init__(self, m: Matching) -> None:
        self.m = m
        self.a, self.b = arguments(m.a), arguments(m.b)
        of_value = np.full(len(m.b.owner), -1, np.int64)
        known = np.flatnonzero(self.b.value >= 0)
        of_value[self.b.value[known]] = known
        self.partner: Ints = take(of_value, take(m.value, self.a.value))
        """Argument of B that matches each argument of A, or -1."""
        for keys in (_names, _suffixes):
            self._pair_left(keys)
        self._pair_renamed()

    def _pair_renamed(self) -> None:
        """Pair arguments without a partner of a shape of which both sides have as many."""
        left, right = self.gone, self.new
        a, b = (text_hashes(own.shapes.take(pa.array(rows))) for own, rows in ((self.a, left), (self.b, right)))
        at_a, at_b = in_order(a, b)
        counts_a, counts_b = Counter(a.tolist()), Counter(b.tolist())
        same = np.array([counts_a[key] == counts_b[key] for key in a[at_a].tolist()], bool)
        self.partner[left[at_a[same]]] = right[at_b[same]]

    def _pair_left(self, keys: Callable[[Arguments], pa.Array]) -> None:
        """Pair arguments without a partner that have the same shape and key, in their order."""
        left, right = self.gone, self.new
        if len(left) and len(right):
            a, b = (
                row_hash(text_hashes(keys(own).take(pa.array(rows))), text_hashes(own.shapes.take(pa.array(rows))))
                for own, rows in ((self.a, left), (self.b, right))
            )
            at_a, at_b = in_order(a, b)
            self.partner[left[at_a]] = right[at_b]

    @cached_property
    def matched(self) -> tuple[Ints, Ints]:
        left = np.flatnonzero(self.partner >= 0)
        return left, self.partner[left]

    def shapes_by_row(self, left: Ints, right: Ints) -> list[tuple[Shape | None, Shape | None]]:
        """Return the shapes of these arguments."""
        a, b = self.a.shapes.take(pa.array(left)).to_pylist(), self.b.shapes.take(pa.array(right)).to_pylist()
        known = {text: parsed(text) for text in {*a, *b}}
        return [(known[x], known[y]) for x, y in zip(a, b, strict=True)]

    def shapes_of(self, left: Ints, right: Ints) -> dict[tuple[Shape, Shape], str]:
        """Return the distinct pairs of shapes that differ between these arguments, and the first argument with each."""
        found: dict[tuple[Shape, Shape], str] = {}
        for (a, b), row in zip(self.shapes_by_row(left, right), right.tolist(), strict=True):
            if a and b and a != b and (a, b) not in found:
                found[a, b] = self.b.names[row].as_py()
        return found

    @cached_property
    def shapes(self) -> dict[tuple[Shape, Shape], str]:
        """The distinct pairs of shapes that differ between matched arguments, and the first argument with each."""
        return self.shapes_of(*self.matched)

    @property
    def gone(self) -> Ints:
        """Arguments of A that B does not have."""
        return np.flatnonzero(self.partner < 0)

    @property
    def new(self) -> Ints:
        """Arguments of B that A does not have."""
        return np.setdiff1d(np.arange(len(self.b.allocation)), self.partner)

    @property
    def undonated(self) -> tuple[Ints, Ints]:
        """Matched arguments that are donated in A only."""
        left, right = self.matched
        lost = self.a.donated[left] & ~self.b.donated[right]
        return left[lost], right[lost]

    @property
    def newly_donated(self) -> tuple[Ints, Ints]:
        """Matched arguments that are donated in B only."""
        left, right = self.matched
        won = ~self.a.donated[left] & self.b.donated[right]
        return left[won], right[won]

    @property
    def resharded(self) -> tuple[Ints, Ints]:
        """Matched arguments with another sharding."""
        left, right = self.matched
        a, b = (s.sharding.take(pa.array(rows)).cast(pa.string()) for s, rows in ((self.a, left), (self.b, right)))
        # XLA has two notations: {devices=[4,1]<=[4]} and {mesh['x'=4], [{'x'}, {}]}.
        notation = pc.equal(*(pc.starts_with(text, "{mesh") for text in (a, b)))
        differs = pc.and_(pc.not_equal(a, b), notation).fill_null(False)
        chosen = np.asarray(differs.to_numpy(zero_copy_only=False), bool)
        return left[chosen], right[chosen]

    @cached_property
    def new_outputs(self) -> Ints:
        """Values of B that are outputs, though A has no matching output."""
        return self._single_outputs[0]

    @cached_property
    def gone_outputs(self) -> Ints:
        """Values of A that are outputs, though B has no matching output."""
        return self._single_outputs[1]

    @cached_property
    def resized_outputs(self) -> list[tuple[Shape, Shape, int]]:
        """Shapes of outputs that only A has, those that only B has instead, and the values of B, if both have as many.

        Outputs may be in another order.
        """
        a, b = outputs_of(self.m.a).value, outputs_of(self.m.b).value
        if len(a) != len(b):
            return []
        texts_a, texts_b = self.m.a.value_text("shape", a).to_pylist(), self.m.b.value_text("shape", b).to_pylist()
        known = {text: parsed(text) for text in {*texts_a, *texts_b}}
        shapes_a, shapes_b = ([known[text] for text in texts] for texts in (texts_a, texts_b))
        missing, surplus = Counter(shapes_a), Counter(shapes_b)
        missing, surplus = missing - surplus, surplus - missing
        gone = [shape for shape in shapes_a if shape and _taken(missing, shape)]
        rows = zip(shapes_b, b.tolist(), strict=True)
        new = [(shape, value) for shape, value in rows if shape and _taken(surplus, shape)]
        return [(x, y, value) for x, (y, value) in zip(gone, new, strict=False)]

    @cached_property
    def _single_outputs(self) -> tuple[Ints, Ints]:
        m = self.m
        if len(outputs_of(m.a).value) == len(outputs_of(m.b).value):  # others at most in shape or memory space
            return np.empty(0, np.int64), np.empty(0, np.int64)
        new, gone = _outputs_only_in(m.b, m.a, m.value_of_b), _outputs_only_in(m.a, m.b, m.value)
        return _without_equals(m, new, gone)


def _taken(counts: Counter[Shape | None], shape: Shape) -> bool:
    """Return whether this shape is left, and take one."""
    counts[shape] -= 1
    return counts[shape] >= 0


def outputs(p: Program) -> Ints:
    """Return the values that are outputs; none without live ranges."""
    if p.steps is None:
        return np.empty(0, np.int64)
    values = np.flatnonzero((p.value_category == LIVE_OUT) | (p.value_category == DONATED))
    return values[p.is_output(values)]


def _outputs_only_in(p: Program, other: Program, match: Ints) -> Ints:
    """Return the outputs of p without a matching output; output tuples are left out."""
    values, theirs = outputs(p), outputs(other)
    codes, types = encoded(p.value_text("element_type", values))
    values = values[take(np.asarray(pc.equal(types, "tuple").to_numpy(zero_copy_only=False), np.int64), codes) <= 0]
    is_output = np.zeros(len(other.owner), bool)
    is_output[theirs] = True
    return values[take(is_output, match[values]) <= 0]


def _without_equals(m: Matching, of_b: Ints, of_a: Ints) -> tuple[Ints, Ints]:
    """Leave out new outputs for which an output of the same shape is gone, and these."""
    codes_b, codes_a = text_hashes(m.b.value_text("shape", of_b)), text_hashes(m.a.value_text("shape", of_a))
    left, right = in_order(codes_b, codes_a)
    return np.delete(of_b, left), np.delete(of_a, right)
