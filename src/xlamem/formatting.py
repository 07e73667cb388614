"""Format numbers, names and prose for people."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

GAP = "  "
"""Space between columns."""
NO_BREAK = "\N{NO-BREAK SPACE}"
DEFAULT_WIDTH = 80
"""Width of prose if the width of the output is not limited."""

_DIGITS = re.compile(r"(\d+)")


def visible(text: str) -> str:
    """Escape every character that a terminal would interpret, except newlines."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """Escape every character that a terminal would interpret, including newlines."""
    return visible(text).replace("\n", "\\n")


# -- numbers -------------------------------------------------------------------------------------


UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
MAX_AMOUNT = 999.995
"""Amounts from here on, which would need four digits before the point, are shown in the next unit."""


def size(n: int | None) -> str:
    """Return bytes in binary units with two decimals: 1000.00 MiB is 0.98 GiB."""
    if n is None:
        return "?"
    if abs(n) < 1024:
        return f"{n} B"
    amount, unit = n / 1024, 0
    while abs(amount) >= MAX_AMOUNT and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.2f} {UNITS[unit]}"


def exact_size(n: int | None) -> str:
    """Return bytes in binary units, followed by the exact number."""
    if n is None:
        return "?"
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


# -- names that do not exist ---------------------------------------------------------------------


def natural_order(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in texts by value: night-9 before night-10."""
    return [(len(n := part.lstrip("0")), n) if part.isdecimal() else (-1, part) for part in _DIGITS.split(text)]


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar, whatever its case; None if none is similar."""
    import difflib  # for messages only

    lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(str(name).lower(), lower, n=1)
    return lower[found[0]] if found else None


def similar(names: str | Iterable[str], known: Iterable[str], listed: str = "there are") -> str:
    """Return a question with the known names that are most similar, or else a clause with all known names."""
    known = list(known)
    found = [closest(name, known) for name in ([names] if isinstance(names, str) else names)]
    if questions := [repr(name) for name in found if name is not None]:
        return f"did you mean {', '.join(questions)}?"
    return f"{listed} {', '.join(known) or 'none'}"


# -- shortening ----------------------------------------------------------------------------------


def shorten(text: str, limit: int | None) -> str:
    """Replace the middle of a text that is too long with an ellipsis."""
    if limit is None or len(text) <= (limit := max(limit, 9)):
        return text
    end = (limit - 1) // 2
    return f"{text[: limit - 1 - end]}…{text[-end:]}"


def shorten_path(text: str, limit: int | None) -> str:
    """Replace the beginning of a path or scope that is too long with an ellipsis, at a '/' if one is near."""
    if limit is None or len(text) <= (limit := max(limit, 4)):
        return text
    end = text[len(text) - limit + 1 :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 <= slash <= len(end) // 2 else end)


def shorten_distinct(texts: Iterable[str], limit: int | None) -> list[str]:
    """Shorten texts that are too long such that different texts stay different.

    The beginnings are cut off (the middle, if the last component of a path has more than twice the limit), or else the
    middles, or else all but the part where a text differs from those that are most similar to it.
    """
    texts = list(texts)
    if limit is None:
        return texts
    distinct = set(texts)
    for cut in (_shorten_component, shorten):
        shortened = {text: cut(text, limit) for text in distinct}
        if len(set(shortened.values())) == len(distinct):
            break
    else:
        shortened = _around_differences(sorted(distinct), max(limit, 4))
    return [shortened[text] for text in texts]


def _shorten_component(text: str, limit: int) -> str:
    """Shorten a path, but keep both ends of a last component of more than twice the limit."""
    is_long = len(text) - text.rfind("/") > 2 * limit
    return shorten(text, limit) if is_long else shorten_path(text, limit)


def _around_differences(texts: list[str], limit: int) -> dict[str, str]:
    """Shorten these sorted texts to what surrounds the characters at which they differ from others."""
    shared = [_n_shared(*pair) for pair in pairwise(texts)]
    result = {}
    for i, text in enumerate(texts):
        positions = {*accumulate(shared[i:], min), *accumulate(reversed(shared[:i]), min)}
        result[text] = _with_context(text, {min(p, len(text) - 1) for p in positions}, limit)
    return result


def _n_shared(text: str, other: str) -> int:
    """Return the number of characters with which both texts begin."""
    return next((i for i, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))


def _with_context(text: str, kept: set[int], limit: int) -> str:
    """Return the characters at these positions with as many neighbours as fit, and ellipses for the others."""
    if len(text) <= limit:
        return text
    result = _elided(text, kept)
    while True:
        kept = {q for p in kept for q in (p - 1, p, p + 1) if 0 <= q < len(text)}
        if len(longer := _elided(text, kept)) > limit:
            return result
        result = longer


def _elided(text: str, kept: set[int]) -> str:
    """Return the characters at these positions, with an ellipsis for each gap."""
    marks = "".join(c if i in kept else "\0" for i, c in enumerate(text))
    return re.sub("\0+", "…", marks)


def saving(lower: int, upper: int) -> str:
    """Return the bounds of what is saved, in bytes. A lower one of 0 or less is no promise, and is left out."""
    if lower == upper:
        return size(upper)
    return f"{size(lower)} to {size(upper)}" if lower > 0 else f"up to {size(upper)}"


def file_line(file: str | None, line: int | None, *, folder: bool = True) -> str:
    """Return a source line as ``model/train.py:41``, or without the folder; empty without a file."""
    if not file:
        return ""
    name = file if folder else re.split(r"[/\\]", file)[-1]
    return name if line is None else f"{name}:{line}"


def plain_shape(shape: str | None) -> str:
    """Return a shape without its layout."""
    characters, depth = [], 0
    for c in shape or "":
        depth += c == "{"
        if not depth:
            characters.append(c)
        depth -= c == "}"
    return "".join(characters)


# -- lines ---------------------------------------------------------------------------------------


def wrap(text: str, indent: int = 0, width: int | None = None) -> list[str]:
    """Wrap prose, with room for an indent; amounts stay on one line with their units."""
    text = re.sub(r"(?<=[0-9]) (?=(?:[KMGT]i?B|B|%)(?![A-Za-z]))", NO_BREAK, text)
    lines = textwrap.wrap(text, max(20, (width or DEFAULT_WIDTH) - indent), break_on_hyphens=False) or [""]
    return [line.replace(NO_BREAK, " ") for line in lines]


def wrap_path(text: str, indent: int = 0, width: int | None = None) -> list[str]:
    """Wrap a path or scope, if it is too long, after a '/' where possible."""
    room, lines = max(20, (width or DEFAULT_WIDTH) - indent), [""]
    for part in re.findall("[^/]*/|[^/]+$", text):
        if lines[-1] and len(lines[-1] + part) > room:
            lines.append("")
        lines[-1] += part
    return [short for line in lines for short in wrap(line, indent, width)]


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


# -- values of tables ----------------------------------------------------------------------------


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of an Arrow column; times that Python cannot represent as text."""
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError):  # nanoseconds, or years after 9999
        values = [_python_value(scalar) for scalar in column]
    return values


def _python_value(scalar: pa.Scalar) -> Any:
    import pyarrow as pa

    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        if isinstance(scalar, pa.ListScalar):
            return [_python_value(item) for item in scalar.values]
        if isinstance(scalar, pa.StructScalar):
            return {name: _python_value(item) for name, item in scalar.items()}
        if pa.types.is_timestamp(scalar.type):  # in UTC; with a zone, Arrow writes a wrong year for some
            scalar = scalar.cast(pa.timestamp(scalar.type.unit))
        return scalar.cast(pa.string()).as_py()
