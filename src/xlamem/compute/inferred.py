"""Infer numbers that other tools print but a dump does not contain, with formulas checked on real dumps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from ..parse.arrays import row_of
from .arenas import fragmentation
from .columns import Ints, Mask, encoded, flags_of, ints, take
from .in_use import Window, covered
from .layout import TEMP
from .memory_stats import LIBTPU_RELEASES, is_libtpu_0_0_51
from .op_names import matching
from .origins import has_opcode
from .program import Program
from .uses import use_steps
from .xla_peak import max_overlap

PRESET_COLORS = (1, 3)
"""VMEM and CMEM: the TPU compiler assigns their values before all others, and ends them with their last use."""
ARENA_ALIGNMENT = 1 << 14
"""Alignment in bytes to which the TPU compiler rounds arenas in HBM."""
ASYNC_CALL = r"^(?:async|call|custom-call)-(?:start|update)$"
"""Opcodes that start or go on with a computation on another processor."""


class Agreement(NamedTuple):
    """The number of real dumps on which a formula equals the number of the tool."""

    equal: int
    compared: int


XPROF = Agreement(546, 546)
PEAK_MEMORY = Agreement(470, 473)
TEMP_SIZE = dict(zip(LIBTPU_RELEASES, (Agreement(241, 283), Agreement(364, 364)), strict=True))
"""By releases, of which the first counts unassigned bytes twice."""


class Inferred(NamedTuple):
    """A field of JAX's memory analysis. `releases` names those that print it, if the dump does not tell the release."""

    field: str
    bytes: int
    agreement: Agreement
    releases: str | None = None


class SpaceBytes(NamedTuple):
    """A memory space and its bytes."""

    space: int
    bytes: int


def xprof_peak(p: Program) -> SpaceBytes | None:
    """Return the peak heap of XProf's memory viewer for memory space 0; None without live ranges or that space.

    It consists of parameters, constants and outputs in full, and of the maximum bytes that live temporaries cover.
    Tuple tables do not count, because the heap trace has no events for them.
    """
    main = np.flatnonzero(np.array([s.color for s in p.spaces]) == 0)[:1]
    if p.steps is None or not len(main):
        return None
    space = int(main[0])
    return SpaceBytes(space, int(p.fixed_bytes()[space]) + _max_union(p, _temporaries_without_tuples(p), space))


def inferred_analysis(p: Program) -> list[Inferred]:
    """Return the fields of JAX's memory analysis of a TPU program that can usually be inferred.

    temp_size_in_bytes is the size of the arenas in HBM, rounded up to ARENA_ALIGNMENT, or 0 if they hold only tuple
    tables and control-flow scalars (s32, pred). Until libtpu 0.0.50.1, their unassigned bytes are added.
    peak_memory_in_bytes is the size of parameters, constants and outputs in all spaces, plus the maximum bytes of live
    temporaries in the arena where these are greatest, without tuple tables and scratch memory of asynchronous calls. It
    is missing if that may be an arena in VMEM and uses are missing, or only some branches of a conditional have them. A
    dump without allocations has none.
    """
    module = p.tables["modules"].slice(0, 1).to_pylist()[0]
    if module["platform"] != "tpu" or not p.spaces:
        return []
    found = _temp_sizes(p, module["changelist"])
    temporaries = None if p.steps is None else _max_temporaries(p)
    if temporaries is not None:
        found.append(Inferred("peak_memory_in_bytes", int(p.fixed_bytes().sum()) + temporaries, PEAK_MEMORY))
    return found


def _temp_sizes(p: Program, changelist: int | None) -> list[Inferred]:
    """Return temp_size_in_bytes, once for each release that the dump may be of if these print different values."""
    aligned, unassigned = _arena_sizes(p)
    sizes = zip(TEMP_SIZE.items(), (aligned + unassigned, aligned), strict=True)
    found = [Inferred("temp_size_in_bytes", size, agreement, releases) for (releases, agreement), size in sizes]
    is_later = is_libtpu_0_0_51(changelist)
    if is_later is None and unassigned:
        return found
    return [found[bool(is_later)]._replace(releases=None)]


class _ArenaSizes(NamedTuple):
    """Bytes of the arenas in HBM, rounded up, and how many of them no value ever covers."""

    aligned: int
    unassigned: int


