"""Whether a program fits: device_total, and no verdict without proof."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import DUMPS, sources, texts

import xlamem
from xlamem import cli, compute, schema
from xlamem.cli.reporters import chart
from xlamem.compute.capacity import _wrong_total, available, byte_count, reason_for_doubt
from xlamem.input.find import Member, Source

SMALL = DUMPS / "cpu-jaxlib-0.12.0-scan_while"
TPU = DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"
GPU = DUMPS / "gpu-jax-0.10.2-attn_cudnn"
OLD = DUMPS / "cpu-jaxlib-0.4.26-scan_while"
FIRST = DUMPS / "cpu-tf-1.15.0-loop"
LAYOUT_A = DUMPS / "gpu-jax-0.5.3-mixed_dtypes"
HUGE = 1 << 60


def held(members: dict[str, bytes], source: Source | None = None) -> Source:
    """A dump in memory."""
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())
    return Source("x", made, platform=source and source.platform)


def of(path: Path) -> tuple[Source, dict[str, bytes]]:
    (source,) = xlamem.find(path)
    return source, texts(source)


def changed(path: Path, role: str, old: bytes, new: bytes) -> xlamem.Dump:
    source, members = of(path)
    assert old in members[role]
    return xlamem.read(held(members | {role: members[role].replace(old, new)}, source))


def fits(dump: xlamem.Dump) -> bool | None:
    return xlamem.fits(dump, capacity=HUGE).fits


# ---- device_total


@pytest.mark.parametrize(
    ("platform", "colors"), [("tpu", {0, 7, 9}), ("gpu", {0, 1, 2}), ("cpu", {0}), (None, {0, 1, 2, 3, 4, 6, 7, 8, 9})]
)
def test_which_colors_count(platform: str | None, colors: set[int]) -> None:
    assert {c for c in range(10) if schema.in_device_memory(platform, c)} == colors
    if platform is not None:
        assert not schema.DEVICE_MEMORY[platform] & schema.OTHER_MEMORY[platform]


@pytest.fixture
def three(make: Any) -> Path:
    """A GPU program with three spaces in its memory, and one on the host."""
    sizes = {0: 1000, 1: 200, 2: 30, 5: 7}
    lines = [b"allocation %d: size %d, color %d, preallocated-temp:\n" % (i, n, i) for i, n in sizes.items()]
    lines.append(b"allocation 9: size 4, thread-local:\n")
    total = sum(sizes.values()) + 4
    values = b"\nTotal bytes used: %d (1.2KiB)\n\nUsed values:\n" % total
    return make(
        {"buffer-assignment": b"BufferAssignment:\n" + b"".join(lines), "buffer-assignment-values": values},
        "sm_9.0_gpu_after_optimizations",
    )


def test_device_total_adds_up_the_spaces_of_one_memory(three: Path, tmp_path: Path) -> None:
    dump = xlamem.read(three)
    assert xlamem.peak(dump).device_total == compute.device_total(dump) == 1230
    assert xlamem.fits(dump, capacity=1230).fits is True
    assert xlamem.fits(dump, capacity=1229).fits is False
    xlamem.convert(three, to=tmp_path / "out", engine="here")
    rows = xlamem.Dataset(tmp_path / "out")["peaks"].to_table().to_pylist()
    assert [r["bytes"] for r in rows if r["definition"] == "device_total"] == [1230]
    assert all(r["memory_space"] is None for r in rows if r["definition"] == "device_total")


def test_device_total_comes_first_on_the_screen(
    three: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["peak", str(three)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("device_total")
    assert lines[at + 1] == "  must fit  1.20 KiB  (1,230 bytes)  device 1000 B + collective 200 B +"
    assert lines[at + 2] == " " * 37 + "temp 30 B"
    assert at < lines.index("device")
    assert cli.main(["peak", str(three), "--capacity", "1229B"]) == 1
    assert "DOES NOT FIT, 1 B over" in capsys.readouterr().out


def test_the_list_of_a_directory_shows_what_it_compares(
    three: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert cli.main(["peak", str(three), str(TPU), "--capacity", "1229B"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("device_total  ")
    assert re.match(r" *1\.20 KiB .*  does not fit$", lines[2])
    assert cli.main(["peak", str(three), str(TPU), "--capacity", "1229B", "--space", "vmem"]) == 1


def test_the_dataset_has_the_same_total(tmp_path: Path) -> None:
    found = [s for s in xlamem.find(DUMPS) if xlamem.read(s).allocations.num_rows]
    wanted = sorted(compute.device_total(xlamem.read(s)) or 0 for s in found)
    xlamem.convert(DUMPS, to=tmp_path, engine="here")
    rows = xlamem.Dataset(tmp_path)["peaks"].to_table().to_pylist()
    totals = [(r["bytes"], r["content_id"]) for r in rows if r["definition"] == "device_total"]
    assert len({content_id for _, content_id in totals}) == len(totals)
    assert sorted(size for size, _ in totals) == wanted


# ---- known, and not known


def test_every_shipped_dump_that_prints_a_total_is_known() -> None:
    for source in xlamem.find(DUMPS):
        dump = xlamem.read(source)
        if dump.allocations.num_rows:
            total = compute.device_total(dump)
            assert total is not None
            known = "tf-1.15" not in source.location
            assert xlamem.fits(dump, capacity=total).fits is (True if known else None), source
            assert xlamem.fits(dump, capacity=total - 1).fits is (False if known else None), source


def test_arguments() -> None:
    dump = xlamem.read(TPU)
    found = xlamem.fits(dump, capacity="16GiB", resident="1GiB", fraction=0.92)
    assert (found.capacity, found.resident, found.fraction, found.device) == (16 << 30, 1 << 30, 0.92, None)
    assert found.available == int((16 << 30) * 92 / 100) - (1 << 30)
    assert (found.fits, found.device_total) == (True, 3_737_088)
    assert found.reason.endswith("program code is not counted")
    assert bool(found)
    assert xlamem.fits(dump, device="TPU v5 lite").device == "v5e"
    no = xlamem.fits(dump, capacity=1 << 22, resident=1 << 22)
    assert (no.fits, no.available, bool(no)) == (False, 0, False)
    with pytest.raises(AttributeError):
        found.fits = False  # type: ignore[misc]
    assert not xlamem.fits(xlamem.read(FIRST), capacity=HUGE)


@pytest.mark.parametrize(
    "given",
    [
        {}, {"capacity": 1, "device": "v5e"}, {"capacity": "16"}, {"capacity": 1.5}, {"capacity": -1},
        {"capacity": 1, "resident": "3"}, {"capacity": 1, "resident": -3}, {"capacity": 1, "fraction": 0},
        {"capacity": 1, "fraction": 1.01}, {"capacity": 1, "fraction": float("nan")}, {"device": "abacus"},
    ],
)  # fmt: skip
def test_invalid_arguments(given: dict[str, Any]) -> None:
    with pytest.raises(xlamem.UsageError):
        xlamem.fits(xlamem.read(SMALL), **given)


def test_a_printed_total_that_differs() -> None:
    assert fits(changed(SMALL, "buffer-assignment", b"allocation 0: size ", b"allocation 0: size 1")) is None
    assert fits(changed(SMALL, "buffer-assignment-values", b"Total bytes used: 48", b"Total bytes used: 58")) is None
    # Even if a report agrees with the allocations.
    source, members = of(OLD)
    (role,) = (r for r, data in members.items() if b"Total bytes used: " in data)
    assert fits(xlamem.read(held(members, source))) is True
    assert fits(changed(OLD, role, b"Total bytes used: ", b"Total bytes used: 1")) is None


def test_the_report_alone_is_proof() -> None:
    for path in (SMALL, TPU, LAYOUT_A):
        source, members = of(path)
        report = members["memory-usage-report"]
        rest = {"buffer-assignment": members["buffer-assignment"].split(b"\nTotal bytes used:")[0] + b"\n"}
        assert fits(xlamem.read(held(rest, source))) is None
        assert fits(xlamem.read(held(rest | {"memory-usage-report": report}, source))) is True, path
        cut = report[: len(report) // 2]
        if path is not LAYOUT_A:  # there the total is in the first line
            assert fits(xlamem.read(held(rest | {"memory-usage-report": cut}, source))) is None, path
        lost = rest["buffer-assignment"].replace(b"\nallocation 1: size ", b"\nallocation 1: size 1")
        assert fits(xlamem.read(held({"buffer-assignment": lost, "memory-usage-report": report}, source))) is None


def test_a_report_about_some_of_the_memory_spaces_is_no_proof() -> None:
    source, members = of(TPU)
    allocations = members["buffer-assignment"].split(b"\nTotal bytes used:")[0] + b"\n"
    spaces = re.split(rb"(?m)^(?=Memory Space: )", members["memory-usage-report"])[1:]
    assert len(spaces) > 1
    for some, verdict in ((spaces, True), *((spaces[:i] + spaces[i + 1 :], None) for i in range(len(spaces)))):
        members = {"buffer-assignment": allocations, "memory-usage-report": b"".join(some)}
        assert fits(xlamem.read(held(members, source))) is verdict


class Tables(dict[str, pa.Table]):
    """Some tables of a dump."""

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(self)


@pytest.mark.parametrize(
    ("reported", "agrees"),
    [
        ({0: 8, 1: 4}, True), ({0: 8, 1: 4, 5: 0}, True), ({0: 8}, False), ({1: 4}, False), ({0: 8, 1: 5}, False),
        ({0: 8, 1: 4, 5: 9}, False), ({}, False),
    ],
)  # fmt: skip
def test_totals_of_a_report_by_color(reported: dict[int, int], agrees: bool) -> None:
    """Each of them is that of the allocations, and each color of an allocation has one."""
    tables = Tables(
        allocations=pa.table({"color": [0, 1, 0], "size": [6, 4, 2]}),
        modules=pa.table({"total_bytes": pa.array([None], pa.int64())}),
        printed_report=pa.table({"color": pa.array(reported, pa.int64()), "total_bytes": [*reported.values()]}),
    )
    for section, code in ((None, None), ("report", "unknown_line"), ("live ranges", "truncated")):
        diagnostics = [{"section": section, "code": code}] * (code is not None)
        assert (_wrong_total(tables, diagnostics) == "") is agrees  # type: ignore[arg-type]
    cut = _wrong_total(tables, [{"section": "report", "code": "truncated"}])  # type: ignore[arg-type]
    assert "prints no total" in cut  # more may have followed
    del tables["printed_report"]
    assert "prints no total" in _wrong_total(tables, [])  # type: ignore[arg-type]


LINES, VALUES, REPORT = "buffer-assignment", "buffer-assignment-values", "memory-usage-report"
REASONS = [
    (LINES, rb"^allocation 1: size", b"allocation 1 size", r"the line of an allocation .* \(buffer-assignment:4\)"),
    (LINES, rb"^allocation 1: size", b"allocation one: size", "the line of an allocation was not understood"),
    (LINES, rb"^(allocation 1: size )", rb"\g<1>%d" % 10**30, "the line of an allocation was not understood"),
    (LINES, rb"^(allocation 1: size )", rb"\1-", "an allocation has a size below 0"),
    (LINES, rb"^(allocation 1: size \d+)", rb"\1, alignment 64", "does not know: alignment 64"),
    (LINES, rb"^ value: ", b" what: ", ""),
    (VALUES, rb"^(Total bytes used: )", rb"\g<1>1", "add up to a printed total: 15313028 bytes as printed"),
    (VALUES, rb"^Total bytes used: \d+", b"Total bytes used: many", ""),  # the report is proof
    (REPORT, rb"^(Total bytes: \d+) ", rb"\1, new=3 ", "the line of a printed total was not understood"),
]


@pytest.mark.parametrize(("role", "pattern", "new", "reason"), REASONS, ids=range(len(REASONS)))
def test_reasons_for_doubt(role: str, pattern: bytes, new: bytes, reason: str) -> None:
    source, members = of(TPU)
    text = re.sub(pattern, new, members[role], flags=re.MULTILINE)
    assert text != members[role]
    dump = xlamem.read(held(members | {role: text}, source))
    doubt = reason_for_doubt(dump)
    assert re.search(reason, doubt) if reason else doubt == ""
    assert fits(dump) is (None if reason else True)


def test_a_total_that_differs_is_stated_wherever_the_fault_is() -> None:
    """Without a report, it may be in the allocations or in the file with the total."""
    source, members = of(TPU)
    members = {LINES: members[LINES], VALUES: members[VALUES].replace(b"bytes used: ", b"bytes used: 1")}
    dump = xlamem.read(held(members, source))
    doubt = reason_for_doubt(dump)
    assert doubt.startswith("the allocations do not add up to a printed total: 15313028 bytes as printed, not 5313028")


def test_two_totals_of_one_memory_space_are_no_proof() -> None:
    """Whichever of them is that of the allocations."""
    source, members = of(TPU)
    allocations = members["buffer-assignment"].split(b"\nTotal bytes used:")[0] + b"\n"
    report = members["memory-usage-report"]
    other = re.sub(rb"(?m)^(Total bytes: )\d", rb"\g<1>1", report)
    assert other != report
    for text, verdict in ((report, True), (report + report, True), (report + other, None), (other + report, None)):
        members = {"buffer-assignment": allocations, "memory-usage-report": text}
        assert fits(xlamem.read(held(members, source))) is verdict


@pytest.mark.parametrize("path", [SMALL, TPU, GPU, OLD, LAYOUT_A], ids=lambda p: p.name)
def test_unknown_field_of_an_allocation(path: Path) -> None:
    new = rb"\g<0>, alignment 64"
    source, members = of(path)
    data = members["buffer-assignment"]
    for change in (
        re.sub(rb"(?m)^allocation \d+: size \d+", new, data),
        re.sub(rb"(?m)^allocation \d+: size \d+", new, data, count=1),
        re.sub(rb"(?m)^allocation \d+", rb"\g<0> [new]", data, count=1),
        re.sub(rb"(?m)^(allocation \d+: size \d+)(.*):$", rb"\g<1>\g<2>, donated:", data, count=1),
    ):
        found = xlamem.fits(xlamem.read(held(members | {"buffer-assignment": change}, source)), capacity=HUGE)
        assert change != data
        assert found.fits is None
        assert found.reason


@pytest.mark.parametrize("path", [SMALL, TPU, GPU], ids=lambda p: p.name)
def test_unknown_fields_elsewhere_do_not_matter(path: Path) -> None:
    source, members = of(path)
    for role, old, new in (
        ("buffer-assignment", rb"(?m)^( value: <.*)\(size=", rb"\g<1>(align=8,size="),
        ("buffer-assignment-values", rb"(?m)^ uses:$", rb" new section:\n  x\n uses:"),
        ("live-range", rb"(?m)^  BufferLiveRange:$", b"  NewList:\n    x: 1\n  BufferLiveRange:"),
    ):
        change = re.sub(old, new, members[role])
        assert change != members[role]
        assert fits(xlamem.read(held(members | {role: change}, source))) is True, role
    for role in ("buffer-assignment-values", "live-range"):
        assert fits(xlamem.read(held(members | {role: members[role][: len(members[role]) // 2]}, source))) is True
    for role in ("live-range", "memory-usage-report"):
        assert fits(xlamem.read(held(members | {role: b""}, source))) is True


def test_an_unknown_platform(make: Any) -> None:
    """Color 1 is VMEM on a TPU, and part of the device's memory on a GPU. Thread-local bytes are in neither."""
    sizes, total = {0: 1000, 1: 500, 5: 70}, 1500
    lines = [f"allocation {color}: size {size}, color {color}, maybe-live-out:\n" for color, size in sizes.items()]
    lines.append("allocation 9: size 300, color 1, thread-local:\n")
    text = "BufferAssignment:\n" + "".join(lines)
    values = f"\nTotal bytes used: {total + 370} (1.8KiB)\n\nUsed values:\n"
    members = {"buffer-assignment": text.encode(), "buffer-assignment-values": values.encode()}
    dump = xlamem.read(make(members, "after_optimizations"))
    assert dump.platform is None
    assert compute.device_total(dump) == total
    for capacity, wanted in ((total, True), (total - 1, None), (1000, None), (999, False)):
        found = xlamem.fits(dump, capacity=capacity)
        assert found.fits is wanted
        assert ("500 bytes in color 1, which may be in another memory" in found.reason) is (wanted is None)


