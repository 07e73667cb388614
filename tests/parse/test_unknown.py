"""Text that XLA does not print yet: known columns keep their values, and what is new is named, counted and kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import render
from conftest import DUMPS, every, texts
from test_whole import held

import xlamem
from xlamem import _lines, schema
from xlamem._lines import WANTED
from xlamem.compute import REGISTRY
from xlamem.input import text
from xlamem.input.find import Source
from xlamem.parse import checks, diagnostics, whole
from xlamem.parse import outline as outlines
from xlamem.parse import pieces as streaming
from xlamem.parse.threads import ThreadPool

TABLES = [t.name for t in schema.SECTION_TABLES]
ERAS = [
    "cpu-tf-1.15.0-loop", "cpu-tf-2.3.4-loop", "cpu-tf-2.9.3-mlp", "cpu-jaxlib-0.4.13-donate_adam",
    "cpu-jaxlib-0.4.26-scan_while", "cpu-jaxlib-0.4.35-cond_switch", "cpu-jaxlib-0.5.3-tuple3",
    "tpu-libtpu-0.0.11.4-v5e-tuple3", "cpu-jaxlib-0.9.1-mlp_grad", "cpu-jaxlib-0.10.2-cond_switch",
    "gpu-jax-0.10.2-offload_params", "tpu-libtpu-0.0.50.1-v5e-mlp_grad",
]  # fmt: skip

NAME = r"[A-Za-z_][\w.-]*"
INDEX = r"\{[\d,]*\}"
HUMAN = r"-?[\d.]+(?:B|[KMGTPE]iB)"
SHORT = rf"<\d+¦ {NAME}(?:{INDEX})?¦(?: \(phi\)¦)?(?: @\d+¦)?>"
SHAPE = r"\(?[a-z][^\n]*[\])}]"
FIELDS = (
    rf"(?:, parameter \d+(?:, shape \|[^|]*\|)?(?: at ShapeIndex {INDEX})?¦)?(?:, output shape is \|[^|]*\|¦)?"
    "(?:, constant¦)?(?:, thread-local¦)?(?:, maybe-live-out¦)?(?:, preallocated-temp¦)?"
)
LINES = {
    "allocation": r"allocation \d+: (?:0x[0-9a-f]+¦, )?size \d+¦(?:, color \d+¦)?(?:, page \d+¦)?" + FIELDS + ":¦",
    "value": rf" value: ‖{SHORT}¦ \(size=\d+¦,offset=\d+¦\)¦: ‖{SHAPE}¦",
    "E1 head": rf"  \d+¦ (?:PHI )?{NAME}(?:{INDEX})?¦ @-?\d+¦, positions:¦",
    "E1 end": rf" \[\d+,\d+¦\]¦: {SHAPE}¦",
    "record": rf"{SHORT}¦",
    "use": rf"  {NAME}¦, operand \d+¦(?: {INDEX}¦)?",
    "position": rf"  {NAME}¦(?: {INDEX}¦)?",
    "list": " (?:positions|uses):¦",
    "step": rf"    ‖\d+:{NAME}¦",
    "range": rf"    ‖{NAME}{INDEX}¦:\d+-\d+¦",
    "peak": rf"    {NAME}(?:{INDEX})?¦: \d+ bytes¦(?: \(cumulative: \d+ bytes¦\)¦)?",
    "live head": "  (?:InstructionSequence|BufferLiveRange)¦:¦",
    "peak head": r"  Live ranges at \d+¦ \(peak¦\):¦",
    "tree head": r"  Stack trace breakdown for peak usage: [\d ]+ bytes¦",
    "node": r"  .* \([\d.]+%, total: [\d ]+ bytes¦, current: [\d ]+ bytes¦, remaining: [\d ]+ bytes¦\)¦",
    "max": r"HloLiveRange \(max \d+¦\)¦:¦",
    "total": rf"Total bytes used: \d+¦(?: \({HUMAN}¦\)¦)?",
    "report list": rf" *{HUMAN}\( *[\d.]+%\)¦; *{HUMAN}¦; allocation \d+: size {HUMAN}¦{FIELDS}:¦",
    "report allocation": rf"allocation \d+: size {HUMAN}¦(?:, color \d+¦)?{FIELDS}:¦",
    "report row": rf"(?:\t|  ) *{HUMAN}\( *(?:\d+|-?nan)%\)¦; *{HUMAN}¦; *\d+¦; *\d+¦; .*{SHAPE}¦",
    "report rest": r"(?:\t|  )?The rest \d+ .* not shown\.¦",
    "space": r"Memory Space: .* \(color=\d+¦\)¦",
    "space total": rf"Total bytes: \d+¦ \({HUMAN}¦\)¦",
    "location": r"\d+ \{file_name_id=\d+¦ function_name_id=\d+¦ line=\d+¦[^}¦]*\}¦",
    "frame": r"\d+ \{file_location_id=\d+¦ parent_frame_id=\d+¦\}¦",
    "file name": r'\d+ "[^"]*"¦',
}
"""Lines of every section, with ¦ where a field can follow what is there, and ‖ where one can come first."""


def pattern(line: str) -> re.Pattern[bytes]:
    n = count()
    return re.compile(re.sub("[¦‖]", lambda m: f"(?P<{'a' if m[0] == '¦' else 'b'}{next(n)}>)", line).encode())


PATTERNS = {name: pattern(line) for name, line in LINES.items()}
COMMA = {"allocation", "node", "report allocation"}
"""Lines whose fields stand between commas."""


def dump_of(name: str) -> Source:
    return xlamem.find(DUMPS / name)[0]


def known(dump: xlamem.Dump) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name in TABLES:
        table = dump[name]
        if "attributes" in table.column_names and name != "instructions":
            table = table.drop_columns("attributes")
        found[name] = table.to_pylist()
    return found


def field_at(kind: str, group: str, before: bytes) -> bytes:
    """A field as XLA would print it there."""
    if group.startswith("b"):
        return b"zz=7 "
    if kind == "value" and re.search(rb"\([^)]*$", before):
        return b",zz=7"
    return b", zz 7" if kind in COMMA or before.endswith(b"preallocated-temp") else b" zz=7"


def planted(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The text with a field that does not exist yet, at each place of one line of each form."""
    lines = data.split(b"\n")
    seen = set()
    for i, line in enumerate(lines[:-1]):
        for kind, found in ((k, p.fullmatch(line)) for k, p in PATTERNS.items()):
            if not found:
                continue
            places = [g for g in found.re.groupindex if found[g] is not None]
            for group in places if (kind, *places) not in seen else ():
                at = found.start(group)
                changed = line[:at] + field_at(kind, group, line[:at]) + line[at:]
                yield f"{kind}: {changed.decode()!r}", b"\n".join([*lines[:i], changed, *lines[i + 1 :]])
            seen.add((kind, *places))
            break


