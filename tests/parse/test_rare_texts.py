"""Texts that hardly any dump has, small enough to see what must be said of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_cuts import held

import xlamem
from xlamem.input.find import Member, Source
from xlamem.parse import diagnostics, outline, report_checks
from xlamem.parse import pieces as streaming
from xlamem.parse.join import ReadDump, tables_of

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
    texts = dict(zip(names, contents, strict=False))
    source = held("x", {role: text.encode() for role, text in texts.items()})
    whole = xlamem.read(source, hashes=True)
    assert None not in whole.files["content_hash"].to_pylist()
    assert streamed(source, "files") == whole.files.to_pylist()
    assert streamed(source, "modules") == whole.modules.to_pylist()
