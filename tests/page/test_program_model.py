"""The model of a program, decoded from JSON, against the tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from attacks import dump, record, value
from conftest import DUMPS, every, label, sources
from decoding import Json, decoded, instructions, path_of_scope, texts
from renumber import write

import xlamem
from xlamem import compute
from xlamem.compute.charges import FUNCTION, live_set_of
from xlamem.compute.layout import CATEGORIES, TEMP, TEMP_IN_OUTPUT
from xlamem.compute.op_names import scopes
from xlamem.compute.program import program as compute_program
from xlamem.compute.removal import saving_of
from xlamem.compute.tree import NO_SCOPE, path_of
from xlamem.input.find import Source
from xlamem.page import buffers_model, findings_model, scopes_model, spaces_model
from xlamem.page.findings_model import N_DIAGNOSTICS, diagnostic_rows
from xlamem.page.spaces_model import phase_bands

SCHEMA = json.loads(resources.files("xlamem.page").joinpath("report.schema.json").read_text("utf-8"))
COMPUTED = ("temp", "temp_in_output", "live_out")
"""Categories of buffers that may be arranged by function."""
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
every_dump = pytest.mark.parametrize("source", every(2, sources()), ids=label)


@cache
def dump_of(source: Source) -> xlamem.Dump:
    return xlamem.read(source)


@cache
def program_of(source: Source) -> Json:
    data = xlamem.report(dump_of(source)).as_json()
    VALIDATOR.validate(data)
    program: Json = decoded(data["programs"][0])
    return program


def spaces_of(program: Json) -> dict[tuple[int, int], Json]:
    return {(s["color"], s["page"]): s for s in program["spaces"]}


def timed(source: Source) -> bool:
    return bool(dump_of(source).live_ranges.num_rows) and bool(dump_of(source).allocations.num_rows)


# -- the schema ----------------------------------------------------------------------------------


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_and_the_script_have_the_same_properties() -> None:
    """`model.ts` is the same contract."""
    text = (Path(__file__).parents[2] / "src/xlamem/page/script/data/model.ts").read_text("utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    interfaces = dict(re.findall(r"export interface (\w+) \{\n(.*?)\n\}", text, re.S))
    properties = {name: re.findall(r"^  (\w+):", body, re.M) for name, body in interfaces.items()}
    described = {name: list(spec["properties"]) for name, spec in SCHEMA["$defs"].items()}
    described["Report"] = list(SCHEMA["properties"])
    assert {n: sorted(p) for n, p in properties.items()} == {n: sorted(p) for n, p in described.items()}


@pytest.mark.parametrize("change", [{"title": 1}, {"more": 1}, {"version": 2}, {"kind": "page"}, {"programs": [{}]}])
def test_the_schema_sees_faults(change: Json) -> None:
    data = xlamem.report(DUMPS / "cpu-jaxlib-0.10.2-cond_switch").as_json()
    assert not list(VALIDATOR.iter_errors(data))
    assert list(VALIDATOR.iter_errors(data | change))


# -- sums ----------------------------------------------------------------------------------------


@every_dump
def test_spaces(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    spaces = spaces_of(program)
    if not dump.allocations.num_rows:
        assert not spaces
        return
    rows = {(r["color"], r["page"]): r for r in compute.peak(dump).spaces.to_pylist()}
    assert spaces.keys() == rows.keys()
    for key, space in spaces.items():
        for name in ("memory_space", "allocated", "reserved", "peak", "first_step", "last_step"):
            assert space[name] == rows[key][name]
        assert space["n_plateaus"] == rows[key]["plateaus"]
        assert sum(space["categories"].values()) == (space["reserved"] if space["peak"] is None else space["peak"])
    assert program["verdict"]["must_fit"] == compute.device_total(dump)
    assert sum(t["bytes"] for t in program["verdict"]["terms"]) == compute.device_total(dump)


@every_dump
def test_usage(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    if not timed(source):
        assert program["steps"] is None
        assert not any(len(s["usage"]) for s in program["spaces"])
        return
    levels = compute.occupancy(dump).to_pylist()
    for key, space in spaces_of(program).items():
        rows = [r for r in levels if (r["color"], r["page"]) == key]
        assert space["usage"].tolist() == [r["occupied"] for r in rows]
        assert len(space["usage"]) == program["steps"]
        assert max(space["usage"]) == space["peak"]
        at_peak = rows[space["first_step"] or 0]
        assert space["categories"] == {name: at_peak[name] for name in space["categories"]}
        for plateau in space["plateaus"]:
            assert set(space["usage"][plateau["first_step"] : plateau["last_step"] + 1]) == {plateau["bytes"]}


@every_dump
def test_bill(source: Source) -> None:
    bills = compute.bill(dump_of(source)).to_pylist() if dump_of(source).allocations.num_rows else []
    accounts = program_of(source)["bill"]
    totals = Counter[tuple[str, int]]()
    for row in bills:
        totals[row["account"], row["page"] or 0] += row["bytes"]
    for account in accounts:
        rows = [r for r in bills if (r["account"], r["page"] or 0) == (account["account"], account["page"])]
        parts = [part for line in account["lines"] for part in line["parts"]]
        for name in ("part", "kind", "n", "bytes"):
            assert [part[name] for part in parts] == [r[name] for r in rows]
        assert account["total"] == sum(line["bytes"] for line in account["lines"]) == totals[
            account["account"], account["page"]
        ]
        assert account["in_use"] == sum(line["bytes"] for line in account["lines"] if line["in_use"])
        for line in account["lines"]:
            assert line["bytes"] == sum(part["bytes"] for part in line["parts"])
            assert line["label"]
            assert line["note"].endswith(".")
            assert all(part["label"] for part in line["parts"])
        assert account["step"] == rows[0]["step"]
    assert bool(accounts) == bool(bills)
    if bills:
        assert accounts[0]["account"] == "device_total"
        assert accounts[0]["total"] == program_of(source)["verdict"]["must_fit"]


# -- buffers -------------------------------------------------------------------------------------


@every_dump
def test_allocations(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    table = program["allocations"]
    rows = [r for r in dump.allocations.to_pylist() if not r["is_thread_local"]]
    assert table["allocation"].tolist() == [r["allocation"] for r in rows]
    assert table["size"].tolist() == [r["size"] for r in rows]
    spaces = [(s["color"], s["page"]) for s in program["spaces"]]
    assert [spaces[i] for i in table["space"].tolist()] == [(r["color"], max(r["page"] or 0, 0)) for r in rows]
    assert all(table["label"])


@every_dump
def test_buffers(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    b = program["buffers"]
    thread_local = {r["allocation"] for r in dump.allocations.to_pylist() if r["is_thread_local"]}
    rows = {r["value_id"]: r for r in dump.values.to_pylist() if r["allocation"] not in thread_local}
    assert sorted(b["value_id"].tolist()) == sorted(rows)
    values = [rows[i] for i in b["value_id"].tolist()]
    assert program["allocations"]["allocation"][b["allocation"]].tolist() == [r["allocation"] for r in values]
    for name in ("offset", "size"):
        assert b[name].tolist() == [r[name] or 0 for r in values]
    assert b["unpadded"].tolist() == [-1 if r["unpadded_size"] is None else r["unpadded_size"] for r in values]
    assert instructions(program, b["instruction"]) == [r["instruction"] for r in values]
    assert [index or "{}" for index in texts(b, "shape_index")] == [r["shape_index"] or "{}" for r in values]
    assert texts(b, "shape") == [r["shape"] for r in values]
    starts = np.where(b["start"] < 0, program["steps"] or 1, b["start"])
    assert (np.diff(starts) >= 0).all()
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    for i, key in enumerate(b["value_id"].tolist()):
        start, end = ranges.get(key, (-1, -1))
        if start is not None and 0 <= start <= end < (program["steps"] or 0):
            assert (b["start"][i], b["end"][i]) == (start, end)


@every_dump
def test_live_sets(source: Source) -> None:
    """At any step, the values of the live set are the buffers that the model says are live, with the same names."""
    if not timed(source):
        return
    dump, program = dump_of(source), program_of(source)
    b, steps = program["buffers"], program["steps"]
    peak_steps = {s["first_step"] for s in program["spaces"]} - {None}
    for step in sorted(peak_steps | {0, steps // 3, steps // 2, steps - 1}):
        rows = [r for r in compute.live_set(dump, step).to_pylist() if r["role"] == "value"]
        live = np.flatnonzero((b["start"] >= 0) & (b["start"] <= step) & (step <= b["end"]))
        found = dict(zip(b["value_id"][live].tolist(), live.tolist(), strict=True))
        assert found.keys() == {r["value_id"] for r in rows}
        at = np.array([found[r["value_id"]] for r in rows], np.int64)
        table = {name: column[at] if isinstance(column, np.ndarray) else column for name, column in b.items()}
        for name in ("op_name", "origin", "category", "phase", "kind", "layer"):
            assert texts(table, name) == [r[name] for r in rows], name
        assert texts(table, "source") == [_source(r) for r in rows]
        for name in ("layer_index", "iterations"):
            assert table[name].tolist() == [-1 if r[name] is None else r[name] for r in rows]
        assert instructions(program, table["origin_instruction"]) == [r["origin_instruction"] for r in rows]
        names = {r["op_name"]: r for r in rows}
        folded = dict(zip(names, scopes(pa.array(list(names), pa.string()), fold=True).to_pylist(), strict=True))
        by_function: dict[int, str] = {}
        if program["scopes"]["functions"]:
            functions = live_set_of(compute_program(dump), step, None, ["value_id", "category", FUNCTION]).to_pylist()
            by_function = {r["value_id"]: r[FUNCTION] for r in functions if r["category"] in COMPUTED}
        for r, scope in zip(rows, table["scope"].tolist(), strict=True):
            path = by_function.get(r["value_id"]) or folded[r["op_name"]]
            wanted = (NO_SCOPE, r["opcode"] or "?") if path is None else path_of(path)
            assert path_of_scope(program, scope) == wanted


def _source(row: Json) -> str | None:
    if row["source_file"] is None:
        return None
    return row["source_file"] if row["source_line"] is None else f"{row['source_file']}:{row['source_line']}"


@every_dump
def test_schedule_uses_and_aliases(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    schedule = {r["time"]: r["instruction"] for r in dump.schedule.to_pylist()} if program["steps"] else {}
    assert instructions(program, program["schedule"]) == [schedule.get(t) for t in range(program["steps"] or 0)]
    b, u, a = program["buffers"], program["uses"], program["aliases"]
    ids = b["value_id"]
    step_of = {name: time for time, name in reversed(schedule.items())}
    names = instructions(program, u["instruction"])
    uses = {(r["value_id"], r["instruction"]) for r in dump.uses.to_pylist()}
    assert set(zip(ids[u["buffer"]].tolist(), names, strict=True)) == {x for x in uses if x[0] in set(ids.tolist())}
    assert u["step"].tolist() == [step_of.get(name, -1) for name in names]
    assert (np.lexsort((u["step"], u["buffer"])) == np.arange(len(names))).all()
    definitions = zip(instructions(program, b["instruction"]), texts(b, "shape_index"), strict=True)
    own = dict(zip(ids.tolist(), definitions, strict=True))
    positions = Counter(
        (r["value_id"], r["instruction"], None if r["shape_index"] == "{}" else r["shape_index"])
        for r in dump.positions.to_pylist()
        if r["value_id"] in own
    )
    others = {key: n for key, n in positions.items() if key[1:] != own[key[0]]}
    columns = ids[a["buffer"]].tolist(), instructions(program, a["instruction"]), texts(a, "shape_index")
    assert Counter(zip(*columns, strict=True)) == others
    assert (np.diff(a["buffer"]) >= 0).all()


@every_dump
def test_savings(source: Source) -> None:
    if not dump_of(source).allocations.num_rows:
        return
    program = program_of(source)
    b = program["buffers"]
    saving = dict(zip(b["value_id"].tolist(), b["saving"].tolist(), strict=True))
    rows = compute.savings(dump_of(source)).to_pylist()
    alone = {r["value_id"]: r["saving"] for r in rows if r["role"] == "value"}
    assert all(saving[key] >= n for key, n in alone.items())
    p = compute_program(dump_of(source))
    known = {key: n for key, n in saving.items() if n >= 0}
    assert known == {key: saving_of(p, p.row_of_value(np.array([key]))[0]) for key in known}
    whole = [key for key in known if not _is_temp(program, key)]
    n_named = sum(r["role"] == "allocation" and r["instruction"] is not None for r in rows)
    assert len(whole) >= n_named


def _is_temp(program: Json, value_id: int) -> bool:
    row = int(np.flatnonzero(program["buffers"]["value_id"] == value_id)[0])
    table = program["allocations"]
    return bool(table["category_names"][table["category"][program["buffers"]["allocation"][row]]] == "temp")


@every_dump
def test_phases(source: Source) -> None:
    program = program_of(source)
    p = program["phases"]
    assert (p["first_step"] <= p["last_step"]).all()
    assert (p["first_step"][1:] > p["last_step"][:-1]).all()
    if len(p["phase"]):
        assert p["last_step"][-1] < program["steps"]
        assert set(p["phase"].tolist()) <= set(range(len(p["names"])))


def test_phases_of_a_training_step() -> None:
    (source,) = xlamem.find(DUMPS / "cpu-jaxlib-0.12.0-multiheap")
    phases = program_of(source)["phases"]
    names = [phases["names"][i] for i in phases["phase"].tolist()]
    assert names[0] == "forward"
    assert "backward" in names[1:]
    assert len(names) < 20


# -- findings ------------------------------------------------------------------------------------


@every_dump
def test_findings(source: Source) -> None:
    dump, program = dump_of(source), program_of(source)
    advice = compute.advise(dump).to_pylist()
    assert [a["action"] for a in program["advice"]] == [r["action"] for r in advice]
    ids = program["buffers"]["value_id"]
    assert [None if a["buffer"] < 0 else ids[a["buffer"]] for a in program["advice"]] == [r["value_id"] for r in advice]
    numbers = compute.explain(dump).to_pylist()
    assert [(e["name"], e["bytes"], e["step"]) for e in program["explain"]] == [
        (n["name"], n["bytes"], n["time"]) for n in numbers
    ]
    for number in program["explain"]:
        assert number["difference"] is None or number["difference"] == sum(c["bytes"] for c in number["causes"])
    assert program["n_diagnostics"] == dump.diagnostics.num_rows
    assert len(program["diagnostics"]) == min(dump.diagnostics.num_rows, N_DIAGNOSTICS)


def test_diagnostics_without_a_place() -> None:
    """What is not known of the place is null, and other columns are empty."""
    texts = {"severity": "error", "code": "total_differs", "section": "total", "wanted": "8 bytes", "excerpt": None}
    table = pa.Table.from_pylist([{**texts, "file": "a/b.txt", "line": None, "offset": None}])
    del texts["section"]
    (row,) = diagnostic_rows(table)
    assert row == {**texts, "excerpt": "", "file": "b.txt", "line": None, "offset": None}


def test_an_instruction_at_several_steps_runs_first_at_the_first_one() -> None:
    """As a damaged schedule may say."""
    steps = buffers_model._step_of_instruction(np.array([2, 0, -1, 0, 2]), 4)
    assert steps.tolist() == [1, -1, 0, -1]


def test_uses_are_in_the_order_of_steps() -> None:
    """Those that are not in the schedule come first. Each instruction counts once."""
    step = np.array([0, -1, 3, -1])
    uses = buffers_model._distinct_uses(np.array([1, 0, 0, 0, 0, 0]), np.array([3, 0, 1, 2, 0, 3]), step)
    assert [column.tolist() for column in vars(uses).values()] == [[0, 0, 0, 0, 1], [1, 3, 0, 2, 3], [-1, -1, 0, 3, -1]]


def test_another_element_of_the_same_instruction_is_an_alias(make: Callable[..., Path]) -> None:
    """As that of a tuple with the same array twice."""
    positions = "  t {0}\n  t {1}\n  u"
    records = [record(0, "t{0}", "(f32[16], f32[16]) tuple(%a, %a)", positions)]
    members = dump([value(0, "t{0}", 64)], size=64, steps=4, records=records, ranges=["t{0}:0-3"])
    data = decoded(xlamem.report(xlamem.read(make(members))).as_json()["programs"][0])
    names = data["instructions"]["name"]
    aliases = data["aliases"]
    places = zip(aliases["instruction"], aliases["shape_index"], strict=True)
    indices = ["", *aliases["shape_index_names"]]
    assert [(names[i], indices[k + 1]) for i, k in places] == [("t", "{1}"), ("u", "")]


def test_steps_of_buffers_whose_ranges_are_missing_or_go_beyond_the_schedule(make: Callable[..., Path]) -> None:
    """Without a range, a temporary occupies its bytes at every step; beyond the last step, there is none."""
    values = [value(i, f"v.{i}", 64, 64 * i) for i in range(4)]
    members = dump(values, size=256, steps=4, ranges=["v.0{}:1-2", "v.1{}:2-99", "v.2{}:7-9"])
    data = xlamem.report(xlamem.read(make(members))).as_json()
    buffers = decoded(data["programs"][0])["buffers"]
    steps = zip(buffers["value_id"], buffers["start"], buffers["end"], strict=True)
    assert sorted(map(tuple, steps)) == [(0, 1, 2), (1, 2, 4), (2, -1, -1), (3, 0, 4)]


def test_a_space_that_is_never_in_use_has_no_bytes_of_any_category(make: Callable[..., Path]) -> None:
    """Without live ranges, the sizes of allocations count."""
    members = dump([value(0, "a", 64)], size=256, steps=4, ranges=["a{}:7-9"])
    for text, peak, size in ((members, 0, 0), ({"buffer-assignment": members["buffer-assignment"]}, None, 256)):
        data = xlamem.report(xlamem.read(make(text))).as_json()
        (space,) = data["programs"][0]["spaces"]
        assert (space["peak"], {name: n for name, n in space["categories"].items() if n}) == (
            peak, {"temp": size} if size else {}
        )  # fmt: skip


def test_opcodes_of_instructions_of_the_same_name() -> None:
    """As a damaged dump may have: that of the first one. Those that define nothing are numbered -1."""
    p: Any = SimpleNamespace(tables={"instructions": pa.table({"opcode": ["add", "mul", "copy", "dot"]})})
    opcode, names = buffers_model._opcodes(p, np.array([1, 0, 1, -1]), 3)
    assert (opcode.tolist(), names) == ([1, 0, -1], ["add", "mul", "copy", "dot"])


def test_labels_of_allocations() -> None:
    """The name of an argument, or its number and place; else the output, the constant or the number."""
    kinds = ("parameter", "donated", "parameter", "live_out", "constant", "temp", "parameter")
    known = [i for i, kind in enumerate(kinds) if kind in ("parameter", "donated")]
    rows = np.arange(len(kinds))
    p: Any = SimpleNamespace(
        representative=rows, category=np.array([CATEGORIES.index(kind) for kind in kinds]), allocation_ids=rows + 5,
        value_text=lambda _, values: pa.array([f"i{value}" for value in values.tolist()]),
        source_columns=lambda values: {"op_name": pa.array(["params['w']", *[None] * 6])},
        allocations=pa.table({
            "parameter_number": [i if i in known[:3] else None for i in rows.tolist()],
            "parameter_shape_index": [None, "{1}", "{}", *[None] * 4],
        }),
    )  # fmt: skip
    assert buffers_model._labels(p, rows).to_pylist() == [
        "params['w']", "argument 1{1}", "argument 2", "output i3", "constant i4", "arena 10", "allocation 11"
    ]  # fmt: skip


def test_source_lines_of_buffers() -> None:
    """A file may have no known line; the largest one is not that of another file."""
    named = {"source_file": pa.array(["a.py", None, "b.py", "a.py", "b.py"]),
             "source_line": pa.array([3, None, None, 9, 9])}  # fmt: skip
    assert buffers_model._file_lines(named).to_pylist() == ["a.py:3", None, "b.py", "a.py:9", "b.py:9"]


def test_deep_scopes_and_buffers_without_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last scope has what is too deep, and names with the separator have a space."""
    monkeypatch.setattr(scopes_model, "MAX_DEPTH", 3)
    names = pa.array(["jit(f)/a/b/c/d/dot", "jit(f)/a/x\0y/dot"])
    tree = scopes_model.scope_tree((np.array([0, 1, -1, -1]), names), (np.array([0, 0, 0, -1]), ["add"]))
    scopes = {"name": tree.scopes.name.to_pylist(), "parent": tree.scopes.parent.tolist()}
    assert [path_of_scope({"scopes": scopes}, row) for row in tree.row.tolist()] == [
        ("a", "b", "c/d"), ("a", "x y"), (NO_SCOPE, "add"), (NO_SCOPE, "?"),
    ]  # fmt: skip


