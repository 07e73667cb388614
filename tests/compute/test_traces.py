"""Names that buffers take from operands, fusions, loops and calls, in small dumps made by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attacks
import pyarrow as pa
import pytest
from attacks import record, value

import xlamem
from xlamem import compute
from xlamem.compute.origins import origins
from xlamem.compute.program import program as program_of


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


def test_the_first_instruction_of_a_text_may_be_an_argument(make: Callable[..., Path]) -> None:
    """It is one if nothing is called."""
    hlo = """\
ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0), metadata={op_name="weights"}
  %zero = f32[] constant(0)
  %zeros = f32[2] broadcast(%zero)
  ROOT %c = f32[2] select(%is_first, %zeros, %x)
}
"""
    argument = f"allocation 0: size 64, parameter 0, shape |f32[2]| at ShapeIndex {{}}:\n{value(2, 'x')}"
    allocation = f"{argument}allocation 1: size 64, preallocated-temp:\n"
    records = [record(1, "c", "f32[2] select(%is_first, %zeros, %x)"), record(2, "x", "f32[2] parameter(0)")]
    ranges = ["x{}:0-3", "c{}:1-3"]
    text = attacks.hlo(hlo)
    members = attacks.dump([value(1, "c")], allocations=allocation, records=records, ranges=ranges, hlo=text)
    found = xlamem.buffer(xlamem.read(make(members)), 1).value
    assert (found["argument"], found["origin"]) == (0, "argument")


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
    assert name_of_asynchronous(call, at_done, with_hlo, make) == wanted


def test_an_asynchronous_fusion_has_the_name_of_its_root(make: Callable[..., Path]) -> None:
    """Its computation is that of no other fusion."""
    fusion, at_done = "f32[2] fusion(%p), kind=kLoop, calls=%shared", ', metadata={op_name="jit(f)/two/gather"}'
    assert name_of_asynchronous(fusion, at_done, True, make) == "jit(f)/three/gather"


def test_an_asynchronous_call_with_a_name_of_its_own_keeps_it(make: Callable[..., Path]) -> None:
    call = 'f32[2] custom-call(%p), custom_call_target="TODO(b/1)", called_computations={%shared}'
    own, at_done = (f', metadata={{op_name="jit(f)/{name}/gather"}}' for name in ("own", "two"))
    assert name_of_asynchronous(call + own, at_done, True, make) == "jit(f)/own/gather"


def name_of_asynchronous(call: str, at_done: str, with_hlo: bool, make: Callable[..., Path]) -> str | None:
    """Return the name of the result of an instruction that runs asynchronously."""
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
        record(3, "other"),  # because of it, the HLO text is read in any case
    ]
    values = [value(1, "a"), value(2, "c", offset=8), value(3, "other", offset=16)]
    ranges = ["a{}:0-3", "c{}:1-3", "other{}:1-3"]
    members = attacks.dump(values, records=records, ranges=ranges, hlo=attacks.hlo(text) if with_hlo else "")
    name: str | None = xlamem.buffer(xlamem.read(make(members)), 2).value["op_name"]
    return name


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


@pytest.mark.parametrize(("copied", "share"), [("p", 0.0), ("s.1", 1.0)])
def test_a_copy_of_an_argument_has_a_clear_name(copied: str, share: float, make: Callable[..., Path]) -> None:
    """Nothing better could be found in the HLO text. It may have the name of a move, if something unknown is copied."""
    parameter = "f32[2]{0} parameter(0), metadata={op_name=\"cache['k']\"}"
    copy = 'f32[2]{0} copy(%p), metadata={op_name="jit(f)/copy"}'
    allocations = f"allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {{}}:\n{value(0, 'p')}"
    allocations += f"allocation 1: size 8, preallocated-temp:\n{value(1, 'c')}"
    uses = "  c, operand 0" if copied == "p" else ""
    records = [record(0, "p", parameter, uses=uses), record(1, "c", copy)]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["p{}:0-4", "c{}:2-4"])
    found = origins(program_of(xlamem.read(make(members))))
    assert found.share_without_definer() == share


def test_an_element_is_not_named_by_the_instruction_that_gets_it(make: Callable[..., Path]) -> None:
    """Which has the name of any element, or of a user, but by what computes it in the fusion."""
    text = """\
