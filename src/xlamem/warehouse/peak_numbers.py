"""Compute the numbers of `peaks` in a dataset and the causes of their differences, for one or several dumps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import kernels as pc
from .. import schema
from ..compute.causes import DISAGREE, POINTERS, Cause, space_causes, total_causes, xla_causes
from ..compute.columns import Ints, Mask, ints
from ..compute.layout import Layout
from ..compute.peaks import GroupPeaks, group_peaks, peak_tables
from .offsets import Offsets

SPACE_NUMBERS = {
    "allocated": ("allocated", None),
    "reserved": ("reserved", None),
    "peak": ("peak", "first_step"),
    "half_open": ("half_open_peak", None),
    "live": ("live_peak", "live_step"),
    "fixed": ("fixed", None),
    "slack": ("slack", None),
}
"""Numbers of a memory space: their column in the table ``peaks`` of a dump, and the column with their step."""
TIMED = {"peak", "half_open", "live", "slack"}
"""Numbers that a dump without live ranges does not have."""
MODULE_NUMBERS = {"xla_total": "total_bytes", "xla_printed": "printed_peak_bytes"}
"""Numbers that XLA prints: column of `modules`."""


@dataclass(frozen=True)
class Causes:
    """Causes of the differences between the numbers of dumps and their peaks, as far as XLA's output is not needed."""

    peaks: Ints | None = None
    """Combined peak of all spaces, by dump; None without live ranges."""
    spaces: list[pa.Table] = field(default_factory=list)
    """Rows of `explain_causes` that are about single spaces."""
    totals: dict[str, list[Cause]] = field(default_factory=dict)
    """Causes of MODULE_NUMBERS, by dump."""

    def table(self, modules: pa.Table) -> pa.Table:
        """Return the rows of `explain_causes`, including the remainder of each number printed in `modules`."""
        empty = schema.DERIVED["explain_causes"].warehouse.empty_table()
        rows = [empty.add_column(0, "dump", pa.array([], pa.int64())), *self.spaces]
        if self.peaks is None:
            return rows[0]
        keys = _null_space_keys(np.arange(len(self.peaks)))
        weighs_tuples = pc.fill_null(pc.match_substring_regex(modules["features"], r"\bpeak_a\b"), False).to_numpy()
        for definition, column in MODULE_NUMBERS.items():
            printed, causes = ints(modules, column), self.totals[definition]
            remainder = printed - self.peaks - np.sum([cause.bytes for cause in causes], axis=0)
            is_pointers = weighs_tuples & (definition == "xla_printed")
            remainders = (
                Cause(POINTERS, np.where(is_pointers, remainder, 0)),
                Cause(DISAGREE, np.where(is_pointers, 0, remainder)),
            )
            for cause, size in (*causes, *remainders):
                rows.append(_cause_rows(definition, cause, keys, np.where(printed >= 0, size, 0)))
        return pa.concat_tables(rows)


class PeakNumbers(NamedTuple):
    """Rows of `peaks`, by dump, and their causes."""

    numbers: pa.Table
    causes: Causes


def peak_numbers(p: Layout, offsets: Offsets, modules: pa.Table) -> PeakNumbers:
    """Return the numbers of each space and of each dump, and the causes of their differences from the peaks."""
    peaks, _ = peak_tables(p, 0)
    spaces = offsets.split(peaks.append_column("fixed", pa.array(p.fixed_bytes())))
    numbers = [
        _number_rows(definition, _space_keys(spaces), spaces[column], spaces[step] if step else None)
        for definition, (column, step) in SPACE_NUMBERS.items()
        if p.steps is not None or definition not in TIMED
    ]
    if p.steps is None:
        return PeakNumbers(pa.concat_tables(numbers), Causes())
    dump = offsets.local_page(ints(peaks, "page")).dump
    combined = group_peaks(p, dump, modules.num_rows)
    keys = _null_space_keys(np.arange(modules.num_rows))
    for definition, found in (("peak_together", combined), ("device_peak", device_peaks(p, dump, modules))):
        numbers.append(_number_rows(definition, keys, pa.array(found.bytes), pa.array(found.step)))
    printed_step = ints(modules, "printed_peak_time")
    totals = {
        "xla_total": list(total_causes(peaks, dump, combined.bytes)),
        "xla_printed": list(xla_causes(p, dump, combined.bytes, printed_step)),
    }
    return PeakNumbers(pa.concat_tables(numbers), Causes(combined.bytes, _space_cause_rows(p, peaks, offsets), totals))


