"""File names: what XLA says about a dump before a single byte is read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, cast

Role = Literal["buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report", "hlo"]
Platform = Literal["tpu", "gpu", "cpu"]

COMPRESSED = (".gz", ".zst", ".xz", ".bz2")
"""Extensions that a member may carry behind its own; also the order of preference, after none at all."""

EXTENSIONS: dict[Role, str] = {
    "buffer-assignment": "-buffer-assignment.txt",
    "buffer-assignment-values": "-buffer-assignment-values.txt",
    "live-range": "-live-range.txt",
    "memory-usage-report": "-memory-usage-report.txt",
    "hlo": ".txt",
}

# Module names may hold dots, so every name is matched from its right end.
_ROLE = re.compile(
    r"(?:-(buffer-assignment(?:-values)?|live-range|memory-usage-report)|(?<=after_optimizations))"
    r"\.txt(?:\.(?:gz|zst|xz|bz2))?\Z"
)
_BACKEND = re.compile(
    r"(?:\.cl_(?P<changelist>[0-9]{1,18}))?(?:\A|\.)"
    r"(?:(?P<cpu>cpu_)|(?P<gpu>(?:(?P<target>sm_[0-9]+(?:\.[0-9]+)?[a-z]*|[^.]+)_)?gpu_))?after_optimizations\Z"
)
_MODULE = re.compile(r"(?:(?P<timestamp>[0-9]{1,18})\.)?module_(?P<id>[0-9]{1,18})(?:\.(?P<name>.+))?", re.DOTALL)
_DUMPED = re.compile(r"(?:[0-9]+\.)?module_[0-9]{4,}\.")


@dataclass(frozen=True)
class DumpName:
    """The name of a member file, taken apart; what it does not say is None."""

    stem: str
    role: Role
    timestamp_us: int | None = None
    module_id: int | None = None
    module_name: str | None = None
    changelist: int | None = None
    platform: Platform | None = None
    target: str | None = None


def split(file_name: str) -> tuple[str, Role] | None:
    """Stem and role of a member's name; None for any other file."""
    found = _ROLE.search(file_name)
    # "._NAME" is what macOS keeps beside NAME in archives.
    if found is None or found.start() == 0 or file_name.startswith("._"):
        return None
    return file_name[: found.start()], cast(Role, found[1] or "hlo")


def parse(file_name: str) -> DumpName | None:
    """Take the name of a member file (no directory) apart; None for any other file."""
    found = split(file_name)
    return describe(*found) if found else None


def describe(stem: str, role: Role) -> DumpName:
    """What a stem says. Stems that users made up are fine: they say little."""
    backend = _BACKEND.search(stem)
    module = _MODULE.fullmatch(stem[: backend.start()] if backend else stem)
    platform: Platform | None = None
    if backend:
        # TPU dumps and very old ones of other platforms share the bare suffix.
        platform = "cpu" if backend["cpu"] else "gpu" if backend["gpu"] else "tpu" if backend["changelist"] else None
    return DumpName(
        stem=stem,
        role=role,
        timestamp_us=_int(module["timestamp"]) if module else None,
        module_id=_int(module["id"]) if module else None,
        module_name=module["name"] if module else None,
        changelist=_int(backend["changelist"]) if backend else None,
        platform=platform,
        target=backend["target"] if backend else None,
    )


def is_dumped(file_name: str) -> bool:
    """XLA names its files like this: one that is no member (a pass, a proto) holds no memory text."""
    return _DUMPED.match(file_name) is not None


def _int(digits: str | None) -> int | None:
    return None if digits is None else int(digits)
