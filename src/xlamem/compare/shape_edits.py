"""Rules that find edits by shapes: sharding, loops, element types and dimensions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from ..compute.buffer_names import trip_counts_of
from ..compute.columns import Ints, Mask, encoded, ints
from ..compute.op_names import COLLECTIVE
from ..compute.origins import has_opcode
from ..compute.program import Program
from .edits import Context, Edit, are, largest
from .rows import parsed, replaced_dimensions

MIN_OVERLAP = 0.5
"""Minimum share of the elements of gone buffers that must come back with another element type."""

GROUP = r"replica_groups=(?:\{\{(?P<list>[\d,]+)\}|\[(?P<groups>\d+),(?P<size>\d+)\])"


def sharding(c: Context) -> Iterator[Edit]:
    """Find arguments that are sharded differently, and the dimensions that change with them."""
    i = c.interface
    left, right = i.resharded
    if not len(left):
        left, right = _gathered(c)
        if not len(left):
            return
    names = largest(i.b.names, right, i.m.b.allocation_size[i.b.allocation[right]])
    ratios = {Fraction(*pair) for pair in _argument_dimensions(c, left, right)}
    before, after = (s.sharding.take([int(r[0])]).to_pylist()[0] for s, r in ((i.a, left), (i.b, right)))
    how = f" ({before} -> {after})" if before or after else ""
    own = np.isin(ints(c.rows.table, "allocation_b"), i.m.b.allocation_ids[i.b.allocation[right]])
    yield Edit("sharding", f"{are(len(left), 'argument')} sharded differently: {names}{how}", own | c.rows.shapes.with_ratios(ratios))


def _gathered(c: Context) -> tuple[Ints, Ints]:
    """Return arguments whose shape on one side is what the other side gathers from other devices.

    TPU dumps do not print the sharding of arguments.
    """
    i = c.interface
    left, right = i.matched
    kept = np.zeros(len(left), bool)
    gathered = [_collective_shapes(p) for p in (c.m.a, c.m.b)]
    if not any(gathered):
        return left[kept], right[kept]
    pairs = zip(i.a.shapes.take(left).to_pylist(), i.b.shapes.take(right).to_pylist(), strict=True)
    for row, (a, b) in enumerate((parsed(x), parsed(y)) for x, y in pairs):
        if a and b and a.dimensions != b.dimensions:
            kept[row] = b.dimensions in gathered[0] or a.dimensions in gathered[1]
    return left[kept], right[kept]


def _collective_shapes(p: Program) -> set[tuple[int, ...]]:
    """Return the dimensions of the results of all-gathers."""
    table = p.tables["instructions"]
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), r"^all-gather"))
    shapes = table["shape"].take(rows).to_pylist() if len(rows) else []
    return {s.dimensions for text in set(shapes) if (s := parsed(text))}


def loops(c: Context) -> Iterator[Edit]:
    """Find loops that are on one side only, and dimensions that grow or shrink by their trip counts."""
    before, after = (trip_counts_of(p) for p in (c.m.a, c.m.b))
    if len(before) == len(after):
        return
    gone = len(before) > len(after)
    counts = _difference(before, after) if gone else _difference(after, before)
    known = sorted({n for n in counts if n > 1}, reverse=True)
    of = f" of {known[0]:,} iterations" if len(known) == 1 else ""
    ratios = {Fraction(1, n) if gone else Fraction(n) for n in known} | {Fraction(n) if gone else Fraction(1, n) for n in known}
    text = f"{are(len(counts), 'loop')} {'gone' if gone else 'new'}".replace(" is", f"{of} is").replace(" are", f"{of} are")
    claims = c.rows.shapes.with_ratios(ratios) & ~c.rows.single
    yield Edit("loops", text, claims | c.rows.single & c.rows.temporary)


def _difference(more: list[int], fewer: list[int]) -> list[int]:
    left = list(more)
    for n in fewer:
        if n in left:
            left.remove(n)
    return left[: len(more) - len(fewer)] if len(left) > len(more) - len(fewer) else left


def element_types(c: Context) -> Iterator[Edit]:
    """Find buffers that have another element type, or that replace others with the same number of elements."""
    replaced = _replaced_types(c)
    changed = {(a.element_type, b.element_type) for a, b, _ in c.rows.shapes.weighed() if a.element_type != b.element_type}
    found = []
    for before, after in sorted(changed | replaced):
        claims = c.rows.shapes.where(lambda a, b, x=before, y=after: (a.element_type, b.element_type) == (x, y))
        if (before, after) in replaced:
            claims |= c.rows.only_in_a & c.rows.is_in("element_type_a", (before,))
            claims |= c.rows.only_in_b & c.rows.is_in("element_type_b", (after,))
        found.append(Edit("element type", f"{after} instead of {before}", claims))
    yield from sorted(found, key=lambda edit: -int(np.abs(c.rows.change[edit.claims]).sum()))


def _replaced_types(c: Context) -> set[tuple[str, str]]:
    """Return pairs of element types: buffers of the first are gone, and of the second are new with as many elements."""
    gone, new = _elements(c, "a", c.rows.only_in_a), _elements(c, "b", c.rows.only_in_b)
    found = set()
    for before, counts in gone.items():
        total = sum(n * elements for elements, n in counts.items())
        for after, others in new.items():
            common = sum(elements * min(n, others.get(elements, 0)) for elements, n in counts.items())
            if before != after and common >= max(MIN_OVERLAP * total, 1):
                found.add((before, after))
    return found


def _elements(c: Context, side: str, which: Mask) -> dict[str, dict[int, int]]:
    """Return the number of these buffers by element type and number of elements."""
    codes, texts = c.rows.text(f"shape_{side}")
    counts = np.bincount(codes[which & (codes >= 0)], minlength=len(texts)).tolist()
    result: dict[str, dict[int, int]] = {}
    for text, n in zip(texts.to_pylist(), counts, strict=True):
        if n and (shape := parsed(text)):
            sizes, elements = result.setdefault(shape.element_type, {}), math.prod(shape.dimensions)
            sizes[elements] = sizes.get(elements, 0) + n
    return result


def dimensions(c: Context) -> Iterator[Edit]:
    """Find dimensions that were replaced; multiples of a smaller one count as that one."""
    votes: dict[tuple[int, int], int] = {}
    for a, b, weight in c.rows.shapes.weighed():
        for pair in replaced_dimensions(a, b):
            votes[pair] = votes.get(pair, 0) + weight
    in_arguments = _argument_dimensions(c, *c.interface.matched)
    bases: dict[tuple[int, int], int] = {}
    for pair in sorted(votes, key=lambda k: (k not in in_arguments, k)):
        base = next((k for k in bases if Fraction(*k) == Fraction(*pair) and pair[0] % k[0] == 0), pair)
        bases[base] = bases.get(base, 0) + votes[pair]
    for base in sorted(bases, key=lambda k: -bases[k]):
        name = in_arguments.get(base)
        text = f"a dimension of {base[0]:,} is {base[1]:,} now" + (f", as in argument {name}" if name else "")
        yield Edit("dimensions", text, c.rows.shapes.with_ratios([Fraction(*base)]))


def _argument_dimensions(c: Context, left: Ints, right: Ints) -> dict[tuple[int, int], str]:
    """Return the dimensions that differ in these pairs of arguments, and the name of an argument."""
    i = c.interface
    (codes_a, texts_a), (codes_b, texts_b) = (
        encoded(s.shapes.take(r)) for s, r in ((i.a, left), (i.b, right))
    )
    width = len(texts_b) + 1
    keys, first = np.unique(codes_a * width + codes_b, return_index=True)
    shapes_a, shapes_b = ([parsed(t) for t in texts.to_pylist()] for texts in (texts_a, texts_b))
    found: dict[tuple[int, int], str] = {}
    for key, row in sorted(zip(keys.tolist(), first.tolist(), strict=True), key=lambda k: k[1]):
        a, b = shapes_a[key // width], shapes_b[key % width]
        for pair in replaced_dimensions(a, b) if a and b else ():
            found.setdefault(pair, i.b.names[int(right[row])].as_py())
    return found


SHAPE_RULES = (sharding, loops, element_types, dimensions)
