"""`xlamem explain`: the published numbers of a program, and why they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ... import compute, schema
from ...compute import rows_of_space
from ...dump import Dump
from .. import console, options

if TYPE_CHECKING:
    from .. import documents


@click.command("explain")
@options.dump()
@options.space
@options.output(csv=True, limit="Numbers shown.  [default: all]", wide=True, verbose="Define each number.")
def command(dump: Dump, space: str | int | None, output: options.Output) -> None:
    """Compare the numbers that XLA, JAX, XProf and xlamem report as peak, total or reserved for the program in PATH:
    definition, difference from xlamem's peak, and the causes of the difference.

    Reserved memory must fit; the peak is in use at one time; live memory is what the program itself needs.
    """
    rows = rows_of_space(dump, compute.explain(dump).to_pylist(), space)
    numbers = output.head(rows)
    shown = {_key(n) for n in numbers}
    causes = [c for c in compute.explain_causes(dump).to_pylist() if _key(c) in shown]
    if output.json:
        document: documents.Explain = {
            **options.program_json(dump),
            "numbers": numbers,
            "n_numbers": len(rows),
            "causes": causes,
        }
        console.write_document("explain", document)
    elif output.csv:
        names = schema.COMPUTED["explain"].names
        output.write_csv(names, ([n[name] for name in names] for n in numbers))
    else:
        from ..reporters.explain import screen  # imports rich

        lines = screen(dump, numbers, causes, output.width, verbose=output.verbose)
        console.write_lines(lines, output.width)


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["name"], row["color"], row["page"]
