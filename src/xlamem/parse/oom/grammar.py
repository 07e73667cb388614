"""The grammar of messages: their first line, and the rules for the lines that follow."""

from __future__ import annotations

import re

from . import buffers, sentences, totals
from .message import TABLES, Message, Rule

_RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule) for pattern, rule in (*buffers.RULES, *totals.RULES, *sentences.RULES)
)
"""Rules for lines, the most frequent ones first."""

_REPEATED = re.compile(r" +\[repeated \d+x across cluster\](?: \(Ray deduplicates.*)?$")


def begin_message(label: str | None, thread: str | None, number: int, text: str, offset: int) -> Message | None:
    """Begin a message whose text starts at an offset of a line; None if no message begins like that."""
    row = dict.fromkeys(TABLES["reports"].names)
    row.update(text=text.rstrip())
    message = Message(label, thread, number, row, text[offset:].strip())
    if sentences.read_sentence(message, text):
        return message
    row.update(form="usage")
    if not feed(message, number, text):
        return None
    if message.in_program_list():  # the first lines of the message are missing
        row.update(form=sentences.form_of(message.memory_space or ""), memory_space=message.memory_space)
    return message


def feed(message: Message, number: int, text: str) -> bool:
    """Add a line to a message and return whether it matched a rule."""
    line = _REPEATED.sub("", text).strip()
    if not line:
        message.take_empty_line()
        return False
    for pattern, rule in _RULES:
        m = pattern.fullmatch(line)
        if m and rule(message, m):
            message.take_known_line(number)
            return True
    message.take_unknown_line(number, text)
    return False
