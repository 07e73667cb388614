"""Small dumps full of faults, with several sections of a kind in several files, and logs of unlike messages.

The results are compared with stored ones, and do not depend on how a dump is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import every, every_row
from stored import check, digest, outcome, text_of
from test_cuts import held
from test_oom import FITS, GPU, OLD, PREFIXES, TEMPS, VMEM
from test_rare_texts import USED, record
from test_readers_by_hand import report, spans_of

import xlamem
from xlamem import schema
from xlamem.input.find import Source
from xlamem.parse.interners import Interners
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.lanes import Lanes
from xlamem.parse.oom import TABLES, read_oom
from xlamem.parse.pieces import PieceReader

VALUES = """\
BufferAssignment:
allocation 0: size 64, preallocated-temp:
 value: <0 a @0> (size=16,offset=0): f32[4]{0}
 value: <1 b{} @0> (size=16,offset=60): (f32[4])
 value: <2 c{1} @0> (size=16,offset=16): f32[4]{0:T(128)}
an unknown line
allocation 1: size 8, color 1, thread-local:
 value: <3 d @1> (size=16,offset=0): f32[4]{0}
 value: <5 e @0> (size=8,offset=0): f32[2]{0}
"""
LISTS = """\
HloLiveRange (max 5):
  InstructionSequence:
    0:a
    1:b
    2:c
    3:d
  BufferLiveRange:
    a{}:0-1
    absent{}:1-1
    b{}:1-3
    c{1}:1-2
    absent{2}:0-9
    d{}:3-1
  Live ranges at 1 (peak):
    a{}: 16 bytes (cumulative: 16 bytes)
    b{}: 16 bytes (cumulative: 32 bytes)
    absent{}: 16 bytes (cumulative: 40 bytes)
  Stack trace breakdown for peak usage: 32 bytes
    main (100.0%, total: 32 bytes, current: 32 bytes, remaining: 0 bytes)
"""


def used(number: int, name: str, operand: str = "x", index: str = "", instruction: str = "") -> str:
    text = record(number, name).replace(f"%x.{number}, %y.{number}", f"%{operand}, %y")
    text = text.replace(f"<{number} {name}", f"<{number} {name}{index}").replace(f"  {name}\n", f"  {name} {index}\n")
    return text.replace(f"%{name} =", f"%{instruction or name} =")


FIRST = USED + used(0, "a") + used(1, "b", index="{}") + used(2, "c", index="{1}", instruction="a")
SECOND = USED.replace("64", "72") + used(3, "d") + used(4, "a", "z") + used(5, "e", instruction="b")
ALL_USED = FIRST + used(3, "D") + used(5, "e", "z", instruction="b")
SECOND_LISTS = """\
HloLiveRange (max 3):
  InstructionSequence:
    0:a
    2:e
  BufferLiveRange:
    e{}:0-2
    f{}:1-2
