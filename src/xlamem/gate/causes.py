"""Say why a program grew: from what a baseline file kept of it, or from both dumps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import prod
from typing import Any

from ..compare.context import are, listed
from ..compare.difference import Diff
from ..compare.groups import difference_groups
from ..compare.rows import parsed, shape_text
from ..compare.shape_edits import times
from ..compare.verdict import LINES, MAX_SHARE, signed
from ..dump import Dump
from ..formatting import file_line, plain_shape, size
from .entry import UNNAMED, Argument, Entry, Group, by_key, joined
from .finding import Change

MAX_CHANGES = 20
"""Maximum number of groups of buffers that are listed for a program."""
N_NAMED = 2
"""Number of groups, and of lines of a bill, that the sentence names."""
MIN_SHARE = 0.05
"""Least share of the largest change that the sentence names."""
MIN_RATIO = Fraction(1, 20)
"""Part by which arrays are larger or smaller, from which a text says how many times as large they are."""
ROUNDED = 0.01
"""A lower bound that is as close to the number as this is stated as the number."""
SMALL = 0.1
"""Share of a group of buffers that the baseline may have had without being mentioned."""
COUNTS_AS = {"donated": "parameter", "temp_in_output": "temp"}
"""Categories that count as another one, so that a donation that is lost does not hide what it belongs to."""
_OLD_NAME = r"(?:[Aa]rg_?|p|param|parameter)$"
"""What is left of the names of instructions that are parameters without their numbers."""
Groups = dict[tuple[str, str], Group]
"""Groups of buffers by their name and category."""
_OTHER = {"temp": "live_out", "live_out": "temp"}
"""Categories of what the program computes: a temporary that is returned now has not grown."""


# -- from a baseline file ------------------------------------------------------------------------


def changes_since(base: Entry, now: Entry) -> list[Change]:
    """Return the groups of buffers at the peak that changed since a baseline, largest change first."""
    before, after = (by_key([_comparable(g) for g in e.groups]) for e in (base, now))
    _join_unnamed(before, after)
    for name, category in [*before]:
        other = _OTHER.get(category, category)
        if (name, category) not in after and (name, other) in after and (name, other) not in before:
            before[name, other] = before.pop((name, category))  # the same buffers: only their category changed
    # What the baseline does not list has at most as many bytes there as the smallest group that it lists.
    unlisted = min(base.rest, *(g.bytes for g in base.groups)) if base.groups else base.rest
    found = [_change(before.get(key), group, unlisted) for key, group in after.items()]
    found += [_gone(group) for key, group in before.items() if key not in after]
    changed = [c for c in found if c.change and not (c.bytes_baseline is None and c.change < 0)]
    return sorted(changed, key=lambda c: (-abs(c.change), c.name, c.category or ""))


def _join_unnamed(before: Groups, after: Groups) -> None:
    """Join the arguments without a name again if the baseline has one group of them, as xlamem 0.2 wrote it."""
    unnamed = [key for key in after if key[0].startswith(UNNAMED)]
    if not unnamed or any(name.startswith(UNNAMED) for name, _ in before):
        return
    of_arguments = [key for key in before if key[1] == "parameter" and re.match(_OLD_NAME, key[0])]
    if of_arguments:
        old = max(of_arguments, key=lambda key: before[key].bytes)
        groups = [after.pop(key) for key in unnamed]
        after[old] = replace(reduce(lambda a, b: joined(a, b, old[0]), groups), name=old[0])


def _comparable(group: Group) -> Group:
    return replace(group, category=COUNTS_AS.get(group.category, group.category))


def _change(before: Group | None, after: Group, unlisted: int) -> Change:
    if before is None:
        return Change(
            "new", after.name, after.category, None if unlisted else 0, after.n, None if unlisted else 0, after.bytes,
            after.bytes - unlisted, after.shape, after.source_file, after.source_line,
        )  # fmt: skip
    change = after.bytes - before.bytes
    return Change(
        "larger" if change > 0 else "smaller", after.name, after.category, before.n, after.n, before.bytes, after.bytes,
        change, _shapes(before, after), after.source_file, after.source_line,
    )  # fmt: skip


def _gone(before: Group) -> Change:
    return Change(
        "gone", before.name, before.category, before.n, before.n, before.bytes, 0, -before.bytes, before.shape,
        before.source_file, before.source_line,
    )  # fmt: skip


def _shapes(before: Group, after: Group) -> str | None:
    """Return the shape of the largest buffer, and that in the baseline if it has as many dimensions."""
    a, b = before.shape, after.shape
    return f"{a} -> {b}" if a and b and a != b and a.count(",") == b.count(",") else b


def why_since(base: Entry, now: Entry, changes: Sequence[Change]) -> str:
    """Say what changed since a baseline: donations, the interface, buffers at the peak, lines of the bill."""
    clauses = [*_donations(base, now), *_interface(base, now), *_buffers(base, now, changes), *_bill(base, now)]
    return "; ".join(clauses)


def _donations(base: Entry, now: Entry) -> list[str]:
    still = {(a.name, a.shape) for a in now.donated}
    lost = [a for a in base.donated if (a.name, a.shape) in (now.arguments or ()) and (a.name, a.shape) not in still]
    is_cut = base.n_donated > len(base.donated)
    if lost:
        least = "at least " if is_cut else ""
        return [f"{least}{are(len(lost), 'argument')} no longer donated: {listed([_with_shape(a) for a in lost])}"]
    if is_cut and now.n_donated < base.n_donated:
        return [f"{are(now.n_donated, 'argument')} donated instead of {base.n_donated:,}"]
    return []


def _with_shape(a: Argument) -> str:
    """Return the name of an argument, with its shape if it is only a number."""
    return f"{a.name} of shape {a.shape}" if a.name.startswith("argument ") and a.shape else a.name


def _interface(base: Entry, now: Entry) -> list[str]:
    if None in (base.interface_fp, now.interface_fp) or base.interface_fp == now.interface_fp:
        return []
    return _resized(base, now) or ["arguments or outputs differ"]


def _resized(base: Entry, now: Entry) -> list[str]:
    """Say which arguments have another shape, of those that a baseline lists: donated ones, and some of the others."""
    before = {g.name: g.shape for g in base.groups if g.category == "parameter" and g.n == 1}
    before |= {a.name: a.shape for a in base.donated}
    after: dict[str, set[str | None]] = {}
    for name, shape in now.arguments or ():
        after.setdefault(name, set()).add(shape)
    pairs = {name: (parsed(a), parsed(next(iter(after[name])))) for name, a in before.items()
             if len(after.get(name, ())) == 1}  # fmt: skip
    changed = {name: (a, b) for name, (a, b) in pairs.items() if a and b and a.dimensions != b.dimensions}
    if not changed:
        return []
    names = sorted(changed, key=lambda name: (-max(prod(s.dimensions) for s in changed[name]), name))
    a, b = changed[names[0]]
    sizes = {(prod(a.dimensions), prod(b.dimensions), a.element_type == b.element_type) for a, b in changed.values()}
    ratios = {Fraction(x, y) if x and y and is_alike else None for x, y, is_alike in sizes}
    ratio = ratios.pop() if len(ratios) == 1 else None
    n = are(len(changed), "argument")
    if ratio is not None and abs(ratio - 1) >= MIN_RATIO:
        return [f"{n} {times(ratio)} as large: {listed(names)}"]
    shapes = f"{shape_text(a)} -> {shape_text(b)}"
    return [f"{n} of another shape: {listed([f'{names[0]} ({shapes})', *names[1:]])}"]


def _buffers(base: Entry, now: Entry, changes: Sequence[Change]) -> list[str]:
    """Describe the largest changes in the direction of that of the peak.

    If one of them is larger than that, the sum of the others follows.
    """
    if base.peak is None or now.peak is None or base.peak == now.peak:
        return []
    grew = now.peak > base.peak
    rows = [c for c in changes if (c.change > 0) is grew]
    named = [c for c in rows[:N_NAMED] if abs(c.change) >= MIN_SHARE * abs(rows[0].change)]
    change = now.peak - base.peak
    texts = [describe(c) for c in named]
    if named and abs(named[0].change) >= MAX_SHARE * abs(change) and not any(map(_is_bound, named)):
        texts.append(f"{signed(change - sum(c.change for c in named))}: all others together")
    return texts


def describe(c: Change) -> str:
    """Return a change of a group of buffers as a clause."""
    is_shown = c.shape and not c.shape.startswith("(") and not c.name.endswith(c.shape)
    shape = f" ({c.shape})" if is_shown else ""
    where, about = _place(c), signed(c.change)
    if _is_bound(c):
        before = f", at most {size(c.bytes - c.change)} before" if c.change < (1 - SMALL) * c.bytes else ""
        return f"{size(c.bytes)} at the peak now{before}: {_several(c.n)}{c.name}{shape}{where}"
    if c.n_baseline and c.n != c.n_baseline:
        return f"{about}: {c.name}{shape}: {_counts(c)}{where}"
    happened = _HAPPENED.get(c.cause) or f"{'are' if c.n > 1 else 'is'} {c.cause}"
    return f"{about}: {_several(c.n)}{c.name}{shape} {happened}{where}"


def _is_bound(c: Change) -> bool:
    """Return whether the change is only a lower bound, because the baseline does not list the buffers."""
    return c.bytes_baseline is None and c.change < (1 - ROUNDED) * c.bytes


def _several(n: int) -> str:
    return f"{n:,}× " if n > 1 else ""


def _counts(c: Change) -> str:
    """Return both numbers of buffers, and why the bytes change the other way if they do."""
    opposite = (c.n > (c.n_baseline or 0)) != (c.change > 0)
    size = f", on average {c.cause}" if opposite else ""
    return f"{c.n:,} instead of {c.n_baseline:,} at the peak{size}"


_HAPPENED = {"new": "at the peak now", "gone": "no longer at the peak"}
"""What a cause means for a group of buffers at the peak, if nothing else is known of them."""


def _place(of: Change | Group) -> str:
    """Return the source line as the end of a clause: `, train.py:41`."""
    where = file_line(of.source_file, of.source_line, folder=False)
    return f", {where}" if where else ""


def _bill(base: Entry, now: Entry) -> list[str]:
    """Describe the lines of the bill that changed most in the direction of device_total."""
    change = now.device_total - base.device_total
    lines: dict[str, int] = {}
    for entry, sign in ((now, 1), (base, -1)):
        for key, n in entry.bill.items():
            line = key.partition("/")[0]
            lines[line] = lines.get(line, 0) + sign * n
    moved = sorted(((n, line) for line, n in lines.items() if n * change > 0), key=lambda row: -abs(row[0]))
    texts = [f"{LINES.get(line, line)} {signed(n)}" for n, line in moved[:N_NAMED] if abs(n) >= MIN_SHARE * abs(change)]
    return [f"in the bill: {', '.join(texts)}"] if texts else []


# -- from both dumps -----------------------------------------------------------------------------


def compared(a: Dump, b: Dump) -> tuple[str, list[Change]]:
    """Return the verdict of `diff`, and the groups of buffers that changed."""
    from ..compare.difference import diff

    d = diff(a, b)
    return d.verdict.removesuffix("."), _groups(d)


def _groups(d: Diff) -> list[Change]:
    rows = difference_groups(d, ("buffer", "cause", "category")).slice(0, MAX_CHANGES).to_pylist()
    return [_of_group(row, "b" if row["bytes_b"] else "a") for row in rows]


def _of_group(row: dict[str, Any], side: str) -> Change:
    return Change(
        row["cause"], row["buffer"] or "unnamed", row["category"], None, row["n"], row["bytes_a"], row["bytes_b"],
        row["change"], plain_shape(row[f"shape_{side}"]) or None, row[f"source_file_{side}"],
        row[f"source_line_{side}"],
    )  # fmt: skip


# -- without a baseline --------------------------------------------------------------------------


def largest(entry: Entry) -> str:
    """Say what takes most at the peak."""
    texts = []
    for g in entry.groups[:N_NAMED]:
        texts.append(f"{size(g.bytes)}: {_several(g.n)}{g.name}{_place(g)}")
    return f"largest at the peak: {'; '.join(texts)}" if texts else ""


def source_of(entry: Entry | None, changes: Sequence[Change]) -> tuple[str | None, int | None]:
    """Return the file and line of the buffers that grew most, otherwise of the largest ones, that have a line."""
    grown: list[Change | Group] = [c for c in changes if c.change > 0 and c.cause != "gone"]
    rows = (*grown, *(entry.groups if entry else ()))
    return next(((r.source_file, r.source_line) for r in rows if r.source_file), (None, None))
