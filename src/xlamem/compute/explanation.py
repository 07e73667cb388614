"""Compare the numbers that other tools print for a program with its peak, and explain the differences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import schema
from ..dump import DumpLike
from .bills import unused_bytes
from .causes import DISAGREE, POINTERS, Cause, space_causes, total_causes, xla_causes
from .columns import Ints, computed_table
from .in_use import occupied_in, windows
from .inferred import XPROF, Agreement, inferred_analysis, xprof_peak
from .layout import Space
from .memory_stats import FIELDS, memory_analysis
from .peaks import GroupPeaks, group_peaks, peak_tables
from .program import Program, program
from .requirement import device_total
from .xla_peak import xla_rule

PLAIN_TYPES: dict[schema.Kind, pa.DataType] = {"int": pa.int64(), "text": pa.string(), "name": pa.string()}
INT64_LIMIT = 1 << 63


def explain(dump: DumpLike) -> pa.Table:
    """Return the numbers that XLA, JAX and XProf print for a program, side by side with those of xlamem.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``explain`` in bytes and steps. ``difference`` is the number minus xlamem's peak (of its space, or of all
        spaces together for numbers that add them up); `explain_causes` splits it by cause. ``basis`` is ``exact`` if
        the text contains the number, and ``inferred`` if it comes from a formula; ``n_equal`` of ``n_compared`` dumps
        confirm the formula.
    """
    return _explanation(dump).numbers


def explain_causes(dump: DumpLike) -> pa.Table:
    """Return the causes of the differences between the numbers of `explain` and xlamem's peak.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.

    Returns
    -------
    pyarrow.Table
        Table ``explain_causes``: one row per number and cause, except causes of 0 bytes. The bytes of a number add up
        to its ``difference``.
    """
    return _explanation(dump).causes


class Explanation(NamedTuple):
    """The tables `explain` and `explain_causes`."""

    numbers: pa.Table
    causes: pa.Table


def _explanation(dump: DumpLike) -> Explanation:
    p = program(dump)
    return p.once("explanation", lambda: _explain(p))


def _explain(p: Program) -> Explanation:
    rows, comparison = _Rows(), _Comparison.of(p)
    _add_spaces(rows, p, comparison.spaces)
    _add_totals(rows, comparison)
    _add_xla_peaks(rows, comparison)
    _add_memory_analysis(rows, p)
    return Explanation(_table("explain", rows.numbers), _table("explain_causes", rows.causes))


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    columns = schema.COMPUTED[name].columns
    return computed_table(name, {c.name: pa.array([row[c.name] for row in rows], PLAIN_TYPES[c.kind]) for c in columns})


@dataclass
class _Rows:
    """Rows of the tables `explain` and `explain_causes`."""

    numbers: list[dict[str, Any]] = field(default_factory=list)
    causes: list[dict[str, Any]] = field(default_factory=list)

    def add(
        self,
        name: str,
        size: int | None,
        peak: int | None = None,
        causes: Mapping[str, int] | None = None,
        space: Space | None = None,
        *,
        rest: str = "",
        agreement: Agreement | None = None,
        **more: Any,
    ) -> None:
        """Add a number and the causes of its difference from a peak; `rest` names the cause of the remainder.

        Numbers that are inferred agree with those of the tool on a number of dumps.
        """
        where: dict[str, Any] = {"memory_space": None, "color": None, "page": None}
        if space:
            where = {"memory_space": space.name, "color": space.color, "page": space.page}
        difference = size - peak if size is not None and peak is not None else None
        if difference is not None and abs(difference) >= INT64_LIMIT:  # a printed number near -2^63
            difference = None
        by_cause = {} if difference is None else _nonzero(causes or {}, difference, rest)
        basis = None if size is None else "inferred" if agreement else "exact"
        row = {"name": name, "bytes": size, "time": None, "basis": basis, "releases": None} | where | more
        equal, compared = agreement or (None, None)
        row |= {"definition": _definition(name, size), "difference": difference}
        row |= {"causes": ", ".join(f"{cause} {by:+,}" for cause, by in by_cause.items()) or None}
        self.numbers.append(row | {"n_equal": equal, "n_compared": compared})
        self.causes += [{"name": name, "cause": cause, "bytes": by, **where} for cause, by in by_cause.items()]


def _nonzero(causes: Mapping[str, int], difference: int, rest: str) -> dict[str, int]:
    """Return the causes that are not 0 bytes, including the remainder of the difference under the name `rest`."""
    every = {**causes, rest: difference - sum(causes.values())} if rest else causes
    return {cause: by for cause, by in every.items() if by}


def _definition(name: str, size: int | None) -> str:
    definition = schema.DEFINITIONS[name.split(".")[0]]
    return definition if size is not None else f"{definition}; not in the text"


# -- one space -----------------------------------------------------------------------------------


def _add_spaces(rows: _Rows, p: Program, spaces: pa.Table) -> None:
    """Add the numbers of each memory space."""
    timed = p.steps is not None
    causes: dict[tuple[str, int], dict[str, int]] = {}
    for name, cause, sizes in space_causes(p, spaces) if timed else ():
        for i, size in enumerate(sizes.tolist()):
            causes.setdefault((name, i), {})[cause] = size
    xprof, fixed = xprof_peak(p), p.fixed_bytes().tolist()
    for i, row in enumerate(spaces.to_pylist()):
        if not row["allocated"]:
            continue
        space, top = p.spaces[i], row["peak"]
        rows.add("reserved", row["reserved"], top, causes.get(("reserved", i)), space)
        if timed:
            rows.add("peak", top, top, {}, space, time=row["first_step"])
            rows.add("live", row["live_peak"], top, causes["live", i], space, time=row["live_step"])
            rows.add("half_open", row["half_open_peak"], top, causes["half_open", i], space)
            rows.add("fixed", fixed[i], top, causes["fixed", i], space)
        if xprof and xprof.space == i:
            rows.add("xprof", xprof.bytes, top, {"tables of tuples": xprof.bytes - top}, space, agreement=XPROF)
        rows.add("allocated", row["allocated"], top, causes.get(("allocated", i)), space)


# -- all spaces together -------------------------------------------------------------------------


@dataclass(frozen=True)
class _Comparison:
    """Values with which the numbers of all spaces together are compared."""

    p: Program
    module: dict[str, Any]
    """The row of `modules`."""
    spaces: pa.Table
    """The table ``peaks``."""
    group: Ints
    """The group of each space: 0, because all spaces are in one group."""
    peaks: GroupPeaks | None
    """Combined peak of the group; None without live ranges or spaces."""

    @classmethod
    def of(cls, p: Program) -> _Comparison:
        group = np.zeros(len(p.spaces), np.int64)
        peaks = group_peaks(p, group, 1) if p.steps is not None and p.spaces else None
        return cls(p, p.tables["modules"].to_pylist()[0], peak_tables(p, 0)[0], group, peaks)

    @property
    def peak(self) -> int | None:
        return int(self.peaks.bytes[0]) if self.peaks else None


def _add_totals(rows: _Rows, c: _Comparison) -> None:
    p = c.p
    is_main = np.array([schema.in_device_memory(c.module["platform"], s.color) for s in p.spaces], bool)
    causes: dict[str, int] = {}
    if c.peaks:
        step = c.peaks.step[0]
        in_use = np.concatenate([occupied_in(p, w)[:, w.column(step)] for w in windows(p)])
        unused = unused_bytes(p, np.where(is_main, 0, -1), c.peaks.step[:1])
        causes = {cause: int(size[0]) for cause, size in unused.items()}
        causes["other memory spaces"] = -int(in_use[~is_main].sum())
    rows.add("device_total", device_total(p.tables), c.peak, causes)
    if c.peaks:
        rows.add("peak_together", c.peak, c.peak, time=int(c.peaks.step[0]))
    if c.module["total_bytes"] is not None:
        by_cause = _of_one_group(total_causes(c.spaces, c.group, c.peaks.bytes)) if c.peaks else {}
        rows.add("xla_total", c.module["total_bytes"], c.peak, by_cause, rest=DISAGREE)


def _add_xla_peaks(rows: _Rows, c: _Comparison) -> None:
    if c.module["printed_peak_bytes"] is None or not c.peaks:
        return
    rest = POINTERS if "peak_a" in (c.module["features"] or "").split(",") else DISAGREE
    printed = c.module["printed_peak_time"], c.module["printed_peak_bytes"]
    for name, (step, size) in (("xla_rule", xla_rule(c.p.tables) or (0, 0)), ("xla_printed", printed)):
        causes = _of_one_group(xla_causes(c.p, c.group, c.peaks.bytes, np.array([step])))
        rows.add(name, size, c.peak, causes, rest=rest, time=step)


def _of_one_group(causes: Iterable[Cause]) -> dict[str, int]:
    return {cause: int(by[0]) for cause, by in causes}


# -- JAX -----------------------------------------------------------------------------------------


def _add_memory_analysis(rows: _Rows, p: Program) -> None:
    analysis, inferred = memory_analysis(p.tables), inferred_analysis(p)
    for name in FIELDS:
        size, found = getattr(analysis, name), [i for i in inferred if i.field == name]
        if len(found) == 1:
            rows.add(f"jax.{name}", found[0].bytes, agreement=found[0].agreement)
            continue
        rows.add(f"jax.{name}", size)
        for i in found:
            rows.add(f"jax.{name}, {i.releases}", i.bytes, agreement=i.agreement, releases=i.releases)
        for value in analysis.by_release:
            if value.field == name:
                rows.add(f"jax.{name}, {value.releases}", value.bytes, releases=value.releases)
