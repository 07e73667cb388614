"""What must fit into the device's memory, and whether it does: True or False only with proof."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from operator import index
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import schema
from ..dump import Dump
from ..errors import UsageError
from .devices import Device, parse_bytes
from .devices import device as device_named
from .program import Ints, Mask, bools, ints


def device_total(dump: Dump) -> int | None:
    """Bytes that the device's main memory must hold for this program; None for a dump without allocations.

    The sum of `reserved` (all allocations but thread-local) over the spaces in that memory: TPU ``hbm`` and
    colors 7 and 9; GPU ``device``, ``collective`` and ``temp``; CPU ``memory``; all but color 5 where the platform
    is not known. Program code is not in the dump.
    """
    rows = dump.allocations
    return _sum(rows, must_fit(rows, dump.platform)) if rows.num_rows else None


def must_fit(allocations: pa.Table, platform: str | None) -> Mask:
    """Which allocations count for `device_total`."""
    color = ints(allocations, "color")
    inside = [c for c in np.unique(color).tolist() if schema.in_device_memory(platform, c)]
    return np.isin(color, inside) & ~bools(allocations, "is_thread_local")


def _sum(allocations: pa.Table, mask: Mask) -> int:
    """Bytes of these allocations; exact, where int64 could overflow."""
    sizes: Ints = ints(allocations, "size")[mask]
    return sum(sizes.tolist())


@dataclass(frozen=True)
class Fits:
    """Whether a program fits; sizes in bytes. ``bool()`` of it is True only if it is known to fit."""

    fits: bool | None
    """None: not known."""
    reason: str
    """The numbers compared, or what is missing for a verdict."""
    device_total: int | None
    """What must fit, as far as the dump gives it; None without allocations."""
    available: int
    """capacity x fraction - resident."""
    capacity: int
    device: str | None = None
    """Name of the device whose capacity it is."""
    resident: int = 0
    fraction: float = 1.0

    def __bool__(self) -> bool:
        return self.fits is True


def fits(
    dump: Dump,
    *,
    capacity: int | str | None = None,
    device: str | None = None,
    resident: int | str = 0,
    fraction: float = 1.0,
) -> Fits:
    """Whether a program fits into the memory of a device: True, False, or None where the dump does not prove it.

    `device_total` is compared with capacity x fraction - resident. The verdict is known only if every allocation
    header was understood and the sizes of the allocations add up to the total that the dump prints. Fields that
    this version does not know elsewhere (values, live ranges, HLO) do not matter.

    Parameters
    ----------
    capacity
        Memory of the device: bytes, or a size with a unit (``"16GiB"``).
    device
        Name of a device (``"v5e"``, ``"h100"``), instead of a capacity.
    resident
        What else is in that memory while the program runs, such as arrays of other programs: bytes or a size.
    fraction
        Part of the capacity that the runtime may use, above 0 and at most 1.

    Raises
    ------
    UsageError
        Neither or both of capacity and device; a size without unit, or below 0.
    """
    room = available(capacity, device, resident, fraction)
    verdict, reason = _verdict(dump, room.bytes)
    name = room.device.name if room.device else None
    return Fits(verdict, reason, device_total(dump), room.bytes, room.capacity, name, room.resident, fraction)


class Available(NamedTuple):
    """What a program may take of a device's memory, in bytes, and what that is made of."""

    bytes: int
    capacity: int
    resident: int
    device: Device | None


def available(capacity: int | str | None, device: str | None, resident: int | str, fraction: float) -> Available:
    """Of these arguments of `fits`."""
    if (capacity is None) == (device is None):
        raise UsageError("a capacity or a device is needed" if capacity is None else "a capacity or a device, not both")
    known = None if device is None else device_named(device)
    whole = known.usable if known else _bytes("capacity", capacity)
    beside = _bytes("resident", resident)
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction must be above 0 and at most 1, not {fraction}")
    return Available(int(whole * Fraction(str(fraction))) - beside, whole, beside, known)


def _bytes(name: str, size: Any) -> int:
    try:
        found = parse_bytes(size) if isinstance(size, str) else index(size)
    except TypeError:
        raise UsageError(f"{name} must be a number of bytes or a size such as '16GiB', not {size!r}") from None
    if found < 0:
        raise UsageError(f"{name} must be 0 or more, not {found}")
    return found


