"""The computations of HLO texts: compared with the slow reader, on real, broken and hand-written texts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import proto
import pyarrow as pa
import pytest
from compare_bodies import compare, complete_lines, names, numbers, plain
from conftest import DUMPS, label, sources, texts

import xlamem
from xlamem import _hlo_body
from xlamem.dump import as_tables, hlo_body
from xlamem.input.find import Member, Source
from xlamem.parse.arrays import NULL
from xlamem.parse.hlo_body import CALLS, scan_body

LARGE = 1 << 20
"""Longer texts take the slow reader seconds."""


# -- real texts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [s for s in sources() if any(m.role == "hlo" for m in s.members)], ids=label)
def test_real_texts(source: Source) -> None:
    data = texts(source)["hlo"]
    if len(data) > LARGE:
        pytest.skip("too large for the slow reader")
    body = compare(data)
    assert body.unknown_lines == 0
    assert body.complete or "truncated" in source.location or "killed-at" in source.location
    assert (body.operand_row >= 0).all()
    assert (body.root[: len(body.root) - (not body.complete)] >= 0).all()


@pytest.mark.parametrize("source", [s for s in sources() if len(s.members) > 1], ids=label)
def test_instructions_of_the_tables_are_in_the_text(source: Source) -> None:
    """Their op_name and line agree; only get-tuple-elements that the text writes as `%while#1` are missing."""
    if source.bytes_on_disk() > 4 * LARGE or "disable_metadata" in source.location:
        pytest.skip("large, or only the used values have metadata")
    dump = xlamem.read(source)
    body = hlo_body(as_tables(dump))
    if body is None or not body.complete:
        pytest.skip("no complete HLO text")
    table = dump.instructions.to_pylist()
    rows = body.rows_of(pa.array([row["instruction"] for row in table], pa.string()))
    ours = {c: names(body, c) for c in ("op_name", "source_file")}
    lines, frames = numbers(body.source_line, NULL), numbers(body.stack_frame_id, NULL)
    found = 0
    for row, i in zip(table, rows.tolist(), strict=True):
        if i < 0:
            assert row["opcode"] == "get-tuple-element" or row["opcode"].endswith(("-start", "-done")), row
            continue
        found += 1
        assert {c: v[i] for c, v in ours.items()} == {c: row[c] for c in ours}
        assert (lines[i], frames[i]) == (row["source_line"], row["stack_frame_id"])
    assert found or not table


def module_of(source: Source) -> Any:
    """The module in the `.hlo.pb` beside a dump, None if there is none."""
    path = Path(source.location.split("::")[0]) / f"{source.name}.hlo.pb"
    return proto.module(path.read_bytes()) if path.is_file() else None


def facts_of(module: Any) -> dict[str, Any]:
    """The instructions of a module by name, as `facts` gives them."""
    computations = {c.id: c.name for c in module.computations}
    found = {}
    for c in module.computations:
        name_of = {i.id & 0xFFFFFFFF: i.name for i in c.instructions}
        for i in c.instructions:
            found[i.name] = {
                "computation": c.name, "op_name": i.metadata.op_name or None,
                "source_file": i.metadata.source_file or None, "source_line": i.metadata.source_line or None,
                "stack_frame_id": i.metadata.stack_frame_id or None, "is_root": i.id == c.root_id,
                "operands": [name_of[o & 0xFFFFFFFF] for o in i.operand_ids],
                "calls": sorted({computations[c] for c in i.called_computation_ids}),
                "parameter_number": i.parameter_number if i.opcode == "parameter" else None,
                "tuple_index": i.tuple_index if i.opcode == "get-tuple-element" else None,
            }  # fmt: skip
    return found


def with_elements(row: Any, elements: dict[str, tuple[str, int]]) -> Any:
    """The row with operands as the text writes them: `%a#0#1` for get-tuple-elements that it leaves out."""
    operands = []
    for name in row["operands"]:
        index: list[str] = []
        while name in elements:
            name, element = elements[name]
            index.insert(0, str(element))
        operands.append((name, "{" + ",".join(index) + "}" if index else None))
    return row | {"operands": operands}


@pytest.mark.parametrize("source", [s for s in sources() if any(m.role == "hlo" for m in s.members)], ids=label)
def test_proto(source: Source) -> None:
    """Every instruction of the module, with its metadata, operands and calls; the text has no others."""
    module = module_of(source)
    if module is None or source.bytes_on_disk() > 99 * LARGE or "disable_metadata" in source.location:
        pytest.skip("no proto, large, or no metadata in the text")
    body = plain(complete_lines(texts(source)["hlo"]))
    name_of = [c["name"] for c in body.computations]
    wanted = facts_of(module)
    if not body.complete:
        pytest.skip("cut")
    present = {row["instruction"] for row in body.instructions}
    if all(row["stack_frame_id"] is None for row in body.instructions):  # older releases do not print them
        wanted = {name: fact | {"stack_frame_id": None} for name, fact in wanted.items()}
    elements = {n: (w["operands"][0], w["tuple_index"]) for n, w in wanted.items() if n not in present}
    for row in body.instructions:
        given = row | {
            "computation": name_of[row["computation"]], "operands": [o[:2] for o in row["operands"]],
            "calls": sorted({name_of[c] for _, c in row["calls"]}),
        }  # fmt: skip
        expected = with_elements(wanted.pop(row["instruction"]), elements)
        assert {k: given[k] for k in expected} == expected
    assert wanted.keys() == elements.keys()
    assert module.entry_computation_name == name_of[body.entry or 0]


# -- broken texts ------------------------------------------------------------------------------------

SMALL = rb"""HloModule jit_f, is_scheduled=true

