"""Infer numbers that other tools print but a dump does not contain, with formulas checked on real dumps."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .arenas import fragmentation
from .columns import Ints, Mask, encoded, ints
from .in_use import Window, covered
from .layout import TEMP
from .program import Program
from .xla_peak import max_overlap

ARENA_ALIGNMENT = 1 << 14
"""Alignment in bytes to which the TPU compiler rounds arenas in HBM."""


class Agreement(NamedTuple):
    """The number of real dumps on which a formula equals the number of the tool."""

    equal: int
    compared: int


XPROF = Agreement(546, 546)
PEAK_MEMORY = Agreement(213, 239)
TEMP_SIZE = {"libtpu 0.0.50.1 and before": Agreement(230, 262), "libtpu 0.0.51 and later": Agreement(44, 44)}
"""By releases, of which the first counts unassigned bytes twice."""
LIBTPU_0_0_51, LIBTPU_0_0_50_1 = 1003875606, 1004524046
"""Changelists of the first release that counts unassigned bytes once, and of a patch of the one before."""


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
    temporaries in the space where these are greatest: their union in HBM and their sum elsewhere, without tuple tables.
    A dump without allocations has none.
    """
    module = p.tables["modules"].slice(0, 1).to_pylist()[0]
    if module["platform"] != "tpu" or not p.spaces:
        return []
    found = _temp_sizes(p, module["changelist"])
    if p.steps is not None:
        size = int(p.fixed_bytes().sum()) + _max_temporaries(p)
        found.append(Inferred("peak_memory_in_bytes", size, PEAK_MEMORY))
    return found


def _temp_sizes(p: Program, changelist: int | None) -> list[Inferred]:
    """Return temp_size_in_bytes, once for each release that the dump may be of if these print different values."""
    aligned, unassigned = _arena_sizes(p)
    sizes = zip(TEMP_SIZE.items(), (aligned + unassigned, aligned), strict=True)
    found = [Inferred("temp_size_in_bytes", size, agreement, releases) for (releases, agreement), size in sizes]
    if changelist is None and unassigned:
        return found
    is_later = changelist is not None and changelist >= LIBTPU_0_0_51 and changelist != LIBTPU_0_0_50_1
    return [found[is_later]._replace(releases=None)]


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


def _max_temporaries(p: Program) -> int:
    """Return the maximum bytes of live temporaries in any one space."""
    start, end = p.occupied_ranges()
    counted, most = _temporaries_without_tuples(p) & (start >= 0), 0
    for i, space in enumerate(p.spaces):
        rows = np.flatnonzero(counted & (p.space == i))
        if space.color == 0:
            most = max(most, _max_union(p, counted, i))
        else:
            most = max(most, max_overlap(start[rows], end[rows], p.size[rows])[1])
    return most


def _temporaries_without_tuples(p: Program) -> Mask:
    """Return which values are in temp allocations and are not tuple tables."""
    codes, types = encoded(p.tables["values"]["element_type"])
    counted: Mask = p.in_temp & (codes != pc.index(types, "tuple").as_py())
    return counted


def _max_union(p: Program, values: Mask, space: int) -> int:
    """Return the maximum bytes that these values cover in a space while they are live."""
    levels: Ints = covered(p, values, window=Window(np.array([space]), None, p.steps or 1)).levels
    return int(levels.max())
