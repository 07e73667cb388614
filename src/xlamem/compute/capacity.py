"""Compute what must fit into device memory, and whether it does: True or False only with proof."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import kernels as pc
from .. import schema
from ..dump import DumpLike, Tables, as_tables
from ..errors import UsageError
from ..formatting import exact_size
from .columns import bools, ints
from .devices import Device, parse_bytes
from .devices import device as device_named
from .layout import MAX_TOTAL_BYTES
from .requirement import device_total, sum_of_sizes, sums_by_color

if TYPE_CHECKING:
    from ..display import View


# -- the verdict ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Fits:
    """Whether a program fits. Sizes are in bytes; ``bool()`` is True only if the program is known to fit."""

    fits: bool | None
    """None if unknown."""
    reason: str
    """The numbers that were compared, or why there is no verdict."""
    device_total: int | None
    """Bytes that must fit, according to the dump; None without allocations."""
    available: int
    """Equals capacity x fraction - resident."""
    capacity: int
    device: str | None = None
    """Name of the device with this capacity."""
    resident: int = 0
    fraction: float = 1.0
    other_platform: bool = False
    """Whether the program is compiled for another platform than that of the device, such as a CPU."""

    def __bool__(self) -> bool:
        return self.fits is True

    def __repr__(self) -> str:
        return repr(self._view())

    def _repr_html_(self) -> str:
        return self._view()._repr_html_()

    def _view(self) -> View:
        from ..display import View, fields  # not needed to compute

        verdict = {True: "fits", False: "does not fit", None: "not known whether it fits"}[self.fits]
        rows = [("available", exact_size(self.available) + (f" of {self.device}" if self.device else ""))]
        if self.device_total is not None:
            spare = self.available - self.device_total
            rows.insert(0, ("must fit", exact_size(self.device_total)))
            rows.append(("to spare" if spare >= 0 else "missing", exact_size(abs(spare))))
        return View(f"xlamem.Fits: {verdict}", (fields([*rows, ("reason", self.reason)]),))


def fits(
    dump: DumpLike,
    *,
    capacity: int | str | None = None,
    device: str | None = None,
    resident: int | str = 0,
    fraction: float = 1.0,
) -> Fits:
    """Return whether a program fits into the memory of a device: True, False, or None without proof.

    `device_total` is compared with capacity x fraction - resident. There is a verdict only if xlamem understands
    every allocation header, and the sizes of the allocations add up to the total printed in the dump. Unknown fields
    elsewhere (in values, live ranges or HLO text) do not matter. There is none if the program is compiled for another
    platform than that of the device: compiled for a TPU, a CPU program needs another amount.

    Parameters
    ----------
    dump
        A `Dump`, or anything that `read` accepts.
    capacity
        Memory of the device: bytes, or a size with a unit (``"16GiB"``).
    device
        Name of a device (``"v5e"``, ``"h100"``), instead of a capacity.
    resident
        Memory that is otherwise in use while the program runs, such as arrays of other programs; as for `capacity`.
    fraction
        Fraction of the capacity that the runtime may use: above 0, at most 1.

    Raises
    ------
    UsageError
        Neither or both of `capacity` and `device` are given, or a size has no unit or is negative.
    """
    room = available(capacity, device, resident, fraction)
    tables = as_tables(dump)
    is_other = room.device is not None and is_for_other(tables.platform, room.device)
    verdict, reason = _verdict(tables, room, is_other=is_other)
    name = room.device.name if room.device else None
    total = device_total(tables)
    return Fits(verdict, reason, total, room.bytes, room.capacity, name, room.resident, fraction, is_other)


def is_for_other(platform: str | None, device: Device) -> bool:
    """Return whether a program is known to be compiled for another platform than that of a device."""
    return platform not in (None, device.platform)


class Available(NamedTuple):
    """The memory of a device that a program may use, and the arguments of `fits` from which it is computed."""

    bytes: int
    capacity: int
    resident: int
    device: Device | None


def available(capacity: int | str | None, device: str | None, resident: int | str, fraction: float) -> Available:
    """Return the available bytes for these arguments of `fits`."""
    if (capacity is None) == (device is None):
        needed = "a capacity or a device is needed"
        raise UsageError(needed if capacity is None else "a capacity and a device exclude each other")
    chosen = None if device is None else device_named(device)
    total = chosen.usable if chosen else byte_count("capacity", capacity)
    taken = byte_count("resident", resident)
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction must be above 0 and at most 1, not {fraction}")
    return Available(int(total * Fraction(str(fraction))) - taken, total, taken, chosen)


def byte_count(name: str, size: Any, *, limited: bool = True) -> int:
    """Return a number of bytes, or a size with a unit, as an integer. Raises UsageError; `name` is for the message."""
    try:
        number = parse_bytes(size) if isinstance(size, str) else index(size)
    except TypeError:
        raise UsageError(f"{name} must be a number of bytes or a size such as '16GiB', not {size!r}") from None
    if number < 0:
        raise UsageError(f"{name} must be 0 or more, not {number}")
    if limited and number >= MAX_TOTAL_BYTES:
        raise UsageError(f"{name} must be below 4 EiB")
    return number


def _verdict(tables: Tables, room: Available, *, is_other: bool) -> tuple[bool | None, str]:
    if doubt := reason_for_doubt(tables):
        return None, doubt
    available, device = room.bytes, room.device
    if device is not None and is_other:
        platform = str(tables.platform).upper()
        return None, f"it is compiled for a {platform}; compiled for {device.name}, it needs another amount"
    unknown, is_known = _unknown_colors(tables), tables.platform in schema.DEVICE_MEMORY
    total, unsure = device_total(tables) or 0, sum(unknown.values())
    # device_total includes unknown colors only if the platform is unknown, too.
    least, most = (total, total + unsure) if is_known else (total - unsure, total)
    compared = f"{total:,} bytes must fit, {available:,} are available"
    if tables.platform == "tpu":
        compared += "; program code is not counted"
    if least <= available < most:
        colors = ", ".join(f"{size:,} bytes in color {c}" for c, size in unknown.items())
        return None, f"{compared}; {colors}, which may be in {'the same' if is_known else 'another'} memory"
    return least <= available, compared


def _unknown_colors(tables: Tables) -> dict[int, int]:
    """Return the bytes, by color, of spaces of which it is not known whether they are in the device's main memory."""
    allocations, known = tables["allocations"], {0, 5}  # on every platform the main memory, and the host's
    if tables.platform in schema.DEVICE_MEMORY:
        known = schema.DEVICE_MEMORY[tables.platform] | schema.OTHER_MEMORY[tables.platform]
    sizes = sums_by_color(allocations, ~bools(allocations, "is_thread_local"))
    return {color: size for color, size in sizes.items() if size and color not in known}


