"""Rules that a whole dump obeys: what tells that a file was cut, and the cross-checks.

docs/reading.md states them; each function here is one of them. A rule looks only at parts that were read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _liveness, schema
from .assemble import NULL, joined
from .reader import File, Reading, Section


def check(reading: Reading, parts: set[str]) -> None:
    """Run every rule whose parts were read; adds to reading.findings and marks files as cut."""
    for needs, rule in RULES:
        if needs <= parts:
            rule(reading)


def _allocation_section(r: Reading) -> Section | None:
    return next(iter(r.sections("allocations")), None)


def _find(r: Reading, section: Section | None, code: str, wanted: str, offset: int | None = None) -> None:
    file = section.file if section else None
    at = section.head if section and offset is None else offset
    r._find(file, at, section.kind if section else "dump", code, wanted)


def printed_total(r: Reading) -> tuple[int, Section] | None:
    """The total printed above the used values, else in a report of layout A."""
    for kind in ("used values", "report"):
        for section in r.sections(kind):
            if section.total is not None:
                return section.total, section
    return None


def _total(r: Reading) -> None:
    """The allocations' sizes add up to the printed total (XLA counts every color and thread-local)."""
    section, total = _allocation_section(r), printed_total(r)
    if section is None or total is None:
        return
    size = int(r.raw["allocations"].ints("allocations", "size").sum())
    if size != total[0]:
        section.file.cut = True
        _find(r, total[1], "total_differs", f"{size}, the sum of the allocations' sizes")


def _bounds(r: Reading) -> None:
    """No value ends beyond its allocation."""
    raw = r.raw["allocations"]
    index, size = raw.ints("allocations", "allocation"), raw.ints("allocations", "size")
    owner, end = raw.ints("values", "allocation"), raw.ints("values", "offset") + raw.ints("values", "size")
    if not len(index) or not len(owner):
        return
    order = np.argsort(index, kind="stable")
    room = size[order][np.minimum(np.searchsorted(index[order], owner), len(index) - 1)]
    ids = raw.ints("values", "value_id")
    for value, limit in zip(ids[end > room].tolist(), room[end > room].tolist(), strict=True):
        _find(r, _allocation_section(r), "value_outside", f"value {value} to end by byte {limit} of its allocation")


def _ascending(r: Reading) -> None:
    """Value ids ascend within each allocation."""
    raw = r.raw["allocations"]
    ids, owner = raw.ints("values", "value_id"), raw.ints("values", "allocation")
    for row in np.flatnonzero((np.diff(owner) == 0) & (np.diff(ids) <= 0)).tolist():
        _find(r, _allocation_section(r), "ids_descend", f"an id above {int(ids[row])}")


def _records(r: Reading) -> None:
    """The used values are the allocations' values: the same ids, and the same header for each."""
    used, section = r.sections("used values"), _allocation_section(r)
    if not used or section is None:
        return
    a, b = r.raw["allocations"], r.raw["used values"]
    ids, records = a.ints("values", "value_id"), b.ints("records", "value_id")
    for row in np.flatnonzero(np.diff(records) <= 0).tolist():
        at = int(b.ints("records", "offset")[row + 1])
        _find(r, used[-1], "ids_descend", f"an id above {int(records[row])}", at)
    order = np.argsort(ids, kind="stable")
    ours, theirs = ids[order], np.sort(records, kind="stable")
    if len(ours) != len(theirs) or (ours != theirs).any():
        fewer = used[-1] if len(records) < len(ids) else section
        fewer.file.cut = True
        _find(r, fewer, "records_differ", f"the same values: {len(ids)} in the allocations, {len(records)} used values")
        return
    theirs_order = np.argsort(records, kind="stable")
    differs = np.zeros(len(ours), bool)
    for column, kind in (("instruction", "codes"), ("shape_index", "codes"), ("is_phi", "flags"), ("color", "ints")):
        mine, other = getattr(a, kind)("values", column)[order], getattr(b, kind)("records", column)[theirs_order]
        differs |= mine != other
    for row in theirs_order[differs].tolist():
        at = int(b.ints("records", "offset")[row])
        _find(r, used[-1], "records_differ", "the name, index, phi and color that the allocations give", at)


