"""Origins of buffers, on training steps for which the shapes of the buffers tell where they belong."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attacks
import numpy as np
import pyarrow as pa
import pytest
from attacks import record, value
from conftest import DUMPS

import xlamem
from xlamem import compute
from xlamem.compute import activations, interventions
from xlamem.compute import origins as module
from xlamem.compute.buffer_names import source_columns
from xlamem.compute.callers import Functions, callers_outside, lines_of_model
from xlamem.compute.op_names import ends_in_move, is_control_flow, is_move, layers, phases, plain_names, shortened_paths
from xlamem.compute.program import source_lines

DATA = Path(__file__).parent.parent / "data" / "origins"
PROGRAM = (DATA / "program.py").read_text().splitlines()
TIMES, FEATURES, VOCABULARY, LAYERS = 96, 640, 1152, 5
PROGRAMS = sorted(path.name.removesuffix(".tar.gz") for path in DATA.glob("*.tar.gz"))
LARGE = 16 << 10


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("origins")
    for name in PROGRAMS:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            archive.extractall(root / name, filter="data")
    return {name: root / name for name in PROGRAMS}


def union(ranges: Iterable[tuple[int, int]]) -> int:
    """Number of bytes in any of the address ranges."""
    size = reached = 0
    for begin, end in sorted(ranges):
        size += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return size


def large_rows(dump: xlamem.Dump) -> list[dict[str, Any]]:
    return [r for r in xlamem.live_set(dump).to_pylist() if r["role"] == "value" and r["size"] >= LARGE]


def true_blocks(shape: str) -> str | None:
    """Return a pattern that the name of a buffer of this shape must match; None if the shape does not tell."""
    dimensions = [int(n) for n in re.findall(r"\d+", shape[shape.find("[") : shape.find("]")])]
    if FEATURES in dimensions or FEATURES // 2 in dimensions:  # which may be divided among devices
        return r"/mlp/|\['up'\]|\['down'\]"
    if dimensions.count(TIMES) == 2:
        return "/attention/"
    if VOCABULARY in dimensions:
        in_loss = r"log_softmax|take_along_axis|jvp\(\)+/(gather|scatter-add|reduce\w*|neg|mul|div|exp|sub)"
        return rf"unembed|embedding|{in_loss}"
    return None


def lines_of(function: str) -> range:
    """Return the numbers of the lines of a function of the program."""
    first = next(i for i, line in enumerate(PROGRAM, 1) if line.startswith(f"def {function}("))
    last = next(i for i, line in enumerate(PROGRAM[first:], first + 1) if line and not line.startswith(" "))
    return range(first, last)


@pytest.mark.parametrize("name", PROGRAMS)
def test_large_buffers_have_their_true_block(name: str, folders: dict[str, Path]) -> None:
    rows, judged = large_rows(xlamem.read(folders[name])), 0
    for row in rows:
        assert row["op_name"] is not None, row
        assert row["origin"] != "none", row
        pattern = true_blocks(row["shape"])
        if pattern is None or row["origin"] == "user":
            continue
        judged += row["size"]
        # The update of parameters is outside of all scopes.
        assert re.search(pattern, row["op_name"]) or re.fullmatch(r"jit\(train_step\)/(sub|mul)", row["op_name"]), row
        if row["argument"] is None and "/mlp/" in row["op_name"]:
            assert row["source_line"] in lines_of("experts" if name.endswith("-moe") else "mlp"), row
        if row["argument"] is None and "/attention/" in row["op_name"]:
            assert row["source_line"] in lines_of("attention"), row
    assert judged > 0.5 * sum(row["size"] for row in rows)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.endswith("-scan")])
def test_residuals_of_a_scan_have_the_names_of_the_body(name: str, folders: dict[str, Path]) -> None:
    rows = sorted(large_rows(xlamem.read(folders[name])), key=lambda r: -r["size"])
    stacked = [r for r in rows if r["kind"] == "residual of a scan"]
    assert {r["iterations"] for r in stacked} == {LAYERS}
    assert all(r["phase"] == "forward" and "/while/body/" in r["op_name"] for r in stacked)
    assert len({r["op_name"] for r in stacked}) > 3
    assert rows[0] in stacked
    assert sum(r["size"] for r in stacked) > 0.3 * sum(r["size"] for r in rows if r["category"] == "temp")


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n.endswith("-unrolled")])
def test_layers_are_numbered(name: str, folders: dict[str, Path]) -> None:
    rows = [r for r in large_rows(xlamem.read(folders[name])) if r["category"] == "temp" and r["layer"]]
    activations = [r for r in rows if "/mlp/" in r["op_name"] and r["phase"] == "forward"]
    assert sorted({r["layer_index"] for r in activations}) == list(range(LAYERS))
    assert {r["layer"] for r in activations} == {"layer_*"}
    for row in rows:
        assert re.search(rf"layer_{row['layer_index']}\b|\['layers'\]\[{row['layer_index']}\]", row["op_name"]), row


@pytest.mark.parametrize("name", PROGRAMS)
def test_only_checkpointed_programs_recompute(name: str, folders: dict[str, Path]) -> None:
    named = {r["phase"] for r in xlamem.live_set(xlamem.read(folders[name])).to_pylist()}
    assert {"forward", "backward"} & named
    everything = module.origins(program(folders[name]))
    codes, names = everything.names.op_name
    used = set(phases(names.take(pa.array(codes[everything.source[everything.source >= 0]]))).to_pylist())
    assert ("recompute" in used) == name.endswith("-remat")


def program(folder: Path) -> Any:
    from xlamem.compute.program import program

    return program(xlamem.read(folder))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_the_hlo_text_names_are_fewer_but_not_others(name: str, folders: dict[str, Path]) -> None:
    (source,) = xlamem.find(folders[name])
    members = [p for p in folders[name].iterdir() if "buffer-assignment" in p.name or "live-range" in p.name]
    alone = folders[name].parent / f"{name}-without-hlo"
    alone.mkdir(exist_ok=True)
    for path in members:
        (alone / path.name).write_bytes(path.read_bytes())
    rows = large_rows(xlamem.read(alone))
    assert all(r["origin"] != "hlo" for r in rows)
    for row in rows:
        pattern = true_blocks(row["shape"])
        if row["origin"] in ("own", "argument", "operand", "slot") and row["op_name"] and pattern:
            is_weak = is_move(pa.array([row["op_name"]]))[0]
            known = re.search(pattern, row["op_name"]) or re.fullmatch(r"jit\(train_step\)/(sub|mul)", row["op_name"])
            assert known or is_weak, row
    assert len(rows) == len(large_rows(xlamem.read(source)))


def test_the_hlo_text_is_read_only_if_needed(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []
    original = module.hlo_body
    monkeypatch.setattr(module, "hlo_body", lambda tables: reads.append(tables.name) or original(tables))
    xlamem.live_set(xlamem.read(folders["cpu-scan"]))
    assert len(reads) == 1
    monkeypatch.setattr(module, "MAX_SHARE", 1.0)
    assert "hlo" not in xlamem.live_set(xlamem.read(folders["cpu-scan"]))["origin"].to_pylist()
    assert len(reads) == 1


def test_attribution_by_layer_phase_and_kind(folders: dict[str, Path]) -> None:
    dump = xlamem.read(folders["v5e-unrolled"])
    total = sum(xlamem.live_set(dump)["bytes"].to_pylist())
    rows = xlamem.attribution(dump, ("layer", "phase", "kind", "origin")).to_pylist()
    assert sum(r["bytes"] for r in rows) == total
    assert {"layer_0", "layer_4", "layers[3]"} <= {r["layer"] for r in rows}
    folded = xlamem.attribution(dump, "layer", fold=True).to_pylist()
    assert {"layer_*", "layers[*]"} <= {r["layer"] for r in folded}


def test_custom_calls_that_compute_do_not_move_bytes() -> None:
    """TopK has no metadata, but its results are not its operand."""
    call = 'from instruction: %custom-call.1 = (f32[8], s32[8]) custom-call(f32[64] %p), custom_call_target="TARGET"'
    parameter = 'from instruction: %p = f32[64] parameter(0), metadata={op_name="x"}'
    text = (
        "BufferAssignment:\nallocation 0: size 256, parameter 0, shape |f32[64]| at ShapeIndex {}:\n"
        " value: <1 p @0> (size=256,offset=0): f32[64]\nallocation 1: size 64, preallocated-temp:\n"
        " value: <2 custom-call.1{0} @0> (size=32,offset=0): f32[8]\n"
        " value: <3 custom-call.1{1} @0> (size=32,offset=32): s32[8]\n"
        "\nTotal bytes used: 320 (320B)\n\nUsed values:\n"
        f"<1 p @0>\n positions:\n  p\n uses:\n  custom-call.1, operand 0\n {parameter}\n"
        f"<2 custom-call.1{{0}} @0>\n positions:\n  custom-call.1 {{0}}\n uses:\n {call}\n"
        f"<3 custom-call.1{{1}} @0>\n positions:\n  custom-call.1 {{1}}\n uses:\n {call}\n"
    )
    for target, origin in (("__gpu$TopK", "none"), ("ConcatBitcast", "argument")):
        dump = xlamem.read(text.replace("TARGET", target).encode())
        assert xlamem.buffer(dump, 2).value["origin"] == origin
        assert xlamem.buffer(dump, 1).value["argument"] == 0


def test_only_the_first_result_of_a_custom_call_is_no_workspace(make: Callable[..., Path]) -> None:
    call = '(s8[512], s8[1024]) custom-call(%x), custom_call_target="quantize"'
    values = [value(1, "call{0}", 512, 0, "s8[512]"), value(2, "call{1}", 1024, 512, "s8[1024]"), value(3, "one", 512)]
    records = [record(1, "call{0}", call), record(2, "call{1}", call), record(3, "one", "s8[512] custom-call(%x)")]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=["call{0}:0-3", "call{1}:0-3", "one{}:0-3"])))
    assert [xlamem.buffer(dump, i).value["kind"] for i in (1, 2, 3)] == [None, "scratch", None]


LOOP = """\
%body (t: (f32[2], f32[2])) -> (f32[2], f32[2]) {
  %t = (f32[2], f32[2]) parameter(0)
  %g.0 = f32[2] get-tuple-element(%t), index=0
  %g.1 = f32[2] get-tuple-element(%t), index=1
  %c = f32[2] copy(%g.0)
  %new = f32[2] add(%c, %c), metadata={op_name="jit(f)/while/body/add"}
  ROOT %r = (f32[2], f32[2]) tuple(ROOT)
}

