"""Compare what the callers of two programs see: arguments and outputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.aliasing import outputs_of
from ..compute.columns import Ints, Mask, arrow_array, decoded, encoded, ints, is_in, nullable, take, take_text
from ..compute.layout import DONATED, LIVE_OUT, PARAMETER
from ..compute.lazy import cached_property
from ..compute.program import Program
from ..parse.arrays import row_of
from ..parse.fingerprints import row_hash
from .graph import argument_suffixes, text_hashes
from .matching import Matching
from .ordering import in_order
from .rows import Shape, ShapePairs, parsed

_DEVICES = re.compile(r"(?<=\])0[\d,]*")


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
    number_text = pc.cast(pc.take(p.allocations["parameter_number"], arrow_array(rows)), pa.string()).combine_chunks()
    index = pc.cast(pc.take(p.allocations["parameter_shape_index"], arrow_array(rows)), pa.string()).combine_chunks()
    plain = pc.binary_join_element_wise(
        "argument ", number_text, pc.if_else(pc.fill_null(pc.equal(index, "{}"), True), "", index), "",
        null_handling="skip",
    )
    named = decoded(codes, op_names)
    sharding = take_text(p.tables["instructions"]["sharding"], instruction)
    return Arguments(
        rows, value, p.category[rows] == DONATED, pc.coalesce(pc.cast(named, pa.string()), plain),
        p.value_text("shape", value), sharding,
    )  # fmt: skip


def _suffixes(arguments: Arguments) -> pa.Array:
    return argument_suffixes(arguments.names)


def _names(arguments: Arguments) -> pa.Array:
    """Return the names, which are numbers in old dumps."""
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
        unlike = self._unlike()
        partners, self.partner[unlike] = self.partner[unlike], -1
        for keys in (_names, _suffixes):
            self._pair_left(keys)
        self._pair_renamed()
        free = (self.partner[unlike] < 0) & np.isin(partners, self.new)
        self.partner[unlike[free]] = partners[free]

    def _unlike(self) -> Ints:
        """Return arguments of A of which the partner has another name and another shape.

        Where modules were renamed, what is like them is among the arguments without a partner.
        """
        left = np.flatnonzero(self.partner >= 0)
        right = self.partner[left]
        names_a, names_b = pc.take(self.a.names, arrow_array(left)), pc.take(self.b.names, arrow_array(right))
        known = pc.or_(pc.is_in(names_a, self.b.names), pc.is_in(names_b, self.a.names))
        same = pc.equal(pc.take(self.a.shapes, arrow_array(left)), pc.take(self.b.shapes, arrow_array(right)))
        alike = pc.or_(known, pc.fill_null(same, True))
        return np.delete(left, np.flatnonzero(alike.to_numpy(zero_copy_only=False)))

    def _pair_renamed(self) -> None:
        """Pair arguments without a partner of a shape of which both sides have as many."""
        left, right = self.gone, self.new
        a, b = (text_hashes(pc.take(own.shapes, arrow_array(rows))) for own, rows in ((self.a, left), (self.b, right)))
        at_a, at_b = in_order(a, b)
        counts_a, counts_b = Counter(a.tolist()), Counter(b.tolist())
        same = np.array([counts_a[key] == counts_b[key] for key in a[at_a].tolist()], bool)
        self.partner[left[at_a[same]]] = right[at_b[same]]

    def _pair_left(self, keys: Callable[[Arguments], pa.Array]) -> None:
        """Pair arguments without a partner that have the same shape and key, in their order."""
        left, right = self.gone, self.new
        if len(left) and len(right):
            a, b = (
                row_hash(*(text_hashes(pc.take(texts, arrow_array(rows))) for texts in (keys(own), own.shapes)))
                for own, rows in ((self.a, left), (self.b, right))
            )
            at_a, at_b = in_order(a, b)
            self.partner[left[at_a]] = right[at_b]

    @cached_property
    def matched(self) -> tuple[Ints, Ints]:
        left = np.flatnonzero(self.partner >= 0)
        return left, self.partner[left]

    def shape_pairs(self, left: Ints, right: Ints) -> ShapePairs:
        """Return the shapes of these arguments."""
        sizes = self.m.b.allocation_size[self.b.allocation[right]]
        return ShapePairs(pc.take(self.a.shapes, arrow_array(left)), pc.take(self.b.shapes, arrow_array(right)), sizes)

    @cached_property
    def shapes(self) -> dict[tuple[Shape, Shape], str]:
        """The distinct pairs of shapes that differ between matched arguments, and the first argument with each."""
        left, right = self.matched
        changed = self.shape_pairs(left, right).changed()
        names = pc.take(self.b.names, pa.array(right[[*changed.values()]], pa.int64())).to_pylist()
        return dict(zip(changed, names, strict=True))

    @cached_property
    def unchanged(self) -> dict[str, Shape]:
        """The shapes of the arguments that have the same one in both programs, by their names in either."""
        left, right = self.matched
        same = self.shape_pairs(left, right).where(lambda a, b: a == b)
        found: dict[str, Shape] = {}
        for own, rows in ((self.a, left[same]), (self.b, right[same])):
            names, shapes = (pc.take(column, arrow_array(rows)).to_pylist() for column in (own.names, own.shapes))
            found |= {name: shape for name, text in zip(names, shapes, strict=True) if (shape := parsed(text))}
        return found

    @property
    def gone(self) -> Ints:
        """Arguments of A that B does not have."""
        return np.flatnonzero(self.partner < 0)

    @property
    def new(self) -> Ints:
        """Arguments of B that A does not have."""
        is_new = np.ones(len(self.b.allocation), bool)
        is_new[self.partner[self.partner >= 0]] = False
        return np.flatnonzero(is_new)

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

    def can_be_donated(self, right: Ints) -> Mask:
        """Return whether B has an output that shares memory with no argument, of the shape of each of these arguments.

        Without live ranges not all outputs are known: all arguments can be donated then.
        """
        m, can = self.m, np.ones(len(right), bool)
        if m.b.steps is not None:
            values = outputs_of(m.b).value
            free = values[m.b.category[m.b.owner[values]] != DONATED]
            pairs, _ = in_order(_plain_shapes(m.b, self.b.value[right]), _plain_shapes(m.b, free))
            can = np.isin(np.arange(len(right)), pairs)
        return can

    @cached_property
    def resharded(self) -> tuple[Ints, Ints]:
        """Matched arguments with another sharding."""
        left, right = self.matched
        a, b = self._shardings(left, right)
        # XLA has two notations: {devices=[4,1]<=[4]} and {mesh['x'=4], [{'x'}, {}]}.
        notation = pc.equal(*(pc.starts_with(text, "{mesh") for text in (a, b)))
        differs = pc.fill_null(pc.and_(pc.not_equal(a, b), notation), False)
        chosen = np.asarray(differs.to_numpy(zero_copy_only=False), bool)
        return left[chosen], right[chosen]

    def _shardings(self, left: Ints, right: Ints) -> tuple[pa.Array, pa.Array]:
        """Return the shardings of these arguments of A, and of these of B."""
        a, b = pc.take(self.a.sharding, arrow_array(left)), pc.take(self.b.sharding, arrow_array(right))
        return _with_ranges(a), _with_ranges(b)

    def sharded_alike(self, left: Ints, right: Ints) -> Mask:
        """Return whether the same sharding is printed for both of these arguments."""
        a, b = self._shardings(left, right)
        alike: Mask = pc.fill_null(pc.equal(a, b), False).to_numpy(zero_copy_only=False)
        return alike

    @cached_property
    def reordered(self) -> Ints:
        """Arguments of B that A has under the same name, if they are in another order there."""
        left, right = self.matched
        names_a, names_b = pc.take(self.a.names, arrow_array(left)), pc.take(self.b.names, arrow_array(right))
        same = pc.fill_null(pc.equal(names_a, names_b), False)
        rows: Ints = right[np.asarray(same.to_numpy(zero_copy_only=False), bool)]
        return rows if (np.diff(rows) < 0).any() else rows[:0]

    @cached_property
    def new_outputs(self) -> Ints:
        """Values of B that are outputs, though A has no matching output."""
        return self._single_outputs[0]

    @cached_property
    def gone_outputs(self) -> Ints:
        """Values of A that are outputs, though B has no matching output."""
        return self._single_outputs[1]

    @cached_property
    def resized_outputs(self) -> tuple[Ints, Ints]:
        """Outputs of A of which B has none of the same shape, and the outputs of B instead, if both have as many.

        Outputs may be in another order.
        """
        of_a, of_b = outputs_of(self.m.a), outputs_of(self.m.b)
        a, b = of_a.value, of_b.value
        if len(a) != len(b):
            return a[:0], b[:0]
        shapes_a, shapes_b = _plain_shapes(self.m.a, a), _plain_shapes(self.m.b, b)
        at_index = in_order(row_hash(shapes_a, text_hashes(of_a.index)), row_hash(shapes_b, text_hashes(of_b.index)))
        left, right = (np.delete(np.arange(len(a)), rows) for rows in at_index)
        elsewhere = in_order(shapes_a[left], shapes_b[right])
        left, right = np.delete(left, elsewhere[0]), np.delete(right, elsewhere[1])
        # Those with the same index are the same output, whatever the order of their allocations.
        of_index = in_order(*(text_hashes(pc.take(o.index, arrow_array(r))) for o, r in ((of_a, left), (of_b, right))))
        left, right = (np.append(r[k], np.delete(r, k)) for r, k in zip((left, right), of_index, strict=True))
        is_array = (shapes_a[left] != 0) & (shapes_b[right] != 0)
        return a[left[is_array]], b[right[is_array]]

    @cached_property
    def _single_outputs(self) -> tuple[Ints, Ints]:
        """Outputs that only B and only A has, if their numbers differ.

        Outputs of the same shape are the same ones, whatever computes them. Of the rest, those that match have another
        shape.
        """
        m = self.m
        if len(outputs_of(m.a).value) == len(outputs_of(m.b).value):  # their shapes or memory spaces may differ
            return np.empty(0, np.int64), np.empty(0, np.int64)
        a, b = _array_outputs(m.a), _array_outputs(m.b)
        left, right = _matches(m, a, b)
        same = _plain_shapes(m.a, a)[left] == _plain_shapes(m.b, b)[right]
        a, b = np.delete(a, left[same]), np.delete(b, right[same])
        left, right = in_order(_plain_shapes(m.a, a), _plain_shapes(m.b, b))
        a, b = np.delete(a, left), np.delete(b, right)
        left, right = _matches(m, a, b)
        return np.delete(b, right), np.delete(a, left)


def _with_ranges(shardings: pa.Array) -> pa.Array:
    """Write all devices in their order as new compilers do: `<=[4]` instead of `0,1,2,3`."""
    codes, texts = encoded(shardings)
    short = [_DEVICES.sub(_as_range, text) for text in texts.to_pylist()]
    return pc.take(pa.array(short, pa.string()), nullable(codes))


def _as_range(numbers: re.Match[str]) -> str:
    n = numbers[0].count(",") + 1
    return f"<=[{n}]" if numbers[0] == ",".join(map(str, range(n))) else numbers[0]


def caller_shapes(p: Program, values: Ints) -> pa.Array:
    """Return the shapes of these values; those of outputs as the caller sees them.

    XLA may compute an output in another shape, as a loop over parts of it does: a bitcast moves no bytes.
    """
    shapes = pc.cast(p.value_text("shape", values), pa.string())
    printed = pc.cast(pc.drop_null(p.allocations["output_shape"]), pa.string()).to_pylist()
    if len(printed) != 1 or "(" in printed[0][1:]:
        return shapes
    outputs = outputs_of(p)
    seen = re.findall(r"\b\w+\[[^\[\]]*\]", printed[0])
    indices = [f"{{{k}}}" for k in range(len(seen))] if printed[0].startswith("(") else ["{}"]
    of_output = pc.take(pa.array(seen, pa.string()), pc.index_in(outputs.index, pa.array(indices, pa.string())))
    return pc.coalesce(pc.take(of_output, nullable(row_of(outputs.value, values))), shapes)


def _plain_shapes(p: Program, values: Ints) -> Ints:
    """Return hashes of the shapes without layouts, 0 for tuples."""
    codes, texts = encoded(caller_shapes(p, values))
    shapes = [str(shape) if (shape := parsed(text)) else None for text in texts.to_pylist()]
    return take(text_hashes(pa.array(shapes, pa.string())), codes)


def outputs(p: Program) -> Ints:
    """Return the values that are outputs; none without live ranges."""
    if p.steps is None:
        return np.empty(0, np.int64)
    values = np.flatnonzero((p.value_category == LIVE_OUT) | (p.value_category == DONATED))
    return values[p.is_output(values)]


def _array_outputs(p: Program) -> Ints:
    """Return the outputs without output tuples."""
    values = outputs(p)
    return values[~is_in(p.value_text("element_type", values), ["tuple"])]


def _matches(m: Matching, a: Ints, b: Ints) -> tuple[Ints, Ints]:
    """Return the rows of these values of A and of these of B that match each other."""
    row = row_of(b, m.value[a])
    left = np.flatnonzero(row >= 0)
    return left, row[left]
