"""Functions of the page's script on small programs made by hand."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from by_hand import Json, program
from node import bundled

Script = subprocess.Popen[str]

PROGRAM = """
import { createInterface } from "node:readline";
import { icicle } from "./buffers/icicle.js";
import { tabSeparated } from "./buffers/columns.js";
import { usageOf, spacesOf } from "./comparison/accounts.js";
import { Partners } from "./comparison/two_maps.js";
import { addressOf, initial } from "./data/address.js";
import { liveSet } from "./data/live.js";
import { matching } from "./data/matching.js";
import { bufferName, findBuffer, findScope, isOnlyBuffer, joinScopes, scopeOfBuffer } from "./data/names.js";
import { rollUp } from "./data/rollup.js";
import { neighboursOf } from "./data/sharing.js";
import { lastUse } from "./data/uses.js";
import { drawGutter, drawNames } from "./map/map_labels.js";
import { shade, tonesOf } from "./map/shade.js";
import { stackOf } from "./map/stack.js";
import { centre, goBy, goToPlateau, nextSpace } from "./parts/actions.js";
import { scaleOf } from "./parts/capacity_bar.js";
import { exactSize, minusSigns, shortSize, signedSize } from "./parts/format.js";
import { zoomed } from "./parts/layout.js";
import { codingOf } from "./parts/palette.js";
import { select } from "./parts/selection.js";
import { labelOf, peakNote, whatOf } from "./parts/wording.js";
import { decimated, envelope } from "./time/decimate.js";
import { drawBands, drawMarks } from "./time/marks.js";

globalThis.devicePixelRatio = 1;
/** Calls of a canvas, each after its colour. A character is 6 pixels wide. */
const calls = (draw) => {
  const found = [];
  const state = { fillStyle: "", measureText: ({ length }) => ({ width: 6 * length }) };
  const get = (_, key) => state[key] ?? ((...args) => void found.push([state.fillStyle, key, ...args]));
  draw(new Proxy(state, { get }));
  return found;
};
/** What a timeline of 100 pixels below 20 draws, with variables in place of colours. */
const drawnBy = (draw) => (marks, width) => calls((ctx) => {
  const [first, last] = marks.range;
  const x = (step) => ((step - first) / (last + 1 - first)) * width;
  const valToPos = (value, axis) => (axis === "x" ? x(value) : 120 - (100 * value) / marks.top);
  draw({ ctx, bbox: { left: 0, top: 20, width, height: 100 }, valToPos }, { rgb: (variable) => [variable] }, marks);
});