ENTRY %main (x: f32[2]) -> (f32[2], f32[2]) {
  %x = f32[2] parameter(0), metadata={op_name="x"}
  %a = f32[2] add(%x, %x), metadata={op_name="jit(f)/first/add"}
  %b = f32[2] add(%x, %x), metadata={op_name="jit(f)/second/add"}
  %init = (f32[2], f32[2]) tuple(%a, %b)
  ROOT %w = (f32[2], f32[2]) while(%init), condition=%cond, body=%body
}
"""


@pytest.mark.parametrize(
    ("root", "wanted"),
    [
        ("%g.0, %new", "jit(f)/first/add"),
        ("%g.0, %g.1", "jit(f)/first/add"),
        ("%new, %g.1", "jit(f)/while/body/add"),
        ("%g.1, %new", "jit(f)/while/body/add"),
        ("%t#0, %new", "jit(f)/first/add"),
        ("%t#1, %new", "jit(f)/while/body/add"),
    ],
)
def test_an_element_that_a_loop_changes(root: str, wanted: str, make: Callable[..., Path]) -> None:
    """It has the name of what the body writes there; an element that is passed on, that of the initial value."""
    text = attacks.hlo(LOOP.replace("ROOT)", f"{root})"))
    members = attacks.dump([value(1, "c")], records=[record(1, "c", "f32[2] copy(%g.0)")], ranges=["c{}:0-3"], hlo=text)
    found = xlamem.buffer(xlamem.read(make(members)), 1).value
    assert (found["op_name"], found["origin"]) == (wanted, "hlo")


@pytest.mark.parametrize("operands", ["%zeros, %g.0", "%g.0, %zeros"])
def test_initial_zeros_in_the_body_of_a_loop(operands: str, make: Callable[..., Path]) -> None:
    """XLA selects them in the first iteration, without a name; the buffer is what the loop passes on."""
    zeros = f"  %zeros = f32[2] broadcast(%zero)\n  %c = f32[2] select(%is_first, {operands})"
    text = attacks.hlo(LOOP.replace("  %c = f32[2] copy(%g.0)", zeros).replace("ROOT)", "%new, %g.1)"))
    selected = record(1, "c", f"f32[2] select(%is_first, {operands})")
    members = attacks.dump([value(1, "c")], records=[selected], ranges=["c{}:0-3"], hlo=text)
    found = xlamem.buffer(xlamem.read(make(members)), 1).value
    assert (found["op_name"], found["origin"]) == ("jit(f)/while/body/add", "hlo")


def test_a_computation_that_is_called_twice(make: Callable[..., Path]) -> None:
    """Its parameter has the name of what the first call passes."""
    called = "%body (p: f32[2]) -> f32[2] {\n  %p = f32[2] parameter(0)\n  ROOT %c = f32[2] copy(%p)\n}\n"
    calls = "".join(
        f"  %{x} = f32[2] add(%x, %x), metadata={{op_name=\"jit(f)/{x}/add\"}}\n"
        f"  %call.{x} = f32[2] call(%{x}), to_apply=%body\n"
        for x in ("a", "b", "c2")
    )
    entry = f"ENTRY %main (x: f32[2]) -> f32[2] {{\n  %x = f32[2] parameter(0)\n{calls}}}\n"
    text = attacks.hlo(called, entry)
    members = attacks.dump([value(1, "c")], records=[record(1, "c", "f32[2] copy(%p)")], ranges=["c{}:0-3"], hlo=text)
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == "jit(f)/a/add"


@pytest.mark.parametrize("first", ["", "%other (o: f32[2]) -> f32[2] {\n  ROOT %o = f32[2] parameter(0)\n}\n\n"])
def test_a_custom_call_of_a_computation_has_the_name_of_its_root(first: str, make: Callable[..., Path]) -> None:
    """Also if the computation is the first one."""
    called = '%body (p: f32[2]) -> f32[2] {\n  %p = f32[2] parameter(0)\n  ROOT %r = f32[2] negate(%p), METADATA\n}\n'
    call = 'f32[2] custom-call(%x), custom_call_target="MoveToHost", called_computations={%body}'
    entry = f"ENTRY %main (x: f32[2]) -> f32[2] {{\n  %x = f32[2] parameter(0)\n  ROOT %c = {call}\n}}\n"
    text = attacks.hlo(first + called.replace("METADATA", 'metadata={op_name="jit(f)/inner/neg"}'), entry)
    members = attacks.dump([value(1, "c")], records=[record(1, "c", call)], ranges=["c{}:0-3"], hlo=text)
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == "jit(f)/inner/neg"


@pytest.mark.parametrize(
    ("at_done", "with_hlo", "wanted"),
    [
        (', metadata={op_name="jit(f)/two/gather"}', True, "jit(f)/two/gather"),
        (', metadata={op_name="jit(f)/while"}', True, "jit(f)/three/gather"),
        ("", True, "jit(f)/three/gather"),
        ("", False, None),
    ],
)
def test_an_asynchronous_call_of_a_computation(
    at_done: str, with_hlo: bool, wanted: str | None, make: Callable[..., Path]
) -> None:
    """A gather on a SparseCore is no copy of its operand, and its computation may be that of another gather too."""
    call = 'f32[2] custom-call(%p), custom_call_target="TODO(b/1)", called_computations={%shared}'
    text = f"""\
