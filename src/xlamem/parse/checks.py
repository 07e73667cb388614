"""Rules that an entire dump must satisfy: detection of truncated files, and cross-checks between sections.

docs/reading.md lists the rules; each has one function here. A rule is skipped unless all of its sections were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _liveness, _rules
from .arrays import Bools, Codes, Ints, Rows, ints
from .batch import File, Section
from .diagnostics import MAX_ROWS
from .reader import Reader
from .report_checks import OTHER_COMPILE, check_reports, find_line, total_of
from .sections import ASSIGNMENT, LIVE, REPORT, SECTIONS, USED
from .sections.assignment import FLAGS

IS_TEMP = 1 << FLAGS.index("is_temp")


@dataclass(eq=False, repr=False)
class _Evidence:
    """Results of earlier rules that later rules use."""

    used_values_have_more: bool = True
    """Whether the used values include all values of the allocations; they may include more."""
    report_agrees: bool = False
    """Whether the reports are complete and their sizes match those of the allocations."""


def check(reader: Reader) -> None:
    """Run every rule whose sections were read: add diagnostics and mark files as truncated."""
    evidence = _Evidence()
    kinds = {kind for kind in SECTIONS if reader.was_read(kind)}
    for needed, rule in _RULES:
        if needed <= kinds:
            rule(reader, evidence)


def printed_total(reader: Reader) -> int | None:
    """Return the total printed above the used values, or else the one in a report of layout A."""
    sections = [*reader.sections(USED), *reader.sections(REPORT)]
    return next((s.total for s in sections if s.total is not None), None)


# -- allocations ---------------------------------------------------------------------------------


def _values_inside(reader: Reader, _: _Evidence) -> None:
    """Check that no value ends beyond its allocation."""
    store, section = reader.stores[ASSIGNMENT], reader.assignment
    index, size = store.ints("allocations", "allocation"), store.ints("allocations", "size")
    if section is None or not len(index):
        return
    rows = Rows(index)

    def outside() -> Iterator[tuple[int, str]]:
        for first, owner, offset, extent in reader.matcher.overflowing():
            allocation = rows(owner)
            for row in ints(_rules.beyond(size, allocation, offset, extent)).tolist():
                limit, end = int(size[allocation[row]]), int(offset[row]) + int(extent[row])
                yield first + row, f"a value that ends by byte {limit} of its allocation, not {end}"

    _add_at_values(reader, section, "value_outside", outside())


def _ids_ascend(reader: Reader, _: _Evidence) -> None:
    """Check that value ids ascend within each allocation."""
    section = reader.assignment
    if section is None:
        return

    def descending() -> Iterator[tuple[int, str]]:
        last = np.empty(0, np.int64), np.empty(0, np.int64)
        for first, *columns in reader.stores[ASSIGNMENT].batches("values", "value_id", "allocation"):
            start = first - len(last[0])
            ids, owner = (np.concatenate(c) if start < first else c[1] for c in zip(last, columns, strict=True))
            falls = ids[1:] <= ids[:-1]
            for row in np.flatnonzero(falls & (owner[1:] == owner[:-1])).tolist() if falls.any() else ():
                yield start + row + 1, f"an id above {int(ids[row])}"
            last = ids[-1:], owner[-1:]

    _add_at_values(reader, section, "ids_descend", descending())


def _total_of_sizes(reader: Reader) -> int:
    return total_of(reader.stores[ASSIGNMENT].ints("allocations", "size"))


def _section_with_total(reader: Reader) -> Section | None:
    """Return the used values below a printed total; if there are several, preferably a total that does not match."""
    printed = [s for s in reader.sections(USED) if s.total is not None]
    if len(printed) > 1:
        printed.sort(key=lambda s: s.total == _total_of_sizes(reader))
    return next(iter(printed), None)


def _adds_up(reader: Reader) -> bool | None:
    """Return whether the allocations add up to the total printed above the used values, or None if there is none."""
    printed = _section_with_total(reader)
    return None if printed is None else _total_of_sizes(reader) == printed.total


def _printed_total_agrees(reader: Reader, evidence: _Evidence) -> None:
    """Check that the allocations' sizes add up to the printed total, which includes all colors and thread-local ones.

    If the sizes are too small and all values are used values, the file of the allocations is truncated. Otherwise
    the files come from different compilations.
    """
    section, printed = reader.assignment, _section_with_total(reader)
    if section is None or printed is None or _adds_up(reader):
        return
    size = _total_of_sizes(reader)
    wanted, at_fault = f"{printed.total} bytes as printed, not {size}", section
    if section.file is not printed.file and not reader.diagnostics.has_unknown_lines(section.file, section.kind):
        if printed.total is not None and size < printed.total and evidence.used_values_have_more:
            section.file.truncated = True
        else:
            at_fault = printed if evidence.report_agrees else section
            wanted += f": {OTHER_COMPILE}"
    reader.diagnostics.add(at_fault.file, None, at_fault.kind, "total_differs", wanted, "error")


def _add_at_values(reader: Reader, section: Section, code: str, rows: Iterable[tuple[int, str]]) -> None:
    """Add a diagnostic for each pair of a row of `values` and the expected text. Rows must be ascending."""
    line, last, ids = None, -1, np.empty(0, np.int64)
    for row, wanted in rows:
        if reader.diagnostics.is_full(section.file, section.kind, code):
            reader.diagnostics.count(section.file, section.kind, code, 1)
            continue
        if not len(ids):
            ids = reader.stores[ASSIGNMENT].ints("values", "value_id")
        repeats = int(np.count_nonzero(ids[last + 1 : row] == ids[row]))
        line, last = find_line(section, _value_head(reader, section, row, int(ids[row])), line, repeats), row
        reader.diagnostics.add(section.file, line, section.kind, code, wanted)


def _value_head(reader: Reader, section: Section, row: int, value: int) -> str:
    """Return the text with which the line of a row of `values` begins."""
    features = section.file.features
    if "e1_values" in features:
        return f"  {value} "
    if "e0_values" in features:
        name, index = reader.matcher.label("values", row)
        index = index.translate(str.maketrans("{}", "[]"))
        return f"  {name}{index}(#{value}"
    return f" value: <{value} "


# -- used values ---------------------------------------------------------------------------------


def _used_values_agree(reader: Reader, evidence: _Evidence) -> None:
    """Check that the used values and the values in the allocations have the same ids and the same headers."""
    used, section = [s for s in reader.sections(USED) if s.begin > s.head], reader.assignment
    if not used or section is None:
        return
    if reader.matcher.records_agree():
        evidence.used_values_have_more = False
        return
    rows, more, fewer = _compared_ids(reader, used[-1])
    both = np.flatnonzero(rows >= 0)
    differs = _header_differs(reader, rows, both)
    evidence.used_values_have_more = more and not fewer and not differs.any()
    if more or fewer:
        other_compile = (more and fewer) or 2 * differs.sum() > len(both)
        _add_ids_differ(reader, section, used[-1], len(rows), (more, fewer), other_compile)
        return
    for offset in reader.stores[USED].ints("records", "offset")[both[differs]].tolist():
        wanted = "the name, index, phi and color that the allocations give"
        reader.diagnostics.add(used[-1].file, offset, used[-1].kind, "records_differ", wanted)


def _compared_ids(reader: Reader, used: Section) -> tuple[Codes, bool, bool]:
    """Return the row in `values` of each used value, whether any has no row, and whether any value is not used."""
    values, records = reader.stores[ASSIGNMENT], reader.stores[USED]
    row_of_id = Rows(values.packed("values", "value_id"))
    rows, last = [np.empty(0, np.int32)], np.empty(0, np.int64)
    for _, ids, offset in records.batches("records", "value_id", "offset"):
        both = np.concatenate([last, ids])
        for i in np.flatnonzero(both[1:] <= both[:-1]).tolist():
            line = int(offset[i + 1 - len(last)])
            reader.diagnostics.add(used.file, line, used.kind, "ids_descend", f"an id above {int(both[i])}")
        last = both[-1:]
        rows.append(row_of_id(ids).astype(np.int32))
    value_rows = np.concatenate(rows)
    del rows
    is_used = np.zeros(row_of_id.n + 1, bool)
    is_used[value_rows] = True
    fewer = not all(is_used[row_of_id(ids)].all() for _, ids in values.batches("values", "value_id"))
    return value_rows, bool((value_rows < 0).any()), fewer


def _header_differs(reader: Reader, rows: Codes, both: Ints) -> npt.NDArray[np.bool_]:
    """Return, for each used value in `both`, whether its name, index, phi or color differs from its value's."""
    values, records = reader.stores[ASSIGNMENT], reader.stores[USED]
    row = np.where(rows >= 0, rows, 0).astype(np.int32)
    if not len(both):
        return np.zeros(0, bool)
    differs = ~reader.matcher.same_names(row)
    differs |= values.flags("values", "is_phi")[row] != records.flags("records", "is_phi")
    color = values.packed("values", "color")
    for first, colors in records.batches("records", "color"):
        span = slice(first, first + len(colors))
        differs[span] |= color[row[span]] != colors
    differing: npt.NDArray[np.bool_] = differs[both]
    return differing


