"""Rank what can be done to make a program need less memory, with bounds of what each intervention saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import DumpLike
from .activations import Activations
from .capacity import byte_count
from .columns import Ints, computed_table, nullable, take
from .interventions import (
    Intervention,
    Kind,
    collectives,
    donations,
    shapes,
    small_slots,
    unread_elements,
)
from .layout import MAX_TOTAL_BYTES
from .program import program
from .rematerialization import chunks, narrower_types, offloads, recomputations, smaller_batches
from .what_if import Change, WhatIf

MIN_SHARE = 0.01
"""Minimum upper bound of an intervention, as a share of what must fit."""

ADVICE_KINDS: tuple[str, ...] = get_args(Kind)

_OF_BUFFERS: tuple[Callable[[WhatIf], Iterator[Intervention]], ...] = (
    donations,
    shapes,
    small_slots,
    collectives,
    unread_elements,
)
_OF_ACTIVATIONS: tuple[Callable[[Activations], Iterator[Intervention]], ...] = (
    recomputations,
    chunks,
    offloads,
    narrower_types,
    smaller_batches,
)


def advise(dump: DumpLike, budget: int | str | None = None) -> pa.Table:
    """Return what can be done so that less memory must fit, ranked by how much it saves.

    Each row names buffers and bounds, in bytes, of the change of `device_total`. A bound below 0 means that the
    intervention may cost memory. The bounds hold for one intervention at a time: two that concern the same buffers do
    not add up.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    budget
        Bytes that may be needed, or a size with a unit (``"14GiB"``). ``in_plan`` is true for the shortest list whose
        lower bounds reach it, or for the list that comes closest. Interventions on the same buffers are not combined.

    Returns
    -------
    pyarrow.Table
        Table ``advice``. Without live ranges, it is empty.

    Raises
    ------
    UsageError
        The budget has no unit, or is negative.
    """
    limit = None if budget is None else byte_count("budget", budget)
    p = program(dump)
    if p.steps is None or not len(p.owner):
        return schema.COMPUTED["advice"].empty
    w = WhatIf(p)
    found = _ranked(w)
    planned = None if limit is None else plan(w, found, w.total - limit)
    return _table(w, found, planned)


def _ranked(w: WhatIf) -> list[Intervention]:
    activations = Activations(w)
    found = [i for rule in _OF_BUFFERS for i in rule(w)]
    found += [i for activation_rule in _OF_ACTIVATIONS for i in activation_rule(activations)]
    found = [i for i in found if i.upper >= max(MIN_SHARE * w.total, 1) and len(i.values)]
    return sorted(found, key=lambda i: -(max(i.lower, 0) + i.upper))


# -- the budget ----------------------------------------------------------------------------------


def plan(w: WhatIf, found: list[Intervention], needed: int) -> list[int]:
    """Return the interventions with the largest lower bounds that together save `needed` bytes, or else all of them.

    What several of them save together is estimated again. Of those that concern the same buffers, only the first counts.
    """
    chosen: list[int] = []
    taken = np.zeros(len(w.p.owner), bool)
    for i in sorted((i for i in range(len(found)) if found[i].lower > 0), key=lambda i: -found[i].lower):
        if saved_together(w, [found[c] for c in chosen]) >= needed:
            break
        if not taken[found[i].values].any():
            chosen.append(i)
            taken[found[i].values] = True
    return chosen


def saved_together(w: WhatIf, chosen: list[Intervention]) -> int:
    """Return a lower bound of what these interventions save together."""
    if not chosen:
        return 0
    levels = np.sum([i.change.levels for i in chosen], axis=0)
    together = w.saved(Change(sum(i.change.fixed for i in chosen), levels))
    alone = sum(w.saved(i.change) for i in chosen)
    return min(sum(i.lower for i in chosen), sum(i.lower for i in chosen) - (alone - together))


# -- the table -----------------------------------------------------------------------------------


def _table(w: WhatIf, found: list[Intervention], planned: list[int] | None) -> pa.Table:
    p, value = w.p, np.array([i.values[0] for i in found], np.int64)
    columns: dict[str, Any] = {name: [getattr(i, name) for i in found] for name in _FROM_INTERVENTION}
    columns["rank"] = np.arange(len(found))
    columns["names"] = [",".join(i.names) or None for i in found]
    columns["n_buffers"] = [len(i.values) for i in found]
    columns["bytes"] = [_bytes(w, i.values) for i in found]
    columns["value_id"] = nullable(take(p.value_ids, value))
    for name in ("instruction", "shape_index", "shape"):
        columns[name] = p.value_text(name, value)
    columns["allocation"] = p.allocation_ids[p.owner[value]]
    source = p.source_columns(value)
    columns |= {name: source[name] for name in ("source_file", "source_line")}
    in_plan = [None if planned is None else i in planned for i in range(len(found))]
    columns["in_plan"] = pa.array(in_plan, pa.bool_())
    return computed_table("advice", {name: _column(name, values) for name, values in columns.items()})


_FROM_INTERVENTION = ("kind", "lower", "upper", "confidence", "argument", "parameter", "scope", "action")


def _column(name: str, values: Any) -> Any:
    return pa.array(values, schema.COMPUTED["advice"][name].arrow.type) if isinstance(values, list) else values


def _bytes(w: WhatIf, values: Ints) -> int:
    return min(int(w.p.extent[values].sum(dtype=np.float64)), MAX_TOTAL_BYTES)
