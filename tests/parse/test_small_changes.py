"""A small dump of each era, changed in one place: another number or word, or a line missing, repeated or misplaced.

What all tables have is compared with stored results, and is the same by every way of reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, product
from typing import Any, TypeVar

import pytest
from conftest import every_row
from stored import check, described, digest, outcome
from test_cuts import held
from test_rare_texts import USED, record
from test_readers_by_hand import TABLE, report, spans_of

import xlamem
from xlamem import schema
from xlamem.input.find import Source
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.pieces import pieces

T = TypeVar("T")

NUMBERS = ("0", "7", "-1", str(2**31), str(2**62), str(2**63 - 1), str(2**64))
"""What a number is replaced by: also the largest ones of 32 and 64 bits, whose sums and products do not fit."""

ALLOCATIONS = """\
BufferAssignment:
allocation 0: size 64, preallocated-temp:
 value: <0 a @0> (size=16,offset=0): f32[4]{0}
 value: <1 b{} @0> (size=16,offset=16): (f32[4])
 value: <3 c{1} (phi) @0> (size=32,offset=32): f32[8]{0:T(128)}
allocation 1: size 32, color 5, maybe-live-out:
 value: <4 d @5> (size=16,offset=0): f32[4]{0}
 value: <6 e @5> (size=32,offset=0): f32[8]{0}
allocation 2: size 16, parameter 3, shape |f32[4]| at ShapeIndex {1,0}, thread-local:
 value: <9 p @0> (size=16,offset=0): f32[4]{0}
"""
LIVE = """\
HloLiveRange (max 4):
  InstructionSequence:
    0:a
    1:b
    2:c
    3:d
  BufferLiveRange:
    a{}:0-1
    b{}:1-2
    c{1}:0-3
    d{}:3-4
    e{}:0-4
    p{}:0-4
  Live ranges at 1 (peak):
    a{}: 16 bytes (cumulative: 16 bytes)
    b{}: 16 bytes (cumulative: 32 bytes)
    c{1}: 32 bytes (cumulative: 64 bytes)
    e{}: 32 bytes (cumulative: 96 bytes)
    p{}: 16 bytes (cumulative: 112 bytes)
  Stack trace breakdown for peak usage: 112 bytes
    main (57.1%, total: 64 bytes, current: 32 bytes, remaining: 48 bytes)
      └── inner (28.6%, total: 32 bytes, current: 32 bytes, remaining: 48 bytes)
    other (42.9%, total: 48 bytes, current: 48 bytes, remaining: 0 bytes)
"""
HEADS = {"a": "0 a @0", "b": "1 b{} @0", "c": "3 c{1} (phi) @0", "d": "4 d @5", "e": "6 e @5", "p": "9 p @0"}
RECORDS = "".join(
    record(int(head.split()[0]), name).replace(f"<{head.split()[0]} {name} @0>", f"<{head}>")
    for name, head in HEADS.items()
)
RECORDS = RECORDS.replace("  (none)\n", "  b, operand 0\n  d, operand 1 {2,0}\n", 1)
RECORDS = RECORDS.replace("  c\n", "  c {1}\n  d {0}\n")
RECORDS = RECORDS.replace("%e = f32[4]{0} add(%x.6, %y.6)", "%a = f32[4]{0} add(%x.0, %y.0)")
"""With an instruction that defines two values, so that its text is repeated."""
SECOND_SPACE = report(32).replace("default (color=0)", "host (color=5)")
ROWS_A = (
    "0: size 64B, preallocated-temp:", "1: size 32B, color 5, maybe-live-out:",
    "2: size 16B, parameter 3, shape |f32[4]| at ShapeIndex {1,0}, thread-local:",
)  # fmt: skip
LAYOUT_A = f"""\
Total bytes used: 112 (112B)

Allocations sorted by size:

cumulative_size; total_size - cumulative_size; allocation
------------------------------------------------------------------------------
       64B( 57%);        48B; allocation {ROWS_A[0]}
       96B( 86%);        16B; allocation {ROWS_A[1]}
The rest 1 allocations are less than 5% of the total size and not shown.


Allocations sorted by size with their values:
allocation {ROWS_A[0]}
{TABLE}
allocation {ROWS_A[1]}
{TABLE}
allocation {ROWS_A[2]}
"""
HLO = """\
HloModule jit_m, is_scheduled=true, input_output_alias={ {0}: (1, {2}, may-alias), {1}: (3, {}, must-alias) }, \
buffer_donor={ (2, {}) }, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

FileNames
1 "a.py"
2 "b.py"

FunctionNames
1 "f"
2 "g"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=11 column=4 end_column=5}
2 {file_name_id=2 function_name_id=2 line=20 end_line=21 column=6 end_column=7}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}


