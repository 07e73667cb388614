"""The numbers that other tools print for the same program, and why they differ from ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .. import _shapes, _sweep, schema
from ..dump import Dump
from ..errors import DumpError
from ..parse.arrays import ints as column_ints
from ..parse.arrays import row_of
from ..parse.interners import Interner
from .arenas import fragmentation
from .occupancy import Part, covered, in_use, live_at, parts, peak, whole
from .program import MOST, TEMP, THREAD_LOCAL, Ints, Mask, Program, bools, coded, ints, program, table

HOST = 5
SLOT = 1 << 14
"""Bytes to which a TPU compiler rounds an arena in HBM."""


@dataclass(frozen=True)
class MemoryAnalysis:
    """JAX's `compiled.memory_analysis()`, bytes; None where the text cannot say.

    Where releases of jaxlib print different values and the text does not tell them apart, the field is None and
    `by_release` has a (field, releases, bytes) for each value that is known.
    """

    argument_size_in_bytes: int | None
    output_size_in_bytes: int | None
    alias_size_in_bytes: int | None
    temp_size_in_bytes: int | None
    host_argument_size_in_bytes: int | None
    host_output_size_in_bytes: int | None
    host_alias_size_in_bytes: int | None
    host_temp_size_in_bytes: int | None
    total_allocation_bytes: int | None
    indefinite_allocations: int | None
    peak_memory_in_bytes: int | None
    by_release: tuple[tuple[str, str, int], ...] = ()


def memory_analysis(dump: Dump) -> MemoryAnalysis:
    """The fields of JAX's memory analysis, from the allocations.

    argument: parameters; output: maybe-live-out; alias: both; temp: preallocated-temp (not on TPU); host_*: the
    same in color 5. total_allocation_bytes: color 0; indefinite_allocations: the same without temp; both not on
    GPU. peak_memory_in_bytes: on CPU parameters, constants and outputs without any temporary; elsewhere the text
    does not give it.

    On CPU the release decides, and is rarely in the text: jaxlib 0.4.28 and before print zeros; 0.7.0 and 0.7.1
    print another peak; 0.11.2 counts thread-local allocations in both totals, 0.12.0 does not. `explain`
    has what can be inferred for TPU.
    """
    p = program(dump)
    module = dump.modules.to_pylist()[0]
    platform, features = module["platform"], set((module["features"] or "").split(","))
    color, size = ints(p.allocations, "color"), p.allocation_size
    host, local = color == HOST, p.category == THREAD_LOCAL
    parameter, out, temp = (bools(p.allocations, c) for c in ("is_parameter", "is_live_out", "is_temp"))

    def of(mask: np.ndarray) -> int:
        return int(size[mask].sum())

    kinds = {"argument": parameter, "output": out, "alias": parameter & out, "temp": temp}
    parts = {
        f"{prefix}{kind}_size_in_bytes": of(mask & where)
        for prefix, where in (("", ~host), ("host_", host))
        for kind, mask in kinds.items()
    }
    known: dict[str, int | None] = {**parts}
    by_release: list[tuple[str, str, int]] = []
    if platform == "tpu":
        known["temp_size_in_bytes"] = None
        known |= {"total_allocation_bytes": of(color == 0), "indefinite_allocations": of((color == 0) & ~temp)}
    elif platform == "cpu":
        blank = "from_instruction_blank" in features
        if ("from_instruction" in features and not blank) or ("glued" in features and "report_a" not in features):
            for name, sum_of in parts.items():
                if sum_of:
                    known[name] = None
                    by_release.append((name, "jaxlib 0.4.28 and before", 0))
                    if blank:
                        by_release.append((name, "jaxlib 0.4.29 and later", sum_of))
        both = {"total_allocation_bytes": color == 0, "indefinite_allocations": (color == 0) & ~temp}
        for name, counted in both.items():
            known[name] = of(counted & ~local)
            if of(counted & local):
                by_release += [(name, "jaxlib 0.11.2", of(counted)), (name, "jaxlib 0.12.0", of(counted & ~local))]
                known[name] = None
        fixed = of((color == 0) & ~temp & ~local)
        if "peak_c" in features and not _later_than_0_8_1(dump, features):
            known["peak_memory_in_bytes"] = None
            if "tree" in features:
                by_release.append(("peak_memory_in_bytes", "jaxlib 0.7.2 and later", fixed))
        else:
            known["peak_memory_in_bytes"] = fixed
    elif platform != "gpu":
        known["temp_size_in_bytes"] = None
    names = [f.name for f in fields(MemoryAnalysis) if f.name != "by_release"]
    return MemoryAnalysis(**{name: known.get(name) for name in names}, by_release=tuple(by_release))


def _later_than_0_8_1(dump: Dump, features: set[str]) -> bool:
    """Whether jaxlib is later than 0.8.1, by what these dumps have and earlier ones have not."""
    later = {"frames", "report_b", "values_split", "live_split", "page", "uses_none"}
    return bool(features & later) or dump.instructions["stack_frame_id"].null_count < dump.instructions.num_rows


def _instruction_bytes(p: Program) -> Ints:
    """ByteSizeOf the whole shape of each value's defining instruction; -1 where that is not known."""
    own = ints(p.dump.values, "unpadded_size")
    index, texts = coded(p.dump.values["shape_index"])
    element = index >= 0
    shape, shapes = coded(p.dump.instructions["shape"])
    found = np.where(element, -1, own)
    if len(shape):
        data = shapes.cast(pa.string())
        lengths = np.cumsum([len(s.encode()) for s in data.to_pylist()]).astype(np.int64)
        text = "".join(data.to_pylist()).encode()
        sizes = column_ints(_shapes.sizes(text, lengths, Interner().names)[1])
        row = p.instruction_row
        known = row >= 0
        found = np.where(known, sizes[shape[row]], found)
    # Without instruction texts: the value of the same instruction with index {} has the whole shape.
    todo = np.flatnonzero(found < 0)
    if len(todo):
        names, _ = p.names
        top = np.flatnonzero(index == texts.to_pylist().index("{}")) if "{}" in texts.to_pylist() else todo[:0]
        at = row_of(names[top], names[todo])
        found[todo] = np.where(at >= 0, own[top[at]] if len(top) else -1, own[todo])
    return found


