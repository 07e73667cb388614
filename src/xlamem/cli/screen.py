"""The screen of one program: its numbers as plain data, and how they are drawn."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..compute import Available, Fits
from ..input.find import Source
from . import console
from .buffers import ROOMY, SIZES, one_line, two_lines
from .console import counted
from .program import Row, title

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from rich.text import Text

LABEL = 10
"""Columns taken by the labels."""
SMALL = 3
"""Buffers shown of a space that is not the first one."""
CHART, TALL = 60, 3
"""Columns and rows of the chart of the first space."""
TINY = 0.001
"""Spaces and buffers below this part of the largest space's, or their space's, peak are not shown one by one."""

CATEGORIES = {
    "parameter": "parameters",
    "donated": "donated",
    "live_out": "outputs",
    "constant": "constants",
    "temp": "temporaries",
}
COLORS = {"parameter": "blue", "donated": "cyan", "live_out": "green", "constant": "magenta", "temp": "yellow"}


@dataclass
class View:
    """One dump as plain data."""

    source: Source
    module: Row
    spaces: list[Row]
    """Rows of `peaks`, the main space first, each with its `categories`, `plateaus` and `buffers`."""
    device_total: int | None = None
    """Bytes that must fit into the device's memory, whatever spaces are shown."""
    parts: dict[str, int] = field(default_factory=dict)
    """Those bytes by memory space."""
    wrong: list[str] = field(default_factory=list)
    """What is wrong with the dump, in sentences."""
    verdict: Fits | None = None
    """Of the comparison with a capacity, if there is one."""
    series: dict[tuple[str, int], npt.NDArray[np.int64]] = field(default_factory=dict)
    """Bytes in use at each step, by (space, page)."""

    @property
    def fits(self) -> bool | None:
        return None if self.verdict is None else self.verdict.fits

    @property
    def timed(self) -> bool:
        return any(s["peak"] is not None for s in self.spaces)

    def at(self, time: int) -> int | None:
        """Bytes in use of all spaces together at a step."""
        known = [int(s[time]) for s in self.series.values() if time < len(s)]
        return sum(known) if known else None

    @property
    def together(self) -> tuple[int, int] | None:
        """Most bytes of all spaces together and the first step of that; None where it is not known."""
        if not self.series:
            return None
        total = sum(self.series.values())
        at = int(total.argmax())  # type: ignore[union-attr]
        return int(total[at]), at  # type: ignore[index]


def draw(
    v: View, space: str | None, limits: Available | None, limit: int | None, width: int | None, *, wide: bool
) -> list[Text]:
    from rich.text import Text

    texts = title(v.source, v.module, width, v.wrong)
    if not v.timed:
        why = "no live ranges in this dump: what is in use when is not known, only what is reserved"
        why = why if v.spaces else "no allocations in this dump: nothing can be said about memory"
        texts += [Text(line, "yellow") for line in console.fill(why, 0, width)]
    if v.verdict is not None or len(v.parts) > 1:
        texts += [Text(), *_device_total(v, limits, width)]
    used = [s for s in v.spaces if s["peak"] or (s["peak"] is None and s["reserved"])]
    least = TINY * max((s["peak"] or 0 for s in v.spaces), default=0)
    shown = [s for i, s in enumerate(used) if i == 0 or s["peak"] is None or s["peak"] >= least or wide]
    for i, s in enumerate(shown):
        texts.append(Text())
        main = i == 0
        n = limit if limit is not None else 10 if main else SMALL
        texts += _space(v, s, limits, n, width, main=main, wide=wide)
    said = [f"{_label(s)}: peak {console.size(s['peak'])} {_when(v, s)}" for s in used if s not in shown]
    rest = [s for s in v.spaces if s not in used]
    named = [f"{_label(s)} ({console.size(s['reserved'])} reserved)" if s["reserved"] else _label(s) for s in rest]
    said += [f"nothing in use: {', '.join(named)}"] if rest else []
    if said:
        texts.append(Text())
    for sentence in said:
        texts += [Text(line, "dim") for line in console.fill(sentence, 0, width)]
    texts += _printed(v, space, width)
    return texts


def _label(s: Row) -> str:
    page = f" page {s['page']}" if s["page"] else ""
    return f"{s['memory_space']}{page}"


def _facts(label: str, *parts: Any) -> Text:
    from rich.text import Text

    return Text.assemble("  ", (label.ljust(LABEL), "dim"), *parts)


