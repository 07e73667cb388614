"""A reader in pure Python: the memory files of one dump, line by line, with `re`.

The native reader is compared with it. It reads the same columns from complete dumps of 2020 (E2) to today (E7), without
checks. It counts and skips lines that it does not understand, and imports nothing from xlamem.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Columns = dict[str, list[Any]]

COLUMNS = {
    "allocations": "allocation size color memory_space page address parameter_number parameter_shape_index "
    "parameter_shape output_shape is_parameter is_entry_root is_constant is_thread_local is_live_out is_temp",
    "values": "value_id instruction shape_index is_phi color allocation offset size shape element_type "
    "unpadded_size uses_known",
    "cross_color": "allocation ordinal value_id instruction shape_index is_phi value_color printed_color",
    "positions": "value_id ordinal instruction shape_index",
    "uses": "value_id ordinal instruction operand operand_shape_index",
    "instructions": "instruction shape opcode operands op_type op_name source_file source_line stack_frame_id "
    "custom_call_target fusion_kind called_computations sharding backend_config attributes",
    "schedule": "time instruction",
    "live_ranges": "value_id instruction shape_index start end",
    "printed_peak": "ordinal instruction shape_index bytes cumulative",
    "printed_stack": "ordinal depth label percent total current remaining",
    "printed_report": "ordinal part color space_label total_bytes allocation cumulative percent size remaining "
    "offset n_values n_rest shapes",
}
INTEGERS = (
    "allocation size color page parameter_number value_id offset unpadded_size ordinal value_color printed_color"
    " operand source_line stack_frame_id time start end bytes cumulative depth total current remaining total_bytes"
    " n_values n_rest"
)
"""Columns of numbers. Those in HUMAN are text in the report."""
HUMAN = {"cumulative", "size", "remaining"}

SPACES = {
    "tpu": {0: "hbm", 1: "vmem", 2: "sflag", 3: "cmem", 4: "smem", 5: "host"},
    "gpu": {0: "device", 1: "collective", 2: "temp", 5: "host"},
    "cpu": {0: "memory", 5: "host"},
}

NAME = r"([A-Za-z_][\w.-]*)"
INDEX = r"(\{[-\d,]*\})"
SHORT = rf"<(\d+) {NAME}{INDEX}?( \(phi\))?(?: @(-?\d+))?>"
SPACED = r"(-?\d[\d ]*)"
SIZE = r"(-?[\d.]+(?:[KMGTPE]i)?B)"
FLAGS = (
    r"(?:, color (\d+))?(?:, page (\d+))?"
    rf"(?:, parameter (\d+)(?:(?:, shape \|([^|]*)\|)? at ShapeIndex {INDEX})?)?(?:, output shape is \|([^|]*)\|)?"
    r"(, constant)?(, thread-local)?(, maybe-live-out)?(, preallocated-temp)?:$"
)

allocation_line = re.compile(rf"allocation (\d+): (?:(0x[\da-f]+|\(nil\)), )?size (\d+){FLAGS}", re.ASCII).match
value_line = re.compile(rf" value: {SHORT} \(size=(-?\d+),offset=(-?\d+)\): (.*)$", re.ASCII).match
cross_line = re.compile(rf"  value: {SHORT} \(color=(-?\d+)\)$", re.ASCII).match
record_line = re.compile(rf"{SHORT}$", re.ASCII).match
position_line = re.compile(rf"  {NAME}(?: {INDEX})?$", re.ASCII).match
use_line = re.compile(rf"  {NAME}, operand (\d+)(?: {INDEX})?$", re.ASCII).match
instruction_line = re.compile(r" from instruction: ?(.*)$").match
glued_record = re.compile(rf"{SHORT}$", re.ASCII).search
step_line = re.compile(rf"    (\d+):{NAME}$", re.ASCII).match
range_line = re.compile(rf"    {NAME}{INDEX}:(-?\d+)-(-?\d+)$", re.ASCII).match
peak_line = re.compile(rf"    {NAME}{INDEX}?: (\d+) bytes(?: \(cumulative: (\d+) bytes\))?$", re.ASCII).match
node_line = re.compile(
    r"(.*) \((-?(?:[\d.]+|nan|inf))%, "
    rf"total: {SPACED} bytes, current: {SPACED} bytes, remaining: {SPACED} bytes\)$",
    re.ASCII | re.DOTALL,
).match
branch = re.compile(r"  ((?:    |│   )*)(?:├── |└── )(.*)$", re.DOTALL).match
space_line = re.compile(r"Memory Space: (.*) \(color=(\d+)\)$").match
total_line = re.compile(r"Total bytes(?: used)?: (\d+)").match
list_line = re.compile(rf" *{SIZE}\( *(\S+)%\); *{SIZE}; allocation (\d+): size {SIZE}", re.ASCII).match
table_line = re.compile(rf"allocation (\d+): size {SIZE}", re.ASCII).match
row_line = re.compile(rf"\s+{SIZE}\( *(\S+)%\); *{SIZE}; *(-?\d+); *(\d+); (.*)$", re.ASCII).match
rest_line = re.compile(r"\s*The rest (\d+) ").match

name_and_shape = re.compile(rf"%{NAME} = (?:([a-z]\w*\[[^\]]*\](?:\{{[^{{}}]*\}})?) )?", re.ASCII).match
call = re.compile(r"([a-z][a-z0-9-]*)\((?:([^()\[\]{}\"]*)\))?").match
bracket = re.compile(r'"(?:[^"\\]|\\.)*+"|([(\[{])|[)\]}]').finditer
key = re.compile(rf", {NAME}=", re.ASCII).match
plain = re.compile(  # a value without nested brackets, up to the next key
    r'(?:[^\s,"()\[\]{}]+|\{(?:[^"()\[\]{}]|"(?:[^"\\]|\\.)*+")*+\}|"(?:[^"\\]|\\.)*+")(?=, [A-Za-z_][\w.-]*=|$)'
).match
next_key = re.compile(rf'"(?:[^"\\]|\\.)*+"|[(\[{{]|[)\]}}]|, {NAME}=', re.ASCII).finditer
fields = re.compile(rf'{NAME}=("(?:[^"\\]|\\.)*+"|\{{[^{{}}]*\}}|\S*)', re.ASCII).findall
escapes = re.compile(rb"\\([ntrabfv\\\"'?]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2})").sub
array_shape = re.compile(r"([a-z][a-z0-9]*)\[([^\]]*)\]").match
packed_bits = re.compile(r"E\((\d+)\)").search
width_of = re.compile(r"(?:s|u|f|bf|c)(\d+)").match

CALLS = {
    "calls", "to_apply", "condition", "body", "branch_computations", "called_computations",
    "true_computation", "false_computation", "select", "scatter",
}  # fmt: skip
LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
ROLES = ("-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt", "-memory-usage-report.txt")


def memory_files(folder: Path) -> list[Path]:
    """The memory files of the one dump in a folder, in the order in which they are read."""
    return [path for role in ROLES for path in sorted(folder.glob(f"*{role}"))]


def read(paths: Iterable[Path]) -> dict[str, Columns]:
    """Every column of one dump from its memory files, as lists."""
    reader = _Reader()
    platform = None
    for path in paths:
        name = path.name
        if platform is None:
            platform = next((p for p in ("cpu", "gpu") if f"{p}_after_opt" in name), "tpu" if ".cl_" in name else None)
        with open(path, encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            reader.file(file)
    reader.join(platform)
    return reader.tables


def to_arrow(tables: dict[str, Columns]) -> dict[str, Any]:
    """A pyarrow table of each."""
    import pyarrow as pa

    made, integers = {}, set(INTEGERS.split())
    for name, columns in tables.items():
        arrays = {}
        for column, items in columns.items():
            number = column in integers and not (name == "printed_report" and column in HUMAN)
            flag = column.startswith("is_") or column == "uses_known"
            arrays[column] = pa.array(items, pa.int64() if number else pa.bool_() if flag else pa.string())
        made[name] = pa.table(arrays)
    return made


class _Reader:
    def __init__(self) -> None:
        self.tables: dict[str, Columns] = {t: {c: [] for c in names.split()} for t, names in COLUMNS.items()}
        self.unknown = 0
        self.known: dict[int, bool] = {}  # value id -> its uses are printed
        self.used = False
        self.total: int | None = None
        self.seen: set[str] = set()  # instruction texts

    def append(self, table: str) -> list[Any]:
        """The append method of each column."""
        return [column.append for column in self.tables[table].values()]

    def row(self, table: str, **given: Any) -> None:
        """Any columns of a row; for the lines that are few."""
        columns = self.tables[table]
        for name, column in columns.items():
            column.append(given.get(name))
        if "ordinal" in columns and "ordinal" not in given:
            columns["ordinal"][-1] = len(columns["ordinal"]) - 1

    def file(self, lines: Iterator[str]) -> None:
        line = next(lines, "")
        while line:
            if line == "BufferAssignment:\n":
                line = self.allocations(lines)
            elif line == "Used values:\n":
                line = self.values(lines)
            elif line == "Allocations sorted by size:\n":
                line = self.report_a(lines)
            elif line.startswith("HloLiveRange (max "):
                line = self.live(lines)
            elif line.startswith("Memory Space: "):
                line = self.report_b(lines, line)
            else:
                if found := total_line(line):
                    self.total = int(found[1])
                elif line != "\n":
                    self.unknown += 1
                line = next(lines, "")

    def allocations(self, lines: Iterator[str]) -> str:
        append_all = self.append("allocations")
        ids, names, indices, phis, colors, homes, offsets, sizes, shapes, *_ = self.append("values")
        current, ordinal = 0, 0
        for line in lines:
            if found := value_line(line):
                value_id, name, index, phi, color, size, offset, shape = found.groups()
                ids(int(value_id))
                names(name)
                indices(index)
                phis(phi is not None)
                colors(None if color is None or color == "-1" else int(color))
                homes(current)
                offsets(int(offset))
                sizes(int(size))
                shapes(shape)
            elif found := allocation_line(line):
                (number, address, size, color, page, parameter, shape, index, output,
                 constant, thread_local, live_out, temp) = found.groups()  # fmt: skip
                current, ordinal = int(number), 0
                row = (
                    current, int(size), int(color or 0), None, page and int(page), address,
                    parameter and int(parameter), index, shape, output, parameter is not None, output is not None,
                    constant is not None, thread_local is not None, live_out is not None, temp is not None,
                )  # fmt: skip
                for append, item in zip(append_all, row, strict=True):
                    append(item)
            elif found := cross_line(line):
                value_id, name, index, phi, color, printed = found.groups()
                self.row(
                    "cross_color", allocation=current, ordinal=ordinal, value_id=int(value_id), instruction=name,
                    shape_index=index, is_phi=phi is not None, printed_color=int(printed),
                    value_color=None if color is None or color == "-1" else int(color),
                )  # fmt: skip
                ordinal += 1
            elif line == "\n":
                return line
            elif line != " reused by buffers of a different color:\n":
                self.unknown += 1
        return ""

    def values(self, lines: Iterator[str]) -> str:
        position_id, position_ordinal, position_name, position_index = self.append("positions")
        use_id, use_ordinal, use_name, use_operand, use_index = self.append("uses")
        seen, known = self.seen, self.known
        self.used = True
        value_id = ordinal = 0
        in_uses = False
        for line in lines:
            if line.startswith("  "):
                if in_uses:
                    if found := use_line(line):
                        name, operand, index = found.groups()
                        use_id(value_id)
                        use_ordinal(ordinal)
                        use_name(name)
                        use_operand(int(operand))
                        use_index(index)
                        ordinal += 1
                    elif line != "  (none)\n":
                        self.unknown += 1
                elif found := position_line(line):
                    name, index = found.groups()
                    position_id(value_id)
                    position_ordinal(ordinal)
                    position_name(name)
                    position_index(index)
                    ordinal += 1
                else:
                    self.unknown += 1
            elif line == " positions:\n":
                in_uses, ordinal = False, 0
            elif line == " uses:\n":
                in_uses, ordinal = True, 0
            elif found := instruction_line(line):
                text = found[1]
                # Releases of 2024 forgot the newline here: the next record follows on the same line.
                if text.endswith(">") and (found := glued_record(text)):
                    value_id = int(found[1])
                    known[value_id] = True
                    text = text[: found.start()]
                if text not in seen:
                    seen.add(text)
                    self.instruction(text)
            elif found := record_line(line):
                value_id = int(found[1])
                known[value_id] = True
            elif line == " uses are not initialized yet.\n":
                known[value_id] = False
            elif line == "\n":
                return line
            else:
                self.unknown += 1
        return ""

    def instruction(self, text: str) -> None:
        found = name_and_shape(text)
        if not found:
            self.unknown += 1
            return
        name, shape = found.groups()
        start = found.end()
        if shape is None:
            end = _balanced(text, start)
            if text.startswith("{", end):
                end = _balanced(text, end)
            shape, start = text[start:end], end + 1
        found = call(text, start)
        if not found:
            self.unknown += 1
            return
        opcode, operands = found.groups()
        at = found.end()
        if operands is None:
            start = at
            at = _balanced(text, start - 1)
            operands = text[start : at - 1]
        special: dict[str, Any] = {}
        calls, left = [], []
        while found := key(text, at):
            at = found.end()
            value = plain(text, at)
            end = value.end() if value else _value_end(text, at)
            name_of, item = found[1], text[at:end]
            at = end
            if name_of == "metadata" and item != "{}":
                others = []
                for field, said in fields(item, 1, len(item) - 1):
                    if field in special:
                        others.append(f"{field}={said}")
                    elif field in ("op_type", "op_name", "source_file"):
                        special[field] = _unescape(said[1:-1])
                    elif field in ("source_line", "stack_frame_id"):
                        special[field] = int(said)
                    else:
                        others.append(f"{field}={said}")
                if others:
                    left.append(f"metadata={{{' '.join(others)}}}")
            elif name_of in CALLS:
                calls.append(item.removeprefix("{").removesuffix("}"))
            elif name_of == "kind":
                special["fusion_kind"] = item
            elif name_of == "sharding":
                special[name_of] = item
            elif name_of in ("custom_call_target", "backend_config"):
                special[name_of] = _unescape(item[1:-1]) if item.startswith('"') else item
            else:
                left.append(f"{name_of}={item}")
        get = special.get
        row = (
            name, shape, opcode, operands, get("op_type"), get("op_name"), get("source_file"), get("source_line"),
            get("stack_frame_id"), get("custom_call_target"), get("fusion_kind"), ", ".join(calls) or None,
            get("sharding"), get("backend_config"), ", ".join(left) or None,
        )  # fmt: skip
        for column, item in zip(self.tables["instructions"].values(), row, strict=True):
            column.append(item)

    def live(self, lines: Iterator[str]) -> str:
        step_time, step_name = self.append("schedule")
        _, range_name, range_index, range_start, range_end = self.append("live_ranges")
        part, label = "", ""
        for line in lines:
            if part == "schedule" and (found := step_line(line)):
                time, name = found.groups()
                step_time(int(time))
                step_name(name)
            elif part == "ranges" and (found := range_line(line)):
                name, index, start, end = found.groups()
                range_name(name)
                range_index(index)
                range_start(int(start))
                range_end(int(end))
            elif part == "peak" and (found := peak_line(line)):
                name, index, size, cumulative = found.groups()
                self.row(
                    "printed_peak", instruction=name, shape_index=index, bytes=int(size),
                    cumulative=cumulative and int(cumulative),
                )  # fmt: skip
            elif line == "  InstructionSequence:\n":
                part = "schedule"
            elif line == "  BufferLiveRange:\n":
                part = "ranges"
            elif line.startswith("  Live ranges at "):
                part = "peak"
            elif line.startswith("  Stack trace breakdown for peak usage: "):
                part = "tree"
            elif part == "tree":
                label += line  # labels can hold newlines
                if found := node_line(label):
                    head, percent, *numbers = found.groups()
                    total, current, remaining = (int(n.replace(" ", "")) for n in numbers)
                    inner = branch(head)
                    self.row(
                        "printed_stack", depth=len(inner[1]) // 4 if inner else 0,
                        label=inner[2] if inner else head[4:], percent=percent, total=total, current=current,
                        remaining=remaining,
                    )  # fmt: skip
                    label = ""
            elif line != "\n":
                self.unknown += 1
        return ""

    def report_a(self, lines: Iterator[str]) -> str:
        total, current, in_list = self.total, None, True
        for line in lines:
            if found := row_line(line):
                self._table_row(found, total_bytes=total, allocation=current)
            elif in_list and (found := list_line(line)):
                cumulative, percent, remaining, number, size = found.groups()
                self.row(
                    "printed_report", part="list", total_bytes=total, cumulative=cumulative, percent=percent,
                    remaining=remaining, allocation=int(number), size=size,
                )  # fmt: skip
            elif found := table_line(line):
                current = int(found[1])
                self.row(
                    "printed_report", part="table", total_bytes=total, allocation=current, size=found[2], n_values=1
                )
            elif found := rest_line(line):
                n = int(found[1])
                self.row("printed_report", part="rest", total_bytes=total, allocation=current, n_rest=n)
            elif line == "Allocations sorted by size with their values:\n":
                in_list = False
            elif "_size; " in line:
                if not in_list:
                    self.tables["printed_report"]["n_values"][-1] = None
            elif line != "\n" and "-----" not in line:
                self.unknown += 1
        return ""

    def report_b(self, lines: Iterator[str], head: str) -> str:
        tables = 0
        space: dict[str, Any] = {}
        line = head
        while line:
            if found := row_line(line):
                self._table_row(found, **space)
            elif "_size; " in line:
                self.row("printed_report", part="table", **space)
                tables += 1
            elif found := space_line(line):
                if space and not tables:
                    self.row("printed_report", part="space", **space)
                space, tables = {"space_label": found[1], "color": int(found[2])}, 0
            elif found := rest_line(line):
                self.row("printed_report", part="rest", n_rest=int(found[1]), **space)
            elif found := total_line(line):
                space["total_bytes"] = int(found[1])
            elif line != "\n" and "-----" not in line:
                self.unknown += 1
            line = next(lines, "")
        if not tables:
            self.row("printed_report", part="space", **space)
        return ""

    def _table_row(self, found: re.Match[str], **common: Any) -> None:
        cumulative, percent, size, offset, n, shapes = found.groups()
        self.row(
            "printed_report", part="row", cumulative=cumulative, percent=percent, size=size, offset=int(offset),
            n_values=int(n), shapes=shapes, **common,
        )  # fmt: skip

    def join(self, platform: str | None) -> None:
        """The columns that need another section, and what a shape says."""
        values, ranges, allocations = (self.tables[t] for t in ("values", "live_ranges", "allocations"))
        facts: dict[str, tuple[str, int | None]] = {}
        for shape in values["shape"]:
            found = facts.get(shape)
            if found is None:
                found = facts[shape] = _shape_facts(shape)
            values["element_type"].append(found[0])
            values["unpadded_size"].append(found[1])
        default = self.used or None
        values["uses_known"] += [self.known.get(i, default) for i in values["value_id"]]
        by_name: dict[tuple[str, str], int] = {}
        for name, index, value_id in zip(values["instruction"], values["shape_index"], values["value_id"], strict=True):
            by_name.setdefault((name, index or "{}"), value_id)
        ranges["value_id"] = [by_name.get(k) for k in zip(ranges["instruction"], ranges["shape_index"], strict=True)]
        both = zip(values["instruction"], values["shape_index"], strict=True)
        arrays = {(name, "{}") for name, index in both if index is None}
        for table in (ranges, self.tables["printed_peak"]):
            named = zip(table["instruction"], table["shape_index"], strict=True)
            table["shape_index"] = [None if k in arrays else k[1] for k in named]
        if platform is None and any("T(" in shape for shape in facts):
            platform = "tpu"
        names = SPACES.get(platform or "", {})
        allocations["memory_space"] = [names.get(c) or f"color_{c}" for c in allocations["color"]]


def _balanced(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`; brackets in strings do not count."""
    depth = 0
    for found in bracket(text, start):
        if found[1]:
            depth += 1
        elif found[0][0] != '"':
            depth -= 1
            if depth == 0:
                return found.end()
    return len(text)


