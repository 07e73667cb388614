"""Find likely causes in the numbers of an out-of-memory report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]

MIN_PADDING = 0.01
"""Minimum share of the listed bytes for padding to be reported."""
MIN_FRAGMENTATION = 0.05
"""Minimum share of a total for its fragmentation to be reported."""
MIN_ARGUMENTS = 0.5
"""Minimum share of the capacity for the arguments to be reported."""
MIN_REPEATED = 0.25
"""Minimum share of the listed bytes for buffers of the same shape to be reported."""


@dataclass(frozen=True)
class OomCauses:
    """Likely causes in one report. A field is None or empty if the numbers do not suggest its cause."""

    excess: int | None
    """Bytes above the capacity."""
    listed: int
    """Total bytes of the listed buffers."""
    padding: int = 0
    """Their padding, if it is worth reporting."""
    most_padded: Row | None = None
    """The buffer with the most padding, if padding at least doubles its size."""
    repeated: tuple[str, int, int] | None = None
    """Shape, number and total bytes of buffers that have the same shape."""
    fragmented: list[Row] = field(default_factory=list)
    """Rows of `usage` with much fragmentation."""
    arguments: Row | None = None
    """Row of `usage` for the arguments, if they take a large share of the capacity."""
    oversized: Row | None = None
    """A buffer that is larger than the capacity."""
    output_left_out: int = 0
    """Bytes of outputs, without those that share memory with arguments, that the printed total does not contain."""


def oom_causes(report: Row, usage: list[Row], buffers: list[Row]) -> OomCauses:
    """Return the causes that a report suggests: padding, repeated shapes, fragmentation, large arguments."""
    excess, capacity = excess_bytes(report), report["capacity_bytes"]
    listed = sum(b["size_bytes"] or 0 for b in buffers)
    padded = [b for b in buffers if is_padded(b)]
    padding = sum(b["padding_bytes"] for b in padded)
    is_significant = padding >= MIN_PADDING * listed
    return OomCauses(
        excess=excess,
        listed=listed,
        padding=padding if is_significant else 0,
        most_padded=_most_padded(padded) if is_significant else None,
        repeated=_repeated_shape(buffers),
        fragmented=_fragmented(usage) if report["form"] != "usage" else [],
        arguments=_large_arguments(usage, capacity) if capacity else None,
        oversized=_oversized(buffers, capacity) if capacity and excess else None,
        output_left_out=_output_left_out(usage),
    )


def excess_bytes(report: Row) -> int | None:
    """Return the bytes above the capacity: the printed number, or else used minus capacity; None if unknown."""
    exceeded, used, capacity = report["exceeded_bytes"], report["used_bytes"], report["capacity_bytes"]
    if exceeded is None and used is not None and capacity is not None:
        exceeded = used - capacity
    return None if exceeded is None else int(exceeded)


def is_padded(buffer: Row) -> bool:
    return bool(buffer["padding_bytes"]) and (buffer["expansion"] or 0) > 1


def _most_padded(padded: list[Row]) -> Row | None:
    most_padded = max(padded, key=lambda b: b["padding_bytes"], default=None)
    return most_padded if most_padded is not None and most_padded["expansion"] >= 2 else None


def _repeated_shape(buffers: list[Row]) -> tuple[str, int, int] | None:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for b in buffers:
        if b["shape"] and b["size_bytes"]:
            counts[b["shape"]] += 1
            sizes[b["shape"]] += b["size_bytes"]
    shape, size = next(((s, size) for s, size in sizes.most_common() if counts[s] > 1), ("", 0))
    return (shape, counts[shape], size) if shape and size >= MIN_REPEATED * sizes.total() else None


def _fragmented(usage: list[Row]) -> list[Row]:
    return [
        u
        for u in usage
        if u["part"] == "program"
        and u["fragmentation_bytes"]
        and u["fragmentation_bytes"] >= MIN_FRAGMENTATION * (u["bytes"] or 0)
    ]


def _large_arguments(usage: list[Row], capacity: int) -> Row | None:
    arguments = (u for u in usage if u["part"] == "total" and u["label"] == "arguments" and u["bytes"])
    first = next(arguments, None)
    return first if first is not None and first["bytes"] >= MIN_ARGUMENTS * capacity else None


def _output_left_out(usage: list[Row]) -> int:
    """Return the bytes of outputs if the size of the program is unknown: then the total has no more than arguments."""
    sizes = {(u["part"], u["label"]): u["bytes"] for u in usage}
    if sizes.get(("total", "program"), 0) is not None:
        return 0
    return max((sizes.get(("output", "output")) or 0) - (sizes.get(("output", "shared")) or 0), 0)


def _oversized(buffers: list[Row], capacity: int) -> Row | None:
    return next((b for b in buffers if (b["size_bytes"] or 0) > capacity and b["list"] != "failed allocation"), None)
