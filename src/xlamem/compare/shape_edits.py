"""Rules that find edits by shapes: sharding, loops, element types and dimensions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ..compute.buffer_names import trip_counts_of
from ..compute.columns import Ints, ints
from ..compute.origins import has_opcode
from ..compute.program import Program
from .edits import Context, Edit, are, largest
from .rows import Shape, replaced_dimensions

Tally = Counter[tuple[Any, Any]]
"""Bytes of matched values, by what was replaced and by what."""

MIN_SHARE = 0.15
"""Minimum share of the matched bytes that must have another element type or dimension."""
MIN_EXCESS = 4
"""A replacement must be this many times as frequent as its reverse."""

COLLECTIVES = r"^(?:all-|collective-|reduce-scatter|ragged-all)"
GROUP = r"replica_groups=(?:\{\{(?P<list>[\d,]+)\}|\[(?P<groups>\d+),(?P<size>\d+)\])"


def sharding(c: Context) -> Iterator[Edit]:
    """Find arguments that are sharded differently, and the dimensions that change with them."""
    i = c.interface
    left, right = i.resharded
    if not len(left):
        left, right = _resized_per_device(c)
    if not len(left):
        return
    names = largest(i.b.names, right, i.m.b.allocation_size[i.b.allocation[right]])
    shapes = i.shapes_of(left, right)
    ratios = {Fraction(*pair) for a, b in shapes for pair in replaced_dimensions(a, b)}
    before, after = (s.sharding.take([int(r[0])]).to_pylist()[0] for s, r in ((i.a, left), (i.b, right)))
    how = f" ({before} -> {after})" if before or after else ""
    own = np.isin(ints(c.rows.table, "allocation_b"), i.m.b.allocation_ids[i.b.allocation[right]])
    yield Edit("sharding", f"{are(len(left), 'argument')} sharded differently: {names}{how}", own | c.rows.shapes.with_ratios(ratios))


def _resized_per_device(c: Context) -> tuple[Ints, Ints]:
    """Return arguments that are a number of times larger on one side, if the programs exchange data differently.

    TPU dumps do not print the sharding of arguments. That other collectives are needed tells it from another batch.
    """
    i, (before, after) = c.interface, (_collectives(p) for p in (c.m.a, c.m.b))
    left, right = i.matched
    devices = max([*before.values(), *after.values()], default=1)
    if before == after:
        return left[:0], right[:0]
    pairs = i.shapes_by_row(left, right)
    ratios = {Fraction(*k) for a, b in pairs if a and b for k in replaced_dimensions(a, b)}
    chosen = {r for r in ratios if max(r, 1 / r).denominator == 1 and devices % int(max(r, 1 / r)) == 0}
    kept = np.array([_has_ratio(a, b, chosen) for a, b in pairs], bool)
    return left[kept], right[kept]


def _has_ratio(a: Shape | None, b: Shape | None, ratios: set[Fraction]) -> bool:
    return a is not None and b is not None and any(Fraction(*k) in ratios for k in replaced_dimensions(a, b))


def _collectives(p: Program) -> dict[str, int]:
    """Return the collectives of a program by opcode and number, and the most devices that take part in one."""
    table = p.tables["instructions"]
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), COLLECTIVES))
    opcodes, counts = np.unique(table["opcode"].take(rows).cast("string").to_numpy(zero_copy_only=False), return_counts=True)
    attributes = table["attributes"].take(rows).cast("string").to_pylist()
    devices = max((_group_size(text) for text in set(attributes)), default=1)
    return {f"{opcode} x {n}": devices for opcode, n in zip(opcodes.tolist(), counts.tolist(), strict=True)}


def _group_size(attributes: str | None) -> int:
    """Return the number of devices in a replica group."""
    found = re.search(GROUP, attributes or "")
    if not found:
        return 1
    return found["list"].count(",") + 1 if found["list"] else int(found["size"])


def loops(c: Context) -> Iterator[Edit]:
    """Find loops that are on one side only, and dimensions that grow or shrink by their trip counts."""
    before, after = (trip_counts_of(p) for p in (c.m.a, c.m.b))
    if len(before) == len(after):
        yield from _trip_counts(c, before, after)
        return
    gone = len(before) > len(after)
    n = abs(len(before) - len(after))
    more, fewer = (before, after) if gone else (after, before)
    known = sorted((Counter(more) - Counter(fewer)).keys() - {-1, 0, 1})
    noun = f"loop of {known[0]:,} iterations" if len(known) == 1 and n == 1 else "loop"
    claims = c.rows.single & c.rows.temporary | c.rows.shapes.with_ratios(
        Fraction(1, k) if gone else Fraction(k) for k in known
    )
    yield Edit("loops", f"{are(n, noun)} {'gone' if gone else 'new'}", claims)


def _trip_counts(c: Context, before: list[int], after: list[int]) -> Iterator[Edit]:
    """Find loops with another trip count, as of a scan over more layers."""
    fewer, more = (set(x) - set(y) - {-1} for x, y in ((before, after), (after, before)))
    if len(fewer) == len(more) == 1:
        x, y = fewer.pop(), more.pop()
        text = f"loops run {y:,} iterations instead of {x:,}"
        yield Edit("loops", text, c.rows.shapes.with_ratios([Fraction(x, y)]))


def element_types(c: Context) -> Iterator[Edit]:
    """Find element types that many buffers, or an argument, have instead of another."""
    tally: Tally = Counter()
    for a, b, size in c.resized:
        if a.element_type != b.element_type and _alike(a.element_type, b.element_type):
            tally[a.element_type, b.element_type] += size
    in_arguments = {(a.element_type, b.element_type) for a, b in c.interface.shapes}
    for before, after in _frequent(tally, c.matched_bytes, in_arguments):
        claims = c.rows.shapes.where(lambda a, b, x=before, y=after: (a.element_type, b.element_type) == (x, y))
        claims |= c.rows.only_in_a & c.rows.is_in("element_type_a", (before,))
        claims |= c.rows.only_in_b & c.rows.is_in("element_type_b", (after,))
        yield Edit("element type", f"{after} instead of {before}{_as_in(c, lambda a, b, x=before, y=after: (a.element_type, b.element_type) == (x, y))}", claims)


def _alike(before: str, after: str) -> bool:
    """Return whether both element types are floating-point, or both integers."""
    return any(re.match(pattern, before) and re.match(pattern, after) for pattern in (r"f\d|bf16", r"[su]\d"))


def dimensions(c: Context) -> Iterator[Edit]:
    """Find dimensions that many buffers, or an argument, have instead of others; multiples count as one dimension."""
    tally: Tally = Counter()
    for a, b, size in c.resized:
        for pair in replaced_dimensions(a, b):
            tally[pair] += size
    in_arguments = {pair for a, b in c.interface.shapes for pair in replaced_dimensions(a, b)}
    bases: Tally = Counter()
    for pair in sorted(tally, key=lambda k: (k not in in_arguments, k)):
        base = next((k for k in bases if Fraction(*k) == Fraction(*pair) and pair[0] % k[0] == 0), pair)
        bases[base] += tally[pair]
    for base in _frequent(bases, c.matched_bytes, in_arguments):
        text = f"a dimension of {base[0]:,} is {base[1]:,} now{_as_in(c, lambda a, b, k=base: k in replaced_dimensions(a, b))}"
        yield Edit("dimensions", text, c.rows.shapes.with_ratios([Fraction(*base)]))


def _frequent(tally: Tally, total: int, in_arguments: Container[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the replacements with a large share of the matched bytes, or in arguments; the most frequent first."""
    chosen = []
    for (before, after), size in tally.most_common():
        is_common = size >= MIN_SHARE * total and size >= MIN_EXCESS * tally[after, before]
        if is_common or (before, after) in in_arguments:
            chosen.append((before, after))
    return chosen


def _as_in(c: Context, holds: Callable[[Shape, Shape], bool]) -> str:
    """Return an argument for whose shapes a condition holds."""
    names = [name for (a, b), name in c.interface.shapes.items() if holds(a, b)]
    return f", as in argument {names[0]}" if names else ""
