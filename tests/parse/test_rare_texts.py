"""Rare texts, small enough to state the expected diagnostics."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DUMPS, texts
from test_cuts import held

import xlamem
from xlamem import schema
from xlamem.dump import as_tables
from xlamem.input.find import Member, Source
from xlamem.parse import checks, diagnostics, outline, report_checks, whole
from xlamem.parse import pieces as streaming
from xlamem.parse.arrays import numbers_of
from xlamem.parse.join import ReadDump, tables_of
from xlamem.parse.lanes import Lanes
from xlamem.parse.pieces import PieceReader
from xlamem.parse.sections import SECTION_OF

ALLOCATIONS = """\
BufferAssignment:
allocation 0: size 64, preallocated-temp:
 value: <0 a @0> (size=16,offset=0): f32[4]{0}
 value: <1 b @0> (size=16,offset=16): f32[4]{0}
"""
LISTS = """\
  InstructionSequence:
    0:a
    1:b
  BufferLiveRange:
    a{}:0-1
    b{}:1-2
"""
PEAK = """\
  Live ranges at 1 (peak):
    a{}: 16 bytes (cumulative: 16 bytes)
    b{}: 16 bytes (cumulative: 32 bytes)
"""
TREE = """\
  Stack trace breakdown for peak usage: 32 bytes
    main (100.0%, total: 32 bytes, current: 32 bytes, remaining: 0 bytes)