def test_places_of_advice_and_causes_of_numbers() -> None:
    """A function or an argument tells more than a scope; causes are those of a memory space and its page."""
    places = ("function", "argument", "scope", "instruction")
    others = dict.fromkeys(("kind", "action", "lower", "upper", "bytes", "n_buffers", "confidence", "in_plan"))
    others |= {"source_file": "a.py", "source_line": 3}
    for i, place in enumerate(places):
        row = others | {name: name if j >= i else None for j, name in enumerate(places)}
        assert findings_model._advice(row, 5)["subject"] == place
    number = {"name": "peak", "memory_space": "hbm", "color": 0, "page": 0, "bytes": 9, "definition": "", "time": 3,
              "difference": 2, "basis": "inferred", "n_equal": 7, "n_compared": 8}  # fmt: skip
    other = number | {"page": 1, "basis": None}
    causes = [{"name": "peak", "color": 0, "page": page, "cause": f"c{page}", "bytes": 2} for page in (1, 0)]
    found = findings_model.explanations([number, other], causes)
    assert [(row["basis"], row["causes"]) for row in found] == [
        ("inferred, matches 7 of 8 dumps", [{"cause": "c0", "bytes": 2}]),
        ("not in the dump", [{"cause": "c1", "bytes": 2}]),
    ]


