"""Find gradients of tables that have all rows, although a step reads few of them, as those of embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..columns import Ints, Mask, flags_of, ints
from ..layout import DONATED, MAX_TOTAL_BYTES, PARAMETER
from ..op_names import END, matching
from ..origins import uses_of
from ..program import distinct_rows
from .activations import BACKWARD, FORWARD
from .bounds import of_values, with_vmem
from .intervention import UNNAMED, Intervention, argument_names, largest_first
from .layers import LayerActivations
from .what_if import Change

TABLES_UPPER = 1.1
"""Multiple of what is saved at best that is the upper bound; docs/advice.md has the measurements."""
MAX_ROWS = 1 / 8
"""Maximum number of rows that a step reads, as a share of those of the table."""

_SCATTERED = rf"/scatter[-_]add{END}"


def gradients_of_tables(a: LayerActivations) -> Iterator[Intervention]:
    """Differentiate with respect to the rows that a step reads, and update only these."""
    scattered = flags_of(matching(a.op_names, _SCATTERED), a.op_codes) & (a.phase == BACKWARD)
    gradients = np.flatnonzero(scattered & a.is_like_state & a.w.in_arena & (a.dimensions[:, 1] > 0))
    if a.is_tensorflow or not len(gradients):
        return
    table = distinct_rows(*np.sort(a.dimensions, axis=1).T)
    rows = _rows_added(a, gradients)
    are_few = (rows > 0) & (rows <= MAX_ROWS * a.dimensions[gradients, 0])
    # A product, such as that of logits, may also be the gradient of a table. That has all rows.
    others = table[a.is_product & (a.phase == BACKWARD)]
    tables = np.setdiff1d(table[gradients[are_few]], np.union1d(others, table[gradients[(rows > 0) & ~are_few]]))
    of_tables = np.isin(table[gradients], tables)
    if of_tables.any():
        alike, at_best = np.isin(table, tables), np.isin(table, table[gradients])
        yield _of_rows(a, largest_first(a.w, gradients[of_tables]), alike, at_best, int(rows[of_tables].max()))


def _rows_added(a: LayerActivations, gradients: Ints) -> Ints:
    """Return the number of rows that are added up in each of these gradients; 0 for zeros, and for copies of another.

    These are in an operand, which is smaller than the gradient.
    """
    value, user, _, _ = uses_of(a.p)
    row_size = a.elements[gradients] // np.maximum(a.dimensions[gradients, 0], 1)
    found = np.zeros(len(gradients), np.int64)
    for i, gradient in enumerate(gradients.tolist()):
        operands = value[(user == a.p.instruction_row[gradient]) & (value >= 0)]
        operands = operands[a.elements[operands] < a.elements[gradient]]
        found[i] = int(a.elements[operands].max(initial=0)) // int(row_size[i])
    return found


def _of_rows(a: LayerActivations, gradients: Ints, alike: Mask, at_best: Mask, rows: int) -> Intervention:
    """Return the intervention on gradients of tables; values that are `alike` have the dimensions of one.

    `at_best` are those with the dimensions of any table, because all tables may get such an update.
    """
    p, w = a.p, a.w
    change = Change(0, -a.only_in_slots(gradients))
    # Copies, and what the program computes from the gradients, have all rows, too.
    best = w.only(a.with_slot_mates(w.in_arena & at_best & (a.phase != FORWARD)))
    upper = with_vmem(w, int(TABLES_UPPER * w.saved(Change(0, -best)))) + w.lost_by(best)
    # XLA may have to copy the tables that are updated.
    lower = -min(int(p.extent[gradients].sum(dtype=np.float64)), MAX_TOTAL_BYTES)
    shape = p.value_text("shape", gradients[:1])[0].as_py().partition("{")[0]
    text = (
        f"Gradients such as {shape} have all rows of a table, of which a step reads at most {rows:,}. Differentiate "
        "with respect to these: read rows = table[ids] outside of the function that jax.grad gets, and update them "
        "by table.at[ids].add(...). Rows that are not read keep their momentum then, and do not decay."
    )
    found = of_values(a, "sparse", gradients, change, (lower, min(upper, w.arena_bytes)), text)
    return replace(found, argument=_argument(a, alike))


def _argument(a: LayerActivations, alike: Mask) -> str | None:
    """Return the name of the argument that has the tables, if it is the only one with these dimensions."""
    p = a.p
    arguments = a.w.in_memory & np.isin(p.category, (PARAMETER, DONATED)) & (p.representative >= 0)
    arguments[arguments] = alike[p.representative[arguments]]
    number = ints(p.allocations, "parameter_number")[arguments]
    names = set(argument_names(a.w, p.representative[arguments], number).to_pylist())
    return names.pop() if len(names) == 1 and UNNAMED not in "".join(names) else None
