"""Cross-checks of the memory-usage report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import _lines, _values
from .arrays import NULL, Bools, Ints, TextParts, distinct_of, flags, row_of, text_ends
from .batch import Section
from .diagnostics import MAX_ROWS
from .reader import Reader
from .sections import ASSIGNMENT

OTHER_COMPILE = "these files are of different compiles"

LINE_BYTES = 1 << 20
"""Maximum number of bytes before an offset that are searched for the beginning of its line."""

Total = tuple[int | None, int, tuple[int, int] | None]
"""(printed total, sum of the allocations' sizes, in layout B the code of the memory space's label and its color)."""


def total_of(values: Ints) -> int:
    """Return the sum of the values without overflow."""
    fits = len(values) > 64 and np.abs(values.astype(np.float64)).sum() < 1 << 62
    return int(values.sum()) if fits else sum(values.tolist())  # which is also the fastest for few values


def find_line(section: Section, text: str, after: int | None = None, repeats: int = 0) -> int | None:
    """Return the offset of the first line of a section that starts with `text`; None if there is none.

    The search starts below the line at `after`, and skips as many such lines as it `repeats`.
    """
    prefix = text.encode()
    offset = section.begin if after is None else after
    if after is not None or bytes(section.data[offset : offset + len(prefix)]) != prefix:
        offset = _lines.next_line(section.data, offset, section.end, prefix)
    for _ in range(repeats):
        offset = _lines.next_line(section.data, offset, section.end, prefix)
    return offset if offset < section.end else None


def human_size(n: int) -> str:
    """Format a size as XLA does: divide by 1024, rounding down, until it is below 1024 * 1024."""
    sign, n = ("-", -n) if n < 0 else ("", n)
    if n < 1024:
        return f"{sign}{n}B"
    units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while n >= 1024 * 1024 and len(units) > 1:
        n //= 1024
        units.pop(0)
    return f"{sign}{n / 1024:.{1 if units[0] == 'KiB' else 2}f}{units[0]}"


def check_reports(reader: Reader, adds_up: Callable[[Reader], bool | None]) -> Iterator[bool]:
    """Check each report and yield whether its totals agree with the allocations.

    `adds_up` returns whether the allocations add up to the total printed above the used values, or None.
    """
    for report, summary in reader.reports.items():
        columns = reader.matcher.report_columns(report)
        _check_complete(reader, report, summary)
        section = reader.assignment
        if section is None:
            continue
        yield _check_totals(reader, section, report, _totals(reader, report, columns, summary), adds_up)
        if not summary["layout_b"]:
            _check_rows(reader, section, report, columns)


def _check_complete(reader: Reader, report: Section, summary: Mapping[str, Any]) -> None:
    """Check that the report has all of its lists."""
    wanted = None
    if reader.diagnostics.has_unknown_lines(report.file, report.kind):
        pass  # what seems to be missing may be in a line that was not understood
    elif summary["layout_a"] and not summary["second"]:
        wanted = "Allocations sorted by size with their values:"
    elif summary["layout_a"] and summary["heads"] != (expected := sum(summary["listed"])):
        wanted = f"{expected} allocations with their values"
    elif summary["open"]:
        wanted = "an empty line"
    if wanted is not None:
        reader.diagnostics.truncated(report.file, report.file.end, report.kind, wanted)


# -- totals --------------------------------------------------------------------------------------


def _totals(reader: Reader, report: Section, columns: Mapping[str, Any], summary: Mapping[str, Any]) -> list[Total]:
    """Return the totals of a report: one in layout A, one per memory space in layout B."""
    store = reader.stores[ASSIGNMENT]
    color, size = store.ints("allocations", "color"), store.ints("allocations", "size")
    if not summary["layout_b"]:
        return [(report.total, total_of(size), None)]
    shown, first = np.unique(columns["color"], return_index=True)
    absent = sorted({*distinct_of(color)} - {*shown.tolist()})
    if absent and not reader.diagnostics.has_unknown_lines(report.file, report.kind):
        wanted = f"Memory Space: … (color={absent[0]})"
        reader.diagnostics.truncated(report.file, report.end, report.kind, wanted)
    by_color = np.argsort(color, kind="stable")
    begin, end = (np.searchsorted(color[by_color], shown, side) for side in ("left", "right"))
    sums = [total_of(size[by_color[i:j]]) for i, j in zip(begin.tolist(), end.tolist(), strict=True)]
    printed, labels = columns["total_bytes"][first].tolist(), columns["space_label"][first].tolist()
    totals: list[Total] = list(zip(printed, sums, zip(labels, shown.tolist(), strict=True), strict=True))
    return [totals[i] for i in np.argsort(first).tolist()]  # in the order of the text


def _total_line(reader: Reader, report: Section, space: tuple[int, int] | None, after: int | None) -> int | None:
    """Return the offset of the line with the total of a memory space, or of the whole report."""
    if space is None:
        return report.head
    label, color = space
    line = find_line(report, f"Memory Space: {reader.labels['label'].text(label) or ''} (color={color})", after)
    return None if line is None else _lines.next_line(report.data, line, report.end, b"Total")


def _check_totals(
    reader: Reader,
    section: Section,
    report: Section,
    totals: list[Total],
    adds_up: Callable[[Reader], bool | None],
) -> bool:
    """Compare the printed totals with the allocations' sizes; return whether they agree and the report is complete.

    The allocations are correct if they add up to the total printed above the used values. Otherwise they are
    truncated if the report is complete and every differing total exceeds the sum of their sizes.
    """
    readable = [total for total in totals if total[0] not in (None, NULL)]
    differing = [total for total in readable if total[0] != total[1]]
    agrees = bool(readable) and not differing and not report.file.truncated
    if not differing:
        return agrees
    agrees_with_used = adds_up(reader)
    fewer = all(printed is not None and size < printed for printed, size, _ in differing)
    remark = "" if agrees_with_used is False else f": {OTHER_COMPILE}"
    unknown_lines = any(reader.diagnostics.has_unknown_lines(s.file, s.kind) for s in (section, report))
    if agrees_with_used is None and fewer and not report.file.truncated and not unknown_lines:
        section.file.truncated, remark = True, ""
    line: int | None = None
    for i, (_, size, space) in enumerate(differing):
        wanted = f"{size} bytes, the sum of the allocations' sizes{remark}"
        line = _total_line(reader, report, space, line) if i < MAX_ROWS else line
        reader.diagnostics.add(report.file, line, report.kind, "report_differs", wanted, "error")
    return agrees


# -- rows of layout A ----------------------------------------------------------------------------


def _check_rows(reader: Reader, section: Section, report: Section, columns: Mapping[str, Any]) -> None:
    """Check that the rows match the allocations, and that every allocation of more than one value has a table."""
    store = reader.stores[ASSIGNMENT]
    index = store.ints("allocations", "allocation")
    if not len(index):
        return
    for offset, exists in reader.matcher.differing_rows(report)[:MAX_ROWS]:
        if exists or not section.file.truncated:  # a missing allocation of a truncated file is no contradiction
            begin = max(0, offset - LINE_BYTES)
            line = begin + bytes(report.data[begin:offset]).rfind(b"\n") + 1
            wanted = "this allocation as in the allocations"
            reader.diagnostics.add(report.file, line, report.kind, "report_differs", wanted)
    # If the table after the last head is missing, the report is truncated.
    heads = np.flatnonzero(columns["part"] == 1)
    if "e1_values" not in section.file.features and len(heads) and columns["n_values"][heads[-1]] == 1:
        last = int(columns["allocation"][heads[-1]])
        if (store.ints("values", "allocation") == last).sum() != 1 and last in index:
            wanted = f"a table of the values of allocation {last}"
            reader.diagnostics.truncated(report.file, report.end, report.kind, wanted)


def differing_rows(reader: Reader, report: Section, columns: Mapping[str, Any]) -> list[tuple[int, bool]]:
    """Return the rows of layout A whose size, or the text after it, differs from the allocation's.

    Each item is the offset of that text and whether such an allocation exists.
    """
    store, section = reader.stores[ASSIGNMENT], reader.assignment
    index, sizes = store.ints("allocations", "allocation"), store.ints("allocations", "size")
    rows = np.flatnonzero((columns["allocation"] != NULL) & (columns["part"] <= 1))
    if section is None or not len(rows) or not len(index):
        return []
    allocation = row_of(index, columns["allocation"][rows])
    printed, fields = (
        table.reshape(-1, 2)[selected]
        for table, selected in ((columns["fields"], rows), (store.ints("allocations", "fields"), allocation))
    )
    begins, ends, expected_begins, expected_ends = (
        np.ascontiguousarray(spans[:, i]) for spans in (printed, fields) for i in (0, 1)
    )
    same = flags(_values.same(report.data, begins, ends, section.data, expected_begins, expected_ends))
    differs = (same & _prints_sizes(columns["size"], rows, sizes[allocation])) == 0
    differs |= allocation < 0
    return list(zip(begins[differs].tolist(), (allocation[differs] >= 0).tolist(), strict=True))


def _prints_sizes(printed: TextParts, rows: Ints, sizes: Ints) -> Bools:
    """Return 1 for each row whose text is its size as XLA formats it, and 0 for the others."""
    distinct = distinct_of(np.ascontiguousarray(sizes))
    texts = [human_size(n).encode() for n in distinct]
    code, expected = np.searchsorted(distinct, sizes), np.cumsum([0, *map(len, texts)])
    ends = np.append(0, text_ends(printed)) if len(printed[0]) >> 31 else printed[1].astype(np.int64)
    return flags(  # the text of null is empty
        _values.same(printed[0], ends[rows], ends[rows + 1], b"".join(texts), expected[code], expected[code + 1])
    )
