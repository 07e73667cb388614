"""Out-of-memory reports, one short screen each. Written without rich, like `reporters.info`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...compute import OomCauses, excess_bytes, is_padded, oom_causes
from ...formatting import GAP, align, count, exact_size, natural_order, one_line, shorten, size, visible, wrap
from ...parse.oom import OomReport
from ..console import bold, dim, red, write, write_field

Row = dict[str, Any]

N_BUFFERS = 10
"""Number of buffers listed without --limit."""
MAX_UNKNOWN = 3
"""Maximum number of unknown lines that are shown."""
MAX_COPIES, MAX_RANKS = 5, 8
"""Maximum number of copies of a report, and of ranks, that are listed."""
MIN_SHARE = 0.001
"""Minimum share of all listed bytes for a buffer to be shown if the width is limited."""
INDENT = 4
LABEL_WIDTH = 11
SIZE_WIDTH = 11
DEFAULT_ROOM = 100
"""Width of a buffer's description if the width of lines is not limited."""

TITLES = {
    "tpu_e1000": "out of memory in {space} (TPU compiler{code})",
    "tpu_allocation": "one allocation exceeds {space} (TPU compiler{code})",
    "peak_buffers": "out of memory; the program's largest buffers",
    "runtime": "out of memory{in_space}: an allocation failed at run time{in_code}",
    "usage": "memory usage of a program that fits",
}
OTHER_TITLE = TITLES["tpu_e1000"]

WRAPPED = ("needs", "why", "repeated", "state")
"""Fields with wrapped text; the text of other fields is shortened."""
FAILED = "failed allocation"
"""Value of buffers.list for the allocation that a message is about."""
NO_INSTRUCTION = "<no-hlo-instruction>"
"""What XLA prints for a buffer that no instruction defines."""


@dataclass(frozen=True)
class Report:
    """The rows of one report."""

    row: Row
    usage: list[Row]
    buffers: list[Row]
    unknown: list[Row]
    copies: list[Row]
    """Later reports with the same text."""


def write_reports(reports: OomReport, limit: int | None, width: int | None) -> None:
    """Write each distinct failure or, if there is none, the memory of programs that fit."""
    every = _split(reports)
    failures = [r for r in every if r.row["form"] != "usage" and r.row["same_as"] is None]
    fitting = [r for r in every if r.row["form"] == "usage"]
    shown = failures or (fitting if len(fitting) == 1 else [])
    for i, report in enumerate(shown):
        if i:
            write()
        _write_report(report, N_BUFFERS if limit is None else limit, width)
    if failures and fitting:
        write()
        write(dim(f"also {count(len(fitting), 'report')} of the memory usage of programs that fit: see --json"))
    elif len(fitting) > 1:
        _write_fitting(fitting)


def _split(reports: OomReport) -> list[Report]:
    rows = reports.reports.to_pylist()
    usage, buffers, unknown = (
        _grouped(table.to_pylist(), "report") for table in (reports.usage, reports.buffers, reports.unknown)
    )
    copies = _grouped((row for row in rows if row["same_as"] is not None), "same_as")
    return [Report(row, usage[n], buffers[n], unknown[n], copies[n]) for row in rows for n in [row["report"]]]


def _grouped(rows: Iterable[Row], key: str) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row[key]].append(row)
    return groups


# -- one report ----------------------------------------------------------------------------------


def _write_report(report: Report, limit: int, width: int | None) -> None:
    title = _title(report.row)
    write(bold(red(title) if report.row["form"] != "usage" else title))
    for label, text in _fields(report):
        write_field(label, _field_lines(label, one_line(text), width), LABEL_WIDTH)
    if report.usage:
        _write_breakdown(report.usage, width)
    if listed := [b for b in report.buffers if b["list"] != FAILED]:
        _write_buffers(listed, limit, width)
    if hints := _hints(report):
        write()
        for hint in hints:
            first, *more = [line for part in hint.split("\n") for line in wrap(visible(part), INDENT, width)]
            write("\n".join([f"  {dim('→')} {first}", *(" " * INDENT + line for line in more)]))
    if report.unknown:
        _write_unknown(report.unknown, width)


def _field_lines(label: str, text: str, width: int | None) -> list[str]:
    indent = LABEL_WIDTH + 2
    return wrap(text, indent, width) if label in WRAPPED else [shorten(text, width and width - indent)]


def _title(row: Row) -> str:
    space = _space(row["memory_space"])
    in_space = f" in {space}" if row["memory_space"] else ""
    code = f", {row['code']}" if row["code"] else ""
    in_code = f" ({row['code']})" if row["code"] else ""
    return TITLES.get(row["form"], OTHER_TITLE).format(space=space, in_space=in_space, code=code, in_code=in_code)


