"""The readers and the cross-checks on the smallest texts, and on batches made by hand."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from test_cuts import held
from test_lanes import Busy
from test_rare_texts import ALLOCATIONS, USED, read, record, streamed
from test_rare_texts import LIVE as LIVE_RANGES

import xlamem
from xlamem import _liveness, schema
from xlamem.dump import as_tables
from xlamem.parse import pieces as streaming
from xlamem.parse import whole
from xlamem.parse.batch import LIVE, Batch, File, Section, Span
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.lanes import Lanes
from xlamem.parse.pieces import PieceReader
from xlamem.parse.sections import SECTION_OF, SECTIONS


def spans_of(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all readers scan spans of this size."""
    for module in (whole, streaming):
        monkeypatch.setattr(module, "SPAN_BYTES", size)
    monkeypatch.setattr(whole, "MAX_SPAN_BYTES", size)


def rows_of(dump: xlamem.Dump, code: str) -> list[dict[str, Any]]:
    return [row for row in dump.verify().to_pylist() if row["code"] == code]


# -- spans


@pytest.mark.parametrize("size", [40, 1 << 20])
@pytest.mark.parametrize("line", [" positions:\n", " uses:\n", "  (none)\n"])
def test_a_record_without_a_line_within_the_text(line: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is not truncated there, even if a span ends there."""
    spans_of(size, monkeypatch)
    text = USED + record(0, "a") + record(1, "b").replace(line, "") + record(2, "c")
    source = held("x", {"buffer-assignment-values": text.encode()})
    expected = None
    for threads in (1, 3):
        dump = xlamem.read(source, threads=threads)
        rows = dump.verify().to_pylist()
        assert dump.complete
        assert expected in (None, rows)
        expected = rows
    assert streamed(source, "diagnostics") == expected


NONE, SCHEDULE, RANGES, PEAK, TREE = (
    _liveness.NONE, _liveness.SCHEDULE, _liveness.RANGES, _liveness.PEAK, _liveness.TREE
)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "unfinished", "assumed", "expected"),
    [
        (RANGES, -1, RANGES, True),
        (RANGES, -1, None, True),
        (RANGES, -1, NONE, True),
        (RANGES, -1, SCHEDULE, False),
        (SCHEDULE, -1, RANGES, False),
        (TREE, -1, TREE, False),
        (TREE, -1, NONE, False),
        (PEAK, -1, PEAK, True),
        (RANGES, 0, RANGES, False),
    ],
)
def test_which_spans_of_live_ranges_continue(
    before: int, unfinished: int, assumed: int | None, expected: bool
) -> None:
    file = File(0, "live-range", None, 0, 0)  # type: ignore[arg-type]
    section = Section(LIVE, weakref.ref(file), 0, 20, 0)
    first = Batch(Span(section, 0, 10), {}, unfinished=unfinished, state=(before, 0, 0))
    second = Batch(Span(section, 10, 20, None if assumed is None else (assumed, 0, 0)), {})
    assert SECTIONS[LIVE].continues(first, second) is expected


@pytest.mark.parametrize("size", [1, 70, 1 << 20])
@pytest.mark.parametrize("tiled", [0, 1, 2, None])
def test_whichever_value_is_tiled(size: int, tiled: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    spans_of(size, monkeypatch)
    layouts = ["{0:T(128)}" if i == tiled else "{0}" for i in range(3)]
    values = [f" value: <{i} v.{i} @0> (size=16,offset={16 * i}): f32[4]{layout}\n" for i, layout in enumerate(layouts)]
    text = "BufferAssignment:\nallocation 0: size 64, thread-local:\n" + "".join(values) + "T(\n"
    (row,) = streamed(held("x", {"buffer-assignment": text.encode()}), "modules")
    assert row["platform"] == (None if tiled is None else "tpu")


@pytest.mark.parametrize("size", [1, 40, 1 << 20])
@pytest.mark.parametrize("order", ["atbu", "utab", "taub", "buta"])
def test_the_index_of_live_ranges_in_spans(order: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is null for an array, {} for a tuple, whichever span has it."""
    spans_of(size, monkeypatch)
    headers = {"a": "a", "b": "b", "t": "t{}", "u": "u{}"}
    values = "".join(
        f" value: <{i} {header} @0> (size=16,offset={16 * i}): {'(f32[4])' if '{' in header else 'f32[4]{0}'}\n"
        for i, header in enumerate(headers.values())
    )
    schedule = "".join(f"    {i}:{name}\n" for i, name in enumerate(order))
    ranges = "".join(f"    {name}{{}}:{i}-{i + 1}\n" for i, name in enumerate(order))
    live = f"HloLiveRange (max 4):\n  InstructionSequence:\n{schedule}  BufferLiveRange:\n{ranges}"
    text = f"BufferAssignment:\nallocation 0: size 64, thread-local:\n{values}"
    source = held("x", {"buffer-assignment": text.encode(), "live-range": live.encode()})
    wanted = [(name, None if name in "ab" else "{}", [*headers].index(name)) for name in order]
    for threads in (1, 3):
        rows = xlamem.read(source, threads=threads).live_ranges.to_pylist()
        assert [(r["instruction"], r["shape_index"], r["value_id"]) for r in rows] == wanted
    assert streamed(source, "live_ranges") == rows


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("steps", [(1, 3, 5), (0, 2, 4), (0, 0, 5, 9), (0, 2, 1), (0, 1, 1, 0), (0, 1, 2), (0, -1, 2)])
def test_the_first_step_out_of_order(steps: tuple[int, ...], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, whichever span it is in, and whatever follows."""
    spans_of(size, monkeypatch)
    text = f"HloLiveRange (max {len(steps)}):\n  InstructionSequence:\n"
    text += "".join(f"    {step}:i.{i}\n" for i, step in enumerate(steps))
    ranges = "  BufferLiveRange:\n    a{}:0-1\n    b{}:1-2\n"
    source = held("x", {"buffer-assignment": ALLOCATIONS.encode(), "live-range": f"{text}{ranges}".encode()})
    expected = [i + 3 for i, step in enumerate(steps) if step != i][:1]
    for threads in (1, 3):
        assert [row["line"] for row in rows_of(xlamem.read(source, threads=threads), "schedule_gap")] == expected
    assert [row["line"] for row in streamed(source, "diagnostics") if row["code"] == "schedule_gap"] == expected


@pytest.mark.parametrize("role", schema.ROLES)
def test_a_file_without_text_is_truncated(role: str) -> None:
    members = {"buffer-assignment": ALLOCATIONS.encode(), "live-range": LIVE_RANGES.encode()} | {role: b""}
    source = held("x", members)
    dump = xlamem.read(source)
    (row,) = rows_of(dump, "truncated")
    assert {row[key] for key in ("file", "line", "offset", "section", "wanted")} == {role, 1, 0, "file", "text"}
    assert not dump.complete
    assert streamed(source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("names", ["abx", "xab", "xx", "bxa"])
def test_the_index_of_a_peak_list(names: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is null for an array; nothing is known of a value that no allocation has."""
    allocations = ALLOCATIONS.replace("<1 b @0>", "<1 b{} @0>").replace("offset=16): f32[4]{0}", "offset=16): (f32[4])")
    listed = "".join(f"    {name}{{}}: 16 bytes (cumulative: {16 * i} bytes)\n" for i, name in enumerate(names, 1))
    live = LIVE_RANGES[: LIVE_RANGES.index("  Live")] + f"  Live ranges at 1 (peak):\n{listed}"
    source = held("x", {"buffer-assignment": allocations.encode(), "live-range": live.encode()})
    rows = xlamem.read(source).printed_peak.to_pylist()
    assert [(r["instruction"], r["shape_index"]) for r in rows] == [(n, None if n == "a" else "{}") for n in names]
    for size in (1, 1 << 20):
        spans_of(size, monkeypatch)
        assert streamed(source, "printed_peak") == rows


def test_hashes_of_files_that_are_computed_late() -> None:
    """On several threads, all files are known before the first one is hashed."""
    members = {"buffer-assignment": ALLOCATIONS, "live-range": LIVE_RANGES, "memory-usage-report": "x\n"}
    source = held("x", {role: text.encode() for role, text in members.items()})
    with Lanes(2, Busy()) as lanes:
        reader = PieceReader(source, frozenset({"files"}), hashes=True, lanes=lanes)
        found = [row["content_hash"] for _, table in reader.pieces() for row in table.to_pylist()]
    assert len({*found}) == len(members)
    assert found == xlamem.read(source, hashes=True).files["content_hash"].to_pylist()


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_live_ranges_of_allocations_without_values(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no value, although the used values have their names: these files do not belong together."""
    spans_of(size, monkeypatch)
    members = {
        "buffer-assignment": ALLOCATIONS[: ALLOCATIONS.index(" value")],
        "buffer-assignment-values": USED + record(0, "a") + record(1, "b"),
        "live-range": LIVE_RANGES,
    }
    source = held("x", {role: text.encode() for role, text in members.items()})
    monkeypatch.setattr(whole, "AHEAD_BYTES", -1)  # so that the order of requests matters
    for first in ("live_ranges", "positions"):
        dump = xlamem.read(source)
        assert dump[first].num_rows == 2
        rows = dump.live_ranges.to_pylist()
        assert [(r["value_id"], r["shape_index"]) for r in rows] == [(None, "{}")] * 2
    assert streamed(source, "live_ranges") == rows


def test_integers_of_tables_without_rows() -> None:
    """Also of tables that no section fills."""
    members = {"buffer-assignment": ALLOCATIONS, "hlo": "HloModule m\n\n%f () -> f32[] {\n}\n"}
    source = held("x", {role: text.encode() for role, text in members.items()})
    for table, spec in schema.TABLES.items():
        columns = [c.name for c in spec.columns if c.kind == "int"]
        tables = as_tables(xlamem.read(source))
        if table in SECTION_OF:
            assert [len(c) for c in tables.integers(table, *columns)] == [tables[table].num_rows] * len(columns)


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0), (1, 1, 0)])
def test_values_of_several_dumps_of_which_one_has_no_allocations(order: tuple[int, ...]) -> None:
    """Its values have neither offsets nor shapes; those of the others keep theirs."""
    used = {"buffer-assignment-values": USED + record(0, "a") + record(1, "b")}
    members = [used | {"buffer-assignment": ALLOCATIONS}, used]
    sources = [held("x", {role: text.encode() for role, text in m.items()}) for m in members]
    found = tables_of([ReadDump(sources[i]) for i in order])[0]["values"].to_pylist()
    assert found == [row for i in order for row in xlamem.read(sources[i]).values.to_pylist()]
    assert {row["offset"] for row in found} == {0, 16, None}


# -- cross-checks


@pytest.mark.parametrize("first", ["buffer-assignment", "buffer-assignment-values"])
@pytest.mark.parametrize("changed", ["", "a", "b"])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_names_of_used_values_in_another_file(
    first: str, changed: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file is the first one."""
    spans_of(size, monkeypatch)
    records = [record(i, name.upper() if name == changed else name) for i, name in enumerate("ab")]
    members = {"buffer-assignment": ALLOCATIONS, "buffer-assignment-values": USED + "".join(records)}
    order = sorted(members, key=lambda role: role != first)
    source = held("x", {role: members[role].encode() for role in order})
    rows = xlamem.read(source).verify().to_pylist()
    assert [(r["code"], r["excerpt"]) for r in rows] == [
        ("records_differ", f"<{i} {name.upper()} @0>") for i, name in enumerate("ab") if name == changed
    ]
    assert streamed(source, "diagnostics") == rows


LAYOUT_A = """\
Total bytes used: 96 (96B)

Allocations sorted by size:

cumulative_size; total_size - cumulative_size; allocation
------------------------------------------------------------------------------
       64B( 67%);        32B; allocation 0: size 64B, thread-local:
       96B(100%);         0B; allocation NUMBER: size 32B, thread-local:


Allocations sorted by size with their values:
allocation 0: size 64B, thread-local:
TABLE
allocation NUMBER: size 32B, thread-local:
"""
TABLE = f"""
\tcumulative_size;       size;       offset; used_by_n_values; shapes_list
\t{60 * "-"}
\t      32B(100%);        32B;            0;                2; 2×f32[4]
"""


@pytest.mark.parametrize(
    ("number", "n_values", "table", "codes"),
    [
        (1, 0, "", {"truncated"}),
        (1, 1, "", set()),
        (1, 2, "", {"truncated"}),
        (1, 2, f"{TABLE}\n", set()),
        (7, 1, "", set()),
        (7, 2, "", set()),
    ],
)
def test_the_last_allocation_of_a_report(number: int, n_values: int, table: str, codes: set[str]) -> None:
    """The report is truncated if the allocation lacks a table, unless it has one value or does not exist."""
    values = [f" value: <{2 + i} c.{i} @0> (size=16,offset={16 * i}): f32[4]{{0}}\n" for i in range(n_values)]
    allocations = ALLOCATIONS.replace("preallocated-temp", "thread-local") + "allocation 1: size 32, thread-local:\n"
    report = LAYOUT_A.replace("TABLE", TABLE).replace("NUMBER", str(number)) + table
    dump = read(buffer_assignment=allocations + "".join(values), memory_usage_report=report)
    assert {row["code"] for row in dump.verify().to_pylist() if row["section"] == "report"} == codes
    assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


HEAD = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
ROW = "      64B(100%);        64B;            0;                1; f32[16]\n"


def report(total: int) -> str:
    return f"Memory Space: default (color=0)\nTotal bytes: {total} ({total}B)\n{HEAD}  {60 * '-'}\n{ROW}\n\n"


@pytest.mark.parametrize(
    ("totals", "section"),
    [((64,), "used values"), ((64, 64), "used values"), ((80, 64), "allocations"), ((64, 80), "allocations")],
)
def test_whom_several_reports_contradict(totals: tuple[int, ...], section: str) -> None:
    """The total of the used values, if all reports agree with the allocations, in whichever order they are."""
    names = ("memory_usage_report", "live_range")
    reports = {name: report(total) for name, total in zip(names, totals, strict=False)}
    used = USED.replace("64", "80") + record(0, "a") + record(1, "b")
    dump = read(buffer_assignment=ALLOCATIONS, buffer_assignment_values=used, **reports)
    (row,) = rows_of(dump, "total_differs")
    assert row["section"] == section
    assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("table", [t for t in schema.TABLES if t not in ("files", "modules", "diagnostics")])
@pytest.mark.parametrize("role", ["buffer-assignment", "buffer-assignment-values", "live-range", "memory-usage-report"])
def test_a_single_table_of_a_dump_without_other_files(role: str, table: str) -> None:
    """The summary of a dump is the same whether it is read whole or in pieces."""
    texts = {
        "buffer-assignment": ALLOCATIONS.replace("allocation 0: size", "allocation 0: 0x5f, size"),
        "buffer-assignment-values": USED + record(0, "a"),
        "live-range": LIVE_RANGES,
        "memory-usage-report": LAYOUT_A.replace("TABLE", TABLE).replace("NUMBER", "1"),
    }
    source = held("x", {name: text.encode() for name, text in texts.items() if name == role or "report" in name})
    wanted = (table, "diagnostics", "modules")
    found = {name: [] for name in wanted}  # type: dict[str, list[Any]]
    for name, rows in streaming.pieces(source, wanted):
        found[name] += rows.to_pylist()
    dump = xlamem.read(source, tables=wanted)
    assert found == {name: dump[name].to_pylist() for name in wanted}