def _live(r: Reading) -> None:
    """Lists of the live ranges: all there, the schedule dense, each range with its value."""
    seen = r.facts["live"]
    section: Section | None = seen["section"]
    if section is None:
        return
    file, last = section.file, section.last
    raw = r.raw["live ranges"]
    end = file.whole
    heads = (
        (_liveness.SCHEDULE, "  InstructionSequence:"),
        (_liveness.RANGES, "  BufferLiveRange:"),
        (_liveness.PEAK, "  Live ranges at N (peak):"),
    )
    missing = [text for bit, text in heads if not seen["heads"] >> bit & 1]
    time = raw.ints("schedule", "time")
    if section.steps is not None and len(time) < section.steps:
        r._cut(file, end, section.kind, f"{section.steps} steps, not {len(time)}")
    elif missing:
        r._cut(file, end, section.kind, missing[0])
    if (time != np.arange(len(time))).any():
        _find(r, section, "schedule_gap", "steps 0, 1, 2, …")
    if missing:
        return
    start, stop = raw.ints("live_ranges", "start"), raw.ints("live_ranges", "end")
    owner = _range_owner(r)
    if owner is not None:
        for row in np.flatnonzero(owner < 0).tolist():
            what = r.tables["live_ranges"].slice(row, 1)
            label = f"{what['instruction'][0].as_py()}{what['shape_index'][0].as_py()}"
            _find(r, section, "live_range_unmatched", f"a value {label} in some allocation")
        sizes = r.facts["unpadded"]
        at = seen["peak_time"]
        holds = (start <= at) & (at <= stop) & (owner >= 0)
        needed = int((sizes[owner[holds]] > 0).sum())
        listed = len(raw.ints("printed_peak", "ordinal"))
        if listed < needed and not seen["heads"] >> _liveness.TREE & 1:
            r._cut(file, end, section.kind, f"{needed} values in the peak list, not {listed}")
    _tree(r, section, last)


def _range_owner(r: Reading) -> Any:
    """Row in `values` of each live range, -1 for none; None if the allocations are missing."""
    if "allocations" not in r.raw or not r.sections("allocations"):
        return None
    raw = r.raw["allocations"]
    ids = raw.ints("values", "value_id")
    matched = r.tables["live_ranges"]["value_id"].fill_null(NULL).to_numpy()
    order = np.argsort(ids, kind="stable")
    shape = raw.codes("values", "shape")
    _, sizes = r.shape_sizes()
    r.facts["unpadded"] = sizes[shape] if len(shape) else np.empty(0, np.int64)
    if not len(ids):
        return np.full(len(matched), -1)
    place = np.minimum(np.searchsorted(ids[order], matched), len(ids) - 1)
    return np.where(matched == NULL, -1, order[place])


def _tree(r: Reading, section: Section, last: bool) -> None:
    """The stack tree: there where its release prints it, to its last node, adding up to its head."""
    seen, raw, file = r.facts["live"], r.raw["live ranges"], section.file
    if not seen["heads"] >> _liveness.TREE & 1:
        if "live_split" in file.features or r.facts.get("tree_demanded"):
            r._cut(file, file.whole, section.kind, "  Stack trace breakdown for peak usage: N bytes")
        return
    total, depth = raw.ints("printed_stack", "total"), raw.ints("printed_stack", "depth")
    remaining = raw.ints("printed_stack", "remaining")
    if (len(remaining) and remaining[-1] != 0) or (not len(remaining) and seen["tree_total"] > 0):
        r._cut(file, file.whole, section.kind, "nodes until no bytes remain")
    elif int(total[depth == 0].sum()) != seen["tree_total"]:
        _find(r, section, "tree_differs", f"{seen['tree_total']}, the total in the tree's head")


