"""Plain text, code and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..formatting import one_line

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&@$])")


def escaped(text: str) -> str:
    """Return plain text as Markdown."""
    return _SPECIAL.sub(r"\\\1", one_line(text))


def code(text: str, *, in_table: bool = True) -> str:
    """Return text as code: fenced with more backticks than it has in a row; in a table, with pipes escaped."""
    if not text:
        return ""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    is_stripped = text[0] == text[-1] == " " and text.strip(" ")
    space = " " if "`" in (text[0], text[-1]) or is_stripped else ""
    span = f"{fence}{space}{one_line(text)}{space}{fence}"
    return span.replace("|", r"\|") if in_table else span


def table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """Return a table; a heading that ends in a colon is that of numbers."""
    names = list(headings)
    line = "|".join("---:" if name.endswith(":") else "---" for name in names)
    texts = [" | ".join(cells) for cells in [[name.rstrip(":") for name in names], *rows]]
    return [f"| {texts[0]} |", f"|{line}|", *(f"| {text} |" for text in texts[1:])]
