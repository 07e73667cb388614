"""Derived tables of many small dumps at once, of each alone, and of each in pieces: always the same, as computed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import value
from brute import hostile
from conftest import every
from forge import ERAS, forge
from render import render

import xlamem
from xlamem import schema
from xlamem.input.find import Member, Source
from xlamem.parse.interners import Interners
from xlamem.parse.join import ReadDump, tables_of
from xlamem.warehouse import derived
from xlamem.warehouse.cores import Cores
from xlamem.warehouse.derived import derive, device_numbers
from xlamem.warehouse.merged import DumpSet, MergedProgram, MergedTables
from xlamem.warehouse.streamed import StreamedDump

PLATFORMS: Any = ("cpu", "gpu", "tpu", None)

QUIET = b"""BufferAssignment:
allocation 0: size 8, parameter 0, shape |u8[8]| at ShapeIndex {}:
allocation 1: size 8, preallocated-temp:
 value: <0 a @0> (size=0,offset=0): u8[0]{0}

Total bytes used: 16 (16B)

Used values:
<0 a @0>
 positions:
  a
 uses:
 from instruction: %a = u8[0]{0} iota()


HloLiveRange (max 2):
  InstructionSequence:
    0:x
    1:a
  BufferLiveRange:
    a{}:1-2
"""
"""No value is live at the peak, or in a fixed allocation; something is in use all the same."""

NO_TOTAL = b"""BufferAssignment:
allocation 0: size 8, parameter 0, shape |u8[8]| at ShapeIndex {}:
allocation 1: size 8, preallocated-temp:
 value: <0 a @0> (size=4,offset=0): u8[3]{0}

HloLiveRange (max 2):
  InstructionSequence:
    0:x
    1:a
  BufferLiveRange:
    a{}:1-2
"""
"""XLA's numbers are not printed."""


def held(members: dict[str, bytes], platform: str | None) -> Source:
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())
    return Source("x", made, platform=platform)


def sources() -> list[Source]:
    texts = [render(hostile(seed, beyond=seed % 4)) for seed in range(40)]
    found = [held(text, PLATFORMS[seed % 4]) for seed, text in enumerate(texts)]
    for number, era in enumerate(sorted(ERAS)[::3]):
        platform = PLATFORMS[number % 3]
        found.append(held(forge(number, era=era, platform=platform, values=30).files, platform))
    wrong = forge(3, era="E2", values=30).files["buffer-assignment"]  # its total is that of other allocations
    wrong = wrong.replace(b"Total bytes used: ", b"Total bytes used: 1")
    return [*found, *(held({"buffer-assignment": text}, "cpu") for text in (NO_TOTAL, wrong))]


def together(found: list[Source], ids: list[str]) -> DumpSet:
    interners = Interners()
    tables, counts = tables_of([ReadDump(source, interners=interners) for source in found])
    return DumpSet(ids, tables, counts)


def rows_of(tables: dict[str, pa.Table], content_id: str) -> dict[str, list[dict[str, Any]]]:
    """The rows of a dump in each table, in their order."""
    return {name: [r for r in table.to_pylist() if r["content_id"] == content_id] for name, table in tables.items()}