def _arena_sizes(p: Program) -> _ArenaSizes:
    is_hbm_arena = (ints(p.allocations, "color") == 0) & (p.category == TEMP)
    codes, shapes = encoded(p.tables["values"]["shape"])
    pattern = r"^(\(|(s32|pred)\[\])"
    is_control = pc.match_substring_regex(pc.cast(shapes, pa.string()), pattern).to_numpy(zero_copy_only=False)
    holds_data = is_hbm_arena[p.owner] & ~(is_control[codes] if len(is_control) else codes >= 0)
    if not holds_data.any():
        return _ArenaSizes(0, 0)
    arenas = fragmentation(p.tables)
    unassigned = int(ints(arenas, "unassigned")[ints(arenas, "color") == 0].sum())
    size = p.allocation_size[is_hbm_arena]
    aligned = -(-size // ARENA_ALIGNMENT) * ARENA_ALIGNMENT
    return _ArenaSizes(int(aligned.sum()), int((aligned - size).sum()) + unassigned)


def _max_temporaries(p: Program) -> int | None:
    """Return the maximum bytes of live temporaries in any one arena, without tuple tables; None if it is not known.

    They are the union of live ranges in most spaces. In those of PRESET_COLORS, values are live until their last use.
    """
    counted = _temporaries_without_tuples(p) & (p.occupied_ranges()[0] >= 0) & ~_is_async_context(p)
    is_preset = np.isin([s.color for s in p.spaces], PRESET_COLORS)
    most = 0
    for i in np.flatnonzero(~is_preset).tolist():
        arenas = covered(p, counted, window=Window(np.array([i]), None, p.steps or 1)).most
        most = max(most, int(arenas.max(initial=0)))
    rows = np.flatnonzero(counted & is_preset[p.space])
    lower, upper = (_max_sum(p, rows, end[rows]) for end in _last_uses(p))
    return max(most, upper) if max(most, lower) == max(most, upper) else None


def _max_sum(p: Program, values: Ints, end: Ints) -> int:
    """Return the maximum bytes in any one arena of values that are live until these steps, -1 for not at all."""
    live = end >= 0
    if not live.any():
        return 0
    values, end, start = values[live], end[live], p.ranges[0][values[live]]
    order = np.argsort(p.owner[values], kind="stable")
    arenas = np.split(order, np.flatnonzero(np.diff(p.owner[values[order]])) + 1)
    return max(max_overlap(start[r], end[r], p.size[values[r]])[1] for r in arenas)


def _last_uses(p: Program) -> tuple[Ints, Ints]:
    """Return lower and upper bounds of the step of the last use of each value in its live range, -1 for no use.

    They differ if it is a conditional, of which only some of the branches may use the value, or if its uses are not
    known. A loop uses a value when it begins, where the live range of the value ends, not at its own later step. Slices
    that a ConcatBitcast joins are not counted at its step: its result has the same bytes.
    """
    start, end = p.ranges
    value, step = use_steps(p)
    last = np.full(len(p.owner), -1, np.int64)
    is_later = step >= start[value]
    np.maximum.at(last, value[is_later], np.minimum(step, end[value])[is_later])
    codes, targets = p.texts("instructions", "custom_call_target")
    joins = flags_of(matching(targets, "^ConcatBitcast$"), take(codes, p.instruction_row))
    last[np.isin(last, start[joins & (start >= 0)])] -= 1
    is_conditional = has_opcode(p, p.instruction_row, "^conditional$") & (start >= 0)
    lower = np.where(np.isin(last, start[is_conditional]), start, last)
    files = p.tables["files"].select(["role", "complete"]).to_pylist()
    is_complete = all(file["complete"] for file in files if file["role"].startswith("buffer-assignment"))
    has_record = row_of(ints(p.tables["positions"], "value_id"), p.value_ids) >= 0
    is_known = pc.fill_null(p.tables["values"]["uses_known"], False).to_numpy() & has_record
    return lower, np.where(is_known & is_complete, last, end)


def _temporaries_without_tuples(p: Program) -> Mask:
    """Return which values are in temp allocations and are not tuple tables."""
    codes, types = encoded(p.tables["values"]["element_type"])
    counted: Mask = p.in_temp & (codes != pc.index(types, "tuple").as_py())
    return counted


def _is_async_context(p: Program) -> Mask:
    """Return which values are the scratch memory of asynchronous calls, such as gathers on a SparseCore.

    It is the third element of what they start with.
    """
    codes, indices = p.texts("values", "shape_index")
    return has_opcode(p, p.instruction_row, ASYNC_CALL) & flags_of(matching(indices, r"^\{2,"), codes)


def _max_union(p: Program, values: Mask, space: int) -> int:
    """Return the maximum bytes that these values cover in a space while they are live."""
    levels: Ints = covered(p, values, window=Window(np.array([space]), None, p.steps or 1)).levels
    return int(levels.max())