def test_a_color_without_a_name() -> None:
    """What may be in the same memory is counted where that decides."""
    source, members = of(GPU)
    data = re.sub(rb"(?m)^(allocation 0: size \d+)", rb"\g<1>, color 33", members["buffer-assignment"])
    dump = xlamem.read(held(members | {"buffer-assignment": data}, source))
    size, total = dump.allocations["size"][0].as_py(), compute.device_total(dump)
    assert total is not None
    assert dump.allocations["color"][0].as_py() == 33
    assert xlamem.fits(dump, capacity=total + size).fits is True
    assert xlamem.fits(dump, capacity=total + size - 1).fits is None
    assert xlamem.fits(dump, capacity=total).fits is None
    assert xlamem.fits(dump, capacity=total - 1).fits is False


def test_sizes_that_overflow() -> None:
    n = (1 << 63) - 1
    text = b"BufferAssignment:\n" + b"".join(b"allocation %d: size %d, preallocated-temp:\n" % (i, n) for i in range(3))
    dump = xlamem.read(held({"buffer-assignment": text, "buffer-assignment-values": b"\nTotal bytes used: 8\n"}))
    assert fits(dump) is None
    assert compute.device_total(dump) == 3 * n


def test_a_stored_dump_gives_the_same_verdict(tmp_path: Path) -> None:
    xlamem.convert(TPU, FIRST, to=tmp_path, engine="here")
    stored = xlamem.Dataset(tmp_path)
    assert sorted(str(fits(stored.read(i))) for i in stored.ids) == ["None", "True"]