%f () -> f32[] {
}
"""
OLD_0 = """\
BufferAssignment:
allocation 0: 0x7f01, size 64, color 0, preallocated-temp:
  a[](#0 @0) [0,16]: f32[4]{0}
  b[1,2](#3 @0) [16,16]: f32[4]{0}
allocation 1: 0x7f02, size 16, parameter 1, maybe-live-out:
  a[](#1 @0) [0,16]: f32[4]{0}
"""
OLD_1 = """\
BufferAssignment:
allocation 0: 0x7f01, size 64, preallocated-temp:
  0 a @0, positions:
  a
  t.1 {2}
 uses:
  b, operand 1
  while.3, operand 0 {1}
 [0,16]: f32[4]{0}
  3 PHI b{1} @0, positions:
  b {1}
 uses:
 [16,16]: f32[4]{0}
allocation 1: 0x7f02, size 16, parameter 1 at ShapeIndex {}:
  5 c{} @0, positions:
  c {}
 uses:
 [0,16]: (f32[4]{0}, s32[])
"""
TOTAL_USED = USED.replace("64", "112") + RECORDS
INLINE = f"{ALLOCATIONS}\nTotal bytes used: 112 (112B)\n\nUsed values:\n{RECORDS}\n{LIVE}"
TEXTS = {
    "allocations": {"buffer-assignment": ALLOCATIONS},
    "used": {"buffer-assignment-values": TOTAL_USED},
    "live": {"live-range": LIVE},
    "report-a": {"memory-usage-report": LAYOUT_A},
    "report-b": {"memory-usage-report": report(80) + SECOND_SPACE},
    "hlo": {"hlo": HLO},
    "all-in-one": {"buffer-assignment": INLINE},
    "old-0": {"buffer-assignment": OLD_0},
    "old-1": {"buffer-assignment": OLD_1},
}  # fmt: skip
REST = {
    "buffer-assignment": ALLOCATIONS, "buffer-assignment-values": TOTAL_USED, "live-range": LIVE,
    "memory-usage-report": report(80) + SECOND_SPACE, "hlo": HLO,
}  # fmt: skip


ALONE = ("all-in-one", "old-0", "old-1")


def dump_of(kind: str, text: str) -> Source:
    """A text with the other files of its dump."""
    (role,) = TEXTS[kind]
    members = {} if kind in ALONE else REST
    return held("x", {name: content.encode() for name, content in (members | {role: text}).items()})


def whole(source: Source, threads: int = 1) -> Any:
    dump = xlamem.read(source, threads=threads, hashes=True, text=True)
    return outcome(lambda: {name: dump[name].to_pylist() for name in schema.TABLES})


def on_threads(source: Source) -> Any:
    return whole(source, 3)


def in_pieces(source: Source) -> Any:
    def read() -> dict[str, Any]:
        found: dict[str, Any] = {name: [] for name in schema.TABLES}
        for name, rows in pieces(source, hashes=True, text=True):
            found[name] += rows.to_pylist()
        return found

    return outcome(read)


def joined(source: Source) -> Any:
    """Without the texts, which are not kept there."""

    def read() -> dict[str, Any]:
        tables, _ = tables_of([ReadDump(source), ReadDump(source)])
        found = {name: table.to_pylist() for name, table in tables.items()}
        for rows in found.values():
            half = len(rows) // 2
            assert rows[:half] == rows[half:]
            del rows[half:]
        return found

    return outcome(read)


def without_texts(said: Any) -> Any:
    if isinstance(said, str):
        return said
    return said | {"instructions": [row | {"text": None} for row in said["instructions"]]}


WAYS: tuple[tuple[int, Callable[[Source], Any]], ...] = (
    (70, in_pieces), (70, on_threads), (1 << 20, joined), (1, in_pieces), (1 << 20, in_pieces),
)  # fmt: skip
"""The size of spans, and how they are read. A change is read by one of these, each in turn."""


def with_other_numbers(text: str) -> Iterator[list[str]]:
    for i, m in enumerate(re.finditer(r"-?\d+(?:\.\d+)?", text)):
        yield [text[: m.start()] + number + text[m.end() :] for number in some_of(NUMBERS, i)]


def with_other_words(text: str) -> Iterator[list[str]]:
    words = ("zz", "a", "", "b", "{", "size")
    for i, m in enumerate(islice(re.finditer(r"[A-Za-z_]+|[{}()@,:=<>#]+", text), 0, None, 2)):
        yield [text[: m.start()] + words[(i + i // len(words)) % len(words)] + text[m.end() :]]


def with_other_lines(text: str) -> Iterator[list[str]]:
    """Without the line, with it twice, after the next one, at the end, a letter longer, and cut within it."""
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        before, after = lines[:i], lines[i + 1 :]
        variants = (
            [*before, *after], [*before, line, line, *after], [*before, *after[:1], line, *after[1:]],
            [*before, *after, line], [*before, line[:-1], "x\n", *after], [*before, line[: len(line) // 2]],
        )  # fmt: skip
        yield ["".join(variant) for variant in some_of(variants, i)]


def some_of(variants: Sequence[T], place: int) -> list[T]:
    """Two of the variants, other ones at the next place."""
    return [variants[(2 * place + k + place // len(variants)) % len(variants)] for k in range(2)]


@pytest.mark.parametrize(
    ("kind", "changes"), every_row(4, product(TEXTS, [with_other_numbers, with_other_words, with_other_lines]))
)
def test_what_is_said_of_small_changes(kind: str, changes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = TEXTS[kind].values()
    ways = chain.from_iterable(iter(lambda: WAYS, None))

    def said() -> Iterator[tuple[str, str]]:
        places = enumerate(changes(text))
        for place, variants in places if kind != "all-in-one" else islice(places, 0, None, 4):
            found = [whole(dump_of(kind, variant)) for variant in variants]
            # The other ways take most of the time. They read one of these texts each.
            size, other = next(ways)
            spans_of(size, monkeypatch)
            same = found[0] if other is not joined else without_texts(found[0])
            assert other(dump_of(kind, variants[0])) == same, (place, other.__name__, size, variants[0])
            monkeypatch.undo()
            yield str(place), " ".join(digest(described(f)) for f in found)

    check(f"parse/small-{kind}-{changes.__name__.split('_')[-1]}", said())


@pytest.mark.parametrize("kind", TEXTS)
def test_nothing_is_said_of_the_text_itself(kind: str) -> None:
    (text,) = TEXTS[kind].values()
    assert xlamem.read(dump_of(kind, text)).verify().to_pylist() == []
