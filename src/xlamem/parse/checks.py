"""Rules that a whole dump obeys: what tells that a file was cut, and the cross-checks.

docs/reading.md states them; each function here is one of them. A rule looks only at parts that were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .. import _lines, _liveness, _rules, _values
from .arrow import NULL, Bools, Codes, Ints, Rows, distinct_of, flags, ints, row_of
from .findings import MOST
from .reader import ALLOCATION_FLAGS, Reading
from .section import Section

TEMP = 1 << ALLOCATION_FLAGS.index("is_temp")


def check(reading: Reading, parts: set[str]) -> None:
    """Run every rule whose parts were read; adds to reading.findings and marks files as cut."""
    for needs, rule in RULES:
        if needs <= parts:
            rule(reading)


def _allocation_section(r: Reading) -> Section | None:
    return next(iter(r.sections("allocations")), None)


def _line_with(section: Section, text: str, begin: int | None = None) -> int | None:
    """Offset of the first line of a section that starts with text; None if there is none.

    `begin`: the line from which to look; if there is none below it, one above it counts.
    """
    data = section.file.text.data
    prefix = text.encode()
    at = section.begin if begin is None else begin
    if bytes(data[at : at + len(prefix)]) != prefix:
        at = _lines.next_line(data, at, section.end, prefix)
    if at < section.end:
        return at
    return None if begin in (None, section.begin) else _line_with(section, text)


def _note_values(r: Reading, section: Section, code: str, rows: Iterable[tuple[int, str]]) -> None:
    """One diagnostic for each (row of `values`, what was expected), rows ascending, at the line that prints it."""
    at: int | None = None
    for row, wanted in rows:
        if r.findings.full(section.file, section.kind, code):
            r.findings.count(section.file, section.kind, code, 1)
            continue
        at = _value_line(r, section, row, at)
        r.find(section.file, at, section.kind, code, wanted)


def _odd(r: Reading, section: Section) -> bool:
    """Whether a section has lines that were not understood: what is missing may stand in them."""
    return (section.file.ordinal, section.kind, "unknown_line") in r.findings.items


def _value_line(r: Reading, section: Section, row: int, begin: int | None = None) -> int | None:
    """Offset of the line that prints row `row` of `values`, looked for from `begin` on."""
    raw = r.raw["allocations"]
    value = int(raw.ints("values", "value_id")[row])
    features = section.file.features
    if "e1_values" in features:
        return _line_with(section, f"  {value} ", begin)
    if "e0_values" in features:
        name, index = r.label("values", row)
        index = index.translate(str.maketrans("{}", "[]"))
        return _line_with(section, f"  {name}{index}(#{value}", begin)
    return _line_with(section, f" value: <{value} ", begin)


def printed_total(r: Reading) -> int | None:
    """The total printed above the used values, else in a report of layout A."""
    sections = [*r.sections("used values"), *r.sections("report")]
    return next((s.total for s in sections if s.total is not None), None)


def total_of(values: Ints) -> int:
    """The sum, however large the numbers are."""
    small = np.abs(values.astype(np.float64)).sum() < 1 << 62
    return int(values.sum()) if small else sum(values.tolist())


OTHER_COMPILE = "these files are of different compiles"


def _printed(r: Reading) -> Section | None:
    """The used values with the total that XLA prints above them; of several, one that the allocations contradict."""
    printed = [s for s in r.sections("used values") if s.total is not None]
    if len(printed) > 1:
        printed.sort(key=lambda s: s.total == _sum(r))
    return next(iter(printed), None)


def _sum(r: Reading) -> int:
    """All sizes together."""
    return total_of(r.raw["allocations"].ints("allocations", "size"))


def _agrees(r: Reading) -> bool | None:
    """Whether the allocations add up to the total printed with the used values; None if there is none."""
    printed = _printed(r)
    return None if printed is None else _sum(r) == printed.total


def _total(r: Reading) -> None:
    """The allocations' sizes add up to the printed total (XLA counts every color and thread-local).

    If they do not, the file of the allocations is truncated where it ends early and its values are among the used
    ones; if the report bears the allocations out, or nothing is missing, the files are of different compiles.
    """
    section, printed = _allocation_section(r), _printed(r)
    if section is None or printed is None or _agrees(r):
        return
    size = _sum(r)
    wanted, at_fault = f"{printed.total} bytes as printed, not {size}", section
    if section.file is not printed.file and not _odd(r, section):
        if printed.total is not None and size < printed.total and r.facts.get("used values have more", True):
            section.file.cut = True
        else:
            at_fault = printed if r.facts.get("report agrees") else section
            wanted += f": {OTHER_COMPILE}"
    r.find(at_fault.file, None, at_fault.kind, "total_differs", wanted, "error")


def _bounds(r: Reading) -> None:
    """No value ends beyond its allocation."""
    raw = r.raw["allocations"]
    index, size = raw.ints("allocations", "allocation"), raw.ints("allocations", "size")
    section = _allocation_section(r)
    if section is None or not len(index):
        return
    rows = Rows(index)
    def beyond() -> Iterator[tuple[int, str]]:
        for first, owner, offset, bytes_ in r.placed():
            place = rows(owner)
            for row in ints(_rules.beyond(size, place, offset, bytes_)).tolist():
                end = int(offset[row]) + int(bytes_[row])
                yield first + row, f"a value that ends by byte {int(size[place[row]])} of its allocation, not {end}"

    _note_values(r, section, "value_outside", beyond())


def _ascending(r: Reading) -> None:
    """Value ids ascend within each allocation."""
    section = _allocation_section(r)
    if section is None:
        return

    def descending() -> Iterator[tuple[int, str]]:
        before = np.empty(0, np.int64), np.empty(0, np.int64)
        for first, *columns in r.raw["allocations"].parts("values", "value_id", "allocation"):
            behind = first - len(before[0])
            ids, owner = (np.concatenate(c) if behind < first else c[1] for c in zip(before, columns, strict=True))
            for row in np.flatnonzero((owner[1:] == owner[:-1]) & (ids[1:] <= ids[:-1])).tolist():
                yield behind + row + 1, f"an id above {int(ids[row])}"
            before = ids[-1:], owner[-1:]

    _note_values(r, section, "ids_descend", descending())


def _records(r: Reading) -> None:
    """The used values are the allocations' values: the same ids, and the same header for each."""
    used, section = [s for s in r.sections("used values") if s.begin > s.head], _allocation_section(r)
    if not used or section is None:
        return
    if r.records_agree():
        r.facts["used values have more"] = False
        return
    a, b = r.raw["allocations"], r.raw["used values"]
    rows = Rows(a.packed("values", "value_id"))
    parts = [np.empty(0, np.int32)]
    before = np.empty(0, np.int64)
    for _, records, offset in b.parts("records", "value_id", "offset"):
        both = np.concatenate([before, records])
        for row in np.flatnonzero(both[1:] <= both[:-1]).tolist():
            at = int(offset[row + 1 - len(before)])
            r.find(used[-1].file, at, used[-1].kind, "ids_descend", f"an id above {int(both[row])}")
        before = both[-1:]
        parts.append(rows(records).astype(np.int32))
    place = np.concatenate(parts)
    del parts
    seen = np.zeros(rows.n + 1, bool)
    seen[place] = True
    more, fewer = bool((place < 0).any()), not all(seen[rows(ids)].all() for _, ids in a.parts("values", "value_id"))
    n = rows.n
    del rows, seen
    both = np.flatnonzero(place >= 0)
    differs = _other_headers(r, place, both)
    r.facts["used values have more"] = more and not fewer and not differs.any()
    if more or fewer:
        wanted = f"the same values in both: {n} in the allocations, {len(place)} used values"
        at_fault = section if more and not (fewer and _agrees(r)) else used[-1]
        if not _odd(r, section) and not _odd(r, used[-1]):
            if (more and fewer) or 2 * differs.sum() > len(both):
                wanted += f": {OTHER_COMPILE}"
            elif section.file is not used[-1].file:
                at_fault.file.cut = True
        r.find(at_fault.file, None, at_fault.kind, "records_differ", wanted, "error")
        return
    for at in b.ints("records", "offset")[both[differs]].tolist():
        wanted = "the name, index, phi and color that the allocations give"
        r.find(used[-1].file, at, used[-1].kind, "records_differ", wanted)


