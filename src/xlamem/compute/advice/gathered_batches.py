"""Find arguments that are sharded along the dimension that a loop iterates over, so that each device computes all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ... import kernels as pc
from ..buffer_names import trip_counts, trip_counts_of
from ..columns import Ints, flags_of, ints, take_text, texts_of
from ..layout import PARAMETER
from ..op_names import matching
from ..origins import has_opcode, origins, uses_of
from ..replica_groups import replica_groups
from .batches import are_indices, depend_on_batch, lower_if_kept
from .bounds import with_vmem
from .intervention import Confidence, Intervention, argument_names, largest_first, only_line, rescheduled_at_worst
from .layers import LayerActivations
from .what_if import Change

GATHERED_LOWER, GATHERED_UPPER = 0.6, 1.25
"""Multiples of the estimates that are bounds; docs/advice.md has the measurements."""
MAX_GATHERS = 1 << 6
"""Maximum number of gathered arguments that are compared with loops, the largest first."""

_BODY = re.compile(r"(.*\bwhile)/body/")
_DIFFERENTIATED = r"\b(?:jvp|transpose)\("
_FIRST = re.compile(r"\bdimensions=\{0\}")
_GROUPS = r"(?P<groups>\breplica_groups=(?:\S+ \{[^}]*\}|[^ ]*))"
_EXCHANGE = r"^(?:all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute|ragged-all-to-all)(?:-start)?$"


class _Gather(NamedTuple):
    """An argument whose iterations, which are sharded, are gathered on each device."""

    value: int
    loop: str
    groups: str
    """The groups of devices, as printed."""
    n_devices: int
    """The number of devices of a group."""
    iterations: int
    samples: int


def gathered_batches(a: LayerActivations) -> Iterator[Intervention]:
    """Shard the samples of each iteration of a loop instead of the iterations, which devices gather."""
    found: dict[tuple[str | int, ...], list[_Gather]] = {}
    for gather in _gathers(a):
        found.setdefault(gather[1:], []).append(gather)
    for gathers in found.values():
        yield _with_samples_sharded(a, gathers)


def _gathers(a: LayerActivations) -> Iterator[_Gather]:
    p, argument = a.p, origins(a.p).argument
    is_gather = has_opcode(p, p.instruction_row, "^all-gather") & (argument >= 0) & (a.dimensions[:, 1] > 1)
    values = np.flatnonzero(is_gather & np.isin(a.dimensions[:, 0], [n for n in trip_counts_of(p) if n > 1]))
    values = values[~a.is_state[p.representative[argument[values]]]]
    values = largest_first(a.w, values)[:MAX_GATHERS]
    attributes = take_text(p.tables["instructions"]["attributes"], p.instruction_row[values]).to_pylist()
    for value, text, is_index in zip(values.tolist(), attributes, are_indices(a, values).tolist(), strict=True):
        groups, printed = replica_groups(text or ""), re.search(_GROUPS, text or "")
        n, samples = a.dimensions[value, :2].tolist()
        if not groups or not printed or groups.size < 2 or n % groups.size or samples % groups.size:
            continue
        loop = _loop_that_reads(a, value)
        if _FIRST.search(text) and (is_index or _accumulates_gradients(a, loop)):
            yield _Gather(value, loop, printed[0], groups.size, n, samples)


def _loop_that_reads(a: LayerActivations, value: int) -> str:
    """Return the op_name of the innermost loop in which something reads a gathered value, empty if it is not known.

    If it is gathered before the loop, it may have the name of the slice that is read.
    """
    read, user, _, _ = uses_of(a.p)
    rows = np.unique([a.p.instruction_row[value], *user[(read == value) & (user >= 0)]])
    bodies = (_BODY.match(name) for name in texts_of(a.p.printed_op_names, rows).to_pylist() if name)
    return next((body[1] for body in bodies if body), "")


def _accumulates_gradients(a: LayerActivations, loop: str) -> bool:
    """Return whether each iteration of a loop computes gradients.

    A loop over layers is itself a part of what is differentiated, or of a model that is not trained.
    """
    names = a.p.printed_op_names[1]
    is_outer = bool(loop) and not re.search(_DIFFERENTIATED, loop)
    return is_outer and bool(matching(names, rf"^{re.escape(loop)}/body/.*{_DIFFERENTIATED}").any())


def _with_samples_sharded(a: LayerActivations, gathers: list[_Gather]) -> Intervention:
    p, w, (value, _, _, n_devices, n, samples) = a.p, a.w, gathers[0]
    values = np.array([g.value for g in gathers])
    smaller = w.in_arena & depend_on_batch(a, samples)
    smaller[values] = w.in_arena[values]
    change = Change(0, _shrunk(w.only(smaller), n_devices))
    # What has the samples elsewhere may have another dimension of that size.
    leading = smaller & (a.dimensions[:, :2] == samples).any(axis=1)
    fills_tiles = (a.dimensions[:, :2] // n_devices % a.tiles[:, :2] == 0).all(axis=1)
    certain = w.saved(Change(0, _shrunk(w.only(leading & fills_tiles), n_devices)))
    lower = 0
    if not _exchanges_more(a, gathers) and not _is_ambiguous(a, gathers):
        lower = lower_if_kept(a, smaller, change, int(GATHERED_LOWER * certain))
        lower -= rescheduled_at_worst(w, lower) if p.tables.platform == "tpu" else 0
    others = w.in_arena & ~a.is_like_state if a.is_training else smaller
    most = max(w.saved(Change(0, _shrunk(w.only(some), n_devices))) for some in (smaller, others))
    rows = np.flatnonzero(smaller & w.at_peak)
    upper = int(GATHERED_UPPER * with_vmem(w, most + w.lost, rows))
    argument = origins(p).argument[value]
    entry, number = p.representative[[argument]], ints(p.allocations, "parameter_number")[[argument]]
    name = argument_names(w, entry, number)[0].as_py()
    text = (
        f"A loop iterates over the dimension of {n:,} along which `{name}` is sharded: {n_devices:,} devices gather "
        f"it, and each computes all {samples:,} samples of an iteration. Shard these instead, so that each computes "
        f"{samples // n_devices:,}: reshape to (-1, {n}, ...) instead of ({n}, -1, ...) and swap these two dimensions, "
        "or use jax.lax.with_sharding_constraint."
    )
    order = np.concatenate([values, largest_first(w, np.setdiff1d(rows, values))])
    confidence: Confidence = "likely" if lower > 0 else "try"
    bounds = max(lower, 0), min(upper, w.arena_bytes)
    return Intervention(
        "shard", order, change, *bounds, confidence, text, name, int(number[0]), line=_line_of(a, gathers[0])
    )


def _shrunk(only: Ints, n: int) -> Ints:
    """Return the change of these bytes if a part of n is left of them."""
    change: Ints = only // n - only
    return change


def _is_ambiguous(a: LayerActivations, gathers: list[_Gather]) -> bool:
    """Return whether weights have as many rows or columns as there are samples, or the loop has as many iterations."""
    p, (_, _, _, _, n, samples) = a.p, gathers[0]
    is_weight = (p.category == PARAMETER)[p.owner]
    is_weight[p.representative[origins(p).argument[[g.value for g in gathers]]]] = False
    of_weights = np.append(a.dimensions[is_weight & ~a.is_state, 1:], a.dimensions[a.is_state])
    return samples == n or bool((of_weights == samples).any())


def _exchanges_more(a: LayerActivations, gathers: list[_Gather]) -> bool:
    """Return whether these devices exchange other arrays, so that each computes a part of something else."""
    p, (_, _, same, n_devices, _, _) = a.p, gathers[0]
    values = np.flatnonzero(has_opcode(p, p.instruction_row, _EXCHANGE) & (a.dimensions[:, 0] > 0))
    values = np.setdiff1d(values, [g.value for g in gathers])
    attributes = take_text(p.tables["instructions"]["attributes"], p.instruction_row[values])
    printed = pc.struct_field(pc.extract_regex(pc.cast(attributes, pa.string()), _GROUPS), "groups")
    others = [text for text in pc.unique(printed).to_pylist() if text]
    # Axes are numbered for each instruction, so that the same devices may be printed in several ways.
    return same in others or any(replica_groups(text) == (n_devices, n_devices) for text in others)


def _line_of(a: LayerActivations, gather: _Gather) -> tuple[str, int] | None:
    """Return the file and line of the loop: if its name is not known, of the only one with as many iterations.

    The loops over layers in it may have as many.
    """
    codes, names = a.p.printed_op_names
    pattern = f"^{re.escape(gather.loop)}$"
    is_named = matching(names, pattern) if gather.loop else ~matching(names, _DIFFERENTIATED)
    is_loop = flags_of(is_named, codes) & (trip_counts(a.p) == gather.iterations)
    rows = np.flatnonzero(is_loop & has_opcode(a.p, np.arange(len(codes)), "^while$"))
    return only_line(a.p, rows)