def _demanded(r: Reading) -> None:
    """Sections that must be there because of what else is there."""
    for file in r.files:
        kinds = {s.kind for s in file.sections}
        inline = {"allocations", "used values"} <= kinds and "human_total" in file.features
        if inline and "live ranges" not in kinds:
            r._cut(file, file.whole, "live ranges", "HloLiveRange (max N):")
    section = _allocation_section(r)
    if section is None or r.sections("used values"):
        return
    features = section.file.features
    older = features & {"e0_values", "e1_values"}
    layout_a = any("report_a" in f.features for f in r.files)
    if not older and ("address" in features or layout_a):
        r._cut(section.file, section.file.whole, "used values", "Total bytes used: N")


def _report(r: Reading) -> None:
    """The report is whole, and says what the allocations say."""
    section = _allocation_section(r)
    raw = r.raw.get("allocations") if section else None
    for i, (report, end) in enumerate(r.facts["report"]):
        chunk = r.raw["report"].chunks["printed_report"][i]
        file: File = report.file
        if end["layout_a"] and not end["second"]:
            r._cut(file, report.end, report.kind, "Allocations sorted by size with their values:")
        elif end["layout_a"] and end["heads"] != end["announced"]:
            r._cut(file, report.end, report.kind, f"{end['announced']} allocations with their values")
        elif end["open"]:
            r._cut(file, report.end, report.kind, "an empty line")
        if raw is None:
            continue
        index, size, color = (raw.ints("allocations", c) for c in ("allocation", "size", "color"))
        if end["layout_b"]:
            shown = np.unique(chunk["color"])
            if not file.cut and (absent := np.setdiff1d(color, shown)).size:
                r._cut(file, report.end, report.kind, f"Memory Space: … (color={int(absent[0])})")
            totals = {int(c): int(t) for c, t in zip(chunk["color"].tolist(), chunk["total_bytes"].tolist(), strict=True)}
            for c, t in totals.items():
                if int(size[color == c].sum()) != t:
                    _find(r, report, "report_differs", f"{int(size[color == c].sum())} bytes in color {c}")
        else:
            _report_allocations(r, report, chunk, index)


def _report_allocations(r: Reading, report: Section, chunk: Any, index: Any) -> None:
    """Layout A: the text behind each size is that of the allocation, and only single values have no table."""
    from . import _values

    section = _allocation_section(r)
    assert section is not None
    raw = r.raw["allocations"]
    rows = np.flatnonzero(chunk["allocation"] != NULL)
    if not len(rows) or not len(index):
        return
    order = np.argsort(index, kind="stable")
    wanted = chunk["allocation"][rows]
    place = order[np.minimum(np.searchsorted(index[order], wanted), len(index) - 1)]
    known = index[place] == wanted
    fields = joined([c["fields"] for c in raw.chunks["allocations"]], np.int64).reshape(-1, 2)
    mine = chunk["fields"].reshape(-1, 2)[rows]
    copy = np.ascontiguousarray
    equal = np.frombuffer(
        _values.same(
            report.file.text.data, copy(mine[:, 0]), copy(mine[:, 1]),
            section.file.text.data, copy(fields[place, 0]), copy(fields[place, 1]),
        ),
        np.uint8,
    )  # fmt: skip
    count = np.bincount(np.searchsorted(index[order], raw.ints("values", "allocation")), minlength=len(index))
    single = np.empty(len(index), np.int64)
    single[order] = count[: len(index)]
    head = chunk["part"][rows] == 1
    bare = chunk["n_values"][rows] == 1
    wrong = ~known | (equal == 0)
    if "e1_values" not in section.file.features:
        wrong |= head & (bare != (single[place] == 1))
    for number in wanted[wrong].tolist():
        _find(r, report, "report_differs", f"allocation {number} as in the allocations")


RULES = (
    ({"allocations"}, _bounds),
    ({"allocations"}, _ascending),
    ({"allocations", "used values"}, _demanded),
    ({"allocations", "used values"}, _records),
    ({"allocations", "used values", "live ranges"}, _live),
    ({"allocations", "report"}, _report),
    ({"allocations"}, _total),
)