def _space(name: str | None) -> str:
    return name.upper() if name in ("hbm", "vmem", "smem", "cmem") else name or "memory"


def _fields(report: Report) -> list[tuple[str, str]]:
    """Return label and text of each field."""
    row = report.row
    fields = _request(row)
    if row["used_text"] and row["capacity_text"]:
        over = _printed(row["exceeded_text"]) if row["exceeded_text"] else size(excess_bytes(row))
        fields.append(("needs", f"{_printed(row['used_text'])} of {_printed(row['capacity_text'])}: {over} over"))
    names = (("module", row["module_name"]), ("for", row["instruction"]))
    fields += [(label, name) for label, name in names if name and name != NO_INSTRUCTION]
    for b in report.buffers:
        if b["list"] == FAILED:
            texts = {"scope": b["op_name"], "source": _source(b), "shape": b["shape"], "why": b["tag"]}
            fields += [(label, text) for label, text in texts.items() if text]
    fields.append(("where", _where(row)))
    if report.copies:
        fields.append(("repeated", _copies(report.copies)))
    return fields if row["complete"] else [*fields, ("state", "TRUNCATED: the message is incomplete")]


def _request(row: Row) -> list[tuple[str, str]]:
    """Return what was requested and what is free."""
    requested, fields = row["requested_text"], []
    if row["form"] == "tpu_allocation":
        fields.append(("requested", exact_size(row["requested_bytes"])))
        fields.append(("available", exact_size(row["capacity_bytes"])))
    elif requested:
        n = row["requested_bytes"] if requested.isdigit() else None
        amount = _printed(requested) if n is None else exact_size(n)
        fields.append(("requested", amount))
    if row["free_text"]:
        fields.append(("free", _printed(row["free_text"])))
    return fields


def _where(row: Row) -> str:
    lines = f"line {row['line']:,}"
    if row["last_line"] > row["line"]:
        lines = f"lines {row['line']:,} to {row['last_line']:,}"
    thread = f"thread {row['thread']}" if row["thread"] else ""
    return ", ".join(filter(None, [f"{lines} of the log", row["rank"], thread]))


def _copies(copies: list[Row]) -> str:
    lines = ", ".join(f"{r['line']:,}" for r in copies[:MAX_COPIES]) + (", …" if len(copies) > MAX_COPIES else "")
    times = count(len(copies), "time")
    text = f"{times} with the same text ({'line' if len(copies) == 1 else 'lines'} {lines})"
    ranks = sorted({r["rank"] for r in copies if r["rank"]}, key=natural_order)
    if ranks:
        more = f" and {len(ranks) - MAX_RANKS} more" if len(ranks) > MAX_RANKS else ""
        text += f", by {', '.join(ranks[:MAX_RANKS])}{more}"
    return text


def _printed(text: str | None) -> str:
    """Return a printed size with its unit spelled out, and with the printed digits."""
    m = re.fullmatch(r"(-?[\d.]+)([KMGTPE]?)(?:i?B)?", text or "")
    if not m:
        return text or "?"
    return f"{m[1]} {m[2]}iB" if m[2] else f"{m[1]} B"


# -- breakdown -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Total:
    """A line of the breakdown."""

    depth: int
    label: str
    size: str
    note: str = ""


def _write_breakdown(usage: list[Row], width: int | None) -> None:
    spaces = dict.fromkeys(u["memory_space"] for u in usage if u["part"] != "stats")
    totals = [t for s in spaces for t in _totals(s, [u for u in usage if u["memory_space"] == s])]
    for u in usage:
        if u["part"] == "stats":
            note = f"{u['fragmentation']}%" if u["fragmentation"] else ""
            totals.append(Total(0, u["label"], _printed(u["size_text"]), note))
    if not totals:  # nothing is printed but an empty output
        return
    least = min(t.depth for t in totals)
    labels = ["  " * (t.depth - least) + t.label for t in totals]
    longest = max(map(len, labels))
    write()
    write(f"  {bold('breakdown')}")
    for total, label in zip(totals, labels, strict=True):
        line = f"{' ' * INDENT}{label.ljust(longest)}{total.size.rjust(SIZE_WIDTH + 2)}"
        note = dim(shorten(total.note, width and width - len(line) - len(GAP)))
        write(f"{line}{GAP}{note}" if total.note else line)