def _add_ids_differ(
    reader: Reader, section: Section, used: Section, n_used: int, more_fewer: tuple[bool, bool], other_compile: bool
) -> None:
    """Report that allocations and used values have different ids: one is truncated or from another compilation."""
    more, fewer = more_fewer
    n = sum(len(ids) for _, ids in reader.stores[ASSIGNMENT].batches("values", "value_id"))
    wanted = f"the same values in both: {n} in the allocations, {n_used} used values"
    at_fault = section if more and not (fewer and _adds_up(reader)) else used
    if not any(reader.diagnostics.has_unknown_lines(s.file, s.kind) for s in (section, used)):
        if other_compile:
            wanted += f": {OTHER_COMPILE}"
        elif section.file is not used.file:
            at_fault.file.truncated = True
    reader.diagnostics.add(at_fault.file, None, at_fault.kind, "records_differ", wanted, "error")


# -- live ranges ---------------------------------------------------------------------------------


def _live_ranges_agree(reader: Reader, _: _Evidence) -> None:
    """Check that all lists are present, that the schedule is dense, and that each live range has a value."""
    live, section = reader.live, reader.live.section
    if section is None:
        return
    steps = _check_schedule(reader, section)
    if steps is None:
        return
    _check_ranges_inside(reader, section, max(steps, section.steps or 0))
    rows = reader.matcher.range_rows()
    if rows is not None:
        needed = _check_values_of_ranges(reader, section, rows)
        listed = len(reader.stores[LIVE].ints("printed_peak", "ordinal"))
        tree = live.heads >> _liveness.TREE & 1
        if listed < needed and not tree and not reader.diagnostics.has_unknown_lines(section.file, section.kind):
            wanted = f"{needed} values in the peak list, not {listed}"
            reader.diagnostics.truncated(section.file, section.file.end, section.kind, wanted)
    _check_tree(reader, section)


