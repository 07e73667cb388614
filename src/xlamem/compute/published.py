"""The numbers that other tools print for the same program, and why they differ from ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from .. import _shapes, schema
from ..assemble import Pool, row_of
from ..assemble import ints as column_ints
from ..dump import Dump
from ..errors import DumpError
from .occupancy import peak, together, whole
from .program import MOST, THREAD_LOCAL, Ints, Program, coded, ints, program, table

HOST = 5


@dataclass(frozen=True)
class MemoryAnalysis:
    """JAX's `compiled.memory_analysis()` as far as the text gives it: bytes, None where it cannot say."""

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


def memory_analysis(dump: Dump) -> MemoryAnalysis:
    """The fields of JAX's memory analysis, from the allocations.

    argument: parameters; output: maybe-live-out; alias: both; temp: preallocated-temp (not on TPU, where the
    compiler reports something else); host_*: the same in color 5. total_allocation_bytes: color 0 (on CPU
    without thread-local; unknown on GPU); indefinite_allocations: that without temp; peak_memory_in_bytes: on CPU JAX
    gives the indefinite allocations, elsewhere it cannot be had from the text.
    """
    p = program(dump)
    platform = dump.modules["platform"][0].as_py()
    color = ints(p.allocations, "color")
    size, kind = p.allocation_size, p.category
    host = color == HOST

    def of(mask: np.ndarray, where: np.ndarray) -> int:
        return int(size[mask & where].sum())

    parameter = np.asarray(p.allocations["is_parameter"].to_numpy(), bool)
    out = np.asarray(p.allocations["is_live_out"].to_numpy(), bool)
    temp = np.asarray(p.allocations["is_temp"].to_numpy(), bool)
    counted = (color == 0) & (kind != THREAD_LOCAL) if platform == "cpu" else color == 0
    total = int(size[counted].sum()) if platform in ("cpu", "tpu") else None
    indefinite = None if total is None else int(size[counted & ~temp].sum())
    return MemoryAnalysis(
        argument_size_in_bytes=of(parameter, ~host),
        output_size_in_bytes=of(out, ~host),
        alias_size_in_bytes=of(parameter & out, ~host),
        temp_size_in_bytes=of(temp, ~host) if platform in ("cpu", "gpu") else None,
        host_argument_size_in_bytes=of(parameter, host),
        host_output_size_in_bytes=of(out, host),
        host_alias_size_in_bytes=of(parameter & out, host),
        host_temp_size_in_bytes=of(temp, host),
        total_allocation_bytes=total,
        indefinite_allocations=indefinite,
        peak_memory_in_bytes=indefinite if platform == "cpu" else None,
    )


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
        sizes = column_ints(_shapes.sizes(text, lengths, Pool().names)[1])
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
    own = np.maximum(ints(dump.values, "unpadded_size"), 0)
    if max(sizes[rows].sum(dtype=np.float64) for sizes in (weight, own)) >= MOST:
        raise DumpError(dump.name, "shapes of less than 2^62 bytes together", "used values")
    room = int(end.max(initial=0)) + 2
    begins, ends = np.zeros(room, np.int64), np.zeros(room, np.int64)
    np.add.at(begins, start[rows], weight[rows])
    np.add.at(ends, end[rows] + 1, weight[rows])
    # At step t what ended at t - 1 still counts: it is removed only after all starts of t.
    level = np.cumsum(begins) - np.append(0, np.cumsum(ends)[:-1])
    at = int(level.argmax())
    held = rows[(start[rows] <= at) & (at <= end[rows])]
    features = (dump.modules["features"][0].as_py() or "").split(",")
    return at, int((weight if "peak_a" in features else own)[held].sum())


DEFINITIONS = {
    "peak": "most bytes in use at any step, parameters and outputs whole: the number to trust",
    "peak_together": "most bytes in use at any step in all memory spaces together: what numbers below are held against",
    "live": "most bytes that live values cover, parameters and outputs only while live",
    "half_open": "the peak with half-open live ranges",
    "indefinite": "parameters, constants and outputs, whole",
    "xprof_bracket_low": "XProf's heap peak lies between this …",
    "xprof_bracket_high": "… and this, but for faults of its own",
    "reserved": "all allocations but thread-local: what the device must hold",
    "allocated": "all allocations",
    "xla_total": "XLA's 'Total bytes used': all allocations of all spaces",
    "xla_rule": "XLA's 'Live ranges at N (peak)' recomputed: unpadded, all spaces together, aliases counted each",
    "xla_printed": "XLA's 'Live ranges at N (peak)' as printed",
    "jax": "JAX's memory_analysis()",
}
UNUSED = "temp bytes not in use at the peak"


