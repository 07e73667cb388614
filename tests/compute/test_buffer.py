"""`xlamem.buffer`: the relations of one buffer, compared with the tables that they come from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attacks
import pytest
from conftest import DUMPS, every

import xlamem
from xlamem.compute import in_use
from xlamem.compute.one_buffer import LISTED, N_SUGGESTED, calls_to

ALL = sorted(path.name for path in DUMPS.iterdir() if path.is_dir())


def values(dump: xlamem.Dump, n: int) -> list[dict[str, Any]]:
    """Return the n largest values."""
    return sorted(dump.values.to_pylist(), key=lambda v: -v["size"])[:n]


@pytest.mark.parametrize("name", every(3, ALL))
def test_relations_are_those_of_the_tables(name: str) -> None:
    (source, *_) = xlamem.find(DUMPS / name)
    dump = xlamem.read(source)
    if not dump.allocations.num_rows:
        pytest.skip("no allocations")
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    steps = {r["instruction"]: r["time"] for r in dump.schedule.to_pylist()}
    saved = {r["value_id"]: r["saving"] for r in xlamem.savings(dump).to_pylist() if r["role"] == "value"}
    live = {r["value_id"]: r for r in xlamem.live_set(dump).to_pylist()} if ranges else {}
    named: dict[str, Any] = {}
    for row in dump.instructions.to_pylist():
        named.setdefault(row["instruction"], row["op_name"])
    for value in values(dump, 12):
        found = xlamem.buffer(dump, value["value_id"])
        assert [u["op_name"] for u in found.users] == [named.get(u["instruction"]) for u in found.users]
        assert found.value["value_id"] == value["value_id"]
        assert found.calls == calls_to(dump, value["value_id"])
        assert (found.start, found.end) == ranges.get(value["value_id"], (None, None))
        uses = [u for u in dump.uses.to_pylist() if u["value_id"] == value["value_id"]]
        key = lambda u: (u["instruction"], u["operand"], u["operand_shape_index"] or "")  # noqa: E731
        assert sorted(map(key, found.users)) == sorted(map(key, uses))
        assert [u["step"] for u in found.users] == [steps.get(u["instruction"]) for u in found.users]
        timed = [u["step"] for u in found.users if u["step"] is not None]
        assert timed == sorted(timed)
        assert (found.last_user or {}).get("step") == (timed[-1] if timed else None)
        positions = [r for r in dump.positions.to_pylist() if r["value_id"] == value["value_id"]]
        assert found.positions == [{k: r[k] for k in ("instruction", "shape_index")} for r in positions]
        if ranges and found.value["category"] == "temp":
            assert found.saving >= saved.get(value["value_id"], 0)  # exactly: test_compute
        if value["value_id"] in live:
            row = live[value["value_id"]]
            charged = ("bytes", "exclusive", "shared")
            assert {k: v for k, v in found.value.items() if k not in charged} == {
                k: v for k, v in row.items() if k not in charged
            }


def test_users_have_lines() -> None:
    """Of the instruction that reads, not of the buffer that is read."""
    found = xlamem.buffer(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload", "copy-start.1")
    lines = [(u["instruction"], (u["source_file"] or "").rpartition("/")[2], u["source_line"]) for u in found.users]
    assert lines == [("copy-done.1", "", None), ("multiply_reduce_fusion", "models.py", 373)]
    assert found.value["source_line"] == 369


@pytest.mark.parametrize("name", every(2, ALL))
def test_mates_share_bytes_and_time(name: str) -> None:
    (source, *_) = xlamem.find(DUMPS / name)
    dump = xlamem.read(source)
    ranges = {r["value_id"]: (r["start"], r["end"]) for r in dump.live_ranges.to_pylist()}
    thread_local = {a["allocation"] for a in dump.allocations.to_pylist() if a["is_thread_local"]}
    for value in values(dump, 8) if ranges else ():
        if value["value_id"] not in ranges:
            continue
        start, end = ranges[value["value_id"]]
        wanted = {
            v["value_id"]
            for v in dump.values.to_pylist()
            if v["allocation"] == value["allocation"] not in thread_local
            and v["value_id"] != value["value_id"]
            and max(v["offset"], value["offset"]) < min(v["offset"] + v["size"], value["offset"] + value["size"])
            and v["value_id"] in ranges
            and ranges[v["value_id"]][0] <= end
            and ranges[v["value_id"]][1] >= start
        }
        assert {m["value_id"] for m in xlamem.buffer(dump, value["value_id"]).mates} == wanted


def test_a_value_without_bytes_shares_none(make: Callable[..., Path]) -> None:
    values = [attacks.value(1, "big", 64, 0), attacks.value(2, "none", 0, 32)]
    dump = xlamem.read(make(attacks.dump(values, ranges=["big{}:0-3", "none{}:0-3"])))
    assert xlamem.buffer(dump, "none").mates == xlamem.buffer(dump, "big").mates == []


@pytest.mark.parametrize("cells", [in_use.MAX_CELLS, 1])
def test_where_the_peak_is_without_a_buffer(
    cells: int, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As much may be in use at another step. Long programs keep only the steps at which something changes."""
    monkeypatch.setattr(in_use, "MAX_CELLS", cells)
    values = [attacks.value(1, "first", 512), attacks.value(2, "second", 448), attacks.value(3, "third", 448)]
    ranges = ["first{}:0-1", "second{}:5-6", "third{}:7-8"]
    dump = xlamem.read(make(attacks.dump(values, ranges=ranges, steps=12)))
    first, second = (xlamem.buffer(dump, name) for name in ("first", "second"))
    assert (first.peak_step, first.saving, first.peak_without, first.peak_step_without) == (0, 64, 448, 5)
    assert (second.peak_step, second.saving, second.peak_without, second.peak_step_without) == (0, 0, 512, 0)