def _other_headers(r: Reading, place: Codes, both: Ints) -> npt.NDArray[np.bool_]:
    """For each of these used values whether its name, index, phi or color is not that of its row of `values`."""
    a, b = r.raw["allocations"], r.raw["used values"]
    known = np.where(place >= 0, place, 0).astype(np.int32)
    if not len(both):
        return np.zeros(0, bool)
    differs = ~r.same_names(known)
    differs |= a.flags("values", "is_phi")[known] != b.flags("records", "is_phi")
    color = a.packed("values", "color")
    for first, mine in b.parts("records", "color"):
        part = slice(first, first + len(mine))
        differs[part] |= color[known[part]] != mine
    found: npt.NDArray[np.bool_] = differs[both]
    return found


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
    steps, gap = _steps(r)
    odd = _odd(r, section)
    if missing and not odd:
        fewer = section.steps is not None and steps < section.steps
        r.cut(file, end, section.kind, f"{section.steps} steps, not {steps}" if fewer else missing[0])
    elif not missing and section.steps not in (None, steps):
        wanted = f"{steps} steps, as many as are listed, not {section.steps}"
        r.find(file, section.head, section.kind, "steps_differ", wanted)
    if gap is not None:
        r.find(file, _line_with(section, f"    {gap}:"), section.kind, "schedule_gap", "steps 0, 1, 2, …")
    if missing:
        return
    _ranges(r, section, max(steps, section.steps or 0))
    owner = r.range_owner()
    if owner is not None:
        at, full, needed = seen["peak_time"], r.has_bytes(), 0
        ranged = np.zeros(len(full), np.uint8)
        for first, start, stop in raw.parts("live_ranges", "start", "end"):
            mine = owner[first : first + len(start)]
            needed += _rules.live_at(at, mine, start, stop, full, ranged)
        at_line: int | None = None
        lost = np.flatnonzero(owner < 0)
        for row in lost[:MOST].tolist():
            label = "".join(r.label("live_ranges", row))
            at_line = _line_with(section, f"    {label}:", at_line)
            r.find(file, at_line, section.kind, "live_range_unmatched", f"a value {label} in some allocation")
        if len(lost) > MOST:
            r.findings.count(file, section.kind, "live_range_unmatched", len(lost) - MOST)
        _every_temp_is_live_sometime(r, ranged)
        listed = len(raw.ints("printed_peak", "ordinal"))
        if listed < needed and not seen["heads"] >> _liveness.TREE & 1 and not odd:
            r.cut(file, end, section.kind, f"{needed} values in the peak list, not {listed}")
    _tree(r, section, last)


