"""The sentences that messages begin with."""

from __future__ import annotations

import re

from .cells import SIZE, Row, integer, size_of
from .message import FORMS, Message, Rule

_CODE = re.compile(r"\b(E\d{4}): ")
_MODULE = re.compile(r"HLO module: (\S+?)\.?(?=\s|$)")

_SPACE = re.compile(r"Ran out of memory in memory space (?P<space>\w+)")
_USED = re.compile(
    rf"Used (?P<used>{SIZE}) of (?P<capacity>{SIZE}) \w+\.(?: Exceeded \w+ capacity by (?P<exceeded>{SIZE}))?"
)
_STACK = re.compile(r"while allocating on stack for (?P<instruction>%?.*?)\.?(?: Scoped allocation with size|\s*$)")
_SCOPED = re.compile(
    rf"Scoped allocation with size (?P<used>{SIZE}) and limit (?P<capacity>{SIZE}) "
    rf"exceeded scoped \w+ limit by (?P<exceeded>{SIZE})"
)
_SHORT = re.compile(
    rf"Ran out of memory on (?P<space>\w+), the total memory required for (?P<what>.+?) \((?P<used>{SIZE})\) "
    rf"exceeds available \w+ \((?P<capacity>{SIZE})\)"
)

_ALLOCATION = re.compile(r"Allocation \(size=(?P<size>\d+)\) would exceed memory \(size=(?P<capacity>\d+)\)")
_ALLOCATION_SPACE = re.compile(r"\bspace=(\w+)")
_ALLOCATION_SHAPE = re.compile(r"shape = '([^']*)'")
_ALLOCATION_SCOPED = re.compile(r", scoped[,\]]")
_TAG = re.compile(r"tag = '(?P<tag>.*?)'\](?: :: (?P<instruction>.*))?$")
_INSTRUCTION = re.compile(r"\] :: (?P<instruction>\S.*)$")

_RUNTIME = re.compile(
    rf"Out of memory while trying to allocate (?:(?P<exact>\d+) bytes|(?P<size>{SIZE}))"
    rf"|Failed to allocate request for (?P<about>{SIZE}) \((?P<exactly>\d+)B\)"
    rf"|Attempting to (?:allocate|reserve) (?P<asked>{SIZE}).*?There (?:are|is) (?P<free>{SIZE}) free"
)
_WARNING = re.compile(
    rf"ran out of memory trying to allocate (?P<size>{SIZE}) \(rounded to (?P<rounded>\d+)\)"
)
_DEVICE = re.compile(r"\(\w*?_([A-Z]+)\d*\)")
_PROGRAM = re.compile(r"Error loading program '([^']+)'")

_DEBUGGING = "BufferAssignment OOM Debugging"


def read_sentence(message: Message, text: str) -> bool:
    """Fill the report from its first sentence; return False if the text has none."""
    if m := _CODE.search(text):
        message.row["code"] = m[1]
    if m := _MODULE.search(text):
        message.row["module_name"] = m[1]
    for pattern, read in _SENTENCES:
        if m := pattern.search(text):
            read(message, m)
            return True
    return False


def form_of(space: str) -> str:
    """Return the form of a compiler message about a memory space."""
    return f"tpu_{space}" if f"tpu_{space}" in FORMS else "tpu_space"


def _short(message: Message, m: re.Match[str]) -> None:
    message.row.update(form="tpu_e1000", memory_space=m["space"].lower())
    message.row.update(_sizes(m, "used", "capacity"))
    message.memory_space = message.row["memory_space"]
    message.add_usage("program", m["what"], m["used"])


def _space(message: Message, m: re.Match[str]) -> None:
    text, space = m.string, m["space"].lower()
    message.row.update(form=form_of(space), memory_space=space)
    if stack := _STACK.search(text):
        message.row["instruction"] = stack["instruction"]
    if used := _USED.search(text):
        message.row.update(_sizes(used, "used", "capacity", "exceeded"))
    elif scoped := _SCOPED.search(text):
        _fill_scoped(message, scoped)


def _fill_scoped(message: Message, m: re.Match[str]) -> None:
    message.row.update(_sizes(m, "used", "capacity", "exceeded"))
    message.add_failed(size=m["used"], label=message.row["instruction"])


def _sizes(m: re.Match[str], *names: str) -> Row:
    cells: Row = {}
    for name in names:
        if m[name] is not None:
            cells[f"{name}_text"], cells[f"{name}_bytes"] = m[name], size_of(m[name])
    return cells


def _allocation(message: Message, m: re.Match[str]) -> None:
    row, rest = message.row, m.string[m.end() :]
    space, shape, tag = _ALLOCATION_SPACE.search(rest), _ALLOCATION_SHAPE.search(rest), _TAG.search(rest)
    row.update(form="tpu_allocation", memory_space=space[1].lower() if space else None)
    row.update(requested_bytes=integer(m["size"]), requested_text=m["size"])
    row.update(capacity_bytes=integer(m["capacity"]), capacity_text=m["capacity"])
    instruction = tag or _INSTRUCTION.search(rest)
    row["instruction"] = instruction["instruction"] if instruction else None
    message.add_failed(
        size=m["size"],
        label=row["instruction"],
        shape=shape[1] if shape else None,
        tag=tag["tag"] if tag else None,
        allocation_type="scoped" if _ALLOCATION_SCOPED.search(rest) else None,
    )


def _runtime(message: Message, m: re.Match[str]) -> None:
    row = message.row
    exact, rounded = m["exact"] or m["exactly"], m["size"] or m["asked"]
    row.update(form="runtime", requested_text=exact or rounded, free_text=m["free"], free_bytes=size_of(m["free"]))
    row["requested_bytes"] = integer(exact) if exact else size_of(rounded)
    if device := _DEVICE.search(m.string, m.end()):
        row["memory_space"] = device[1].lower()
    if program := _PROGRAM.search(m.string):
        row["module_name"] = program[1]


def _warning(message: Message, m: re.Match[str]) -> None:
    message.warning = m["size"]
    message.row.update(form="runtime", requested_text=m["rounded"], requested_bytes=integer(m["rounded"]))


def _debugging(message: Message, m: re.Match[str]) -> None:
    message.row.update(form="peak_buffers")


_SENTENCES = (
    (_SHORT, _short),
    (_SPACE, _space),
    (_ALLOCATION, _allocation),
    (_RUNTIME, _runtime),
    (_WARNING, _warning),
    (re.compile(_DEBUGGING), _debugging),
)
"""Patterns of first sentences; if a text matches several, the first one applies."""


# -- sentences that follow -----------------------------------------------------------------------


def _debugging_follows(message: Message, m: re.Match[str]) -> bool:
    """Handle the heading after the allocator's sentence about the same failure."""
    if message.row["form"] != "runtime" or message.headings:
        return False
    message.row["form"] = "peak_buffers"
    return message.begin_heading("debugging")


def _scoped_follows(message: Message, m: re.Match[str]) -> bool:
    """Handle the second half of a sentence that was split into two lines."""
    if message.row["form"] not in ("tpu_vmem", "tpu_smem", "tpu_space") or message.row["used_text"] is not None:
        return False
    _fill_scoped(message, m)
    return True


def _remark(message: Message, m: re.Match[str]) -> bool:
    return True


RULES: tuple[tuple[str, Rule], ...] = (
    (rf".*{_DEBUGGING}\.?", _debugging_follows),
    (rf".*{_SCOPED.pattern}.*", _scoped_follows),
    (r"See https?://\S+ for more details\.", _remark),
    (r"Memory usage report:", _remark),
)
