"""Parts of computations against plain models of them, on small inputs of every kind."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import advice_programs
import attacks
import numpy as np
import pyarrow as pa
import pytest
from advice_programs import Buffer
from attacks import record, value
from conftest import DUMPS

import xlamem
from xlamem import compute
from xlamem.compute import in_use, peaks, slots, uses, xla_peak
from xlamem.compute import origins as module
from xlamem.compute.advice import attention, batches, bounds, intervention, rematerialization
from xlamem.compute.advice.layers import LayerActivations
from xlamem.compute.advice.layouts import _small_cells
from xlamem.compute.advice.plan import saved_together
from xlamem.compute.advice.stacks import LoopActivations, with_most_bytes
from xlamem.compute.advice.what_if import Change, WhatIf
from xlamem.compute.arenas import _reach
from xlamem.compute.bills import Sums
from xlamem.compute.buffer_names import _SIZES, _iterations, stacked_over, trip_counts_of
from xlamem.compute.causes import xla_causes
from xlamem.compute.charges import Charges
from xlamem.compute.columns import groups_of, runs, sums_of
from xlamem.compute.explanation import _Rows
from xlamem.compute.grouping import key_column, sums_by
from xlamem.compute.hlo_trace import HloTrace
from xlamem.compute.in_use import Window
from xlamem.compute.layout import Layout, can_be_added, module_lengths, schedule_lengths
from xlamem.compute.packing import _Arena
from xlamem.compute.peaks import Peak
from xlamem.compute.program import distinct_rows, program

INTERVALS = ("closed", "half-open")

IN_PLACE = b"""BufferAssignment:
allocation 0: size 512, page 0, parameter 0, shape |f32[]| at ShapeIndex {}:
 value: <0 copy.1 @0> (size=SIZE,offset=0): f32[]{:T(128)}
 value: <1 p.2 @0> (size=512,offset=0): f32[]{:T(128)}

Total bytes used: 512 (512B)

Used values:
<0 copy.1 @0>
 positions:
  copy.1
 uses:
  (none)
 from instruction: %copy.1 = f32[]{:T(128)} copy(%p.2)
<1 p.2 @0>
 positions:
  p.2
 uses:
  copy.1, operand 0
 from instruction: %p.2 = f32[]{:T(128)} parameter(0), metadata={op_name="weights"}
"""


@pytest.mark.parametrize("trips", [set(), {2}, {5, 6}])
def test_the_size_of_a_batch(trips: set[int]) -> None:
    """The leading dimension of all arrays, or the second one if the first is that of a loop; it must be even."""
    for first, second in itertools.product(itertools.product((-1, 0, 1, 2, 5, 6), repeat=2), repeat=2):
        arrays = (first, second)
        sizes = {array[1 if array[0] in trips else 0] for array in arrays}
        size = sizes.pop()
        wanted = size if not sizes and size > 0 and size % 2 == 0 else 0
        sliced = np.array([array[0] in trips for array in arrays])
        assert batches._shared_size(np.array(arrays), sliced) == wanted


def test_what_a_loop_reads_slice_by_slice_without_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an element for each iteration. A scalar has none, even if a loop has no iterations."""
    monkeypatch.setattr(batches, "trip_counts_of", lambda p: [-1, 0, 8])
    a: Any = SimpleNamespace(p=None, is_training=False, dimensions=np.array([[0, 0], [8, 4], [4, 8]]))
    assert batches._is_sliced(a, np.arange(3)).tolist() == [False, True, False]


def test_an_ambiguous_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size that is that of several dimensions of an array, the first one of weights, or the last one of others."""
    monkeypatch.setattr(batches, "_may_be_weights", lambda a, values: np.ones(len(values), bool))
    for dimensions, state_of_b, wanted in (
        ([[8, 3], [8, 4]], False, True),
        ([[8, 8], [9, 4]], False, True),
        ([[8, 3], [9, 8]], False, True),
        ([[8, 3], [9, 8]], True, True),
        ([[8, 3, 0], [9, 8, 4]], False, False),
        ([[8, 3], [8, 0]], True, False),
        ([[8, 3], [8, 4]], True, False),
        ([[8, 3], [8, 8]], True, True),
        ([[8, 3], [4, 4]], True, False),
    ):
        shared = [8, int(dimensions[1][0])]
        codes = np.array([0, 1])
        a: Any = SimpleNamespace(dimensions=np.array(dimensions))
        found = batches._is_ambiguous(a, codes, codes, 0, shared, [False, state_of_b], is_named=True)
        assert found is wanted, dimensions
    # Without a name, arrays that are updated together may be weights.
    updated = SimpleNamespace(dimensions=np.array([[8, 3], [8, 4]]))
    for state, is_named, wanted in (
        ([True, True], False, True), ([True, True], True, False), ([False, True], False, False),
    ):  # fmt: skip
        assert batches._is_ambiguous(updated, codes, codes, 0, [8, 8], state, is_named) is wanted, (state, is_named)


def test_products_of_a_batch_and_the_next_dimensions() -> None:
    """Of one or two that follow it, of arrays that have it first and more than one element for each sample."""
    dimensions = [[8, 3, 4, 5], [8, 7, 0, 0], [8, 1, 64, 0], [8, 0, 0, 0], [4, 8, 9, 0], [8, 1 << 30, 2, 0]]
    a: Any = SimpleNamespace(dimensions=np.array(dimensions))
    assert LayerActivations.multiples_of(a, 8).tolist() == [24, 56, 96, 8 << 20, 16 << 20]


def test_dimensions_of_a_value_without_a_shape() -> None:
    shapes = pa.array(["f32[8,4]", "f32[]", "(f32[2])"])
    a: Any = SimpleNamespace(_shapes=(np.array([-1, 0, 1, 2]), shapes))
    dimensions = LayerActivations.dimensions.func(a)
    assert dimensions[:, :2].tolist() == [[0, 0], [8, 4], [0, 0], [0, 0]]
    a = SimpleNamespace(_shapes=(np.array([-1, 0]), shapes[:1]))
    assert LayerActivations.dimensions.func(a)[:, :2].tolist() == [[0, 0], [8, 4]]


@pytest.mark.parametrize("seed", range(20))
def test_cells_of_small_buffers(seed: int) -> None:
    """Those in which no large buffer ever is."""
    draw, granule = random.Random(seed), 16
    values = [(draw.randrange(40) * granule, draw.choice([1, 3, 4, 5, 16, 40])) for _ in range(draw.randrange(1, 20))]
    p = SimpleNamespace(offset=np.array([v[0] for v in values]), extent=np.array([v[1] for v in values]))
    spans = [(at // granule, (at + size - 1) // granule) for at, size in values if size > granule // 4]
    large = {cell for first, last in spans for cell in range(first, last + 1)}
    wanted = sorted({at // granule for at, size in values if size <= granule // 4} - large)
    assert _small_cells(SimpleNamespace(p=p), np.arange(len(values)), granule).tolist() == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_groups_and_sums(seed: int) -> None:
    draw = random.Random(seed)
    n, apart = draw.randrange(1, 20), draw.choice([1, 10**6])  # dense and sparse keys
    rows = [(draw.randrange(-1, 3) * apart, draw.randrange(-1, 2), draw.randrange(9)) for _ in range(n)]
    rows = [(max(a, -1), b, size) for a, b, size in rows]
    a, b, size = (np.array(column) for column in zip(*rows, strict=True))
    first, group = groups_of(a, b)
    assert [(int(a[i]), int(b[i])) for i in first[group]] == [row[:2] for row in rows]
    assert [(int(a[i]), int(b[i])) for i in first] == sorted({row[:2] for row in rows})
    assert all(rows.index(next(r for r in rows if r[:2] == rows[i][:2])) == i for i in first.tolist())
    assert sums_of(size, group, len(first)).tolist() == [
        sum(r[2] for r in rows if r[:2] == rows[i][:2]) for i in first.tolist()
    ]
    number = distinct_rows(a, b)
    for i, j in itertools.product(range(n), repeat=2):
        assert (number[i] == number[j]) == (rows[i][:2] == rows[j][:2])
    wanted = [[i for i, _ in group] for _, group in itertools.groupby(enumerate(a), lambda item: item[1])]
    assert [[*pair] for pair in zip(*runs(a), strict=True)] == [[group[0], group[-1]] for group in wanted]
    assert [part.tolist() for part in runs(a[:0])] == [[], []]


@pytest.mark.parametrize("seed", range(10))
def test_sums_by_several_numbers(seed: int) -> None:
    draw = random.Random(seed)
    items = [(draw.randrange(2), draw.randrange(-1, 3), draw.choice([-1, 5, 7])) for _ in range(draw.randrange(1, 15))]
    a, b, size = (np.array(column) for column in zip(*items, strict=True))
    sums = Sums((2, 4), (a, b))
    keys = list(zip(*(k.tolist() for k in sums.keys), strict=True))
    groups: dict[Any, list[int]] = {}
    for x, y, bytes_ in items:
        groups.setdefault((x, y % 4), []).append(bytes_)
    assert keys == sorted(groups)
    assert sums.n.tolist() == [len(groups[k]) for k in keys]
    assert sums.add(size).tolist() == [sum(groups[k]) for k in keys]
    assert sums.common(size).tolist() == [groups[k][0] if len({*groups[k]}) == 1 else -1 for k in keys]


def test_sums_of_rows_that_stand_for_several_buffers() -> None:
    """Their bytes are those of all buffers."""
    keys = {"kind": pa.chunked_array([["a", "b", "a", None]])}
    for numbers, n in ((None, [1, 2, 1]), (np.array([3, 1, 2, 5]), [5, 5, 1])):
        sums = sums_by(keys, np.array([12, 7, 8, 0]), numbers)
        assert sums.to_pydict() == {"kind": [None, "a", "b"], "bytes": [0, 20, 7], "n": n}


def test_the_running_maximum_of_ends() -> None:
    owner, end = np.array([0, 0, 0, 2, 2, 3]), np.array([5, 3, 9, 1, 1, 0])
    for factor in (1, 1 << 59):
        assert (_reach(owner, end * factor, 4) // factor).tolist() == [5, 5, 9, 1, 1, 0]


def test_how_long_a_schedule_is() -> None:
    """A printed length that exceeds what the text has steps and ranges for is replaced by the number of steps."""
    for printed, scheduled, ranges in itertools.product((-1, 0, 3, 4, 5, 100), (-1, 0, 3, 5), (0, 1, 2)):
        (found,) = schedule_lengths(*(np.array([n]) for n in (printed, scheduled, ranges))).tolist()
        is_possible = 0 <= printed <= scheduled + ranges or scheduled < 0
        wanted = printed if is_possible else scheduled
        assert found == wanted, (printed, scheduled, ranges, found)


def test_lengths_of_modules() -> None:
    """Without live ranges, none is known."""
    columns = {"schedule_length": [4, 4, 90, None], "n_schedule": [5, 5, 5, 5], "n_live_ranges": [3, 0, 3, 3]}
    modules = pa.table({name: pa.array(numbers, pa.int64()) for name, numbers in columns.items()})
    assert module_lengths(modules).tolist() == [4, -1, 5, 5]


@pytest.mark.parametrize(
    ("writer", "root", "limits", "wanted"),
    [
        (9, 4, {}, True),
        (9, 5, {}, False),  # the program does not return what follows
        (3, 4, {}, False),  # the writer depends on it
        (4, 4, {}, False),
        (0, 4, {}, True),
        (9, 4, {"MAX_ROUNDS": 3}, True),
        (9, 4, {"MAX_ROUNDS": 2}, False),  # too much to follow
        (9, 4, {"MAX_FOLLOWED": 4}, True),
        (9, 4, {"MAX_FOLLOWED": 3}, False),
        (9, 4, {"MAX_FOLLOWED": 1}, False),
    ],
)
def test_a_reader_that_is_independent_of_a_writer(
    writer: int, root: int, limits: dict[str, int], wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instruction 1 is read by 2 and 3, these by 4; 0 and 5 have nothing to do with them."""
    for name, limit in limits.items():
        monkeypatch.setattr(uses, name, limit)
    source, user = np.array([0, 1, 1, 2, 3]), np.array([5, 2, 3, 4, 4])
    assert uses._is_independent(source, user, 1, writer, root) is wanted