%shared (q: f32[2]) -> f32[2] {{
  %q = f32[2] parameter(0)
  ROOT %r = f32[2] negate(%q), metadata={{op_name="jit(f)/three/gather"}}
}}

%wrapped (p: f32[2]) -> f32[2] {{
  %p = f32[2] parameter(0)
  ROOT %c = {call}
}}

ENTRY %main (x: f32[2]) -> f32[2] {{
  %x = f32[2] parameter(0)
  %a = {attacks.op_name("jit(f)/one/dot")}
  %start = ((f32[2]), f32[2], u32[]) async-start(%a), calls=%wrapped
  ROOT %done = f32[2] async-done(%start){at_done}
}}
"""
    records = [
        record(1, "a", attacks.op_name("jit(f)/one/dot"), uses="  c, operand 0\n  done, operand 0 {0,0}"),
        record(2, "c", call, "  c\n  start {1}\n  done"),
    ]
    values, ranges = [value(1, "a"), value(2, "c", offset=8)], ["a{}:0-3", "c{}:1-3"]
    members = attacks.dump(values, records=records, ranges=ranges, hlo=attacks.hlo(text) if with_hlo else "")
    assert xlamem.buffer(xlamem.read(make(members)), 2).value["op_name"] == wanted


GATHER = """\
ENTRY %main (x: f32[2]) -> (f32[4], s32[4]) {
  %x = f32[2] parameter(0), metadata={op_name="x"}
  %a = f32[2] add(%x, %x), metadata={op_name="jit(f)/first/add"}
  %b = s32[2] convert(%a), metadata={op_name="jit(f)/second/floor"}
  %one = (f32[2], f32[4]) all-gather-start(%a), dimensions={0}
  %start = ((f32[2], s32[2]), (f32[4], s32[4])) all-gather-start(%a, %b), dimensions={0}
  ROOT %done = (f32[4], s32[4]) all-gather-done(%start)
}
"""


@pytest.mark.parametrize("n", [1, 2, 30])
def test_a_chain_of_copies_has_the_name_of_its_beginning(n: int, make: Callable[..., Path]) -> None:
    """Whatever its length, and also where the copies are listed before it."""
    chain = ["a", *(f"copy.{i}" for i in range(1, n + 1))]
    records = {"a": (attacks.op_name("jit(f)/model/add"), "  copy.1, operand 0")}
    for before, name, after in zip(chain, chain[1:], [*chain[2:], "end"], strict=False):
        records[name] = f"f32[2]{{0}} copy(%{before})", f"  {after}, operand 0"
    for order in (chain, chain[::-1]):
        members = attacks.dump(
            [value(i, name, offset=8 * i) for i, name in enumerate(order)],
            records=[record(i, name, records[name][0], uses=records[name][1]) for i, name in enumerate(order)],
            ranges=[f"{name}{{}}:0-1" for name in order],
        )
        rows = xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()
        assert [row["op_name"] for row in rows] == ["jit(f)/model/add"] * (n + 1)


@pytest.mark.parametrize("operands", [False, True])
def test_results_of_a_started_operation(*, operands: bool, make: Callable[..., Path]) -> None:
    """The result {1,0} is that of the first operand, {1,1} that of the second one."""
    gather = "((f32[2], s32[2]), (f32[4], s32[4])) all-gather-start(%a, %b), dimensions={0}"
    values = [value(i, f"start{{1,{i}}}", 16, 16 * i, f"{t}32[4]") for i, t in enumerate("fs")]
    values += [value(2, "one{1}", 16, 32, "f32[4]"), value(3, "done{1}", 16, 48, "s32[4]")]
    values += [value(4, "a", 8, 64, "f32[2]")]
    records = [record(i, f"start{{1,{i}}}", gather) for i in range(2)]
    records += [record(2, "one{1}", "(f32[2], f32[4]) all-gather-start(%a), dimensions={0}")]
    records += [record(3, "done{1}", "(f32[4], s32[4]) all-gather-done(%start)")]
    a = 'f32[2] add(%x, %x), metadata={op_name="jit(f)/first/add"}'
    uses = "  start, operand 0\n  one, operand 0" if operands else ""
    records += [record(4, "a", a, uses=uses)]
    ranges = ["start{1,0}:0-3", "start{1,1}:0-3", "one{1}:0-3", "done{1}:0-3", "a{}:0-3"]
    members = attacks.dump(values, records=records, ranges=ranges, hlo=attacks.hlo(GATHER))
    dump = xlamem.read(make(members))
    found = [xlamem.buffer(dump, i).value for i in range(4)]
    assert [f["op_name"] for f in found] == ["jit(f)/first/add", "jit(f)/second/floor"] * 2
    assert found[2]["origin"] == ("operand" if operands else "hlo")


@pytest.mark.parametrize("names", ["jit(f)/a/add jit(f)/b/add", "jit(f)/copy jit(f)/reshape"])
@pytest.mark.parametrize(("end", "is_known"), [(4, True), (9, True), (10, False)])
def test_a_loop_carry_after_two_buffers_of_its_slot(
    end: int, is_known: bool, names: str, make: Callable[..., Path]
) -> None:
    """Only buffers that touch its live range count, although another one starts later than one that does.

    Where these are moved from an unknown origin, that is all that is known of both.
    """
    first, second = names.split()
    wanted = first if is_known else None
    records = [
        record(i, name, f'f32[16] {text.rpartition("/")[2]}(%p, %p), metadata={{op_name="{text}"}}')
        for i, name, text in ((1, "x", first), (2, "y", second))
    ]
    records.append(record(3, "w", "f32[16] parameter(0)"))
    values = [value(i, name, 64, 0, "f32[16]") for i, name in enumerate(("x", "y", "w"), 1)]
    ranges = ["x{}:0-10", f"y{{}}:2-{end}", "w{}:10-14"]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=ranges, steps=16)))
    found = xlamem.buffer(dump, 3).value
    assert (found["op_name"], found["origin"]) == (wanted, "slot" if wanted else "none")


def test_printed_source_lines_are_those_of_the_instruction() -> None:
    """The stack frame is only looked up where no file is printed."""
    frames = pa.table({"id": [1, 2], "file": ["frame.py", None], "line": pa.array([11, 22], pa.int64())})
    files = pa.chunked_array([["own.py", None, None, "own.py", None]])
    lines, ids = np.array([3, -1, 4, -1, 5]), np.array([1, 1, 7, 2, 2])
    found = source_lines(files, lines, ids, frames)
    assert found["source_file"].to_pylist() == ["own.py", "frame.py", None, "own.py", None]
    assert found["source_line"].to_pylist() == [3, 11, 4, None, 22]


def test_lines_of_libraries_are_those_of_their_callers() -> None:
    """Of the innermost one outside, if there is any; also if the frames are damaged."""
    files = ["/m/train.py", "/v/site-packages/flax/a.py", "C:\\dist-packages\\b.py", "/m/model.py", None]
    files.append("/lib/python3.9/c.py")
    parents = pa.array([None, 1, 2, 3, 2, 7, 6], pa.int64())
    frames = pa.table({"id": range(1, 8), "parent": parents, "file": [*files, files[1]], "line": range(11, 18)})
    assert callers_outside(frames).tolist() == [0, 0, 0, 3, 0, -1, -1]
    printed = [*files, files[1], files[0], files[1]]
    lines = {"source_file": pa.array(printed), "source_line": pa.array(range(11, 20))}
    found = lines_of_model(lines, np.array([1, 2, 3, 4, 5, 6, 7, 2, 99]), frames)
    assert found["source_file"].to_pylist() == [files[i] for i in (0, 0, 0, 3, 4, 5, 1, 0, 1)]
    assert found["source_line"].to_pylist() == [11, 11, 11, 14, 15, 16, 17, 18, 19]
    assert lines_of_model(lines, np.full(9, 2), frames.slice(0, 0)) is lines


@pytest.mark.parametrize("n", [1, 2, 3, 100])
def test_callers_of_a_long_chain(n: int) -> None:
    files = ["/m/a.py", *["/v/site-packages/b.py"] * n]
    frames = pa.table({"id": range(n + 1), "parent": pa.array([None, *range(n)], pa.int64()), "file": files})
    assert callers_outside(frames).tolist() == [0] * (n + 1)


MODEL, LIBRARY = "/m/a.py", "/v/site-packages/b.py"


def functions(parents: list[int | None], names: list[str | None], frames: list[int], library: int = 0) -> Functions:
    """Return the functions on the stacks of values; of the frames 1, 2, …, number `library` belongs to a library."""
    ids = range(1, len(parents) + 1)
    files = [LIBRARY if i == library else MODEL for i in ids]
    lines = pa.array([10 * i for i in ids], pa.int64())
    table = {"id": ids, "parent": pa.array(parents, pa.int64()), "file": files, "line": lines, "function": names}
    return Functions(pa.table(table), np.array(frames))


CHAIN: tuple[list[int | None], list[str | None]] = [None, 1, 2, 3, 2], ["main", "f.<locals>.loss", "block", "g", "h"]


@pytest.mark.parametrize(
    ("weights", "library", "found"),
    [
        ([8, 0, 2], 0, ("loss", [True, True, True])),  # block has too little
        ([9, 1, 0], 0, ("g", [True, False, False])),
        ([9, 1, 0], 4, ("block", [True, True, False])),
        ([5, 4, 1], 0, ("block", [True, True, False])),
        ([0, 0, 1], 0, ("h", [False, False, True])),
        ([0, 0, 1], 5, ("loss", [True, True, True])),
    ],
)
def test_the_innermost_function_of_a_loop(weights: list[int], library: int, found: tuple[str, list[bool]]) -> None:
    """Values are computed by g, block and h. Their callers are block, loss, and loss."""
    function = functions(*CHAIN, [4, 3, 5], library).innermost(np.array(weights), 0.9, in_loop=True)
    assert function is not None
    assert (function.name, function.calls.tolist()) == found


def test_functions_without_a_name_or_a_frame() -> None:
    unknown = functions([None, 1], [None, None], [2, -1, 9])
    assert unknown.innermost(np.array([1, 1, 1]), 0.9, in_loop=True) is None
    known = functions([None, 1], ["f", "g"], [2, -1, 9])
    assert known.innermost(np.array([1, 1, 1]), 0.9, in_loop=True) is None
    function = known.innermost(np.array([9, 1, 0]), 0.9, in_loop=True)
    assert function is not None
    assert (function.name, function.calls.tolist(), function.frames.tolist()) == ("g", [True, False, False], [2])


def test_functions_of_a_damaged_table() -> None:
    """Callers in a cycle, and a stack that is deeper than any."""
    assert functions([2, 1], ["f", "g"], [1, 2]).innermost(np.array([1, 1]), 0.9, in_loop=True) is not None
    n = 3000
    deep = functions([None, *range(1, n)], ["f", *["g"] * (n - 1)], [n, 2])
    function = deep.innermost(np.array([1, 1]), 0.9, in_loop=False)
    assert function is not None
    assert (function.name, function.calls.tolist(), len(function.frames)) == ("g", [True, True], n - 1)


def test_a_buffer_of_a_library_has_the_line_of_the_model(make: Callable[..., Path]) -> None:
    """Its phase is still that of the library."""
    tables = 'FileNames\n1 "/m/train.py"\n2 "/v/site-packages/optax/a.py"\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
    tables += "".join(f"{i} {{file_name_id={i} function_name_id=1 line={i}7}}\n" for i in (1, 2))
    tables += "\nStackFrames\n1 {file_location_id=1 parent_frame_id=1}\n2 {file_location_id=2 parent_frame_id=2}\n"
    text = attacks.hlo("ENTRY %main () -> f32[2] {\n}\n", header=f"\n{tables}\n")
    add = 'f32[16] add(%p, %p), metadata={op_name="jit(f)/mul" stack_frame_id=2}'
    members = attacks.dump([value(1, "a", 64)], records=[record(1, "a", add)], ranges=["a{}:0-1"], hlo=text)
    (row,) = xlamem.live_set(xlamem.read(make(members))).to_pylist()
    assert (row["source_file"], row["source_line"], row["phase"]) == ("/m/train.py", 17, "optimizer")


@pytest.mark.parametrize("product", ["jit(f)/x/mul", "jit(f)/transpose(jvp(x))/mul"])
def test_an_output_of_a_fusion_has_the_name_of_its_element(product: str, make: Callable[..., Path]) -> None:
    """The op_name of the fusion is that of another one, even if all temporaries are clear. So is its phase."""
    fused = """%fused (a: f32[16]) -> (f32[16], f32[16]) {
  %a = f32[16] parameter(0)
  %m = f32[16] multiply(%a, %a), metadata={op_name="jit(f)/x/mul"}
  %s = f32[16] sine(%a), metadata={op_name="jit(f)/y/sin"}
  ROOT %t = (f32[16], f32[16]) tuple(%m, %s)
}
""".replace("jit(f)/x/mul", product)
    called = f'(f32[16], f32[16]) fusion(%t.1), kind=kLoop, calls=%fused, metadata={{op_name="{product}"}}'
    add = 'f32[16] add(%p, %p), metadata={op_name="jit(f)/z/add"}'
    entry = f"ENTRY %main () -> f32[16] {{\n  %t.1 = {add}\n  ROOT %f = {called}\n}}\n"
    allocations = "allocation 0: size 64, maybe-live-out:\n" + value(1, "f{1}", 64, shape="f32[16]")
    allocations += "allocation 1: size 64, preallocated-temp:\n"
    records = [record(1, "f{1}", called), record(2, "t.1", add)]
    members = attacks.dump(
        [value(2, "t.1", 64, shape="f32[16]")],
        allocations=allocations,
        records=records,
        ranges=["f{1}:2-4", "t.1{}:0-2"],
        hlo=attacks.hlo(fused, entry),
    )
    rows = xlamem.live_set(xlamem.read(make(members)), 2).to_pylist()
    found = {(r["instruction"], r["op_name"], r["origin"], r["phase"]) for r in rows if r["role"] == "value"}
    assert found == {("f", "jit(f)/y/sin", "hlo", None), ("t.1", "jit(f)/z/add", "own", None)}


@pytest.mark.parametrize("inner", ["jit(f)/x/mul", None])
def test_an_element_whose_trace_ends_at_once_has_its_own_name(inner: str | None, make: Callable[..., Path]) -> None:
    """That of a custom call, which has no computation, whereas that of a fusion is named by an instruction inside.

    If that has no name either, it is the name of the fusion.
    """
    metadata = f', metadata={{op_name="{inner}"}}' if inner else ""
    fused = f"""%fused (a: f32[16]) -> (f32[16], f32[16]) {{
  %a = f32[16] parameter(0)
  %m = f32[16] multiply(%a, %a){metadata}
  ROOT %t = (f32[16], f32[16]) tuple(%m, %m)
}}
"""
    fusion = '(f32[16], f32[16]) fusion(%p), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/y/sin"}'
    call = '(f32[16], f32[16]) custom-call(%p), custom_call_target="T", metadata={op_name="jit(f)/z/call"}'
    head = "ENTRY %main (p: f32[16]) -> f32[16] {"
    element, copy = "f32[16] get-tuple-element(%f), index=1", "f32[16] copy(%g)"
    texts = {"%p": "f32[16] parameter(0)", "%c": call, "%f": fusion, "%g": element, "ROOT %k": copy}
    lines = head, *(f"{name} = {text}" for name, text in texts.items())
    entry = "\n  ".join(lines) + "\n}\n"
    values = [value(i, name, 64, 64 * i, "f32[16]") for i, name in enumerate(("f{1}", "c{1}", "k"), 1)]
    records = [record(1, "f{1}", fusion), record(2, "c{1}", call), record(3, "k", copy)]
    ranges = ["f{1}:0-3", "c{1}:0-3", "k{}:0-3"]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=ranges, hlo=attacks.hlo(fused, entry))))
    found = [xlamem.buffer(dump, i).value for i in (1, 2)]
    assert xlamem.buffer(dump, 3).value["op_name"] == (inner or "jit(f)/y/sin")
    wanted = (inner, "hlo") if inner else ("jit(f)/y/sin", "own")
    assert [(f["op_name"], f["origin"]) for f in found] == [wanted, ("jit(f)/z/call", "own")]


def test_a_donated_argument_that_is_updated_in_place_keeps_its_name(make: Callable[..., Path]) -> None:
    """Not that of what reads the result, as in a program that decodes with a cache."""
    shape = "f32[16]{0}"
    parameter = f"{shape} parameter(0), metadata={{op_name=\"cache['k']\"}}"
    written = f'{shape} fusion(%p), kind=kLoop, calls=%fused, metadata={{op_name="jit(f)/dynamic_update_slice"}}'
    read = 'f32[] reduce(%u), metadata={op_name="jit(f)/attention/dot_general"}'
    fused = f"""%fused (x: f32[16]) -> f32[16] {{
  %x = {shape} parameter(0)
  %new = f32[1]{{0}} constant(0)
  %i = s32[] constant(3)
  ROOT %d = {shape} dynamic-update-slice(%x, %new, %i)
}}
"""
    entry = f"ENTRY %main (p: f32[16]) -> f32[16] {{\n  %p = {parameter}\n  ROOT %u = {written}\n  %r = {read}\n}}\n"
    allocations = "allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}, output shape is |f32[16]|, "
    allocations += "maybe-live-out:\n" + value(0, "p", 64, shape=shape) + value(1, "u", 64, shape=shape)
    members = attacks.dump(
        [value(2, "r", 4, shape="f32[]")],
        allocations=allocations + "allocation 1: size 4, preallocated-temp:\n",
        records=[
            record(0, "p", parameter, uses="  u, operand 0"),
            record(1, "u", written, uses="  r, operand 0"),
            record(2, "r", read),
        ],
        ranges=["p{}:0-1", "u{}:1-4", "r{}:2-4"],
        hlo=attacks.hlo(fused, entry),
    )
    rows = {r["instruction"]: r for r in xlamem.live_set(xlamem.read(make(members)), 3).to_pylist()}
    assert (rows["u"]["op_name"], rows["u"]["origin"], rows["u"]["argument"]) == ("cache['k']", "argument", 0)


@pytest.mark.parametrize(
    ("cache", "wanted"),
    [
        ("parameter(0), metadata={op_name=\"cache['k']\"}", "cache['k']"),
        ("broadcast(%zero), dimensions={}", "jit(f)/dot_general"),
    ],
)
def test_a_stack_of_updated_slices_has_the_name_of_their_argument(
    cache: str, wanted: str, make: Callable[..., Path]
) -> None:
    """A scan over layers writes into the slice of each layer, and stacks the results in another buffer."""
    shape, carried = "f32[4,8]", "(f32[4,8], f32[4,8])"
    body = f"""%body (t: {carried}) -> {carried} {{
  %t = {carried} parameter(0)
  %stack = {shape} get-tuple-element(%t), index=0
  %c = {shape} get-tuple-element(%t), index=1
  %i = s32[] constant(0)
  %slice = f32[1,8] dynamic-slice(%c, %i, %i)
  %new = f32[1,1] dot(%i, %i), metadata={{op_name="jit(f)/dot_general"}}
  %updated = f32[1,8] dynamic-update-slice(%slice, %new, %i, %i)
  %d = {shape} dynamic-update-slice(%stack, %updated, %i, %i)
  ROOT %r = {carried} tuple(%d, %c)
}}
"""
    loop = f"{carried} while(%t), condition=%c, body=%body"
    entry = f"""ENTRY %main () -> {carried} {{
  %zero = f32[] constant(0)
  %cache = {shape} {cache}
  %zeros = {shape} broadcast(%zero), dimensions={{}}
  %t = {carried} tuple(%zeros, %cache)
  ROOT %l = {loop}
}}
"""
    allocations = "allocation 0: size 128, parameter 0, shape |f32[4,8]| at ShapeIndex {}:\n"
    allocations += value(0, "cache", 128, 0, shape) + "allocation 1: size 128, preallocated-temp:\n"
    members = attacks.dump(
        [value(1, "l{0}", 128, 0, shape)],
        allocations=allocations,
        records=[record(0, "cache", f"{shape} {cache}"), record(1, "l{0}", loop, positions="  l {0}")],
        ranges=["cache{}:0-4", "l{0}:1-3"],
        hlo=attacks.hlo(body, entry),
    )
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == wanted


def test_initial_values_that_a_trace_ends_at_name_nothing(make: Callable[..., Path]) -> None:
    """The body writes slices of what the loop reads, which other instructions pass on in a circle."""
    shape, carried = "f32[4,8]", "(f32[4,8], f32[4,8])"
    allocate = f'{shape} custom-call(), custom_call_target="AllocateBuffer", metadata={{op_name="jit(f)/zeros"}}'
    body = f"""%body (t: {carried}) -> {carried} {{
  %t = {carried} parameter(0)
  %s = {shape} get-tuple-element(%t), index=0
  %w = {shape} get-tuple-element(%t), index=1
  %i = s32[] constant(0)
  %slice = f32[1,8] dynamic-slice(%w, %i, %i)
  %d = {shape} dynamic-update-slice(%s, %slice, %i, %i)
  %moved = {shape} copy(%w)
  ROOT %r = {carried} tuple(%d, %moved)
}}
"""
    loop = f"{carried} while(%t), condition=%c, body=%body"
    entry = f"""ENTRY %main () -> {carried} {{
  %a = {allocate}
  %b = {allocate.replace("zeros", "ones")}
  %t = {carried} tuple(%a, %b)
  ROOT %l = {loop}
}}
"""
    members = attacks.dump(
        [value(1, "l{0}", 128, 0, shape), value(2, "a", 128, 128, shape), value(3, "b", 128, 256, shape)],
        records=[
            record(1, "l{0}", loop, positions="  l {0}"),
            record(2, "a", allocate),
            record(3, "b", allocate.replace("zeros", "ones")),
        ],
        ranges=["l{0}:1-3", "a{}:0-1", "b{}:0-1"],
        hlo=attacks.hlo(body, entry),
    )
    found = xlamem.buffer(xlamem.read(make(members)), 1).value
    assert (found["op_name"], found["origin"]) == (None, "none")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("wrapped_copy", "jit(f)/y/transpose"), ("wrapped_slice.12", "jit(f)/y/transpose"), ("wrapped_add", None)],
)
def test_fusions_of_one_move_have_the_name_of_their_operand(
    name: str, wanted: str | None, make: Callable[..., Path]
) -> None:
    moved = 'f32[16] fusion(%p), kind=kLoop, calls=%c.1, metadata={op_name="jit(f)/y/transpose"}'
    records = [
        record(1, "a", moved, uses=f"  {name}, operand 0"),
        record(2, name, "f32[16] fusion(%a), kind=kLoop, calls=%c.2"),
    ]
    values = [value(1, "a", 64, 0, "f32[16]"), value(2, name, 64, 64, "f32[16]")]
    members = attacks.dump(values, records=records, ranges=["a{}:0-2", f"{name}{{}}:2-3"])
    found = xlamem.buffer(xlamem.read(make(members)), 2).value
    assert (found["op_name"], found["origin"]) == (wanted, "operand" if wanted else "none")


@pytest.mark.parametrize("with_hlo", [False, True])
@pytest.mark.parametrize(("end", "wanted"), [(2, ("jit(f)/y/dot", "slot")), (1, ("jit(f)/broadcast_in_dim", "own"))])
def test_a_reserved_buffer_has_the_name_of_what_a_loop_writes(
    end: int, wanted: tuple[str, str], with_hlo: bool, make: Callable[..., Path]
) -> None:
    """The name of the allocation itself is used only if no writer is known."""
    allocate = "f32[16] custom-call(), custom_call_target=\"AllocateBuffer\""
    allocate += ', metadata={op_name="jit(f)/broadcast_in_dim"}'
    written = 'f32[16] add(%p, %p), metadata={op_name="jit(f)/y/dot"}'
    records = [record(1, "a", allocate, uses="  w, operand 0 {0}"), record(2, "d", written)]
    values = [value(1, "a", 64, 0, "f32[16]"), value(2, "d", 64, 0, "f32[16]")]
    loop = "ROOT %w = (f32[16]) while(%t), condition=%c, body=%b"
    text = attacks.hlo(f"ENTRY %main () -> f32[16] {{\n  %a = {allocate}\n  %t = (f32[16]) tuple(%a)\n  {loop}\n}}\n")
    records.append(record(3, "w{}", "(f32[16]) while(%t), condition=%c, body=%b"))
    values.append(value(3, "w{}", 8, 64, "(f32[16])"))
    ranges = [f"a{{}}:0-{end}", "d{}:2-3", "w{}:1-3"]
    others = {"hlo": text} if with_hlo else {}
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=ranges, **others)))
    found = xlamem.buffer(dump, 1).value
    assert (found["op_name"], found["origin"]) == wanted


@pytest.mark.parametrize("before", ["", "  %z = f32[] constant(0)\n"])
def test_a_copy_of_a_reserved_buffer(before: str, make: Callable[..., Path]) -> None:
    """Its name is used only if nothing else is known, also if it is the first instruction of the text."""
    allocate = "f32[16] custom-call(), custom_call_target=\"AllocateBuffer\""
    allocate += ', metadata={op_name="jit(f)/broadcast_in_dim"}'
    members = attacks.dump(
        [value(1, "a", 64, 0, "f32[16]"), value(2, "c", 64, 64, "f32[16]")],
        records=[record(1, "a", allocate, uses="  c, operand 0"), record(2, "c", "f32[16] copy(%a)")],
        ranges=["a{}:0-1", "c{}:1-3"],
        hlo=attacks.hlo(f"ENTRY %main () -> f32[16] {{\n{before}  %a = {allocate}\n  ROOT %c = f32[16] copy(%a)\n}}\n"),
    )
    found = xlamem.buffer(xlamem.read(make(members)), 2).value
    assert (found["op_name"], found["origin"]) == ("jit(f)/broadcast_in_dim", "operand")


# -- op_names


def names(*texts: str) -> pa.Array:
    return pa.array(texts, pa.string())


@pytest.mark.parametrize(
    ("name", "control", "move"),
    [
        ("jit(train_step)/jvp()/while", True, False),
        ("jit(f)/transpose(jvp(while))/body", True, False),
        ("jit(f)/transpose(jvp(checkpoint))/rematted_computation", True, False),
        ("jit(f)/jit(main)/cond/branch_1_fun", True, False),
        ("jit(f)/jvp()/while/body/eval_jaxpr", True, False),
        ("jit(f)/jvp()/while/body/eval_jaxpr/copy", False, True),
        ("", True, False),
        ("jit(f)/jit(main)/while/body/dynamic_update_slice", False, True),
        ("jit(f)/jvp()/while/body/jit(dynamic_update_index_in_dim)/dynamic_update_slice", False, True),
        ("copy", False, True),
        ("broadcast.37", False, True),
        ("dynamic-slice.12", False, True),
        ("copy.x", False, False),
        ("jit(f)/jvp()/dot_general", False, False),
        ("jit(f)/jvp(Model)/while", False, False),
        ("jit(f)/transpose(jvp(layer_5))/mlp/transpose", False, False),
        ("params['w']", False, False),
        ("jit(f)/jvp()/while/body/copy;jit(f)/jvp()/while/body/reshape", False, True),
        ("jit(f)/transpose(jvp())/mul;jit(f)/transpose(jvp())/broadcast_in_dim", False, False),
        ("jit(f)/while/body/transpose;reshape", False, True),
        ("jit(f)/jit(main)/while[cond_nconsts=0 body_nconsts=1]", True, False),
        ("jit(f)/jit(main)/cond[linear=(False,)]", True, False),
        ("jit(f)/jit(main)/while/body/squeeze[dimensions=(0,)]", False, True),
        ("jit(f)/jit(main)/while/body/reduce_sum[axes=(0, 1)]", False, False),
        ("while[0]", False, False),
        ("copy['w']", False, False),
    ],
)
def test_what_names_only_control_flow(name: str, control: bool, move: bool) -> None:
    assert is_control_flow(names(name)).tolist() == [control]
    assert is_move(names(name)).tolist() == [move]


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("jit(f)/jvp(Model)/layers_17/dot_general", "forward"),
        ("jit(f)/transpose(jvp(Model))/layers_17/dot_general", "backward"),
        ("jit(f)/transpose(jvp(a))/jvp(a)/checkpoint/rematted_computation/mul", "recompute"),
        ("jit(f)/adam/mul", "optimizer"),
        ("jit(f)/mul", None),
        ("params['w']", None),
    ],
)
def test_phases(name: str, phase: str | None) -> None:
    assert phases(names(name)).to_pylist() == [phase]


def test_folded_layers() -> None:
    paths = names("layer5/w", "h[12].b", "Blocks3.conv1", "layers_2", "conv1/mul")
    folded = shortened_paths(paths, None, fold=True)
    assert folded.to_pylist() == ["layer*/w", "h[*].b", "Blocks*.conv1", "layers_*", "conv1/mul"]


@pytest.mark.parametrize(
    ("name", "layer", "index"),
    [
        ("jit(f)/jvp(Model)/layers_17/Dense_0/dot_general", "layers_*", 17),
        ("jit(f)/model/h.3/mul", "h.*", 3),
        ("params['blocks'][12].w", "blocks'][*]", 12),
        ("opt_state[0].mu['layer_3']['w1']", "layer_*", 3),
        ("args[0]", None, None),
        ("broadcast.37", None, None),
        ("jit(f)/LayerNorm_0/add", None, None),
        ("layers[3].w", "layers[*]", 3),
        ("jit(f)/jvp(layer5)/norm_1/mul", "layer*", 5),
        ("params['encoder']['TransformerBlock12']['w']", "TransformerBlock*", 12),
        ("jit(f)/jvp(model2)/conv1/layers_3/mul", "layers_*", 3),
        ("jit(f)/jvp(conv1)/mul", None, None),
        ("jit(f)/jvp()/while/body/mlp/mul", None, None),
        ("jit(f)/jvp(layers_17)/mlp/dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]", "layers_*", 17),
    ],
)
def test_layers(name: str, layer: str | None, index: int | None) -> None:
    found, number = layers(names(name))
    assert (found.to_pylist(), number.to_pylist()) == ([layer and layer.replace("']", "")], [index])


ARGUMENTS = ("params['w']", "layers[3]", "a[3].w", "p['a/b'].c", "p['a[x=1]/b']", 'p["a[x=1]"]', "p[<flat index 0>]")


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("jit(f)/jit(main)/jvp(Model)/layer_0/add", "Model/layer_0"),
        ("jit(f)/jvp(Model)/layer_0/dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]", "Model/layer_0"),
        ("jit(f)/jit(main)/layer_0/psum[axes=('i',) axis_index_groups=None]", "layer_0"),
        ("jit(f)/h[12]/attn/dot_general", "h[12]/attn"),
        ("jit(f)/h[12]/attn/transpose[permutation=(1, 0)]", "h[12]/attn"),
        ("jit(f)/jit(main)/while[cond_nconsts=0 body_nconsts=1]", "while"),
        ("jit(f)/jvp()/while/body/closed_call/attn/split", "attn"),
        ("jit(f)/jvp()/while/body/eval_jaxpr/attn/split", "attn"),
        ("jit(f)/while/body/eval_jaxpr/while/body/eval_jaxpr/cond/branch_0_fun/mlp/mul", "mlp"),
        ("jit(f)/shard_map/layer_1/psum", "layer_1"),
        ("jit(f)/transpose(jvp(a_1))/attn/transpose;jit(f)/transpose(jvp(a_1))/attn/transpose", "a_1/attn"),
        ("jit(f)/jvp()/mul;jit(f)/jvp()/broadcast_in_dim;jit(f)/jvp()/broadcast_in_dim", "mul"),
        ("jit(f)/while/body/closed_call/jvp(mlp)/mul;jvp(attn)/broadcast_in_dim", "mlp"),
        ("jit(f)/while/body/closed_call/attn/ab->ba/transpose;mlp/transpose", "attn/ab->ba"),
        ("jit(f)/a;b,c/;/add", "a;b,c/;"),
        ("jit(f)/transpose(jvp(vmap(jvp(vmap()))))/checkpoint/vmap(nn.MLP)/nn.Linear/dot_general", "nn.MLP/nn.Linear"),
        ("jit(f)/(transpose(jvp())/scatter-add:jvp(jit(log_softmax))/sub:jvp(jit(take))/gather)", "scatter-add"),
        ("jit(f)/transpose(jvp())/while/body/closed_call/checkpoint/layer_1/(dot_general:mul)", "layer_1"),
        ("p['a;jit(b']", "p['a;jit(b']"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_1)/checkpoint/rematted_computation/attn/div", "a_1/attn"),
        ("jit(f)/transpose(jvp(a_1))/mlp/jvp(a_1)/mlp/checkpoint/b/mul", "a_1/mlp/b"),
        ("jit(f)/a/transpose(jvp(b))/a/jvp(b)/checkpoint/mul", "a/b"),
        ("jit(f)/transpose(jvp(a))/while/body/closed_call/b/c/b/c/checkpoint/mul", "a/b/c"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_1)/add_any", "a_1"),
        ("jit(f)/transpose(jvp(a_1))/jvp(a_2)/checkpoint/mul", "a_1/a_2"),
        ("jit(f)/a/a/mul", "a/a"),
        *zip(ARGUMENTS, ARGUMENTS, strict=True),
    ],
)
def test_scopes_without_primitives(name: str, scope: str) -> None:
    """Old versions of JAX append parameters to a primitive. Names of arguments are scopes as they are."""
    assert compute.scopes(names(name)).to_pylist() == [scope]


def test_names_of_merged_instructions() -> None:
    """They are those of the first one."""
    joined = names("jit(f)/jvp(a_1)/attn/transpose;jit(f)/jvp(a_2)/mul", "jit(f)/a_1/(b/add:c/mul)")
    assert plain_names(joined).to_pylist() == ["a_1/attn/transpose", "a_1/(b/add:c/mul)"]
    assert layers(joined)[1].to_pylist() == [1, 1]
    assert ends_in_move(joined).tolist() == [True, False]


def test_plain_names_have_no_parameters_of_primitives() -> None:
    """The names of arguments stay as they are."""
    old = names("jit(f)/jit(main)/jvp(M)/up/dot_general[dimension_numbers=(((1,), (0,)), ((), ())) precision=None]")
    assert plain_names(old).to_pylist() == ["M/up/dot_general"]
    assert plain_names(names(*ARGUMENTS)).to_pylist() == list(ARGUMENTS)


def test_primitives_with_parameters() -> None:
    """They are known as those without."""
    for name in ("dot_general", "dot_general[dimension_numbers=(((1,), (0,)), ((), ()))]"):
        assert re.search(interventions._MIXING_PRIMITIVES, f"jit(f)/mlp/{name}")
        assert re.search(activations._WEIGHTED, f"jit(f)/mlp/{name}")
        assert not ends_in_move(names(f"jit(f)/mlp/{name}"))[0]
    assert ends_in_move(names("jit(f)/mlp/slice", "jit(f)/mlp/slice[start_indices=(0, 0)]")).all()


@pytest.mark.parametrize("argument", [None, "params['w']"])
@pytest.mark.parametrize("parameters", ["", "[start_indices=(0,) limit_indices=(8,) strides=None]"])
def test_slices_of_an_argument(argument: str | None, parameters: str, make: Callable[..., Path]) -> None:
    """They have its name, but their own if it has none, as in old versions of JAX."""
    own = f"jit(f)/jit(main)/slice{parameters}"
    metadata = f', metadata={{op_name="{argument}"}}' if argument else ""
    allocations = "allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
    allocations += value(0, "p", 64) + "allocation 1: size 32, preallocated-temp:\n"
    sliced = f'f32[8]{{0}} slice(f32[16]{{0}} %p), slice={{[0:8]}}, metadata={{op_name="{own}"}}'
    records = [
        record(0, "p", f"f32[16]{{0}} parameter(0){metadata}", uses="  s, operand 0"),
        record(1, "s", sliced),
    ]
    members = attacks.dump([value(1, "s", 32)], allocations=allocations, records=records, ranges=["p{}:0-4", "s{}:1-3"])
    (row,) = (r for r in xlamem.live_set(xlamem.read(make(members))).to_pylist() if r["instruction"] == "s")
    assert (row["op_name"], row["origin"], row["argument"]) == (argument or own, "argument", 0)


@pytest.mark.parametrize("phase", ["jvp()", "transpose(jvp())"])
def test_a_copy_of_an_argument_is_no_gradient(phase: str, make: Callable[..., Path]) -> None:
    """A loop of the backward pass reads a layer of weights: the slice has its phase, but not its kind."""
    moved = f'f32[16]{{0}} slice(%p), slice={{[0:16]}}, metadata={{op_name="jit(f)/{phase}/while/body/slice"}}'
    allocations = "allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
    allocations += value(0, "p", 64) + "allocation 1: size 64, preallocated-temp:\n"
    parameter = 'f32[16]{0} parameter(0), metadata={op_name="w"}'
    records = [record(0, "p", parameter, uses="  s, operand 0"), record(1, "s", moved)]
    ranges = ["p{}:0-4", "s{}:1-3"]
    members = attacks.dump([value(1, "s", 64)], allocations=allocations, records=records, ranges=ranges)
    (row,) = (r for r in xlamem.live_set(xlamem.read(make(members))).to_pylist() if r["instruction"] == "s")
    assert (row["op_name"], row["origin"], row["kind"]) == ("w", "argument", None)


def test_an_empty_program_has_no_origins() -> None:
    dump = xlamem.read(b"BufferAssignment:\nallocation 0: size 4, output shape is |f32[]|, maybe-live-out:\n\n")
    assert iterate(dump) == []


def iterate(dump: xlamem.Dump) -> list[int]:
    from xlamem.compute.program import program

    return module.origins(program(dump)).source.tolist()




# -- scopes over time, and clones


@pytest.mark.parametrize("name", PROGRAMS)
def test_peaks_of_scopes(name: str, folders: dict[str, Path]) -> None:
    dump = xlamem.read(folders[name])
    rows = compute.scope_peaks(dump).to_pylist()
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    p = program(folders[name])
    op_names = source_columns(p, np.arange(len(p.value_ids)))["op_name"].cast(pa.string())
    scope_of = dict(zip(p.value_ids.tolist(), compute.scopes(op_names).to_pylist(), strict=True))
    values = [v for v in dump.values.to_pylist() if v["size"] and v["value_id"] in ranges]
    for row in rows[:4]:
        here = [v for v in values if v["allocation"] == row["allocation"]]
        members = [v for v in here if scope_of[v["value_id"]] == row["scope"]]
        assert len(members) == row["n"]
        sizes = {}
        for step in {ranges[v["value_id"]][0] for v in members}:
            live = [v for v in members if ranges[v["value_id"]][0] <= step <= ranges[v["value_id"]][1]]
            sizes[step] = union((v["offset"], v["offset"] + v["size"]) for v in live)
        assert row["peak"] == max(sizes.values())
        assert row["step"] == min(s for s, size in sizes.items() if size == row["peak"])


def test_clones_of_rematerialization(tmp_path: Path) -> None:
    folder = DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad"
    assert compute.rematerialized(folder).num_rows == 0
    for path in folder.glob("*.txt"):
        text = re.sub(r"\bfusion\.6\b(?!\d)", "fusion.63.remat", path.read_text())
        (tmp_path / path.name).write_text(text)
    dump = xlamem.read(tmp_path)
    ids = {v["instruction"]: v["value_id"] for v in dump.values.to_pylist()}
    (row,) = compute.rematerialized(dump).to_pylist()
    assert (row["value_id"], row["original_id"]) == (ids["fusion.63.remat"], ids["fusion.63"])
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    peak = {s["memory_space"]: s["first_step"] for s in xlamem.peak(dump).spaces.to_pylist()}[row["memory_space"]]
    assert (row["original_end"], row["start"]) == (ranges[row["original_id"]][1], ranges[row["value_id"]][0])
    assert row["saved"] == (row["size"] if row["original_end"] < peak < row["start"] else 0)


@pytest.mark.parametrize("ranges", [["p{}:0-3", "u{}:2-4"], []])
def test_arguments_of_dumps_without_instructions(ranges: list[str], make: Callable[..., Path]) -> None:
    """An update in place has its parameter's bytes, but is not live at step 0. Without live ranges, nothing tells."""
    members = attacks.dump(
        [value(0, "u"), value(1, "p")],
        allocations="allocation 0: 0x5564, size 8, parameter 2, shape |f32[2]| at ShapeIndex {}, maybe-live-out:\n",
        ranges=ranges,
    )
    dump = xlamem.read(make(members))
    assert compute.program.program(dump).entry_parameters.tolist() == [1] * bool(ranges)
    if ranges:
        rows = {row["instruction"]: row for row in compute.live_set(dump, 2).to_pylist()}
        assert [(rows[name]["argument"], rows[name]["kind"]) for name in "pu"] == [(2, "parameter"), (None, None)]