# ---- truncated anywhere


def places(data: bytes, rng: random.Random) -> list[int]:
    lines = [i + 1 for i in range(len(data)) if data[i : i + 1] == b"\n"]
    heads = [m.start() for m in re.finditer(rb"(?m)^(allocation|Total|Used|Buffer|Memory Space)", data)]
    some = {0, *rng.sample(lines, min(5, len(lines))), *rng.sample(heads, min(4, len(heads)))}
    return sorted(some | {rng.randrange(len(data)) for _ in range(3)})


@pytest.mark.parametrize(
    "source", [s for s in sources() if "/dumps/" in s.location], ids=lambda s: Path(s.location).name
)
def test_never_true_with_less_than_the_need(source: Source) -> None:
    """However a file is cut, a capacity just below the true need is never enough; just above it is a verdict or not."""
    members = {role: data for role, data in texts(source).items() if data}
    need = compute.device_total(xlamem.read(source))
    if need is None:
        return
    rng = random.Random(source.name)
    tables = ["modules", "allocations", "printed_report", "diagnostics"]
    for role, data in members.items():
        if role == "hlo":
            continue
        for at in places(data, rng):
            for rest in (members, {}):
                dump = xlamem.read(held(rest | {role: data[:at]}, source), tables=tables, threads=1)
                try:
                    below, above = (xlamem.fits(dump, capacity=need + n).fits for n in (-1, 1))
                except xlamem.DumpError:
                    continue
                assert below is not True, (role, at)
                assert above is not False, (role, at)


