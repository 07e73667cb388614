"""What the gate keeps of small programs, and its rules on them, against the tables of the dump."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import record, value
from conftest import DUMPS

import xlamem
from xlamem import schema
from xlamem.compute.program import program
from xlamem.errors import UsageError
from xlamem.gate import programs, rules, stacks
from xlamem.gate.amounts import Amount
from xlamem.gate.config import Budget
from xlamem.gate.curves import N_COLUMNS, usage_curve
from xlamem.gate.entry import (
    Entry,
    Group,
    _group,
    bill_lines,
    by_key,
    entry_of,
    members,
    named_bytes,
    peak_of,
    sum_of_lines,
)
from xlamem.gate.finding import Checked, Finding, amount
from xlamem.gate.program_names import name_of
from xlamem.gate.programs import main_peak, program_name, read_program

MIB = 1 << 20
FOLDERS = [
    DUMPS / name for name in (
        "cpu-jaxlib-0.12.0-several_modules", "tpu-libtpu-0.0.50.1-tpu7x-donate_adam", "gpu-jax-0.10.2-attn_cudnn",
        "tpu-libtpu-0.0.50.1-v5e-host_offload", "cpu-jaxlib-0.4.13-donate_adam", "cpu-jaxlib-0.12.0-multiheap",
    )
]  # fmt: skip


def entry(**fields: Any) -> Entry:
    needed = {"name": "jit_f", "platform": "tpu", "program_fp": None, "interface_fp": None, "device_total": 1000}
    return Entry(**{**needed, "peak": 900, **fields})


# -- entries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_entries_are_what_the_tables_say(folder: Path) -> None:
    for source in xlamem.find(folder):
        dump = xlamem.read(source)
        p = program(dump)
        e = entry_of(p, "jit_f", "a", "b")
        rows = [r for r in xlamem.bill(dump).to_pylist() if r["account"] == "device_total"]
        lines: dict[str, int] = {}
        for r in rows:
            key = "/".join(filter(None, (r["line"], r["part"])))
            lines[key] = lines.get(key, 0) + r["bytes"]
        assert (e.bill, e.device_total) == (lines, sum(r["bytes"] for r in rows))
        assert bill_lines(p) == lines
        assert (e.name, e.program_fp, e.interface_fp, e.test) == ("jit_f", "a", "b", None)
        assert e.platform == dump.platform
        flags = [(r, r["is_live_out"] and r["parameter_number"] is not None) for r in dump["allocations"].to_pylist()]
        donated = [r for r, is_donated in flags if is_donated]
        assert e.n_donated == len(e.donated) == len(donated)
        assert sum(a.bytes for a in e.donated) == sum(r["size"] for r in donated)
        assert [(-a.bytes, a.name) for a in e.donated] == sorted((-a.bytes, a.name) for a in e.donated)
        assert {(a.name, a.shape) for a in e.donated} <= (e.arguments or frozenset())
        assert list(e.format) == sorted(e.format)
        used = set(e.format)
        assert used == used & set((dump.modules["features"][0].as_py() or "").split(","))
        assert all(name.rpartition("_")[0] in ("peak", "report", "live", "values", "e0", "e1") for name in used)
        order = [(-g.bytes, g.name, g.category) for g in e.groups]
        assert order == sorted(order)
        at_peak = members(p)
        assert sum(g.bytes for g in e.groups) + e.rest == sum(at_peak["bytes"].to_pylist())
        assert sum(g.n for g in e.groups) == at_peak.num_rows or e.rest
        if dump.schedule_length is None:
            assert (e.peak, e.groups) == (None, ())
        else:
            assert e.peak == sum(n for line, n in lines.items() if line.split("/")[0] not in (
                "alignment", "another_step", "packing"))  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_members_are_live_at_the_peak_of_the_device(folder: Path) -> None:
    for source in xlamem.find(folder):
        dump = xlamem.read(source)
        found = members(program(dump)).to_pylist()
        rows = [r for r in xlamem.bill(dump).to_pylist() if r["account"] == "device_total"]
        steps = [r["step"] for r in rows if r["step"] is not None]
        if not steps:
            assert found == []
            continue
        live = xlamem.live_set(dump, steps[0]).to_pylist()
        assert found == [r for r in live if schema.in_device_memory(dump.platform, r["color"])]
        temporary = [r for r in found if r["category"] in ("temp", "temp_in_output")]
        named = [r for r in temporary if r["op_name"] is not None or r["argument"] is not None]
        assert named_bytes(program(dump)) == tuple(sum(r["bytes"] for r in rows) for rows in (named, temporary))


def test_buffers_that_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest groups are kept, and the bytes of the others."""
    p = program(xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"))
    every = entry_of(p, None, None, None)
    monkeypatch.setattr("xlamem.gate.entry.MAX_GROUPS", 3)
    few = entry_of(p, None, None, None)
    assert (every.rest, len(few.groups)) == (0, 3)
    assert few.rest == sum(g.bytes for g in every.groups) - sum(g.bytes for g in few.groups) > 0


@pytest.mark.parametrize(
    ("name", "instruction", "opcode", "wanted"),
    [
        ("a/b", "add.1", "add", "a/b"), (None, "add.3.1", "add", "add"), (None, "fusion2", "fusion", "fusion"),
        (None, "x.clone", "add", "x.clone"), ("", "12.3", "add", "add"), (None, None, None, "unnamed"),
    ],
)  # fmt: skip
def test_names_of_groups(name: str | None, instruction: str | None, opcode: str | None, wanted: str) -> None:
    row = {"name": name, "instruction": instruction, "opcode": opcode, "category": "temp", "bytes": 5, "n": 2,
           "shape": "f32[2]{0:T(8)}", "source_file": "m.py", "source_line": 3}  # fmt: skip
    assert _group(row) == Group(wanted, "temp", 5, 2, "f32[2]", "m.py", 3)


def test_temporaries_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the model, or of an argument, also of the first one."""
    columns = {
        "category": ["temp", "temp", "temp", "temp_in_output", "parameter", "temp"],
        "op_name": ["a", None, None, "b", None, "c"], "argument": [None, 0, None, None, 3, 4],
        "bytes": [1, 2, 4, 8, 16, 32],
    }  # fmt: skip
    monkeypatch.setattr("xlamem.gate.entry.members", lambda _: pa.table(columns))
    p: Any = None
    assert named_bytes(p) == (43, 47)


@pytest.mark.parametrize("folder", [FOLDERS[3], FOLDERS[1], FOLDERS[2]], ids=lambda folder: folder.name)
def test_a_dump_shows_its_largest_buffers(folder: Path) -> None:
    """Those of the main memory at its peak."""
    dump = read_program(xlamem.find(folder)[0])
    space = main_peak(dump)
    assert space["memory_space"] == xlamem.peak(dump).spaces["memory_space"][0].as_py()
    wanted = xlamem.live_set(dump, space=space["memory_space"]).to_pylist()[:10]
    (grid,) = programs._largest_buffers(dump)
    table = grid.table  # type: ignore[attr-defined]
    names = ("bytes", "kind", "op_name", "instruction", "shape")
    assert table.select(names).to_pylist() == [{name: row[name] for name in names} for row in wanted]
    lines = [f"{r['source_file'].rpartition('/')[2]}:{r['source_line']}" if r["source_file"] else None for r in wanted]
    assert table["line"].to_pylist() == lines
    assert program_name(dump) == dump.source.module_name != dump.name


@pytest.mark.parametrize(
    ("names", "main"), [(["smem", "hbm", "vmem"], "hbm"), (["hbm", "smem"], "hbm"), (["vmem"], "vmem"), ([], None)]
)
def test_the_peak_of_the_main_memory(names: list[str], main: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is in the table."""
    spaces = pa.table({"memory_space": pa.array(names, pa.string()), "peak": pa.array(range(len(names)), pa.int64())})
    monkeypatch.setattr(programs, "peak", lambda _: SimpleNamespace(spaces=spaces))
    none: Any = None
    assert main_peak(none) == {"memory_space": main, "peak": names.index(main) if main else None}


def test_a_dump_shows_the_buffers_of_its_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those of the memory that comes first."""
    spaces = pa.table({"memory_space": ["smem", "hbm"], "peak": [9, 5]})
    asked: list[Any] = []
    monkeypatch.setattr(programs, "peak", lambda _: SimpleNamespace(spaces=spaces))
    none_live = schema.COMPUTED["live_set"].empty
    monkeypatch.setattr(programs, "live_set", lambda _, **options: asked.append(options) or none_live)
    none: Any = None
    assert programs._largest_buffers(none) == []
    assert asked == [{"space": "hbm"}]


def test_a_dump_without_peaks_shows_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = read_program(xlamem.find(FOLDERS[3])[0])
    text = repr(xlamem.read(FOLDERS[3]))

    def fail(*_: Any, **__: Any) -> None:
        raise UsageError("no")

    with monkeypatch.context() as patch:
        patch.setattr(programs, "live_set", fail)
        assert programs._largest_buffers(dump) == []
    monkeypatch.setattr(programs, "peak", fail)
    assert repr(dump) == text


def test_lines_of_a_bill() -> None:
    lines = {"packing": 1, "parameters/data": 2, "parameters/padding": 4, "temporaries/padding": 8, "alignment": 16}
    assert [sum_of_lines(lines, **k) for k in ({"part": "padding"}, {"line": "parameters"}, {"line": "packing"})] == [
        12, 6, 1,
    ]  # fmt: skip
    assert sum_of_lines(lines, line="parameters", part="padding") == 4
    assert sum_of_lines(lines) == 31
    for steps, peak in ((None, None), (0, 14), (5, 14)):
        p: Any = SimpleNamespace(steps=steps)
        assert peak_of(p, lines) == peak


def test_groups_with_one_name() -> None:
    """Those of one category are joined; the largest one stands for them, of equal ones the first."""
    a = Group("layer_0/dot", "temp", 5, 2, "f32[2]", "a.py", 1)
    b, c = Group("layer_1/dot", "temp", 5, 3, "f32[3]", "b.py", 2), Group("layer_2/dot", "temp", 6, 1, "f32[4]")
    d = Group("layer_1/dot", "parameter", 7)
    assert by_key([a, b, d]) == {
        ("layer_*/dot", "temp"): Group("layer_*/dot", "temp", 10, 5, "f32[2]", "a.py", 1),
        ("layer_*/dot", "parameter"): d,
    }
    assert by_key([a, c])["layer_*/dot", "temp"] == Group("layer_*/dot", "temp", 11, 3, "f32[4]")
    assert by_key([a, Group("layer_0/dot", "temp", 1)])["layer_*/dot", "temp"].name == "layer_0/dot"
    assert by_key([]) == {}


# -- findings ------------------------------------------------------------------------------------


def test_doubts_of_a_program() -> None:
    described: Any = None
    checked = Checked(0, described, entry())
    assert checked.doubt == ""
    checked.entry = entry(peak=None)
    assert checked.doubt == "has no live ranges, so its peak is not known"
    checked.problem = "is truncated"
    assert checked.doubt == "is truncated"
    assert Checked(0, described).doubt == ""
    assert amount(MIB) == "1.00\N{NO-BREAK SPACE}MiB"


@pytest.mark.parametrize(
    ("value", "limit", "text", "whole", "status", "message"),
    [
        (5, 5, None, None, "passed", "5 B must fit; at most 5 B"),
        (6, 5, None, None, "failed", "6 B must fit, 1 B more than the limit of 5 B"),
        (6, 5, "5 bytes", None, "failed", "6 B must fit, 1 B more than the limit of 5 B"),
        (6, 5, "10 %", 50, "failed", "6 B must fit, 12.0 % of what must fit, 1 B more than the limit of 10 % (5 B)"),
        (4, 5, "10 %", 50, "passed", "4 B must fit, 8.0 % of what must fit; at most 10 % (5 B)"),
        (0, 0, None, 0, "passed", None),
    ],
)
def test_a_limit_in_words(
    value: int, limit: int, text: str | None, whole: int | None, status: str, message: str | None
) -> None:
    found = rules._limited("rule", "device_total", value, limit, text, whole)
    assert found == Finding("rule", status, message or found.message, "device_total", value, limit, limit_text=text)


def test_findings_of_a_budget() -> None:
    """One for each limit, with the number of the budget."""
    p: Any = None
    e = entry(bill={"parameters/padding": 3, "temporaries/padding": 4, "packing": 9})
    budget = Budget(number=4, device_total=999, peak=900, padding=Amount("1 %", share=Fraction(1, 100)),
                    packing=Amount("9 bytes", bytes=9))  # fmt: skip
    found = [*rules.budget_findings(p, e, budget)]
    assert [(f.rule, f.status, f.number, f.value, f.limit, f.limit_text, f.budget) for f in found] == [
        ("device_total", "failed", "device_total", 1000, 999, None, 4),
        ("peak", "passed", "peak", 900, 900, None, 4),
        ("padding", "passed", "padding", 7, 10, "1 %", 4),
        ("packing", "passed", "packing", 9, 9, "9 bytes", 4),
    ]
    assert [f.rule for f in rules.certain_failures(p, 1000, budget)] == ["device_total"]
    assert [*rules.certain_failures(p, 999, budget)] == []
    (peak,) = rules.budget_findings(p, entry(peak=None), Budget(peak=7))
    assert peak == Finding("peak", "not known", "the dump has no live ranges", "peak", None, 7, budget=1)


@pytest.mark.parametrize(("value", "status"), [(8, "not known"), (9, "not known"), (10, "failed")])
def test_a_line_of_the_bill_without_live_ranges(value: int, status: str) -> None:
    """Temporaries may have more of it: only that the limit is exceeded is certain."""
    p: Any = None
    (found,) = rules.budget_findings(p, entry(peak=None, bill={"packing": value}), Budget(packing=Amount("9", bytes=9)))
    assert (found.rule, found.status, found.limit) == ("packing", status, 9)


@pytest.mark.parametrize(
    ("fits", "status", "message"),
    [
        (True, "passed", "5 B must fit into 4 B of v5e"),
        (False, "failed", "5 B must fit, 1 B more than 4 B of v5e"),
        (None, "not known", "not known whether it fits: because"),
    ],
)
def test_a_device_in_words(fits: bool | None, status: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    result = SimpleNamespace(available=4, fits=fits, reason="because")
    monkeypatch.setattr(rules, "fits", lambda _, **options: asked.update(options) or result)
    p: Any = SimpleNamespace(tables=None)
    budget = Budget(device="v5e", resident=3, fraction=0.5)
    (found,) = rules.budget_findings(p, entry(device_total=5), budget)
    assert found == Finding("fits", status, message, "device_total", 5, 4, budget=1)
    assert asked == {"device": "v5e", "resident": 3, "fraction": 0.5}
    assert [f.rule for f in rules.certain_failures(p, 5, budget)] == (["fits"] if status == "failed" else [])


def undonated(n: int, *, lines: tuple[int, ...] = ()) -> list[rules._Undonated]:
    return [rules._Undonated(f"w{i}", 10 - i, "m.py" if i in lines else None, i) for i in range(n)]


@pytest.mark.parametrize(
    ("found", "message", "source"),
    [
        (undonated(1), "1 argument of 10 B could be donated and is not: w0", (None, None)),
        (undonated(3, lines=(1, 2)), "3 arguments of 27 B could be donated and are not: w0, w1, w2", ("m.py", 1)),
        (undonated(4, lines=(0,)), "4 arguments of 34 B could be donated and are not: w0, w1, w2, …", ("m.py", 0)),
    ],
)
def test_donations_in_words(
    found: list[rules._Undonated], message: str, source: tuple[str | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "_undonated", lambda _: found)
    for steps in (None, 5):
        p: Any = SimpleNamespace(steps=steps)
        (f,) = rules.budget_findings(p, entry(), Budget(donation="required"))
        total = sum(a.bytes for a in found)
        assert f == Finding("donation", "failed", message, "donation", total, 0, None, None, 1, *source)
    monkeypatch.setattr(rules, "_undonated", lambda _: [])
    p = SimpleNamespace(steps=5)
    (f,) = rules.budget_findings(p, entry(), Budget(donation="required"))
    assert (f.status, f.value, f.limit) == ("passed", 0, 0)


def test_arguments_that_could_be_donated(make: Callable[..., Path]) -> None:
    """The largest first, then by name; with the line of the output that would share their memory."""
    allocations, records, ranges, shapes = "", [], [], []
    for i, (name, n) in enumerate((("z", 512), ("a", 512), ("big", 1024), ("scalar", 1), ("other", 2048))):
        shape, size = f"f32[{n}]", 4 * n
        allocations += f"allocation {2 * i}: size {size}, parameter {i}, shape |{shape}| at ShapeIndex {{}}:\n"
        allocations += value(2 * i, f"p{i}", size, 0, shape)
        records.append(record(2 * i, f"p{i}", f'{shape} parameter({i}), metadata={{op_name="{name}"}}'))
        ranges.append(f"p{i}{{}}:0-10")
        if name != "other":
            allocations += f"allocation {2 * i + 1}: size {size}, maybe-live-out:\n"
            allocations += value(2 * i + 1, f"o{i}", size, 0, shape)
            line = f'metadata={{op_name="o" source_file="/u/m{i}.py" source_line={i + 7}}}'
            records.append(record(2 * i + 1, f"o{i}", f"{shape} negate(%p{i}), {line}", f"  o{i}\n  s.9 {{{i}}}"))
            ranges.append(f"o{i}{{}}:{i + 2}-10")
            shapes.append(shape)
    text = f"({', '.join(shapes)})"
    allocations += f"allocation 20: size 32, output shape is |{text}|, maybe-live-out:\n"
    allocations += value(20, "s.9{}", 32, 0, text)
    records.append(record(20, "s.9{}", f"{text} tuple(%o0, %o1, %o2, %o3)", "  s.9 {}"))
    ranges.append("s.9{}:9-10")
    members = attacks.dump([], allocations=allocations, records=records, ranges=ranges, steps=10)
    found = rules._undonated(program(xlamem.read(make(members))))
    assert [(a.name, a.bytes) for a in found] == [("big", 4096), ("a", 2048), ("z", 2048)]
    assert [(a.source_file, a.source_line) for a in found] == [("/u/m2.py", 9), ("/u/m1.py", 8), ("/u/m0.py", 7)]


@pytest.mark.parametrize(
    ("share", "text"), [(Fraction(1, 2), "50 %"), (Fraction(995, 1000), "99.5 %"), (Fraction(0), "0 %")]
)
def test_names_in_words(share: Fraction, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "named_bytes", lambda _: (3 * MIB, 5 * MIB))
    p: Any = None
    (f,) = rules.budget_findings(p, entry(), Budget(named=share))
    message = f"2.00 MiB of the 5.00 MiB of temporaries at the peak have no name; at least {text} must have one"
    least = -(-share.numerator * 5 * MIB // share.denominator)
    assert f == Finding("named", f.status, message, "named", 3 * MIB, least, None, text, 1)
    (f,) = rules.budget_findings(p, entry(peak=None), Budget(named=share))
    assert f == Finding("named", "not known", "the dump has no live ranges", "named", limit_text=text, budget=1)


# -- curves and stacks ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 39, 40, 41, 95])
def test_curves_of_any_length(steps: int, make: Callable[..., Path]) -> None:
    """The most bytes in use in each part of the schedule; of several memory spaces together."""
    spans = [(i, min(steps - 1, i + 3 * (i % 3))) for i in range(0, steps, 2)]
    values = [value(i, f"v{i}", 8 * (i + 1), 800 * i, f"f32[{2 * (i + 1)}]") for i in range(len(spans))]
    ranges = [f"v{i}{{}}:{a}-{b}" for i, (a, b) in enumerate(spans)]
    members = attacks.dump(values, ranges=ranges, size=800 * len(spans), steps=steps)
    p = program(xlamem.read(make(members)))
    usage = np.zeros(p.steps or 0, int)
    for i, (a, b) in enumerate(spans):
        usage[a : b + 1] += 8 * (i + 1)
    starts = [i * len(usage) // N_COLUMNS for i in range(N_COLUMNS + 1)]
    wanted = [max(usage[a : max(b, a + 1)]) for a, b in pairwise(starts)]
    assert list(usage_curve(p)) == wanted


def test_curves_of_several_memory_spaces(make: Callable[..., Path]) -> None:
    """Those of device_total together."""
    allocations = f"allocation 0: size 8, page 0, preallocated-temp:\n{value(0, 'a', 8, 0)}"
    allocations += f"allocation 1: size 32, page 1, preallocated-temp:\n{value(1, 'b', 32, 0, 'f32[8]')}"
    members = attacks.dump([], allocations=allocations, ranges=["a{}:0-2", "b{}:2-3"])
    curve = usage_curve(program(xlamem.read(make(members))))
    assert {*curve} == {8, 40, 32, 0}
    assert max(curve) == 40


def frames(*rows: tuple[int, int | None, str | None, int]) -> Any:
    columns = zip(*rows, strict=True) if rows else [()] * 4
    names = {"id": pa.int64(), "parent": pa.int64(), "file": pa.string(), "line": pa.int64()}
    return pa.table({n: pa.array(list(c), t) for (n, t), c in zip(names.items(), columns, strict=True)})


@pytest.mark.parametrize(
    ("table", "ids", "line", "stack"),
    [
        (frames((1, None, "m.py", 3)), [1], 3, [("m.py", 3)]),
        (frames((7, None, "main.py", 9), (1, 7, "m.py", 3)), [1], 3, [("m.py", 3), ("main.py", 9)]),
        (frames((1, None, "m.py", 3), (2, None, "m.py", 4)), [2, 1], 3, [("m.py", 3)]),
        (
            frames((1, 3, "m.py", 3), (2, 4, "m.py", 3), (3, None, "a", 1), (4, None, "b", 2)),
            [2, 1], 3, [("m.py", 3), ("b", 2)],
        ),
        (frames((1, 2, "m.py", 3), (2, 1, "n.py", 4)), [1], 3, [("m.py", 3), ("n.py", 4)]),
        (frames((1, 2, "m.py", 3), (2, 3, None, 4), (3, None, "n.py", 5)), [1], 3, [("m.py", 3), ("n.py", 5)]),
        (frames((1, None, "m.py", 3)), [5], 3, [("m.py", 3)]),
        (frames((1, 2, "m.py", 4), (2, None, "n.py", 5)), [1], 3, [("m.py", 3)]),
        (frames(), [1], 3, [("m.py", 3)]),
    ],
)  # fmt: skip
def test_stacks(table: Any, ids: list[int], line: int, stack: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first instruction with the line; a damaged table may have a cycle."""
    monkeypatch.setattr(stacks, "_frame_ids", lambda *_: np.array(ids))
    p: Any = SimpleNamespace(optional=lambda _: table)
    assert stacks.stack_of(p, ("m.py", line)) == tuple(stack)


def test_a_line_that_calls_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stack begins in the library, whatever the row of its caller is."""
    library = "/venv/lib/python3.12/site-packages/flax/linen.py"
    for rows in (((5, None, "m.py", 3), (1, 5, library, 9)), ((1, 5, library, 9), (5, None, "m.py", 3))):
        monkeypatch.setattr(stacks, "_frame_ids", lambda *_: np.array([1]))
        p: Any = SimpleNamespace(optional=lambda _, rows=rows: frames(*rows))
        assert stacks.stack_of(p, ("m.py", 3)) == ((library, 9), ("m.py", 3))


def test_frames_of_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the instructions that name the buffers, the largest first."""
    columns = {
        "source_file": ["m.py", "m.py", "n.py", "m.py"], "source_line": [3, 4, 3, 3],
        "origin_instruction": [None, "a", "a", "b"], "instruction": ["c", "c", "c", "a"],
    }  # fmt: skip
    monkeypatch.setattr(stacks, "members", lambda _: pa.table(columns))
    names: list[Any] = []
    p: Any = SimpleNamespace(
        row_of_instruction=lambda found: names.extend(found.to_pylist()) or np.array([2, 0]),
        tables={"instructions": pa.table({"stack_frame_id": [7, 8, 9]})},
    )
    assert (stacks._frame_ids(p, ("m.py", 3)).tolist(), names) == ([9, 7], ["c", "b"])


def test_names_of_programs_without_a_module() -> None:
    names = (("jit_f", "/a/b.txt"), (None, "/a/b.txt"), (None, "b.txt"), (None, None))
    assert [name_of({"module_name": m, "uri": u}) for m, u in names] == ["jit_f", "b.txt", "b.txt", "?"]
