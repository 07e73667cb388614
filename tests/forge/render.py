"""Write memory dumps again, byte for byte, from their tables alone.

The inverse of the reader: `render(tables)` takes rows as `pyarrow.Table.to_pylist()` gives them
(`instructions` with `text`) and returns the bytes of each memory file. A dump that comes back
equal has lost nothing on its way into the tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

Row = dict[str, Any]
Tables = Mapping[str, list[Row]]

UNAVAILABLE = "HloLiveRange not available (finalized or constructed from proto)"
HEAD = "cumulative_size;       size;       offset; used_by_n_values; shapes_list"
LIST_HEAD = "cumulative_size; total_size - cumulative_size; allocation"


def render(tables: Tables) -> dict[str, bytes]:
    """The memory files of a complete dump, role -> bytes; the HLO text is left out."""
    return render_dump(Dump(tables))


def render_dump(dump: Dump) -> dict[str, bytes]:
    render_role = {
        "buffer-assignment": _assignment,
        "buffer-assignment-values": lambda d: _used_values(d) if d.used else "",
        "live-range": _live_range,
        "memory-usage-report": _report,
    }
    files = {}
    unknown = _by(dump.tables.get("unknown_text", []), "file")
    for row in dump.tables["files"]:
        if row["role"] in render_role:
            data = _with_unknown("".join(render_role[row["role"]](dump)).encode(), unknown[row.get("uri")])
            files[row["role"]] = data.replace(b"\n", b"\r\n") if "crlf" in _features(row) else data
    return files


def _with_unknown(data: bytes, rows: list[Row]) -> bytes:
    """Text that the reader did not know, put back where it stood."""
    parts: list[bytes] = []
    taken = length = 0
    for row in sorted(rows, key=lambda row: row["offset"]):
        known = data[taken : taken + row["offset"] - length]
        parts += known, row["text"].encode()
        taken, length = taken + len(known), row["offset"] + len(parts[-1])
    return b"".join([*parts, data[taken:]])


def human(size: int) -> str:
    """A size as XLA prints it for people: divided with truncation, then one or two decimals."""
    sign, size = ("-", -size) if size < 0 else ("", size)
    if size < 1024:
        return f"{sign}{size}B"
    units = iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    while size >= 1024 * 1024:
        size //= 1024
        unit = next(units)
    return f"{sign}{size / 1024:.{1 if unit == 'KiB' else 2}f}{unit}"


def spaced(number: int) -> str:
    """An integer with a blank every three digits."""
    return f"{number:,}".replace(",", " ")


def header(row: Row, color: int | None) -> str:
    """The short form of a value: `<ID NAME{index} (phi) @color>`."""
    phi = " (phi)" if row["is_phi"] else ""
    at = "" if color is None else f" @{color}"
    return f"<{row['value_id']} {row['instruction']}{row['shape_index'] or ''}{phi}{at}>"


class Dump:
    """The tables with the joins that rendering needs."""

    def __init__(self, tables: Tables):
        self.tables = tables
        self.module = tables["modules"][0]
        self.features = _features(self.module)
        self.roles = {row["role"] for row in tables["files"]}
        self.used = bool(self.features & {"values_inline", "values_split"})
        self._positions = _by(tables["positions"], "value_id")
        self._uses = _by(tables["uses"], "value_id")
        # The first text of a name is its text; a differing one has a diagnostic.
        self._instructions = {row["instruction"]: row["text"] for row in reversed(tables["instructions"])}

    def positions(self, value: Row) -> str:
        return "".join(f"  {p['instruction']}{_index(p['shape_index'])}\n" for p in self._positions[value["value_id"]])

    def uses(self, value: Row) -> str:
        return "".join(
            f"  {u['instruction']}, operand {u['operand']}{_index(u['operand_shape_index'])}\n"
            for u in self._uses[value["value_id"]]
        )

    def instruction(self, value: Row) -> str:
        return self._instructions[value["instruction"]]


def _features(row: Row) -> set[str]:
    return set((row["features"] or "").split(","))


def _by(rows: Iterable[Row], key: str) -> dict[Any, list[Row]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


# ---------------------------------------------------------------- allocations and values


def _assignment(dump: Dump) -> str:
    parts = ["".join(_allocation_section(dump))]
    if "values_inline" in dump.features:
        parts.append(_used_values(dump))
    if "live_inline" in dump.features:
        parts.append("\n\n" + _live_range(dump))
    return "".join(parts)


def allocation_line(row: Row, size: str) -> str:
    """The head of an allocation, with its size exact or for people."""
    parts = [f"allocation {row['allocation']}: "]
    parts.append(f"{row['address']}, size {size}" if row["address"] else f"size {size}")
    if row["color"]:
        parts.append(f"color {row['color']}")
    if row["page"] is not None:
        parts.append(f"page {row['page']}")
    if row["is_parameter"]:
        text = f"parameter {row['parameter_number']}"
        if row["parameter_shape"] is not None:
            text += f", shape |{row['parameter_shape']}|"
        if row["parameter_shape_index"] is not None:
            text += f" at ShapeIndex {row['parameter_shape_index']}"
        parts.append(text)
    if row["output_shape"] is not None:
        parts.append(f"output shape is |{row['output_shape']}|")
    flags = {
        "is_constant": "constant",
        "is_thread_local": "thread-local",
        "is_live_out": "maybe-live-out",
        "is_temp": "preallocated-temp",
    }
    parts.extend(word for column, word in flags.items() if row[column])
    return parts[0] + ", ".join(parts[1:]) + ":\n"


def _allocation_section(dump: Dump) -> Iterator[str]:
    values = _by(dump.tables["values"], "allocation")
    cross = _by(dump.tables["cross_color"], "allocation")
    if "e0_values" in dump.features:
        value_text = _e0_value
    elif "e1_values" in dump.features:
        value_text = _e1_value
    else:
        value_text = _value
    yield "BufferAssignment:\n"
    for allocation in dump.tables["allocations"]:
        yield allocation_line(allocation, str(allocation["size"]))
        for value in values[allocation["allocation"]]:
            yield value_text(dump, value)
        if block := cross[allocation["allocation"]]:
            yield " reused by buffers of a different color:\n"
            for row in block:
                yield f"  value: {header(row, row['value_color'])} (color={row['printed_color']})\n"


def _value(_: Dump, row: Row) -> str:
    return f" value: {header(row, row['color'])} (size={row['size']},offset={row['offset']}): {row['shape']}\n"


def _e0_value(_: Dump, row: Row) -> str:
    index = (row["shape_index"] or "").strip("{}[]")
    color = "" if row["color"] is None else f" @{row['color']}"
    place = f"[{row['offset']},{row['size']}]"
    return f"  {row['instruction']}[{index}](#{row['value_id']}{color}) {place}: {row['shape']}\n"


def _e1_value(dump: Dump, row: Row) -> str:
    phi = "PHI " if row["is_phi"] else ""
    color = -1 if row["color"] is None else row["color"]
    head = f"  {row['value_id']} {phi}{row['instruction']}{row['shape_index'] or ''} @{color}, positions:\n"
    place = f" [{row['offset']},{row['size']}]: {row['shape']}\n"
    return head + dump.positions(row) + " uses:\n" + dump.uses(row) + place


def _index(index: str | None) -> str:
    return "" if index is None else f" {index}"


def _used_values(dump: Dump) -> str:
    total = dump.module["total_bytes"]
    people = f" ({human(total)})" if "human_total" in dump.features else ""
    parts = [f"\nTotal bytes used: {total}{people}\n\nUsed values:\n"]
    blank = " " if "from_instruction_blank" in dump.features else ""
    end = "" if "glued" in dump.features else "\n"
    nobody = "  (none)\n" if "uses_none" in dump.features else ""
    for value in sorted(dump.tables["values"], key=lambda v: v["value_id"]):
        parts.append(f"{header(value, value['color'])}\n positions:\n{dump.positions(value)}")
        if value["uses_known"]:
            parts.append(" uses:\n" + (dump.uses(value) or nobody))
        else:
            parts.append(" uses are not initialized yet.\n")
        if "from_instruction" in dump.features:
            text = dump.instruction(value)
            percent = "" if text.startswith("%") else "%"
            parts.append(f" from instruction:{blank}{percent}{text}{end}")
    return "".join(parts)


# ---------------------------------------------------------------- live ranges


def _live_range(dump: Dump) -> str:
    if "live_unavailable" in dump.features:
        return UNAVAILABLE
    tables, module = dump.tables, dump.module
    parts = [f"HloLiveRange (max {module['schedule_length']}):\n", "  InstructionSequence:\n"]
    parts.extend(f"    {s['time']}:{s['instruction']}\n" for s in tables["schedule"])
    parts.append("  BufferLiveRange:\n")
    for r in tables["live_ranges"]:
        parts.append(f"    {r['instruction']}{r['shape_index'] or '{}'}:{r['start']}-{r['end']}\n")
    parts.append(f"  Live ranges at {module['printed_peak_time']} (peak):\n")
    none = "" if "peak_a" in dump.features else "{}"
    for row in tables["printed_peak"]:
        total = "" if row["cumulative"] is None else f" (cumulative: {row['cumulative']} bytes)"
        parts.append(f"    {row['instruction']}{row['shape_index'] or none}: {row['bytes']} bytes{total}\n")
    if "tree" in dump.features:
        parts.extend(_tree(tables["printed_stack"], spaced if "tree_spaced" in dump.features else str))
    return "".join(parts)


def connectors(depths: list[int]) -> list[str]:
    """What stands before each label of a tree, drawn from the depths alone."""
    drawn = []
    open_below: set[int] = set()  # depths at which another sibling follows
    for depth in reversed(depths):
        if depth == 0:
            # Roots have no sign of their own.
            drawn.append("    ")
        else:
            bars = "".join("│   " if d in open_below else "    " for d in range(1, depth))
            drawn.append("      " + bars + ("├── " if depth in open_below else "└── "))
        open_below = {d for d in open_below if d < depth} | {depth}
    return drawn[::-1]


def _tree(nodes: list[Row], number: Any) -> Iterator[str]:
    roots = sum(n["total"] for n in nodes if n["depth"] == 0)
    yield f"  Stack trace breakdown for peak usage: {number(roots)} bytes\n"
    for node, drawn in zip(nodes, connectors([n["depth"] for n in nodes]), strict=True):
        sizes = ", ".join(f"{word}: {number(node[word])} bytes" for word in ("total", "current", "remaining"))
        yield f"{drawn}{node['label']} ({node['percent']}%, {sizes})\n"


# ---------------------------------------------------------------- memory-usage report


def _report(dump: Dump) -> str:
    return "".join(_report_a(dump) if "report_a" in dump.features else _report_b(dump))


def _report_a(dump: Dump) -> Iterator[str]:
    line = {a["allocation"]: allocation_line(a, human(a["size"])) for a in dump.tables["allocations"]}
    rows = dump.tables["printed_report"]
    total = rows[0]["total_bytes"] if rows else dump.module["total_bytes"]
    yield f"Total bytes used: {total} ({human(total)})\n\nAllocations sorted by size:\n\n{LIST_HEAD}\n{'-' * 78}\n"
    tables = next((i for i, row in enumerate(rows) if row["part"] == "table"), len(rows))
    for row in rows[:tables]:
        if row["part"] == "rest":
            yield _rest(row, "allocations")
        else:
            shares = f"{row['cumulative']:>10}({row['percent']:>3}%); {row['remaining']:>10}"
            yield f"{shares}; {line[row['allocation']]}"
    yield "\n\nAllocations sorted by size with their values:\n"
    open_table = False
    for row in rows[tables:]:
        if row["part"] == "table":
            if open_table:
                yield "\n"
            yield line[row["allocation"]]
            open_table = row["n_values"] != 1
            if open_table:
                yield "\n" + _table_head("\t")
        else:
            yield _table_line(row, "\t")
    if open_table:
        yield "\n"


def _report_b(dump: Dump) -> Iterator[str]:
    for _, space in groupby(dump.tables["printed_report"], key=lambda row: row["color"]):
        rows = list(space)
        total = rows[0]["total_bytes"]
        yield f"Memory Space: {rows[0]['space_label']} (color={rows[0]['color']})\n"
        yield f"Total bytes: {total} ({human(total)})\n"
        open_table = False
        for row in rows:
            if row["part"] == "table":
                if open_table:
                    yield "\n"
                open_table = True
                yield _table_head("  ")
            elif row["part"] != "space":
                yield _table_line(row, "  ")
        yield "\n\n" if open_table else "\n"


def _table_head(indent: str) -> str:
    return f"{indent}{HEAD}\n{indent}{'-' * 60}\n"


def _table_line(row: Row, indent: str) -> str:
    if row["part"] == "rest":
        return indent + _rest(row, "values")
    shares = f"{row['cumulative']:>9}({row['percent']:>3}%); {row['size']:>10}"
    return f"{indent}{shares}; {row['offset']:>12}; {row['n_values']:>16}; {row['shapes']}\n"


def _rest(row: Row, what: str) -> str:
    return f"The rest {row['n_rest']} {what} are less than 5% of the total size and not shown.\n"
