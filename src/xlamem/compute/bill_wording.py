"""Labels and sentences about a bill, for the terminal and the page."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any

from ..formatting import count, size
from .selection import main_first

Row = dict[str, Any]

IN_USE = ("parameters", "donated", "outputs", "constants", "temporaries")
"""Lines that are in use at the step of an account."""
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
MOST = 0.9
"""Share of the bytes of buffers that may count as all of them."""
N_KINDS = 4
"""Number of kinds of buffers that are listed below a line."""
MIN_LINE_SHARE = 0.03
"""Minimum share of what must fit for `bill_line` to say something."""


# -- accounts ------------------------------------------------------------------------------------


def accounts_of(rows: list[Row]) -> list[list[Row]]:
    """Group rows of a bill by account, `device_total` first, without a space that is all of it."""
    keys = ("account", "color", "page")
    accounts = [list(group) for _, group in groupby(rows, key=lambda r: [r[k] for k in keys])]
    total = [_amounts(a) for a in accounts if a[0]["memory_space"] is None]
    kept = [a for a in accounts if a[0]["memory_space"] is None or _amounts(a) not in total]
    return sorted(kept, key=lambda a: (a[0]["memory_space"] is not None, main_first(a[0]["account"])))


def _amounts(account: list[Row]) -> list[tuple[Any, ...]]:
    return [(r["step"], r["line"], r["part"], r["kind"], r["bytes"]) for r in account]


# -- what the bytes are --------------------------------------------------------------------------


def details(rows: list[Row]) -> list[tuple[int, str]]:
    """Return texts about the buffers of one line and part of an account, each with its level: 1 if it is in a list."""
    line, part = rows[0]["line"], rows[0]["part"]
    texts = [(0, EXPLANATIONS[key]) for key in (line, part) if key in EXPLANATIONS]
    if part == "one_value":
        texts += [(1, slot_sentence(r, noun)) for r, noun in _largest(rows)]
    elif line == "temporaries" and any(r["kind"] for r in rows):
        texts.append((0, ", ".join(f"{noun} {size(r['bytes'])}" for r, noun in _largest(rows))))
    elif line == "alignment":
        granules = {r["granule"] for r in rows}
        texts += [(0, f"up to the next {short_size(max(granules))}")] if None not in granules else []
    return texts


def _largest(rows: list[Row]) -> list[tuple[Row, str]]:
    """Return the kinds of buffers with at least 1 % of the bytes, and the number of buffers with their noun."""
    least = 0.01 * sum(r["bytes"] for r in rows)
    shown = [r for r in sorted(rows, key=lambda r: -r["bytes"])[:N_KINDS] if r["bytes"] >= least]
    return [(r, counted(r, other=i > 0)) for i, r in enumerate(shown)]


def counted(row: Row, *, other: bool = False) -> str:
    """Return the number of buffers of a row with their noun; `other` for kinds in REST after the first row."""
    prefix = "other " if other and row["kind"] in REST else ""
    singular, plural = KINDS[row["kind"]]
    return count(row["n"], prefix + singular, prefix + plural)


def slot_sentence(row: Row, noun: str) -> str:
    """Say how small the buffers are, and how large their slots, or the part of them that nothing else uses."""
    if row["buffer_size"] is None or row["granule"] is None:
        if row["bytes"] < MOST * row["buffer_bytes"]:
            return f"{noun}, {short_size(row['bytes'])} of their {short_size(row['buffer_bytes'])}"
        slots = f" in slots of {short_size(row['bytes'])}" if row["bytes"] > row["buffer_bytes"] else ""
        return f"{noun}, {short_size(row['buffer_bytes'])}{slots} together"
    slots = f"{'a slot' if row['n'] == 1 else 'slots'} of {short_size(_slot_size(row))}"
    if row["bytes"] < MOST * row["n"] * row["buffer_size"]:
        return f"{noun}, {short_size(row['bytes'])} of {slots}"
    return f"{noun}, {_each(row)} in {slots}"


def _each(row: Row) -> str:
    return f"{short_size(row['buffer_size'])}{' each' if row['n'] > 1 else ''}"


def _slot_size(row: Row) -> int:
    """Return the size of the slots of buffers of one size."""
    return -(-int(row["buffer_size"]) // int(row["granule"])) * int(row["granule"])


def short_size(n: int) -> str:
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
    name, lines = largest_unused(account)
    unused = sum(r["bytes"] for r in lines)
    if not total or unused <= MIN_LINE_SHARE * total:
        return None
    reason = reason_of(name, lines)
    return f"{LABELS.get(name, name)}: {size(unused)} of {size(total)}{f', {reason}' if reason else ''}"


def largest_unused(account: list[Row]) -> tuple[str, list[Row]]:
    """Return the largest line of an account that is not in use at its step, and its rows."""
    lines = {name: [r for r in account if r["line"] == name] for name in ("alignment", "another_step", "packing")}
    name = max(lines, key=lambda n: sum(r["bytes"] for r in lines[n]))
    return name, lines[name]


def reason_of(name: str, rows: list[Row]) -> str:
    """Return what most of the bytes of a line that is not in use are."""
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
        return f"{most} slots of {short_size(slot)} that hold {short_size(held)}"
    return f"{most} slots that nothing else ever uses"


def _part_bytes(rows: list[Row], part: str | None) -> int:
    return sum(r["bytes"] for r in rows if r["part"] == part)


# -- what the lines are --------------------------------------------------------------------------

NOTES = {
    "parameters": "Arguments of the program. They are in memory in full at every step.",
    "donated": "Arguments whose memory the program reuses for its results. It is in use in full at every step.",
    "outputs": "Results of the program. Their memory is reserved in full at every step.",
    "constants": "Constants of the program, in memory in full at every step.",
    "temporaries": "What the program computes on the way: the buffers that are live at this step.",
    "alignment": "Buffers begin at multiples of {}. What is left behind the end of each is of no use to others.",
    "another_step": "At another step, more of this memory is in use. It must be large enough for that step.",
    "packing": "Holes that the placement of the buffers leaves. They are reserved, but not in use at once.",
}
"""What the lines of a bill mean, for people who do not know XLA."""


def line_note(rows: list[Row]) -> str:
    """Return a sentence that explains a line of an account."""
    if rows[0]["line"] == "temporaries" and rows[0]["step"] is None:
        return "What the program computes on the way. Which of it is live at the same time is not known."
    granules = {r["granule"] for r in rows} - {None}
    return NOTES[rows[0]["line"]].format(short_size(max(granules)) if granules else "a granule")
