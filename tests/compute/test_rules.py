"""Single functions on small inputs: ties, limits, nulls, and wording."""

from __future__ import annotations

import importlib
import itertools
import random
import re
from collections.abc import Callable
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
from xlamem import compute, schema
from xlamem.compute import bill_wording, buffer_names, inferred, wording
from xlamem.compute.advice.intervention import Intervention
from xlamem.compute.advice.plan import Plan, _chosen, _limited, _ranked
from xlamem.compute.advice.what_if import Change, WhatIf
from xlamem.compute.aliasing import PARTITIONED, _forms, _pair, _ranks
from xlamem.compute.buffer_names import _contents, _contents_of
from xlamem.compute.callers import callers_outside, lines_of_model
from xlamem.compute.capacity import Fits, _doubt, _doubtful_header
from xlamem.compute.columns import is_in, match_dictionaries, take, texts_of
from xlamem.compute.devices import Device
from xlamem.compute.inferred import inferred_analysis
from xlamem.compute.inspection import CROSS_CHECKS, Inspection, _possible_checks
from xlamem.compute.op_names import PHASES, first_numbers, second_numbers
from xlamem.compute.overview import main_memory_first, space_name
from xlamem.compute.peaks import plateaus_of
from xlamem.compute.program import program
from xlamem.compute.selection import largest_program, select_space
from xlamem.compute.uses import use_steps
from xlamem.compute.xla_peak import max_overlap

Make = Callable[..., Path]
SOURCE = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")[0]


# -- source lines


@pytest.mark.parametrize("depth", [0, 1, 2, 3, 7, 40])
def test_callers_are_searched_to_the_end(depth: int) -> None:
    """The frames are in any order; those without a parent, or with one that is missing, have no caller."""
    n = depth + 2
    for order in (list(range(n)), list(range(n))[::-1], random.Random(depth).sample(range(n), n)):
        files = ["/m/a.py", *["/v/site-packages/b.py"] * depth, "/m/c.py"]
        parents = [None, *range(n - 1)]
        frames = pa.table({
            "id": pa.array([10 + i for i in order], pa.int64()),
            "parent": pa.array([None if parents[i] is None else 10 + parents[i] for i in order], pa.int64()),  # type: ignore[operator]
            "file": [files[i] for i in order],
        })  # fmt: skip
        wanted = [order.index(n - 1) if i == n - 1 else order.index(0) for i in order]
        assert callers_outside(frames).tolist() == wanted
    files = ["/v/site-packages/b.py", None]
    library = pa.table({"id": [1, 2], "parent": pa.array([None, 9], pa.int64()), "file": files})
    assert callers_outside(library).tolist() == [-1, -1]


def test_lines_without_a_caller_stay() -> None:
    lib = "/v/site-packages/b.py"
    parents, line = pa.array([None, 1], pa.int64()), pa.array([1, 2, 3, None, 5], pa.int64())
    frames = pa.table({"id": [1, 2], "parent": parents, "file": ["/m/a.py", lib], "line": [7, 8]})
    lines = {"source_file": pa.array([lib, lib, "/m/x.py", None, lib]), "source_line": line}
    found = lines_of_model(lines, np.array([2, -1, 2, 2, 1]), frames)
    assert found["source_file"].to_pylist() == ["/m/a.py", lib, "/m/x.py", None, "/m/a.py"]
    assert found["source_line"].to_pylist() == [7, 2, 3, None, 7]


# -- columns


def test_rows_that_do_not_exist() -> None:
    values = np.array([5, 6, 7])
    assert take(values, np.array([0, -1, 2, -3])).tolist() == [5, -1, 7, -1]
    assert take(values > 5, np.array([0, -1, 2])).tolist() == [0, -1, 1]
    assert take(values[:0], np.array([0, -1])).tolist() == [-1, -1]
    column = pa.chunked_array([pa.array(["a", "b", None, "c", "a"])]).dictionary_encode()
    codes = np.array([0, 1, -1, 2, 0]), pa.array(["a", "b", "c"])
    for rows in ([], [0], [1], [2], [3, 1], [4, -1, 0, 1, 3, 2]):
        wanted = [None if r < 0 else ["a", "b", None, "c", "a"][r] for r in rows]
        assert texts_of(codes, np.array(rows, np.int64)).to_pylist() == wanted
    assert is_in(column, ["a", "x"]).tolist() == [True, False, False, False, True]


def test_dictionaries_with_a_common_beginning() -> None:
    chance = random.Random(2)
    for _ in range(50):
        words = chance.sample("abcdefg", 7)
        ours, theirs = words[: chance.randrange(8)], words[: chance.randrange(8)]
        if chance.random() < 0.5:
            chance.shuffle(theirs)
        found = match_dictionaries(pa.array(ours, pa.string()), pa.array(theirs, pa.string()))
        assert found.tolist() == [theirs.index(word) if word in theirs else -1 for word in ours]


def test_numbers_of_indices() -> None:
    indices = pa.chunked_array([pa.array(["{}", "{3}", "{12,7}", "{1,10,2}", None])])
    assert first_numbers(indices).tolist() == [-1, 3, 12, 1, -1]
    assert second_numbers(indices).tolist() == [-1, -1, 7, 10, -1]


def test_contents_by_phase() -> None:
    """A loop of one iteration keeps a residual as well; the optimizer keeps none."""
    phases = np.array([*range(len(PHASES)), -1])
    kinds = [compute.buffer_names.KINDS[k] if k >= 0 else None for k in _contents(phases, np.full(5, -1)).tolist()]
    assert dict(zip((*PHASES, None), kinds, strict=True)) == {
        "forward": "activation", "backward": "gradient", "recompute": "activation", "optimizer": None, None: None
    }  # fmt: skip
    stacked = [compute.buffer_names.KINDS[k] if k >= 0 else None for k in _contents(phases, np.full(5, 1)).tolist()]
    assert stacked == ["residual of a scan", "gradient", "residual of a scan", None, None]