def device_peaks(p: Layout, dump: Ints, modules: pa.Table) -> GroupPeaks:
    """Return the combined peak of the spaces in `device_total` of each dump. `dump` is the dump of each space."""
    return p.once("device peaks", lambda: _device_peaks(p, dump, modules))


def _device_peaks(p: Layout, dump: Ints, modules: pa.Table) -> GroupPeaks:
    n = modules.num_rows
    step, size = group_peaks(p, np.where(in_device_memory(p, dump, modules), dump, n), n + 1)
    return GroupPeaks(step[:n], size[:n])


def in_device_memory(p: Layout, dump: Ints, modules: pa.Table) -> Mask:
    """Return which spaces are in the main memory of the device, given the dump of each."""
    platforms = modules["platform"].to_pylist()
    spaces = zip(p.spaces, dump.tolist(), strict=True)
    return np.array([schema.in_device_memory(platforms[d], s.color) for s, d in spaces], bool)


def _space_cause_rows(p: Layout, peaks: pa.Table, offsets: Offsets) -> list[pa.Table]:
    rows = []
    for definition, cause, size in space_causes(p, peaks):
        columns = peaks.select(["memory_space", "color", "page"]).append_column("bytes", pa.array(size))
        spaces = offsets.split(columns)
        rows.append(_cause_rows(definition, cause, _space_keys(spaces), ints(spaces, "bytes")))
    return rows


def module_numbers(modules: pa.Table, device_totals: pa.Array) -> pa.Table:
    """Return the rows of `peaks` that concern all spaces together and do not require live ranges."""
    keys = _null_space_keys(np.arange(modules.num_rows))
    rows = [
        _number_rows("device_total", keys, device_totals),
        _number_rows("xla_total", keys, modules["total_bytes"]),
        _number_rows("xla_printed", keys, modules["printed_peak_bytes"], modules["printed_peak_time"]),
    ]
    return pa.concat_tables([pc.filter(table, pc.is_valid(table["bytes"])) for table in rows])


def _number_rows(definition: str, keys: dict[str, Any], size: Any, time: Any = None) -> pa.Table:
    n = len(size)
    names = {"definition": pa.array([definition] * n, pa.string())}
    return pa.table(keys | names | {"bytes": size, "time": pa.nulls(n, pa.int64()) if time is None else time})


def _cause_rows(definition: str, cause: str, keys: dict[str, Any], size: Ints) -> pa.Table:
    """Return the rows of `explain_causes` for one cause of one number, omitting those of 0 bytes."""
    n = len(size)
    columns = {"dump": keys["dump"], "definition": pa.array([definition] * n, pa.string())} | keys
    columns |= {"cause": pa.array([cause] * n, pa.string()), "bytes": size}
    return pc.filter(pa.table(columns), pa.array(size != 0))


def _space_keys(spaces: pa.Table) -> dict[str, Any]:
    columns = {c: spaces[c] for c in ("dump", "memory_space", "color", "page")}
    return columns | {"memory_space": pc.cast(spaces["memory_space"], pa.string())}


def _null_space_keys(dumps: Ints) -> dict[str, Any]:
    nulls = {"memory_space": pa.string(), "color": pa.int64(), "page": pa.int64()}
    return {"dump": pa.array(dumps)} | {name: pa.nulls(len(dumps), kind) for name, kind in nulls.items()}
