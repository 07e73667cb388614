"""The screen of `xlamem bill`: the accounts of the device and of each memory space."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from rich.text import Text

from ...compute import Packing
from ...compute.bill_wording import IN_USE, LABELS, accounts_of, details
from ...compute.wording import NO_ALLOCATIONS, describe_problems
from ...dump import Dump
from ...formatting import count, number, percent, size, wrap
from .header import header

Row = dict[str, Any]

LABEL_WIDTH, SIZE_WIDTH, BYTES_WIDTH, SHARE_WIDTH = 24, 11, 17, 9
INDENT = 4
MIN_SHARE = 0.001
"""Minimum share of the largest account for an account to be listed in full."""


def screen(dump: Dump, rows: list[Row], packings: list[Packing] | None, width: int | None) -> list[Text]:
    """Return the lines of the screen, with the packings if they were searched for."""
    (module,) = dump.modules.to_pylist()
    lines = header(dump.source, module, describe_problems(dump), width)
    accounts = accounts_of(rows)
    largest = max((sum(r["bytes"] for r in account) for account in accounts), default=0)
    folded = []
    for account in accounts:
        total = sum(r["bytes"] for r in account)
        if total < MIN_SHARE * largest:
            folded.append(f"{_account_name(account[0])} {size(total)}")
        else:
            lines += [Text(), *_account(account, total, module, width)]
    if folded:
        lines += [Text(), *_dim(f"Smaller memory spaces: {', '.join(folded)}", 0, width)]
    if not accounts:
        lines += [Text(line, "yellow") for line in wrap(NO_ALLOCATIONS, 0, width)]
    return lines + ([] if packings is None else [Text(), *_packing_lines(packings, largest, width)])


def _account_name(row: Row) -> str:
    return f"{row['account']} page {row['page']}" if row["page"] else str(row["account"])


# -- one account ---------------------------------------------------------------------------------


def _account(account: list[Row], total: int, module: Row, width: int | None) -> list[Text]:
    """Return the lines of an account: its total, the lines that are in use, and the others."""
    step = account[0]["step"]
    when = "" if step is None else f"  at step {step:,} of {number(module['schedule_length'])}, its peak"
    lines = [Text.assemble((_account_name(account[0]), "bold"), f"  {size(total)}", (when, "dim"))]
    in_use = [r for r in account if r["line"] in IN_USE]
    rest = [r for r in account if r["line"] not in IN_USE]
    for name, group in groupby(in_use, key=lambda r: r["line"]):
        lines += _line(name, list(group), total, width)
    if rest or step is not None:
        lines.append(_amount("in use", sum(r["bytes"] for r in in_use), total, "bold"))
    for name, group in groupby(rest, key=lambda r: r["line"]):
        lines += _line(name, list(group), total, width)
    return [*lines, _amount("must fit" if account[0]["memory_space"] is None else "reserved", total, total, "bold")]


def _line(name: str, rows: list[Row], total: int, width: int | None) -> list[Text]:
    """Return a line of the account, its parts unless they are small, and what is known about its buffers."""
    lines = [_amount(LABELS.get(name, name), sum(r["bytes"] for r in rows), total)]
    parts = [(part, list(group)) for part, group in groupby(rows, key=lambda r: r["part"])]
    largest = max(parts, key=lambda p: sum(r["bytes"] for r in p[1]))
    if len(parts) == 1 or all(_is_small(group, total) for part, group in parts if part != largest[0]):
        return lines + _details(largest[1], INDENT, width)
    for part, group in parts:
        lines.append(_amount(f"  {LABELS.get(part, part)}", sum(r["bytes"] for r in group), total, "dim"))
        lines += _details(group, INDENT + 2, width)
    return lines


def _details(rows: list[Row], indent: int, width: int | None) -> list[Text]:
    """Return lines about the buffers of one line and part of an account."""
    return [text for level, sentence in details(rows) for text in _dim(sentence, indent + 2 * level, width)]


def _is_small(rows: list[Row], total: int) -> bool:
    return bool(sum(r["bytes"] for r in rows) < MIN_SHARE * total)


def _amount(label: str, n: int, total: int, style: str = "") -> Text:
    amounts = f"{size(n):>{SIZE_WIDTH}}{n:>{BYTES_WIDTH},}{percent(n, total):>{SHARE_WIDTH}}"
    return Text.assemble("  ", (label.ljust(LABEL_WIDTH), style), (amounts, "" if style == "dim" else style))


def _dim(text: str, indent: int, width: int | None) -> list[Text]:
    return [Text(" " * indent + line, "dim") for line in wrap(text, indent, width)]


# -- packings ------------------------------------------------------------------------------------


def _packing_lines(packings: list[Packing], largest: int, width: int | None) -> list[Text]:
    """Return a line about each packing of a temp allocation that is not small."""
    if not packings:
        return [Text("nothing to pack: no temporaries, or too many of them")]
    lines = [Text("packing of the temporaries", "bold")]
    for p in packings:
        if p.size >= MIN_SHARE * largest:
            lines += [Text(f"  {line}") for line in wrap(_packing(p), 2, width)]
    return lines


def _packing(p: Packing) -> str:
    """Say which packing is better, and how much any packing could still save."""
    name = f"{p.memory_space} page {p.page}" if p.page else p.memory_space
    least = "no packing needs less" if p.is_optimal else f"no packing needs less than {size(p.lower_bound)}"
    if p.size - p.lower_bound < MIN_SHARE * p.size:
        return f"{name}: {size(p.size)} by the compiler; no packing needs less than {size(p.lower_bound)}"
    if p.found < p.size:
        saved = f"{size(p.size - p.found)} less than the {size(p.size)} of the compiler"
        return f"{name}: {size(p.found)} by the best packing found, {saved}; {least}"
    return f"{name}: {size(p.size)} by the compiler; none of {count(p.attempts, 'packing')} tried is better; {least}"