%fused (q: f32[2]) -> (f32[2], f32[2]) {
  %q = f32[2] parameter(0)
  %n = f32[2] negate(%q), metadata={op_name="jit(f)/one/neg"}
  %s = f32[2] sine(%q), metadata={op_name="jit(f)/two/sin"}
  ROOT %t = (f32[2], f32[2]) tuple(%n, %s)
}

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  %f = (f32[2], f32[2]) fusion(%x), kind=kLoop, calls=%fused, metadata={op_name="jit(f)/one/neg"}
  %g = f32[2] get-tuple-element(%f), index=1, metadata={op_name="jit(f)/user/add"}
  ROOT %c = f32[2] copy(%g)
}
"""
    members = attacks.dump(
        [value(1, "c")], records=[record(1, "c", "f32[2]{0} copy(%g)")], ranges=["c{}:1-3"], hlo=attacks.hlo(text)
    )
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == "jit(f)/two/sin"


@pytest.mark.parametrize(
    ("opcode", "is_named"),
    [("add", True), ("fusion", True), ("custom-call", False), ("tuple", False), ("call", False), ("while", False)],
)
def test_a_buffer_two_steps_before_a_name(opcode: str, is_named: bool, make: Callable[..., Path]) -> None:
    """Operands of a call, for example, may have nothing to do with what reads its result."""
    records = [
        record(0, "a", "f32[2]{0} add(%x, %y)", uses="  b, operand 0"),
        record(1, "b", f"f32[2]{{0}} {opcode}(%a)", uses="  c, operand 0"),
        record(2, "c", attacks.op_name("jit(f)/mlp/tanh")),
    ]
    values = [value(i, name, offset=8 * i) for i, name in enumerate("abc")]
    dump = xlamem.read(make(attacks.dump(values, size=24, records=records, ranges=[f"{n}{{}}:0-3" for n in "abc"])))
    found = [xlamem.buffer(dump, i).value for i in (0, 1)]
    of_a = ("jit(f)/mlp/tanh", "user") if is_named else (None, "none")
    assert [(f["op_name"], f["origin"]) for f in found] == [of_a, ("jit(f)/mlp/tanh", "user")]


@pytest.mark.parametrize("order", ["bac", "abc", "cab"])
def test_a_copy_of_what_is_named_after_its_user(order: str, make: Callable[..., Path]) -> None:
    """Whichever instruction is the first of the dump."""
    records = {
        "a": ("f32[2]{0} add(%x, %y)", "  b, operand 0\n  c, operand 0"),
        "b": (attacks.op_name("jit(f)/mlp/tanh"), ""),
        "c": ("f32[2]{0} copy(%a)", ""),
    }
    values = [value(i, name, offset=8 * i) for i, name in enumerate(order)]
    used = [record(i, name, records[name][0], uses=records[name][1]) for i, name in enumerate(order)]
    dump = xlamem.read(make(attacks.dump(values, size=24, records=used, ranges=["a{}:0-2", "b{}:1-3", "c{}:1-3"])))
    found = {name: xlamem.buffer(dump, i).value for i, name in enumerate(order)}
    assert {name: (f["op_name"], f["origin"]) for name, f in found.items()} == {
        "a": ("jit(f)/mlp/tanh", "user"), "b": ("jit(f)/mlp/tanh", "own"), "c": ("jit(f)/mlp/tanh", "user"),
    }  # fmt: skip


@pytest.mark.parametrize(("opcode", "share"), [("fusion", 1.0), ("custom-call", 0.0)])
def test_elements_of_a_fusion_may_have_the_name_of_another(
    opcode: str, share: float, make: Callable[..., Path]
) -> None:
    """The HLO text is read for each of them, the first one too."""
    call = f'(f32[2], f32[2]) {opcode}(%x), metadata={{op_name="jit(f)/mlp/tanh"}}'
    values = [value(i, f"f{{{i}}}", offset=8 * i) for i in range(2)]
    records = [record(i, f"f{{{i}}}", call) for i in range(2)]
    members = attacks.dump(values, size=16, records=records, ranges=["f{0}:0-4", "f{1}:0-4"])
    assert origins(program_of(xlamem.read(make(members)))).share_without_definer() == share


@pytest.mark.parametrize(("name", "wanted"), [("x", "jit(f)/mlp/tanh"), ("y", "y")])
def test_a_copy_with_the_name_of_a_parameter(name: str, wanted: str, make: Callable[..., Path]) -> None:
    """XLA gives it to copies of other buffers as well, so what is copied says more."""
    parameter = 'f32[2]{0} parameter(0), metadata={op_name="x"}'
    copy = f'f32[2]{{0}} copy(%a), metadata={{op_name="{name}"}}'
    records = [record(0, "p", parameter), record(1, "a", attacks.op_name("jit(f)/mlp/tanh"), uses="  c, operand 0")]
    records.append(record(2, "c", copy))
    allocations = f"allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {{}}:\n{value(0, 'p')}"
    allocations += f"allocation 1: size 16, preallocated-temp:\n{value(1, 'a')}{value(2, 'c', offset=8)}"
    members = attacks.dump([], allocations=allocations, records=records, ranges=["p{}:0-4", "a{}:1-3", "c{}:2-4"])
    assert xlamem.buffer(xlamem.read(make(members)), 2).value["op_name"] == wanted


def test_the_table_of_a_collective_has_the_name_of_the_first_operand(make: Callable[..., Path]) -> None:
    text = """\