@pytest.mark.parametrize("placeholder", ["XLA_Args", "xla__device_data"])
def test_a_name_of_all_parameters_names_none(placeholder: str, make: Callable[..., Path]) -> None:
    """TensorFlow and PyTorch/XLA give all parameters, and copies of them, one name."""
    metadata = f', metadata={{op_name="{placeholder}"}}'
    parameter = "allocation {0}: size 8, parameter {0}, shape |f32[2]| at ShapeIndex {{}}:\n"
    allocations = [parameter.format(0), parameter.format(1), "allocation 2: size 8, preallocated-temp:\n"]
    members = attacks.dump(
        [value(1, "p.1"), allocations[2], value(2, "c")],
        allocations=allocations[0] + value(0, "p.0") + allocations[1],
        records=[
            record(0, "p.0", f"f32[2]{{0}} parameter(0){metadata}"),
            record(1, "p.1", f"f32[2]{{0}} parameter(1){metadata}", uses="  c, operand 0"),
            record(2, "c", f"f32[2]{{0}} copy(%p.1){metadata}"),
        ],
        ranges=["p.0{}:0-4", "p.1{}:0-4", "c{}:1-4"],
    )
    live = compute.live_set(xlamem.read(make(members)), 2)
    rows = {row["instruction"]: row for row in live.to_pylist()}
    names = {name: (row["op_name"], row["argument"]) for name, row in rows.items()}
    assert names == {"p.0": (None, 0), "p.1": (None, 1), "c": (None, 1)}
    assert {(row["name"], row["n"]) for row in compute.like_buffers(live, 9)} == {("argument *", 2), (None, 1)}


