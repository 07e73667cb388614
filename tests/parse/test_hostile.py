"""Input that was made, or happened, to break something: a correct answer, or a clear error of ours."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import DUMPS, every, texts
from fuzz.check import check, computed, plain, source_of
from fuzz.mutate import Members, mutate
from fuzz.run import seeds

import xlamem
from xlamem import DumpError, UsageError, compute
from xlamem.cli import main
from xlamem.compute import layout
from xlamem.parse.join import ReadDump, tables_of
from xlamem.warehouse import derived
from xlamem.warehouse.merged import DumpSet

HOSTILE = Path(__file__).parents[1] / "data" / "hostile"
SMALL = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")[0]


def dump_of(allocations: str, steps: int = 0, ranges: str = "", printed: str | None = None, total: str = "") -> Members:
    """A dump of these allocations and live ranges."""
    live = f"HloLiveRange (max {steps if printed is None else printed}):\n  InstructionSequence:\n"
    live += "".join(f"    {i}:s.{i}\n" for i in range(steps))
    live += f"  BufferLiveRange:\n{ranges}  Live ranges at 0 (peak):\n"
    return {"buffer-assignment": f"BufferAssignment:\n{allocations}\n{total}{live}".encode()}


def values(n: int, size: int = 8, offset: int = 0) -> str:
    return "".join(f" value: <{i} a.{i} @0> (size={size},offset={offset}): f32[2]{{0}}\n" for i in range(n))


def ranges(n: int, span: str) -> str:
    return "".join(f"    a.{i}{{}}:{span}\n" for i in range(n))


@pytest.mark.parametrize("folder", every(3, sorted(HOSTILE.iterdir())), ids=lambda p: p.name)
def test_kept(folder: Path, tmp_path: Path) -> None:
    clean = texts(SMALL)
    for i, source in enumerate(xlamem.find(folder)):
        check(random.Random(f"{i}/0"), texts(source), clean, None)
        (place := tmp_path / str(i)).mkdir()
        check(random.Random(i), texts(source), clean, place)


def test_changed() -> None:
    """Some executions of the fuzzer (tests/fuzz), the same each time."""
    inputs = [m for m in seeds([]) if sum(map(len, m.values())) < 20_000]
    for i in range(12):
        rng = random.Random(i)
        check(rng, mutate(rng, rng.choice(inputs), inputs), rng.choice(inputs), None)


def test_many_values_at_one_address() -> None:
    n = 400
    members = dump_of(f"allocation 0: size 8, preallocated-temp:\n{values(n)}", 4, ranges(n, "1-2"))
    dump = xlamem.read(source_of(members))
    assert compute.peak(dump).spaces["peak"].to_pylist() == [8]
    assert compute.savings(dump).num_rows == 0  # each shares its bytes with all others


@pytest.mark.parametrize("printed", ["400000000", "9223372036854775807", "18446744073709551616", "1", "0"])
def test_printed_steps_decide_nothing(printed: str) -> None:
    allocations = f"allocation 0: size 16, preallocated-temp:\n{values(2)}"
    right = xlamem.read(source_of(dump_of(allocations, 5, ranges(2, "1-2"))))
    assert right.verify()["code"].to_pylist() == []
    dump = xlamem.read(source_of(dump_of(allocations, 5, ranges(2, "1-2"), printed)))
    codes = dump.verify()["code"].to_pylist()
    assert codes[0] == ("unknown_line" if len(printed) > 19 else "steps_differ")
    assert dump.complete
    if int(printed) > 5:
        for name in ("peaks", "plateaus", "live_set", "savings", "fragmentation"):
            assert plain(compute.REGISTRY[name](dump)).equals(plain(compute.REGISTRY[name](right))), name
        assert compute.occupancy(dump).num_rows == compute.occupancy(right).num_rows == 6


@pytest.mark.parametrize("span", ["3-1", "7-9", "-5--3", "-5-2", "2-99", "9223372036854775807-9223372036854775807"])
def test_ranges_outside_of_the_schedule(span: str) -> None:
    """They are cut off at its ends; of some nothing is left."""
    allocations = f"allocation 0: size 16, preallocated-temp:\n{values(2)}"
    dump = xlamem.read(source_of(dump_of(allocations, 5, f"    a.0{{}}:{span}\n    a.1{{}}:0-0\n")))
    (found,) = [d for d in dump.diagnostics.to_pylist() if d["code"] == "range_outside"]
    assert found["wanted"] == "live ranges within steps 0 to 5; 1 are not"
    assert not dump.modules["consistent"][0].as_py()
    holds = {"-5-2": [1, 1, 1, 0, 0, 0], "2-99": [1, 0, 1, 1, 1, 1]}.get(span, [1, 0, 0, 0, 0, 0])
    assert compute.occupancy(dump)["occupied"].to_pylist() == [8 * h for h in holds]
    computed(dump)


def test_a_total_of_more_than_64_bits() -> None:
    total = "Total bytes used: 18446744073709551616 (16.00EiB)\n\nUsed values:\n"
    dump = xlamem.read(source_of(dump_of("allocation 0: size 8, preallocated-temp:\n" + values(1), total=total)))
    assert dump.modules["total_bytes"].to_pylist() == [None]
    assert "unknown_line" in dump.diagnostics["code"].to_pylist()


def test_each_allocation_in_a_space_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither spaces nor steps alone are many, but both together would be."""
    n = 3000
    allocations = "".join(
        f"allocation {i}: size 64, color {i << 40}, page {i << 41}, preallocated-temp:\n"
        f" value: <{i} a.{i} @{i << 40}> (size=64,offset=0): f32[2]{{0}}\n"
        for i in range(n)
    )
    spans = "".join(f"    a.{i}{{}}:{i}-{i + 1}\n" for i in range(n))
    dump = xlamem.read(source_of(dump_of(allocations, n, spans)))
    with pytest.raises(DumpError, match="at most 256 memory spaces, not 3,000"):
        compute.peak(dump)
    monkeypatch.setattr(layout, "MAX_DUMP_SPACES", n)
    peaks = compute.peak(dump)
    assert peaks.spaces["first_step"].to_pylist() == list(range(n))
    assert peaks.spaces["last_step"].to_pylist() == list(range(1, n + 1))
    assert compute.savings(dump)["saving"].to_pylist() == [64] * n
    assert compute.explain(dump)["bytes"].to_pylist()
    with pytest.raises(UsageError, match="choose one with space"):
        compute.occupancy(dump)
    assert sum(compute.occupancy(dump, space=5 << 40)["occupied"].to_pylist()) == 128


