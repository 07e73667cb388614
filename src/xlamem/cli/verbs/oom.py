"""`xlamem oom`: out-of-memory reports, one short screen each."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

import click

from ...parse import oom
from .. import console
from ..console import bad, bold, counted, dim, out

Row: TypeAlias = dict[str, Any]

INDENT = 4
LABEL = 10
"""Columns taken by the labels."""
SIZES = 11
"""Columns taken by a size."""
TINY = 0.001
"""Buffers below this part of all that are listed are summed up on a terminal."""

TITLES = {
    "tpu_e1000": "out of memory in {space}, said by the TPU compiler",
    "tpu_allocation": "one allocation is larger than {space}, said by the TPU compiler",
    "peak_buffers": "out of memory; the program's largest buffers",
    "runtime": "out of memory{space}: an allocation failed at run time",
    "usage": "memory used by a program that fits",
}


PROSE = ("needs", "why", "again", "state")
"""Facts that are wrapped, not shortened."""


@click.command("oom", short_help="Show out-of-memory reports in a log.")
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON.")
@click.option("--limit", type=click.IntRange(min=0), default=10, show_default=True, help="Buffers shown per report.")
@click.option("--wide", is_flag=True, help="Shorten nothing.")
def command(log: str, as_json: bool, limit: int, wide: bool) -> int:
    """Find XLA's out-of-memory reports in LOG (a file or URI, - for standard input; a whole log or one message) and
    show what ran out, what the program is made of and its largest buffers. Exits with 3 if there is none.
    """
    found = oom.read_oom(log if log == "-" else _Path(log))
    if as_json:
        tables = {name: getattr(found, name).to_pylist() for name in oom.TABLES}
        console.out_json({"source": found.source, **tables})
    elif len(found):
        _print(found, limit, None if wide else console.width())
    if not len(found):
        sought = "an out-of-memory report of XLA ('Ran out of memory in memory space', 'Peak buffers:', …)"
        return console.complain(f"{found.source}: expected {sought}", console.UNREADABLE)
    return console.FINE


class _Path:
    """A name that is a path whatever it looks like."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return self.path


def _print(found: oom.OomReport, limit: int, width: int | None) -> None:
    reports = found.reports.to_pylist()
    usage, buffers = _grouped(found.usage.to_pylist()), _grouped(found.buffers.to_pylist())
    unknown = _grouped(found.unknown.to_pylist())
    copies: dict[int, list[Row]] = {}
    for row in reports:
        if row["same_as"] is not None:
            copies.setdefault(row["same_as"], []).append(row)
    failures = [r for r in reports if r["form"] != "usage" and r["same_as"] is None]
    fitting = [r for r in reports if r["form"] == "usage"]
    for i, row in enumerate(failures if failures else fitting[:1] if len(fitting) == 1 else []):
        if i:
            out()
        n = row["report"]
        _one(row, usage.get(n, []), buffers.get(n, []), copies.get(n, []), limit, width)
        _lines_unknown(unknown.get(n, []), width)
    if failures and fitting:
        out()
        out(dim(f"also {counted(len(fitting), 'block')} about memory used by programs that fit; --json has them"))
    elif len(fitting) > 1:
        _fitting(fitting, usage)


def _grouped(rows: Iterable[Row]) -> dict[int, list[Row]]:
    groups: dict[int, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["report"], []).append(row)
    return groups


# -- one report ----------------------------------------------------------------------------------


def _one(row: Row, usage: list[Row], buffers: list[Row], copies: list[Row], limit: int, width: int | None) -> None:
    out(bold(bad(_title(row)) if row["form"] != "usage" else _title(row)))
    for label, text in _facts(row, buffers, copies):
        indent, text = LABEL + 2, _flat(text)
        short = [console.shortened(text, width and width - indent)]
        lines = console.fill(text, indent, width) if label in PROSE else short
        for i, line in enumerate(lines):
            out(f"  {dim((label if i == 0 else '').ljust(LABEL))}{line}")
    if usage:
        _usage(usage, width)
    if listed := [b for b in buffers if b["list"] != "failed allocation"]:
        _buffers(listed, limit, width)
    hints = _hints(row, usage, buffers)
    if hints:
        out()
        for hint in hints:
            first, *more = console.fill(console.visible(hint), 4, width)
            out(f"  {dim('→')} {first}")
            for line in more:
                out(f"    {line}")