@pytest.mark.parametrize(("start", "wanted"), [((1, 2, 3, -1), True), ((1, 4, 3, -1), False)])
def test_a_reader_depends_on_another_one_through_what_begins_before_it(start: tuple[int, ...], wanted: bool) -> None:
    """Instruction 1 is read by 3, and this by 2, a loop of which one result has no live range."""
    users = np.array([1, 3]), np.array([3, 2])
    p: Any = SimpleNamespace(once=lambda *_: users, tables={"instructions": pa.table({"x": [0] * 4})},
                             instruction_row=np.array([1, 3, 2, 2]), ranges=(np.array(start), None))  # fmt: skip
    assert uses.depend_on_each_other(p, np.array([1, 2])) is wanted


def test_no_reader_is_independent_without_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.array([0, 0])
    monkeypatch.setattr(uses, "uses_of", lambda p: (rows, rows + 1, rows, rows))
    schedule = pa.table({"time": pa.array([], pa.int64()), "instruction": pa.array([], pa.string())})
    p: Any = SimpleNamespace(tables={"schedule": schedule})
    assert not uses.has_independent_reader(p, 0, 2)


def test_a_trace_that_is_lost_ends_at_the_whole_fusion() -> None:
    rows, elements, fallback = np.array([-1, 5, -1, 0]), np.array([1, 2, 3, 4]), np.array([7, 8, -1, 9])
    found = HloTrace._with_fallback(None, rows, elements, fallback)  # type: ignore[arg-type]
    assert [column.tolist() for column in found] == [[7, 5, -1, 0], [-1, 2, 3, 4]]


def causes(buffers: list[dict[str, Any]], usage: list[dict[str, Any]] = [], **report: Any) -> Any:  # noqa: B006
    plain = {"size_bytes": 0, "padding_bytes": None, "expansion": None, "shape": None, "list": "largest"}
    numbers = {"exceeded_bytes": None, "used_bytes": None, "capacity_bytes": None, "form": "x"}
    return compute.oom_causes(numbers | report, usage, [plain | b for b in buffers])


def test_the_least_that_is_a_cause() -> None:
    """Of an out-of-memory error, exactly at each limit and just below it."""
    for others, wanted in (([2, 2, 2], ("a", 2, 2)), ([2, 2, 2, 1], None)):  # a quarter of the bytes
        buffers = [{"shape": "a", "size_bytes": 1}] * 2
        buffers += [{"shape": f"b{i}", "size_bytes": n} for i, n in enumerate(others)]
        assert causes(buffers).repeated == wanted
    one = [{"shape": "one", "size_bytes": 30}]  # the largest of all need not be repeated
    assert causes([*one, *[{"shape": "a", "size_bytes": 3}] * 10]).repeated == ("a", 10, 30)
    assert causes([*one, *[{"shape": "a", "size_bytes": 3}] * 9]).repeated == ("a", 9, 27)
    assert causes([*one, *[{"shape": "a", "size_bytes": 3}] * 3]).repeated is None
    for listed, padding in ((100, 1), (101, 0)):
        found = causes([{"size_bytes": listed, "padding_bytes": 1, "expansion": 2}])
        assert (found.padding, found.most_padded is not None) == (padding, padding == 1)
    assert causes([{"size_bytes": 9, "padding_bytes": 1, "expansion": 1.9}]).most_padded is None
    for lost, n in ((5, 1), (4, 0)):
        usage = [{"part": "program", "label": "x", "bytes": 100, "fragmentation_bytes": lost}]
        assert len(causes([], usage).fragmented) == n
        assert causes([], usage, form="usage").fragmented == []
    for size, is_large in ((50, True), (49, False)):
        usage = [{"part": "total", "label": "arguments", "bytes": size, "fragmentation_bytes": 0}]
        assert (causes([], usage, capacity_bytes=100).arguments is not None) is is_large
    for size, is_larger in ((101, True), (100, False)):
        found = causes([{"size_bytes": size}], capacity_bytes=100, used_bytes=130)
        assert (found.excess, found.oversized is not None) == (30, is_larger)
        failed = {"size_bytes": size, "list": "failed allocation"}  # what it says of itself is no cause
        assert causes([failed], capacity_bytes=100, used_bytes=130).oversized is None


@pytest.mark.parametrize(
    ("program", "output", "shared", "left_out"),
    [(None, 70, 0, 70), (None, 70, 30, 40), (None, 70, None, 70), (None, None, 0, 0), (None, 5, 9, 0), (90, 70, 0, 0)],
)
def test_outputs_that_a_total_leaves_out(
    program: int | None, output: int | None, shared: int | None, left_out: int
) -> None:
    """Those of a program of unknown size."""
    sizes = {("total", "program"): program, ("output", "output"): output, ("output", "shared"): shared}
    usage = [{"part": part, "label": label, "bytes": n} for (part, label), n in sizes.items()]
    assert causes([], [u | {"fragmentation_bytes": 0} for u in usage]).output_left_out == left_out
    assert causes([]).output_left_out == 0


@pytest.mark.parametrize("kind", [b"", b", maybe-live-out"])
def test_a_copy_in_a_parameter_has_its_name(kind: bytes) -> None:
    """Whatever its row; a value that is not there has no name."""
    text = IN_PLACE.replace(b"SIZE", b"512").replace(b" at ShapeIndex {}", kind + b" at ShapeIndex {}")
    p = program(xlamem.read(text))
    assert p.source_columns(np.array([1, 0, -1]))["op_name"].to_pylist() == ["weights", "weights", None]


