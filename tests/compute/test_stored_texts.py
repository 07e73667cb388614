"""What is said about a program, and computations that few dumps need, compared with what they gave before."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from brute import hostile
from conftest import DUMPS
from render import render
from stored import TESTS, check, described, digest, outcome
from test_packing import assert_valid
from test_stored_results import shipped

import xlamem
from xlamem import compute
from xlamem.compute import arenas, bill_wording, columns, op_names, packing, wording
from xlamem.compute.capacity import Fits
from xlamem.compute.devices import DEVICES
from xlamem.compute.layout import MAX_DUMP_SPACES, MAX_TOTAL_BYTES
from xlamem.compute.packing import _Arena, _Search
from xlamem.compute.program import program

Row = dict[str, Any]
SIZES = (0, 1, 1000, 1023, 1024, 1025, 65536, 1 << 20, 3 << 30)


def short(value: Any) -> str:
    return digest(described(value, TESTS))


# ---- programs


def said(dump: xlamem.Dump) -> Iterator[tuple[str, Any]]:
    shown = (compute.peak(dump), compute.memory_analysis(dump), outcome(compute.fits, dump, capacity=1 << 22))
    for value in shown:
        yield type(value).__name__, repr(value)
        if hasattr(value, "_repr_html_"):
            yield f"{type(value).__name__} in a notebook", value._repr_html_()
    yield "problems", wording.describe_problems(dump)
    rows = compute.bill(dump).to_pylist()
    yield "bill line", bill_wording.bill_line(rows)
    for account in bill_wording.accounts_of(rows):
        lines = [list(group) for _, group in itertools.groupby(account, key=lambda r: (r["line"], r["part"]))]
        yield account[0]["account"], [[bill_wording.details(same), bill_wording.line_note(same)] for same in lines]
    for time in (None, 0, dump.modules["schedule_length"][0].as_py()):
        live = outcome(compute.live_set, dump, time)
        if not isinstance(live, str):
            yield f"in use at {time}", compute.spaces_in_use(dump, live, time)
            by_scope = compute.attribution(dump, ["memory_space", "scope"], time=time)
            yield f"in use at {time}, by scope", compute.spaces_in_use(dump, by_scope, time)
            yield f"named at {time}", compute.named(live).select(["name", "bytes"])
    found = compute.inspect(dump)
    yield "inspected", [found.failed_checks, found.fully_read, found.text_bytes]


def test_of_shipped_dumps() -> None:
    found = []
    for source in shipped():
        dump = xlamem.read(source)
        found += [(f"{Path(source.location).name[:40]} {key}", short(value)) for key, value in said(dump)]
    check("compute/texts", found)


def test_duplicates_and_the_largest() -> None:
    sources = shipped()
    found = [compute.inspect(xlamem.read(s, hashes=True)) for s in (*sources[:6], sources[2], sources[0], sources[2])]
    groups = [[i.source.location for i in group] for group in compute.duplicates(found)]
    assert groups == [[sources[0].location] * 2, [sources[2].location] * 3]
    sizes = {s.location: compute.device_total(xlamem.read(s)) or 0 for s in sources}
    largest, errors = compute.largest_program(sources)
    assert largest is not None
    assert (sizes[largest.location], errors) == (max(sizes.values()), [])
    (broken,) = xlamem.find(TESTS / "dumps" / "cpu-jaxlib-0.5.3-tuple3")
    gone = [type(broken)("x", tuple(type(m)(m.role, "/missing") for m in broken.members))]
    assert compute.largest_program(gone)[0] is None
    assert len(compute.largest_program([*gone, broken])[1]) == 1
    assert compute.largest_program([*gone, broken])[0] is broken
    assert compute.largest_program([]) == (None, [])


def test_spaces_by_name_and_color() -> None:
    spaces = (("hbm", 0), ("vmem", 1), ("vmem", 1), ("device", 0))
    rows = [{"memory_space": name, "color": color} for name, color in spaces]
    assert compute.select_space(rows, None) == rows
    assert compute.select_space(rows, "vmem") == compute.select_space(rows, 1) == rows[1:3]
    assert compute.select_space(rows, 0) == [rows[0], rows[3]]
    assert compute.select_space(rows, "x", required=False) == []
    with pytest.raises(xlamem.UsageError, match=r"no memory space 'vmen'; did you mean 'vmem'\?"):
        compute.select_space(rows, "vmen")
    with pytest.raises(xlamem.UsageError, match=r"no memory space 7; .* has hbm \(color 0\), vmem \(color 1\), device"):
        compute.select_space(rows, 7)
    with pytest.raises(xlamem.UsageError, match=r"no memory space 'x'; this dump has none$"):
        compute.select_space([], "x")
    names = ("hbm", "vmem", "device", "host", "memory", "color_0", None)
    assert [compute.main_first(n) for n in names] == [False, True, False, True, False, False, True]


# ---- sentences


def bill_row(draw: random.Random, line: str, part: str | None) -> Row:
    n, granule = draw.choice((1, 2, 30)), draw.choice((None, 1, 256, 65536))
    size = draw.choice((None, *SIZES[1:]))
    buffer_bytes = n * (size or draw.choice(SIZES))
    return {
        "account": "device_total", "memory_space": None, "step": draw.choice((None, 3)), "line": line, "part": part,
        "kind": draw.choice([*bill_wording.KINDS]), "n": n, "granule": granule, "buffer_size": size,
        "buffer_bytes": buffer_bytes, "bytes": buffer_bytes + draw.choice((0, 0, *SIZES)),
    }  # fmt: skip


def test_sentences_about_bills() -> None:
    draw, found = random.Random(0), []
    lines = [("packing", p) for p in ("one_value", "never_touched", "shared")]
    lines += [("alignment", None), ("another_step", None), ("temporaries", "data"), ("parameters", "padding")]
    for number in range(300):
        rows = [bill_row(draw, *draw.choice(lines[: draw.choice((3, 7))])) for _ in range(draw.randrange(1, 8))]
        same = [r for r in rows if (r["line"], r["part"]) == (rows[0]["line"], rows[0]["part"])]
        name, unused = bill_wording.largest_unused(rows)
        reason = bill_wording.reason_of(name, unused) if unused else ""
        sentences = [bill_wording.details(same), bill_wording.line_note(same), bill_wording.bill_line(rows), reason]
        found.append((f"bill {number}", short([*sentences, [bill_wording.counted(r, other=True) for r in rows]])))
    check("compute/bill-sentences", found)


def test_a_small_part_of_a_bill_is_not_worth_a_line() -> None:
    def line(unused: int) -> str | None:
        sizes = {"parameters": 100 - unused, "alignment": unused}
        return bill_wording.bill_line([{"memory_space": None, "line": k, "bytes": n} for k, n in sizes.items()])

    assert line(3) is None
    assert line(4) == "alignment: 4 B of 100 B, the unused ends of cells"
    assert bill_wording.bill_line([]) is None


def test_sentences_about_capacities() -> None:
    found = []
    sizes = (0, 1 << 30, (1 << 30) + 1, 5 << 30)
    for verdict, total, available, capacity in itertools.product((True, False, None), sizes, sizes, sizes[1:]):
        for resident, fraction in ((0, 1.0), (1 << 20, 0.925)):
            fits = Fits(verdict, "why", total, available, capacity, "v5e" if resident else None, resident, fraction)
            texts = [bool(fits), repr(fits), wording.verdict_sentence(fits), wording.available_text(fits)]
            found.append((f"{len(found)} {verdict}", short([*texts, fits._repr_html_()])))
    check("compute/capacity-sentences", [*found, *((d.name, wording.memory_note(d)) for d in DEVICES)])


# ---- names


def test_names_that_differ_in_numbers_are_shortened_as_each_alone() -> None:
    parts = ["jit(f)", "jvp()", "layer_3", "layers_17", "while", "body", "x12", "7", "add.4", "transpose(jvp(g))"]
    draw = random.Random(0)
    texts = ["/".join(draw.choices(parts, k=draw.randrange(1, 6))) for _ in range(300)]
    names = pa.array(texts)
    for plain in (True, False):
        codes, folded = op_names.folded_paths(names, plain=plain)
        alone = [op_names._folded(pa.array([text]), plain)[0].as_py() for text in texts]
        assert folded.take(pa.array(codes)).to_pylist() == alone
    shortened = op_names.plain_names(names)
    assert shortened.to_pylist() == [op_names.plain_names(pa.array([text]))[0].as_py() for text in texts]
    found = {"plain": shortened, "folded": alone, "scopes": compute.scopes(names)}
    check("compute/names", [(key, short(value)) for key, value in found.items()])


def test_texts_of_columns() -> None:
    column = pa.chunked_array([["a", None, "b"], ["c", "a"]])
    for values in (column, column.combine_chunks(), column.dictionary_encode()):
        assert columns.is_in(values, ["a", "c"]).tolist() == [True, False, False, True, True]
        codes, texts = columns.encoded(values)
        assert texts.take(pa.array(codes, mask=codes < 0)).to_pylist() == column.to_pylist()
    assert columns.encoded(pa.chunked_array([], pa.string()))[0].tolist() == []
    a, b, c = pa.array(["x", "y"]), pa.array(["x", "y", "z"]), pa.array(["z", "x"])
    for one, other in itertools.permutations((a, b, c), 2):
        wanted = pc.index_in(one, other).fill_null(-1).to_pylist()
        assert columns.match_dictionaries(one, other).tolist() == wanted
    assert columns.take(np.empty(0, np.int64), np.array([-1, -1])).tolist() == [-1, -1]
    assert columns.flags_of(np.array([True, False]), np.array([1, 0, -1])).tolist() == [False, True, False]


# ---- limits


def text_of(allocations: list[str], values: list[str] = []) -> bytes:  # noqa: B006
    return "\n".join(["BufferAssignment:", *allocations, *values, ""]).encode()


@pytest.mark.parametrize("n", [MAX_DUMP_SPACES, MAX_DUMP_SPACES + 1])
def test_the_number_of_spaces_is_limited(n: int) -> None:
    dump = xlamem.read(text_of([f"allocation {i}: size 8, color {i}, preallocated-temp:" for i in range(n)]))
    if n == MAX_DUMP_SPACES:
        assert compute.peak(dump).spaces.num_rows == n
    else:
        with pytest.raises(xlamem.DumpError, match="at most 256 memory spaces, not 257"):
            compute.peak(dump)


@pytest.mark.parametrize(("size", "is_read"), [(MAX_TOTAL_BYTES - 4096, True), (MAX_TOTAL_BYTES, False)])
def test_sums_of_sizes_are_limited(size: int, is_read: bool) -> None:
    value = " value: <0 a @0> (size=1024,offset=1024): u8[1024]{0}"
    dump = xlamem.read(text_of([f"allocation 0: size {size}, preallocated-temp:", value]))
    if is_read:
        assert compute.peak(dump).spaces["reserved"].to_pylist() == [size]
    else:
        with pytest.raises(xlamem.DumpError, match="less than 2"):
            compute.peak(dump)


@pytest.mark.parametrize("seed", range(20))
def test_coverage_of_huge_allocations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends that could overflow are replaced by their ranks."""
    p = program(xlamem.read(render(hostile(seed, values=12))["buffer-assignment"]))
    rows = np.flatnonzero(p.extent > 0)
    found = arenas.coverage(p, rows)
    monkeypatch.setattr(arenas, "MAX_TOTAL_BYTES", 1)
    for one, other in zip(found, arenas.coverage(p, rows), strict=True):
        assert one.tolist() == other.tolist()