def _check_schedule(reader: Reader, section: Section) -> int | None:
    """Return the length of the schedule; None if a list is missing."""
    heads = (
        (_liveness.SCHEDULE, "  InstructionSequence:"),
        (_liveness.RANGES, "  BufferLiveRange:"),
        (_liveness.PEAK, "  Live ranges at N (peak):"),
    )[: 2 if reader.source.derived else 3]
    file, missing = section.file, [text for bit, text in heads if not reader.live.heads >> bit & 1]
    steps, gap = _steps(reader)
    if missing and not reader.diagnostics.has_unknown_lines(file, section.kind):
        fewer = section.steps is not None and steps < section.steps
        wanted = f"{section.steps} steps, not {steps}" if fewer else missing[0]
        reader.diagnostics.truncated(file, file.end, section.kind, wanted)
    elif not missing and section.steps not in (None, steps):
        wanted = f"{steps} steps, as many as are listed, not {section.steps}"
        reader.diagnostics.add(file, section.head, section.kind, "steps_differ", wanted)
    if gap is not None:
        # The steps before the first one that is out of order are dense: it repeats one of them, or none.
        row, step = gap
        line = find_line(section, f"    {step}:", repeats=int(0 <= step < row))
        reader.diagnostics.add(file, line, section.kind, "schedule_gap", "steps 0, 1, 2, …")
    return None if missing else steps


def _steps(reader: Reader) -> tuple[int, tuple[int, int] | None]:
    """Return the length of the schedule, and the row and number of the first step that is out of order."""
    n, gap = 0, None
    for first, time in reader.stores[LIVE].batches("schedule", "time"):
        n += len(time)
        if gap is None and (row := _rules.first_gap(time, first)) >= 0:
            gap = first + row, int(time[row])
    return n, gap


def _check_ranges_inside(reader: Reader, section: Section, length: int) -> None:
    """Check that every live range lies within the schedule and does not end before it starts."""
    n = sum(
        np.count_nonzero((start < 0) | (start > end) | (end > length))
        for _, start, end in reader.stores[LIVE].batches("live_ranges", "start", "end")
    )
    if n:
        wanted = f"live ranges within steps 0 to {length}; {n} are not"
        reader.diagnostics.add(section.file, None, section.kind, "range_outside", wanted)


def _check_values_of_ranges(reader: Reader, section: Section, rows: Codes) -> int:
    """Check that ranges have values and temp values have ranges; return the expected length of the peak list."""
    step, has_bytes, needed = reader.live.peak_time, reader.matcher.has_bytes(), 0
    if step is None:  # without a peak list
        step = -1
    has_range = np.zeros(len(has_bytes), np.uint8)
    for first, start, stop in reader.stores[LIVE].batches("live_ranges", "start", "end"):
        chunk_rows = rows[first : first + len(start)]
        needed += _rules.live_at(step, chunk_rows, start, stop, has_bytes, has_range)
    line: int | None = None
    unmatched = np.flatnonzero(rows < 0)
    for row in unmatched[:MAX_ROWS].tolist():
        label = "".join(reader.matcher.label("live_ranges", row))
        line = find_line(section, f"    {label}:", line)
        wanted = f"a value {label} in some allocation"
        reader.diagnostics.add(section.file, line, section.kind, "live_range_unmatched", wanted)
    if len(unmatched) > MAX_ROWS:
        reader.diagnostics.count(section.file, section.kind, "live_range_unmatched", len(unmatched) - MAX_ROWS)
    _check_temp_values(reader, has_range)
    return needed


