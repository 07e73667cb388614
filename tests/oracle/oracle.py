"""A slow and obvious reader of one dump: what the native reader is compared with.

It follows docs/reading.md line by line, with the standard library alone. Text is decoded with
surrogateescape, so that a bad byte stays one character, and is cleaned when everything is read.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

Row = dict[str, Any]

COLUMNS = {
    "modules": "module_name module_id platform target changelist timestamp_us features complete total_bytes "
    "schedule_length printed_peak_time printed_peak_bytes n_allocations n_values n_cross_color n_positions n_uses "
    "n_instructions n_schedule n_live_ranges n_printed_peak n_printed_stack n_printed_report n_frames n_aliases "
    "n_diagnostics content_hash understood consistent program_fp interface_fp n_flags",
    "files": "ordinal role uri bytes content_hash features complete",
    "allocations": "allocation size color memory_space page address parameter_number parameter_shape_index "
    "parameter_shape output_shape is_parameter is_entry_root is_constant is_thread_local is_live_out is_temp "
    "attributes",
    "values": "value_id instruction shape_index is_phi color allocation offset size shape element_type "
    "unpadded_size uses_known attributes",
    "cross_color": "allocation ordinal value_id instruction shape_index is_phi value_color printed_color",
    "positions": "value_id ordinal instruction shape_index",
    "uses": "value_id ordinal instruction operand operand_shape_index",
    "instructions": "instruction shape opcode operands op_type op_name source_file source_line stack_frame_id "
    "custom_call_target fusion_kind called_computations sharding backend_config attributes text",
    "schedule": "time instruction",
    "live_ranges": "value_id instruction shape_index start end attributes",
    "printed_peak": "ordinal instruction shape_index bytes cumulative",
    "printed_stack": "ordinal depth label percent total current remaining",
    "printed_report": "ordinal part color space_label total_bytes allocation cumulative percent size remaining "
    "offset n_values n_rest shapes",
    "frames": "id parent file function line column end_line end_column",
    "aliases": "output_index parameter parameter_index kind",
    "flags": "ordinal role name value comment",
    "diagnostics": "file line offset section code severity wanted excerpt",
    "unknown_text": "file offset section table row text",
}
"""Every table with its columns in order; a test holds it against schema.TABLES."""

FLAG_ROLES = ("debug-options", "tpu-environment", "target-arguments")
ROLES = ("buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report", "hlo", *FLAG_ROLES)
ERRORS = {"truncated", "total_differs", "records_differ"}
SPACES = {
    "tpu": {0: "hbm", 1: "vmem", 2: "sflag", 3: "cmem", 4: "smem", 5: "host"},
    "gpu": {0: "device", 1: "collective", 2: "temp", 5: "host"},
    "cpu": {0: "memory", 5: "host"},
}

# ---------------------------------------------------------------------------------------- grammar

INT = r"(-?[0-9]+)"
NAME = r"([A-Za-z_][A-Za-z0-9_.-]*)"
SIDX = r"(\{(?:-?[0-9]+(?:,-?[0-9]+)*)?\})"
HUMAN = r"(-?[0-9]+B|-?[0-9]+\.[0-9]KiB|-?[0-9]+\.[0-9]{2}[MGTPE]iB)"
PERCENT = r"(-?(?:[0-9]+|nan|inf))%"
FLAG = r"([A-Za-z0-9_.\[\]/-]+)"
SPACED = r"(-?[0-9]{1,3}(?: [0-9]{3})+|-?[0-9]+)"
SHORT = rf"<{INT} {NAME}{SIDX}?( \(phi\))?(?: @{INT})?>"
FLAGS = (
    rf"(?:, color {INT})?(?:, page {INT})?"
    rf"(?:, parameter {INT}(?:, shape \|([^|]*)\|)?(?: at ShapeIndex {SIDX})?)?"
    r"(?:, output shape is \|([^|]*)\|)?(, constant)?(, thread-local)?(, maybe-live-out)?(, preallocated-temp)?:"
)

TOTAL = rf"Total bytes used: {INT}(?: \({HUMAN}\))?"
SPACE = rf"Memory Space: (.*) \(color={INT}\)"
LIVE = r"HloLiveRange \(max ([0-9]+)\):"
NO_LIVE = "HloLiveRange not available"

ALLOCATION = rf"allocation {INT}: (?:(0x[0-9a-fA-F]+|\(nil\)), )?size {INT}{FLAGS}"
VALUE = rf" value: {SHORT} \(size={INT},offset={INT}\): (.+)"
CROSS_HEAD = " reused by buffers of a different color:"
CROSS = rf"  value: {SHORT} \(color={INT}\)"
E0_VALUE = rf"  {NAME}\[((?:[0-9]+(?:,[0-9]+)*)?)\]\(#{INT}(?: @{INT})?\) \[{INT},{INT}\]: (.+)"
E1_VALUE = rf"  {INT} (PHI )?{NAME}{SIDX}? @{INT}, positions:"
E1_END = rf" \[{INT},{INT}\]: (.+)"
POSITION = rf"  {NAME}(?: {SIDX})?"
USE = rf"  {NAME}, operand {INT}(?: {SIDX})?"
GLUED = rf"(.*)({SHORT})"

STEP = rf"    {INT}:{NAME}"
RANGE = rf"    {NAME}{SIDX}:{INT}-{INT}"
PEAK_HEAD = rf"  Live ranges at {INT} \(peak\):"
PEAK = rf"    {NAME}(?:{SIDX})?: {INT} bytes"
PEAK_C = rf"    {NAME}{SIDX}: {INT} bytes \(cumulative: {INT} bytes\)"
TREE_HEAD = rf"  Stack trace breakdown for peak usage: {SPACED} bytes"
TAIL = (
    r"(.*) \((-?(?:[0-9]+\.[0-9]|nan|inf))%, "
    rf"total: {SPACED} bytes, current: {SPACED} bytes, remaining: {SPACED} bytes\)"
)
BRANCH = r"  ((?:    |│   )*)(?:├── |└── )(.*)"
ROOT = r"    (?!  )(.*)"

LIST_HEAD = "cumulative_size; total_size - cumulative_size; allocation"
LIST = rf" *{HUMAN}\( *{PERCENT}\); *{HUMAN}; (allocation .*)"
REPORT_ALLOCATION = rf"allocation {INT}: size {HUMAN}{FLAGS}"
LIST_REST = rf"The rest {INT} allocations are less than 5% of the total size and not shown\."
SECOND_LIST = "Allocations sorted by size with their values:"
SPACE_TOTAL = rf"Total bytes: {INT} \({HUMAN}\)"
TABLE_HEAD = "cumulative_size;       size;       offset; used_by_n_values; shapes_list"
TABLE_ROW = rf" *{HUMAN}\( *{PERCENT}\); *{HUMAN}; *{INT}; *{INT}; (.*)"
TABLE_REST = rf"The rest {INT} values are less than 5% of the total size and not shown\."

ARRAY = r"([a-z0-9]+)\[([^\]]*)\](.*)"
DIMENSIONS = r"(?:(?:(?:<=)?[0-9]+|(?:<=)?\?)(?:,(?:(?:<=)?[0-9]+|(?:<=)?\?))*)?"
SIZED = r"(?:pred|(?:bf|[sufc])[1-9][0-9]?[0-9]?(?:[a-z][a-z0-9]*)?)\[(?:<=)?[0-9]+(?:,(?:<=)?[0-9]+)*\]"
BRACED_ROW = rf"{INT} \{{((?:[a-z_]+=-?[0-9]+(?: [a-z_]+=-?[0-9]+)*)?)\}}"
QUOTED_ROW = rf'{INT} ("(?:[^"\\]|\\.)*")'
KEY = r", ([A-Za-z0-9_.-]+)="
CALLS = {
    "calls", "to_apply", "condition", "body", "branch_computations", "called_computations",
    "true_computation", "false_computation", "select", "scatter",
}  # fmt: skip
METADATA_TEXT = {"op_type", "op_name", "source_file"}
METADATA_INT = {"source_line", "stack_frame_id"}


def match(pattern: str, text: str) -> tuple[str | None, ...] | None:
    """The groups of a pattern that explains the whole text; None if it does not."""
    found = re.fullmatch(pattern, text, re.DOTALL)
    return found.groups() if found else None


def number(text: str | None) -> int | None:
    return None if text is None else int(text.replace(" ", ""))


def fits(*texts: str | None) -> bool:
    """Whether these numbers are int64. The smallest one stands for null."""
    return all(t is None or abs(int(t.replace(" ", ""))) < 2**63 for t in texts)


def color(text: str | None) -> int | None:
    return None if text is None or int(text) == -1 else int(text)


def human(n: int) -> str:
    """XLA's sizes for people: integer division until one step is left, FORMAT 2.4."""
    sign, n = ("-", -n) if n < 0 else ("", n)
    if n < 1024:
        return f"{sign}{n}B"
    step = 0
    while n >= 1024 * 1024:
        n, step = n // 1024, step + 1
    return f"{sign}{n / 1024:.{1 if step == 0 else 2}f}{'KMGTPE'[step]}iB"


