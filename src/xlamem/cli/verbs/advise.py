"""`xlamem advise`: what to do so that a program needs less memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ... import compute
from ...dump import Dump
from ...errors import UsageError
from .. import console, options
from ..completion import devices, one_of

if TYPE_CHECKING:
    from ...compute.advice import Plan
    from .. import documents


@click.command("advise")
@options.dump()
@click.option("--budget", metavar="SIZE", help="Show a short list that makes the program fit (14GiB).")
@click.option(
    "--device", metavar="NAME", shell_complete=one_of(devices), help="The same for the memory of a device (v5e, h100)."
)
@options.output(csv=True, limit="Interventions shown.  [default: 10; all in JSON and CSV]", wide=True)
def command(dump: Dump, budget: str | None, device: str | None, output: options.Output) -> None:
    """List what can be done so that the program in PATH needs less memory: donate an argument, recompute activations,
    change a shape or an element type, and so on, each with bounds of the bytes that it saves.

    The bounds hold for one intervention at a time. Those marked "try" depend on decisions of the compiler, and may
    cost memory.
    """
    if device is not None and (verdict := compute.fits(dump, device=device)).other_platform:
        raise UsageError(f"--device {device}: {verdict.reason}; state a --budget instead")
    table, plan = compute.plan_advice(dump, budget, device)
    if output.json:
        document: documents.Advise = {
            **options.program_json(dump),
            "device_total": compute.device_total(dump),
            "plan": None if plan is None else _as_json(plan),
            "advice": output.head(table).to_pylist(),
            "n_rows": table.num_rows,
        }
        console.write_document("advise", document)
    elif output.csv:
        output.write_csv(table.column_names, (row.values() for row in output.head(table).to_pylist()))
    else:
        from ..reporters.advice import screen  # imports rich

        console.write_lines(screen(dump, table.to_pylist(), plan, output), output.width)


def _as_json(plan: Plan) -> documents.Plan:
    return {
        "device_total": plan.device_total, "budget": plan.budget, "saved": plan.saved, "n": plan.n,
        "is_reached": plan.is_reached,
    }  # fmt: skip