def _title(row: Row) -> str:
    space = _space(row["memory_space"])
    if row["form"] == "runtime":
        space = f" in {space}" if row["memory_space"] else ""
    title = TITLES.get(row["form"], "out of memory in {space}, said by the TPU compiler").format(space=space)
    return f"{title} ({row['code']})" if row["code"] else title


def _space(name: str | None) -> str:
    return name.upper() if name in ("hbm", "vmem", "smem", "cmem") else name or "memory"


def _facts(row: Row, buffers: list[Row], copies: list[Row]) -> list[tuple[str, str]]:
    facts = []
    asked, used, capacity = row["requested_text"], row["used_text"], row["capacity_text"]
    if row["form"] == "tpu_allocation":
        facts.append(("asks for", console.exact(row["requested_bytes"])))
        facts.append(("there is", console.exact(row["capacity_bytes"])))
    elif asked:
        facts.append(("asks for", console.exact(row["requested_bytes"]) if asked.isdigit() else _size(asked)))
    if row["free_text"]:
        facts.append(("free", _size(row["free_text"])))
    if used and capacity:
        over = row["exceeded_text"]
        much = _size(over) if over else console.size(row["used_bytes"] - row["capacity_bytes"])
        facts.append(("needs", f"{_size(used)} of {_size(capacity)}: {much} too much"))
    if row["module_name"]:
        facts.append(("module", row["module_name"]))
    if row["instruction"]:
        facts.append(("for", row["instruction"]))
    for b in buffers:
        if b["list"] == "failed allocation":
            said = {"scope": b["op_name"], "source": _source(b), "shape": b["shape"], "why": b["tag"]}
            facts += [(label, text) for label, text in said.items() if text]
    facts.append(("where", _where(row)))
    if copies:
        facts.append(("again", _again(copies)))
    if not row["complete"]:
        facts.append(("state", "CUT: the message ends too early"))
    return facts


def _where(row: Row) -> str:
    lines = f"line {row['line']:,}"
    if row["last_line"] > row["line"]:
        lines = f"lines {row['line']:,} to {row['last_line']:,}"
    said = [lines, row["rank"] or "", f"thread {row['thread']}" if row["thread"] else ""]
    return ", ".join(filter(None, said))


def _again(copies: list[Row]) -> str:
    ranks = sorted({r["rank"] for r in copies if r["rank"]}, key=_natural)
    lines = ", ".join(f"{r['line']:,}" for r in copies[:5]) + (", …" if len(copies) > 5 else "")
    said = f"{counted(len(copies), 'time')}, word for word ({'line' if len(copies) == 1 else 'lines'} {lines})"
    if ranks:
        shown = ", ".join(ranks[:8]) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
        said += f", from {shown}"
    return said


def _natural(text: str) -> list[tuple[int, str]]:
    return [(int(t), "") if t.isdigit() else (-1, t) for t in re.split(r"(\d+)", text)]


def _size(text: str | None) -> str:
    """A printed size with its unit spelled out, not one digit more than was printed."""
    m = re.fullmatch(r"(-?[\d.]+)([KMGTPE]?)(?:i?B)?", text or "")
    if not m:
        return text or "?"
    return f"{m[1]} {m[2]}iB" if m[2] else f"{m[1]} B"


# -- what it is made of --------------------------------------------------------------------------