def test_a_barrier_of_one_tuple(make: Callable[..., Path]) -> None:
    """Each element is that of the tuple, as the elements of a barrier of several operands are these."""
    n, m = (f'f32[16] {opcode}(%p), metadata={{op_name="jit(f)/{opcode}/x"}}' for opcode in ("negate", "sine"))
    both = "(f32[16], f32[16])"
    for operands in ("%n, %m", "%t"):
        barrier = f"{both} opt-barrier({operands})"
        body = f"  %p = f32[16] parameter(0)\n  %n = {n}\n  %m = {m}\n  %t = {both} tuple(%n, %m)\n"
        entry = f"ENTRY %main (p: f32[16]) -> {both} {{\n{body}  ROOT %b = {barrier}\n}}\n"
        outputs = "".join(
            f"allocation {i}: size 64, maybe-live-out:\n{value(i, f'b{{{i}}}', 64, shape='f32[16]')}" for i in (0, 1)
        )
        members = attacks.dump(
            [value(2, "n", 64, shape="f32[16]")],
            allocations=f"{outputs}allocation 2: size 64, preallocated-temp:\n",
            records=[record(0, "b{0}", barrier), record(1, "b{1}", barrier), record(2, "n", n)],
            ranges=["b{0}:0-2", "b{1}:0-2", "n{}:0-2"],
            hlo=attacks.hlo(entry),
        )
        rows = xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()
        found = {(r["shape_index"], r["origin_instruction"]) for r in rows if r["instruction"] == "b"}
        assert found == {("{0}", "n"), ("{1}", "m")}