ENTRY %main (x: f32[2]) -> (f32[2], s32[2]) {
  %x = f32[2] parameter(0)
  %a = f32[2] add(%x, %x), metadata={op_name="jit(f)/first/add"}
  %b = s32[2] floor(%a), metadata={op_name="jit(f)/second/floor"}
  ROOT %r = (f32[2], s32[2]) all-reduce(%a, %b)
}
"""
    names, shapes = ["r{}", "r{0}", "r{1}"], ["(f32[2], s32[2])", "f32[2]", "s32[2]"]
    values = [value(i, name, 16, 16 * i, shapes[i]) for i, name in enumerate(names)]
    records = [record(i, name, "(f32[2], s32[2]) all-reduce(%a, %b)") for i, name in enumerate(names)]
    members = attacks.dump(values, records=records, ranges=[f"{n}:0-3" for n in names], hlo=attacks.hlo(text))
    dump = xlamem.read(make(members))
    found = [xlamem.buffer(dump, i).value["op_name"] for i in range(3)]
    assert found == ["jit(f)/first/add", "jit(f)/first/add", "jit(f)/second/floor"]


def test_copies_of_the_last_element_of_an_argument_and_of_the_next_argument(make: Callable[..., Path]) -> None:
    text = """\
ENTRY %main (p: (f32[2], f32[2]), q: f32[2]) -> f32[2] {
  %p = (f32[2], f32[2]) parameter(0), metadata={op_name="state"}
  %q = f32[2] parameter(1), metadata={op_name="batch"}
  %g = f32[2] get-tuple-element(%p), index=1
  %c = f32[2] copy(%g)
  ROOT %d = f32[2] copy(%q)
}
"""
    places = [(0, "{0}", "p{0}"), (0, "{1}", "p{1}"), (1, "{}", "q")]
    allocations = "".join(
        f"allocation {i}: size 8, parameter {n}, shape |f32[2]| at ShapeIndex {index}:\n{value(i, name)}"
        for i, (n, index, name) in enumerate(places)
    )
    allocations += f"allocation 3: size 16, preallocated-temp:\n{value(3, 'c')}{value(4, 'd', offset=8)}"
    tuple_, batch = ('(f32[2], f32[2]) parameter(0), metadata={op_name="state"}',
                     'f32[2] parameter(1), metadata={op_name="batch"}')  # fmt: skip
    records = [record(0, "p{0}", tuple_), record(1, "p{1}", tuple_), record(2, "q", batch)]
    records += [record(3, "c", "f32[2] copy(%g)"), record(4, "d", "f32[2] copy(%q)")]
    ranges = ["p{0}:0-4", "p{1}:0-4", "q{}:0-4", "c{}:1-3", "d{}:2-4"]
    members = attacks.dump([], allocations=allocations, records=records, ranges=ranges, hlo=attacks.hlo(text))
    dump = xlamem.read(make(members))
    found = [xlamem.buffer(dump, i).value for i in (3, 4)]
    names = ("op_name", "argument", "argument_index")
    assert [[f[name] for name in names] for f in found] == [["state", 0, "{1}"], ["batch", 1, "{}"]]
    assert [xlamem.buffer(dump, i).value["origin"] for i in range(5)] == ["own"] * 3 + ["argument"] * 2


@pytest.mark.parametrize(("written", "name"), [("%sum", None), ("%c", "jit(f)/initial/tanh")])
def test_what_a_body_computes_without_a_name_is_not_the_initial_value(
    written: str, name: str | None, make: Callable[..., Path]
) -> None:
    """That is the name of an element which the body passes on as it is."""
    shape = "(f32[2], s32[])"
    body = f"""%body (t: {shape}) -> {shape} {{
  %t = {shape} parameter(0)
  %c = f32[2] get-tuple-element(%t), index=0
  %step = s32[] get-tuple-element(%t), index=1
  %sum = f32[2] add(%c, %c)
  ROOT %r = {shape} tuple({written}, %step)
}}
"""
    entry = f"""ENTRY %main () -> f32[2] {{
  %i = f32[2] tanh(%x), metadata={{op_name="jit(f)/initial/tanh"}}
  %zero = s32[] constant(0)
  %a = {shape} tuple(%i, %zero)
  ROOT %w = {shape} while(%a), condition=%c, body=%body
}}
"""
    records = [record(1, "w{0}", f"{shape} while(%a), condition=%c, body=%body")]
    members = attacks.dump([value(1, "w{0}")], records=records, ranges=["w{0}:0-3"], hlo=attacks.hlo(body, entry))
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == name


@pytest.mark.parametrize(("opcode", "name"), [("sort", "jit(f)/copy"), ("copy", "jit(f)/mlp/tanh")])
def test_what_computes_has_its_own_name_even_if_that_is_of_a_move(
    opcode: str, name: str, make: Callable[..., Path]
) -> None:
    """The name of a move says nothing only if the instruction moves bytes. Then its reader says more."""
    records = [
        record(0, "a", f'f32[2]{{0}} {opcode}(%x), metadata={{op_name="jit(f)/copy"}}', uses="  b, operand 0"),
        record(1, "b", attacks.op_name("jit(f)/mlp/tanh")),
    ]
    values = [value(i, "ab"[i], offset=8 * i) for i in range(2)]
    dump = xlamem.read(make(attacks.dump(values, size=16, records=records, ranges=["a{}:0-2", "b{}:1-3"])))
    assert xlamem.buffer(dump, 0).value["op_name"] == name


@pytest.mark.parametrize(("opcode", "name"), [("sort", "jit(f)/copy"), ("copy", "jit(f)/mlp/tanh")])
def test_a_trace_ends_at_what_computes_even_if_it_has_the_name_of_a_move(
    opcode: str, name: str, make: Callable[..., Path]
) -> None:
    text = f"""ENTRY %main (x: f32[2]) -> f32[2] {{
  %x = f32[2] parameter(0)
  %a = f32[2] tanh(%x), metadata={{op_name="jit(f)/mlp/tanh"}}
  %b = f32[2] {opcode}(%a), metadata={{op_name="jit(f)/copy"}}
  ROOT %c = f32[2] copy(%b)
}}
"""
    records = [record(1, "c", "f32[2]{0} copy(%b)")]
    members = attacks.dump([value(1, "c")], records=records, ranges=["c{}:1-3"], hlo=attacks.hlo(text))
    assert xlamem.buffer(xlamem.read(make(members)), 1).value["op_name"] == name


@pytest.mark.parametrize(("with_hlo", "is_first"), [(True, False), (True, True), (False, False)])
def test_what_only_the_hlo_text_shows_to_be_written_slice_by_slice(
    with_hlo: bool, is_first: bool, make: Callable[..., Path]
) -> None:
    """Neither the name of the fusion nor its op_name does. It may be the first instruction of the text."""
    shape = "(f32[6,8], s32[])"
    loop = f'{shape} while(%a), condition=%c, body=%body, backend_config={{"known_trip_count":{{"n":"6"}}}}'
    fused = """%inner (x: f32[6,8], u: f32[1,8], i: s32[]) -> f32[6,8] {
  %x = f32[6,8] parameter(0)
  %u = f32[1,8] parameter(1)
  %i = s32[] parameter(2)
  ROOT %d = f32[6,8] dynamic-update-slice(%x, %u, %i, %i)
}
"""
    if is_first:
        head, *inner, root, end = fused.splitlines()
        fused = "\n".join([head, root, *inner, end, ""])
    body = f"""%body (t: {shape}) -> {shape} {{
  %t = {shape} parameter(0)
  %c = f32[6,8] get-tuple-element(%t), index=0
  %step = s32[] get-tuple-element(%t), index=1
  %slice = f32[1,8] broadcast(%step)
  %fusion.3 = f32[6,8] fusion(%c, %slice, %step), kind=kLoop, calls=%inner
  ROOT %r = {shape} tuple(%fusion.3, %step)
}}
"""
    entry = f"ENTRY %main () -> f32[6,8] {{\n  ROOT %w = {loop}\n}}\n"
    fusion = "f32[6,8]{1,0} fusion(%c, %slice, %step), kind=kLoop, calls=%inner"
    members = attacks.dump(
        [value(1, "w{0}", 192, 0, "f32[6,8]{1,0}"), value(2, "fusion.3", 192, 0, "f32[6,8]{1,0}")],
        records=[record(1, "w{0}", loop, positions="  w {0}"), record(2, "fusion.3", fusion)],
        ranges=["w{0}:0-3", "fusion.3{}:1-2"],
        **({"hlo": attacks.hlo(fused, body, entry)} if with_hlo else {}),
    )
    rows = xlamem.live_set(xlamem.read(make(members)), 2).to_pylist()
    assert {r["iterations"] for r in rows} == {6 if with_hlo else None}


@pytest.mark.parametrize(("opcode", "known"), [("all-reduce", None), ("add-dependency", "jit(f)/first/add")])
def test_the_second_result_of_a_collective_is_not_the_first_operand(
    opcode: str, known: str | None, make: Callable[..., Path]
) -> None:
    """Which operand it is, only the HLO text tells. Others pass on what is in their first operand."""
    records = [
        record(0, "a", attacks.op_name("jit(f)/first/add"), uses="  r, operand 0"),
        record(1, "b", attacks.op_name("jit(f)/second/mul"), uses="  r, operand 1"),
        *(record(2 + i, f"r{{{i}}}", f"(f32[2], f32[2]) {opcode}(%a, %b)") for i in range(2)),
    ]
    names = ["a", "b", "r{0}", "r{1}"]
    values = [value(i, name, offset=8 * i) for i, name in enumerate(names)]
    members = attacks.dump(values, records=records, ranges=["a{}:0-1", "b{}:0-1", "r{0}:1-3", "r{1}:1-3"])
    rows = {r["value_id"]: r["op_name"] for r in xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()}
    assert (rows[2], rows[3]) == ("jit(f)/first/add", known)


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


def test_what_pads_an_argument_has_its_name_but_is_no_part_of_it(make: Callable[..., Path]) -> None:
    """Neither instruction has a name. What the padding consists of is named after its only reader."""
    parameter = "f32[2]{0} parameter(0), metadata={op_name=\"cache['k']\"}"
    allocations = f"allocation 0: size 8, parameter 0, shape |f32[2]| at ShapeIndex {{}}:\n{value(0, 'p')}"
    members = attacks.dump(
        [value(1, "padded", 16, 0, "f32[4]{0}"), value(2, "zero", 4, 16, "f32[]")],
        allocations=allocations + "allocation 1: size 20, preallocated-temp:\n",
        records=[
            record(0, "p", parameter, uses="  padded, operand 0"),
            record(1, "padded", "f32[4]{0} pad(%p, %zero), padding=0_2"),
            record(2, "zero", "f32[] add(%x, %y)", uses="  padded, operand 1"),
        ],
        ranges=["p{}:0-4", "padded{}:2-4", "zero{}:1-2"],
    )
    found = [xlamem.buffer(xlamem.read(make(members)), i).value for i in (1, 2)]
    assert [(f["op_name"], f["origin"], f["argument"]) for f in found] == [
        ("cache['k']", "argument", 0), ("cache['k']", "user", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("other", "size", "offset", "is_known"),
    [
        ("x", 64, 0, True),  # the buffer into which the slice is written
        ("x", 16, 128, True),  # an index
        ("x", 20, 128, False),
        ("s.1", 64, 128, True),  # of another instruction
    ],
)
@pytest.mark.parametrize("instruction", ["fusion.1", "w_dynamic-update-slice_fusion"])
def test_a_written_slice_names_a_fusion_without_the_hlo_text(
    instruction: str, other: str, size: int, offset: int, is_known: bool, make: Callable[..., Path]
) -> None:
    """If it is the only other operand with a name. The name of the instruction says that it writes a slice."""
    reader = instruction if other == "x" else other
    values = [value(0, "x", size, offset, f"f32[{size // 4}]{{0}}"), value(1, "new", 32, 64, "f32[8]{0}")]
    values.append(value(2, instruction, 64, 0, "f32[16]{0}"))
    named = [f'f32[{n}]{{0}} {p}(%y), metadata={{op_name="jit(f)/{p}"}}' for n, p in ((size // 4, "sin"), (8, "tanh"))]
    records = [
        record(0, "x", named[0], uses=f"  {reader}, operand 0"),
        record(1, "new", named[1], uses=f"  {instruction}, operand 1"),
        record(2, instruction, "f32[16]{0} fusion(%x, %new), kind=kLoop, calls=%f"),
    ]
    ranges = ["x{}:0-2", "new{}:1-2", f"{instruction}{{}}:3-4"]
    dump = xlamem.read(make(attacks.dump(values, size=192, records=records, ranges=ranges)))
    found = xlamem.buffer(dump, 2).value
    wanted = ("jit(f)/tanh", "operand") if is_known and instruction != "fusion.1" else (None, "none")
    assert (found["op_name"], found["origin"]) == wanted


@pytest.mark.parametrize(("name", "is_known"), [("jit(f)/sin", True), ("", False)])
def test_a_written_slice_that_is_named_after_a_reader_names_nothing(
    name: str, is_known: bool, make: Callable[..., Path]
) -> None:
    """The fusion that writes it has nothing to do with what else reads it."""
    fusion = "w_dynamic-update-slice_fusion"
    metadata = f', metadata={{op_name="{name}"}}' if name else ""
    records = [
        record(0, "new", f"f32[8]{{0}} add(%p, %q){metadata}", uses=f"  {fusion}, operand 1\n  reader, operand 0"),
        record(1, "reader", attacks.op_name("jit(f)/mlp/tanh")),
        record(2, fusion, "f32[16]{0} fusion(%x, %new), kind=kLoop, calls=%f"),
    ]
    values = [value(0, "new", 32, 64, "f32[8]{0}"), value(1, "reader", 8, 96), value(2, fusion, 64, 0, "f32[16]{0}")]
    members = attacks.dump(values, size=104, records=records, ranges=["new{}:0-2", "reader{}:1-3", f"{fusion}{{}}:3-4"])
    dump = xlamem.read(make(members))
    assert xlamem.buffer(dump, 0).value["op_name"] == (name or "jit(f)/mlp/tanh")
    assert xlamem.buffer(dump, 2).value["op_name"] == (name if is_known else None)


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


def test_a_stack_of_slices_into_which_an_argument_is_written_has_the_name_of_the_larger_one(
    make: Callable[..., Path],
) -> None:
    """As a cache of keys, if the new keys are an argument, too."""
    shape, carried = "f32[4,8]", "(f32[4,8], f32[4,8], f32[1,1])"
    body = f"""%body (t: {carried}) -> {carried} {{
  %t = {carried} parameter(0)
  %stack = {shape} get-tuple-element(%t), index=0
  %c = {shape} get-tuple-element(%t), index=1
  %new = f32[1,1] get-tuple-element(%t), index=2
  %i = s32[] constant(0)
  %slice = f32[1,8] dynamic-slice(%c, %i, %i)
  %updated = f32[1,8] dynamic-update-slice(%slice, %new, %i, %i)
  %d = {shape} dynamic-update-slice(%stack, %updated, %i, %i)
  ROOT %r = {carried} tuple(%d, %c, %new)
}}
"""
    arguments = {"cache": shape, "k": "f32[1,1]"}
    lines = [f'{s} parameter({i}), metadata={{op_name="{a}"}}' for i, (a, s) in enumerate(arguments.items())]
    loop = f"{carried} while(%t), condition=%c, body=%body"
    entry = f"""ENTRY %main () -> {carried} {{
  %cache = {lines[0]}
  %k = {lines[1]}
  %zero = f32[] constant(0)
  %zeros = {shape} broadcast(%zero), dimensions={{}}
  %t = {carried} tuple(%zeros, %cache, %k)
  ROOT %l = {loop}
}}
"""
    allocations = "".join(
        f"allocation {i}: size 128, parameter {i}, shape |{s}| at ShapeIndex {{}}:\n{value(i, a, 4, 0, s)}"
        for i, (a, s) in enumerate(arguments.items())
    )
    members = attacks.dump(
        [value(2, "l{0}", 128, 0, shape)],
        allocations=allocations + "allocation 2: size 128, preallocated-temp:\n",
        records=[*(record(i, *row) for i, row in enumerate(zip(arguments, lines, strict=True))),
                 record(2, "l{0}", loop, positions="  l {0}")],
        ranges=["cache{}:0-4", "k{}:0-4", "l{0}:1-3"],
        hlo=attacks.hlo(body, entry),
    )  # fmt: skip
    assert xlamem.buffer(xlamem.read(make(members)), 2).value["op_name"] == "cache"


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
    ("name", "metadata", "wanted"),
    [
        ("wrapped_copy", "", ("jit(f)/y/transpose", "operand")),
        ("wrapped_slice.12", "", ("jit(f)/y/transpose", "operand")),
        ("wrapped_add", "", (None, "none")),
        ("wrapped_copy.3.clone", "", (None, "none")),
        ("wrapped_copy", ', metadata={op_name="jit(f)/while"}', ("jit(f)/while", "none")),  # not added by XLA
    ],
)
def test_fusions_of_one_move_have_the_name_of_their_operand(
    name: str, metadata: str, wanted: tuple[str | None, str], make: Callable[..., Path]
) -> None:
    moved = 'f32[16] fusion(%p), kind=kLoop, calls=%c.1, metadata={op_name="jit(f)/y/transpose"}'
    records = [
        record(1, "a", moved, uses=f"  {name}, operand 0"),
        record(2, name, f"f32[16] fusion(%a), kind=kLoop, calls=%c.2{metadata}"),
    ]
    values = [value(1, "a", 64, 0, "f32[16]"), value(2, name, 64, 64, "f32[16]")]
    members = attacks.dump(values, records=records, ranges=["a{}:0-2", f"{name}{{}}:2-3"])
    found = xlamem.buffer(xlamem.read(make(members)), 2).value
    assert (found["op_name"], found["origin"]) == wanted


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
    copy = live.slice([row["instruction"] for row in live.to_pylist()].index("c"), 1)
    (row,) = compute.like_buffers(pa.concat_tables([copy, copy]), 9)
    assert (row["name"], row["argument"], row["n"]) == (None, 1, 2)  # of one argument


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


@pytest.mark.parametrize("opcode", ["copy", "copy-start", "negate"])
@pytest.mark.parametrize(("reader", "color"), [("b", 0), ("b", 1), ("s.1", 1)])
def test_copies_between_memories(reader: str, color: int, opcode: str, make: Callable[..., Path]) -> None:
    """A copy in the same memory, or of something unknown, and what computes something, are of another kind."""
    allocations = f"allocation 0: size 8, preallocated-temp:\n{value(1, 'a')}"
    allocations += f"allocation 1: size 8, color {color}, preallocated-temp:\n{value(2, 'b', color=color)}"
    records = [record(1, "a", uses=f"  {reader}, operand 0"), record(2, "b", f"f32[2]{{0}} {opcode}(%a)")]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["a{}:0-2", "b{}:1-3"])
    kinds = {r["instruction"]: r["kind"] for r in xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()}
    is_copy = (reader, color) == ("b", 1) and opcode != "negate"
    assert kinds == {"a": None, "b": "copy between memories" if is_copy else None}


def test_a_copy_of_an_activation_is_an_activation(make: Callable[..., Path]) -> None:
    """Also in another memory."""
    allocations = f"allocation 0: size 8, preallocated-temp:\n{value(1, 'a')}"
    allocations += f"allocation 1: size 8, color 1, preallocated-temp:\n{value(2, 'b', color=1)}"
    name = attacks.op_name("jit(f)/jvp(mlp)/tanh")
    records = [record(1, "a", name, uses="  b, operand 0"), record(2, "b", "f32[2]{0} copy(%a)")]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["a{}:0-2", "b{}:1-3"])
    rows = xlamem.live_set(xlamem.read(make(members)), 1).to_pylist()
    assert [r["kind"] for r in rows] == ["activation", "activation"]


@pytest.mark.parametrize(("size", "is_read"), [(5, False), (6, True)])
def test_the_hlo_text_is_read_for_more_than_a_twentieth_of_the_bytes(
    size: int, is_read: bool, make: Callable[..., Path]
) -> None:
    text = """\
