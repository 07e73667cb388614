"""Select before a product what a program uses of its result, such as the logits of the last position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..columns import Ints, flags_of, take
from ..op_names import END, matching
from ..origins import uses_of
from .bounds import of_values, with_vmem
from .intervention import Intervention, largest_first
from .layers import LayerActivations
from .what_if import Change

SELECT_LOWER, SELECT_UPPER = 0.7, 1.1
"""Multiples of the estimate that are bounds."""
MIN_PRODUCT = 0.02
"""Minimum share of what must fit that such a product takes."""
MAX_SELECTED = 1 / 8
"""Maximum size of what is selected, as a share of the product."""
MAX_PRODUCTS = 16
"""Maximum number of products that are looked at, the largest first."""

_SELECTING = rf"/(?:gather|slice|dynamic_slice|squeeze){END}"


def selected_products(a: LayerActivations) -> Iterator[Intervention]:
    """Compute only what is selected of a product, if nothing else reads it. A loss uses all of it."""
    if a.is_training:
        return
    p, w = a.p, a.w
    codes, names = p.printed_op_names
    is_selecting = flags_of(matching(names, _SELECTING), codes)
    value, user, _, _ = uses_of(p)
    large = np.flatnonzero(w.in_arena & w.at_peak & a.is_product & (p.extent >= MIN_PRODUCT * w.total))
    large = largest_first(w, large)
    _, first = np.unique(take(codes, p.instruction_row[large]), return_index=True)  # XLA may compute a product again
    for product in large[np.sort(first)][:MAX_PRODUCTS].tolist():
        readers = np.unique(user[(value == product) & (user >= 0)])
        if len(readers) and is_selecting[readers].all():
            yield from _selection(a, product, np.unique(codes[readers]))


def _selection(a: LayerActivations, product: int, selecting: Ints) -> Iterator[Intervention]:
    """Return the intervention on a product of which operations with these codes of op_names select something."""
    p, w = a.p, a.w
    code = take(p.printed_op_names[0], p.instruction_row)
    is_selected, is_small = np.isin(code, selecting), a.elements <= MAX_SELECTED * a.elements[product]
    small = np.flatnonzero(is_selected & is_small & (a.elements > 0))
    # Many slices may use all of it, such as those of heads.
    if not 0 < a.elements[small].sum() <= MAX_SELECTED * a.elements[product]:
        return
    # XLA may select in steps.
    alike = (code == code[product]) & (a.elements == a.elements[product])
    members = w.in_arena & (alike | (is_selected & ~is_small))
    change = Change(0, -w.only(a.with_slot_mates(members)))
    estimate = w.saved(change)
    shapes = p.value_text("shape", np.array([product, small[np.argmax(p.extent[small])]])).to_pylist()
    whole, part = (text.partition("{")[0] for text in shapes)
    text = (
        f"The program only uses parts of {whole}, such as {part}. Select them from the factors of the product, such as "
        "the last position of each sequence, and compute only the product of these."
    )
    bounds = int(SELECT_LOWER * estimate), with_vmem(w, int(SELECT_UPPER * estimate) + w.lost)
    yield of_values(a, "reduce", np.flatnonzero(members & w.at_peak), change, bounds, text)