def unescape(text: str) -> str:
    """C escapes to bytes, those bytes to text."""
    simple = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}

    def one(found: re.Match[bytes]) -> bytes:
        code = found[1]
        if code in simple:
            return simple[code]
        if code[:1] in b"xX":
            return bytes([int(code[1:], 16)])
        if code.isdigit():
            return bytes([int(code, 8) & 255])
        return code

    raw = text.encode("utf-8", "surrogateescape")
    raw = re.sub(rb"\\([ntrabfv\\\"'?]|[0-7]{1,3}|[xX][0-9a-fA-F]{1,2})", one, raw)
    return raw.decode("utf-8", "surrogateescape")


def is_bad(text: str) -> bool:
    """Whether a text holds bytes that are not UTF-8."""
    return any("\udc80" <= c <= "\udcff" for c in text)


def clean(value: Any) -> Any:
    """Bad bytes as \\xNN."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value


# ----------------------------------------------------------------------------------------- shapes


def quote_end(text: str, start: int) -> int | None:
    """The place after the string that begins at `start`."""
    found = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match(text, start)
    return found.end() if found else None


def closing(text: str, start: int) -> int | None:
    """The place after the bracket that closes the one at `start`; brackets in strings do not count."""
    depth, i = 0, start
    while i < len(text):
        if text[i] == '"':
            end = quote_end(text, i)
            if end is None:
                return None
            i = end
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
        if depth == 0:
            return i
    return None


def stop(text: str, start: int, stops: str) -> int:
    """The first of these characters, or bracket that closes none, outside of brackets and strings; else the end."""
    depth, i = 0, start
    while i < len(text):
        if depth == 0 and text[i] in stops + ")]}":
            return i
        if text[i] == '"':
            i = quote_end(text, i) or len(text)
            continue
        depth += (text[i] in "([{") - (text[i] in ")]}")
        i += 1
    return i


@lru_cache(1 << 16)
def shape_facts(text: str) -> tuple[str | None, int | None]:
    """Element type and unpadded size of a shape; None where its form is not known."""
    if text.startswith("b("):
        return "buffer", shape_facts(text[2:])[1]
    if text.startswith("("):
        text = text.replace('"', "'")  # a shape has no strings
        end, elements = stop(text, 1, ","), int(not text.startswith("()"))
        while end < len(text) and text[end] == ",":
            end, elements = stop(text, end + 1, ","), elements + 1
        return "tuple", 8 * elements if text[end : end + 1] == ")" else None
    array = match(ARRAY, text)
    if array is None:
        name = re.match(r"([a-z0-9]+)\[", text)
        return name[1] if name else None, None
    return array[0], array_size(str(array[0]), str(array[1]), str(array[2]))


def array_size(element: str, dims: str, layout: str) -> int | None:
    """Elements times element width; types below a byte take one, but for E(bits) in the layout."""
    if element == "token":
        return 0
    if element == "opaque":
        return 8
    if match(DIMENSIONS, dims) is None or "?" in dims or any(len(d) > 18 for d in re.findall("[0-9]+", dims)):
        return None
    count = 1
    for d in dims.split(",") if dims else ():
        count *= int(d.removeprefix("<="))
        if count >= 2**63:
            return None
    width = 8 if element == "pred" else int((re.match(r"(?:s|u|f|bf|c)([0-9]+)", element) or ("", "0"))[1])
    if not 1 <= width <= 128:
        return None
    start = layout.find("P(")  # the physical shape has a layout of its own
    if start >= 0:
        layout = layout[:start] + layout[closing(layout, start + 1) :]
    bits = re.search(r"(?<=[:)])E\(([0-9]+)", layout)
    if bits and int(bits[1]):
        return -(-count * int(bits[1]) // 8) if count * int(bits[1]) <= 2**63 - 8 else None
    size = count * -(-width // 8)
    return size if size < 2**63 else None


# ----------------------------------------------------------------------------------- instructions


def split_pairs(text: str, lead: str) -> list[tuple[str, str]] | None:
    """`, key=value, key=value` as pairs, `lead` being what begins one; None if the text does not begin so."""
    pairs: list[tuple[str, str]] = []
    key, i = re.compile(lead), 0
    while i < len(text):
        found = key.match(text, i)
        if not found:
            return None
        start = i = found.end()
        while i < len(text) and not key.match(text, i):
            if text[i] == '"':
                i = quote_end(text, i) or len(text)
            elif text[i] in "([{":
                i = closing(text, i) or len(text)
            else:
                i += 1
        pairs.append((found[1], text[start:i]))
    return pairs


def unquoted(text: str) -> str:
    """The text of a quoted string; other text as it is."""
    return unescape(text[1:-1]) if len(text) >= 2 and text[0] == text[-1] == '"' else text


def words(text: str) -> list[str]:
    """What stands between blanks outside of brackets and strings."""
    found, begin = [], 0
    while begin < len(text):
        key = re.compile("[= ]").search(text, begin)
        end = stop(text, key.start() if key else len(text), " ")
        while end < len(text) and text[end] != " ":
            end = stop(text, end + 1, " ")
        found.append(text[begin:end])
        begin = end + 1
    return found


def instruction(text: str) -> Row | None:
    """The row of one instruction text; None if it has not the form of one."""
    row = _instruction(text)
    return row and dict(row)


@lru_cache(1 << 16)
def _instruction(text: str) -> Row | None:
    """The same, once for texts that a changed dump still has."""
    name = re.compile(rf"%{NAME} = ").match(text)
    if not name:
        return None
    blank = stop(text, name.end(), " ")
    opcode = re.compile(r" ([A-Za-z0-9_.-]+)\(").match(text, blank) if blank > name.end() else None
    close = stop(text, opcode.end(), "") if opcode else len(text)
    if opcode is None or text[close : close + 1] != ")":
        return None
    attributes = split_pairs(text[close + 1 :], KEY)
    row: Row = dict.fromkeys(COLUMNS["instructions"].split())
    row |= {"instruction": name[1], "shape": text[name.end() : blank], "opcode": opcode[1], "text": text}
    row["operands"] = text[opcode.end() : close]
    calls: list[str] = []
    left: list[str] = [] if attributes is not None else [text[close + 1 :]]
    for key, value in attributes or ():
        if key == "metadata" and value[:1] == "{" and value[-1:] == "}":
            others = []
            for word in words(value[1:-1]):
                sub, equals, item = word.partition("=")
                if equals and sub in METADATA_TEXT and row[sub] is None:
                    row[sub] = unquoted(item)
                elif sub in METADATA_INT and match(INT, item) and fits(item) and row[sub] is None:
                    row[sub] = int(item)
                else:
                    others.append(word)
            if others:
                left.append(f"metadata={{{' '.join(others)}}}")
        elif key in CALLS:
            calls.append(value[1:-1] if value[:1] == "{" and value[-1:] == "}" else value)
        elif key == "custom_call_target" and row[key] is None:
            row[key] = unquoted(value)
        elif key == "kind" and row["fusion_kind"] is None:
            row["fusion_kind"] = value
        elif key in ("sharding", "backend_config") and row[key] is None:
            row[key] = unquoted(value) if key == "backend_config" else value
        else:
            left.append(f"{key}={value}")
    row["called_computations"] = ", ".join(calls) if calls else None
    row["attributes"] = ", ".join(left) if left else None
    return row


# ------------------------------------------------------------------------------------------ files


@dataclass
class Line:
    number: int
    offset: int
    text: str


def with_metadata(line: Line, rest: deque[Line]) -> Line:
    """The line, with the JSON of a Pallas kernel that follows on lines of its own, which are taken off `rest`."""
    while line.text.endswith("{"):
        n = next((n for n, other in enumerate(rest) if not other.text.startswith('"')), len(rest))
        if n in (0, len(rest)) or not rest[n].text.startswith("}"):
            break
        more = [rest.popleft().text for _ in range(n + 1)]
        line = Line(line.number, line.offset, "\n".join([line.text, *more]))
    return line


@dataclass
class File:
    """One member: its lines, and what was seen in it."""

    role: str
    data: bytes
    lines: list[Line] = field(default_factory=list)
    tail: Line | None = None
    features: set[str] = field(default_factory=set)
    sections: set[str] = field(default_factory=set)
    cut: tuple[str, int, int, str] | None = None
    broken: bool = False

    def split(self) -> Line | None:
        """Make the lines; return the first without CR where the others have one."""
        raw = self.data.split(b"\n")
        crlf = len(raw) > 1 and raw[0].endswith(b"\r")
        odd = None
        offset = 0
        for n, text in enumerate(raw[:-1], 1):
            line = Line(n, offset, text.decode("utf-8", "surrogateescape"))
            if crlf and text.endswith(b"\r"):
                line.text = line.text[:-1]
            elif crlf and odd is None:
                odd = line
            self.lines.append(line)
            offset += len(text) + 1
        if raw[-1]:
            self.tail = Line(len(raw), offset, raw[-1].decode("utf-8", "surrogateescape"))
        if crlf:
            self.features.add("crlf")
        return odd

    def truncate(self, section: str, wanted: str, at: Line | None = None) -> None:
        """Remember the first reason why this file counts as cut."""
        if self.cut is None:
            at = at or self.tail or Line(len(self.lines) + 1, len(self.data), "")
            self.cut = (section, at.number, at.offset, wanted)


class Reader:
    """The state of one reading; the tables fill up while it runs."""

    def __init__(self, members: dict[str, bytes], uris: dict[str, str], platform: str | None, text: bool) -> None:
        self.tables: dict[str, list[Row]] = {name: [] for name in COLUMNS}
        self.files = [File(role, members[role]) for role in ROLES if role in members]
        self.file = File("", b"")
        self.section = "file"
        self.uris, self.platform, self.text = uris, platform, text
        self.module_name: str | None = None
        self.totals: list[tuple[File, int]] = []
        self.report_total: int | None = None
        self.max: int | None = None
        self.peak: int | None = None
        self.records: list[tuple[File, Line, Row]] = []
        self.seen: dict[str, set[str]] = {}
        self.where: dict[tuple[str, int], tuple[File, Line]] = {}
        self.tree: tuple[File, Line, int] | None = None
        self.lists: set[str] = set()
        self.too_large: list[str] = []
        self.live: tuple[File, Line] | None = None
        self.report_lines: list[tuple[File, Line, Row]] = []
        self.more, self.report_agrees = True, False

    # ------------------------------------------------------------------------------------- basics

    def add(self, table: str, line: Line, /, **values: Any) -> Row:
        row: Row = dict.fromkeys(COLUMNS[table].split())
        assert values.keys() <= row.keys(), (table, values)
        row |= values
        self.where[table, len(self.tables[table])] = (self.file, line)
        self.tables[table].append(row)
        texts = [v for v in values.values() if isinstance(v, str)] if table != "frames" else []
        in_part = table in ("printed_report", "aliases")  # of a line whose other text is stored in no column
        if (not in_part and is_bad(line.text)) or any(map(is_bad, texts)):
            self.not_utf8(line)
        return row

    def not_utf8(self, line: Line) -> None:
        self.file.features.add("not_utf8")
        where = (self.file.role, line.number)
        if not any(d["code"] == "not_utf8" and (d["file"], d["line"]) == where for d in self.tables["diagnostics"]):
            self.diagnose("not_utf8", line, "UTF-8")

    def diagnose(
        self, code: str, line: Line | None, wanted: str, *, file: File | None = None, section: str | None = None,
        severity: str | None = None,
    ) -> None:  # fmt: skip
        row: Row = dict.fromkeys(COLUMNS["diagnostics"].split())
        row |= {"file": (file or self.file).role, "section": section or self.section, "code": code, "wanted": wanted}
        row["severity"] = severity or ("error" if code in ERRORS else "warning")
        row["excerpt"] = line.text[:80] if line else ""
        if line:
            row |= {"line": line.number, "offset": line.offset}
        self.tables["diagnostics"].append(row)

    def unknown(self, line: Line, wanted: str) -> None:
        self.diagnose("unknown_line", line, wanted)

    def odd(self, file: File, section: str) -> bool:
        """Whether a section has lines that were not understood: then nothing says that it is truncated."""
        of = {"file": file.role, "section": section, "code": "unknown_line"}
        return any(of.items() <= d.items() for d in self.tables["diagnostics"])

    # ----------------------------------------------------------------------------------- sections

    def read(self) -> dict[str, list[Row]]:
        for file in self.files:
            self.file, self.section = file, "file"
            if not file.data:
                file.truncate("file", "text")
                continue
            if file.role == "hlo":
                self.read_hlo()
            elif file.role in FLAG_ROLES:
                self.read_flags()
            else:
                self.read_file()
        self.finish()
        return self.tables

    def read_file(self) -> None:
        file = self.file
        odd = file.split()
        if odd:
            self.diagnose("mixed_newlines", odd, "CR LF")
        if file.tail and file.tail.text.startswith(NO_LIVE):
            file.lines.append(file.tail)
            file.tail = None
        for kind, lines, last in sections(file.lines):
            self.section = {
                "text": "file", "allocations": "allocations", "values": "used values", "cut values": "used values",
                "report a": "report", "report b": "report", "live": "live ranges", "no live": "live ranges",
            }[kind]  # fmt: skip
            file.sections.add(kind)
            lines, blank = strip_empty(lines)
            if kind == "allocations":
                self.read_allocations(lines, last)
            elif kind in ("values", "cut values"):
                self.read_values(lines, last, cut=kind == "cut values")
            elif kind == "report a":
                self.report_total = self.total(lines[0]) if lines[0].text.startswith("Total") else None
                self.read_report(lines, blank)
            elif kind == "report b":
                self.read_report(lines, blank)
            elif kind == "live":
                self.read_live(lines, last)
            elif kind == "no live":
                file.features.add("live_unavailable")
                for line in lines[1:]:
                    self.unknown(line, "nothing after unavailable live ranges")
            else:
                for line in lines:
                    if line.text:
                        self.unknown(line, "a section")
        if file.tail:
            file.cut = None  # the cut line says best where the file ends
            file.truncate(self.section, "the end of this line")

    # -------------------------------------------------------------------------------- allocations

    def read_allocations(self, lines: list[Line], last: bool) -> None:
        allocation: int | None = None  # None: lines below an unknown header belong to nobody
        previous_id: int | None = None
        cross: int | None = None  # ordinal within the block of another color
        block: dict[str, Any] | None = None  # an E1 value that is not finished
        for line in lines[1:]:
            text = line.text
            if block and (text.startswith("allocation ") or self.e1_header(text)):
                self.unknown(block["line"], "the end of this value")
                block = None
            if text.startswith("allocation "):
                allocation, previous_id, cross = self.allocation(line), None, None
            elif allocation is None:
                self.unknown(line, "an allocation")
            elif block and text.startswith(" [") and not match(E1_END, text):
                self.unknown(block["line"], "the end of this value")
                block = None
            elif block:
                if self.e1_line(block, line, allocation, previous_id):
                    previous_id, block = block["id"], None
            elif cross is not None:
                if (g := match(CROSS, text)) and fits(g[0], g[4], g[5]):
                    self.add(
                        "cross_color", line, allocation=allocation, ordinal=cross, value_id=number(g[0]),
                        instruction=g[1], shape_index=g[2], is_phi=bool(g[3]), value_color=color(g[4]),
                        printed_color=number(g[5]),
                    )  # fmt: skip
                    cross += 1
                else:
                    self.unknown(line, "a value of a different color")
            elif text == CROSS_HEAD:
                cross = 0
                self.file.features.add("cross_color")
            elif (g := match(VALUE, text)) and fits(g[0], *g[4:7]):
                self.file.features.add("e2")
                previous_id = self.value(line, allocation, previous_id, g[0], g[1], g[2], g[3], g[4], g[6], g[5], g[7])
            elif (g := match(E0_VALUE, text)) and fits(g[2], *g[3:6]):
                self.file.features.add("e0_values")
                index = f"{{{g[1]}}}"
                previous_id = self.value(line, allocation, previous_id, g[2], g[0], index, None, g[3], g[4], g[5], g[6])
            elif header := self.e1_header(text):
                self.file.features.add("e1_values")
                block = {"line": line, "id": int(header[0] or 0), "head": header, "part": "positions"}
                block |= {"positions": [], "uses": [], "unknown": [], "in_list": True}
            else:
                self.unknown(line, "an allocation or a value")
                if text.endswith(":") and not text.startswith(" "):
                    allocation = None  # the head of an unknown list
        if block and last:
            self.file.truncate(self.section, "the end of this value", None if self.file.tail else block["line"])
        elif block:
            self.unknown(block["line"], "the end of this value")

    def allocation(self, line: Line) -> int | None:
        g = match(ALLOCATION, line.text)
        if not g or not fits(g[0], g[2], g[3], g[4], g[5]):
            self.unknown(line, "allocation N: size N, ...:")
            return None
        if g[1]:
            self.file.features.add("address")
        if g[4]:
            self.file.features.add("page")
        index = number(g[0])
        self.add("allocations", line, allocation=index, size=number(g[2]), address=g[1], **flags(g[3:]))
        return index

    def value(
        self, line: Line, allocation: int, previous: int | None, value_id: str | None, name: str | None,
        index: str | None, phi: str | None, col: str | None, offset: str | None, size: str | None, shape: str | None,
    ) -> int:  # fmt: skip
        assert value_id is not None
        element_type, unpadded_size = shape_facts(shape or "")
        plain = (shape or "").removeprefix("b(")
        if unpadded_size is None and re.match(SIZED, plain) and shape not in self.too_large:
            self.too_large.append(shape or "")
            self.diagnose("size_too_large", None, "a size of less than 2^63 bytes")
        self.add(
            "values", line, value_id=int(value_id), instruction=name, shape_index=index, is_phi=bool(phi),
            color=color(col), allocation=allocation, offset=number(offset), size=number(size), shape=shape,
            element_type=element_type, unpadded_size=unpadded_size,
        )  # fmt: skip
        if previous is not None and int(value_id) <= previous:
            self.diagnose("ids_descend", line, f"an id above {previous}")
        return int(value_id)

    def e1_header(self, text: str) -> tuple[str | None, ...] | None:
        g = match(E1_VALUE, text)
        return g if g and fits(g[0], g[4]) else None

    def e1_line(self, block: dict[str, Any], line: Line, allocation: int, previous: int | None) -> bool:
        """One line of an E1 value; True if it is the last one."""
        g = match(E1_END, line.text)
        if g and fits(g[0], g[1]):
            value_id, phi, name, index, col = block["head"]
            self.value(block["line"], allocation, previous, value_id, name, index, phi, col, g[0], g[1], g[2])
            self.places(block["id"], block["positions"], block["uses"])
            for unknown in block["unknown"]:
                self.unknown(unknown, "a line of this value")
            return True
        if line.text == " uses:" and block["part"] == "positions":
            block["part"] = "uses"
            block["in_list"] = True
        elif not block["in_list"] or not self.place(block["part"], line, block):
            block["unknown"].append(line)  # reported if the block ends well
            if line.text.endswith(":") and not line.text.startswith("  "):
                block["in_list"] = False
        return False

    def place(self, part: str, line: Line, record: dict[str, Any]) -> bool:
        """Take a line as a position or as a use."""
        if part == "positions" and (g := match(POSITION, line.text)):
            record["positions"].append((line, {"instruction": g[0], "shape_index": g[1]}))
            return True
        if part == "uses" and (g := match(USE, line.text)) and fits(g[1]):
            use = {"instruction": g[0], "operand": number(g[1]), "operand_shape_index": g[2]}
            record["uses"].append((line, use))
            return True
        return False

    def places(self, value_id: int, positions: list[tuple[Line, Row]], uses: list[tuple[Line, Row]]) -> None:
        for table, rows in (("positions", positions), ("uses", uses)):
            for ordinal, (line, row) in enumerate(rows):
                self.add(table, line, value_id=value_id, ordinal=ordinal, **row)

    # -------------------------------------------------------------------------------- used values

    def total(self, line: Line) -> int | None:
        """The number of a total; a diagnostic if there is none."""
        if (g := match(r"Total bytes used: (-?[0-9]{1,20})(?![A-Za-z0-9_.-]).*", line.text)) and fits(g[0]):
            return int(g[0] or 0)
        self.diagnose("unknown_line", line, "a number of at most 64 bits", section="file")
        return None

    def read_values(self, lines: list[Line], last: bool, *, cut: bool) -> None:
        heads = [] if cut else [i for i, line in enumerate(lines) if line.text.startswith(HEADS["values"])]
        head = heads[0] if heads else len(lines)
        if lines[0].text.startswith("Total"):
            if (total := self.total(lines[0])) is not None:
                self.totals.append((self.file, total))
            if (g := match(TOTAL, lines[0].text)) and g[1]:
                self.file.features.add("human_total")
        for line in lines[1:head]:
            if line.text:
                self.diagnose("unknown_line", line, "the head of a section", section="file")
        if cut:
            if last:
                self.file.truncate(self.section, "Used values:")
            return
        if lines[head].text != "Used values:":
            self.diagnose("unknown_line", lines[head], "Used values:", section="file")
        record: dict[str, Any] | None = None
        rest = deque(lines[head + 1 :])
        while rest:
            line = rest.popleft()
            if line.text.startswith("<"):
                self.close(record)
                record = self.header(line)
            elif line.text.startswith(" from instruction:") and record and record["part"] in ("uses", "none"):
                line = with_metadata(line, rest)
                text, header = self.unglue(line)
                self.from_instruction(line, text)
                record["part"] = "done"
                if header is not line:
                    self.file.features.add("glued")
                    self.close(record)
                    record = self.header(header)
            else:
                self.record_line(record, line)
        unfinished = ("", "positions", "uses", "none") if "human_total" in self.file.features else ("", "positions")
        if last and record and record["part"] in unfinished:
            self.file.truncate(self.section, "the rest of this value", record["line"])
            return
        self.close(record)

    def header(self, line: Line) -> dict[str, Any] | None:
        """A record begins; None if its header is not understood."""
        g = match(SHORT, line.text)
        if not g or not fits(g[0], g[4]):
            self.unknown(line, "a value")
            return None
        record: dict[str, Any] = {"line": line, "id": int(g[0] or 0), "part": "", "positions": [], "uses": []}
        record |= {"known": True, "instruction": g[1], "shape_index": g[2], "in_list": True}
        return record | {"is_phi": bool(g[3]), "color": color(g[4])}

    def record_line(self, record: dict[str, Any] | None, line: Line) -> None:
        """A line of a record that is neither its header nor its instruction.

        Below an unknown line that ends in a colon, lines of lists are unknown up to the next known list.
        """
        part = record["part"] if record else "nobody"
        if record is None:
            self.unknown(line, "a value")
        elif part == "" and line.text == " positions:":
            record |= {"part": "positions", "in_list": True}
        elif part == "positions" and line.text in (" uses:", " uses are not initialized yet."):
            record["known"] = line.text == " uses:"
            record |= {"part": "uses" if record["known"] else "none", "in_list": True}
            if not record["known"]:
                self.file.features.add("uses_unknown")
        elif part == "uses" and line.text == "  (none)" and not record["uses"] and record["in_list"]:
            record["part"] = "none"
            self.file.features.add("uses_none")
        elif not record["in_list"] or not self.place(part, line, record):
            self.unknown(line, "a line of this record")
            if line.text.endswith(":") and not line.text.startswith("  "):
                record["in_list"] = False

    def unglue(self, line: Line) -> tuple[str, Line]:
        """The instruction text, and the header that follows it on the same line (else the line itself)."""
        text = line.text.removeprefix(" from instruction:")
        self.file.features.add("from_instruction")
        if text.startswith(" "):
            self.file.features.add("from_instruction_blank")
            text = text[1:]
        found = re.fullmatch(GLUED, text, re.DOTALL)
        if not found:
            return text, line
        start = len(line.text) - len(found[2])
        before = len(line.text[:start].encode("utf-8", "surrogateescape"))
        return found[1], Line(line.number, line.offset + before, found[2])

    def from_instruction(self, line: Line, text: str) -> None:
        row = instruction(text)
        if row is None:
            self.unknown(line, "%NAME = SHAPE OPCODE(OPERANDS), key=value")
            return
        if re.search(r"(?<!,) %.*[A-Za-z0-9_.-]$", row["operands"]) and not row["operands"].startswith("%"):
            self.file.features.add("operand_shapes")
        texts = self.seen.setdefault(row["instruction"], set())
        if text in texts:
            return
        if texts:
            self.diagnose("instruction_differs", line, "the text printed before")
        texts.add(text)
        self.add("instructions", line, **row | {"text": text if self.text else None})

    def close(self, record: dict[str, Any] | None) -> None:
        """A record is over: store its rows, or say that it is broken."""
        if record is None:
            return
        if record["part"] in ("", "positions"):
            self.unknown(record["line"], "a record with positions and uses")
            return
        if self.records and record["id"] <= (previous := self.records[-1][2]["id"]):
            self.diagnose("ids_descend", record["line"], f"an id above {previous}")
        self.places(record["id"], record["positions"], record["uses"])
        self.records.append((self.file, record["line"], record))

    # -------------------------------------------------------------------------------- live ranges

    def read_live(self, lines: list[Line], last: bool) -> None:
        if (g := match(LIVE, lines[0].text)) and fits(g[0]):
            self.max = int(g[0] or 0)
        else:
            self.diagnose("unknown_line", lines[0], "a number of at most 64 bits", section="file")
        part = ""
        label: list[Line] = []  # lines of the tree that wait for a tail
        dense = True
        for line in lines[1:]:
            text = line.text
            head = live_head(text) if part != "tree" else None
            if head:
                part = head
                self.lists.add(head)
                if head == "peak" and (g := match(PEAK_HEAD, text)):
                    self.peak = int(g[0] or 0)
                if head == "tree" and (g := match(TREE_HEAD, text)):
                    self.tree = (self.file, line, int(number(g[0]) or 0))
                    self.file.features |= {"tree"} | ({"tree_spaced"} if " " in str(g[0]) else set())
                    part = "tree" if self.tree[2] else "end"
            elif part == "schedule" and (g := match(STEP, text)) and fits(g[0]):
                time = int(g[0] or 0)
                if dense and time != len(self.tables["schedule"]):
                    self.diagnose("schedule_gap", line, "steps 0, 1, 2, ...")
                    dense = False
                self.add("schedule", line, time=time, instruction=g[1])
            elif part == "ranges" and (g := match(RANGE, text)) and fits(g[2], g[3]):
                self.add("live_ranges", line, instruction=g[0], shape_index=g[1], start=number(g[2]), end=number(g[3]))
            elif part == "peak" and (g := match(PEAK_C, text) or match(PEAK, text)) and fits(*g[2:]):
                self.file.features.add("peak_c" if len(g) > 3 else "peak_b" if g[1] else "peak_a")
                self.add(
                    "printed_peak", line, ordinal=len(self.tables["printed_peak"]), instruction=g[0],
                    shape_index=g[1], bytes=number(g[2]), cumulative=number(g[3]) if len(g) > 3 else None,
                )  # fmt: skip
            elif part == "tree":
                branch, tailed = match(BRANCH, text), "%, total: " in text
                if branch and tailed:
                    for early in label:  # a whole node: what stands before it is no label
                        self.unknown(early, "the end of this node")
                    label = []
                if not label and not branch and not match(ROOT, text):
                    self.unknown(line, "a node of the tree")
                    continue
                label.append(line)
                if (g := match(TAIL, text)) and fits(*g[2:]):
                    if row := self.node(label):
                        part = "tree" if row["remaining"] else "end"
                    label = []
            else:
                self.unknown(line, "a line of the live ranges")
                if text.endswith(":") and not text.startswith("    "):
                    part = ""  # the head of an unknown list
        if label and last:
            self.file.truncate(self.section, "the end of this node", None if self.file.tail else label[0])
        elif label:
            self.unknown(label[0], "the end of this node")
        self.live = self.file, lines[0]

    def check_live(self) -> None:
        """The lists of the live ranges, in all sections together."""
        if not self.live:
            return
        self.file, head = self.live
        self.section, steps = "live ranges", len(self.tables["schedule"])
        odd = self.odd(self.file, self.section)
        if self.missing_lists and not odd:
            self.file.truncate(self.section, f"{self.max} steps and three lists")
        elif not self.missing_lists and self.max is not None and self.max != steps:
            self.diagnose("steps_differ", head, f"{steps} steps")
        length = max(steps, self.max or 0)
        outside = [r for r in self.tables["live_ranges"] if not 0 <= r["start"] <= r["end"] <= length]
        if outside and not self.missing_lists:
            self.diagnose("range_outside", None, f"steps 0 to {length}")
        nodes = self.tables["printed_stack"]
        unfinished = nodes[-1]["remaining"] != 0 if nodes else bool(self.tree and self.tree[2] > 0)
        if self.tree and not odd and unfinished and not self.missing_lists:
            self.file.truncate(self.section, "the rest of the tree")

    def node(self, lines: list[Line]) -> Row | None:
        """A node of the tree from its lines; the last one has the tail."""
        text = "\n".join(line.text for line in lines)
        g = match(TAIL, text)
        assert g
        assert g[0] is not None
        numbers = g[2:]
        branch, root = match(BRANCH, g[0]), match(ROOT, g[0])
        if not fits(*numbers) or not (branch or root):
            self.unknown(lines[0], "a node of the tree")
            return self.node(lines[1:]) if len(lines) > 1 else None
        if any(" " in str(n) for n in numbers):
            self.file.features.add("tree_spaced")
        for line in lines:
            if is_bad(line.text):
                self.not_utf8(line)
        return self.add(
            "printed_stack", lines[-1], ordinal=len(self.tables["printed_stack"]),
            depth=len(branch[0] or "") // 4 if branch else 0, label=branch[1] if branch else root[0] if root else "",
            percent=g[1], total=number(numbers[0]), current=number(numbers[1]), remaining=number(numbers[2]),
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- report

    def report(self, line: Line, part: str, **values: Any) -> Row:
        return self.add("printed_report", line, ordinal=len(self.tables["printed_report"]), part=part, **values)

    def table_line(self, line: Line, text: str, **common: Any) -> bool:
        """Take a line as a row or as the rest of a table."""
        if (g := match(TABLE_ROW, text)) and fits(g[3], g[4]):
            self.report(
                line, "row", cumulative=g[0], percent=g[1], size=g[2], offset=number(g[3]), n_values=number(g[4]),
                shapes=g[5], **common,
            )  # fmt: skip
            return True
        if (g := match(TABLE_REST, text)) and fits(g[0]):
            self.report(line, "rest", n_rest=number(g[0]), **common)
            return True
        return False

    def read_report(self, lines: list[Line], blank: list[Line]) -> None:
        """Both layouts; their titles, rules and empty lines are known only in their order."""
        after = {  # a line that holds no fact, and the state that it leads to
            ("total", ""): "total gap", ("title", ""): "gap", ("gap", LIST_HEAD): "heading",
            ("heading", "-" * 78): "list", ("list", ""): "list end", ("list end", ""): "second gap",
            ("alone", ""): "open", ("open", "\t" + TABLE_HEAD): "dashes", ("dashes", "\t" + "-" * 60): "rows",
            ("dashes", ""): "tables", ("rows", ""): "tables",
            ("space dashes", "  " + "-" * 60): "space rows", ("space dashes", ""): "space tables",
            ("space rows", ""): "space tables", ("space tables", ""): "closed",
        }  # fmt: skip
        before_list, first_list = ("", "total", "total gap"), ("title", "gap", "heading", "list")
        second_list = ("tables", "alone", "open", "dashes", "rows")
        spaces = ("space", "space tables", "space dashes", "space rows", "closed")
        common: Row = {}  # what the rows of layout A, or of a memory space, share
        table: Row = {}
        state, listed, tabled, head, tables = "", 0, 0, lines[0], 1
        for line in lines + blank:
            text = line.text
            if re.sub(" +", " ", text.lstrip("\t ")) == re.sub(" +", " ", TABLE_HEAD):
                text = text[: text.index("c")] + TABLE_HEAD  # its blanks say nothing
            if (state, text) in after:
                if (state, text) == ("alone", ""):
                    table["n_values"] = None
                if (state, text) == ("space tables", "") and not tables:
                    self.report(head, "space", **common)
                    tables = 1
                state = after[state, text]
            elif state == "" and (g := match(TOTAL, text)) and fits(g[0]):
                common, state = {"total_bytes": int(g[0] or 0)}, "total"
                self.report_lines.append((self.file, line, {"color": None, "total": common["total_bytes"]}))
                self.file.features.add("report_a")
            elif state in before_list and text == "Allocations sorted by size:":
                state = "title"
                self.file.features.add("report_a")
            elif state not in second_list + spaces and text == SECOND_LIST:
                state = "tables"
                self.file.features.add("report_a")
            elif state in first_list and (g := match(LIST, text)) and (a := self.report_allocation(line, g[3])):
                self.report(line, "list", cumulative=g[0], percent=g[1], remaining=g[2], **common | a)
                listed, state = listed + 1, "list"
            elif state in first_list and (g := match(LIST_REST, text)) and fits(g[0]):
                self.report(line, "rest", n_rest=number(g[0]), **common)
                listed, state = listed + int(g[0] or 0), "list"
            elif state in second_list and (a := self.report_allocation(line, text)):
                table = self.report(line, "table", n_values=1, **common | a)
                tabled, state = tabled + 1, "alone"
            elif state in ("dashes", "rows") and text.startswith("\t"):
                if self.table_line(line, text[1:], **common, allocation=table["allocation"]):
                    state = "rows"
                else:
                    self.unknown(line, "a line of the report")
            elif (g := match(SPACE, text)) and fits(g[1]):
                if not tables:
                    self.report(head, "space", **common)
                state, head, tables = "space", line, 0
                common = {"space_label": g[0], "color": number(g[1]), "total_bytes": None}
                self.file.features.add("report_b")
            elif state == "space" and (g := match(SPACE_TOTAL, text)) and fits(g[0]):
                common["total_bytes"] = number(g[0])
                self.report_lines.append((self.file, line, {"color": common["color"], "total": number(g[0])}))
                state = "space tables"
            elif state in ("space", "space tables") and text == "  " + TABLE_HEAD:
                self.report(line, "table", **common)
                tables, state = tables + 1, "space dashes"
            elif (
                state in ("space dashes", "space rows")
                and text.startswith("  ")
                and self.table_line(line, text[2:], **common)
            ):
                state = "space rows"
            elif line not in blank:
                self.unknown(line, "a line of the report")
                if state in second_list and text.startswith("allocation "):
                    state = "tables"
        if not tables:
            self.report(head, "space", **common)
        if (listed != tabled or state not in ("tables", "alone", "closed")) and not self.odd(self.file, self.section):
            self.file.truncate(self.section, "the rest of the report")

    def report_allocation(self, line: Line, text: str | None) -> Row | None:
        """Number and size of an allocation in layout A; its flags are kept to be checked."""
        g = match(REPORT_ALLOCATION, text or "")
        if not g or not fits(g[0], g[2], g[3], g[4]):
            return None
        said = {"allocation": number(g[0]), "size": g[1]}
        self.report_lines.append((self.file, line, said | flags(g[2:])))
        return said

    # ---------------------------------------------------------------------------------------- hlo

    def read_hlo(self) -> None:
        """The head of the HLO text: aliases, donors, stack frames."""
        file, self.section = self.file, "hlo"
        odd = file.split()
        computation = next((i for i, line in enumerate(file.lines) if is_computation(line.text)), None)
        lines = file.lines[:computation]
        if odd and odd in lines:
            self.diagnose("mixed_newlines", odd, "CR LF")
        if file.tail:
            file.truncate(self.section, "the end of this line")
        elif computation is None:
            file.truncate(self.section, "a computation")
        title = ""
        titles = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
        tables: dict[str, list[tuple[int | None, Line, Any]]] = {t: [] for t in titles}
        for line in lines:
            text = line.text
            if text.startswith("HloModule ") and self.module_name is None:
                self.hlo_module(line)
            elif text in tables or not text:
                title = text  # an empty line ends a table
                file.features |= {"frames"} if text else set()
            elif title in ("FileNames", "FunctionNames") and (g := match(QUOTED_ROW, text)) and fits(g[0]):
                tables[title].append((number(g[0]), line, unquoted(str(g[1]))))
                if is_bad(tables[title][-1][2]):
                    self.not_utf8(line)
            elif (
                title in ("FileLocations", "StackFrames")
                and (g := match(BRACED_ROW, text))
                and fits(g[0])
            ):
                fields = dict(pair.split("=", 1) for pair in str(g[1]).split(" ") if "=" in pair)
                tables[title].append((number(g[0]), line, {k: int(v) for k, v in fields.items()}))
            else:
                self.unknown(line, "a table of the HLO text's head")
        first = {t: {i: found for i, _, found in reversed(rows)} for t, rows in tables.items()}
        for frame, line, fields in tables["StackFrames"]:
            where = first["FileLocations"].get(fields.get("file_location_id"), {})
            name = first["FileNames"].get(where.get("file_name_id"))
            function = first["FunctionNames"].get(where.get("function_name_id"))
            places = {k: where.get(k) for k in ("line", "column", "end_line", "end_column")}
            # XLA prints the parent one too high; 1 is none.
            parent = fields.get("parent_frame_id", 0) - 1
            self.add(
                "frames", line, id=frame, parent=parent if parent > 0 else None, file=name, function=function, **places
            )

    def hlo_module(self, line: Line) -> None:
        """The first line: the name, and the attributes with aliases and donors. The others are not read."""
        text = line.text
        end = next((i for i in range(10, len(text)) if text[i] in ", "), len(text))
        self.module_name = text[10:end]
        while end < len(text):
            begin = end = next((i for i in range(end, len(text)) if text[i] not in ", "), len(text))
            while end < len(text) and text[end] not in "=,":
                end += 1
            if text[end : end + 1] == "=":
                key, value, end = text[begin:end], end + 1, stop(text, end + 1, ",")
                while end < len(text) and text[end] != ",":
                    end = stop(text, end + 1, ",")
                items, donors = text[value + 1 : end - 1], key == "buffer_donor"
                known = key == "input_output_alias" or donors
                if known and text[value : value + 1] == "{" and not self.aliases(line, items, donors=donors):
                    before = len(text[:begin].encode("utf-8", "surrogateescape"))
                    self.unknown(Line(line.number, line.offset + before, text[begin:]), "aliases or donors")

    def aliases(self, line: Line, text: str, *, donors: bool) -> bool:
        """The entries of one attribute; False at the first that is not understood."""
        index = r"(\{[0-9, -]*\})"
        output = "()" if donors else rf"{index}: "
        entry = re.compile(rf"{output}\({INT}, {index}(?:, ([A-Za-z0-9_.-]*))?\)")
        while text := text.lstrip(" ,"):
            g = entry.match(text)
            if not g or not fits(g[2]):
                return False
            kind = "donor" if donors else g[4] or None
            self.add("aliases", line, output_index=g[1] or None, parameter=int(g[2]), parameter_index=g[3], kind=kind)
            text = text[g.end() :]
        return True

    # -------------------------------------------------------------------------------------- flags

    def read_flags(self) -> None:
        """Protobuf text: fields, and messages of them."""
        file, self.section = self.file, "flags"
        odd = file.split()
        if odd:
            self.diagnose("mixed_newlines", odd, "CR LF")
        messages: list[str] = []
        ordinal = 0
        comments: list[str] = []  # above the next field, also above messages that begin in between
        above = False
        for i, line in enumerate(file.lines):
            if line.text.lstrip(" ").startswith("#"):
                comments = [*comments, line.text] if above else [line.text]
                above = True
                continue
            above = False
            comment = "\n".join(comments).lstrip(" ") or None
            name, colon, value = line.text.lstrip(" ").partition(": ")
            opened = name.removesuffix(" {") if not colon and name.endswith(" {") else None
            comments = comments if opened is not None and match(FLAG, opened) else []
            if name == "}" and not colon and messages:
                messages.pop()
                continue
            if opened is not None and match(FLAG, opened):
                messages.append(opened)
                if len(messages) <= 100:
                    following = file.lines[i + 1].text.lstrip(" ") if i + 1 < len(file.lines) else ""
                    if following != "}":
                        continue
                    path, value = messages, "{}"
                else:
                    self.unknown(line, "a field")
                    continue
            elif colon and match(FLAG, name) and len(messages) <= 100:
                path = [*messages, name]
            else:
                self.unknown(line, "a field")
                continue
            row = {"ordinal": ordinal, "role": file.role, "name": ".".join(path), "value": value}
            self.add("flags", line, **row, comment=comment)
            ordinal += 1
        if file.tail:
            file.truncate(self.section, "the end of this line")
        elif messages:
            file.truncate(self.section, "the end of this message")

    # ------------------------------------------------------------------------------- afterwards

    def finish(self) -> None:
        rows = self.tables
        self.join()
        self.check_live()
        self.check_files()
        self.check_dump()
        for file in self.files:
            if file.cut:
                section, n, offset, wanted = file.cut
                self.diagnose("truncated", Line(n, offset, ""), wanted, file=file, section=section)
        features = [sorted(f.features - {"e2"}) for f in self.files]
        for i, file in enumerate(self.files):
            complete = file.cut is None and not file.broken
            rows["files"].append({
                "ordinal": i, "role": file.role, "uri": self.uris.get(file.role, file.role), "bytes": len(file.data),
                "content_hash": None, "features": ",".join(features[i]), "complete": complete,
            })  # fmt: skip
        order = [file.role for file in self.files]
        rows["diagnostics"].sort(key=lambda d: (order.index(d["file"]), d["offset"] is None, d["offset"] or 0))
        module: Row = dict.fromkeys(COLUMNS["modules"].split())
        module |= {"module_name": self.module_name, "platform": self.platform}
        module["features"] = ",".join(sorted(set().union(*features)))
        module["complete"] = all(f["complete"] for f in rows["files"])
        module["total_bytes"] = self.totals[0][1] if self.totals else self.report_total
        module |= {"schedule_length": self.max, "printed_peak_time": self.peak}
        if self.peak is not None:
            module["printed_peak_bytes"] = sum(r["bytes"] for r in rows["printed_peak"])
        module |= {c: len(rows[c[2:]]) for c in module if c.startswith("n_")}
        codes = {d["code"] for d in rows["diagnostics"]}
        unknown = {"unknown_line", "unknown_field", "size_too_large"}
        module["understood"] = not codes & unknown
        module["consistent"] = codes <= unknown | {"truncated", "not_utf8", "mixed_newlines"}
        rows["modules"].append(module)
        for table in rows.values():
            for row in table:
                row |= {k: clean(v) for k, v in row.items()}

    @property
    def older(self) -> bool:
        """Whether the values are of the form E1, which prints their uses with them."""
        return any("e1_values" in f.features for f in self.files)

    def join(self) -> None:
        """Fill the columns that need another section."""
        if self.platform is None:
            table = "values" if self.holder("allocations") else "instructions"
            shapes = [r["shape"] for r in self.tables[table]]
            self.platform = "tpu" if any("T(" in s for s in shapes if s) else None
        for row in self.tables["allocations"]:
            row["memory_space"] = SPACES.get(self.platform or "", {}).get(row["color"], f"color_{row['color']}")
        known = {record["id"]: record["known"] for _, _, record in self.records}
        used = self.holder("values", "cut values") is not None
        ids: dict[tuple[str, str], int] = {}
        self.sizes: dict[int, int | None] = {}
        if used and not self.holder("allocations"):
            # The used values still name the values where the allocations are missing.
            for _, line, record in self.records:
                given = {k: record[k] for k in ("instruction", "shape_index", "is_phi", "color")}
                empty = dict.fromkeys(COLUMNS["values"].split())
                self.add("values", line, **empty | given | {"value_id": record["id"]})
        for row in self.tables["values"]:
            row["uses_known"] = True if self.older else known.get(row["value_id"], used or None)
            ids.setdefault((row["instruction"], row["shape_index"] or "{}"), row["value_id"])
            self.sizes[row["value_id"]] = row["unpadded_size"]
        for row in self.tables["live_ranges"]:
            row["value_id"] = ids.get((row["instruction"], row["shape_index"]))
        arrays = {row["instruction"] for row in self.tables["values"] if row["shape_index"] is None}
        first = {row["value_id"]: row["shape_index"] for row in reversed(self.tables["values"])}
        for row in self.tables["live_ranges"]:
            if row["shape_index"] == "{}" and first.get(row["value_id"], "") is None:
                row["shape_index"] = None
        for row in self.tables["printed_peak"]:
            if row["shape_index"] == "{}" and row["instruction"] in arrays:
                row["shape_index"] = None

    @property
    def missing_lists(self) -> bool:
        """Whether the live ranges lack one of their first three lists: then they are checked no further."""
        return bool({"schedule", "ranges", "peak"} - self.lists)

    def holder(self, *kinds: str) -> File | None:
        """The first file that has one of these sections."""
        return next((f for f in self.files if f.sections & set(kinds)), None)

    def check_files(self) -> None:
        """Features and cuts that only several sections together can tell."""
        rows = self.tables
        allocated = self.holder("allocations")
        for f in self.files:
            place = "inline" if "allocations" in f.sections else "split"
            if "values" in f.sections:
                f.features.add(f"values_{place}")
            if "live" in f.sections:
                f.features.add("live_inline" if f.sections & {"allocations", "values"} else "live_split")
        every = set().union(*(f.features for f in self.files)) if self.files else set()
        for f in self.files:
            if "live" in f.sections and not self.odd(f, "live ranges") and not self.missing_lists:
                at = -1 if self.peak is None else self.peak
                holding = [r["value_id"] for r in rows["live_ranges"] if r["start"] <= at <= r["end"]]
                listed = len(rows["printed_peak"])
                if self.tree is None and sum((self.sizes.get(i) or 0) > 0 for i in holding) > listed:
                    f.truncate("live ranges", "the rest of the peak list")
                framed = any(
                    r["stack_frame_id"] is not None or "source_end_line=" in (r["attributes"] or "")
                    for r in rows["instructions"]
                )
                if self.tree is None and ("live_split" in f.features or framed):
                    f.truncate("live ranges", "the tree")
            inline = {"allocations", "values"} <= f.sections and "human_total" in f.features
            if inline and not f.sections & {"live", "no live"}:
                f.truncate("used values", "live ranges")
            if "report b" in f.sections and allocated and not self.odd(f, "report"):
                colors = {r["color"] for r in rows["printed_report"]}
                if not {r["color"] for r in rows["allocations"]} <= colors:
                    f.truncate("report", "a memory space for each color")
        for f in self.files:
            if f.role not in ("hlo", *FLAG_ROLES) and f.data and not f.sections - {"text"} and not self.odd(f, "file"):
                f.truncate("file", "a section")
        if allocated and not rows["allocations"] and not self.odd(allocated, "allocations"):
            allocated.truncate("allocations", "an allocation")
        heads = [r for r in rows["printed_report"] if r["part"] == "table" and r["allocation"] is not None]
        if allocated and heads and heads[-1]["n_values"] == 1 and not self.older:
            last = heads[-1]["allocation"]
            known = {r["allocation"] for r in rows["allocations"]}
            if last in known and sum(r["allocation"] == last for r in rows["values"]) != 1:
                self.holder("report a").truncate("report", "a table of its values")
        newer = "address" in every and not every & {"e0_values", "e1_values"}
        if allocated and not self.holder("values", "cut values") and (newer or "report_a" in every):
            allocated.truncate("allocations", "used values")

    def check_dump(self) -> None:
        """The cross-checks."""
        rows = self.tables
        allocated, used = self.holder("allocations"), self.holder("values")
        allocations = {r["allocation"]: r for r in reversed(rows["allocations"])}
        sizes = sum(r["size"] for r in rows["allocations"])
        if allocated:
            for i, row in enumerate(rows["values"]):
                end = row["offset"] + row["size"]
                if min(row["offset"], row["size"]) < 0 or end > allocations[row["allocation"]]["size"]:
                    self.at("value_outside", "values", i, "allocations", "a value within its allocation")
            for i, row in enumerate(rows["live_ranges"]):
                if row["value_id"] is None and not self.missing_lists:
                    self.at("live_range_unmatched", "live_ranges", i, "live ranges", "a value of this name and index")
            self.check_temps(allocations)
        if allocated and used:
            self.check_records(allocated, used)
        if self.tree and not self.tree[0].cut and not self.missing_lists and not self.odd(self.tree[0], "live ranges"):
            file, line, total = self.tree
            if total != sum(r["total"] for r in rows["printed_stack"] if r["depth"] == 0):
                self.diagnose("tree_differs", line, f"roots of {total} bytes", file=file, section="live ranges")
        if allocated:
            self.check_report(allocations, sizes)
            self.check_total(allocated, sizes)

    def check_total(self, allocated: File, sizes: int) -> None:
        """The sizes against the total; they are missing if used values are left, else the files do not go together."""
        for file, total in self.totals[:1]:
            if total == sizes:
                continue
            at_fault, section = allocated, "allocations"
            if file is not allocated and not self.odd(allocated, "allocations"):
                if sizes < total and self.more:
                    allocated.broken = True
                elif self.report_agrees:
                    at_fault, section = file, "used values"
            self.diagnose("total_differs", None, f"{total} bytes", file=at_fault, section=section)

    def check_temps(self, allocations: dict[int, Row]) -> None:
        """Each value of a temp allocation is live at some time, if the live ranges are there."""
        live = self.holder("live")
        if live is None or self.missing_lists:
            return
        ranged = {r["value_id"] for r in self.tables["live_ranges"]}
        for i, row in enumerate(self.tables["values"]):
            has_range = row["value_id"] in ranged
            ranged.discard(row["value_id"])  # of the first value with this id
            if allocations[row["allocation"]]["is_temp"] and not has_range:
                self.at("live_range_missing", "values", i, "allocations", "a live range")

    def at(self, code: str, table: str, row: int, section: str, wanted: str) -> None:
        file, line = self.where[table, row]
        self.diagnose(code, line, wanted, file=file, section=section)

    def check_records(self, allocated: File, used: File) -> None:
        values = {r["value_id"]: r for r in self.tables["values"]}
        records = {record["id"] for _, _, record in self.records}
        keys = ("instruction", "shape_index", "is_phi", "color")
        both = [record for _, _, record in self.records if record["id"] in values]
        differ = [r for r in both if any(values[r["id"]][k] != r[k] for k in keys)]
        more, fewer = bool(records - set(values)), bool(set(values) - records)
        self.more = more and not fewer and not differ
        if more or fewer:
            agrees = bool(self.totals) and self.totals[0][1] == sum(r["size"] for r in self.tables["allocations"])
            at_fault, section = used, "used values"
            if more and not (fewer and agrees):
                at_fault, section = allocated, "allocations"
            other = (more and fewer) or 2 * len(differ) > len(both)
            if not (self.odd(allocated, "allocations") or self.odd(used, "used values") or other or allocated is used):
                at_fault.broken = True
            self.diagnose("records_differ", None, "the same ids", file=at_fault, section=section)
            return
        for file, line, record in self.records:
            value = values.get(record["id"])
            if value and any(value[k] != record[k] for k in keys):
                self.diagnose(
                    "records_differ", line, "the value of the allocations", file=file, section="used values",
                    severity="warning",
                )  # fmt: skip

    def check_report(self, allocations: dict[int, Row], sizes: int) -> None:
        allocated, report = self.holder("allocations"), self.holder("report a", "report b")
        assert allocated
        totals = [(line, said) for _, line, said in self.report_lines if "total" in said]
        wrong = []
        for line, said in totals:
            of = sum(a["size"] for a in self.tables["allocations"] if said["color"] in (None, a["color"]))
            if said["total"] != of:
                wrong.append((line, of < said["total"]))
        self.report_agrees = bool(totals) and not wrong and report is not None and not report.cut
        for line, _ in wrong:
            self.diagnose("report_differs", line, "the sum", file=report, section="report", severity="error")
        if wrong and report and all(fewer for _, fewer in wrong) and not self.totals and not report.cut:
            allocated.broken |= not (self.odd(allocated, "allocations") or self.odd(report, "report"))
        for file, line, said in self.report_lines:
            if "total" in said:
                continue
            found = allocations.get(said["allocation"])
            good = found is not None and {k: found[k] for k in said} == said | {"size": found["size"]}
            good = good and found is not None and human(found["size"]) == said["size"]
            if found is None and (allocated.cut or allocated.broken):
                good = True  # it was lost to the truncation
            if not good:
                self.diagnose("report_differs", line, "what the allocations say", file=file, section="report")


def flags(g: tuple[str | None, ...]) -> Row:
    """The columns of an allocation's header that follow its size."""
    return {
        "color": number(g[0]) or 0, "page": number(g[1]), "parameter_number": number(g[2]), "parameter_shape": g[3],
        "parameter_shape_index": g[4], "output_shape": g[5], "is_parameter": g[2] is not None,
        "is_entry_root": g[5] is not None, "is_constant": bool(g[6]), "is_thread_local": bool(g[7]),
        "is_live_out": bool(g[8]), "is_temp": bool(g[9]),
    }  # fmt: skip