def _check_temp_values(reader: Reader, has_range: Bools) -> None:
    """Check that each value of a temp allocation has a live range. Constants and thread-local values may lack one."""
    section, store = reader.assignment, reader.stores[ASSIGNMENT]
    assert section is not None
    is_temp: Bools = store.flags("allocations", "flags") & np.uint8(IS_TEMP)
    row_of_allocation = Rows(store.ints("allocations", "allocation"))

    def missing() -> Iterator[tuple[int, str]]:
        for first, owner in store.batches("values", "allocation"):
            covered = has_range[first : first + len(owner)]
            for value in ints(_rules.unseen(is_temp, row_of_allocation(owner), covered)).tolist():
                yield first + value, "a live range"

    _add_at_values(reader, section, "live_range_missing", missing())


def _check_tree(reader: Reader, section: Section) -> None:
    """Check that the stack tree is present if expected, is complete, and adds up to the total in its head line."""
    live, store, file = reader.live, reader.stores[LIVE], section.file
    if reader.diagnostics.has_unknown_lines(file, section.kind):
        return
    if not live.heads >> _liveness.TREE & 1:
        if ("live_split" in file.features or reader.expects_tree) and not reader.source.derived:
            wanted = "  Stack trace breakdown for peak usage: N bytes"
            reader.diagnostics.truncated(file, file.end, section.kind, wanted)
        return
    total, depth = store.ints("printed_stack", "total"), store.ints("printed_stack", "depth")
    remaining = store.ints("printed_stack", "remaining")
    unfinished = remaining[-1] != 0 if len(remaining) else (live.tree_total or 0) > 0
    if unfinished:
        reader.diagnostics.truncated(file, file.end, section.kind, "nodes until no bytes remain")
    elif not file.truncated and total_of(total[depth == 0]) != live.tree_total:
        line = find_line(section, "  Stack trace breakdown for peak usage: ")
        wanted = f"roots of {live.tree_total} bytes together"
        reader.diagnostics.add(file, line, section.kind, "tree_differs", wanted)


# -- sections ------------------------------------------------------------------------------------


def _sections_complete(reader: Reader, _: _Evidence) -> None:
    """Check that sections required by other sections are present."""
    for file in reader.files:
        _check_sections_of(reader, file)
    section = reader.assignment
    if section is None:
        return
    file = section.file
    n = len(reader.stores[ASSIGNMENT].ints("allocations", "allocation"))
    if not n and not reader.diagnostics.has_unknown_lines(file, section.kind):
        reader.diagnostics.truncated(file, section.end, section.kind, "an allocation")
    if reader.sections(USED):
        return
    older = file.features & {"e0_values", "e1_values"}
    layout_a = any("report_a" in f.features for f in reader.files)
    if not older and ("address" in file.features or layout_a):
        reader.diagnostics.truncated(file, file.end, USED, "Total bytes used: N")


def _check_sections_of(reader: Reader, file: File) -> None:
    kinds = {s.kind for s in file.sections}
    inline = {ASSIGNMENT, USED} <= kinds and "human_total" in file.features
    if inline and LIVE not in kinds:
        reader.diagnostics.truncated(file, file.end, LIVE, "HloLiveRange (max N):")
    if not kinds and file.role != "hlo" and not reader.diagnostics.has_unknown_lines(file, "file"):
        reader.diagnostics.truncated(file, file.end, "file", "the head of a section")


def _reports_agree(reader: Reader, evidence: _Evidence) -> None:
    """Check that the reports are complete and that their sizes match the allocations."""
    agree = [*check_reports(reader, _adds_up)]
    evidence.report_agrees = bool(agree) and all(agree)


_RULES: tuple[tuple[set[str], Any], ...] = (
    ({ASSIGNMENT}, _values_inside),
    ({ASSIGNMENT}, _ids_ascend),
    ({ASSIGNMENT, USED}, _sections_complete),
    ({ASSIGNMENT, USED}, _used_values_agree),
    ({ASSIGNMENT, USED, LIVE}, _live_ranges_agree),
    ({ASSIGNMENT, REPORT}, _reports_agree),
    ({ASSIGNMENT}, _printed_total_agrees),
)