def test_bands_of_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves join equal neighbours; between others, their own phase counts, also for what is before them, and none
    without one."""
    phase = np.array([0, 1, 0, 1, 1, 2, -1, 2, -1, 3, -1, 3, 1])
    moves = np.array([0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0], bool)
    monkeypatch.setattr(spaces_model, "step_phases", lambda p: phase)
    monkeypatch.setattr(spaces_model, "_moving_steps", lambda p: moves)
    program: Any = SimpleNamespace()
    bands = phase_bands(program)
    found = zip(bands.phase.tolist(), bands.first_step.tolist(), bands.last_step.tolist(), strict=True)
    assert [*found] == [(0, 0, 2), (1, 3, 4), (2, 5, 7), (3, 9, 11), (1, 12, 12)]


def test_the_phase_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the instruction counts more than that of what it defines."""
    monkeypatch.setattr(spaces_model, "phases_of_rows", lambda p, rows: np.array([0, -1, -1, 2])[rows])
    monkeypatch.setattr(spaces_model, "phases_of_values", lambda p, values: np.array([1, 3, -1])[values])
    p: Any = SimpleNamespace(
        steps=5, optional=lambda _: pa.table({"time": [3, 0, 1, 2], "instruction": ["d", "a", "b", "c"]}),
        row_of_instruction=lambda names: np.array(["abcd".index(name) for name in names.to_pylist()]),
        instruction_row=np.array([0, 1, 2]), tables={"instructions": pa.table({"x": [0] * 4})},
    )  # fmt: skip
    assert spaces_model.step_phases(p).tolist() == [0, 3, -1, 2, -1]