# -- the proof -----------------------------------------------------------------------------------


def reason_for_doubt(tables: Tables) -> str:
    """Return why the allocations cannot be trusted, or an empty string if they can."""
    allocations = tables["allocations"]
    if not allocations.num_rows:
        return "the dump has no allocations"
    if allocations["attributes"].null_count < allocations.num_rows:
        field = pc.drop_null(allocations["attributes"])[0].as_py()
        return f"an allocation has a field that this version does not know: {field}"
    if ints(allocations, "size").min() < 0:
        return "an allocation has a size below 0"
    diagnostics = tables["diagnostics"].to_pylist()
    return _doubtful_header(diagnostics) or _doubtful_total(diagnostics) or _wrong_total(tables, diagnostics)


def _doubtful_header(diagnostics: list[dict[str, Any]]) -> str:
    """Return a message about the first diagnostic that casts doubt on an allocation header, or an empty string."""
    # Values that were not understood differ from the used values, which says nothing about the allocations.
    partial = any(d["section"] == "allocations" and d["code"] in schema.NOT_UNDERSTOOD for d in diagnostics)
    for d in diagnostics:
        if (doubt := _doubt(d)) and not (partial and d["code"] == "records_differ"):
            line = "" if d["line"] is None else f":{d['line']}"
            return f"{doubt} ({os.path.basename(d['file'] or '')}{line})"
    return ""


def _doubt(d: dict[str, Any]) -> str:
    """Return what a diagnostic means for the headers of the allocations; empty if it does not concern them."""
    if d["code"] == "more_diagnostics":  # of unknown meaning, but in these sections they do not matter
        return "" if d["section"] in ("used values", "live ranges", "report", "hlo") else "too many diagnostics"
    if d["section"] != "allocations":
        return ""
    if d["code"] == "unknown_line" and d["excerpt"].startswith("allocation "):
        return "the line of an allocation was not understood"
    if d["code"] == "truncated":
        return "the allocations are truncated"
    return schema.CODES[d["code"]] if d["severity"] == "error" and d["code"] != "total_differs" else ""


def _doubtful_total(diagnostics: list[dict[str, Any]]) -> str:
    for d in diagnostics:
        if d["section"] == "total" or (d["section"] == "report" and d["code"] == "unknown_field"):
            return f"the line of a printed total was not understood ({d['excerpt']})"
        if d["code"] == "total_differs":
            return f"the allocations do not add up to a printed total: {d['wanted']}"
    return ""


def _wrong_total(tables: Tables, diagnostics: list[dict[str, Any]]) -> str:
    """Compare the sizes with the printed total, or with the totals by color of the memory-usage report."""
    allocations = tables["allocations"]
    every = np.ones(allocations.num_rows, bool)
    printed = tables["modules"]["total_bytes"][0].as_py()
    if printed is not None:
        size = sum_of_sizes(allocations, every)
        return "" if size == printed else f"the allocations add up to {size:,} bytes, not to the printed {printed:,}"
    truncated = any(d["section"] == "report" and d["code"] == "truncated" for d in diagnostics)
    reported = _reported_totals(tables)
    if truncated or not reported:
        return "the dump prints no total with which the sizes of the allocations could be compared"
    sizes = sums_by_color(allocations, every)
    agree = all(sizes.get(color, 0) == reported.get(color, 0) for color in sizes.keys() | reported.keys())
    return "" if agree else "the allocations do not add up to the totals of the memory-usage report"


def _reported_totals(tables: Tables) -> dict[int, int]:
    """Return the total of each color in a memory-usage report of layout B; empty without one, or if two differ."""
    if "printed_report" not in tables.tables:
        return {}
    rows = tables["printed_report"].select(["color", "total_bytes"])
    rows = pc.filter(rows, pc.and_(pc.is_valid(rows["color"]), pc.is_valid(rows["total_bytes"])))
    # The indices keep NumPy from importing numpy.ma.
    pairs, _ = np.unique(np.stack([ints(rows, "color"), ints(rows, "total_bytes")]), axis=1, return_index=True)
    totals = dict(pairs.T.tolist())
    return totals if len(totals) == pairs.shape[1] else {}
