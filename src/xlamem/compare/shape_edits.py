"""Rules that find edits by shapes: sharding, loops, element types and dimensions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.buffer_names import trip_counts
from ..compute.columns import Ints, arrow_array, ints
from ..compute.lazy import cached_property
from ..compute.op_names import ends_in_move, matching, plain_names, scopes
from ..compute.origins import has_opcode
from ..compute.program import Program
from ..compute.replica_groups import replica_groups
from ..formatting import count
from .context import (
    COLLECTIVES,
    CONVERSION,
    TENSORFLOW_MOVE,
    Context,
    Edit,
    Evidence,
    Names,
    Types,
    are,
    largest,
    listed,
    with_scopes,
)
from .gathers import gathers
from .rows import Shape, parsed, replaced_dimensions

Tally = Counter[tuple[Any, Any]]
"""Bytes of matched values, by what was replaced and by what."""

MIN_SHARE = 0.15
"""Minimum share of the matched bytes that must have another element type or dimension."""
MIN_SHARE_CONVERTED = 0.02
"""That share for element types, if conversions are new or gone."""
MIN_SHARE_ALONE = 0.02
"""That share for a dimension, if hardly any other one differs by another ratio."""
MIN_ALONE, MIN_SHAPES = 0.95, 8
"""Minimum share of that ratio in the bytes of matched values that have another shape, and number of their shapes."""
MIN_RATIO = 0.01
"""Minimum share of the bytes of matched temporaries that have other dimensions of a ratio, unless by chance."""
MAX_OTHERS = 0.1
"""Maximum share of collectives that are new or gone in programs that are sharded alike."""
MIN_EXCESS = 4
"""A replacement must be this many times as frequent as its reverse."""
MIN_RESHAPED = 8
"""One dimension grows, and another one shrinks, by this factor at least if an array is another one."""
MAX_BASES, MAX_EDITS = 1000, 64
"""Maximum number of dimensions that replaced ones of the same ratio may be multiples of, and of edits of a kind."""

DYNAMIC_SLICE = r"^dynamic-slice$"
FOLLOWING_LOOP = r"\brematted_computation\b|(?:^|/)(?:scatter[a-z_\-]*|gather)$"
"""The op_names of loops that are not the model's own."""


def devices(c: Context) -> Iterator[Edit]:
    """Find out whether the program was compiled for another number of devices, which share its arrays."""
    before, after = c.devices
    if before != after and before and after:
        text = f"compiled for {count(after, 'device')} instead of {before:,}"
        claims = c.rows.shapes.where(lambda a, b: any(_is_shared(c, *pair) for pair in replaced_dimensions(a, b)))
        yield Edit("sharding", text, claims, "interface")


def _is_shared(c: Context, x: int, y: int) -> bool:
    """Return whether a dimension of y instead of x follows from the numbers of devices, of which some may share it."""
    before, after = c.devices
    if before < after:
        before, after, x, y = after, before, y, x
    return y > x and before > 0 < after and (Fraction(before, after) / Fraction(y, x)).denominator == 1


def sharding(c: Context) -> Iterator[Edit]:
    """Find arguments, or else many buffers, that are sharded differently, and the dimensions that change with them."""
    i = c.interface
    left, right = resharded(c)
    if not len(left):
        yield from _resharded_buffers(c)
        return
    ratios = _ratios_of_sharding(c)
    names = largest(i.b.names, right, i.m.b.allocation_size[i.b.allocation[right]])
    first = int(i.m.b.allocation_size[i.b.allocation[right]].argmax())
    before, after = (s.sharding[int(rows[first])].as_py() for s, rows in ((i.a, left), (i.b, right)))
    how = f" ({before} -> {after})" if before and after else ""
    ratio_text = f", {times(*ratios)} as large on each device" if not how and len(ratios) == 1 else ""
    own = np.isin(ints(c.rows.table, "allocation_b"), i.m.b.allocation_ids[i.b.allocation[right]])
    text = f"{are(len(left), 'argument')} sharded differently{ratio_text}: {names}{how}"
    if ratio_text and _may_be_batch(c, left, right):
        (ratio,) = ratios
        batch = f"(a {'smaller' if ratio > 1 else 'larger'} batch, or sharded differently)"
        text = f"{are(len(left), 'argument')} {times(ratio)} as large on each device {batch}: {names}"
    yield Edit("sharding", text, own | c.rows.shapes.with_ratios(ratios), "interface")