const functions = {
  usageOf, spacesOf, liveSet, matching, bufferName, findBuffer, findScope, isOnlyBuffer, joinScopes, scopeOfBuffer,
  rollUp, neighboursOf, lastUse, stackOf, scaleOf, exactSize, minusSigns, shortSize, signedSize, zoomed, codingOf,
  labelOf, peakNote, whatOf, decimated, envelope,
  address: (data, buffer) => addressOf({ ...initial(0, data.model), buffer }, data, 0),
  scopes: (data, width) => icicle(data, rollUp(data, 0, 0), 0, width),
  tones: (buffer, code, pale) => tonesOf({ buffer }, { code }, (one, item) => pale.includes(`${one} ${item}`)),
  shaded: (ids, tones, colors, rows) => {
    const out = new Uint32Array(ids.length);
    shade(ids, tones, colors, rows, out);
    return out;
  },
  bands: drawnBy(drawBands),
  marks: drawnBy(drawMarks),
  gutter: (data, view) => calls((c) => drawGutter(c, data, stackOf(data, 0), view, {})),
  names: (data, boxes) => calls((c) => drawNames(c, data, boxes, {})),
  partners: (n, a, b) => {
    const data = { buffers: { length: n } };
    const partners = new Partners({ a: data, b: data }, a, b);
    const of = (side) => Array.from({ length: n }, (_, row) => partners.words(side, row));
    return { without: [partners.without("a"), partners.without("b")], words: [of("a"), of("b")] };
  },
  table: (data, rows) => tabSeparated({ data, live: liveSet(data, 0, 0), step: 0 }, rows),
  plateaus: (data, step, direction) => {
    const found = [];
    goToPlateau({ state: { space: 0, step, range: [0, 9] }, set: (state) => found.push(state.step) }, data, direction);
    return found;
  },
};
/** The state after an action, or what the action returns. */
for (const [name, action] of Object.entries({ goBy, nextSpace, select })) {
  functions[name] = (data, state, ...rest) => {
    const store = { state, set: (change) => void Object.assign(state, change) };
    action(store, data, ...rest);
    return state;
  };
}
functions.centre = (state) => centre({ state });
const plain = (_, value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);
for await (const line of createInterface({ input: process.stdin })) {
  const { data, calls } = JSON.parse(line);
  const results = calls.map(([name, ...rest]) => functions[name](...(data ? [data] : []), ...rest) ?? null);
  console.log(JSON.stringify(results, plain));
}
"""
"""Answers each line of its input, so that one process serves all tests."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Script]:
    program = bundled(PROGRAM, tmp_path_factory.mktemp("script"), head="")
    with subprocess.Popen(["node", str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


def called(script: Script, data: Json | None, *calls: Any) -> list[Any]:
    """Return the results of functions with this program, if there is one, and other parameters."""
    assert script.stdin
    assert script.stdout
    script.stdin.write(json.dumps({"data": data, "calls": calls}) + "\n")
    script.stdin.flush()
    line = script.stdout.readline()
    assert line, "the script failed"  # its error is on stderr
    found: list[Any] = json.loads(line)
    return found


# -- which buffers -------------------------------------------------------------------------------


def test_buffers_at_the_same_bytes(script: Script) -> None:
    """Those that touch it are not; in time they are as long as both are live at one step."""
    places = [
        (10, 10, 5, 6), (15, 10, 6, 8), (0, 20, 4, 5), (12, 4, 0, 1), (12, 4, 2, 4), (12, 4, 9, 9), (12, 4, 7, 8),
        (0, 10, 5, 6), (20, 10, 5, 6), (10, 10, -1, -1), (10, 10, 5, 6),
    ]  # fmt: skip
    columns = dict(zip(("offset", "size", "start", "end"), map(list, zip(*places, strict=True)), strict=True))
    data = program(len(places), model={"steps": 10}, allocation=[*[0] * 10, 1], **columns)
    assert called(script, data, ("neighboursOf", 0), ("neighboursOf", 7), ("neighboursOf", 0)) == [
        first := {"sharing": [2, 1], "before": [4, 3], "after": [6, 5]},
        {"sharing": [2], "before": [], "after": []},
        first,
    ]


def test_what_stands_for_a_fixed_allocation(script: Script) -> None:
    """A buffer that saves nothing may. Without live ranges, temporaries are in use at the only step."""
    fixed = {"allocation": [3, 4], "space": [0, 0], "size": [30, 100], "category": [1, 0],
             "categoryNames": ["temp", "live_out"], "label": ["output", "arena"]}  # fmt: skip
    columns: Json = {"allocation": [0, 0, 1], "saving": [-1, 0, -1], "start": [-1] * 3}
    data = program(3, model={"steps": None}, allocations=fixed, **columns)
    (found,) = called(script, data, ("liveSet", 0, 0))
    assert (found["nLive"], found["buffer"], found["allocation"]) == (1, [2, 1], [1, 0])
    assert (found["bytes"], found["total"]) == ([10, 30], 40)


def test_buffers_that_are_searched_for(script: Script) -> None:
    data = program(
        4,
        allocations={"label": ["arena 7", "params['w']"], "space": [0, 0], "size": [100, 100], "category": [0, 0]},
        allocation=[0, 0, 0, 1], instruction=[0, 1, 1, 2], shapeIndex=[-1, 0, 1, -1], indexNames=["{0}", "{1}"],
        phase=[0, 1, -1, -1], phaseNames=["forward", "backward"], category=[0, 1, 0, 0],
        categoryNames=["temp", "live_out"], scope=[3, 3, 2, 0], layer=[0, 0, 0, -1], layerNames=["layer_*"],
        layerIndex=[1, 2, 12, -1], scopes={"name": ["", "net", "layer_*", "mlp"], "parent": [-1, 0, 1, 2]},
        instructions={"name": ["dot.1", "fusion.2", "add.3"], "opcode": [-1] * 3, "opcodeNames": []},
    )  # fmt: skip
    wanted = {
        ("forward", 0): [0], (" FORWARD", 0): [0], ("['w']", 0): [3], ("fusion.2", 0): [1, 2], ("fusion.2{1}", 0): [2],
        ("net/layer", 0): [0, 1, 2], ("layer_2", 0): [1], ("output", 0): [1], ("", 2): [0, 1, 2], ("", 3): [0, 1],
        ("dot", 3): [0], ("dot", 0): [0],
    }  # fmt: skip
    masks = called(script, data, ("matching", "", 0), *(("matching", *key) for key in wanted))
    assert masks[0] is None
    assert [[i for i, is_found in enumerate(mask) if is_found] for mask in masks[1:]] == [*wanted.values()]


def test_names_of_buffers_and_scopes(script: Script) -> None:
    scopes = {"name": ["", "a", "b", "b", "layer_*"], "parent": [-1, 0, 1, 0, 3]}
    data = program(
        5, instruction=[0, 1, 1, 2, 2], shapeIndex=[-1, 0, 1, 2, -1], indexNames=["{0}", "{1}", "{}"], scopes=scopes,
        scope=[4, 4, 2, 1, 0], layer=[0, 0, 0, -1, -1], layerIndex=[3, -1, 2, -1, -1], layerNames=["layer_*"],
    )  # fmt: skip
    rows = {"i1{1}": 2, "i1{0}": 1, "i0{}": 0, "i2": 3, "i1{2}": -1, "i9": -1, "3": 3, "33": -1, "": -1}
    paths = {"a/b": 2, "b": 3, "b/layer_*": 4, "layer_*": 0, "": 0}
    scope_of = ["b/layer_3", "b/layer_*", "a/b", "a", ""]
    calls = [*(("findBuffer", text) for text in rows), *(("findScope", path) for path in paths)]
    calls += [("scopeOfBuffer", row) for row in range(5)]
    assert called(script, data, *calls) == [*rows.values(), *paths.values(), *scope_of]
    twins = program(4, instruction=[0, 0, 1, 1], shapeIndex=[-1, -1, -1, 0], indexNames=["{1}"])
    assert called(script, twins, *(("isOnlyBuffer", row) for row in range(4)), ("address", 1), ("address", 2)) == [
        False, False, True, True, "#buffer=1", "#buffer=i1",
    ]  # fmt: skip
    joined = {("(no scope)", "add"): "(no scope) add", ("a/(no scope)", "add"): "a/(no scope) add", ("a", "b"): "a/b",
              ("params", "['w']"): "params['w']", ("a", ".b"): "a.b"}  # fmt: skip
    assert called(script, None, *(("joinScopes", *pair) for pair in joined)) == [*joined.values()]


def test_the_last_use_of_a_buffer(script: Script) -> None:
    data = program(3, uses={"begin": [0, 2, 3, 3], "instruction": [5, 6, 7], "step": [2, 4, -1]})
    assert called(script, data, *(("lastUse", row) for row in range(3))) == [{"instruction": 6, "step": 4}, None, None]


# -- texts of the page ---------------------------------------------------------------------------


def test_words_about_buffers(script: Script) -> None:
    opcodes = {"name": ["p", "q", "r"], "opcode": [0, 0, -1], "opcodeNames": ["parameter"]}
    allocations = {"label": ["params['w']", "arena"], "space": [0, 0], "size": [10, 100], "category": [0, 1]}
    data = program(
        3, model={"steps": 9, "spaces": [{"first_step": 3}]}, allocations=allocations, allocation=[0, 0, 1],
        size=[10, 5, 10], instructions=opcodes, start=[1, 4, -1], end=[3, 8, -1], category=[0, 0, 1],
        categoryNames=["parameter", "temp"], kind=[0, -1, 1], kindNames=["parameter", "activation"],
        phase=[-1, -1, 0], phaseNames=["forward"], layer=[-1, 0, 0], layerNames=["layer_*"], layerIndex=[-1, -1, 3],
    )  # fmt: skip
    words = {
        "labelOf": ["params['w']", "q", "r"],
        "whatOf": ["parameter", "parameter, layer_*", "temporary, activation, forward, layer_3"],
        "peakNote": ["Live at the peak, step 3.", "Not live at the peak, step 3.", ""],
    }
    found = called(script, data, *((name, row) for name in words for row in range(3)))
    assert found == [text for texts in words.values() for text in texts]


def test_rows_that_are_copied(script: Script) -> None:
    names = {"kindNames": ["activation"], "phaseNames": ["forward"]}
    data = program(1, model={"steps": 3}, end=[2], kind=[0], phase=[0], **names)
    (text,) = called(script, data, ("table", [0]))
    head, row = (line.split("\t") for line in text.splitlines())
    assert {name: cell for name, cell in zip(head, row, strict=True) if cell} == {
        "bytes": "10", "exclusive": "10", "role": "value", "name": "i0", "what": "activation, forward", "start": "0",
        "end": "2", "allocation": "7", "allocation_name": "arena 7", "offset": "0",
    }  # fmt: skip


def test_sizes_in_words(script: Script) -> None:
    minus = "\N{MINUS SIGN}"
    texts = {
        ("signedSize", -2048): f"{minus}2.00 KiB", ("signedSize", -1): f"{minus}1 B", ("signedSize", 0): "0 B",
        ("signedSize", 1): "+1 B", ("exactSize", -1024): "-1.00 KiB (-1,024 bytes)", ("exactSize", 1023): "1,023 bytes",
        ("exactSize", 1024): "1.00 KiB (1,024 bytes)",
        ("minusSigns", "-5 B, x-3 (-2), then -1"): f"{minus}5 B, x-3 ({minus}2), then {minus}1",
    }  # fmt: skip
    texts |= {("shortSize", n): text for n, text in (
        (0, "0"), (9, "9 B"), (10, "10 B"), (100, "100 B"), (1000, "1000 B"), (1024, "1 KiB"), (1536, "1.5 KiB"),
        (1080, "1.05 KiB"), (10240, "10 KiB"), (100 << 20, "100 MiB"),
    )}  # fmt: skip
    assert called(script, None, *texts) == [*texts.values()]


# -- what is drawn -------------------------------------------------------------------------------


def test_bytes_by_scope_and_phase(script: Script) -> None:
    """Scopes of the same size are in the order of the program; what has no phase is last."""
    data = program(
        4, scope=[1, 3, 2, -1], phase=[0, -1, 1, -1], phaseNames=["forward", "backward"],
        scopes={"name": ["", "a", "b", "c"], "parent": [-1, 0, 0, 0]},
    )  # fmt: skip
    (found,) = called(script, data, ("rollUp", 0, 0))
    assert found["bytes"] == [40, 10, 10, 10]
    assert found["byPhase"] == [10, 10, 20, 10, 0, 0, 0, 10, 0, 0, 0, 10]
    assert found["children"] == [[1, 2, 3], [], [], []]


def test_blocks_of_scopes(script: Script) -> None:
    """Scopes that contain nothing but each other are one block, but for the outermost one; nine rows are shown."""
    scopes = {"name": ["", "net", "layer", "x", "y"], "parent": [-1, 0, 1, 2, 2]}
    (blocks,) = called(script, program(4, scope=[3, 4, 4, 4], scopes=scopes), ("scopes", 40))
    assert [[b[key] for key in ("row", "label", "innermost", "left", "width")] for b in blocks] == [
        [0, "", 0, 0, 40], [1, "net/layer", 2, 0, 40], [2, "y", 4, 0, 30], [2, "x", 3, 30, 10],
    ]  # fmt: skip
    deep = {"name": [f"s{i}" for i in range(25)], "parent": [-1, *(i // 2 * 2 for i in range(24))]}
    (blocks,) = called(script, program(12, scope=[*range(1, 25, 2)], scopes=deep), ("scopes", 120))
    assert {block["row"] for block in blocks} == {*range(9)}


def test_the_stack_of_allocations(script: Script) -> None:
    """Arguments at the bottom, the largest of each category first; buffers in the order of their first steps."""
    allocations = {
        "allocation": [*range(6)], "space": [0, 0, 0, 0, 0, 1], "size": [10, 50, 20, 30, 0, 9],
        "category": [0, 1, 1, 0, 1, 0], "categoryNames": ["temp", "parameter"], "label": [""] * 6,
    }  # fmt: skip
    data = program(4, model={"steps": 9}, allocations=allocations, allocation=[3, 0, 3, 5], offset=[5, 0, 0, 0],
                   size=[10, 20, 5, 9], start=[2, 0, 2, 0], end=[3, 0, 5, 0])  # fmt: skip
    (stack,) = called(script, data, ("stackOf", 0))
    assert [[band["allocation"] for band in group] for group in stack["groups"]] == [[1, 2], [3, 0]]
    assert [(band["bottom"], band["top"]) for band in stack["bands"]] == [(0, 50), (50, 70), (70, 100), (100, 110)]
    assert (stack["total"], stack["base"], stack["buffer"]) == (110, [100, 0, 50, 70, -1, -1], [1, 0, 2])
    shapes = stack["shapes"]
    assert (shapes["bottom"], shapes["top"]) == ([100, 75, 70], [110, 85, 75])  # within its allocation
    assert (shapes["start"], shapes["end"]) == ([0, 2, 2], [0, 3, 5])


def test_colours_of_pixels(script: Script) -> None:
    """Edges have a colour of their own, and so has what is not highlighted; what is free is hatched or plain."""
    rows = {"width": 4, "height": 2, "hatch": 3, "plain": [90, 91], "lines": [80, 81]}
    found = called(script, None, ("tones", [5, 3], [0, 0, 0, 1, 0, 2], ["3 1", "5 1"]), (
        "shaded", [-1, 1, 2, 0, 0, -2, 0, 0], [8, 6], [*range(12)], rows))  # fmt: skip
    assert found == [[8, 6], [9, 8, 6, 80, 91, 7, 81, 91]]


def test_colours_of_layers(script: Script) -> None:
    """Only those that there are; of more than 96, neighbours share one."""
    data = program(3, layerIndex=[0, 2, -1], layer=[0, 0, -1], layerNames=["l*"], phase=[1, -1, 1],
                   phaseNames=["forward", "backward"])  # fmt: skip
    layers, phases = called(script, data, ("codingOf", "layer"), ("codingOf", "phase"))
    assert [(item["label"], item["color"]) for item in layers["items"]] == [
        ("layer 0", 0), ("layer 2", 1), ("no layer", "--p-unknown"),
    ]  # fmt: skip
    assert layers["code"] == [0, 1, 2]
    assert ([item["label"] for item in phases["items"]], phases["code"]) == (["backward", "not known"], [0, 1, 0])
    (many,) = called(script, program(101, layerIndex=[*range(101)]), ("codingOf", "layer"))
    labels = [item["label"] for item in many["items"]]
    assert [labels[0], *labels[-2:]] == ["layers 0 to 1", "layers 98 to 99", "layer 100"]
    assert many["code"] == [i // 2 for i in range(101)]


def test_points_of_a_line(script: Script) -> None:
    """The lowest and the highest of each group in their order, and the end of the last step."""
    values = [5, 1, 9, 9, 2, 2, 3, 7]
    calls = ("decimated", values, 0, 7, 8), ("decimated", values, 1, 3, 99), ("envelope", values, 3), (
        "envelope", values, 99)  # fmt: skip
    assert called(script, None, *calls) == [
        [[0, 1, 2, 4, 6, 7, 8], [5, 1, 9, 2, 3, 7, 7]],
        [[1, 2, 3, 4], [1, 9, 9, 9]],
        [5, 9, 7],
        values,
    ]


def test_the_next_plateau(script: Script) -> None:
    """The highest is the first one; the next one is that which is nearest."""
    spaces = [{"plateaus": [{"first_step": step} for step in (5, 2, 8)]}]
    data = program(0, model={"steps": 10, "spaces": spaces})
    moves = {(3, 1): [5], (3, -1): [2], (0, 1): [2], (9, -1): [8], (5, 1): [8], (8, 1): [], (2, -1): []}
    assert called(script, data, *(("plateaus", *move) for move in moves)) == [*moves.values()]


def test_moves_of_the_selection(script: Script) -> None:
    """A tenth of few steps is one; a buffer is shown at the nearest step of its life, or at any if it has none."""
    data = program(2, model={"steps": 10, "spaces": [{}, {}]}, start=[2, -1], end=[5, -1])
    calls = (
        ("goBy", {"step": 5, "range": [4, 6]}, 0.1), ("nextSpace", {"space": 0}), ("nextSpace", {"space": 1}),
        *(("select", {"step": step, "range": [0, 9]}, buffer) for step, buffer in ((9, 0), (0, 0), (3, 0), (7, 1))),
    )  # fmt: skip
    step, *spaces = (state for state in called(script, data, *calls))
    assert (step["step"], [state["space"] for state in spaces[:2]]) == (6, [1, 0])
    assert [state["step"] for state in spaces[2:]] == [5, 2, 3, 7]
    states = [{"step": step, "range": [10, 20]} for step in (0, 12, 20)]
    assert called(script, None, *(("centre", state) for state in states)) == [15, 12, 20]


def test_zooming_always_changes_the_range(script: Script) -> None:
    """By a step at least, unless one or all are shown."""
    ranges = [((4, 4), 1.1), ((4, 6), 1.1), ((4, 6), 0.9), ((4, 5), 0.9), ((4, 4), 0.5), ((0, 9), 2)]
    found = called(script, None, *(("zoomed", shown, 4, factor, 10) for shown, factor in ranges))
    assert [last + 1 - first for first, last in found] == [2, 4, 2, 1, 1, 10]


def test_bytes_in_use_of_an_account(script: Script) -> None:
    names = [("hbm", 0, True), ("vmem", 0, False), ("hbm", 1, True), ("host", 0, False)]
    spaces = [dict(zip(("memory_space", "page", "in_device_memory"), space, strict=True)) for space in names]
    data = program(0, model={"steps": 2, "spaces": spaces}, usage=[[1, 2], [], [10, 0], [5, 5]])
    accounts = {"device_total": [0, 2], "hbm": [0], "hbm page 1": [2], "vmem": [1], "smem": []}
    assert called(script, data, *(("spacesOf", account) for account in accounts)) == [*accounts.values()]
    usage = called(script, data, ("usageOf", [0, 2]), ("usageOf", [3]), ("usageOf", [0, 1]), ("usageOf", [1]))
    assert usage == [[11, 2], [5, 5], None, None]


def test_the_axis_of_bars(script: Script) -> None:
    """It ends where the largest program does, at the capacity, or at most a quarter beyond it."""
    cases = {(100, 50): 100, (100, 110): 110, (100, 500): 125, (None, 500): 500, (0, 500): 500, (None, None): 1}
    rows = [[{"available": None, "must_fit": None}, {"available": a, "must_fit": n}] for a, n in cases]
    assert [scale["high"] for scale in called(script, None, *(("scaleOf", r) for r in rows))] == [*cases.values()]


# -- what is drawn on a canvas -------------------------------------------------------------------


def bands(found: list[Any]) -> list[Any]:
    """Variable, left and right edge of each band of a phase."""
    wide = [(color, box) for color, what, *box in found if what == "fillRect" and box[1] == 20]
    return [[color.split("(")[1].split(",")[0], x, x + width] for color, (x, _, width, _) in wide]


def test_bands_of_phases(script: Script) -> None:
    """Those that begin before what is visible, too. Many short ones are the phase that most steps have, or none."""
    names = ["forward", "backward"]
    few = {"names": names, "phase": [0, 1, 0], "first": [0, 15, 25], "last": [14, 19, 40]}
    many = {"names": names, "phase": [1, 0, 1, 0], "first": [0, 70, 85, 87], "last": [69, 84, 86, 99]}
    marks = [{"range": r, "phases": p, "fixed": 0} for r, p in (([10, 29], few), ([0, 149], many))]
    found = called(script, None, ("bands", marks[0], 200), ("bands", marks[1], 18))
    assert bands(found[0]) == [["--p-forward", 0, 50], ["--p-backward", 50, 100], ["--p-forward", 150, 200]]
    assert bands(found[1]) == [["--p-backward", 0, 6], ["--p-forward", 6, 12]]


def test_marks_of_a_timeline(script: Script) -> None:
    """A plateau that began before is marked in the middle of what is visible of it; only the peak is filled."""
    plateaus = [{"first_step": first, "last_step": last, "bytes": 50} for first, last in ((20, 21), (2, 12))]
    marks = {"range": [5, 14], "top": 100, "plateaus": plateaus, "levels": [], "fixed": 0, "step": 9, "bytes": 10}
    found, peak = called(script, None, ("marks", marks, 200), ("marks", marks | {"range": [15, 24]}, 200))
    assert [args[0] for _, what, *args in found if what == "moveTo"] == [80, 90.5]
    assert [what for _, what, *_ in found].count("fill") == 1  # the dot at the step
    assert [what for _, what, *_ in peak].count("fill") == 1


def test_names_of_allocations(script: Script) -> None:
    """Where there is no room for all, the largest have theirs. What is visible decides between them and categories."""
    allocations: Json = {
        "allocation": [*range(5)], "space": [0] * 5, "size": [20, 4, 4, 6, 6], "category": [0, 1, 1, 2, 2],
        "categoryNames": ["parameter", "constant", "live_out"], "label": ["params['w']", "c1", "c2", "o1", "o2"],
    }  # fmt: skip
    halves: Json = {"allocation": [0, 1], "space": [0, 0], "size": [500, 500], "category": [0, 0],
                    "categoryNames": ["parameter"], "label": ["w1", "w2"]}  # fmt: skip
    views = [(allocations, 0, 40, 40), (halves, 600, 700, 100), (halves, 0, 1000, 20)]
    texts = []
    for table, bottom, top, height in views:
        view = {"bottom": bottom, "top": top, "height": height}
        (found,) = called(script, program(0, allocations=table), ("gutter", view))
        texts.append([(args[0], args[2]) for _, what, *args in found if what == "fillText"])
    assert texts == [[("params['w']", 30), ("outputs", 6.5)], [("w2", 43.5), ("500 B", 56.5)], [("parameters", 10)]]


def test_names_of_buffers_are_legible(script: Script) -> None:
    box = {"left": 0, "right": 100, "top": 0, "bottom": 20}
    boxes = [{**box, "buffer": 0, "color": [250, 250, 0]}, {**box, "buffer": 1, "color": [20, 20, 90]}]
    (found,) = called(script, program(2), ("names", boxes))
    assert [(color, text) for color, what, text, *_ in found if what == "fillText"] == [
        ("#14181d", "i0"), ("#f2f4f6", "i1"),
    ]  # fmt: skip


def test_partners_of_buffers(script: Script) -> None:
    """One that the file leaves out is no buffer without a partner."""
    (found,) = called(script, None, ("partners", 3, [0, 1, -1], [2, -1, 0]))
    assert found["without"] == [[2], [1]]
    same, left_out, none = (
        "the same buffer here", "has the buffer too, but this file leaves it out", "has no such buffer",
    )  # fmt: skip
    assert found["words"] == [[same, left_out, none], [left_out, none, same]]