def _ranges(r: Reading, section: Section, length: int) -> None:
    """No live range starts before the schedule, ends behind it, or ends before it starts."""
    rows = [
        first + np.flatnonzero((start < 0) | (start > end) | (end > length))
        for first, start, end in r.raw["live ranges"].parts("live_ranges", "start", "end")
    ]
    outside = np.concatenate([np.empty(0, np.int64), *rows])
    if len(outside):
        wanted = f"live ranges within steps 0 to {length}; {len(outside)} are not"
        r.find(section.file, None, section.kind, "range_outside", wanted)


def _steps(r: Reading) -> tuple[int, int | None]:
    """How many steps the schedule has, and the first one that is not in its place."""
    n, gap = 0, None
    for first, time in r.raw["live ranges"].parts("schedule", "time"):
        n += len(time)
        if gap is None and (wrong := _rules.first_gap(time, first)) >= 0:
            gap = int(time[wrong])
    return n, gap


def _every_temp_is_live_sometime(r: Reading, ranged: Bools) -> None:
    """Each value of a temp allocation has a live range (others may lack one: constants, thread-local)."""
    section = _allocation_section(r)
    assert section is not None
    raw = r.raw["allocations"]
    temp: Bools = raw.flags("allocations", "flags") & np.uint8(TEMP)
    row = Rows(raw.ints("allocations", "allocation"))

    def missing() -> Iterator[tuple[int, str]]:
        for first, owner in raw.parts("values", "allocation"):
            for value in ints(_rules.unseen(temp, row(owner), ranged[first : first + len(owner)])).tolist():
                yield first + value, "a live range"

    _note_values(r, section, "live_range_missing", missing())


def _tree(r: Reading, section: Section, last: bool) -> None:
    """The stack tree: there where its release prints it, to its last node, adding up to its head."""
    seen, raw, file = r.facts["live"], r.raw["live ranges"], section.file
    if _odd(r, section):
        return
    if not seen["heads"] >> _liveness.TREE & 1:
        if "live_split" in file.features or r.facts.get("tree_demanded"):
            r.cut(file, file.whole, section.kind, "  Stack trace breakdown for peak usage: N bytes")
        return
    total, depth = raw.ints("printed_stack", "total"), raw.ints("printed_stack", "depth")
    remaining = raw.ints("printed_stack", "remaining")
    if (len(remaining) and remaining[-1] != 0) or (not len(remaining) and seen["tree_total"] > 0):
        r.cut(file, file.whole, section.kind, "nodes until no bytes remain")
    elif not file.cut and total_of(total[depth == 0]) != seen["tree_total"]:
        at = _line_with(section, "  Stack trace breakdown for peak usage: ")
        r.find(file, at, section.kind, "tree_differs", f"roots of {seen['tree_total']} bytes together")


