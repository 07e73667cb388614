"""The bill against a sweep over cells at every step, and against the numbers that it adds up to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attacks
import brute_bill
import pytest
from attacks import record, value
from brute import TABLES, Brute, hostile
from conftest import every, label, sources
from forge import ERAS, forge
from render import render

import xlamem
from xlamem import schema
from xlamem.compute import arena_cells, bill_wording, in_use
from xlamem.compute.program import program
from xlamem.input.find import Source

HOSTILE = range(200)
VALUES, STEPS = 400, 400
"""Real dumps with more are checked against their own sums only."""

SUFFIX = {"cpu": "cpu_", "gpu": "sm_9.0_gpu_", "tpu": ""}

Row = dict[str, Any]


def rows(dump: xlamem.Dump) -> list[Row]:
    """Return the rows of the bill after checking what holds for every bill."""
    table = xlamem.bill(dump)
    table.validate(full=True)
    assert table.schema.equals(schema.COMPUTED["bills"].arrow)
    found: list[Row] = table.to_pylist()
    for row in found:
        assert row["bytes"] > 0
        assert row["line"] in schema.BILL_LINES
        assert row["part"] is None or row["part"] in schema.BILL_PARTS
        assert row["kind"] is None or row["kind"] in schema.BILL_KINDS
        assert (row["n"] is None) == (row["buffer_bytes"] is None)
    assert_adds_up(dump, found)
    return found


def assert_adds_up(dump: xlamem.Dump, found: list[Row]) -> None:
    total: dict[Any, int] = defaultdict(int)
    for row in found:
        total[row["account"], row["color"], row["page"]] += row["bytes"]
    peaks = xlamem.peak(dump)
    wanted = {(s["memory_space"], s["color"], s["page"]): s["reserved"] for s in peaks.spaces.to_pylist()}
    wanted["device_total", None, None] = peaks.device_total or 0
    assert dict(total) == {key: size for key, size in wanted.items() if size}


def amounts(found: list[Row]) -> dict[Any, Any]:
    """Return the step of each account, and bytes and buffers of each line and part, all kinds together."""
    result: dict[Any, Any] = {}
    for row in found:
        step, lines = result.setdefault((row["account"], row["color"], row["page"]), (row["step"], {}))
        assert step == row["step"]
        key = row["line"], row["part"]
        size, n = lines.get(key, (0, 0))
        lines[key] = size + row["bytes"], None if row["n"] is None else n + row["n"]
    return result


def assert_equals_reference(dump: xlamem.Dump) -> None:
    brute = Brute({name: dump[name].to_pylist() for name in TABLES})
    assert amounts(rows(dump)) == brute_bill.bills(brute, dump.platform)


@pytest.mark.parametrize("seed", every(2, HOSTILE))
def test_hostile(seed: int) -> None:
    assert_equals_reference(xlamem.read(render(hostile(seed))["buffer-assignment"]))


@pytest.mark.parametrize("seed", range(100))
def test_crowded(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocations with many values are swept in turn: by steps, and by addresses."""
    monkeypatch.setattr(in_use, "MAX_SWEPT_VALUES", 1 + seed % 3)
    monkeypatch.setattr(arena_cells, "MAX_TOGETHER", 1 + seed % 4)
    monkeypatch.setattr(in_use, "MAX_CELLS", 1 + seed % 20)
    assert_equals_reference(xlamem.read(render(hostile(seed, values=20))["buffer-assignment"]))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_slot_in_address_ranges(most: int, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Path]) -> None:
    """It has free bytes on both sides of a smaller slot, and the ranges are separated there."""
    monkeypatch.setattr(arena_cells, "MAX_TOGETHER", most)
    values = [value(1, "a", 5120, 0), value(2, "b", 1024, 2048), value(3, "c", 6144, 5120)]
    folder = make(attacks.dump(values, size=11264, steps=8, ranges=["a{}:5-6", "b{}:3-4", "c{}:0-1"]))
    assert_equals_reference(dump := xlamem.read(folder))
    parts = {row["part"]: row["bytes"] for row in rows(dump) if row["line"] == "packing" and row["color"] is not None}
    assert parts == {"one_value": 4096, "shared": 1024}


def test_the_size_of_the_first_value(make: Callable[..., Path]) -> None:
    """They are those of the values, also of the first one, and not of the allocation."""
    folder = make(attacks.dump([value(1, "a", 64)], size=1152, steps=4, ranges=["a{}:0-3"]))
    sizes = {row["buffer_size"] for row in rows(xlamem.read(folder)) if row["line"] == "temporaries"}
    assert sizes == {64}


@pytest.mark.parametrize("most", [1, 2, 100])
def test_the_first_of_equal_peaks(most: int, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Path]) -> None:
    """It is that at which the bill is made, also if the steps are swept in several parts."""
    monkeypatch.setattr(in_use, "MAX_SWEPT_VALUES", most)
    values = [value(1, "a", 64), value(2, "b", 512, 576), value(3, "c", 512), value(4, "d", 64)]
    folder = make(attacks.dump(values, size=1152, steps=8, ranges=["a{}:0-0", "b{}:2-3", "c{}:5-6", "d{}:7-7"]))
    p = program(xlamem.read(folder))
    assert [column.tolist() for column in arena_cells.cell_peaks(p)] == [[512], [2]]


