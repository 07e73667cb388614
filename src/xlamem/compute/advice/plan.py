"""Rank what can be done to make a program need less memory, with bounds of what each intervention saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from ... import schema
from ...dump import DumpLike
from ...errors import UsageError
from ..buffer_names import source_columns
from ..capacity import byte_count
from ..columns import Ints, computed_table, nullable, take
from ..devices import device as device_named
from ..layout import MAX_TOTAL_BYTES
from ..program import program
from .argument_types import narrower_arguments
from .attention import attention_by_parts
from .batches import smaller_batches
from .carried import carried_stacks
from .collectives import large_collectives
from .donations import undonated_arguments
from .element_types import narrower_types
from .gathered_batches import gathered_batches
from .intervention import MIN_SHARE, Intervention, Kind
from .late_choices import late_choices
from .layers import LayerActivations
from .layouts import shapes, small_slots
from .logits import chunked_losses
from .loop_inputs import sliced_inputs
from .loop_results import histories, reductions
from .rematerialization import chunks, offloads, recomputations
from .sample_gradients import gradients_of_samples
from .selections import selected_products
from .sharding import unsharded_arguments
from .table_gradients import gradients_of_tables
from .tuples import unread_elements
from .what_if import Change, WhatIf

TRY = "Try it, then compare `xlamem peak`."
"""What the text of an intervention ends with if the compiler decides how much it saves."""
MAY_COST = "It may also cost memory."
"""Precedes `TRY` if the lower bound is below 0."""
COSTLY = ("batch", "dtype")
"""Kinds of interventions that change what is computed, or how much at a time."""
ADVICE_KINDS: tuple[str, ...] = get_args(Kind)

_OF_BUFFERS: tuple[Callable[[WhatIf], Iterator[Intervention]], ...] = (
    undonated_arguments,
    late_choices,
    unsharded_arguments,
    narrower_arguments,
    shapes,
    small_slots,
    large_collectives,
    unread_elements,
)
_OF_ACTIVATIONS: tuple[Callable[[LayerActivations], Iterator[Intervention]], ...] = (
    recomputations,
    chunks,
    offloads,
    narrower_types,
    chunked_losses,
    attention_by_parts,
    reductions,
    histories,
    carried_stacks,
    sliced_inputs,
    selected_products,
    gradients_of_samples,
    gradients_of_tables,
    gathered_batches,
    smaller_batches,
)


def advise(dump: DumpLike, budget: int | str | None = None, *, device: str | None = None) -> pa.Table:
    """Return what can be done so that less memory must fit.

    Those that save most come first. What is only worth a try counts half, and so does a narrower element type, since it
    changes what the program computes.
    Each row names buffers and bounds, in bytes, of the change of `device_total`. A bound below 0 means that the
    intervention may cost memory. The bounds hold for one intervention at a time: two that concern the same buffers do
    not add up.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    budget
        Bytes that may be needed, or a size with a unit (``"14GiB"``). ``in_plan`` is true for a short list whose
        lower bounds reach it, or for the list that comes closest. Interventions on the same buffers are not combined.
    device
        Name of a device (``"v5e"``, ``"h100"``), whose memory is the budget.

    Returns
    -------
    pyarrow.Table
        Table ``advice``. Without live ranges, it is empty.

    Raises
    ------
    UsageError
        The budget has no unit or is negative, the device is unknown, or both are given.
    """
    return plan_advice(dump, budget, device)[0]


class Plan(NamedTuple):
    """How far a list of interventions gets, in bytes."""

    device_total: int
    """What must fit now."""
    budget: int
    saved: int
    """Lower bound of what the interventions of the plan save together."""
    n: int
    """Number of these interventions."""

    @property
    def is_reached(self) -> bool:
        return self.device_total - self.saved <= self.budget


def plan_advice(
    dump: DumpLike, budget: int | str | None = None, device: str | None = None
) -> tuple[pa.Table, Plan | None]:
    """Return the table of `advise`, and how far the plan gets; None without a budget or without live ranges."""
    limit = _limit(budget, device)
    p = program(dump)
    if p.steps is None or not len(p.owner):
        return schema.COMPUTED["advice"].empty, None
    w = WhatIf(p)
    found = p.once("advice", lambda: _ranked(w))
    if limit is None:
        return _table(w, found, None), None
    chosen = _chosen(w, found, w.total - limit)
    reached = saved_together(w, [found[c] for c in chosen])
    return _table(w, found, chosen), Plan(w.total, limit, reached, len(chosen))


def _limit(budget: int | str | None, device: str | None) -> int | None:
    if device is None:
        return None if budget is None else byte_count("budget", budget)
    if budget is not None:
        raise UsageError("a budget and a device exclude each other")
    return device_named(device).usable


def enough_alone(rows: list[dict[str, Any]], plan: Plan | None) -> list[dict[str, Any]]:
    """Return the rows of ``advice`` that may reach the budget alone, by their upper bounds, besides the plan.

    If the plan reaches it for certain, these are only rows that change nothing that is computed, where the plan does.
    """
    if plan is None or (not plan.n and plan.is_reached):
        return []
    needed = plan.device_total - plan.budget
    alone = [row for row in rows if not row["in_plan"] and row["upper"] >= needed]
    if not plan.is_reached:
        return alone
    is_costly = any(row["kind"] in COSTLY for row in rows if row["in_plan"])
    return [row for row in alone if row["kind"] not in COSTLY] if is_costly else []


def _ranked(w: WhatIf) -> list[Intervention]:
    activations = LayerActivations(w)
    found = chain(*(rule(w) for rule in _OF_BUFFERS), *(rule(activations) for rule in _OF_ACTIVATIONS))
    worth = [_limited(w, i) for i in found if i.upper >= max(MIN_SHARE * w.total, 1) and len(i.values)]
    return sorted(worth, key=_rank)


def _rank(i: Intervention) -> float:
    """Return what sorts those that save most first. A narrower type changes results, others may save nothing."""
    doubts = (i.kind == "dtype") + (i.confidence == "try")
    return -(max(i.lower, 0) + i.upper) / (1 << doubts)


def _limited(w: WhatIf, i: Intervention) -> Intervention:
    """Return an intervention that saves at most what must fit."""
    upper = min(i.upper, w.total)
    return replace(i, lower=min(i.lower, upper), upper=upper)


# -- the budget ----------------------------------------------------------------------------------


def _chosen(w: WhatIf, found: list[Intervention], needed: int) -> list[int]:
    """Return the interventions with the largest lower bounds that together save `needed` bytes, or else all of them.

    Those that change what is computed are left out if the others save enough. What several of them save together is
    estimated again. Of those on the same buffers, only the first counts.
    """
    certain = sorted((i for i in range(len(found)) if found[i].lower > 0), key=lambda i: -found[i].lower)
    free, saved = _first_ones(w, found, [i for i in certain if found[i].kind not in COSTLY], needed)
    return free if saved >= needed else _first_ones(w, found, certain, needed)[0]


def _first_ones(w: WhatIf, found: list[Intervention], order: list[int], needed: int) -> tuple[list[int], int]:
    """Return the first of these interventions that together save `needed` bytes, or else all, and what they save."""
    chosen: list[int] = []
    taken = np.zeros(len(w.p.owner), bool)
    together = _Together(w)
    for i in order:
        if together.saved >= needed:
            break
        if not taken[found[i].values].any():
            chosen.append(i)
            taken[found[i].values] = True
            together.add(found[i])
    return chosen, together.saved


def saved_together(w: WhatIf, chosen: list[Intervention]) -> int:
    """Return a lower bound of what these interventions save together."""
    together = _Together(w)
    for i in chosen:
        together.add(i)
    return together.saved


class _Together:
    """Interventions, with a lower bound of what they save together."""

    def __init__(self, w: WhatIf) -> None:
        self._w, self._change = w, Change(0, np.zeros(1, np.int64))
        self._n = self._alone = self._lower = 0

    def add(self, i: Intervention) -> None:
        self._n += 1
        self._change = Change(self._change.fixed + i.change.fixed, self._change.levels + i.change.levels)
        self._alone += self._w.saved(i.change)
        self._lower += i.lower

    @property
    def saved(self) -> int:
        return self._lower - max(0, self._alone - self._w.saved(self._change)) if self._n else 0


# -- the table -----------------------------------------------------------------------------------


def _table(w: WhatIf, found: list[Intervention], planned: list[int] | None) -> pa.Table:
    p, value = w.p, np.array([i.values[0] for i in found], np.int64)
    columns: dict[str, Any] = {name: [getattr(i, name) for i in found] for name in _FROM_INTERVENTION}
    columns["action"] = [_action(i) for i in found]
    columns["rank"] = np.arange(len(found))
    columns["names"] = [",".join(i.names) or None for i in found]
    columns["n_buffers"] = [len(i.values) for i in found]
    columns["bytes"] = [_bytes(w, i.values) for i in found]
    columns["value_id"] = nullable(take(p.value_ids, value))
    for name in ("instruction", "shape_index", "shape"):
        columns[name] = p.value_text(name, value)
    columns["allocation"] = p.allocation_ids[p.owner[value]]
    source = source_columns(p, value)
    places = zip(found, source["source_file"].to_pylist(), source["source_line"].to_pylist(), strict=True)
    lines = [i.line or (file, line) for i, file, line in places]
    columns |= {"source_file": [file for file, _ in lines], "source_line": [line for _, line in lines]}
    in_plan = [None if planned is None else i in planned for i in range(len(found))]
    columns["in_plan"] = pa.array(in_plan, pa.bool_())
    return computed_table("advice", {name: _column(name, values) for name, values in columns.items()})


def _action(i: Intervention) -> str:
    if i.confidence != "try":
        return i.action
    return f"{i.action} {MAY_COST} {TRY}" if i.lower < 0 else f"{i.action} {TRY}"


_FROM_INTERVENTION = ("kind", "lower", "upper", "confidence", "argument", "parameter", "scope", "function")


def _column(name: str, values: Any) -> Any:
    return pa.array(values, schema.COMPUTED["advice"][name].arrow.type) if isinstance(values, list) else values


def _bytes(w: WhatIf, values: Ints) -> int:
    return min(int(w.p.extent[values].sum(dtype=np.float64)), MAX_TOTAL_BYTES)