FileNames
1 "/home/user/f.py"

%body.1 (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg = (s32[], f32[8]{0:T(128)}) parameter(0), metadata={op_name="x[\'a\"]"}
  %t = s32[] add(%arg#0, %arg#0), metadata={op_type="Add" op_name="jit(f)/while" source_file="f.py" source_line=12}
  ROOT %tuple.2 = (s32[], /*index=1*/f32[8]{0}) tuple(%t, /*index=1*/%arg#1#0), backend_config={"a":"}\"{","b":[1]}
}, execution_thread="x"

cond {
  p = (s32[], f32[8]{0}) parameter(0)
  ROOT lt = pred[] compare(s32[] p, s32[8]{0} %p), direction=LT
} // cond

ENTRY %main (a: f32[8]) -> f32[8] {
  %c = f32[2,2]{1,0} constant({
  { 1, 2 },
  { 3, 4 }
  }), metadata={op_name="literal" stack_frame_id=3}
  %w = (s32[], f32[8]{0}) while((s32[], f32[8]{0}) %c), condition=%cond, body=%body.1, sharding={mesh['x'=1]}
  ROOT %g = f32[8]{0} get-tuple-element(%w), index=1, branch_computations={%cond, %body.1}
}
"""


def test_small_text() -> None:
    body = compare(SMALL)
    assert body.unknown_lines == 0
    assert body.complete
    assert names(body, "computation_name") == ["body.1", "cond", "main"]
    assert names(body, "instruction") == ["arg", "t", "tuple.2", "p", "lt", "c", "w", "g"]
    assert names(body, "op_name") == ["x['a\"]", "jit(f)/while", None, None, None, "literal", None, None]
    assert names(body, "operand") == ["arg", "arg", "t", "arg", "p", "p", "c", "w"]
    assert names(body, "operand_index") == ["{0}", "{0}", None, "{1,0}", None, None, None, None]
    assert body.operand_row.tolist() == [0, 0, 1, 0, 3, 3, 5, 6]
    assert body.called.tolist() == [-1, -1, -1, -1, -1, -1, 0, 1]
    assert [CALLS[k] for k in body.call_kind] == ["condition", "body", *["branch_computations"] * 2]
    assert body.root.tolist() == [2, 4, 7]
    assert body.tuple_index.tolist()[-1] == 1
    assert repr(body) == "<HloBody: 8 instructions in 3 computations>"
    assert body.rows_of(pa.array(["w", "nothing"])).tolist() == [6, -1]


def test_cut_at_every_byte() -> None:
    full = plain(complete_lines(SMALL))
    for end in range(len(SMALL)):
        body = plain(complete_lines(SMALL[:end]))
        assert len(body.instructions) <= len(full.instructions)
        assert [r["instruction"] for r in body.instructions] == [
            r["instruction"] for r in full.instructions[: len(body.instructions)]
        ]
        assert not body.complete
        compare(SMALL[:end] + b"\n")


@pytest.mark.parametrize("text", [SMALL, (DUMPS / "cpu-tf-2.3.4-loop").glob("*after_optimizations.txt")])
def test_lines_deleted_doubled_and_cut(text: Any) -> None:
    data = text if isinstance(text, bytes) else next(iter(text)).read_bytes()
    lines = data.splitlines(keepends=True)
    for i, line in enumerate(lines):
        for changed in ([], [line, line], [line[: len(line) // 2] + b"\n"], [line[len(line) // 2 :]]):
            compare(b"".join([*lines[:i], *changed, *lines[i + 1 :]]))


@pytest.mark.parametrize("seed", range(4))
def test_bytes_changed(seed: int) -> None:
    """The characters that the grammar is made of, anywhere."""
    rng = random.Random(seed)
    for _ in range(400):
        data = bytearray(SMALL)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b"\n\n \"\\(){}[],=%#/*ax0-\xff\xc3")
        compare(bytes(data) + b"\n")


# -- hand-written lines ------------------------------------------------------------------------------


def entry(*lines: str) -> bytes:
    return "\n".join(["HloModule m", "", "ENTRY %e (a: f32[]) -> f32[] {", *lines, "}", ""]).encode()


@pytest.mark.parametrize(
    ("line", "operands"),
    [
        ("%x = f32[] add(%a, %b)", ["a", "b"]),
        ("x = f32[] add(a, b.1)", ["a", "b.1"]),
        ("x = f32[] add(f32[] a, (f32[2]{0:T(8,128)}, s32[]) %b-1)", ["a", "b-1"]),
        ("%x = f32[] add(/*index=0*/%a, /*index=1*/f32[] %b, %c#12#0)", ["a", "b", "c"]),
        ("%x = f32[] iota()", []),
        ('%x = f32[] custom-call(%a), custom_call_target="a\\"(b{", backend_config="{\\"k\\": \\"%b\\"}"', ["a"]),
        ("%x = (f32[], (s32[], u32[])) async-start(%a), calls=%c", ["a"]),
        ("%x = f32[4]{0} constant({1, 2, 3, 4})", []),
        ("%x = f32[4]{0} constant({...})", []),
        ("%x = f32[4]{0} parameter(3)", []),
        ("%x = f32[] add(%a, 12)", ["a", None]),
        ("%x = f32[] add(%a%b, %a#, a b)", [None, None, "b"]),
        ("%x = b((f32[2], s32[])) copy(%a)", ["a"]),
        ("%x = f32[<=5]{0} copy(%a)", ["a"]),
    ],
)
def test_operands(line: str, operands: list[str | None]) -> None:
    for prefix in ("  ", "  ROOT "):
        body = compare(entry(prefix + line))
        assert names(body, "operand") == operands
        assert body.is_root.tolist() == [prefix == "  ROOT "]
        assert body.unknown_lines == (None in operands)


@pytest.mark.parametrize(
    ("more", "op_name", "unknown"),
    [
        (('"a":"{\\"block\\": 1}"', '}}, metadata={op_name="k"}'), "k", 0),
        (('"a":"1",', '"b":"2"', '}, other={', '"c":"3"', '}}, metadata={op_name="k"}'), "k", 0),
        (("b", '}}, metadata={op_name="k"}'), None, 3),
        (('"a":"1"',), None, 1),
    ],
)
def test_metadata_of_a_kernel_on_lines_of_its_own(more: tuple[str, ...], op_name: str | None, unknown: int) -> None:
    call = "  %x = f32[] custom-call(%a), frontend_attributes={kernel_metadata={"
    body = compare(entry(call, *more, "  %y = f32[] add(%x, %x)"))
    assert names(body, "op_name")[0] == op_name
    assert body.unknown_lines == unknown


@pytest.mark.parametrize("line", ["%x = f32[] parameter(-1)", "%x = f32[] get-tuple-element(%a), index=-1"])
def test_negative_index_is_unknown(line: str) -> None:
    body = compare(entry("  " + line))
    assert (len(body), body.unknown_lines) == (1, 1)
    assert (body.parameter_number.tolist(), body.tuple_index.tolist()) == ([-1], [-1])


@pytest.mark.parametrize(
    ("metadata", "op_name", "source_line", "good"),
    [
        (r'op_name="a\"b" source_line=7', 'a"b', 7, True),
        (r'source_line=7 scheduling_name="}" op_name="a}, b={"', "a}, b={", 7, True),
        (r'op_name="\303\244\xff"', "ä\\xff", None, True),
        (r'op_name=""', "", None, True),
        (r'profile_type={1,2} op_name="a"', "a", None, True),
        (r'op_name=a source_line=7', None, None, False),
        (r'op_name="a" source_line=x', "a", None, False),
        (r'op_name="a" source_line=99999999999999999999', "a", None, False),
        (r'op_name="a" b', "a", None, False),
        ("", None, None, True),
    ],
)  # fmt: skip
def test_metadata(metadata: str, op_name: str | None, source_line: int | None, good: bool) -> None:
    body = compare(entry(f"  %x = f32[] copy(%a), calls=%e, metadata={{{metadata}}}, to_apply=%e"))
    assert names(body, "op_name") == [op_name]
    assert numbers(body.source_line, NULL) == [source_line]
    assert body.call.tolist() == [0, 0]
    assert body.unknown_lines == (not good)


@pytest.mark.parametrize(
    ("attributes", "called", "good"),
    [
        ("condition=%c, body=%b", ["c", "b"], True),
        ("calls={%b, %c}", ["b", "c"], True),
        ("called_computations={}", [], True),
        ("true_computation=b, false_computation=c", ["b", "c"], True),
        ("calls={%b %c}", ["b"], False),
        ("calls=", [], False),
        ("calls=%b; to_apply=%c", ["b"], False),
        ('backend_config={"a":"}, calls=%b"}, to_apply=%c', ["c"], True),
        ('backend_config={"a":[1]} x, to_apply=%c', ["c"], True),
        ("sharding={mesh['x'=1], [{}, {}]}, to_apply=%c", ["c"], True),
        ("sharding={{}, to_apply=%c", [], True),
        ("to_apply=%missing", [None], True),
    ],
)
def test_calls(attributes: str, called: list[str | None], good: bool) -> None:
    others = b"\n%b (p: f32[]) -> f32[] {\n}\n\n%c {\n}\n"
    body = compare(entry(*[f"  %{name} = f32[] fusion(%a), {attributes}" for name in "xy"]) + others)
    computations = [*names(body, "computation_name"), None]
    assert [computations[c] for c in body.call] == called * 2
    assert body.unknown_lines == 2 * (not good)


@pytest.mark.parametrize(
    "line",
    [
        "%x = f32[] add(%a, %b", "%x = f32[] add %a", "%x = f32[]", "%x = add(%a)", "%x = f32[] (%a)", "%x =",
        "%x f32[] add(%a)", "%1x = f32[] add(%a)", "x", "ROOT = f32[] add(%a)", "%x = f32[] add(%a]", "%x =  add(%a)",
        '%x = f32[] add("%a)', "%x = f32[ add(%a)",
    ],
)  # fmt: skip
def test_lines_without_a_row(line: str) -> None:
    body = compare(entry("  " + line, "  %y = f32[] copy(%z)"))
    assert names(body, "instruction") == ["y"]
    assert body.unknown_lines == 1
    assert body.complete


@pytest.mark.parametrize("lines", [(), ("",), ("}",), ("  %x = f32[] iota()",), ("HloModule m, x={",), ("text",)])
def test_texts_without_computations(lines: tuple[str, ...]) -> None:
    body = compare("".join(line + "\n" for line in lines).encode())
    assert len(body) == len(body.computation_name) == body.unknown_lines == 0
    assert body.entry == -1


def test_text_between_computations_is_counted() -> None:
    assert compare(SMALL + b"text\n  %x = f32[] iota()\n}\n").unknown_lines == 3


def test_the_first_of_equal_names_counts() -> None:
    twice = ("  %a = f32[] iota()", "  %a = f32[] copy(%a)", "  %b = f32[] copy(%a)")
    body = compare(entry(*twice) + entry(*twice))
    assert body.operand_row.tolist() == [0, 0, 3, 3]
    assert body.entry == 0


def test_a_span_of_the_data() -> None:
    data = b"x" * 7 + SMALL
    assert plain(scan_body(data, 7, len(data))) == plain(complete_lines(SMALL))
    with pytest.raises(ValueError, match="newline"):
        scan_body(data, 0, len(data) - 1)
    with pytest.raises(ValueError, match="span"):
        scan_body(data, -1, len(data))
    with pytest.raises(ValueError, match="interner"):
        _hlo_body.scan(data, 0, len(data), ())


@pytest.mark.parametrize(
    ("header", "devices"),
    [
        ("HloModule m", 0), ("HloModule m, replica_count=2, num_partitions=4", 8), ("HloModule m, num_partitions=4", 4),
        ("HloModule m, num_partitions=4" * 9, 4), ("HloModule m, num_partitions=4, num_partitions=2", 4),
        ('HloModule m, a={b=", num_partitions=4"}', 0), (r'HloModule m, a="\", num_partitions=4"', 0),
        ('HloModule m, a="b", num_partitions=4, c="d"', 4), ('HloModule m, a=", num_partitions=4', 0),
        ("HloModule m" + ", replica_count=999999999" * 999, 999_999_999), ("x HloModule m, num_partitions=4", 0),
        ("HloModule m, num_partitions=" + "9" * 9999, 0), ("\nHloModule m, num_partitions=4", 0),
    ],
)  # fmt: skip
def test_devices_of_the_header(header: str, devices: int) -> None:
    """The first of each field, outside of strings."""
    data = f"{header}\n\n".encode() + entry("  %x = f32[] iota()")
    assert complete_lines(data).devices == devices


def test_strings_of_the_header_take_linear_time() -> None:
    assert complete_lines(b'HloModule m, a="' + rb"\"" * 500_000 + b"\\\n").devices == 0


def test_scanning_takes_linear_time() -> None:
    """Unfinished lines are read again, but not once for each line before them."""
    lines = 20_000
    for line in ("  %x = f32[] add((", "  { 1, 2 },", '  %x = f32[] add(%a), metadata={op_name="', "%c {"):
        data = entry("  %c = f32[] constant({", *[line] * lines)
        assert complete_lines(data).unknown_lines <= lines + 1


# -- dumps -------------------------------------------------------------------------------------------


def source_of(**members: bytes) -> Source:
    made = tuple(Member(role, role, size=len(data), content=data) for role, data in members.items())  # type: ignore[arg-type]
    return Source("m", made)


def test_body_of_a_dump() -> None:
    dump = xlamem.read(source_of(hlo=SMALL))
    body = hlo_body(as_tables(dump))
    assert body is not None
    assert len(body) == 8
    assert hlo_body(as_tables(dump)) is body


@pytest.mark.parametrize("text", [b"HloModule m\n", b"HloModule m\n\n%f {"])
def test_hlo_text_without_computations(text: bytes) -> None:
    assert hlo_body(as_tables(xlamem.read(source_of(hlo=text)))) is None


def test_dumps_without_hlo_text(tmp_path: Path) -> None:
    folder = DUMPS / "cpu-jaxlib-0.5.3-tuple3"
    assert hlo_body(as_tables(xlamem.read(next(folder.glob("*buffer-assignment.txt")).read_bytes()))) is None
    xlamem.convert(folder, to=tmp_path)
    dataset = xlamem.Dataset(tmp_path)
    assert hlo_body(as_tables(dataset.read(dataset.ids[0]))) is None


def test_tables_do_not_read_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_hlo_body, "scan", None)
    dump = xlamem.read(DUMPS / "cpu-jaxlib-0.5.3-tuple3")
    assert dump.verify().num_rows == 0


@pytest.mark.parametrize("text", [False, True])
def test_the_body_of_a_dump(text: bool) -> None:
    """Also of a truncated text; there is none without computations. It is read once."""
    allocations = b"BufferAssignment:\nallocation 0: size 4, thread-local:\n"
    header, _, rest = SMALL.partition(b"\n")
    lines = rest.splitlines(keepends=True)
    for n in range(len(lines) + 1):
        content = header + b"\n" + b"".join(lines[:n])
        members = [Member("hlo", "hlo", size=len(content), content=content)]
        members.append(Member("buffer-assignment", "b", size=len(allocations), content=allocations))
        tables = as_tables(xlamem.read(Source("x", tuple(members)), text=text))
        body, expected = hlo_body(tables), scan_body(content, 0, len(content))
        assert hlo_body(tables) is body
        if len(expected.computation_name):
            assert body is not None
            assert plain(body) == plain(expected)
            assert body.complete == expected.complete
        else:
            assert body is None
    alone = xlamem.read(Source("x", tuple(members[1:])))
    assert hlo_body(as_tables(alone)) is None
    assert hlo_body(xlamem.read(Source("x", tuple(members)))._tables) is not None
