"""Write a dump again under other names: the same program, as another process might have compiled it.

Names of instructions, value ids, stack frames, source lines, paths and module numbers change; memory behaviour, scopes
(op_name) and the order of the schedule do not. What XLA sorts by id or name is sorted again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from itertools import accumulate, pairwise
from pathlib import Path

NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
INDEX = r"\{[0-9,]*\}"
QUOTED = r'"(?:\\.|[^"\\])*"'
SHORT = rf"<(?P<id>\d+) (?P<name>{NAME})(?P<index>{INDEX})?(?P<rest>(?: \(phi\))?(?: @-?\d+)?)>"
VALUE_E1 = rf"(?m)^  (?P<id>\d+) (?P<phi>PHI )?(?P<name>{NAME})(?P<index>{INDEX})?(?P<rest> @-?\d+, positions:)$"
VALUE_E0 = rf"(?m)^  (?P<name>{NAME})(?P<index>\[[0-9,]*\])\(#(?P<id>\d+)(?P<rest> @-?\d+)?\)"
POSITION = rf"(?m)^  ({NAME})(?= {INDEX}$|$)"
USE = rf"(?m)^  ({NAME})(?=, operand )"
DEFINED = rf"(?m)^  (?:ROOT )?%?({NAME}) = "
COMPUTATION = rf"(?m)^(?:ENTRY )?%?({NAME}) (?=\(|\{{$)"
LIVE = rf"(?m)^    ({NAME})(?={INDEX}:\d+-\d+$|(?:{INDEX})?: \d+ bytes)"
HEADS = re.compile(
    r"(?m)^(?=BufferAssignment:|Total bytes used|Used values:|HloLiveRange |HloModule |Memory Space:|\*\*\* )"
)


class Renaming:
    """A consistent renaming of everything in the files of one dump."""

    def __init__(self, texts: Iterable[str], seed: int, *, shuffle_ids: bool = True) -> None:
        self.rng = random.Random(seed)
        self.shuffle_ids = shuffle_ids
        self.ids: dict[str, str] = {}
        self.value: dict[tuple[str, str], int] = {}
        """The new id of each value, by its old name and index."""
        self.frames: dict[str, int] = {}
        self.lines = self.rng.randrange(10, 1000)
        """How far lines move."""
        names: dict[str, None] = {}
        headers: list[tuple[str, str, str]] = []
        for text in texts:
            for section in sections(text):
                names |= dict.fromkeys(_names(section))
                headers += _headers(section)
                frames = section.partition("\nStackFrames\n")[2].partition("\n\n")[0]
                self.frames |= dict.fromkeys(re.findall(r"(?m)^(\d+) \{", frames), 0)
        self._number_values(headers)
        numbers = self.rng.sample(range(1, len(self.frames) + 1), len(self.frames))
        self.frames = dict(zip(self.frames, numbers, strict=True))
        self.names = self._new_names(names)

    def _number_values(self, headers: list[tuple[str, str, str]]) -> None:
        old = sorted({i for i, _, _ in headers}, key=int)
        new = self.rng.sample(old, len(old)) if self.shuffle_ids else [str(3 * int(i) + 7) for i in old]
        self.ids = dict(zip(old, new, strict=True))
        self.value = {(name, index or "{}"): int(self.ids[i]) for i, name, index in headers}

    def _new_names(self, names: Iterable[str]) -> dict[str, str]:
        """Number names anew; a clone is named after the instruction that was cloned."""
        bases = dict.fromkeys(re.split(r"\.(?=remat|clone)", name)[0] for name in names)
        numbers = self.rng.sample(range(1000, 1000 + 10 * len(bases)), len(bases))
        new = {b: f"{re.sub(r'[.][0-9]+$', '', b)}.{n}" for b, n in zip(bases, numbers, strict=True)}
        return {n: new[b] + n[len(b) :] for n in names for b in [re.split(r"\.(?=remat|clone)", n)[0]]}

    # -- files

    def text(self, text: str) -> str:
        return "".join(self._section(section) for section in sections(text))

    def _section(self, text: str) -> str:
        text = re.sub(r"stack_frame_id=(\d+)", lambda m: f"stack_frame_id={self.frames.get(m[1], m[1])}", text)
        text = re.sub(r"(source_(?:end_)?line)=(\d+)", self._line, text)
        text = re.sub(r'source_file="(?=.)', 'source_file="/moved/', text)
        head = text[:16]
        if head.startswith("BufferAssignment"):
            return self._allocations(text)
        if head.startswith("Used values"):
            return self._used(text)
        if head.startswith("HloLiveRange ("):
            return self._live(text)
        if head.startswith("HloModule"):
            return self._hlo(text)
        return re.sub(r"module_\d+\.", other_module, text) if head.startswith("*** ") else text

    def _line(self, match: re.Match[str]) -> str:
        return f"{match[1]}={int(match[2]) + self.lines}"

    def _name(self, match: re.Match[str]) -> str:
        return match[0].replace(match[1], self.names.get(match[1], match[1]), 1)

    def _short(self, match: re.Match[str]) -> str:
        return f"<{self.ids[match['id']]} {self.names[match['name']]}{match['index'] or ''}{match['rest']}>"

    def _positions(self, text: str) -> str:
        return re.sub(USE, self._name, re.sub(POSITION, self._name, text))

    def _instructions(self, text: str) -> str:
        return re.sub(rf"%({NAME})", self._name, text)

    # -- sections

    def _allocations(self, text: str) -> str:
        """The values of an allocation are sorted by their ids."""
        return "".join(self._allocation(part) for part in re.split(r"(?m)^(?=allocation )", text))

    def _allocation(self, text: str) -> str:
        if re.search(VALUE_E1, text):
            head, blocks = _split(VALUE_E1, text)
            return head + "".join(self._sorted([self._value_e1(b) for b in blocks], r"  (\d+) "))
        text = re.sub(VALUE_E0, lambda m: m[0].replace(m["name"], self.names[m["name"]], 1), text)
        text = re.sub(r"\(#(\d+)", lambda m: f"(#{self.ids[m[1]]}", text)
        head, lines = _split(rf"(?m)^ value: {SHORT}", re.sub(SHORT, self._short, text))
        # The last value is followed by a block of values of other colors, or by empty lines.
        last, tail = re.match(r"(.*\n?)((?:.|\n)*)", lines[-1]).groups() if lines else ("", "")  # type: ignore[union-attr]
        return head + "".join(self._sorted([*lines[:-1], last] if lines else [], r" value: <(\d+) ")) + tail

    def _value_e1(self, block: str) -> str:
        header, newline, rest = block.partition("\n")
        header = re.sub(
            VALUE_E1,
            lambda m: f"  {self.ids[m['id']]} {m['phi'] or ''}{self.names[m['name']]}{m['index'] or ''}{m['rest']}",
            header,
        )
        return header + newline + self._positions(rest)

    def _sorted(self, blocks: list[str], pattern: str) -> list[str]:
        return sorted(blocks, key=lambda b: int(re.match(pattern, b)[1]))  # type: ignore[index]

    def _used(self, text: str) -> str:
        """Records are sorted by their ids; some releases print no newline between them."""
        head, blocks = _split(rf"{SHORT}(?=\n positions:)", text)
        if not blocks:
            return text
        tail = text[len(text.rstrip("\n")) :]
        separator = "\n" if len(blocks) == 1 or blocks[0].endswith("\n") else ""
        renamed = [self._record(b.rstrip("\n")) for b in blocks]
        return head + separator.join(self._sorted(renamed, r"<(\d+) ")) + tail

    def _record(self, block: str) -> str:
        header, newline, rest = block.partition("\n")
        places, mark, instruction = rest.partition(" from instruction:")
        renamed = re.sub(SHORT, self._short, header) + newline + self._positions(places)
        return renamed + mark + self._instructions(instruction)

    def _live(self, text: str) -> str:
        sequence, mark, rest = text.partition("  BufferLiveRange:\n")
        ranges, peak_mark, peak = rest.partition("  Live ranges at ")
        ordered = sorted(ranges.splitlines(keepends=True), key=self._id_of_range)
        sequence = re.sub(rf"(?m)^    \d+:({NAME})$", self._name, sequence)
        return sequence + mark + re.sub(LIVE, self._name, "".join(ordered)) + peak_mark + self._peak(peak)

    def _id_of_range(self, line: str) -> int:
        match = re.match(rf"    ({NAME})({INDEX}):", line)
        return self.value.get((match[1], match[2]), -1) if match else -1

    def _peak(self, text: str) -> str:
        listed, mark, tree = text.partition("  Stack trace breakdown")
        head, newline, lines = re.sub(LIVE, self._name, listed).partition("\n")
        rows = re.findall(rf"    ({NAME})({INDEX}): (\d+) bytes \(cumulative: \d+ bytes\)\n", lines)
        if rows:
            rows.sort(key=lambda r: (-int(r[2]), r[0], [int(i) for i in r[1][1:-1].split(",") if i]))
            sums = accumulate(int(r[2]) for r in rows)
            lines = "".join(
                f"    {n}{i}: {size} bytes (cumulative: {total} bytes)\n"
                for (n, i, size), total in zip(rows, sums, strict=True)
            )
        label = rf"(?m)^(?:[ │]|├──|└──)*({NAME})(?=(?:{INDEX})? \(\d)"
        return head + newline + lines + mark + re.sub(label.encode().decode("latin-1"), self._label, tree)

    def _label(self, match: re.Match[str]) -> str:
        prefix = match[0][: match.start(1) - match.start(0)]
        return prefix + self.names.get(match[1], match[1])

    def _hlo(self, text: str) -> str:
        head, tables = _tables(text)
        body = text[len(head) + sum(map(len, tables)) :]
        return head + "".join(self._table(t) for t in tables) + "\n".join(map(self._hlo_line, body.split("\n")))

    def _table(self, text: str) -> str:
        title, newline, rows = text.partition("\n")
        if title == "FileNames":
            rows = re.sub(r'(?m)^(\d+) "(?=.)', r'\1 "/moved/', rows)
        elif title == "FunctionNames":
            rows = re.sub(r'(?m)^(\d+) "(?=[a-z])', r'\1 "other_', rows)
        elif title == "FileLocations":
            rows = re.sub(r"\b((?:end_)?line)=(\d+)", self._line, rows)
        else:
            rows = re.sub(r"(?m)^(\d+)(?= \{)", lambda m: str(self.frames[m[1]]), rows)
            rows = re.sub(r"parent_frame_id=(\d+)", self._parent, rows)
            lines = re.findall(r"(?m)^\d+ .*\n", rows)
            rows = "".join(self._sorted(lines, r"(\d+) ")) + rows[sum(map(len, lines)) :]
        return title + newline + rows

    def _parent(self, match: re.Match[str]) -> str:
        parent = int(match[1]) - 1  # printed one too high
        return f"parent_frame_id={self.frames[str(parent)] + 1 if parent else 1}"

    def _hlo_line(self, line: str) -> str:
        if re.match(COMPUTATION, line):
            line = re.sub(rf"(?<=[(, ])({NAME})(?=: )", self._name, line)
            return re.sub(rf"^((?:ENTRY )?%?)({NAME})", lambda m: m[1] + self.names.get(m[2], m[2]), line)
        if "%" in line or not (match := re.match(DEFINED, line)):
            return self._instructions(line)
        # Old releases print names without %: in the operands and attributes, not before "=".
        name = match[0].replace(match[1], self.names.get(match[1], match[1]))
        shape, bracket, rest = _shape_and_rest(line[match.end() :])
        parts = re.split(f"({QUOTED})", rest)
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(rf"(?<![\w.-])({NAME})(?![\w.-]*[=\[(])", self._name, parts[i])
        return name + shape + bracket + "".join(parts)


def rename(source: Path, target: Path, seed: int = 0, *, shuffle_ids: bool = True) -> Path:
    """Write the dumps in the folder `source` to the folder `target` under other names, and return it.

    Some results depend on the order of the value ids: bytes that values share belong to the lowest id. They stay equal
    if `shuffle_ids` is False, when ids change without changing their order.
    """
    target.mkdir(parents=True, exist_ok=True)
    files = [f for f in sorted(source.iterdir()) if f.suffix == ".txt" or f.name.endswith(".debug_options")]
    dumps: dict[str, list[Path]] = {}
    for file in files:
        module = re.match(r"(?:\d+\.)?module_\d+\.", file.name)
        dumps.setdefault(module[0] if module else file.name, []).append(file)
    for members in dumps.values():
        texts = {f: f.read_bytes().decode("latin-1") for f in members}
        renaming = Renaming(texts.values(), seed, shuffle_ids=shuffle_ids)
        for file, text in texts.items():
            name = re.sub(r"module_\d+\.", other_module, file.name)
            (target / name).write_bytes(renaming.text(text).encode("latin-1"))
    return target


def other_module(match: re.Match[str]) -> str:
    return f"module_{int(match[0][7:-1]) + 4321:04d}."


def sections(text: str) -> list[str]:
    """Split a text at the lines that open a section."""
    return HEADS.split(text)


def _split(pattern: str, text: str) -> tuple[str, list[str]]:
    """Split a text at each match; also return what is before the first."""
    begins = [m.start() for m in re.finditer(pattern, text)]
    bounds = [0, *begins, len(text)]
    head, *parts = (text[a:b] for a, b in pairwise(bounds))
    return head, parts


def _names(section: str) -> list[str]:
    """The names that a section defines or mentions."""
    if section.startswith("HloModule"):
        plain = re.sub(QUOTED, "", section)
        return [*re.findall(DEFINED, plain), *re.findall(COMPUTATION, plain), *re.findall(rf"%({NAME})", plain)]
    if section.startswith("HloLiveRange ("):
        return [*re.findall(rf"(?m)^    \d+:({NAME})$", section), *re.findall(LIVE, section)]
    found = [m["name"] for m in re.finditer(SHORT, section)]
    for pattern in (VALUE_E1, VALUE_E0):
        found += [m["name"] for m in re.finditer(pattern, section)]
    instructions = re.findall(r"(?m)^ from instruction:.*", section)
    found += [n for text in instructions for n in re.findall(rf"%({NAME})", re.sub(QUOTED, "", text))]
    return [*found, *re.findall(POSITION, section), *re.findall(USE, section)]


def _headers(section: str) -> list[tuple[str, str, str]]:
    """Id, name and index of the values in a section."""
    if section.startswith(("HloModule", "HloLiveRange")):
        return []
    patterns = (SHORT, VALUE_E1, VALUE_E0)
    return [(m["id"], m["name"], m["index"] or "") for p in patterns for m in re.finditer(p, section)]


def _tables(text: str) -> tuple[str, list[str]]:
    """The first line of an HLO text with the empty line below it, and the tables of stack frames."""
    match = re.match(r"HloModule .*\n\n?", text)
    head = match[0] if match else ""
    tables, rest = [], text[len(head) :]
    while table := re.match(r"(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n*", rest):
        tables.append(table[0])
        rest = rest[table.end() :]
    return head, tables


def _shape_and_rest(text: str) -> tuple[str, str, str]:
    """Split "SHAPE OPCODE(…" after the opcode's bracket."""
    depth = 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == " " and depth == 0:
            opcode, bracket, rest = text[i + 1 :].partition("(")
            return text[: i + 1] + opcode, bracket, rest
    return text, "", ""