def _totals(space: str, usage: list[Row]) -> list[Total]:
    """Return the totals of a memory space, each followed by its parts."""
    by_part: dict[str, list[Row]] = defaultdict(list)
    for u in usage:
        by_part[f"{u['part']} total" if u["label"] == "total" else u["part"]].append(u)
    program = [Total(2, u["label"], _printed(u["size_text"]), _details(u)) for u in by_part["program"]]
    totals = [Total(0, f"{_space(space)} total", _printed(u["size_text"]), "at least") for u in by_part["total total"]]
    if not by_part["total"]:
        heads = by_part["program total"][:1]
        totals += [Total(0, f"{_space(space)} of the program", _printed(u["size_text"])) for u in heads]
    for u in by_part["total"]:
        totals.append(Total(1, u["label"], _printed(u["size_text"])))
        if u["label"] == "program":
            totals += program
    if not any(u["label"] == "program" for u in by_part["total"]):
        totals += [Total(1, t.label, t.size, t.note) for t in program]
    return totals + [t for u in usage for t in _rest(space, u)]


def _rest(space: str, u: Row) -> list[Total]:
    """Return the line about the output, or about the memory of the compiled program."""
    if u["part"] == "output" and ((u["bytes"] or 0) > 0 or u["size_text"] == "unknown"):
        label = "output" if u["label"] == "output" else "output, shared with arguments"
        return [Total(1, label, _printed(u["size_text"]))]
    if u["part"] == "compiled":
        capacity = f"of {size(u['capacity_bytes'])}" if u["capacity_bytes"] is not None else ""
        return [Total(0, f"{_space(space)} of the program", _printed(u["size_text"]), capacity)]
    return []


def _details(u: Row) -> str:
    notes = []
    if u["unpadded_bytes"] is not None and u["padded_bytes"] != u["unpadded_bytes"]:
        notes.append(f"{size(u['unpadded_bytes'])} without padding")
    if u["fragmentation_bytes"] and u["fragmentation"] != "0.0":
        notes.append(f"{u['fragmentation']}% fragmented")
    if u["utilization"] and not notes:
        notes.append(f"{u['utilization']}% utilized")
    return ", ".join(notes)


# -- buffers -------------------------------------------------------------------------------------


def _write_buffers(buffers: list[Row], limit: int, width: int | None) -> None:
    """Write the largest buffers. If the width is limited, omit those with a very small share."""
    buffers = sorted(buffers, key=lambda b: -(b["size_bytes"] or 0))
    least = MIN_SHARE * sum(b["size_bytes"] or 0 for b in buffers) if width is not None else 0
    shown = [b for b in buffers[:limit] if b["size_bytes"] is None or b["size_bytes"] >= least]
    write()
    write(f"  {bold('largest buffers')}")
    indent = INDENT + SIZE_WIDTH + len(GAP)
    for b in shown:
        first, *more = _describe(b, width and width - indent)
        write(f"{' ' * INDENT}{_printed(b['size_text']).rjust(SIZE_WIDTH)}{GAP}{first}")
        for line in more:
            write(" " * indent + line)
    if rest := buffers[len(shown) :]:
        left = size(sum(b["size_bytes"] or 0 for b in rest))
        write(dim(f"{' ' * INDENT}{left.rjust(SIZE_WIDTH)}{GAP}in {count(len(rest), 'more', 'more')}"))


def _describe(b: Row, room: int | None) -> list[str]:
    """Return scope, source line, instruction, and shape with padding; short ones share a line."""
    padding = f"{size(b['padding_bytes'])} padding ({b['expansion']:g}x)" if is_padded(b) else ""
    lines = [one_line(text) for text in (b["op_name"], _source(b)) if text]
    last = ""
    for text in filter(None, map(one_line, (_label(b), b["shape"] or "", padding))):
        if last and len(last) + len(GAP) + len(text) > (room or DEFAULT_ROOM):
            lines.append(last)
            last = ""
        last += (GAP if last else "") + text
    lines += [text for text in (last, one_line(b["tag"] or "")) if text]
    return [shorten(line, room) for line in lines] or ["(no details)"]


def _label(b: Row) -> str:
    """Return the instruction without its shape, which is shown separately."""
    if b["parameter"]:
        return "entry parameter"
    label = re.sub(r", (?:metadata|backend_config)=.*", "", b["xla_label"] or "")
    if b["shape"]:
        label = label.replace(f" = {b['shape']} ", " = ", 1)
    if label and b["allocation_type"] not in (None, "HLO temp"):
        label += f" ({b['allocation_type']})"
    return label


def _source(b: Row) -> str:
    file, line = b["source_file"], b["source_line"]
    return f"{file}:{line}" if file and line else file or ""