def _may_be_batch(c: Context, left: Ints, right: Ints) -> bool:
    """Return whether as many devices have arguments of which the same dimension differs, and none is a state.

    A program updates its state in the memory of its arguments, and nothing that is printed tells how they are sharded.
    """
    i, (before, after) = c.interface, c.devices
    replaced = {k for a, b in i.shape_pairs(left, right).changed() for k in replaced_dimensions(a, b)}
    is_state = i.a.donated[left].any() or i.b.donated[right].any()
    return before == after and len(replaced) == 1 and not is_state


def resharded(c: Context) -> tuple[Ints, Ints]:
    """Return the arguments that are sharded differently."""
    left, right = c.interface.resharded
    if c.devices == (1, 1):  # {replicated} is the same as {maximal device=0} there
        return left[:0], right[:0]
    return (left, right) if len(left) else c.once("resized per device", partial(_resized_per_device, c))


def reshaped(c: Context) -> tuple[Ints, Ints]:
    """Return the matched arguments of both programs that have another shape as a whole."""
    return c.once("reshaped", partial(_find_reshaped, c))


def _shapes_of_reshaped(c: Context) -> set[tuple[Shape, Shape]]:
    return {*c.interface.shape_pairs(*reshaped(c)).changed()}


def _find_reshaped(c: Context) -> tuple[Ints, Ints]:
    left, right = c.interface.matched
    pairs = c.interface.shape_pairs(left, right)
    is_reshaped = pairs.where(_is_other_array) & ~np.isin(left, resharded(c)[0])
    others = c.interface.shape_pairs(left[~is_reshaped], right[~is_reshaped])
    explained = {pair for a, b in others.changed() for pair in replaced_dimensions(a, b)}
    is_reshaped &= pairs.where(lambda a, b: explained.isdisjoint(replaced_dimensions(a, b)))
    return left[is_reshaped], right[is_reshaped]


def _is_other_array(a: Shape, b: Shape) -> bool:
    """Return whether two shapes of the same rank have other dimensions rather than larger or smaller ones.

    They are in another order, or one dimension grows and another shrinks by far more than, say, the number of heads.
    """
    replaced = replaced_dimensions(a, b) if len(a.dimensions) == len(b.dimensions) else set()
    is_other_order = bool(replaced) and sorted(a.dimensions) == sorted(b.dimensions)
    grows, shrinks = (any(m >= MIN_RESHAPED * n for n, m in pairs) for pairs in (replaced, {p[::-1] for p in replaced}))
    return is_other_order or (grows and shrinks and len(a.dimensions) > 2)  # a batch of other samples is a matrix


def _ratios_of_sharding(c: Context) -> set[Fraction]:
    """Return the ratios of the dimensions of arguments that are sharded differently, in whole numbers if possible."""
    shapes = c.interface.shape_pairs(*resharded(c)).changed()
    ratios = {Fraction(*pair) for a, b in shapes for pair in replaced_dimensions(a, b)}
    return {ratio for ratio in ratios if 1 in ratio.as_integer_ratio()} or ratios


def times(ratio: Fraction) -> str:
    """Return a ratio of A to B in words."""
    return f"1/{ratio.numerator:,}" if ratio.denominator == 1 else f"{float(1 / ratio):.3g} times"


