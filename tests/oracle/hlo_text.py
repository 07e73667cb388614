"""A slow and obvious reader of the computations in an HLO text: what the native one is compared with.

It follows docs/reading.md with regular expressions and the standard library alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from oracle import clean, unescape

Row = dict[str, Any]

NAME = r"([A-Za-z_][A-Za-z0-9_.-]*)"
KEY = re.compile(r"[A-Za-z0-9_.-]+=")
DEFINITION = re.compile(rf" +(ROOT )?+%?{NAME} = ")
HEAD = re.compile(rf"(?!HloModule )(ENTRY )?+%?{NAME} .*\{{")
OPERAND = re.compile(rf"(?:.*[ /])?%?{NAME}((?:#[0-9]+)*)", re.DOTALL)
CALLS = (
    "calls", "to_apply", "condition", "body", "branch_computations", "called_computations", "true_computation",
    "false_computation", "select", "scatter",
)  # fmt: skip


def reach(text: str, begin: int, stops: str) -> int:
    """The first of the stops, or closing bracket, behind `begin` and outside of brackets and quotes; else the end."""
    depth, i = 0, begin
    while i < len(text):
        c = text[i]
        if depth == 0 and (c in stops or c in ")]}"):
            return i
        if c == '"':
            quoted = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL).match(text, i)
            if not quoted:
                return len(text)
            i = quoted.end()
            continue
        depth += (c in "([{") - (c in ")]}")
        i += 1
    return len(text)


def value_end(text: str, begin: int) -> int:
    """Where an attribute's value ends: at the first ", key=" outside of brackets and quotes."""
    i = reach(text, begin, ",")
    while i < len(text) and not (text.startswith(", ", i) and KEY.match(text, i + 2)):
        i = reach(text, i + 1, ",")
    return i


def integer(text: str) -> int | None:
    found = re.fullmatch(r"-?[0-9]+", text)
    return int(text) if found and abs(int(text)) < 1 << 63 else None


def ordinal(text: str) -> int | None:
    return None if text.startswith("-") else integer(text)


def quoted(text: str) -> str | None:
    return unescape(text[1:-1]) if re.fullmatch(r'".*"', text, re.DOTALL) else None


@dataclass
class Body:
    """The rows of a text; names are text, rows and computations are numbers, None is missing."""

    instructions: list[Row] = field(default_factory=list)
    computations: list[Row] = field(default_factory=list)
    entry: int | None = None
    unknown: int = 0
    complete: bool = False


