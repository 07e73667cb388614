"""`xlamem buffer`: everything about one buffer."""

from __future__ import annotations

from dataclasses import asdict

import click

from ... import compute
from ...dump import Dump
from .. import console, options


@click.command("buffer")
@options.dump()
@click.argument("name")
@options.output(limit="Number of users, aliases and neighbors to list.  [default: 6; all in JSON]")
def command(dump: Dump, name: str, output: options.Output) -> None:
    """Show what defines, reads and keeps alive one buffer of the program in PATH, and what shares its bytes.

    NAME is a value_id, an instruction, with a shape index if it defines several buffers (while.10{24}), or a label
    that `xlamem peak` prints: then it is the largest buffer with this label at the peak.
    `xlamem top PATH --by buffer` lists them.
    """
    buffer = compute.buffer(dump, name)
    if buffer.namesakes:
        console.note(f"{buffer.namesakes + 1:,} buffers have this label; `xlamem top --by buffer` lists those in use")
    if output.json:
        row = asdict(buffer)
        names = ("users", "positions", "mates")
        lists = {name: output.head(row[name]) for name in names} | {f"n_{name}": len(row[name]) for name in names}
        console.write_document("buffer", {**options.program_json(dump), **row, **lists})
    else:
        from ..reporters.buffer import screen  # imports rich

        console.write_lines(screen(dump, buffer, output.width, output.limit), output.width)