def test_the_peak_without_what_is_no_temporary_is_not_known(make: Callable[..., Path]) -> None:
    values = [attacks.value(0, "result", 1024)]
    members = attacks.dump(
        values, allocations="allocation 0: size 1024, maybe-live-out:\n", ranges=["result{}:2-4"]
    )
    assert xlamem.buffer(xlamem.read(make(members)), "result").peak_step_without is None


def test_a_temporary_in_an_output_saves_nothing(make: Callable[..., Path]) -> None:
    """The memory of the output stays reserved without it."""
    allocations = "allocation 0: size 1024, maybe-live-out:\n"
    values = [attacks.value(0, "early", 512), attacks.value(1, "result", 1024)]
    members = attacks.dump(values, allocations=allocations, ranges=["early{}:0-1", "result{}:2-4"])
    dump = xlamem.read(make(members))
    found = [xlamem.buffer(dump, name) for name in ("early", "result")]
    assert [(b.value["category"], b.saving) for b in found] == [("temp_in_output", 0), ("live_out", 1024)]
    assert [r["saving"] for r in xlamem.savings(dump).to_pylist()] == [1024]


def test_names() -> None:
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload")
    rows = [v for v in dump.values.to_pylist() if v["instruction"] == "copy-start.1"]
    largest = max(rows, key=lambda v: v["size"])
    assert xlamem.buffer(dump, "copy-start.1").value["value_id"] == largest["value_id"]
    for row in rows:
        name = f"%copy-start.1{row['shape_index']}"
        assert xlamem.buffer(dump, name).value["value_id"] == row["value_id"]
    with pytest.raises(xlamem.UsageError, match=re.escape("no buffer 'copy-start.1{7}'")):
        xlamem.buffer(dump, "copy-start.1{7}")
    with pytest.raises(xlamem.UsageError, match="did you mean copy-start"):
        xlamem.buffer(dump, "copy-st")
    for number in ("99999", "9" * 20, "9" * 5000, -1, 1 << 63, 10**30):
        with pytest.raises(xlamem.UsageError, match="no value"):
            xlamem.buffer(dump, number)
    done = xlamem.buffer(dump, "copy-done.1")
    assert {"instruction": "copy-done.1", "shape_index": None} in done.positions
    first = dump.values["value_id"].to_numpy()[0]
    assert xlamem.buffer(dump, first).value["value_id"] == int(first)


