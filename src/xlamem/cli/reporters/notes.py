"""Notes below a screen: one line with their titles, or their texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from ...formatting import count, wrap


class Note(NamedTuple):
    """A remark that few readers need."""

    title: str
    text: str


def note_lines(notes: Sequence[Note], width: int | None, *, verbose: bool) -> list[Text]:
    """Return the texts of the notes if `verbose`, or else one line with their number and titles."""
    if not notes:
        return []
    if not verbose:
        return [Text(_one_line(notes, width), "dim")]
    lines = [line for note in notes for line in _paragraph(note.text, width)]
    return [Text(f"{count(len(notes), 'note')}:", "dim"), *(Text(line) for line in lines)]


def _one_line(notes: Sequence[Note], width: int | None) -> str:
    """Return as many titles as fit the width."""
    start, end = f"{count(len(notes), 'note')}: ", "; -v shows it" if len(notes) == 1 else "; -v lists them"
    titles = [note.title for note in notes]
    for n in range(len(titles), 0, -1):
        line = start + "; ".join([*titles[:n], *(["…"] if n < len(titles) else [])]) + end
        if width is None or len(line) <= width:
            return line
    return start.rstrip(": ") + end


def _paragraph(text: str, width: int | None) -> list[str]:
    return [f"  {'  ' if i else '- '}{line}" for i, line in enumerate(wrap(text, 4, width))]
