"""Find donated arrays that are in memory twice because the program selects between the old and the new one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ...formatting import file_line
from ..buffer_names import source_columns
from ..columns import Ints, Mask, encoded, flags_of, ints, take
from ..layout import DONATED
from ..op_names import END, matching
from ..origins import MAX_ROUNDS, uses_of
from ..program import Program, distinct_rows
from .intervention import Intervention, argument_names, largest_first, rescheduled, rescheduled_at_worst
from .what_if import Change, WhatIf, largest_groups

SELECT_LOWER, SELECT_UPPER = 0.75, 1.05
"""Multiples of the estimate that are bounds; docs/advice.md has the measurements."""

_CHOICE = rf"/select_n{END}"
_UPDATE = rf"/(?:scatter(?:-\w+)?|dynamic_update_slice){END}"
"""Op_names of operations that XLA performs in place if nothing reads the operand afterwards."""


def late_choices(w: WhatIf) -> Iterator[Intervention]:
    """Advise not to select between a donated argument and the array that replaces it.

    Both are in memory until the select. Without it, XLA updates the argument in place.
    """
    p = w.p
    result, parameter = _chosen(p)
    updated, chosen = _updated(w, result, parameter)
    if not len(updated):
        return
    number = ints(p.allocations, "parameter_number")[p.owner[parameter]]
    codes, names = encoded(pa.chunked_array([argument_names(w, parameter, number)]))
    for code in largest_groups(codes, p.extent[parameter]):
        rows = np.flatnonzero(codes == code)
        members = _with_overwritten(w, np.unique(updated[np.isin(chosen, p.instruction_row[result[rows]])]))
        if w.at_peak[members].any():
            yield _intervention(w, names[int(code)].as_py(), int(number[rows].min()), result[rows], members)


def _chosen(p: Program) -> tuple[Ints, Ints]:
    """Return the results of selects that read a donated argument and reuse its memory, and these arguments."""
    parameter = p.representative[p.owner]
    is_result = (p.category[p.owner] == DONATED) & (parameter >= 0) & (parameter != np.arange(len(p.owner)))
    result = np.flatnonzero(is_result & _is_named(p, np.arange(len(p.owner)), _CHOICE))
    value, user, _, _ = uses_of(p)
    result = result[_are_in(np.stack([p.instruction_row[result], parameter[result]]), np.stack([user, value]))]
    return result, parameter[result]


def _updated(w: WhatIf, result: Ints, parameter: Ints) -> tuple[Ints, Ints]:
    """Return the temporaries that hold these arguments after an update, and the selects that read them."""
    p, (value, user, _, _) = w.p, uses_of(w.p)
    read = np.flatnonzero((value >= 0) & np.isin(user, p.instruction_row[result]))
    read = read[w.in_arena[value[read]]]
    choice = np.stack([p.instruction_row[result], p.extent[parameter]])
    read = read[_are_in(np.stack([user[read], p.extent[value[read]]]), choice)]
    read = read[_is_named(p, value[read], _UPDATE)]
    return value[read], user[read]


def _with_overwritten(w: WhatIf, values: Ints) -> Ints:
    """Return these values and those that they overwrite, such as the copy of the argument."""
    p = w.p
    arena = np.flatnonzero(w.in_arena)
    ends = np.stack([p.owner[arena], p.offset[arena], p.extent[arena], w.end[arena]])
    found = values
    for _ in range(MAX_ROUNDS):
        starts = np.stack([p.owner[values], p.offset[values], p.extent[values], w.start[values]])
        values = np.setdiff1d(arena[_are_in(ends, starts)], found)
        if not len(values):
            break
        found = np.union1d(found, values)
    return found


def _last_written(w: WhatIf, values: Ints) -> Ints:
    """Return the last of these values in each place."""
    values = values[np.argsort(-w.start[values], kind="stable")]
    _, first = np.unique(distinct_rows(w.p.owner[values], w.p.offset[values]), return_index=True)
    return values[np.sort(first)]


def _are_in(pairs: Ints, others: Ints) -> Mask:
    """Return which of these columns are among the others."""
    row = distinct_rows(*np.concatenate([pairs, others], axis=1))
    found: Mask = np.isin(row[: pairs.shape[1]], row[pairs.shape[1] :])
    return found


def _is_named(p: Program, values: Ints, pattern: str) -> Mask:
    """Return whether the op_name of what defines each value matches."""
    codes, names = p.printed_op_names
    return flags_of(matching(names, pattern), take(codes, p.instruction_row[values]))


def _intervention(w: WhatIf, name: str, number: int, result: Ints, members: Ints) -> Intervention:
    is_member = np.zeros(len(w.p.owner), bool)
    is_member[members] = True
    change = Change(0, -w.only(is_member))
    estimate = w.saved(change)
    lower, upper = 0, int(SELECT_UPPER * estimate)
    is_tpu = w.p.tables.platform == "tpu"
    if is_tpu:  # other compilers may copy the array even so
        lower = int(SELECT_LOWER * estimate)
        lower -= rescheduled_at_worst(w, lower)
        upper += rescheduled(w, upper)
    source = source_columns(w.p, largest_first(w, result)[:1])
    file, line = (source[column][0].as_py() for column in ("source_file", "source_line"))
    place = f" ({file_line(file, line, folder=False)})" if file else ""
    text = (
        f"`select_n`{place} chooses between `{name}`, which is donated, and the array that replaces it: until then, "
        "both are in memory. Leave out the choice if nothing reads the elements that should not have been written, "
        "because a mask or an index excludes them."
    )
    if is_tpu:
        text += (
            " Otherwise, it may help to keep the old elements, old, x = jax.lax.optimization_barrier((x[i], x)), and "
            "to write them back in the end: x.at[i].set(jnp.where(ok, x[i], old))."
        )
    values = largest_first(w, _last_written(w, members[w.at_peak[members]]))
    return Intervention(
        "select", values, change, lower, upper, "likely" if is_tpu else "try", text, name, number,
        line=(file, line) if file else None,
    )  # fmt: skip
