"""The options --capacity, --device, --resident and --fraction: memory that programs are compared with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .. import compute
from ..dump import Dump
from ..errors import UsageError
from .completion import devices, one_of

if TYPE_CHECKING:
    from ..compute import Available, Fits
    from . import documents


class Memory(NamedTuple):
    """The memory that programs are compared with."""

    arguments: dict[str, Any]
    """Keyword arguments of `compute.fits`."""
    limits: Available

    def fits(self, dump: Dump) -> Fits:
        return compute.fits(dump, **self.arguments)

    def as_json(self) -> documents.Capacity:
        limits, device = self.limits, self.limits.device
        data: documents.Capacity = {
            "name": device.name if device else "capacity",
            "bytes": limits.capacity,
            "resident": limits.resident,
            "available": limits.bytes,
        }
        if device is not None:
            data["stated"], data["stated_bytes"] = device.stated, device.bytes
            data["source"], data["reported_by"] = device.source, device.reporter or None
        return data


def memory(effect: str = "") -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Pass --capacity, --device, --resident and --fraction as one argument ``memory``, None without the first two.

    `effect` says in the help text what the comparison does beyond being shown.
    """
    capacity_help = "Compare with this much memory (16GiB)" + (f": {effect}." if effect else ".")
    options = [
        click.option("--fraction", type=float, default=1.0, metavar="X", help="Part that the runtime may use (0.92)."),
        click.option("--resident", metavar="SIZE", help="Memory that other data occupy, such as other arrays."),
        click.option("--device", metavar="NAME", shell_complete=one_of(devices),
                     help="Compare with the memory of a device (v5e, h100, …)."),
        click.option("--capacity", metavar="SIZE", help=capacity_help),
    ]

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def run(
            capacity: str | None, device: str | None, resident: str | None, fraction: float, **arguments: Any
        ) -> int:
            if capacity is None and device is None:
                if resident is not None or fraction != 1:
                    raise UsageError("--resident and --fraction require --capacity or --device")
                return command(memory=None, **arguments)
            chosen: dict[str, Any] = {"capacity": capacity, "device": device, "fraction": fraction}
            chosen["resident"] = resident or 0
            return command(memory=Memory(chosen, compute.available(**chosen)), **arguments)

        return functools.reduce(lambda wrapped, option: option(wrapped), options, run)

    return decorate