@pytest.mark.parametrize(
    ("name", "wanted", "namesakes"),
    [
        ("mul", "v.1", 4), ("exp", "v.6", 1), ("layer/mul", "v.1", 4), ("dot", "v.7", 0),
        ("12× copy of mul", "v.1", 4), ("1,200× mul", "v.1", 4), ("v.0", "v.0", 0),
    ],
)  # fmt: skip
def test_a_label_selects_the_largest_at_the_peak(
    name: str, wanted: str, namesakes: int, make: Callable[..., Path]
) -> None:
    """The peak is at step 2. If no buffer with this label is live there, it is the largest of all."""
    live = ["2-3", "0-2", "3-4", "0-1", "0-3", "0-1", "3-4", "2-2"]
    sizes, called = [16, 32, 256, 128, 8, 16, 64, 4096], ["mul"] * 5 + ["exp"] * 2 + ["dot"]
    names = [f"v.{i}" for i in range(8)]
    values = [attacks.value(i, v, sizes[i], 4096 * i) for i, v in enumerate(names)]
    records = [attacks.record(i, v, attacks.op_name(f"jit(f)/layer/{called[i]}")) for i, v in enumerate(names)]
    ranges = [f"{v}{{}}:{steps}" for v, steps in zip(names, live, strict=True)]
    found = xlamem.buffer(xlamem.read(make(attacks.dump(values, records=records, ranges=ranges))), name)
    assert (found.value["instruction"], found.namesakes) == (wanted, namesakes)


@pytest.mark.parametrize(("label", "wanted"), [("exp", "out"), ("dot", "d")])
def test_an_output_occupies_its_memory_before_it_is_live(label: str, wanted: str, make: Callable[..., Path]) -> None:
    """But not what has been in its memory before."""
    own = "allocation 1: size 64, maybe-live-out:\n" + attacks.value(0, "out", 64) + attacks.value(1, "before", 48)
    values = [attacks.value(2, "e", 32), attacks.value(3, "d", 16, 32), own]
    called = {"out": "exp", "before": "dot", "e": "exp", "d": "dot"}
    records = [attacks.record(i, v, attacks.op_name(f"jit(f)/{called[v]}")) for i, v in enumerate(called)]
    ranges = ["out{}:3-4", "before{}:0-0", "e{}:1-2", "d{}:1-2"]
    dump = xlamem.read(make(attacks.dump(values, size=48, records=records, ranges=ranges)))
    assert xlamem.buffer(dump, label).value["instruction"] == wanted


@pytest.mark.parametrize(
    ("label", "wanted", "namesakes"),
    [("x", "p.0", 0), ("copy of x", "copy.1", 1), ("slice of x", "slice.2", 1), ("convert of x", "p.0", 4)],
)
def test_labels_of_what_moves_an_argument(
    label: str, wanted: str, namesakes: int, make: Callable[..., Path]
) -> None:
    """A fusion may copy it as well. If no buffer is related to the name in this way, all of this name are meant."""
    own = f"allocation 1: size 64, parameter 0, shape |f32[16]| at ShapeIndex {{}}:\n{attacks.value(0, 'p.0', 64)}"
    moves = ["copy.1", "slice.2", "slice.3", "wrapped_copy"]
    temps = [attacks.value(i, name, 32 >> i, 64 * i) for i, name in enumerate(moves, 1)]
    named = 'metadata={op_name="x"}'
    uses = "\n".join(f"  {m}, operand 0" for m in moves)
    records = [attacks.record(0, "p.0", f"f32[16] parameter(0), {named}", uses=uses)]
    records += [
        attacks.record(i, name, f"f32[2] {name.partition('.')[0]}(%p.0), {named}")
        for i, name in enumerate(moves[:3], 1)
    ]
    records.append(attacks.record(4, "wrapped_copy", "f32[2] fusion(%p.0), kind=kLoop, calls=%c"))
    ranges = ["p.0{}:0-3", *(f"{name}{{}}:1-3" for name in moves)]
    dump = xlamem.read(make(attacks.dump(["".join(temps), own], records=records, ranges=ranges)))
    found = xlamem.buffer(dump, label)
    assert (found.value["instruction"], found.namesakes) == (wanted, namesakes)


