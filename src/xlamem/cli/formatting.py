"""Format numbers, names and prose for people."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

GAP = "  "
"""Space between columns."""
NO_BREAK = "\N{NO-BREAK SPACE}"
DEFAULT_WIDTH = 80
"""Width of prose if the width of the output is not limited."""


def visible(text: str) -> str:
    """Escape every character that a terminal would interpret, except newlines."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Escape every character that a terminal would interpret, including newlines."""
    return visible(text).replace("\n", "\\n")


# -- numbers -------------------------------------------------------------------------------------


def size(n: int | None) -> str:
    """Return bytes in binary units with two decimals."""
    if n is None:
        return "?"
    if abs(n) < 1024:
        return f"{n} B"
    amount, units = n / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while abs(amount) >= 1023.995 and len(units) > 1:
        amount /= 1024
        del units[0]
    return f"{amount:.2f} {units[0]}"


def exact_size(n: int) -> str:
    """Return bytes in binary units, followed by the exact number."""
    return f"{size(n)} ({n:,} bytes)" if abs(n) >= 1024 else f"{n:,} bytes"


def number(n: int | None) -> str:
    """Return a number, or "?" if it is unknown."""
    return "?" if n is None else f"{n:,}"


def count(n: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{n:,} {noun if n == 1 else plural or noun + 's'}"


def percent(part: int, whole: int) -> str:
    """Return a share as a percentage with one decimal."""
    if not whole:
        return "-"
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 or not part else "<0.1 %"


# -- shortening ----------------------------------------------------------------------------------


def shorten(text: str, limit: int | None) -> str:
    """Replace the middle of a text that is too long with an ellipsis."""
    if limit is None or len(text) <= limit:
        return text
    limit = max(limit, 9)
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[-end:]}"


def shorten_path(text: str, limit: int | None) -> str:
    """Replace the beginning of a path or scope that is too long with an ellipsis, at a '/' if one is near."""
    if limit is None or len(text) <= limit:
        return text
    limit = max(limit, 4)
    end = text[len(text) - limit + 1 :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 <= slash <= len(end) // 2 else end)


# -- lines ---------------------------------------------------------------------------------------


def wrap(text: str, indent: int = 0, width: int | None = None) -> list[str]:
    """Wrap prose, with room for an indent; amounts stay on one line with their units."""
    text = re.sub(r"(?<=[0-9]) (?=(?:[KMGT]i?B|B|%)(?![A-Za-z]))", NO_BREAK, text)
    lines = textwrap.wrap(text, max(20, (width or DEFAULT_WIDTH) - indent), break_on_hyphens=False) or [""]
    return [line.replace(NO_BREAK, " ") for line in lines]


def wrap_items(items: Iterable[str], indent: int = 0, width: int | None = None) -> list[str]:
    """Wrap a comma-separated list without breaking an item."""
    text = ", ".join(item.replace(" ", NO_BREAK) for item in items)
    room = (width or DEFAULT_WIDTH) - indent
    lines = textwrap.wrap(text, max(1, room), break_on_hyphens=False, break_long_words=False)
    return [line.replace(NO_BREAK, " ") for line in lines]


def align(rows: list[list[str]], left: Iterable[int]) -> list[str]:
    """Join cells into aligned columns: those in `left` to the left, the others to the right.

    For any number of rows: `rich.table` takes 0.1 ms a cell.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    template = GAP.join(f"{{:{'<' if i in set(left) else '>'}{width}}}" for i, width in enumerate(widths))
    return [template.format(*row).rstrip() for row in rows]