def test_contents_of_copies_of_arguments() -> None:
    """They have none, unless a loop stacks them."""
    p: Any = SimpleNamespace(once=lambda *_: SimpleNamespace(argument=np.array([0, 3, -1, -1, 2, 2])))
    forward = np.full(6, PHASES.index("forward"))
    kinds = _contents_of(p, np.arange(6), forward, np.array([-1, 6, -1, 6, 1, 0])).tolist()
    found = [compute.buffer_names.KINDS[k] if k >= 0 else None for k in kinds]
    stacked = "residual of a scan"
    assert found == [None, stacked, "activation", stacked, stacked, None]


# -- peaks


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_first_step_with_the_most_bytes(delay: int) -> None:
    chance = random.Random(delay)
    for _ in range(300):
        ranges = [(a, a + chance.randrange(4)) for a in (chance.randrange(6) for _ in range(chance.randrange(5)))]
        weights = [chance.randrange(4) for _ in ranges]
        starts = sorted({a for a, _ in ranges})
        levels = {t: sum(w for (a, b), w in zip(ranges, weights, strict=True) if a <= t <= b + delay) for t in starts}
        most = max(levels.values(), default=0)
        step = next((t for t in starts if levels[t] == most), 0) if most else 0
        start, end = (np.array([r[i] for r in ranges], np.int64) for i in range(2))
        assert max_overlap(start, end, np.array(weights, np.int64), delay) == (step, most)