# -- hints ---------------------------------------------------------------------------------------


def _hints(report: Report) -> list[str]:
    """Return sentences about what the numbers suggest."""
    row, causes = report.row, oom_causes(report.row, report.usage, report.buffers)
    hints = [_padding_hint(causes)] if causes.padding else []
    if causes.repeated:
        shape, n, total = causes.repeated
        hints.append(f"{n} of the listed buffers have the shape {shape}: {size(total)} in total")
    for u in causes.fragmented:
        hints.append(f"fragmentation takes {size(u['fragmentation_bytes'])} of {u['label']}")
    if causes.arguments:
        arguments = _printed(causes.arguments["size_text"])
        hints.append(f"arguments alone take {arguments} of {_printed(row['capacity_text'])}")
    if causes.output_left_out:
        hints.append(f"{_space(row['memory_space'])} total leaves out {size(causes.output_left_out)} of outputs")
    if causes.oversized:
        hints.append(f"one buffer alone exceeds {_space(row['memory_space'])}: {causes.oversized['shape']}")
    if row["form"] in ("tpu_e1000", "runtime") or (row["form"] == "tpu_allocation" and row["memory_space"] == "hbm"):
        hints.append(_dump_hint(row))
    return hints


def _dump_hint(row: Row) -> str:
    """Say how to find the buffers that the message does not list. Commands have lines of their own."""
    if row["form"] == "runtime":
        return (
            "this message does not say what takes the memory, but a dump of the program does. Set\n"
            '  XLA_FLAGS="--xla_dump_to=dumps --xla_dump_hlo_as_text"\n'
            "run it again, and then\n  xlamem dumps"
        )
    text = row["capacity_text"] or ""
    text = size(row["capacity_bytes"]) if text.isdigit() and row["capacity_bytes"] is not None else _printed(text)
    capacity = f" --capacity {text.replace(' ', '')}" if row["capacity_text"] else ""
    is_one = row["form"] == "tpu_allocation"
    listed = "names one buffer, and a dump all of them" if is_one else "lists no buffers, but a dump does"
    # The size in the message is device_total of the program, also if it has no temporaries.
    counted = "" if is_one else " Its HLO temporaries include arguments and outputs."
    return (
        f"this message {listed}, also of a compile that fails.{counted} Set\n"
        '  XLA_FLAGS="--xla_dump_to=dumps --xla_dump_hlo_as_text"\n'
        f"compile again, and run\n  xlamem dumps{capacity}"
    )


def _padding_hint(causes: OomCauses) -> str:
    hint = f"padding takes {size(causes.padding)} of the {size(causes.listed)} in listed buffers"
    if causes.excess and causes.padding >= causes.excess:
        hint += ", more than the program is over"
    if causes.most_padded:
        worst = causes.most_padded
        hint += f"; {worst['shape']} takes {worst['expansion']:g} times its unpadded size"
    return hint


# -- other lines ---------------------------------------------------------------------------------


def _write_unknown(rows: list[Row], width: int | None) -> None:
    lines = count(len(rows), "line")
    write()
    write(dim(f"  {lines} inside the message {'was' if len(rows) == 1 else 'were'} not understood:"))
    for row in rows[:MAX_UNKNOWN]:
        head = f"    {row['line']}: "
        write(dim(head + shorten(visible(row["text"].strip()), width and width - len(head))))
    if (more := len(rows) - MAX_UNKNOWN) > 0:
        write(dim(f"    … and {more:,} more: --json lists all"))


def _write_fitting(reports: list[Report]) -> None:
    """Write a line for each program that fits."""
    rows = [cells for report in reports for cells in _usage_cells(report)]
    head, *lines = align([["line", "space", "total", "program", "arguments", "rank"], *rows], {1, 5})
    write(f"no failure, but {count(len(reports), 'report')} of the memory usage of programs that fit")
    write()
    write(bold(head))
    for line in lines:
        write(line)


COLUMNS = (("total", "total"), ("program", "total"), ("total", "arguments"))
"""Part and label of the sizes of a program that fits."""


def _usage_cells(report: Report) -> list[list[str]]:
    """Return a row of cells for each memory space that is used."""
    rows = []
    for space in dict.fromkeys(u["memory_space"] for u in report.usage):
        sizes = {(u["part"], u["label"]): u["size_text"] for u in report.usage[::-1] if u["memory_space"] == space}
        cells = [_printed(sizes.get(column, "-")) for column in COLUMNS]
        if any(c not in ("-", "0 B") for c in cells):
            rows.append([f"{report.row['line']:,}", _space(space), *cells, report.row["rank"] or ""])
    return rows