def _resharded_buffers(c: Context) -> Iterator[Edit]:
    """Find collectives that differ, and a factor by which many buffers are larger or smaller on each device."""
    before, after = _collectives(c)
    if not c.has_names or not before.differ(after):
        return
    changed = [o for o in sorted({*before.counts, *after.counts}) if before.counts[o] != after.counts[o]]
    text = f"other collectives: {listed([f'{o} {before.counts[o]:,} -> {after.counts[o]:,}' for o in changed])}"
    tally: Tally = Counter()
    for a, b, size in c.resized:
        for ratio in {Fraction(*pair) for pair in replaced_dimensions(a, b)}:
            tally[ratio.numerator, ratio.denominator] += size
    devices, claims = max(before.devices, after.devices), c.none
    for x, y in _frequent(tally, MIN_SHARE * c.matched_bytes, ()):
        if 1 in (x, y) and devices % max(x, y) == 0:
            text = f"buffers are {times(Fraction(x, y))} as large on each device, with {text}"
            claims = c.rows.shapes.with_ratios([Fraction(x, y)])
            break
    yield Edit("sharding", text, claims, "buffers")


def _resized_per_device(c: Context) -> tuple[Ints, Ints]:
    """Return arguments that are a number of times larger on one side, if the programs exchange data differently.

    TPU dumps do not print the sharding of arguments. That other collectives are needed tells it from another batch, and
    so does that both programs compute with the smaller dimension.
    """
    i, (before, after) = c.interface, _collectives(c)
    left, right = i.matched
    devices = max(before.devices, after.devices, *c.devices)
    pairs = i.shape_pairs(left, right)
    replaced = {pair for a, b in pairs.changed() for pair in replaced_dimensions(a, b)}
    whole = {k for k in replaced if max(k) % min(k) == 0 and devices % (max(k) // min(k)) == 0}
    ratios = {Fraction(*k) for k in whole}
    unlike = ~i.sharded_alike(left, right)
    if not before.differ(after):  # XLA may have chosen others: one side must exchange what the other has
        exchanged = unlike & pairs.with_ratios(ratios) & (before.counts != after.counts)
        exchanged &= pairs.where(lambda a, b: b.dimensions in before.shapes or a.dimensions in after.shapes)
        shapes = i.shape_pairs(left[exchanged], right[exchanged]).changed()
        ratios &= {Fraction(*k) for a, b in shapes for k in replaced_dimensions(a, b)}
        whole = {k for k in whole if _is_exchanged(k, before, after)} | _sliced(c, whole, before, after)
        ratios |= {Fraction(*k) for k in whole}
    kept = unlike & pairs.with_ratios(ratios)
    return left[kept], right[kept]


def _is_exchanged(replaced: tuple[int, int], before: Collectives, after: Collectives) -> bool:
    """Return whether the program with the larger dimension exchanges it, and the other one neither of both."""
    larger, other = (before, after) if replaced[0] > replaced[1] else (after, before)
    return max(replaced) in larger.dimensions and other.dimensions.isdisjoint(replaced)


def _sliced(
    c: Context, replaced: set[tuple[int, int]], before: Collectives, after: Collectives
) -> set[tuple[int, int]]:
    """Return those of these dimensions of which each device takes a slice, on the side that has the larger ones.

    That side has more dynamic slices, the temporaries of both programs have the smaller dimension, or neither of both,
    and none another one of the ratio. So it is if a loop takes slices of an argument, but then it has as many
    iterations.
    """
    slices = [opcodes.count(DYNAMIC_SLICE) for opcodes in c.opcodes]
    if slices[0] == slices[1] or not before.counts or not after.counts:
        return set()
    more_after = slices[1] > slices[0]
    pairs = [(a, b) for a, b, _ in c.temporaries]
    sizes: Counter[Fraction] = Counter()
    for a, b, size in c.temporaries:
        sizes.update(dict.fromkeys((Fraction(*k) for k in replaced_dimensions(a, b)), size))
    least = MIN_RATIO * sum(size for _, _, size in c.temporaries)
    ratios = {ratio for ratio, size in sizes.items() if size >= least}
    kept = {n for a, b in pairs for n in a.dimensions if n in b.dimensions}
    known = {n for both in pairs for side in both for n in side.dimensions}
    loops_a, loops_b = ({*(_trip_counts_in_model(p) or ())} for p in (c.m.a, c.m.b))
    return {
        (x, y) for x, y in replaced
        if (y > x) == more_after and (min(x, y) in kept or (pairs and known.isdisjoint((x, y))))
        and Fraction(x, y) not in ratios
        and not (x in loops_a and y in loops_b)
    }  # fmt: skip


@dataclass(frozen=True)
class Collectives:
    """The instructions with which devices exchange data."""

    counts: Counter[str]
    """Number by opcode."""
    devices: int
    """Most devices that take part in one; 1 without collectives."""

    shapes: frozenset[tuple[int, ...]]
    """Dimensions of their results."""

    @cached_property
    def dimensions(self) -> set[int]:
        return {n for shape in self.shapes for n in shape}

    def differ(self, other: Collectives) -> bool:
        """Return whether the numbers differ by more than what XLA's own choices change."""
        difference = sum(abs(self.counts[o] - other.counts[o]) for o in {*self.counts, *other.counts})
        return difference > MAX_OTHERS * max(self.counts.total(), other.counts.total())


def _collectives(c: Context) -> tuple[Collectives, Collectives]:
    """Return the collectives of both programs."""
    return c.once("collectives", partial(_find_collectives, c))


def _find_collectives(c: Context) -> tuple[Collectives, Collectives]:
    sides = zip((c.m.a, c.m.b), c.opcodes, strict=True)
    a, b = (Collectives(_collective_counts(opcodes), *_exchanges(p)) for p, opcodes in sides)
    return a, b


def _collective_counts(opcodes: Names) -> Counter[str]:
    counts: Counter[str] = Counter()
    n = np.bincount(opcodes.codes[opcodes.codes >= 0], minlength=len(opcodes.texts)).tolist()
    for opcode, number in zip(opcodes.texts.to_pylist(), n, strict=True):
        if number and re.match(COLLECTIVES, opcode) and not opcode.endswith("-done"):
            counts[opcode.removesuffix("-start")] += number
    return counts


def _exchanges(p: Program) -> tuple[int, frozenset[tuple[int, ...]]]:
    """Return the most devices that take part in a collective (1 without), and the dimensions of the results."""
    table = p.tables["instructions"]
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), COLLECTIVES))
    attributes = set(pc.cast(pc.take(table["attributes"], rows), pa.string()).to_pylist())
    texts = set(pc.cast(pc.take(table["shape"], rows), pa.string()).to_pylist())
    shapes = (parsed(shape) for text in texts for shape in re.findall(r"\w+\[[\d,]*\]", text or ""))
    groups = (replica_groups(text or "") for text in attributes)
    devices = max((g.devices for g in groups if g), default=1)
    return devices, frozenset(shape.dimensions for shape in shapes if shape)