# ---- packing


def test_a_longer_search_is_never_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()  # a clock that goes on whenever it is read
    monkeypatch.setattr(packing.time, "monotonic", lambda: float(next(seconds)))
    attempts = 0
    for seed in range(25):
        dump = xlamem.read(render(hostile(seed, arenas=5, values=14, steps=20, size=40))["buffer-assignment"])
        if not dump.live_ranges.num_rows:
            continue
        first, longer = ({p.allocation: p for p in compute.repack(dump, limit)} for limit in (0, 60))
        assert first.keys() == longer.keys()
        for allocation, found in longer.items():
            assert_valid(dump, found)
            assert found.found <= first[allocation].found
            assert found.is_optimal == (found.found <= found.lower_bound)
            assert found.is_optimal or found.attempts >= min(first[allocation].attempts, 1)
            attempts += found.attempts
    assert attempts > 50


def test_time_is_shared_by_what_can_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an allocation leaves goes to the next ones."""
    now = 100.0
    monkeypatch.setattr(packing.time, "monotonic", lambda: now)
    slacks: Any = [SimpleNamespace(slack=n) for n in (0, 1, 4, 3)]
    found = []
    for arena, seconds in packing._with_time_limits(slacks, 8):
        found.append((arena.slack, seconds))
        now += 3
    assert found == [(4, 4.0), (3, 5 * 3 / 4), (1, 2.0), (0, 0.0)]
    assert [seconds for _, seconds in packing._with_time_limits(slacks[:1] * 2, 8)] == [0, 0]


def test_a_varied_order_moves_one_block_forward() -> None:
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    p = program(dump)
    for row in np.flatnonzero(p.category == 5).tolist():
        arena = _Arena(p, row)
        if not arena.can_be_packed or len(_Search(arena).blocks) < 3:
            continue
        search = _Search(arena)
        search._try(search.blocks.orders()[0], True)
        order, draw, moved = search.order.tolist(), np.random.default_rng(0), set()
        for _ in range(200):
            varied = search._varied(draw).tolist()
            assert sorted(varied) == sorted(order)
            first = next((i for i, (a, b) in enumerate(zip(order, varied, strict=True)) if a != b), None)
            if first is not None:
                block = varied[first]
                assert order.index(block) > first
                assert [b for b in varied if b != block] == [b for b in order if b != block]
                moved.add(block)
        top = {int(b) for b in np.flatnonzero(search.top == search.height)}
        assert moved - top  # any block, sometimes
        return
    pytest.fail("no arena with blocks")


def test_places_of_tests_do_not_count() -> None:
    assert described(f"{Path(TESTS)}/x", TESTS) == "/x"
