"""The rules of a budget that need no baseline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..compare.interface import arguments
from ..compute.aliasing import matched
from ..compute.buffer_names import source_columns
from ..compute.capacity import fits, reason_for_doubt
from ..compute.program import Program
from ..compute.requirement import device_total
from ..formatting import count, percent, size
from .amounts import Amount
from .config import Budget
from .entry import Entry, named_bytes, sum_of_lines
from .finding import Finding, of_budget
from .result import FAILED, NOT_KNOWN, PASSED

MIN_ARGUMENT = 1 << 10
"""Arguments of fewer bytes, such as a learning rate of which the loss is the match, need not be donated."""
_SHOWN = 3
NO_LIVE_RANGES = "the dump has no live ranges"


def budget_findings(p: Program, entry: Entry, budget: Budget) -> Iterator[Finding]:
    """Yield the findings of a budget for a program whose numbers are known."""
    for rule in (_device_total, _fits, _peak, _padding, _packing, _donation, _named):
        if finding := rule(p, entry, budget):
            yield of_budget(budget, finding)


def known_total(p: Program) -> int | None:
    """Return what must fit, in bytes, if every allocation is known, whatever else is missing; otherwise None."""
    return None if reason_for_doubt(p.tables) else device_total(p.tables)


def certain_failures(p: Program, total: int, budget: Budget) -> Iterator[Finding]:
    """Yield what fails for certain although the dump is incomplete: limits of what must fit, which is known."""
    for finding in (_total(total, budget), _room(p, total, budget)):
        if finding and finding.status == FAILED:
            yield of_budget(budget, finding)


def _device_total(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    return _total(entry.device_total, budget)


def _total(total: int, budget: Budget) -> Finding | None:
    if budget.device_total is None:
        return None
    return _limited("device_total", "device_total", total, budget.device_total)


def _fits(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    return _room(p, entry.device_total, budget)


def _room(p: Program, total: int, budget: Budget) -> Finding | None:
    """Compare what must fit with the memory of a device."""
    if budget.device is None:
        return None
    result = fits(p.tables, device=budget.device, resident=budget.resident, fraction=budget.fraction)
    available = result.available
    numbers = "device_total", total, available
    where = f"{size(available)} of {budget.device}"
    if result.fits is None:
        return Finding("fits", NOT_KNOWN, f"not known whether it fits: {result.reason}", *numbers)
    if result.fits:
        return Finding("fits", PASSED, f"{size(total)} must fit into {where}", *numbers)
    return Finding("fits", FAILED, f"{size(total)} must fit, {size(total - available)} more than {where}", *numbers)


def _peak(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    if budget.peak is None:
        return None
    if entry.peak is None:
        return Finding("peak", NOT_KNOWN, NO_LIVE_RANGES, "peak", limit=budget.peak)
    return _limited("peak", "peak", entry.peak, budget.peak)


def _padding(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    return _line("padding", budget.padding, entry, sum_of_lines(entry.bill, part="padding"))


def _packing(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    return _line("packing", budget.packing, entry, sum_of_lines(entry.bill, line="packing"))


def _line(rule: str, limit: Amount | None, entry: Entry, value: int) -> Finding | None:
    """Compare a line of the bill with its limit."""
    if limit is None:
        return None
    most = limit.of(entry.device_total)
    if entry.peak is None and value <= most:  # temporaries are not divided into lines
        return Finding(rule, NOT_KNOWN, NO_LIVE_RANGES, rule, limit=most, limit_text=limit.text)
    return _limited(rule, rule, value, most, limit.text, entry.device_total)


def _limited(
    rule: str, number: str, value: int, limit: int, limit_text: str | None = None, whole: int | None = None
) -> Finding:
    """Compare a number with its limit."""
    text = _DONE[number].format(size(value))
    if whole is not None:
        text = f"{text}, {percent(value, whole)} of what must fit"
    allowed = size(limit) if limit_text is None or "%" not in limit_text else f"{limit_text} ({size(limit)})"
    status = PASSED if value <= limit else FAILED
    text += f"; at most {allowed}" if value <= limit else f", {size(value - limit)} more than the limit of {allowed}"
    return Finding(rule, status, text, number, value, limit, limit_text=limit_text)


_DONE = {
    "device_total": "{} must fit",
    "peak": "{} in use at the peak",
    "padding": "{} of padding",
    "packing": "{} lost to packing",
}


class _Undonated(NamedTuple):
    """An argument that could be donated, and the source line of the output that would share its memory."""

    name: str
    bytes: int
    source_file: str | None
    source_line: int | None


def _donation(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    """Require that arguments with the shape and element type of an output that nothing aliases are donated.

    Inexact candidates do not count: whether XLA would alias them depends on more than the dump says.
    """
    if budget.donation is None:
        return None
    found = _undonated(p)
    total = sum(a.bytes for a in found)
    if not found and p.steps is None:  # outputs that share an allocation cannot be told from temporaries
        return Finding("donation", NOT_KNOWN, NO_LIVE_RANGES, "donation", limit=0)
    if not found:
        return Finding("donation", PASSED, "every argument that could be donated is donated", "donation", 0, 0)
    names = ", ".join(a.name for a in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    are = "is" if len(found) == 1 else "are"
    text = f"{count(len(found), 'argument')} of {size(total)} could be donated and {are} not: {names}"
    file, line = next(((a.source_file, a.source_line) for a in found if a.source_file), (None, None))
    return Finding("donation", FAILED, text, "donation", total, 0, source_file=file, source_line=line)


def _undonated(p: Program) -> list[_Undonated]:
    """Return the arguments that could be donated, largest first."""
    own = arguments(p)
    names = dict(zip(own.allocation.tolist(), own.names.to_pylist(), strict=True))
    parameters, outputs, match = matched(p)
    bytes_of = p.allocation_size[parameters.allocation]
    rows = np.flatnonzero(match.exact & (bytes_of >= MIN_ARGUMENT))
    sources = source_columns(p, outputs.value[match.output[rows]])
    found = [
        _Undonated(names[owner], n, file, line)
        for owner, n, file, line in zip(
            parameters.allocation[rows].tolist(), bytes_of[rows].tolist(), sources["source_file"].to_pylist(),
            sources["source_line"].to_pylist(), strict=True,
        )
    ]  # fmt: skip
    return sorted(found, key=lambda a: (-a.bytes, a.name))


def _named(p: Program, entry: Entry, budget: Budget) -> Finding | None:
    if budget.named is None:
        return None
    limit_text = f"{float(100 * budget.named):g} %"
    if entry.peak is None:
        return Finding("named", NOT_KNOWN, NO_LIVE_RANGES, "named", limit_text=limit_text)
    named, total = named_bytes(p)
    least = -int(-budget.named * total // 1)
    text = f"{size(total - named)} of the {size(total)} of temporaries at the peak have no name"
    text += f"; at least {limit_text} must have one"
    status = PASSED if named >= least else FAILED
    return Finding("named", status, text, "named", named, least, limit_text=limit_text)
