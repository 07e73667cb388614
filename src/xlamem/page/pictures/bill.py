"""The bill: why so much memory must fit, as one bar and its lines."""

from __future__ import annotations

from ...formatting import percent, size
from ..model import Account, BillLine, Program
from .svg import LEFT, RIGHT, SMALL, Drawing, cut_off, fitted, heading, text_width

BAR = 30
"""Height of the bar."""
ROW = 21
AMOUNT, SHARE = LEFT + 248, LEFT + 308
"""Right edges of the bytes and of their shares."""
NOTE = SHARE + 24

MIN_PART = 0.03
"""Minimum share of a line of the parts that are named beside it."""
COLORS = {
    "parameters": "c-parameter",
    "donated": "c-donated",
    "outputs": "c-live-out",
    "constants": "c-constant",
    "temporaries": "c-temp",
}
"""Colors of the lines that are in use; the others are hatched."""
HATCHES = {"alignment": "/", "another_step": "\\", "packing": "x"}
SPACING = 6
"""Distance of the lines of a hatch."""


def draw_bill(d: Drawing, program: Program, y: float) -> float:
    """Draw the first account of the bill below y, and return where it ends."""
    if not program.bill:
        y = heading(d, y, "Bill")
        d.text(LEFT, y + 14, "The dump lists no allocations.", fill="muted")
        return y + 28
    account = program.bill[0]
    y = heading(d, y, "Bill", _note(account))
    y = _bar(d, account, y) + 8
    for line in account.lines:
        if line.bytes and line.in_use:
            y = _row(d, line, account.total, y)
    y = _sum(d, "in use at the peak" if account.step is not None else "in use", account.in_use, account.total, y)
    for line in account.lines:
        if line.bytes and not line.in_use:
            y = _row(d, line, account.total, y)
    if account.in_use < account.total:
        name = "must fit" if account.account == "device_total" else "reserved"
        y = _sum(d, name, account.total, account.total, y)
    return y + 6


def _note(account: Account) -> str:
    what = "what must fit into the device" if account.account == "device_total" else f"memory space {account.account}"
    page = f" page {account.page}" if account.page else ""
    return f"{what}{page}" + ("" if account.step is None else f", at step {account.step:,}")


def _bar(d: Drawing, account: Account, y: float) -> float:
    x = float(LEFT)
    for line in account.lines:
        width = (RIGHT - LEFT) * line.bytes / max(account.total, 1)
        if width >= 0.3:
            _segment(d, line, x, y, width, BAR)
            if width > text_width(line.label, SMALL) + 12:
                d.text(x + width / 2, y + 19, line.label, size=SMALL, anchor="middle", halo=line.line in HATCHES)
        x += width
    return y + BAR


def _segment(d: Drawing, line: BillLine, x: float, y: float, width: float, height: float) -> None:
    """Draw a box in the color or with the hatch of a line of the bill."""
    gap = 1 if width > 3 else 0
    if line.in_use:
        d.rect(x, y, width - gap, height, COLORS.get(line.line, "c-temp"))
        return
    d.rect(x, y, width - gap, height, "map-fixed")
    directions = {"/": (1,), "\\": (-1,), "x": (1, -1)}[HATCHES.get(line.line, "x")]
    if lines := "".join(hatch(x, y, width - gap, height, direction) for direction in directions):
        d.path(lines, stroke="p-unknown")


def hatch(x: float, y: float, width: float, height: float, direction: int) -> str:
    """Return the path of diagonal lines in a box, which rise to the right for 1 and to the left for -1."""
    parts, c = [], SPACING / 2
    while c < width + height:
        # On the line from (c, top) to (c - height, bottom), relative to the box.
        x0, y0 = min(c, width), max(0.0, c - width)
        x1, y1 = max(0.0, c - height), min(c, height)
        if direction < 0:
            x0, x1 = width - x0, width - x1
        parts.append(f"M{x + x0:.1f} {y + y0:.1f}L{x + x1:.1f} {y + y1:.1f}")
        c += SPACING
    return "".join(parts)


def _row(d: Drawing, line: BillLine, total: int, y: float) -> float:
    _segment(d, line, LEFT, y + 5, 12, 11)
    d.text(LEFT + 20, y + 15, fitted(line.label, AMOUNT - LEFT - 100, cut_off))
    _amount(d, line.bytes, total, y)
    d.text(NOTE, y + 15, fitted(_about(line), RIGHT - NOTE, cut_off, SMALL), fill="muted", size=SMALL)
    return y + ROW


def _about(line: BillLine) -> str:
    """Return the largest kinds of buffers of a line, or else what it is."""
    plain = "data", line.label, line.line
    large = [p for p in line.parts if p["bytes"] >= MIN_PART * line.bytes and p["label"] not in plain]
    large.sort(key=lambda part: -part["bytes"])
    texts = [p["note"] or f"{p['label']} {size(p['bytes'])}" for p in large[:2]]
    if not texts:
        return line.note
    both = ", ".join(texts)
    return both if text_width(both, SMALL) <= RIGHT - NOTE else texts[0]


def _sum(d: Drawing, label: str, n: int, total: int, y: float) -> float:
    d.line(LEFT, y + 2, SHARE, y + 2, "line")
    d.text(LEFT + 20, y + 18, label, weight=600)
    _amount(d, n, total, y + 3, weight=600)
    return y + ROW + 6


def _amount(d: Drawing, n: int, total: int, y: float, *, weight: int = 400) -> None:
    d.text(AMOUNT, y + 15, size(n), anchor="end", weight=weight)
    d.text(SHARE, y + 15, percent(n, total), fill="muted", anchor="end")
