"""Advice on what turns bfloat16 into f32, on small programs like ones that were recompiled."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attacks
import numpy as np
import pytest
from advice_programs import Buffer, Make, advice, output, program

import xlamem
from xlamem.compute.hlo_flow import HloFlow, first_callers, groups, operand_items
from xlamem.parse.hlo_body import HloBody, scan_body

FORWARD, BACKWARD = "jit(f)/jvp()", "jit(f)/transpose(jvp())"
SHAPE = "[64,64]{1,0}"


def line(name: str, element_type: str, text: str, op_name: str = "", number: int = 0) -> str:
    source = f' source_file="/m/train.py" source_line={number}' if number else ""
    metadata = f', metadata={{op_name="{op_name}"{source}}}' if op_name else ""
    return f"  %{name} = {element_type}{SHAPE} {text}{metadata}"


def conversion(name: str, operand: str, number: int, element_type: str = "f32", path: str = FORWARD) -> str:
    return line(name, element_type, f"convert(%{operand})", f"{path}/convert_element_type", number)


W, V = line("w", "f32", "parameter(0)", "w"), line("v", "bf16", "parameter(1)", "v")
X = [W, line("x", "bf16", "custom-call(%w)", f"{FORWARD}/tanh", 70), conversion("n", "w", 69, "bf16")]
"""A program with bfloat16: the argument w, what is computed, and a conversion of the argument."""
WIDE = conversion("c", "x", 74)
ADDED = [WIDE, line("b", "f32", "broadcast(%w)"), line("h", "f32", "add(%c, %b)", f"{FORWARD}/add", 74)]
PRODUCT = line("d", "f32", "dot(%h, %w)", f"{FORWARD}/dot_general", 75)


def text(*lines: str) -> str:
    return attacks.hlo("\n".join(["ENTRY %main () -> f32[] {", *lines, "}"]))


def kept(name: str, start: int = 1, shape: str = "f32[64,64]") -> Buffer:
    return Buffer(name, shape, (start, 8), f"{FORWARD}/{name}", uses="  g, operand 0")


HELD = [kept("h"), Buffer("g", "f32[8]", (8, 9), f"{BACKWARD}/mul"), Buffer("x", "bf16[8]", (0, 1), f"{FORWARD}/tanh")]


LOWER = int(0.75 * (64 * 64 * 4 // 2)) - int(0.05 * (64 * 64 * 4 + 32))
"""What is saved for certain if h is bfloat16: a TPU program may need a twentieth of its peak more."""


def promoted(make: Make, *lines: str, buffers: list[Buffer] = HELD, platform: str = "tpu") -> list[dict[str, object]]:
    """Return the rows that name what turns bfloat16 into f32."""
    rows = advice(program(make, buffers, platform, hlo=text(*lines)), "dtype")
    return [row for row in rows if "bfloat16 into f32" in row["action"]]


def test_the_operation_that_turns_bfloat16_into_f32_is_named(make: Make) -> None:
    """A bias in f32 makes all that follows f32."""
    (row,) = advice(program(make, HELD, "tpu", hlo=text(*X, *ADDED, PRODUCT)), "dtype")
    assert row["action"].startswith("`add` (train.py:74) turns bfloat16 into f32, and these buffers are computed")
    assert (row["lower"], row["confidence"], row["n_buffers"]) == (LOWER, "likely", 1)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([*X, *ADDED[1:], WIDE.replace("convert_element_type", "tanh"), PRODUCT], id="no conversion"),
        pytest.param([*X, *[t.replace("jvp()", "transpose(jvp())") for t in ADDED], PRODUCT], id="backward"),
        pytest.param([W, V, *ADDED[1:], conversion("c", "v", 74), X[2], PRODUCT], id="argument"),
        pytest.param([W, X[1], *[t.replace("convert_", "") for t in ADDED], PRODUCT], id="narrowed by XLA"),
        pytest.param([*X, WIDE, line("h", "f32", "add(%w, %w)", f"{FORWARD}/add")], id="not computed from it"),
        pytest.param([*X, WIDE, line("l", "f32", "add(%c, %h)"), line("h", "f32", "sine(%w)")], id="meets it later"),
    ],
)
def test_what_turns_nothing_into_f32(lines: list[str], make: Make) -> None:
    assert not promoted(make, *lines)


def test_another_compiler_may_keep_f32(make: Make) -> None:
    (row,) = promoted(make, *X, *ADDED, PRODUCT, platform="gpu")
    assert (row["lower"], row["confidence"]) == (-64 * 64 * 4, "try")
    assert "or the result. The compiler may convert them back." in str(row["action"])


def test_an_operation_without_a_name(make: Make) -> None:
    forward = [t.replace("jvp()/", "") for t in (*X, *ADDED[:2], line("h", "f32", "add(%c, %b)"), PRODUCT)]
    buffers = [b._replace(op_name=b.op_name.replace("transpose(jvp())/", "").replace("jvp()/", "")) for b in HELD]
    (row,) = promoted(make, *forward, buffers=buffers)
    assert str(row["action"]).startswith("an operation (train.py:74) turns bfloat16 into f32")


def test_operations_without_a_line_are_not_those_of_one_line(make: Make) -> None:
    """Arrays that do not depend on each other are rows of their own."""
    more = [line(f"{name}.2", *columns) for name, *columns in (
        ("x", "bf16", "custom-call(%w)", f"{FORWARD}/tanh"),
        ("c", "f32", "convert(%x.2)", f"{FORWARD}/convert_element_type"),
        ("b", "f32", "broadcast(%w)"),
        ("h", "f32", "add(%c.2, %b.2)", f"{FORWARD}/add"),
    )]  # fmt: skip
    first = [conversion("c", "x", 0), ADDED[1], line("h", "f32", "add(%c, %b)", f"{FORWARD}/add")]
    assert len(promoted(make, *X, *first, *more, buffers=[*HELD, kept("h.2")])) == 2


def test_slices_of_arguments_are_arguments(make: Make) -> None:
    """As loops over layers read their weights: at an index, which is no source of what they are."""
    index = ["  %i = s32[] custom-call()", "  %z = s32[] constant(0)"]
    weights = line("s", "bf16", "dynamic-slice(%v, %i, %z)")
    assert not promoted(make, W, V, *index, weights, *ADDED[1:], conversion("c", "s", 74), X[2], PRODUCT)
    for factor in (["w"], ["s", line("s", "f32", "dynamic-slice(%w, %i, %z)")]):
        name, *lines = factor
        product = line("h", "f32", f"dot(%x, %{name})", f"{FORWARD}/dot_general", 77)
        assert not promoted(make, *X, V, line("h", "f32", "dot(%v, %w)", f"{FORWARD}/dot_general", 77))
        (row,) = promoted(make, *X, *index, *lines, product, line("e", "f32", "dot(%h, %h)", f"{FORWARD}/dot", 78))
        assert str(row["action"]).startswith("`dot_general` (train.py:77) turns")


@pytest.mark.parametrize(
    "damaged",
    ["get-tuple-element(%t), index=9223372036854775807", "get-tuple-element(%t)", "parameter(9223372036854775807)"],
)
def test_damaged_numbers_of_operands(damaged: str, make: Make) -> None:
    more = [f"  %t = (f32{SHAPE}, f32{SHAPE}) tuple(%x, %h)", line("g1", "f32", damaged)]
    assert promoted(make, *X, *ADDED, PRODUCT, *more) == promoted(make, *X, *ADDED, PRODUCT)


def test_a_cpu_computes_in_f32_anyway(make: Make) -> None:
    assert not promoted(make, *X, *ADDED, PRODUCT, platform="cpu")


def test_what_is_not_held_in_f32_is_not_named(make: Make) -> None:
    """Such as the accumulator of a norm."""
    buffers = [kept("h", shape="bf16[64,64]"), HELD[1], HELD[2]]
    assert not promoted(make, *X, *ADDED, PRODUCT, buffers=buffers)


@pytest.mark.parametrize(
    ("more", "confidence"),
    [
        ([PRODUCT], "likely"),
        ([], "try"),
        ([PRODUCT, conversion("back", "h", 76, "bf16")], "try"),
        ([line("d", "bf16", "dot(%h, %h)", f"{FORWARD}/dot_general")], "likely"),
    ],
)
def test_what_a_loss_or_a_norm_computes_in_f32(more: list[str], confidence: str, make: Make) -> None:
    """The compiler may keep logits in both types: without their conversion, two programs needed more memory."""
    (row,) = promoted(make, *X, *ADDED, *more)
    assert row["confidence"] == confidence
    assert ("The compiler may convert them back." in str(row["action"])) == (confidence == "try")


@pytest.mark.parametrize(("clone", "kept"), [("k.1", 0), ("k.remat", 64 * 16 * 4 // 2)])
def test_the_lower_bound_assumes_that_xla_keeps_what_it_rematerializes(clone: str, kept: int, make: Make) -> None:
    buffers = [*HELD, Buffer("k", "f32[64,16]", (0, 0)), Buffer(clone, "f32[64,16]", (9, 9))]
    (row,) = promoted(make, *X, *ADDED, PRODUCT, buffers=buffers)
    assert row["lower"] == LOWER - 0.75 * kept


@pytest.mark.parametrize(("live", "confidence"), [((1, 8), "try"), ((9, 9), "likely")])
def test_temporaries_in_outputs_may_need_another_place(live: tuple[int, int], confidence: str, make: Make) -> None:
    """As those of a diffusion transformer did: its conversion cost 0.25 GiB of 12.8."""
    inside = Buffer("t", "f32[64,64]", live, f"{FORWARD}/mul", slot_of="y")
    (row,) = promoted(make, *X, *ADDED, PRODUCT, buffers=[*HELD, output("y", "f32[64,64]"), inside])
    assert row["confidence"] == confidence


def test_what_is_computed_again_is_f32_as_well(make: Make) -> None:
    """If all that follows is, and not only what a loss computes: 0.6 GiB were saved, of at most 0.4 without it."""
    again = Buffer("r", "f32[64,512]", (1, 8), f"{BACKWARD}/rematted_computation/tanh")
    (model,), (loss,) = (promoted(make, *X, *ADDED, *more, buffers=[*HELD, again]) for more in ([PRODUCT], []))
    assert model["upper"] > again.size / 2 > loss["upper"]


def test_only_gradients_shrink_with_what_a_loss_computes_in_f32(make: Make) -> None:
    gradient, other = (
        promoted(make, *X, *ADDED, buffers=[*HELD, Buffer("r", "f32[64,64]", (1, 8), f"{path}/tanh")])[0]["upper"]
        for path in (BACKWARD, FORWARD)
    )
    assert gradient > other


def test_lines_that_follow_from_a_promotion_are_not_named(make: Make) -> None:
    """In x + y, the type of y may follow from another line."""
    later = [conversion("c.2", "x", 80), line("s", "f32", "add(%c.2, %h)", f"{FORWARD}/add", 80)]
    (row,) = promoted(make, *X, *ADDED, PRODUCT, *later)
    assert str(row["action"]).startswith("`add` (train.py:74) turns")
    assert "80" not in str(row["action"])


def test_other_operands_in_f32_are_named(make: Make) -> None:
    other = line("w.2", "f32", "custom-call()", f"{FORWARD}/tanh")
    later = [other, line("s", "f32", "multiply(%w.2, %h)", f"{FORWARD}/mul", 80)]
    (row,) = promoted(make, *X, *ADDED, PRODUCT, *later)
    assert str(row["action"]).endswith("or the result. Other f32 operands may do so again: train.py:80.")


def test_several_lines_are_named(make: Make) -> None:
    again = [conversion("c.2", "x", 90), line("h.2", "f32", "exponential(%c.2)", f"{FORWARD}/exp", 91)]
    joined = line("s", "f32", "add(%h.2, %h)", f"{FORWARD}/add", 92)
    (row,) = promoted(make, *X, *ADDED, PRODUCT, *again, joined)
    assert str(row["action"]).startswith("`add` (train.py:74) and `exp` (train.py:90) turn bfloat16 into f32")


def test_a_product_of_bfloat16_and_weights_in_f32(make: Make) -> None:
    """XLA needs no conversion for it."""
    product = line("h", "f32", "dot(%x, %w)", f"{FORWARD}/dot_general", 77)
    (row,) = promoted(make, *X, product, line("e", "f32", "dot(%h, %h)", f"{FORWARD}/dot_general", 78))
    assert str(row["action"]).startswith("`dot_general` (train.py:77) turns")


def test_operands_that_xla_made_f32(make: Make) -> None:
    """Where a processor computes in f32, conversions of what it has computed have no effect."""
    x = line("x", "f32", "custom-call(%w)", f"{FORWARD}/tanh", 70)
    assert promoted(make, X[0], x, X[2], *ADDED, PRODUCT)


def test_what_xla_narrowed_for_products_is_still_f32(make: Make) -> None:
    """The program reads h through a product that XLA lets write bfloat16."""
    first = [WIDE, line("b", "f32", "broadcast(%w)"), line("a", "f32", "add(%c, %b)", f"{FORWARD}/add", 74)]
    product = line("q", "bf16", "dot(%a, %b)", f"{FORWARD}/dot_general", 75)
    held = line("h", "f32", "dot(%q, %q)", f"{FORWARD}/dot_general", 76)
    (row,) = promoted(make, *X, *first, product, held)
    assert str(row["action"]).startswith("`add` (train.py:74) turns")


# -- the flow of the HLO text ----------------------------------------------------------------------

FLOW = """HloModule m

