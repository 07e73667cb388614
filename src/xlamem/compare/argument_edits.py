"""Rules that find arguments that only one side has, such as the state of another optimizer."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..compute.columns import Ints, Mask, arrow_array
from ..compute.program import Program
from ..formatting import count, plain_shape, size
from .context import MAX_NAMES, Context, Edit, are, listed
from .graph import argument_suffixes, nested_names
from .interface import Arguments, Interface
from .rows import UNNAMED_PARAMETER
from .stack_edits import arguments_of_one_side

COMPONENT = re.compile(r"^[^\[.]+|\[(?:'[^']*'|\"[^\"]*\"|[^\[\]'\"]*)(?:\]|$)|\.[^\[.]+")
"""A part of the name of an argument: `state`, `.params`, `['w']`."""
MAX_COMPONENTS = 32
"""Maximum number of parts of a name that are looked at."""
UNNAMED = r"^argument \d"


def single_arguments(c: Context) -> Iterator[Edit]:
    """Find arguments that only one side has.

    State of another optimizer has the shapes of the one that it replaces, as which it counts, but not its names.
    """
    i = c.interface
    gone, new = arguments_of_one_side(c)
    replaced_a, replaced_b = _replaced(i, gone, new)
    sides = [("b", c.m.b, i.b, i.a, new, replaced_b, "new"), ("a", c.m.a, i.a, i.b, gone, replaced_a, "gone")]
    texts, claimed = [], []
    for side, p, own, theirs, rows, replaced, word in sides:
        stated = np.sort(np.append(rows, replaced))
        if len(stated):
            sizes = p.allocation_size[own.allocation[stated]]
            groups = _shapes_of_unnamed(p, own, stated, sizes)
            groups = groups or _largest_groups(own.names, stated, sizes, theirs.names)
            total = int(sizes.sum())
            claimed.append(c.rows.of_arguments(side, own.allocation[rows]))
            texts.append((total, f"{are(len(stated), 'argument')} {word}", groups))
    if len(replaced_b):
        texts.sort(reverse=True)
        text = "; ".join(f"{what}, {size(total)}: {groups}" for total, what, groups in texts)
        yield Edit("arguments", text, claimed[0] | claimed[1], "interface")
        return
    for (_, what, groups), claims in zip(texts, claimed, strict=True):
        yield Edit("arguments", f"{what}: {groups}", claims, "interface")


def renamed_arguments(c: Context) -> Iterator[Edit]:
    """Find arguments with other names, such as weights of modules that are nested otherwise, if none is new or gone."""
    i = c.interface
    left, right = _renamed(i)
    if not len(left) or len(i.gone) or len(i.new):
        return
    order = np.argsort(-c.m.b.allocation_size[i.b.allocation[right]], kind="stable")[: MAX_NAMES + 1]
    a, b = (pc.take(own.names, arrow_array(rows[order])) for own, rows in ((i.a, left), (i.b, right)))
    names = listed([f"{before} -> {after}" for before, after in zip(a.to_pylist(), b.to_pylist(), strict=True)])
    text = f"{count(len(left), 'argument has another name', 'arguments have other names')}: {names}"
    yield Edit("arguments", text, c.none, "interface")


def _renamed(i: Interface) -> tuple[Ints, Ints]:
    """Return matched arguments with names that the other program does not have."""
    left, right = i.matched
    a, b = (pc.take(own.names, arrow_array(rows)) for own, rows in ((i.a, left), (i.b, right)))
    other = pc.not_equal(argument_suffixes(a), argument_suffixes(b))
    # A leaf that has become several is the same argument, under a longer name.
    other = pc.and_(other, pc.not_equal(nested_names(a, i.b.names), nested_names(b, i.a.names)))
    renamed = _flags(pc.and_(other, pc.invert(pc.match_substring_regex(b, UNNAMED))))
    renamed &= _flags(pc.invert(pc.is_in(a, i.b.names))) & _flags(pc.invert(pc.is_in(b, i.a.names)))
    return left[renamed], right[renamed]


def _replaced(i: Interface, gone: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Return matched arguments with other names, if some of those named like them have no match."""
    left, right = _renamed(i)
    if not len(left) or not (len(new) or len(gone)):
        return left[:0], right[:0]
    single_a = _in_groups(i.a.names, left, gone, i.b.names)
    single_b = _in_groups(i.b.names, right, new, i.a.names)
    return left[single_a | single_b], right[single_a | single_b]


