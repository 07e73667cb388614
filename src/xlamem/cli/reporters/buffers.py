"""List buffers (rows of `live_set`) on two lines each, or in columns if the output is wide."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ...formatting import GAP, one_line, shorten, shorten_path, size, visible

Row = dict[str, Any]

SIZE_WIDTH = 11
"""Width of a size."""
WIDE = 140
"""Minimum width of the output for one line per buffer."""
SOURCE_WIDTH = 28
"""Maximum width of file and line."""
TEXT_WIDTH = 24
"""Maximum width of a shape or a name, if buffers are shown in columns."""
MIN_SCOPE_WIDTH = 20

CATEGORY_NAMES = {"live_out": "output", "temp_in_output": "temporary in an output's space"}
"""Categories that are shown under another name."""


def buffer_lines(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """Return the lines of these buffers."""
    if wide or width is None or width >= WIDE:
        return _in_columns(rows, width, wide=wide)
    return [line for row in rows for line in _two_lines(row, width)]


def more_line(left: int, text: str) -> Text:
    """Return the line that sums up the rows that are not listed."""
    return Text(f"  {size(left).rjust(SIZE_WIDTH)}  {text}", "dim")


# -- fields of a buffer --------------------------------------------------------------------------


def source_line(row: Row, width: int | None = None) -> str:
    """Return file:line, with as many directories as fit: all, one, or none."""
    file, line = row["source_file"], row["source_line"]
    if not file:
        return ""
    text = visible(f"{file}:{line}" if line else file)
    if width is None or len(text) <= width:
        return text
    short = "…/" + "/".join(text.split("/")[-2:])
    return short if len(short) <= width else shorten(text.rsplit("/", 1)[-1], width)


def plain_shape(shape: str | None) -> str:
    """Return a shape without its layout."""
    characters, depth = [], 0
    for c in shape or "":
        depth += c == "{"
        if not depth:
            characters.append(c)
        depth -= c == "}"
    return "".join(characters)


def value_name(row: Row) -> str:
    """Return the name of a value as XLA prints it."""
    index = row["shape_index"]
    return f"{row['instruction'] or '?'}{index if index and index != '{}' else ''}"


def scope_name(row: Row) -> str:
    """Return the op_name of a buffer, or else its origin, or else an empty string."""
    return one_line(row["op_name"] or row.get("origin") or "")


def padding_bytes(row: Row) -> int:
    """Return the padding of a value; rows with the role ``reserved`` have none."""
    if row["unpadded_size"] is None or row["role"] != "value":
        return 0
    return max(0, int(row["size"]) - int(row["unpadded_size"]))


def category_name(category: str) -> str:
    return CATEGORY_NAMES.get(category, category)


def _notes(row: Row) -> str:
    """Return category, sharing and padding."""
    notes = [category_name(row["category"])]
    if row["role"] == "reserved":
        notes.append("reserved, not live")
    elif row.get("shared") and row["bytes"] < row["size"]:
        notes.append(f"shares {size(row['size'] - row['bytes'])}")
    if padding := padding_bytes(row):
        notes.append(f"{size(padding)} padding")
    return ", ".join(notes)


# -- lines ---------------------------------------------------------------------------------------


def _two_lines(row: Row, width: int) -> list[Text]:
    """Return two lines: bytes, scope and source line; shape, value and notes."""
    indent = 2 + SIZE_WIDTH + 2
    room = width - indent
    scope, value = scope_name(row), value_name(row)
    if not scope:
        scope, value = value, ""
    return [_scope_line(row, scope, room), _value_line(row, value, room, indent)]


def _scope_line(row: Row, scope: str, room: int) -> Text:
    source = source_line(row, min(30, room // 2))
    scope = shorten_path(scope, room - len(source) - 2 if source else room)
    gap = " " * max(2, room - len(scope) - len(source)) if source else ""
    return Text.assemble("  ", (size(row["bytes"]).rjust(SIZE_WIDTH), "bold"), "  ", scope, gap, (source, "green"))


def _value_line(row: Row, value: str, room: int, indent: int) -> Text:
    notes = _notes(row)
    shape = shorten(plain_shape(row["shape"]), max(12, room - len(notes) - 22))
    value = shorten(value, max(9, room - len(shape) - len(notes) - 4))
    names = GAP.join(filter(None, [shape, value, ""]))
    return Text.assemble(" " * indent, (f"{names}  ", "dim"), (notes, "yellow" if "padding" in notes else "dim"))


HEADINGS = ("bytes", "padding", "scope", "source", "shape", "value", "category")
STYLES = ("bold", "yellow", "", "green", "dim", "dim", "dim")
N_NUMBERS = 2
"""Names of the first columns, which are aligned to the right."""
SCOPE = HEADINGS.index("scope")


def _in_columns(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """Return columns. Only the scope shrinks, at its beginning, whereas `rich.table` shortens cells at their end."""
    cells = [_cells(row, width, wide=wide) for row in rows]
    headings = [h if h != "padding" or any(c[1] for c in cells) else "" for h in HEADINGS]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if width is not None:
        others = sum(widths) - widths[SCOPE] + 2 * sum(1 for w in widths if w) + 2
        widths[SCOPE] = min(widths[SCOPE], max(MIN_SCOPE_WIDTH, width - others))
    lines = [_columns(headings, widths, ("dim",) * len(HEADINGS))]
    return lines + [_columns(row, widths, STYLES) for row in cells]


def _cells(row: Row, width: int | None, *, wide: bool) -> list[str]:
    shape, value = (row["shape"] or "") if wide else plain_shape(row["shape"]), value_name(row)
    if width is not None:
        shape, value = shorten(shape, TEXT_WIDTH), shorten(value, TEXT_WIDTH)
    source = source_line(row, None if wide or width is None else SOURCE_WIDTH)
    padding = padding_bytes(row)
    category = category_name(row["category"]) + (", reserved" if row["role"] == "reserved" else "")
    return [size(row["bytes"]), size(padding) if padding else "", scope_name(row), source, shape, value, category]


def _columns(cells: list[str], widths: list[int], styles: tuple[str, ...]) -> Text:
    line = Text()
    for i, (cell, width, style) in enumerate(zip(cells, widths, styles, strict=True)):
        if width:
            cell = shorten_path(cell, width) if i == SCOPE else cell
            line.append(GAP).append(cell.rjust(width) if i < N_NUMBERS else cell.ljust(width), style)
    line.rstrip()
    return line