def _most(start: Ints, end: Ints, weight: Ints, late: int = 0) -> tuple[int, int]:
    """The first step at which the weights of the closed ranges that hold it are most, and their sum.

    `late`: steps by which a range is removed too late. It takes events, not steps: a text can print any step.
    """
    if not len(start):
        return 0, 0
    end = np.minimum(end, start.max())  # what ends after the last start is never removed before the maximum
    time = np.concatenate([start, end + 1 + late])
    order = np.argsort(time, kind="stable")
    time, level = time[order], np.cumsum(np.concatenate([weight, -weight])[order])
    last = np.flatnonzero(np.append(time[1:] != time[:-1], True))
    at = int(last[level[last].argmax()])
    return (int(time[at]), int(level[at])) if level[at] > 0 else (0, 0)


def xla_rule(dump: Dump) -> tuple[int, int] | None:
    """(step, bytes) of XLA's own "Live ranges at N (peak)", recomputed; None without live ranges.

    XLA sweeps over the schedule with each value weighing its whole instruction's shape, adding what starts at a
    step before it removes what ended at the step before; the first strict maximum is the step. The bytes are
    those of the values that are live (closed) at that step: of the instruction's shape in lists without
    index, of the value's own shape in later ones. Unpadded, all memory spaces together, aliases counted each.
    """
    p = program(dump)
    if p.steps is None:
        return None
    start, end = p.ranges
    rows = np.flatnonzero((start >= 0) & (start <= end))
    weight = np.maximum(_instruction_bytes(p), 0)
    if max(sizes[rows].sum(dtype=np.float64) for sizes in (weight, p.unpadded)) >= MOST:
        raise DumpError(dump.name, "shapes of less than 2^62 bytes together", "used values")
    at, _ = _most(start[rows], end[rows], weight[rows], late=1)
    held = rows[(start[rows] <= at) & (at <= end[rows])]
    features = (dump.modules["features"][0].as_py() or "").split(",")
    return at, int((weight if "peak_a" in features else p.unpadded)[held].sum())


# -- inferred: what another tool prints, by a formula that held on most dumps ----------------------

EQUAL = {
    "xprof": (546, 546),
    "jax.temp_size_in_bytes": (162, 172),
    "jax.peak_memory_in_bytes": (138, 156),
}
"""On how many real dumps the formula gave the tool's own figure, of how many."""