def loops(c: Context) -> Iterator[Edit]:
    """Find loops that are on one side only, and dimensions that grow or shrink by their trip counts."""
    before, after = _loops_of_model(c)
    if before is None or after is None:
        return
    if c.other_chip and max(c.devices) > 1:
        return  # XLA makes loops of products while devices exchange their operands
    if len(before) == len(after):
        yield from _trip_counts(c, before, after)
        return
    gone = len(before) > len(after)
    n = abs(len(before) - len(after))
    if _in_single_scopes(c, gone=gone):
        return
    more, fewer = (before, after) if gone else (after, before)
    single = Counter(more) - Counter(fewer)
    known = sorted(single.keys() - {-1, 0, 1})
    is_known = len(known) == 1 and (n == 1 or single == {known[0]: n})
    found = f"{count(n, 'loop')}{f' of {known[0]:,} iterations' if is_known else ''} {'is' if n == 1 else 'are'}"
    claims = c.rows.single & c.rows.temporary | c.rows.shapes.with_ratios(
        Fraction(1, k) if gone else Fraction(k) for k in known
    )
    if _repeats_more(c):
        claims = c.none
    yield Edit("loops", f"{found} {'gone' if gone else 'new'}", claims, "names")


def _loops_of_model(c: Context) -> tuple[list[int] | None, list[int] | None]:
    """Return the trip counts of the loops of both models.

    A loop without an op_name counts only if the other side has one of as many iterations: XLA makes some of other
    operations, such as updates of large arrays, but some loops of models lose their op_name, as with host memory.
    """
    before, after = (_trip_counts_in_model(p) for p in (c.m.a, c.m.b))
    if before is None or after is None:
        return before, after
    single = Counter(before) - Counter(after), Counter(after) - Counter(before)
    unnamed = (Counter(_unnamed_trip_counts(p)) for p in (c.m.a, c.m.b))
    a, b = (Counter(counts) - (one & none)
            for counts, one, none in zip((before, after), single, unnamed, strict=True))  # fmt: skip
    return [*a.elements()], [*b.elements()]