# ---- the chart


def test_the_marker_of_every_chart_is_below_its_tallest_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    charts = 0
    for source in xlamem.find(DUMPS):
        cli.main(["peak", source.members[0].uri])
        lines = capsys.readouterr().out.splitlines()
        for i, line in enumerate(lines):
            if not line.startswith("  in use"):
                continue
            end = next(k for k in range(i, i + 4) if "▲" in lines[k])
            mark = lines[end].index("▲")
            picture = [row[12:72].ljust(60) for row in lines[i:end]]
            heights = [sum(max(" ▁▂▃▄▅▆▇█".find(row[c]), 0) for row in picture) for c in range(60)]
            assert heights[mark - 12] == max(heights[: max(mark - 11, 1)]) >= 1, (source, lines[i : end + 1])
            assert heights[mark - 12] >= heights[max(mark - 13, 0)]
            charts += 1
    assert charts > 30  # one of each dump with live ranges


def test_columns_and_marker_are_one_mapping() -> None:
    rng = random.Random(3)
    for _ in range(300):
        steps, room = rng.randrange(1, 400), rng.randrange(40, 100)
        edges = chart.column_starts(steps, room)
        assert len(edges) <= room
        assert edges[0] == 0
        for step in {0, steps - 1, rng.randrange(steps)}:
            c = chart.column_of(edges, step)
            behind = [int(e) for e in edges[c:] if e > edges[c]]
            assert edges[c] <= step < (behind[0] if behind else steps)
            assert c == 0 or edges[c - 1] < edges[c]