"""
LIVE = f"HloLiveRange (max 2):\n{LISTS}{PEAK}{TREE}"


def read(tables: list[str] | None = None, **members: str) -> xlamem.Dump:
    named = {role.replace("_", "-"): text.encode() for role, text in members.items()}
    return xlamem.read(held("x", named), tables=tables)


def module_of(dump: xlamem.Dump) -> dict[str, Any]:
    (row,) = dump.modules.to_pylist()
    return row  # type: ignore[no-any-return]


def said(dump: xlamem.Dump) -> list[tuple[str, int | None]]:
    return [(row["code"], row["line"]) for row in dump.verify().to_pylist()]


def test_the_plain_texts() -> None:
    dump = read(buffer_assignment=ALLOCATIONS, live_range=LIVE)
    assert said(dump) == []
    module = module_of(dump)
    assert (module["printed_peak_time"], module["printed_peak_bytes"], module["schedule_length"]) == (1, 32, 2)


# -- the row of the module


def test_the_name_of_the_file_is_that_of_the_module(make: Callable[..., Path]) -> None:
    hlo = b"HloModule jit_other, entry={}\n\nENTRY e {\n}\n"
    folder = make({"hlo": hlo, "buffer-assignment": ALLOCATIONS.encode()})
    assert module_of(xlamem.read(folder))["module_name"] == "jit_f"


def test_live_ranges_of_which_one_text_has_none() -> None:
    dump = read(buffer_assignment=f"{ALLOCATIONS}\nHloLiveRange not available\n", live_range=LIVE)
    module = module_of(dump)
    assert (module["printed_peak_time"], module["printed_peak_bytes"], module["schedule_length"]) == (1, 32, 2)
    nothing = module_of(read(buffer_assignment=f"{ALLOCATIONS}\nHloLiveRange not available\n"))
    assert {nothing[c] for c in ("printed_peak_time", "printed_peak_bytes", "schedule_length")} == {None}


def test_a_printed_peak_of_more_than_64_bits() -> None:
    size = (1 << 63) - 1
    module = module_of(read(buffer_assignment=ALLOCATIONS, live_range=LIVE.replace(": 16 bytes", f": {size} bytes")))
    assert (module["printed_peak_time"], module["printed_peak_bytes"]) == (1, None)


@pytest.mark.parametrize(("total", "kept"), [(0, 0), (64, 64)])
def test_a_total_of_the_used_values_comes_before_that_of_a_report(total: int, kept: int) -> None:
    used = f"Total bytes used: {total} ({total}B)\n\nUsed values:\n"
    report = "Total bytes used: 7 (7B)\n\nAllocations sorted by size:\n\n"
    dump = read(buffer_assignment_values=used, memory_usage_report=report)
    assert module_of(dump)["total_bytes"] == kept
    assert module_of(read(memory_usage_report=report))["total_bytes"] == 7


# -- what a text lacks


def test_flags_alone_are_no_dump() -> None:
    for role in ("debug-options", "tpu-environment"):
        flags = Source("x", (Member(role, role, size=5, content=b"a: 1\n"),))
        with pytest.raises(xlamem.DumpError, match="a section of a memory dump"):
            xlamem.read(flags).flags  # noqa: B018


@pytest.mark.parametrize("ends", [1, 2])
def test_messages_that_do_not_end(ends: int) -> None:
    flags = "a {\n" * ends + "b: 1\n" + "}\n" * (ends - 1)
    dump = read(buffer_assignment=ALLOCATIONS, debug_options=flags)
    assert [(r["code"], r["section"], r["wanted"]) for r in dump.verify().to_pylist()] == [("truncated", "flags", "}")]


def test_a_program_without_a_peak_list() -> None:
    """XLA prints one. What xlamem writes of a compiled program has none: no value is missing in it."""
    members = {"buffer-assignment": ALLOCATIONS.encode(), "live-range": f"HloLiveRange (max 2):\n{LISTS}".encode()}
    source = held("x", members)
    assert [r["wanted"] for r in xlamem.read(source).verify().to_pylist()] == ["  Live ranges at N (peak):"]
    derived = Source(source.name, source.members, derived=True)
    assert xlamem.read(derived).verify().num_rows == 0
    assert xlamem.read(derived).complete
    assert streamed(derived, "diagnostics") == []
    assert module_of(xlamem.read(derived))["printed_peak_time"] is None


def test_a_peak_list_that_lacks_a_value() -> None:
    """It was cut off, unless more follows."""
    peak = PEAK.replace("    b{}: 16 bytes (cumulative: 32 bytes)\n", "")
    dump = read(buffer_assignment=f"{ALLOCATIONS}\nHloLiveRange (max 2):\n{LISTS}{peak}")
    assert [r["wanted"] for r in dump.verify().to_pylist()] == ["2 values in the peak list, not 1"]
    assert not dump.complete
    whole = read(buffer_assignment=f"{ALLOCATIONS}\nHloLiveRange (max 2):\n{LISTS}{PEAK}")
    followed = read(buffer_assignment=f"{ALLOCATIONS}\nHloLiveRange (max 2):\n{LISTS}{peak}{TREE}")
    assert said(whole) == said(followed) == []


# -- where something is wrong


@pytest.mark.parametrize("last", [2, 3])
def test_lines_of_values_with_the_same_id(last: int) -> None:
    """The line is that of the value, not that of one with its id above it."""
    lines = ["BufferAssignment:"]
    for number in range(last + 1):
        offset = 60 if number == last else 0
        lines.append(f"allocation {number}: size 64, thread-local:")
        lines.append(f" value: <7 v @0> (size=16,offset={offset}): f32[4]{{0}}")
    assert said(read(buffer_assignment="\n".join([*lines, ""]))) == [("value_outside", 3 + 2 * last)]


def test_lines_of_ids_that_repeat() -> None:
    lines = ["BufferAssignment:", "allocation 0: size 64, thread-local:"]
    lines += [f" value: <7 v @0> (size=16,offset={16 * i}): f32[4]{{0}}" for i in range(4)]
    assert said(read(buffer_assignment="\n".join([*lines, ""]))) == [("ids_descend", line) for line in (4, 5, 6)]


@pytest.mark.parametrize("n", [3, 4, 7])
def test_unknown_lines_are_counted_beyond_a_number(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outline, diagnostics, report_checks):
        monkeypatch.setattr(module, "MAX_ROWS", 3)
    unknown = "".join(f"nonsense {i}\n" for i in range(n))
    outside = read(buffer_assignment=unknown + ALLOCATIONS, live_range=LIVE)
    inside = read(buffer_assignment=ALLOCATIONS + unknown, live_range=LIVE)
    for dump, section in ((outside, "file"), (inside, "allocations")):
        rows = dump.verify().to_pylist()
        assert [r["code"] for r in rows] == ["unknown_line"] * 3 + ["more_diagnostics"] * (n > 3)
        assert {r["section"] for r in rows} == {section}
        if n > 3:
            assert rows[-1]["wanted"] == f"{n - 3} more of unknown_line"
        assert dump.unknown_text.num_rows == n


def test_unknown_text_is_in_the_order_of_the_file() -> None:
    text = ALLOCATIONS.replace("offset=0)", "offset=0, new=1)").replace("offset=16)", "offset=16, new=2)")
    text = text.replace("allocation 0", "nonsense\nallocation 0") + "more nonsense\n"
    for dump in (read(buffer_assignment=text), read(["unknown_text", "values", "allocations"], buffer_assignment=text)):
        offsets = dump.unknown_text["offset"].to_pylist()
        assert len(offsets) == 4
        assert offsets == sorted(offsets)
        assert [(r["table"], r["row"]) for r in dump.unknown_text.to_pylist()] == [
            (None, None), ("values", 0), ("values", 1), (None, None)
        ]  # fmt: skip


# -- several dumps, and one span by span


def test_unknown_fields_of_one_of_several_dumps() -> None:
    plain = ALLOCATIONS.encode()
    new = plain.replace(b"offset=16)", b"offset=16, new=2)")
    for order in ([plain, new], [new, plain], [plain, plain, new, new, plain]):
        dumps = [ReadDump(held(f"d{i}", {"buffer-assignment": text})) for i, text in enumerate(order)]
        expected = [None if text == plain or not i else ", new=2" for text in order for i in range(2)]
        found = tables_of(dumps)[0]["values"]["attributes"].to_pylist()
        assert [value is None for value in found] == [value is None for value in expected]
        assert all("new=2" in value for value in found if value)


def streamed(source: Source, table: str) -> list[Any]:
    found: list[Any] = []
    for name, rows in streaming.pieces(source, hashes=True):
        found += rows.to_pylist() if name == table else []
    return found


@pytest.mark.parametrize("span", [1, 60, 1 << 20])
def test_values_with_one_id_have_the_live_ranges_of_their_names(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    for ids in ((0, 0), (5, 5), (5, 2), (2, 5)):
        text = ALLOCATIONS.replace("<0 a", f"<{ids[0]} a").replace("<1 b", f"<{ids[1]} b")
        source = held("x", {"buffer-assignment": text.encode(), "live-range": LIVE.encode()})
        whole = xlamem.read(source)
        assert whole.live_ranges["value_id"].to_pylist() == [*ids]
        for table in ("live_ranges", "printed_peak", "diagnostics"):
            assert streamed(source, table) == whole[table].to_pylist()


@pytest.mark.parametrize("n", [1, 2, 5])
def test_hashes_of_all_files(n: int) -> None:
    names = ["buffer-assignment", "live-range", "buffer-assignment-values", "memory-usage-report", "hlo"][:n]
    contents = [ALLOCATIONS, LIVE, "Total bytes used: 64 (64B)\n\nUsed values:\n", "x\n", "HloModule m\n"]
    source = held("x", {role: text.encode() for role, text in zip(names, contents, strict=False)})
    whole = xlamem.read(source, hashes=True)
    assert None not in whole.files["content_hash"].to_pylist()
    assert streamed(source, "files") == whole.files.to_pylist()
    assert streamed(source, "modules") == whole.modules.to_pylist()


def record(number: int, name: str, uses: str = " uses:\n  (none)\n") -> str:
    return (
        f"<{number} {name} @0>\n positions:\n  {name}\n{uses}"
        f" from instruction: %{name} = f32[4]{{0}} add(%x.{number}, %y.{number})\n"
    )


USED = "Total bytes used: 64 (64B)\n\nUsed values:\n"
RECORDS = record(0, "a") + record(1, "b")


def used(records: str, total: int = 64, allocations: str = ALLOCATIONS) -> xlamem.Dump:
    return read(buffer_assignment=allocations, buffer_assignment_values=USED.replace("64", str(total)) + records)


OTHER = "these files are of different compiles"


@pytest.mark.parametrize(
    ("records", "total", "expected"),
    [
        (RECORDS, 64, []),
        (record(0, "a"), 64, [("used values", "2 in the allocations, 1 used values", False)]),
        (RECORDS + record(2, "c"), 64, [("allocations", "2 in the allocations, 3 used values", False)]),
        (record(0, "a") + record(2, "b"), 64, [("used values", "2 in the allocations, 2 used values", True)]),
        (record(0, "a") + record(2, "b"), 80, [("allocations", "2 in the allocations, 2 used values", True),
                                               ("allocations", "80 bytes as printed, not 64", True)]),
        (record(0, "a") + record(1, "c"), 64, [("used values", "the name, index, phi and color", None)]),
        (record(0, "c") + record(1, "d"), 64, [("used values", "the name", None), ("used values", "the name", None)]),
        (record(0, "a") + record(1, "c") + record(2, "d"), 64, [("allocations", "3 used values", False)]),
        (record(0, "c") + record(1, "d") + record(2, "e"), 64, [("allocations", "3 used values", True)]),
        (RECORDS, 80, [("allocations", "80 bytes as printed, not 64", True)]),
        (RECORDS, 48, [("allocations", "48 bytes as printed, not 64", True)]),
        (RECORDS + record(2, "c"), 80, [("allocations", "3 used values", False), ("allocations", "80 bytes", False)]),
    ],
)  # fmt: skip
def test_which_of_two_files_is_cut_off(records: str, total: int, expected: list[tuple[str, str, bool | None]]) -> None:
    """The one that lacks values, if the other has all of them with the same names; else they do not belong together."""
    dump = used(records, total)
    rows = dump.verify().to_pylist()
    assert len(rows) == len(expected)
    for row, (section, words, is_other) in zip(rows, expected, strict=True):
        assert row["section"] == section
        assert words in row["wanted"]
        assert (OTHER in row["wanted"]) is bool(is_other)
    truncated = {section for section, _, is_other in expected if is_other is False}
    complete = dict(zip(dump.files["role"].to_pylist(), dump.files["complete"].to_pylist(), strict=True))
    assert complete == {
        "buffer-assignment": "allocations" not in truncated, "buffer-assignment-values": "used values" not in truncated
    }  # fmt: skip
    source = dump.source
    assert streamed(source, "diagnostics") == rows


@pytest.mark.parametrize("unknown", [set(), {0}, {1}, {0, 1}])
@pytest.mark.parametrize("parts", [1, 2])
def test_values_with_unknown_uses(unknown: set[int], parts: int) -> None:
    """Whether the used values are read for their tables or only searched, and in whichever file they are."""
    uses = [" uses are not initialized yet.\n" if i in unknown else " uses:\n  (none)\n" for i in range(2)]
    records = [record(i, name, text) for i, (name, text) in enumerate(zip("ab", uses, strict=True))]
    members = {"buffer-assignment": f"{ALLOCATIONS}\n{USED}{records[0] if parts == 2 else ''.join(records)}"}
    if parts == 2:
        members["buffer-assignment-values"] = USED + records[1]
    source = held("x", {role: text.encode() for role, text in members.items()})
    for tables in (None, ["values"], ["values", "uses"]):
        known = xlamem.read(source, tables=tables, threads=1).values["uses_known"].to_pylist()
        assert known == [i not in unknown for i in range(2)]
    for names in ({"values"}, None):
        pieces = [rows for name, rows in streaming.pieces(source, names) if name == "values"]
        found = [known for rows in pieces for known in rows["uses_known"].to_pylist()]
        assert found == [i not in unknown for i in range(2)]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("span", [100, 150, 1 << 20])
def test_a_value_with_unknown_uses_wherever_the_text_is_divided(
    threads: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads share the ranges in which the line is looked for; it may cross the end of one."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    for unknown in (-1, *range(4)):
        records = [
            record(i, "abcd"[i], " uses are not initialized yet.\n" if i == unknown else " uses:\n  (none)\n")
            for i in range(4)
        ]
        source = held("x", {"buffer-assignment-values": (USED + "".join(records)).encode()})
        with Lanes(threads) as lanes:
            reader = PieceReader(source, frozenset(["values"]), lanes=lanes)
            assert reader._prints_unknown_uses is (unknown >= 0)
            assert [*(reader.unknown_uses() if unknown >= 0 else ())] == [unknown][: unknown + 1]


def test_old_values_with_an_index() -> None:
    """Their index is in brackets, in the text of the line that is looked for."""
    lines = ["BufferAssignment:", "allocation 0: size 64, thread-local:"]
    lines += [f"  t[{i}](#{7 - i} @0) [{16 * i},16]: f32[4]{{0}}" for i in range(3)]
    assert said(read(buffer_assignment="\n".join([*lines, ""]))) == [("ids_descend", 4), ("ids_descend", 5)]


def test_the_header_of_the_hlo_text_is_cut_off() -> None:
    for tables in ("", "\nFileNames\n1 \"a.py\"\n", "\nFileNames\n1 \"a.py\"\n\n"):
        dump = read(buffer_assignment=ALLOCATIONS, hlo=f"HloModule m\n{tables}")
        assert [(r["section"], r["wanted"]) for r in dump.verify().to_pylist()] == [("hlo", "the first computation")]
        assert not dump.complete


def test_where_newlines_are_mixed() -> None:
    lines = ALLOCATIONS.splitlines()
    text = "\r\n".join([*lines[:3], ""]) + "\n".join([*lines[3:], ""])
    (row,) = read(buffer_assignment=text).verify().to_pylist()
    assert (row["code"], row["line"], row["offset"]) == ("mixed_newlines", 4, len(text) - len(lines[3]) - 1)


@pytest.mark.parametrize("n", [3, 5])
def test_live_ranges_without_values_are_counted_beyond_a_number(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checks, diagnostics):
        monkeypatch.setattr(module, "MAX_ROWS", 3)
    more = "".join(f"    c.{i}{{}}:0-1\n" for i in range(n))
    dump = read(buffer_assignment=ALLOCATIONS, live_range=LIVE.replace(LISTS, LISTS + more))
    rows = [r for r in dump.verify().to_pylist() if r["code"] in ("live_range_unmatched", "more_diagnostics")]
    assert [r["line"] for r in rows][:3] == [8, 9, 10]
    assert [r["wanted"] for r in rows][3:] == ["2 more of live_range_unmatched"] * (n > 3)


@pytest.mark.parametrize("span", [1, 1 << 20])
@pytest.mark.parametrize("order", ["xx", "xyx", "yxxy", "xxx"])
def test_lines_of_live_ranges_that_repeat(order: str, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a line of its own, also if no allocation has a value of that name."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    more = "".join(f"    {name}{{}}:0-1\n" for name in order)
    dump = read(buffer_assignment=ALLOCATIONS, live_range=LIVE.replace(LISTS, LISTS + more))
    rows = [r for r in dump.verify().to_pylist() if r["code"] == "live_range_unmatched"]
    assert [(r["line"], r["excerpt"].strip()[0]) for r in rows] == [*enumerate(order, 8)]
    assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


def test_unknown_fields_are_first_where_they_are_first_in_the_file() -> None:
    """The tables of a section are read in turn, a file from its begin to its end."""
    text = ALLOCATIONS.replace("temp:", "temp, new 1:").replace("offset=16)", "offset=16, new=2)")
    used_values = RECORDS.replace("  a\n", "  a new\n")
    dump = read(buffer_assignment=f"{text}\n{USED}{used_values}")
    rows = [r for r in dump.verify().to_pylist() if r["code"] == "unknown_field"]
    for row in rows:
        assert row["excerpt"]
    assert [r["line"] for r in rows] == sorted(r["line"] for r in rows)


def test_two_reports_in_one_file() -> None:
    """Each with its own total."""
    report = "Total bytes used: {} ({}B)\n\nAllocations sorted by size:\n\n"
    text = report.format(64, 64) + "\n" + report.format(65, 65)
    dump = read(buffer_assignment=ALLOCATIONS, memory_usage_report=text)
    rows = dump.verify().to_pylist()
    assert streamed(dump.source, "diagnostics") == rows
    assert [r["wanted"][:8] for r in rows if r["code"] == "report_differs"] == ["64 bytes"]


def test_an_allocation_that_ends_before_its_values_and_negative_sizes() -> None:
    for size, offset, extent in ((8, 0, 16), (64, 60, 16), (64, -4, 4), (64, 0, -1), (-1, 0, 4)):
        value = f"(size={extent},offset={offset})"
        text = ALLOCATIONS.replace("size 64", f"size {size}").replace("(size=16,offset=0)", value)
        dump = read(buffer_assignment=text)
        assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("threads", [1, 3])
def test_integers_are_those_of_the_tables(threads: int) -> None:
    """Derived columns too, in whichever order they are asked for."""
    text = f"{ALLOCATIONS}\n{USED}{RECORDS}\n{LIVE}"
    dump = xlamem.read(held("x", {"buffer-assignment": text.encode()}), threads=threads)
    for name, spec in schema.TABLES.items():
        columns = [c.name for c in spec.columns if c.kind == "int"]
        for order in (columns, columns[::-1]):
            tables = as_tables(xlamem.read(dump.source, threads=threads))
            found = tables.integers(name, *order) if name in SECTION_OF else []
            for column, numbers in zip(order, found, strict=False):
                assert numbers.tolist() == numbers_of(dump[name][column]).tolist(), (name, column)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_tiled_shape_at_the_end(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells the platform, whichever thread reads it."""
    for module in (whole, streaming):
        monkeypatch.setattr(module, "SPAN_BYTES", 70)
    monkeypatch.setattr(whole, "MAX_SPAN_BYTES", 70)
    value = " value: <{0} v.{0} @0> (size=16,offset=0): f32[4]{{0}}\n"
    blocks = "".join(f"allocation {i}: size 64, thread-local:\n{value.format(i)}" for i in range(9))
    tiled = blocks.replace(value.format(8), value.format(8).replace("{0}", "{0:T(128)}"))
    for text, named, platform in ((blocks, None, None), (tiled, None, "tpu"), (tiled, "gpu", "gpu")):
        source = held("x", {"buffer-assignment": f"BufferAssignment:\n{text}".encode()}, named)
        assert xlamem.read(source, threads=threads).platform == platform
        assert {row["platform"] for row in streamed(source, "modules")} == {platform}


