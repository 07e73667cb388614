"""The screen of one program: what must fit, and the peak of each memory space."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from ...compute import Fits, Overview
from ...compute.devices import device
from ..formatting import NO_BREAK, align, count, number, percent, size, wrap
from ..inputs import Program
from .bill import bill_line
from .buffers import SIZE_WIDTH, buffer_lines, more_line
from .chart import bar, usage_chart
from .header import header

Row = dict[str, Any]

LABEL_WIDTH = 10
INDENT = LABEL_WIDTH + 2
PIPE_WIDTH = 100
"""Width of charts and bars if the width of lines is not limited."""
N_BUFFERS, N_BUFFERS_OTHER = 10, 3
"""Number of buffers listed for the first memory space, and for each other one."""
CHART_ROWS = 3
"""Height of the chart for the first memory space; the others have one row."""
MIN_SHARE = 0.001
"""Minimum share of the largest peak for a space to be shown, and of its peak for a buffer to be listed."""
BAR_WIDTH = 40

CATEGORY_NAMES = {
    "parameter": "parameters",
    "donated": "donated",
    "live_out": "outputs",
    "constant": "constants",
    "temp": "temporaries",
}
CATEGORY_COLORS = {"parameter": "blue", "donated": "cyan", "live_out": "green", "constant": "magenta", "temp": "yellow"}


@dataclass(frozen=True)
class Layout:
    """How much the screen shows."""

    width: int | None
    """Width in columns; None if it is not limited."""
    limit: int | None = None
    """Buffers listed per memory space; None for the defaults."""
    wide: bool = False

    @property
    def room(self) -> int:
        """Number of columns to the right of the labels."""
        return (self.width or PIPE_WIDTH) - INDENT

    def wrapped(self, text: str, style: str = "", *, indent: int = 0) -> list[Text]:
        return [Text(line, style) for line in wrap(text, indent, self.width)]


def screen(program: Program, layout: Layout, *, all_spaces: bool = True) -> list[Text]:
    """Return the lines of the screen; `all_spaces` is False if one memory space was selected."""
    overview, fits, problems = program
    lines = header(overview.source, overview.module, problems, layout.width)
    lines += _missing(overview, layout)
    if fits is not None or len(overview.reserved) > 1:
        lines += [Text(), *_device_total(overview, fits, layout)]
    used = [s for s in overview.spaces if s["peak"] or (s["peak"] is None and s["reserved"])]
    shown = _large_spaces(used, layout)
    for i, space in enumerate(shown):
        lines += [Text(), *_space(overview, space, fits, layout, first=i == 0)]
    lines += _other_spaces(overview, used, shown, layout)
    return lines + (_printed_peak(overview, layout) if all_spaces else [])


def _missing(overview: Overview, layout: Layout) -> list[Text]:
    if overview.has_live_ranges:
        return []
    text = "this dump has no allocations: its memory use is unknown"
    if overview.spaces:
        text = "this dump has no live ranges: only reserved sizes are known, not what is in use at which step"
    return layout.wrapped(text, "yellow")


def _large_spaces(used: list[Row], layout: Layout) -> list[Row]:
    """Return the first space, and those with more than a small share of the largest peak."""
    least = MIN_SHARE * max((s["peak"] or 0 for s in used), default=0)
    return [s for i, s in enumerate(used) if i == 0 or s["peak"] is None or s["peak"] >= least or layout.wide]


def _other_spaces(overview: Overview, used: list[Row], shown: list[Row], layout: Layout) -> list[Text]:
    sentences = [f"{_name(s)}: peak {size(s['peak'])} {_steps(overview, s)}" for s in used if s not in shown]
    unused = [s for s in overview.spaces if s not in used]
    names = [f"{_name(s)} ({size(s['reserved'])} reserved)" if s["reserved"] else _name(s) for s in unused]
    if names:
        sentences.append(f"nothing in use: {', '.join(names)}")
    lines = [line for sentence in sentences for line in layout.wrapped(sentence, "dim")]
    return [Text(), *lines] if lines else []


def _name(space: Row) -> str:
    return f"{space['memory_space']} page {space['page']}" if space["page"] else str(space["memory_space"])


def _field(label: str, *parts: Any) -> Text:
    return Text.assemble("  ", (label.ljust(LABEL_WIDTH), "dim"), *parts)


# -- what must fit -------------------------------------------------------------------------------


def _device_total(overview: Overview, fits: Fits | None, layout: Layout) -> list[Text]:
    lines = [Text("device_total", "bold")]
    if overview.device_total is not None:
        lines += _must_fit(overview.device_total, overview.reserved, layout.width)
    if fits is None:
        return lines
    text, style = _verdict(fits)
    label = (fits.device or "capacity")[:LABEL_WIDTH]
    for i, line in enumerate(wrap(text, INDENT, layout.width)):
        lines.append(_field("" if i else label, (line, style)))
    for note in _notes(fits, overview.module["platform"]):
        lines += [_field("", (line, "dim")) for line in wrap(note, INDENT, layout.width)]
    return lines


def _must_fit(total: int, reserved: dict[str, int], width: int | None) -> list[Text]:
    """Return the sum and its terms, on one line if there is room."""
    amount = f"{size(total)}  ({total:,} bytes)"
    terms = [f"{name}{NO_BREAK}{size(n)}" if len(reserved) > 1 else name for name, n in reserved.items()]
    lines = wrap(" + ".join(terms), INDENT + len(amount) + 2, width)
    if width and INDENT + len(amount) + 2 + len(lines[0]) > width:
        return [_field("must fit", (amount, "bold")), *(_field("", line) for line in lines)]
    first = _field("must fit", (amount, "bold"), f"  {lines[0]}")
    return [first, *(_field("", " " * len(amount), f"  {line}") for line in lines[1:])]


def _verdict(fits: Fits) -> tuple[str, str]:
    """Return the sentence and its style."""
    if fits.fits is None:
        return f"CANNOT TELL whether it fits: {fits.reason}", "bold red"
    total, available = fits.device_total or 0, size(fits.available)
    if not fits.fits:
        return f"{available}: DOES NOT FIT, {size(total - fits.available)} over", "bold red"
    share = percent(total, fits.available)
    return f"{available}: fits, {size(fits.available - total)} to spare, {share} used", "green"


def _notes(fits: Fits, platform: str | None) -> list[str]:
    """Return how the available memory is computed from the capacity, and what is not counted."""
    notes = []
    if fits.available != fits.capacity:
        fraction = "" if fits.fraction == 1 else f"{100 * fits.fraction:g} % of "
        resident = f" minus {size(fits.resident)} resident" if fits.resident else ""
        notes.append(f"{size(fits.available)} = {fraction}{size(fits.capacity)}{resident}")
    if fits.device is not None:
        d = device(fits.device)
        usable = "less is usable"
        if d.reported is not None:
            usable = f"usable: {size(d.usable)} according to {d.reporter}"
        notes.append(f"{d.stated} according to the {d.source}; {usable}")
    if platform == "tpu":
        notes.append("program code also takes device memory but is not in the dump")
    return notes


# -- one memory space ----------------------------------------------------------------------------


def _space(overview: Overview, space: Row, fits: Fits | None, layout: Layout, *, first: bool) -> list[Text]:
    only_space = list(overview.reserved) == [space["memory_space"]]
    lines = [Text(_name(space), "bold")]
    lines += _amounts(overview, space, layout.width, must_fit=only_space and fits is None)
    if first and space["in_device_memory"] and (reason := bill_line(overview.bill)):
        lines += [_field("" if i else "bill", line) for i, line in enumerate(wrap(reason, INDENT, layout.width))]
    if space["peak"]:
        capacity = fits.available if fits is not None and only_space else None
        lines += _chart(overview, space, capacity, layout, CHART_ROWS if first else 1)
    lines += _breakdown(space, layout) if first else [_short_breakdown(space)]
    return lines + _buffers(space, layout, N_BUFFERS if first else N_BUFFERS_OTHER)


def _amounts(overview: Overview, space: Row, width: int | None, *, must_fit: bool) -> list[Text]:
    reserved, peak = align([[size(n), f"({n:,} bytes)"] for n in (space["reserved"], space["peak"] or 0)], {1})
    lines = [_field("reserved", (reserved, "bold"), "  must fit" if must_fit else "")]
    if space["peak"] is None:
        return lines
    steps = _steps(overview, space)
    if INDENT + len(peak) + 2 + len(steps) > (width or sys.maxsize):
        return [*lines, _field("peak", (peak, "bold")), _field("", steps)]
    return [*lines, _field("peak", (peak, "bold"), f"  {steps}")]


def _steps(overview: Overview, space: Row) -> str:
    """Return the steps of the first plateau, and how many plateaus there are."""
    first, last = space["first_step"], space["last_step"]
    steps = f"at step {first:,}" if first == last else f"at steps {first:,}-{last:,}"
    plateaus = f", {space['plateaus']:,} plateaus" if space["plateaus"] > 1 else ""
    return f"{steps} of {number(overview.module['schedule_length'])}{plateaus}"


def _chart(overview: Overview, space: Row, capacity: int | None, layout: Layout, rows: int) -> list[Text]:
    """The bytes in use over the schedule, with the capacity if it is near.

    It begins at 0, or at what is in use at every step where that is most of the peak.
    """
    peak = space["peak"]
    capacity = capacity if capacity is not None and 0 < capacity <= 2 * peak else None
    fixed = sum(n for category, n in space["categories"].items() if category != "temp")
    floor = fixed if capacity is None and 2 * fixed > peak > fixed else 0
    usage = overview.usage[space["memory_space"], space["page"]]
    chart = usage_chart(
        usage, space["first_step"], floor=floor, capacity=capacity, rows=rows, width=layout.room
    )
    return [_field("" if i else "in use", line) for i, line in enumerate(chart)]


def _categories(space: Row) -> list[tuple[str, int]]:
    """Return the categories with more than 0 bytes, largest first."""
    return sorted(((c, n) for c, n in space["categories"].items() if n), key=lambda p: -p[1])


def _breakdown(space: Row, layout: Layout) -> list[Text]:
    """Return the bytes, share and bar of each category."""
    categories = _categories(space)
    total = space["peak"] if space["peak"] is not None else sum(n for _, n in categories)
    names = max((len(CATEGORY_NAMES[c]) for c, _ in categories), default=0)
    length = max(10, min(BAR_WIDTH, layout.room - names - SIZE_WIDTH - 15))
    lines: list[Text] = []
    for category, n in categories:
        amount = f"{CATEGORY_NAMES[category].ljust(names)}{size(n).rjust(SIZE_WIDTH + 1)}"
        drawn = (bar(n, total, length), CATEGORY_COLORS[category])
        label = "" if lines else "by kind"
        lines.append(_field(label, amount, percent(n, total).rjust(9), "  ", drawn))
    return lines


def _short_breakdown(space: Row) -> Text:
    return _field("by kind", ", ".join(f"{CATEGORY_NAMES[c]} {size(n)}" for c, n in _categories(space)))


def _buffers(space: Row, layout: Layout, default: int) -> list[Text]:
    """Return the largest buffers, without those with a very small share."""
    least = 0 if layout.wide or space["peak"] is None else MIN_SHARE * space["peak"]
    rows = space["buffers"][: default if layout.limit is None else layout.limit]
    rows = [b for i, b in enumerate(rows) if b["bytes"] and (i < N_BUFFERS_OTHER or b["bytes"] >= least)]
    if not rows:
        return []
    when = "buffers of all steps (not live together)"
    if space["peak"] is not None:
        when = f"buffers at step {space['first_step']:,}"
    lines = [_field("largest", (when, "dim")), *buffer_lines(rows, layout.width, wide=layout.wide)]
    if space["peak"] is not None and (more := space["n_buffers"] - len(rows)) > 0:
        left = space["peak"] - sum(b["bytes"] for b in rows)
        lines.append(more_line(left, f"in {count(more, 'more', 'more')}: see xlamem top --by buffer"))
    return lines


# -- XLA's peak ----------------------------------------------------------------------------------


def _printed_peak(overview: Overview, layout: Layout) -> list[Text]:
    """Return a sentence about the peak that XLA prints, if it differs."""
    computed, printed = overview.peak_together, overview.module["printed_peak_bytes"]
    if printed is None or computed is None:
        return []
    peak, step = computed
    printed_step = overview.module["printed_peak_time"]
    if printed == peak == overview.in_use(printed_step):
        return []
    amounts = [size(printed), size(peak)]
    if amounts[0] == amounts[1]:
        amounts = [f"{printed:,} bytes", f"{peak:,} bytes"]
    text = (
        f"For all memory spaces together, XLA prints a peak of {amounts[0]} at step {printed_step:,}; "
        f"xlamem computes {amounts[1]} at step {step:,} (see xlamem explain)."
    )
    return [Text(), *layout.wrapped(text)]