def _usage(usage: list[Row], width: int | None) -> None:
    rows: list[tuple[int, str, str, str]] = []
    stats = [u for u in usage if u["part"] == "stats"]
    spaces = list(dict.fromkeys(u["memory_space"] for u in usage if u["part"] != "stats"))
    for space in spaces:
        of = [u for u in usage if u["memory_space"] == space and u["part"] != "stats"]
        parts = [u for u in of if u["part"] == "total" and u["label"] != "total"]
        inside = [u for u in of if u["part"] == "program" and u["label"] != "total"]
        for head in (u for u in of if u["part"] == "total" and u["label"] == "total"):
            rows.append((0, f"{_space(space)} in all", _size(head["size_text"]), "at least"))
        if not parts and (head_program := [u for u in of if u["part"] == "program" and u["label"] == "total"]):
            rows.append((0, f"{_space(space)} of the program", _size(head_program[0]["size_text"]), ""))
        placed = False
        for u in parts:
            rows.append((1, u["label"], _size(u["size_text"]), ""))
            if u["label"] == "program":
                rows += [(2, i["label"], _size(i["size_text"]), _details(i)) for i in inside]
                placed = True
        if not placed:
            rows += [(1, i["label"], _size(i["size_text"]), _details(i)) for i in inside]
        for u in of:
            if u["part"] == "output":
                label = "output" if u["label"] == "output" else "output, shared with arguments"
                if (u["bytes"] or 0) > 0 or u["size_text"] == "unknown":
                    rows.append((1, label, _size(u["size_text"]), ""))
            elif u["part"] == "compiled":
                rows.append((0, f"{_space(space)} of the program", _size(u["size_text"]), _of(u)))
    for u in stats:
        rows.append((0, u["label"], _size(u["size_text"]), f"{u['fragmentation']}%" if u["fragmentation"] else ""))
    least = min(row[0] for row in rows)
    out()
    out(f"  {bold('made of')}")
    labels = max(2 * (depth - least) + len(label) for depth, label, _, _ in rows)
    for depth, label, size, more in rows:
        line = f"{' ' * INDENT}{('  ' * (depth - least) + label).ljust(labels)}{size.rjust(SIZES + 2)}"
        out(f"{line}{console.GAP}{dim(console.shortened(more, width and width - len(line) - 2))}" if more else line)


def _details(u: Row) -> str:
    said = []
    if u["unpadded_bytes"] is not None and u["padded_bytes"] != u["unpadded_bytes"]:
        said.append(f"{console.size(u['unpadded_bytes'])} without padding")
    if u["fragmentation_bytes"] and u["fragmentation"] != "0.0":
        said.append(f"{u['fragmentation']}% fragmented")
    if u["utilization"] and not said:
        said.append(f"{u['utilization']}% utilized")
    return ", ".join(said)


def _of(u: Row) -> str:
    return f"of {console.size(u['capacity_bytes'])}" if u["capacity_bytes"] is not None else ""


# -- buffers -------------------------------------------------------------------------------------


def _buffers(buffers: list[Row], limit: int, width: int | None) -> None:
    ordered = sorted(buffers, key=lambda b: -(b["size_bytes"] or 0))
    least = TINY * sum(b["size_bytes"] or 0 for b in buffers)
    shown = ordered[:limit]
    if width is not None:
        shown = [b for b in shown if b["size_bytes"] is None or b["size_bytes"] >= least]
    out()
    out(f"  {bold('largest buffers')}")
    indent = INDENT + SIZES + 2
    for b in shown:
        head = f"{' ' * INDENT}{_size(b['size_text']).rjust(SIZES)}{console.GAP}"
        for line in _described(b, width and width - indent):
            out(head + line)
            head = " " * indent
    if rest := ordered[len(shown) :]:
        together = console.size(sum(b["size_bytes"] or 0 for b in rest))
        out(dim(f"{' ' * INDENT}{together.rjust(SIZES)}{console.GAP}in {counted(len(rest), 'more', 'more')}"))


def _flat(text: str) -> str:
    return console.visible(text).replace("\n", "\\n")


def _padded(b: Row) -> bool:
    return bool(b["padding_bytes"]) and (b["expansion"] or 0) > 1


def _described(b: Row, room: int | None) -> list[str]:
    """What it is: scope, source line, instruction, shape with padding; what fits goes on one line."""
    label = re.sub(r", (?:metadata|backend_config)=.*", "", b["xla_label"] or "")
    shape = b["shape"] or ""
    if shape:
        label = label.replace(f" = {shape} ", " = ", 1)  # it follows below
    if label and b["allocation_type"] not in (None, "HLO temp"):
        label += f" ({b['allocation_type']})"
    if b["parameter"]:
        label = "entry parameter"
    padding = f"{console.size(b['padding_bytes'])} padding ({b['expansion']:g}x)" if _padded(b) else ""
    lines: list[str] = []
    for text in (b["op_name"] or "", _source(b)):
        if text:
            lines.append(console.shortened(_flat(text), room))
    last = ""
    for text in (label, shape, padding):
        text = _flat(text)
        if last and len(last) + 2 + len(text) > (room or 100):
            lines.append(console.shortened(last, room))
            last = ""
        last += (console.GAP if last and text else "") + text
    if last:
        lines.append(console.shortened(last, room))
    return lines or ["(nothing more is said)"]