def test_a_report_of_an_allocation_that_does_not_exist() -> None:
    """Also if the text after its number is that of the last allocation."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.4.35-cond_switch")
    members = texts(source)
    report = members["memory-usage-report"]
    members["memory-usage-report"] = report.replace(b"allocation 12: size 208B", b"allocation 99: size 208B")
    dump = xlamem.read(held(source.name, members, source.platform))
    rows = dump.verify().to_pylist()
    lines = [i for i, line in enumerate(members["memory-usage-report"].split(b"\n"), 1) if b"allocation 99:" in line]
    assert len(lines) == 2
    assert [r["line"] for r in rows if r["code"] == "report_differs"] == lines
    assert streamed(dump.source, "diagnostics") == rows


def test_a_report_of_allocations_that_are_cut_off() -> None:
    """What is missing is no contradiction."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.4.35-cond_switch")
    members = texts(source)
    lines = members["buffer-assignment"].splitlines(keepends=True)
    (last,) = [i for i, line in enumerate(lines) if line.startswith(b"allocation 12: ")]
    members["buffer-assignment"] = b"".join(lines[: last + 1])[:-1]
    assert b"allocation 12: " in members["memory-usage-report"]
    dump = xlamem.read(held(source.name, members, source.platform))
    rows = dump.verify().to_pylist()
    assert not [r for r in rows if r["wanted"] == "this allocation as in the allocations"]
    assert streamed(dump.source, "diagnostics") == rows


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_report_that_is_cut_off_says_nothing_about_the_allocations(is_cut: bool) -> None:
    (source,) = xlamem.find(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    members = texts(source)
    del members["buffer-assignment-values"], members["live-range"]
    report = members["memory-usage-report"].replace(b"Total bytes: 4312576 ", b"Total bytes: 4312580 ")
    members["memory-usage-report"] = report.rstrip()[:-40] if is_cut else report
    dump = xlamem.read(held(source.name, members, source.platform))
    complete = dict(zip(dump.files["role"].to_pylist(), dump.files["complete"].to_pylist(), strict=True))
    assert complete["memory-usage-report"] is not is_cut
    assert complete["buffer-assignment"] is is_cut
    wanted = [r["wanted"] for r in dump.verify().to_pylist() if r["code"] == "report_differs"]
    assert [OTHER in text for text in wanted] == [is_cut]


@pytest.mark.parametrize(
    ("printed", "section"), [("64", "used values"), ("80", "allocations"), ("9x", "allocations"), ("", "allocations")]
)
def test_which_total_is_wrong(printed: str, section: str) -> None:
    """If a report has that of the allocations, it is the other one."""
    head = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
    row = "      64B(100%);        64B;            0;                1; f32[16]\n"
    report = f"Memory Space: default (color=0)\nTotal bytes: {printed} ({printed}B)\n{head}  {60 * '-'}\n{row}\n\n"
    more = {"memory_usage_report": report} if printed else {}
    used_values = USED.replace("64", "80") + RECORDS
    dump = read(buffer_assignment=ALLOCATIONS, buffer_assignment_values=used_values, **more)
    (found,) = [r for r in dump.verify().to_pylist() if r["code"] == "total_differs"]
    assert found["section"] == section
    assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("before", ["", LIVE, "Total bytes used: 64 (64B)\n\nUsed values:\n"])
def test_a_report_below_another_section(before: str) -> None:
    report = "Memory Space: hbm (color=0)\nTotal bytes: 64 (64B)\n"
    dump = read(buffer_assignment=f"{ALLOCATIONS}\n{before}\n{report}")
    assert dump.printed_report["total_bytes"].to_pylist()[:1] == [64]
    assert dump.live_ranges.num_rows == (2 if before == LIVE else 0)
    assert streamed(dump.source, "printed_report") == dump.printed_report.to_pylist()


@pytest.mark.parametrize("numbers", [(5, 3, 5), (5, 3, 4, 5), (5, 5), (1, 2, 3)])
@pytest.mark.parametrize("span", [1, 1 << 20])
def test_allocations_printed_twice(numbers: tuple[int, ...], span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one counts, however far above it is."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    lines = ["BufferAssignment:"]
    for i, number in enumerate(numbers):
        lines.append(f"allocation {number}: size {64 if i else 8}, thread-local:")
        lines.append(f" value: <{i} v.{i} @0> (size={32 if i else 4},offset=0): f32[{8 if i else 1}]{{0}}")
    dump = read(buffer_assignment="\n".join([*lines, ""]))
    rows = dump.verify().to_pylist()
    assert ("value_outside" in {r["code"] for r in rows}) is (numbers[0] in numbers[1:])
    assert streamed(dump.source, "diagnostics") == rows


def test_a_report_without_a_memory_space() -> None:
    """It is cut off before the spaces that it lacks."""
    head = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
    row = "      64B(100%);        64B;            0;                1; f32[16]\n"
    report = f"Memory Space: default (color=0)\nTotal bytes: 64 (64B)\n{head}  {60 * '-'}\n{row}\n\n"
    more = "allocation 1: size 64, color 3, preallocated-temp:\n"
    for allocations, wanted in ((ALLOCATIONS, []), (ALLOCATIONS + more, ["Memory Space: … (color=3)"])):
        dump = read(buffer_assignment=allocations, memory_usage_report=report)
        assert [r["wanted"] for r in dump.verify().to_pylist() if r["code"] == "truncated"] == wanted
        assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


def test_what_concerns_a_whole_file_is_said_last() -> None:
    used_values = f"nonsense\n{USED.replace('64', '80')}{RECORDS}more nonsense\n"
    rows = read(buffer_assignment=f"nonsense\n{ALLOCATIONS}", buffer_assignment_values=used_values).verify().to_pylist()
    by_file = {r["file"]: [q["offset"] for q in rows if q["file"] == r["file"]] for r in rows}
    assert by_file["buffer-assignment"] == [0, None]
    assert all(None not in offsets[:-1] for offsets in by_file.values())
    assert [r["file"] for r in rows] == sorted(r["file"] for r in rows)


def test_lines_that_are_not_understood_may_be_allocations() -> None:
    """Without any line, they are missing."""
    for text, wanted in (("", [("truncated", "an allocation")]), ("nonsense\n", None)):
        rows = read(buffer_assignment=f"BufferAssignment:\n{text}").verify().to_pylist()
        found = [(r["code"], r["wanted"]) for r in rows]
        assert found == wanted if wanted else [code for code, _ in found] == ["unknown_line"]


def test_used_values_that_a_report_implies() -> None:
    """An old release prints the allocations sorted by size above its used values."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.4.35-cond_switch")
    members = texts(source)
    cut = members["buffer-assignment"].partition(b"\nTotal bytes used: ")[0]
    dump = xlamem.read(held(source.name, members | {"buffer-assignment": cut}, source.platform))
    assert "Total bytes used: N" in [r["wanted"] for r in dump.verify().to_pylist()]
    del members["memory-usage-report"]
    alone = xlamem.read(held(source.name, members | {"buffer-assignment": cut}, source.platform))
    assert "Total bytes used: N" not in [r["wanted"] for r in alone.verify().to_pylist()]


@pytest.mark.parametrize("span", [1, 1 << 20])
@pytest.mark.parametrize("frame", [None, 0, 1])
def test_a_release_that_prints_stack_trees(span: int, frame: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the used values show that it is one."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    records = [record(i, name) for i, name in enumerate("ab")]
    if frame is not None:
        records[frame] = records[frame].removesuffix("\n") + ", metadata={stack_frame_id=1}\n"
    live = f"HloLiveRange (max 2):\n{LISTS}{PEAK}"
    dump = read(buffer_assignment=f"{ALLOCATIONS}\n{USED}{''.join(records)}\n{live}")
    rows = dump.verify().to_pylist()
    assert ["Stack trace breakdown" in r["wanted"] for r in rows] == [True] * (frame is not None)
    assert streamed(dump.source, "diagnostics") == rows


# -- where sections begin


@pytest.mark.parametrize(("end", "is_cut"), [
    ("HloLiveRange not available\n", False), ("HloLiveRange not available", False), ("HloLiveRange not availabl", True),
    ("HloLiveRange not available\nx", True), ("HloLiveRange not available\n\n\nx", True),
])  # fmt: skip
def test_live_ranges_that_are_not_available_may_end_the_text(end: str, is_cut: bool) -> None:
    found = read(buffer_assignment=f"{ALLOCATIONS}\n{end}").verify().to_pylist()
    assert [r["wanted"] for r in found if r["code"] == "truncated"] == ["a newline"] * is_cut


@pytest.mark.parametrize(("members", "features"), [
    ({"buffer_assignment": f"{ALLOCATIONS}\n{LIVE}"}, {"live_inline"}),
    ({"buffer_assignment": ALLOCATIONS, "live_range": LIVE}, {"live_split"}),
    ({"buffer_assignment": f"{ALLOCATIONS}\n{USED}\n{LIVE}"}, {"values_inline", "live_inline"}),
    ({"buffer_assignment": ALLOCATIONS, "buffer_assignment_values": f"{USED}\n{LIVE}"},
     {"values_split", "live_inline"}),
    ({"buffer_assignment": ALLOCATIONS, "buffer_assignment_values": USED, "live_range": LIVE},
     {"values_split", "live_split"}),
    ({"buffer_assignment": f"{ALLOCATIONS}\nTotal bytes used: 64 (64B)\n"}, set()),
    ({"buffer_assignment": f"Total bytes used: 64 (64B)\n\n{ALLOCATIONS}"}, set()),
    ({"buffer_assignment": f"{ALLOCATIONS}\nHloLiveRange not available\n"}, {"live_unavailable"}),
])  # fmt: skip
def test_which_sections_share_a_file(members: dict[str, str], features: set[str]) -> None:
    found = set((module_of(read(**members))["features"] or "").split(","))
    assert {f for f in found if f.startswith(("live_", "values_"))} == features


@pytest.mark.parametrize("n", [0, 5, (1 << 63) - 1, 1 << 63, 1 << 64, -5, 1 - (1 << 63), -1 << 63])
def test_totals_of_more_than_64_bits(n: int) -> None:
    """There is none, and the line is not understood."""
    dump = used("", n)
    fits = abs(n) < 1 << 63
    assert module_of(dump)["total_bytes"] == (n if fits else None)
    assert ("unknown_line", 1) in said(dump) or fits


@pytest.mark.parametrize("between", ["\n", "", "\n\n", "x\n", "\n\nx\n"])
def test_the_used_values_are_below_their_total(between: str, make: Callable[..., Path]) -> None:
    """The file name implies a single section. The diagnostics are the same without it."""
    text = f"Total bytes used: 64 (64B)\n{between}Used values:\n{RECORDS}"
    folder = make({"buffer-assignment": ALLOCATIONS.encode(), "buffer-assignment-values": text.encode()})
    named, unnamed = xlamem.read(folder), read(buffer_assignment=ALLOCATIONS, buffer_assignment_values=text)
    assert said(named) == said(unnamed)
    assert named.uses.equals(unnamed.uses)
    assert module_of(named)["total_bytes"] == module_of(unnamed)["total_bytes"] == 64


@pytest.mark.parametrize("n", [3, 4, 6])
def test_values_with_faults_are_counted_beyond_a_number(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (checks, diagnostics):
        monkeypatch.setattr(module, "MAX_ROWS", 3)
    begin = "BufferAssignment:\nallocation 0: size 64, preallocated-temp:\n"
    heads = [f" value: <{9 - i} a @0> (size=16,offset={60 * (i > 0)})" for i in range(n + 1)]
    values = [f"{head}: f32[4]{{0}}\n" for head in heads]
    missing = [f" value: <{i + 1} c{i} @0> (size=16,offset=0): f32[4]{{0}}\n" for i in range(n)]
    found = (
        ("ids_descend", read(buffer_assignment=begin + "".join(values)), [4, 5, 6]),
        ("value_outside", read(buffer_assignment=begin + "".join(values)), [4, 5, 6]),
        ("live_range_missing", read(buffer_assignment=ALLOCATIONS + "".join(missing), live_range=LIVE), [5, 6, 7]),
    )
    for code, dump, lines in found:
        rows = [r for r in dump.verify().to_pylist() if r["code"] == code or code in r["wanted"]]
        assert [r["line"] for r in rows][:3] == lines
        assert [r["wanted"] for r in rows][3:] == [f"{n - 3} more of {code}"] * (n > 3)


@pytest.mark.parametrize("span", [1, 300, 1 << 20])
@pytest.mark.parametrize("ids", [(1, 0), (0, 0), (0, 1, 1), (0, 1, 0), (1, 1, 0, 1)])
def test_used_values_that_descend(ids: tuple[int, ...], span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    records = [record(i, "ab"[i]) for i in ids]
    dump = used("".join(records))
    rows = [r for r in dump.verify().to_pylist() if r["code"] == "ids_descend"]
    falls = [k for k in range(1, len(ids)) if ids[k] <= ids[k - 1]]
    assert [r["line"] for r in rows] == [4 + "".join(records[:k]).count("\n") for k in falls]
    assert [r["wanted"] for r in rows] == [f"an id above {ids[k - 1]}" for k in falls]
    assert streamed(dump.source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("place", ["below", "above", "in another file"])
def test_reports_of_one_program(place: str) -> None:
    """What is wrong in one of them is not said of the other, nor are their rows mixed."""
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.4.35-cond_switch")
    members = texts(source)
    report = members["memory-usage-report"].rstrip() + b"\n"
    wrong = report.replace(b"allocation 12: size 208B", b"allocation 99: size 208B")
    if place == "in another file":
        members |= {"memory-usage-report": wrong, "live-range": report}
    else:
        members["memory-usage-report"] = b"\n".join((report, wrong) if place == "below" else (wrong, report))
    dump = xlamem.read(held(source.name, members, source.platform))
    rows = dump.verify().to_pylist()
    lines = [i for i, line in enumerate(members["memory-usage-report"].split(b"\n"), 1) if b"allocation 99:" in line]
    found = [(r["file"], r["line"]) for r in rows if r["code"] == "report_differs"]
    assert [line for file, line in found if file == "memory-usage-report"] == lines
    assert streamed(dump.source, "diagnostics") == rows
    assert streamed(dump.source, "printed_report") == dump.printed_report.to_pylist()


@pytest.mark.parametrize("sizes", [(64, 80), (80, 64), (80, 96), (64, 64)])
def test_spaces_of_reports_with_a_section_between(sizes: tuple[int, int]) -> None:
    head = "  cumulative_size;       size;       offset; used_by_n_values; shapes_list\n"
    row = "      64B(100%);        64B;            0;                1; f32[16]\n"
    reports = [
        f"Memory Space: default (color=0)\nTotal bytes: {size} ({size}B)\n{head}  {60 * '-'}\n{row}\n" for size in sizes
    ]
    dump = read(buffer_assignment=f"{ALLOCATIONS}\n{reports[0]}\n{LIVE}\n{reports[1]}\n")
    rows = dump.verify().to_pylist()
    text = dump.source.members[0].content
    assert text is not None
    lines = text.decode().split("\n")
    wrong = [i for i, line in enumerate(lines, 1) if line.startswith(("Total bytes: 80", "Total bytes: 96"))]
    assert [r["line"] for r in rows if r["code"] == "report_differs"] == wrong
    assert streamed(dump.source, "diagnostics") == rows


@pytest.mark.parametrize("span", [1, 300, 1 << 20])
@pytest.mark.parametrize("texts_of", [("x", "x"), ("x", "y"), ("x", "x", "x"), ("x", "y", "x"), ("x", "y", "y")])
def test_instructions_of_two_files(texts_of: tuple[str, ...], span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is kept once, wherever it is repeated; another one of the same name is a fault."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    monkeypatch.setattr(whole, "SPAN_BYTES", span)
    records = [record(i, "a").replace("%x", f"%{text}").replace(f".{i}", "") for i, text in enumerate(texts_of)]
    distinct = [*dict.fromkeys(texts_of)]
    first = ALLOCATIONS.replace(" value: <1 b @0> (size=16,offset=16): f32[4]{0}\n", "")
    for n in range(len(records) + 1):
        members = {
            "buffer-assignment": f"{first}\n{USED}{''.join(records[:n])}",
            "buffer-assignment-values": USED + "".join(records[n:]),
        }
        source = held("x", {role: text.encode() for role, text in members.items()})
        for threads in (1, 2):
            dump = xlamem.read(source, threads=threads)
            operands = [text[1] for text in dump.instructions["operands"].to_pylist()]
            assert operands == distinct
            faults = [r for r in dump.verify().to_pylist() if r["code"] == "instruction_differs"]
            assert len(faults) == len(distinct) - 1
        assert streamed(source, "instructions") == dump.instructions.to_pylist()
        assert streamed(source, "diagnostics") == dump.verify().to_pylist()


@pytest.mark.parametrize("span", [1, 1 << 20])
def test_the_index_of_live_ranges(span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """{} is that of a tuple; of an array, it is null. Without the value, it is not known that there is an array."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    allocations = ALLOCATIONS.replace("<1 b @0>", "<1 b{} @0>").replace("offset=16): f32[4]{0}", "offset=16): (f32[4])")
    dump = read(buffer_assignment=allocations, live_range=LIVE.replace("    b{}:1-2\n", "    b{}:1-2\n    c{}:0-1\n"))
    found = {(r["instruction"], r["shape_index"], r["value_id"]) for r in dump.live_ranges.to_pylist()}
    assert found == {("a", None, 0), ("b", "{}", 1), ("c", "{}", None)}
    assert streamed(dump.source, "live_ranges") == dump.live_ranges.to_pylist()