@pytest.mark.parametrize(
    "allocations",
    [
        "allocation 0: size 9223372036854775807, preallocated-temp:\n"
        "allocation 1: size 9223372036854775807, preallocated-temp:\n",
        "allocation 0: size -8, preallocated-temp:\n",
        "allocation 0: size 8, preallocated-temp:\n" + values(1, offset=(1 << 63) - 1),
        "allocation 0: size 8, preallocated-temp:\n" + values(1, size=(1 << 63) - 1, offset=(1 << 63) - 1),
        "allocation 0: size 8, preallocated-temp:\n" + values(1, size=-8),
        "allocation 0: size 4611686018427387904, preallocated-temp:\n" + values(9, size=1 << 61),
    ],
)
def test_sums_that_do_not_fit(allocations: str, tmp_path: Path) -> None:
    members = dump_of(allocations, 2, ranges(9 if "<8" in allocations else 1, "0-1"))
    dump = xlamem.read(source_of(members))
    for give in compute.REGISTRY.values():
        with pytest.raises(DumpError, match="2\\^62"):
            give(dump)
    # What is stored of it is the text; it has no peaks, and the dump beside it has.
    check(random.Random(0), members, texts(SMALL), tmp_path)
    dataset = xlamem.Dataset(tmp_path / "out")
    stored = dataset.sql("SELECT count(DISTINCT content_id) FROM peaks WHERE definition = 'peak'")
    assert stored.to_pydict()[stored.column_names[0]] == [1]


def test_values_beyond_their_allocation() -> None:
    """The bytes that the allocation has count, and no others: parts add up to the whole."""
    allocations = "allocation 0: size 8, preallocated-temp:\n" + values(2, size=100)
    allocations += "allocation 1: size 8, parameter 0, shape |f32[2]| at ShapeIndex {}:\n"
    allocations += " value: <5 a.5 @0> (size=1000,offset=4): f32[2]{0}\n"
    dump = xlamem.read(source_of(dump_of(allocations, 3, ranges(6, "1-2"))))
    assert "value_outside" in dump.verify()["code"].to_pylist()
    assert compute.peak(dump).spaces["peak"].to_pylist() == [16]
    computed(dump)


def test_far_numbers_are_converted() -> None:
    """Ids, pages and colors near 2^63 stay what they are in what is computed of several dumps."""
    top = (1 << 63) - 1
    allocations = (
        f"allocation {top}: size 64, color {top}, page {top}, preallocated-temp:\n"
        f" value: <{top} a.0 @{top}> (size=64,offset=0): f32[2]{{0}}\n"
    )
    dumps = [ReadDump(source_of(dump_of(allocations, 2, ranges(1, "0-1")))), ReadDump(SMALL)]
    tables, counts = tables_of(dumps)
    found = derived.derive(DumpSet(["far", "near"], tables, counts), 20)
    far = [r for r in found["peaks"].to_pylist() if r["content_id"] == "far" and r["definition"] == "peak"]
    assert [(r["color"], r["page"], r["bytes"]) for r in far] == [(top, top, 64)]
    (member,) = [r for r in found["peak_members"].to_pylist() if r["content_id"] == "far"]
    assert (member["value_id"], member["allocation"], member["page"]) == (top, top, top)
    alone = derived.derive(DumpSet.of_one("near", tables_of(dumps[1:])[0]), 20)
    for name, table in alone.items():
        near = found[name].filter(pa.array(np.array(found[name]["content_id"].to_pylist()) == "near"))
        assert near.to_pylist() == table.to_pylist()