def _source(b: Row) -> str:
    file, line = b["source_file"], b["source_line"]
    return f"{file}:{line}" if file and line else file or ""


# -- hints ---------------------------------------------------------------------------------------


def _hints(row: Row, usage: list[Row], buffers: list[Row]) -> list[str]:
    """Sentences that follow from the printed numbers."""
    hints = []
    listed = sum(b["size_bytes"] or 0 for b in buffers)
    padding = sum(b["padding_bytes"] or 0 for b in buffers if _padded(b))
    over = row["exceeded_bytes"]
    if over is None and row["used_bytes"] is not None and row["capacity_bytes"] is not None:
        over = row["used_bytes"] - row["capacity_bytes"]
    if padding and padding >= 0.01 * listed:
        hint = f"padding makes up {console.size(padding)} of the {console.size(listed)} in listed buffers"
        if over and padding >= over:
            hint += ", which is more than what is missing"
        worst = max((b for b in buffers if _padded(b)), key=lambda b: b["padding_bytes"])
        if worst["expansion"] >= 2:
            hint += f"; {worst['shape']} takes {worst['expansion']:g} times its own size"
        hints.append(hint)
    hints += _repeats(buffers)
    for u in usage:
        lost, size = u["fragmentation_bytes"] or 0, u["bytes"] or 0
        if u["part"] == "program" and lost and lost >= 0.05 * size and row["form"] != "usage":
            hints.append(f"fragmentation takes {console.size(lost)} of {u['label']}")
    capacity = row["capacity_bytes"]
    arguments = next((u for u in usage if u["part"] == "total" and u["label"] == "arguments" and u["bytes"]), None)
    if arguments and capacity and arguments["bytes"] >= capacity / 2:
        hints.append(f"arguments alone take {_size(arguments['size_text'])} of {_size(row['capacity_text'])}")
    if capacity and over:
        large = (b for b in buffers if (b["size_bytes"] or 0) > capacity and b["list"] != "failed allocation")
        if alone := next(large, None):
            hints.append(f"one buffer alone is larger than {_space(row['memory_space'])}: {alone['shape']}")
    if row["form"] == "tpu_e1000":
        hints.append("this message lists no buffers; the dump of the same compile (--xla_dump_to) has them all")
    return hints


def _repeats(buffers: list[Row]) -> list[str]:
    count: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for b in buffers:
        if b["shape"] and b["size_bytes"]:
            count[b["shape"]] += 1
            total[b["shape"]] += b["size_bytes"]
    if not total:
        return []
    shape, size = total.most_common(1)[0]
    if count[shape] < 2 or size < 0.25 * sum(total.values()):
        return []
    return [f"{count[shape]} of the listed buffers have the shape {shape}: {console.size(size)} together"]


# -- the rest ------------------------------------------------------------------------------------


def _lines_unknown(rows: list[Row], width: int | None) -> None:
    if not rows:
        return
    out()
    out(dim(f"  {counted(len(rows), 'line')} inside the message {'was' if len(rows) == 1 else 'were'} not understood:"))
    for row in rows[:3]:
        head = f"    {row['line']}: "
        out(dim(head + console.shortened(console.visible(row["text"].strip()), width and width - len(head))))
    if len(rows) > 3:
        out(dim(f"    … and {len(rows) - 3:,} more; --json has all"))


def _fitting(reports: list[Row], usage: dict[int, list[Row]]) -> None:
    """Many programs that fit, a line each."""
    rows = [["line", "space", "in all", "program", "arguments", "rank"]]
    for r in reports:
        of = usage.get(r["report"], [])
        for space in dict.fromkeys(u["memory_space"] for u in of):
            cells = []
            for part, label in (("total", "total"), ("program", "total"), ("total", "arguments")):
                found = (u for u in of if (u["memory_space"], u["part"], u["label"]) == (space, part, label))
                cells.append(_size(next((u["size_text"] for u in found), "-")))
            if set(cells) != {"-"} and any(c not in ("-", "0 B") for c in cells):
                rows.append([f"{r['line']:,}", _space(space), *cells, r["rank"] or ""])
    head, *lines = console.columns(rows, {1, 5})
    out(f"no failure, but {counted(len(reports), 'block')} about memory used by programs that fit")
    out()
    out(bold(head))
    for line in lines:
        out(line)