@pytest.mark.parametrize(("label", "wanted"), [("read by exp", "v.0"), ("exp", "v.1"), ("copy of exp", "v.0")])
def test_labels_of_what_an_operation_reads(label: str, wanted: str, make: Callable[..., Path]) -> None:
    """It has no name of its own. If no buffer is related to the name in this way, all of this name are meant."""
    values = [attacks.value(0, "v.0", 16), attacks.value(1, "v.1", 8, 16)]
    records = [
        attacks.record(0, "v.0", "f32[4] custom-call(%q)", uses="  v.1, operand 0"),
        attacks.record(1, "v.1", attacks.op_name("jit(f)/exp")),
    ]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=["v.0{}:0-1", "v.1{}:1-3"])))
    assert xlamem.buffer(dump, label).value["instruction"] == wanted


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("exp", "v.0"), ("…exp", "v.1"), ("…b/exp", "v.0"), ("b/e…", "v.0"), ("b/m…xp", "v.1"), ("b", "v.1"),
        ("a,b->c", "v.2"), ("a,b->…/sin", "v.2"), ("b->c", None), ("…b->c", "v.2"), ("c/…", None),
    ],
)  # fmt: skip
def test_labels_that_a_screen_shortens_and_scopes(label: str, wanted: str | None, make: Callable[..., Path]) -> None:
    """Of several, it is the largest. A scope is found if nothing else has this name."""
    names = ["jit(f)/b/exp", "jit(f)/b/my_exp", "jit(f)/a,b->c/sin"]
    values = [attacks.value(i, f"v.{i}", 16 + 16 * (i == 1), 32 * i) for i in range(3)]
    records = [attacks.record(i, f"v.{i}", attacks.op_name(name)) for i, name in enumerate(names)]
    ranges = [f"v.{i}{{}}:0-3" for i in range(3)]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=ranges)))
    if wanted:
        assert xlamem.buffer(dump, label).value["instruction"] == wanted
    else:
        with pytest.raises(xlamem.UsageError, match="no buffer"):
            xlamem.buffer(dump, label)


def test_names_of_instructions_come_before_labels(make: Callable[..., Path]) -> None:
    values = [attacks.value(0, "dot"), attacks.value(1, "v.1", offset=8)]
    records = [attacks.record(0, "dot"), attacks.record(1, "v.1", attacks.op_name("jit(f)/dot"))]
    dump = xlamem.read(make(attacks.dump(values, records=records)))
    assert xlamem.buffer(dump, "dot").value["instruction"] == "dot"


def test_arguments_occupy_memory_at_the_peak(make: Callable[..., Path]) -> None:
    """Though nothing reads the argument any more, its copy is smaller."""
    own = "allocation 1: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
    own += attacks.value(0, "p.0", 64, 0, "f32[16]")
    values = [attacks.value(1, "copy.1", 8), attacks.value(2, "big", 1024, 8)]
    records = [
        attacks.record(0, "p.0", 'f32[16] parameter(0), metadata={op_name="x"}'),
        attacks.record(1, "copy.1", 'f32[2] copy(%p.0), metadata={op_name="x"}'),
    ]
    ranges = ["p.0{}:0-1", "copy.1{}:1-3", "big{}:2-3"]
    dump = xlamem.read(make(attacks.dump(["".join(values), own], records=records, ranges=ranges)))
    assert xlamem.buffer(dump, "x").value["instruction"] == "p.0"