def test_plateaus_of_a_page_of_a_memory_space() -> None:
    plateau = {"first_step": 0, "last_step": 1, "bytes": 8}
    plateaus = [{**plateau, "color": color, "page": page} for color, page in ((0, 0), (0, 1), (1, 1))]
    row = {"number": 0, "memory_space": "hbm", "color": 0, "page": 1, "allocated": 8, "reserved": 8, "peak": 8,
           "first_step": 0, "last_step": 1, "plateaus": 1}  # fmt: skip
    p: Any = SimpleNamespace(tables=SimpleNamespace(platform="tpu"))
    assert spaces_model._space(p, row, None, plateaus, {}, [8]).plateaus == [plateau]


@every_dump
def test_every_sentence_ends(source: Source) -> None:
    program = program_of(source)
    verdict = program["verdict"]
    for sentence in (verdict["headline"], *verdict["decided_by"], verdict["first_step"], *program["folded"]):
        assert re.fullmatch(r"[A-Z0-9].*\.", sentence), sentence
        assert "None" not in sentence


def test_scopes_are_split_like_those_of_screens() -> None:
    names = ["eqx.nn.LayerNorm", "eqx.nn.MLP/relu", "state.mu", "params['a/b'][0].w", "h[12]/attn", "x"]
    found = scopes_model._paths(pa.array(names)).to_pylist()
    assert [tuple(path.split(scopes_model.SEPARATOR)) for path in found] == [path_of(name) for name in names]


