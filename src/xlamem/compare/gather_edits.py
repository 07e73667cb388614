"""A rule about arrays that an all-gather makes whole on each device, as after `jax.lax.with_sharding_constraint`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..compute.bills import DEVICE_TOTAL
from ..compute.columns import Ints, take
from ..compute.origins import has_opcode
from .context import Context, Edit, are, listed
from .gathers import Gather, gathers
from .rows import Shape, parsed, replaced_dimensions, shape_text
from .shape_edits import resharded

MIN_SHARE = 1 / 3
"""Minimum share of the bytes that differ which the gathered arrays must have."""
RESULT = r"^all-gather(?:-start|-done)?$"


def gathered(c: Context) -> Iterator[Edit]:
    """Find arrays that an all-gather makes whole on each device on one side only; the other one has only the parts."""
    if len(resharded(c)[0]) or c.devices[0] != c.devices[1]:
        return  # it follows from that
    size = np.abs(c.rows.change) * c.rows.is_in("account", (DEVICE_TOTAL,))
    sides = gathers(c)
    for side, causes in enumerate((("gone", "smaller"), ("new", "larger"))):
        theirs = c.dimensions[1 - side]
        single = [g for g in sides[side] if g.whole.dimensions not in theirs and g.part.dimensions in theirs]
        elements = {_number(gather.whole.dimensions): gather for gather in sorted(single, reverse=True)}
        elements.pop(-1, None)
        number = _elements(c, side, theirs)
        claims = c.rows.temporary & c.rows.is_in("cause", causes) & np.isin(number, [*elements])
        if claims.any() and size[claims].sum() >= MIN_SHARE * size.sum():
            largest = elements[int(number[int((size * claims).argmax())])]
            yield Edit("sharding", _text(largest, is_new="new" in causes), claims, "names")


def _text(gather: Gather, *, is_new: bool) -> str:
    over = "" if gather.devices == gather.all_devices else f" over {gather.devices:,} of {gather.all_devices:,} devices"
    part, whole = shape_text(gather.part), shape_text(gather.whole)
    if is_new:
        return f"{gather.path} is no longer sharded{over}: {part} -> {whole} on each device"
    return f"{gather.path} is sharded{over} now: {whole} -> {part} on each device"


def _elements(c: Context, side: int, theirs: set[tuple[int, ...]]) -> Ints:
    """Return the number of elements of each buffer of a side: -1 if the other program has one of these dimensions.

    What an all-gather makes may be reshaped, or have another type afterwards.
    """
    codes, texts = c.rows.text(f"shape_{'ab'[side]}")
    shapes = [parsed(text) for text in texts.to_pylist()]
    numbers = [_number(s.dimensions) if s and s.dimensions not in theirs else -1 for s in shapes]
    return take(np.array(numbers, np.int64), codes)


def _number(dimensions: tuple[int, ...]) -> int:
    """Return the number of elements; -1 if it exceeds 64 bits, as in damaged text."""
    number = math.prod(dimensions)
    return number if number < 1 << 63 else -1


def gathered_arguments(c: Context) -> Iterator[Edit]:
    """Find arguments that are gathered as a whole on one side only: the other one gathers them a layer at a time.

    Their shapes are the same in both programs. All-gathers that the compiler makes of them have no op_name.
    """
    if len(resharded(c)[0]) or c.devices[0] != c.devices[1]:
        return  # it follows from that
    size = np.abs(c.rows.change) * c.rows.is_in("account", (DEVICE_TOTAL,))
    codes, names = c.rows.text("op_name")
    for side, (p, single) in enumerate(((c.m.a, c.rows.only_in_a), (c.m.b, c.rows.only_in_b))):
        made = has_opcode(p, take(p.instruction_row, c.rows.value[side]), RESULT)
        shape_codes, texts = c.rows.text(f"shape_{'ab'[side]}")
        rows = np.flatnonzero(made & single & c.rows.temporary & (codes >= 0) & (shape_codes >= 0))
        found: dict[int, str] = {}
        for row in rows.tolist():
            name, shape = names[int(codes[row])].as_py(), parsed(texts[int(shape_codes[row])].as_py())
            is_single = shape is not None and shape.dimensions not in c.dimensions[1 - side]
            if shape and is_single and _is_whole(c.interface.unchanged.get(name), shape):
                found[row] = name
        claims = np.isin(np.arange(c.rows.n), [*found])
        if claims.any() and size[claims].sum() >= MIN_SHARE * size.sum():
            largest = list(dict.fromkeys(found[row] for row in sorted(found, key=lambda row: -int(size[row]))))
            how = "gathered as a whole on each device now" if side else "no longer gathered as a whole on each device"
            yield Edit("sharding", f"{are(len(largest), 'argument')} {how}: {listed(largest)}", claims, "names")


def _is_whole(part: Shape | None, whole: Shape) -> bool:
    """Return whether an array has one dimension of an argument several times."""
    replaced = replaced_dimensions(part, whole) if part and len(part.dimensions) == len(whole.dimensions) else set()
    return len(replaced) == 1 and all(y > x and y % x == 0 for x, y in replaced)