def _demanded(r: Reading) -> None:
    """Sections that must be there because of what else is there."""
    for file in r.files:
        kinds = {s.kind for s in file.sections}
        inline = {"allocations", "used values"} <= kinds and "human_total" in file.features
        if inline and "live ranges" not in kinds:
            r.cut(file, file.whole, "live ranges", "HloLiveRange (max N):")
        blank = (file.ordinal, "file", "unknown_line") not in r.findings.items
        if not kinds and file.role != "hlo" and file.size and blank:
            r.cut(file, file.whole, "file", "the head of a section")
    section = _allocation_section(r)
    if section is None:
        return
    if not len(r.raw["allocations"].ints("allocations", "allocation")) and not _odd(r, section):
        r.cut(section.file, section.end, section.kind, "an allocation")
    if r.sections("used values"):
        return
    features = section.file.features
    older = features & {"e0_values", "e1_values"}
    layout_a = any("report_a" in f.features for f in r.files)
    if not older and ("address" in features or layout_a):
        r.cut(section.file, section.file.whole, "used values", "Total bytes used: N")


def _report(r: Reading) -> None:
    """The report is whole, and says what the allocations say."""
    section = _allocation_section(r)
    for i, (report, end) in enumerate(r.facts["report"]):
        chunk, odd = r.raw["report"].chunks["printed_report"][i], _odd(r, report)
        if odd:
            pass  # what is missing may stand in a line that was not understood
        elif end["layout_a"] and not end["second"]:
            r.cut(report.file, report.end, report.kind, "Allocations sorted by size with their values:")
        elif end["layout_a"] and end["heads"] != end["announced"]:
            r.cut(report.file, report.end, report.kind, f"{end['announced']} allocations with their values")
        elif end["open"]:
            r.cut(report.file, report.end, report.kind, "an empty line")
        if section is None:
            continue
        color = r.raw["allocations"].ints("allocations", "color")
        size = r.raw["allocations"].ints("allocations", "size")
        totals: list[tuple[int | None, int, int | None]] = []  # printed, ours, where
        if end["layout_b"]:
            shown = distinct_of(chunk["color"])
            if (absent := sorted({*distinct_of(color)} - {*shown})) and not odd:
                r.cut(report.file, report.end, report.kind, f"Memory Space: … (color={absent[0]})")
            for c in shown:
                at = int(np.argmax(chunk["color"] == c))
                where = _total_line(report, f"Memory Space: {_label(r, chunk, at)} (color={c})")
                totals.append((int(chunk["total_bytes"][at]), total_of(size[color == c]), where))
        else:
            totals.append((report.total, total_of(size), report.head))
        _report_totals(r, section, report, totals)
        if not end["layout_b"]:
            _report_allocations(r, section, report, i)


def _total_line(report: Section, head: str) -> int | None:
    at = _line_with(report, head)
    return None if at is None else _lines.next_line(report.file.text.data, at, report.end, b"Total")


def _label(r: Reading, chunk: Any, row: int) -> str:
    data, ends = r.pools["label"].export()
    code = int(chunk["label"][row])
    if code < 0:
        return ""
    return bytes(memoryview(data)[int(ends[code - 1]) if code else 0 : int(ends[code])]).decode()


def _report_totals(
    r: Reading, section: Section, report: Section, totals: list[tuple[int | None, int, int | None]]
) -> None:
    """Totals as printed against the allocations' sizes.

    Allocations that add up to the total printed with the used values are right; others are truncated if the report
    is whole and they lack bytes of some space and exceed those of none.
    """
    known = [(printed, ours, where) for printed, ours, where in totals if printed not in (None, NULL)]
    wrong = [(printed, ours, where) for printed, ours, where in known if printed != ours]
    r.facts["report agrees"] = bool(known) and not wrong and not report.file.cut
    if not wrong:
        return
    own, fewer = _agrees(r), all(printed is not None and ours < printed for printed, ours, _ in wrong)
    said = "" if own is False else f": {OTHER_COMPILE}"
    if own is None and fewer and not report.file.cut and not _odd(r, section) and not _odd(r, report):
        section.file.cut, said = True, ""
    for _, ours, where in wrong:
        wanted = f"{ours} bytes, the sum of the allocations' sizes{said}"
        r.find(report.file, where, report.kind, "report_differs", wanted, "error")