@pytest.mark.parametrize(
    ("between", "n"),
    [
        ("add(%x, %y)", 3), ("copy(%x)", 1), ("tuple(%x, %y)", 1),
        ('custom-call(%x), custom_call_target="MoveToHost"', 1), ('custom-call(%x), custom_call_target="Solve"', 3),
    ],
)  # fmt: skip
def test_what_only_moves_bytes_of_the_forward_pass_is_no_phase_of_its_own(
    between: str, n: int, tmp_path: Path
) -> None:
    backward, forward = (f', metadata={{op_name="jit(f)/{name}/add"}}' for name in ("transpose(jvp())", "jvp()"))
    computed = [f"add(%x, %y){backward}", between + forward, f"add(%x, %y){backward}"]
    records = [record(i, f"v.{i}", f"f32[2]{{0}} {text}") for i, text in enumerate(computed)]
    values = [value(i, f"v.{i}", offset=8 * i) for i in range(3)]
    names = [f"v.{i}" for i in range(3)]
    members = dump(values, records=records, schedule=names, ranges=[f"{name}{{}}:0-2" for name in names])
    write({role: text.decode() for role, text in members.items()}, tmp_path, "module_0000.cpu_after_optimizations")
    assert len(phase_bands(compute_program(xlamem.read(tmp_path))).phase) == n