@pytest.mark.parametrize(
    ("name", "instruction", "is_entry"),
    [
        ("q{1}", "parameter(3)", True),
        ("q{1}", "parameter(1)", False),  # that of the body of a loop
        ("q{0}", "parameter(3)", False),
        ("q{1}", "get-tuple-element(3)", False),
    ],
)
def test_the_entry_parameter_of_an_allocation(
    name: str, instruction: str, is_entry: bool, make: Callable[..., Path]
) -> None:
    """Its number and index are those of the allocation."""
    allocations = "allocation 0: size 8, parameter 3, shape |f32[2]| at ShapeIndex {1}:\n" + value(1, name)
    records = [record(1, name, f"f32[2]{{0}} {instruction}")]
    dump = xlamem.read(make(attacks.dump([], allocations=allocations, records=records, ranges=[f"{name}:0-4"])))
    assert program(dump).entry_parameters.tolist() == [0] * is_entry


@pytest.mark.parametrize("size", [16, 512, 513, 9000])
def test_a_value_ends_with_its_allocation(size: int) -> None:
    p = program(xlamem.read(IN_PLACE.replace(b"SIZE", b"%d" % size)))
    assert (p.size.tolist(), p.extent.tolist()) == ([size, 512], [min(size, 512), 512])


def test_sizes_of_values_that_go_beyond_their_arena(make: Callable[..., Path]) -> None:
    """Their sizes are added up as they are printed; they cover no more than the arena."""
    values = [value(0, "a", 96), value(1, "b", 32, 48)]
    dump = xlamem.read(make(attacks.dump(values, size=64, ranges=["a{}:0-1", "b{}:2-3"])))
    (row,) = compute.fragmentation(dump).to_pylist()
    assert (row["size"], row["value_bytes"], row["reuse"], row["unassigned"], row["peak"]) == (64, 128, 2.0, 0, 64)


def test_a_peak_without_tables_has_no_curve() -> None:
    peak = xlamem.peak(IN_PLACE.replace(b"SIZE", b"512"))
    assert "svg" not in Peak(peak.spaces, peak.plateaus)._repr_html_()


def test_names_of_the_products_of_layers() -> None:
    """Numbers at the end do not count, with or without an underscore; a scope that is no name has none."""
    paths = ["m/mlp1/dot_general", "m/mlp_2/dot_general", "m/attn2x/dot_general", "m/7/dot_general", "m/norm/add"]
    names = pa.array([f"jit(f)/jvp({path.replace('/', ')/', 1)}" for path in paths])
    a: Any = SimpleNamespace(op_codes=np.array([0, 1, 2, 3, 4, -1]), op_names=names)
    assert LayerActivations.names_of(a, np.arange(6)) == ("attn2x", "mlp")


def test_pairs_of_positions() -> None:
    """If both numbers are the same, there are two of them, or more."""
    dimensions = np.array([[4, 4, 4], [4, 1, 4], [4, 2, 1], [2, 3, 4]])
    assert attention._Pairs(4, 4).are_in(dimensions).tolist() == [True, True, False, False]
    assert attention._Pairs(4, 2).are_in(dimensions).tolist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("kind", "room"), [("preallocated-temp:", 8), ("parameter 0, shape |f32[4]| at ShapeIndex {}:", 0)]
)
def test_what_moves_to_vmem_takes_the_place_of_temporaries(kind: str, room: int, make: Callable[..., Path]) -> None:
    """At most half of the temporaries there make room; arguments stay."""
    buffers = [Buffer("a", "f32[64]"), Buffer("v", "f32[4]", allocation=f"color 1, {kind}")]
    w = WhatIf(program(advice_programs.program(make, buffers, "tpu")))
    assert bounds.with_vmem(w, 0) == room


def test_long_dimensions() -> None:
    """Those of 18 digits and more are no sizes."""
    shapes = pa.array([f"s8[{10**16},3]", f"s8[{10**17},3]"])
    a: Any = SimpleNamespace(_shapes=(np.array([0, 1]), shapes))
    assert LayerActivations.dimensions.func(a)[:, :2].tolist() == [[10**16, 3], [3, 0]]


def test_dimensions_of_1_do_not_count(make: Callable[..., Path]) -> None:
    """Others may end with a 1: 21 times 8 is not 28."""
    shapes = ["f32[21,8]", "f32[28]", "f32[1,28]", "f32[28,1]", "f32[1,1]", "f32[2,1,8]", "f32[2,8]", "f32[]", "pred"]
    p = program(advice_programs.program(make, [Buffer(f"v.{i}", shape) for i, shape in enumerate(shapes)]))
    codes, names = intervention.dimensions(p)
    texts = [*names.to_pylist(), None]
    assert [texts[code] for code in codes.tolist()] == ["21,8", "28", "28", "28", "1", "2,8", "2,8", None, None]


@pytest.mark.parametrize(("extents", "wanted"), [([10, 10, 0], False), ([11, 10, 0], True), ([9, 10, 2], True)])
def test_values_that_are_mostly_on_lines_of_others(extents: list[int], wanted: bool) -> None:
    """Half of their bytes are not most of them."""
    a: Any = SimpleNamespace(p=SimpleNamespace(extent=np.array([*extents, 99])), _line=np.array([7, 8, 7, 7]))
    others = np.array([False, False, False, True])
    assert LayerActivations.mostly_on_lines_of(a, others, np.arange(3)) is wanted


def test_when_values_occupy_their_bytes(make: Callable[..., Path]) -> None:
    """Never, if their range is outside of the schedule or ends before it begins; always, without a range."""
    ranges = {"a": "0-1", "beyond": "7-9", "reversed": "3-1", "last": "4-4", "one": "2-2"}
    values = [value(i, name, offset=8 * i) for i, name in enumerate([*ranges, "none"])]
    p = program(xlamem.read(make(attacks.dump(values, ranges=[f"{name}{{}}:{at}" for name, at in ranges.items()]))))
    closed, half_open = (list(zip(*(c.tolist() for c in p.occupied_ranges(i)), strict=True)) for i in INTERVALS)
    assert closed == [(0, 1), (-1, 4), (-1, 1), (4, 4), (2, 2), (0, 4)]
    assert half_open == [(0, 0), (-1, -1), (-1, -1), (4, 4), (2, 2), (0, 4)]
    assert [column[-1] for column in p.ranges] == [-1, -1]


def test_a_peak_as_a_data_frame() -> None:
    """Its spaces, not its plateaus."""
    spaces, plateaus = (SimpleNamespace(to_pandas=lambda name=name: name) for name in ("spaces", "plateaus"))
    assert Peak(spaces, plateaus).to_pandas() == "spaces"  # type: ignore[arg-type, comparison-overlap]


@pytest.mark.parametrize(
    ("others", "of_stacks", "extents", "wanted"),
    [
        ([0], [0, 0], [10, 30], True),  # the largest stack is taken for what is passed on
        ([0], [0, 0], [30, 10], True),
        ([0], [0, 0], [20, 20], False),
        ([0, 0], [0, 0], [20, 20], True),
        ([1], [0, 1], [10, 11], True),
        ([1], [0, 1], [11, 10], False),
        ([], [0], [10], False),
    ],
)
def test_loops_that_mostly_stack_what_they_pass_on(
    others: list[int], of_stacks: list[int], extents: list[int], wanted: bool
) -> None:
    """One stack for each array that is passed on, of the same dimensions."""
    codes = np.array([]), np.array(others, np.int64), np.array(of_stacks)
    a: Any = SimpleNamespace(p=SimpleNamespace(extent=np.array(extents)), _other_results=lambda *_: codes)
    assert LayerActivations._keeps_what_it_passes_on(a, 0, np.arange(len(extents)), 8) is wanted


@pytest.mark.parametrize(("size", "difference"), [((1 << 63) - 10, (1 << 63) - 1), ((1 << 63) - 9, None)])
def test_differences_of_64_bits(size: int, difference: int | None) -> None:
    """Those of numbers that a damaged dump prints may not fit."""
    for sign in (1, -1):
        rows = _Rows()
        rows.add("device_total", sign * size, -sign * 9, rest="x")
        (number,) = rows.numbers
        assert number["difference"] == (difference and sign * difference)
        assert [cause["bytes"] for cause in rows.causes] == ([] if difference is None else [sign * difference])