@pytest.mark.parametrize("era", every(3, ERAS))
@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_forged(era: str, platform: Any, tmp_path: Path) -> None:
    for seed in range(3):
        forged = forge(seed, era=era, platform=platform, values=80, hostile=seed == 2)
        folder = tmp_path / str(seed)
        folder.mkdir()
        for role, data in forged.files.items():
            suffix = ".txt" if role == "hlo" else f"-{role}.txt"
            (folder / f"module_0000.jit_f.{SUFFIX[platform]}after_optimizations{suffix}").write_bytes(data)
        assert_equals_reference(xlamem.read(folder))


@pytest.mark.parametrize("seed", HOSTILE[::3])
def test_explain_has_the_lines_of_the_bill(seed: int) -> None:
    dump = xlamem.read(render(hostile(seed))["buffer-assignment"])
    found: dict[Any, dict[str, int]] = defaultdict(dict)
    for cause in xlamem.explain_causes(dump).to_pylist():
        if cause["name"] == "reserved":
            found[cause["color"], cause["page"]][cause["cause"]] = cause["bytes"]
    wanted: dict[Any, dict[str, int]] = defaultdict(dict)
    for row in rows(dump) if dump.live_ranges.num_rows else []:
        line = row["line"].replace("_", " ")
        if line in ("alignment", "another step", "packing") and row["color"] is not None:
            lines = wanted[row["color"], row["page"]]
            lines[line] = lines.get(line, 0) + row["bytes"]
    assert found == wanted


@pytest.fixture(params=sources(), ids=label)
def real(request: pytest.FixtureRequest) -> xlamem.Dump:
    source: Source = request.param
    if "tuple_args_2500.tar" in source.location:
        pytest.skip("hundreds of megabytes")
    return xlamem.read(source)


def test_real(real: xlamem.Dump) -> None:
    if real.values.num_rows > VALUES or (real.modules["schedule_length"][0].as_py() or 0) > STEPS:
        rows(real)
    else:
        assert_equals_reference(real)


@pytest.mark.parametrize(
    ("n", "own", "buffers", "each", "granule", "text"),
    [
        (1, 70, 1000, 1000, 8, "70 bytes of a slot of 1000 bytes"),
        (3, 269, 300, 100, 4, "269 bytes of slots of 100 bytes"),
        (3, 270, 300, 100, 4, "100 bytes each in slots of 100 bytes"),
        (2, 130, 16, 8, 128, "8 bytes each in slots of 128 bytes"),
        (7, 89, 100, None, 4, "89 bytes of their 100 bytes"),
        (7, 90, 100, None, 4, "100 bytes together"),
    ],
)
def test_slots_that_others_use_in_part(
    n: int, own: int, buffers: int, each: int | None, granule: int, text: str
) -> None:
    """A copy of 1.43 GiB was listed in full below 176 MiB of packing, of which only 67 MiB are its own."""
    row = {"n": n, "bytes": own, "buffer_bytes": buffers, "buffer_size": each, "granule": granule}
    assert bill_wording.slot_sentence(row, "7 gradients") == f"7 gradients, {text}"


def test_a_buffer_beyond_its_allocation(make: Callable[..., Path]) -> None:
    """In a damaged dump: the bytes that must fit are those of the allocation, but the buffer has its own size."""
    members = attacks.dump([value(1, "a", 512, 0, "f32[128]{0}")], size=64, ranges=["a{}:0-3"])
    found = rows(xlamem.read(make(members)))
    assert [(r["line"], r["bytes"], r["buffer_bytes"], r["buffer_size"]) for r in found] == [
        ("temporaries", 64, 512, 512)
    ] * 2


def test_what_devices_exchange_is_no_gradient(make: Callable[..., Path]) -> None:
    """Of the backward pass, too; a copy of a gradient is one."""
    metadata = 'metadata={op_name="jit(f)/transpose(jvp())/dot_general"}'
    opcodes = ["all-gather", "dot", "copy", "all-reduce-done", "copy-done"]
    values = [value(i, f"v.{i}", 64, 64 * i, "f32[16]") for i in range(len(opcodes))]
    records = [record(i, f"v.{i}", f"f32[16] {opcode}(%x), {metadata}") for i, opcode in enumerate(opcodes)]
    ranges = [f"v.{i}{{}}:0-1" for i in range(len(opcodes))]
    dump = xlamem.read(make(attacks.dump(values, size=320, records=records, ranges=ranges)))
    rows = [row for row in xlamem.bill(dump).to_pylist() if row["account"] == "device_total" and row["kind"]]
    assert {(row["line"], row["kind"], row["n"]) for row in rows} == {
        ("temporaries", "collective", 2), ("temporaries", "gradient", 3)
    }  # fmt: skip
