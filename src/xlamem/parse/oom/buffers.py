"""Lists of buffers in a message: the largest allocations of a program, and the buffers of the peak."""

from __future__ import annotations

import re

from .cells import SIZE, integer, metadata_cells, size_of
from .message import Message, Rule


def _largest(message: Message, m: re.Match[str]) -> bool:
    if not message.begin_heading(f"largest {m['what']} {m['space']}"):
        return False
    message.buffer_list, message.memory_space = f"program {m['what']}", m["space"].lower()
    return True


def _peak(message: Message, m: re.Match[str]) -> bool:
    if message.row["form"] not in ("peak_buffers", "usage") or not message.begin_heading("peak"):
        return False
    message.row["form"], message.buffer_list, message.memory_space = "peak_buffers", "peak buffers", None
    return True


def _program_buffer(message: Message, m: re.Match[str]) -> bool:
    return message.in_program_list() and message.open_buffer(integer(m["ordinal"]), m["size"])


def _peak_buffer(message: Message, m: re.Match[str]) -> bool:
    return message.buffer_list == "peak buffers" and message.open_buffer(integer(m["ordinal"]), None)


def _attribute(message: Message, m: re.Match[str]) -> bool:
    name, value = m["name"].lower(), m["value"].strip()
    if name == "xla label" and message.in_program_list() and message.buffer is None:
        message.open_buffer(None, None)  # lists of old releases have no numbers or sizes
    if message.buffer is None or (name == "size" and not re.fullmatch(SIZE, value)):
        return False
    if name == "operator":
        message.buffer.update(metadata_cells(value))
    elif name == "size":
        message.buffer.update(size_text=value, size_bytes=size_of(value))
    elif name == "entry parameter subshape":
        message.buffer.update(shape=value, parameter=value)
    else:
        message.buffer[name.replace(" ", "_")] = value
    return True


def _unpadded(message: Message, m: re.Match[str]) -> bool:
    if message.buffer is None:
        return False
    message.buffer["unpadded_bytes"] = size_of(m["size"])
    return True


def _padding(message: Message, m: re.Match[str]) -> bool:
    if message.buffer is None:
        return False
    message.buffer["padding_bytes"] = size_of(m["size"])
    message.buffer["expansion"] = float(m["factor"]) if m["factor"] else None
    return True


def _end(message: Message, m: re.Match[str]) -> bool:
    if message.buffer is None:
        return False
    message.close_buffer(True)
    return True


RULES: tuple[tuple[str, Rule], ...] = (
    (rf"(?P<ordinal>\d+)\. Size: (?P<size>{SIZE})", _program_buffer),
    (
        r"(?P<name>Operator|Shape|XLA [Ll]abel|Allocation type|Entry Parameter Subshape|Size|Tag): ?(?P<value>.*)",
        _attribute,
    ),
    (rf"Unpadded size: (?P<size>{SIZE})", _unpadded),
    (rf"Extra memory due to padding: (?P<size>{SIZE})(?: \((?P<factor>[\d.]+)x expansion\))?", _padding),
    (r"={10,}", _end),
    (r"Buffer (?P<ordinal>\d+):", _peak_buffer),
    (r"Largest program (?P<what>[a-z][a-z ]*?) in (?P<space>\w+):", _largest),
    (r"Peak buffers:", _peak),
)
