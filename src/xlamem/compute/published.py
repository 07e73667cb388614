"""The numbers that other tools print for the same program, and why they differ from ours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .. import _shapes
from ..assemble import Pool, row_of
from ..assemble import ints as column_ints
from ..dump import Dump
from .occupancy import live, occupied, peak, sums, whole
from .program import TEMP, THREAD_LOCAL, Ints, Program, coded, ints, program, table

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
    compiler reports something else); host_*: the same in color 5. total_allocation_bytes: color 0 (on CPU all but
    thread-local; unknown on GPU); indefinite_allocations: that without temp; peak_memory_in_bytes: on CPU JAX
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
    if platform == "cpu":
        counted = kind != THREAD_LOCAL
    else:
        counted = color == 0
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
    rows = np.flatnonzero(start >= 0)
    weight = np.maximum(_instruction_bytes(p), 0)
    begins, ends = np.zeros(p.steps + 2, np.int64), np.zeros(p.steps + 2, np.int64)
    np.add.at(begins, start[rows], weight[rows])
    np.add.at(ends, end[rows] + 1, weight[rows])
    # At step t what ended at t - 1 still counts: it is removed only after all starts of t.
    level = np.cumsum(begins) - np.append(0, np.cumsum(ends)[:-1])
    at = int(level.argmax())
    held = rows[(start[rows] <= at) & (at <= end[rows])]
    features = (dump.modules["features"][0].as_py() or "").split(",")
    own = np.maximum(ints(dump.values, "unpadded_size"), 0)
    return at, int((weight if "peak_a" in features else own)[held].sum())


def explain(dump: Dump) -> pa.Table:
    """Every published number of this program side by side, and what separates each from our peak.

    Returns
    -------
    pyarrow.Table
        Table ``explain``: bytes and steps. ``difference`` is the number minus our peak (of its space, or of
        all spaces together for numbers that add them up); ``causes`` names bytes by cause, adding up to it
        exactly where the text tells.
    """
    p = program(dump)
    spaces = peak(dump).spaces.to_pylist()
    timed = p.steps is not None
    out: list[tuple[object, ...]] = []

    def row(name: str, space: str | None, size: int | None, time: int | None, definition: str, base: int | None,
            causes: dict[str, int] | None = None) -> None:  # fmt: skip
        difference = None if size is None or base is None else size - base
        said = None
        if causes is not None:
            said = ", ".join(f"{k} {v:+,}" for k, v in causes.items() if v) or None
        out.append((name, space, size, time, definition, difference, said))

    ours = sum(s["peak"] for s in spaces) if timed else None
    thread_local = sums(p, p.allocation_size, p.category == THREAD_LOCAL)
    temp = sums(p, p.allocation_size, p.category == TEMP)
    for i, s in enumerate(spaces):
        name, base = s["memory_space"], s["peak"]
        if s["allocated"] == 0:
            continue
        if timed:
            row("peak", name, base, s["first_step"], "most bytes in use at any step: the number to trust", base)
            lost = {"bytes reserved that no live value covers": s["live_peak"] - base}
            row("live", name, s["live_peak"], s["live_step"], "most bytes that live values cover, outputs and parameters only while live", base, lost)
            lost = {"ranges that only touch": s["half_open_peak"] - base}
            row("half_open", name, s["half_open_peak"], None, "peak with half-open live ranges", base, lost)
            inside = int(whole(p)[i])
            row("indefinite", name, inside, None, "parameters, constants and outputs whole", base, {"temporaries at the peak": inside - base})
            low, high = s["half_open_peak"], base
            row("xprof_bracket_low", name, low, None, "XProf's heap peak lies between this …", base, {"ranges that only touch": low - base})
            row("xprof_bracket_high", name, high, None, "… and this, but for faults of its own", base, {})
        slack = s["slack"] or 0
        causes = {"temp bytes not in use at the peak": s["reserved"] - base} if timed else None
        row("reserved", name, s["reserved"], None, f"all allocations but thread-local: what the device must hold (slack {slack:,})", base, causes)
        causes = {"thread-local": int(thread_local[i]), "temp bytes not in use at the peak": s["reserved"] - base} if timed else None
        row("allocated", name, s["allocated"], None, "all allocations", base, causes)
    module = dump.modules.to_pylist()[0]
    if module["total_bytes"] is not None:
        total = int(p.allocation_size.sum())
        causes = {
            "thread-local": int(thread_local.sum()),
            "temp bytes not in use at the peak": int((sums(p, p.allocation_size, p.category != THREAD_LOCAL)).sum()) - (ours or 0),
            "text and allocations disagree": module["total_bytes"] - total,
        } if timed else None  # fmt: skip
        row("xla_total", None, module["total_bytes"], None, "XLA's 'Total bytes used': all allocations of all spaces", ours, causes)
    if module["printed_peak_time"] is not None and timed:
        _xla_rows(p, module, ours, row)
    found = memory_analysis(dump)
    for field, size in vars(found).items():
        text = "JAX's memory_analysis()" + ("" if size is not None else "; not in the text")
        row(f"jax.{field}", None, size, None, text, None)
    names = ("name", "memory_space", "bytes", "time", "definition", "difference", "causes")
    columns = dict(zip(names, zip(*out, strict=True), strict=True)) if out else dict.fromkeys(names, ())
    typed = {
        "name": pa.string(), "memory_space": pa.string(), "bytes": pa.int64(), "time": pa.int64(),
        "definition": pa.string(), "difference": pa.int64(), "causes": pa.string(),
    }  # fmt: skip
    return table("explain", {n: pa.array(columns[n], typed[n]) for n in names})


def _xla_rows(p: Program, module: dict[str, object], ours: int | None, row: object) -> None:
    """XLA's printed peak and its rule, the difference to ours taken apart at XLA's own step."""
    found = xla_rule(p.dump)
    assert found is not None
    time, size = found
    printed = int(str(module["printed_peak_bytes"]))
    start, end = p.ranges
    held = (start >= 0) & (start <= time) & (time <= end)
    counted = held & (p.value_category != THREAD_LOCAL)
    own = np.maximum(ints(p.dump.values, "unpadded_size"), 0)
    in_use, lives = int(occupied(p)[:, min(time, (p.steps or 1) - 1)].sum()), int(live(p)[:, min(time, (p.steps or 1) - 1)].sum())
    assigned = int(p.size[counted].sum())
    plain = int(own[counted].sum())
    causes = {
        "another step (late removal, wrong weights)": in_use - (ours or 0),
        "parameters, constants and outputs only while live": lives - in_use,
        "aliases counted each": assigned - lives,
        "padding left out": plain - assigned,
        "thread-local": int(own[held & ~counted].sum()),
    }
    causes["tuples instead of their elements"] = size - (ours or 0) - sum(causes.values())
    definition = "XLA's 'Live ranges at N (peak)': unpadded, all spaces together, aliases counted each"
    write = row
    assert callable(write)
    write("xla_rule", None, size, time, definition + "; recomputed", ours, causes)
    difference = {"the text and the rule disagree": printed - size} if printed != size else {}
    write("xla_printed", None, printed, module["printed_peak_time"], definition + "; as printed", ours, causes | difference)
