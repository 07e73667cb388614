"""Compare a program with its baseline: growth, improvement, and another compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..compare.compiler import (
    FOR_CHIP,
    OTHER_FORMAT,
    changed_flags,
    formats_exclude_each_other,
    other_changelist,
    other_chip,
)
from ..compare.context import listed
from ..compare.verdict import signed
from ..compare.wording import relative
from ..formatting import size
from .amounts import Amount
from .config import Budget, Config, Policy
from .entry import Entry
from .finding import Finding
from .result import FAILED, NOT_KNOWN, NOTE, PASSED, WARNING

FLOOR = 64 << 10
"""Growth of at most so many bytes is none: harmless edits move sizes by a few cells of an arena."""
FLOOR_SHARE = 1000
"""Growth of at most one part in so many is none."""

NUMBERS = ("device_total", "peak")
STATUS_OF_POLICY = {"fail": FAILED, "warn": WARNING, "bless": NOTE}


def floor(size_before: int) -> int:
    """Return the change of a size that does not count: 64 KiB or 0.1 %, whichever is larger."""
    return max(FLOOR, size_before // FLOOR_SHARE)


def growth_findings(
    base: Entry, now: Entry, budgets: Sequence[Budget], config: Config, other: str = ""
) -> Iterator[Finding]:
    """Yield the findings of a program with known numbers against its baseline.

    Each budget with `growth` applies; without one, no growth is allowed. If the compiler or its flags differ, their
    policy decides what growth means. `other` names the program of the baseline if it is another one.
    """
    changes = toolchain_changes(base, now)
    policies = [config.compiler_change if rule == "compiler" else config.flags_change for rule, _ in changes]
    policy: Policy = min(policies, key=("fail", "warn", "bless").index, default="fail")
    limits: list[tuple[int | None, Amount | None]] = [(b.number, b.growth) for b in budgets if b.growth is not None]
    for number in NUMBERS:
        for budget, limit in limits or [(None, None)]:
            finding = _growth(number, getattr(base, number), getattr(now, number), limit, other)
            if finding.status == FAILED and changes:
                text = f"{finding.message}, with {_other(changes)}"
                finding = finding._replace(status=STATUS_OF_POLICY[policy], message=text)
            yield finding._replace(budget=budget)
    for rule, text in changes:
        masks = policy == "warn"
        more = "; growth only warns until the baseline is blessed" if masks else ""
        yield Finding(rule, WARNING if masks else NOTE, text + more)


def toolchain_changes(base: Entry, now: Entry) -> list[tuple[str, str]]:
    """Return the rule and a clause for another version of the compiler and for other flags, where both are known."""
    found = []
    if (text := other_chip(base.chip, now.chip)) or (text := other_changelist(base.changelist, now.changelist)):
        found.append(("compiler", text))
    elif formats_exclude_each_other(set(base.format), set(now.format)):
        found.append(("compiler", OTHER_FORMAT))
    if base.flags is not None and now.flags is not None and (texts := changed_flags(base.flags, now.flags)):
        found.append(("flags", f"flag{'s' if len(texts) > 1 else ''} {listed(texts)}"))
    return found


def _other(changes: list[tuple[str, str]]) -> str:
    names = {"compiler": "another version of the compiler", "flags": "other flags"}
    return " and ".join("another chip" if text.startswith(FOR_CHIP) else names[rule] for rule, text in changes)


def _growth(number: str, before: int | None, after: int | None, limit: Amount | None, other: str) -> Finding:
    """Compare a number with that of the baseline."""
    label = "peak" if number == "peak" else "what must fit"
    if before is None or after is None:
        side = "the baseline" if before is None else "the dump"
        return Finding("growth", NOT_KNOWN, f"{label}: {side} has no live ranges", number, after)
    allowed = max(floor(before), limit.of(before) if limit else 0)
    numbers = number, after, before + allowed, before, limit.text if limit else None
    has_grown = after - before > allowed
    if other:
        text = f"{label}: {size(after)}, {_compared(after - before)} {other}"
    elif has_grown:
        text = f"{label} grew by {change_text(before, after)} to {size(after)}; at most {size(allowed)} is allowed"
    else:
        text = f"{label}: {size(after)}, {signed(after - before)} since the baseline"
    return Finding("growth", FAILED if has_grown else PASSED, text, *numbers)


def _compared(change: int) -> str:
    return f"{size(abs(change))} {'more' if change > 0 else 'less'} than" if change else "as much as"


def growth_if_renamed(device_total: int | None, peak: int | None, now: Entry) -> str:
    """Return a clause for the numbers of a program that are larger than these beyond the floor; empty if none is."""
    if device_total is None:
        return "it is not known whether it grew"
    pairs = ("what must fit", device_total, now.device_total), ("peak", peak, now.peak)
    known = [(label, a, b) for label, a, b in pairs if a is not None and b is not None]
    return " and ".join(f"{label} grew by {change_text(a, b)}" for label, a, b in known if b - a > floor(a))


def change_text(before: int, after: int) -> str:
    """Return a change in bytes and in percent, without a sign."""
    share = relative(before, after).lstrip("+-")
    return f"{size(abs(after - before))}{f' ({share})' if share else ''}"


def improvements(base: Entry, now: Entry) -> list[str]:
    """Return a clause for each number that fell beyond the floor; none if another grew beyond it."""
    pairs = [(n, getattr(base, n), getattr(now, n)) for n in NUMBERS]
    known = [(n, a, b) for n, a, b in pairs if a is not None and b is not None]
    if any(b - a > floor(a) for _, a, b in known):
        return []
    label = {"device_total": "what must fit", "peak": "peak"}
    return [f"{label[n]} fell by {change_text(a, b)} to {size(b)}" for n, a, b in known if a - b > floor(a)]


def tightened(base: Entry, now: Entry) -> Entry:
    """Return the entry of a program that improved; a number that grew within the floor stays that of the baseline."""
    peak = now.peak if base.peak is None or now.peak is None else min(base.peak, now.peak)
    return replace(now, device_total=min(base.device_total, now.device_total), peak=peak)