def _verdict(dump: Dump, available: int) -> tuple[bool | None, str]:
    unproven = _unproven(dump)
    if unproven:
        return None, unproven
    least = device_total(dump) or 0
    most = least + sum(_nameless(dump).values())
    compared = f"{least:,} bytes must fit, {available:,} are available"
    if dump.platform == "tpu":
        compared += "; program code is not counted"
    if least <= available < most:
        colors = ", ".join(f"{size:,} bytes in color {c}" for c, size in _nameless(dump).items())
        return None, f"{compared}; {colors}, which may be in the same memory"
    return least <= available, compared


def _nameless(dump: Dump) -> dict[int, int]:
    """Bytes by color in spaces of which it is not known where they are."""
    if dump.platform not in schema.DEVICE_MEMORY:
        return {}
    rows, color = dump.allocations, ints(dump.allocations, "color")
    known = schema.DEVICE_MEMORY[dump.platform] | schema.OTHER_MEMORY[dump.platform]
    there = ~bools(rows, "is_thread_local")
    found = {c: _sum(rows, there & (color == c)) for c in np.unique(color).tolist() if c not in known}
    return {c: size for c, size in found.items() if size}


def _unproven(dump: Dump) -> str:
    """Why it is not proven that all allocations were read as XLA meant them; empty if it is."""
    rows = dump.allocations
    if not rows.num_rows:
        return "the dump has no allocations"
    if rows["attributes"].null_count < rows.num_rows:
        field = rows["attributes"].drop_null()[0].as_py()
        return f"an allocation has a field that this version does not know: {field}"
    if len(sizes := ints(rows, "size")) and sizes.min() < 0:
        return "an allocation has a size below 0"
    diagnostics = dump.diagnostics.to_pylist()
    # Values that were not understood differ from the used values, and say nothing about the allocations.
    strange = any(d["section"] == "allocations" and d["code"] in schema.NOT_UNDERSTOOD for d in diagnostics)
    for d in diagnostics:
        if (wrong := _doubt(d)) and not (strange and d["code"] == "records_differ"):
            line = "" if d["line"] is None else f":{d['line']}"
            return f"{wrong} ({os.path.basename(d['file'] or '')}{line})"
    for d in diagnostics:
        if d["section"] == "total" or (d["section"] == "report" and d["code"] == "unknown_field"):
            return f"the line of a printed total was not understood ({d['excerpt']})"
        if d["code"] == "total_differs":
            return f"the allocations do not add up to a printed total: {d['wanted']}"
    size = _sum(rows, np.ones(rows.num_rows, bool))
    (printed,) = dump.modules["total_bytes"].to_pylist()
    if printed is not None:
        return "" if size == printed else f"the allocations add up to {size:,} bytes, not to the printed {printed:,}"
    truncated = any(d["section"] == "report" and d["code"] == "truncated" for d in diagnostics)
    by_color = _reported(dump)
    if truncated or not by_color:
        return "the dump prints no total with which the sizes of the allocations could be compared"
    color = ints(rows, "color")
    found = {c: _sum(rows, color == c) for c in np.unique(color).tolist()}
    agree = all(found.get(c, 0) == by_color.get(c, 0) for c in {*found, *by_color})
    return "" if agree else "the allocations do not add up to the totals of the memory-usage report"


def _doubt(d: dict[str, Any]) -> str:
    """What a diagnostic says against the allocations; empty if it does not touch their headers."""
    if d["code"] == "more_diagnostics":  # what they say is not known, but in these sections they do not matter
        return "" if d["section"] in ("used values", "live ranges", "report", "hlo") else "too many diagnostics"
    if d["section"] != "allocations":
        return ""
    if d["code"] == "unknown_line" and d["excerpt"].startswith("allocation "):
        return "the line of an allocation was not understood"
    if d["code"] == "truncated":
        return "the allocations are truncated"
    return schema.CODES[d["code"]] if d["severity"] == "error" and d["code"] != "total_differs" else ""


def _reported(dump: Dump) -> dict[int, int]:
    """Total of each color in a memory-usage report of the second layout; empty if there is none, or two differ."""
    if "printed_report" not in dump.tables:
        return {}
    rows = dump["printed_report"].select(["color", "total_bytes"])
    rows = rows.filter(pc.and_(pc.is_valid(rows["color"]), pc.is_valid(rows["total_bytes"])))
    pairs = rows.group_by(["color", "total_bytes"], use_threads=False).aggregate([]).to_pylist()
    totals = {p["color"]: p["total_bytes"] for p in pairs}
    return totals if len(totals) == len(pairs) else {}
