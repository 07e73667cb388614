"""Each cross-check sees the error that it is there for: one is planted at a time."""

from __future__ import annotations

import re

import pytest
from compare import differences
from conftest import DUMPS, texts
from test_cuts import held

import xlamem

SPLIT = "cpu-jaxlib-0.12.0-scan_while"
OLD_REPORT = "cpu-jaxlib-0.4.35-cond_switch"

FIRST = b" value: <52 wrapped_tanh @0> (size=8192,offset=0): f32[16,128]{1,0}\n"
SECOND = b" value: <67 broadcast_multiply_fusion @0> (size=8192,offset=0): f32[16,128]{1,0}\n"

PLANTED = [
    # code, dump, role, text, what stands there instead, complete
    ("total_differs", SPLIT, "buffer-assignment-values", b"used: 483680 (472.3KiB)", b"used: 483681 (472.3KiB)", False),
    ("records_differ", SPLIT, "buffer-assignment-values", b"<47 copy.4 @0>", b"<46 copy.4 @0>", False),
    ("records_differ", SPLIT, "buffer-assignment-values", b"<47 copy.4 @0>", b"<47 copy.5 @0>", True),
    ("records_differ", SPLIT, "buffer-assignment-values", b"<47 copy.4 @0>", b"<47 copy.4 (phi) @0>", True),
    ("records_differ", SPLIT, "buffer-assignment-values", b"<47 copy.4 @0>", b"<47 copy.4{0} @0>", True),
    ("records_differ", SPLIT, "buffer-assignment-values", b"<47 copy.4 @0>", b"<47 copy.4 @1>", True),
    ("value_outside", SPLIT, "buffer-assignment", b"<82 ws.1 @0> (size=393216,", b"<82 ws.1 @0> (size=393217,", True),
    ("ids_descend", SPLIT, "buffer-assignment", FIRST + SECOND, SECOND + FIRST, True),
    ("schedule_gap", SPLIT, "live-range", b"    50:tuple.5\n", b"    51:tuple.5\n", True),
    ("steps_differ", SPLIT, "live-range", b"(max 51)", b"(max 50)", True),
    ("steps_differ", SPLIT, "live-range", b"(max 51)", b"(max 400000000)", True),
    ("unknown_line", SPLIT, "live-range", b"(max 51)", b"(max 9223372036854775808)", True),
    ("range_outside", SPLIT, "live-range", b"    copy.4{}:20-26\n", b"    copy.4{}:20-52\n", True),
    ("range_outside", SPLIT, "live-range", b"    copy.4{}:20-26\n", b"    copy.4{}:26-20\n", True),
    ("live_range_missing", SPLIT, "live-range", b"    copy.4{}:20-26\n", b"", False),
    ("live_range_unmatched", SPLIT, "live-range", b"    copy.4{}:20-26\n", b"    copy.99{}:20-26\n", False),
    ("tree_differs", SPLIT, "live-range", b"peak usage: 417 832 bytes", b"peak usage: 417 833 bytes", True),
    ("report_differs", SPLIT, "memory-usage-report", b"Total bytes: 483680 (", b"Total bytes: 483681 (", False),
    ("report_differs", OLD_REPORT, "memory-usage-report", b"allocation 1: size ", b"allocation 1: size 9", True),
    ("not_utf8", SPLIT, "buffer-assignment-values", b'op_name="reduce_sum"', b'op_name="reduce\xffsum"', True),
]


@pytest.mark.parametrize(("code", "name", "role", "old", "new", "complete"), PLANTED)
def test_planted(code: str, name: str, role: str, old: bytes, new: bytes, complete: bool) -> None:
    source = xlamem.find(DUMPS / name)[0]
    members = texts(source)
    assert old in members[role], "the dump has changed"
    members[role] = members[role].replace(old, new, 1)
    dump = xlamem.read(held(source.name, members, source.platform), text=True)
    assert code in dump.diagnostics["code"].to_pylist()
    assert differences(dump, members) == []
    if complete:
        assert dump.complete


@pytest.mark.parametrize(("stated", "last"), [(51, 51), (60, 60), (40, 51), (0, 51)])
def test_live_ranges_lie_within_the_longer_schedule(stated: int, last: int) -> None:
    """Whether it is the listed one, of 51 steps, or the stated one: some of it may be missing."""
    source = xlamem.find(DUMPS / SPLIT)[0]
    members = texts(source)
    live = members["live-range"].replace(b"(max 51)", b"(max %d)" % stated)
    for end in (last, last + 1):
        members["live-range"] = live.replace(b"    copy.4{}:20-26\n", b"    copy.4{}:20-%d\n" % end)
        found = xlamem.read(held(source.name, members, source.platform), text=True).diagnostics.to_pylist()
        outside = [row["wanted"] for row in found if row["code"] == "range_outside"]
        assert outside == ([f"live ranges within steps 0 to {last}; 1 are not"] if end > last else [])