def _space(
    v: View, s: Row, limits: Available | None, n: int, width: int | None, *, main: bool, wide: bool
) -> list[Text]:
    from rich.text import Text

    texts = [Text(_label(s), "bold")]
    room = width or 100
    amounts = console.columns([[console.size(b), f"({b:,} bytes)"] for b in (s["reserved"], s["peak"] or 0)], {1})
    alone = [*v.parts] == [s["memory_space"]]
    why = "must fit" if alone and v.verdict is None else ""
    texts.append(_facts("reserved", (amounts[0], "bold"), f"  {why}" if why else ""))
    if s["peak"] is not None:
        texts.append(_facts("peak", (amounts[1], "bold"), f"  {_when(v, s)}"))
    total = s["peak"] if s["peak"] is not None else sum(s["categories"].values())
    if s["peak"]:
        line = v.verdict.available if v.verdict is not None and alone else None
        texts += _chart(v, s, line, room - LABEL - 2, TALL if main else 1)
    parts = [(c, b) for c, b in sorted(s["categories"].items(), key=lambda p: -p[1]) if b]
    if main:
        names = max((len(CATEGORIES[c]) for c, _ in parts), default=0)
        length = max(10, min(40, room - LABEL - 2 - names - SIZES - 15))
        for i, (c, b) in enumerate(parts):
            share = console.percent(b, total).rjust(9)
            drawn = (console.bar(b, total, length), COLORS[c])
            label = "made of" if i == 0 else ""
            texts.append(
                _facts(label, CATEGORIES[c].ljust(names), console.size(b).rjust(SIZES + 1), share, "  ", drawn)
            )
    else:
        said = ", ".join(f"{CATEGORIES[c]} {console.size(b)}" for c, b in parts)
        texts.append(_facts("made of", said))
    texts += _buffers(s, n, width, wide=wide)
    return texts


def _when(v: View, s: Row) -> str:
    first, last = s["first_step"], s["last_step"]
    steps = f"at step {first:,}" if first == last else f"at steps {first:,}-{last:,}"
    times = f", {s['plateaus']:,}×" if s["plateaus"] > 1 else ""
    return f"{steps} of {console.known(v.module['schedule_length'])}{times}"


def _device_total(v: View, limits: Available | None, width: int | None) -> list[Text]:
    """What must fit into the device's memory, and whether it does."""
    from rich.text import Text

    texts = [Text("device_total", "bold")]
    if v.device_total is not None:
        amount = f"{console.size(v.device_total)}  ({v.device_total:,} bytes)"
        parts = [
            f"{name}\N{NO-BREAK SPACE}{console.size(size)}" if len(v.parts) > 1 else name
            for name, size in v.parts.items()
        ]
        lines = _fill(" + ".join(parts), LABEL + 2 + len(amount) + 2, width)
        if width and len(amount) + len(lines[0]) + LABEL + 4 > width:  # below each other where it is narrow
            texts += [_facts("must fit", (amount, "bold")), *(_facts("", line) for line in lines)]
        else:
            texts += [_facts("must fit", (amount, "bold"), f"  {lines[0]}")]
            texts += [_facts("", " " * len(amount), f"  {line}") for line in lines[1:]]
    if limits is None or v.verdict is None:
        return texts
    said, style = _verdict(v.verdict)
    for i, line in enumerate(_fill(said, LABEL + 2, width)):
        texts.append(_facts((v.verdict.device or "capacity")[:LABEL] if i == 0 else "", (line, style)))
    notes = []
    if limits.bytes != limits.capacity:
        part = "" if v.verdict.fraction == 1 else f"{100 * v.verdict.fraction:g} % of "
        less = f" less {console.size(limits.resident)} resident" if limits.resident else ""
        notes.append(f"{console.size(limits.bytes)} are {part}{console.size(limits.capacity)}{less}")
    if (d := limits.device) is not None:
        more = f"{console.size(d.usable)} by {d.reporter}" if d.reported is not None else "less is usable"
        notes.append(f"{d.stated} by the {d.source}; {more}")
    if v.module["platform"] == "tpu":
        notes.append("program code needs memory too and is not in the dump")
    for note in notes:
        texts += [_facts("", (line, "dim")) for line in _fill(note, LABEL + 2, width)]
    return texts


def _fill(text: str, indent: int, width: int | None) -> list[str]:
    """Prose in lines that break no amount from its unit."""
    kept = re.sub(r"(?<=[0-9]) (?=[%KMGTB])", "\N{NO-BREAK SPACE}", text)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in console.fill(kept, indent, width)]


def _verdict(found: Fits) -> tuple[str, str]:
    """The sentence and its style."""
    if found.fits is None:
        return f"NOT KNOWN whether it fits: {found.reason}", "bold red"
    total, size = found.device_total or 0, console.size(found.available)
    if not found.fits:
        return f"{size}: DOES NOT FIT, {console.size(total - found.available)} too much", "bold red"
    share = console.percent(total, found.available)
    return f"{size}: fits, {console.size(found.available - total)} to spare, {share} needed", "green"