def _unnamed_trip_counts(p: Program) -> list[int]:
    """Return the trip counts of loops without an op_name in a program that has op_names."""
    names = p.tables["instructions"]["op_name"]
    rows = np.flatnonzero(has_opcode(p, np.arange(len(names)), "^while$"))
    unnamed = pc.is_null(pc.take(names, arrow_array(rows))).to_numpy()
    counts: list[int] = trip_counts(p)[rows[unnamed]].tolist() if names.null_count < len(names) else []
    return counts


def _trip_counts_in_model(p: Program) -> list[int] | None:
    """Return the trip counts of loops, without those that follow from something else in the model.

    None if the instructions are not known. The backward pass repeats loops inside of `jax.checkpoint`, and XLA makes
    some of scatters and gathers.
    """
    table = p.tables["instructions"]
    if not table.num_rows:
        return None
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), "^while$"))
    names = pc.cast(pc.take(table["op_name"], arrow_array(rows)), pa.string())
    counts: list[int] = trip_counts(p)[rows[~matching(names, FOLLOWING_LOOP)]].tolist()
    return counts


def _repeats_more(c: Context) -> bool:
    """Return whether the same lines loop on both sides and a dimension of an argument differs, from which it follows.

    An associative scan, for example, has the more levels the longer its arrays are.
    """
    if not any(replaced_dimensions(a, b) for a, b in c.interface.shapes):
        return False
    return _loop_names(c.m.a) == _loop_names(c.m.b)


def _loop_names(p: Program) -> set[str | None]:
    """Return the op_names of loops."""
    table = p.tables["instructions"]
    rows = np.flatnonzero(has_opcode(p, np.arange(table.num_rows), "^while$"))
    return set(pc.cast(pc.take(table["op_name"], rows), pa.string()).to_pylist())


def _in_single_scopes(c: Context, *, gone: bool) -> bool:
    """Return whether the loops that only one side has are in inner scopes that the other side does not have either.

    A library loops there, for example to draw random numbers.
    """
    mine, theirs = (c.m.a, c.m.b) if gone else (c.m.b, c.m.a)
    single = _loop_scopes(mine) - _loop_scopes(theirs)
    a, b = c.op_names
    there = {s for s in scopes((b if gone else a).texts, fold=True).to_pylist() if s}
    around = with_scopes(there)
    return bool(single) and all("/" in scope and scope not in around for scope in single)


def _loop_scopes(p: Program) -> set[str]:
    """Return the scopes, with folded layers, in which there are loops."""
    names = pa.array([*_loop_names(p)], pa.string())
    return {scope or "" for scope in scopes(names, fold=True).to_pylist()}


def _trip_counts(c: Context, before: list[int], after: list[int]) -> Iterator[Edit]:
    """Find loops with another trip count, as of a scan over more layers.

    A loop over all elements of an array runs more often if a dimension of an argument grows, which is the cause.
    """
    only_a, only_b = (set(x) - set(y) - {-1, 0} for x, y in ((before, after), (after, before)))
    if len(only_a) == len(only_b) == 1:
        x, y = only_a.pop(), only_b.pop()
        shapes = reversed(c.interface.shapes.items())
        in_arguments = {k: name for (a, b), name in shapes for k in replaced_dimensions(a, b)}
        if (x, y) not in in_arguments and Fraction(x, y) in {Fraction(*k) for k in in_arguments}:
            return
        name = in_arguments.get((x, y))
        dimension = f"a dimension of {x:,} is {y:,} now{_as_in(name)}; " if name else ""
        text = f"{dimension}loops run {y:,} iterations instead of {x:,}"
        claims = c.rows.shapes.with_ratios([Fraction(x, y)])
        if not name:  # such as an unrolled loop, whose body has other buffers
            claims |= c.rows.single & c.rows.temporary
        yield Edit("loops", text, claims, "names")