"""
HLO = "HloModule jit_m, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}\n\n%f () -> f32[] {\n}\n"
REST = {"hlo": HLO, "debug-options": "xla_a: 1\nwhat\n"}
FILES: list[tuple[str, str]] = [
    ("buffer-assignment", f"{VALUES}\n{FIRST}\n{report(64)}\n"),
    ("buffer-assignment", VALUES),
    ("buffer-assignment-values", SECOND),
    ("buffer-assignment-values", ALL_USED),
    ("live-range", f"{LISTS}\n{report(80)}\n"),
    ("live-range", f"{LISTS}\n{SECOND_LISTS}"),
    ("memory-usage-report", report(64).replace("       1; f32", "       2; f32")),
]


def dumps() -> Iterator[tuple[str, Source]]:
    """Each choice of at most one file of a role."""
    for n in range(1, len(FILES) + 1):
        for chosen in itertools.combinations(range(len(FILES)), n):
            members = dict(FILES[i] for i in chosen) | REST
            if len(members) == n + len(REST):
                yield "+".join(map(str, chosen)), held("x", {role: text.encode() for role, text in members.items()})


DUMPS = dict(dumps())


def rows_of(dump: xlamem.Dump) -> dict[str, Any]:
    return {name: dump[name].to_pylist() for name in schema.TABLES}


def in_pieces(source: Source, wanted: frozenset[str], lanes: Lanes | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {name: [] for name in wanted}
    for name, rows in PieceReader(source, wanted, hashes=True, text=True, lanes=lanes).pieces():
        found[name] += rows.to_pylist()
    return found


@pytest.mark.parametrize("key", every(2, DUMPS))
def test_every_way_says_the_same(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, tables = DUMPS[key], frozenset(schema.TABLES)
    expected = rows_of(xlamem.read(source, threads=1, hashes=True, text=True))
    for size in (1, 70):
        spans_of(size, monkeypatch)
        assert rows_of(xlamem.read(source, threads=3, hashes=True, text=True)) == expected
        assert in_pieces(source, tables) == expected
    spans_of(150, monkeypatch)
    assert rows_of(xlamem.read(source, threads=1, hashes=True, text=True)) == expected
    with Lanes(2) as lanes:
        assert in_pieces(source, tables, lanes) == expected
    spans_of(1 << 20, monkeypatch)
    assert in_pieces(source, tables) == expected


@pytest.mark.parametrize(("table", "size"), every_row(3, itertools.product(schema.TABLES, [70, 1 << 20])))
def test_one_table_and_what_is_said_of_the_dump(table: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    spans_of(size, monkeypatch)
    for key in [*DUMPS][:: 5 if size == 70 else 7]:
        source = DUMPS[key]
        for wanted in ({table}, {table, "modules"}, {table, "diagnostics", "modules", "unknown_text", "files"}):
            dump = xlamem.read(source, tables=wanted, hashes=True, text=True, threads=1)
            found = {name: dump[name].to_pylist() for name in wanted}
            assert in_pieces(source, frozenset(wanted)) == found, (key, wanted)


def test_what_is_said_of_dumps_full_of_faults() -> None:
    def said() -> Iterator[tuple[str, Any]]:
        for key, source in DUMPS.items():
            dump = xlamem.read(source, hashes=True, text=True)
            yield key, " ".join(f"{name} {dump[name].num_rows} {digest(text_of(dump[name]))}," for name in SOME)
            yield f"{key} codes", " ".join(dump.verify()["code"].to_pylist())

    check("parse/faulty", ((key, line[i : i + 100]) for key, line in said() for i in range(0, len(line), 100)))


SOME = ("modules", "files", "values", "instructions", "live_ranges", "printed_peak", "diagnostics", "unknown_text")


@pytest.mark.parametrize("shared", [False, True])
def test_dumps_full_of_faults_read_together(shared: bool) -> None:
    interners = Interners() if shared else None
    chosen = [xlamem.read(source, hashes=True) for source in [*DUMPS.values()][::7]]
    found, _ = tables_of([ReadDump(dump.source, interners=interners) for dump in chosen])
    for name in schema.TABLES:
        assert found[name].to_pylist() == [row for dump in chosen for row in dump[name].to_pylist()]


# -- logs

MESSAGES = {"temps": TEMPS.read_text(), "gpu": GPU, "vmem": VMEM, "old": OLD, "fits": FITS}
WARNING = "W bfc.cc] Allocator (GPU_0_bfc) ran out of memory trying to allocate 16.00GiB (rounded to 17179869184)"
FAILED = "E0528 07:02:44.350251   27487 x.cc:1] Out of memory while trying to allocate 17179869184 bytes"


def logs(first: str, second: str) -> Iterator[tuple[str, str]]:
    a, b = MESSAGES[first].split("\n"), MESSAGES[second].split("\n")
    yield "in turn", "\n".join([*a, *b, FAILED, *a])
    yield "without the end", "\n".join([*a[: len(a) // 2], *b])
    yield "without the beginning", "\n".join(a[len(a) // 3 :] + b[2:])
    yield "a message in another", "\n".join([*a[:8], *b, *a[8:]])
    yield "with warnings", "\n".join([WARNING, *a, WARNING, *b[:5], FAILED, *b[5:]])
    yield "folded", f"{MESSAGES[first]!r}\n{MESSAGES[second]}"
    for name, (prefix, _) in PREFIXES.items():
        zipped = itertools.zip_longest(a, b)
        mixed = [prefix.format(i) + line for pair in zipped for i, line in enumerate(pair, 1) if line is not None]
        yield f"mixed, {name}", "\n".join(mixed)
        yield f"first lines, {name}", "\n".join([prefix.format(1) + a[0], *a[1:], prefix.format(2) + b[0], *b[1:]])
        yield f"blank lines, {name}", "\n".join(line for text in mixed for line in (text, "", "  indented"))


@pytest.mark.parametrize("first", MESSAGES)
def test_logs_of_two_messages(first: str) -> None:
    def said() -> Iterator[tuple[str, Any]]:
        for second in MESSAGES:
            for name, log in logs(first, second):
                found = outcome(read_oom, log.encode())
                yield f"{second}, {name}", " ".join(
                    f"{table} {getattr(found, table).num_rows} {digest(text_of(getattr(found, table)))}"
                    for table in TABLES
                )

    check(f"parse/logs-{first}", said())