@pytest.mark.parametrize("verb", [["info"], ["info", "--json"], ["peak"], ["peak", "--json"], ["live"], ["explain"]])
@pytest.mark.parametrize("folder", every(2, sorted(HOSTILE.iterdir())), ids=lambda p: p.name)
def test_on_the_command_line(folder: Path, verb: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An answer, or a sentence that says why there is none."""
    code = main([verb[0], str(folder), *verb[1:]])
    # 2: a computation that needs live ranges, of a dump without.
    assert code in (0, 1, 2, 3), capsys.readouterr().err


@pytest.mark.parametrize("shape", ["c128[1073741824,1073741824]{1,0}", "f32[1073741824,1073741824]{1,0:E(1023)}"])
def test_a_shape_of_more_than_64_bits(shape: str) -> None:
    allocations = f"allocation 0: size 8, preallocated-temp:\n value: <0 a.0 @0> (size=8,offset=0): {shape}\n"
    dump = xlamem.read(source_of(dump_of(allocations, 2, ranges(1, "0-1"))))
    assert dump.values["unpadded_size"].to_pylist() == [None]
    assert dump.values["element_type"].to_pylist() == [shape[: shape.index("[")]]
    assert [d["wanted"] for d in dump.verify().to_pylist()] == [f"a size of less than 2^63 bytes, unlike {shape}"]
    assert not dump.modules["understood"][0].as_py()


def with_tree(total: str, current: str, remaining: str, label: str = "a") -> xlamem.Dump:
    """A dump with a stack tree of one node."""
    tree = "  Stack trace breakdown for peak usage: 8 bytes\n"
    tree += f"    {label} (100.0%, total: {total} bytes, current: {current} bytes, remaining: {remaining} bytes)\n"
    allocations = "allocation 0: size 8, preallocated-temp:\n" + values(1)
    live = dump_of(allocations, 2, ranges(1, "0-1"))["buffer-assignment"] + b"    a.0: 8 bytes\n" + tree.encode()
    return xlamem.read(source_of({"buffer-assignment": live}))


@pytest.mark.parametrize(
    "number",
    [
        "18446744073709551617", "9223372036854775808", "-9 223 372 036 854 775 809", "1.1 234 567", "12 34", "1 2345",
        "1 234 567KiB", "1234 567", "1  234", " 234", "--1", "-", "1- 234", "",
    ],
)  # fmt: skip
def test_numbers_of_the_tree_have_the_form_of_xla(number: str) -> None:
    dump = with_tree("8", "8", number)
    assert dump.printed_stack.num_rows == 0
    assert not dump.complete


@pytest.mark.parametrize("second", ["b", "    b", "      b", "      │   b", "  └── b"])
def test_the_last_line_of_a_label_may_be_indented(second: str) -> None:
    """As long as it has no connectors of its own."""
    dump = with_tree("8", "8", "0", f"a\n{second}")
    assert dump.printed_stack["label"].to_pylist() == [f"a\n{second}"]
    assert not dump.diagnostics.num_rows


def test_text_behind_live_ranges_that_are_not_available() -> None:
    text = "BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n" + values(1) + "HloLiveRange not available\n"
    assert not xlamem.read(text.encode()).verify().num_rows
    dump = xlamem.read(f"{text}what is this\n".encode())
    assert [(d["code"], d["line"]) for d in dump.verify().to_pylist()] == [("unknown_line", 5)]
    assert dump["unknown_text"]["text"].to_pylist() == ["what is this\n"]
    assert not dump.modules["understood"][0].as_py()


def test_a_memory_space_behind_an_allocation_of_the_other_layout() -> None:
    report = b"Allocations sorted by size:\nAllocations sorted by size with their values:\n"
    report += b"allocation 2: size 8B, preallocated-temp:\nMemory Space: hbm (color=0)\nTotal bytes: 8 (8B)\n"
    dump = xlamem.read(source_of({"memory-usage-report": report}))
    rows = dump["printed_report"].select(["part", "allocation", "n_values"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [("table", 2, 1), ("space", None, None)]


@pytest.mark.parametrize(
    "number",
    [
        "0", "-8", "46137348", "46 137 348", "-46 137 348", "-137 348", "12 345", "-12 345",
        "9223372036854775807", "9 223 372 036 854 775 807", "-9 223 372 036 854 775 807",
        "000 000 000 000 000 000 000 000 000 000 001",
    ],
)  # fmt: skip
def test_numbers_of_the_tree_can_be_negative_and_long(number: str) -> None:
    (row,) = with_tree(number, number, "0").printed_stack.to_pylist()
    assert row["total"] == row["current"] == int(number.replace(" ", ""))
    (row,) = with_tree("8", "8", number).printed_stack.to_pylist()
    assert row["remaining"] == int(number.replace(" ", ""))