def test_the_length_of_a_chunk() -> None:
    for trips, (carry, per_trip) in itertools.product(range(1, 40), [(1, 1), (1, 9), (9, 1), (0, 5), (5, 0), (2, 7)]):
        kept = {c: trips // c * carry + c * per_trip for c in range(2, trips) if trips % c == 0}
        length = rematerialization._chunk(trips, carry, per_trip)
        assert (length is None) == (not kept)
        assert length is None or kept[length] == min(kept.values())
    most = rematerialization.MAX_CHUNK
    assert [rematerialization._chunk(n * most, 1000, 0) for n in (1, 2)] == [most // 2, most]


def test_a_source_without_a_line() -> None:
    lines = {"source_file": ["a.py", None, "b.py"], "source_line": pa.array([None, 3, 7], pa.int64())}
    assert key_column(pa.table(lines), "source", None, False).to_pylist() == ["a.py", None, "b.py:7"]


def test_bytes_in_use_at_any_step() -> None:
    """Also at step 0, which is not the step of the peak."""
    dump = xlamem.read(DUMPS / "tpu-libtpu-0.0.50.1-v5e-mlp_grad")
    peaks = {s["memory_space"]: s["first_step"] for s in xlamem.peak(dump).spaces.to_pylist()}
    assert peaks["hbm"]
    for time in (0, 1, None):
        live = compute.live_set(dump, time)
        found = compute.spaces_in_use(dump, live, time)
        sizes: Counter[str] = Counter()
        for row in live.to_pylist():
            sizes[row["memory_space"]] += row["bytes"]
        assert {row["memory_space"]: row["bytes"] for row in found} == sizes
        assert all(row["time"] == (peaks[row["memory_space"]] if time is None else time) for row in found)
    overview = compute.summarize(dump)
    steps = len(xlamem.occupancy(dump, space="hbm"))
    levels = [compute.occupancy(dump, space=s.color)["occupied"].to_pylist() for s in program(dump).spaces]
    for step in (0, 1, steps - 1):
        assert overview.in_use(step) == sum(level[step] for level in levels)
    assert overview.in_use(steps) is None


def test_the_numberwith_most_bytes() -> None:
    for numbers, sizes, most in (([4, 4, 4, 9], [1, 1, 1, 8], 9), ([9, 4, 9], [1, 3, 1], 4), ([9, 4], [2, 2], 4)):
        assert with_most_bytes(np.array(numbers), np.array(sizes)) == most


@pytest.mark.parametrize(("most", "together"), [(10, 10), (16, 16), (40, 16), (3, 13)])
def test_what_interventions_save_together(most: int, together: int) -> None:
    """Their lower bounds, less what they save alone but not together."""
    w: Any = SimpleNamespace(saved=lambda change: min(change.fixed, most))
    one: Any = SimpleNamespace(lower=8, change=Change(8, np.zeros(3, np.int64)))
    assert saved_together(w, []) == 0
    assert saved_together(w, [one]) == 8
    assert saved_together(w, [one, one]) == together


def test_interventions_that_help_each_other_are_not_counted_higher() -> None:
    """Each lowers one of two equal peaks, which saves nothing unless the other one is lower too."""
    changes = [Change(0, np.array(levels)) for levels in ([-8, 0], [0, -8])]
    w: Any = SimpleNamespace(saved=lambda change: 20 - int((np.array([20, 20]) + change.levels).max()))
    both: Any = [SimpleNamespace(lower=3, change=change) for change in changes]
    assert [w.saved(i.change) for i in both] == [0, 0]
    assert saved_together(w, both) == 6


def test_a_value_of_an_unknown_size_weighs_nothing(make: Callable[..., Path]) -> None:
    """XLA's weights are unpadded, and the size of a type that does not exist yet is not known."""
    values = [value(1, "a", 512, 0, "f32[100]"), value(2, "b", 512, 512, "x9[4]")]
    records = [record(1, "a", "f32[100] add(%x)"), record(2, "b", "x9[4] add(%x)")]
    dump = xlamem.read(make(attacks.dump(values, size=1024, records=records, ranges=["a{}:0-3", "b{}:0-3"])))
    causes = [c for c in xlamem.explain_causes(dump).to_pylist() if c["name"] == "xla_rule"]
    assert [(c["cause"], c["bytes"]) for c in causes] == [("padding left out", 400 - 1024)]


@pytest.mark.parametrize(("hashes", "groups"), [(True, [[0, 2]]), (False, [])])
def test_dumps_of_equal_content(hashes: bool, groups: list[list[int]], make: Callable[..., Path]) -> None:
    """Nothing is known of dumps that were read without hashes."""
    texts = [b"BufferAssignment:\n", b"BufferAssignment:\n\n", b"BufferAssignment:\n"]
    found = [compute.inspect(xlamem.read(make({"buffer-assignment": text}), hashes=hashes)) for text in texts]
    assert [[found.index(i) for i in group] for group in compute.duplicates(found)] == groups


def test_buffers_of_a_dump_without_live_ranges(make: Callable[..., Path]) -> None:
    """The largest first; thread-local values are not in the memory that must fit."""
    allocations = "".join(
        f"allocation {i}: size {size}, {kind}:\n{value(i, f'v.{i}', size)}"
        for i, (size, kind) in enumerate([(64, "preallocated-temp"), (900, "thread-local"), (80, "maybe-live-out")])
    )
    dump = xlamem.read(make({"buffer-assignment": f"BufferAssignment:\n{allocations}".encode()}))
    (space,) = (s for s in compute.summarize(dump).spaces if s["color"] == 0)
    assert (space["n_buffers"], space["buffers"]["value_id"].to_pylist()) == (2, [2, 0])
    assert space["buffers"]["bytes"].to_pylist() == [80, 64]  # with the padding of f32[2]
    shares = [space["buffers"][column].to_pylist() for column in ("exclusive", "shared")]
    assert shares == [[None, None], [None, None]]  # not known without live ranges
    assert {c: size for c, size in space["categories"].items() if size} == {"temp": 64, "live_out": 80}


def test_savings_name_an_allocation_by_its_number(make: Callable[..., Path]) -> None:
    """Which need not be its place in the list."""
    allocations = f"allocation 3: size 64, maybe-live-out:\n{value(1, 'o', 64)}"
    allocations += f"allocation 7: size 16, preallocated-temp:\n{value(2, 't', 16)}"
    members = attacks.dump([], allocations=allocations, ranges=["o{}:0-4", "t{}:1-2"])
    found = compute.savings(xlamem.read(make(members))).to_pylist()
    assert [(r["role"], r["allocation"], r["saving"]) for r in found] == [("allocation", 3, 64), ("value", 7, 16)]


def test_the_first_clone_after_the_peak_saves_its_bytes(make: Callable[..., Path]) -> None:
    ranges = {"top": "3-3", "a": "0-1", "a.remat": "2-2", "a.remat2": "5-5", "a.remat3": "4-4"}
    ranges |= {"b": "0-1", "b.remat": "3-4", "b.remat2": "6-6"}
    values = [value(i, name, 512 if name == "top" else 64, 1024 * i) for i, name in enumerate(ranges)]
    members = attacks.dump(values, size=1 << 20, steps=8, ranges=[f"{name}{{}}:{at}" for name, at in ranges.items()])
    found = compute.rematerialized(xlamem.read(make(members))).to_pylist()
    saved = {row["instruction"]: row["saved"] for row in found}
    assert saved == {"a.remat": 0, "a.remat2": 0, "a.remat3": 64, "b.remat": 0, "b.remat2": 0}
    assert {row["instruction"] for row in found if row["at_peak"]} == {"b.remat"}


@pytest.mark.parametrize("first", range(6))
def test_the_original_of_a_clone(first: int, make: Callable[..., Path]) -> None:
    """It is the value with the same index that the instruction without the suffix defines, null if there is none."""
    names = ["a.remat", "a{0}", "a{1}", "b.remat{1}", "c.remat", "c"]
    order = names[first:] + names[:first]
    values = [value(i, name, 64, 64 * i) for i, name in enumerate(order)]
    ranges = [f"{name}{'' if '{' in name else '{}'}:0-1" for name in order]
    found = compute.rematerialized(xlamem.read(make(attacks.dump(values, size=1 << 20, ranges=ranges)))).to_pylist()
    assert {row["instruction"]: row["original_id"] for row in found} == {
        "a.remat": None, "b.remat": None, "c.remat": order.index("c"),
    }  # fmt: skip


def test_the_original_of_a_clone_is_no_element_of_another_value(make: Callable[..., Path]) -> None:
    """Also if the last index is that of the instruction that is named before."""
    values = [value(i, name, 64, 64 * i) for i, name in enumerate(("x{0}", "x{1}", "a{0}", "a.remat"))]
    ranges = ["x{0}:0-1", "x{1}:0-1", "a{0}:0-1", "a.remat{}:0-1"]
    (row,) = compute.rematerialized(xlamem.read(make(attacks.dump(values, size=256, ranges=ranges)))).to_pylist()
    assert (row["instruction"], row["original_id"]) == ("a.remat", None)


def test_slices_of_the_iterations_of_a_loop() -> None:
    """A loop of one iteration has none, whatever the first dimension is."""
    shapes = pa.array(["f32[1,8]", "f32[6,8]", "f32[8]", "f32[]", "(f32[6])"])
    trips, sliced = [1, 6, 1, 6, -1, 6, 6, 6], [1, 1, 1, 0, 1, 1, 1, 1]
    codes = np.array([0, 1, 1, 1, 1, 2, 3, 4])
    known = {"carried slices": np.arange(8) * _SIZES + trips, "sliced": np.array(sliced, bool)}
    p: Any = SimpleNamespace(once=lambda key, _: known[key], texts=lambda *_: (codes, shapes), chains=np.arange(8))
    assert _iterations(p, np.arange(8)).tolist() == [-1, 6, -1, -1, -1, -1, -1, -1]


def test_values_of_one_slot(make: Callable[..., Path]) -> None:
    """They have the same place, size, size without padding and element type; their dimensions may differ."""
    places = [(512, 0, "f32[128]"), (512, 512, "f32[128]"), (256, 0, "f32[128]"), (512, 0, "f32[100]")]
    places += [(512, 0, "s32[128]"), (512, 0, "f32[2,64]")]
    values = [value(i, f"a.{i}", size, offset, shape) for i, (size, offset, shape) in enumerate(places)]
    slots = program(xlamem.read(make(attacks.dump(values, size=1024)))).slots
    assert [np.flatnonzero(slots == slot).tolist() for slot in slots] == [[0, 5], [1], [2], [3], [4], [0, 5]]


@pytest.mark.parametrize(("start", "n"), [(2, 2), (3, 1)])
def test_what_follows_in_a_slot_after_a_gap_is_something_else(start: int, n: int, make: Callable[..., Path]) -> None:
    """A loop of 24 iterations had the slot before, and the batch of an activation is 24, too."""
    values = [value(i, f"a.{i}", 192, 0, "f32[6,8]{1,0}") for i in range(3)]
    ranges = ["a.0{}:0-2", f"a.1{{}}:{start}-3", "a.2{}:1-1"]
    dump = xlamem.read(make(attacks.dump(values, ranges=ranges), "cpu_after_optimizations"))
    chains = program(dump).chains
    assert len(set(chains[:2].tolist())) == 3 - n
    assert chains[2] == chains[0]


@pytest.mark.parametrize(("offset", "extent"), [(0, 64), (8, 56), (64, 0), (72, 0)])
def test_what_lies_beyond_an_allocation_does_not_count(offset: int, extent: int, make: Callable[..., Path]) -> None:
    members = attacks.dump([value(0, "a.0", 64, offset)], size=64, ranges=["a.0{}:0-1"])
    assert program(xlamem.read(make(members))).extent.tolist() == [extent]


@pytest.mark.parametrize(("start", "n"), [(1, 3), (2, 6)])
def test_chains_of_several_slots(start: int, n: int, make: Callable[..., Path]) -> None:
    values = [value(i, f"a.{i}", 192, 192 * (i // 2), "f32[6,8]{1,0}") for i in range(6)]
    ranges = [f"a.{i}{{}}:{(0, start)[i % 2]}-{(1, 9)[i % 2]}" for i in range(6)]
    dump = xlamem.read(make(attacks.dump(values, ranges=ranges, steps=10), "cpu_after_optimizations"))
    assert len(set(program(dump).chains.tolist())) == n


def test_a_value_without_a_live_range_may_fill_the_gap_of_a_chain(make: Callable[..., Path]) -> None:
    values = [value(i, f"a.{i}", 192, 0, "f32[6,8]{1,0}") for i in range(3)]
    members = attacks.dump(values, ranges=["a.1{}:0-0", "a.2{}:3-3"])
    assert len(set(program(xlamem.read(make(members, "cpu_after_optimizations"))).chains.tolist())) == 1


def test_a_program_without_values_has_no_chains(make: Callable[..., Path]) -> None:
    assert program(xlamem.read(make(attacks.dump([]), "cpu_after_optimizations"))).chains.tolist() == []


def test_updates_of_an_argument_are_one_chain(make: Callable[..., Path]) -> None:
    allocations = "allocation 0: size 192, parameter 0, shape |f32[6,8]| at ShapeIndex {}, maybe-live-out:\n"
    values = "".join(value(i, f"a.{i}", 192, 0, "f32[6,8]{1,0}") for i in range(2))
    members = attacks.dump([], allocations=allocations + values, ranges=["a.0{}:0-0", "a.1{}:3-3"])
    assert len(set(program(xlamem.read(make(members, "cpu_after_optimizations"))).chains.tolist())) == 1


@pytest.mark.parametrize(
    ("index", "given", "iterations"),
    [("i", "step", 6), ("i", "zero", None), ("here", "step", None), ("cut", "step", 6), ("both", "step", 6)],
)
@pytest.mark.parametrize("order", ["xui", "iux", "xiu"])
def test_a_loop_that_writes_slices_of_another_dimension(
    index: str, given: str, iterations: int | None, order: str, make: Callable[..., Path]
) -> None:
    """The first dimension is not the number of its iterations: it writes `x[:, i]`.

    The counter has no first dimension, but what adds to it is named after the update.
    """
    operands = ", ".join({"x": "%c", "u": "%slice", "i": f"%{given}"}[name] for name in order)
    fused = f"""%inner () -> f32[6,8] {{
  %x = f32[6,8] parameter({order.index("x")})
  %u = f32[1,8] parameter({order.index("u")})
  %i = s32[] parameter({order.index("i")})
  %here = s32[] constant(0)
  ROOT %d = f32[6,8] dynamic-update-slice(%x, %u, %{index}, %i)
}}
"""
    if index == "both":
        fused = fused.replace("ROOT %d", "%e").replace("%both", "%here")
        fused = fused.replace("\n}", "\n  ROOT %d = f32[6,8] dynamic-update-slice(%e, %u, %i, %i)\n}")
    body = f"""%body (t: (f32[6,8], s32[])) -> (f32[6,8], s32[]) {{
  %t = (f32[6,8], s32[]) parameter(0)
  %c = f32[6,8] get-tuple-element(%t), index=0
  %step = s32[] get-tuple-element(%t), index=1
  %zero = s32[] constant(0)
  %slice = f32[1,8] broadcast(%step)
  %w_dynamic-update-slice_fusion = f32[6,8] fusion({operands}), kind=kLoop, calls=%inner
  ROOT %r = (f32[6,8], s32[]) tuple(%w_dynamic-update-slice_fusion, %step)
}}
"""
    entry = "ENTRY %main () -> f32[6,8] {\n  ROOT %w = (f32[6,8], s32[]) while(%a), condition=%c, body=%body\n}\n"
    name = "w_dynamic-update-slice_fusion"
    loop = "(f32[6,8], s32[]) while(%a), condition=%c, body=%body"
    values = [value(1, "w{0}", 192, 0, "f32[6,8]{1,0}"), value(2, name, 192, 0, "f32[6,8]{1,0}")]
    values += [value(3, "w{1}", 4, 192, "s32[]"), value(4, "add", 4, 192, "s32[]")]
    written = "f32[6,8]{1,0} fusion(%c, %slice, %i), kind=kLoop, calls=%inner"
    counted = 's32[] add(%step, %one), metadata={op_name="jit(f)/while/body/dynamic_update_slice"}'
    records = [record(1, "w{0}", loop, "  w {0}"), record(2, name, written)]
    members = attacks.dump(
        values,
        records=[*records, record(3, "w{1}", loop, "  w {1}"), record(4, "add", counted)],
        ranges=["w{0}:0-3", f"{name}{{}}:1-2", "w{1}:0-3", "add{}:1-2"],
        hlo=attacks.hlo(*((fused, body) if index != "cut" else ()), entry),
    )
    rows = xlamem.live_set(xlamem.read(make(members)), 2).to_pylist()
    assert [r["iterations"] for r in rows if r["size"] > 4] == [iterations] * 2


@pytest.mark.parametrize("number", [0, 9])
def test_a_carry_that_no_allocation_has(number: int, make: Callable[..., Path]) -> None:
    """It makes no other buffer a carry."""
    loop = '(f32[6,8], f32[6,8]) while(%a), backend_config={"known_trip_count":{"n":"6"}}'
    names = ["w{0}", "x_dynamic-update-slice_fusion", "z_dynamic-update-slice_fusion"]
    written = "f32[6,8]{1,0} fusion(%c), kind=kLoop"
    members = attacks.dump(
        [value(i, name, 192, 192 * (i > 2), "f32[6,8]{1,0}") for i, name in enumerate(names, 1)],
        records=[
            record(number, "w{1}", loop, positions="  w {1}"),
            record(1, "w{0}", loop, positions="  w {0}"),
            *(record(i, name, written) for i, name in enumerate(names[1:], 2)),
        ],
        ranges=["w{0}:0-3", *(f"{name}{{}}:1-2" for name in names[1:])],
    )
    rows = xlamem.live_set(xlamem.read(make(members)), 2).to_pylist()
    assert {r["instruction"]: r["iterations"] for r in rows} == {"w": 6, names[1]: 6, names[2]: None}


@pytest.mark.parametrize(
    ("loops", "wanted"),
    [("wv", [6, 6, -1, 2, 2]), ("w", [6, 6, -1, -1, -1]), ("v", [-1, -1, -1, 2, 2]), ("", [-1] * 5)],
)
def test_what_these_loops_write_slice_by_slice(loops: str, wanted: list[int], make: Callable[..., Path]) -> None:
    """Not what another loop writes, nor w{1}, which a loop only reads slice by slice."""
    trips = {"w": 6, "v": 2}
    names = ["w{0}", "x_dynamic-update-slice_fusion", "w{1}", "v{0}", "y_dynamic-update-slice_fusion"]
    values, records = [], []
    for i, (name, n, slot) in enumerate(zip(names, (6, 6, 6, 2, 2), (0, 0, 1, 2, 2), strict=True)):
        loop = f'while(%a), backend_config={{"known_trip_count":{{"n":"{trips.get(name[0])}"}}}}'
        positions = f"  {name[0]} {name[1:]}" if "{" in name else ""
        uses = "  z_dynamic-slice_fusion, operand 0" if name == "w{1}" else ""
        instruction = f"f32[{n},8]{{1,0}} {loop if positions else 'fusion(%c), kind=kLoop'}"
        values.append(value(i, name, 32 * n, 256 * slot, f"f32[{n},8]{{1,0}}"))
        records.append(record(i, name, instruction, positions, uses))
    values.append(value(5, "z_dynamic-slice_fusion", 32, 768, "f32[1,8]{1,0}"))
    records.append(record(5, "z_dynamic-slice_fusion", "f32[1,8]{1,0} fusion(%c), kind=kLoop"))
    ranges = [f"{name}{'' if '{' in name else '{}'}:0-3" for name in names]
    p = program(xlamem.read(make(attacks.dump(values, records=records, ranges=ranges))))
    assert _iterations(p, np.arange(5)).tolist() == [6, 6, 6, 2, 2]
    is_loop = np.isin(p.tables["instructions"]["instruction"].to_pylist(), [*loops])
    assert stacked_over(p, np.arange(5), is_loop).tolist() == wanted


@pytest.mark.parametrize(
    ("compare", "limit", "iterations"),
    [
        ("compare(%i, %n), direction=LT", "constant(6)", 6),
        ("compare(%i, %n), direction=LE", "constant(6)", None),
        ("compare(%i, %i), direction=LT", "constant(6)", None),
        ("compare(%i, %n), direction=LT", "parameter(6)", None),
    ],
)
def test_the_limit_of_a_loop_without_a_trip_count(
    compare: str, limit: str, iterations: int | None, make: Callable[..., Path]
) -> None:
    """What it carries may be written by a nested loop, whose slices are of another number."""
    condition = f"""%cond (u: (s32[], f32[6,8], f32[4,8])) -> pred[] {{
  %u = (s32[], f32[6,8], f32[4,8]) parameter(0)
  %i = s32[] get-tuple-element(%u), index=0
  %n = s32[] {limit}
  ROOT %lt = pred[] {compare}
}}
"""
    shape = "(s32[], f32[6,8], f32[4,8])"
    body = f"%body (t: {shape}) -> {shape} {{\n  ROOT %t = {shape} parameter(0)\n}}\n"
    loop = f"{shape} while(%a), condition=%cond, body=%body"
    entry = f"ENTRY %main () -> f32[6,8] {{\n  ROOT %w = {loop}\n}}\n"
    names = {2: "x_dynamic-update-slice_fusion", 4: "y_dynamic-update-slice_fusion"}
    rows = [(1, "w{1}", "f32[6,8]"), (2, names[2], "f32[6,8]"), (3, "w{2}", "f32[4,8]"), (4, names[4], "f32[4,8]")]
    values = [value(n, name, 192, 256 * (n > 2), shape + "{1,0}") for n, name, shape in rows]
    values += [value(5, "lt", 1, 512, "pred[]"), value(6, "n", 4, 768, "s32[]")]
    records = [record(n, f"w{{{n // 2 + 1}}}", loop, positions=f"  w {{{n // 2 + 1}}}") for n in (1, 3)]
    records += [record(n, name, f"{shape}{{1,0}} fusion(%c), kind=kLoop") for n, name, shape in (rows[1], rows[3])]
    records += [record(5, "lt", f"pred[] {compare}"), record(6, "n", f"s32[] {limit}")]
    ranges = ["w{1}:0-3", f"{names[2]}{{}}:1-2", "w{2}:0-3", f"{names[4]}{{}}:1-2", "lt{}:1-2", "n{}:0-3"]
    members = attacks.dump(values, records=records, ranges=ranges, hlo=attacks.hlo(condition, body, entry))
    dump = xlamem.read(make(members))
    assert trip_counts_of(program(dump)) == [iterations or -1]
    found = xlamem.live_set(dump, 2).to_pylist()
    assert {(r["shape"][:8], r["iterations"]) for r in found if r["shape"].startswith("f32")} == {
        ("f32[6,8]", iterations),
        ("f32[4,8]", None),
    }


@pytest.mark.parametrize("ids", [(5, 9, 7), (9, 7, 5), (1, 2, 3)])
def test_the_highest_id_names_an_allocation(ids: tuple[int, ...], make: Callable[..., Path]) -> None:
    """Of values of the same size."""
    values = [value(i, f"a.{i}", 64, 0, "f32[16]") for i in ids]
    values.append(value(20, "small", 60, 0, "f32[15]"))
    p = program(xlamem.read(make(attacks.dump(values, size=64, ranges=[f"a.{i}{{}}:0-1" for i in ids]))))
    assert p.value_ids[p.representative].tolist() == [max(ids)]


@pytest.mark.parametrize(("end", "name"), [(4, "out"), (3, "large")])
def test_an_output_names_its_allocation(end: int, name: str, make: Callable[..., Path]) -> None:
    """Not a loop counter that borrows its bytes; without an output, the largest value does."""
    values = [value(1, "out", 48), value(2, "large", 64), value(3, "counter", 4)]
    members = attacks.dump(
        values,
        allocations="allocation 0: size 64, output shape is |f32[12]|, maybe-live-out:\n",
        records=[record(i, of) for i, of in enumerate(("out", "large", "counter"), 1)],
        ranges=[f"out{{}}:2-{end}", "large{}:0-0", "counter{}:1-1"],
    )
    (rest,) = (r for r in compute.live_set(xlamem.read(make(members)), 1).to_pylist() if r["role"] == "reserved")
    assert (rest["instruction"], rest["bytes"]) == (name, 60)


@pytest.mark.parametrize(("at", "thread_local"), [(0, 0), (1, 16), (3, 16), (4, 0)])
def test_xla_counts_thread_local_values_in_its_peak_while_they_are_live(
    at: int, thread_local: int, make: Callable[..., Path]
) -> None:
    """Without their padding."""
    kinds = (("a", "preallocated-temp", 16), ("t", "thread-local", 64))
    allocations = "".join(
        f"allocation {i}: size {size}, {kind}:\n{value(i, name, size, shape='f32[4]{0}')}"
        for i, (name, kind, size) in enumerate(kinds)
    )
    tail = "    a{}: 16 bytes\n" + ("    t{}: 16 bytes\n" if thread_local else "")
    members = attacks.dump([], allocations=allocations, ranges=["a{}:0-4", "t{}:1-3"], steps=6, tail=tail)
    members["live-range"] = members["live-range"].replace(b"at 0 (peak)", f"at {at} (peak)".encode())
    causes = xlamem.explain_causes(xlamem.read(make(members))).to_pylist()
    printed = {c["cause"]: c["bytes"] for c in causes if c["name"] == "xla_printed"}
    assert printed.get("thread-local", 0) == thread_local
    assert not [cause for cause in printed if "disagree" in cause]


def test_what_is_computed_again_is_in_flight_until_the_stacks_are_last_read() -> None:
    a: Any = SimpleNamespace(w=SimpleNamespace(only=lambda members: np.array([0, 8, 8, 8, 8, 0])))
    s: Any = SimpleNamespace(members=None, read=(3, 4))
    assert rematerialization._stacked_again(a, s, 2, 5).levels.tolist() == [0, -6, -6, -1, -1, 0]


@pytest.mark.parametrize(
    ("extent", "in_memory", "by_policy", "wanted"),
    [
        (4, True, False, 10), (4, True, True, 0),  # much smaller than an element
        (10, True, False, 10), (10, True, True, 10), (10, False, False, 10), (12, True, False, 10), (12, True, True, 0),
    ],
)  # fmt: skip
def test_what_a_loop_passes_on(extent: int, in_memory: bool, by_policy: bool, wanted: int) -> None:
    """Without a result of the size of an element, it is an element, unless a policy keeps the stack."""
    others = np.array([1]), np.array([0]), np.array([1])
    loops: Any = SimpleNamespace(
        p=SimpleNamespace(extent=np.array([80, extent]), owner=np.array([0, 1])),
        w=SimpleNamespace(in_memory=np.array([True, in_memory])),
        _other_results=lambda loop, stacks, trips: others,
    )
    assert LoopActivations._carry(loops, 0, np.array([0]), 8, by_policy=by_policy) == wanted


@pytest.mark.parametrize(("steps", "first"), [((3, 5), 5), ((3, 6, 4), 4), ((3,), 7), ((), 7)])
def test_a_loop_does_not_read_its_own_results(steps: tuple[int, ...], first: int, make: Callable[..., Path]) -> None:
    """It carries them, so it is listed among their uses."""
    uses = "\n".join(f"  s.{step}, operand 0" for step in steps)
    members = attacks.dump([value(1, "w{1}")], records=[record(1, "w{1}", uses=uses)], ranges=["w{1}:3-7"], steps=8)
    a = LayerActivations(WhatIf(program(xlamem.read(make(members)))))
    assert a._first_read(np.array([0])) == first


@pytest.mark.parametrize("first", range(5))
def test_what_a_loop_reads_slice_by_slice_with_a_stack(first: int, make: Callable[..., Path]) -> None:
    """All arrays with as many slices that it reads; not what others read, other arrays, or the stack itself."""
    shapes = {"stack": "f32[6,8]", "x": "f32[6,4]", "y": "f32[4,6]", "z": "f32[6,2]", "w": "s32[]"}
    sizes = {"stack": 192, "x": 96, "y": 96, "z": 48, "w": 4}
    order = [*shapes][first:] + [*shapes][:first]
    loop = "s32[] while(%a), condition=%c, body=%b"
    records = {name: ("", f"  {'other' if name == 'z' else 'w'}, operand 0") for name in order} | {"w": (loop, "")}
    members = attacks.dump(
        [value(i, name, sizes[name], 256 * i, shapes[name]) for i, name in enumerate(order)],
        records=[record(i, name, records[name][0], uses=records[name][1]) for i, name in enumerate(order)],
        ranges=[f"{name}{{}}:0-3" for name in order],
    )
    a = LayerActivations(WhatIf(program(xlamem.read(make(members)))))
    assert a._sliced(np.array([order.index("stack")]), 6) == sizes["x"]


@pytest.mark.parametrize(("cells", "n_curves"), [(4, 0), (5, 1), (1 << 20, 1)])
def test_no_curve_has_too_many_steps(
    cells: int, n_curves: int, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four instructions have five steps, from before the first one to after the last one."""
    monkeypatch.setattr(peaks, "MAX_CELLS", cells)
    members = attacks.dump([value(0, "a", 4096)], records=[record(0, "a")], ranges=["a{}:0-3"], steps=4, size=4096)
    assert xlamem.peak(xlamem.read(make(members)))._repr_html_().count("<svg") == n_curves


@pytest.mark.parametrize(("sizes", "n"), [([4000, 4], 2), ([4000, 3], 1), ([1], 1), ([1, 1], 2), ([0], 0)])
def test_which_spaces_have_a_curve(sizes: list[int], n: int, make: Callable[..., Path]) -> None:
    """Those with at least a thousandth of the largest peak."""
    allocations = "".join(
        f"allocation {i}: size {size}, color {i}, maybe-live-out:\n{value(i, f'a.{i}', size, 0, 'u8[1]', i)}"
        for i, size in enumerate(sizes)
    )
    members = attacks.dump([], allocations=allocations, ranges=[f"a.{i}{{}}:0-4" for i in range(len(sizes))])
    assert xlamem.peak(xlamem.read(make(members)))._repr_html_().count("<svg") == n


@pytest.mark.parametrize(
    ("opcode", "kinds"),
    [
        ("async-start", [None, None, "scratch", None]),
        ("all-reduce-start", ["collective"] * 4),
        ("copy-start", [None, None, "scratch", None]),
    ],
)
def test_the_context_of_an_asynchronous_operation(
    opcode: str, kinds: list[str | None], make: Callable[..., Path]
) -> None:
    """Its third element, except that of a collective whose elements are all results."""
    names = [f"s{{{i}}}" for i in range(4)]
    members = attacks.dump(
        [value(i, name, 8, 8 * i) for i, name in enumerate(names)],
        records=[record(i, name, f"(f32[2], f32[2], f32[2], f32[2]) {opcode}(%a)") for i, name in enumerate(names)],
        ranges=[f"{name}:0-3" for name in names],
    )
    rows = compute.live_set(xlamem.read(make(members)), 1).to_pylist()
    assert [r["kind"] for r in sorted(rows, key=lambda r: r["value_id"])] == kinds


def test_columns_of_a_window() -> None:
    """A column for each step, or for each stretch of steps in which nothing changes."""
    steps = np.arange(8)
    window = Window(np.arange(1), np.array([0, 3, 5]), 8)
    assert window.column(steps).tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert window.first_step(np.arange(3)).tolist() == [0, 3, 5]
    assert window.last_step(np.arange(3)).tolist() == [2, 4, 7]
    assert window.expand(np.array([[7, 9, 8]])).tolist() == [[7, 7, 7, 9, 9, 8, 8, 8]]
    whole = Window(np.arange(1), None, 8)
    for columns in (whole.column(steps), whole.first_step(steps), whole.last_step(steps), whole.expand(steps)):
        assert columns.tolist() == steps.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_steps_at_which_something_changes(seed: int) -> None:
    """Between them, nothing does, whether the last step of a range counts or not."""
    draw, steps = random.Random(seed), 12
    ranges = [(a, draw.randrange(a, steps)) for a in (draw.randrange(steps) for _ in range(draw.randrange(5)))]
    changed = in_use._changes(*(np.array([r[i] for r in ranges], np.int64) for i in (0, 1)), steps)
    for ends in ([b for _, b in ranges], [max(b - 1, a) for a, b in ranges]):
        live = [[i for i, (a, _) in enumerate(ranges) if a <= t <= ends[i]] for t in range(steps)]
        assert {0, *(t for t in range(1, steps) if live[t] != live[t - 1])} <= {*changed.tolist()}
    wanted = {0, *(t for a, b in ranges for t in (a, b, b + 1))}
    assert changed.tolist() == sorted(t for t in wanted if t < steps)


def test_many_spaces_are_shown_one_at_a_time(make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """If they have many steps. The size of the table stays proportional to that of the text."""
    monkeypatch.setattr(in_use, "MAX_CELLS", 64 * 5 - 1)

    def spaces(n: int) -> xlamem.Dump:
        temps = "".join(
            f"allocation {i}: size 8, color {i}, preallocated-temp:\n{value(i, f'v.{i}', color=i)}" for i in range(n)
        )
        return xlamem.read(make(attacks.dump([], allocations=temps, ranges=[f"v.{i}{{}}:0-1" for i in range(n)])))

    assert compute.occupancy(spaces(64)).num_rows == 64 * 5
    with pytest.raises(xlamem.UsageError, match="65 memory spaces of 5 steps: choose one"):
        compute.occupancy(spaces(65))
    assert compute.occupancy(spaces(65), space=64).num_rows == 5
    monkeypatch.setattr(in_use, "MAX_CELLS", 65 * 5)
    assert compute.occupancy(spaces(65)).num_rows == 65 * 5


def test_a_packing_that_puts_live_values_in_the_same_place(make: Callable[..., Path]) -> None:
    values = [value(i, f"a.{i}", 8, 8 * i) for i in range(2)]
    p = program(xlamem.read(make(attacks.dump(values, size=16, ranges=["a.0{}:0-2", "a.1{}:1-3"]))))
    arena = _Arena(p, 0)
    arena.check(arena.position)
    with pytest.raises(AssertionError, match="same cells"):
        arena.check(np.zeros_like(arena.position))


@pytest.mark.parametrize("n", [3, 4])
def test_weights_that_do_not_overflow(n: int, make: Callable[..., Path]) -> None:
    """Four shapes of 2^60 bytes each are too many, although the values are small."""
    names = [f"a.{i}" for i in range(n)]
    shape = f"s8[{1 << 30},{1 << 30}]{{1,0}}"
    records = [record(i, name, f"{shape} add(%x, %y)") for i, name in enumerate(names)]
    values = [value(i, name, 64, 64 * i, "s8[64]{0}") for i, name in enumerate(names)]
    ranges = [f"{name}{{}}:1-2" for name in names]
    dump = xlamem.read(make(attacks.dump(values, size=64 * n, records=records, ranges=ranges)))
    if n == 3:
        assert compute.xla_rule(dump) == (1, 64 * n)
    else:
        with pytest.raises(xlamem.DumpError, match="shapes of less than 2\\^62 bytes together"):
            compute.xla_rule(dump)


@pytest.mark.parametrize("numbers", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 1 << 62), (1 << 61, 0, 1 << 61)])
def test_sizes_that_cannot_be_added(numbers: tuple[int, int, int]) -> None:
    """Negative ones, and those that add up to 2^62."""
    assert not can_be_added(*(np.array([n]) for n in numbers))
    largest = np.array([1 << 60]), np.array([1 << 61, 1 << 61]), np.array([1 << 59])
    assert can_be_added(*largest)  # of offsets, only the largest counts
    assert can_be_added(*(a[:0] for a in largest))


# -- when values occupy their bytes ---------------------------------------------------------------


@pytest.mark.parametrize("steps", [None, 1, 4])
@pytest.mark.parametrize("interval", ["closed", "half-open"])
def test_steps_at_which_values_occupy_their_bytes(steps: int | None, interval: str) -> None:
    """Without live ranges, there is one step."""
    n = steps or 1
    ranges = [(-1, -1), *((a, b) for a in range(6) for b in range(-1, 7))] if steps else [(-1, -1)]
    rows = [(a, b, in_temp) for a, b in ranges for in_temp in (False, True)]
    start, end, in_temp = (np.array(column) for column in zip(*rows, strict=True))
    found: Any = SimpleNamespace(steps=steps, ranges=(start, end), in_temp=in_temp)
    wanted: list[tuple[int, int] | None] = []
    for first, last, is_temporary in rows:
        if first < 0:
            wanted.append((0, n - 1) if is_temporary else None)
        elif first > last or first >= n:
            wanted.append(None)
        else:
            wanted.append((first, min(last if interval == "closed" else max(last - 1, first), n - 1)))
    first, last = Layout.occupied_ranges(found, interval)
    occupied = zip(first.tolist(), last.tolist(), strict=True)
    assert [pair if pair[0] >= 0 else None for pair in occupied] == wanted


# -- names of buffers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["", "output shape is |f32[1]|, maybe-live-out:",
             "parameter 0, shape |f32[1]| at ShapeIndex {}, output shape is |f32[1]|, maybe-live-out:"],
)  # fmt: skip
@pytest.mark.parametrize(("size", "is_read"), [(64, False), (65, True)])
def test_the_hlo_text_is_read_if_many_bytes_have_no_name(
    size: int, is_read: bool, kind: str, make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a quarter, in this test, of temporaries, or of these and of what is in outputs."""
    monkeypatch.setattr(module, "MAX_SHARE", 0.25)
    reads: list[Any] = []
    monkeypatch.setattr(module, "hlo_body", reads.append)
    named = 'f32[1] add(%x, %x), metadata={op_name="jit(f)/add"}'
    values, own = [value(0, "a", 256 - size), value(1, "b", size, 0 if kind else 256)], ""
    if kind:
        own = f"allocation 1: size {size}, {kind}\n{values.pop()}"
    records = [record(0, "a", named), record(1, "b")]
    members = attacks.dump([*values, own], size=512, records=records, ranges=["a{}:0-3", "b{}:1-3"])
    module._find(program(xlamem.read(make(members))))
    assert bool(reads) == is_read


@pytest.mark.parametrize("seed", range(20))
def test_values_are_named_after_others(seed: int) -> None:
    """Only after those with an origin, and after users with a name: their argument is none of the value."""
    draw, n = random.Random(seed), 12
    named = [draw.randrange(module.NONE + 1) for _ in range(n)]
    origin = [module.NONE] * n + named
    source, argument = ([draw.choice([-1, -1, 3, 4]) for _ in range(2 * n)] for _ in range(2))
    others = [draw.choice([-1, *range(n, 2 * n)]) for _ in range(n)]
    how = draw.choice([module.OPERAND, module.SLOT, module.USER, module.ARGUMENT])
    columns = {"origin": np.array(origin), "source": np.array(source), "argument": np.array(argument)}
    found: Any = SimpleNamespace(**columns)
    count = 0
    for value_, other in enumerate(others):
        is_user = module.USER in (how, origin[other])
        if other < 0 or origin[other] == module.NONE or (is_user and source[other] < 0):
            continue
        count += 1
        source[value_], argument[value_] = source[other], -1 if is_user else argument[other]
        origin[value_] = module.USER if is_user else module.ARGUMENT if argument[value_] >= 0 else how
    assert module.Origins._name(found, np.arange(n), np.array(others), how) == count
    assert (found.origin.tolist(), found.source.tolist(), found.argument.tolist()) == (origin, source, argument)


@pytest.mark.parametrize("seed", range(10))
def test_the_name_that_all_of_a_group_have(seed: int) -> None:
    draw, n = random.Random(seed), 6
    rows = [(draw.randrange(n), draw.randrange(9)) for _ in range(9)]
    name = [draw.choice([-1, 0, 7]) for _ in range(9)]
    found: Any = SimpleNamespace(_name_keys=lambda values: np.array(name)[values])
    wanted = []
    for group in range(n):
        members = [value_ for owner, value_ in rows if owner == group]
        wanted.append(members[0] if len({name[i] for i in members}) == 1 else -1)
    group, others = (np.array(column) for column in zip(*rows, strict=True))
    assert module.Origins._only_name(found, group, others, n).tolist() == wanted


def test_the_value_that_has_the_padding_of_a_slot() -> None:
    """One of a known size, if there is one, else the one with the lowest id; none if one is live at the peak."""
    p: Any = SimpleNamespace(
        in_temp=np.array([1, 1, 1, 1, 1, 0], bool), value_ids=np.array([0, 1, 3, 2, 5, 4]), size=np.full(6, 8),
        offset=np.array([0, 0, 8, 8, 16, 16]), owner=np.zeros(6, np.int64),
    )  # fmt: skip
    known, at_peak = np.array([0, 1, 1, 1, 1, 1], bool), np.array([0, 0, 0, 0, 1, 0], bool)
    assert slots._first_in_slot(p, known, at_peak).tolist() == [1, 3]


@pytest.mark.parametrize(("representative", "padding"), [(0, [6, 0]), (1, [6, 4]), (-1, [6, 0])])
def test_the_padding_of_the_rest_of_an_allocation(representative: int, padding: list[int]) -> None:
    """That of its representative, unless that is live itself."""
    n = np.zeros(2, np.int64)
    charges = Charges(np.array([0, representative]), n, np.array([8, 4]), n, 1)
    assert slots._charged_padding(charges, np.array([6, 7])).tolist() == padding


def test_values_weigh_as_much_as_the_result_of_their_instruction() -> None:
    """Without the text of the instruction, as much as its value without an index."""
    index = pa.array(["{}", "{0}", "{0}", None, "{1}"])
    values = pa.table({"unpadded_size": [24, 8, 4, 16, 5], "shape_index": index})
    tables = {"values": values, "instructions": pa.table({"shape": pa.array(["f32[7]"])})}
    p: Any = SimpleNamespace(
        tables=tables, instruction_row=np.array([-1, -1, -1, -1, 0]), names=(np.array([0, 0, 1, 2, 3]), None)
    )
    assert xla_peak._instruction_bytes(p).tolist() == [24, 24, 4, 16, 28]


def test_what_is_in_use_without_values(make: Callable[..., Path]) -> None:
    """As in a dump whose values are missing."""
    allocations = "allocation 0: size 64, parameter 0, shape |f32[16]| at ShapeIndex {}:\n"
    members = attacks.dump([], allocations=allocations, ranges=["a{}:0-1"])
    (row,) = xlamem.live_set(xlamem.read(make(members))).to_pylist()
    assert (row["category"], row["bytes"], row["instruction"]) == ("parameter", 64, None)


def test_a_range_that_ends_before_it_starts_weighs_nothing(make: Callable[..., Path]) -> None:
    members = attacks.dump([value(0, "a", 64), value(1, "b", 32, 64)], size=128, ranges=["a{}:1-0", "b{}:2-3"])
    assert xla_peak.xla_rule(xlamem.read(make(members))) == (2, 8)


def test_a_peak_that_xla_prints_for_a_step_beyond_the_last(make: Callable[..., Path]) -> None:
    """It is that of the last step."""
    members = attacks.dump([value(0, "a", 64), value(1, "b", 32, 64)], size=128, ranges=["a{}:0-9", "b{}:0-1"])
    p = program(xlamem.read(make(members)))
    group, peaks = np.zeros(1, np.int64), np.array([96])
    last, beyond = ([(c.cause, c.bytes.tolist()) for c in xla_causes(p, group, peaks, np.array([step]))]
                    for step in ((p.steps or 1) - 1, 99))  # fmt: skip
    assert beyond == last
    assert dict(last)["another step (late removal, weights of whole tuples)"] == [-32]