@pytest.mark.parametrize("cells", [1, 150, 1 << 22])
def test_many_dumps_are_as_each_alone(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = sources()
    ids = [f"{i:032x}" for i in range(len(found))]
    monkeypatch.setattr(derived, "MAX_CELLS", cells)
    dumps = together(found, ids)
    tables = derive(dumps, 3)
    total, peak = (column.to_pylist() for column in device_numbers(dumps))
    for i, source in enumerate(found[:: 3 if cells > 1 else 7]):
        i *= 3 if cells > 1 else 7
        alone = derive(together([source], [ids[i]]), 3)
        mine = rows_of(tables, ids[i])
        wanted = rows_of(alone, ids[i])
        assert {name: rows for name, rows in mine.items() if rows} == {n: rows for n, rows in wanted.items() if rows}, i
        if cells == 150:
            dump = xlamem.read(source)
            as_computed(dump, mine["peaks"], total[i], peak[i])
            explained = xlamem.explain_causes(dump).to_pylist() if dump.allocations.num_rows else []
            assert causes(mine["explain_causes"], "definition") == causes(explained, "name")


def causes(rows: list[dict[str, Any]], number: str) -> set[tuple[Any, ...]]:
    """The rows of `explain_causes` that a dataset has too."""
    keys = number, "color", "page", "cause", "bytes"
    return {tuple(r[k] for k in keys) for r in rows if r[number] not in ("xprof", "xla_rule", "device_total")}


def as_computed(dump: xlamem.Dump, peaks: list[dict[str, Any]], total: int | None, peak: int | None) -> None:
    numbers = {(r["definition"], r["color"], r["page"]): (r["bytes"], r["time"]) for r in peaks}
    assert len(numbers) == len(peaks)
    assert total == xlamem.compute.device_total(dump) == numbers.get(("device_total", None, None), (None, None))[0]
    assert peak == numbers.get(("device_peak", None, None), (None, None))[0]
    if not dump.allocations.num_rows:
        return
    for space in xlamem.peak(dump).spaces.to_pylist():
        place = space["color"], space["page"]
        for name, column, step in (("reserved", "reserved", None), ("peak", "peak", "first_step"),
                                   ("half_open", "half_open_peak", None), ("live", "live_peak", "live_step"),
                                   ("slack", "slack", None), ("allocated", "allocated", None)):  # fmt: skip
            found = numbers.get((name, *place), (None, None))
            assert found == (space[column], space[step] if step else None), (name, place)


@pytest.mark.parametrize("ranges", every(3, [["a{}:0-1", "b{}:2-3"], ["c{}:1-2"], ["b{}:0-3", "a{}:3-3"]]))
def test_values_without_live_ranges_in_pieces(ranges: list[str]) -> None:
    values = [value(i, name, 64 << i, 1024 * i) for i, name in enumerate("abc")]
    source = held(attacks.dump(values, ranges=ranges), "cpu")
    content_id = "0" * 32
    wanted = derive(together([source], [content_id]), 3)
    streamed = StreamedDump(source, content_id, Cores())
    _, tables = streamed.convert(lambda *_: None, lambda name: None, lambda dumps: derive(dumps, 3))
    assert rows_of(tables, content_id) == rows_of(wanted, content_id)


def test_values_without_instructions() -> None:
    """Each dump has its own instructions: those of one are not taken for those of another."""
    sources = [held({"buffer-assignment": text}, "cpu") for text in (NO_TOTAL, QUIET)]
    for found, rows in ((sources[:1], [-1]), (sources, [-1, 0])):
        program = MergedProgram(MergedTables(together(found, [f"{i:032x}" for i in range(len(found))])))
        assert program.instruction_row.tolist() == rows
    program = object.__new__(MergedProgram)
    names = {"values": ["b", "a", None, "c"], "instructions": ["a", "c", "a"]}
    tables: Any = {n: pa.table({"instruction": pa.array(texts).dictionary_encode()}) for n, texts in names.items()}
    dump_of_row = {"values": np.array([0, 0, 0, 1]), "instructions": np.array([0, 1, 1])}
    vars(program).update(tables=tables, dumps=SimpleNamespace(large=None, dump_of_row=dump_of_row))
    assert program.instruction_row.tolist() == [-1, 0, -1, 1]


def test_names_of_different_dumps_differ() -> None:
    """The codes of a dump are those of its names, moved; what has no name has no code."""
    sources = [held(forge(seed, era="E7", platform="tpu", values=20).files, "tpu") for seed in (1, 2)]
    dumps = together(sources, ["0" * 32, "1" * 32])
    codes, names = MergedProgram(MergedTables(dumps)).names
    texts = dumps.tables["values"]["instruction"].to_pylist()
    assert [names[c % len(names)].as_py() if c >= 0 else None for c in codes.tolist()] == texts
    assert (codes // len(names)).tolist() == dumps.dump_of_row["values"].tolist()


def test_live_ranges_outside_of_their_schedule() -> None:
    """Clipped to the schedule of their own dump; those that begin after it are never live in any of the dumps."""
    long = QUIET.replace(b"    1:a\n", b"    1:a\n" + b"".join(b"    %d:x%d\n" % (i, i) for i in range(2, 9)))
    late, after = (QUIET.replace(b"a{}:1-2", b"a{}:" + steps) for steps in (b"5-7", b"1-7"))
    found = [held({"buffer-assignment": text}, "cpu") for text in (QUIET, long, late, after)]
    tables = MergedTables(together(found, [*"abcd"]))
    steps = max(tables.dumps.tables["modules"]["schedule_length"].to_pylist())
    ranges = tables["live_ranges"]
    assert ranges["start"].to_pylist() == [1, 1, steps + 1, 1]
    # As a half-open range, one that ends after the schedule has its last step.
    assert ranges["end"].to_pylist() == [2, 2, steps + 1, 3]


@pytest.mark.parametrize("printed", [b"3", b"99", b"9" * 30])
def test_outputs_are_live_after_the_last_step(printed: bytes) -> None:
    """That of the schedule, also if its length is printed as another number, which need not have 64 bits."""
    assignment = f"allocation 0: size 64, maybe-live-out:\n{value(0, 'a', 64)}{value(1, 'b', 64)}"
    assignment += "allocation 1: size 8, preallocated-temp:\n"
    members = attacks.dump([value(2, "c")], allocations=assignment, steps=3, ranges=["a{}:0-1", "b{}:1-3", "c{}:1-1"])
    members["live-range"] = members["live-range"].replace(b"max 3", b"max " + printed)
    source = held(members, None)
    rows = derive(together([source, held({"buffer-assignment": QUIET}, None)], ["0", "1"]), 3)["peak_members"]
    found = [(r["instruction"], r["category"]) for r in rows.to_pylist() if r["content_id"] == "0"]
    assert found == [("a", "temp_in_output"), ("c", "temp"), ("b", "live_out")]
    assert found == [(r["instruction"], r["category"]) for r in xlamem.live_set(xlamem.read(source)).to_pylist()]


def test_a_dump_without_allocations_has_no_peaks() -> None:
    lines = forge(1, era="E7", platform="tpu", values=20).files["live-range"]
    found = [held({"live-range": lines}, "tpu"), held({"buffer-assignment": QUIET}, "cpu")]
    tables = derive(together(found, ["0" * 32, "1" * 32]), 3)
    without, other = (rows_of(tables, content_id) for content_id in ("0" * 32, "1" * 32))
    assert {name for name, rows in without.items() if rows} == {"peaks"}
    assert {row["definition"] for row in without["peaks"]} == {"xla_printed"}  # what XLA says
    assert len(other["peaks"]) > 5


def test_memory_spaces_are_counted() -> None:
    found = sources()
    dumps = together(found, [f"{i:032x}" for i in range(len(found))])
    spaces: list[set[tuple[int, int]]] = [set() for _ in found]
    rows = dumps.tables["allocations"].select(["color", "page"]).to_pylist()
    for row, dump in zip(rows, dumps.dump_of_row["allocations"].tolist(), strict=True):
        spaces[dump].add((row["color"], max(row["page"] or 0, 0)))
    assert derived._count_spaces(dumps).tolist() == list(map(len, spaces))
    assert any(page for places in spaces for _, page in places)


def test_scopes_are_sorted() -> None:
    """By dump and memory space, the largest first."""
    found = sources()
    rows = derive(together(found, [f"{i:032x}" for i in range(len(found))]), 3)["scopes"].to_pylist()
    keys = [(r["content_id"], r["color"], r["page"], -r["bytes"], r["scope"] or "\uffff") for r in rows]
    assert keys == sorted(keys)
    assert len({key[:3] for key in keys if key[2]}) > 5  # with pages


def test_in_pieces_without_derived_tables() -> None:
    """All rows have been written when it returns."""
    rows: Counter[str] = Counter()
    source = held(forge(1, era="E7", platform="tpu", values=200).files, "tpu")
    streamed = StreamedDump(source, "0" * 32, Cores(2))
    module, tables = streamed.convert(
        lambda name, table, ids: rows.update({name: table.num_rows}), lambda name: None, None
    )
    assert tables == {}
    dump = xlamem.read(source)
    assert {name: n for name, n in rows.items() if n} == {n: dump[n].num_rows for n in schema.TABLES if len(dump[n])}
    assert module["module_name"] == dump.modules["module_name"][0].as_py()


def test_in_pieces() -> None:
    for i, source in enumerate([held({"buffer-assignment": QUIET}, "cpu"), *sources()[::60]]):
        content_id = f"{i:032x}"
        wanted = derive(together([source], [content_id]), 3)
        written: dict[str, int] = {}

        def write(name: str, rows: pa.Table, ids: pa.Array, written: dict[str, int] = written) -> None:
            assert len(ids) == rows.num_rows
            written[name] = written.get(name, 0) + rows.num_rows

        streamed = StreamedDump(source, content_id, Cores())
        module, tables = streamed.convert(write, lambda name: None, lambda dumps: derive(dumps, 3))
        assert rows_of(tables, content_id) == rows_of(wanted, content_id), i
        dump = xlamem.read(source)
        for name in dump.tables:
            assert written.get(name, 0) == dump[name].num_rows, name
        assert module["n_values"] == dump.values.num_rows
