"""A rule that finds lines that run more or fewer operations, such as those in a loop of Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from ..compute.columns import Mask, flags_of, take
from ..compute.op_names import matching
from .context import PRODUCT_NAME, Context, Edit, Names, listed
from .program_edits import by_pass_and_path, layers_changed, rematerialization
from .rows import replaced_dimensions
from .shape_edits import loops

LIBRARY_CALL = r"^custom-call$"
PRODUCT = r"^(?:convolution|dot|fft)$"
"""Products: XLA does not copy them into several fusions, as it does with what is cheap to compute."""
COPIED = r"\.remat"
"""The names of instructions that XLA computes a second time."""
MIN_DIFFERENCE, MIN_SHARE = 4, 0.2
"""Minimum difference of the numbers of products of a line, and its share of the larger one: XLA splits and merges few.
"""


def repeats(c: Context) -> Iterator[Edit]:
    """Find lines that compute more or fewer products than before, which explains temporaries that one side has only."""
    if not c.has_hlo or c.platforms_differ or any(layers_changed(c)) or any(loops(c)) or any(rematerialization(c)):
        return  # it follows from them
    a, b = (_products(*side) for side in zip(c.op_names, c.opcodes, c.instruction_names, strict=True))
    lines_a, lines_b = c.lines
    changes = {
        path: b[path] - a[path] for path in a.keys() & b.keys()
        if lines_a[path] == lines_b[path]
        and abs(b[path] - a[path]) >= max(MIN_DIFFERENCE, MIN_SHARE * max(a[path], b[path]))
    }  # fmt: skip
    total = sum(changes.values())
    changed = sorted((path for path, n in changes.items() if n * total > 0), key=lambda s: (-abs(changes[s]), s))
    if changed:
        numbers = by_pass_and_path(changed, a, b)
        texts = [f"{word}{path} {x:,} -> {y:,}" for (word, path), (x, y) in numbers.items()]
        text = f"the same lines run {'more' if total > 0 else 'fewer'} operations: {listed(texts)}"
        # A larger argument may be computed in more parts: its dimension explains what differs then.
        resized = any(replaced_dimensions(*shapes) for shapes in c.interface.shapes)
        claims = c.none if resized else c.rows.single & c.rows.temporary
        yield Edit("repetitions", text, claims, "names")


def _products(op_names: Names, opcodes: Names, instructions: Names) -> Counter[str]:
    """Return the number of products by path."""
    codes, paths = op_names.paths_and_calls
    path = take(codes, op_names.codes)
    is_product = _match(opcodes, PRODUCT) | _match(opcodes, LIBRARY_CALL) & _match(op_names, PRODUCT_NAME)
    rows = (path >= 0) & is_product & ~_match(instructions, COPIED)
    numbers = np.bincount(path[rows], minlength=len(paths)).tolist()
    counts: Counter[str] = Counter()
    for name, n in zip(paths, numbers, strict=True):
        counts[name] += n
    return +counts


def _match(names: Names, pattern: str) -> Mask:
    return flags_of(matching(names.texts, pattern), names.codes)