def _not_tuples(p: Program) -> Mask:
    """Which values lie in temp allocations and are no tables of tuples."""
    codes, types = coded(p.dump.values["element_type"])
    found: Mask = (p.value_category == TEMP) & (codes != pc.index(types, "tuple").as_py())
    return found


def _unions(p: Program, plain: Mask, spaces: Ints) -> Ints:
    """Per space: most bytes that live values in temp allocations cover, tables of tuples left out."""
    if not len(spaces):
        return np.empty(0, np.int64)
    found: Ints = covered(p, plain, part=Part(spaces, None, p.steps or 1))[0].max(1)
    return found


def xprof(p: Program) -> tuple[int, int] | None:
    """(number of the space, bytes) of the peak heap in XProf's memory viewer, memory space 0.

    Parameters, constants and outputs whole, and most bytes that live temporaries cover but for tables of tuples:
    these are no events of the heap trace.
    """
    main = np.flatnonzero(np.array([s.color for s in p.spaces]) == 0)[:1]
    if p.steps is None or not len(main):
        return None
    return int(main[0]), int(whole(p)[main[0]] + _unions(p, _not_tuples(p), main)[0])


def inferred(p: Program) -> dict[str, int]:
    """Fields of JAX's memory analysis of a TPU program that the text does not give but mostly allows to infer.

    temp_size_in_bytes: arenas in HBM, rounded up to 16 KiB, and their unassigned bytes a second time; 0 if only
    tables of tuples and scalars of control flow (s32, pred) lie there. peak_memory_in_bytes: parameters, constants
    and outputs of all spaces, and of one space, the largest, the most bytes of live temporaries but for tables of
    tuples: in HBM their union, elsewhere their sum.
    """
    if p.dump.modules["platform"][0].as_py() != "tpu":
        return {}
    hbm = (ints(p.allocations, "color") == 0) & (p.category == TEMP)
    codes, shapes = coded(p.dump.values["shape"])
    control = pc.match_substring_regex(shapes.cast(pa.string()), r"^(\(|(s32|pred)\[\])").to_numpy(zero_copy_only=False)
    real = hbm[p.owner] & ~(control[codes] if len(control) else codes >= 0)
    arenas = fragmentation(p.dump)
    size = p.allocation_size[hbm]
    unassigned = int(ints(arenas, "unassigned")[ints(arenas, "color") == 0].sum())
    found = {"temp_size_in_bytes": int((2 * -(-size // SLOT) * SLOT - size).sum()) + unassigned if real.any() else 0}
    if p.steps is not None:
        plain, (start, end) = _not_tuples(p) & (p.held()[0] >= 0), p.held()
        tops = [0]
        for i, space in enumerate(p.spaces):
            rows = np.flatnonzero(plain & (p.space == i))
            union = space.color == 0
            tops.append(
                int(_unions(p, plain, np.array([i]))[0]) if union else _most(start[rows], end[rows], p.size[rows])[1]
            )
        found["peak_memory_in_bytes"] = int(whole(p).sum()) + max(tops)
    return found


# -- what separates the numbers from our peak ------------------------------------------------------

UNUSED = "temp bytes not in use at the peak"
LOCAL = "thread-local"
POINTERS = "pointers of tuples instead of their elements"
DISAGREE = "the text and its tables disagree"


def group_peaks(p: Program, group: Ints, n: int) -> tuple[Ints, Ints]:
    """(first step, bytes) at which most is in use in all memory spaces of a group together."""
    found = np.zeros((n, p.steps or 1), np.int64)
    for part in parts(p):
        np.add.at(found, group[part.spaces], part.every_step(in_use(p, part)))
    return found.argmax(1), found.max(1)


def space_causes(p: Program, spaces: pa.Table) -> Iterator[tuple[str, str, Ints]]:
    """(number, cause, bytes of each space): what separates the numbers of a space from its peak, in `peaks`' order."""
    top, reserved = ints(spaces, "peak"), ints(spaces, "reserved")
    yield "live", "bytes in use that no live value covers", ints(spaces, "live_peak") - top
    yield "half_open", "ranges that only touch", ints(spaces, "half_open_peak") - top
    yield "fixed", "temporaries at the peak", whole(p) - top
    yield "reserved", UNUSED, reserved - top
    yield "allocated", UNUSED, reserved - top
    yield "allocated", LOCAL, ints(spaces, "allocated") - reserved


def total_causes(spaces: pa.Table, group: Ints, ours: Ints) -> Iterator[tuple[str, Ints]]:
    """(cause, bytes of each group): XLA's total against `ours`, the peak of all spaces together; the rest: DISAGREE."""
    reserved, allocated = np.zeros((2, len(ours)), np.int64)
    np.add.at(reserved, group, ints(spaces, "reserved"))
    np.add.at(allocated, group, ints(spaces, "allocated"))
    yield UNUSED, reserved - ours
    yield LOCAL, allocated - reserved


def xla_causes(p: Program, group: Ints, ours: Ints, at: Ints) -> Iterator[tuple[str, Ints]]:
    """(cause, bytes of each group): XLA's peak at step `at` against `ours`, that of all spaces together.

    The rest is POINTERS in lists without index, where a value weighs its whole instruction's shape, else DISAGREE.
    """
    n, last = len(at), (p.steps or 1) - 1
    when = np.where(at >= 0, np.minimum(at, last), -1)
    rows = live_at(p, when[group])
    which = group[p.space[rows]]

    def each(weights: Ints, of: Ints = which) -> Ints:
        found = np.zeros(n, np.int64)
        np.add.at(found, of, weights)
        return found

    charged = column_ints(_sweep.charge(p.owner[rows].astype(np.int64), p.ids[rows], p.offset[rows], p.extent[rows])[0])
    lives = each(charged)
    in_use = each(np.where(p.value_category[rows] == TEMP, charged, 0)) + each(whole(p), group)
    assigned, plain = each(p.size[rows]), each(p.unpadded[rows])
    (start, end), own = p.ranges, group[p.space] if len(p.space) else p.space
    apart = (p.value_category == THREAD_LOCAL) & (start >= 0) & (start <= when[own]) & (when[own] <= end)
    local = each(p.unpadded[apart], own[apart])
    yield "another step (late removal, weights of whole tuples)", in_use - ours
    yield "parameters, constants and outputs only while live", lives - in_use
    yield "aliases counted each", assigned - lives
    yield "padding left out", plain - assigned
    yield LOCAL, local


class _Rows:
    """Rows of the tables `explain` and `explain_causes` as they are found."""

    def __init__(self) -> None:
        self.numbers: list[dict[str, Any]] = []
        self.causes: list[dict[str, Any]] = []

    def add(
        self,
        name: str,
        size: int | None,
        ours: int | None,
        causes: dict[str, int],
        space: Any = None,
        *,
        rest: str = "",
        **more: Any,
    ) -> None:
        """A number, and what separates it from `ours`: bytes by cause, and the `rest`."""
        where = {"memory_space": space and space.name, "color": space and space.color, "page": space and space.page}
        if rest and size is not None and ours is not None:
            causes = causes | {rest: size - ours - sum(causes.values())}
        causes = {cause: by for cause, by in causes.items() if by} if ours is not None else {}
        definition = schema.DEFINITIONS[name.split(".")[0]]
        if size is None:
            definition += "; not in the text"
        equal, compared = EQUAL[name] if more.get("basis") == "inferred" else (None, None)
        difference = size - ours if size is not None and ours is not None else None
        if difference is not None and abs(difference) >= 1 << 63:  # a printed number near -2^63
            difference, causes = None, {}
        row = {
            "name": name, "bytes": size, "time": None, "definition": definition,
            "difference": difference,
            "causes": ", ".join(f"{cause} {by:+,}" for cause, by in causes.items()) or None,
            "basis": "exact" if size is not None else None, "n_equal": equal, "n_compared": compared, "releases": None,
        }  # fmt: skip
        self.numbers.append(row | where | more)
        self.causes += [{"name": name, "cause": cause, "bytes": by, **where} for cause, by in causes.items()]


def _explained(dump: Dump) -> tuple[pa.Table, pa.Table]:
    found: tuple[pa.Table, pa.Table] | None = dump._cache.get("explain")
    if found is None:
        rows = _rows(dump)
        found = _table("explain", rows.numbers), _table("explain_causes", rows.causes)
        dump._cache.setdefault("explain", found)
    return found


def _table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    plain = {"int": pa.int64(), "text": pa.string(), "name": pa.string()}
    spec = schema.COMPUTED[name].columns
    return table(name, {c.name: pa.array([row[c.name] for row in rows], plain[c.kind]) for c in spec})


def explain(dump: Dump) -> pa.Table:
    """Every published number of this program side by side.

    Returns
    -------
    pyarrow.Table
        Table ``explain``: bytes and steps. ``difference`` is the number minus our peak (of its space, or of
        all spaces together for numbers that add them up); `explain_causes` takes it apart. ``basis`` says
        whether the text gives the number or a formula infers it, and on how many dumps that was right.
    """
    return _explained(dump)[0]


def explain_causes(dump: Dump) -> pa.Table:
    """What separates each number of `explain` from our peak.

    Returns
    -------
    pyarrow.Table
        Table ``explain_causes``: a row per number and cause that is not 0, bytes; those of a number add up to its
        ``difference``.
    """
    return _explained(dump)[1]


def _rows(dump: Dump) -> _Rows:
    p, found = program(dump), _Rows()
    spaces = peak(dump, k=0).spaces
    module = dump.modules.to_pylist()[0]
    timed = p.steps is not None
    _space_rows(found, p, spaces, timed)
    group = np.zeros(len(p.spaces), np.int64)
    main = np.array([schema.in_device_memory(module["platform"], s.color) for s in p.spaces], bool)
    reserved = ints(spaces, "reserved")
    tops, ours = (group[:0], group[:0]), None
    if timed and len(p.spaces):
        tops = group_peaks(p, group, 1)
        step, ours = int(tops[0][0]), int(tops[1][0])
        held = np.concatenate([in_use(p, part)[:, part.column(np.array(step))] for part in parts(p)])
        causes = {UNUSED: int((reserved - held)[main].sum()), "other memory spaces": -int(held[~main].sum())}
        found.add("device_total", int(reserved[main].sum()), ours, causes)
        found.add("peak_together", ours, ours, {}, time=step)
    else:
        found.add("device_total", int(reserved[main].sum()), None, {})
    if module["total_bytes"] is not None:
        causes = _first(total_causes(spaces, group, tops[1])) if ours is not None else {}
        found.add("xla_total", module["total_bytes"], ours, causes, rest=DISAGREE)
    if module["printed_peak_bytes"] is not None and ours is not None:  # the time too, then
        rest = POINTERS if "peak_a" in (module["features"] or "").split(",") else DISAGREE
        printed = module["printed_peak_time"], module["printed_peak_bytes"]
        for name, (time, size) in (("xla_rule", xla_rule(dump) or (0, 0)), ("xla_printed", printed)):
            causes = _first(xla_causes(p, group, tops[1], np.array([time])))
            found.add(name, size, ours, causes, rest=rest, time=time)
    analysis, others = memory_analysis(dump), inferred(p)
    for field in fields(analysis)[:-1]:
        name, size = f"jax.{field.name}", getattr(analysis, field.name)
        if size is None and field.name in others:
            found.add(name, others[field.name], None, {}, basis="inferred")
            continue
        found.add(name, size, None, {})
        for of, releases, by in analysis.by_release:
            if of == field.name:
                found.add(f"{name}, {releases}", by, None, {}, releases=releases)
    return found


def _first(causes: Iterator[tuple[str, Ints]]) -> dict[str, int]:
    return {cause: int(by[0]) for cause, by in causes}


def _space_rows(found: _Rows, p: Program, spaces: pa.Table, timed: bool) -> None:
    """The rows of each memory space."""
    causes: dict[tuple[str, int], dict[str, int]] = {}
    if timed:
        for name, cause, by in space_causes(p, spaces):
            for i, size in enumerate(by.tolist()):
                causes.setdefault((name, i), {})[cause] = size
    heap, fixed = xprof(p), whole(p).tolist()
    for i, s in enumerate(spaces.to_pylist()):
        if not s["allocated"]:
            continue
        space, top = p.spaces[i], s["peak"]
        found.add("reserved", s["reserved"], top, causes.get(("reserved", i), {}), space)
        if timed:
            found.add("peak", top, top, {}, space, time=s["first_step"])
            found.add("live", s["live_peak"], top, causes["live", i], space, time=s["live_step"])
            found.add("half_open", s["half_open_peak"], top, causes["half_open", i], space)
            found.add("fixed", fixed[i], top, causes["fixed", i], space)
        if heap and heap[0] == i:
            found.add("xprof", heap[1], top, {"tables of tuples": heap[1] - top}, space, basis="inferred")
        found.add("allocated", s["allocated"], top, causes.get(("allocated", i), {}), space)