@pytest.mark.parametrize("features", [None, "", "peak_a", "a,peak_a"])
def test_the_rule_of_a_program_without_features(features: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of an older version has none. Only a peak list without shape indices counts whole instructions."""
    xla_peak = importlib.import_module("xlamem.compute.xla_peak")
    p = program(xlamem.read(SOURCE))
    at = p.tables["modules"].schema.get_field_index("features")
    modules = p.tables["modules"].set_column(at, "features", pa.array([features], pa.string()))
    tables: Any = SimpleNamespace(name="x")
    known = SimpleNamespace(
        tables={"modules": modules}, steps=9, ranges=(np.array([0, 2]), np.array([3, 4])), unpadded=np.array([5, 6])
    )
    monkeypatch.setattr(xla_peak, "program", lambda dump: known)
    monkeypatch.setattr(xla_peak, "_instruction_bytes", lambda p: np.array([50, 60]))
    assert xla_peak.xla_rule(tables) == (2, 110 if features and "peak_a" in features else 11)


@pytest.mark.parametrize("features", [None, "", "peak_a", "a,peak_a"])
def test_why_the_peaks_of_xla_differ(features: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    explanation = importlib.import_module("xlamem.compute.explanation")
    monkeypatch.setattr(explanation, "xla_rule", lambda tables: None)
    monkeypatch.setattr(explanation, "xla_causes", lambda p, group, peak, step: [(f"of {step[0]}", peak)])
    added: list[Any] = []
    rows: Any = SimpleNamespace(add=lambda *values, **more: added.append((*values, more)))
    module = {"printed_peak_bytes": 7, "printed_peak_time": 3, "features": features}
    peaks = SimpleNamespace(bytes=np.array([5]))
    known: Any = SimpleNamespace(module=module, p=SimpleNamespace(tables=None), group=None, peaks=peaks, peak=5)
    explanation._add_xla_peaks(rows, known)
    rest = explanation.POINTERS if features and "peak_a" in features else explanation.DISAGREE
    assert added == [
        ("xla_rule", 0, 5, {"of 0": 5}, {"rest": rest, "time": 0}),
        ("xla_printed", 7, 5, {"of 3": 5}, {"rest": rest, "time": 3}),
    ]
    for unknown in ({"module": {**module, "printed_peak_bytes": None}}, {"peaks": None}):
        added.clear()
        explanation._add_xla_peaks(rows, SimpleNamespace(**{**vars(known), **unknown}))
        assert not added


def test_plateaus() -> None:
    """Runs with lower neighbours, the highest first, at the ends too."""
    for values in itertools.product(range(3), repeat=5):
        runs = [(k, [i for i, _ in g]) for k, g in itertools.groupby(enumerate(values), lambda p: p[1])]
        tops = [
            (-level, run[0], run[-1])
            for level, run in runs
            if (run[0] == 0 or values[run[0] - 1] < level) and (run[-1] == 4 or values[run[-1] + 1] < level)
        ]
        first, last = plateaus_of(np.array(values))
        assert list(zip(first.tolist(), last.tolist(), strict=True)) == [(a, b) for _, a, b in sorted(tops)]


def test_live_sets_are_sorted(make: Make) -> None:
    """By size, then by allocation, then by id."""
    sizes, numbers = (64, 128, 64, 128), (9, 2, 5, 1)
    allocations = "".join(
        f"allocation {n}: size {size}, maybe-live-out:\n{value(i, f'v.{i}', size)}"
        for i, (n, size) in enumerate(zip(numbers, sizes, strict=True))
    )
    members = attacks.dump([], allocations=allocations, ranges=[f"v.{i}{{}}:0-4" for i in range(4)])
    rows = compute.live_set(xlamem.read(make(members)), 1).to_pylist()
    assert [r["allocation"] for r in rows] == [1, 2, 5, 9]


@pytest.mark.parametrize(("time", "n"), [(-1, None), (0, 1), (6, 1), (7, None)])
def test_steps_are_those_of_the_schedule(time: int, n: int | None, make: Make) -> None:
    """The last one is the state after the last instruction."""
    dump = xlamem.read(make(attacks.dump([value(0, "v", 64)], size=64, steps=6, ranges=["v{}:0-6"]), "cpu_after_opt"))
    if n is not None:
        assert compute.live_set(dump, time).num_rows == n
        return
    with pytest.raises(xlamem.UsageError, match=rf"there is no step {time}: the steps of .* are 0 to 6$"):
        compute.live_set(dump, time)


def test_only_the_names_that_keys_need_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers, kinds and origins of buffers take more time than all the rest of a live set."""
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    wanted = {key: compute.attribution(dump, key) for key in ("scope", "source", "category", "layer", "kind")}
    for name in ("_layers", "_kinds", "take_text"):
        monkeypatch.setattr(buffer_names, name, None)
    for key in ("scope", "source", "category"):
        assert compute.attribution(dump, key).equals(wanted[key])
    assert compute.scopes_in_use(dump)["bytes"].to_pylist()
    for key in ("layer", "kind"):
        with pytest.raises(TypeError, match="not callable"):
            compute.attribution(dump, key)


def test_the_first_write_of_an_output_without_all_live_ranges(make: Make) -> None:
    """A value without a live range does not tell when its allocation is written."""
    shape = "f32[16]{0}"
    allocations = (
        f"allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {{}}:\n{value(0, 'p', 64, shape=shape)}"
        f"allocation 1: size 64, maybe-live-out:\n{value(1, 'o', 64, shape=shape)}{value(2, 'x', 64, shape=shape)}"
    )
    records = [
        record(0, "p", f"{shape} parameter(0)", uses="  s.1, operand 0"),
        record(1, "o", f"{shape} add(%p, %p)"), record(2, "x", f"{shape} add(%p, %p)"),
    ]  # fmt: skip
    for first, is_free in ((3, True), (1, True), (0, False)):
        members = attacks.dump([], allocations=allocations, records=records, ranges=["p{}:0-4", f"o{{}}:{first}-4"])
        (row,) = compute.donation(xlamem.read(make(members))).to_pylist()
        assert (row["candidate"], row["last_use"], row["free_in_schedule"]) == (True, 1, is_free)


def test_a_donation_without_used_values(make: Make) -> None:
    """When the argument is read last is not known, nor whether that is before the output is written."""
    shape = "f32[16]{0}"
    allocations = (
        f"allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {{}}:\n{value(0, 'p', 64, shape=shape)}"
        f"allocation 1: size 64, maybe-live-out:\n{value(1, 'o', 64, shape=shape)}"
    )
    members = attacks.dump([], allocations=allocations, ranges=["p{}:0-4", "o{}:3-4"])
    (row,) = compute.donation(xlamem.read(make(members))).to_pylist()
    assert (row["candidate"], row["last_use"], row["free_in_schedule"]) == (True, None, None)


# -- matching


def test_pairs_of_equal_keys() -> None:
    chance = random.Random(4)
    for _ in range(100):
        left, right = ([chance.randrange(3) for _ in range(chance.randrange(6))] for _ in range(2))
        places = {k: [i for i, key in enumerate(right) if key == k] for k in range(3)}
        wanted = [places[key].pop(0) if places[key] else -1 for key in left]
        found = _pair(*(np.array(side, np.int64).reshape(-1, 1) for side in (left, right)))
        assert found.tolist() == wanted


def test_ranks_and_forms() -> None:
    indices = pa.array(["{10}", "{2}", "{}", None, "{2,1}", "{2}"])
    assert _ranks(indices).tolist() == [3, 1, 0, -1, 2, 1]
    shapes = ["f32[2,3]{1,0}", "f32[2,3]{0,1}", "s8[6]", "(f32[6])", None, "f32[]", f"f32[{10**25}]", "f32[<=2,3]"]
    form, elements = _forms(pa.array(shapes).dictionary_encode())
    assert elements.tolist() == [6, 6, 6, -1, -1, 1, -1, 6]
    assert form[-1] not in form[:-1].tolist(), "an array of at most two rows"
    assert (form[0] == form[1], form[0] == form[2], form[3], form[4]) == (True, False, -1, -1)


@pytest.mark.parametrize(
    ("sharding", "is_partitioned"),
    [("{devices=[4,1]<=[4]}", True), ("{mesh['x'=4], [{}]}", True), ("{mesh['x'=16], [{}]}", True),
     ("{mesh['x'=1], [{}]}", False), ("{replicated}", False)],
)  # fmt: skip
def test_shardings_of_several_devices(sharding: str, is_partitioned: bool) -> None:
    assert bool(re.search(PARTITIONED["sharding"], sharding)) is is_partitioned


# -- which program, which space


def test_the_first_of_programs_of_one_size() -> None:
    copies = [SOURCE, xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-scan_while")[0]]
    largest, errors = largest_program(copies)
    assert largest is copies[0]
    assert errors == []
    assert largest_program([]) == (None, [])


def test_spaces_are_named_or_numbered() -> None:
    rows = [{"memory_space": name, "color": color} for name, color in (("hbm", 0), ("vmem", 1), ("hbm", 7))]
    assert select_space(rows, None) == rows
    assert select_space(rows, 0) == rows[:1]
    assert select_space(rows, "hbm") == [rows[0], rows[2]]
    assert select_space(rows, 1) == rows[1:2]
    assert select_space(rows, 5, required=False) == []
    with pytest.raises(xlamem.UsageError, match="no memory space 5; this dump has hbm \\(color 7\\), vmem"):
        select_space(rows, 5)
    with pytest.raises(xlamem.UsageError, match="no memory space 'vmen'; did you mean 'vmem'"):
        select_space(rows, "vmen")


def test_spaces_without_rows() -> None:
    """A space that the dump has may have no rows; one that it does not have is an error."""
    (row,) = rows = compute.peak(SOURCE, k=0).spaces.to_pylist()
    assert compute.rows_of_space(SOURCE, rows, None) == compute.rows_of_space(SOURCE, rows, row["color"]) == rows
    assert compute.rows_of_space(SOURCE, [], row["color"]) == []
    with pytest.raises(xlamem.UsageError, match="no memory space 7"):
        compute.rows_of_space(SOURCE, rows, 7)


def test_the_order_of_spaces() -> None:
    """Main memory, then the highest peak, then the most reserved."""
    names = {"hbm": (None, 1), "a": (5, 9), "b": (7, 1), "c": (5, 20), "d": (None, 50)}
    rows = [{"memory_space": n, "peak": peak, "reserved": size, "page": 0} for n, (peak, size) in names.items()]
    for order in (rows, rows[::-1]):
        assert [r["memory_space"] for r in main_memory_first(order)] == ["hbm", "b", "c", "a", "d"]
    assert [space_name(rows[0] | {"page": page}) for page in (0, 1)] == ["hbm", "hbm page 1"]


# -- what is known of a dump


def module(**columns: Any) -> dict[str, Any]:
    plain = {"features": "", "n_allocations": 1, "n_values": 1, "schedule_length": None, "total_bytes": None}
    return {**plain, "complete": True, **columns}


def test_which_checks_are_possible() -> None:
    values = {"value_outside", "ids_descend"}
    live = {"schedule_gap", "steps_differ", "range_outside"}
    matched = {"live_range_missing", "live_range_unmatched"}
    for columns, wanted in (
        ({}, values),
        ({"n_values": 0}, set()),
        ({"total_bytes": 0}, values | {"total_differs"}),
        ({"total_bytes": 0, "n_allocations": 0}, values),
        ({"schedule_length": 0}, values | live | matched),
        ({"schedule_length": 3, "n_values": 0}, live),
        ({"features": "values_split"}, values | {"records_differ"}),
        ({"features": "values_split", "n_values": 0}, set()),
        ({"features": "values_inline"}, values | {"records_differ"}),
        ({"features": "tree"}, values | {"tree_differs"}),
        ({"features": "report_a"}, values | {"report_differs"}),
        ({"features": "report_b"}, values | {"report_differs"}),
    ):
        assert _possible_checks(module(**columns)) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize(("complete", "codes", "fully_read"), [
    (True, [], True), (False, [], False), (True, ["total_differs"], True), (True, ["unknown_line"], False),
    (True, ["total_differs", "unknown_line"], False), (False, ["total_differs"], False),
])  # fmt: skip
def test_what_was_fully_read(complete: bool, codes: list[str], fully_read: bool) -> None:
    rows = [{"code": code} for code in codes]
    checks: Any = dict.fromkeys(CROSS_CHECKS, "passed")
    assert Inspection(SOURCE, module(complete=complete), [], rows, None, checks).fully_read is fully_read


def test_a_printed_total_of_0_bytes() -> None:
    text = b"BufferAssignment:\nallocation 0: size 64, constant:\n\nTotal bytes used: 0 (0B)\n\nUsed values:\n"
    assert compute.inspect(xlamem.read(text)).allocated == 0
    assert compute.inspect(xlamem.read(text.split(b"\nTotal")[0])).allocated == 64


# -- sentences


def diagnostic(code: str, **columns: Any) -> dict[str, Any]:
    plain = {"code": code, "file": "/d/x-live-range.txt", "line": 3, "offset": 0, "severity": "warning"}
    return {**plain, "section": "live ranges", "wanted": "a step", "excerpt": "nonsense", **columns}


def test_sentences_about_problems() -> None:
    source: Any = SimpleNamespace(name="x")
    state = {"complete": True, "understood": True, "consistent": True}
    first, second = diagnostic("unknown_line"), diagnostic("unknown_line", line=9)
    unknown, truncated = state | {"understood": False}, state | {"complete": False}
    (one,) = wording.describe(source, unknown, [first])
    assert one.endswith("…-live-range.txt:3 (byte 0): nonsense")
    (two,) = wording.describe(source, unknown, [diagnostic("tree_differs"), first, second, second])
    assert "…-live-range.txt:3 (byte 0) and 2 more: nonsense" in two
    (no_excerpt,) = wording.describe(source, unknown, [diagnostic("unknown_line", excerpt="")])
    assert no_excerpt.endswith(": a step")
    (cut,) = wording.describe(source, truncated, [diagnostic("truncated", offset=None, line=None)])
    assert cut.endswith("…-live-range.txt: expected a step; the numbers cover only what is present")
    error = diagnostic("total_differs", severity="error", wanted="5")
    (other,) = wording.describe(source, truncated, [first, error])
    assert "expected 5;" in other
    both = wording.describe(source, state | {"complete": False, "consistent": False}, [
        diagnostic("truncated"), diagnostic("tree_differs", file="/d/other.txt")
    ])  # fmt: skip
    assert len(both) == 2
    assert f"other.txt:3 (byte 0): {schema.CODES['tree_differs']}" in both[1]
    assert wording.location(diagnostic("x", file="/d/xy.txt"), source) == "xy.txt:3"
    assert wording.location(diagnostic("x", file=None, line=None), source) == "dump"


@pytest.mark.parametrize(("total", "n_reported", "may_be_cut"), [(8, 0, False), (None, 2, False), (None, 0, True)])
def test_what_shows_that_a_dump_without_live_ranges_is_whole(
    total: int | None, n_reported: int, may_be_cut: bool
) -> None:
    """A printed total, or a memory-usage report, which has some."""
    text = wording.without_live_ranges({"total_bytes": total, "n_printed_report": n_reported})
    assert ("it may have been cut" in text) == may_be_cut


def test_how_many_dumps_have_a_problem() -> None:
    """Those that none has are left out."""
    good = {"complete": True, "understood": True, "consistent": True}
    dumps = [good, good | {"complete": False}, good | {"complete": False, "consistent": False}]
    wanted = [f"2 {schema.PROBLEMS['complete']}", f"1 {schema.PROBLEMS['consistent']}"]
    assert wording.count_problems(dumps) == wanted
    assert wording.count_problems([good]) == []


@pytest.mark.parametrize(("resident", "fraction", "text"), [
    (0, 1.0, "16.00 GiB"), (1 << 30, 1.0, "15.00 GiB = 16.00 GiB minus 1.00 GiB resident"),
    (0, 0.5, "8.00 GiB = 50 % of 16.00 GiB"), (1 << 30, 0.75, "11.00 GiB = 75 % of 16.00 GiB minus 1.00 GiB resident"),
])  # fmt: skip
def test_sentences_about_available_memory(resident: int, fraction: float, text: str) -> None:
    found = compute.fits(SOURCE, capacity="16GiB", resident=resident, fraction=fraction)
    assert wording.available_text(found) == text


@pytest.mark.parametrize(("fits", "sentence"), [
    (Fits(None, "no total is printed", 1, 2, 2), "CANNOT TELL whether it fits: no total is printed"),
    (Fits(True, "", 12 << 30, 16 << 30, 16 << 30), "16.00 GiB: fits, 4.00 GiB to spare, 75.0 % used"),
    (Fits(True, "", 16 << 30, 16 << 30, 16 << 30), "16.00 GiB: fits, 0 B to spare, 100.0 % used"),
    (Fits(False, "", 17 << 30, 16 << 30, 16 << 30), "16.00 GiB: DOES NOT FIT, 1.00 GiB over"),
])  # fmt: skip
def test_sentences_about_a_verdict(fits: Fits, sentence: str) -> None:
    assert wording.verdict_sentence(fits) == sentence


def test_notes_about_the_memory_of_a_device() -> None:
    device = Device("x", (), 16 << 30, "16 GiB per chip", "manual")
    assert wording.memory_note(device) == "16 GiB per chip according to the manual; less is usable"
    device = Device("x", (), 16 << 30, "16 GiB per chip", "manual", 15 << 30, "the driver")
    usable = "usable: 15.00 GiB according to the driver"
    assert wording.memory_note(device) == f"16 GiB per chip according to the manual; {usable}"


def test_accounts_of_a_bill() -> None:
    """Of what must fit first, then of the main memory, and not of a space that is all of it."""

    def row(account: str, space: str | None, size: int, color: int | None = None) -> dict[str, Any]:
        amounts = {"step": 3, "line": "temporaries", "part": "data", "kind": None, "bytes": size}
        return {"account": account, "memory_space": space, "color": color, "page": color and 0, **amounts}

    total, vmem, hbm = row("device_total", None, 9), row("vmem", "vmem", 7, 1), row("hbm", "hbm", 8, 0)
    for rows in itertools.permutations([total, vmem, hbm]):
        assert bill_wording.accounts_of(list(rows)) == [[total], [hbm], [vmem]]
        same = [hbm | {"bytes": 9} if row is hbm else row for row in rows]
        assert bill_wording.accounts_of(same) == [[total], [vmem]]
    other = hbm | {"part": "padding"}
    assert bill_wording.accounts_of([hbm, other, vmem]) == [[hbm, other], [vmem]]


@pytest.mark.parametrize(("columns", "sentence"), [
    ({}, "3 buffers, 2 KiB each in slots of 4 KiB"),
    ({"n": 1}, "3 buffers, 2 KiB in a slot of 4 KiB"),
    ({"buffer_size": 4096}, "3 buffers, 4 KiB each in slots of 4 KiB"),
    ({"buffer_size": 4097}, "3 buffers, 4 KiB each in slots of 8 KiB"),
    ({"buffer_size": None}, "3 buffers, 6 KiB in slots of 12 KiB together"),
    ({"granule": None}, "3 buffers, 6 KiB in slots of 12 KiB together"),
    ({"granule": None, "bytes": 6144}, "3 buffers, 6 KiB together"),
])  # fmt: skip
def test_sentences_about_slots(columns: dict[str, Any], sentence: str) -> None:
    row = {"n": 3, "buffer_size": 2048, "granule": 4096, "buffer_bytes": 6144, "bytes": 12288} | columns
    assert bill_wording.slot_sentence(row, "3 buffers") == sentence


def test_what_is_spare_and_missing() -> None:
    cases = ((10, True, "to spare"), (11, True, "to spare"), (9, False, "missing"), (10, None, "to spare"))
    for available, verdict, word in cases:
        found = Fits(verdict, "because", 10, available, available)
        assert word in repr(found)
        assert bool(found) is (verdict is True)


def test_sizes_in_sentences() -> None:
    sizes = {0: "0 bytes", 1: "1 bytes", 1000: "1000 bytes", 1023: "1023 bytes", 1024: "1 KiB", 1536: "1.50 KiB"}
    for n, text in (*sizes.items(), (1 << 20, "1 MiB")):
        assert bill_wording.short_size(n).replace(",", "") == text


def test_doubts() -> None:
    """Only about the headers of the allocations."""

    def of(code: str, section: str, **columns: Any) -> str:
        return _doubt(diagnostic(code, section=section, **columns))

    assert of("more_diagnostics", "allocations")
    assert of("more_diagnostics", "total")
    assert not any(of("more_diagnostics", section) for section in ("used values", "live ranges", "report", "hlo"))
    assert of("unknown_line", "allocations", excerpt="allocation 3: x")
    assert not of("unknown_line", "allocations", excerpt=" value: <")
    assert of("truncated", "allocations", severity="error")
    assert not of("truncated", "live ranges", severity="error")
    assert of("records_differ", "allocations", severity="error")
    assert not of("records_differ", "allocations")
    assert not of("total_differs", "allocations", severity="error")
    differ = diagnostic("records_differ", section="allocations", severity="error")
    assert _doubtful_header([differ])
    assert _doubtful_header([differ, diagnostic("unknown_line", section="allocations", excerpt=" value")]) == ""
    assert _doubtful_header([diagnostic("unknown_line", section="live ranges"), differ])


# -- advice


@pytest.mark.parametrize(("saved", "is_reached"), [(29, False), (30, True), (31, True)])
def test_a_plan_that_just_reaches_the_budget(saved: int, is_reached: bool) -> None:
    assert Plan(100, 70, saved, 1).is_reached is is_reached


def intervention(lower: int, upper: int, values: tuple[int, ...] = (0,)) -> Any:
    change = Change(-lower, np.zeros(1, np.int64))
    return Intervention("dtype", np.array(values), change, lower, upper, "likely", "x")


def test_what_is_worth_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """One percent of what must fit; those that surely save more come first, and none saves more than there is."""
    bounds = ((-500, 40), (5, 10), (3, 9), (20, 30), (900, 2000))
    rows = [*(intervention(*both) for both in bounds), intervention(9, 60, ())]
    monkeypatch.setattr("xlamem.compute.advice.plan._OF_BUFFERS", (lambda w: iter(rows),))
    monkeypatch.setattr("xlamem.compute.advice.plan._OF_ACTIVATIONS", ())
    monkeypatch.setattr("xlamem.compute.advice.plan.LayerActivations", lambda w: None)
    w: Any = SimpleNamespace(total=1000)
    assert [(i.lower, i.upper) for i in _ranked(w)] == [(900, 1000), (20, 30), (-500, 40), (5, 10)]
    limited = _limited(w, intervention(1500, 2000))
    assert (limited.lower, limited.upper) == (1000, 1000)


def test_which_interventions_a_plan_has() -> None:
    w: Any = SimpleNamespace(p=SimpleNamespace(owner=np.zeros(9)), saved=lambda change: -change.fixed)
    bounds = ((0, 99, (8,)), (5, 9, (1, 2)), (9, 9, (2, 3)), (4, 4, (4,)), (-3, 9, (7,)))
    found = [intervention(*each) for each in bounds]
    for needed, wanted in ((1, [2]), (9, [2]), (10, [2, 3]), (13, [2, 3]), (100, [2, 3]), (0, []), (-5, [])):
        assert _chosen(w, found, needed) == wanted


@pytest.mark.parametrize("seed", range(4))
def test_what_a_change_saves(seed: int) -> None:
    """The peak may move to another step, and is not lower than the highest of the others."""
    chance = random.Random(seed)
    for _ in range(20):
        levels, change = ([chance.randrange(9) for _ in range(4)] for _ in range(2))
        fixed = chance.randrange(-5, 5)
        w: Any = SimpleNamespace(levels=np.array(levels), peak=max(levels))
        after = max(0, *(a - b for a, b in zip(levels, change, strict=True)))
        assert WhatIf.saved(w, Change(fixed, -np.array(change))) == max(levels) - after - fixed


# -- idle values, buffers, padding, packings


def test_idle_values_at_the_limits(make: Make) -> None:
    values = [value(0, "a", 64), value(1, "b", 128, 64), value(2, "c", 8, 192), value(3, "top", 1024, 256)]
    reads = (("a", 6), ("b", 6), ("c", 1))
    records = [record(i, name, uses=f"  s.{step}, operand 0") for i, (name, step) in enumerate(reads)]
    ranges = ["a{}:0-6", "b{}:0-6", "c{}:0-1", "top{}:3-3"]
    dump = xlamem.read(make(attacks.dump(values, size=2048, records=records, ranges=ranges, steps=8)))

    def names(**options: Any) -> list[str]:
        return compute.idle(dump, **options)["instruction"].to_pylist()  # type: ignore[no-any-return]

    assert names() == ["b", "a"]
    assert names(min_bytes=64) == ["b", "a"]
    assert names(min_bytes=65) == ["b"]
    assert names(limit=1) == ["b"]
    assert names(limit=0) == []
    (row, _) = compute.idle(dump).to_pylist()
    assert (row["from_step"], row["to_step"], row["gap"], row["over_peak"]) == (0, 6, 6, True)
    with pytest.raises(xlamem.UsageError, match="limit"):
        compute.idle(dump, limit=-1)


def test_the_first_of_several_longest_gaps(make: Make) -> None:
    """A damaged text may say that a value is read before it is there."""
    records = [record(0, "a", uses="".join(f"  s.{step}, operand 0\n" for step in (0, 4, 7, 10)).rstrip("\n"))]
    members = attacks.dump([value(0, "a", 64)], records=records, ranges=["a{}:4-10"], steps=11)
    (row,) = compute.idle(xlamem.read(make(members))).to_pylist()
    assert (row["from_step"], row["to_step"], row["gap"]) == (4, 7, 3)


def test_idle_over_the_peak_is_strictly_between(make: Make) -> None:
    values = [value(0, "a", 64), value(1, "top", 1024, 256)]
    for step, over in ((0, False), (1, True), (5, True), (6, False)):
        records = [record(0, "a", uses="  s.6, operand 0")]
        ranges = ["a{}:0-6", f"top{{}}:{step}-{step}"]
        members = attacks.dump(values, size=2048, records=records, ranges=ranges, steps=8)
        assert compute.idle(xlamem.read(make(members)))["over_peak"].to_pylist() == [over]


def test_names_of_buffers(make: Make) -> None:
    members = attacks.dump([value(0, "a", 64), value(7, "b", 64, 64)], size=128, ranges=["a{}:0-1", "b{}:0-0"])
    dump = xlamem.read(make(members))
    for name, number in (("a", 0), ("%a", 0), ("a{}", 0), ("b", 7), ("%b", 7), ("7", 7), (7, 7), (0, 0)):
        assert compute.buffer(dump, name).value["value_id"] == number
    for wrong in ("²", "c", "%", 5, -1):
        with pytest.raises(xlamem.UsageError):
            compute.buffer(dump, wrong)
    assert (compute.buffer(dump, "b").start, compute.buffer(dump, "b").end) == (0, 0)


def test_uses_that_are_not_scheduled_come_last(make: Make) -> None:
    def used_by(*names: str) -> Any:
        uses = "\n".join(f"  {name}, operand 0" for name in names)
        members = attacks.dump([value(0, "a", 64)], records=[record(0, "a", uses=uses)], ranges=["a{}:0-3"])
        return compute.buffer(xlamem.read(make(members)), "a")

    found = used_by("gone", "s.0", "s.3", "s.1")
    assert [user["step"] for user in found.users] == [0, 1, 3, None]
    assert found.last_user is not None
    assert found.last_user["instruction"] == "s.3"
    assert used_by("gone").last_user is None


def test_steps_at_which_values_are_used(make: Make) -> None:
    """From the first step on; not those of values and of instructions that there are not."""
    records = [
        record(0, "a", uses="  s.2, operand 0\n  gone, operand 0\n  s.0, operand 1"),
        record(1, "b", uses="  s.0, operand 0"),
        record(3, "c", uses="  s.1, operand 0"),
    ]
    members = attacks.dump([value(0, "a", 64), value(1, "b", 64, 64)], size=128, records=records, ranges=["a{}:0-3"])
    values, steps = use_steps(program(xlamem.read(make(members))))
    assert sorted(zip(values.tolist(), steps.tolist(), strict=True)) == [(0, 0), (0, 2), (1, 0)]


def test_padding_without_live_ranges(make: Make) -> None:
    """An allocation without values has none, and gives none to others."""
    allocations = (
        "allocation 0: size 64, maybe-live-out:\n"
        f"allocation 1: size 64, preallocated-temp:\n{value(0, 't', 16)}{value(1, 'u', 64)}"
        f"allocation 2: size 64, thread-local:\n{value(2, 'l', 64)}"
    )
    dump = xlamem.read(make({"buffer-assignment": f"BufferAssignment:\n{allocations}".encode()}))
    rows = compute.padding(dump).to_pylist()
    assert {r["instruction"]: r["padding"] for r in rows} == {"t": 8, "u": 56}
    assert [r["at_peak"] for r in rows] == [False, False]


def test_packings_are_largest_first(make: Make) -> None:
    allocations = "".join(
        f"allocation {i}: size {size}, preallocated-temp:\n{value(i, f'v.{i}', 64)}"
        for i, size in enumerate((128, 512, 256))
    )
    members = attacks.dump([], allocations=allocations, ranges=[f"v.{i}{{}}:0-1" for i in range(3)])
    found = compute.repack(xlamem.read(make(members)), 0)
    assert [p.size for p in found] == [512, 256, 128]
    assert all(p.is_optimal is (p.found <= p.lower_bound) for p in found)
    assert all(p.found == p.lower_bound == p.size for p in found)  # what no value touches stays reserved


def test_an_alternative_representative(make: Make) -> None:
    """Of values of one size, that with the highest id names an allocation."""
    for ids in ((1, 2), (2, 1)):
        values = [value(ids[0], "a", 64), value(ids[1], "b", 64)]
        members = attacks.dump(values, allocations="allocation 0: size 64, constant:\n", ranges=["a{}:9-9", "b{}:9-9"])
        p = program(xlamem.read(make(members)))
        assert p.value_ids[p.representative].tolist() == [2]


@pytest.mark.parametrize(("color", "most"), [(0, 64), (1, None), (7, 64)])
def test_temporaries_that_share_bytes(color: int, most: int | None, make: Make) -> None:
    """Their union counts, whichever space is the first. That of VMEM depends on uses, which the dump does not print."""
    values = [value(i, f"v.{i}", 64, color=color) for i in range(2)]
    allocations = f"allocation 0: size 64, color {color}, preallocated-temp:\n{''.join(values)}"
    members = attacks.dump([], allocations=allocations, ranges=["v.0{}:0-2", "v.1{}:1-3"])
    p = program(xlamem.read(make(members, "cl_1004524046.after_optimizations")))
    found = {i.field: i.bytes for i in inferred_analysis(p)}
    assert found.get("peak_memory_in_bytes") == most


def test_contexts_of_asynchronous_calls() -> None:
    """The third element of what they start with is scratch memory: an array in it, not that of another operation."""
    indices, opcodes = pa.array(["{0}", "{2,0}", "{20}", "{2,13}", "{1,2}"]), pa.array(["call-start", "copy-start"])
    codes, row = np.array([0, 1, 2, 3, 4, 1, -1]), np.array([0, 0, 0, 0, 0, 1, 0])
    columns = {"shape_index": (codes, indices), "opcode": (np.arange(2), opcodes)}
    p: Any = SimpleNamespace(instruction_row=row, texts=lambda _, column: columns[column], once=lambda _, f: f())
    assert inferred._is_async_context(p).tolist() == [False, True, False, True, False, False, False]


@pytest.mark.parametrize("sizes", [(16, 64), (64, 16)])
def test_the_arena_with_most_temporaries_of_vmem(sizes: tuple[int, int], make: Make) -> None:
    values = [value(i, f"v.{i}", size, color=1) for i, size in enumerate(sizes)]
    arenas = [f"allocation {i}: size 64, color 1, preallocated-temp:\n{text}" for i, text in enumerate(values)]
    records = [record(i, f"v.{i}", uses="  s.2, operand 0") for i in range(2)]
    members = attacks.dump([], allocations="".join(arenas), records=records, ranges=["v.0{}:0-2", "v.1{}:1-3"])
    p = program(xlamem.read(make(members, "cl_1004524046.after_optimizations")))
    found = {i.field: i.bytes for i in inferred_analysis(p)}
    assert found["peak_memory_in_bytes"] == 64


@pytest.mark.parametrize(("used", "most"), [(1, 0), (2, 64), (3, 64)])
def test_a_value_of_vmem_that_is_used_when_it_begins(used: int, most: int, make: Make) -> None:
    """It is live at that step. A use before does not count."""
    arena = f"allocation 0: size 64, color 1, preallocated-temp:\n{value(0, 'v.0', 64, color=1)}"
    records = [record(0, "v.0", uses=f"  s.{used}, operand 0")]
    members = attacks.dump([], allocations=arena, records=records, ranges=["v.0{}:2-3"])
    p = program(xlamem.read(make(members, "cl_1004524046.after_optimizations")))
    assert {i.field: i.bytes for i in inferred_analysis(p)}["peak_memory_in_bytes"] == most


@pytest.mark.parametrize(("cut", "most"), [(0, 64), (1, None)])
def test_uses_in_a_file_that_is_truncated(cut: int, most: int | None, make: Make) -> None:
    """Values of VMEM are live until their last use, which may be in the part that is missing."""
    values = [value(i, f"v.{i}", 64, 64 * i, color=1) for i in range(2)]
    allocations = f"allocation 0: size 128, color 1, preallocated-temp:\n{''.join(values)}"
    records = [record(i, f"v.{i}", uses=f"  s.{2 * i + 1}, operand 0") for i in range(2)]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["v.0{}:0-3", "v.1{}:2-3"])
    text = members["buffer-assignment-values"]
    members["buffer-assignment-values"] = text[: len(text) - cut]
    p = program(xlamem.read(make(members, "cl_1004524046.after_optimizations")))
    assert {i.field: i.bytes for i in inferred_analysis(p)}.get("peak_memory_in_bytes") == most


@pytest.mark.parametrize(("sizes", "text"), [
    ((81, 9, 10), "nearly all slots of 64 bytes that hold 40 bytes"),
    ((80, 10, 10), "nearly all slots that nothing else ever uses"),
    ((89, 0, 11), "mostly slots of 64 bytes that hold 40 bytes"),
    ((40, 20, 40), "mostly slots that nothing else ever uses"),
    ((45, 5, 50), "partly slots of 64 bytes that hold 40 bytes"),
    ((45, 5, 51), "mostly memory that no value ever uses"),
])  # fmt: skip
def test_what_most_of_the_packing_is(sizes: tuple[int, int, int], text: str) -> None:
    """Slots of one size are at least nine tenths of the largest part, not of the line. Of equal parts, the first."""
    rows = [
        {"bytes": n, "part": part, "buffer_size": held, "granule": 64 if held else None}
        for n, part, held in zip(sizes, ("one_value", "one_value", "never_touched"), (40, 100, None), strict=True)
    ]
    assert bill_wording.reason_of("packing", rows) == text


def test_a_space_has_all_its_pages(make: Make) -> None:
    """Whether it is chosen by its color or by its name."""
    allocations = "".join(
        f"allocation {i}: size 128, color {color}, page {page}, temp:\n{value(i, f'v.{i}', 64, color=color)}"
        for i, (color, page) in enumerate(((0, 0), (5, 0), (0, 1), (5, 2), (0, 3)))
    )
    ranges = [f"v.{i}{{}}:{i % 3}-3" for i in range(5)]
    dump = xlamem.read(make(attacks.dump([], allocations=allocations, ranges=ranges)))
    functions: tuple[Callable[..., Any], ...] = (compute.savings, compute.live_set, compute.occupancy)
    for function in functions:
        rows = function(dump).to_pylist()
        for color in (0, 5):
            wanted = [r for r in rows if r["color"] == color]
            assert len({r["page"] for r in wanted}) == 3 - (color == 5)
            for space in (color, schema.memory_space("cpu", color)):
                assert function(dump, space=space).to_pylist() == wanted
    packings = compute.repack(dump, 0)
    assert [len(compute.repack(dump, 0, space=color)) for color in (0, 5)] == [3, 2]
    assert len(packings) == 5
    assert [len(compute.summarize(dump, space=color).spaces) for color in (0, 5)] == [3, 2]


def test_notes_about_lines() -> None:
    """At step 0, the buffers are known as at any other; only without steps they are not."""
    for step, known in ((0, True), (3, True), (None, False)):
        note = bill_wording.line_note([{"line": "temporaries", "step": step, "granule": None}])
        assert ("at this step" in note) is known
    for granules, text in (((256,), "256 bytes"), ((256, None, 1024), "1 KiB"), ((None,), "a granule")):
        note = bill_wording.line_note([{"line": "alignment", "step": 0, "granule": g} for g in granules])
        assert f"multiples of {text}." in note


def test_details_of_lines() -> None:
    """The largest kinds with a hundredth of the bytes or more; multiples of which number buffers begin at, if known."""
    row = {"line": "temporaries", "part": None, "n": 1, "granule": None}
    kinds = ["gradient", "activation", "residual of a scan", "copy", "collective"]
    for small, n in ((9, 1), (10, 2), (11, 2)):
        rows = [row | {"kind": kind, "bytes": size} for kind, size in zip(kinds, (small, 1000 - small), strict=False)]
        ((level, text),) = bill_wording.details(rows)
        assert (level, text.count(",")) == (0, n - 1)
        assert text.startswith("1 activation")
    rows = [row | {"kind": kind, "bytes": 100} for kind in kinds]
    ((_, text),) = bill_wording.details(rows)
    assert text.count(",") == bill_wording.N_KINDS - 1
    for granules, text in (((256,), "256 bytes"), ((256, 1024), "1 KiB"), ((1024, 256), "1 KiB"), ((256, None), None)):
        rows = [row | {"line": "alignment", "kind": None, "bytes": 1, "granule": granule} for granule in granules]
        assert [t for _, t in bill_wording.details(rows) if "next" in t] == ([f"up to the next {text}"] if text else [])