class _Rows:
    """Rows of the table `explain` as they are found."""

    def __init__(self) -> None:
        self.columns: dict[str, list[object]] = {c.name: [] for c in schema.COMPUTED["explain"].columns}

    def add(
        self,
        name: str,
        size: int | None,
        ours: int | None,
        causes: dict[str, int] | None = None,
        *,
        space: str | None = None,
        time: int | None = None,
    ) -> None:
        """A number, and what separates it from `ours`: bytes by cause."""
        said = ", ".join(f"{cause} {by:+,}" for cause, by in (causes or {}).items() if by and ours is not None)
        definition = DEFINITIONS[name.split(".")[0]] + ("" if size is not None else "; not in the text")
        difference = size - ours if size is not None and ours is not None else None
        if difference is not None and abs(difference) >= 1 << 63:  # a printed number near -2^63
            difference = None
        values = (name, space, size, time, definition, difference, said or None)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def table(self) -> pa.Table:
        types = {"int": pa.int64(), "text": pa.string(), "name": pa.string()}
        spec = schema.COMPUTED["explain"].columns
        return table("explain", {c.name: pa.array(self.columns[c.name], types[c.kind]) for c in spec})


def explain(dump: Dump) -> pa.Table:
    """Every published number of this program side by side, and what separates each from our peak.

    Returns
    -------
    pyarrow.Table
        Table ``explain``: bytes and steps. ``difference`` is the number minus our peak (of its space, or of
        all spaces together for numbers that add them up); ``causes`` names bytes by cause, adding up to it.
    """
    p = program(dump)
    spaces = peak(dump).spaces.to_pylist()
    timed = p.steps is not None
    found = _Rows()
    for i, s in enumerate(spaces):
        if s["allocated"]:
            _space_rows(found, p, i, s)
    ours = int(together(p)[0].max()) if timed else None
    if ours is not None:
        found.add("peak_together", ours, ours, time=int(together(p)[0].argmax()))
    module = dump.modules.to_pylist()[0]
    printed = module["total_bytes"]
    if printed is not None:
        reserved, allocated = (sum(s[k] for s in spaces) for k in ("reserved", "allocated"))
        causes = {
            "thread-local": allocated - reserved,
            UNUSED: reserved - (ours or 0),
            "the text and its allocations disagree": printed - allocated,
        }
        found.add("xla_total", printed, ours, causes)
    if module["printed_peak_bytes"] is not None and timed:  # the time too, then
        _xla_rows(found, p, module["printed_peak_time"], module["printed_peak_bytes"], ours or 0)
    for field, size in vars(memory_analysis(dump)).items():
        found.add(f"jax.{field}", size, None)
    return found.table()


def _space_rows(found: _Rows, p: Program, i: int, s: dict[str, Any]) -> None:
    """What is said of one memory space."""
    name, top = s["memory_space"], s["peak"]
    if top is not None:
        uncovered = {"bytes held that no live value covers": s["live_peak"] - top}
        touching = {"ranges that only touch": s["half_open_peak"] - top}
        fixed = int(whole(p)[i])
        found.add("peak", top, top, space=name, time=s["first_step"])
        found.add("live", s["live_peak"], top, uncovered, space=name, time=s["live_step"])
        found.add("half_open", s["half_open_peak"], top, touching, space=name)
        found.add("indefinite", fixed, top, {"temporaries at the peak": fixed - top}, space=name)
        found.add("xprof_bracket_low", s["half_open_peak"], top, touching, space=name)
        found.add("xprof_bracket_high", top, top, space=name)
    unused = {UNUSED: s["reserved"] - (top or 0)}
    found.add("reserved", s["reserved"], top, unused, space=name)
    found.add("allocated", s["allocated"], top, {"thread-local": s["allocated"] - s["reserved"], **unused}, space=name)


def _xla_rows(found: _Rows, p: Program, printed_time: int, printed: int, ours: int) -> None:
    """XLA's printed peak and its rule, the difference to ours taken apart at XLA's own step."""
    rule = xla_rule(p.dump)
    assert rule is not None
    time, size = rule
    start, end = p.ranges
    held = (start >= 0) & (start <= time) & (time <= end)
    counted = held & (p.value_category != THREAD_LOCAL)
    own = np.maximum(ints(p.dump.values, "unpadded_size"), 0)
    step = min(time, (p.steps or 1) - 1)
    in_use, lives = (int(level[step]) for level in together(p))
    assigned, plain = int(p.size[counted].sum()), int(own[counted].sum())
    causes = {
        "another step (late removal, weights of whole tuples)": in_use - ours,
        "parameters, constants and outputs only while live": lives - in_use,
        "aliases counted each": assigned - lives,
        "padding left out": plain - assigned,
        "thread-local": int(own[held & ~counted].sum()),
    }
    causes["pointers of tuples instead of their elements"] = size - ours - sum(causes.values())
    found.add("xla_rule", size, ours, causes, time=time)
    causes["the text and the rule disagree"] = printed - size
    found.add("xla_printed", printed, ours, causes, time=printed_time)