def wrong_rows(r: Reading, report: Section, chunk: Any, size: pa.Array) -> list[tuple[int, bool]]:
    """Layout A: rows whose size, or the text behind it, is not the allocation's: a place, and whether that is known."""
    import pyarrow.compute as pc  # 30 ms to import, for a few reports only

    raw = r.raw["allocations"]
    text, section = report.file.text.data, _allocation_section(r)
    index, sizes = raw.ints("allocations", "allocation"), raw.ints("allocations", "size")
    rows = np.flatnonzero((chunk["allocation"] != NULL) & (chunk["part"] <= 1))
    if section is None or not len(rows) or not len(index):
        return []
    place = row_of(index, chunk["allocation"][rows])
    unknown = place < 0
    fields = raw.ints("allocations", "fields").reshape(-1, 2)
    mine = chunk["fields"].reshape(-1, 2)[rows]
    spans = [np.ascontiguousarray(a[:, i]) for a in (mine, fields[place]) for i in (0, 1)]
    theirs = section.file.text.data
    wrong = flags(_values.same(text, spans[0], spans[1], theirs, spans[2], spans[3])) == 0
    distinct, code = np.unique(sizes[place], return_inverse=True)
    ours = pa.array([human(int(n)) for n in distinct]).take(pa.array(code))
    wrong |= ~pc.equal(size.take(pa.array(rows)), ours).fill_null(False).to_numpy(zero_copy_only=False)
    wrong |= unknown
    return list(zip(spans[0][wrong].tolist(), (~unknown[wrong]).tolist(), strict=True))


def _report_allocations(r: Reading, section: Section, report: Section, i: int) -> None:
    """Layout A: its rows are the allocations', and only single values have no table."""
    raw, chunks = r.raw["allocations"], r.raw["report"].chunks["printed_report"]
    chunk = chunks[i]
    index = raw.ints("allocations", "allocation")
    if not len(index) or not ((chunk["allocation"] != NULL) & (chunk["part"] <= 1)).any():
        return
    text = report.file.text.data
    if "report_rows" in r.facts:
        found = r.facts["report_rows"][i]
    else:
        size = r.table("printed_report")["size"].slice(sum(len(c["part"]) for c in chunks[:i]), len(chunk["part"]))
        found = wrong_rows(r, report, chunk, size.combine_chunks())
    for at, known in found[:MOST]:
        if not known and section.file.cut:
            continue  # what a cut of the allocations took away contradicts nothing
        line = bytes(text[max(0, at - (1 << 20)) : at]).rfind(b"\n") + 1
        where = max(0, at - (1 << 20)) + line
        r.find(report.file, where, report.kind, "report_differs", "this allocation as in the allocations")
    # The last head: a table that should follow it and does not was cut off.
    heads = np.flatnonzero(chunk["part"] == 1)
    if "e1_values" not in section.file.features and len(heads) and chunk["n_values"][heads[-1]] == 1:
        last = int(chunk["allocation"][heads[-1]])
        if (raw.ints("values", "allocation") == last).sum() != 1 and last in index:
            r.cut(report.file, report.end, report.kind, f"a table of the values of allocation {last}")


def human(n: int) -> str:
    """A size as XLA prints it for people (FORMAT 2.4): integer division down to below 1024 * 1024."""
    sign, n = ("-", -n) if n < 0 else ("", n)
    if n < 1024:
        return f"{sign}{n}B"
    units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while n >= 1024 * 1024 and len(units) > 1:
        n //= 1024
        units.pop(0)
    return f"{sign}{n / 1024:.{1 if units[0] == 'KiB' else 2}f}{units[0]}"


RULES = (
    ({"allocations"}, _bounds),
    ({"allocations"}, _ascending),
    ({"allocations", "used values"}, _demanded),
    ({"allocations", "used values"}, _records),
    ({"allocations", "used values", "live ranges"}, _live),
    ({"allocations", "report"}, _report),
    ({"allocations"}, _total),
)