def test_lines_of_two_kinds() -> None:
    source = xlamem.find(DUMPS / SPLIT)[0]
    members = texts(source)
    lines = members["live-range"].replace(b"\n", b"\r\n")
    crlf = members | {"live-range": lines}
    dump = xlamem.read(held("x", crlf, source.platform))
    assert dump.diagnostics.num_rows == 0
    assert "crlf" in dump.modules["features"][0].as_py().split(",")
    assert dump.live_ranges.to_pylist() == xlamem.read(source).live_ranges.to_pylist()
    second = lines.replace(b"\r\n", b"\n", 9).replace(b"\n", b"\r\n", 1)
    mixed = xlamem.read(held("x", members | {"live-range": second}))
    assert mixed.diagnostics["code"].to_pylist() == ["mixed_newlines"]
    assert mixed.diagnostics["line"].to_pylist() == [2]


@pytest.mark.parametrize(("vmem", "is_truncated"), [(1441796, True), (1441788, False)])
def test_totals_of_a_report_that_differ_in_two_spaces(vmem: int, is_truncated: bool) -> None:
    """The allocations are cut off if all of them are larger; else the report is of another compile."""
    (source,) = xlamem.find(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    members = texts(source)
    del members["buffer-assignment-values"], members["live-range"]
    report = members["memory-usage-report"].replace(b"Total bytes: 4312576 ", b"Total bytes: 4312580 ")
    members["memory-usage-report"] = report.replace(b"Total bytes: 1441792 ", b"Total bytes: %d " % vmem)
    dump = xlamem.read(held(source.name, members, source.platform))
    wanted = [r["wanted"] for r in dump.verify().to_pylist() if r["code"] == "report_differs"]
    assert len(wanted) == 2
    assert all(("these files are of different compiles" in text) is not is_truncated for text in wanted)
    complete = dict(zip(dump.files["role"].to_pylist(), dump.files["complete"].to_pylist(), strict=True))
    assert complete["buffer-assignment"] is not is_truncated


@pytest.mark.parametrize(("totals", "differs"), [((4, 4), False), ((4, 5), True), ((5, 4), True)])
def test_both_of_two_printed_totals_must_agree(totals: tuple[int, int], differs: bool) -> None:
    """One follows the allocations, the other one is in a file of its own."""
    allocations = "BufferAssignment:\nallocation 0: size 4, thread-local:\n value: <0 p @0> (size=4,offset=0): f32[]\n"
    record = "<0 p @0>\n positions:\n  p\n uses:\n  (none)\n from instruction: %p = f32[] parameter(0)\n"
    inline, own = (f"\nTotal bytes used: {n} ({n}B)\n\nUsed values:\n{record}" for n in totals)
    members = {"buffer-assignment": (allocations + inline).encode(), "buffer-assignment-values": own.encode()}
    codes = xlamem.read(held("x", members)).diagnostics["code"].to_pylist()
    assert ("total_differs" in codes) is differs


def test_a_total_belongs_to_the_first_section_below_it() -> None:
    """Not to a list of allocations after the used values, of which only the head is left."""
    source = xlamem.find(DUMPS / SPLIT)[0]
    members = texts(source)
    name, text = "buffer-assignment-values", b"\nAllocations sorted by size:\n\n"
    members[name] += text
    dump = xlamem.read(held("x", members), text=True)
    (row,) = dump.verify().to_pylist()
    assert (row["code"], row["section"], row["offset"]) == ("truncated", "report", len(members[name]))
    assert differences(dump, members) == []


def test_the_lines_of_totals_in_another_order() -> None:
    """Memory spaces are in the order of the text, whatever their colors."""
    (source,) = xlamem.find(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    members = texts(source)
    spaces = members["memory-usage-report"].split(b"Memory Space: ")
    report = b"Memory Space: ".join([spaces[0], *spaces[:0:-1]])
    members["memory-usage-report"] = re.sub(rb"\nTotal bytes: (\d+)", rb"\nTotal bytes: 9\1", report)
    dump = xlamem.read(held(source.name, members, source.platform), text=True)
    lines = [r["line"] for r in dump.verify().to_pylist() if r["code"] == "report_differs"]
    report_lines = members["memory-usage-report"].split(b"\n")
    assert lines == [i for i, line in enumerate(report_lines, 1) if line.startswith(b"Total")]
    assert len(lines) == 3
