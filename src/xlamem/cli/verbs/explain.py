"""`xlamem explain`: every published number of a program side by side, and why they differ."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import click

from ... import compute, schema
from ...errors import UsageError
from .. import console
from ..program import MAIN, NEEDED, Row, module_option, one, only, output_options, states, title

if TYPE_CHECKING:
    from rich.text import Text

    from ...dump import Dump

NAME = 34

Causes = dict[tuple[str, int | None, int | None], list[Row]]
"""Rows of explain_causes, by name, color and page."""


@click.command("explain", short_help="Put every published number side by side, and say why they differ.")
@click.argument("path", metavar="PATH")
@output_options(1000, "Numbers shown.")
@module_option
def command(
    path: str, space: str | None, limit: int | None, wide: bool, as_json: bool, as_csv: bool, module: str | None
) -> int:
    """Put the numbers that XLA, JAX, XProf and xlamem call peak, total or reserved for the program in PATH side by
    side, each with its definition, its difference to xlamem's peak, and the causes of that difference.

    Reserved decides whether a program fits; peak is what is in use at once; live is what the program itself needs.
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    dump = one(path, module, NEEDED)
    rows = compute.explain(dump).to_pylist()
    if space is not None:
        names = {s["memory_space"] for s in only(compute.peak(dump).spaces.to_pylist(), space)}
        rows = [r for r in rows if r["memory_space"] in names]
    rows = rows if limit is None else rows[:limit]
    causes: Causes = defaultdict(list)
    for cause in compute.explain_causes(dump).to_pylist():
        causes[_key(cause)].append(cause)
    head = dump.modules.to_pylist()[0]
    if as_json:
        shown = [cause for r in rows for cause in causes.get(_key(r), [])]
        data = {"name": dump.name, "module": head, "numbers": rows, "causes": shown}
        console.out_json({"schema_version": schema.VERSION, **data})
    elif as_csv:
        names_of = [c.name for c in schema.COMPUTED["explain"].columns]
        console.out_csv(names_of, ([row[n] for n in names_of] for row in rows))
    else:
        _print(dump, head, rows, causes, None if wide else console.width())
    return console.FINE


def _key(row: Row) -> tuple[str, int | None, int | None]:
    return row["name"], row["color"], row["page"]


def _print(dump: Dump, head: Row, rows: list[Row], causes: Causes, width: int | None) -> None:
    from rich.text import Text

    texts = title(dump.source, head, width, states(dump))
    spaces = list(dict.fromkeys(r["memory_space"] for r in rows if r["memory_space"] is not None))
    spaces.sort(key=lambda s: s not in MAIN)
    sizes = max((len(f"{r['bytes']:,}") for r in rows if r["bytes"] is not None), default=1)
    for name in [*spaces, None]:
        own = [r for r in rows if r["memory_space"] == name and not r["name"].startswith("jax.")]
        if name is not None and not any(r["bytes"] for r in own):
            continue
        if own:
            texts += [Text(), Text(name or "all memory spaces together", "bold")]
        shown = ("reserved", "peak", "peak_together", "device_total")
        same = [r["name"] for r in own if r["difference"] == 0 and r["name"] not in shown] if width is not None else []
        for r in own:
            if r["name"] not in same:
                texts += _number(r, causes.get(_key(r), []), sizes, width)
        if same:
            lines = console.wrapped(same, 22, width)
            texts += [Text(f"  {'' if i else 'the same as peak':<20}{line}") for i, line in enumerate(lines)]
    jax = [r for r in rows if r["name"].startswith("jax.")]
    if jax:
        texts += [Text(), Text("JAX's memory_analysis(), as far as the text gives it", "bold")]
        for r in jax:
            if r["bytes"] or not r["name"].startswith("jax.host_"):
                texts.append(_jax(r, sizes))
    console.rich_out(*texts, width=width)


def _jax(r: Row, sizes: int) -> Text:
    from rich.text import Text

    name = r["name"].removeprefix("jax.") if r["releases"] is None else f"  {r['releases']}"
    amount = "not in the text" if r["bytes"] is None else f"{r['bytes']:,}"
    return Text.assemble("  ", name.ljust(NAME), amount.rjust(max(sizes, 15)), (_basis(r), "dim"))


def _basis(r: Row) -> str:
    return f"  inferred, equal on {r['n_equal']} of {r['n_compared']} dumps" if r["basis"] == "inferred" else ""


def _number(r: Row, causes: list[Row], sizes: int, width: int | None) -> list[Text]:
    from rich.text import Text

    amount = "?" if r["bytes"] is None else f"{r['bytes']:,}"
    step = "" if r["time"] is None else f"step {r['time']:,}"
    other = "" if not r["difference"] else f"{r['difference']:+,}"
    parts = ["  ", (r["name"].ljust(20), "bold" if r["name"] == "reserved" else ""), amount.rjust(sizes), "  "]
    line = Text.assemble(*parts, (other.rjust(sizes + 1), "yellow"), "  ", (step, "dim"))  # type: ignore[arg-type]
    line.rstrip()
    texts = [line]
    definition = console.visible(r["definition"]) + _basis(r).replace("  ", "; ", 1)
    texts += [Text(f"      {t}", "dim") for t in console.fill(definition, 6, width)]
    return texts + [Text(f"        {c['cause']} {c['bytes']:+,}", "dim") for c in causes]