def _flags(column: pa.Array) -> Mask:
    mask: Mask = np.asarray(pc.fill_null(column, False).to_numpy(zero_copy_only=False), bool)
    return mask


def _in_groups(names: pa.Array, replaced: Ints, single: Ints, theirs: pa.Array) -> Mask:
    """Return which of these rows are in a group with one of the rows that have no match, or in one beside it."""
    group = _groups(names, np.append(single, replaced), theirs)
    known = {key for prefix in group[: len(single)] for key in (prefix, _around(prefix))} - {""}
    in_group = (prefix in known or _around(prefix) in known for prefix in group[len(single) :])
    return np.fromiter(in_group, bool, len(replaced))


def _around(prefix: str) -> str:
    """Return a name without its last component: `opt[0]` of `opt[0].mu`."""
    return "".join(COMPONENT.findall(prefix)[:-1])


def _groups(names: pa.Array, rows: Ints, theirs: pa.Array) -> list[str]:
    """Return for each of these rows the shortest beginning of its name that only names of these rows have.

    No name of the other program has it either. It is the whole name if there is none.
    """
    others = pc.take(names, arrow_array(np.delete(np.arange(len(names)), rows)))
    known = sorted({*others.to_pylist(), *theirs.to_pylist()})
    return [_shortest(name, known) for name in pc.take(names, arrow_array(rows)).to_pylist()]


def _shortest(name: str, known: list[str]) -> str:
    """Return the shortest beginning of a name, in whole components, that none of these names has."""
    end = 0
    for match in islice(COMPONENT.finditer(name), MAX_COMPONENTS):
        if match.start() != end:
            return name  # another form
        end = match.end()
        prefix = name[:end]
        if not any(_begins(prefix + after, known) for after in ("[", ".")) and not _is_in(prefix, known):
            return prefix
    return name


def _begins(prefix: str, names: list[str]) -> bool:
    at = bisect_left(names, prefix)
    return at < len(names) and names[at].startswith(prefix)


def _is_in(name: str, names: list[str]) -> bool:
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def _shapes_of_unnamed(p: Program, own: Arguments, rows: Ints, sizes: Ints) -> str:
    """Return the shapes of these arguments, the largest first, if none of them has a name: their numbers say less."""
    rows = rows[np.argsort(-sizes, kind="stable")]
    instructions = pc.cast(p.value_text("instruction", own.value[rows]), pa.string())
    unnamed = pc.match_substring_regex(pc.take(own.names, arrow_array(rows)), UNNAMED)
    if not _flags(pc.and_(unnamed, pc.match_substring_regex(instructions, UNNAMED_PARAMETER))).all():
        return ""
    shapes = pc.unique(pc.drop_null(pc.cast(pc.take(own.shapes, arrow_array(rows)), pa.string()))).to_pylist()
    return listed(list(dict.fromkeys(plain_shape(shape) for shape in shapes)))


def _largest_groups(names: pa.Array, rows: Ints, sizes: Ints, theirs: pa.Array) -> str:
    """Return what the names of these rows begin with, the largest first; the whole name of an argument alone."""
    groups = _groups(names, rows, theirs)
    numbers, total = Counter(groups), Counter[str]()
    whole = dict(zip(groups, pc.take(names, arrow_array(rows)).to_pylist(), strict=True))
    for group, n in zip(groups, sizes.tolist(), strict=True):
        total[group] += n
    ordered = sorted(total, key=lambda group: -total[group])
    return listed([group if numbers[group] > 1 else whole[group] for group in ordered[: MAX_NAMES + 1]])