def _value_end(text: str, start: int) -> int:
    """The place of the next `, key=` outside of brackets and strings."""
    depth = 0
    for found in next_key(text, start):
        first = found[0][0]
        if first in "([{":
            depth += 1
        elif first in ")]}":
            depth -= 1
        elif first == "," and depth == 0:
            return found.start()
    return len(text)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text

    def one(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code[:1] == b"x":
            return bytes([int(code[1:], 16)])
        return bytes([int(code, 8)]) if code.isdigit() else LETTERS.get(code, code)

    return escapes(one, text.encode()).decode("utf-8", "backslashreplace")


def _shape_facts(shape: str) -> tuple[str, int | None]:
    """Element type and unpadded size of a shape."""
    if shape.startswith("("):
        depth = elements = 0
        for found in re.finditer(r"[(\[{]|[)\]}]|,", shape):
            if found[0] == ",":
                elements += depth == 1
            else:
                depth += 1 if found[0] in "([{" else -1
        return "tuple", 8 * (elements + (shape != "()"))
    if shape.startswith("b("):
        return "buffer", _shape_facts(shape[2:-1])[1]
    found = array_shape(shape)
    if not found:
        return "", None
    element, dims = found.groups()
    if element in ("token", "opaque"):
        return element, 8 if element == "opaque" else 0
    if "?" in dims:
        return element, None
    count = math.prod(int(d.removeprefix("<=")) for d in dims.split(",")) if dims else 1
    if bits := packed_bits(shape):
        return element, -(-count * int(bits[1]) // 8)
    width = width_of(element)
    return element, count if element == "pred" else count * -(-int(width[1]) // 8) if width else None