def element_types(c: Context) -> Iterator[Edit]:
    """Find element types that many buffers, or an argument, have instead of another.

    Fewer buffers suffice if operations that convert element types are new or gone. Then, many can also be floats that
    are booleans or integers now: what is stored before or after it is converted.
    """
    scopes = _conversions(c)
    conversions = scopes or "".join(f"; {part}" for part in _numbers_of_conversions(c))
    tally: Tally = Counter()
    unlike: Tally = Counter()
    in_arguments = {(a.element_type, b.element_type): name for (a, b), name in reversed(c.interface.shapes.items())}
    for a, b, size in c.reshaped if conversions else c.resized:
        types = a.element_type, b.element_type
        if a.element_type != b.element_type and (alike(*types) or types in in_arguments):
            tally[types] += size
        elif conversions and a.element_type != b.element_type and a.dimensions == b.dimensions:
            unlike[types] += size
    tally.update({types: size for types, size in unlike.items() if size >= MIN_SHARE * c.matched_bytes})
    share = MIN_SHARE_CONVERTED if conversions else MIN_SHARE
    for before, after in _frequent(tally, share * c.matched_bytes, in_arguments):
        is_named = conversions and (_mostly_converts(c) or 2 * tally[before, after] > c.matched_bytes)
        claims = c.rows.shapes.where(partial(_have_types, before, after))
        claims |= c.rows.only_in_a & c.rows.is_in("element_type_a", (before,))
        claims |= c.rows.only_in_b & c.rows.is_in("element_type_b", (after,))
        argument = in_arguments.get((before, after))
        evidence: Evidence = "interface" if argument else "names" if is_named else "buffers"
        how = f"{_as_in(argument)}{scopes}" if argument else conversions
        yield Edit("element type", f"{after} instead of {before}{how}", claims, evidence)


def conversions(c: Context) -> Iterator[Edit]:
    """Find out which element types are converted to in more or fewer lines of the model, if little else changed."""
    changed = _numbers_of_conversions(c)
    if changed and not any(edit.evidence != "buffers" for edit in element_types(c)):
        yield Edit("element type", "; ".join([*_types_around_conversions(c), *changed]), c.none, "names")


def _types_around_conversions(c: Context) -> Iterator[str]:
    """Say which operations have another type in scopes with another number of conversions, which the model chose."""
    a, b = ({path: n for path, n in types.items() if re.search(CONVERSION, path)} for types in c.types)
    scopes = {path.rpartition("/")[0] for path in a.keys() | b.keys() if a.get(path) != b.get(path)} - {""}
    for (gone, new), paths in _moved_types(c).items():
        inside = [path for path in paths if path.rpartition("/")[0] in scopes]
        if gone and new and inside:
            yield _types_text(gone, new, inside)


def _numbers_of_conversions(c: Context) -> list[str]:
    """Return the numbers of conversions that differ, by element type; none if much else changed."""
    a, b = (_conversions_by_type(types) for types in c.types)
    changed = [t for t in sorted({*a, *b}) if len(a[t]) != len(b[t]) or sum(a[t].values()) != sum(b[t].values())]
    texts = []
    for t in changed if changed and _mostly_converts(c) else ():
        paths = _without_wrappers(path for path in sorted(a[t] | b[t]) if a[t][path] != b[t][path])
        scopes = list(dict.fromkeys(scope for path in paths if (scope := path.rpartition("/")[0])))
        where = f" in {listed(scopes)}" if scopes else ""
        texts.append(f"{a[t].total():,} -> {b[t].total():,} conversions to {t}{where}")
    return texts


