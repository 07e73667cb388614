"""What must fit into the device's memory, and whether it does."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ...compute import Fits
from ...compute.devices import device
from ...compute.wording import PROGRAM_CODE, memory_note, verdict_sentence
from ...formatting import NO_BREAK, size, wrap
from .notes import Note

LABEL_WIDTH = 10
INDENT = LABEL_WIDTH + 2


def field(label: str, *parts: Any) -> Text:
    """Return a line with a label."""
    return Text.assemble("  ", (label.ljust(LABEL_WIDTH), "dim"), *parts)


def verdict_lines(total: int | None, reserved: dict[str, int], fits: Fits | None, width: int | None) -> list[Text]:
    """Return the lines about what must fit: the sum, its terms by memory space, and the verdict if there is one."""
    lines = [Text("device_total", "bold")]
    if total is not None:
        lines += _must_fit(total, reserved, width)
    if fits is not None:
        text, style = _verdict(fits)
        label = (fits.device or "capacity")[:LABEL_WIDTH]
        lines += [field("" if i else label, (line, style)) for i, line in enumerate(wrap(text, INDENT, width))]
    return lines


def _must_fit(total: int, reserved: dict[str, int], width: int | None) -> list[Text]:
    """Return the sum and its terms, on one line if there is room."""
    amount = f"{size(total)}  ({total:,} bytes)"
    terms = [f"{name}{NO_BREAK}{size(n)}" if len(reserved) > 1 else name for name, n in reserved.items()]
    lines = wrap(" + ".join(terms), INDENT + len(amount) + 2, width)
    if width and INDENT + len(amount) + 2 + len(lines[0]) > width:
        return [field("must fit", (amount, "bold")), *(field("", line) for line in lines)]
    first = field("must fit", (amount, "bold"), f"  {lines[0]}")
    return [first, *(field("", " " * len(amount), f"  {line}") for line in lines[1:])]


def _verdict(fits: Fits) -> tuple[str, str]:
    """Return the sentence and its style."""
    return verdict_sentence(fits), "green" if fits.fits else "bold red"


def verdict_notes(fits: Fits | None, platform: str | None) -> list[Note]:
    """Return where the size of the device's memory comes from, and what is not counted."""
    notes = []
    if fits is not None and fits.device is not None:
        d = device(fits.device)
        notes.append(Note(f"memory of {d.name}", memory_note(d)))
    if fits is not None and platform == "tpu":
        notes.append(Note("program code", PROGRAM_CODE))
    return notes