@pytest.mark.parametrize("span", [1, 300, 1 << 20])
@pytest.mark.parametrize("names", ["aab", "aba", "abb", "abab", "bbaa"])
def test_repeated_instructions_that_are_not_utf8(names: str, span: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said of the first of equal texts only."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    monkeypatch.setattr(whole, "SPAN_BYTES", span)
    records = [record(i, name).replace(f".{i}", "?") for i, name in enumerate(names)]
    text = (USED + "".join(records)).encode().replace(b"?", b"\xff")
    source = held("x", {"buffer-assignment": ALLOCATIONS.encode(), "buffer-assignment-values": text})
    lines = [9 + 6 * k for k in range(len(names)) if names[k] not in names[:k]]
    for threads in (1, 2):
        rows = xlamem.read(source, threads=threads).verify().to_pylist()
        assert [r["line"] for r in rows if r["code"] == "not_utf8"] == lines
    assert streamed(source, "diagnostics") == rows


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("tables", [["live_ranges"], ["printed_peak"], ["live_ranges", "uses"], ["values"]])
def test_live_ranges_have_values_if_any_text_has_them(tables: list[str], first: bool) -> None:
    """Also if another text says that it has none, and whichever tables are asked for."""
    nothing = "HloLiveRange not available\n"
    members = {"buffer_assignment": f"{ALLOCATIONS}\n{nothing}", "live_range": LIVE}
    if first:
        members = {"buffer_assignment": f"{ALLOCATIONS}\n{LIVE}", "live_range": nothing}
    whole_dump, dump = read(**members), read(tables, **members)
    for table in tables:
        assert dump[table].num_rows == (0 if table == "uses" else 2)
        assert dump[table].to_pylist() == whole_dump[table].to_pylist()
        assert dump[table].to_pylist() == streamed(dump.source, table)
        pieces = [rows for name, rows in streaming.pieces(dump.source, {table}) if name == table]
        assert [row for rows in pieces for row in rows.to_pylist()] == dump[table].to_pylist()


@pytest.mark.parametrize("tables", [["live_ranges"], ["printed_peak"], ["values"]])
def test_live_ranges_of_used_values(tables: list[str]) -> None:
    """Without allocations, the values are those that are used, also if their table is not asked for."""
    members = {"buffer_assignment_values": USED + RECORDS, "live_range": LIVE}
    (table,), whole_dump, dump = tables, read(**members), read(tables, **members)
    assert dump[table].to_pylist() == whole_dump[table].to_pylist()
    assert dump[table].num_rows == 2
    if "value_id" in dump[table].column_names:
        assert dump[table]["value_id"].to_pylist() == [0, 1]
    pieces = [rows for name, rows in streaming.pieces(dump.source, {table}) if name == table]
    assert [row for rows in pieces for row in rows.to_pylist()] == dump[table].to_pylist()


def test_it_is_not_known_whether_values_without_used_values_are_used() -> None:
    """Only the used values, or the allocations of old releases, tell."""
    for members, known in (
        ({"buffer_assignment": ALLOCATIONS, "live_range": LIVE}, [None, None]),
        ({"buffer_assignment": ALLOCATIONS, "buffer_assignment_values": USED + RECORDS}, [True, True]),
    ):
        dump = read(**members)
        assert dump.values["uses_known"].to_pylist() == known
        assert [row["uses_known"] for row in streamed(dump.source, "values")] == known


@pytest.mark.parametrize("span", [1, 1 << 20])
@pytest.mark.parametrize(
    ("metadata", "unknown"),
    [
        ("{\n\"a\":\"{\\\"block\\\": 1}\"\n}", 0),
        ("{\n\"a\":\"1\",\n\"b\":\"2\"\n}, other={\n\"c\":\"3\"\n}", 0),
        ("{\n}", 1),
        ("{\nb\n}", 2),
        ("{\n\"a\":\"1\"", 1),
    ],
)
def test_instructions_with_metadata_on_lines_of_its_own(
    metadata: str, unknown: int, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XLA prints that of Pallas kernels so."""
    monkeypatch.setattr(streaming, "SPAN_BYTES", span)
    monkeypatch.setattr(whole, "SPAN_BYTES", span)
    text = f'f32[4]{{0}} custom-call(%x), kernel_metadata={metadata}, metadata={{op_name="f/kernel"}}\n'
    records = [record(i, name).partition("f32[4]")[0] + text for i, name in enumerate("ab")]
    values = (USED + "".join(records)).encode()
    source = held("x", {"buffer-assignment": ALLOCATIONS.encode(), "buffer-assignment-values": values})
    for threads in (1, 2):
        dump = xlamem.read(source, threads=threads, text=True)
        found = dump.instructions.to_pylist()
        assert [row["op_name"] for row in found] == ["f/kernel" if not unknown else None] * 2
        assert [row["code"] for row in dump.verify().to_pylist()].count("unknown_line") == 2 * unknown
        if not unknown:
            assert found[0]["text"] == f"%a = {text}"[:-1]
    assert streamed(source, "instructions") == xlamem.read(source).instructions.to_pylist()
