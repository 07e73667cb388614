"""The first screen of a program: what must fit, what is in use over time, and the scopes and buffers of the peak."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from rich.text import Text

from ... import kernels as pc
from ...compute import Fits, Overview, fold_scopes, folded_scopes, have_functions_only, like_buffers, scope_tree
from ...compute.bill_wording import bill_line
from ...compute.devices import parse_bytes
from ...compute.overview import space_name
from ...compute.program import CLONE
from ...compute.wording import NO_ALLOCATIONS, without_live_ranges
from ...formatting import align, count, number, one_line, saving, shorten, size, wrap
from ..inputs import Program
from .buffers import SIZE_WIDTH, buffer_lines, group_lines, shape_text
from .chart import sparkline, usage_chart
from .header import header
from .notes import Note, note_lines
from .scopes import tree_lines
from .verdict import INDENT, field, verdict_lines, verdict_notes

Row = dict[str, Any]

HEIGHT = 40
"""Maximum number of lines, unless a limit asks for more."""
MIN_HEIGHT = 24
"""Number of lines that the screen takes below a list of programs, however long that is."""
PIPE_WIDTH = 100
"""Width of charts if the width of lines is not limited."""
MAX_SCOPES, MAX_BUFFERS = 14, 10
"""Maximum number of lines for the scopes of the first memory space, and for its buffers."""
N_OTHER_SPACES, N_OTHER_BUFFERS = 2, 2
"""Number of other memory spaces for which buffers are listed, and of these."""
CHART_ROWS = 3
"""Height of the chart of the first memory space."""
SPARKLINE_WIDTH = 20
STACKED = (
    "{} has one slice for each of {} iterations of a loop, which writes or reads a slice in each of them; so have "
    "other shapes with ×"
)
REMATERIALIZED = (
    "rematerialized: where memory is scarce, XLA computes buffers later or a second time, by instructions with .remat "
    "in their names"
)
NO_NAMES = (
    "no buffer at the peak has an op_name, because PyTorch/XLA writes op_names and lines only if XLA_IR_DEBUG=1 and "
    "XLA_HLO_DEBUG=1 are set"
)
TORCH_MODULE = "SyncTensorsGraph"
"""What the names of the programs of PyTorch/XLA begin with."""
MIN_SHARE = 0.001
"""Minimum share of the largest peak for a space to have a line, and of its peak for a buffer to be listed."""


class Layout(NamedTuple):
    """How much the screen shows."""

    width: int | None
    """Width in columns; None if it is not limited."""
    limit: int | None = None
    """Lines for the buffers of each memory space; None for as many as fit the height."""
    wide: bool = False
    verbose: bool = False
    """Whether notes are shown in full."""
    height: int = HEIGHT
    path: str | None = None
    """The path, for a shell, that commands name; None if they are not about that path alone."""

    @property
    def room(self) -> int:
        """Number of columns to the right of the labels."""
        return (self.width or PIPE_WIDTH) - INDENT

    def wrapped(self, text: str, style: str = "", *, indent: int = 0) -> list[Text]:
        return [Text(line, style) for line in wrap(text, indent, self.width)]


def screen(program: Program, layout: Layout, *, all_spaces: bool = True) -> list[Text]:
    """Return the lines of the screen; `all_spaces` is False if one memory space was selected."""
    overview, fits, problems, advice = program[:4]
    top = header(overview.source, overview.module, problems, layout.width) + _missing(overview, layout)
    if fits is not None or len(overview.reserved) > 1:
        top += [Text(), *verdict_lines(overview.device_total, overview.reserved, fits, layout.width)]
        top += _advice(advice, fits, layout.width, layout.path)
    used = [s for s in overview.spaces if s["peak"] or (s["peak"] is None and s["reserved"])]
    if used:
        top += [Text(), *_space(overview, used[0], fits, layout)]
    notes = note_lines(_notes(overview, fits, used, all_spaces=all_spaces), layout.width, verbose=layout.verbose)
    end = [Text(), *notes] if notes else []
    others = _other_spaces(overview, used[1:], layout)
    room = layout.height - len(top) - len(others) - (0 if layout.verbose else len(end))
    return top + (_contents(overview, used[0], room, layout) if used else []) + others + end


def _advice(rows: Sequence[Row], fits: Fits | None, width: int | None, path: str | None = None) -> list[Text]:
    """Return a line for each intervention, and the command that says more."""
    if not rows or fits is None:
        return []
    doubts = [", or it costs memory" if row["lower"] < 0 else "" for row in rows]
    saved = [f"{saving(row['lower'], row['upper'])} less{doubt}" for row, doubt in zip(rows, doubts, strict=True)]
    texts = [one_line(f"{_place(row)}: {text}") for row, text in zip(rows, saved, strict=True)]
    texts = [shorten(text, width and width - INDENT) for text in texts]
    lead, command = "how, and what else helps:", f"xlamem advise {path or 'PATH'}{_budget(fits)}"
    if not _fits_line(command, width):
        command = f"xlamem advise PATH{_budget(fits)}"
    together = f"{lead} {command}"
    more = [together] if _fits_line(together, width) else [lead, command]
    return [field("" if i else "advice", text) for i, text in enumerate([*texts, *((line, "dim") for line in more)])]


def _fits_line(text: str, width: int | None) -> bool:
    return width is None or INDENT + len(text) <= width


def _place(row: Row) -> str:
    """Return the kind of an intervention and where it is."""
    where = row["function"] or row["argument"] or row["scope"] or ""
    return f"batch of `{where}`" if row["kind"] == "batch" and where else f"{row['kind']} {where}".strip()


def _budget(fits: Fits) -> str:
    """Return the option of `xlamem advise` for the memory that is available, if any is."""
    if fits.available <= 0 or fits.fits:
        return ""
    if fits.device and fits.available == fits.capacity:
        return f" --device {fits.device}"
    return f" --budget {budget_text(fits.available)}"


def budget_text(available: int) -> str:
    """Return a size for a command line, rounded down."""
    text = size(available).replace(" ", "")
    return text if parse_bytes(text) <= available else f"{available}B"


def _missing(overview: Overview, layout: Layout) -> list[Text]:
    if overview.has_live_ranges:
        return []
    return layout.wrapped(without_live_ranges(overview.module) if overview.spaces else NO_ALLOCATIONS, "yellow")


# -- the first memory space ----------------------------------------------------------------------


def _space(overview: Overview, space: Row, fits: Fits | None, layout: Layout) -> list[Text]:
    """Return the name of a memory space, what is reserved, the peak, and the chart."""
    only_space = list(overview.reserved) == [space_name(space)]
    lines = [Text(space_name(space), "bold")]
    lines += _amounts(overview, space, layout.width, must_fit=only_space and fits is None)
    if space["in_device_memory"] and (reason := bill_line(overview.bill)):
        lines += [field("" if i else "bill", line) for i, line in enumerate(wrap(reason, INDENT, layout.width))]
    if space["peak"]:
        capacity = fits.available if fits is not None and only_space else None
        lines += _chart(overview, space, capacity, layout)
    return lines


def _amounts(overview: Overview, space: Row, width: int | None, *, must_fit: bool) -> list[Text]:
    reserved, peak = align([[size(n), f"({n:,} bytes)"] for n in (space["reserved"], space["peak"] or 0)], {1})
    lines = [field("reserved", (reserved, "bold"), "  must fit" if must_fit else "")]
    if space["peak"] is None:
        return lines
    steps = _steps(overview, space)
    if INDENT + len(peak) + 2 + len(steps) > (width or sys.maxsize):
        return [*lines, field("peak", (peak, "bold")), field("", steps)]
    return [*lines, field("peak", (peak, "bold"), f"  {steps}")]


def _steps(overview: Overview, space: Row) -> str:
    """Return the steps of the first plateau, and how many plateaus there are."""
    first, last = space["first_step"], space["last_step"]
    steps = f"at step {first:,}" if first == last else f"at steps {first:,}-{last:,}"
    plateaus = f", {space['plateaus']:,} plateaus" if space["plateaus"] > 1 else ""
    return f"{steps} of {number(overview.module['schedule_length'])}{plateaus}"


def _chart(overview: Overview, space: Row, capacity: int | None, layout: Layout) -> list[Text]:
    """The bytes in use over the schedule, with the capacity if it is near.

    It begins at 0, or at what is in use at every step where that is most of the peak.
    """
    peak = space["peak"]
    capacity = capacity if capacity is not None and 0 < capacity <= 2 * peak else None
    fixed = sum(n for category, n in space["categories"].items() if category != "temp")
    floor = fixed if capacity is None and 2 * fixed > peak > fixed else 0
    usage = overview.usage[space["memory_space"], space["page"]]
    chart = usage_chart(
        usage, space["first_step"], floor=floor, capacity=capacity, rows=CHART_ROWS, width=layout.room
    )
    return [field("" if i else "in use", line) for i, line in enumerate(chart)]


# -- scopes and buffers --------------------------------------------------------------------------


def _contents(overview: Overview, space: Row, room: int, layout: Layout) -> list[Text]:
    """Return the scopes and the largest buffers of a memory space, in `room` lines."""
    if space["peak"] is None:
        return _all_buffers(space, room, layout)
    members = overview.members[space["memory_space"], space["page"]]
    by_function = have_functions_only(members)
    root = scope_tree(folded_scopes(members, functions=by_function))
    buffers = _largest(overview, space, MAX_BUFFERS if layout.limit is None else layout.limit, layout)
    n = min(MAX_SCOPES, max(room // 2, room - 2 - len(buffers)))
    lines = tree_lines(fold_scopes(root, n), root.bytes, layout.width)
    step = f"at step {space['first_step']:,}"
    shown = buffers if layout.limit is not None else buffers[: max(1, room - len(lines) - 2)]
    title = field("functions", (step, "dim")) if by_function else field("scopes", (f"{step}, layers folded", "dim"))
    return [title, *lines, *_titled(shown, f"buffers {step}")]


def _titled(lines: list[Text], title: str) -> list[Text]:
    return [field("largest", (title, "dim")), *lines] if lines else []


def _largest(overview: Overview, space: Row, n: int, layout: Layout) -> list[Text]:
    """Return the lines of the n largest groups of like buffers, without those with a very small share."""
    groups = like_buffers(overview.members[space["memory_space"], space["page"]], n)
    least = 0 if layout.wide else MIN_SHARE * space["peak"]
    groups = [g for i, g in enumerate(groups) if i == 0 or g["bytes"] >= least]
    return group_lines(groups, layout.width, wide=layout.wide)


def _all_buffers(space: Row, room: int, layout: Layout) -> list[Text]:
    """Return the largest buffers of a dump without live ranges, on two lines each."""
    n = max(1, (room - 1) // 2) if layout.limit is None else layout.limit
    buffers = [b for b in space["buffers"].slice(0, n).to_pylist() if b["bytes"]]
    lines = buffer_lines(buffers, layout.width, wide=layout.wide)
    return _titled(lines, "buffers of all steps (not live together)")


# -- the other memory spaces ---------------------------------------------------------------------


def _other_spaces(overview: Overview, spaces: list[Row], layout: Layout) -> list[Text]:
    """Return a line for each memory space, the largest with their largest buffers; one for all of a few bytes."""
    least = 0 if layout.wide else MIN_SHARE * max((s["peak"] or 0 for s in overview.spaces), default=0)
    large = [s for s in spaces if (s["peak"] or s["reserved"]) >= least]
    lines = []
    for i, space in enumerate(large):
        lines.append(_other_space(overview, space, layout))
        if space["peak"] and i < N_OTHER_SPACES:
            lines += _largest(overview, space, N_OTHER_BUFFERS if layout.limit is None else layout.limit, layout)
    if small := ", ".join(f"{space_name(s)} {size(s['peak'])}" for s in spaces if s not in large):
        lines += layout.wrapped(f"also: {small}", "dim")
    return [Text(), *lines] if lines else []


def _other_space(overview: Overview, space: Row, layout: Layout) -> Text:
    name = Text(space_name(space).ljust(INDENT), "bold")
    if space["peak"] is None:
        return Text.assemble(name, f"{size(space['reserved'])} reserved")
    usage = overview.usage[space["memory_space"], space["page"]]
    line = Text.assemble(name, (size(space["peak"]).ljust(SIZE_WIDTH), "bold"))
    steps = f"  {_steps(overview, space)}"
    room = (layout.width or sys.maxsize) - len(line) - len(steps)
    line.append(sparkline(usage, max(1, min(SPARKLINE_WIDTH, room))), "cyan").append(steps)
    reserved = f", {size(space['reserved'])} reserved"
    return line if len(line) + len(reserved) > (layout.width or sys.maxsize) else line.append(reserved)


# -- notes ---------------------------------------------------------------------------------------


def _notes(overview: Overview, fits: Fits | None, used: list[Row], *, all_spaces: bool) -> list[Note]:
    notes = verdict_notes(fits, overview.module["platform"])
    if all_spaces and (printed := _printed_peak(overview)):
        notes.append(Note("XLA prints another peak", printed))
    if stacked := _stacked(overview, used):
        text = STACKED.format(shape_text(stacked, wide=False), number(stacked["iterations"]))
        notes.append(Note("stacked buffers", text))
    if text := _rematerialized(overview, used):
        notes.append(Note("XLA rematerializes", text))
    if _lacks_names(overview, used):
        notes.append(Note("buffers have no names", NO_NAMES))
    unused = [s for s in overview.spaces if s not in used]
    if names := ", ".join(space_name(s) for s in unused):
        reserved = sum(s["reserved"] for s in unused)
        text = f"nothing is ever in use in {names}" + (f", with {size(reserved)} reserved" if reserved else "")
        notes.append(Note(f"{names} unused", text))
    return notes


def _lacks_names(overview: Overview, spaces: Sequence[Row]) -> bool:
    """Return whether PyTorch/XLA compiled the program without op_names, so that no buffer at the peak has one."""
    found = [overview.members[key] for s in spaces if (key := (s["memory_space"], s["page"])) in overview.members]
    is_torch = (overview.module["module_name"] or "").startswith(TORCH_MODULE)
    return is_torch and any(len(m) for m in found) and not any(pc.any(pc.is_valid(m["op_name"])).as_py() for m in found)


def _rematerialized(overview: Overview, spaces: Sequence[Row]) -> str:
    """Return a sentence about the buffers at the peak of the first space that XLA rematerializes, if there are any."""
    members = overview.members.get((spaces[0]["memory_space"], spaces[0]["page"])) if spaces else None
    if members is None:
        return ""
    names = pc.cast(members["instruction"], pa.string())
    clones = pc.filter(members["bytes"], pc.fill_null(pc.match_substring_regex(names, CLONE), False))
    if not len(clones):
        return ""
    verb = "is" if len(clones) == 1 else "are"
    total = size(pc.sum(clones).as_py())
    return f"{count(len(clones), 'buffer')} at the peak, {total}, {verb} {REMATERIALIZED}"


def _stacked(overview: Overview, spaces: Sequence[Row]) -> Row | None:
    """Return the largest buffer at the peak of the first of these memory spaces that has one with slices of a loop."""
    for space in spaces:
        if (members := overview.members.get((space["memory_space"], space["page"]))) is not None:
            rows: list[Row] = pc.filter(members, pc.is_valid(members["iterations"])).slice(0, 1).to_pylist()
            if rows:
                return rows[0]
    return None


def _printed_peak(overview: Overview) -> str:
    """Return a sentence about the peak that XLA prints, if it differs."""
    computed, printed = overview.peak_together, overview.module["printed_peak_bytes"]
    if printed is None or computed is None:
        return ""
    peak, step = computed
    printed_step = overview.module["printed_peak_time"]
    if printed == peak == overview.in_use(printed_step):
        return ""
    amounts = [size(printed), size(peak)]
    if amounts[0] == amounts[1]:
        amounts = [f"{printed:,} bytes", f"{peak:,} bytes"]
    return (
        f"for all memory spaces together, XLA prints a peak of {amounts[0]} at step {printed_step:,}; "
        f"xlamem computes {amounts[1]} at step {step:,} (see xlamem explain)"
    )