def inserted(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The text with a line or a section that does not exist yet, below one line of each form and at both ends."""
    lines = data.split(b"\n")
    seen = set()
    for i, line in enumerate(lines[:-1]):
        form = re.sub(rb"[\w.-]+", b"w", line)[:24]
        if line and form not in seen:
            seen.add(form)
            indent = line[: len(line) - len(line.lstrip(b" "))]
            yield f"line below {line!r}", b"\n".join([*lines[: i + 1], indent + b"zz=7", *lines[i + 1 :]])
    section = [b"ZzSection (max 7):", b"  zz: 7", b"    zz 7:8", b""]
    yield "section first", b"\n".join(section) + data
    yield "section last", data + b"\n".join(section)


def check(source: Source, change: Any, member: str | None = None) -> int:
    """Reads every changed text of a dump; returns how many there were."""
    members = texts(source)
    whole = xlamem.read(held("x", members, source.platform), text=True)
    expected, complete, n, wrong = known(whole), whole.complete, 0, []
    for role, data in members.items():
        if role == "hlo":
            continue
        for what, changed in change(data):
            dump = xlamem.read(held("x", members | {role: changed}, source.platform), text=True)
            n += 1
            if (
                known(dump) != expected
                or dump.complete != complete
                or dump.modules["understood"][0].as_py()
                or not any(b"zz" in t for t in dump.unknown_text["text"].cast(pa.binary()).to_pylist())
                or render.render({t: dump[t].to_pylist() for t in schema.TABLES}).get(role, changed) != changed
            ):
                wrong.append(f"{role}, {what}")
    assert not wrong, f"{len(wrong)} of {n}: " + "\n".join(wrong[:20])
    return n


@pytest.mark.parametrize("name", every(3, ERAS))
def test_fields(name: str) -> None:
    """A field at any place of any line changes no known column, is kept, and goes back where it stood."""
    assert check(dump_of(name), planted) > 10


@pytest.mark.parametrize("name", every(2, ERAS))
def test_lines_and_sections(name: str) -> None:
    assert check(dump_of(name), inserted) > 10


def test_attributes_and_diagnostics(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of a kind have a new field: it is named once, with the number of lines."""
    source = dump_of("cpu-jaxlib-0.10.2-cond_switch")
    members = texts(source)
    data = members["buffer-assignment"]
    data = re.sub(rb"(allocation \d+: size \d+)", rb"\1, placement 64", data)
    data = re.sub(rb",offset=", b",align=8,offset=", data)
    changed = held("x", members | {"buffer-assignment": data}, source.platform)
    dump, plain = xlamem.read(changed), xlamem.read(source)
    assert known(dump) == known(plain)
    assert dump.complete
    assert dump.modules["consistent"][0].as_py()
    assert set(dump.allocations["attributes"].to_pylist()) == {"placement 64"}
    assert set(dump.values["attributes"].to_pylist()) == {"align=8"}
    found = [(d["code"], d["wanted"], d["excerpt"][:15]) for d in dump.diagnostics.to_pylist()]
    lines = (dump.allocations.num_rows, dump.values.num_rows)
    assert found == [
        ("unknown_field", f"the fields that this version knows, not 'placement' ({lines[0]} times)", ", placement 64"),
        ("unknown_field", f"the fields that this version knows, not 'align' ({lines[1]} times)", ",align=8,offset"),
    ] or [f[:2] for f in found] == [
        ("unknown_field", f"the fields that this version knows, not 'placement' ({lines[0]} times)"),
        ("unknown_field", f"the fields that this version knows, not 'align' ({lines[1]} times)"),
    ]
    assert xlamem.peak(dump).spaces.equals(xlamem.peak(plain).spaces)
    result = xlamem.fits(dump, capacity="1MiB")
    assert result.fits is None
    assert "placement" in result.reason
    # By spans on several threads, and piece by piece.
    rows = {name: dump[name].to_pylist() for name in schema.TABLES}
    monkeypatch.setattr(whole, "SPAN_BYTES", 300)
    monkeypatch.setattr(streaming, "SPAN_BYTES", 300)
    again = xlamem.read(changed, threads=3)
    for name in schema.TABLES:
        assert again[name].to_pylist() == rows[name], name
        assert dump.batches(name).read_all().to_pylist() == rows[name], name


def test_what_is_of_an_unknown_list() -> None:
    """Lines below a head that is not known are not those of the list before."""
    source = dump_of("cpu-jaxlib-0.10.2-cond_switch")
    members = texts(source)
    expected = known(xlamem.read(source))
    readers = b" readers:\n  zz, operand 3\n from instruction:"
    used = members["buffer-assignment-values"].replace(b" from instruction:", readers)
    live = members["live-range"].replace(b"  BufferLiveRange:\n", b"  Pinned:\n    1:zz\n  BufferLiveRange:\n")
    dump = xlamem.read(held("x", members | {"buffer-assignment-values": used, "live-range": live}, source.platform))
    assert known(dump) == expected
    assert {d["code"] for d in dump.diagnostics.to_pylist()} == {"unknown_line"}


def test_diagnostics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most MAX_ROWS rows of a code in a file, and one that says how many more; lines are counted in one pass."""
    monkeypatch.setattr(diagnostics, "MAX_ROWS", 5)
    monkeypatch.setattr(checks, "MAX_ROWS", 5)
    source = dump_of("tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    members = texts(source)
    data = members["buffer-assignment-values"]
    n = data.count(b", operand ")
    live = members["live-range"].replace(b"  BufferLiveRange:\n", b"  BufferLiveRange:\n    zz\n")
    changed = members | {"buffer-assignment-values": data.replace(b", operand ", b", Operand "), "live-range": live}
    counted = []
    positions = text.Text.positions
    monkeypatch.setattr(text.Text, "positions", lambda self, offsets: counted.append(1) or positions(self, offsets))
    found = xlamem.read(held("x", changed, "tpu")).diagnostics.to_pylist()
    (one, *lines) = sorted((d for d in found if d["code"] == "unknown_line"), key=lambda d: "values" in d["file"])
    assert one["excerpt"].strip() == "zz"
    assert [d["line"] for d in lines] == [i for i, t in enumerate(data.split(b"\n"), 1) if b", operand " in t][:5]
    assert [d["wanted"] for d in found if d["code"] == "more_diagnostics"] == [f"{n - 5} more of unknown_line"]
    assert len(counted) == len({d["file"] for d in found})


@pytest.mark.parametrize("name", ["peaks", "live_set", "explain"])
def test_computations_know_nothing_of_it(name: str) -> None:
    source = dump_of("tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    members = texts(source)
    live = re.sub(rb"(:\d+-\d+)\n", rb"\1 zz=7\n", members["live-range"])
    dump = xlamem.read(held("x", members | {"live-range": live}, "tpu"))
    assert pc.all(pc.equal(dump.live_ranges["attributes"], "zz=7")).as_py()
    plain = xlamem.read(held("x", members, "tpu"))
    assert REGISTRY[name](dump).to_pylist() == REGISTRY[name](plain).to_pylist()


HEAD = b"BufferAssignment:\n"
ONE = HEAD + b"allocation 0: size 500:\n"
TOTAL = b"\nTotal bytes used: 500\n\nUsed values:\n"


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        (ONE + TOTAL, True),
        (HEAD + b"x=1 allocation 0: size 500, color 5:\n" + TOTAL, None),
        *((ONE + TOTAL.replace(b"500", total), None) for total in (b"500KiB", b"500.5", b"500 + 9", b"x=5 500")),
        (ONE + TOTAL.replace(b"500", b"1" * 5000), None),
        (ONE + TOTAL + b"\nTotal bytes used: 9000\n\nUsed values:\n", None),
    ],
)
def test_a_verdict_needs_a_total_that_is_understood(data: bytes, verdict: bool | None) -> None:
    assert xlamem.fits(xlamem.read(held("x", {"buffer-assignment": data})), capacity=600).fits is verdict


N = 100_000
RECORD = b"<5 a @0>\n positions:\n  a\n uses:\n from instruction: %a = f32[] add()"
VALUE = HEAD + b"allocation 0: size 4, maybe-live-out:\n value: <5 a @0>"


@pytest.mark.parametrize(
    "data",
    [
        VALUE + b" (" * N,
        VALUE + b" (s" * N + b")" * N,
        VALUE + b" (size=4,offset=0):" + b" (" * N,
        VALUE + b" (size=4,offset=0):" + b" a[]{" * N,
        ONE + TOTAL + RECORD + b"<x " * N + b">\n positions:",
        ONE + b"\nTotal bytes used: 4" + b" (1B" * N,
        ONE + b"\nHloLiveRange (max 1" + b")" * N,
    ],
    ids=range(7),
)
def test_a_long_line_takes_no_quadratic_time(data: bytes) -> None:
    """Each of these took minutes."""
    dump = xlamem.read(held("x", {"buffer-assignment": data + b"\n"}))
    assert dump.allocations.num_rows == 1


def test_a_gap_in_the_header_of_a_record() -> None:
    """The name is the same for the stream, too."""
    value = b" value: <5 add.1 @0> (size=4,offset=0): f32[]\n"
    record = b"<5 add.1 x=1 @0>\n positions:\n  add.1\n uses:\n  (none)\n from instruction: %add.1 = f32[] add()\n"
    dump = xlamem.read(held("x", {"buffer-assignment": ONE + value + TOTAL + record}))
    assert dump.modules["consistent"].to_pylist() == [True]
    assert dump.batches("modules").read_all()["consistent"].to_pylist() == [True]


@pytest.mark.parametrize(
    ("head", "is_phi", "color", "field"),
    [("x=1 (phi) @2", True, 2, "x=1"), ("(phi) x=1 @2", True, 2, "x=1"), ("@2 (phi)", False, 2, "(phi)"),
     ("@2 @3", False, 2, "@3"), ("(phi) (phi) @2", True, 2, "(phi)")],
)  # fmt: skip
def test_what_is_read_once_and_in_order(head: str, is_phi: bool, color: int, field: str) -> None:
    data = ONE + f" value: <5 a {head}> (size=4,offset=0): f32[]\n".encode() + TOTAL
    (value,) = xlamem.read(held("x", {"buffer-assignment": data})).values.to_pylist()
    assert (value["is_phi"], value["color"], value["attributes"]) == (is_phi, color, field)


def test_the_first_diagnostics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line at the head counts among the first, whatever pass finds it; the stream keeps the same ones."""
    value = b" value: <5 a @0> (size=4,offset=0): f32[]\n"
    record = b"<5 a @0>\n positions:\n  a\n uses:\n from instruction: %a wh\n"
    data = ONE + value + TOTAL + record + b" positions:\n" * 1200
    whole = xlamem.read(held("x", {"buffer-assignment": data}), threads=1).diagnostics
    first = whole.filter(pc.equal(whole["code"], "unknown_line"))
    assert first.num_rows == 1000
    assert pc.min(first["offset"]).as_py() == data.index(b" from instruction")
    monkeypatch.setattr(streaming, "SPAN_BYTES", 2000)
    assert xlamem.read(held("x", {"buffer-assignment": data})).batches("diagnostics").read_all().equals(whole)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_lines_are_found_in_blocks_of_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\n\nab\nc\n\n\ndefgh\ni"
    monkeypatch.setattr(outlines, "BLOCK_SIZE", size)
    for begin, end in ((0, len(data)), (2, len(data)), (2, 7), (4, 9), (5, 5)):
        lines = [m.start() for m in re.finditer(rb"[^\n]+", data[begin:end])]
        found = [offset for block in outlines._lines_with_text(data, begin, end) for offset in block.tolist()]
        assert found == [begin + line for line in lines]


def test_a_line_may_have_two_faults_of_a_kind() -> None:
    """What is expected tells them apart; each is reported once, in the order of the text."""
    (member,) = held("x", {"buffer-assignment": b"BufferAssignment:\n"}).members
    file = outlines.outline(member, 0, diagnostics.Diagnostics(), ThreadPool(1))  # the sections refer to it
    (section,) = file.sections
    code = _lines.CODES.index("instruction_differs")
    faults = np.array([[code, 10, 2], [code, 10, 1], [code, 5, 1], [code, 10, 2]])
    found = diagnostics.Diagnostics()
    found.faults(section, faults)
    (items,) = found._items.values()
    assert [(d.offset, d.wanted) for d in items] == [(5, WANTED[1]), (10, WANTED[1]), (10, WANTED[2])]


def test_every_line_with_a_shape_that_is_not_utf8_is_reported() -> None:
    """Repeated shapes are only looked up once."""
    lines = b"".join(b" value: <%d a.%d @0> (size=8,offset=%d): f\xff[2]\n" % (i, i, 8 * i) for i in range(4))
    dump = xlamem.read(b"BufferAssignment:\nallocation 0: size 64, preallocated-temp:\n" + lines)
    assert dump.values["shape"].to_pylist() == ["f\\xff[2]"] * 4
    assert [d["line"] for d in dump.diagnostics.to_pylist() if d["code"] == "not_utf8"] == [3, 4, 5, 6]


@pytest.mark.parametrize("shape", ["(f32[2])", "(f32[2]{0},s32[])", "f32[2]{0}"])
@pytest.mark.parametrize("field", ["x{y}", "x=[1]"])
def test_a_field_directly_after_a_shape(shape: str, field: str) -> None:
    """Without a blank between them, and ending as a shape may end."""
    value = f" value: <5 a @0> (size=4,offset=0): {shape},{field}\n".encode()
    dump = xlamem.read(held("x", {"buffer-assignment": ONE + value + TOTAL}))
    is_array = shape[0] == "f"  # whose element type may be new
    assert dump.values["shape"].to_pylist() == [f"{shape},{field}" if is_array else shape]
    assert dump.values["attributes"].to_pylist() == [None if is_array else field]


@pytest.mark.parametrize(
    ("attribute", "column", "wanted"),
    [
        ('custom_call_target="', "custom_call_target", '"'),
        ('custom_call_target=""', "custom_call_target", ""),
        ('metadata={op_name="}', "op_name", '"'),
        ('metadata={op_name=""}', "op_name", ""),
        ('metadata={op_name=" source_line=3}', "op_name", '" source_line=3'),
        ('backend_config="', "backend_config", '"'),
        ('backend_config=""', "backend_config", ""),
        ('backend_config="abc', "backend_config", '"abc'),
        ('backend_config="abc"{x}', "backend_config", '"abc"{x}'),
    ],
)
def test_a_string_that_is_not_closed_is_taken_as_it_is(attribute: str, column: str, wanted: str) -> None:
    record = "<0 a @0>\n positions:\n  a\n uses:\n  (none)\n from instruction: %a = f32[2] custom-call(%x), "
    dump = xlamem.read(f"\nTotal bytes used: 64 (64B)\n\nUsed values:\n{record}{attribute}\n".encode())
    assert dump["instructions"][column].to_pylist() == [wanted]


def test_the_first_of_a_repeated_attribute_counts() -> None:
    fields = (
        "kind=kLoop, kind=kInput, sharding={a}, sharding={b}, backend_config=c, backend_config=d, "
        'metadata={op_name="e" source_line=1 op_name="f"}, metadata={op_name="g" source_line=2}, '
        'custom_call_target="h", custom_call_target="i"'
    )
    record = f"<0 a @0>\n positions:\n  a\n uses:\n  (none)\n from instruction: %a = f32[2] fusion(%x), {fields}\n"
    dump = xlamem.read(f"\nTotal bytes used: 64 (64B)\n\nUsed values:\n{record}".encode())
    (row,) = dump["instructions"].to_pylist()
    assert (row["fusion_kind"], row["sharding"], row["backend_config"]) == ("kLoop", "{a}", "c")
    assert (row["op_name"], row["source_line"], row["custom_call_target"]) == ("e", 1, "h")
    assert row["attributes"] == (
        'kind=kInput, sharding={b}, backend_config=d, metadata={op_name="f"}, '
        'metadata={op_name="g" source_line=2}, custom_call_target="i"'
    )


def test_a_label_that_is_not_utf8_is_reported_with_its_line(tmp_path: Path) -> None:
    text = b"BufferAssignment:\nallocation 0: size 8, preallocated-temp:\n"
    report = b"\nMemory Space: def\xffault (color=0)\nTotal bytes: 8 (8B)\n\n"
    (tmp_path / "x.cpu_after_optimizations-buffer-assignment.txt").write_bytes(text)
    (tmp_path / "x.cpu_after_optimizations-memory-usage-report.txt").write_bytes(report)
    (fault,) = [d for d in xlamem.read(tmp_path).diagnostics.to_pylist() if d["code"] == "not_utf8"]
    assert (fault["line"], fault["offset"]) == (2, 1)