def _chart(v: View, s: Row, line: int | None, room: int, rows: int) -> list[Text]:
    """The bytes in use over the schedule, the peak marked below, what is available (`line`) where it is near.

    The chart stands on 0, or on what is in use at every step where that is most of it; both ends are labelled.
    """
    from numpy import arange, maximum
    from rich.text import Text

    series = v.series[s["memory_space"], s["page"]]
    edges = console.timeline(len(series), min(CHART if room < 100 else 100, room - SIZES))
    heights = maximum.reduceat(series, edges)
    top = s["peak"]
    line = line if line is not None and 0 < line <= 2 * top else None
    always = sum(b for c, b in s["categories"].items() if c != "temp")
    floor = always if line is None and 2 * always > top > always else 0
    scale = max(top, line or 0) - floor
    at = console.column(edges, s["first_step"])
    limit_row = None if line is None else min(rows - 1, int(line / scale * rows))
    over = (heights > line if line is not None else heights < 0) | (arange(len(heights)) == at)
    rule = "┄" if console.blocks()[1] == "▁" else "-"
    texts = []
    for i, cells in enumerate(console.spark(heights - floor, scale, rows)):
        crossed = limit_row == rows - 1 - i
        marked = [
            (rule, "red") if crossed and c == " " else (c, "bold red" if over[k] else "cyan")
            for k, c in enumerate(cells)
        ]
        drawn = Text.assemble(*(("".join(c for c, _ in run), style) for style, run in groupby(marked, lambda m: m[1])))
        ends = [console.size(floor + scale), console.size(floor)]
        if ends[0] == ends[1]:
            ends[0] = f"+ {console.size(scale)}"
        label = ends[0] if i == 0 else ends[1] if i == rows - 1 else ""
        if line is not None and crossed:
            label = console.size(line)
        texts.append(_facts("in use" if i == 0 else "", drawn, (f" {label}", "dim")))
    step = f"step {s['first_step']:,}"
    mark = "▲" if console.blocks()[1] == "▁" else "^"
    below = f"{' ' * at}{mark} {step}" if at + len(step) + 2 <= len(heights) else f"{step} {mark}".rjust(at + 1)
    if floor and rows == 1:
        below = f"{below.ljust(len(heights))} from {console.size(floor)}"
    texts.append(_facts("", (below, "dim")))
    return texts


def _buffers(s: Row, n: int, width: int | None, *, wide: bool) -> list[Text]:
    from rich.text import Text

    least = 0 if wide or s["peak"] is None else TINY * s["peak"]
    rows = [b for i, b in enumerate(s["buffers"][:n]) if b["bytes"] and (i < SMALL or b["bytes"] >= least)]
    if not rows:
        return []
    when = f"at step {s['first_step']:,}" if s["peak"] is not None else "at whatever time (not all at once)"
    texts = [_facts("largest", (f"buffers {when}", "dim"))]
    texts += one_line(rows, width, wide=wide) if (width or ROOMY) >= ROOMY or wide else two_lines(rows, width or 80)
    if s["peak"] is not None and (more := s["n_buffers"] - len(rows)) > 0:
        left = s["peak"] - sum(b["bytes"] for b in rows)
        texts.append(
            Text(
                f"  {console.size(left).rjust(SIZES)}  in {counted(more, 'more', 'more')}: xlamem live, xlamem top",
                "dim",
            )
        )
    return texts


def _printed(v: View, space: str | None, width: int | None) -> list[Text]:
    """A word about XLA's own peak where it is another one."""
    from rich.text import Text

    ours, printed = v.together, v.module["printed_peak_bytes"]
    if printed is None or ours is None or space is not None:
        return []
    if printed == ours[0] and v.at(v.module["printed_peak_time"]) == ours[0]:
        return []
    sizes = [console.size(n) for n in (printed, ours[0])]
    if sizes[0] == sizes[1]:
        sizes = [f"{n:,} bytes" for n in (printed, ours[0])]
    at = [f"at step {n:,}" for n in (v.module["printed_peak_time"], ours[1])]
    at = at if at[0] != at[1] else ["", at[0]]
    said = (
        f"XLA's own dump prints {' '.join(filter(None, (sizes[0], at[0])))} as the peak of all memory spaces together, "
        f"not {sizes[1]} {at[1]}: xlamem explain says why."
    )
    return [Text(), *(Text(line) for line in console.fill(said, 0, width))]
