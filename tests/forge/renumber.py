"""Rewrites the memory files of a dump as another compile of the same program would print them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from pathlib import Path

import xlamem
from xlamem.input.names import EXTENSIONS

ROLES = ("buffer-assignment", "buffer-assignment-values", "live-range")
_NAME = re.compile(r"(?<![\w.-])[A-Za-z_][\w.-]*")
_TEXT = re.compile(r" from instruction: ?(%.*)")
_LINES = re.compile(r"(source_line|stack_frame_id)=(\d+)")


def memory_files(dump: xlamem.Dump) -> dict[str, str]:
    """The texts of the memory files, by role."""
    texts = {}
    for member in dump.source.members:
        if member.role in ROLES:
            with member.load() as text:
                texts[member.role] = bytes(text.data).decode()
    return texts


def instruction_names(dump: xlamem.Dump) -> list[str]:
    tables = ("values", "positions", "uses", "instructions", "schedule", "live_ranges", "printed_peak")
    return sorted({name for t in tables for name in dump[t]["instruction"].to_pylist()})


def renumbered(dump: xlamem.Dump, seed: int = 0) -> dict[str, str]:
    """The memory files with other names, value ids (in the same order), allocation numbers and lines."""
    names = instruction_names(dump)
    numbers = random.Random(seed).sample(range(10 * len(names)), len(names))
    new = {name: f"renamed_{n % 7}.{n}" for name, n in zip(names, numbers, strict=True)}
    return {role: _renumbered(text, new) for role, text in memory_files(dump).items()}


def _renumbered(text: str, new: Mapping[str, str]) -> str:
    lines = [_line(line, new) for line in text.split("\n")]
    return "\n".join(lines)


def _line(line: str, new: Mapping[str, str]) -> str:
    def rename(match: re.Match[str]) -> str:
        return new.get(match[0], match[0])

    if text := _TEXT.fullmatch(line):
        renamed = re.sub(r"(?<=%)[\w.-]+", rename, text[1])
        return " from instruction: " + _LINES.sub(lambda m: f"{m[1]}={int(m[2]) + 7}", renamed)
    line = re.sub(r"(?<=<)\d+(?= )", lambda m: str(3 * int(m[0]) + 5), line)
    line = re.sub(r"\Aallocation (\d+):", lambda m: f"allocation {2 * int(m[1]) + 1}:", line)
    if line.startswith(("allocation ", "Total bytes", "Used values", "BufferAssignment", "HloLiveRange")):
        return line
    return _NAME.sub(rename, line, count=2 if " value: <" in line else 1)


def write(texts: Mapping[str, str], directory: Path, stem: str) -> Path:
    """Write memory files, and return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for role, text in texts.items():
        (directory / (stem + EXTENSIONS[role])).write_text(text)  # type: ignore[index]
    return directory
