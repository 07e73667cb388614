"""Rows of `live_set` for people: a buffer's bytes, place in the model, shape and name, in two lines or in one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..dump import Dump
from . import console
from .program import Row

if TYPE_CHECKING:
    from rich.text import Text

SIZES = 11
"""Columns taken by a size."""
ROOMY = 140
"""From this width on a buffer takes one line."""

KINDS = {"live_out": "output", "temp_in_output": "temporary in an output's space"}
"""Categories whose names say too little to people."""

MOVES = re.compile("copy|bitcast|reshape|transpose|get-tuple-element|async-|slice|tuple$")
"""Opcodes that pass bytes on."""
OPERAND = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.-]*)\s*(?:[,#]|$)")


def trace(dump: Dump, rows: list[Row]) -> None:
    """Give each row without op_name the key `origin`: what its instruction moves, or whose place it takes."""
    import pyarrow.compute as pc

    todo = [row for row in rows if not row["op_name"] and row["instruction"]]
    if not todo:
        return
    table = dump.instructions
    places = {name: i for i, name in reversed(list(enumerate(table["instruction"].to_pylist())))}
    for row in todo:
        at, name = places.get(row["instruction"]), None
        moved = None
        for _ in range(6):
            if at is None or name or not MOVES.match(table["opcode"][at].as_py()):
                break
            operand = OPERAND.search(table["operands"][at].as_py())
            if operand is None:
                break
            moved = operand[1]
            # Of an asynchronous pair only the start defines a value.
            at = places.get(moved, places.get(moved.replace("-done", "-start")))
            name = None if at is None else table["op_name"][at].as_py()
        if not name and row["category"] in ("parameter", "donated", "temp_in_output"):
            inside = dump.values.filter(pc.equal(dump.values["allocation"], row["allocation"]))[
                "instruction"
            ].to_pylist()
            found = [places[i] for i in inside if i in places and i != row["instruction"]]
            named = [table["op_name"][i].as_py() for i in found if table["opcode"][i].as_py() == "parameter"]
            if named and named[0]:
                row["origin"] = f"in the place of {named[0]}"
                continue
        if moved:
            row["origin"] = f"{row['instruction']} of {name or moved}"


def source_of(row: Row, room: int | None = None, *, wide: bool = False) -> str:
    """file:line; of the file only its name, with its folder where there is room."""
    file, line = row["source_file"], row["source_line"]
    if not file:
        return ""
    end = f":{line}" if line else ""
    text = console.visible(f"{file}{end}")
    if wide or room is None or len(text) <= room:
        return text
    folder = "…/" + "/".join(text.split("/")[-2:])
    return folder if len(folder) <= room else console.shortened(text.rsplit("/", 1)[-1], room)


def plain_shape(shape: str | None) -> str:
    """A shape without its layout."""
    if not shape:
        return ""
    out, depth = [], 0
    for c in shape:
        depth += c == "{"
        if not depth:
            out.append(c)
        depth -= c == "}"
    return "".join(out)


def value_of(row: Row) -> str:
    """The value's name, as XLA prints it."""
    index = row["shape_index"]
    return f"{row['instruction'] or '?'}{index if index and index != '{}' else ''}"


def scope_of(row: Row) -> str:
    return console.visible(row["op_name"] or row.get("origin") or "").replace("\n", "\\n")


def padding_of(row: Row) -> int:
    """Bytes of padding in a row of `live_set`; those of a reserved row are of the allocation's value."""
    if row["unpadded_size"] is None or row["role"] != "value":
        return 0
    size, plain = int(row["size"]), int(row["unpadded_size"])
    return max(0, size - plain)


def _note(b: Row) -> str:
    """What a buffer is, besides its shape and name."""
    padding = padding_of(b)
    kind: str = b["category"]
    said = [KINDS.get(kind, kind)]
    if b["role"] == "reserved":
        said.append("held, not live now")
    elif b.get("shared") and b["bytes"] < b["size"]:
        said.append(f"shares {console.size(b['size'] - b['bytes'])}")
    if padding:
        said.append(f"{console.size(padding)} padding")
    return ", ".join(said)


def two_lines(rows: list[Row], width: int) -> list[Text]:
    """Bytes, scope and source line; below them shape, value and what it is."""
    from rich.text import Text

    texts = []
    indent = 2 + SIZES + 2
    for b in rows:
        room = width - indent
        source = source_of(b, min(30, room // 2))
        scope, value = scope_of(b), value_of(b)
        if not scope:
            scope, value = value, ""
        space = room - len(source) - 2 if source else room
        head = console.tail(scope, space)
        gap = " " * max(2, room - len(head) - len(source)) if source else ""
        texts.append(
            Text.assemble("  ", (console.size(b["bytes"]).rjust(SIZES), "bold"), "  ", head, gap, (source, "green"))
        )
        note = _note(b)
        shape = console.shortened(plain_shape(b["shape"]), max(12, room - len(note) - 22))
        value = console.shortened(value, max(9, room - len(shape) - len(note) - 4))
        parts = console.GAP.join(filter(None, [shape, value, ""]))
        texts.append(
            Text.assemble(" " * indent, (f"{parts}  ", "dim"), (note, "yellow" if "padding" in note else "dim"))
        )
    return texts


def one_line(rows: list[Row], width: int | None, *, wide: bool) -> list[Text]:
    """The same in columns."""
    from rich.text import Text

    cells = []
    for b in rows:
        shape, value = plain_shape(b["shape"]) if not wide else b["shape"] or "", value_of(b)
        if width is not None:
            shape, value = console.shortened(shape, 24), console.shortened(value, 24)
        source = source_of(b, None if width is None else 28, wide=wide)
        padding = padding_of(b)
        kind = _note(b).partition(",")[0] + (", held" if b["role"] == "reserved" else "")
        cells.append(
            [
                console.size(b["bytes"]),
                console.size(padding) if padding else "",
                scope_of(b),
                source,
                shape,
                value,
                kind,
            ]
        )
    heads = ["bytes", "padding" if any(c[1] for c in cells) else "", "scope", "source", "shape", "value", "what"]
    sizes = [max(len(row[i]) for row in [heads, *cells]) for i in range(len(heads))]
    if width is not None:
        fixed = sum(sizes) - sizes[2] + 2 * sum(1 for s in sizes if s) + 2
        sizes[2] = min(sizes[2], max(20, width - fixed))
    texts = []
    for row in [heads, *cells]:
        styles = ["dim"] * 7 if row is heads else ["bold", "yellow", "", "green", "dim", "dim", "dim"]
        row[2] = console.tail(row[2], sizes[2])
        parts: list[tuple[str, str]] = []
        for i, (text, size) in enumerate(zip(row, sizes, strict=True)):
            if size:
                parts.append(("  ", ""))
                parts.append((text.rjust(size) if i < 2 else text.ljust(size), styles[i]))
        line = Text.assemble(*parts)
        line.rstrip()
        texts.append(line)
    return texts