def _conversions_by_type(types: Types) -> defaultdict[str, Counter[str]]:
    """Return the number of lines with conversions to each element type, by path."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path, counts in types.items():
        if re.search(CONVERSION, path):
            for t, n in counts.items():
                found[t][path] += n
    return found


def types_of_operations(c: Context) -> Iterator[Edit]:
    """Find operations that compute with another floating-point type."""
    moved = retyped(c)
    if moved:
        (gone, new), paths = max(moved.items(), key=lambda item: len(item[1]))
        yield Edit("operation types", _types_text(gone, new, paths), c.none, "names")


def _types_text(gone: str, new: str, paths: list[str]) -> str:
    """Say that the operations of these paths use a type instead of another one, of which one may be missing."""
    names = list(dict.fromkeys(_without_wrappers(paths)))
    use = "use" if len(names) > 1 else "uses"
    instead = f" instead of {gone}" if gone else ""
    text = f"{use} {new}{instead}" if new else f"no longer {use} {gone}"
    return f"{listed(names)} {text}"


def retyped(c: Context) -> dict[tuple[str, str], list[str]]:
    """Return the paths of operations by the types that only A and only B uses; none if the compiler chooses them."""
    return {} if c.platforms_differ or c.m.a.tables.platform == "tpu" else _moved_types(c)


def _moved_types(c: Context) -> dict[tuple[str, str], list[str]]:
    """Return the paths of operations by the types that only A and only B uses."""
    moved: dict[tuple[str, str], list[str]] = {}
    a, b = c.types
    for path in sorted(a.keys() & b.keys()):
        gone, new = (", ".join(sorted(x.keys() - y.keys())) for x, y in ((a[path], b[path]), (b[path], a[path])))
        if (gone or new) and not re.search(CONVERSION, path):
            moved.setdefault((gone, new), []).append(path)
    return moved


def _without_wrappers(paths: Iterable[str]) -> list[str]:
    """Return paths without the wrappers of transformations."""
    plain: list[str] = plain_names(pa.array(paths, pa.string())).to_pylist()
    return plain


def _mostly_converts(c: Context) -> bool:
    """Return whether most of the operations that are new or gone convert element types. Moves do not count."""
    a, b = c.lines
    changes = {path: abs(a[path] - b[path]) for path in a | b}
    paths = pa.array(changes, pa.string())
    others = ~(ends_in_move(paths) | matching(paths, TENSORFLOW_MOVE))
    numbers = np.fromiter(changes.values(), np.int64, len(changes))
    return int(numbers[matching(paths, CONVERSION)].sum()) > 2 * int(numbers[others].sum())


def _conversions(c: Context) -> str:
    """Return the scopes in which conversions of element types are on one side only, as a clause.

    Without the HLO text, those inside of fusions are not known.
    """
    if not c.has_hlo:
        return ""
    a, b = ({_outermost(scope) for scope in names.scopes_of(CONVERSION)} for names in c.op_names)
    single = []
    for word, found in (("new", b - a), ("gone", a - b)):
        where = f" in {listed(sorted(s or 'the outermost scope' for s in found))}" if found - {""} else ""
        single += [f"conversions are {word}{where}"] if found else []
    return "".join(f"; {part}" for part in single)


def _outermost(scope: str) -> str:
    """Return the scope of a conversion; empty if there is none, where `scopes` keeps the name of the operation.

    In Keras, conversions have a scope of their own: `dense/Cast/Cast`.
    """
    return re.sub(CONVERSION, "", scope)


def _have_types(before: str, after: str, a: Shape, b: Shape) -> bool:
    return (a.element_type, b.element_type) == (before, after)


def alike(before: str, after: str) -> bool:
    """Return whether both element types are floating-point, or both integers."""
    return any(re.match(pattern, before) and re.match(pattern, after) for pattern in (r"f\d|bf16", r"[su]\d"))


def dimensions(c: Context) -> Iterator[Edit]:
    """Find dimensions that many buffers, or an argument, have instead of others; multiples count as one dimension."""
    tally: Tally = Counter()
    shapes_with: Tally = Counter()
    whole = _shapes_of_reshaped(c)
    follows = {pair for a, b in whole for pair in replaced_dimensions(a, b)}
    for a, b, size in c.resized:
        replaced = replaced_dimensions(a, b)
        for pair in () if replaced <= follows else replaced:
            tally[pair] += size
            shapes_with[pair] += 1
    most = {ratio: n for n, ratio in sorted((n, Fraction(*pair)) for pair, n in shapes_with.items())}
    shapes = ((pair, name) for pair, name in reversed(c.interface.shapes.items()) if pair not in whole)
    in_arguments = {pair: name for (a, b), name in shapes for pair in replaced_dimensions(a, b)}
    # Of several dimensions that grow alike, such as nodes and edges, the one with most bytes.
    of_ratio: dict[Fraction, tuple[int, int]] = {}
    for pair in sorted(in_arguments, key=lambda k: -tally[k]):
        of_ratio.setdefault(Fraction(*pair), pair)
    of_square: dict[Fraction, tuple[int, int]] = {}
    for ratio, pair in of_ratio.items():
        of_square.setdefault(ratio * ratio, pair)
    bases: Tally = Counter()
    bases_of_ratio: defaultdict[Fraction, list[tuple[int, int]]] = defaultdict(list)
    # XLA may split a dimension into small ones: few shapes have those.
    for pair in sorted(tally, key=lambda k: (k not in in_arguments, 2 * shapes_with[k] < most[Fraction(*k)], k)):
        ratio = Fraction(*pair)
        same = of_ratio.get(ratio) or of_square.get(ratio)
        known = bases_of_ratio[ratio]
        base = same or next((k for k in known[:MAX_BASES] if pair[0] % k[0] == 0), pair)
        if base not in bases:
            bases_of_ratio[Fraction(*base)].append(base)
        bases[base] += tally[pair]
    each = " on each device" if max(side.devices for side in _collectives(c)) > 1 else ""
    shared = _ratios_of_sharding(c)
    for before, after in _frequent(bases, _least_share(bases, shapes_with) * c.matched_bytes, in_arguments):
        argument = in_arguments.get((before, after))
        if Fraction(before, after) in shared or _is_shared(c, before, after):
            continue  # it follows from another sharding
        if not argument and 1 in (before, after):
            continue  # other arrays, such as operands before and after they are broadcast
        sharded = _sharded(c, before, after) if each and not argument else ""
        text = f"a dimension of {before:,} is {after:,} now{each}{sharded}{_as_in(argument)}"
        ratio = Fraction(before, after)
        claims = c.rows.shapes.with_ratios([ratio, ratio * ratio] if argument else [ratio])
        claims &= ~c.rows.is_in("cause", ("larger",) if before > after else ("smaller",))
        yield Edit("dimensions", text, claims, "interface" if argument else "buffers")


def _least_share(bases: Tally, shapes_with: Tally) -> float:
    """Return the share of the matched bytes that a dimension needs: less if many shapes differ by the same ratio.

    Then it is no coincidence, such as a capacity of which few arrays are large.
    """
    of_ratio: Counter[Fraction] = Counter()
    for pair, size in bases.items():
        of_ratio[Fraction(*pair)] += size
    ((ratio, size),) = of_ratio.most_common(1) or [(Fraction(1), 0)]
    n_shapes = sum(n for pair, n in shapes_with.items() if Fraction(*pair) == ratio)
    return MIN_SHARE_ALONE if size >= MIN_ALONE * bases.total() and n_shapes >= MIN_SHAPES else MIN_SHARE


def _sharded(c: Context, before: int, after: int) -> str:
    """Say that a dimension is no longer sharded, or sharded now: that side gathers it more often, and differs a lot."""
    a, b = _collectives(c)
    if not a.differ(b):
        return ""
    pair = min(before, after), max(before, after)
    in_a, in_b = ([g for g in found if g.dimension == pair] for found in gathers(c))
    (more, fewer), word = ((in_b, in_a), "no longer sharded") if before < after else ((in_a, in_b), "sharded now")
    return f", {word} over {more[0].devices:,} devices" if len(more) > len(fewer) else ""


def _frequent(tally: Tally, least: float, in_arguments: Container[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return the replacements of enough bytes, or in arguments; the most frequent first."""
    chosen = []
    for (before, after), size in tally.most_common():
        is_common = size >= least and size >= MIN_EXCESS * tally[after, before]
        if is_common or (before, after) in in_arguments:
            chosen.append((before, after))
    return chosen[:MAX_EDITS]


def _as_in(argument: str | None) -> str:
    if not argument:
        return ""
    return f", as in {argument}" if argument.startswith("argument ") else f", as in argument {argument}"
