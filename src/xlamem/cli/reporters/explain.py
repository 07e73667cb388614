"""The screen of `xlamem explain`: the numbers of each memory space, then those of all together and JAX's."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rich.text import Text

from ...compute import main_first
from ...dump import Dump
from ...formatting import visible, wrap, wrap_items
from .header import header
from .problems import describe_problems

Row = dict[str, Any]
Causes = dict[tuple[str, int | None, int | None], list[Row]]

NAME_WIDTH = 20
JAX_NAME_WIDTH, JAX_NUMBER_WIDTH = 34, 15
JAX = "jax."
"""Prefix of the fields of JAX's memory_analysis()."""
ALWAYS_SHOWN = ("reserved", "peak", "peak_together", "device_total")
"""Numbers that get separate lines even if they equal the peak."""


def screen(dump: Dump, numbers: list[Row], causes: list[Row], width: int | None) -> list[Text]:
    """Return the lines of the screen."""
    (module,) = dump.modules.to_pylist()
    by_number: Causes = defaultdict(list)
    for cause in causes:
        by_number[_key(cause)].append(cause)
    digits = max((len(f"{n['bytes']:,}") for n in numbers if n["bytes"] is not None), default=1)
    lines = header(dump.source, module, describe_problems(dump), width)
    for space, rows in _by_space(numbers):
        lines += [Text(), Text(space or "all memory spaces together", "bold")]
        lines += _space(rows, by_number, digits, width)
    return lines + _memory_analysis([n for n in numbers if n["name"].startswith(JAX)], digits)


def _key(row: Row) -> tuple[str, int | None, int | None]:
    return row["name"], row["color"], row["page"]


def _by_space(numbers: list[Row]) -> list[tuple[str | None, list[Row]]]:
    """Group numbers by memory space, main memory first, and omit empty spaces."""
    groups: dict[str | None, list[Row]] = defaultdict(list)
    for n in numbers:
        if not n["name"].startswith(JAX):
            groups[n["memory_space"]].append(n)
    together = groups.pop(None, [])
    spaces = sorted(groups, key=main_first)
    used: list[tuple[str | None, list[Row]]] = [(s, groups[s]) for s in spaces if any(n["bytes"] for n in groups[s])]
    return used + ([(None, together)] if together else [])


def _space(numbers: list[Row], causes: Causes, digits: int, width: int | None) -> list[Text]:
    """Return lines for each number. If the width is limited, numbers that equal the peak are only listed by name."""
    equal = [n["name"] for n in numbers if n["difference"] == 0 and n["name"] not in ALWAYS_SHOWN]
    if width is None:
        equal = []
    lines = []
    for n in numbers:
        if n["name"] not in equal:
            lines += _number(n, causes[_key(n)], digits, width)
    names = wrap_items(equal, NAME_WIDTH + 2, width)
    return lines + [Text(f"  {'' if i else 'equal to the peak':<{NAME_WIDTH}}{line}") for i, line in enumerate(names)]


def _number(n: Row, causes: list[Row], digits: int, width: int | None) -> list[Text]:
    amount = "?" if n["bytes"] is None else f"{n['bytes']:,}"
    difference = f"{n['difference']:+,}" if n["difference"] else ""
    line = Text("  ").append(n["name"].ljust(NAME_WIDTH), "bold" if n["name"] == "reserved" else "")
    line.append(f"{amount.rjust(digits)}  ").append(difference.rjust(digits + 1), "yellow")
    line.append("" if n["time"] is None else f"  step {n['time']:,}", "dim")
    line.rstrip()
    definition = "; ".join(filter(None, [visible(n["definition"]), _basis(n)]))
    lines = [line, *(Text(f"      {text}", "dim") for text in wrap(definition, 6, width))]
    return lines + [Text(f"        {c['cause']} {c['bytes']:+,}", "dim") for c in causes]


def _basis(n: Row) -> str:
    return f"inferred, matches {n['n_equal']} of {n['n_compared']} dumps" if n["basis"] == "inferred" else ""


def _memory_analysis(fields: list[Row], digits: int) -> list[Text]:
    """Return JAX's fields, without those about the host that are 0."""
    lines = [_field(n, digits) for n in fields if n["bytes"] or not n["name"].startswith(f"{JAX}host_")]
    title = Text("JAX's memory_analysis(), as far as it follows from the dump", "bold")
    return [Text(), title, *lines] if fields else []


def _field(n: Row, digits: int) -> Text:
    name = n["name"].removeprefix(JAX) if n["releases"] is None else f"  {n['releases']}"
    amount = "not in the dump" if n["bytes"] is None else f"{n['bytes']:,}"
    basis = f"  {_basis(n)}" if _basis(n) else ""
    return Text.assemble("  ", name.ljust(JAX_NAME_WIDTH), amount.rjust(max(digits, JAX_NUMBER_WIDTH)), (basis, "dim"))
