"""The screen of `xlamem advise`: interventions with their bounds, the place and what to do."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from ... import kernels as pc
from ...compute import Plan, device_total, enough_alone
from ...compute.callers import shared_lines
from ...compute.one_buffer import calls_to
from ...compute.peaks_by_scope import rematerialized
from ...compute.wording import NO_ADVICE, NO_ADVICE_WITHOUT_STEPS, NO_ALLOCATIONS, describe_problems
from ...dump import Dump
from ...formatting import count, exact_size, file_line, one_line, plain_shape, saving, shorten, shorten_path, size, wrap
from ..options import Output
from .buffers import SIZE_WIDTH, call_text, source_line
from .header import header

Row = dict[str, Any]

MIN_REMATERIALIZED = 0.01
"""Minimum share of what must fit that XLA rematerializes at the peak, or saves by that, to be mentioned."""
N_ROWS = 10
"""Number of interventions without --limit."""
REMATERIALIZES = (
    "XLA rematerializes {} around the peak ({}, .remat): because memory is scarce, it computes {} later or a second "
    "time. Once the program fits, it may not do so; then less is saved than stated, except by a smaller batch."
)
ENOUGH_ALONE = "By the upper bounds, each of the following may be enough alone."
ENOUGH_AND_FREE = "Each of the following changes nothing that is computed, and may be enough alone by its upper bound."
INDENT = 4
MIN_SOURCE = 20
"""Width at which a long source line is not shortened any more, so that names and shapes are."""
STYLES = {"exact": "bold green", "likely": "green", "try": "yellow"}


def screen(dump: Dump, rows: list[Row], plan: Plan | None, output: Output) -> list[Text]:
    """Return the lines of the screen."""
    (module,) = dump.modules.to_pylist()
    lines = header(dump.source, module, describe_problems(dump), output.width)
    total = device_total(dump)
    if total is None:
        return lines + [Text(line, "yellow") for line in wrap(NO_ALLOCATIONS, 0, output.width)]
    lines += [Text(), Text.assemble(("must fit", "bold"), f"  {exact_size(total)}")]
    lines += [Text(line) for line in wrap(_summary(dump, rows, plan, total), 0, output.width)]
    planned = [row for row in rows if row["in_plan"]] if plan and plan.n else rows
    alternatives = enough_alone(rows, plan) if len(planned) < len(rows) else []
    listed = planned + alternatives
    shown = output.head(listed, N_ROWS)
    sites = _call_sites(dump, shown)
    for i, row in enumerate(shown):
        if i == len(planned):
            why = ENOUGH_AND_FREE if plan and plan.is_reached else ENOUGH_ALONE
            lines += [Text(), *(Text(line) for line in wrap(why, 0, output.width))]
        lines += [Text(), *_intervention(row, output.width)]
        if row["rank"] in sites:
            lines.append(Text(" " * INDENT + sites[row["rank"]], "green"))
    if more := len(rows) - len(shown):
        lines += [Text(), Text(f"{count(more, 'other intervention')}: {_how_to_see(plan, listed, shown)}", "dim")]
    if shown and (note := _rematerializes(dump, total)):
        lines += [Text(), *(Text(line) for line in wrap(note, 0, output.width))]
    return lines


def _call_sites(dump: Dump, rows: list[Row]) -> dict[int, str]:
    """Return by rank where code is called that several lines call, such as a helper or a model that is used twice."""
    return _calls_of_helpers(dump, rows) | _different_calls(dump, rows)


def _calls_of_helpers(dump: Dump, rows: list[Row]) -> dict[int, str]:
    """Return the innermost call that is not shared, of source lines that several lines of the model call."""
    of_value = [row for row in rows if row["value_id"] is not None and row["source_file"] and not row["function"]]
    shared = shared_lines(dump.frames) if of_value else set()
    sites: dict[int, str] = {}
    for row in of_value:
        if f"{row['source_file']}:{row['source_line']}" in shared:
            own = (c for c in calls_to(dump, row["value_id"]) if f"{c['file']}:{c['line']}" not in shared)
            if call := next(own, None):
                sites[row["rank"]] = f"called at {call_text(call)}"
    return sites


def _different_calls(dump: Dump, rows: list[Row]) -> dict[int, str]:
    """Return where code is called for which there are several rows."""
    alike: dict[Any, list[Row]] = {}
    for row in rows:
        place = (row[name] for name in ("kind", "action", "scope", "function", "source_file", "source_line"))
        if row["value_id"] is not None:
            alike.setdefault(tuple(place), []).append(row)
    sites: dict[int, str] = {}
    for group in (g for g in alike.values() if len(g) > 1):
        calls = [calls_to(dump, row["value_id"]) for row in group]
        for callers in zip(*calls, strict=False):
            if len({(c["file"], c["line"]) for c in callers}) > 1:
                sites |= {row["rank"]: f"called at {call_text(c)}" for row, c in zip(group, callers, strict=True)}
                break
    return sites


def _rematerializes(dump: Dump, total: int) -> str:
    """Say that less may be saved if XLA rematerializes buffers at the peak, and then no longer does."""
    clones = rematerialized(dump)
    is_main = pc.equal(clones["color"], 0)
    at_peak = pc.filter(clones, pc.and_(is_main, pc.or_(clones["at_peak"], pc.greater(clones["saved"], 0))))
    used = pc.sum(at_peak["size"]).as_py() or 0
    if used < MIN_REMATERIALIZED * total:
        return ""
    n = at_peak.num_rows
    return REMATERIALIZES.format(count(n, "buffer"), size(used), "it" if n == 1 else "them")


def _how_to_see(plan: Plan | None, listed: list[Row], shown: list[Row]) -> str:
    if len(shown) < len(listed) or plan is None:
        return "--limit shows more"
    return "not needed for the budget; listed without it" if plan.is_reached else "listed without a budget"


def _summary(dump: Dump, rows: list[Row], plan: Plan | None, total: int) -> str:
    """Return one sentence about the list."""
    if not dump.live_ranges.num_rows:
        return NO_ADVICE_WITHOUT_STEPS
    if plan is None:
        if not rows:
            return NO_ADVICE
        return "Lower and upper bounds of what each saves. Savings on the same buffers do not add up."
    return _about_plan(plan, total, is_empty=not rows)


def _about_plan(plan: Plan, total: int, *, is_empty: bool) -> str:
    if total <= plan.budget:
        return f"It fits the budget of {size(plan.budget)} already."
    these = "The following saves" if plan.n == 1 else f"These {plan.n} together save"
    left = size(total - plan.saved)
    if plan.is_reached:
        return f"{these} at least {size(plan.saved)}: {left} must fit then, within the budget of {size(plan.budget)}."
    missing = f"{size(total - plan.saved - plan.budget)} more than the budget of {size(plan.budget)}"
    if is_empty:
        return f"{NO_ADVICE} {left} must fit, {missing}."
    if not plan.n:
        return f"Nothing is known to save memory for certain: {left} must fit, {missing}. The following may help."
    return f"{these} at least {size(plan.saved)}, which may not be enough: {left} must fit then, {missing}."


def _intervention(row: Row, width: int | None) -> list[Text]:
    bounds = saving(row["lower"], row["upper"])
    style = STYLES[row["confidence"]]
    head = Text.assemble((f"{row['rank'] + 1:>2}  ", "dim"), (bounds.ljust(2 * SIZE_WIDTH + 4), "bold"))
    head.append(f"  {row['confidence']:<6}", style).append(f"  {row['kind']}", "bold")
    lines = [head, *(Text(" " * INDENT + line) for line in wrap(one_line(row["action"]), INDENT, width))]
    return [*lines, _place(row, width)]


def _place(row: Row, width: int | None) -> Text:
    """Return the buffers, their scope or argument, and the source line of the largest one."""
    what = f"{count(row['n_buffers'], 'buffer')}, {size(row['bytes'])}"
    room = width and max(width - INDENT, 30)
    name = one_line(row["function"] or row["scope"] or row["argument"] or row["instruction"] or "")
    shape = plain_shape(row["shape"])
    least = min(MIN_SOURCE, len(file_line(row["source_file"], row["source_line"], folder=False)))
    source = source_line(row, room and min(room // 2, max(least, room - len(f"{what}{name}{shape}") - 6)))
    room = room and max(9, room - len(what) - len(source) - 6)
    shape = shorten(shape, room and max(9, room // 2, room - len(name)))
    name = shorten_path(name, room and max(9, room - len(shape)))
    text = "  ".join(filter(None, [what, name, shape]))
    return Text.assemble(" " * INDENT, (text, "dim"), ("  " + source if source else "", "green"))
