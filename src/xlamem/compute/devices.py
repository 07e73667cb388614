"""Memory sizes of accelerators, for the option `--device`.

A program is compiled for one device, so the sizes are those of one device as XLA sees it: a core of TPU v2 and v3, a
core or both of a TPU v4, a chip of TPU v5e to v6e, a chiplet of TPU7x, a die of an MI250X.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import NamedTuple

from ..errors import UsageError
from ..formatting import closest

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
GB = 1000**3
"""GPU vendors state decimal gigabytes. If a driver reports a different size, it is in `Device.reported`."""

OOM = "XLA's out-of-memory messages"
SMI = "nvidia-smi"


class Device(NamedTuple):
    """A kind of device."""

    name: str
    aliases: tuple[str, ...]
    bytes: int
    """Memory of one device according to its vendor."""
    stated: str
    """Memory in the words of the vendor."""
    source: str
    """Document that states the size."""
    reported: int | None = None
    """Size that the compiler or the driver reports, if known."""
    reporter: str = ""
    platform: str = "gpu"
    """Platform of the programs that run on it, as in ``modules``."""

    @property
    def usable(self) -> int:
        """The size used for comparison: the reported size, or else that of the vendor."""
        return self.bytes if self.reported is None else self.reported


def _tpu(name: str, aliases: str, gib: int, stated: str, page: str, usable: float | None = None) -> Device:
    reported = None if usable is None else int(usable * GIB)
    source = f"Google Cloud documentation ({page})"
    return Device(name, tuple(aliases.split()), gib * GIB, stated, source, reported, OOM if reported else "", "tpu")


def _gpu(
    name: str, aliases: str, gb: int, stated: str, source: str, reported: int | None = None, reporter: str = ""
) -> Device:
    return Device(name, tuple(aliases.split()), gb * GB, stated, source, reported, reporter)


DEVICES = (
    _tpu("v2", "tpuv2", 8, "16 GiB per chip, two cores of 8 GiB", "TPU v2", 7.48),
    _tpu("v3", "tpuv3", 16, "32 GiB per chip, two cores of 16 GiB", "TPU v3", 15.48),
    _tpu("v4", "tpuv4", 32, "32 GiB per chip, whose two cores are one device (megacore)", "TPU v4", 30.75),
    _tpu("v4-core", "tpuv4core", 16, "32 GiB per chip, two cores of 16 GiB", "TPU v4", 15.25),
    _tpu("v5e", "tpuv5e v5lite tpuv5lite v5litepod", 16, "16 GB per chip", "TPU v5e", 15.75),
    _tpu("v5p", "tpuv5p tpuv5", 95, "95 GiB per chip", "TPU v5p", 95.7295),
    _tpu("v6e", "tpuv6e v6lite tpuv6lite trillium", 32, "32 GiB per chip", "TPU v6e", 31.2441),
    _tpu("v7x", "tpu7x tpuv7x v7 ironwood", 96, "192 GiB per chip, two devices of 96 GiB", "TPU7x", 94.7402),
    _gpu("v100-16gb", "v100sxm216gb", 16, "16 GB", "NVIDIA V100 data sheet"),
    _gpu("v100-32gb", "v100sxm232gb", 32, "32 GB", "NVIDIA V100 data sheet"),
    _gpu("t4", "", 16, "16 GB", "NVIDIA T4 data sheet", 15360 * MIB, SMI),
    _gpu("l4", "", 24, "24 GB", "NVIDIA L4 data sheet", 23034 * MIB, SMI),
    _gpu("a10", "a10g", 24, "24 GB", "NVIDIA A10 data sheet", 23028 * MIB, SMI),
    _gpu("l40s", "", 48, "48 GB", "NVIDIA L40S data sheet", 46068 * MIB, SMI),
    _gpu("a100-40gb", "a100sxm440gb a100pcie40gb", 40, "40 GB", "NVIDIA A100 data sheet", 40960 * MIB, SMI),
    _gpu(
        "a100-80gb", "a100sxm480gb a100pcie80gb a10080gbpcie", 80, "80 GB", "NVIDIA A100 data sheet", 81920 * MIB, SMI
    ),
    _gpu("h100", "h100sxm h100sxm5 h100pcie h10080gbhbm3", 80, "80 GB", "NVIDIA H100 data sheet", 81559 * MIB, SMI),
    _gpu("h100-nvl", "", 94, "94 GB", "NVIDIA H100 data sheet, H100 NVL"),
    _gpu(
        "h200", "h200nvl h200sxm", 141, "141 GB", "NVIDIA H200 data sheet", 139 * GIB, "the CUDA runtime, rounded down"
    ),
    _gpu("b200", "", 180, "180 GB", "NVIDIA HGX B200 data sheet", int(178.35 * GIB), "the CUDA runtime"),
    _gpu("gb200", "", 186, "372 GB per superchip of two GPUs", "NVIDIA GB200 NVL72 data sheet"),
    _gpu("mi250x", "mi250", 64, "128 GB per card, two devices of 64 GB", "AMD Instinct MI250X data sheet"),
    _gpu("mi300a", "", 128, "128 GB, shared with the CPU cores", "AMD Instinct MI300A data sheet"),
    _gpu("mi300x", "", 192, "192 GB", "AMD Instinct MI300X data sheet", 206_141_652_992, "rocm-smi"),
    _gpu("mi325x", "", 256, "256 GB", "AMD Instinct MI325X data sheet"),
    _gpu("mi355x", "mi350x", 288, "288 GB", "AMD Instinct MI355X data sheet"),
)

_UNITS = {
    "b": 1, "k": KIB, "kib": KIB, "m": MIB, "mib": MIB, "g": GIB, "gib": GIB, "t": TIB, "tib": TIB,
    "kb": 1000, "mb": 1000**2, "gb": GB, "tb": 1000**4,
}  # fmt: skip
_WHOLE = r"[1-9][0-9]{0,2}(?:,[0-9]{3})+|[0-9][0-9_]*"
"""A comma separates thousands. A decimal comma is no size: 15,75GiB must not be read as 1575 GiB."""
_AMOUNT = re.compile(rf"((?:{_WHOLE})(?:\.[0-9]+)?|\.[0-9]+)\s*([a-z]*)", re.IGNORECASE)


def device(name: str) -> Device:
    """Return a device by name, in any common spelling (``v5e``, ``TPU v5 lite``, ``NVIDIA H100 80GB HBM3``)."""
    key = _key(name)
    matches = [d for d in DEVICES if key in (_key(d.name), *d.aliases)]
    if not matches:
        matches = [d for d in DEVICES if d.name.partition("-")[0] == key]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"{name!r} exists in several sizes: choose one of {', '.join(d.name for d in matches)}")
    if (size := _AMOUNT.fullmatch(str(name).strip())) and size[2].lower() in _UNITS:
        raise UsageError(f"{name!r} is a size, not a device: give it as a capacity, or in a budget as device_total")
    names = [d.name for d in DEVICES]
    question = f"did you mean {match!r}? There" if (match := closest(key, names)) else "there"
    known = f"{question} are {', '.join(names)}; for another size, give a capacity such as 16GiB"
    raise UsageError(f"no device {name!r}; {known}")


def parse_bytes(text: str) -> int:
    """Parse a size: ``16GiB`` and ``16G`` (as XLA prints it) are binary, ``16GB`` is decimal, ``16B`` is in bytes."""
    match = _AMOUNT.fullmatch(text.strip())
    if match and not match[2]:
        raise UsageError(f"{text!r} has no unit, and a bare number is ambiguous: write 16GiB, or 16B for bytes")
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UsageError(f"{text!r} is not a size: write 16GiB (powers of 1024), 16GB (powers of 1000) or 16B (bytes)")
    return int(Decimal(match[1].replace("_", "").replace(",", "")) * unit)


def _key(name: str) -> str:
    """Return a name in lower case, without vendor, topology and punctuation."""
    plain = str(name).lower().partition(":")[0]
    return re.sub(r"nvidia|amd|google|cloud|instinct|tesla|[^a-z0-9]", "", plain)
