"""Write dumps of a hundred megabytes to many gigabytes at the speed of the disk, in memory that does not grow.

A *unit* of some 17 MB is grown and rendered as in `forge_bulk`; the dump is copies of it. Every number in it that
must differ from copy to copy (of names, values, allocations, layers and steps) is printed with a fixed count of
digits behind a mark, and the mark becomes the number of the copy: `fusion.0042` of copy 3 is `fusion.30042`. As in
one long program all forward halves run before the first backward half, so that what is kept for the
backward half lives across all that lies between, and the peak holds values of every copy.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from bulk_statistics import MEASURED
from forge import ERAS, Row, stem_of, tree_of
from forge_bulk import BulkDump, BulkProgram
from forge_program import Value, index_text
from render import connectors, human, render_dump, spaced

COPY, FORWARD, BACKWARD, END = "\x01", "\x02", "\x03", "\x04"
"""Marks: the number of the copy; of its forward and of its backward half in time; the last step of all."""
DIGITS = 4
HALF = 10**DIGITS
"""Steps of each half of a unit."""
PADDING = 16
"""Steps that are left for the last operation of a half: none has more."""


class _Unit(BulkProgram):
    """A program whose halves have exactly `HALF` steps; its numbers carry marks."""

    def number(self, n: int) -> str:
        return f"{COPY}{n:03}"

    def fresh(self, base: str) -> str:
        self._numbers[base] += 1
        return f"{base}.{COPY}{self._numbers[base]:0{DIGITS}}"

    def _id(self) -> str:  # sorts as the numbers do
        return f"{COPY}{super()._id():06}"

    def grow(self, count: int, wide: int) -> None:
        donated = self._begin(count, wide)
        self._half(HALF)
        self._backward = True
        self._half(2 * HALF - len(donated) - 1)
        self._root_of(donated)
        self._place()

    def _half(self, until: int) -> None:
        while len(self.schedule) < until - PADDING:
            at = len(self.schedule)
            self._body_step(min(at, 2 * HALF - at))
        while len(self.schedule) < until:
            self.step(self.fresh("bitcast"))


class _UnitDump(BulkDump):
    """The tables of a unit, with marks on the numbers that differ from copy to copy."""

    def __init__(self, unit: _Unit):
        super().__init__(unit)
        for row in (*self.tables["allocations"], *self.tables["values"]):
            row["allocation"] = f"{COPY}{row['allocation']:05}"
        for row in self.tables["schedule"]:
            row["time"] = _moment(row["time"])
        for row in self.tables["live_ranges"]:
            row |= {"start": _moment(row["start"]), "end": _moment(row["end"])}


def _moment(time: int) -> str:
    half, step = divmod(time, HALF)
    return END if half == 2 else f"{(FORWARD, BACKWARD)[half]}{step:0{DIGITS}}"


def forge_large(
    directory: Path, *, seed: int, copies: int, platform: Literal["cpu", "gpu", "tpu"] = "tpu", wide: int = 0
) -> list[Path]:
    """Write the memory files of one large dump of the newest era; their paths.

    Each copy has some 17 MB, and with `wide` a tuple parameter of so many leaves that repeat its text.
    """
    unit = _Unit(ERAS["E7"], platform, random.Random(f"large/{seed}/{platform}"))
    unit.grow(round(2 * HALF / MEASURED[platform]["steps_per_value"]), wide)
    texts = {role: content.decode() for role, content in render_dump(_UnitDump(unit)).items()}
    write = {
        "buffer-assignment": _allocations,
        "buffer-assignment-values": _used_values,
        "live-range": partial(_live_range, peak=_at_the_middle(unit)),
        "memory-usage-report": _report,
    }
    paths = []
    for role, text in texts.items():
        path = Path(directory) / f"{stem_of(unit.era, platform)}-{role}.txt"
        with open(path, "wb") as file:
            file.writelines(write[role](text, copies))
        paths.append(path)
    return paths


# ------------------------------------------------------------------------------- one function a file


def _copy(text: str, copies: int, order: Iterable[int] | None = None) -> Iterator[bytes]:
    """A text of the unit, once for each copy."""
    data = text.encode()
    for k in range(copies) if order is None else order:
        # Copy 0 has plain numbers: no zeros lead.
        copy = data if k else re.sub(rb"[\x01\x02]0*(?=\d)", b"", data)
        numbers = {COPY: k, FORWARD: k, BACKWARD: 2 * copies - 1 - k, END: 2 * copies * HALF}
        for mark, number in numbers.items():
            copy = copy.replace(mark.encode(), b"%d" % number)
        yield copy


def _allocations(text: str, copies: int) -> Iterator[bytes]:
    head, body = _after(text, "BufferAssignment:\n")
    yield head
    yield from _copy(body, copies)


def _used_values(text: str, copies: int) -> Iterator[bytes]:
    head, body = _after(text, "Used values:\n")
    yield _totals(head, copies)
    yield from _copy(body, copies)


def _live_range(text: str, copies: int, *, peak: list[Value]) -> Iterator[bytes]:
    _, schedule = _after(text, "  InstructionSequence:\n")
    schedule, _, ranges = schedule.partition("  BufferLiveRange:\n")
    backward = schedule.index(f"    {BACKWARD}")
    yield b"HloLiveRange (max %d):\n  InstructionSequence:\n" % (2 * copies * HALF)
    yield from _copy(schedule[:backward], copies)
    yield from _copy(schedule[backward:], copies, reversed(range(copies)))
    yield b"  BufferLiveRange:\n"
    yield from _copy(ranges[: ranges.index("  Live ranges at ")], copies)
    yield b"  Live ranges at %d (peak):\n" % (copies * HALF - 1)
    yield from _peak(peak, copies)
    yield from _tree(tree_of(peak), copies)


def _report(text: str, copies: int) -> Iterator[bytes]:
    """The tables of a space name nothing of the copy."""
    for space in re.split(r"(?m)^(?=Memory Space)", text)[1:]:
        head, total, tables = re.match(r"(.*\n)(Total.*\n)(?s:(.*))", space).groups()
        yield head.encode() + _totals(total, copies)
        tables = tables.removesuffix("\n")
        for _ in range(copies):
            yield tables.encode()
        yield b"\n"


def _after(text: str, line: str) -> tuple[bytes, str]:
    head, found, body = text.partition(line)
    return (head + found).encode(), body


def _totals(head: str | bytes, copies: int) -> bytes:
    """A head with its total, `N (human)`, that of all copies."""
    head = head if isinstance(head, str) else head.decode()
    total = copies * int(re.search(r": (\d+)", head)[1])
    return re.sub(r": \d+ \(.*\)", f": {total} ({human(total)})", head).encode()


# ------------------------------------------------------------------------------- the peak and its tree


def _at_the_middle(unit: _Unit) -> list[Value]:
    """What is live after the last forward step, in the order in which XLA prints it."""
    live = [v for v in unit.values if v.start is not None and v.start < HALF <= v.end + 1 and v.shape.bytes]
    return sorted(live, key=lambda v: (-v.shape.bytes, v.instruction, v.index or ()))


def _peak(peak: list[Value], copies: int) -> Iterator[bytes]:
    running = 0
    for value in peak:
        head, tail = value.instruction.split(COPY)
        size = value.shape.bytes
        lines = []
        for k in range(copies):
            running += size
            name = f"{head}{k}{tail}" if k else head + tail.lstrip("0")
            lines.append(f"    {name}{index_text(value.index or ())}: {size} bytes (cumulative: {running} bytes)\n")
        yield "".join(lines).encode()


def _tree(rows: list[Row], copies: int) -> Iterator[bytes]:
    """A node whose label has a mark is there for each copy, with all below it; the others hold all copies."""
    whole = left = copies * sum(row["total"] for row in rows if row["depth"] == 0)
    yield f"  Stack trace breakdown for peak usage: {spaced(whole)} bytes\n".encode()
    blocks = _blocks(rows)
    # Each block drawn twice: as one that another copy follows, and as the last.
    drawn = iter(connectors([row["depth"] for block in blocks for _ in range(2) for row in block]))
    for block in blocks:
        signs = [[next(drawn) for _ in block] for _ in range(2)]
        times = copies if COPY in block[0]["label"] else 1
        for k in range(times):
            lines = []
            for sign, row in zip(signs[k == times - 1], block, strict=True):
                total, current = (row[c] * (copies // times) for c in ("total", "current"))
                left -= current
                lines.append(
                    f"{sign}{row['label']} ({100 * total / whole:.1f}%, total: {spaced(total)} bytes, "
                    f"current: {spaced(current)} bytes, remaining: {spaced(left)} bytes)\n"
                )
            yield next(_copy("".join(lines), copies, [k]))


def _blocks(rows: list[Row]) -> list[list[Row]]:
    """Rows one by one, but a marked one together with all below it."""
    blocks: list[list[Row]] = []
    for row in rows:
        if blocks and COPY in blocks[-1][0]["label"] and row["depth"] > blocks[-1][0]["depth"]:
            blocks[-1].append(row)
        else:
            blocks.append([row])
    return blocks
