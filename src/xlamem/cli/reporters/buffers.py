"""List buffers (rows of `live_set`) on two lines each, or in columns if the output is wide; groups on one line each."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ...compute.wording import move_of
from ...formatting import GAP, file_line, one_line, plain_shape, shorten, shorten_distinct, size, visible
from .labels import shorten_labels

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

ORIGIN_TEXTS = {
    "own": "the instruction that defines it",
    "argument": "an argument of the program",
    "operand": "the name is that of {}, from which its bytes come",
    "slot": "the name is that of {}, which writes to the same bytes",
    "hlo": "its bytes are written by {}, inside a fusion or loop (from the HLO text)",
    "user": "unknown; the name is that of {}, which reads it or what is computed from it",
    "none": "unknown",
}
CATEGORY_NAMES = {"live_out": "output", "temp_in_output": "temporary in an output's space"}
"""Categories that are shown under another name."""
CATEGORY_PLURALS = {
    "parameter": "parameters",
    "donated": "donated parameters",
    "live_out": "outputs",
    "constant": "constants",
    "temp": "temporaries",
    "temp_in_output": "temporaries in outputs",
}


def buffer_lines(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """Return the lines of these buffers."""
    if wide or width is None or width >= WIDE:
        return _in_columns(rows, width, wide=wide)
    return _two_lines(rows, width)


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


def source_lines(rows: list[Row], limit: int | None) -> list[str]:
    """Return file:line of each buffer, such that different lines stay different."""
    full, short = [source_line(row) for row in rows], [source_line(row, limit) for row in rows]
    return short if len(set(short)) == len(set(full)) else shorten_distinct(full, limit)


def shape_text(row: Row, *, wide: bool) -> str:
    """Return the shape, with a × after the number of slices if there is one for each iteration of a loop."""
    shape = (row["shape"] or "") if wide else plain_shape(row["shape"])
    n = row.get("iterations")
    return shape.replace(f"[{n},", f"[{n} × ", 1) if n and not wide else shape


def value_name(row: Row) -> str:
    """Return the name of a value as XLA prints it."""
    index = row["shape_index"]
    return f"{row['instruction'] or '?'}{index if index and index != '{}' else ''}"


def label(row: Row) -> str:
    """Return what people call a buffer or a group of `like_buffers`: the name of its place in the model, if it has one.

    Every list of buffers uses this. Without an op_name, it is the argument, or the name of the value. The name of a
    buffer that only moves the bytes of another begins with what it does: "copy of …".
    """
    name = row.get("name") or row["op_name"]
    if not name and row.get("argument") is not None:
        name = argument_name(row)
    if not name:
        return one_line(value_name(row))
    return one_line(f"{_relation(row)}{name}")


def argument_name(row: Row) -> str:
    index = row["argument_index"]
    return f"argument {row['argument']}{index if index and index != '{}' else ''}"


def _relation(row: Row) -> str:
    """Return how a buffer is related to its name, if the instruction that defines it does not have the name."""
    if row.get("origin") == "user":
        return "read by "
    move = move_of(row.get("opcode"))
    if row.get("origin") in ("operand", "argument") and move:
        return move
    # A fusion or a loop that moves or updates an argument has memory of its own.
    is_temp = row["category"] in ("temp", "temp_in_output")
    return "copy of " if is_temp and row.get("origin") == "argument" else ""


def origin_text(row: Row) -> str:
    """Return how the name of a buffer was found, in words."""
    source, argument = row["origin_instruction"], row["argument"]
    if argument is not None:
        text = f"{argument_name(row)} of the program"
        return text if row["origin"] == "own" else f"its bytes come from {text}"
    return ORIGIN_TEXTS[row["origin"]].format(source)


def padding_bytes(row: Row) -> int:
    """Return the padding of a value; rows with the role ``reserved`` have none."""
    if row["unpadded_size"] is None or row["role"] != "value":
        return 0
    return max(0, int(row["size"]) - int(row["unpadded_size"]))


def category_name(category: str, *, plural: bool = False) -> str:
    return (CATEGORY_PLURALS if plural else CATEGORY_NAMES).get(category, category)


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


# -- two lines per buffer ------------------------------------------------------------------------


def _two_lines(rows: list[Row], width: int) -> list[Text]:
    """Return two lines per buffer: bytes, name and source line; shape, value and notes."""
    indent = 2 + SIZE_WIDTH + 2
    room = width - indent
    sources = source_lines(rows, min(30, room // 2))
    labels = shorten_labels(map(label, rows), room - max((len(s) + 2 for s in sources if s), default=0))
    lines = []
    for row, name, source in zip(rows, labels, sources, strict=True):
        value = value_name(row) if row["op_name"] else ""
        lines += [_name_line(row, name, source, room), _value_line(row, value, room, indent)]
    return lines


def _name_line(row: Row, name: str, source: str, room: int) -> Text:
    gap = " " * max(2, room - len(name) - len(source)) if source else ""
    return Text.assemble("  ", (size(row["bytes"]).rjust(SIZE_WIDTH), "bold"), "  ", name, gap, (source, "green"))


def _value_line(row: Row, value: str, room: int, indent: int) -> Text:
    notes = _notes(row)
    shape = shorten(shape_text(row, wide=False), max(12, room - len(notes) - 22))
    value = shorten(value, max(9, room - len(shape) - len(notes) - 4))
    names = GAP.join(filter(None, [shape, value, ""]))
    return Text.assemble(" " * indent, (f"{names}  ", "dim"), (notes, "yellow" if "padding" in notes else "dim"))


# -- columns -------------------------------------------------------------------------------------


HEADINGS = ("bytes", "padding", "scope", "source", "shape", "value", "category")
STYLES = ("bold", "yellow", "", "green", "dim", "dim", "dim")
N_NUMBERS = 2
"""Names of the first columns, which are aligned to the right."""
SCOPE = HEADINGS.index("scope")


def _in_columns(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """Return columns. Only the scope shrinks, such that different scopes stay different."""
    cells = [_cells(row, width, wide=wide) for row in rows]
    headings = [h if h != "padding" or any(c[1] for c in cells) else "" for h in HEADINGS]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    if width is not None:
        others = sum(widths) - widths[SCOPE] + 2 * sum(1 for w in widths if w) + 2
        widths[SCOPE] = min(widths[SCOPE], max(MIN_SCOPE_WIDTH, width - others))
        for row, name in zip(cells, shorten_labels([row[SCOPE] for row in cells], widths[SCOPE]), strict=True):
            row[SCOPE] = name
    lines = [_columns(headings, widths, ("dim",) * len(HEADINGS))]
    return lines + [_columns(row, widths, STYLES) for row in cells]


def _cells(row: Row, width: int | None, *, wide: bool) -> list[str]:
    shape, value = shape_text(row, wide=wide), value_name(row)
    if width is not None:
        shape, value = shorten(shape, TEXT_WIDTH), shorten(value, TEXT_WIDTH)
    source = source_line(row, None if wide or width is None else SOURCE_WIDTH)
    padding = padding_bytes(row)
    category = category_name(row["category"]) + (", reserved" if row["role"] == "reserved" else "")
    return [size(row["bytes"]), size(padding) if padding else "", label(row), source, shape, value, category]


def _columns(cells: list[str], widths: list[int], styles: tuple[str, ...]) -> Text:
    line = Text()
    for i, (cell, width, style) in enumerate(zip(cells, widths, styles, strict=True)):
        if width:
            line.append(GAP).append(cell.rjust(width) if i < N_NUMBERS else cell.ljust(width), style)
    line.rstrip()
    return line


# -- one line per group --------------------------------------------------------------------------

NAME, ABOUT, SOURCE = range(3)
SHRINKING = ((ABOUT, 26), (SOURCE, 14), (NAME, 22), (ABOUT, 20), (NAME, 18), (ABOUT, 9), (NAME, 9), (SOURCE, 0))
"""Columns that shrink if they do not fit, in this order, and the widths to which they may."""
SHORT_CATEGORIES = {"live_out": "output", "temp_in_output": "in an output", "constant": "constant"}
"""Categories that are mentioned."""
MIN_SHAPE = 9
"""Minimum width of a shape before what follows it."""
MIN_PADDING = 0.1
"""Minimum share of padding that is mentioned."""


def group_lines(groups: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """Return one line for each group of `like_buffers`: bytes, number, name, shape with notes, source line."""
    numbers = [f"{g['n']:,}× " if g["n"] > 1 else "" for g in groups]
    start = max(map(len, numbers), default=0)
    starts = [f"  {size(g['bytes']).rjust(SIZE_WIDTH)}  {n.rjust(start)}" for g, n in zip(groups, numbers, strict=True)]
    room = None if width is None else width - SIZE_WIDTH - start - 8
    columns = [[label(g) for g in groups], _abouts(groups, wide=wide), _sources(groups, width)]
    lengths = _lengths(columns)
    if room is not None and sum(lengths) > room:
        columns[ABOUT] = _abouts(groups, wide=wide, short=True)
        lengths = _fitted(_lengths(columns), room)
        shortened = shorten_labels, shorten_distinct, shorten_distinct
        columns = [f(c, n) if n else [""] * len(c) for f, c, n in zip(shortened, columns, lengths, strict=True)]
        others = _lengths([columns[NAME], columns[SOURCE]])  # cut at a slash, they may leave some of their room
        columns[ABOUT] = _abouts(groups, max(lengths[ABOUT], room - sum(others)), wide=wide, short=True)
        lengths = _lengths(columns)
    return [_group_line(start, cells, lengths) for start, *cells in zip(starts, *columns, strict=True)]


def _lengths(columns: list[list[str]]) -> list[int]:
    return [max(map(len, column), default=0) for column in columns]


def _group_line(start: str, cells: list[str], lengths: list[int]) -> Text:
    name, about, source = cells
    style = "yellow" if "padding" in about else "dim"
    styled = (about.ljust(lengths[ABOUT]), style), GAP, (source, "green")
    line = Text.assemble(start, name.ljust(lengths[NAME]), GAP, *styled)
    line.rstrip()
    return line


def _fitted(lengths: list[int], room: int) -> list[int]:
    """Return the widths of the columns after they shrink to the room."""
    for i, least in SHRINKING:
        if (excess := sum(lengths) - room) > 0:
            lengths[i] = max(min(lengths[i], least), lengths[i] - excess)
    return lengths


def _abouts(groups: list[Row], limit: int | None = None, *, wide: bool, short: bool = False) -> list[str]:
    return [_about(group, limit, wide=wide, short=short) for group in groups]


def _about(group: Row, limit: int | None = None, *, wide: bool, short: bool = False) -> str:
    """Return the shape of the largest buffer of a group, the number of other shapes, category and padding.

    If they do not fit, the shape is cut, and where little of it is left, the others are left out.
    """
    shape, n_others = shape_text(group, wide=wide), group["n_shapes"] - 1
    gradient = ("grad" if short else "gradient") if group.get("kind") == "gradient" else ""
    notes = SHORT_CATEGORIES.get(group["category"], gradient)
    padding = padding_bytes(group)
    if not n_others and padding and padding >= MIN_PADDING * group["size"]:  # an empty buffer has none
        notes = f"{100 * padding / group['size']:.0f} % padding"
    others = (f"+{n_others:,}" if shape else f"{n_others + 1:,} shapes") if n_others else ""
    for kept in ([others, notes], [others], []):
        rest = " ".join(filter(None, kept))
        room = len(shape) if limit is None else limit - (len(rest) + 1 if rest else 0)
        if room >= min(len(shape), MIN_SHAPE):
            break
    if len(shape) > room:
        shape = f"{shape[: room - 1]}…" if room > 4 else ""
    return " ".join(filter(None, [shape, rest]))


def _sources(groups: list[Row], width: int | None) -> list[str]:
    """Return file:line of each group: if the width is limited without directories, unless files differ only in them."""
    full = [source_line(g) for g in groups]
    names = [text.rsplit("/", 1)[-1] for text in full]
    if width is None or len(set(names)) == len(set(full)):
        return full if width is None else names
    return source_lines(groups, SOURCE_WIDTH)


def call_text(call: Row) -> str:
    """Return file, line and function of a call."""
    function = (call["function"] or "").rpartition("<locals>.")[2]
    return one_line(file_line(call["file"], call["line"], folder=False) + (f" ({function})" if function else ""))
