"""`xlamem live`: what holds an instant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ... import compute, schema
from ...errors import UsageError
from .. import console
from ..buffers import ROOMY, one_line, trace, two_lines
from ..console import counted
from ..program import NEEDED, Row, module_option, one, output_options, space_of, states, title

if TYPE_CHECKING:
    from ...dump import Dump

LIMIT = 20


@click.command("live", short_help="List what holds an instant.")
@click.argument("path", metavar="PATH")
@click.option("--at", type=int, metavar="N", help="Step of the schedule; by default each memory space's own peak.")
@output_options(LIMIT, "Rows shown per memory space.")
@module_option
def command(
    path: str,
    at: int | None,
    space: str | None,
    limit: int | None,
    wide: bool,
    as_json: bool,
    as_csv: bool,
    module: str | None,
) -> int:
    """List the values that are live at a step of the program in PATH, and what is held though no live value covers
    it: the largest first. The bytes add up to what is in use at that step.
    """
    if as_json and as_csv:
        raise UsageError("--json or --csv, not both")
    dump = one(path, module, NEEDED)
    found = compute.live_set(dump, at, space=space_of(space))
    head = dump.modules.to_pylist()[0]
    spaces = compute.peak(dump).spaces.to_pylist()
    groups = _groups(found.to_pylist(), spaces)
    if as_json:
        data = [
            {**_space(s, rows, at), "rows": rows if limit is None else rows[:limit], "n_rows": len(rows)}
            for s, rows in groups
        ]
        console.out_json({"schema_version": schema.VERSION, "name": dump.name, "module": head, "spaces": data})
        return console.FINE
    if as_csv:
        names = [c.name for c in schema.COMPUTED["live_set"].columns]
        rows = [row for _, of in groups for row in (of if limit is None else of[:limit])]
        console.out_csv(names, ([row[n] for n in names] for row in rows))
        return console.FINE
    _print(dump, head, groups, at, LIMIT if limit is None else limit, None if wide else console.width(), wide=wide)
    return console.FINE


def _groups(rows: list[Row], spaces: list[Row]) -> list[tuple[Row, list[Row]]]:
    """Rows by memory space, empty ones left out."""
    found = []
    for s in spaces:
        of = [r for r in rows if (r["color"], r["page"]) == (s["color"], s["page"])]
        if of:
            found.append((s, of))
    return found


def _space(s: Row, rows: list[Row], at: int | None) -> Row:
    return {
        "memory_space": s["memory_space"],
        "color": s["color"],
        "page": s["page"],
        "time": s["first_step"] if at is None else at,
        "bytes": sum(r["bytes"] for r in rows),
    }


def _print(
    dump: Dump,
    head: Row,
    groups: list[tuple[Row, list[Row]]],
    at: int | None,
    limit: int,
    width: int | None,
    *,
    wide: bool,
) -> None:
    from rich.text import Text

    texts = title(dump.source, head, width, states(dump))
    steps = dump.schedule["instruction"]
    trace(dump, [row for _, rows in groups for row in rows[:limit]])
    for s, rows in groups:
        facts = _space(s, rows, at)
        step = facts["time"] or 0
        runs = f"step {step:,} runs {steps[step].as_py()}" if step < len(steps) else "after the last instruction"
        why = ", its peak" if facts["bytes"] == s["peak"] else f" (peak {console.size(s['peak'])})"
        said = f"  {console.exact(facts['bytes'])} at step {step:,} of {console.known(head['schedule_length'])}{why}"
        texts += [Text(), Text.assemble((s["memory_space"], "bold"), said)]
        values = sum(r["role"] == "value" for r in rows)
        held = len(rows) - values
        parts = [
            counted(values, "live value"),
            counted(held, "allocation held without", "allocations held without") if held else "",
        ]
        texts.append(Text(f"  {', '.join(filter(None, parts))}; {runs}", "dim"))
        shown = rows[:limit]
        if shown:
            texts += (
                one_line(shown, width, wide=wide)
                if wide or (width or ROOMY) >= ROOMY
                else two_lines(shown, width or 80)
            )
        if more := len(rows) - len(shown):
            left = facts["bytes"] - sum(r["bytes"] for r in shown)
            texts.append(
                Text(f"  {console.size(left).rjust(11)}  in {counted(more, 'more', 'more')}; --limit shows more", "dim")
            )
    console.rich_out(*texts, width=width)