%fused (p.1: f32[2], p.2: f32[2]) -> (f32[2], f32[2]) {
  %p.1 = f32[2]{0} parameter(0)
  %p.2 = f32[2]{0} parameter(1)
  %r.1 = f32[2]{0} add(%p.1, %p.1)
  %r.2 = f32[2]{0} add(%p.2, %p.2)
  ROOT %r = (f32[2]{0}, f32[2]{0}) tuple(%r.1, %r.2)
}

%body (q: (f32[2], f32[2])) -> (f32[2], f32[2]) {
  %q = (f32[2]{0}, f32[2]{0}) parameter(0)
  %q.1 = f32[2]{0} get-tuple-element(%q), index=0
  %q.2 = f32[2]{0} get-tuple-element(%q), index=1
  %s = f32[2]{0} negate(%q.1)
  ROOT %t = (f32[2]{0}, f32[2]{0}) tuple(%s, %q.2)
}

ENTRY %main (x: f32[2], y: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %y = f32[2]{0} parameter(1)
  %f = (f32[2]{0}, f32[2]{0}) fusion(%x, %y), kind=kLoop, calls=%fused
  %f.1 = f32[2]{0} get-tuple-element(%f), index=0
  %f.2 = f32[2]{0} get-tuple-element(%f), index=1
  %i = (f32[2]{0}, f32[2]{0}) tuple(%f.1, %f.2)
  %w = (f32[2]{0}, f32[2]{0}) while(%i), condition=%cond, body=%body
  ROOT %w.1 = f32[2]{0} get-tuple-element(%w), index=0
}
"""


def body_of(source: str) -> HloBody:
    data = source.encode()
    return scan_body(data, 0, len(data))


def test_the_flow_through_fusions_and_loops() -> None:
    flow = HloFlow(body_of(FLOW))
    names = flow.body.text("instruction").to_pylist()
    found = {(names[a], names[b]) for a, b in zip(*flow.pairs, strict=True)}
    plain = {("p.1", "r.1"), ("p.2", "r.2"), ("q.1", "s")}
    fusion = {("x", "p.1"), ("y", "p.2"), ("r.1", "f.1"), ("r.2", "f.2"), ("r", "f")}
    loop = {("f.1", "q.1"), ("s", "q.1"), ("f.2", "q.2"), ("q.2", "q.2"), ("s", "w.1"), ("f.1", "w.1")}
    assert found == plain | fusion | loop


def test_the_first_caller_of_a_computation() -> None:
    """Two calls of one function, and a third one in it."""
    body = body_of(
        "HloModule m\n\n%inner (p.1: f32[]) -> f32[] {\n  ROOT %p.1 = f32[] parameter(0)\n}\n\n"
        "%f (p.2: f32[]) -> f32[] {\n  %p.2 = f32[] parameter(0)\n  ROOT %c = f32[] call(%p.2), to_apply=%inner\n}\n\n"
        "ENTRY %main (x: f32[]) -> f32[] {\n  %x = f32[] parameter(0)\n  %a = f32[] call(%x), to_apply=%f\n"
        "  ROOT %b = f32[] call(%a), to_apply=%f\n}\n"
    )
    names = [*body.text("instruction").to_pylist(), None]
    assert [names[row] for row in first_callers(body)] == ["c", "a", None]


def test_groups_are_those_of_a_search() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 40):
        one, other = rng.integers(0, n, (2, n // 2))
        expected = list(range(n))
        for _ in range(n):
            for a, b in zip(one, other, strict=True):
                expected[a] = expected[b] = min(expected[a], expected[b])
        assert groups(n, one, other).tolist() == expected


def test_a_long_chain_is_one_group() -> None:
    rows = np.random.default_rng(0).permutation(5000)
    assert not groups(5000, rows[:-1], rows[1:]).any()


def test_a_text_without_instructions_has_no_flow() -> None:
    source, user = HloFlow(body_of("HloModule m\n\nENTRY %main () -> f32[] {\n}\n")).pairs
    assert (len(source), len(user)) == (0, 0)


def test_a_dump_without_an_hlo_text_names_no_operation(make: Make) -> None:
    (row,) = (r for r in xlamem.advise(program(make, HELD, "tpu")).to_pylist() if r["kind"] == "dtype")
    assert row["action"].startswith("Compute in bfloat16: these buffers are f32.")


@pytest.mark.parametrize(
    ("row", "number", "item"), [(0, 0, 0), (0, 1, 1), (0, 2, -1), (1, 0, -1), (2, 0, 2), (2, -1, -1), (-1, 0, -1)]
)
def test_places_of_operands(row: int, number: int, item: int) -> None:
    """The first of three instructions has two operands, the last one has one."""
    body: Any = SimpleNamespace(operand_begin=np.array([0, 2, 2, 3]))
    assert operand_items(body, np.array([row]), number).tolist() == [item]