def test_parameters_of_branches_are_not_the_predicate(make: Callable[..., Path]) -> None:
    """A conditional has an operand for each branch, behind that which selects one."""
    named = 's32[] constant(1), metadata={op_name="jit(f)/cond/index"}'
    negate = 'f32[16] negate(%p), metadata={op_name="jit(f)/neg"}'
    copied = "f32[16] copy(%q)"
    branch = f"%branch (q: f32[16]) -> f32[16] {{\n  %q = f32[16] parameter(0)\n  ROOT %c = {copied}\n}}\n"
    called = "f32[16] conditional(%i, %n, %n), branch_computations={%branch, %branch}"
    entry = "ENTRY %main (p: f32[16]) -> f32[16] {\n  %p = f32[16] parameter(0)\n"
    entry += f"  %i = {named}\n  %n = {negate}\n  ROOT %b = {called}\n}}\n"
    members = attacks.dump(
        [value(1, "c", 64, shape="f32[16]"), value(2, "n", 64, 64, shape="f32[16]"), value(3, "i", 4, 128, "s32[]")],
        records=[record(1, "c", copied), record(2, "n", negate), record(3, "i", named)],
        ranges=["c{}:0-2", "n{}:0-2", "i{}:0-2"],
        hlo=attacks.hlo(branch, entry),
    )
    rows = xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()
    found = {r["instruction"]: r["origin_instruction"] for r in rows if r["role"] == "value"}
    assert found["n"] == "n"
    assert found["c"] not in ("i", "b")