@pytest.mark.parametrize(
    ("label", "wanted"),
    [
        ("params.up_0.w-1", "v.0"), ("params….w-1", "v.0"), ("….up_*.w-1", "v.0"), ("params['up_0']['w-1']", "v.0"),
        ("params.up_0.w-1.value", "v.0"), ("opt[0].mu.w-1", "v.1"), ("…mu….w-1", "v.1"), ("params.up_0.w", None),
        ("paramsxup_0.w-1", None),
    ],
)  # fmt: skip
def test_labels_with_dots_for_keys(label: str, wanted: str | None, make: Callable[..., Path]) -> None:
    """Screens leave brackets and quotes out, and `.value`, which Flax NNX appends."""
    names = ["params['up_0']['w-1'].value", "opt[0].mu['w-1'].value"]
    values = [attacks.value(i, f"v.{i}", 16, 32 * i) for i in range(2)]
    records = [attacks.record(i, f"v.{i}", attacks.op_name(f"jit(f)/{name}")) for i, name in enumerate(names)]
    dump = xlamem.read(make(attacks.dump(values, records=records, ranges=["v.0{}:0-3", "v.1{}:0-3"])))
    if wanted:
        assert xlamem.buffer(dump, label).value["instruction"] == wanted
    else:
        with pytest.raises(xlamem.UsageError):
            xlamem.buffer(dump, label)


@pytest.mark.parametrize(("name", "hint"), [("cpy-start.1", "did you mean copy-start.1?"), ("", LISTED), ("…", LISTED)])
def test_hints_for_names_that_no_buffer_has(name: str, hint: str) -> None:
    """The most similar name, or else where buffers are listed."""
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-host_offload")
    with pytest.raises(xlamem.UsageError) as error:
        xlamem.buffer(dump, name)
    assert str(error.value) == f"no buffer {name!r} in {dump.name}; {hint}"


def test_an_index_of_a_position_is_the_whole_index(make: Callable[..., Path]) -> None:
    values = [attacks.value(0, "a", 8), attacks.value(1, "b", 64, 64)]
    records = [attacks.record(i, name, positions=f"  {name}\n  while.1 {index}") for i, name, index in
               ((0, "a", "{2}"), (1, "b", "{24}"))]  # fmt: skip
    dump = xlamem.read(make(attacks.dump(values, records=records)))
    found = {name: xlamem.buffer(dump, name).value["instruction"] for name in ("while.1", "while.1{2}", "while.1{24}")}
    assert found == {"while.1": "b", "while.1{2}": "a", "while.1{24}": "b"}


def test_names_that_contain_a_text_are_suggested(make: Callable[..., Path]) -> None:
    """The first ones, whether their letters are capital or not."""
    names = ["Alpha.1", "beta", "alpha.2", "alpha.3", "alpha.4", "alpha.5", "alpha.6", "alpha.7"]
    dump = xlamem.read(make(attacks.dump([attacks.value(i, name, offset=8 * i) for i, name in enumerate(names)])))
    first = [name for name in names if name != "beta"][:N_SUGGESTED]
    with pytest.raises(xlamem.UsageError, match=re.escape(f"did you mean {', '.join(first)}?")):
        xlamem.buffer(dump, "LPH")


def test_ids_of_19_digits(make: Callable[..., Path]) -> None:
    ids = (1, (1 << 63) - 1)
    text = attacks.dump([attacks.value(i, f"v.{i}") for i in ids])
    for i in ids:
        assert xlamem.buffer(dump := xlamem.read(make(text)), str(i)).value["value_id"] == i
        assert xlamem.buffer(dump, i).value["value_id"] == i