@pytest.mark.parametrize(
    ("most", "rows", "n"), [(9, 0, 3), (3, 0, 3), (2, 2, 2), (2, 1, 1), (2, 0, 1), (1, 9, 1)]
)
def test_memory_spaces_with_a_curve(most: int, rows: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All, unless there are too many; the first one always has one."""
    p = compute_program(xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload"))
    monkeypatch.setattr(spaces_model, "MAX_SPACES", most)
    monkeypatch.setattr(spaces_model, "MAX_CELLS", rows * (p.steps or 0))
    ordered = [{"number": 1}, {"number": 0}, {"number": 2}]
    assert set(spaces_model._usage(p, ordered)) == {row["number"] for row in ordered[:n]}


def test_what_buffers_in_the_memory_of_outputs_save() -> None:
    """Nothing, however small they are: an output is needed as before."""
    rows = np.arange(3)
    p: Any = SimpleNamespace(
        owner=rows, representative=rows, is_fixed=rows < 0, allocation_size=rows, steps=1, in_temp=rows >= 0,
        once=lambda *_: rows, categories_of=lambda values: np.where(values > 0, TEMP_IN_OUTPUT, TEMP),
    )  # fmt: skip
    assert buffers_model._savings(p, rows[::-1]).tolist() == [0, 0, 0]
    p.categories_of = lambda values: np.full(len(values), TEMP)
    assert buffers_model._savings(p, rows).tolist() == [0, 1, 2]
    within: Any = SimpleNamespace(
        owner=np.zeros(2, int), representative=np.zeros(1, int), is_fixed=np.ones(1, bool), steps=1,
        allocation_size=np.array([8]), in_temp=np.zeros(2, bool), once=lambda *_: rows[:2],
        categories_of=lambda values: np.full(2, TEMP_IN_OUTPUT),
    )  # fmt: skip
    assert buffers_model._savings(within, rows[:2]).tolist() == [0, -1]  # the other is not what stands for the output
