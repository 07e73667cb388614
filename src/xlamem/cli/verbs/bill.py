"""`xlamem bill`: why so much memory must fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ... import compute, schema
from ...compute import Packing, rows_of_space
from ...dump import Dump
from ...errors import UsageError
from .. import console, options

if TYPE_CHECKING:
    from .. import documents


@click.command("bill")
@options.dump()
@options.space
@click.option(
    "--repack", "seconds", type=click.FloatRange(min=0), metavar="SECONDS",
    help="Search for a better packing of the temporaries for so long.",
)  # fmt: skip
@options.output(csv=True)
def command(dump: Dump, space: str | int | None, seconds: float | None, output: options.Output) -> None:
    """Show why the program in PATH must have so much memory: an account of device_total and one of each memory space,
    at its peak, that add up to the byte.

    Parameters, outputs and constants are divided into data, padding and bytes that no value covers; temporaries into
    data and padding. Alignment, other steps and packing explain why temporaries take more than is in use at the peak.
    """
    if output.csv and seconds is not None:
        raise UsageError("--repack and --csv exclude each other")
    rows = rows_of_space(dump, compute.bill(dump).to_pylist(), space)
    packings = None if seconds is None else compute.repack(dump, seconds, space=space)
    if output.json:
        searched = None if packings is None else [_as_json(p) for p in packings]
        document: documents.Bill = {**options.program_json(dump), "bill": rows, "packings": searched}
        console.write_document("bill", document)
    elif output.csv:
        names = schema.COMPUTED["bills"].names
        output.write_csv(names, ([row[name] for name in names] for row in rows))
    else:
        from ..reporters.bill import screen  # imports rich

        console.write_lines(screen(dump, rows, packings, output.width), output.width)


def _as_json(p: Packing) -> documents.Packing:
    return {
        "memory_space": p.memory_space, "color": p.color, "page": p.page, "allocation": p.allocation, "size": p.size,
        "found": p.found, "lower_bound": p.lower_bound, "n_buffers": p.n_buffers, "attempts": p.attempts,
        "optimal": p.is_optimal,
    }  # fmt: skip
