"""The screen of `xlamem bill`: the accounts of the device and of each memory space."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from rich.text import Text

from ...compute import Packing, main_first
from ...dump import Dump
from ...formatting import count, number, percent, size, wrap
from .header import header
from .problems import describe_problems

Row = dict[str, Any]

DEVICE_TOTAL = "device_total"
LABEL_WIDTH, SIZE_WIDTH, BYTES_WIDTH, SHARE_WIDTH = 24, 11, 17, 9
INDENT = 4
N_KINDS = 4
"""Number of kinds of buffers that are listed below a line."""
MIN_SHARE = 0.001
"""Minimum share of the largest account for an account to be listed in full."""
MIN_LINE_SHARE = 0.03
"""Minimum share of what must fit for `bill_line` to say something."""

IN_USE = ("parameters", "donated", "outputs", "constants", "temporaries")
LABELS = {"another_step": "another step", "one_value": "slots of one value", "never_covered": "never covered"}
LABELS["never_touched"] = "never touched"

KINDS = {
    "async copy table": ("tuple table of an async copy", "tuple tables of async copies"),
    "collective table": ("tuple table of a collective", "tuple tables of collectives"),
    "tuple table": ("tuple table", "tuple tables"),
    "async copy": ("buffer of an async copy", "buffers of async copies"),
    "activation": ("activation", "activations"),
    "residual of a scan": ("residual of a scan", "residuals of scans"),
    "gradient": ("gradient", "gradients"),
    "collective": ("buffer of a collective", "buffers of collectives"),
    "copy": ("copy", "copies"),
    None: ("buffer", "buffers"),
}
"""Singular and plural of the kinds of buffers."""
REST = ("tuple table", None)
"""Kinds that are defined as the rest."""
EXPLANATIONS = {
    "another_step": "at another step, more cells are in use",
    "one_value": "in slots that nothing else ever uses:",
    "never_touched": "no value is ever placed there, as in memory reserved for the inside of kernels",
    "shared": "used at other steps, by buffers of different sizes",
}


def screen(dump: Dump, rows: list[Row], packings: list[Packing], width: int | None) -> list[Text]:
    """Return the lines of the screen."""
    (module,) = dump.modules.to_pylist()
    lines = header(dump.source, module, describe_problems(dump), width)
    accounts = _accounts(rows)
    largest = max((sum(r["bytes"] for r in account) for account in accounts), default=0)
    folded = []
    for account in accounts:
        total = sum(r["bytes"] for r in account)
        if total < MIN_SHARE * largest:
            folded.append(f"{_name(account[0])} {size(total)}")
        else:
            lines += [Text(), *_account(account, total, module, width)]
    if folded:
        lines += [Text(), *_dim(f"Smaller memory spaces: {', '.join(folded)}", 0, width)]
    if not accounts:
        lines += [Text(), *_dim("no memory is reserved", 0, width)]
    return lines + ([Text(), *_packing_lines(packings, largest, width)] if packings else [])


def _accounts(rows: list[Row]) -> list[list[Row]]:
    """Group rows by account, `device_total` first, without a space that is all of it."""
    keys = ("account", "color", "page")
    accounts = [list(group) for _, group in groupby(rows, key=lambda r: [r[k] for k in keys])]
    total = [_amounts(a) for a in accounts if a[0]["memory_space"] is None]
    kept = [a for a in accounts if a[0]["memory_space"] is None or _amounts(a) not in total]
    return sorted(kept, key=lambda a: (a[0]["memory_space"] is not None, main_first(a[0]["account"])))


def _amounts(account: list[Row]) -> list[tuple[Any, ...]]:
    return [(r["step"], r["line"], r["part"], r["kind"], r["bytes"]) for r in account]


def _name(row: Row) -> str:
    return f"{row['account']} page {row['page']}" if row["page"] else str(row["account"])


# -- one account ---------------------------------------------------------------------------------


def _account(account: list[Row], total: int, module: Row, width: int | None) -> list[Text]:
    """Return the lines of an account: its total, the lines that are in use, and the others."""
    step = account[0]["step"]
    when = "" if step is None else f"  at step {step:,} of {number(module['schedule_length'])}, its peak"
    lines = [Text.assemble((_name(account[0]), "bold"), f"  {size(total)}", (when, "dim"))]
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


def _is_small(rows: list[Row], total: int) -> bool:
    return bool(sum(r["bytes"] for r in rows) < MIN_SHARE * total)


def _amount(label: str, n: int, total: int, style: str = "") -> Text:
    amounts = f"{size(n):>{SIZE_WIDTH}}{n:>{BYTES_WIDTH},}{percent(n, total):>{SHARE_WIDTH}}"
    return Text.assemble("  ", (label.ljust(LABEL_WIDTH), style), (amounts, "" if style == "dim" else style))


def _dim(text: str, indent: int, width: int | None) -> list[Text]:
    return [Text(" " * indent + line, "dim") for line in wrap(text, indent, width)]


# -- what the bytes are --------------------------------------------------------------------------


def _details(rows: list[Row], indent: int, width: int | None) -> list[Text]:
    """Return lines about the buffers of one line and part of an account."""
    line, part = rows[0]["line"], rows[0]["part"]
    texts = [EXPLANATIONS[key] for key in (line, part) if key in EXPLANATIONS]
    lines = [text for sentence in texts for text in _dim(sentence, indent, width)]
    if part == "one_value":
        for r, noun in _largest(rows):
            lines += _dim(_slot_sentence(r, noun), indent + 2, width)
    elif line == "temporaries" and any(r["kind"] for r in rows):
        lines += _dim(", ".join(f"{noun} {size(r['bytes'])}" for r, noun in _largest(rows)), indent, width)
    elif line == "alignment":
        granules = {r["granule"] for r in rows}
        lines += _dim(f"up to the next {_short(max(granules))}", indent, width) if None not in granules else []
    return lines


def _largest(rows: list[Row]) -> list[tuple[Row, str]]:
    """Return the kinds of buffers with at least 1 % of the bytes, and the number of buffers with their noun."""
    least = 0.01 * sum(r["bytes"] for r in rows)
    shown = [r for r in sorted(rows, key=lambda r: -r["bytes"])[:N_KINDS] if r["bytes"] >= least]
    return [(r, count(r["n"], *(_noun(r, i > 0, number) for number in (0, 1)))) for i, r in enumerate(shown)]


def _noun(row: Row, other: bool, number: int) -> str:
    """Return the noun for a kind, singular or plural; "other" kinds are those in REST after the first."""
    return f"{'other ' if other and row['kind'] in REST else ''}{KINDS[row['kind']][number]}"


def _slot_sentence(row: Row, noun: str) -> str:
    """Say how small the buffers are, and how large their slots."""
    if row["buffer_size"] is None or row["granule"] is None:
        slots = f" in slots of {_short(row['bytes'])}" if row["bytes"] > row["buffer_bytes"] else ""
        return f"{noun}, {_short(row['buffer_bytes'])}{slots} together"
    slots = "a slot" if row["n"] == 1 else "slots"
    return f"{noun}, {_each(row)} in {slots} of {_short(_slot_size(row))}"


def _each(row: Row) -> str:
    return f"{_short(row['buffer_size'])}{' each' if row['n'] > 1 else ''}"


def _slot_size(row: Row) -> int:
    """Return the size of the slots of buffers of one size."""
    return -(-int(row["buffer_size"]) // int(row["granule"])) * int(row["granule"])


def _short(n: int) -> str:
    """Return bytes in binary units, without decimals that are 0."""
    text = size(n).replace(".00 ", " ")
    return text.replace(" B", " bytes") if n < 1024 else text


# -- one line for the first screen ---------------------------------------------------------------


def bill_line(rows: list[Row]) -> str | None:
    """Return a sentence about the largest part of `device_total` that is not in use at the peak.

    None if that is at most MIN_LINE_SHARE of it.
    """
    account = [r for r in rows if r["memory_space"] is None]
    total = sum(r["bytes"] for r in account)
    lines = {name: [r for r in account if r["line"] == name] for name in ("alignment", "another_step", "packing")}
    sizes = {name: sum(r["bytes"] for r in group) for name, group in lines.items()}
    name = max(sizes, key=lambda n: sizes[n])
    if not total or sizes[name] <= MIN_LINE_SHARE * total:
        return None
    reason = _reason(name, lines[name])
    return f"{LABELS.get(name, name)}: {size(sizes[name])} of {size(total)}{f', {reason}' if reason else ''}"


def _reason(name: str, rows: list[Row]) -> str:
    """Return what most of the bytes of a line are."""
    if name != "packing":
        return EXPLANATIONS.get(name, "the unused ends of cells")
    total = sum(r["bytes"] for r in rows)
    part, n = max(((r["part"], _part_bytes(rows, r["part"])) for r in rows), key=lambda p: p[1])
    most = "nearly all" if n >= 0.9 * total else "mostly" if 2 * n > total else "partly"
    if part != "one_value":
        return f"{most} memory that {'no value ever uses' if part == 'never_touched' else 'buffers use at other steps'}"
    slots: Counter[tuple[int, int]] = Counter()
    for r in rows:
        if r["part"] == part and r["buffer_size"] is not None and r["granule"] is not None:
            slots[r["buffer_size"], _slot_size(r)] += r["bytes"]
    (held, slot), common = slots.most_common(1)[0] if slots else ((0, 0), 0)
    if held < slot and common >= 0.9 * n:
        return f"{most} slots of {_short(slot)} that hold {_short(held)}"
    return f"{most} slots that nothing else ever uses"


def _part_bytes(rows: list[Row], part: str | None) -> int:
    return sum(r["bytes"] for r in rows if r["part"] == part)


# -- packings ------------------------------------------------------------------------------------


def _packing_lines(packings: list[Packing], largest: int, width: int | None) -> list[Text]:
    """Return a line about each packing of a temp allocation that is not small."""
    lines = [Text("the compiler's packing, or mine?", "bold")]
    for p in packings:
        if p.size >= MIN_SHARE * largest:
            lines += [Text(f"  {line}") for line in wrap(_packing(p), 2, width)]
    return lines


def _packing(p: Packing) -> str:
    """Say which packing is better, and how much any packing could still save."""
    name = f"{p.memory_space} page {p.page}" if p.page else p.memory_space
    least = "no packing needs less" if p.is_optimal else f"no packing needs less than {size(p.lower_bound)}"
    if p.size - p.lower_bound < MIN_SHARE * p.size:
        return f"{name}: the compiler's, {size(p.size)}; no packing needs less than {size(p.lower_bound)}"
    if p.found < p.size:
        saved = f"{size(p.size - p.found)} less than the compiler's {size(p.size)}"
        return f"{name}: mine, {size(p.found)}, is {saved}; {least}"
    return f"{name}: the compiler's, {size(p.size)}: none of {count(p.attempts, 'packing')} is better; {least}"