class Reader:
    def __init__(self, data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        self.lines = text.split("\n")[:-1]
        self.body = Body()
        self.good = True

    def read(self) -> Body:
        body, i, inside = self.body, 0, False
        while i < len(self.lines):
            line = self.lines[i]
            self.good = True
            if inside and (found := DEFINITION.match(line)):
                i += self.instruction(i, found)
            elif found := HEAD.fullmatch(line):
                inside = True
                if found[1] and body.entry is None:
                    body.entry = len(body.computations)
                body.computations.append({"name": found[2], "begin": len(body.instructions), "root": None})
            elif inside and line.startswith("}"):
                inside = False
            elif line and body.computations:
                self.good = False
            body.unknown += not self.good
            i += 1
        self.finish()
        body.complete = body.entry is not None and not inside
        return body

    def instruction(self, i: int, found: re.Match[str]) -> int:
        """Read the instruction at line i, and return how many more lines it has."""
        line, more = self.lines[i], 0
        shape = found.end()
        opcode = reach(line, shape, " ") + 1
        known = re.compile(r"([A-Za-z0-9_.-]+)\(").match(line, opcode)
        if opcode > len(line) or opcode - 1 == shape or line[opcode - 1] != " " or not known:
            self.good = False
            return 0
        close = reach(line, known.end(), "")
        if close == len(line):  # a constant of several lines
            last = i + 1
            while last < len(self.lines) and not (
                self.lines[last] == "" or DEFINITION.match(self.lines[last]) or HEAD.fullmatch(self.lines[last])
            ):
                last += 1
            line = "".join(part + "\n" for part in self.lines[i:last])
            close = reach(line, known.end(), "")
            more = line.count("\n", 0, close)
            line = line[: line.find("\n", close)] if close < len(line) else line
        if close == len(line) or line[close] != ")":
            self.good = False
            return 0
        while line.endswith("{") and close + 1 < len(line):  # JSON of a Pallas kernel on lines of its own
            last = i + more + 1
            while last < len(self.lines) and self.lines[last].startswith('"'):
                last += 1
            if last in (i + more + 1, len(self.lines)) or not self.lines[last].startswith("}"):
                break
            line = "\n".join([line, *self.lines[i + more + 1 : last + 1]])
            more = last - i
        row: Row = {
            "instruction": found[2], "computation": len(self.body.computations) - 1, "opcode": known[1],
            "element_type": array[1] if (array := re.compile(r"([A-Za-z0-9_.-]+)\[").match(line, shape)) else None,
            "op_name": None, "source_file": None, "source_line": None, "stack_frame_id": None,
            "is_root": found[1] is not None, "parameter_number": None, "tuple_index": None, "operands": [],
            "calls": [],
        }  # fmt: skip
        inner = line[known.end() : close]
        if known[1] == "parameter":
            row["parameter_number"] = ordinal(inner)
            self.good &= row["parameter_number"] is not None
        elif known[1] != "constant":
            self.operands(row, inner)
        self.attributes(row, line[close + 1 :])
        self.body.instructions.append(row)
        return more

    def operands(self, row: Row, text: str) -> None:
        i = 0
        while i < len(text):
            i += text[i] == " "
            end = reach(text, i, ",")
            found = OPERAND.fullmatch(text[i:end])
            name, index = found.groups() if found else (None, "")
            row["operands"].append((name, "{" + ",".join(index[1:].split("#")) + "}" if index else None))
            self.good &= found is not None
            i = end + 1

    def attributes(self, row: Row, text: str) -> None:
        i = 0
        while i < len(text):
            key = KEY.match(text, i + 2)
            if not text.startswith(", ", i) or not key:
                self.good = False
                return
            begin, name = key.end(), key[0][:-1]
            if name == "metadata" and text.startswith("{", begin):
                end = self.metadata(row, text, begin + 1)
                if end is not None:
                    i = end
                    continue
                self.good = False
            i = value_end(text, begin)
            value = text[begin:i]
            if name in CALLS:
                self.calls(row, name, value)
            elif name == "index":
                row["tuple_index"] = ordinal(value) if ordinal(value) is not None else row["tuple_index"]
                self.good &= ordinal(value) is not None

    def metadata(self, row: Row, text: str, i: int) -> int | None:
        """Read the fields from i on, and return the end of the metadata; None if it is malformed."""
        while i < len(text) and text[i] != "}":
            key = KEY.match(text, i)
            if not key:
                return None
            begin, name = key.end(), key[0][:-1]
            if text.startswith('"', begin):
                found = re.compile(r'"(?:[^"\\]|\\.)*"').match(text, begin)
                end = found.end() if found else len(text)
            else:
                end = reach(text, begin, " ")
            if end >= len(text) or text[end] not in " }":
                return None
            value = text[begin:end]
            if name in ("op_name", "source_file"):
                if quoted(value) is None:
                    return None
                row[name] = quoted(value)
            elif name in ("source_line", "stack_frame_id"):
                if integer(value) is None:
                    return None
                row[name] = integer(value)
            i = end + (text[end] == " ")
        return i + 1 if i < len(text) else None

    def calls(self, row: Row, key: str, value: str) -> None:
        if len(value) > 1 and value[0] == "{" and value[-1] == "}":
            value = value[1:-1]
            if not value:
                return
        while True:
            found = re.match(rf"%?{NAME}", value)
            if not found:
                self.good = False
                return
            row["calls"].append((CALLS.index(key), found[1]))
            value = value[found.end() :]
            if not value:
                return
            if not value.startswith(", "):
                self.good = False
                return
            value = value[2:]

    def finish(self) -> None:
        """Replace names by rows and numbers of computations, and clean texts."""
        body = self.body
        first: dict[tuple[int, str], int] = {}
        for i, row in enumerate(body.instructions):
            first.setdefault((row["computation"], row["instruction"]), i)
        number: dict[str, int] = {}
        for i, computation in enumerate(body.computations):
            number.setdefault(computation["name"], i)
        for i, row in enumerate(body.instructions):
            row["operands"] = [(*o, first.get((row["computation"], o[0]))) for o in row["operands"]]
            row["calls"] = [(kind, number.get(name)) for kind, name in row["calls"]]
            called = [c for k, c in row["calls"] if CALLS[k] == "body"][-1:] or [c for _, c in row["calls"]] or [None]
            row["called"] = called[0]
            for column in ("op_name", "source_file"):
                row[column] = clean(row[column])
            if row["is_root"]:
                body.computations[row["computation"]]["root"] = i


def read(data: bytes) -> Body:
    """Read the complete lines of an HLO text."""
    return Reader(data).read()