def test_json_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["peak", str(FIRST), "--capacity", "1TiB", "--json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["dumps"]
    assert found["fits"] is None
    assert found["device_total"] == 7232
    assert found["reason"].startswith("the dump prints no total")


@pytest.mark.parametrize(("capacity", "fraction", "bytes_"), [(100, 0.29, 29), (100, 0.57, 57), (1000, 0.9, 900)])
def test_a_fraction_is_the_decimal_that_was_written(capacity: int, fraction: float, bytes_: int) -> None:
    """100 * 0.29 is 28.999999999999996."""
    assert available(capacity, None, 0, fraction).bytes == bytes_
    assert available(capacity, None, 9, fraction).bytes == bytes_ - 9


@pytest.mark.parametrize("device", ["v5e", "h100", "mi300x"])
@pytest.mark.parametrize("platform", ["tpu", "gpu", "cpu"])
def test_a_program_for_another_platform(device: str, platform: str) -> None:
    """It is not known what it would need: not even 1 byte of available memory says that it does not fit."""
    folder = next(f for f in sorted(DUMPS.iterdir()) if f.name.startswith(platform))
    dump = xlamem.read(next(iter(xlamem.find(folder))))
    is_same = platform == ("tpu" if device == "v5e" else "gpu")
    for fraction in (1.0, 1e-12):
        result = compute.fits(dump, device=device, fraction=fraction)
        assert result.other_platform is not is_same
        assert result.fits is (fraction == 1 if is_same else None)
        text = f"it is compiled for a {platform.upper()}; compiled for {device}, it needs another amount"
        assert (result.reason == text) is not is_same
    assert compute.fits(dump, capacity="1TiB").fits is True
    assert compute.fits(dump, capacity="1TiB").other_platform is False


def test_sizes_are_below_4_eib() -> None:
    most = (1 << 62) - 1
    assert byte_count("budget", most) == most
    with pytest.raises(xlamem.UsageError, match="budget must be below 4 EiB"):
        byte_count("budget", most + 1)
    assert byte_count("budget", most + 1, limited=False) == most + 1
