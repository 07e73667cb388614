"""Lines about sizes in a message: totals of a memory space, and statistics of the buffer assignment."""

from __future__ import annotations

import re

from .cells import SIZE, Row, size_of
from .message import Message, Rule

_DETAILS = re.compile(
    rf"(?P<utilization>-?nan|[\d.]+)% utilization"
    rf"(?:: Unpadded \((?P<unpadded>{SIZE})\) Padded \((?P<padded>{SIZE})\))?"
    rf"(?:, (?P<percent>-?nan|[\d.]+)% fragmentation \((?P<lost>{SIZE})\))?"
)


def _total(message: Message, m: re.Match[str]) -> bool:
    space = m["space"].lower()
    if not message.begin_heading(f"{m['what']} {space}"):
        return False
    message.usage_part, message.memory_space = ("total" if m["what"] == "Total" else "program"), space
    return message.add_usage(message.usage_part, "total", m["size"])


def _measure(message: Message, m: re.Match[str]) -> bool:
    if message.buffer_list or message.usage_part not in ("total", "program"):
        return False
    details = _DETAILS.fullmatch(m["details"] or "")
    if m["details"] and not details:
        return False
    return message.add_usage(message.usage_part, m["label"], m["size"], **(_details(details) if details else {}))


def _details(m: re.Match[str]) -> Row:
    return {
        "utilization": m["utilization"],
        "unpadded_bytes": size_of(m["unpadded"]),
        "padded_bytes": size_of(m["padded"]),
        "fragmentation": m["percent"],
        "fragmentation_bytes": size_of(m["lost"]),
    }


def _output(message: Message, m: re.Match[str]) -> bool:
    if message.buffer_list or not message.usage_part:
        return False
    message.add_usage("output", "output", m["size"] or "unknown")
    return m["shared"] is None or message.add_usage("output", "shared", m["shared"])


def _compiled(message: Message, m: re.Match[str]) -> bool:
    space = m["space"].lower()
    if not message.begin_heading(f"compiled {space}"):
        return False
    message.usage_part, message.memory_space = "compiled", space
    return message.add_usage("compiled", "program", m["size"], capacity_bytes=size_of(m["capacity"]))


def _statistics(message: Message, m: re.Match[str]) -> bool:
    if message.row["form"] not in ("peak_buffers", "usage") or not message.begin_heading("stats"):
        return False
    message.usage_part, message.memory_space = "stats", None
    return True


def _statistic(message: Message, m: re.Match[str]) -> bool:
    if message.buffer_list or message.usage_part != "stats":
        return False
    if not m["label"].endswith("fragmentation"):
        return message.add_usage("stats", m["label"], m["size"])
    lost = size_of(m["size"])
    return message.add_usage("stats", m["label"], m["size"], fragmentation=m["percent"], fragmentation_bytes=lost)


RULES: tuple[tuple[str, Rule], ...] = (
    (rf"(?P<what>Total) (?P<space>\w+) usage >= (?P<size>{SIZE}):?", _total),
    (rf"(?P<what>Program) (?P<space>\w+) requirement (?P<size>{SIZE}|unknown size):?", _total),
    (
        rf"(?P<label>[A-Za-z][\w-]*(?: [\w-]+)*?) +(?P<size>{SIZE}|unknown size)(?: +\((?P<details>.*)\))?",
        _measure,
    ),
    (rf"Output size (?:(?P<size>{SIZE})(?:; shares (?P<shared>{SIZE}) with arguments)?|unknown)\.?", _output),
    (
        rf"XLA::TPU program (?P<space>\w+) usage: (?P<size>{SIZE}) / (?P<capacity>{SIZE})(?: \(.*\))?",
        _compiled,
    ),
    (r"BufferAssignment stats:", _statistics),
    (rf"(?P<label>[A-Za-z_][\w ]*): +(?P<size>{SIZE})(?: \((?P<percent>-?nan|[\d.]+)%\))?", _statistic),
)