%fused (q: f32[2]) -> f32[2] {
  %q = f32[2] parameter(0)
  ROOT %n = f32[2] negate(%q), metadata={op_name="jit(f)/one/neg"}
}

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  ROOT %f = f32[2] fusion(%x), kind=kLoop, calls=%fused
}
"""
    values = [value(1, "a", 100 - size, 0), value(2, "f", size, 100)]
    records = [record(1, "a", attacks.op_name("jit(f)/mlp/tanh")), record(2, "f", "f32[2]{0} fusion(%x), kind=kLoop")]
    members = attacks.dump(values, size=108, records=records, ranges=["a{}:0-3", "f{}:0-3"], hlo=attacks.hlo(text))
    found = xlamem.buffer(xlamem.read(make(members)), 2).value
    assert (found["op_name"], found["origin"]) == (("jit(f)/one/neg", "hlo") if is_read else (None, "none"))


@pytest.mark.parametrize(
    ("kind", "share"),
    [("maybe-live-out", 0.25), ("parameter 0, shape |f32[2]| at ShapeIndex {}, maybe-live-out", 0.25),
     ("constant", 0.0)],
)  # fmt: skip
def test_names_of_outputs_and_of_donated_arguments_matter(kind: str, share: float, make: Callable[..., Path]) -> None:
    """Not only those of temporaries, whether the HLO text is read."""
    allocations = f"allocation 0: size 24, preallocated-temp:\n{value(1, 'a', 24, 0, 'f32[6]')}"
    allocations += f"allocation 1: size 8, {kind}:\n{value(2, 'b')}"
    records = [record(1, "a", attacks.op_name("jit(f)/mlp/tanh")), record(2, "b")]
    members = attacks.dump([], allocations=allocations, records=records, ranges=["a{}:0-3", "b{}:2-4"])
    assert origins(program_of(xlamem.read(make(members)))).share_without_definer() == share


@pytest.mark.parametrize("operand", [0, 1, 2])
def test_a_buffer_into_which_a_slice_is_written_has_the_name_of_the_slice(
    operand: int, make: Callable[..., Path]
) -> None:
    """Which is the second operand of the instruction; the others are the buffer before, and an index.

    None of them is what the next instruction copies.
    """
    records = [
        record(0, "x", attacks.op_name("jit(f)/mlp/tanh"), uses=f"  d, operand {operand}"),
        record(1, "d", "f32[2]{0} dynamic-update-slice(%a, %b, %c)"),
        record(2, "next", "f32[2]{0} copy(%d)"),
    ]
    values = [value(0, "x", 8, 0), value(1, "d", 8, 8), value(2, "next", 8, 16)]
    ranges = ["x{}:0-2", "d{}:1-3", "next{}:2-3"]
    dump = xlamem.read(make(attacks.dump(values, size=24, records=records, ranges=ranges)))
    assert xlamem.buffer(dump, 2).value["op_name"] is None
    found = xlamem.buffer(dump, 1).value
    assert (found["op_name"], found["origin"]) == (("jit(f)/mlp/tanh", "operand") if operand == 1 else (None, "none"))


@pytest.mark.parametrize(("n", "is_named"), [(10, True), (40, False)])
def test_a_chain_of_readers_before_a_name(n: int, is_named: bool, make: Callable[..., Path]) -> None:
    """What is read so many steps before says little."""
    names = [f"a.{i}" for i in range(n)]
    records = [
        record(i, name, "f32[2]{0} add(%x, %y)", uses=f"  {after}, operand 0")
        for i, (name, after) in enumerate(zip(names, [*names[1:], "end"], strict=True))
    ]
    records.append(record(n, "end", attacks.op_name("jit(f)/mlp/tanh")))
    values = [value(i, name, offset=8 * i) for i, name in enumerate([*names, "end"])]
    members = attacks.dump(values, records=records, ranges=[f"{name}{{}}:0-3" for name in [*names, "end"]])
    dump = xlamem.read(make(members))
    assert xlamem.buffer(dump, 0).value["op_name"] == ("jit(f)/mlp/tanh" if is_named else None)
    assert xlamem.buffer(dump, n - 2).value["op_name"] == "jit(f)/mlp/tanh"


def test_a_reserved_buffer_without_a_name_has_none(make: Callable[..., Path]) -> None:
    call = 'f32[2]{0} custom-call(), custom_call_target="AllocateBuffer"'
    dump = xlamem.read(make(attacks.dump([value(1, "a")], size=8, records=[record(1, "a", call)], ranges=["a{}:0-3"])))
    found = xlamem.buffer(dump, 1).value
    assert (found["op_name"], found["origin"]) == (None, "none")


@pytest.mark.parametrize(("opcode", "is_named"), [("while", True), ("sort", False)])
def test_the_initial_value_of_a_loop_after_a_buffer_of_its_slot(
    opcode: str, is_named: bool, make: Callable[..., Path]
) -> None:
    """The loop writes its result in place; what another instruction reads has nothing to do with what follows."""
    records = [
        record(1, "initial", "f32[16] custom-call()", uses="  w, operand 0"),
        record(2, "x", 'f32[16] tanh(%p), metadata={op_name="jit(f)/mlp/tanh"}'),
        record(3, "w", f"s32[] {opcode}(%initial)"),
    ]
    values = [value(1, "initial", 64, 0, "f32[16]"), value(2, "x", 64, 0, "f32[16]"), value(3, "w", 4, 64, "s32[]")]
    members = attacks.dump(values, size=68, records=records, ranges=["initial{}:0-2", "x{}:2-3", "w{}:1-3"])
    found = xlamem.buffer(xlamem.read(make(members)), 1).value
    assert (found["op_name"], found["origin"]) == (("jit(f)/mlp/tanh", "slot") if is_named else (None, "none"))


@pytest.mark.parametrize(
    ("name", "file", "phase"),
    [
        ("jit(f)/mlp/tanh", "/v/optax/adam.py", "optimizer"),
        ("jit(f)/mlp/tanh", "/m/model.py", None),
        ("jit(f)/jvp(mlp)/tanh", "/v/optax/adam.py", "forward"),
        ("jit(f)/transpose(jvp(mlp))/tanh", "/v/optax/adam.py", "backward"),
    ],
)
def test_phases_by_source_file(name: str, file: str, phase: str | None, make: Callable[..., Path]) -> None:
    """An optimizer has no op_name of its own; where JAX names a phase, that is right."""
    instruction = f'f32[2]{{0}} tanh(%x), metadata={{op_name="{name}" source_file="{file}" source_line=3}}'
    dump = xlamem.read(make(attacks.dump([value(1, "a")], records=[record(1, "a", instruction)], ranges=["a{}:0-3"])))
    assert xlamem.buffer(dump, 1).value["phase"] == phase


def test_the_phase_of_a_reader_is_not_that_of_what_it_reads(make: Callable[..., Path]) -> None:
    """The backward pass reads what the forward pass has computed, whereas a copy has the phase of its operand."""
    records = [
        record(0, "a", "f32[2]{0} add(%x, %y)", uses="  b, operand 0"),
        record(1, "b", attacks.op_name("jit(f)/transpose(jvp(mlp))/mul"), uses="  c, operand 0"),
        record(2, "c", "f32[2]{0} copy(%b)"),
    ]
    values = [value(i, name, offset=8 * i) for i, name in enumerate("abc")]
    dump = xlamem.read(make(attacks.dump(values, size=24, records=records, ranges=[f"{n}{{}}:0-3" for n in "abc"])))
    found = [xlamem.buffer(dump, i).value for i in range(3)]
    assert {f["op_name"] for f in found} == {"jit(f)/transpose(jvp(mlp))/mul"}
    assert [(f["phase"], f["kind"]) for f in found] == [(None, None), *[("backward", "gradient")] * 2]


def test_kinds_of_arguments(make: Callable[..., Path]) -> None:
    """By their names. A copy of an argument has none."""
    names = {"params['w']": "parameter", "opt_state[0].mu['w']": "optimizer state", "velocity['w']": "optimizer state"}
    allocations, records = "", []
    for i, name in enumerate(names):
        allocations += f"allocation {i}: size 8, parameter {i}, shape |f32[2]| at ShapeIndex {{}}:\n"
        allocations += value(i, f"p.{i}")
        instruction = f'f32[2]{{0}} parameter({i}), metadata={{op_name="{name}"}}'
        records.append(record(i, f"p.{i}", instruction, uses="  copy.1, operand 0" if i == 1 else ""))
    allocations += f"allocation 9: size 8, preallocated-temp:\n{value(9, 'copy.1')}"
    records.append(record(9, "copy.1", "f32[2]{0} copy(%p.1)"))
    ranges = [*(f"p.{i}{{}}:0-4" for i in range(len(names))), "copy.1{}:1-3"]
    members = attacks.dump([], allocations=allocations, records=records, ranges=ranges)
    rows = xlamem.live_set(xlamem.read(make(members)), 2).to_pylist()
    kinds = {r["value_id"]: (r["op_name"], r["kind"]) for r in rows}
    assert kinds == dict(enumerate(names.items())) | {9: ("opt_state[0].mu['w']", None)}


@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_that_is_printed_first_has_the_name_of_its_operand(first: int, make: Callable[..., Path]) -> None:
    records = [
        record(first, "copy", "f32[2] copy(%a)"),
        record(1 - first, "a", attacks.op_name("jit(f)/one/add"), uses="  copy, operand 0"),
    ]
    values = sorted([value(first, "copy", offset=8), value(1 - first, "a")])
    members = attacks.dump(values, records=sorted(records), ranges=["a{}:0-3", "copy{}:1-3"])
    found = xlamem.buffer(xlamem.read(make(members)), first).value
    assert (found["op_name"], found["origin"]) == ("jit(f)/one/add", "operand")