def live_head(text: str) -> str | None:
    if text == "  InstructionSequence:":
        return "schedule"
    if text == "  BufferLiveRange:":
        return "ranges"
    if (g := match(PEAK_HEAD, text)) and fits(g[0]):
        return "peak"
    if (g := match(TREE_HEAD, text)) and fits(g[0]):
        return "tree"
    return None


def is_computation(text: str) -> bool:
    return match(r"[%A-Za-z_].*\{", text) is not None


HEADS = {
    "allocations": ("BufferAssignment:", "BufferAssignment ("), "total": ("Total bytes used:",),
    "values": ("Used values:", "Used values ("), "live": ("HloLiveRange (",), "no live": (NO_LIVE,),
    "list": ("Allocations sorted by size:", "Allocations sorted by size ("), "report b": ("Memory Space: ",),
}  # fmt: skip


def sections(lines: list[Line]) -> Iterator[tuple[str, list[Line], bool]]:
    """The sections of a file: kind, lines, whether it is the last one. A total belongs to what follows it."""
    heads = [(i, k) for i, line in enumerate(lines) for k, starts in HEADS.items() if line.text.startswith(starts)]
    starts: list[tuple[int, str]] = []
    total: int | None = None
    for n, (i, kind) in enumerate(heads):
        following = heads[n + 1][1] if n + 1 < len(heads) else None
        if kind == "total":
            total = i
            if following not in ("values", "list"):
                starts.append((i, "cut values"))
                total = None
            continue
        if kind in ("values", "list"):
            starts.append((i if total is None else total, "values" if kind == "values" else "report a"))
        elif not (kind == "report b" and starts and starts[-1][1].startswith("report")):
            starts.append((i, kind))
        total = None
    first = starts[0][0] if starts else len(lines)
    if first:
        yield "text", lines[:first], not starts
    for (start, kind), end in zip(starts, [i for i, _ in starts[1:]] + [len(lines)], strict=False):
        yield kind, lines[start:end], end == len(lines)


def strip_empty(lines: list[Line]) -> tuple[list[Line], list[Line]]:
    """A section without the empty lines at its end, and those."""
    end = len(lines)
    while end and not lines[end - 1].text:
        end -= 1
    return lines[:end], lines[end:]


def read(
    members: dict[str, bytes], *, uris: dict[str, str] | None = None, platform: str | None = None, text: bool = True
) -> dict[str, list[Row]]:
    """Every table of one dump, from the bytes of its files by role."""
    return Reader(members, uris or {}, platform, text).read()
