"""Compute JAX's memory analysis of a compiled program from its dump."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

from ..dump import DumpLike, Tables
from ..formatting import size
from .columns import Ints, Mask, bools, ints
from .layout import THREAD_LOCAL
from .program import program

if TYPE_CHECKING:
    from ..display import View

HOST = 5
LIBTPU_RELEASES = "libtpu 0.0.50.1 and before", "libtpu 0.0.51 and later"
LIBTPU_0_0_51, LIBTPU_0_0_50_1 = 1003875606, 1004524046
"""Changelists of the first of the later releases, and of a patch of the one before it."""


class ReleaseValue(NamedTuple):
    """Value of a field of `MemoryAnalysis` in some releases of jaxlib."""

    field: str
    releases: str
    bytes: int


@dataclass(frozen=True, repr=False)
class MemoryAnalysis:
    """JAX's `compiled.memory_analysis()` in bytes. A field is None if the text does not determine it.

    If releases of jaxlib print different values and the text does not reveal the release, the field is None and
    `by_release` lists the known values.
    """

    argument_size_in_bytes: int | None
    output_size_in_bytes: int | None
    alias_size_in_bytes: int | None
    temp_size_in_bytes: int | None
    host_argument_size_in_bytes: int | None
    host_output_size_in_bytes: int | None
    host_alias_size_in_bytes: int | None
    host_temp_size_in_bytes: int | None
    total_allocation_bytes: int | None
    indefinite_allocations: int | None
    peak_memory_in_bytes: int | None
    by_release: tuple[ReleaseValue, ...] = ()

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import Grid, View  # not needed to compute

        rows = [[name, *_amounts(getattr(self, name))] for name in FIELDS]
        rows += [[f"{v.field}, {v.releases}", *_amounts(v.bytes)] for v in self.by_release]
        return View("xlamem.MemoryAnalysis", (Grid(["field", "size", "bytes"], rows, frozenset((1, 2))),))


def _amounts(n: int | None) -> list[str]:
    """Return the size with a unit and exactly."""
    return ["", "not in the dump"] if n is None else [size(n), f"{n:,}"]


FIELDS = tuple(f.name for f in fields(MemoryAnalysis) if f.name != "by_release")


def memory_analysis(dump: DumpLike) -> MemoryAnalysis:
    """Return the fields of JAX's memory analysis, computed from the allocations.

    The fields add up allocations: argument, the parameters; output, those that are maybe-live-out; alias, those that
    are both; temp, those that are preallocated-temp (not on TPU); host_*, the same in color 5. total_allocation_bytes
    is the total of color 0, and indefinite_allocations the same without temp; both are None on GPU.
    peak_memory_in_bytes is the total of parameters, constants and outputs on CPU; on other platforms, the text does
    not determine it.

    On CPU, the values depend on the release, which the text rarely reveals: jaxlib 0.4.28 and earlier print zeros;
    0.7.0 and 0.7.1 print a different peak; 0.11.2 includes thread-local allocations in both totals, 0.12.0 does not.
    On TPU, libtpu 0.0.50.1 and before include them, too: both are None where it matters and the release is not known.
    `explain` infers more fields. All fields of a dump without allocations are None.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    """
    p = program(dump)
    if not p.spaces:  # no allocations: their sizes are unknown, not 0
        return MemoryAnalysis(**dict.fromkeys(FIELDS), by_release=())
    module = p.tables["modules"].to_pylist()[0]
    sizes = _Sizes(p.tables, p.category == THREAD_LOCAL)
    size_by_field: dict[str, int | None] = {**sizes.by_kind()}
    by_release: list[ReleaseValue] = []
    if module["platform"] == "cpu":
        by_release = _cpu(sizes, p.tables, set((module["features"] or "").split(",")), size_by_field)
    elif module["platform"] != "gpu":
        size_by_field["temp_size_in_bytes"] = None
    if module["platform"] == "tpu":
        by_release = _tpu(sizes, is_libtpu_0_0_51(module["changelist"]), size_by_field)
    return MemoryAnalysis(**{name: size_by_field.get(name) for name in FIELDS}, by_release=tuple(by_release))


class _Sizes:
    """The sizes of the allocations, with masks of their kinds."""

    def __init__(self, tables: Tables, thread_local: Mask) -> None:
        allocations = tables["allocations"]
        self.size: Ints = ints(allocations, "size")
        self.thread_local = thread_local
        self.host: Mask = ints(allocations, "color") == HOST
        self.main: Mask = ints(allocations, "color") == 0
        self.parameter, self.output, self.temp = (
            bools(allocations, column) for column in ("is_parameter", "is_live_out", "is_temp")
        )

        self.totals = {"total_allocation_bytes": self.main, "indefinite_allocations": self.main & ~self.temp}

    def of(self, mask: Mask) -> int:
        return int(self.size[mask].sum())

    def by_kind(self) -> dict[str, int]:
        """Return the fields argument, output, alias and temp, for the device and for the host."""
        kinds = {
            "argument": self.parameter, "output": self.output, "alias": self.parameter & self.output, "temp": self.temp,
        }  # fmt: skip
        return {
            f"{prefix}{kind}_size_in_bytes": self.of(mask & side)
            for prefix, side in (("", ~self.host), ("host_", self.host))
            for kind, mask in kinds.items()
        }


def is_libtpu_0_0_51(changelist: int | None) -> bool | None:
    """Return whether a changelist is that of libtpu 0.0.51 or later; None if it is not known."""
    if changelist is None:
        return None
    return changelist >= LIBTPU_0_0_51 and changelist != LIBTPU_0_0_50_1


def _tpu(sizes: _Sizes, is_later: bool | None, size_by_field: dict[str, int | None]) -> list[ReleaseValue]:
    """Add the totals of a TPU program to `size_by_field`, and return those that depend on the release if unknown."""
    values = []
    for field, mask in sizes.totals.items():
        by_release = sizes.of(mask), sizes.of(mask & ~sizes.thread_local)
        is_known = is_later is not None or by_release[0] == by_release[1]
        size_by_field[field] = by_release[bool(is_later)] if is_known else None
        if not is_known:
            values += [ReleaseValue(field, *v) for v in zip(LIBTPU_RELEASES, by_release, strict=True)]
    return values


def _cpu(sizes: _Sizes, tables: Tables, features: set[str], size_by_field: dict[str, int | None]) -> list[ReleaseValue]:
    """Add the fields of a CPU program to `size_by_field`, and return the values that depend on the release."""
    values = _cpu_kinds(sizes, features)
    for field, mask in sizes.totals.items():
        without_local = sizes.of(mask & ~sizes.thread_local)
        size_by_field[field] = without_local
        if sizes.of(mask & sizes.thread_local):
            values.append(ReleaseValue(field, "jaxlib 0.11.2", sizes.of(mask)))
            values.append(ReleaseValue(field, "jaxlib 0.12.0", without_local))
    fixed = sizes.of(sizes.main & ~sizes.temp & ~sizes.thread_local)
    size_by_field["peak_memory_in_bytes"] = fixed
    if "peak_c" in features and not _is_later_than_0_8_1(tables, features):
        size_by_field["peak_memory_in_bytes"] = None
        if "tree" in features:
            values.append(ReleaseValue("peak_memory_in_bytes", "jaxlib 0.7.2 and later", fixed))
    size_by_field.update((v.field, None) for v in values)
    return values


def _cpu_kinds(sizes: _Sizes, features: set[str]) -> list[ReleaseValue]:
    """Return both values of the sizes by kind if the release might be one that prints zeros."""
    blank = "from_instruction_blank" in features
    may_be_old = "from_instruction" in features and not blank
    may_be_old |= "glued" in features and "report_a" not in features
    values = []
    for field, total in sizes.by_kind().items():
        if may_be_old and total:
            values.append(ReleaseValue(field, "jaxlib 0.4.28 and before", 0))
            if blank:
                values.append(ReleaseValue(field, "jaxlib 0.4.29 and later", total))
    return values


def _is_later_than_0_8_1(tables: Tables, features: set[str]) -> bool:
    """Return whether the dump contains anything that jaxlib prints only after 0.8.1."""
    later = {"frames", "report_b", "values_split", "live_split", "page", "uses_none"}
    frame_id = tables["instructions"]["stack_frame_id"]
    return bool(features & later) or frame_id.null_count < len(frame_id)
